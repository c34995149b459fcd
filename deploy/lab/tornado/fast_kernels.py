"""Kernels of FAST: a spatial pyramid whose cells hold adaptive keyword indexes.

Pyramid and tries are one structure. A *node* is a cell of the pyramid or a node of a trie. A *row* of the hash table leads from a node and a
term to a list of postings (the keyword is infrequent there) or to a trie node (it is frequent). A conjunction with the terms t0 < t1 < ... is
in one of three places of a cell: the list of one of its terms; a list below the trie of t0, reached by t0, t1, ...; or the own list of the
trie node that all its terms lead to. Only own lists send postings on to the cells below.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.deploy.lab.tornado.record_kernels import EAST, NORTH, PLACES, SOUTH, WEST, mix, release, slot_of
from dskype.topology.kernel_cache import njit

__all__ = [
    "BELOW",
    "BLOCK",
    "CELLS",
    "CHILDREN",
    "CLASS",
    "COUNT",
    "CURSOR",
    "DEAD",
    "EMPTY",
    "FREE_NODE",
    "FREQUENT",
    "HEADROOM",
    "IS_CELL",
    "LEVELS",
    "MASK",
    "MOVABLE",
    "NEED_NODES",
    "NEED_POSTINGS",
    "NEED_QUEUE",
    "NEED_ROWS",
    "NEED_WORDS",
    "NODES_USED",
    "NO_BLOCK",
    "OWNER",
    "POSTINGS",
    "QUEUED",
    "RECORD",
    "ROWS_LIVE",
    "ROWS_USED",
    "SHARES",
    "SIGNATURE",
    "SLOT",
    "SPILL",
    "TOMB",
    "UNITS_USED",
    "Pyramid",
    "add_child",
    "append",
    "bit_of",
    "can_move",
    "cell_below",
    "child_of",
    "column_of",
    "find",
    "forget",
    "free_block",
    "free_node",
    "in_columns",
    "level_of",
    "line_of",
    "misplaced",
    "new_row",
    "overlap",
    "overlaps_cell",
    "rehash",
    "resized",
    "room",
    "sweep",
    "take_node",
]

EMPTY, TOMB, CELLS = np.int32(-(2**31)), np.int32(-(2**31) + 1), np.int32(-2)
"""Owners that are no nodes: of a free row, of one that was taken out, and of the rows that lead to the pyramid's cells."""
NO_BLOCK = np.int32(-1)
HEADROOM = 16
"""Rows and nodes that filing one posting may take, at most."""
ROWS_USED, ROWS_LIVE, NODES_USED, FREE_NODE, UNITS_USED, POSTINGS, DEAD, QUEUED, CURSOR = range(9)
"""Places of ``Pyramid.counters``."""
LEVELS, FREQUENT, SPILL = range(3)
"""Places of ``Pyramid.shape``."""
OWNER, BLOCK, CHILDREN, MASK = 4, 5, 6, 7
"""Columns of ``Pyramid.node_parts``."""
BELOW, IS_CELL = np.int32(15), np.int32(16)
"""Parts of a node's mask: the cells below that exist, and whether the node is a cell."""
COUNT, CLASS, SHARES, MOVABLE = 0, 1, 2, 3
"""Columns of a block's first unit."""
SLOT, RECORD, SIGNATURE = 4, 5, 3
"""Columns of a posting, the last one in int64."""
NEED_WORDS, NEED_ROWS, NEED_NODES, NEED_POSTINGS, NEED_QUEUE = 1, 2, 3, 4, 5
_OWNER, _VALUE = 2, 3


