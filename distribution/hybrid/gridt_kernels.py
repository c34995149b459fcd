"""Kernels of the gridt index: from a place and terms to tasks (PS2Stream, section IV-C). Imports numpy and numba only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.distribution.agrid._kernels import cell, search
from dskype.distribution.routing.interest_kernels import find
from dskype.distribution.routing.route_kernels import with_room
from dskype.topology.kernel_cache import njit

__all__ = ["BUCKETS", "TermTasks", "bucket_of", "count_checked", "place", "place_many", "route_areas", "route_points", "tasks_of", "wanted_points"]

BUCKETS = 256
"""Buckets of terms that a leaf does not name; a power of two."""


class TermTasks(NamedTuple):
    """Which task has which term in which leaf (the paper's H1).

    :ivar task_of: int32[leaves], the task that has the whole leaf, or ``~i``: number *i* of the leaves that terms divide.
    :ivar buckets: int32[divided leaves, BUCKETS], the tasks of terms that are not named.
    :ivar terms: int64[capacity], a power of two: a hash table as in :mod:`~dskype.distribution.routing.interest_kernels`, of the terms that are named.
    :ivar seconds: int32[capacity], numbers of divided leaves.
    :ivar values: int64[capacity], task + 1; 0: the slot is empty.
    """

    task_of: np.ndarray
    buckets: np.ndarray
    terms: np.ndarray
    seconds: np.ndarray
    values: np.ndarray


@njit(cache=True, inline="always")
def bucket_of(term):
    """Return the bucket of a term: Fibonacci hashing."""
    return np.int64((np.uint64(np.int64(term)) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(56))


@njit(cache=True, inline="always")
def _task(tasks, divided, term):
    """Return the task of a term in a divided leaf."""
    value = tasks.values[find(tasks, term, divided)]
    return value - 1 if value else np.int64(tasks.buckets[divided, bucket_of(term)])


@njit(cache=True)
def tasks_of(divided, terms, tasks):
    """Return the task of each term in a divided leaf, int64[n]."""
    found = np.empty(len(terms), np.int64)
    for i in range(len(terms)):
        found[i] = _task(tasks, divided, terms[i])
    return found


@njit(cache=True)
def route_points(offsets, terms, leaves, tasks, count):
    """Return (rows int64[m], tasks int32[m]): the tasks of each message's terms where it is, each once.

    :param offsets: int64[n + 1]; the terms of message *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :param leaves: int32[n], where it is.
    :param tasks: :class:`TermTasks`; ``count``: number of tasks.
    """
    rows, to = np.empty(len(leaves) + count, np.int64), np.empty(len(leaves) + count, np.int32)
    last, total = np.zeros(count, np.int64), 0
    for i in range(len(leaves)):
        begin, end = offsets[i], offsets[i + 1]
        if begin == end:
            continue
        rows, to = with_room(rows, to, total, count)
        task = tasks.task_of[leaves[i]]
        if task >= 0:
            rows[total], to[total] = i, task
            total += 1
            continue
        for p in range(begin, end):
            own = _task(tasks, ~task, terms[p])
            if last[own] != i + 1:
                last[own] = i + 1
                rows[total], to[total] = i, own
                total += 1
    return rows[:total], to[:total]


@njit(cache=True)
def _gather(area, some, grid, tasks, mark, found):
    """Write the tasks that some terms have in the leaves that an area touches to ``found``, each once; return how many there are.

    :param area: float64[4], west, south, east, north; west > east crosses the antimeridian.
    :param mark: (int64[tasks], a number that is in none of its places).
    """
    last, stamp = mark
    total = 0
    x0, x1 = cell(area[0], grid.west, grid.per_lon, grid.columns), cell(area[2], grid.west, grid.per_lon, grid.columns)
    y0, y1 = cell(area[1], grid.south, grid.per_lat, grid.rows), cell(area[3], grid.south, grid.per_lat, grid.rows)
    crosses = area[0] > area[2]
    for part in range(2 if crosses else 1):
        touched = search(0 if part == 1 else x0, y0, grid.columns - 1 if crosses and part == 0 else x1, y1, grid)
        for q in range(len(touched)):
            task = np.int64(tasks.task_of[touched[q]])
            if task >= 0:
                if last[task] != stamp:
                    last[task] = stamp
                    found[total] = task
                    total += 1
                continue
            for p in range(len(some)):
                own = _task(tasks, ~task, some[p])
                if last[own] != stamp:
                    last[own] = stamp
                    found[total] = own
                    total += 1
    return total


@njit(cache=True)
def route_areas(offsets, terms, areas, grid, tasks, count):
    """Return (rows int64[m], tasks int32[m]): the tasks of each message's terms in all leaves that its area touches, each once.

    :param areas: float64[n, 4], west, south, east, north; other parameters as in :func:`route_points`.
    :param grid: :class:`~dskype.distribution.agrid._kernels.GridArrays`.
    """
    rows, to = np.empty(2 * len(areas) + count, np.int64), np.empty(2 * len(areas) + count, np.int32)
    last, found, total = np.zeros(count, np.int64), np.empty(count, np.int64), 0
    for i in range(len(areas)):
        if offsets[i] == offsets[i + 1]:
            continue
        rows, to = with_room(rows, to, total, count)
        for q in range(_gather(areas[i], terms[offsets[i] : offsets[i + 1]], grid, tasks, (last, i + 1), found)):
            rows[total], to[total] = i, found[q]
            total += 1
    return rows[:total], to[:total]


@njit(cache=True)
def place(area, terms, grid, tasks, count):
    """Return the tasks of some terms in the leaves that an area touches, int64[], rising, each once.

    :param area: float64[4]; ``terms``: int64[n], the routing terms of a subscription; others as in :func:`route_areas`.
    """
    found = np.empty(count, np.int64)
    first = np.int64(1)  # with a plain 1, another form of _gather would be compiled for this constant
    return np.sort(found[: _gather(area, terms, grid, tasks, (np.zeros(count, np.int64), first), found)])


@njit(cache=True)
def place_many(areas, offsets, terms, grid, tasks, count):
    """Return (offsets int64[n + 1], tasks int32[]): where each of many subscriptions lives; its tasks rise.

    :param areas: float64[n, 4]; ``offsets``: int64[n + 1]; the routing terms of subscription *i* are ``terms[offsets[i]:offsets[i + 1]]``. Others as in :func:`place`.
    """
    ends, to, total = np.zeros(len(areas) + 1, np.int64), np.empty(2 * len(areas) + count, np.int32), 0
    last, found = np.zeros(count, np.int64), np.empty(count, np.int64)
    for i in range(len(areas)):
        several = _gather(areas[i], terms[offsets[i] : offsets[i + 1]], grid, tasks, (last, i + 1), found)
        if total + several > len(to):
            more = np.empty(2 * len(to) + count, np.int32)
            more[:total] = to[:total]
            to = more
        found[:several].sort()
        to[total : total + several] = found[:several]
        total += several
        ends[i + 1] = total
    return ends, to[:total]


@njit(cache=True)
def wanted_points(documents, leaves, tasks, words, withheld):
    """Route messages by place, terms and interest in one step (the paper's H2).

    A message goes to a task if the task has one of its terms where it is, and is interested in this term.

    :param documents: :class:`~dskype.distribution.routing.interest_kernels.Documents`.
    :param leaves: int32[n], where they are.
    :param words: :class:`~dskype.distribution.routing.interest_kernels.Words`, by tasks.
    :param withheld: int64[tasks], raised to the highest position of a message that has a term of the task, and does not go there.
    :returns: (rows int64[m], tasks int32[m], how many pairs there would be without interest).
    """
    offsets, terms, count = documents.offsets, documents.terms, len(withheld)
    rows, to = np.empty(len(leaves) + count, np.int64), np.empty(len(leaves) + count, np.int32)
    seen, sent, met = np.zeros(count, np.int64), np.zeros(count, np.int64), np.empty(count, np.int64)
    total = before = 0
    for i in range(len(leaves)):
        begin, end = offsets[i], offsets[i + 1]
        if begin == end:
            continue
        rows, to = with_room(rows, to, total, count)
        task, several = np.int64(tasks.task_of[leaves[i]]), 0
        for p in range(begin, end):
            own = task if task >= 0 else _task(tasks, ~task, terms[p])
            if seen[own] != i + 1:
                seen[own] = i + 1
                met[several] = own
                several += 1
            if sent[own] != i + 1 and (words.values[find(words, terms[p], own >> 6)] >> np.uint64(own & 63)) & np.uint64(1):
                sent[own] = i + 1
                rows[total], to[total] = i, own
                total += 1
                if task >= 0:
                    break
        before += several
        for q in range(several):
            if sent[met[q]] != i + 1 and documents.positions[i] > withheld[met[q]]:
                withheld[met[q]] = documents.positions[i]
    return rows[:total], to[:total], before


@njit(cache=True)
def count_checked(offsets, entries, lat, lon, posted):
    """Return for each term of each message how many subscriptions it makes a task check, float64[].

    These are the subscriptions with this routing term whose rectangle the message is in, and those with this term and no rectangle.

    :param offsets: int64[n + 1]; the terms of message *i* are ``entries[offsets[i]:offsets[i + 1]]``: numbers of terms in ``posted``; -1: no subscription has it.
    :param lat: float64[n], degrees; ``lon``: likewise.
    :param posted: :class:`~dskype.distribution.agrid._kernels.Posted`.
    """
    found = np.zeros(len(entries))
    for i in range(len(lat)):
        x, y = lon[i], lat[i]
        for p in range(offsets[i], offsets[i + 1]):
            term = entries[p]
            if term < 0:
                continue
            found[p] = posted.anywhere[term]
            for q in range(posted.start[term], posted.start[term + 1]):
                box = posted.boxes[posted.rows[q]]
                between = box[0] <= x <= box[2] if box[0] <= box[2] else (x >= box[0] or x <= box[2])
                found[p] += between and box[1] <= y <= box[3]
    return found
