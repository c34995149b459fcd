"""Kernels that put subscriptions in and take them out. Imports numpy and numba only.

A conjunction is one posting, under its rarest keyword, with the codes of the next four. What is more has a program: further
keywords, other expressions, and rectangles that cross the antimeridian, with a posting for each half. An expression has a
posting under each of its triggers.
"""

from __future__ import annotations

import numpy as np

from dskype.bolts.boolean.lanes._kernels import (
    ALL_CODES,
    ALL_TERMS,
    ANY_TERM,
    BLOCK,
    BLOCKS_END,
    CODE,
    CODES_END,
    CODES_MOST,
    DEAD,
    FAR_DEG,
    FLAG,
    FREE_CODES,
    GROUP,
    GROUP_LANES,
    GROUPS_END,
    JUMPS,
    LANES,
    NODES_END,
    NONE,
    PARENT,
    PROGRAMS_END,
    RECORD_CODE,
    RECORD_HASH,
    RECORD_PLACE,
    RECORD_SLOT,
    RECORDS,
    RECORDS_END,
    SHORT,
    TERM,
    TREE,
    USED,
    begin_program,
    extend_records,
    free_group,
    free_program,
    free_records,
    move,
    new_group,
    new_program,
    new_records,
    opened,
    postings_at,
    program_head,
    program_of,
    program_size,
    program_units,
    settle,
)
from dskype.bolts.boolean.lanes.group_kernels import bury_lane, fit_frame, gather, lay, opened_work, read_boxes
from dskype.bolts.boolean.lanes.table_kernels import drop_code, find, find_records, hashed, home, list_is, open_table, row_of, set_list, take_code, term_of_code
from dskype.bolts.boolean.lanes.tree_kernels import put, shrink
from dskype.bolts.boolean.lanes.vector_kernels import fetch, lent
from dskype.bolts.boolean.program_kernels import Batch
from dskype.topology.kernel_cache import njit

NEED_TABLE, NEED_CODES, NEED_PROGRAMS, NEED_POOLS = 1, 2, 3, 4
"""What is lacking for the next step."""
_AND, _OR = 1, 2  # kinds of dskype.bolts.boolean.programs; the third is any expression
_CODED = 5  # keywords that a posting knows
_FEW = SHORT // 2  # postings with which a list becomes a run of records again


@njit(cache=True)
def _is_tight(index):
    """Tell whether the pools may have too little room for a posting."""
    state = index.state
    return (
        state[BLOCKS_END] + 64 > index.block.shape[0]
        or state[GROUPS_END] + 4 > index.group.shape[0]
        or state[NODES_END] + 24 > index.node.shape[0]
        or state[RECORDS_END] + 32 > index.record.shape[0]
    )


# -- postings ---------------------------------------------------------------------------------------


@njit(cache=True)
def _write_record(index, r, posting, codes, mark, code):
    for e in range(4):
        index.record[r, e] = np.float32(posting[e])
        index.record_u2[r, RECORD_CODE + e] = codes[e]
    index.record_i4[r, RECORD_SLOT] = mark
    index.record_i4[r, RECORD_HASH] = np.int32(np.uint32(code))


@njit(cache=True)
def _copy_record(index, source, target):
    """Copy a record to another place, and note it."""
    for e in range(8):
        index.record_i4[target, e] = index.record_i4[source, e]
    mark = index.record_i4[target, RECORD_SLOT]
    move(index, mark, RECORD_PLACE + source, RECORD_PLACE + target)
    settle(index, mark)


@njit(cache=True)
def _promote(index, work, row, first, n):
    """Make a group of a run of records; return it."""
    for i in range(n):
        r = first + i
        for e in range(4):
            work.codes[i, e] = index.record_u2[r, RECORD_CODE + e]
        work.marks[i], work.places[i], work.order[i] = index.record_i4[r, RECORD_SLOT], RECORD_PLACE + r, i
    g = new_group(index, index.terms.table[row, 0], np.int64(-1))
    read_boxes(index, work, 0, n)
    fit_frame(index, work, g, 0, n, 0.25)
    lay(index, work, g, 0, n, True)
    set_list(index.terms, row, GROUP, 0, g)
    return g


@njit(cache=True)
def _demote(index, work, row, g):
    """Make a run of records of a group with few postings."""
    n = gather(index, work, g, 0)
    read_boxes(index, work, 0, n)
    first, code = new_records(index, n), hashed(index.terms.table[row, 0])
    for i in range(n):
        _write_record(index, first + i, work.boxes[i], work.codes[i], work.marks[i], code)
        move(index, work.marks[i], work.places[i], RECORD_PLACE + first + i)
    for i in range(n):
        settle(index, work.marks[i])
    free_group(index, g)
    set_list(index.terms, row, RECORDS, n, first)


