"""``dskype bench skype``: repeat the experiments of the Skype paper (section 7 of VLDB 2016, 8.1 of its journal version) on one core.

Two times are measured per message: *AMP*, of a message that arrives (finding subscriptions, their buffers, the index of messages), and *EMP*, of
a message that expires (buffers, and all re-evaluations). They are CPU times, so that other processes matter less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dskype.bolts.topk.engine import BUFFERS, INDEXES
from dskype.bolts.window.base import WINDOWS
from dskype.deploy.cli.arguments import UsageError, output, positive
from dskype.deploy.lab.as_in_paper import add_preset_argument
from dskype.deploy.lab.comparing import clocked
from dskype.deploy.lab.corpus import Corpus, add_file_argument, read_messages
from dskype.deploy.lab.experiments import Found, add_only_argument, run_experiment
from dskype.deploy.lab.skype import report as skype_report
from dskype.deploy.lab.skype.check import different
from dskype.deploy.lab.skype.engine import Known, SkypeScale, prepare
from dskype.deploy.lab.skype.experiments import EXPERIMENTS, Experiment, SkypeSetting
from dskype.deploy.lab.skype.workload import Stream, draw_subscriptions
from dskype.deploy.machine.terminal import say

__all__ = ["SkypeBench", "add_arguments", "measure", "run", "run_experiments"]

_SAMPLES = 8
_CHECK = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own options."""
    add_file_argument(parser)
    add_only_argument(parser, EXPERIMENTS)
    add_preset_argument(parser, "skype")
    parser.add_argument("--subscriptions", type=positive, metavar="N", default=50_000, help="default: 50000")
    parser.add_argument("--window", type=positive, metavar="N", default=50_000, help="messages in the window; default: 50000")
    parser.add_argument("--arrivals", type=positive, metavar="N", default=5_000, help="messages to measure; default: 5000")
    parser.add_argument("--warm-up", type=int, metavar="N", help="messages before them; default: as many as the window has")
    parser.add_argument("--repeat", type=positive, metavar="N", default=1, help="run every setting N times, and use the fastest run; default: 1")
    parser.add_argument(
        "--check",
        type=positive,
        metavar="N",
        default=_CHECK,
        help=f"subscriptions per run whose lists are compared with a plain computation; default: {_CHECK}",
    )
    parser.add_argument("--folder", metavar="DIR", help="write a report, a table and plots there")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    output(parser)


