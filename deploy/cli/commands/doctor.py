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
    parser.add_argument("--no-broker", action="store_true", help="do not start an embedded broker")


def run(args: argparse.Namespace) -> int:
    """Print a row for each check; fail if a check failed."""
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
