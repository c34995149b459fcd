"""``dskype activate`` and ``dskype deactivate``: switch a topology's spouts on and off."""

from __future__ import annotations

import argparse

from dskype.deploy.cli.arguments import common, target
from dskype.deploy.machine import cluster
from dskype.deploy.machine.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    parser.add_argument("name", metavar="NAME")


def run(args: argparse.Namespace) -> int:
    """Switch the spouts on or off, as the command says."""
    event, done = ("ACTIVATE", "Activated") if args.verb == "activate" else ("INACTIVATE", "Deactivated")
    cluster.client(target(args)).send({"name": args.name, "event": event})
    say(f"{done} topology: {args.name}")
    return 0
