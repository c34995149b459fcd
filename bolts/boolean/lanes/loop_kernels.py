"""The operations of :mod:`dskype.bolts.boolean.lanes.vector_kernels` as plain loops, for runs without compilation. Imports numpy and numba only."""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit


@njit(cache=True)
def covered(edges, at, x_low, y_low, x_high, y_high):
    """Return which of 16 rectangles overlap one, in the low 16 bits, and which do so by more than an edge, in the next 16."""
    flat, found, inside = edges.reshape(-1), np.int64(0), np.int64(0)
    for j in range(16):
        west, south = np.int64(flat[at + j]), np.int64(flat[at + 16 + j])
        east, north = np.int64(flat[at + 32 + j]), np.int64(flat[at + 48 + j])
        found |= np.int64((west <= x_high) & (x_low <= east) & (south <= y_high) & (y_low <= north)) << j
        inside |= np.int64((west < x_high) & (x_low < east) & (south < y_high) & (y_low < north)) << j
    return found | (inside << 16)


@njit(cache=True)
def covered_floats(edges, at, x_low, y_low, x_high, y_high):
    """Return which of 16 rectangles overlap one, in 16 bits; as :func:`covered`, of float32."""
    flat, found = edges.reshape(-1), np.int64(0)
    for j in range(16):
        west, south, east, north = flat[at + j], flat[at + 16 + j], flat[at + 32 + j], flat[at + 48 + j]
        found |= np.int64((west <= x_high) & (x_low <= east) & (south <= y_high) & (y_low <= north)) << j
    return found


@njit(cache=True)
def among(codes, at, wanted, first, last):
    """Return for which of 16 lanes all four codes are among ``wanted[first:last]``."""
    flat, found = codes.reshape(-1), np.int64(0)
    for j in range(16):
        have = 0
        for i in range(4):
            code = np.int64(flat[at + 16 * i + j])
            for c in range(first, last):
                if wanted[c] == code:
                    have += 1
                    break
        found |= np.int64(have == 4) << j
    return found


@njit(cache=True)
def wanted_bits(codes, at, bitmap, mask):
    """Return which of the 16 lanes of a mask have four codes whose bits are all set."""
    flat, found = codes.reshape(-1), np.int64(0)
    while mask:
        j = lowest(mask)
        mask &= mask - 1
        bit = np.int64(1)
        for i in range(4):
            code = np.int64(flat[at + 16 * i + j])
            bit &= np.int64(bitmap[code >> 5]) >> (code & 31)
        found |= (bit & 1) << j
    return found


@njit(cache=True)
def flagged(values, at):
    """Return which of 16 int32 are negative."""
    flat, found = values.reshape(-1), np.int64(0)
    for j in range(16):
        found |= np.int64(flat[at + j] < 0) << j
    return found


@njit(cache=True)
def below(values, at, limit):
    """Return which of 16 int32 are below a limit."""
    found = np.int64(0)
    for j in range(16):
        found |= np.int64(values[at + j] < limit) << j
    return found


@njit(cache=True)
def pack(values, at, mask, out, n):
    """Write those of 16 int32 whose bit is set to ``out``, from ``n`` on."""
    flat = values.reshape(-1)
    for j in range(16):
        if mask >> j & 1:
            out[n] = flat[at + j]
            n += 1


@njit(cache=True)
def pack_only(values, at, mask, out, n):
    """Write those of 16 int32 whose bit is set to ``out``, from ``n`` on, and nothing behind them."""
    for j in range(16):
        if mask >> j & 1:
            out[n] = values[at + j]
            n += 1


@njit(cache=True)
def pack_places(first, mask, out, n):
    """Write ``first`` plus the place of each set bit to ``out``, from ``n`` on."""
    for j in range(16):
        if mask >> j & 1:
            out[n] = first + j
            n += 1


@njit(cache=True)
def fill(out, n, value):
    """Write a value 16 times to ``out`` (int32[]), from ``n`` on."""
    for j in range(16):
        out[n + j] = value


@njit(cache=True)
def bits(mask):
    """Return how many bits are set."""
    n = 0
    while mask:
        mask &= mask - 1
        n += 1
    return n


@njit(cache=True)
def lowest(mask):
    """Return the place of the lowest bit that is set; there is one."""
    n = 0
    while not mask >> n & 1:
        n += 1
    return n


@njit(cache=True)
def fetch(array, at):
    """Do nothing: the memory is left to itself."""


@njit(cache=True)
def order(values, at, n):
    """Sort up to 16 int32 in place."""
    for i in range(at + 1, at + n):
        value = values[i]
        j = i - 1
        while j >= at and values[j] > value:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = value


@njit(cache=True)
def order_many(values, at, n):
    """Sort up to 64 int32 in place."""
    order(values, at, n)


@njit(cache=True)
def order_into(values, at, n, out, m):
    """Write up to 32 int32 in rising order to ``out``, from ``m`` on."""
    for i in range(n):
        out[m + i] = values[at + i]
    order(out, m, n)


@njit(cache=True)
def lent(array):
    """Return the array."""
    return array
