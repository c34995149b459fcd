"""Kernels of the result buffers: the calendar of expiries, logs of changes, entries, *kmax*.

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
TOGETHER = 16
FAR = np.int64(2**63 - 1)
_LOW = np.int64(0xFFFFFFFF)

Buffers = namedtuple("Buffers", "block theta seq position score")
Buffers.__doc__ = """The result buffers: block int64[slots, 8], theta float64[slots], and per entry seq, position (int64), score (float64).

Block columns: START, LENGTH, CAPACITY; FROZEN: how many entries at the start are a published list that no longer changes;
K; LIMIT: the most entries an active slot keeps; STATE; KEY: a lower bound of the entries' positions, FAR when there are none.
"""
Calendar = namedtuple("Calendar", "key slot size")
Calendar.__doc__ = """A binary heap of (key int64, slot int32); size int64[1]. An entry counts only while it equals the slot's KEY."""
Rows = namedtuple("Rows", "message slot score")
Rows.__doc__ = """Matches: message int32, slot int32, score float64, in order of message, then slot."""
Log = namedtuple("Log", "slot op seq score rank watermark")
Log.__doc__ = """Changes of top-k lists: int32, int8, int64, float64, int32, int64."""


# -- calendar -------------------------------------------------------------------------------------


@njit(cache=True)
def _before(key, slot, other_key, other_slot):
    return key < other_key or (key == other_key and slot < other_slot)


@njit(cache=True)
def calendar_push(calendar, key, slot):
    """Enter (key, slot); there is room."""
    i = calendar.size[0]
    calendar.size[0] = i + 1
    while i:
        up = (i - 1) >> 1
        if not _before(key, slot, calendar.key[up], calendar.slot[up]):
            break
        calendar.key[i], calendar.slot[i] = calendar.key[up], calendar.slot[up]
        i = up
    calendar.key[i], calendar.slot[i] = key, slot


@njit(cache=True)
def calendar_replace(calendar, key, slot):
    """Put (key, slot) in the place of the first entry."""
    n = calendar.size[0]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        right = child + 1
        if right < n and _before(calendar.key[right], calendar.slot[right], calendar.key[child], calendar.slot[child]):
            child = right
        if not _before(calendar.key[child], calendar.slot[child], key, slot):
            break
        calendar.key[i], calendar.slot[i] = calendar.key[child], calendar.slot[child]
        i = child
    calendar.key[i], calendar.slot[i] = key, slot


@njit(cache=True)
def calendar_pop(calendar):
    """Drop the first entry."""
    last = calendar.size[0] - 1
    calendar.size[0] = last
    if last:
        calendar_replace(calendar, calendar.key[last], calendar.slot[last])


@njit(cache=True)
def calendar_clean(calendar, block):
    """Drop all entries that no longer count (and doubles)."""
    n = calendar.size[0]
    calendar.size[0] = 0
    keys, slots = calendar.key[:n].copy(), calendar.slot[:n].copy()
    seen = np.zeros(block.shape[0], np.bool_)
    for i in range(n):
        if block[slots[i], KEY] == keys[i] and not seen[slots[i]]:
            seen[slots[i]] = True
            calendar_push(calendar, keys[i], slots[i])


@njit(cache=True)
def enter_calendar(buffers, calendar, slots):
    """Enter active slots by the oldest of their entries; there is room."""
    block = buffers.block
    for i in range(slots.shape[0]):
        slot = slots[i]
        if block[slot, STATE] == ACTIVE and block[slot, LENGTH]:
            start = block[slot, START]
            oldest = FAR
            for e in range(start, start + block[slot, LENGTH]):
                oldest = min(oldest, buffers.position[e])
            block[slot, KEY] = oldest
            calendar_push(calendar, oldest, slot)


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


@njit(cache=True)
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
def make_room(buffers, cursor, slot, apart):
    """Give a slot whose block is full a larger one; return the buffers, whose entries may lie in new arrays.

    :param cursor: the pool's, int64[2].
    :param apart: whether positions and seqs are different arrays.
    """
    block = buffers.block
    capacity = grown_capacity(block[slot, CAPACITY], max(4, block[slot, LENGTH] + 1))
    if block[slot, STATE] == ACTIVE:
        capacity = min(capacity, block[slot, LIMIT])
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


