"""``dskype doctor``: check what a topology needs on this machine."""

from __future__ import annotations

import argparse
import json

from dskype.deploy.cli.arguments import common, output, target
from dskype.deploy.machine.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    output(parser)
    parser.add_argument("--master", metavar="URL", help="check this Spark master and all its executors, too")
    parser.add_argument("--no-broker", action="store_true", help="do not start an embedded broker")


def run(args: argparse.Namespace) -> int:
    """Print a row for each check; fail if a check failed."""
    from dskype.deploy.machine import connection, doctor

    where = target(args)
    bootstrap = connection.resolve_bootstrap(where.bootstrap_servers)
    more = []
    if where.master is not None:
        from dskype.deploy.machine.cluster_check import check_cluster

        more = [("cluster", lambda: check_cluster(where.master, bootstrap, where.conf))]
    rows = doctor.run_checks(
        bootstrap, client_options=connection.kafka_options(where.conf), start_broker=not args.no_broker, more=more, progress=say if args.verbose else None
    )
    print(json.dumps(doctor.as_json(rows), indent=2) if args.output == "json" else doctor.as_text(rows))
    return doctor.exit_code(rows)
