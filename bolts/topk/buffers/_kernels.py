"""Kernels of the result buffers: the calendar of expiry, logs of changes, and the messages that pending slots collect.

All are compiled lazily (arguments may be read-only) and cached on disk. Kernels that are called for every entry that enters or leaves are
compiled with :data:`BARE`.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from dskype.bolts.array_kernels import CAPACITY, END, LEFT, LENGTH, START, grown_capacity
from dskype.topology.kernel_cache import njit

BARE = {"cache": True, "_nrt": False}
"""Options without reference counting: the kernel cannot allocate, and named tuples of arrays cost no counting."""

INLINE = {**BARE, "inline": "always"}
"""Options for kernels that are called for every entry, from one or two places: inlining avoids passing named tuples field by field."""

FROZEN, K, LIMIT, STATE, MARKED = range(3, 8)
KEY, THETA = 4, 5
FREE, ACTIVE, PENDING, DUE = range(4)
ADD, REMOVE = 0, 1
FAR = np.int64(2**63 - 1)

Buffers = namedtuple("Buffers", "block long real seq position score cursor")
Buffers.__doc__ = """The result buffers: one cache line per slot with its state, and the entries.

block int32[slots, 16]: START, LENGTH, CAPACITY; FROZEN: how many entries at the start are a published list that no longer changes;
K; LIMIT: the most entries an active slot keeps; STATE; MARKED: whether the threshold has changed since it was last asked for.
long int64[slots, 8], the same memory: KEY, a lower bound of the entries' positions, FAR when there are none.
real float64[slots, 8], the same memory: THETA.
seq, position int64[entries], score float64[entries]: the entries. cursor int64[2]: END and LEFT, of the pool that has them.
"""
Calendar = namedtuple("Calendar", "head pages near size")
Calendar.__doc__ = """Active slots by KEY: a ring of periods, and the slots that are next. Each slot with a KEY is in it once.

The period of a key is ``key >> shift``. Slots of a period after the current one are in the ring, on pages: head int32[periods, 2] (their number is a
power of two) has a period's newest page, -1 when there is none, and how many slots are on it; the ones before are full. pages int32[pages, 8]:
SLOTS slots, and the page before, -1 at the end; spare pages are linked likewise. Other slots are in near, int32[slots]: those from the ring
are ``near[FIRST:LAST]``, by (KEY, slot); later ones are ``near[:LATE]``, a binary heap by (KEY, slot). size int64[7]: FIRST, LAST,
LATE, the current period, shift, the first spare page, the number of spare pages.
"""
FIRST, LAST, LATE, PERIOD, SHIFT, SPARE, SPARES = range(7)
PAGE, FILL = 0, 1
SLOTS = LINK = 7
Rows = namedtuple("Rows", "message slot score")
Rows.__doc__ = """Matches: message int32, slot int32, score float64."""
Log = namedtuple("Log", "slot op seq score rank watermark")
Log.__doc__ = """Changes of top-k lists: int32, int8, int64, float64, int32, int64."""


# -- calendar -------------------------------------------------------------------------------------


@njit(**BARE)
def _before(long, slot, other):
    return long[slot, KEY] < long[other, KEY] or (long[slot, KEY] == long[other, KEY] and slot < other)


@njit(**BARE)
def _rise(heap, long, i, slot):
    """Put a slot in place ``i`` of the heap, or nearer to the top."""
    while i:
        up = (i - 1) >> 1
        if not _before(long, slot, heap[up]):
            break
        heap[i] = heap[up]
        i = up
    heap[i] = slot


@njit(**BARE)
def _sink(heap, long, n, i, slot):
    """Put a slot in place ``i`` of the heap's ``n``, or further from the top."""
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and _before(long, heap[child + 1], heap[child]):
            child += 1
        if not _before(long, heap[child], slot):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = slot


@njit(**BARE)
def _enter_near(calendar, long, slot):
    """Enter a slot whose period has come already."""
    near, size = calendar.near, calendar.size
    run = size[LAST] - size[FIRST]
    if size[FIRST] == size[LATE] and run:  # the heap would grow into the run: move the run to the end
        to = near.shape[0] - run
        for i in range(run - 1, -1, -1):
            near[to + i] = near[size[FIRST] + i]
        size[FIRST], size[LAST] = to, near.shape[0]
    size[LATE] += 1
    _rise(near, long, size[LATE] - 1, slot)


