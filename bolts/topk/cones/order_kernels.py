"""Kernels that arrange the cones of a list. They import numpy and numba only."""

from __future__ import annotations

import numpy as np

from dskype.bolts.selection_kernels import select
from dskype.bolts.topk.cones._kernels import (
    BASE,
    BOTH1,
    CAPACITY,
    CODE,
    CODES,
    DEAD,
    FIRST,
    FIRST1,
    FRESH,
    LANES,
    NEAR,
    NEAR0,
    NEED,
    NEED0,
    PART,
    REST,
    STALE,
    START,
    TERM,
    TOP,
    USED,
    X0,
    X1,
    Y0,
    Y1,
    X,
    Y,
    bound_lanes,
    clear_lanes,
    contain_cone,
    position_of,
    stale,
    unarranged,
)
from dskype.topology.kernel_cache import njit

# Typical weights of a message's first common keyword and of its heaviest later one; they only affect the order of cones.
USUAL_FIRST, USUAL_REST = 0.4, 0.3
_SAMPLE = 16  # cones of a range that tell in what field they differ
_TRIED = 6  # groups that are searched for the place of a cone


@njit(cache=True)
def widest(cones, order, low, high, step):
    """Return the field in which a sample of the cones ``order[low:high]`` differs most, by its effect on a score.

    :param step: a step of distance in steps of score, for a step of NEAR.
    """
    sums, squares = np.zeros(6), np.zeros(6)
    n = 0
    for i in range(low, high, max(1, (high - low) // _SAMPLE)):
        row = cones[order[i]]
        for f in range(6):
            value = np.float64(row[f]) - 32768.0
            sums[f] += value
            squares[f] += value * value
        n += 1
    slope = (sums[NEAR] / n + 32768.0) * step
    best, most = 0, -1.0
    for f in range(6):
        scale = 0.2 * slope if f <= Y else 1500.0 * step if f == NEAR else USUAL_FIRST if f == FIRST else USUAL_REST if f == REST else 1.0
        extent = (squares[f] / n - (sums[f] / n) ** 2) * scale * scale
        if extent > most:
            best, most = f, extent
    return best


@njit(cache=True)
def arrange(cones, step):
    """Return an order (int64[n]) of cones (uint16[n, 6]) in which the cones of a block, and of a group, are similar.

    Repeatedly halves the cones by the field in which they differ most, at borders of groups while there are several.
    """
    n = cones.shape[0]
    order, keys = np.arange(n), np.empty(n, np.int64)
    stack = np.empty((64, 2), np.int64)
    stack[0, 0], stack[0, 1] = 0, n
    depth = 1
    while depth:
        depth -= 1
        low, high = stack[depth]
        if high - low <= LANES:
            continue
        unit = LANES if high - low <= LANES**2 else LANES**2 if high - low <= LANES**3 else LANES**3
        at = low + max(1, ((high - low) // 2 + unit // 2) // unit) * unit
        field = widest(cones, order, low, high, step)
        for i in range(low, high):
            keys[i] = (np.int64(cones[order[i], field]) << np.int64(32)) | order[i]
        select(keys, low, high, at)
        for i in range(low, high):
            order[i] = keys[i] & np.int64(0xFFFFFFFF)
        stack[depth, 0], stack[depth, 1], stack[depth + 1, 0], stack[depth + 1, 1] = low, at, at, high
        depth += 2
    return order


@njit(cache=True)
def sort_lanes(lists, number, low, words, step):
    """Arrange the cones of a list from lane ``low`` on, drop dead lanes, and compute the bounds."""
    start, used, term = lists.lanes[number, START], lists.long[number, USED], np.int32(lists.long[number, TERM])
    field, slot, code = np.empty((used - low, 6), np.uint16), np.empty(used - low, np.int32), np.empty((used - low, 2, CODES), np.uint8)
    n = 0
    for lane in range(low, used):
        b, j = start + lane // LANES, lane % LANES
        if lists.slot[b, j] >= 0:
            for f in range(6):
                field[n, f] = lists.field[b, f, j]
            slot[n] = lists.slot[b, j]
            for c in range(CODES):
                code[n, CODE, c], code[n, PART, c] = lists.code[b, CODE, LANES * c + j], lists.code[b, PART, LANES * c + j]
            n += 1
    order, begin = arrange(field[:n], step), np.empty(n, np.int32)
    for i in range(n):
        source = order[i]
        b, j = start + (low + i) // LANES, (low + i) % LANES
        for f in range(6):
            lists.field[b, f, j] = field[source, f]
        lists.slot[b, j] = slot[source]
        for c in range(CODES):
            lists.code[b, CODE, LANES * c + j], lists.code[b, PART, LANES * c + j] = code[source, CODE, c], code[source, PART, c]
        begin[i] = words.block[slot[source], START]
    # In portions, so that memory is fetched in parallel.
    sink = np.int64(0)
    for some in range(0, n, 512):
        for i in range(some, min(some + 512, n)):
            sink += np.int64(words.term[begin[i]]) + np.int64(words.where[begin[i]])
        for i in range(some, min(some + 512, n)):
            at = np.int64(begin[i])
            while words.term[at] != term:
                at += 1
            words.where[at] = low + i
    clear_lanes(lists, number, low + n, used)
    bound_lanes(lists, number, low, used)
    lists.long[number, DEAD] -= used - low - n
    lists.long[number, USED] = lists.long[number, FRESH] = low + n
    if low == 0:
        lists.long[number, STALE], lists.long[number, BASE] = 0, n // LANES**2 * LANES**2
    return sink


@njit(cache=True)
def sort_stale(lists, numbers, words, least, step, fresh):
    """Arrange the stale lists; with ``fresh`` also the added lanes of others."""
    for i in range(numbers.shape[0]):
        number = numbers[i]
        if stale(lists, number, least):
            sort_lanes(lists, number, 0, words, step)
        elif fresh:
            low = unarranged(lists, number)
            if low >= 0:
                sort_lanes(lists, number, low, words, step)


# -- places for added cones ---------------------------------------------------------------


@njit(cache=True, inline="always")
def widen(bounds, cone, slope, step, full, first, cost):
    """Write the cost of extending each of 16 bounds to contain a cone into ``cost`` (float32[16]), roughly in steps of score.

    :param slope: a step of distance in steps of score; ``step``: the same for a step of NEAR.
    :param full: float32[], added to the cost, from ``first`` on.
    """
    zero, loose = np.float32(0), np.float32(-0.1)
    x, y, near = np.float32(cone[X]), np.float32(cone[Y]), np.float32(cone[NEAR])
    gain, both, wanted = np.float32(cone[FIRST]), np.float32(min(cone[FIRST] + cone[REST], TOP)), np.float32(cone[NEED])
    for j in range(LANES):
        left, right = np.float32(bounds[X0, j]) - x, x - np.float32(bounds[X1, j])
        below, above = np.float32(bounds[Y0, j]) - y, y - np.float32(bounds[Y1, j])
        dx, dy = left if left > right else right, below if below > above else above
        flat, more = np.float32(bounds[NEAR0, j]) - near, gain - np.float32(bounds[FIRST1, j])
        rest, less = both - np.float32(bounds[BOTH1, j]), np.float32(bounds[NEED0, j]) - wanted
        # Loose bounds cost a little, so that of two bounds that contain the cone the tighter one is chosen.
        wide, high = np.float32(bounds[X1, j]) - np.float32(bounds[X0, j]), np.float32(bounds[Y1, j]) - np.float32(bounds[Y0, j])
        dx, dy, flat = dx if dx > zero else zero, dy if dy > zero else zero, flat if flat > zero else loose * flat
        dx, dy = dx - loose * wide, dy - loose * high
        more, rest, less = more if more > zero else loose * more, rest if rest > zero else loose * rest, less if less > zero else loose * less
        cost[j] = (
            full[first + j]
            + np.float32(0.2) * slope * (dx + dy)
            + np.float32(1500.0) * step * flat
            + np.float32(USUAL_FIRST) * more
            + np.float32(USUAL_REST) * rest
            + less
        )


@njit(cache=True)
def refill(lists, number, words, step):
    """Move the cones added to a list into dead lanes among the arranged ones, each to where it widens bounds least.

    A cone goes to the best block in the groups that it widens least. This takes a step per 4096 lanes for every cone, and a few more.
    Cones without a threshold stay, because they would widen every bound.
    """
    start, term = lists.lanes[number, START], np.int32(lists.long[number, TERM])
    group, upper = lists.groups[number, START], lists.uppers[number, START]
    base, used = lists.long[number, BASE], lists.long[number, USED]
    n_uppers = (base + LANES**3 - 1) // LANES**3
    free, free_blocks = np.zeros(n_uppers * LANES, np.int64), np.zeros(n_uppers * LANES**2, np.int64)
    none = np.float32(1e30)
    full, full_blocks = np.full(n_uppers * LANES, none, np.float32), np.full(n_uppers * LANES**2, none, np.float32)
    for b in range(base // LANES):
        for j in range(LANES):
            free_blocks[b] += lists.slot[start + b, j] < 0
        if free_blocks[b]:
            full_blocks[b], full[b // LANES] = 0, 0
            free[b // LANES] += free_blocks[b]
    cone, cost = np.empty(6, np.int64), np.empty(LANES, np.float32)
    near_cost, near = np.empty(_TRIED, np.float32), np.empty(_TRIED, np.int64)
    near_step = np.float32(step)
    for lane in range(base, used):
        b, j = start + lane // LANES, lane % LANES
        slot = np.int64(lists.slot[b, j])
        if slot < 0 or lists.field[b, NEED, j] == 0:
            continue
        for f in range(6):
            cone[f] = lists.field[b, f, j]
        slope = np.float32(cone[NEAR]) * near_step
        near_cost[:], near[:] = none, -1
        for u in range(n_uppers):
            widen(lists.upper[upper + u], cone, slope, near_step, full, u * LANES, cost)
            for i in range(LANES):
                k = _TRIED
                while k and cost[i] < near_cost[k - 1]:
                    k -= 1
                if k < _TRIED:
                    for q in range(_TRIED - 1, k, -1):
                        near_cost[q], near[q] = near_cost[q - 1], near[q - 1]
                    near_cost[k], near[k] = cost[i], u * LANES + i
        if near[0] < 0:
            break
        best, to = none, np.int64(-1)
        for k in range(_TRIED):
            if near[k] >= 0:
                widen(lists.bound[group + near[k]], cone, slope, near_step, full_blocks, near[k] * LANES, cost)
                for i in range(LANES):
                    if cost[i] < best:
                        best, to = cost[i], near[k] * LANES + i
        g = to // LANES
        free[g] -= 1
        free_blocks[to] -= 1
        full[g] = full[g] if free[g] else none
        full_blocks[to] = full_blocks[to] if free_blocks[to] else none
        i = 0
        while lists.slot[start + to, i] >= 0:
            i += 1
        for f in range(6):
            lists.field[start + to, f, i] = cone[f]
        for c in range(CODES):
            lists.code[start + to, CODE, LANES * c + i] = lists.code[b, CODE, LANES * c + j]
            lists.code[start + to, PART, LANES * c + i] = lists.code[b, PART, LANES * c + j]
        lists.slot[start + to, i], lists.slot[b, j] = slot, -1
        contain_cone(lists, number, to * LANES + i, cone)
        words.where[position_of(words, slot, term)] = to * LANES + i
    sort_lanes(lists, number, base, words, step)


@njit(cache=True)
def compact(lists, numbers, more, words, step):
    """Make room in lists that would have to grow for ``more`` lanes (int64[n]) although a sixteenth of their lanes is dead."""
    for i in range(numbers.shape[0]):
        number = numbers[i]
        used, room = lists.long[number, USED], lists.lanes[number, CAPACITY] * LANES
        if used + more[i] <= room or 16 * lists.long[number, DEAD] <= used:
            continue
        if lists.long[number, BASE] and 32 * (used - lists.long[number, BASE]) > used:
            refill(lists, number, words, step)
        if lists.long[number, USED] + more[i] > room:
            sort_lanes(lists, number, 0, words, step)
