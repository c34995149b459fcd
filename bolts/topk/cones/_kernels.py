"""Kernels of the cone index: cones, their bounds, and changes. They import numpy and numba only.

A match is found in the list of its first common keyword only. For the *i*-th keyword of a subscription, with d = distance /
diagonal, ``score >= theta`` can hold only if ``alpha * d <= (1 - alpha) * (ws_i * wm_i + sum(ws_j * wm_j, j > i common)) + alpha - theta``.
With c = the highest weight of the message's later keywords that is at most ``A * wm_i + B * c - (theta - alpha)``, where
A = (1 - alpha) * ws_i and B = (1 - alpha) * sum(ws_j, j > i): a cone in (x, y, wm_i, c).

All fields of a cone are uint16, rounded so that the cone only grows. 16 cones are a block. 16 blocks, whose bounds are stored
side by side, are a group; the bounds of 16 groups are stored side by side, too. So one loop over 16 lanes serves all levels.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from dskype.topology.kernel_cache import njit

LANES = 16
START, LENGTH, CAPACITY, LONG = range(4)
LON, LAT, ALPHA, THRESHOLD = range(4)
X, Y, NEAR, FIRST, REST, NEED = range(6)  # fields of a cone
X0, Y0, X1, Y1, NEAR0, FIRST1, BOTH1, NEED0 = range(8)  # and of bounds; BOTH1: of FIRST + REST
TERM, USED, DEAD, STALE, BASE, FRESH = range(6)  # columns of Lists.long
STEPS = 16384.0  # of FIRST, REST and NEED per unit of score
TOP = 65535
CODE, PART = 0, 1  # of code
CODES = 4  # later keywords that have one
WEIGHTS = 255.0  # steps of a later keyword's weight
OPEN = 255  # the code of every keyword
WHOLE = 512  # steps of NEED that count as a whole change
RUN = 64  # added lanes that are arranged together

Lists = namedtuple("Lists", "ids id_slot long lanes groups uppers field slot code bound upper")
Lists.__doc__ = """The lists of all terms.

ids: int64[terms, 4], START, LENGTH, CAPACITY of a short list in id_slot (int32), LONG: 1 + number of its long list, 0 if it has none.
long: int64[lists, 6]: TERM; USED lanes; DEAD ones among them; STALE: how much has changed since all were arranged, in 1/512 cones; BASE: the
first lane added since then, rounded down to whole groups; FRESH: the first lane that has not been arranged at all.
lanes, groups, uppers: int64[lists, 3]: START, LENGTH, CAPACITY of its blocks in field (uint16[., 6, 16]), slot (int32[., 16], -1: empty) and code
(uint8[., 2, 64]: CODE and PART, the weight, of the n-th later keyword in lane j at 16 * n + j), of its groups in bound (uint16[., 8, 16]),
and of theirs in upper (alike).
"""
Box = namedtuple("Box", "x0 y0 x1 y1 near first both need")
Box.__doc__ = """The values of a bound, int64 each, 0 to 65535.

