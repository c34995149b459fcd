"""Loops of the distributors: where messages and subscriptions go, and what plans are learned from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

__all__ = [
    "Assignment",
    "FlatPlan",
    "Lines",
    "Routes",
    "Subscriptions",
    "SweepLimits",
    "Window",
    "assign_partitions",
    "axis_costs",
    "cap_ranges",
    "cells_of",
    "halve_range",
    "place",
    "place_all",
    "prefix_lengths",
    "range_cost",
    "route",
    "shared_rest",
    "short_ranges",
    "thresholds",
]

MARGIN = 1e-9
"""Added to every guard: more than all rounding errors of a score together."""


class Lines(NamedTuple):
    """Trees of lines that cut the world. Line *i* sends a place to ``below[i]`` or ``above[i]``; a place on the line is above it.

    :ivar axis: int64[lines], 0: the line is at a latitude; 1: at a longitude.
    :ivar at: float64[lines], degrees.
    :ivar below: int64[lines], the next line if >= 0, else ~number of a cell or group.
    :ivar above: int64[lines], like ``below``.
    """

    axis: np.ndarray
    at: np.ndarray
    below: np.ndarray
    above: np.ndarray


class Routes(NamedTuple):
    """Which tasks need the messages with a term: those of the last entry whose bound is not above the term.

    :ivar bounds: int64[entries], first term of each entry, rising from 0.
    :ivar offsets: int64[entries + 1]; the tasks of entry *e* are ``tasks[offsets[e]:offsets[e + 1]]``, rising.
    :ivar tasks: int64[], 0 to tasks - 1.
    """

    bounds: np.ndarray
    offsets: np.ndarray
    tasks: np.ndarray


class FlatPlan(NamedTuple):
    """A distribution plan as arrays.

    A subscription goes from ``root`` along the lines to a cell, there to the last of ``ranges[cells[c]:cells[c + 1]]`` that is not above
    its term, and from the range's root along the lines to a group of tasks.

    :ivar root: the first line if >= 0, else ~cell.
    :ivar lines: of the trees above the ranges and below them.
    :ivar cells: int64[cells + 1], into ``ranges``.
    :ivar ranges: int64[], first term of each range, rising within a cell.
    :ivar roots: int64[], of each range its first line if >= 0, else ~group.
    :ivar group_offsets: int64[groups + 1], into ``group_tasks``.
    :ivar group_tasks: int64[], 0 to tasks - 1.
    :ivar routes: for messages.
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
    """Many subscriptions.

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


class Window(NamedTuple):
    """The messages of a window and their postings.

    :ivar lat: float64[m], degrees.
    :ivar lon: float64[m], degrees.
    :ivar terms: int64[v], the terms that occur, rising.
    :ivar start: int64[v + 1]; the postings of ``terms[i]`` are ``start[i]`` to ``start[i + 1]``.
    :ivar rows: int64[postings], the message of each, 0 to m - 1.
    :ivar weights: float64[postings], of the term in the message.
    """

    lat: np.ndarray
    lon: np.ndarray
    terms: np.ndarray
    start: np.ndarray
    rows: np.ndarray
    weights: np.ndarray


class Assignment(NamedTuple):
    """Where documents are while partitions are assigned to tasks, see :func:`assign_partitions`, which changes all but ``shared``.

    :ivar single: uint16[subscriptions, tasks], how many of a subscription's single partitions are at a task.
    :ivar shared: uint16[subscriptions, tasks], how many of its shared partitions are there.
    :ivar heard: uint16[messages, tasks], how many of a message's partitions are there.
    :ivar subscriptions: float64[tasks], how many each task has.
    :ivar work: float64[tasks], the work of these.
    :ivar messages: float64[tasks], how many each task gets.
    """

    single: np.ndarray
    shared: np.ndarray
    heard: np.ndarray
    subscriptions: np.ndarray
    work: np.ndarray
    messages: np.ndarray


class SweepLimits(NamedTuple):
    """What tasks may take in one sweep of :func:`assign_partitions`.

    :ivar overhead: work of a message that comes to a task, > 0, in the unit of the subscriptions' work.
    :ivar gain: what a message that is at a task already counts for; a subscription counts 1.
    :ivar cap: of a task's load divided by the mean load. A task takes a partition only up to it; if no task can, the one that exceeds it least does.
    :ivar product_mean: mean of subscriptions x messages of a task; negative: take the mean of the present state instead of both means.
    :ivar work_mean: mean work of a task.
    """

    overhead: float
    gain: float
    cap: float
    product_mean: float
    work_mean: float


@njit(cache=True, inline="always")
def _last_not_above(sorted_values, low, high, value):
    """Return the last index in [low, high) whose value is not above ``value``; low if none is."""
    while high - low > 1:
        middle = (low + high) >> 1
        if sorted_values[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, inline="always")
def _descend(node, lines, lat, lon):
    """Return the number of the cell or group that holds a point, from a line on."""
    axis, at, below, above = lines.axis, lines.at, lines.below, lines.above
    while node >= 0:
        x = lat if axis[node] == 0 else lon
        node = below[node] if x < at[node] else above[node]
    return ~node


@njit(cache=True)
def route(offsets, terms, tasks, routes):
    """Return (rows int64[m], tasks int32[m]): the union of the tasks of each message's terms; those of a message rise.

    :param offsets: int64[n + 1], into ``terms`` (int64).
    :param tasks: how many tasks there are.
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
    last = np.full(tasks, -1, np.int64)  # the last message that went to a task
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
    """Tell whether one of the chosen tasks gets every message with a term. ``entry`` is of the routes, or -1 - task of an unknown term."""
    if entry < 0:
        return placed[-1 - entry]
    for q in range(route_offsets[entry], route_offsets[entry + 1]):
        if placed[route_tasks[q]]:
            return True
    return False


