"""Kernels that search the lists of cones for messages. Imports numpy and numba only."""

from __future__ import annotations

import numpy as np
from numba import njit

from dskype.bolts._kernels import score as combined_score
from dskype.bolts._kernels import ssim
from dskype.bolts.topk._kernels import find_term
from dskype.bolts.topk.cones._kernels import (
    ALPHA,
    BIG,
    BOTH1,
    CAPACITY,
    CODE,
    CODES,
    FIRST,
    FIRST1,
    LANES,
    LAT,
    LENGTH,
    LON,
    NEAR,
    NEAR0,
    NEED,
    NEED0,
    OPEN,
    PART,
    REST,
    START,
    STEPS,
    THRESHOLD,
    USED,
    WEIGHTS,
    X0,
    X1,
    Y0,
    Y1,
    X,
    Y,
    hashed,
    room_for,
)

# Where the one bit of a 16-bit number is, by (number * _SPREAD >> 12) & 15 (de Bruijn).
_SPREAD = np.int64(0x09AF)
_BITS, _LAST = np.int64(4), np.int64(LANES - 1)
_ZERO = np.uint8(0)
_POSITIVE = np.int64(2**62 - 1)  # n & _POSITIVE: no index from the end, so none is looked for
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
        room = np.float32(bounds[row, FIRST1, j]) * more + np.float32(bounds[row, BOTH1, j]) * rest_scale + (shift - np.float32(bounds[row, NEED0, j]))
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
        room = np.float32(field[row, FIRST, j]) * first_scale + np.float32(field[row, REST, j]) * rest_scale + (shift - np.float32(field[row, NEED, j]))
        room = far if field[row, NEED, j] == 0 else room
        mask |= np.int64((room >= zero) & (slope * slope * (dx * dx + dy * dy) <= room * room)) << np.int64(j)
    return mask


@njit(cache=True, inline="always")
def touch(rows, row):
    """Read every cache line of a row (uint16[., 6 or 8, 16]): the memory fetches rows side by side, not one after another."""
    return np.int64(rows[row, 0, 0]) + np.int64(rows[row, 2, 0]) + np.int64(rows[row, 4, 0]) + np.int64(rows[row, rows.shape[1] - 1, 15])


@njit(cache=True)
def spread(rows, masks, low, high, shift, out, n):
    """Write ``16 * row + bit + shift`` for all bits of ``masks[low:high]`` into ``out``, from ``n`` on; return where they end."""
    for i in range(low, high):
        mask, first = masks[i], rows[i] * LANES + shift
        while mask:
            low_bit = mask & -mask
            out[n & _POSITIVE] = first + _BIT[(low_bit * _SPREAD >> np.int64(12)) & np.int64(15)]
            mask ^= low_bit
            n += 1
    return n


# What follows is done for all lists of a message, one step after the other: so what a step reads is read side by side, and the wait
# for the memory is once per step. ``ends[l]`` says where the entries of list ``l`` end in an array.


