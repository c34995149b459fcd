"""Kernels of the routers that the A-Grid is measured against. Imports numpy and numba only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.distribution.agrid._kernels import cell
from dskype.distribution.routing.route_kernels import with_room
from dskype.topology.kernel_cache import njit

__all__ = ["CellFrame", "TreeArrays", "fill", "grid_areas", "grid_points", "tree_areas", "tree_points"]


class CellFrame(NamedTuple):
    """Where the cells of a grid are; as in :class:`~dskype.distribution.agrid._kernels.GridArrays`."""

    west: float
    south: float
    per_lon: float
    per_lat: float
    columns: int
    rows: int


class TreeArrays(NamedTuple):
    """An R-tree over partitions; node 0 is the root.

    :ivar bounds: int32[nodes, 4]: first column, first row, end of the columns, end of the rows.
    :ivar begin: int32[nodes], the first child; of a leaf ``~partition``.
    :ivar end: int32[nodes], the last child + 1.
    """

    bounds: np.ndarray
    begin: np.ndarray
    end: np.ndarray


@njit(cache=True)
def fill(cells, bounds):
    """Write the number of each partition (int32[partitions, 4]) into its cells (int32[rows, columns])."""
    for p in range(len(bounds)):
        cells[bounds[p, 1] : bounds[p, 3], bounds[p, 0] : bounds[p, 2]] = p


@njit(cache=True)
def grid_points(lat, lon, frame, cells):
    """Return the partition of each place, int32[n].

    :param cells: int32[rows, columns], the partition of each cell.
    """
    found = np.empty(len(lat), np.int32)
    for i in range(len(lat)):
        found[i] = cells[cell(lat[i], frame.south, frame.per_lat, frame.rows), cell(lon[i], frame.west, frame.per_lon, frame.columns)]
    return found


@njit(cache=True)
def _columns(area, part, frame):
    """Return the first and the last column of a part of an area: an area across the antimeridian has two. An absent part has first > last."""
    x0, x1 = cell(area[0], frame.west, frame.per_lon, frame.columns), cell(area[2], frame.west, frame.per_lon, frame.columns)
    if area[0] <= area[2]:
        return (x0, x1) if part == 0 else (1, 0)
    return (x0, frame.columns - 1) if part == 0 else (0, x1)


@njit(cache=True)
def grid_areas(areas, frame, cells, partitions):
    """Return (rows int64[m], partitions int32[m]): the partitions of each area, by looking at all its cells.

    :param areas: float64[n, 4], west, south, east, north.
    :param cells: int32[rows, columns], the partition of each cell.
    :param partitions: how many there are.
    """
    last = np.full(partitions, -1, np.int64)
    rows, to = np.empty(2 * len(areas) + partitions, np.int64), np.empty(2 * len(areas) + partitions, np.int32)
    total = 0
    for i in range(len(areas)):
        rows, to = with_room(rows, to, total, partitions)
        y0, y1 = cell(areas[i, 1], frame.south, frame.per_lat, frame.rows), cell(areas[i, 3], frame.south, frame.per_lat, frame.rows)
        for part in range(2):
            x0, x1 = _columns(areas[i], part, frame)
            for y in range(y0, y1 + 1):
                for x in range(x0, x1 + 1):
                    p = cells[y, x]
                    if last[p] != i:
                        last[p] = i
                        rows[total], to[total] = i, p
                        total += 1
    return rows[:total], to[:total]


@njit(cache=True)
def tree_points(lat, lon, frame, tree):
    """Return the partition of each place, int32[n].

    :param tree: :class:`TreeArrays`.
    """
    bounds, begin, end = tree.bounds, tree.begin, tree.end
    found, stack = np.empty(len(lat), np.int32), np.empty(len(begin), np.int64)
    for i in range(len(lat)):
        x, y = cell(lon[i], frame.west, frame.per_lon, frame.columns), cell(lat[i], frame.south, frame.per_lat, frame.rows)
        stack[0], depth = 0, 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            if begin[node] < 0:
                found[i] = ~begin[node]
                break
            for child in range(begin[node], end[node]):
                if bounds[child, 0] <= x < bounds[child, 2] and bounds[child, 1] <= y < bounds[child, 3]:
                    stack[depth] = child
                    depth += 1
    return found


@njit(cache=True)
def tree_areas(areas, frame, tree, partitions):
    """Return (rows int64[m], partitions int32[m]): the partitions of each area.

    :param areas: float64[n, 4], west, south, east, north.
    :param tree: :class:`TreeArrays`.
    :param partitions: how many there are.
    """
    bounds, begin, end = tree.bounds, tree.begin, tree.end
    last, stack = np.full(partitions, -1, np.int64), np.empty(len(begin), np.int64)
    rows, to = np.empty(2 * len(areas) + partitions, np.int64), np.empty(2 * len(areas) + partitions, np.int32)
    total = 0
    for i in range(len(areas)):
        rows, to = with_room(rows, to, total, partitions)
        y0, y1 = cell(areas[i, 1], frame.south, frame.per_lat, frame.rows), cell(areas[i, 3], frame.south, frame.per_lat, frame.rows)
        for part in range(2):
            x0, x1 = _columns(areas[i], part, frame)
            stack[0], depth = 0, 1 if x0 <= x1 else 0
            while depth > 0:
                depth -= 1
                node = stack[depth]
                if begin[node] < 0:
                    p = ~begin[node]
                    if last[p] != i:
                        last[p] = i
                        rows[total], to[total] = i, p
                        total += 1
                    continue
                for child in range(begin[node], end[node]):
                    if bounds[child, 0] <= x1 and x0 < bounds[child, 2] and bounds[child, 1] <= y1 and y0 < bounds[child, 3]:
                        stack[depth] = child
                        depth += 1
    return rows[:total], to[:total]
