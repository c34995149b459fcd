"""Kernels of the parts that boolean subscriptions are decomposed into, and of the token table.

A *part* is one conjunct over one rectangle. A subscription has one part for each conjunct of its expression, and twice as many if its
rectangle crosses the antimeridian.

The *token table* says something about (node, term): which children of the node have it, or in which list its parts are. Nodes are those of a
tree; an index without one has the node 0 only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = [
    "Batch",
    "Index",
    "append",
    "block_size",
    "discard_list",
    "erase",
    "find",
    "free_slot",
    "give",
    "low",
    "posting_list",
    "put_part",
    "rehash",
    "take",
    "terms_of",
]

POOL, PARTS, SPARE_PART, KEYS, NODES, SPARE_NODE, SPARE_NODES, ROOT, STALE = range(9)
"""Places of ``Index.meta``."""
SLOT, NEXT, START, PLACE = range(4)
"""Columns of ``Index.part``."""
NEED_PARTS, NEED_POOL, NEED_KEYS, NEED_NODES, NEED_REBUILD = 1, 2, 3, 4, 5
EMPTY = np.int64(-1)
CLASSES = 96
_EXACT = 64
_LOW = np.int64(0xFFFFFFFF)
_COUNT = np.int64((1 << 27) - 1)
_CAPACITY = np.int64(31)


class Index(NamedTuple):
    """All arrays of an index; -1 is none.

    The arrays have room for more; ``meta`` says how much is used.

    :ivar kind: what the token table holds (see :mod:`~dskype.deploy.lab.laps.rtree.token_kernels`).
    :ivar capacity: how many children a node may have; ``least``: how many it must have, unless it is the root.
    :ivar first: levels below the root at which the lists of the Rt++-tree begin.
    :ivar meta: int64[9]: POOL, PARTS, SPARE_PART, KEYS, NODES, SPARE_NODE, SPARE_NODES, ROOT, STALE.
    :ivar head: int32[slots], the first part of a slot.
    :ivar part: int32[parts, 4]: SLOT (-1: spare), NEXT (of the same slot, or spare), START (of its block in the pool), PLACE (its leaf, or its
        position in its list).
    :ivar box: float64[parts, 4], the rectangle of the subscription: WEST, SOUTH, EAST, NORTH.
    :ivar pool: int32[], blocks. Of a part: header (number of terms * 4 + 2 if its rectangle is the second half of one that crosses the
        antimeridian + 1 if there is a program), the block of its program, its terms. Of a program: its length, its literals. Of a list: postings.
    :ivar free: int64[96], by class of block: the first free one; they are linked by their first element.
    :ivar key: int64[m], node * 2**32 + term, EMPTY is a free place; m is a power of two.
    :ivar value: int64[m], children as bits, or a list: start * 2**32 + length * 32 + log2(capacity).
    :ivar node: int32[n, 5]: LEVEL (0: its children are parts; -1: spare), PARENT, COUNT, ORDINAL (among the parent's children), TOKENS (an upper
        bound of what it contributes to the table).
    :ivar child: int32[n, capacity + 1], nodes or parts; one more than the capacity until the node is split.
    :ivar rect: float32[n, 4, capacity + 1], the children's bounding rectangles, columns as in ``box``.
    :ivar hint: int32[n, capacity + 1], of parts in a leaf: a term to look at first, or the number of terms.
    :ivar path: int64[64], the nodes from the root to a leaf.
    """

    kind: int
    capacity: int
    least: int
    first: int
    meta: np.ndarray
    head: np.ndarray
    part: np.ndarray
    box: np.ndarray
    pool: np.ndarray
    free: np.ndarray
    key: np.ndarray
    value: np.ndarray
    node: np.ndarray
    child: np.ndarray
    rect: np.ndarray
    hint: np.ndarray
    path: np.ndarray


class Batch(NamedTuple):
    """Parts to insert; those of one slot stand together.

    :ivar slots: int64[n].
    :ivar later: bool[n], the rectangle is the second half of one that crosses the antimeridian.
    :ivar boxes: float64[n, 4], rectangles of the subscriptions.
    :ivar offsets: int64[n + 1]; the terms of part *i* are ``terms[offsets[i]:offsets[i + 1]]`` (int32, dense ids).
    :ivar program: int64[n], -1 or the program of the slot: ``literals[programs[p]:programs[p + 1]]`` (int32).
    """

    slots: np.ndarray
    later: np.ndarray
    boxes: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    program: np.ndarray
    programs: np.ndarray
    literals: np.ndarray


# -- the pool -------------------------------------------------------------------------------------


@njit(cache=True)
def block_class(n):
    """Return the class of blocks for ``n`` elements."""
    if n <= _EXACT:
        return n
    found, size = _EXACT + 1, 2 * _EXACT
    while size < n:
        found += 1
        size *= 2
    return found


@njit(cache=True)
def block_size(n):
    """Return how many elements a block for ``n`` has: so many up to 64, otherwise the next power of two."""
    if n <= _EXACT:
        return n
    size = 2 * _EXACT
    while size < n:
        size *= 2
    return size


@njit(cache=True)
def take(index, n):
    """Return the start of a block for ``n`` elements; there is room."""
    size_class = block_class(n)
    start = index.free[size_class]
    if start >= 0:
        index.free[size_class] = index.pool[start]
        return start
    start = index.meta[POOL]
    index.meta[POOL] = start + block_size(n)
    return start


@njit(cache=True)
def give(index, start, n):
    """Free a block for ``n`` elements."""
    size_class = block_class(n)
    index.pool[start] = index.free[size_class]
    index.free[size_class] = start


# -- the token table ------------------------------------------------------------------------------


@njit(cache=True)
def _home(key, mask):
    """Return where a key belongs. The products cannot overflow: the same with and without compilation."""
    mixed = (key >> 32) * 0x1E3779B1 + (key & _LOW) * 0x25EBCA77
    return (mixed ^ (mixed >> 15) ^ (mixed >> 31)) & mask


@njit(cache=True)
def find(index, node, term):
    """Return the place of (node, term) in the table, or the free place where it belongs."""
    key = (np.int64(node) << 32) | np.int64(term)
    mask = np.int64(len(index.key) - 1)
    place = _home(key, mask)
    while index.key[place] != key and index.key[place] != EMPTY:
        place = (place + 1) & mask
    return place


@njit(cache=True)
def enter(index, place, node, term, value):
    """Put (node, term) into a free place that :func:`find` returned."""
    index.key[place] = (np.int64(node) << 32) | np.int64(term)
    index.value[place] = value
    index.meta[KEYS] += 1


@njit(cache=True)
def erase(index, place):
    """Take a key out of the table; later ones move up."""
    mask = np.int64(len(index.key) - 1)
    hole = at = place
    while True:
        at = (at + 1) & mask
        key = index.key[at]
        if key == EMPTY:
            break
        if ((at - _home(key, mask)) & mask) >= ((at - hole) & mask):
            index.key[hole], index.value[hole] = key, index.value[at]
            hole = at
    index.key[hole] = EMPTY
    index.meta[KEYS] -= 1


@njit(cache=True)
def rehash(index, key, value):
    """Enter all keys into a larger table, which is empty."""
    mask = np.int64(len(key) - 1)
    for old in range(len(index.key)):
        if index.key[old] != EMPTY:
            place = _home(index.key[old], mask)
            while key[place] != EMPTY:
                place = (place + 1) & mask
            key[place], value[place] = index.key[old], index.value[old]


# -- lists ----------------------------------------------------------------------------------------


@njit(cache=True)
def posting_list(value):
    """Return (start, length, log2 of the capacity) of a list."""
    return value >> 32, (value >> 5) & _COUNT, value & _CAPACITY


@njit(cache=True)
def list_value(start, length, log_capacity):
    """Return what the table holds of a list."""
    return (np.int64(start) << 32) | (np.int64(length) << 5) | np.int64(log_capacity)


@njit(cache=True)
def append(index, node, term, posting):
    """Put a posting at the end of the list of (node, term); return its position, or -1 if there is no room in the pool."""
    place = find(index, node, term)
    if index.key[place] == EMPTY:
        if index.meta[POOL] == len(index.pool):
            return np.int64(-1)
        enter(index, place, node, term, list_value(take(index, 1), 0, 0))
    start, length, log_capacity = posting_list(index.value[place])
    if length == (1 << log_capacity):
        if index.meta[POOL] + 4 * length > len(index.pool):
            return np.int64(-1)
        new = take(index, 2 * length)
        for i in range(length):
            index.pool[new + i] = index.pool[start + i]
        give(index, start, length)
        start, log_capacity = new, log_capacity + 1
    index.pool[start + length] = posting
    index.value[place] = list_value(start, length + 1, log_capacity)
    return length


@njit(cache=True)
def shorten(index, place, position):
    """Put the last posting of a list at ``position`` and forget it; a list without postings goes. Return the posting that moved."""
    start, length, log_capacity = posting_list(index.value[place])
    length -= 1
    moved = index.pool[start + length]
    index.pool[start + position] = moved
    if length:
        index.value[place] = list_value(start, length, log_capacity)
    else:
        discard_list(index, place)
    return moved


@njit(cache=True)
def discard_list(index, place):
    """Forget a list."""
    start, _, log_capacity = posting_list(index.value[place])
    give(index, start, np.int64(1) << log_capacity)
    erase(index, place)


# -- parts ----------------------------------------------------------------------------------------


@njit(cache=True)
def terms_of(index, part):
    """Return (first, behind the last) place of a part's terms in the pool."""
    start = np.int64(index.part[part, START])
    header = index.pool[start]
    first = start + 1 + (header & 1)
    return first, first + (header >> 2)


