"""Which components get real-time queries, and what is said where they cannot run. Without Spark and Kafka."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dskype.deploy.machine.connection import client_arguments
from dskype.topology import TopologyBuilder
from dskype.topology.config import Config
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.driver.driver import TopologyDriver
from dskype.topology.runtime.driver.watch import Watch
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.connections import UnsupportedOptionError, connection_settings
from dskype.topology.runtime.spark import transports as transports_module
from dskype.topology.runtime.spark.transports import KEPT_SLOTS, TooFewSlotsError, Transports
from dskype.topology.testing import TestWordCounter, TestWordSpout


class FakeSpark:
    """Says what Spark would say."""

    def __init__(self, master="local[128]", slots=128):
        self.sparkContext = SimpleNamespace(master=master, defaultParallelism=slots)


def plan_of(conf=None, count_conf=None, tasks=3, topology_id="t-1-0"):
    builder = TopologyBuilder()
    builder.set_spout("words", TestWordSpout(), 2)
    declarer = builder.set_bolt("count", TestWordCounter(), tasks).shuffle_grouping("words")
    for key, value in (count_conf or {}).items():
        declarer.add_configuration(key, value)
    return TopologyPlan.build("t", topology_id, {"topology.acker.executors": 0, **(conf or {})}, builder.create_topology())


REAL_TIME = {Config.TOPOLOGY_EMULATOR_TRANSPORT: "real-time"}
MICRO_BATCH = {Config.TOPOLOGY_EMULATOR_TRANSPORT: "micro-batch"}
KAFKA = KafkaSettings("127.0.0.1:1")


def choose(transports, plan, spark, external=0):
    """Choose the transports; a component reads a partition for each of its tasks, and the spout some external ones."""
    positions = {c: [(c, i) for i in range(len(plan.component_tasks(c)) + external * (c == "words"))] for c in plan.component_ids}
    return transports.choose(plan, spark, positions)


@pytest.mark.parametrize(
    ("conf", "count_conf", "real_time"),
    [
        ({}, {}, {"words", "count"}),
        (REAL_TIME, {}, {"words", "count"}),
        (MICRO_BATCH, REAL_TIME, {"count"}),
        ({}, MICRO_BATCH, {"words"}),
        (MICRO_BATCH, {}, set()),
    ],
)
@pytest.mark.parametrize("master", ["local[128]", "spark://a:7077"])
def test_a_topology_or_a_component_asks_for_a_transport_and_real_time_queries_are_the_default(conf, count_conf, real_time, master):
    transports = Transports()
    assert choose(transports, plan_of(conf, count_conf), FakeSpark(master)) == [] and transports.real_time == real_time
    transports.release()


@pytest.mark.parametrize("conf", [{}, REAL_TIME])
@pytest.mark.parametrize(
    ("spark", "reason"),
    [(FakeSpark(master="spark://a:7077", slots=12), "5 slots needed, 1 slots too few"), (FakeSpark(master="local[12]", slots=12), "for example local[13]")],
)
def test_where_real_time_queries_cannot_run_micro_batches_do_and_the_reason_is_said(conf, spark, reason):
    transports = Transports()
    (warning,) = choose(transports, plan_of(conf), spark)
    assert not transports.real_time and reason in warning and "runs in micro-batches" in warning


def test_each_partition_occupies_a_slot_external_ones_too():
    plan = plan_of()
    slots = 5 + 4 + KEPT_SLOTS
    enough, few = Transports(), Transports()
    assert choose(enough, plan, FakeSpark(slots=slots), external=4) == [] and enough.real_time
    enough.release()
    assert "9 slots needed, 1 slots too few" in choose(few, plan, FakeSpark(slots=slots - 1), external=4)[0]


def test_partitions_that_are_added_need_slots_too(monkeypatch):
    started = []

    def query(context, *given, real_time):
        assert real_time
        return SimpleNamespace(start=lambda: started.append(given))

    monkeypatch.setattr(transports_module, "ComponentQuery", query)
    transports, plan = Transports(), plan_of()
    assert choose(transports, plan, FakeSpark(slots=5 + 1 + KEPT_SLOTS), external=1) == []
    positions = {("in", p): 0 for p in range(4)}
    with pytest.raises(TooFewSlotsError, match="7 slots needed, 1 slots too few") as refused:
        transports.start_query(None, "words", positions)
    assert refused.value.retriable and not started
    del positions["in", 3]
    transports.start_query(None, "words", positions)
    assert started == [("words", positions)]
    transports.release()


def test_topologies_share_the_slots_of_spark():
    def take(topology, n):
        """Let a topology take slots; return what is said if there are too few."""
        return choose(topologies[topology], plan_of(tasks=n - 2, topology_id=topology), FakeSpark(slots=30))

    topologies = {"a": Transports(), "b": Transports(), "c": Transports()}
    assert take("a", 10) == []
    assert "13 slots needed, 1 slots too few" in take("b", 13)[0]  # eight stay free
    assert take("b", 12) == []
    assert take("b", 11) == []  # in place of the twelve
    topologies["a"].release()
    assert take("c", 11) == []
    for transports in topologies.values():
        transports.release()


def test_a_query_waits_for_slots_however_long_and_the_health_says_why(tmp_path):
    driver = TopologyDriver(plan_of(), FakeSpark(), KAFKA, tmp_path)
    for _ in range(20):  # more often than a query may fail
        driver._queries._judge("count", TooFewSlotsError("7 slots needed, 1 slots too few"))
    assert driver.failure is None and not driver.state.reports.restarts and "count" in driver._queries.obstacles()
    Watch(driver.state, driver._queries, dict).report_health()
    assert driver.health()["state"] == "waiting" and "component 'count' waits: 7 slots needed" in driver.health()["why"][0]


def test_a_rebalance_counts_the_slots_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(TopologyDriver, "_drain", lambda self: None)
    monkeypatch.setattr(Transports, "start_query", lambda *_: SimpleNamespace(stop=lambda: None))
    plan, spark = plan_of(), FakeSpark("local[13]", 13)
    driver = TopologyDriver(plan, spark, KAFKA, tmp_path)
    driver._opened = True
    driver.rebalance(plan)
    assert driver._queries.transports.real_time == {"words", "count"}
    spark.sparkContext.defaultParallelism = 12  # a worker is lost
    driver.rebalance(plan)
    assert not driver._queries.transports.real_time
    driver._queries.transports.release()


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