@njit(cache=True)
def place(terms, weights, alpha, lat, lon, limit, id_hash, tasks, plan, placed):
    """Choose tasks, keywords from the first on, until no message that misses them all scores ``limit``; return the guard.

    :param limit: -inf: until all keywords are covered; inf: one keyword is enough.
    :param id_hash: CRC-32 of the subscription's id.
    :param plan: a :class:`FlatPlan`.
    :param placed: bool[tasks], all False; becomes the choice.
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
        guard = alpha + (1.0 - alpha) * np.sqrt(rest) + MARGIN
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
    """Return (offsets int64[n + 1], tasks int32[], guards float64[n]): :func:`place` for many.

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
    """Return the lengths of loose prefixes, at least 1 (journal paper, Definition 12): the fewest keywords, from the first on, so that
    ``alpha + (1 - alpha) * norm(weights of the others)`` is below the limit."""
    n = len(offsets) - 1
    lengths = np.zeros(n, np.int64)
    for i in range(n):
        begin, p, rest = offsets[i], offsets[i + 1], 0.0
        while p > begin + 1:
            rest += weights[p - 1] * weights[p - 1]
            if not alpha[i] + (1.0 - alpha[i]) * np.sqrt(rest) + MARGIN < limits[i]:
                break
            p -= 1
        lengths[i] = p - begin
    return lengths


# -- ranges of keywords ---------------------------------------------------------------------------
# ``s`` and ``m`` are the postings of subscriptions and of messages, see dskype.distribution.learning.Postings.


@njit(cache=True)
def range_cost(begin, end, s, m):
    """Return the sum of the weights of the subscriptions, and the number of messages, with a keyword in [begin, end)."""
    weight, messages = 0.0, 0
    for p in range(s.start[begin], s.start[end]):
        if s.before[p] < begin:
            weight += s.weight[p]
    for p in range(m.start[begin], m.start[end]):
        messages += m.before[p] < begin
    return weight, messages


