"""Loads of rectangles of cells and of the terms in them, estimated from a sample: what partitioning by space and by text decides by (PS2Stream, section IV)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dskype.distribution.agrid._kernels import Posted
from dskype.distribution.agrid.grid import AGrid, CellBox
from dskype.distribution.base import Sample
from dskype.distribution.hybrid import gridt_kernels
from dskype.distribution.hybrid.gridt import BUCKETS, buckets_of
from dskype.distribution.hybrid.loads import LoadModel
from dskype.distribution.learning.recent_sample import sample_of

__all__ = ["Contents", "Items", "Leaf", "SampleLoads", "Shares", "checked_subscriptions"]

_NAMED = 4096
"""The most terms that a leaf names; all others go to buckets."""

_CERTAIN = -50.0
"""The logarithm of the chance that a message is not wanted because of a term that a subscription of the sample needs: none."""


def checked_subscriptions(sample: Sample) -> np.ndarray:
    """Return for each term of each message of a sample how many subscriptions it makes a task check, float64[]; see :func:`dskype.distribution.hybrid.gridt_kernels.count_checked`."""
    owners = np.repeat(np.arange(sample.n), np.diff(sample.offsets))
    boxes = sample.rectangles()
    boolean = ~np.isnan(boxes[:, 0])
    terms, own = np.unique(sample.terms, return_inverse=True)
    inside = np.flatnonzero(boolean[owners])
    order = inside[np.argsort(own[inside], kind="stable")]
    start = np.concatenate([[0], np.cumsum(np.bincount(own[order], minlength=len(terms)))]).astype(np.int64)
    anywhere = np.bincount(own[~boolean[owners]], minlength=len(terms)).astype(np.float64)
    m = sample.messages
    entry = np.searchsorted(terms, m.terms)
    entry = np.where((entry < len(terms)) & (np.append(terms, 0)[entry] == m.terms), entry, -1)
    return gridt_kernels.count_checked(m.offsets, entry, m.lat, m.lon, Posted(anywhere, start, owners[order], boxes))


class Items(NamedTuple):
    """The terms of a leaf as items that are assigned to tasks: the heaviest terms, by name, and buckets of all others.

    :ivar named: int64[n], terms, rising; their items are 0 to n - 1, and that of bucket *b* is n + *b*.
    :ivar of_entries: int64[], the item of each term of each message of the leaf.
    :ivar of_triggers: int64[], the item of each routing term of each subscription.
    :ivar loads: float64[n + BUCKETS].
    """

    named: np.ndarray
    of_entries: np.ndarray
    of_triggers: np.ndarray
    loads: np.ndarray

    def of(self, terms: np.ndarray) -> np.ndarray:
        """Return the item of each term, int64[]."""
        return _items_of(self.named, terms)

    def described(self, items: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the terms and the buckets among some items, both rising."""
        n, items = len(self.named), np.sort(items)
        return tuple(self.named[items[items < n]].tolist()), tuple((items[items >= n] - n).tolist())


def _items_of(named: np.ndarray, terms: np.ndarray) -> np.ndarray:
    at = np.searchsorted(named, terms)
    known = np.append(named, 0)[at] == terms if len(named) else np.zeros(len(terms), np.bool_)
    return np.where(known & (at < len(named)), at, len(named) + buckets_of(terms))


