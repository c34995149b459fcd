"""Maintenance in the simulation (journal paper, section 7.4): the partitions of overloaded tasks are split and merged, as the monitor of a topology would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dskype.deploy.benchmarks.distribution_workload import View
from dskype.distribution.base import Distributor
from dskype.distribution.partitioned import Partitioned

__all__ = ["maintain", "rebalance"]

_ROUNDS = 8
_WANTED = 1.2
"""max / mean of loads at which maintenance stops."""


def maintain(make: Callable[[Mapping[str, Any]], Distributor], plan: dict[str, Any], view: View, loads_of: Callable[[Distributor], np.ndarray]) -> dict[str, Any]:
    """Return a plan that has been changed until loads are balanced, or the best one found.

    :param make: makes a distributor of a plan.
    :param loads_of: measures the load of each task under a distributor.
    """
    best, least = plan, np.inf
    for _ in range(_ROUNDS):
        distributor = make(plan)
        if not isinstance(distributor, Partitioned):
            return plan
        loads = loads_of(distributor)
        uneven = float(loads.max() / loads.mean())
        if uneven < least:
            best, least = plan, uneven
        if uneven <= _WANTED:
            break
        plan = rebalance(make, plan, view, loads)
    return best


def rebalance(make: Callable[[Mapping[str, Any]], Distributor], plan: dict[str, Any], view: View, loads: np.ndarray) -> dict[str, Any]:
    """Return a plan in which the most loaded tasks have given parts to the least loaded ones, by measured loads of tasks.

    A partition's load is taken to be its share of its task's in the plan. Partitions that fit are handed over whole (merged), larger ones are split.
    """
    loads = loads.astype(np.float64).copy()
    mean = loads.mean()
    for _ in range(len(loads)):
        heavy, light = int(loads.argmax()), int(loads.argmin())
        if loads[heavy] <= _WANTED * mean:
            break
        distributor = make(plan)
        parts = distributor.partitions()       # type: ignore[attr-defined]
        own = [part for part in parts if heavy in part["tasks"]]
        whole = sum(part["load"] / len(part["tasks"]) for part in own) or 1.0
        share = {part["number"]: part["load"] / len(part["tasks"]) / whole * loads[heavy] for part in own}
        room = mean - loads[light]
        fitting = [part for part in own if len(part["tasks"]) == 1 and len(own) > 1 and share[part["number"]] <= max(room, 0.0)]
        targets = [part for part in parts if part["tasks"] == [light]]
        if fitting and targets:
            part = max(fitting, key=lambda one: share[one["number"]])
            if share[part["number"]] >= 0.25 * (loads[heavy] - mean):
                plan = distributor.merge(targets[0]["number"], part["number"])     # type: ignore[attr-defined]
                loads[heavy] -= share[part["number"]]
                loads[light] += share[part["number"]]
                continue
        candidates = [part for part in own if light not in part["tasks"]]
        if not candidates:
            break
        part = max(candidates, key=lambda one: share[one["number"]])
        plan = distributor.split(part["number"], light, view.sample)       # type: ignore[attr-defined]
        n = len(part["tasks"])
        moved = share[part["number"]] / 2 if n == 1 else share[part["number"]] / (n + 1)
        for task in part["tasks"]:
            loads[task] -= moved
        loads[light] += moved * n
    return plan
