"""Producers for everything but an executor's own records: the driver, its commands and reports, stores, clients and tools.

They are made by :meth:`~dskype.topology.runtime.kafka.clients.KafkaSettings.producer`. Every record gets an outcome within a bounded time: its place in the log, or an error. Errors are
those of kafka-python, whatever client is used, so that whoever uses a consumer or an admin client as well has one kind of error to handle.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, cast

import confluent_kafka
from confluent_kafka import KafkaError as LibrdkafkaError
from confluent_kafka import KafkaException
from kafka import KafkaProducer
from kafka.errors import KafkaConnectionError, KafkaError, RequestTimedOutError, UnknownTopicOrPartitionError, for_code
from kafka.errors import KafkaTimeoutError as ClientTimeoutError

from dskype.topology.config import RECORD_BYTES
from dskype.topology.runtime.kafka.connections import FAILOVER_MS, Connection, connection_settings, log_error, reached

__all__ = ["PRODUCER_SETTINGS", "Delivery", "KafkaPythonProducer", "LibrdkafkaProducer", "RecordProducer", "Stored"]

log = logging.getLogger(__name__)

_GRACE_S = 5.0
"""How much later than its limit the outcome of a record may come: librdkafka looks for expired records once a second."""
_LEAST_TIMEOUT_S = 0.1
_BUFFER_BYTES, _MOST_WAITING = 64 << 20, 10_000
"""What may be on its way at a time: with librdkafka, and with kafka-python."""
_TOO_LATE = partial(ClientTimeoutError, "the brokers have not taken the record in time")
Headers = Sequence[tuple[str, bytes]]


class Stored(NamedTuple):
    """Where a record is, and its time.

    :ivar timestamp: epoch milliseconds.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class Delivery(Future[Stored]):
    """What becomes of a record: it is done when the brokers have the record, or when it is given up.

    :param limit_s: seconds after which the record has an outcome.
    """

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self._limit_s = limit_s
        self.set_running_or_notify_cancel()  # a record cannot be taken back

    def get(self, timeout: float | None = None) -> Stored:
        """Wait for the record's place.

        :param timeout: seconds; default: until there is an outcome.
        :raises KafkaError: the brokers have refused the record, or have not taken it in time.
        """
        try:
            return self.result(self._limit_s if timeout is None else timeout)
        except TimeoutError:
            raise ClientTimeoutError("no answer about the record has come yet") from None

    def failed(self) -> bool:
        """Tell whether the record was given up."""
        return self.done() and self.exception() is not None


