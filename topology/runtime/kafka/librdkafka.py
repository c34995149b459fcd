"""Connections of librdkafka: how its clients in executors get the settings of every other client."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError

from dskype.topology.errors import TopologyError
from dskype.topology.runtime.kafka.connections import FAILOVER_MS, Connection
from dskype.topology.runtime.kafka.tls import PortableContext, TlsSettings, pem_blocks, text_as_file

__all__ = ["UnsupportedOptionError", "connection_settings", "log_error"]

log = logging.getLogger(__name__)


class _Seldom(logging.Filter):
    """Lets a text through once in ten seconds, whatever its numbers: a client that looks for brokers repeats itself several times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._next_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text, now_s = re.sub(r"\d+", "", record.getMessage()), time.monotonic()
        if now_s < self._next_s.get(text, 0.0):
            return False
        if len(self._next_s) >= _MOST_TEXTS:
            self._next_s.clear()
        self._next_s[text] = now_s + _SELDOM_S
        return True


_SELDOM_S, _MOST_TEXTS = 10.0, 1000
log.addFilter(_Seldom())

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
_WITHOUT_EFFECT = frozenset({"sasl_kerberos_service_name", "bootstrap_timeout_ms"})
"""The first one concerns Kerberos alone; a client of librdkafka is made without reaching the brokers."""
_LONGEST_REQUEST_MS = 300_000
"""The most that librdkafka accepts for ``socket.timeout.ms``."""


class UnsupportedOptionError(TopologyError):
    """A connection setting that librdkafka does not have."""


@contextlib.contextmanager
def connection_settings(kafka: Connection) -> Iterator[dict[str, Any]]:
    """Yield the settings with which a client of librdkafka reaches these brokers; files that they name exist until the end of the block.

    :raises UnsupportedOptionError: a setting cannot be kept.
    """
    settings: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "socket.nagle.disable": True,
        "log.connection.close": False,
        # A single broker that stood still may say for a moment that there are no brokers. A client that does not begin again with the bootstrap servers then asks nobody any more.
        "metadata.recovery.strategy": "rebootstrap",
        "reconnect.backoff.max.ms": kafka.longest_reconnect_ms,
        "socket.timeout.ms": FAILOVER_MS,
        "error_cb": log_error,
        "logger": log,
    }
    if kafka.client.get("sasl_mechanism") == "GSSAPI":
        raise UnsupportedOptionError("Executors that use Kafka themselves cannot use Kerberos.", given="kafka.sasl.mechanism GSSAPI")
    given = {key: value for key, value in kafka.client.items() if key not in _WITHOUT_EFFECT}
    context, request_timeout_ms = given.pop("ssl_context", None), given.pop("request_timeout_ms", None)
    if unknown := sorted(given.keys() - _TRANSLATED):
        raise UnsupportedOptionError(
            "Executors that use Kafka themselves cannot follow a connection setting.", given=", ".join(unknown), legal=", ".join(_TRANSLATED)
        )
    settings |= {_TRANSLATED[key]: value for key, value in given.items()}
    if request_timeout_ms is not None:
        settings["socket.timeout.ms"] = min(request_timeout_ms, _LONGEST_REQUEST_MS)
    with contextlib.ExitStack() as files:
        if context is not None:
            if not isinstance(context, PortableContext):
                raise UnsupportedOptionError("Clients of librdkafka cannot use a context of Python's own.", given="ssl_context")
            settings |= _tls_settings(context.settings, files)
        yield settings


def _tls_settings(tls: TlsSettings, files: contextlib.ExitStack) -> dict[str, Any]:
    if "TLSv1.2" not in tls.versions:
        raise UnsupportedOptionError(
            "Executors that use Kafka themselves cannot insist on a version of TLS.", given=f"kafka.ssl.enabled.protocols {','.join(tls.versions)}"
        )
    settings: dict[str, Any] = {"ssl.endpoint.identification.algorithm": "https" if tls.check_hostname else "none"}
    if tls.ca_file is not None or tls.ca is not None:
        settings["ssl.ca.location"] = tls.ca_file or files.enter_context(text_as_file(pem_blocks(tls.ca or "")))
    if tls.own_file is not None or tls.own is not None:
        own = tls.own_file or files.enter_context(text_as_file(pem_blocks(tls.own or "")))
        settings |= {"ssl.certificate.location": own, "ssl.key.location": own}
    if tls.key_password:
        settings["ssl.key.password"] = tls.key_password
    return settings


def log_error(error: KafkaError) -> None:
    """Write what librdkafka tells of brokers and connections to the log."""
    log.warning("Kafka: %s", error.str())
