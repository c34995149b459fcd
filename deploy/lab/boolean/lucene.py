"""Lucene's monitor on the subscriptions and messages of `dskype bench filters`: how long both take, and whether they find the same.

The monitor keeps queries in an index under some of their terms. It makes an index of each message, or of each batch, looks up which queries it may satisfy, and
runs these on the index of the message.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dskype.bolts.boolean import make_index
from dskype.deploy.lab.boolean.filter_world import FilterWorld, Line, lines
from dskype.deploy.lab.boolean.filters import match_batches, read_world
from dskype.deploy.lab.boolean.measure import insert
from dskype.deploy.lab.comparing import quiet
from dskype.deploy.lab.corpus import add_file_argument
from dskype.deploy.machine import jars
from dskype.deploy.machine.java import find_java
from dskype.deploy.machine.terminal import Progress
from dskype.spouts.text import Tokenizer
from dskype.topology.errors import IllegalArgumentException, TopologyError, explain

__all__ = ["add_arguments", "box_tokens", "run", "tokens"]

_BATCH = 256
_JARS, _SOURCE = Path(__file__).with_name("lucene.sha256"), Path(__file__).with_name("LuceneMonitor.java")


def tokens(tree: Any) -> list[str]:
    """Translate an expression (:mod:`dskype.spouts.expression`) to what LuceneMonitor.java reads.

    :raises IllegalArgumentException: the monitor has no such query, or it means something else there.

    >>> tokens(["and", "coffee", ["not", "tea"]])
    ['BOOL', '2', 'MUST', 'WORD', 'coffee', 'MUST_NOT', 'WORD', 'tea']
    """
    if type(tree) is str:
        return ["WORD", tree]
    kind, *rest = tree
    if kind == "and":
        return _bool(("MUST_NOT", part[1]) if part[0] == "not" else ("MUST", part) for part in rest)
    if kind == "or":
        return _bool(("SHOULD", part) for part in rest)
    if kind == "not":
        return _bool([("MUST", ["all"]), ("MUST_NOT", rest[0])])
    if kind == "all":
        return ["ALL"]
    if kind == "phrase" and rest[0] == 0:
        return ["PHRASE", "0", str(len(rest[2])), *(part for place, word in zip(rest[1], rest[2]) for part in (str(place), word))]
    if kind == "attribute":
        name, op, *values = rest
        if op == "=" and type(values[0]) is str:
            return ["VALUE", name, values[0]]
        if op in ("<", "<=", ">", ">=", "="):
            number = float(values[0])
            low = math.nextafter(number, math.inf) if op == ">" else number if op in (">=", "=") else -math.inf
            high = math.nextafter(number, -math.inf) if op == "<" else number if op in ("<=", "=") else math.inf
            return ["RANGE", name, repr(low), repr(high)]
    raise IllegalArgumentException(
        explain("Expected an expression that Lucene's monitor has", given=tree, legal="words, AND, OR, NOT, phrases without words between, and comparisons")
    )


def _bool(parts: Iterable[tuple[str, Any]]) -> list[str]:
    listed = list(parts)
    return ["BOOL", str(len(listed)), *(token for occur, part in listed for token in (occur, *tokens(part)))]


def box_tokens(box: Sequence[float]) -> list[str]:
    """Translate a rectangle; one that crosses the antimeridian is two."""
    west, south, east, north = box
    if west <= east:
        return ["BOX", *map(repr, (west, south, east, north))]
    halves = box_tokens([west, south, 180.0, north]), box_tokens([-180.0, south, east, north])
    return ["BOOL", "2", "SHOULD", *halves[0], "SHOULD", *halves[1]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file_argument(parser)
    parser.add_argument("--subscriptions", type=int, default=100_000, help="how many subscriptions (default: 100,000)")
    parser.add_argument("--batches", type=int, default=8, help=f"how many batches of {_BATCH} messages (default: 8)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured; the least counts (default: 5)")
    parser.add_argument("--only", default="", help="names of filters, with commas between them (default: all that the monitor has)")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Compare on all lines and print a table; return 1 if something was not found by both."""
    progress = Progress()
    libraries = jars.fetch_others(_JARS, "lucene", lambda p: progress(str(p)))
    progress("drawing subscriptions")
    world = read_world(args, args.batches * _BATCH)
    chosen = [line for line in lines() if line.region is None and (not args.only or line.name in args.only.split(","))]
    print(f"{args.subscriptions:,} subscriptions with two words and a rectangle, {world.messages.n:,} messages; us/message of one thread")
    print(f"{'':<20}{'matches':>9}{'DSkype':>8}{'with words':>12}{'monitor':>9}{'in batches':>12}{'ratio':>7}{'register, us':>14}  {'same pairs'}")
    differs = False
    for line in chosen:
        progress(f"DSkype: {line.name}")
        ours, own_us = _own(world, line, args)
        words_us = _words_us(world, args.rounds)
        progress(f"Lucene's monitor: {line.name}")
        found, pairs, pairs_of_batches = _monitor(world, line, args, libraries)
        same = np.array_equal(ours, pairs) and np.array_equal(ours, pairs_of_batches)
        differs |= not same
        us, batches_us = found["message_us-1"], found[f"message_us-{_BATCH}"]
        ratio = min(us, batches_us) / (own_us + words_us)
        shown = f"{len(ours) / world.messages.n:>9.2f}{own_us:>8.2f}{own_us + words_us:>12.2f}{us:>9.1f}{batches_us:>12.1f}{ratio:>7.1f}{found['register_us']:>14.1f}"
        print(f"{line.name:<20}{shown}  {f'yes, {len(ours):,}' if same else f'NO: {len(ours):,} and {len(pairs):,}'}", flush=True)
    progress.end()
    return int(differs)


