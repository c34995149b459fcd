"""The placements of boolean subscriptions that may live on several tasks, as one of these tasks sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dskype.bolts.replication.coverage import Coverage
from dskype.bolts.replication.messages import EXPIRED, READY, SURVEYED, End, Epoch, Placement, ReplicaReport, ReportedPlacement, Survey
from dskype.bolts.slot_metadata import SlotMetadata
from dskype.spouts import streams
from dskype.topology.core.values import pack_state, unpack_state

__all__ = ["BooleanPlacements"]

_ALWAYS = np.iinfo(np.int64).max


class BooleanPlacements:
    """Says which positions the boolean subscription in a slot matches here.

    It matches exactly the messages with a position above that of its beginning, up to that of its end. Both are watermarks of the
    distribution task that owns it, which no subscription task has passed when it hears of them.

    :param metadata: names and registrations by slot.
    :param collector: the bolt's, for reports.
    :param coverage: of plans.
    :param index: of this task.
    :param forget: called with a slot whose end the watermark has reached.
    """

    def __init__(self, metadata: SlotMetadata, collector: Any, coverage: Coverage, index: int, forget: Callable[[int], None]) -> None:
        self._metadata, self._collector, self._coverage, self._index, self._forget = metadata, collector, coverage, index, forget
        self.watermark = -1
        self._span = np.zeros((2, 0), np.int64)  # a slot matches after the first position, up to the second
        self._epochs: dict[int, tuple[int, int, bytes]] = {}  # slot -> epoch, plan, and subscription and guard in few bytes
        self._unreported: dict[int, int] = {}  # slots that report ready when this plan is in force
        self._ending: list[tuple[int, int]] = []  # (watermark, slot)

    def open(self, slot: int, placement: Placement) -> None:
        """Begin a subscription in a new slot."""
        if slot >= self._span.shape[1]:
            self._span = np.concatenate((self._span, np.zeros((2, slot + 16 - self._span.shape[1] + slot // 2), np.int64)), axis=1)
        subscription, epoch = placement
        self._span[:, slot] = epoch.at, _ALWAYS
        self._begin_epoch(slot, epoch, pack_state(subscription.encode() | {"guard": epoch.guard}))

    def _begin_epoch(self, slot: int, epoch: Epoch, packed: bytes) -> None:
        self._epochs[slot] = epoch.number, epoch.plan, packed
        self._unreported.pop(slot, None)
        if self._index in epoch.report_ready:
            self._unreported[slot] = epoch.since
        self.report_ready()

    def apply(self, slot: int, message: Epoch | End | Survey) -> bool:
        """Apply what the distribution task says of a subscription; return False if it lives here no longer, and matches only up to now."""
        if isinstance(message, Survey):
            _, plan, packed = self._epochs[slot]
            self._report(slot, SURVEYED, ReportedPlacement.decode(unpack_state(packed) | {"plan": plan}))
            return True
        if isinstance(message, Epoch) and self._index in message.tasks:
            self._begin_epoch(slot, message, self._epochs[slot][2])
            return True
        self._span[1, slot] = message.at
        self._unreported.pop(slot, None)
        self._ending.append((message.at, slot))
        self.end_due()
        return False

    def inside(self, positions: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return which pairs of a message and a slot count (bool[n])."""
        return (positions > self._span[0, slots]) & (positions <= self._span[1, slots])

    def report_expired(self, slot: int) -> None:
        """Report that the time of a subscription is over: the task that owns it ends it everywhere."""
        self._report(slot, EXPIRED)

    def report_ready(self) -> None:
        """Report the subscriptions that are ready: all that their plan sends here arrives."""
        for slot in [slot for slot, plan in self._unreported.items() if self._coverage.since(plan) <= self.watermark]:
            del self._unreported[slot]
            self._report(slot, READY)

    def end_due(self) -> None:
        """Forget the subscriptions whose end the watermark has reached."""
        due = [slot for at, slot in self._ending if at <= self.watermark]
        if due:
            self._ending = [(at, slot) for at, slot in self._ending if at > self.watermark]
            for slot in due:
                del self._epochs[slot]
                self._forget(slot)

    def _report(self, slot: int, kind: str, placement: ReportedPlacement | None = None) -> None:
        report = ReplicaReport(self._metadata.name(slot), self._metadata.registration(slot), self._epochs[slot][0], kind, None, placement)
        self._collector.emit(report.encode(), streams.SHORTAGES)

    def slots(self) -> list[int]:
        """Return the slots of subscriptions that have not ended."""
        ending = {slot for _, slot in self._ending}
        return [slot for slot in self._epochs if slot not in ending]

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [self.watermark, np.array(self._span), [[slot, *epoch] for slot, epoch in self._epochs.items()], list(self._unreported.items()), self._ending]

    def restore(self, state: Any) -> None:
        """Take over a snapshot."""
        self.watermark, span, epochs, unreported, ending = state
        self._span = np.array(span)
        self._epochs = {slot: (epoch, plan, packed) for slot, epoch, plan, packed in epochs}
        self._unreported, self._ending = dict(unreported), [tuple(end) for end in ending]
