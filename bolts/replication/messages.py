"""The messages that distribution, subscription and result bolts send each other about subscriptions.

Each message is a named tuple. ``encode`` returns the plain value that travels on the stream, and ``decode`` reads it back; no other code knows
the form on the wire. The streams are those of :mod:`dskype.spouts.streams`:

================  ==================================================================================================================
stream            messages
================  ==================================================================================================================
``placements``    :class:`Placement`, :class:`Epoch`, :class:`End`, :class:`Survey`, :class:`PlanMarker`, :class:`AllMoved`,
                  :class:`MovePlan`, :class:`Send`, :class:`PartitionMap`, :class:`SizeShift`;
                  without replication the bare subscription (:mod:`dskype.distribution.subscriptions`), or None to unregister
``transfers``     the bare boolean subscription, from subscription task to subscription task (:mod:`dskype.bolts.replication.transfers`),
                  and :class:`HandedOver`
``shortages``     :class:`ReplicaReport`
``balance``       :class:`WorkloadReport`, :class:`ShiftSized`, :class:`LoadReport`
``interest``      :class:`InterestAdded`, :class:`InterestKnown`, :class:`InterestEnded`
``registrations`` :class:`Begin` and :class:`Finish`
``lists``         :class:`ReplicaList`, :class:`ReplicaDropped`, :class:`ReplicaGone` (and the tuples of ``ResultPublisher``)
================  ==================================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.ranked_lists import RankedList
from dskype.distribution.agrid.balancing import Summary
from dskype.distribution.subscriptions import Subscription, decode_subscription, from_map
from dskype.spouts.streams import Shortages

__all__ = [
    "EXPIRED",
    "PART",
    "READY",
    "SHORT",
    "SURVEYED",
    "AllMoved",
    "BalanceMessage",
    "Begin",
    "Claim",
    "End",
    "Epoch",
    "Finish",
    "HandedOver",
    "InterestAdded",
    "InterestEnded",
    "InterestKnown",
    "InterestMessage",
    "LoadReport",
    "Located",
    "MovePlan",
    "PartitionMap",
    "Placement",
    "PlacementMessage",
    "PlanMarker",
    "ReplicaDropped",
    "ReplicaGone",
    "ReplicaList",
    "ReplicaReport",
    "ReportedPlacement",
    "Send",
    "ShiftSized",
    "SizeShift",
    "Survey",
    "WorkloadReport",
    "decode_balance",
    "decode_interest",
    "decode_placement",
    "decode_replica_message",
]

EXPIRED, READY, SHORT, SURVEYED = "expired", "ready", "short", "survey"
"""Kinds of a :class:`ReplicaReport`."""
PART = 4
"""Added to the op of a delta that is a change of one replica's list (stream ``results``)."""


# -- placements: from the distribution task that owns a subscription to the subscription tasks ------------------------------


class Epoch(NamedTuple):
    """One decision about where a subscription lives. It replaces the epoch before it.

    :ivar number: from 1, rising by 1.
    :ivar tasks: indexes of the tasks that the subscription lives on, rising.
    :ivar guard: no message that goes to none of these tasks has a score above it.
    :ivar plan: version of the plan by which it was placed.
    :ivar since: version of the plan that must be in force before a new replica, or one in ``evaluate``, asks for the window.
    :ivar at: watermark of the distribution task at the decision.
    :ivar moving: whether the subscription moves to another plan; the epoch before this one then stays valid until the next one.
    :ivar report_ready: indexes of the tasks that report when they are ready.
    :ivar evaluate: indexes of the tasks that must look up the window again.
    """

    number: int
    tasks: list[int]
    guard: float
    plan: int
    since: int
    at: int
    moving: bool
    report_ready: list[int]
    evaluate: list[int]

    def encode(self) -> dict[str, Any]:
        """Return the map for a task that has the subscription already, or gets it from another task."""
        return {"type": "epoch", **dict(zip(_EPOCH_KEYS, self))}

    @classmethod
    def decode(cls, record: Mapping[str, Any]) -> Epoch:
        """Return the epoch in a map."""
        return cls(*map(record.__getitem__, _EPOCH_KEYS))


_EPOCH_KEYS = ("epoch", "tasks", "guard", "plan", "since", "at", "moving", "tell", "evaluate")


class Placement(NamedTuple):
    """A subscription, with the epoch in which it begins on a task."""

    subscription: Subscription
    epoch: Epoch

    def encode(self) -> dict[str, Any]:
        """Return the map for a task that does not have the subscription yet."""
        return self.subscription.encode() | dict(zip(_EPOCH_KEYS, self.epoch))


class End(NamedTuple):
    """The end of a subscription. ``at``: watermark of the distribution task."""

    at: int

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return {"type": "end", **self._asdict()}


class Survey(NamedTuple):
    """Asks the task for the placement and the floor of a subscription."""

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return {"type": "survey"}


