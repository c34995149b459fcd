"""Kernels of the result buffers: the calendar of expiries, logs of changes, entries, what pending slots collect.

All are lazily compiled (arguments may be read-only) and cached on disk. The buffers' block table has five more columns per
slot than others, so that one row is one cache line.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import njit

from dskype.bolts.topk._kernels import CAPACITY, END, LEFT, LENGTH, START, copy_ranges, grown_capacity, pack_blocks, sort_small

FROZEN, K, LIMIT, STATE, KEY = range(3, 8)
FREE, ACTIVE, PENDING, DUE = range(4)
ADD, REMOVE = 0, 1
FAR = np.int64(2**63 - 1)

Buffers = namedtuple("Buffers", "block theta seq position score")
Buffers.__doc__ = """The result buffers: block int64[slots, 8], theta float64[slots], and per entry seq, position (int64), score (float64).

Block columns: START, LENGTH, CAPACITY; FROZEN: how many entries at the start are a published list that no longer changes;
K; LIMIT: the most entries an active slot keeps; STATE; KEY: a lower bound of the entries' positions, FAR when there are none.
"""
Calendar = namedtuple("Calendar", "head next previous heap size")
Calendar.__doc__ = """Active slots by KEY: a ring of periods, and a heap of what is next. Each slot with a KEY is in one of them, once.

The period of a key is ``key // width``. Slots of a period after the current one are in the ring, a doubly linked list each: head
int32[periods, a power of two], next and previous int32[slots], -1 at the ends. Others are in heap, int32[slots], a binary heap by (KEY,
slot). size int64[3]: entries of the heap, the current period, width.
"""
NEAR, PERIOD, WIDTH = range(3)
Rows = namedtuple("Rows", "message slot score")
Rows.__doc__ = """Matches: message int32, slot int32, score float64, in order of message, then slot."""
Log = namedtuple("Log", "slot op seq score rank watermark")
Log.__doc__ = """Changes of top-k lists: int32, int8, int64, float64, int32, int64."""


# -- calendar -------------------------------------------------------------------------------------


@njit(cache=True)
def _before(block, slot, other):
    return block[slot, KEY] < block[other, KEY] or (block[slot, KEY] == block[other, KEY] and slot < other)


@njit(cache=True)
def _rise(heap, block, i, slot):
    """Put a slot in place ``i`` of the heap, or nearer to the top."""
    while i:
        up = (i - 1) >> 1
        if not _before(block, slot, heap[up]):
            break
        heap[i] = heap[up]
        i = up
    heap[i] = slot


@njit(cache=True)
def _sink(heap, block, n, i, slot):
    """Put a slot in place ``i`` of the heap's ``n``, or further from the top."""
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and _before(block, heap[child + 1], heap[child]):
            child += 1
        if not _before(block, heap[child], slot):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = slot


@njit(cache=True, inline="always")
def enter_date(calendar, block, slot, key):
    """Make ``key`` the KEY of a slot that has none, and enter it; O(1) but for the current period."""
    head, following, previous, heap, size = calendar
    block[slot, KEY] = key
    period = key // size[WIDTH]
    if period <= size[PERIOD]:
        size[NEAR] += 1
        _rise(heap, block, size[NEAR] - 1, slot)
        return
    at = period & (head.shape[0] - 1)
    first = head[at]
    following[slot], previous[slot] = first, -1
    if first >= 0:
        previous[first] = slot
    head[at] = slot


@njit(cache=True)
def leave_date(calendar, block, slot):
    """Take away the KEY of a slot, if it has one; O(1) but for the current period."""
    key = block[slot, KEY]
    if key == FAR:
        return
    period = key // calendar.size[WIDTH]
    if period <= calendar.size[PERIOD]:
        i = 0
        while calendar.heap[i] != slot:
            i += 1
        n = calendar.size[NEAR] - 1
        calendar.size[NEAR] = n
        last = calendar.heap[n]
        if i < n:
            _sink(calendar.heap, block, n, i, last)
            if calendar.heap[i] == last:
                _rise(calendar.heap, block, i, last)
    else:
        before, after = calendar.previous[slot], calendar.next[slot]
        if before >= 0:
            calendar.next[before] = after
        else:
            calendar.head[period & (calendar.head.shape[0] - 1)] = after
        if after >= 0:
            calendar.previous[after] = before
    block[slot, KEY] = FAR


@njit(cache=True)
def leave_dates(calendar, block, slots):
    """Take away the KEYs of slots."""
    for i in range(slots.shape[0]):
        leave_date(calendar, block, slots[i])


@njit(cache=True)
def enter_oldest(buffers, calendar, slots):
    """Enter active slots without KEY by the oldest of their entries."""
    block = buffers.block
    for i in range(slots.shape[0]):
        slot = slots[i]
        if block[slot, STATE] == ACTIVE and block[slot, LENGTH]:
            start = block[slot, START]
            oldest = FAR
            for e in range(start, start + block[slot, LENGTH]):
                oldest = min(oldest, buffers.position[e])
            enter_date(calendar, block, slot, oldest)


@njit(cache=True, inline="always")
def turn_to(calendar, block, position):
    """Let the current period be that of ``position``, or an earlier one with something in it.

    Then the top of the heap is the first of all up to ``position``, if there is one. O(1) for each period that passes, but no more
    than a turn of the ring, and O(log n) for each of the n slots of a period.
    """
    head, following, _, heap, size = calendar
    last = position // size[WIDTH]
    mask = head.shape[0] - 1
    passed = 0
    while size[NEAR] == 0 and size[PERIOD] < last:
        if passed > mask:
            size[PERIOD] = last
            break
        passed += 1
        size[PERIOD] += 1
        at = size[PERIOD] & mask
        slot = head[at]
        head[at] = -1
        while slot >= 0:
            size[NEAR] += 1
            _rise(heap, block, size[NEAR] - 1, slot)
            slot = following[slot]


