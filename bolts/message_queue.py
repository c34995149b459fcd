"""A queue of messages that wait for the watermark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.streams import Matching, Pairs

__all__ = ["Arrived", "MessageQueue", "Queued"]


class Queued(Protocol):
    """Messages as columns, with whatever belongs to them."""

    @property
    def messages(self) -> MessageBatch:
        """The messages."""

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Return the messages of several parts, one after another; of none, no messages."""

    def select(self, rows: np.ndarray) -> Self:
        """Return the messages at ``rows``, in that order."""

    def snapshot(self) -> Any:
        """Return them as arrays and plain values."""

    @classmethod
    def restored(cls, state: Any) -> Self:
        """Return the messages in a snapshot."""


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

    @classmethod
    def of(cls, received: Matching | Pairs) -> Arrived:
        """Return the messages in a batch of a stream."""
        ids = received.id if isinstance(received.id, pa.Array) else pa.array(received.id, pa.string())
        return cls(MessageBatch.of(received), ids, np.array(received.arrival_ms, np.int64), Details.of(received))

    @classmethod
    def concat(cls, parts: Sequence[Arrived]) -> Arrived:
        """Return the messages of several parts, one after another."""
        if not parts:
            return cls(MessageBatch.empty(), pa.array([], pa.string()), np.zeros(0, np.int64), Details.empty())
        messages, ids, arrival_ms, details = zip(*parts)
        return cls(MessageBatch.concat(messages), pa.concat_arrays(ids), np.concatenate(arrival_ms), Details.concat(details))

    def select(self, rows: np.ndarray) -> Arrived:
        """Return the messages at ``rows``, in that order."""
        return Arrived(self.messages.select(rows), self.ids.take(pa.array(rows)), self.arrival_ms[rows], self.details.select(rows))

    def snapshot(self) -> Any:
        """Return the messages as arrays."""
        return [self.messages.columns(), self.ids, self.arrival_ms, list(self.details)]

    @classmethod
    def restored(cls, state: Any) -> Arrived:
        """Return the messages in a snapshot; those of earlier versions have no details."""
        columns, ids, arrival_ms, *rest = state
        messages = MessageBatch(*map(np.array, columns))
        details = Details(*map(np.array, rest[0])) if rest else Details.empty(messages.n)
        return cls(messages, ids, np.array(arrival_ms), details)


_Q = TypeVar("_Q", bound=Queued)


class MessageQueue(Generic[_Q]):
    """Keeps messages until a watermark passes them, then returns them in order.

    :param kind: the class of what is kept.
    """

    def __init__(self, kind: type[_Q]) -> None:
        self._kind = kind
        self._batches: list[_Q] = []

    def __len__(self) -> int:
        """Return the number of messages."""
        return sum(batch.messages.n for batch in self._batches)

    def append(self, batch: _Q) -> None:
        """Add messages."""
        self._batches.append(batch)

    def pop_until(self, watermark: int) -> _Q:
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
        found = self._kind.concat(due)
        order = np.lexsort((found.messages.seq, found.messages.position))
        return found.select(order) if (order[1:] < order[:-1]).any() else found

    def snapshot(self) -> Any:
        """Return the messages as arrays."""
        return [batch.snapshot() for batch in self._batches]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._batches = [self._kind.restored(batch) for batch in state]
