"""Kernels that apply arrivals and expiry to buffers, for *kmax* and for skybands.

All are compiled lazily (arguments may be read-only) and cached on disk. Kernels that are called for every entry that enters or leaves are
compiled with :data:`~dskype.bolts.topk.buffers._kernels.BARE`. They allocate nothing: without enough room they stop, and continue later.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from dskype.bolts.array_kernels import CAPACITY, END, LEFT, LENGTH, START
from dskype.bolts.topk.buffers._kernels import (
    ACTIVE,
    ADD,
    BARE,
    DUE,
    FAR,
    FIRST,
    FROZEN,
    INLINE,
    KEY,
    LAST,
    LIMIT,
    MARKED,
    PENDING,
    REMOVE,
    SPARES,
    STATE,
    THETA,
    K,
    Rows,
    collect_arrival,
    drop_collected,
    enter_date,
    fall_out,
    first_out,
    larger,
    leave_date,
    log_change,
    log_difference,
    move_block,
    pass_time,
    turn_page,
)
from dskype.topology.kernel_cache import njit

DONE, TURN, NO_ENTRIES, NO_CHANGES, NO_SPACE, NO_SLOTS, NO_PAGES = range(7)
"""Why :func:`advance` stops: all is done, or there is not enough room."""
ROW, GROUP, NOW, CHANGED, DUES, MARKS, NEED, SEEN, SINK = range(9)
AHEAD = 32
_LOW = np.int64(0xFFFFFFFF)

Arrivals = namedtuple("Arrivals", "seq position message slot score")
Arrivals.__doc__ = """Messages: seq, position int64; and matches: message int32, slot int32, score float64, in order of (position, slot, message).

A score of NaN says that the message, which came before, ends at the position."""
Work = namedtuple("Work", "at due marked seq position score newest best")
Work.__doc__ = """The state and the scratch arrays of :func:`advance`.

at int64[9]: ROW, the next match; GROUP, the end of the matches at the current position; NOW, that position; CHANGED, DUES, MARKS: number of
changes, of slots that fell due, and of slots whose threshold has changed; NEED: how much room is needed; SEEN: the row up to which memory
was touched.
due, marked int32[]: those slots. seq, position, newest int64[], score, best float64[], of one length: scratch for lists.
"""


@njit(cache=True)
def by_slot(position, rows):
    """Return matches in order of (position, slot, message), given matches in order of (message, slot)."""
    n = rows.slot.shape[0]
    message, slot, score = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n)
    start = 0
    while start < n:
        end = start + 1
        while end < n and position[rows.message[end]] == position[rows.message[start]]:
            end += 1
        keys = np.empty(end - start, np.int64)
        for i in range(start, end):
            keys[i - start] = (np.int64(rows.slot[i]) << np.int64(32)) | np.int64(i)
        if rows.message[start] != rows.message[end - 1]:
            keys.sort()
        for i in range(start, end):
            r = keys[i - start] & _LOW
            message[i], slot[i], score[i] = rows.message[r], rows.slot[r], rows.score[r]
        start = end
    return Rows(message, slot, score)


@njit(**INLINE)
def mark(block, work, slot):
    """Remember that the threshold of a slot has changed."""
    if not block[slot, MARKED]:
        block[slot, MARKED] = 1
        work.marked[work.at[MARKS]] = slot
        work.at[MARKS] += 1


@njit(**INLINE)
def open_gap(buffers, start, end, arriving):
    """Move the entries that rank behind an arrival one place down; return its place.

    It ranks before entries with the same score, which are older.
    """
    e = end
    while e > start and buffers.score[e - 1] <= arriving:
        buffers.seq[e], buffers.position[e], buffers.score[e] = buffers.seq[e - 1], buffers.position[e - 1], buffers.score[e - 1]
        e -= 1
    return e


@njit(**BARE)
def place_arrival(buffers, slot, seq, position, score, limit):
    """Insert an arrival, which is newer than all entries; the entry behind place ``limit`` is dropped and sets theta.

    There is room for one more entry, or the limit is reached. Only for scores at or above theta.
    """
    block = buffers.block
    start, n = np.int64(block[slot, START]), np.int64(block[slot, LENGTH])
    if n == limit:
        last = buffers.score[start + n - 1]
        buffers.real[slot, THETA] = min(score, last)
        if score < last:
            return
        n -= 1
    at = open_gap(buffers, start, start + n, score)
    buffers.seq[at], buffers.position[at], buffers.score[at] = seq, position, score
    block[slot, LENGTH] = n + 1


@njit(**BARE)
def keep_skyband(seq, position, score, start, n, k, newest):
    """Move the k-skyband of the ``n`` entries from ``start`` on to the front; return its size. See ``skyband.py``; O(n log k).

    :param newest: int64[>= n], scratch: a heap of the newest positions among entries that rank before, the oldest first.
    """
    if n <= k:
        return n
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


@njit(**BARE)
def drop_dominated(buffers, slot, newest):
    """Reduce a slot's entries to their k-skyband."""
    block = buffers.block
    block[slot, LENGTH] = keep_skyband(
        buffers.seq, buffers.position, buffers.score, np.int64(block[slot, START]), np.int64(block[slot, LENGTH]), np.int64(block[slot, K]), newest
    )


