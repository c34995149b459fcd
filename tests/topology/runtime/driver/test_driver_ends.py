"""How a topology ends that cannot continue, what others see of it, and what a resume refuses: on Spark and Kafka."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from pathlib import Path

import pytest
from kafka import TopicPartition

from dskype.topology import BasicBolt, Fields, KafkaSpout, TopologyBuilder
from dskype.topology.core.snapshots import FencedError
from dskype.topology.errors import TopologyError
from dskype.topology.planning.plan import TopologyPlan, dead_letters_topic, inbox_topic, metrics_topic
from dskype.topology.runtime.driver.driver import TopologyDriver
from dskype.topology.runtime.driver.topics import TopologyTopics
from dskype.topology.runtime.driver.watch import Janitor
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient
from dskype.topology.runtime.stores.control_files import MANIFEST, ControlFileError, ResumeRefusedError
from tests.waiting import wait_for

from ..components import PacedNumbers, Recorder, RunningSum, sum_chain, sums_expected
from ..helpers import await_output, existing_topics, make_topic


class Unprepared(BasicBolt):
    """Always raises in ``prepare``."""

    def prepare(self, conf, context):
        raise ValueError("the table of cities is not there")

    def execute(self, tup, collector):
        """Never called."""


def test_a_component_that_fails_for_ever_ends_its_topology_and_says_why_to_everybody(cluster, name):
    kafka = cluster.environment.kafka
    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(1000, 100))
    builder.set_bolt("broken", Unprepared()).fields_grouping("numbers", Fields("key"))
    handle = cluster.submit_topology(name, {"topology.acker.executors": 0, "topology.emulator.restarts.max": 3}, builder.create_topology())
    try:
        with pytest.raises(TopologyError, match="'broken'.*has failed 3 times in a row.*table of cities is not there"):
            handle.backend.wait_until(lambda _: False, 90)
        assert handle.backend.failure is not None
        client = ClusterClient(kafka)
        wait_for(lambda: [t for t in client.topologies() if t["name"] == name and t["health"]["state"] == "failed"], 60, "the news in another shell")
        (line,) = [t for t in client.topologies() if t["name"] == name]
        assert "table of cities" in line["health"]["why"][0] and line["driver_alive"]
        errors = wait_for(lambda: client.errors(name), 60, "errors for get-errors")
        assert "table of cities" in errors["broken"][-1]["error"] and "__driver" in errors
        driver = wait_for(lambda: client.stats(name).driver, 60, "the driver's record")
        assert driver["restarts"] == {"broken": 2} and driver["problems"]["query"] == 3 and driver["state"] == "failed"
    finally:
        cluster.kill_topology(name, wait_secs=0)
        wait_for(lambda: name not in cluster.manager.topologies, 30, "the removal")


def test_the_watch_goes_on_while_the_janitor_waits_for_brokers(cluster, name, tmp_path, monkeypatch):
    came, go_on = threading.Event(), threading.Event()

    def wait(*_):
        came.set()
        go_on.wait(120)

    monkeypatch.setattr(Janitor, "EVERY_S", 0.1)
    monkeypatch.setattr(TopologyTopics, "drop_old_records", wait)
    kafka = cluster.environment.kafka
    topology, conf = sum_chain(make_topic(kafka, f"{name}-out"), 1000, 500)
    driver = TopologyDriver(TopologyPlan.build(name, f"{name}-1-1", conf, topology), cluster.environment.spark, kafka, tmp_path / name)
    try:
        driver.activate()
        assert came.wait(60)
        before = driver.stats.total("sink", "executed")
        driver.wait_until(lambda stats: stats.total("sink", "executed") == 1000, 60)
        assert before < 1000, "the janitor waited from the beginning"
    finally:
        go_on.set()
        driver.close(remove=True)


class NotYetError(TopologyError):
    retriable = True


class WaitsForTable(BasicBolt):
    """Raises in ``prepare`` until a file exists."""

    def __init__(self, path: str) -> None:
        self.path = path

    def prepare(self, conf, context):
        if not os.path.exists(self.path):
            raise NotYetError("the table of cities is not there yet")

    def execute(self, tup, collector):
        """Counts."""


def test_what_trying_again_mends_is_tried_for_as_long_as_it_takes(cluster, name, tmp_path):
    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(500, 100))
    builder.set_bolt("table", WaitsForTable(str(tmp_path / "table"))).fields_grouping("numbers", Fields("key"))
    with cluster.submit_topology(name, {"topology.acker.executors": 0, "topology.emulator.restarts.max": 2}, builder.create_topology()) as handle:
        wait_for(lambda: handle.backend.health()["state"] == "waiting", 60, "the news that it waits")
        assert "'table' waits: the table of cities is not there yet" in handle.backend.health()["why"][0]
        wait_for(lambda: sum(e["component"] == "table" for e in handle.stats.errors) > 2, 30, "more attempts than may fail otherwise")
        (tmp_path / "table").touch()
        handle.backend.wait_until(lambda stats: stats.total("table", "executed") >= 500, 60)
        wait_for(lambda: handle.backend.health()["state"] == "running", 60, "the news that it runs")


# -- input that is gone ---------------------------------------------------------------------------


def copy_plan(name: str, topic: str, out: str, **conf) -> TopologyPlan:
    builder = TopologyBuilder()
    builder.set_spout("input", KafkaSpout(topic))
    builder.set_bolt("sink", Recorder(out)).global_grouping("input")
    return TopologyPlan.build(name, f"{name}-1-1", {"topology.acker.executors": 0, **conf}, builder.create_topology())


def publish(kafka: KafkaSettings, topic: str, numbers: range) -> None:
    producer = kafka.producer()
    for number in numbers:
        producer.send(topic, value=str(number).encode())
    producer.close()


def test_input_that_is_gone_ends_the_topology_or_is_counted_and_skipped(cluster, name, tmp_path):
    kafka, spark = cluster.environment.kafka, cluster.environment.spark
    topic, out = make_topic(kafka, f"{name}-in"), make_topic(kafka, f"{name}-out")
    first = TopologyDriver(copy_plan(name, topic, out), spark, kafka, tmp_path)
    first.activate()
    publish(kafka, topic, range(100))
    first.wait_until(lambda stats: stats.total("sink", "executed") >= 100, 60)
    first.close(remove=False)
    publish(kafka, topic, range(100, 200))
    admin = TopicAdmin(kafka)
    admin.delete_records({(topic, 0): 150})
    admin.close()
    refused = TopologyDriver(copy_plan(name, topic, out), spark, kafka, tmp_path, resume=True)
    with pytest.raises(TopologyError, match=rf"input is lost: 50 records of {topic}/0, offsets 100 to 149: the log begins at 150.*on.data.loss.*'input'"):
        refused.activate()
    refused.close(remove=False)
    skipping = TopologyDriver(copy_plan(name, topic, out, **{"topology.emulator.on.data.loss": "skip"}), spark, kafka, tmp_path, resume=True)
    try:
        skipping.activate()
        skipping.wait_until(lambda stats: stats.total("sink", "executed") >= 150, 60)
        records = await_output(kafka, out, 150, 60, "the records that are there")
        found = Counter(int(re.search(rb"b'(\d+)'", r.value)[1]) for r in records.values())
        assert found == Counter([*range(100), *range(150, 200)])
        (report,) = [r for r in skipping.stats.tasks.values() if r["component"] == "input"]
        assert report["lost"] == {f"{topic}/0": 50}
    finally:
        skipping.close(remove=True)


# -- one driver at a time -------------------------------------------------------------------------


def test_a_driver_that_was_replaced_ends_and_touches_nothing(cluster, name, tmp_path):
    kafka, spark, total = cluster.environment.kafka, cluster.environment.spark, 6_000
    out = make_topic(kafka, f"{name}-out")
    topology, conf = sum_chain(out, total, 1_500)

    def driver(**more) -> TopologyDriver:
        return TopologyDriver(TopologyPlan.build(name, f"{name}-1-1", conf, topology), spark, kafka, tmp_path, **more)

    first = driver()
    first.activate()
    first.wait_until(lambda stats: stats.total("sink", "executed") > total // 10, 60)
    second = driver(resume=True)
    try:
        second.activate()
        wait_for(lambda: first.failure, 20, "the end of the first driver")
        assert isinstance(first.failure, FencedError) and "another driver" in str(first.failure)
        first.close(remove=True)  # although it is told to remove everything
        assert (tmp_path / MANIFEST).exists() and inbox_topic(name, "sink") in existing_topics(kafka, name)
        second.wait_until(lambda stats: stats.total("sink", "executed") >= total, 90)
        records = await_output(kafka, out, total, 60, "the last record")
        assert Counter(r.value for r in records.values()) == sums_expected(total)
    finally:
        second.close(remove=True)


# -- arbitrary records in the metrics topic, which clock and watch must survive ----------------------


def test_odd_records_of_the_metrics_topic_end_neither_clock_nor_watch(cluster, name):
    kafka, total = cluster.environment.kafka, 1_500
    out = make_topic(kafka, f"{name}-out")
    topology, conf = sum_chain(out, total, 500)
    with cluster.submit_topology(name, conf, topology) as handle:
        producer = kafka.producer()
        task = {"component": "first", "task": 99, "emitted": {}, "received": {}, "sent": {}, "version": 1}
        for value in (
            b"",
            b"[]",
            b"{",
            b'{"kind": "stats"}',
            json.dumps({"kind": "stats", "component": "first", "tasks": [task]}).encode(),
            json.dumps({"kind": "stats", "component": "first", "tasks": [{**task, "task": 2, "sent": {"77": 4}}]}).encode(),
        ):
            producer.send(metrics_topic(name), key=b"first/0", value=value)
        producer.close()
        handle.backend.wait_until(lambda stats: stats.total("sink", "executed") >= total, 60)
        handle.backend.check()
        assert handle.stats.unreadable >= 6
        admin = TopicAdmin(kafka)
        kept = admin.configs([dead_letters_topic(name)])[dead_letters_topic(name)]
        admin.close()
        assert (kept["retention.ms"], kept["retention.bytes"]) == (str(7 * 24 * 3_600_000), str(1 << 30))  # limited by default
        records = await_output(kafka, out, total, 60, "the last record")
        assert Counter(r.value for r in records.values()) == sums_expected(total)


def test_a_deleted_topic_of_statistics_is_made_again_and_nothing_is_lost(cluster, name, monkeypatch):
    monkeypatch.setattr(Janitor, "EVERY_S", 2)
    kafka, total = cluster.environment.kafka, 6_000
    out = make_topic(kafka, f"{name}-out")
    topology, conf = sum_chain(out, total, 1_500)
    with cluster.submit_topology(name, conf, topology) as handle:
        handle.backend.wait_until(lambda stats: stats.total("sink", "executed") > total // 4, 60)
        admin = TopicAdmin(kafka)
        admin.delete([metrics_topic(name)])
        admin.close()
        records = await_output(kafka, out, total, 120, "the last record")
        assert Counter(r.value for r in records.values()) == sums_expected(total)
        wait_for(lambda: any("is created again" in e for e in (x["error"] for x in ClusterClient(kafka).errors(name).get("__driver", ()))), 60, "the news")


# -- a resume refuses instead of guessing (without Spark and Kafka) ---------------------------------


def chain(folder: Path, conf: dict | None = None, tasks: int = 2, resume: bool = True) -> TopologyDriver:
    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(10))
    builder.set_bolt("sum", RunningSum(), tasks).fields_grouping("numbers", Fields("key"))
    return TopologyDriver(TopologyPlan.build("t", "t-1-1", conf or {}, builder.create_topology()), None, KafkaSettings("127.0.0.1:1"), folder, resume=resume)


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A folder in which a topology was started, with a snapshot."""
    driver = chain(tmp_path, resume=False)
    driver._prepare_folder()
    driver._manifest.write(tmp_path)
    driver.store.save(1, 5, b"x")
    return tmp_path


