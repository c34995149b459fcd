"""What a replica reports to the distribution task that owns its subscription (stream ``shortages``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dskype.distribution.subscriptions import Subscription, decode_subscription, from_map
from dskype.spouts.streams import Shortages

__all__ = ["EXPIRED", "READY", "SHORT", "SURVEYED", "Located", "ReplicaReport", "ReportedPlacement"]

EXPIRED, READY, SHORT, SURVEYED = "expired", "ready", "short", "survey"
"""Kinds of a :class:`ReplicaReport`."""


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
