"""Kernels for regions: whether two prepared regions (see :mod:`dskype.spouts.region_kernels`) share a place, and the tests of many pairs.

Two polygons share a place if a corner of one of them is in the other, or if two edges meet. All of that is exact. Between a circle and an edge, whose points lie on no
great circle, the least distance is searched until it is known to a trillionth of the radius.
"""

from __future__ import annotations

import numpy as np

from dskype.spouts.orientation_kernels import compare_lons, side
from dskype.spouts.region_kernels import (
    AROUND,
    CHAINS,
    FIRST,
    INSIDE,
    LINE,
    POLYGON,
    RECTANGLE,
    SEVERAL,
    SMALL_CIRCLE,
    crosses,
    fill_rectangle,
    holds,
    in_circle,
    in_polygon,
    in_rectangle,
    lons_of,
    not_next_to_zero,
    pictured,
    prepare_polygon,
    space_of_polygon,
)
from dskype.spouts.sphere_kernels import EARTH_RADIUS_M, RADIANS, great_circle_m
from dskype.topology.kernel_cache import njit

__all__ = ["hold_points", "touches"]

_AHEAD = 64
"""Pairs whose regions are read before the first one is decided."""
_LINES_AHEAD = 13
"""Of a polygon: all of one with 32 corners."""


@njit(cache=True)
def _chain(numbers, polygon, c):
    """Return (its line, where its longitudes and latitudes begin, corners, whether edges from -180 to 180 run around the globe) of a chain."""
    line = polygon + LINE * (CHAINS + c)
    lats, corners = polygon + int(numbers[line]), int(numbers[line + 1])
    return line, lons_of(lats, corners), lats, corners, (int(numbers[line + 2]) & AROUND) != 0


# -- two polygons ---------------------------------------------------------------------------------


@njit(cache=True)
def _overlap(west, east, other_west, other_east):
    """Tell whether two intervals of longitudes may share one; the antimeridian is in both if they have -180 or 180."""
    if west <= other_east and other_west <= east:
        return True
    return (west == -180.0 or east == 180.0) and (other_west == -180.0 or other_east == 180.0)


@njit(cache=True)
def _boxes_overlap(numbers, at, others, other):
    """Tell whether two rectangles (west, south, east, north, none of which crosses the antimeridian) may share a place."""
    return (
        numbers[at + 1] <= others[other + 3]
        and others[other + 1] <= numbers[at + 3]
        and _overlap(numbers[at], numbers[at + 2], others[other], others[other + 2])
    )


@njit(cache=True)
def _ends(numbers, lons, lats, i, around):
    """Return the western and the eastern end of edge ``i`` as (lon, turn, lat)."""
    a, b = (numbers[lons + i], 0.0, numbers[lats + i]), (numbers[lons + i + 1], 0.0, numbers[lats + i + 1])
    if crosses(a[0], b[0], around):
        if a[0] > b[0]:
            return a, (b[0], 1.0, b[2])
        return b, (a[0], 1.0, a[2])
    if a[0] > b[0]:
        return b, a
    return a, b


@njit(cache=True)
def _segments_meet(a, b, c, d):
    """Tell whether the edges from ``a`` to ``b`` and from ``c`` to ``d``, which end in the east, share a place."""
    if min(a[2], b[2]) > max(c[2], d[2]) or min(c[2], d[2]) > max(a[2], b[2]):
        return False
    if compare_lons(a[0], a[1], d[0], d[1]) > 0 or compare_lons(c[0], c[1], b[0], b[1]) > 0:
        return False
    if side(a, b, c) * side(a, b, d) > 0 or side(c, d, a) * side(c, d, b) > 0:
        return False
    # Neither is wholly on one side of the other. Edges on one line share a place because they overlap in both directions.
    return True


@njit(cache=True)
def _turned(place, turn):
    return place[0], place[1] + turn, place[2]


@njit(cache=True)
def _chains_meet(numbers, polygon, c, others, other, k):
    """Tell whether an edge of a chain meets one of another."""
    line, lons, lats, corners, around = _chain(numbers, polygon, c)
    other_line, other_lons, other_lats, other_corners, other_around = _chain(others, other, k)
    west, south, east, north = others[other_line + 3], others[other_line + 4], others[other_line + 5], others[other_line + 6]
    for i in range(corners - 1):
        a, b = _ends(numbers, lons, lats, i, around)
        if min(a[2], b[2]) > north or max(a[2], b[2]) < south or (b[1] == 0.0 and not _overlap(a[0], b[0], west, east)):
            continue
        for j in range(other_corners - 1):
            c_end, d_end = _ends(others, other_lons, other_lats, j, other_around)
            if min(c_end[2], d_end[2]) > max(a[2], b[2]) or max(c_end[2], d_end[2]) < min(a[2], b[2]):
                continue
            for turn in (-1.0, 0.0, 1.0):
                if _segments_meet(a, b, _turned(c_end, turn), _turned(d_end, turn)):
                    return True
    return False


