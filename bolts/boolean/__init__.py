"""Boolean subscriptions: a rectangle and a keyword expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.bolts.boolean.base import BooleanIndex
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.plugins import Plugins

__all__ = ["INDEXES", "BooleanIndex", "make_index"]

INDEXES: Plugins[BooleanIndex] = Plugins(
    "dskype.boolean.index", {"lanes": "dskype.bolts.boolean.lanes:LanesIndex", "plain": "dskype.bolts.boolean.plain:PlainIndex"}
)
"""Indexes by their names in ``dskype.boolean.index``."""


def make_index(name: str, options: Mapping[str, Any] | None = None) -> BooleanIndex:
    """Return an empty index.

    :raises IllegalArgumentException: an unknown index, or options that it does not know.
    """
    if name not in INDEXES:
        raise IllegalArgumentException("A boolean index is not known.", given=name, legal=", ".join(INDEXES))
    return INDEXES[name](options)
