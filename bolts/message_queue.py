"""A queue of messages that wait for the watermark."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.streams import Matching
from dskype.topology.tuples import TupleBatch

__all__ = ["Arrived", "MessageQueue"]


class Arrived(NamedTuple):
    """Messages with their ids and arrival times.

    :ivar messages: the messages as columns.
    :ivar ids: their ids as JSON text, a pyarrow string array.
    :ivar arrival_ms: int64[], their arrival times.
    :ivar details: what filters look at.
    """

    messages: MessageBatch
    ids: Any
    arrival_ms: np.ndarray
    details: Details

    def select(self, rows: np.ndarray) -> Arrived:
        """Return the messages at ``rows``, in that order."""
        return Arrived(self.messages.select(rows), self.ids.take(pa.array(rows)), self.arrival_ms[rows], self.details.select(rows))


class MessageQueue:
    """Keeps messages until a watermark passes them, then returns them in order."""

    def __init__(self) -> None:
        self._batches: list[Arrived] = []

    def __len__(self) -> int:
        """Return the number of messages."""
        return sum(batch.messages.n for batch in self._batches)

    def append(self, batch: TupleBatch) -> None:
        """Add a frame of the stream ``matching``."""
        received = Matching.of(batch)
        ids = received.id if isinstance(received.id, pa.Array) else pa.array(received.id, pa.string())
        self._batches.append(Arrived(MessageBatch.of(received), ids, np.array(received.arrival_ms, np.int64), Details.of(received)))

    def pop_until(self, watermark: int) -> Arrived:
        """Remove and return the messages up to a watermark, in rising order of (position, sequence number)."""
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
            return Arrived(MessageBatch.empty(), pa.array([], pa.string()), np.zeros(0, np.int64), Details.empty())
        messages, ids, arrival_ms, details = zip(*due)
        found = Arrived(MessageBatch.concat(messages), pa.concat_arrays(ids), np.concatenate(arrival_ms), Details.concat(details))
        order = np.lexsort((found.messages.seq, found.messages.position))
        return found.select(order) if (order[1:] < order[:-1]).any() else found

    def snapshot(self) -> Any:
        """Return the messages as arrays."""
        return [[messages.columns(), ids, arrival_ms, list(details)] for messages, ids, arrival_ms, details in self._batches]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot; messages in those of earlier versions have no details."""
        self._batches = []
        for columns, ids, arrival_ms, *rest in state:
            messages = MessageBatch(*map(np.array, columns))
            details = Details(*map(np.array, rest[0])) if rest else Details.empty(messages.n)
            self._batches.append(Arrived(messages, ids, np.array(arrival_ms), details))