@njit(cache=True)
def _has_corner(numbers, polygon, others, other):
    """Tell whether the first corner of some ring is in another polygon."""
    for c in range(int(numbers[polygon + 6])):
        line, lons, lats, _, _ = _chain(numbers, polygon, c)
        if int(numbers[line + 2]) & FIRST and in_polygon(others, other, numbers[lats], numbers[lons]):
            return True
    return False


@njit(cache=True)
def _polygons_touch(numbers, polygon, others, other):
    if not _boxes_overlap(numbers, polygon + 2, others, other + 2):
        return False
    if (numbers[polygon + 3] == -90.0 and others[other + 3] == -90.0) or (numbers[polygon + 5] == 90.0 and others[other + 5] == 90.0):
        return True  # the pole, which is one place
    if _has_corner(numbers, polygon, others, other) or _has_corner(others, other, numbers, polygon):
        return True
    for c in range(int(numbers[polygon + 6])):
        if not _boxes_overlap(numbers, polygon + LINE * (CHAINS + c) + 3, others, other + 2):
            continue
        for k in range(int(others[other + 6])):
            if _boxes_overlap(numbers, polygon + LINE * (CHAINS + c) + 3, others, other + LINE * (CHAINS + k) + 3) and _chains_meet(
                numbers, polygon, c, others, other, k
            ):
                return True
    return False


# -- rectangles -----------------------------------------------------------------------------------


@njit(cache=True)
def _rectangles_touch(numbers, at, others, other):
    """Tell what :func:`dskype.spouts.areas.overlap` does."""
    west, south, east, north = numbers[at + 1], numbers[at + 2], numbers[at + 3], numbers[at + 4]
    other_west, other_south, other_east, other_north = others[other + 1], others[other + 2], others[other + 3], others[other + 4]
    if south > other_north or other_south > north:
        return False
    begins, ends = west <= other_east, other_west <= east
    whole, other_whole = west <= east, other_west <= other_east  # neither crosses the antimeridian
    return (begins and ends) or not (whole or other_whole) or (not (whole and other_whole) and (begins or ends))


@njit(cache=True)
def _as_polygon(west, south, east, north):
    """Return a rectangle that does not cross the antimeridian as a prepared polygon, with corners in the middle, because an edge of more than 180 degrees would cross it."""
    west, south, east, north = not_next_to_zero(west), not_next_to_zero(south), not_next_to_zero(east), not_next_to_zero(north)
    middle = (west + east) / 2
    encoded = np.array([POLYGON, 1, 6, 0, west, south, middle, south, east, south, east, north, middle, north, west, north], np.float64)
    numbers = np.zeros(LINE * space_of_polygon(encoded, 0)[0])
    prepare_polygon(encoded, 0, numbers, 0, False)
    return numbers


@njit(cache=True)
def _rectangle_meets_polygon(numbers, at, others, polygon):
    west, south, east, north = numbers[at + 1], numbers[at + 2], numbers[at + 3], numbers[at + 4]
    if west <= east:
        return _polygons_touch(_as_polygon(west, south, east, north), 0, others, polygon)
    if _polygons_touch(_as_polygon(west, south, 180.0, north), 0, others, polygon):
        return True
    return _polygons_touch(_as_polygon(-180.0, south, east, north), 0, others, polygon)


# -- circles --------------------------------------------------------------------------------------


@njit(cache=True)
def _circles_touch(numbers, at, others, other):
    distance_m = great_circle_m(numbers[at + 1], numbers[at + 2], others[other + 1], others[other + 2])
    return distance_m <= numbers[at + 3] + others[other + 3]


@njit(cache=True)
def _circle_meets_rectangle(numbers, at, others, other):
    lat, lon, radius_m = numbers[at + 1], numbers[at + 2], numbers[at + 3]
    west, south, east, north = others[other + 1], others[other + 2], others[other + 3], others[other + 4]
    near = min(max(lat, south), north)
    if in_rectangle(west, south, east, north, near, lon):
        return great_circle_m(lat, lon, near, lon) <= radius_m
    # At every latitude, the nearest longitude is one of the two borders; on a border, the nearest latitude is that of the perpendicular, or an end.
    for border in (west, east):
        across = (border - lon) * RADIANS
        foot = np.arctan2(np.sin(lat * RADIANS), np.cos(lat * RADIANS) * np.cos(across)) / RADIANS
        for candidate in (south, north, min(max(foot, south), north)):
            if great_circle_m(lat, lon, candidate, border) <= radius_m:
                return True
    return False


