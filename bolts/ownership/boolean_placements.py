"""Placements of boolean subscriptions on one of the several tasks that they may live on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sortedcontainers import SortedKeyList

from dskype.bolts.ownership.coverage import Coverage
from dskype.bolts.protocol.placements import End, Epoch, Placement
from dskype.bolts.protocol.reports import EXPIRED, READY, SURVEYED, Located, ReplicaReport, ReportedPlacement
from dskype.bolts.slot_metadata import SlotMetadata
from dskype.topology.core.values import pack_state, unpack_state

__all__ = ["BooleanPlacements"]

_ALWAYS = np.iinfo(np.int64).max


def _watermark(end: tuple[int, int]) -> int:
    return end[0]


class BooleanPlacements:
    """Knows for which positions the boolean subscription in a slot matches here.

    It matches exactly the messages with a position above its beginning, up to its end. Both are watermarks of the distribution task that
    owns it. Every subscription task is told before it has passed them. Only a subscription that another task sends may come later: it
    begins at the watermark of this task then, and its other tasks match until it has reported that it is ready.

    :param metadata: names and registrations by slot.
    :param collector: collector of the bolt, for reports.
    :param coverage: coverage of plans.
    :param index: index of this task.
    :param forget: called with a slot when the watermark has reached its end.
    """

    def __init__(self, metadata: SlotMetadata, collector: Any, coverage: Coverage, index: int, forget: Callable[[int], None]) -> None:
        self._metadata, self._collector, self._coverage, self._index, self._forget = metadata, collector, coverage, index, forget
        self.watermark = -1
        self._span = np.zeros((2, 0), np.int64)  # by slot: matches positions above the first number, up to the second
        self._epochs: dict[int, tuple[int, int, bytes]] = {}  # slot -> epoch, plan, and the packed subscription and guard
        self._unreported: dict[int, int] = {}  # slot -> plan; reports ready when that plan is in force here
        self._ending = SortedKeyList(key=_watermark)  # (watermark, slot)

    def open(self, slot: int, placement: Placement) -> None:
        """Begin a subscription in a new slot."""
        if slot >= self._span.shape[1]:
            self._span = np.concatenate((self._span, np.zeros((2, slot + 16 - self._span.shape[1] + slot // 2), np.int64)), axis=1)
        subscription, epoch = placement
        self._span[:, slot] = max(epoch.at, self.watermark), _ALWAYS
        self._begin_epoch(slot, epoch, pack_state(subscription.encode() | {"guard": epoch.guard}))

    def _begin_epoch(self, slot: int, epoch: Epoch, packed: bytes) -> None:
        self._epochs[slot] = epoch.number, epoch.plan, packed
        self._unreported.pop(slot, None)
        if self._index in epoch.report_ready:
            self._unreported[slot] = epoch.since
        self.report_ready()

    def placement(self, slot: int) -> ReportedPlacement:
        """Return the subscription in a slot as it is placed."""
        _, plan, packed = self._epochs[slot]
        return ReportedPlacement.decode(unpack_state(packed) | {"plan": plan})

    def survey(self, slot: int, tasks: list[int] | None) -> None:
        """Report where a subscription lives by the plan that moves it (indexes of tasks), or, where it does not move by itself, the subscription."""
        placed = self.placement(slot)
        self._report(slot, SURVEYED, placed if tasks is None else Located(tasks, placed.plan))

    def apply(self, slot: int, message: Epoch | End) -> bool:
        """Apply a message about a subscription; return False if the subscription no longer lives here."""
        if isinstance(message, Epoch) and self._index in message.tasks:
            self._begin_epoch(slot, message, self._epochs[slot][2])
            return True
        self._span[1, slot] = message.at
        self._unreported.pop(slot, None)
        self._ending.add((message.at, slot))
        self.end_due()
        return False

    def inside(self, positions: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return which pairs of a message and a slot are valid matches (bool[n])."""
        return (positions > self._span[0, slots]) & (positions <= self._span[1, slots])

    def report_expired(self, slot: int) -> None:
        """Report that a subscription has expired; the task that owns it ends it everywhere."""
        self._report(slot, EXPIRED)

    def report_ready(self) -> None:
        """Report the subscriptions that are ready because this task receives everything that their plan sends to it."""
        for slot in [slot for slot, plan in self._unreported.items() if self._coverage.since(plan) <= self.watermark]:
            del self._unreported[slot]
            self._report(slot, READY)

    def end_due(self) -> None:
        """Forget subscriptions whose end the watermark has reached."""
        while self._ending and self._ending[0][0] <= self.watermark:
            _, slot = self._ending.pop(0)
            del self._epochs[slot]
            self._forget(slot)

    def _report(self, slot: int, kind: str, placement: ReportedPlacement | Located | None = None) -> None:
        report = ReplicaReport(self._metadata.name(slot), self._metadata.registration(slot), self._epochs[slot][0], kind, None, placement)
        report.shortage().emit(self._collector)

    def slots(self) -> list[int]:
        """Return the slots of subscriptions that have not ended."""
        ending = {slot for _, slot in self._ending}
        return [slot for slot in self._epochs if slot not in ending]

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [
            self.watermark,
            np.array(self._span),
            [[slot, *epoch] for slot, epoch in self._epochs.items()],
            list(self._unreported.items()),
            list(self._ending),
        ]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self.watermark, span, epochs, unreported, ending = state
        self._span = np.array(span)
        self._epochs = {slot: (epoch, plan, packed) for slot, epoch, plan, packed in epochs}
        self._unreported, self._ending = dict(unreported), SortedKeyList(map(tuple, ending), key=_watermark)
