"""Kernels that let buffers change: time passes, answers come. For *kmax* and the skybands.

All are lazily compiled (arguments may be read-only) and cached on disk. What is done for every entry that comes or goes is inlined:
where a named tuple is handed to a function, the references to all of its arrays are counted.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dskype.bolts.topk._kernels import CAPACITY, LEFT, LENGTH, START
from dskype.bolts.topk.buffers._kernels import (
    ACTIVE, ADD, DUE, FAR, FROZEN, KEY, LIMIT, NEAR, PENDING, REMOVE, STATE, K, collect_arrival, enter_date, fall_in, grow_log, leave_date,
    log_change, log_difference, make_room, move_block, new_log, ranks_before, turn_to)

TOGETHER = 16
_LOW = np.int64(0xFFFFFFFF)


@njit(cache=True, inline="always")
def find_expired(position, start, n, expired):
    """Return how many of the entries have expired, the place of the last of them, and the oldest position of the others."""
    lost, place, oldest = 0, 0, FAR
    for e in range(n):
        p = position[start + e]
        if p <= expired:
            lost += 1
            place = e
        elif p < oldest:
            oldest = p
    return lost, place, oldest


@njit(cache=True, inline="always")
def close_gap(seq, position, score, at, end):
    """Move the entries behind place ``at`` one place up."""
    for e in range(at, end - 1):
        seq[e], position[e], score[e] = seq[e + 1], position[e + 1], score[e + 1]


@njit(cache=True, inline="always")
def open_gap(seq, position, score, start, end, arriving):
    """Move the entries that rank behind the score of an arrival one place down; return its place.

    Entries with the same score are older: it goes before them.
    """
    e = end
    while e > start and score[e - 1] <= arriving:
        seq[e], position[e], score[e] = seq[e - 1], position[e - 1], score[e - 1]
        e -= 1
    return e


@njit(cache=True)
def place_arrival(buffers, slot, seq, position, score, limit):
    """Put an arrival, newer than all entries, into its place; what ranks behind place ``limit`` is dropped and sets theta.

    There is room for one more, or the limit is reached. Only for scores at or above theta.
    """
    block = buffers.block
    start, n = block[slot, START], block[slot, LENGTH]
    if n == limit:
        last = buffers.score[start + n - 1]
        buffers.theta[slot] = min(score, last)
        if score < last:
            return
        n -= 1
    at = open_gap(buffers.seq, buffers.position, buffers.score, start, start + n, score)
    buffers.seq[at], buffers.position[at], buffers.score[at] = seq, position, score
    block[slot, LENGTH] = n + 1


@njit(cache=True)
def keep_skyband(seq, position, score, start, n, k):
    """Move the k-skyband of the ``n`` entries from ``start`` on to the front; return its size. See ``skyband.py``; O(n log k)."""
    if n <= k:
        return n
    newest = np.empty(k, np.int64)      # a heap of the newest positions among entries that rank before, the oldest first
    for i in range(k):
        at = i
        p = position[start + i]
        while at and newest[(at - 1) >> 1] > p:
            newest[at] = newest[(at - 1) >> 1]
            at = (at - 1) >> 1
        newest[at] = p
    to = start + k
    for e in range(start + k, start + n):
        p = position[e]
        if newest[0] >= p:
            continue
        at = 0
        while True:
            child = 2 * at + 1
            if child >= k:
                break
            if child + 1 < k and newest[child + 1] < newest[child]:
                child += 1
            if newest[child] >= p:
                break
            newest[at] = newest[child]
            at = child
        newest[at] = p
        seq[to], score[to] = seq[e], score[e]
        position[to] = p
        to += 1
    return to - start


@njit(cache=True)
def drop_dominated(buffers, slot):
    """Leave the k-skyband of a slot's entries."""
    block = buffers.block
    block[slot, LENGTH] = keep_skyband(
        buffers.seq, buffers.position, buffers.score, block[slot, START], block[slot, LENGTH], block[slot, K])


