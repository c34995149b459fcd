"""Input mappings: where a record of another form has the id, text, place, time and attributes of a message (``dskype.input.*``).

A mapping turns a record into one of DSkype's own form, which then passes the same checks as any other (:func:`~dskype.spouts.records.parse_message`).
"""

from __future__ import annotations

import csv
import difflib
import functools
import io
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dskype.spouts.geometries import GeometryError, from_geojson, from_wkt
from dskype.spouts.record_paths import LEGAL_PATH, RecordPath
from dskype.spouts.record_times import UNITS, time_ms
from dskype.spouts.record_values import RecordError, json_object, longest_bytes, refusal, shown
from dskype.spouts.records import Limits, Message, parse_message
from dskype.topology.errors import IllegalArgumentException, explain

if TYPE_CHECKING:
    from dskype.spouts.settings import Settings

__all__ = ["INPUT_DEFAULTS", "CsvForm", "InputMapping", "message_reader"]

INPUT_DEFAULTS: dict[str, Any] = {
    "format": "json",
    "csv": {},
    "id": "$.id",
    "text": "$.text",
    "place": {"lat": "$.lat", "lon": "$.lon"},
    "area": {"bbox": "$.bbox", "region": "$.region"},
    "time": {"ms": "$.ts"},
    "attributes": "$.attributes",
}
"""What a mapping consists of, with DSkype's own form as the default: the keys are those of ``dskype.input.*``."""

csv.field_size_limit(1 << 30)  # texts have limits of their own, dskype.text.max.bytes

_FORMATS = ("json", "csv", "tsv")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PLACE_CODES = ("no-place", "invalid-lat", "invalid-lon", "invalid-bbox", "invalid-region", "outside-space")
_TEXT_CODES = ("invalid-text", "long-text", "many-words")

_Reader = Callable[[Any], Any]
_Part = Callable[[Any], dict[str, Any] | None]
"""Returns fields of a message from a record, or None if they are not there."""


class CsvForm(NamedTuple):
    """How records are lines of columns.

    :ivar columns: their names; None: a file's first line has them.
    :ivar header: whether a file begins with a line of names.
    :ivar delimiter: one character.
    :ivar quote: the character around values that contain delimiters; None: there is none, and the last column may contain delimiters.
    """

    columns: tuple[str, ...] | None
    header: bool
    delimiter: str
    quote: str | None

    def rows(self, lines: Iterable[str]) -> Iterable[list[str]]:
        """Cut lines into values. Iterating raises ``csv.Error`` where a line cannot be cut, and may go on after that."""
        if self.quote is None:
            most = len(self.columns) - 1 if self.columns else -1
            return (line.rstrip("\r\n").split(self.delimiter, most) for line in lines)
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote, strict=True)

    def record(self, values: list[str]) -> dict[str, str]:
        """Return the record of a line's values.

        :raises RecordError: there are more or fewer values than columns.
        """
        columns = self.columns or ()
        if len(values) != len(columns):
            hint = "quote: null in dskype.input.csv says that texts have no quotes" if self.quote and len(values) > len(columns) else None
            raise refusal("invalid-csv", "Expected a value for each column", f"{len(values)} values", f"{len(columns)}: {', '.join(columns)}", hint)
        return dict(zip(columns, values))


