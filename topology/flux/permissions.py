"""What a Flux file may not do unless whoever runs it allows it by name: start commands, and choose settings that load code or lead elsewhere.

A file may come from a stranger, so without a permission it can do no more than its topology: use classes of the registry, read and write topics with the
rights of the account, and use time and space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dskype.topology.components import KafkaSpout
from dskype.topology.config import Config
from dskype.topology.errors import explain
from dskype.topology.flux.errors import FluxException
from dskype.topology.model import StormTopology
from dskype.topology.multilang import ShellBolt, ShellSpout

__all__ = ["HARMLESS_SETTINGS", "check_settings", "check_topology", "refuse_commands"]

HARMLESS_SETTINGS = frozenset(
    {
        *(f"spark.driver.{name}" for name in ("cores", "maxResultSize", "memory", "memoryOverhead", "memoryOverheadFactor")),
        *(f"spark.executor.{name}" for name in ("cores", "heartbeatInterval", "instances", "memory", "memoryOverhead", "memoryOverheadFactor")),
        *(f"spark.memory.{name}" for name in ("fraction", "offHeap.enabled", "offHeap.size", "storageFraction")),
        "spark.cores.max",
        "spark.default.parallelism",
        "spark.executor.pyspark.memory",
        "spark.locality.wait",
        "spark.network.timeout",
        "spark.task.cpus",
        *(f"kafka.fetch.{name}" for name in ("max.bytes", "max.wait.ms", "min.bytes")),
        *(f"kafka.reconnect.backoff.{name}" for name in ("max.ms", "ms")),
        "kafka.batch.size",
        "kafka.buffer.memory",
        "kafka.client.id",
        "kafka.compression.type",
        "kafka.connections.max.idle.ms",
        "kafka.delivery.timeout.ms",
        "kafka.heartbeat.interval.ms",
        "kafka.linger.ms",
        "kafka.max.partition.fetch.bytes",
        "kafka.max.poll.interval.ms",
        "kafka.max.poll.records",
        "kafka.max.request.size",
        "kafka.metadata.max.age.ms",
        "kafka.receive.buffer.bytes",
        "kafka.request.timeout.ms",
        "kafka.retries",
        "kafka.retry.backoff.ms",
        "kafka.send.buffer.bytes",
        "kafka.session.timeout.ms",
    }
)
"""Settings of Spark and Kafka that a file may make: sizes, counts and times. The others load classes and files, start plug-ins, set the environment of executors,
weaken the connection or lead it elsewhere, or may do so in a later version."""

_SIMPLE = re.compile(r"[\w.-]{1,64}", re.ASCII)
_OF_SPOUTS = frozenset({"auto.offset.reset", "bootstrap.servers", "check.crcs", "enable.auto.commit", "group.id", "isolation.level"})
"""Further options of a Kafka spout, which are checked elsewhere: a spout reads from the brokers that carry the topology."""
_OF_CONNECTIONS = ("sasl.", "security.", "ssl.")
"""Options of a Kafka spout that are refused when the topology starts, for files and programs alike."""
_VARIABLE = "password.env"
"""The key of an environment variable whose value a component sends to the server that the file names."""


def check_topology(topology: StormTopology, allow_commands: bool) -> None:
    """Refuse a topology of a file's components if one of them starts a command, or chooses other options of Kafka than harmless ones.

    :raises FluxException: it says which component, and how to allow it.
    """
    for id, spec in topology.components.items():
        refuse_commands(type(spec.obj), f"component {id!r}", allow_commands)
        if isinstance(spec.obj, KafkaSpout):
            given = {f"kafka.{k}": v for k, v in spec.obj.kafka_options.items() if k not in _OF_SPOUTS and not k.startswith(_OF_CONNECTIONS)}
            _refuse(_harmful(given), f"Component {id}", "set it for all of Kafka's clients, with --config FILE or -c KEY=VALUE")


def refuse_commands(cls: type, where: str, allow_commands: bool) -> None:
    """Refuse a class that starts a command, unless that is allowed.

    :param where: the definition that names it, for messages.
    :raises FluxException: it is not allowed.
    """
    if issubclass(cls, (ShellBolt, ShellSpout)) and not allow_commands:
        raise FluxException(
            explain(
                f"A Flux file may start no command, and the class of {where} does.",
                given=cls.__name__,
                hint="if you trust the file, allow it with --allow-commands (allow_commands=True in load)",
            )
        )


def check_settings(conf: Mapping[Any, Any], where: str, *, environment: bool) -> None:
    """Refuse settings that a file may not make. Those of ``--config`` and ``-c`` come in another way and are not checked.

    :param conf: what the file sets.
    :param where: the file, or the component, for messages.
    :param environment: whether the file may read environment variables.
    :raises FluxException: there is such a setting; the message names it, without its value.
    """
    _refuse(_harmful(conf), where, "if it is yours, give it with --config FILE or -c KEY=VALUE (config= in load)")
    if not environment and (found := [str(key) for key, value in conf.items() if _reads_environment(value)]):
        raise FluxException(
            explain(f"{where} reads an environment variable.", given=f"{_VARIABLE} in {', '.join(found)}", hint="if you trust the file, allow it with -e")
        )


def _harmful(conf: Mapping[Any, Any]) -> list[str]:
    """Return the keys of Spark, Kafka and the state that a file may not set, or not to such a value."""
    found = []
    for key, value in conf.items():
        if key == Config.TOPOLOGY_EMULATOR_STATE_URL:
            found += [key] if value not in (None, "folder:", "kafka:") else []
        elif isinstance(key, str) and key.startswith(("spark.", "kafka.")):
            simple = value is None or (isinstance(value, (bool, int, float, str)) and _SIMPLE.fullmatch(str(value)) is not None)
            found += [] if simple and key in HARMLESS_SETTINGS else [key]
    return sorted(found)


def _refuse(keys: Iterable[str], where: str, hint: str) -> None:
    if given := ", ".join(keys):
        raise FluxException(
            explain(
                f"{where} makes a setting that a Flux file may not make: it may load code, or lead data elsewhere.",
                given=given,
                legal=f"{', '.join(sorted(HARMLESS_SETTINGS))}, with numbers or words",
                hint=hint,
            )
        )


def _reads_environment(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(key == _VARIABLE or _reads_environment(each) for key, each in value.items())
    return isinstance(value, (list, tuple)) and any(map(_reads_environment, value))
