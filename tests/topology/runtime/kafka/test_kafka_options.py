"""Options of Kafka components that the runtime cannot honour are refused before anything runs; dangerous settings of topics give warnings."""

import random
import socket
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from dskype.topology import KafkaBolt, KafkaSpout, TopologyBuilder, TopologyError, TopologyPlan
from dskype.topology.runtime.driver.driver import TopologyDriver
from dskype.topology.runtime.driver.topics import TopologyTopics
from dskype.topology.runtime.kafka import clients as kafka_clients
from dskype.topology.runtime.kafka import connections, record_producer
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.connections import connection_settings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.stores.kafka_store import KafkaSnapshotStore


def driver(tmp_path: Path, spout: KafkaSpout, bolt: KafkaBolt) -> TopologyDriver:
    builder = TopologyBuilder()
    builder.set_spout("in", spout)
    builder.set_bolt("out", bolt).shuffle_grouping("in")
    plan = TopologyPlan.build("t", "t-1-0", {}, builder.create_topology())
    return TopologyDriver(plan, None, KafkaSettings("127.0.0.1:1"), tmp_path)


def test_a_kafka_spout_of_other_brokers_is_refused(tmp_path):
    refused = driver(tmp_path, KafkaSpout("a", kafka_options={"bootstrap.servers": "elsewhere:9092"}), KafkaBolt("b"))
    with pytest.raises(TopologyError, match="brokers that carry the topology.*given: 'elsewhere:9092'; component: 'in'; legal: 127.0.0.1:1"):
        refused.open()


def test_a_kafka_spout_with_security_of_its_own_is_refused_without_the_secret(tmp_path):
    options = {"sasl.jaas.config": "hunter2", "security.protocol": "SASL_SSL", "group.id": "g"}
    refused = driver(tmp_path, KafkaSpout("a", kafka_options=options), KafkaBolt("b"))
    with pytest.raises(TopologyError, match=r"given: \['sasl.jaas.config', 'security.protocol'\]; component: 'in'; hint: give them to the cluster") as error:
        refused.open()
    assert "hunter2" not in str(error.value)


def test_an_isolation_level_that_kafka_does_not_have_is_refused():
    with pytest.raises(TopologyError, match=r"isolation.level is not known\. given: 'committed'; legal: read_uncommitted, read_committed"):
        KafkaSpout("a", kafka_options={"isolation.level": "committed"})


def test_a_kafka_bolt_with_a_producer_of_its_own_is_refused(tmp_path):
    refused = driver(tmp_path, KafkaSpout("a"), KafkaBolt("b", kafka_options={"acks": "1"}))
    with pytest.raises(TopologyError, match=r"topology's own producer.*given: \['acks'\]; component: 'out'"):
        refused.open()


def test_topics_that_are_made_take_what_is_sent_and_nothing_compressed_and_others_are_warned_of(bootstrap_servers, name):
    class Reads(KafkaSpout):
        def external_topics(self, topology, conf):
            return {f"{name}-made": {"max.message.bytes": "300000"}}

    def make(topic, **config):
        admin.create({f"{name}-{topic}": 1}, {key.replace("_", "."): value for key, value in config.items()})

    kafka = KafkaSettings(bootstrap_servers)
    admin = TopicAdmin(kafka)
    make("others")
    make("safe", compression_type="uncompressed")
    make("large", compression_type="uncompressed", max_message_bytes="500000000")
    make("small", max_message_bytes="1000000")
    builder = TopologyBuilder()
    builder.set_spout("made", Reads(f"{name}-made"))
    builder.set_spout("matching", KafkaSpout(pattern=f"{name}-(others|safe|large)"))
    for index, topic in enumerate(("written", "small")):
        builder.set_bolt(f"out-{index}", KafkaBolt(f"{name}-{topic}")).shuffle_grouping("made")
    plan = TopologyPlan.build("t", "t-1-0", {}, builder.create_topology())
    try:
        warnings = TopologyTopics(plan, kafka).create_external(admin)
        made = admin.configs([f"{name}-made", f"{name}-written"])
        assert (made[f"{name}-made"]["compression.type"], made[f"{name}-made"]["max.message.bytes"]) == ("uncompressed", "300000")
        assert (made[f"{name}-written"]["compression.type"], made[f"{name}-written"]["max.message.bytes"]) == ("producer", str(16 << 20))
        assert [warning.partition(" records")[0] for warning in warnings] == [
            f"topic '{name}-large' accepts",
            f"topic '{name}-others' accepts compressed",
            f"topic '{name}-small' refuses",
        ]
        with (
            closing(KafkaProducer(**kafka.arguments(), compression_type="gzip", max_request_size=64 << 20)) as producer,
            pytest.raises(MessageSizeTooLargeError),
        ):
            producer.send(f"{name}-made", value=bytes(20 << 20)).get(timeout=30)
    finally:
        admin.delete([f"{name}-{topic}" for topic in ("made", "written", "others", "safe", "large", "small")])
        admin.close()


