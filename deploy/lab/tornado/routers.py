"""Routers over the partitions of an A-Grid that find them another way: a plain grid and an R-tree (Tornado, section 5.2).

They answer as the A-Grid does, so they are no distributors, but only measured: ``dskype bench routing``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dskype.deploy.lab.tornado import router_kernels as kernels
from dskype.distribution.agrid.grid import AGrid

__all__ = ["GridRouter", "TreeRouter"]

_FANOUT = 8


class _Router:
    """A router over the present partitions of a grid; later changes of the grid do not count."""

    def __init__(self, grid: AGrid) -> None:
        arrays = grid.arrays
        self.frame = kernels.CellFrame(arrays.west, arrays.south, arrays.per_lon, arrays.per_lat, arrays.columns, arrays.rows)
        self.partitions = len(arrays.bounds)


class GridRouter(_Router):
    """A grid whose cells know their partition. A rectangle costs O(its cells), memory O(cells of the grid)."""

    def __init__(self, grid: AGrid) -> None:
        super().__init__(grid)
        self._cells = np.zeros((grid.rows, grid.columns), np.int32)
        kernels.fill(self._cells, grid.arrays.bounds)

    @property
    def memory_bytes(self) -> int:
        """Size of its arrays."""
        return self._cells.nbytes

    def locate(self, lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
        """Return the partition of each place, int32[n]."""
        return kernels.grid_points(lat, lon, self.frame, self._cells)

    def overlaps(self, areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (rows int64[m], partitions int32[m]): the partitions that each area touches."""
        return kernels.grid_areas(areas, self.frame, self._cells, self.partitions)


class _Node(NamedTuple):
    """A node of an R-tree while it is built: ``bounds`` in cells, int64[4]; ``leaf`` is ``~partition`` if there are no children."""

    bounds: np.ndarray
    leaf: int
    children: list[_Node]


class TreeRouter(_Router):
    """An R-tree over the partitions, packed level by level (sort-tile-recursive). A place costs O(log partitions)."""

    def __init__(self, grid: AGrid) -> None:
        super().__init__(grid)
        level = [_Node(np.array(cells), ~number, []) for number, cells in grid.partitions().items()]
        while len(level) > 1:
            level = [_Node(_around(group), 0, group) for group in _tiles(level)]
        nodes, begin, end = level, [], []
        for node in nodes:  # grows on the way: breadth first, so that children stand side by side
            begin.append(len(nodes) if node.children else node.leaf)
            nodes += node.children
            end.append(len(nodes))
        self._tree = kernels.TreeArrays(np.array([node.bounds for node in nodes], np.int32), np.array(begin, np.int32), np.array(end, np.int32))

    @property
    def memory_bytes(self) -> int:
        """Size of its arrays."""
        return sum(array.nbytes for array in self._tree)

    def locate(self, lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
        """Return the partition of each place, int32[n]."""
        return kernels.tree_points(lat, lon, self.frame, self._tree)

    def overlaps(self, areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (rows int64[m], partitions int32[m]): the partitions that each area touches."""
        return kernels.tree_areas(areas, self.frame, self._tree, self.partitions)


def _around(nodes: list[_Node]) -> np.ndarray:
    """Return the bounds of several nodes together."""
    bounds = np.array([node.bounds for node in nodes])
    return np.concatenate([bounds[:, :2].min(axis=0), bounds[:, 2:].max(axis=0)])


def _tiles(nodes: list[_Node]) -> list[list[_Node]]:
    """Return groups of at most eight neighbours: sorted into slices by columns, and within each by rows."""
    groups = math.ceil(len(nodes) / _FANOUT)
    per_slice = math.ceil(len(nodes) / math.ceil(math.sqrt(groups)))
    nodes = sorted(nodes, key=lambda node: node.bounds[0] + node.bounds[2])
    slices = [sorted(nodes[i : i + per_slice], key=lambda node: node.bounds[1] + node.bounds[3]) for i in range(0, len(nodes), per_slice)]
    return [some[i : i + _FANOUT] for some in slices for i in range(0, len(some), _FANOUT)]
