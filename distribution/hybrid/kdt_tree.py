"""Hybrid partitioning: a kdt-tree that divides the world by space, and some of its leaves by text (PS2Stream, section IV-B, Algorithm 1)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dskype.distribution.agrid.grid import CellBox
from dskype.distribution.agrid.learning import best_cut
from dskype.distribution.hybrid.gridt import Part, Zone
from dskype.distribution.hybrid.leaf_loads import Contents, Leaf, Shares

__all__ = [
    "Limits",
    "Node",
    "Partition",
    "assign_items",
    "candidates",
    "divide_space",
    "divide_text",
    "exchange_leaves",
    "hybrid_partitions",
    "merge_nodes",
    "split_cells",
    "zones_of",
]

_SAME = 0.02
"""Similarities that differ by less count as equal."""

_FEWEST = 32
"""A leaf with fewer messages is not divided further in the first phase: its similarity is chance."""

_BALANCED = 0.6
"""A line that leaves more than this share of the load on one side is only drawn if the other direction is no better."""

_DELTAS = (0.0, 0.1, 0.2, 0.4, 1.1)

_RELIEVED = 0.9
"""A node is divided usefully if the greatest part has less than this share of its load."""

_AT_ONCE = 16
"""While loads are not balanced, one node in so many is divided at a time."""

_EQUAL = 1.01
"""Greatest loads that differ by less than this factor count as equal; then the least load decides."""

_EXCHANGES = 4
"""So many exchanges for each leaf at most. Each keeps more subscriptions together, so there is an end without a limit, too."""

_AT_A_TIME = 16_384
"""So many subscriptions are compared at a time, because each takes four bytes for each leaf."""

_IDLE = 1e-9
"""The load of a task without nodes, so that the ratio of loads is always defined."""


class Limits(NamedTuple):
    """The parameters of Algorithm 1.

    :ivar delta: least similarity at which a leaf may be divided by space.
    :ivar sigma: the greatest load divided by the least has to be at most this.
    :ivar theta: the most nodes.
    :ivar text: whether leaves that may be divided by space may also be divided by text, if this makes less load.
    """

    delta: float
    sigma: float
    theta: int
    text: bool = True


class Node:
    """A leaf of the kdt-tree: a rectangle with all terms or some of them.

    :param leaf: the rectangle.
    :param items: int64[], items of :attr:`Leaf.items`; None: all terms.
    :param load: its load.
    :param by_text: whether it may be divided by text only (the paper's N_t).
    """

    def __init__(self, leaf: Leaf, items: np.ndarray | None, load: float, by_text: bool) -> None:
        self.leaf, self.items, self.load, self.by_text = leaf, items, load, by_text

    @classmethod
    def whole(cls, leaf: Leaf, by_text: bool = False) -> Node:
        """Return a node with all terms of a leaf."""
        return cls(leaf, None, leaf.load, by_text)

    @classmethod
    def of_items(cls, leaf: Leaf, items: np.ndarray) -> Node:
        """Return a node with some items of a leaf."""
        part_of = np.full(len(leaf.items.loads), -1, np.int64)
        part_of[items] = 0
        return cls(leaf, items, float(leaf.part_loads(part_of, 1)[0]), True)

    @cached_property
    def contents(self) -> Contents:
        """What comes to a task that has the items."""
        assert self.items is not None
        return self.leaf.contents(self.items)

    @cached_property
    def subscriptions(self) -> np.ndarray:
        """The subscriptions of the sample that live there, int64[]."""
        return self.leaf.subscriptions if self.items is None else self.leaf.subscriptions[self.contents.subscriptions]

    @cached_property
    def load_with_repeats(self) -> float:
        """Its load, with the checks of a divided leaf that another task does, too; see :meth:`Leaf.checked_again`."""
        if self.items is None or self.leaf.loads.product:
            return self.load
        return self.load + self.leaf.loads.model.check_us * self.leaf.checked_again(self.items)


class Partition(NamedTuple):
    """The nodes of one task, and the sum of their loads."""

    nodes: list[Node]
    load: float


# -- space --------------------------------------------------------------------------------------------


def split_cells(leaf: Leaf, weights: np.ndarray, keep_items: bool = False) -> Iterator[tuple[Leaf, Leaf]]:
    """Yield both sides of a line in each direction, where the weights of the messages on both sides are most equal.

    :param weights: float64[rows].
    :param keep_items: whether both sides have the items of the leaf.
    """
    x0, y0, x1, y1 = leaf.cells
    x, y = leaf.loads.x[leaf.rows] - x0, leaf.loads.y[leaf.rows] - y0
    nothing = np.zeros(1)
    for axis, costs in (("lon", np.bincount(x, weights, x1 - x0)), ("lat", np.bincount(y, weights, y1 - y0))):
        cut = best_cut(costs, nothing) if axis == "lon" else best_cut(nothing, costs)
        if cut is None or cut.greatest >= costs.sum():
            continue
        if axis == "lon":
            boxes = CellBox(x0, y0, x0 + cut.at, y1), CellBox(x0 + cut.at, y0, x1, y1)
        else:
            boxes = CellBox(x0, y0, x1, y0 + cut.at), CellBox(x0, y0 + cut.at, x1, y1)
        named = leaf.items.named if keep_items else None
        yield leaf.inside(boxes[0], named), leaf.inside(boxes[1], named)


def _divide_once(leaf: Leaf) -> tuple[Leaf, Leaf] | None:
    """Return both sides of the line that makes the least load of the balanced ones; None: no line relieves the leaf."""
    found = [(max(a.load, b.load), a.load + b.load, a, b) for a, b in split_cells(leaf, leaf.message_loads)]
    found = [one for one in found if one[0] < leaf.load]
    if not found:
        return None
    most = max(_BALANCED * leaf.load, min(one[0] for one in found))
    _, _, a, b = min((one for one in found if one[0] <= most), key=lambda one: one[1])
    return a, b


def divide_space(leaf: Leaf, parts: int) -> Iterator[list[Leaf]]:
    """Yield the leaf divided into 1, 2, ... up to ``parts``: the costliest one is cut each time. It ends when no line relieves any."""
    queue, made, stuck = [(-leaf.load, 0, leaf)], 1, list[Leaf]()
    yield [leaf]
    while len(queue) + len(stuck) < parts and queue:
        costliest = heapq.heappop(queue)[2]
        sides = _divide_once(costliest)
        if sides is None:
            stuck.append(costliest)
            continue
        for side in sides:
            heapq.heappush(queue, (-side.load, made, side))
            made += 1
        yield [*stuck, *(one for _, _, one in queue)]


# -- text ---------------------------------------------------------------------------------------------


def assign_items(loads: np.ndarray, items: np.ndarray, parts: int) -> np.ndarray:
    """Return the part of each item, int64[len(loads)], -1 for others: the heaviest item first, each to the part with the least load so far. O(items log items).

    :param loads: float64[], of all items.
    :param items: int64[], those to assign.
    """
    part_of = np.full(len(loads), -1, np.int64)
    queue = [(0.0, part) for part in range(parts)]
    own = loads[items]
    for i in np.argsort(-own, kind="stable").tolist():
        load, part = queue[0]
        part_of[items[i]] = part
        heapq.heapreplace(queue, (load + float(own[i]), part))
    return part_of


def divide_text(node: Node, parts: int) -> list[Node]:
    """Return a node whose items are divided; at most as many nodes as it has items with a load."""
    all_items = node.leaf.items
    items = np.arange(len(all_items.loads)) if node.items is None else node.items
    parts = min(parts, max(1, int(np.count_nonzero(all_items.loads[items]))))
    if parts == 1:
        return [node]
    part_of = assign_items(all_items.loads, items, parts)
    loads = node.leaf.part_loads(part_of, parts)
    return [Node(node.leaf, np.flatnonzero(part_of == part), float(loads[part]), True) for part in range(parts)]


# -- Algorithm 1 --------------------------------------------------------------------------------------


def _first_phase(root: Leaf, limits: Limits) -> list[Node]:
    """Divide the space into leaves that are similar in text, and such as will not become less similar (lines 2 to 12)."""
    unknown, decided = [(root, root.similarity())], list[Node]()
    while unknown:
        leaf, similarity = unknown.pop(0)
        if similarity >= limits.delta:
            decided.append(Node.whole(leaf))
            continue
        sides = [(min(a.similarity(), b.similarity()), a, b) for a, b in split_cells(leaf, np.ones(len(leaf.rows)))] if len(leaf.rows) >= _FEWEST else []
        least = min((one[0] for one in sides), default=similarity)
        if abs(least - similarity) <= _SAME or len(unknown) + len(decided) + 2 > limits.theta:
            decided.append(Node.whole(leaf, True))
            continue
        _, a, b = next(one for one in sides if one[0] == least)
        unknown += [(a, a.similarity()), (b, b.similarity())]
    return decided


def _partition_node(node: Node, parts: int, limits: Limits) -> list[Node]:
    """Divide a node (PartitionNode): by text if it is one of N_t, else by space or by text, whichever makes less load."""
    if node.by_text or node.items is not None:
        return divide_text(node, parts)
    *_, leaves = divide_space(node.leaf, parts)
    by_space = [Node.whole(leaf) for leaf in leaves]
    by_text = divide_text(node, parts) if limits.text else [node]
    return min(by_space, by_text, key=lambda nodes: (-len(nodes), sum(one.load for one in nodes)))


def _numbers_of_partitions(nodes: Sequence[Node], tasks: int, limits: Limits) -> list[int]:
    """Return into how many each node is divided, so that the sum of loads is least (ComputeNumberPartitions): a dynamic programme. O(nodes * tasks^2), and trials."""
    most = tasks - len(nodes) + 1
    sums = np.full((len(nodes), most + 1), np.inf)
    for i, node in enumerate(nodes):
        for k in range(1, most + 1 if node.by_text or limits.text else 2):
            divided = divide_text(node, k)
            if len(divided) == k:
                sums[i, k] = sum(one.load for one in divided)
        for leaves in divide_space(node.leaf, most) if not node.by_text else ():
            sums[i, len(leaves)] = min(sums[i, len(leaves)], sum(leaf.load for leaf in leaves))
    least = np.full((len(nodes) + 1, tasks + 1), np.inf)
    chosen = np.zeros((len(nodes) + 1, tasks + 1), np.int64)
    least[0, 0] = 0.0
    for i, j in itertools.product(range(1, len(nodes) + 1), range(1, tasks + 1)):
        parts = np.arange(1, min(most, j) + 1)
        options = least[i - 1, j - parts] + sums[i - 1, parts]
        best = int(options.argmin())
        least[i, j], chosen[i, j] = options[best], parts[best]
    left = int(np.flatnonzero(np.isfinite(least[-1]))[-1])  # as many as can be
    counts = []
    for i in range(len(nodes), 0, -1):
        counts.append(int(chosen[i, left]))
        left -= counts[-1]
    return counts[::-1]


def merge_nodes(nodes: Sequence[Node], tasks: int) -> list[Partition]:
    """Give each node to a task (MergeNodesIntoPartitions).

    In falling order of loads, each goes to the task whose load it raises least, if the ratio of the greatest to the least load does not rise, and else to the one with the
    least load. It raises a load by less than its own where messages come to the task anyway, for other terms of the same rectangle.
    """
    loads, own = np.full(tasks, _IDLE), list[list[Node]]([] for _ in range(tasks))
    shares: dict[int, Shares] = {}  # of each divided leaf
    for node in sorted(nodes, key=lambda node: -node.load):
        if node.items is None:
            added = np.full(tasks, node.load)
        else:
            if id(node.leaf) not in shares:
                shares[id(node.leaf)] = Shares(node.leaf, tasks)
            added = shares[id(node.leaf)].added(node.contents)
        order = np.lexsort((loads, added))
        task = int(order[0])
        ratio = loads.max() / loads.min()
        after = loads.copy()
        after[task] += added[task]
        if after.max() / after.min() > ratio:
            task = int(loads.argmin())
        loads[task] += added[task]
        own[task].append(node)
        if node.items is not None:
            shares[id(node.leaf)].add(task, node.contents)
    return [Partition(some, float(load)) for some, load in zip(own, loads)]


def exchange_leaves(partitions: Sequence[Partition]) -> list[Partition]:
    """Exchange whole leaves between tasks, so that a task has neighbours and fewer subscriptions live on several tasks. No load leaves the range of all loads.

    The exchange or move that keeps most subscriptions together comes first. O(leaves ** 2) for each, after O(leaves ** 2 * subscriptions) once.
    """
    whole = [(node, task) for task, partition in enumerate(partitions) for node in partition.nodes if node.items is None]
    if len(whole) < 2 or len(partitions) < 2:
        return list(partitions)
    shared = _shared([node.leaf.subscriptions for node, _ in whole], whole[0][0].leaf.loads.sample.n)
    tasks, own = np.array([task for _, task in whole]), np.array([node.load for node, _ in whole])
    loads = np.array([partition.load for partition in partitions])
    least, greatest, every = loads.min(), loads.max(), np.arange(len(whole))

    def fits(load: np.ndarray) -> np.ndarray:
        return (load >= least) & (load <= greatest)

    for _ in range(_EXCHANGES * len(whole)):
        near = np.zeros((len(whole), len(partitions)))
        np.add.at(near.T, tasks, shared)  # subscriptions that a leaf shares with those of each task
        here = near[every, tasks]
        there = near[:, tasks]  # of leaf i with the task of leaf j
        moves = np.where(fits(loads + own[:, None]) & fits(loads[tasks] - own)[:, None], near - here[:, None], 0.0)
        moves[every, tasks] = 0.0
        after = loads[tasks][:, None] - own[:, None] + own
        swaps = np.where(fits(after) & fits(after.T), there + there.T - here[:, None] - here - 2 * shared, 0.0)
        swaps[tasks[:, None] == tasks] = 0.0
        i, j = np.unravel_index(int(swaps.argmax()), swaps.shape)
        leaf, task = np.unravel_index(int(moves.argmax()), moves.shape)
        if max(swaps[i, j], moves[leaf, task]) <= 0:
            break
        if swaps[i, j] >= moves[leaf, task]:
            loads[tasks[i]], loads[tasks[j]] = after[i, j], after[j, i]
            tasks[i], tasks[j] = tasks[j], tasks[i]
        else:
            loads[tasks[leaf]], loads[task] = loads[tasks[leaf]] - own[leaf], loads[task] + own[leaf]
            tasks[leaf] = task
    nodes = [[node for node in partition.nodes if node.items is not None] for partition in partitions]
    for (node, _), task in zip(whole, tasks.tolist()):
        nodes[task].append(node)
    return [Partition(some, float(load)) for some, load in zip(nodes, loads)]


def _shared(subscriptions: Sequence[np.ndarray], n: int) -> np.ndarray:
    """Return how many subscriptions two different leaves share, float64[leaves, leaves].

    :param subscriptions: of each leaf, int64[], rising; below ``n``.
    """
    found = np.zeros((len(subscriptions), len(subscriptions)))
    held = np.zeros((len(subscriptions), min(n, _AT_A_TIME)), np.float32)
    for start in range(0, n, _AT_A_TIME):
        held[:] = 0.0
        for row, some in zip(held, subscriptions):
            first, end = np.searchsorted(some, (start, start + _AT_A_TIME))
            row[some[first:end] - start] = 1.0
        found += held @ held.T  # counts are exact in float32
    np.fill_diagonal(found, 0.0)
    return found


def _cut_by_space(nodes: Sequence[Node], largest: Node) -> list[Node] | None:
    """Return nodes of which all with the rectangle of the largest one are cut by the same line; None if this does not relieve it.

    The paper divides such nodes by text only. But one term may be most of the load of a task.
    """
    assert largest.items is not None
    found: tuple[float, list[Node]] | None = None
    for sides in split_cells(largest.leaf, largest.leaf.item_loads(largest.items), keep_items=True):
        cut = [Node.of_items(side, node.items) for node in nodes if node.leaf is largest.leaf and node.items is not None for side in sides]
        greatest = max(Node.of_items(side, largest.items).load for side in sides)
        if greatest < _RELIEVED * largest.load and (found is None or greatest < found[0]):
            found = greatest, cut
    return None if found is None else [*(node for node in nodes if node.leaf is not largest.leaf), *found[1]]


def _with_largest_divided(nodes: Sequence[Node], limits: Limits) -> list[Node]:
    """Return nodes of which the largest that can be divided are (the paper divides one at a time, which ends at the same limit)."""
    largest = max(nodes, key=lambda node: node.load)
    if largest.items is not None and max(node.load for node in divide_text(largest, 2)) >= _RELIEVED * largest.load:
        cut = _cut_by_space(nodes, largest)
        if cut is not None and len(cut) <= limits.theta:
            return cut
    wanted, found = max(1, min(len(nodes) // _AT_ONCE, limits.theta - len(nodes))), list[Node]()
    for node in sorted(nodes, key=lambda node: -node.load):
        divided = _partition_node(node, 2, limits) if wanted else [node]
        wanted -= len(divided) > 1
        found += divided
    return found


def hybrid_partitions(root: Leaf, tasks: int, limits: Limits) -> list[Partition]:
    """Return the nodes of each task."""
    return _second_phase(_first_phase(root, limits), tasks, limits)


def _second_phase(nodes: list[Node], tasks: int, limits: Limits) -> list[Partition]:
    """Divide nodes until there are enough and their loads are balanced (lines 13 to 28)."""
    if len(nodes) < tasks:
        counts = _numbers_of_partitions(nodes, tasks, limits)
        nodes = [part for node, count in zip(nodes, counts) for part in _partition_node(node, count, limits)]
    best: tuple[float, float, list[Partition]] | None = None
    while True:
        partitions = merge_nodes(nodes, tasks)
        loads = [partition.load for partition in partitions]
        if best is None or max(loads) < best[0] / _EQUAL or (max(loads) < best[0] * _EQUAL and min(loads) > best[1]):
            best = max(loads), min(loads), partitions
        if max(loads) <= limits.sigma * min(loads):
            return partitions
        divided = _with_largest_divided(nodes, limits) if len(nodes) < limits.theta else nodes
        if len(divided) == len(nodes):
            return best[2]
        nodes = divided


def candidates(root: Leaf, tasks: int, sigma: float, theta: int) -> list[Limits]:
    """Return parameters that lead to different plans.

    The paper has one threshold of similarity, which suits its data. Here all that make a difference are tried: 0, where space divides everything, with and without the choice of text; and some up to the
    highest similarity of a leaf, and above it, where text divides everything. The last ones lead to trees of few zones: a kd-tree with one for each task, and one with twice as many.
    """
    found, tried = list[Limits](), set()
    for delta, text in itertools.product(_DELTAS, (False, True)):
        limits = Limits(delta, sigma, theta, text)
        nodes = _first_phase(root, limits)
        kinds = text, tuple((node.leaf.cells, node.by_text) for node in nodes)
        if kinds not in tried and not (text and all(node.by_text for node in nodes)):
            tried.add(kinds)
            found.append(limits)
    return found + [Limits(0.0, sigma, most, False) for most in (tasks, 2 * tasks) if most < theta]


def zones_of(partitions: Sequence[Partition], messages: int) -> list[Zone]:
    """Return the zones of a plan: a leaf whose nodes have different tasks is divided.

    :param messages: of the sample; loads are per message.
    """
    owned = [(node, task) for task, partition in enumerate(partitions) for node in partition.nodes]
    leaves = {id(node.leaf): node.leaf for node, _ in owned}
    found = []
    for key, leaf in sorted(leaves.items(), key=lambda item: item[1].cells):
        parts = []
        for node, task in owned:
            if id(node.leaf) == key:
                terms, buckets = leaf.items.described(node.items) if node.items is not None else ((), ())
                parts.append(Part(task, node.load / messages, terms, buckets))
        found.append(Zone(leaf.cells, ()).with_parts(parts))
    return found
