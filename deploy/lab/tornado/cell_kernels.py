"""Kernels of indexes that file records under (cell of a grid, term): the plain table and GI2."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.boolean.program_kernels import contains
from dskype.deploy.lab.tornado.record_kernels import (
    EAST,
    NORTH,
    PLACES,
    SOUTH,
    WEST,
    covers,
    create,
    finish,
    kill,
    larger,
    meets,
    mix,
    release,
    satisfied,
    trigger_range,
)
from dskype.topology.kernel_cache import njit

__all__ = [
    "APART",
    "CURSOR",
    "DEAD",
    "EMPTY",
    "ENTRIES_USED",
    "NEED_ENTRIES",
    "NEED_ROWS",
    "NEED_WORDS",
    "NO_BLOCK",
    "POSTINGS",
    "ROWS_USED",
    "Cells",
    "cell_range",
    "find",
    "insert",
    "match",
    "misplaced",
    "rehash",
    "remove",
    "vacuum",
]

EMPTY = np.int32(-(2**31))
"""Cell of a free row."""
NO_BLOCK = -1
"""Class of a list that has no block: it is empty, or its one record stands in the row itself."""
ROWS_USED, ENTRIES_USED, POSTINGS, DEAD, CURSOR, APART = range(6)
"""Places of ``Cells.counters``."""
NEED_WORDS, NEED_ROWS, NEED_ENTRIES = 1, 2, 3
_CELL, _START, _COUNT, _CLASS = 2, 3, 4, 5
_COLUMNS, _LINES, _MOST = 0, 1, 2


class Cells(NamedTuple):
    """A grid's lists; T rows (a power of two), E places in the pool.

    grid: int64[3], columns and lines of the grid, and how many cells a subscription may be filed in; one that overlaps more is
    filed in the cell ``columns * lines``, which every message looks at. bounds: float64[4], west, south, width and height of the grid in degrees; what is
    outside belongs to the cells at its border. terms: int64[T, 3], whose first column has the terms. rows: int32[T, 6],
    the same memory, cell, start, count and class in columns 2 to 5. entries: int32[E], records; a list's block has 2^class places from
    ``start``; a list of one record without a block has the record as its ``start``. free: int64[32], first free block by class, linked by
    their first elements. counters: int64[5], rows in use (those of empty lists included), entries in use (freed blocks included), postings,
    dead ones among them, the row to vacuum next, postings in the cell of all.
    """

    grid: np.ndarray
    bounds: np.ndarray
    terms: np.ndarray
    rows: np.ndarray
    entries: np.ndarray
    free: np.ndarray
    counters: np.ndarray


@njit(cache=True)
def _line_of(value, low, extent, lines):
    """Return the column or line of a coordinate: monotone, so that a point in a rectangle is in a cell of it."""
    return np.int64(min(max(np.floor((value - low) / extent * lines), 0.0), lines - 1.0))


@njit(cache=True)
def cell_range(cells, west, south, east, north):
    """Return (column, columns, line, lines) of a rectangle; columns go on at 0 behind the last one."""
    columns, lines = cells.grid[_COLUMNS], cells.grid[_LINES]
    left, bottom, width, height = cells.bounds[0], cells.bounds[1], cells.bounds[2], cells.bounds[3]
    column, last = _line_of(west, left, width, columns), _line_of(east, left, width, columns)
    line, top = _line_of(south, bottom, height, lines), _line_of(north, bottom, height, lines)
    wide = last - column + 1 if west <= east else min(columns, columns - column + last + 1)
    return column, wide, line, max(np.int64(0), top - line + 1)


@njit(cache=True)
def find(cells, cell, term):
    """Return the row of (cell, term), or the free row where it belongs."""
    mask = len(cells.rows) - 1
    place = mix(cell, term) & mask
    while cells.rows[place, _CELL] != EMPTY and (cells.terms[place, 0] != term or cells.rows[place, _CELL] != cell):
        place = (place + 1) & mask
    return place


@njit(cache=True)
def misplaced(cells):
    """Return how many rows a search does not find; for checks."""
    count = 0
    for place in range(len(cells.rows)):
        if cells.rows[place, _CELL] != EMPTY:
            count += find(cells, np.int64(cells.rows[place, _CELL]), cells.terms[place, 0]) != place
    return count


@njit(cache=True)
def _room(cells, size):
    """Return whether a block of a class can be taken."""
    return cells.free[size] >= 0 or cells.counters[ENTRIES_USED] + (np.int64(1) << size) <= len(cells.entries)


@njit(cache=True)
def _take(cells, size):
    block = cells.free[size]
    if block >= 0:
        cells.free[size] = np.int64(cells.entries[block])
    else:
        block = cells.counters[ENTRIES_USED]
        cells.counters[ENTRIES_USED] = block + (np.int64(1) << size)
    return block


@njit(cache=True)
def _give_back(cells, block, size):
    cells.entries[block] = np.int32(cells.free[size])
    cells.free[size] = block


@njit(cache=True)
def _count(cells, row, change):
    """Count postings of a row in or out."""
    cells.counters[POSTINGS] += change
    if row[_CELL] == cells.grid[_COLUMNS] * cells.grid[_LINES]:
        cells.counters[APART] += change


@njit(cache=True)
def _file(records, cells, cell, term, record):
    """Append a record to the list of (cell, term); return (what is lacking, how much)."""
    place = find(cells, cell, term)
    row = cells.rows[place]
    if row[_CELL] == EMPTY:
        if 3 * (cells.counters[ROWS_USED] + 1) > 2 * len(cells.rows):
            return NEED_ROWS, np.int64(1)
        cells.counters[ROWS_USED] += 1
        cells.terms[place, 0] = term
        row[_CELL] = np.int32(cell)
        row[_COUNT] = 0
        row[_CLASS] = NO_BLOCK
    count = np.int64(row[_COUNT])
    size = np.int64(row[_CLASS])
    if count == 0 and size == NO_BLOCK:
        row[_START] = np.int32(record)
    else:
        if size == NO_BLOCK or count == (1 << size):
            more = max(np.int64(1), size + 1)
            if not _room(cells, more):
                return NEED_ENTRIES, np.int64(1) << more
            block = _take(cells, more)
            old = np.int64(row[_START])
            if size == NO_BLOCK:
                cells.entries[block] = np.int32(old)
            else:
                for i in range(count):
                    cells.entries[block + i] = cells.entries[old + i]
                _give_back(cells, old, size)
            row[_START] = np.int32(block)
            row[_CLASS] = np.int32(more)
        cells.entries[row[_START] + count] = np.int32(record)
    row[_COUNT] = np.int32(count + 1)
    records.words[record + PLACES] += 1
    _count(cells, row, np.int64(1))
    return 0, np.int64(0)


@njit(cache=True)
def _shrunk(cells, row, count):
    """Give a list whose count has fallen to ``count`` the block that it needs."""
    row[_COUNT] = np.int32(count)
    size = np.int64(row[_CLASS])
    if size == NO_BLOCK:
        return
    start = np.int64(row[_START])
    if count <= 1:
        row[_START] = cells.entries[start]
        row[_CLASS] = NO_BLOCK
        _give_back(cells, start, size)
    elif 4 * count <= (1 << size) and _room(cells, size - 1):
        block = _take(cells, size - 1)
        for i in range(count):
            cells.entries[block + i] = cells.entries[start + i]
        row[_START] = np.int32(block)
        row[_CLASS] = np.int32(size - 1)
        _give_back(cells, start, size)


@njit(cache=True)
def _filing(records, cells, record):
    """Return (column, columns, line, lines) of the cells that a record is filed in; lines is 0 when it is the cell of all."""
    floats = records.floats
    column, wide, line, high = cell_range(cells, floats[record + WEST], floats[record + SOUTH], floats[record + EAST], floats[record + NORTH])
    return (column, wide, line, high) if wide * high <= cells.grid[_MOST] else (column, np.int64(1), line, np.int64(0))


@njit(cache=True)
def _nth_cell(cells, column, wide, line, high, n):
    columns = cells.grid[_COLUMNS]
    if high == 0:
        return columns * cells.grid[_LINES]
    return (line + n // wide) * columns + (column + n % wide) % columns


@njit(cache=True)
def insert(records, cells, batch, progress):
    """Put subscriptions in, from where ``progress`` says; return (what is lacking, how much), (0, 0) when all are in.

    :param progress: int64[3], subscription, its posting to file next, and its record; moved on.
    """
    while progress[0] < len(batch.slots):
        i = progress[0]
        if progress[1] == 0:
            record, need = create(records, batch, i)
            if record < 0:
                return NEED_WORDS, need
            progress[1], progress[2] = 1, record
        record = progress[2]
        column, wide, line, high = _filing(records, cells, record)
        count = wide * max(np.int64(1), high)
        first, last = trigger_range(records, record)
        while progress[1] <= count * (last - first):
            n = progress[1] - 1
            what, need = _file(records, cells, _nth_cell(cells, column, wide, line, high, n % count), records.words[first + n // count], record)
            if what:
                return what, need
            progress[1] += 1
        progress[0], progress[1] = i + 1, 0
    return 0, np.int64(0)


@njit(cache=True)
def remove(records, cells, slots):
    """Take subscriptions out at once: find each posting in its list."""
    for i in range(len(slots)):
        record = kill(records, slots[i])
        column, wide, line, high = _filing(records, cells, record)
        first, last = trigger_range(records, record)
        for t in range(first, last):
            for n in range(wide * max(np.int64(1), high)):
                place = find(cells, _nth_cell(cells, column, wide, line, high, n), records.words[t])
                row = cells.rows[place]
                count = np.int64(row[_COUNT])
                if row[_CLASS] != NO_BLOCK:
                    start = np.int64(row[_START])
                    at = start
                    while cells.entries[at] != record:
                        at += 1
                    cells.entries[at] = cells.entries[start + count - 1]
                _shrunk(cells, row, count - 1)
                _count(cells, row, np.int64(-1))
        release(records, record)


@njit(cache=True)
def _sweep(records, cells, place):
    """Take dead records out of a list."""
    row = cells.rows[place]
    count = np.int64(row[_COUNT])
    kept = np.int64(0)
    start = np.int64(row[_START])
    for i in range(count):
        record = start if row[_CLASS] == NO_BLOCK else np.int64(cells.entries[start + i])
        if records.words[record] >= 0:
            if row[_CLASS] != NO_BLOCK:
                cells.entries[start + kept] = np.int32(record)
            kept += 1
        else:
            records.words[record + PLACES] -= 1
            if records.words[record + PLACES] == 0:
                release(records, record)
    if kept < count:
        _count(cells, row, kept - count)
        cells.counters[DEAD] -= count - kept
        _shrunk(cells, row, kept)


@njit(cache=True)
def vacuum(records, cells, work):
    """Sweep lists in turn, until lists and postings looked at are ``work``, or nothing is dead. The more is dead, the more is looked at: up to five times."""
    work *= 1 + 4 * cells.counters[DEAD] // max(np.int64(1), cells.counters[POSTINGS])
    while work > 0 and cells.counters[DEAD] > 0:
        place = cells.counters[CURSOR]
        if cells.rows[place, _CELL] != EMPTY and cells.rows[place, _COUNT] > 0:
            work -= 1 + np.int64(cells.rows[place, _COUNT])
            _sweep(records, cells, place)
        elif place & 15 == 0:  # a free row costs next to nothing, but sixteen of them something
            work -= 1
        cells.counters[CURSOR] = (place + 1) & (len(cells.rows) - 1)


@njit(cache=True)
def rehash(cells, terms, rows):
    """Move the lists that are not empty into larger arrays, whose cells are ``EMPTY``."""
    larger_cells = Cells(cells.grid, cells.bounds, terms, rows, cells.entries, cells.free, cells.counters)
    used = np.int64(0)
    for old in range(len(cells.rows)):
        if cells.rows[old, _CELL] != EMPTY and cells.rows[old, _COUNT] > 0:
            place = find(larger_cells, np.int64(cells.rows[old, _CELL]), cells.terms[old, 0])
            terms[place] = cells.terms[old]
            used += 1
    cells.counters[ROWS_USED] = used
    cells.counters[CURSOR] = 0


@njit(cache=True)
def _collect(records, cells, place, lon, lat, found, n):
    """Append the records of a list that contain a point to ``found``; return (how many there are, whether some record is dead)."""
    row = cells.rows[place]
    start, count = np.int64(row[_START]), np.int64(row[_COUNT])
    if row[_CLASS] == NO_BLOCK:
        if count == 0:
            return n, False
        dead = records.words[start] < 0
        found[n] = np.int32(start)
        return (n + 1 if not dead and covers(records, start, lon, lat) else n), dead
    dead = False
    for i in range(start, start + count):
        record = np.int64(cells.entries[i])
        gone = records.words[record] < 0
        dead |= gone
        found[n] = np.int32(record)  # written anyway, kept if it counts: no branch to guess
        n += np.int64(covers(records, record, lon, lat) & (not gone))
    return n, dead


@njit(cache=True)
def _search_point(records, cells, lon, lat, terms, first, last, found):
    """Collect what contains a point and has a trigger in ``terms[first:last]``; return (``found`` or a larger one, how many)."""
    all_cells = cells.grid[_COLUMNS] * cells.grid[_LINES]
    turns = 2 if cells.counters[APART] > 0 else 1
    column, _, line, _ = cell_range(cells, lon, lat, lon, lat)
    cell = line * cells.grid[_COLUMNS] + column
    hits = np.int64(0)
    for t in range(first, last):
        for turn in range(turns):
            place = find(cells, cell if turn == 0 else all_cells, terms[t])
            if cells.rows[place, _CELL] == EMPTY:
                continue
            if hits + cells.rows[place, _COUNT] >= len(found):
                found = larger(found, hits + np.int64(cells.rows[place, _COUNT]) + 1)
            hits, dead = _collect(records, cells, place, lon, lat, found, hits)
            if dead:
                _sweep(records, cells, place)
    return found, hits


@njit(cache=True)
def _collect_area(records, cells, place, area, found, n):
    """Append the records of a list that overlap an area to ``found``; return (how many there are, whether some record is dead)."""
    row = cells.rows[place]
    start, count = np.int64(row[_START]), np.int64(row[_COUNT])
    dead = False
    for i in range(count):
        record = start if row[_CLASS] == NO_BLOCK else np.int64(cells.entries[start + i])
        if records.words[record] < 0:
            dead = True
        elif meets(records, record, area):
            found[n] = np.int32(record)
            n += 1
    return n, dead


@njit(cache=True)
def _in_range(cells, cell, column, wide, line, high):
    """Tell whether a cell is one of a range's, or the cell of all."""
    columns = cells.grid[_COLUMNS]
    if cell == columns * cells.grid[_LINES]:
        return True
    return (cell % columns - column) % columns < wide and line <= cell // columns < line + high


