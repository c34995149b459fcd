"""Partitioning by space alone: each task has some zones of the world (PS2Stream, section VI-B)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dskype.deploy.lab.ps2stream.text_partitioning import check_method
from dskype.distribution.agrid.grid import AGrid, CellBox
from dskype.distribution.base import Sample
from dskype.distribution.hybrid.gridt import Part, Zone
from dskype.distribution.hybrid.gridt_distributor import GridtDistributor, sample_loads
from dskype.distribution.hybrid.kdt_tree import assign_items, divide_space
from dskype.distribution.hybrid.leaf_loads import Leaf

__all__ = ["METHODS", "SpacePartitioningDistributor"]

_GRID = 64
"""Columns and rows that the paper found best."""

_LEAVES_PER_TASK = 8
"""Leaves of an R-tree for each task."""


def by_grid(root: Leaf, tasks: int) -> list[list[CellBox]]:
    """Return the zones of each task: the cells of a grid of 64 x 64 in the order of a Z-curve, cut into runs of equal load."""
    n, (_, _, width, height) = _GRID, root.cells
    columns, rows = min(n, width), min(n, height)
    xs, ys = np.arange(columns + 1) * width // columns, np.arange(rows + 1) * height // rows
    x, y = (np.searchsorted(ends, at, side="right") - 1 for ends, at in ((xs, root.loads.x[root.rows]), (ys, root.loads.y[root.rows])))
    loads = np.bincount(y * columns + x, root.message_loads, columns * rows)
    order = np.argsort(_interleaved(*np.divmod(np.arange(columns * rows), columns)), kind="stable")
    before = np.cumsum(loads[order]) - loads[order] / 2
    task_of = np.empty(columns * rows, np.int64)
    task_of[order] = np.minimum(tasks - 1, (before * tasks / max(1e-9, loads.sum())).astype(np.int64))
    found: list[list[CellBox]] = [[] for _ in range(tasks)]
    for row in range(rows):  # neighbours in a row with the same task are one zone
        own = task_of[row * columns : (row + 1) * columns]
        ends = np.flatnonzero(np.diff(own)) + 1
        for first, last in zip([0, *ends.tolist()], [*ends.tolist(), columns]):
            found[int(own[first])].append(CellBox(int(xs[first]), int(ys[row]), int(xs[last]), int(ys[row + 1])))
    return found


def _interleaved(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the place of cells on a Z-curve."""
    found = np.zeros(len(x), np.int64)
    for bit in range(12):
        found |= (x >> bit & 1) << 2 * bit | (y >> bit & 1) << 2 * bit + 1
    return found


def by_kd_tree(root: Leaf, tasks: int) -> list[list[CellBox]]:
    """Return the zones of each task: the leaves of a kd-tree, of which the costliest is cut until there are enough."""
    *_, leaves = divide_space(root, tasks)
    return [[leaf.cells] for leaf in leaves]


def by_r_tree(root: Leaf, tasks: int) -> list[list[CellBox]]:
    """Return the zones of each task: the leaves of an R-tree over the messages, packed by sort-tile-recursion so that they do not overlap; the costliest goes first to the least loaded task."""
    slices = max(1, round(math.sqrt(_LEAVES_PER_TASK * tasks)))
    x0, y0, x1, y1 = root.cells
    leaves = []
    for left, right in _quantiles(root.loads.x[root.rows], x0, x1, slices):
        tile = root.inside(CellBox(left, y0, right, y1))
        leaves += [tile.inside(CellBox(left, low, right, high)) for low, high in _quantiles(root.loads.y[tile.rows], y0, y1, slices)]
    loads = np.array([leaf.load for leaf in leaves])
    task_of = assign_items(loads, np.arange(len(leaves)), tasks)
    return [[leaf.cells for leaf, task in zip(leaves, task_of.tolist()) if task == own] for own in range(tasks)]


def _quantiles(values: np.ndarray, low: int, high: int, parts: int) -> list[tuple[int, int]]:
    """Return ranges from ``low`` to ``high`` with about equally many values, as many as there can be."""
    inner = np.quantile(values, np.arange(1, parts) / parts, method="nearest") if len(values) else np.zeros(0)
    ends = np.unique(np.clip(np.concatenate(([low], inner + 1, [high])), low, high).astype(np.int64)).tolist()
    return list(itertools.pairwise(ends))


METHODS: dict[str, Callable[[Leaf, int], list[list[CellBox]]]] = {"grid": by_grid, "kd-tree": by_kd_tree, "r-tree": by_r_tree}
"""Option ``method`` -> what finds the zones of each task."""


class SpacePartitioningDistributor(GridtDistributor):
    """Divides the world into zones of one task each.

    :param options: ``method``: ``kd-tree`` (default), ``grid`` or ``r-tree``. Others: :class:`GridtDistributor`.
    """

    name = "space-partitioning"
    legal_options = (*GridtDistributor.legal_options, "method")

    @classmethod
    def checked(cls, tasks: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return all options with their defaults, checked."""
        return check_method(cls.name, {"method": "kd-tree", **super().checked(tasks, options)}, METHODS)

    @classmethod
    def learned(cls, tasks: int, grid: AGrid, sample: Sample, options: Mapping[str, Any]) -> list[Zone]:
        """Return the zones of all tasks."""
        root = sample_loads(grid, sample, options).root()
        boxes = METHODS[options["method"]](root, tasks)
        found = [Zone(cells, (Part(task, root.inside(cells).load / sample.messages.n),)) for task, own in enumerate(boxes) for cells in own]
        return sorted(found, key=lambda zone: zone.cells)
