"""What executors of real-time queries write with, and what happens when it stops."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException

from dskype.deploy.machine.broker import EmbeddedBroker
from dskype.topology.core.frames import OutRecord
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import KafkaInboxReader
from dskype.topology.runtime.transport import record_writer

from ..helpers import make_topic

KAFKA = KafkaSettings("127.0.0.1:1")


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


RECORDS = [
    OutRecord("", 1, None, b"frame"),
    OutRecord("", 0, None, b""),
    OutRecord("", None, b"key", b"v" * 3_000_000, [("record-id", b"1"), ("empty", b"")]),
    OutRecord("", 1, b"key", None),
    *(OutRecord("", 1, None, str(i).encode()) for i in range(200)),
]


def test_where_librdkafka_lacks_a_setting_another_client_writes_the_same(bootstrap_servers, name):
    """Such a setting is Kerberos; here it is one that changes nothing."""
    written = []
    for own, kind in (({}, record_writer.RecordWriter), ({"metric_reporters": []}, record_writer.PlainRecordWriter)):
        topic = make_topic(KafkaSettings(bootstrap_servers), f"{name}-{len(written)}", partitions=2)
        writer = record_writer.make_writer(KafkaSettings(bootstrap_servers, {}, own), None)
        assert type(writer) is kind
        writer.write(record._replace(topic=topic) for record in RECORDS)
        writer.flush()
        writer.write([])
        writer.flush()
        reader = KafkaInboxReader(KafkaSettings(bootstrap_servers))
        found = [r._replace(topic="", offset=0, timestamp_ms=0) for p in range(2) for r in reader.read(topic, p, 0, None)]
        written.append(sorted(found, key=lambda r: r.key is not None))  # the order of frames counts, and that of records with keys
    assert written[0] == written[1] and len(written[1]) == len(RECORDS)


@pytest.mark.parametrize("own", [{}, {"metric_reporters": []}])
def test_a_record_that_no_broker_takes_is_given_up_in_time(own, bootstrap_servers, name, monkeypatch):
    with EmbeddedBroker() as broker:
        writer = record_writer.make_writer(KafkaSettings(broker.bootstrap_servers, {}, own), 2.0)
        writer.write([OutRecord(make_topic(KafkaSettings(broker.bootstrap_servers), name), 0, None, b"1")])
        writer.flush()
    writer.write([OutRecord(name, 0, None, b"2")])
    with pytest.raises(record_writer.StalledWriterError) as caught:
        writer.flush()
    assert caught.value.retriable
