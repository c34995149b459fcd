"""Loops of the distributors: where messages and subscriptions go, and what plans are learned from."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = [
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
    "together_sweep",
]

MARGIN = 1e-9
"""Added to every guard: more than all rounding errors of a score together."""


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
def _descend(node, axis, at, below, above, lat, lon):
    """Return ~node of the leaf that holds a point, from a node of a tree on."""
    while node >= 0:
        x = lat if axis[node] == 0 else lon
        node = below[node] if x < at[node] else above[node]
    return ~node


@njit(cache=True)
def route(offsets, terms, tasks, bounds, route_offsets, route_tasks):
    """Return (rows int64[m], tasks int32[m]): the union of the tasks of each message's terms; those of a message rise."""
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
def place(
    terms,
    weights,
    alpha,
    lat,
    lon,
    limit,
    id_hash,
    tasks,
    root,
    axis,
    at,
    below,
    above,
    cells,
    ranges,
    roots,
    group_offsets,
    group_tasks,
    bounds,
    route_offsets,
    route_tasks,
    placed,
):
    """Choose tasks, keywords from the first on, until no message that misses them all scores ``limit``; return the guard.

    :param limit: -inf: until all keywords are covered; inf: one keyword is enough.
    :param placed: bool[tasks], all False; becomes the choice.
    """
    n = len(terms)
    if n == 0:
        placed[id_hash % tasks] = True
        return -np.inf
    cell = _descend(root, axis, at, below, above, lat, lon)
    nth = np.empty(n, np.int64)
    for i in range(n):
        nth[i] = -1 - ((-1 - terms[i]) % tasks) if terms[i] < 0 else _last_not_above(bounds, 0, len(bounds), terms[i])
    some = False
    while True:
        first, rest = -1, 0.0
        for i in range(n):
            e = nth[i]
            covered = False
            if e < 0:
                covered = placed[-1 - e]
            else:
                for q in range(route_offsets[e], route_offsets[e + 1]):
                    if placed[route_tasks[q]]:
                        covered = True
                        break
            if not covered:
                rest += weights[i] * weights[i]
                if first < 0:
                    first = i
        if first < 0:
            return -np.inf
        guard = alpha + (1.0 - alpha) * np.sqrt(rest) + MARGIN
        if some and guard < limit:
            return guard
        if nth[first] < 0:
            placed[-1 - nth[first]] = True
        else:
            r = _last_not_above(ranges, cells[cell], cells[cell + 1], terms[first])
            group = _descend(roots[r], axis, at, below, above, lat, lon)
            begin = group_offsets[group]
            placed[group_tasks[begin + id_hash % (group_offsets[group + 1] - begin)]] = True
        some = True


@njit(cache=True)
def place_all(
    offsets,
    terms,
    weights,
    alpha,
    lat,
    lon,
    limits,
    hashes,
    tasks,
    root,
    axis,
    at,
    below,
    above,
    cells,
    ranges,
    roots,
    group_offsets,
    group_tasks,
    bounds,
    route_offsets,
    route_tasks,
):
    """Return (offsets int64[n + 1], tasks int32[], guards float64[n]): :func:`place` for many."""
    n = len(offsets) - 1
    out_offsets, guards = np.zeros(n + 1, np.int64), np.empty(n)
    out = np.empty(2 * n + tasks, np.int32)
    placed = np.zeros(tasks, np.bool_)
    found = 0
    for i in range(n):
        placed[:] = False
        begin, end = offsets[i], offsets[i + 1]
        guards[i] = place(
            terms[begin:end],
            weights[begin:end],
            alpha[i],
            lat[i],
            lon[i],
            limits[i],
            hashes[i],
            tasks,
            root,
            axis,
            at,
            below,
            above,
            cells,
            ranges,
            roots,
            group_offsets,
            group_tasks,
            bounds,
            route_offsets,
            route_tasks,
            placed,
        )
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
# Postings are sorted by term: those of term t are start[t] to start[t + 1], each with the term before it (and after it) in its document.


@njit(cache=True)
def range_cost(begin, end, s_start, s_before, s_weight, m_start, m_before):
    """Return the weights of all subscriptions, and the number of messages, with a keyword in [begin, end)."""
    s, m = 0.0, 0
    for p in range(s_start[begin], s_start[end]):
        if s_before[p] < begin:
            s += s_weight[p]
    for p in range(m_start[begin], m_start[end]):
        m += m_before[p] < begin
    return s, m


