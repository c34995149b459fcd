"""Layout of the lanes index and the pools that its parts come from. Imports numpy and numba only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.core import types

from dskype.bolts.boolean.lanes.address_kernels import Field, opener
from dskype.topology.kernel_cache import njit

LANES = 16
GROUP_LANES = 256
FAN_OUT = 16
"""Children of a node."""
SHORT = 16
"""Postings up to which a list is a run of records."""
FAR_DEG = 1e9
"""West and east of a half of a rectangle that crosses the antimeridian, where it has no end."""
CODES_MOST = 65535
"""Codes are below; 0 stands for no keyword, and this one for none that a message can have."""

# Places of ``Stores.state``: where what is in use of each pool ends, the first free part of each pool, more one (0: none), and the
# partitions of the term table: two numbers each, where it starts, and (log2 of its rows) << 32 | rows in use.
BLOCKS_END, GROUPS_END, NODES_END, RECORDS_END, PROGRAMS_END, TABLE_END, CODES_END = 0, 1, 2, 3, 4, 5, 6
FREE_GROUP, FREE_NODE, FREE_CODE, FREE_CODES = 8, 9, 10, 11
FREE_BLOCKS, FREE_RECORDS, FREE_TABLE, FREE_PROGRAMS = 16, 34, 52, 84
PARTITIONS = 256
PARTITION = 226
STATE_SIZE = PARTITION + 2 * PARTITIONS

# Kinds of lists.
NONE, RECORDS, GROUP, TREE = 0, 1, 2, 3

# A group: int64[24], of which these are int64 (TERM), float64 (X0 to SCALE_Y), int32 (BLOCK to CLAMPED), and from uint16 place BOUNDS on the
# bounds of its 16 blocks: 16 times west, then south, east, north.
TERM, X0, Y0, SCALE_X, SCALE_Y = 0, 1, 2, 3, 4
BLOCK, BLOCKS, USED, DEAD, PARENT, CLAMPED = 10, 11, 12, 13, 14, 15
BOUNDS = 32

# A block: uint16[160]: 16 times west, south, east, north, then 16 times the first code, the second, ..., then int32 16 slots.
CODE, SLOT = 64, 64
# A node: float32[96]: bounds of 16 children, 16 ids of children as int32 (a group, or ~node), COUNT, UPPER (its parent, or -1).
CHILD, COUNT, UPPER = 64, 80, 81
# A record: float32[8]: west, south, east, north, 4 codes as uint16, slot and hash of the term as int32.
RECORD_CODE, RECORD_SLOT, RECORD_HASH = 8, 6, 7
# Of a run of free records the first and the last have DEAD_SLOT as their slot and, as int32, RUN; the first has NEXT and BEFORE, too.
NEXT, BEFORE, RUN = 0, 1, 2
LONG_RUN = 17
"""Length of the longest free runs that are told apart; one list has all that are as long or longer."""

# What ``places`` says of a slot: 0 it is free, above 0 where its posting is, below 0 ~program - ... see program_of.
RECORD_PLACE = 1 << 30
FLAG = -(1 << 31)
"""Marks the slot of a posting whose subscription has a program."""
DEAD_SLOT = -1

# Kinds of programs: all of what follows as codes; as terms; any of the terms; jumps (see dskype.bolts.boolean.programs).
ALL_CODES, ALL_TERMS, ANY_TERM, JUMPS = 1, 2, 3, 4


class Stores(NamedTuple):
    """The arrays of an index.

    :ivar boxes: float64[slots, 4]: west, south, east, north in degrees.
    :ivar places: int32[slots], where the one posting of a slot is, or its program.
    :ivar table: int64[rows, 2]: a term, and its code, the kind of its list and where that is; see :func:`packed`.
    :ivar records: float32[records, 8], postings of short lists.
    :ivar blocks: uint16[blocks, 160], 16 postings each.
    :ivar groups: int64[groups, 24], up to 16 blocks each.
    :ivar nodes: float32[nodes, 96], the trees of groups.
    :ivar programs: int64[units], of subscriptions that are more than a few keywords in one rectangle.
    :ivar codes: int32[codes, 3]: the term of each code, its low half first, and how many postings and programs use it.
    :ivar state: int64[STATE_SIZE].
    """

    boxes: np.ndarray
    places: np.ndarray
    table: np.ndarray
    records: np.ndarray
    blocks: np.ndarray
    groups: np.ndarray
    nodes: np.ndarray
    programs: np.ndarray
    codes: np.ndarray
    state: np.ndarray


class Terms(NamedTuple):
    """What says where the list of a term is, and its code; see :class:`Stores`. Compiled kernels take the :class:`Index` for it."""

    table: np.ndarray
    codes: np.ndarray
    state: np.ndarray


class Index(NamedTuple):
    """The arrays of an index in all types that their rows are made of."""

    boxes: np.ndarray
    places: np.ndarray
    terms: Terms
    record: np.ndarray
    record_u2: np.ndarray
    record_i4: np.ndarray
    block: np.ndarray
    block_i4: np.ndarray
    group: np.ndarray
    group_f8: np.ndarray
    group_i4: np.ndarray
    group_u2: np.ndarray
    node: np.ndarray
    node_i4: np.ndarray
    program: np.ndarray
    program_i4: np.ndarray
    program_u2: np.ndarray
    state: np.ndarray


_FIELDS = {
    "boxes": Field(0, types.float64, 4),
    "places": Field(1, types.int32, flat=True),
    "terms": None,
    "table": Field(2, types.int64, 2),
    "codes": Field(8, types.int32, 3),
    "record": Field(3, types.float32, 8),
    "record_u2": Field(3, types.uint16, 16),
    "record_i4": Field(3, types.int32, 8),
    "block": Field(4, types.uint16, 160),
    "block_i4": Field(4, types.int32, 80),
    "group": Field(5, types.int64, 24),
    "group_f8": Field(5, types.float64, 24),
    "group_i4": Field(5, types.int32, 48),
    "group_u2": Field(5, types.uint16, 96),
    "node": Field(6, types.float32, 96),
    "node_i4": Field(6, types.int32, 96),
    "program": Field(7, types.int64, flat=True),
    "program_i4": Field(7, types.int32, 2, flat=True),
    "program_u2": Field(7, types.uint16, 4, flat=True),
    "state": Field(9, types.int64, flat=True),
}

opened = opener("Index", _FIELDS)
"""Returns an :class:`Index`, given a handle of :class:`Stores`."""


def views(s):
    """Return the arrays of an index in all types that their rows are made of."""
    records, groups, programs = s.records, s.groups, s.programs
    return Index(
        s.boxes, s.places, Terms(s.table, s.codes, s.state),
        records, records.view(np.uint16), records.view(np.int32),
        s.blocks, s.blocks.view(np.int32),
        groups, groups.view(np.float64), groups.view(np.int32), groups.view(np.uint16),
        s.nodes, s.nodes.view(np.int32),
        programs, programs.view(np.int32), programs.view(np.uint16),
        s.state,
    )  # fmt: skip


# -- pools ------------------------------------------------------------------------------------------


@njit(cache=True)
def new_blocks(index, n):
    """Return the first of ``n`` blocks in a row, 1 to 16: free ones, a part of a longer free run, or new ones."""
    state = index.state
    for size in range(n, LANES + 1):
        head = state[FREE_BLOCKS + size]
        if head:
            first = head - 1
            state[FREE_BLOCKS + size] = index.block_i4[first, 0]
            if size > n:
                free_blocks(index, first + n, size - n)
            return first
    first = state[BLOCKS_END]
    state[BLOCKS_END] = first + n
    return first


@njit(cache=True)
def free_blocks(index, first, n):
    """Give ``n`` blocks in a row back."""
    index.block_i4[first, 0] = index.state[FREE_BLOCKS + n]
    index.state[FREE_BLOCKS + n] = first + 1


@njit(cache=True)
def new_group(index, term, parent):
    """Return an empty group without blocks."""
    state = index.state
    head = state[FREE_GROUP]
    if head:
        g = head - 1
        state[FREE_GROUP] = index.group[g, TERM]
    else:
        g = state[GROUPS_END]
        state[GROUPS_END] = g + 1
    index.group[g, TERM] = term
    for field in (BLOCK, BLOCKS, USED, DEAD, CLAMPED):
        index.group_i4[g, field] = 0
    index.group_i4[g, PARENT] = parent
    return g


@njit(cache=True)
def free_group(index, g):
    """Give a group and its blocks back."""
    if index.group_i4[g, BLOCKS]:
        free_blocks(index, np.int64(index.group_i4[g, BLOCK]), np.int64(index.group_i4[g, BLOCKS]))
    index.group_i4[g, USED] = -1
    index.group[g, TERM] = index.state[FREE_GROUP]
    index.state[FREE_GROUP] = g + 1


@njit(cache=True)
def new_node(index, parent):
    """Return a node without children."""
    state = index.state
    head = state[FREE_NODE]
    if head:
        node = head - 1
        state[FREE_NODE] = index.node_i4[node, CHILD]
    else:
        node = state[NODES_END]
        state[NODES_END] = node + 1
    for j in range(FAN_OUT):
        clear_child(index, node, j)
    index.node_i4[node, COUNT], index.node_i4[node, UPPER] = 0, parent
    return node


@njit(cache=True)
def clear_child(index, node, j):
    """Let a node have no child at a place: no rectangle overlaps its bounds."""
    index.node[node, j] = index.node[node, 16 + j] = np.inf
    index.node[node, 32 + j] = index.node[node, 48 + j] = -np.inf
    index.node_i4[node, CHILD + j] = 0


@njit(cache=True)
def free_node(index, node):
    """Give a node back."""
    index.node_i4[node, COUNT] = -1
    index.node_i4[node, CHILD] = index.state[FREE_NODE]
    index.state[FREE_NODE] = node + 1


@njit(cache=True)
def _link_records(index, first, n):
    """Let ``n`` records in a row be free."""
    state, record = index.state, index.record_i4
    kept = FREE_RECORDS + min(n, LONG_RUN)
    head = state[kept]
    record[first, NEXT], record[first, BEFORE], state[kept] = head, 0, first + 1
    if head:
        record[head - 1, BEFORE] = first + 1
    for end in (first, first + n - 1):
        record[end, RUN], record[end, RECORD_SLOT] = n, DEAD_SLOT


@njit(cache=True)
def _unlink_records(index, first):
    """Take a run of records out of the free ones; return its length."""
    record = index.record_i4
    n, after, before = np.int64(record[first, RUN]), np.int64(record[first, NEXT]), np.int64(record[first, BEFORE])
    if before:
        record[before - 1, NEXT] = after
    else:
        index.state[FREE_RECORDS + min(n, LONG_RUN)] = after
    if after:
        record[after - 1, BEFORE] = before
    return n


@njit(cache=True)
def _take_records(index, first, n):
    """Take the first ``n`` records of a free run."""
    free = _unlink_records(index, first)
    if free > n:
        _link_records(index, first + n, free - n)


@njit(cache=True)
def new_records(index, n):
    """Return the first of ``n`` records in a row, 1 to 16: of a free run that is just as long or longer, or new ones.

    The caller writes to all of them before it gives any others back: what is free is known by what is written there.
    """
    state = index.state
    for size in range(n, LONG_RUN + 1):
        first = state[FREE_RECORDS + size] - 1
        if first >= 0:
            _take_records(index, first, n)
            return first
    first = state[RECORDS_END]
    state[RECORDS_END] = first + n
    return first


@njit(cache=True)
def extend_records(index, first, n):
    """Let a run of ``n`` records have the one right behind, too, if it is free; return whether it was."""
    end = first + n
    if end == index.state[RECORDS_END] or index.record_i4[end, RECORD_SLOT] != DEAD_SLOT:
        return False
    _take_records(index, end, np.int64(1))
    return True


@njit(cache=True)
def free_records(index, first, n):
    """Give ``n`` records in a row back; they are joined with what is free on either side."""
    state, record = index.state, index.record_i4
    if first > 0 and record[first - 1, RECORD_SLOT] == DEAD_SLOT:
        first -= np.int64(record[first - 1, RUN])
        n += _unlink_records(index, first)
    if first + n < state[RECORDS_END] and record[first + n, RECORD_SLOT] == DEAD_SLOT:
        n += _unlink_records(index, first + n)
    if first + n == state[RECORDS_END]:
        state[RECORDS_END] = first
    else:
        _link_records(index, first, n)


@njit(cache=True)
def program_size(units):
    """Return (size class, units) of the smallest part of the pool of programs that holds so many units; four classes per octave above 32."""
    if units <= 32:
        return units, units
    octave = 5
    while units >> (octave + 1):
        octave += 1
    quarters = (units + (1 << (octave - 2)) - 1) >> (octave - 2)
    return 29 + 4 * (octave - 5) + quarters, quarters << (octave - 2)


@njit(cache=True)
def new_program(index, units):
    """Return the first of so many units for a program."""
    state = index.state
    size_class, units = program_size(units)
    head = state[FREE_PROGRAMS + size_class]
    if head:
        state[FREE_PROGRAMS + size_class] = index.program[head - 1]
        return head - 1
    first = state[PROGRAMS_END]
    state[PROGRAMS_END] = first + units
    return first


@njit(cache=True)
def free_program(index, first, units):
    """Give the units of a program back."""
    size_class, units = program_size(units)
    index.program[first] = index.state[FREE_PROGRAMS + size_class]
    index.state[FREE_PROGRAMS + size_class] = first + 1


# -- programs ---------------------------------------------------------------------------------------
# A program begins with int32s: of codes, kind | postings << 4 | length << 8; of others, kind | postings << 4, length. Then comes the place of each
# posting, then what is asked for: uint16 codes right behind, or int64, from the next unit on.


@njit(cache=True)
def program_units(kind, postings, length):
    """Return how many units a program takes."""
    if kind == ALL_CODES:
        return (4 + 4 * postings + 2 * length + 7) >> 3
    return 1 + ((postings + 1) >> 1) + length


@njit(cache=True)
def program_of(index, slot):
    """Return where the program of a slot begins."""
    return -np.int64(index.places[slot]) - 1


@njit(cache=True)
def begin_program(index, first, kind, postings, length):
    """Write what a program begins with; its postings have no places yet."""
    index.program_i4[2 * first] = kind | (postings << 4) | (length << 8 if kind == ALL_CODES else 0)
    if kind != ALL_CODES:
        index.program_i4[2 * first + 1] = length
    at = postings_at(index, first)
    for k in range(postings):
        index.program_i4[at + k] = 0


@njit(cache=True)
def program_head(index, first):
    """Return (kind, postings, length, place of what is asked for: in uint16 for codes, else in int64)."""
    head = np.int64(index.program_i4[2 * first])
    kind = head & 15
    if kind == ALL_CODES:
        postings = (head >> 4) & 15
        return kind, postings, head >> 8, 4 * first + 2 + 2 * postings
    postings = head >> 4
    return kind, postings, np.int64(index.program_i4[2 * first + 1]), first + 1 + ((postings + 1) >> 1)


@njit(cache=True)
def postings_at(index, first):
    """Return where in ``program_i4`` the places of a program's postings begin."""
    return 2 * first + (1 if index.program_i4[2 * first] & 15 == ALL_CODES else 2)