@njit(cache=True)
def _search_area(records, cells, area, terms, first, last, found):
    """Collect what overlaps an area and has a trigger in ``terms[first:last]``; return (``found`` or a larger one, how many)."""
    column, wide, line, high = cell_range(cells, area[0], area[1], area[2], area[3])
    hits = np.int64(0)
    looked_up = (wide * high + 1) * (last - first)
    by_rows = looked_up > len(cells.rows)  # then all lists are looked through instead
    for turn in range(len(cells.rows) if by_rows else looked_up):
        if by_rows:
            place = np.int64(turn)
            cell = np.int64(cells.rows[place, _CELL])
            if cell == EMPTY or not _in_range(cells, cell, column, wide, line, high) or not contains(terms, first, last, cells.terms[place, 0]):
                continue
        else:
            t, c = turn // (wide * high + 1), turn % (wide * high + 1)
            cell = cells.grid[_COLUMNS] * cells.grid[_LINES] if c == wide * high else _nth_cell(cells, column, wide, line, high, c)
            place = find(cells, cell, terms[first + t])
            if cells.rows[place, _CELL] == EMPTY:
                continue
        if hits + cells.rows[place, _COUNT] >= len(found):
            found = larger(found, hits + np.int64(cells.rows[place, _COUNT]) + 1)
        hits, dead = _collect_area(records, cells, place, area, found, hits)
        if dead:
            _sweep(records, cells, place)
    return found, hits


