"""Load adjustment in the benchmark of PS2Stream, at tiny sizes."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.ps2stream import report as ps2stream_report
from dskype.deploy.lab.ps2stream.adjustment import delays
from dskype.deploy.lab.ps2stream.adjustment_experiments import ADJUSTMENTS
from dskype.deploy.lab.ps2stream.run import Ps2streamBench, run_experiments
from dskype.deploy.lab.system import throughput_report
from dskype.deploy.lab.tornado.simulation import RoutingScale
from tests.deploy.lab.reported import assert_claims_follow

TINY = RoutingScale(subscriptions=600, messages=100, step=50, sample=300, repeat=1, grid=40)


def smaller(experiment):
    """Return an experiment with few rows, and 4 workers."""
    rows = [row for row in experiment.rows if row.x in (64, 30, 0)]
    return replace(experiment, rows=[replace(row, setting=replace(row.setting, workers=4)) for row in rows])


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    rng = random.Random(2)
    words = [f"w{i}" for i in range(100)]
    texts = [" ".join(rng.choices(words, [1 / (i + 1) for i in range(100)], k=rng.randint(1, 8))) for _ in range(600)]
    return Corpus.of_texts("words", texts, np.array([rng.uniform(19, 22) for _ in texts]), np.array([rng.uniform(5, 8) for _ in texts]))


def test_every_row_is_measured(corpus, tmp_path):
    chosen = [smaller(experiment) for experiment in ADJUSTMENTS]
    experiments = run_experiments(chosen, Ps2streamBench(corpus, TINY), lambda line: None)
    selection, migration, drift = (e["rows"] for e in experiments)
    assert [len(e["rows"]) for e in experiments] == [5, 5, 6] and not any(e["notes"] for e in experiments)
    assert all(row["select_ms"] > 0 and row["moved"] > 0 for row in selection)
    assert all(row["moved"] <= row["sizes"] for row in selection)
    least = {row["series"]: row["sizes"] for row in selection}
    assert least["DP"] <= min(least.values())
    for row in migration:
        assert row["different"] == 0 and row["greatest_after_us"] <= row["greatest_before_us"] and 0 <= row["above_1_s"] <= 1 - row["below_100_ms"] <= 1
        assert (row["moved"] > 0) == (row["rounds"] > 0) and row["p50_ms"] <= row["p99_ms"]
    assert all(row["different"] == 0 and row["throughput"] > 0 for row in drift)
    by = {(row["series"], row["x"]): row for row in drift}
    assert by["adjusted", 0]["throughput"] == by["not adjusted", 0]["throughput"], "equal plans are measured once"
    found = {"machine": throughput_report.machine(), **corpus.described(), "scale": vars(TINY), "index": "lanes", "seconds": 1.0, "experiments": experiments}
    assert "selection" in ps2stream_report.REPORT.write(json.loads(json.dumps(found)), tmp_path).read_text()


def test_claims_follow_the_figures():
    rng = random.Random(3)
    measures = ("modelled", "select_ms", "sizes", "moved", "move_s", "below_100_ms")

    def make_up(experiment):
        wrong = rng.choice((0, 2))
        return {
            (row.series, row.x): {m: rng.choice((0.05, 1.0, 30.0, 400.0)) for m in measures} | {"different": wrong, "matches": 2.0, "measured": 50}
            for row in experiment.rows
        }

    assert_claims_follow(ADJUSTMENTS, make_up)


@pytest.mark.parametrize("seed", range(5))
def test_delays_are_those_of_a_queue_that_is_played(seed):
    rng = np.random.default_rng(seed)
    arrivals, service, portion, portions = np.sort(rng.uniform(0, 2, 200)), 0.008, 0.11, int(rng.integers(0, 5))
    expected, now, left, at = [], 0.0, portions, 0
    while at < len(arrivals):
        if left:
            now, left = now + portion, left - 1
            end = at + int((arrivals[at:] <= now).sum())
        else:
            end = len(arrivals)
        while at < end:
            now = max(now, arrivals[at]) + service
            expected.append(now - arrivals[at])
            at += 1
    assert np.allclose(delays((portion, portions), arrivals, service), expected)
