"""Writes what an executor has to release to Kafka itself, for components with continuous queries."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any, cast

from confluent_kafka import KafkaError, Producer

from dskype.topology.config import RECORD_BYTES
from dskype.topology.core.frames import NUDGE, OutRecord, OutRecords, expand_records
from dskype.topology.errors import TopologyError, explain
from dskype.topology.runtime.kafka import KafkaSettings
from dskype.topology.runtime.tls import TlsSettings, text_as_file

__all__ = ["DeliveryError", "RecordWriter", "UnsupportedOptionError", "producer_settings"]

log = logging.getLogger(__name__)

_WAIT_S = 0.2
"""Signals are handled between two waits of this length."""

_SETTINGS = {
    # Frames of a channel stay in order when a request fails: a receiver drops a frame that comes before an earlier one.
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 0,
    # A broker that is away is waited for, however long.
    "message.timeout.ms": 0,
    "message.max.bytes": 2 * RECORD_BYTES,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1 << 20,
    "partitioner": "murmur2_random",  # the partitions that Java's clients choose
    "log.connection.close": False,
}
_TRANSLATED = {
    "client_id": "client.id",
    "client_dns_lookup": "client.dns.lookup",
    "retry_backoff_ms": "retry.backoff.ms",
    "reconnect_backoff_ms": "reconnect.backoff.ms",
    "reconnect_backoff_max_ms": "reconnect.backoff.max.ms",
    "metadata_max_age_ms": "metadata.max.age.ms",
    "connections_max_idle_ms": "connections.max.idle.ms",
    "receive_buffer_bytes": "socket.receive.buffer.bytes",
    "send_buffer_bytes": "socket.send.buffer.bytes",
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
}
"""Argument of kafka-python -> setting of librdkafka."""


class DeliveryError(TopologyError):
    """The brokers have refused a record."""


class UnsupportedOptionError(TopologyError):
    """A connection setting that librdkafka does not have."""


@contextlib.contextmanager
def producer_settings(kafka: KafkaSettings) -> Iterator[dict[str, Any]]:
    """Yield the settings of a librdkafka producer for these brokers; files that they name exist until the end of the block.

    :raises UnsupportedOptionError: a setting cannot be kept.
    """
    settings = _SETTINGS | {"bootstrap.servers": kafka.bootstrap_servers}
    if kafka.client.get("sasl_mechanism") == "GSSAPI":
        raise UnsupportedOptionError(explain("Executors that write to Kafka themselves cannot use Kerberos.", given="kafka.sasl.mechanism GSSAPI"))
    settings |= {_TRANSLATED[key]: value for key, value in kafka.client.items() if key in _TRANSLATED}
    with contextlib.ExitStack() as files:
        if (context := kafka.client.get("ssl_context")) is not None:
            settings |= _tls_settings(context.settings, files)
        yield settings


def _tls_settings(tls: TlsSettings, files: contextlib.ExitStack) -> dict[str, Any]:
    if "TLSv1.2" not in tls.versions:
        raise UnsupportedOptionError(
            explain(
                "Executors that write to Kafka themselves cannot insist on a version of TLS.", given=f"kafka.ssl.enabled.protocols {','.join(tls.versions)}"
            )
        )
    settings: dict[str, Any] = {"ssl.endpoint.identification.algorithm": "https" if tls.check_hostname else "none"}
    if tls.ca_file is not None or tls.ca is not None:
        settings["ssl.ca.location"] = tls.ca_file or files.enter_context(text_as_file(tls.ca or ""))
    if tls.own_file is not None or tls.own is not None:
        own = tls.own_file or files.enter_context(text_as_file(tls.own or ""))
        settings |= {"ssl.certificate.location": own, "ssl.key.location": own}
    if tls.key_password:
        settings["ssl.key.password"] = tls.key_password
    return settings


class RecordWriter:
    """Writes records in order, and waits until the brokers have them.

    Not for use by more than one thread, nor in a fork of the process that made it.

    :param kafka: the brokers.
    :param nudged: inboxes that continuous queries read.
    """

    def __init__(self, kafka: KafkaSettings, nudged: Collection[str] = ()) -> None:
        self._nudged = frozenset(nudged)
        self._refused: KafkaError | None = None
        with producer_settings(kafka) as settings:
            self._producer = Producer(settings | {"on_delivery": self._delivered, "error_cb": _log_error, "logger": log})

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._refused = self._refused or error

    def write(self, records: Iterable[OutRecord | OutRecords]) -> None:
        """Begin to write records; to be followed by :meth:`flush`."""
        frames: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for record in expand_records(records):
            if record.partition is not None and record.key is None and not record.headers:
                frames[record.topic, record.partition].append({"value": record.value})
            else:
                self._write_one(record)
        for (topic, partition), messages in frames.items():
            if topic in self._nudged:
                messages.append({"value": NUDGE})
            if (n := self._producer.produce_batch(topic, messages, partition)) != len(messages):
                msg = explain("The queue of records to Kafka is full.", given=f"{len(messages) - n} of {len(messages)} records for {topic}/{partition}")
                raise DeliveryError(msg)

    def _write_one(self, record: OutRecord) -> None:
        where: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, headers=cast("Any", record.headers or []), **where)
                return
            except BufferError:  # the queue is full
                self._producer.poll(_WAIT_S)

    def wait(self, seconds: float) -> None:
        """Process the acknowledgements that have arrived; wait for the others at most this long."""
        self._producer.flush(seconds)

    def flush(self) -> None:
        """Wait until the brokers have every record.

        :raises DeliveryError: they have refused one.
        """
        while self._producer.flush(_WAIT_S):
            pass
        if self._refused is not None:
            raise DeliveryError(explain("Kafka has not accepted a record.", given=self._refused.str()))


def _log_error(error: KafkaError) -> None:
    log.warning("Kafka: %s", error.str())
