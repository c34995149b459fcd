"""Kernels of the plain boolean index: posting lists in a pool, and their scan.

Both pools, of programs and of postings, hand out blocks whose size is a power of two ("class"). Freed blocks of a class form
a linked list through their first element and are used again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.boolean.program_kernels import follow_jumps, overlaps
from dskype.topology.kernel_cache import njit

__all__ = [
    "EMPTY",
    "NEED_POSTINGS",
    "NEED_PROGRAMS",
    "NEED_TERMS",
    "POSTINGS_USED",
    "PROGRAMS_USED",
    "TERMS_USED",
    "Index",
    "find",
    "insert",
    "match",
    "rehash",
    "remove",
]

EMPTY = np.int64(-(2**63))
"""Key of a free place of the term table; no term has it."""
PROGRAMS_USED, POSTINGS_USED, TERMS_USED = 0, 1, 2
"""Places of ``Index.counters``."""
NEED_PROGRAMS, NEED_POSTINGS, NEED_TERMS = 1, 2, 3
_AND, _OR, _GENERAL = 1, 2, 3


class Index(NamedTuple):
    """The arrays of an index; S slots, P and E places in the pools, T places (a power of two) in the term table.

    boxes: float64[S, 4]. starts: int64[S], where the slot's program is, -1 is a free slot.
    programs: int64[P], of each program its length * 4 + kind and then its steps. free_programs: int64[64], first free block by
    class, -1 is none.
    entry_slots: int32[E]. entry_programs: int32[E], the slot's start, -1 if any trigger satisfies it. entry_boxes: float32[4, E],
    west, south, east, north, a little larger than the slot's box; a box that crosses the antimeridian has two entries. free_entries: int64[64].
    keys: int64[T]. heads: int64[T], where the term's postings begin. counts: int32[T]. classes: int8[T], -1 is no block.
    counters: int64[3].
    """

    boxes: np.ndarray
    starts: np.ndarray
    programs: np.ndarray
    free_programs: np.ndarray
    entry_slots: np.ndarray
    entry_programs: np.ndarray
    entry_boxes: np.ndarray
    free_entries: np.ndarray
    keys: np.ndarray
    heads: np.ndarray
    counts: np.ndarray
    classes: np.ndarray
    counters: np.ndarray


@njit(cache=True)
def _class_of(n):
    """Return the class of the smallest block for ``n`` elements."""
    found = 0
    while (1 << found) < n:
        found += 1
    return found


@njit(cache=True)
def find(keys, term):
    """Return the place of ``term`` in the table, or of the free place where it belongs."""
    # Three products that cannot overflow: the same with and without compilation.
    mask = len(keys) - 1
    mixed = (term & 0xFFFFFF) * 0x9E3779B1 + ((term >> 24) & 0xFFFFFF) * 0x85EBCA77 + ((term >> 48) & 0xFFFF) * 0xC2B2AE3D
    place = (mixed ^ (mixed >> 15) ^ (mixed >> 31)) & mask
    while keys[place] != term and keys[place] != EMPTY:
        place = (place + 1) & mask
    return place


@njit(cache=True)
def _triggers(index, slot):
    """Return (first, behind the last) place of a slot's triggers in ``programs``."""
    start = index.starts[slot]
    length, kind = index.programs[start] >> 2, index.programs[start] & 3
    if kind == _AND:
        return start + 1, start + 2
    if kind == _OR:
        return start + 1, start + 1 + length
    return start + 2, start + 2 + index.programs[start + 1]


@njit(cache=True)
def _allocate_program(index, size_class):
    block = index.free_programs[size_class]
    if block >= 0:
        index.free_programs[size_class] = index.programs[block]
        return block
    block = index.counters[PROGRAMS_USED]
    index.counters[PROGRAMS_USED] = block + (1 << size_class)
    return block


@njit(cache=True)
def _allocate_entries(index, size_class):
    block = index.free_entries[size_class]
    if block >= 0:
        index.free_entries[size_class] = np.int64(index.entry_slots[block])
        return block
    block = index.counters[POSTINGS_USED]
    index.counters[POSTINGS_USED] = block + (1 << size_class)
    return block


@njit(cache=True)
def _free_entries(index, block, size_class):
    index.entry_slots[block] = np.int32(index.free_entries[size_class])
    index.free_entries[size_class] = block


@njit(cache=True)
def _low(value):
    """Return a float32 below ``value``."""
    return np.float32(value - (abs(value) * 2e-7 + 1e-30))


@njit(cache=True)
def _high(value):
    """Return a float32 above ``value``."""
    return np.float32(value + (abs(value) * 2e-7 + 1e-30))


