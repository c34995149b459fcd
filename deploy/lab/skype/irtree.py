"""The message window as an IR-tree: an R-tree over locations, whose nodes have inverted files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dskype.bolts.arrays import grown
from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.topk.table import TermIds
from dskype.bolts.window.base import QueryBatch
from dskype.bolts.window.kept import KeptMessages, Queue, kernel_array
from dskype.deploy.lab.skype import irtree_kernels as _kernels
from dskype.deploy.lab.skype import irtree_search_kernels
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["IrTreeWindow"]

_MOST = 1 << 12
_LOW = 2**31 - 1


class IrTreeWindow(KeptMessages):
    """Messages in an R-tree; every node knows the terms below it and their highest weights (Skype, section 5.1; Li et al. 2011).

    A query visits the nodes best first, by ``alpha * SSim(nearest point of the rectangle) + (1 - alpha) * sum of the query's weights times the
    highest weights below``. Freed messages leave the tree at once; a leaf with less than a quarter of its capacity is dissolved. The tree is
    fast for queries that weigh the distance; for those that weigh the text it is slower and larger than chunks.

    Insertion and removal: O(keywords * depth * node_capacity). Memory: 48 bytes per message, 36 per keyword, about as much again for
    the inverted files of nodes, and the ids; up to half as much again while arrays grow.

    :param node_capacity: children per node, 2 to 4096; default 50.
    """

    def __init__(self, node_capacity: int = 50) -> None:
        if type(node_capacity) is not int or not 2 <= node_capacity <= _MOST:
            raise IllegalArgumentException(explain("The capacity of a node is not usable.", given=node_capacity, legal=f"an integer from 2 to {_MOST}"))
        super().__init__()
        self._capacity = node_capacity
        self._terms = TermIds()
        self._leaf, self._head = self._places = Queue(np.int32), Queue(np.int32)
        self._tree = _kernels.Tree(
            node_capacity,
            np.zeros(9, np.int64),
            np.empty((64, 7), np.int32),
            np.empty(64),
            np.empty((16, 5), np.int32),
            np.zeros((16, 4)),
            np.empty((16, node_capacity + 1), np.int32),
            np.zeros(0, np.int32),
            np.zeros(64, np.int64),
            np.zeros(node_capacity + 1, np.int64),
            np.zeros(16, np.int64),
            np.zeros(16, np.int64),
        )
        _kernels.plant(self._tree)

    @property
    def _rows(self) -> _kernels.TreeRows:
        return _kernels.TreeRows(self._seq.base, self._lat.view, self._lon.view, self._leaf.view, self._head.view)

    # -- messages ---------------------------------------------------------------------------------

    def insert(self, messages: MessageBatch, ids: Sequence[str] | pa.StringArray) -> None:
        """See :meth:`MessageWindow.insert`."""
        strings = self._accept(messages, ids)
        if messages.n:
            self._append_messages(messages, 0, messages.n, strings)
            self._index(messages.offsets, messages.terms, messages.weights)

    def _index(self, offsets: np.ndarray, terms: np.ndarray, weights: np.ndarray) -> None:
        """Insert the newest messages, which are in the columns already, into the tree."""
        keywords = slice(offsets[0], offsets[-1])
        offsets, weights = kernel_array(offsets - offsets[0], np.int64), kernel_array(weights[keywords], np.float64)
        terms = self._terms.acquire(kernel_array(terms[keywords], np.int64))
        none = np.full(len(offsets) - 1, -1, np.int32)
        for queue in self._places:
            queue.append(none)
        first, done = len(self) - len(none), 0
        self._tree = self._tree._replace(top=grown(self._tree.top, len(self._terms), -1))
        self._widen_scratch()
        while (more := _kernels.insert(self._tree, self._rows, first + done, offsets[done:], terms, weights)) < len(none) - done:
            done += more
            self._make_room(int(np.diff(offsets)[done]))

    def _widen_scratch(self) -> None:
        size = max(len(self), len(self._tree.node))
        self._tree = self._tree._replace(seen=grown(self._tree.seen, size, 0), at=grown(self._tree.at, size, 0))

    def _make_room(self, terms: int) -> None:
        """Make room for more entries and nodes, enough for a message with ``terms`` keywords that splits all nodes above it."""
        tree = self._tree
        largest = int(tree.node[: tree.meta[_kernels.NODES], _kernels.SIZE].max())
        entries, nodes = len(tree.weight) * 3 // 2 + 80 * terms + 3 * largest, len(tree.node) * 3 // 2 + 64
        self._tree = tree._replace(
            entry=grown(tree.entry, entries, 0),
            weight=grown(tree.weight, entries, 0),
            node=grown(tree.node, nodes, 0),
            box=grown(tree.box, nodes, 0),
            child=grown(tree.child, nodes, 0),
        )
        self._widen_scratch()

    def free(self, position: int) -> None:
        """See :meth:`MessageWindow.free`; the messages leave at once."""
        if position <= self._freed:
            return
        self._freed = position
        n = int(np.searchsorted(self._position.view, position, side="right"))
        if not n:
            return
        terms = _kernels.keywords(self._tree, self._head.view[:n])[1]
        leaves = _kernels.remove(self._tree, self._rows, n)
        start, least = 0, self._capacity // 4
        while (start := _kernels.tidy(self._tree, self._rows, leaves, start, least)) >= 0:
            orphans = self._tree.orphans[: self._tree.meta[_kernels.ORPHANS]]
            self._make_room(int(np.diff(_kernels.keywords(self._tree, self._head.view[orphans])[0]).max()))
        _kernels.collapse(self._tree)
        self._terms.release(terms)
        self._drop_messages(n)
        for queue in self._places:
            queue.drop(n)

    # -- queries ----------------------------------------------------------------------------------

    def topk(self, queries: QueryBatch, extent: int, diagonal_deg: float, thresholds: np.ndarray | None = None) -> RankedLists:
        """See :meth:`MessageWindow.topk`."""
        queries, messages, terms = self._kernel_queries(queries, extent), self._columns, self._terms.map
        offsets, rows, scores = irtree_search_kernels.topk(
            self._tree, self._rows, messages, terms.key, terms.local, queries, self._floors(queries, thresholds), extent, float(diagonal_deg)
        )
        return RankedLists(offsets, messages.seq[rows], messages.position[rows], scores)

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """See :meth:`MessageWindow.snapshot`: the messages and their keywords, not the tree."""
        offsets, terms, weights = _kernels.keywords(self._tree, self._head.view)
        return {**self._kept_snapshot(), "offsets": offsets, "terms": self._terms.map.name[terms], "weights": weights}

    def restore(self, state: dict[str, Any]) -> None:
        """See :meth:`MessageWindow.restore`; the messages are inserted again."""
        self._kept_restore(state)
        for queue in self._places:
            queue.load(self._seq.base, np.zeros(0, np.int32))
        if len(self):
            self._index(*(state[name] for name in ("offsets", "terms", "weights")))

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of messages and tree, in bytes."""
        return self._kept_bytes + sum(queue.nbytes for queue in self._places) + sum(a.nbytes for a in self._tree[1:]) + self._terms.memory_bytes

    def _check(self) -> None:
        """Verify all invariants; for tests."""
        super()._check()
        k, tree = _kernels, self._tree
        assert all((queue.base, queue.end) == (self._seq.base, self._seq.end) for queue in self._places)
        assert not len(self) or self._position.view[0] > self._freed, "a message that is freed is still there"
        assert not tree.meta[k.ORPHANS]
        root = int(tree.meta[k.ROOT])
        assert tree.node[root, k.PARENT] == -1 and (tree.node[root, k.LEVEL] == 0 or tree.node[root, k.COUNT] > 1)
        nodes: dict[int, list[int]] = {}
        messages: list[int] = []
        todo = [root]
        while todo:
            node = todo.pop()
            level, _, count, _, _ = tree.node[node].tolist()
            children = nodes[node] = tree.child[node, :count].tolist()
            assert count <= self._capacity and (count or node == root)
            if level:
                todo += children
                assert (tree.node[children, k.PARENT] == node).all() and (tree.node[children, k.LEVEL] == level - 1).all()
                low, high = tree.box[children, :2], tree.box[children, 2:]
            else:
                assert count >= self._capacity // 4 or node == root
                at = [(row - self._seq.base) & _LOW for row in children]
                messages += at
                assert (self._leaf.view[at] == node).all()
                low = high = np.stack([self._lon.view[at], self._lat.view[at]], axis=1)
            assert tree.box[node].tolist() == [*low.min(axis=0, initial=np.inf), *high.max(axis=0, initial=-np.inf)]
        assert sorted(messages) == list(range(len(self)))
        assert len(nodes) + tree.meta[k.SPARE_NODES] == tree.meta[k.NODES]
        uses = self._check_entries(nodes)
        self._terms._check(np.array(uses, np.int64))
        held = set(uses)
        assert {term for term in range(len(self._terms)) if tree.top[term] >= 0} == held
        assert all(tree.entry[tree.top[term], k.OWNER] == root for term in held)

    def _check_entries(self, nodes: dict[int, list[int]]) -> list[int]:
        """Verify the inverted files of all nodes against those of their children; return the terms of the messages."""
        k, tree = _kernels, self._tree
        used, uses = 0, []
        below: dict[tuple[int, int], dict[int, int]] = {}  # (level 0 or 1, owner) -> term -> entry
        for i, head in enumerate(self._head.view.tolist()):
            found = self._owned_by(head, (i + self._seq.base) & _LOW)
            assert all(tree.entry[e, k.FIRST] == -1 for e in found.values())
            below[0, (i + self._seq.base) & _LOW] = found
            names = self._terms.map.name[list(found)].tolist()
            assert names == sorted(set(names))
            uses += list(found)
            used += len(found)
        for node in sorted(nodes, key=lambda node: tree.node[node, k.LEVEL]):
            found = below[1, node] = self._owned_by(int(tree.node[node, k.HEAD]), node, both=True)
            assert len(found) == tree.node[node, k.SIZE]
            used += len(found)
            kind = min(int(tree.node[node, k.LEVEL]), 1)
            expected: dict[int, list[int]] = {}
            for child in nodes[node]:
                for term, e in below[kind, child].items():
                    expected.setdefault(term, []).append(e)
            assert found.keys() == expected.keys()
            for term, e in found.items():
                listed, at = [], int(tree.entry[e, k.FIRST])
                while at >= 0:
                    listed.append(at)
                    assert tree.entry[at, k.UP] == e and tree.entry[at, k.TERM] == term
                    at = int(tree.entry[at, k.NEXT])
                assert sorted(listed) == sorted(expected[term])
                assert tree.weight[e] == tree.weight[listed].max()
        assert used + tree.meta[k.SPARE_ENTRIES] == tree.meta[k.ENTRIES]
        return uses

    def _owned_by(self, head: int, owner: int, both: bool = False) -> dict[int, int]:
        """Return term -> entry of a list, and verify it."""
        k, entry = _kernels, self._tree.entry
        found: dict[int, int] = {}
        before = -1
        while head >= 0:
            assert entry[head, k.OWNER] == owner and int(entry[head, k.TERM]) not in found
            assert not both or entry[head, k.BEFORE] == before
            found[int(entry[head, k.TERM])] = head
            before, head = head, int(entry[head, k.AFTER])
        return found