def _own(world: FilterWorld, line: Line, args: argparse.Namespace) -> tuple[np.ndarray, float]:
    """Return the pairs (message, subscription), in order, int64[n, 2], and us per message."""
    index = make_index("lanes", {})
    insert(index, world.subscriptions, np.arange(world.subscriptions.n))
    filters, regions = world.tables(line, args.seed)
    batches = world.batches(args.batches)
    spent = np.full(len(batches), np.iinfo(np.int64).max)
    for _ in range(args.rounds):
        found, pairs = match_batches(index, filters, regions, batches)
        np.minimum(spent, found, out=spent)
    starts = np.arange(len(batches)) * _BATCH
    own = np.concatenate([np.stack((rows + start, slots), axis=1) for (rows, slots), start in zip(pairs, starts.tolist())]).astype(np.int64)
    return own[np.lexsort((own[:, 1], own[:, 0]))], float(spent.sum()) / 1e3 / world.messages.n


def _words_us(world: FilterWorld, rounds: int) -> float:
    """Return how long the texts of a message take to become terms, which is part of what the monitor does."""
    least = math.inf
    with quiet():
        for _ in range(rounds):
            began = time.process_time_ns()
            for start in range(0, world.messages.n, _BATCH):
                world.vocabulary.analyze(world.texts[start : start + _BATCH], Tokenizer())
            least = min(least, time.process_time_ns() - began)
    return least / 1e3 / world.messages.n


def _monitor(world: FilterWorld, line: Line, args: argparse.Namespace, libraries: Sequence[Path]) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    """Return what the monitor takes, and the pairs that it finds, in order: of one message at a time, and of batches."""
    tokenizer = Tokenizer()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(folder / "queries", "w", encoding="utf-8") as file:
            for words, drawn, box in zip(world.words, world.drawn(line, args.seed), world.subscriptions.boxes.tolist()):
                tree = ["and", *words] if line.expression is None else line.expression(words, drawn)
                parts = tree[1:] if tree[0] == "and" else [tree]
                body = tokens(["and", *parts])
                file.write("\t".join([*body[:1], str(len(parts) + 1), *body[2:], "MUST", *box_tokens(box)]) + "\n")
        cut = [tokenizer.tokens(text) for text in world.texts]
        with open(folder / "messages", "w", encoding="utf-8") as file:
            for lon, lat, price, category, own in zip(world.messages.lon.tolist(), world.messages.lat.tolist(), world.prices.tolist(), world.categories, cut):
                file.write(f"{lon!r}\t{lat!r}\t{price!r}\t{category}\t{' '.join(own)}\n")
        counts = Counter(word for pair in world.words for word in pair)
        with open(folder / "frequencies", "w", encoding="utf-8") as file:
            file.writelines(f"{word}\t{world.vocabulary.df(world.vocabulary.ids([word]))[0]}\n" for word in counts)
        command = [str(find_java().path), "-Xmx4g", "-cp", ":".join(map(str, libraries)), str(_SOURCE), str(folder), str(args.rounds), "1", str(_BATCH)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise TopologyError(explain("Lucene's monitor failed", given=ran.stderr[-500:].strip(), hint="a JDK is needed, which compiles its program"))
        found = {key: float(value) for key, value in (row.split() for row in ran.stdout.splitlines())}
        pairs = [np.loadtxt(folder / f"pairs-{batch}", np.int64, ndmin=2).reshape(-1, 2) for batch in (1, _BATCH)]
    return found, *(one[np.lexsort((one[:, 1], one[:, 0]))] for one in pairs)
