"""How a process connects to Kafka: the settings of the brokers, and the consumers, producers and admin clients that follow from them."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import Any

import kafka
from kafka import TopicPartition, codec
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaTimeoutError as ClientTimeoutError

from dskype.topology.config import RECORD_BYTES
from dskype.topology.errors import FatalError, TopologyError
from dskype.topology.runtime.kafka.connections import Connection, UnsupportedOptionError, reached
from dskype.topology.runtime.kafka.record_producer import KafkaPythonProducer, LibrdkafkaProducer, RecordProducer

__all__ = ["KafkaConsumer", "KafkaSettings", "KafkaTimeoutError", "brokers_answer", "check_codecs"]

log = logging.getLogger(__name__)


class KafkaTimeoutError(TopologyError):
    """Kafka did not answer in time; a later attempt may succeed."""

    retriable = True


class KafkaConsumer(kafka.KafkaConsumer):
    """A consumer of kafka-python that does not take a position that it could not find out for an answer."""

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record.

        :raises kafka.errors.KafkaTimeoutError: the brokers have not said it in time.
        """
        position = super().position(partition, timeout_ms)
        if position is None:
            raise ClientTimeoutError(f"the position in {partition.topic}/{partition.partition} is not known: the brokers do not answer")
        return position


def check_codecs() -> None:
    """Check that records can be unpacked, whatever they are packed with.

    :raises FatalError: a package is missing.
    """
    there = {"snappy": codec.has_snappy(), "lz4": codec.has_lz4(), "zstd": codec.has_zstd()}
    if missing := [name for name, found in there.items() if not found]:
        raise FatalError(
            "Compressed records cannot be read here.",
            given=f"no package for {', '.join(missing)}",
            hint="install dskype with all its packages: python-snappy, lz4, zstandard",
        )


class KafkaSettings(Connection):
    """How to reach the brokers, and the clients that do; see :class:`~dskype.topology.runtime.kafka.connections.Connection`."""

    def consumer(self, **arguments: Any) -> KafkaConsumer:
        """Return a consumer without a group; the caller assigns partitions and closes it.

        :raises FatalError: records that are packed in one of Kafka's ways could not be read.
        """
        check_codecs()
        settings = {
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 100,
            "max_partition_fetch_bytes": 2 * RECORD_BYTES,
            "fetch_max_bytes": 8 * RECORD_BYTES,
            "group_id": None,
        }
        return reached(KafkaConsumer, {**settings, **self.arguments(), **arguments})

    def producer(self, *, delivery_timeout_s: float = 30, linger_ms: float = 0, forked: bool = False) -> RecordProducer:
        """Return a producer, which waits for all replicas; the caller closes it. It is of kafka-python where librdkafka cannot follow a setting.

        :param delivery_timeout_s: a record that the brokers have not taken after so many seconds is given up.
        :param linger_ms: how long a record may wait for others that share its request.
        :param forked: the process is a fork of one that has clients of librdkafka, which then must not be used.
        """
        if not forked:
            try:
                return LibrdkafkaProducer(self, delivery_timeout_s, linger_ms)
            except UnsupportedOptionError as error:
                log.info("a producer of kafka-python is used: %s", error)
        return KafkaPythonProducer(self, delivery_timeout_s, linger_ms)

    def admin(self, **arguments: Any) -> KafkaAdminClient:
        """Return an admin client; the caller closes it."""
        return reached(KafkaAdminClient, {**self.arguments(), **arguments})


def brokers_answer(settings: KafkaSettings) -> bool:
    """Tell whether the brokers answer a request for their topics."""
    try:
        with closing(settings.admin()) as admin:
            admin.list_topics()
    except Exception:  # clients raise errors of many kinds
        return False
    return True