@njit(**BARE)
def share(k, limit):
    """Return how many entries a skyband keeps when it outgrows ``limit``."""
    return max(k, 2 * limit // 3)


@njit(**BARE)
def drop_lowest(buffers, slot, work):
    """Reduce a slot's entries to :func:`share`; the first one dropped sets theta."""
    block = buffers.block
    rest = share(np.int64(block[slot, K]), np.int64(block[slot, LIMIT]))
    if block[slot, LENGTH] > rest:
        buffers.real[slot, THETA] = buffers.score[block[slot, START] + rest]
        block[slot, LENGTH] = rest
        mark(block, work, slot)


@njit(cache=True)
def spacious(n):
    """Return the block size for a skyband of ``n`` entries, which is thinned when the block is full."""
    return n + n // 4 + 2


@njit(**BARE)
def make_way(buffers, slot, admitted, work):
    """Thin the skyband of a slot whose block is full, and raise theta if that is not enough for ``admitted`` more.

    The time of this, and so theta, follows from LENGTH and CAPACITY alone.
    """
    block = buffers.block
    drop_dominated(buffers, slot, work.newest)
    limit = block[slot, LIMIT]
    if block[slot, LENGTH] + admitted > limit - limit // 8:
        drop_lowest(buffers, slot, work)


@njit(**BARE)
def widen(buffers, slot, admitted):
    """Give a thinned slot a larger block if ``admitted`` more would fill it again, or nearly so; there is room for it."""
    block = buffers.block
    need = np.int64(block[slot, LENGTH]) + admitted
    capacity = max(need, min(np.int64(block[slot, LIMIT]), spacious(need)))
    if need > block[slot, CAPACITY] or (capacity > block[slot, CAPACITY] and 8 * need > 7 * block[slot, CAPACITY]):
        move_block(buffers, slot, capacity)


@njit(**BARE)
def fit_block(buffers, slot, n):
    """Give a slot a block for a new skyband of ``n`` entries. Its CAPACITY does not depend on the old one."""
    block = buffers.block
    capacity = max(n, min(np.int64(block[slot, LIMIT]), spacious(n)))
    if block[slot, CAPACITY] < capacity:
        block[slot, LENGTH] = 0
        move_block(buffers, slot, capacity)
    else:
        buffers.cursor[LEFT] += block[slot, CAPACITY] - capacity
        block[slot, CAPACITY] = capacity


@njit(**BARE)
def touch(buffers, slots, start, end, apart):
    """Read the memory that some slots will need, so that it is fetched in parallel."""
    block, seq, position, score = buffers.block, buffers.seq, buffers.position, buffers.score
    sink, sunk = np.int64(0), 0.0
    for i in range(start, end):
        sink ^= np.int64(block[slots[i], START])
    for i in range(start, end):
        slot = slots[i]
        if block[slot, STATE] == ACTIVE and block[slot, CAPACITY]:
            first = np.int64(np.uint32(block[slot, START]))
            last = first + np.int64(np.uint32(min(block[slot, LENGTH], block[slot, CAPACITY] - 1)))
            for e in range(first, last, 8):
                sink ^= position[e]
                sunk += score[e]
            sink ^= position[last]
            sunk += score[last]
            if apart:
                for e in range(first, last, 8):
                    sink ^= seq[e]
                sink ^= seq[last]
    return sink ^ np.int64(sunk > 0.0)


@njit(**INLINE)
def expire_one(buffers, log, n_log, slot, place, now):
    """Remove the entry at ``place``; the entry behind the list moves up. Return the number of the next change."""
    block, seq, position, score = buffers.block, buffers.seq, buffers.position, buffers.score
    k, start, length = np.int64(block[slot, K]), np.int64(block[slot, START]), np.int64(block[slot, LENGTH])
    if place < k:
        e = start + place
        n_log = log_change(log, n_log, slot, REMOVE, seq[e], score[e], 0, now)
        if length > k:
            e = start + k
            n_log = log_change(log, n_log, slot, ADD, seq[e], score[e], k, now)
    for e in range(start + place, start + length - 1):
        seq[e], position[e], score[e] = seq[e + 1], position[e + 1], score[e + 1]
    block[slot, LENGTH] = length - 1
    return n_log


@njit(**INLINE)
def admit_one(buffers, calendar, log, n_log, slot, work, limit, m_seq, score, now):
    """Insert an arrival; the last message of the list leaves it. Return the number of the next change."""
    block, real = buffers.block, buffers.real
    k, start, before = np.int64(block[slot, K]), np.int64(block[slot, START]), np.int64(block[slot, LENGTH])
    length = before
    if before == limit:
        last = buffers.score[start + before - 1]
        if real[slot, THETA] != min(score, last):
            real[slot, THETA] = min(score, last)
            mark(block, work, slot)
        if score < last:
            return n_log
        length -= 1
    out_seq, out_score = m_seq, score
    if before >= k:
        out_seq, out_score = buffers.seq[start + k - 1], buffers.score[start + k - 1]
    e = open_gap(buffers, start, start + length, score)
    buffers.seq[e], buffers.position[e], buffers.score[e] = m_seq, now, score
    block[slot, LENGTH] = length + 1
    if e - start < k:
        if before >= k:
            n_log = log_change(log, n_log, slot, REMOVE, out_seq, out_score, 0, now)
        n_log = log_change(log, n_log, slot, ADD, m_seq, score, e - start + 1, now)
    if before == 0:
        enter_date(calendar, buffers.long, slot, now)
    return n_log


@njit(**BARE)
def ends_among(arrivals, first, end, seq):
    """Tell whether one of the matches ``first..end - 1`` says that a message ends."""
    for r in range(first, end):
        if np.isnan(arrivals.score[r]) and arrivals.seq[arrivals.message[r]] == seq:
            return True
    return False


@njit(**BARE)
def count_ended(buffers, slot, arrivals, first, end):
    """Return how many entries of an active slot end by the matches ``first..end - 1``."""
    block = buffers.block
    start, ended = np.int64(block[slot, START]), 0
    for r in range(first, end):
        if np.isnan(arrivals.score[r]):
            for e in range(start, start + np.int64(block[slot, LENGTH])):
                ended += buffers.seq[e] == arrivals.seq[arrivals.message[r]]
    return ended


@njit(**BARE)
def renew_entries(buffers, slot, work, arrivals, first, end, now, extent, skyband, ending):
    """Let entries expire or end and the matches ``first..end - 1`` arrive; copy the list before into ``work``, and return its length."""
    block, real, position = buffers.block, buffers.real, buffers.position
    limit = np.int64(block[slot, LIMIT])
    start, before = np.int64(block[slot, START]), np.int64(block[slot, LENGTH])
    listed = min(np.int64(block[slot, K]), before)
    for e in range(listed):
        work.seq[e], work.position[e], work.score[e] = buffers.seq[start + e], position[start + e], buffers.score[start + e]
    to = start
    for e in range(start, start + before):
        if position[e] > now - extent and not (ending and ends_among(arrivals, first, end, buffers.seq[e])):
            buffers.seq[to], position[to], buffers.score[to] = buffers.seq[e], position[e], buffers.score[e]
            to += 1
    block[slot, LENGTH] = to - start
    for r in range(first, end):
        if arrivals.score[r] >= real[slot, THETA]:
            place_arrival(buffers, slot, arrivals.seq[arrivals.message[r]], now, arrivals.score[r], FAR if skyband else limit)
    if skyband and block[slot, CAPACITY] > limit:
        if block[slot, LENGTH] > limit:
            drop_dominated(buffers, slot, work.newest)
        if block[slot, LENGTH] > limit:
            drop_lowest(buffers, slot, work)
        buffers.cursor[LEFT] += block[slot, CAPACITY] - limit
        block[slot, CAPACITY] = limit
    return listed


@njit(**BARE)
def log_renewed(buffers, calendar, log, n_log, slot, work, listed, theta, now):
    """Log what :func:`renew_entries` did to the list of a slot; return the next change's number. A slot with too few entries becomes DUE.

    :param listed: length of the list before, which is in ``work``; ``theta``: the threshold before.
    """
    block, real = buffers.block, buffers.real
    k, start, length = np.int64(block[slot, K]), np.int64(block[slot, START]), np.int64(block[slot, LENGTH])
    was_seq, was_position, was_score = work.seq, work.position, work.score
    if length < k and real[slot, THETA] > -np.inf:
        # A message outside the buffer may belong to the list now: freeze the list as it was.
        for e in range(listed):
            buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e] = was_seq[e], was_position[e], was_score[e]
        block[slot, LENGTH] = block[slot, FROZEN] = listed
        block[slot, STATE] = DUE
        leave_date(calendar, buffers.long, slot)
        real[slot, THETA] = np.inf
        mark(block, work, slot)
        work.due[work.at[DUES]] = slot
        work.at[DUES] += 1
        return n_log
    if real[slot, THETA] != theta:
        mark(block, work, slot)
    if buffers.long[slot, KEY] == FAR and length:
        enter_date(calendar, buffers.long, slot, now)
    elif buffers.long[slot, KEY] != FAR and length == 0:
        leave_date(calendar, buffers.long, slot)
    lists = min(k, length)  # the new list goes behind the old one
    for e in range(lists):
        at = listed + e
        was_seq[at], was_position[at], was_score[at] = buffers.seq[start + e], buffers.position[start + e], buffers.score[start + e]
    return log_difference(log, n_log, slot, was_seq, was_position, was_score, listed, lists, now)


