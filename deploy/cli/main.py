"""The command line ``dskype``: Storm's verbs, Flux' options.

Exit codes: 0 done; 1 refused or failed, with a text on standard error; 2 no such command, option or kind of value; 130 Ctrl-C.
Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dskype.deploy.cli import commands
from dskype.deploy.cli.arguments import (
    Ignored,
    UsageError,
    common,
    executor,
    file_conf,
    output,
    plain,
    port,
    positive,
    positive_seconds,
    say,
    seconds,
    split,
    target,
)
from dskype.deploy.machine.cluster import Target
from dskype.deploy.machine.registry import TOPOLOGIES, registry

__all__ = ["main"]

_ELSEWHERE = "topologies run in the process of 'dskype local' or 'dskype submit'; there are no daemons"
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
}
"""Verbs of ``storm`` that are recognised and not served (K7)."""

# --- arguments --------------------------------------------------------------------------------------------------------


def _flux_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="*", metavar="FILE", help="one Flux YAML file")
    parser.add_argument("-d", "--dry-run", action="store_true", help="build and describe the topology, do not run it")
    parser.add_argument("-f", "--filter", metavar="FILE", help="a .properties file with values for ${key}")
    parser.add_argument("-e", "--env-filter", action="store_true", help="replace ${ENV-NAME} by environment variables")
    parser.add_argument("-i", "--inactive", action="store_true", help="start the topology inactive")
    parser.add_argument("-n", "--no-splash", action="store_true", help="no opening line")
    parser.add_argument("-q", "--no-detail", action="store_true", help="no details of the topology")
    parser.add_argument("-R", "--resource", action="store_true", help="FILE is one of those that come with dskype, e.g. wordcount.yaml")
    parser.add_argument("--allow-module", metavar="M", action="append", default=[], help="let the file name classes of this module; repeatable")
    parser.add_argument("--master", metavar="URL", help="Spark master; default: this machine (local[*])")
    ignored = parser.add_argument_group("options of storm that are accepted and ignored")
    for flags in (("-l", "--local"), ("-r", "--remote"), ("--java-debug",)):
        ignored.add_argument(*flags, nargs="?" if flags == ("--java-debug",) else 0, action=Ignored, help=argparse.SUPPRESS, default=None)
    for flags in (
        ("-s", "--sleep"),
        ("-z", "--zookeeper"),
        ("--local-zookeeper",),
        ("--jars",),
        ("--artifacts",),
        ("--artifactRepositories",),
        ("--mavenLocalRepositoryDirectory",),
        ("--proxyUrl",),
        ("--proxyUsername",),
        ("--proxyPassword",),
        ("--storm-server-classpath",),
    ):
        ignored.add_argument(*flags, action=Ignored, help=argparse.SUPPRESS, default=None)


def _parser(requested: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser of everything.

    :param requested: the command line; the arguments of some verbs are only loaded when they are called.
    """
    parser = argparse.ArgumentParser(prog="dskype", usage="dskype COMMAND ...", formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(prog="dskype", dest="verb", metavar="COMMAND", parser_class=argparse.ArgumentParser, help=argparse.SUPPRESS)
    groups: dict[str, list[tuple[str, str]]] = {}
    both, local_only = common(), common(kafka=False)
    group = "topologies"

    def verb(
        name: str, run: Callable[[argparse.Namespace], int] | None, text: str, parent: argparse.ArgumentParser = both, **more: Any
    ) -> argparse.ArgumentParser:
        groups.setdefault(group, []).append((" ".join([name, *(f"({a})" for a in more.get("aliases", ()))]), text))
        sub = verbs.add_parser(name, description=text[0].upper() + text[1:] + ".", **{"parents": [parent], "allow_abbrev": False, **more})
        sub.set_defaults(run=run)
        return sub

    local = verb("local", _local, "run a topology on this machine for a while")
    _flux_options(local)
    local.add_argument("--local-ttl", metavar="SECS", type=seconds, default=20, help="how long; 0: until Ctrl-C; default: 20")
    local.add_argument("--metrics-port", metavar="N", type=port, help="serve measurements to Prometheus on 127.0.0.1:N meanwhile; 0: a free port, printed")
    submit = verb("submit", _submit, "run a topology as one of a cluster's, until it is killed", aliases=["jar"])
    _flux_options(submit)
    submit.add_argument("--fresh", action="store_true", help="do not resume an interrupted topology of that name: remove its state and begin anew")

    output(verb("list", _list, "list the topologies"))
    verb("activate", _switch("ACTIVATE"), "switch a topology's spouts on").add_argument("name", metavar="NAME")
    verb("deactivate", _switch("INACTIVATE"), "switch a topology's spouts off").add_argument("name", metavar="NAME")
    rebalance = verb("rebalance", _rebalance, "change a topology's workers and executors; its tasks stay")
    rebalance.add_argument("name", metavar="NAME")
    rebalance.add_argument("-w", "--wait-time-secs", metavar="SECS", type=seconds, help="default: the topology's message timeout")
    rebalance.add_argument("-n", "--num-workers", metavar="N", type=positive)
    rebalance.add_argument("-e", "--executor", metavar="COMPONENT=N", type=executor, action="append", default=[], help="repeatable")
    for flags in (("-r", "--resources"), ("-t", "--topology-conf")):
        rebalance.add_argument(*flags, metavar="JSON", action=Ignored, help="accepted and ignored", default=None)
    kill = verb("kill", _kill, "end topologies")
    kill.add_argument("name", metavar="NAME", nargs="+")
    kill.add_argument("-w", "--wait-time-secs", metavar="SECS", type=seconds, help="default: the topology's message timeout")
    kill.add_argument("-i", "--ignore-errors", action="store_true", help="go on with the next name after an error")
    verb("get-errors", _get_errors, "print the newest error of each component as JSON").add_argument("name", metavar="NAME")
    monitor = verb("monitor", _monitor, "print a component's throughput again and again")
    monitor.add_argument("name", metavar="NAME")
    monitor.add_argument("-i", "--interval", metavar="SECS", type=positive_seconds, default=4, help="default: 4")
    monitor.add_argument("-m", "--component", metavar="ID", help="without it the components are listed")
    monitor.add_argument("-s", "--stream", metavar="ID", default="default", help="default: default")
    monitor.add_argument("-w", "--watch", choices=("emitted", "transferred"), default="emitted", help="default: emitted")
    monitor.add_argument("--count", metavar="N", type=positive, help="end after so many lines")

    stats = verb("stats", _stats, "measure what a topology moves, costs and waits for")
    metrics = verb("metrics", _metrics, "serve measurements to Prometheus, until Ctrl-C")
    if "stats" in requested:
        importlib.import_module("dskype.deploy.metrics.stats").add_options(stats)
    if "metrics" in requested:
        importlib.import_module("dskype.deploy.metrics.prometheus").add_options(metrics)

    group = "publish and subscribe"
    commands.add_verbs(verb, requested)

    group = "this machine"
    for name, text in (("localconfvalue", "print a configuration value of this machine"), ("remoteconfvalue", "print a configuration value of the cluster")):
        verb(name, _confvalue, text, local_only).add_argument("key", metavar="KEY")
    output(verb("version", _version, "print versions", local_only))
    doctor = verb("doctor", _doctor, "check what a topology needs on this machine")
    output(doctor)
    doctor.add_argument("--no-broker", action="store_true", help="do not start an embedded broker")
    jars = verb("jars", _jars, "fetch the connector's and the broker's jars", local_only)
    jars.add_argument("--force", action="store_true", help="fetch them again")
    jars.add_argument("--verify", action="store_true", help="only compare what is there with the checksums")
    help_verb = verb("help", _help, "explain a command", local_only)
    help_verb.add_argument("command", metavar="COMMAND", nargs="*")
    help_verb.set_defaults(parser=parser, verbs=verbs.choices)
    parser.description = "Storm topologies on Spark and Kafka; on them DSkype: publish and subscribe by words and place."
    order = ("publish and subscribe", "topologies", "this machine")
    listed = "\n\n".join(f"{name}:\n" + "\n".join(f"  {verb:<18} {text}" for verb, text in groups[name]) for name in order)
    parser.epilog = f"{listed}\n\n'dskype help COMMAND' or 'dskype COMMAND -h' says more."
    return parser


# --- helpers of the verbs ---------------------------------------------------------------------------------------------


def _load(args: argparse.Namespace, parser_of: str) -> tuple[Any, Target]:
    """Load the one Flux file; print its details."""
    if len(args.file) != 1:
        raise UsageError(f"expected exactly one FILE, given: {len(args.file)}")
    from dskype.topology import config as storm_config
    from dskype.topology.flux import load

    file = args.file[0]
    if args.allow_module:
        # Behind all else: a module here must not take the place of an installed one.
        sys.path += [p for p in (os.getcwd(), str(Path(file).resolve().parent)) if p not in sys.path]
    if not args.no_splash:
        say(f"dskype {_own_version()}: Storm topologies on Spark and Kafka")
    if not args.no_detail:
        say(f"Parsing {'resource' if args.resource else 'file'}: {file if args.resource else os.path.abspath(file)}")
    below, _ = split(file_conf(args))
    above, _ = split(dict(args.conf))
    flux = load(
        file,
        properties=args.filter,
        environ=os.environ if args.env_filter else None,
        allow_modules=args.allow_module,
        registry=registry(),
        resources=[TOPOLOGIES],
        resource=args.resource,
        config=above,
    )
    in_file, settings = split(flux.config)
    flux.config = {**below, **in_file}
    storm_config.validate(flux.config)
    for warning in flux.warnings:
        say(f"warning: {warning}")
    if not args.no_detail:
        print(flux.describe(), flush=True)
    return flux, target(args, settings)


def _dry_run(flux: Any) -> int:
    """Say what a submission would refuse; a dry run itself only builds, as in Storm."""
    from dskype.topology.errors import TopologyError
    from dskype.topology.validation import validate_submission

    try:
        flux.check_runnable()
        for warning in validate_submission(flux.name, flux.config, flux.topology):
            say(f"warning: {warning}")
    except TopologyError as ex:
        say(f"note: a submission would be refused: {ex}")
    return 0


def _client(args: argparse.Namespace) -> Any:
    from dskype.deploy.machine import cluster

    return cluster.client(target(args))


# --- verbs ------------------------------------------------------------------------------------------------------------


def _local(args: argparse.Namespace) -> int:
    flux, where = _load(args, "local")
    if args.dry_run:
        return _dry_run(flux)
    flux.check_runnable()
    from dskype.deploy.cli import local_screen
    from dskype.deploy.machine import cluster
    from dskype.topology.validation import validate_submission

    validate_submission(flux.name, flux.config, flux.topology)  # before Spark and Kafka are started
    watch = local_screen.show if args.metrics_port is None else _serving(args.metrics_port, local_screen.show)
    cluster.run_local(flux, where, ttl_s=args.local_ttl, active=not args.inactive, progress=say, watch=watch)
    return 0


def _serving(port: int, show: Callable[[Any, str, float], None]) -> Callable[[Any, str, float], None]:
    """Serve measurements while a topology is shown."""

    def watch(cluster: Any, name: str, ttl_s: float) -> None:
        from dskype.deploy.metrics import prometheus

        with prometheus.serve(cluster.environment.kafka, port=port, names=[name], say=say):
            show(cluster, name, ttl_s)

    return watch


def _submit(args: argparse.Namespace) -> int:
    flux, where = _load(args, "submit")
    if args.dry_run:
        return _dry_run(flux)
    flux.check_runnable()
    from dskype.deploy.machine import cluster
    from dskype.topology.validation import validate_submission

    validate_submission(flux.name, flux.config, flux.topology)
    cluster.submit(flux, where, active=not args.inactive, fresh=args.fresh, progress=say)
    return 0


def _list(args: argparse.Namespace) -> int:
    topologies = _client(args).topologies()
    if args.output == "json":
        print(json.dumps(topologies, indent=2))
        return 0
    if not topologies:
        print("No topologies running.")
        return 0
    row = "%-20s %-10s %-10s %-12s %-12s %-20s %-20s"
    print(row % ("Topology_name", "Status", "Num_tasks", "Num_workers", "Uptime_secs", "Topology_Id", "Owner"))
    print("-" * 88)
    for t in topologies:
        print(row % (t["name"], t["status"], t["num_tasks"], t["num_workers"], t["uptime_secs"], t["id"], t["owner"]))
    for t in topologies:
        if not t.get("driver_alive", True):
            say(f"note: the process that ran {t['name']} is gone; submit it again to resume it, or kill it")
        health = t.get("health") or {}
        if health.get("state", "running") not in ("running", "starting"):
            say(f"note: {t['name']} is {health['state']}:" + "".join(f"\n  {line}" for line in health.get("why", ())))
    return 0


def _switch(event: str) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        _client(args).send({"name": args.name, "event": event})
        say(f"{'Activated' if event == 'ACTIVATE' else 'Deactivated'} topology: {args.name}")
        return 0

    return run


def _rebalance(args: argparse.Namespace) -> int:
    executors = dict(args.executor)
    _client(args).send({"name": args.name, "event": "REBALANCE", "wait_secs": args.wait_time_secs, "workers": args.num_workers, "executors": executors})
    say(f"Topology {args.name} is rebalancing")
    return 0


def _kill(args: argparse.Namespace) -> int:
    from dskype.topology.errors import TopologyError

    client, failed = _client(args), 0
    for name in args.name:
        try:
            client.send({"name": name, "event": "KILL", "wait_secs": args.wait_time_secs})
            say(f"Killed topology: {name}")
        except TopologyError as ex:
            if not args.ignore_errors:
                raise
            failed = 1
            say(f"error: {ex}")
    return failed


def _get_errors(args: argparse.Namespace) -> int:
    from dskype.topology.errors import NotAliveException

    try:
        found = _client(args).errors(args.name)
    except NotAliveException:
        print(json.dumps({"Failure": f"No topologies running with name {args.name}"}))
        return 1
    newest = {component: errors[-1]["error"] for component, errors in found.items() if errors}
    print(plain(json.dumps({"Topology Name": args.name, "Comp-Errors": newest}, ensure_ascii=False)))
    return 0


def _monitor(args: argparse.Namespace) -> int:
    from dskype.deploy.cli.monitor import monitor

    return monitor(_client(args), args.name, args.component, args.stream, args.watch, args.interval, args.count)


def _stats(args: argparse.Namespace) -> int:
    from dskype.deploy.machine import cluster
    from dskype.deploy.metrics import stats

    return stats.run(args, cluster.kafka_settings(target(args)))


def _metrics(args: argparse.Namespace) -> int:
    from dskype.deploy.machine import cluster
    from dskype.deploy.metrics import prometheus

    return prometheus.run(args, cluster.kafka_settings(target(args)), say)


def _confvalue(args: argparse.Namespace) -> int:
    from dskype.topology.config import DEFAULTS
    from dskype.topology.redaction import redact

    conf = {**DEFAULTS, **file_conf(args), **dict(args.conf)}
    value = redact({args.key: conf.get(args.key)})[args.key]
    print(f"{args.key}: {value if isinstance(value, str) else json.dumps(value)}")
    return 0


def _own_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("dskype")
    except PackageNotFoundError:
        return "unknown"


def _version(args: argparse.Namespace) -> int:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"dskype": _own_version(), "python": platform.python_version()}
    for package in ("pyspark", "kafka-python", "numpy", "numba", "pyarrow"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    if args.output == "json":
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(f"{name} {number}" for name, number in found.items()))
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from dskype.deploy.machine import connection, doctor

    where = target(args)
    rows = doctor.run_checks(
        connection.resolve_bootstrap(where.bootstrap_servers),
        client_options=connection.kafka_options(where.conf),
        start_broker=not args.no_broker,
        progress=say if args.verbose else None,
    )
    print(json.dumps(doctor.as_json(rows), indent=2) if args.output == "json" else doctor.as_text(rows))
    return doctor.exit_code(rows)


