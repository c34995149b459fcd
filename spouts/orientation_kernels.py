"""Kernels that decide exactly on which side of a line a place is, in longitude and latitude.

A longitude is a float64 and a *turn*, how often one has gone around the globe: ``lon + 360 * turn``. That sum is never rounded. The usual formula decides if its result is
larger than its error can be; else the same formula is computed without rounding (Shewchuk, Adaptive Precision Floating-Point Arithmetic, 1997). Numbers other than
0 must be at least 1e-30, so that no product is too small.
"""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["compare_lons", "side"]

_ERROR = 3.3306690738754716e-16
"""Of the plain formula, relative to the sum of its products: (3 + 16 u) u, where u is 2^-53."""
_ERROR_OF_TURNS = 4e-13
"""Degrees: more than what sums of longitudes and turns are rounded by."""
_SPLIT = 134217729.0


@njit(cache=True)
def _two_sum(a, b):
    """Return (sum, its error)."""
    s = a + b
    part = s - a
    return s, (a - (s - part)) + (b - part)


@njit(cache=True)
def _two_product(a, b):
    """Return (product, its error)."""
    p = a * b
    c = _SPLIT * a
    high = c - (c - a)
    low = a - high
    c = _SPLIT * b
    other_high = c - (c - b)
    other_low = b - other_high
    return p, ((high * other_high - p) + high * other_low + low * other_high) + low * other_low


@njit(cache=True)
def _add(terms, count, value):
    """Add ``value`` to the sum of ``terms[:count]``, which stays exact; return the new count."""
    for i in range(count):
        value, terms[i] = _two_sum(value, terms[i])
    terms[count] = value
    return count + 1


@njit(cache=True)
def _difference(lon, turn, other, other_turn):
    """Return three numbers whose sum is the difference of two longitudes."""
    difference, error = _two_sum(lon, -other)
    turns, rest = _two_sum(360.0 * (turn - other_turn), error)
    whole, error = _two_sum(turns, difference)
    return rest, error, whole


@njit(cache=True)
def compare_lons(lon, turn, other, other_turn):
    """Return -1, 0 or 1: one longitude is west of the other, the same, or east of it."""
    terms = np.zeros(3)
    count = 0
    for part in _difference(lon, turn, other, other_turn):
        count = _add(terms, count, part)
    return _sign(terms, count)


@njit(cache=True)
def _sign(terms, count):
    for i in range(count - 1, -1, -1):
        if terms[i] != 0:
            return 1 if terms[i] > 0 else -1
    return 0


@njit(cache=True)
def _exact_side(a, b, place):
    terms = np.zeros(24)
    count = 0
    for sign, first, second in ((1.0, a, b), (-1.0, b, a)):
        across = _difference(first[0], first[1], place[0], place[1])
        up = _two_sum(second[2], -place[2])
        for x in across:
            for y in up:
                product, error = _two_product(sign * x, y)
                count = _add(terms, count, error)
                count = _add(terms, count, product)
    return _sign(terms, count)


@njit(cache=True)
def side(a, b, place):
    """Return 1, -1 or 0: a place is left of the line from ``a`` to ``b``, right of it, or on it. Each is (lon, turn, lat), all float64."""
    left = ((a[0] - place[0]) + 360.0 * (a[1] - place[1])) * (b[2] - place[2])
    right = ((b[0] - place[0]) + 360.0 * (b[1] - place[1])) * (a[2] - place[2])
    error = _ERROR * (abs(left) + abs(right))
    if a[1] != place[1] or b[1] != place[1]:
        error += _ERROR_OF_TURNS * (abs(b[2] - place[2]) + abs(a[2] - place[2]))
    if left - right > error:
        return 1
    if right - left > error:
        return -1
    return _exact_side(a, b, place)