def test_a_resume_takes_the_next_term_and_keeps_the_snapshots(started):
    before = chain(started).store.newest_term()
    driver = chain(started, {"topology.emulator.snapshot.interval.ms": 77})
    driver._prepare_folder()
    assert driver.resume and driver.store.versions(1) == [5]
    assert driver.store.newest_term() == before + 1
    assert json.loads((started / MANIFEST).read_text())["conf"]["topology.emulator.snapshot.interval.ms"] == 77


@pytest.mark.parametrize(("change", "named"), [({"tasks": 3}, "'sum': tasks 2 -> 3"), ({"conf": {"my.words": "b"}}, r'my.words: \(not set\) -> "b"')])
def test_a_changed_topology_is_refused_with_its_differences_and_nothing_is_removed(started, change, named):
    driver = chain(started, **change)
    with pytest.raises(ResumeRefusedError, match=f"(?s){named}.*hint: .*--fresh"):
        driver.open()
    driver.close(remove=False)
    assert chain(started).store.versions(1) == [5]


def test_without_its_manifest_state_is_neither_used_nor_removed(started):
    (started / MANIFEST).unlink()
    with pytest.raises(ControlFileError, match=f"holds snapshots, but no {MANIFEST}.*--fresh"):
        chain(started).open()
    assert chain(started).store.versions(1) == [5]


