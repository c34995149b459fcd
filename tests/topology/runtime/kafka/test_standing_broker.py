"""A broker that stands still for longer than its clients' patience: what is written then has an outcome, and afterwards everything goes on by itself."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from argparse import Namespace
from collections.abc import Iterator

import pytest
from kafka.errors import KafkaError, KafkaTimeoutError

from dskype.deploy.cli import lines
from dskype.deploy.client.pubsub import PubSub, SendError
from dskype.deploy.machine.broker import EmbeddedBroker
from dskype.spouts.topics import Topics
from dskype.topology.core.frames import OutRecord
from dskype.topology.core.snapshots import WriteError
from dskype.topology.nimbus.manager import TopologyManager
from dskype.topology.runtime.kafka import record_producer
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient, NimbusService, load_states
from dskype.topology.runtime.stores import kafka_store
from dskype.topology.runtime.stores.kafka_store import KafkaSnapshotStore
from dskype.topology.runtime.transport.record_writer import RecordWriter
from tests.waiting import crowding, wait_for

from ..helpers import freeze, make_topic
from ..nimbus.test_nimbus_topic import Backend, word_topology

pytestmark = pytest.mark.product

_PATIENCE_S = 3
BACK_S = 60
"""How long anything may take to go on after the broker has come back."""


@pytest.fixture(scope="module")
def still() -> Iterator[EmbeddedBroker]:
    """A broker of its own, because it is stopped."""
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def kafka(still: EmbeddedBroker) -> KafkaSettings:
    return KafkaSettings(still.bootstrap_servers)


@contextlib.contextmanager
def standing(broker: EmbeddedBroker) -> Iterator[None]:
    """Let a broker stand still: it accepts connections and answers nothing."""
    freeze(broker.pid)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def succeeds(call) -> bool:
    try:
        call()
    except (KafkaError, WriteError, SendError):
        return False
    return True


@pytest.mark.parametrize("forked", [False, True], ids=["librdkafka", "kafka-python"])
def test_a_producer_gives_up_what_is_not_taken_in_time_and_goes_on_by_itself(still, kafka, name, forked):
    topic, sent = make_topic(kafka, name), []
    patience_s = 2 * crowding()
    with kafka.producer(delivery_timeout_s=patience_s, forked=forked) as producer:

        def send(*texts: str) -> list[record_producer.Delivery]:
            sent.extend((text, producer.send(topic, text.encode())) for text in texts)
            return [delivery for _, delivery in sent[-len(texts) :]]

        assert [delivery.get().offset for delivery in send("a", "b")] == [0, 1]
        assert producer.silent_s == 0.0
        with standing(still):
            for delivery in send("c", "d"):
                with pytest.raises(KafkaTimeoutError):
                    delivery.get()
            with pytest.raises(KafkaTimeoutError):
                producer.flush()
            assert producer.silent_s >= patience_s
        wait_for(lambda: succeeds(send(f"e{len(sent)}")[0].get), BACK_S, "a record after the broker's return")
        assert [delivery.failed() for delivery in send("f", "g")] == [False, False] and succeeds(producer.flush)
    records = read_to_end(kafka, topic)
    stored = {delivery.get().offset: text.encode() for text, delivery in sent if not delivery.failed()}
    assert {r.offset: r.value for r in records if r.offset in stored} == stored  # all that was acknowledged is there
    assert list(stored.values())[-2:] == [b"f", b"g"] and records[-1].value == b"g"


def test_no_client_stays_dumb_because_a_single_broker_was_counted_as_gone(name):
    """Kafka's controller takes the broker for gone, which is on its own process: for a moment its answers say that there are no brokers."""
    with EmbeddedBroker(properties={"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 500}) as broker, contextlib.ExitStack() as open_ones:
        kafka = KafkaSettings(broker.bootstrap_servers)
        topic = make_topic(kafka, name)
        producers = [open_ones.enter_context(kafka.producer(delivery_timeout_s=BACK_S)) for _ in range(10)]
        writers = [RecordWriter(kafka) for _ in range(10)]
        for producer in producers:
            producer.send(topic, b"before").get()
        for writer in writers:
            writer.write([OutRecord(topic, 0, None, b"before")])
            writer.flush()
        for _ in range(3):  # not every client asks in such a moment
            with standing(broker):
                sent = [producer.send(topic, b"meanwhile") for producer in producers]
                for writer in writers:
                    writer.write([OutRecord(topic, 0, None, b"meanwhile")])
                time.sleep(5)  # longer than the session
            assert [delivery.get().topic for delivery in sent] == [topic] * 10
            for writer in writers:
                writer.flush()  # gives a client up that has stopped


def test_a_client_reports_what_is_lost_refuses_more_and_goes_on_by_itself(still, kafka, name):
    make_topic(kafka, Topics.for_topology(name).messages)
    client = PubSub(kafka, name, conf={}, timeout_s=_PATIENCE_S * crowding())
    client.publish(text="before", lat=0, lon=0, wait=True)
    with standing(still):
        client.publish(text="lost", lat=0, lon=0)
        with pytest.raises(SendError, match="the message did not reach Kafka: .*the brokers have not taken the record in time"):
            client.publish(text="lost as well", lat=0, lon=0, wait=True)
        wait_for(lambda: client.failed == 2, BACK_S, "the end of the first two records")
        client.publish(text="a trial", lat=0, lon=0)
        with pytest.raises(SendError, match="Kafka has stored nothing for .* s; 1 of 4 records are stored"):
            client.publish(text="refused", lat=0, lon=0)
        with pytest.raises(SendError, match="of 4 records did not reach Kafka; the first: .*not taken the record in time"):
            client.flush()
        wait_for(lambda: client.waiting == 0, BACK_S, "the end of the trial")
    wait_for(lambda: succeeds(lambda: client.publish(text="after", lat=0, lon=0, wait=True)), BACK_S, "a message after the broker's return")
    with contextlib.suppress(SendError):  # what was given up meanwhile
        client.flush()
    assert client.stored == 2 and client.stored + client.failed == client.sent
    client.publish(text="last", lat=0, lon=0)
    client.close()
    assert client.stored == 3


def test_the_end_of_a_client_says_what_is_not_stored_in_words_of_its_own(still, kafka, name, capfd):
    make_topic(kafka, Topics.for_topology(name).messages)
    timeout_s = crowding()
    client = PubSub(kafka, name, conf={}, timeout_s=timeout_s, patience_s=BACK_S * timeout_s)
    client.publish(text="before", lat=0, lon=0, wait=True)
    with standing(still):
        client.publish(text="lost", lat=0, lon=0)
        with pytest.raises(SendError, match=f"Kafka did not take everything within {timeout_s:g} s; 1 of 2 records are stored"):
            client.close()
    assert (client.stored, client.failed, client.waiting) == (1, 1, 0)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("patience_s", [BACK_S, _PATIENCE_S])
def test_a_command_counts_what_is_stored_says_that_nothing_is_and_fails_if_a_line_is_lost(still, kafka, name, monkeypatch, capfd, patience_s):
    monkeypatch.setattr(lines, "_SILENT_S", 0.5)
    monkeypatch.setattr(lines, "Progress", lambda **_: Watched())
    make_topic(kafka, Topics.for_topology(name).messages)
    client, texts = PubSub(kafka, name, conf={}, timeout_s=10 * crowding(), patience_s=patience_s * crowding()), []

    class Watched:
        elapsed_s = 1.0

        def __call__(self, text):
            texts.append(text())

        def end(self): ...

    def send(line):
        sending.send(line, lambda: client.send_message(b"%d" % line))

    with lines.Sending(Namespace(output="json"), client, "message") as sending:
        send(1)
        wait_for(lambda: client.stored == 1, BACK_S, "the first record")
        with standing(still):
            send(2)
            wait_for(lambda: client.silent_s > 0.5, BACK_S, "some time without a stored record")
            send(3)
            if patience_s == _PATIENCE_S:
                wait_for(lambda: client.failed == 2, BACK_S, "the end of the records")
    code, told = sending.summary({}), capfd.readouterr()
    assert texts[-1].startswith("1 message stored, 0 refused, 0 failed, 2 waiting, Kafka has stored nothing for ")
    if patience_s == BACK_S:  # the broker came back in time
        assert code == 0 and "3 messages sent, 0 refused\n" in told.err and '{"sent": 3, "refused": 0, "failed": 0, "errors": []}' in told.out
    else:
        assert code == 1 and "1 message sent, 0 refused, 2 not stored by Kafka\n" in told.err and '{"sent": 1, "refused": 0, "failed": 2' in told.out
        assert all(f"error: line {line}: Kafka has not stored it: " in told.err for line in (2, 3)) and '"line": 2' in told.out


def test_heartbeats_and_commands_go_on(still, kafka, name, monkeypatch):
    make = KafkaSettings.producer
    monkeypatch.setattr(KafkaSettings, "producer", lambda self, delivery_timeout_s=1, **more: make(self, delivery_timeout_s=min(1, delivery_timeout_s), **more))
    manager = TopologyManager(Backend, lambda: time.time_ns() // 1_000_000, on_change=lambda *what, **how: service.publish(*what, **how))
    service = NimbusService(kafka, manager, threading.RLock())
    try:
        manager.submit(name, {}, word_topology())
        client = ClusterClient(kafka)
        with standing(still):
            wait_for(lambda: service._producer.silent_s > 2, BACK_S, "heartbeats that are not stored")
        beats = service._beats
        wait_for(lambda: load_states(kafka)[name]["heartbeat"] > beats, BACK_S, "a heartbeat after the broker's return")
        wait_for(lambda: succeeds(lambda: client.send({"name": name, "event": "INACTIVATE"})), BACK_S, "an answer to a command")
        assert manager.topologies[name].state.status == "INACTIVE"
    finally:
        service.close()


def test_the_store_in_kafka_refuses_what_it_cannot_write_and_goes_on_also_in_a_fork(still, kafka, name, monkeypatch):
    monkeypatch.setattr(kafka_store, "_TIMEOUT_S", 2 * crowding())
    kafka = KafkaSettings(kafka.bootstrap_servers, client={"bootstrap_timeout_ms": int(2000 * crowding())})
    store = KafkaSnapshotStore(kafka, name, 2)
    store.create()
    store.save(1, 10, b"ten")
    with standing(still), pytest.raises(WriteError, match="the topology continues by itself"):
        store.save(1, 20, b"twenty")
    wait_for(lambda: succeeds(lambda: store.save(1, 30, b"thirty")), BACK_S, "a snapshot after the broker's return")
    store.rest()
    if (pid := os.fork()) == 0:
        gc.disable()  # as in the fork of an executor
        try:
            store.save(1, 40, b"forty")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    other = KafkaSnapshotStore(kafka, name, 2)
    assert other.versions(1)[-2:] == [30, 40]
    for view in (store, other):
        view.rest()