@njit(cache=True)
def program_of(index, part):
    """Return where the program of a part is, -1 if it has none."""
    start = np.int64(index.part[part, START])
    return np.int64(index.pool[start + 1]) if index.pool[start] & 1 else np.int64(-1)


@njit(cache=True)
def part_size(batch, i):
    """Return how much of the pool a part and its program take."""
    size = block_size(2 + batch.offsets[i + 1] - batch.offsets[i])
    p = batch.program[i]
    if p >= 0:
        size += block_size(1 + batch.programs[p + 1] - batch.programs[p])
    return size


@njit(cache=True)
def put_part(index, batch, i):
    """Make part ``i`` of a batch; there is room. Return it."""
    meta = index.meta
    part = meta[SPARE_PART]
    if part >= 0:
        meta[SPARE_PART] = index.part[part, NEXT]
    else:
        part = meta[PARTS]
        meta[PARTS] += 1
    slot = batch.slots[i]
    first, last, p = batch.offsets[i], batch.offsets[i + 1], batch.program[i]
    extra = np.int64(1) if p >= 0 else np.int64(0)
    start = take(index, 1 + extra + last - first)
    index.pool[start] = ((last - first) << 2) | (np.int64(2) if batch.later[i] else np.int64(0)) | extra
    if p >= 0:
        program = program_of(index, index.head[slot]) if index.head[slot] >= 0 else np.int64(-1)
        if program < 0:
            begin, end = batch.programs[p], batch.programs[p + 1]
            program = take(index, 1 + end - begin)
            index.pool[program] = end - begin
            for j in range(begin, end):
                index.pool[program + 1 + j - begin] = batch.literals[j]
        index.pool[start + 1] = program
    for j in range(first, last):
        index.pool[start + 1 + extra + j - first] = batch.terms[j]
    row = index.part[part]
    row[SLOT], row[NEXT], row[START], row[PLACE] = slot, index.head[slot], start, -1
    index.head[slot] = part
    for j in range(4):
        index.box[part, j] = batch.boxes[i, j]
    return part


