"""Cuts places and keywords into parts of equal cost: Algorithms 3 and 4 of the journal paper, and methods that balance better."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.distribution.learning import cuts_kernels as kernels
from dskype.distribution.plans import Node, leaf

__all__ = ["Cost", "Postings", "best_line", "first_terms", "learn_ranges", "learn_tree", "uniform_ranges", "uniform_tree"]

_ROUNDS = 16
_GOOD = 1.03
_MARK_LEVELS = 3


# -- places: Algorithm 3 --------------------------------------------------------------------------


class _Points(NamedTuple):
    """Places of subscriptions and of messages. Without messages, only subscriptions count."""

    s_lat: np.ndarray
    s_lon: np.ndarray
    s_weight: np.ndarray
    m_lat: np.ndarray
    m_lon: np.ndarray
    weighed: bool  # by messages

    @property
    def cost(self) -> float:
        return float(self.s_weight.sum()) * (len(self.m_lat) if self.weighed else 1.0)

    def parted(self, axis: str, at: float) -> tuple[_Points, _Points]:
        s, m = (self.s_lat, self.m_lat) if axis == "lat" else (self.s_lon, self.m_lon)
        one, two = s < at, m < at
        return (
            _Points(self.s_lat[one], self.s_lon[one], self.s_weight[one], self.m_lat[two], self.m_lon[two], self.weighed),
            _Points(self.s_lat[~one], self.s_lon[~one], self.s_weight[~one], self.m_lat[~two], self.m_lon[~two], self.weighed),
        )

    def marks(self) -> dict[str, list[float]]:
        return {
            axis: sorted(set(np.quantile(s, np.arange(1, 8) / 8, method="lower").tolist()) - {float(s.min())}) if len(s) else []
            for axis, s in (("lat", self.s_lat), ("lon", self.s_lon))
        }


def _line(points: _Points, below_share: float, bias: float, longer_first: bool) -> tuple[str, float] | None:
    """Return the line that divides the cost in a given proportion, or None if all places are the same."""
    power = 2 if points.weighed else 1
    found: list[tuple[float, float, str, float]] = []
    for axis, s, m in (("lat", points.s_lat, points.m_lat), ("lon", points.s_lon, points.m_lon)):
        order = np.argsort(s, kind="stable")
        at, below, above = kernels.axis_costs(s[order], points.s_weight[order], np.sort(m) if points.weighed else np.zeros(0))
        if not len(at):
            continue
        if below_share == 0.5 and not bias:
            off = np.abs(below - above) / max(points.cost, 1.0)  # as in the paper: the least difference
        else:
            off = np.abs(np.log((below + 1e-9) / (above + 1e-9)) - power * math.log(below_share / (1 - below_share)) - bias)
        best = int(np.argmin(off))
        low, high = np.quantile(s, (0.02, 0.98))
        found.append((float(off[best]), float(high - low), axis, float(at[best])))
    if not found:
        return None
    if longer_first and len(found) == 2:
        long, short = sorted(found, key=lambda f: -f[1])
        return (short if long[0] > short[0] + 0.02 else long)[2:]
    return min(found)[2:]


def best_line(s_lat: np.ndarray, s_lon: np.ndarray, m_lat: np.ndarray, m_lon: np.ndarray, weights: np.ndarray | None = None) -> tuple[str, float] | None:
    """Return the line (axis, at) that halves the cost of a cell best, or None if all subscriptions are at one place.

    :param weights: float64[], of subscriptions; default: 1.
    """
    return _line(_Points(s_lat, s_lon, np.ones(len(s_lat)) if weights is None else weights, m_lat, m_lon, len(m_lat) > 0), 0.5, 0.0, True)


def learn_tree(
    s_lat: np.ndarray,
    s_lon: np.ndarray,
    m_lat: np.ndarray,
    m_lon: np.ndarray,
    tasks: Sequence[int],
    *,
    weighed: bool = True,
    weights: np.ndarray | None = None,
    balanced: bool = True,
) -> Node:
    """Return a tree with a leaf for each task.

    :param weighed: the cost of a leaf is that of Algorithm 3: subscriptions inside x the probability of a message inside. False: the subscriptions
        alone, for distributors that send every message to every cell.
    :param weights: float64[], of subscriptions; default: 1.
    :param balanced: build the tree repeatedly, and move each line according to the difference between the leaves on both sides. False: use
        Algorithm 3 unchanged, which halves the costliest cell until there are enough.
    """
    points = _Points(s_lat, s_lon, np.ones(len(s_lat)) if weights is None else weights, m_lat, m_lon, weighed and len(m_lat) > 0)
    total = float(max(1, len(m_lat))) if points.weighed else 1.0

    def make_leaf(part: _Points, tasks: list[int]) -> Node:
        return leaf(tasks, part.cost / total, **part.marks())

    if not balanced:
        return _halved_tree(points, list(tasks), make_leaf)
    bias: dict[str, float] = {}

    def build(part: _Points, own: list[int], path: str, step: float, mean: dict[str, float]) -> Node:
        line = None
        if len(own) > 1:
            n = (len(own) + 1) // 2
            line = _line(part, n / len(own), bias.get(path, 0.0), True)
        if line is None:
            mean[path] = part.cost / len(own) / len(own) if len(own) > 1 and part.weighed else part.cost / len(own)
            costs.append(part.cost / len(own))
            return make_leaf(part, own)
        below, above = part.parted(*line)
        node = {"axis": line[0], "at": line[1], "below": build(below, own[:n], path + "0", step, mean), "above": build(above, own[n:], path + "1", step, mean)}
        one, other = mean[path + "0"], mean[path + "1"]
        bias[path] = bias.get(path, 0.0) - step * (math.log(one + 1e-9) - math.log(other + 1e-9))
        mean[path] = (one * n + other * (len(own) - n)) / len(own)
        return node

    best: tuple[float, Node] | None = None
    for round_ in range(_ROUNDS if points.weighed else 1):
        costs: list[float] = []
        root = build(points, list(tasks), "", 0.9 if round_ < 6 else 0.5, {})
        spread = max(costs) / max(1e-12, sum(costs) / len(costs))
        if best is None or spread < best[0]:
            best = spread, root
        if spread < _GOOD:
            break
    assert best is not None
    return best[1]


def _halved_tree(points: _Points, tasks: list[int], make_leaf: Callable[[_Points, list[int]], Node]) -> Node:
    heap: list[tuple[float, int, _Points, dict[str, Any]]] = []
    root: dict[str, Any] = {}
    heapq.heappush(heap, (-points.cost, 0, points, root))
    done: list[tuple[_Points, dict[str, Any]]] = []
    count = 0
    while heap and len(heap) + len(done) < len(tasks):
        _, _, part, slot = heapq.heappop(heap)
        line = _line(part, 0.5, 0.0, False)
        if line is None:
            done.append((part, slot))
            continue
        slot.update(axis=line[0], at=line[1], below={}, above={})
        for side, child in zip(("below", "above"), part.parted(*line)):
            count += 1
            heapq.heappush(heap, (-child.cost, count, child, slot[side]))
    cells = [*done, *((part, slot) for _, _, part, slot in sorted(heap, key=lambda h: h[1]))]
    for number, (part, slot) in enumerate(cells):
        slot.update(make_leaf(part, tasks[number :: len(cells)]))
    return root


def uniform_tree(tasks: Sequence[int], box: tuple[float, float, float, float] = (-180.0, -90.0, 180.0, 90.0)) -> Node:
    """Return a tree whose leaves have equal areas."""
    if len(tasks) == 1:
        return leaf(list(tasks))
    west, south, east, north = box
    n = (len(tasks) + 1) // 2
    share = n / len(tasks)
    if east - west >= north - south:
        at = west + share * (east - west)
        return {"axis": "lon", "at": at, "below": uniform_tree(tasks[:n], (west, south, at, north)), "above": uniform_tree(tasks[n:], (at, south, east, north))}
    at = south + share * (north - south)
    return {"axis": "lat", "at": at, "below": uniform_tree(tasks[:n], (west, south, east, at)), "above": uniform_tree(tasks[n:], (west, at, east, north))}


# -- keywords: Algorithm 4 ------------------------------------------------------------------------


def first_terms(offsets: np.ndarray, terms: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows, terms): the first ``lengths[i]`` (int64[n]) terms of each document *i* in CSR form."""
    nth = np.arange(offsets[-1] - offsets[0]) - np.repeat(offsets[:-1] - offsets[0], np.diff(offsets))
    rows = np.repeat(np.arange(len(lengths)), np.diff(offsets))
    counted = nth < lengths[rows]
    return rows[counted], terms[offsets[0] : offsets[-1]][counted]


