"""Chooses the parameters of hybrid partitioning by messages and subscriptions that a plan was not learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dskype.distribution.base import Sample
from dskype.distribution.hybrid.kdt_tree import Limits, Partition, candidates, exchange_leaves, hybrid_partitions, zones_of
from dskype.distribution.hybrid.leaf_loads import Leaf
from dskype.distribution.hybrid.migration import loads_of_zones
from dskype.distribution.learning.sampling import halves

__all__ = ["Judged", "chosen_partitions", "judged"]

_DRAWS = 3
"""So many times a sample is divided into halves, because the greatest of many loads depends much on chance."""
_HOPELESS = 1.25
"""Parameters whose plans have so many times the least greatest load after the first draw are not judged further."""
_LEVEL = 0.97
"""Greatest loads that differ by less than this factor are level: the rest is chance, and fewer copies of subscriptions are sure."""


class Judged(NamedTuple):
    """What plans with some parameters would cost.

    :ivar greatest: the greatest load of a task, in us for a message; ``sum``: that of all tasks.
    """

    limits: Limits
    greatest: float
    sum: float


def judged(root_of: Callable[[Sample], Leaf], sample: Sample, tasks: int, every: list[Limits]) -> list[Judged]:
    """Learn a plan from each half of a sample, and return what it costs for the other half: the mean of both, and of some draws of halves.

    A plan is always even for what it was learned from, and the more so, the more parts it has. It does not follow that it is even for what comes.

    :param root_of: returns the whole world with the loads of a sample.
    """
    loads: list[list[np.ndarray]] = [[] for _ in every]
    hopeful: Sequence[int] = range(len(every))
    for draw in range(_DRAWS):
        roots = [root_of(half) for half in halves(sample, draw)]
        for i in hopeful:
            for own, other in (roots, roots[::-1]):
                zones = zones_of(hybrid_partitions(own, tasks, every[i]), len(own.rows))
                loads[i].append(loads_of_zones(other, zones, tasks) / len(other.rows))
        greatest = [float(np.mean([each.max() for each in some])) for some in loads]
        hopeful = [i for i in hopeful if greatest[i] <= _HOPELESS * min(greatest)]
    return [Judged(limits, most, float(np.mean([each.sum() for each in some]))) for limits, most, some in zip(every, greatest, loads)]


def chosen_partitions(root: Leaf, root_of: Callable[[Sample], Leaf], sample: Sample, tasks: int, sigma: float, theta: int) -> list[Partition]:
    """Return the plan, learned from the whole sample, with the parameters whose plans have the least greatest load; of level ones those with the least sum.

    The same parameters may lead to another kind of tree with twice the sample. A plan that costs more for what it was learned from than the plans by
    which its parameters were judged is not taken.

    :param root: the whole world with the loads of the sample; ``root_of``: as of :func:`judged`.
    :param sigma: the greatest load of a task may be so many times the least; ``theta``: the most zones.
    """
    every = candidates(root, tasks, sigma, theta)
    found = judged(root_of, sample, tasks, every) if len(every) > 1 else []
    while found:
        least = min(one.greatest for one in found)
        best = min((one for one in found if _LEVEL * one.greatest <= least), key=lambda one: one.sum)
        plan = hybrid_partitions(root, tasks, best.limits)
        if loads_of_zones(root, zones_of(plan, len(root.rows)), tasks).max() <= best.greatest * len(root.rows):
            return exchange_leaves(plan)
        found.remove(best)
    return exchange_leaves(hybrid_partitions(root, tasks, every[-1]))
