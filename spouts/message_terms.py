"""The terms of messages that are no words: what leads to subscriptions that no word leads to (:mod:`dskype.spouts.filters`)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from dskype.spouts import message_terms_kernels as kernels
from dskype.spouts.attributes import term_hash
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.columns import lists_to_csr, read_only
from dskype.spouts.expression import PREFIX_LENGTHS
from dskype.spouts.filters import EVERY_MESSAGE
from dskype.spouts.settings import Settings
from dskype.spouts.text import BORDER, Tokenizer

__all__ = ["MessageTerms"]


class MessageTerms:
    """Says which terms messages have beside their words, as far as the settings allow subscriptions that need them.

    All messages have :data:`~dskype.spouts.filters.EVERY_MESSAGE`, and one term for each value of a textual attribute; with prefixes also
    one for each beginning of each word, and again for each field of the text. Only prefixes travel: the others follow from the attributes.
    """

    def __init__(self, settings: Settings) -> None:
        self._wordless, self._with_prefixes, self._fields = settings.wordless, settings.prefixes, settings.language.fields
        self._analyzers: list[Tokenizer] = []
        if settings.prefixes:
            analyzer = settings.analyzer()
            self._analyzers = [analyzer.by_field(name)[0][1] for name in self._fields or (None,)]
        names = [name for name, attribute in settings.attributes.items() if attribute.is_textual()] if settings.wordless else []
        self._textual = np.array([term_hash(f"{name}=") for name in names], np.int64)

    def prefixes(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the terms of the beginnings of the words of texts, as lists (offsets, terms), rising; none if the settings do not allow them."""
        if not self._with_prefixes:
            return np.zeros(len(texts) + 1, np.int64), np.zeros(0, np.int64)
        return lists_to_csr([sorted(self._beginnings(text)) for text in texts.to_pylist()], np.int64)

    def _beginnings(self, text: str) -> set[int]:
        found: set[int] = set()
        for field, analyzer, part in zip(self._fields or (None,), self._analyzers, text.split(BORDER) if self._fields else (text,)):
            for word in set(analyzer.written(part)):
                found.update(_prefix_terms(None, word))
                if field is not None:
                    found.update(_prefix_terms(field, word))
        return found

    def of(self, details: Details) -> tuple[np.ndarray, np.ndarray]:
        """Return the terms that messages have beside their words, as lists (offsets int64[n + 1], terms int64[]), rising."""
        n = len(details.order_offsets) - 1
        if not self._wordless:
            return details.prefix_offsets, details.prefixes
        if not len(details.attributes) and not len(details.prefixes):
            return np.arange(n + 1), np.full(n, EVERY_MESSAGE)
        pairs = np.repeat(np.arange(n), np.diff(details.attribute_offsets) // 2)
        textual = np.isin(details.attributes[::2], self._textual)
        rows = np.concatenate((np.arange(n), pairs[textual], np.repeat(np.arange(n), np.diff(details.prefix_offsets))))
        terms = np.concatenate((np.full(n, EVERY_MESSAGE), details.attributes[1::2][textual], details.prefixes))
        order = np.lexsort((terms, rows))
        return np.searchsorted(rows[order], np.arange(n + 1)), terms[order]

    def add(self, messages: MessageBatch, terms: tuple[np.ndarray, np.ndarray]) -> MessageBatch:
        """Return messages with further terms, of weight 0, among their words. O(terms).

        :param terms: from :meth:`of`.
        """
        offsets, added = terms
        if not len(added):
            return messages
        columns = map(read_only, (messages.offsets, messages.terms, messages.weights, offsets, added))
        merged = kernels.add_terms(*columns)
        return messages._replace(offsets=merged[0], terms=merged[1], weights=merged[2])


@lru_cache(1 << 16)
def _prefix_terms(field: str | None, word: str) -> tuple[int, ...]:
    """Return the terms of the prefixes of a word."""
    before = "" if field is None else f"{field}:"
    return tuple(term_hash(f"{before}{word[:length]}*") for length in range(PREFIX_LENGTHS[0], min(PREFIX_LENGTHS[1], len(word)) + 1))
