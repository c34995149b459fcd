"""The indexes of Skype: individual pruning alone (IPT), and with group pruning (IGPT)."""

from __future__ import annotations

import itertools

import numpy as np

from dskype.bolts import array_kernels
from dskype.bolts.arrays import BlockPool, grown
from dskype.bolts.topk import _kernels as blocks
from dskype.bolts.topk.base import Matches, SubscriptionIndex
from dskype.bolts.topk.table import readable_messages
from dskype.deploy.lab.skype import igpt_kernels as kernels
from dskype.deploy.lab.skype import list_kernels as common
from dskype.deploy.lab.skype.quadtree import Quadtree
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["IgptIndex", "IptIndex"]

_FIELDS = ("slot", "weight", "total", "rest", "score", "ratio", "inner")
_TOPS = ("top_weight", "top_ratio")


class IptIndex(SubscriptionIndex):
    """A quadtree over the subscriptions with an inverted file in each leaf, and individual pruning (Skype, section 5.2).

    A message is checked against every cell. The message's distance to the cell and the subscription's distance to the border of the cell bound
    the spatial similarity, so the threshold requires a text similarity (equation 4). A subscription is skipped at a keyword outside its
    location-aware prefix (Lemma 3, Theorem 1), or if the remaining keywords cannot make up for what is missing (Theorem 2). The other
    subscriptions are scored exactly.

    Algorithm 1 as printed sums up the text similarity on the way, which loses the parts of skipped keywords, and applies Theorem 2 to
    such partial sums. Here a subscription is judged where it is first met, and scored from the table.

    Bounds may lag behind a threshold that rose a little. A call that inserts or removes is O(subscriptions) of the cells concerned, whatever
    the number of slots. A new threshold moves the postings within their runs, or re-sorts a cell if many have moved.

    :param cell_capacity: the most subscriptions of a cell, >= 1; a cell with more is divided.
    """

    _grouped = False
    _groups = 1

    def __init__(self, diagonal_deg: float, cell_capacity: int = 1000) -> None:
        super().__init__(diagonal_deg)
        if not cell_capacity >= 1:
            raise IllegalArgumentException(explain("The capacity of a cell is not usable.", given=cell_capacity, legal="index option cell_capacity >= 1"))
        self._capacity = int(cell_capacity)
        self._leaf = np.zeros(0, np.int32)  # by slot; -1: not linked
        self._scores = np.zeros(0, np.float32)  # by slot: kScore* in its postings
        self._state = np.zeros(0, np.uint8)
        self._marked = np.zeros(0, np.bool_)
        self._weights = np.zeros(0)
        self._count = 0
        self._build(np.zeros(0, np.int32))

    # -- linking

    def link(self, slots: np.ndarray) -> None:
        """Enter slots into the files of their cells."""
        if not len(slots):
            return
        n = len(self.table)
        self._leaf, self._scores = grown(self._leaf, n, -1), grown(self._scores, n, 0.0)
        self._state, self._marked = grown(self._state, n, 0), grown(self._marked, n, False)
        self._weights = grown(self._weights, len(self.table.terms), -1.0)
        place = self.table.place[slots]
        if self._count + len(slots) > 4 * self._built or self._is_degenerate():
            self._build(np.concatenate((self._linked, slots)))
        elif not self._tree.covers(place):
            self._build(np.concatenate((self._linked, slots)), Quadtree.enclose(place, self._tree.arrays.box[0]))
        else:
            self._place(slots)

    def unlink(self, slots: np.ndarray) -> None:
        """Remove slots from their cells."""
        if not len(slots):
            return
        cells = np.unique(self._leaf[slots]).astype(np.int64)
        self._marked[slots] = True
        self._rewrite(cells)
        kernels.drop_members(cells, self._marked, self._tree.members.block, self._tree.members.slot)
        self._marked[slots] = False
        self._leaf[slots] = -1
        self._count -= len(slots)
        if 4 * self._count < self._built:
            self._build(self._linked)
        elif self._grouped:
            self._set_floors(cells)

    def _is_degenerate(self) -> bool:
        """Tell whether cells have been divided so often that the distribution of subscriptions must have changed."""
        return self._tree.nodes > 4 * self._built_nodes + 64

    @property
    def _linked(self) -> np.ndarray:
        return np.flatnonzero(self._leaf >= 0).astype(np.int32)

    def _build(self, slots: np.ndarray, box: np.ndarray | None = None) -> None:
        """Rebuild the index with these slots and a root, by default their bounding box.

        O(n log n), but so rare that it is O(log n) for each slot ever linked.
        """
        if box is None:
            box = Quadtree.enclose(self.table.place[slots]) if len(slots) else np.zeros(4)
        self._tree = Quadtree(box, self._capacity)
        tops = _TOPS if self._grouped else ()
        self._postings = BlockPool({"slot": np.int32, **dict.fromkeys((*_FIELDS[1:], *tops), np.float32)})
        self._runs = BlockPool({"key": np.int32, "start": np.int32})
        self._floor, self._stale = np.zeros(0), np.zeros(0, np.int64)
        self._widen()
        self._leaf[slots] = -1
        alpha = self.table.place[slots, blocks.ALPHA]
        stars = np.sort(alpha / np.maximum(1.0 - alpha, kernels.LEAST))
        at = np.arange(1, self._groups) * len(slots) // self._groups
        self._bounds = stars[at] if len(slots) else np.zeros(self._groups - 1)
        self._built, self._count = len(slots), 0
        if len(slots):
            self._place(slots)
        self._built_nodes = self._tree.nodes

    def _place(self, slots: np.ndarray) -> None:
        """Assign cells to new slots, divide full cells, and write postings."""
        tree, leaf = self._tree, self._leaf
        found = tree.locate(slots, self.table)
        leaf[slots] = found
        self._count += len(slots)
        order = np.argsort(found, kind="stable")
        cells, first, counts = np.unique(found[order], return_index=True, return_counts=True)
        full = (tree.members.block[cells, array_kernels.LENGTH] + counts > self._capacity) & (tree.depth[cells] < tree.DEPTH)
        rewritten = [slots]
        for cell, at, count in zip(cells[full].tolist(), first[full].tolist(), counts[full].tolist()):
            members = tree.members_of(cell)
            rewritten.append(members)
            self._clear(cell)
            tree.divide(cell, np.concatenate((members, slots[order[at : at + count]])), self.table, leaf)
        slots = np.concatenate(rewritten)
        self._widen()
        tree.enter(slots, leaf)
        self._scores[slots] = kernels.scaled(slots, self.table.place)
        self._write(slots)

    def _widen(self) -> None:
        nodes = len(self._tree.depth)
        self._postings.widen(nodes)
        self._runs.widen(nodes)
        self._floor, self._stale = grown(self._floor, nodes, np.inf), grown(self._stale, nodes, 0)

    def _clear(self, cell: int) -> None:
        """Drop the members and the file of a cell."""
        for pool in (self._tree.members, self._postings, self._runs):
            pool.release(np.array([cell]))

    def _write(self, slots: np.ndarray) -> None:
        """Write postings of slots that have none."""
        words = self.table.words
        fresh = kernels.make_postings(
            slots, self._leaf, self._scores, self.table.place, words.block, words.term, words.weight, self._bounds, self._tree.arrays.box, self.diagonal_deg
        )
        order = np.lexsort((fresh.slot, fresh.score, fresh.key, fresh.cell) if self._grouped else (fresh.slot, fresh.key, fresh.cell))
        fresh = kernels.Fresh(*(column[order] for column in fresh))
        cells = np.unique(self._leaf[slots]).astype(np.int64)
        self._rewrite(cells, fresh)
        if self._grouped:
            self._set_floors(cells)

    def _rewrite(self, cells: np.ndarray, fresh: kernels.Fresh | None = None) -> None:
        """Rewrite the files of cells without marked slots, and with new postings, which are in order of cell, key, score, slot."""
        if fresh is None:
            nothing, numbers = np.zeros(0, np.int32), np.zeros(0, np.float32)
            fresh = kernels.Fresh(nothing, nothing, nothing, *[numbers] * 6)
        postings, runs = self._postings, self._runs
        first = np.append(np.searchsorted(fresh.cell, cells), len(fresh.cell)).astype(np.int64)
        plan, lengths, key, start, counts = kernels.merge_plan(cells, self._files, self._grouped, self._marked, first, fresh.key, fresh.score, fresh.slot)
        fields = [kernels.follow_plan(plan, getattr(postings, name), getattr(fresh, name)) for name in _FIELDS]
        postings.reserve(cells, lengths)
        runs.reserve(cells, counts)
        postings.block[cells, array_kernels.LENGTH], runs.block[cells, array_kernels.LENGTH] = lengths, counts
        self._scatter(postings, dict(zip(_FIELDS, fields)), cells, lengths)
        self._scatter(runs, {"key": key, "start": start}, cells, counts)
        if self._grouped:
            kernels.sum_up_cells(cells, self._files)

    @staticmethod
    def _scatter(pool: BlockPool, fields: dict[str, np.ndarray], cells: np.ndarray, lengths: np.ndarray) -> None:
        """Write values into the blocks of cells, one block after another."""
        ends = np.cumsum(lengths)
        for name, values in fields.items():
            array_kernels.copy_ranges(values, ends - lengths, lengths, pool.block[cells, array_kernels.START], getattr(pool, name))

    @property
    def _files(self) -> kernels.Files:
        postings, runs = self._postings, self._runs
        tops = [getattr(postings, name) for name in _TOPS] if self._grouped else [postings.weight[:0]] * 2
        return kernels.Files(postings.block, runs.block, runs.key, runs.start, *(getattr(postings, name) for name in _FIELDS), *tops)

    # -- thresholds

    def retune(self, slots: np.ndarray, before: np.ndarray) -> None:
        """Move postings whose bound is too high, or so low that it hardly prunes."""
        if not len(slots):
            return
        table, words = self.table, self.table.words
        if self._grouped:
            self._follow_floors(slots)
        new = kernels.scaled(slots, table.place)
        moved = kernels.drifted(slots, table.place, self._scores, new)
        slots, new = slots[moved], new[moved]
        if self._grouped and len(slots):
            # If many move, sort the file again; otherwise move each one.
            cells, nth, counts = np.unique(self._leaf[slots], return_inverse=True, return_counts=True)
            many = (8 * counts > self._tree.members.block[cells, array_kernels.LENGTH])[nth]
            resorted = slots[many]
            if len(resorted):
                self._scores[resorted] = new[many]
                self._marked[resorted] = True
                self._write(resorted)
                self._marked[resorted] = False
                slots, new = slots[~many], new[~many]
        kernels.move_postings(slots, new, self._scores, self._leaf, table.place, words.block, words.term, self._bounds, self._files, self._grouped)

    def _follow_floors(self, slots: np.ndarray) -> None:
        """Lower the floors of cells at once; recompute them from time to time, because they may have risen."""
        table, leaf = self.table, self._leaf
        kernels.lower_floors(slots, leaf, table.place, table.words.block, table.words.weight, self._floor)
        cells, counts = np.unique(leaf[slots], return_counts=True)
        self._stale[cells] += counts
        self._set_floors(cells[4 * self._stale[cells] >= self._tree.members.block[cells, array_kernels.LENGTH]].astype(np.int64))

    def _set_floors(self, cells: np.ndarray) -> None:
        members, table = self._tree.members, self.table
        kernels.set_floors(cells, members.block, members.slot, table.place, table.words.block, table.words.weight, self._floor)
        self._stale[cells] = 0

    # -- matching

    def match(self, messages: MessageBatch) -> Matches:
        """Return the matches, see :meth:`SubscriptionIndex.match`."""
        table, batch = self.table, readable_messages(messages)
        known = common.read_messages(batch, table.terms.map)
        cells = np.flatnonzero(self._tree.members.block[:, array_kernels.LENGTH])
        message, slot = kernels.find_candidates(
            cells, self._files, self._tree.arrays.box, self._floor, batch, known, self._groups, self._grouped, self.diagonal_deg, self._state
        )
        return Matches(*common.verify(message, slot, batch, known, table.place, table.keyword_arrays, self._weights, self.diagonal_deg))

    @property
    def structure_bytes(self) -> int:
        """Bytes of tree, files and arrays by slot."""
        arrays = (self._leaf, self._scores, self._state, self._marked, self._weights, self._floor, self._stale, self._bounds)
        return sum(a.nbytes for a in arrays) + self._tree.memory_bytes + self._postings.memory_bytes + self._runs.memory_bytes

    def _check(self) -> None:
        """Verify tree, files and bounds."""
        super()._check()
        table, files = self.table, self._files
        live = np.flatnonzero(table.live)
        assert (np.flatnonzero(self._leaf >= 0) == live).all() and self._count == len(live)
        assert not self._state.any() and not self._marked.any() and (self._weights == -1.0).all()
        self._tree._check(table, self._leaf)
        self._postings._check()
        self._runs._check()
        assert not kernels.drifted(live, table.place, self._scores, kernels.scaled(live, table.place)).any()
        wanted = self._wanted(live)
        found: list[tuple[float, ...]] = []
        exact: list[tuple[float, ...]] = []
        groups: list[int] = []
        for cell in np.flatnonzero(self._postings.block[:, array_kernels.LENGTH]).tolist():
            base, length = files.block[cell, :2].tolist()
            first, count = files.runs[cell, :2].tolist()
            keys, starts = files.key[first : first + count].tolist(), [*files.start[first : first + count].tolist(), length]
            assert starts[0] == 0 and all(a < b for a, b in itertools.pairwise(keys)) and all(a < b for a, b in itertools.pairwise(starts))
            slots, scores = files.slot[base : base + length], files.score[base : base + length]
            assert (self._leaf[slots] == cell).all() and (scores == self._scores[slots]).all()
            rows = list(zip(scores.tolist() if self._grouped else [0] * length, slots.tolist()))
            west, south, east, north = self._tree.arrays.box[cell].tolist()
            for key, start, stop in zip(keys, starts, starts[1:]):
                term, group = divmod(key, self._groups)
                assert all(a < b for a, b in itertools.pairwise(rows[start:stop]))
                for (_, slot), (lon, lat, alpha, _) in zip(rows[start:stop], table.place[slots[start:stop]].tolist()):
                    border = min(lon - west, east - lon, lat - south, north - lat) / self.diagonal_deg
                    exact.append((*wanted.pop((slot, term)), alpha / max(1.0 - alpha, kernels.LEAST), border))
                    groups.append(group)
            weight, rest, ratio = columns = [a[base : base + length].tolist() for a in (files.weight, files.rest, files.ratio)]
            found += zip(weight, files.total[base : base + length].tolist(), rest, ratio, files.inner[base : base + length].tolist())
            if self._grouped:
                tops = zip(files.top_weight[base : base + length].tolist(), files.top_ratio[base : base + length].tolist(), strict=True)
                assert list(tops) == _tops(starts, *columns)
        assert not wanted, "keywords without a posting"
        with np.errstate(over="ignore"):
            kept, right = (np.array(values, float).reshape(-1, 5) for values in (found, exact))
            assert np.allclose(kept, right.astype(np.float32), rtol=1e-6, atol=1e-9)
        assert np.searchsorted(self._bounds, right[:, 3], side="right").tolist() == groups
        if self._grouped:
            for cell in np.flatnonzero(self._tree.members.block[:, array_kernels.LENGTH]).tolist():
                floor = self._floor[cell]
                self._set_floors(np.array([cell]))
                assert floor <= self._floor[cell]
                self._floor[cell] = floor

    def _wanted(self, live: np.ndarray) -> dict[tuple[int, int], tuple[float, float, float]]:
        """Return for each (slot, term) the term's weight, the sum of the weights from there on, and the largest weight behind it."""
        wanted = {}
        offsets, terms, weights = (column.tolist() for column in self.table.keywords(live))
        for slot, start, stop in zip(live.tolist(), offsets, offsets[1:]):
            total = rest = 0.0
            for term, weight in zip(terms[start:stop][::-1], weights[start:stop][::-1]):
                total += weight
                wanted[slot, term] = (weight, total, rest)
                rest = max(rest, weight)
        return wanted


