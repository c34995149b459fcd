"""The trees that a spout task waits for, and how they get into its journal.

A journal entry has to say which trees are pending, and there may be many more of them than a batch changes. So they are packed as columns, once:
an entry repeats the packed bytes of earlier entries and adds what has changed since. When there were as many changes as there are pending trees, all
of them are packed anew. So a tree costs constant time however many are pending, and every entry can be read without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from dskype.topology.core.values import pack_state, unpack_state

__all__ = ["PendingTrees", "Tree"]

Tree = tuple[int, Any, str, int]
"""A pending tree: its root, the message id, the stream, and when it was emitted (epoch ms)."""


class PendingTrees:
    """Tracked tuples whose trees are neither complete nor failed.

    They are in two generations, which rotate once per message timeout: a tree in the older one at that time has timed out.

    :param on_unpackable: called when message ids cannot be written; a snapshot leaves out their trees.
    :ivar newer: root -> tree, in order of emission.
    :ivar older: root -> tree.
    :ivar added: trees that were added to ``newer`` since the last snapshot; whoever adds a tree does both.
    """

    __slots__ = ("_ended", "_n_changes", "_on_unpackable", "_parts", "added", "newer", "older")

    def __init__(self, on_unpackable: Callable[[], None]) -> None:
        self._on_unpackable = on_unpackable
        self.newer: dict[int, Tree] = {}
        self.older: dict[int, Tree] = {}
        self.added: list[Tree] = []
        self._ended: list[int] = []  # roots of trees that were taken out since the last snapshot
        self._parts: list[bytes] = []  # all trees at some time, and the changes since; empty: they have to be packed anew
        self._n_changes = 0  # in the parts behind the first one

    def __len__(self) -> int:
        return len(self.newer) + len(self.older)

    def take(self, roots: Iterable[int]) -> Iterator[Tree]:
        """Take trees out, and yield each before the next one is taken; roots of trees that are not pending are ignored.

        A tree is missing when it has timed out, or when a crash has lost its message id.
        """
        newer, older, ended = self.newer, self.older, self._ended
        for root in roots:
            tree = newer.pop(root, None) or older.pop(root, None)
            if tree is not None:
                ended.append(root)
                yield tree

    def renew(self, roots: Iterable[int]) -> None:
        """Restart the timeout of trees."""
        for root in roots:
            tree = self.older.pop(root, None)
            if tree is not None:
                self.newer[root] = tree
                self._parts.clear()

    def rotate(self) -> list[Tree]:
        """Take out the older generation, and return its trees."""
        expired = list(self.older.values())
        self.newer, self.older = {}, self.newer
        self._parts.clear()
        return expired

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> list[bytes]:
        """Return the trees: both generations as columns, followed by changes, each a part.

        Costs time for what was added or taken out since the last call, on average.
        """
        n = len(self.added) + len(self._ended)
        if not self._parts or self._n_changes + n > len(self):
            self._parts, self._n_changes = [pack_state([self._columns(self.newer.values()), self._columns(self.older.values())])], 0
        elif n:
            self._parts.append(pack_state([self._columns(self.added), np.array(self._ended, np.int64)]))
            self._n_changes += n
        self.added.clear()
        self._ended.clear()
        return list(self._parts)

    def _columns(self, trees: Collection[Tree]) -> list[Any]:
        """Return trees as columns: roots, message ids (packed), streams (one name if they are all the same), times."""
        if not trees:
            return []
        roots, ids, streams, times = zip(*trees)
        try:
            packed = pack_state(list(ids))
        except (TypeError, ValueError, OverflowError):
            self._on_unpackable()
            return self._columns([tree for tree in trees if _packable(tree[1])])
        return [np.array(roots, np.int64), packed, streams[0] if len(set(streams)) == 1 else list(streams), np.array(times, np.int64)]

    def restore(self, parts: Sequence[bytes]) -> None:
        """Restore what :meth:`snapshot` returned."""
        newer, older = unpack_state(parts[0])
        self._replace(_trees(newer), _trees(older))
        for part in parts[1:]:
            added, ended = unpack_state(part)
            self.newer.update((tree[0], tree) for tree in _trees(added))
            for root in ended.tolist():
                if self.newer.pop(root, None) is None:
                    self.older.pop(root, None)

    def restore_rows(self, newer: Iterable[Iterable[Any]], older: Iterable[Iterable[Any]]) -> None:
        """Restore rows ``[root, message id, stream, time]``, which earlier versions wrote."""
        self._replace(map(_tree, newer), map(_tree, older))

    def _replace(self, newer: Iterable[Tree], older: Iterable[Tree]) -> None:
        self.newer, self.older = ({tree[0]: tree for tree in trees} for trees in (newer, older))
        self.added.clear()
        self._ended.clear()
        self._parts = []


def _tree(row: Iterable[Any]) -> Tree:
    root, message_id, stream, time_ms = row
    return root, message_id, stream, time_ms


def _trees(columns: list[Any]) -> Iterator[Tree]:
    if not columns:
        return iter(())
    roots, packed, streams, times = columns
    return zip(roots.tolist(), unpack_state(packed), repeat(streams) if isinstance(streams, str) else streams, times.tolist())


def _packable(value: Any) -> bool:
    try:
        pack_state(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