class Postings(NamedTuple):
    """Documents by keyword: the postings of term *t* are ``start[t]`` to ``start[t + 1]``.

    :ivar n: number of documents.
    :ivar before: int64[], the previous term of the document; -1: none.
    :ivar after: int64[], the next term of the document; the size of the vocabulary: none.
    :ivar weight: float64[], of the document.
    """

    n: int
    start: np.ndarray
    before: np.ndarray
    after: np.ndarray
    weight: np.ndarray

    @classmethod
    def from_documents(cls, offsets: np.ndarray, terms: np.ndarray, vocabulary: int, weights: np.ndarray | None = None) -> Postings:
        """Return the postings of documents with rising terms, without unknown terms (negative ids). Default weight of a document: 1."""
        terms = terms[offsets[0] : offsets[-1]]
        ends = (offsets - offsets[0])[1:-1]
        before = np.concatenate([[-1], np.maximum(terms[:-1], -1)])[: len(terms)]
        after = np.concatenate([terms[1:], [vocabulary]])[: len(terms)]
        before[ends[ends < len(terms)]] = -1
        after[ends[ends > 0] - 1] = vocabulary
        if len(terms):
            before[0] = -1
        order = np.argsort(terms, kind="stable")
        order = order[np.searchsorted(terms[order], 0) :]
        start = np.searchsorted(terms[order], np.arange(vocabulary + 1))
        weight = np.ones(len(terms)) if weights is None else np.repeat(weights, np.diff(offsets))
        return cls(len(offsets) - 1, start.astype(np.int64), before[order].astype(np.int64), after[order].astype(np.int64), weight[order])


