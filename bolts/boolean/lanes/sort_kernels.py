"""Sorting of the slots that one message matches. Imports numpy and numba only."""

from __future__ import annotations

from numba import njit

from dskype.bolts.boolean.lanes.vector_kernels import below, bits, order, order_many, pack, pack_only

_LANES = 16
_NETWORK = 64  # values that are sorted at once


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
def sort_slots(values, low, high, largest, spare, stack):
    """Sort ``values[low:high]``, which are 0 to ``largest``, in place.

    Divides the range of values, not their number: each halving is a pass of a few instructions for 16 values, and at most 31 are needed
    whatever the values are.

    :param values: int32[], 16 places longer than ``high``.
    :param spare: int32[high - low + 16], scratch.
    :param stack: int64[40, 4], scratch.
    """
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
