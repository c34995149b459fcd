"""Kernels that file postings in FAST, send them to the cells below, and clean up."""

from __future__ import annotations

import numpy as np

from dskype.deploy.lab.tornado.fast_kernels import (
    BELOW,
    BLOCK,
    CELLS,
    CHILDREN,
    CLASS,
    COUNT,
    CURSOR,
    DEAD,
    EMPTY,
    FREQUENT,
    HEADROOM,
    IS_CELL,
    MASK,
    MOVABLE,
    NEED_NODES,
    NEED_POSTINGS,
    NEED_QUEUE,
    NEED_ROWS,
    NEED_WORDS,
    NO_BLOCK,
    NODES_USED,
    OWNER,
    POSTINGS,
    QUEUED,
    RECORD,
    ROWS_LIVE,
    ROWS_USED,
    SHARES,
    SPILL,
    TOMB,
    add_child,
    append,
    bit_of,
    can_move,
    cell_below,
    child_of,
    find,
    forget,
    free_block,
    free_node,
    level_of,
    overlap,
    overlaps_cell,
    resized,
    room,
    sweep,
    take_node,
)
from dskype.deploy.lab.tornado.record_kernels import AND, GENERAL, HEAD, create, length_of, slot_of, trigger_range
from dskype.topology.kernel_cache import njit

__all__ = ["insert", "vacuum"]

_HERE = 16
"""Bit of a queued posting that belongs to the cell itself."""
_OWNER, _VALUE = 2, 3


@njit(cache=True)
def _length(records, record):
    """Return how many terms a posting of a record stands for."""
    return length_of(records, record) if records.words[record] & 3 == AND else np.int64(1)


@njit(cache=True)
def _term(records, record, trigger, j):
    """Return the j-th of these terms."""
    return records.words[record + HEAD + j] if records.words[record] & 3 == AND else trigger


@njit(cache=True)
def _signature(records, record, trigger, first, last):
    """Return the signature of what is to be tested where the terms ``first`` to before ``last`` have been."""
    kind = records.words[record] & 3
    if kind == GENERAL:
        return bit_of(trigger)
    found = np.int64(0)
    if kind == AND:
        for j in range(length_of(records, record)):
            if j < first or j >= last:
                found |= bit_of(records.words[record + HEAD + j])
    return found


@njit(cache=True)
def _enqueue(pyramid, record, cell, trigger, bits):
    n = pyramid.counters[QUEUED]
    item = pyramid.queue[n]
    item[0], item[1], item[2], item[3] = record, cell, trigger, bits
    pyramid.counters[QUEUED] = n + 1


@njit(cache=True)
def _full(records, pyramid, block):
    """Tell whether a list holds as much as a list may; dead postings do not count."""
    if pyramid.units[block, COUNT] < pyramid.shape[FREQUENT]:
        return False
    return pyramid.counters[DEAD] == 0 or sweep(records, pyramid, block) >= pyramid.shape[FREQUENT]


@njit(cache=True)
def _to_trie(records, pyramid, place, cell):
    """Make a trie node of a full list, whose postings are queued; return the node."""
    block = np.int64(pyramid.rows[place, _VALUE])
    node = take_node(pyramid, np.int64(pyramid.rows[place, _OWNER]), pyramid.terms[place, 0])
    pyramid.rows[place, _VALUE] = np.int32(-2 - node)
    at, trigger = pyramid.nodes[cell, 1], pyramid.terms[place, 0]
    for i in range(1, np.int64(pyramid.units[block, COUNT]) + 1):
        record = np.int64(pyramid.units[block + i, RECORD])
        # Those of a shared list need not reach into this cell.
        if slot_of(records, record) >= 0 and overlaps_cell(records, pyramid, record, level_of(at), at & 0xFFFFFF, (at >> 24) & 0xFFFFFF):
            _enqueue(pyramid, record, cell, trigger, np.int64(_HERE))
    _let_go(records, pyramid, block)
    return node


@njit(cache=True)
def _let_go(records, pyramid, block):
    """Count out a row that led to a list; the last one frees it."""
    if pyramid.units[block, SHARES] > 1:
        pyramid.units[block, SHARES] -= np.int32(1)
        return
    for i in range(1, np.int64(pyramid.units[block, COUNT]) + 1):
        forget(records, pyramid, np.int64(pyramid.units[block + i, RECORD]))
    free_block(pyramid, block)


