"""Distribution by location (journal paper, section 7.3.2)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from dskype.distribution.base import Placed, Sample
from dskype.distribution.learning.cuts import learn_tree, uniform_tree
from dskype.distribution.methods.partitioned import Partitioned, work_of
from dskype.distribution.plans import Node
from dskype.distribution.routing import _kernels as kernels
from dskype.distribution.subscriptions import BooleanSubscription, Subscription
from dskype.spouts.areas import centre_of
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks

__all__ = ["LocationDistributor"]


class LocationDistributor(Partitioned):
    """Places a subscription by its place in a leaf of a KD-tree, a boolean one by the centre of its rectangle. Every task needs every message.

    The leaves have equal cost: subscriptions inside x the probability of a message inside (Algorithm 3). Near messages make the work;
    distance rules far ones out. Replication 1, communication N.

    :param options: besides ``method``, the ``cost`` of a leaf: ``product`` (default, equation 15), or ``work``: its subscriptions, weighed by how full
        their lists are. ``summaries`` (default false): a task gets only messages with a routing term of its subscriptions.
    """

    name = "location"
    legal_options = ("method", "cost", "summaries")
    cuts = "places"
    summaries = False

    @classmethod
    def uniform(cls, tasks: int, options: Mapping[str, Any]) -> Node:
        """Return cells of equal area."""
        return uniform_tree(range(tasks))

    @classmethod
    def learned(cls, tasks: int, sample: Sample, options: Mapping[str, Any]) -> Node:
        """Return the tree of Algorithm 3."""
        by_work = options["cost"] == "work"
        return learn_tree(
            sample.lat,
            sample.lon,
            sample.messages.lat,
            sample.messages.lon,
            range(tasks),
            weighed=not by_work,
            weights=work_of(sample) if by_work else None,
            balanced=options["method"] == "balanced",
        )

    def place(self, name: str, subscription: Subscription, threshold: float | None = None) -> Placed:
        """Return the task of its place."""
        lat, lon = centre_of(*subscription.bbox) if isinstance(subscription, BooleanSubscription) else (subscription.lat, subscription.lon)
        node = self._root
        while "axis" in node:
            node = node["below"] if (lat if node["axis"] == "lat" else lon) < node["at"] else node["above"]
        tasks = node["tasks"]
        return Placed([tasks[0] if len(tasks) == 1 else tasks[zlib.crc32(name.encode()) % len(tasks)]])

    def place_all(self, sample: Sample, thresholds: np.ndarray | None = None, hashes: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Place all subscriptions of a sample at once."""
        without = sample._replace(offsets=np.arange(sample.n + 1), terms=np.zeros(sample.n, np.int64), weights=np.ones(sample.n))
        return super().place_all(without, np.full(sample.n, -np.inf), hashes)

    def message_tasks(self, messages: MessageBatch) -> RowTasks | None:
        """Return None: every task needs every message. If some tasks have no partition, return the others."""
        used = self._flat.routes.tasks
        if len(used) == self.tasks:
            return None
        rows = np.flatnonzero(np.diff(messages.offsets))
        return RowTasks(np.repeat(rows, len(used)), np.tile(used.astype(np.int32), len(rows)))

    def task_loads(self, sample: Sample, offsets: np.ndarray, tasks: np.ndarray, routes: RowTasks | None) -> np.ndarray:
        """Return, of each task, the sum over its leaves of subscriptions x the probability of a message inside (equation 15), or of their work."""
        if self.options["cost"] == "work":
            return np.bincount(tasks, np.repeat(work_of(sample), np.diff(offsets)), self.tasks)
        flat, n = self._flat, max(1, sample.messages.n)
        count = len(flat.cells) - 1
        subscriptions = np.bincount(kernels.cells_of(sample.lat, sample.lon, flat.root, flat.lines), minlength=count)
        messages = np.bincount(kernels.cells_of(sample.messages.lat, sample.messages.lon, flat.root, flat.lines), minlength=count)
        sizes = np.diff(flat.group_offsets)
        costs = np.repeat(subscriptions * (messages / n) / sizes, sizes)
        return np.bincount(flat.group_tasks, costs, self.tasks)
