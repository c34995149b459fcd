"""Kernels of the keyword-first method: inverted lists by one token of each part."""

from __future__ import annotations

import numpy as np

from dskype.deploy.lab.laps.match_kernels import enlarged, mark_terms, overlap, put, satisfied, sorted_once
from dskype.deploy.lab.laps.parts_kernels import (
    EMPTY,
    KEYS,
    NEED_KEYS,
    NEED_PARTS,
    NEED_POOL,
    NEXT,
    PARTS,
    PLACE,
    POOL,
    SPARE_PART,
    append,
    find,
    free_slot,
    part_size,
    posting_list,
    put_part,
    shorten,
    terms_of,
)
from dskype.topology.kernel_cache import njit

__all__ = ["insert", "match", "remove"]


@njit(cache=True)
def insert(index, batch, first):
    """Insert parts ``first`` and following; return (how many are in, what is lacking for the next, how much)."""
    for i in range(first, len(batch.slots)):
        if index.meta[SPARE_PART] < 0 and index.meta[PARTS] == len(index.part):
            return i, NEED_PARTS, np.int64(1)
        if (index.meta[KEYS] + 1) * 4 > len(index.key) * 3:
            return i, NEED_KEYS, np.int64(1)
        term = batch.terms[batch.offsets[i]]
        place, pool = find(index, 0, term), np.int64(part_size(batch, i)) + 1
        if index.key[place] != EMPTY:
            _, length, _ = posting_list(index.value[place])
            pool += 4 * length
        if index.meta[POOL] + pool > len(index.pool):
            return i, NEED_POOL, pool
        part = put_part(index, batch, i)
        index.part[part, PLACE] = append(index, 0, term, part)
    return len(batch.slots), 0, np.int64(0)


@njit(cache=True)
def remove(index, slots, first):
    """Take slots ``first`` and following out; return (how many are out, what is lacking, how much), which is nothing."""
    for i in range(first, len(slots)):
        part = np.int64(index.head[slots[i]])
        while part >= 0:
            at, _ = terms_of(index, part)
            moved = shorten(index, find(index, 0, index.pool[at]), np.int64(index.part[part, PLACE]))
            index.part[moved, PLACE] = index.part[part, PLACE]
            part = np.int64(index.part[part, NEXT])
        free_slot(index, slots[i])
    return len(slots), 0, np.int64(0)


@njit(cache=True)
def match(index, scratch, messages):
    """Return (message int32[], slot int32[]) of all matches, sorted by message, then slot."""
    longest = np.int64(1)
    for i in range(len(messages.areas)):
        longest = max(longest, messages.offsets[i + 1] - messages.offsets[i])
    mine = np.empty(longest, np.int32)
    message, slot, found = np.empty(256, np.int32), np.empty(256, np.int32), np.empty(256, np.int32)
    total = np.int64(0)
    for i in range(len(messages.areas)):
        n, known = np.int64(0), mark_terms(messages, i, scratch, mine)
        for j in range(known):
            place = find(index, 0, mine[j])
            if index.key[place] == EMPTY:
                continue
            start, length, _ = posting_list(index.value[place])
            found = enlarged(found, n + length)
            for at in range(start, start + length):
                part = np.int64(index.pool[at])
                if satisfied(index, scratch, part, 1) and overlap(index.box[part], messages.areas[i]):
                    n = put(index, part, found, n)
        n = sorted_once(found, n)
        message, slot = enlarged(message, total + n), enlarged(slot, total + n)
        for j in range(n):
            message[total + j], slot[total + j] = i, found[j]
        total += n
    return message[:total].copy(), slot[:total].copy()
