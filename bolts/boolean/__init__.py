"""Boolean subscriptions: a rectangle and a keyword expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.bolts.boolean.base import BooleanIndex
from dskype.bolts.boolean.baselines.cells import Gi2Index, TableIndex
from dskype.bolts.boolean.baselines.fast import FastIndex
from dskype.bolts.boolean.baselines.irtree import IrTreeIndex
from dskype.bolts.boolean.baselines.keyword_first import KeywordFirstIndex
from dskype.bolts.boolean.baselines.spatial_first import SpatialFirstIndex
from dskype.bolts.boolean.lanes import LanesIndex
from dskype.bolts.boolean.plain import PlainIndex
from dskype.bolts.boolean.rtree.index import RtPlusPlusTreeIndex, RtPlusTreeIndex, RtTreeIndex
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["INDEXES", "BooleanIndex", "make_index"]

INDEXES: dict[str, type[BooleanIndex]] = {
    index.name: index
    for index in (
        LanesIndex,
        PlainIndex,
        FastIndex,
        Gi2Index,
        TableIndex,
        RtTreeIndex,
        RtPlusTreeIndex,
        RtPlusPlusTreeIndex,
        KeywordFirstIndex,
        SpatialFirstIndex,
        IrTreeIndex,
    )
}
"""Name (``dskype.boolean.index``) -> class."""


def make_index(name: str, options: Mapping[str, Any] | None = None) -> BooleanIndex:
    """Return an empty index.

    :raises IllegalArgumentException: an unknown index, or options that it does not know.
    """
    if name not in INDEXES:
        raise IllegalArgumentException(explain("A boolean index is not known.", given=name, legal=", ".join(INDEXES)))
    return INDEXES[name](options)