def _jars(args: argparse.Namespace) -> int:
    from dskype.deploy.machine import jars

    if args.verify:
        problems = jars.verify(full=True)
        for problem in problems:
            print(problem)
        if not problems:
            print("all jars are as their checksums say")
        return 1 if problems else 0
    from dskype.deploy.machine.prepare import LinePrinter

    printer = LinePrinter()
    try:
        fetched = jars.fetch(progress=lambda p: printer(str(p)), force=args.force)
    finally:
        printer.end()
    for name, files in fetched.items():
        print(f"{name}: {len(files)} jars in {files[0].parent}")
    return 0


def _help(args: argparse.Namespace) -> int:
    if not args.command:
        args.parser.print_help()
        return 0
    if args.command[0] in _NOT_HERE:
        return _not_here(args.command[0])
    parser, known = args.parser, args.verbs
    for word in args.command:
        if word not in known:
            raise UsageError(f"{word!r} is no command" + _near(word, known))
        parser, known = known[word], _choices(known[word])
    parser.print_help()
    return 0


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the verbs below a parser."""
    return next((a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)), {})


def _not_here(verb: str) -> int:
    say(f"error: 'storm {verb}' is not part of the emulator" + (f": {_NOT_HERE[verb]}" if _NOT_HERE[verb] else ""))
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
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in _NOT_HERE:
        return _not_here(arguments[0])
    arguments = commands.join_negative(arguments)
    parser = _parser(arguments)
    verbs = _choices(parser)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in verbs:
        say(f"error: {arguments[0]!r} is no command{_near(arguments[0], verbs)}; 'dskype --help' lists them")
        return 2
    try:
        args = parser.parse_args(arguments)
    except SystemExit as ex:  # argparse has printed what it had to say
        return int(ex.code or 0)
    if args.verb is None:
        parser.print_help(sys.stderr)
        return 2
    _logging(getattr(args, "verbose", False))
    for option in getattr(args, "ignored", None) or ():
        say(f"note: {option} is ignored: it has no meaning here")
    try:
        return args.run(args)
    except UsageError as ex:
        say(f"usage: dskype {args.verb} [options] ...; see 'dskype help {args.verb}'")
        return _failed(ex, args.verbose)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as ex:
        return _failed(ex, args.verbose)


def _logging(verbose: bool) -> None:
    import logging

    if verbose:
        level, text = logging.INFO, "%(asctime)s %(levelname)s %(name)s: %(message)s"
    else:  # warnings of loading are printed by the verbs
        level, text = logging.ERROR, "%(levelname)s: %(message)s"
        logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what matters is raised; what a client says while it is closed does not
    from dskype.topology.redaction import RedactingFormatter

    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter(text))
    logging.basicConfig(level=level, handlers=[handler])


def _failed(ex: Exception, verbose: bool) -> int:
    from dskype.topology.redaction import redact_text

    if verbose:
        import traceback

        say(redact_text("".join(traceback.format_exception(ex))).rstrip())
    known = type(ex).__module__.startswith(("dskype.", "kafka.")) or isinstance(ex, OSError)
    text = redact_text(str(ex)) or type(ex).__name__
    say(f"error: {text}" if known else f"error: {type(ex).__name__}: {text}\n  --verbose shows where")
    return 1


if __name__ == "__main__":
    sys.exit(main())