@njit(cache=True)
def match(records, cells, rectangles, points, offsets, terms):
    """Return (message int32[], slot int32[]) of all matches, sorted by message, then slot.

    :param rectangles: float64[n, 4], of the messages.
    :param points: bool, whether all of them are points.
    """
    out_message, out_slot = np.empty(1024, np.int32), np.empty(1024, np.int32)
    found, scratch = np.empty(1024, np.int32), np.empty(1024, np.int32)
    n = np.int64(0)
    for m in range(len(rectangles)):
        first, last = offsets[m], offsets[m + 1]
        if points:
            found, hits = _search_point(records, cells, rectangles[m, 0], rectangles[m, 1], terms, first, last, found)
        else:
            found, hits = _search_area(records, cells, rectangles[m], terms, first, last, found)
        if n + hits > len(out_slot):
            out_message, out_slot = larger(out_message, n + hits), larger(out_slot, n + hits)
        if hits > len(scratch):
            scratch = np.empty(2 * hits, np.int32)
        begin = n
        for h in range(hits):
            if satisfied(records, np.int64(found[h]), terms, first, last):
                out_slot[n] = np.int32(records.words[found[h]] >> 32)
                n += 1
        n = finish(out_slot, begin, n, scratch)
        out_message[begin:n] = m
    return out_message[:n].copy(), out_slot[:n].copy()
