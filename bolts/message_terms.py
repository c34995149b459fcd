"""The terms of messages that are no words: what leads to subscriptions that no word leads to (:mod:`dskype.spouts.filters`)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from dskype.bolts import message_terms_kernels as kernels
from dskype.spouts.attributes import term_hash
from dskype.spouts.columns import read_only
from dskype.spouts.expression import PREFIX_LENGTHS
from dskype.spouts.filters import EVERY_MESSAGE
from dskype.spouts.settings import Settings
from dskype.spouts.text import BORDER, Tokenizer
from dskype.spouts.vocabulary import Analyzed

__all__ = ["MessageTerms"]


class MessageTerms:
    """Adds terms that are no words to messages, as far as the settings allow subscriptions that need them.

    All messages have :data:`~dskype.spouts.filters.EVERY_MESSAGE`, and one term for each value of a textual attribute; with prefixes also
    one for each beginning of each word, and again for each field of the text.
    """

    def __init__(self, settings: Settings, tokenizer: Tokenizer) -> None:
        self._wordless, self._prefixes, self._fields = settings.wordless, settings.prefixes, settings.language.fields
        self._tokenizer = tokenizer
        names = [name for name, attribute in settings.attributes.items() if attribute.is_textual()] if settings.wordless else []
        self._textual = np.array([term_hash(f"{name}=") for name in names], np.int64)

    def add(self, analyzed: Analyzed, texts: pa.Array, attribute_offsets: np.ndarray, attributes: np.ndarray) -> Analyzed:
        """Return the messages with further terms of weight 0; ``order`` names the same words as before. O(terms).

        :param texts: of the messages.
        :param attribute_offsets, attributes: their attributes, as in :class:`~dskype.spouts.batch.Details`.
        """
        if not (self._wordless or self._prefixes):
            return analyzed
        n = len(analyzed.offsets) - 1
        rows, terms = [], []
        if self._wordless:
            rows.append(np.arange(n))
            terms.append(np.full(n, EVERY_MESSAGE))
        if len(self._textual) and len(attributes):
            owners = np.repeat(np.arange(n), np.diff(attribute_offsets) // 2)
            textual = np.isin(attributes[::2], self._textual)
            rows.append(owners[textual])
            terms.append(attributes[1::2][textual])
        if self._prefixes:
            found = [self._prefix_terms(text) for text in texts.to_pylist()]
            rows.append(np.repeat(np.arange(n), [len(own) for own in found]))
            terms.append(np.array([term for own in found for term in own], np.int64))
        owners, added = np.concatenate(rows), np.concatenate(terms)
        if len(rows) > 1:
            order = np.lexsort((added, owners))
            owners, added = owners[order], added[order]
        starts = np.searchsorted(owners, np.arange(n + 1))
        return Analyzed(*kernels.add_terms(*map(read_only, analyzed), read_only(starts), read_only(added)))

    def _prefix_terms(self, text: str) -> list[int]:
        found: set[int] = set()
        for field, part in zip(self._fields or (None,), text.split(BORDER) if self._fields else (text,)):
            for word in set(self._tokenizer.tokens(part)):
                found.update(_beginnings(None, word))
                if field is not None:
                    found.update(_beginnings(field, word))
        return sorted(found)


@lru_cache(1 << 16)
def _beginnings(field: str | None, word: str) -> tuple[int, ...]:
    """Return the terms of the prefixes of a word."""
    before = "" if field is None else f"{field}:"
    return tuple(term_hash(f"{before}{word[:length]}*") for length in range(PREFIX_LENGTHS[0], min(PREFIX_LENGTHS[1], len(word)) + 1))