@pytest.mark.parametrize(
    ("given", "expected"), [({}, 1_000), ({"reconnect_backoff_ms": 5_000}, 5_000), ({"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 70}, 70)]
)
def test_every_client_tries_brokers_that_are_away_again_after_a_second_unless_told_otherwise(monkeypatch, given, expected):
    made = []
    for module, client in ((kafka_clients, "KafkaConsumer"), (kafka_clients, "KafkaAdminClient"), (record_producer, "KafkaProducer")):
        monkeypatch.setattr(module, client, lambda **arguments: made.append(arguments["reconnect_backoff_max_ms"]))
    kafka = KafkaSettings("127.0.0.1:1", client=given)
    kafka.consumer(), kafka.producer(forked=True), kafka.admin()
    with connection_settings(kafka) as settings:
        made.append(settings["reconnect.backoff.max.ms"])
    assert made == [expected] * 4


@pytest.mark.parametrize("given", [None, 25_000])
def test_requests_that_nobody_answers_are_sent_again_before_half_a_minute_unless_told_otherwise(monkeypatch, given):
    made = []
    monkeypatch.setattr(record_producer, "KafkaProducer", lambda **arguments: made.append(arguments["request_timeout_ms"]))
    kafka = KafkaSettings("127.0.0.1:1", client={} if given is None else {"request_timeout_ms": given})
    kafka.producer(forked=True)
    with connection_settings(kafka) as settings:
        made.append(settings["socket.timeout.ms"])
    assert made == [given or 10_000] * 2


@pytest.mark.parametrize("given", [{}, {"request_timeout_ms": 60_000}])
def test_the_store_outlasts_a_request_that_a_broker_never_answers_and_another_one(monkeypatch, given):
    made, limits_s = [], []
    monkeypatch.setattr(kafka_clients, "KafkaConsumer", lambda **arguments: made.append(arguments))
    monkeypatch.setattr(KafkaSettings, "producer", lambda self, **arguments: limits_s.append(arguments["delivery_timeout_s"]))
    store = KafkaSnapshotStore(KafkaSettings("127.0.0.1:1", client=given), "t", 1)
    store._reader(), store._writer()
    assert [settings["request_timeout_ms"] for settings in made] == [10_000]
    assert limits_s[0] > 2 * 10


@pytest.mark.parametrize(
    ("servers", "given", "attempts_ms"),
    [
        ("a:1", {}, [30_000]),
        ("a:1,b:1,c:1", {}, [3_000, 6_000, 12_000, 9_000]),
        ("a:1,b:1,c:1", {"bootstrap_timeout_ms": 5_000}, [3_000, 2_000]),
        ("a:1,b:1", {"bootstrap_timeout_ms": 500}, [500]),
    ],
)
def test_a_new_client_gives_no_address_all_its_time_if_there_are_others(monkeypatch, servers, given, attempts_ms):
    made, now_s = [], [0.0]

    def unreached(**arguments):
        made.append(arguments["bootstrap_timeout_ms"])
        now_s[0] += made[-1] / 1000
        raise KafkaTimeoutError("nobody has answered")

    monkeypatch.setattr(connections.time, "monotonic", lambda: now_s[0])
    for module, client in ((kafka_clients, "KafkaConsumer"), (kafka_clients, "KafkaAdminClient"), (record_producer, "KafkaProducer")):
        monkeypatch.setattr(module, client, unreached)
    kafka = KafkaSettings(servers, client=given)
    for make in (kafka.consumer, partial(kafka.producer, forked=True), kafka.admin):
        made.clear()
        with pytest.raises(KafkaTimeoutError):
            make()
        assert made == pytest.approx(attempts_ms, abs=1)


def test_a_new_client_reaches_the_other_brokers_if_the_first_one_accepts_connections_and_stands_still(bootstrap_servers, monkeypatch):
    choose, first = random.choice, [0]
    with socket.create_server(("127.0.0.1", 0)) as still:
        kafka = KafkaSettings(f"127.0.0.1:{still.getsockname()[1]},{bootstrap_servers}", client={"bootstrap_timeout_ms": 60_000})
        monkeypatch.setattr(connections, "_FIRST_ATTEMPT_MS", 200)
        monkeypatch.setattr(random, "choice", lambda brokers: brokers[first.pop()] if first else choose(brokers[1:]))
        with TopicAdmin(kafka) as admin:
            admin.names()
    assert not first