x0, y0: west and south border; x1, y1: east and north; near, need: lowest NEAR and NEED; first, both: highest FIRST and FIRST + REST.
"""

# -- cones ----------------------------------------------------------------------------------------


@njit(cache=True)
def hashed(term):
    """Return the code of a dense term id, 1..254."""
    return np.int64(1) + (term * np.int64(40503) >> np.int64(4)) % np.int64(254)


@njit(cache=True)
def need(threshold, alpha):
    """Return NEED of a cone: theta - alpha, in steps from -2 on, rounded down; 0: there is no threshold."""
    if threshold == np.inf:
        return np.int64(TOP)
    # The place of a cone is wrong by at most 0.71 of 2 / 65535 diagonals.
    wanted = (threshold - alpha * 1.00003 + 2.0) * STEPS
    if not wanted >= 2.0:
        return np.int64(0)
    if wanted >= TOP:
        return np.int64(TOP)
    return np.int64(wanted) - 1


@njit(cache=True)
def shape(cone, codes, place, slot, frame, nth, start, length, words):
    """Write X, Y, NEAR, FIRST, REST of the cone of keyword ``nth`` of those at ``start`` into ``cone`` (int64[6]).

    :param codes: uint8[2, 4], set to CODE and PART of the later keywords; if these are too many, all are OPEN, with a sum of 4.0.
    :param frame: float64[3]: west, south, steps per degree.
    :returns: True if no bound is possible; then NEED has to be 0.
    """
    lon, lat, alpha = place[slot, LON], place[slot, LAT], place[slot, ALPHA]
    x, y = np.floor((lon - frame[0]) * frame[2] + 0.5), np.floor((lat - frame[1]) * frame[2] + 0.5)
    cone[X], cone[Y], cone[NEAR] = 0, 0, 0
    if 0 <= x <= TOP and 0 <= y <= TOP:
        cone[X], cone[Y], cone[NEAR] = np.int64(x), np.int64(y), np.int64(alpha * TOP)
    first, rest = (1.0 - alpha) * words.weight[start + nth], 0.0
    fits = length - nth - 1 <= CODES
    for j in range(CODES):
        codes[CODE, j], codes[PART, j] = 0, 0
    for j in range(nth + 1, length):
        part = (1.0 - alpha) * words.weight[start + j]
        rest += part
        fits = fits and part * WEIGHTS < OPEN - 1
        if fits:
            codes[CODE, j - nth - 1] = hashed(np.int64(words.term[start + j]))
            codes[PART, j - nth - 1] = np.int64(part * WEIGHTS) + 1
    if not fits:
        codes[:] = OPEN
    if not first + rest < 3.99:
        cone[FIRST], cone[REST] = TOP, TOP
        return True
    cone[FIRST] = np.int64(first * STEPS) + 1 if first > 0.0 else 0
    cone[REST] = np.int64(rest * STEPS) + 1 if rest > 0.0 else 0
    return False


@njit(cache=True)
def contain(bounds, row, j, box):
    """Extend bound ``j`` of ``bounds[row]`` to contain ``box``, a :data:`Box`."""
    bounds[row, X0, j] = min(np.int64(bounds[row, X0, j]), box.x0)
    bounds[row, Y0, j] = min(np.int64(bounds[row, Y0, j]), box.y0)
    bounds[row, X1, j] = max(np.int64(bounds[row, X1, j]), box.x1)
    bounds[row, Y1, j] = max(np.int64(bounds[row, Y1, j]), box.y1)
    bounds[row, NEAR0, j] = min(np.int64(bounds[row, NEAR0, j]), box.near)
    bounds[row, FIRST1, j] = max(np.int64(bounds[row, FIRST1, j]), box.first)
    bounds[row, BOTH1, j] = max(np.int64(bounds[row, BOTH1, j]), box.both)
    bounds[row, NEED0, j] = min(np.int64(bounds[row, NEED0, j]), box.need)


@njit(cache=True)
def contain_cone(lists, number, lane, cone):
    """Extend the bounds above a lane to contain its cone."""
    if lists.groups[number, CAPACITY] == 0:
        return
    b = lane // LANES
    g = b // LANES
    box = Box(cone[X], cone[Y], cone[X], cone[Y], cone[NEAR], cone[FIRST], min(cone[FIRST] + cone[REST], TOP), cone[NEED])
    contain(lists.bound, lists.groups[number, START] + g, b % LANES, box)
    contain(lists.upper, lists.uppers[number, START] + g // LANES, g % LANES, box)


@njit(cache=True)
def put(lists, number, lane, slot, cone, codes):
    """Write a cone into a lane."""
    b, j = lists.lanes[number, START] + lane // LANES, lane % LANES
    for f in range(6):
        lists.field[b, f, j] = cone[f]
    lists.slot[b, j] = slot
    for n in range(CODES):
        lists.code[b, CODE, LANES * n + j], lists.code[b, PART, LANES * n + j] = codes[CODE, n], codes[PART, n]
    contain_cone(lists, number, lane, cone)


@njit(cache=True)
def clear_lanes(lists, number, low, high):
    """Empty the lanes ``low..high - 1`` of a list."""
    start = lists.lanes[number, START]
    for lane in range(low, high):
        b, j = start + lane // LANES, lane % LANES
        lists.field[b, X, j], lists.field[b, Y, j], lists.field[b, NEAR, j] = 0, 0, TOP
        lists.field[b, FIRST, j], lists.field[b, REST, j], lists.field[b, NEED, j] = 0, 0, TOP
        lists.slot[b, j] = -1
        for n in range(CODES):
            lists.code[b, CODE, LANES * n + j], lists.code[b, PART, LANES * n + j] = 0, 0


@njit(cache=True)
def clear_bound(bounds, row, j):
    """Make bound ``j`` of ``bounds[row]`` empty."""
    bounds[row, X0, j], bounds[row, Y0, j], bounds[row, X1, j], bounds[row, Y1, j] = TOP, TOP, 0, 0
    bounds[row, NEAR0, j], bounds[row, FIRST1, j], bounds[row, BOTH1, j], bounds[row, NEED0, j] = TOP, 0, 0, TOP


@njit(cache=True)
def bound_lanes(lists, number, low, high):
    """Compute the bounds above the lanes ``low..high - 1``. All lanes from ``high`` on were empty and are empty."""
    if lists.groups[number, CAPACITY] == 0:
        return
    start, first, upper = lists.lanes[number, START], lists.groups[number, START], lists.uppers[number, START]
    for b in range(low // LANES, (high + LANES - 1) // LANES):
        row, j = first + b // LANES, b % LANES
        clear_bound(lists.bound, row, j)
        for lane in range(LANES):
            if lists.slot[start + b, lane] >= 0:
                x, y = np.int64(lists.field[start + b, X, lane]), np.int64(lists.field[start + b, Y, lane])
                near, wanted = np.int64(lists.field[start + b, NEAR, lane]), np.int64(lists.field[start + b, NEED, lane])
                gain, rest = np.int64(lists.field[start + b, FIRST, lane]), np.int64(lists.field[start + b, REST, lane])
                contain(lists.bound, row, j, Box(x, y, x, y, near, gain, min(gain + rest, TOP), wanted))
    for g in range(low // LANES**2, (high + LANES**2 - 1) // LANES**2):
        row, j = upper + g // LANES, g % LANES
        clear_bound(lists.upper, row, j)
        for i in range(LANES):
            bound = lists.bound[first + g]
            box = Box(
                np.int64(bound[X0, i]),
                np.int64(bound[Y0, i]),
                np.int64(bound[X1, i]),
                np.int64(bound[Y1, i]),
                np.int64(bound[NEAR0, i]),
                np.int64(bound[FIRST1, i]),
                np.int64(bound[BOTH1, i]),
                np.int64(bound[NEED0, i]),
            )
            contain(lists.upper, row, j, box)


@njit(cache=True)
def renew_need(lists, number, lane):
    """Raise NEED0 of the bounds above a lane to its present value."""
    if lists.groups[number, CAPACITY] == 0:
        return
    b = lane // LANES
    lowest = np.int64(TOP)
    row = lists.field[lists.lanes[number, START] + b, NEED]
    for j in range(LANES):
        lowest = min(lowest, np.int64(row[j]))
    g = b // LANES
    bounds = lists.bound[lists.groups[number, START] + g, NEED0]
    if np.int64(bounds[b % LANES]) == lowest:
        return
    bounds[b % LANES] = lowest
    lowest = np.int64(TOP)
    for j in range(LANES):
        lowest = min(lowest, np.int64(bounds[j]))
    lists.upper[lists.uppers[number, START] + g // LANES, NEED0, g % LANES] = lowest


@njit(cache=True)
def clear_behind(lists, numbers):
    """Empty the unused lanes of lists."""
    for i in range(numbers.shape[0]):
        clear_lanes(lists, numbers[i], lists.long[numbers[i], USED], lists.lanes[numbers[i], CAPACITY] * LANES)


@njit(cache=True)
def bound_all(lists, numbers):
    """Compute all bounds of lists."""
    for i in range(numbers.shape[0]):
        number = numbers[i]
        for g in range(lists.groups[number, START], lists.groups[number, START] + lists.groups[number, CAPACITY]):
            for j in range(LANES):
                clear_bound(lists.bound, g, j)
        for u in range(lists.uppers[number, START], lists.uppers[number, START] + lists.uppers[number, CAPACITY]):
            for j in range(LANES):
                clear_bound(lists.upper, u, j)
        bound_lanes(lists, number, 0, lists.long[number, USED])


@njit(cache=True)
def lower_need(lists, number, lane, wanted):
    """Lower NEED0 of the bounds above a lane to at most ``wanted``."""
    if lists.groups[number, CAPACITY] == 0:
        return
    b = lane // LANES
    g = b // LANES
    row, upper = lists.groups[number, START] + g, lists.uppers[number, START] + g // LANES
    if lists.bound[row, NEED0, b % LANES] > wanted:
        lists.bound[row, NEED0, b % LANES] = wanted
        if lists.upper[upper, NEED0, g % LANES] > wanted:
            lists.upper[upper, NEED0, g % LANES] = wanted


# -- changes --------------------------------------------------------------------------------------


@njit(cache=True)
def position_of(words, slot, term):
    """Return the place of a slot's keyword in the arrays of keywords."""
    at = words.block[slot, START]
    while words.term[at] != term:
        at += 1
    return at