class SampleLoads:
    """A sample with what its messages and subscriptions cost.

    :param grid: its cells.
    :param model: the constants.
    :param product: True: matching costs :attr:`LoadModel.pair_us` for each pair of a message and a subscription of a task, as the paper has it;
        False: :attr:`LoadModel.check_us` for each pair that an index checks.
    :param subscriptions: how many there will be; the sample stands for all of them.
    """

    def __init__(self, grid: AGrid, sample: Sample, model: LoadModel, product: bool, subscriptions: int) -> None:
        m = sample.messages
        begin, end = int(m.offsets[0]), int(m.offsets[-1])
        self.sample, self.model, self.product = sample, model, product
        self.scale = max(1.0, subscriptions / sample.n)
        self.cells = grid.all_cells
        self.x, self.y = grid.cells_of(m.lat, m.lon)
        self.offsets = m.offsets - begin
        self.known, both = np.unique(np.concatenate((m.terms[begin:end], sample.terms)), return_inverse=True)
        """All terms; those of entries and triggers are numbered by it."""
        self.entry_terms, self.trigger_terms = both[: end - begin], both[end - begin :]
        self.checked = checked_subscriptions(sample._replace(messages=m._replace(offsets=self.offsets, terms=m.terms[begin:end]))) * self.scale
        self.owners = np.repeat(np.arange(sample.n), np.diff(sample.offsets))
        self.boxes = self._cells_of_subscriptions(grid)
        self.update_us = model.update_us * m.n / sample.n
        """Of one subscription of the sample, for all messages of the sample."""

    def _cells_of_subscriptions(self, grid: AGrid) -> np.ndarray:
        """Return the cells of each subscription, int64[n, 2, 4]: two boxes, of which the second is mostly empty."""
        rectangles = self.sample.rectangles()
        boolean = np.flatnonzero(~np.isnan(rectangles[:, 0]))
        found = np.zeros((self.sample.n, 2, 4), np.int64)
        found[:, 0] = grid.all_cells
        rows, boxes = grid.boxes_of(rectangles[boolean])
        n = len(boolean)
        found[boolean, 0] = boxes[:n]
        found[boolean[rows[n:]], 1] = boxes[n:]
        return found

    def root(self) -> Leaf:
        """Return the leaf that is the whole grid."""
        return Leaf(self, self.cells, np.arange(self.sample.messages.n), np.arange(self.sample.n))


class Contents(NamedTuple):
    """What comes to a task because of some of the terms of a leaf.

    :ivar checked: subscriptions that are checked.
    :ivar rows: int64[], messages that may come, counted within the leaf; ``chances``: float64[], that they do.
    :ivar subscriptions: int64[], those that live there, counted within the leaf.
    """

    checked: float
    rows: np.ndarray
    chances: np.ndarray
    subscriptions: np.ndarray


class Shares:
    """What each task has of a leaf whose terms are divided."""

    def __init__(self, leaf: Leaf, tasks: int) -> None:
        self._leaf = leaf
        self._absent, self._absent_sum = np.ones((tasks, len(leaf.rows))), np.full(tasks, float(len(leaf.rows)))
        self._held = np.zeros((tasks, len(leaf.subscriptions)), np.bool_)
        self._checked, self._subscriptions = np.zeros(tasks), np.zeros(tasks)

    def added(self, contents: Contents) -> np.ndarray:
        """Return by how much each task's load would rise, float64[tasks]: by less where a message comes, or a subscription lives, because of other terms."""
        rows, load, n = len(self._leaf.rows), self._leaf.load_of, self._absent_sum
        come = self._absent[:, contents.rows] @ contents.chances
        live = (~self._held[:, contents.subscriptions]).sum(axis=1)
        before = load(self._checked, rows - n, self._subscriptions)
        return load(self._checked + contents.checked, rows - n + come, self._subscriptions + live) - before

    def add(self, task: int, contents: Contents) -> None:
        """Give terms to a task."""
        self._absent_sum[task] -= float(self._absent[task, contents.rows] @ contents.chances)
        self._absent[task, contents.rows] *= 1.0 - contents.chances
        self._held[task, contents.subscriptions] = True
        self._subscriptions[task] = np.count_nonzero(self._held[task])
        self._checked[task] += contents.checked


