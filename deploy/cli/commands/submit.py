"""``dskype submit``: run a topology on a cluster until it is killed."""

from __future__ import annotations

import argparse

from dskype.deploy.cli import flux_file
from dskype.deploy.machine.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    flux_file.add_arguments(parser)
    parser.add_argument("--fresh", action="store_true", help="do not resume an interrupted topology of this name: remove its state and start over")


def run(args: argparse.Namespace) -> int:
    """Submit the topology, and run it until it is killed."""
    flux, where = flux_file.load(args)
    if args.dry_run:
        return flux_file.dry_run(flux)
    flux.check_runnable()
    from dskype.deploy.machine import launch
    from dskype.topology.planning.validation import validate_submission

    validate_submission(flux.name, flux.config, flux.topology)
    launch.submit(flux, where, active=not args.inactive, fresh=args.fresh, progress=say)
    return 0
