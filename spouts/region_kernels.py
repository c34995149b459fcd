"""Kernels for regions: prepared regions, and whether one holds a place.

An encoded region (see :mod:`dskype.spouts.regions`) is *prepared* once, so that the test of a place reads little. A prepared region consists of *lines* of 8 float64, so that
each is a cache line of an aligned array::

    SMALL_CIRCLE | CIRCLE, lat, lon, radius_m, cos(lat), sin(lat), low, high
    RECTANGLE, west, south, east, north, 0, 0, 0
    POLYGON, lines, west, south, east, north, chains, 1 if a place north of all edges is inside
        a picture of 16 times 16 cells, with two bits for each
        for each chain: at, corners, flags, west, south, east, north, 0
        for each chain, at float64 number ``at`` of the polygon: latitudes, longitudes
    SEVERAL, lines, shapes, 0, 0, 0, 0, 0
        the shapes

``low`` and ``high`` are a little below and above the circle's share of the globe: only a place between them needs the exact distance. A *chain* is a piece of a ring,
corners from the first to the last, where its neighbour begins. A ring of few corners is one chain. Of a chain that has the place neither inside its rectangle nor south of it, no
corner is looked at; of one that is north of the place, only the ends are. Else the processor compares the place with several edges at once: the last corner of a chain is repeated, so that
the number of edges is a multiple of 8.

The *picture* divides the rectangle of a polygon, and says which cells are inside and which are outside, as wholes. Only a place in another cell, which an edge may touch, needs the chains.
A polygon that meets the antimeridian or a pole has a picture of zeros: all cells need them.
"""

from __future__ import annotations

import numpy as np

from dskype.spouts.orientation_kernels import side
from dskype.spouts.sphere_kernels import EARTH_RADIUS_M, RADIANS, great_circle_m
from dskype.topology.kernel_cache import njit

__all__ = [
    "AROUND",
    "CHAINS",
    "CROSSES",
    "FIRST",
    "INSIDE",
    "LINE",
    "OUTSIDE",
    "POLYGON",
    "RECTANGLE",
    "SEVERAL",
    "SMALL_CIRCLE",
    "crosses",
    "encode_all",
    "fill_rectangle",
    "holds",
    "in_circle",
    "in_polygon",
    "in_rectangle",
    "lines_needed",
    "lines_of",
    "lons_of",
    "move_together",
    "not_next_to_zero",
    "pictured",
    "prepare_all",
    "prepare_polygon",
    "put",
    "space_of_polygon",
]

LINE = 8
CHAINS = 2
"""Lines of a polygon before those of its chains."""
CIRCLE, RECTANGLE, POLYGON, SMALL_CIRCLE, SEVERAL = 1, 2, 3, 4, 5
NORTH, SOUTH, AROUND = 1, 2, 4
"""Kinds of shapes and flags of rings, as in :mod:`dskype.spouts.regions`; ``SMALL_CIRCLE`` and ``SEVERAL`` exist in prepared regions only."""
CROSSES, FIRST = 8, 16
"""More flags of a chain: an edge crosses the antimeridian, or steps on it; it is the first of its ring."""

_SMALL = 0.1
"""Radians: so far from the centre of a small circle, up and across, a few terms of a series have all digits of sine and cosine."""
_SLACK = 1e-11
"""More than the relative error of the series."""
_LONG, _SHORTEST = 64, 32
"""A ring of more than ``_LONG`` corners is several chains of at least ``_SHORTEST`` edges."""
_CELLS = 16
"""Rows and columns of a picture."""
OUTSIDE, INSIDE = 1, 2
_THIN = 1e-9
"""Degrees: what is not wider has no picture."""
_NEAR = 1e-6
_FLAT = 1e-3
"""Parts of a cell: how near an edge touches it; up to where the crossing of an edge with a row is not computed, because the error might be large."""
_BORDER = 2
_ERROR = 4e-16
"""More than the relative error of the formula that says on which side of an edge a place is; see :mod:`dskype.spouts.orientation_kernels`."""


