"""``dskype bench distances``: what distances in metres cost top-k subscriptions, beside distances in degrees.

The window is filled, and the same subscriptions are looked up in it once for each kind of distance; the k-th best score is the threshold. Indexes with them
stand side by side and take turns with the next messages. Of some messages the matches are compared with a plain computation.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dskype.bolts.skype import Skype
from dskype.bolts.topk.cones.index import ConeIndex
from dskype.bolts.topk.metres import MetresSubscriptions
from dskype.bolts.window.base import QueryBatch
from dskype.deploy.cli.arguments import positive
from dskype.deploy.lab.comparing import MatchTimes, quiet
from dskype.deploy.lab.corpus import Corpus, add_file_argument, read_messages
from dskype.deploy.lab.emulator.measure import print_table
from dskype.deploy.lab.skype.workload import Stream, Subscriptions, draw_subscriptions
from dskype.deploy.lab.topk import truth
from dskype.deploy.lab.topk.workload import BATCH, SETTING
from dskype.deploy.machine.terminal import say
from dskype.spouts.sphere import great_circle_m

__all__ = ["add_arguments", "measure", "run"]

_AT_ONCE = 1_000
_CHECKED = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_file_argument(parser)
    parser.add_argument("--subscriptions", type=positive, metavar="N", default=100_000, help="default: 100000")
    parser.add_argument("--window", type=positive, metavar="N", default=200_000, help="messages in the window, at least 10; default: 200000")
    parser.add_argument("--messages", type=positive, metavar="N", default=2_048, dest="count", help="messages that are matched; default: 2048")
    parser.add_argument("--scales", metavar="M,...", default="5000,50000,500000", help="metres; default: 5000,50000,500000")
    parser.add_argument("--rounds", type=positive, metavar="N", default=3, help="how many times; the fastest counts; default: 3")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--json", metavar="FILE", help="write what was found there")


def run(args: argparse.Namespace) -> int:
    """Measure, and print a table; the exit code is 1 if matches are wrong."""
    scales = [0.0, *(float(scale) for scale in args.scales.split(","))]
    corpus = read_messages(args)
    found = measure(corpus, scales, args.subscriptions, args.window, args.count, rounds=args.rounds, seed=args.seed, tell=say)
    columns = ["look-up us", "candidates", "matches", "match us", "times degrees", "bytes per subscription"]
    names = ("look_up_us", "candidates", "matches", "message_us", "ratio", "bytes")
    rows = [[row["distance"], *(f"{row[name]:,.1f}" for name in names)] for row in found["distances"]]
    print_table(
        f"{args.subscriptions:,} subscriptions, |W| = {args.window:,}; candidates, matches and their time are per message", ["distance", *columns], rows
    )
    print("\n".join(f"  WRONG: {error}" for error in found["errors"]) or f"  the matches of {_CHECKED} messages are those of a plain computation", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if found["errors"] else 0


class _Standing(MatchTimes):
    """An index that is filled with subscriptions of one kind of distance, and what was found about it."""

    def __init__(self, scale_m: float, s: Subscriptions, thresholds: np.ndarray, diagonal_deg: float, batches: list[Any]) -> None:
        super().__init__(f"metres, scale {scale_m:,.0f} m" if scale_m else "degrees", batches)
        self.scale_m, self.thresholds = scale_m, thresholds
        self.index = MetresSubscriptions(ConeIndex(diagonal_deg)) if scale_m else ConeIndex(diagonal_deg)
        for start in range(0, len(s), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(s)))
            some, slots = s.take(rows), rows.astype(np.int32)
            words = some.offsets, some.terms, some.weights
            if scale_m:
                self.index.insert(slots, some.lon, some.lat, some.alpha, np.full(len(rows), scale_m), words)
            else:
                self.index.insert(slots, some.lon, some.lat, some.alpha, *words)
            self.index.set_thresholds(slots, thresholds[rows])

    def wrong(self, s: Subscriptions, diagonal_deg: float) -> list[str]:
        """Return a line for each of the first messages whose matches are not those of a plain computation."""
        batch, errors = self.batches[0], []
        message, slot, score = self.index.match(batch)
        for row in range(_CHECKED):
            expected = truth.scores_of_message(s, batch, row, diagonal_deg)
            if self.scale_m:
                text = truth.scores_of_message(
                    Subscriptions(s.k, s.alpha * 0, *(getattr(s, n) for n in ("lat", "lon", "offsets", "terms", "weights"))), batch, row, diagonal_deg
                )
                place = float(batch.lat[row]), float(batch.lon[row])
                away_m = np.array([great_circle_m(*place, lat, lon) for lat, lon in zip(s.lat.tolist(), s.lon.tolist())])
                expected = s.alpha * (1.0 - np.minimum(1.0, away_m / self.scale_m)) + (1.0 - s.alpha) * text
            reached = np.flatnonzero(expected >= self.thresholds)
            if not (np.array_equal(slot[message == row], reached) and np.array_equal(score[message == row], expected[reached])):
                errors.append(f"{self.name}: message {row} has {(message == row).sum()} matches, a plain computation finds {len(reached)}, or scores differ")
        return errors


def measure(
    corpus: Corpus, scales: list[float], n: int, window: int, messages: int, *, rounds: int = 3, seed: int = 0, tell: Callable[[str], None] = say
) -> Mapping[str, Any]:
    """Measure each kind of distance.

    :param scales: metres; 0: degrees, which come first.
    :param n: how many subscriptions; ``window``: |W|; ``messages``: how many are matched.
    :returns: ``distances``, a map for each scale, and ``errors``.
    """
    stream = Stream(corpus, window, seed=seed, batch=BATCH)
    skype = Skype(stream.extent, corpus.diagonal_deg)
    for _ in range(stream.slots_of_window):
        batch, full, _ = stream.slot()
        skype.advance(batch, watermark=full)
    s = draw_subscriptions(corpus, n, k=SETTING.k, keywords=SETTING.keywords, seed=seed)
    batches = [stream.slot()[0] for _ in range(-(-messages // stream.batch))]
    standing, look_ups_us = [], []
    for scale_m in scales:
        thresholds, spent_us = _thresholds(skype, s, scale_m)
        standing.append(_Standing(scale_m, s, thresholds, corpus.diagonal_deg, batches))
        look_ups_us.append(spent_us)
        tell(f"{standing[-1].name}: {spent_us:.0f} us per look-up")
        standing[-1].index.match(batches[0])  # compiles
    for _ in range(rounds):
        for one in standing:
            one.match(60.0)
    found = []
    for one, look_up_us in zip(standing, look_ups_us):
        before = getattr(one.index, "candidates", 0)
        matched = sum(len(one.index.match(batch)[1]) for batch in batches)
        candidates = getattr(one.index, "candidates", 0) - before or matched
        found.append(
            {
                "distance": one.name,
                "look_up_us": look_up_us,
                "candidates": candidates / (len(batches) * stream.batch),
                "ratio": one.found["message_us"] / standing[0].found["message_us"],
                "bytes": one.index.memory_bytes / n,
                **one.found,
            }
        )
    return {"source": corpus.source, "distances": found, "errors": [error for one in standing for error in one.wrong(s, corpus.diagonal_deg)]}


def _thresholds(skype: Skype, s: Subscriptions, scale_m: float) -> tuple[np.ndarray, float]:
    """Look subscriptions up in the window; return the k-th best score of each (-inf if fewer messages match), and us per look-up."""
    queries = QueryBatch(np.full(len(s), skype.watermark), s.k.astype(np.int64), s.alpha, s.lat, s.lon, s.offsets, s.terms, s.weights, np.full(len(s), scale_m))
    thresholds, spent = np.full(len(s), -np.inf), 0
    with quiet():
        for start in range(0, len(s), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(s)))
            some = queries.select(rows)
            began = time.process_time_ns()
            lists = skype.window.topk(some, skype.extent, skype.engine.diagonal_deg)
            spent += time.process_time_ns() - began
            full = np.diff(lists.offsets) == s.k[rows]
            thresholds[rows[full]] = lists.scores[lists.offsets[1:][full] - 1]
    return thresholds, spent / 1e3 / len(s)
