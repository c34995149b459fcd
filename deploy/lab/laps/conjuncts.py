"""Boolean expressions as lists of conjuncts, for indexes that know conjunctions only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dskype.bolts.boolean.programs import compile_expression
from dskype.distribution.routing.triggers import Normal, normalize

__all__ = ["Decomposed", "decompose"]

GROWTH = 4
"""The most terms that the conjuncts of an expression may have together, for each term of the expression."""
_SHORT = 32


class Decomposed(NamedTuple):
    """An expression as conjuncts.

    :ivar conjuncts: sets of terms, each as a list that rises. A set of terms satisfies the expression only if it contains one of them; without
        a program, always then.
    :ivar program: what remains to be asked, as literals (term, where to continue if it is there, where if not), one after another. A place
        is the number of a literal; the number of all literals means "satisfied", one more "not satisfied". None if nothing remains.
    """

    conjuncts: list[Sequence[int]]
    program: Sequence[int] | None


def decompose(expression: Any) -> Decomposed:
    """Return the conjuncts of an expression.

    They are those of its disjunctive normal form (LAPS, section 2.1), unless this has more than four times as many terms as the expression:
    an ``and`` of many ``or`` would otherwise grow exponentially. Then the triggers of the expression are the conjuncts, each one term, and
    its program says what remains (see :mod:`~dskype.bolts.boolean.programs`). Either way the result is in proportion to the expression.

    >>> decompose(["and", ["or", 1, 2], 5]).conjuncts
    [[1, 5], [2, 5]]

    :param expression: ``term`` | ``["and", e, ...]`` | ``["or", e, ...]`` over int term ids.
    :raises IllegalArgumentException: it is malformed.
    """
    if type(expression) is int:
        return Decomposed([[expression]], None)
    if type(expression) is list and len(expression) > 1 and expression[0] == "and" and all(type(term) is int for term in expression[1:]):
        return Decomposed([sorted(set(expression[1:]))], None)
    normal = normalize(expression)
    found = _disjunctive(normal, GROWTH * _terms(normal))
    if found is not None:
        return Decomposed([sorted(conjunct) for conjunct in _without_supersets(found)], None)
    _, program = compile_expression(expression)
    first = 1 + program[0]
    literals: list[int] = []
    for i in range(first, len(program), 2):
        literals += (program[i], program[i + 1] >> 32, program[i + 1] & 0xFFFFFFFF)
    return Decomposed([[trigger] for trigger in program[1:first]], literals)


def _terms(expression: Normal) -> int:
    return 1 if type(expression) is int else sum(map(_terms, expression[1]))


def _disjunctive(expression: Normal, most: int) -> list[frozenset[int]] | None:
    """Return the disjunctive normal form, each conjunct once; None if it, or a part of it, has more than ``most`` terms."""
    if type(expression) is int:
        return [frozenset((expression,))]
    operator, children = expression
    found: dict[frozenset[int], None] = {} if operator == "or" else {frozenset(): None}
    for child in children:
        below = _disjunctive(child, most)
        if below is None or (operator == "and" and len(found) * len(below) > most):
            return None
        if operator == "or":
            found.update(dict.fromkeys(below))
        else:
            found = dict.fromkeys(one | other for one in found for other in below)
        if sum(map(len, found)) > most:
            return None
    return list(found)


def _without_supersets(conjuncts: list[frozenset[int]]) -> list[frozenset[int]]:
    """Leave out conjuncts that contain another one, where there are few enough to compare all of them."""
    if not 1 < len(conjuncts) <= _SHORT:
        return conjuncts
    return [one for one in conjuncts if not any(other < one for other in conjuncts)]
