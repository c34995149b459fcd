"""The Rt-tree, the Rt+-tree and the Rt++-tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dskype.deploy.lab.laps import parts_kernels
from dskype.deploy.lab.laps.match_kernels import Messages, Scratch
from dskype.deploy.lab.laps.parts import PartsIndex
from dskype.deploy.lab.laps.rtree import order_kernels, search_kernels, tree_kernels
from dskype.deploy.lab.laps.rtree import token_kernels as kernels
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["RtPlusPlusTreeIndex", "RtPlusTreeIndex", "RtTreeIndex", "TreeIndex"]

_LEAST, _MOST = 4, 62
_ORDERS = {
    "random": order_kernels.RANDOMLY,
    "df": order_kernels.BY_RANK_FALLING,
    "idf": order_kernels.BY_RANK_RISING,
    "local": order_kernels.LOCALLY,
}  # fmt: skip
_COUNTERS = 4096
_LEVELS = 31


class TreeIndex(PartsIndex):
    """An R-tree over the parts of subscriptions (Guttman 1984, with the split of the R*-tree); its nodes may know terms.

    A part goes to the leaf whose rectangles grow least. A node with too many children is split; one with too few is joined with the
    sibling that lies best, and the children of both are divided if one node cannot hold them. When the tree becomes higher or lower, everything
    that nodes know about terms is made again: once when it has grown from one node's capacity to the next power of it.

    Insertion, removal: O(node_capacity * height + terms), amortised. Memory, beside that of the parts: about 35 bytes per part for the
    tree with nodes that are two thirds full.
    """

    kind: ClassVar[int]
    OPTIONS: ClassVar[Mapping[str, str]] = {
        "node_capacity": f"children per node, {_LEAST} to {_MOST}; default 50. All nodes but the root are at least half full"
    }

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        given = dict(options or {})
        self._capacity = given.get("node_capacity", 50)
        if type(self._capacity) is not int or not _LEAST <= self._capacity <= _MOST:
            legal = f"an integer from {_LEAST} to {_MOST}"
            raise IllegalArgumentException(explain("The capacity of a node is not usable.", given=self._capacity, legal=legal))
        order = given.get("token_order", "idf")
        if order not in _ORDERS:
            raise IllegalArgumentException(explain("An order of tokens is not known.", given=order, legal=", ".join(_ORDERS)))
        self._order = _ORDERS[order]
        self._first = given.get("first_level", 2)
        if type(self._first) is not int or not 1 <= self._first <= _LEVELS:
            legal = f"an integer from 1 to {_LEVELS}"
            raise IllegalArgumentException(explain("The level at which lists begin is not usable.", given=self._first, legal=legal))
        super().__init__(options)

    def _empty(self) -> parts_kernels.Index:
        width = self._capacity + 1
        index = (
            super()
            ._empty()
            ._replace(
                kind=self.kind,
                capacity=self._capacity,
                least=self._capacity // 2,
                first=self._first,
                node=np.zeros((1, 5), np.int32),
                child=np.zeros((1, width), np.int32),
                rect=np.zeros((1, 4, width), np.float32),
                hint=np.zeros((1, width), np.int32),
            )
        )
        tree_kernels.plant(index)
        self._counts = np.zeros(_COUNTERS if self._order == order_kernels.LOCALLY else 1, np.int32)
        return index

    @property
    def memory_bytes(self) -> int:
        """What the arrays take."""
        return super().memory_bytes + self._counts.nbytes

    # -- changes ------------------------------------------------------------------------------------------------------

    def _ordered(self, boxes: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> None:
        if self._order == order_kernels.LOCALLY:
            while len(self._counts) < 2 * (len(self) + len(boxes)):
                self._counts = np.concatenate((self._counts, self._counts))  # who has shared a counter starts from its count
            order_kernels.count_terms(self._counts, boxes, offsets[:-1], offsets[1:], terms, 1)
        order_kernels.order_terms(self._order, self._terms.map.name, self._counts, boxes, offsets, terms)

    def _leaving(self, boxes: np.ndarray, starts: np.ndarray, stops: np.ndarray, terms: np.ndarray) -> None:
        if self._order == order_kernels.LOCALLY:
            order_kernels.count_terms(self._counts, boxes, starts, stops, terms, -1)

    def _insert_parts(self, index: parts_kernels.Index, batch: parts_kernels.Batch, done: int) -> tuple[int, int, int]:
        return tree_kernels.insert(index, batch, done)

    def _remove_slots(self, index: parts_kernels.Index, slots: np.ndarray, done: int) -> tuple[int, int, int]:
        return tree_kernels.remove(index, slots, done)

    def _rebuild(self) -> None:
        while True:
            lacking, need = tree_kernels.rebuild(self._index)
            if not lacking:
                return
            self._grow(int(lacking), int(need))

    def _match(self, index: parts_kernels.Index, scratch: Scratch, messages: Messages) -> tuple[np.ndarray, np.ndarray]:
        return search_kernels.match(index, scratch, messages)

    # -- checks -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Verify the parts, the tree, and what its nodes know."""
        super()._check()
        k, a = kernels, self._index
        root = int(a.meta[parts_kernels.ROOT])
        assert not a.meta[parts_kernels.STALE] and a.node[root, k.PARENT] == -1
        top = int(a.node[root, k.LEVEL])
        assert top == 0 or a.node[root, k.COUNT] > 1
        known: dict[tuple[int, int], Any] = {}
        parts: list[int] = []

        def visit(node: int) -> list[int]:
            level, _, count, _, tokens = a.node[node].tolist()
            assert count <= self._capacity and (count >= self._capacity // 2 or node == root)
            children = a.child[node, :count].tolist()
            below: list[int] = []
            for j, child in enumerate(children):
                rect = a.rect[node, :, j].tolist()
                if level == 0:
                    assert a.part[child, parts_kernels.PLACE] == node
                    assert rect == [float(edge) for edge in tree_kernels.part_rect(a, child)]
                    own = [child]
                    self._check_hint(int(a.hint[node, j]), child)
                else:
                    assert a.node[child, k.PARENT] == node and a.node[child, k.ORDINAL] == j and a.node[child, k.LEVEL] == level - 1
                    below_child = a.rect[child, :, : a.node[child, k.COUNT]]
                    assert rect == [*below_child[:2].min(axis=1).tolist(), *below_child[2:].max(axis=1).tolist()]
                    own = visit(child)
                self._note(known, node, level, j, top, own)
                below += own
            assert tokens == sum(int(k.weight_of(a, part)) for part in below)
            return below

        parts = visit(root)
        assert sorted(parts) == sorted(self._live_parts())
        self._check_known(known)
        assert a.meta[parts_kernels.SPARE_NODES] == (a.node[: a.meta[parts_kernels.NODES], k.LEVEL] == -1).sum()

    def _check_hint(self, hint: int, part: int) -> None:
        terms = self._terms_of(part)
        assert hint == (len(terms) if self.kind == kernels.INVERTED else terms[0])

    def _note(self, known: dict[tuple[int, int], Any], node: int, level: int, ordinal: int, top: int, parts: list[int]) -> None:
        """Write down what a node must know about one of its children."""
        k = kernels
        for part in parts:
            terms = self._terms_of(part)
            if self.kind == k.LISTS:
                nth = max(top - self._first, 1) - level
                if level and 0 <= nth < len(terms):
                    known.setdefault((node, terms[nth]), set()).add(2 * part + (nth == len(terms) - 1))
            elif self.kind != k.SPATIAL and (level or self.kind == k.INVERTED):
                for term in terms[:1] if self.kind == k.ONE else terms:
                    known[node, term] = known.get((node, term), 0) | 1 << ordinal

    def _check_known(self, known: dict[tuple[int, int], Any]) -> None:
        a = self._index
        found: dict[tuple[int, int], Any] = {}
        for place in np.flatnonzero(a.key != parts_kernels.EMPTY).tolist():
            key = int(a.key[place]) >> 32, int(a.key[place]) & 0xFFFFFFFF
            if self.kind == kernels.LISTS:
                postings = self._postings(place)
                assert len(set(postings)) == len(postings)
                found[key] = set(postings)
            else:
                found[key] = int(a.value[place])
        assert found == known

    def _list_blocks(self) -> list[tuple[int, int]]:
        if self.kind != kernels.LISTS:
            return []
        values = self._index.value[self._index.key != parts_kernels.EMPTY].tolist()
        return [(value >> 32, 1 << (value & 31)) for value in values]


class RtTreeIndex(TreeIndex):
    """The Rt-tree: a node knows all tokens of the subscriptions below each child (LAPS, section 3).

    A message goes into the children whose rectangles overlap it and that have one of its tokens; the subscriptions of leaves are verified, the rarest
    token first. Memory beside the tree: 16 bytes, at a load of three eighths to three quarters, for each token of each inner node.
    """

    name = "rt"
    kind = kernels.ALL


class RtPlusTreeIndex(TreeIndex):
    """The Rt+-tree: a node knows one representative token of each subscription below (LAPS, section 4).

    A message that lacks the representative token cannot match, so nodes may ask for it alone. ``token_order`` says which token it is: ``idf``,
    the rarest one; ``df``, the most frequent one; ``random``; ``local``, the one that the fewest subscriptions have in the cell of a grid
    of 100 by 100 over the world. Counters of cells and tokens may be shared, which changes times, never results.
    """

    name = "rt+"
    kind = kernels.ONE
    OPTIONS: ClassVar[Mapping[str, str]] = {**TreeIndex.OPTIONS, "token_order": f"which token comes first: {', '.join(_ORDERS)}; default idf"}


class RtPlusPlusTreeIndex(TreeIndex):
    """The Rt++-tree: the i-th token of a subscription stands in its node at level i, in an inverted list (LAPS, section 5).

    A message counts the subscriptions in the lists of its tokens from level to level; one whose tokens were all counted needs its rectangle
    to be looked at only. Tokens beyond the height of the tree are looked at for those that were counted. ``token_order`` as in
    :class:`RtPlusTreeIndex`. ``first_level`` says where lists begin: 1 is the level below the root, as in LAPS.
    """

    name = "rt++"
    kind = kernels.LISTS
    OPTIONS: ClassVar[Mapping[str, str]] = {
        **RtPlusTreeIndex.OPTIONS,
        "first_level": f"levels below the root at which lists begin, 1 to {_LEVELS}, but above the leaves; default 2",
    }
