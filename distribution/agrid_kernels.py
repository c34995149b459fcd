"""Kernels of the A-Grid: where places and rectangles are in a division of a fine grid into rectangular partitions. Imports numpy and numba only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

__all__ = ["GridArrays", "Posted", "assign", "cell", "cells_of", "count_cells", "locate", "match_costs", "route_areas", "route_points", "search", "touching"]


class GridArrays(NamedTuple):
    """An A-Grid as arrays.

    Square tiles of ``1 << shift`` by ``1 << shift`` cells cover the grid. A tile that lies in one partition stands for all its cells, so that the arrays that a search reads
    stay in the processor's cache, however fine the grid is. Other tiles have a block with an entry for each cell.

    :ivar west: longitude of the western edge of column 0, degrees; ``south``: latitude of the southern edge of row 0.
    :ivar per_lon: columns per degree of longitude; ``per_lat``: rows per degree of latitude.
    :ivar columns: number of columns; ``rows``: number of rows.
    :ivar shift: binary logarithm of the cells in a side of a tile.
    :ivar tiles: int32[tile rows, tile columns], a partition if >= 0, else ``~block``.
    :ivar blocks: int32[blocks, side * side], the partition of each cell of a tile, row by row.
    :ivar bounds: int32[partitions, 4]: first column, first row, end of the columns, end of the rows; all 0 for a number that no partition has.
    """

    west: float
    south: float
    per_lon: float
    per_lat: float
    columns: int
    rows: int
    shift: int
    tiles: np.ndarray
    blocks: np.ndarray
    bounds: np.ndarray


class Posted(NamedTuple):
    """Subscriptions by their terms, which are numbered.

    :ivar anywhere: float64[terms], how many subscriptions without a rectangle have a term.
    :ivar start: int64[terms + 1]; those with a rectangle that have term *t* are ``rows[start[t]:start[t + 1]]``.
    :ivar rows: int64[], into ``boxes``, rising within a term.
    :ivar boxes: float64[subscriptions, 4], west, south, east, north; west > east crosses the antimeridian.
    """

    anywhere: np.ndarray
    start: np.ndarray
    rows: np.ndarray
    boxes: np.ndarray


@njit(cache=True, inline="always")
def cell(degrees, edge, per_degree, cells):
    """Return the column of a longitude, or the row of a latitude. Rising with ``degrees``: what lies outside of the grid is in its first or last cell."""
    at = (degrees - edge) * per_degree
    if not at > 0.0:
        return 0
    return int(at) if at < cells else cells - 1


@njit(cache=True, inline="always")
def _partition_of(x, y, shift, tiles, blocks):
    """Return the partition of a cell."""
    found = tiles[y >> shift, x >> shift]
    if found >= 0:
        return found
    mask = (1 << shift) - 1
    return blocks[~found, ((y & mask) << shift) + (x & mask)]


@njit(cache=True)
def cells_of(lat, lon, grid):
    """Return (column int64[n], row int64[n]) of the cells of places.

    :param lat: float64[n], degrees; ``lon``: likewise.
    :param grid: :class:`GridArrays`.
    """
    x, y = np.empty(len(lat), np.int64), np.empty(len(lat), np.int64)
    for i in range(len(lat)):
        x[i] = cell(lon[i], grid.west, grid.per_lon, grid.columns)
        y[i] = cell(lat[i], grid.south, grid.per_lat, grid.rows)
    return x, y


@njit(cache=True)
def locate(lat, lon, grid):
    """Return the partition of each place, int32[n].

    :param lat: float64[n], degrees; ``lon``: likewise.
    :param grid: :class:`GridArrays`.
    """
    west, south, per_lon, per_lat, columns, rows = grid.west, grid.south, grid.per_lon, grid.per_lat, grid.columns, grid.rows
    shift, tiles, blocks = grid.shift, grid.tiles, grid.blocks
    found = np.empty(len(lat), np.int32)
    for i in range(len(lat)):
        found[i] = _partition_of(cell(lon[i], west, per_lon, columns), cell(lat[i], south, per_lat, rows), shift, tiles, blocks)
    return found


@njit(cache=True)
def route_points(offsets, lat, lon, grid, task_of):
    """Return (rows int64[m], tasks int32[m]): the messages that have keywords, each with the task of its place.

    :param offsets: int64[n + 1]; message *i* has keywords if ``offsets[i] < offsets[i + 1]``.
    :param lat: float64[n], degrees; ``lon``: likewise.
    :param grid: :class:`GridArrays`.
    :param task_of: int32[partitions].
    """
    west, south, per_lon, per_lat, columns, rows = grid.west, grid.south, grid.per_lon, grid.per_lat, grid.columns, grid.rows
    shift, tiles, blocks = grid.shift, grid.tiles, grid.blocks
    to_rows, to_tasks = np.empty(len(lat), np.int64), np.empty(len(lat), np.int32)
    found = 0
    for i in range(len(lat)):
        partition = _partition_of(cell(lon[i], west, per_lon, columns), cell(lat[i], south, per_lat, rows), shift, tiles, blocks)
        to_rows[found], to_tasks[found] = i, task_of[partition]
        found += offsets[i] < offsets[i + 1]
    return to_rows[:found], to_tasks[:found]


@njit(cache=True)
def _search(x0, y0, x1, y1, grid, visited, stamp, found):
    """Write the partitions with a cell in columns ``x0`` to ``x1`` and rows ``y0`` to ``y1``, both included, to ``found``; return how many there are.

    Neighbour-based search (Tornado, section 3.1, Algorithm 1): the first partition is that of the corner with the least coordinates (the paper begins
    at the top left). From the dominant cell of each partition, which is the least of its cells inside, pointers lead to the cell behind the partition in the same row, and
    to the one in the same column. Any other partition inside has the cell before its dominant cell, in the row or in the column, in common with one that is found.
    O(partitions found): each is looked at once, and has two pointers. ``found`` is the queue.

    :param visited: int64[partitions], holds ``stamp`` for no partition on entry.
    """
    shift, tiles, blocks, bounds = grid.shift, grid.tiles, grid.blocks, grid.bounds
    first = _partition_of(x0, y0, shift, tiles, blocks)
    visited[first] = stamp
    found[0] = first
    count, at = 1, 0
    while at < count:
        here = found[at]
        at += 1
        right, above = bounds[here, 2], bounds[here, 3]
        if right <= x1:
            other = _partition_of(right, max(y0, bounds[here, 1]), shift, tiles, blocks)
            if visited[other] != stamp:
                visited[other] = stamp
                found[count] = other
                count += 1
        if above <= y1:
            other = _partition_of(max(x0, bounds[here, 0]), above, shift, tiles, blocks)
            if visited[other] != stamp:
                visited[other] = stamp
                found[count] = other
                count += 1
    return count


@njit(cache=True)
def search(x0, y0, x1, y1, grid):
    """Return the partitions with a cell in columns ``x0`` to ``x1`` and rows ``y0`` to ``y1``, both included; int64[], in the order of the search."""
    found = np.empty(len(grid.bounds), np.int64)
    return found[: _search(x0, y0, x1, y1, grid, np.zeros(len(grid.bounds), np.int64), 1, found)]


@njit(cache=True)
def _touched(area, grid, visited, stamp, found, task_of, last):
    """Write the tasks of the partitions that an area touches to ``found``, each once; return how many there are.

    An area across the antimeridian has two parts, which may lie in the same partition.

    :param visited: int64[partitions], below ``stamp``; this function uses ``stamp`` and ``stamp + 1``.
    :param found: int64[tasks + partitions], with the tasks at the beginning; the rest is working memory.
    :param last: int64[tasks], below ``stamp``.
    """
    west, south, east, north = area[0], area[1], area[2], area[3]
    y0, y1 = cell(south, grid.south, grid.per_lat, grid.rows), cell(north, grid.south, grid.per_lat, grid.rows)
    x0, x1 = cell(west, grid.west, grid.per_lon, grid.columns), cell(east, grid.west, grid.per_lon, grid.columns)
    parts = 1 if west <= east else 2
    count = 0
    for part in range(parts):
        begin = x0 if part == 0 else 0
        end = x1 if part == parts - 1 else grid.columns - 1
        queue = found[len(last) :]
        for p in range(_search(begin, y0, end, y1, grid, visited, stamp + part, queue)):
            task = task_of[queue[p]]
            if last[task] != stamp:
                last[task] = stamp
                found[count] = task
                count += 1
    return count


@njit(cache=True)
def route_areas(offsets, areas, grid, task_of, tasks):
    """Return (rows int64[m], tasks int32[m]): the messages that have keywords, each with the tasks of all partitions that its area touches.

    :param offsets: int64[n + 1]; message *i* has keywords if ``offsets[i] < offsets[i + 1]``.
    :param areas: float64[n, 4], west, south, east, north; a point has west = east and south = north.
    :param grid: :class:`GridArrays`.
    :param task_of: int32[partitions].
    :param tasks: number of tasks.
    """
    visited, last = np.zeros(len(grid.bounds), np.int64), np.zeros(tasks, np.int64)
    found = np.empty(tasks + len(grid.bounds), np.int64)
    rows, to = np.empty(2 * len(areas) + tasks, np.int64), np.empty(2 * len(areas) + tasks, np.int32)
    total = 0
    for i in range(len(areas)):
        if offsets[i] == offsets[i + 1]:
            continue
        if total + tasks > len(rows):
            more_rows, more_to = np.empty(2 * len(rows) + tasks, np.int64), np.empty(2 * len(rows) + tasks, np.int32)
            more_rows[:total], more_to[:total] = rows[:total], to[:total]
            rows, to = more_rows, more_to
        for p in range(_touched(areas[i], grid, visited, 2 * i + 1, found, task_of, last)):
            rows[total], to[total] = i, found[p]
            total += 1
    return rows[:total], to[:total]


@njit(cache=True)
def touching(area, grid, task_of, tasks):
    """Return the tasks of all partitions that one area touches; int64[], each once.

    :param area: float64[4], west, south, east, north.
    :param grid: :class:`GridArrays`.
    :param task_of: int32[partitions].
    :param tasks: number of tasks.
    """
    found = np.empty(tasks + len(grid.bounds), np.int64)
    return found[: _touched(area, grid, np.zeros(len(grid.bounds), np.int64), 1, found, task_of, np.zeros(tasks, np.int64))]


@njit(cache=True)
def assign(x0, y0, x1, y1, partition, grid, free):
    """Give cells to a partition; ``bounds`` stays as it is. O(tiles inside + cells of the tiles on the border).

    :param x0: first column; ``x1``: the last one + 1. ``y0`` and ``y1``: the rows, likewise.
    :param grid: :class:`GridArrays`; changed here.
    :param free: int64[blocks + 1]: how many blocks are free, and then their numbers; enough for all tiles on the border of the cells. Changed here.
    """
    shift, tiles, blocks = grid.shift, grid.tiles, grid.blocks
    side = 1 << shift
    for ty in range(y0 >> shift, ((y1 - 1) >> shift) + 1):
        bottom, top = ty << shift, min((ty + 1) << shift, grid.rows)
        low, high = max(y0, bottom), min(y1, top)
        for tx in range(x0 >> shift, ((x1 - 1) >> shift) + 1):
            left, right = tx << shift, min((tx + 1) << shift, grid.columns)
            begin, end = max(x0, left), min(x1, right)
            old = tiles[ty, tx]
            if old == partition:
                continue
            whole = begin == left and end == right and low == bottom and high == top
            if not whole:
                if old >= 0:
                    number = free[free[0]]
                    free[0] -= 1
                    tiles[ty, tx] = ~number
                    for p in range(side * side):
                        blocks[number, p] = old
                else:
                    number = ~old
                for y in range(low - bottom, high - bottom):
                    for x in range(begin - left, end - left):
                        blocks[number, (y << shift) + x] = partition
                whole = True
                for y in range(top - bottom):
                    for x in range(right - left):
                        whole = whole and blocks[number, (y << shift) + x] == partition
                old = ~number
            if whole:
                if old < 0:
                    free[0] += 1
                    free[free[0]] = ~old
                tiles[ty, tx] = partition


@njit(cache=True)
def count_cells(grid):
    """Return how many cells each partition has, int64[partitions], and how many of them are inside its bounds, likewise."""
    shift, tiles, blocks, bounds = grid.shift, grid.tiles, grid.blocks, grid.bounds
    cells, inside = np.zeros(len(bounds), np.int64), np.zeros(len(bounds), np.int64)
    for ty in range(tiles.shape[0]):
        for tx in range(tiles.shape[1]):
            left, right = tx << shift, min((tx + 1) << shift, grid.columns)
            bottom, top = ty << shift, min((ty + 1) << shift, grid.rows)
            if tiles[ty, tx] >= 0:
                p = tiles[ty, tx]
                cells[p] += (right - left) * (top - bottom)
                inside[p] += max(0, min(right, bounds[p, 2]) - max(left, bounds[p, 0])) * max(0, min(top, bounds[p, 3]) - max(bottom, bounds[p, 1]))
                continue
            for y in range(bottom, top):
                for x in range(left, right):
                    p = blocks[~tiles[ty, tx], ((y - bottom) << shift) + x - left]
                    cells[p] += 1
                    inside[p] += bounds[p, 0] <= x < bounds[p, 2] and bounds[p, 1] <= y < bounds[p, 3]
    return cells, inside


@njit(cache=True)
def match_costs(offsets, terms, lat, lon, posted):
    """Return the cost of each message, float64[n]: 1 + the subscriptions without a rectangle by its terms + those with one of its terms and its place in their rectangle.

    :param offsets: int64[n + 1]; the terms of message *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :param terms: int64[], numbers of terms in ``posted``; -1: no subscription has it.
    :param lat: float64[n], degrees; ``lon``: likewise.
    :param posted: :class:`Posted`.
    """
    anywhere, start, rows, boxes = posted.anywhere, posted.start, posted.rows, posted.boxes
    costs = np.empty(len(lat))
    last = np.full(len(boxes), -1, np.int64)
    for i in range(len(lat)):
        x, y, cost = lon[i], lat[i], 1.0
        for p in range(offsets[i], offsets[i + 1]):
            term = terms[p]
            if term < 0:
                continue
            cost += anywhere[term]
            for q in range(start[term], start[term + 1]):
                row = rows[q]
                west, east = boxes[row, 0], boxes[row, 2]
                between = west <= x <= east if west <= east else (x >= west or x <= east)
                if between and boxes[row, 1] <= y <= boxes[row, 3] and last[row] != i:
                    last[row] = i
                    cost += 1.0
        costs[i] = cost
    return costs
