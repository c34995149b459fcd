"""``dskype submit``: run a topology on a cluster until it is killed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dskype.deploy.cli import flux_file
from dskype.deploy.cli.arguments import without_options
from dskype.deploy.machine.terminal import say

_LOG = "driver.log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    flux_file.add_arguments(parser)
    parser.add_argument("--fresh", action="store_true", help="do not resume an interrupted topology of this name: remove its state and start over")
    parser.add_argument("--standby", action="store_true", help="if another process runs it, wait beside that one, and take over when it is lost")
    _own_arguments(parser)


def _own_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how the command is run."""
    parser.add_argument("--detach", action="store_true", help="return when the topology runs, and leave it running in the background")
    parser.add_argument("--systemd", action="store_true", help="submit nothing, print a unit for systemd that keeps this submission running")


def run(args: argparse.Namespace) -> int:
    """Submit the topology, and run it until it is killed."""
    flux, where = flux_file.load(args)
    if args.dry_run:
        return flux_file.dry_run(flux)
    flux.check_runnable()
    from dskype.deploy.machine import connection, detached, launch
    from dskype.deploy.machine.cluster import kafka_settings
    from dskype.topology.planning.validation import validate_submission

    validate_submission(flux.name, flux.config, flux.topology)
    if not (args.systemd or args.detach):
        from dskype.deploy.cli.warmup import compile_first

        compile_first(flux, where.master, say)
        launch.submit(flux, where, active=not args.inactive, fresh=args.fresh, standby=args.standby, progress=say)
        return 0
    kafka_settings(where)  # fails if no cluster is named
    command = ["submit", *without_options(args.command_line[1:], _own_arguments)]
    if args.systemd:
        named = connection.BOOTSTRAP_VARIABLE, connection.WAIT_VARIABLE
        print(detached.systemd_unit(f"topology {flux.name}", command, cwd=Path.cwd(), as_root=os.geteuid() == 0, variables=named), end="")
    else:
        log = launch.folder_of(flux.name, where) / _LOG
        pid = detached.start(command, log, say)
        say(f"in the background as process {pid}; its log is {log}")
    return 0