@njit(cache=True)
def enter(lists, number, slot, at, place, frame, words, indexed, cone, codes):
    """Append the posting of the keyword at ``at`` to a long list that has room."""
    start = words.block[slot, START]
    open_ = shape(cone, codes, place, slot, frame, at - start, start, words.block[slot, LENGTH], words)
    cone[NEED] = 0 if open_ else need(indexed[slot], place[slot, ALPHA])
    lane = lists.long[number, USED]
    lists.long[number, USED] = lane + 1
    if cone[NEED]:
        lists.long[number, STALE] += WHOLE
    put(lists, number, lane, slot, cone, codes)
    words.where[at] = lane


@njit(cache=True)
def link(lists, slots, place, frame, words, indexed):
    """Enter the postings of ``slots``; there is room for all."""
    cone, codes = np.empty(6, np.int64), np.empty((2, CODES), np.uint8)
    for i in range(slots.shape[0]):
        slot = np.int64(slots[i])
        start = words.block[slot, START]
        for at in range(start, start + words.block[slot, LENGTH]):
            term = words.term[at]
            number = lists.ids[term, LONG] - 1
            if number >= 0:
                enter(lists, number, slot, at, place, frame, words, indexed, cone, codes)
            else:
                length = lists.ids[term, LENGTH]
                lists.id_slot[lists.ids[term, START] + length] = slot
                words.where[at] = length
                lists.ids[term, LENGTH] = length + 1


