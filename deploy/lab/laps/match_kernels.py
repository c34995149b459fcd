"""Kernels that indexes of parts share when they match: which terms a message has, and whether a part is satisfied."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.topk._kernels import find_term
from dskype.deploy.lab.laps.parts_kernels import SLOT, program_of, terms_of
from dskype.deploy.lab.rtree_kernels import EAST, NORTH, SOUTH, WEST
from dskype.topology.kernel_cache import njit

__all__ = ["Messages", "Scratch", "enlarged", "mark_terms", "overlap", "put", "satisfied", "sorted_once"]


class Messages(NamedTuple):
    """Messages as kernels read them; arrays may be read-only.

    :ivar areas: float64[n, 4], WEST, SOUTH, EAST, NORTH; a point has no extent. WEST > EAST crosses the antimeridian.
    :ivar offsets: int64[n + 1]; the terms of message *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :ivar key, local: of the dense ids, see :func:`dskype.bolts.topk._kernels.find_term`.
    """

    areas: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    key: np.ndarray
    local: np.ndarray


class Scratch(NamedTuple):
    """What is kept between calls, so that nothing has to be cleared.

    :ivar now: int64[1], the number of the present search.
    :ivar stamp: int32[terms], by dense id: the last search whose message has the term.
    :ivar seen: int32[parts], of the Rt++-tree: search * 32 + how many of the part's terms were found.
    """

    now: np.ndarray
    stamp: np.ndarray
    seen: np.ndarray


@njit(cache=True)
def mark_terms(messages, i, scratch, mine):
    """Begin a search for message ``i``: mark its terms, and write the dense ids of those that are known to ``mine``; return how many."""
    scratch.now[0] += 1
    now, n = scratch.now[0], 0
    for j in range(messages.offsets[i], messages.offsets[i + 1]):
        term = find_term(messages.terms[j], messages.key, messages.local)
        if term >= 0:
            scratch.stamp[term] = now
            mine[n] = term
            n += 1
    return n


@njit(cache=True)
def overlap(box, area):
    """Tell whether two rectangles overlap; common borders count. One with WEST > EAST crosses the antimeridian."""
    if box[SOUTH] > area[NORTH] or area[SOUTH] > box[NORTH]:
        return False
    after, before = box[WEST] <= area[EAST], area[WEST] <= box[EAST]
    if box[WEST] <= box[EAST]:
        return (after and before) if area[WEST] <= area[EAST] else (after or before)
    return after or before or area[WEST] > area[EAST]


@njit(cache=True)
def satisfied(index, scratch, part, skip):
    """Tell whether the message has the terms of a part, and whether its program says so.

    :param skip: how many terms are known to be there.
    """
    now = scratch.now[0]
    first, last = terms_of(index, part)
    for at in range(first + skip, last):
        if scratch.stamp[index.pool[at]] != now:
            return False
    program = program_of(index, part)
    if program < 0:
        return True
    size = np.int64(index.pool[program]) // 3
    at = np.int64(0)
    while at < size:
        literal = program + 1 + 3 * at
        at = np.int64(index.pool[literal + 1] if scratch.stamp[index.pool[literal]] == now else index.pool[literal + 2])
    return at == size


@njit(cache=True)
def put(index, part, found, n):
    """Write the slot of a part that matches behind the first ``n`` found; there is room. Return how many there are."""
    found[n] = index.part[part, SLOT]
    return n + 1


@njit(cache=True)
def enlarged(array, n):
    """Return ``array``, or a larger copy if it has no room for ``n`` elements."""
    if n <= len(array):
        return array
    larger = np.empty(2 * n, array.dtype)
    larger[: len(array)] = array
    return larger


@njit(cache=True)
def sorted_once(found, n):
    """Sort the first ``n`` slots, and leave each only once; return how many remain."""
    if n < 2:
        return n
    found[:n] = np.sort(found[:n])
    m = 1
    for i in range(1, n):
        if found[i] != found[m - 1]:
            found[m] = found[i]
            m += 1
    return m
