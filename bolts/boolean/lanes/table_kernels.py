"""Kernels of the term table, and of the codes of terms. Imports numpy and numba only.

The table has 256 partitions, each a run of rows with open addressing; one that is full moves to a longer run by itself, so that
no call ever moves all terms. A row is int64[2]: the term, and ``code | kind << 16 | wanted << 19 | records << 20 | where << 32``.
"""

from __future__ import annotations

import numpy as np

from dskype.bolts.boolean.lanes._kernels import CODES_END, CODES_MOST, FREE_CODE, FREE_CODES, FREE_TABLE, NONE, PARTITION, PARTITIONS, TABLE_END
from dskype.topology.kernel_cache import njit

EMPTY = np.int64(-(2**63))
"""Term of a free row; no word has it."""
_LEAST = 3  # log2 of the rows of an empty partition
_WANTED = np.int64(1 << 19)  # set while a partition moves: the row stays, though it has neither a code nor a list yet
_IN_USE = np.int64(0xFFFFF)  # code, kind, wanted
RUNS = 32
"""Lengths of runs of rows: powers of two below ``2**RUNS``."""


@njit(cache=True, inline="always")
def hashed(term):
    """Return 32 bits of a term; three products that cannot overflow: the same with and without compilation."""
    mixed = (term & 0xFFFFFF) * 0x9E3779B1 + ((term >> 24) & 0xFFFFFF) * 0x85EBCA77 + ((term >> 48) & 0xFFFF) * 0xC2B2AE3D
    return (mixed ^ (mixed >> 15) ^ (mixed >> 31)) & 0xFFFFFFFF


@njit(cache=True, inline="always")
def home(state, code):
    """Return (first row of the partition, its rows less one, row at which to begin) for 32 bits of a term."""
    at = PARTITION + 2 * (code & (PARTITIONS - 1))
    mask = (np.int64(1) << (state[at + 1] >> 32)) - 1
    return state[at], mask, (code >> 8) & mask


@njit(cache=True)
def find(terms, term):
    """Return the row of a term, or -1.

    :param terms: :class:`~dskype.bolts.boolean.lanes._kernels.Terms`, here and below.
    """
    start, mask, at = home(terms.state, hashed(term))
    table = terms.table
    while True:
        key = table[start + at, 0]
        if key == term:
            return start + at
        if key == EMPTY:
            return np.int64(-1)
        at = (at + 1) & mask


@njit(cache=True)
def find_records(terms, code, record):
    """Return the row whose list holds a record.

    :param code: 32 bits of its term.
    """
    start, mask, at = home(terms.state, code)
    table = terms.table
    while True:
        word = table[start + at, 1]
        if (word >> 16) & 7 == 1 and word >> 32 <= record < (word >> 32) + ((word >> 20) & 31) and table[start + at, 0] != EMPTY:
            return start + at
        at = (at + 1) & mask


@njit(cache=True)
def packed(code, kind, records, where):
    """Return the second number of a row."""
    return code | (kind << 16) | (records << 20) | (where << 32)


@njit(cache=True)
def kind_of(word):
    """Return the kind of list that a row has."""
    return (word >> 16) & 7


@njit(cache=True)
def set_list(terms, row, kind, records, where):
    """Let a row have another list."""
    terms.table[row, 1] = packed(terms.table[row, 1] & 0xFFFF, np.int64(kind), np.int64(records), np.int64(where))


@njit(cache=True)
def open_table(terms):
    """Make empty partitions."""
    size = np.int64(1) << _LEAST
    for p in range(PARTITIONS):
        start = terms.state[TABLE_END]
        terms.state[TABLE_END] = start + size
        terms.state[PARTITION + 2 * p], terms.state[PARTITION + 2 * p + 1] = start, np.int64(_LEAST) << 32
        for row in range(start, start + size):
            terms.table[row, 0] = EMPTY


@njit(cache=True)
def row_of(terms, term, wanted, first, last):
    """Return the row of a term, a new one if need be; -1 if there is no room for a longer partition.

    A longer partition leaves terms out that nobody needs, but not those in ``wanted[first:last]``: their rows may be new.
    """
    row = find(terms, term)
    if row >= 0:
        return row
    code = hashed(term)
    at = PARTITION + 2 * (code & (PARTITIONS - 1))
    state, table = terms.state, terms.table
    size, used = np.int64(1) << (state[at + 1] >> 32), state[at + 1] & 0xFFFFFFFF
    if 4 * (used + 1) > 3 * size:
        _want(terms, wanted, first, last, True)
        moved = _move_partition(terms, at)
        _want(terms, wanted, first, last, False)
        if not moved:
            return np.int64(-1)
    start, mask, place = home(state, code)
    while table[start + place, 0] != EMPTY:
        place = (place + 1) & mask
    table[start + place, 0], table[start + place, 1] = term, 0
    state[at + 1] += 1
    return start + place


@njit(cache=True)
def _want(terms, wanted, first, last, on):
    """Mark the rows of those terms of ``wanted[first:last]`` that have one, or take the marks away."""
    for t in range(first, last):
        row = find(terms, wanted[t])
        if row >= 0:
            word = terms.table[row, 1]
            terms.table[row, 1] = word | _WANTED if on else word & ~_WANTED


