"""Kernels of :mod:`dskype.bolts.arrays`: blocks of entries in arrays that grow. They import numpy and numba only.

A *block table* is int64[n, >= 3]; the columns START, LENGTH and CAPACITY of row *i* say where the entries of item *i* are in the arrays of the pool.
"""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

START, LENGTH, CAPACITY = range(3)
END, LEFT = 0, 1


@njit(cache=True)
def grown_capacity(capacity, length):
    """Return the next capacity of a block that must hold ``length`` entries."""
    return length if capacity == 0 else max(length, capacity + capacity // 2 + 2)


@njit(cache=True)
def space_needed(block, items, lengths):
    """Return the total capacity of new blocks for the items that outgrow their old ones."""
    need = 0
    for i in range(items.shape[0]):
        capacity = block[items[i], CAPACITY]
        if lengths[i] > capacity:
            need += grown_capacity(capacity, lengths[i])
    return need


@njit(cache=True)
def move_blocks(block, items, lengths, cursor):
    """Give new blocks at the end to the items that outgrow their old ones.

    :param cursor: int64[2]: END, where the next block begins, and LEFT, entries of abandoned blocks; both are updated.
    :returns: (source int64[m], length int64[m], destination int64[m]).
    """
    n = items.shape[0]
    source, length, destination = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    m = 0
    end = cursor[END]
    for i in range(n):
        item = items[i]
        capacity = block[item, CAPACITY]
        if lengths[i] > capacity:
            source[m], length[m], destination[m] = block[item, START], block[item, LENGTH], end
            m += 1
            cursor[LEFT] += capacity
            block[item, START] = end
            block[item, CAPACITY] = grown_capacity(capacity, lengths[i])
            end += block[item, CAPACITY]
    cursor[END] = end
    return source[:m], length[:m], destination[:m]


@njit(cache=True)
def pack_blocks(block):
    """Lay out all blocks from 0 on, in order of items; return the moves as :func:`move_blocks` does, and the end."""
    n = block.shape[0]
    source, length, destination = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    m, end = 0, 0
    for item in range(n):
        if block[item, CAPACITY]:
            source[m], length[m], destination[m] = block[item, START], block[item, LENGTH], end
            m += 1
            block[item, START] = end
            end += block[item, CAPACITY]
    return source[:m], length[:m], destination[:m], end


@njit(cache=True)
def copy_ranges(array, source, length, destination, out):
    """Copy ``array[source:source + length]`` to ``out[destination:]``, range by range."""
    for i in range(source.shape[0]):
        a, b = source[i], destination[i]
        for j in range(length[i]):
            out[b + j] = array[a + j]


@njit(cache=True)
def gather(array, start, length, total):
    """Return the ranges ``array[start:start + length]``, one after another."""
    out = np.empty(total, array.dtype)
    at = 0
    for i in range(start.shape[0]):
        for j in range(length[i]):
            out[at] = array[start[i] + j]
            at += 1
    return out
