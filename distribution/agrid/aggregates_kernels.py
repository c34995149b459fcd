"""Kernels of :mod:`dskype.distribution.agrid.aggregates`: costs and counts of subscriptions by cell, column and row.

All cell numbers are relative to the partition, and inside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["Costs", "Extents", "count_extents", "record_costs"]


class Costs(NamedTuple):
    """Costs of a partition of ``w`` columns and ``h`` rows.

    :ivar cells: float64[w, h]; its sums along the axes are the other two.
    :ivar columns: float64[w].
    :ivar rows: float64[h].
    """

    cells: np.ndarray
    columns: np.ndarray
    rows: np.ndarray


class Extents(NamedTuple):
    """How many subscriptions begin and end at each column and each row, int64[w] or int64[h]."""

    first_columns: np.ndarray
    last_columns: np.ndarray
    first_rows: np.ndarray
    last_rows: np.ndarray


@njit(cache=True)
def record_costs(costs: Costs, x: np.ndarray, y: np.ndarray, cost: np.ndarray, unit: float) -> float:
    """Add ``cost[i] * unit`` to cell (``x[i]``, ``y[i]``), its column and its row; return the sum."""
    total = 0.0
    for i in range(len(x)):
        amount = cost[i] * unit
        costs.cells[x[i], y[i]] += amount
        costs.columns[x[i]] += amount
        costs.rows[y[i]] += amount
        total += amount
    return total


@njit(cache=True)
def count_extents(extents: Extents, boxes: np.ndarray, sign: int) -> None:
    """Count subscriptions in (``sign`` 1) or out (-1); a row of ``boxes`` is (x0, y0, x1, y1), without column x1 and row y1."""
    for i in range(len(boxes)):
        extents.first_columns[boxes[i, 0]] += sign
        extents.first_rows[boxes[i, 1]] += sign
        extents.last_columns[boxes[i, 2] - 1] += sign
        extents.last_rows[boxes[i, 3] - 1] += sign