@njit(**INLINE)
def enter_date(calendar, long, slot, key):
    """Make ``key`` the KEY of a slot that has none, and enter it; there is a spare page. O(1), except for the current period."""
    head, pages, size = calendar.head, calendar.pages, calendar.size
    long[slot, KEY] = key
    period = key >> size[SHIFT]
    if period <= size[PERIOD]:
        _enter_near(calendar, long, slot)
    else:
        at = period & (head.shape[0] - 1)
        page, fill = np.int64(head[at, PAGE]), np.int64(head[at, FILL])
        if page < 0 or fill == SLOTS:
            before, page, fill = page, size[SPARE], np.int64(0)
            size[SPARE] = pages[page, LINK]
            size[SPARES] -= 1
            pages[page, LINK] = before
            head[at, PAGE] = page
        pages[page, fill] = slot
        head[at, FILL] = fill + 1


@njit(**BARE)
def leave_date(calendar, long, slot):
    """Remove the KEY of a slot, if it has one; O(slots of its period)."""
    head, pages, near, size = calendar
    key = long[slot, KEY]
    if key == FAR:
        return
    period = key >> size[SHIFT]
    if period > size[PERIOD]:
        at = period & (head.shape[0] - 1)
        newest, last = np.int64(head[at, PAGE]), np.int64(head[at, FILL] - 1)
        page, i = newest, last
        while pages[page, i] != slot:
            i -= 1
            if i < 0:
                page, i = np.int64(pages[page, LINK]), np.int64(SLOTS - 1)
        pages[page, i] = pages[newest, last]
        head[at, FILL] = last
        if last == 0:
            head[at, PAGE], head[at, FILL] = pages[newest, LINK], SLOTS
            pages[newest, LINK] = size[SPARE]
            size[SPARE] = newest
            size[SPARES] += 1
    else:
        i = np.int64(0)
        while i < size[LATE] and near[i] != slot:
            i += 1
        if i < size[LATE]:
            size[LATE] -= 1
            n = size[LATE]
            other = near[n]
            if i < n:
                _sink(near, long, n, i, other)
                if near[i] == other:
                    _rise(near, long, i, other)
        else:
            i = size[FIRST]
            while near[i] != slot:
                i += 1
            size[LAST] -= 1
            for at in range(i, size[LAST]):
                near[at] = near[at + 1]
    long[slot, KEY] = FAR


@njit(cache=True)
def leave_dates(calendar, buffers, slots):
    """Remove the KEYs of slots."""
    for i in range(slots.shape[0]):
        leave_date(calendar, buffers.long, slots[i])


@njit(cache=True)
def enter_oldest(buffers, calendar, slots):
    """Enter active slots without KEY by their oldest entries."""
    block = buffers.block
    for i in range(slots.shape[0]):
        slot = slots[i]
        if block[slot, STATE] == ACTIVE and block[slot, LENGTH]:
            start = np.int64(block[slot, START])
            oldest = FAR
            for e in range(start, start + block[slot, LENGTH]):
                oldest = min(oldest, buffers.position[e])
            enter_date(calendar, buffers.long, slot, oldest)


@njit(**INLINE)
def pass_time(calendar, position):
    """Advance to the period of ``position``, or to an earlier one that has slots; return True then: :func:`turn_page` has to follow.

    Only while near is empty. O(1) for each period that passes, at most a turn of the ring.
    """
    head, size = calendar.head, calendar.size
    last = position >> size[SHIFT]
    mask = head.shape[0] - 1
    passed = 0
    while size[PERIOD] < last:
        if passed > mask:
            size[PERIOD] = last
            break
        passed += 1
        size[PERIOD] += 1
        if head[size[PERIOD] & mask, PAGE] >= 0:
            return True
    return False


@njit(cache=True)
def turn_page(calendar, long):
    """Fill near with the slots that the ring has in the current period; O(n log n) for n slots."""
    head, pages, near, size = calendar
    at = size[PERIOD] & (head.shape[0] - 1)
    page, fill = np.int64(head[at, PAGE]), np.int64(head[at, FILL])
    head[at, PAGE] = -1
    n = 0
    while page >= 0:
        for i in range(fill):
            near[n + i] = pages[page, i]
        n += fill
        before, fill = np.int64(pages[page, LINK]), SLOTS
        pages[page, LINK] = size[SPARE]
        size[SPARE] = page
        size[SPARES] += 1
        page = before
    size[FIRST], size[LAST], size[LATE] = 0, n, 0
    if n > 1:
        near[:n].sort()
        if size[SHIFT]:
            keys = np.empty(n, np.int64)
            for i in range(n):
                keys[i] = long[near[i], KEY]
            near[:n] = near[:n][np.argsort(keys, kind="mergesort")]