class RecordProducer(AbstractContextManager["RecordProducer", None]):
    """Sends records in the background. Threads may share it; a fork of the process may not use it.

    :param delivery_timeout_s: a record that the brokers have not taken after so many seconds is given up.
    """

    def __init__(self, delivery_timeout_s: float) -> None:
        self._timeout_s = max(delivery_timeout_s, _LEAST_TIMEOUT_S)
        self._changed = threading.Condition()
        self._waiting = self._lost = 0  # records without an outcome; given up since the last one that was stored
        self._error: KafkaError | None = None  # the first one since the last flush
        self._silent_since_s: float | None = None
        self._closed = False

    def send(
        self, topic: str, value: bytes | None = None, *, key: bytes | None = None, headers: Headers | None = None, partition: int | None = None
    ) -> Delivery:
        """Begin to write a record, and return what becomes of it. It waits while many records are on their way, and never raises an error of Kafka."""
        delivery = Delivery(self._timeout_s + _GRACE_S)
        with self._changed:
            self._waiting += 1
            if self._silent_since_s is None:
                self._silent_since_s = time.monotonic()
        try:
            if self._closed:
                raise KafkaError("the producer is closed")
            self._begin(delivery, topic, value, key, headers, partition)
        except KafkaError as error:
            self._end(delivery, error)
        return delivery

    @abstractmethod
    def _begin(self, delivery: Delivery, topic: str, value: bytes | None, key: bytes | None, headers: Headers | None, partition: int | None) -> None:
        """Give a record to the client.

        :raises KafkaError: it does not take the record.
        """

    def _end(self, delivery: Delivery, outcome: Stored | KafkaError) -> None:
        """Note what has become of a record."""
        with self._changed:
            self._waiting -= 1
            if isinstance(outcome, Stored):
                lost, self._lost, self._silent_since_s = self._lost, 0, None
            else:
                lost, self._lost, self._error = self._lost, self._lost + 1, self._error or outcome
            self._changed.notify_all()
        if not isinstance(outcome, Stored):
            if not lost:
                log.warning("a record did not reach Kafka: %s", outcome)
            delivery.set_exception(outcome)
            return
        if lost > 1:
            log.warning("Kafka takes records again; %d did not reach it", lost)
        delivery.set_result(outcome)

    @property
    def silent_s(self) -> float:
        """For how many seconds records have been sent and none was stored; 0.0 if one was since."""
        since_s = self._silent_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record has an outcome.

        :param timeout: seconds; default: as long as that takes at most.
        :raises KafkaError: a record was given up since the last call, or has no outcome yet.
        """
        with self._changed:
            done = self._changed.wait_for(lambda: not self._waiting, self._timeout_s + _GRACE_S if timeout is None else timeout)
            error, self._error = self._error, None
        if error is not None:
            raise error
        if not done:
            raise ClientTimeoutError(f"{self._waiting} records have not reached Kafka yet")

    def close(self, timeout: float | None = None) -> None:
        """Wait until every record has an outcome, and close the connections.

        :param timeout: seconds, after which the records that are left are given up; default: as long as it takes at most.
        """
        if self._closed:
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, self._timeout_s + _GRACE_S if timeout is None else timeout)
            left, self._closed = self._waiting, True
        if left:
            log.warning("%d records are given up, because their producer is closed", left)
        self._release()

    _release: Callable[[], Any]
    """Close the connections; every record that is left gets its outcome."""

    def __exit__(self, *exc: object) -> None:
        self.close()


class KafkaPythonProducer(RecordProducer):
    """The client of kafka-python, without idempotence: with it, this client never goes on after a record was given up that had been sent (kafka-python 3.0.12).

    One request at a time keeps the order. One that is sent again may write its records twice.
    """

    def __init__(self, kafka: Connection, delivery_timeout_s: float, linger_ms: float) -> None:
        super().__init__(delivery_timeout_s)
        limit_ms = int(1000 * self._timeout_s)
        settings = {
            **kafka.arguments(),
            "acks": "all",
            "enable_idempotence": False,
            "max_in_flight_requests_per_connection": 1,
            "allow_auto_create_topics": False,
            "max_request_size": 2 * RECORD_BYTES,
            "linger_ms": linger_ms,
            "max_block_ms": limit_ms,
            "delivery_timeout_ms": limit_ms,
        }
        # A record is given up later than a request.
        settings["request_timeout_ms"] = int(max(1, min(kafka.client.get("request_timeout_ms", FAILOVER_MS), limit_ms - linger_ms)))
        self._client = reached(KafkaProducer, settings)

    def _begin(self, delivery: Delivery, topic: str, value: bytes | None, key: bytes | None, headers: Headers | None, partition: int | None) -> None:
        with self._changed:  # this client has no limit of its own
            if not self._changed.wait_for(lambda: self._waiting <= _MOST_WAITING, self._timeout_s):
                raise ClientTimeoutError("too many records wait for the brokers")
        future = self._client.send(topic, value=value, key=key, headers=list(headers or ()), partition=partition)
        future.add_callback(lambda found: self._end(delivery, Stored(topic, found.partition, found.offset, found.timestamp)))
        future.add_errback(lambda error: self._end(delivery, _TOO_LATE() if isinstance(error, RequestTimedOutError) else error))

    def _release(self) -> None:
        try:
            self._client.close(timeout=_GRACE_S)
        except KafkaError as error:
            log.warning("a producer was closed before everything was sent: %s", error)


_POLL_S = 0.2
_REPLACED_AFTER = 2
"""A client is replaced when none of its records was stored for so many times its delivery timeout, in case it is the client that has stopped, and not the brokers."""

PRODUCER_SETTINGS = {
    # Without it, a request that is sent again may write its records twice: published messages, or a command. And frames of a channel would not stay in order when a request
    # fails: a receiver drops a frame that comes before an earlier one.
    "enable.idempotence": True,
    "acks": "all",
    "message.max.bytes": 2 * RECORD_BYTES,
    "partitioner": "murmur2_random",  # the partitions that Java's clients and kafka-python choose
}
"""Settings of every producer of librdkafka."""
_SETTINGS = {**PRODUCER_SETTINGS, "allow.auto.create.topics": False, "queue.buffering.max.kbytes": _BUFFER_BYTES >> 10}

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

    def _note_error(self, error: LibrdkafkaError) -> None:
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
            self._thread.join(_GRACE_S)


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
            served, patience_s = self._served, _REPLACED_AFTER * self._timeout_s + _GRACE_S
            if served.ended or min(self.silent_s, time.monotonic() - served.made_s) > patience_s:
                log.warning("a client of Kafka has stored nothing for %.0f s; another one continues", self.silent_s)
                give_up = self._release
                self._open()
            client = self._served.client
        if give_up is not None:
            give_up()
        return client

    def _begin(self, delivery: Delivery, topic: str, value: bytes | None, key: bytes | None, headers: Headers | None, partition: int | None) -> None:
        def note(error: LibrdkafkaError | None, message: confluent_kafka.Message) -> None:
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


def _as_error(error: LibrdkafkaError) -> KafkaError:
    """Return the error of kafka-python that says the same."""
    code, text = error.code(), error.str()
    if code in (LibrdkafkaError._MSG_TIMED_OUT, LibrdkafkaError._TIMED_OUT):
        return _TOO_LATE()
    if code in (LibrdkafkaError._UNKNOWN_TOPIC, LibrdkafkaError._UNKNOWN_PARTITION):
        return UnknownTopicOrPartitionError(text)
    if code in (LibrdkafkaError._PURGE_QUEUE, LibrdkafkaError._PURGE_INFLIGHT):
        return KafkaError("the producer was closed before the brokers had taken the record")
    if code == LibrdkafkaError._TRANSPORT:
        return KafkaConnectionError(text)
    return for_code(code)(text) if code > 0 else KafkaError(f"{error.name()}: {text}")
