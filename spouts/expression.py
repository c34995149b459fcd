"""Keyword expressions of boolean subscriptions: ``coffee AND (wifi OR "late night")``.

An expression is a term or a list of an operator and two or more expressions: ``["and", "coffee", ["or", "wifi", ["and", "late", "night"]]]``.
It stays a tree of this form on every wire; terms are strings until the vocabulary maps them to ids.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from dskype.spouts.text import Tokenizer, without_ignored
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["Expression", "ExpressionError", "from_keywords", "map_terms", "parse", "satisfies", "terms", "to_text"]

Expression = Any
"""A term (``str``, or ``int`` after mapping), or ``["and" | "or", expression, expression, ...]``."""

T = TypeVar("T")

_PARTS = re.compile(r'\s+|[()]|"[^"]*"?|[^\s()"]+')

_QUOTES = frozenset("“”„‟«»〝〞〟「」『』")
"""What keyboards and word processors write for a double quote."""

_MINUS = frozenset("-!~¬−⁻₋˗∼")
"""What stands for NOT before a word, beside all dashes (Pd)."""

_OPERATORS = {"&": "AND", "&&": "AND", "∧": "AND", "⋀": "AND", "∩": "AND", "|": "OR", "||": "OR", "∨": "OR", "⋁": "OR", "∪": "OR"}

_LEGAL = "words, quoted phrases, AND, OR, parentheses"

_SIGNS = re.compile(r"^\+|[*?~^|=\\]|&&")
"""Signs of other query languages in a word; others are found by their category: brackets, mathematical signs, and a colon after a letter."""

_SIGN_HINTS = {
    "+": "join words that must all occur by AND",
    "*": "words are compared whole; join the forms that you mean by OR",
    "?": "words are compared whole; join the forms that you mean by OR",
    "~": "words are compared whole; join the forms that you mean by OR",
    "^": "all words of an expression count alike",
    ":": "there are no fields: an expression is about the whole text",
    "=": "there are no fields: an expression is about the whole text",
}


class ExpressionError(IllegalArgumentException):
    """A text is not a keyword expression.

    :ivar position: where it goes wrong, in characters, from 1.
    """

    def __init__(self, expected: str, position: int, *, given: Any, legal: str | None = None, hint: str | None = None) -> None:
        shown = given[:57] + "..." if isinstance(given, str) and len(given) > 60 else given
        super().__init__(explain(f"Expected {expected} at position {position} of the expression", given=shown, legal=legal, hint=hint))
        self.position = position


def parse(text: str, tokenizer: Tokenizer, max_depth: int = 16, max_terms: int = 256) -> Expression:
    """Read an expression: words, ``"quoted phrases"``, AND, OR (in any case; AND binds tighter) and parentheses.

    A phrase, or a word that the tokenizer cuts (``wi-fi``), becomes its tokens joined by AND, without stop words. The result is simplified:
    it has no AND directly inside an AND, no OR directly inside an OR, and no operand twice.

    Full-width characters count as their ASCII ones, typographic double quotes as ``"``, and invisible characters as nothing. Signs
    that have a meaning in other query languages (``-tea``, ``coff*``, ``title:tea``, ``[a]``) are refused outside quotes, for the
    tokenizer would drop them.

    :param max_depth: how many parentheses may be open at once.
    :param max_terms: how many terms there may be, repetitions included.
    :raises ExpressionError: the text is not an expression, is too deep or too long, or has a word that consists of stop words.

    >>> parse('Coffee AND (wifi OR "late night")', Tokenizer())
    ['and', 'coffee', ['or', 'wifi', ['and', 'late', 'night']]]
    >>> parse("tea or coffee and (coffee and cake)", Tokenizer())
    ['or', 'tea', ['and', 'coffee', 'cake']]
    """
    frames: list[list[list[Expression]]] = [[[]]]  # per open parenthesis: the factors of each alternative
    opened: list[int] = []
    operand = False  # whether the part before was an operand
    count, last = 0, ""
    plain, at = _plain(text)
    for match in _PARTS.finditer(plain):
        part, position = match[0], at[match.start()]
        given = text[position - 1 : at[match.end() - 1]]
        word = part.upper()
        if part.isspace():
            continue
        if word in ("AND", "OR") or part == ")":
            if not operand:
                expected = "a word, a quoted phrase or '('" if not last else f"a word, a quoted phrase or '(' after {last!r}"
                hint = "put the word in quotes to search for it" if part != ")" else None
                raise ExpressionError(expected, position, given=given, hint=hint)
            if word == "OR":
                frames[-1].append([])
            elif part == ")":
                if not opened:
                    raise ExpressionError("no ')' without a '('", position, given=given)
                opened.pop()
                frames[-2][-1].append(_either(frames.pop()))
            operand = part == ")"
        elif word == "NOT" or part[0] in _MINUS or unicodedata.category(part[0]) == "Pd":
            raise ExpressionError("no negation", position, given=given, legal=_LEGAL, hint="to search for the word, put it in quotes")
        elif part in _OPERATORS:
            raise ExpressionError("AND or OR in letters", position, given=given, hint=f"write {_OPERATORS[part]}")
        else:
            if operand:
                raise ExpressionError(f"AND or OR after {_shorten(last)}", position, given=given, hint="a phrase needs quotes")
            if part == "(":
                if len(opened) >= max_depth:
                    raise ExpressionError(f"at most {max_depth} open parentheses", position, given=len(opened) + 1)
                opened.append(position)
                frames.append([[]])
            else:
                if part[0] == '"' and (len(part) == 1 or part[-1] != '"'):
                    raise ExpressionError("a closing quote for the one", position, given=given)
                tokens = tokenizer.tokens(part)
                if not tokens:
                    hint = "emoji and other signs are no words" if any(unicodedata.category(c)[0] == "S" for c in part) else None
                    raise ExpressionError("a word with letters or digits that is not a stop word", position, given=given, hint=hint)
                if part[0] != '"':
                    _refuse_signs(part, at[match.start() : match.end()], given)
                count += len(tokens)
                if count > max_terms:
                    raise ExpressionError(f"at most {max_terms} terms", position, given=count)
                frames[-1][-1].extend(tokens)
                operand = True
        last = part
    if opened:
        raise ExpressionError("a ')' for the '('", opened[-1], given=text)
    if not operand:
        expected = f"a word, a quoted phrase or '(' after {_shorten(last)}" if last else "a word or a quoted phrase"
        raise ExpressionError(expected, len(text) + 1, given=text)
    return _either(frames[0])


def _plain(text: str) -> tuple[str, Sequence[int]]:
    """Return a text with ASCII for what only looks otherwise, and where each of its characters stood, from 1. O(length)."""
    if text.isascii():
        return text, range(1, len(text) + 1)
    plain, at = [], []
    for position, character in enumerate(text, 1):
        if not character.isascii():
            if not without_ignored(character):
                continue
            if character in _QUOTES:
                character = '"'
            elif character == "\u200b":
                character = " "
            elif len(normal := unicodedata.normalize("NFKC", character)) == 1 and normal.isascii():
                character = normal
        plain.append(character)
        at.append(position)
    return "".join(plain), at


def _refuse_signs(word: str, at: Sequence[int], given: str) -> None:
    """Refuse a word with a sign that the tokenizer would drop although it means something in other query languages."""
    found = _SIGNS.search(word)
    sign, place = (found[0], found.start()) if found else ("", len(word))
    for i, character in enumerate(word[:place]):
        category = unicodedata.category(character)
        if category in ("Ps", "Pe") or (category == "Sm" and character != "+") or (character == ":" and word[i - 1].isalpha() and i):
            sign, place = character, i
            break
    if sign:
        if sign in _OPERATORS:
            hint = f"write {_OPERATORS[sign]}, with spaces around it"
        else:
            hint = _SIGN_HINTS.get(sign) or ("use ( and )" if unicodedata.category(sign[0]) in ("Ps", "Pe") else "such a sign is no part of a word")
        raise ExpressionError(f"no {sign!r} in a word", at[place], given=given, legal=_LEGAL, hint=f"{hint}; in quotes, signs only separate words")


def _shorten(part: str) -> str:
    return repr(part if len(part) <= 40 else part[:37] + "...")


def _either(alternatives: list[list[Expression]]) -> Expression:
    return _join("or", [_join("and", factors) for factors in alternatives])


def _join(operator: str, parts: Iterable[Expression]) -> Expression:
    """Join simplified expressions into a simplified one."""
    found: dict[Any, Expression] = {}
    for part in parts:
        for e in part[1:] if isinstance(part, list) and part[0] == operator else (part,):
            found.setdefault(_key(e), e)
    return [operator, *found.values()] if len(found) > 1 else next(iter(found.values()))


def _key(expression: Expression) -> Any:
    return (expression[0], frozenset(map(_key, expression[1:]))) if isinstance(expression, list) else expression


def from_keywords(keywords: Iterable[str]) -> Expression:
    """Return the expression that requires all of the terms.

    :raises IllegalArgumentException: there are no terms.

    >>> from_keywords(["late", "coffee", "late"])
    ['and', 'late', 'coffee']
    """
    keywords = list(keywords)
    if not keywords:
        raise IllegalArgumentException(explain("Expected at least one keyword", given=keywords))
    return _join("and", keywords)


def map_terms(expression: Expression, fn: Callable[[Any], Any]) -> Expression:
    """Return the expression with ``fn(term)`` in place of each term.

    >>> map_terms(["or", "a", ["and", "b", "c"]], {"a": 1, "b": 2, "c": 3}.get)
    ['or', 1, ['and', 2, 3]]
    """
    return [expression[0], *(map_terms(e, fn) for e in expression[1:])] if isinstance(expression, list) else fn(expression)


def satisfies(expression: Expression, terms: Collection[Any]) -> bool:
    """Tell whether a text with these terms satisfies the expression. Pass the terms as a set: each lookup is then O(1).

    >>> satisfies(["or", "a", ["and", "b", "c"]], {"b", "c"})
    True
    """
    if isinstance(expression, list):
        return (all if expression[0] == "and" else any)(satisfies(e, terms) for e in expression[1:])
    return expression in terms


def terms(expression: Expression) -> list[Any]:
    """Return the terms, each once, in order of appearance.

    >>> terms(["or", "a", ["and", "b", "a"]])
    ['a', 'b']
    """
    if not isinstance(expression, list):
        return [expression]
    return list(dict.fromkeys(t for e in expression[1:] for t in terms(e)))


def to_text(expression: Expression) -> str:
    """Return the expression as a user would write it; :func:`parse` reads it back.

    >>> to_text(["and", "coffee", ["or", "wifi", ["and", "late", "night"]], "and"])
    'coffee AND (wifi OR late AND night) AND "and"'
    """
    if not isinstance(expression, list):
        return f'"{expression}"' if str(expression).upper() in ("AND", "OR", "NOT") else str(expression)
    if expression[0] == "or":
        return " OR ".join(map(to_text, expression[1:]))
    return " AND ".join(f"({to_text(e)})" if isinstance(e, list) else to_text(e) for e in expression[1:])