@njit(**INLINE)
def find_lost(buffers, calendar, slot, expired):
    """Remove the first slot from the calendar, and enter it again by its oldest live entry.

    :param expired: positions up to this one have left the window.
    :returns: (number of expired entries, place of the last of them).
    """
    block, position = buffers.block, buffers.position
    fall_out(calendar, buffers.long)
    lost, place, oldest = 0, 0, FAR
    start = np.int64(block[slot, START])
    for e in range(np.int64(block[slot, LENGTH])):
        p = position[start + e]
        if p <= expired:
            lost += 1
            place = e
        elif p < oldest:
            oldest = p
    if oldest != FAR:
        enter_date(calendar, buffers.long, slot, oldest)
    return lost, place


@njit(**INLINE)
def count_admitted(scores, first, end, theta):
    """Return how many of the scores ``first..end - 1`` reach theta."""
    admitted = 0
    for r in range(first, end):
        admitted += scores[r] >= theta
    return admitted


@njit(**BARE)
def grow_block(buffers, slot, work, scores, first, end, skyband):
    """Give an active slot room for the arrivals ``first..end - 1``; return 0, or the number of entries for which room is needed first."""
    block = buffers.block
    most = np.int64(block[slot, LENGTH]) + count_admitted(scores, first, end, buffers.real[slot, THETA])
    capacity = spacious(most) if skyband else larger(block, slot, min(most, np.int64(block[slot, LIMIT])))
    if buffers.cursor[END] + capacity > buffers.position.shape[0]:
        return capacity
    if skyband:
        make_way(buffers, slot, most - np.int64(block[slot, LENGTH]), work)
        widen(buffers, slot, count_admitted(scores, first, end, buffers.real[slot, THETA]))
    else:
        move_block(buffers, slot, capacity)
    return np.int64(0)


