"""Readers of files of records: JSON lines, a JSON array, CSV, TSV and Parquet, also packed with gzip or zstd. Memory stays bounded however long a file is."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import json
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

from dskype.spouts.geometries import geo_columns, wkb_to_geojson
from dskype.spouts.input_mapping import CsvForm, InputMapping
from dskype.spouts.record_values import RecordError, plain_value, refusal, shown
from dskype.topology.errors import IllegalArgumentException

__all__ = ["LINE_BYTES", "Numbered", "RecordFile", "first_lines", "plain_lines"]

LINE_BYTES = 4 << 20
"""Longest line, or object of an array, that is read. Nothing longer fits into a record."""

_BUFFER_BYTES = 1 << 20
"""Large, because each read releases the interpreter lock, and getting it back from a busy producer takes milliseconds."""
_PACKED_BYTES = 256
"""So few, because they may unpack to 8 MiB."""
_ROWS = 1024
_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_FORMATS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv"}
_MARK = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")
"""What a byte becomes that is no UTF-8."""

_HEAD_BYTES = 1 << 16
_BEFORE = rb'[^\[]*(?:(?:(?<="bbox":)|(?<="bbox": ))\[[^\[\]]*\][^\[]*)?'
_FEATURES = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{(?:(?=%b"FeatureCollection")%b"features"\s*:\s*(?=\[)|%b"features"\s*:\s*(?=\[\s*\{[^{}]*"(?:Feature|geometry)"))'
    % (_BEFORE, _BEFORE, _BEFORE)
)
"""The begin of a GeoJSON FeatureCollection; of lists, only a bounding box may be before its features. If members are sorted, its type follows the features; then the first feature identifies it."""

Numbered = tuple[int, "bytes | dict[str, Any] | RecordError"]
"""Number of the line from 1, or of the record where records are no lines; JSON, or a record, or why there is none."""


class RecordFile:
    """The records of a file, to be iterated over once: see :data:`Numbered`.

    Unless the mapping says it, the end of a file's name says whether it is CSV (``.csv``) or TSV (``.tsv``, ``.tab``), before ``.gz`` or ``.zst``. Its first bytes say whether it is packed, whether it is Parquet, and whether JSON is lines, an array or a GeoJSON FeatureCollection.

    :param file: a path; ``-``: standard input.
    :param mapping: what ``dskype.input.*`` says; None: records have DSkype's own form.
    :raises OSError: the file cannot be opened.
    :raises IllegalArgumentException: it is damaged, or names no columns; in most cases while it is read.
    :ivar mapping: the one that applies to the records; None: they have DSkype's own form.
    """

    def __init__(self, file: str | Path, mapping: InputMapping | None = None) -> None:
        self.name = str(file)
        with contextlib.ExitStack() as stack, _told(self.name):
            self._source = _opened(self.name, stack)
            self._is_parquet = self._source.peek(4)[:4] == _PARQUET
            self._stack = stack.pop_all()
        self.mapping: InputMapping | None = None
        self.use(mapping)

    def use(self, mapping: InputMapping | None) -> None:
        """Set the mapping before the file is read, for whoever opens it before the mapping is known."""
        if self._is_parquet:
            format = "json"
        elif mapping is not None and mapping.format in _FORMATS.values():
            format = mapping.format
        else:
            format = _FORMATS.get(_ending(self.name), "json")
        if mapping is None and (format != "json" or self._is_parquet):
            mapping = InputMapping({})
        self.mapping = None if mapping is None else mapping.in_format(format)

    def __iter__(self) -> Iterator[Numbered]:
        with self._stack, _told(self.name):
            if self._is_parquet:
                yield from self._parquet()
            elif self.mapping is not None and self.mapping.format != "json":
                yield from self._rows(self.mapping)
            elif (features := _FEATURES.match(self._source.peek(_HEAD_BYTES))) is not None:
                self._source.read(features.end())
                yield from _Array(self._source, whole=False)
            elif _first_sign(self._source) == b"[":
                yield from _Array(self._source)
            else:
                yield from _plain_lines(self.name, self._source, self._stack)

    def _rows(self, mapping: InputMapping) -> Iterator[Numbered]:
        """Return the lines of CSV or TSV as records."""
        lines, form = _TextLines(self._source), mapping.csv
        if form.header:
            names = _names(form, lines)
            if form.columns is None:
                form = form._replace(columns=names)
        rows = form.rows(lines)
        while True:
            number = lines.number + 1
            try:
                row = next(rows, None)
                if row is None:
                    return
                if row in ([], [""]):
                    continue
                record = form.record(row)
                "".join(row).encode()
            except csv.Error as ex:
                yield number, refusal("invalid-csv", f"Expected a line of values ({ex})", "another")
            except UnicodeEncodeError:
                yield number, refusal("invalid-utf8", "Expected values in UTF-8", repr(",".join(row or []).encode(errors="surrogateescape")[:60]))
            except RecordError as ex:
                yield number, ex
            else:
                yield number, record

    def _parquet(self) -> Iterator[Numbered]:
        try:
            import pyarrow as pa
            import pyarrow.parquet as parquet
        except ModuleNotFoundError:
            raise IllegalArgumentException("Parquet needs pyarrow.", given=self.name, hint="pip install '/path/to/dskype[spark]'") from None
        if self.name == "-":
            raise IllegalArgumentException("Parquet is read from a file, not from standard input.", given="-")
        try:
            number = 0
            with parquet.ParquetFile(self.name) as file:
                names = file.schema_arrow.names
                if twice := sorted({name for name in names if names.count(name) > 1}):
                    raise IllegalArgumentException("Several columns of the file have the same name.", given=twice, legal="a name of its own for each column")
                geometries = _geometries(file.schema_arrow, self.name)
                for row in _parquet_rows(file):
                    number += 1
                    if isinstance(row, RecordError):
                        yield number, row
                        continue
                    for name, as_geojson in geometries.items():
                        row[name] = as_geojson(row[name])
                    yield number, plain_value(row)
        except pa.ArrowException as ex:
            raise IllegalArgumentException("The file cannot be read to its end.", given=self.name, hint=str(ex)) from None


def _names(form: CsvForm, lines: _TextLines) -> tuple[str, ...]:
    """Return what the first line of CSV or TSV says; it has to name the columns if nothing else does.

    :raises IllegalArgumentException: it cannot be read, or does not name them.
    """
    words, legal = "The first line of the file names no columns.", "a line of different names in UTF-8, one for each column"
    hint = "dskype.input.csv: {columns: [...]} names the columns of a file that does not"
    try:
        names = tuple(name.strip() for name in next(form._replace(columns=None).rows(lines), []))
    except csv.Error as ex:
        raise IllegalArgumentException(words, given=str(ex), legal=legal, hint=hint) from None
    if form.columns is None and (not names or not all(names) or len(set(names)) < len(names) or _SURROGATE.search("".join(names))):
        raise IllegalArgumentException(words, given=list(names), legal=legal, hint=hint)
    return names


def _parquet_rows(file: Any) -> Iterator[dict[str, Any] | RecordError]:
    """Return the rows of a Parquet file; an error in place of one with a value that Python does not have, such as a time after the year 9999."""
    for batch in file.iter_batches(batch_size=_ROWS):
        try:
            yield from batch.to_pylist()
        except (OverflowError, LookupError, ValueError):
            for at in range(len(batch)):
                try:
                    yield from batch.slice(at, 1).to_pylist()
                except (OverflowError, LookupError, ValueError) as ex:
                    yield refusal("invalid-json", "Expected a row of values that JSON can have", str(ex))


def _geometries(schema: Any, file: str) -> dict[str, Any]:
    """Return the columns of geometries of a Parquet file: column -> the function that turns a value into GeoJSON.

    They are those that the key ``geo`` names (GeoParquet), or, without it, those of Parquet's own type for geometries in well-known binary.
    """
    if metadata := (schema.metadata or {}).get(b"geo"):
        return {name: read for name, read in geo_columns(metadata, file).items() if name in schema.names}
    marked = (b"ARROW:extension:name", b"geoarrow.wkb")
    return {
        field.name: wkb_to_geojson
        for field in schema
        if getattr(field.type, "extension_name", None) == "geoarrow.wkb" or (field.metadata or {}).get(marked[0]) == marked[1]
    }


def _opened(name: str, stack: contextlib.ExitStack) -> Any:
    """Open a file, or for ``-`` standard input, and return a stream of its content, unpacked if it is packed; ``stack`` closes it.

    :raises OSError: the file cannot be opened.
    """
    if name == "-":
        raw = getattr(sys.stdin.buffer, "raw", None)
        source: Any = io.BufferedReader(sys.stdin.buffer if raw is None else raw, _BUFFER_BYTES)
        stack.callback(source.detach)  # standard input stays open
    else:
        source = stack.enter_context(open(name, "rb", buffering=_BUFFER_BYTES))  # noqa: SIM115
    begin = source.peek(4)
    if begin.startswith(_GZIP):
        return io.BufferedReader(gzip.GzipFile(fileobj=source), _BUFFER_BYTES)
    if begin.startswith(_ZSTD):
        return io.BufferedReader(_Unpacked(source), _BUFFER_BYTES)
    return source


class _Unpacked(io.RawIOBase):
    """The content of a file that is packed with zstd. An end within a frame is an error; zstandard's own reader takes it for the end of the content.

    :param source: a stream of the packed bytes.
    """

    def __init__(self, source: Any) -> None:
        self._source, self._left, self._inside = source, memoryview(b""), False
        self._frame = zstandard.ZstdDecompressor().decompressobj()

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, room: Any) -> int:
        """Fill ``room`` as far as possible without waiting for more; return 0 at the end.

        :raises EOFError: the file ends within a frame.
        """
        while not self._left:
            packed = (self._frame.unused_data if self._frame.eof else b"") or self._source.read(_PACKED_BYTES)
            if not packed:
                if self._inside:
                    raise EOFError("Compressed file ended before the end of a frame")
                return 0
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._left = memoryview(self._frame.decompress(packed))
            self._inside = not self._frame.eof
        n = min(len(room), len(self._left))
        room[:n], self._left = self._left[:n], self._left[n:]
        return n


def plain_lines(file: str) -> Iterator[tuple[int, bytes | RecordError]]:
    """Open a file, or for ``-`` standard input, and return an iterator over (number from 1, line without its end), without blank lines.

    In place of a line longer than :data:`LINE_BYTES` there is an error.

    :raises OSError: the file cannot be opened.
    :raises IllegalArgumentException: while it is read: it is damaged.
    """
    with contextlib.ExitStack() as stack:
        return _plain_lines(file, _opened(file, stack), stack.pop_all())


def first_lines(file: str | Path, most: int = 100) -> list[str]:
    """Return the first lines of a file of CSV or TSV, without their ends; none of another file.

    :raises OSError: the file cannot be opened.
    :raises IllegalArgumentException: it is damaged.
    """
    with contextlib.ExitStack() as stack, _told(str(file)):
        source = _opened(str(file), stack)
        if source.peek(4)[:4] == _PARQUET or (_first_sign(source) in (b"{", b"[") and _ending(str(file)) not in _FORMATS):
            return []
        lines = itertools.islice(_raw_lines(source), most)
        return [line.decode(errors="replace").rstrip("\r\n") for _, line in lines if line is not None]


def _ending(name: str) -> str:
    return Path(name.removesuffix(".gz").removesuffix(".zst")).suffix.lower()


def _plain_lines(file: str, source: Any, stack: contextlib.ExitStack) -> Iterator[tuple[int, bytes | RecordError]]:
    with stack, _told(file):
        for number, line in _raw_lines(source):
            if line is None:
                yield number, refusal("long-record", "Expected a shorter line", f"more than {LINE_BYTES:,} bytes")
            elif line := line.strip():
                yield number, line


@contextlib.contextmanager
def _told(file: str) -> Iterator[None]:
    """Name the file where its content turns out to be damaged."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError, UnicodeDecodeError) as ex:
        raise IllegalArgumentException("The file cannot be read to its end.", given=file, hint=str(ex)) from None