# Runs of rows are as long as powers of two and begin at multiples of their length. The other half of twice a run is its buddy; if both are free,
# they become one. All partitions grow at about the same time, so most of them find room where two others were.


@njit(cache=True)
def _new_run(terms, log):
    """Return the first row of a free run of ``2**log`` rows, or -1 if there is no room."""
    state = terms.state
    for larger in range(log, RUNS):
        head = state[FREE_TABLE + larger]
        if head:
            first = head - 1
            state[FREE_TABLE + larger] = terms.table[first, 1]
            for half in range(larger - 1, log - 1, -1):
                _free_run(terms, first + (np.int64(1) << half), np.int64(half))
            return first
    size, end = np.int64(1) << log, state[TABLE_END]
    first = (end + size - 1) & ~(size - 1)
    if first + size > terms.table.shape[0]:
        return np.int64(-1)
    state[TABLE_END] = first + size
    while end < first:  # what lies between
        half = np.int64(_LEAST)
        while not end >> half & 1:
            half += 1
        _free_run(terms, end, half)
        end += np.int64(1) << half
    return first


@njit(cache=True)
def _free_run(terms, first, log):
    """Give a run back, joined with its buddy if that is free, too."""
    state, table = terms.state, terms.table
    while _take_buddy(terms, first ^ (np.int64(1) << log), log):
        first &= ~(np.int64(1) << log)
        log += 1
    table[first, 0], table[first, 1] = EMPTY, state[FREE_TABLE + log]
    state[FREE_TABLE + log] = first + 1


@njit(cache=True)
def _take_buddy(terms, first, log):
    """Take a run out of the list of free ones; return whether it was there."""
    state, table = terms.state, terms.table
    before, head = np.int64(-1), state[FREE_TABLE + log]
    while head:
        row = head - 1
        if row == first:
            if before < 0:
                state[FREE_TABLE + log] = table[row, 1]
            else:
                table[before, 1] = table[row, 1]
            return True
        before, head = row, table[row, 1]
    return False


@njit(cache=True)
def _move_partition(terms, at):
    """Move a partition to a run in which half of the rows at most are in use, without terms that nobody needs."""
    state, table = terms.state, terms.table
    old, log = state[at], state[at + 1] >> 32
    live = np.int64(0)
    for row in range(old, old + (np.int64(1) << log)):
        live += table[row, 0] != EMPTY and (table[row, 1] & _IN_USE) != 0
    larger = np.int64(_LEAST)
    while (np.int64(1) << larger) < 2 * (live + 1):
        larger += 1
    size, new = np.int64(1) << larger, _new_run(terms, larger)
    if new < 0:
        return False
    for row in range(new, new + size):
        table[row, 0] = EMPTY
    for row in range(old, old + (np.int64(1) << log)):
        if table[row, 0] != EMPTY and (table[row, 1] & _IN_USE) != 0:
            place = (hashed(table[row, 0]) >> 8) & (size - 1)
            while table[new + place, 0] != EMPTY:
                place = (place + 1) & (size - 1)
            table[new + place, 0], table[new + place, 1] = table[row, 0], table[row, 1]
    state[at], state[at + 1] = new, (larger << 32) | live
    _free_run(terms, old, log)
    return True


# -- codes ------------------------------------------------------------------------------------------


@njit(cache=True)
def term_of_code(terms, code):
    """Return the term of a code; of a free one the next that is free."""
    return (np.int64(terms.codes[code, 0]) & 0xFFFFFFFF) | (np.int64(terms.codes[code, 1]) << 32)


@njit(cache=True)
def _set_term(terms, code, term):
    terms.codes[code, 0], terms.codes[code, 1] = np.int32(np.uint32(term & 0xFFFFFFFF)), term >> 32


@njit(cache=True)
def take_code(terms, row):
    """Return the code of a row's term, once more in use; 0: there are no more codes."""
    word = terms.table[row, 1]
    code = word & 0xFFFF
    if code == 0:
        state = terms.state
        code = state[FREE_CODE]
        if code:
            state[FREE_CODE] = term_of_code(terms, code)
            state[FREE_CODES] -= 1
        elif state[CODES_END] < CODES_MOST:
            code = state[CODES_END]
            state[CODES_END] = code + 1
        else:
            return np.int64(0)
        terms.table[row, 1] = word | code
        _set_term(terms, code, terms.table[row, 0])
        terms.codes[code, 2] = 0
    terms.codes[code, 2] += 1
    return code


@njit(cache=True)
def drop_code(terms, code):
    """Let a code be in use once less; 0 is none."""
    if code == 0:
        return
    terms.codes[code, 2] -= 1
    if terms.codes[code, 2] == 0:
        row = find(terms, term_of_code(terms, code))
        terms.table[row, 1] &= ~np.int64(0xFFFF)
        _set_term(terms, code, terms.state[FREE_CODE])
        terms.state[FREE_CODE] = code
        terms.state[FREE_CODES] += 1


@njit(cache=True)
def list_is(terms, row):
    """Return (kind, records, where) of a row's list."""
    word = terms.table[row, 1]
    kind = (word >> 16) & 7
    if kind == NONE:
        return kind, np.int64(0), np.int64(0)
    return kind, (word >> 20) & 31, word >> 32
