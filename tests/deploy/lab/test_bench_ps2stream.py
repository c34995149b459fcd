"""The benchmark of PS2Stream at tiny sizes: every experiment runs, all methods find what a plain program finds, and claims follow from the figures."""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import replace

import numpy as np
import pytest

from dskype.deploy.lab.boolean.subscriptions import ALL
from dskype.deploy.lab.boolean.workloads import draw_regional
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.ps2stream import report as ps2stream_report
from dskype.deploy.lab.ps2stream.experiments import EXPERIMENTS, GROUPS, METHODS, Run
from dskype.deploy.lab.ps2stream.run import Ps2streamBench, add_arguments, run_experiments, with_rows
from dskype.deploy.lab.ps2stream.simulation import draw_group
from dskype.deploy.lab.system import throughput_report
from dskype.deploy.lab.tornado.simulation import RoutingScale
from tests import naive
from tests.deploy.lab.reported import assert_claims_follow, assert_reported, assert_reported_without_plots, assert_runs_on_a_file

SMALLER = [replace(e, rows=e.rows[:: 1 if e.name == "memory" else 2]) for e in EXPERIMENTS[:3]]
TINY = RoutingScale(subscriptions=300, messages=150, step=75, sample=200, repeat=1, grid=20)
MEASURES = dict.fromkeys(
    "throughput latency_ms communication replication matches different measured dispatcher_mib worker_mib ratio_load route_us place_us".split(), 1.0
)
CHANGING = replace(TINY, subscriptions=120, messages=600, step=60, repeat=2)
"""Sixty subscriptions come, and about as many go."""


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    rng = random.Random(1)
    words = [f"w{i}" for i in range(300)]
    texts = [" ".join(rng.choices(words, [1 / (i + 1) for i in range(300)], k=rng.randint(0, 12))) for _ in range(600)]
    return Corpus.of_texts("words", texts, np.array([rng.gauss(20, 0.5) for _ in texts]), np.array([rng.uniform(5, 7) for _ in texts]))


@pytest.fixture(scope="module")
def found(corpus):
    lines: list[str] = []
    experiments = run_experiments(SMALLER, Ps2streamBench(corpus, TINY), lines.append)
    return {
        "machine": throughput_report.machine(),
        **corpus.described(),
        "scale": vars(TINY),
        "index": "lanes",
        "seconds": 1.0,
        "experiments": experiments,
        "lines": lines,
    }


def test_every_row_is_measured(found):
    assert len(found["lines"]) == sum(len(e.rows) for e in SMALLER)
    for e, experiment in zip(found["experiments"], SMALLER, strict=True):
        assert e["name"] == experiment.name and not e["notes"]
        for row in e["rows"]:
            assert row.get("different", 0) == 0 and row["dispatcher_mib"] > 0 and row["zones"] >= row["divided"]
            if "throughput" in row:
                assert row["replication"] >= 1 and row["route_us"] > 0 and row["update_us"] > 0 and row["ratio_load"] >= 1
    json.dumps(found["experiments"])


@pytest.fixture(scope="module")
def changing(corpus):
    """Return a bench, its workload of Q3, and the matches that a plain program finds, as in ``expected``."""
    bench = Ps2streamBench(corpus, CHANGING)
    workload = bench.workload("q3")
    s, m = workload.subscriptions, workload.messages
    expressions, areas = s.expressions(np.arange(s.n)), m.rectangles().tolist()
    words = [set(m.terms[m.offsets[i] : m.offsets[i + 1]].tolist()) for i in range(m.n)]
    pairs = [
        (i, row) for i in range(m.n) for row in range(s.n) if naive.overlapping(s.boxes[row].tolist(), areas[i]) and naive.satisfies(expressions[row], words[i])
    ]
    message, row = np.array(pairs).T
    there = (workload.begins[row] <= message) & (message < workload.ends[row])
    assert np.count_nonzero(there & (workload.begins[row] > 0)) > 20, "some match that were not there at first"
    assert np.count_nonzero(message >= workload.ends[row]) > 20, "some would match and are gone"
    return bench, workload, (message * s.n + row)[there].tolist()


@pytest.mark.parametrize("method", METHODS)
def test_what_is_sent_and_found_is_what_a_plain_program_says(changing, method):
    bench, workload, expected = changing
    m = workload.messages
    assert workload.expected.tolist() == expected and len(expected) > 100
    row = bench.run(Run(METHODS[method], "q3", 6))
    assert row["different"] == 0 and row["matches"] == len(expected) / m.n and row["subscriptions"] == np.count_nonzero(workload.begins == 0)
    if method in ("grid", "kd-tree", "r-tree"):
        assert row["communication"] == np.count_nonzero(np.diff(m.offsets)) / m.n
    elif method == "metric, H2":
        assert row["communication"] < bench.run(Run(METHODS["metric"], "q3", 6))["communication"]


