"""The clients of Kafka in executors of continuous queries: what they are set to, and what happens when one stops."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from dskype.topology.core.frames import OutRecord
from dskype.topology.runtime import record_reader, record_writer
from dskype.topology.runtime.kafka import KafkaSettings, TopicAdmin

from .helpers import make_topic

KAFKA = KafkaSettings("127.0.0.1:1")


@pytest.mark.parametrize(("options", "level"), [({}, "read_uncommitted"), ({"isolation.level": "read_committed"}, "read_committed")])
def test_transactions_count_as_in_micro_batches_unless_the_spout_says_otherwise(monkeypatch, options, level):
    made = []
    monkeypatch.setattr(record_reader, "Consumer", lambda settings: made.append(settings) or SimpleNamespace(assign=lambda partitions: None))
    record_reader.RecordReader(KAFKA, "dskype-t", {("in", 0): 0}, options)
    assert made[0]["group.id"] == "dskype-t" and made[0]["isolation.level"] == level


def test_waits_below_a_millisecond_are_slept_because_librdkafka_counts_in_milliseconds(monkeypatch):
    slept, polled = [], []
    client = SimpleNamespace(assign=lambda partitions: None, poll=polled.append)
    monkeypatch.setattr(record_reader, "Consumer", lambda settings: client)
    monkeypatch.setattr(record_reader, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=slept.append))
    reader = record_reader.RecordReader(KAFKA, "dskype-t", {("in", 0): 0})
    for wait_s in (0.0, 0.0004, 0.002):
        assert reader.read(wait_s, 10) == []
    assert slept == [0.0004] and polled == [0.0, 0.0, 0.002]


def until_read(reader, n, secs=60):
    """Read until so many records have come; return their offsets."""
    read, deadline = [], time.monotonic() + secs
    while len(read) < n:
        assert time.monotonic() < deadline, read
        read += [r.offset for r in reader.read(0.1, 2)]
    return read


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(record_reader, "_STALL_S", 0.1)
    monkeypatch.setattr(record_reader, "_TRIAL_S", 60.0)


def test_a_client_that_stops_reading_is_replaced_and_nothing_is_read_twice(bootstrap_servers, name, impatient):
    kafka = KafkaSettings(bootstrap_servers)
    topic = make_topic(kafka, name, partitions=2)

    def produce(first):
        with kafka.producer() as producer:
            for i in range(first, first + 5):
                producer.send(topic, str(i).encode() if i % 5 else b"", partition=0)

    produce(0)
    reader = record_reader.RecordReader(kafka, f"dskype-{name}", {(topic, 0): 2, (topic, 1): 0})
    assert until_read(reader, 3) == [2, 3, 4]
    for first in (5, 10):  # the second client stops as well
        stalled = reader._consumer
        stalled.pause([TopicPartition(topic, 0)])
        produce(first)
        assert until_read(reader, 5) == list(range(first, first + 5))
        assert reader._consumer is not stalled and reader._other is None
    produce(15)
    assert until_read(reader, 5) == list(range(15, 20))


def test_a_partition_that_is_added_is_read_from_the_first_record_that_there_still_is(bootstrap_servers, name, impatient):
    kafka = KafkaSettings(bootstrap_servers)
    topic = make_topic(kafka, name, partitions=2)
    with kafka.producer() as producer:
        for _ in range(5):
            producer.send(topic, b"0", partition=1)
    with TopicAdmin(kafka) as admin:
        admin.delete_records({(topic, 1): 3})
    reader = record_reader.RecordReader(kafka, f"dskype-{name}", {(topic, 0): 0})
    reader.add({(topic, 1): record_reader.BEGINNING})
    assert until_read(reader, 2) == [3, 4]
    stalled = reader._consumer  # the one that takes its place goes on behind what was read
    stalled.pause([TopicPartition(topic, 1)])
    with kafka.producer() as producer:
        producer.send(topic, b"0", partition=1)
    assert until_read(reader, 1) == [5] and reader._consumer is not stalled


def test_a_client_that_has_read_everything_stays(bootstrap_servers, name, impatient, monkeypatch):
    monkeypatch.setattr(record_reader, "_TRIAL_S", 2.0)
    kafka = KafkaSettings(bootstrap_servers)
    topic = make_topic(kafka, name)

    def produce():
        with kafka.producer() as producer:
            producer.send(topic, b"0", partition=0)

    produce()
    reader = record_reader.RecordReader(kafka, f"dskype-{name}", {(topic, 0): 0})
    client = reader._consumer
    assert until_read(reader, 1) == [0]
    for _ in range(2):
        while reader._other is None:
            assert reader.read(0.01, 1) == []
        while reader._other is not None:
            assert reader.read(0.01, 1) == []
        assert reader._consumer is client
    while reader._other is None:
        assert reader.read(0.01, 1) == []
    produce()  # while another client tries
    assert until_read(reader, 1) == [1] and reader._other is None


class Client:
    """Gives what it has, then nothing."""

    def __init__(self, *given):
        self.given = list(given)

    def assign(self, partitions):
        pass

    def poll(self, wait_s):
        return self.given.pop(0) if self.given else None

    def consume(self, most, wait_s):
        return []

    def position(self, partitions):
        return partitions

    def close(self):
        pass


def message(offset, error=None):
    value = SimpleNamespace(topic="in", partition=0, offset=offset, timestamp=(1, 0), key=None, value=b"", headers=None, error=error)
    return SimpleNamespace(**{name: (lambda found=found: found) for name, found in vars(value).items()})


def test_an_error_that_passes_loses_no_record_of_the_other_client(monkeypatch):
    first, other = Client(), Client(message(0), message(1))
    clients = iter([first, other])
    monkeypatch.setattr(record_reader, "Consumer", lambda settings: next(clients))
    monkeypatch.setattr(record_reader, "_STALL_S", 0.0)
    reader = record_reader.RecordReader(KAFKA, "dskype-t", {("in", 0): 0})
    assert reader.read(0.0, 1) == []  # the other client begins
    first.given = [None, message(0, KafkaError(KafkaError._TRANSPORT))]
    assert until_read(reader, 2) == [0, 1]


@pytest.mark.parametrize("answers", [[True, True], [True, False, True, False, True, True], [False, False]])
def test_a_writer_whose_records_nobody_takes_gives_up_when_the_brokers_have_answered_twice(monkeypatch, answers):
    told = []

    class StallingProducer:
        """Keeps its records; takes them at last when the answers are used up."""

        def __init__(self, settings):
            pass

        def flush(self, seconds):
            return 0 if len(told) == len(answers) and told[-2:] != [True, True] else 5

        def list_topics(self, timeout):
            told.append(answers[len(told)])
            if not told[-1]:
                raise KafkaException("away")

    monkeypatch.setattr(record_writer, "Producer", StallingProducer)
    monkeypatch.setattr(record_writer, "_STALL_S", 0.0)
    writer = record_writer.RecordWriter(KAFKA)
    if answers[-2:] == [True, True]:
        with pytest.raises(record_writer.StalledWriterError, match="although it answers") as caught:
            writer.flush()
        assert caught.value.retriable, "replicas that are out of sync may be away for longer than attempts last"
    else:
        writer.flush()
    assert told == answers


def test_on_a_cluster_a_record_that_has_waited_too_long_is_not_written():
    writer = record_writer.RecordWriter(KAFKA, give_up_s=1.0)  # there are no brokers
    writer.write([OutRecord("topic", 0, None, b"1")])
    with pytest.raises(record_writer.StalledWriterError, match="not accepted a record in time") as caught:
        writer.flush()
    assert caught.value.retriable
