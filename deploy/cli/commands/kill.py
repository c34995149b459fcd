"""``dskype kill``: end topologies."""

from __future__ import annotations

import argparse

from dskype.deploy.cli.arguments import common, seconds, target
from dskype.deploy.machine import cluster
from dskype.deploy.machine.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    parser.add_argument("name", metavar="NAME", nargs="+")
    parser.add_argument("-w", "--wait-time-secs", metavar="SECS", type=seconds, help="default: the topology's message timeout")
    parser.add_argument("-i", "--ignore-errors", action="store_true", help="continue with the next name after an error")


def run(args: argparse.Namespace) -> int:
    """Ask the topologies to end."""
    from dskype.topology.errors import TopologyError

    client, failed = cluster.client(target(args)), 0
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