@njit(cache=True)
def free_slot(index, slot):
    """Free the parts of a slot, which are in no tree and no list any more."""
    part = np.int64(index.head[slot])
    program = program_of(index, part)
    if program >= 0:
        give(index, program, 1 + np.int64(index.pool[program]))
    while part >= 0:
        following = np.int64(index.part[part, NEXT])
        start = np.int64(index.part[part, START])
        header = np.int64(index.pool[start])
        give(index, start, 1 + (header & 1) + (header >> 2))
        index.part[part, SLOT], index.part[part, NEXT] = -1, index.meta[SPARE_PART]
        index.meta[SPARE_PART] = part
        part = following
    index.head[slot] = -1


@njit(cache=True)
def used_terms(index, slots):
    """Return (boxes float64[n, 4], offsets int64[n + 1], stops int64[n], terms int32[]) of slots.

    The terms of all parts come first, up to ``stops``; then those of the program.
    """
    boxes, offsets, stops = np.empty((len(slots), 4), np.float64), np.zeros(len(slots) + 1, np.int64), np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        part, n = np.int64(index.head[slots[i]]), np.int64(0)
        for k in range(4):
            boxes[i, k] = index.box[part, k]
        program = program_of(index, part)
        if program >= 0:
            n += np.int64(index.pool[program]) // 3
        while part >= 0:
            first, last = terms_of(index, part)
            n += last - first
            part = np.int64(index.part[part, NEXT])
        offsets[i + 1] = offsets[i] + n
    terms = np.empty(offsets[-1], np.int32)
    for i in range(len(slots)):
        part, at = np.int64(index.head[slots[i]]), offsets[i]
        program = program_of(index, part)
        while part >= 0:
            first, last = terms_of(index, part)
            for j in range(first, last):
                terms[at] = index.pool[j]
                at += 1
            part = np.int64(index.part[part, NEXT])
        stops[i] = at
        if program >= 0:
            for j in range(program + 1, program + 1 + np.int64(index.pool[program]), 3):
                terms[at] = index.pool[j]
                at += 1
    return boxes, offsets, stops, terms


