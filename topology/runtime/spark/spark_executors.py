"""Spark's executors on other hosts: which there are, how long they have been there, what reaches all of them, and which of them gets which executor of a topology."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import pyarrow as pa

from dskype.topology.errors import TopologyError
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["NoSparkExecutorError", "SparkExecutor", "find_executors", "given_up_s", "is_local", "on_all_executors", "place", "present_executors"]


class NoSparkExecutorError(TopologyError):
    """Spark has no executor on any host."""

    retriable = True


class SparkExecutor(NamedTuple):
    """One of Spark's executors.

    :ivar id: Spark's name for it; never used again for another one.
    :ivar since_ms: when it came, epoch ms.
    """

    id: str
    host: str
    since_ms: int

    @property
    def location(self) -> str:
        """Its name as a task location."""
        return f"executor_{self.host}_{self.id}"


def is_local(spark: Any) -> bool:
    """Tell whether Spark runs on one machine."""
    return spark.sparkContext.master.startswith("local")


def given_up_s(spark: Any) -> float | None:
    """Return after which silence of a host Spark may run its executors elsewhere; None on one machine."""
    if is_local(spark):
        return None
    conf = spark.sparkContext._jsc.sc().conf()
    return max(1.0, conf.getTimeAsSeconds("spark.network.timeout", "120s") - conf.getTimeAsSeconds("spark.executor.heartbeatInterval", "10s"))


def present_executors(context: Any) -> list[SparkExecutor]:
    """Return Spark's executors on other hosts, those that Spark has not given up, the oldest first."""
    rows = context._jsc.sc().statusStore().executorList(True)
    others = [e for e in map(rows.apply, range(rows.size())) if e.id() != "driver"]
    found = [SparkExecutor(e.id(), e.hostPort().rpartition(":")[0], e.addTime().getTime()) for e in others]
    return sorted(found, key=lambda e: (len(e.id), e.id))


def find_executors(context: Any) -> list[SparkExecutor]:
    """Return what :func:`present_executors` returns.

    :raises NoSparkExecutorError: there is none.
    """
    if not (found := present_executors(context)):
        raise NoSparkExecutorError("Spark has no executor.", given=context.master, hint="workers may have left the master, or hold no free cores and memory")
    return found


def place(plan: TopologyPlan, component: str, executors: Sequence[SparkExecutor]) -> list[SparkExecutor]:
    """Return the Spark executor for each executor of a component.

    Those of one worker are together, unless there are fewer workers than Spark executors: then a topology is spread over all of them.
    """
    n = len(executors)
    if plan.used_workers >= n:
        return [executors[plan.worker_of(first) % n] for first, _ in plan.executors(component)]
    before = sum(map(plan.num_executors, takewhile(lambda c: c != component, plan.component_ids)))
    return [executors[(before + i) % n] for i in range(plan.num_executors(component))]


def on_all_executors(spark: Any, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], columns: str) -> list[Any]:
    """Run a function for ``mapInArrow`` in so many tasks that every Spark executor most likely gets one; return its rows. Spark deals tasks out in turn to free slots.

    :param columns: names and types of the rows, as in SQL.
    """
    n = 1 if is_local(spark) else 4 * max(8, len(present_executors(spark.sparkContext)))
    # With SQL, like the queries: RDDs would get Python daemons, and with them supervisors, of their own.
    return spark.range(0, n, 1, n).mapInArrow(function, columns).collect()
