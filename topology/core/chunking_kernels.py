"""The kernel that finds content-defined borders. It imports numpy and numba only."""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

_ONE = np.uint64(1)
_NONE = np.uint64(0)
_WINDOW = 64  # bytes that a gear hash depends on


@njit(cache=True)
def find_borders(data, gear, mask, least, most):
    """Return the ends of the pieces of ``data``.

    A piece ends where the gear hash of the last 64 bytes has no bit of ``mask``, but it has at least ``least`` and at most
    ``most`` bytes; the last one may be shorter.

    :param data: uint8[n].
    :param gear: uint64[256], a random number for each byte.
    :param mask: uint64.
    :returns: int64[pieces], ascending; the last one is n.
    """
    n = len(data)
    borders = np.empty(n // least + 2, np.int64)
    count, start = 0, 0
    while start < n:
        end = min(n, start + most)
        position = min(end, start + max(0, least - _WINDOW))
        value = _NONE
        while position < end:
            value = (value << _ONE) + gear[data[position]]
            position += 1
            if value & mask == _NONE and position - start >= least:
                break
        borders[count] = position
        count += 1
        start = position
    return borders[:count]
