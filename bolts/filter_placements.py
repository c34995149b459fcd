"""The placements of boolean subscriptions that may live on several tasks, as one of these tasks sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dskype.bolts.entries import Entries
from dskype.bolts.replicas import Coverage
from dskype.spouts import streams
from dskype.topology.core.values import pack_state, unpack_state

__all__ = ["FilterPlacements"]

_ALWAYS = np.iinfo(np.int64).max
_KEPT = ("type", "bbox", "expression", "expires_ms", "meta", "guard")


class FilterPlacements:
    """Says which positions the boolean subscription in a slot matches here; see :mod:`dskype.bolts.replicas`.

    :param entries: names and registrations by slot.
    :param collector: the bolt's, for reports.
    :param coverage: of plans.
    :param index: of this task.
    :param forget: called with a slot whose end the watermark has reached.
    """

    def __init__(self, entries: Entries, collector: Any, coverage: Coverage, index: int, forget: Callable[[int], None]) -> None:
        self._entries, self._collector, self._coverage, self._index, self._forget = entries, collector, coverage, index, forget
        self.watermark = -1
        self._span = np.zeros((2, 0), np.int64)  # after which position, and up to which one a slot matches
        self._epochs: dict[int, tuple[int, int, bytes]] = {}  # slot -> epoch, plan, and the rest of the placement in few bytes
        self._telling: dict[int, int] = {}  # slots that report when this plan is in force
        self._ending: list[tuple[int, int]] = []  # (watermark, slot)

    def open(self, slot: int, placement: Mapping[str, Any]) -> None:
        """Begin one in a new slot."""
        if slot >= self._span.shape[1]:
            self._span = np.concatenate((self._span, np.zeros((2, slot + 16 - self._span.shape[1] + slot // 2), np.int64)), axis=1)
        self._span[:, slot] = placement["at"], _ALWAYS
        self._take(slot, placement, pack_state({key: placement[key] for key in _KEPT}))

    def _take(self, slot: int, placement: Mapping[str, Any], kept: bytes) -> None:
        self._epochs[slot] = placement["epoch"], placement["plan"], kept
        self._telling.pop(slot, None)
        if self._index in placement["tell"]:
            self._telling[slot] = placement["since"]
        self.tell()

    def take(self, slot: int, placement: Mapping[str, Any]) -> bool:
        """Take a survey, another epoch or the end; returns False if this task has it only up to there from now on."""
        if placement["type"] == "survey":
            self._report(slot, "survey", unpack_state(self._epochs[slot][2]) | {"plan": self._epochs[slot][1]})
            return True
        if placement["type"] == "epoch" and self._index in placement["tasks"]:
            self._take(slot, placement, self._epochs[slot][2])
            return True
        self._span[1, slot] = placement["at"]
        self._telling.pop(slot, None)
        self._ending.append((placement["at"], slot))
        self.end()
        return False

    def inside(self, positions: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return which pairs of a message and a slot count (bool[n])."""
        return (positions > self._span[0, slots]) & (positions <= self._span[1, slots])

    def expired(self, slot: int) -> None:
        """Report that the time of one is over: who owns it ends it everywhere."""
        self._report(slot, "expired", None)

    def tell(self) -> None:
        """Report those that are ready: they get all that their plan sends here."""
        for slot in [slot for slot, plan in self._telling.items() if self._coverage.since(plan) <= self.watermark]:
            del self._telling[slot]
            self._report(slot, "ready", None)

    def end(self) -> None:
        """Forget those whose end the watermark has reached."""
        due = [slot for at, slot in self._ending if at <= self.watermark]
        if due:
            self._ending = [(at, slot) for at, slot in self._ending if at > self.watermark]
            for slot in due:
                del self._epochs[slot]
                self._forget(slot)

    def _report(self, slot: int, kind: str, placement: Any) -> None:
        self._collector.emit((self._entries.name(slot), self._entries.registration(slot), self._epochs[slot][0], kind, None, placement), streams.SHORTAGES)

    def slots(self) -> list[int]:
        """Return the slots that have not ended."""
        ending = {slot for _, slot in self._ending}
        return [slot for slot in self._epochs if slot not in ending]

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [self.watermark, np.array(self._span), [[slot, *epoch] for slot, epoch in self._epochs.items()], list(self._telling.items()), self._ending]

    def restore(self, state: Any) -> None:
        """Take it over."""
        self.watermark, span, epochs, telling, ending = state
        self._span = np.array(span)
        self._epochs = {slot: (epoch, plan, kept) for slot, epoch, plan, kept in epochs}
        self._telling, self._ending = {slot: plan for slot, plan in telling}, [tuple(end) for end in ending]