class Cost(NamedTuple):
    """The cost of ranges of keywords.

    :ivar s: postings of subscriptions, by the keywords that count.
    :ivar m: postings of messages.
    :ivar overhead: cost of a message that comes to a task; a subscription costs its weight. Negative: use the product of equation 16 instead,
        subscriptions with a keyword in the range x messages with one.
    """

    s: Postings
    m: Postings
    overhead: float

    @property
    def vocabulary(self) -> int:
        """The number of terms."""
        return len(self.s.start) - 1

    def per_task(self, begin: int, end: int, among: int = 1) -> float:
        """Return the cost per message of the stream for each of ``among`` tasks that share a range."""
        s, m = kernels.range_cost(begin, end, self.s, self.m)
        return s * m / among / max(1, self.m.n) if self.overhead < 0 else s / among + self.overhead * m

    def halve(self, begin: int, end: int) -> int:
        """Return the term in (begin, end) that halves the cost of a range best, or ``begin`` if the range has only one term."""
        return int(kernels.halve_range(begin, min(end, self.vocabulary), self.overhead, self.s, self.m))

    def marks(self, begin: int, end: int, levels: int = _MARK_LEVELS) -> list[int]:
        """Return the terms that halve a range, its halves and so on, ``levels`` times."""
        at = self.halve(begin, end) if levels else begin
        return [] if at == begin else [*self.marks(begin, at, levels - 1), at, *self.marks(at, end, levels - 1)]


def learn_ranges(cost: Cost, tasks: Sequence[int], *, balanced: bool = True, shared: bool = True) -> Node:
    """Return ranges of the vocabulary with their tasks.

    :param balanced: find the lowest cap on the cost of a range for which the tasks suffice. False: use Algorithm 4 unchanged, which halves the
        costliest range until there are enough.
    :param shared: with ``balanced``: several tasks share a keyword that exceeds the cap alone, each with a part of its subscriptions.
    """
    n, s, m = len(tasks), cost.s, cost.m
    parts = [(0, cost.vocabulary, 1)]  # begin, end, among how many tasks
    if balanced and cost.vocabulary > 0:
        first, among = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)

        def cut(cap: float) -> int:
            return kernels.cap_ranges(cap, cost.overhead, n, shared, s, m, first, among)

        high = 1.001 * cost.per_task(0, cost.vocabulary) * (max(1, m.n) if cost.overhead < 0 else 1.0) + 1.0
        low = high / n / n / 100
        while high > 1.001 * low:
            middle = math.sqrt(low * high)
            if cut(middle)[1] <= n:
                high = middle
            else:
                low = middle
        count = cut(high)[0]
        parts = list(zip(first[:count].tolist(), [*first[1:count].tolist(), cost.vocabulary], among[:count].tolist()))
    return _ranges_node(_filled(parts, n, cost, shared and balanced), list(tasks), cost)


def _filled(parts: list[tuple[int, int, int]], n: int, cost: Cost, shared: bool) -> list[tuple[int, int, int]]:
    """Halve the costliest part, or give it another task, until all tasks are used."""
    heap = [(-cost.per_task(*part), *part) for part in parts]
    heapq.heapify(heap)
    done: list[tuple[int, int, int]] = []
    left = n - sum(among for *_, among in parts)
    while left and heap:
        _, begin, end, among = heapq.heappop(heap)
        at = cost.halve(begin, end) if among == 1 and end - begin > 1 else begin
        if at > begin:
            for part in ((begin, at, 1), (at, end, 1)):
                heapq.heappush(heap, (-cost.per_task(*part), *part))
            left -= 1
        elif shared:
            heapq.heappush(heap, (-cost.per_task(begin, end, among + 1), begin, end, among + 1))
            left -= 1
        else:
            done.append((begin, end, among))
    return sorted([*done, *((begin, end, among) for _, begin, end, among in heap)])


def _ranges_node(parts: list[tuple[int, int, int]], tasks: list[int], cost: Cost) -> Node:
    found, at = [], 0
    for begin, end, among in parts:
        node = leaf(tasks[at : at + among], cost.per_task(begin, end, among) * among, term=cost.marks(begin, end))
        at += among
        found.append({"from": begin, "node": node})
    found[0]["from"] = 0
    if at < len(tasks):  # fewer words than tasks: the others help with the costliest range
        costliest = max(found, key=lambda part: part["node"]["load"] / len(part["node"]["tasks"]))["node"]
        costliest["tasks"] = [*costliest["tasks"], *tasks[at:]]
    return {"ranges": found}


def uniform_ranges(tasks: Sequence[int]) -> Node:
    """Return ranges of equal length on a logarithmic scale of ranks, up to a million words."""
    parts, begin = [], 0
    for i, task in enumerate(tasks):
        begin = max(begin + 1, round(2 ** (20 * i / len(tasks)))) if i else 0
        parts.append({"from": begin, "node": leaf([task])})
    return {"ranges": parts}