@njit(cache=True)
def share(k, limit):
    """Return how many entries a skyband keeps when it outgrows ``limit``."""
    return max(k, 2 * limit // 3)


@njit(cache=True)
def drop_lowest(buffers, slot, changed):
    """Leave :func:`share` of a slot's entries; the first one dropped sets theta."""
    block = buffers.block
    rest = share(block[slot, K], block[slot, LIMIT])
    if block[slot, LENGTH] > rest:
        buffers.theta[slot] = buffers.score[block[slot, START] + rest]
        block[slot, LENGTH] = rest
        changed[slot] = True


@njit(cache=True)
def spacious(n):
    """Return how large a block should be for a skyband of ``n`` entries: it is thinned when it is full."""
    return n + n // 4 + 2


@njit(cache=True)
def make_way(buffers, slot, admitted, changed):
    """Thin the skyband of a slot whose block is full, and raise theta if that is not enough for ``admitted`` more.

    When this happens, and so theta, follows from LENGTH and CAPACITY alone.
    """
    block = buffers.block
    drop_dominated(buffers, slot)
    limit = block[slot, LIMIT]
    if block[slot, LENGTH] + admitted > limit - limit // 8:
        drop_lowest(buffers, slot, changed)


@njit(cache=True)
def widen(buffers, cursor, slot, admitted, apart):
    """Give a thinned slot a larger block if ``admitted`` more would fill it again, or nearly so; return the buffers."""
    block = buffers.block
    need = block[slot, LENGTH] + admitted
    capacity = max(need, min(block[slot, LIMIT], spacious(need)))
    if need > block[slot, CAPACITY] or (capacity > block[slot, CAPACITY] and 8 * need > 7 * block[slot, CAPACITY]):
        buffers = move_block(buffers, cursor, slot, capacity, apart)
    return buffers


@njit(cache=True)
def fit_block(buffers, cursor, slot, n, apart):
    """Give a slot a block for a skyband of ``n`` entries, which are to be written: its CAPACITY does not depend on what it was."""
    block = buffers.block
    capacity = max(n, min(block[slot, LIMIT], spacious(n)))
    if block[slot, CAPACITY] < capacity:
        block[slot, LENGTH] = 0
        return move_block(buffers, cursor, slot, capacity, apart)
    cursor[LEFT] += block[slot, CAPACITY] - capacity
    block[slot, CAPACITY] = capacity
    return buffers


@njit(cache=True)
def ordered_group(row_message, row_slot, start, end, order):
    """Write the rows ``start..end`` into ``order`` by (slot, message); they are sorted already if of one message."""
    if row_message[start] == row_message[end - 1]:
        for i in range(start, end):
            order[i - start] = i
    else:
        keys = np.empty(end - start, np.int64)
        for i in range(start, end):
            keys[i - start] = (np.int64(row_slot[i]) << np.int64(32)) | np.int64(i)
        keys.sort()
        for i in range(end - start):
            order[i] = keys[i] & _LOW


@njit(cache=True)
def agenda(row_slot, order, group, falling, n_falling, slots, firsts):
    """Merge two sorted lists of slots: those with rows ``order[:group]``, and those that fall in; return how many.

    :param slots: int64[], gets the slots, rising, each once; as ``~slot`` if it falls in.
    :param firsts: int64[], gets where the rows of each begin in ``order``, and behind the last one their end.
    """
    i, j, n = 0, 0, 0
    while i < n_falling or j < group:
        slot = np.int64(row_slot[order[j]]) if j < group else FAR
        firsts[n] = j
        if i < n_falling and falling[i] <= slot:
            slot = falling[i]
            slots[n] = ~slot
            i += 1
        else:
            slots[n] = slot
        n += 1
        while j < group and row_slot[order[j]] == slot:
            j += 1
    firsts[n] = j
    return n


@njit(cache=True)
def touch(block, position, score, slots, start, end):
    """Read what the next slots will need: the memory fetches it side by side, and not one after another."""
    sink = 0
    for i in range(start, end):
        slot = slots[i] if slots[i] >= 0 else ~slots[i]
        sink += block[slot, START]
    for i in range(start, end):
        slot = slots[i] if slots[i] >= 0 else ~slots[i]
        if block[slot, STATE] == ACTIVE:
            first = block[slot, START]
            for e in range(first, first + block[slot, LENGTH], 8):
                sink += position[e] + np.int64(score[e])
    return sink


@njit(cache=True, inline="always")
def count_admitted(row_score, order, first, end, theta):
    """Return how many of the rows ``order[first:end]`` reach theta."""
    n = 0
    for r in range(first, end):
        n += row_score[order[r]] >= theta
    return n


@njit(cache=True, inline="always")
def change_by_one(buffers, calendar, log, n_log, slot, changed, limit, place, gone, m_seq, m_position, score, now):
    """Take out the entry at ``place`` if ``gone``, else put an arrival into its place; return the number of the next change."""
    block, theta = buffers.block, buffers.theta
    k, start, length = block[slot, K], block[slot, START], block[slot, LENGTH]
    if gone:
        # One entry less: the one behind the list moves up.
        if place < k:
            e = start + place
            n_log = log_change(log, n_log, slot, REMOVE, buffers.seq[e], buffers.score[e], 0, now)
            if length > k:
                e = start + k
                n_log = log_change(log, n_log, slot, ADD, buffers.seq[e], buffers.score[e], k, now)
        close_gap(buffers.seq, buffers.position, buffers.score, start + place, start + length)
        block[slot, LENGTH] = length - 1
        return n_log
    # One entry more: the last of the list moves out.
    before = length
    if before == limit:
        last = buffers.score[start + before - 1]
        if theta[slot] != min(score, last):
            theta[slot] = min(score, last)
            changed[slot] = True
        if score < last:
            return n_log
        length -= 1
    out_seq, out_score = m_seq, score
    if before >= k:
        out_seq, out_score = buffers.seq[start + k - 1], buffers.score[start + k - 1]
    e = open_gap(buffers.seq, buffers.position, buffers.score, start, start + length, score)
    buffers.seq[e], buffers.position[e], buffers.score[e] = m_seq, m_position, score
    block[slot, LENGTH] = length + 1
    if e - start < k:
        if before >= k:
            n_log = log_change(log, n_log, slot, REMOVE, out_seq, out_score, 0, now)
        n_log = log_change(log, n_log, slot, ADD, m_seq, score, e - start + 1, now)
    if before == 0:
        enter_date(calendar, block, slot, now)
    return n_log


@njit(cache=True)
def change_by_several(buffers, cursor, calendar, log, n_log, slot, changed, skyband, lost, seq, position, row_message, row_score, order, first, end,
                      now, expired):
    """Let entries expire and messages arrive, and compare the list before with the list after; return the next change's number.

    A slot with too little left gets the state DUE.
    """
    block, theta = buffers.block, buffers.theta
    k, limit, start, before = block[slot, K], block[slot, LIMIT], block[slot, START], block[slot, LENGTH]
    # The list before, with the new list behind it.
    was_seq, was_position, was_score = np.empty(2 * k, np.int64), np.empty(2 * k, np.int64), np.empty(2 * k)
    theta_before = theta[slot]
    listed = min(k, before)
    for e in range(listed):
        was_seq[e], was_position[e], was_score[e] = buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e]
    if lost:
        to = start
        for e in range(start, start + before):
            if buffers.position[e] > expired:
                buffers.seq[to], buffers.position[to], buffers.score[to] = buffers.seq[e], buffers.position[e], buffers.score[e]
                to += 1
        block[slot, LENGTH] = to - start
    for r in range(first, end):
        if row_score[order[r]] >= theta[slot]:
            m = row_message[order[r]]
            place_arrival(buffers, slot, seq[m], position[m], row_score[order[r]], FAR if skyband else limit)
    if skyband and block[slot, CAPACITY] > limit:
        if block[slot, LENGTH] > limit:
            drop_dominated(buffers, slot)
        if block[slot, LENGTH] > limit:
            drop_lowest(buffers, slot, changed)
        cursor[LEFT] += block[slot, CAPACITY] - limit
        block[slot, CAPACITY] = limit
    length = block[slot, LENGTH]
    if length < k and theta[slot] > -np.inf:
        # Something outside the buffer may belong to the list now: freeze the list as it was.
        for e in range(listed):
            buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e] = was_seq[e], was_position[e], was_score[e]
        block[slot, LENGTH] = block[slot, FROZEN] = listed
        block[slot, STATE] = DUE
        leave_date(calendar, block, slot)
        theta[slot] = np.inf
        changed[slot] = True
        return n_log
    if theta[slot] != theta_before:
        changed[slot] = True
    if block[slot, KEY] == FAR and length:
        enter_date(calendar, block, slot, now)
    lists = min(k, length)
    for e in range(lists):
        at = listed + e
        was_seq[at], was_position[at], was_score[at] = buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e]
    return log_difference(log, n_log, slot, was_seq, was_position, was_score, listed, lists, now)