@njit(cache=True)
def nth_posting(index, slot, place):
    """Return which posting of a slot's program is at a place, -1: none."""
    first = program_of(index, slot)
    at = postings_at(index, first)
    for k in range(program_head(index, first)[1]):
        if index.program_i4[at + k] == place:
            return k
    return -1


@njit(cache=True)
def move(index, mark, old, new):
    """Note that a posting (its slot, with the flag) goes from one place to another; :func:`settle` follows if it is flagged."""
    if mark >= 0:
        index.places[mark] = new
    else:
        slot = np.int64(mark) - FLAG
        index.program_i4[postings_at(index, program_of(index, slot)) + nth_posting(index, slot, old)] = -new


@njit(cache=True)
def settle(index, mark):
    """Let new places of a slot count. Until then they are negative: others may still be looked for by old places that are equal."""
    if mark < 0:
        first = program_of(index, np.int64(mark) - FLAG)
        at = postings_at(index, first)
        for k in range(at, at + program_head(index, first)[1]):
            index.program_i4[k] = abs(index.program_i4[k])


@njit(cache=True)
def box_of_posting(index, mark, place):
    """Return west, south, east, north of the posting at a place: of its slot, or of the half of it east or west of the antimeridian."""
    slot = np.int64(mark) if mark >= 0 else np.int64(mark) - FLAG
    west, south, east, north = index.boxes[slot, 0], index.boxes[slot, 1], index.boxes[slot, 2], index.boxes[slot, 3]
    if west > east:
        if nth_posting(index, slot, place) & 1:
            west = -FAR_DEG
        else:
            east = FAR_DEG
    return west, south, east, north
