"""The command line ``dskype``: Storm's commands with Flux's options, and commands for publish/subscribe.

Exit codes: 0 success; 1 refused or failed, with a text on standard error; 2 unknown command or option, or malformed value; 130 Ctrl-C.
Results go to standard output, everything else to standard error.

A command is a module with ``add_arguments(parser)`` and ``run(args)``, which returns the exit code. A module whose ``add_arguments`` declares
:class:`~dskype.deploy.cli.arguments.Actions` needs no ``run``. Modules are imported only when their command is called, so ``dskype --help``
reads nothing but the table below.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dskype.deploy.cli.arguments import LazyParser, UsageError, common
from dskype.deploy.machine.terminal import say

__all__ = ["COMMANDS", "Command", "main"]


class Command(NamedTuple):
    """A command, as ``dskype --help`` lists it.

    :ivar name: the word on the command line.
    :ivar text: one line that says what it does.
    :ivar module: the module with ``add_arguments`` and ``run``; default: the one of that name in ``cli/commands``.
    :ivar aliases: other names for it.
    :ivar extra: the extra of the package without which it cannot work; it brings ``spark``.
    """

    name: str
    text: str
    module: str = ""
    aliases: tuple[str, ...] = ()
    extra: str = ""

    @property
    def title(self) -> str:
        """The name with its aliases."""
        return " ".join([self.name, *(f"({alias})" for alias in self.aliases)])

    def load(self) -> Any:
        """Import the module."""
        return importlib.import_module(self.module or f"dskype.deploy.cli.commands.{self.name.replace('-', '_')}")


_ACTIVATE, _CONFVALUE = "dskype.deploy.cli.commands.activate", "dskype.deploy.cli.commands.confvalue"

COMMANDS = {
    "publish and subscribe": (
        Command("sub", "add, list, show or remove subscriptions"),
        Command("inspect", "guess how the records of a file or a topic become messages"),
        Command("publish", "publish the messages of a file"),
        Command("search", "ask once what the window has: the best messages, or those that match"),
        Command("tail", "follow the results"),
        Command("dead-letters", "print what a topology could not process, and why"),
        Command("webhooks", "deliver results to URLs, until Ctrl-C"),
        Command("backup", "keep subscriptions, plan and window of a topology in a file"),
        Command("restore", "give a new topology what a backup has kept"),
        Command("explain", "say why a message does or does not match or rank", extra="spark"),
        Command("vocabulary", "build a vocabulary from a sample of messages, or look into one", extra="spark"),
        Command("partition", "learn, show and change how subscriptions are distributed", extra="spark"),
        Command("plan", "say what subscriptions and messages need in hosts, brokers and memory"),
        Command("bench", "run a benchmark", module="dskype.deploy.lab.command", extra="bench"),
        Command("verify", "compare what a topology published with a plain computation", extra="spark"),
        Command("demo", "publish and subscribe on the world's places, live", module="dskype.deploy.demo.command", extra="demo"),
    ),
    "broker and topology as a service": (
        Command("up", "start a broker, a topology and its metrics, and keep them running", extra="spark"),
        Command("status", "say what 'up' runs, and whether it gets on", extra="spark"),
        Command("down", "stop what 'up' runs, and keep its data", extra="spark"),
    ),
    "topologies": (
        Command("local", "run a topology on this machine for a while", extra="spark"),
        Command("submit", "run a topology on a cluster until it is killed", aliases=("jar",), extra="spark"),
        Command("quickstart", "begin a project in streamparse's layout"),
        Command("list", "list the topologies"),
        Command("activate", "switch a topology's spouts on", module=_ACTIVATE),
        Command("deactivate", "switch a topology's spouts off", module=_ACTIVATE),
        Command("rebalance", "change a topology's workers and executors; its tasks stay"),
        Command("kill", "end topologies"),
        Command("get-errors", "print the newest error of each component as JSON"),
        Command("monitor", "print a component's throughput at intervals"),
        Command("stats", "measure what a topology moves, costs and waits for"),
        Command("advise", "watch a topology, and say what to change and why"),
        Command("metrics", "serve measurements to Prometheus, until Ctrl-C"),
        Command("ui", "serve web pages and Storm's REST API, until Ctrl-C", extra="ui"),
    ),
    "this machine": (
        Command("localconfvalue", "print a configuration value of this machine", module=_CONFVALUE),
        Command("remoteconfvalue", "print a configuration value of the cluster", module=_CONFVALUE),
        Command("version", "print versions"),
        Command("doctor", "check what a topology needs on this machine"),
        Command("jars", "fetch the connector's and the broker's jars"),
        Command("help", "explain a command"),
    ),
}
"""Group -> its commands, in the order in which they are listed."""

_ELSEWHERE = "topologies run in the process of 'dskype local' or 'dskype submit'; there are no daemons"
_SERVERS = "no servers are set up; Spark's executors get the code from the process that submits"
_SPARSE_NOT_HERE = {
    "remove_logs": _SERVERS,
    "run": "the command is 'dskype local topologies/NAME.py --local-ttl SECS'",
    "slot_usage": _SERVERS,
    "update_virtualenv": _SERVERS,
    "visualize": "'dskype ui' draws a running topology",
    "worker_uptime": _SERVERS,
}
_NOT_HERE = {
    "admin": "",
    "blobstore": "",
    "classpath": "",
    "dev-zookeeper": "",
    "drpc": "",
    "drpc-client": "",
    "heartbeats": "",
    "kill_workers": "",
    "logviewer": _ELSEWHERE,
    "nimbus": _ELSEWHERE,
    "node-health-check": "",
    "pacemaker": "",
    "server_classpath": "",
    "set_log_level": "",
    "shell": "",
    "sql": "",
    "supervisor": _ELSEWHERE,
    "upload-credentials": "",
    **_SPARSE_NOT_HERE,
}
"""Commands of ``storm`` and ``sparse`` that are recognised but not implemented, with the reason."""


class _Version(argparse.Action):
    """``--version``, as most commands have it; ``dskype version`` says more."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from dskype.deploy.machine.versions import own_version

        print(f"dskype {own_version()}")
        parser.exit()


