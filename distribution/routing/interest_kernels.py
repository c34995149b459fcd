"""Kernels of interest: a hash table of counted pairs, and a table of bits that says which regions a term is routed to. Imports numpy and numba only.

Both tables use open addressing with linear probing. A key is a term and a second number; a value of 0 marks an empty slot. At least half of the
slots are empty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.distribution.routing.route_kernels import with_room
from dskype.topology.kernel_cache import njit

__all__ = [
    "BLOCK",
    "Documents",
    "Pairs",
    "Words",
    "add_pairs",
    "candidates",
    "clear_bits",
    "count_of",
    "find",
    "interested",
    "rehash",
    "remove_pairs",
    "set_bits",
]

BLOCK = 64
"""Regions per word of bits."""
_SHIFT, _MASK = 6, 63


class Pairs(NamedTuple):
    """Counted pairs of a term and a region.

    :ivar terms: int64[capacity], a power of two.
    :ivar seconds: int32[capacity], regions.
    :ivar values: int64[capacity], counts; 0: the slot is empty.
    """

    terms: np.ndarray
    seconds: np.ndarray
    values: np.ndarray


class Words(NamedTuple):
    """Which regions a term is routed to, as bits.

    :ivar terms: int64[capacity], a power of two.
    :ivar seconds: int32[capacity], blocks: region // 64.
    :ivar values: uint64[capacity], bit *i*: region 64 * block + *i*; 0: the slot is empty.
    """

    terms: np.ndarray
    seconds: np.ndarray
    values: np.ndarray


class Documents(NamedTuple):
    """Messages as columns.

    :ivar offsets: int64[n + 1]; the terms of message *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :ivar terms: int64[].
    :ivar positions: int64[n].
    """

    offsets: np.ndarray
    terms: np.ndarray
    positions: np.ndarray


@njit(cache=True, inline="always")
def _home(term, second, mask):
    """Return the slot at which the search for a key begins."""
    x = np.uint64(np.int64(term)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(np.int64(second)) * np.uint64(0xC2B2AE3D27D4EB4F)
    return np.int64((x ^ (x >> np.uint64(32))) & np.uint64(mask))


@njit(cache=True, inline="always")
def find(table, term, second):
    """Return the slot of a key, or the empty slot where it belongs."""
    terms, seconds, values = table.terms, table.seconds, table.values
    mask = len(terms) - 1
    slot = _home(term, second, mask)
    while values[slot] != 0 and (terms[slot] != term or seconds[slot] != second):
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def _empty(table, slot):
    """Empty a slot, and move later keys of its run back so that they are found."""
    terms, seconds, values = table.terms, table.seconds, table.values
    mask = len(terms) - 1
    values[slot] = 0
    at = (slot + 1) & mask
    while values[at] != 0:
        home = _home(terms[at], seconds[at], mask)
        if ((at - home) & mask) >= ((at - slot) & mask):
            terms[slot], seconds[slot], values[slot] = terms[at], seconds[at], values[at]
            values[at] = 0
            slot = at
        at = (at + 1) & mask


@njit(cache=True)
def rehash(old, new):
    """Copy all keys of a table to an empty one."""
    for slot in range(len(old.terms)):
        if old.values[slot] != 0:
            to = find(new, old.terms[slot], old.seconds[slot])
            new.terms[to], new.seconds[to], new.values[to] = old.terms[slot], old.seconds[slot], old.values[slot]


@njit(cache=True)
def add_pairs(table, regions, terms, fresh):
    """Count pairs once more; return how many were not there.

    :param table: :class:`Pairs` with room for all of them.
    :param fresh: bool[n], set to whether each pair was not there before.
    """
    added = 0
    for i in range(len(terms)):
        slot = find(table, terms[i], regions[i])
        fresh[i] = table.values[slot] == 0
        if fresh[i]:
            table.terms[slot], table.seconds[slot] = terms[i], regions[i]
            added += 1
        table.values[slot] += 1
    return added


@njit(cache=True)
def remove_pairs(table, regions, terms, gone):
    """Count pairs once less; return how many are gone, or ``~i`` if pair *i* was not there.

    :param gone: bool[n], set to whether each pair is no longer there.
    """
    removed = 0
    for i in range(len(terms)):
        slot = find(table, terms[i], regions[i])
        if table.values[slot] == 0:
            return ~i
        table.values[slot] -= 1
        gone[i] = table.values[slot] == 0
        if gone[i]:
            _empty(table, slot)
            removed += 1
    return removed


@njit(cache=True)
def count_of(table, region, term):
    """Return the count of a pair."""
    return table.values[find(table, term, region)]


@njit(cache=True)
def set_bits(words, regions, terms):
    """Set the bits of pairs; return how many words are new. There must be room for one for each pair."""
    added = 0
    for i in range(len(terms)):
        slot = find(words, terms[i], regions[i] >> _SHIFT)
        if words.values[slot] == 0:
            words.terms[slot], words.seconds[slot] = terms[i], regions[i] >> _SHIFT
            added += 1
        words.values[slot] |= np.uint64(1) << np.uint64(regions[i] & _MASK)
    return added


@njit(cache=True)
def clear_bits(words, regions, terms):
    """Clear the bits of pairs; return how many words are gone."""
    removed = 0
    for i in range(len(terms)):
        slot = find(words, terms[i], regions[i] >> _SHIFT)
        if words.values[slot] != 0:
            words.values[slot] &= ~(np.uint64(1) << np.uint64(regions[i] & _MASK))
            if words.values[slot] == 0:
                _empty(words, slot)
                removed += 1
    return removed


@njit(cache=True, inline="always")
def _word(words, documents, row, block):
    """Return the bits of the regions of a block that want a message."""
    offsets, terms = documents.offsets, documents.terms
    bits = np.uint64(0)
    for p in range(offsets[row], offsets[row + 1]):
        bits |= words.values[find(words, terms[p], block)]
    return bits


@njit(cache=True)
def interested(words, documents, rows, regions, withheld):
    """Tell for each pair of a message and a region whether the region wants the message, bool[m].

    :param words: :class:`Words`; ``documents``: :class:`Documents`.
    :param rows: int64[m], numbers of messages; ``regions``: int32[m]. It is fastest if equal rows are next to each other.
    :param withheld: int64[regions], raised to the highest position of a message that has terms, and that the region does not want.
    """
    kept = np.empty(len(rows), np.bool_)
    last_row, last_block, bits = -1, -1, np.uint64(0)
    for i in range(len(rows)):
        row, region = rows[i], regions[i]
        if row != last_row or region >> _SHIFT != last_block:
            last_row, last_block = row, region >> _SHIFT
            bits = _word(words, documents, row, last_block)
        kept[i] = (bits >> np.uint64(region & _MASK)) & np.uint64(1)
        if not kept[i] and documents.positions[row] > withheld[region] and documents.offsets[row] < documents.offsets[row + 1]:
            withheld[region] = documents.positions[row]
    return kept


@njit(cache=True)
def candidates(words, documents, withheld):
    """Return (rows int64[m], regions int32[m]): message ``rows[i]`` is wanted by ``regions[i]``; both rise.

    :param withheld: as in :func:`interested`.
    """
    n, count = len(documents.offsets) - 1, len(withheld)
    blocks = (count + _MASK) >> _SHIFT
    rows, regions = np.empty(n + count, np.int64), np.empty(n + count, np.int32)
    found = 0
    for row in range(n):
        if documents.offsets[row] == documents.offsets[row + 1]:
            continue
        rows, regions = with_room(rows, regions, found, count)
        position = documents.positions[row]
        for block in range(blocks):
            bits = _word(words, documents, row, block)
            for region in range(block << _SHIFT, min(count, (block + 1) << _SHIFT)):
                if (bits >> np.uint64(region & _MASK)) & np.uint64(1):
                    rows[found], regions[found] = row, region
                    found += 1
                elif position > withheld[region]:
                    withheld[region] = position
    return rows[:found], regions[:found]