@njit(cache=True)
def _circle_meets_edge(lat, lon, share, a, b):
    """Tell whether a point of an edge is within a circle, whose radius is given as the square of the sine of half its angle.

    That square, as a function of the way along the edge, is at most half the square of the edge's extent (``bend``) away from its tangent, times the square of the way.
    So a piece of the edge whose least value by this is above ``share`` is left out, and others are halved.
    """
    up, across = (b[2] - a[2]) * RADIANS, ((b[0] - a[0]) + 360.0 * (b[1] - a[1])) * RADIANS
    bend = (abs(up) + abs(across)) ** 2 / 4
    from_south, from_west = (a[2] - lat) * RADIANS, (a[0] - lon) * RADIANS
    cosine = np.cos(lat * RADIANS)
    middles, halves = np.empty(256), np.empty(256)
    # The ends are pieces of no length.
    middles[0], middles[1], middles[2] = 0.5, 0.0, 1.0
    halves[0], halves[1], halves[2] = 0.5, 0.0, 0.0
    count = 3
    while count:
        count -= 1
        middle, half = middles[count], halves[count]
        angle, turn = from_south + middle * up, from_west + middle * across
        here = lat * RADIANS + angle
        by_turn = np.sin(turn / 2) ** 2
        value = np.sin(angle / 2) ** 2 + cosine * np.cos(here) * by_turn
        if value <= share:
            return True
        slope = abs(np.sin(angle) * up / 2 - cosine * np.sin(here) * up * by_turn + cosine * np.cos(here) * np.sin(turn) * across / 2)
        most = (slope + bend * half) * half
        if value - most > share or most <= 1e-12 * share or count + 2 > len(middles):
            continue
        middles[count], middles[count + 1] = middle - half / 2, middle + half / 2
        halves[count], halves[count + 1] = half / 2, half / 2
        count += 2
    return False


@njit(cache=True)
def _circle_meets_polygon(numbers, at, others, polygon):
    lat, lon, radius_m = numbers[at + 1], numbers[at + 2], numbers[at + 3]
    if in_polygon(others, polygon, lat, lon):
        return True
    angle = radius_m / EARTH_RADIUS_M
    share = np.sin(angle / 2) ** 2
    high, low = lat + angle / RADIANS + 1e-9, lat - angle / RADIANS - 1e-9
    for c in range(int(others[polygon + 6])):
        line, lons, lats, corners, around = _chain(others, polygon, c)
        if others[line + 4] > high or others[line + 6] < low:
            continue
        for i in range(corners - 1):
            a, b = _ends(others, lons, lats, i, around)
            if min(a[2], b[2]) <= high and max(a[2], b[2]) >= low and _circle_meets_edge(lat, lon, share, a, b):
                return True
    return False


# -- regions --------------------------------------------------------------------------------------


@njit(cache=True)
def _shapes_touch(numbers, at, others, other):
    kind, other_kind = int(numbers[at]), int(others[other])
    if kind == POLYGON:
        if other_kind == POLYGON:
            return _polygons_touch(numbers, at, others, other)
        if other_kind == RECTANGLE:
            return _rectangle_meets_polygon(others, other, numbers, at)
        return _circle_meets_polygon(others, other, numbers, at)
    if other_kind == POLYGON:
        return _rectangle_meets_polygon(numbers, at, others, other) if kind == RECTANGLE else _circle_meets_polygon(numbers, at, others, other)
    if kind == RECTANGLE:
        return _rectangles_touch(numbers, at, others, other) if other_kind == RECTANGLE else _circle_meets_rectangle(others, other, numbers, at)
    return _circle_meets_rectangle(numbers, at, others, other) if other_kind == RECTANGLE else _circles_touch(numbers, at, others, other)


@njit(cache=True)
def _shapes_of(numbers, at):
    """Return (how many shapes a region has, where the first is)."""
    return (int(numbers[at + 2]), at + LINE) if int(numbers[at]) == SEVERAL else (1, at)


@njit(cache=True)
def _behind(numbers, at):
    """Return where the shape after this one is."""
    return at + LINE * (int(numbers[at + 1]) if int(numbers[at]) == POLYGON else 1)