@njit(cache=True)
def _put_entry(index, place, slot, program, west, south, east, north):
    count = np.int64(index.counts[place])
    size_class = np.int64(index.classes[place])
    if size_class < 0 or count == (1 << size_class):
        block = _allocate_entries(index, size_class + 1)
        if size_class >= 0:
            old = index.heads[place]
            for i in range(count):
                index.entry_slots[block + i] = index.entry_slots[old + i]
                index.entry_programs[block + i] = index.entry_programs[old + i]
                for j in range(4):
                    index.entry_boxes[j, block + i] = index.entry_boxes[j, old + i]
            _free_entries(index, old, size_class)
        index.heads[place] = block
        index.classes[place] = np.int8(size_class + 1)
    entry = index.heads[place] + count
    index.entry_slots[entry] = slot
    index.entry_programs[entry] = program
    index.entry_boxes[0, entry] = _low(west)
    index.entry_boxes[1, entry] = _low(south)
    index.entry_boxes[2, entry] = _high(east)
    index.entry_boxes[3, entry] = _high(north)
    index.counts[place] = np.int32(count + 1)


@njit(cache=True)
def insert(index, batch, first):
    """Put subscriptions ``first`` and following in; return (how many are in, what is lacking for the next, how much)."""
    slots, boxes, kinds, offsets, programs = batch.slots, batch.boxes, batch.kinds, batch.offsets, batch.programs
    for i in range(first, len(slots)):
        slot = slots[i]
        begin, end = offsets[i], offsets[i + 1]
        length = end - begin
        size_class = _class_of(1 + length)
        if index.free_programs[size_class] < 0 and index.counters[PROGRAMS_USED] + (1 << size_class) > len(index.programs):
            return i, NEED_PROGRAMS, np.int64(1 << size_class)
        trigger, last = begin, end
        if kinds[i] == _AND:
            last = begin + 1
        elif kinds[i] == _GENERAL:
            trigger = begin + 1
            last = trigger + programs[begin]
        if (index.counters[TERMS_USED] + last - trigger) * 2 > len(index.keys):
            return i, NEED_TERMS, last - trigger
        west, south, east, north = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        entries = 1 if west <= east else 2
        need = np.int64(0)
        for t in range(trigger, last):
            place = find(index.keys, programs[t])
            held, room = np.int64(0), np.int64(0)
            if index.keys[place] != EMPTY and index.classes[place] >= 0:
                held, room = np.int64(index.counts[place]), np.int64(1 << index.classes[place])
            while held + entries > room:
                room = max(np.int64(1), 2 * room)
                need += room
        if index.counters[POSTINGS_USED] + need > len(index.entry_slots):
            return i, NEED_POSTINGS, need
        block = _allocate_program(index, size_class)
        index.programs[block] = length * 4 + kinds[i]
        for j in range(length):
            index.programs[block + 1 + j] = programs[begin + j]
        index.starts[slot] = block
        program = np.int32(-1) if kinds[i] == _OR or (kinds[i] == _AND and length == 1) else np.int32(block)
        index.boxes[slot, 0], index.boxes[slot, 1], index.boxes[slot, 2], index.boxes[slot, 3] = west, south, east, north
        for t in range(trigger, last):
            place = find(index.keys, programs[t])
            if index.keys[place] == EMPTY:
                index.keys[place] = programs[t]
                index.counts[place] = 0
                index.classes[place] = -1
                index.counters[TERMS_USED] += 1
            if entries == 1:
                _put_entry(index, place, np.int32(slot), program, west, south, east, north)
            else:
                _put_entry(index, place, np.int32(slot), program, west, south, np.inf, north)
                _put_entry(index, place, np.int32(slot), program, -np.inf, south, east, north)
    return len(slots), 0, np.int64(0)


@njit(cache=True)
def remove(index, slots):
    """Take subscriptions out."""
    for i in range(len(slots)):
        slot = slots[i]
        first, last = _triggers(index, slot)
        for t in range(first, last):
            place = find(index.keys, index.programs[t])
            head = index.heads[place]
            count = np.int64(index.counts[place])
            entry = np.int64(0)
            while entry < count:
                if index.entry_slots[head + entry] == slot:
                    count -= 1
                    index.entry_slots[head + entry] = index.entry_slots[head + count]
                    index.entry_programs[head + entry] = index.entry_programs[head + count]
                    for j in range(4):
                        index.entry_boxes[j, head + entry] = index.entry_boxes[j, head + count]
                else:
                    entry += 1
            index.counts[place] = np.int32(count)
            if count == 0:
                _free_entries(index, head, np.int64(index.classes[place]))
                index.classes[place] = -1
        block = index.starts[slot]
        size_class = _class_of(1 + (index.programs[block] >> 2))
        index.programs[block] = index.free_programs[size_class]
        index.free_programs[size_class] = block
        index.starts[slot] = -1


@njit(cache=True)
def rehash(index, keys, heads, counts, classes):
    """Move the term table into larger arrays (``keys`` all ``EMPTY``), without terms that have no postings any more."""
    used = 0
    for old in range(len(index.keys)):
        if index.keys[old] != EMPTY and index.classes[old] >= 0:
            place = find(keys, index.keys[old])
            keys[place] = index.keys[old]
            heads[place] = index.heads[old]
            counts[place] = index.counts[old]
            classes[place] = index.classes[old]
            used += 1
    index.counters[TERMS_USED] = used


