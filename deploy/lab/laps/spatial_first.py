"""The spatial-first method: an R-tree of rectangles, then keywords."""

from __future__ import annotations

from dskype.deploy.lab.laps.rtree import token_kernels
from dskype.deploy.lab.laps.rtree.index import TreeIndex

__all__ = ["SpatialFirstIndex"]


class SpatialFirstIndex(TreeIndex):
    """Finds all subscriptions whose rectangles overlap a message, and verifies their keywords, the rarest first (LAPS, section 2.2)."""

    name = "spatial-first"
    kind = token_kernels.SPATIAL