@njit(cache=True)
def cap_ranges(cap, overhead, most, shared, s_start, s_before, s_weight, m_start, m_before, first, parts):
    """Cut the vocabulary into ranges, each as long as its cost does not exceed the cap.

    :param overhead: a range costs the weights of its subscriptions, and this for each of its messages; negative: weights x messages.
    :param shared: a single keyword above the cap is parted among as many tasks as it takes; else the cap does not count for it.
    :param first: int64[most], becomes the first term of each range; ``parts`` alike: among how many tasks.
    :returns: (ranges, tasks); tasks is ``most`` + 1 if they are too few.
    """
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
def halve_range(begin, end, overhead, s_start, s_before, s_after, s_weight, m_start, m_before, m_after):
    """Return the term in (begin, end) that parts a range into two of the most equal cost (journal paper, Algorithm 4); begin if there is none."""
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
def together_sweep(
    order, label, s_start, s_rows, m_start, m_rows, s_on, s_near, m_on, subscriptions, worked, messages, work, overhead, gain, cap, product_mean, work_mean
):
    """Assign partitions, one after another, to the task where most of their documents are already and both loads stay within the cap; return how many moved.

    :param label: int64[], task of each partition, -1: none yet; changed, as ``s_on``, ``m_on`` and the three loads of tasks.
    :param gain: what a message that is there already counts for; a subscription counts 1.
    :param cap: of a load through its mean. A task takes a partition only up to it; where none can, the one that has the least above it more than before.
    :param product_mean: subscriptions x messages, the mean; -1: of what there is. ``work_mean`` alike.
    """
    tasks = len(messages)
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
        s_begin, s_end, m_begin, m_end = s_start[partition], s_start[partition + 1], m_start[partition], m_start[partition + 1]
        if old >= 0:
            product -= subscriptions[old] * messages[old]
            total -= worked[old] + overhead * messages[old]
            for p in range(s_begin, s_end):
                i = s_rows[p]
                s_on[i, old] -= 1
                if s_on[i, old] == 0:
                    subscriptions[old] -= 1.0
                    worked[old] -= work[i]
            for p in range(m_begin, m_end):
                j = m_rows[p]
                m_on[j, old] -= 1
                if m_on[j, old] == 0:
                    messages[old] -= 1.0
            product += subscriptions[old] * messages[old]
            total += worked[old] + overhead * messages[old]
        here[:] = 0.0
        near[:] = 0.0
        heard[:] = 0.0
        here_work[:] = 0.0
        own_work = 0.0
        for p in range(s_begin, s_end):
            i = s_rows[p]
            own_work += work[i]
            for t in range(tasks):
                if s_on[i, t] > 0:
                    here[t] += 1.0
                    here_work[t] += work[i]
                elif s_near[i, t] > 0:  # it would be there for the shared one as well
                    near[t] += 1.0
        for p in range(m_begin, m_end):
            j = m_rows[p]
            for t in range(tasks):
                if m_on[j, t] > 0:
                    heard[t] += 1.0
        if not beginning:
            product_mean, work_mean = product / tasks, total / tasks
        best, most = 0, -np.inf
        for t in range(tasks):
            m = messages[t] + (m_end - m_begin) - heard[t]
            first = (subscriptions[t] + (s_end - s_begin) - here[t]) * m / max(product_mean, 1e-12)
            second = (worked[t] + own_work - here_work[t] + overhead * m) / max(work_mean, 1e-12)
            above = max(0.0, first - cap) ** 2 - max(0.0, subscriptions[t] * messages[t] / max(product_mean, 1e-12) - cap) ** 2
            above += max(0.0, second - cap) ** 2 - max(0.0, (worked[t] + overhead * messages[t]) / max(work_mean, 1e-12) - cap) ** 2
            score = here[t] + near[t] + gain * heard[t] - 1e9 * above
            if beginning:
                score -= 1e-3 * max(first, second)  # of equal ones the emptiest
            if score > most or (score == most and t == old):
                best, most = t, score
        product -= subscriptions[best] * messages[best]
        total -= worked[best] + overhead * messages[best]
        for p in range(s_begin, s_end):
            i = s_rows[p]
            if s_on[i, best] == 0:
                subscriptions[best] += 1.0
                worked[best] += work[i]
            s_on[i, best] += 1
        for p in range(m_begin, m_end):
            j = m_rows[p]
            if m_on[j, best] == 0:
                messages[best] += 1.0
            m_on[j, best] += 1
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
def thresholds(k, alpha, lat, lon, offsets, terms, weights, diagonal_deg, m_lat, m_lon, m_terms, m_start, m_rows, m_weights):
    """Return (float64[n], int64[n]): the score of each subscription's k-th best message, -inf where there are fewer, and how many there are.

    :param m_terms: int64[v], the different terms of messages, sorted; the postings of the *i*-th are ``m_start[i]`` to ``m_start[i + 1]``.
    """
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
def cells_of(lat, lon, root, axis, at, below, above):
    """Return the cell of each place, int64[n]."""
    found = np.empty(len(lat), np.int64)
    for i in range(len(lat)):
        found[i] = _descend(root, axis, at, below, above, lat[i], lon[i])
    return found