@njit(cache=True)
def near_groups(lists, numbers, scales, n_lists, x, y, near_scale, rows, masks, groups, ends):
    """Write the groups (rows of bound) of lists that a message may lie in into ``groups``; none for a list without bounds.

    :param scales: float32[n_lists, 2]: weight of the list's term, and the highest of a later one.
    :param rows: int64[], ``masks`` alike: scratch.
    """
    sink = 0
    for l in range(n_lists):
        if lists.groups[numbers[l], CAPACITY]:
            sink += touch(lists.upper, lists.uppers[numbers[l], START])
    n = 0
    for l in range(n_lists):
        number = numbers[l]
        if lists.groups[number, CAPACITY]:
            first, n_rows = lists.uppers[number, START], 0
            for u in range((lists.big[number, USED] + LANES**3 - 1) // LANES**3):
                mask = near_bounds(lists.upper, first + u, x, y, near_scale, scales[l, 0], scales[l, 1])
                rows[n_rows], masks[n_rows] = u, mask
                n_rows += mask != 0
            n = spread(rows, masks, 0, n_rows, lists.groups[number, START], groups, n)
        ends[l] = n
    return n, sink


@njit(cache=True)
def near_blocks(lists, numbers, scales, n_lists, x, y, near_scale, rows, masks, groups, group_ends, blocks, ends):
    """Write the blocks of lists that a message may lie in into ``blocks``."""
    sink, low, n = 0, 0, 0
    for i in range(group_ends[n_lists - 1]):
        sink += touch(lists.bound, groups[i])
    for l in range(n_lists):
        number, high = numbers[l], group_ends[l]
        start = lists.lanes[number, START]
        if lists.groups[number, CAPACITY]:
            first, n_rows = lists.groups[number, START], 0
            for i in range(low, high):
                mask = near_bounds(lists.bound, groups[i], x, y, near_scale, scales[l, 0], scales[l, 1])
                rows[n_rows], masks[n_rows] = groups[i] - first, mask
                n_rows += mask != 0
            n = spread(rows, masks, 0, n_rows, start, blocks, n)
        else:
            for b in range((lists.big[number, USED] + LANES - 1) // LANES):
                blocks[n] = start + b
                n += 1
        low, ends[l] = high, n
    return n, sink


@njit(cache=True)
def scan_blocks(field, scales, n_lists, x, y, near_scale, blocks, masks, ends):
    """Keep those of ``blocks`` in which cones pass their test, and which ones in ``masks``; return how many.

    Without branches: then the processor reads many blocks at the same time.
    """
    sink, low, n = 0, 0, 0
    for i in range(ends[n_lists - 1]):
        sink += touch(field, blocks[i])
    for l in range(n_lists):
        first_scale, rest_scale = scales[l, 0], scales[l, 1]
        for i in range(low, ends[l]):
            b = blocks[i]
            mask = near_cones(field, b, x, y, near_scale, first_scale, rest_scale)
            blocks[n], masks[n] = b, mask
            n += mask != 0
        low, ends[l] = ends[l], n
    return n, sink


@njit(cache=True, inline="always")
def heaviest(code, row, codes, gains, n, gain):
    """Write the highest gain of a term with that code into ``gain`` (uint8[64]) for every code in ``code[row]``.

    :param codes: uint8[], of terms; ``gains`` alike; ``n``: how many, a multiple of 4.
    """
    for q in range(CODES * LANES):
        gain[q] = 0
    for t in range(0, n, 4):
        c0, c1, c2, c3 = codes[t], codes[t + 1], codes[t + 2], codes[t + 3]
        g0, g1, g2, g3 = gains[t], gains[t + 1], gains[t + 2], gains[t + 3]
        for q in range(CODES * LANES):
            c, g = code[row, CODE, q], gain[q]
            h0, h1 = g0 if c == c0 else _ZERO, g1 if c == c1 else _ZERO
            h2, h3 = g2 if c == c2 else _ZERO, g3 if c == c3 else _ZERO
            h0, h2 = h0 if h0 > h1 else h1, h2 if h2 > h3 else h3
            h0 = h0 if h0 > h2 else h2
            gain[q] = h0 if h0 > g else g


@njit(cache=True, inline="always")
def near_parts(field, code, row, gain, x, y, near_scale, first_scale, part_scale):
    """Return which of the cones in ``field[row]`` a message may lie in, with what the codes say of later keywords, one bit each."""
    zero, shift, far = np.float32(0), np.float32(32768), np.float32(1e18)
    mask = np.int64(0)
    for j in range(LANES):
        parts = np.int32(
            np.int32(gain[j]) * np.int32(code[row, PART, j])
            + np.int32(gain[j + 16]) * np.int32(code[row, PART, j + 16])
            + np.int32(gain[j + 32]) * np.int32(code[row, PART, j + 32])
            + np.int32(gain[j + 48]) * np.int32(code[row, PART, j + 48])
        )
        dx, dy = x - np.float32(field[row, X, j]), y - np.float32(field[row, Y, j])
        slope = np.float32(field[row, NEAR, j]) * near_scale
        room = np.float32(field[row, FIRST, j]) * first_scale + np.float32(parts) * part_scale + (shift - np.float32(field[row, NEED, j]))
        room = far if field[row, NEED, j] == 0 else room
        mask |= np.int64((room >= zero) & (slope * slope * (dx * dx + dy * dy) <= room * room)) << np.int64(j)
    return mask


@njit(cache=True)
def code_terms(ids, weights, first, low, high, later, codes, gains):
    """Write the codes of the terms ``low..high - 1`` of a message and their weights, in 255ths of ``later``; return how many, a multiple of 4."""
    codes[0], gains[0] = OPEN, OPEN
    n = 1
    for j in range(low, high):
        if ids[j] >= 0 and weights[first + j] > 0.0:
            codes[n], gains[n] = hashed(ids[j]), np.int64(np.ceil(min(weights[first + j] / later, 1.0) * WEIGHTS))
            n += 1
    while n & 3:
        codes[n], gains[n] = 0, 0
        n += 1
    return n


@njit(cache=True)
def test_codes(field, code, scales, n_lists, x, y, near_scale, blocks, masks, ends, ids, nth, n_ids, weights, first, codes, gains, gain):
    """Keep those of ``blocks`` in which cones of ``masks`` pass the test of the codes, and which ones; return how many.

    :param ids: int64[n_ids], of the message's terms; their weights are at ``first`` in ``weights``; that of list ``l`` is ``nth[l]``.
    :param codes: uint8[> n_ids + 3], ``gains`` alike, ``gain`` uint8[64]: scratch.
    """
    sink, low, n = 0, 0, 0
    for i in range(ends[n_lists - 1]):
        sink += np.int64(code[blocks[i], CODE, 0]) + np.int64(code[blocks[i], PART, 0])
    for l in range(n_lists):
        first_scale, part_scale = scales[l, 0], scales[l, 1] * np.float32(STEPS / WEIGHTS / WEIGHTS)
        n_codes = code_terms(ids, weights, first, nth[l] + 1, n_ids, np.float64(scales[l, 1]), codes, gains)
        for i in range(low, ends[l]):
            b = blocks[i]
            heaviest(code, b, codes, gains, n_codes, gain)
            mask = near_parts(field, code, b, gain, x, y, near_scale, first_scale, part_scale) & masks[i]
            blocks[n], masks[n] = b, mask
            n += mask != 0
        low, ends[l] = ends[l], n
    return n, sink


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
    while size < min(n * n // 2, 65536):  # as many as give an even chance
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
def sort_passed(values, n, bits, spare, counts):
    """Return ``values`` (or ``spare``, as large) with the first ``n`` in order of what they hold above 32 bits, of ``bits`` bits (radix sort).

    :param counts: int64[256], scratch.
    """
    if n <= 24:
        for i in range(1, n):
            value = values[i]
            j = i - 1
            while j >= 0 and values[j] > value:
                values[j + 1] = values[j]
                j -= 1
            values[j + 1] = value
        return values
    rounds = (bits + 7) // 8
    width = (bits + rounds - 1) // rounds
    last = (np.int64(1) << width) - 1
    for r in range(rounds):
        shift = 32 + r * width
        for d in range(last + 1):
            counts[d] = 0
        for i in range(n):
            counts[(values[i] >> shift) & last] += 1
        end = 0
        for d in range(last + 1):
            size = counts[d]
            counts[d] = end
            end += size
        for i in range(n):
            d = (values[i] >> shift) & last
            spare[counts[d] & _POSITIVE] = values[i]
            counts[d] += 1
        values, spare = spare, values
    return values


@njit(cache=True)
def match(lon, lat, offsets, terms, weights, key, local, lists, table, place, frame, step, diagonal_deg):
    """Return (message, slot, score) of what reaches its threshold, ordered by message, then slot.

    :param step: what a step of distance is in steps of score, for a step of NEAR.
    """
    n_out = 0
    out_message, out_slot, out_score = np.empty(1024, np.int32), np.empty(1024, np.int32), np.empty(1024)
    groups, rows, blocks, masks = np.empty(128, np.int64), np.empty(128, np.int64), np.empty(1024, np.int64), np.empty(1024, np.int64)
    found, origin, begin, count = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024, np.int64)
    passed, passed_score, spare, counts = np.empty(1024, np.int64), np.empty(1024), np.empty(1024, np.int64), np.empty(256, np.int64)
    ids, nth, numbers = np.empty(12, np.int64), np.empty(12, np.int64), np.empty(12, np.int64)
    ends, group_ends, scales = np.empty(12, np.int64), np.empty(12, np.int64), np.empty((12, 2), np.float32)
    codes, gains, gain = np.zeros(16, np.uint8), np.zeros(16, np.uint8), np.zeros(CODES * LANES, np.uint8)
    keys, weight_of = np.full(512, -1, np.int64), np.zeros(512)
    near_scale, far, bits = np.float32(step), 1e15, 1
    while place.shape[0] >> bits:
        bits += 1
    sink = 0.0
    for m in range(lon.shape[0]):
        first, n_ids = offsets[m], offsets[m + 1] - offsets[m]
        if n_ids > ids.shape[0]:
            ids, nth, numbers = np.empty(2 * n_ids, np.int64), np.empty(2 * n_ids, np.int64), np.empty(2 * n_ids, np.int64)
            ends, group_ends, scales = np.empty(2 * n_ids, np.int64), np.empty(2 * n_ids, np.int64), np.empty((2 * n_ids, 2), np.float32)
            codes, gains = np.zeros(2 * n_ids + 4, np.uint8), np.zeros(2 * n_ids + 4, np.uint8)
        x = np.float32(min(max((lon[m] - frame[0]) * frame[2], -far), far))
        y = np.float32(min(max((lat[m] - frame[1]) * frame[2], -far), far))
        for i in range(n_ids):
            ids[i] = find_term(terms[first + i], key, local)
        # No two at one place: then no keyword is looked for twice, and no branch depends on whether it is common.
        keys, turn = enter_terms(ids, n_ids, keys)
        if weight_of.shape[0] < keys.shape[0]:
            weight_of = np.zeros(keys.shape[0])
        n_lists, n_groups, n_blocks, n, later = 0, 0, 0, 0, 0.0
        for i in range(n_ids - 1, -1, -1):
            term = ids[i]
            if term < 0:
                continue
            weight = weights[first + i]
            weight_of[place_of(term, turn, keys)] = weight
            number = lists.ids[term, BIG] - 1
            if number >= 0:
                numbers[n_lists], nth[n_lists] = number, i
                scales[n_lists, 0], scales[n_lists, 1] = min(weight, 1e30), min(later, 1e30)
                n_lists += 1
                n_groups += lists.groups[number, CAPACITY]
                n_blocks += lists.lanes[number, CAPACITY]
            else:
                length = lists.ids[term, LENGTH]
                found, origin = room_for(found, n, length), room_for(origin, n, length)
                for e in range(lists.ids[term, START], lists.ids[term, START] + length):
                    found[n], origin[n] = lists.id_slot[e], term
                    n += 1
            later = max(later, weight)
        if n_lists:
            if n_groups + LANES > groups.shape[0]:
                groups, rows = np.empty(2 * n_groups, np.int64), np.empty(2 * n_groups, np.int64)
            if n_blocks + LANES > blocks.shape[0]:
                blocks, masks = np.empty(2 * n_blocks, np.int64), np.empty(2 * n_blocks, np.int64)
            _, touched = near_groups(lists, numbers, scales, n_lists, x, y, near_scale, rows, masks, groups, group_ends)
            sink += touched
            _, touched = near_blocks(lists, numbers, scales, n_lists, x, y, near_scale, rows, masks, groups, group_ends, blocks, ends)
            sink += touched
            _, touched = scan_blocks(lists.field, scales, n_lists, x, y, near_scale, blocks, masks, ends)
            sink += touched
            n_blocks, touched = test_codes(
                lists.field, lists.code, scales, n_lists, x, y, near_scale, blocks, masks, ends, ids, nth, n_ids, weights, first, codes, gains, gain
            )
            sink += touched
            for i in range(n_blocks):
                sink += lists.slot[blocks[i], 0]
            low = 0
            for l in range(n_lists):
                found, origin = room_for(found, n, LANES * (ends[l] - low) + 1), room_for(origin, n, LANES * (ends[l] - low) + 1)
                high = spread(blocks, masks, low, ends[l], 0, found, n)
                for c in range(n, high):
                    lane, origin[c] = found[c], ids[nth[l]]
                    found[c] = lists.slot[lane >> _BITS, lane & _LAST]
                low, n = ends[l], high
        # Read what the checks will need: the memory fetches it side by side.
        if n > begin.shape[0]:
            begin, count = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
            passed, passed_score, spare = np.empty(2 * n, np.int64), np.empty(2 * n), np.empty(2 * n, np.int64)
        for c in range(n):
            slot = found[c]
            begin[c], count[c] = table.block[slot, START], table.block[slot, LENGTH]
            sink += place[slot, LON]
        for c in range(n):
            at = begin[c] + count[c] - 1
            sink += table.weight[begin[c]] + table.weight[at] + table.term[begin[c]] + table.term[at]
        n_passed = 0
        for c in range(n):
            slot = found[c]
            first_common, text = np.int64(-1), 0.0
            for at in range(begin[c], begin[c] + count[c]):
                other = np.int64(table.term[at])
                h = place_of(other, turn, keys)
                part = table.weight[at] * weight_of[h]
                common = keys[h] == other
                text += part if common else 0.0
                first_common = other if common & (first_common < 0) else first_common
            spatial = ssim(lon[m] - place[slot, LON], lat[m] - place[slot, LAT], diagonal_deg)
            result = combined_score(place[slot, ALPHA], spatial, text)
            # When an earlier keyword is common, the match is found in its list.
            passed[n_passed], passed_score[n_passed] = (slot << np.int64(32)) | n_passed, result
            n_passed += np.int64((first_common == origin[c]) & (result >= place[slot, THRESHOLD]))
        ordered = sort_passed(passed, n_passed, bits, spare, counts)
        if n_out + n_passed > out_slot.shape[0]:
            out_message, out_slot = room_for(out_message, n_out, n_passed), room_for(out_slot, n_out, n_passed)
            out_score = room_for(out_score, n_out, n_passed)
        for c in range(n_passed):
            out_message[n_out], out_slot[n_out] = m, ordered[c] >> np.int64(32)
            out_score[n_out] = passed_score[ordered[c] & np.int64(0xFFFFFFFF)]
            n_out += 1
        for i in range(n_ids):
            if ids[i] >= 0:
                keys[place_of(ids[i], turn, keys)] = -1
    return out_message[:n_out].copy(), out_slot[:n_out].copy(), out_score[:n_out].copy(), sink