@njit(cache=True)
def place_arrival(buffers, slot, seq, position, score):
    """Put an arrival, newer than all entries, into its place; what ranks behind LIMIT is dropped and sets theta.

    There is room for one more, or LIMIT is reached. Only for scores at or above theta.
    """
    block = buffers.block
    start, n = block[slot, START], block[slot, LENGTH]
    if n == block[slot, LIMIT]:
        last = buffers.score[start + n - 1]
        buffers.theta[slot] = min(score, last)
        if score < last:
            return
        n -= 1
    at = start + n
    while at > start and buffers.score[at - 1] <= score:        # entries with the same score are older: it goes before them
        buffers.seq[at], buffers.position[at], buffers.score[at] = buffers.seq[at - 1], buffers.position[at - 1], buffers.score[at - 1]
        at -= 1
    buffers.seq[at], buffers.position[at], buffers.score[at] = seq, position, score
    block[slot, LENGTH] = n + 1


@njit(cache=True)
def fall_in(calendar, expired, out):
    """Take all slots (int64) from the calendar that may have entries at positions up to ``expired``; return how many.

    :param out: int64[>= size of the calendar], gets the slots, rising, each once.
    """
    n = 0
    while calendar.size[0] and calendar.key[0] <= expired:
        out[n] = calendar.slot[0]
        n += 1
        calendar_pop(calendar)
    sort_small(out, n)
    m = 0
    for i in range(n):
        if m == 0 or out[i] != out[m - 1]:
            out[m] = out[i]
            m += 1
    return m


@njit(cache=True)
def ordered_group(rows, start, end, order):
    """Write the rows ``start..end`` into ``order`` by (slot, message); they are sorted already if of one message."""
    if rows.message[start] == rows.message[end - 1]:
        for i in range(start, end):
            order[i - start] = i
    else:
        keys = np.empty(end - start, np.int64)
        for i in range(start, end):
            keys[i - start] = (np.int64(rows.slot[i]) << np.int64(32)) | np.int64(i)
        keys.sort()
        for i in range(end - start):
            order[i] = keys[i] & _LOW


@njit(cache=True)
def agenda(rows, order, group, falling, n_falling, slots, firsts):
    """Merge two sorted lists of slots: those with rows ``order[:group]``, and those that fall in; return how many.

    :param slots: int64[], gets the slots, rising, each once; as ``~slot`` if it falls in.
    :param firsts: int64[], gets where the rows of each begin in ``order``, and behind the last one their end.
    """
    i, j, n = 0, 0, 0
    while i < n_falling or j < group:
        slot = np.int64(rows.slot[order[j]]) if j < group else FAR
        firsts[n] = j
        if i < n_falling and falling[i] <= slot:
            slot = falling[i]
            slots[n] = ~slot
            i += 1
        else:
            slots[n] = slot
        n += 1
        while j < group and rows.slot[order[j]] == slot:
            j += 1
    firsts[n] = j
    return n


@njit(cache=True)
def touch(buffers, slots, start, end):
    """Read what the next slots will need: the memory fetches it side by side, and not one after another."""
    block = buffers.block
    sink = 0
    for i in range(start, end):
        slot = slots[i] if slots[i] >= 0 else ~slots[i]
        sink += block[slot, START]
    for i in range(start, end):
        slot = slots[i] if slots[i] >= 0 else ~slots[i]
        if block[slot, STATE] == ACTIVE:
            first = block[slot, START]
            for e in range(first, first + block[slot, LENGTH], 8):
                sink += buffers.position[e] + np.int64(buffers.score[e])
    return sink


