"""Distribution by keywords: all of them, or those of the loose prefix (journal paper, sections 7.3.3 and 7.3.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dskype.distribution.base import Sample
from dskype.distribution.learning.cooccurrence import learn_cooccurring
from dskype.distribution.learning.cuts import learn_ranges, uniform_ranges
from dskype.distribution.methods.partitioned import METHODS, Partitioned, work_of, work_overhead
from dskype.distribution.plans import Node
from dskype.distribution.routing import _kernels as kernels
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.groupings import RowTasks

__all__ = ["KeywordDistributor", "PrefixDistributor", "checked_slack", "loose_limit"]


class KeywordDistributor(Partitioned):
    """Places a subscription on the task of each of its keywords; a message goes to the tasks of its keywords.

    Tasks own consecutive ranges of the vocabulary, which is ordered by frequency; the ranges have equal cost (Algorithm 4). Replication and
    communication are at most the number of keywords. A boolean subscription lives on the tasks of its trigger, a few keywords of which
    every message that satisfies it has one: for an AND those of one operand, for an OR those of all operands.

    :param options: besides ``method``, the ``cost`` of a range: ``product`` (default, equation 16), or ``work``: its subscriptions, which weigh less if
        their lists are not full, plus an overhead for each message.
    """

    name = "keyword"
    legal_options: ClassVar[tuple[str, ...]] = ("method", "cost")
    methods: ClassVar[tuple[str, ...]] = ("together", *METHODS)

    def task_loads(self, sample: Sample, offsets: np.ndarray, tasks: np.ndarray, routes: RowTasks | None) -> np.ndarray:
        """Return the cost of each task for a sample that was placed and routed."""
        if self.options.get("cost") != "work" or routes is None:
            return super().task_loads(sample, offsets, tasks, routes)
        weights = work_of(sample)
        work = np.bincount(tasks, np.repeat(weights, np.diff(offsets)), self.tasks)
        return work + work_overhead(sample, weights) * np.bincount(routes.tasks, minlength=self.tasks)

    @classmethod
    def uniform(cls, tasks: int, options: Mapping[str, Any]) -> Node:
        """Return ranges of equal length on a logarithmic scale."""
        return uniform_ranges(range(tasks))

    @classmethod
    def learned(cls, tasks: int, sample: Sample, options: Mapping[str, Any]) -> Node:
        """Return ranges of words that occur together, or of equal cost."""
        lengths = cls(tasks, options).prefixes(sample)
        if options["method"] == "together":
            work = work_of(sample)
            return learn_cooccurring(sample, lengths, work, work_overhead(sample, work), tasks)
        return learn_ranges(cls.cost(sample, options, lengths), range(tasks), balanced=options["method"] == "balanced")


def checked_slack(name: str, options: Mapping[str, Any]) -> float:
    """Return the option ``slack``: a number from 0 to 1, default 0.1."""
    slack = options.get("slack", 0.1)
    if type(slack) not in (int, float) or not 0 <= slack <= 1:
        raise IllegalArgumentException(f"The option slack of the {name} distributor is not usable.", given=slack, legal="a number from 0 to 1")
    return float(slack)


def loose_limit(threshold: float | None, slack: float) -> float:
    """Return the limit for which a prefix is computed: somewhat below the threshold. Without a threshold it is inf: one keyword is enough."""
    if threshold is None:
        return np.inf
    return threshold if math.isinf(threshold) else threshold - slack * abs(threshold)


class PrefixDistributor(KeywordDistributor):
    """Places a subscription on the tasks of its loose prefix only. A message goes to the tasks of its keywords.

    The loose prefix is the shortest list of rarest keywords such that no message without any of them reaches the threshold, wherever it is
    (Definition 12, Lemma 7). Later keywords that belong to a task of the prefix count as covered. Without a threshold the rarest keyword alone
    is the prefix.

    :param options: besides ``method`` and ``cost``, ``slack`` (default 0.1): the prefix is computed for ``threshold - slack * |threshold|``, so that
        it seldom has to grow.
    """

    name = "prefix"
    legal_options: ClassVar[tuple[str, ...]] = ("method", "cost", "slack")

    @classmethod
    def checked(cls, tasks: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return all options, checked."""
        found = super().checked(tasks, options)
        return {**found, "slack": checked_slack(cls.name, found)}

    def limit(self, threshold: float | None) -> float:
        """Return the score that the guard has to stay below."""
        return loose_limit(threshold, self.options["slack"])

    def prefixes(self, sample: Sample) -> np.ndarray:
        """Return the lengths of loose prefixes."""
        limits = np.array([self.limit(t) for t in sample.thresholds.tolist()])
        return kernels.prefix_lengths(sample.offsets, sample.weights, sample.alpha, limits)
