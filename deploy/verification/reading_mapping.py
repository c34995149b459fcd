"""Reads records of other forms by the letter of ``docs/guides/data.md``, without the code that the topology reads them with.

Only Avro and Protobuf are decoded by the topology's own client of the schema registry.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from fractions import Fraction
from typing import Any

from dskype.deploy.verification.reading import UnusableRecord, object_of
from dskype.deploy.verification.reading_paths import value_at
from dskype.spouts.input_mapping import InputMapping
from dskype.spouts.record_values import RecordError
from dskype.spouts.settings import Settings

__all__ = ["forms_of"]

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_ZONES = "Z UT UTC GMT EST EDT CST CDT MST MDT PST PDT".split()
_SIDES = (("lat", "lon"), ("west", "south", "east", "north"))


def forms_of(value: bytes | None, mapping: InputMapping | None, settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the record of a message in DSkype's own form, and as it came.

    :param mapping: of its topic; None: it has the own form.
    :raises UnusableRecord: it has to be refused.
    """
    if mapping is None:
        record = object_of(value, settings.limits.text_max_bytes)
        return record, record
    record, options = _decoded(value, mapping, settings), mapping.options
    own: dict[str, Any] = {}
    if options["id"] is not None and (id := value_at(options["id"], record)) not in (None, ""):
        own["id"] = id
    own["text"] = _text(options["text"], record)
    own |= _place(options, record)
    if options["time"] is not None and (ts := _time_of(options["time"], record)) is not None:
        own["ts"] = ts
    if options["attributes"] and (attributes := _attributes(options["attributes"], record, settings)) is not None:
        own["attributes"] = attributes
    if settings.objects and options["object"] is not None and (object := value_at(options["object"], record)) not in (None, ""):
        own["object"] = object
    return own, record


