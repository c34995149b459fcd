"""Kernels of the top-k library: blocks, term ids, the plain index, what the engine checks. Imports numpy and numba only.

All are lazily compiled (arguments may be read-only) and cached on disk. A *block table* is int64[n, >= 3]; row *i* says
where the entries of item *i* lie in the pool's arrays: the columns START, LENGTH, CAPACITY.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import njit

from dskype.bolts._kernels import score as combined_score
from dskype.bolts._kernels import ssim

START, LENGTH, CAPACITY = range(3)
LON, LAT, ALPHA, THRESHOLD = range(4)
END, LEFT = 0, 1
_LOW = np.int64(0xFFFFFFFF)

TermMap = namedtuple("TermMap", "key local name references spare counters")
TermMap.__doc__ = """Dense ids of terms: open addressing from key int64[m] to local int32[m] (-1: empty place, m a power of two); by
local id its term (name int64) and how often it is used (references int32); spare int32: local ids to use again;
counters int64[3]: local ids ever given, spare ones, places in use."""


# -- blocks ---------------------------------------------------------------------------------------


@njit(cache=True)
def grown_capacity(capacity, length):
    """Return the next capacity of a block that must hold ``length`` entries."""
    return length if capacity == 0 else max(length, capacity + capacity // 2 + 2)


@njit(cache=True)
def space_needed(block, items, lengths):
    """Return how many entries the new blocks of those items take that outgrow their old ones."""
    need = 0
    for i in range(items.shape[0]):
        capacity = block[items[i], CAPACITY]
        if lengths[i] > capacity:
            need += grown_capacity(capacity, lengths[i])
    return need


@njit(cache=True)
def move_blocks(block, items, lengths, cursor):
    """Give those items new blocks at the end that outgrow their old ones.

    :param cursor: int64[2]: END, where the next block begins, and LEFT, entries of blocks left behind; both are updated.
    :returns: (source int64[m], length int64[m], destination int64[m]).
    """
    n = items.shape[0]
    source, length, destination = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    m = 0
    end = cursor[END]
    for i in range(n):
        item = items[i]
        capacity = block[item, CAPACITY]
        if lengths[i] > capacity:
            source[m], length[m], destination[m] = block[item, START], block[item, LENGTH], end
            m += 1
            cursor[LEFT] += capacity
            block[item, START] = end
            block[item, CAPACITY] = grown_capacity(capacity, lengths[i])
            end += block[item, CAPACITY]
    cursor[END] = end
    return source[:m], length[:m], destination[:m]


@njit(cache=True)
def pack_blocks(block):
    """Lay out all blocks from 0 on, in order of items; return as :func:`move_blocks`, and the end."""
    n = block.shape[0]
    source, length, destination = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    m, end = 0, 0
    for item in range(n):
        if block[item, CAPACITY]:
            source[m], length[m], destination[m] = block[item, START], block[item, LENGTH], end
            m += 1
            block[item, START] = end
            end += block[item, CAPACITY]
    return source[:m], length[:m], destination[:m], end


@njit(cache=True)
def copy_ranges(array, source, length, destination, out):
    """Copy ``array[source:source + length]`` to ``out[destination:]``, range by range."""
    for i in range(source.shape[0]):
        a, b = source[i], destination[i]
        for j in range(length[i]):
            out[b + j] = array[a + j]


@njit(cache=True)
def gather(array, start, length, total):
    """Return the ranges ``array[start:start + length]``, one after another."""
    out = np.empty(total, array.dtype)
    at = 0
    for i in range(start.shape[0]):
        for j in range(length[i]):
            out[at] = array[start[i] + j]
            at += 1
    return out


# -- terms ----------------------------------------------------------------------------------------


@njit(cache=True)
def _home(term, mask):
    mixed = ((term & _LOW) * np.int64(0x2545F491)) ^ (((term >> np.int64(32)) & _LOW) * np.int64(0x1B873593))
    return (mixed >> np.int64(20)) & mask


@njit(cache=True)
def find_term(term, key, local):
    """Return the local id of a term, -1 when it has none."""
    mask = np.int64(key.shape[0] - 1)
    at = _home(term, mask)
    while local[at] >= 0 and key[at] != term:
        at = (at + 1) & mask
    return local[at]


@njit(cache=True)
def rehash_terms(old_key, old_local, key, local):
    """Enter the terms of one table into a larger, empty one."""
    mask = np.int64(key.shape[0] - 1)
    for i in range(old_key.shape[0]):
        if old_local[i] >= 0:
            at = _home(old_key[i], mask)
            while local[at] >= 0:
                at = (at + 1) & mask
            key[at], local[at] = old_key[i], old_local[i]


@njit(cache=True)
def acquire_terms(terms, table):
    """Return local ids (int32[n]) of terms, new ones where needed, and count the use. The table has room for all."""
    out = np.empty(terms.shape[0], np.int32)
    mask = np.int64(table.key.shape[0] - 1)
    for i in range(terms.shape[0]):
        term = terms[i]
        at = _home(term, mask)
        while table.local[at] >= 0 and table.key[at] != term:
            at = (at + 1) & mask
        if table.local[at] < 0:
            if table.counters[1]:
                table.counters[1] -= 1
                new = np.int64(table.spare[table.counters[1]])
            else:
                new = table.counters[0]
                table.counters[0] += 1
            table.key[at], table.local[at] = term, new
            table.name[new] = term
            table.counters[2] += 1
        out[i] = table.local[at]
        table.references[out[i]] += 1
    return out


@njit(cache=True)
def release_terms(locals_, table):
    """Count the use down and forget terms that nobody uses any more (deletion by shifting back)."""
    mask = np.int64(table.key.shape[0] - 1)
    for i in range(locals_.shape[0]):
        gone = locals_[i]
        table.references[gone] -= 1
        if table.references[gone]:
            continue
        table.spare[table.counters[1]] = gone
        table.counters[1] += 1
        table.counters[2] -= 1
        hole = _home(table.name[gone], mask)
        while table.local[hole] != gone:
            hole = (hole + 1) & mask
        at = hole
        while True:
            at = (at + 1) & mask
            if table.local[at] < 0:
                break
            if ((at - _home(table.key[at], mask)) & mask) >= ((at - hole) & mask):
                table.key[hole], table.local[hole] = table.key[at], table.local[at]
                hole = at
        table.local[hole] = -1


@njit(cache=True)
def first_unordered_terms(offsets, terms):
    """Return the first row whose terms do not rise strictly, -1 if there is none."""
    for i in range(offsets.shape[0] - 1):
        for j in range(offsets[i] + 1, offsets[i + 1]):
            if terms[j] <= terms[j - 1]:
                return i
    return -1


@njit(cache=True)
def first_disorder(position, seq):
    """Return the first message that is not after its predecessor, -1 if there is none."""
    for i in range(1, seq.shape[0]):
        if position[i] < position[i - 1] or (position[i] == position[i - 1] and seq[i] <= seq[i - 1]):
            return i
    return -1


@njit(cache=True)
def take_free(live, n, first):
    """Return the ``n`` lowest free slots (int32) from ``first`` on; slots beyond the end of ``live`` are free."""
    out = np.empty(n, np.int32)
    at = first
    for i in range(n):
        while at < live.shape[0] and live[at]:
            at += 1
        out[i] = at
        at += 1
    return out


# -- plain term-at-a-time index -------------------------------------------------------------------


@njit(cache=True)
def link_postings(slots, words, word_term, word_weight, word_where, lists, posting_slot, posting_nth, posting_weight):
    """Append a posting for every keyword of ``slots``; there is room for all."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        start = words[slot, START]
        for nth in range(words[slot, LENGTH]):
            term = word_term[start + nth]
            length = lists[term, LENGTH]
            at = lists[term, START] + length
            posting_slot[at], posting_nth[at], posting_weight[at] = slot, nth, word_weight[start + nth]
            word_where[start + nth] = length
            lists[term, LENGTH] = length + 1


