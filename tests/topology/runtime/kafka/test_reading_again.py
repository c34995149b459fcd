"""What the reader of a spout says about records that Kafka no longer has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka import KafkaProducer

from dskype.topology.core.loss import LostInputError
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import KafkaInboxReader
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

from ..helpers import make_topic


@pytest.mark.parametrize("stop", [7, None])
def test_a_partition_that_is_gone_is_lost_however_far_it_is_read(stop):
    consumer = SimpleNamespace(partitions_for_topic=lambda topic: None, close=lambda: None)
    reader = KafkaInboxReader(SimpleNamespace(consumer=lambda **settings: consumer))
    with pytest.raises(LostInputError, match="records of gone/0 up to offset .* the log ends at 0"):
        list(reader.read("gone", 0, 5, stop))


def test_records_that_aged_out_or_whose_topic_was_made_again_or_is_gone_are_lost(bootstrap_servers, name):
    kafka = KafkaSettings(bootstrap_servers)
    admin, reader = TopicAdmin(kafka), KafkaInboxReader(kafka)

    def write(first: int, stop: int) -> None:
        with kafka.producer() as producer:
            for number in range(first, stop):
                producer.send(name, value=b"%d" % number, partition=0)

    def lost(start: int, stop: int) -> tuple[int | None, int | None]:
        with pytest.raises(LostInputError) as raised:
            list(reader.read(name, 0, start, stop))
        return raised.value.begins, raised.value.ends

    make_topic(kafka, name)
    try:
        write(0, 20)
        assert [int(r.value) for r in reader.read(name, 0, 3, 20)] == list(range(3, 20))
        admin.delete_records({(name, 0): 8})
        assert lost(3, 12) == (8, None)
        assert [int(r.value) for r in reader.read(name, 0, 8, 12)] == list(range(8, 12))
        assert lost(15, 21) == (None, 20)
        admin.delete([name])
        assert lost(15, 20) == (None, 0)
        make_topic(kafka, name)
        write(100, 105)
        assert lost(15, 20) == (None, 5) and lost(0, 20) == (None, 5)
    finally:
        admin.delete([name])
        admin.close()


def test_the_reader_knows_which_partitions_hold_records_that_were_not_read(bootstrap_servers, name):
    """Those without a position count from where the query began to read them, and the markers of transactions are no records."""
    kafka = KafkaSettings(bootstrap_servers)
    admin, reader = TopicAdmin(kafka), KafkaInboxReader(kafka, starts={(name, 1): 5})
    admin.create({name: 4}, {})
    try:
        with KafkaProducer(**kafka.arguments(), transactional_id=name) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for partition, n in ((0, 3), (1, 5), (2, 2)):
                for _ in range(n):
                    producer.send(name, value=b"x", partition=partition)
            producer.commit_transaction()

        def waiting(positions):
            return {partition: waits for (_, partition), waits in reader.waiting([name], positions).items()}

        assert waiting({}) == {0: True, 1: False, 2: True, 3: False}
        assert waiting({(name, 0): 2, (name, 1): 4, (name, 2): 2}) == {0: True, 1: True, 2: False, 3: False}
        admin.delete_records({(name, 0): 3})
        assert waiting({(name, 0): 1, (name, 2): 3}) == {0: False, 1: False, 2: False, 3: False}
        assert reader.waiting(["unknown"], {}) == {}
    finally:
        admin.delete([name])
        admin.close()
