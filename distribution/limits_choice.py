"""Chooses the parameters of hybrid partitioning by messages and subscriptions that a plan was not learned from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dskype.distribution.base import Sample
from dskype.distribution.kdt_tree import Limits, candidates, hybrid_partitions, zones_of
from dskype.distribution.leaf_loads import Leaf
from dskype.distribution.migration import loads_of_zones
from dskype.distribution.sampling import halves

__all__ = ["Judged", "chosen_limits", "judged"]

_LEVEL = 0.95
"""Greatest loads that differ by less than this factor are level: the rest is chance, and fewer copies of subscriptions are sure."""


class Judged(NamedTuple):
    """What plans with some parameters would cost.

    :ivar greatest: the greatest load of a task, in us for a message; ``sum``: that of all tasks.
    """

    limits: Limits
    greatest: float
    sum: float


def judged(root_of: Callable[[Sample], Leaf], sample: Sample, tasks: int, every: list[Limits]) -> list[Judged]:
    """Learn a plan from each half of a sample, and return what it costs for the other half: the mean of both.

    A plan is always even for what it was learned from, and the more so, the more parts it has. It does not follow that it is even for what comes.

    :param root_of: returns the whole world with the loads of a sample.
    """
    roots = [root_of(half) for half in halves(sample)]
    found = []
    for limits in every:
        loads = []
        for own, other in (roots, roots[::-1]):
            zones = zones_of(hybrid_partitions(own, tasks, limits), len(own.rows))
            loads.append(loads_of_zones(other, zones, tasks) / len(other.rows))
        found.append(Judged(limits, float(np.mean([each.max() for each in loads])), float(np.mean([each.sum() for each in loads]))))
    return found


def chosen_limits(root: Leaf, root_of: Callable[[Sample], Leaf], sample: Sample, tasks: int, sigma: float, theta: int) -> Limits:
    """Return the parameters whose plans have the least greatest load; of those that are level with them the ones with the least sum.

    :param root: the whole world with the loads of the sample; ``root_of``: as of :func:`judged`.
    :param sigma: the greatest load of a task may be so many times the least; ``theta``: the most zones.
    """
    every = candidates(root, tasks, sigma, theta)
    if len(every) == 1:
        return every[0]
    found = judged(root_of, sample, tasks, every)
    least = min(one.greatest for one in found)
    return min((one for one in found if _LEVEL * one.greatest <= least), key=lambda one: one.sum).limits