@njit(cache=True)
def low(value, most):
    """Return a coordinate as float32, within ``-most..most``.

    The map is monotone, so what overlaps still does; and what overlaps by more than a common border did before.
    """
    return np.float32(min(max(value, -most), most))


@njit(cache=True)
def columns(index, slots):
    """Return the first half of each part of slots: (parts, offsets, terms, offsets of programs, literals, program of each part).

    Types: int64[], int64[], int32[], int64[], int32[], int64[]; programs are numbered in order of slots.
    """
    n, words, literals, count = 0, np.int64(0), np.int64(0), 0
    for i in range(len(slots)):
        part = np.int64(index.head[slots[i]])
        program = program_of(index, part)
        if program >= 0:
            literals += index.pool[program]
            count += 1
        while part >= 0:
            first, last = terms_of(index, part)
            if not index.pool[index.part[part, START]] & 2:
                n += 1
                words += last - first
            part = np.int64(index.part[part, NEXT])
    parts, of, offsets = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n + 1, np.int64)
    terms, programs, literal = np.empty(words, np.int32), np.zeros(count + 1, np.int64), np.empty(literals, np.int32)
    n, count = 0, 0
    for i in range(len(slots)):
        part = np.int64(index.head[slots[i]])
        program = program_of(index, part)
        if program >= 0:
            length = np.int64(index.pool[program])
            literal[programs[count] : programs[count] + length] = index.pool[program + 1 : program + 1 + length]
            programs[count + 1] = programs[count] + length
            count += 1
        while part >= 0:
            first, last = terms_of(index, part)
            if not index.pool[index.part[part, START]] & 2:
                parts[n], of[n] = part, count - 1 if program >= 0 else -1
                offsets[n + 1] = offsets[n] + last - first
                terms[offsets[n] : offsets[n + 1]] = index.pool[first:last]
                n += 1
            part = np.int64(index.part[part, NEXT])
    return parts, offsets, terms, programs, literal, of
