"""CIQ, a baseline in the evaluation of Skype, without time decay."""

from __future__ import annotations

import numpy as np

from dskype.bolts import array_kernels
from dskype.bolts.arrays import BlockPool, grown
from dskype.bolts.topk import _kernels as blocks
from dskype.bolts.topk.base import Matches, SubscriptionIndex
from dskype.bolts.topk.table import TermIds, readable_messages
from dskype.deploy.lab.skype import ciq_kernels as kernels
from dskype.deploy.lab.skype.list_kernels import read_messages, verify
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["CiqIndex"]

_CHUNK = 1 << 14


class CiqIndex(SubscriptionIndex):
    """Files each subscription in a covering of cells that divide the plane (Chen, Cong, Cao, Tan, ICDE 2015; Skype, section 2.2).

    The covering follows the quadtree from the root to the subscription: on every level the three quadrants beside it, and on the last level
    also its own. These are ``3 * depth + 1`` cells, finer ones near the subscription. MinT, the text similarity that a message in the cell
    must have, is precomputed for each. A message visits its ``depth`` cells, reads the lists of its terms document at a time, in order of slots,
    and takes as candidates the slots whose MinT it reaches; blocks of 64 postings know the least MinT in them. Candidates are scored exactly.

    The price is memory: a posting per keyword and cell. Insertion appends to the lists if slots rise; otherwise it is O(list), as is removal.
    Lowering a threshold is O(keywords * depth * log n), raising it O(depth); the bounds of all blocks are recomputed when a quarter of the
    thresholds have risen.

    :param depth: number of times that the plane is divided, 1..8.
    """

    def __init__(self, diagonal_deg: float, depth: int = 2) -> None:
        super().__init__(diagonal_deg)
        if not 1 <= depth <= 8:
            raise IllegalArgumentException(explain("The depth of the index is not usable.", given=depth, legal="index option depth in 1..8"))
        self._depth = int(depth)
        self._code = np.zeros(0, np.int32)  # by slot: the code of its last cell; -1: not linked
        self._least = np.zeros((4 * self._depth, 0), np.float32)  # by quadrant of the covering, slot: MinT
        self._weights = np.zeros(0)
        self._count = 0
        self._build(np.zeros(0, np.int32))

    def link(self, slots: np.ndarray) -> None:
        """File slots in the cells of their coverings."""
        if not len(slots):
            return
        n = len(self.table)
        self._code = grown(self._code, n, -1)
        if n > self._least.shape[1]:
            least = np.full((len(self._least), len(self._code)), np.inf, np.float32)
            least[:, : self._least.shape[1]] = self._least
            self._least = least
        self._weights = grown(self._weights, len(self.table.terms), -1.0)
        if self._count + len(slots) > 4 * self._built:
            self._build(np.sort(np.concatenate((self._linked, slots))))
        else:
            self._enter(slots)

    def unlink(self, slots: np.ndarray) -> None:
        """Remove slots from their cells."""
        for start in range(0, len(slots), _CHUNK):
            chunk = slots[start : start + _CHUNK]
            ends, items = self._items(chunk)
            kernels.drop_postings(chunk, self._code, self._depth, ends, items, self._least, self._lists)
            self._ids.release(items)
            items = np.unique(items)
            empty = items[self._postings.block[items, array_kernels.LENGTH] == 0]
            self._postings.release(empty)
            self._bounds.release(empty)
        self._code[slots] = -1
        self._count -= len(slots)
        if 4 * self._count < self._built:
            self._build(self._linked)

    @property
    def _linked(self) -> np.ndarray:
        return np.flatnonzero(self._code >= 0).astype(np.int32)

    @property
    def _lists(self) -> kernels.CiqLists:
        postings, bounds = self._postings, self._bounds
        return kernels.CiqLists(postings.block, postings.slot, postings.weight, bounds.block, bounds.least, self._top)

    def _build(self, slots: np.ndarray) -> None:
        """Rebuild the index with a root that encloses these slots. Done when their number has grown fourfold or fallen to a quarter."""
        self._ids = TermIds()  # ids of lists, by term * cells + cell
        self._postings = BlockPool({"slot": np.int32, "weight": np.float32})
        self._bounds = BlockPool({"least": np.float32})
        self._top = np.zeros(0, np.float32)
        self._risen = 0
        place = self.table.place[slots, :2]
        self._root = np.concatenate((place.min(axis=0), place.max(axis=0))) if len(slots) else np.zeros(4)
        self._built, self._count = len(slots), 0
        self._enter(slots)

    def _enter(self, slots: np.ndarray) -> None:
        table, words = self.table, self.table.words
        self._code[slots] = kernels.paths(slots, table.place, self._root, self._depth)
        kernels.set_min_texts(slots, table.place, self._root, self._depth, self.diagonal_deg, self._least)
        for start in range(0, len(slots), _CHUNK):
            chunk = slots[start : start + _CHUNK]
            keys, ends = kernels.make_keys(chunk, self._code, self._depth, words.block, words.term)
            items = self._ids.acquire(keys)
            n = len(self._ids)
            self._postings.widen(n)
            self._bounds.widen(n)
            self._top = grown(self._top, n, 0.0)
            counts = np.bincount(items, minlength=n)
            some = np.flatnonzero(counts)
            lengths = self._postings.block[some, array_kernels.LENGTH] + counts[some]
            self._postings.reserve(some, lengths)
            self._bounds.reserve(some, -(-lengths // kernels.BLOCK))
            kernels.enter_postings(chunk, self._code, self._depth, ends, items, words.block, words.weight, self._least, self._lists)
        self._count += len(slots)

    def _items(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where the postings of each slot end, and the lists of all postings."""
        words = self.table.words
        keys, ends = kernels.make_keys(slots, self._code, self._depth, words.block, words.term)
        return ends, kernels.find_items(keys, self._ids.map.key, self._ids.map.local)

    def retune(self, slots: np.ndarray, before: np.ndarray) -> None:
        """Recompute MinT; lower the bounds of blocks at once, and raise all bounds from time to time."""
        kernels.set_min_texts(slots, self.table.place, self._root, self._depth, self.diagonal_deg, self._least)
        fallen = self.table.place[slots, blocks.THRESHOLD] < before
        self._risen += len(slots) - int(fallen.sum())
        if 4 * (self._risen + int(fallen.sum())) >= self._count:
            kernels.set_bounds(self._ids.map.name[: len(self._ids)], self._depth, self._least, self._lists)
            self._risen = 0
        else:
            slots = slots[fallen]
            ends, items = self._items(slots)
            kernels.lower_bounds(slots, self._code, self._depth, ends, items, self._least, self._lists)

    def match(self, messages: MessageBatch) -> Matches:
        """Return the matches, see :meth:`SubscriptionIndex.match`."""
        table, batch = self.table, readable_messages(messages)
        known = read_messages(batch, table.terms.map)
        message, slot = kernels.find_candidates(batch, known, self._root, self._depth, self._ids.map, self._least, self._lists)
        return Matches(*verify(message, slot, batch, known, table.place, table.keyword_arrays, self._weights, self.diagonal_deg))

    @property
    def structure_bytes(self) -> int:
        """Bytes of lists, bounds and arrays by slot."""
        return (
            sum(a.nbytes for a in (self._code, self._least, self._weights, self._top))
            + self._ids.memory_bytes
            + self._postings.memory_bytes
            + self._bounds.memory_bytes
        )

    def _check(self) -> None:
        """Verify coverings, lists and bounds."""
        super()._check()
        table, words, lists, depth = self.table, self.table.words, self._lists, self._depth
        live = np.flatnonzero(table.live).astype(np.int32)
        assert (self._linked == live).all() and self._count == len(live) and (self._weights == -1.0).all()
        self._postings._check()
        self._bounds._check()
        least = self._least.copy()
        kernels.set_min_texts(live, table.place, self._root, depth, self.diagonal_deg, least)
        assert (least[:, live] == self._least[:, live]).all()
        assert (kernels.paths(live, table.place, self._root, depth) == self._code[live]).all()
        keys, ends = kernels.make_keys(live, self._code, depth, words.block, words.term)
        items = kernels.find_items(keys, self._ids.map.key, self._ids.map.local)
        self._ids._check(items)
        with np.errstate(over="ignore"):
            weights = np.repeat(table.keywords(live)[2], 3 * depth + 1).astype(np.float32)
        wanted = dict(zip(zip(items.tolist(), np.repeat(live, np.diff(ends, prepend=0)).tolist(), strict=True), weights.tolist(), strict=True))
        used = np.flatnonzero(lists.block[:, array_kernels.LENGTH])
        base, length = lists.block[used, :2].T
        bounds, count = lists.bound_block[used, :2].T
        assert (count == -(-length // kernels.BLOCK)).all()
        item, offset = np.repeat(used, length), np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        at = np.repeat(base, length) + offset
        slot, weight = lists.slot[at], lists.weight[at]
        assert ((np.diff(slot) > 0) | (offset[1:] == 0)).all() and (weight <= lists.top[item]).all()
        assert dict(zip(zip(item.tolist(), slot.tolist()), weight.tolist())) == wanted
        rows = np.array([kernels._row_in(one, self._ids.map.name, depth) for one in used.tolist()], np.int64)
        value = self._least[np.repeat(rows, length), slot]
        assert ((value < np.inf) | (table.place[slot, blocks.THRESHOLD] == np.inf)).all(), "a cell that is divided further"
        assert (lists.bound[np.repeat(bounds, length) + offset // kernels.BLOCK] <= value).all()
