"""Binary search in rising values, a part of an array at a time. Imports numpy and numba only."""

from __future__ import annotations

from dskype.topology.kernel_cache import njit

__all__ = ["first_above", "first_not_below"]


@njit(cache=True, inline="always")
def first_above(values, low, high, value):
    """Return the first index in ``[low, high)`` whose value is above ``value``, or ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, inline="always")
def first_not_below(values, low, high, value):
    """Return the first index in ``[low, high)`` whose value is not below ``value``, or ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
