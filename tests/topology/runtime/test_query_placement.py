"""Which queries keep a Spark task for each partition, by which Spark finds a task's executor again."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from dskype.topology import Fields, KafkaSpout, TopologyBuilder
from dskype.topology.planning.plan import TopologyPlan, inbox_topic
from dskype.topology.runtime import queries
from dskype.topology.runtime.kafka import KafkaSettings

from .components import PacedNumbers, RunningSum


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("component", "local", "tasks"), [("sum", True, "workers"), ("sum", False, None), ("in", True, 1), ("in", False, 1)])
def test_on_a_cluster_only_a_kafka_spout_has_one_spark_task_for_all_partitions(monkeypatch, tmp_path, workers, component, local, tasks):
    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(1, 1))
    builder.set_spout("in", KafkaSpout("topic"))
    builder.set_bolt("sum", RunningSum(), 4).fields_grouping("numbers", Fields("key"))
    plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, "topology.workers": workers}, builder.create_topology())
    monkeypatch.setattr(queries.tuning, "drop_listeners", lambda spark: None)
    spark = MagicMock()
    context = SimpleNamespace(
        spark=spark, plan=plan, kafka=KafkaSettings("127.0.0.1:1"), scratch=tmp_path, local=local, epoch=1, standstill_s=None, payload=lambda starts: b""
    )
    query = queries.ComponentQuery(context, component, {(inbox_topic("t", component), task): 0 for task in range(4)} | {("topic", 0): 0})
    query.start()
    coalesced = {args for name, args, _ in spark.mock_calls if name.endswith(".coalesce")}
    assert coalesced == (set() if tasks is None else {(workers if tasks == "workers" else tasks,)})
