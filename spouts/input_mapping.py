"""Input mappings: where a record of another form has the id, text, place, time and attributes of a message (``dskype.input.*``).

A mapping turns a record into one of DSkype's own form, which then passes the same checks as any other (:func:`~dskype.spouts.records.parse_message`).
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dskype.spouts import schema_registry
from dskype.spouts.geometries import GeometryError, from_geojson, from_wkt
from dskype.spouts.record_paths import LEGAL_PATH, RecordPath
from dskype.spouts.record_times import UNITS, time_ms
from dskype.spouts.record_values import RecordError, json_object, longest_bytes, message_text, refusal, shown
from dskype.spouts.records import Limits, Message, encode_attributes, parse_message
from dskype.topology.errors import IllegalArgumentException

if TYPE_CHECKING:
    from dskype.spouts.attributes import Attributes
    from dskype.spouts.settings import Settings

__all__ = ["INPUT_DEFAULTS", "CsvForm", "InputMapping", "MessageReader"]

INPUT_DEFAULTS: dict[str, Any] = {
    "format": "json",
    "csv": {},
    "registry": {},
    "id": "$.id",
    "text": "$.text",
    "place": {"lat": "$.lat", "lon": "$.lon"},
    "area": {"bbox": "$.bbox", "region": "$.region"},
    "time": {"ms": "$.ts"},
    "attributes": "$.attributes",
    "object": "$.object",
}
"""What a mapping consists of, with DSkype's own form as the default: the keys are those of ``dskype.input.*``."""

csv.field_size_limit(1 << 30)  # texts have limits of their own, dskype.text.max.bytes

