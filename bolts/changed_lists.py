"""Decides which top-k lists have to be written, and when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dskype.bolts.arrays import grown

__all__ = ["ChangedLists"]

_LONG_AGO = np.iinfo(np.int64).min // 2
_BURST_MS = 1000
"""For this long a task may exceed its rate if it wrote less before. A list whose pause is no longer than this does not count as postponed."""


class ChangedLists:
    """Marks lists that changed since they were written, and lets each be written at most once per interval.

    A list is due as soon as it changes, but not before a pause has passed since it was last written: an interval, or longer, in proportion to its bytes.
    So lists are written a few at a time as they change, and not all together at the end of an interval. If all of them have more bytes per second than a task may
    write, those that were written longest ago come first.

    Lists are identified by slots. 13 bytes per slot; calls are linear in their slots, :meth:`pop_due` in all slots.

    :param interval_ms: the interval; 0: a changed list is due at once.
    :param list_bytes_per_s: how many bytes of one list are written per second; None: any number.
    :param bytes_per_s: how many bytes of all lists are written per second; None: any number.
    """

    def __init__(self, interval_ms: int, list_bytes_per_s: int | None = None, bytes_per_s: int | None = None) -> None:
        self._interval_ms, self._list_bytes_per_s, self._bytes_per_s = interval_ms, list_bytes_per_s, bytes_per_s
        self._changed = np.zeros(0, np.bool_)
        self._written_ms = np.zeros(0, np.int64)
        self._bytes = np.zeros(0, np.int32)
        self._free_ms = _LONG_AGO
        """When the bytes that were written are within the limit again."""
        self._waited = False
        self.postponed = 0
        """How many lists were written more than an interval, and more than a second, after they were last written, because of their bytes; a measurement, not state."""
        self.late = np.zeros(0, np.int32)
        """Slots of such lists among those that were returned last."""
        self.all_late = False
        """Whether it was because of the bytes of all lists."""

    def __contains__(self, slot: int) -> bool:
        return slot < len(self._changed) and bool(self._changed[slot])

    def mark(self, slots: np.ndarray) -> None:
        """Mark lists as changed.

        :param slots: integers, which may repeat.
        """
        if len(slots):
            n = int(slots.max()) + 1
            self._changed, self._written_ms, self._bytes = grown(self._changed, n, False), grown(self._written_ms, n, _LONG_AGO), grown(self._bytes, n, 0)
            self._changed[slots] = True

    def discard(self, slots: np.ndarray) -> None:
        """Remove the marks of lists."""
        self._changed[slots[slots < len(self._changed)]] = False

    def forget(self, slot: int) -> None:
        """Forget a slot: its next list belongs to another subscription."""
        if slot < len(self._changed):
            self._changed[slot], self._written_ms[slot], self._bytes[slot] = False, _LONG_AGO, 0

    def pauses_ms(self, slots: np.ndarray) -> np.ndarray:
        """Return the pauses of lists after they were last written."""
        if self._list_bytes_per_s is None:
            return np.full(len(slots), self._interval_ms, np.int64)
        return np.maximum(self._interval_ms, self._bytes[slots].astype(np.int64) * 1000 // self._list_bytes_per_s)

    def pop_due(self, now_ms: int, held: Iterable[int] = ()) -> np.ndarray:
        """Return the slots of due lists (int32, rising), which count as written now; :meth:`note_written` has to follow.

        :param held: slots of lists that cannot be written now; they stay marked.
        """
        slots = np.flatnonzero(self._changed)
        if len(slots):
            slots = slots[now_ms - self._written_ms[slots] >= self.pauses_ms(slots)]
        if len(slots) and (waiting := list(held)):
            slots = np.setdiff1d(slots, np.array(waiting), assume_unique=True)
        if len(slots) and self._free_ms > now_ms:
            self._waited = True
            return np.zeros(0, np.int32)
        due = len(slots)
        slots = self._within_a_second(slots)
        self.all_late = self._waited
        self.late = slots if self._waited else slots[self.pauses_ms(slots) > max(self._interval_ms, _BURST_MS)]
        self.postponed += len(self.late)
        self._waited = len(slots) < due
        self._changed[slots], self._written_ms[slots] = False, now_ms
        return slots.astype(np.int32)

    def _within_a_second(self, slots: np.ndarray) -> np.ndarray:
        """Return the lists, or those written longest ago, whose bytes may be written in a second; at least one."""
        if self._bytes_per_s is None or int(self._bytes[slots].sum(dtype=np.int64)) <= self._bytes_per_s:
            return slots
        order = np.argsort(self._written_ms[slots], kind="stable")
        ends = np.cumsum(self._bytes[slots[order]], dtype=np.int64)
        return np.sort(slots[order[: max(1, int(np.searchsorted(ends, self._bytes_per_s, "right")))]])

    def note_written(self, slots: np.ndarray, sizes: np.ndarray, now_ms: int) -> None:
        """Note how long lists were that have been written.

        :param sizes: bytes, an integer for each slot.
        """
        self._bytes[slots] = np.minimum(sizes, np.iinfo(np.int32).max)
        if self._bytes_per_s is not None:
            self._free_ms = max(self._free_ms, now_ms - _BURST_MS) + int(sizes.sum()) * 1000 // self._bytes_per_s

    def slowest(self, most: int) -> list[tuple[int, int]]:
        """Return (slot, pause in ms) of lists whose bytes make their pauses longer than the interval and than a second, the longest pauses first."""
        pauses = self.pauses_ms(np.arange(len(self._bytes)))
        slots = np.argsort(-pauses, kind="stable")[:most]
        return [(slot, pause) for slot, pause in zip(slots.tolist(), pauses[slots].tolist()) if pause > max(self._interval_ms, _BURST_MS)]

    def snapshot(self) -> Any:
        """Return the state as arrays and plain values."""
        return [self._changed, self._written_ms, self._bytes, self._free_ms, self._waited]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot; those of earlier versions have no bytes, or do not say whether lists wait."""
        self._changed, self._written_ms = (np.array(column) for column in state[:2])
        self._bytes, self._free_ms = (np.array(state[2]), state[3]) if len(state) > 2 else (np.zeros(len(self._changed), np.int32), _LONG_AGO)
        self._waited = len(state) > 4 and state[4]