def _parser() -> LazyParser:
    """Return the parser of all commands; a command's own arguments are added when it is used."""
    parser = LazyParser(prog="dskype", usage="dskype COMMAND ...", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version of this product")
    verbs = parser.add_subparsers(prog="dskype", dest="verb", metavar="COMMAND", parser_class=LazyParser, help=argparse.SUPPRESS)
    for commands in COMMANDS.values():
        for command in commands:
            description = f"{command.text[0].upper()}{command.text[1:]}."
            verbs.add_parser(command.name, description=description, aliases=command.aliases, allow_abbrev=False, fill=_filler(command, parser))
    parser.description = "Storm topologies on Spark and Kafka; on them DSkype: publish and subscribe by words and place."
    listed = "\n\n".join(f"{group}:\n" + "\n".join(f"  {command.title:<18} {command.text}" for command in commands) for group, commands in COMMANDS.items())
    parser.epilog = f"{listed}\n\n'dskype help COMMAND' or 'dskype COMMAND -h' says more."
    return parser


def _filler(command: Command, whole: LazyParser) -> Any:
    def fill(parser: argparse.ArgumentParser) -> None:
        if command.name == "help":
            common(parser, kafka=False)
            parser.add_argument("command", metavar="COMMAND", nargs="*")
            parser.set_defaults(run=lambda args: _help(args, whole))
            return
        _require(command)
        module = command.load()
        parser.set_defaults(run=getattr(module, "run", None))
        module.add_arguments(parser)

    return fill


def _require(command: Command) -> None:
    """End with an error if a command runs topologies, or computes as they do, and only the packages of clients are installed."""
    if not command.extra:
        return
    from dskype.deploy.machine.extras import missing_for_topologies

    if missing := missing_for_topologies():
        from dskype.topology.errors import explain

        words, fix = f"'dskype {command.name}' needs what topologies need.", f"pip install '/path/to/dskype[{command.extra}]'"
        say("error: " + explain(words, given=f"no module {', '.join(missing)}", hint=fix))
        raise SystemExit(1)


def _help(args: argparse.Namespace, parser: LazyParser) -> int:
    if args.command and args.command[0] in _NOT_HERE:
        return _not_here(args.command[0])
    for word in args.command:
        known = parser.choices()
        if word not in known:
            raise UsageError(f"{word!r} is no command" + _near(word, known))
        parser = known[word]
    parser.print_help()
    return 0


def _not_here(verb: str) -> int:
    tool = "sparse" if verb in _SPARSE_NOT_HERE else "storm"
    say(f"error: '{tool} {verb}' is not part of the emulator" + (f": {_NOT_HERE[verb]}" if _NOT_HERE[verb] else ""))
    return 1


def _near(word: str, verbs: Any) -> str:
    near = difflib.get_close_matches(word, [*verbs, *_NOT_HERE], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


# --- main -------------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    :param argv: the arguments; default ``sys.argv[1:]``.
    :returns: the exit code.
    """
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # wherever it came: in the imports of a command as well
        return 130


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] in _NOT_HERE:
        return _not_here(arguments[0])
    parser = _parser()
    verbs = parser.choices()
    if arguments and not arguments[0].startswith("-") and arguments[0] not in verbs:
        say(f"error: {arguments[0]!r} is no command{_near(arguments[0], verbs)}; 'dskype --help' lists them")
        return 2
    try:
        args = parser.parse_args(arguments)
    except SystemExit as ex:  # argparse has printed the reason
        return int(ex.code or 0)
    if args.verb is None:
        parser.print_help(sys.stderr)
        return 2
    args.command_line = arguments
    _logging(getattr(args, "verbose", False))
    for option in getattr(args, "ignored", None) or ():
        say(f"note: {option} is ignored: it has no meaning here")
    try:
        return args.run(args)
    except UsageError as ex:
        say(f"usage: dskype {args.verb} [options] ...; see 'dskype help {args.verb}'")
        return _failed(ex, args.verbose)
    except BrokenPipeError:  # the reader of our output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as ex:
        return _failed(ex, args.verbose)


def _logging(verbose: bool) -> None:
    import logging

    if verbose:
        level, text = logging.INFO, "%(asctime)s %(levelname)s %(name)s: %(message)s"
    else:  # the commands print warnings themselves
        level, text = logging.ERROR, "%(levelname)s: %(message)s"
        logging.getLogger("kafka").setLevel(logging.CRITICAL)  # real errors are raised; what a closing client logs is noise
    from dskype.topology.core.redaction import RedactingFormatter

    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter(text))
    logging.basicConfig(level=level, handlers=[handler])


def _failed(ex: Exception, verbose: bool) -> int:
    from kafka.errors import KafkaError

    from dskype.topology.core.redaction import redact_text
    from dskype.topology.errors import DskypeError, TopologyError

    if verbose:
        import traceback

        say(redact_text("".join(traceback.format_exception(ex))).rstrip())
    known = isinstance(ex, (DskypeError, UsageError, KafkaError, OSError))
    if isinstance(ex, KafkaError) and ex.retriable and not ex.args:  # it has no words but its name
        hint = "'dskype doctor' tells whether they answer; if this machine or theirs is busy, try again"
        ex = TopologyError(f"{type(ex).__name__}: The brokers have not done in time what they were asked.", hint=hint)
    text = redact_text(_about_path(ex) if isinstance(ex, OSError) and ex.filename is not None else str(ex)) or type(ex).__name__
    say(f"error: {text}" if known else f"error: {type(ex).__name__}: {text}\n  --verbose shows where")
    return 1


def _about_path(ex: OSError) -> str:
    """Say what is wrong with a file or folder that the user has named."""
    path = os.fsdecode(ex.filename2 or ex.filename)  # of two, the second is where a new file should have gone
    if isinstance(ex, IsADirectoryError):
        return f"expected a file, given the folder {path!r}"
    if isinstance(ex, (NotADirectoryError, FileExistsError)):
        file = next((p for p in (Path(path), *Path(path).parents) if p.is_file()), path)
        return f"expected a folder, given the file {str(file)!r}"
    if isinstance(ex, FileNotFoundError):
        return f"No such file or folder: {path!r}"
    if isinstance(ex, PermissionError):
        return f"this user may not use {path!r}\n  fix: change its mode or owner, or name another one"
    return f"{path!r} cannot be used: {ex.strerror}"
