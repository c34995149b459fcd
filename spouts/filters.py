"""What an expression needs of a message: a condition for indexes and distributors, and a program that decides.

Indexes and distributors know words, ``and`` and ``or``. An expression that says more has a *necessary condition* of this form: every
message that satisfies the expression satisfies it. It leads to candidates, and a *program* decides which of them satisfy the expression.
So every index and every distributor takes every expression.

A condition without words needs something that messages have instead: a value of an attribute, a prefix, or :data:`EVERY_MESSAGE`. These
are terms too, with a sign that no word has (``category=cafe``, ``muse*``); a condition uses them only where it has no word.

A program is a list of int64. It begins with its version; then follow instructions of an operation and its operands:

==============================  =====================================================================================================
``TERM id``                     whether the message has the term
``NUMBER key low high``         whether the attribute ``key`` has a number from ``low`` to ``high`` (bits of float64)
``VALUE key value``             whether the attribute has this value (a hash)
``EXISTS key``                  whether the message has the attribute
``PHRASE field within n ...``   whether the field (-1: any) has these n words in this order: pairs (place, id), the first at place 0
``NOT``                         the opposite of what was found
``UNLESS target``               if it was not found: go on at ``target``
``IF target``                   if it was found: go on at ``target``
``COUNT n m``                   begin to count n of m
``TALLY target``                count what was found; once it is decided, go on at ``target`` with the result
==============================  =====================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dskype.spouts.attributes import number_bits, term_hash, value_hash
from dskype.spouts.filter_kernels import COUNT, EXISTS, IF, NOT, NUMBER, PHRASE, TALLY, TERM, UNLESS, VALUE

__all__ = ["EVERY_MESSAGE", "VERSION", "Compiled", "compile_filter", "compile_program", "is_wordless"]

VERSION = 1

EVERY_MESSAGE = -(1 << 62) - 1
"""The term that every message has. It is below the ids of all others, so it comes first among the terms of a message."""


class Compiled(NamedTuple):
    """An expression, for those who look for messages.

    :ivar condition: over ids of terms, with ``and`` and ``or``: what indexes and distributors take.
    :ivar program: decides whether a message that meets the condition satisfies the expression; None: it does.
    """

    condition: Any
    program: list[int] | None


_WORD, _PREFIX, _OTHER = range(3)


class _Condition(NamedTuple):
    """A necessary condition.

    :ivar tree: over ids of terms; None: there is none.
    :ivar exact: whether it is sufficient too.
    :ivar needs: what a message has that meets it: ``_WORD``, or else a ``_PREFIX``, or else ``_OTHER`` terms, which all messages may have.
    """

    tree: Any
    exact: bool
    needs: int = _WORD


def compile_filter(expression: Any, ids: Mapping[str, int], fields: Sequence[str] = ()) -> Compiled:
    """Compile an expression (:mod:`dskype.spouts.expression`). O(length).

    :param ids: word -> id of its term, of all words of the expression.
    :param fields: the names of the fields of a text, in their order.

    >>> compile_filter(["and", "coffee", "tea"], {"coffee": 7, "tea": 3})
    Compiled(condition=['and', 7, 3], program=None)
    >>> compile_filter(["and", "coffee", ["not", "tea"]], {"coffee": 7, "tea": 3})
    Compiled(condition=7, program=[1, 1, 3, 6])
    """
    found = _condition(expression, False, ids.__getitem__)
    if found.exact:
        return Compiled(found.tree, None)
    if found.tree is None:
        return Compiled(EVERY_MESSAGE, compile_program(expression, ids, fields))
    return Compiled(found.tree, compile_program(_undecided(expression, found, ids), ids, fields))


def _undecided(expression: Any, found: _Condition, ids: Mapping[str, int]) -> Any:
    """Return what is left of an expression for messages that meet its condition: of an AND, the parts that the condition does not decide."""
    if not isinstance(expression, list) or expression[0] != "and":
        return expression
    conditions = [_condition(part, False, ids.__getitem__) for part in expression[1:]]
    left = [part for part, one in zip(expression[1:], conditions) if not (one.exact and one.needs == found.needs)]
    return ["and", *left] if len(left) > 1 else left[0]


def compile_program(expression: Any, ids: Mapping[str, int], fields: Sequence[str] = ()) -> list[int]:
    """Compile what decides whether a message satisfies an expression, whatever led to the message; see :func:`compile_filter`.

    >>> compile_program("coffee", {"coffee": 7})
    [1, 1, 7]
    """
    out = [VERSION]
    _compile(expression, ids, tuple(fields), out)
    return out


def is_wordless(expression: Any) -> bool:
    """Tell whether a message may satisfy an expression without any of its words and prefixes, so that it must carry other terms.

    The expression needs a word when this follows from its form. Words, phrases and prefixes need one, attributes do not. An AND does if one of
    its parts does, an OR if all do, and ``ATLEAST n`` of m parts if m - n + 1 do. What NOT negates needs none; but NOT of an AND is the OR of its
    negated parts, NOT of an OR their AND, NOT of ``ATLEAST n`` of m parts ``ATLEAST m - n + 1`` of them, and NOT NOT is nothing.
    """
    found = _condition(expression, False, term_hash)
    return found.tree is None or found.needs == _OTHER


# -- conditions -----------------------------------------------------------------------------------------------------------


def _condition(expression: Any, negated: bool, id_of: Callable[[str], int], field: str | None = None) -> _Condition:
    if not isinstance(expression, list):
        return _Condition(None, False) if negated else _Condition(id_of(expression), field is None)
    operator = expression[0]
    if operator == "not":
        return _condition(expression[1], not negated, id_of)
    if operator in ("and", "or"):
        found = [_condition(part, negated, id_of) for part in expression[1:]]
        return _both(found) if (operator == "and") != negated else _either(found)
    if operator == "atleast":
        # If n of m hold, one of any m - n + 1 does; if fewer than n hold, m - n + 1 do not.
        found = [_condition(part, negated, id_of) for part in expression[2:]]
        n = len(found) - expression[1] + 1 if negated else expression[1]
        best = sorted(found, key=_selectivity)[: len(found) - n + 1]
        return _either(best)._replace(exact=False)
    if negated:
        return _Condition(None, False)
    if operator == "in":
        return _condition(expression[2], False, id_of, expression[1])._replace(exact=expression[2][:1] == ["prefix"])
    if operator == "phrase":
        return _both([_Condition(id_of(word), True) for word in expression[3]])._replace(exact=False)
    if operator == "prefix":
        return _Condition(_prefix_term(field, expression[1]), True, _PREFIX)
    if operator == "all":
        return _Condition(EVERY_MESSAGE, True, _OTHER)
    _, name, op, *values = expression
    if op in ("=", "in", "has") and all(type(value) is str for value in values):
        return _either([_Condition(value_hash(name, value), True, _OTHER) for value in values])
    return _Condition(None, False)


def _prefix_term(field: str | None, prefix: str) -> int:
    return term_hash(f"{prefix}*" if field is None else f"{field}:{prefix}*")


def _both(found: list[_Condition]) -> _Condition:
    there = [one for one in found if one.tree is not None]
    least = min((one.needs for one in there), default=_WORD)
    kept = [one for one in there if one.needs == least]
    exact = len(kept) == len(found) and all(one.exact for one in kept)
    if len(kept) < 2:
        return kept[0]._replace(exact=exact) if kept else _Condition(None, False)
    return _Condition(["and", *(one.tree for one in kept)], exact, least)


def _either(found: list[_Condition]) -> _Condition:
    if any(one.tree is None for one in found):
        return _Condition(None, False)
    if len(found) == 1:
        return found[0]
    return _Condition(["or", *(one.tree for one in found)], all(one.exact for one in found), max(one.needs for one in found))


def _selectivity(condition: _Condition) -> tuple[bool, int, int]:
    """Return a key that sorts conditions: those with words first, and those of rare words before others."""
    return condition.tree is None, condition.needs, 0 if condition.tree is None else _commonest(condition.tree)


def _commonest(tree: Any) -> int:
    """Return the id of the word that decides how often a condition holds; ids rise with frequency."""
    if not isinstance(tree, list):
        return int(tree)
    found = list(map(_commonest, tree[1:]))
    return min(found) if tree[0] == "and" else max(found)


# -- programs -------------------------------------------------------------------------------------------------------------


def _compile(expression: Any, ids: Mapping[str, int], fields: tuple[str, ...], out: list[int], field: str | None = None) -> None:
    """Append the instructions that find out whether the expression holds."""
    if not isinstance(expression, list):
        if field is None:
            out += [TERM, ids[expression]]
        else:
            out += [PHRASE, fields.index(field), 0, 1, 0, ids[expression]]
        return
    operator = expression[0]
    if operator in ("and", "or"):
        jumps = []
        for i, part in enumerate(expression[1:]):
            if i:
                out += [UNLESS if operator == "and" else IF, 0]
                jumps.append(len(out) - 1)
            _compile(part, ids, fields, out)
        for jump in jumps:
            out[jump] = len(out)
    elif operator == "atleast":
        out += [COUNT, expression[1], len(expression) - 2]
        jumps = []
        for part in expression[2:]:
            _compile(part, ids, fields, out)
            out += [TALLY, 0]
            jumps.append(len(out) - 1)
        for jump in jumps:
            out[jump] = len(out)
    elif operator == "not":
        _compile(expression[1], ids, fields, out)
        out.append(NOT)
    elif operator == "in":
        _compile(expression[2], ids, fields, out, expression[1])
    elif operator == "prefix":
        out += [TERM, _prefix_term(field, expression[1])]
    elif operator == "phrase":
        _, within, places, words = expression
        out += [PHRASE, -1 if field is None else fields.index(field), within, len(words)]
        for place, word in zip(places, words):
            out += [place, ids[word]]
    elif operator == "all":
        out += [TERM, EVERY_MESSAGE]
    else:
        _compile_attribute(*expression[1:], out=out)


def _compile_attribute(name: str, op: str, *values: Any, out: list[int]) -> None:
    key = term_hash(f"{name}=")
    if op == "exists":
        out += [EXISTS, key]
        return
    if op == "!=":
        out += [EXISTS, key, UNLESS, len(out) + (8 if type(values[0]) is str else 9)]
    jumps = []
    for i, value in enumerate(values):
        if i:
            out += [IF, 0]
            jumps.append(len(out) - 1)
        if type(value) is str:
            out += [VALUE, key, value_hash(name, value)]
        else:
            number = float(value)
            low = math.nextafter(number, math.inf) if op == ">" else -math.inf if op in ("<", "<=") else number
            high = math.nextafter(number, -math.inf) if op == "<" else math.inf if op in (">", ">=") else number
            out += [NUMBER, key, number_bits(low), number_bits(high)]
    for jump in jumps:
        out[jump] = len(out)
    if op == "!=":
        out.append(NOT)
