"""Boolean expressions as integer programs, and the terms that announce them.

An expression over term ids is ``term`` | ``["and", e, ...]`` | ``["or", e, ...]``, without negation. Term ids are ranks by
document frequency: the smaller, the rarer (unknown terms are negative, the rarest of all).

*Triggers* of an expression: a set of terms of which every satisfying set of terms contains at least one. So it is enough to
look at an expression when one of its triggers is seen. A term triggers itself; an ``or`` needs the triggers of all its
children; for an ``and`` those of any one child will do: the child with the fewest, and among them the rarest, is taken.

A program is a list of int64, by kind::

    AND      terms in rising order: all must be there; the first is the trigger
    OR       terms in rising order: any will do; all are triggers
    GENERAL  t, then the t triggers in rising order, then literals: pairs (term, jumps)

A literal of a GENERAL program asks for one term; ``jumps >> 32`` is the literal to go on with when it is there, ``jumps &
0xffffffff`` when it is not; the number of literals L stands for "satisfied", L + 1 for "not". Without negation such a
program asks for every literal once at most, and needs no stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["AND", "GENERAL", "OR", "compile_expression", "normalize", "triggers"]

AND, OR, GENERAL = 1, 2, 3

Normal = int | tuple[str, tuple[Any, ...]]


def _refuse(given: Any) -> IllegalArgumentException:
    return IllegalArgumentException(
        explain("An expression cannot be indexed.", given=given, legal='an int | ["and", e, ...] | ["or", e, ...], with at least one e')
    )


def normalize(expression: Any) -> Normal:
    """Return an equal expression of tuples: no operator directly below the same one, no child twice, none with one child.

    :raises IllegalArgumentException: it is malformed.
    """
    if type(expression) is int:
        return expression
    if isinstance(expression, (list, tuple)) and len(expression) >= 2 and expression[0] in ("and", "or"):
        operator = expression[0]
        children: dict[Normal, None] = {}
        for part in expression[1:]:
            child = part if type(part) is int else normalize(part)
            if type(child) is tuple and child[0] == operator:
                children.update(dict.fromkeys(child[1]))
            else:
                children[child] = None
        return next(iter(children)) if len(children) == 1 else (operator, tuple(children))
    if hasattr(expression, "__index__") and not isinstance(expression, bool):  # numpy's integers
        return int(expression)
    raise _refuse(expression)


def triggers(expression: Normal) -> set[int]:
    """Return the triggers of a normalized expression."""
    if type(expression) is int:
        return {expression}
    operator, children = expression
    if operator == "or":
        return set().union(*map(triggers, children))
    return min(map(triggers, children), key=_rarity)


def _rarity(terms: set[int]) -> tuple[int, list[int]]:
    return len(terms), sorted(terms, reverse=True)


def _size(expression: Normal) -> int:
    return 1 if type(expression) is int else sum(map(_size, expression[1]))


def _literals(expression: Normal, on_true: int, on_false: int, out: list[tuple[int, int, int]]) -> None:
    """Append the literals of ``expression``: what decides soonest first (rare in an ``and``, frequent in an ``or``)."""
    if type(expression) is int:
        out.append((expression, on_true, on_false))
        return
    operator, children = expression
    ordered = sorted(children, key=lambda child: _rarity(triggers(child)), reverse=operator == "or")
    for child in ordered[:-1]:
        following = len(out) + _size(child)
        if operator == "and":
            _literals(child, following, on_false, out)
        else:
            _literals(child, on_true, following, out)
    _literals(ordered[-1], on_true, on_false, out)


def compile_expression(expression: Any) -> tuple[int, Sequence[int]]:
    """Return (kind, program) of an expression.

    :raises IllegalArgumentException: it is malformed.
    """
    normal = normalize(expression)
    if type(normal) is int:
        return AND, [normal]
    operator, children = normal
    if all(type(child) is int for child in children):
        return (AND if operator == "and" else OR), sorted(children)
    literals: list[tuple[int, int, int]] = []
    size = _size(normal)
    _literals(normal, size, size + 1, literals)
    found = sorted(triggers(normal))
    return GENERAL, [len(found), *found, *(x for term, on_true, on_false in literals for x in (term, on_true << 32 | on_false))]