def _tops(starts: list[int], weight: list[float], rest: list[float], ratio: list[float]) -> list[tuple[float, float]]:
    """Return for each posting of a cell the largest weight and the largest a* from there to the end of its run."""
    tops: list[tuple[float, float]] = []
    for start, stop in itertools.pairwise(starts):
        run = zip(map(max, weight[start:stop], rest[start:stop]), ratio[start:stop])
        tops += list(itertools.accumulate(reversed(list(run)), lambda top, one: (max(top[0], one[0]), max(top[1], one[1]))))[::-1]
    return tops


class IgptIndex(IptIndex):
    """IPT with group pruning (Skype, section 5.3).

    The postings of a keyword in a cell are divided into groups of similar a* = alpha / (1 - alpha). Each group is in order of
    kScore* = threshold / (1 - alpha), and every posting knows the largest weight and a* from there to the end. So a message can
    skip a whole group (Theorem 3), or its end from a place that binary search finds (Theorem 4). Cells in which even the best
    text could not make up for the distance are skipped (Lemma 6).

    alpha = 1 counts as 1 - 2^-60 in a* and kScore*.

    :param groups: number of groups, which are bounded by quantiles of all a*; 1..100.
    """

    _grouped = True

    def __init__(self, diagonal_deg: float, cell_capacity: int = 1000, groups: int = 10) -> None:
        if not 1 <= groups <= 100:
            raise IllegalArgumentException(explain("The number of groups is not usable.", given=groups, legal="index option groups in 1..100"))
        self._groups = int(groups)
        super().__init__(diagonal_deg, cell_capacity)
