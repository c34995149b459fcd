"""``dskype bench tornado --spark``: Figures 8 and 10 of Tornado on Spark and Kafka, with as many tasks as this machine can run.

The experiments are those of the simulation, with fewer points. Each point is a topology of its own with the distributor ``agrid``, and is measured like a row of ``dskype bench distribution --spark``.
Each component's tasks share the cores of this machine, so what an evaluator saves shows in its busy time, and less in the throughput.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dskype.deploy.cli.arguments import UsageError, positive, target
from dskype.deploy.lab.boolean.experiments import World
from dskype.deploy.lab.boolean.learning import boolean_sample
from dskype.deploy.lab.dskype import spark as distribution_spark
from dskype.deploy.lab.dskype.report import draw_lines
from dskype.deploy.lab.experiments import Claim, Experiment, Found, Row, Rows, run_experiment, steady, trend
from dskype.deploy.lab.ps2stream.simulation import Method
from dskype.deploy.lab.report import Report
from dskype.deploy.lab.system import throughput, throughput_report
from dskype.deploy.lab.tornado.experiments import EXPERIMENTS, TornadoSetting
from dskype.deploy.machine.signals import end_on_sigterm
from dskype.deploy.machine.terminal import say
from dskype.distribution.base import Sample

__all__ = ["REPORT", "add_arguments", "asked", "experiments", "run"]

_SERIES, _INDEX = "A-Grid", "lanes"
_EVALUATORS, _SECONDS = 4, 12
_POINTS: dict[str, Sequence[float]] = {"areas": (0.01, 0.5, 1.5), "keywords": (1, 3, 7), "queries": (0.5, 2.0, 4.0), "units": (1, 2, 4)}
"""Experiment -> the points that run on Spark. The first and the last one are those that claims compare."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the runs on Spark and Kafka."""
    spark = parser.add_argument_group("on Spark and Kafka")
    spark.add_argument(
        "--spark",
        action="store_true",
        help=f"run {', '.join(_POINTS)} on Spark and Kafka instead of the simulation, with --subscriptions, --seed, --folder and these options, on places",
    )
    spark.add_argument("--tasks", type=positive, metavar="N", default=_EVALUATORS, help=f"evaluators; default: {_EVALUATORS}")
    spark.add_argument("--seconds", type=positive, metavar="SECS", default=_SECONDS, help=f"how long to measure each point; default: {_SECONDS}")
    spark.add_argument(
        "--check",
        type=positive,
        metavar="N",
        default=distribution_spark.CHECK,
        help=f"subscriptions of each run whose results are compared with a plain computation; default: {distribution_spark.CHECK}",
    )


def _verified(found: Rows) -> tuple[bool, str]:
    problems = [problem for row in found.values() for problem in row["problems"]]
    return not problems, problems[0] if problems else f"{len(found)} runs"


def _on_spark(experiment: Experiment, evaluators: int) -> Experiment:
    """Return an experiment of the simulation with the points and claims that make sense on Spark."""
    rows = [
        Row(_SERIES, row.x, replace(row.setting, index=_INDEX, evaluators=evaluators))
        for row in experiment.rows
        if row.series == _SERIES and row.x in _POINTS[experiment.name]
    ]
    if experiment.name == "units":
        title = f"Number of routing units, with {evaluators} evaluators (Figure 10)"
        claims = [replace(trend("The throughput rises with the routing units", _SERIES, "throughput", 1, 0), why="all tasks share the cores of one machine")]
    else:
        title, claims = experiment.title, list(experiment.claims[:-1])  # without that of the simulation's matches
    if experiment.name == "areas":
        claims.append(steady("An evaluator's work is not affected by the size (checked: within a factor of 2)", _SERIES, "work_us", 2))
    return replace(experiment, title=title, rows=rows, claims=[*claims, Claim("What was verified equals a plain computation, without errors", _verified)])


def experiments(chosen: Sequence[Experiment], evaluators: int) -> list[Experiment]:
    """Return what runs on Spark of some experiments of the simulation; of all of them, those that can.

    :raises UsageError: one cannot run on Spark.
    """
    some = [e for e in chosen if e.name in _POINTS]
    if len(some) < len(chosen) < len(EXPERIMENTS):
        raise UsageError(f"--spark: expected --only with some of {', '.join(_POINTS)}; given: {next(e.name for e in chosen if e not in some)}")
    return [_on_spark(e, evaluators) for e in some]


