"""Top-k subscriptions whose distances are in metres, found by any subscription index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.arrays import grown
from dskype.bolts.topk import _kernels as kernels
from dskype.bolts.topk.base import Matches, SubscriptionIndex
from dskype.bolts.topk.table import readable_messages
from dskype.spouts.batch import MessageBatch, select_lists
from dskype.spouts.columns import read_only
from dskype.spouts.score_kernels import MARGIN
from dskype.spouts.sphere_kernels import EARTH_RADIUS_M, RADIANS

__all__ = ["MetresSubscriptions", "StandIns", "stand_ins"]

_MOST = 3
"""Stand-ins of a subscription: a flat one, a cone, and another cone across the antimeridian."""
_NEARLY_POLE_DEG = 80.0
"""Cones reach no further north or south, because degrees of longitude become short there."""
_TINY = 1e-12
"""Less than what MARGIN covers; stands for 0 where something is divided by it."""
_ROUNDING = 1e-13
"""More than the rounding errors of a stand-in's score and threshold."""
_COARSE_M = 10.0
"""Degrees have about 14 digits, so that distances may be wrong by a small part of MARGIN times this many metres."""


class StandIns(NamedTuple):
    """Subscriptions in degrees in place of others in metres, m for n.

    What scores at least theta for one of the n scores at least ``factor * theta + shift`` for one of its stand-ins.

    :ivar owner: int64[m], which of the n it stands for, rising.
    :ivar lon, lat: float64[m], degrees; ``lon`` may lie outside -180..180.
    :ivar alpha: float64[m], 0..1.
    :ivar factor: float64[m], > 0.
    :ivar shift: float64[m].
    """

    owner: np.ndarray
    lon: np.ndarray
    lat: np.ndarray
    alpha: np.ndarray
    factor: np.ndarray
    shift: np.ndarray


def stand_ins(lon: np.ndarray, lat: np.ndarray, alpha: np.ndarray, scale_m: np.ndarray, diagonal_deg: float) -> StandIns:
    """Return the stand-ins of subscriptions whose distances are in metres.

    The score is ``alpha * (1 - min(1, d / scale_m)) + (1 - alpha) * text``. Within a radius r <= scale_m, d is at least the difference in
    degrees times the metres of a degree of longitude where the circle is nearest to a pole. (A shortest way stays in the circle, and is nowhere
    more stretched than there.) So inside the circle the score is at most a linear function of this difference, a cone: the score in degrees of
    another alpha, times a factor. Where the circle crosses the antimeridian, a second cone lies 360 degrees away. Outside of the circle the score is
    at most ``alpha * (1 - r / scale_m) + (1 - alpha) * text``, which is a score in degrees, too: with alpha 0. r is scale_m unless a pole is near.

    :param lon, lat: float64[n], degrees; ``alpha``: float64[n]; ``scale_m``: float64[n], > 0.
    :param diagonal_deg: of the data space, for the scores in degrees.
    """
    most_deg = np.minimum(90.0, np.maximum(_NEARLY_POLE_DEG - abs(lat), (90.0 - abs(lat)) / 2))
    radius = np.minimum(scale_m / EARTH_RADIUS_M, most_deg * RADIANS)  # an angle
    text = np.maximum(1.0 - alpha, _TINY)
    margin = MARGIN * (1.0 + _COARSE_M / scale_m)
    flat_alpha, flat_shift = np.zeros(len(lon)), -(alpha * np.maximum(1.0 - radius * EARTH_RADIUS_M / scale_m, 0.0) + margin) / text - _ROUNDING
    metres_per_deg = (1.0 - MARGIN) * EARTH_RADIUS_M * RADIANS * np.cos(abs(lat) * RADIANS + radius)
    steepness = np.maximum(metres_per_deg * diagonal_deg / scale_m, _TINY)
    whole = np.maximum(alpha * steepness + (1.0 - alpha), _TINY)
    cone_alpha, cone_shift = np.minimum(alpha * steepness / whole, 1.0), (alpha * steepness - alpha - margin) / whole - _ROUNDING
    half_deg = np.arcsin(np.minimum(np.sin(radius) / np.maximum(np.cos(lat * RADIANS), _TINY), 1.0)) / RADIANS + 1e-6
    crosses = abs(lon) + half_deg > 180.0
    # By columns: flat, cone, cone across the antimeridian. Without a weight of the place the flat one says it all.
    used = np.stack((np.ones(len(lon), np.bool_), alpha > 0, (alpha > 0) & crosses), axis=1)
    across = lon - np.copysign(360.0, lon)
    columns = (
        (lon, lon, across),
        (lat, lat, lat),
        (flat_alpha, cone_alpha, cone_alpha),
        (1.0 / text, 1.0 / whole, 1.0 / whole),
        (flat_shift, cone_shift, cone_shift),
    )
    return StandIns(np.nonzero(used)[0], *(np.stack(column, axis=1)[used] for column in columns))