def measure(setting: SkypeSetting, corpus: Corpus, scale: SkypeScale, known: Known | None = None, check: int = _CHECK) -> dict[str, Any]:
    """Run one setting, and return its measures.

    The window is filled, all subscriptions are registered, ``scale.warm_up`` messages pass, then ``scale.arrivals`` messages are measured.

    :returns: ``match_us`` (finding subscriptions, part of AMP), ``amp_us``, ``emp_us``, ``total_us`` (their sum), ``evaluations_per_1000``
        (re-evaluations per 1000 messages), ``changes`` (of lists, per message), ``buffer_mean`` (entries per subscription), ``index_mib``,
        ``buffer_mib``, ``window_mib``, ``memory_mib`` (all three), ``subscriptions``, ``window``, ``checked`` and ``different`` (subscriptions
        whose lists at the end were compared with a plain computation, and whose differ), ``seconds`` (of the whole run).
    """
    began = time.perf_counter()
    skype, stream, slots = prepare(setting, corpus, scale, known or Known())
    finding = clocked(skype.engine.index, "match")
    steps = max(1, -(-scale.arrivals // stream.batch))
    arrived, spent, found, changes, sizes, evaluations = 0, [0.0, 0.0], 0.0, 0, [], skype.evaluations
    for step in range(steps):
        messages, full, end = stream.slot()
        finding[0], t0 = 0.0, time.process_time()
        first = skype.advance(messages, watermark=full)
        t1 = time.process_time()
        found += finding[0]
        second = skype.advance(watermark=end)
        t2 = time.process_time()
        spent[0] += t1 - t0
        spent[1] += t2 - t1
        arrived += messages.n
        changes += len(first.slot) + len(second.slot)
        if step * _SAMPLES // steps != (step + 1) * _SAMPLES // steps:
            sizes.append(float(skype.engine.buffers.sizes(slots).mean()))
    mib = {
        "index_mib": skype.engine.index.memory_bytes / 2**20,
        "buffer_mib": skype.engine.buffers.memory_bytes / 2**20,
        "window_mib": skype.window.memory_bytes / 2**20,
    }
    amp, emp = spent[0] / arrived * 1e6, spent[1] / arrived * 1e6
    rows = np.random.default_rng([scale.seed, 13]).permutation(len(slots))[:check]
    drawn = draw_subscriptions(corpus, len(slots), k=setting.k, keywords=setting.keywords, zipf=setting.zipf, seed=scale.seed).take(rows)
    again = Stream(corpus, max(10, round(scale.window * setting.window)), timed=setting.timed, seed=scale.seed)
    wrong = different(skype.topk(slots[rows]), drawn, again, skype.watermark, skype.extent, corpus.diagonal_deg)
    return {
        "match_us": found / arrived * 1e6,
        "amp_us": amp,
        "emp_us": emp,
        "total_us": amp + emp,
        "evaluations_per_1000": (skype.evaluations - evaluations) / arrived * 1e3,
        "changes": changes / arrived,
        "buffer_mean": float(np.mean(sizes)),
        **mib,
        "memory_mib": sum(mib.values()),
        "subscriptions": len(slots),
        "window": stream.slots_of_window * stream.batch,
        "checked": len(rows),
        "different": wrong,
        "seconds": time.perf_counter() - began,
    }


def missing(setting: SkypeSetting) -> str | None:
    """Return which part of a setting is not available; None: all are."""
    for kind, name, registry in (("index", setting.index, INDEXES), ("buffer", setting.buffer, BUFFERS), ("window index", setting.window_index, WINDOWS)):
        if name not in registry:
            return f"{kind} {name!r} is not available"
    return None


class SkypeBench:
    """Runs settings, equal ones only once, and compiles kernels before they are measured.

    :param repeat: how many times each setting runs; the fastest run counts.
    """

    def __init__(self, corpus: Corpus, scale: SkypeScale, repeat: int = 1, check: int = _CHECK) -> None:
        self.corpus, self.scale, self.repeat, self.check = corpus, scale, repeat, check
        self._known = Known()
        self._found: dict[str, dict[str, Any]] = {}
        self._warm: set[tuple[str, str, str]] = set()

    def run(self, setting: SkypeSetting) -> dict[str, Any]:
        """Return the measures of :func:`measure`."""
        if setting.key not in self._found:
            parts = (setting.index, setting.buffer, setting.window_index)
            if parts not in self._warm:
                self._warm.add(parts)
                measure(setting, self.corpus, SkypeScale(200, 400, 400, 400))
            runs = [measure(setting, self.corpus, self.scale, self._known, self.check) for _ in range(self.repeat)]
            self._found[setting.key] = min(runs, key=lambda run: run["total_us"])
        return self._found[setting.key]


def run_experiments(experiments: list[Experiment], bench: SkypeBench, progress: Callable[[str], None] = say) -> list[dict[str, Any]]:
    """Run experiments one after another.

    :returns: the result of :func:`~dskype.deploy.lab.experiments.run_experiment` for each.
    """

    def row_done(name: str, found: Found) -> None:
        progress(f"{name}: AMP {found['amp_us']:,.1f} us, EMP {found['emp_us']:,.1f} us ({found['seconds']:.1f} s)")

    return [run_experiment(experiment, bench.run, missing, row_done) for experiment in experiments]


def run(args: argparse.Namespace) -> int:
    """Measure; print tables or JSON, and write the report."""
    warm_up = args.window if args.warm_up is None else args.warm_up
    if warm_up < 0:
        raise UsageError(f"--warm-up: expected 0 or more messages, given: {warm_up}")
    if args.window < 10:
        raise UsageError(f"--window: expected 10 messages or more, given: {args.window}")
    scale = SkypeScale(args.subscriptions, args.window, args.arrivals, warm_up, args.seed)
    corpus = read_messages(args)
    say(
        f"{len(corpus):,} messages of {corpus.source}; {scale.subscriptions:,} subscriptions, |W| = {scale.window:,}, "
        f"{scale.warm_up:,} + {scale.arrivals:,} arrivals"
    )
    bench = SkypeBench(corpus, scale, args.repeat, args.check)
    results = skype_report.REPORT.run(args, corpus, scale, lambda: run_experiments(args.only, bench), repeat=args.repeat)
    if wrong := sum(row["different"] for e in results for row in e["rows"]):
        say(f"error: {wrong} lists differ from those of a plain computation")
    return 1 if wrong else 0
