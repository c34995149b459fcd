"""External topics that change while a topology reads them: partitions and topics that are added are read, a topic that is deleted is reported."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Producer
from kafka.admin import NewPartitions

from dskype.topology import KafkaBolt, KafkaSpout, TopologyBuilder
from dskype.topology.config import TRANSPORTS, Config
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from tests.waiting import wait_for

from .helpers import await_output, executors, kill, make_topic

EACH = 300


def reader(source, out, pattern, found):
    builder = TopologyBuilder()
    builder.set_spout("find", KafkaSpout(pattern=pattern, first_poll_strategy="EARLIEST"))
    builder.set_bolt("keep", KafkaBolt(found, value_field="value")).shuffle_grouping("find")
    # The other spout has the default settings; with those, Kafka's clients wait a minute for a topic that is gone.
    impatient = {"metadata.max.age.ms": "1000", "request.timeout.ms": "5000", "default.api.timeout.ms": "10000"}
    builder.set_spout("read", KafkaSpout(source, kafka_options=impatient, first_poll_strategy="EARLIEST"), 2)
    builder.set_bolt("write", KafkaBolt(out, value_field="value")).shuffle_grouping("read")
    return builder.create_topology(), {"topology.acker.executors": 0, "topology.emulator.snapshot.interval.ms": 500}


def produce(kafka, topic, partitions, first):
    producer = kafka.producer()
    for i in range(first, first + EACH):
        producer.send(topic, value=str(i).encode(), partition=i % partitions)
    producer.close(timeout=30)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_added_partitions_and_topics_are_read_and_a_deleted_topic_is_reported(cluster, name, transport):
    kafka = cluster.environment.kafka
    source, out, found = make_topic(kafka, f"{name}-in"), make_topic(kafka, f"{name}-out"), make_topic(kafka, f"{name}-found")
    produce(kafka, source, 1, 0)
    produce(kafka, make_topic(kafka, f"{name}-match.1"), 1, 0)
    topology, conf = reader(source, out, rf"{name}-match\.[0-9]", found)
    with cluster.submit_topology(name, {**conf, Config.TOPOLOGY_EMULATOR_TRANSPORT: transport}, topology) as handle:
        driver = handle.backend
        await_output(kafka, out, EACH, 60, "the first records")
        admin = kafka.admin()
        admin.create_partitions({source: NewPartitions(total_count=3)})
        admin.close()
        wait_for(lambda: len(TopicAdmin(kafka).begin_and_end(source)) == 3, 20, "the new partitions")
        produce(kafka, source, 3, EACH)
        produce(kafka, make_topic(kafka, f"{name}-match.2"), 1, EACH)
        await_output(kafka, out, 2 * EACH, 60, "the records of the new partitions")
        matched = await_output(kafka, found, 2 * EACH, 60, "the records of the new topic that matches the pattern")
        assert Counter(r.value for r in matched.values()) == Counter(str(i).encode() for i in range(2 * EACH))
        kill(lambda: executors("read"))  # their journals know the new partitions
        produce(kafka, source, 3, 2 * EACH)
        records = await_output(kafka, out, 3 * EACH, 60, "the records after a crash")
        assert Counter(r.value for r in records.values()) == Counter(str(i).encode() for i in range(3 * EACH))
        admin = TopicAdmin(kafka)
        admin.delete([source])
        admin.close()
        told = wait_for(
            lambda: [e for e in driver.stats.errors if e["component"] == "read" and source in e["error"]], 90, "an error that names the deleted topic"
        )
        print(told[0]["error"][:300], flush=True)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_spout_of_committed_records_never_emits_others_also_after_a_crash(cluster, name, transport):
    kafka = cluster.environment.kafka
    source, out = make_topic(kafka, f"{name}-in"), make_topic(kafka, f"{name}-out")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions()

    def transactions(first):
        """Write two transactions that are committed, and two that are aborted in between; return what must come."""
        for i in range(first, first + 4):
            producer.begin_transaction()
            for j in range(EACH):
                producer.produce(source, f"{i}/{j}".encode())
            producer.flush()
            producer.abort_transaction() if i % 2 else producer.commit_transaction()
        return Counter(f"{i}/{j}".encode() for i in (first, first + 2) for j in range(EACH))

    builder = TopologyBuilder()
    builder.set_spout("read", KafkaSpout(source, kafka_options={"isolation.level": "read_committed"}, first_poll_strategy="EARLIEST"))
    builder.set_bolt("write", KafkaBolt(out, value_field="value")).shuffle_grouping("read")
    conf = {"topology.acker.executors": 0, "topology.emulator.snapshot.interval.ms": 500, Config.TOPOLOGY_EMULATOR_TRANSPORT: transport}
    expected = transactions(0)
    with cluster.submit_topology(name, conf, builder.create_topology()):
        for first in (4, 8):
            await_output(kafka, out, expected.total(), 60, "the committed records")
            kill(lambda: executors("read"))
            expected += transactions(first)
        records = await_output(kafka, out, expected.total(), 60, "the records after a crash")
        assert Counter(r.value for r in records.values()) == expected
