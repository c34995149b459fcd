"""Kafka spouts on real brokers: what they commit, and what they read again."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from kafka import codec as codecs
from kafka.admin import NewPartitions
from kafka.errors import CoordinatorNotAvailableError, GroupAuthorizationFailedError

from dskype.deploy.metrics.meter import Meter, consumer_lag
from dskype.deploy.metrics.reader import MetricsReader
from dskype.deploy.verification.topics import at_rest
from dskype.spouts.topics import Topics
from dskype.topology import Bolt, KafkaBolt, KafkaSpout, TopologyBuilder
from dskype.topology.config import TRANSPORTS, Config
from dskype.topology.core.stats import TopologyStats
from dskype.topology.errors import FatalError
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.driver import committer as committer_module
from dskype.topology.runtime.driver.committer import Committer
from dskype.topology.runtime.driver.inputs import ExternalInputs
from dskype.topology.runtime.kafka import clients as kafka_module
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import KafkaInboxReader, read_ahead
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from tests.waiting import wait_for

from .helpers import committed, committer, driver_state, make_topic, output

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MANY = 10_000


@pytest.fixture
def kafka(bootstrap_servers):
    """The session's broker."""
    return KafkaSettings(bootstrap_servers)


def write(kafka, topic, n, codec="none"):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec, "linger.ms": 20})
    for number in range(n):
        producer.produce(topic, b"%d " % number + b"x" * 100, partition=0)
        producer.poll(0)
    producer.flush()


