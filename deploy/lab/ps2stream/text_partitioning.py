"""Partitioning by text alone: each task has a part of the terms, everywhere (PS2Stream, section VI-B)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dskype.deploy.lab.ps2stream.hypergraphs import partition_hypergraph
from dskype.distribution.agrid.grid import AGrid, CellBox
from dskype.distribution.base import Sample
from dskype.distribution.hybrid.gridt import BUCKETS, Part, Zone
from dskype.distribution.hybrid.gridt_distributor import GridtDistributor, sample_loads
from dskype.distribution.hybrid.kdt_tree import assign_items
from dskype.distribution.hybrid.leaf_loads import Leaf
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["METHODS", "TextPartitioningDistributor"]

_SLACK = 1.1
"""How many times the mean load a task may get, with the metric."""


def by_frequency(leaf: Leaf, tasks: int) -> np.ndarray:
    """Return the task of each item: the most frequent one first, each to the task with the least sum of frequencies."""
    frequencies = _frequencies(leaf)
    return assign_items(frequencies, np.arange(len(frequencies)), tasks)


def by_metric(leaf: Leaf, tasks: int) -> np.ndarray:
    """Return the task of each item by the metric of S3-TM: a term goes where most of its messages go already, less the more loaded the task is. One pass, the most frequent first.

    O(terms of messages * tasks).
    """
    items, frequencies = leaf.items, _frequencies(leaf)
    order = np.argsort(items.of_entries, kind="stable")
    starts = np.searchsorted(items.of_entries[order], np.arange(len(frequencies) + 1))
    rows = leaf.row_of_entries[order]
    comes = np.zeros((len(leaf.rows), tasks), np.bool_)
    loads, most = np.zeros(tasks), _SLACK * max(1e-9, float(items.loads.sum()) / tasks)
    part_of = np.zeros(len(frequencies), np.int64)
    for item in np.argsort(-frequencies, kind="stable").tolist():
        own = rows[starts[item] : starts[item + 1]]
        score = (1.0 + comes[own].sum(axis=0)) * (1.0 - loads / most)
        best = np.flatnonzero(score == score.max())
        task = int(best[loads[best].argmin()])
        part_of[item] = task
        comes[own, task] = True
        loads[task] += items.loads[item]
    return part_of


def by_hypergraph(leaf: Leaf, tasks: int) -> np.ndarray:
    """Return the task of each item: terms are vertices, messages are hyperedges, and a hyperedge costs the number of tasks that it touches.

    :raises IllegalArgumentException: the package that partitions hypergraphs, an extra, is not installed.
    """
    return partition_hypergraph(leaf.items.of_entries, leaf.row_of_entries, leaf.items.loads, tasks)


METHODS: dict[str, Callable[[Leaf, int], np.ndarray]] = {"frequency": by_frequency, "hypergraph": by_hypergraph, "metric": by_metric}
"""Option ``method`` -> what assigns items."""


def _frequencies(leaf: Leaf) -> np.ndarray:
    """Return in how many messages and subscriptions each item is, float64[items]."""
    items = leaf.items
    return np.bincount(items.of_entries, minlength=len(items.loads)) + np.bincount(items.of_triggers, minlength=len(items.loads)).astype(np.float64)


class TextPartitioningDistributor(GridtDistributor):
    """Divides the terms of the whole world.

    :param options: ``method``: ``metric`` (default), ``hypergraph`` or ``frequency``. Others: :class:`GridtDistributor`.
    """

    name = "text-partitioning"
    legal_options = (*GridtDistributor.legal_options, "method")

    @classmethod
    def checked(cls, tasks: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return all options with their defaults, checked."""
        return check_method(cls.name, {"method": "metric", **super().checked(tasks, options)}, METHODS)

    @classmethod
    def unlearned(cls, tasks: int, options: Mapping[str, Any]) -> list[Zone]:
        """Return one zone, whose buckets the tasks have in turn."""
        n = options["granularity"]
        parts = [Part(task, 1.0, (), tuple(range(task, BUCKETS, tasks))) for task in range(min(tasks, BUCKETS))]
        return [Zone(CellBox(0, 0, n, n), ()).with_parts(parts)]

    @classmethod
    def learned(cls, tasks: int, grid: AGrid, sample: Sample, options: Mapping[str, Any]) -> list[Zone]:
        """Return one zone with the terms of each task."""
        leaf = sample_loads(grid, sample, options).root()
        part_of = METHODS[options["method"]](leaf, tasks)
        loads = leaf.part_loads(part_of, tasks) / sample.messages.n
        parts = [Part(task, float(loads[task]), *leaf.items.described(np.flatnonzero(part_of == task))) for task in range(tasks)]
        return [Zone(leaf.cells, ()).with_parts(parts)]


def check_method(name: str, options: dict[str, Any], methods: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """Return the options of a distributor with a ``method``.

    :raises IllegalArgumentException: there is no such method.
    """
    if options["method"] not in list(methods):
        raise IllegalArgumentException(
            explain(f"The option method of the {name} distributor is not usable.", given=options["method"], legal=" | ".join(sorted(methods)))
        )
    return options
