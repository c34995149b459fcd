"""The triggers of boolean expressions, and the routing terms of subscriptions.

An expression over term ids is ``term`` | ``["and", e, ...]`` | ``["or", e, ...]``, without negation. Term ids are ranks by
document frequency: the smaller, the rarer (unknown terms are negative, the rarest of all).

*Triggers* of an expression: a set of terms of which every satisfying set of terms contains at least one. So it is enough to
look at an expression when one of its triggers is seen. A term triggers itself; an ``or`` needs the triggers of all its
children; for an ``and`` those of any one child will do: the child with the fewest, and among them the rarest, is taken.

*Routing terms* of a subscription: every message that it may match has one of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dskype.distribution.subscriptions import Subscription, TopkSubscription
from dskype.topology.errors import IllegalArgumentException

__all__ = ["Normal", "normalize", "rarity", "routing_terms", "trigger_terms", "triggers"]

Normal = int | tuple[str, tuple[Any, ...]]


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
    raise IllegalArgumentException("An expression cannot be indexed.", given=expression, legal='an int | ["and", e, ...] | ["or", e, ...], with at least one e')


def triggers(expression: Normal) -> set[int]:
    """Return the triggers of a normalized expression."""
    if type(expression) is int:
        return {expression}
    operator, children = expression
    if operator == "or":
        return set().union(*map(triggers, children))
    return min(map(triggers, children), key=rarity)


def rarity(terms: set[int]) -> tuple[int, list[int]]:
    """Return a key that sorts sets of triggers: the best one first."""
    return len(terms), sorted(terms, reverse=True)


def trigger_terms(expression: Any) -> list[int]:
    """Return the triggers of an expression, rising: one for each conjunct, its rarest term.

    >>> trigger_terms(["and", ["or", 3, 9], 40, ["or", 1, 2, 5]])
    [40]
    >>> trigger_terms(["or", 7, ["and", 4, -6]])
    [-6, 7]

    :raises IllegalArgumentException: it is malformed.
    """
    return sorted(triggers(normalize(expression)))


def routing_terms(subscription: Subscription) -> np.ndarray:
    """Return the routing terms of a subscription, int64[], rising, each once: every message that it may match has one of them.

    A boolean subscription has the triggers of its expression. A top-k subscription has all its keywords, because one common keyword gives a message a
    score.
    """
    if isinstance(subscription, TopkSubscription):
        return np.unique(np.asarray(subscription.terms, np.int64))
    return np.array(trigger_terms(subscription.expression), np.int64)
