"""Kernels that find the subscriptions of messages. Imports numpy and numba only.

A chunk of messages goes through one step after the other: terms to lists, nodes to groups, groups to blocks, blocks to slots.
Each step asks the memory for what the next one reads. What a step finds is in order of messages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.core import types

from dskype.bolts.boolean.lanes._kernels import (
    ALL_CODES,
    ALL_TERMS,
    ANY_TERM,
    BLOCK,
    BLOCKS,
    BOUNDS,
    CHILD,
    CODE,
    FLAG,
    GROUP,
    LANES,
    RECORD_CODE,
    RECORD_SLOT,
    RECORDS,
    SCALE_X,
    SCALE_Y,
    SLOT,
    TREE,
    X0,
    Y0,
    opened,
    program_head,
    program_of,
)
from dskype.bolts.boolean.lanes.address_kernels import Field, opener
from dskype.bolts.boolean.lanes.group_kernels import step_of
from dskype.bolts.boolean.lanes.sort_kernels import sort_slots
from dskype.bolts.boolean.lanes.table_kernels import EMPTY, hashed, home
from dskype.bolts.boolean.lanes.vector_kernels import among, bits, covered, covered_floats, fetch, fill, flagged, lowest, pack, pack_places, wanted_bits
from dskype.bolts.boolean.program_kernels import contains, follow_jumps, overlaps
from dskype.topology.kernel_cache import njit

MESSAGES = 64
"""Most messages of a chunk."""
AHEAD = 16
"""How many groups or blocks the memory is asked for before they are looked at."""
COMPARED = 24
"""Codes of a message up to which a block is compared with each; more are looked up in a bitmap."""


class Found(NamedTuple):
    """What is matched, what was found, and scratch; all is kept between calls.

    :ivar slots: int32[], of all matches.
    :ivar rows: int32[], their messages.
    :ivar items: int32[8, m]: scratch of the steps, see :func:`_match_chunk`.
    :ivar wide: int64[2, m]: rows of the term table, then the edges of a message in each group; the codes of all messages of a chunk.
    :ivar bitmap: int32[2048], of the codes of one message; all 0 between messages.
    :ivar stack: int64[40, 4], for sorting.
    :ivar ends: int64[3, 65], see :class:`Ends`.
    :ivar lon: float64[n], :ivar lat: float64[n], :ivar offsets: int64[n + 1], of points; areas are given by the next three.
    :ivar box: float64[n, 4]: west, south, east, north of each message. An area that crosses the antimeridian is two, one after the other.
    :ivar spans: int64[n, 2], where the terms of each begin and end.
    :ivar row: int64[n], the message of the batch.
    :ivar terms: int64[], of all messages.
    :ivar progress: int64[3]: how many messages are done, where the slots of the last of them begin, where they end.
    """

    slots: np.ndarray
    rows: np.ndarray
    items: np.ndarray
    wide: np.ndarray
    bitmap: np.ndarray
    stack: np.ndarray
    ends: np.ndarray
    lon: np.ndarray
    lat: np.ndarray
    offsets: np.ndarray
    box: np.ndarray
    spans: np.ndarray
    row: np.ndarray
    terms: np.ndarray
    progress: np.ndarray


_FIELDS = {
    "slots": Field(0, types.int32, flat=True),
    "rows": Field(1, types.int32, flat=True),
    "items": Field(2, types.int32, 0),
    "wide": Field(3, types.int64, 0),
    "bitmap": Field(4, types.int32, flat=True),
    "stack": Field(5, types.int64, 4),
    "ends": Field(6, types.int64, MESSAGES + 1),
    "lon": Field(7, types.float64, flat=True),
    "lat": Field(8, types.float64, flat=True),
    "offsets": Field(9, types.int64, flat=True),
    "box": Field(10, types.float64, 4),
    "spans": Field(11, types.int64, 2),
    "row": Field(12, types.int64, flat=True),
    "terms": Field(13, types.int64, flat=True),
    "progress": Field(14, types.int64, flat=True),
}

opened_found = opener("Found", _FIELDS)
"""Returns a :class:`Found`, given its handle."""


def new_found(items, slots, messages, terms):
    """Return room for so much scratch, so many matches, and so many messages and terms."""
    return Found(
        np.zeros(slots, np.int32), np.zeros(slots, np.int32), np.zeros((8, items), np.int32), np.zeros((2, items), np.int64), np.zeros(2048, np.int32),
        np.zeros((40, 4), np.int64), np.zeros((3, MESSAGES + 1), np.int64), np.zeros(messages), np.zeros(messages), np.zeros(messages + 1, np.int64),
        np.zeros((messages, 4)), np.zeros((messages, 2), np.int64), np.zeros(messages, np.int64), np.zeros(terms, np.int64),
        np.zeros(3, np.int64),
    )  # fmt: skip


class Ends(NamedTuple):
    """Where what was found for each message of a chunk ends.

    :ivar codes: int64[65], in ``Found.codes``, and of how many are real; padded to a multiple of four.
    :ivar records: int64[65], :ivar blocks: int64[65].
    """

    codes: np.ndarray
    records: np.ndarray
    blocks: np.ndarray


@njit(cache=True)
def _look_up(index, terms, low, high, found, ends):
    """Find the lists and codes of the terms of messages.

    Writes runs of records to items 0 and 1 (first, number), and groups and ~nodes to items 2, their message to 3.

    :returns: (number of runs, of groups and nodes, of records, most records of a message); -1 for the first if there is too little room.
    """
    state, table, rows, codes, spans = index.state, index.terms.table, found.wide[0], found.wide[1], found.spans
    room = found.items.shape[1] - LANES
    run_first, run_size, lists, list_message = found.items[0], found.items[1], found.items[2], found.items[3]
    n = np.int64(0)
    for m in range(low, high):
        first, last = spans[m, 0], spans[m, 1]
        if n + last - first + 8 * MESSAGES > room:
            return np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
        for t in range(first, last):
            start, mask, at = home(state, hashed(terms[t]))
            fetch(table, 2 * (start + at))
            rows[n] = start + at
            n += 1
    n, n_runs, n_lists, n_records, n_codes, most = np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for m in range(low, high):
        before = n_records
        codes[n_codes] = 0
        n_codes += 1
        for t in range(spans[m, 0], spans[m, 1]):
            term, row = terms[t], rows[n]
            n += 1
            key = table[row, 0]
            if key != term and key != EMPTY:
                start, mask, at = home(state, hashed(term))
                while key != term and key != EMPTY:
                    at = (at + 1) & mask
                    row = start + at
                    key = table[row, 0]
            if key != term:
                continue
            word = table[row, 1]
            code, kind, where = word & 0xFFFF, (word >> 16) & 7, word >> 32
            codes[n_codes] = code
            n_codes += code != 0
            if kind == RECORDS:
                size = (word >> 20) & 31
                run_first[n_runs], run_size[n_runs] = where, size
                n_runs += 1
                n_records += size
                fetch(index.record, 8 * where)
                fetch(index.record, 8 * where + 16)
            elif kind == GROUP:
                lists[n_lists], list_message[n_lists] = where, m
                n_lists += 1
            elif kind == TREE:
                lists[n_lists], list_message[n_lists] = ~where, m
                n_lists += 1
                _fetch_node(index, where)
        while n_codes & 3:
            codes[n_codes] = 0
            n_codes += 1
        most = max(most, n_records - before)
        ends.codes[m - low + 1], ends.records[m - low + 1] = n_codes, n_runs
    return n_runs, n_lists, n_records, most


@njit(cache=True, inline="always")
def _fetch_group(index, g):
    fetch(index.group, 24 * g)
    fetch(index.group, 24 * g + 8)
    fetch(index.group, 24 * g + 16)


@njit(cache=True, inline="always")
def _fetch_block(block, b):
    for line in range(5):
        fetch(block, 160 * b + 32 * line)


@njit(cache=True, inline="always")
def _fetch_node(index, node):
    for line in range(5):
        fetch(index.node, 96 * node + 16 * line)


@njit(cache=True)
def _open_nodes(index, n, found):
    """Replace the nodes among ``n`` groups and ~nodes by their children that overlap, until only groups are left.

    Reads items 2 and 3 (message), and uses 4 and 5.

    :returns: (number of groups, row of ``items`` where they are); -1 if there is too little room.
    """
    items, box, room = found.items, found.box, found.items.shape[1] - 2 * LANES
    source = 2
    while True:
        target, out, nodes = 6 - source, np.int64(0), np.int64(0)
        some, some_message, more, more_message = items[source], items[source + 1], items[target], items[target + 1]
        for i in range(n):
            child, m = np.int64(some[i]), np.int64(some_message[i])
            if out > room:
                return np.int64(-1), source
            if child >= 0:
                more[out], more_message[out] = child, m
                out += 1
                continue
            node = ~child
            x_low, y_low, x_high, y_high = np.float32(box[m, 0]), np.float32(box[m, 1]), np.float32(box[m, 2]), np.float32(box[m, 3])
            mask = covered_floats(index.node, 96 * node, x_low, y_low, x_high, y_high)
            pack(index.node_i4, 96 * node + CHILD, mask, more, out)
            fill(more_message, out, m)
            end = out + bits(mask)
            for k in range(out, end):
                child = np.int64(more[k])
                if child < 0:
                    _fetch_node(index, ~child)
                    nodes += 1
            out = end
        n, source = out, target
        if nodes == 0:
            return n, source


@njit(cache=True)
def _open_groups(index, n, groups, found, ends, low):
    """Find the blocks of ``n`` groups that overlap: write them to items 6, and the group of each in order to 7.

    Writes the edges of a message in the frame of each group to ``wide`` 0.

    :param groups: row of ``items`` where they are; the next one has their messages.
    :returns: number of blocks; -1 if there is too little room.
    """
    box, edges, room = found.box, found.wide[0], found.items.shape[1] - 2 * LANES
    some, some_message, blocks, block_group = found.items[groups], found.items[groups + 1], found.items[6], found.items[7]
    out, done = np.int64(0), np.int64(0)
    for i in range(min(n, AHEAD)):
        _fetch_group(index, np.int64(some[i]))
    for i in range(n):
        if i + AHEAD < n:
            _fetch_group(index, np.int64(some[i + AHEAD]))
        g, m = np.int64(some[i]), np.int64(some_message[i])
        while done < m - low:
            done += 1
            ends.blocks[done] = out
        x0, y0, scale_x, scale_y = index.group_f8[g, X0], index.group_f8[g, Y0], index.group_f8[g, SCALE_X], index.group_f8[g, SCALE_Y]
        x_low, y_low = step_of(box[m, 0], x0, scale_x), step_of(box[m, 1], y0, scale_y)
        x_high, y_high = x_low, y_low
        if box[m, 0] != box[m, 2] or box[m, 1] != box[m, 3]:
            x_high, y_high = step_of(box[m, 2], x0, scale_x), step_of(box[m, 3], y0, scale_y)
        mask = covered(index.group_u2, 96 * g + BOUNDS, x_low, y_low, x_high, y_high) & 0xFFFF & ((1 << np.int64(index.group_i4[g, BLOCKS])) - 1)
        edges[i] = x_low | y_low << 16 | x_high << 32 | y_high << 48
        if out > room:
            return np.int64(-1)
        pack_places(np.int64(index.group_i4[g, BLOCK]), mask, blocks, out)
        fill(block_group, out, i)
        out += bits(mask)
    for k in range(AHEAD):  # what is asked for behind the last
        blocks[out + k] = 0
    while done < ends.blocks.shape[0] - 1:
        done += 1
        ends.blocks[done] = out
    return out


# -- what passes ------------------------------------------------------------------------------------


@njit(cache=True)
def _satisfied(index, slot, terms, first, last, bitmap):
    """Evaluate the program of a slot over ``terms[first:last]``, one of which is a trigger."""
    kind, _, length, body = program_head(index, program_of(index, slot))
    if kind == ALL_CODES:
        for k in range(length):
            code = np.int64(index.program_u2[body + k])
            if not bitmap[code >> 5] >> (code & 31) & 1:
                return False
        return True
    if kind == ALL_TERMS:
        for k in range(1, length):
            if not contains(terms, first, last, index.program[body + k]):
                return False
        return True
    if kind == ANY_TERM:
        return True
    return follow_jumps(index.program, body + 1 + index.program[body], body + length, terms, first, last)


@njit(cache=True)
def _scan_blocks(block, block_i4, found, low, high, first_code, last_code, n):
    """Append the slots of the blocks ``low..high - 1`` of one message that match for sure; return (where they end, how many are doubtful).

    Doubtful ones, whose rectangle touches with an edge or that have a program, go to items 4 (slot with flag) and 5 (1: it touches).
    """
    edges, codes, bitmap, slots = found.wide[0], found.wide[1], found.bitmap, found.slots
    doubt, touch, blocks, block_group = found.items[4], found.items[5], found.items[6], found.items[7]
    many, doubtful = last_code - first_code > COMPARED, np.int64(0)
    for i in range(low, high):
        _fetch_block(block, np.int64(blocks[i + AHEAD]))
        b, edge = np.int64(blocks[i]), edges[block_group[i]]
        hits = covered(block, 160 * b, edge & 0xFFFF, (edge >> 16) & 0xFFFF, (edge >> 32) & 0xFFFF, (edge >> 48) & 0xFFFF)
        mask = hits & 0xFFFF
        if mask == 0:
            continue
        mask = wanted_bits(block, 160 * b + CODE, bitmap, mask) if many else mask & among(block, 160 * b + CODE, codes, first_code, last_code)
        marked = flagged(block_i4, 80 * b + SLOT)
        unsure = mask & (marked | ~(hits >> 16))
        sure = mask ^ unsure
        pack(block_i4, 80 * b + SLOT, sure, slots, n)
        n += bits(sure)
        while unsure:
            j = lowest(unsure)
            doubt[doubtful], touch[doubtful] = block_i4[b, SLOT + j], 1 - (hits >> 16 >> j & 1)
            doubtful += 1
            unsure &= unsure - 1
    return n, doubtful


@njit(cache=True)
def _scan_records(record, found, low, high, box, n, doubtful):
    """Append the slots of the runs of records ``low..high - 1`` of one message as :func:`_scan_blocks` does."""
    run_first, run_size, doubt, touch, bitmap, slots = found.items[0], found.items[1], found.items[4], found.items[5], found.bitmap, found.slots
    x_low, y_low, x_high, y_high = np.float32(box[0]), np.float32(box[1]), np.float32(box[2]), np.float32(box[3])
    codes, ids = record.view(np.uint16), record.view(np.int32)
    for i in range(low, high):
        for r in range(np.int64(run_first[i]), np.int64(run_first[i]) + run_size[i]):
            west, south, east, north = record[r, 0], record[r, 1], record[r, 2], record[r, 3]
            if not ((west <= x_high) & (x_low <= east) & (south <= y_high) & (y_low <= north)):
                continue
            wanted = np.int64(1)
            for e in range(4):
                code = np.int64(codes[r, RECORD_CODE + e])
                wanted &= np.int64(bitmap[code >> 5]) >> (code & 31)
            if not wanted & 1:
                continue
            mark = ids[r, RECORD_SLOT]
            touches = not ((west < x_high) & (x_low < east) & (south < y_high) & (y_low < north))
            if mark >= 0 and not touches:
                slots[n] = mark
                n += 1
            else:
                doubt[doubtful], touch[doubtful] = mark, touches
                doubtful += 1
    return n, doubtful


@njit(cache=True)
def _decide(index, terms, m, found, doubtful, n):
    """Append those doubtful slots that match; return (where they end, whether there may be doubles)."""
    doubt, touch, doubles, box = found.items[4], found.items[5], False, found.box[m]
    for i in range(doubtful):
        mark = np.int64(doubt[i])
        slot = mark if mark >= 0 else mark - FLAG
        if touch[i] and not overlaps(index.boxes[slot], box[0], box[1], box[2], box[3]):
            continue
        if mark < 0:
            doubles = True
            if not _satisfied(index, slot, terms, found.spans[m, 0], found.spans[m, 1], found.bitmap):
                continue
        found.slots[n] = slot
        n += 1
    return n, doubles


@njit(cache=True)
def _unique(values, low, high):
    """Take doubles out of rising values; return where they end."""
    n = low
    for i in range(low, high):
        if i == low or values[i] != values[n - 1]:
            values[n] = values[i]
            n += 1
    return n


@njit(cache=True)
def _set_bits(codes, bitmap, first, last, on):
    """Set or clear the bits of codes."""
    for c in range(first, last):
        code = codes[c]
        if on:
            bitmap[code >> 5] |= np.int32(np.uint32(1 << (code & 31)))
        else:
            bitmap[code >> 5] = 0


@njit(cache=True)
def _match_chunk(index, terms, low, high, found, ends, begin):
    """Match the messages ``low..high - 1``; return where their slots end, or -1: too little room, -2: in ``slots``.

    :param begin: int64[1], where the slots of the message before begin, as it may be the other half of the same area.
    """
    n_runs, n_lists, n_records, most_records = _look_up(index, terms, low, high, found, ends)
    if n_runs < 0:
        return np.int64(-1)
    n_groups, groups = _open_nodes(index, n_lists, found)
    if n_groups < 0:
        return np.int64(-1)
    n_blocks = _open_groups(index, n_groups, groups, found, ends, low)
    n, largest = begin[1], np.int64(index.boxes.shape[0])
    if n_blocks < 0:
        return np.int64(-1)
    most = np.int64(0)
    for k in range(high - low):
        most = max(most, ends.blocks[k + 1] - ends.blocks[k])
    if 2 * (LANES * most + most_records + LANES) > found.items.shape[1]:  # two halves of an area are sorted together
        return np.int64(-1)
    if n + LANES * (n_blocks + 1) + n_records > found.slots.shape[0]:
        return np.int64(-2)
    codes, stack, slots, rows, room = found.wide[1], found.stack, found.slots, found.rows, found.items.shape[1]
    spare = found.items.reshape(-1)[2 * room : 6 * room]  # what was groups, nodes and doubts
    for k in range(min(n_blocks, AHEAD)):
        _fetch_block(index.block, np.int64(found.items[6, k]))
    for k in range(high - low):
        m = low + k
        row = found.row[m]
        halved = m > 0 and row == found.row[m - 1]
        if not halved:
            begin[0] = n
        first, last = ends.codes[k], ends.codes[k + 1]
        _set_bits(codes, found.bitmap, first, last, True)
        n, doubtful = _scan_blocks(index.block, index.block_i4, found, ends.blocks[k], ends.blocks[k + 1], first, last, n)
        n, doubtful = _scan_records(index.record, found, ends.records[k], ends.records[k + 1], found.box[m], n, doubtful)
        doubles = halved
        if doubtful:
            n, several = _decide(index, terms, m, found, doubtful, n)
            doubles |= several
        _set_bits(codes, found.bitmap, first, last, False)
        if n - begin[0] > 1:
            sort_slots(slots, begin[0], n, largest, spare, stack)
            if doubles:
                n = _unique(slots, begin[0], n)
        for i in range(begin[0], n, LANES):
            fill(rows, i, row)
    return n


@njit(cache=True)
def _take_points(found, n):
    """Let ``n`` points be what is matched."""
    first = found.offsets[0]
    for m in range(n):
        found.box[m, 0] = found.box[m, 2] = found.lon[m]
        found.box[m, 1] = found.box[m, 3] = found.lat[m]
        found.spans[m, 0], found.spans[m, 1], found.row[m] = found.offsets[m] - first, found.offsets[m + 1] - first, m


@njit(cache=True)
def match(handle, scratch, n, points, begins, lon, lat, n_terms):
    """Match messages; return how many matches there are, or what is lacking: -1 room for the steps, -2 for slots.

    :param handle: of the index.
    :param scratch: handle of a :class:`Found`, which has the messages.
    :param n: how many messages there are.
    :param points: whether they are points.
    :param begins: False: there was too little room; go on.
    :param lon: of a single point; of several, it is in ``Found``. Likewise ``lat`` and ``n_terms``, how many terms it has.
    """
    index, found = opened(handle), opened_found(scratch)
    terms, progress = found.terms, found.progress
    if begins:
        progress[0] = progress[1] = progress[2] = 0
        if points and n == 1:
            found.box[0, 0] = found.box[0, 2] = lon
            found.box[0, 1] = found.box[0, 3] = lat
            found.spans[0, 0], found.spans[0, 1], found.row[0] = 0, n_terms, 0
        elif points:
            _take_points(found, n)
    ends = Ends(found.ends[0], found.ends[1], found.ends[2])
    ends.codes[0] = ends.records[0] = ends.blocks[0] = 0
    low, size = progress[0], np.int64(MESSAGES)
    while low < n:
        high = min(low + size, n)
        end = _match_chunk(index, terms, low, high, found, ends, progress[1:])
        if end == -1 and high - low > 1:
            size = (high - low) // 2
            continue
        if end < 0:
            return end
        low = high
        progress[0], progress[2] = low, end
    return progress[2]
