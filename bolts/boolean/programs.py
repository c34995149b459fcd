"""Boolean expressions as integer programs. :mod:`dskype.distribution.routing.triggers` describes expressions and their triggers.

A program is a list of int64, by kind::

    AND      terms in rising order: all must be there; the first is the trigger
    OR       terms in rising order: any will do; all are triggers
    GENERAL  t, then the t triggers in rising order, then literals: pairs (term, jumps)

A literal of a GENERAL program asks for one term. The next literal is ``jumps >> 32`` if the term is there, and ``jumps &
0xffffffff`` if it is not; the number of literals L stands for "satisfied", L + 1 for "not satisfied". Without negation such a
program asks for every literal once at most, and needs no stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dskype.distribution.routing.triggers import Normal, normalize, rarity, triggers

__all__ = ["AND", "GENERAL", "OR", "compile_expression"]

AND, OR, GENERAL = 1, 2, 3


def _size(expression: Normal) -> int:
    return 1 if type(expression) is int else sum(map(_size, expression[1]))


def _literals(expression: Normal, on_true: int, on_false: int, out: list[tuple[int, int, int]]) -> None:
    """Append the literals of ``expression``: what decides soonest first (rare in an ``and``, frequent in an ``or``)."""
    if type(expression) is int:
        out.append((expression, on_true, on_false))
        return
    operator, children = expression
    ordered = sorted(children, key=lambda child: rarity(triggers(child)), reverse=operator == "or")
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
