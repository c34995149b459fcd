"""Kernels that search the lists of cones for messages. Imports numpy and numba only."""

from __future__ import annotations

import numpy as np
from numba import njit

from dskype.bolts._kernels import score as combined_score
from dskype.bolts._kernels import ssim
from dskype.bolts.topk._kernels import find_term
from dskype.bolts.topk.cones._kernels import (
    ALPHA, BIG, BOTH1, CAPACITY, CODES_1, CODES_3, FIRST, FIRST1, LANES, LAT, LENGTH, LON, NEAR, NEAR0, NEED, NEED0, REST, SLOT,
    START, STEPS, THRESHOLD, USED, X, X0, X1, Y, Y0, Y1, hashed, room_for,
)


# Where the one bit of a 16-bit number is, by (number * _SPREAD >> 12) & 15 (de Bruijn).
_SPREAD = np.int64(0x09AF)
_BITS, _LAST = np.int64(4), np.int64(LANES - 1)
_POSITIVE = np.int64(2**62 - 1)     # n & _POSITIVE: no index from the end, so none is looked for
_BIT = np.zeros(LANES, np.int32)
for _j in range(LANES):
    _BIT[((1 << _j) * int(_SPREAD) >> 12) & 15] = _j


@njit(cache=True, inline="always")
def near_bounds(bounds, row, x, y, near_scale, first_scale, rest_scale):
    """Return which of the bounds in ``bounds[row]`` a message may lie in, one bit each."""
    zero, shift, far = np.float32(0), np.float32(32768), np.float32(1e18)
    # FIRST * wm_i + REST * c = FIRST * (wm_i - c) + (FIRST + REST) * c; which is tighter for a mixture of cones.
    more = first_scale - rest_scale if first_scale > rest_scale else zero
    mask = np.int64(0)
    for j in range(LANES):
        left, right = np.float32(bounds[row, X0, j]) - x, x - np.float32(bounds[row, X1, j])
        below, above = np.float32(bounds[row, Y0, j]) - y, y - np.float32(bounds[row, Y1, j])
        dx = left if left > right else right
        dy = below if below > above else above
        dx = dx if dx > zero else zero
        dy = dy if dy > zero else zero
        slope = np.float32(bounds[row, NEAR0, j]) * near_scale
        room = (np.float32(bounds[row, FIRST1, j]) * more + np.float32(bounds[row, BOTH1, j]) * rest_scale
                + (shift - np.float32(bounds[row, NEED0, j])))
        room = far if bounds[row, NEED0, j] == 0 else room
        mask |= np.int64((room >= zero) & (slope * slope * (dx * dx + dy * dy) <= room * room)) << np.int64(j)
    return mask


@njit(cache=True, inline="always")
def near_cones(field, row, x, y, near_scale, first_scale, rest_scale):
    """Return which of the cones in ``field[row]`` a message may lie in, one bit each."""
    zero, shift, far = np.float32(0), np.float32(32768), np.float32(1e18)
    mask = np.int64(0)
    for j in range(LANES):
        dx, dy = x - np.float32(field[row, X, j]), y - np.float32(field[row, Y, j])
        slope = np.float32(field[row, NEAR, j]) * near_scale
        room = (np.float32(field[row, FIRST, j]) * first_scale + np.float32(field[row, REST, j]) * rest_scale
                + (shift - np.float32(field[row, NEED, j])))
        room = far if field[row, NEED, j] == 0 else room
        mask |= np.int64((room >= zero) & (slope * slope * (dx * dx + dy * dy) <= room * room)) << np.int64(j)
    return mask


@njit(cache=True, inline="always")
def touch(rows, row):
    """Read every cache line of a row (uint16[., 6 or 8, 16]): the memory fetches rows side by side, not one after another."""
    return np.int64(rows[row, 0, 0]) + np.int64(rows[row, 2, 0]) + np.int64(rows[row, 4, 0]) + np.int64(rows[row, rows.shape[1] - 1, 15])


