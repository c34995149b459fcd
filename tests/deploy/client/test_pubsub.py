"""The client of publish/subscribe, on a real broker with records written by hand."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import threading
import time
import tracemalloc
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import MessageSizeTooLargeError, UnknownTopicOrPartitionError

from dskype.deploy.client import pubsub
from dskype.deploy.client.dead_letters import DeadLetter, DeadLetters
from dskype.deploy.client.follower import Follower, Once
from dskype.deploy.client.pubsub import PubSub, SendError
from dskype.deploy.client.records import Result, TopK, subscription_type
from dskype.deploy.client.topic_reader import UnknownTopicError, UnreachableError
from dskype.deploy.client.topics import ensure_topics
from dskype.spouts.records import RecordError
from dskype.spouts.settings import Settings
from dskype.spouts.topics import Topics
from dskype.topology.core.steady_clock import AttentiveClock
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.nimbus.states import TopologyState
from dskype.topology.runtime.kafka.clients import KafkaSettings, KafkaTimeoutError
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

PARK = {"text": "lake park", "lat": 43.04, "lon": -87.9, "k": 10, "alpha": 0.5}
COFFEE = {"bbox": [-88, 42, -87, 44], "expression": 'coffee AND (wifi OR "late night")'}


@pytest.fixture(scope="module")
def kafka(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


def write(kafka: KafkaSettings, topic: str, records: list[tuple[Any, ...]]) -> None:
    """Write (key, value[, headers]) records; values that are not bytes become JSON."""
    producer = kafka.producer()
    for key, value, *headers in records:
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.send(
            topic, key=key.encode() if isinstance(key, str) else key, value=data, headers=[(k, v.encode()) for k, v in (headers[0] if headers else [])]
        )
    producer.flush()
    producer.close()


@pytest.fixture
def client(kafka: KafkaSettings) -> Iterator[PubSub]:
    name = f"pubsub-{uuid.uuid4().hex[:8]}"
    assert ensure_topics(kafka, name) == []
    with PubSub(kafka, name, conf={}) as client:
        yield client


def delta(subscription: str, op: str, message: Any, watermark: int, **more: Any) -> tuple[str, dict[str, Any], list[tuple[str, str]]]:
    value = {"v": 1, "subscription": subscription, "watermark": watermark, "op": op, "message": message, **more}
    return subscription, value, [("result-id", f"0-0/{json.dumps(subscription)}/{watermark}/{op}/{json.dumps(message)}")]


def event(subscription: str, registration: str, event: str, watermark: int) -> tuple[str, dict[str, Any]]:
    return subscription, {"v": 1, "subscription": subscription, "registration": registration, "event": event, "watermark": watermark}


# --- topics -----------------------------------------------------------------------------------------------------------


def configuration(kafka: KafkaSettings, topic: str) -> dict[str, str]:
    from kafka.admin import ConfigResource, ConfigResourceType

    admin = kafka.admin()
    try:
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")["topic"][topic]
        return {key: entry["value"] for key, entry in found.items()}
    finally:
        admin.close()


def test_topics_are_made_once_with_the_brokers_time_for_what_comes_in(kafka: KafkaSettings) -> None:
    name = f"made {uuid.uuid4().hex[:8]}"
    topics = Topics.for_topology(name)
    assert topics.messages.startswith("made_x20")
    assert ensure_topics(kafka, name, partitions=3) == []
    admin = TopicAdmin(kafka)
    try:
        assert admin.existing(topics) == {
            **dict.fromkeys((topics.messages, topics.subscriptions, topics.results, topics.matches, topics.answers, topics.topk), 3),
            topics.searches: 1,
            topics.registrations: 1,
            topics.plans: 1,
            topics.sequence: 1,
        }
    finally:
        admin.close()
    for topic in (topics.messages, topics.subscriptions):
        assert configuration(kafka, topic)["message.timestamp.type"] == "LogAppendTime"
    policies = {topic: configuration(kafka, topic)["cleanup.policy"] for topic in topics[:7]}
    assert [topic for topic, policy in policies.items() if policy == "compact"] == [topics.subscriptions, topics.topk, topics.registrations, topics.plans]
    assert configuration(kafka, topics.registrations)["min.compaction.lag.ms"] == str(9 * 86_400_000), (
        "longer than results are kept, and the day of their last segment"
    )
    kept = configuration(kafka, topics.results)
    assert (kept["retention.ms"], kept["retention.bytes"], kept["segment.ms"]) == (str(7 * 86_400_000), str(32 << 30), str(86_400_000))
    assert ensure_topics(kafka, name, partitions=3) == []
    assert ensure_topics(kafka, name) == []
    with pytest.raises(IllegalArgumentException, match="A topic needs a partition. given: 0"):
        ensure_topics(kafka, name, 0)


def test_topics_that_somebody_made_otherwise_are_told_and_stay(kafka: KafkaSettings) -> None:
    name = f"wrong-{uuid.uuid4().hex[:8]}"
    topics = Topics.for_topology(name)
    admin = TopicAdmin(kafka)
    try:
        admin.create({topics.subscriptions: 1, topics.messages: 2}, {"cleanup.policy": "compact,delete"})
    finally:
        admin.close()
    told = ensure_topics(kafka, name)
    assert len(told) == 6
    assert any(t.startswith(f"Topic {topics.subscriptions} should have cleanup.policy=compact. given: 'compact,delete'") for t in told)
    assert any(
        t.startswith(f"Topic {topics.messages} should have message.timestamp.type=LogAppendTime") and "--add-config message.timestamp.type=LogAppendTime" in t
        for t in told
    )
    assert configuration(kafka, topics.subscriptions)["cleanup.policy"] == "compact,delete"


def test_what_is_kept_of_results_and_how_long_records_may_be_follow_the_settings(kafka: KafkaSettings) -> None:
    name = f"kept-{uuid.uuid4().hex[:8]}"
    topics = Topics.for_topology(name)
    settings = Settings.from_conf({"dskype.results.retention.ms": None, "dskype.results.retention.bytes": 5 << 20, "dskype.text.max.bytes": 1000})
    assert ensure_topics(kafka, name, settings=settings) == []
    kept = configuration(kafka, topics.results)
    assert (kept["retention.ms"], kept["retention.bytes"]) == ("-1", str(5 << 20))
    assert configuration(kafka, topics.registrations)["min.compaction.lag.ms"] == str((1 << 63) - 1)
    for topic in (topics.messages, topics.subscriptions):
        found = configuration(kafka, topic)
        assert (found["compression.type"], found["max.message.bytes"]) == ("uncompressed", str(1 << 20))


def test_a_small_record_that_unpacks_to_a_large_one_is_refused_by_the_broker_and_the_longest_text_is_not(kafka: KafkaSettings) -> None:
    name = f"packed-{uuid.uuid4().hex[:8]}"
    topics = Topics.for_topology(name)
    assert ensure_topics(kafka, name) == []
    longest = json.dumps({"text": "\u0001" * Settings().limits.text_max_bytes, "lat": 0, "lon": 0}).encode()
    for value, refused in ((b'{"text": "' + b" " * (20 << 20) + b'"}', True), (longest, False)):
        producer = KafkaProducer(**kafka.arguments(), compression_type="gzip", max_request_size=64 << 20, batch_size=64 << 20)
        try:
            with pytest.raises(MessageSizeTooLargeError) if refused else contextlib.nullcontext():
                producer.send(topics.messages, value=value).get(timeout=30)
        finally:
            producer.close(timeout=10)
    with PubSub(kafka, name, conf={}) as client:
        client.publish(text="x" * 262_144, lat=0, lon=0)
        client.subscribe("a", **PARK)


def test_a_topology_that_never_ran_has_no_topics_and_gets_none(kafka: KafkaSettings) -> None:
    with PubSub(kafka, "never-ran", conf={}) as client:
        for use in (
            lambda: client.subscribe("a", **PARK),
            lambda: client.publish(text="x", lat=0, lon=0),
            client.subscriptions,
            client.results,
            lambda: client.topk("a"),
            lambda: client.unsubscribe("a"),
            lambda: client.partitions(client.topics.messages),
        ):
            with pytest.raises(
                UnknownTopicError, match="The topic never-ran.* does not exist.*run one named 'never-ran' with 'dskype local' or 'dskype submit'"
            ):
                use()
        with pytest.raises(UnknownTopicError, match="The topics never-ran.messages, never-ran.topk do not exist"):
            client.require(client.topics.topk, client.topics.messages)
    admin = TopicAdmin(kafka)
    try:
        assert admin.existing(Topics.for_topology("never-ran")) == {}
    finally:
        admin.close()


def test_brokers_that_do_not_answer_are_given_up_after_the_timeout() -> None:
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="The brokers do not answer. given: '127.0.0.1:1'; hint: .*They had 0.3 s"):
        PubSub("127.0.0.1:1", conf={}, timeout_s=0.3).subscribe("a", **PARK)
    assert time.monotonic() - began < 20


# --- sending ----------------------------------------------------------------------------------------------------------


def test_what_is_sent_is_what_the_topology_reads(kafka: KafkaSettings, client: PubSub) -> None:
    assert client.subscribe("lake-park", **PARK, meta={"user": 7}) == "lake-park"
    generated = client.subscribe(**COFFEE, ttl_s=3600)
    client.unsubscribe("gone")
    assert client.publish(text="Café", lat=43.0, lon=-87.9, id="a17") == "a17"
    assert client.publish(text="no id", lat=43.0, lon=-87.9) is None
    client.flush()
    assert client.publish(text="waited for", lat=1, lon=2, ts=5, wait=True) == "0-2"
    assert client.publish(text="waited for", lat=1, lon=2, id=17, wait=True) == 17
    assert client.publish(text="storm", bbox=(-88, 42.5, -87, 43), id="area", wait=True) == "area"
    sent = [(r.key, None if r.value is None else json.loads(r.value)) for r in read_to_end(kafka, client.topics.subscriptions)]
    assert sent == [
        (b"lake-park", {"type": "topk", **PARK, "meta": {"user": 7}}),
        (generated.encode(), {"type": "boolean", **COFFEE, "ttl_s": 3600}),
        (b"gone", None),
    ]
    messages = [json.loads(r.value) for r in read_to_end(kafka, client.topics.messages)]
    assert messages[0] == {"id": "a17", "text": "Café", "lat": 43.0, "lon": -87.9}
    assert messages[2] == {"text": "waited for", "lat": 1, "lon": 2, "ts": 5}
    assert messages[4] == {"id": "area", "text": "storm", "bbox": [-88, 42.5, -87, 43]}
    assert client.sent == 8


def test_what_json_does_not_have_is_refused_with_what_it_was() -> None:
    client = PubSub("127.0.0.1:1", conf={})
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value, words in ((b"x", "given: Object of type bytes"), (1j, "given: Object of type complex"), (deep, "less nesting")):
        with pytest.raises(RecordError, match=f"Expected a subscription .*{words}"):
            client.subscribe_topk("s", text="tea", lat=1, lon=2, meta=value)
        with pytest.raises(RecordError, match=f"Expected a message .*{words}"):
            client.publish(text="tea", lat=1, lon=2, attributes={"price": value})
        with pytest.raises(RecordError, match=f"Expected the end of an object .*{words}"):
            client.delete_object("o", ts=value)  # type: ignore[arg-type]
        with pytest.raises(RecordError, match=f"Expected a search .*{words}"):
            client.search("tea", k=value)  # type: ignore[arg-type]
    for call in (client.subscribe_boolean, client.unsubscribe):
        with pytest.raises(RecordError, match="Expected the id of a subscription as a text; given: 5"):
            call(5)  # type: ignore[arg-type]


def test_the_kinds_of_subscriptions_have_methods_and_messages_have_attributes(kafka: KafkaSettings, client: PubSub) -> None:
    client = PubSub(kafka, client.name, conf={"dskype.boolean.wordless": True})
    client.subscribe_topk("t", text="lake park", lat=43.04, lon=-87.9, meta=[1])
    client.subscribe_topk("words", keywords=("lake", "park"), lat=43.04, lon=-87.9, k=3, alpha=0, where="NOT decaf")
    client.subscribe_topk("scaled", text="lake", lat=43.04, lon=-87.9, distance="metres", scale_m=5000)
    client.subscribe_boolean("b", expression="coffee AND NOT decaf", ttl_s=5)
    client.subscribe_boolean("here", bbox=(-88, 42, -87, 44), meta={"a": 1})
    client.subscribe_boolean("near", expression="tea", region={"center": {"lat": 1, "lon": 2}, "radius_m": 500})
    client.subscribe_boolean("all of", keywords=["coffee", "tea"], bbox=[0, 0, 1, 1], wait=True)
    with pytest.raises(RecordError, match="Expected 'expression', 'keywords', 'bbox' or 'region'"):
        client.subscribe_boolean("nothing")
    sent = {r.key.decode(): json.loads(r.value) for r in read_to_end(kafka, client.topics.subscriptions)}
    assert sent == {
        "t": {"type": "topk", "text": "lake park", "lat": 43.04, "lon": -87.9, "k": 10, "alpha": 0.5, "meta": [1]},
        "words": {"type": "topk", "keywords": ["lake", "park"], "lat": 43.04, "lon": -87.9, "k": 3, "alpha": 0, "where": "NOT decaf"},
        "scaled": {"type": "topk", "text": "lake", "lat": 43.04, "lon": -87.9, "k": 10, "alpha": 0.5, "distance": "metres", "scale_m": 5000},
        "b": {"type": "boolean", "expression": "coffee AND NOT decaf", "ttl_s": 5},
        "here": {"type": "boolean", "bbox": [-88, 42, -87, 44], "meta": {"a": 1}},
        "near": {"type": "boolean", "expression": "tea", "region": {"center": {"lat": 1, "lon": 2}, "radius_m": 500}},
        "all of": {"type": "boolean", "keywords": ["coffee", "tea"], "bbox": [0, 0, 1, 1]},
    }
    client.close()
    with PubSub(kafka, client.name, conf={"dskype.attributes": {"price": {"type": "number", "required": True}}, "dskype.boolean.wordless": True}) as typed:
        typed.subscribe_boolean("cheap", expression="price < 5")
        typed.publish(text="tea", lat=1.0, lon=2.0, attributes={"price": 4.5, "colour": "green"}, wait=True)
        for attributes in (None, {}, {"price": "dear"}, {"price": None}, 5):
            with pytest.raises(RecordError):
                typed.publish(text="tea", lat=1.0, lon=2.0, attributes=attributes)
    (message,) = read_to_end(kafka, client.topics.messages)
    assert json.loads(message.value) == {"text": "tea", "lat": 1.0, "lon": 2.0, "attributes": {"price": 4.5, "colour": "green"}}


def test_nonsense_is_refused_before_it_is_sent(kafka: KafkaSettings, client: PubSub) -> None:
    for fields in ({**PARK, "lat": 91}, {**PARK, "k": 0}, {**PARK, "alpha": 2}, {"text": "x"}, {**COFFEE, "expression": "a AND"}, {**COFFEE, "type": "other"}):
        with pytest.raises(RecordError):
            client.subscribe("bad", **fields)
    for message in (
        {"text": "x", "lat": 91, "lon": 0},
        {"text": 5, "lat": 0, "lon": 0},
        {"text": "x", "lat": 0, "lon": 0, "id": True},
        {"text": "x"},
        {"text": "x", "lat": 0, "lon": 0, "bbox": [0, 0, 1, 1]},
    ):
        with pytest.raises(RecordError):
            client.publish(**message)
    for id in ("", "x" * 600, "\ud800"):
        with pytest.raises(RecordError):
            client.subscribe(id, **PARK)
    client.flush()
    assert read_to_end(kafka, client.topics.subscriptions) == read_to_end(kafka, client.topics.messages) == []


def test_records_are_checked_by_the_configuration_that_was_given(kafka: KafkaSettings, client: PubSub) -> None:
    small = PubSub(kafka, client.name, conf={"dskype.space": [0, 0, 10, 10], "dskype.k.max": 5})
    with pytest.raises(RecordError):
        small.subscribe("a", **PARK)
    with pytest.raises(RecordError):
        small.publish(text="x", lat=11, lon=5)
    small.subscribe("a", text="x", lat=5, lon=5, k=5, alpha=0)
    with pytest.raises(RecordError):
        small.subscribe("a", text="x", lat=5, lon=5, k=6, alpha=0)
    small.close()


def test_records_are_checked_by_the_configuration_of_the_running_topology(kafka: KafkaSettings, client: PubSub) -> None:
    from dskype.topology.runtime.nimbus.nimbus_topic import NIMBUS_TOPIC, _ensure_topic

    _ensure_topic(kafka)
    state = TopologyState(f"{client.name}-1-0", client.name, {"topology.workers": 1, "dskype.k.max": 3}, [], 0).to_json()
    write(kafka, NIMBUS_TOPIC, [(f"topology:{client.name}", {"v": 1, "state": state, "summary": {}, "driver": {"host": "h", "pid": 1}, "heartbeat_ms": 0})])
    with PubSub(kafka, client.name) as running:
        assert running.settings.limits.k_max == 3
        with pytest.raises(RecordError):
            running.subscribe("a", **PARK)
    write(kafka, NIMBUS_TOPIC, [(f"topology:{client.name}", None)])
    with PubSub(kafka, client.name) as ended:
        assert ended.running_conf() is None
        assert ended.settings.limits.k_max == 100


def test_what_kafka_does_not_take_is_told_at_the_flush_or_the_end(kafka: KafkaSettings) -> None:
    name = f"small-{uuid.uuid4().hex[:8]}"
    admin = TopicAdmin(kafka)
    try:
        admin.create({Topics.for_topology(name).messages: 1}, {"max.message.bytes": "2000"})
    finally:
        admin.close()
    client = PubSub(kafka, name, conf={})
    client.publish(text="x", lat=0, lon=0)
    client.flush()
    assert (client.sent, client.stored, client.failed) == (1, 1, 0)
    client.publish(text="x" * 3000, lat=0, lon=0)
    with pytest.raises(SendError, match="1 of 2 records did not reach Kafka; the first: .*MessageSizeTooLarge"):
        client.flush()
    assert (client.sent, client.stored, client.failed) == (2, 1, 1)
    with pytest.raises(SendError), PubSub(kafka, name, conf={}) as ending:
        ending.publish(text="x" * 3000, lat=0, lon=0)
    client.close()


# --- reading ----------------------------------------------------------------------------------------------------------


def test_subscriptions_have_the_state_of_their_newest_registration(kafka: KafkaSettings, client: PubSub) -> None:
    write(
        kafka,
        client.topics.subscriptions,
        [
            ("again", {"type": "topk", **PARK}),
            ("again", {"type": "topk", **PARK, "k": 3}),
            ("gone", {"type": "topk", **PARK}),
            ("gone", None),
            ("new", {"type": "boolean", **COFFEE}),
            ("over", {"type": "boolean", **COFFEE}),
            ("ttl", {"type": "boolean", **COFFEE, "ttl_s": 0.001}),
            ("junk", b"\xff\x00"),
            ("busy", {"type": "topk", **PARK}),
        ],
    )
    write(
        kafka,
        client.topics.registrations,
        [
            event("again", "0-0", "active", 5),
            event("again", "0-1", "active", 9),
            event("again", "0-0", "removed", 9),
            event("gone", "0-2", "active", 1),
            event("over", "0-5", "active", 2),
            event("over", "0-5", "removed", 8),
            event("busy", "0-7", "active", 1),
            ("busy", b"junk"),
            event("busy", "0-8", "active", -1),
        ],
    )
    time.sleep(0.01)
    found = {s.id: s for s in client.subscriptions()}
    assert list(found) == ["again", "busy", "junk", "new", "over", "ttl"]
    assert {id: (s.status, s.since) for id, s in found.items()} == {
        "again": ("active", 9),
        "busy": ("active", -1),
        "junk": ("pending", None),
        "new": ("pending", None),
        "over": ("expired", 8),
        "ttl": ("expired", None),
    }
    assert found["again"].fields["k"] == 3
    assert found["again"].registration == "0-1"
    assert found["junk"].fields is None
    assert abs(found["again"].registered_ms - time.time() * 1000) < 60_000
    assert [s.id for s in client.subscriptions("boolean")] == ["new", "over", "ttl"]
    assert client.subscription("gone") is None
    assert client.subscription("new").as_json() == {
        "id": "new",
        "status": "pending",
        "since": None,
        "registration": "0-4",
        "registered_ms": found["new"].registered_ms,
        "type": "boolean",
        **COFFEE,
    }


def test_a_subscription_says_which_limit_its_author_was_told_of(kafka: KafkaSettings, client: PubSub) -> None:
    write(kafka, client.topics.subscriptions, [("a", {"type": "topk", **PARK}), ("b", {"type": "topk", **PARK}), ("b", {"type": "topk", **PARK, "k": 3})])
    limit = "dskype.results.meta.bytes.per.second"
    told = [(b"\xff" + id.encode(), {**event(id, place, "limited", 7)[1], "limit": limit}) for id, place in (("a", "0-0"), ("b", "0-1"))]
    write(kafka, client.topics.registrations, [event("a", "0-0", "active", 5), *told])
    found = {s.id: s for s in client.subscriptions()}
    assert (found["a"].status, found["a"].since, found["a"].limit) == ("active", 5, limit) and found["a"].limited_ms > found["a"].registered_ms - 60_000
    assert found["a"].as_json()["limit"] == limit
    assert found["b"].limit is None and "limit" not in found["b"].as_json()  # it was the registration before


def test_a_topology_that_resumes_makes_expired_registrations_active_again(kafka: KafkaSettings, client: PubSub) -> None:
    write(kafka, client.topics.subscriptions, [("a", {"type": "topk", **PARK})])
    write(kafka, client.topics.registrations, [event("a", "0-0", "active", 5), event("a", "0-0", "removed", 7), event("a", "0-0", "active", -1)])
    assert client.subscription("a").status == "active"
    assert client.subscription("a").since == -1


def test_the_newest_topk_is_that_of_the_store(kafka: KafkaSettings, client: PubSub) -> None:
    assert client.topk("a") is None

    def state(watermark: int, *entries: tuple[Any, float]) -> dict[str, Any]:
        return {"v": 1, "subscription": "a", "registration": "0-3", "watermark": watermark, "topk": [{"message": m, "score": s} for m, s in entries]}

    def version(watermark: int) -> list[tuple[str, str]]:
        return [("version", f"1 0-3 {watermark}")]

    write(
        kafka,
        client.topics.topk,
        [("a", state(7, ("0-1", 0.9)), version(7)), ("a", state(9, (17, 0.8), ("0-1", 0.5)), version(9)), ("b", state(10), version(10))],
    )
    found = client.topk("a")
    assert found == TopK("a", 9, [(17, 0.8), ("0-1", 0.5)], "0-3")
    assert found.as_json() == {
        "subscription": "a",
        "registration": "0-3",
        "watermark": 9,
        "topk": [{"message": 17, "score": 0.8}, {"message": "0-1", "score": 0.5}],
    }
    write(kafka, client.topics.topk, [("a", None, version(9))])
    assert client.topk("a") is None


def test_results_come_once_each_and_junk_is_left_out(kafka: KafkaSettings, client: PubSub) -> None:
    first, second, third = delta("a", "add", "0-1", 1, score=0.5, rank=1, meta={"x": 1}), delta("b", "match", 17, 2), delta("a", "remove", "0-1", 9)
    write(kafka, client.topics.results, [first, second, first, ("a", b"junk"), ("a", b"[]"), ("a", None), ("a", {"v": 1}), third, second])
    found = list(client.results())
    assert [(r.subscription, r.op, r.message, r.watermark, r.score, r.rank, r.meta) for r in found] == [
        ("a", "add", "0-1", 1, 0.5, 1, {"x": 1}),
        ("b", "match", 17, 2, None, None, None),
        ("a", "remove", "0-1", 9, None, None, None),
    ]
    assert found[0].value == first[1]
    assert found[0].result_id == '0-0/"a"/1/add/"0-1"'
    assert [r.op for r in client.results(subscriptions=["b"])] == ["match"]
    assert [r.op for r in client.results(subscriptions="b")] == ["match"]
    plain = dict(first[1].items())
    write(kafka, client.topics.results, [("a", plain), ("a", plain)])
    assert len(list(client.results())) == 4  # without the header the content tells them apart


def grouped(message: Any, watermark: int, task: int, *subscriptions: Any) -> tuple[str, dict[str, Any], list[tuple[str, str]]]:
    value = {"v": 1, "message": message, "watermark": watermark, "task": task, "subscriptions": list(subscriptions)}
    return str(message), value, [("result-id", f"{json.dumps(message)}/{watermark}/{task}/0")]


def test_grouped_matches_are_a_result_for_each_subscription(kafka: KafkaSettings) -> None:
    name = f"grouped-{uuid.uuid4().hex[:8]}"
    ensure_topics(kafka, name, 2)  # the topic is there before matches are grouped
    with PubSub(kafka, name, conf={}) as client:
        assert client.result_topics() == [client.topics.results, client.topics.matches]
        assert configuration(kafka, client.topics.matches)["retention.ms"] == configuration(kafka, client.topics.results)["retention.ms"]
        first = grouped("0-1", 1, 7, "a", "é", "b")
        write(
            kafka,
            client.topics.matches,
            [first, first, grouped(17, 2, 7, "b", 3), grouped(17, 2, 8, "c"), ("x", b"junk"), ("x", {"message": 1, "subscriptions": 5})],
        )
        write(kafka, client.topics.results, [delta("t", "remove", "0-1", 9)])
        found = sorted((str(r.message), r.subscription, r.op, r.watermark) for r in client.results())
        assert found == [
            ("0-1", "a", "match", 1),
            ("0-1", "b", "match", 1),
            ("0-1", "t", "remove", 9),
            ("0-1", "é", "match", 1),
            ("17", "b", "match", 2),
            ("17", "c", "match", 2),
        ]
        chosen = list(client.results(subscriptions=["b"]))
        assert {r.message for r in chosen} == {"0-1", 17} and {r.subscription for r in chosen} == {"b"}
        one = next(r for r in chosen if r.message == 17)
        assert one.value == {"v": 1, "subscription": "b", "watermark": 2, "op": "match", "message": 17}
        assert one.result_id == '17/2/7/0/"b"' and one.time_ms > 0


def test_results_are_followed_from_the_moment_of_the_call(kafka: KafkaSettings, client: PubSub) -> None:
    write(kafka, client.topics.results, [delta("a", "match", 1, 1)])
    following = client.results(start="now", follow=0.5)
    write(kafka, client.topics.results, [delta("a", "match", 2, 2)])
    assert [r.message for r in following] == [2]
    endless = client.results(follow=True)
    assert [next(endless).message, next(endless).message] == [1, 2]
    elsewhere = threading.Thread(target=list, args=(endless,), daemon=True)
    elsewhere.start()
    client.close()
    elsewhere.join(30)
    assert not elsewhere.is_alive()
    assert [r.message for r in client.results(follow=0.5)] == [1, 2]  # a client that was closed may be used again


class Dumb:
    """A follower that never gets anything, with a clock of its own: each look takes ``look_s`` seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, look_s: Iterator[float]) -> None:
        self._look_s, self.now_s, self.looks = look_s, 0.0, 0
        monkeypatch.setattr(pubsub, "Follower", lambda *_: self)
        monkeypatch.setattr(pubsub, "AttentiveClock", lambda gap_s: AttentiveClock(gap_s, lambda: self.now_s))

    def poll(self, timeout_s: float) -> list[Any]:
        self.looks += 1
        self.now_s += next(self._look_s)
        return []

    def at_end(self) -> bool:
        return False

    def close(self) -> None: ...


