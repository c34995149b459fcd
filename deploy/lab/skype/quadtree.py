"""A quadtree, which divides the plane until no cell has too many points."""

from __future__ import annotations

import numpy as np

from dskype.bolts import array_kernels
from dskype.bolts.arrays import BlockPool, grown
from dskype.bolts.topk.table import SubscriptionTable
from dskype.deploy.lab.skype import igpt_kernels as kernels

__all__ = ["Quadtree"]

_LIMIT = np.finfo(np.float64).max


class Quadtree:
    """Assigns slots to leaf cells. Cells are numbered as the nodes are; inner nodes have no members.

    A leaf with more members than the capacity is divided, unless its depth is :data:`DEPTH`, because many members may share one place.
    Leaves are never joined; the owner of the tree makes a new one from time to time.

    :param box: the root, [west, south, east, north]; all places lie inside it or on its border.
    :param capacity: the most members of a leaf.
    """

    DEPTH = 24

    def __init__(self, box: np.ndarray, capacity: int) -> None:
        self.capacity = capacity
        self.nodes = 1
        self.arrays = kernels.Tree(np.array(box, np.float64).reshape(1, 4), np.full(1, -1, np.int32))
        self.depth = np.zeros(1, np.int8)
        self.members = BlockPool({"slot": np.int32})
        self.members.widen(1)

    def covers(self, places: np.ndarray) -> bool:
        """Tell whether all places (float64[n, >= 2]: lon, lat) lie inside."""
        box = self.arrays.box[0]
        return bool(((places[:, :2] >= box[:2]) & (places[:, :2] <= box[2:])).all())

    def locate(self, slots: np.ndarray, table: SubscriptionTable) -> np.ndarray:
        """Return the leaf (int32[n]) for each slot; O(depth) each."""
        return kernels.locate(slots, table.place, self.arrays)

    def divide(self, node: int, slots: np.ndarray, table: SubscriptionTable, leaf: np.ndarray) -> None:
        """Divide a leaf without members as far as ``slots`` require, and write the leaf of each slot into ``leaf`` (by slot)."""
        stack = [(node, slots)]
        while stack:
            node, slots = stack.pop()
            leaf[slots] = node
            if len(slots) <= self.capacity or self.depth[node] >= self.DEPTH:
                continue
            first = self._split(node)
            west, south, east, north = self.arrays.box[node]
            place = table.place[slots]
            quadrant = (place[:, 0] >= kernels.middle(west, east)) + 2 * (place[:, 1] >= kernels.middle(south, north))
            stack += [(first + q, slots[quadrant == q]) for q in range(4)]

    def enter(self, slots: np.ndarray, leaf: np.ndarray) -> None:
        """Append slots to the members of their leaves."""
        cells, counts = np.unique(leaf[slots], return_counts=True)
        members = self.members
        members.reserve(cells, members.block[cells, array_kernels.LENGTH] + counts)
        kernels.enter_members(slots, leaf, members.block, members.slot)

    def members_of(self, cell: int) -> np.ndarray:
        """Return the members of a cell (int32[])."""
        start, length = self.members.block[cell, :2]
        return self.members.slot[start : start + length].copy()

    def _split(self, node: int) -> int:
        """Give a leaf four children; return the first: south-west, south-east, north-west, north-east."""
        first, self.nodes = self.nodes, self.nodes + 4
        tree = self.arrays
        self.arrays = kernels.Tree(grown(tree.box, self.nodes, 0.0), grown(tree.child, self.nodes, -1))
        self.depth = grown(self.depth, self.nodes, 0)
        self.members.widen(len(self.depth))
        west, south, east, north = self.arrays.box[node]
        x, y = kernels.middle(west, east), kernels.middle(south, north)
        self.arrays.box[first : self.nodes] = (west, south, x, y), (x, south, east, y), (west, y, x, north), (x, y, east, north)
        self.arrays.child[node] = first
        self.depth[first : self.nodes] = self.depth[node] + 1
        return first

    @staticmethod
    def enclose(places: np.ndarray, old: np.ndarray | None = None) -> np.ndarray:
        """Return a root for places (float64[n, >= 2]) and an older root, which doubles where it is too small, so that it seldom grows."""
        low, high = places[:, :2].min(axis=0), places[:, :2].max(axis=0)
        if old is not None:
            half = np.minimum(old[2:] / 2 - old[:2] / 2, _LIMIT / 4)
            low = np.where(low < old[:2], np.minimum(low, np.maximum(old[:2] - 2 * half, -_LIMIT)), old[:2])
            high = np.where(high > old[2:], np.maximum(high, np.minimum(old[2:] + 2 * half, _LIMIT)), old[2:])
        return np.concatenate((low, high))

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(a.nbytes for a in (*self.arrays, self.depth)) + self.members.memory_bytes

    def _check(self, table: SubscriptionTable, leaf: np.ndarray) -> None:
        """Verify that the cells divide the root, and that every slot with a leaf is in it exactly once."""
        self.members._check()
        box, child = self.arrays
        linked = np.flatnonzero(leaf >= 0)
        assert not len(linked) or (self.locate(linked, table) == leaf[linked]).all()
        seen = []
        for node in range(self.nodes):
            members = self.members_of(node)
            assert (leaf[members] == node).all()
            seen += members.tolist()
            place = table.place[members]
            assert ((place[:, :2] >= box[node, :2]) & (place[:, :2] <= box[node, 2:])).all()
            if child[node] >= 0:
                assert not len(members) and child[node] + 4 <= self.nodes
                west, south, east, north = box[node]
                quarters = box[child[node] : child[node] + 4]
                assert (quarters[:, :2].min(axis=0) == (west, south)).all() and (quarters[:, 2:].max(axis=0) == (east, north)).all()
                assert (quarters[0, 2:] == quarters[3, :2]).all() and (self.depth[child[node] : child[node] + 4] == self.depth[node] + 1).all()
            else:
                assert len(members) <= self.capacity or self.depth[node] == self.DEPTH
        assert sorted(seen) == linked.tolist()
