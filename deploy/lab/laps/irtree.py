"""The IR-tree over subscriptions."""

from __future__ import annotations

from dskype.deploy.lab.laps.rtree import token_kernels
from dskype.deploy.lab.laps.rtree.index import TreeIndex

__all__ = ["IrTreeIndex"]


class IrTreeIndex(TreeIndex):
    """An R-tree with an inverted file in every node, leaves included (LAPS, section 2.2; Cong et al. 2009).

    The inverted file of a node says for each token which of its children have it; those of leaves count how many tokens of each subscription a message
    has. The lists are bits of one word, for a node has at most 62 children.
    """

    name = "ir-tree"
    kind = token_kernels.INVERTED
