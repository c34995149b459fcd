"""Which components get continuous queries, and what is said where they cannot run. Without Spark and Kafka."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dskype.deploy.machine.connection import client_arguments
from dskype.topology import TopologyBuilder
from dskype.topology.config import Config
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.driver import TopologyDriver
from dskype.topology.runtime.kafka import KafkaSettings
from dskype.topology.runtime.librdkafka import UnsupportedOptionError, connection_settings
from dskype.topology.runtime.transports import TaskSlots, Transports
from dskype.topology.testing import TestWordCounter, TestWordSpout


class FakeSpark:
    """Says what Spark would say."""

    def __init__(self, master="local[128]", slots=128):
        self.sparkContext = SimpleNamespace(master=master, defaultParallelism=slots)


def plan_of(conf=None, count_conf=None, tasks=3):
    builder = TopologyBuilder()
    builder.set_spout("words", TestWordSpout(), 2)
    declarer = builder.set_bolt("count", TestWordCounter(), tasks).shuffle_grouping("words")
    for key, value in (count_conf or {}).items():
        declarer.add_configuration(key, value)
    return TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, **(conf or {})}, builder.create_topology())


CONTINUOUS = {Config.TOPOLOGY_EMULATOR_TRANSPORT: "continuous"}
KAFKA = KafkaSettings("127.0.0.1:1")


def chosen_for(plan, spark, kafka):
    transports = Transports()
    transports.choose(plan, spark, kafka)
    return transports


MICRO_BATCH = {Config.TOPOLOGY_EMULATOR_TRANSPORT: "micro-batch"}


@pytest.mark.parametrize(
    ("conf", "count_conf", "continuous"),
    [
        ({}, {}, {"words", "count"}),
        (CONTINUOUS, {}, {"words", "count"}),
        (MICRO_BATCH, CONTINUOUS, {"count"}),
        ({}, MICRO_BATCH, {"words"}),
        (MICRO_BATCH, {}, set()),
    ],
)
def test_a_topology_or_a_component_asks_for_a_transport_and_continuous_queries_are_the_default(conf, count_conf, continuous):
    chosen = chosen_for(plan_of(conf, count_conf), FakeSpark(), KAFKA)
    assert chosen.continuous == continuous and not chosen.warnings
    chosen.release()


def test_who_asks_for_nothing_gets_micro_batches_where_continuous_queries_cannot_run_without_a_warning(caplog):
    with caplog.at_level("INFO", logger="dskype"):
        chosen = chosen_for(plan_of(), FakeSpark(master="local[12]", slots=12), KAFKA)
    assert not chosen.continuous and not chosen.warnings and "runs in micro-batches: Each executor of a component" in caplog.text


def test_on_a_cluster_too_few_slots_are_a_warning_although_nobody_asked_for_a_transport():
    chosen = chosen_for(plan_of(), FakeSpark(master="spark://a:7077", slots=12), KAFKA)
    assert not chosen.continuous
    assert len(chosen.warnings) == 1 and "5 slots needed, 1 slots too few" in chosen.warnings[0] and "workers with more --cores" in chosen.warnings[0]


@pytest.mark.parametrize(("master", "continuous"), [("local[128]", {"words", "count", "sink"}), ("spark://a:7077", {"count", "sink"})])
def test_on_a_cluster_a_component_whose_tuples_stay_in_its_worker_runs_in_micro_batches(master, continuous):
    builder = TopologyBuilder()
    builder.set_spout("words", TestWordSpout(), 2)
    builder.set_bolt("count", TestWordCounter(), 3).local_or_shuffle_grouping("words")
    builder.set_bolt("sink", TestWordCounter()).shuffle_grouping("count")
    plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, **CONTINUOUS}, builder.create_topology())
    chosen = chosen_for(plan, FakeSpark(master=master), KAFKA)
    assert chosen.continuous == continuous
    assert ["'words'" in warning and "local_or_shuffle" in warning for warning in chosen.warnings] == [True] * (3 - len(continuous))
    chosen.release()


@pytest.mark.parametrize(
    ("spark", "options", "reason"),
    [
        (FakeSpark(master="spark://a:7077", slots=12), {}, "workers with more --cores"),
        (FakeSpark(master="local[12]", slots=12), {}, "5 slots needed, 1 slots too few"),
        (FakeSpark(), {"kafka.security.protocol": "SSL", "kafka.ssl.enabled.protocols": "TLSv1.3"}, "cannot insist on a version of TLS"),
    ],
)
def test_where_continuous_queries_cannot_run_micro_batches_do_and_the_reason_is_said(spark, options, reason):
    chosen = chosen_for(plan_of(CONTINUOUS), spark, KafkaSettings("127.0.0.1:1", options, client_arguments(options)))
    assert not chosen.continuous
    assert len(chosen.warnings) == 1 and reason in chosen.warnings[0] and "micro-batches" in chosen.warnings[0]


def test_topologies_share_the_slots_of_spark():
    slots = TaskSlots()
    assert slots.take("a", 10, 30) == 0
    assert slots.take("b", 13, 30) == 1  # eight stay free
    assert slots.take("b", 12, 30) == 0
    assert slots.take("b", 11, 30) == 0  # in place of the twelve
    slots.release("a")
    assert slots.take("c", 11, 30) == 0


def test_a_rebalance_to_more_executors_than_spark_has_slots_for_goes_on_in_micro_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(TopologyDriver, "_drain", lambda self: None)
    monkeypatch.setattr(TopologyDriver, "_start_queries", lambda self: None)
    plan = plan_of(CONTINUOUS)
    small = plan.rebalanced({"count": 1})
    driver = TopologyDriver(small, FakeSpark("local[12]", 12), KAFKA, tmp_path)
    assert driver._transports.choose(small, driver._spark, KAFKA) == [] and driver._transports.continuous == {"words", "count"}
    driver._opened = True
    driver.rebalance(plan)
    assert not driver._transports.continuous
    driver.rebalance(small)
    assert driver._transports.continuous == {"words", "count"}
    driver._transports.release()


def test_connection_settings_reach_the_writer_of_frames():
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="a;b";',
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.retry.backoff.ms": "70",
        "kafka.request.timeout.ms": "305000",
    }
    with connection_settings(KafkaSettings("host:1", options, client_arguments(options))) as settings:
        found = {
            key: settings[key] for key in ("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "retry.backoff.ms")
        }
        assert found == {
            "bootstrap.servers": "host:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": "a;b",
            "retry.backoff.ms": 70,
        }
        assert settings["ssl.endpoint.identification.algorithm"] == "none"
        assert settings["socket.timeout.ms"] == 300_000, "(the most that librdkafka accepts)"


def test_kerberos_is_refused():
    with pytest.raises(UnsupportedOptionError, match="Kerberos"), connection_settings(KafkaSettings("host:1", {}, {"sasl_mechanism": "GSSAPI"})):
        pass


def test_settings_that_cannot_be_followed_are_refused():
    with pytest.raises(UnsupportedOptionError, match="metric_reporters"), connection_settings(KafkaSettings("host:1", {}, {"metric_reporters": []})):
        pass


REAL_TIME = {Config.TOPOLOGY_EMULATOR_TRANSPORT: "real-time"}


def test_real_time_queries_are_had_on_one_machine_by_who_asks_for_them_and_occupy_a_slot_for_each_task():
    plan = plan_of(MICRO_BATCH, REAL_TIME)
    chosen = chosen_for(plan, FakeSpark(), KAFKA)
    assert chosen.real_time == chosen.continuous == {"count"} and not chosen.warnings
    slots = len(plan.component_tasks("count")) + TaskSlots.KEPT
    assert chosen_for(plan, FakeSpark(slots=slots), KAFKA).real_time == {"count"}
    few = chosen_for(plan, FakeSpark(slots=slots - 1), KAFKA)
    assert not few.real_time and "1 slots too few" in few.warnings[0]
    on_cluster = chosen_for(plan, FakeSpark(master="spark://a:7077"), KAFKA)
    assert on_cluster.continuous == {"count"} and not on_cluster.real_time and "clusters have none yet" in on_cluster.warnings[0]
