"""Reading the options of an index."""

from __future__ import annotations

import numpy as np

from dskype.bolts.boolean.base import BooleanIndex
from dskype.distribution.agrid.grid import WORLD
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["box", "number", "whole"]


def box(index: BooleanIndex) -> np.ndarray:
    """Return the option ``box`` of an index as west, south, width and height, float64[4], degrees; by default those of the world.

    :raises IllegalArgumentException: it is no box.
    """
    given = index.options.get("box", WORLD)
    legal = isinstance(given, (list, tuple)) and len(given) == 4 and all(type(x) in (int, float) for x in given)
    if not legal or not (-180 <= given[0] < given[2] <= 180 and -90 <= given[1] < given[3] <= 90):
        raise IllegalArgumentException(
            explain(
                f"The option box of boolean index {index.name!r} is not usable.",
                given=given,
                legal="[west, south, east, north] in degrees, west < east, south < north",
            )
        )
    west, south, east, north = map(float, given)
    return np.array([west, south, east - west, north - south])


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