def write_transactions(kafka, topic, n, codec):
    """Write transactions of one record; every third is aborted. Return how many are committed."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec, "transactional.id": topic})
    producer.init_transactions()
    for number in range(n):
        producer.begin_transaction()
        producer.produce(topic, b"%d " % number + b"x" * 100, partition=0)
        if number % 3 == 2:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    return n - n // 3


class FailsEachOnce(Bolt):
    """Fails each tuple at its first attempt."""

    def prepare(self, conf, context, collector):
        self.collector, self.seen = collector, set()

    def execute(self, tup):
        place = tup["topic"], tup["offset"]
        if place in self.seen:
            self.collector.ack(tup)
        else:
            self.seen.add(place)
            self.collector.fail(tup)


@pytest.mark.parametrize("codec", CODECS)
def test_ranges_and_single_records_of_every_codec_are_read_again_with_one_client(kafka, name, codec):
    make_topic(kafka, name)
    write_transactions(kafka, name, 60, codec)
    for level, offsets in (("read_uncommitted", range(0, 120, 2)), ("read_committed", [o for o in range(0, 120, 2) if o % 6 != 4])):
        reader = KafkaInboxReader(kafka, level, keep=True)
        client = None
        for start, stop in ((0, 120), (7, 50), (0, 1), (118, 120), (30, 31)):
            assert [r.offset for r in reader.read(name, 0, start, stop)] == [o for o in offsets if start <= o < stop]
            assert client in (None, reader._kept)
            client = reader._kept


def test_a_codec_that_cannot_be_read_ends_in_a_clear_error(kafka, name, monkeypatch):
    make_topic(kafka, name)
    write(kafka, name, 10, "zstd")
    monkeypatch.setattr(codecs, "has_zstd", lambda: False)
    with pytest.raises(FatalError, match="no package for zstd"):
        list(KafkaInboxReader(kafka, keep=True).read(name, 0, 0, 10))
    monkeypatch.setattr(kafka_module, "check_codecs", lambda: None)  # as with a codec of a later Kafka
    with pytest.raises(FatalError, match=rf"Records of {name}/0 from offset 0 on can never be read again.*UnsupportedCodecError.*hint: install the library"):
        list(KafkaInboxReader(kafka, keep=True).read(name, 0, 0, 10))


def test_the_next_record_is_behind_markers_and_aborted_records(kafka, name):
    make_topic(kafka, name)
    write_transactions(kafka, name, 6, "none")  # records at 0, 2, ..., 10; those at 4 and 10 are aborted
    for level, expected in (("read_uncommitted", {0: 0, 1: 2, 3: 4, 9: 10, 11: 12, 12: 12}), ("read_committed", {0: 0, 1: 2, 3: 6, 9: 12, 11: 12, 12: 12})):
        consumer = kafka.consumer(isolation_level=level, allow_auto_create_topics=False)
        try:
            for position, ahead in expected.items():
                assert read_ahead(consumer, {(name, 0): position, ("not-there", 0): 3, (name, 7): 0}) == {(name, 0): (ahead, 12)}
        finally:
            consumer.close()


def test_a_commit_that_fails_is_told_once_and_tried_again(kafka, name):
    """Here other consumers are members of the group."""
    make_topic(kafka, name)
    member, told = kafka.consumer(group_id=name), []
    member.subscribe([name])
    wait_for(
        lambda: member.poll(timeout_ms=5000) or member.assignment(), 180, "a member of the group"
    )  # a short poll gives up while a busy broker lets it join
    made = committer(kafka, name, name, told)
    try:
        wait_for(lambda: made._failures[name] > 2 and told, 60, "several attempts")  # an attempt is counted before it is told
        assert len(told) == 1 and f"Offsets cannot be committed in the consumer group '{name}'" in told[0] and "a group.id of its own" in told[0]
        member.close()
        wait_for(lambda: committed(kafka, name) == {name: 2}, 60, "a commit")
        made._commits._stats.tasks[1] = {"component": "in", "term": 0, "kafka": [[name, 0, 9, 9]]}  # of an earlier driver
    finally:
        made.close(20)
    assert committed(kafka, name) == {name: 2}


def test_a_commit_that_fails_is_told_once_though_those_of_another_group_succeed(monkeypatch):
    builder = TopologyBuilder()
    for spout in ("bad", "good"):
        builder.set_spout(spout, KafkaSpout(spout, kafka_options={"group.id": spout}))
    stats, told, committed_to = TopologyStats(), [], []
    for task, spout in enumerate(("bad", "good"), 1):
        stats.tasks[task] = {"component": spout, "term": 1, "kafka": [[spout, 0, 3, 2]]}

    def commit(admin, group, offsets, metadata):
        committed_to.append(group)
        if group == "bad":
            raise GroupAuthorizationFailedError("not allowed")

    monkeypatch.setattr(committer_module, "commit_offsets", commit)
    monkeypatch.setattr(committer_module, "read_ahead", lambda reader, offsets: {where: (offset, offset) for where, offset in offsets.items()})
    kafka = SimpleNamespace(admin=lambda **_: SimpleNamespace(close=bool), consumer=lambda **_: SimpleNamespace(close=bool))
    made = Committer(driver_state(TopologyPlan.build("t", "t-1-0", {}, builder.create_topology()), kafka, stats, told))
    for number in range(4):
        stats.tasks[2]["kafka"][0][3] = number  # the other group always has something new
        assert not made._commit(all_spouts=True)
    assert committed_to.count("good") == committed_to.count("bad") == 4 and len(told) == 1


def test_a_committed_offset_that_is_gone_is_told(kafka, name, tmp_path):
    make_topic(kafka, name, 3)
    with kafka.producer() as producer, TopicAdmin(kafka) as admin:
        for number in range(60):
            producer.send(name, value=b"x", partition=number % 3)
        producer.flush()
        admin.delete_records({(name, 0): 8})

    def commit() -> bool:
        try:
            KafkaInboxReader(kafka).commit(f"dskype-{name}", {(name, 0): 5, (name, 1): 7, (name, 2): 99})
        except CoordinatorNotAvailableError:  # a new broker makes its topic of offsets
            return False
        return True

    wait_for(commit, 30, "the commit")
    inputs = ExternalInputs(kafka, tmp_path, name)
    assert inputs.positions("in", KafkaSpout(name, first_poll_strategy="UNCOMMITTED_LATEST"), {}, skip_lost=False) == {(name, 0): 8, (name, 1): 7, (name, 2): 0}
    assert [words in text for words, text in zip(("offset 5; the log has 8 to 20", "offset 99; the log has 0 to 20"), inputs.warnings, strict=True)] == [
        True,
        True,
    ]


@pytest.mark.parametrize("by_pattern", [False, True])
def test_partitions_that_were_added_since_a_spout_began_are_read_from_their_beginning_also_with_latest(kafka, name, tmp_path, by_pattern):
    make_topic(kafka, f"{name}.1")
    write(kafka, f"{name}.1", 3)
    spout = KafkaSpout(pattern=f"{name}[.].*", first_poll_strategy="LATEST") if by_pattern else KafkaSpout(f"{name}.1", first_poll_strategy="LATEST")
    inputs = ExternalInputs(kafka, tmp_path, name)
    assert inputs.positions("in", spout, {}, skip_lost=False) == {(f"{name}.1", 0): 3}
    with contextlib.closing(kafka.admin()) as admin:
        admin.create_partitions({f"{name}.1": NewPartitions(total_count=2)})
    make_topic(kafka, f"{name}.2")
    wait_for(lambda: len(TopicAdmin(kafka).begin_and_end(f"{name}.1")) == 2, 20, "the new partition")
    with kafka.producer() as producer:
        for topic in (f"{name}.1", f"{name}.2"):
            producer.send(topic, value=b"x", partition=int(topic.endswith("1"))).get()
    found = inputs.positions("in", spout, {}, skip_lost=False)
    assert found == {(f"{name}.1", 0): 3, (f"{name}.1", 1): 0} | ({(f"{name}.2", 0): 0} if by_pattern else {})


def test_a_topology_is_at_rest_behind_the_marker_of_a_transaction(kafka, name):
    """``dskype verify --wait`` and the fault suite ask for that."""
    topics = Topics.for_topology(name)
    for topic in (topics.messages, topics.sequence, topics.dead_letters):
        make_topic(kafka, topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topics.messages, b"{}", partition=0)
    producer.commit_transaction()
    assert not at_rest(kafka, name, {(topics.messages, 0): 4})
    with kafka.producer() as numbered:
        numbered.send(topics.sequence, value=json.dumps({"v": 1, "task": 1, "first": 0, "partition": 0, "offset": 0, "n": 3}).encode())
    assert at_rest(kafka, name, {(topics.messages, 0): 4})
    write(kafka, topics.messages, 1)
    assert not at_rest(kafka, name, {(topics.messages, 0): 5})


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_after_kill_and_submit_a_topology_goes_on_where_it_was(cluster, name, transport):
    kafka = cluster.environment.kafka
    topics = {strategy: make_topic(kafka, f"{name}-{strategy}") for strategy in ("UNCOMMITTED_EARLIEST", "UNCOMMITTED_LATEST")}
    out = make_topic(kafka, f"{name}-out")

    def topology():
        builder = TopologyBuilder()
        write_bolt = builder.set_bolt("write", KafkaBolt(out, key_field="topic", value_field="value"))
        for strategy, topic in topics.items():
            builder.set_spout(strategy, KafkaSpout(topic, first_poll_strategy=strategy))
            write_bolt.shuffle_grouping(strategy)
        return builder.create_topology()

    def came():
        return Counter(record.key.decode() for record in output(kafka, out).values())

    conf = {Config.TOPOLOGY_EMULATOR_TRANSPORT: transport}
    for life in (1, 2):
        for topic in topics.values():
            write(kafka, topic, 20)
        with cluster.submit_topology(name, conf, topology()) as running:
            if life == 1:  # what was there before is not for the spout with LATEST
                wait_for(lambda: came()[topics["UNCOMMITTED_EARLIEST"]] == 20, 60, "the records that were there")
                write(kafka, topics["UNCOMMITTED_LATEST"], 20)
            expected = dict.fromkeys(topics.values(), 20 * life)
            wait_for(lambda expected=expected: came() == expected, 60, "all records")
            wait_for(lambda running=running: sum(running.stats.total(s, "acked") for s in topics) == 40, 60, "their acks, and no others")
        ends = {topics["UNCOMMITTED_EARLIEST"]: 20 * life, topics["UNCOMMITTED_LATEST"]: 20 * life + 20}
        assert committed(kafka, f"dskype-{name}") == ends


def test_thousands_of_failed_tuples_and_records_of_transactions_in_every_codec_come_again(cluster, name):
    kafka = cluster.environment.kafka
    topics = {codec: make_topic(kafka, f"{name}-{codec}") for codec in CODECS}
    many = make_topic(kafka, f"{name}-many")
    expected = sum(write_transactions(kafka, topic, 30, codec) for codec, topic in topics.items())
    write(kafka, many, MANY, "zstd")
    builder = TopologyBuilder()
    builder.set_spout("in", KafkaSpout([*topics.values(), many], kafka_options={"isolation.level": "read_committed"}, offset_commit_period_ms=1000))
    builder.set_bolt("once", FailsEachOnce()).global_grouping("in")
    with cluster.submit_topology(name, {}, builder.create_topology()) as running:
        wait_for(lambda: running.stats.total("in", "acked") >= expected + MANY, 120, "all records after they had failed")
        assert running.stats.total("in", "failed") == running.stats.total("in", "acked") == expected + MANY
        assert running.backend.health()["state"] == "running"
        ends = dict.fromkeys(topics.values(), 60) | {many: MANY}
        wait_for(lambda: committed(kafka, f"dskype-{name}") == ends, 30, "commits behind the last markers")
        reader = MetricsReader(kafka, name, Meter(60))
        try:
            reader.catch_up()
            assert consumer_lag(reader.sink, reader.ends(reader.sink.positions())) == dict.fromkeys(ends, 0)
        finally:
            reader.close()
