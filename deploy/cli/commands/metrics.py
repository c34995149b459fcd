"""``dskype metrics``: serve measurements to Prometheus, until Ctrl-C."""

from __future__ import annotations

import argparse
import threading

from dskype.deploy.cli.arguments import common, serving, target
from dskype.deploy.machine import cluster
from dskype.deploy.machine.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    parser.add_argument("names", metavar="TOPOLOGY", nargs="*", help="default: all, including those that start later")
    serving(parser, 9464, "there is no password, unless $DSKYPE_METRICS_TOKEN has one")


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    from dskype.deploy.metrics import prometheus
    from dskype.topology.ui.budget import Budget

    kafka = cluster.kafka_settings(target(args))
    given = {"names": args.names or None, "allow_hosts": args.allow_host, "budget": Budget.given(args.limit)}
    with prometheus.serve(kafka, port=args.port, host=args.host, say=say, allow_remote=args.allow_remote, **given):
        threading.Event().wait()
    return 0
