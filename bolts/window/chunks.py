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
_NOTHING_FREED = np.iinfo(np.int64).min


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
            wanted = max(16, live + n)
            data = self._data if wanted <= len(self._data) // 2 else np.empty(wanted * 3 // 2, self._data.dtype)
            data[:live] = self.view     # may overlap: numpy takes care
            self._data, self._start, self._stop = data, 0, live
        self._data[self._stop:self._stop + n] = values
        self._stop += n

    def drop(self, n: int) -> None:
        self._start += n
        self.base += n

    def clear(self) -> None:
        self.drop(len(self))

    def load(self, base: int, values: np.ndarray) -> None:
        self._data = np.array(values, self._data.dtype)
        self._start, self._stop, self.base = 0, len(values), int(base)


class ChunkWindow(MessageWindow):
    """Messages in order of arrival, cut into chunks with an inverted index each; chunks fall away as a whole.

    A query looks its keywords up in every chunk that its window meets, adds up their products per message, and keeps
    the best. The newest messages are in no chunk yet and are compared one by one. Memory: 32 bytes per message, 10 per
    keyword, 20 per chunk and distinct keyword of it, and the ids.

    :param capacity: messages per chunk, 1 to 65,536; default 4096. So many freed messages may stay.
    """

    def __init__(self, capacity: int = 4096) -> None:
        if type(capacity) is not int or not 1 <= capacity <= _ROWS:
            raise IllegalArgumentException(explain("The capacity of a chunk is not usable.", given=capacity, legal=f"an integer from 1 to {_ROWS}"))
        self._capacity = capacity
        self._seq, self._position = _Queue(np.int64), _Queue(np.int64)
        self._lat, self._lon = _Queue(np.float64), _Queue(np.float64)
        self._entry_terms, self._begin, self._length = _Queue(np.int64), _Queue(np.int64), _Queue(np.int32)
        self._rows, self._weights = _Queue(np.uint16), _Queue(np.float64)
        self._first: list[int] = [0]    # of each chunk, and of the tail: first row, first entry, first posting
        self._entry: list[int] = [0]
        self._posting: list[int] = [0]
        self._ids: list[pa.StringArray] = []    # per chunk
        self._clear_tail()
        self._freed = _NOTHING_FREED

    def _clear_tail(self) -> None:
        self._tail_offsets, self._tail_terms, self._tail_weights = _Queue(np.int64), _Queue(np.int64), _Queue(np.float64)
        self._tail_offsets.append(np.zeros(1, np.int64))
        self._tail_ids: list[pa.StringArray] = []

    def __len__(self) -> int:
        return len(self._seq)

    @property
    def _messages(self) -> tuple[_Queue, ...]:
        return self._seq, self._position, self._lat, self._lon

    @property
    def _tail_size(self) -> int:
        return len(self._tail_offsets) - 1

    # -- messages ---------------------------------------------------------------------------------

    def insert(self, messages: MessageBatch, ids: Sequence[str] | pa.StringArray) -> None:
        """See :meth:`MessageWindow.insert`; O(log capacity) per keyword."""
        self._refuse_disorder(messages)
        strings = to_strings(ids)
        start = 0
        while start < messages.n:
            stop = min(messages.n, start + self._capacity - self._tail_size)
            self._append(messages, start, stop, strings.slice(start, stop - start))
            if self._tail_size == self._capacity:
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
        self._seq.append(messages.seq[start:stop])
        self._position.append(messages.position[start:stop])
        self._lat.append(messages.lat[start:stop])
        self._lon.append(messages.lon[start:stop])
        offsets = messages.offsets[start:stop + 1]
        self._tail_terms.append(messages.terms[offsets[0]:offsets[-1]])
        self._tail_weights.append(messages.weights[offsets[0]:offsets[-1]])
        self._tail_offsets.append(offsets[1:] - offsets[0] + self._tail_offsets.view[-1])
        self._tail_ids.append(ids)

    def _seal(self) -> None:
        """Make a chunk of the tail."""
        terms, lengths, rows, weights = _kernels.build_index(self._tail_offsets.view, self._tail_terms.view, self._tail_weights.view)
        begin = np.cumsum(lengths, dtype=np.int64)
        begin += self._rows.end - lengths
        self._entry_terms.append(terms)
        self._begin.append(begin)
        self._length.append(lengths)
        self._rows.append(rows)
        self._weights.append(weights)
        self._ids.append(pa.concat_arrays(self._tail_ids))
        self._first.append(self._seq.end)
        self._entry.append(self._entry_terms.end)
        self._posting.append(self._rows.end)
        self._clear_tail()

    def free(self, position: int) -> None:
        """See :meth:`MessageWindow.free`."""
        if position <= self._freed:
            return
        self._freed = position
        gone = 0
        while gone < len(self._ids) and self._position.view[self._first[gone + 1] - self._position.base - 1] <= position:
            gone += 1
        if gone:
            for queue in self._messages:
                queue.drop(self._first[gone] - self._first[0])
            for queue in (self._entry_terms, self._begin, self._length):
                queue.drop(self._entry[gone] - self._entry[0])
            for queue in (self._rows, self._weights):
                queue.drop(self._posting[gone] - self._posting[0])
            for starts in (self._first, self._entry, self._posting, self._ids):
                del starts[:gone]
        if not self._ids and self._tail_size and self._position.view[-1] <= position:
            for queue in self._messages:
                queue.clear()
            self._first = [self._seq.end]
            self._clear_tail()

    def ids(self, seqs: np.ndarray) -> list[str]:
        """See :meth:`MessageWindow.ids`; O(log capacity) per message, and a little per chunk."""
        seqs = np.asarray(seqs, np.int64)
        found: list[Any] = [None] * len(seqs)
        missing = len(seqs)
        for number in range(len(self._ids), -1, -1):
            if not missing:
                break
            sealed = number < len(self._ids)
            start = self._first[number] - self._seq.base
            own = self._seq.view[start:self._first[number + 1] - self._seq.base if sealed else None]
            if not len(own):
                continue
            order = None if (own[1:] > own[:-1]).all() else np.argsort(own)
            ordered = own if order is None else own[order]
            at = np.minimum(np.searchsorted(ordered, seqs), len(own) - 1)
            hits = np.flatnonzero(ordered[at] == seqs)
            if not len(hits):
                continue
            if not sealed and len(self._tail_ids) > 1:
                self._tail_ids = [pa.concat_arrays(self._tail_ids)]
            strings = self._ids[number] if sealed else self._tail_ids[0]
            rows = at[hits] if order is None else order[at[hits]]
            for i, text in zip(hits.tolist(), strings.take(pa.array(rows)).to_pylist()):
                found[i] = text
            missing -= len(hits)
        if missing:
            raise IllegalArgumentException(explain("A message is not in the window.", given=int(seqs[found.index(None)])))
        return found

    # -- queries ----------------------------------------------------------------------------------

    def topk(self, queries: QueryBatch, extent: int, diagonal_deg: float) -> Answers:
        """See :meth:`MessageWindow.topk`; linear in the postings of the query's keywords."""
        if queries.n and int(queries.watermark.min()) - extent < self._freed:
            raise IllegalArgumentException(explain("A query needs messages that have been freed.", given=f"watermark {queries.watermark.min()}",
                                                   legal=f"{self._freed + extent} and above"))
        messages = _kernels.Messages(self._seq.base, *(queue.view for queue in self._messages))
        index = _kernels.Index(np.array(self._first), np.array(self._entry) - self._entry[0], self._entry_terms.view, self._begin.view,
                               self._length.view, self._rows.base, self._rows.view, self._weights.view)
        tail = _kernels.Tail(self._first[-1], self._tail_offsets.view, self._tail_terms.view, self._tail_weights.view)
        offsets, rows, scores = _kernels.topk(messages, index, tail, queries, extent, diagonal_deg)
        return Answers(offsets, messages.seq[rows], messages.position[rows], scores)

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """See :meth:`MessageWindow.snapshot`."""
        return {
            "freed": self._freed, "capacity": self._capacity,
            "messages": [queue.view for queue in self._messages], "message_base": self._seq.base,
            "entries": [queue.view for queue in (self._entry_terms, self._begin, self._length)], "entry_base": self._entry_terms.base,
            "postings": [queue.view for queue in (self._rows, self._weights)], "posting_base": self._rows.base,
            "first": self._first, "entry": self._entry, "posting": self._posting, "ids": self._ids,
            "tail": [queue.view for queue in (self._tail_offsets, self._tail_terms, self._tail_weights)],
            "tail_ids": pa.concat_arrays(self._tail_ids) if self._tail_ids else pa.array([], pa.string()),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """See :meth:`MessageWindow.restore`; chunks that are there keep their size."""
        self._freed = state["freed"]
        for queue, values in zip(self._messages, state["messages"], strict=True):
            queue.load(state["message_base"], values)
        for queue, values in zip((self._entry_terms, self._begin, self._length), state["entries"], strict=True):
            queue.load(state["entry_base"], values)
        for queue, values in zip((self._rows, self._weights), state["postings"], strict=True):
            queue.load(state["posting_base"], values)
        self._first, self._entry, self._posting, self._ids = (list(state[key]) for key in ("first", "entry", "posting", "ids"))
        self._clear_tail()
        for queue, values in zip((self._tail_offsets, self._tail_terms, self._tail_weights), state["tail"], strict=True):
            queue.load(0, values)
        self._tail_ids = [state["tail_ids"]] if len(state["tail_ids"]) else []
        if self._tail_size >= self._capacity:    # written with a larger capacity
            self._seal()

    @property
    def memory_bytes(self) -> int:
        """About how much memory the messages and the index take."""
        queues = (*self._messages, self._entry_terms, self._begin, self._length, self._rows, self._weights,
                  self._tail_offsets, self._tail_terms, self._tail_weights)
        return sum(queue.nbytes for queue in queues) + sum(ids.nbytes for ids in (*self._ids, *self._tail_ids))

    def _check(self) -> None:
        """Verify all invariants; for tests."""
        chunks = len(self._ids)
        assert len(self._first) == len(self._entry) == len(self._posting) == chunks + 1
        for starts, queue in ((self._first, self._seq), (self._entry, self._entry_terms), (self._posting, self._rows)):
            assert starts[0] == queue.base and sorted(starts) == starts and starts[-1] <= queue.end
        assert self._entry[-1] == self._entry_terms.end and self._posting[-1] == self._rows.end
        assert len({(queue.base, len(queue)) for queue in self._messages}) == 1
        assert len({(queue.base, len(queue)) for queue in (self._entry_terms, self._begin, self._length)}) == 1
        assert len({(queue.base, len(queue)) for queue in (self._rows, self._weights)}) == 1
        position, seq = self._position.view, self._seq.view
        assert all(pair < following for pair, following in zip(zip(position, seq), zip(position[1:], seq[1:])))
        assert self._tail_size == self._seq.end - self._first[-1] == sum(map(len, self._tail_ids)) < self._capacity
        assert self._tail_offsets.view[0] == 0 and self._tail_offsets.view[-1] == len(self._tail_terms) == len(self._tail_weights)
        for number in range(chunks):
            size = self._first[number + 1] - self._first[number]
            assert 0 < size <= _ROWS and len(self._ids[number]) == size
            assert position[self._first[number + 1] - self._seq.base - 1] > self._freed, "a chunk that is freed is still there"
            entries = slice(self._entry[number] - self._entry[0], self._entry[number + 1] - self._entry[0])
            terms, begin, length = self._entry_terms.view[entries], self._begin.view[entries], self._length.view[entries]
            assert (terms[1:] > terms[:-1]).all() and (length > 0).all()
            assert length.sum() == self._posting[number + 1] - self._posting[number]
            assert (begin == self._posting[number] + np.cumsum(length) - length).all()
            for b, n in zip(begin - self._rows.base, length):
                rows = self._rows.view[b:b + n].astype(np.int64)
                assert (rows[1:] > rows[:-1]).all() and rows[-1] < size
        assert chunks or not self._tail_size or position[-1] > self._freed
