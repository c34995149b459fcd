"""The regions of subscriptions by slot, and which of them share a place with messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dskype.spouts import region_kernels as kernels
from dskype.spouts.region_pair_kernels import hold_points, touches
from dskype.topology.errors import IllegalArgumentException

__all__ = ["RegionTable"]

_LINE = kernels.LINE
_LINES_MAX = 2**31 - 1
_NO_PLACES = np.zeros((0, 4))
_NO_STARTS = np.zeros(0, np.int64)


class RegionTable:
    """The regions of some slots.

    A region is prepared when it is put in, so that the test of a pair reads as little as possible: one cache line for a circle. Prepared regions lie in one array, in the order in
    which they came. One that is removed leaves a gap. When the array is full, either the others move together, if gaps are a quarter of it, or it grows by half.

    Put, remove: O(corners), amortized; test of a point: O(1) for a circle, and about O(sqrt(corners)) for a polygon. Memory: 4 bytes for each slot, 64 for a circle,
    256 and 128 per 8 corners for a polygon, with up to half of that for growth.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._starts = np.zeros(0, np.int32)
        """The line where the region of each slot is, -1 is none."""
        self._numbers = _lines(0)
        self._used = self._left = self._size = 0
        """Lines up to the end of the last region, those of them that are gaps, and how many regions there are."""

    def __len__(self) -> int:
        """Return how many slots have a region."""
        return self._size

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self._starts.nbytes + self._numbers.nbytes

    # -- changes ------------------------------------------------------------------------------------------------------

    def put(self, slot: int, encoded: Sequence[float] | np.ndarray) -> None:
        """Give a slot a region (see :func:`dskype.spouts.regions.parse_region`), in place of the one that it may have."""
        self.put_many(np.array([slot]), np.array([0, len(encoded)]), np.asarray(encoded))

    def put_many(self, slots: np.ndarray, offsets: np.ndarray, encoded: np.ndarray) -> None:
        """Give slots regions.

        :param slots: int[n], each once.
        :param offsets: int[n + 1]; region *i* is ``encoded[offsets[i]:offsets[i + 1]]``. An empty one is none: the slot then has no region.
        :param encoded: float64[].
        :raises IllegalArgumentException: a slot is negative, or there is no more room.
        """
        slots, offsets, encoded = np.asarray(slots, np.int64), np.asarray(offsets, np.int64), np.asarray(encoded, np.float64)
        if not len(slots):
            return
        if slots.min() < 0:
            raise IllegalArgumentException("A slot must not be negative.", given=int(slots.min()))
        self.remove_many(slots)
        lines = kernels.lines_needed(offsets, encoded)
        more = int(lines.sum())
        if not more:
            return
        self._widen(int(slots.max()) + 1)
        self._make_room(more)
        kernels.put(self._starts, self._numbers, slots, (offsets, encoded, lines), self._used)
        self._used += more
        self._size += int(np.count_nonzero(lines))

    def remove(self, slot: int) -> None:
        """Take the region of a slot away, if it has one."""
        self.remove_many(np.array([slot]))

    def remove_many(self, slots: np.ndarray) -> None:
        """Take the regions of slots away, of those that have one."""
        slots = np.asarray(slots, np.int64)
        slots = slots[self.has(slots)]
        self._left += kernels.lines_of(self._numbers, self._starts[slots])
        self._starts[slots] = -1
        self._size -= len(slots)

    def _widen(self, n: int) -> None:
        have = len(self._starts)
        if n > have:
            starts = np.full(max(n, have + have // 2 + 16), -1, np.int32)
            starts[:have] = self._starts
            self._starts = starts

    def _make_room(self, more: int) -> None:
        """Ensure that ``more`` lines are free at the end, and zeros."""
        size = len(self._numbers) // _LINE
        if self._used + more <= size:
            return
        need = self._used - self._left + more
        if need > _LINES_MAX:
            raise IllegalArgumentException("A table of regions can hold no more.", given=f"{self._size} regions", hint="use more tasks")
        new = _lines(min(_LINES_MAX, max(need, size if 4 * self._left > size else size + size // 2 + 16)))
        if self._left:
            self._used, self._left = kernels.move_together(self._starts, self._numbers, new), 0
        else:
            new[: self._used * _LINE] = self._numbers[: self._used * _LINE]
        self._numbers = new

    # -- tests --------------------------------------------------------------------------------------------------------

    def has(self, slots: np.ndarray) -> np.ndarray:
        """Tell which slots (int[n]) have a region, as bool[n]."""
        slots = np.asarray(slots, np.int64)
        found = np.zeros(len(slots), np.bool_)
        there = (slots >= 0) & (slots < len(self._starts))
        found[there] = self._starts[slots[there]] >= 0
        return found

    def touches(
        self,
        slots: np.ndarray,
        rows: np.ndarray,
        lat: np.ndarray,
        lon: np.ndarray,
        *,
        areas: np.ndarray | None = None,
        shape_offsets: np.ndarray | None = None,
        shapes: np.ndarray | None = None,
        boxes: np.ndarray | None = None,
    ) -> np.ndarray:
        """Tell for pairs of a subscription and a message whether they share a place.

        A message is at its encoded region ``shapes[shape_offsets[row]:shape_offsets[row + 1]]`` if there is one and it is not empty; else, with ``areas``, at its rectangle; else
        at its point. Pairs are fastest in the order of the slots, or of the messages if slots are the same ones again and again.

        :param slots, rows: int64[m], the pairs. A slot without a region touches every message, unless ``boxes`` say where it is.
        :param lat, lon: float64[n], degrees, of the messages.
        :param areas: float64[n, 4], as in :class:`dskype.spouts.batch.MessageBatch`; None: all are points, or have regions.
        :param shape_offsets, shapes: int64[n + 1], float64[]; None: no message has a region.
        :param boxes: float64[m, 4], the rectangle of each pair's subscription: it counts if the slot has no region.
        :returns: bool[m].
        """
        slots, rows, lat, lon = np.asarray(slots, np.int64), np.asarray(rows, np.int64), _readable(lat), _readable(lon)
        table = (self._starts, self._numbers)
        if areas is None and boxes is None and (shapes is None or not len(shapes)):
            return hold_points(table, slots, rows, lat, lon)[0]
        starts, numbers = _NO_STARTS, self._numbers[:0]
        if shape_offsets is not None and shapes is not None and len(shapes):
            starts, numbers = kernels.prepare_all(np.asarray(shape_offsets, np.int64), np.asarray(shapes, np.float64))
        places = (lat, lon, _NO_PLACES if areas is None else _readable(areas), starts, numbers)
        return touches(table, slots, rows, places, _NO_PLACES if boxes is None else _readable(boxes))

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the regions: ``slots`` int64[n], rising, ``offsets`` int64[n + 1] and ``regions`` float64[], as :meth:`put_many` takes them."""
        slots = np.flatnonzero(self._starts >= 0)
        offsets, regions = kernels.encode_all(self._numbers, self._starts[slots])
        return {"slots": slots, "offsets": offsets, "regions": regions}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`snapshot` returned, in place of what is there; its arrays may be read-only."""
        self._clear()
        self.put_many(state["slots"], state["offsets"], state["regions"])

    # -- checks -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Verify that regions lie side by side in the array, that gaps are counted, and that what follows is empty."""
        slots = np.flatnonzero(self._starts >= 0)
        assert len(slots) == self._size
        lines = np.array([kernels.lines_of(self._numbers, self._starts[[slot]]) for slot in slots], np.int64)
        order = np.argsort(self._starts[slots])
        starts, lines = self._starts[slots][order].astype(np.int64), lines[order]
        assert (starts[1:] >= (starts + lines)[:-1]).all(), "regions overlap"
        assert int(lines.sum()) + self._left == self._used <= len(self._numbers) // _LINE
        assert not len(slots) or starts[-1] + lines[-1] <= self._used
        assert not self._numbers[self._used * _LINE :].any()


def _lines(n: int) -> np.ndarray:
    """Return zeros for ``n`` lines, each of which is a cache line."""
    raw = np.zeros(n * _LINE + _LINE, np.float64)
    first = -raw.ctypes.data % 64 // 8
    return raw[first : first + n * _LINE]


def _readable(array: np.ndarray) -> np.ndarray:
    """Return an array as kernels take it, in one form."""
    return np.ascontiguousarray(array, np.float64)
