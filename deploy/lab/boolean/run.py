"""``dskype bench boolean``: the experiments of LAPS (KDD 2013), and of Tornado and PS2Stream for their local indexes FAST and GI2, on one core.

Times are CPU times of the process, so that others on the machine matter less. All indexes of an experiment get the same subscriptions and the same messages, and
what they find is compared pair by pair.
"""

from __future__ import annotations

import argparse
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dskype.bolts.boolean import INDEXES
from dskype.deploy.cli.arguments import output, positive, positive_seconds
from dskype.deploy.lab.as_in_paper import add_preset_argument
from dskype.deploy.lab.boolean import report as boolean_report
from dskype.deploy.lab.boolean.experiments import EXPERIMENTS, BooleanSetting, World
from dskype.deploy.lab.boolean.measure import BATCH, Measured, TooSlowError, options_over, warm_up, within
from dskype.deploy.lab.boolean.subscriptions import BooleanSubscriptions
from dskype.deploy.lab.boolean.workloads import BooleanIndexWorkload, draw_messages, draw_subscriptions, with_expressions, with_uniform_words
from dskype.deploy.lab.corpus import Corpus, add_file_argument, read_messages
from dskype.deploy.lab.experiments import Claim, Experiment, Found, LeftOutError, Rows, add_only_argument, run_experiment
from dskype.deploy.machine.terminal import say
from dskype.spouts.batch import MessageBatch

__all__ = ["BooleanBench", "BooleanScale", "add_arguments", "run", "run_experiments"]

_KEPT_BYTES = 2 << 30
"""Filled indexes are kept for other messages as long as they take no more."""

_MESSAGES = 8
"""Batches of messages are kept for other indexes as long as they are not more."""

_GROWTH = 1.6
"""What an index takes while it grows, as a multiple of what it takes."""

_COMPILING = 10
"""The time limit for compiling kernels, as a multiple of the time limit for filling an index."""

_COLUMNS_BYTES = 64
"""What the columns of a subscription take, beside the index."""