def test_groups_of_subscriptions_are_those_of_the_paper(corpus):
    def sides(s):
        return (s.boxes[:, 3] - s.boxes[:, 1]) * 111.195

    first, second, third = (draw_regional(corpus, 4000, np.random.default_rng(1), group) for group in ("q1", "q2", "q3"))
    rare = 0.99 * len(corpus.vocabulary)
    assert 1 <= sides(first).min() and 49 < sides(first).max() <= 50.001 and 98 < sides(second).max() <= 100.001
    for s in (first, second, third):
        counts = np.diff(s.offsets)
        assert counts.min() == 1 and counts.max() == 3 and set(s.shapes.tolist()) == {ALL, ALL + 1}
    assert all((second.terms[second.offsets[i] : second.offsets[i + 1]] < rare).any() for i in range(second.n))
    assert not all((first.terms[first.offsets[i] : first.offsets[i + 1]] < rare).any() for i in range(first.n))
    wide = np.mean(sides(third) > 50.001)
    assert 0.15 < wide < 0.35, "about half of the regions have subscriptions of the second group, half of which are wider"


def test_a_workload_follows_from_its_seed(corpus):
    one, again, other = (draw_group(corpus, "q3", replace(TINY, seed=seed)) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one.messages[:6], again.messages[:6])) and np.array_equal(one.ends, again.ends)
    assert not np.array_equal(one.subscriptions.boxes, other.subscriptions.boxes)
    assert np.count_nonzero(one.begins) == 15, "an update for five messages, half of them insertions"


def test_subscriptions_live_as_long_as_the_paper_says_and_their_number_is_stable(corpus):
    scale = replace(TINY, subscriptions=500, messages=40_000, step=100)
    found = draw_group(corpus, "q1", scale, matches=False)
    there = np.array([np.count_nonzero((found.begins <= at) & (at < found.ends)) for at in range(0, 40_000, 500)])
    assert abs(there.mean() - 500) < 10 and 440 < there.min() < there.max() < 560
    whole = (found.begins > 0) & (found.begins < 30_000)  # the last of these end by far before the last message
    lives = (found.ends - found.begins)[whole] / 10  # ten messages for each that comes
    assert len(lives) > 2900 and abs(lives.mean() - 500) < 10 and abs(lives.std() - 100) < 10
    assert abs(np.count_nonzero(found.ends <= 40_000) - np.count_nonzero(found.begins)) < 120, "about as many go as come"


def test_claims_follow_the_figures():
    rng = random.Random(3)

    def make_up(experiment):
        wrong = rng.choice((0, 2))
        return {(row.series, row.x): {m: rng.choice((0.05, 1.0, 30.0, 400.0)) for m in MEASURES} | {"different": wrong} for row in experiment.rows}

    assert_claims_follow(EXPERIMENTS, make_up)


def test_the_report_has_every_figure_and_claim(found, tmp_path, capsys):
    rows = assert_reported(ps2stream_report.REPORT, found, tmp_path, capsys)
    assert float(rows[0]["throughput"]) == found["experiments"][0]["rows"][0]["throughput"]


def test_without_matplotlib_the_report_says_so(found, tmp_path, monkeypatch):
    assert_reported_without_plots(ps2stream_report.REPORT, found, tmp_path, monkeypatch)


def test_the_command_line_runs_some_experiments_on_a_file(tmp_path, capsys):
    assert_runs_on_a_file("ps2stream", ["--only", "workers,base"], ["workers", "baselines"], tmp_path, capsys)


def test_rows_and_groups_can_be_chosen(tmp_path, capsys):
    chosen = ["--only", "throughput", "--rows", "metric; kd-tree, H2", "--groups", "q3,q1"]
    assert_runs_on_a_file("ps2stream", chosen, ["throughput"], tmp_path, capsys)


@pytest.mark.parametrize("given", [["--rows", "tree"], ["--groups", "q4"]])
def test_rows_and_groups_that_there_are_not_are_refused(given, capsys):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([*given, "pois.csv"])
    assert f"given: {given[1]!r}" in capsys.readouterr().err


def test_choosing_rows_leaves_claims_about_others_open(corpus):
    throughput = next(e for e in EXPERIMENTS if e.name == "throughput")
    (found,) = run_experiments([with_rows(throughput, ["hybrid", "kd-tree"], ["q3"])], Ps2streamBench(corpus, TINY), lambda _: None)
    assert [(row["series"], row["x"]) for row in found["rows"]] == [("hybrid", "q3"), ("kd-tree", "q3")]
    assert {claim["held"] for claim in found["claims"] if "q1" in claim["text"] or "Q1" in claim["text"]} == {None}


@pytest.mark.parametrize("name", [e.name for e in EXPERIMENTS])
def test_claims_can_be_told_or_are_left_open_whatever_rows_are_chosen(name):
    experiment = next(e for e in EXPERIMENTS if e.name == name)
    every = {(row.series, row.x): MEASURES for row in experiment.rows}
    assert {type(claim.check(every)[0]) for claim in experiment.claims} <= {bool, np.bool_}, "with all rows nothing is open"
    for chosen in {row.series.split(", q")[0] for row in experiment.rows}:
        for group in GROUPS:
            found = {(row.series, row.x): MEASURES for row in with_rows(experiment, [chosen], [group]).rows}
            for claim in experiment.claims:
                try:
                    held, figures = claim.check(found)
                except KeyError as missing:  # it is left open
                    assert not any(missing.args[0] in (row, row[0]) for row in found)
                else:
                    assert held in (True, False) and figures
