"""``dskype bench ps2stream``: the experiments of PS2Stream (ICDE 2017, section VI) in a simulation."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dskype.bolts.boolean import INDEXES
from dskype.deploy.cli.arguments import output
from dskype.deploy.lab.as_in_paper import add_preset_argument, with_settings
from dskype.deploy.lab.corpus import Corpus, add_file_argument
from dskype.deploy.lab.experiments import Experiment, Found, add_only_argument, run_experiment
from dskype.deploy.lab.ps2stream import report as ps2stream_report
from dskype.deploy.lab.ps2stream.adjustment import AdjustmentBench, DriftRun, MigrationRun, SelectionRun
from dskype.deploy.lab.ps2stream.adjustment_experiments import ADJUSTMENTS
from dskype.deploy.lab.ps2stream.experiments import EXPERIMENTS, GROUPS, MemoryRun, Run
from dskype.deploy.lab.ps2stream.simulation import Method, RegionalWorkload, UpdatedSimulation, draw_group, learn
from dskype.deploy.lab.simulated import add_scale_arguments, run_and_report
from dskype.deploy.lab.tornado.simulation import RoutingScale
from dskype.deploy.machine.terminal import say
from dskype.distribution import DISTRIBUTORS
from dskype.distribution.base import Distributor
from dskype.distribution.hybrid.gridt_distributor import GridtDistributor
from dskype.distribution.trials import interest_of

__all__ = ["GRID", "Ps2streamBench", "add_arguments", "run", "run_experiments", "with_rows"]

GRID = 8192
"""Columns and rows of the grid over the messages: with cells of kilometres a city would be a single one, which nothing can divide by space."""

_SERIES = tuple(dict.fromkeys(row.series.split(", q")[0] for e in (*EXPERIMENTS, *ADJUSTMENTS) for row in e.rows))
"""Names of rows; those of dispatchers with many subscriptions begin with them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own options."""
    add_file_argument(parser)
    add_only_argument(parser, [*EXPERIMENTS, *ADJUSTMENTS])
    add_preset_argument(parser, "ps2stream")
    parser.add_argument(
        "--rows",
        metavar="NAME;...",
        type=_series,
        help=f"only rows with these names: {'; '.join(_SERIES)}; without a comma in a name ',' separates them, too. Claims about other rows cannot be told then",
    )
    parser.add_argument(
        "--groups", metavar="NAME,...", type=_groups, default=list(GROUPS), help=f"where rows are groups of subscriptions, only these: {', '.join(GROUPS)}"
    )
    add_scale_arguments(parser, 1_000_000)
    parser.add_argument("--index", choices=sorted(INDEXES), default="lanes", help="of each worker; default: lanes")
    output(parser)


def _series(text: str) -> list[str]:
    """Return the names of rows in the text of an argument, separated by ``;`` or, where no name has a comma, by ``,``.

    :raises argparse.ArgumentTypeError: there is no such row.
    """
    names = [part.strip() for part in text.split(";" if ";" in text else ",")]
    if unknown := [name for name in names if name not in _SERIES]:
        raise argparse.ArgumentTypeError(f"expected some of {'; '.join(_SERIES)}; given: {unknown[0]!r}")
    return names


def _groups(text: str) -> list[str]:
    """Return the groups of subscriptions in the text of an argument.

    :raises argparse.ArgumentTypeError: there is no such group.
    """
    names = [part.strip() for part in text.split(",")]
    if unknown := [name for name in names if name not in GROUPS]:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(GROUPS)}; given: {unknown[0]!r}")
    return names


def with_rows(experiment: Experiment, names: Sequence[str] | None, groups: Sequence[str]) -> Experiment:
    """Return an experiment with some of its rows.

    :param names: of rows; None: all.
    :param groups: rows with another group in place of a number are left out.
    """
    some = [row for row in experiment.rows if names is None or row.series.split(", q")[0] in names]
    return replace(experiment, rows=[row for row in some if row.x not in GROUPS or row.x in groups])


_QUICK = 1_000
"""A plan that is learned from so few subscriptions takes no time to speak of."""


class Ps2streamBench:
    """Runs settings, equal ones once, and says when something begins that may take minutes.

    :param index: name of the index of each worker.
    """

    def __init__(self, corpus: Corpus, scale: RoutingScale, index: str = "lanes") -> None:
        self.corpus, self.scale, self.index = corpus, scale, index
        self._found: dict[str, dict[str, Any]] = {}
        self._workload: tuple[Any, RegionalWorkload] | None = None
        self._warm: set[str] = set()
        self._adjustments = AdjustmentBench(corpus, scale, index)

    def missing(self, setting: Any) -> str | None:
        """Return why a setting cannot be run: there is no such distributor."""
        return None if setting.method.distributor in DISTRIBUTORS else f"distributor {setting.method.distributor!r} is not available"

    def run(self, setting: Any) -> dict[str, Any]:
        """Measure a setting.

        :returns: of a :class:`Run` what :class:`~dskype.deploy.lab.ps2stream.simulation.UpdatedSimulation` finds, ``measured`` (messages), ``learn_s``, and, of a
            plan with zones, their number ``zones``, and how many of them are ``divided`` by text; of a :class:`MemoryRun` ``dispatcher_mib`` and ``summary_pairs``; of load adjustment what
            :class:`~dskype.deploy.lab.ps2stream.adjustment.AdjustmentBench` finds; of all ``seconds``.
        """
        began = time.perf_counter()
        key = repr(setting)
        if key not in self._found:
            if isinstance(setting, SelectionRun | MigrationRun | DriftRun):
                self._found[key] = self._adjustments.run(setting)
            else:
                self._found[key] = self._memory(setting) if isinstance(setting, MemoryRun) else self._simulate(setting)
        return {**self._found[key], "seconds": time.perf_counter() - began}

    def workload(self, group: str, share: float = 1.0) -> RegionalWorkload:
        """Return the subscriptions and messages of a group."""
        if self._workload is None or self._workload[0] != (group, share):
            self._workload = None  # frees its memory first
            say(f"  drawing {group}: {round(share * self.scale.subscriptions):,} subscriptions, {self.scale.messages:,} messages")
            self._workload = (group, share), draw_group(self.corpus, group, replace(self.scale, subscriptions=max(1, round(share * self.scale.subscriptions))))
        return self._workload[1]

    def _learned(self, method: Method, workers: int, workload: RegionalWorkload) -> tuple[Distributor, dict[str, Any]]:
        began = time.perf_counter()
        if workload.sample.n > _QUICK:
            say(f"  learning a plan: {' '.join([method.distributor, *map(str, method.options.values())])} on {workers} workers")
        found = learn(method, workers, workload, self.scale.grid)
        measures: dict[str, Any] = {"learn_s": time.perf_counter() - began}
        if isinstance(found, GridtDistributor):
            measures |= {"zones": len(found.gridt.zones), "divided": sum(zone.divided for zone in found.gridt.zones)}
        return found, measures

    def _simulation(self, setting: Run, workload: RegionalWorkload, step: int, repeat: int) -> tuple[UpdatedSimulation, dict[str, Any]]:
        distributor, found = self._learned(setting.method, setting.workers, workload)
        summaries = distributor.summaries is not None and distributor.summarizes(setting.method.options)
        return UpdatedSimulation(workload, distributor, summaries, self.index, step, repeat), found

    def _simulate(self, setting: Run) -> dict[str, Any]:
        if repr(setting.method) not in self._warm:  # compile kernels first
            self._warm.add(repr(setting.method))
            small = draw_group(self.corpus, setting.group, replace(self.scale, subscriptions=500, messages=200, step=100, sample=200, repeat=1))
            self._simulation(setting, small, 100, 1)[0].run()
        simulation, found = self._simulation(setting, self.workload(setting.group, setting.share), self.scale.step, self.scale.repeat)
        return {**simulation.run(), **found, "measured": self.scale.messages}

    def _memory(self, setting: MemoryRun) -> dict[str, Any]:
        n = round(setting.millions * self.scale.subscriptions)
        few = replace(self.scale, subscriptions=n, messages=1)
        workload = draw_group(self.corpus, setting.group, few, matches=False)
        distributor, found = self._learned(setting.method, setting.workers, workload)
        interest = interest_of(distributor.regions(), workload.offsets, workload.terms, *distributor.place_all(workload.places)[:2])
        return {"dispatcher_mib": (distributor.memory_bytes + interest.memory_bytes) / 2**20, "summary_pairs": len(interest), "subscriptions": n, **found}


def run_experiments(experiments: Sequence[Experiment], bench: Ps2streamBench, progress: Callable[[str], None] = say) -> list[dict[str, Any]]:
    """Run experiments one after another.

    :returns: what :func:`~dskype.deploy.lab.experiments.run_experiment` returns, of each.
    """

    def tell(name: str, found: Found) -> None:
        rate = f"{found['throughput']:,.0f} tuples/s, {found['communication']:.3f} copies, " if "communication" in found else ""
        moved = f"{found['moved']:,} subscriptions moved, " if "moved" in found else ""
        memory = f"{found['dispatcher_mib']:.1f} MiB " if "dispatcher_mib" in found else ""
        progress(f"{name}: {rate}{moved}{memory}({found['seconds']:.1f} s)")

    return [run_experiment(experiment, bench.run, bench.missing, tell) for experiment in experiments]


def run(args: argparse.Namespace) -> int:
    """Measure; print tables or JSON, and write the report.

    :returns: 0; 1 if a match was missing or too much.
    """
    return run_and_report(
        args,
        ps2stream_report.REPORT,
        lambda corpus, scale: run_experiments(
            [with_rows(e, args.rows, args.groups) for e in with_settings(args.only, args)], Ps2streamBench(corpus, scale, args.index)
        ),
        GRID,
        index=args.index,
    )
