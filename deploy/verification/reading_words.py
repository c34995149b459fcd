"""Cuts texts into words by the letter of ``docs/concepts/pubsub.md``: one character at a time, without the code that the topology cuts them with."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterator

__all__ = ["UnusableRecord", "decomposed", "folded_bytes", "words_of"]


class UnusableRecord(ValueError):
    """A record that has to be refused; the text says why."""


_IGNORABLE = """
    00AD 034F 061C 115F-1160 17B4-17B5 180B-180F 200C-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 FFF0-FFF8 1BCA0-1BCA3 1D173-1D17A E0000-E0FFF
"""
"""Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties.txt, but 200B."""


def _points(ranges: str) -> Iterator[int]:
    for first, _, last in (entry.partition("-") for entry in ranges.split()):
        yield from range(int(first, 16), int(last or first, 16) + 1)


_INVISIBLE = frozenset(map(chr, _points(_IGNORABLE)))


@functools.cache
def _kind(character: str) -> str:
    """Return what a character of a normalised text is for words: ``letter`` (or digit) | ``mark`` | ``other``."""
    category = unicodedata.category(character)
    if category.startswith("L") or category in ("Nd", "Nl"):
        return "letter"
    return "mark" if category in ("Mn", "Mc") else "other"


@functools.cache
def decomposed(character: str) -> str:
    """Return what a character is by its parts (NFKD); nothing if a text is cut as if it were not there."""
    if character in _INVISIBLE or unicodedata.category(character) == "Me":
        return ""
    return unicodedata.normalize("NFKD", character)


def _composed(text: str) -> str:
    """Return a text in NFKC, with marks sorted first: Python's own sorting takes minutes for a heap of marks."""
    parts: list[str] = []
    marks: list[str] = []
    for character in "".join(map(decomposed, text)):
        if unicodedata.combining(character):
            marks.append(character)
            continue
        if marks:
            parts += sorted(marks, key=unicodedata.combining)
            marks.clear()
        parts.append(character)
    return unicodedata.normalize("NFKC", "".join(parts + sorted(marks, key=unicodedata.combining)))


def words_of(text: str) -> list[str]:
    r"""Return the words of a text in order, with repetitions.

    >>> words_of("I \u2764\ufe0f Kranken\u00adhaus, 2nd STRASSE Straße")
    ['i', 'krankenhaus', '2nd', 'strasse', 'strasse']
    """
    folded = text.lower() if text.isascii() else _composed(_composed(text).casefold())
    words, word = [], ""
    for character in folded:
        kind = _kind(character)
        if kind == "letter" or (kind == "mark" and word):
            word += character
        elif word:
            words.append(word)
            word = ""
    if word:
        words.append(word)
    return words


@functools.cache
def _folded_bytes_of(character: str) -> int:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", character).casefold())
    return len(folded.encode("utf-8", "surrogatepass"))


def folded_bytes(text: str) -> int:
    """Return how many bytes of UTF-8 a text has when each character is folded on its own."""
    return len(text) if text.isascii() else sum(map(_folded_bytes_of, text))
