"""Producers without a broker: which client is used, what errors say, and what replaces a client, or ends a process, that has become dumb."""

from __future__ import annotations

import contextlib
import gc
import logging
import ssl
import threading
import weakref
from types import SimpleNamespace

import confluent_kafka
import pytest
from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, UnknownTopicOrPartitionError

from dskype.deploy.machine import launch
from dskype.topology import Fields, KafkaSpout, TopologyBuilder
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.driver import watch as watch_module
from dskype.topology.runtime.driver.driver import TopologyDriver
from dskype.topology.runtime.driver.watch import Janitor
from dskype.topology.runtime.kafka import connections, record_producer, write_watch
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.write_watch import WriteWatch
from tests.waiting import wait_for

Error = confluent_kafka.KafkaError


class Client:
    """A client of librdkafka: what it does with records is up to the test."""

    made: list[Client] = []

    def __init__(self, settings):
        self.settings, self.reports, self.outcome = settings, [], None
        Client.made.append(self)

    def produce(self, topic, value, key, *, on_delivery, headers, partition=-1):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        self.reports.append((on_delivery, self.outcome))

    def poll(self, seconds):
        ready, self.reports = [r for r in self.reports if r[1] is not None], [r for r in self.reports if r[1] is None]
        for on_delivery, outcome in ready:
            message = SimpleNamespace(partition=lambda: 0, offset=lambda: 7, timestamp=lambda: (1, 5))
            on_delivery(*((None, message) if isinstance(outcome, str) else (outcome, None)))
        threading.Event().wait(0.005)

    flush = poll

    def purge(self):
        self.reports = [(on_delivery, Error(Error._PURGE_QUEUE)) for on_delivery, _ in self.reports]


@pytest.fixture
def clients(monkeypatch):
    monkeypatch.setattr(record_producer.confluent_kafka, "Producer", Client)
    monkeypatch.setattr(Client, "made", [])
    return Client.made


@pytest.mark.parametrize(
    ("given", "of"),
    [
        ({}, "LibrdkafkaProducer"),
        ({"bootstrap_timeout_ms": 5_000, "security_protocol": "PLAINTEXT"}, "LibrdkafkaProducer"),
        ({"sasl_mechanism": "GSSAPI", "security_protocol": "SASL_PLAINTEXT"}, "KafkaPythonProducer"),
        ({"ssl_context": ssl.create_default_context(), "security_protocol": "SSL"}, "KafkaPythonProducer"),
        ({"socks5_proxy": "socks5://127.0.0.1:1"}, "KafkaPythonProducer"),
    ],
)
def test_a_setting_that_librdkafka_cannot_follow_keeps_kafka_python_which_then_goes_on_after_a_pause(monkeypatch, clients, given, of):
    made = []
    monkeypatch.setattr(record_producer, "KafkaProducer", lambda **arguments: made.append(arguments) or SimpleNamespace(close=lambda timeout: None))
    producer = KafkaSettings("127.0.0.1:1", client=given).producer()
    assert type(producer).__name__ == of
    producer.close()
    for arguments in made:  # otherwise it stands for ever after a record that was given up
        assert (arguments["enable_idempotence"], arguments["max_in_flight_requests_per_connection"], arguments["acks"]) == (False, 1, "all")
        assert arguments["delivery_timeout_ms"] >= arguments["request_timeout_ms"] + arguments["linger_ms"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Error._MSG_TIMED_OUT, KafkaTimeoutError),
        (Error._UNKNOWN_TOPIC, UnknownTopicOrPartitionError),
        (Error._UNKNOWN_PARTITION, UnknownTopicOrPartitionError),
        (Error._TRANSPORT, KafkaConnectionError),
        (Error.MSG_SIZE_TOO_LARGE, MessageSizeTooLargeError),
        (Error._SSL, KafkaError),
    ],
)
def test_errors_are_those_of_the_other_clients(clients, code, kind):
    with KafkaSettings("127.0.0.1:1").producer() as producer:
        for outcome in (Error(code), confluent_kafka.KafkaException(Error(code))):  # later, and at once
            clients[0].outcome = outcome
            sent = producer.send("t", b"x")
            with pytest.raises(kind):
                sent.get()
            assert sent.failed()
        with pytest.raises(kind):
            producer.flush()
        clients[0].outcome = "stored"
        assert producer.send("t", b"x").get() == ("t", 0, 7, 5)
        producer.flush()


def test_what_is_left_at_the_end_has_an_outcome_and_a_closed_producer_takes_nothing(clients):
    producer = KafkaSettings("127.0.0.1:1").producer()
    left = producer.send("t", b"x")
    producer.close(timeout=0)
    with pytest.raises(KafkaError, match="closed before the brokers had taken the record"):
        left.get()
    with pytest.raises(KafkaError, match="the producer is closed"):
        producer.send("t", b"x").get()
    producer.close()


def test_a_client_that_has_ended_by_a_fatal_error_is_replaced(clients):
    with KafkaSettings("127.0.0.1:1").producer() as producer:
        first = producer.send("t", b"waits in the first client")
        clients[0].outcome = confluent_kafka.KafkaException(Error(Error._FATAL, "fenced", fatal=True))
        second = producer.send("t", b"x")
        assert len(clients) == 2 and first.failed()
        clients[1].outcome = "stored"
        assert producer.send("t", b"x").get().offset == 7
        assert not second.done()
        clients[1].settings["error_cb"](Error(Error._FATAL, "out of order", fatal=True))
        producer.send("t", b"x")
        assert len(clients) == 3
        producer.close(timeout=0)  # the records that wait have no outcome