_FORMATS = ("json", "csv", "tsv", *schema_registry.FORMATS)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PLACE_CODES = ("no-place", "invalid-lat", "invalid-lon", "invalid-bbox", "invalid-region", "outside-space")
_PLACE_FIELDS = ("lat", "lon", "bbox", "region")
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

    def rows(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Cut lines into values. Iterating raises ``csv.Error`` where a line cannot be cut, and may go on after that."""
        if self.quote is None:
            most = len(self.columns) - 1 if self.columns else -1

            def cut(line: str) -> list[str]:
                return line.rstrip("\r\n").split(self.delimiter, most)

            return map(cut, lines)  # goes on after an error in lines, as csv.reader does
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
        self._registry = given["registry"]
        if not isinstance(self._registry, Mapping) or (self.format in schema_registry.FORMATS and not self._registry.get("url")):
            raise self._unusable(
                "registry", sorted(self._registry) if isinstance(self._registry, Mapping) else self._registry, "a map with the url of the registry"
            )
        self._decoder: schema_registry.SchemaDecoder | None = None
        self._sources: dict[str, str] = {}
        """Code of an error -> the paths of the values that it is about."""
        self.text_part = self._text(given["text"])
        """Returns ``{"text": ...}`` of a record, and raises :class:`RecordError` if it has none."""
        self.place_part = self._first([*self._places("place", given["place"]), *self._places("area", given["area"])])
        """The same for the fields that say where it is."""
        self._parts = [
            *([self._id(given["id"])] if given["id"] is not None else ()),
            self.text_part,
            self.place_part,
            *([self._time(given["time"])] if given["time"] is not None else ()),
            *([self._attributes(given["attributes"])] if given["attributes"] else ()),
        ]
        self._object_part = None if given["object"] is None else self._id(given["object"], "object")

    def __reduce__(self) -> Any:
        return InputMapping, (self._options, self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputMapping) and self._options == other._options

    def __hash__(self) -> int:
        return hash(repr(self._options))

    def __repr__(self) -> str:
        return f"InputMapping({ {name: value for name, value in self._options.items() if name != 'registry'} })"  # which may hold a password

    @property
    def options(self) -> dict[str, Any]:
        """All keys of :data:`INPUT_DEFAULTS` with their values."""
        return {**INPUT_DEFAULTS, **self._options}

    def form(self) -> dict[str, Any] | None:
        """Return the options if they say nothing but what form records have, and not what is where; otherwise None."""
        parts = ("format", "csv", "registry")
        given = {name: value for name, value in self._options.items() if value != INPUT_DEFAULTS[name]}
        return given if given.keys() <= set(parts) else None

    def in_format(self, format: str) -> InputMapping:
        """Return the same mapping for records of another format."""
        return self if format == self.format else InputMapping({**self._options, "format": format}, self._key)

    # -- records ---------------------------------------------------------------------------------------

    def decode(self, value: bytes | None, limits: Limits) -> dict[str, Any]:
        """Return the record in the value of a Kafka record.

        :raises RecordError: it is none of this format.
        """
        if self.format == "json":
            return json_object(value, limits.text_max_bytes, "a message")
        longest = longest_bytes(limits.text_max_bytes)
        if self.format in schema_registry.FORMATS:
            if value is not None and len(value) > longest:
                raise refusal("long-record", "Expected a message in fewer bytes", f"{len(value)} bytes", f"up to {longest} bytes")
            if self._decoder is None:
                self._decoder = schema_registry.SchemaDecoder(self.format, self._registry)
            return self._decoder.decode(value)
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

    def canonical(self, record: Mapping[str, Any], objects: bool = False) -> dict[str, Any]:
        """Return a record of DSkype's own form. Its values are not checked yet; see :class:`MessageReader`.

        :param objects: whether it may name an object.
        :raises RecordError: something is missing, or cannot be read; it names the path.
        """
        found: dict[str, Any] = {}
        for part in self._parts:
            if (fields := part(record)) is not None:
                found.update(fields)
        if objects and self._object_part is not None and (fields := self._object_part(record)) is not None:
            found.update(fields)
        return found

    def located(self, error: RecordError) -> RecordError:
        """Return an error of the checks with the paths of the values that it is about."""
        source = self._sources.get(error.code)
        return error if source is None or source in error.reason else RecordError(f"{error.reason}; read from: {source}", error.code)

    # -- options ---------------------------------------------------------------------------------------

    def _unusable(self, name: str, given: Any, legal: str, hint: str | None = None) -> IllegalArgumentException:
        key = f"{self._key}.{name}" if name else self._key
        return IllegalArgumentException(f"The configuration key {key} is not usable.", given=given, legal=legal, hint=hint)

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

    def _id(self, given: Any, name: str = "id") -> _Part:
        path = self._path(name, given)
        find = path.getter()
        self._sources[f"invalid-{name}"] = str(path)

        def read(record: Any) -> dict[str, Any] | None:
            id = find(record)
            return None if id is None or id == "" else {name: id}

        return read

    def _text(self, given: Any) -> Callable[[Any], dict[str, Any]]:
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

    def _first(self, places: list[tuple[str, _Part]]) -> Callable[[Any], dict[str, Any]]:
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
            self._sources["invalid-attributes"] = ", ".join(map(str, paths.values()))

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


class MessageReader:
    """Reads messages in the form that a mapping describes.

    :param settings: what messages are checked by.
    :param mapping: None: they have DSkype's own form.
    """

    def __init__(self, settings: Settings, mapping: InputMapping | None) -> None:
        self._settings, self._mapping = settings, mapping
        space, limits, text_fields, objects = settings.space, settings.limits, settings.text_fields, settings.objects

        def parse(value: bytes | dict[str, Any] | None) -> Message:  # takes 0.2 µs less than a functools.partial
            return parse_message(value, space=space, limits=limits, text_fields=text_fields, objects=objects)

        self._parse = parse
        self.read: Callable[[bytes | dict[str, Any] | None], Message] = self._parse if mapping is None else self._read_mapped
        """Return the message in the value of a Kafka record, or in what a reader of a file has made of a line.

        It raises :class:`~dskype.spouts.record_values.RecordError` if the message cannot be used. :meth:`located` names the path.
        """

    def _read_mapped(self, value: bytes | dict[str, Any] | None) -> Message:
        return self._parse(self.own_form(value))

    def own_form(self, value: Any) -> Any:
        """Return a message in DSkype's own form, not checked yet: a dict, or without a mapping what was given.

        :raises RecordError: something is missing, or cannot be read; it names the path.
        """
        return value if self._mapping is None else self._in_own_form(self._mapping, self._decoded(value))

    def _in_own_form(self, mapping: InputMapping, record: dict[str, Any]) -> dict[str, Any]:
        found = mapping.canonical(record, self._settings.objects)
        if type(found.get("attributes")) is dict:
            found["attributes"] = _typed(found["attributes"], self._settings.attributes)
        return found

    def read_whole(self, value: bytes | dict[str, Any] | None) -> tuple[Message, dict[str, Any], dict[str, Any]]:
        """Return a message as :attr:`read` does, its record in DSkype's own form, and its record as it came.

        :raises RecordError: it cannot be used.
        """
        record = self._decoded(value)
        own = record if self._mapping is None else self._in_own_form(self._mapping, record)
        return self._parse(own), own, record

    def check(self, record: bytes | dict[str, Any] | None) -> Message:
        """Return the message that :meth:`own_form` returned, whose attributes are checked, too.

        :raises RecordError: it cannot be used.
        """
        try:
            message = self._parse(record)
            if not message.deleted:
                encode_attributes(self._settings.attributes, message)
        except RecordError as error:
            raise self.located(error) from None
        return message

    def located(self, error: RecordError) -> RecordError:
        """Return an error of the checks with the paths of the values that it is about."""
        return error if self._mapping is None else self._mapping.located(error)

    def text(self, value: Any) -> str:
        """Return the text of a message, whose place and other parts are not read; not checked against the limits.

        :raises RecordError: it has none.
        """
        record = self._decoded(value)
        return message_text(record if self._mapping is None else self._mapping.text_part(record), self._settings.text_fields)

    def place(self, value: Any) -> tuple[float, float]:
        """Return latitude and longitude of a message, of an area those of its centre; other parts are not read.

        :raises RecordError: it has none.
        """
        record = self._decoded(value)
        place = {name: record[name] for name in _PLACE_FIELDS if name in record} if self._mapping is None else self._mapping.place_part(record)
        found = self.check({"text": "", **place})
        return found.lat, found.lon

    def _decoded(self, value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        limits = self._settings.limits
        return json_object(value, limits.text_max_bytes, "a message") if self._mapping is None else self._mapping.decode(value, limits)


_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def _typed(attributes: dict[str, Any], declared: Attributes) -> dict[str, Any]:
    """Return attributes with texts turned into what ``dskype.attributes`` declares; what cannot be turned stays as it is, for the checks to refuse."""
    found = dict(attributes)
    for name, value in attributes.items():
        type_ = declared[name].type if name in declared else "string"
        if type_ == "time":
            ts = time_ms(value, "auto")
            found[name] = value if ts is None else ts
        elif isinstance(value, str) and type_ != "string":
            text = value.strip()
            if type_ == "number":
                found[name] = float(text) if _NUMBER.fullmatch(text) else value
            elif type_ == "boolean":
                found[name] = _BOOLEANS.get(text.lower(), value)
            else:
                found[name] = [part.strip() for part in text.split(",")]
    return found


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
