"""Guesses an input mapping from some records of a file or a topic; ``dskype inspect`` shows what comes of it."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dskype.spouts.input_mapping import InputMapping
from dskype.spouts.readers import Numbered, RecordFile, first_lines
from dskype.spouts.record_paths import get_field
from dskype.spouts.record_times import time_ms
from dskype.spouts.record_values import RecordError, json_object
from dskype.spouts.records import Limits, parse_message

__all__ = ["Look", "guess_csv", "guess_mapping", "look", "look_at_values"]

_TEXTS = (
    "full_text text tweet message body content description caption comment review summary title headline name "
    "texte texto testo tekst nachricht beschreibung kommentar mensaje descripcion descripción titel titre nom nombre nome"
).split()
_HEADLINES = ("title", "headline", "name", "subject")
_IDS = ("id_str", "id", "_id", "uuid", "guid", "gid", "identifier", "key")
_TIMES = ("ts", "timestamp", "created_at", "createdat", "created", "time", "datetime", "date_time", "date", "published", "published_at", "event_time", "at")
_LATS = "lat latitude y lat_deg geo_lat gps_lat breite breitengrad geo_breite latitud latitudine breedtegraad szerokość широта 緯度 纬度 위도".split()
_LONS = (
    "lon lng long longitude x lon_deg geo_lon gps_lon länge laenge längengrad laengengrad geo_laenge geo_länge longitud longitudine lengtegraad "
    "długość долгота 経度 经度 경도"
).split()
"""Names of columns in several languages; the first of two that fit counts."""
_BOXES = ("bbox", "bounding_box", "extent")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_DELIMITERS = (",", "\t", ";", "|")
_WKT = re.compile(r"\s*(SRID\s*=\s*\d+\s*;\s*)?(POINT|POLYGON|MULTIPOLYGON)\b", re.IGNORECASE)
_GEONAMES = (
    "id,name,ascii_name,text,lat,lon,feature_class,feature_code,country,other_countries,admin1,admin2,admin3,admin4,population,elevation,dem,timezone,date"
).split(",")
"""The columns of a dump of GeoNames (download.geonames.org/export/dump); ``text`` are its alternate names."""
_DEPTH, _FIELDS, _OTHERS = 5, 400, 40
_LINES = 2_000
"""Lines that show whether texts have quotes, and commas without them: a text with a comma may be rare."""
_SHARE = 0.5
"""The share of the records that have a field, from which on it counts as usual."""

Steps = tuple[str, ...]
"""The names of the fields on the way to a value."""

Values = dict[Steps, list[Any]]
"""What some records have there, without nulls."""


class Look(NamedTuple):
    """What a look at the first records of a file or a topic has found.

    :ivar options: the mapping, as ``dskype.input.*`` without its prefix; what was not recognised is None.
    :ivar others: {name: path} of single values that could become attributes.
    :ivar records: the records that were looked at, or why there is none, with the numbers of their lines.
    """

    options: dict[str, Any]
    others: dict[str, str]
    records: list[Numbered]

    def usable(self) -> dict[str, Any]:
        """Return the options for an :class:`InputMapping`: without a place, the default is in its stead."""
        return {name: value for name, value in self.options.items() if value is not None or name not in ("text", "place")}


def look(file: str | Path, most: int = 200, mapping: InputMapping | None = None) -> Look:
    """Look at the first records of a file, and guess how they become messages.

    :param most: how many records.
    :param mapping: says what form they have; None: that is guessed, too.
    :raises OSError: the file cannot be opened.
    :raises IllegalArgumentException: it is damaged, or names no columns.
    """
    if mapping is None:
        mapping = _form(first_lines(file, _LINES), None)
    return _look_at(itertools.islice(RecordFile(file, mapping), most), mapping)


def look_at_values(values: Iterable[bytes | None], mapping: InputMapping | None = None) -> Look:
    """Look at the values of some records of a topic, and guess how they become messages.

    :param mapping: says what form they have; None: that is guessed, too.
    """
    kept = [value for value in values if value is not None]
    if mapping is None:
        is_json = sum(value.lstrip().startswith(b"{") for value in kept) >= _SHARE * len(kept)
        mapping = _form([] if is_json else [value.decode(errors="replace").rstrip("\r\n") for value in kept], False)
    form = mapping
    return _look_at(((number, value if form.format == "json" else _decoded(form, value)) for number, value in enumerate(kept, 1)), form)


def _form(lines: list[str], has_header: bool | None) -> InputMapping:
    """Return a mapping that says what form records have; without lines they are JSON."""
    if not lines:
        return InputMapping({})
    format, form = guess_csv(lines, has_header)
    return InputMapping({"format": format, **({"csv": form} if form else {})})


def _decoded(mapping: InputMapping, value: bytes) -> dict[str, Any] | RecordError:
    try:
        return mapping.decode(value, Limits())
    except RecordError as error:
        return error


def _look_at(numbered: Iterable[Numbered], mapping: InputMapping) -> Look:
    kept = list(numbered)
    objects = [value for _, value in kept if isinstance(value, dict)]
    for _, value in kept:
        if isinstance(value, bytes):
            with contextlib.suppress(RecordError):
                objects.append(json_object(value, len(value), "a message"))
    options, others = guess_mapping(objects)
    return Look({**(mapping.form() or {}), **options, "attributes": {}}, others, kept)


def guess_mapping(records: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a mapping, as ``dskype.input.*`` without its prefix, and {name: path} of what could become attributes.

    What is not recognised is null.

    :param records: some of them; the more, the better.

    >>> guess_mapping([{"tweet": "Late coffee", "where": {"latitude": "48.1", "longitude": "11.6"}, "user": {"name": "ann"}}])
    ({'id': None, 'text': '$.tweet', 'place': {'lat': '$.where.latitude', 'lon': '$.where.longitude'}, 'area': None, 'time': None}, {'user.name': '$.user.name'})
    """
    values: Values = {}
    for record in records:
        _collect(record, (), values)
    least = _SHARE * len(records)
    usual = {steps: found for steps, found in values.items() if len(found) >= least}
    id, time = _id(usual), _time(usual)
    places = _places(values, records)
    text = _text(usual, {path for place in places for path in place.values()})
    found = {"id": id, "text": text, "place": places[0] if places else None, "area": places[1] if len(places) > 1 else None, "time": time}
    return found, _others(usual, found)


