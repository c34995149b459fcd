"""``dskype up``: run a topology with a broker and metrics as a service on this machine."""

from __future__ import annotations

import argparse
import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dskype.deploy.cli import flux_file
from dskype.deploy.cli.arguments import SERVICE_FOLDER, UsageError, port, without_options
from dskype.deploy.machine.terminal import say

if TYPE_CHECKING:
    from dskype.deploy.machine.service import Service

_DEFAULT = "dskype.yaml"
_END_S = 90
"""How long the end of a service is waited for that is stopping: as long as 'down' waits."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    flux_file.add_arguments(parser, cluster=False)
    _own_arguments(parser)


def _own_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that are not remembered for the next start."""
    group = parser.add_argument_group("options of the service")
    group.add_argument("--folder", metavar="DIR", type=Path, help=f"everything that the service keeps; default: {SERVICE_FOLDER}")
    group.add_argument("--port", metavar="N", type=port, help="of the broker, on 127.0.0.1; default: the one it had, at first 9092; 0: a free one")
    group.add_argument("--metrics-port", metavar="N", type=port, help="of the metrics for Prometheus; default: the one it had, at first 9464; 0: a free one")
    group.add_argument("--fresh", action="store_true", help="do not resume: remove the topology's state and start over; the broker keeps its topics")
    group.add_argument("--foreground", action="store_true", help="stay, and print what happens; SIGTERM and Ctrl-C stop the service")
    group.add_argument("--systemd", action="store_true", help="start nothing, print a unit for systemd that starts the service with the machine")


def _printing(parser: argparse.ArgumentParser) -> None:
    """Add the options that change what is printed, and not what runs: they hold for one start, and are not compared."""
    flux_file.add_printing(parser)
    parser.add_argument("--verbose", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Start the service, in the background unless told otherwise."""
    from dskype.deploy.machine import detached, paths, service

    folder = (args.folder or paths.service_dir()).expanduser().absolute()
    given = without_options(args.command_line[1:], _own_arguments)
    what = without_options(given, _printing)
    if args.dry_run:
        return flux_file.dry_run(_load(args)[0])
    found = service.read(folder)
    if found is not None and found.state == "stopping" and found.is_alive() and not args.systemd:
        service.stop(folder, _END_S, say)
    running = found is not None and found.is_alive()
    if found is None or not running:
        found = service.prepare(folder, port=args.port, metrics_port=args.metrics_port)
    elif _is_other(args, what, found):
        raise UsageError(f"the service in {folder} runs with other arguments, given: {args.command_line[1:]}; stop it first: dskype down --folder {folder}")
    arguments, cwd = (given, Path.cwd()) if what or not found.arguments else ([*found.arguments, *given], Path(found.cwd))
    foreground = ["up", "--folder", str(folder), "--foreground"]
    if args.systemd:
        print(detached.systemd_unit(f"DSkype in {folder}", [*foreground, *arguments], cwd=cwd, as_root=os.geteuid() == 0), end="")
        return 0
    if running:
        say(f"the service in {folder} {'is starting' if found.state == 'starting' else 'runs'} already; 'dskype status --folder {folder}' says more")
        return 0
    fresh = ["--fresh"] if args.fresh else []
    if not args.foreground:
        pid = detached.start([*foreground, *fresh, *arguments], folder / service.LOG, say, cwd=cwd)
        say(f"in the background as process {pid}; its log is {folder / service.LOG}\nexport DSKYPE_BOOTSTRAP_SERVERS={found.bootstrap_servers}")
        return 0
    if arguments != given:  # with those of the last start
        from dskype.deploy.cli.main import main

        os.chdir(cwd)
        return main([*foreground, *fresh, *arguments])
    flux, where = _load(args)
    flux.check_runnable()
    from dskype.topology.planning.validation import validate_submission

    validate_submission(flux.name, flux.config, flux.topology)
    from dskype.deploy.cli.warmup import compile_first

    service.run(
        folder,
        flux,
        where,
        arguments=what,
        fresh=args.fresh,
        active=not args.inactive,
        before=lambda progress: compile_first(flux, where.master, progress),
        beside=_metrics,
        progress=_stamped,
    )
    return 0


def _is_other(args: argparse.Namespace, what: list[str], found: Service) -> bool:
    """Tell whether a running service is not what the command asks for."""
    ports = (args.port, found.port), (args.metrics_port, found.metrics_port)
    return args.fresh or bool(what and what != without_options(found.arguments, _printing)) or any(wanted and wanted != port for wanted, port in ports)


def _load(args: argparse.Namespace) -> tuple[Any, Any]:
    if not args.file:
        args.file, args.resource = [_DEFAULT], True
    return flux_file.load(args)


def _metrics(kafka: Any, port: int) -> AbstractContextManager[Any]:
    from dskype.deploy.metrics import prometheus

    return prometheus.serve(kafka, port=port, say=_stamped)


def _stamped(text: str) -> None:
    say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")
