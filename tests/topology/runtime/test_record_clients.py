"""The clients of Kafka in executors of continuous queries: what they are set to, and what happens when one stops. Without Kafka."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import ClassVar

import pytest
from confluent_kafka import KafkaException

from dskype.topology.runtime import record_reader, record_writer
from dskype.topology.runtime.kafka import KafkaSettings

KAFKA = KafkaSettings("127.0.0.1:1")


@pytest.mark.parametrize(("options", "level"), [({}, "read_uncommitted"), ({"isolation.level": "read_committed"}, "read_committed")])
def test_transactions_count_as_in_micro_batches_unless_the_spout_says_otherwise(monkeypatch, options, level):
    made = []
    monkeypatch.setattr(record_reader, "Consumer", lambda settings: made.append(settings) or SimpleNamespace(assign=lambda partitions: None))
    record_reader.RecordReader(KAFKA, "dskype-t", {("in", 0): 0}, options)
    assert made[0]["group.id"] == "dskype-t" and made[0]["isolation.level"] == level


class StallingConsumer:
    """Reads a log of ten records from one partition; the first client of all stops before record 3."""

    made: ClassVar[list[StallingConsumer]] = []

    def __init__(self, settings):
        self.made.append(self)
        self.last, self.closed = 3 if len(self.made) == 1 else 10, threading.Event()

    def assign(self, partitions):
        (self.at,) = (p.offset for p in partitions)
        self.consumed = -1001

    def poll(self, wait_s):
        if self.at >= self.last:
            return None
        self.at += 1
        self.consumed = self.at
        got = {"error": None, "topic": "in", "partition": 0, "offset": self.at - 1, "timestamp": (0, 0), "key": None, "value": b"", "headers": None}
        return SimpleNamespace(**{name: lambda value=value: value for name, value in got.items()})

    def position(self, partitions):
        return [SimpleNamespace(topic="in", partition=0, offset=self.consumed)]

    def get_watermark_offsets(self, partition, timeout):
        if self.made[0].away:
            raise KafkaException("away")
        return 0, 10

    def close(self):
        self.closed.set()


@pytest.mark.parametrize("away", [False, True])  # whether the brokers answer this client
def test_a_client_that_stops_reading_is_replaced_and_nothing_is_read_twice(monkeypatch, away):
    monkeypatch.setattr(record_reader, "Consumer", StallingConsumer)
    monkeypatch.setattr(record_reader, "_STALL_S", 0.0)
    monkeypatch.setattr(StallingConsumer, "made", [])
    reader = record_reader.RecordReader(KAFKA, "dskype-t", {("in", 0): 0})
    (first,) = StallingConsumer.made
    first.away = away
    read = [r.offset for _ in range(3) for r in reader.read(0, 1)]
    while len(StallingConsumer.made) < 2:  # a look tells where it is, the next one that it is still there
        assert reader.read(0, 1) == []
    assert first.closed.wait(10)
    first.away = False
    read += [r.offset for _ in range(20) for r in reader.read(0, 1)]
    assert read == list(range(10)) and len(StallingConsumer.made) == 2


def test_a_client_that_gives_nothing_again_begins_where_the_first_one_was(monkeypatch):
    monkeypatch.setattr(record_reader, "Consumer", StallingConsumer)
    monkeypatch.setattr(record_reader, "_STALL_S", 0.0)
    monkeypatch.setattr(StallingConsumer, "made", [])
    reader = record_reader.RecordReader(KAFKA, "dskype-t", {("in", 0): 0})
    StallingConsumer.made[0].away = False
    read = [r.offset for _ in range(3) for r in reader.read(0, 1)]
    while len(StallingConsumer.made) < 3:
        assert reader.read(0, 1) == []
        StallingConsumer.made[-1].last = 3
    StallingConsumer.made[-1].last = 10
    assert read + [r.offset for _ in range(20) for r in reader.read(0, 1)] == list(range(10))


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
        with pytest.raises(record_writer.DeliveryError, match="although it answers"):
            writer.flush()
    else:
        writer.flush()
    assert told == answers