class Pyramid(NamedTuple):
    """The arrays of FAST; T rows (a power of two), N nodes, U units of 32 bytes, Q places in the queue.

    shape: int64[3], levels of the pyramid; from how many postings on a list is full, its keyword frequent; how many postings that
    could move on an own list keeps. terms: int64[T, 2], whose first column has the terms. rows: int32[T, 4], the same memory, owner and value in
    columns 2 and 3; a value >= 0 is the block of a list, one <= -2 is the node -2 - value. nodes: int64[N, 4], signature of the children's terms
    and the own term, or a cell as ``level << 48 | line << 24 | column``. node_parts: int32[N, 8], the same memory, owner (of a cell the cell
    around it), block of the own list (-1: none), number of rows, and a mask (IS_CELL; for a cell the four cells below that exist).
    units: int32[U, 8]. A block has 2^class units. The first holds count, class, how many rows lead to it, and how many postings, the first ones, could
    move on. Each other is a posting: rectangle in float32, slot, record, and the signature of the terms that the way to it has not tested (0: none).
    boxes: float32[U, 8], signatures: int64[U, 4], the same memory. free: int64[32], first free block by class, linked by the first element.
    queue: int64[Q, 4], postings to file: record, cell, trigger, bits of the cells below where they belong (16: the cell itself).
    counters: int64[9], rows in use (tombs included), rows that lead somewhere, nodes in use (free ones included), first free node (-1: none), units in
    use (freed blocks included), postings, dead ones among them, postings in the queue, the row to vacuum next.
    """

    shape: np.ndarray
    terms: np.ndarray
    rows: np.ndarray
    nodes: np.ndarray
    node_parts: np.ndarray
    units: np.ndarray
    boxes: np.ndarray
    signatures: np.ndarray
    free: np.ndarray
    queue: np.ndarray
    counters: np.ndarray


# -- the grid -----------------------------------------------------------------------------------------------------------


@njit(cache=True)
def column_of(pyramid, lon):
    """Return the column of a longitude in the finest grid: monotone, so that a point in a rectangle is in a cell of it."""
    size = np.float64(np.int64(1) << (pyramid.shape[LEVELS] - 1))
    return np.int64(min(max(np.floor((lon + 180.0) / 360.0 * size), 0.0), size - 1.0))


@njit(cache=True)
def line_of(pyramid, lat):
    """Return the line of a latitude in the finest grid: monotone."""
    size = np.float64(np.int64(1) << (pyramid.shape[LEVELS] - 1))
    return np.int64(min(max(np.floor((lat + 90.0) / 180.0 * size), 0.0), size - 1.0))


@njit(cache=True)
def in_columns(column, first, last, crosses):
    """Tell whether a column is in a range, which may cross the antimeridian."""
    return (first <= column or column <= last) if crosses else first <= column <= last


@njit(cache=True)
def overlaps_cell(records, pyramid, record, level, column, line):
    """Tell whether a record's rectangle reaches into a cell."""
    floats = records.floats
    shift = pyramid.shape[LEVELS] - 1 - level
    if line < line_of(pyramid, floats[record + SOUTH]) >> shift or line > line_of(pyramid, floats[record + NORTH]) >> shift:
        return False
    west, east = floats[record + WEST], floats[record + EAST]
    return in_columns(column, column_of(pyramid, west) >> shift, column_of(pyramid, east) >> shift, west > east)


@njit(cache=True)
def level_of(cell):
    """Return the level of a cell, 0 for the world."""
    return cell >> 48


@njit(cache=True)
def _line(cell):
    return (cell >> 24) & 0xFFFFFF


@njit(cache=True)
def _column(cell):
    return cell & 0xFFFFFF


@njit(cache=True)
def child_of(cell, quadrant):
    """Return the cell below ``cell`` in a quadrant (bit 0: east, bit 1: north)."""
    return ((cell >> 48) + 1) << 48 | (2 * _line(cell) + (quadrant >> 1)) << 24 | (2 * _column(cell) + (quadrant & 1))


@njit(cache=True)
def can_move(records, pyramid, record, level):
    """Tell whether a rectangle is at most half a cell wide and high, and there is a level below."""
    if level + 1 >= pyramid.shape[LEVELS]:
        return False
    floats = records.floats
    width, height = floats[record + EAST] - floats[record + WEST], floats[record + NORTH] - floats[record + SOUTH]
    if width < 0.0:
        width += 360.0
    scale = np.float64(np.int64(2) << level)
    return width * scale <= 360.0 and height * scale <= 180.0


@njit(cache=True)
def overlap(records, record, cell):
    """Return the area that a rectangle and a cell share, in square degrees; of one that crosses the antimeridian, its whole area."""
    floats = records.floats
    west, south, east, north = floats[record + WEST], floats[record + SOUTH], floats[record + EAST], floats[record + NORTH]
    scale = np.float64(np.int64(1) << level_of(cell))
    if west > east:
        return (east - west + 360.0) * (north - south)
    left, bottom = _column(cell) / scale * 360.0 - 180.0, _line(cell) / scale * 180.0 - 90.0
    wide = min(east, left + 360.0 / scale) - max(west, left)
    return wide * (min(north, bottom + 180.0 / scale) - max(south, bottom))


# -- rows and nodes -----------------------------------------------------------------------------------------------------


