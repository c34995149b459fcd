"""How frequent words are: the file of a vocabulary, and what of it clients need, which have no kernels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Self

from dskype.spouts.text import PLAIN, WORD_RULE, Tokenizer, refuse_analyzer, refuse_word_rule
from dskype.topology.errors import IllegalArgumentException

__all__ = ["Content", "Frequencies", "malformed", "read_content", "refuse_vocabulary", "unreadable"]


class Content(NamedTuple):
    """A vocabulary's file, of which the lines have not been looked at.

    :ivar documents: number of texts in the sample.
    :ivar body: UTF-8: lines of a term, a tab and its document frequency.
    :ivar digest: SHA-256 of the file, in hex.
    :ivar analyzer: the identity of the analyzer that its words come from.
    """

    documents: int
    body: bytes
    digest: str
    analyzer: str


def malformed(path: Path, line: int, expected: str, given: Any, hint: str | None = None) -> IllegalArgumentException:
    """Return the error about a line of a vocabulary's file, counted from 1."""
    return IllegalArgumentException(f"Malformed vocabulary {path}, line {line}: expected {expected}", given=given, hint=hint)


def unreadable(path: Any, error: OSError) -> IllegalArgumentException:
    """Return the error about a vocabulary's file that cannot be read."""
    return IllegalArgumentException("Cannot read the vocabulary file", given=str(path), hint=error.strerror, legal="a file written by Vocabulary.save")


def refuse_vocabulary(path: Any, analyzer: str, expected: Tokenizer) -> None:
    """Refuse a vocabulary that was made with another analyzer; ``analyzer`` is its identity."""
    refuse_analyzer(f"The vocabulary {path}", analyzer, expected.identity, "build it again with the topology's settings: dskype vocabulary build --file YAML")


def read_content(path: Path) -> Content:
    """Read a vocabulary's file, and check all but its lines.

    :raises IllegalArgumentException: it is not a vocabulary, or was made by another word rule.
    :raises OSError: it cannot be read.
    """
    content = path.read_bytes()
    digest = sha256(content).hexdigest()
    head, _, body = content.partition(b"\n")
    del content
    try:
        about = json.loads(head)
        documents = about["documents"]
    except (ValueError, TypeError, KeyError, RecursionError):
        documents = None
    if type(documents) is not int or not 1 <= documents < 1 << 53:
        raise malformed(path, 1, f'{{"documents": N, "words": {WORD_RULE}}} with an integer N >= 1', head[:80].decode(errors="replace"))
    refuse_word_rule(f"The vocabulary {path}", about.get("words"), "build it again: dskype vocabulary build")
    if not isinstance(analyzer := about.get("analyzer", PLAIN), (str, dict)):
        raise malformed(path, 1, "an analyzer as an object, or none", analyzer)
    if body and not body.endswith(b"\n"):
        last = body[-80:].rpartition(b"\n")[2].decode(errors="replace")
        raise malformed(path, body.count(b"\n") + 2, "a line feed at the end (the file is cut off)", last)
    try:
        body.decode()
    except UnicodeDecodeError as e:
        raise malformed(path, body.count(b"\n", 0, e.start) + 2, "UTF-8", body[e.start : e.end]) from None
    return Content(documents, body, digest, analyzer if isinstance(analyzer, str) else json.dumps(analyzer))


class Frequencies:
    """The shares of a vocabulary's documents that contain words, as a dict: for clients. Topologies have :class:`~dskype.spouts.vocabulary.Vocabulary`.

    :param df: word -> number of documents with it.
    :param documents: number of documents.
    """

    def __init__(self, df: Mapping[str, int], documents: int) -> None:
        self._df, self._documents = df, documents

    @classmethod
    def load(cls, path: str, analyzer: Tokenizer | None = None) -> Self:
        """Read a vocabulary's file. O(file).

        :param analyzer: what the vocabulary must have been made with; None: any.
        :raises IllegalArgumentException: the file cannot be read or is not a vocabulary (the message names the line), or was made with another analyzer.
        """
        file, df = Path(path), {}
        try:
            documents, body, _, made_with = read_content(file)
        except OSError as error:
            raise unreadable(path, error) from error
        if analyzer is not None:
            refuse_vocabulary(path, made_with, analyzer)
        for number, line in enumerate(body.decode().removesuffix("\n").split("\n") if body else (), 2):
            word, _, frequency = line.partition("\t")
            if not (frequency.isascii() and frequency.isdigit() and len(frequency) < 17 and 1 <= int(frequency) <= documents):
                raise malformed(file, number, f"one word, a tab and a document frequency from 1 to {documents}", line[:80])
            df[word] = int(frequency)
        return cls(df, documents)

    def share(self, word: str) -> float:
        """Return the share of the documents that contain a word; a word of none counts as if one did."""
        return self._df.get(word, 1) / self._documents
