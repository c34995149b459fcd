"""The message window as chunks, each with an inverted index of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dskype.bolts.window import _kernels
from dskype.bolts.window.base import Answers, MessageWindow, QueryBatch
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import to_strings
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["ChunkWindow"]

_ROWS = 1 << 16
_FLOATS = {"alpha", "lat", "lon", "weights"}
_NOTHING_FREED = np.iinfo(np.int64).min


def _own(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return an array that kernels take without being compiled anew: aligned and writable. Those of frames may be neither."""
    return np.require(array, dtype, "CAW")


class _Queue:
    """An array that grows at its end and shrinks at its beginning; both amortised O(1) per value."""

    def __init__(self, dtype: Any) -> None:
        self._data = np.empty(16, dtype)
        self._start = self._stop = 0
        self.base = 0
        """How many values have been dropped: value number *i* since the beginning is ``view[i - base]``."""

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def end(self) -> int:
        """How many values there have been."""
        return self.base + len(self)

    @property
    def view(self) -> np.ndarray:
        """The values; valid until the next append."""
        return self._data[self._start:self._stop]

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    def append(self, values: np.ndarray) -> None:
        n, live = len(values), len(self)
        if self._stop + n > len(self._data):
            wanted = live + n
            data = self._data if wanted * 4 // 3 <= len(self._data) else np.empty(wanted * 3 // 2, self._data.dtype)
            data[:live] = self.view     # may overlap: numpy takes care
            self._data, self._start, self._stop = data, 0, live
        self._data[self._stop:self._stop + n] = values
        self._stop += n

    def drop(self, n: int) -> None:
        self._start += n
        self.base += n

    def load(self, base: int, values: np.ndarray) -> None:
        self._data = np.array(values, self._data.dtype)
        self._start, self._stop, self.base = 0, len(values), int(base)


class _Tail:
    """The index of the newest messages: grows by itself. See :class:`_kernels.Tail`."""

    _ENTRY = {"terms": np.int64, "last": np.int32, "length": np.int32, "most": np.float64}
    _POSTING = {"entries": np.int32, "previous": np.int32, "rows": np.uint16, "weights": np.float64}

    def __init__(self, first: int) -> None:
        arrays = {name: np.empty(256, dtype) for name, dtype in (self._ENTRY | self._POSTING).items()}
        self.arrays = _kernels.Tail(first=first, counts=np.zeros(2, np.int64), slots=np.zeros(1024, np.int32), **arrays)
        self.messages = 0

    def restart(self, first: int) -> None:
        """Empty it, and keep the room."""
        self.arrays.slots[:] = 0
        self.arrays.counts[:] = 0
        self.arrays = self.arrays._replace(first=first)
        self.messages = 0

    def add(self, offsets: np.ndarray, terms: np.ndarray, weights: np.ndarray) -> None:
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
            self.arrays = self.arrays._replace(**{name: np.concatenate([getattr(self.arrays, name), np.empty(size - len(present), dtype)])
                                                  for name, dtype in names.items()})

    def keywords(self) -> dict[str, np.ndarray]:
        """Return the keywords of the messages: rows, terms and weights, in order of the rows."""
        postings = self.arrays.counts[1]
        return {"rows": self.arrays.rows[:postings], "terms": self.arrays.terms[self.arrays.entries[:postings]],
                "weights": self.arrays.weights[:postings]}

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays[1:])


