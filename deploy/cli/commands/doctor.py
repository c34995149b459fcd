"""``dskype doctor``: check what a topology needs on this machine."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from dskype.deploy.cli.arguments import common, output, target
from dskype.deploy.machine.terminal import say

if TYPE_CHECKING:
    from dskype.deploy.machine.doctor import Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    output(parser)
    parser.add_argument("--master", metavar="URL", help="check this Spark master and all its executors, too")
    parser.add_argument("--no-broker", action="store_true", help="do not start an embedded broker")


def _kernels() -> list[Row]:
    """Tell whether the first messages of a topology have to wait for compilers."""
    from dskype.deploy.cli import warmup
    from dskype.deploy.machine.doctor import OK, WARN, Row
    from dskype.deploy.machine.extras import missing_for_topologies

    if missing_for_topologies():
        return []  # the row of packages says so
    if warmup.are_compiled():
        return [Row("kernels", OK, "those of dskype.yaml are compiled")]
    words = "some are not compiled for this version and processor: the next start compiles them first, which takes up to minutes, and says so"
    return [Row("kernels", WARN, words, "python -m dskype.deploy.cli.prepare")]


def run(args: argparse.Namespace) -> int:
    """Print a row for each check; fail if a check failed."""
    from dskype.deploy.machine import connection, doctor

    where = target(args)
    bootstrap = connection.resolve_bootstrap(where.bootstrap_servers)
    more = [("kernels", _kernels)]
    if where.master is not None:
        from dskype.deploy.machine.cluster_check import check_cluster

        more += [("cluster", lambda: check_cluster(where.master, bootstrap, where.conf))]
    rows = doctor.run_checks(
        bootstrap, client_options=connection.kafka_options(where.conf), start_broker=not args.no_broker, more=more, progress=say if args.verbose else None
    )
    print(json.dumps(doctor.as_json(rows), indent=2) if args.output == "json" else doctor.as_text(rows))
    return doctor.exit_code(rows)