@njit(cache=True)
def spread(rows, masks, n_rows, shift, out):
    """Write ``16 * row + bit + shift`` for all bits of all masks into ``out``; return how many."""
    n = 0
    for i in range(n_rows):
        mask, first = masks[i], rows[i] * LANES + shift
        while mask:
            low = mask & -mask
            out[n & _POSITIVE] = first + _BIT[(low * _SPREAD >> np.int64(12)) & np.int64(15)]
            mask ^= low
            n += 1
    return n


@njit(cache=True)
def scan_blocks(field, blocks, n_blocks, x, y, near_scale, first_scale, rest_scale, masks, out):
    """Write the lanes (16 * block + lane) of blocks that pass the test of the cone into ``out``; return how many.

    Without branches: then the processor reads many blocks at the same time.
    """
    sink = 0
    for i in range(n_blocks):
        sink += touch(field, blocks[i])
    n = 0
    for i in range(n_blocks):
        b = blocks[i]
        mask = near_cones(field, b, x, y, near_scale, first_scale, rest_scale)
        blocks[n], masks[n] = b, mask
        n += mask != 0
    return spread(blocks, masks, n, 0, out), sink


@njit(cache=True)
def test_codes(field, tail, lanes, n_lanes, x, y, near_scale, first_scale, gain, found, n):
    """Append the slots of lanes that pass the test of the codes to ``found``; return how many there are.

    Without branches: then the processor reads many lanes at the same time.

    :param gain: float32[256]: by code, the highest weight of the message's terms with it, in steps per step of a code.
    """
    zero, shift, far = np.float32(0), np.float32(32768), np.float32(1e18)
    sink = 0
    for i in range(n_lanes):
        lane = lanes[i] & _POSITIVE
        sink += tail[lane >> _BITS, lane & _LAST, SLOT]
    for i in range(n_lanes):
        lane = lanes[i] & _POSITIVE
        b, j = lane >> _BITS, lane & _LAST
        slot, one, three = tail[b, j, SLOT], np.int64(tail[b, j, CODES_1]), np.int64(tail[b, j, CODES_3])
        wanted = field[b, NEED, j]
        room = np.float32(field[b, FIRST, j]) * first_scale + (shift - np.float32(wanted))
        room += np.float32(one & 255) * gain[(one >> 8) & 255]
        room += np.float32((one >> 16) & 255) * gain[(one >> 24) & 255]
        room += np.float32(three & 255) * gain[(three >> 8) & 255]
        room += np.float32((three >> 16) & 255) * gain[(three >> 24) & 255]
        room = far if (one == -1) | (wanted == 0) else room
        dx, dy = x - np.float32(field[b, X, j]), y - np.float32(field[b, Y, j])
        slope = np.float32(field[b, NEAR, j]) * near_scale
        found[n & _POSITIVE] = slot
        n += np.int64((slot >= 0) & (room >= zero) & (slope * slope * (dx * dx + dy * dy) <= room * room))
    return n, sink