class MetresSubscriptions:
    """The subscriptions of an engine whose distances are in metres: an index of their own, of any kind, which holds stand-ins for them.

    The index finds candidates in degrees (:func:`stand_ins`), and each candidate is scored exactly. So every index takes distances in metres. Memory, beside
    the index with up to three stand-ins for a subscription: 52 bytes for each slot of the engine and 21 for each stand-in.

    :param index: an empty one.
    """

    def __init__(self, index: SubscriptionIndex) -> None:
        self.index = index
        self._place = np.zeros((0, 4))  # LON, LAT, ALPHA, THRESHOLD by slot
        self._scale_m = np.zeros(0)  # by slot; 0: the slot is not here
        self._rows = np.zeros((0, _MOST), np.int32)  # the stand-ins of a slot; -1: none
        self._live = np.zeros(0, np.bool_)  # by stand-in, as the next ones
        self._owner = np.zeros(0, np.int32)
        self._tuning = np.zeros((0, 2))  # factor, shift
        self._count = 0
        self.candidates = 0
        """How many pairs of a message and a subscription have been scored."""

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return self._count

    def has(self, slots: np.ndarray) -> np.ndarray:
        """Tell which slots (int32[n]) are here, bool[n]."""
        here = slots < len(self._scale_m)
        here[here] = self._scale_m[slots[here]] > 0
        return here

    def insert(
        self, slots: np.ndarray, lon: np.ndarray, lat: np.ndarray, alpha: np.ndarray, scale_m: np.ndarray, lists: tuple[np.ndarray, np.ndarray, np.ndarray]
    ) -> None:
        """Insert subscriptions with threshold -inf.

        :param slots: int32[n], rising, none of them here.
        :param scale_m: float64[n], > 0; the others as in :meth:`SubscriptionIndex.insert`.
        :param lists: offsets, terms and weights.
        """
        if not len(slots):
            return
        n = int(slots[-1]) + 1
        if n > len(self._scale_m):
            n += n // 4
            self._place, self._scale_m, self._rows = grown(self._place, n, 0.0), grown(self._scale_m, n, 0.0), grown(self._rows, n, -1)
        found = stand_ins(lon, lat, alpha, scale_m, self.index.diagonal_deg)
        rows = kernels.lowest_free_slots(self._live, len(found.owner), 0)
        if rows[-1] >= len(self._live):
            n = int(rows[-1]) + 1 + len(self._live) // 4
            self._live, self._owner, self._tuning = grown(self._live, n, False), grown(self._owner, n, -1), grown(self._tuning, n, 0.0)
        self._place[slots] = np.stack((lon, lat, alpha, np.full(len(slots), -np.inf)), axis=1)
        self._scale_m[slots] = scale_m
        self._live[rows], self._owner[rows], self._tuning[rows] = True, slots[found.owner], np.stack((found.factor, found.shift), axis=1)
        nth = np.arange(len(rows)) - np.searchsorted(found.owner, found.owner)
        self._rows[slots] = -1
        self._rows[slots[found.owner], nth] = rows
        self._count += len(slots)
        offsets, index = select_lists(lists[0], found.owner)
        self.index.insert(rows, found.lon, found.lat, found.alpha, offsets, lists[1][index], lists[2][index])

    def remove(self, slots: np.ndarray) -> None:
        """Remove subscriptions (int32[n], each once)."""
        rows, _ = self._stand_ins(slots)
        self.index.remove(np.sort(rows))
        self._live[rows] = False
        self._rows[slots], self._scale_m[slots] = -1, 0.0
        self._count -= len(slots)

    def set_thresholds(self, slots: np.ndarray, thresholds: np.ndarray) -> None:
        """Set thresholds, as :meth:`SubscriptionIndex.set_thresholds` does."""
        self._place[slots, kernels.THRESHOLD] = thresholds
        rows, which = self._stand_ins(slots)
        factor, shift = self._tuning[rows].T
        self.index.set_thresholds(rows, thresholds[which] * factor + shift)

    def _stand_ins(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the stand-ins of slots (int32[m]), and which of the slots each is of (int64[m])."""
        rows = self._rows[slots]
        used = rows >= 0
        return rows[used], np.nonzero(used)[0]

    def match(self, messages: MessageBatch) -> Matches:
        """Return exactly the pairs with a common term and ``score >= threshold(slot)``; see :meth:`SubscriptionIndex.match`."""
        found = self.index.match(messages)
        pairs = np.unique((found.message.astype(np.int64) << 32) | self._owner[found.slot])
        rows, slots = (pairs >> 32).astype(np.int32), pairs.astype(np.int32)
        self.candidates += len(pairs)
        table = self.index.table
        first = np.ascontiguousarray(self._rows[:, 0])
        scores = kernels.scores_of_pairs(
            readable_messages(messages), rows, slots, first, self._place, self._scale_m, table.keyword_arrays, table.terms.map.name, self.index.diagonal_deg
        )
        reached = scores >= self._place[slots, kernels.THRESHOLD]
        return Matches(rows[reached], slots[reached], scores[reached])

    def columns(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """Return ``lon``, ``lat``, ``alpha``, ``scale_m``, ``offsets``, ``terms`` and ``weights`` of slots."""
        words = self.index.table.columns(self._rows[slots, 0])
        lon, lat, alpha, _ = self._place[slots].T.copy()
        return {"lon": lon, "lat": lat, "alpha": alpha, "scale_m": self._scale_m[slots], **{name: words[name] for name in ("offsets", "terms", "weights")}}

    @property
    def slots(self) -> np.ndarray:
        """All slots that are here (int32[], rising)."""
        return np.flatnonzero(self._scale_m > 0).astype(np.int32)

    def thresholds(self, slots: np.ndarray) -> np.ndarray:
        """Return the thresholds of slots, float64[n]."""
        return self._place[slots, kernels.THRESHOLD]

    def snapshot(self) -> dict[str, Any]:
        """Return subscriptions and thresholds as plain arrays in order of slots."""
        slots = self.slots
        return {"slots": slots, "thresholds": self.thresholds(slots), **self.columns(slots)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill an empty one from a snapshot."""
        slots = np.array(state["slots"])
        lon, lat, alpha, scale_m = (np.array(state[name]) for name in ("lon", "lat", "alpha", "scale_m"))
        words = read_only(state["offsets"], np.int64), read_only(state["terms"], np.int64), read_only(state["weights"], np.float64)
        self.insert(slots, lon, lat, alpha, scale_m, words)
        self.set_thresholds(slots, np.array(state["thresholds"]))

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        own = (self._place, self._scale_m, self._rows, self._live, self._owner, self._tuning)
        return self.index.memory_bytes + sum(array.nbytes for array in own)

    def _check(self) -> None:
        """Verify all invariants (AssertionError); for tests, O(size)."""
        self.index._check()
        slots = self.slots
        rows, which = self._stand_ins(slots)
        assert len(slots) == self._count and (np.sort(rows) == np.flatnonzero(self._live)).all() and (self._rows[slots, 0] >= 0).all()
        assert (self._owner[rows] == slots[which]).all() and (np.flatnonzero(self.index.table.live) == np.sort(rows)).all()
        factor, shift = self._tuning[rows].T
        assert (self.index.table.place[rows, kernels.THRESHOLD] == self.thresholds(slots)[which] * factor + shift).all()
