"""Topologies listed and commanded from another shell, on a real broker: whose driver is alive, and arbitrary records in the topic."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import TopicPartition

from dskype.deploy.machine.broker import EmbeddedBroker
from dskype.topology import Fields, TopologyBuilder
from dskype.topology.core.stats import TopologyStats
from dskype.topology.errors import NotAliveException, TopologyError, TransitionException
from dskype.topology.nimbus.manager import TopologyManager
from dskype.topology.planning.plan import inbox_topic, metrics_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.nimbus import liveness, nimbus_topic
from dskype.topology.runtime.nimbus.nimbus_topic import NIMBUS_TOPIC, ClusterClient, NimbusService, load_removed, load_states, watch_drivers
from tests.waiting import wait_for

from ..components import PacedNumbers, RunningSum
from ..helpers import existing_topics, freeze


@pytest.fixture
def kafka(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


def word_topology():
    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(10))
    builder.set_bolt("sum", RunningSum()).fields_grouping("numbers", Fields("key"))
    return builder.create_topology()


class Backend:
    """Runs nothing."""

    def __init__(self, plan) -> None:
        self.plan, self.stats, self.abandoned, self.warnings = plan, TopologyStats(), [], []

    def activate(self) -> None: ...
    def deactivate(self) -> None: ...
    def rebalance(self, plan) -> None: ...
    def close(self, *, remove: bool) -> None: ...

    def health(self) -> dict[str, Any]:
        return {"state": "stalled", "why": ["task 2 waits"], "restarts": 3}

    def abandon(self, reason: str) -> None:
        self.abandoned.append(reason)


@contextlib.contextmanager
def driver(kafka: KafkaSettings, name: str) -> Iterator[Backend]:
    """Yield the backend of a topology that this process runs."""
    manager = TopologyManager(Backend, lambda: time.time_ns() // 1_000_000, on_change=lambda *what, **how: service.publish(*what, **how))
    service = NimbusService(kafka, manager, threading.RLock())
    try:
        yield manager.submit(name, {"topology.message.timeout.secs": 1}, word_topology()).backend
    finally:
        service.close()
        put(kafka, f"topology:{name}", None)


def put(kafka: KafkaSettings, key: str, value: bytes | dict | None) -> None:
    put_all(kafka, [(key, value)])


def put_all(kafka: KafkaSettings, records: Iterable[tuple[str, bytes | dict | None]]) -> None:
    producer = kafka.producer()
    for key, value in records:
        producer.send(NIMBUS_TOPIC, key=key.encode(), value=json.dumps(value).encode() if isinstance(value, dict) else value)
    producer.close()


JUNK = (
    b"",
    b"no json",
    b"[]",
    b"{}",
    b'{"v": 1}',
    b'{"v": 2, "state": {}}',
    b"\xff\xfe",
    b'{"v": 1, "state": {"name": 3}, "summary": {}, "driver": {}}',
    b"[" * 10_000,
)


def test_what_is_no_record_is_left_out_by_everybody(kafka, name):
    with driver(kafka, name):
        keys = {f"{kind}:junk-{name}-{i}": value for i, value in enumerate(JUNK) for kind in ("topology", "command", "answer", "removed")}
        put_all(kafka, [*keys.items(), ("", b"x")])
        client = ClusterClient(kafka)
        assert [t for t in client.topologies() if t["name"].startswith("junk")] == []
        (line,) = [t for t in client.topologies() if t["name"] == name]
        assert line["driver_alive"] and line["health"]["why"] == ["task 2 waits"]
        client.send({"name": name, "event": "INACTIVATE"})  # the thread that handles commands has survived
        assert client.state(name).status == "INACTIVE"
        with pytest.raises(TransitionException):
            client.send({"name": name, "event": "DO_REBALANCE"})
    put_all(kafka, [(key, None) for key in keys])


@contextlib.contextmanager
def elsewhere(kafka: KafkaSettings, name: str, *, beats: bool, answers: Callable[[], object] = lambda: None) -> Iterator[list[dict]]:
    """Publish a topology like a driver on another host with a clock that is far behind; yield the commands that it gets. It calls ``answers`` before it answers one."""
    nimbus_topic._ensure_topic(kafka)
    record = {
        "v": 1,
        "state": {"v": 1, "id": f"{name}-1-1", "name": name, "conf": {}, "components": ["numbers", "sum"], "submitted_ms": 0},
        "summary": {"name": name, "status": "ACTIVE"},
        "driver": {"host": "elsewhere", "pid": 1, "machine": "elsewhere", "started": 5},
    }
    commands: list[dict] = []
    stop = threading.Event()

    def run() -> None:
        producer, consumer, beat = kafka.producer(), kafka.consumer(), 0
        where = TopicPartition(NIMBUS_TOPIC, 0)
        consumer.assign([where])
        consumer.seek_to_end(where)
        consumer.position(where)
        while True:
            beat += 1
            producer.send(
                NIMBUS_TOPIC,
                key=f"topology:{name}".encode(),
                value=json.dumps({**record, "heartbeat": beat, "heartbeat_ms": time.time_ns() // 1_000_000 - 3_600_000}).encode(),
            )
            producer.flush()
            started.set()
            if not beats or stop.wait(0.3):
                break
            for batch in consumer.poll(timeout_ms=100).values():
                for r in batch:
                    if r.key.startswith(b"command:") and r.value is not None and json.loads(r.value)["name"] == name:
                        commands.append(json.loads(r.value))
                        answers()
                        producer.send(NIMBUS_TOPIC, key=b"answer:" + r.key[8:], value=b'{"v": 1, "error": null}')
        producer.close()
        consumer.close()

    started = threading.Event()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    started.wait()
    admin = TopicAdmin(kafka)
    admin.create({inbox_topic(name, "numbers"): 1, inbox_topic(name, "sum"): 1, metrics_topic(name): 1}, {})
    admin.close()
    try:
        yield commands
    finally:
        stop.set()
        thread.join()
        put(kafka, f"topology:{name}", None)


def test_a_driver_elsewhere_whose_clock_is_an_hour_behind_is_alive_and_keeps_its_topics(kafka, name):
    with elsewhere(kafka, name, beats=True) as commands:
        assert watch_drivers(kafka, {name: load_states(kafka)[name]}) == {name: True}
        ClusterClient(kafka).send({"name": name, "event": "KILL", "wait_secs": 0})
        assert [c["event"] for c in commands] == ["KILL"]
        assert len(existing_topics(kafka, name)) == 3
        assert name not in load_removed(kafka)


@pytest.mark.product
def test_a_driver_is_not_taken_for_dead_because_the_brokers_stood_still(name, monkeypatch):
    monkeypatch.setattr(liveness, "DEAD_AFTER_S", 2.0)
    monkeypatch.setattr(liveness, "_GAP_S", 0.5)
    stopped = threading.Event()
    with EmbeddedBroker() as broker, elsewhere(kafka := KafkaSettings(broker.bootstrap_servers), name, beats=True, answers=stopped.wait) as commands:
        with ThreadPoolExecutor() as pool:
            killed = pool.submit(ClusterClient(kafka).send, {"name": name, "event": "KILL", "wait_secs": 0})
            try:
                wait_for(lambda: commands, 60, "the command")
                freeze(broker.pid)
                stopped.set()
                time.sleep(4)  # twice as long as a silence may last
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            killed.result(60)
        assert len(existing_topics(kafka, name)) == 3  # the driver's answer counts, and it has removed nothing yet
        assert name not in load_removed(kafka)


def test_the_heart_of_a_driver_beats_so_that_other_hosts_know_that_it_is_alive(kafka, name, monkeypatch):
    monkeypatch.setattr(nimbus_topic, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(nimbus_topic, "describe_driver", lambda: {"host": "elsewhere", "pid": 1, "machine": "elsewhere", "started": 5})
    with driver(kafka, name):
        assert watch_drivers(kafka, {name: load_states(kafka)[name]}) == {name: True}
        before = load_states(kafka)[name]["heartbeat"]
        wait_for(lambda: load_states(kafka)[name]["heartbeat"] >= before + 3, 60, "further beats")


def test_a_driver_elsewhere_that_is_gone_is_found_out_by_watching(kafka, name, monkeypatch):
    monkeypatch.setattr(liveness, "DEAD_AFTER_S", 2.0)
    with elsewhere(kafka, name, beats=False):
        assert watch_drivers(kafka, {name: load_states(kafka)[name]}) == {name: False}
        with pytest.raises(TopologyError, match="is gone.*submit it again to resume it"):
            ClusterClient(kafka).send({"name": name, "event": "ACTIVATE"})
        ClusterClient(kafka).send({"name": name, "event": "KILL", "wait_secs": 0})
        assert not existing_topics(kafka, name)
        assert load_removed(kafka)[name] == f"{name}-1-1"
        with pytest.raises(NotAliveException):
            ClusterClient(kafka).state(name)


def test_a_driver_that_was_taken_for_dead_hears_that_its_topology_was_killed(kafka, name):
    with driver(kafka, name) as backend:
        put(kafka, f"removed:{name}", {"v": 1, "id": "another one"})
        put(kafka, f"removed:{name}", {"v": 1, "id": backend.plan.topology_id})
        wait_for(lambda: backend.abandoned, 60, "the news")
        assert "killed from another shell" in backend.abandoned[0] and len(backend.abandoned) == 1
        put(kafka, f"removed:{name}", None)