@njit(cache=True)
def near_blocks(upper, bound, first_upper, first_group, start, blocks, x, y, near_scale, first_scale, rest_scale, groups, rows, masks, out):
    """Write the blocks of a long list that a message may lie in into ``out``; return how many.

    :param start: the list's first block; ``blocks``: how many it has.
    :param groups: int64[], ``rows`` and ``masks`` alike: scratch.
    """
    n = 0
    for u in range((blocks + LANES ** 2 - 1) // LANES ** 2):
        mask = near_bounds(upper, first_upper + u, x, y, near_scale, first_scale, rest_scale)
        rows[n], masks[n] = u, mask
        n += mask != 0
    n_groups = spread(rows, masks, n, 0, groups)
    sink = 0
    for i in range(n_groups):
        sink += touch(bound, first_group + groups[i])
    n = 0
    for i in range(n_groups):
        g = groups[i]
        mask = near_bounds(bound, first_group + g, x, y, near_scale, first_scale, rest_scale)
        rows[n], masks[n] = g, mask
        n += mask != 0
    return spread(rows, masks, n, start, out), sink


@njit(cache=True, inline="always")
def place_of(term, turn, keys):
    """Return where a dense term id is in ``keys`` if it is there."""
    return (term ^ (term >> turn)) & np.int64(keys.shape[0] - 1)


@njit(cache=True)
def enter_terms(ids, n, keys):
    """Enter the terms (those >= 0 among ``ids[:n]``) of a message, each where no other is; return (keys, turn).

    :param keys: int64[m], m a power of two, all -1; a longer one is returned if need be.
    """
    turn, size = np.int64(12), keys.shape[0]
    while size < min(n * n // 2, 65536):        # as many as give an even chance
        size *= 2
    if size > keys.shape[0]:
        keys = np.full(size, -1, np.int64)
    while True:
        i = 0
        while i < n:
            if ids[i] >= 0:
                at = place_of(ids[i], turn, keys)
                if keys[at] >= 0 and keys[at] != ids[i]:
                    break
                keys[at] = ids[i]
            i += 1
        if i == n:
            return keys, turn
        keys[:] = -1
        turn -= 1
        if turn == 0:
            turn, keys = np.int64(12), np.full(2 * keys.shape[0], -1, np.int64)


@njit(cache=True)
def match(lon, lat, offsets, terms, weights, key, local, lists, table, place, frame, step, diagonal_deg):
    """Return (message, slot, score) of what reaches its threshold, ordered by message, then slot.

    :param step: what a step of distance is in steps of score, for a step of NEAR.
    """
    n_out = 0
    out_message, out_slot, out_score = np.empty(1024, np.int32), np.empty(1024, np.int32), np.empty(1024)
    found, groups, blocks, lanes = np.empty(1024, np.int32), np.empty(80, np.int64), np.empty(1024, np.int64), np.empty(4096, np.int64)
    begin, count = np.empty(1024, np.int64), np.empty(1024, np.int64)
    passed, passed_score = np.empty(1024, np.int64), np.empty(1024)
    rows, masks = np.empty(1024, np.int64), np.empty(1024, np.int64)
    gain = np.zeros(256, np.float32)
    near_scale = np.float32(step)
    far = 1e15
    ids, ends = np.empty(16, np.int64), np.empty(16, np.int64)
    keys, weight_of = np.full(512, -1, np.int64), np.zeros(512)
    sink = 0.0
    for m in range(lon.shape[0]):
        first, last = offsets[m], offsets[m + 1]
        if last - first > ids.shape[0]:
            ids, ends = np.empty(2 * (last - first), np.int64), np.empty(2 * (last - first), np.int64)
        x = np.float32(min(max((lon[m] - frame[0]) * frame[2], -far), far))
        y = np.float32(min(max((lat[m] - frame[1]) * frame[2], -far), far))
        for i in range(first, last):
            term = np.int64(find_term(terms[i], key, local))
            ids[i - first] = term
        # No two at one place: then no keyword is looked for twice, and no branch depends on whether it is common.
        keys, turn = enter_terms(ids, last - first, keys)
        if weight_of.shape[0] < keys.shape[0]:
            weight_of = np.zeros(keys.shape[0])
        for i in range(first, last):
            if ids[i - first] >= 0:
                weight_of[place_of(ids[i - first], turn, keys)] = weights[i]
        n = 0
        later = 0.0
        # From the most frequent term to the rarest: codes and the highest weight are then those of the later terms.
        for i in range(last - first - 1, -1, -1):
            term = ids[i]
            ends[i] = n
            if term < 0:
                continue
            weight = weights[first + i]
            number = lists.ids[term, BIG] - 1
            if number >= 0:
                first_scale, rest_scale = np.float32(min(weight, 1e30)), np.float32(min(later, 1e30))
                n_blocks = (lists.big[number, USED] + LANES - 1) // LANES
                start = lists.lanes[number, START]
                if n_blocks + LANES > blocks.shape[0]:
                    blocks = np.empty(2 * n_blocks + LANES, np.int64)
                    groups = np.empty(blocks.shape[0] // LANES + 2 * LANES, np.int64)
                    rows, masks = np.empty_like(blocks), np.empty_like(blocks)
                if lists.groups[number, CAPACITY]:
                    n_blocks, touched = near_blocks(lists.upper, lists.bound, lists.uppers[number, START], lists.groups[number, START], start,
                                           n_blocks, x, y, near_scale, first_scale, rest_scale, groups, rows, masks, blocks)
                    sink += touched
                else:
                    for b in range(n_blocks):
                        blocks[b] = start + b
                if n_blocks * LANES >= lanes.shape[0]:
                    lanes = np.empty(2 * n_blocks * LANES + 1, np.int64)
                n_lanes, touched = scan_blocks(lists.field, blocks, n_blocks, x, y, near_scale, first_scale, rest_scale, masks, lanes)
                sink += touched
                found = room_for(found, n, n_lanes + 1)
                n, touched = test_codes(lists.field, lists.tail, lanes, n_lanes, x, y, near_scale, first_scale, gain, found, n)
                sink += touched
            else:
                length = lists.ids[term, LENGTH]
                found = room_for(found, n, length)
                for e in range(lists.ids[term, START], lists.ids[term, START] + length):
                    found[n] = lists.id_slot[e]
                    n += 1
            later = max(later, weight)
            code = hashed(term)
            gain[code] = max(gain[code], np.float32(min(weight, 1e30) * (STEPS / 255.0)))
        # Read what the checks will need: the memory fetches it side by side.
        if n > begin.shape[0]:
            begin, count = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
            passed, passed_score = np.empty(2 * n, np.int64), np.empty(2 * n)
        for c in range(n):
            slot = np.int64(found[c])
            begin[c], count[c] = table.block[slot, START], table.block[slot, LENGTH]
            sink += place[slot, LON]
        for c in range(n):
            at = begin[c] + count[c] - 1
            sink += table.weight[begin[c]] + table.weight[at] + table.term[begin[c]] + table.term[at]
        n_passed = 0
        for i in range(last - first):
            term = ids[i]
            if term < 0:
                continue
            for c in range(ends[i], ends[i - 1] if i else n):
                slot = np.int64(found[c])
                first_common, text = np.int64(-1), 0.0
                for at in range(begin[c], begin[c] + count[c]):
                    other = np.int64(table.term[at])
                    h = place_of(other, turn, keys)
                    part = table.weight[at] * weight_of[h]
                    common = keys[h] == other
                    text += part if common else 0.0
                    first_common = other if common & (first_common < 0) else first_common
                if first_common != term:
                    continue        # an earlier keyword is common: the match is found in its list
                spatial = ssim(lon[m] - place[slot, LON], lat[m] - place[slot, LAT], diagonal_deg)
                result = combined_score(place[slot, ALPHA], spatial, text)
                if result >= place[slot, THRESHOLD]:
                    passed[n_passed], passed_score[n_passed] = (slot << np.int64(32)) | n_passed, result
                    n_passed += 1
        passed[:n_passed].sort()
        if n_out + n_passed > out_slot.shape[0]:
            out_message, out_slot = room_for(out_message, n_out, n_passed), room_for(out_slot, n_out, n_passed)
            out_score = room_for(out_score, n_out, n_passed)
        for c in range(n_passed):
            out_message[n_out], out_slot[n_out] = m, passed[c] >> np.int64(32)
            out_score[n_out] = passed_score[passed[c] & np.int64(0xFFFFFFFF)]
            n_out += 1
        for i in range(last - first):
            if ids[i] >= 0:
                gain[hashed(ids[i])] = np.float32(0)
                keys[place_of(ids[i], turn, keys)] = -1
    return out_message[:n_out].copy(), out_slot[:n_out].copy(), out_score[:n_out].copy(), sink
