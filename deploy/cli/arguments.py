"""What the commands share: types of arguments, common options, and the cluster that the options name."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from dskype.deploy.machine.cluster import Target
from dskype.deploy.machine.terminal import say

__all__ = [
    "SERVICE_FOLDER",
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
    "integer",
    "json_value",
    "layers",
    "number",
    "offline_settings",
    "open_client",
    "output",
    "pair",
    "port",
    "positive",
    "positive_seconds",
    "seconds",
    "serving",
    "share",
    "split",
    "target",
    "without_options",
]

SERVICE_FOLDER = "$XDG_DATA_HOME/dskype, else ~/.local/share/dskype"
"""What ``paths.service_dir()`` is, as --help says it."""

_FROM_ENVIRONMENT = re.compile(r"\$\{ENV-([^{}\s]+)\}")


class UsageError(Exception):
    """The arguments contradict each other, or one is missing."""


def conf_item(text: str) -> tuple[str, Any]:
    """Parse ``key=JSON``; a value that is not JSON is a string, as in Storm."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"expected key=JSON, given: {text!r}")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = value
    return key.strip(), _resolved(key.strip(), parsed)


def degrees(what: str, unit: str = "in degrees") -> Callable[[str], list[float]]:
    """Return a type of argument: numbers in degrees, separated by commas, as many as ``what`` names, such as ``LAT,LON``.

    :param unit: what an error says of the numbers.
    """

    def read(text: str) -> list[float]:
        try:
            values = [float(part) for part in text.split(",")]
        except ValueError:
            values = []
        if len(values) != what.count(",") + 1:
            raise argparse.ArgumentTypeError(f"expected {what} {unit}, given: {text!r}")
        return values

    return read


def _resolved(key: str, value: Any) -> Any:
    """Replace ``${ENV-NAME}`` in the value of an option, and warn of a secret that is on the command line itself."""
    from dskype.topology.core.redaction import redact  # imported late, like everything of the topology's: it would slow down --help

    if redact({key: value}) != {key: value} and not _FROM_ENVIRONMENT.search(str(value)):
        say(
            f"warning: the value of {key} is a secret, and everyone who can run 'ps' here can read it; hint: {key}='${{ENV-NAME}}' takes it from the "
            "environment variable NAME, --config FILE from a file"
        )
    return from_environment(value)


def from_environment(value: Any) -> Any:
    """Replace every string that is exactly ``${ENV-NAME}`` by the environment variable NAME, in lists and maps as well.

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
    """Parse ``key=value``. The value may be a secret, so no error quotes it."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"expected key=value, given: {key if equals else text!r}")
    return key.strip(), str(_resolved(key.strip(), value))


def executor(text: str) -> tuple[str, int]:
    """Parse ``component=N``."""
    component, equals, count = text.rpartition("=")
    if not equals or not component or not count.strip().isdecimal() or int(count) < 1:
        raise argparse.ArgumentTypeError(f"Number of executors must be greater than 0; expected component=N, given: {text!r}")
    return component, int(count)


def integer(expected: str, least: int = 0, most: float = math.inf) -> Callable[[str], int]:
    """Return a type of argument: an integer from ``least`` to ``most``.

    :param expected: what an error says was expected.
    """

    def parse(text: str) -> int:
        if not text.strip().isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected {expected}, given: {text!r}")
        return int(text)

    return parse


def serving(parser: argparse.ArgumentParser, default_port: int, reading: str) -> None:
    """Add the options of a command that serves readers over HTTP.

    :param default_port: the port without an option.
    :param reading: what protects reading: ``reading needs no password``.
    """
    parser.add_argument("--port", metavar="N", type=port, default=default_port, help=f"0: a free one, printed; default: {default_port}")
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="default: 127.0.0.1, this machine only")
    parser.add_argument("--allow-remote", action="store_true", help=f"allow a --host that other machines can reach; {reading}")
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a further name of the server in URLs; repeatable. On 0.0.0.0 it goes by any name without this",
    )
    words = "change what those who read may use, for example streams=100; repeatable, and in $DSKYPE_LIMITS. SECURITY.md lists the names"
    parser.add_argument("--limit", metavar="NAME=N", action="append", default=[], help=words)


