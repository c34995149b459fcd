"""Initial partitions of an A-Grid: k-d splits by a priority queue, so that the greatest cost is as small as possible (Tornado, section 4.1)."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from dskype.distribution import agrid_kernels as kernels
from dskype.distribution.agrid import AGrid, CellBox
from dskype.distribution.base import Sample

__all__ = ["CellCosts", "Cut", "best_cut", "cell_costs", "equal_partitions", "initial_partitions", "message_costs"]


class Cut(NamedTuple):
    """A line that cuts a rectangle of cells in two.

    :ivar axis: ``lon``: before a column; ``lat``: before a row.
    :ivar at: the column or row, counted from the first one of the rectangle, >= 1.
    :ivar greatest: the cost of the costlier side.
    """

    axis: str
    at: int
    greatest: float


def best_cut(columns: np.ndarray, rows: np.ndarray) -> Cut | None:
    """Return the line whose costlier side costs least, or None for a single cell. O(columns + rows).

    As long as both sides add up to the same, it also has the least difference between them (section 4.3). Of equal lines along an axis, for instance in an ocean, it is the middle
    one; of equal axes that with more cells.

    :param columns: float64[m], the cost of each column; ``rows``: float64[n], of each row.
    """
    found = []
    for axis, costs in (("lon", columns), ("lat", rows)):
        if len(costs) > 1:
            before = np.cumsum(costs)
            greater = np.maximum(before[:-1], before[-1] - before[:-1])
            best = np.flatnonzero(greater == greater.min())
            found.append((float(greater[best[0]]), -len(costs), axis, int(best[len(best) // 2]) + 1))
    if not found:
        return None
    greatest, _, axis, at = min(found)
    return Cut(axis, at, greatest)


class CellCosts(NamedTuple):
    """The costs of the cells in a rectangle; cells without cost are left out.

    :ivar box: the rectangle.
    :ivar x: int64[n], columns; ``y``: int64[n], rows.
    :ivar cost: float64[n], >= 0. A cell may occur several times.
    """

    box: CellBox
    x: np.ndarray
    y: np.ndarray
    cost: np.ndarray

    @property
    def total(self) -> float:
        """The cost of the rectangle (equation 2)."""
        return float(self.cost.sum())

    def inside(self, box: CellBox) -> CellCosts:
        """Return the costs inside another rectangle."""
        found = (self.x >= box.x0) & (self.x < box.x1) & (self.y >= box.y0) & (self.y < box.y1)
        return CellCosts(box, self.x[found], self.y[found], self.cost[found])

    def cut(self) -> Cut | None:
        """Return the best line; None if there is none that both sides gain by."""
        x0, y0, x1, y1 = self.box
        found = best_cut(np.bincount(self.x - x0, self.cost, x1 - x0), np.bincount(self.y - y0, self.cost, y1 - y0))
        return found if found is not None and found.greatest < self.total else None

    def middle(self) -> Cut:
        """Return the line through the middle of the longer side, which has more than one cell."""
        width, height = self.box.x1 - self.box.x0, self.box.y1 - self.box.y0
        return Cut("lon", width // 2, self.total) if width >= height else Cut("lat", height // 2, self.total)

    def parted(self, cut: Cut) -> tuple[CellCosts, CellCosts]:
        """Return both sides of a line."""
        x0, y0, x1, y1 = self.box
        if cut.axis == "lon":
            at, before = x0 + cut.at, self.x < x0 + cut.at
            boxes = CellBox(x0, y0, at, y1), CellBox(at, y0, x1, y1)
        else:
            at, before = y0 + cut.at, self.y < y0 + cut.at
            boxes = CellBox(x0, y0, x1, at), CellBox(x0, at, x1, y1)
        return CellCosts(boxes[0], self.x[before], self.y[before], self.cost[before]), CellCosts(boxes[1], self.x[~before], self.y[~before], self.cost[~before])


def initial_partitions(costs: CellCosts, n: int) -> list[CellCosts]:
    """Cut a rectangle into ``n`` partitions: the costliest one is cut where the costlier side costs least, until there are enough. O(n * (cells with cost + columns + rows)).

    A partition that no line relieves, because its cost is that of a single cell, is only cut, in the middle, when all are like that. (The paper ends at a single
    cell; the empty partitions on the way there would leave tasks without work.)

    :param n: at most as many as there are cells.
    """
    queue, stuck, made = [(-costs.total, 0, costs)], list[tuple[int, int, CellCosts]](), 1
    while len(queue) + len(stuck) < n:
        if queue:
            part = heapq.heappop(queue)[2]
            cut = part.cut()
            if cut is None:
                heapq.heappush(stuck, (-part.box.cells, made, part))
                made += 1
                continue
        else:
            part = heapq.heappop(stuck)[2]
            cut = part.middle()
        for side in part.parted(cut):
            heapq.heappush(queue, (-side.total, made, side))
            made += 1
    return sorted((part for _, _, part in (*queue, *stuck)), key=lambda part: part.box)


def equal_partitions(box: CellBox, n: int) -> list[CellBox]:
    """Cut a rectangle into ``n`` partitions of about equal size: the longer side is cut in proportion to the partitions on both sides.

    :param n: at most as many as there are cells.
    """
    if n == 1:
        return [box]
    width, height = box.x1 - box.x0, box.y1 - box.y0
    long, across = max(width, height), min(width, height)
    low = (n + 1) // 2
    at = min(max(1, round(long * low / n)), long - 1)
    low = n - min(n - min(low, at * across), (long - at) * across)
    below, above = (
        (box._replace(x1=box.x0 + at), box._replace(x0=box.x0 + at)) if width >= height else (box._replace(y1=box.y0 + at), box._replace(y0=box.y0 + at))
    )
    return equal_partitions(below, low) + equal_partitions(above, n - low)


def message_costs(sample: Sample) -> np.ndarray:
    """Return the cost of each message of a sample, float64[n]: 1 + the subscriptions that it concerns (equation 1, which leaves out the 1).

    It concerns a boolean subscription if it has one of its trigger terms and lies in its rectangle, an area with its centre, and a top-k subscription as often as they have a keyword in
    common. O(messages x boolean subscriptions with a term of theirs).
    """
    messages = sample.messages
    owners = np.repeat(np.arange(sample.n), np.diff(sample.offsets))
    boxes = sample.rectangles()
    boolean = ~np.isnan(boxes[:, 0])
    terms, own = np.unique(sample.terms, return_inverse=True)
    anywhere = np.bincount(own[~boolean[owners]], minlength=len(terms)).astype(np.float64)
    inside = np.flatnonzero(boolean[owners])
    order = inside[np.argsort(own[inside], kind="stable")]
    start = np.concatenate([[0], np.cumsum(np.bincount(own[order], minlength=len(terms)))]).astype(np.int64)
    entry = np.searchsorted(terms, messages.terms)
    entry = np.where((entry < len(terms)) & (np.append(terms, 0)[entry] == messages.terms), entry, -1)
    posted = kernels.Posted(anywhere, start, owners[order], boxes)
    return kernels.match_costs(messages.offsets, entry, messages.lat, messages.lon, posted)


def cell_costs(grid: AGrid, sample: Sample, costs: np.ndarray | None = None) -> CellCosts:
    """Return what the messages of a sample cost in the cells of a grid.

    :param costs: float64[messages]; default: :func:`message_costs`.
    """
    return CellCosts(grid.all_cells, *grid.cells_of(sample.messages.lat, sample.messages.lon), message_costs(sample) if costs is None else costs)
