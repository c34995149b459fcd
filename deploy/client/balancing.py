"""Keep the loads of a running topology's tasks balanced: measure, decide, change its plan (journal paper, section 7.4)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dskype.deploy.client.plans import PlanOvertakenError, partitioned
from dskype.deploy.machine.terminal import counted, say
from dskype.topology.errors import IllegalArgumentException

__all__ = ["Band", "Change", "balance", "decide", "watch"]


def balance(loads: np.ndarray) -> float:
    """Return the greatest load divided by the mean; 1 without any load."""
    return float(loads.max() / loads.mean()) if loads.any() else 1.0


@dataclass(frozen=True)
class Change:
    """A change of a plan: several moves at once. Partitions are named by their numbers.

    :ivar moved: partition -> its new tasks.
    :ivar halved: partition -> the task that gets half of it.
    """

    moved: Mapping[int, Sequence[int]]
    halved: Mapping[int, int]

    def __str__(self) -> str:
        parts = [counted(len(self.moved), "partition") + " to other tasks"] if self.moved else []
        return ", ".join(parts + [f"half of {partition} to task {task}" for partition, task in self.halved.items()])


class Band:
    """Decides when to change the plan: hysteresis between two limits of max / mean.

    Changes begin when the balance has been above ``high`` for ``patience`` measurements in a row. They end when it is below ``low``, or when the
    last ``futile`` changes brought no improvement; then they begin again only when the balance is a tenth worse than its best value. After each
    change, ``patience`` measurements are ignored, so that it can take effect.

    >>> band = Band(high=1.5, low=1.2, patience=2)
    >>> [band.due(x) for x in (1.6, 1.6, 9.9, 9.9, 1.3, 1.1, 1.3)]
    [False, True, False, False, True, False, False]
    """

    def __init__(self, high: float = 1.5, low: float = 1.2, patience: int = 3, futile: int = 8) -> None:
        if not 1 <= low <= high:
            raise IllegalArgumentException("The band of the balance makes no sense.", given=f"low {low:g}, high {high:g}", legal="1 <= low <= high")
        self.high, self.low, self.patience, self.futile = high, low, patience, futile
        self._above = self._rest = self._in_vain = 0
        self._changing, self._best, self._given_up = False, math.inf, 0.0

    def due(self, measured: float) -> bool:
        """Add a measurement, and return whether to change the plan now."""
        if self._rest:
            self._rest -= 1
            return False
        self._above = self._above + 1 if measured > max(self.high, 1.1 * self._given_up) else 0
        if not self._changing:
            self._changing, self._best, self._in_vain = self._above >= self.patience, math.inf, 0
        if self._changing:
            self._in_vain = 0 if measured < 0.99 * self._best else self._in_vain + 1
            self._best = min(self._best, measured)
            self._given_up = self._best if self._in_vain > self.futile else 0.0
            self._changing = measured >= self.low and not self._given_up
        if self._changing:
            self._rest, self._above = self.patience, 0
        return self._changing


_NEAR = 1.1
"""A task gives partitions away only if its load is above this times the mean."""


def decide(loads: np.ndarray, partitions: Sequence[Mapping[str, Any]]) -> Change | None:
    """Return the moves that balance the loads; pure.

    The busiest task gives partitions to the idlest one: as much load as the nearer of the two is away from the mean. Then this repeats with the
    new loads. If whole partitions make up less than half of that load, half of the largest one moves instead, and the task gives nothing more. No
    partition is moved twice. A task's measured load is divided among its partitions as the plan estimates them.

    :param loads: float64[tasks], measured.
    :param partitions: as :meth:`Partitioned.partitions` returns them.
    :returns: None if no task is above the mean, or the busy ones share all their partitions with every other task.
    """
    loads, mean = np.array(loads, np.float64), float(np.mean(loads))
    left: dict[int, dict[int, float]] = {}  # task -> partition -> load there; only partitions that have not moved yet
    tasks = {int(p["number"]): list(p["tasks"]) for p in partitions}
    planned = np.zeros(len(loads))
    for p in partitions:
        planned[p["tasks"]] += p["load"] / len(p["tasks"])
    holders = np.bincount([task for own in tasks.values() for task in own], minlength=len(loads))
    for p in partitions:
        for task in p["tasks"]:
            share = p["load"] / len(p["tasks"]) / planned[task] if planned[task] else 1 / holders[task]
            left.setdefault(task, {})[int(p["number"])] = float(loads[task]) * share
    reassigned: dict[int, list[int]] = {}
    halved: dict[int, int] = {}
    for _ in range(len(loads)):
        hot = int(loads.argmax())
        if loads[hot] <= _NEAR * mean:
            break
        for cold in np.argsort(loads, kind="stable").tolist():
            surplus = min(loads[hot] - mean, mean - loads[cold])
            own = {number: load for number, load in left.get(hot, {}).items() if cold not in tasks[number]}
            if surplus <= 0 or own:
                break
        if surplus <= 0 or not own:
            break
        moving, chosen = 0.0, list[int]()
        for number in sorted(own, key=lambda number: (-own[number], number)):
            if 0 < own[number] <= 1.1 * surplus - moving and len(chosen) < len(left[hot]) - 1:
                chosen.append(number)
                moving += own[number]
        if moving >= 0.5 * surplus:
            reassigned.update((number, [cold if task == hot else task for task in tasks[number]]) for number in chosen)
        else:
            chosen = [max(own, key=lambda number: (own[number], -number))]
            moving = own[chosen[0]] / 2
            if loads[cold] + moving >= loads[hot]:
                break
            halved[chosen[0]] = cold
            left[hot].clear()  # the loads of the halves are unknown until they are measured
        loads[hot] -= moving
        loads[cold] += moving
        for number in chosen:
            for task in tasks[number]:
                left[task].pop(number, None)
    return Change(reassigned, halved) if reassigned or halved else None


def watch(
    measure: Callable[[], Mapping[int, int]],
    tasks: Sequence[int],
    current: Callable[[], tuple[int, Mapping[str, Any]]],
    send: Callable[[int, Mapping[str, Any]], int] | None,
    band: Band,
    *,
    interval_s: float,
    count: int | None = None,
    least: float = 0.0,
    in_force: Callable[[], int] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    report: Callable[[str], None] = say,
) -> int:
    """Measure, decide and change the plan, repeatedly.

    :param measure: returns how long each task (by id) has been busy since its start, in ns.
    :param tasks: ids of the subscription bolt's tasks, in the order of their indexes.
    :param current: returns the current version and plan.
    :param send: sends a plan in place of that of a version, and returns its own version; None: change nothing, only report. If another plan came first, the next measurement decides again.
    :param count: end after this many measurements; None: never.
    :param least: while no task is busy for more than this share of the time, all count as balanced.
    :param in_force: returns the version that all distribution tasks follow; there is no further change before they follow the newest one.
    :param report: gets one line per measurement and change.
    :returns: how many changes there were.
    """
    before, changes, measured = measure(), 0, 0
    while count is None or measured < count:
        sleep(interval_s)
        now = measure()
        loads = np.array([max(0, now.get(task, 0) - before.get(task, 0)) for task in tasks], np.float64)
        before, measured = now, measured + 1
        found = balance(loads)
        due = band.due(found if loads.max() > least * interval_s * 1e9 else 1.0)
        report(f"busy {loads.sum() / 1e9 / interval_s:.2f} cores, greatest load / mean {found:.2f}")
        if not due:
            continue
        version, plan = current()
        if in_force is not None and in_force() < version:
            report(f"version {version} is not in force yet")
            continue
        distributor = partitioned(partitioned(plan).with_loads(loads))
        change = decide(loads, distributor.partitions())
        if change is None:
            report("there is nothing to give away")
            continue
        if send is None:
            report(f"{change} (not sent)")
        else:
            try:
                report(f"{change}: version {send(version, distributor.rearranged(change.moved, change.halved))}")
            except PlanOvertakenError as error:
                report(str(error))
                continue
        changes += 1
    return changes
