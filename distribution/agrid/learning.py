"""Initial partitions of an A-Grid: k-d splits by a priority queue, so that the greatest cost is as small as possible (Tornado, section 4.1)."""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np

from dskype.distribution.agrid import _kernels as kernels
from dskype.distribution.agrid.grid import WORLD, AGrid, CellBox
from dskype.distribution.base import Sample

__all__ = ["CellCosts", "Cut", "best_cut", "box_of_messages", "cell_costs", "equal_partitions", "halved_partitions", "initial_partitions", "message_costs"]

_OUTSIDE = 0.001
"""Share of the messages that may lie outside of a box on each side, so that a single wrong place does not stretch the grid over the world."""

_STEPS = 16
"""A box has at least this many steps along a side; its borders lie on whole steps, so that samples of one stream lead to one grid."""

_LEAST_DEG = 1 / 64
"""The least extent that is divided into steps."""


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

    def share(self, n: int) -> tuple[Cut, int]:
        """Return the line, and how many of ``n`` partitions lie before it, for which the greater cost of a partition is least if each side divides its cost evenly.

        :param n: from 2 to the number of cells. Each side gets at most as many partitions as it has cells.
        """
        x0, y0, x1, y1 = self.box
        found, total = [], self.total or 1.0
        for axis, at, length, across in (("lon", self.x - x0, x1 - x0, y1 - y0), ("lat", self.y - y0, y1 - y0, x1 - x0)):
            if length > 1:
                below = np.cumsum(np.bincount(at, self.cost, length))[:-1]
                room = across * np.arange(1, length)
                parts = np.clip(np.rint(n * below / total), np.maximum(1, n - (self.box.cells - room)), np.minimum(n - 1, room)).astype(np.int64)
                greatest = np.maximum(below / parts, (self.total - below) / (n - parts))
                best = np.flatnonzero(greatest == greatest.min())
                line = int(best[len(best) // 2])
                found.append((float(greatest[line]), -length, axis, line + 1, int(parts[line])))
        greatest_cost, _, axis, line, before = min(found)
        return Cut(axis, line, greatest_cost), before

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
    """Cut a rectangle into ``n`` partitions; the better of two ways, by the cost of the costliest partition. O(n * (cells with cost + columns + rows)).

    The paper's way halves the costliest partition until there are enough. If ``n`` is no power of two, or lines are coarse, some halves stay twice as large as others. The other way
    divides the number of partitions along with the cost, so that a third of the cost gets a third of them; where few cells have most of the cost it leaves more partitions empty.

    :param n: at most as many as there are cells.
    """
    ways = halved_partitions(costs, n), sorted(_divided(costs, n), key=lambda part: part.box)
    return min(ways, key=lambda parts: max(part.total for part in parts))


def halved_partitions(costs: CellCosts, n: int) -> list[CellCosts]:
    """Cut a rectangle into ``n`` partitions as the paper does: the costliest one is cut where the costlier side costs least, until there are enough.

    A partition that no line relieves, because its cost is that of a single cell, is only cut, in the middle, when all are like that. (The paper ends at a single
    cell; the empty partitions on the way there would leave tasks without work.)
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


def _divided(costs: CellCosts, n: int) -> list[CellCosts]:
    """Cut a rectangle in two, with a number of partitions for each side, where the greater cost per partition is least; and so on with both sides."""
    if n == 1:
        return [costs]
    cut, before = costs.share(n)
    one, other = costs.parted(cut)
    return _divided(one, before) + _divided(other, n - before)


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


def box_of_messages(lat: np.ndarray, lon: np.ndarray) -> list[float]:
    """Return [west, south, east, north] in degrees: a box around nearly all messages, for a grid whose cells lie where messages are. O(n log n).

    Up to a thousandth of the messages may lie outside on each side. Borders lie on multiples of a power of two, at most a sixteenth of the extent, outside of the others.

    :param lat: float64[n], degrees, n > 0; ``lon``: float64[n].
    """
    west, east = _steps_around(lon, *WORLD[::2])
    south, north = _steps_around(lat, *WORLD[1::2])
    return [west, south, east, north]


def _steps_around(places: np.ndarray, least: float, most: float) -> tuple[float, float]:
    """Return the borders of a box along one axis, both between ``least`` and ``most``."""
    low, high = np.quantile(places, (_OUTSIDE, 1 - _OUTSIDE)).tolist()
    step = 2.0 ** math.floor(math.log2(max(high - low, _LEAST_DEG) / _STEPS))
    return max(least, min(math.floor(low / step) * step, most - step)), min(most, (math.floor(high / step) + 1) * step)


def cell_costs(grid: AGrid, sample: Sample, costs: np.ndarray | None = None) -> CellCosts:
    """Return what the messages of a sample cost in the cells of a grid.

    :param costs: float64[messages]; default: :func:`message_costs`.
    """
    return CellCosts(grid.all_cells, *grid.cells_of(sample.messages.lat, sample.messages.lon), message_costs(sample) if costs is None else costs)
