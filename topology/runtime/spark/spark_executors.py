"""Spark's executors on other hosts: which there are, how long they have been there, how many tasks reach all of them, and which of them gets which executor of a topology."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from dskype.topology.errors import TopologyError
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["NoSparkExecutorError", "SparkExecutor", "count_executors", "find_executors", "newest_executor_age_s", "place", "tasks_on_all_executors"]


class NoSparkExecutorError(TopologyError):
    """Spark has no executor on any host."""

    retriable = True


class SparkExecutor(NamedTuple):
    """One of Spark's executors.

    :ivar id: Spark's name for it; never used again for another one.
    """

    id: str
    host: str

    @property
    def location(self) -> str:
        """Its name as a task location."""
        return f"executor_{self.host}_{self.id}"


def find_executors(context: Any) -> list[SparkExecutor]:
    """Return Spark's executors on other hosts, those that Spark has not given up, the oldest first.

    :raises NoSparkExecutorError: there is none.
    """
    rows = context._jsc.sc().statusStore().executorList(True)
    found = [SparkExecutor(e.id(), e.hostPort().rpartition(":")[0]) for e in map(rows.apply, range(rows.size())) if e.id() != "driver"]
    if not found:
        raise NoSparkExecutorError("Spark has no executor.", given=context.master, hint="workers may have left the master, or hold no free cores and memory")
    return sorted(found, key=lambda e: (len(e.id), e.id))


def place(plan: TopologyPlan, component: str, executors: Sequence[SparkExecutor]) -> list[SparkExecutor]:
    """Return the Spark executor for each executor of a component.

    Those of one worker are together, unless there are fewer workers than Spark executors: then a topology is spread over all of them.
    """
    n = len(executors)
    if plan.used_workers >= n:
        return [executors[plan.worker_of(first) % n] for first, _ in plan.executors(component)]
    before = sum(map(plan.num_executors, takewhile(lambda c: c != component, plan.component_ids)))
    return [executors[(before + i) % n] for i in range(plan.num_executors(component))]


def count_executors(context: Any) -> int:
    """Return the number of Spark's executors on other hosts, those that Spark has not given up."""
    return max(0, len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1)  # one is the driver


def newest_executor_age_s(context: Any) -> float:
    """Return for how many seconds the newest of Spark's executors has been there; 0 without one."""
    executors = context._jsc.sc().statusStore().executorList(True)
    since_ms = [e.addTime().getTime() for e in map(executors.apply, range(executors.size())) if e.id() != "driver"]
    return max(0.0, time.time() - max(since_ms) / 1000) if since_ms else 0.0


def tasks_on_all_executors(context: Any) -> int:
    """Return how many tasks a job needs so that every Spark executor most likely gets one: Spark deals them out in turn to free slots."""
    return 4 * max(8, count_executors(context))
