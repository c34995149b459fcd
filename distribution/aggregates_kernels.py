"""Kernels of :mod:`dskype.distribution.aggregates`: costs and counts of subscriptions by cell, column and row.

All cell numbers are relative to the partition, and inside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

__all__ = ["Costs", "Extents", "best_cut", "count_extents", "cut_of_amount", "record_costs"]


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


@njit(cache=True)
def best_cut(line: np.ndarray, total: float) -> tuple[int, float]:
    """Return where to cut a line of costs so that both parts differ least, and the cost below the cut.

    A scan from below ends where it passes half of the total; the cut is before or after the cell that passes it.

    :param line: float64[n], n >= 2, of columns or rows; ``total`` is its sum.
    :returns: the first index above the cut, 1 to n - 1; of two equal cuts the lower one.
    """
    below, last = 0.0, len(line) - 1
    for i in range(last):
        after = below + line[i]
        if 2 * after >= total or i == last - 1:
            if i > 0 and total - 2 * below <= abs(2 * after - total):
                return i, below
            return i + 1, after
        below = after
    return last, below


@njit(cache=True)
def cut_of_amount(line: np.ndarray, amount: float, from_above: bool) -> tuple[int, float]:
    """Return the number of cells at one end of a line whose costs come nearest to an amount, and their sum.

    :param line: float64[n], n >= 2.
    :param from_above: whether to count from the upper end.
    :returns: the number, 1 to n - 1; of two equal ones the smaller.
    """
    taken, n = 0.0, len(line)
    for i in range(n - 1):
        after = taken + (line[n - 1 - i] if from_above else line[i])
        if after >= amount or i == n - 2:
            if i > 0 and amount - taken <= abs(after - amount):
                return i, taken
            return i + 1, after
        taken = after
    return n - 1, taken
