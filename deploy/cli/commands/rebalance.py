"""``dskype rebalance``: change a topology's workers and executors."""

from __future__ import annotations

import argparse

from dskype.deploy.cli.arguments import Ignored, common, executor, positive, seconds, target
from dskype.deploy.machine import cluster
from dskype.deploy.machine.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("-w", "--wait-time-secs", metavar="SECS", type=seconds, help="default: the topology's message timeout")
    parser.add_argument("-n", "--num-workers", metavar="N", type=positive)
    parser.add_argument("-e", "--executor", metavar="COMPONENT=N", type=executor, action="append", default=[], help="repeatable")
    for flags in (("-r", "--resources"), ("-t", "--topology-conf")):
        parser.add_argument(*flags, metavar="JSON", action=Ignored, help="accepted and ignored", default=None)


def run(args: argparse.Namespace) -> int:
    """Ask the topology to rebalance."""
    executors = dict(args.executor)
    cluster.client(target(args)).send(
        {"name": args.name, "event": "REBALANCE", "wait_secs": args.wait_time_secs, "workers": args.num_workers, "executors": executors}
    )
    say(f"Topology {args.name} is rebalancing")
    return 0