def test_results_are_followed_until_it_is_quiet_and_a_program_that_stood_still_has_not_heard_that(client: PubSub, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Dumb(monkeypatch, itertools.chain([0.2, 160.0], itertools.repeat(0.2)))
    assert list(client.results(follow=3)) == [] and quiet.looks > 5


def test_results_that_cannot_be_read_to_their_end_are_an_error(client: PubSub, monkeypatch: pytest.MonkeyPatch) -> None:
    Dumb(monkeypatch, itertools.repeat(0.2))
    with pytest.raises(KafkaTimeoutError, match="could not be read to their end"):
        list(client.results())


def test_several_partitions_are_read_whole(kafka: KafkaSettings) -> None:
    name = f"many-{uuid.uuid4().hex[:8]}"
    ensure_topics(kafka, name, 3)
    with PubSub(kafka, name, conf={}) as client:
        ids = [client.subscribe(f"s{i}", **PARK) for i in range(30)]
        for i in range(0, 30, 3):
            client.unsubscribe(f"s{i}")
        client.flush()
        found = client.subscriptions()
        assert [s.id for s in found] == sorted(ids[i] for i in range(30) if i % 3)
        assert len({s.registration.partition("-")[0] for s in found}) == 3
        assert client.partitions(client.topics.messages) == 3
        write(kafka, client.topics.results, [delta(f"s{i}", "match", i, i) for i in range(30)])
        assert sorted(r.message for r in client.results()) == list(range(30))


def test_a_refused_record_is_found_among_the_dead_letters(kafka: KafkaSettings, client: PubSub) -> None:
    assert client.refusal("0-3") is None
    admin = TopicAdmin(kafka)
    try:
        admin.create({client.topics.dead_letters: 1}, {})
    finally:
        admin.close()
    where = [("stage", "translate"), ("topic", client.topics.subscriptions), ("partition", "0")]
    write(
        kafka,
        client.topics.dead_letters,
        [("a", b"x", [("error", "too deep"), *where, ("offset", "3")]), ("a", b"y", [("error", "other"), *where, ("offset", "33")])],
    )
    assert client.refusal("0-3") == "too deep"
    assert client.refusal("0-33") == "other"
    assert client.refusal("1-3") is None


def test_a_follower_of_a_topic_that_is_not_there_says_so_and_does_not_wait(kafka: KafkaSettings, client: PubSub) -> None:
    missing = f"{client.topics.messages}-gone"
    with pytest.raises(UnknownTopicOrPartitionError, match="Kafka shows no such topic.*" + re.escape(missing)):
        Follower(kafka, [client.topics.messages, missing])


def test_a_follower_can_begin_before_the_end(kafka: KafkaSettings, client: PubSub) -> None:
    write(kafka, client.topics.messages, [(None, {"n": i}) for i in range(10)])

    def read(start: str | int) -> list[int]:
        follower = Follower(kafka, [client.topics.messages], start)
        try:
            size, found = follower.size(), []
            while not follower.at_end():
                found += [json.loads(r.value)["n"] for r in follower.poll()]
            assert size == len(found)
            return found
        finally:
            follower.close()

    assert read(3) == [7, 8, 9]
    assert read(30) == read("beginning") == list(range(10))
    assert read("now") == []


# --- without a broker -------------------------------------------------------------------------------------------------


def test_the_type_is_seen_from_the_fields() -> None:
    assert [subscription_type(f) for f in (PARK, COFFEE, {"keywords": ["a"]}, {"bbox": []}, {"region": {}}, {**PARK, "type": "boolean"})] == [
        "topk",
        "boolean",
        "topk",
        "boolean",
        "boolean",
        "boolean",
    ]


def test_only_the_newest_ids_are_remembered() -> None:
    once = Once(2)
    assert [once.first(id) for id in "abacda"] == [True, True, False, True, True, True]


def test_what_is_remembered_of_ids_does_not_grow_with_their_lengths() -> None:
    once = Once(1000)
    tracemalloc.start()
    try:
        for number in range(1000):
            assert once.first(f"{'x' * 10_000}{number}")
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 300_000 and not once.first("x" * 10_000 + "999")


def test_what_is_no_state_is_none() -> None:
    for value in (
        None,
        b"junk",
        b"[]",
        b"{}",
        b'{"subscription": "a", "watermark": 1, "topk": 5}',
        b'{"subscription": "a", "watermark": 1, "topk": [{}]}',
        b"[" * 100_000,
    ):
        assert TopK.from_json(value) is None
        assert Result.from_record(type("Record", (), {"value": value, "headers": [], "timestamp": 0})()) is None


def letter(offset: int, error: str, code: str, **more: str) -> list[tuple[str, str]]:
    place = {"topic": "m", "partition": "0", "offset": str(offset), "stage": "translate", "component": "messages", "task": "2", "size": "9"}
    return [("error", error), ("code", code), *{**place, **more}.items()]


def test_dead_letters_are_read_newest_last_and_then_as_they_come(kafka: KafkaSettings, client: PubSub) -> None:
    with pytest.raises(UnknownTopicError, match="dead-letters does not exist"):
        DeadLetters(client)
    topic = client.topics.dead_letters
    with contextlib.closing(TopicAdmin(kafka)) as admin:
        admin.create({topic: 1}, {})
    client._known.clear()
    with DeadLetters(client) as letters:
        assert letters.newest() == []
    write(kafka, topic, [(None, b"%d" % n, letter(n, f"Expected number {n}", "late" if n % 2 else "invalid-lat")) for n in range(5)])
    with DeadLetters(client, count=2) as letters:
        assert [(found.value, found.error, found.code, found.offset) for found in letters.newest()] == [
            (b"3", "Expected number 3", "late", 3),
            (b"4", "Expected number 4", "invalid-lat", 4),
        ]
    with DeadLetters(client, count=1, reason="LATE") as late, DeadLetters(client, reason="number 2") as second:
        assert [found.value for found in late.newest()] == [b"3"]
        assert [found.value for found in second.newest()] == [b"2"]
        write(kafka, topic, [(None, b"new", letter(7, "Expected", "late")), (None, b"other", letter(8, "Expected", "early"))])
        came: list[DeadLetter] = []
        while not came:
            came += late.poll(1)
        assert [found.value for found in came] == [b"new"] and second.poll(0) == []


def test_a_dead_letter_of_whoever_wrote_it_is_read(kafka: KafkaSettings, client: PubSub) -> None:
    with contextlib.closing(TopicAdmin(kafka)) as admin:
        admin.create({client.topics.dead_letters: 1}, {})
    write(kafka, client.topics.dead_letters, [("k", None), ("k", b"\xff<b>", letter(0, "<i>", "x", partition="no", size="-1", truncated="true"))])
    client._known.clear()
    with DeadLetters(client) as letters:
        nothing, hostile = letters.newest()
    assert (nothing.error, nothing.code, nothing.topic, nothing.partition, nothing.value, nothing.truncated) == ("without a reason", "", "", None, None, False)
    assert (hostile.partition, hostile.size, hostile.truncated, hostile.as_json()["value"]) == (None, None, True, "\\xff<b>")


def test_present_results_that_do_not_come_are_an_error_and_no_short_list(client: PubSub, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def __init__(self, *_: Any) -> None:
            pass

        def at_end(self) -> bool:
            return False

        def poll(self, timeout_s: float) -> list[Any]:
            return []

        def close(self) -> None:
            pass

    monkeypatch.setattr(pubsub, "Follower", Silent)
    client._timeout_s = 0.01
    with pytest.raises(KafkaTimeoutError, match="could not be read to their end: nothing came for 0.01 s"):
        list(client.results())
    assert list(client.results(follow=0.01)) == []
