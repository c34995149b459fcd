"""Kernels of subscription records: rectangle, program and slot of a subscription side by side in one pool of words.

A posting of an index that deletes lazily may outlive its subscription. So postings name records, not slots: a removed subscription leaves
its record dead, and the record is used again only when the last posting that names it is gone. A slot that is used again has another record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.boolean.program_kernels import contains, follow_jumps, overlaps
from dskype.topology.kernel_cache import njit

__all__ = [
    "AND",
    "EAST",
    "GENERAL",
    "HEAD",
    "LIVE",
    "NORTH",
    "OR",
    "PLACES",
    "SOUTH",
    "USED",
    "WEST",
    "Records",
    "covers",
    "create",
    "create_all",
    "finish",
    "kill",
    "kill_all",
    "larger",
    "length_of",
    "meets",
    "mix",
    "release",
    "satisfied",
    "scan",
    "size_class",
    "size_of_class",
    "slot_of",
    "trigger_range",
]

AND, OR, GENERAL = 1, 2, 3
"""Kinds of programs, as in ``programs.py``."""
PLACES, WEST, SOUTH, EAST, NORTH, HEAD = 1, 2, 3, 4, 5, 6
"""Words of a record: how many postings name it, the rectangle, and where the program begins."""
USED, LIVE = 0, 1
"""Places of ``Records.counters``."""
_EXACT = 64
"""Blocks of up to so many words have classes of their own, larger ones are powers of two."""


class Records(NamedTuple):
    """The records of an index; P words, S slots.

    words: int64[P]. A record is slot << 32 | length << 2 | kind, with slot -1 when it is dead; its number of postings; the rectangle as
    four float64; ``length`` words of program. floats: float64[P], the same memory. blocks: int32[S], where the slot's record is, -1 is a
    free slot. free: int64[128], first free block by size class, -1 is none; a free block's first word is the next one.
    counters: int64[2], words in use (freed blocks included), live records.
    """

    words: np.ndarray
    floats: np.ndarray
    blocks: np.ndarray
    free: np.ndarray
    counters: np.ndarray


@njit(cache=True)
def size_class(size):
    """Return the class of the smallest block for ``size`` words."""
    if size <= _EXACT:
        return size
    found, room = _EXACT + 1, 2 * _EXACT
    while room < size:
        found += 1
        room *= 2
    return found


@njit(cache=True)
def size_of_class(found):
    """Return how many words the blocks of a class have."""
    return found if found <= _EXACT else _EXACT << (found - _EXACT)


@njit(cache=True)
def slot_of(records, record):
    """Return the slot of a record, -1 when it is dead."""
    return records.words[record] >> 32


@njit(cache=True)
def length_of(records, record):
    """Return the length of a record's program."""
    return (records.words[record] & 0xFFFFFFFF) >> 2


@njit(cache=True)
def create(records, batch, i):
    """Make the record of subscription ``i`` of a batch; return (record, 0), or (-1, how many words are lacking)."""
    begin, end = batch.offsets[i], batch.offsets[i + 1]
    found = size_class(HEAD + end - begin)
    record = records.free[found]
    words = records.words
    if record >= 0:
        records.free[found] = words[record]
    else:
        size = size_of_class(found)
        record = records.counters[USED]
        if record + size > len(words):
            return np.int64(-1), np.int64(size)
        records.counters[USED] = record + size
    words[record] = batch.slots[i] << 32 | (end - begin) << 2 | np.int64(batch.kinds[i])
    words[record + PLACES] = 0
    for j in range(4):
        records.floats[record + WEST + j] = batch.boxes[i, j]
    for j in range(end - begin):
        words[record + HEAD + j] = batch.programs[begin + j]
    records.blocks[batch.slots[i]] = np.int32(record)
    records.counters[LIVE] += 1
    return record, np.int64(0)


@njit(cache=True)
def create_all(records, batch, progress):
    """Make the records of a batch from where ``progress[0]`` says; return (1, how many words are lacking), or (0, 0) at the end."""
    while progress[0] < len(batch.slots):
        record, need = create(records, batch, progress[0])
        if record < 0:
            return 1, need
        progress[0] += 1
    return 0, np.int64(0)


@njit(cache=True)
def release(records, record):
    """Free the block of a record that no posting names."""
    found = size_class(HEAD + length_of(records, record))
    records.words[record] = records.free[found]
    records.free[found] = record


@njit(cache=True)
def kill(records, slot):
    """Take the record from its slot and mark it dead; return it."""
    record = np.int64(records.blocks[slot])
    records.blocks[slot] = -1
    records.words[record] = np.int64(-1) << 32 | (records.words[record] & 0xFFFFFFFF)
    records.counters[LIVE] -= 1
    return record


@njit(cache=True)
def kill_all(records, slots):
    """Kill the records of slots; free those that no posting names; return how many postings name the others."""
    total = np.int64(0)
    for i in range(len(slots)):
        record = kill(records, slots[i])
        total += records.words[record + PLACES]
        if records.words[record + PLACES] == 0:
            release(records, record)
    return total


