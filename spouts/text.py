"""Cuts text into tokens. Messages, subscriptions and vocabularies share these rules."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from dskype.topology.errors import IllegalArgumentException

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "BORDER",
    "IGNORED",
    "LEFT_OUT",
    "MARK",
    "MOST_FOLDED_BYTES",
    "MOST_TERMS",
    "PLAIN",
    "WORD_RULE",
    "Tokenizer",
    "begins_word",
    "count_words",
    "cut",
    "folded_bytes",
    "folded_characters",
    "refuse_analyzer",
    "refuse_word_rule",
    "without_ignored",
]

WORD_RULE = 2
"""The number of the rules by which records become words. It rises with every change of them.

Vocabularies and snapshots contain words and their ids, so they name the rule by which they were made. What names no rule was made by
rule 1. In it invisible characters and lone marks were words or cut them, and a word of a top-k subscription counted once.
"""

BORDER = "\x1f"
"""The border between two fields of a text (the unit separator of ASCII). For a tokenizer it separates words as others do."""

LEFT_OUT = "!"
"""What stands for a stop word in :meth:`Tokenizer.spaced`; no word has it."""

MOST_TERMS = 1 << 15
"""The most different words of a text whose order can be told: their places are int16."""

PLAIN = "plain"
"""The identity of the analyzer that cuts texts into words and does no more; what names no analyzer was made with it."""

_INVISIBLE = (
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200C, 0x200F), (0x202A, 0x202E)),
    *((0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3)),
    *((0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
"""First and last of the code points that Unicode calls Default_Ignorable, but U+200B: that one marks where a word ends (UAX 29, UAX 14)."""

# ASCII letters in lower case, digits as they are, everything else a space.
_ASCII = bytes(ord(chr(c).lower()) if c < 128 and chr(c).isalnum() else 32 for c in range(256))

_BEGIN = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl"})
"""The categories of the normalised characters that begin a token: letters, decimal digits, and numbers that are letters."""

_CONTINUE = _BEGIN | {"Mn", "Mc"}
"""The categories of those that belong to a token that has begun."""


def _of_category(categories: frozenset[str]) -> Callable[[int], bool]:
    return lambda point: unicodedata.category(chr(point)) in categories


@cache
def _ignored() -> re.Pattern[str]:
    """Return the pattern of the characters that a text is cut without: invisible ones, and enclosing marks (Me), as in keycaps."""
    invisible = {point for first, last in _INVISIBLE for point in range(first, last + 1)}

    def belongs(point: int) -> bool:
        return point in invisible or unicodedata.category(chr(point)) == "Me"

    basic, beyond = _character_class(range(0x80, 0x10000), belongs), _character_class((*range(0x10000, 0x20000), *range(0xE0000, 0xE1000)), belongs)
    return re.compile(f"[{basic}]|(?=[\U00010000-\U0010ffff])[{beyond}]")


def without_ignored(text: str) -> str:
    """Return a text without the characters that neither are a word nor end one. O(length)."""
    return _ignored().sub("", text)


def refuse_word_rule(what: str, given: Any, hint: str) -> None:
    """Refuse what was made by another :data:`WORD_RULE`.

    :param what: names the vocabulary or snapshot, as the beginning of a sentence.
    :param given: the rule that it names; None: it names none.
    :raises IllegalArgumentException: it is another rule.
    """
    if given != WORD_RULE:
        words = f"{what} was made with other rules for words, so words would be missed: expected rule {WORD_RULE}"
        raise IllegalArgumentException(words, given=1 if given is None else given, hint=hint)


def refuse_analyzer(what: str, given: str | None, expected: str, hint: str) -> None:
    """Refuse what was made with another analyzer.

    :param what: names the vocabulary or snapshot, as the beginning of a sentence.
    :param given: the identity of the analyzer that it names; None: it names none.
    :param expected: the identity of the analyzer of the topology.
    :raises IllegalArgumentException: they differ.
    """
    if (given or PLAIN) != expected:
        words = f"{what} was made with another text analyzer, so words would be missed: expected {expected}"
        raise IllegalArgumentException(words, given=given or PLAIN, hint=hint)


class Tokenizer:
    """Cuts a text into keywords. It is the plain analyzer, and the base of the others (:mod:`dskype.spouts.analyzers`).

    A token begins with a letter or digit and has all letters, marks and digits that follow, in order and with repetitions. Before
    that the text loses its invisible characters (Default_Ignorable, but U+200B) and enclosing marks, and is NFKC-normalised and
    case-folded. The folded form is normalised once more, because folding can decompose. So it does not matter how a text spells a
    letter, and a token that is cut again gives itself.

    :param stop_words: words that are not keywords (default: none). They are cut by the same rule: ``don't`` stops ``don`` and ``t``.
    :raises IllegalArgumentException: if ``stop_words`` is not a collection of strings.

    >>> Tokenizer().tokens("Späti & Café, ２4/7 late-night")
    ['späti', 'café', '24', '7', 'late', 'night']
    >>> Tokenizer().tokens("I \u2764\ufe0f Kranken\u00adhaus 1\ufe0f\u20e3")
    ['i', 'krankenhaus', '1']
    >>> Tokenizer(["The"]).tokens("the Straße THE STRASSE")
    ['strasse', 'strasse']
    """

    __slots__ = ("_table", "stop_words")

    plain: ClassVar[bool] = True
    """Whether the words of a text are its tokens as they are; kernels can find these."""

    def __init__(self, stop_words: Iterable[str] = ()) -> None:
        words = [stop_words] if isinstance(stop_words, str) else list(stop_words)
        if isinstance(stop_words, str) or not all(isinstance(word, str) for word in words):
            raise IllegalArgumentException("Expected stop words as a list of strings", given=stop_words, legal='e.g. ["the", "of"]')
        #: The tokens that are left out.
        self.stop_words: frozenset[str] = frozenset(token for word in words for token in cut(word))
        self._table: Any = None  # the stop words as arrays, kept here by Vocabulary

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of ``text`` in order, with repetitions, without stop words. O(length)."""
        found = cut(text)
        if self.stop_words:
            return [token for token in found if token not in self.stop_words]
        return found

    def positions(self, text: str) -> list[tuple[str, int]]:
        """Return the tokens of ``text`` with their places among all its words, from 0: stop words leave gaps. O(length).

        >>> Tokenizer(["of", "the"]).positions("State of the art")
        [('state', 0), ('art', 3)]
        """
        return [(word, place) for place, word in enumerate(self.spaced(text.replace(BORDER, " ")).split()) if word != LEFT_OUT]

    def spaced(self, text: str) -> str:
        """Return the words of ``text`` in reading order with spaces between them, :data:`LEFT_OUT` for each stop word, and its borders. O(length)."""
        return BORDER.join(" ".join([LEFT_OUT if word in self.stop_words else word for word in cut(part)]) for part in text.split(BORDER))

    def keywords(self, text: str) -> list[str]:
        """Return the keywords of a top-k subscription for ``text``. O(length)."""
        return self.tokens(text)

    def written(self, text: str) -> list[str]:
        """Return the words of ``text`` as they are written, without stop words: what prefixes are compared with. O(length)."""
        return self.tokens(text)

    def by_field(self, name: str | None) -> list[tuple[str | None, Tokenizer]]:
        """Return the analyzers for words of a subscription that are about a field (None: about any), each with the name of its field.

        One without a name is for all fields.
        """
        return [(name, self)]

    @property
    def identity(self) -> str:
        """Says by what rules words come about, besides :data:`WORD_RULE`: :data:`PLAIN`, or JSON. Vocabularies and snapshots name it."""
        return PLAIN

    def __eq__(self, other: object) -> bool:
        return (self.identity, self.stop_words) == (other.identity, other.stop_words) if isinstance(other, Tokenizer) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.identity, self.stop_words))

    def __repr__(self) -> str:
        return f"Tokenizer(stop_words={sorted(self.stop_words)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (sorted(self.stop_words),)