@njit(cache=True)
def unlink_postings(slots, words, word_term, word_where, lists, posting_slot, posting_nth, posting_weight):
    """Remove the postings of ``slots``: the last one of a list fills the gap."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        start = words[slot, START]
        for nth in range(words[slot, LENGTH]):
            term = word_term[start + nth]
            last = lists[term, LENGTH] - 1
            lists[term, LENGTH] = last
            gap = lists[term, START] + word_where[start + nth]
            tail = lists[term, START] + last
            if gap != tail:
                posting_slot[gap], posting_nth[gap], posting_weight[gap] = posting_slot[tail], posting_nth[tail], posting_weight[tail]
                word_where[words[posting_slot[gap], START] + posting_nth[gap]] = word_where[start + nth]


@njit(cache=True)
def sort_small(values, n):
    """Sort the first ``n`` values in place; they often are sorted."""
    sorted_ = True
    for i in range(1, n):
        sorted_ &= values[i - 1] <= values[i]
    if sorted_:
        return
    if n > 48:
        values[:n] = np.sort(values[:n])
        return
    for i in range(1, n):
        v = values[i]
        j = i - 1
        while j >= 0 and values[j] > v:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = v


@njit(cache=True)
def match_taat(lon, lat, offsets, terms, weights, key, local, lists, posting_slot, posting_weight, place, diagonal_deg, sums):
    """Return (message, slot, score) of what reaches its threshold, term at a time.

    :param place: float64[slots, 4], LON, LAT, ALPHA, THRESHOLD.
    :param sums: float64[slots], scratch, all -1 (no common term yet) before and after.
    """
    capacity = 1024
    out_message, out_slot, out_score = np.empty(capacity, np.int32), np.empty(capacity, np.int32), np.empty(capacity)
    candidates = np.empty(sums.shape[0], np.int32)
    n = 0
    for m in range(lon.shape[0]):
        met = 0
        for i in range(offsets[m], offsets[m + 1]):
            term = find_term(terms[i], key, local)
            if term < 0:
                continue
            weight = weights[i]
            start = lists[term, START]
            for j in range(start, start + lists[term, LENGTH]):
                slot = posting_slot[j]
                if sums[slot] < 0.0:
                    candidates[met] = slot
                    met += 1
                    sums[slot] = 0.0
                sums[slot] += posting_weight[j] * weight
        kept = 0
        for i in range(met):
            slot = candidates[i]
            textual = sums[slot]
            # Rounding is monotone, so nothing nearer than distance 0 could score more: no square root for most.
            if combined_score(place[slot, ALPHA], 1.0, textual) >= place[slot, THRESHOLD]:
                value = combined_score(place[slot, ALPHA], ssim(lon[m] - place[slot, LON], lat[m] - place[slot, LAT], diagonal_deg), textual)
                if value >= place[slot, THRESHOLD]:
                    sums[slot] = value
                    candidates[kept] = slot
                    kept += 1
                    continue
            sums[slot] = -1.0
        sort_small(candidates, kept)
        if n + kept > capacity:
            capacity = 2 * (n + kept)
            grown_message, grown_slot, grown_score = np.empty(capacity, np.int32), np.empty(capacity, np.int32), np.empty(capacity)
            grown_message[:n], grown_slot[:n], grown_score[:n] = out_message[:n], out_slot[:n], out_score[:n]
            out_message, out_slot, out_score = grown_message, grown_slot, grown_score
        for i in range(kept):
            slot = candidates[i]
            out_message[n], out_slot[n], out_score[n] = m, slot, sums[slot]
            sums[slot] = -1.0
            n += 1
    return out_message[:n], out_slot[:n], out_score[:n]
