"""Messages that the watermark has not passed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dskype.spouts.areas import columns_to_areas
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import lists_to_csr
from dskype.topology.tuples import TupleBatch

__all__ = ["Arrived", "MessageQueue"]


class Arrived(NamedTuple):
    """Messages with what a subscription bolt needs to know of each beside place and text.

    :ivar messages: by columns.
    :ivar ids: as JSON text, a pyarrow string array.
    :ivar arrival_ms: int64[], when each one arrived.
    """

    messages: MessageBatch
    ids: Any
    arrival_ms: np.ndarray

    def select(self, rows: np.ndarray) -> Arrived:
        """Return some rows, in the given order."""
        import pyarrow as pa

        return Arrived(self.messages.take(rows), self.ids.take(pa.array(rows)), self.arrival_ms[rows])


class MessageQueue:
    """Keeps messages until a watermark passes them, and returns them in order."""

    def __init__(self) -> None:
        self._batches: list[Arrived] = []

    def __len__(self) -> int:
        """Return the number of messages."""
        return sum(batch.messages.n for batch in self._batches)

    def append(self, batch: TupleBatch) -> None:
        """Add a frame of the stream ``matching``."""
        import pyarrow as pa

        seq, position, ids, lat, lon, terms, weights, arrival_ms = batch.columns
        offsets, flat_terms = lists_to_csr(terms, np.int64)
        flat_weights = lists_to_csr(weights, np.float64)[1]
        # Copies: what comes in a frame may be a view of its bytes.
        lat, lon, areas = columns_to_areas(lat, lon)
        messages = MessageBatch(
            np.array(seq, np.int64),
            np.array(position, np.int64),
            lat,
            lon,
            np.array(offsets, np.int64),
            np.array(flat_terms, np.int64),
            np.array(flat_weights, np.float64),
            areas,
        )
        self._batches.append(Arrived(messages, ids if isinstance(ids, pa.Array) else pa.array(ids, pa.string()), np.array(arrival_ms, np.int64)))

    def pop_until(self, watermark: int) -> Arrived:
        """Remove and return the messages up to a watermark, in rising (position, sequence number)."""
        import pyarrow as pa

        due, left = [], []
        for batch in self._batches:
            passed = batch.messages.position <= watermark
            if passed.all():
                due.append(batch)
                continue
            if passed.any():
                due.append(batch.select(np.flatnonzero(passed)))
                batch = batch.select(np.flatnonzero(~passed))
            left.append(batch)
        self._batches = left
        if not due:
            return Arrived(MessageBatch.empty(), pa.array([], pa.string()), np.zeros(0, np.int64))
        messages, ids, arrival_ms = zip(*due)
        found = Arrived(MessageBatch.concat(messages), pa.concat_arrays(ids), np.concatenate(arrival_ms))
        order = np.lexsort((found.messages.seq, found.messages.position))
        return found.select(order) if (order[1:] < order[:-1]).any() else found

    def snapshot(self) -> Any:
        """Return the messages as arrays."""
        return [[messages.columns(), ids, arrival_ms] for messages, ids, arrival_ms in self._batches]

    def restore(self, state: Any) -> None:
        """Take over a snapshot."""
        self._batches = [Arrived(MessageBatch(*map(np.array, messages)), ids, np.array(arrival_ms)) for messages, ids, arrival_ms in state]
