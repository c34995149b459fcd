"""Kernels of the index with coverings. They import numpy and numba only.

The plane is divided into four, ``depth`` times. Cells are numbered by level, then by the quadrants that lead to them: see
:func:`cell_of`. Cells at the border of the root extend to infinity. Bounds are float32 with ``SLACK``, far above their rounding errors.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from dskype.bolts.array_kernels import LENGTH, START
from dskype.bolts.search_kernels import first_not_below
from dskype.bolts.topk._kernels import ALPHA, LAT, LON, THRESHOLD, find_term
from dskype.topology.kernel_cache import njit

SLACK = 1e-6
LEAST = 2.0**-60  # stands for 1 - alpha when that is 0
BLOCK = 64
_BIG = 3e38  # near the end of float32

CiqLists = namedtuple("CiqLists", "block slot weight bound_block bound top")
CiqLists.__doc__ = """Posting lists: block is their block table; per posting slot int32, rising within a list, and weight float32.

bound_block: block table of bound (float32), which has a lower bound of MinT for every BLOCK postings; top float32: by list, an upper bound of its weights.
"""


@njit(cache=True, inline="always")
def cell_of(level, code):
    """Return the number of a cell: ``level`` 1.., ``code`` the quadrants that lead there, two bits each."""
    return ((np.int64(1) << np.int64(2 * level)) - 4) // 3 + code


@njit(cache=True)
def cells_in(depth):
    """Return the number of cells on the levels 1..depth."""
    return cell_of(depth + 1, np.int64(0))


@njit(cache=True)
def path(x, y, root, depth):
    """Return the code of the cell on the last level that holds a point."""
    west, south, east, north = root[0], root[1], root[2], root[3]
    code = np.int64(0)
    for _ in range(depth):
        middle_x, middle_y = 0.5 * west + 0.5 * east, 0.5 * south + 0.5 * north
        if x >= middle_x:
            west = middle_x
        else:
            east = middle_x
        if y >= middle_y:
            south = middle_y
        else:
            north = middle_y
        code = 4 * code + np.int64(x >= middle_x) + 2 * np.int64(y >= middle_y)
    return code


@njit(cache=True)
def paths(slots, place, root, depth):
    """Return the code of the last cell (int32[n]) of slots."""
    out = np.empty(slots.shape[0], np.int32)
    for i in range(slots.shape[0]):
        out[i] = path(place[slots[i], LON], place[slots[i], LAT], root, depth)
    return out


@njit(cache=True, inline="always")
def _min_text(threshold, alpha, far):
    """Return MinT, the text similarity that a threshold requires at a distance of ``far`` diagonals, or a little less."""
    value = (threshold - alpha * (1.0 - far) - SLACK * (1.0 + abs(threshold) + alpha * (1.0 + far))) / max(1.0 - alpha, LEAST)
    if threshold == np.inf:
        return np.inf
    return min(value, _BIG) if value > -_BIG else -np.inf


@njit(cache=True)
def set_min_texts(slots, place, root, depth, diagonal_deg, least):
    """Set MinT of slots for the cells of their coverings.

    :param least: float32[4 * depth, slots]; row 4 * (level - 1) + quadrant; inf for cells that are divided further.
    """
    for i in range(slots.shape[0]):
        slot = slots[i]
        x, y, alpha, threshold = place[slot, LON], place[slot, LAT], place[slot, ALPHA], place[slot, THRESHOLD]
        west, south, east, north = root[0], root[1], root[2], root[3]
        low_x, low_y, high_x, high_y = -np.inf, -np.inf, np.inf, np.inf
        for level in range(depth):
            middle_x, middle_y = 0.5 * west + 0.5 * east, 0.5 * south + 0.5 * north
            own = np.int64(x >= middle_x) + 2 * np.int64(y >= middle_y)
            for quadrant in range(4):
                if quadrant & 1:
                    dx = max(middle_x - x, x - high_x)
                else:
                    dx = max(low_x - x, x - middle_x)
                if quadrant & 2:
                    dy = max(middle_y - y, y - high_y)
                else:
                    dy = max(low_y - y, y - middle_y)
                dx, dy = max(dx, 0.0), max(dy, 0.0)
                if quadrant != own:
                    least[4 * level + quadrant, slot] = _min_text(threshold, alpha, np.sqrt(dx * dx + dy * dy) / diagonal_deg)
                else:
                    least[4 * level + quadrant, slot] = _min_text(threshold, alpha, 0.0) if level + 1 == depth else np.inf
            if x >= middle_x:
                west = low_x = middle_x
            else:
                east = high_x = middle_x
            if y >= middle_y:
                south = low_y = middle_y
            else:
                north = high_y = middle_y


@njit(cache=True)
def make_keys(slots, code, depth, words, word_term):
    """Return the list keys (int64[], term * cells + cell) of all postings, in order of slots, keywords, cells; and their ends by slot."""
    cells = cells_in(depth)
    ends = np.empty(slots.shape[0], np.int64)
    n = np.int64(0)
    for i in range(slots.shape[0]):
        n += words[slots[i], LENGTH] * (3 * depth + 1)
        ends[i] = n
    keys = np.empty(n, np.int64)
    n = np.int64(0)
    for i in range(slots.shape[0]):
        slot = slots[i]
        own = np.int64(code[slot])
        for at in range(words[slot, START], words[slot, START] + words[slot, LENGTH]):
            base = np.int64(word_term[at]) * cells
            for level in range(1, depth + 1):
                here = own >> np.int64(2 * (depth - level))
                for quadrant in range(4):
                    if quadrant != (here & 3) or level == depth:
                        keys[n] = base + cell_of(level, (here & ~np.int64(3)) + quadrant)
                        n += 1
    return keys, ends


@njit(cache=True)
def _row(n, depth, own):
    """Return the row of MinT for the n-th cell of a covering (order of :func:`make_keys`)."""
    level = min(n // 3, depth - 1)
    quadrant = n - 3 * level
    if level < depth - 1 and quadrant >= ((own >> (2 * (depth - 1 - level))) & 3):
        quadrant += 1
    return 4 * level + quadrant


@njit(cache=True)
def _place_in(lists, item, slot):
    """Return the offset of a slot in a list, or the offset where it belongs."""
    start = lists.block[item, START]
    return first_not_below(lists.slot, start, start + lists.block[item, LENGTH], slot) - start


@njit(cache=True)
def _row_in(item, names, depth):
    """Return the row of MinT for the postings of a list."""
    cell = names[item] % cells_in(depth)
    level = np.int64(1)
    while cell >= cell_of(level + 1, np.int64(0)):
        level += 1
    return 4 * (level - 1) + ((cell - cell_of(level, np.int64(0))) & 3)


@njit(cache=True)
def enter_postings(slots, code, depth, ends, items, words, word_weight, least, lists):
    """Insert the postings of slots into lists ``items`` (as :func:`make_keys`); there is room. O(1) at the end of a list."""
    n = np.int64(0)
    width = 3 * depth + 1
    for i in range(slots.shape[0]):
        slot = slots[i]
        first = n
        while n < ends[i]:
            nth, cell = divmod(n - first, width)
            item = np.int64(items[n])
            row = _row(cell, depth, np.int64(code[slot]))
            base, bounds = lists.block[item, START], lists.bound_block[item, START]
            length = lists.block[item, LENGTH]
            at = length if length == 0 or lists.slot[base + length - 1] < slot else _place_in(lists, item, slot)
            lists.block[item, LENGTH] = length + 1
            if length % BLOCK == 0:
                lists.bound[bounds + length // BLOCK] = np.inf
                lists.bound_block[item, LENGTH] += 1
            # The last posting of a full block moves to the next block.
            for block in range(at // BLOCK + 1, length // BLOCK + 1):
                lists.bound[bounds + block] = min(lists.bound[bounds + block], least[row, lists.slot[base + block * BLOCK - 1]])
            back = length
            while back > at:
                lists.slot[base + back], lists.weight[base + back] = lists.slot[base + back - 1], lists.weight[base + back - 1]
                back -= 1
            weight = np.float32(word_weight[words[slot, START] + nth])
            lists.slot[base + at], lists.weight[base + at] = slot, weight
            lists.bound[bounds + at // BLOCK] = min(lists.bound[bounds + at // BLOCK], least[row, slot])
            lists.top[item] = max(lists.top[item], weight) if length else weight
            n += 1


@njit(cache=True)
def drop_postings(slots, code, depth, ends, items, least, lists):
    """Remove the postings of slots from lists ``items``; O(list) each."""
    n = np.int64(0)
    width = 3 * depth + 1
    for i in range(slots.shape[0]):
        first = n
        while n < ends[i]:
            item = np.int64(items[n])
            row = _row((n - first) % width, depth, np.int64(code[slots[i]]))
            base, bounds = lists.block[item, START], lists.bound_block[item, START]
            last = lists.block[item, LENGTH] - 1
            at = _place_in(lists, item, slots[i])
            for block in range(at // BLOCK, last // BLOCK):  # the first posting of the next block moves in
                lists.bound[bounds + block] = min(lists.bound[bounds + block], least[row, lists.slot[base + (block + 1) * BLOCK]])
            for back in range(at, last):
                lists.slot[base + back], lists.weight[base + back] = lists.slot[base + back + 1], lists.weight[base + back + 1]
            lists.block[item, LENGTH] = last
            if last % BLOCK == 0:
                lists.bound_block[item, LENGTH] -= 1
            n += 1


@njit(cache=True)
def find_items(keys, key, local):
    """Return the lists (int32[n]) of keys, all known."""
    out = np.empty(keys.shape[0], np.int32)
    for i in range(keys.shape[0]):
        out[i] = find_term(keys[i], key, local)
    return out


@njit(cache=True)
def lower_bounds(slots, code, depth, ends, items, least, lists):
    """Lower the bounds of the blocks that hold slots to their MinT."""
    n = np.int64(0)
    width = 3 * depth + 1
    for i in range(slots.shape[0]):
        first = n
        while n < ends[i]:
            item = np.int64(items[n])
            value = least[_row((n - first) % width, depth, np.int64(code[slots[i]])), slots[i]]
            at = lists.bound_block[item, START] + _place_in(lists, item, slots[i]) // BLOCK
            lists.bound[at] = min(lists.bound[at], value)
            n += 1


@njit(cache=True)
def set_bounds(names, depth, least, lists):
    """Set all bounds to their tightest values; O(postings)."""
    for item in range(names.shape[0]):
        length = lists.block[item, LENGTH]
        if length == 0:
            continue
        row = _row_in(item, names, depth)
        base, bounds = lists.block[item, START], lists.bound_block[item, START]
        top = np.float32(0.0)
        for block in range(lists.bound_block[item, LENGTH]):
            lowest = np.float32(np.inf)
            for at in range(base + block * BLOCK, base + min(length, (block + 1) * BLOCK)):
                lowest = min(lowest, least[row, lists.slot[at]])
                top = max(top, lists.weight[at])
            lists.bound[bounds + block] = lowest
        lists.top[item] = top


@njit(cache=True, inline="always")
def _short(text, least):
    """Tell whether a text similarity from float32 weights is certainly less than MinT; False for nan."""
    return text + SLACK * (1.0 + text) < least


@njit(cache=True)
def find_candidates(messages, known, root, depth, ids, least, lists):
    """Return (message int32[], slot int32[]): the pairs whose text similarity is not below MinT, and possibly some more.

    Every subscription has one cell on the path of a message. The lists of the cell are read document at a time; a block of postings is
    skipped if all the message's terms together cannot reach the least MinT in it.

    :param messages: dskype.bolts.topk._kernels.Messages; ``known``: dskype.deploy.lab.skype.list_kernels.Known.
    :param root: float64[4], west, south, east, north of the root; ``depth``: number of levels.
    :param ids: the TermMap of the lists' keys, see :func:`make_keys`.
    :param least: float32[4 * depth, slots], MinT, see :func:`set_min_texts`.
    """
    lon, lat, first, term, weight = messages.lon, messages.lat, known.first, known.term, known.weight
    key, local = ids.key, ids.local
    capacity = np.int64(4096)
    out_message, out_slot = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    n = np.int64(0)
    cells = cells_in(depth)
    most = np.int64(1)
    for m in range(lon.shape[0]):
        most = max(most, first[m + 1] - first[m])
    at, end, begin, bounds = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    factor, current = np.empty(most), np.empty(most, np.int64)
    no_slot = np.int64(2**31)
    for m in range(lon.shape[0]):
        own = path(lon[m], lat[m], root, depth)
        for level in range(1, depth + 1):
            code = own >> np.int64(2 * (depth - level))
            cell = cell_of(level, code)
            needed = least[4 * (level - 1) + (code & 3)]
            count = 0
            reach = 0.0
            for i in range(first[m], first[m + 1]):
                item = find_term(np.int64(term[i]) * cells + cell, key, local)
                if item >= 0:
                    begin[count] = at[count] = lists.block[item, START]
                    end[count], bounds[count] = begin[count] + lists.block[item, LENGTH], lists.bound_block[item, START]
                    factor[count] = weight[i]
                    reach += weight[i] * lists.top[item]
                    count += 1
            slot = no_slot
            for i in range(count):
                current[i] = _next(i, at, end, begin, bounds, reach, lists, no_slot)
                slot = min(slot, current[i])
            while slot != no_slot:
                text, following = 0.0, no_slot
                for i in range(count):
                    if current[i] == slot:
                        text += lists.weight[at[i]] * factor[i]
                        at[i] += 1
                        current[i] = _next(i, at, end, begin, bounds, reach, lists, no_slot)
                    following = min(following, current[i])
                if not _short(text, needed[slot]):
                    if n == capacity:
                        capacity *= 2
                        grown_message, grown_slot = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
                        grown_message[:n], grown_slot[:n] = out_message[:n], out_slot[:n]
                        out_message, out_slot = grown_message, grown_slot
                    out_message[n], out_slot[n] = m, slot
                    n += 1
                slot = following
    return out_message[:n], out_slot[:n]


@njit(cache=True, inline="always")
def _next(i, at, end, begin, bounds, reach, lists, no_slot):
    """Skip blocks that cannot hold a match; return the next slot of the i-th list, or ``no_slot`` at its end."""
    while at[i] < end[i]:
        offset = at[i] - begin[i]
        if offset % BLOCK or not _short(reach, lists.bound[bounds[i] + offset // BLOCK]):
            return np.int64(lists.slot[at[i]])
        at[i] += BLOCK
    return no_slot
