"""What Storm promises, on Spark and Kafka; every rule by itself is tested on the simulated log."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from dskype.topology import Fields, KafkaBolt, KafkaSpout, TopologyBuilder
from dskype.topology.config import TRANSPORTS, Config
from dskype.topology.errors import AlreadyAliveException, NotAliveException, TransitionException
from dskype.topology.planning.plan import dead_letters_topic
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient
from tests.waiting import wait_for

from .components import Breaks, Diary, DiaryBolt, DiarySpout, PacedNumbers, Recorder, Split, WordCount, WordSpout, sum_chain, sums_expected
from .helpers import await_output, executors, existing_topics, headers, kill, make_topic


@pytest.fixture
def diary(tmp_path):
    return Diary(tmp_path / "diary")


@pytest.fixture
def out(cluster, name):
    return make_topic(cluster.environment.kafka, f"{name}-out")


def test_words_are_counted(cluster, name, out):
    builder = TopologyBuilder()
    builder.set_spout("words", WordSpout("the cow jumped over the moon", 50))
    builder.set_bolt("count", WordCount(), 2).set_num_tasks(4).fields_grouping("words", Fields("word"))
    builder.set_bolt("sink", Recorder(out)).global_grouping("count")
    with cluster.submit_topology(name, {}, builder.create_topology()):
        kafka = cluster.environment.kafka
        records = await_output(kafka, out, 300, 60, "all counts")
        expected = {(word, i) for word in ("cow", "jumped", "over", "moon") for i in range(1, 51)} | {("the", i) for i in range(1, 101)}
        assert Counter(r.value for r in records.values()) == Counter(repr(pair).encode() for pair in expected)


def test_every_tree_is_acked_or_failed_once(cluster, name, diary):
    builder, total = TopologyBuilder(), 300
    builder.set_spout("numbers", DiarySpout(diary, total))
    builder.set_bolt("split", Split(), 2).shuffle_grouping("numbers")
    builder.set_bolt("left", DiaryBolt(diary), 2).fields_grouping("split", Fields("number"), "left")
    builder.set_bolt("right", DiaryBolt(diary)).shuffle_grouping("split", "right")
    with cluster.submit_topology(name, {"topology.acker.executors": 2, "topology.max.spout.pending": 50}, builder.create_topology()) as handle:

        def settled():
            return [line for line in diary.lines() if line.startswith(("ack", "fail"))]

        wait_for(lambda: len(settled()) >= total, 60, "the end of all trees")
        time.sleep(1)
        assert Counter(settled()) == Counter(f"fail {i}" if i % 11 == 5 else f"ack {i}" for i in range(total))
        handle.backend.wait_until(lambda stats: stats.total("numbers", "acked") == total - 27 and stats.total("numbers", "failed") == 27, 60)


def test_the_life_of_a_topology(cluster, name, diary):
    builder = TopologyBuilder()
    builder.set_spout("numbers", DiarySpout(diary, 1 << 40, rate=200))
    builder.set_bolt("life", DiaryBolt(diary)).shuffle_grouping("numbers").add_configuration("topology.tick.tuple.freq.secs", 1)
    handle = cluster.submit_topology(name, {}, builder.create_topology(), active=False)

    def executed():
        return handle.stats.total("life", "executed")

    assert handle.status == "INACTIVE"
    time.sleep(1)
    assert diary.lines() == [] and executors("life") == []
    with pytest.raises(AlreadyAliveException):
        cluster.submit_topology(name, {}, builder.create_topology())

    cluster.activate(name)
    wait_for(lambda: executed() > 100, 60, "tuples")
    begun = [line for line in diary.lines() if line != "bolt tick"]  # (a tick may come before the spout's process is there)
    assert sorted(begun[:3]) == ["bolt prepare", "spout activate", "spout open"]

    cluster.deactivate(name)
    assert handle.status == "INACTIVE"
    wait_for(lambda: "spout deactivate" in diary.lines(), 60, "the spout's deactivation")
    wait_for(lambda: handle.stats.total("numbers", "acked") == handle.stats.total("numbers", "emitted"), 60, "the last acks")

    def pass_ticks(n):
        ticks = diary.lines().count("bolt tick")
        wait_for(lambda: diary.lines().count("bolt tick") >= ticks + n, 60, "ticks of an inactive topology")

    pass_ticks(2)  # meanwhile the last statistics come: those from the middle may tell of as many acks as tuples, too
    before = handle.stats.total("numbers", "emitted")
    pass_ticks(2)
    assert handle.stats.total("numbers", "emitted") == before

    cluster.activate(name)
    wait_for(lambda: executed() > before + 100, 30, "tuples again")
    assert diary.lines().count("spout activate") == 2 and diary.lines().count("spout open") == 1

    cluster.kill_topology(name, wait_secs=2)
    assert handle.status == "KILLED"
    with pytest.raises(TransitionException, match="No transition for event: ACTIVATE, status: KILLED"):
        cluster.activate(name)
    assert executors("life"), "bolts go on during the wait"
    wait_for(lambda: name not in [t["name"] for t in cluster.get_cluster_info()], 30, "the removal")
    assert {"bolt cleanup", "spout close"} <= set(diary.lines())
    wait_for(lambda: not executors("life"), 60, "the end of its executors")
    assert existing_topics(cluster.environment.kafka, name) == {f"{name}.dead-letters"}
    assert not [line for line in diary.lines() if line.startswith("fail")]
    with pytest.raises(NotAliveException):
        cluster.kill_topology(name)


def test_a_rebalance_moves_tasks_and_changes_no_result(cluster, name, out):
    total = 16_000
    topology, conf = sum_chain(out, total, 2_000)
    with cluster.submit_topology(name, conf, topology) as handle:
        handle.backend.wait_until(lambda stats: stats.total("sink", "executed") > total // 8, 60)
        wait_for(lambda: (len(executors("first")), len(executors("second"))) == (2, 2), 60, "two executors each")
        tasks = handle.backend.plan.num_tasks
        cluster.rebalance(name, wait_secs=1, executors={"first": 3, "second": 1})
        assert handle.status == "REBALANCING"
        wait_for(lambda: handle.status == "ACTIVE", 90, "the end of the rebalance")
        assert handle.stats.total("sink", "executed") < total
        handle.backend.wait_until(lambda stats: stats.total("sink", "executed") >= total, 60)
        wait_for(lambda: (len(executors("first")), len(executors("second"))) == (3, 1), 60, "the new executors")
        assert handle.backend.plan.num_tasks == tasks
        kafka = cluster.environment.kafka
        records = await_output(kafka, out, total, 60, "the last record")
        assert Counter(r.value for r in records.values()) == sums_expected(total)


def test_an_exception_in_execute_restarts_the_bolt_and_is_reported(cluster, name, diary, out):
    builder, kafka = TopologyBuilder(), cluster.environment.kafka
    builder.set_spout("numbers", DiarySpout(diary, 100))
    builder.set_bolt("breaks", Breaks(50, diary)).shuffle_grouping("numbers")
    builder.set_bolt("sink", Recorder(out)).shuffle_grouping("breaks")
    with cluster.submit_topology(name, {"topology.message.timeout.secs": 3}, builder.create_topology()) as handle:
        records = await_output(kafka, out, 99, 60, "the other tuples")
        assert Counter(r.value for r in records.values()) == Counter(f"({i},)".encode() for i in range(100) if i != 50)
        wait_for(lambda: "fail 50" in diary.lines(), 20, "the timeout of the tuple that broke the bolt")
        assert diary.lines().count("breaks prepare") == 2
        (letter,) = wait_for(lambda: read_to_end(kafka, dead_letters_topic(name)), 60, "the dead letter")
        assert (headers(letter)["stage"], headers(letter)["component"]) == ("execute", "breaks")
        (error,) = cluster.get_topology_info(name)["errors"]["breaks"]
        assert "ValueError: I do not like 50" in error["error"]
        assert not handle.backend.state.reports.restarts


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_kafka_spout_and_kafka_bolt_carry_every_record_also_when_their_executors_die(cluster, name, out, transport):
    kafka, total = cluster.environment.kafka, 6_000
    source = make_topic(kafka, f"{name}-in", partitions=3)
    producer = kafka.producer()

    def produce(first, last):
        for i in range(first, last):
            producer.send(source, key=str(i % 7).encode(), value=f"value {i}".encode(), partition=i % 3)
        producer.flush()

    produce(0, 500)
    builder = TopologyBuilder()
    builder.set_spout("read", KafkaSpout(source, first_poll_strategy="EARLIEST"), 2)
    builder.set_bolt("write", KafkaBolt(out, value_field="value"), 2).shuffle_grouping("read")
    conf = {"topology.max.spout.pending": 200, Config.TOPOLOGY_EMULATOR_TRANSPORT: transport}
    with cluster.submit_topology(name, conf, builder.create_topology()) as handle:
        await_output(kafka, out, 500, 60, "the first records")
        for first in range(500, total, 500):
            produce(first, first + 500)
            if first in (2_000, 3_500, 5_000):
                victims = {2_000: "read", 3_500: "write", 5_000: None}[first]
                kill(lambda victims=victims: executors(victims))
            time.sleep(0.1)
        producer.close(timeout=30)
        records = await_output(kafka, out, total, 60, "all records")
        assert Counter((r.key, r.value) for r in records.values()) == Counter((str(i % 7).encode(), f"value {i}".encode()) for i in range(total))
        handle.backend.wait_until(lambda stats: stats.total("read", "acked") == total, 60, "all acks")
        assert handle.stats.total("read", "failed") == 0


def test_two_topologies_do_not_meet(cluster, name, diary):
    kafka = cluster.environment.kafka
    outs = [make_topic(kafka, f"{name}-{i}-out") for i in range(2)]
    totals = 4_000, 6_000
    handles = [cluster.submit_topology(f"{name}-{i}", *reversed(sum_chain(outs[i], totals[i], 1_500))) for i in range(2)]
    try:
        for i, handle in enumerate(handles):
            handle.backend.wait_until(lambda stats, i=i: stats.total("sink", "executed") >= totals[i], 60)
            records = await_output(kafka, outs[i], totals[i], 60, "the last record")
            assert Counter(r.value for r in records.values()) == sums_expected(totals[i])
            if i == 0:  # the end of one is nothing to the other
                cluster.kill_topology(handle.name, wait_secs=0)
                wait_for(lambda handle=handle: handle.name not in cluster.manager.topologies, 30, "the removal")
    finally:
        for handle in handles:
            handle.__exit__()


def test_another_shell_sees_and_commands_a_topology(cluster, name):
    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(1 << 40, rate=100))
    client = ClusterClient(cluster.environment.kafka)
    cluster.submit_topology(name, {}, builder.create_topology())
    (line,) = [t for t in client.topologies() if t["name"] == name]
    assert (line["status"], line["num_tasks"], line["driver_alive"]) == ("ACTIVE", 2, True)
    client.send({"name": name, "event": "INACTIVATE"})
    assert client.state(name).status == "INACTIVE"
    with pytest.raises(TransitionException, match="No transition for event: DO_REBALANCE"):
        client.send({"name": name, "event": "DO_REBALANCE"})
    client.send({"name": name, "event": "KILL", "wait_secs": 0})
    wait_for(lambda: name not in [t["name"] for t in client.topologies()], 30, "the removal")
    with pytest.raises(NotAliveException):
        client.send({"name": name, "event": "KILL"})
