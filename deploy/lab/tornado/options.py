"""Reading the options of an index."""

from __future__ import annotations

from dskype.bolts.boolean.base import BooleanIndex
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["number", "whole"]


def number(index: BooleanIndex, key: str, default: float, low: float, high: float) -> float:
    """Return the option ``key`` of an index, a number.

    :raises IllegalArgumentException: another value, or one outside ``low`` to ``high``.
    """
    value = index.options.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise IllegalArgumentException(
            explain(f"An option of boolean index {index.name!r} has an illegal value.", given={key: value}, legal=f"{low} to {high}")
        )
    return value


def whole(index: BooleanIndex, key: str, default: int, low: int, high: int) -> int:
    """Return the option ``key`` of an index, a whole number.

    :raises IllegalArgumentException: another value, or one outside ``low`` to ``high``.
    """
    value = number(index, key, default, low, high)
    if value != int(value):
        raise IllegalArgumentException(explain(f"An option of boolean index {index.name!r} must be a whole number.", given={key: value}))
    return int(value)
