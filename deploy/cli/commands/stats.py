"""``dskype stats``: measure what a topology moves, costs and waits for."""

from __future__ import annotations

import argparse
import time

from dskype.deploy.cli.arguments import common, output, positive, positive_seconds, target
from dskype.deploy.machine import cluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from dskype.deploy.metrics.meter import WINDOW_S  # imported late: numpy comes with it

    common(parser)
    parser.add_argument("name", metavar="TOPOLOGY", nargs="?", help="default: the only one that runs")
    parser.add_argument(
        "--window", metavar="SECS", type=positive_seconds, default=WINDOW_S, help=f"rates, latency and balance of the last SECS; default: {WINDOW_S:g}"
    )
    parser.add_argument("--tasks", action="store_true", help="a line for every task (JSON always has them)")
    parser.add_argument("--watch", action="store_true", help="repeat until Ctrl-C; with -o json one object per line")
    parser.add_argument("-i", "--interval", metavar="SECS", type=positive_seconds, default=2, help="of --watch; default: 2")
    parser.add_argument("--count", metavar="N", type=positive, help="end --watch after N reports")
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the measurements, once or repeatedly."""
    from dskype.deploy.metrics.meter import Meter, measure
    from dskype.deploy.metrics.reader import MetricsReader, find
    from dskype.deploy.metrics.tables import Screen

    kafka = cluster.reach(target(args))
    about = find(kafka, args.name)
    source = MetricsReader(kafka, about["name"], Meter(args.window))
    try:
        source.catch_up()
        shown = 0
        with Screen(args.output == "json", args.watch, args.tasks) as screen:
            while True:
                screen.show(measure(source.sink, about, ends=source.ends(source.sink.positions())))
                shown += 1
                if not args.watch or shown == args.count:
                    return 0
                deadline = time.monotonic() + args.interval
                while (left := deadline - time.monotonic()) > 0:
                    source.poll(max(1, min(500, int(left * 1000))))
                about = find(kafka, about["name"])
    finally:
        source.close()
