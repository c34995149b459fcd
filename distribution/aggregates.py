"""The workload of a partition of the fine grid: costs and subscriptions by column and row (Tornado, section 4.3).

An evaluator keeps one :class:`Workload` for its partition. Recording a message or a subscription takes O(1). Every operation of load
balancing moves a *strip*: all cells of a partition on one side of a line. So the aggregates of columns and rows say what an operation moves
and where to cut best, in O(columns + rows).

Costs age: those recorded before the last *n* calls of :meth:`Workload.age` count ``factor ** n``. No array is touched for that; newer costs are
recorded in a greater unit instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.distribution import aggregates_kernels as kernels

__all__ = ["SIDES", "CellBox", "CellCosts", "Cut", "Strip", "StripLoad", "Workload"]

SIDES = ("west", "south", "east", "north")
"""The sides of a partition. A strip lies along one of them."""

_UNIT_MAX = 1e60


class CellBox(NamedTuple):
    """A rectangle of cells of the fine grid; all four ends are inside."""

    xmin: int
    ymin: int
    xmax: int
    ymax: int

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.xmax - self.xmin + 1

    @property
    def height(self) -> int:
        """The number of rows."""
        return self.ymax - self.ymin + 1

    def strip(self, side: int, size: int) -> CellBox:
        """Return the ``size`` columns or rows along a side (an index of :data:`SIDES`)."""
        xmin, ymin, xmax, ymax = self
        if side == 0:
            return CellBox(xmin, ymin, xmin + size - 1, ymax)
        if side == 1:
            return CellBox(xmin, ymin, xmax, ymin + size - 1)
        return CellBox(xmax - size + 1, ymin, xmax, ymax) if side == 2 else CellBox(xmin, ymax - size + 1, xmax, ymax)

    def without(self, side: int, size: int) -> CellBox:
        """Return what is left without the ``size`` columns or rows along a side."""
        return self.strip((side + 2) % 4, (self.height if side % 2 else self.width) - size)

    def joined(self, other: CellBox) -> CellBox | None:
        """Return both as one box, or None if they do not share a whole side."""
        xmin, ymin, xmax, ymax = min(self[0], other[0]), min(self[1], other[1]), max(self[2], other[2]), max(self[3], other[3])
        both = CellBox(xmin, ymin, xmax, ymax)
        return both if both.width * both.height == self.width * self.height + other.width * other.height else None


class Strip(NamedTuple):
    """The columns or rows along one side of a partition.

    :ivar side: an index of :data:`SIDES`.
    :ivar size: the number of columns or rows, from 1 to one less than the partition has.
    """

    side: int
    size: int


class StripLoad(NamedTuple):
    """A strip and what it weighs.

    :ivar cost: of its cells.
    :ivar queries: number of subscriptions that overlap it, which have to be sent to its new evaluator.
    """

    strip: Strip
    cost: float
    queries: int


class Cut(NamedTuple):
    """The best cut of a partition into two.

    :ivar moving: the half that costs less to send, as a strip.
    :ivar staying: cost of the other half.
    """

    moving: StripLoad
    staying: float


class CellCosts(NamedTuple):
    """Costs of single cells, as one evaluator hands them to another; only cells with costs are in it.

    :ivar x, y: int32[n], cells of the fine grid.
    :ivar cost: float64[n].
    """

    x: np.ndarray
    y: np.ndarray
    cost: np.ndarray


class Workload:
    """Costs and numbers of subscriptions of one partition; see the module. O(1) per message and per subscription.

    :param box: the partition.
    """

    def __init__(self, box: CellBox) -> None:
        self.box = box
        self._unit = 1.0
        self._total = 0.0
        self._costs = kernels.Costs(np.zeros((box.width, box.height)), np.zeros(box.width), np.zeros(box.height))
        self._extents = kernels.Extents(*(np.zeros(n, np.int64) for n in (box.width, box.width, box.height, box.height)))
        self.queries = 0
        """The number of subscriptions that overlap the partition."""

    @property
    def cost(self) -> float:
        """The cost of the partition (Equation 2), aged."""
        return self._total / self._unit

    def columns(self) -> np.ndarray:
        """Return the cost of each column, float64[width]."""
        return self._costs.columns / self._unit

    def rows(self) -> np.ndarray:
        """Return the cost of each row, float64[height]."""
        return self._costs.rows / self._unit

    # -- recording --------------------------------------------------------------------------------

    def record(self, x: np.ndarray, y: np.ndarray, cost: np.ndarray) -> None:
        """Add the costs of messages (Equation 1) to their cells; O(1) each.

        :param x: int[n], columns of the fine grid, all inside the partition; ``y``: int[n], rows.
        :param cost: float64[n].
        """
        self._total += kernels.record_costs(self._costs, x - self.box.xmin, y - self.box.ymin, np.asarray(cost, np.float64), self._unit)

    def age(self, factor: float) -> None:
        """Multiply all costs by a factor, above 0 and up to 1; O(1)."""
        self._unit /= factor
        if self._unit > _UNIT_MAX:
            for array in self._costs:
                array /= self._unit
            self._total, self._unit = self._total / self._unit, 1.0

    def add_queries(self, boxes: np.ndarray) -> None:
        """Count subscriptions in; O(1) each. Cells outside the partition do not count.

        :param boxes: int64[n, 4], (xmin, ymin, xmax, ymax) of the cells that each one overlaps; each overlaps the partition.
        """
        self._count(boxes, 1)

    def remove_queries(self, boxes: np.ndarray) -> None:
        """Count subscriptions out; O(1) each. ``boxes`` as in :meth:`add_queries`."""
        self._count(boxes, -1)

    def _count(self, boxes: np.ndarray, sign: int) -> None:
        xmin, ymin, xmax, ymax = self.box
        inside = np.clip(boxes, (xmin, ymin, xmin, ymin), (xmax, ymax, xmax, ymax)) - np.array((xmin, ymin, xmin, ymin))
        kernels.count_extents(self._extents, inside, sign)
        self.queries += sign * len(boxes)

    # -- strips -----------------------------------------------------------------------------------

    def load_of(self, strip: Strip) -> StripLoad:
        """Return cost and subscriptions of a strip; O(columns + rows)."""
        side, size = strip
        line = self._costs.rows if side % 2 else self._costs.columns
        cost = line[:size].sum() if side < 2 else line[len(line) - size :].sum()
        first, last = self._extents[2 * (side % 2)], self._extents[2 * (side % 2) + 1]
        queries = first[:size].sum() if side < 2 else last[len(last) - size :].sum()
        return StripLoad(strip, float(cost) / self._unit, int(queries))

    def best_cut(self) -> Cut | None:
        """Return the cut after which the costs of both halves differ least; O(columns + rows) (section 4.3).

        Of two equal cuts the one along which fewer subscriptions have to move is returned. None: the partition is a single cell or has no costs.
        """
        best: tuple[float, int, Cut] | None = None
        for axis, line in enumerate((self._costs.columns, self._costs.rows)):
            if len(line) < 2 or not self._total > 0:
                continue
            at, below = kernels.best_cut(line, self._total)
            halves = self.load_of(Strip(axis, at)), self.load_of(Strip(axis + 2, len(line) - at))
            moving, staying = sorted(halves, key=lambda half: half.queries)
            found = abs(self._total - 2 * below), moving.queries, Cut(moving, staying.cost)
            if best is None or found[:2] < best[:2]:
                best = found
        return best and best[2]

    def strip_of_cost(self, side: int, cost: float) -> StripLoad | None:
        """Return the strip along a side whose cost comes nearest to ``cost``; None if the partition is one cell wide there."""
        line = self._costs.rows if side % 2 else self._costs.columns
        if len(line) < 2:
            return None
        size, _ = kernels.cut_of_amount(line, cost * self._unit, side >= 2)
        return self.load_of(Strip(side, int(size)))

    # -- operations -------------------------------------------------------------------------------

    def costs_in(self, box: CellBox) -> CellCosts:
        """Return the costs of the cells inside a box, which lies inside the partition."""
        x, y = box.xmin - self.box.xmin, box.ymin - self.box.ymin
        part = self._costs.cells[x : x + box.width, y : y + box.height]
        found = np.nonzero(part)
        return CellCosts(
            (found[0] + box.xmin).astype(np.int32), (found[1] + box.ymin).astype(np.int32), np.asarray(part[found] / self._unit, np.float64)
        )

    def resized(self, box: CellBox, boxes: np.ndarray, handed_over: CellCosts | None = None) -> Workload:
        """Return the workload of another partition that takes the place of this one; O(its cells and subscriptions).

        :param box: the new partition. Costs of cells that both have are kept.
        :param boxes: int64[n, 4], the cells of the subscriptions that the evaluator then has.
        :param handed_over: costs of cells that other evaluators gave up.
        """
        new = Workload(box)
        xmin, ymin, xmax, ymax = (pick(*ends) for pick, ends in zip((max, max, min, min), zip(box, self.box)))
        if xmin <= xmax and ymin <= ymax:
            new.record(*self.costs_in(CellBox(xmin, ymin, xmax, ymax)))
        if handed_over is not None:
            new.record(*handed_over)
        new.add_queries(boxes)
        return new

    def _check(self) -> None:
        """Verify that the aggregates are the sums of the cells, and that each subscription begins and ends once."""
        costs, extents = self._costs, self._extents
        assert np.allclose(costs.columns, costs.cells.sum(1)) and np.allclose(costs.rows, costs.cells.sum(0))
        assert np.isclose(self._total, costs.cells.sum())
        assert all(counts.sum() == self.queries and (counts >= 0).all() for counts in extents)
