"""One registration of a top-k subscription that has several replicas, begins or ends, as a result task sees it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dskype.bolts.replication.messages import Claim, RankedList

__all__ = ["Change", "Drop", "Listing", "Replica", "ReplicatedSubscription", "best_of"]

BEFORE_ALL = -1
_OPS = ("add", "remove")
"""Names of ``formats.ADD`` and ``REMOVE`` in snapshots."""


class Listing(NamedTuple):
    """A replica's list waits for a watermark; see :class:`~dskype.bolts.replication.messages.ReplicaList`."""

    watermark: int
    task: int
    claims: list[Claim]
    alone: bool
    base: RankedList | None
    ranked: RankedList | None

    def snapshot(self) -> list[Any]:
        """Return plain values."""
        base, ranked = (None if listed is None else list(listed) for listed in (self.base, self.ranked))
        return [self.watermark, self.task, "replica", [list(claim) for claim in self.claims], self.alone, base, ranked]


class Drop(NamedTuple):
    """The end of a replica waits for a watermark."""

    watermark: int
    task: int

    def snapshot(self) -> list[Any]:
        """Return plain values."""
        return [self.watermark, self.task, "drop"]


class Change(NamedTuple):
    """A change of a replica's list waits for a watermark; ``message`` is read where the op is ``ADD``."""

    watermark: int
    task: int
    op: int
    seq: int
    position: int
    score: float
    message: str

    def snapshot(self) -> list[Any]:
        """Return plain values."""
        return [self.watermark, self.task, _OPS[self.op], *self[3:]]


def _restored(action: list[Any]) -> Listing | Drop | Change:
    watermark, task, what, *given = action
    if what == "drop":
        return Drop(watermark, task)
    if what == "replica":
        claims, alone, *lists = given
        return Listing(watermark, task, [Claim(*claim) for claim in claims], alone, *(None if columns is None else RankedList(*columns) for columns in lists))
    return Change(watermark, task, _OPS.index(what), *given)


@dataclass(slots=True)
class Replica:
    """What one task has of a subscription.

    :ivar claims: the epochs for which it is ready.
    :ivar alone: its changes are what is to be published.
    :ivar entries: its list, sequence number -> (score, position, id).
    """

    claims: list[Claim]
    alone: bool
    entries: dict[int, tuple[float, int, str]]

    def claims_epoch(self, epoch: int) -> bool:
        """Tell whether it is ready for an epoch."""
        return any(claim.epoch == epoch for claim in self.claims)


@dataclass(slots=True)
class ReplicatedSubscription:
    """A registration of a top-k subscription that is not simply passed on; what waits for the watermark, and what is published.

    :ivar begun: its beginning is known; nothing is published below ``floor``, nor while it is ``blocked`` by one before it.
    :ivar known: tasks whose changes belong to ``replicas``, now or when ``queue`` is empty; those of other tasks are passed on.
    :ivar queue: what is to be applied.
    :ivar at: watermark of what was applied last.
    :ivar published: (seq, position, score, id) in rank order; None: nothing yet, or not known here. ``last``: its watermark.
    :ivar ended: the tasks that will say that they have forgotten it; None: it has not ended. ``gone``: those that have, and their bases.
    :ivar slot: where it is on the fast path, with what is published and in the replicas' lists; -1: it is not.
    """

    name: str
    registration: str
    meta: str | None = None
    k: int = 0
    begun: bool = False
    blocked: bool = False
    replaced: bool = False
    floor: int = BEFORE_ALL
    at: int = BEFORE_ALL
    last: int = BEFORE_ALL
    end_at: int = BEFORE_ALL
    known: set[int] = field(default_factory=set)
    queue: list[Listing | Drop | Change] = field(default_factory=list)
    replicas: dict[int, Replica] = field(default_factory=dict)
    published: list[tuple[int, int, float, str]] | None = None
    ended: set[int] | None = None
    gone: dict[int, RankedList | None] = field(default_factory=dict)
    slot: int = -1

    def may_publish(self) -> bool:
        """Tell whether it has begun, has not ended, and is not blocked."""
        return (self.begun or self.published is not None) and not self.blocked and self.ended is None and not self.gone

    def complete(self) -> list[Replica] | None:
        """Return the replicas of the newest epoch that all of its tasks claim; None: there is no such epoch."""
        epochs = sorted({(epoch, tuple(tasks)) for replica in self.replicas.values() for epoch, tasks in replica.claims}, reverse=True)
        for epoch, tasks in epochs:
            replicas = [replica for task in tasks if (replica := self.replicas.get(task)) is not None and replica.claims_epoch(epoch)]
            if len(replicas) == len(tasks):
                return replicas
        return None

    def is_alone(self) -> bool:
        """Tell whether one replica's changes are all that will be published."""
        newest = max((epoch for replica in self.replicas.values() for epoch, _ in replica.claims), default=None)
        claiming = [replica for replica in self.replicas.values() if newest is not None and replica.claims_epoch(newest)]
        return len(claiming) == 1 and claiming[0].alone

    def is_empty(self) -> bool:
        """Tell whether nothing is known that will be needed."""
        return not (self.begun or self.replicas or self.queue or self.gone or self.ended is not None or self.published is not None)

    def to_take_back(self) -> list[tuple[int, int, float, str]]:
        """Return what has been published, when it has ended everywhere."""
        if self.published is not None:
            return self.published
        # A registration that has begun here has published nothing, whatever its replica was sure of. Else it has published what the replica
        # handed over first: that may still wait here, and what came later has never been published.
        bases = [] if self.begun else [*(action.base for action in self.queue if isinstance(action, Listing)), *self.gone.values()]
        return next((base.rows() for base in bases if base is not None), [])

    def snapshot(self) -> list[Any]:
        """Return the state as plain values, in the order of the fields."""
        replicas = [[task, [list(c) for c in r.claims], r.alone, list(r.entries), list(r.entries.values())] for task, r in self.replicas.items()]
        numbers = [getattr(self, name) for name in _PLAIN]
        ended = None if self.ended is None else sorted(self.ended)
        gone = [(task, None if base is None else list(base)) for task, base in self.gone.items()]
        return [*numbers, sorted(self.known), [action.snapshot() for action in self.queue], replicas, self.published, ended, gone, self.slot]

    @classmethod
    def restored(cls, state: list[Any]) -> ReplicatedSubscription:
        """Return the one in a snapshot."""
        *numbers, known, queue, replicas, published, ended, gone, slot = state
        return cls(
            *numbers,
            set(known),
            list(map(_restored, queue)),
            {task: Replica([Claim(*c) for c in claims], alone, dict(zip(seqs, map(tuple, entries)))) for task, claims, alone, seqs, entries in replicas},
            None if published is None else list(map(tuple, published)),
            None if ended is None else set(ended),
            {task: None if base is None else RankedList(*base) for task, base in gone},
            slot,
        )


_PLAIN = ("name", "registration", "meta", "k", "begun", "blocked", "replaced", "floor", "at", "last", "end_at")


def best_of(replicas: Iterable[Replica], k: int) -> list[tuple[float, int, int, str]]:
    """Return (score, position, seq, id) of the k best messages of replicas' lists, in rank order."""
    union: dict[int, tuple[float, int, str]] = {}
    for replica in replicas:
        union.update(replica.entries)
    return sorted(((score, position, seq, message) for seq, (score, position, message) in union.items()), reverse=True)[:k]
