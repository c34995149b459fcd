"""Producers for everything but an executor's own records: the driver, its commands and reports, stores, clients and tools.

They are made by :meth:`~dskype.topology.runtime.kafka.clients.KafkaSettings.producer`. Every record gets an outcome within a bounded time: its place in the log, or an error. Errors are
those of kafka-python, whatever client is used, so that whoever uses a consumer or an admin client as well has one kind of error to handle.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from kafka import KafkaProducer
from kafka.errors import KafkaError, RequestTimedOutError
from kafka.errors import KafkaTimeoutError as ClientTimeoutError

from dskype.topology.config import RECORD_BYTES
from dskype.topology.runtime.kafka.connections import FAILOVER_MS, Connection, reached

__all__ = ["BUFFER_BYTES", "GRACE_S", "TOO_LATE", "Delivery", "Headers", "KafkaPythonProducer", "RecordProducer", "Stored"]

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""How much later than its limit the outcome of a record may come: librdkafka looks for expired records once a second."""
_LEAST_TIMEOUT_S = 0.1
BUFFER_BYTES, _MOST_WAITING = 64 << 20, 10_000
"""What may be on its way at a time: with librdkafka, and with kafka-python."""
TOO_LATE = partial(ClientTimeoutError, "the brokers have not taken the record in time")
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
        delivery = Delivery(self._timeout_s + GRACE_S)
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
            done = self._changed.wait_for(lambda: not self._waiting, self._timeout_s + GRACE_S if timeout is None else timeout)
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
            self._changed.wait_for(lambda: not self._waiting, self._timeout_s + GRACE_S if timeout is None else timeout)
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
        self._release = self._end_client

    def _begin(self, delivery: Delivery, topic: str, value: bytes | None, key: bytes | None, headers: Headers | None, partition: int | None) -> None:
        with self._changed:  # this client has no limit of its own
            if not self._changed.wait_for(lambda: self._waiting <= _MOST_WAITING, self._timeout_s):
                raise ClientTimeoutError("too many records wait for the brokers")
        future = self._client.send(topic, value=value, key=key, headers=list(headers or ()), partition=partition)
        future.add_callback(lambda found: self._end(delivery, Stored(topic, found.partition, found.offset, found.timestamp)))
        future.add_errback(lambda error: self._end(delivery, TOO_LATE() if isinstance(error, RequestTimedOutError) else error))

    def _end_client(self) -> None:
        try:
            self._client.close(timeout=GRACE_S)
        except KafkaError as error:
            log.warning("a producer was closed before everything was sent: %s", error)
