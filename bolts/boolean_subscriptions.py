"""The boolean subscriptions of a subscription task."""

from __future__ import annotations

from typing import Any

import numpy as np
from sortedcontainers import SortedList

from dskype.bolts import boolean
from dskype.bolts.busiest import Busiest
from dskype.bolts.filters import Filters
from dskype.bolts.message_queue import Arrived
from dskype.bolts.slot_metadata import SlotMetadata
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.spouts.message_terms import MessageTerms
from dskype.spouts.region_table import RegionTable
from dskype.spouts.settings import Settings

__all__ = ["BooleanSubscriptions"]

_NEVER_MS = np.iinfo(np.int64).max
_TTL_SLACK_MS = 60_000
"""How much earlier than others a message may have arrived that is applied after them, because it was read from another partition.
With time windows a message from the future waits for its time, so ``dskype.window.ahead.ms`` counts if it is more."""


class BooleanSubscriptions:
    """Boolean subscriptions by slot: their index, names and times of expiry.

    :param settings: of the topology.
    """

    def __init__(self, settings: Settings) -> None:
        self._index = boolean.make_index(settings.boolean_index, settings.boolean_index_options)
        self._filters = Filters()
        self._terms = MessageTerms(settings)
        self._regions = RegionTable()
        self.metadata = SlotMetadata()
        self.slots: dict[str, int] = {}
        """Subscription -> slot. The owner removes names, so a slot may outlive its name."""
        self.busiest = Busiest(settings.results_per_s, self.metadata.name)
        self._slack_ms = max(_TTL_SLACK_MS, settings.ahead_ms)
        self._ends_ms = np.zeros(0, np.int64)  # by slot; those behind it do not end
        self._expiring = SortedList()  # (end in ms, slot) of those that have not expired
        self._expired: set[int] = set()  # slots that have expired, and have not been forgotten yet

    def open(self, name: str, registration: str, subscription: BooleanSubscription) -> int:
        """Begin a subscription; return its slot."""
        slot = self.metadata.allocate()
        self.slots[name] = slot
        self.metadata.set(slot, name, registration, subscription.meta)
        self._index.insert(slot, subscription.bbox, subscription.expression)
        if subscription.program is not None:
            self._filters.set(slot, subscription.program)
        if subscription.region is not None:
            self._regions.put(slot, subscription.region)
        if subscription.expires_ms is not None:
            self._cover(slot)
            self._ends_ms[slot] = subscription.expires_ms
            self._expiring.add((subscription.expires_ms, slot))
        return slot

    def _cover(self, slot: int) -> None:
        """Let ``_ends_ms`` have an entry for a slot."""
        if slot >= len(self._ends_ms):
            self._ends_ms = np.concatenate((self._ends_ms, np.full(slot + 16 - len(self._ends_ms) + slot // 2, _NEVER_MS, np.int64)))

    def forget(self, slot: int) -> None:
        """Empty a slot."""
        self._index.remove(slot)
        self._filters.clear(slot)
        self._regions.remove(slot)
        if slot < len(self._ends_ms):
            self._expiring.discard((int(self._ends_ms[slot]), slot))
            self._ends_ms[slot] = _NEVER_MS
        self._expired.discard(slot)
        self.metadata.release(slot)

    def match(self, arrived: Arrived) -> tuple[np.ndarray, np.ndarray]:
        """Return (rows, slots): message ``rows[i]`` matches the subscription in ``slots[i]``, which had not expired when the message arrived."""
        terms = self._terms.of(arrived.details)
        rows, slots = self._index.match(self._terms.add(arrived.messages, terms))
        if len(slots) and (len(self._regions) or len(arrived.details.regions)):
            touching = self._touching(arrived, rows, slots)
            rows, slots = rows[touching], slots[touching]
        if self._filters and len(slots):
            satisfied = self._filters.satisfying(arrived.messages, arrived.details, terms, rows, slots)
            if not satisfied.all():
                rows, slots = rows[satisfied], slots[satisfied]
        if (self._expiring or self._expired) and len(slots):
            self._cover(int(slots.max()))
            alive = arrived.arrival_ms[rows] < self._ends_ms[slots]
            rows, slots = rows[alive], slots[alive]
        self.busiest.count(slots)
        return rows, slots

    def _touching(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Tell of which pairs the places touch, which have rectangles that do."""
        messages, details = arrived.messages, arrived.details
        if not len(details.regions):
            return self._regions.touches(slots, rows, messages.lat, messages.lon, areas=messages.areas)
        shapes = {"shape_offsets": details.region_offsets, "shapes": details.regions}
        return self._regions.touches(slots, rows, messages.lat, messages.lon, areas=messages.areas, boxes=self._index.boxes(slots), **shapes)

    def pop_expired(self, arrived: Arrived) -> list[int]:
        """Return the slots of subscriptions that have expired since the last call. The owner forgets each of them, at once or later.

        A subscription counts as expired when no message can follow that arrived before its expiry.
        """
        found: list[int] = []
        if not self._expiring:
            return found
        now_ms = int(arrived.arrival_ms.min()) - self._slack_ms
        while self._expiring and self._expiring[0][0] <= now_ms:
            found.append(self._expiring.pop(0)[1])
        self._expired.update(found)
        return found

    def __len__(self) -> int:
        """Return the number of slots in use."""
        return len(self._index)

    def _expiries(self) -> list[list[int]]:
        slots = np.flatnonzero(self._ends_ms < _NEVER_MS)
        return np.stack((slots, self._ends_ms[slots]), axis=1).tolist()

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays and plain values."""
        return {
            "boolean": self._index.snapshot(),
            "filters": self.metadata.snapshot(),
            "ends_ms": self._expiries(),
            "expired": sorted(self._expired),
            "programs": self._filters.snapshot(),
            "regions": self._regions.snapshot(),
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._index.restore(state["boolean"])
        self.metadata.restore(state["filters"])
        self._filters.restore(state.get("programs"))
        self._regions = RegionTable()
        if "regions" in state:  # absent from snapshots of earlier versions, as are programs
            self._regions.restore(state["regions"])
        self.slots = self.metadata.by_name()
        self._ends_ms = np.zeros(0, np.int64)
        for slot, ends_ms in state["ends_ms"]:
            self._cover(slot)
            self._ends_ms[slot] = ends_ms
        self._expired = set(state.get("expired", ()))  # absent from snapshots of earlier versions
        self._expiring = SortedList((ends_ms, slot) for slot, ends_ms in self._expiries() if slot not in self._expired)
