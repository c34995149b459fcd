"""Which client of Kafka a producer is of."""

from __future__ import annotations

import logging

from dskype.topology.runtime.kafka.connections import Connection
from dskype.topology.runtime.kafka.librdkafka import UnsupportedOptionError
from dskype.topology.runtime.kafka.librdkafka_producer import LibrdkafkaProducer
from dskype.topology.runtime.kafka.record_producer import KafkaPythonProducer, RecordProducer

__all__ = ["make_producer"]

log = logging.getLogger(__name__)


def make_producer(kafka: Connection, delivery_timeout_s: float, linger_ms: float = 0, *, forked: bool = False) -> RecordProducer:
    """Return a producer: of librdkafka, or of kafka-python where librdkafka cannot follow a connection setting.

    :param forked: the process is a fork of one that uses librdkafka, which then must not be used.
    """
    if not forked:
        try:
            return LibrdkafkaProducer(kafka, delivery_timeout_s, linger_ms)
        except UnsupportedOptionError as error:
            log.info("a producer of kafka-python is used: %s", error)
    return KafkaPythonProducer(kafka, delivery_timeout_s, linger_ms)
