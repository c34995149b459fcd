"""Kernels that let buffers change: time passes, answers come. For *kmax* and the skybands.

All are lazily compiled (arguments may be read-only) and cached on disk.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dskype.bolts.topk._kernels import CAPACITY, LEFT, LENGTH, START, sort_small
from dskype.bolts.topk.buffers._kernels import (
    ACTIVE, ADD, DUE, FAR, FROZEN, KEY, LIMIT, PENDING, REMOVE, STATE, K, calendar_pop, calendar_push, collect_arrival, grow_log,
    log_change, log_difference, make_room, move_block, new_log, ranks_before)

TOGETHER = 16
_LOW = np.int64(0xFFFFFFFF)


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
    at = start + n
    while at > start and buffers.score[at - 1] <= score:        # entries with the same score are older: it goes before them
        buffers.seq[at], buffers.position[at], buffers.score[at] = buffers.seq[at - 1], buffers.position[at - 1], buffers.score[at - 1]
        at -= 1
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
def make_way(buffers, cursor, slot, admitted, changed, apart):
    """Thin a slot's skyband, and raise theta or take a larger block if that is not enough; return the buffers.

    Afterwards there is room for ``admitted`` more. When this happens, and so theta, follows from LENGTH and CAPACITY alone.
    """
    block = buffers.block
    drop_dominated(buffers, slot)
    limit = block[slot, LIMIT]
    if block[slot, LENGTH] + admitted > limit - limit // 8:
        drop_lowest(buffers, slot, changed)
    need = block[slot, LENGTH] + admitted
    capacity = max(need, min(limit, spacious(need)))
    # Not for a few more: the block would soon be full again.
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
def apply_matches(buffers, cursor, calendar, seq, position, rows, extent, watermark, changed, apart, skyband):
    """Let messages arrive and others expire, in order of time, up to ``watermark``.

    Every time at which something happens is a step: the slots concerned are taken in rising order, each first loses what
    has expired, then gets what has arrived, and then the change of its top-k list is logged.

    :param changed: bool[slots], scratch, false before; true after for slots whose theta changed.
    :param skyband: whether buffers are skybands: they drop what is dominated when they are full, *kmax* what is last.
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
            k, limit = block[slot, K], block[slot, LIMIT]
            admitted = 0
            for r in range(first, j):
                if rows.score[order[r]] >= theta[slot]:
                    admitted += 1
            if skyband:
                limit = FAR
                if block[slot, LENGTH] + admitted > block[slot, CAPACITY]:
                    buffers = make_way(buffers, cursor, slot, admitted, changed, apart)
                    admitted = 0
                    for r in range(first, j):
                        if rows.score[order[r]] >= theta[slot]:
                            admitted += 1
            start, before = block[slot, START], block[slot, LENGTH]
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

            if before < limit and before + admitted > block[slot, CAPACITY]:
                while min(before + admitted, limit) > block[slot, CAPACITY]:
                    buffers = make_room(buffers, cursor, slot, apart)
                start = block[slot, START]

            if lost == 0 and j == first + 1:
                # One entry more: the last of the list moves out.
                m, score = rows.message[order[first]], rows.score[order[first]]
                length = before
                if before == limit:
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
                    place_arrival(buffers, slot, seq[m], position[m], rows.score[order[r]], limit)
            if skyband and block[slot, CAPACITY] > block[slot, LIMIT]:
                if block[slot, LENGTH] > block[slot, LIMIT]:
                    drop_dominated(buffers, slot)
                if block[slot, LENGTH] > block[slot, LIMIT]:
                    drop_lowest(buffers, slot, changed)
                cursor[LEFT] += block[slot, CAPACITY] - block[slot, LIMIT]
                block[slot, CAPACITY] = block[slot, LIMIT]
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
        block[slot, LENGTH], block[slot, FROZEN], block[slot, STATE], block[slot, KEY] = merged, 0, ACTIVE, oldest
        if merged:
            calendar_push(calendar, oldest, slot)
    return buffers, log, n_log, due[:n_due]
