"""Create the topics of a topology before it is there."""

from __future__ import annotations

import contextlib
import time

from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import TopicAlreadyExistsError

from dskype.spouts.settings import Settings
from dskype.spouts.topics import Topics, topic_config
from dskype.topology.errors import IllegalArgumentException, explain
from dskype.topology.runtime.kafka.clients import KafkaSettings, KafkaTimeoutError
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

__all__ = ["ensure_topics"]

_CREATE_S = 30
_WHY = {
    "cleanup.policy": {
        "compact": "otherwise Kafka drops old records, and with them registered subscriptions or current lists",
        "delete": "otherwise records that have the same key are dropped, and records without one refused",
    },
    "message.timestamp.type": {"LogAppendTime": "arrival times are those of the clients' clocks, and a ttl depends on them"},
    "compression.type": {"uncompressed": "a small record may unpack to a very large one"},
}


def ensure_topics(kafka: KafkaSettings, name: str, partitions: int = 1, settings: Settings | None = None) -> list[str]:
    """Create the topics of a topology that are missing; leave the others as they are.

    Messages and subscriptions get the broker's time (``LogAppendTime``), so that a ttl and latencies do not depend on the clocks of
    clients. Subscriptions and top-k lists are compacted. Repeating the call changes nothing.

    :param kafka: the brokers.
    :param name: the topology's name.
    :param partitions: of messages, subscriptions, results, answers and top-k lists; registrations, plans, the sequence and searches have one.
    :param settings: of the topology: limits and retention; default: the defaults.
    :returns: one sentence for each setting of an existing topic that is wrong; [] if none is.
    :raises IllegalArgumentException: fewer than 1 partition.
    """
    if partitions < 1:
        raise IllegalArgumentException("A topic needs a partition.", given=partitions, legal="an integer >= 1")
    one = ("registrations", "plans", "sequence", "searches")  # each partition of searches would take a task slot of Spark, and there are few of them
    plan = [
        (getattr(Topics.for_topology(name), topic), 1 if topic in one else partitions, config) for topic, config in topic_config(settings or Settings()).items()
    ]
    existing = _create(kafka, [NewTopic(topic, count, -1, topic_configs=config) for topic, count, config in plan])
    return _differences(kafka, [(topic, config) for topic, _, config in plan if topic in existing])


def _create(kafka: KafkaSettings, topics: list[NewTopic]) -> set[str]:
    """Create missing topics in one request and wait for them; return the topics that existed before."""
    client, admin = kafka.admin(), TopicAdmin(kafka)
    try:
        before = set(admin.existing(t.name for t in topics))
        if missing := [t for t in topics if t.name not in before]:
            with contextlib.suppress(TopicAlreadyExistsError):  # another client has just created one
                client.create_topics(missing)
            deadline = time.monotonic() + _CREATE_S
            while left := sorted({t.name for t in missing} - set(admin.existing(t.name for t in missing))):
                if time.monotonic() > deadline:
                    raise KafkaTimeoutError(f"topics are not there after {_CREATE_S} s; expected: {', '.join(left)}")
                time.sleep(0.02)
        return before
    finally:
        client.close()
        admin.close()


def _differences(kafka: KafkaSettings, expected: list[tuple[str, dict[str, str]]]) -> list[str]:
    if not expected:
        return []
    admin = kafka.admin()
    try:
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic) for topic, _ in expected], config_filter="all")["topic"]
    finally:
        admin.close()
    told = []
    for topic, config in expected:
        for key, value in config.items():
            given = found[topic].get(key, {}).get("value")
            why = _WHY.get(key, {}).get(value)
            if why and given is not None and given != value:
                told.append(
                    explain(
                        f"Topic {topic} should have {key}={value}.",
                        given=given,
                        hint=f"{why}; change it with kafka-configs.sh --alter, --entity-type topics --entity-name {topic} --add-config {key}={value}",
                    )
                )
    return told
