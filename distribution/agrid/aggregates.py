"""The workload of a partition of the fine grid: costs and subscriptions by column and row (Tornado, section 4.3).

An evaluator keeps one :class:`Workload` for its partition. Recording a message or a subscription takes O(1). Every operation of load
balancing moves a *strip*: all cells of a partition on one side of a line. So the aggregates of columns and rows say what an operation moves
and where to cut best, in O(columns + rows).

Costs age: those recorded before the last *n* calls of :meth:`Workload.age` count ``factor ** n``. No array is touched for that; newer costs are
recorded in a greater unit instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.distribution.agrid import aggregates_kernels as kernels
from dskype.distribution.agrid.grid import CellBox
from dskype.distribution.agrid.learning import CellCosts, best_cut

__all__ = ["SIDES", "Split", "Strip", "StripLoad", "Workload"]

SIDES = ("west", "south", "east", "north")
"""The sides of a partition. A strip lies along one of them."""

_UNIT_MAX = 1e60


class Strip(NamedTuple):
    """The columns or rows along one side of a partition.

    :ivar side: an index of :data:`SIDES`.
    :ivar size: the number of columns or rows, from 1 to one less than the partition has.
    """

    side: int
    size: int

    def cells(self, box: CellBox) -> CellBox:
        """Return the cells of the strip of a partition."""
        if self.side == 0:
            return box._replace(x1=box.x0 + self.size)
        if self.side == 1:
            return box._replace(y1=box.y0 + self.size)
        return box._replace(x0=box.x1 - self.size) if self.side == 2 else box._replace(y0=box.y1 - self.size)


class StripLoad(NamedTuple):
    """A strip and what it weighs.

    :ivar cost: of its cells.
    :ivar queries: number of subscriptions that overlap it, which have to be sent to its new evaluator.
    """

    strip: Strip
    cost: float
    queries: int


class Split(NamedTuple):
    """The best cut of a partition into two.

    :ivar moving: the half that costs less to send, as a strip.
    :ivar staying: cost of the other half.
    """

    moving: StripLoad
    staying: float


class Workload:
    """Costs and numbers of subscriptions of one partition; see the module. O(1) per message and per subscription.

    :param box: the partition.
    """

    def __init__(self, box: CellBox) -> None:
        self.box = box
        self._unit = 1.0
        self._total = 0.0
        width, height = box.x1 - box.x0, box.y1 - box.y0
        self._costs = kernels.Costs(np.zeros((width, height)), np.zeros(width), np.zeros(height))
        self._extents = kernels.Extents(*(np.zeros(n, np.int64) for n in (width, width, height, height)))
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
        self._total += kernels.record_costs(self._costs, x - self.box.x0, y - self.box.y0, np.asarray(cost, np.float64), self._unit)

    def age(self, factor: float) -> None:
        """Multiply all costs by a factor, above 0 and up to 1; O(1)."""
        self._unit /= factor
        if self._unit > _UNIT_MAX:
            for array in self._costs:
                array /= self._unit
            self._total, self._unit = self._total / self._unit, 1.0

    def add_queries(self, boxes: np.ndarray) -> None:
        """Count subscriptions in; O(1) each. Cells outside the partition do not count.

        :param boxes: int64[n, 4], the cells (x0, y0, x1, y1) that each one overlaps; each overlaps the partition.
        """
        self._count(boxes, 1)

    def remove_queries(self, boxes: np.ndarray) -> None:
        """Count subscriptions out; O(1) each. ``boxes`` as in :meth:`add_queries`."""
        self._count(boxes, -1)

    def _count(self, boxes: np.ndarray, sign: int) -> None:
        x0, y0, x1, y1 = self.box
        inside = np.clip(np.asarray(boxes, np.int64).reshape(-1, 4), (x0, y0, x0, y0), (x1, y1, x1, y1)) - np.array((x0, y0, x0, y0))
        kernels.count_extents(self._extents, inside, sign)
        self.queries += sign * len(boxes)

    # -- strips -----------------------------------------------------------------------------------

    def span(self, axis: int, start: int, stop: int) -> tuple[float, int]:
        """Return the cost of the columns (``axis`` 0) or rows (1) from ``start`` up to ``stop`` - 1, and how many subscriptions overlap them.

        O(columns + rows). Both ends are counted from the west or the south of the partition.
        """
        line = self._costs.rows if axis else self._costs.columns
        first, last = self._extents[2 * axis], self._extents[2 * axis + 1]
        return float(line[start:stop].sum()) / self._unit, int(first[:stop].sum() - last[:start].sum())

    def load_of(self, strip: Strip) -> StripLoad:
        """Return cost and subscriptions of a strip; O(columns + rows)."""
        side, size = strip
        n = len(self._costs.rows if side % 2 else self._costs.columns)
        return StripLoad(strip, *self.span(side % 2, *((0, size) if side < 2 else (n - size, n))))

    def best_split(self) -> Split | None:
        """Return the cut after which the costs of both halves differ least; O(columns + rows) (section 4.3).

        The half with fewer subscriptions moves. None: the partition is a single cell or has no costs.
        """
        cut = best_cut(self._costs.columns, self._costs.rows) if self._total > 0 else None
        if cut is None:
            return None
        axis = 0 if cut.axis == "lon" else 1
        length = len(self._costs.rows if axis else self._costs.columns)
        halves = self.load_of(Strip(axis, cut.at)), self.load_of(Strip(axis + 2, length - cut.at))
        moving, staying = sorted(halves, key=lambda half: half.queries)
        return Split(moving, staying.cost)

    def strip_of_cost(self, side: int, cost: float) -> StripLoad | None:
        """Return the strip along a side whose cost comes nearest to ``cost``; None if the partition is one cell wide there."""
        line = self._costs.rows if side % 2 else self._costs.columns
        if len(line) < 2:
            return None
        sums = np.cumsum((line if side < 2 else line[::-1])[:-1])
        return self.load_of(Strip(side, 1 + int(np.abs(sums - cost * self._unit).argmin())))

    # -- operations -------------------------------------------------------------------------------

    def costs_in(self, box: CellBox) -> CellCosts:
        """Return the costs of the cells inside a box, which lies inside the partition."""
        x0, y0 = self.box.x0, self.box.y0
        part = self._costs.cells[box.x0 - x0 : box.x1 - x0, box.y0 - y0 : box.y1 - y0]
        x, y = np.nonzero(part)
        return CellCosts(box, x + box.x0, y + box.y0, np.asarray(part[x, y] / self._unit, np.float64))

    def resized(self, box: CellBox, boxes: np.ndarray, handed_over: CellCosts | None = None) -> Workload:
        """Return the workload of another partition that takes the place of this one; O(its cells and subscriptions).

        :param box: the new partition. Costs of cells that both have are kept.
        :param boxes: int64[n, 4], the cells of the subscriptions that the evaluator then has.
        :param handed_over: costs of cells that other evaluators gave up.
        """
        new = Workload(box)
        kept = box.intersection(self.box)
        if kept.cells:
            new.record(*self.costs_in(kept)[1:])
        if handed_over is not None:
            new.record(*handed_over[1:])
        new.add_queries(boxes)
        return new

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """Return the state as arrays and plain values; of the cells only those with costs."""
        x, y = np.nonzero(self._costs.cells)
        cells = [x.astype(np.int32), y.astype(np.int32), self._costs.cells[x, y]]
        return [list(self.box), self._unit, self._total, cells, self._costs.columns, self._costs.rows, list(self._extents), self.queries]

    @classmethod
    def restored(cls, state: Sequence[Any]) -> Workload:
        """Return the workload of a snapshot, equal to the last bit."""
        box, unit, total, (x, y, costs), columns, rows, extents, queries = state
        found = cls(CellBox(*box))
        found._unit, found._total, found.queries = unit, total, queries
        found._costs.cells[x, y] = costs
        found._costs = found._costs._replace(columns=np.array(columns), rows=np.array(rows))
        found._extents = kernels.Extents(*map(np.array, extents))
        return found

    def _check(self) -> None:
        """Verify that the aggregates are the sums of the cells, and that each subscription begins and ends once."""
        costs, extents = self._costs, self._extents
        assert np.allclose(costs.columns, costs.cells.sum(1)) and np.allclose(costs.rows, costs.cells.sum(0))
        assert np.isclose(self._total, costs.cells.sum())
        assert all(counts.sum() == self.queries and (counts >= 0).all() for counts in extents)
