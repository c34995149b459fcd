"""The part that all windows share: columns of the messages in order of arrival, and their ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dskype.bolts.window import _kernels
from dskype.bolts.window.base import MessageWindow, QueryBatch
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import to_strings
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["KeptMessages", "Queue", "kernel_array"]

_FLOATS = {"alpha", "lat", "lon", "weights", "scale_m"}
_NOTHING_FREED = np.iinfo(np.int64).min
_NEVER = np.iinfo(np.int64).max


def kernel_array(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return an aligned, writable array, for which kernels are compiled already. Arrays of frames may be neither."""
    return np.require(array, dtype, "CAW")


class Queue:
    """An array that grows at its end and shrinks at its beginning; both amortised O(1) per value."""

    def __init__(self, dtype: Any) -> None:
        self._data = np.empty(16, dtype)
        self._start = self._stop = 0
        self.base = 0
        """Number of dropped values: value *i*, counted from the beginning, is ``view[i - base]``."""

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def end(self) -> int:
        """Number of values ever appended."""
        return self.base + len(self)

    @property
    def view(self) -> np.ndarray:
        """The values; valid until the next append."""
        return self._data[self._start : self._stop]

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes, with its spare room."""
        return self._data.nbytes

    def append(self, values: np.ndarray) -> None:
        """Add values at the end."""
        n, live = len(values), len(self)
        if self._stop + n > len(self._data):
            wanted = live + n
            data = self._data if wanted * 4 // 3 <= len(self._data) else np.empty(wanted * 3 // 2, self._data.dtype)
            data[:live] = self.view  # numpy handles the overlap
            self._data, self._start, self._stop = data, 0, live
        self._data[self._stop : self._stop + n] = values
        self._stop += n

    def drop(self, n: int) -> None:
        """Drop the first ``n`` values."""
        self._start += n
        self.base += n

    def load(self, base: int, values: np.ndarray) -> None:
        """Replace all values; ``base`` is the number of values dropped before them."""
        self._data = np.array(values, self._data.dtype)
        self._start, self._stop, self.base = 0, len(values), int(base)


class KeptMessages(MessageWindow):
    """A window that keeps (seq, position, lat, lon, id) of its messages in queues; the index is the implementation's.

    *Rows* number the messages from 0 since the window was made; row *i* is ``column.view[i - base]``. 40 bytes each, and the ids.
    """

    def __init__(self) -> None:
        self._messages = Queue(np.int64), Queue(np.int64), Queue(np.float64), Queue(np.float64), Queue(np.int64)
        self._seq, self._position, self._lat, self._lon, self._id_ends = self._messages
        self._id_bytes = Queue(np.uint8)
        self._ends = Queue(np.int64)  # where messages end; empty until one does
        self._freed = _NOTHING_FREED

    def __len__(self) -> int:
        return len(self._seq)

    def _accept(self, messages: MessageBatch, ids: Sequence[str] | pa.StringArray) -> pa.StringArray:
        """Refuse messages that cannot be inserted; return the ids."""
        self._refuse_disorder(messages)
        strings = to_strings(ids)
        if len(strings) != messages.n or strings.null_count:
            raise IllegalArgumentException(
                explain("Every message needs an id.", given=f"{len(strings)} ids, {strings.null_count} of them null", legal=f"{messages.n} texts")
            )
        return strings

    def _refuse_disorder(self, messages: MessageBatch) -> None:
        position, seq = messages.position, messages.seq
        if len(self._seq):
            position, seq = np.append(self._position.view[-1], position), np.append(self._seq.view[-1], seq)
        rising = (position[1:] > position[:-1]) | ((position[1:] == position[:-1]) & (seq[1:] > seq[:-1]))
        if not rising.all():
            at = int(np.argmin(rising))
            raise IllegalArgumentException(
                explain(
                    "Messages must come in rising order of position and sequence number.",
                    given=f"position {position[at + 1]}, seq {seq[at + 1]} behind position {position[at]}, seq {seq[at]}",
                )
            )
        if messages.n and messages.position[0] <= self._freed:
            raise IllegalArgumentException(
                explain("A message must not come where messages have been freed.", given=int(messages.position[0]), legal=f"above {self._freed}")
            )

    def _append_messages(self, messages: MessageBatch, start: int, stop: int, ids: pa.StringArray) -> None:
        """Append the columns of messages ``start`` to ``stop``, whose ids are ``ids``."""
        for queue, column in zip(self._messages, messages[:4]):
            queue.append(column[start:stop])
        if len(self._ends):
            self._ends.append(np.full(stop - start, _NEVER))
        _, offsets, data = ids.buffers()
        ends = np.frombuffer(offsets, np.int32)[ids.offset : ids.offset + len(ids) + 1].astype(np.int64)
        self._id_ends.append(ends[1:] - ends[0] + self._id_bytes.end)
        if data is not None:
            self._id_bytes.append(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]])

    def _drop_messages(self, n: int) -> None:
        self._id_bytes.drop(int(self._id_ends.view[n - 1]) - self._id_bytes.base)
        for queue in self._messages:
            queue.drop(n)
        if len(self._ends):
            self._ends.drop(n)

    def end(self, seqs: np.ndarray, positions: np.ndarray, at: np.ndarray) -> None:
        """See :meth:`MessageWindow.end`; O(log m) per message."""
        rows = _kernels.locate(self._position.view, self._seq.view, kernel_array(positions, np.int64), kernel_array(seqs, np.int64))
        there = rows >= 0
        if there.any():
            if not len(self._ends):
                self._ends.load(self._seq.base, np.full(len(self), _NEVER))
            self._ends.view[rows[there]] = at[there]

    def ended(self, watermark: int) -> np.ndarray:
        """Tell which of the messages in memory have ended at a watermark (bool[len(self)])."""
        return self._ends.view <= watermark if len(self._ends) else np.zeros(len(self), np.bool_)

    def ids(self, seqs: np.ndarray, positions: np.ndarray) -> list[str]:
        """See :meth:`MessageWindow.ids`; O(log m) per message."""
        rows = _kernels.locate(self._position.view, self._seq.view, kernel_array(positions, np.int64), kernel_array(seqs, np.int64))
        if (rows < 0).any():
            at = int(np.argmin(rows))
            raise IllegalArgumentException(explain("A message is not in the window.", given=f"position {positions[at]}, seq {seqs[at]}"))
        offsets, data = _kernels.gather_texts(self._id_ends.view, self._id_bytes.base, self._id_bytes.view, rows)
        return pa.StringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(data)).to_pylist()

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """See :meth:`MessageWindow.places`."""
        return self._lat.view, self._lon.view

    def _kernel_queries(self, queries: QueryBatch, extent: int) -> QueryBatch:
        """Return queries as kernels take them.

        :raises IllegalArgumentException: a query needs freed messages.
        """
        if queries.n and int(queries.watermark.min()) - extent < self._freed:
            raise IllegalArgumentException(
                explain("A query needs messages that have been freed.", given=f"watermark {queries.watermark.min()}", legal=f"{self._freed + extent} and above")
            )
        queries = queries._replace(scale_m=queries.scales_m())
        return QueryBatch(*(kernel_array(column, np.float64 if name in _FLOATS else np.int64) for name, column in zip(QueryBatch._fields, queries)))

    def _floors(self, queries: QueryBatch, thresholds: np.ndarray | None) -> np.ndarray:
        """Return the least scores (float64[n])."""
        return np.full(queries.n, -np.inf) if thresholds is None else kernel_array(thresholds, np.float64)

    @property
    def _columns(self) -> _kernels.Messages:
        """The columns as kernels take them; valid until the next change."""
        return _kernels.Messages(self._seq.base, *(queue.view for queue in self._messages[:4]), self._ends.view)

    def _kept_snapshot(self) -> dict[str, Any]:
        return {
            "freed": self._freed,
            "messages": [[queue.base, queue.view] for queue in self._messages],
            "id_bytes": [[self._id_bytes.base, self._id_bytes.view]],
            **({"ends": [self._ends.base, self._ends.view]} if len(self._ends) else {}),
        }

    def _kept_restore(self, state: dict[str, Any]) -> None:
        self._freed = state["freed"]
        for queue, (base, values) in zip((*self._messages, self._id_bytes), (*state["messages"], *state["id_bytes"]), strict=True):
            queue.load(base, values)
        self._ends.load(*state.get("ends", (0, np.zeros(0, np.int64))))

    @property
    def _kept_bytes(self) -> int:
        return sum(queue.nbytes for queue in (*self._messages, self._id_bytes, self._ends))

    def _check(self) -> None:
        """Verify the invariants of the columns."""
        assert len({(queue.base, queue.end) for queue in (*self._messages, *([self._ends] if len(self._ends) else []))}) == 1
        position, seq = self._position.view, self._seq.view
        assert all(pair < following for pair, following in zip(zip(position, seq), zip(position[1:], seq[1:])))
        ends = [self._id_bytes.base, *self._id_ends.view.tolist()]
        assert sorted(ends) == ends and ends[-1] == self._id_bytes.end