@njit(cache=True)
def bit_of(term):
    """Return the bit of a term in signatures."""
    return np.int64(1) << ((term ^ (term >> 6) ^ (term >> 13)) & 63)


@njit(cache=True)
def find(pyramid, owner, term):
    """Return the row of (owner, term), or the free row where it belongs."""
    mask = len(pyramid.rows) - 1
    place = mix(owner, term) & mask
    while pyramid.rows[place, _OWNER] != EMPTY and (pyramid.terms[place, 0] != term or pyramid.rows[place, _OWNER] != owner):
        place = (place + 1) & mask
    return place


@njit(cache=True)
def new_row(pyramid, place, owner, term, value):
    """Fill a free row."""
    pyramid.terms[place, 0] = term
    pyramid.rows[place, _OWNER] = np.int32(owner)
    pyramid.rows[place, _VALUE] = np.int32(value)
    pyramid.counters[ROWS_USED] += 1
    pyramid.counters[ROWS_LIVE] += 1


@njit(cache=True)
def take_node(pyramid, owner, term):
    """Make an empty node and return it."""
    node = pyramid.counters[FREE_NODE]
    if node >= 0:
        pyramid.counters[FREE_NODE] = np.int64(pyramid.node_parts[node, OWNER])
    else:
        node = pyramid.counters[NODES_USED]
        pyramid.counters[NODES_USED] = node + 1
    pyramid.nodes[node, 0] = 0
    pyramid.nodes[node, 1] = term
    parts = pyramid.node_parts[node]
    parts[OWNER], parts[BLOCK], parts[CHILDREN], parts[MASK] = np.int32(owner), NO_BLOCK, np.int32(0), np.int32(0)
    return node


@njit(cache=True)
def free_node(pyramid, node):
    """Put a node into the list of free ones."""
    pyramid.node_parts[node, OWNER] = np.int32(pyramid.counters[FREE_NODE])
    pyramid.counters[FREE_NODE] = node


@njit(cache=True)
def add_child(pyramid, node, place, term, value):
    """Fill a free row that leads from a node."""
    new_row(pyramid, place, node, term, value)
    pyramid.nodes[node, 0] |= bit_of(term)
    pyramid.node_parts[node, CHILDREN] += np.int32(1)


@njit(cache=True)
def cell_below(pyramid, node, quadrant):
    """Return the node of the cell in a quadrant of a cell; make it if it is not there."""
    cell = child_of(pyramid.nodes[node, 1], quadrant)
    place = find(pyramid, np.int64(CELLS), cell)
    if pyramid.rows[place, _OWNER] != EMPTY:
        return np.int64(-2) - pyramid.rows[place, _VALUE]
    below = take_node(pyramid, node, cell)
    pyramid.node_parts[below, MASK] = IS_CELL
    new_row(pyramid, place, np.int64(CELLS), cell, -2 - below)
    pyramid.node_parts[node, MASK] |= np.int32(1 << quadrant)
    return below


@njit(cache=True)
def rehash(pyramid, terms, rows):
    """Move the rows that lead somewhere into larger arrays, whose owners are ``EMPTY``."""
    other = Pyramid(
        pyramid.shape,
        terms,
        rows,
        pyramid.nodes,
        pyramid.node_parts,
        pyramid.units,
        pyramid.boxes,
        pyramid.signatures,
        pyramid.free,
        pyramid.queue,
        pyramid.counters,
    )
    for old in range(len(pyramid.rows)):
        if pyramid.rows[old, _OWNER] > TOMB:
            place = find(other, np.int64(pyramid.rows[old, _OWNER]), pyramid.terms[old, 0])
            terms[place] = pyramid.terms[old]
    pyramid.counters[ROWS_USED] = pyramid.counters[ROWS_LIVE]
    pyramid.counters[CURSOR] = 0


@njit(cache=True)
def misplaced(pyramid):
    """Return how many rows a search does not find; for checks."""
    count = 0
    for place in range(len(pyramid.rows)):
        if pyramid.rows[place, _OWNER] > TOMB:
            count += find(pyramid, np.int64(pyramid.rows[place, _OWNER]), pyramid.terms[place, 0]) != place
    return count


# -- blocks -------------------------------------------------------------------------------------------------------------


@njit(cache=True)
def room(pyramid, size):
    """Tell whether a block of a class can be taken."""
    return pyramid.free[size] >= 0 or pyramid.counters[UNITS_USED] + (np.int64(1) << size) <= len(pyramid.units)


