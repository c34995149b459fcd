"""Writes what an executor has to release to Kafka, for components with real-time queries."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import errors as kafka_python

from dskype.topology.core.frames import OutRecord, OutRecords, expand_records
from dskype.topology.errors import TopologyError, explain
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.connections import UnsupportedOptionError, connection_settings
from dskype.topology.runtime.kafka.record_producer import PRODUCER_SETTINGS, Delivery, KafkaPythonProducer

__all__ = ["DeliveryError", "PlainRecordWriter", "RecordWriter", "StalledWriterError", "make_writer"]

log = logging.getLogger(__name__)

_WAIT_S = 0.2
"""Signals are handled between two waits of this length."""
_STALL_S, _ANSWER_S = 8.0, 2.0
"""If no record has been taken for so long, brokers are asked whether they are there; they have so long to answer. When they have answered twice, the client counts as stopped:
after more time than a request waits for a broker that stands still, and another attempt for its successor."""

_PLAIN_LIMIT_S = 60.0
"""A client of kafka-python gives a record up after so long; its executor ends then, and the next one writes it again."""

_SETTINGS = {
    **PRODUCER_SETTINGS,
    # Whoever writes waits for it at once, which ends this time: the records of one batch go out in large requests, and alone they are not late.
    "linger.ms": 5,
    "delivery.report.only.error": True,  # a call into Python for each record would cost half as much as writing it
    # A broker that is away is waited for, however long.
    "message.timeout.ms": 0,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1 << 20,
}


class DeliveryError(TopologyError):
    """The brokers have refused a record."""


class StalledWriterError(DeliveryError):
    """The brokers take no record although they answer: the client has stopped, or too few replicas are in sync."""

    retriable = True  # replicas come back, and the next executor has a client of its own


class RecordWriter:
    """Writes records in order, and waits until the brokers have them.

    Not for use by more than one thread, nor in a fork of the process that made it.

    :param give_up_s: records that wait longer for the brokers are not written any more; None: they wait however long.
    """

    def __init__(self, kafka: KafkaSettings, give_up_s: float | None = None) -> None:
        self._refused: KafkaError | None = None
        self._kafka = kafka
        with connection_settings(kafka) as settings:
            limit = {} if give_up_s is None else {"message.timeout.ms": int(1000 * give_up_s)}
            self._producer = Producer(_SETTINGS | settings | limit | {"on_delivery": self._delivered})

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._refused = self._refused or error

    def write(self, records: Iterable[OutRecord | OutRecords]) -> None:
        """Begin to write records; :meth:`flush` tells what has become of them."""
        frames: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for record in records:
            if isinstance(record, OutRecords):
                self._write_columns(record)
            elif record.partition is not None and record.key is None and not record.headers:
                frames[record.topic, record.partition].append({"value": record.value})
            else:
                self._write_one(record)
        for (topic, partition), messages in frames.items():
            if (n := self._producer.produce_batch(topic, messages, partition)) != len(messages):
                raise DeliveryError("The queue of records to Kafka is full.", given=f"{len(messages) - n} of {len(messages)} records for {topic}/{partition}")

    def _write_columns(self, records: OutRecords) -> None:
        produce, topic = self._producer.produce, records.topic
        for key, value, headers in records.rows():
            try:
                produce(topic, value, key, headers=cast("Any", headers))
            except BufferError:
                self._write_one(OutRecord(topic, None, key, value, headers))

    def _write_one(self, record: OutRecord) -> None:
        where: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, headers=cast("Any", record.headers or []), **where)
                return
            except BufferError:  # the queue is full
                self._producer.poll(_WAIT_S)

    def flush(self) -> None:
        """Wait until the brokers have every record.

        :raises DeliveryError: they have refused one.
        :raises StalledWriterError: they take none, although they answered twice, some time apart; or a record has waited too long.
        """
        before, since, answers = -1, 0.0, 0
        while (left := self._producer.flush(_WAIT_S)) > 0:
            now = time.monotonic()
            if left != before:
                before, since, answers = left, now, 0
            elif now - since >= _STALL_S:
                answers = answers + 1 if self._brokers_answer() else 0
                if answers == 2:
                    raise StalledWriterError(
                        "Kafka has not accepted records, although it answers.",
                        given=f"{left} records that wait",
                        hint="a partition may have fewer replicas in sync than min.insync.replicas asks for",
                    )
                since = now
        if self._refused is not None and self._refused.code() == KafkaError._MSG_TIMED_OUT:
            raise StalledWriterError("Kafka has not accepted a record in time.", given=self._refused.str())
        if self._refused is not None:
            raise DeliveryError("Kafka has not accepted a record.", given=self._refused.str())

    def _brokers_answer(self) -> bool:
        """Ask the brokers with a client of its own, for the other one may reach nobody."""
        try:
            with connection_settings(self._kafka) as settings:
                Producer(settings).list_topics(timeout=_ANSWER_S)
        except KafkaException:
            return False
        return True


class PlainRecordWriter:
    """The same with kafka-python, where librdkafka does not have a setting of the connection, such as Kerberos.

    It has no idempotence: a request that is sent again may write its records twice. Receivers drop a frame that they have; records that leave have equal ids.
    """

    def __init__(self, kafka: KafkaSettings, give_up_s: float | None = None) -> None:
        self._producer = KafkaPythonProducer(kafka, _PLAIN_LIMIT_S if give_up_s is None else give_up_s, linger_ms=0)
        self._sent: list[Delivery] = []

    def write(self, records: Iterable[OutRecord | OutRecords]) -> None:
        """Begin to write records; :meth:`flush` tells what has become of them."""
        self._sent += [self._producer.send(r.topic, r.value, key=r.key, headers=r.headers, partition=r.partition) for r in expand_records(records)]

    def flush(self) -> None:
        """Wait until the brokers have every record.

        :raises DeliveryError: they have refused one.
        :raises StalledWriterError: one has waited too long.
        """
        sent, self._sent = self._sent, []
        try:
            for delivery in sent:
                delivery.get()
        except kafka_python.KafkaError as error:
            kind = StalledWriterError if isinstance(error, kafka_python.KafkaTimeoutError) else DeliveryError
            raise kind(explain("Kafka has not accepted a record.", given=str(error))) from error


def make_writer(kafka: KafkaSettings, give_up_s: float | None) -> RecordWriter | PlainRecordWriter:
    """Return a writer: of librdkafka, or of kafka-python where librdkafka cannot follow a setting of the connection."""
    try:
        return RecordWriter(kafka, give_up_s)
    except UnsupportedOptionError as error:
        log.info("records are written with kafka-python: %s", error)
        return PlainRecordWriter(kafka, give_up_s)
