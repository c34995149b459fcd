"""Metadata of subscriptions by slot: what a task has to know of them beside the index."""

from __future__ import annotations

from typing import Any

import numpy as np

from dskype.bolts.results.match_kernels import Names
from dskype.bolts.slot_names import SlotNames

__all__ = ["SlotMetadata"]


class SlotMetadata:
    """Name, registration and meta of the subscription in each slot."""

    def __init__(self) -> None:
        self._columns = np.empty((3, 0), object)
        self._free: list[int] = []
        self._slots = 0  # slots below this one have been in use
        self._with_meta = 0
        self._json: SlotNames | None = None  # made when it is first asked for

    def allocate(self) -> int:
        """Return a free slot, for owners that have no other source of slots. Fill it with :meth:`set`, and give it back with :meth:`release`."""
        return self._free.pop() if self._free else self._slots

    def set(self, slot: int, name: str, registration: str, meta: str | None) -> None:
        """Fill a slot."""
        if slot >= self._columns.shape[1]:
            self._columns = np.concatenate((self._columns, np.empty((3, slot + 16 - self._columns.shape[1] + slot // 2), object)), axis=1)
        self._columns[:, slot] = name, registration, meta
        self._with_meta += meta is not None
        self._slots = max(self._slots, slot + 1)
        if self._json is not None:
            self._json.set(slot, name)

    def clear(self, slot: int) -> None:
        """Empty a slot."""
        self._with_meta -= self._columns[2, slot] is not None
        self._columns[:, slot] = None
        if self._json is not None:
            self._json.clear(slot)

    def release(self, slot: int) -> None:
        """Empty a slot of :meth:`allocate`, which may hand it out again."""
        self.clear(slot)
        self._free.append(slot)

    def name(self, slot: int) -> str | None:
        """Return the name of the subscription in a slot, or None if the slot is empty."""
        return self._columns[0, slot] if slot < self._slots else None

    def registration(self, slot: int) -> str:
        """Return the registration of the subscription in a slot."""
        return self._columns[1, slot]

    def meta(self, slot: int) -> str | None:
        """Return the meta of the subscription in a slot, or None if it has none."""
        return self._columns[2, slot]

    def columns(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return names, registrations and metas of slots as arrays of objects; in place of metas None if no subscription of the task has one."""
        return self._columns[0, slots], self._columns[1, slots], self._columns[2, slots] if self._with_meta else None

    def json_names(self) -> Names:
        """Return the names by slot as JSON; valid until a slot is filled or emptied."""
        if self._json is None:
            self._json = SlotNames()
            for slot, name in enumerate(self._columns[0, : self._slots]):
                if name is not None:
                    self._json.set(slot, name)
        return self._json.arrays()

    def by_name(self) -> dict[str, int]:
        """Return name -> slot."""
        return {name: slot for slot, name in enumerate(self._columns[0, : self._slots]) if name is not None}

    def snapshot(self) -> Any:
        """Return the slots as plain values."""
        return [*(column.tolist() for column in self._columns[:, : self._slots]), self._free]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        *columns, self._free = (list(part) for part in state)
        self._slots, self._json = len(columns[0]), None
        self._columns = np.empty((3, self._slots), object)
        for row, column in zip(self._columns, columns):
            row[:] = column
        self._with_meta = sum(meta is not None for meta in columns[2])
