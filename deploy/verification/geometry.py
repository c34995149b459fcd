"""Regions in the plainest way: fractions for what is straight in longitude and latitude, long doubles for distances.

A region is a value as in JSON: a circle, a rectangle, a GeoJSON geometry, or a list of these. Tests of regions compare with this module too.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

__all__ = ["box_of", "distance_m", "distances_m", "gap_m", "is_box", "read_region", "regions_gap_m", "shapes_of", "unrolled", "widened"]

EARTH_RADIUS_M = 6_371_008.8
_DEGREE = np.arctan(np.longdouble(1)) / 45
_CORNERS_MAX, _SHAPES_MAX = 10_000, 256
Place = tuple[float, float]
"""(lat, lon)."""
Ring = tuple[tuple[Any, Any], ...]
"""Positions as (lon, lat)."""


def shapes_of(region: Any) -> list[tuple[str, Any]]:
    """Return circles as (lat, lon, radius_m), rectangles as (west, south, east, north), and polygons as lists of rings."""
    found: list[tuple[str, Any]] = []
    for shape in region if isinstance(region, list) else [region]:
        if "center" in shape:
            found.append(("circle", (shape["center"]["lat"], shape["center"]["lon"], shape["radius_m"])))
        elif "bbox" in shape:
            found.append(("rectangle", tuple(shape["bbox"])))
        else:
            polygons = [shape["coordinates"]] if shape["type"] == "Polygon" else shape["coordinates"]
            found += [("polygon", [_positions(ring) for ring in rings]) for rings in polygons]
    return found


def _positions(ring: Any) -> Ring:
    return tuple((position[0], position[1]) for position in ring)


# -- distances ------------------------------------------------------------------------------------


def on_sphere(lat: Any, lon: Any) -> np.ndarray:
    """Return the unit vector of a place; of many, a row for each."""
    lat, lon = np.longdouble(lat) * _DEGREE, np.longdouble(lon) * _DEGREE
    return np.array([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], np.longdouble).T


def distance_m(place: Place, other: Place) -> float:
    """Return the great-circle distance."""
    return float(distances_m(place, *other))


def distances_m(place: Place, lat: Any, lon: Any) -> np.ndarray:
    """Return the great-circle distances from one place to many, from the lengths of the sum and the difference of two vectors."""
    a, b = on_sphere(*place), on_sphere(lat, lon)
    return (2 * EARTH_RADIUS_M * np.arctan2(np.sqrt(((a - b) ** 2).sum(-1)), np.sqrt(((a + b) ** 2).sum(-1)))).astype(float)


# -- rings ----------------------------------------------------------------------------------------


@lru_cache(4096)  # a polygon is compared with many others
def unrolled(ring: Ring) -> list[tuple[Fraction, Fraction]]:
    """Return the corners of a closed ring as (lon, lat) in a plane where longitudes go on beyond 180, the first one repeated at the end.

    Edges of 360 degrees are left as they are, or become steps of length 0: whichever closes the ring; if both do, the latter, unless all longitudes are -180 or 180.
    """

    def walk(literal: bool) -> list[tuple[Fraction, Fraction]]:
        lon, lat = map(Fraction, ring[0])
        corners = [(lon, lat)]
        for (a, _), (b, next_lat) in pairwise(ring):
            step = Fraction(b) - Fraction(a)
            if abs(b - a) > 180 and not (literal and {a, b} == {-180, 180}):
                step -= 360 if step > 0 else -360
            lon += step
            corners.append((lon, Fraction(next_lat)))
        return corners

    straight, stepping = walk(True), walk(False)
    if all(abs(lon) == 180 for lon, _ in ring):
        return straight
    if stepping[0] != stepping[-1] and straight[0] == straight[-1]:
        return straight
    return stepping


def poles_of(polygon: list[Ring]) -> tuple[bool, bool]:
    """Return whether the south pole and the north pole are inside."""
    south = north = False
    for ring in polygon:
        corners = unrolled(ring)
        if (corners[-1][0] - corners[0][0]) % 720 == 360:
            if corners[0][1] > 0:
                north = not north
            else:
                south = not south
    return south, north


def edges_of(polygon: list[Ring]) -> list[tuple[Any, Any]]:
    """Return the edges of all rings, in the plane of :func:`unrolled`."""
    return [edge for ring in polygon for edge in pairwise(unrolled(ring))]


def span_of(polygon: list[Ring]) -> tuple[Fraction, Fraction]:
    """Return the least and the greatest longitude of a polygon, in the plane of :func:`unrolled`."""
    spans = [_span(ring) for ring in polygon]
    return min(first for first, _ in spans), max(last for _, last in spans)


@lru_cache(4096)
def _span(ring: Ring) -> tuple[Fraction, Fraction]:
    lons = [lon for lon, _ in unrolled(ring)]
    return min(lons), max(lons)


def on_edge(x: Fraction, y: Fraction, a: Any, b: Any) -> bool:
    """Tell whether a point of the plane is on the edge from a to b."""
    (ax, ay), (bx, by) = a, b
    return min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by) and (bx - ax) * (y - ay) == (by - ay) * (x - ax)


def reaches(polygon: list[Ring], pole: int) -> bool:
    """Tell whether a pole, 90 or -90, is in a polygon or on its border."""
    return poles_of(polygon)[pole > 0] or any(lat == pole for ring in polygon for _, lat in ring)


def in_polygon(polygon: list[Ring], lat: Any, lon: Any) -> bool:
    """Count the edges between a place and the south pole."""
    lat, lon = Fraction(lat), Fraction(lon)
    if abs(lat) == 90 and reaches(polygon, int(lat)):
        return True
    first, last = span_of(polygon)
    inside, turns = poles_of(polygon)[0], [x for turn in range(-4, 5) if first <= (x := lon + 360 * turn) <= last]
    for a, b in edges_of(polygon):
        (ax, ay), (bx, by) = a, b
        west, east = min(ax, bx), max(ax, bx)
        for x in turns:
            if not west <= x <= east:
                continue
            if on_edge(x, lat, a, b):
                return True
            if (ax < x) != (bx < x) and ay + (by - ay) * (x - ax) / (bx - ax) < lat:
                inside = not inside
    return inside


def edges_meet(edge: Any, other: Any) -> bool:
    """Tell whether two edges in the plane share a point."""
    (a, b), (c, d) = edge, other
    if any(max(a[i], b[i]) < min(c[i], d[i]) or max(c[i], d[i]) < min(a[i], b[i]) for i in (0, 1)):  # most are far apart
        return False
    if any(on_edge(x, y, a, b) for x, y in (c, d)) or any(on_edge(x, y, c, d) for x, y in (a, b)):
        return True
    u, v, w = (b[0] - a[0], b[1] - a[1]), (d[0] - c[0], d[1] - c[1]), (c[0] - a[0], c[1] - a[1])
    determinant = u[0] * v[1] - u[1] * v[0]
    if determinant == 0:
        return False
    s, t = (w[0] * v[1] - w[1] * v[0]) / determinant, (w[0] * u[1] - w[1] * u[0]) / determinant
    return 0 <= s <= 1 and 0 <= t <= 1


def polygons_touch(polygon: list[Ring], other: list[Ring]) -> bool:
    """Tell whether two polygons share a place."""
    if any(reaches(polygon, pole) and reaches(other, pole) for pole in (-90, 90)):
        return True
    for first, second in ((polygon, other), (other, polygon)):
        if any(in_polygon(second, lat, lon) for ring in first for lon, lat in ring):
            return True
    (first, last), (west, east), own = span_of(polygon), span_of(other), edges_of(polygon)
    turns = [turn for turn in range(-3, 4) if west + 360 * turn <= last and first <= east + 360 * turn]
    turned = [tuple((x + 360 * turn, y) for x, y in edge) for edge in edges_of(other) for turn in turns]
    return any(edges_meet(a, b) for a in own for b in turned)


# -- rectangles -----------------------------------------------------------------------------------


def halves(box: tuple[float, float, float, float]) -> list[tuple[float, float, float, float]]:
    """Return a rectangle as one or two that do not cross the antimeridian."""
    west, south, east, north = box
    return [box] if west <= east else [(west, south, 180.0, north), (-180.0, south, east, north)]


def as_polygon(box: tuple[float, float, float, float]) -> list[Ring]:
    """Return a rectangle that does not cross the antimeridian as a polygon, whose edges are short enough to be unambiguous."""
    west, south, east, north = map(Fraction, box)
    third = (east - west) / 3
    lons = [west, west + third, west + 2 * third, east]
    return [(*((lon, south) for lon in lons), *((lon, north) for lon in lons[::-1]), (west, south))]


# -- regions --------------------------------------------------------------------------------------


def shape_gap_m(kind: str, shape: Any, lat: float, lon: float) -> float:
    """Return how far a place is outside a shape: 0 or less if it is inside; infinite for shapes other than circles."""
    if kind == "circle":
        return distance_m((lat, lon), shape[:2]) - shape[2]
    if kind == "rectangle":
        inside = any(west <= lon <= east and south <= lat <= north for west, south, east, north in halves(shape))
    else:
        inside = in_polygon(shape, lat, lon)
    return 0.0 if inside else float("inf")


def gap_m(region: Any, lat: float, lon: float) -> float:
    """Return how far a place is outside a region; see :func:`shape_gap_m`."""
    return min(shape_gap_m(kind, shape, lat, lon) for kind, shape in shapes_of(region))


def nearest_m(place: Place, edge: Any) -> float:
    """Return the least distance from a place to an edge: from ever finer samples around the best ones."""
    (ax, ay), (bx, by) = ((float(x), float(y)) for x, y in edge)
    best, width, middles = float("inf"), 1.0, [0.5]
    for _ in range(9):
        samples = np.unique(np.clip(np.add.outer(middles, width * (np.arange(65) / 64 - 0.5)), 0.0, 1.0))
        found_m = distances_m(place, ay + (by - ay) * samples, ax + (bx - ax) * samples)
        order = np.argsort(found_m, kind="stable")
        best, width, middles = min(best, float(found_m[order[0]])), width / 16, samples[order[:2]].tolist()
    return best


def shapes_gap_m(kind: str, shape: Any, other_kind: str, other: Any) -> float:
    """Return how far two shapes are apart; infinite where that is neither 0 nor a matter of a circle."""
    if "circle" not in (kind, other_kind):
        if kind == other_kind == "rectangle":
            touching = any(
                a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]  # both are plain intervals
                for a in halves(shape)
                for b in halves(other)
            )
        else:
            parts = [[as_polygon(half) for half in halves(s)] if k == "rectangle" else [s] for k, s in ((kind, shape), (other_kind, other))]
            touching = any(polygons_touch(a, b) for a in parts[0] for b in parts[1])
        return 0.0 if touching else float("inf")
    if kind != "circle":
        return shapes_gap_m(other_kind, other, kind, shape)
    lat, lon, radius_m = shape
    if other_kind == "circle":
        return distance_m((lat, lon), other[:2]) - radius_m - other[2]
    polygons = [as_polygon(half) for half in halves(other)] if other_kind == "rectangle" else [other]
    if any(in_polygon(polygon, lat, lon) for polygon in polygons):
        return 0.0
    return min(nearest_m((lat, lon), edge) for polygon in polygons for edge in edges_of(polygon)) - radius_m


def regions_gap_m(region: Any, other: Any) -> float:
    """Return how far two regions are apart; see :func:`shapes_gap_m`."""
    return min(shapes_gap_m(*a, *b) for a in shapes_of(region) for b in shapes_of(other))


# -- reading --------------------------------------------------------------------------------------


def read_region(value: Any) -> Any:
    """Return a region that was read from JSON.

    :raises ValueError: it is none; the text says why, as the end of "expected no ...".
    """
    shapes = value if isinstance(value, list) else [value]
    if not shapes:
        raise ValueError("a region without shapes")
    for shape in shapes:
        _check_shape(shape)
    found = shapes_of(value)
    if len(found) > _SHAPES_MAX or sum(len(ring) for kind, rings in found if kind == "polygon" for ring in rings) > _CORNERS_MAX:
        raise ValueError("a region of too many shapes or corners")
    return value


def _check_shape(shape: Any) -> None:
    if not isinstance(shape, dict):
        raise ValueError("a shape that is no object")
    if "type" in shape:
        coordinates = shape.get("coordinates")
        if shape["type"] not in ("Polygon", "MultiPolygon") or not isinstance(coordinates, list) or not coordinates:
            raise ValueError("a geometry that is no polygon")
        for rings in [coordinates] if shape["type"] == "Polygon" else coordinates:
            if not isinstance(rings, list) or not rings:
                raise ValueError("a polygon without rings")
            for ring in rings:
                _check_ring(ring)
        return
    if ("bbox" in shape) == ("center" in shape or "radius_m" in shape):
        raise ValueError("a shape of several kinds, or of none")
    if "bbox" in shape:
        box = shape["bbox"]
        if not (isinstance(box, list) and len(box) == 4 and _is_place(box[1], box[0]) and _is_place(box[3], box[2]) and box[1] <= box[3]):
            raise ValueError("a rectangle that is none")
        return
    center: Any = shape.get("center")
    radius_m: Any = shape.get("radius_m")
    if not isinstance(center, dict) or not _is_place(center.get("lat"), center.get("lon")):
        raise ValueError("a circle without a centre")
    if type(radius_m) not in (int, float) or not 0 < radius_m <= np.pi * EARTH_RADIUS_M:
        raise ValueError("a circle without a radius")


def _is_place(lat: Any, lon: Any) -> bool:
    return type(lat) in (int, float) and type(lon) in (int, float) and abs(lat) <= 90 and abs(lon) <= 180


def _check_ring(ring: Any) -> None:
    if not isinstance(ring, list) or len(ring) < 4:
        raise ValueError("a ring of fewer than four positions")
    if not all(isinstance(p, list) and len(p) in (2, 3) and _is_place(p[1], p[0]) for p in ring):
        raise ValueError("a position that is none")
    if ring[0][:2] != ring[-1][:2]:
        raise ValueError("a ring that is not closed")
    corners = unrolled(_positions(ring))
    lats = [lat for _, lat in corners]
    if (corners[-1][0] - corners[0][0]) % 720 == 360 and not (min(lats) > 0 or max(lats) < 0):
        raise ValueError("a ring around the globe with corners in both hemispheres")


# -- rectangles around regions ----------------------------------------------------------------------


def is_box(region: Any) -> bool:
    """Tell whether a region is one rectangle."""
    shapes = shapes_of(region)
    return len(shapes) == 1 and shapes[0][0] == "rectangle"


def box_of(region: Any) -> tuple[float, float, float, float]:
    """Return the rectangle (west, south, east, north) around a region, the narrowest one, to about a billionth of a degree."""
    if is_box(region):
        west, south, east, north = shapes_of(region)[0][1]
        return float(west), float(south), float(east), float(north)
    lats: list[float] = []
    spans: list[tuple[float, float]] = []  # of longitudes, from the first to the second, which may be beyond 180
    for kind, shape in shapes_of(region):
        if kind == "rectangle":
            west, south, east, north = shape
            spans.append((west, east if west <= east else east + 360))
        elif kind == "circle":
            south, north, span = _around_circle(*shape)
            spans.append(span)
        else:
            corners = [corner for ring in shape for corner in unrolled(ring)]
            south, north = (float(f(lat for _, lat in corners)) for f in (min, max))
            south, north = (-90.0 if reaches(shape, -90) else south), (90.0 if reaches(shape, 90) else north)
            whole = south == -90 or north == 90
            own = [[float(lon) for lon, _ in unrolled(ring)] for ring in shape]
            spans += [(-180.0, 180.0)] if whole else [(min(lons), max(lons)) for lons in own]
        lats += [south, north]
    return _narrowest(spans, min(lats), max(lats))


def widened(box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Return a rectangle of :func:`box_of` with room for its inexactness."""
    west, south, east, north = box
    if (west, east) != (-180.0, 180.0):
        west, east = west - 1e-9, east + 1e-9
        west, east = (west + 360 if west < -180 else west), (east - 360 if east > 180 else east)
    return west, south - 1e-9, east, north + 1e-9