@njit(cache=True)
def cap_ranges(cap, overhead, most, shared, s_postings, m_postings, first, parts):
    """Cut the vocabulary into ranges, each as long as its cost does not exceed the cap.

    :param overhead: a range costs the weights of its subscriptions, and this for each of its messages; negative: weights x messages.
    :param shared: a single keyword above the cap is parted among as many tasks as it takes; else the cap does not count for it.
    :param first: int64[most], becomes the first term of each range; ``parts`` alike: among how many tasks.
    :returns: (ranges, tasks); tasks is ``most`` + 1 if they are too few.
    """
    s_start, s_before, s_weight = s_postings.start, s_postings.before, s_postings.weight
    m_start, m_before = m_postings.start, m_postings.before
    count = used = 0
    begin = term = m = 0
    s = 0.0
    vocabulary = len(s_start) - 1
    while term < vocabulary:
        ds, dm = 0.0, 0
        for p in range(s_start[term], s_start[term + 1]):
            if s_before[p] < begin:
                ds += s_weight[p]
        for p in range(m_start[term], m_start[term + 1]):
            dm += m_before[p] < begin
        cost = (s + ds) * float(m + dm) if overhead < 0 else s + ds + overhead * (m + dm)
        over = cost > cap
        if over and term > begin and (s * float(m) if overhead < 0 else s + overhead * m) > 0.0:
            if used >= most:
                return count, most + 1
            first[count], parts[count] = begin, 1
            count += 1
            used += 1
            begin, s, m = term, 0.0, 0
            continue
        s += ds
        m += dm
        term += 1
        if over:  # a keyword that is too much alone (with others that cost nothing)
            wanted = 1
            if shared and overhead < 0:
                wanted = int(np.ceil(cost / cap))
            elif shared:
                wanted = int(np.ceil(s / (cap - overhead * m))) if cap > overhead * m and s <= most * (cap - overhead * m) else most + 1
            if used + wanted > most:
                return count, most + 1
            first[count], parts[count] = begin, wanted
            count += 1
            used += wanted
            begin, s, m = term, 0.0, 0
    if term > begin or count == 0:
        if used >= most:
            return count, most + 1
        first[count], parts[count] = begin, 1
        count += 1
        used += 1
    return count, used


@njit(cache=True)
def halve_range(begin, end, overhead, s_postings, m_postings):
    """Return the term in (begin, end) that parts a range into two of the most equal cost (journal paper, Algorithm 4); begin if there is none."""
    s_start, s_before, s_after, s_weight = s_postings.start, s_postings.before, s_postings.after, s_postings.weight
    m_start, m_before, m_after = m_postings.start, m_postings.before, m_postings.after
    n = end - begin
    if n < 2:
        return begin
    upper = np.empty(n + 1)
    upper[n] = 0.0
    s, m = 0.0, 0
    for term in range(end - 1, begin - 1, -1):
        for p in range(s_start[term], s_start[term + 1]):
            if s_after[p] >= end:
                s += s_weight[p]
        for p in range(m_start[term], m_start[term + 1]):
            m += m_after[p] >= end
        upper[term - begin] = s * float(m) if overhead < 0 else s + overhead * m
    s, m = 0.0, 0
    best, least = begin, np.inf
    for term in range(begin + 1, end):
        for p in range(s_start[term - 1], s_start[term]):
            if s_before[p] < begin:
                s += s_weight[p]
        for p in range(m_start[term - 1], m_start[term]):
            m += m_before[p] < begin
        difference = abs((s * float(m) if overhead < 0 else s + overhead * m) - upper[term - begin])
        if difference < least:
            best, least = term, difference
    return best


# -- words that occur together --------------------------------------------------------------------


@njit(cache=True)
def short_ranges(mass, cap):
    """Return int64[]: the first terms of ranges, rising from 0, each as long as its mass does not exceed the cap, or one term."""
    first = np.empty(len(mass), np.int64)
    first[0] = 0
    count, held = 1, 0.0
    for term in range(len(mass)):
        if held > 0.0 and held + mass[term] > cap and mass[term] > 0.0:
            first[count] = term
            count += 1
            held = 0.0
        held += mass[term]
    return first[:count]


@njit(cache=True)
def shared_rest(offsets, shared, group_offsets, group_tasks, s_on, spread, work):
    """Return (float64[tasks], float64[tasks]): how many subscriptions are at a task for shared partitions only, and their work.

    :param offsets: int64[n + 1]; the shared partitions of subscription *i* are ``shared[offsets[i]:offsets[i + 1]]``, with the tasks
        ``group_tasks[group_offsets[p]:group_offsets[p + 1]]``.
    :param s_on: uint16[n, tasks], how many other partitions it has at a task.
    :param spread: int64[n], by which it takes one of a group.
    """
    tasks = s_on.shape[1]
    count, worked = np.zeros(tasks), np.zeros(tasks)
    last = np.full(tasks, -1, np.int64)
    for i in range(len(offsets) - 1):
        for q in range(offsets[i], offsets[i + 1]):
            begin, end = group_offsets[shared[q]], group_offsets[shared[q] + 1]
            covered = False
            for p in range(begin, end):
                if s_on[i, group_tasks[p]] > 0 or last[group_tasks[p]] == i:
                    covered = True
                    break
            if not covered:
                task = group_tasks[begin + spread[i] % (end - begin)]
                last[task] = i
                count[task] += 1.0
                worked[task] += work[i]
    return count, worked