@dataclass(frozen=True)
class BooleanScale:
    """How large everything is.

    :ivar messages: how many are matched. It ends earlier when ``budget_s`` of CPU time are used up, but not before a batch of 256.
    :ivar limit_s: seconds that filling an index may take; one that takes longer is left out.
    """

    subscriptions: int = 100_000
    messages: int = 2048
    budget_s: float = 2.0
    limit_s: float = 900.0
    repeat: int = 1
    seed: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own options."""
    add_file_argument(parser)
    add_only_argument(parser, EXPERIMENTS)
    add_preset_argument(parser, "boolean")
    parser.add_argument(
        "--subscriptions",
        type=positive,
        metavar="N",
        default=100_000,
        help="default: 100000; one experiment has up to four times as many, as far as memory carries",
    )
    parser.add_argument("--messages", type=positive, metavar="N", dest="count", default=2048, help="messages that are matched; default: 2048")
    parser.add_argument("--budget", type=positive_seconds, metavar="S", default=2.0, help="CPU seconds for them at most, then the rest is left out; default: 2")
    parser.add_argument("--limit", type=positive_seconds, metavar="S", default=900.0, help="seconds to fill an index, else it is left out; default: 900")
    parser.add_argument("--repeat", type=positive, metavar="N", default=1, help="match everything N times, and take the fastest; default: 1")
    parser.add_argument("--folder", metavar="DIR", help="write a report, a table and plots there")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    output(parser)


class BooleanBench:
    """Runs settings, equal ones once. Settings with the same subscriptions share one filled index."""

    def __init__(self, corpus: Corpus, scale: BooleanScale) -> None:
        self.corpus, self.scale = corpus, scale
        self._uniform: Corpus | None = None
        self._found: dict[str, dict[str, Any]] = {}
        self._filled: OrderedDict[str, Measured] = OrderedDict()
        self._subscriptions: tuple[str, BooleanSubscriptions] | None = None
        self._messages: OrderedDict[tuple[Any, ...], MessageBatch] = OrderedDict()
        self._warm: set[tuple[Any, ...]] = set()
        self._bytes: dict[str, float] = {}

    def missing(self, setting: BooleanSetting) -> str | None:
        """Return why a setting cannot be run: no such index, no such option, or too little memory."""
        if setting.index not in INDEXES:
            return f"index {setting.index!r} is not available"
        if unknown := [name for name in setting.options if name not in INDEXES[setting.index].OPTIONS]:
            return f"index {setting.index!r} has no option {unknown[0]!r}"
        n = self._count(setting.world)
        needed = n * (_GROWTH * self._bytes.get(setting.index, 0.0) + _COLUMNS_BYTES)
        if n > 1_000_000 and needed > (available := _available_bytes() + sum(i.index.memory_bytes for i in self._filled.values())):
            return f"{n:,} subscriptions would take {needed / 2**30:.0f} GiB, {available / 2**30:.0f} are free"
        return None

    def run(self, setting: BooleanSetting) -> dict[str, Any]:
        """Measure a setting.

        :returns: what :class:`~dskype.deploy.lab.boolean.measure.Measured` finds, ``longest_ms`` (of a call with 256 inserts or removals), ``subscriptions``,
            ``digests`` (of the matches of each batch), ``world`` (what they follow from) and ``seconds`` (of the run).
        """
        if setting.key not in self._found:
            began = time.perf_counter()
            try:
                with within(_COMPILING * self.scale.limit_s):
                    self._compile(setting)
                with within(self.scale.limit_s):
                    index = self._fill(setting)
            except TooSlowError:
                raise LeftOutError(f"it was not filled within {self.scale.limit_s:g} s") from None
            if setting.removed:
                index.remove(setting.removed, self.scale.seed)
            if setting.updates:
                index.match_between(setting.updates, self.scale.budget_s, self.scale.seed)
            else:
                for _ in range(self.scale.repeat):
                    index.match(self.scale.budget_s)
            index.single(self.scale.budget_s / 4)
            longest = max(index.found[f"longest_{call}_ms"] for call in ("insert", "again", "remove"))
            world = repr((setting.world, setting.removed, setting.updates))
            self._found[setting.key] = {
                **index.found,
                "bytes": index.bytes_each,
                "longest_ms": longest,
                "subscriptions": len(index.index),
                "digests": list(index.digests),
                "world": world,
                "seconds": time.perf_counter() - began,
            }
        return self._found[setting.key]

    # -- filling --------------------------------------------------------------------------------------------------------

    def _compile(self, setting: BooleanSetting) -> None:
        """Do everything once with few subscriptions; points and areas, and words and expressions, have kernels of their own."""
        kind = (setting.index, repr(setting.options), setting.world.areas, setting.world.expressions)
        if kind not in self._warm:
            few = replace(setting.world, subscriptions=min(1.0, 2_000 / self.scale.subscriptions))
            warm_up(setting.index, self._workload(few), self._options(setting))
            self._warm.add(kind)

    def _fill(self, setting: BooleanSetting) -> Measured:
        """Return an index with the subscriptions of a setting, and its messages."""
        changed = bool(setting.removed or setting.updates)
        own = repr((setting.index, setting.options, _registered(setting.world)))
        workload = self._workload(setting.world)
        if not changed and own in self._filled:
            self._filled.move_to_end(own)
            filled = self._filled[own]
            filled.take_messages(workload.messages)
            return filled
        index = Measured(setting.index, workload, self._options(setting))
        index.change(self.scale.seed)
        self._bytes[setting.index] = max(self._bytes.get(setting.index, 0.0), index.found["bytes"])
        if not changed:
            self._filled[own] = index
            while len(self._filled) > 1 and sum(i.index.memory_bytes for i in self._filled.values()) > _KEPT_BYTES:
                self._filled.popitem(last=False)
        return index

    def _options(self, setting: BooleanSetting) -> dict[str, Any]:
        return options_over(setting.index, self.corpus.lat, self.corpus.lon, setting.options)

    def _count(self, world: World) -> int:
        return max(1, round(self.scale.subscriptions * world.subscriptions))

    def _workload(self, world: World) -> BooleanIndexWorkload:
        corpus = self.corpus
        if world.uniform:
            self._uniform = self._uniform or with_uniform_words(corpus, self.scale.seed)
            corpus = self._uniform
        key = repr(_registered(world))
        if self._subscriptions is None or self._subscriptions[0] != key:
            rng = np.random.default_rng([self.scale.seed, 7])
            drawn = draw_subscriptions(
                corpus,
                self._count(world),
                rng,
                km=world.km,
                log=world.log,
                space_share=world.space_share,
                keywords=world.keywords,
                rarest_share=world.rarest_share,
            )
            self._subscriptions = key, with_expressions(drawn, rng) if world.expressions else drawn
        messages = self._messages.get(wanted := (world.words, (*world.km, world.log) if world.areas else None, world.uniform))
        if messages is None:
            rng = np.random.default_rng([self.scale.seed, 11])
            messages = self._messages[wanted] = draw_messages(corpus, self.scale.messages, rng, words=world.words, area_km=wanted[1])
            if len(self._messages) > _MESSAGES:
                self._messages.popitem(last=False)
        return BooleanIndexWorkload("", self._subscriptions[1], messages)


def _registered(world: World) -> World:
    """Return what of a world its subscriptions depend on."""
    return replace(world, words=None, areas=False)


def _available_bytes() -> int:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) << 10


def _agree() -> Claim:
    """Claim that all rows about the same subscriptions and messages found the same matches."""

    def check(found: Rows) -> tuple[bool, str]:
        compared, wrong = 0, []
        first: dict[str, tuple[str, list[str]]] = {}
        for (name, x), row in found.items():
            if row["world"] not in first:
                first[row["world"]] = name, row["digests"]
                continue
            other, digests = first[row["world"]]
            common = min(len(digests), len(row["digests"]))
            if row["digests"][:common] != digests[:common]:
                wrong.append(f"{name} and {other}{'' if x is None else f' at {x:g}'}")
            if len(row["digests"]) > len(digests):
                first[row["world"]] = name, row["digests"]
            compared += common
        return not wrong, f"{compared:,} batches compared" + (f"; different: {', '.join(wrong)}" if wrong else "")

    return Claim("All indexes find the same", check)


def run_experiments(experiments: list[Experiment], bench: BooleanBench, progress: Callable[[str], None] = say) -> list[dict[str, Any]]:
    """Run experiments one after another, each with the claim that all indexes find the same.

    :returns: what :func:`~dskype.deploy.lab.experiments.run_experiment` returns, of each.
    """

    def tell(name: str, found: Found) -> None:
        progress(f"{name}: {found['message_us']:,.2f} us per message, {found['matches']:,.1f} matches ({found['seconds']:.1f} s)")

    results = []
    for experiment in experiments:
        whole = replace(experiment, claims=[*experiment.claims, _agree()])
        result = run_experiment(whole, bench.run, bench.missing, tell)
        for row in result["rows"]:
            del row["digests"], row["world"]
        results.append(result)
    return results


def run(args: argparse.Namespace) -> int:
    """Measure; print tables or JSON, and write the report."""
    scale = BooleanScale(args.subscriptions, args.count, args.budget, args.limit, args.repeat, args.seed)
    corpus = read_messages(args)
    say(f"{len(corpus):,} messages of {corpus.source}; {scale.subscriptions:,} subscriptions, {scale.messages:,} messages in batches of {BATCH}")
    boolean_report.REPORT.run(args, corpus, scale, lambda: run_experiments(args.only, BooleanBench(corpus, scale)))
    return 0