@njit(cache=True)
def apply_kmax(buffers, cursor, calendar, seq, position, rows, extent, watermark, changed, apart):
    """Let messages arrive and others expire, in order of time, up to ``watermark``.

    Every time at which something happens is a step: the slots concerned are taken in rising order, each first loses what
    has expired, then gets what has arrived, and then the change of its top-k list is logged.

    :param changed: bool[slots], scratch, false before; true after for slots whose theta changed.
    :returns: (buffers, log, number of changes, slots that fell due int32[], a number without meaning).
    """
    block, theta = buffers.block, buffers.theta
    log, n_log = new_log(64 + 4 * rows.slot.shape[0]), 0
    due, n_due = np.empty(16, np.int32), 0
    falling = np.empty(calendar.key.shape[0], np.int64)
    order = np.empty(rows.slot.shape[0], np.int64)
    slots, firsts = np.empty(rows.slot.shape[0] + block.shape[0], np.int64), np.empty(rows.slot.shape[0] + block.shape[0] + 1, np.int64)
    # The list of a slot before a step, with its new list behind it.
    was_seq, was_position, was_score = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64)
    row, rows_end = 0, rows.slot.shape[0]
    sink = 0
    while True:
        arrival = position[rows.message[row]] if row < rows_end else FAR
        now = min(arrival, calendar.key[0] + extent if calendar.size[0] else FAR)
        if now > watermark or now == FAR:
            break
        expired = now - extent
        n_falling = fall_in(calendar, expired, falling)
        group = 0
        if arrival == now:
            end = row
            while end < rows_end and position[rows.message[end]] == now:
                end += 1
            ordered_group(rows, row, end, order)
            group = end - row
            row = end
        n_slots = agenda(rows, order, group, falling, n_falling, slots, firsts)
        for i in range(n_slots):
            if i % TOGETHER == 0:
                sink += touch(buffers, slots, i, min(i + TOGETHER, n_slots))
            slot = slots[i]
            lost, place = 0, 0
            falls = slot < 0
            if falls:
                slot = ~slot
            first, j = firsts[i], firsts[i + 1]
            state = block[slot, STATE]
            if state == PENDING:
                for r in range(first, j):
                    m = rows.message[order[r]]
                    buffers = collect_arrival(buffers, cursor, slot, seq[m], position[m], rows.score[order[r]], expired, apart)
            if state != ACTIVE:
                continue
            k, start, before = block[slot, K], block[slot, START], block[slot, LENGTH]
            if falls and block[slot, KEY] <= expired:
                oldest = FAR
                for e in range(before):
                    p = buffers.position[start + e]
                    if p <= expired:
                        lost += 1
                        place = e
                    elif p < oldest:
                        oldest = p
                block[slot, KEY] = oldest
                if oldest != FAR:
                    calendar_push(calendar, oldest, slot)
            admitted = 0
            for r in range(first, j):
                if rows.score[order[r]] >= theta[slot]:
                    admitted += 1
            if lost == 0 and admitted == 0:
                continue
            if n_log + 2 * k + 2 > log.slot.shape[0]:
                log = grow_log(log, n_log, 2 * k + 2)

            if lost == 1 and admitted == 0 and (before > k or theta[slot] == -np.inf):
                # One entry less: the one behind the list moves up.
                if place < k:
                    e = start + place
                    n_log = log_change(log, n_log, slot, REMOVE, buffers.seq[e], buffers.score[e], 0, now)
                    if before > k:
                        e = start + k
                        n_log = log_change(log, n_log, slot, ADD, buffers.seq[e], buffers.score[e], k, now)
                for e in range(start + place, start + before - 1):
                    buffers.seq[e], buffers.position[e], buffers.score[e] = buffers.seq[e + 1], buffers.position[e + 1], buffers.score[e + 1]
                block[slot, LENGTH] = before - 1
                continue

            if before < block[slot, LIMIT] and before + admitted > block[slot, CAPACITY]:
                while min(before + admitted, block[slot, LIMIT]) > block[slot, CAPACITY]:
                    buffers = make_room(buffers, cursor, slot, apart)
                start = block[slot, START]

            if lost == 0 and j == first + 1:
                # One entry more: the last of the list moves out.
                m, score = rows.message[order[first]], rows.score[order[first]]
                length = before
                if before == block[slot, LIMIT]:
                    last = buffers.score[start + before - 1]
                    if theta[slot] != min(score, last):
                        theta[slot] = min(score, last)
                        changed[slot] = True
                    if score < last:
                        continue
                    length -= 1
                if before >= k:
                    out_seq, out_score = buffers.seq[start + k - 1], buffers.score[start + k - 1]
                e = start + length
                while e > start and buffers.score[e - 1] <= score:
                    buffers.seq[e], buffers.position[e], buffers.score[e] = buffers.seq[e - 1], buffers.position[e - 1], buffers.score[e - 1]
                    e -= 1
                buffers.seq[e], buffers.position[e], buffers.score[e] = seq[m], position[m], score
                block[slot, LENGTH] = length + 1
                if e - start < k:
                    if before >= k:
                        n_log = log_change(log, n_log, slot, REMOVE, out_seq, out_score, 0, now)
                    n_log = log_change(log, n_log, slot, ADD, seq[m], score, e - start + 1, now)
                if before == 0:
                    block[slot, KEY] = now
                    calendar_push(calendar, now, slot)
                continue

            # Several at once: compare the list before with the list after.
            theta_before = theta[slot]
            listed = min(k, before)
            if was_seq.shape[0] < 2 * k:
                was_seq, was_position, was_score = np.empty(2 * k, np.int64), np.empty(2 * k, np.int64), np.empty(2 * k)
            for e in range(listed):
                was_seq[e], was_position[e], was_score[e] = buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e]
            if lost:
                to = start
                for e in range(start, start + before):
                    if buffers.position[e] > expired:
                        buffers.seq[to], buffers.position[to], buffers.score[to] = buffers.seq[e], buffers.position[e], buffers.score[e]
                        to += 1
                block[slot, LENGTH] = to - start
            for r in range(first, j):
                if rows.score[order[r]] >= theta[slot]:
                    m = rows.message[order[r]]
                    place_arrival(buffers, slot, seq[m], position[m], rows.score[order[r]])
            length = block[slot, LENGTH]
            if length < k and theta[slot] > -np.inf:
                # Something outside the buffer may belong to the list now: freeze the list as it was.
                for e in range(listed):
                    buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e] = was_seq[e], was_position[e], was_score[e]
                block[slot, LENGTH] = block[slot, FROZEN] = listed
                block[slot, STATE], block[slot, KEY] = DUE, FAR
                theta[slot] = np.inf
                changed[slot] = True
                if n_due == due.shape[0]:
                    more = np.empty(2 * n_due, np.int32)
                    more[:n_due] = due
                    due = more
                due[n_due] = slot
                n_due += 1
                continue
            if theta[slot] != theta_before:
                changed[slot] = True
            if block[slot, KEY] == FAR and length:
                block[slot, KEY] = now
                calendar_push(calendar, now, slot)
            lists = min(k, length)
            for e in range(lists):
                at = listed + e
                was_seq[at], was_position[at], was_score[at] = buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e]
            n_log = log_difference(log, n_log, slot, was_seq, was_position, was_score, listed, lists, now)
    return buffers, log, n_log, due[:n_due], sink


