"""What benchmarks that simulate boolean subscriptions on many tasks have in common: the sizes as arguments, and a run of experiments with its report."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from dskype.deploy.cli.arguments import positive
from dskype.deploy.lab.corpus import Corpus, read_messages
from dskype.deploy.lab.report import Report, Results
from dskype.deploy.lab.tornado.simulation import RoutingScale
from dskype.deploy.machine.terminal import say

__all__ = ["add_scale_arguments", "run_and_report"]


def add_scale_arguments(parser: argparse.ArgumentParser, subscriptions: int) -> None:
    """Add the options that say how much is run, and where the report goes.

    :param subscriptions: how many there are by default.
    """
    parser.add_argument("--subscriptions", type=positive, metavar="N", default=subscriptions, help=f"default: {subscriptions}")
    parser.add_argument("--messages", type=positive, metavar="N", dest="count", default=16_384, help="messages to measure; default: 16384")
    parser.add_argument("--step", type=positive, metavar="N", default=4_096, help="messages that are routed and matched at a time; default: 4096")
    parser.add_argument("--sample", type=positive, metavar="N", default=20_000, help="subscriptions and messages to learn plans from; default: 20000")
    parser.add_argument("--repeat", type=positive, metavar="N", default=3, help="do everything N times, and take the least time of each step; default: 3")
    parser.add_argument("--folder", metavar="DIR", help="write a report, a table and plots there")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")


def run_and_report(
    args: argparse.Namespace, report: Report, experiments: Callable[[Corpus, RoutingScale], Results], grid: int = RoutingScale.grid, **described: Any
) -> int:
    """Read the messages, say how large the run is, run experiments, and show the report.

    :param args: from :func:`add_scale_arguments`, and the file of messages.
    :param experiments: runs them all.
    :param grid: columns and rows of the distributors' grids.
    :param described: what else the report says about the run.
    :returns: the exit code: 0; 1 if a match was missing or too much.
    """
    scale = RoutingScale(args.subscriptions, args.count, args.step, args.sample, args.repeat, grid=grid, seed=args.seed)
    corpus = read_messages(args)
    say(f"{len(corpus):,} messages of {corpus.source}; {scale.subscriptions:,} subscriptions, {scale.messages:,} messages, {scale.step:,} at a time")
    results = report.run(args, corpus, scale, lambda: experiments(corpus, scale), **described)
    wrong = sum(int(row.get("different", 0)) for e in results for row in e["rows"])
    if wrong:
        say(f"error: {wrong} matches are missing or too many")
    return 1 if wrong else 0
