"""``dskype local``: run a topology on this machine for a while."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from dskype.deploy.cli import flux_file
from dskype.deploy.cli.arguments import port, seconds
from dskype.deploy.machine.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    flux_file.add_arguments(parser)
    parser.add_argument("--local-ttl", metavar="SECS", type=seconds, default=20, help="how long to run; 0: until Ctrl-C; default: 20")
    parser.add_argument("--metrics-port", metavar="N", type=port, help="serve measurements to Prometheus on 127.0.0.1:N meanwhile; 0: a free port, printed")


def run(args: argparse.Namespace) -> int:
    """Run the topology and show its progress."""
    flux, where = flux_file.load(args)
    if args.dry_run:
        return flux_file.dry_run(flux)
    flux.check_runnable()
    from dskype.deploy.cli import local_screen
    from dskype.deploy.cli.warmup import compile_first
    from dskype.deploy.machine import launch
    from dskype.topology.planning.validation import validate_submission

    validate_submission(flux.name, flux.config, flux.topology)  # before Spark and Kafka are started
    compile_first(flux, where.master, say)
    watch = local_screen.show if args.metrics_port is None else _serving(args.metrics_port, local_screen.show)
    launch.run_local(flux, where, ttl_s=args.local_ttl, active=not args.inactive, progress=say, watch=watch)
    return 0


def _serving(port: int, show: Callable[[Any, str, float], None]) -> Callable[[Any, str, float], None]:
    """Return a function that serves measurements while ``show`` runs."""

    def watch(cluster: Any, name: str, ttl_s: float) -> None:
        from dskype.deploy.metrics import prometheus

        with prometheus.serve(cluster.environment.kafka, port=port, names=[name], say=say):
            show(cluster, name, ttl_s)

    return watch
