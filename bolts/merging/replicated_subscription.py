"""The state of a result task for one registration of a top-k subscription that has several replicas, begins or ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dskype.bolts.protocol.merging import Claim
from dskype.bolts.ranked_lists import RankedList

__all__ = ["Change", "Drop", "Listing", "Replica", "ReplicatedSubscription", "best_of"]

BEFORE_ALL = -1
_OPS = ("add", "remove")
"""Names of ``events.ADD`` and ``REMOVE`` in snapshots."""


class Listing(NamedTuple):
    """The list of a replica, which waits for a watermark; see :class:`~dskype.bolts.protocol.merging.ReplicaList`."""

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
    """The end of a replica, which waits for a watermark."""

    watermark: int
    task: int

    def snapshot(self) -> list[Any]:
        """Return plain values."""
        return [self.watermark, self.task, "drop"]


class Change(NamedTuple):
    """A change of a replica's list, which waits for a watermark; ``message`` is read where the op is ``ADD``."""

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
    watermark, task, kind, *fields = action
    if kind == "drop":
        return Drop(watermark, task)
    if kind == "replica":
        claims, alone, *lists = fields
        return Listing(watermark, task, [Claim(*claim) for claim in claims], alone, *(None if columns is None else RankedList(*columns) for columns in lists))
    return Change(watermark, task, _OPS.index(kind), *fields)


@dataclass(slots=True)
class Replica:
    """A replica of a subscription.

    :ivar claims: the epochs for which it is ready.
    :ivar alone: whether its changes are published unchanged.
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
    """A registration of a top-k subscription whose results are not simply passed on.

    :ivar begun: its beginning is known. Nothing is published below ``floor``, nor while an earlier registration keeps it ``blocked``.
    :ivar known: tasks whose changes belong to ``replicas``, now or when ``queue`` has been applied; changes of other tasks are passed on.
    :ivar queue: actions that wait for the watermark.
    :ivar at: watermark of the last action that was applied.
    :ivar published: the published list, (seq, position, score, id) in rank order; None: nothing is published, or it is not known here.
    :ivar last: watermark of the published list.
    :ivar ended: tasks that will confirm that they have forgotten it; None: it has not ended.
    :ivar gone: tasks that have confirmed it, with their bases.
    :ivar updated: when it has ended: another registration goes on from it.
    :ivar heir_of: the registration that has published the list in ``published``, and its meta: its own first list goes on from that. None: it does not, or no longer.
    :ivar slot: its slot on the fast path, which then holds the published list and the replicas' lists; -1: it is not there.
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
    updated: bool = False
    heir_of: tuple[str, str | None] | None = None

    def may_publish(self) -> bool:
        """Tell whether it has begun, has not ended, and is not blocked."""
        return (self.begun or self.published is not None) and not self.blocked and self.ended is None and not self.gone

    def complete(self) -> list[Replica] | None:
        """Return the replicas of the newest epoch that all its tasks claim, or None if there is no such epoch."""
        epochs = sorted({(epoch, tuple(tasks)) for replica in self.replicas.values() for epoch, tasks in replica.claims}, reverse=True)
        for epoch, tasks in epochs:
            replicas = [replica for task in tasks if (replica := self.replicas.get(task)) is not None and replica.claims_epoch(epoch)]
            if len(replicas) == len(tasks):
                return replicas
        return None

    def is_alone(self) -> bool:
        """Tell whether the changes of one replica can be passed on from now on."""
        newest = max((epoch for replica in self.replicas.values() for epoch, _ in replica.claims), default=None)
        claiming = [replica for replica in self.replicas.values() if newest is not None and replica.claims_epoch(newest)]
        return len(claiming) == 1 and claiming[0].alone

    def is_empty(self) -> bool:
        """Tell whether it holds nothing that will be needed."""
        return not (self.begun or self.replicas or self.queue or self.gone or self.ended is not None or self.published is not None)

    def published_results(self) -> list[tuple[int, int, float, str]]:
        """Return the published list of a registration that has ended everywhere; its results have to be withdrawn."""
        if self.published is not None:
            return self.published
        # A registration that began here has published nothing. Otherwise the published list is the first base that its replicas have handed
        # over, which may still wait in the queue; nothing after it has been published.
        bases = [] if self.begun else [*(action.base for action in self.queue if isinstance(action, Listing)), *self.gone.values()]
        return next((base.rows() for base in bases if base is not None), [])

    def has_published(self) -> bool:
        """Tell whether a registration that has ended everywhere has been active. One that did not begin here was: it has had one replica."""
        return self.published is not None or not self.begun

    def snapshot(self) -> list[Any]:
        """Return the state as plain values, in the order of the fields."""
        replicas = [[task, [list(c) for c in r.claims], r.alone, list(r.entries), list(r.entries.values())] for task, r in self.replicas.items()]
        numbers = [getattr(self, name) for name in _PLAIN]
        ended = None if self.ended is None else sorted(self.ended)
        gone = [(task, None if base is None else list(base)) for task, base in self.gone.items()]
        return [
            *numbers,
            sorted(self.known),
            [action.snapshot() for action in self.queue],
            replicas,
            self.published,
            ended,
            gone,
            self.slot,
            self.updated,
            self.heir_of,
        ]

    @classmethod
    def restored(cls, state: list[Any]) -> ReplicatedSubscription:
        """Return the registration in a snapshot."""
        (*numbers, known, queue, replicas, published, ended, gone, slot), later = state[: len(_PLAIN) + 7], state[len(_PLAIN) + 7 :]
        return cls(
            *numbers,
            set(known),
            list(map(_restored, queue)),
            {task: Replica([Claim(*c) for c in claims], alone, dict(zip(seqs, map(tuple, entries)))) for task, claims, alone, seqs, entries in replicas},
            None if published is None else list(map(tuple, published)),
            None if ended is None else set(ended),
            {task: None if base is None else RankedList(*base) for task, base in gone},
            slot,
            *(tuple(one) if isinstance(one, list) else one for one in later),  # absent from snapshots of earlier versions
        )


_PLAIN = ("name", "registration", "meta", "k", "begun", "blocked", "replaced", "floor", "at", "last", "end_at")


def best_of(replicas: Iterable[Replica], k: int) -> list[tuple[float, int, int, str]]:
    """Return (score, position, seq, id) of the k best messages in the replicas' lists, in rank order."""
    union: dict[int, tuple[float, int, str]] = {}
    for replica in replicas:
        union.update(replica.entries)
    return sorted(((score, position, seq, message) for seq, (score, position, message) in union.items()), reverse=True)[:k]
