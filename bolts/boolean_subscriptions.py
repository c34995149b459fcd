"""The boolean subscriptions of a subscription task, and with them its threshold subscriptions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sortedcontainers import SortedList

from dskype.bolts import boolean
from dskype.bolts.busiest import Busiest
from dskype.bolts.filters import Filters
from dskype.bolts.message_queue import Arrived
from dskype.bolts.objects import StatePairs
from dskype.bolts.results.events import ENTER, INSIDE, LEAVE
from dskype.bolts.slot_metadata import SlotMetadata
from dskype.bolts.thresholds import Thresholds
from dskype.distribution.subscriptions import BooleanSubscription, Scorer
from dskype.spouts.message_terms import MessageTerms
from dskype.spouts.region_table import RegionTable
from dskype.spouts.settings import Settings

__all__ = ["BooleanSubscriptions"]

_NEVER_MS = np.iinfo(np.int64).max
_TTL_SLACK_MS = 60_000
"""How much earlier than others a message may have arrived that is applied after them, because it was read from another partition.
With time windows a message from the future waits for its time, so ``dskype.window.ahead.ms`` counts if it is more."""


class BooleanSubscriptions:
    """Boolean and threshold subscriptions by slot: their index, names and times of expiry.

    :param settings: of the topology.
    """

    def __init__(self, settings: Settings) -> None:
        self._index = boolean.make_index(settings.boolean_index, settings.boolean_index_options)
        self._filters = Filters()
        self._terms = MessageTerms(settings)
        self._regions = RegionTable()
        self._diagonal_deg = settings.space.diagonal_deg
        self._thresholds = Thresholds(self._diagonal_deg)
        self.metadata = SlotMetadata()
        self.slots: dict[str, int] = {}
        """Subscription -> slot. The owner removes names, so a slot may outlive its name."""
        self.busiest = Busiest(settings.results_per_s, self.metadata.name)
        self._slack_ms = max(_TTL_SLACK_MS, settings.ahead_ms)
        self._ends_ms = np.zeros(0, np.int64)  # by slot; those behind it do not end
        self._expiring = SortedList()  # (end in ms, slot) of those that have not expired
        self._expired: set[int] = set()  # slots that have expired, and have not been forgotten yet
        self._objects = settings.objects
        self._begun = np.zeros(0, np.int64)  # by slot, with objects: the watermark at which it became active
        self._inside: set[int] = set()  # slots of subscriptions that want updates inside

    def open(self, name: str, registration: str, subscription: BooleanSubscription, watermark: int = -1) -> int:
        """Begin a subscription; return its slot.

        :param watermark: of the task.
        """
        slot = self.metadata.allocate()
        self.slots[name] = slot
        self.metadata.set(slot, name, registration, subscription.meta)
        self._index.insert(slot, subscription.bbox, subscription.expression)
        if subscription.program is not None:
            self._filters.set(slot, subscription.program)
        if subscription.region is not None:
            self._regions.put(slot, subscription.region)
        if subscription.scorer is not None:
            self._thresholds.set(slot, Scorer(*subscription.scorer))
        if subscription.expires_ms is not None:
            self._cover(slot)
            self._ends_ms[slot] = subscription.expires_ms
            self._expiring.add((subscription.expires_ms, slot))
        if self._objects:
            if slot >= len(self._begun):
                self._begun = np.concatenate((self._begun, np.zeros(slot + 16 - len(self._begun) + slot // 2, np.int64)))
            self._begun[slot] = watermark if subscription.begun is None else subscription.begun
            if subscription.inside:
                self._inside.add(slot)
        return slot

    def begun(self, slot: int) -> int | None:
        """Return the watermark at which a subscription became active; None: there are no objects, so nobody needs it."""
        return int(self._begun[slot]) if self._objects else None

    def _cover(self, slot: int) -> None:
        """Let ``_ends_ms`` have an entry for a slot."""
        if slot >= len(self._ends_ms):
            self._ends_ms = np.concatenate((self._ends_ms, np.full(slot + 16 - len(self._ends_ms) + slot // 2, _NEVER_MS, np.int64)))

    def forget(self, slot: int) -> None:
        """Empty a slot."""
        self._index.remove(slot)
        self._filters.clear(slot)
        self._regions.remove(slot)
        self._thresholds.clear(slot)
        if slot < len(self._ends_ms):
            self._expiring.discard((int(self._ends_ms[slot]), slot))
            self._ends_ms[slot] = _NEVER_MS
        self._expired.discard(slot)
        self._inside.discard(slot)
        self.metadata.release(slot)

    def match(self, arrived: Arrived) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return (rows, slots, scores): message ``rows[i]`` matches the subscription in ``slots[i]``, which had not expired when the message arrived.

        Scores are float64[], and NaN for boolean subscriptions; None: there are only these.
        """
        rows, slots = self._alive(*self._satisfying(arrived), arrived.arrival_ms)
        scores = None
        if self._thresholds:
            rows, slots, scores = self._thresholds.keep(arrived.messages, rows, slots)
        self.busiest.count(slots)
        return rows, slots, scores

    def compare(self, pairs: StatePairs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what updates of objects mean: (rows, slots, ops), a row of the update, the slot of a subscription, and ``ENTER``, ``INSIDE`` or ``LEAVE``.

        A subscription has matched a state if it was active when the state began, and had not expired when the message arrived that the state began with.
        """
        rows, slots = self._satisfying(pairs.states)
        rows, slots = self._alive(*self._alive(rows, slots, pairs.states.arrival_ms), pairs.since_ms)
        known = pairs.since[rows] > self._begun[slots]
        rows, slots = rows[known], slots[known]
        order = np.lexsort((pairs.before[rows], slots, updates := pairs.updates()[rows]))
        rows, slots, updates = rows[order], slots[order], updates[order]
        second = np.zeros(len(rows), bool)  # the state before, where the new one matches too
        second[1:] = (slots[1:] == slots[:-1]) & (updates[1:] == updates[:-1])
        ops = np.where(pairs.before[rows] == 1, LEAVE, ENTER).astype(np.int8)
        ops[:-1][second[1:]] = INSIDE
        wanted = ~second
        if (inside := ops == INSIDE).any():
            asked = np.isin(slots, np.array(sorted(self._inside), np.int64))
            wanted &= ~inside | asked
        rows, slots, ops = rows[wanted], slots[wanted], ops[wanted]
        self.busiest.count(slots)
        return rows, slots, ops

    def _satisfying(self, arrived: Arrived) -> tuple[np.ndarray, np.ndarray]:
        """Return (rows, slots) of messages and subscriptions that match, whether these have expired or not."""
        terms = self._terms.of(arrived.details)
        rows, slots = self._index.match(self._terms.add(arrived.messages, terms))
        if len(slots) and (len(self._regions) or len(arrived.details.regions)):
            touching = self._touching(arrived, rows, slots)
            rows, slots = rows[touching], slots[touching]
        if self._filters and len(slots):
            rows, slots = self._filters.keep(arrived.messages, arrived.details, terms, rows, slots)
        return rows, slots

    def _alive(self, rows: np.ndarray, slots: np.ndarray, arrival_ms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Leave out the subscriptions that had expired at the times of the rows."""
        if (self._expiring or self._expired) and len(slots):
            self._cover(int(slots.max()))
            alive = arrival_ms[rows] < self._ends_ms[slots]
            rows, slots = rows[alive], slots[alive]
        return rows, slots

    def _touching(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Tell of which pairs the places touch, which have rectangles that do."""
        messages, details = arrived.messages, arrived.details
        if not len(details.regions):
            return self._regions.touches(slots, rows, messages.lat, messages.lon, areas=messages.areas)
        shapes = {"shape_offsets": details.region_offsets, "shapes": details.regions}
        return self._regions.touches(slots, rows, messages.lat, messages.lon, areas=messages.areas, boxes=self._index.boxes(slots), **shapes)

    def pop_expired(self, *applied: Arrived) -> list[int]:
        """Return the slots of subscriptions that have expired since the last call. The owner forgets each of them, at once or later.

        A subscription counts as expired when no message can follow that arrived before its expiry.

        :param applied: the messages that have been applied since, one or more.
        """
        found: list[int] = []
        if not self._expiring:
            return found
        now_ms = min(int(arrived.arrival_ms.min()) for arrived in applied) - self._slack_ms
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
            **({"thresholds": self._thresholds.snapshot()} if self._thresholds else {}),
            **({"begun": np.array(self._begun), "inside": sorted(self._inside)} if self._objects else {}),
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._index.restore(state["boolean"])
        self.metadata.restore(state["filters"])
        self._filters.restore(state.get("programs"))
        self._regions = RegionTable()
        if "regions" in state:  # absent from snapshots of earlier versions, as are programs
            self._regions.restore(state["regions"])
        self._thresholds = Thresholds(self._diagonal_deg)
        if "thresholds" in state:  # absent without threshold subscriptions
            self._thresholds.restore(state["thresholds"])
        self.slots = self.metadata.by_name()
        self._ends_ms = np.zeros(0, np.int64)
        for slot, ends_ms in state["ends_ms"]:
            self._cover(slot)
            self._ends_ms[slot] = ends_ms
        if "begun" in state:  # only with objects
            self._begun, self._inside = np.array(state["begun"]), set(state["inside"])
        self._expired = set(state.get("expired", ()))  # absent from snapshots of earlier versions
        self._expiring = SortedList((ends_ms, slot) for slot, ends_ms in self._expiries() if slot not in self._expired)