def guess_csv(lines: Sequence[str], has_header: bool | None = None) -> tuple[str, dict[str, Any]]:
    """Return the format and ``dskype.input.csv`` of lines of values.

    :param lines: the first ones of a file.
    :param has_header: whether the first line has the names of the columns; None: it looks like that.

    >>> guess_csv(["Name;Breite;Länge", "Café;47.3;8.5", "Bar;47.4;8.6"])
    ('csv', {'delimiter': ';'})
    >>> guess_csv(["17,47.3,8.5,red, brown", "18,47.4,8.6,a dog"])
    ('csv', {'quote': None, 'columns': ['id', 'lat', 'lon', 'text']})
    """
    delimiter = max(_DELIMITERS, key=lambda sign: _evenness(lines, sign))
    format = "tsv" if delimiter == "\t" else "csv"
    form: dict[str, Any] = {} if delimiter in ("\t", ",") else {"delimiter": delimiter}
    quoted = _quoted(lines, delimiter)
    if quoted is None and format == "csv":
        form["quote"] = None
    elif quoted is not None and format == "tsv" and any('"' in line for line in lines):
        form["quote"] = '"'
    rows = [line.split(delimiter) for line in lines if line] if quoted is None else quoted
    head = [name.strip() for name in rows[0]] if rows else []
    if has_header is None:
        has_header = all(head) and len(set(head)) == len(head) and not any(map(_NUMBER.fullmatch, head))
    if head and not has_header:
        form["columns"] = _column_names(rows)
    return format, form


# -- fields of records ------------------------------------------------------------------------------


def _collect(value: Any, steps: Steps, values: Values) -> None:
    if value is None or len(steps) > _DEPTH or len(values) > _FIELDS:
        return
    if steps:
        values.setdefault(steps, []).append(value)
    if isinstance(value, Mapping):
        for name, entry in value.items():
            _collect(entry, (*steps, str(name)), values)