@njit(cache=True)
def trigger_range(records, record):
    """Return (first, behind the last) place of a record's triggers in ``words``."""
    start = record + HEAD
    length, kind = length_of(records, record), records.words[record] & 3
    if kind == AND:
        return start, start + 1
    if kind == OR:
        return start, start + length
    return start + 1, start + 1 + records.words[start]


@njit(cache=True)
def satisfied(records, record, terms, first, last):
    """Evaluate a record's program over the rising ``terms[first:last]``."""
    words = records.words
    length, kind = length_of(records, record), words[record] & 3
    start = record + HEAD
    end = start + length
    if kind == AND:
        if last - first > 32:
            for i in range(start, end):
                if not contains(terms, first, last, words[i]):
                    return False
            return True
        for i in range(start, end):
            term = words[i]
            while first < last and terms[first] < term:
                first += 1
            if first == last or terms[first] != term:
                return False
        return True
    if kind == OR:
        for i in range(start, end):
            if contains(terms, first, last, words[i]):
                return True
        return False
    return follow_jumps(words, start + 1 + words[start], end, terms, first, last)


@njit(cache=True)
def covers(records, record, lon, lat):
    """Tell whether a point is in a record's rectangle, borders included."""
    floats = records.floats
    west, east = floats[record + WEST], floats[record + EAST]
    inside = (west <= lon) & (lon <= east) | (west > east) & ((west <= lon) | (lon <= east))
    return inside & (floats[record + SOUTH] <= lat) & (lat <= floats[record + NORTH])


@njit(cache=True)
def meets(records, record, area):
    """Tell whether an area (float64[4]) and a record's rectangle overlap, borders included."""
    return overlaps(records.floats[record + WEST : record + HEAD], area[0], area[1], area[2], area[3])


@njit(cache=True)
def scan(records, rectangles, points, offsets, terms):
    """Look at every subscription for every message; return (message int32[], slot int32[]) of all matches, sorted by message, then slot.

    :param points: bool, whether all rectangles are points.
    """
    out_message, out_slot = np.empty(1024, np.int32), np.empty(1024, np.int32)
    n = 0
    for m in range(len(rectangles)):
        for slot in range(len(records.blocks)):
            record = np.int64(records.blocks[slot])
            if record < 0:
                continue
            near = covers(records, record, rectangles[m, 0], rectangles[m, 1]) if points else meets(records, record, rectangles[m])
            if near and satisfied(records, record, terms, offsets[m], offsets[m + 1]):
                if n == len(out_slot):
                    out_message, out_slot = larger(out_message, n + 1), larger(out_slot, n + 1)
                out_message[n] = np.int32(m)
                out_slot[n] = np.int32(slot)
                n += 1
    return out_message[:n].copy(), out_slot[:n].copy()


@njit(cache=True)
def mix(owner, term):
    """Return a hash of a pair; in products that cannot overflow, so it is the same with and without compilation."""
    mixed = (term & 0xFFFFFF) * 0x9E3779B1 + ((term >> 24) & 0xFFFFFF) * 0x85EBCA77 + ((term >> 48) & 0xFFFF) * 0xC2B2AE3D
    mixed += (owner & 0xFFFF) * 0x27D4EB2F5 + ((owner >> 16) & 0xFFFF) * 0x165667B1D
    mixed ^= mixed >> 29
    mixed = (mixed & 0xFFFFFFFF) * 0x2C1B3C6D + (mixed >> 32) * 0x297A2D39
    return mixed ^ (mixed >> 15) ^ (mixed >> 33)


@njit(cache=True)
def larger(array, need):
    """Return a copy of an array with at least ``need`` and at least twice as many places."""
    more = np.empty(max(need, 2 * len(array)), array.dtype)
    more[: len(array)] = array
    return more


@njit(cache=True)
def finish(found, begin, end, scratch):
    """Sort ``found[begin:end]`` (slots) and take out repetitions; return where they end now.

    :param scratch: int32[m], m >= end - begin.
    """
    n = end - begin
    if n < 2:
        return end
    if n < 64:
        for i in range(begin + 1, end):
            slot = found[i]
            j = i - 1
            while j >= begin and found[j] > slot:
                found[j + 1] = found[j]
                j -= 1
            found[j + 1] = slot
    else:
        _radix(found[begin:end], scratch[:n])
    last = begin
    for i in range(begin + 1, end):
        if found[i] != found[last]:
            last += 1
            found[last] = found[i]
    return last + 1


@njit(cache=True)
def _radix(keys, scratch):
    """Sort non-negative keys by their bytes, the lowest first."""
    n = len(keys)
    highest = np.int32(0)
    for i in range(n):
        highest |= keys[i]
    starts = np.empty(256, np.int64)
    shift = 0
    source, target = keys, scratch
    while shift < 32 and highest >> shift > 0:
        starts[:] = 0
        for i in range(n):
            starts[(source[i] >> shift) & 255] += 1
        total = 0
        for digit in range(256):
            count = starts[digit]
            starts[digit] = total
            total += count
        for i in range(n):
            digit = (source[i] >> shift) & 255
            target[starts[digit]] = source[i]
            starts[digit] += 1
        source, target = target, source
        shift += 8
    if (shift >> 3) & 1:
        keys[:] = scratch
