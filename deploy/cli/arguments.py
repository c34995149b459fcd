"""What the commands share: kinds of arguments, common options, the cluster that is meant."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from dskype.deploy.machine.cluster import Target
from dskype.deploy.machine.terminal import say

__all__ = [
    "Actions",
    "Ignored",
    "LazyParser",
    "UsageError",
    "check_options",
    "client_options",
    "common",
    "conf_item",
    "degrees",
    "executor",
    "file_conf",
    "from_environment",
    "join_negative",
    "layers",
    "open_client",
    "output",
    "pair",
    "port",
    "positive",
    "positive_seconds",
    "seconds",
    "split",
    "target",
]


_NEGATIVE = re.compile(r"-[\d.]")
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


def degrees(what: str) -> Callable[[str], list[float]]:
    """Return what reads so many numbers with commas between them, e.g. for ``LAT,LON``."""

    def read(text: str) -> list[float]:
        try:
            values = [float(part) for part in text.split(",")]
        except ValueError:
            values = []
        if len(values) != what.count(",") + 1:
            raise argparse.ArgumentTypeError(f"expected {what} in degrees, given: {text!r}")
        return values

    return read


def _resolved(key: str, value: Any) -> Any:
    """Return the value of an option with ``${ENV-NAME}`` replaced; a secret that stands in the command line itself is told."""
    from dskype.topology.core.redaction import redact  # imported late, as all of the topology's

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


class LazyParser(argparse.ArgumentParser):
    """A parser that adds its arguments when it is first used: those of a command that is not called cost no time.

    :param fill: adds the arguments; called once, with this parser.
    """

    def __init__(self, *args: Any, fill: Callable[[argparse.ArgumentParser], None] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._fill = fill

    def fill(self) -> None:
        """Add the arguments unless they are there."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, with all arguments."""
        self.fill()
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        """Return the help, with all arguments."""
        self.fill()
        return super().format_help()

    def choices(self) -> dict[str, LazyParser]:
        """Return the commands, or the actions of a command, by name."""
        self.fill()
        return next((action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)), {})


class Actions:
    """The actions of a command, as in ``dskype sub add``; the command alone prints them and fails."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        def run(_: argparse.Namespace) -> int:
            parser.print_help(sys.stderr)
            return 2

        parser.set_defaults(act=run)
        self._actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", parser_class=LazyParser)

    def add(self, name: str, run: Callable[[argparse.Namespace], int], text: str, fill: Callable[[argparse.ArgumentParser], None]) -> None:
        """Add an action.

        :param run: does it, and returns the exit code.
        :param text: one line that explains it.
        :param fill: adds its arguments.
        """
        parser = self._actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False, fill=fill)
        parser.set_defaults(act=run)


class Ignored(argparse.Action):
    """An option of Storm that has no meaning here: accepted, and said so."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        namespace.ignored = [*(getattr(namespace, "ignored", None) or []), option_string]


def common(parser: argparse.ArgumentParser, kafka: bool = True) -> None:
    """Add the options of every command; ``kafka``: with those that name a cluster."""
    group = parser.add_argument_group("common options")
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


def join_negative(arguments: Sequence[str]) -> list[str]:
    """Let the values of ``--near`` and ``--bbox`` begin with a minus, as half of the world's do."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] in ("--near", "--bbox") and _NEGATIVE.match(argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def output(parser: argparse.ArgumentParser) -> None:
    """Add ``-o text|json``."""
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")


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


def client_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that talks to a topology of DSkype, the common ones included."""
    common(parser)
    group = parser.add_argument_group("options of publish/subscribe")
    group.add_argument("-t", "--topology", metavar="NAME", default="dskype", help="the topology, whose topics are called NAME....; default: dskype")
    group.add_argument("--timeout", metavar="SECS", type=positive_seconds, default=30, help="how long the brokers may take; default: 30")


def check_options(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the configuration to check records by."""
    parser.add_argument(
        "--file", metavar="YAML", dest="topology_file", help="check by the config of this topology file; default: the running topology's, else the defaults"
    )


def layers(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]:
    """Return the configurations of ``--config``, of ``--file`` (None without it) and of ``-c``: each lies above the one before it."""
    below, above = split(file_conf(args))[0], split(dict(args.conf))[0]
    file = getattr(args, "topology_file", None)
    if file is None:
        return below, None, above
    from dskype.topology.flux import FluxException
    from dskype.topology.flux.loader import read_yaml

    data = read_yaml(file)
    conf = data.get("config", {}) if isinstance(data, dict) else data
    if not isinstance(conf, dict):
        raise FluxException(f"{file} must be a topology file with a map 'config'. given: a {type(conf).__name__}")
    return below, split(conf)[0], above


def open_client(args: argparse.Namespace, offline: bool = False) -> Any:
    """Return the client that the options ask for; it checks by the running topology's configuration, or that of ``--file``.

    :param offline: without a named cluster, return one that can only check.
    """
    from dskype.deploy.client.pubsub import PubSub
    from dskype.deploy.machine import cluster, connection
    from dskype.topology.runtime.kafka import KafkaSettings

    below, conf, above = layers(args)
    where = target(args)
    if offline and connection.resolve_bootstrap(where.bootstrap_servers).embedded:
        return PubSub(KafkaSettings(""), args.topology, conf={**below, **(conf or {}), **above})
    kafka = cluster.kafka_settings(where)
    if conf is None and (below or above):
        conf = PubSub(kafka, args.topology, timeout_s=args.timeout).running_conf() or {}
    return PubSub(kafka, args.topology, conf=None if conf is None else {**below, **conf, **above}, timeout_s=args.timeout)