@njit(cache=True)
def _leave_task(state, s, m, partition, task, work):
    """Take a partition away from a task: subtract from its loads what is no longer there."""
    for p in range(s.start[partition], s.start[partition + 1]):
        i = s.rows[p]
        state.single[i, task] -= 1
        if state.single[i, task] == 0:
            state.subscriptions[task] -= 1.0
            state.work[task] -= work[i]
    for p in range(m.start[partition], m.start[partition + 1]):
        j = m.rows[p]
        state.heard[j, task] -= 1
        if state.heard[j, task] == 0:
            state.messages[task] -= 1.0


@njit(cache=True)
def _join_task(state, s, m, partition, task, work):
    """Give a partition to a task: add to its loads what was not there."""
    for p in range(s.start[partition], s.start[partition + 1]):
        i = s.rows[p]
        if state.single[i, task] == 0:
            state.subscriptions[task] += 1.0
            state.work[task] += work[i]
        state.single[i, task] += 1
    for p in range(m.start[partition], m.start[partition + 1]):
        j = m.rows[p]
        if state.heard[j, task] == 0:
            state.messages[task] += 1.0
        state.heard[j, task] += 1


@njit(cache=True)
def assign_partitions(order, label, s, m, state, work, limits):
    """Assign partitions, one after another, to the task that has most of their documents and whose two loads stay within the cap.

    :param order: int64[], the partitions; ``label``: int64[], task of each partition, -1: none yet; is changed.
    :param s: the subscriptions by partition: those of *p* are ``s.rows[s.start[p]:s.start[p + 1]]``; ``m``: the messages, likewise.
    :param state: an :class:`Assignment`, is changed.
    :param work: float64[subscriptions].
    :param limits: a :class:`SweepLimits`.
    :returns: how many partitions moved.
    """
    tasks = len(state.messages)
    single, shared, heard_at = state.single, state.shared, state.heard
    subscriptions, worked, messages = state.subscriptions, state.work, state.messages
    overhead, gain, cap, product_mean, work_mean = limits.overhead, limits.gain, limits.cap, limits.product_mean, limits.work_mean
    here, near, heard, here_work = np.empty(tasks), np.empty(tasks), np.empty(tasks), np.empty(tasks)
    product, total = 0.0, 0.0
    for t in range(tasks):
        product += subscriptions[t] * messages[t]
        total += worked[t] + overhead * messages[t]
    beginning = product_mean >= 0.0
    moved = 0
    for n in range(len(order)):
        partition = order[n]
        old = label[partition]
        s_begin, s_end, m_begin, m_end = s.start[partition], s.start[partition + 1], m.start[partition], m.start[partition + 1]
        if old >= 0:
            product -= subscriptions[old] * messages[old]
            total -= worked[old] + overhead * messages[old]
            _leave_task(state, s, m, partition, old, work)
            product += subscriptions[old] * messages[old]
            total += worked[old] + overhead * messages[old]
        here[:], near[:], heard[:], here_work[:] = 0.0, 0.0, 0.0, 0.0
        own_work = 0.0
        for p in range(s_begin, s_end):
            i = s.rows[p]
            own_work += work[i]
            for t in range(tasks):
                if single[i, t] > 0:
                    here[t] += 1.0
                    here_work[t] += work[i]
                elif shared[i, t] > 0:  # it would be there for the shared one as well
                    near[t] += 1.0
        for p in range(m_begin, m_end):
            j = m.rows[p]
            for t in range(tasks):
                if heard_at[j, t] > 0:
                    heard[t] += 1.0
        if not beginning:
            product_mean, work_mean = product / tasks, total / tasks
        best, most = 0, -np.inf
        for t in range(tasks):
            after = messages[t] + (m_end - m_begin) - heard[t]
            first = (subscriptions[t] + (s_end - s_begin) - here[t]) * after / max(product_mean, 1e-12)
            second = (worked[t] + own_work - here_work[t] + overhead * after) / max(work_mean, 1e-12)
            above = max(0.0, first - cap) ** 2 - max(0.0, subscriptions[t] * messages[t] / max(product_mean, 1e-12) - cap) ** 2
            above += max(0.0, second - cap) ** 2 - max(0.0, (worked[t] + overhead * messages[t]) / max(work_mean, 1e-12) - cap) ** 2
            score = here[t] + near[t] + gain * heard[t] - 1e9 * above
            if beginning:
                score -= 1e-3 * max(first, second)  # of equal ones the emptiest
            if score > most or (score == most and t == old):
                best, most = t, score
        product -= subscriptions[best] * messages[best]
        total -= worked[best] + overhead * messages[best]
        _join_task(state, s, m, partition, best, work)
        product += subscriptions[best] * messages[best]
        total += worked[best] + overhead * messages[best]
        label[partition] = best
        moved += best != old
    return moved