@njit(cache=True, inline="always")
def fall_in(heap, size, block, expired, out):
    """Take all slots from the heap that may have entries at positions up to ``expired``; they have no KEY then. Return how many.

    :param out: int64[>= slots], gets the slots, rising, each once.
    """
    n = 0
    while size[NEAR] and block[heap[0], KEY] <= expired:
        out[n] = heap[0]
        n += 1
        size[NEAR] -= 1
        if size[NEAR]:
            _sink(heap, block, size[NEAR], 0, heap[size[NEAR]])
    for i in range(n):
        block[out[i], KEY] = FAR
    sort_small(out, n)
    return n


# -- buffers --------------------------------------------------------------------------------------


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


@njit(cache=True, inline="always")
def log_change(log, i, slot, op, seq, score, rank, watermark):
    """Write change ``i``; return the number of the next one."""
    log.slot[i], log.op[i], log.seq[i], log.score[i], log.rank[i], log.watermark[i] = slot, op, seq, score, rank, watermark
    return i + 1


@njit(cache=True)
def ranks_before(score, position, seq, other_score, other_position, other_seq):
    """Tell whether one entry ranks before another: higher score, then newer."""
    if score != other_score:
        return score > other_score
    if position != other_position:
        return position > other_position
    return seq > other_seq


@njit(cache=True)
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
    """Return the first list that is not in strict rank order, -1 if there is none."""
    for i in range(offsets.shape[0] - 1):
        for j in range(offsets[i] + 1, offsets[i + 1]):
            if not ranks_before(score[j - 1], position[j - 1], seq[j - 1], score[j], position[j], seq[j]):
                return i
    return -1


@njit(cache=True)
def thin(buffers, slot, expired, best):
    """Drop what can no longer matter from the arrivals that a pending slot has collected: see ``kmax.py``.

    :param expired: positions up to this one have left the window.
    :param best: float64[>= LIMIT], scratch: a heap of the highest scores among newer arrivals, the lowest first.
    """
    block = buffers.block
    first = block[slot, START] + block[slot, FROZEN]
    end = block[slot, START] + block[slot, LENGTH]
    limit = block[slot, LIMIT]
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
            while True:     # replace the lowest
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
def thin_all(buffers, slots, expired):
    """Let all pending slots among ``slots`` drop what can no longer matter."""
    block = buffers.block
    most = 0
    for i in range(slots.shape[0]):
        most = max(most, block[slots[i], LIMIT])
    best = np.empty(most)
    for i in range(slots.shape[0]):
        if block[slots[i], STATE] == PENDING:
            thin(buffers, slots[i], expired, best)


@njit(cache=True)
def move_block(buffers, cursor, slot, capacity, apart):
    """Give a slot another, larger block; return the buffers, whose entries may lie in new arrays.

    :param cursor: the pool's, int64[2].
    :param capacity: at least the slot's LENGTH.
    :param apart: whether positions and seqs are different arrays.
    """
    block = buffers.block
    if cursor[END] + capacity > buffers.seq.shape[0]:
        source, length, destination, end = pack_blocks(block)
        cursor[END], cursor[LEFT] = end, 0
        size = end + capacity
        size += size // 4 + 64
        seq, score = np.empty(size, np.int64), np.empty(size)
        copy_ranges(buffers.seq, source, length, destination, seq)
        copy_ranges(buffers.score, source, length, destination, score)
        position = seq
        if apart:
            position = np.empty(size, np.int64)
            copy_ranges(buffers.position, source, length, destination, position)
        buffers = Buffers(block, buffers.theta, seq, position, score)
    old, new = block[slot, START], cursor[END]
    for i in range(block[slot, LENGTH]):
        buffers.seq[new + i], buffers.score[new + i] = buffers.seq[old + i], buffers.score[old + i]
        buffers.position[new + i] = buffers.position[old + i]
    cursor[LEFT] += block[slot, CAPACITY]
    cursor[END] += capacity
    block[slot, START], block[slot, CAPACITY] = new, capacity
    return buffers


@njit(cache=True)
def make_room(buffers, cursor, slot, apart):
    """Give a slot whose block is full a larger one; return as :func:`move_block`."""
    block = buffers.block
    capacity = grown_capacity(block[slot, CAPACITY], max(4, block[slot, LENGTH] + 1))
    if block[slot, STATE] == ACTIVE:
        capacity = min(capacity, block[slot, LIMIT])
    return move_block(buffers, cursor, slot, capacity, apart)


@njit(cache=True)
def collect_arrival(buffers, cursor, slot, seq, position, score, expired, apart):
    """Put an arrival behind the entries of a pending slot; return the buffers."""
    block = buffers.block
    if block[slot, LENGTH] == block[slot, CAPACITY]:
        thin(buffers, slot, expired, np.empty(block[slot, LIMIT]))
        if 4 * block[slot, LENGTH] >= 3 * block[slot, CAPACITY]:        # not again for the next arrival
            buffers = make_room(buffers, cursor, slot, apart)
    at = block[slot, START] + block[slot, LENGTH]
    buffers.seq[at], buffers.position[at], buffers.score[at] = seq, position, score
    block[slot, LENGTH] += 1
    return buffers