@njit(**INLINE)
def fall_out(calendar, long):
    """Remove the first slot from near, which is not empty, and its KEY; return the slot."""
    near, size = calendar.near, calendar.size
    if size[LATE] and (size[FIRST] == size[LAST] or _before(long, near[0], near[size[FIRST]])):
        slot = near[0]
        size[LATE] -= 1
        if size[LATE]:
            _sink(near, long, size[LATE], 0, near[size[LATE]])
    else:
        slot = near[size[FIRST]]
        size[FIRST] += 1
    long[slot, KEY] = FAR
    return slot


@njit(**INLINE)
def first_out(calendar, long):
    """Return the slot that :func:`fall_out` would remove, or -1."""
    near, size = calendar.near, calendar.size
    if size[FIRST] == size[LAST]:
        return near[0] if size[LATE] else np.int32(-1)
    if size[LATE] and _before(long, near[0], near[size[FIRST]]):
        return near[0]
    return near[size[FIRST]]


# -- changes --------------------------------------------------------------------------------------


@njit(cache=True)
def new_log(n):
    """Return an empty log with room for ``n`` changes."""
    return Log(np.empty(n, np.int32), np.empty(n, np.int8), np.empty(n, np.int64), np.empty(n), np.empty(n, np.int32), np.empty(n, np.int64))


@njit(cache=True)
def grow_log(log, n, more):
    """Return a log that holds the first ``n`` changes of ``log`` and has room for ``more``."""
    if n + more <= log.slot.shape[0]:
        return log
    new = new_log(2 * (n + more))
    for i in range(n):
        log_change(new, i, log.slot[i], log.op[i], log.seq[i], log.score[i], log.rank[i], log.watermark[i])
    return new


@njit(**INLINE)
def log_change(log, i, slot, op, seq, score, rank, watermark):
    """Write change ``i``; return the number of the next one."""
    log.slot[i], log.op[i], log.seq[i], log.score[i], log.rank[i], log.watermark[i] = slot, op, seq, score, rank, watermark
    return i + 1


@njit(**BARE)
def ranks_before(score, position, seq, other_score, other_position, other_seq):
    """Tell whether one entry ranks before another: higher score, then newer."""
    if score != other_score:
        return score > other_score
    if position != other_position:
        return position > other_position
    return seq > other_seq


@njit(**BARE)
def log_difference(log, n, slot, seq, position, score, listed, lists, watermark):
    """Log what turns one ranked list into another: removals, then additions, each by rank; return the next change's number.

    :param listed: length of the old list, at the beginning of seq, position and score; the new one, of length ``lists``, follows.
    """
    for removing in (True, False):
        i, i_end = np.int64(0), np.int64(listed)
        j, j_end = i_end, i_end + np.int64(lists)
        while i < i_end or j < j_end:
            if i < i_end and j < j_end and seq[i] == seq[j]:
                i += 1
                j += 1
            elif j == j_end or (i < i_end and ranks_before(score[i], position[i], seq[i], score[j], position[j], seq[j])):
                if removing:
                    n = log_change(log, n, slot, REMOVE, seq[i], score[i], 0, watermark)
                i += 1
            else:
                if not removing:
                    n = log_change(log, n, slot, ADD, seq[j], score[j], j - i_end + 1, watermark)
                j += 1
    return n


@njit(cache=True)
def first_unranked(offsets, seq, position, score):
    """Return the first list that is not in strict rank order, or -1."""
    for i in range(offsets.shape[0] - 1):
        for j in range(offsets[i] + 1, offsets[i + 1]):
            if not ranks_before(score[j - 1], position[j - 1], seq[j - 1], score[j], position[j], seq[j]):
                return i
    return -1


# -- messages of pending slots -----------------------------------------------------------------------


@njit(**BARE)
def drop_collected(buffers, slot, seq):
    """Drop a message that has ended from those that a pending slot has collected, if it is among them."""
    block = buffers.block
    first, end = np.int64(block[slot, START] + block[slot, FROZEN]), np.int64(block[slot, START] + block[slot, LENGTH])
    at = first
    while at < end and buffers.seq[at] != seq:
        at += 1
    if at < end:
        for i in range(at, end - 1):
            buffers.seq[i], buffers.position[i], buffers.score[i] = buffers.seq[i + 1], buffers.position[i + 1], buffers.score[i + 1]
        block[slot, LENGTH] -= 1


