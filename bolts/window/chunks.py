"""The message window as chunks, each with its own inverted index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.window import _kernels
from dskype.bolts.window.base import QueryBatch
from dskype.bolts.window.kept import KeptMessages, Queue, kernel_array
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["ChunkWindow"]

_ROWS = 1 << 16


class _Tail:
    """The index of the newest messages, which grows as needed. See :class:`_kernels.Tail`."""

    _ENTRY: ClassVar = {"terms": np.int64, "last": np.int32, "length": np.int32, "most": np.float64}
    _POSTING: ClassVar = {"entries": np.int32, "previous": np.int32, "rows": np.uint16, "weights": np.float64}

    def __init__(self, first: int) -> None:
        arrays = {name: np.empty(256, dtype) for name, dtype in (self._ENTRY | self._POSTING).items()}
        self.arrays = _kernels.Tail(first=first, counts=np.zeros(2, np.int64), slots=np.zeros(1024, np.int32), **arrays)
        self.messages = 0

    def restart(self, first: int) -> None:
        """Empty the tail, and keep its arrays."""
        self.arrays.slots[:] = 0
        self.arrays.counts[:] = 0
        self.arrays = self.arrays._replace(first=first)
        self.messages = 0

    def index_messages(self, offsets: np.ndarray, terms: np.ndarray, weights: np.ndarray) -> None:
        n = int(offsets[-1] - offsets[0])
        self._make_room(self._ENTRY, self.arrays.counts[0] + n, self.arrays.terms)
        self._make_room(self._POSTING, self.arrays.counts[1] + n, self.arrays.entries)
        if 2 * (self.arrays.counts[0] + n) > len(self.arrays.slots):
            size = 1 << int(3 * (self.arrays.counts[0] + n)).bit_length()
            self.arrays = self.arrays._replace(slots=np.zeros(size, np.int32))
            _kernels.enter(self.arrays)
        _kernels.add_keywords(self.arrays, self.messages, offsets, terms, weights)
        self.messages += len(offsets) - 1

    def _make_room(self, names: dict[str, Any], wanted: int, present: np.ndarray) -> None:
        if wanted > len(present):
            size = int(wanted) * 3 // 2
            self.arrays = self.arrays._replace(
                **{name: np.concatenate([getattr(self.arrays, name), np.empty(size - len(present), dtype)]) for name, dtype in names.items()}
            )

    def keywords(self) -> dict[str, np.ndarray]:
        """Return the keywords of the messages: rows, terms and weights, in order of the rows."""
        postings = self.arrays.counts[1]
        return {"rows": self.arrays.rows[:postings], "terms": self.arrays.terms[self.arrays.entries[:postings]], "weights": self.arrays.weights[:postings]}

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays[1:])


class ChunkWindow(KeptMessages):
    """Messages in order of arrival, cut into chunks with an inverted index each. Chunks are freed as a whole.

    A query looks up its keywords in every chunk that overlaps its window, the newest first, sums up the products of weights per
    message, and keeps the best messages. It does not scan lists of frequent keywords if they cannot contribute. The newest
    messages are in no chunk yet; their index is a hash table with a linked list per keyword. Memory: 40 bytes per message, 10 per
    keyword, 28 per chunk and distinct keyword in it, and the ids; up to half as much again while arrays grow.

    :param capacity: messages per chunk, 1 to 65,536; default 4096. As many freed messages may stay in memory.
    """

    ends = True

    def __init__(self, capacity: int = 4096) -> None:
        if type(capacity) is not int or not 1 <= capacity <= _ROWS:
            raise IllegalArgumentException(explain("The capacity of a chunk is not usable.", given=capacity, legal=f"an integer from 1 to {_ROWS}"))
        super().__init__()
        self._capacity = capacity
        self._entries = Queue(np.int64), Queue(np.int64), Queue(np.int32), Queue(np.float64)  # terms, begin, length, most
        self._postings = Queue(np.uint16), Queue(np.float64)  # rows, weights
        self._first: list[int] = [0]  # first row, first entry, first posting of each chunk, and of the tail
        self._entry: list[int] = [0]
        self._posting: list[int] = [0]
        self._tail = _Tail(0)
        self._make_scratch(capacity)

    def _make_scratch(self, rows: int) -> None:
        self._scratch = _kernels.Scratch(np.empty(rows, np.float64), np.zeros(rows, np.int64), np.empty(rows, np.int64), np.zeros(1, np.int64))

    # -- messages ---------------------------------------------------------------------------------

    def insert(self, messages: MessageBatch, ids: Sequence[str] | pa.StringArray) -> None:
        """See :meth:`MessageWindow.insert`; O(1) per keyword, and O(n log n) for the n distinct keywords of a full chunk."""
        strings = self._accept(messages, ids)
        start = 0
        while start < messages.n:
            stop = min(messages.n, start + self._capacity - self._tail.messages)
            self._append(messages, start, stop, strings.slice(start, stop - start))
            if self._tail.messages == self._capacity:
                self._seal()
            start = stop

    def _append(self, messages: MessageBatch, start: int, stop: int, ids: pa.StringArray) -> None:
        self._append_messages(messages, start, stop, ids)
        offsets = messages.offsets[start : stop + 1]
        keywords = slice(offsets[0], offsets[-1])
        self._tail.index_messages(offsets - offsets[0], kernel_array(messages.terms[keywords], np.int64), kernel_array(messages.weights[keywords], np.float64))

    def _seal(self) -> None:
        """Turn the tail into a chunk."""
        tail = self._tail.arrays
        terms, lengths, most, rows, weights = _kernels.seal(tail, np.argsort(tail.terms[: tail.counts[0]]))
        begin = np.cumsum(lengths, dtype=np.int64)
        begin += self._postings[0].end - lengths
        for queue, column in zip(self._entries, (terms, begin, lengths, most)):
            queue.append(column)
        for queue, column in zip(self._postings, (rows, weights)):
            queue.append(column)
        self._first.append(self._seq.end)
        self._entry.append(self._entries[0].end)
        self._posting.append(self._postings[0].end)
        self._tail.restart(self._seq.end)

    def free(self, position: int) -> None:
        """See :meth:`MessageWindow.free`."""
        if position <= self._freed:
            return
        self._freed = position
        gone, chunks = 0, len(self._first) - 1
        while gone < chunks and self._position.view[self._first[gone + 1] - self._seq.base - 1] <= position:
            gone += 1
        if gone:
            self._drop_messages(self._first[gone] - self._first[0])
            for queue in self._entries:
                queue.drop(self._entry[gone] - self._entry[0])
            for queue in self._postings:
                queue.drop(self._posting[gone] - self._posting[0])
            for starts in (self._first, self._entry, self._posting):
                del starts[:gone]
        if gone == chunks and self._tail.messages and self._position.view[-1] <= position:
            self._drop_messages(len(self))
            self._first = [self._seq.end]
            self._tail.restart(self._seq.end)

    # -- queries ----------------------------------------------------------------------------------

    def topk(self, queries: QueryBatch, extent: int, diagonal_deg: float, thresholds: np.ndarray | None = None) -> RankedLists:
        """See :meth:`MessageWindow.topk`; at most linear in the postings of the query's keywords, and O(log entries) per chunk and keyword."""
        queries = self._kernel_queries(queries, extent)
        messages = self._columns
        chunks = _kernels.Chunks(
            np.array(self._first),
            np.array(self._entry) - self._entry[0],
            *(queue.view for queue in self._entries),
            self._postings[0].base,
            *(queue.view for queue in self._postings),
        )
        offsets, rows, scores = _kernels.topk(
            messages, chunks, self._tail.arrays, queries, self._floors(queries, thresholds), extent, float(diagonal_deg), self._scratch
        )
        return RankedLists(offsets, messages.seq[rows], messages.position[rows], scores)

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """See :meth:`MessageWindow.snapshot`."""
        return {
            **self._kept_snapshot(),
            "first": self._first,
            "entry": self._entry,
            "posting": self._posting,
            **{name: [[queue.base, queue.view] for queue in queues] for name, queues in self._queues().items()},
            "tail": self._tail.keywords(),
        }

    def _queues(self) -> dict[str, tuple[Queue, ...]]:
        return {"entries": self._entries, "postings": self._postings}

    def restore(self, state: dict[str, Any]) -> None:
        """See :meth:`MessageWindow.restore`; existing chunks keep their size."""
        self._kept_restore(state)
        self._first, self._entry, self._posting = (list(state[name]) for name in ("first", "entry", "posting"))
        for name, queues in self._queues().items():
            for queue, (base, values) in zip(queues, state[name], strict=True):
                queue.load(base, values)
        self._tail = _Tail(self._first[-1])
        keywords, n = state["tail"], self._seq.end - self._first[-1]
        self._tail.index_messages(
            np.searchsorted(keywords["rows"], np.arange(n + 1)), kernel_array(keywords["terms"], np.int64), kernel_array(keywords["weights"], np.float64)
        )
        if n >= self._capacity:  # written with a larger capacity
            self._seal()
        self._make_scratch(max([self._capacity, *np.diff(self._first).tolist()]))

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of messages and index, in bytes."""
        index = sum(queue.nbytes for queues in self._queues().values() for queue in queues) + self._tail.nbytes
        return self._kept_bytes + index + sum(a.nbytes for a in self._scratch)

    def _check(self) -> None:
        """Verify all invariants; for tests."""
        super()._check()
        position, chunks = self._position.view, len(self._first) - 1
        assert len(self._entry) == len(self._posting) == chunks + 1
        for starts, queues in ((self._first, self._messages), (self._entry, self._entries), (self._posting, self._postings)):
            assert all(starts[0] == queue.base and starts[-1] <= queue.end == queues[0].end for queue in queues)
            assert sorted(starts) == starts
        assert self._entry[-1] == self._entries[0].end and self._posting[-1] == self._postings[0].end
        assert max(np.diff(self._first), default=0) <= len(self._scratch.sums) >= self._capacity
        for number in range(chunks):
            size = self._first[number + 1] - self._first[number]
            assert 0 < size <= _ROWS
            assert position[self._first[number + 1] - self._seq.base - 1] > self._freed, "a chunk that is freed is still there"
            entries = slice(self._entry[number] - self._entry[0], self._entry[number + 1] - self._entry[0])
            terms, begin, length, most = (queue.view[entries] for queue in self._entries)
            assert (terms[1:] > terms[:-1]).all() and (length > 0).all()
            assert length.sum() == self._posting[number + 1] - self._posting[number]
            assert (begin == self._posting[number] + np.cumsum(length) - length).all()
            for b, n, highest in zip(begin - self._postings[0].base, length, most):
                rows, weights = self._postings[0].view[b : b + n].astype(np.int64), self._postings[1].view[b : b + n]
                assert (rows[1:] > rows[:-1]).all() and rows[-1] < size and weights.max() == highest
        self._check_tail()

    def _check_tail(self) -> None:
        tail = self._tail.arrays
        assert tail.first == self._first[-1] and self._tail.messages == self._seq.end - tail.first < self._capacity
        assert len(self._first) > 1 or not self._tail.messages or self._position.view[-1] > self._freed
        entries, postings = tail.counts.tolist()
        assert (np.diff(tail.rows[:postings].astype(np.int64)) >= 0).all() and tail.length[:entries].sum() == postings
        assert sorted(tail.slots[tail.slots > 0].tolist()) == list(range(1, entries + 1)) and 2 * entries <= len(tail.slots)
        assert len(set(tail.terms[:entries].tolist())) == entries
        for entry in range(entries):
            found, j = [], int(tail.last[entry])
            while j >= 0:
                found.append(j)
                j = int(tail.previous[j])
            assert found == np.flatnonzero(tail.entries[:postings] == entry)[::-1].tolist() and len(found) == tail.length[entry]
            assert tail.weights[found].max() == tail.most[entry]
