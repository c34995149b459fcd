"""The benchmark of boolean indexes, at tiny sizes: every experiment runs, all indexes are compared, and claims follow from the figures."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dskype.bolts.boolean import INDEXES
from dskype.deploy.cli import main as cli
from dskype.deploy.lab.boolean import report as boolean_report
from dskype.deploy.lab.boolean import run as boolean
from dskype.deploy.lab.boolean.experiments import EXPERIMENTS, BooleanSetting, World
from dskype.deploy.lab.boolean.reasons import REASONS, reason
from dskype.deploy.lab.boolean.run import BooleanBench, BooleanScale, run_experiments
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.experiments import Claim, Experiment, Row
from dskype.deploy.lab.system import throughput_report
from tests.deploy.lab.reported import assert_claims_follow, assert_reported, assert_reported_without_plots

TINY = BooleanScale(subscriptions=150, messages=40, budget_s=0.05)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    rng = random.Random(1)
    words = [f"w{i}" for i in range(1500)]
    texts = [" ".join(rng.choices(words, [1 / (i + 1) for i in range(1500)], k=rng.randint(0, 12))) for _ in range(300)]
    return Corpus.of_texts("words", texts, np.array([rng.uniform(-60, 60) for _ in texts]), np.array([rng.uniform(-170, 170) for _ in texts]))


@pytest.fixture(scope="module")
def found(corpus):
    lines: list[str] = []
    experiments = run_experiments(list(EXPERIMENTS), BooleanBench(corpus, TINY), lines.append)
    return {
        "machine": throughput_report.machine(),
        "source": corpus.source,
        "messages": len(corpus),
        "vocabulary": len(corpus.vocabulary),
        "keywords_per_message": 4.0,
        "scale": {**vars(TINY), "repeat": 2},
        "seconds": 1.0,
        "experiments": experiments,
        "lines": lines,
    }


def test_every_experiment_is_measured_with_the_indexes_that_are_there(found):
    assert [e["name"] for e in found["experiments"]] == [e.name for e in EXPERIMENTS]
    for e, experiment in zip(found["experiments"], EXPERIMENTS):
        there = [row for row in experiment.rows if row.setting.index in INDEXES and set(row.setting.options) <= set(INDEXES[row.setting.index].OPTIONS)]
        assert [(row["series"], row["x"]) for row in e["rows"]] == [(row.series, row.x) for row in there]
        assert all("is not available" in note or "has no option" in note for note in e["notes"]) and bool(e["notes"]) == (len(there) < len(experiment.rows))
        assert e["claims"][-1]["text"] == "All indexes find the same" and (e["claims"][-1]["held"] or not there), e
        for row in e["rows"]:
            assert row["message_us"] > 0 and row["p99_us"] >= row["p50_us"] > 0 and row["bytes"] > 0 and row["longest_ms"] > 0
            setting, registered = row["setting"], max(1, round(150 * row["setting"]["world"]["subscriptions"]))
            assert setting["updates"] or row["subscriptions"] == registered - round(setting["removed"] * registered)
    json.dumps(found["experiments"])


def test_worlds_differ_in_what_they_name(corpus):
    bench = BooleanBench(corpus, replace(TINY, subscriptions=2000))
    plain = bench._workload(World())
    assert plain.subscriptions.n == 2000 and plain.messages.n == 40 and plain.messages.areas is None
    areas = bench._workload(World(areas=True, words=(6, 6)))
    assert areas.messages.areas is not None and set(np.diff(areas.messages.offsets).tolist()) == {6}
    assert areas.subscriptions is bench._workload(World(areas=True)).subscriptions
    wide = bench._workload(World(km=(1, 1000), log=True)).subscriptions.boxes
    heights_km = (wide[:, 3] - wide[:, 1]) * 111.2
    assert 10 < np.median(heights_km) < 100 and heights_km.max() > 800  # half of them below the root of 1,000
    share = bench._workload(World(space_share=0.01)).subscriptions.boxes
    assert np.allclose((share[:, 3] - share[:, 1]).max(), 0.01 * np.ptp(corpus.lat)) and np.allclose(
        np.median(share[:, 2] - share[:, 0]), 0.01 * np.ptp(corpus.lon)
    )
    rare = bench._workload(World(rarest_share=0.5)).subscriptions
    assert rare.terms.max() < 0.5 * len(corpus.vocabulary) < plain.subscriptions.terms.max() and (np.diff(rare.offsets) > 0).all()
    uniform = bench._workload(World(uniform=True))
    counts = [np.bincount(w.subscriptions.terms, minlength=len(corpus.vocabulary)).max() for w in (plain, uniform)]
    assert counts[1] < counts[0] / 5
    assert set(bench._workload(World(expressions=True)).subscriptions.shapes.tolist()) == {0, 1, 2, 3}
    assert bench._workload(World(subscriptions=0.5)).subscriptions.n == 1000


def test_a_filled_index_serves_other_messages_and_equal_settings_are_measured_once(corpus, monkeypatch):
    made, measured = [], boolean.Measured

    def make(*arguments):
        made.append(arguments)
        return measured(*arguments)

    monkeypatch.setattr(boolean, "Measured", make)
    bench = BooleanBench(corpus, TINY)
    first = bench.run(BooleanSetting("plain", world=World(words=(1, 1), km=(2000, 3000))))
    assert bench.run(BooleanSetting("plain", world=World(words=(1, 1), km=(2000, 3000)))) is first
    second = bench.run(BooleanSetting("plain", world=World(words=(200, 200), km=(2000, 3000))))
    assert len(made) == 1 and second["digests"] != first["digests"] and second["matches"] > first["matches"]
    third = bench.run(BooleanSetting("plain", removed=0.5))
    assert len(made) == 2 and third["subscriptions"] == 75 and third["bytes"] > first["bytes"]
    bench.run(BooleanSetting("plain", updates=0.1))
    assert len(made) == 3


def test_an_index_that_finds_something_else_is_told(corpus, monkeypatch):
    class Wrong(INDEXES["plain"]):
        name = "wrong"

        def match(self, messages):
            message, slot = super().match(messages)
            return message[:-1], slot[:-1]

    monkeypatch.setitem(INDEXES, "wrong", Wrong)
    rows = [Row(name, None, BooleanSetting(name, world=World(words=(50, 50), km=(2000, 3000)))) for name in ("plain", "wrong")]
    (one,) = run_experiments([Experiment("e", "E", "index", rows, [])], BooleanBench(corpus, TINY), lambda line: None)
    assert one["claims"] == [{"text": "All indexes find the same", "held": False, "figures": "1 batches compared; different: wrong and plain"}]


def test_what_cannot_be_run_is_left_out_with_a_note(corpus, monkeypatch):
    bench = BooleanBench(corpus, BooleanScale(subscriptions=10**12))
    assert "would take" in (bench.missing(BooleanSetting("plain")) or "")
    bench = BooleanBench(corpus, TINY)
    assert bench.missing(BooleanSetting("plain")) is None
    assert bench.missing(BooleanSetting("to come")) == "index 'to come' is not available"
    assert bench.missing(BooleanSetting("plain", {"token_order": "idf"})) == "index 'plain' has no option 'token_order'"


def test_an_index_that_takes_too_long_to_fill_is_left_out_with_a_note(corpus):
    rows = [Row("slow", None, BooleanSetting("plain"))]
    (one,) = run_experiments([Experiment("e", "E", "index", rows, [])], BooleanBench(corpus, replace(TINY, limit_s=1e-6)), lambda line: None)
    assert one["rows"] == [] and one["notes"] == ["slow is left out: it was not filled within 1e-06 s"]


def test_claims_follow_the_figures():
    rng = random.Random(3)
    measures = ("message_us", "bytes", "matches", "again_us", "remove_us", "build_us", "longest_ms")

    def make_up(experiment):
        by_series = {row.series: {m: rng.choice((0.05, 1.0, 30.0)) for m in measures} for row in experiment.rows}
        slope = {row.series: {m: rng.choice((-0.8, 0.0, 30.0)) for m in measures} for row in experiment.rows}
        last = max((row.x for row in experiment.rows if row.x is not None), default=1)
        return {
            (row.series, row.x): {
                m: by_series[row.series][m] * rng.choice((1, 1.05)) * (1 + slope[row.series][m] * ((row.x or 0) / last) ** 2) for m in measures
            }
            for row in experiment.rows
        }

    assert_claims_follow(EXPERIMENTS, make_up)


def test_reasons_are_about_claims_that_there_are():
    claims = {(experiment.name, claim.text): claim.why for experiment in EXPERIMENTS for claim in experiment.claims}
    for text, reasons in REASONS.items():
        for name, why in reasons.items():
            assert why in [why for (experiment, claim), why in claims.items() if claim == text and experiment.startswith(name)], (text, name)
    assert reason("sizes", "no such claim") == ""


def test_claims_about_rows_that_are_missing_cannot_be_told(corpus):
    claim = Claim("new is better", lambda found: (found["new", None]["bytes"] < 1, ""))
    (one,) = run_experiments(
        [Experiment("e", "E", "index", [Row("new", None, BooleanSetting("to come"))], [claim])], BooleanBench(corpus, TINY), lambda line: None
    )
    assert one["claims"][0] == {"text": "new is better", "held": None, "figures": "rows are missing"}


# -- report ---------------------------------------------------------------------------------------


def test_the_report_has_every_figure_and_claim(found, tmp_path, capsys):
    there = {**found, "experiments": [e for e in found["experiments"] if e["rows"]]}
    rows = assert_reported(boolean_report.REPORT, there, tmp_path, capsys)
    assert float(rows[0]["message_us"]) == there["experiments"][0]["rows"][0]["message_us"] and rows[0]["setting_index"]


def test_without_matplotlib_the_report_says_so(found, tmp_path, monkeypatch):
    assert_reported_without_plots(boolean_report.REPORT, found, tmp_path, monkeypatch)


def test_the_command_line_runs_some_experiments_on_a_file(tmp_path: Path, capsys):
    rng = random.Random(2)
    file = tmp_path / "messages.jsonl"
    file.write_text("".join(json.dumps({"text": " ".join(rng.choices("abcdefgh", k=3)), "lat": rng.random(), "lon": rng.random()}) + "\n" for _ in range(50)))
    sizes = ["--subscriptions", "40", "--messages", "10", "--budget", "0.01", "--repeat", "2"]
    assert cli.main(["bench", "boolean", str(file), "--only", "expiry,expr", *sizes, "-o", "json", "--folder", str(tmp_path / "out")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [e["name"] for e in result["experiments"]] == ["expiry", "expressions"] and result["messages"] == 50
    assert (tmp_path / "out" / "report.md").is_file()
    assert cli.main(["bench", "boolean", str(file), "--only", "sizes", *sizes]) == 0
    assert "sizes: Memory" in capsys.readouterr().out
    assert cli.main(["bench", "boolean", "--only", "nothing"]) == 2
    assert "'nothing'" in capsys.readouterr().err
