"""What the verbs of the command line share: types of arguments, common options, where to talk to."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from typing import Any

from dskype.deploy.machine.cluster import Target

__all__ = [
    "Ignored",
    "UsageError",
    "common",
    "conf_item",
    "counted",
    "executor",
    "file_conf",
    "from_environment",
    "output",
    "pair",
    "plain",
    "port",
    "positive",
    "positive_seconds",
    "say",
    "seconds",
    "split",
    "target",
]


_FROM_ENVIRONMENT = re.compile(r"\$\{ENV-([^{}\s]+)\}")


class UsageError(Exception):
    """The arguments make no sense."""


def conf_item(text: str) -> tuple[str, Any]:
    """Read ``key=JSON``; what is no JSON is a string, as in Storm."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"expected key=JSON, given: {text!r}")
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
    return key.strip(), _resolved(key.strip(), parsed)


def _resolved(key: str, value: Any) -> Any:
    """Return the value of an option with ``${ENV-NAME}`` replaced; a secret that stands in the command line itself is told."""
    from dskype.topology.redaction import redact  # imported late, as all of the topology's

    if redact({key: value}) != {key: value} and not _FROM_ENVIRONMENT.search(str(value)):
        say(
            f"warning: the value of {key} is a secret, and whoever may run 'ps' here can read it; hint: {key}='${{ENV-NAME}}' takes it from the "
            "environment variable NAME, --config FILE from a file"
        )
    return from_environment(value)


def from_environment(value: Any) -> Any:
    """Replace ``${ENV-NAME}``, wherever it is the whole of a text, by the environment variable of that name.

    :raises argparse.ArgumentTypeError: there is no such variable.
    """
    if isinstance(value, dict):
        return {k: from_environment(v) for k, v in value.items()}
    if isinstance(value, list):
        return [from_environment(v) for v in value]
    found = _FROM_ENVIRONMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    if found[1] not in os.environ:
        raise argparse.ArgumentTypeError(f"expected an environment variable of this name, given: {found[1]!r}")
    return os.environ[found[1]]


def pair(text: str) -> tuple[str, str]:
    """Read ``key=value``; the value may be a secret and is never quoted."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"expected key=value, given: {key if equals else text!r}")
    return key.strip(), str(_resolved(key.strip(), value))


def executor(text: str) -> tuple[str, int]:
    """Read ``component=N``."""
    component, equals, count = text.rpartition("=")
    if not equals or not component or not count.strip().isdecimal() or int(count) < 1:
        raise argparse.ArgumentTypeError(f"Number of executors must be greater than 0; expected component=N, given: {text!r}")
    return component, int(count)


def seconds(text: str) -> float:
    """Read seconds, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds, 0 or more, given: {text!r}")
    return int(value) if value == int(value) else value


def positive(text: str) -> int:
    """Read an integer from 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer greater than 0, given: {text!r}")
    return int(text)


def port(text: str) -> int:
    """Read the number of a port; 0 is a free one."""
    if not text.strip().isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, given: {text!r}")
    return int(text)


def positive_seconds(text: str) -> float:
    """Read seconds, more than 0."""
    value = seconds(text)
    if not value:
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0, given: {text!r}")
    return value


class Ignored(argparse.Action):
    """An option of Storm that has no meaning here: accepted, and said so."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        namespace.ignored = [*(getattr(namespace, "ignored", None) or []), option_string]


def common(kafka: bool = True) -> argparse.ArgumentParser:
    """Return the parent parser of every verb; ``kafka``: with the options that name a cluster."""
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("common options")
    group.add_argument("--config", metavar="FILE", help="YAML file with configuration, below the topology's own")
    group.add_argument(
        "-c", dest="conf", metavar="KEY=JSON", type=conf_item, action="append", default=[], help="one configuration key, above all others; repeatable"
    )
    group.add_argument("--verbose", action="store_true", help="show tracebacks and log lines")
    if kafka:
        group.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="Kafka brokers; default: $DSKYPE_BOOTSTRAP_SERVERS")
        group.add_argument(
            "--kafka",
            metavar="KEY=VALUE",
            type=pair,
            action="append",
            default=[],
            help="a setting of the Kafka clients, e.g. security.protocol=SSL; repeatable",
        )
    return parent


def output(parser: argparse.ArgumentParser) -> None:
    """Add ``-o text|json``."""
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")


_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def plain(text: str) -> str:
    """Return a text with what steers a terminal, or turns the direction of writing, as ``u001b`` behind a backslash.

    Ids, words and errors may hold anything. Line feeds and tabs stay; JSON stays the same JSON.
    """
    return _STEERING.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def say(text: str) -> None:
    """Print a line that is no result."""
    print(plain(text), file=sys.stderr, flush=True)


def counted(n: int, what: str) -> str:
    """Return a number with its noun: ``1 message``, ``2,000 messages``."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def file_conf(args: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration of ``--config``."""
    if not args.config:
        return {}
    from dskype.topology.flux import FluxException
    from dskype.topology.flux.loader import read_yaml

    data = read_yaml(args.config)
    if data is not None and not isinstance(data, dict):
        raise FluxException(f"{args.config} must be a map of configuration keys. given: a {type(data).__name__}")
    try:
        return from_environment(data or {})
    except argparse.ArgumentTypeError as error:
        raise FluxException(f"{args.config}: {error}") from None


def split(conf: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a configuration into the topology's and that of Spark and Kafka, which may hold secrets."""
    below = {k: v for k, v in conf.items() if isinstance(k, str) and k.startswith(("spark.", "kafka."))}
    return {k: v for k, v in conf.items() if k not in below}, below


def target(args: argparse.Namespace, conf: dict[str, Any] | None = None) -> Target:
    """Return the cluster that the options name, ``conf`` lying between ``--config`` and ``-c``."""
    settings = split({**file_conf(args), **(conf or {}), **dict(args.conf)})[1]
    settings.update({k if k.startswith("kafka.") else f"kafka.{k}": v for k, v in args.kafka})
    return Target(args.bootstrap_servers, getattr(args, "master", None), settings)