class Leaf:
    """A rectangle of cells with the messages and subscriptions of a sample that are in it.

    :param rows: int64[], messages; ``subscriptions``: int64[].
    :param named: int64[], rising, the terms that its items name; None: the heaviest ones.
    """

    def __init__(self, loads: SampleLoads, cells: CellBox, rows: np.ndarray, subscriptions: np.ndarray, named: np.ndarray | None = None) -> None:
        self.loads, self.cells, self.rows, self.subscriptions, self._named = loads, cells, rows, subscriptions, named

    def inside(self, cells: CellBox, named: np.ndarray | None = None) -> Leaf:
        """Return the part of the leaf inside a smaller rectangle.

        :param named: as of the class.
        """
        x, y, boxes = self.loads.x[self.rows], self.loads.y[self.rows], self.loads.boxes[self.subscriptions]
        near = (boxes[:, :, 0] < cells.x1) & (boxes[:, :, 2] > cells.x0) & (boxes[:, :, 1] < cells.y1) & (boxes[:, :, 3] > cells.y0)
        rows = self.rows[(x >= cells.x0) & (x < cells.x1) & (y >= cells.y0) & (y < cells.y1)]
        return Leaf(self.loads, cells, rows, self.subscriptions[near.any(axis=1)], named)

    # -- entries: terms of messages; triggers: routing terms of subscriptions -----------------------

    @cached_property
    def entries(self) -> np.ndarray:
        """Numbers of the entries of its messages, int64[]."""
        return _ranges(self.loads.offsets, self.rows)

    @cached_property
    def triggers(self) -> np.ndarray:
        """Numbers of the triggers of its subscriptions, int64[]."""
        return _ranges(self.loads.sample.offsets, self.subscriptions)

    @cached_property
    def row_of_entries(self) -> np.ndarray:
        """The row of each entry, counted within the leaf."""
        offsets = self.loads.offsets
        return np.repeat(np.arange(len(self.rows)), offsets[self.rows + 1] - offsets[self.rows])

    @cached_property
    def unwanted(self) -> np.ndarray:
        """The logarithm of the chance that no subscription needs a message for the term of an entry, float64[entries].

        Terms that no subscription of the sample has share the probability that the next subscription has such a term, by their frequency (Good and Turing).
        """
        loads = self.loads
        needed = np.bincount(loads.trigger_terms[self.triggers], minlength=len(loads.known))
        own = loads.entry_terms[self.entries]
        seen = needed[own] > 0
        fresh = np.bincount(own[~seen], minlength=len(loads.known)).astype(np.float64)
        expected = (loads.scale - 1.0) * (needed == 1).sum() * fresh / max(1.0, fresh.sum())
        return np.where(seen, _CERTAIN, np.maximum(_CERTAIN, -expected[own]))

    @cached_property
    def wanted(self) -> np.ndarray:
        """The chance that each message is wanted, float64[rows]."""
        return -np.expm1(np.bincount(self.row_of_entries, self.unwanted, len(self.rows)))

    # -- loads ----------------------------------------------------------------------------------------

    def load_of(self, checked: np.ndarray, wanted: np.ndarray, subscriptions: np.ndarray) -> np.ndarray:
        """Return loads by the subscriptions that are checked, the messages that come and the subscriptions that live there."""
        model = self.loads.model
        matching = model.pair_us * self.loads.scale * wanted * subscriptions if self.loads.product else model.check_us * checked
        return matching + model.message_us * wanted + self.loads.update_us * subscriptions

    @cached_property
    def load(self) -> float:
        """The load if one task has everything, in us for all messages of the sample."""
        return float(self.load_of(self.loads.checked[self.entries].sum(), self.wanted.sum(), np.float64(len(self.subscriptions))))

    @cached_property
    def message_loads(self) -> np.ndarray:
        """What each message costs, float64[rows]; of pairs its share."""
        checked = np.bincount(self.row_of_entries, self.loads.checked[self.entries], len(self.rows))
        model = self.loads.model
        pairs = model.pair_us * self.loads.scale * len(self.subscriptions) * self.wanted if self.loads.product else model.check_us * checked
        return pairs + model.message_us * self.wanted

    @cached_property
    def items(self) -> Items:
        """The terms as items."""
        loads, model = self.loads, self.loads.model
        terms, triggers = loads.entry_terms[self.entries], loads.trigger_terms[self.triggers]
        n = len(loads.known)
        single = np.bincount(terms, model.message_us * -np.expm1(self.unwanted) + model.check_us * loads.checked[self.entries], n)
        single = single + loads.update_us * np.bincount(triggers, minlength=n)  # of no terms at all bincount has integers
        heavy = np.argsort(-single, kind="stable")[:_NAMED]
        named = np.sort(loads.known[heavy[single[heavy] > 0]]) if self._named is None else self._named
        item_of = _items_of(named, loads.known)
        return Items(named, item_of[terms], item_of[triggers], np.bincount(item_of, single, len(named) + BUCKETS))

    def part_loads(self, part_of: np.ndarray, parts: int) -> np.ndarray:
        """Return the load of each part, float64[parts], if the items are divided.

        :param part_of: int64[items], the part of each item; -1: none.
        """
        items = self.items
        part, to = part_of[items.of_entries], part_of[items.of_triggers]
        used, held = part >= 0, to >= 0
        checked = np.bincount(part[used], self.loads.checked[self.entries][used], parts)
        unwanted = np.bincount(self.row_of_entries[used] * parts + part[used], self.unwanted[used], len(self.rows) * parts)
        wanted = -np.expm1(unwanted).reshape(-1, parts).sum(axis=0)
        pairs = np.unique(self.loads.owners[self.triggers][held] * parts + to[held])
        return self.load_of(checked, wanted, np.bincount(pairs % parts, minlength=parts).astype(np.float64))

    def contents(self, items: np.ndarray) -> Contents:
        """Return what comes to a task because of some items, int64[]."""
        chosen = np.zeros(len(self.items.loads), np.bool_)
        chosen[items] = True
        used, held = chosen[self.items.of_entries], chosen[self.items.of_triggers]
        chances = -np.expm1(np.bincount(self.row_of_entries[used], self.unwanted[used], len(self.rows)))
        rows = np.flatnonzero(chances)
        owners = np.unique(self.loads.owners[self.triggers][held])
        return Contents(float(self.loads.checked[self.entries][used].sum()), rows, chances[rows], np.searchsorted(self.subscriptions, owners))

    def checked_again(self, items: np.ndarray) -> float:
        """Return how many more subscriptions a task checks that has some items, for terms that are not among them.

        An index has a subscription under all its routing terms, whichever of them brought it to the task. So a message that goes to several tasks of a leaf is checked against it on each. The
        loads of parts leave this out, because no item has a share of it. O(messages and subscriptions of the part), and pairs that share a term.
        """
        contents, owners = self.contents(items), self.loads.owners[self.triggers]
        own, lives = np.zeros(len(self.items.loads), np.bool_), np.zeros(self.loads.sample.n, np.bool_)
        own[items], lives[self.subscriptions[contents.subscriptions]] = True, True
        others = ~own[self.items.of_triggers] & lives[owners]
        if not others.any() or not len(contents.rows):
            return 0.0
        sample = self.loads.sample
        some, counts = np.unique(owners[others], return_counts=True)
        messages = sample.messages.select(self.rows[contents.rows])
        checked = checked_subscriptions(sample_of(messages, sample.rectangles()[some], np.append(0, np.cumsum(counts)), sample.terms[self.triggers[others]]))
        return self.loads.scale * float(checked @ np.repeat(contents.chances, np.diff(messages.offsets)))

    def item_loads(self, items: np.ndarray) -> np.ndarray:
        """Return what each message costs a task that has some items, float64[rows]."""
        chosen = np.zeros(len(self.items.loads), np.bool_)
        chosen[items] = True
        used, model = chosen[self.items.of_entries], self.loads.model
        checked, unwanted = (np.bincount(self.row_of_entries[used], one[used], len(self.rows)) for one in (self.loads.checked[self.entries], self.unwanted))
        return model.check_us * checked - model.message_us * np.expm1(unwanted)

    def similarity(self) -> float:
        """Return the cosine of the term frequencies of its messages and subscriptions (section IV-B)."""
        n = len(self.loads.known)
        one, other = (np.bincount(terms, minlength=n) for terms in (self.loads.entry_terms[self.entries], self.loads.trigger_terms[self.triggers]))
        length = np.sqrt(float((one * one).sum())) * np.sqrt(float((other * other).sum()))
        return float((one * other).sum()) / length if length else 0.0


def _ranges(offsets: np.ndarray, rows: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the numbers in ``offsets[row]`` to ``offsets[row + 1]`` of some rows, one after the other."""
    rows = np.asarray(rows, np.int64)
    begin, lengths = offsets[rows], offsets[rows + 1] - offsets[rows]
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begin - (ends - lengths), lengths)
