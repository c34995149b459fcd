"""Expressions of subscriptions as trees: ``coffee AND (wifi OR "late night") AND NOT decaf AND price < 5``.

An expression is a word, or a list that begins with an operator::

    "coffee"                                  the word occurs
    ["and", e, e, ...]  ["or", e, e, ...]     all, or one, of two or more expressions hold
    ["not", e]                                the expression does not hold
    ["atleast", n, e, e, ...]                 n of the expressions hold
    ["phrase", within, [0, 1], ["late", "night"]]   the words occur in this order, with at most ``within`` others between them;
                                              their places in the phrase leave gaps for stop words
    ["prefix", "muse"]                        a word that begins so occurs
    ["in", "title", word | phrase | prefix]   in this field of the text
    ["attribute", name, op, value, ...]       op: = != < <= > >= (one value), in (one of the values), has (the set has the value), exists

It stays a tree of this form until the distribution bolt compiles it (:mod:`dskype.distribution.filters`). Trees of earlier versions have words,
``and`` and ``or`` only, and are read unchanged. :mod:`dskype.spouts.expression_parser` reads what users write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from dskype.topology.errors import IllegalArgumentException

__all__ = ["EVERYTHING", "PREFIX_LENGTHS", "Expression", "as_lists", "from_keywords", "is_plain", "join", "map_words", "parts", "to_text", "words"]

Expression = Any
"""A word, or a list; see the module."""

PREFIX_LENGTHS = (2, 16)
"""The fewest and the most letters of a prefix."""

EVERYTHING: Expression = ["all"]
"""The expression that every message satisfies: of a subscription that says nothing about words."""


def join(operator: str, parts: Iterable[Expression]) -> Expression:
    """Join simplified expressions by ``and`` or ``or`` into a simplified one: no operator directly inside itself, no operand twice."""
    found: dict[Any, Expression] = {}
    for part in parts:
        for e in part[1:] if isinstance(part, list) and part[0] == operator else (part,):
            found.setdefault(_key(e), e)
    return [operator, *found.values()] if len(found) > 1 else next(iter(found.values()))


def _key(expression: Any) -> Any:
    if not isinstance(expression, list):
        return expression
    if expression[0] == "phrase":  # its words are no expressions; they may be "and" and "or"
        return (*expression[:2], tuple(expression[2]), tuple(expression[3]))
    return (expression[0], frozenset(map(_key, expression[1:]))) if expression[0] in ("and", "or") else tuple(map(_key, expression))


def from_keywords(keywords: Iterable[str]) -> Expression:
    """Return the expression that requires all of the words.

    :raises IllegalArgumentException: there are no words.

    >>> from_keywords(["late", "coffee", "late"])
    ['and', 'late', 'coffee']
    """
    keywords = list(keywords)
    if not keywords:
        raise IllegalArgumentException("Expected at least one keyword", given=keywords)
    return join("and", keywords)


def as_lists(expression: Any) -> Expression:
    """Return an expression whose lists have become tuples on the way, with lists again."""
    return list(map(as_lists, expression)) if isinstance(expression, (list, tuple)) else expression


def is_plain(expression: Expression) -> bool:
    """Tell whether an expression consists of words, ``and`` and ``or`` only."""
    return not isinstance(expression, list) or (expression[0] in ("and", "or") and all(map(is_plain, expression[1:])))


def parts(expression: Expression) -> list[Expression]:
    """Return the expressions directly inside one; words, phrases, prefixes and attributes have none."""
    if not isinstance(expression, list):
        return []
    skipped = {"and": 1, "or": 1, "not": 1, "atleast": 2, "in": 2}.get(expression[0])
    return [] if skipped is None else expression[skipped:]


def words(expression: Expression) -> list[Any]:
    """Return the words, those of phrases too, each once, in order of appearance.

    >>> words(["or", "a", ["phrase", 0, [0, 1], ["b", "a"]]])
    ['a', 'b']
    """
    if not isinstance(expression, list):
        return [expression]
    if expression[0] == "phrase":
        return list(dict.fromkeys(expression[3]))
    return list(dict.fromkeys(word for part in parts(expression) for word in words(part)))


def map_words(expression: Expression, fn: Callable[[Any], Any]) -> Expression:
    """Return the expression with ``fn(word)`` in place of each word.

    >>> map_words(["or", "a", ["phrase", 2, [0, 1], ["b", "c"]]], {"a": 1, "b": 2, "c": 3}.get)
    ['or', 1, ['phrase', 2, [0, 1], [2, 3]]]
    """
    if not isinstance(expression, list):
        return fn(expression)
    if expression[0] == "phrase":
        return [*expression[:3], list(map(fn, expression[3]))]
    inside = parts(expression)
    return [*expression[: len(expression) - len(inside)], *(map_words(part, fn) for part in inside)]


# -- as text ------------------------------------------------------------------------------------------------------------

_KEYWORDS = frozenset({"AND", "OR", "NOT"})


def to_text(expression: Expression) -> str:
    """Return the expression as a user would write it; the parser reads it back.

    >>> to_text(["and", "coffee", ["or", "wifi", ["phrase", 0, [0, 1], ["late", "night"]]], ["not", "and"]])
    'coffee AND (wifi OR "late night") AND NOT "and"'
    >>> to_text(["or", ["in", "title", ["prefix", "muse"]], ["attribute", "tags", "in", "a b", "c"], ["atleast", 2, "a", "b", "c"]])
    'title:muse* OR tags IN ("a b", "c") OR ATLEAST 2 OF (a, b, c)'
    """
    if not isinstance(expression, list):
        return f'"{expression}"' if str(expression).upper() in _KEYWORDS else str(expression)
    operator, *rest = expression
    if operator == "or":
        return " OR ".join(map(to_text, rest))
    if operator == "and":
        return " AND ".join(_grouped(e, ("or",)) for e in rest)
    if operator == "not":
        return f"NOT {_grouped(rest[0], ('or', 'and'))}"
    if operator == "atleast":
        return f"ATLEAST {rest[0]} OF ({', '.join(map(to_text, rest[1:]))})"
    if operator == "phrase":
        return _phrase_text(*rest)
    if operator == "prefix":
        return f"{rest[0]}*"
    if operator == "in":
        return f"{rest[0]}:{to_text(rest[1])}"
    if operator == "attribute":
        return _attribute_text(*rest)
    return "(everything)"


def _grouped(expression: Expression, operators: tuple[str, ...]) -> str:
    text = to_text(expression)
    return f"({text})" if isinstance(expression, list) and expression[0] in operators else text


def _phrase_text(within: int, places: list[int], written: list[Any]) -> str:
    found = [str(word) for word in written]
    shown = found[0]
    for place, before, word in zip(places[1:], places, found[1:]):
        shown += " " + "_ " * (place - before - 1) + word
    return f'"{shown}"' + (f"~{within}" if within else "")


def _attribute_text(name: str, op: str, *values: Any) -> str:
    if op == "exists":
        return f"exists({name})"
    shown = list(map(_value_text, values))
    return f"{name} {op.upper()} ({', '.join(shown)})" if op == "in" else f"{name} {op.upper()} {shown[0]}"


def _value_text(value: Any) -> str:
    if type(value) is str:
        return f'"{value}"'  # has no quote, and is compared as it stands there
    return str(int(value)) if type(value) is float and value.is_integer() else json.dumps(value)
