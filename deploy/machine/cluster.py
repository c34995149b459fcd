"""The cluster that a command is for, and clients for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dskype.deploy.machine.terminal import say

if TYPE_CHECKING:
    from dskype.topology.runtime.kafka.clients import KafkaSettings
    from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient

__all__ = ["Target", "client", "kafka_settings", "reach"]


@dataclass(frozen=True)
class Target:
    """Where to run, or which cluster to use.

    :param bootstrap_servers: ``host:port,...``; None: ``DSKYPE_BOOTSTRAP_SERVERS``, else an embedded broker.
    :param master: Spark master URL; None: this machine.
    :param conf: ``spark.*`` and ``kafka.*`` settings, passed through unchanged. Never printed.
    """

    bootstrap_servers: str | None = None
    master: str | None = None
    conf: Mapping[str, Any] = field(default_factory=dict, repr=False)


def kafka_settings(target: Target) -> KafkaSettings:
    """Return the settings that reach the brokers of ``target``.

    :raises TopologyError: no cluster is named.
    """
    from dskype.deploy.machine import connection  # imported late, like the others below: every command names a cluster, few connect to one
    from dskype.topology.errors import TopologyError

    bootstrap = connection.resolve_bootstrap(target.bootstrap_servers)
    if bootstrap.embedded:
        raise TopologyError(
            "No cluster is named.",
            hint=f"use --bootstrap-servers host:port or set {connection.BOOTSTRAP_VARIABLE}; a topology of 'dskype local' "
            "without them has a broker of its own, which ends with it",
        )
    from dskype.topology.runtime.kafka.clients import KafkaSettings

    options = connection.kafka_options(target.conf)
    return KafkaSettings(bootstrap.servers, options, connection.client_arguments(options))


def reach(target: Target) -> KafkaSettings:
    """Return the settings that reach the brokers of ``target`` as soon as one of them answers.

    :raises TopologyError: no cluster is named.
    :raises BrokerError: no broker answers within ``DSKYPE_BROKER_WAIT_S``.
    """
    from dskype.deploy.machine import connection

    kafka = kafka_settings(target)
    connection.await_brokers(kafka.bootstrap_servers, say, tls=kafka.client.get("ssl_context"))
    return kafka


def client(target: Target) -> ClusterClient:
    """Return a client of the cluster at ``target`` as soon as a broker answers.

    :raises TopologyError: no cluster is named.
    :raises BrokerError: no broker answers within ``DSKYPE_BROKER_WAIT_S``.
    """
    from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient

    return ClusterClient(reach(target))
