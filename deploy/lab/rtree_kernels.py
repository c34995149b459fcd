"""The geometry that R-trees share: how the children of a node that has too many are divided."""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["EAST", "NORTH", "SOUTH", "WEST", "partition"]

WEST, SOUTH, EAST, NORTH = range(4)
"""Columns of a rectangle."""


@njit(cache=True)
def _order(values):
    """Return the indexes of a few values in rising order, equal ones as they come."""
    order = np.empty(len(values), np.int64)
    for i in range(len(values)):
        j = i
        while j and values[order[j - 1]] > values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    return order


@njit(cache=True)
def partition(boxes, least):
    """Return which of the rectangles go to a second node: at least ``least`` stay, and go.

    They are cut in order of their centres, west to east or south to north, where the two halves overlap least and are smallest
    around (after the R*-tree, Beckmann et al. 1990).
    """
    n = len(boxes)
    best_overlap = best_margin = np.inf
    goes = np.zeros(n, np.bool_)
    after = np.empty((n, 4), np.float64)
    for axis in range(2):
        order = _order(boxes[:, axis] + boxes[:, axis + 2])
        west = south = np.inf
        east = north = -np.inf
        for j in range(n - 1, -1, -1):
            box = boxes[order[j]]
            west, south, east, north = min(west, box[WEST]), min(south, box[SOUTH]), max(east, box[EAST]), max(north, box[NORTH])
            after[j, WEST], after[j, SOUTH], after[j, EAST], after[j, NORTH] = west, south, east, north
        west = south = np.inf
        east = north = -np.inf
        for j in range(1, n - least + 1):
            box = boxes[order[j - 1]]
            west, south, east, north = min(west, box[WEST]), min(south, box[SOUTH]), max(east, box[EAST]), max(north, box[NORTH])
            if j < least:
                continue
            other = after[j]
            overlap = max(0.0, min(east, other[EAST]) - max(west, other[WEST])) * max(0.0, min(north, other[NORTH]) - max(south, other[SOUTH]))
            margin = (east - west) + (north - south) + (other[EAST] - other[WEST]) + (other[NORTH] - other[SOUTH])
            if overlap < best_overlap or (overlap == best_overlap and margin < best_margin):
                best_overlap, best_margin = overlap, margin
                goes[:] = False
                for k in range(j, n):
                    goes[order[k]] = True
    return goes