@njit(cache=True)
def _share(records, pyramid, cell, record, term, block):
    """Let (cell, term) lead to a list that has the record already; tell whether that was possible."""
    place = find(pyramid, cell, term)
    if pyramid.rows[place, _OWNER] == EMPTY:
        add_child(pyramid, cell, place, term, block)
        pyramid.units[block, SHARES] += np.int32(1)
        return True
    value = np.int64(pyramid.rows[place, _VALUE])
    if value < 0:
        return False
    if value == block:
        return True
    count = np.int64(pyramid.units[value, COUNT])
    if count > pyramid.units[block, COUNT]:
        return False
    for i in range(1, count + 1):  # a list that has grown from this one begins like it
        if pyramid.units[value + i, RECORD] != pyramid.units[block + i, RECORD]:
            return False
    pyramid.rows[place, _VALUE] = np.int32(block)
    pyramid.units[block, SHARES] += np.int32(1)
    _let_go(records, pyramid, value)
    return True


@njit(cache=True)
def _put_in_list(records, pyramid, owner, place, record, term, signature):
    """Append to the list of a row, which may be a free one; return (block, lacking units)."""
    new = pyramid.rows[place, _OWNER] == EMPTY
    block, need = append(records, pyramid, np.int64(-1) if new else np.int64(pyramid.rows[place, _VALUE]), record, signature, False)
    if block >= 0:
        if new:
            add_child(pyramid, owner, place, term, block)
        else:
            pyramid.rows[place, _VALUE] = np.int32(block)
    return block, need


@njit(cache=True)
def _file(records, pyramid, cell, record, trigger, hint):
    """File a posting in a cell; return lacking units, 0 if none.

    :param hint: int64[2], number of the term and block of the list that a neighbouring cell has put the posting in, -1 if none; set.
    """
    n = _length(records, record)
    if hint[1] >= 0 and _share(records, pyramid, cell, record, _term(records, record, trigger, hint[0]), hint[1]):
        return np.int64(0)
    for j in range(n):
        term = _term(records, record, trigger, j)
        place = find(pyramid, cell, term)
        if pyramid.rows[place, _OWNER] == EMPTY or (pyramid.rows[place, _VALUE] >= 0 and not _full(records, pyramid, np.int64(pyramid.rows[place, _VALUE]))):
            block, need = _put_in_list(records, pyramid, cell, place, record, term, _signature(records, record, trigger, j, j + 1))
            hint[0], hint[1] = j, block
            return need
    hint[1] = -1
    node = cell
    for j in range(n):
        term = _term(records, record, trigger, j)
        place = find(pyramid, node, term)
        if pyramid.rows[place, _OWNER] == EMPTY or (pyramid.rows[place, _VALUE] >= 0 and not _full(records, pyramid, np.int64(pyramid.rows[place, _VALUE]))):
            block, need = _put_in_list(records, pyramid, node, place, record, term, _signature(records, record, trigger, 0, j + 1))
            return need
        value = np.int64(pyramid.rows[place, _VALUE])
        node = -2 - value if value < 0 else _to_trie(records, pyramid, place, cell)
    return _put_in_own_list(records, pyramid, node, cell, record, trigger)


@njit(cache=True)
def _put_in_own_list(records, pyramid, node, cell, record, trigger):
    """Append to a trie node's own list; send postings to the cells below if too many could go there. Return lacking units."""
    level = level_of(pyramid.nodes[cell, 1])
    signature = bit_of(trigger) if records.words[record] & 3 == GENERAL else np.int64(0)
    block, need = append(records, pyramid, np.int64(pyramid.node_parts[node, BLOCK]), record, signature, can_move(records, pyramid, record, level))
    if block < 0:
        return need
    pyramid.node_parts[node, BLOCK] = np.int32(block)
    if pyramid.units[block, MOVABLE] > pyramid.shape[SPILL]:
        _spill(records, pyramid, block, cell, pyramid.nodes[node, 1])
        if pyramid.units[block, COUNT] == 0:
            free_block(pyramid, block)
            pyramid.node_parts[node, BLOCK] = NO_BLOCK
    return np.int64(0)


