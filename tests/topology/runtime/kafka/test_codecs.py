"""Records that are packed, by whoever writes them or by the brokers, are read by every reader."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka import codec

from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.machine.broker import EmbeddedBroker
from dskype.spouts.topics import Topics
from dskype.topology import Fields, KafkaBolt, KafkaSpout, TopologyBuilder, TopologyError
from dskype.topology.nimbus.manager import TopologyManager
from dskype.topology.planning.plan import TopologyPlan, chunks_topic, inbox_topic, metrics_topic, state_topic
from dskype.topology.runtime.driver.driver import TopologyDriver
from dskype.topology.runtime.driver.topics import TopologyTopics
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import KafkaInboxReader, read_to_end
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.nimbus.nimbus_topic import NIMBUS_TOPIC, NimbusService, load_states
from dskype.topology.runtime.stores.kafka_store import KafkaSnapshotStore

pytestmark = pytest.mark.product

CODECS = ("gzip", "snappy", "lz4", "zstd")
VALUES = [b"%05d " % i + b"coffee by the lake " * 30 for i in range(200)]


@pytest.fixture(scope="module")
def packing() -> Iterator[KafkaSettings]:
    """Brokers that pack every record unless its topic says otherwise."""
    with EmbeddedBroker(properties={"compression.type": "zstd"}) as broker:
        yield KafkaSettings(broker.bootstrap_servers)


def write(kafka: KafkaSettings, topic: str, packed: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": packed, "linger.ms": 100})
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    producer.flush(60)


@pytest.mark.parametrize("packed", [*CODECS, "none"])
def test_every_reader_reads_what_others_have_packed(packing, name, packed):
    topics = Topics.for_topology(name)
    with TopicAdmin(packing) as admin:
        admin.create({topics.results: 1}, {"compression.type": "producer"})
        admin.create({topics.messages: 1}, {})  # here the broker packs
    for topic in (topics.results, topics.messages):
        write(packing, topic, packed)
        assert [r.value for r in read_to_end(packing, topic)] == VALUES
        assert [r.value for r in KafkaInboxReader(packing).read(topic, 0, 50, 150)] == VALUES[50:150]
        with PubSub(packing, name, conf={}) as client:
            assert [r.value for r in client.scan(topic)] == VALUES


def test_topics_of_the_emulator_are_not_packed_and_what_it_keeps_is_read(packing, name):
    builder = TopologyBuilder()
    builder.set_spout("in", KafkaSpout(f"{name}-in"))
    builder.set_bolt("out", KafkaBolt(f"{name}-out")).fields_grouping("in", Fields("key"))
    plan, store = TopologyPlan.build(name, f"{name}-1-0", {}, builder.create_topology()), KafkaSnapshotStore(packing, name, 2)
    store.create()
    TopologyTopics(plan, packing).create(False, store)
    store.save(1, 10, b"x" * 100_000)
    assert KafkaSnapshotStore(packing, name, 2).versions(1) == [10]
    NimbusService(packing, TopologyManager(TopologyDriver, time.time), threading.RLock()).close()
    assert load_states(packing) == {}
    own = {inbox_topic(name, "in"), inbox_topic(name, "out"), metrics_topic(name), state_topic(name), chunks_topic(name), NIMBUS_TOPIC}
    with TopicAdmin(packing) as admin:
        assert {config["compression.type"] for config in admin.configs(own).values()} == {"producer"}
    store.rest()


def test_what_could_not_be_read_is_told_at_the_start_and_not_record_by_record(monkeypatch, tmp_path, name):
    monkeypatch.setattr(codec, "has_zstd", lambda: False)
    kafka = KafkaSettings("127.0.0.1:1")
    builder = TopologyBuilder()
    builder.set_spout("in", KafkaSpout("a"))
    plan = TopologyPlan.build(name, f"{name}-1-0", {}, builder.create_topology())
    began = time.monotonic()
    for start in (kafka.consumer, TopologyDriver(plan, None, kafka, tmp_path).open):
        with pytest.raises(TopologyError, match=r"Compressed records cannot be read here. given: 'no package for zstd'; hint: install"):
            start()
    assert time.monotonic() - began < 30  # nobody was asked
