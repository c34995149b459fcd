"""``dskype bench tornado``: the experiments of Tornado (SIGSPATIAL 2018, section 5), in simulations of up to 128 evaluators.

With ``--spark`` some of them run on Spark and Kafka instead (:mod:`~dskype.deploy.lab.tornado.spark`). Three simulations take part: that of routing (:mod:`~dskype.deploy.lab.tornado.simulation`), that of routers alone
(:mod:`~dskype.deploy.lab.tornado.routing`), and that of load balancing (:mod:`~dskype.deploy.lab.tornado.balancing_simulation`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dskype.bolts.boolean import INDEXES
from dskype.deploy.cli.arguments import UsageError, output, positive
from dskype.deploy.lab.as_in_paper import add_preset_argument, with_settings
from dskype.deploy.lab.boolean.experiments import World
from dskype.deploy.lab.corpus import Corpus, add_file_argument
from dskype.deploy.lab.experiments import Experiment, Found, add_only_argument, run_experiment
from dskype.deploy.lab.simulated import add_scale_arguments, run_and_report
from dskype.deploy.lab.tornado import report as tornado_report
from dskype.deploy.lab.tornado import routing
from dskype.deploy.lab.tornado import spark as tornado_spark
from dskype.deploy.lab.tornado.balancing import measures
from dskype.deploy.lab.tornado.balancing_simulation import BalancingSetting, simulate
from dskype.deploy.lab.tornado.balancing_workload import WorkloadSetting, play
from dskype.deploy.lab.tornado.experiments import EXPERIMENTS, BalancingRun, MapRun, RoutersRun, TornadoSetting
from dskype.deploy.lab.tornado.simulation import ROUTED, BooleanSimulation, BooleanWorkload, RoutingScale, draw_workload
from dskype.deploy.machine.terminal import say
from dskype.distribution import DISTRIBUTORS
from dskype.distribution.base import Distributor

__all__ = ["TornadoBench", "add_arguments", "run", "run_experiments"]

_DRAWN = 1_500
"""Messages on a map."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own options."""
    add_file_argument(parser)
    add_only_argument(parser, EXPERIMENTS)
    add_preset_argument(parser, "tornado")
    add_scale_arguments(parser, 100_000)
    parser.add_argument("--rate", type=positive, metavar="N", default=20_000, help="balancing: messages per second; default: 20000")
    tornado_spark.add_arguments(parser)
    output(parser)


