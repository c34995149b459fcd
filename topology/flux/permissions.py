"""What a file may do only if its caller allows it: start programs, read environment variables, and set what loads code or leads elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dskype.topology.config import Config
from dskype.topology.flux.errors import FluxException
from dskype.topology.flux.registry import within
from dskype.topology.model import StormTopology

__all__ = ["check_options", "check_settings", "refuse_command", "refuse_variables"]

_NUMBERS = re.compile(
    r"kafka\.(?:acks|batch\.size|buffer\.memory|default\.api\.timeout\.ms|delivery\.timeout\.ms|linger\.ms|retries"
    r"|fetch\.(?:max|min)\.\w+|fetch\.max\.wait\.ms|(?:session|request)\.timeout\.ms|heartbeat\.interval\.ms|max\.[\w.]+|metadata\.max\.age\.ms"
    r"|connections\.max\.idle\.ms|(?:receive|send)\.buffer\.bytes|(?:reconnect|retry)\.backoff(?:\.max)?\.ms)"
    r"|spark\.(?:cores\.max|default\.parallelism|(?:driver|executor)\.(?:cores|memory|memoryOverhead)|driver\.maxResultSize|executor\.instances"
    r"|executor\.heartbeatInterval|executor\.pyspark\.memory|python\.worker\.memory|locality\.wait(?:\.\w+)?|memory\.(?:f|storageF)raction|network\.timeout"
    r"|rpc\.(?:askTimeout|message\.maxSize)|sql\.shuffle\.partitions|task\.(?:cpus|maxFailures))"
)
_NAMES = re.compile(r"kafka\.(?:client\.id|compression\.type)|spark\.app\.name")
"""Settings of Spark and Kafka that a file may have: none of them names code, a file or a host."""
_NUMBER = re.compile(r"all|-?\d{1,18}(?:\.\d{1,9})?(?:[kmgtp]?b?|[mu]?s|min|[hd])", re.I)
"""A number, with a unit of bytes or time; ``all`` is a number of acks."""
_NAME = re.compile(r"[\w.:/+@ -]{1,200}")
_STATES = ("folder:", "kafka:")

_OF_SPOUTS = re.compile(
    r"kafka\.(?:auto\.offset\.reset|bootstrap\.servers|check\.crcs|enable\.auto\.commit|group\.id|isolation\.level|(?:sasl|security|ssl)\..*)"
)
"""Further options that a Kafka spout in a file may have. The start of a topology refuses other brokers than its own, and security settings."""


def check_settings(in_file: Mapping[str, Any], trusted: Mapping[str, Any], component: str | None = None) -> None:
    """Refuse settings of a file that are not known to be harmless.

    :param in_file: those of the file.
    :param trusted: those of the caller, which the file may repeat.
    :param component: whose they are, if they are options of a spout.
    :raises FluxException: there are others.
    """
    strange = {key: value for key, value in in_file.items() if not _is_harmless(key, value) and trusted.get(key) != value}
    hint = "if you trust the file, move them to a file for --config, or give each with -c KEY=VALUE (trusted= in load)"
    if (url := strange.pop(Config.TOPOLOGY_EMULATOR_STATE_URL, None)) is not None:
        words = "A topology's file does not say where its state is written, because the state has its messages."
        raise FluxException(words, given=f"{Config.TOPOLOGY_EMULATOR_STATE_URL}: {url}", legal=", ".join(_STATES), hint=hint)
    if strange:
        raise FluxException(
            "Settings of Spark and Kafka in a topology's file must be harmless: others can load code or lead to other hosts.",
            given=sorted(strange),
            component=component,
            legal="sizes, times and counts, for example spark.executor.memory: 2g, kafka.linger.ms: 5",
            hint=hint,
        )


def check_options(topology: StormTopology, trusted: Mapping[str, Any]) -> None:
    """Refuse options of Kafka spouts that are not known to be harmless, as :func:`check_settings` does."""
    for id, spec in topology.components.items():
        options = {f"kafka.{key}": value for key, value in getattr(spec.obj, "kafka_options", {}).items()}
        check_settings({key: value for key, value in options.items() if not _OF_SPOUTS.fullmatch(key)}, trusted, id)


def _is_harmless(key: object, value: object) -> bool:
    if key == Config.TOPOLOGY_EMULATOR_STATE_URL:
        return value is None or value in _STATES
    if not isinstance(key, str) or not key.startswith(("spark.", "kafka.")):
        return True
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return False
    rules = ((_NUMBERS, _NUMBER), (_NAMES, _NAME))
    return any(keys.fullmatch(key) and values.fullmatch(str(value)) for keys, values in rules)


def refuse_variables(part: str, conf: Any) -> None:
    """Refuse a file's options that send an environment variable of its choice to a server of its choice, unless it may read the environment."""
    for key, value in conf.items():
        if key == "password.env":
            raise FluxException(f"{part} reads an environment variable.", given=f"{key}: {value}", hint="if you trust the file, allow it with -e")
        if isinstance(value, Mapping):
            refuse_variables(part, value)


def refuse_command(component: str, obj: object, allow_modules: tuple[str, ...]) -> None:
    """Refuse an object that starts a program, by its class: a file can set attributes of objects. Those of modules that the caller allows are the caller's."""
    if getattr(type(obj), "starts_processes", False) and not within(type(obj).__module__, allow_modules):
        raise FluxException(
            "A component of the file starts a program, which is not allowed.",
            given=getattr(obj, "command", type(obj).__name__),
            component=component,
            hint="if you trust the file, allow it with --allow-commands (allow_commands=True in load)",
        )
