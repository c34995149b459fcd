"""Regions: circles, polygons and rectangles on the globe, as subscriptions and messages have them.

A region is a set of places. Its borders belong to it. This module reads regions from JSON and finds their rectangles; :mod:`dskype.spouts.region_table` decides
who touches whom.

**Circle**: all places within ``radius_m`` of the centre along great circles of a sphere (:data:`dskype.spouts.sphere.EARTH_RADIUS_M`).

**Polygon**: GeoJSON (RFC 7946), so positions are ``[lon, lat]``, and an edge is a straight line in longitude and latitude. What is inside follows from the even-odd
rule over all rings of one polygon: a place is inside if a line from it to the outside crosses an odd number of edges. So rings may wind either way, holes are the
rings after the first, and a ring may cross itself. The polygons of a MultiPolygon are united.

- The longitudes -180 and 180 are the same meridian, and a pole is one place, whatever its longitude.
- An edge of more than 180 degrees of longitude takes the shorter way, across the antimeridian. So a ring that crosses it may be cut there, as RFC 7946 recommends, or not.
- An edge from -180 to 180 runs around the globe if the ring would not close otherwise, or has no other longitudes; else it is a step on the antimeridian.
- A ring that goes once around the globe encloses the pole of its hemisphere. One that has corners in both hemispheres does not say which, and is refused.

**Rectangle**: ``[west, south, east, north]`` as in :mod:`dskype.spouts.areas`, where -180 and 180 are different numbers.

Inside the system a region is an *encoded region*: float64[], its shapes one after another, each beginning with its kind::

    CIRCLE, lat, lon, radius_m
    RECTANGLE, west, south, east, north
    POLYGON, rings, then for each ring: corners, flags, lon, lat, lon, lat, ...

Rings are not closed in it. Flags are the sum of ``NORTH`` (the ring encloses the north pole), ``SOUTH``, and ``AROUND`` (its edges from -180 to 180 run around the globe).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np

from dskype.spouts.sphere import EARTH_RADIUS_M
from dskype.topology.errors import IllegalArgumentException

__all__ = [
    "AROUND",
    "CIRCLE",
    "NORTH",
    "POLYGON",
    "RADIUS_M_MAX",
    "RECTANGLE",
    "SOUTH",
    "Circle",
    "Polygon",
    "Rectangle",
    "RegionLimits",
    "bounding_box",
    "decode_region",
    "is_rectangle",
    "parse_region",
]

CIRCLE, RECTANGLE, POLYGON = 1, 2, 3
NORTH, SOUTH, AROUND = 1, 2, 4

RADIUS_M_MAX = math.pi * EARTH_RADIUS_M
"""Half the circumference: a circle of this radius is the globe."""

_NEXT_TO_ZERO = 1e-30
"""Degrees below this count as 0, so that no product of differences is too small for a float64."""

_LEGAL = '{"center": {"lat": degrees, "lon": degrees}, "radius_m": metres}, a GeoJSON Polygon or MultiPolygon, {"bbox": [west, south, east, north]}, or a list of these'


@dataclass(frozen=True)
class RegionLimits:
    """The limits that regions are checked against.

    :param corners_max: most positions of all rings of a region.
    :param shapes_max: most circles, rectangles and polygons of a region.
    """

    corners_max: int = 10_000
    shapes_max: int = 256


_DEFAULTS = RegionLimits()


class Circle(NamedTuple):
    """A circle: degrees, and metres along great circles."""

    lat: float
    lon: float
    radius_m: float


class Rectangle(NamedTuple):
    """A rectangle in degrees; west > east crosses the antimeridian."""

    west: float
    south: float
    east: float
    north: float


class Polygon(NamedTuple):
    """A polygon.

    :ivar rings: of each its flags and its corners (lon, lat), float64[n, 2], which do not repeat the first one.
    """

    rings: list[tuple[int, np.ndarray]]


def parse_region(value: Any, *, limits: RegionLimits = _DEFAULTS, name: str = "region") -> np.ndarray:
    """Return the encoded region, float64[], of a value that was read from JSON.

    The value is ``{"center": {"lat", "lon"}, "radius_m"}``, a GeoJSON Polygon or MultiPolygon, ``{"bbox": [west, south, east, north]}``, or a list of these.
    Other members, and the third number of a position, are ignored.

    :param name: what the error calls the value; the path of a part is added to it, as in ``region.coordinates[0][3]``.
    :raises IllegalArgumentException: it is no region, or larger than the limits.

    >>> parse_region({"center": {"lat": 48.1, "lon": 11.6}, "radius_m": 500}).tolist()
    [1.0, 48.1, 11.6, 500.0]
    >>> parse_region({"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 3], [0, 0]]]}).tolist()
    [3.0, 1.0, 3.0, 0.0, 0.0, 0.0, 4.0, 0.0, 4.0, 3.0]
    >>> parse_region({"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 193], [0, 0]]]})
    Traceback (most recent call last):
    dskype.topology.errors.IllegalArgumentException: Expected 'region.coordinates[0][2]' as [lon, lat] in degrees; given: [4, 193]; legal: lon from -180 to 180, lat from -90 to 90
    """
    if type(value) is list and not value:
        _refuse(f"Expected '{name}' with at least one shape", value, _LEGAL)
    reader = _Reader(limits, name)
    for i, shape in enumerate(value) if type(value) is list else [(-1, value)]:
        reader.add(shape, name if i < 0 else f"{name}[{i}]")
    return np.array(reader.encoded, np.float64)


def decode_region(encoded: Sequence[float] | np.ndarray) -> Iterator[Circle | Rectangle | Polygon]:
    """Return the shapes of an encoded region.

    >>> list(decode_region([1, 48.1, 11.6, 500, 2, 11, 48, 12, 49]))
    [Circle(lat=48.1, lon=11.6, radius_m=500.0), Rectangle(west=11.0, south=48.0, east=12.0, north=49.0)]
    """
    numbers = np.asarray(encoded, np.float64)
    at = 0
    while at < len(numbers):
        kind = int(numbers[at])
        if kind == CIRCLE:
            yield Circle(*numbers[at + 1 : at + 4].tolist())
            at += 4
        elif kind == RECTANGLE:
            yield Rectangle(*numbers[at + 1 : at + 5].tolist())
            at += 5
        else:
            rings = []
            count, at = int(numbers[at + 1]), at + 2
            for _ in range(count):
                corners, flags = numbers[at : at + 2].astype(int).tolist()
                rings.append((flags, numbers[at + 2 : at + 2 + 2 * corners].reshape(-1, 2)))
                at += 2 + 2 * corners
            yield Polygon(rings)


def is_rectangle(encoded: Sequence[float] | np.ndarray) -> bool:
    """Tell whether a region is a single rectangle, so that :func:`bounding_box` is the region itself."""
    return len(encoded) == 5 and encoded[0] == RECTANGLE


def bounding_box(encoded: Sequence[float] | np.ndarray) -> tuple[float, float, float, float]:
    """Return (west, south, east, north), the smallest rectangle that contains a region; west > east crosses the antimeridian.

    It is exact for polygons and rectangles, and a millionth of a metre larger for circles, so that rounding leaves no place out. What has a pole has all longitudes,
    and what touches one side of the antimeridian has the other side too: ``170, -180``.

    >>> bounding_box(parse_region({"type": "Polygon", "coordinates": [[[178, -19], [-179, -19], [-179, -16], [178, -19]]]}))
    (178.0, -19.0, -179.0, -16.0)
    """
    spans: list[tuple[float, float]] = []
    south, north = math.inf, -math.inf
    for shape in decode_region(encoded):
        if isinstance(shape, Circle):
            low, high, of_shape = _box_of_circle(shape)
        elif isinstance(shape, Rectangle):
            low, high, of_shape = shape.south, shape.north, _spans(shape.west, shape.east)
        else:
            low, high, of_shape = _box_of_polygon(shape)
        south, north = min(south, low), max(north, high)
        spans += of_shape
    west, east = _smallest(spans)
    return west, south, east, north


# -- rectangles -----------------------------------------------------------------------------------

_ALL = [(-180.0, 180.0)]


def _spans(west: float, east: float) -> list[tuple[float, float]]:
    """Return the longitudes from ``west`` to ``east`` as one or two rising intervals."""
    return [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]


def _both_sides(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the intervals, with -180 if they have 180, and the other way round."""
    more = []
    if any(east == 180 for _, east in spans):
        more.append((-180.0, -180.0))
    if any(west == -180 for west, _ in spans):
        more.append((180.0, 180.0))
    return spans + more


def _smallest(spans: list[tuple[float, float]]) -> tuple[float, float]:
    """Return (west, east) of the smallest interval of longitudes around some: what is left out is the widest gap."""
    spans = sorted(spans)
    west, east = spans[0][0], max(end for _, end in spans)
    widest, reached = 180 + west + 180 - east, spans[0][1]
    for begin, end in spans[1:]:
        if begin - reached > widest:
            widest, west, east = begin - reached, begin, reached
        reached = max(reached, end)
    return west, east


def _box_of_circle(circle: Circle) -> tuple[float, float, list[tuple[float, float]]]:
    """Return (south, north, longitudes)."""
    # A little larger: more than all that can be rounded here and where distances are computed.
    radius = circle.radius_m / EARTH_RADIUS_M * (1 + 1e-14) + 1e-13
    south, north = circle.lat - math.degrees(radius) - 1e-13, circle.lat + math.degrees(radius) + 1e-13
    if south <= -90 or north >= 90:
        return max(south, -90.0), min(north, 90.0), _ALL
    half = math.degrees(math.asin(min(1.0, math.sin(radius) / math.cos(math.radians(circle.lat)) * (1 + 1e-15)))) + 1e-13
    west, east = circle.lon - half, circle.lon + half
    return south, north, _spans(west + 360 if west <= -180 else west, east - 360 if east >= 180 else east)


def _box_of_polygon(polygon: Polygon) -> tuple[float, float, list[tuple[float, float]]]:
    """Return (south, north, longitudes)."""
    south = min(float(corners[:, 1].min()) for _, corners in polygon.rings)
    north = max(float(corners[:, 1].max()) for _, corners in polygon.rings)
    poles = 0
    for flags, _ in polygon.rings:
        poles ^= flags & (NORTH | SOUTH)  # a hole may have a pole, too
    south, north = -90.0 if poles & SOUTH else south, 90.0 if poles & NORTH else north
    if south == -90 or north == 90:
        return south, north, _ALL
    spans = []
    for flags, corners in polygon.rings:
        if flags & (NORTH | SOUTH):
            return south, north, _ALL
        lons = corners[:, 0].tolist()
        # A turn is how often the ring has crossed the antimeridian to the east. As (turn, longitude), corners are in order, without rounding.
        turns = [0, *np.cumsum([_turn(a, b, bool(flags & AROUND)) for a, b in pairwise(lons)]).tolist()]
        (first, west), (last, east) = min(zip(turns, lons)), max(zip(turns, lons))
        spans += _spans(west, east) if last == first or (last == first + 1 and east < west) else _ALL
    return south, north, _both_sides(spans)


def _turn(a: float, b: float, around: bool) -> int:
    """Return 1 if the edge between two longitudes crosses the antimeridian to the east, -1 to the west, else 0."""
    step = b - a
    if abs(step) <= 180 or (around and abs(a) == 180 and a == -b):
        return 0
    return -1 if step > 0 else 1


# -- JSON -----------------------------------------------------------------------------------------


def _refuse(words: str, given: Any, legal: str | None = None, hint: str | None = None) -> NoReturn:
    raise IllegalArgumentException(words, given=given, legal=legal, hint=hint)


def _is_number(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high


def _degrees(value: float) -> float:
    return 0.0 if abs(value) < _NEXT_TO_ZERO else float(value)


class _Reader:
    """Reads shapes, and appends them to ``encoded``."""

    def __init__(self, limits: RegionLimits, name: str) -> None:
        self.encoded: list[float] = []
        self._limits, self._name = limits, name
        self._shapes = self._corners = 0

    def add(self, shape: Any, path: str) -> None:
        """Read one shape, or a MultiPolygon."""
        if type(shape) is not dict:
            _refuse(f"Expected '{path}' as a region", shape, _LEGAL)
        found: list[tuple[str, Callable[[dict[str, Any], str], None]]] = [("type", self._geometry), ("radius_m", self._circle), ("bbox", self._rectangle)]
        if "type" in shape:  # a GeoJSON object may have a member "bbox" of its own
            found = found[:1]
        found = [(member, read) for member, read in found if member in shape or (member == "radius_m" and "center" in shape)]
        if len(found) != 1:
            given = [member for member in ("center", "radius_m", "bbox") if member in shape] or sorted(map(str, shape))
            _refuse(f"Expected '{path}' as one kind of region", given, _LEGAL)
        found[0][1](shape, path)

    def _begin(self, kind: int) -> None:
        self._shapes += 1
        if self._shapes > self._limits.shapes_max:
            _refuse(
                f"Expected '{self._name}' with fewer shapes",
                f"more than {self._limits.shapes_max}",
                f"up to {self._limits.shapes_max} circles, rectangles and polygons",
            )
        self.encoded.append(kind)

    def _circle(self, shape: dict[str, Any], path: str) -> None:
        center, radius_m = shape.get("center"), shape.get("radius_m")
        if type(center) is not dict or not (_is_number(center.get("lat"), -90, 90) and _is_number(center.get("lon"), -180, 180)):
            swapped = type(center) is dict and _is_number(center.get("lat"), -180, 180) and _is_number(center.get("lon"), -90, 90)
            legal = '{"lat": -90 to 90, "lon": -180 to 180}'
            _refuse(f"Expected '{path}.center' in degrees", center, legal, "it would be legal with 'lat' and 'lon' exchanged" if swapped else None)
        if not _is_number(radius_m, 0, RADIUS_M_MAX) or radius_m == 0:
            _refuse(f"Expected '{path}.radius_m' in metres", radius_m, f"a number above 0, up to {RADIUS_M_MAX:.0f}, half the circumference of the earth")
        self._begin(CIRCLE)
        self.encoded += [_degrees(center["lat"]), _degrees(center["lon"]), float(shape["radius_m"])]

    def _rectangle(self, shape: dict[str, Any], path: str) -> None:
        bbox = shape["bbox"]
        legal = "[west, south, east, north] in degrees, -180 <= west, east <= 180, -90 <= south <= north <= 90; west > east crosses the antimeridian"
        if type(bbox) is not list or len(bbox) != 4:
            _refuse(f"Expected '{path}.bbox' as four numbers", bbox, legal)
        west, south, east, north = bbox
        if not (all(_is_number(lon, -180, 180) for lon in (west, east)) and all(_is_number(lat, -90, 90) for lat in (south, north)) and south <= north):
            _refuse(f"Expected '{path}.bbox' on the globe", bbox, legal)
        self._begin(RECTANGLE)
        self.encoded += map(_degrees, bbox)

    def _geometry(self, shape: dict[str, Any], path: str) -> None:
        kind, coordinates, path = shape["type"], shape.get("coordinates"), f"{path}.coordinates"
        if kind == "Polygon":
            self._polygon(coordinates, path)
        elif kind == "MultiPolygon":
            if type(coordinates) is not list or not coordinates:
                _refuse(f"Expected '{path}' as a list of polygons", coordinates)
            for i, polygon in enumerate(coordinates):
                self._polygon(polygon, f"{path}[{i}]")
        else:
            hints = {"Feature": "give its geometry", "GeometryCollection": "give a list of its geometries", "Point": "give a circle around it"}
            hint = hints.get(kind) if type(kind) is str else None
            _refuse(f"Expected '{path.removesuffix('coordinates')}type' of an area", kind, '"Polygon" or "MultiPolygon"', hint)

    def _polygon(self, rings: Any, path: str) -> None:
        if type(rings) is not list or not rings:
            _refuse(f"Expected '{path}' as a list of rings", rings, "the outer ring, then those of holes")
        self._begin(POLYGON)
        self.encoded.append(len(rings))
        for i, ring in enumerate(rings):
            self._ring(ring, f"{path}[{i}]")

    def _ring(self, ring: Any, path: str) -> None:
        if type(ring) is not list or len(ring) < 4:
            given = f"{len(ring)} positions" if type(ring) is list else ring
            _refuse(f"Expected '{path}' as a closed ring", given, "at least 4 positions [lon, lat], the last one equal to the first")
        self._corners += len(ring)
        if self._corners > self._limits.corners_max:
            _refuse(f"Expected '{self._name}' with fewer corners", f"more than {self._limits.corners_max}", f"up to {self._limits.corners_max} positions")
        for i, position in enumerate(ring):
            if type(position) is not list or not 2 <= len(position) <= 3 or not (_is_number(position[0], -180, 180) and _is_number(position[1], -90, 90)):
                swapped = type(position) is list and len(position) > 1 and _is_number(position[0], -90, 90) and _is_number(position[1], -180, 180)
                hint = "it would be legal as [lat, lon]; GeoJSON has the longitude first" if swapped else None
                _refuse(f"Expected '{path}[{i}]' as [lon, lat] in degrees", position, "lon from -180 to 180, lat from -90 to 90", hint)
        if ring[0][:2] != ring[-1][:2]:
            hint = "a ring ends with its first position (RFC 7946, section 3.1.6): repeat that at the end"
            _refuse(f"Expected '{path}' as a closed ring", [ring[0], ring[-1]], "the last position equal to the first", hint)
        corners = [(_degrees(position[0]), _degrees(position[1])) for position in ring]
        corners = [corner for corner, following in pairwise(corners) if corner != following] or corners[:1]
        flags = _flags(corners, path)
        self.encoded += [len(corners), flags]
        for corner in corners:
            self.encoded += corner


def _flags(corners: list[tuple[float, float]], path: str) -> int:
    """Return the flags of a ring."""
    lons = [lon for lon, _ in corners]
    lons.append(lons[0])
    steps, turns = (sum(_turn(a, b, around) for a, b in pairwise(lons)) for around in (False, True))
    around = all(abs(lon) == 180 for lon in lons) or (steps != 0 and turns == 0)
    # A ring that goes around an even number of times has both poles on the same side of it.
    if (turns if around else steps) % 2 == 0:
        return AROUND if around else 0
    if all(lat > 0 for _, lat in corners):
        return NORTH
    if all(lat < 0 for _, lat in corners):
        return SOUTH
    hint = "let it run along the antimeridian to the pole that it encloses: ..., [180, 60], [180, 90], [-180, 90], [-180, 60], ..."
    _refuse(f"Expected '{path}', which goes around the globe, in one hemisphere", "corners in both hemispheres", "all latitudes above 0, or all below 0", hint)