def number(expected: str, *, zero: bool = False, most: float = math.inf) -> Callable[[str], float]:
    """Return a type of argument: a finite number above 0, up to ``most``; whole ones are ``int``.

    :param expected: what an error says was expected.
    :param zero: 0 is allowed.
    """

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (0 < value < math.inf or (zero and value == 0)) or value > most:
            raise argparse.ArgumentTypeError(f"expected {expected}, given: {text!r}")
        return int(value) if value == int(value) else value

    return parse


positive = integer("an integer greater than 0", 1)
port = integer("a port from 0 to 65535", 0, 65535)
seconds = number("seconds, 0 or more", zero=True)
positive_seconds = number("seconds, more than 0")
share = number("a share from 0 to 1", zero=True, most=1)


def json_value(text: str) -> Any:
    """Parse JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise argparse.ArgumentTypeError(f"expected JSON, given: {text!r}") from None


class LazyParser(argparse.ArgumentParser):
    """A parser that adds its arguments when it is first used, so commands that are not called cost no time.

    :param fill: adds the arguments; called once, with this parser.
    """

    def __init__(self, *args: Any, fill: Callable[[argparse.ArgumentParser], None] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._fill = fill
        self._commands: Any = None
        # argparse takes "-88" for a value and "-88,42" for an option; latitudes and longitudes are often both.
        self._negative_number_matcher = re.compile(r"-[\d.]")

    def fill(self) -> None:
        """Add the arguments unless that is done."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the arguments, then parse."""
        self.fill()
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        """Add the arguments, then return the help."""
        self.fill()
        return super().format_help()

    def choices(self) -> dict[str, LazyParser]:
        """Return the commands, or the actions of a command, by name."""
        self.fill()
        return {} if self._commands is None else self._commands.choices

    def add_subparsers(self, **options: Any) -> Any:
        """Add commands, and remember them."""
        self._commands = super().add_subparsers(**options)
        return self._commands


class Actions:
    """The actions of a command, as in ``dskype sub add``. The command without an action prints its help and fails."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        def run(_: argparse.Namespace) -> int:
            parser.print_help(sys.stderr)
            return 2

        parser.set_defaults(run=run)
        self._actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", parser_class=LazyParser)

    def add(self, name: str, run: Callable[[argparse.Namespace], int], text: str, fill: Callable[[argparse.ArgumentParser], None]) -> None:
        """Add an action.

        :param run: executes it and returns the exit code.
        :param text: one line of help.
        :param fill: adds its arguments.
        """
        parser = self._actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False, fill=fill)
        parser.set_defaults(run=run)


def without_options(words: Sequence[str], add: Callable[[argparse.ArgumentParser], None]) -> list[str]:
    """Return the words of a command line without the options that ``add`` adds to a parser, and without their values."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add(parser)
    return parser.parse_known_args(list(words))[1]


class Ignored(argparse.Action):
    """An option of Storm that has no meaning here. It is accepted, and ``main`` prints a note about it."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        namespace.ignored = [*(getattr(namespace, "ignored", None) or []), option_string]


def common(parser: argparse.ArgumentParser, kafka: bool = True) -> None:
    """Add the options of every command.

    :param kafka: also add those that name a cluster.
    """
    group = parser.add_argument_group("common options")
    _config_option(group)
    group.add_argument(
        "-c", dest="conf", metavar="KEY=JSON", type=conf_item, action="append", default=[], help="one configuration key, above all others; repeatable"
    )
    group.add_argument("--verbose", action="store_true", help="show tracebacks and log lines")
    if kafka:
        group.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="Kafka brokers; default: $DSKYPE_BOOTSTRAP_SERVERS")
        _kafka_option(group)


def running_cluster(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options of a command that may use a cluster which runs already.

    :param what: what ``--bootstrap-servers`` means to it.
    """
    group = parser.add_argument_group("on brokers that run already")
    group.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help=what)
    _config_option(group)
    _kafka_option(group)
    parser.set_defaults(conf=[])