@njit(cache=True)
def _enter(index, work, row, posting, codes, mark):
    """Put a posting into the list of a row; return its place."""
    kind, n, where = list_is(index.terms, row)
    if kind == RECORDS and n == SHORT:
        g = _promote(index, work, row, where, n)
        free_records(index, where, n)
        return put(index, work, row, np.int64(GROUP), g, posting, codes, mark)
    if kind == RECORDS or kind == NONE:
        old, moves = where, kind == NONE or not extend_records(index, where, n)
        if moves:
            where = new_records(index, n + 1)
            for i in range(n):
                _copy_record(index, old + i, where + i)
        _write_record(index, where + n, posting, codes, mark, hashed(index.terms.table[row, 0]))
        set_list(index.terms, row, RECORDS, n + 1, where)
        if moves and n:
            free_records(index, old, n)
        return RECORD_PLACE + where + n
    return put(index, work, row, kind, where, posting, codes, mark)


@njit(cache=True)
def _leave(index, work, place):
    """Take the posting at a place out of its list."""
    if place >= RECORD_PLACE:
        r = place - RECORD_PLACE
        for e in range(4):
            drop_code(index.terms, np.int64(index.record_u2[r, RECORD_CODE + e]))
        row = find_records(index.terms, np.int64(np.uint32(index.record_i4[r, RECORD_HASH])), r)
        _, n, where = list_is(index.terms, row)
        if r != where + n - 1:
            _copy_record(index, where + n - 1, r)
        free_records(index, where + n - 1, np.int64(1))
        if n > 1:
            set_list(index.terms, row, RECORDS, n - 1, where)
        else:
            set_list(index.terms, row, NONE, 0, 0)
        return
    g, lane = (place - 1) // GROUP_LANES, (place - 1) % GROUP_LANES
    b, j = np.int64(index.group_i4[g, BLOCK]) + lane // LANES, lane % LANES
    for e in range(4):
        drop_code(index.terms, np.int64(index.block[b, CODE + LANES * e + j]))
    bury_lane(index, b, j)
    dead, used = np.int64(index.group_i4[g, DEAD]) + 1, np.int64(index.group_i4[g, USED])
    index.group_i4[g, DEAD] = dead
    if 2 * dead > used:
        shrink(index, work, find(index.terms, index.group[g, TERM]), g)
    if index.group_i4[g, USED] >= 0 and index.group_i4[g, PARENT] < 0 and index.group_i4[g, USED] - index.group_i4[g, DEAD] <= _FEW:
        row = find(index.terms, index.group[g, TERM])
        kind, _, where = list_is(index.terms, row)
        if kind == GROUP and where == g:
            _demote(index, work, row, g)


# -- subscriptions ----------------------------------------------------------------------------------


@njit(cache=True)
def _triggers(batch, i):
    """Return (first, behind the last) place of the triggers of a subscription in ``programs``."""
    begin, end = batch.offsets[i], batch.offsets[i + 1]
    if batch.kinds[i] == _AND:
        return begin, begin + 1
    if batch.kinds[i] == _OR:
        return begin, end
    return begin + 1, begin + 1 + batch.programs[begin]


@njit(cache=True)
def _make_rows(index, batch, i):
    """Let all terms that need one have a row; return (what is lacking or 0, whether all later keywords of a conjunction can have codes)."""
    begin, end = _triggers(batch, i)
    conjunction = batch.kinds[i] == _AND
    if conjunction:
        end = batch.offsets[i + 1]
        if index.state[CODES_END] + end - begin > index.terms.codes.shape[0] and index.terms.codes.shape[0] <= CODES_MOST:
            return NEED_CODES, False
    new = 0
    for t in range(begin, end):
        row = row_of(index.terms, batch.programs[t], batch.programs, begin, end)
        if row < 0:
            return NEED_TABLE, False
        new += t > begin and index.terms.table[row, 1] & 0xFFFF == 0
    return 0, conjunction and new <= index.state[FREE_CODES] + CODES_MOST - index.state[CODES_END]


