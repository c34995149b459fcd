"""Kernels that find the cones a message may lie in, by bounds, cones and codes. They import numpy and numba only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.topk.cones._kernels import (
    BOTH1,
    CAPACITY,
    CODE,
    CODES,
    FIRST,
    FIRST1,
    LANES,
    NEAR,
    NEAR0,
    NEED,
    NEED0,
    OPEN,
    PART,
    REST,
    START,
    STEPS,
    USED,
    WEIGHTS,
    X0,
    X1,
    Y0,
    Y1,
    X,
    Y,
    hashed,
)
from dskype.topology.kernel_cache import njit

# The place of the only bit of a 16-bit number, by (number * _SPREAD >> 12) & 15 (de Bruijn).
_SPREAD = np.int64(0x09AF)
_ZERO = np.uint8(0)
_POSITIVE = np.int64(2**62 - 1)  # n & _POSITIVE cannot be negative, so the compiler omits the code for indexes from the end
_BIT = np.zeros(LANES, np.int32)
for _j in range(LANES):
    _BIT[((1 << _j) * int(_SPREAD) >> 12) & 15] = _j


class Point(NamedTuple):
    """Where a message is, in the units of cones.

    :ivar x: float32, steps from the west of the frame; may lie outside.
    :ivar y: float32, steps from its south.
    :ivar near_scale: float32, a step of distance in steps of score, for a step of NEAR.
    """

    x: np.float32
    y: np.float32
    near_scale: np.float32


class Keywords(NamedTuple):
    """The terms of one message, and their long lists. All arrays have the same number of rows, at least one per term.

    :ivar ids: int64[n], the dense id of each term, in the message's order; -1: no subscription has it.
    :ivar numbers: int64[n], the long lists, from that of the last term to that of the first.
    :ivar nth: int64[n], for each long list the place of its term in ``ids``.
    :ivar scales: float32[n, 2], for each long list the weight of its term and the highest weight of a later term.
    :ivar group_ends: int64[n], where the groups of each long list end in ``Hits.groups``.
    :ivar ends: int64[n], where its blocks end in ``Hits.blocks``.
    """

    ids: np.ndarray
    numbers: np.ndarray
    nth: np.ndarray
    scales: np.ndarray
    group_ends: np.ndarray
    ends: np.ndarray


class Hits(NamedTuple):
    """The groups and blocks that have passed the tests so far, of all lists of one message, and scratch.

    :ivar groups: int64[g], rows of ``Lists.bound``; g is above the number of groups of all lists together.
    :ivar rows: int64[g], scratch.
    :ivar blocks: int64[b], rows of ``Lists.field``; b is above the number of blocks of all lists together, and not below g.
    :ivar masks: int64[b], one bit per cone of a block.
    """

    groups: np.ndarray
    rows: np.ndarray
    blocks: np.ndarray
    masks: np.ndarray


class Codes(NamedTuple):
    """The codes of a message's later terms, see :func:`code_terms`.

    :ivar codes: uint8[> terms + 3].
    :ivar gains: uint8[> terms + 3], weights in 255ths of the highest.
    :ivar gain: uint8[64], scratch.
    """

    codes: np.ndarray
    gains: np.ndarray
    gain: np.ndarray


@njit(cache=True)
def new_keywords(n):
    """Return room for ``n`` terms."""
    ids, numbers, nth = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    return Keywords(ids, numbers, nth, np.empty((n, 2), np.float32), np.empty(n, np.int64), np.empty(n, np.int64))


@njit(cache=True)
def new_codes(n):
    """Return room for ``n`` codes."""
    return Codes(np.zeros(n, np.uint8), np.zeros(n, np.uint8), np.zeros(CODES * LANES, np.uint8))


@njit(cache=True)
def new_hits(groups, blocks):
    """Return room for ``groups`` groups and ``blocks`` blocks."""
    return Hits(np.empty(groups, np.int64), np.empty(groups, np.int64), np.empty(blocks, np.int64), np.empty(blocks, np.int64))


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
    """Read every cache line of a row (uint16[., 6 or 8, 16]), so that memory fetches rows in parallel."""
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


# The following steps are done one after the other, each for all lists of a message. So the reads of a step run in parallel, and the
# wait for memory is once per step. ``ends[l]`` says where the entries of list ``l`` end in an array.


@njit(cache=True)
def near_groups(lists, keywords, n_lists, point, hits):
    """Write the groups of long lists that a message may lie in into ``hits.groups``; lists without bounds have none. Return (number, sink)."""
    numbers, scales, ends, rows, masks, groups = keywords.numbers, keywords.scales, keywords.group_ends, hits.rows, hits.masks, hits.groups
    sink = 0
    for l in range(n_lists):
        if lists.groups[numbers[l], CAPACITY]:
            sink += touch(lists.upper, lists.uppers[numbers[l], START])
    n = 0
    for l in range(n_lists):
        number = numbers[l]
        if lists.groups[number, CAPACITY]:
            first, n_rows = lists.uppers[number, START], 0
            for u in range((lists.long[number, USED] + LANES**3 - 1) // LANES**3):
                mask = near_bounds(lists.upper, first + u, point.x, point.y, point.near_scale, scales[l, 0], scales[l, 1])
                rows[n_rows], masks[n_rows] = u, mask
                n_rows += mask != 0
            n = spread(rows, masks, 0, n_rows, lists.groups[number, START], groups, n)
        ends[l] = n
    return n, sink


@njit(cache=True)
def near_blocks(lists, keywords, n_lists, point, hits):
    """Write the blocks of long lists that a message may lie in into ``hits.blocks``. Return (number, sink)."""
    numbers, scales, group_ends, ends = keywords.numbers, keywords.scales, keywords.group_ends, keywords.ends
    rows, masks, groups, blocks = hits.rows, hits.masks, hits.groups, hits.blocks
    sink, low, n = 0, 0, 0
    for i in range(group_ends[n_lists - 1]):
        sink += touch(lists.bound, groups[i])
    for l in range(n_lists):
        number, high = numbers[l], group_ends[l]
        start = lists.lanes[number, START]
        if lists.groups[number, CAPACITY]:
            first, n_rows = lists.groups[number, START], 0
            for i in range(low, high):
                mask = near_bounds(lists.bound, groups[i], point.x, point.y, point.near_scale, scales[l, 0], scales[l, 1])
                rows[n_rows], masks[n_rows] = groups[i] - first, mask
                n_rows += mask != 0
            n = spread(rows, masks, 0, n_rows, start, blocks, n)
        else:
            for b in range((lists.long[number, USED] + LANES - 1) // LANES):
                blocks[n] = start + b
                n += 1
        low, ends[l] = high, n
    return n, sink


@njit(cache=True)
def scan_blocks(field, keywords, n_lists, point, hits):
    """Keep the blocks of ``hits`` with cones that pass the test; write which cones into ``hits.masks``. Return (number, sink).

    It has no branches, so the processor reads many blocks at the same time.
    """
    scales, ends, blocks, masks, x, y, near_scale = keywords.scales, keywords.ends, hits.blocks, hits.masks, point.x, point.y, point.near_scale
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

    :param codes: uint8[], codes of terms; ``gains``: uint8[], their gains; ``n``: their number, a multiple of 4.
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
    """Return which of the cones in ``field[row]`` a message may lie in, given the codes of later keywords, one bit each."""
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
def code_terms(ids, weights, low, high, later, codes, gains):
    """Write the codes of the terms ``low..high - 1`` of a message and their weights, in 255ths of ``later``; return their number, a multiple of 4.

    :param ids: int64[n], -1: no subscription has the term; ``weights``: float64[n].
    :param codes: uint8[> n + 3]; ``gains`` alike.
    """
    codes[0], gains[0] = OPEN, OPEN
    n = 1
    for j in range(low, high):
        if ids[j] >= 0 and weights[j] > 0.0:
            codes[n], gains[n] = hashed(ids[j]), np.int64(np.ceil(min(weights[j] / later, 1.0) * WEIGHTS))
            n += 1
    while n & 3:
        codes[n], gains[n] = 0, 0
        n += 1
    return n


@njit(cache=True)
def test_codes(field, code, keywords, n_lists, point, hits, weights, coded):
    """Keep the blocks of ``hits`` with cones in their masks that pass the test of codes, and update the masks. Return (number, sink).

    :param weights: float64[terms], of the message.
    :param coded: :class:`Codes`, scratch.
    """
    scales, ends, nth, blocks, masks = keywords.scales, keywords.ends, keywords.nth, hits.blocks, hits.masks
    codes, gains, gain, x, y, near_scale = coded.codes, coded.gains, coded.gain, point.x, point.y, point.near_scale
    sink, low, n = 0, 0, 0
    for i in range(ends[n_lists - 1]):
        sink += np.int64(code[blocks[i], CODE, 0]) + np.int64(code[blocks[i], PART, 0])
    for l in range(n_lists):
        first_scale, part_scale = scales[l, 0], scales[l, 1] * np.float32(STEPS / WEIGHTS / WEIGHTS)
        n_codes = code_terms(keywords.ids, weights, nth[l] + 1, weights.shape[0], np.float64(scales[l, 1]), codes, gains)
        for i in range(low, ends[l]):
            b = blocks[i]
            heaviest(code, b, codes, gains, n_codes, gain)
            mask = near_parts(field, code, b, gain, x, y, near_scale, first_scale, part_scale) & masks[i]
            blocks[n], masks[n] = b, mask
            n += mask != 0
        low, ends[l] = ends[l], n
    return n, sink