def _around_circle(lat: float, lon: float, radius_m: float) -> tuple[float, float, tuple[float, float]]:
    angle = radius_m / EARTH_RADIUS_M
    reach = float(np.degrees(angle))
    south, north = max(-90.0, lat - reach), min(90.0, lat + reach)
    if south == -90 or north == 90:
        return south, north, (-180.0, 180.0)
    half = float(np.degrees(np.arcsin(np.sin(angle) / np.cos(np.radians(lat)))))
    return south, north, (lon - half, lon + half)


def _narrowest(spans: list[tuple[float, float]], south: float, north: float) -> tuple[float, float, float, float]:
    """Return the rectangle of some longitudes: all but the widest gap between them."""
    if any(end - begin >= 360 for begin, end in spans):
        return -180.0, south, 180.0, north
    once = [((begin + 180) % 360 - 180, end - begin) for begin, end in spans]
    merged: list[list[float]] = []
    for begin, width in sorted((begin + turn, width) for begin, width in once for turn in (-720, -360, 0, 360)):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], begin + width)
        else:
            merged.append([begin, begin + width])
    gaps = [(after[0] - before[1], after[0], before[1]) for before, after in pairwise(merged) if -180 <= after[0] < 180]
    if not gaps:
        return -180.0, south, 180.0, north
    _, west, east = max(gaps)
    return (west + 180) % 360 - 180, south, (east + 180) % 360 - 180, north
