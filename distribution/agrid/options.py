"""Options of distributors whose plans have a grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.distribution.agrid.grid import WORLD
from dskype.topology.errors import IllegalArgumentException

__all__ = ["GRID_OPTIONS", "LEARNED_GRANULARITY", "check_grid"]

GRID_OPTIONS: dict[str, Any] = {"granularity": 1000, "box": list(WORLD)}
"""The options, with their defaults. Plans that are made without a sample follow from them, so other defaults would move the partitions of topologies that run."""
LEARNED_GRANULARITY = 4096
"""Columns and rows of a learned plan by default. A cell of 10 km may hold a city, and more work than a task can have; more cells cost a router no time and little memory."""


def check_grid(name: str, tasks: int, options: Mapping[str, Any], most: int = 8192) -> None:
    """Check the options ``granularity`` and ``box`` of a distributor.

    :param most: the most columns and rows.
    :raises IllegalArgumentException: one is not usable.
    """
    cells, box = options["granularity"], options["box"]
    if type(cells) is not int or not 1 <= cells <= most or cells * cells < tasks:
        raise IllegalArgumentException(
            f"The option granularity of the {name} distributor is not usable.", given=cells, legal=f"1 to {most} columns and rows, at least {tasks} cells"
        )
    if not isinstance(box, (list, tuple)) or len(box) != 4 or not all(type(x) in (int, float) for x in box) or not (box[0] < box[2] and box[1] < box[3]):
        raise IllegalArgumentException(
            f"The option box of the {name} distributor is not usable.", given=box, legal="[west, south, east, north], west < east, south < north"
        )