@njit(**INLINE)
def find_shortage(calendar, work):
    """Return NO_SLOTS or NO_PAGES if there is no room to change a slot, else DONE."""
    if work.at[DUES] == work.due.shape[0] or work.at[MARKS] == work.marked.shape[0]:
        return NO_SLOTS
    return DONE if calendar.size[SPARES] else NO_PAGES


@njit(**INLINE)
def collect_row(buffers, slot, work, arrivals, row, now, extent, ending):
    """Let a pending slot collect a match, or drop what ends; return DONE, or NO_SPACE or NO_ENTRIES if there is no room (NEED says how much)."""
    if ending and np.isnan(arrivals.score[row]):
        drop_collected(buffers, slot, arrivals.seq[arrivals.message[row]])
        return DONE
    length = np.int64(buffers.block[slot, LENGTH])
    if length > work.best.shape[0]:
        work.at[NEED] = length
        return NO_SPACE
    m_seq = arrivals.seq[arrivals.message[row]]
    work.at[NEED] = collect_arrival(buffers, slot, m_seq, now, arrivals.score[row], now - extent, work.best, ending)
    return NO_ENTRIES if work.at[NEED] else DONE


@njit(**BARE)
def run_steps(buffers, calendar, work, log, arrivals, extent, watermark, apart, skyband, ending):
    """Run :func:`advance` until it has to stop; return the reason."""
    block, long, real, at = buffers.block, buffers.long, buffers.real, work.at
    size, near, row_slot, row_score = calendar.size, calendar.near, arrivals.slot, arrivals.score
    rows, room = np.int64(row_slot.shape[0]), np.int64(log.slot.shape[0])
    row, group, now, n_log, seen = at[ROW], at[GROUP], at[NOW], at[CHANGED], at[SEEN]
    near_seen, stop = np.int64(0), np.int64(DONE)
    while True:
        falling = np.int64(first_out(calendar, long))
        key = long[falling, KEY] if falling >= 0 else FAR
        if row == group and key > now - extent:
            # Advance to the next arrival or expiry.
            arrival = arrivals.position[arrivals.message[row]] if row < rows else FAR
            if falling < 0 and pass_time(calendar, min(arrival, watermark) - extent):
                stop = TURN
                break
            later = min(arrival, key + extent if falling >= 0 else FAR)
            if later > watermark:
                stop = DONE
                break
            now = later
            while group < rows and arrivals.position[arrivals.message[group]] == now:
                group += 1
            continue
        # The next slot.
        slot = np.int64(row_slot[row]) if row < group else FAR
        falls = key <= now - extent and falling <= slot
        if falls:
            slot = falling
            if size[FIRST] >= near_seen:
                near_seen = min(size[FIRST] + AHEAD, size[LAST])
                at[SINK] ^= touch(buffers, near, size[FIRST], near_seen, apart)
        end = row
        while end < group and row_slot[end] == slot:
            end += 1
        if end > seen:
            seen = min(row + AHEAD, rows)
            at[SINK] ^= touch(buffers, row_slot, row, seen, apart)
        stop = find_shortage(calendar, work)
        if stop != DONE:
            break
        if block[slot, STATE] != ACTIVE:
            if block[slot, STATE] == PENDING:
                stop = collect_row(buffers, slot, work, arrivals, row, now, extent, ending)
                if stop != DONE:
                    break
            row += 1
            continue
        k, limit, theta, length = np.int64(block[slot, K]), np.int64(block[slot, LIMIT]), real[slot, THETA], np.int64(block[slot, LENGTH])
        admitted = count_admitted(row_score, row, end, theta)
        most = length + admitted
        if n_log + 2 * min(k, most) + 2 > room:
            stop, at[NEED] = NO_CHANGES, n_log + 2 * min(k, most) + 2
            break
        if 2 * most > work.best.shape[0]:
            stop, at[NEED] = NO_SPACE, 2 * most
            break
        if (most if skyband else min(most, limit)) > block[slot, CAPACITY]:
            at[NEED] = grow_block(buffers, slot, work, row_score, row, end, skyband)
            if at[NEED]:
                stop = NO_ENTRIES
                break
            theta, length = real[slot, THETA], np.int64(block[slot, LENGTH])
            admitted = count_admitted(row_score, row, end, theta)
        first, row = row, end
        lost, place = find_lost(buffers, calendar, slot, now - extent) if falls else (0, 0)
        ended = count_ended(buffers, slot, arrivals, first, end) if ending else 0
        if lost == 0 and admitted == 0 and ended == 0:
            continue
        if lost == 1 and admitted == 0 and ended == 0 and (length > k or theta == -np.inf):
            n_log = expire_one(buffers, log, n_log, slot, place, now)
        elif lost == 0 and ended == 0 and end == first + 1:
            m_seq = arrivals.seq[arrivals.message[first]]
            n_log = admit_one(buffers, calendar, log, n_log, slot, work, FAR if skyband else limit, m_seq, row_score[first], now)
        else:
            listed = renew_entries(buffers, slot, work, arrivals, first, end, now, extent, skyband, ending)
            n_log = log_renewed(buffers, calendar, log, n_log, slot, work, listed, theta, now)
    at[ROW], at[GROUP], at[NOW], at[CHANGED], at[SEEN] = row, group, now, n_log, seen
    return stop


@njit(cache=True)
def advance(buffers, calendar, work, log, arrivals, extent, watermark, apart, skyband, ending):
    """Let messages arrive and others expire, in order of time, up to ``watermark``.

    Every time of an arrival or expiry is a step. The slots concerned follow in rising order: each first drops expired entries, then
    gets arrivals, and then the change of its top-k list is logged.

    :param work: ``at`` says where to begin; at first it is 0, except for NOW, the previous watermark.
    :param apart: whether positions and seqs are different arrays.
    :param skyband: whether buffers are skybands: full skybands drop dominated entries, *kmax* drops the last.
    :param ending: whether messages may end before they leave the window; not with skybands.
    :returns: DONE; or what needs more room before the next call: NO_ENTRIES (NEED more entries), NO_CHANGES (NEED changes), NO_SPACE (scratch
        for lists of NEED entries), NO_SLOTS (due or marked slots), NO_PAGES (spare pages of the calendar).
    """
    while True:
        stop = run_steps(buffers, calendar, work, log, arrivals, extent, watermark, apart, skyband, ending)
        if stop != TURN:
            return stop
        turn_page(calendar, buffers.long)
