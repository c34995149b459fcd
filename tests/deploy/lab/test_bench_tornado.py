"""The benchmark of Tornado at tiny sizes: every experiment runs, all methods find what a plain program finds, and claims follow from the figures."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.lab import simulated
from dskype.deploy.lab.boolean.experiments import World
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.dskype import spark as distribution_spark
from dskype.deploy.lab.experiments import Experiment, Row
from dskype.deploy.lab.system import throughput_report
from dskype.deploy.lab.tornado import report as tornado_report
from dskype.deploy.lab.tornado import run as tornado
from dskype.deploy.lab.tornado import simulation as tornado_simulation
from dskype.deploy.lab.tornado import spark as tornado_spark
from dskype.deploy.lab.tornado.balancing_workload import WorkloadSetting
from dskype.deploy.lab.tornado.experiments import EXPERIMENTS, METHODS, TornadoSetting
from dskype.deploy.lab.tornado.run import TornadoBench, run_experiments
from dskype.deploy.lab.tornado.simulation import BooleanSimulation, RoutingScale, draw_workload
from dskype.distribution import make_distributor
from tests.deploy.lab.reported import assert_claims_follow, assert_reported, assert_reported_without_plots, assert_runs_on_a_file, parsed

SMALLER = [
    replace(e, rows=[row for row in e.rows if row.setting.evaluators <= 32]) if e.name == "adaptivity" else e  # more evaluators than that take seconds
    for e in EXPERIMENTS
]
TINY = RoutingScale(subscriptions=300, messages=200, step=100, sample=200, repeat=1, places=200, grid=20)
BALANCING = WorkloadSetting(grid=40, subscriptions=100, lifetime_s=20, side=0.05, messages_per_s=200, calm_s=5, moves=2, hot_s=24)
WIDE = World(space_share=0.2, keywords=(1, 3))
"""Rectangles that cross borders, and match."""


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    rng = random.Random(1)
    words = [f"w{i}" for i in range(300)]
    texts = [" ".join(rng.choices(words, [1 / (i + 1) for i in range(300)], k=rng.randint(0, 12))) for _ in range(600)]
    return Corpus.of_texts("words", texts, np.array([rng.gauss(20, 15) for _ in texts]).clip(-90, 90), np.array([rng.uniform(-180, 180) for _ in texts]))


@pytest.fixture(scope="module")
def found(corpus):
    lines: list[str] = []
    experiments = run_experiments(SMALLER, TornadoBench(corpus, TINY, BALANCING), lines.append)
    return {
        "machine": throughput_report.machine(),
        "source": corpus.source,
        "messages": len(corpus),
        "vocabulary": len(corpus.vocabulary),
        "keywords_per_message": 4.0,
        "scale": vars(TINY),
        "balancing": vars(BALANCING),
        "seconds": 1.0,
        "experiments": experiments,
        "lines": lines,
    }


def test_every_row_is_measured(found):
    assert len(found["lines"]) == sum(len(e.rows) for e in SMALLER)
    for e, experiment in zip(found["experiments"], SMALLER, strict=True):
        assert e["name"] == experiment.name and not e["notes"]
        assert [(row["series"], row["x"]) for row in e["rows"]] == [(row.series, row.x) for row in experiment.rows]
        assert all(claim["figures"] != "rows are missing" for claim in e["claims"]), e["claims"]
        for row in e["rows"]:
            assert row.get("different", 0) == 0 and row.get("equal", True)
            if "throughput" in row:
                assert row["replication"] >= 1 and row["route_us"] > 0 and row["slowest_us"] > 0 and row["memory_mib"] > 0
    json.dumps(found["experiments"])


@pytest.mark.parametrize("method", METHODS)
def test_what_is_sent_and_found_is_what_a_plain_program_says(corpus, method):
    name, options = METHODS[method]
    bench = TornadoBench(corpus, TINY, BALANCING)
    workload = bench.workload(WIDE)
    s, m = workload.subscriptions, workload.messages
    expected = [
        i * s.n + row
        for i in range(m.n)
        for row, (west, south, east, north) in enumerate(s.boxes.tolist())
        if (west <= m.lon[i] <= east if west <= east else m.lon[i] >= west or m.lon[i] <= east)
        and south <= m.lat[i] <= north
        and set(s.terms[s.offsets[row] : s.offsets[row + 1]].tolist()) <= set(m.terms[m.offsets[i] : m.offsets[i + 1]].tolist())
    ]
    assert workload.expected.tolist() == expected and len(expected) > 100
    row = bench.run(TornadoSetting(name, options, "lanes", 6, WIDE))
    assert row["different"] == 0 and row["matches"] == len(expected) / m.n and row["subscriptions"] == 300
    if method == "A-Grid":
        spread = bench.run(TornadoSetting("agrid", {"summaries": False}, "lanes", 6, WIDE))
        assert row["communication"] < spread["communication"] == 1 and row["replication"] == spread["replication"] > 1
        assert 0 < row["summary_pairs"] <= 300 * row["replication"]
    elif method in ("hashing", "location"):
        assert row["communication"] == 6 and row["replication"] == 1
    elif method == "replicate-all":
        assert row["communication"] == 1 and row["replication"] == 6


def test_a_match_that_is_missing_is_told(corpus, capsys, monkeypatch):
    workload = draw_workload(corpus, WIDE, TINY)
    distributor = make_distributor("hashing", 3)
    place = distributor.place
    monkeypatch.setattr(distributor, "message_tasks", lambda messages: tornado_simulation.RowTasks(np.arange(messages.n), np.zeros(messages.n, np.int32)))
    assert place("s1", None).tasks
    assert BooleanSimulation(workload, distributor, False, "lanes", 100).run()["different"] > 0
    monkeypatch.setattr(BooleanSimulation, "_match", lambda self, task, index, rows: [np.zeros(0, np.int64)])
    monkeypatch.setattr(simulated, "read_messages", lambda args: corpus)
    measures = ("throughput", "distribution_per_s", "matches", "communication", "latency_ms", "routing_ms")
    monkeypatch.setattr(BooleanSimulation, "_found", lambda self, living: dict.fromkeys(measures, 1.0))
    sizes = ["--subscriptions", "300", "--messages", "200", "--sample", "100", "--repeat", "1"]
    assert cli.main(["bench", "tornado", "--only", "units", *sizes, "-o", "json"]) == 1
    assert "are missing or too many" in capsys.readouterr().err


def test_routing_units_share_the_work(corpus):
    bench = TornadoBench(corpus, TINY, BALANCING)
    one, many = (bench.run(TornadoSetting("agrid", evaluators=4, units=n)) for n in (1, 10**6))
    assert one["distribution_per_s"] == many["distribution_per_s"], "the same run"
    assert one["system_per_s"] == min(one["distribution_per_s"], one["throughput"]) and many["system_per_s"] == many["throughput"]
    assert one["latency_ms"] > one["routing_ms"] > 0 and many["latency_ms"] == pytest.approx(one["latency_ms"] - one["routing_ms"], rel=1e-3)


def test_what_is_not_there_is_left_out_with_a_note(corpus):
    rows = [Row("new", None, TornadoSetting("to come")), Row("other", None, TornadoSetting("agrid", index="to come"))]
    (one,) = run_experiments([Experiment("e", "E", "x", rows, [])], TornadoBench(corpus, TINY, BALANCING), lambda line: None)
    assert one["notes"] == ["new is left out: distributor 'to come' is not available", "other is left out: index 'to come' is not available"]


def test_claims_follow_the_figures():
    rng = random.Random(3)
    measures = (
        "throughput latency_ms communication replication matches different measured system_per_s routing_us equal per_load later learned settled speed_up sent_less"
    ).split()

    def make_up(experiment):
        base = {row.series: {m: rng.choice((0.05, 1.0, 30.0)) for m in measures} for row in experiment.rows}
        slope = {row.series: {m: rng.choice((-0.8, 0.0, 30.0, 300.0)) for m in measures} for row in experiment.rows}
        last = max((row.x for row in experiment.rows if isinstance(row.x, (int, float))), default=1)
        right = rng.random() < 0.5
        return {
            (row.series, row.x): {
                **{
                    m: base[row.series][m]
                    * rng.choice((1, 1.05))
                    * (1 + slope[row.series][m] * (row.x / last if isinstance(row.x, (int, float)) else rng.random()) ** 2)
                    for m in measures
                },
                "different": 0 if right else 2,
                "equal": right,
            }
            for row in experiment.rows
        }

    assert_claims_follow(EXPERIMENTS, make_up)


# -- report ---------------------------------------------------------------------------------------


def test_the_report_has_every_figure_and_claim(found, tmp_path, capsys):
    rows = assert_reported(tornado_report.REPORT, found, tmp_path, capsys)
    assert float(rows[0]["throughput"]) == found["experiments"][0]["rows"][0]["throughput"] and rows[0]["routing_us"] == ""
    text = (tmp_path / "new" / "folder" / "report.md").read_text()
    points = text[text.index("## Routing time of points") :].splitlines()
    assert points[2] == "|  | partitions | us | memory, bytes |", "measures that no row has are left out"


def test_without_matplotlib_the_report_says_so(found, tmp_path, monkeypatch):
    assert_reported_without_plots(tornado_report.REPORT, found, tmp_path, monkeypatch)


def test_the_command_line_runs_some_experiments_on_a_file(tmp_path, capsys):
    assert_runs_on_a_file("tornado", ["--only", "unit,sel"], ["units", "selectivity"], tmp_path, capsys)
    assert cli.main(["bench", "tornado", "--only", "nothing"]) == 2
    assert "'nothing'" in capsys.readouterr().err


# -- on Spark: what is asked for, and what is told ------------------------------------------------


def test_on_spark_an_experiment_has_some_points_of_the_simulation_and_its_claims():
    found = {e.name: e for e in tornado_spark.experiments(EXPERIMENTS, 3)}
    assert list(found) == ["areas", "keywords", "queries", "units"]
    for name, experiment in found.items():
        assert [row.x for row in experiment.rows] == list(tornado_spark._POINTS[name]) and {row.setting.evaluators for row in experiment.rows} == {3}
    assert [row.setting.units for row in found["units"].rows] == [1, 2, 4]
    assert found["keywords"].claims[0] in next(e for e in EXPERIMENTS if e.name == "keywords").claims


def test_on_spark_the_throughput_benchmark_is_asked_for_a_point(tmp_path):
    args = parsed(tornado, "--spark", "--subscriptions", "1000", "--seconds", "3", "--check", "7", "-c", "x=1")
    queries, units = tornado_spark.experiments([e for e in EXPERIMENTS if e.name in ("queries", "units")], args.tasks)
    asked = tornado_spark.asked(args, queries.rows[-1].setting, tmp_path / "plan.json")
    assert asked.boolean and asked.subscriptions == [4000] and asked.side == 0.5 and asked.keywords == (3, 3) and asked.index == "lanes" and asked.verify == 7
    assert dict(asked.tasks) == {"subscription-bolt": 4, "distribution-bolt": 1} and dict(asked.conf) == {"x": 1} and asked.seconds == 3
    assert dict(asked.overrides)["dskype.distributor.options"] == {"plan": str(tmp_path / "plan.json")}
    assert dict(tornado_spark.asked(args, units.rows[-1].setting, None).tasks)["distribution-bolt"] == 4


def test_points_on_spark_are_told_and_judged(tmp_path, capsys, monkeypatch):
    throughput_of = {"areas": lambda setting: 1000.0, "keywords": lambda setting: 1000.0 * setting.world.keywords[0]}
    measured = dict.fromkeys(distribution_spark.MEASURES, 2.0)

    def made_up(self, setting):
        name = "keywords" if setting.world.space_share == 0.005 else "areas"
        wrong = ["1 errors"] if setting.world.keywords == (7, 7) else []
        return {**measured, "throughput": throughput_of[name](setting), "matches": 1 / setting.world.keywords[0], "problems": wrong, "seconds": 1.0}

    monkeypatch.setattr(tornado_spark._Points, "run", made_up)
    line = ["bench", "tornado", "--spark", "--only", "areas,keywords", "--folder", str(tmp_path)]
    assert cli.main(line) == 1
    shown = capsys.readouterr()
    assert "error: keywords 7: 1 errors" in shown.err and "did NOT hold: What was verified equals a plain computation" in shown.out
    page = (tmp_path / "report.md").read_text()
    assert "| A-Grid | 0.01 | 1,000 |" in page and "The throughput rises with the keywords: **held** (1: 1,000, 3: 3,000, 7: 7,000)" in page


def test_what_does_not_run_on_spark_is_refused(capsys):
    for wrong in (["--only", "points"], ["--only", "areas,points"], ["places.csv"]):
        assert cli.main(["bench", "tornado", "--spark", *wrong]) != 0
        assert "given: p" in capsys.readouterr().err
