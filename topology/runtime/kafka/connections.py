"""How to reach the brokers, for every client of Kafka: those of kafka-python, and those of librdkafka."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import KafkaError
from kafka.errors import KafkaTimeoutError

from dskype.topology.errors import TopologyError
from dskype.topology.runtime.kafka.tls import PortableContext, TlsSettings, pem_blocks, text_as_file

__all__ = ["FAILOVER_MS", "Connection", "UnsupportedOptionError", "connection_settings", "log_error", "reached"]

log = logging.getLogger(__name__)

Client = TypeVar("Client")

_LONGEST_RECONNECT_MS = 1000
FAILOVER_MS = 10_000
"""A request that has had no answer for so long is sent again, perhaps to another broker. A host that is lost does not say so, and the other
brokers take nine seconds (``broker.session.timeout.ms``) to replace it; the clients' own default is half a minute."""
_BOOTSTRAP_MS, _FIRST_ATTEMPT_MS = 30_000, 3_000
"""How long a new client may take to reach the brokers, which is kafka-python's default, and its first attempt where there are several addresses."""


@dataclass(frozen=True)
class Connection:
    """How to reach the brokers.

    :param bootstrap_servers: ``host:port,...``.
    :param options: ``kafka.*`` settings for Spark's source and sink, as given.
    :param client: those of them that concern the connection, as keyword arguments of kafka-python; can be pickled.
    """

    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def longest_reconnect_ms(self) -> int:
        """The longest wait before a broker is tried again, unless the user has set it: as in Java's clients, a broker that comes back is noticed soon."""
        return max(_LONGEST_RECONNECT_MS, self.client.get("reconnect_backoff_ms", 0))

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of kafka-python that say how to connect."""
        return {"bootstrap_servers": self.bootstrap_servers.split(","), "reconnect_backoff_max_ms": self.longest_reconnect_ms, **self.client}


def reached(make: Callable[..., Client], settings: dict[str, Any]) -> Client:
    """Return a client of kafka-python that has reached the brokers.

    Such a client asks one address, chosen at random, and gives it all its time. A broker that stands still accepts the connection and never answers. So there
    are several attempts, each of which takes twice as long as the one before.

    :raises KafkaError: no attempt has succeeded.
    """
    deadline, attempt_ms = time.monotonic() + settings.get("bootstrap_timeout_ms", _BOOTSTRAP_MS) / 1000, _FIRST_ATTEMPT_MS
    while len(settings["bootstrap_servers"]) > 1 and (deadline - time.monotonic()) * 1000 > attempt_ms:
        try:
            return make(**{**settings, "bootstrap_timeout_ms": attempt_ms})
        except KafkaTimeoutError as error:
            log.warning("no broker was reached within %d ms: %s; trying again", attempt_ms, error)
            attempt_ms *= 2
    return make(**{**settings, "bootstrap_timeout_ms": max(1, int((deadline - time.monotonic()) * 1000))})


# -- librdkafka -----------------------------------------------------------------------------------


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
_client_log = logging.getLogger(f"{__package__}.librdkafka")
_client_log.addFilter(_Seldom())

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
        "logger": _client_log,
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
    _client_log.warning("Kafka: %s", error.str())
