"""Two-level hybrid distribution: first by location and then by keywords, or the other way round (journal paper, section 8.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dskype.distribution.base import Sample
from dskype.distribution.learning.cuts import first_terms, learn_ranges, learn_tree, uniform_ranges, uniform_tree
from dskype.distribution.methods.keyword import PrefixDistributor
from dskype.distribution.methods.partitioned import METHODS
from dskype.distribution.plans import Node, flatten
from dskype.distribution.routing import _kernels as kernels
from dskype.topology.errors import IllegalArgumentException

__all__ = ["KeywordFirstDistributor", "SpatialFirstDistributor"]


class _Hybrid(PrefixDistributor):
    """Two levels of partitions: ``n1`` on the first, ``n2`` inside each of them.

    :param options: besides those of the prefix distributor, ``n1`` and ``n2`` with n1 * n2 = tasks (if one is missing it follows from the other; if
        both are missing, n1 is the greatest divisor of the number of tasks up to its square root), and ``keywords``: ``prefix`` (default), or
        ``keyword``: all keywords count.
    """

    legal_options = ("method", "slack", "n1", "n2", "keywords")
    methods = METHODS

    @classmethod
    def checked(cls, tasks: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return all options, checked."""
        found = {"keywords": "prefix", **super().checked(tasks, options)}
        if found["keywords"] not in ("prefix", "keyword"):
            raise IllegalArgumentException(
                f"The option keywords of the {cls.name} distributor is not usable.", given=found["keywords"], legal="prefix | keyword"
            )
        for option in ("n1", "n2"):
            if option in found and (type(found[option]) is not int or found[option] < 1):
                raise IllegalArgumentException(
                    f"The option {option} of the {cls.name} distributor is not usable.", given=found[option], legal="an integer, 1 or more"
                )
        n1, n2 = found.get("n1"), found.get("n2")
        if n1 is None:
            n1 = tasks // n2 if n2 else max(n for n in range(1, int(tasks**0.5) + 1) if tasks % n == 0)
        if n2 is None:
            n2 = max(1, tasks // n1)
        if n1 * n2 != tasks:
            raise IllegalArgumentException(
                f"The options n1 and n2 of the {cls.name} distributor do not fit the tasks of the subscription bolt.",
                given=f"{n1} x {n2}",
                legal=f"n1 * n2 = {tasks}",
            )
        return {**found, "n1": n1, "n2": n2}

    def limit(self, threshold: float | None) -> float:
        """Return the score that the guard has to stay below."""
        return -np.inf if self.options["keywords"] == "keyword" else super().limit(threshold)

    def prefixes(self, sample: Sample) -> np.ndarray:
        """Return how many keywords of each subscription count."""
        return np.diff(sample.offsets) if self.options["keywords"] == "keyword" else super().prefixes(sample)

    @classmethod
    def _lengths(cls, tasks: int, sample: Sample, options: Mapping[str, Any]) -> np.ndarray:
        return cls(tasks, options).prefixes(sample)


class SpatialFirstDistributor(_Hybrid):
    """Places a subscription by its place in one of ``n1`` cells, and there by its keywords on some of ``n2`` tasks.

    A message goes to the tasks of its keywords in every cell, so communication is up to n1 times that of the prefix distributor. Since all cells
    get every message, they hold equally many subscriptions. Each cell has its own ranges of keywords.
    """

    name = "spatial-first"

    @classmethod
    def uniform(cls, tasks: int, options: Mapping[str, Any]) -> Node:
        """Return cells of equal area, each with equal ranges."""
        return _replaced(uniform_tree(range(options["n1"])), lambda cell: uniform_ranges(_block(cell, options["n2"])), options["n2"])

    @classmethod
    def learned(cls, tasks: int, sample: Sample, options: Mapping[str, Any]) -> Node:
        """Return cells of equally many subscriptions, with ranges of equal cost."""
        n2, balanced, lengths = options["n2"], options["method"] == METHODS[0], cls._lengths(tasks, sample, options)
        tree = learn_tree(sample.lat, sample.lon, sample.messages.lat, sample.messages.lon, range(options["n1"]), weighed=False, balanced=balanced)
        cells = _cells_of(tree, sample)

        def inside(cell: int) -> Node:
            return learn_ranges(cls.cost(sample, options, lengths, np.flatnonzero(cells == cell)), _block(cell, n2), balanced=balanced)

        return _replaced(tree, inside, n2)


class KeywordFirstDistributor(_Hybrid):
    """Places a subscription by its keywords in some of ``n1`` ranges, and in each by its place on one of ``n2`` tasks.

    A message goes to all tasks of the ranges of its keywords, so communication is up to n2 times that of a prefix distributor with n1 tasks. Since
    all tasks of a range get the same messages, they hold equally many subscriptions.
    """

    name = "keyword-first"
    cuts = "places"

    @classmethod
    def uniform(cls, tasks: int, options: Mapping[str, Any]) -> Node:
        """Return equal ranges, each with cells of equal area."""
        n2 = options["n2"]
        return {
            "ranges": [
                {"from": part["from"], "node": uniform_tree(_block(part["node"]["tasks"][0], n2))} for part in uniform_ranges(range(options["n1"]))["ranges"]
            ]
        }

    @classmethod
    def learned(cls, tasks: int, sample: Sample, options: Mapping[str, Any]) -> Node:
        """Return ranges of equal cost, each with cells of equally many subscriptions."""
        n2, balanced, lengths = options["n2"], options["method"] == METHODS[0], cls._lengths(tasks, sample, options)
        ranges = learn_ranges(cls.cost(sample, options, lengths), range(options["n1"]), balanced=balanced)["ranges"]
        owners, terms = first_terms(sample.offsets, sample.terms, lengths)
        none = np.zeros(0)
        ends = [part["from"] for part in ranges[1:]]
        parts = []
        for part, end in zip(ranges, [*ends, np.iinfo(np.int64).max]):
            rows = np.unique(owners[(terms >= part["from"]) & (terms < end)])
            tasks_of_range = [task for block in part["node"]["tasks"] for task in _block(block, n2)]
            parts.append(
                {"from": part["from"], "node": learn_tree(sample.lat[rows], sample.lon[rows], none, none, tasks_of_range, weighed=False, balanced=balanced)}
            )
        return {"ranges": parts}


def _block(number: int, size: int) -> range:
    return range(number * size, (number + 1) * size)


def _cells_of(tree: Node, sample: Sample) -> np.ndarray:
    """Return the first task of each subscription's leaf, int64[n]."""
    flat = flatten(tree)
    return flat.group_tasks[flat.group_offsets[kernels.cells_of(sample.lat, sample.lon, flat.root, flat.lines)]]


def _replaced(node: Node, make: Callable[[int], Node], n2: int) -> Node:
    """Return a tree of cells with ``make(cell)`` in place of each leaf."""
    if "axis" in node:
        return {**node, "below": _replaced(node["below"], make, n2), "above": _replaced(node["above"], make, n2)}
    first, *others = node["tasks"]
    ranges = make(first)
    for part in ranges["ranges"]:  # cells that cannot be told apart share their subscriptions
        tasks = part["node"]["tasks"]
        part["node"]["tasks"] = [*tasks, *(task + (other - first) * n2 for other in others for task in tasks)]
    return ranges
