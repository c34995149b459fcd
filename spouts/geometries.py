"""Places of records in the forms of others: GeoJSON, WKT and the columns of GeoParquet, turned into the fields of a message."""

from __future__ import annotations

import itertools
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

from dskype.spouts.record_values import shown
from dskype.topology.errors import IllegalArgumentException

__all__ = ["GeometryError", "from_geojson", "from_wkt", "geo_columns", "wkb_to_geojson"]


class GeometryError(ValueError):
    """A value is no usable geometry.

    :ivar words: what was expected.
    :ivar given: what was found, as it is shown.
    """

    def __init__(self, words: str, given: Any, legal: str) -> None:
        super().__init__(words)
        self.words, self.given, self.legal = words, shown(given), legal


_GEOJSON = "a GeoJSON Point, Polygon or MultiPolygon, or a Feature with one; positions are [lon, lat]"
_WKT = "POINT (lon lat), POLYGON ((lon lat, ...)) or MULTIPOLYGON (((lon lat, ...)))"


def from_geojson(value: Any) -> dict[str, Any] | None:
    """Return the fields of a message that say where a GeoJSON geometry is: ``lat`` and ``lon``, ``bbox`` or ``region``; None for no geometry.

    A polygon that is a rectangle becomes a ``bbox``. A ring may lack its last position, which is its first one again, as in the bounding boxes of tweets.

    :param value: an object, or its JSON text.
    :raises GeometryError: it is no geometry that a message can have.

    >>> from_geojson({"type": "Point", "coordinates": [8.54, 47.37]})
    {'lat': 47.37, 'lon': 8.54}
    >>> from_geojson({"type": "Polygon", "coordinates": [[[8, 47], [9, 47], [9, 48], [8, 48]]]})
    {'bbox': [8, 47, 9, 48]}
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise GeometryError("a GeoJSON geometry", value, _GEOJSON) from None
    if type(value) is dict and value.get("type") == "Feature":
        value = value.get("geometry")
    if value is None:
        return None
    kind = value.get("type") if type(value) is dict else None
    if kind not in ("Point", "Polygon", "MultiPolygon"):
        raise GeometryError("a GeoJSON geometry", value if kind is None else kind, _GEOJSON)
    coordinates = value.get("coordinates")
    if kind == "Point":
        if coordinates == []:
            return None
        if type(coordinates) is not list or len(coordinates) < 2:
            raise GeometryError("a GeoJSON Point with the position [lon, lat]", coordinates, _GEOJSON)
        return {"lat": coordinates[1], "lon": coordinates[0]}
    if not coordinates:
        return None
    return _polygons([coordinates] if kind == "Polygon" else coordinates, coordinates)


def _polygons(polygons: Any, given: Any) -> dict[str, Any]:
    """Return the fields of a region that consists of polygons."""
    try:
        closed = [[_closed(ring) for ring in polygon] for polygon in polygons]
    except (TypeError, IndexError):
        raise GeometryError("polygons of rings of positions [lon, lat]", given, _GEOJSON) from None
    if len(closed) == 1 and len(closed[0]) == 1 and (box := _rectangle(closed[0][0])) is not None:
        return {"bbox": box}
    if len(closed) == 1:
        return {"region": {"type": "Polygon", "coordinates": closed[0]}}
    return {"region": {"type": "MultiPolygon", "coordinates": closed}}


def _closed(ring: Any) -> list[list[Any]]:
    if type(ring) is not list or not all(type(position) is list and len(position) >= 2 for position in ring):
        raise TypeError
    positions = [position[:2] for position in ring]  # heights mean nothing here
    return positions if positions[0] == positions[-1] and len(positions) > 1 else [*positions, positions[0]]


def _rectangle(ring: list[list[Any]]) -> list[Any] | None:
    """Return [west, south, east, north] of a ring that goes once around a rectangle, or lies in one point; None of another ring."""
    if len(ring) != 5 and any(position != ring[0] for position in ring):
        return None
    if not all(type(number) in (int, float) for position in ring for number in position):
        return None
    lons, lats = [lon for lon, _ in ring], [lat for _, lat in ring]
    west, east, south, north = min(lons), max(lons), min(lats), max(lats)
    if any(lon not in (west, east) or lat not in (south, north) for lon, lat in ring):
        return None
    # Each side changes one coordinate; two equal corners in a row are a rectangle without a width or a height.
    sides = all((a[0] == b[0]) or (a[1] == b[1]) for a, b in itertools.pairwise(ring))
    corners = {tuple(position) for position in ring}
    return [west, south, east, north] if sides and corners == {(x, y) for x in (west, east) for y in (south, north)} else None


_WORD = re.compile(r"\s*(?:SRID\s*=\s*(\d+)\s*;\s*)?([A-Za-z]+)(?:\s+(ZM|Z|M))?\s*(EMPTY\b|(?=\())", re.IGNORECASE)
_TOKEN = re.compile(r"\s*(?:([(),])|([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))\s*")


def from_wkt(text: Any) -> dict[str, Any] | None:
    """Return the fields of a message that say where a geometry in well-known text is; None for an empty one. See :func:`from_geojson`.

    ``SRID=4326;`` may stand before it, as PostGIS writes it.

    :raises GeometryError: it is no geometry that a message can have.

    >>> from_wkt("POINT (8.54 47.37)")
    {'lat': 47.37, 'lon': 8.54}
    """
    head = _WORD.match(text) if isinstance(text, str) else None
    kind = head[2].upper() if head else None
    if head is None or kind not in ("POINT", "POLYGON", "MULTIPOLYGON"):
        raise GeometryError("a geometry in WKT", text, _WKT)
    if head[1] not in (None, "4326"):
        raise GeometryError("a geometry in degrees (SRID 4326)", f"SRID={head[1]}", _WKT)
    if head[4]:
        if text[head.end() :].strip():
            raise GeometryError("a geometry in WKT", text, _WKT)
        return None
    nested = _nested(text, head.end())
    try:
        if kind == "POINT":
            ((lon, lat, *_),) = nested
            return {"lat": lat, "lon": lon}
        return _polygons([nested] if kind == "POLYGON" else nested, text)
    except (TypeError, ValueError, GeometryError):
        raise GeometryError("a geometry in WKT", text, _WKT) from None


def _nested(text: str, at: int) -> Any:
    """Return parentheses with lists of positions as nested lists."""
    open_lists: list[list[Any]] = [[]]
    position: list[float] = []
    before = ","
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or len(open_lists) > 4:
            break
        sign, number = token.groups()
        if number is not None and before != ")":
            position.append(float(number))
        elif sign == "(" and before in ("(", ",") and not position:
            open_lists.append([])
        elif sign in (",", ")") and len(open_lists) > 1 and (before == ")") != bool(position):
            if position:
                open_lists[-1].append(position)
                position = []
            if sign == ")":
                done = open_lists.pop()
                open_lists[-1].append(done)
        else:
            break
        before = sign or "number"
        at = token.end()
    if at < len(text) or len(open_lists) != 1 or position or len(open_lists[0]) != 1:
        raise GeometryError("a geometry in WKT", text, _WKT)
    return open_lists[0][0]


# -- GeoParquet -----------------------------------------------------------------------------------

_KINDS = {1: "Point", 2: "LineString", 3: "Polygon", 4: "MultiPoint", 5: "MultiLineString", 6: "MultiPolygon", 7: "GeometryCollection"}
_NATIVE = {
    "point": "Point",
    "polygon": "Polygon",
    "multipolygon": "MultiPolygon",
    "linestring": "LineString",
    "multipoint": "MultiPoint",
    "multilinestring": "MultiLineString",
}
_DEGREES = {("OGC", "CRS84"), ("OGC", "CRS84h"), ("EPSG", "4326"), ("EPSG", "4979")}


def geo_columns(metadata: str | bytes, file: str) -> dict[str, Callable[[Any], Any]]:
    """Return the columns of geometries that the key ``geo`` of a GeoParquet file names: column -> the function that turns a value into GeoJSON.

    :param file: for errors.
    :raises IllegalArgumentException: a column has coordinates that are no degrees, or an encoding that is not known.
    """
    try:
        columns = json.loads(metadata)["columns"].items()
        described = [(name, about["encoding"], about.get("crs", {}), about.get("edges")) for name, about in columns]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise IllegalArgumentException("The key 'geo' of a Parquet file is not that of GeoParquet.", given=file) from None
    found: dict[str, Callable[[Any], Any]] = {}
    for name, encoding, crs, _ in described:
        id = crs.get("id", {}) if isinstance(crs, Mapping) else {}
        # Without a system of coordinates they are degrees (OGC:CRS84); null says that nobody knows it.
        if crs and (id.get("authority"), str(id.get("code"))) not in _DEGREES:
            given = f"{name}: {id.get('authority')}:{id.get('code')}" if id else f"{name}: {shown(crs.get('name') if isinstance(crs, Mapping) else crs)}"
            hint = "write it in EPSG:4326 first, for example with geopandas: to_crs(4326)"
            raise IllegalArgumentException("Coordinates have to be degrees.", given=given, legal="OGC:CRS84 or EPSG:4326", hint=hint)
        if encoding == "WKB":
            found[name] = wkb_to_geojson
        elif encoding in _NATIVE:
            found[name] = _native(_NATIVE[encoding])
        else:
            raise IllegalArgumentException("The encoding of a column of geometries is not known.", given=encoding, legal=f"WKB, {', '.join(_NATIVE)}")
    return found


def _native(kind: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        return None if value is None else {"type": kind, "coordinates": _positions(value)}

    return read


def _positions(value: Any) -> Any:
    """Return nested lists of ``{"x", "y"}`` as nested lists of positions."""
    if isinstance(value, Mapping):
        position = [value.get("x"), value.get("y")]
        return [] if any(number is None or math.isnan(number) for number in position) else position
    return [_positions(entry) for entry in value]


def wkb_to_geojson(value: bytes | None) -> dict[str, Any] | None:
    """Return a geometry in well-known binary, as ISO or PostGIS write it, as a GeoJSON object; None for None.

    Heights and measures are left out. Kinds that no message can be are there without coordinates. What cannot be read has the type ``WKB``, so that the record is refused
    where it is used.

    >>> wkb_to_geojson(bytes.fromhex("0101000000" + "0000000000002140" + "0000000000804740"))
    {'type': 'Point', 'coordinates': [8.5, 47.0]}
    """
    if value is None:
        return None
    try:
        found, end = _wkb(value, 0)
    except (struct.error, KeyError, IndexError, ValueError):
        return {"type": "WKB"}
    return found if end == len(value) else {"type": "WKB"}


def _wkb(data: bytes, at: int, part: bool = False) -> tuple[dict[str, Any], int]:
    """Return the geometry at a place, and where it ends.

    :param part: it is a polygon of a multipolygon.
    """
    order = {0: ">", 1: "<"}[data[at]]
    (code,) = struct.unpack_from(f"{order}I", data, at + 1)
    at += 9 if code & 0x20000000 else 5  # a reference system, by PostGIS
    dimensions = code // 1000 % 10 if not code & 0xC0000000 else 0
    more = {0: 0, 1: 1, 2: 1, 3: 2}[dimensions] + bool(code & 0x80000000) + bool(code & 0x40000000)
    kind = _KINDS[(code & 0x0FFFFFFF) % 1000]
    if part and kind != "Polygon":
        raise ValueError
    position = struct.Struct(f"{order}{2 + more}d")

    def count(at: int) -> int:
        (n,) = struct.unpack_from(f"{order}I", data, at)
        if n > len(data):
            raise ValueError
        return int(n)

    def ring(at: int) -> tuple[list[list[float]], int]:
        n, at = count(at), at + 4
        end = at + n * position.size
        if end > len(data):
            raise ValueError
        return [list(numbers[:2]) for numbers in position.iter_unpack(data[at:end])], end

    if kind == "Point":
        lon, lat, *_ = position.unpack_from(data, at)
        return {"type": kind, "coordinates": [] if math.isnan(lon) or math.isnan(lat) else [lon, lat]}, at + position.size
    if kind == "Polygon":
        rings, n, at = [], count(at), at + 4
        for _ in range(n):
            one, at = ring(at)
            rings.append(one)
        return {"type": kind, "coordinates": rings}, at
    if kind == "MultiPolygon":
        polygons, n, at = [], count(at), at + 4
        for _ in range(n):
            polygon, at = _wkb(data, at, part=True)
            polygons.append(polygon["coordinates"])
        return {"type": kind, "coordinates": polygons}, at
    return {"type": kind}, len(data)
