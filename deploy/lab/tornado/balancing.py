"""``dskype bench balancing``: load balancing of Tornado under a hotspot that moves (section 5.4), simulated for many evaluators."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dskype.deploy.cli.arguments import positive
from dskype.deploy.lab.corpus import Corpus, add_file_argument, read_messages
from dskype.deploy.lab.experiments import HELD, ratio, table_line
from dskype.deploy.lab.tornado.balancing_simulation import WINDOW_S, BalancingSetting, simulate
from dskype.deploy.lab.tornado.balancing_workload import WorkloadSetting
from dskype.deploy.machine.terminal import put, say

__all__ = ["GOALS", "HEADINGS", "Goal", "add_arguments", "measures", "run", "run_all", "table"]

SETTLING_S = 20
"""How long after a move of the hotspot the balance has to be good again."""

Goal = tuple[str, str, Callable[[float], bool]]

GOALS: Sequence[Goal] = (
    ("learned", "balance after learning <= 1.25", lambda x: x <= 1.25),
    ("settled", f"balance <= 1.4 within {SETTLING_S} s after each move of the hotspot", lambda x: x <= 1.4),
    ("speed_up", "adaptive >= 2 x static under the hotspot", lambda x: x >= 2),
    ("sent_less", "balancing sends <= 1/20 of what centralized balancing sends", lambda x: x >= 20),
)
"""Measure, claim, and whether a value fulfils it."""

HEADINGS = {
    "evaluators": "evaluators",
    "learned": "balance, learned",
    "settled": f"best within {SETTLING_S} s",
    "later": "mean later",
    "static": "static",
    "granularity": "one cell",
    "speed_up": "adaptive : static",
    "sent_bytes": "sent bytes/s",
    "centralized_bytes": "centralized bytes/s",
    "sent_less": "times less",
    "transferred": "subscriptions moved/s",
    "operations": "operations",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_file_argument(parser)
    parser.add_argument(
        "--evaluators", type=lambda text: [positive(n) for n in text.split(",")], default=[16, 32, 64, 128], metavar="N,...", help="default: 16,32,64,128"
    )
    parser.add_argument("--grid", type=positive, default=2000, help="columns and rows of the fine grid; default: 2000")
    parser.add_argument("--rate", type=positive, default=20_000, metavar="N", help="messages per second; default: 20000")
    parser.add_argument("--subscriptions", type=positive, default=20_000, metavar="N", help="how many live at a time; default: 20000")
    parser.add_argument("--moves", type=positive, default=2, metavar="N", help="how many hotspots follow one another; default: 2")
    parser.add_argument("--hot-scale", type=float, default=0.2, help="width and height of a hotspot, as a share of the space; default: 0.2")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")


def run(args: argparse.Namespace) -> int:
    """Run all sizes, and print the table and the goals; return 0."""
    corpus = read_messages(args)
    workload = WorkloadSetting(
        grid=args.grid, subscriptions=args.subscriptions, messages_per_s=args.rate, moves=args.moves, hot_scale=args.hot_scale, seed=args.seed
    )
    found = run_all(corpus, [BalancingSetting(n, workload=workload) for n in args.evaluators], say)
    put(f"Messages: {corpus.source}\n\n{table(found)}")
    return 0


def run_all(corpus: Corpus, settings: Sequence[BalancingSetting], progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Run each setting with and without balancing; return the measures of each."""
    found = []
    for setting in settings:
        progress(f"{setting.evaluators} evaluators")
        found.append(measures(setting, simulate(corpus, setting), simulate(corpus, replace(setting, adaptive=False))))
    return found


def measures(setting: BalancingSetting, adaptive: Mapping[str, Any], static: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the table shows of a setting.

    :param adaptive: what :func:`simulate` found with balancing; ``static``: without.
    :returns: keys of :data:`HEADINGS`. ``learned``: balance at the end of the time without a hotspot; ``settled``: the best balance in the seconds
        after a move, of the worst move; ``later``: mean balance after these; ``static``: mean balance of the same time without balancing;
        ``granularity``: balance if each cell had an evaluator of its own, mean of the same time.
    """
    phase, balance = np.array(adaptive["phase"]), np.array(adaptive["balance"])
    hot = phase > 0
    since = np.arange(len(phase)) - np.searchsorted(phase, phase)
    later = hot & (since >= SETTLING_S)
    moves = [balance[(phase == move) & (since >= WINDOW_S) & (since <= SETTLING_S)] for move in range(1, phase.max() + 1)]
    sent, centralized = (float(np.mean(adaptive[name])) for name in ("sent_bytes", "centralized_bytes"))
    throughput = [1 / np.mean(1 / np.array(found["throughput"])[hot]) for found in (adaptive, static)]
    return {
        "evaluators": setting.evaluators,
        "learned": float(balance[~hot][-1]),
        "settled": max(float(best.min()) for best in moves if len(best)),
        "later": float(balance[later].mean()),
        "static": float(np.array(static["balance"])[later].mean()),
        "granularity": float(np.array(adaptive["granularity"])[later].mean()),
        "speed_up": float(throughput[0] / throughput[1]),
        "sent_bytes": sent,
        "centralized_bytes": centralized,
        "sent_less": ratio(centralized, sent),
        "transferred": float(np.mean(adaptive["transferred"])),
        "operations": sum(adaptive["operations"].values()),
    }


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table of measures, and the goals."""
    lines = [table_line(list(HEADINGS.values())), table_line(["---"] * len(HEADINGS))]
    lines += [table_line([f"{row[key]:,.2f}" if isinstance(row[key], float) and row[key] < 100 else f"{row[key]:,.0f}" for key in HEADINGS]) for row in found]
    lines.append("")
    for name, claim, fulfilled in GOALS:
        values = ", ".join(f"{row['evaluators']}: {row[name]:.2f} ({HELD[bool(fulfilled(row[name]))]})" for row in found)
        lines.append(f"- {claim}: {values}")
    return "\n".join(lines)
