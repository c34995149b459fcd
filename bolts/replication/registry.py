"""The registry of a distribution task: where the subscriptions live that it has placed, in few bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["Entry", "Registry"]

_HEAD = struct.Struct("<BIQI")


class Entry(NamedTuple):
    """Where a subscription lives.

    :ivar registration: ``<partition>-<offset>``.
    :ivar topk: whether it is a top-k subscription, or a boolean one.
    :ivar epoch: of the newest placement, from 1.
    :ivar tasks: indexes of the tasks that have it or have been sent it, rising.
    """

    registration: str
    topk: bool
    epoch: int
    tasks: tuple[int, ...]


class Registry:
    """Maps ids of subscriptions to :class:`Entry`. About 170 bytes each, with the id."""

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}
        self.replicas = 0
        """Total number of tasks of all entries."""

    def __len__(self) -> int:
        return len(self._packed)

    def names(self) -> list[str]:
        """Return all ids."""
        return list(self._packed)

    def get(self, subscription: str) -> Entry | None:
        """Return the entry of a subscription, or None if it is not registered."""
        packed = self._packed.get(subscription)
        if packed is None:
            return None
        topk, partition, offset, epoch = _HEAD.unpack_from(packed)
        return Entry(f"{partition}-{offset}", bool(topk), epoch, struct.unpack_from(f"<{_count(packed)}H", packed, _HEAD.size))

    def may_shrink(self, subscription: str) -> bool:
        """Tell whether a subscription is a top-k subscription on several tasks."""
        packed = self._packed.get(subscription)
        return packed is not None and bool(packed[0]) and _count(packed) > 1

    def set(self, subscription: str, registration: str, topk: bool, epoch: int, tasks: Iterable[int]) -> None:
        """Remember a placement."""
        self._uncount(self._packed.get(subscription))
        partition, _, offset = registration.partition("-")
        tasks = tuple(tasks)
        self._packed[subscription] = _HEAD.pack(topk, int(partition), int(offset), epoch) + struct.pack(f"<{len(tasks)}H", *tasks)
        self.replicas += len(tasks)

    def remove(self, subscription: str) -> None:
        """Forget a subscription."""
        self._uncount(self._packed.pop(subscription, None))

    def _uncount(self, packed: bytes | None) -> None:
        if packed is not None:
            self.replicas -= _count(packed)

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [list(self._packed), list(self._packed.values())]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        names, values = state
        self._packed = dict(zip(names, values, strict=True))
        self.replicas = sum(map(_count, values))


def _count(packed: bytes) -> int:
    return (len(packed) - _HEAD.size) // 2
