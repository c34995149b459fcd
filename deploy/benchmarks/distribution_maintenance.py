"""Maintenance in the simulation (journal paper, section 7.4): splits and merges, by what is measured of tasks alone or by a new sample as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dskype.deploy.benchmarks.distribution_workload import View, sample_of
from dskype.deploy.partition import changed, decide
from dskype.distribution.base import Distributor, Sample
from dskype.distribution.partitioned import Partitioned, measure
from dskype.distribution.plans import edited

__all__ = ["MONITOR", "SAMPLE", "maintain"]

MONITOR, SAMPLE = "monitor", "sample"
"""Ways of maintenance: that of ``dskype partition watch``, which sees the loads of tasks alone; and with a new sample, which says what
partitions cost now, and where to cut them."""

_WANTED = 1.2
"""max / mean of loads at which maintenance ends."""

_MOST = 100
_MESSAGES = 20_000


def maintain(make: Callable[[Mapping[str, Any]], Distributor], plan: dict[str, Any], view: View, way: str) -> tuple[dict[str, Any], int]:
    """Return the plan that maintenance leads to, or the best on the way, and how many rounds or changes it took.

    Loads are subscriptions x messages of the view.

    :param make: makes a distributor of a plan.
    :param way: :data:`MONITOR`, one change at a time, or :data:`SAMPLE`.
    """
    window = view.workload.window_messages()
    now = sample_of(window.slice(max(0, window.n - _MESSAGES), window.n), view.subscriptions, view.floors, view.filled)
    best, least, after, changes = plan, np.inf, 0, 0
    while changes <= _MOST:
        distributor = make(plan)
        if not isinstance(distributor, Partitioned):
            break
        loads = measure(distributor, now).loads
        uneven = float(loads.max() / loads.mean())
        if uneven < least:
            best, least, after = plan, uneven, changes
        if uneven <= _WANTED or changes - after > 2 * len(loads):
            break
        if way == SAMPLE:
            plan, made = rebalance(make, plan, now, loads)
            changes += made or _MOST
        else:
            told = make(distributor.with_loads(loads))
            assert isinstance(told, Partitioned)
            change = decide(loads, told.partitions())
            if change is None:
                break
            plan, changes = changed(told, change), changes + 1
    return best, after


def rebalance(make: Callable[[Mapping[str, Any]], Distributor], plan: dict[str, Any], now: Sample, loads: np.ndarray) -> tuple[dict[str, Any], int]:
    """Return a plan in which the most loaded tasks have given to the least loaded ones, a partition that fits or half of the largest, and how often.

    :param now: what there is.
    :param loads: of the tasks.
    """
    loads = loads.astype(np.float64).copy()
    mean, made = loads.mean(), 0
    for _ in range(len(loads)):
        heavy, light = int(loads.argmax()), int(loads.argmin())
        if loads[heavy] <= _WANTED * mean:
            break
        distributor: Any = make(plan)
        parts = distributor.partitions()
        costs = _partition_loads(distributor, plan, now)
        own = [part["number"] for part in parts if heavy in part["tasks"]]
        spread = np.array([len(part["tasks"]) for part in parts])
        share = costs / spread      # what one of its tasks bears
        share *= loads[heavy] / (share[own].sum() or 1.0)
        whole = [number for number in own if spread[number] == 1 and share[number] <= mean - loads[light]] if len(own) > 1 else []
        target = next((part["number"] for part in parts if part["tasks"] == [light]), None)
        if whole and target is not None and share[best := max(whole, key=lambda number: share[number])] >= (loads[heavy] - mean) / 4:
            plan = distributor.merge(target, best)
            moved, givers = share[best], [heavy]
        else:
            able = [number for number in own if light not in parts[number]["tasks"]]
            if not able:
                break
            best = max(able, key=lambda number: share[number])
            plan = distributor.split(best, light, now)
            givers = parts[best]["tasks"]
            moved = share[best] / 2 if len(givers) == 1 else share[best] / (len(givers) + 1)
        loads[givers] -= moved
        loads[light] += moved * len(givers)
        made += 1
    return plan, made


def _partition_loads(distributor: Partitioned, plan: Mapping[str, Any], now: Sample) -> np.ndarray:
    """Return subscriptions x messages of each partition: as if each had a task for itself."""
    n = len(distributor.partitions())
    root = edited(plan["root"], lambda number, node: {**node, "tasks": [number]})
    kind = type(distributor)
    return measure(kind(n, distributor.options, kind.planned(n, root, [1.0] * n)), now).loads
