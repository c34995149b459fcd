"""Kernels for learning distribution plans. They import the score, and no other part of the distributors.

``s`` and ``m``, or ``s_postings`` and ``m_postings``, are the postings of subscriptions and of messages (dskype.distribution.learning.cuts.Postings).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.spouts.score_kernels import score as combined_score
from dskype.spouts.score_kernels import ssim, ssim_in_metres
from dskype.topology.kernel_cache import njit

__all__ = [
    "Assignment",
    "SweepLimits",
    "Window",
    "assign_partitions",
    "axis_costs",
    "cap_ranges",
    "halve_range",
    "range_cost",
    "shared_rest",
    "short_ranges",
    "thresholds",
]


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
    """Where documents are while :func:`assign_partitions` assigns partitions to tasks. It changes all arrays except ``shared``.

    :ivar single: uint16[subscriptions, tasks], how many of a subscription's single partitions are at a task.
    :ivar shared: uint16[subscriptions, tasks], how many of its shared partitions are there.
    :ivar heard: uint16[messages, tasks], how many of a message's partitions are there.
    :ivar subscriptions: float64[tasks], number of subscriptions of each task.
    :ivar work: float64[tasks], their work.
    :ivar messages: float64[tasks], number of messages that each task gets.
    """

    single: np.ndarray
    shared: np.ndarray
    heard: np.ndarray
    subscriptions: np.ndarray
    work: np.ndarray
    messages: np.ndarray


class SweepLimits(NamedTuple):
    """Limits of one sweep of :func:`assign_partitions`.

    :ivar overhead: work of a message that comes to a task, > 0, in the unit of the subscriptions' work.
    :ivar gain: how much a message counts that is at a task already; a subscription counts 1.
    :ivar cap: cap on a task's load divided by the mean load. If no task can take a partition within it, the one that exceeds it least does.
    :ivar product_mean: mean of subscriptions x messages of a task; negative: use the means of the present state in place of both means.
    :ivar work_mean: mean work of a task.
    """

    overhead: float
    gain: float
    cap: float
    product_mean: float
    work_mean: float


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
    """Cut the vocabulary into the longest ranges whose cost does not exceed the cap.

    :param overhead: a range costs the weights of its subscriptions, plus this for each of its messages; negative: weights x messages.
    :param most: number of tasks.
    :param shared: divide a single keyword above the cap among as many tasks as it needs; otherwise such a keyword may exceed the cap.
    :param first: int64[most], set to the first term of each range.
    :param parts: int64[most], set to the number of tasks of each range.
    :returns: (number of ranges, number of tasks); the latter is ``most`` + 1 if the tasks do not suffice.
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
        if over:  # a single keyword exceeds the cap (with others that cost nothing)
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
    """Return the term in (begin, end) that divides a range most evenly by cost (journal paper, Algorithm 4), or ``begin`` if there is none."""
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


@njit(cache=True)
def short_ranges(mass, cap):
    """Return the first terms (int64[], rising from 0) of the longest ranges whose mass does not exceed the cap, or that are one term."""
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
    """Return (float64[tasks], float64[tasks]): how many subscriptions are at each task for shared partitions only, and their work.

    :param offsets: int64[n + 1]; the shared partitions of subscription *i* are ``shared[offsets[i]:offsets[i + 1]]``, with the tasks
        ``group_tasks[group_offsets[p]:group_offsets[p + 1]]``.
    :param s_on: uint16[n, tasks], how many other partitions each subscription has at a task.
    :param spread: int64[n], stands for the hash by which a subscription chooses one task of a group.
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
    """Take a partition away from a task, and subtract what leaves with it from the task's loads."""
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
    """Give a partition to a task, and add what comes with it to the task's loads."""
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

    :param order: int64[], the partitions.
    :param label: int64[], the task of each partition, or -1; changed here.
    :param s: the subscriptions by partition: those of *p* are ``s.rows[s.start[p]:s.start[p + 1]]``; ``m``: the messages, likewise.
    :param state: an :class:`Assignment`; changed here.
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
                elif shared[i, t] > 0:  # the subscription might be there anyway, for the shared partition
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
                score -= 1e-3 * max(first, second)  # among equals prefer the emptiest
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


@njit(cache=True)
def axis_costs(s, w, m):
    """Return (at, below, above): every line between two different coordinates, and the costs on both sides of it.

    :param s: float64[n], coordinates of subscriptions, sorted; ``w``: float64[n], their weights.
    :param m: float64[], coordinates of messages, sorted; empty: only subscriptions count.
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


@njit(cache=True)
def thresholds(subscriptions, scale_m, window, diagonal_deg):
    """Return the score of each subscription's k-th best message (float64[n], -inf if fewer match), and how many match (int64[n]).

    :param subscriptions: :class:`Subscriptions`; ``window``: a :class:`Window`.
    :param scale_m: float64[n], of distances in metres; 0: they are in degrees.
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
        best = np.full(k[i], -np.inf)  # a heap with the least score first
        for j in range(count):
            row = touched[j]
            dx, dy = m_lon[row] - lon[i], m_lat[row] - lat[i]
            spatial = ssim_in_metres(lat[i], lon[i], m_lat[row], m_lon[row], scale_m[i]) if scale_m[i] > 0.0 else ssim(dx, dy, diagonal_deg)
            score = combined_score(alpha[i], spatial, tsim[row])
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
