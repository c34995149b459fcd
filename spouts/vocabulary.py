"""The vocabulary: the id, the document frequency and the weight of each term."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.spouts import _kernels
from dskype.spouts.frequencies import malformed, read_content, refuse_vocabulary, unreadable
from dskype.spouts.text import BORDER, LEFT_OUT, MOST_TERMS, PLAIN, WORD_RULE, Tokenizer, folded_characters
from dskype.topology.core.atomic_files import replace_file
from dskype.topology.errors import IllegalArgumentException

__all__ = ["Analyzed", "Vocabulary", "unknown_id"]


class Analyzed(NamedTuple):
    """Texts as weighted terms, and the order of their words.

    :ivar offsets, terms, weights: as :meth:`Vocabulary.weigh_texts` returns them.
    :ivar order_offsets: int64[n + 1]; the words of text *i* are ``order[order_offsets[i]:order_offsets[i + 1]]``, in reading order.
    :ivar order: int16[]; from 0: the word is this one of the text's own terms; -1: a stop word; -2: no word, but the border between two fields.
    """

    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray
    order_offsets: np.ndarray
    order: np.ndarray


def unknown_id(term: str) -> int:
    """Return the id of a term that is not in the vocabulary: -(1 + the first 62 bits of BLAKE2b, digest of 8 bytes).

    The id is negative, and the same in every process and for every vocabulary.

    >>> unknown_id("zythum")
    -4365377727431255531
    """
    return -1 - (int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "big") >> 2)


def _locked(array: np.ndarray) -> np.ndarray:
    """Make an array read-only, wherever it comes from, so that kernels are compiled for one type only."""
    array.flags.writeable = False
    return array


class _Table(NamedTuple):
    """Terms in compact form; see :mod:`dskype.spouts._kernels`."""

    blob: np.ndarray
    offsets: np.ndarray
    slots: np.ndarray

    @classmethod
    def from_blob(cls, blob: np.ndarray, offsets: np.ndarray) -> tuple[_Table, int]:
        """Return the table, and the number of the first term that occurs a second time, or -1."""
        n = len(offsets) - 1
        offsets = offsets.astype(np.uint32 if len(blob) < 1 << 32 else np.int64)
        table = cls(_locked(blob), _locked(offsets), np.zeros(1 << max(1, (2 * n).bit_length()), np.uint32))
        repeated = int(_kernels.fill_table(*table))
        _locked(table.slots)
        return table, repeated

    @classmethod
    def from_terms(cls, terms: Sequence[str]) -> _Table:
        """Return the table of terms that are all different."""
        encoded = [term.encode() for term in terms]
        offsets = np.zeros(len(terms) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        return cls.from_blob(np.frombuffer(b"".join(encoded), np.uint8), offsets)[0]


class Vocabulary:
    """Terms with their document frequencies: built once from a sample of the stream, and read-only from then on.

    The id of a term is its rank by (document frequency, term), from 0: the rarest first. This is the keyword order of the
    papers. A term that is not in the vocabulary has document frequency 1 and a negative id that depends on the term alone.
    The weight of a term in a document is ``tf * ln(1 + N / df)``, divided by the Euclidean norm of the document's weights
    (summed in rising order of the ids, so equal everywhere to the last bit).

    Memory: 4 bytes per term for the document frequency, 4 for its start, 8 to 16 for the hash table, and its UTF-8 bytes.
    A lookup is O(length of the term). Safe to use from several threads.

    >>> vocabulary = Vocabulary.build(["late coffee", "coffee and wifi", "Coffee!"], Tokenizer())
    >>> vocabulary.documents, len(vocabulary), vocabulary.ids(["coffee", "and"]).tolist(), vocabulary.term(0)
    (3, 4, [3, 0], 'and')
    >>> terms, weights = vocabulary.weigh(["coffee", "wifi", "coffee"])
    >>> terms.tolist(), weights.round(3).tolist()
    ([2, 3], [0.707, 0.707])
    """

    __slots__ = ("_df", "_digest", "_documents", "_table", "analyzer")

    def __init__(self, table: _Table, df: np.ndarray, documents: int, analyzer: str = PLAIN, digest: str | None = None) -> None:
        """Use :meth:`build`, :meth:`load` or :meth:`empty`."""
        self._table, self._df, self._documents, self._digest = table, _locked(df), documents, digest
        self.analyzer = analyzer
        """The identity of the analyzer that its words come from."""

    @classmethod
    @cache  # each start of a distribution task takes it
    def empty(cls) -> Vocabulary:
        """Return the vocabulary of one document without terms: every term weighs ``tf * ln 2``."""
        return cls(_Table.from_terms([]), np.zeros(0, np.int32), 1)

    @classmethod
    def build(cls, texts: Iterable[str], tokenizer: Tokenizer) -> Vocabulary:
        """Count the texts of a sample; a text counts once for each of its terms. Texts without terms count as documents."""
        counts: Counter[str] = Counter()
        documents = 0
        for text in texts:
            counts.update(set(tokenizer.tokens(text)))
            documents += 1
        terms = sorted(counts)
        df = np.fromiter(map(counts.__getitem__, terms), np.int32, len(terms))
        order = np.argsort(df, kind="stable")
        return cls(_Table.from_terms([terms[i] for i in order.tolist()]), df[order], max(1, documents), tokenizer.identity)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the vocabulary's file: ``{"documents": N, "words": WORD_RULE}``, then ``term<TAB>df`` in the order of the ids.

        The first line also has ``"analyzer"`` if that is not the plain one. The file is replaced atomically.
        """
        with replace_file(Path(path)) as file:
            file.writelines(self._content())

    def _content(self) -> Iterator[bytes]:
        blob, offsets = self._table.blob.tobytes(), self._table.offsets.tolist()
        about: dict[str, Any] = {"documents": self._documents, "words": WORD_RULE}
        yield json.dumps(about if self.analyzer == PLAIN else about | {"analyzer": json.loads(self.analyzer)}).encode() + b"\n"
        for first in range(0, len(self), 1 << 16):
            ends = offsets[first : first + (1 << 16) + 1]
            df = self._df[first : first + (1 << 16)].tolist()
            yield b"".join(b"%b\t%d\n" % (blob[a:b], n) for a, b, n in zip(ends, ends[1:], df))

    @property
    def digest(self) -> str:
        """The SHA-256 of its file, in hex. Vocabularies with different digests give different ids and weights."""
        if self._digest is None:
            found = sha256()
            for part in self._content():
                found.update(part)
            self._digest = found.hexdigest()
        return self._digest

    @classmethod
    def load(cls, path: str | os.PathLike[str], analyzer: Tokenizer | None = None) -> Vocabulary:
        """Read a vocabulary's file. Tasks of one process share the result until the file changes.

        :param analyzer: what the vocabulary must have been made with; None: any.
        :raises IllegalArgumentException: the file cannot be read or is not a vocabulary (the message names the line), or was made with another analyzer.
        """
        real = os.path.realpath(path)
        with _LOCK:
            try:
                status = os.stat(real)
                version = (status.st_mtime_ns, status.st_size)
                if real not in _LOADED or _LOADED[real][0] != version:
                    _LOADED[real] = version, cls._read(Path(real))
            except OSError as e:
                raise unreadable(path, e) from e
            found = _LOADED[real][1]
        if analyzer is not None:
            refuse_vocabulary(path, found.analyzer, analyzer)
        return found

    @classmethod
    def _read(cls, path: Path) -> Vocabulary:
        documents, body, digest, analyzer = read_content(path)
        lines = body.count(b"\n")
        blob, offsets, df, error, line = _kernels.parse_lines(np.frombuffer(body, np.uint8), lines, documents)
        if not error:
            blob = blob[: offsets[-1]].copy()
            if (line := _first_that_is_no_word(blob, offsets)) >= 0:
                error = 1
            else:
                table, line = _Table.from_blob(blob, offsets)
                if line < 0:
                    return cls(table, df, documents, analyzer, digest)
                error = 5
        expected = (
            "one word as the tokenizer makes it, then a tab",
            "a tab and the document frequency as an integer",
            f"a document frequency from 1 to {documents}",
            "lines by rising document frequency, ties by term",
            "each term once",
        )[error - 1]
        given = body.split(b"\n", line + 1)[line].decode()
        hint = None
        if error == 1:
            words = Tokenizer().tokens(given.partition("\t")[0][:80])
            hint = f"no text has this word; the tokenizer makes {', '.join(map(repr, words)) or 'no word'} of it; 'dskype vocabulary build' writes right ones"
        raise malformed(path, line + 2, expected, given[:80], hint)

    @property
    def documents(self) -> int:
        """N, the number of documents in the sample."""
        return self._documents

    @property
    def memory_bytes(self) -> int:
        """The size of the arrays in bytes."""
        return sum(a.nbytes for a in (*self._table, self._df))

    def __len__(self) -> int:
        return len(self._df)

    def __repr__(self) -> str:
        return f"<Vocabulary: {len(self)} terms of {self._documents} documents>"

    def term(self, id: int) -> str | None:
        """Return the term of an id, or None if the vocabulary does not have it."""
        if not 0 <= id < len(self):
            return None
        return self._table.blob[self._table.offsets[id] : self._table.offsets[id + 1]].tobytes().decode()

    def ids(self, tokens: Sequence[str]) -> np.ndarray:
        """Return the ids of tokens, int64[len(tokens)]; negative for unknown ones (:func:`unknown_id`)."""
        encoded = [token.encode() for token in tokens]
        ends = np.cumsum([len(e) for e in encoded], dtype=np.int64)
        return _kernels.find_terms(np.frombuffer(b"".join(encoded), np.uint8), ends, *self._table)

    def ids_of(self, words: Sequence[str]) -> dict[str, int]:
        """Return word -> id, as plain integers."""
        return dict(zip(words, self.ids(words).tolist())) if words else {}

    def df(self, ids: np.ndarray | Sequence[int]) -> np.ndarray:
        """Return document frequencies, int64[n]; 1 for unknown terms."""
        ids = np.asarray(ids, np.int64)
        found = np.ones(len(ids), np.int64)
        known = ids >= 0
        found[known] = self._df[ids[known]]
        return found

    def share(self, word: str) -> float:
        """Return the share of the documents that contain a word; a word of none counts as if one did."""
        return int(self.df(self.ids([word]))[0]) / self._documents

    def weigh(self, tokens: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return one document's terms int64[] (rising, each once) and weights float64[] (unit norm); repetitions count."""
        ids = self.ids(tokens)
        room = np.array([0, len(ids)], np.int64)
        return _kernels.weigh_rows(ids, room, room[1:], self._df, self._documents)[1:]

    def weigh_texts(self, texts: Sequence[str] | pa.Array | pa.ChunkedArray, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cut and weigh many documents. The result of each equals that of :meth:`weigh` for its tokens to the last bit, in any batch.

        :param texts: strings; None counts as a text without tokens.
        :returns: (offsets int64[n + 1], terms int64[], weights float64[]): document *i* has ``terms[offsets[i]:offsets[i + 1]]``, rising, each
            once, and the weights beside them. Empty for a text without tokens.
        """
        ids, room, counts, _ = self._look_up(texts, tokenizer)
        return _kernels.weigh_rows(ids, room, counts, self._df, self._documents)

    def analyze(self, texts: Sequence[str] | pa.Array | pa.ChunkedArray, tokenizer: Tokenizer) -> Analyzed:
        r"""Cut and weigh many documents as :meth:`weigh_texts` does, and say in which order their words are.

        :param texts: strings; None counts as a text without tokens. :data:`~dskype.spouts.text.BORDER` is between the fields of a text.
        :raises IllegalArgumentException: a text has more than 32,768 different words.

        >>> found = Vocabulary.empty().analyze(["tea and the tea", "tea\x1fcake"], Tokenizer(["the"]))
        >>> found.order_offsets.tolist(), found.order.tolist()
        ([0, 4, 7], [0, 1, -1, 0, 0, -2, 1])
        """
        ids, room, counts, order = self._look_up(texts, tokenizer)
        offsets, terms, weights = _kernels.weigh_rows(ids.copy(), room, counts, self._df, self._documents)
        if len(terms) > MOST_TERMS and (most := int(np.diff(offsets).max())) > MOST_TERMS:
            raise IllegalArgumentException(f"Expected texts of at most {MOST_TERMS} different words", given=most)
        _kernels.rank_words(ids, room, order, offsets, terms)
        return Analyzed(offsets, terms, weights, room, order)

    def _look_up(self, texts: Sequence[str] | pa.Array | pa.ChunkedArray, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return (ids, room, counts, order) of texts; see :func:`_kernels.term_ids`."""
        data, starts, ends = _bytes_of(texts)
        if tokenizer.plain:
            folded, stops, counts, simple = _kernels.fold_texts(data, starts, ends, folded_characters())
            rows = np.flatnonzero(~simple)
        else:
            folded, stops, counts, rows = data, ends.copy(), np.zeros(len(starts), np.int64), np.arange(len(starts))
        if len(rows):
            whole = data.tobytes()
            cut = [tokenizer.spaced(whole[a:b].decode(errors="replace")) for a, b in zip(starts[rows].tolist(), ends[rows].tolist())]
            encoded = [words.encode() for words in cut]
            folded = np.concatenate([folded, np.frombuffer(b"".join(encoded), np.uint8)])
            lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
            starts = starts.copy()
            stops[rows] = len(data) + np.cumsum(lengths)
            starts[rows] = stops[rows] - lengths
            counts[rows] = np.fromiter((len(words.split()) + words.count(BORDER) for words in cut), np.int64, len(cut))
        room = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=room[1:])
        ids, counts, order = _kernels.term_ids(folded, starts, stops, room, *self._table, *_stop_table(tokenizer))
        return ids, room, counts, order


def _first_that_is_no_word(blob: np.ndarray, offsets: np.ndarray) -> int:
    """Return the number of the first term that the tokenizer does not make, or -1: a text would never have it.

    :param blob, offsets: uint8[], int64[n + 1], UTF-8; ASCII terms have small letters and digits only.
    """
    if not len(blob) or blob.max() < 128:
        return -1
    starts, ends = offsets[:-1], offsets[1:]
    folded, stops, counts, simple = _kernels.fold_texts(blob, starts, ends, folded_characters())
    whole, cut, tokens = blob.tobytes(), folded.tobytes(), Tokenizer().tokens
    beyond = np.zeros(len(blob) + 1, np.int64)
    np.cumsum(blob >= 128, out=beyond[1:])
    for term in np.flatnonzero(beyond[ends] > beyond[starts]).tolist():
        start, end = int(starts[term]), int(ends[term])
        if simple[term]:
            right = counts[term] == 1 and cut[start : int(stops[term])] == whole[start:end]
        else:
            right = tokens(word := whole[start:end].decode()) == [word]
        if not right:
            return term
    return -1


def _bytes_of(texts: Sequence[str] | pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return texts as (UTF-8 bytes uint8[], starts int64[n], ends int64[n])."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if not isinstance(texts, pa.Array):
        try:
            texts = pa.array(texts, pa.string())
        except UnicodeEncodeError:  # half a surrogate pair is not a token character
            texts = pa.array([text and text.encode(errors="replace").decode() for text in texts], pa.string())
    if texts.null_count:
        texts = texts.fill_null("")
    if not pa.types.is_string(texts.type):
        texts = texts.cast(pa.large_string())
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets or bytes(8), np.int32 if pa.types.is_string(texts.type) else np.int64)[texts.offset : texts.offset + len(texts) + 1]
    ends = ends.astype(np.int64)
    first, last = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    view = np.frombuffer(data, np.uint8)[first:last] if data is not None else np.zeros(0, np.uint8)
    return view, ends[:-1] - first, ends[1:] - first


def _stop_table(tokenizer: Tokenizer) -> _Table:
    if tokenizer._table is None:
        marks: set[str] = set() if tokenizer.plain and not tokenizer.stop_words else {LEFT_OUT}
        tokenizer._table = _Table.from_terms(sorted(marks | tokenizer.stop_words if tokenizer.plain else marks))
    return tokenizer._table


_LOCK = threading.Lock()
_LOADED: dict[str, tuple[tuple[int, int], Vocabulary]] = {}