def _config_option(group: Any) -> None:
    given = os.environ.get("DSKYPE_CONFIG") or None
    group.add_argument("--config", metavar="FILE", default=given, help="YAML file with configuration, below the topology's own; default: $DSKYPE_CONFIG")


def _kafka_option(group: Any) -> None:
    said = "a setting of the Kafka clients, e.g. security.protocol=SSL; repeatable"
    group.add_argument("--kafka", metavar="KEY=VALUE", type=pair, action="append", default=[], help=said)


def output(parser: argparse.ArgumentParser) -> None:
    """Add ``-o text|json``."""
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")


def file_conf(args: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration in the file of ``--config``; {} without one."""
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
    """Split a configuration into the topology's part, and the part for Spark and Kafka, which may hold secrets."""
    below = {k: v for k, v in conf.items() if isinstance(k, str) and k.startswith(("spark.", "kafka."))}
    return {k: v for k, v in conf.items() if k not in below}, below


def target(args: argparse.Namespace, conf: dict[str, Any] | None = None) -> Target:
    """Return the cluster that the options name.

    :param conf: more configuration, which overrides ``--config`` and is overridden by ``-c``.
    """
    settings = split({**file_conf(args), **(conf or {}), **dict(args.conf)})[1]
    settings.update({k if k.startswith("kafka.") else f"kafka.{k}": v for k, v in args.kafka})
    return Target(args.bootstrap_servers, getattr(args, "master", None), settings)


def client_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that talks to a topology of DSkype, the common ones included."""
    common(parser)
    group = parser.add_argument_group("options of publish/subscribe")
    group.add_argument("-t", "--topology", metavar="NAME", default="dskype", help="the topology, whose topics are called NAME....; default: dskype")
    group.add_argument("--timeout", metavar="SECS", type=positive_seconds, default=30, help="how long the brokers may take to answer a request; default: 30")


def check_options(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the configuration to check records by."""
    parser.add_argument(
        "--file", metavar="YAML", dest="topology_file", help="check by the config of this topology file; default: the running topology's, else the defaults"
    )


def layers(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]:
    """Return the configurations of ``--config``, of ``--file`` (None without it) and of ``-c``; later ones override earlier ones."""
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


def offline_settings(args: argparse.Namespace) -> Any:
    """Return the :class:`~dskype.spouts.settings.Settings` that the options give, whatever topology runs."""
    from dskype.spouts.settings import Settings

    below, conf, above = layers(args)
    return Settings.from_conf({**below, **(conf or {}), **above})


_PATIENCE_S = 3600
"""How long a command that sends many records waits for brokers that are away: it says so meanwhile, and nothing of what it has sent is lost."""


def open_client(args: argparse.Namespace, offline: bool = False, *, patient: bool = False) -> Any:
    """Return a client of the topology that the options name; it checks records by that topology's configuration, or by that of ``--file``.

    :param offline: if no cluster is named, return a client that can only check.
    :param patient: records that were sent wait for brokers that are away.
    """
    from dskype.deploy.client.pubsub import PubSub
    from dskype.deploy.machine import cluster, connection
    from dskype.topology.runtime.kafka.clients import KafkaSettings

    below, conf, above = layers(args)
    where = target(args)
    if offline and connection.resolve_bootstrap(where.bootstrap_servers).embedded:
        return PubSub(KafkaSettings(""), args.topology, conf={**below, **(conf or {}), **above})
    kafka = cluster.reach(where)
    if conf is None and (below or above):
        conf = PubSub(kafka, args.topology, timeout_s=args.timeout).running_conf() or {}
    conf = None if conf is None else {**below, **conf, **above}
    return PubSub(kafka, args.topology, conf=conf, timeout_s=args.timeout, patience_s=_PATIENCE_S if patient else None)