@njit(cache=True)
def _spill(records, pyramid, block, cell, trigger):
    """Queue for the cells below that half of the movable postings which overlaps the cell least."""
    at = pyramid.nodes[cell, 1]
    movable = np.int64(pyramid.units[block, MOVABLE])
    areas = np.empty(movable, np.float64)
    for i in range(movable):
        areas[i] = overlap(records, np.int64(pyramid.units[block + 1 + i, RECORD]), at)
    most = np.sort(areas)[movable // 2]
    count, kept, kept_movable = np.int64(pyramid.units[block, COUNT]), np.int64(0), np.int64(0)
    for i in range(1, count + 1):
        record = np.int64(pyramid.units[block + i, RECORD])
        if i > movable or areas[i - 1] > most:
            kept += 1
            kept_movable += i <= movable
            pyramid.units[block + kept] = pyramid.units[block + i]
            continue
        bits = np.int64(0)
        for quadrant in range(4):
            below = child_of(at, np.int64(quadrant))
            if overlaps_cell(records, pyramid, record, level_of(below), below & 0xFFFFFF, (below >> 24) & 0xFFFFFF):
                bits |= np.int64(1 << quadrant)
        if slot_of(records, record) >= 0:
            _enqueue(pyramid, record, cell, trigger, bits)
        forget(records, pyramid, record)
    pyramid.units[block, COUNT] = np.int32(kept)
    pyramid.units[block, MOVABLE] = np.int32(kept_movable)


@njit(cache=True)
def _lacking(pyramid):
    """Return (what is lacking, how much) to file one queued posting whatever comes."""
    counters = pyramid.counters
    if 3 * (counters[ROWS_USED] + HEADROOM) > 2 * len(pyramid.rows):
        return NEED_ROWS, np.int64(HEADROOM)
    if counters[NODES_USED] + HEADROOM > len(pyramid.nodes):
        return NEED_NODES, np.int64(HEADROOM)
    need = 4 * (pyramid.shape[FREQUENT] + pyramid.shape[SPILL] + 2)
    if counters[QUEUED] + need > len(pyramid.queue):
        return NEED_QUEUE, need
    return 0, np.int64(0)


@njit(cache=True)
def _file_queued(records, pyramid):
    """File all queued postings; return (what is lacking, how much)."""
    hint = np.empty(2, np.int64)
    while pyramid.counters[QUEUED] > 0:
        what, need = _lacking(pyramid)
        if what:
            return what, need
        number = pyramid.counters[QUEUED] - 1
        record, cell, trigger, bits = pyramid.queue[number, 0], pyramid.queue[number, 1], pyramid.queue[number, 2], pyramid.queue[number, 3]
        hint[0], hint[1] = 0, -1
        for quadrant in range(5):
            if bits & (1 << quadrant):
                below = cell if quadrant == 4 else cell_below(pyramid, cell, np.int64(quadrant))
                need = _file(records, pyramid, below, record, trigger, hint)
                if need > 0:
                    return NEED_POSTINGS, need
                bits ^= 1 << quadrant
                pyramid.queue[number, 3] = bits
        # Filing may have queued others behind this one: the last of them takes its place.
        last = pyramid.counters[QUEUED] - 1
        pyramid.queue[number] = pyramid.queue[last]
        pyramid.counters[QUEUED] = last
    return 0, np.int64(0)


@njit(cache=True)
def insert(records, pyramid, batch, progress):
    """Put subscriptions in, from where ``progress`` says; return (what is lacking, how much), (0, 0) when all are in.

    :param progress: int64[3], subscription, its posting to file next, and its record; moved on.
    """
    while True:
        what, need = _file_queued(records, pyramid)
        if what:
            return what, need
        i = progress[0]
        if i == len(batch.slots):
            return 0, np.int64(0)
        if progress[1] == 0:
            record, need = create(records, batch, i)
            if record < 0:
                return NEED_WORDS, need
            progress[1], progress[2] = 1, record
        record = progress[2]
        first, last = trigger_range(records, record)
        if first + progress[1] - 1 < last:
            _enqueue(pyramid, record, np.int64(0), records.words[first + progress[1] - 1], np.int64(_HERE))
            progress[1] += 1
        else:
            progress[0], progress[1] = i + 1, 0


@njit(cache=True)
def _take_out(pyramid, place):
    """Make a tomb of a row and count it out at its owner."""
    owner = np.int64(pyramid.rows[place, _OWNER])
    pyramid.rows[place, _OWNER] = TOMB
    pyramid.counters[ROWS_LIVE] -= 1
    if owner >= 0:
        pyramid.node_parts[owner, CHILDREN] -= np.int32(1)
    return owner


@njit(cache=True)
def _tidy(pyramid, node):
    """Take out a node that leads nowhere, and the nodes above it that then lead nowhere; a trie node without rows becomes a list."""
    while node > 0 and pyramid.node_parts[node, CHILDREN] == 0:
        parts = pyramid.node_parts[node]
        owner, block, cell = np.int64(parts[OWNER]), np.int64(parts[BLOCK]), parts[MASK] & IS_CELL != 0
        pyramid.nodes[node, 0] = 0
        if parts[MASK] & BELOW != 0 or (block >= 0 and pyramid.units[block, COUNT] > pyramid.shape[FREQUENT]):
            return
        place = find(pyramid, np.int64(CELLS) if cell else owner, pyramid.nodes[node, 1])
        if block >= 0:
            pyramid.rows[place, _VALUE] = np.int32(block)
            pyramid.units[block, MOVABLE] = np.int32(0)
            free_node(pyramid, node)
            return
        if cell:
            quadrant = (pyramid.nodes[node, 1] & 1) | ((pyramid.nodes[node, 1] >> 24) & 1) << 1
            pyramid.node_parts[owner, MASK] ^= np.int32(1 << quadrant)
        _take_out(pyramid, place)
        free_node(pyramid, node)
        node = owner


@njit(cache=True)
def _shrunk(records, pyramid, block):
    """Return a smaller block for a list that fills a quarter of its block, else the same."""
    count, size = np.int64(pyramid.units[block, COUNT]), np.int64(pyramid.units[block, CLASS])
    if size > 1 and 4 * (count + 1) <= (1 << size) and pyramid.units[block, SHARES] == 1 and room(pyramid, size - 1):
        return resized(records, pyramid, block, size - 1)
    return block


@njit(cache=True)
def _clean(records, pyramid, place):
    """Clean what a row leads to; return how many postings were looked at."""
    value = np.int64(pyramid.rows[place, _VALUE])
    if value >= 0:
        looked_at = np.int64(pyramid.units[value, COUNT])
        if sweep(records, pyramid, value) > 0:
            pyramid.rows[place, _VALUE] = np.int32(_shrunk(records, pyramid, value))
        else:
            owner = _take_out(pyramid, place)
            _let_go(records, pyramid, value)
            _tidy(pyramid, owner)
        return looked_at
    node = -2 - value
    block = np.int64(pyramid.node_parts[node, BLOCK])
    looked_at = np.int64(0)
    if block >= 0:
        looked_at = np.int64(pyramid.units[block, COUNT])
        if sweep(records, pyramid, block) > 0:
            pyramid.node_parts[node, BLOCK] = np.int32(_shrunk(records, pyramid, block))
        else:
            free_block(pyramid, block)
            pyramid.node_parts[node, BLOCK] = NO_BLOCK
    _tidy(pyramid, node)
    return looked_at


@njit(cache=True)
def vacuum(records, pyramid, work):
    """Clean rows in turn, until rows and postings looked at are ``work``, or nothing is dead. The more is dead, the more is looked at: up to five times."""
    work *= 1 + 4 * pyramid.counters[DEAD] // max(np.int64(1), pyramid.counters[POSTINGS])
    while work > 0 and pyramid.counters[DEAD] > 0:
        place = pyramid.counters[CURSOR]
        if pyramid.rows[place, _OWNER] > TOMB:
            work -= 1 + _clean(records, pyramid, place)
        elif place & 15 == 0:  # a free row costs next to nothing, but sixteen of them something
            work -= 1
        pyramid.counters[CURSOR] = (place + 1) & (len(pyramid.rows) - 1)