class InputMapping:
    """Turns records of one form into records of DSkype's own form.

    :param options: some keys of :data:`INPUT_DEFAULTS`; for the others DSkype's own form is the default.
    :param key: where the options are in the configuration, for errors.
    :raises IllegalArgumentException: an unknown key, or a value that makes no sense.

    >>> mapping = InputMapping({"text": "$.tweet", "place": {"geojson": "$.where"}, "time": {"auto": "$.at"}})
    >>> mapping.canonical({"tweet": "Late coffee", "where": {"type": "Point", "coordinates": [11.6, 48.1]}, "at": "2013-04-01T12:00:00Z"})
    {'text': 'Late coffee', 'lat': 48.1, 'lon': 11.6, 'ts': 1364817600000}
    """

    def __init__(self, options: Mapping[str, Any], key: str = "dskype.input") -> None:
        self._key, self._options = key, dict(options)
        for name in options:
            if name not in INPUT_DEFAULTS:
                near = difflib.get_close_matches(str(name), INPUT_DEFAULTS, 1)
                raise self._unusable("", name, ", ".join(INPUT_DEFAULTS), f"did you mean {near[0]}?" if near else None)
        given = {**INPUT_DEFAULTS, **options}
        self.format: str = given["format"]
        if self.format not in _FORMATS:
            raise self._unusable("format", self.format, " | ".join(_FORMATS))
        self.csv = self._csv(given["csv"])
        self._sources: dict[str, str] = {}
        """Code of an error -> the paths of the values that it is about."""
        self._parts = [
            *([self._id(given["id"])] if given["id"] is not None else ()),
            self._text(given["text"]),
            self._first([*self._places("place", given["place"]), *self._places("area", given["area"])]),
            *([self._time(given["time"])] if given["time"] is not None else ()),
            *([self._attributes(given["attributes"])] if given["attributes"] else ()),
        ]

    def __reduce__(self) -> Any:
        return InputMapping, (self._options, self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputMapping) and self._options == other._options

    def __hash__(self) -> int:
        return hash(repr(self._options))

    def __repr__(self) -> str:
        return f"InputMapping({self._options!r})"

    # -- records ---------------------------------------------------------------------------------------

    def decode(self, value: bytes | None, limits: Limits) -> dict[str, Any]:
        """Return the record in the value of a Kafka record.

        :raises RecordError: it is none of this format.
        """
        if self.format == "json":
            return json_object(value, limits.text_max_bytes, "a message")
        longest = longest_bytes(limits.text_max_bytes)
        if value is None or len(value) > longest:
            given = "nothing" if value is None else f"{len(value)} bytes"
            raise refusal("long-record" if value else "invalid-csv", "Expected a message as a line of values", given, f"up to {longest} bytes")
        if self.csv.columns is None:
            raise refusal(
                "invalid-csv", "Expected the names of the columns, which records of a topic do not bring", "none", hint="dskype.input.csv: {columns: [...]}"
            )
        try:
            text = value.decode()
        except UnicodeDecodeError as e:
            raise refusal("invalid-utf8", f"Expected a message in UTF-8 (wrong at byte {e.start + 1})", repr(value[e.start : e.start + 20])) from None
        try:
            rows = list(self.csv.rows(io.StringIO(text, newline="")))
        except csv.Error as e:
            raise refusal("invalid-csv", f"Expected a message as one line of values ({e})", shown(text)) from None
        if len(rows) != 1:
            raise refusal("invalid-csv", "Expected a message as one line of values", f"{len(rows)} lines")
        return self.csv.record(rows[0])

    def canonical(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record of DSkype's own form. Its values are not checked yet; see :func:`message_reader`.

        :raises RecordError: something is missing, or cannot be read; it names the path.
        """
        found: dict[str, Any] = {}
        for part in self._parts:
            if (fields := part(record)) is not None:
                found.update(fields)
        return found

    def located(self, error: RecordError) -> RecordError:
        """Return an error of the checks with the paths of the values that it is about."""
        source = self._sources.get(error.code)
        return error if source is None else RecordError(f"{error.reason}; read from: {source}", error.code)

    # -- options ---------------------------------------------------------------------------------------

    def _unusable(self, name: str, given: Any, legal: str, hint: str | None = None) -> IllegalArgumentException:
        key = f"{self._key}.{name}" if name else self._key
        return IllegalArgumentException(explain(f"The configuration key {key} is not usable.", given=given, legal=legal, hint=hint))

    def _path(self, name: str, text: Any) -> RecordPath:
        try:
            return RecordPath(text)
        except IllegalArgumentException as e:
            raise IllegalArgumentException(f"The configuration key {self._key}.{name} is not usable. {e}") from None

    def _csv(self, given: Any) -> CsvForm:
        legal = "a map with some of columns (a list of names), header (true or false), delimiter and quote (one character; quote may be null)"
        if not isinstance(given, Mapping) or not given.keys() <= {"columns", "header", "delimiter", "quote"}:
            raise self._unusable("csv", given, legal)
        columns = given.get("columns")
        if columns is not None and not (isinstance(columns, (list, tuple)) and columns and all(isinstance(c, str) and c for c in columns)):
            raise self._unusable("csv", given, legal)
        if columns is not None and len(set(columns)) < len(columns):
            raise self._unusable("csv", given, legal, "each column needs a name of its own")
        header = given.get("header", columns is None)
        delimiter, quote = given.get("delimiter", "\t" if self.format == "tsv" else ","), given.get("quote", None if self.format == "tsv" else '"')
        signs = [delimiter] if quote is None else [delimiter, quote]
        if type(header) is not bool or (columns is None and not header) or not all(isinstance(s, str) and len(s) == 1 and s not in "\r\n" for s in signs):
            raise self._unusable("csv", given, legal, None if header else "a file without a header needs columns")
        if delimiter == quote:
            raise self._unusable("csv", given, legal, "delimiter and quote have to differ")
        return CsvForm(None if columns is None else tuple(columns), header, delimiter, quote)

    # -- parts of a message ----------------------------------------------------------------------------

    def _id(self, given: Any) -> _Part:
        path = self._path("id", given)
        find = path.getter()
        self._sources["invalid-id"] = str(path)

        def read(record: Any) -> dict[str, Any] | None:
            id = find(record)
            return None if id is None or id == "" else {"id": id}

        return read

    def _text(self, given: Any) -> _Part:
        if isinstance(given, Mapping) and given:
            fields = {name: self._path("text", path) for name, path in given.items()}
            if not all(isinstance(name, str) for name in fields):
                raise self._unusable("text", given, "a map of names to paths")
            paths = list(fields.values())
        else:
            fields = {}
            listed = list(given) if isinstance(given, (list, tuple)) else [given]
            if not listed or given == {}:
                raise self._unusable("text", given, f"a path, a list of paths, or a map of names to paths; {LEGAL_PATH}")
            paths = [self._path("text", path) for path in listed]
        source = ", ".join(map(str, paths))
        self._sources.update(dict.fromkeys(_TEXT_CODES, source))
        finders = [(path, path.getter()) for path in paths]
        names, whole = list(fields), not fields and len(paths) == 1

        def read(record: Any) -> dict[str, Any]:
            texts = [_text_of(find(record), path, whole) for path, find in finders]
            if names:
                found: Any = {name: text for name, text in zip(names, texts) if text is not None}
            else:
                found = texts[0] if len(texts) == 1 else "\n".join(text for text in texts if text is not None)
            if all(text is None for text in texts):
                raise refusal("invalid-text", f"Expected the text of the message at {source}", "nothing", "a string or a list of strings")
            return {"text": found}

        return read

    def _first(self, places: list[tuple[str, _Part]]) -> _Part:
        source = ", ".join(where for where, _ in places)
        self._sources.update(dict.fromkeys(_PLACE_CODES, source))
        parts = [part for _, part in places]

        def read(record: Any) -> dict[str, Any]:
            for part in parts:
                if (found := part(record)) is not None:
                    return found
            raise refusal("no-place", f"Expected the place of the message at {source}", "nothing")

        return read

    def _places(self, name: str, given: Any) -> list[tuple[str, _Part]]:
        """Return the ways to find a place, in the order in which they are tried, each with its paths."""
        if given is None and name == "area":
            return []
        legal = (
            "a map with one or more of {lat: path, lon: path}, {geojson: path}, {wkt: path}, {bbox: path}, {west, south, east, north: paths}, {region: path}"
        )
        if not isinstance(given, Mapping) or not given:
            raise self._unusable(name, given, legal)
        paths = {kind: self._path(f"{name}.{kind}", path) for kind, path in given.items()}
        found: list[tuple[str, _Part]] = []
        for group in (("lat", "lon"), ("west", "south", "east", "north")):
            if parts := [kind for kind in group if kind in paths]:
                if len(parts) < len(group):
                    raise self._unusable(name, given, legal, f"{parts[0]} needs {', '.join(kind for kind in group if kind not in parts)}")
                numbers = [paths.pop(kind) for kind in group]
                found.append((", ".join(map(str, numbers)), _numbers_part(group, numbers)))
        for kind, path in paths.items():
            reader = {"geojson": from_geojson, "wkt": from_wkt, "bbox": _bbox_of, "region": lambda value: {"region": value}}.get(kind)
            if reader is None:
                raise self._unusable(name, given, legal)
            found.append((str(path), _geometry_part(path, reader)))
        return found

    def _time(self, given: Any) -> _Part:
        legal = f"a path, or {{unit: path}} with one of the units {', '.join(UNITS)}"
        (unit, text), *others = given.items() if isinstance(given, Mapping) and given else [("auto", given)]
        if unit not in UNITS or others:
            raise self._unusable("time", given, legal)
        path = self._path("time", text)
        find = path.getter()
        self._sources["invalid-ts"] = str(path)

        def read(record: Any) -> dict[str, Any] | None:
            value = find(record)
            if value is None or value == "":
                return None
            if type(value) is int and unit == "ms":
                return {"ts": value}
            if (ts := time_ms(value, unit)) is None:
                raise refusal("invalid-ts", f"Expected the time of the message at {path}", shown(value), UNITS[unit])
            return {"ts": ts}

        return read

    def _attributes(self, given: Any) -> _Part:
        if isinstance(given, Mapping):
            paths = {name: self._path(f"attributes.{name}", path) for name, path in given.items()}
            finders = [(name, path.getter()) for name, path in paths.items()]

            def read(record: Any) -> dict[str, Any] | None:
                found = {name: value for name, find in finders if (value := find(record)) is not None and value != ""}
                return {"attributes": found} if found else None

            return read
        path = self._path("attributes", given)
        find = path.getter()
        self._sources["invalid-attributes"] = str(path)

        def read_object(record: Any) -> dict[str, Any] | None:
            value = find(record)
            return None if value is None else {"attributes": value}

        return read_object


def message_reader(settings: Settings, mapping: InputMapping | None) -> Callable[[bytes | dict[str, Any] | None], Message]:
    """Return the function that reads messages in the form that a mapping describes; None: DSkype's own form.

    It takes the value of a Kafka record, or what a reader of a file has made of a line, and raises :class:`~dskype.spouts.record_values.RecordError` if
    that cannot be used; the text names the path.
    """
    check = functools.partial(parse_message, space=settings.space, limits=settings.limits, text_fields=settings.text_fields)
    if mapping is None:
        return check

    def read(value: bytes | dict[str, Any] | None) -> Message:
        record = mapping.canonical(value if isinstance(value, dict) else mapping.decode(value, settings.limits))
        try:
            return check(record)
        except RecordError as error:
            raise mapping.located(error) from None

    return read


def _text_of(value: Any, path: RecordPath, whole: bool) -> Any:
    if value is None or type(value) is str or (whole and type(value) is dict):  # the object of DSkype's own form: the fields of the text
        return value
    if type(value) is list and all(type(text) is str for text in value):
        return "\n".join(value)
    raise refusal("invalid-text", f"Expected the text of the message at {path}", shown(value), "a string or a list of strings")


def _numbers_part(names: tuple[str, ...], paths: list[RecordPath]) -> _Part:
    """Return the part that reads ``lat`` and ``lon``, or the four sides of a rectangle."""
    finders = [path.getter() for path in paths]

    def read(record: Any) -> dict[str, Any] | None:
        values = [find(record) for find in finders]
        for i, value in enumerate(values):
            if type(value) is not float:
                values[i] = _degrees(value)
        if None in values:
            return None if all(value is None for value in values) else _missing(values)
        return dict(zip(names, values)) if len(names) == 2 else {"bbox": values}

    def _missing(values: list[Any]) -> Any:
        i = values.index(None)
        code = f"invalid-{names[i]}" if len(names) == 2 else "invalid-bbox"
        raise refusal(code, f"Expected '{names[i]}' of the message at {paths[i]}", "nothing", "a number of degrees, or its text")

    return read


def _degrees(value: Any) -> Any:
    """Return a number for a text that is one; None for an empty text; all else as it is, for the checks to refuse."""
    if isinstance(value, str):
        text = value.strip()
        return None if not text else float(text) if _NUMBER.fullmatch(text) else value
    return value


def _bbox_of(value: Any) -> dict[str, Any]:
    return {"bbox": value}


def _geometry_part(path: RecordPath, reader: Callable[[Any], dict[str, Any] | None]) -> _Part:
    find = path.getter()

    def read(record: Any) -> dict[str, Any] | None:
        value = find(record)
        if value is None or value == "":
            return None
        try:
            return reader(value)
        except GeometryError as e:
            raise refusal("invalid-geometry", f"Expected {e.words} at {path}", e.given, e.legal) from None

    return read