def test_a_fresh_start_removes_what_was_there_and_keeps_earlier_drivers_out(started):
    before = chain(started).store.newest_term()
    driver = chain(started, tasks=3, resume=False)
    driver._prepare_folder()
    assert driver.store.versions(1) == [] and driver.store.newest_term() == before + 1


def test_a_folder_in_which_nothing_was_started_is_no_resume(tmp_path):
    driver = chain(tmp_path)
    driver._prepare_folder()
    assert not driver.resume


def test_a_partition_beyond_its_end_is_refused_too(cluster, name, tmp_path):
    kafka = cluster.environment.kafka
    topic = make_topic(kafka, f"{name}-in")
    publish(kafka, topic, range(10))
    driver = TopologyDriver(copy_plan(name, topic, "out"), None, kafka, tmp_path)
    spout = driver.plan.spec("input").obj
    with pytest.raises(TopologyError, match="the log ends at 10"):
        driver._inputs.positions("input", spout, {(topic, 0): 11}, skip_lost=False)
    assert driver._inputs.positions("input", spout, {(topic, 0): 11}, skip_lost=True) == {(topic, 0): 0}
    assert driver._inputs.positions("input", spout, {(topic, 0): 4}, skip_lost=False) == {(topic, 0): 4}
    consumer = kafka.consumer()
    assert consumer.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)] == 10
    consumer.close()