@njit(cache=True)
def _regions_touch(numbers, at, others, other):
    """Tell whether two prepared regions share a place."""
    shapes, at = _shapes_of(numbers, at)
    other_shapes, first = _shapes_of(others, other)
    for _ in range(shapes):
        other = first
        for _ in range(other_shapes):
            if _shapes_touch(numbers, at, others, other):
                return True
            other = _behind(others, other)
        at = _behind(numbers, at)
    return False


@njit(cache=True)
def hold_points(table, slots, rows, lat, lon):
    """Do what :func:`touches` does if all messages are points, and slots without a region are everywhere; return that, and a number that means nothing.

    Regions of many pairs are read before the first of these pairs is decided. So the processor waits for all of them at the same time, where it would otherwise wait for one
    after the other: it does not read ahead beyond a decision that it did not foresee. The sum of what has been read keeps the compiler from leaving it out. Of a polygon, that is its
    picture at first, and the rest only where the picture does not decide. The kinds that most
    regions have are called from here, because every call that is handed arrays takes time.
    """
    starts, numbers = table
    found = np.ones(len(slots), np.bool_)
    at, kinds, read, picture = np.empty(_AHEAD, np.int64), np.empty(_AHEAD), 0.0, np.int64(0)
    for first in range(0, len(slots), _AHEAD):
        pairs = min(_AHEAD, len(slots) - first)
        for i in range(pairs):
            slot = slots[first + i]
            at[i] = LINE * np.int64(starts[slot]) if slot < len(starts) else -1
        polygons = 0
        for i in range(pairs):
            kinds[i] = numbers[at[i]] if at[i] >= 0 else 0.0
            polygons += kinds[i] == POLYGON
        for i in range(pairs if polygons else 0):
            if kinds[i] == POLYGON:
                picture ^= np.float64(numbers[at[i] + LINE]).view(np.int64)
        for i in range(pairs if polygons else 0):
            if kinds[i] == POLYGON:
                row = rows[first + i]
                shown = pictured(numbers, at[i], lat[row], lon[row])
                if shown:
                    found[first + i], kinds[i] = shown == INSIDE, 0.0
                    continue
                for line in range(CHAINS, min(_LINES_AHEAD, int(numbers[at[i] + 1]))):
                    read += numbers[at[i] + LINE * line]
        for i in range(pairs):
            kind, begin, row = kinds[i], at[i], rows[first + i]
            if kind == SMALL_CIRCLE:
                found[first + i] = in_circle(numbers, begin, lat[row], lon[row])
            elif kind == POLYGON:
                found[first + i] = in_polygon(numbers, begin, lat[row], lon[row])
            elif kind == RECTANGLE:
                found[first + i] = in_rectangle(numbers[begin + 1], numbers[begin + 2], numbers[begin + 3], numbers[begin + 4], lat[row], lon[row])
            elif kind:
                found[first + i] = holds(numbers, begin, lat[row], lon[row])
    return found, read + picture


@njit(cache=True)
def touches(table, slots, rows, places, boxes):
    """Tell for each pair whether the subscription in ``slots[i]`` and the message in ``rows[i]`` share a place.

    :param table: (starts int32[], numbers float64[]): the line where the region of each slot is, -1 is none.
    :param places: (lat float64[n], lon float64[n], areas float64[n, 4] or [0, 4], starts int64[n] or [0], numbers float64[]) of the messages: a place is the prepared region
        at ``starts``, if that is not -1; else the rectangle of ``areas``, if there are any; else the point.
    :param boxes: float64[m, 4] or [0, 4], where subscriptions are that have no region; else they are everywhere.
    """
    starts, numbers = table
    lat, lon, areas, row_starts, row_numbers = places
    found = np.ones(len(slots), np.bool_)
    own, area = np.zeros(LINE), np.zeros(LINE)
    for i in range(len(slots)):
        slot, row = slots[i], rows[i]
        line = np.int64(starts[slot]) if slot < len(starts) else np.int64(-1)
        if line < 0 and len(boxes) == 0:
            continue
        region, at = numbers, LINE * line
        if line < 0:
            fill_rectangle(own, 0, boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3])
            region, at = own, np.int64(0)
        if len(row_starts) and row_starts[row] >= 0:
            found[i] = _regions_touch(region, at, row_numbers, row_starts[row])
        elif len(areas):
            fill_rectangle(area, 0, areas[row, 0], areas[row, 1], areas[row, 2], areas[row, 3])
            found[i] = _regions_touch(region, at, area, np.int64(0))
        else:
            found[i] = holds(region, at, lat[row], lon[row])
    return found