class PlanMarker(NamedTuple):
    """From now on the distribution task also sends messages by plan ``version``; up to position ``high`` it did not."""

    version: int
    high: int

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return {"type": "plan", **self._asdict()}


class AllMoved(NamedTuple):
    """All subscriptions of the distribution task are placed by plan ``version``. ``at``: watermark of the distribution task."""

    version: int
    at: int = -1  # absent from messages of earlier versions

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return {"type": "done", **self._asdict()}


class MovePlan(NamedTuple):
    """The plan by which subscriptions of the task move to other tasks, see :class:`Located`. ``version``: of the plan."""

    version: int
    plan: Mapping[str, Any]

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return {"type": "move-plan", **self._asdict()}


class Send(NamedTuple):
    """Asks the task to send a subscription to others, by their indexes. Their epochs have been sent to them."""

    tasks: list[int]

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return {"type": "send", **self._asdict()}


class PartitionMap(NamedTuple):
    """The plan by which a task measures its workload from now on.

    :ivar version: of the plan.
    :ivar plan: tells the task its partition; None: it measures all its work together.
    """

    version: int
    plan: Mapping[str, Any] | None

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return {"type": "partition-map", **self._asdict()}


class SizeShift(NamedTuple):
    """Asks the task how much of its partition a shift to another task should move; :class:`ShiftSized` answers.

    :ivar decision: number of the decision.
    :ivar target: index of the other task.
    :ivar side: of the partition of the task that is asked, see :class:`dskype.distribution.agrid.balancing.Shift`.
    :ivar cost: what has to move for both to have the same cost.
    :ivar source_cost: of the task that is asked, by the report that was decided on. Its costs have changed and aged meanwhile, so it scales ``cost``.
    """

    decision: int
    target: int
    side: int
    cost: float
    source_cost: float

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return {"type": "size-shift", **self._asdict()}


class HandedOver(NamedTuple):
    """Costs of cells that a subscription task has given to another one, which counts them as its own (stream ``transfers``).

    :ivar version: of the plan by which the other task has the cells.
    :ivar x: int32[n], columns of the fine grid; ``y``: int32[n], rows.
    :ivar cost: float64[n].
    """

    version: int
    x: Any
    y: Any
    cost: Any
    kind = "costs"

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return {"type": self.kind, **self._asdict()}

    @classmethod
    def decode(cls, record: Mapping[str, Any]) -> HandedOver:
        """Return the message in a map."""
        return cls(record["version"], *(np.asarray(record[name]) for name in ("x", "y", "cost")))


PlacementMessage = Placement | Epoch | End | Survey | PlanMarker | AllMoved | MovePlan | Send | PartitionMap | SizeShift

_PLACEMENT_MESSAGES: dict[str, Any] = {
    "end": End,
    "survey": Survey,
    "plan": PlanMarker,
    "done": AllMoved,
    "move-plan": MovePlan,
    "send": Send,
    "partition-map": PartitionMap,
    "size-shift": SizeShift,
}


def decode_placement(record: Mapping[str, Any]) -> PlacementMessage:
    """Return the message in a map of the stream ``placements`` of a distributor that replicates."""
    kind = record["type"]
    if kind in _PLACEMENT_MESSAGES:
        return from_map(_PLACEMENT_MESSAGES[kind], record)
    epoch = Epoch.decode(record)
    return epoch if kind == "epoch" else Placement(decode_subscription(record), epoch)


# -- reports: back to the distribution task that owns the subscription ------------------------------------------------------


class ReportedPlacement(NamedTuple):
    """A subscription as a task has it; ``guard`` and ``plan`` are those of its newest epoch."""

    subscription: Subscription
    guard: float
    plan: int

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return self.subscription.encode() | {"guard": self.guard, "plan": self.plan}

    @classmethod
    def decode(cls, record: Mapping[str, Any]) -> ReportedPlacement:
        """Return the placement in a map."""
        return cls(decode_subscription(record), record["guard"], record["plan"])


class Located(NamedTuple):
    """Where a boolean subscription lives by the plan of the last :class:`MovePlan`; the subscription itself stays where it is.

    :ivar tasks: indexes of its tasks by that plan, rising.
    :ivar plan: version of the plan of its newest epoch.
    """

    tasks: list[int]
    plan: int

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return {"type": "located", **self._asdict()}


def _decode_reported(record: Mapping[str, Any]) -> ReportedPlacement | Located:
    return from_map(Located, record) if record["type"] == "located" else ReportedPlacement.decode(record)