@njit(cache=True)
def _write_program(index, batch, i, coded, postings):
    """Make the program of a subscription; return whether there was room for it."""
    begin, end = batch.offsets[i], batch.offsets[i + 1]
    length = end - begin
    if batch.kinds[i] == _AND:
        kind = ALL_CODES if coded else ALL_TERMS
        length = max(length - _CODED, 0) if coded else length
    else:
        kind = ANY_TERM if batch.kinds[i] == _OR else JUMPS
    units = program_units(kind, postings, length)
    if index.state[PROGRAMS_END] + program_size(units)[1] > index.program.shape[0]:
        return False
    first = new_program(index, units)
    begin_program(index, first, kind, postings, length)
    body = program_head(index, first)[3]
    for k in range(length):
        if kind == ALL_CODES:
            index.program_u2[body + k] = take_code(index.terms, find(index.terms, batch.programs[begin + _CODED + k]))
        else:
            index.program[body + k] = batch.programs[begin + k]
    index.places[batch.slots[i]] = -first - 1
    return True


# What follows asks the memory for what the next subscriptions will need, so that it arrives while others are dealt with.


@njit(cache=True, inline="always")
def _fetch_block(index, g, lane, first_line):
    at = 160 * (np.int64(index.group_i4[g, BLOCK]) + lane // LANES)
    for line in range(first_line, 5):
        fetch(index.block, at + 32 * line)


@njit(cache=True, inline="always")
def _fetch_terms(index, batch, i):
    for t in range(batch.offsets[i], batch.offsets[i + 1]):
        start, _, at = home(index.state, hashed(batch.programs[t]))
        fetch(index.terms.table, 2 * (start + at))


@njit(cache=True, inline="always")
def _fetch_list(index, batch, i):
    row = find(index.terms, batch.programs[_triggers(batch, i)[0]])
    if row >= 0:
        kind, _, where = list_is(index.terms, row)
        if kind == GROUP:
            for line in range(3):
                fetch(index.group, 24 * where + 8 * line)
        elif kind == TREE:
            for line in range(5):
                fetch(index.node, 96 * where + 16 * line)
        elif kind == RECORDS:
            fetch(index.record, 8 * where)


@njit(cache=True, inline="always")
def _fetch_tail(index, batch, i):
    row = find(index.terms, batch.programs[_triggers(batch, i)[0]])
    if row >= 0:
        kind, _, where = list_is(index.terms, row)
        if kind == GROUP:
            _fetch_block(index, where, np.int64(index.group_i4[where, USED]), 0)


@njit(cache=True, inline="always")
def _fetch_ahead(index, batch, i):
    """Ask for what subscription ``i`` and the following ones will need."""
    n = batch.slots.shape[0]
    if i + 6 < n:
        _fetch_terms(index, batch, i + 6)
    if i + 4 < n:
        _fetch_list(index, batch, i + 4)
    if i + 2 < n:
        _fetch_tail(index, batch, i + 2)


@njit(cache=True, inline="always")
def _fetch_gone(index, slots, i):
    """Ask for what is needed to take slot ``i`` and the following ones out."""
    n = slots.shape[0]
    if i + 12 < n:
        fetch(index.places, slots[i + 12])
    if i + 8 < n:
        place = np.int64(index.places[slots[i + 8]])
        if place >= RECORD_PLACE:
            fetch(index.record, 8 * (place - RECORD_PLACE))
        elif place > 0:
            fetch(index.group, 24 * ((place - 1) // GROUP_LANES))
    if i + 4 < n:
        place = np.int64(index.places[slots[i + 4]])
        if 0 < place < RECORD_PLACE:
            _fetch_block(index, (place - 1) // GROUP_LANES, (place - 1) % GROUP_LANES, 2)  # codes and slots


@njit(cache=True)
def clear(handle):
    """Make the term table of an index that holds nothing."""
    open_table(opened(handle).terms)


@njit(cache=True)
def insert(handle, work, batch, progress):
    """Put subscriptions in from where ``progress`` is; return what is lacking before it can go on, or 0.

    :param handle: of the index.
    :param work: handle of scratch, see :class:`~dskype.bolts.boolean.lanes.group_kernels.Work`.
    :param progress: int64[2]: how many are in, and how many postings of the next one, -1 if it has not begun.
    """
    index, work, progress = opened(handle), opened_work(work), lent(progress)
    batch = Batch(lent(batch.slots), lent(batch.boxes), lent(batch.kinds), lent(batch.offsets), lent(batch.programs))
    codes = work.codes[work.codes.shape[0] - 1]  # the last row is not needed otherwise
    for i in range(progress[0], batch.slots.shape[0]):
        _fetch_ahead(index, batch, i)
        slot, box = batch.slots[i], batch.boxes[i]
        first, last = _triggers(batch, i)
        halves = 1 if box[0] <= box[2] else 2
        postings = halves * (last - first)
        if _is_tight(index):
            return NEED_POOLS
        n = batch.offsets[i + 1] - batch.offsets[i]
        if progress[1] < 0:
            need, coded = _make_rows(index, batch, i)
            if need:
                return need
            plain = coded and postings == 1 and n <= _CODED
            if not plain and not _write_program(index, batch, i, coded, postings):
                return NEED_PROGRAMS
            for e in range(4):
                index.boxes[slot, e] = box[e]
            progress[1] = 0
        else:
            plain, coded = False, program_head(index, program_of(index, slot))[0] == ALL_CODES
        for k in range(progress[1], postings):
            if _is_tight(index):
                progress[1] = k
                return NEED_POOLS
            for e in range(4):
                keyword = batch.offsets[i] + 1 + e
                codes[e] = take_code(index.terms, find(index.terms, batch.programs[keyword])) if coded and 1 + e < n else 0
            west = -FAR_DEG if halves == 2 and k & 1 else box[0]
            east = FAR_DEG if halves == 2 and not k & 1 else box[2]
            row = find(index.terms, batch.programs[first + k // halves])
            place = _enter(index, work, row, (west, box[1], east, box[3]), codes, slot if plain else slot + FLAG)
            if plain:
                index.places[slot] = place
            else:
                index.program_i4[postings_at(index, program_of(index, slot)) + k] = place
        progress[0], progress[1] = i + 1, -1
    return 0


@njit(cache=True)
def remove(handle, work, slots, progress):
    """Take subscriptions out from where ``progress`` is; return what is lacking before it can go on, or 0.

    :param work: scratch, as for :func:`insert`.
    :param progress: int64[1]: how many are out.
    """
    index, work, slots, progress = opened(handle), opened_work(work), lent(slots), lent(progress)
    for i in range(progress[0], slots.shape[0]):
        if _is_tight(index):
            return NEED_POOLS
        _fetch_gone(index, slots, i)
        slot = slots[i]
        place = np.int64(index.places[slot])
        if place > 0:
            _leave(index, work, place)
        else:
            first = program_of(index, slot)
            kind, postings, length, body = program_head(index, first)
            for k in range(postings):
                # Others of these postings may move meanwhile, but not those that are gone.
                at = postings_at(index, first) + k
                place = np.int64(index.program_i4[at])
                index.program_i4[at] = 0
                _leave(index, work, place)
            if kind == ALL_CODES:
                for k in range(length):
                    drop_code(index.terms, np.int64(index.program_u2[body + k]))
            free_program(index, first, program_units(kind, postings, length))
        index.places[slot] = 0
        progress[0] = i + 1
    return 0


# -- what is in -------------------------------------------------------------------------------------


@njit(cache=True)
def _first_term(index, place):
    """Return (term of the list that a place is in, the four codes there)."""
    if place >= RECORD_PLACE:
        r = place - RECORD_PLACE
        codes = index.record_u2[r, RECORD_CODE : RECORD_CODE + 4]
        return index.terms.table[find_records(index.terms, np.int64(np.uint32(index.record_i4[r, RECORD_HASH])), r), 0], codes
    g, lane = (place - 1) // GROUP_LANES, (place - 1) % GROUP_LANES
    b, j = np.int64(index.group_i4[g, BLOCK]) + lane // LANES, lane % LANES
    return index.group[g, TERM], index.block[b, CODE + j : CODE + j + 4 * LANES : LANES]


@njit(cache=True)
def describe(handle, slots, offsets, kinds, programs):
    """Write what subscriptions ask for, as they were put in; without room for it only how long each is.

    :param offsets: int64[n + 1], is written if ``programs`` (int64[]) is empty.
    :param kinds: int8[n], is written.
    """
    index = opened(handle)
    write = programs.shape[0] > 0
    for i in range(slots.shape[0]):
        place, slot = np.int64(index.places[slots[i]]), slots[i]
        kind, length, body = np.int64(ALL_CODES), np.int64(0), np.int64(0)
        if place < 0:
            kind, _, length, body = program_head(index, program_of(index, slot))
            place = np.int64(index.program_i4[postings_at(index, program_of(index, slot))])
        at = offsets[i] if write else np.int64(0)
        n = at
        if kind == ALL_CODES:
            term, codes = _first_term(index, place)
            if write:
                programs[n] = term
            n += 1
            for e in range(4):
                if codes[e]:
                    if write:
                        programs[n] = term_of_code(index.terms, codes[e])
                    n += 1
            for k in range(length):
                if write:
                    programs[n] = term_of_code(index.terms, index.program_u2[body + k])
                n += 1
        else:
            if write:
                programs[n : n + length] = index.program[body : body + length]
            n += length
        if not write:
            offsets[i + 1] = offsets[i] + n
            kinds[i] = 1 if kind <= ALL_TERMS else 2 if kind == ANY_TERM else 3