# -- places ---------------------------------------------------------------------------------------


@njit(cache=True)
def axis_costs(s, w, m):
    """Return (at, below, above) for each line between different coordinates: the line, and the costs on both sides.

    :param s: float64[n], coordinates of subscriptions, sorted; ``w``: float64[n], their weights.
    :param m: float64[], those of messages, sorted; none: only subscriptions count.
    """
    n = len(s)
    at, below, above = np.empty(n), np.empty(n), np.empty(n)
    count = q = 0
    total, passed = w.sum(), 0.0
    for i in range(1, n):
        passed += w[i - 1]
        if s[i] > s[i - 1]:
            while q < len(m) and m[q] < s[i]:
                q += 1
            at[count] = s[i]
            below[count] = passed * (q if len(m) else 1.0)
            above[count] = (total - passed) * (len(m) - q if len(m) else 1.0)
            count += 1
    return at[:count], below[:count], above[:count]


# -- samples --------------------------------------------------------------------------------------


@njit(cache=True)
def thresholds(subscriptions, window, diagonal_deg):
    """Return (float64[n], int64[n]): the score of each subscription's k-th best message, -inf where there are fewer, and how many there are.

    :param subscriptions: :class:`Subscriptions`; ``window``: a :class:`Window`.
    """
    k, alpha, lat, lon, offsets, terms, weights = subscriptions
    m_lat, m_lon, m_terms, m_start, m_rows, m_weights = window
    n = len(k)
    found, counts = np.empty(n), np.empty(n, np.int64)
    tsim, last = np.zeros(len(m_lat)), np.full(len(m_lat), -1, np.int64)
    touched = np.empty(len(m_lat), np.int64)
    for i in range(n):
        count = 0
        for p in range(offsets[i], offsets[i + 1]):
            t = np.searchsorted(m_terms, terms[p])
            if t == len(m_terms) or m_terms[t] != terms[p]:
                continue
            for q in range(m_start[t], m_start[t + 1]):
                row = m_rows[q]
                if last[row] != i:
                    last[row] = i
                    tsim[row] = 0.0
                    touched[count] = row
                    count += 1
                tsim[row] += weights[p] * m_weights[q]
        counts[i] = count
        if count < k[i]:
            found[i] = -np.inf
            continue
        best = np.full(k[i], -np.inf)  # a heap, its least first
        for j in range(count):
            row = touched[j]
            dx, dy = m_lon[row] - lon[i], m_lat[row] - lat[i]
            score = alpha[i] * (1.0 - np.sqrt(dx * dx + dy * dy) / diagonal_deg) + (1.0 - alpha[i]) * tsim[row]
            if score > best[0]:
                at = 0
                while True:
                    child = 2 * at + 1
                    if child >= len(best):
                        break
                    if child + 1 < len(best) and best[child + 1] < best[child]:
                        child += 1
                    if best[child] >= score:
                        break
                    best[at] = best[child]
                    at = child
                best[at] = score
        found[i] = best[0]
    return found, counts


@njit(cache=True)
def cells_of(lat, lon, root, lines):
    """Return the cell of each place (float64[n], degrees), int64[n]."""
    found = np.empty(len(lat), np.int64)
    for i in range(len(lat)):
        found[i] = _descend(root, lines, lat[i], lon[i])
    return found