def _path(steps: Steps) -> str:
    """Return the path to a value as a user would write it."""
    if len(steps) == 1 and not re.fullmatch(r"\w+", steps[0]):
        return get_field(steps[0])
    return "$" + "".join(f".{name}" if re.fullmatch(r"\w+", name) else f"[{json.dumps(name, ensure_ascii=False)}]" for name in steps)


def _rank(steps: Steps, names: Sequence[str]) -> tuple[int, int] | None:
    """Return how well a field's name fits; None: not at all."""
    name = steps[-1].strip().lower()
    return (names.index(name), len(steps)) if name in names else None


def _best(values: Values, names: Sequence[str]) -> list[Steps]:
    ranked = [(rank, steps) for steps in values if (rank := _rank(steps, names)) is not None]
    return [steps for _, steps in sorted(ranked)]


def _id(values: Values) -> str | None:
    for steps in _best(values, _IDS):
        if all(type(value) in (int, str) and value != "" for value in values[steps]):
            return _path(steps)
    return None


def _text(values: Values, used: set[str]) -> Any:
    texts = {steps: found for steps, found in values.items() if _is_prose(found) and _path(steps) not in used}
    named = _best(texts, _TEXTS)
    if named:
        headlines = [steps for steps in _best(texts, _HEADLINES) if steps[:-1] == named[0][:-1] and steps != named[0]]
        return [_path(headlines[0]), _path(named[0])] if headlines else _path(named[0])
    longest = max(texts, key=lambda steps: sum(map(len, texts[steps])) / len(texts[steps]), default=None)
    return None if longest is None else _path(longest)


def _is_prose(found: Sequence[Any]) -> bool:
    """Tell whether values are texts that are no numbers, times, addresses or geometries."""
    if not all(type(value) is str for value in found):
        return False
    odd = sum(
        1 for text in found if _NUMBER.fullmatch(text) or time_ms(text, "auto") is not None or re.match(r"\w+://|[\[{]|(SRID|POINT|POLYGON|MULTI)\b", text)
    )
    return odd < _SHARE * len(found) and any(text.strip() for text in found)


def _time(values: Values) -> dict[str, str] | None:
    for steps in _best(values, _TIMES):
        found = [value for value in values[steps] if value != ""]
        for unit in ("ms", "s", "us", "iso8601", "rfc2822"):
            # A number of any size is a time in any unit; the one that the number looks like is meant.
            if found and all(time_ms(value, unit) is not None and time_ms(value, unit) == time_ms(value, "auto") for value in found):
                return {unit: _path(steps)}
    return None


def _others(values: Values, found: Mapping[str, Any]) -> dict[str, str]:
    """Return single values that the mapping does not use, as {name: path}."""
    used = {path for part in found.values() for path in (part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else [part])}
    others = {}
    for steps, given in values.items():
        inside = any(_path(steps[:n]) in used for n in range(1, len(steps) + 1)) or (*steps[:-1], "coordinates") in values
        if not inside and not any(isinstance(value, (Mapping, list)) for value in given):
            others[".".join(re.sub(r"\W+", "_", step).strip("_") or "_" for step in steps)] = _path(steps)
    return dict(list(others.items())[:_OTHERS])


# -- places -----------------------------------------------------------------------------------------


