"""Where the executors of a topology run on a cluster, and with them the tasks of queries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dskype.topology import Fields, KafkaSpout, TopologyBuilder
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.spark.spark_executors import NoSparkExecutorError, SparkExecutor, find_executors, place

from ..components import PacedNumbers, RunningSum


def plan_of(workers: int) -> TopologyPlan:
    """Return a plan with the executors "in" (1), "numbers" (1) and "sum" (4, with a task each)."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(1, 1))
    builder.set_spout("in", KafkaSpout("topic"))
    builder.set_bolt("sum", RunningSum(), 4).fields_grouping("numbers", Fields("key"))
    return TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, "topology.workers": workers}, builder.create_topology())


@pytest.mark.parametrize(
    ("workers", "hosts", "places"),
    [
        (1, 2, ["0", "1", "0 1 0 1"]),  # fewer workers than hosts: all in turn
        (2, 2, ["0", "1", "0 1 0 1"]),
        (3, 2, ["0", "1", "0 0 1 0"]),  # workers 0, 1, 2, 0, 1, 2; worker 2 shares a host with worker 0
        (1, 4, ["0", "1", "2 3 0 1"]),
        (6, 1, ["0", "0", "0 0 0 0"]),
    ],
)
def test_executors_of_a_worker_are_on_one_host_unless_there_are_too_few_workers(workers, hosts, places):
    plan, there = plan_of(workers), [SparkExecutor(str(i), "h", 0) for i in range(hosts)]
    assert [" ".join(e.id for e in place(plan, c, there)) for c in plan.component_ids] == places


def context_with(*executors):
    """Return a Spark context whose status store knows the driver and these executors (id, host), which came a second after each other."""
    came = [SimpleNamespace(getTime=lambda n=n: 1000 * n) for n in range(len(executors) + 1)]
    known = zip([("driver", "d"), *executors], came, strict=True)
    rows = [SimpleNamespace(id=lambda i=i: i, hostPort=lambda h=h: f"{h}:4711", addTime=lambda t=t: t) for (i, h), t in known]
    store = SimpleNamespace(executorList=lambda active: active and SimpleNamespace(size=lambda: len(rows), apply=rows.__getitem__))
    return SimpleNamespace(master="spark://m", _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store)))


def test_sparks_executors_are_found_the_oldest_first():
    found = find_executors(context_with(("10", "a"), ("9", "[::1]"), ("1", "b")))
    assert [(e.id, e.host, e.location) for e in found] == [("1", "b", "executor_b_1"), ("9", "[::1]", "executor_[::1]_9"), ("10", "a", "executor_a_10")]
    assert [e.since_ms for e in found] == [3000, 2000, 1000]
    with pytest.raises(NoSparkExecutorError, match="Spark has no executor") as error:
        find_executors(context_with())
    assert error.value.retriable
