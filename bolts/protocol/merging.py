"""What a result task has to know in order to merge.

``registrations`` brings :class:`Begin` and :class:`Finish` from the distribution task that owns the subscription, ``lists`` the other messages from replicas, beside the tuples
of ``ResultPublisher``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dskype.bolts.ranked_lists import RankedList

__all__ = ["PART", "Begin", "Claim", "Finish", "ReplicaDropped", "ReplicaGone", "ReplicaList", "decode_replica_message"]

PART = 4
"""Added to the op of a delta that is a change of one replica's list (stream ``results``)."""


class Begin(NamedTuple):
    """The beginning of a registration.

    :ivar topk: whether it belongs to a top-k subscription.
    :ivar at: watermark of the distribution task.
    :ivar updated: whether it goes on from the registration before it, whose :class:`Finish` says the same.
    """

    topk: bool
    at: int
    updated: bool = False  # absent from messages of earlier versions


class Finish(NamedTuple):
    """The end of a registration.

    :ivar topk: whether it belongs to a top-k subscription.
    :ivar at: watermark of the distribution task.
    :ivar tasks: ids of the tasks that will confirm that they have forgotten it.
    :ivar replaced: whether another registration of the subscription follows at once.
    :ivar updated: whether that one goes on from this one.
    """

    topk: bool
    at: int
    tasks: Sequence[int]
    replaced: bool
    updated: bool = False  # absent from messages of earlier versions


class Claim(NamedTuple):
    """A replica is ready for an epoch. The epoch counts when all ``tasks`` (ids) claim it."""

    epoch: int
    tasks: Sequence[int]


def _encoded(ranked: RankedList | None) -> list[Any] | None:
    return None if ranked is None else list(ranked)


def _decoded(columns: Sequence[Any] | None) -> RankedList | None:
    return None if columns is None else RankedList(*columns)


class ReplicaList(NamedTuple):
    """A replica's list as of a watermark. Changes up to the next one come as deltas.

    :ivar claims: the epochs for which it is ready; empty: it is not ready.
    :ivar alone: whether it is ready and the only replica of its newest epoch, so that its deltas are published unchanged.
    :ivar ranked: its list; None: it is not ready.
    :ivar base: the list that it has published so far, if it was alone; None: it does not know what is published.
    """

    registration: str
    watermark: int
    k: int
    meta: str | None
    claims: Sequence[Claim]
    alone: bool
    ranked: RankedList | None
    base: RankedList | None
    kind = "replica"

    def encode(self) -> list[Any]:
        """Return the record."""
        return [*self[:4], [[epoch, list(tasks)] for epoch, tasks in self.claims], self.alone, _encoded(self.ranked), _encoded(self.base)]

    @classmethod
    def decode(cls, record: Sequence[Any]) -> ReplicaList:
        """Return the message in a record."""
        registration, watermark, k, meta, claims, alone, ranked, base = record
        return cls(registration, watermark, k, meta, [Claim(*claim) for claim in claims], alone, _decoded(ranked), _decoded(base))


class ReplicaDropped(NamedTuple):
    """A task no longer has a replica, as of a watermark, because the newest epoch names other tasks."""

    registration: str
    watermark: int
    kind = "drop"

    def encode(self) -> list[Any]:
        """Return the record."""
        return list(self)


class ReplicaGone(NamedTuple):
    """A task has forgotten a registration that ended; ``base`` as in :class:`ReplicaList`."""

    registration: str
    meta: str | None
    base: RankedList | None
    kind = "gone"

    def encode(self) -> list[Any]:
        """Return the record."""
        return [self.registration, self.meta, _encoded(self.base)]

    @classmethod
    def decode(cls, record: Sequence[Any]) -> ReplicaGone:
        """Return the message in a record."""
        registration, meta, base = record
        return cls(registration, meta, _decoded(base))


def decode_replica_message(kind: str, record: Sequence[Any]) -> ReplicaList | ReplicaDropped | ReplicaGone:
    """Return the message of a replica in a record of the stream ``lists``."""
    if kind == ReplicaDropped.kind:
        return ReplicaDropped(*record)
    return (ReplicaList if kind == ReplicaList.kind else ReplicaGone).decode(record)
