"""Kernels that search FAST: the cells of a message from the world down, their lists and tries, and the postings in them."""

from __future__ import annotations

import numpy as np

from dskype.deploy.lab.tornado.fast_kernels import (
    BELOW,
    BLOCK,
    CELLS,
    CHILDREN,
    COUNT,
    DEAD,
    EMPTY,
    LEVELS,
    MASK,
    RECORD,
    SIGNATURE,
    SLOT,
    bit_of,
    child_of,
    column_of,
    find,
    in_columns,
    level_of,
    line_of,
    sweep,
)
from dskype.deploy.lab.tornado.record_kernels import covers, finish, larger, meets, satisfied, slot_of
from dskype.topology.kernel_cache import njit

__all__ = ["match"]

_OWNER, _VALUE = 2, 3


@njit(cache=True)
def _blocks_of_cell(pyramid, cell, terms, first, last, blocks, n, stack):
    """Append the lists of a cell that a message's terms lead to; return (``blocks`` or a larger one, how many, ``stack`` or a larger one).

    :param blocks: int32[], blocks. stack: int64[2 * k], trie nodes yet to be searched, each with the place behind its term in ``terms``.
    """
    top = np.int64(0)
    node, begin = cell, first
    while True:
        own = np.int64(pyramid.node_parts[node, BLOCK])
        room = last - begin + 1
        if n + room > len(blocks):
            blocks = larger(blocks, n + room)
        if top + 2 * room > len(stack):
            stack = larger(stack, top + 2 * room)
        if own >= 0:
            blocks[n] = np.int32(own)
            n += 1
        if pyramid.node_parts[node, CHILDREN] > 0:
            signature = pyramid.nodes[node, 0]
            for t in range(begin, last):
                if signature & bit_of(terms[t]) == 0:
                    continue
                place = find(pyramid, node, terms[t])
                if pyramid.rows[place, _OWNER] == EMPTY:
                    continue
                value = np.int64(pyramid.rows[place, _VALUE])
                if value >= 0:
                    blocks[n] = np.int32(value)
                    n += 1
                else:
                    stack[top], stack[top + 1] = -2 - value, t + 1
                    top += 2
        if top == 0:
            return blocks, n, stack
        top -= 2
        node, begin = stack[top], stack[top + 1]


@njit(cache=True)
def _cell_at(pyramid, node, quadrant):
    """Return the node of the cell in a quadrant, which exists."""
    place = find(pyramid, np.int64(CELLS), child_of(pyramid.nodes[node, 1], quadrant))
    return np.int64(-2) - pyramid.rows[place, _VALUE]


@njit(cache=True)
def _blocks_of_point(pyramid, lon, lat, terms, first, last, blocks, stack):
    """Collect the lists of all cells around a point, from the world down; return (``blocks``, how many, ``stack``)."""
    column, line = column_of(pyramid, lon), line_of(pyramid, lat)
    node, shift = np.int64(0), pyramid.shape[LEVELS] - 1
    blocks, n, stack = _blocks_of_cell(pyramid, node, terms, first, last, blocks, np.int64(0), stack)
    while shift > 0:
        shift -= 1
        quadrant = (column >> shift) & 1 | ((line >> shift) & 1) << 1
        if (pyramid.node_parts[node, MASK] >> quadrant) & 1 == 0:
            break
        node = _cell_at(pyramid, node, quadrant)
        blocks, n, stack = _blocks_of_cell(pyramid, node, terms, first, last, blocks, n, stack)
    return blocks, n, stack


@njit(cache=True)
def _passing(pyramid, block, area, absent, found):
    """Put those postings of a list into ``found`` whose float32 rectangle may overlap an area and whose signature may be satisfied.

    :param area: float32[4], not a number where there is no bound. absent: the bits of no term of the message.
    :returns: how many.
    """
    boxes, signatures = pyramid.boxes, pyramid.signatures
    west, south, east, north = area[0], area[1], area[2], area[3]
    n = np.int64(0)
    for at in range(block + 1, block + 1 + np.int64(pyramid.units[block, COUNT])):
        found[n] = np.int32(at)  # written anyway, kept if it counts: no branch to guess
        apart = (boxes[at, 0] > east) | (boxes[at, 2] < west) | (boxes[at, 1] > north) | (boxes[at, 3] < south)
        n += np.int64((not apart) & (signatures[at, SIGNATURE] & absent == 0))
    return n


@njit(cache=True)
def _surely_inside(pyramid, at, area):
    """Tell whether float32 suffices: rounding keeps the order, so what is apart after it was so before."""
    boxes = pyramid.boxes
    return (boxes[at, 0] < area[2]) & (boxes[at, 2] > area[0]) & (boxes[at, 1] < area[3]) & (boxes[at, 3] > area[1])


@njit(cache=True)
def _absent(terms, first, last):
    """Return the bits that no term of a message has."""
    present = np.int64(0)
    for t in range(first, last):
        present |= bit_of(terms[t])
    return ~present


