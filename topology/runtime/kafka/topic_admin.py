"""Topics: creating, describing and deleting them, the configurations that ours have, and warnings of those that others have."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, closing, suppress

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from dskype.topology.config import RECORD_BYTES
from dskype.topology.runtime.kafka.clients import KafkaSettings, KafkaTimeoutError

__all__ = ["INPUT_TOPIC", "KEPT_TOPIC", "OUTPUT_TOPIC", "OWN_TOPIC", "TopicAdmin", "topic_warnings"]

log = logging.getLogger(__name__)

_INPUT_BYTES = 64 << 20
"""Size of input records above which a warning is given: Spark's JVM and the executors hold a record several times."""

OWN_TOPIC = {"compression.type": "producer"}
"""Configuration of a topic that only topologies use. The brokers keep its records as they come, and do not pack each of them, whatever their default is."""
KEPT_TOPIC = {**OWN_TOPIC, "retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": str(64 << 20), "max.message.bytes": str(2 * RECORD_BYTES)}
"""The same for one whose records stay until the topology lets Kafka drop them."""
INPUT_TOPIC = {"compression.type": "uncompressed"}
"""Default configuration of a topic that a spout reads; without compression, a small record cannot unpack to a huge one."""
OUTPUT_TOPIC = {"max.message.bytes": str(2 * RECORD_BYTES)}
"""Default configuration of a topic that only bolts write to; it accepts every record that a topology may send."""


class TopicAdmin(AbstractContextManager["TopicAdmin", None]):
    """Creates, describes and deletes topics."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin = settings.admin()

    def close(self) -> None:
        """Close the connection."""
        self._admin.close()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def cluster_id(self) -> str:
        """Return the id that the cluster was made with."""
        return str(self._admin.describe_cluster()["cluster_id"])

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return sorted(self._admin.list_topics())

    def existing(self, topics: Iterable[str]) -> dict[str, int]:
        """Return topic -> number of partitions, for those of ``topics`` that exist."""
        wanted = set(topics)
        return {d["name"]: len(d["partitions"]) for d in self._admin.describe_topics() if d["name"] in wanted}

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return topic -> its settings, defaults included; topics whose settings this user may not see are missing."""
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in sorted(set(topics))]
        try:
            found = self._admin.describe_configs(resources, config_filter="all") if resources else {}
        except KafkaError as error:
            log.warning("the settings of topics cannot be read: %s", error)
            return {}
        return {topic: {name: value["value"] for name, value in settings.items()} for topic, settings in found.get("topic", {}).items() if settings}

    def create(self, topics: Mapping[str, int], config: Mapping[str, str], timeout_s: float = 30) -> None:
        """Create topics (name -> partitions) with one configuration; existing ones stay as they are."""
        if not topics:
            return
        with suppress(TopicAlreadyExistsError):
            self._admin.create_topics({name: {"num_partitions": partitions, "configs": dict(config)} for name, partitions in topics.items()})
        deadline = time.monotonic() + timeout_s
        while missing := dict(topics.items() - (there := self.existing(topics)).items()):
            if time.monotonic() > deadline:
                msg = f"topics do not exist {timeout_s:g} s after their creation; expected topic: partitions {missing}; given: {there}"
                raise KafkaTimeoutError(msg)
            time.sleep(0.05)

    def delete(self, topics: Iterable[str], timeout_s: float = 30) -> None:
        """Delete topics, and wait until they are gone; unknown topics are ignored."""
        topics = sorted(self.existing(topics))
        if topics:
            with suppress(UnknownTopicOrPartitionError):
                self._admin.delete_topics(topics)
        deadline = time.monotonic() + timeout_s
        while left := self.existing(topics):
            if time.monotonic() > deadline:
                msg = f"topics still exist {timeout_s:g} s after their deletion; given: {sorted(left)}"
                raise KafkaTimeoutError(msg)
            time.sleep(0.05)

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
        """Let Kafka drop the records below the given offsets."""
        if before:
            self._admin.delete_records({TopicPartition(t, p): offset for (t, p), offset in before.items()})

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition."""
        (described,) = self._admin.describe_topics([topic])
        return next(p["leader_id"] for p in described["partitions"] if p["partition_index"] == partition)

    def begin_and_end(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return partition -> (first offset, next offset) of a topic; empty for an unknown one."""
        return self.begins_and_ends([topic])[topic]

    def begins_and_ends(self, topics: Iterable[str]) -> dict[str, dict[int, tuple[int, int]]]:
        """Return topic -> what :meth:`begin_and_end` returns, with as few requests as for one topic."""
        with closing(self._settings.consumer()) as consumer:
            found = {topic: [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())] for topic in topics}
            partitions = [where for places in found.values() for where in places]
            first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
            return {topic: {where.partition: (first[where], last[where]) for where in places} for topic, places in found.items()}


_BATCH_BYTES = 1024
"""Upper bound of what Kafka's format and the header ``record-id`` add to a record in what ``max.message.bytes`` counts."""


def topic_warnings(admin: TopicAdmin, inputs: Iterable[str], outputs: Mapping[str, int]) -> list[str]:
    """Return a warning for each dangerous setting of an external topic.

    :param inputs: topics that spouts read. Only the topic, and no setting of a consumer, limits the size to which a compressed record unpacks.
    :param outputs: topic -> size of the largest record that a component sends there, in bytes.
    """
    inputs, found = sorted(set(inputs)), []
    settings = admin.configs([*inputs, *outputs])
    for topic in inputs:
        config = settings.get(topic, {})
        most = int(config.get("max.message.bytes", 0))
        if config.get("compression.type", "uncompressed") != "uncompressed":
            found.append(
                f"topic {topic!r} accepts compressed records, and a few KB of those may unpack to hundreds of MB, more than Spark can hold; "
                f"given: compression.type={config['compression.type']}; hint: set compression.type=uncompressed on the topic, so that "
                "max.message.bytes limits the unpacked size, unless all who write to it are trusted"
            )
        elif most > _INPUT_BYTES:
            found.append(
                f"topic {topic!r} accepts records that are too large for Spark and the executors; given: max.message.bytes={most}; "
                f"expected at most {_INPUT_BYTES}"
            )
    for topic, limit in sorted(outputs.items()):
        limit += _BATCH_BYTES
        most = int(settings.get(topic, {}).get("max.message.bytes", limit))
        if most < limit:
            found.append(
                f"topic {topic!r} refuses records that the topology may send there, and then the sender cannot continue; given: "
                f"max.message.bytes={most}; expected at least {limit}; hint: raise it, or lower topology.emulator.record.max.bytes"
            )
    return found
