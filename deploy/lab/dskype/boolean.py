"""``dskype bench distribution --boolean``: all distributors on the workloads of PS2Stream, for some numbers of tasks.

The simulation is that of ``dskype bench ps2stream``: general expressions, and one update for five messages.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from dskype.deploy.cli.arguments import UsageError
from dskype.deploy.lab.experiments import Claim, Experiment, Row, Rows, ratio
from dskype.deploy.lab.ps2stream import report as ps2stream_report
from dskype.deploy.lab.ps2stream.experiments import EXACT, GROUPS, Run
from dskype.deploy.lab.ps2stream.run import GRID, Ps2streamBench, run_experiments
from dskype.deploy.lab.ps2stream.simulation import Method
from dskype.deploy.lab.simulated import run_and_report

__all__ = ["METHODS", "PRODUCTION", "TASKS", "experiments", "run"]

METHODS: dict[str, Method] = {
    **{name: Method(name) for name in ("hashing", "location", "keyword", "prefix", "spatial-first", "keyword-first", "agrid", "hybrid", "text-routing")},
    **{f"text: {name}": Method("text-partitioning", {"method": name, "summaries": False}) for name in ("frequency", "hypergraph", "metric")},
    **{f"space: {name}": Method("space-partitioning", {"method": name, "summaries": False}) for name in ("grid", "kd-tree", "r-tree")},
}
"""Series -> distributor and options. Partitioning by text and by space is as PS2Stream has it: without summaries."""

TASKS = (8, 32)
"""Numbers of tasks by default."""

PRODUCTION = ("hashing", "location", "keyword", "prefix", "spatial-first", "keyword-first", "agrid", "hybrid")
"""What topologies use; the others are baselines."""


def _near_the_best(group: str) -> Claim:
    """Claim that hybrid partitioning reaches nearly the best throughput."""

    def check(found: Rows) -> tuple[bool, str]:
        own = found["hybrid", group]["throughput"]
        best, name = max((row["throughput"], series) for (series, x), row in found.items() if x == group and series != "hybrid")
        return own >= 0.95 * best, f"hybrid {own:,.0f} : {name} {best:,.0f} = {ratio(own, best):.2f}"

    return Claim(f"On {group} hybrid partitioning reaches 0.95 of the best throughput", check)


def _fewest_messages(group: str) -> Claim:
    """Claim that no production distributor sends less than the A-Grid or hybrid partitioning."""

    def check(found: Rows) -> tuple[bool, str]:
        values = sorted((found[name, group]["communication"], name) for name in PRODUCTION)
        return values[0][1] in ("agrid", "hybrid"), ", ".join(f"{name} {value:,.2f}" for value, name in values[:3])

    return Claim(f"On {group} the A-Grid or hybrid partitioning sends the fewest messages", check)


def experiments(tasks: Sequence[int] = TASKS) -> list[Experiment]:
    """Return an experiment for each number of tasks."""
    return [
        Experiment(
            f"boolean-{n}",
            f"Boolean subscriptions on {n} tasks",
            "subscriptions",
            [Row(name, group, Run(method, group, n)) for group in GROUPS for name, method in METHODS.items()],
            [*map(_near_the_best, GROUPS), *map(_fewest_messages, GROUPS), EXACT],
            "communication",
        )
        for n in tasks
    ]


def run(args: argparse.Namespace) -> int:
    """Measure; print tables or JSON, and write the report.

    :returns: 0; 1 if a match was missing or too much.
    :raises UsageError: more than one file is named, or an option is for another comparison.
    """
    if args.only or args.data or args.window or args.warm_up:
        raise UsageError("--boolean: expected none of --only, --data, --window and --warm-up; they are for top-k subscriptions")
    if len(args.messages) > 1:
        raise UsageError(f"FILE: expected one file of messages with --boolean; given: {', '.join(args.messages)}")
    sizes = {"count": args.arrivals or 16_384, "subscriptions": args.subscriptions or (1_000_000 if args.full else 100_000), "sample": args.sample or 20_000}
    given = argparse.Namespace(**{**vars(args), **sizes, "messages": args.messages[0] if args.messages else None, "step": 4_096})
    report = replace(ps2stream_report.REPORT, title="Distributors of boolean subscriptions", claims="expected")
    chosen = experiments(args.tasks or TASKS)
    return run_and_report(given, report, lambda corpus, scale: run_experiments(chosen, Ps2streamBench(corpus, scale)), GRID, index="lanes")