def _decoded(value: bytes | None, mapping: InputMapping, settings: Settings) -> dict[str, Any]:
    most = settings.limits.text_max_bytes
    if mapping.format == "json":
        return object_of(value, most)
    if mapping.format in ("avro", "protobuf"):
        try:
            return mapping.decode(value, settings.limits)
        except RecordError as error:
            raise UnusableRecord(str(error)) from None
    columns, _, delimiter, quote = mapping.csv
    if value is None or len(value) > 6 * most + 65536 or columns is None:
        raise UnusableRecord("no line of values")
    try:
        lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", value.decode())
        if quote is None:
            rows = [line.rstrip("\r\n").split(delimiter, len(columns) - 1) for line in lines]
        else:
            rows = list(csv.reader(lines, delimiter=delimiter, quotechar=quote, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UnusableRecord(f"a line that cannot be read: {error}") from None
    if len(rows) != 1 or len(rows[0]) != len(columns):
        raise UnusableRecord("a line with more or fewer values than columns")
    return dict(zip(columns, rows[0]))


def _text(given: Any, record: dict[str, Any]) -> Any:
    paths = given.values() if isinstance(given, dict) else given if isinstance(given, (list, tuple)) else [given]
    texts = [value_at(path, record) for path in paths]
    if not isinstance(given, dict) and len(texts) == 1 and isinstance(texts[0], dict):
        return texts[0]
    joined = ["\n".join(text) if isinstance(text, list) and all(isinstance(part, str) for part in text) else text for text in texts]
    if not all(text is None or isinstance(text, str) for text in joined) or all(text is None for text in joined):
        raise UnusableRecord("no text at the paths")
    if isinstance(given, dict):
        return {name: text for name, text in zip(given, joined) if text is not None}
    return "\n".join(text for text in joined if text is not None)


# -- places ---------------------------------------------------------------------------------------


def _place(options: Mapping[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    for paths in (options["place"], options["area"]):
        for found in _places(paths or {}, record):
            if found is not None:
                return found
    raise UnusableRecord("no place at the paths")


def _places(paths: Mapping[str, str], record: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
    for names in _SIDES:
        if names[0] in paths:
            numbers = [_degrees(value_at(paths[name], record)) for name in names]
            if all(number is None for number in numbers):
                yield None
                continue
            if None in numbers:
                raise UnusableRecord("a place without one of its numbers")
            yield dict(zip(names, numbers)) if len(names) == 2 else {"bbox": numbers}
    for kind, path in paths.items():
        if kind not in (*_SIDES[0], *_SIDES[1]):
            value = value_at(path, record)
            readers: dict[str, Callable[[Any], dict[str, Any] | None]] = {"geojson": _geojson, "wkt": _wkt}
            reader = readers.get(kind, lambda value, kind=kind: {kind: value})
            yield None if value in (None, "") else reader(value)


def _degrees(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    return None if not text else float(text) if _NUMBER.fullmatch(text) else value


def _geojson(value: Any) -> dict[str, Any] | None:
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise UnusableRecord("a text that is no GeoJSON") from None
    if isinstance(value, dict) and value.get("type") == "Feature":
        value = value.get("geometry")
    if value is None:
        return None
    try:
        return _shape(value["type"], value.get("coordinates"))
    except (TypeError, KeyError, IndexError, AttributeError):
        raise UnusableRecord("no GeoJSON geometry") from None


def _wkt(value: Any) -> dict[str, Any] | None:
    """Read well-known text as the nested lists of GeoJSON."""
    head = (
        re.fullmatch(r"\s*(?:SRID\s*=\s*4326\s*;\s*)?(POINT|POLYGON|MULTIPOLYGON)(?:\s+(?:ZM|Z|M))?\s*(EMPTY|\(.*\))\s*", value, re.I | re.S)
        if isinstance(value, str)
        else None
    )
    if head is None:
        raise UnusableRecord("no geometry in WKT")
    kind = {"POINT": "Point", "POLYGON": "Polygon", "MULTIPOLYGON": "MultiPolygon"}[head[1].upper()]
    if head[2].upper() == "EMPTY":
        return None
    number = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
    listed = re.sub(rf"{number}(?:\s+{number})+", lambda m: json.dumps([float(part) for part in m[0].split()]), head[2])
    try:
        nested = json.loads(listed.replace("(", "[").replace(")", "]"))
        if not nested:  # an empty geometry is EMPTY
            raise ValueError
        return _shape(kind, nested[0] if kind == "Point" and len(nested) == 1 else nested)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise UnusableRecord("no geometry in WKT") from None


def _shape(kind: str, coordinates: Any) -> dict[str, Any] | None:
    """Return the place of a geometry; None for an empty one.

    :raises TypeError, KeyError, IndexError, AttributeError: it is none.
    """
    if kind == "Point":
        if coordinates == []:
            return None
        if not isinstance(coordinates, list):
            raise TypeError
        return {"lat": coordinates[1], "lon": coordinates[0]}
    polygons = {"Polygon": [coordinates], "MultiPolygon": coordinates}[kind]
    if not coordinates:
        return None
    closed = [[_ring(ring) for ring in polygon] for polygon in polygons]
    if len(closed) == 1 and len(closed[0]) == 1 and (box := _box(closed[0][0])) is not None:
        return {"bbox": box}
    region = {"type": "Polygon", "coordinates": closed[0]} if len(closed) == 1 else {"type": "MultiPolygon", "coordinates": closed}
    return {"region": region}


def _ring(ring: list[list[Any]]) -> list[list[Any]]:
    if not isinstance(ring, list) or not all(isinstance(position, list) and len(position) >= 2 for position in ring):
        raise TypeError
    flat = [position[:2] for position in ring]
    return flat if len(flat) > 1 and flat[0] == flat[-1] else [*flat, flat[0]]


def _box(ring: list[list[Any]]) -> list[Any] | None:
    """Return the rectangle whose corners a ring has one after another, or the point that it consists of."""
    if not all(type(number) in (int, float) for position in ring for number in position):
        return None
    lons, lats = zip(*ring)
    west, south, east, north = min(lons), min(lats), max(lons), max(lats)
    corners = {(west, south), (west, north), (east, south), (east, north)}
    turns = [a[0] != b[0] and a[1] != b[1] for a, b in itertools.pairwise(ring)]
    once = len(ring) == 5 or len(corners) == 1
    return [west, south, east, north] if once and {tuple(position) for position in ring} == corners and not any(turns) else None


# -- times and attributes -------------------------------------------------------------------------


def _time_of(given: Any, record: dict[str, Any]) -> int | None:
    unit, path = next(iter(given.items())) if isinstance(given, dict) else ("auto", given)
    value = value_at(path, record)
    if value in (None, ""):
        return None
    if type(value) is int and unit == "ms":
        return value
    if (found := _time_ms(value, unit)) is None:
        raise UnusableRecord("a time that is none")
    return found


def _time_ms(value: Any, unit: str) -> int | None:
    number: Any = value if type(value) in (int, float) else None
    if isinstance(value, str) and len(value) < 40 and re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", value.strip()):
        number = float(value) if "." in value else int(value)
    if unit in ("ms", "s", "us", "auto") and number is not None:
        if not math.isfinite(number) or abs(number) >= 1e18:
            return None
        if unit == "auto":
            seconds = {"s": number, "ms": number / 1000, "us": number / 1_000_000}
            unit = next((name for name, s in seconds.items() if 946_684_800 <= s < 4_102_444_800), "")
        if unit == "s":
            return number * 1000 if isinstance(number, int) else round(number * 1e6) // 1000
        return math.floor(Fraction(number) / 1000) if unit == "us" else math.floor(number) if unit == "ms" else None
    if not isinstance(value, str) or unit not in ("iso8601", "rfc2822", "auto"):
        return None
    for name, read in (("iso8601", datetime.fromisoformat), ("rfc2822", _of_rfc2822)):
        if unit in (name, "auto"):
            try:
                moment = read(value.strip())
            except (ValueError, TypeError, OverflowError):
                continue
            passed = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
            return math.floor(Fraction(passed.days * 86_400_000_000 + passed.seconds * 1_000_000 + passed.microseconds, 1000))
    return None


def _of_rfc2822(text: str) -> datetime:
    """Return a time as in RFC 2822 or in tweets; its zone has to be a number of four digits, or a name that the RFC has.

    :raises ValueError: it is none.
    """
    dated, comment, _ = text.partition("(")
    words = dated.split()
    at = next((at for at, word in enumerate(words) if ":" in word), 0)
    of_day = re.match("[0-9:]*", words[at])[0] if words else ""  # type: ignore[index]
    rest = [word for word in (words[at][len(of_day) :], *words[at + 1 :]) if word] if words else []
    if rest and (rest[0].upper() in _ZONES or (rest[0][0] in "+-" and len(rest[0]) == 5 and rest[0].isascii() and rest[0][1:].isdigit())):
        rest.pop(0)
    if rest and len(rest[0]) == 4 and rest[0].isascii() and rest[0].isdigit():
        rest.pop(0)
    if not at or rest or [len(part) for part in of_day.split(":")] not in ([1, 2], [2, 2], [1, 2, 2], [2, 2, 2]) or (comment and text[-1] != ")"):
        raise ValueError(text)
    return parsedate_to_datetime(text)


def _attributes(given: Any, record: dict[str, Any], settings: Settings) -> Any:
    if not isinstance(given, dict):
        found = value_at(given, record)
    else:
        found = {name: value for name, path in given.items() if (value := value_at(path, record)) not in (None, "")} or None
    return {name: _typed(name, value, settings) for name, value in found.items()} if isinstance(found, dict) else found


def _typed(name: str, value: Any, settings: Settings) -> Any:
    kind = settings.attributes[name].type if name in settings.attributes else "string"
    if kind == "time":
        found = _time_ms(value, "auto")
        return value if found is None else found
    if not isinstance(value, str) or kind == "string":
        return value
    text = value.strip()
    if kind == "number":
        return float(text) if _NUMBER.fullmatch(text) else value
    if kind == "boolean":
        return _WORDS.get(text.lower(), value)
    return [part.strip() for part in text.split(",")]
