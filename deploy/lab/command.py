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
    actions.add("throughput", _runner("system.throughput"), "measure throughput and latency by the number of subscriptions", _filler("system.throughput"))
    actions.add("generate", _runner("generate"), "write messages with the statistics of the papers' data sets", _filler("generate", cluster=False))
    actions.add("skype", _runner("skype.run"), "repeat the experiments of the Skype paper on one core", _filler("skype.run", cluster=False))
    actions.add(
        "boolean", _runner("boolean.run"), "repeat the experiments of LAPS, Tornado and PS2Stream on boolean indexes", _filler("boolean.run", cluster=False)
    )
    actions.add("distances", _runner("topk.distances"), "measure what distances in metres cost top-k subscriptions", _filler("topk.distances", cluster=False))
    actions.add("filters", _runner("boolean.filters"), "measure what filters add to boolean subscriptions", _filler("boolean.filters", cluster=False))
    actions.add("monitor", _runner("boolean.lucene"), "compare boolean subscriptions with Lucene's monitor", _filler("boolean.lucene", cluster=False))
    actions.add("regions", _runner("boolean.regions"), "measure how long regions of subscriptions take to decide", _filler("boolean.regions", cluster=False))
    actions.add(
        "balancing",
        _runner("tornado.balancing"),
        "simulate the load balancing of Tornado under a hotspot that moves",
        _filler("tornado.balancing", cluster=False),
    )
    actions.add(
        "tornado",
        _runner("tornado.run"),
        "repeat the experiments of Tornado in simulations of up to 128 evaluators, some of them on Spark",
        _filler("tornado.run"),
    )
    actions.add(
        "ps2stream", _runner("ps2stream.run"), "repeat the experiments of PS2Stream on partitioning in a simulation", _filler("ps2stream.run", cluster=False)
    )
    actions.add("distribution", _runner("dskype.run"), "repeat the evaluation of the distribution mechanisms", _filler("dskype.run"))
    actions.add("moves", _runner("system.moves"), "measure Tornado and PS2Stream on Spark while partitions move, by hand and by load", _filler("system.moves"))
    actions.add("moving", _runner("system.moving"), "measure updates of moving objects and how late geofences report them", _filler("system.moving"))
    actions.add("cluster", _runner("system.cluster"), "measure DSkype on a Spark standalone cluster of one, two and three workers", _filler("system.cluster"))
    actions.add("scoreboard", _runner("scoreboard"), "show how the papers' claims stand, from result files", _filler("scoreboard", cluster=False))
    actions.add(
        "routing", _runner("tornado.routing"), "measure how long an A-Grid takes to route points and rectangles", _filler("tornado.routing", cluster=False)
    )


def _load(module: str) -> Any:
    return importlib.import_module(f"dskype.deploy.lab.{module}")


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
