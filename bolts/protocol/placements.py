"""What the distribution task that owns a subscription tells the subscription tasks (stream ``placements``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dskype.bolts.protocol.balance import PartitionMap, SizeShift
from dskype.distribution.subscriptions import Subscription, decode_subscription, from_map

__all__ = ["AllMoved", "End", "Epoch", "MovePlan", "Placement", "PlacementMessage", "PlanMarker", "Send", "Survey", "decode_placement", "encode_placement"]


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
        """Return the map."""
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


class End(NamedTuple):
    """The end of a subscription. ``at``: watermark of the distribution task."""

    at: int


class Survey(NamedTuple):
    """Asks the task for the placement and the floor of a subscription."""


class PlanMarker(NamedTuple):
    """From now on the distribution task also sends messages by plan ``version``; up to position ``high`` it did not."""

    version: int
    high: int


class AllMoved(NamedTuple):
    """All subscriptions of the distribution task are placed by plan ``version``. ``at``: watermark of the distribution task."""

    version: int
    at: int = -1  # absent from messages of earlier versions


class MovePlan(NamedTuple):
    """The plan by which subscriptions of the task move to other tasks, see :class:`Located`. ``version``: of the plan."""

    version: int
    plan: Mapping[str, Any]


class Send(NamedTuple):
    """Asks the task to send a subscription to others, by their indexes. Their epochs have been sent to them."""

    tasks: list[int]


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
_TYPES = {message: name for name, message in _PLACEMENT_MESSAGES.items()}


def encode_placement(message: PlacementMessage) -> dict[str, Any]:
    """Return the map of a message. A bare epoch is for a task that has the subscription already, or gets it from another task."""
    if isinstance(message, Placement):
        return message.subscription.encode() | dict(zip(_EPOCH_KEYS, message.epoch))
    return message.encode() if isinstance(message, Epoch) else {"type": _TYPES[type(message)], **message._asdict()}


def decode_placement(record: Mapping[str, Any]) -> PlacementMessage:
    """Return the message in a map of the stream ``placements`` of a distributor that replicates."""
    kind = record["type"]
    if kind in _PLACEMENT_MESSAGES:
        return from_map(_PLACEMENT_MESSAGES[kind], record)
    epoch = Epoch.decode(record)
    return epoch if kind == "epoch" else Placement(decode_subscription(record), epoch)
