"""Reads an executor's records from Kafka, for components with the continuous transport."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from dskype.topology.config import RECORD_BYTES
from dskype.topology.core.loss import LostInputError
from dskype.topology.errors import TopologyError, explain
from dskype.topology.runtime.kafka import KafkaSettings
from dskype.topology.runtime.librdkafka import connection_settings, log_error
from dskype.topology.tuples import InRecord

__all__ = ["BEGINNING", "READER_OPTIONS", "ReadError", "RecordReader"]

log = logging.getLogger(__name__)

BEGINNING: int = OFFSET_BEGINNING
"""In place of an offset: the first record that the log has. The one with the offset 0 may be gone."""
READER_OPTIONS = frozenset({"check.crcs", "isolation.level"})
"""Options of a Kafka spout that a reader can take over."""
_LIST_S = 2.0
_STALL_S, _LONGEST_STALL_S = 5.0, 20.0
"""If no record has come for this time, another client tries to read; less often while there are none."""
_TRIAL_S = 3.0
"""How long it tries."""
_LATE_S = 0.1
"""How much later than the other client the first one may have a record."""
_LEAST_WAIT_S = 0.001
"""librdkafka counts in milliseconds: a shorter wait would be none, and who asks again at once would use up a core."""
_SETTINGS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_uncommitted",  # as Spark's source and the readers of other transports; librdkafka's default is another one
    # A broker answers as soon as there is a record; without any, it is asked every two seconds.
    "fetch.wait.max.ms": 2000,
    "fetch.min.bytes": 1,
    "fetch.max.bytes": 8 * RECORD_BYTES,
    "max.partition.fetch.bytes": 2 * RECORD_BYTES,
    "receive.message.max.bytes": 8 * RECORD_BYTES + (1 << 20),
    # What is read ahead for a busy executor, per partition; behind it, reading continues soon after there is room.
    "queued.max.messages.kbytes": 16 << 10,
    "fetch.queue.backoff.ms": 5,
    "fetch.error.backoff.ms": 50,
}


class ReadError(TopologyError):
    """The brokers refuse to give records."""


class RecordReader:
    """Reads partitions from given offsets on, ahead of its caller.

    Not for use by more than one thread, nor in a fork of the process that made it.

    :param kafka: the brokers.
    :param group: a consumer group that this account may read. It is not joined, because partitions are assigned and positions are kept by the
        caller, but librdkafka looks for its coordinator.
    :param positions: (topic, partition) -> first offset.
    :param options: further settings of librdkafka.
    """

    def __init__(self, kafka: KafkaSettings, group: str, positions: Mapping[tuple[str, int], int], options: Mapping[str, Any] | None = None) -> None:
        self._kafka, self._settings = kafka, {**_SETTINGS, "group.id": group, **(options or {})}
        self._first = dict(positions)  # where the client began
        self._consumer = self._open(self._first)
        self._other: Consumer | None = None  # tries to read what the first one may have missed
        self._patience_s = _STALL_S
        self._look_s = time.monotonic() + _STALL_S  # when the trial begins, or ends

    def _open(self, positions: Mapping[tuple[str, int], int]) -> Consumer:
        with connection_settings(self._kafka) as settings:
            consumer = Consumer({**settings, **self._settings, "error_cb": self._note_trouble})
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()])
        return consumer

    def _note_trouble(self, error: KafkaError) -> None:
        log_error(error)
        if self._other is None:
            self._patience_s = _STALL_S
            self._look_s = min(self._look_s, time.monotonic() + _STALL_S)  # errors that go on must not put the look off

    def read(self, wait_s: float, most: int) -> list[InRecord]:
        """Return the records that have arrived, those of a partition in order; wait for the first one at most this long.

        After restarts of a broker, librdkafka sometimes stops reading for good, without an error. So, when nothing comes for some seconds, another client
        reads from the same offsets on. If it gets a record before the first one does, it takes its place.

        :param most: most records to return.
        :raises LostInputError: the log does not have the next record.
        :raises ReadError: the brokers refuse, for example because the topic is gone.
        """
        if 0 < wait_s < _LEAST_WAIT_S:
            time.sleep(wait_s)
            wait_s = 0.0
        first = self._consumer.poll(wait_s)
        if first is None and (first := self._look_for_stall()) is None:
            return []
        messages = [first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first]
        records = [_in_record(message) for message in messages if message.error() is None or _checked(message)]
        if records:
            self._end_trial()
            self._patience_s = _STALL_S
            self._look_s = time.monotonic() + _STALL_S
        return records

    def _look_for_stall(self) -> Message | None:
        """Let another client try to read if it is time; return the record with which it takes the place of the first one."""
        late = time.monotonic() >= self._look_s
        if self._other is None:
            if late:
                read = {(p.topic, p.partition): p.offset for p in self._consumer.position([TopicPartition(*where) for where in self._first])}
                self._first = {where: max(first, read.get(where, first)) for where, first in self._first.items()}
                self._other = self._open(self._first)
                self._look_s = time.monotonic() + _TRIAL_S
            return None
        found = self._other.poll(0)
        if found is not None and found.error() is None:
            own = self._consumer.poll(_LATE_S)
            if own is not None and (own.error() is None or _checked(own)):
                return own
            log.warning("Kafka has records of %s/%s but gives none; a new client continues", found.topic(), found.partition())
            self._consumer, self._other = self._other, self._consumer
            return found
        if late:
            self._end_trial()
            self._patience_s = min(2 * self._patience_s, _LONGEST_STALL_S)
            self._look_s = time.monotonic() + self._patience_s
        return None

    def _end_trial(self) -> None:
        """Close the client that does not read for this executor, if there is one, in a thread of its own, because it may be stuck."""
        if self._other is not None:
            threading.Thread(target=self._other.close, daemon=True, name="close a reader").start()
            self._other = None

    def add(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Read further partitions as well.

        :param positions: (topic, partition) -> first offset, or :data:`BEGINNING`.
        """
        self._first |= positions
        self._end_trial()
        self._consumer.incremental_assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()])

    def topics(self) -> dict[str, int]:
        """Return the topics that the brokers have, and how many partitions each has; {} if they do not answer soon."""
        try:
            found = self._consumer.list_topics(timeout=_LIST_S).topics
        except KafkaException as error:
            log.warning("the topics cannot be listed: %s", error)
            return {}
        return {topic: len(metadata.partitions) for topic, metadata in found.items() if metadata.error is None}


def _in_record(message: Any) -> InRecord:
    return InRecord(
        message.topic(), message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value(), list(message.headers() or ())
    )


def _checked(message: Any) -> bool:
    """Raise the error that came in place of a record; return False if it is one that passes by itself."""
    error = message.error()
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise LostInputError(
            f"the log of {message.topic()}/{message.partition()} does not have the next record: {error.str()}",
            hint="the topic was deleted and created again, a broker has lost the end of it, or its retention is too short",
        )
    if error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
        return False
    raise ReadError(explain("Kafka does not give records.", given=f"{message.topic()}/{message.partition()}: {error.str()}"))