class ChunkWindow(MessageWindow):
    """Messages in order of arrival, cut into chunks with an inverted index each; chunks fall away as a whole.

    A query looks its keywords up in every chunk that its window meets, the newest first, adds up their products per
    message, and keeps the best; lists of common keywords are not gone through where they cannot bring anything. The
    newest messages are in no chunk yet; their index is a hash table with a linked list per keyword. Memory: 40 bytes per
    message, 10 per keyword, 28 per chunk and distinct keyword of it, and the ids; up to half as much again while arrays grow.

    :param capacity: messages per chunk, 1 to 65,536; default 4096. So many freed messages may stay.
    """

    def __init__(self, capacity: int = 4096) -> None:
        if type(capacity) is not int or not 1 <= capacity <= _ROWS:
            raise IllegalArgumentException(explain("The capacity of a chunk is not usable.", given=capacity, legal=f"an integer from 1 to {_ROWS}"))
        self._capacity = capacity
        self._messages = _Queue(np.int64), _Queue(np.int64), _Queue(np.float64), _Queue(np.float64), _Queue(np.int64)
        self._seq, self._position, self._lat, self._lon, self._id_ends = self._messages
        self._id_bytes = _Queue(np.uint8)
        self._entries = _Queue(np.int64), _Queue(np.int64), _Queue(np.int32), _Queue(np.float64)     # terms, begin, length, most
        self._postings = _Queue(np.uint16), _Queue(np.float64)      # rows, weights
        self._first: list[int] = [0]    # of each chunk, and of the tail: first row, first entry, first posting
        self._entry: list[int] = [0]
        self._posting: list[int] = [0]
        self._tail = _Tail(0)
        self._freed = _NOTHING_FREED
        self._make_scratch(capacity)

    def _make_scratch(self, rows: int) -> None:
        self._scratch = _kernels.Scratch(np.empty(rows, np.float64), np.zeros(rows, np.int64), np.empty(rows, np.int64), np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self._seq)

    # -- messages ---------------------------------------------------------------------------------

    def insert(self, messages: MessageBatch, ids: Sequence[str] | pa.StringArray) -> None:
        """See :meth:`MessageWindow.insert`; O(1) per keyword, and O(log) of the distinct keywords when a chunk is full."""
        self._refuse_disorder(messages)
        strings = to_strings(ids)
        if len(strings) != messages.n or strings.null_count:
            raise IllegalArgumentException(explain("Every message needs an id.", given=f"{len(strings)} ids, {strings.null_count} of them null",
                                                   legal=f"{messages.n} texts"))
        start = 0
        while start < messages.n:
            stop = min(messages.n, start + self._capacity - self._tail.messages)
            self._append(messages, start, stop, strings.slice(start, stop - start))
            if self._tail.messages == self._capacity:
                self._seal()
            start = stop

    def _refuse_disorder(self, messages: MessageBatch) -> None:
        position, seq = messages.position, messages.seq
        if len(self._seq):
            position, seq = np.append(self._position.view[-1], position), np.append(self._seq.view[-1], seq)
        rising = (position[1:] > position[:-1]) | ((position[1:] == position[:-1]) & (seq[1:] > seq[:-1]))
        if not rising.all():
            at = int(np.argmin(rising))
            raise IllegalArgumentException(explain("Messages must come in rising order of position and sequence number.",
                                                   given=f"position {position[at + 1]}, seq {seq[at + 1]} behind position {position[at]}, seq {seq[at]}"))
        if messages.n and messages.position[0] <= self._freed:
            raise IllegalArgumentException(explain("A message must not come where messages have been freed.", given=int(messages.position[0]),
                                                   legal=f"above {self._freed}"))

    def _append(self, messages: MessageBatch, start: int, stop: int, ids: pa.StringArray) -> None:
        for queue, column in zip(self._messages, messages[:4]):
            queue.append(column[start:stop])
        _, offsets, data = ids.buffers()
        ends = np.frombuffer(offsets, np.int32)[ids.offset:ids.offset + len(ids) + 1].astype(np.int64)
        self._id_ends.append(ends[1:] - ends[0] + self._id_bytes.end)
        if data is not None:
            self._id_bytes.append(np.frombuffer(data, np.uint8)[ends[0]:ends[-1]])
        offsets = messages.offsets[start:stop + 1]
        keywords = slice(offsets[0], offsets[-1])
        self._tail.add(offsets - offsets[0], _own(messages.terms[keywords], np.int64), _own(messages.weights[keywords], np.float64))

    def _seal(self) -> None:
        """Make a chunk of the tail."""
        terms, lengths, most, rows, weights = _kernels.seal(self._tail.arrays)
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

    def _drop_messages(self, n: int) -> None:
        self._id_bytes.drop(int(self._id_ends.view[n - 1]) - self._id_bytes.base)
        for queue in self._messages:
            queue.drop(n)

    def ids(self, seqs: np.ndarray, positions: np.ndarray) -> list[str]:
        """See :meth:`MessageWindow.ids`; O(log m) per message."""
        rows = _kernels.locate(self._position.view, self._seq.view, _own(positions, np.int64), _own(seqs, np.int64))
        if (rows < 0).any():
            at = int(np.argmin(rows))
            raise IllegalArgumentException(explain("A message is not in the window.", given=f"position {positions[at]}, seq {seqs[at]}"))
        offsets, data = _kernels.gather_texts(self._id_ends.view, self._id_bytes.base, self._id_bytes.view, rows)
        return pa.StringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(data)).to_pylist()

    # -- queries ----------------------------------------------------------------------------------

    def topk(self, queries: QueryBatch, extent: int, diagonal_deg: float) -> Answers:
        """See :meth:`MessageWindow.topk`; at most linear in the postings of the query's keywords, and O(log) of the entries per chunk."""
        if queries.n and int(queries.watermark.min()) - extent < self._freed:
            raise IllegalArgumentException(explain("A query needs messages that have been freed.", given=f"watermark {queries.watermark.min()}",
                                                   legal=f"{self._freed + extent} and above"))
        messages = _kernels.Messages(self._seq.base, *(queue.view for queue in self._messages[:4]))
        chunks = _kernels.Chunks(np.array(self._first), np.array(self._entry) - self._entry[0], *(queue.view for queue in self._entries),
                                 self._postings[0].base, *(queue.view for queue in self._postings))
        queries = QueryBatch(*(_own(column, np.float64 if name in _FLOATS else np.int64) for name, column in zip(QueryBatch._fields, queries)))
        offsets, rows, scores = _kernels.topk(messages, chunks, self._tail.arrays, queries, extent, float(diagonal_deg), self._scratch)
        return Answers(offsets, messages.seq[rows], messages.position[rows], scores)

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """See :meth:`MessageWindow.snapshot`."""
        return {
            "freed": self._freed, "first": self._first, "entry": self._entry, "posting": self._posting,
            **{name: [[queue.base, queue.view] for queue in queues] for name, queues in self._queues().items()},
            "tail": self._tail.keywords(),
        }

    def _queues(self) -> dict[str, tuple[_Queue, ...]]:
        return {"messages": self._messages, "id_bytes": (self._id_bytes,), "entries": self._entries, "postings": self._postings}

    def restore(self, state: dict[str, Any]) -> None:
        """See :meth:`MessageWindow.restore`; chunks that are there keep their size."""
        self._freed = state["freed"]
        self._first, self._entry, self._posting = (list(state[name]) for name in ("first", "entry", "posting"))
        for name, queues in self._queues().items():
            for queue, (base, values) in zip(queues, state[name], strict=True):
                queue.load(base, values)
        self._tail = _Tail(self._first[-1])
        keywords, n = state["tail"], self._seq.end - self._first[-1]
        self._tail.add(np.searchsorted(keywords["rows"], np.arange(n + 1)), _own(keywords["terms"], np.int64), _own(keywords["weights"], np.float64))
        if n >= self._capacity:    # written with a larger capacity
            self._seal()
        self._make_scratch(max([self._capacity, *np.diff(self._first).tolist()]))

    @property
    def memory_bytes(self) -> int:
        """About how much memory the messages and the index take."""
        return sum(queue.nbytes for queues in self._queues().values() for queue in queues) + self._tail.nbytes + sum(a.nbytes for a in self._scratch)

    def _check(self) -> None:
        """Verify all invariants; for tests."""
        chunks = len(self._first) - 1
        assert len(self._entry) == len(self._posting) == chunks + 1
        for starts, queues in ((self._first, self._messages), (self._entry, self._entries), (self._posting, self._postings)):
            assert all(starts[0] == queue.base and starts[-1] <= queue.end == queues[0].end for queue in queues)
            assert sorted(starts) == starts
        assert self._entry[-1] == self._entries[0].end and self._posting[-1] == self._postings[0].end
        position, seq = self._position.view, self._seq.view
        assert all(pair < following for pair, following in zip(zip(position, seq), zip(position[1:], seq[1:])))
        ends = [self._id_bytes.base, *self._id_ends.view.tolist()]
        assert sorted(ends) == ends and ends[-1] == self._id_bytes.end
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
                rows, weights = self._postings[0].view[b:b + n].astype(np.int64), self._postings[1].view[b:b + n]
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