@njit(cache=True)
def apply_matches(buffers, cursor, calendar, seq, position, rows, extent, watermark, changed, apart, skyband):
    """Let messages arrive and others expire, in order of time, up to ``watermark``.

    Every time at which something happens is a step: the slots concerned are taken in rising order, each first loses what
    has expired, then gets what has arrived, and then the change of its top-k list is logged.

    :param changed: bool[slots], scratch, false before; true after for slots whose theta changed.
    :param skyband: whether buffers are skybands: they drop what is dominated when they are full, *kmax* what is last.
    :returns: (buffers, log, number of changes, slots that fell due int32[], a number without meaning).
    """
    block, theta = buffers.block, buffers.theta
    row_message, row_slot, row_score = rows.message, rows.slot, rows.score
    heap, dates = calendar.heap, calendar.size
    log, n_log = new_log(64 + 4 * row_slot.shape[0]), 0
    due, n_due = np.empty(16, np.int32), 0
    falling = np.empty(block.shape[0], np.int64)
    order = np.empty(row_slot.shape[0], np.int64)
    slots, firsts = np.empty(row_slot.shape[0] + block.shape[0], np.int64), np.empty(row_slot.shape[0] + block.shape[0] + 1, np.int64)
    row, rows_end = 0, row_slot.shape[0]
    sink = 0
    while True:
        arrival = position[row_message[row]] if row < rows_end else FAR
        turn_to(calendar, block, min(arrival, watermark) - extent)
        now = min(arrival, block[heap[0], KEY] + extent if dates[NEAR] else FAR)
        if now > watermark or now == FAR:
            break
        expired = now - extent
        n_falling = fall_in(heap, dates, block, expired, falling)
        group = 0
        if arrival == now:
            end = row
            while end < rows_end and position[row_message[end]] == now:
                end += 1
            ordered_group(row_message, row_slot, row, end, order)
            group = end - row
            row = end
        n_slots = agenda(row_slot, order, group, falling, n_falling, slots, firsts)
        for i in range(n_slots):
            if i % TOGETHER == 0:
                sink += touch(block, buffers.position, buffers.score, slots, i, min(i + TOGETHER, n_slots))
            slot = slots[i]
            falls = slot < 0
            if falls:
                slot = ~slot
            first, j = firsts[i], firsts[i + 1]
            state = block[slot, STATE]
            if state != ACTIVE:
                if state == PENDING:
                    for r in range(first, j):
                        m = row_message[order[r]]
                        buffers = collect_arrival(buffers, cursor, slot, seq[m], position[m], row_score[order[r]], expired, apart)
                continue
            k, limit = block[slot, K], FAR if skyband else block[slot, LIMIT]
            admitted = count_admitted(row_score, order, first, j, theta[slot])
            if skyband:
                if block[slot, LENGTH] + admitted > block[slot, CAPACITY]:
                    make_way(buffers, slot, admitted, changed)
                    admitted = count_admitted(row_score, order, first, j, theta[slot])
                    buffers = widen(buffers, cursor, slot, admitted, apart)
            else:
                while min(block[slot, LENGTH] + admitted, limit) > block[slot, CAPACITY]:
                    buffers = make_room(buffers, cursor, slot, apart)
            lost, place = 0, 0
            if falls:
                lost, place, oldest = find_expired(buffers.position, block[slot, START], block[slot, LENGTH], expired)
                if oldest != FAR:
                    enter_date(calendar, block, slot, oldest)
            if lost == 0 and admitted == 0:
                continue
            if n_log + 2 * k + 2 > log.slot.shape[0]:
                log = grow_log(log, n_log, 2 * k + 2)
            if lost == 1 and admitted == 0 and (block[slot, LENGTH] > k or theta[slot] == -np.inf):
                n_log = change_by_one(buffers, calendar, log, n_log, slot, changed, limit, place, True, 0, 0, 0.0, now)
            elif lost == 0 and j == first + 1:
                m = row_message[order[first]]
                n_log = change_by_one(
                    buffers, calendar, log, n_log, slot, changed, limit, 0, False, seq[m], position[m], row_score[order[first]], now)
            else:
                n_log = change_by_several(buffers, cursor, calendar, log, n_log, slot, changed, skyband, lost, seq, position,
                                          row_message, row_score, order, first, j, now, expired)
                if block[slot, STATE] == DUE:
                    if n_due == due.shape[0]:
                        more = np.empty(2 * n_due, np.int32)
                        more[:n_due] = due
                        due = more
                    due[n_due] = slot
                    n_due += 1
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
        block[slot, LENGTH], block[slot, FROZEN], block[slot, STATE] = kept, 0, ACTIVE
        theta[slot] = bound
        if kept:
            enter_date(calendar, block, slot, oldest)
    return log, n_log, due[:n_due]


