"""Cuts text into tokens. Messages, subscriptions and vocabularies share these rules."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, final

import numpy as np

from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["MOST_FOLDED_BYTES", "Tokenizer", "count_words", "folded_bytes", "folded_characters", "is_token_character"]

# ASCII letters in lower case, digits as they are, everything else a space.
_ASCII = bytes(ord(chr(c).lower()) if c < 128 and chr(c).isalnum() else 32 for c in range(256))


def is_token_character(character: str) -> bool:
    """Tell whether a normalised character belongs to a token: a letter (L*), a mark (M*) or a decimal digit (Nd)."""
    category = unicodedata.category(character)
    return category[0] in "LM" or category == "Nd"


@final
class Tokenizer:
    """Cuts a text into keywords.

    Tokens are the maximal runs of Unicode letters, marks and decimal digits of the text, NFKC-normalised and case-folded, in
    order and with repetitions. The folded form is normalised once more, because folding can decompose. So it does not matter
    how a text spells a letter, and a token that is cut again gives itself.

    :param stop_words: words that are not keywords (default: none). They are cut by the same rule: ``don't`` stops ``don`` and ``t``.
    :raises IllegalArgumentException: if ``stop_words`` is not a collection of strings.

    >>> Tokenizer().tokens("Späti & Café, ２4/7 late-night")
    ['späti', 'café', '24', '7', 'late', 'night']
    >>> Tokenizer(["The"]).tokens("the Straße THE STRASSE")
    ['strasse', 'strasse']
    """

    __slots__ = ("_table", "stop_words")

    def __init__(self, stop_words: Iterable[str] = ()) -> None:
        words = [stop_words] if isinstance(stop_words, str) else list(stop_words)
        if isinstance(stop_words, str) or not all(isinstance(word, str) for word in words):
            raise IllegalArgumentException(explain("Expected stop words as a list of strings", given=stop_words, legal='e.g. ["the", "of"]'))
        #: The tokens that are left out.
        self.stop_words: frozenset[str] = frozenset(token for word in words for token in _tokens(word))
        self._table: Any = None  # the stop words as arrays, kept here by Vocabulary

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of ``text`` in order, with repetitions, without stop words. O(length)."""
        found = text.encode().translate(_ASCII).decode().split() if text.isascii() else _tokens(text)
        if self.stop_words:
            return [token for token in found if token not in self.stop_words]
        return found

    def __eq__(self, other: object) -> bool:
        return self.stop_words == other.stop_words if isinstance(other, Tokenizer) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.stop_words)

    def __repr__(self) -> str:
        return f"Tokenizer(stop_words={sorted(self.stop_words)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (sorted(self.stop_words),)


def _tokens(text: str) -> list[str]:
    if len(text) > 256:
        text = _combining_runs().sub(_sort_marks, text)
    return _token_finder()(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()))


@cache
def _combining_runs() -> re.Pattern[str]:
    """Return the pattern of many combining characters in a row.

    Normalisation sorts them by insertion: 100 KB of them would take ten seconds. If they are sorted already, it takes no time.
    """

    def combines(point: int) -> bool:
        return all(map(unicodedata.combining, unicodedata.normalize("NFKD", chr(point))))

    basic, beyond = _character_class(range(0x80, 0x10000), combines), _character_class(range(0x10000, 0x20000), combines)
    return re.compile(f"(?:[{basic}]|(?=[\U00010000-\U0010ffff])[{beyond}]){{32,}}")


def _sort_marks(run: re.Match[str]) -> str:
    return "".join(sorted("".join(unicodedata.normalize("NFKD", c) for c in run[0]), key=unicodedata.combining))


@cache
def _token_finder() -> Callable[[str], list[str]]:
    """Return the function that finds the tokens in a folded text.

    ``re`` tests the basic plane with one bitmap, but the ranges beyond it one by one. The lookahead avoids that at each separator.
    """
    basic = _character_class(range(0x10000))
    beyond = _character_class(range(0x10000, 0x40000)) + _character_class(range(0xE0000, 0xF0000))  # other planes have no letters
    return re.compile(f"(?:[{basic}]++|(?=[\U00010000-\U0010ffff])[{beyond}])++").findall


def _character_class(points: range, belongs: Callable[[int], bool] | None = None) -> str:
    """Return the inside of a character class: the ranges of code points that belong to it. Default: token characters."""
    category = unicodedata.category
    ranges, start = [], -1
    for point in points:
        inside = belongs(point) if belongs else (c := category(chr(point)))[0] in "LM" or c == "Nd"
        if inside and start < 0:
            start = point
        elif not inside and start >= 0:
            ranges.append(f"\\U{start:08x}-\\U{point - 1:08x}")
            start = -1
    if start >= 0:
        ranges.append(f"\\U{start:08x}-\\U{points[-1]:08x}")
    return "".join(ranges)


MOST_FOLDED_BYTES = 33
"""The most UTF-8 bytes that one character can become when it is folded (U+FDFA, a whole sentence)."""


def folded_bytes(text: str) -> int:
    """Return how many UTF-8 bytes a text can have when it is folded, without folding it. O(length): one table lookup per character."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return int(_folded_sizes()[np.minimum(points, _SIZES - 1)].sum(dtype=np.int64))


_SIZES = 0x30000


@cache
def _folded_sizes() -> np.ndarray:
    sizes = np.full(_SIZES, 4, np.uint8)
    for point in range(_SIZES):
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", chr(point)).casefold())
        sizes[point] = len(folded.encode("utf-8", "surrogatepass"))
    return sizes


def count_words(text: str) -> int:
    """Return how many tokens a text has, stop words and repetitions included."""
    return len(text.encode().translate(_ASCII).split()) if text.isascii() else len(_tokens(text))


@cache
def folded_characters() -> np.ndarray:
    """Return what each character of the basic plane becomes when a text is cut, int32[65536], read-only.

    0: it separates tokens. Above 0: the code point that it folds to, which takes no more bytes of UTF-8. -1: the result depends on its
    neighbours, or is not one such character. A text without characters of the last kind can be cut character by character, because
    normalisation composes and sorts nothing in it.
    """
    seconds = {*range(0x1160, 0x1200)}  # characters that may compose with the one before: vowels and finals of Hangul, and others
    for point in range(0x20000):
        parts = unicodedata.decomposition(chr(point)).split()
        if len(parts) == 2 and parts[0][0] != "<":
            seconds.add(int(parts[1], 16))

    def stands_alone(text: str) -> bool:
        return len(text) == 1 and text < "\U00010000" and not unicodedata.combining(text) and ord(text) not in seconds

    table = np.full(0x10000, -1, np.int32)
    for point in (*range(0xD800), *range(0xE000, 0x10000)):
        character = chr(point)
        normal = unicodedata.normalize("NFKC", character)
        if stands_alone(normal) and stands_alone(folded := unicodedata.normalize("NFKC", normal.casefold())):
            if not is_token_character(folded):
                table[point] = 0
            elif len(folded.encode()) <= len(character.encode()):
                table[point] = ord(folded)
    table.flags.writeable = False
    return table
