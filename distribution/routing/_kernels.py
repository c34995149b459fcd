"""Kernels of the distributors: where messages and subscriptions go. Imports no other part of the distributors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.spouts.score_kernels import score_anywhere
from dskype.topology.kernel_cache import njit

__all__ = ["FlatPlan", "Lines", "Routes", "Subscriptions", "cells_of", "place", "place_all", "prefix_lengths", "route"]


class Lines(NamedTuple):
    """Trees of lines that cut the world. Line *i* sends a place to ``below[i]`` or ``above[i]``. A place on the line counts as above.

    :ivar axis: int64[lines], 0: the line is at a latitude; 1: at a longitude.
    :ivar at: float64[lines], degrees.
    :ivar below: int64[lines], the next line if >= 0, else ``~number`` of a cell or group.
    :ivar above: int64[lines], like ``below``.
    """

    axis: np.ndarray
    at: np.ndarray
    below: np.ndarray
    above: np.ndarray


class Routes(NamedTuple):
    """Which tasks need the messages with a term. The last entry whose bound is not above the term has them.

    :ivar bounds: int64[entries], first term of each entry, rising from 0.
    :ivar offsets: int64[entries + 1]; the tasks of entry *e* are ``tasks[offsets[e]:offsets[e + 1]]``, rising.
    :ivar tasks: int64[], 0 to tasks - 1.
    """

    bounds: np.ndarray
    offsets: np.ndarray
    tasks: np.ndarray


class FlatPlan(NamedTuple):
    """A distribution plan as arrays.

    A subscription goes from ``root`` along the lines to cell *c*, there to the last of ``ranges[cells[c]:cells[c + 1]]`` that is not above
    its term, and from the root of that range along the lines to a group of tasks.

    :ivar root: the first line if >= 0, else ``~cell``.
    :ivar lines: lines of the trees above and below the ranges.
    :ivar cells: int64[cells + 1], into ``ranges``.
    :ivar ranges: int64[], first term of each range, rising within a cell.
    :ivar roots: int64[], the first line of each range if >= 0, else ``~group``.
    :ivar group_offsets: int64[groups + 1], into ``group_tasks``.
    :ivar group_tasks: int64[], 0 to tasks - 1.
    :ivar routes: routes of messages.
    """

    root: int
    lines: Lines
    cells: np.ndarray
    ranges: np.ndarray
    roots: np.ndarray
    group_offsets: np.ndarray
    group_tasks: np.ndarray
    routes: Routes


class Subscriptions(NamedTuple):
    """Many subscriptions as columns.

    :ivar k: int64[n], >= 1.
    :ivar alpha: float64[n], 0 to 1.
    :ivar lat: float64[n], degrees.
    :ivar lon: float64[n], degrees.
    :ivar offsets: int64[n + 1]; the keywords of subscription *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :ivar terms: int64[], term ids, rising within a subscription.
    :ivar weights: float64[], of the keywords; of norm 1 within a subscription.
    """

    k: np.ndarray
    alpha: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray


@njit(cache=True, inline="always")
def _last_not_above(sorted_values, low, high, value):
    """Return the last index in [low, high) whose value is not above ``value``, or ``low`` if there is none."""
    while high - low > 1:
        middle = (low + high) >> 1
        if sorted_values[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, inline="always")
def _descend(node, lines, lat, lon):
    """Follow the lines from ``node`` to a point; return the number of its cell or group."""
    axis, at, below, above = lines.axis, lines.at, lines.below, lines.above
    while node >= 0:
        x = lat if axis[node] == 0 else lon
        node = below[node] if x < at[node] else above[node]
    return ~node


@njit(cache=True)
def route(offsets, terms, tasks, routes):
    """Return (rows int64[m], tasks int32[m]): message ``rows[i]`` goes to ``tasks[i]``, each message to the tasks of its terms, rising, each once.

    :param offsets: int64[n + 1], into ``terms`` (int64).
    :param tasks: number of tasks.
    """
    bounds, route_offsets, route_tasks = routes.bounds, routes.offsets, routes.tasks
    n = len(offsets) - 1
    base = offsets[0]
    nth = np.empty(offsets[n] - base, np.int64)
    total = 0
    for i in range(n):
        most = 0
        for p in range(offsets[i], offsets[i + 1]):
            term = terms[p]
            if term < 0:
                nth[p - base] = -1 - ((-1 - term) % tasks)
                most += 1
            else:
                e = _last_not_above(bounds, 0, len(bounds), term)
                nth[p - base] = e
                most += route_offsets[e + 1] - route_offsets[e]
        total += min(most, tasks)
    rows, to = np.empty(total, np.int64), np.empty(total, np.int32)
    last = np.full(tasks, -1, np.int64)  # the last message that goes to each task
    found = 0
    for i in range(n):
        begin = found
        for p in range(offsets[i], offsets[i + 1]):
            e = nth[p - base]
            if e < 0:
                task = -1 - e
                if last[task] != i:
                    last[task] = i
                    to[found] = task
                    found += 1
            else:
                for q in range(route_offsets[e], route_offsets[e + 1]):
                    task = route_tasks[q]
                    if last[task] != i:
                        last[task] = i
                        to[found] = task
                        found += 1
        for p in range(begin, found):
            rows[p] = i
        for p in range(begin + 1, found):  # few: insertion sort
            task, q = to[p], p
            while q > begin and to[q - 1] > task:
                to[q] = to[q - 1]
                q -= 1
            to[q] = task
    return rows[:found], to[:found]


@njit(cache=True)
def _covered(entry, placed, route_offsets, route_tasks):
    """Tell whether one of the chosen tasks gets every message with a term.

    :param entry: the entry of the routes for the term; -1 - task for an unknown term.
    """
    if entry < 0:
        return placed[-1 - entry]
    for q in range(route_offsets[entry], route_offsets[entry + 1]):
        if placed[route_tasks[q]]:
            return True
    return False


@njit(cache=True)
def place(terms, weights, alpha, lat, lon, limit, id_hash, tasks, plan, placed):
    """Choose tasks keyword by keyword until a message that goes to none of them cannot score ``limit``; return the guard.

    :param limit: -inf: all keywords have to be covered; inf: one keyword is enough.
    :param id_hash: CRC-32 of the subscription's id.
    :param plan: a :class:`FlatPlan`.
    :param placed: bool[tasks], all False on entry; the chosen tasks are set to True.
    """
    n = len(terms)
    if n == 0:
        placed[id_hash % tasks] = True
        return -np.inf
    lines, ranges, cells, group_offsets = plan.lines, plan.ranges, plan.cells, plan.group_offsets
    bounds, route_offsets, route_tasks = plan.routes.bounds, plan.routes.offsets, plan.routes.tasks
    cell = _descend(plan.root, lines, lat, lon)
    entries = np.empty(n, np.int64)
    for i in range(n):
        entries[i] = -1 - ((-1 - terms[i]) % tasks) if terms[i] < 0 else _last_not_above(bounds, 0, len(bounds), terms[i])
    some = False
    while True:
        first, rest = -1, 0.0
        for i in range(n):
            if not _covered(entries[i], placed, route_offsets, route_tasks):
                rest += weights[i] * weights[i]
                if first < 0:
                    first = i
        if first < 0:
            return -np.inf
        guard = score_anywhere(alpha, np.sqrt(rest))
        if some and guard < limit:
            return guard
        if entries[first] < 0:
            placed[-1 - entries[first]] = True
        else:
            r = _last_not_above(ranges, cells[cell], cells[cell + 1], terms[first])
            group = _descend(plan.roots[r], lines, lat, lon)
            begin = group_offsets[group]
            placed[plan.group_tasks[begin + id_hash % (group_offsets[group + 1] - begin)]] = True
        some = True


@njit(cache=True)
def place_all(subscriptions, limits, hashes, tasks, plan):
    """Apply :func:`place` to many subscriptions; return (offsets int64[n + 1], tasks int32[], guards float64[n]).

    :param subscriptions: :class:`Subscriptions`.
    :param limits: float64[n]; ``hashes``: int64[n].
    """
    offsets, terms, weights = subscriptions.offsets, subscriptions.terms, subscriptions.weights
    alpha, lat, lon = subscriptions.alpha, subscriptions.lat, subscriptions.lon
    n = len(offsets) - 1
    out_offsets, guards = np.zeros(n + 1, np.int64), np.empty(n)
    out = np.empty(2 * n + tasks, np.int32)
    placed = np.zeros(tasks, np.bool_)
    found = 0
    for i in range(n):
        placed[:] = False
        begin, end = offsets[i], offsets[i + 1]
        guards[i] = place(terms[begin:end], weights[begin:end], alpha[i], lat[i], lon[i], limits[i], hashes[i], tasks, plan, placed)
        if found + tasks > len(out):
            grown = np.empty(2 * len(out) + tasks, np.int32)
            grown[:found] = out[:found]
            out = grown
        for task in range(tasks):
            if placed[task]:
                out[found] = task
                found += 1
        out_offsets[i + 1] = found
    return out_offsets, out[:found], guards


@njit(cache=True)
def prefix_lengths(offsets, weights, alpha, limits):
    """Return the lengths of loose prefixes (journal paper, Definition 12).

    A prefix is the fewest keywords, at least one, such that ``alpha + (1 - alpha) * norm(weights of the others)`` is below the limit.
    """
    n = len(offsets) - 1
    lengths = np.zeros(n, np.int64)
    for i in range(n):
        begin, p, rest = offsets[i], offsets[i + 1], 0.0
        while p > begin + 1:
            rest += weights[p - 1] * weights[p - 1]
            if not score_anywhere(alpha[i], np.sqrt(rest)) < limits[i]:
                break
            p -= 1
        lengths[i] = p - begin
    return lengths


@njit(cache=True)
def cells_of(lat, lon, root, lines):
    """Return the cell of each place (float64[n], degrees), int64[n]."""
    found = np.empty(len(lat), np.int64)
    for i in range(len(lat)):
        found[i] = _descend(root, lines, lat[i], lon[i])
    return found
