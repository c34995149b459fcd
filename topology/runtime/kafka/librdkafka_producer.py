"""The producer of librdkafka; see :mod:`~dskype.topology.runtime.kafka.record_producer`."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaException
from kafka.errors import KafkaConnectionError, KafkaError, UnknownTopicOrPartitionError, for_code
from kafka.errors import KafkaTimeoutError as ClientTimeoutError

from dskype.topology.config import RECORD_BYTES
from dskype.topology.runtime.kafka.connections import Connection
from dskype.topology.runtime.kafka.librdkafka import connection_settings, log_error
from dskype.topology.runtime.kafka.record_producer import BUFFER_BYTES, GRACE_S, TOO_LATE, Delivery, Headers, RecordProducer, Stored

__all__ = ["LibrdkafkaProducer"]

log = logging.getLogger(__name__)

_POLL_S = 0.2
_REPLACED_AFTER = 2
"""A client is replaced when none of its records was stored for so many times its delivery timeout, in case it is the client that has stopped, and not the brokers."""

_SETTINGS = {
    # Without it, a request that is sent again may write its records twice: published messages, or a command.
    "enable.idempotence": True,
    "acks": "all",
    "allow.auto.create.topics": False,
    "message.max.bytes": 2 * RECORD_BYTES,
    "queue.buffering.max.kbytes": BUFFER_BYTES >> 10,
    "partitioner": "murmur2_random",  # the partitions that Java's clients and kafka-python choose
}
_TIMEOUTS = frozenset({confluent_kafka.KafkaError._MSG_TIMED_OUT, confluent_kafka.KafkaError._TIMED_OUT})
_PURGED = frozenset({confluent_kafka.KafkaError._PURGE_QUEUE, confluent_kafka.KafkaError._PURGE_INFLIGHT})
_UNKNOWN = frozenset({confluent_kafka.KafkaError._UNKNOWN_TOPIC, confluent_kafka.KafkaError._UNKNOWN_PARTITION})


_OF_PARENTS: list[_Served] = []
"""Clients in a fork that belong to its parent. They stay, because the end of one would wait for threads that the fork does not have."""


class _Served:
    """A client of librdkafka, and the thread in which it tells what has become of records."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.made_s, self.ended = time.monotonic(), False
        self.client = confluent_kafka.Producer({**settings, "error_cb": self._note_error})
        self._pid, self._stop = os.getpid(), threading.Event()
        self._thread = threading.Thread(target=self._serve, name="producer", daemon=True)
        self._thread.start()

    def _note_error(self, error: confluent_kafka.KafkaError) -> None:
        log_error(error)
        self.ended = self.ended or error.fatal()

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                self.client.poll(_POLL_S)
            except Exception:  # of a callback; the outcomes of other records must come
                log.exception("the outcome of a record could not be noted")
        # Here, and not when garbage is collected: that may be in a fork, which would crash. (The client refers to this object.)
        del self.client

    def give_up(self) -> None:
        """Give up all records that wait, and end."""
        if self._pid != os.getpid():
            _OF_PARENTS.append(self)
            return
        self.client.purge()
        self.client.flush(_POLL_S)
        self._stop.set()
        if threading.current_thread() is not self._thread:
            # Not for ever: garbage may be collected in a thread that holds a lock for which this one waits, such as that of a log.
            self._thread.join(GRACE_S)


class LibrdkafkaProducer(RecordProducer):
    """An idempotent client of librdkafka, replaced by another one when it has ended."""

    def __init__(self, kafka: Connection, delivery_timeout_s: float, linger_ms: float) -> None:
        super().__init__(delivery_timeout_s)
        self._kafka = kafka
        self._settings = _SETTINGS | {"message.timeout.ms": int(1000 * self._timeout_s), "linger.ms": linger_ms}
        self._replacing = threading.Lock()
        self._open()

    def _open(self) -> None:
        with connection_settings(self._kafka) as settings:
            try:
                self._served = _Served(settings | self._settings)
            except KafkaException as error:
                raise _as_error(error.args[0]) from None
        self._release = weakref.finalize(self, self._served.give_up)  # also of a producer that nobody has closed

    def _working(self) -> confluent_kafka.Producer:
        """Return the client; another one in its place if it has ended, or has stored nothing for long."""
        give_up = None
        with self._replacing:
            served, patience_s = self._served, _REPLACED_AFTER * self._timeout_s + GRACE_S
            if served.ended or min(self.silent_s, time.monotonic() - served.made_s) > patience_s:
                log.warning("a client of Kafka has stored nothing for %.0f s; another one continues", self.silent_s)
                give_up = self._release
                self._open()
            client = self._served.client
        if give_up is not None:
            give_up()
        return client

    def _begin(self, delivery: Delivery, topic: str, value: bytes | None, key: bytes | None, headers: Headers | None, partition: int | None) -> None:
        def note(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is None:
                self._end(delivery, Stored(topic, cast("int", message.partition()), cast("int", message.offset()), message.timestamp()[1]))
            else:
                self._end(delivery, _as_error(error))

        where: dict[str, Any] = {} if partition is None else {"partition": partition}
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._working().produce(topic, value, key, on_delivery=note, headers=list(headers or ()), **where)
                return
            except BufferError:  # until there is room
                if time.monotonic() > deadline:
                    raise ClientTimeoutError("too many records wait for the brokers") from None
                time.sleep(_POLL_S / 10)
            except KafkaException as error:
                self._served.ended = error.args[0].fatal()
                if not self._served.ended:
                    raise _as_error(error.args[0]) from None


def _as_error(error: confluent_kafka.KafkaError) -> KafkaError:
    """Return the error of kafka-python that says the same."""
    code, text = error.code(), error.str()
    if code in _TIMEOUTS:
        return TOO_LATE()
    if code in _UNKNOWN:
        return UnknownTopicOrPartitionError(text)
    if code in _PURGED:
        return KafkaError("the producer was closed before the brokers had taken the record")
    if code == confluent_kafka.KafkaError._TRANSPORT:
        return KafkaConnectionError(text)
    return for_code(code)(text) if code > 0 else KafkaError(f"{error.name()}: {text}")
