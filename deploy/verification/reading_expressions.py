"""Reads expressions by the letter of ``docs/concepts/pubsub.md``, without the code that the topology reads them with.

They become trees of the same form as the topology's (:mod:`dskype.spouts.expression`), which the oracle evaluates by itself.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dskype.deploy.verification.reading_analysis import Analysis, analyses_of
from dskype.deploy.verification.reading_words import UnusableRecord, decomposed, words_of
from dskype.spouts.settings import Settings

__all__ = ["expression_text", "needs_word", "number_of", "read_expression", "read_keywords"]

_QUOTES = "“”„‟«»〝〞〟「」『』"
_NEGATING = "-!~¬−⁻₋˗∼"
_OTHER_SYNTAX = "*?~^|\\"
_SIGNS = "& && ∧ ⋀ ∩ | || ∨ ⋁ ∪".split()
"""What stands for AND and OR in other query languages."""
_COMPARISONS = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "=": "=", "==": "=", "!=": "!=", "≤": "<=", "≥": ">=", "≠": "!="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_COMPARABLE = {
    "number": ("=", "!=", "<", "<=", ">", ">=", "IN"),
    "time": ("=", "!=", "<", "<=", ">", ">=", "IN"),
    "string": ("=", "!=", "IN"),
    "boolean": ("=", "!=", "IN"),
    "strings": ("HAS", "IN"),
}


class _Symbol(NamedTuple):
    """A part of an expression.

    :ivar kind: ``(`` | ``)`` | ``,`` | ``compare`` | ``phrase`` | ``word``.
    :ivar text: it, with ASCII for what only looks otherwise; of a phrase, what is between the quotes.
    :ivar exact: the same as it was written.
    :ivar adjoins: nothing separates it from the one before.
    """

    kind: str
    text: str
    exact: str
    adjoins: bool


_END = _Symbol("end", "", "", False)


def _plain(text: str) -> list[tuple[str, int]]:
    """Return the characters that count, with ASCII for what only looks otherwise, and where each of them was."""
    found = []
    for at, character in enumerate(text):
        if decomposed(character) == "":
            continue
        same = unicodedata.normalize("NFKC", character)
        if len(same) == 1 and same.isascii():
            character = same
        found.append(('"' if character in _QUOTES else " " if character == "\u200b" else character, at))
    return found


def _symbols(text: str) -> list[_Symbol]:
    characters = _plain(text)
    plain = "".join(character for character, _ in characters)
    symbols: list[_Symbol] = []
    begin, last_end = 0, -1
    while begin < len(plain):
        first = plain[begin]
        end = begin + 1
        if first.isspace():
            begin = end
            continue
        if first in "(),":
            kind = first
        elif first == '"':
            kind, end = "phrase", plain.find('"', end) + 1
            if end == 0:
                raise UnusableRecord("an expression with a quote that is not closed")
        elif first in "<>" or plain.startswith("!=", begin):
            kind, end = "compare", end + plain.startswith("=", end)
        elif first == "=":
            while plain.startswith("=", end):
                end += 1
            kind = "compare"
        else:
            while end < len(plain) and not (plain[end].isspace() or plain[end] in '(),"<>=' or plain.startswith("!=", end)):
                end += 1
            kind = "word"
        found = plain[begin:end]
        if kind in ("word", "compare"):
            kind, found = ("compare", _COMPARISONS[found]) if found in _COMPARISONS else ("word", found)
        inside = kind == "phrase"
        exact = text[characters[begin][1] + inside : characters[end - 1][1] + 1 - inside]
        symbols.append(_Symbol(kind, found[1:-1] if inside else found, exact, begin == last_end))
        begin = last_end = end
    return symbols


def _check_signs(word: str) -> None:
    """Refuse a word outside quotes with a sign that means something in other query languages."""
    before = ""
    for character in word:
        category = unicodedata.category(character)
        field = character == ":" and before.isalpha()
        if character in _OTHER_SYNTAX or category in ("Ps", "Pe") or field or (category == "Sm" and (character != "+" or not before)):
            raise UnusableRecord(f"an expression with {character!r} in a word")
        if before + character == "&&":
            raise UnusableRecord("an expression with '&&' in a word")
        before = character


def read_expression(text: str, settings: Settings) -> Any:
    """Return an expression as a tree, without an operand that repeats its operator or another one.

    :raises UnusableRecord: it is none, or is beyond a limit.

    >>> read_expression('Coffee AND (wifi OR "late night"~2) AND NOT decaf', Settings())
    ['and', 'coffee', ['or', 'wifi', ['phrase', 2, [0, 1], ['late', 'night']]], ['not', 'decaf']]
    """
    reader = _Reader(_symbols(text), settings)
    expression = reader.any_of()
    if reader.symbol().kind != "end":
        raise UnusableRecord("an expression with two words and no operator between them, or a parenthesis that closes nothing")
    return expression


class _Reader:
    """Reads the symbols of one expression, from left to right."""

    def __init__(self, symbols: Sequence[_Symbol], settings: Settings) -> None:
        self._symbols, self._settings = symbols, settings
        self._analyses = analyses_of(settings)
        self._fields = settings.language.fields
        self._at = self._depth = self._count = 0
        self._field = ""

    def symbol(self, ahead: int = 0) -> _Symbol:
        """Return the next symbol, or one after it."""
        at = self._at + ahead
        return self._symbols[at] if at < len(self._symbols) else _END

    def _name(self, ahead: int = 0) -> str:
        """Return a symbol in capitals if it is outside quotes."""
        symbol = self.symbol(ahead)
        return symbol.text.upper() if symbol.kind == "word" else ""

    def _next(self, kind: str = "") -> _Symbol:
        symbol = self.symbol()
        if symbol.kind == "end" or (kind and symbol.kind != kind):
            raise UnusableRecord(f"an expression that lacks a {kind or 'word'}")
        self._at += 1
        return symbol

    def _enter(self) -> None:
        if self._depth == self._settings.limits.expression_max_depth:
            raise UnusableRecord("an expression with too many open parentheses")
        self._depth += 1

    def _add(self, terms: int) -> None:
        self._count += terms
        if self._count > self._settings.limits.expression_max_terms:
            raise UnusableRecord("an expression of too many words")

    # -- operators ------------------------------------------------------------------------------------------------------

    def any_of(self) -> Any:
        """Read expressions with OR between them."""
        parts = [self._all_of()]
        while self._name() == "OR":
            self._at += 1
            parts.append(self._all_of())
        return _simple("or", parts)

    def _all_of(self) -> Any:
        parts = [self._part()]
        while self._name() == "AND":
            self._at += 1
            parts.append(self._part())
        return _simple("and", parts)

    def _part(self) -> Any:
        name = self._name()
        if name == "NOT":
            self._at += 1
            self._enter()
            part = self._part()
            self._depth -= 1
            return part[1] if isinstance(part, list) and part[0] == "not" else ["not", part]
        if name in ("AND", "OR") or self.symbol().text in _SIGNS:
            raise UnusableRecord("an expression that lacks a word")
        if self.symbol().kind == "(":
            return self._listed()[0]
        if name == "ATLEAST" and self.symbol(1).text.isdecimal() and self.symbol(1).kind == "word" and self._name(2) == "OF":
            return self._at_least()
        if name == "EXISTS" and self.symbol(1).kind == "(":
            self._at += 2
            attribute = self._attribute()
            self._add(1)
            self._next(")")
            return ["attribute", attribute.name, "exists"]
        declared = self.symbol().kind == "word" and self.symbol().text in self._settings.attributes
        if self.symbol(1).kind == "compare" or (declared and self._name(1) in ("IN", "HAS")):
            return self._comparison(declared)
        symbol = self._next()
        return self._phrase(symbol) if symbol.kind == "phrase" else self._word(symbol.text if symbol.kind == "word" else "")

    def _listed(self, comma: bool = False) -> list[Any]:
        """Read expressions in parentheses."""
        self._next("(")
        self._enter()
        parts = [self.any_of()]
        while comma and self.symbol().kind == ",":
            self._at += 1
            parts.append(self.any_of())
        self._next(")")
        self._depth -= 1
        return parts

    def _at_least(self) -> Any:
        number = self.symbol(1).text
        self._at += 3
        parts = self._listed(comma=True)
        for n in range(1, len(parts) + 1):
            if len(number) < 10 and int(number) == n:
                break
        else:
            raise UnusableRecord("an expression with more than it lists, or nothing, after ATLEAST")
        if n == 1 or n == len(parts):
            return _simple("or" if n == 1 else "and", parts)
        return ["atleast", n, *parts]

    # -- words ----------------------------------------------------------------------------------------------------------

    def _words(self, pieces: Sequence[str], within: int = 0) -> Any:
        """Return what asks for the words of the pieces, a lone ``_`` being any word."""
        leaves: list[Any] = []
        for field, analysis in self._searched():
            read = [word for piece in pieces for word in (analysis.words(piece) if piece != "_" else [None])]
            found = [(place, word) for place, word in enumerate(read) if word is not None]
            if not found:
                continue
            self._add(len(found))
            first = found[0][0]
            leaf: Any = found[0][1] if len(found) == 1 else ["phrase", within, [place - first for place, _ in found], [word for _, word in found]]
            leaves.append(["in", field, leaf] if field else leaf)
        if not leaves:
            raise UnusableRecord("an expression with a word that has neither letter nor digit, or is a stop word")
        return _simple("or", leaves)

    def _searched(self) -> list[tuple[str, Analysis]]:
        """Return the fields that the next word is looked for in, and what becomes of words there; no name: in all fields."""
        if len(self._analyses) == 1:
            return [(self._field, self._analyses[0][1])]
        return [(name, analysis) for name, analysis in self._analyses if self._field in ("", name)]

    def _phrase(self, symbol: _Symbol) -> Any:
        within = 0
        if self.symbol().adjoins and self.symbol().kind == "word" and self.symbol().text[0] == "~":
            digits = self._next().text[1:]
            if not (digits.isascii() and digits.isdecimal() and len(digits) <= 3 and int(digits) <= 100):
                raise UnusableRecord("an expression with a distance that is none")
            within = int(digits)
        return self._words(symbol.text.split(), within)

    def _word(self, text: str) -> Any:
        if text and (text[0] in _NEGATING or unicodedata.category(text[0]) == "Pd"):
            raise UnusableRecord("an expression with a negation")
        field, colon, rest = text.partition(":")
        if colon and len(self._fields) > 1 and field in self._fields:
            return self._in_field(field, rest)
        if text.endswith("*") and self._settings.prefixes:
            prefix = words_of(text[:-1])
            if len(prefix) != 1 or not 2 <= len(prefix[0]) <= 16:
                raise UnusableRecord("an expression with a prefix that is too short, too long, or none")
            _check_signs(text[:-1])
            self._add(1)
            return ["in", self._field, ["prefix", prefix[0]]] if self._field else ["prefix", prefix[0]]
        found = self._words([text])
        _check_signs(text)
        return found

    def _in_field(self, field: str, rest: str) -> Any:
        if self._field:
            raise UnusableRecord("an expression with a field within a field")
        self._field = field
        if rest:
            found = self._word(rest)
        elif self.symbol().adjoins and self.symbol().kind in ("(", "phrase"):
            found = self._listed()[0] if self.symbol().kind == "(" else self._phrase(self._next())
        else:
            raise UnusableRecord("an expression with a field and nothing in it")
        self._field = ""
        return found

    # -- attributes -----------------------------------------------------------------------------------------------------

    def _attribute(self) -> Any:
        symbol = self._next("word")
        if symbol.text not in self._settings.attributes:
            raise UnusableRecord("an expression with an attribute that is not declared")
        return self._settings.attributes[symbol.text]

    def _comparison(self, declared: bool) -> Any:
        if declared:
            return self._compared(self._attribute())
        value = self._next()
        comparison = self._next("compare").text
        attribute = self._attribute()
        found = ["attribute", attribute.name, _TURNED[comparison], self._value(attribute, _TURNED[comparison], value)]
        if self.symbol().kind != "compare":
            return found
        if comparison[0] not in "<>" or self.symbol().text[0] != comparison[0]:
            raise UnusableRecord("an expression with a range of two directions")
        return _simple("and", [found, self._compared(attribute)])

    def _compared(self, attribute: Any) -> Any:
        """Read what follows an attribute."""
        symbol = self._next()
        if symbol.text.upper() != "IN":
            comparison = symbol.text.upper()
            return ["attribute", attribute.name, comparison.lower(), self._value(attribute, comparison, self._next())]
        self._next("(")
        values = [self._value(attribute, "IN", self._next())]
        while self.symbol().kind == ",":
            self._at += 1
            values.append(self._value(attribute, "IN", self._next()))
        self._next(")")
        return ["attribute", attribute.name, "in", *dict.fromkeys(values)]

    def _value(self, attribute: Any, comparison: str, symbol: _Symbol) -> Any:
        if symbol.kind not in ("word", "phrase") or comparison not in _COMPARABLE[attribute.type]:
            raise UnusableRecord(f"an expression with a comparison that a {attribute.type} does not have")
        self._add(1)
        if attribute.type in ("string", "strings"):
            return symbol.exact
        if attribute.type == "boolean":
            if symbol.text.lower() not in ("true", "false"):
                raise UnusableRecord("an expression with a truth that is none")
            return symbol.text.lower() == "true"
        written: Any = symbol.text
        if symbol.kind == "word" and re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", written):
            written = float(written)
        number = number_of(written, attribute.type)
        if number is None:
            raise UnusableRecord(f"an expression with a {attribute.type} that is none")
        return number


def number_of(value: Any, type_name: str) -> float | None:
    """Return a ``number``, a ``boolean``, or a ``time`` in ms since 1970, as a float64; None: it is none.

    >>> number_of("2026-01-31T13:00:00.5+01:00", "time"), number_of(True, "boolean"), number_of("3", "number")
    (1769860800500.0, 1.0, None)
    """
    if type_name == "boolean":
        return float(value) if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if type_name == "time" and isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        passed = moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return ((passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds) / 1000
    if not isinstance(value, (int, float)) or (type_name == "time" and not -(2**53) <= value <= 2**53):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _simple(operator: str, parts: list[Any]) -> Any:
    flat: list[Any] = []
    for part in parts:
        for operand in part[1:] if isinstance(part, list) and part[0] == operator else [part]:
            if not any(_same(operand, other) for other in flat):
                flat.append(operand)
    return [operator, *flat] if len(flat) > 1 else flat[0]


def read_keywords(listed: Sequence[str], settings: Settings) -> Any:
    """Return the expression that asks for all keywords, each of which has a word; where fields have different words for one, in one of them."""
    each = []
    for text in listed:
        read = [(name, [word for word in analysis.words(text) if word is not None]) for name, analysis in analyses_of(settings)]
        each.append(_simple("or", [_simple("and", [["in", name, word] if name else word for word in words]) for name, words in read if words]))
    return _simple("and", each)


def _same(one: Any, other: Any) -> bool:
    """Tell whether two expressions are the same but for the order of operands of AND and OR."""
    if not isinstance(one, list) or not isinstance(other, list) or one[0] == other[0] == "phrase":
        return bool(one == other)
    if one[0] != other[0] or len(one) != len(other):
        return False
    if one[0] in ("and", "or"):
        return all(any(_same(a, b) for b in other[1:]) for a in one[1:])
    return all(_same(a, b) for a, b in zip(one[1:], other[1:]))


def needs_word(expression: Any, negated: bool = False) -> bool:
    """Tell whether its form says that a message without any of its words and prefixes cannot satisfy an expression, or what it negates.

    >>> needs_word(["and", "tea", ["not", "milk"]]), needs_word(["or", "tea", ["not", "milk"]])
    (True, False)
    """
    if not isinstance(expression, list):
        return not negated
    operator, *parts = expression
    if operator == "not":
        return needs_word(parts[0], not negated)
    if operator in ("and", "or", "atleast"):
        n: int = parts.pop(0) if operator == "atleast" else 1 if operator == "or" else len(parts)
        most_false = n - 1 if negated else len(parts) - n
        return sum(needs_word(part, negated) for part in parts) > most_false
    return not negated and operator in ("phrase", "prefix", "in")


def expression_text(expression: Any) -> str:
    """Return an expression as a user would write it."""
    if isinstance(expression, str):
        return f'"{expression}"' if expression in ("and", "or", "not") else expression
    operator, *parts = expression
    if operator in ("and", "or"):
        return f" {operator.upper()} ".join(_in_parentheses(part) for part in parts)
    if operator == "not":
        return f"NOT {_in_parentheses(parts[0])}"
    if operator == "atleast":
        return f"ATLEAST {parts[0]} OF ({', '.join(map(expression_text, parts[1:]))})"
    if operator == "in":
        return f"{parts[0]}:{expression_text(parts[1])}"
    if operator == "prefix":
        return f"{parts[0]}*"
    if operator == "phrase":
        words = dict(zip(parts[1], parts[2]))
        text = " ".join(words.get(place, "_") for place in range(parts[1][-1] + 1))
        return f'"{text}"~{parts[0]}' if parts[0] else f'"{text}"'
    if operator == "all":
        return "all messages"
    name, comparison, *values = parts
    if comparison == "exists":
        return f"exists({name})"
    shown = [f'"{value}"' if isinstance(value, str) else json.dumps(value) for value in values]
    return f"{name} IN ({', '.join(shown)})" if comparison == "in" else f"{name} {comparison.upper()} {shown[0]}"


def _in_parentheses(expression: Any) -> str:
    return f"({expression_text(expression)})" if isinstance(expression, list) and expression[0] in ("and", "or") else expression_text(expression)
