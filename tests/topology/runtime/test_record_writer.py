"""What executors of real-time queries write with, and what happens when it stops."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException

from dskype.topology.core.frames import OutRecord
from dskype.topology.runtime import record_writer
from dskype.topology.runtime.kafka import KafkaSettings

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
