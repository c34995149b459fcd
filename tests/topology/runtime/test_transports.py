"""Which components get continuous queries, and what is said where they cannot run. Without Spark and Kafka."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from dskype.deploy.machine.connection import client_arguments
from dskype.topology import TopologyBuilder
from dskype.topology.config import Config
from dskype.topology.core.clock import ClockRecord
from dskype.topology.core.frames import NUDGE, OutRecord
from dskype.topology.core.nudges import add_nudges, nudge_each
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.continuous_shim import _Arrivals
from dskype.topology.runtime.kafka import KafkaSettings
from dskype.topology.runtime.record_writer import UnsupportedOptionError, producer_settings
from dskype.topology.runtime.transports import TaskSlots, Transports
from dskype.topology.testing import TestWordCounter, TestWordSpout


class FakeSpark:
    """Says what Spark would say, and keeps the settings of new sessions."""

    def __init__(self, master="local[128]", slots=128, version="4.0.0"):
        self.version, self.settings = version, {}
        self.sparkContext = SimpleNamespace(master=master, defaultParallelism=slots)
        self.conf = SimpleNamespace(set=self.settings.__setitem__)

    def newSession(self):
        return self


def plan_of(conf=None, count_conf=None, tasks=3):
    builder = TopologyBuilder()
    builder.set_spout("words", TestWordSpout(), 2)
    declarer = builder.set_bolt("count", TestWordCounter(), tasks).shuffle_grouping("words")
    for key, value in (count_conf or {}).items():
        declarer.add_configuration(key, value)
    return TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, **(conf or {})}, builder.create_topology())


CONTINUOUS = {Config.TOPOLOGY_EMULATOR_TRANSPORT: "continuous"}
KAFKA = KafkaSettings("127.0.0.1:1")


def test_micro_batches_are_the_default():
    chosen = Transports(plan_of(), FakeSpark(), KAFKA)
    assert not chosen.continuous and not chosen.nudged and not chosen.warnings


def test_a_topology_or_a_component_asks_for_continuous_queries():
    whole = Transports(plan_of(CONTINUOUS), spark := FakeSpark(), KAFKA)
    assert whole.continuous == {"words", "count"} and whole.nudged == {"t.words", "t.count"}
    assert spark.settings["spark.sql.execution.arrow.maxRecordsPerBatch"] == "1"
    whole.release()
    part = Transports(plan_of(count_conf=CONTINUOUS), FakeSpark(), KAFKA)
    assert part.continuous == {"count"} and part.nudged == {"t.count"}
    part.release()


@pytest.mark.parametrize(
    ("spark", "options", "reason"),
    [
        (FakeSpark(version="3.5.1"), {}, "3.5.1"),
        (FakeSpark(master="spark://a:7077"), {}, "one machine"),
        (FakeSpark(master="local[12]", slots=12), {}, "5 tasks, 1 slots too few"),
        (FakeSpark(), {"kafka.security.protocol": "SSL", "kafka.ssl.enabled.protocols": "TLSv1.3"}, "cannot insist on a version of TLS"),
    ],
)
def test_where_continuous_queries_cannot_run_micro_batches_do_and_the_reason_is_said(spark, options, reason):
    chosen = Transports(plan_of(CONTINUOUS), spark, KafkaSettings("127.0.0.1:1", options, client_arguments(options)))
    assert not chosen.continuous and chosen.session is None
    assert len(chosen.warnings) == 1 and reason in chosen.warnings[0] and "micro-batches" in chosen.warnings[0]


def test_topologies_share_the_slots_of_spark():
    slots = TaskSlots()
    assert slots.take("a", 10, 30) == 0
    assert slots.take("b", 13, 30) == 1  # eight stay free
    assert slots.take("b", 12, 30) == 0
    assert slots.take("b", 11, 30) == 0  # in place of the twelve
    slots.release("a")
    assert slots.take("c", 11, 30) == 0


def test_connection_settings_reach_the_writer_of_frames():
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="a;b";',
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.retry.backoff.ms": "70",
    }
    with producer_settings(KafkaSettings("host:1", options, client_arguments(options))) as settings:
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
        assert settings["enable.idempotence"] is True


def test_kerberos_is_refused():
    with pytest.raises(UnsupportedOptionError, match="Kerberos"), producer_settings(KafkaSettings("host:1", {}, {"sasl_mechanism": "GSSAPI"})):
        pass


def test_a_nudge_follows_the_last_frame_of_each_partition():
    frames = [OutRecord("a", 0, None, b"1"), OutRecord("a", 1, None, b"2"), OutRecord("a", 0, None, b"3"), OutRecord("b", 0, None, b"4")]
    assert add_nudges(frames, {"a"}) == [*frames, OutRecord("a", 0, None, NUDGE), OutRecord("a", 1, None, NUDGE)]
    assert nudge_each([ClockRecord("a", 0, b"1"), ClockRecord("b", 0, b"2")], {"a"}) == [
        ClockRecord("a", 0, b"1"),
        ClockRecord("a", 0, NUDGE),
        ClockRecord("b", 0, b"2"),
    ]


def test_tasks_that_do_not_get_on_get_a_nudge():
    chosen = Transports(plan := plan_of(CONTINUOUS), FakeSpark(), KAFKA)
    first, second, *_ = plan.component_tasks("count")
    assert chosen.wake({first: 5, second: 5}, {first: 3}, 10.0) == []
    assert chosen.wake({first: 5, second: 5}, {first: 3}, 11.0) == []
    assert chosen.wake({first: 5, second: 5}, {first: 3}, 12.5) == [ClockRecord("t.count", 0, NUDGE)]
    assert chosen.wake({first: 5, second: 5}, {first: 3}, 13.0) == []
    assert chosen.wake({first: 6, second: 5}, {first: 3}, 15.0) == []  # it gets on again
    chosen.release()


def rows(*values):
    """Return batches of one row each; None is a follower."""
    return (pa.record_batch({"offset": pa.array([-1 if v is None else i]), "value": pa.array([v], pa.binary())}) for i, v in enumerate(values))


def test_nudges_wait_for_the_frame_behind_them_and_followers_go():
    arrivals = _Arrivals(rows(b"1", None, NUDGE, b"2", None, b"3", None, NUDGE), "value")
    arrivals._thread.join()
    taken = []
    while parts := arrivals.take(2):
        taken.append([part.column("value")[0].as_py() for part in parts])
    assert taken == [[b"1", NUDGE], [b"2", b"3"], [NUDGE]]  # at the end of the query the last one goes, too


def test_an_error_of_spark_reaches_the_worker():
    def broken():
        yield from rows(b"1")
        raise EOFError("the JVM has gone")

    arrivals = _Arrivals(broken(), "value")
    assert len(arrivals.take(9)) == 1
    with pytest.raises(EOFError):
        arrivals.take(9)