@njit(**BARE)
def drop_hopeless(buffers, slot, expired, best, ending):
    """Drop the arrivals of a pending slot that can no longer enter its list, because they expired or newer ones outrank them: see ``kmax.py``.

    :param expired: positions up to this one have left the window.
    :param best: float64[>= LENGTH], scratch: a heap of the highest scores among newer arrivals, the lowest first.
    :param ending: whether newer ones may end earlier, so that only those that expired can be dropped.
    """
    block = buffers.block
    first = np.int64(block[slot, START] + block[slot, FROZEN])
    end = np.int64(block[slot, START] + block[slot, LENGTH])
    limit = FAR if ending else np.int64(block[slot, LIMIT])
    size = 0
    to = end
    for i in range(end - 1, first - 1, -1):
        if buffers.position[i] <= expired:
            break
        score = buffers.score[i]
        if size == limit:
            if best[0] >= score:
                continue
            at = 0
            while True:  # replace the lowest
                child = 2 * at + 1
                if child >= size:
                    break
                if child + 1 < size and best[child + 1] < best[child]:
                    child += 1
                if best[child] >= score:
                    break
                best[at] = best[child]
                at = child
            best[at] = score
        else:
            at = size
            size += 1
            while at and best[(at - 1) >> 1] > score:
                best[at] = best[(at - 1) >> 1]
                at = (at - 1) >> 1
            best[at] = score
        to -= 1
        buffers.seq[to], buffers.position[to], buffers.score[to] = buffers.seq[i], buffers.position[i], score
    n = end - to
    for i in range(n):
        buffers.seq[first + i], buffers.score[first + i] = buffers.seq[to + i], buffers.score[to + i]
        buffers.position[first + i] = buffers.position[to + i]
    block[slot, LENGTH] = block[slot, FROZEN] + n


@njit(cache=True)
def drop_hopeless_all(buffers, slots, expired, ending):
    """Call :func:`drop_hopeless` for all pending slots among ``slots``."""
    block = buffers.block
    most = 0
    for i in range(slots.shape[0]):
        most = max(most, block[slots[i], LENGTH])
    best = np.empty(most)
    for i in range(slots.shape[0]):
        if block[slots[i], STATE] == PENDING:
            drop_hopeless(buffers, slots[i], expired, best, ending)


@njit(**BARE)
def move_block(buffers, slot, capacity):
    """Give a slot another, larger block, at the end of the entries, where there is room for it.

    :param capacity: at least the slot's LENGTH.
    """
    block, cursor = buffers.block, buffers.cursor
    old, new = np.int64(block[slot, START]), cursor[END]
    for i in range(block[slot, LENGTH]):
        buffers.seq[new + i], buffers.score[new + i] = buffers.seq[old + i], buffers.score[old + i]
        buffers.position[new + i] = buffers.position[old + i]
    cursor[LEFT] += block[slot, CAPACITY]
    cursor[END] += capacity
    block[slot, START], block[slot, CAPACITY] = new, capacity


@njit(**BARE)
def larger(block, slot, length):
    """Return the next capacity for a slot that has to hold ``length`` entries; an active slot needs no more than its limit."""
    capacity = grown_capacity(np.int64(block[slot, CAPACITY]), max(4, length))
    return min(capacity, np.int64(block[slot, LIMIT])) if block[slot, STATE] == ACTIVE else capacity


@njit(**BARE)
def collect_arrival(buffers, slot, seq, position, score, expired, best, ending):
    """Append an arrival to the entries of a pending slot.

    :param best: float64[>= LENGTH], scratch.
    :param ending: as in :func:`drop_hopeless`.
    :returns: 0, or the number of entries for which room is needed first.
    """
    block, cursor = buffers.block, buffers.cursor
    if block[slot, LENGTH] == block[slot, CAPACITY]:
        drop_hopeless(buffers, slot, expired, best, ending)
        if 4 * block[slot, LENGTH] >= 3 * block[slot, CAPACITY]:  # otherwise the next arrival would do it again
            capacity = larger(block, slot, np.int64(block[slot, LENGTH] + 1))
            if cursor[END] + capacity > buffers.seq.shape[0]:
                return capacity
            move_block(buffers, slot, capacity)
    at = np.int64(block[slot, START] + block[slot, LENGTH])
    buffers.seq[at], buffers.position[at], buffers.score[at] = seq, position, score
    block[slot, LENGTH] += 1
    return np.int64(0)
