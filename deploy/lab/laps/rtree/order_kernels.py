"""Kernels that put the terms of parts in order: the first one represents a part (LAPS, section 4.2), the i-th one at level i."""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["BY_RANK_FALLING", "BY_RANK_RISING", "LOCALLY", "RANDOMLY", "count_terms", "order_terms"]

RANDOMLY, BY_RANK_FALLING, BY_RANK_RISING, LOCALLY = range(4)
_COLUMNS = 100
_SALT = np.int64(0x1B873593)


@njit(cache=True)
def _cell(box):
    """Return the cell of a grid of 100 by 100 over the world in which the centre of a rectangle lies."""
    east = box[2] if box[0] <= box[2] else box[2] + 360.0
    x = ((box[0] + east) / 2 + 180.0) / 360.0
    y = ((box[1] + box[3]) / 2 + 90.0) / 180.0
    column = np.int64(min(max(x - np.floor(x), 0.0), 0.999999) * _COLUMNS)
    return column * _COLUMNS + np.int64(min(max(y, 0.0), 0.999999) * _COLUMNS)


@njit(cache=True)
def _counter(counts, cell, term):
    """Return the counter of a term in a cell; different ones may share it."""
    mixed = cell * 0x1E3779B1 + np.int64(term) * 0x25EBCA77
    return (mixed ^ (mixed >> 15) ^ (mixed >> 31)) & (len(counts) - 1)


@njit(cache=True)
def count_terms(counts, boxes, starts, stops, terms, step):
    """Count the terms of rectangles up, or down, in their cells.

    :param counts: int32[m], m is a power of two.
    :param terms: int32[], dense ids; those of rectangle *i* are ``terms[starts[i]:stops[i]]``.
    """
    for i in range(len(starts)):
        cell = _cell(boxes[i])
        for j in range(starts[i], stops[i]):
            counts[_counter(counts, cell, terms[j])] += step


@njit(cache=True)
def order_terms(strategy, name, counts, boxes, offsets, terms):
    """Put the terms of each part in order, in place.

    :param strategy: RANDOMLY: by a mixture of their bits and the place, the same in every process. BY_RANK_FALLING: the most frequent one first (df).
        BY_RANK_RISING: the rarest one first (idf). LOCALLY: that which the fewest subscriptions in the cell have, the rarer of two.
    :param name: int64[], by dense id: the rank by document frequency.
    """
    key = np.empty(1, np.int64)
    for i in range(len(offsets) - 1):
        first, n = offsets[i], offsets[i + 1] - offsets[i]
        if n < 2:
            continue
        if n > len(key):
            key = np.empty(2 * n, np.int64)
        cell = _cell(boxes[i]) if strategy == LOCALLY else np.int64(0)
        for j in range(n):
            term = terms[first + j]
            if strategy == LOCALLY:
                key[j] = counts[_counter(counts, cell, term)]
            elif strategy == RANDOMLY:
                mixed = ((name[term] & 0xFFFFFFF) ^ (np.int64(boxes[i, 0] * 1e4) & 0xFFFFFF)) * _SALT
                key[j] = (mixed ^ (mixed >> 17)) & 0xFFFFFF
            else:
                key[j] = 0
        for j in range(1, n):  # insertion sort by key, then rank
            term, own, at = terms[first + j], key[j], j
            while at and _after(key[at - 1], name[terms[first + at - 1]], own, name[term], strategy == BY_RANK_FALLING):
                terms[first + at], key[at] = terms[first + at - 1], key[at - 1]
                at -= 1
            terms[first + at], key[at] = term, own


@njit(cache=True)
def _after(key, rank, other_key, other_rank, falling):
    """Tell whether a term belongs behind another one."""
    if key != other_key:
        return key > other_key
    return rank < other_rank if falling else rank > other_rank
