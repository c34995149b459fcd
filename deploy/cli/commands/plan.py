"""``dskype plan``: say what a number of subscriptions and a rate of messages need, from measured costs."""

from __future__ import annotations

import argparse
import json
import math
from typing import TYPE_CHECKING

from dskype.deploy.cli.arguments import common, number, output, positive
from dskype.deploy.machine.terminal import put

if TYPE_CHECKING:
    from dskype.deploy.capacity.model import Bottleneck, Load, Need, Site

_above_zero = number("a number greater than 0")
_share = number("a share above 0, at most 1", most=1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser, kafka=False)
    parser.add_argument("--subscriptions", metavar="N", type=positive, required=True, help="how many subscriptions")
    parser.add_argument("--rate", metavar="R", type=_above_zero, required=True, help="messages per second")
    parser.add_argument("--kind", choices=("topk", "boolean"), default="topk", help="default: topk")
    parser.add_argument("-k", metavar="K", type=positive, default=20, help="entries of a list; default: 20")
    parser.add_argument("--window", metavar="SECS", type=_above_zero, default=3600, help="span of the window; default: 3600")
    parser.add_argument(
        "--results-per-message", metavar="X", type=_above_zero, help="results per message; default: as measured, by subscriptions, k and window"
    )
    host = parser.add_argument_group("the hosts")
    host.add_argument("--cores", metavar="N", type=positive, default=16, help="of a host; default: 16")
    host.add_argument("--memory", metavar="GB", type=_above_zero, default=64, help="of a host; default: 64")
    host.add_argument("--network", metavar="GBIT", type=_above_zero, default=10, help="of a host, Gbit/s; default: 10")
    host.add_argument("--full", metavar="SHARE", type=_share, default=0.6, help="how full cores, memory and network may be; default: 0.6")
    host.add_argument("--copies", metavar="N", type=positive, default=3, help="copies of each record in Kafka; default: 3")
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Print hosts, tasks, brokers, network and memory for each distributor, and what is full first."""
    from dskype.deploy.capacity.model import Load, Site, bottlenecks, choose

    load = Load(args.subscriptions, args.rate, args.kind, args.k, args.window, args.results_per_message)
    site = Site(args.cores, args.memory * 1e9, args.network * 1e9 / 8, args.full, args.copies)
    needs = choose(load, site)
    limits = bottlenecks(load, site, needs[0])
    if args.output == "json":
        document = {"distributors": [n._asdict() for n in needs], "bottlenecks": [b._asdict() for b in limits]}
        put(json.dumps(_finite(document), indent=2))
    else:
        put(as_text(load, site, needs, limits))
    return 0


def _finite(value: object) -> object:
    """Return a document with null for numbers that have no end, which JSON lacks."""
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(load: Load, site: Site, needs: list[Need], limits: list[Bottleneck]) -> str:
    """Return the lines that the command prints."""
    best = needs[0]
    rows = [
        ("distributor", *(n.distributor for n in needs)),
        ("worker hosts", *(_count(n.hosts) for n in needs)),
        ("brokers", *(_count(n.brokers) for n in needs)),
        ("cores at work, workers", *(_count(n.worker_cores) for n in needs)),
        ("cores at work, brokers", *(_count(n.broker_cores) for n in needs)),
        ("memory of workers, GB", *(_count(n.memory_bytes / 1e9) for n in needs)),
        ("into brokers, GB/s", *(_figure(n.broker_in_bytes / 1e9) for n in needs)),
        ("tasks: message spout", *(_count(n.spout_tasks) for n in needs)),
        ("tasks: distribution bolt", *(_count(n.distribution_tasks) for n in needs)),
        ("tasks: subscription bolt", *(_count(n.subscription_tasks) for n in needs)),
        ("tasks: message bolt", *(_count(n.message_tasks) for n in needs)),
        ("tasks: result bolt", *(_count(n.result_tasks) for n in needs)),
        ("tasks that get a message", *(_figure(n.tuples) for n in needs)),
        ("partitions of results", *(_count(n.result_partitions) for n in needs)),
        ("registration, minutes", *(_figure(n.registration_s / 60) for n in needs)),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    table = ["  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]) for row in rows]
    window = f", k = {load.k}, window of {load.window_s:,.0f} s" if load.kind == "topk" else ""
    return "\n".join(
        [
            f"{load.subscriptions:,} {load.kind} subscriptions, {load.rate:,.0f} messages/s{window}: {_figure(load.results)} results per message, {_count(best.results_per_s)}/s",
            f"hosts of {site.cores} cores, {site.memory_bytes / 1e9:,.0f} GB and {site.network_bytes * 8 / 1e9:,.0f} Gbit/s, {site.full:.0%} full; {site.copies} copies in Kafka",
            "",
            *table,
            "",
            f"fewest hosts and brokers: {best.distributor}",
            "what more hosts do not help, by the messages/s at which it is full:",
            *(f"  {_count(limit.rate):>12}  {limit.what}; {limit.way}" for limit in limits),
            "",
            "From the costs in docs/guides/scale.md, measured on one machine with two cores: a first estimate, to be replaced by a measurement of your own load.",
        ]
    )


def _count(value: float) -> str:
    return f"{math.ceil(value):,}" if math.isfinite(value) else "none is enough"


def _figure(value: float) -> str:
    return "-" if not math.isfinite(value) else f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 1 else f"{value:.2g}"