class TornadoBench:
    """Runs settings, equal ones once.

    :param balancing: the workload of load balancing; each run has a hotspot of its own size.
    """

    def __init__(self, corpus: Corpus, scale: RoutingScale, balancing: WorkloadSetting) -> None:
        self.corpus, self.scale, self.balancing = corpus, scale, balancing
        self._found: dict[Any, Any] = {}
        self._workload: tuple[World, BooleanWorkload] | None = None
        self._plans: dict[Any, Any] = {}
        self._warm: set[tuple[str, str]] = set()

    def missing(self, setting: Any) -> str | None:
        """Return why a setting cannot be run: no such distributor or index."""
        if not isinstance(setting, TornadoSetting):
            return None
        if setting.method not in DISTRIBUTORS and setting.method not in ROUTED:
            return f"distributor {setting.method!r} is not available"
        return None if setting.index in INDEXES else f"index {setting.index!r} is not available"

    def run(self, setting: Any) -> dict[str, Any]:
        """Measure a setting.

        :returns: of a :class:`TornadoSetting` what :class:`~dskype.deploy.lab.tornado.simulation.BooleanSimulation` finds, ``measured`` (messages) and ``system_per_s``
            (messages/s that its routing units and the busiest evaluator can do), and ``latency_ms`` with its routing units, each of which has a part of a step; of a :class:`RoutersRun` ``routing_us``, ``router_bytes`` and ``equal`` (whether all routers find the
            same); of a :class:`BalancingRun` ``per_load`` (messages per unit of the busiest evaluator's load) and what
            :func:`~dskype.deploy.lab.tornado.balancing.measures` finds; of a :class:`MapRun` the cells of the smallest and of the largest partition. All of them have
            ``seconds``.
        """
        began = time.perf_counter()
        runners: dict[type, Callable[[Any], dict[str, Any]]] = {
            TornadoSetting: self._route,
            RoutersRun: self._routers,
            BalancingRun: self._balance,
            MapRun: self._map,
        }
        return {**runners[type(setting)](setting), "seconds": time.perf_counter() - began}

    # -- routing ----------------------------------------------------------------------------------

    def _route(self, setting: TornadoSetting) -> dict[str, Any]:
        if setting.key not in self._found:
            if (kind := (setting.method, setting.index)) not in self._warm:  # compile kernels first
                self._warm.add(kind)
                small = replace(self.scale, subscriptions=500, messages=200, step=100, sample=200, repeat=1)
                self._simulation(setting, draw_workload(self.corpus, setting.world, small), small, {}).run()
            self._found[setting.key] = self._simulation(setting, self.workload(setting.world), self.scale, self._plans).run()
        found = self._found[setting.key]
        return {
            **found,
            "measured": self.scale.messages,
            "system_per_s": min(setting.units * found["distribution_per_s"], found["throughput"]),
            "latency_ms": found["latency_ms"] - found["routing_ms"] * (1 - 1 / setting.units),
        }

    def workload(self, world: World) -> BooleanWorkload:
        """Return the subscriptions and messages of a world."""
        if self._workload is None or self._workload[0] != world:
            self._workload = world, draw_workload(self.corpus, world, self.scale)
        return self._workload[1]

    def _simulation(self, setting: TornadoSetting, workload: BooleanWorkload, scale: RoutingScale, plans: dict[Any, Any]) -> BooleanSimulation:
        kind: type[Distributor] = ROUTED[setting.method] if setting.method in ROUTED else DISTRIBUTORS[setting.method]
        legal: Sequence[str] = getattr(kind, "legal_options", ())
        known = {"granularity": self.scale.grid, "subscriptions": workload.subscriptions.n}
        options = {**{name: value for name, value in known.items() if name in legal}, **setting.options}
        key = setting.method, setting.evaluators, setting.world
        if key not in plans:
            plans[key] = kind.learn(setting.evaluators, workload.sample, options)
        summaries = kind.summaries is not None and kind.summarizes(options)
        return BooleanSimulation(workload, kind(setting.evaluators, options, plans[key]), summaries, setting.index, scale.step, scale.repeat)

    def _routers(self, setting: RoutersRun) -> dict[str, Any]:
        key = "routers", setting.partitions
        if key not in self._found:
            some = slice(self.scale.places)
            arguments = self.corpus.lat[some], self.corpus.lon[some], setting.partitions, [self.scale.grid], self.scale.repeat + 1, self.scale.seed
            self._found[key] = routing.compare(self.corpus.source, *arguments)
        found = self._found[key]
        row = next(row for row in found["rows"] if row["router"] == setting.router)
        return {"routing_us": row["us"]["point" if setting.side is None else f"{setting.side:.1%}"], "router_bytes": row["bytes"], "equal": found["equal"]}

    # -- balancing --------------------------------------------------------------------------------

    def _simulated(self, setting: BalancingSetting) -> dict[str, Any]:
        key = repr(setting)
        if key not in self._found:
            self._found[key] = simulate(self.corpus, setting)
        return self._found[key]

    def _balance(self, setting: BalancingRun) -> dict[str, Any]:
        adaptive = BalancingSetting(setting.evaluators, workload=replace(self.balancing, hot_scale=setting.scale))
        static = replace(adaptive, adaptive=False)
        own = self._simulated(adaptive if setting.adaptive else static)
        found = measures(adaptive, self._simulated(adaptive), self._simulated(static))
        if not setting.adaptive:
            found = {"later": found["static"], "sent_bytes": 0.0}
        hot = np.array(own["phase"]) > 0
        timeline = {name: own[name] for name in ("throughput", "phase", "sent_bytes", "centralized_bytes")}
        return {**found, "per_load": float(1 / np.mean(1 / np.array(own["throughput"])[hot])), "timeline": timeline}

    def _map(self, setting: MapRun) -> dict[str, Any]:
        found = self._simulated(BalancingSetting(setting.evaluators, workload=self.balancing))
        boxes = np.array(list(found["boxes"][setting.phase].values()))
        cells = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        second = next(second for second in play(self.corpus, self.balancing) if second.phase == setting.phase)
        places = second.places[:_DRAWN].round(4).tolist()
        return {"cells_least": int(cells.min()), "cells_most": int(cells.max()), "boxes": (boxes / self.balancing.grid).round(6).tolist(), "places": places}


def run_experiments(experiments: Sequence[Experiment], bench: TornadoBench, progress: Callable[[str], None] = say) -> list[dict[str, Any]]:
    """Run experiments one after another.

    :returns: what :func:`~dskype.deploy.lab.experiments.run_experiment` returns, of each.
    """

    def tell(name: str, found: Found) -> None:
        rate = f"{found['throughput']:,.0f} messages/s, {found['communication']:.3f} tuples " if "communication" in found else ""
        progress(f"{name}: {rate}({found['seconds']:.1f} s)")

    return [run_experiment(experiment, bench.run, bench.missing, tell) for experiment in experiments]


def run(args: argparse.Namespace) -> int:
    """Measure; print tables or JSON, and write the report.

    :returns: 0; 1 if a match was missing or too much, or a run on Spark failed.
    """
    if args.spark:
        if args.as_in_paper is not None:
            raise UsageError("--as-in-paper is for the simulation; given with it: --spark")
        return tornado_spark.run(args)
    balancing = WorkloadSetting(grid=2 * RoutingScale.grid, messages_per_s=args.rate, subscriptions=min(args.subscriptions, 20_000), seed=args.seed)
    return run_and_report(
        args,
        tornado_report.REPORT,
        lambda corpus, scale: run_experiments(with_settings(args.only, args), TornadoBench(corpus, scale, balancing)),
        balancing=vars(balancing),
    )