@njit(cache=True)
def promote(lists, numbers, place, frame, words, indexed):
    """Move the postings of short lists into the new long lists of their terms."""
    cone, codes = np.empty(6, np.int64), np.empty((2, CODES), np.uint8)
    for i in range(numbers.shape[0]):
        number = numbers[i]
        term = lists.long[number, TERM]
        for e in range(lists.ids[term, START], lists.ids[term, START] + lists.ids[term, LENGTH]):
            slot = np.int64(lists.id_slot[e])
            enter(lists, number, slot, position_of(words, slot, term), place, frame, words, indexed, cone, codes)


@njit(cache=True)
def demote(lists, numbers, words):
    """Move the postings of long lists into the short lists of their terms, which have room."""
    for i in range(numbers.shape[0]):
        number = numbers[i]
        term = lists.long[number, TERM]
        n = 0
        for lane in range(lists.long[number, USED]):
            slot = np.int64(lists.slot[lists.lanes[number, START] + lane // LANES, lane % LANES])
            if slot >= 0:
                lists.id_slot[lists.ids[term, START] + n] = slot
                words.where[position_of(words, slot, term)] = n
                n += 1
        lists.ids[term, LENGTH] = n
        lists.ids[term, LONG] = 0


@njit(cache=True)
def unlink(lists, slots, words):
    """Remove the postings of ``slots``. In a short list the last posting fills the gap; in a long list the lane becomes dead."""
    for i in range(slots.shape[0]):
        slot = np.int64(slots[i])
        start = words.block[slot, START]
        for at in range(start, start + words.block[slot, LENGTH]):
            term = words.term[at]
            number = lists.ids[term, LONG] - 1
            where = np.int64(words.where[at])
            if number >= 0:
                b, j = lists.lanes[number, START] + where // LANES, where % LANES
                lists.slot[b, j] = -1
                lists.field[b, NEED, j] = TOP
                lists.field[b, FIRST, j], lists.field[b, REST, j] = 0, 0
                lists.long[number, DEAD] += 1
            else:
                last = lists.ids[term, LENGTH] - 1
                lists.ids[term, LENGTH] = last
                if where != last:
                    other = lists.id_slot[lists.ids[term, START] + last]
                    lists.id_slot[lists.ids[term, START] + where] = other
                    words.where[position_of(words, np.int64(other), term)] = where


@njit(cache=True)
def room_for(found, n, more):
    """Return ``found`` with room for ``more`` entries behind ``n``."""
    if n + more <= found.shape[0]:
        return found
    new = np.empty(2 * (n + more), found.dtype)
    new[:n] = found[:n]
    return new


@njit(cache=True)
def stale(lists, number, least):
    """Tell whether a list is stale: nearly a third of its lanes have changed, and more than ``least``."""
    return lists.long[number, STALE] + WHOLE * lists.long[number, DEAD] > WHOLE * max(least, lists.long[number, USED] * 5 // 16)


@njit(cache=True)
def unarranged(lists, number):
    """Return the lane from which on a list has to be arranged because of fresh lanes, or -1 if these are few.

    Runs grow like the digits of a number to the base 4: four runs of a size become one.
    """
    base, used = lists.long[number, BASE], lists.long[number, USED]
    before, now = (lists.long[number, FRESH] - base) // RUN, (used - base) // RUN
    if before == now or lists.groups[number, CAPACITY] == 0:
        return -1
    size = 1
    while now // (4 * size) > before // (4 * size):
        size *= 4
    return base + before // size * size * RUN


@njit(cache=True)
def retune(lists, slots, place, words, indexed, slack, drift, least):
    """Follow new thresholds: lower cones at once, with ``slack``; raise them when they are ``drift`` behind.

    :returns: numbers of the lists that have to be arranged, each once or more.
    """
    changed, n = np.empty(64, np.int64), 0
    for i in range(slots.shape[0]):
        slot = np.int64(slots[i])
        threshold, before = place[slot, THRESHOLD], indexed[slot]
        if before <= threshold and not threshold > before + drift:
            continue
        after = threshold
        if threshold < before and threshold > -np.inf:
            after = threshold - slack
        indexed[slot] = after
        if indexed[slot] > threshold:  # rounded up
            indexed[slot] = np.nextafter(indexed[slot], np.float32(-np.inf))
        after = indexed[slot]
        wanted = need(after, place[slot, ALPHA])
        start = words.block[slot, START]
        for at in range(start, start + words.block[slot, LENGTH]):
            number = lists.ids[words.term[at], LONG] - 1
            if number < 0:
                continue
            lane = np.int64(words.where[at])
            b, j = lists.lanes[number, START] + lane // LANES, lane % LANES
            if lists.field[b, REST, j] == TOP:
                continue  # no bound is possible
            lists.long[number, STALE] += min(abs(wanted - np.int64(lists.field[b, NEED, j])), WHOLE)
            lists.field[b, NEED, j] = wanted
            if stale(lists, number, least) or unarranged(lists, number) >= 0:
                changed = room_for(changed, n, 1)
                changed[n] = number
                n += 1
            if after > before:
                renew_need(lists, number, lane)
            else:
                lower_need(lists, number, lane, wanted)
    return changed[:n]


@njit(cache=True)
def long_lists(ids, slots, words):
    """Return the numbers of the long lists of the keywords of slots, each once or more."""
    n = 0
    for i in range(slots.shape[0]):
        n += words.block[slots[i], LENGTH]
    out = np.empty(n, np.int64)
    n = 0
    for i in range(slots.shape[0]):
        start = words.block[slots[i], START]
        for at in range(start, start + words.block[slots[i], LENGTH]):
            number = ids[words.term[at], LONG] - 1
            if number >= 0:
                out[n] = number
                n += 1
    return out[:n]


# -- space ----------------------------------------------------------------------------------------


@njit(cache=True)
def copy_rows(array, source, length, destination, out):
    """Copy rows ``array[source:source + length]`` to ``out[destination:]``, range by range."""
    for i in range(source.shape[0]):
        a, b = source[i], destination[i]
        for r in range(length[i]):
            for w in range(array.shape[1]):
                out[b + r, w] = array[a + r, w]


@njit(cache=True)
def allocate_runs(free, rooms):
    """Allocate runs of ``rooms`` rows among free runs (int64[m, 2]: START, LENGTH; LENGTH 0: none).

    Each takes the beginning of the smallest free run that is large enough. O(m) for each.

    :returns: (starts int64[n], -1: no free run is large enough; number of rows taken).
    """
    starts, taken = np.full(rooms.shape[0], -1, np.int64), 0
    for i in range(rooms.shape[0]):
        best = -1
        for f in range(free.shape[0]):
            if free[f, 1] >= rooms[i] and (best < 0 or free[f, 1] < free[best, 1]):
                best = f
        if best >= 0:
            starts[i] = free[best, 0]
            free[best, 0] += rooms[i]
            free[best, 1] -= rooms[i]
            taken += rooms[i]
    return starts, taken


@njit(cache=True)
def free_runs(free, starts, lengths):
    """Add runs to the free ones; each replaces the smallest if it is larger."""
    for i in range(starts.shape[0]):
        least = 0
        for f in range(free.shape[0]):
            if free[f, 1] < free[least, 1]:
                least = f
        if lengths[i] > free[least, 1]:
            free[least, 0], free[least, 1] = starts[i], lengths[i]
