"""The registry of a distribution task: where the subscriptions live that it has placed, in few bytes."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

__all__ = ["Entry", "Registry", "SubscriptionInterest"]

_HEAD = struct.Struct("<BIQI")


class SubscriptionInterest(NamedTuple):
    """What interest a subscription has.

    :ivar regions: in which it counts; None: in the tasks that it lives on.
    :ivar terms: its routing terms.
    """

    regions: tuple[int, ...] | None
    terms: tuple[int, ...]


class Entry(NamedTuple):
    """Where a subscription lives.

    :ivar registration: ``<partition>-<offset>``.
    :ivar topk: whether it is a top-k subscription, or a boolean one.
    :ivar epoch: of the newest placement, from 1.
    :ivar tasks: indexes of the tasks that have it or have been sent it, rising.
    :ivar interest: where the distributor summarizes, its regions (None: its tasks) and its routing terms.
    """

    registration: str
    topk: bool
    epoch: int
    tasks: tuple[int, ...]
    interest: SubscriptionInterest | None = None


class Registry:
    """Maps ids of subscriptions to :class:`Entry`. About 170 bytes each, with the id; with interest about 150 more."""

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}
        self._interest: dict[str, bytes] = {}
        self.replicas = 0
        """Total number of tasks of all entries."""

    def __len__(self) -> int:
        return len(self._packed)

    def has(self, subscription: str) -> bool:
        """Tell whether a subscription is registered."""
        return subscription in self._packed

    def names(self) -> list[str]:
        """Return all ids."""
        return list(self._packed)

    def get(self, subscription: str) -> Entry | None:
        """Return the entry of a subscription, or None if it is not registered."""
        packed = self._packed.get(subscription)
        if packed is None:
            return None
        topk, partition, offset, epoch = _HEAD.unpack_from(packed)
        tasks = struct.unpack_from(f"<{_count(packed)}H", packed, _HEAD.size)
        interest = _unpacked(self._interest[subscription]) if subscription in self._interest else None
        return Entry(f"{partition}-{offset}", bool(topk), epoch, tasks, interest)

    def may_shrink(self, subscription: str) -> bool:
        """Tell whether a subscription is a top-k subscription on several tasks."""
        packed = self._packed.get(subscription)
        return packed is not None and bool(packed[0]) and _count(packed) > 1

    def set(self, subscription: str, entry: Entry) -> None:
        """Remember a placement."""
        if entry.interest is not None:
            self._interest[subscription] = _packed(entry.interest)
        self._uncount(self._packed.get(subscription))
        partition, _, offset = entry.registration.partition("-")
        head = _HEAD.pack(entry.topk, int(partition), int(offset), entry.epoch)
        self._packed[subscription] = head + struct.pack(f"<{len(entry.tasks)}H", *entry.tasks)
        self.replicas += len(entry.tasks)

    def remove(self, subscription: str) -> None:
        """Forget a subscription."""
        self._uncount(self._packed.pop(subscription, None))
        self._interest.pop(subscription, None)

    def _uncount(self, packed: bytes | None) -> None:
        if packed is not None:
            self.replicas -= _count(packed)

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [list(self._packed), list(self._packed.values()), *([list(map(self._interest.get, self._packed))] if self._interest else [])]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        names, values, *interests = state
        self._packed = dict(zip(names, values, strict=True))
        self._interest = dict(zip(names, interests[0])) if interests else {}
        self.replicas = sum(map(_count, values))


def _packed(interest: SubscriptionInterest) -> bytes:
    regions = interest.regions or ()
    counted = -1 if interest.regions is None else len(regions)
    return struct.pack(f"<i{len(regions)}i{len(interest.terms)}q", counted, *regions, *interest.terms)


def _unpacked(packed: bytes) -> SubscriptionInterest:
    (counted,) = struct.unpack_from("<i", packed)
    regions = struct.unpack_from(f"<{max(0, counted)}i", packed, 4)
    behind = 4 + 4 * len(regions)
    return SubscriptionInterest(None if counted < 0 else regions, struct.unpack_from(f"<{(len(packed) - behind) // 8}q", packed, behind))


def _count(packed: bytes) -> int:
    return (len(packed) - _HEAD.size) // 2