class ReplicaReport(NamedTuple):
    """A report of a replica to the distribution task that owns the subscription.

    :ivar subscription, registration: the subscription of the replica.
    :ivar epoch: number of the replica's newest epoch; a report that names an older one is ignored.
    :ivar kind: :data:`SHORT`: the floor is not above the guard; :data:`SURVEYED`: the answer to a survey; :data:`READY`: the replica is ready, as
        ``Epoch.report_ready`` asked; :data:`EXPIRED`: the subscription has expired.
    :ivar floor: theta of the replica; None: unknown.
    :ivar placement: the placement, or where it will be; None if the kind does not need it.
    """

    subscription: str
    registration: str
    epoch: int
    kind: str
    floor: float | None = None
    placement: ReportedPlacement | Located | None = None

    def shortage(self) -> Shortages:
        """Return the tuple of the stream."""
        placement = None if self.placement is None else self.placement.encode()
        return Shortages(
            subscription=self.subscription, registration=self.registration, epoch=self.epoch, kind=self.kind, theta=self.floor, placement=placement
        )

    @classmethod
    def of(cls, row: Shortages) -> ReplicaReport:
        """Return the report in a tuple of the stream."""
        placement = None if row.placement is None else _decode_reported(row.placement)
        return cls(row.subscription, row.registration, row.epoch, row.kind, row.theta, placement)

    def encode(self) -> tuple[Any, ...]:
        """Return the values of the tuple; states keep them."""
        return self.shortage().values()

    @classmethod
    def decode(cls, values: Sequence[Any]) -> ReplicaReport:
        """Return the report with these values."""
        return cls.of(Shortages.make(values))


# -- balance: from the subscription tasks to the distribution task that balances ---------------------------------------------


class WorkloadReport(NamedTuple):
    """The summary of a task's workload. ``version``: of the plan whose partition it is."""

    version: int
    summary: Summary
    kind = "workload"

    def encode(self) -> list[Any]:
        """Return the record."""
        return [self.version, self.summary.encode()]

    @classmethod
    def decode(cls, record: Sequence[Any]) -> WorkloadReport:
        """Return the message in a record."""
        return cls(record[0], Summary.decode(record[1]))


class ShiftSized(NamedTuple):
    """The answer to :class:`SizeShift`.

    :ivar source: index of the task that answers.
    :ivar size: how many columns or rows should move; None: no size is worth while.
    """

    decision: int
    source: int
    size: int | None
    kind = "sized"

    def encode(self) -> list[Any]:
        """Return the record."""
        return list(self)

    @classmethod
    def decode(cls, record: Sequence[Any]) -> ShiftSized:
        """Return the message in a record."""
        return cls(*record)


class LoadReport(NamedTuple):
    """How much a task has done, where parts of zones are balanced by the load model. The past counts less with every period.

    :ivar version: of the plan by which it worked.
    :ivar task: its index.
    :ivar messages: messages that came; ``matches``: those of boolean subscriptions; ``inserted``, ``removed``: boolean subscriptions.
    """

    version: int
    task: int
    messages: float
    matches: float
    inserted: float
    removed: float
    kind = "load"

    def encode(self) -> list[Any]:
        """Return the record."""
        return list(self)

    @classmethod
    def decode(cls, record: Sequence[Any]) -> LoadReport:
        """Return the message in a record."""
        return cls(*record)


BalanceMessage = WorkloadReport | ShiftSized | LoadReport

_BALANCE_MESSAGES: dict[str, Any] = {one.kind: one for one in (WorkloadReport, ShiftSized, LoadReport)}


def decode_balance(kind: str, record: Sequence[Any]) -> BalanceMessage:
    """Return the message in a row of the stream ``balance``."""
    found: BalanceMessage = _BALANCE_MESSAGES[kind].decode(record)
    return found


# -- interest: between distribution tasks -----------------------------------------------------------------------------------


class InterestAdded(NamedTuple):
    """Pairs that a distribution task needs from now on: term ``terms[i]`` in region ``regions[i]``.

    :ivar number: of the announcement, from 1, rising by 1 for each task.
    :ivar regions: int32[n]; ``terms``: int64[n]; each pair once.
    """

    number: int
    regions: Any
    terms: Any
    kind = "added"


class InterestKnown(NamedTuple):
    """The answer to :class:`InterestAdded`.

    :ivar number: of the announcement.
    :ivar withheld: the highest position of a message that these regions may have missed here; -1: there was none.
    """

    number: int
    withheld: int
    kind = "known"


class InterestEnded(NamedTuple):
    """Pairs that a distribution task needs no more for messages with a position above ``at``, its watermark."""

    at: int
    regions: Any
    terms: Any
    kind = "ended"


InterestMessage = InterestAdded | InterestKnown | InterestEnded

_INTEREST_MESSAGES: dict[str, Any] = {message.kind: message for message in (InterestAdded, InterestKnown, InterestEnded)}


def decode_interest(kind: str, record: Sequence[Any]) -> InterestMessage:
    """Return the message in a row of the stream ``interest``; the record is the plain tuple."""
    return _INTEREST_MESSAGES[kind](*record)


# -- registrations: from the distribution task to the result task -----------------------------------------------------------


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


# -- lists: from replicas to the result task --------------------------------------------------------------------------------


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
