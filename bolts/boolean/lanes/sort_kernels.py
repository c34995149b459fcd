"""Sorting of the slots that one message matches. Imports numpy and numba only."""

from __future__ import annotations

import numpy as np

from dskype.bolts.boolean.lanes.vector_kernels import below, bits, order, order_into, order_many, pack, pack_only
from dskype.topology.kernel_cache import njit

_LANES = 16
_NETWORK = 64  # values that are sorted at once
_BUCKETED = 256  # values from which on buckets are tried
_FILL, _FULL = 10, 32  # values of a bucket on average, and at most


@njit(cache=True, inline="always")
def _divide(values, low, high, limit, spare):
    """Put those of ``values[low:high]`` that are below a limit before the others; return where these begin.

    Whole vectors write up to 16 places behind what they pack, which in ``values`` are among those that have been read already. Nothing
    behind ``high`` is written to, and there is no branch on a value.
    """
    left, right, full = low, 0, low + (high - low) // _LANES * _LANES
    for i in range(low, full, _LANES):
        mask = below(values, i, limit)
        n = bits(mask)
        pack(values, i, mask ^ 0xFFFF, spare, right)
        pack(values, i, mask, values, left)
        left += n
        right += _LANES - n
    if full < high:
        rest = (1 << (high - full)) - 1
        mask = below(values, full, limit) & rest
        pack(values, full, mask ^ rest, spare, right)
        right += bits(mask ^ rest)
        pack_only(values, full, mask, values, left)
        left += bits(mask)
    for i in range(0, right, _LANES):
        n = min(right - i, _LANES)
        pack_only(spare, i, (1 << n) - 1, values, left + i)
    return left


@njit(cache=True)
def _sort_by_buckets(values, low, high, largest, spare):
    """Sort ``values[low:high]`` by equal parts of the range of values; return False, and change nothing, if many are in the same part.

    One pass takes each value to its bucket, and one network sorts a bucket. Slots have nothing to do with places, so those of a message are
    mostly all over the range.
    """
    buckets = (high - low) // _FILL + 1
    counts = _FULL * buckets
    for b in range(counts, counts + buckets):
        spare[b] = 0
    first, factor = np.uint64(counts), np.uint64((buckets << 32) // (largest + 1))  # unsigned: numba does not check whether a place is below 0
    for i in range(low, high):
        b = (np.uint64(values[i]) * factor) >> np.uint64(32)
        n = np.uint64(spare[first + b])
        if n == np.uint64(_FULL):
            return False
        spare[np.uint64(_FULL) * b + n] = values[i]
        spare[first + b] = n + np.uint64(1)
    b = np.int64(0)
    while low + _FULL <= high:
        n = np.int64(spare[counts + b])
        order_into(spare, _FULL * b, n, values, low)
        low += n
        b += 1
    last, rest = low, _FULL * b
    while b < buckets:
        for i in range(_FULL * b, _FULL * b + spare[counts + b]):
            values[last] = spare[i]
            last += 1
        b += 1
    if high > low:
        order_into(values, low, high - low, spare, rest)
        for i in range(high - low):
            values[low + i] = spare[rest + i]
    return True


@njit(cache=True)
def sort_slots(values, low, high, largest, spare, stack):
    """Sort ``values[low:high]``, which are 0 to ``largest``, in place.

    Many values go to buckets first. Otherwise, or if these do not suit, divides the range of values, not their number: each halving is a
    pass of a few instructions for 16 values, and at most 31 are needed whatever the values are.

    :param values: int32[], 16 places longer than ``high``.
    :param spare: int32[], scratch, 16 places longer than ``high - low``; buckets need ``3.3 * (high - low) + 33``.
    :param stack: int64[40, 4], scratch.
    """
    n = high - low
    if n >= _BUCKETED and (_FULL + 1) * (n // _FILL + 1) <= spare.shape[0] and _sort_by_buckets(values, low, high, largest, spare):
        return
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = low, high, 0, largest
    depth = 1
    while depth:
        depth -= 1
        low, high, least, most = stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3]
        while high - low > _NETWORK and least < most:
            middle = (least + most + 1) >> 1
            at = _divide(values, low, high, middle, spare)
            stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = at, high, middle, most
            depth += 1
            high, most = at, middle - 1
        if high - low > _LANES:
            order_many(values, low, high - low)
        elif high - low > 1:
            order(values, low, high - low)