def begins_word(character: str) -> bool:
    """Tell whether a token may begin with a character of a folded text."""
    return unicodedata.category(character) in _BEGIN


def cut(text: str) -> list[str]:
    """Return the tokens of a text in order, with repetitions: what :class:`Tokenizer` finds without stop words. O(length)."""
    if text.isascii():
        return text.encode().translate(_ASCII).decode().split()
    text = without_ignored(text)
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
    Before 3.11.5, Python consumes too much if the last attempt at a possessive group fails midway. The empty last alternative prevents that.
    """

    def either(categories: frozenset[str], repeated: str) -> str:
        belongs = _of_category(categories)
        beyond = _character_class(range(0x10000, 0x40000), belongs)  # other planes have no letters
        return f"[{_character_class(range(0x10000), belongs)}]{repeated}|(?=[\U00010000-\U0010ffff])[{beyond}]"

    return re.compile(f"(?:{either(_BEGIN, '')})(?:{either(_CONTINUE, '++')}|)*+").findall


def _character_class(points: Sequence[int], belongs: Callable[[int], bool]) -> str:
    """Return the inside of a character class: the ranges of code points that belong to it."""
    ranges, start, last = [], -1, -1
    for point in filter(belongs, points):
        if point != last + 1 or start < 0:
            if start >= 0:
                ranges.append(f"\\U{start:08x}-\\U{last:08x}")
            start = point
        last = point
    if start >= 0:
        ranges.append(f"\\U{start:08x}-\\U{last:08x}")
    return "".join(ranges)


MOST_FOLDED_BYTES = 33
"""The most UTF-8 bytes that one character can become when it is folded (U+FDFA, a whole sentence)."""


def folded_bytes(text: str) -> int:
    """Return how many UTF-8 bytes a text can have when it is folded, without folding it. O(length): one table lookup per character."""
    import numpy as np  # here and below, because a client needs it only for long texts

    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return int(_folded_sizes()[np.minimum(points, _SIZES - 1)].sum(dtype=np.int64))


_SIZES = 0x30000


@cache
def _folded_sizes() -> np.ndarray:
    import numpy as np

    sizes = np.full(_SIZES, 4, np.uint8)
    for point in range(_SIZES):
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", chr(point)).casefold())
        sizes[point] = len(folded.encode("utf-8", "surrogatepass"))
    return sizes


def count_words(text: str) -> int:
    """Return how many tokens a text has, stop words and repetitions included."""
    return len(cut(text))


IGNORED = -2
"""In :func:`folded_characters`: nothing; the text is cut as if the character were not there."""

MARK = 0x10000
"""In :func:`folded_characters`: added to a code point that continues a token, but begins none."""


@cache
def folded_characters() -> np.ndarray:
    """Return what each character of the basic plane becomes when a text is cut, int32[65536], read-only.

    0: it separates tokens. Above 0: the code point that it folds to, which takes no more bytes of UTF-8, perhaps with :data:`MARK`.
    :data:`IGNORED`: nothing. -1: the result depends on its neighbours, or is not one such character. A text without characters of the
    last kind can be cut character by character, because normalisation composes and sorts nothing in it.
    """
    import numpy as np

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
        if not without_ignored(character):
            table[point] = IGNORED
            continue
        normal = unicodedata.normalize("NFKC", character)
        if stands_alone(normal) and stands_alone(folded := unicodedata.normalize("NFKC", normal.casefold())):
            if (category := unicodedata.category(folded)) not in _CONTINUE:
                table[point] = 0
            elif len(folded.encode()) <= len(character.encode()):
                table[point] = ord(folded) + (0 if category in _BEGIN else MARK)
    table.flags.writeable = False
    return table