@njit(cache=True)
def _take_block(pyramid, size):
    block = pyramid.free[size]
    if block >= 0:
        pyramid.free[size] = np.int64(pyramid.units[block, 0])
    else:
        block = pyramid.counters[UNITS_USED]
        pyramid.counters[UNITS_USED] = block + (np.int64(1) << size)
    head = pyramid.units[block]
    head[COUNT], head[CLASS], head[SHARES], head[MOVABLE] = np.int32(0), np.int32(size), np.int32(1), np.int32(0)
    return block


@njit(cache=True)
def free_block(pyramid, block):
    """Put a block into the list of free ones of its class."""
    size = np.int64(pyramid.units[block, CLASS])
    pyramid.units[block, 0] = np.int32(pyramid.free[size])
    pyramid.free[size] = block


@njit(cache=True)
def forget(records, pyramid, record):
    """Count out a posting; a dead record without postings is free."""
    pyramid.counters[POSTINGS] -= 1
    records.words[record + PLACES] -= 1
    if slot_of(records, record) < 0:
        pyramid.counters[DEAD] -= 1
        if records.words[record + PLACES] == 0:
            release(records, record)


@njit(cache=True)
def resized(records, pyramid, block, size):
    """Return a block of another class with the same postings. A block that other rows lead to as well stays with them."""
    more = _take_block(pyramid, size)
    old = pyramid.units[block]
    count = np.int64(old[COUNT])
    for i in range(1, count + 1):
        pyramid.units[more + i] = pyramid.units[block + i]
    pyramid.units[more, COUNT] = old[COUNT]
    pyramid.units[more, MOVABLE] = old[MOVABLE]
    if old[SHARES] == 1:
        free_block(pyramid, block)
    else:
        old[SHARES] -= np.int32(1)
        pyramid.counters[POSTINGS] += count
        for i in range(1, count + 1):
            record = np.int64(pyramid.units[more + i, RECORD])
            records.words[record + PLACES] += 1
            if slot_of(records, record) < 0:
                pyramid.counters[DEAD] += 1
    return more


@njit(cache=True)
def append(records, pyramid, block, record, signature, movable):
    """Append a posting to a list (-1: to none yet); return its block, which may be another one, or (-1, lacking units).

    :param movable: whether the posting comes before those that may not move on.
    """
    if block < 0:
        if not room(pyramid, 1):
            return np.int64(-1), np.int64(2)
        block = _take_block(pyramid, 1)
    count = np.int64(pyramid.units[block, COUNT])
    size = np.int64(pyramid.units[block, CLASS])
    if count + 1 == (1 << size):
        if not room(pyramid, size + 1):
            return np.int64(-1), np.int64(2) << size
        block = resized(records, pyramid, block, size + 1)
    at = block + count + 1
    if movable:
        first = block + 1 + np.int64(pyramid.units[block, MOVABLE])
        pyramid.units[at] = pyramid.units[first]
        at = first
        pyramid.units[block, MOVABLE] += np.int32(1)
    pyramid.units[block, COUNT] = np.int32(count + 1)
    floats = records.floats
    crosses = floats[record + WEST] > floats[record + EAST]
    for j in range(4):
        # Not a number fails every comparison: such a rectangle is neither passed over nor taken without the exact test.
        pyramid.boxes[at, j] = np.float32(np.nan) if crosses and j % 2 == 0 else np.float32(floats[record + WEST + j])
    pyramid.units[at, SLOT] = np.int32(slot_of(records, record))
    pyramid.units[at, RECORD] = np.int32(record)
    pyramid.signatures[at, SIGNATURE] = signature
    records.words[record + PLACES] += 1
    pyramid.counters[POSTINGS] += 1
    return block, np.int64(0)


@njit(cache=True)
def sweep(records, pyramid, block):
    """Take dead postings out of a list; return how many are left."""
    count, movable = np.int64(pyramid.units[block, COUNT]), np.int64(pyramid.units[block, MOVABLE])
    kept, kept_movable = np.int64(0), np.int64(0)
    for i in range(1, count + 1):
        record = np.int64(pyramid.units[block + i, RECORD])
        if slot_of(records, record) >= 0:
            kept += 1
            kept_movable += i <= movable
            if kept < i:
                pyramid.units[block + kept] = pyramid.units[block + i]
        else:
            forget(records, pyramid, record)
    pyramid.units[block, COUNT] = np.int32(kept)
    pyramid.units[block, MOVABLE] = np.int32(kept_movable)
    return kept