@njit(cache=True)
def _take(records, pyramid, found, hits, exact, area, terms, first, last, out_slot):
    """Write the slots of those among ``found`` that match to ``out_slot``; return (how many, whether some posting is dead).

    :param exact: float64[4], the message's rectangle. area: the same in float32.
    """
    n = np.int64(0)
    dead = False
    any_dead = pyramid.counters[DEAD] > 0
    for i in range(hits):
        at = np.int64(found[i])
        record = np.int64(pyramid.units[at, RECORD])
        if any_dead and slot_of(records, record) < 0:
            dead = True
            continue
        if not _surely_inside(pyramid, at, area):
            if exact[0] == exact[2] and exact[1] == exact[3]:
                if not covers(records, record, exact[0], exact[1]):
                    continue
            elif not meets(records, record, exact):
                continue
        if pyramid.signatures[at, SIGNATURE] != 0 and not satisfied(records, record, terms, first, last):
            continue
        out_slot[n] = pyramid.units[at, SLOT]
        n += 1
    return n, dead


@njit(cache=True)
def _scan(records, pyramid, blocks, count, exact, terms, first, last, out_slot):
    """Search lists; return (``out_slot`` or a larger one, how many slots are in it)."""
    area = np.empty(4, np.float32)
    for j in range(4):
        area[j] = np.float32(exact[j])
    if exact[0] > exact[2]:  # across the antimeridian: the exact test decides about longitudes
        area[0] = area[2] = np.float32(np.nan)
    absent = _absent(terms, first, last)
    found = np.empty(1024, np.int32)
    n = np.int64(0)
    for b in range(count):
        block = np.int64(blocks[b])
        size = np.int64(pyramid.units[block, COUNT])
        if size >= len(found):
            found = np.empty(2 * size, np.int32)
        hits = _passing(pyramid, block, area, absent, found)
        if hits == 0:
            continue
        if n + hits > len(out_slot):
            out_slot = larger(out_slot, n + hits)
        more, dead = _take(records, pyramid, found, hits, exact, area, terms, first, last, out_slot[n:])
        n += more
        if dead:
            sweep(records, pyramid, block)
    return out_slot, n


@njit(cache=True)
def _blocks_of_area(pyramid, area, terms, first, last, blocks, stack, cells):
    """Collect the lists of all cells that an area reaches into; return (``blocks``, how many, ``stack``, ``cells`` or a larger one).

    :param cells: int64[], nodes of cells yet to be searched.
    """
    deepest = pyramid.shape[LEVELS] - 1
    west, east, south, north = column_of(pyramid, area[0]), column_of(pyramid, area[2]), line_of(pyramid, area[1]), line_of(pyramid, area[3])
    crosses = area[0] > area[2]
    cells[0] = 0
    top, n = 1, np.int64(0)
    while top > 0:
        top -= 1
        node = cells[top]
        blocks, n, stack = _blocks_of_cell(pyramid, node, terms, first, last, blocks, n, stack)
        if top + 4 > len(cells):
            cells = larger(cells, top + 4)
        for quadrant in range(4):
            if (pyramid.node_parts[node, MASK] & BELOW) >> quadrant & 1:
                cell = child_of(pyramid.nodes[node, 1], np.int64(quadrant))
                shift = deepest - level_of(cell)
                line = (cell >> 24) & 0xFFFFFF
                if south >> shift <= line <= north >> shift and in_columns(cell & 0xFFFFFF, west >> shift, east >> shift, crosses):
                    cells[top] = _cell_at(pyramid, node, np.int64(quadrant))
                    top += 1
    return blocks, n, stack, cells


@njit(cache=True)
def match(records, pyramid, rectangles, points, offsets, terms):
    """Return (message int32[], slot int32[]) of all matches, sorted by message, then slot.

    :param rectangles: float64[n, 4], of the messages.
    :param points: bool, whether all of them are points.
    """
    out_message, out_slot = np.empty(1024, np.int32), np.empty(1024, np.int32)
    slots, scratch = np.empty(1024, np.int32), np.empty(1024, np.int32)
    blocks, stack, cells = np.empty(256, np.int32), np.empty(256, np.int64), np.empty(256, np.int64)
    n = np.int64(0)
    for m in range(len(rectangles)):
        first, last = offsets[m], offsets[m + 1]
        if points:
            blocks, count, stack = _blocks_of_point(pyramid, rectangles[m, 0], rectangles[m, 1], terms, first, last, blocks, stack)
        else:
            blocks, count, stack, cells = _blocks_of_area(pyramid, rectangles[m], terms, first, last, blocks, stack, cells)
        slots, hits = _scan(records, pyramid, blocks, count, rectangles[m], terms, first, last, slots)
        if n + hits > len(out_slot):
            out_message, out_slot = larger(out_message, n + hits), larger(out_slot, n + hits)
        if hits > len(scratch):
            scratch = np.empty(2 * hits, np.int32)
        hits = finish(slots, np.int64(0), hits, scratch)
        out_slot[n : n + hits] = slots[:hits]
        out_message[n : n + hits] = m
        n += hits
    return out_message[:n].copy(), out_slot[:n].copy()