def _raw_lines(source: Any) -> Iterator[tuple[int, bytes | None]]:
    number = 0
    while line := source.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES and not line.endswith(b"\n"):
            while rest := source.readline(LINE_BYTES):
                if rest.endswith(b"\n"):
                    break
            yield number, None
        else:
            yield number, line.removeprefix(_MARK) if number == 1 else line


class _TextLines:
    """Iterates over lines as text; bytes that are no UTF-8 become surrogates. It goes on after an error.

    :ivar number: of the last line.
    """

    def __init__(self, source: Any) -> None:
        self._lines, self.number = _raw_lines(source), 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.number, line = next(self._lines)
        if line is None:
            raise csv.Error(f"line {self.number} is longer than {LINE_BYTES:,} bytes")
        return line.decode(errors="surrogateescape")


def _first_sign(source: Any) -> bytes:
    return bytes(source.peek(64)).removeprefix(_MARK).lstrip()[:1]


class _Array:
    """The objects of a JSON array, as far as it is one.

    :param whole: whether nothing may follow the array.
    """

    def __init__(self, source: Any, whole: bool = True) -> None:
        self._whole = whole
        self._text, self._kept, self._at = io.TextIOWrapper(source, "utf-8-sig"), "", 0
        self._decode = json.JSONDecoder().raw_decode

    def __iter__(self) -> Iterator[Numbered]:
        number, sign = 0, self._take()
        while sign in "[," and (sign == "," or self._next() != "]"):
            number += 1
            try:
                value = self._value()
            except (ValueError, RecursionError) as ex:
                at = f" ({ex.msg})" if isinstance(ex, json.JSONDecodeError) else ""
                yield number, refusal("invalid-json", f"Expected another object of the array{at}, and nothing after it is read", self._here())
                return
            is_object = isinstance(value, dict)
            yield number, value if is_object else refusal("invalid-json", "Expected a message as a JSON object", shown(value))
            sign = self._take() or " "
        if sign == "[":
            self._take()
        elif sign != "]":
            yield number + 1, refusal("invalid-json", "Expected another object of the array or its end, and nothing after it is read", self._here())
            return
        if self._whole and self._next():
            yield number + 1, refusal("invalid-json", "Expected nothing after the array", self._here())

    def _next(self) -> str:
        """Return the next sign that is no space; "" at the end."""
        while True:
            rest = self._kept[self._at : self._at + 64].lstrip()
            if rest:
                self._at = self._kept.index(rest[0], self._at)
                return rest[0]
            self._at += 64
            if self._at >= len(self._kept):
                self._kept, self._at = self._text.read(_BUFFER_BYTES), 0
                if not self._kept:
                    return ""

    def _take(self) -> str:
        sign = self._next()
        self._at += 1
        return sign

    def _value(self) -> Any:
        """Return the next value; its text may have to be read first."""
        self._next()
        while True:
            end, error = -1, None
            try:
                value, end = self._decode(self._kept, self._at)
            except ValueError as ex:
                error = ex
            if error is None and end < len(self._kept):
                self._at = end
                return value
            left = self._kept[self._at :]
            more = self._text.read(max(len(left), _BUFFER_BYTES)) if len(left) <= LINE_BYTES else ""
            if more:
                self._kept, self._at = left + more, 0
            elif error is not None:
                raise error
            else:
                self._at = end
                return value

    def _here(self) -> str:
        return repr(self._kept[self._at : self._at + 40]) if self._at < len(self._kept) else "the end of the file"
