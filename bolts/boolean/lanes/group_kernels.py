"""Kernels of groups: up to 256 postings with 16-bit rectangles in the frame of the group, in blocks of 16. Imports numpy and numba only.

A number of degrees becomes 16 bits by one rising function per frame, so that rectangles that overlap do so in 16 bits, too, and
those that do by more than an edge in 16 bits overlap. New postings are appended; when the blocks of a group are full, all its
postings are put in order (halved again and again in the direction in which they lie further apart), with one or two more blocks,
or the group is split. So a change costs the postings of one group at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.core import types

from dskype.bolts.boolean.lanes._kernels import (
    BLOCK,
    BLOCKS,
    BOUNDS,
    CLAMPED,
    CODE,
    CODES_MOST,
    DEAD,
    DEAD_SLOT,
    FAR_DEG,
    GROUP_LANES,
    LANES,
    PARENT,
    SCALE_X,
    SCALE_Y,
    SLOT,
    TERM,
    USED,
    X0,
    Y0,
    box_of_posting,
    free_blocks,
    move,
    new_blocks,
    new_group,
    settle,
)
from dskype.bolts.boolean.lanes.address_kernels import Field, opener
from dskype.bolts.selection_kernels import select
from dskype.topology.kernel_cache import njit

_TOP = 65535
_STEPS = 65530.0  # of the wanted part of a frame
_LEAST_DEG = 1e-6  # smallest extent of a frame: a step of it is still much larger than the rounding of a float64
_NARROW = 16384  # of the steps of a frame: when a group has shrunk to this, it gets a frame of its own
_SPLIT_ABOVE = 224
_ROOM = 2 * GROUP_LANES


class Work(NamedTuple):
    """Postings that are put in order.

    :ivar edges: int64[n, 4]: west, south, east, north, 16 bits each.
    :ivar boxes: float64[n, 4], the same in degrees, where they are needed.
    :ivar codes: uint16[n, 4].
    :ivar marks: int32[n], slots with their flags.
    :ivar places: int64[n], where they are now.
    :ivar order: int64[n], rows of the others in the order wanted.
    :ivar keys: int64[n], :ivar stack: int64[16, 2], :ivar costs: float32[16], scratch.
    """

    edges: np.ndarray
    boxes: np.ndarray
    codes: np.ndarray
    marks: np.ndarray
    places: np.ndarray
    order: np.ndarray
    keys: np.ndarray
    stack: np.ndarray
    costs: np.ndarray


def new_work():
    """Return room for the postings of two groups."""
    n = _ROOM
    return Work(
        np.empty((n, 4), np.int64),
        np.empty((n, 4)),
        np.empty((n, 4), np.uint16),
        np.empty(n, np.int32),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty((16, 2), np.int64),
        np.empty(LANES, np.float32),
    )


_FIELDS = {
    "edges": Field(0, types.int64, 4),
    "boxes": Field(1, types.float64, 4),
    "codes": Field(2, types.uint16, 4),
    "marks": Field(3, types.int32, flat=True),
    "places": Field(4, types.int64, flat=True),
    "order": Field(5, types.int64, flat=True),
    "keys": Field(6, types.int64, flat=True),
    "stack": Field(7, types.int64, 2),
    "costs": Field(8, types.float32, flat=True),
}

opened_work = opener("Work", _FIELDS)
"""Returns a :class:`Work`, given its handle."""


@njit(cache=True, inline="always")
def step_of(value, low, scale):
    """Return the 16 bits of a number of degrees; rising, and the same for rectangles and messages."""
    return np.int64(min(max((value - low) * scale, 0.0), 65535.0))


@njit(cache=True, inline="always")
def lane_place(g, lane):
    """Return what ``places`` says of a lane of a group."""
    return 1 + g * GROUP_LANES + lane


@njit(cache=True)
def is_clamped(value, step):
    """Tell whether a value on Earth is outside of a frame."""
    return (step == 0 or step == _TOP) and abs(value) <= 180.0


@njit(cache=True)
def set_frame(index, g, west, south, east, north):
    """Give a group a frame around a rectangle; what is beyond 180 and 90 degrees is left out."""
    west, east, south, north = max(west, -180.0), min(east, 180.0), max(south, -90.0), min(north, 90.0)
    wide, high = max(east - west, _LEAST_DEG), max(north - south, _LEAST_DEG)
    scale_x, scale_y = _STEPS / wide, _STEPS / high
    index.group_f8[g, X0], index.group_f8[g, Y0] = west - 1.5 / scale_x, south - 1.5 / scale_y
    index.group_f8[g, SCALE_X], index.group_f8[g, SCALE_Y] = scale_x, scale_y
    index.group_i4[g, CLAMPED] = 0


@njit(cache=True)
def gather(index, work, g, n):
    """Write the live postings of a group to ``work``, from row ``n`` on; return where they end."""
    first = np.int64(index.group_i4[g, BLOCK])
    for lane in range(np.int64(index.group_i4[g, USED])):
        b, j = first + lane // LANES, lane % LANES
        mark = index.block_i4[b, SLOT + j]
        if mark != DEAD_SLOT:
            for e in range(4):
                work.edges[n, e] = index.block[b, LANES * e + j]
                work.codes[n, e] = index.block[b, CODE + LANES * e + j]
            work.marks[n], work.places[n], work.order[n] = mark, lane_place(g, lane), n
            n += 1
    return n


@njit(cache=True)
def read_boxes(index, work, low, high):
    """Write the rectangles of postings to ``work.boxes``."""
    for i in range(low, high):
        o = work.order[i]
        box = box_of_posting(index, work.marks[o], work.places[o])
        work.boxes[o, 0], work.boxes[o, 1], work.boxes[o, 2], work.boxes[o, 3] = box


@njit(cache=True)
def fit_frame(index, work, g, low, high, slack):
    """Give a group a frame around postings whose boxes are in ``work``, and them their edges in it.

    :param slack: part of its extent by which the frame is larger on every side, for what may come.
    """
    west, south, east, north = np.inf, np.inf, -np.inf, -np.inf
    for i in range(low, high):
        box = work.boxes[work.order[i]]
        west, south = min(west, box[0] if box[0] > -FAR_DEG else -180.0), min(south, box[1])
        east, north = max(east, box[2] if box[2] < FAR_DEG else 180.0), max(north, box[3])
    wide, high_deg = slack * (east - west), slack * (north - south)
    set_frame(index, g, west - wide, south - high_deg, east + wide, north + high_deg)
    x0, y0 = index.group_f8[g, X0], index.group_f8[g, Y0]
    scale_x, scale_y = index.group_f8[g, SCALE_X], index.group_f8[g, SCALE_Y]
    for i in range(low, high):
        o = work.order[i]
        work.edges[o, 0], work.edges[o, 2] = step_of(work.boxes[o, 0], x0, scale_x), step_of(work.boxes[o, 2], x0, scale_x)
        work.edges[o, 1], work.edges[o, 3] = step_of(work.boxes[o, 1], y0, scale_y), step_of(work.boxes[o, 3], y0, scale_y)


@njit(cache=True)
def _is_narrow(work, low, high, scale_x, scale_y):
    """Tell whether postings use a small part of their frame only."""
    least_x = least_y = np.int64(_TOP)
    most_x = most_y = np.int64(0)
    for i in range(low, high):
        o = work.order[i]
        least_x, most_x = min(least_x, work.edges[o, 0]), max(most_x, work.edges[o, 2])
        least_y, most_y = min(least_y, work.edges[o, 1]), max(most_y, work.edges[o, 3])
    largest = 0.25 * _STEPS / _LEAST_DEG
    return (most_x - least_x < _NARROW and scale_x < largest) or (most_y - least_y < _NARROW and scale_y < largest)


@njit(cache=True)
def halve(work, low, high, at, scale_x, scale_y):
    """Let ``order[low:at]`` be what lies before ``order[at:high]``, in the direction in which the middles are further apart."""
    least_x = least_y = np.int64(2 * _TOP)
    most_x = most_y = np.int64(0)
    for i in range(low, high):
        o = work.order[i]
        x, y = work.edges[o, 0] + work.edges[o, 2], work.edges[o, 1] + work.edges[o, 3]
        least_x, most_x, least_y, most_y = min(least_x, x), max(most_x, x), min(least_y, y), max(most_y, y)
    first = 0 if (most_x - least_x) / scale_x >= (most_y - least_y) / scale_y else 1
    for i in range(low, high):
        o = work.order[i]
        work.keys[i] = ((work.edges[o, first] + work.edges[o, first + 2]) << 32) | o
    select(work.keys, low, high, at)
    for i in range(low, high):
        work.order[i] = work.keys[i] & 0xFFFFFFFF


@njit(cache=True)
def put_in_order(work, low, high, scale_x, scale_y):
    """Put postings in an order in which each 16 lie close together."""
    stack = work.stack
    stack[0, 0], stack[0, 1] = low, high
    depth = 1
    while depth:
        depth -= 1
        low, high = stack[depth, 0], stack[depth, 1]
        if high - low <= LANES:
            continue
        at = low + max(1, ((high - low) // 2 + LANES // 2) // LANES) * LANES
        halve(work, low, high, at, scale_x, scale_y)
        stack[depth, 0], stack[depth, 1], stack[depth + 1, 0], stack[depth + 1, 1] = low, at, at, high
        depth += 2


@njit(cache=True)
def write_lane(index, b, j, edges, codes, mark):
    """Write a posting into a block."""
    for e in range(4):
        index.block[b, LANES * e + j] = edges[e]
        index.block[b, CODE + LANES * e + j] = codes[e]
    index.block_i4[b, SLOT + j] = mark


@njit(cache=True)
def clear_lane(index, b, j):
    """Let a lane hold nothing: no point is in it, and no message has its code."""
    index.block[b, j] = index.block[b, LANES + j] = _TOP
    index.block[b, 2 * LANES + j] = index.block[b, 3 * LANES + j] = 0
    for e in range(4):
        index.block[b, CODE + LANES * e + j] = CODES_MOST
    index.block_i4[b, SLOT + j] = DEAD_SLOT


@njit(cache=True)
def bury_lane(index, b, j):
    """Let a lane hold nothing that a message finds; its rectangle stays until the group is put in order, which spares two lines of memory."""
    index.block[b, CODE + j] = CODES_MOST
    index.block_i4[b, SLOT + j] = DEAD_SLOT


@njit(cache=True)
def bound_block(index, g, nth):
    """Compute the bounds of a block of a group again."""
    at = BOUNDS + nth
    west = south = np.int64(_TOP)
    east = north = np.int64(0)
    if nth < index.group_i4[g, BLOCKS]:
        edges = index.block[np.int64(index.group_i4[g, BLOCK]) + nth]
        for j in range(LANES):
            west, south = min(west, np.int64(edges[j])), min(south, np.int64(edges[LANES + j]))
            east, north = max(east, np.int64(edges[2 * LANES + j])), max(north, np.int64(edges[3 * LANES + j]))
    index.group_u2[g, at], index.group_u2[g, at + LANES] = west, south
    index.group_u2[g, at + 2 * LANES], index.group_u2[g, at + 3 * LANES] = east, north


@njit(cache=True)
def blocks_for(n):
    """Return how many blocks ``n`` postings get, those that may come included."""
    return min(n // LANES + (1 if n < 4 * LANES else 2), LANES)


@njit(cache=True)
def lay(index, work, g, low, high, fitted):
    """Let a group hold just the postings ``order[low:high]``, in a good order.

    :param fitted: whether their edges are in the group's frame for good; else a better one is made if it is worth it.
    """
    if not fitted and (index.group_i4[g, CLAMPED] or _is_narrow(work, low, high, index.group_f8[g, SCALE_X], index.group_f8[g, SCALE_Y])):
        read_boxes(index, work, low, high)
        fit_frame(index, work, g, low, high, 0.1)
    put_in_order(work, low, high, index.group_f8[g, SCALE_X], index.group_f8[g, SCALE_Y])
    n = high - low
    held, wanted = np.int64(index.group_i4[g, BLOCKS]), np.int64(blocks_for(n))
    if held != wanted:
        if held:
            free_blocks(index, np.int64(index.group_i4[g, BLOCK]), held)
        index.group_i4[g, BLOCK], index.group_i4[g, BLOCKS] = new_blocks(index, wanted), wanted
    first, flags = np.int64(index.group_i4[g, BLOCK]), False
    for lane in range(wanted * LANES):
        b, j = first + lane // LANES, lane % LANES
        if lane < n:
            o = work.order[low + lane]
            mark, place = work.marks[o], lane_place(g, lane)
            write_lane(index, b, j, work.edges[o], work.codes[o], mark)
            if work.places[o] != place:
                move(index, mark, work.places[o], place)
                flags |= mark < 0
        else:
            clear_lane(index, b, j)
    for nth in range(LANES):
        bound_block(index, g, nth)
    index.group_i4[g, USED], index.group_i4[g, DEAD] = n, 0
    if flags:
        for i in range(low, high):
            settle(index, work.marks[work.order[i]])


@njit(cache=True)
def group_bounds(index, g):
    """Return west, south, east, north in degrees that all postings of a group are within."""
    west = south = np.int64(_TOP)
    east = north = np.int64(0)
    for nth in range(LANES):
        at = BOUNDS + nth
        west, south = min(west, np.int64(index.group_u2[g, at])), min(south, np.int64(index.group_u2[g, at + LANES]))
        east, north = max(east, np.int64(index.group_u2[g, at + 2 * LANES])), max(north, np.int64(index.group_u2[g, at + 3 * LANES]))
    x0, y0, scale_x, scale_y = index.group_f8[g, X0], index.group_f8[g, Y0], index.group_f8[g, SCALE_X], index.group_f8[g, SCALE_Y]
    # A step more on each side makes up for rounding; beyond the frame nothing is known.
    return (
        x0 + (west - 1) / scale_x if west > 0 else -FAR_DEG,
        y0 + (south - 1) / scale_y if south > 0 else -FAR_DEG,
        x0 + (east + 2) / scale_x if east < _TOP else FAR_DEG,
        y0 + (north + 2) / scale_y if north < _TOP else FAR_DEG,
    )


@njit(cache=True)
def append(index, g, posting, codes, mark):
    """Append a posting to a group that has room; return its place.

    :param posting: west, south, east, north in degrees.
    """
    lane = np.int64(index.group_i4[g, USED])
    b, nth, j = np.int64(index.group_i4[g, BLOCK]) + lane // LANES, lane // LANES, lane % LANES
    x0, y0, scale_x, scale_y = index.group_f8[g, X0], index.group_f8[g, Y0], index.group_f8[g, SCALE_X], index.group_f8[g, SCALE_Y]
    west, south = step_of(posting[0], x0, scale_x), step_of(posting[1], y0, scale_y)
    east, north = step_of(posting[2], x0, scale_x), step_of(posting[3], y0, scale_y)
    write_lane(index, b, j, (west, south, east, north), codes, mark)
    at, bounds = BOUNDS + nth, index.group_u2[g]
    bounds[at], bounds[at + LANES] = min(np.int64(bounds[at]), west), min(np.int64(bounds[at + LANES]), south)
    bounds[at + 2 * LANES], bounds[at + 3 * LANES] = max(np.int64(bounds[at + 2 * LANES]), east), max(np.int64(bounds[at + 3 * LANES]), north)
    if is_clamped(posting[0], west) or is_clamped(posting[1], south) or is_clamped(posting[2], east) or is_clamped(posting[3], north):
        index.group_i4[g, CLAMPED] += 1
    index.group_i4[g, USED] = lane + 1
    return lane_place(g, lane)


@njit(cache=True)
def make_room(index, work, g):
    """Let a group have room for a posting; return a group with half of its postings if it had too many, or -1."""
    if index.group_i4[g, USED] < index.group_i4[g, BLOCKS] * LANES:
        return np.int64(-1)
    n = gather(index, work, g, 0)
    if n <= _SPLIT_ABOVE:
        lay(index, work, g, 0, n, False)
        return np.int64(-1)
    at = (n // 2 + LANES // 2) // LANES * LANES
    halve(work, 0, n, at, index.group_f8[g, SCALE_X], index.group_f8[g, SCALE_Y])
    other = new_group(index, index.group[g, TERM], index.group_i4[g, PARENT])
    for field in (X0, Y0, SCALE_X, SCALE_Y):
        index.group_f8[other, field] = index.group_f8[g, field]
    index.group_i4[other, CLAMPED] = index.group_i4[g, CLAMPED]
    lay(index, work, other, at, n, False)
    lay(index, work, g, 0, at, False)
    return other