# -- preparing ------------------------------------------------------------------------------------


@njit(cache=True)
def _chain_length(corners):
    """Return how many edges a chain has, in a ring of so many."""
    return corners if corners <= _LONG else max(_SHORTEST, int(np.ceil(np.sqrt(corners))))


@njit(cache=True)
def _rounded(n):
    return (n + LINE - 1) // LINE * LINE


@njit(cache=True)
def lons_of(lats, corners):
    """Return where the longitudes of a chain begin, given where its latitudes do."""
    return lats + _rounded(corners - 1) + 1


@njit(cache=True)
def space_of_polygon(encoded, at):
    """Return (lines, chains, behind its end) of the polygon at ``encoded[at]``."""
    rings = int(encoded[at + 1])
    at += 2
    numbers, chains = 0, 0
    for _ in range(rings):
        corners = int(encoded[at])
        length = _chain_length(corners)
        for first in range(0, corners, length):
            chains += 1
            numbers += 2 * _rounded(min(length, corners - first)) + LINE
        at += 2 + 2 * corners
    return CHAINS + chains + numbers // LINE, chains, at


@njit(cache=True)
def _space(encoded, begin, end):
    """Return (lines, shapes) of an encoded region."""
    lines, shapes, at = 0, 0, begin
    while at < end:
        kind = int(encoded[at])
        if kind == POLYGON:
            more, _, at = space_of_polygon(encoded, at)
            lines += more
        else:
            lines += 1
            at += 4 if kind == CIRCLE else 5
        shapes += 1
    return lines + (1 if shapes > 1 else 0), shapes


@njit(cache=True)
def lines_needed(offsets, encoded):
    """Return the lines, int64[n], that encoded regions need; region *i* is ``encoded[offsets[i]:offsets[i + 1]]``, and needs none if it is empty."""
    lines = np.empty(len(offsets) - 1, np.int64)
    for i in range(len(lines)):
        lines[i] = _space(encoded, offsets[i], offsets[i + 1])[0]
    return lines


@njit(cache=True)
def _prepare_circle(numbers, to, lat, lon, radius_m):
    angle = radius_m / EARTH_RADIUS_M
    across = np.sin(angle) / np.cos(lat * RADIANS) if abs(lat) < 89.0 else 1.0
    numbers[to] = SMALL_CIRCLE if angle < _SMALL and across < 0.99 * _SMALL else CIRCLE
    numbers[to + 1], numbers[to + 2], numbers[to + 3] = lat, lon, radius_m
    numbers[to + 4], numbers[to + 5] = np.cos(lat * RADIANS), np.sin(lat * RADIANS)
    share = np.sin(angle / 2) ** 2
    numbers[to + 6], numbers[to + 7] = share * (1 - _SLACK), share * (1 + _SLACK)


@njit(cache=True)
def fill_rectangle(numbers, to, west, south, east, north):
    """Write a rectangle to ``numbers[to:to + LINE]``."""
    numbers[to] = RECTANGLE
    numbers[to + 1], numbers[to + 2], numbers[to + 3], numbers[to + 4] = west, south, east, north


@njit(cache=True)
def _prepare_chain(encoded, ring, first, edges, numbers, polygon, chain, to):
    """Write a chain whose corners begin with number ``first`` of the ring at ``encoded[ring]``; ``to`` is where they go."""
    corners, flags = int(encoded[ring]), int(encoded[ring + 1])
    around = (flags & AROUND) != 0
    if first == 0:
        flags |= FIRST
    all_edges = _rounded(edges)
    west, east, south, north = 180.0, -180.0, 90.0, -90.0
    for i in range(all_edges + 1):
        corner = ring + 2 + 2 * ((first + min(i, edges)) % corners)
        lon, lat = encoded[corner], encoded[corner + 1]
        numbers[to + i], numbers[to + all_edges + 1 + i] = lat, lon
        west, east, south, north = min(west, lon), max(east, lon), min(south, lat), max(north, lat)
        if i and crosses(numbers[to + all_edges + i], lon, around):
            flags |= CROSSES
    if flags & CROSSES:
        west, east = -180.0, 180.0
    numbers[chain], numbers[chain + 1], numbers[chain + 2] = to - polygon, edges + 1, flags
    numbers[chain + 3], numbers[chain + 4], numbers[chain + 5], numbers[chain + 6] = west, south, east, north
    return to + 2 * all_edges + LINE


