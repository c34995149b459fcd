"""``dskype bench``: run a benchmark."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

from dskype.deploy.cli.arguments import Actions, common

__all__ = ["add_arguments"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions; the module of each is imported when it is called."""
    actions = Actions(parser)
    actions.add("throughput", _runner("throughput"), "measure throughput and latency by the number of subscriptions", _filler("throughput"))
    actions.add("skype", _runner("papers.skype"), "repeat the experiments of the Skype paper on one core", _filler("papers.skype", cluster=False))
    actions.add(
        "boolean",
        _runner("papers.boolean"),
        "repeat the experiments of LAPS, Tornado and PS2Stream on boolean indexes",
        _filler("papers.boolean", cluster=False),
    )
    actions.add(
        "balancing",
        _runner("papers.balancing"),
        "simulate the load balancing of Tornado under a hotspot that moves",
        _filler("papers.balancing", cluster=False),
    )
    actions.add(
        "tornado",
        _runner("papers.tornado"),
        "repeat the experiments of Tornado in simulations of up to 128 evaluators, some of them on Spark",
        _filler("papers.tornado"),
    )
    actions.add(
        "ps2stream",
        _runner("papers.ps2stream"),
        "repeat the experiments of PS2Stream on partitioning in a simulation",
        _filler("papers.ps2stream", cluster=False),
    )
    actions.add("distribution", _runner("papers.distribution"), "repeat the evaluation of the distribution mechanisms", _filler("papers.distribution"))
    actions.add("moves", _runner("moves"), "measure Tornado and PS2Stream on Spark while partitions move, by hand and by load", _filler("moves"))
    actions.add("cluster", _runner("cluster"), "measure DSkype on a Spark standalone cluster of one, two and three workers", _filler("cluster"))
    actions.add("routing", _runner("routing"), "measure how long an A-Grid takes to route points and rectangles", _filler("routing", cluster=False))


def _load(module: str) -> Any:
    return importlib.import_module(f"dskype.deploy.benchmarks.{module}")


def _runner(module: str) -> Callable[[argparse.Namespace], int]:
    return lambda args: _load(module).run(args) or 0


def _filler(module: str, cluster: bool = True) -> Callable[[argparse.ArgumentParser], None]:
    def fill(parser: argparse.ArgumentParser) -> None:
        if cluster:
            common(parser)
        else:
            parser.add_argument("--verbose", action="store_true", help="show tracebacks and log lines")
        _load(module).add_arguments(parser)

    return fill