def asked(args: argparse.Namespace, setting: TornadoSetting, plan: Path | None) -> argparse.Namespace:
    """Return the arguments of the throughput benchmark for one point."""
    world = setting.world
    assert world.space_share is not None
    sizes = {"boolean": True, "window": None, "subscriptions": max(1, round(args.subscriptions * world.subscriptions))}
    shape = ["--side", 100 * world.space_share, "--keywords", ",".join(map(str, world.keywords)), "--index", setting.index]
    method = Method(setting.method, setting.options)
    return distribution_spark.settings(
        argparse.Namespace(**{**vars(args), **sizes}), method, setting.evaluators, plan, *shape, "--tasks", f"distribution-bolt={setting.units}"
    )


class _Points:
    """Measures points.

    :param folder: for vocabulary, samples and plans.
    """

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args, self._where, self._folder = args, target(args), folder
        self._vocabulary: Path | None = None
        self._samples: dict[World, Sample] = {}

    def run(self, setting: TornadoSetting) -> dict[str, Any]:
        """Return the measures of a point, and ``problems`` and ``seconds``."""
        began, first, world = time.perf_counter(), asked(self._args, setting, None), setting.world
        say(f"{first.subscriptions[0]:,} subscriptions, sides of {first.side:g} %, {first.keywords[0]} keywords; {setting.units} routing units")
        if self._vocabulary is None:
            self._vocabulary = throughput.build_vocabulary(first, self._folder)
        if world not in self._samples:
            self._samples[world] = boolean_sample(first, self._vocabulary, self._folder)
        method = Method(setting.method, setting.options)
        plan = distribution_spark.learned_plan(method, setting.evaluators, self._samples[world], self._folder / "plan.json")
        found = distribution_spark.measured(self._where, asked(self._args, setting, plan), self._vocabulary)
        return {name: value for name, value in found.items() if value is not None} | {"seconds": time.perf_counter() - began}


def run(args: argparse.Namespace) -> int:
    """Measure; print tables or JSON, and write the report.

    :returns: 0; 1 if a run had problems, so that its figures cannot be trusted.
    :raises UsageError: an experiment or an option is for simulations.
    """
    if args.messages:
        raise UsageError(f"--spark: expected no FILE, because places are published; given: {args.messages}")
    chosen = experiments(args.only, args.tasks)
    end_on_sigterm()

    def tell(name: str, found: Found) -> None:
        say(f"{name}: {found['throughput']:,.0f} messages/s, {found['work_us']:.1f} us of evaluators ({found['seconds']:.0f} s)")

    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dskype-tornado-") as folder:
        points = _Points(args, Path(folder))
        results = [run_experiment(e, points.run, lambda _: None, tell) for e in chosen]
    sizes = {"subscriptions": args.subscriptions, "evaluators": args.tasks, "seconds_each": args.seconds, "seed": args.seed}
    REPORT.show({"machine": throughput_report.machine(), **sizes, "seconds": time.perf_counter() - began, "experiments": results}, args)
    problems = [f"{e['name']} {row['x']:g}: {problem}" for e in results for row in e["rows"] for problem in row["problems"]]
    for problem in problems:
        say(f"error: {problem}")
    return 1 if problems else 0


def _conditions(found: Found) -> list[str]:
    m = found["machine"]
    return [
        f"{found['subscriptions']:,} subscriptions, rectangles with sides of 0.5 % of the space's, 3 keywords, {found['evaluators']} evaluators and one routing unit unless varied; "
        f"places of GeoNames; index {_INDEX}; matches grouped by message",
        f"{m['cores']} cores of {m['processor']} for everything, broker and producer included; {found['seconds_each']} s each, {found['seconds']:.0f} s in all",
    ]


def _draw(experiment: Found, left: Any, right: Any) -> None:
    for axes, measure in ((left, "throughput"), (right, "work_us")):
        draw_lines(axes, experiment["rows"], measure)
        axes.set_xlabel(experiment["x"])
        axes.set_ylabel(distribution_spark.MEASURES[measure][0])


REPORT = Report(
    "Tornado on Spark and Kafka",
    "the paper says",
    distribution_spark.MEASURES,
    tuple(distribution_spark.MEASURES),
    {name: name for name in ("method", "index", "evaluators", "world", "units")},
    (*distribution_spark.MEASURES, "seconds"),
    _conditions,
    distribution_spark.LEGEND,
    _draw,
)
