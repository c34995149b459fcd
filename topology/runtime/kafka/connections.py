"""How to reach the brokers, for every client of Kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafka.errors import KafkaTimeoutError

__all__ = ["FAILOVER_MS", "Connection", "reached"]

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