@njit(cache=True)
def resolve_kmax(buffers, calendar, slots, offsets, seq, position, score, expired, watermark):
    """Merge answers with what was collected since, and publish; ``slots`` are pending and rise.

    :param offsets: answer *i* is ``offsets[i]:offsets[i + 1]`` of seq, position, score, in rank order.
    :param expired: positions up to this one have left the window.
    :returns: (log, number of changes, slots that are due again int32[]).
    """
    block, theta = buffers.block, buffers.theta
    log, n_log = new_log(64), 0
    due, n_due = np.empty(slots.shape[0], np.int32), 0
    for a in range(slots.shape[0]):
        slot = slots[a]
        k, limit, start, frozen = block[slot, K], block[slot, LIMIT], block[slot, START], block[slot, FROZEN]
        collected = start + frozen
        n = block[slot, LENGTH] - frozen
        answer, answer_end = offsets[a], offsets[a + 1]
        bound = score[answer_end - 1] if answer_end - answer >= limit else -np.inf
        # Arrivals in rank order: newest first, then a stable sort by falling score.
        rank = np.argsort(-buffers.score[collected:collected + n][::-1], kind="mergesort")
        # The published list, with the merged one behind it.
        all_seq, all_position, all_score = np.empty(frozen + limit, np.int64), np.empty(frozen + limit, np.int64), np.empty(frozen + limit)
        for e in range(frozen):
            all_seq[e], all_position[e], all_score[e] = buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e]
        kept = 0
        oldest = FAR
        r = 0
        while kept < limit and (answer < answer_end or r < n):
            c = collected + n - 1 - rank[r] if r < n else collected
            if r < n and (answer == answer_end or not ranks_before(
                    score[answer], position[answer], seq[answer], buffers.score[c], buffers.position[c], buffers.seq[c])):
                if answer < answer_end and seq[answer] == buffers.seq[c]:
                    answer += 1     # in both
                one_seq, one_position, one_score = buffers.seq[c], buffers.position[c], buffers.score[c]
                r += 1
                if one_score < bound:
                    break
            else:
                one_seq, one_position, one_score = seq[answer], position[answer], score[answer]
                answer += 1
            if one_position > expired:
                at = frozen + kept
                all_seq[at], all_position[at], all_score[at] = one_seq, one_position, one_score
                oldest = min(oldest, one_position)
                kept += 1
        if kept == limit:
            bound = max(bound, all_score[frozen + kept - 1])
        if kept < k and bound > -np.inf:
            block[slot, LENGTH] = frozen
            due[n_due] = slot
            n_due += 1
            continue
        log = grow_log(log, n_log, frozen + kept)
        n_log = log_difference(log, n_log, slot, all_seq, all_position, all_score, frozen, min(k, kept), watermark)
        for e in range(kept):
            at = frozen + e
            buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e] = all_seq[at], all_position[at], all_score[at]
        block[slot, LENGTH], block[slot, FROZEN], block[slot, STATE], block[slot, KEY] = kept, 0, ACTIVE, oldest
        theta[slot] = bound
        if kept:
            calendar_push(calendar, oldest, slot)
    return log, n_log, due[:n_due]
