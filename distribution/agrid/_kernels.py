"""Kernels of the A-Grid: where places and rectangles are in a division of a fine grid into rectangular partitions. Imports numpy and numba only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.distribution.routing.route_kernels import with_room
from dskype.topology.kernel_cache import njit

__all__ = ["GridArrays", "Posted", "assign", "cell", "cells_of", "count_cells", "link", "locate", "match_costs", "route_areas", "route_points", "search"]


class GridArrays(NamedTuple):
    """An A-Grid as arrays.

    Square tiles of ``1 << shift`` by ``1 << shift`` cells, at most 16 x 16, cover the grid. A tile that lies in one partition stands for all its cells. Another tile has a block: its columns
    and rows are numbered by the strips between borders, and a table has the partition of each pair of strips. So what a search reads is small, stays in the
    processor's cache, and does not grow with the number of cells.

    :ivar west: longitude of the western edge of column 0, degrees; ``south``: latitude of the southern edge of row 0.
    :ivar per_lon: columns per degree of longitude; ``per_lat``: rows per degree of latitude.
    :ivar columns: number of columns; ``rows``: number of rows.
    :ivar shift: binary logarithm of the cells in a side of a tile, 0 to 4.
    :ivar tiles: int32[tile rows, tile columns], a partition if >= 0, else ``~block``.
    :ivar strips: int64[blocks, 3]: the strip of each column of the tile, 4 bits each from the lowest on; the strip of each row, likewise; how many strips of columns there are.
    :ivar tables: int32[blocks, side * side], the partition of each pair of strips, row by row.
    :ivar bounds: int32[partitions, 4]: first column, first row, end of the columns, end of the rows; all 0 for a number that no partition has.
    :ivar links: int32[partitions, 8]: up to four partitions along its eastern side, from the south, and up to four along its northern side, from the west. The first of four is -1
        if there are more, and then the tiles tell; else those behind the last one do not count.
    """

    west: float
    south: float
    per_lon: float
    per_lat: float
    columns: int
    rows: int
    shift: int
    tiles: np.ndarray
    strips: np.ndarray
    tables: np.ndarray
    bounds: np.ndarray
    links: np.ndarray


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
def _partition_of(x, y, shift, tiles, strips, tables):
    """Return the partition of a cell. Without a branch, which would be mispredicted for places near borders."""
    tile, mask = int(tiles[y >> shift, x >> shift]), (1 << shift) - 1
    mixed = tile >> 63  # all bits if the tile has a block, else none
    block = ~tile & mixed
    column, row = (strips[block, 0] >> ((x & mask) << 2)) & 15, (strips[block, 1] >> ((y & mask) << 2)) & 15
    return (int(tables[block, row * strips[block, 2] + column]) & mixed) | (tile & ~mixed)


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
    shift, tiles, strips, tables = grid.shift, grid.tiles, grid.strips, grid.tables
    found = np.empty(len(lat), np.int32)
    for i in range(len(lat)):
        found[i] = _partition_of(cell(lon[i], west, per_lon, columns), cell(lat[i], south, per_lat, rows), shift, tiles, strips, tables)
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
    shift, tiles, strips, tables = grid.shift, grid.tiles, grid.strips, grid.tables
    to_rows, to_tasks = np.empty(len(lat), np.int64), np.empty(len(lat), np.int32)
    found = 0
    for i in range(len(lat)):
        partition = _partition_of(cell(lon[i], west, per_lon, columns), cell(lat[i], south, per_lat, rows), shift, tiles, strips, tables)
        to_rows[found], to_tasks[found] = i, task_of[partition]
        found += offsets[i] < offsets[i + 1]
    return to_rows[:found], to_tasks[:found]


@njit(cache=True, inline="always")
def _linked(at, end, here, first, links, bounds):
    """Return the first of a partition's links that reaches beyond a row or column, or -1: there are more links than are stored.

    A place in a row of tiles would be found as well. But links and bounds are small, however fine the grid is, and so always in the processor's first cache.

    :param at: row or column, one of the partition's; ``end``: 3 for rows, 2 for columns, the index in ``bounds``.
    :param first: of the links: 0 for those in the east, 4 for those in the north.
    """
    other = int(links[here, first])
    if other < 0:
        return other
    i = first
    while bounds[other, end] <= at:
        i += 1
        other = int(links[here, i])
    return other


@njit(cache=True, inline="always")
def _search(corners, shift, tiles, strips, tables, bounds, links, visited, stamp, found):
    """Write the partitions that have one of some cells to ``found``; return how many.

    Neighbour-based search (Tornado, section 3.1, Algorithm 1): the first partition is that of the corner with the least coordinates (the paper begins
    at the top left). From the dominant cell of each partition, which is the least of its cells inside, pointers lead to the cell behind the partition in the same row, and
    to the one in the same column. Any other partition inside has the cell before its dominant cell, in the row or in the column, in common with one that is found.
    O(partitions found): each is looked at once, and has two pointers. ``found`` is the queue.

    The arrays are arguments of their own, because each use of one in a tuple would be counted.

    :param corners: first column, first row, last column and last row.
    :param visited: int64[partitions], holds ``stamp`` for no partition on entry.
    """
    x0, y0, x1, y1 = corners
    first = _partition_of(x0, y0, shift, tiles, strips, tables)
    visited[first] = stamp
    found[0] = first
    count, at = 1, 0
    while at < count:
        here = found[at]
        at += 1
        right, above = int(bounds[here, 2]), int(bounds[here, 3])
        if right <= x1:
            row = max(y0, int(bounds[here, 1]))
            other = _linked(row, 3, here, 0, links, bounds)
            if other < 0:
                other = _partition_of(right, row, shift, tiles, strips, tables)
            if visited[other] != stamp:
                visited[other] = stamp
                found[count] = other
                count += 1
        if above <= y1:
            column = max(x0, int(bounds[here, 0]))
            other = _linked(column, 2, here, 4, links, bounds)
            if other < 0:
                other = _partition_of(column, above, shift, tiles, strips, tables)
            if visited[other] != stamp:
                visited[other] = stamp
                found[count] = other
                count += 1
    return count


@njit(cache=True)
def link(bounds, links):
    """Write the links of all partitions; O(partitions * log partitions + links).

    :param bounds: as in :class:`GridArrays`.
    :param links: int32[partitions, 8]; written here.
    """
    key = np.empty(len(bounds), np.int64)
    for side in range(2):  # along a side in the east, partitions follow one another by rows; in the north, by columns
        across, along = side, 1 - side
        for p in range(len(bounds)):
            key[p] = (np.int64(bounds[p, across]) << 32) + bounds[p, along] if bounds[p, 2] > 0 else -1
        order = np.argsort(key)
        sorted_keys = key[order]
        for p in range(len(bounds)):
            for i in range(4):
                links[p, 4 * side + i] = -1
            if bounds[p, 2] == 0:
                continue
            at = np.searchsorted(sorted_keys, (np.int64(bounds[p, across + 2]) << 32) + bounds[p, along], side="right")
            if at > 0:  # one that begins before the partition may reach it
                before = order[at - 1]
                at -= key[before] >= 0 and bounds[before, across] == bounds[p, across + 2] and bounds[before, along + 2] > bounds[p, along]
            count = 0
            while at < len(order) and bounds[order[at], across] == bounds[p, across + 2] and bounds[order[at], along] < bounds[p, along + 2]:
                if count < 4:
                    links[p, 4 * side + count] = order[at]
                count += 1
                at += 1
            if count > 4:
                links[p, 4 * side] = -1


@njit(cache=True)
def search(x0, y0, x1, y1, grid):
    """Return the partitions with a cell in columns ``x0`` to ``x1`` and rows ``y0`` to ``y1``, both included; int64[], in the order of the search."""
    found, visited = np.empty(len(grid.bounds), np.int64), np.zeros(len(grid.bounds), np.int64)
    return found[: _search((x0, y0, x1, y1), grid.shift, grid.tiles, grid.strips, grid.tables, grid.bounds, grid.links, visited, 1, found)]


@njit(cache=True)
def route_areas(offsets, areas, grid, task_of, tasks):
    """Return (rows int64[m], tasks int32[m]): the messages that have keywords, each with the tasks of all partitions that its area touches, each once.

    An area across the antimeridian has two parts, which may lie in the same partition.

    :param offsets: int64[n + 1]; message *i* has keywords if ``offsets[i] < offsets[i + 1]``.
    :param areas: float64[n, 4], west, south, east, north; a point has west = east and south = north.
    :param grid: :class:`GridArrays`.
    :param task_of: int32[partitions].
    :param tasks: number of tasks.
    """
    west, south, per_lon, per_lat, columns, height = grid.west, grid.south, grid.per_lon, grid.per_lat, grid.columns, grid.rows
    shift, tiles, strips, tables, bounds, links = grid.shift, grid.tiles, grid.strips, grid.tables, grid.bounds, grid.links
    visited, last, found = np.zeros(len(bounds), np.int64), np.zeros(tasks, np.int64), np.empty(len(bounds), np.int64)
    rows, to = np.empty(2 * len(areas) + tasks, np.int64), np.empty(2 * len(areas) + tasks, np.int32)
    total = stamp = 0
    for i in range(len(areas)):
        if offsets[i] == offsets[i + 1]:
            continue
        rows, to = with_room(rows, to, total, tasks)
        x0, x1 = cell(areas[i, 0], west, per_lon, columns), cell(areas[i, 2], west, per_lon, columns)
        y0, y1 = cell(areas[i, 1], south, per_lat, height), cell(areas[i, 3], south, per_lat, height)
        crosses = areas[i, 0] > areas[i, 2]
        for part in range(2 if crosses else 1):
            stamp += 1
            begin, end = 0 if part == 1 else x0, columns - 1 if crosses and part == 0 else x1
            for p in range(_search((begin, y0, end, y1), shift, tiles, strips, tables, bounds, links, visited, stamp, found)):
                task = task_of[found[p]]
                if last[task] != i + 1:
                    last[task] = i + 1
                    rows[total], to[total] = i, task
                    total += 1
    return rows[:total], to[:total]


@njit(cache=True)
def _write_block(cells, block, strips, tables):
    """Write the partitions of the cells of a tile (int64[side, side]) to a block."""
    side = len(cells)
    columns = rows = 0
    column_of, row_of = np.zeros(side, np.int64), np.zeros(side, np.int64)
    for i in range(1, side):
        new_column = new_row = 0
        for j in range(side):
            if cells[j, i] != cells[j, i - 1]:
                new_column = 1
            if cells[i, j] != cells[i - 1, j]:
                new_row = 1
        columns += new_column
        rows += new_row
        column_of[i], row_of[i] = columns, rows
    strips[block, 0] = strips[block, 1] = 0
    strips[block, 2] = columns + 1
    for i in range(side):
        strips[block, 0] |= column_of[i] << (4 * i)
        strips[block, 1] |= row_of[i] << (4 * i)
        for j in range(side):
            tables[block, row_of[i] * (columns + 1) + column_of[j]] = cells[i, j]


@njit(cache=True)
def assign(x0, y0, x1, y1, partition, grid, free):
    """Give cells to a partition; ``bounds`` stays as it is. O(tiles inside + cells of the tiles on the border).

    :param x0: first column; ``x1``: the last one + 1. ``y0`` and ``y1``: the rows, likewise.
    :param grid: :class:`GridArrays`; changed here.
    :param free: int64[blocks + 1]: how many blocks are free, and then their numbers; enough for all tiles on the border of the cells. Changed here.
    """
    shift, tiles, strips, tables = grid.shift, grid.tiles, grid.strips, grid.tables
    side = 1 << shift
    cells = np.empty((side, side), np.int64)
    for ty in range(y0 >> shift, ((y1 - 1) >> shift) + 1):
        bottom, top = ty << shift, min((ty + 1) << shift, grid.rows)
        for tx in range(x0 >> shift, ((x1 - 1) >> shift) + 1):
            left, right = tx << shift, min((tx + 1) << shift, grid.columns)
            old = tiles[ty, tx]
            if old == partition:
                continue
            whole = x0 <= left and right <= x1 and y0 <= bottom and top <= y1
            if not whole:
                whole = True
                for y in range(bottom, bottom + side):  # what is behind the border of the grid is like what is before it
                    inside_y = min(y, top - 1)
                    for x in range(left, left + side):
                        inside_x = min(x, right - 1)
                        own = partition
                        if not (x0 <= inside_x < x1 and y0 <= inside_y < y1):
                            own = _partition_of(inside_x, inside_y, shift, tiles, strips, tables)
                        cells[y - bottom, x - left] = own
                        whole = whole and own == partition
            if whole:
                if old < 0:
                    free[0] += 1
                    free[free[0]] = ~old
                tiles[ty, tx] = partition
                continue
            if old >= 0:
                old = ~free[free[0]]
                free[0] -= 1
                tiles[ty, tx] = old
            _write_block(cells, ~old, strips, tables)


@njit(cache=True)
def count_cells(grid):
    """Return how many cells each partition has, int64[partitions], and how many of them are inside its bounds, likewise."""
    shift, tiles, strips, tables, bounds = grid.shift, grid.tiles, grid.strips, grid.tables, grid.bounds
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
                    p = _partition_of(x, y, shift, tiles, strips, tables)
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