@njit(cache=True)
def _mark_edge(near, x, y, next_x, next_y):
    """Mark the cells of a picture that an edge touches, or nearly: ``near`` is bool[16, 16], row by row, and the ends are in cells."""
    low, high = min(y, next_y), max(y, next_y)
    for row in range(max(0, int(np.floor(low - _NEAR))), min(_CELLS - 1, int(np.floor(high + _NEAR))) + 1):
        west, east = min(x, next_x), max(x, next_x)
        if high - low > _FLAT:  # else all of the edge counts, wherever it crosses the row
            first = min(max((row - _NEAR - y) / (next_y - y), 0.0), 1.0)
            last = min(max((row + 1 + _NEAR - y) / (next_y - y), 0.0), 1.0)
            one, other = x + first * (next_x - x), x + last * (next_x - x)
            west, east = min(one, other), max(one, other)
        for column in range(max(0, int(np.floor(west - _NEAR))), min(_CELLS - 1, int(np.floor(east + _NEAR))) + 1):
            near[row, column] = True


@njit(cache=True)
def _draw_picture(numbers, polygon):
    """Write the picture of a polygon whose edges do not meet the antimeridian.

    Cells without an edge are inside or outside as wholes, and so are two of them side by side. Every cell is taken to be larger by ``_NEAR`` than it is, which is far more than all
    numbers are rounded. O(edges + cells).
    """
    west, south, east, north = numbers[polygon + 2], numbers[polygon + 3], numbers[polygon + 4], numbers[polygon + 5]
    wide, tall = _CELLS / (east - west), _CELLS / (north - south)
    near = np.zeros((_CELLS, _CELLS), np.bool_)
    for c in range(int(numbers[polygon + 6])):
        chain = polygon + LINE * (CHAINS + c)
        lats, corners = polygon + int(numbers[chain]), int(numbers[chain + 1])
        lons = lons_of(lats, corners)
        for i in range(corners - 1):
            x, y = (numbers[lons + i] - west) * wide, (numbers[lats + i] - south) * tall
            _mark_edge(near, x, y, (numbers[lons + i + 1] - west) * wide, (numbers[lats + i + 1] - south) * tall)
    kinds = np.zeros((_CELLS, _CELLS), np.int64)
    for row in range(_CELLS):
        for column in range(_CELLS):
            if near[row, column]:
                continue
            if column and kinds[row, column - 1]:
                kinds[row, column] = kinds[row, column - 1]
            elif row and kinds[row - 1, column]:
                kinds[row, column] = kinds[row - 1, column]
            else:  # the picture is still empty, so this looks at the edges
                kinds[row, column] = INSIDE if in_polygon(numbers, polygon, south + (row + 0.5) / tall, west + (column + 0.5) / wide) else OUTSIDE
    for half in range(LINE):
        bits = np.uint64(0)
        for cell in range(2 * _CELLS):
            bits |= np.uint64(kinds[2 * half + cell // _CELLS, cell % _CELLS]) << np.uint64(2 * cell)
        numbers[polygon + LINE + half] = np.uint64(bits).view(np.float64)


@njit(cache=True)
def pictured(numbers, polygon, lat, lon):
    """Return what a polygon's picture says of a place: ``INSIDE``, ``OUTSIDE``, or 0 if it does not say it."""
    lat, lon = not_next_to_zero(lat), not_next_to_zero(lon)
    west, south, east, north = numbers[polygon + 2], numbers[polygon + 3], numbers[polygon + 4], numbers[polygon + 5]
    if not (west > -180.0 and east < 180.0 and east - west > _THIN and north - south > _THIN):
        return 0
    if lat < south or lat > north or lon < west or lon > east:
        return OUTSIDE
    column = min(int((lon - west) * (_CELLS / (east - west))), _CELLS - 1)
    row = min(int((lat - south) * (_CELLS / (north - south))), _CELLS - 1)
    bits = np.float64(numbers[polygon + LINE + (row >> 1)]).view(np.int64)
    return (bits >> (2 * (_CELLS * (row & 1) + column))) & 3


@njit(cache=True)
def prepare_polygon(encoded, at, numbers, polygon, draw):
    """Write the polygon at ``encoded[at]`` to ``numbers[polygon:]``, which are zeros; return (behind its end there, behind its end here).

    :param draw: whether it is to have a picture, which pays if many places are tested.
    """
    lines, chains, _ = space_of_polygon(encoded, at)
    west, east, south, north = 180.0, -180.0, 90.0, -90.0
    poles = 0
    rings = int(encoded[at + 1])
    at += 2
    chain, to = polygon + LINE * CHAINS, polygon + LINE * (CHAINS + chains)
    for _ in range(rings):
        corners, flags = int(encoded[at]), int(encoded[at + 1])
        poles ^= flags & (NORTH | SOUTH)  # a hole may have a pole, too
        length = _chain_length(corners)
        for first in range(0, corners, length):
            to = _prepare_chain(encoded, at, first, min(length, corners - first), numbers, polygon, chain, to)
            west, east = min(west, numbers[chain + 3]), max(east, numbers[chain + 5])
            south, north = min(south, numbers[chain + 4]), max(north, numbers[chain + 6])
            chain += LINE
        at += 2 + 2 * corners
    south, north = -90.0 if poles & SOUTH else south, 90.0 if poles & NORTH else north
    if south == -90 or north == 90 or west == -180 or east == 180:  # a pole has all longitudes, and the antimeridian has two
        west, east = -180.0, 180.0
    numbers[polygon], numbers[polygon + 1] = POLYGON, lines
    numbers[polygon + 2], numbers[polygon + 3], numbers[polygon + 4], numbers[polygon + 5] = west, south, east, north
    numbers[polygon + 6], numbers[polygon + 7] = chains, poles & NORTH
    if draw and west > -180.0 and east < 180.0 and east - west > _THIN and north - south > _THIN:
        _draw_picture(numbers, polygon)
    return at, polygon + LINE * lines


@njit(cache=True)
def _prepare(encoded, begin, end, numbers, to, draw):
    """Write the region ``encoded[begin:end]`` to ``numbers[to:]``, which are zeros, in as many lines as :func:`lines_needed` says; see :func:`prepare_polygon`."""
    lines, shapes = _space(encoded, begin, end)
    if shapes > 1:
        numbers[to], numbers[to + 1], numbers[to + 2] = SEVERAL, lines, shapes
        to += LINE
    at = begin
    while at < end:
        kind = int(encoded[at])
        if kind == POLYGON:
            at, to = prepare_polygon(encoded, at, numbers, to, draw)
        elif kind == CIRCLE:
            _prepare_circle(numbers, to, encoded[at + 1], encoded[at + 2], encoded[at + 3])
            at, to = at + 4, to + LINE
        else:
            fill_rectangle(numbers, to, encoded[at + 1], encoded[at + 2], encoded[at + 3], encoded[at + 4])
            at, to = at + 5, to + LINE


@njit(cache=True)
def prepare_all(offsets, encoded):
    """Return (starts int64[n], numbers): region *i* of :func:`lines_needed` is prepared at ``numbers[starts[i]]``, -1 if it is empty."""
    lines = lines_needed(offsets, encoded)
    numbers = np.zeros(LINE * lines.sum())
    starts = np.full(len(lines), -1, np.int64)
    to = 0
    for i in range(len(lines)):
        if lines[i]:
            starts[i] = to
            _prepare(encoded, offsets[i], offsets[i + 1], numbers, to, False)
            to += LINE * lines[i]
    return starts, numbers


# -- the table ------------------------------------------------------------------------------------


@njit(cache=True)
def put(starts, numbers, slots, regions, line):
    """Prepare regions (offsets, encoded, the lines of each) from ``line`` on, where there are zeros, and enter them into ``starts``."""
    offsets, encoded, lines = regions
    for i in range(len(slots)):
        if lines[i]:
            _prepare(encoded, offsets[i], offsets[i + 1], numbers, LINE * line, True)
            starts[slots[i]] = line
            line += lines[i]


@njit(cache=True)
def _lines_at(numbers, at):
    kind = int(numbers[at])
    return int(numbers[at + 1]) if kind == POLYGON or kind == SEVERAL else 1


@njit(cache=True)
def lines_of(numbers, starts):
    """Return how many lines the regions at some lines have together."""
    lines = 0
    for start in starts:
        lines += _lines_at(numbers, LINE * np.int64(start))
    return lines


@njit(cache=True)
def move_together(starts, numbers, to):
    """Copy all regions to another array, in the order of their slots; return the number of lines."""
    line = 0
    for slot in range(len(starts)):
        if starts[slot] >= 0:
            at = LINE * np.int64(starts[slot])
            lines = _lines_at(numbers, at)
            to[LINE * line : LINE * (line + lines)] = numbers[at : at + LINE * lines]
            starts[slot] = line
            line += lines
    return line


@njit(cache=True)
def _encoded_polygon(numbers, polygon, encoded, to, write):
    """Write the encoded polygon if ``write`` is True; return where it ends."""
    start, ring, rings = to, to, 0
    to += 2
    for c in range(int(numbers[polygon + 6])):
        chain = polygon + LINE * (CHAINS + c)
        lats, corners, flags = polygon + int(numbers[chain]), int(numbers[chain + 1]), int(numbers[chain + 2])
        lons = lons_of(lats, corners)
        if flags & FIRST:
            ring, rings = to, rings + 1
            if write:
                encoded[ring], encoded[ring + 1] = 0, flags & (NORTH | SOUTH | AROUND)
            to += 2
        if write:
            encoded[ring] += corners - 1
            for i in range(corners - 1):
                encoded[to + 2 * i], encoded[to + 2 * i + 1] = numbers[lons + i], numbers[lats + i]
        to += 2 * (corners - 1)
    if write:
        encoded[start], encoded[start + 1] = POLYGON, rings
    return to


@njit(cache=True)
def _encode(numbers, at, encoded, to, write):
    shapes = 1
    if int(numbers[at]) == SEVERAL:
        shapes, at = int(numbers[at + 2]), at + LINE
    for _ in range(shapes):
        kind = int(numbers[at])
        if kind == POLYGON:
            to = _encoded_polygon(numbers, at, encoded, to, write)
            at += LINE * int(numbers[at + 1])
            continue
        size = 5 if kind == RECTANGLE else 4
        if write:
            encoded[to : to + size] = numbers[at : at + size]
            encoded[to] = RECTANGLE if kind == RECTANGLE else CIRCLE
        to += size
        at += LINE
    return to


@njit(cache=True)
def encode_all(numbers, starts):
    """Return (offsets, encoded) of the regions that were prepared at the lines ``starts``, as they were before."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    for i in range(len(starts)):
        offsets[i + 1] = _encode(numbers, LINE * np.int64(starts[i]), numbers, offsets[i], False)
    encoded = np.empty(offsets[-1])
    for i in range(len(starts)):
        _encode(numbers, LINE * np.int64(starts[i]), encoded, offsets[i], True)
    return offsets, encoded


# -- places ---------------------------------------------------------------------------------------


@njit(cache=True)
def in_rectangle(west, south, east, north, lat, lon):
    """Tell whether a rectangle has a place; west > east crosses the antimeridian."""
    if lat < south or lat > north:
        return False
    return west <= lon <= east if west <= east else (lon >= west or lon <= east)


@njit(cache=True)
def not_next_to_zero(degrees):
    """Return what a number counts as for polygons; see :mod:`dskype.spouts.orientation_kernels`."""
    return 0.0 if abs(degrees) < 1e-30 else degrees


@njit(cache=True)
def in_circle(numbers, at, lat, lon):
    """Tell whether the circle that was prepared at ``numbers[at]`` has a place."""
    center_lat, center_lon, radius_m = numbers[at + 1], numbers[at + 2], numbers[at + 3]
    if numbers[at] == SMALL_CIRCLE:
        across = abs(lon - center_lon)
        if across > 180.0:
            across = (180.0 - abs(lon)) + (180.0 - abs(center_lon))
        across, up = across * RADIANS, (lat - center_lat) * RADIANS
        if across > _SMALL or abs(up) > _SMALL:
            return False
        a, u = across * across, up * up
        # The haversine formula; half of 1 - cos(x) is x^2 / 4 (1 - x^2 / 12 + ...).
        half_across = a * (0.25 - a * (1 / 48 - a * (1 / 1440 - a * (1 / 80640))))
        half_up = u * (0.25 - u * (1 / 48 - u * (1 / 1440 - u * (1 / 80640))))
        cosine = 1 - 2 * half_up
        sine = up * (1 - u * (1 / 6 - u * (1 / 120 - u * (1 / 5040))))
        part = half_up + numbers[at + 4] * (numbers[at + 4] * cosine - numbers[at + 5] * sine) * half_across
        if part < numbers[at + 6]:
            return True
        if part > numbers[at + 7]:
            return False
    return great_circle_m(center_lat, center_lon, lat, lon) <= radius_m


@njit(cache=True)
def crosses(lon, next_lon, around):
    """Tell whether an edge crosses the antimeridian, or steps on it."""
    return abs(next_lon - lon) > 180.0 and not (around and lon == -next_lon and abs(lon) == 180.0)


@njit(cache=True)
def _edge(lon, lat, next_lon, next_lat, around, place_lon, place_lat):
    """Return 1 if the edge is north of a place, 0 if not, ``_BORDER`` if the place is on it. The eastern end of an edge does not count as north of anything."""
    turn, across = 0.0, crosses(lon, next_lon, around)
    if (lon > next_lon) != across:
        lon, lat, next_lon, next_lat = next_lon, next_lat, lon, lat
    if across:
        if place_lon < lon:
            if place_lon > next_lon:
                return 0
            turn = 1.0
    elif place_lon < lon or place_lon > next_lon:
        return 0
    end = 1.0 if across else 0.0
    low, high = min(lat, next_lat), max(lat, next_lat)
    if place_lon == next_lon and turn == end:
        upright = lon == next_lon or (lon == 180.0 and next_lon == -180.0 and across)
        return _BORDER if place_lat == next_lat or (upright and low <= place_lat <= high) else 0
    if place_lat > high:
        return 0
    if place_lat < low:
        return 1
    where = side((lon, 0.0, lat), (next_lon, end, next_lat), (place_lon, turn, place_lat))
    return _BORDER if where == 0 else (1 if where < 0 else 0)


@njit(cache=True, inline="always")
def _quick_crossings(numbers, lats, edges, place_lat, place_lon):
    """Return (how many edges are north of a place, how many may be otherwise), for edges that do not cross the antimeridian; if one may be, the first number means nothing.

    Two edges that meet straight north of the place count once: a longitude is west of it, or not. Unsigned indexes need no test, so vector instructions can load what they mean.
    """
    north, doubtful = 0, 0
    one = np.uint64(1)
    for block in range(0, edges, LINE):
        for within in range(LINE):
            y = np.uint64(lats) + np.uint64(block) + np.uint64(within)
            x = y + np.uint64(_rounded(edges) + 1)
            across, next_across = numbers[x] - place_lon, numbers[x + one] - place_lon
            left, right = across * (numbers[y + one] - place_lat), next_across * (numbers[y] - place_lat)
            passes = (across > 0.0) != (next_across > 0.0)
            north += passes & ((left < right) == (next_across > 0.0))
            doubtful += (passes & (abs(left - right) <= _ERROR * (abs(left) + abs(right)))) | (next_across == 0.0)
    return north, doubtful


@njit(cache=True)
def _crossings(numbers, lats, corners, around, place_lat, place_lon):
    """Return 1 if an odd number of edges is north of a place, 0 if an even one, ``_BORDER`` if it is on one. On the antimeridian, the place has the longitude -180."""
    lons = lons_of(lats, corners)
    odd = 0
    for i in range(1, corners):
        lon, lat, next_lon, next_lat = numbers[lons + i - 1], numbers[lats + i - 1], numbers[lons + i], numbers[lats + i]
        found = _edge(lon, lat, next_lon, next_lat, around, place_lon, place_lat)
        if place_lon == -180.0 and abs(next_lon) == 180.0:  # the other side is the same meridian
            upright = abs(lon) == 180.0 and (lon == next_lon or not around)
            if next_lat == place_lat or (upright and min(lat, next_lat) <= place_lat <= max(lat, next_lat)):
                found = _BORDER
        if found == _BORDER:
            return _BORDER
        odd ^= found
    return odd


@njit(cache=True)
def in_polygon(numbers, at, lat, lon):
    """Tell whether the polygon that was prepared at ``numbers[at]`` has a place."""
    lat, lon = not_next_to_zero(lat), not_next_to_zero(lon)
    if lat < numbers[at + 3] or lat > numbers[at + 5] or lon < numbers[at + 2] or lon > numbers[at + 4]:
        return False
    if abs(lat) == 90.0:
        return True
    on_antimeridian = abs(lon) == 180.0
    if on_antimeridian:
        lon = -180.0
    odd = int(numbers[at + 7])
    for c in range(int(numbers[at + 6])):
        chain = at + LINE * (CHAINS + c)
        flags = int(numbers[chain + 2])
        west, east = numbers[chain + 3], numbers[chain + 5]
        if lat > numbers[chain + 6]:
            continue
        if on_antimeridian:
            if west > -180.0 and east < 180.0:
                continue
        elif lon < west or lon > east:
            continue
        lats, corners = at + int(numbers[chain]), int(numbers[chain + 1])
        if not on_antimeridian and not flags & CROSSES:
            lons = lons_of(lats, corners)
            if lat < numbers[chain + 4]:
                odd ^= (numbers[lons] > lon) != (numbers[lons + corners - 1] > lon)
                continue
            north, doubtful = _quick_crossings(numbers, lats, corners - 1, lat, lon)
            if doubtful == 0:
                odd ^= north & 1
                continue
        found = _crossings(numbers, lats, corners, (flags & AROUND) != 0, lat, lon)
        if found == _BORDER:
            return True
        odd ^= found
    return odd == 1


@njit(cache=True)
def _shape_holds(numbers, at, lat, lon):
    kind = int(numbers[at])
    if kind == POLYGON:
        shown = pictured(numbers, at, lat, lon)
        return shown == INSIDE if shown else in_polygon(numbers, at, lat, lon)
    if kind == RECTANGLE:
        return in_rectangle(numbers[at + 1], numbers[at + 2], numbers[at + 3], numbers[at + 4], lat, lon)
    return in_circle(numbers, at, lat, lon)


@njit(cache=True)
def holds(numbers, at, lat, lon):
    """Tell whether the region that was prepared at ``numbers[at]`` has a place."""
    if int(numbers[at]) != SEVERAL:
        return _shape_holds(numbers, at, lat, lon)
    shapes, at = int(numbers[at + 2]), at + LINE
    for _ in range(shapes):
        if _shape_holds(numbers, at, lat, lon):
            return True
        at += LINE * (int(numbers[at + 1]) if int(numbers[at]) == POLYGON else 1)
    return False