def test_a_client_that_stores_nothing_for_long_is_replaced(clients, monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(record_producer, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=lambda seconds: None))
    with KafkaSettings("127.0.0.1:1").producer(delivery_timeout_s=10) as producer:
        producer.send("t", b"x")
        now_s[0] = 20.0
        producer.send("t", b"x")
        assert len(clients) == 1 and producer.silent_s == 20.0
        now_s[0] = 26.0
        producer.send("t", b"x")
        assert len(clients) == 2 and producer.silent_s == 26.0  # until a record is stored
        now_s[0] = 45.0
        clients[1].outcome = "stored"
        assert producer.send("t", b"x").get() and producer.silent_s == 0.0 and len(clients) == 2
        producer.close(timeout=0)


def test_clients_of_closed_and_of_forgotten_producers_end_without_the_garbage_collector(clients):
    gc.disable()  # in a fork it would end clients whose threads are not there, and crash
    try:
        for close in (True, False):
            producer = KafkaSettings("127.0.0.1:1").producer()
            client = weakref.ref(clients.pop())
            if close:
                producer.close()
            del producer
            assert wait_for(lambda client=client: client() is None, 10, "the end of the client")
    finally:
        gc.enable()


def test_what_a_client_repeats_is_logged_seldom(caplog, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(connections.time, "monotonic", lambda: now_s[0])
    with caplog.at_level(logging.WARNING, connections._client_log.name):
        for second in range(15):
            now_s[0] += 1
            connections._client_log.warning("broker %d is down for %d ms", 1, second)
            connections._client_log.warning("other text")
    assert [record.getMessage() for record in caplog.records] == ["broker 1 is down for 0 ms", "other text", "broker 1 is down for 10 ms", "other text"]


def test_a_driver_is_dumb_when_only_others_can_write_and_stays_so():
    now_s, others, producer = [0.0], [], SimpleNamespace(silent_s=0.0)

    def write_otherwise():
        others.append(now_s[0])
        if not reachable:
            raise KafkaError("nobody answers")

    watch, reachable = WriteWatch(producer, write_otherwise, lambda: now_s[0]), False

    def at(seconds, silent_s):
        now_s[0], producer.silent_s = seconds, silent_s
        return watch.problem()

    assert at(10, 10) is None and not others
    assert at(100, 100) is None and at(160, 160) is None and others == [100, 160]  # the brokers are away
    reachable = True
    assert at(170, 170) is None and at(180, 180) is None and others == [100, 160, 170]  # they are back: some time to write
    assert at(190, 5) is None  # it has written
    assert at(300, 100) is None and at(329, 129) is None
    assert "given: 'no record for 130 s'" in at(330, 130) and "it stores what another client writes" in at(331, 131)


def paused(tmp_path) -> TopologyDriver:
    """Return the driver of a topology that is inactive: nothing of it was opened."""
    builder = TopologyBuilder()
    builder.set_spout("in", KafkaSpout("a", outputs=Fields("value")))
    return TopologyDriver(TopologyPlan.build("t", "t-1-0", {}, builder.create_topology()), None, KafkaSettings("127.0.0.1:1"), tmp_path)


@pytest.mark.parametrize("end", [lambda d: d.note_broker("the broker is gone", gone=True), lambda d: d.end("dumb"), lambda d: d.abandon("killed")])
def test_a_driver_that_was_never_opened_can_end(tmp_path, end):
    driver = paused(tmp_path)
    end(driver)
    assert driver.failure is not None and driver.health()["state"] == "failed"
    with pytest.raises(type(driver.failure)):
        driver.check()


@pytest.mark.parametrize(("status", "hint"), [("INACTIVE", "; 'dskype activate t' lets it work"), ("REBALANCING", "")])
def test_a_topology_that_was_left_without_work_starts_without_work(tmp_path, status, hint):
    handle, told = SimpleNamespace(status=status, warnings=[], backend=paused(tmp_path)), []
    cluster = SimpleNamespace(submit_topology=lambda *_, active: handle, manager=SimpleNamespace(topologies={"t": handle}))
    flux = SimpleNamespace(name="t", config={}, topology=handle.backend.plan.topology)
    assert launch.start(cluster, flux, True, told.append) is handle
    assert told == [f"topology t is {status}, as it was when its last process ended{hint}"]


def test_a_driver_that_became_dumb_ends_and_says_why_with_another_client(tmp_path, monkeypatch):
    monkeypatch.setattr(write_watch, "_GRACE_S", 0.0)
    driver, written = paused(tmp_path), []
    own, other = SimpleNamespace(silent_s=1000.0), contextlib.nullcontext()
    other.enter_result = other
    other.send = lambda topic, value, key, partition: written.append(value) or SimpleNamespace(get=lambda: None)
    monkeypatch.setattr(KafkaSettings, "producer", lambda self, **_: other)
    driver.state.producer = own
    janitor = Janitor(driver.state, driver._topics)
    monkeypatch.setattr(watch_module, "TopicAdmin", lambda kafka: pytest.fail("it looks after topics"))
    with pytest.raises(pytest.fail.Exception, match="after topics"):  # one round is no proof
        janitor.step()
    assert driver.failure is None and b'"starting"' in written[0]
    janitor.step()
    assert "Kafka stores nothing of what the driver writes" in str(driver.failure)
    assert b'"failed"' in written[-1] and b"no record for 1000 s" in written[-1]