@njit(cache=True)
def _satisfied(programs, start, terms, first, last):
    """Evaluate the program at ``start`` over ``terms[first:last]``, one of which triggered it."""
    length, kind = programs[start] >> 2, programs[start] & 3
    end = start + 1 + length
    if kind == _AND:
        for i in range(start + 2, end):
            term = programs[i]
            while first < last and terms[first] < term:
                first += 1
            if first == last or terms[first] != term:
                return False
        return True
    return follow_jumps(programs, start + 2 + programs[start + 1], end, terms, first, last)


@njit(cache=True)
def _scan(boxes, first, last, place, crosses, hits):
    """Set ``hits`` to 1 where ``boxes[:, first:last]`` may overlap a place; all float32, so that many are compared at once.

    :param crosses: whether the place crosses the antimeridian; it may not look like it any more once it is rounded outwards.
    """
    west, south, east, north = boxes[0, first:last], boxes[1, first:last], boxes[2, first:last], boxes[3, first:last]
    place_west, place_south, place_east, place_north = place
    if crosses:
        for k in range(last - first):
            hits[k] = ((west[k] <= place_east) | (place_west <= east[k])) & (south[k] <= place_north) & (place_south <= north[k])
    else:
        for k in range(last - first):
            hits[k] = (west[k] <= place_east) & (place_west <= east[k]) & (south[k] <= place_north) & (place_south <= north[k])


@njit(cache=True)
def _different(slots, first, last):
    """Sort ``slots[first:last]`` and leave each one once; return where they end."""
    if last - first > 1:
        found = np.sort(slots[first:last])
        last = first + 1
        slots[first] = found[0]
        for j in range(1, len(found)):
            if found[j] != found[j - 1]:
                slots[last] = found[j]
                last += 1
    return last


@njit(cache=True)
def match(index, wests, souths, easts, norths, offsets, terms):
    """Return (message int32[], slot int32[]) of all matches, sorted by message, then slot.

    :param wests: float64[n], and so on: where the messages are. Of a point, west is east and south is north.
    """
    size = np.int64(1024)
    out_message = np.empty(size, np.int32)
    out_slot = np.empty(size, np.int32)
    n = np.int64(0)
    boxes = index.entry_boxes
    hits = np.zeros(1024, np.uint8)
    words = hits.view(np.uint64)  # most boxes do not overlap the place: eight at a time are passed over
    for i in range(len(wests)):
        first, last = offsets[i], offsets[i + 1]
        west, south, east, north = wests[i], souths[i], easts[i], norths[i]
        crosses = west > east
        place = (_low(west), _low(south), _high(east), _high(north))
        # An entry's box is larger than the slot's by less than this: whoever is so far inside needs no second look.
        sure_west, sure_south = west + abs(west) * 1e-6 + 1e-9, south + abs(south) * 1e-6 + 1e-9
        sure_east, sure_north = east - abs(east) * 1e-6 - 1e-9, north - abs(north) * 1e-6 - 1e-9
        begin = n
        for t in range(first, last):
            at = find(index.keys, terms[t])
            if index.keys[at] == EMPTY or index.classes[at] < 0:
                continue
            head, count = index.heads[at], np.int64(index.counts[at])
            if count > len(hits):
                hits = np.zeros(16 * count, np.uint8)
                words = hits.view(np.uint64)
            _scan(boxes, head, head + count, place, crosses, hits)
            for word in range((count + 7) >> 3):
                if words[word] == 0:
                    continue
                for k in range(8 * word, min(8 * word + 8, count)):
                    if not hits[k]:
                        continue
                    e = head + k
                    slot = index.entry_slots[e]
                    inside = (boxes[0, e] <= sure_east) & (sure_west <= boxes[2, e])
                    if crosses:
                        inside = (boxes[0, e] <= sure_east) | (sure_west <= boxes[2, e])
                    inside = inside & (boxes[1, e] <= sure_north) & (sure_south <= boxes[3, e])
                    if not inside and not overlaps(index.boxes[slot], west, south, east, north):
                        continue
                    program = index.entry_programs[e]
                    if program >= 0 and not _satisfied(index.programs, np.int64(program), terms, first, last):
                        continue
                    if n == size:
                        size *= 2
                        more_message, more_slot = np.empty(size, np.int32), np.empty(size, np.int32)
                        more_message[:n] = out_message
                        more_slot[:n] = out_slot
                        out_message, out_slot = more_message, more_slot
                    out_message[n] = np.int32(i)
                    out_slot[n] = slot
                    n += 1
        n = _different(out_slot, begin, n)  # several triggers, or both halves of a box, may have found the same slot
    return out_message[:n].copy(), out_slot[:n].copy()
