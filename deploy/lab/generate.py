"""``dskype bench generate``: write messages with the statistics of the papers' data sets, as many as wanted, in constant memory."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dskype.deploy.cli.arguments import UsageError, positive
from dskype.deploy.lab import likeness_picture
from dskype.deploy.lab.likeness import LIKE, Block, Likeness, blocks
from dskype.deploy.machine.terminal import Progress, say

__all__ = ["add_arguments", "lines", "run", "words_of"]

_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwxyz", "aeiou"


def words_of(vocabulary: int) -> pa.Array:
    """Return that many different words, the shortest first: one to four syllables."""
    syllables = pa.array([c + v for c in _CONSONANTS for v in _VOWELS])
    count, parts, size = len(syllables), [], 1
    while vocabulary > 0:
        size *= count
        numbers = np.arange(min(size, vocabulary))
        digits = [syllables.take(pa.array(numbers // count**i % count)) for i in range(round(math.log(size, count)))]
        parts.append(pc.binary_join_element_wise(*digits, ""))
        vocabulary -= len(numbers)
    return pa.concat_arrays(parts)


def lines(block: Block, words: pa.Array) -> memoryview:
    """Return messages as JSON lines in DSkype's own form."""
    lists = pa.ListArray.from_arrays(pa.array(block.offsets, pa.int32()), words.take(pa.array(block.ranks)))
    n = len(block.ts)
    columns = [np.arange(block.first, block.first + n), block.ts, np.round(block.lat, 5), np.round(block.lon, 5)]
    id, ts, lat, lon = (pa.array(column).cast(pa.string()) for column in columns)
    parts = ['{"id":', id, ',"ts":', ts, ',"lat":', lat, ',"lon":', lon, ',"text":"', pc.binary_join(lists, " "), '"}\n']
    made = pc.binary_join_element_wise(*parts, "")
    text = pa.concat_arrays(made.chunks) if isinstance(made, pa.ChunkedArray) else made
    return memoryview(text.buffers()[2])[: int(np.frombuffer(text.buffers()[1], np.int32)[n])]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--like", choices=LIKE, default="tweets", help="the data set of the papers that they are like; default: tweets")
    parser.add_argument("-n", type=positive, metavar="N", dest="count", default=100_000, help="messages; default: 100000")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--drift", type=int, metavar="N", default=0, help="after every N messages another city is the largest one, and topics have other words")
    parser.add_argument("-o", dest="out", metavar="FILE", help="write JSON lines there, packed if its name ends with .gz")
    parser.add_argument("--picture", metavar="FILE.png", help="draw words, places and words that occur together")
    parser.add_argument("--beside", metavar="FILE", help="in the picture compare with the messages of this file")


def run(args: argparse.Namespace) -> int:
    """Write messages, or a picture of them, or both."""
    if not args.out and not args.picture:
        raise UsageError("expected -o FILE, --picture FILE.png or both")
    if args.drift < 0:
        raise UsageError(f"--drift: expected 0 or more messages, given: {args.drift}")
    like = LIKE[args.like]
    if args.out:
        _write(Path(args.out), like, args)
    if args.picture:
        likeness_picture.draw(args, like)
    return 0


def _write(path: Path, like: Likeness, args: argparse.Namespace) -> None:
    words, progress, began = words_of(like.vocabulary), Progress(), time.perf_counter()
    try:
        with contextlib.ExitStack() as stack:
            file: Any = stack.enter_context(open(path, "wb"))
            if path.suffix == ".gz":
                file = stack.enter_context(gzip.GzipFile("", "wb", 1, file, mtime=0))  # the same bytes for the same messages
            for block in blocks(like, args.count, args.seed, args.drift):
                file.write(lines(block, words))
                progress(f"{block.first + len(block.ts):,} messages")
    except OSError as ex:
        raise UsageError(f"{path} cannot be written: {ex}") from ex
    progress.end()
    seconds = time.perf_counter() - began
    say(f"{args.count:,} messages like {args.like} in {path}; {args.count / seconds:,.0f} messages/s")