@njit(cache=True)
def resolve_skyband(buffers, cursor, calendar, slots, offsets, wanted, ranks, ratio, seq, position, score, expired, watermark, apart):
    """Merge answers with what was collected since, choose theta, and publish; ``slots`` are pending and rise.

    :param offsets: answer *i* is ``offsets[i]:offsets[i + 1]`` of seq, position, score, in rank order.
    :param wanted: int64[n]: an answer as long as that is full.
    :param ranks: int64[n]: theta is the score of the answer's message of that rank; 0: theta is ``ratio`` times the k-th score.
    :param expired: positions up to this one have left the window.
    :returns: (buffers, log, number of changes, slots that are due again int32[]).
    """
    block, theta = buffers.block, buffers.theta
    log, n_log = new_log(64), 0
    due, n_due = np.empty(slots.shape[0], np.int32), 0
    all_seq, all_position, all_score = np.empty(256, np.int64), np.empty(256, np.int64), np.empty(256)
    for a in range(slots.shape[0]):
        slot = slots[a]
        k, start, frozen = block[slot, K], block[slot, START], block[slot, FROZEN]
        collected = start + frozen
        n = block[slot, LENGTH] - frozen
        answer, answer_end = offsets[a], offsets[a + 1]
        bound = score[answer_end - 1] if answer_end - answer >= wanted[a] else -np.inf
        chosen = -np.inf
        if ranks[a] and answer_end - answer >= ranks[a]:
            chosen = score[answer + ranks[a] - 1]
        # Arrivals in rank order: newest first, then a stable sort by falling score.
        rank = np.argsort(-buffers.score[collected:collected + n][::-1], kind="mergesort")
        # The published list, with the merged one behind it.
        room = frozen + n + answer_end - answer
        if room > all_seq.shape[0]:
            all_seq, all_position, all_score = np.empty(2 * room, np.int64), np.empty(2 * room, np.int64), np.empty(2 * room)
        for e in range(frozen):
            all_seq[e], all_position[e], all_score[e] = buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e]
        end = frozen
        r = 0
        while answer < answer_end or r < n:
            c = collected + n - 1 - rank[r] if r < n else collected
            if r < n and (answer == answer_end or not ranks_before(
                    score[answer], position[answer], seq[answer], buffers.score[c], buffers.position[c], buffers.seq[c])):
                if answer < answer_end and seq[answer] == buffers.seq[c]:
                    answer += 1     # in both
                all_seq[end], all_position[end], all_score[end] = buffers.seq[c], buffers.position[c], buffers.score[c]
                r += 1
                if all_score[end] < bound:
                    break
            else:
                all_seq[end], all_position[end], all_score[end] = seq[answer], position[answer], score[answer]
                answer += 1
            end += all_position[end] > expired
        merged = end - frozen
        if merged < k and bound > -np.inf:
            block[slot, LENGTH] = frozen
            due[n_due] = slot
            n_due += 1
            continue
        if ranks[a] == 0 and merged >= k:
            kth = all_score[frozen + k - 1]
            chosen = min(kth, ratio * kth)
        if merged < k or all_score[frozen + k - 1] < chosen:
            chosen = bound      # too little is left of what would have been chosen
        chosen = max(chosen, bound)
        while merged and all_score[frozen + merged - 1] < chosen:
            merged -= 1
        log = grow_log(log, n_log, frozen + merged)
        n_log = log_difference(log, n_log, slot, all_seq, all_position, all_score, frozen, min(k, merged), watermark)
        merged = keep_skyband(all_seq, all_position, all_score, frozen, merged, k)
        if merged > block[slot, LIMIT]:
            merged = share(k, block[slot, LIMIT])
            chosen = all_score[frozen + merged]
        theta[slot] = chosen
        buffers = fit_block(buffers, cursor, slot, merged, apart)
        start = block[slot, START]
        oldest = FAR
        for e in range(merged):
            at = frozen + e
            buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e] = all_seq[at], all_position[at], all_score[at]
            oldest = min(oldest, all_position[at])
        block[slot, LENGTH], block[slot, FROZEN], block[slot, STATE] = merged, 0, ACTIVE
        if merged:
            enter_date(calendar, block, slot, oldest)
    return buffers, log, n_log, due[:n_due]