def _places(values: Values, records: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return where messages are: the best way to find it, and one for those that do not have it so."""
    ways = [(way, rows) for way in _ways(values) if (rows := _placed(way, records))]
    # A point says more than an area. Of equals the first one counts; tweets have [lat, lon] in a field of that name, which is no GeoJSON.
    best = max(ways, key=lambda entry: (_points(entry), len(entry[1]), "$.geo" not in entry[0].values()), default=None)
    if best is None:
        return []
    other = max(ways, key=lambda entry: len(entry[1].keys() - best[1].keys()))
    return [best[0], other[0]] if other[1].keys() - best[1].keys() else [best[0]]


def _points(entry: tuple[dict[str, str], dict[int, bool]]) -> bool:
    return 2 * sum(entry[1].values()) >= len(entry[1])


def _placed(way: dict[str, str], records: Sequence[Mapping[str, Any]]) -> dict[int, bool]:
    """Return the numbers of the records that have a place on the globe there -> whether it is a point."""
    place = InputMapping({"place": way, "area": None}).place_part
    found = {}
    for i, record in enumerate(records):
        with contextlib.suppress(RecordError):
            fields = place(record)
            parse_message({"text": "", **({"bbox": [0, 0, 0, 0]} if "region" in fields else fields)})
            found[i] = "lat" in fields
    return found


def _ways(values: Values) -> Iterator[dict[str, str]]:
    """Return each way in which some field could say where a message is."""
    for lat in _best(values, _LATS):
        for lon in _best(values, _LONS):
            if lat[:-1] == lon[:-1]:
                yield {"lat": _path(lat), "lon": _path(lon)}
    for steps, found in values.items():
        if any(map(_is_geojson, found)):
            yield {"geojson": _path(steps)}
        elif any(type(value) is str and _WKT.match(value) for value in found):
            yield {"wkt": _path(steps)}
        elif _rank(steps, _BOXES) is not None:
            yield {"bbox": _path(steps)}


def _is_geojson(value: Any) -> bool:
    return "coordinates" in value if isinstance(value, Mapping) else type(value) is str and value.lstrip().startswith("{") and '"coordinates"' in value


# -- lines of values --------------------------------------------------------------------------------


def _evenness(lines: Sequence[str], delimiter: str) -> tuple[bool, int]:
    """Return how well a sign cuts lines: whether it is in all of them, and how often it is in the one that has fewest."""
    counts = [line.count(delimiter) for line in lines if line]
    fewest = min(counts, default=0)
    return fewest > 0, fewest


def _quoted(lines: Sequence[str], delimiter: str) -> list[list[str]] | None:
    """Return the values of lines whose quotes are those of CSV; None if they are not, or if lines differ in their number of values."""
    rows: list[list[str]] = []
    reader = csv.reader([f"{line}\n" for line in lines], delimiter=delimiter, strict=True)
    try:
        rows.extend(row for row in reader if row)
    except csv.Error:
        if reader.line_num < len(lines) or not rows:  # at the last line the text was cut, perhaps inside quotes
            return None
    counts = Counter(map(len, rows))
    even = max(counts.values(), default=0)
    has_quotes = any(line.startswith('"') or f'{delimiter}"' in line for line in lines)
    return rows if even == len(rows) or (has_quotes and 2 * even > len(rows)) else None


def _column_names(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return names for columns without a header."""
    count = min(map(len, rows))
    if {len(row) for row in rows} == {len(_GEONAMES)} and all(len(row[6]) <= 1 and _NUMBER.fullmatch(row[4]) and _NUMBER.fullmatch(row[5]) for row in rows):
        return list(_GEONAMES)
    columns = [[row[i].strip() for row in rows] for i in range(count)]
    names = [f"column{i}" for i in range(1, count + 1)]
    if len(set(columns[0])) == len(rows) and not any("." in value and _NUMBER.fullmatch(value) for value in columns[0]):
        names[0] = "id"
    for i in range(names[0] == "id", count - 1):
        numbers = [[float(value) for value in columns[at] if _NUMBER.fullmatch(value)] for at in (i, i + 1)]
        fractions = any("." in value for value in columns[i] + columns[i + 1])
        if fractions and all(len(found) >= _SHARE * len(rows) for found in numbers) and all(abs(x) <= 180 for found in numbers for x in found):
            is_lat_first = all(abs(x) <= 90 for x in numbers[0])
            names[i], names[i + 1] = ("lat", "lon") if is_lat_first else ("lon", "lat")
            break
    for i, column in enumerate(columns):
        if names[i].startswith("column") and all(time_ms(value, "auto") is not None for value in column):
            names[i] = "time"
            break
    prose = [i for i in range(count) if names[i].startswith("column") and _is_prose(columns[i])]
    if prose:
        names[max(prose, key=lambda i: sum(map(len, columns[i])))] = "text"
    return names
