"""The benchmark of the Skype paper's experiments, at tiny sizes: its runs are exact, and its claims follow from the figures."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from dskype.bolts.skype import Skype
from dskype.deploy.cli import main as cli
from dskype.deploy.cli.arguments import UsageError
from dskype.deploy.lab.corpus import Corpus, read_file
from dskype.deploy.lab.experiments import about_named_rows, judged
from dskype.deploy.lab.skype import report as skype_report
from dskype.deploy.lab.skype import run as skype
from dskype.deploy.lab.skype.engine import Known, SkypeScale, prepare
from dskype.deploy.lab.skype.experiments import EXPERIMENTS, Claim, Experiment, Row, SkypeSetting
from dskype.deploy.lab.skype.run import SkypeBench, run_experiments
from dskype.deploy.lab.skype.workload import Stream, draw_subscriptions
from dskype.deploy.lab.system import throughput_report
from tests import naive
from tests.deploy.lab.reported import assert_claims_follow, assert_reported, assert_reported_without_plots

TINY = SkypeScale(subscriptions=40, window=60, arrivals=30, warm_up=20)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    rng = random.Random(1)
    words = [f"w{i}" for i in range(60)]
    texts = [" ".join(rng.choices(words, [1 / (i + 1) for i in range(60)], k=rng.randint(0, 9))) for _ in range(150)]
    return Corpus.of_texts("words", texts, np.array([rng.uniform(-10, 10) for _ in texts]), np.array([rng.uniform(0, 30) for _ in texts]))


@pytest.fixture(scope="module")
def found(corpus):
    bench = SkypeBench(corpus, TINY)
    lines: list[str] = []
    experiments = run_experiments(list(EXPERIMENTS), bench, lines.append)
    return {
        "machine": throughput_report.machine(),
        "source": corpus.source,
        "messages": len(corpus),
        "vocabulary": len(corpus.vocabulary),
        "keywords_per_message": 4.0,
        "scale": vars(TINY),
        "repeat": 2,
        "seconds": 1.0,
        "experiments": experiments,
        "lines": lines,
    }


# -- workload -------------------------------------------------------------------------------------


@pytest.mark.parametrize("timed", [False, True])
def test_arrivals_and_expiries_take_turns(corpus, timed):
    stream = Stream(corpus, 60, timed=timed, batch=5)
    assert stream.batch == 5 and stream.slots_of_window == 12
    messages, last, sizes = [], -1, []
    for _ in range(40):
        batch, full, end = stream.slot()
        assert last < batch.position[0] and batch.position[-1] <= full < end and (np.diff(batch.position) >= 0).all()
        messages += batch.position.tolist()
        sizes.append(batch.n)
        if len(sizes) > 12:
            before, after = (sum(w - stream.extent < p <= w for p in messages) for w in (full, end))
            assert before == sum(sizes[-12:]) and after == sum(sizes[-11:])  # a whole slot has expired, none before
            assert sum(last - stream.extent < p <= last for p in messages[: -batch.n]) == sum(full - stream.extent < p <= full for p in messages[: -batch.n])
        last = end
    assert (len(set(messages)) < len(messages)) == timed
    assert (len(set(sizes)) > 1) == timed


def test_messages_come_again_in_another_order(corpus):
    stream = Stream(corpus, 500, batch=50)
    rounds = [np.concatenate([stream.slot()[0].lat for _ in range(3)]) for _ in range(2)]
    assert sorted(rounds[0]) == sorted(rounds[1]) == sorted(corpus.lat) and rounds[0].tolist() != rounds[1].tolist()


def test_subscriptions_have_the_place_and_some_keywords_of_a_message(corpus):
    drawn = draw_subscriptions(corpus, 200, k=7, keywords=(2, 3))
    bags = {(corpus.lat[i], corpus.lon[i]): set(corpus.terms[corpus.offsets[i] : corpus.offsets[i + 1]].tolist()) for i in range(len(corpus))}
    counts = set()
    for i in range(200):
        terms, weights = (column[drawn.offsets[i] : drawn.offsets[i + 1]] for column in (drawn.terms, drawn.weights))
        bag = bags[drawn.lat[i], drawn.lon[i]]
        assert set(terms.tolist()) <= bag and terms.tolist() == sorted(set(terms.tolist()))
        assert len(terms) in (2, 3) or len(terms) == len(bag) == 1
        df = dict(zip(terms.tolist(), corpus.vocabulary.df(terms).tolist()))
        expected = naive.norm_weights(dict.fromkeys(df, 1), df, corpus.vocabulary.documents)
        assert weights.tolist() == pytest.approx([expected[t] for t in terms.tolist()])
        counts.add(len(terms))
    assert counts >= {2, 3} and set(drawn.k.tolist()) == {7} and len(set(drawn.alpha.tolist())) == 200


def test_keywords_of_a_zipf_distribution_are_common_ones(corpus):
    drawn = draw_subscriptions(corpus, 2000, k=1, keywords=(1, 3), zipf=True)
    counts = np.bincount(drawn.terms, minlength=len(corpus.vocabulary))
    assert counts[-1] == counts.max() > 3 * counts[-10] > 0
    assert all((np.diff(drawn.terms[a:b]) > 0).all() for a, b in zip(drawn.offsets, drawn.offsets[1:]))
    assert set(np.diff(drawn.offsets).tolist()) == {1, 2, 3}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"text": "red fox, brown", "lat": 1, "lon": 2}\nnonsense\n{"text": "x", "lat": 99, "lon": 0}\n\n{"text": "Fox", "lat": 3.5, "lon": 4}\n'),
        ("named.csv", 'Latitude,text,LNG\n1,"red fox, brown",2\n3.5,Fox,4\n7\n'),
        ("bare.csv", "17,1,2,red fox, brown\n18,3.5,4,Fox\n19,x,y,dog\n"),
        ("packed.csv.gz", "id,lat,lon,text\n17,1,2,red fox, brown\n18,3.5,4,Fox\n"),
    ],
)
def test_messages_are_read_from_files(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    read = read_file(path)
    assert read.lat.tolist() == [1, 3.5] and read.lon.tolist() == [2, 4] and np.diff(read.offsets).tolist() == [3, 1]
    assert read.source == name and len(read.vocabulary) == 3 and read.diagonal_deg == pytest.approx(np.hypot(2.5, 2))


def test_a_file_without_messages_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}\n")
    for name in ("a.jsonl", "nothing"):
        with pytest.raises(UsageError, match="no messages|cannot be read"):
            read_file(tmp_path / name)


# -- what is measured -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting", [SkypeSetting(), SkypeSetting(index="taat", buffer="kmax", window_index="irtree", timed=True, k=3), SkypeSetting(zipf=True)], ids=str
)
def test_the_lists_of_a_run_are_exact(corpus, setting):
    engine, stream, slots = prepare(setting, corpus, TINY, Known())
    engine._check()
    drawn = draw_subscriptions(corpus, 40, k=setting.k, keywords=setting.keywords, zipf=setting.zipf)
    replayed, messages = Stream(corpus, 60, timed=setting.timed), []
    while replayed._seq < stream._seq:
        batch, _, end = replayed.slot()
        messages += [
            {
                "seq": int(batch.seq[i]),
                "position": int(batch.position[i]),
                "lat": batch.lat[i],
                "lon": batch.lon[i],
                "weights": dict(zip(*(c[batch.offsets[i] : batch.offsets[i + 1]].tolist() for c in (batch.terms, batch.weights)))),
            }
            for i in range(batch.n)
        ]
    assert engine.watermark == end
    offsets, seqs, _, scores = engine.topk(slots)
    for i in range(40):
        terms, weights = (c[drawn.offsets[i] : drawn.offsets[i + 1]].tolist() for c in (drawn.terms, drawn.weights))
        subscription = {"k": setting.k, "alpha": drawn.alpha[i], "lat": drawn.lat[i], "lon": drawn.lon[i], "weights": dict(zip(terms, weights))}
        expected = naive.topk(subscription, messages, end, stream.extent, corpus.diagonal_deg)
        everything = {m["seq"]: naive.score(subscription, m, corpus.diagonal_deg) for m in messages}
        mine = list(zip(seqs[offsets[i] : offsets[i + 1]].tolist(), scores[offsets[i] : offsets[i + 1]].tolist()))
        assert naive.same_topk(mine, expected, everything)


@pytest.mark.parametrize("setting", [SkypeSetting(), SkypeSetting(buffer="kmax", timed=True, k=3), SkypeSetting(zipf=True, window=0.5)], ids=str)
def test_a_run_compares_lists_with_a_plain_computation(corpus, setting, monkeypatch):
    assert (found := skype.measure(setting, corpus, TINY))["checked"] == 20 and found["different"] == 0
    right = Skype.topk

    def spoilt(change):
        def topk(engine, slots):
            lists = right(engine, slots)
            return lists._replace(**{name: change(name, column) for name, column in lists._asdict().items()})

        return topk

    other = {
        "a message of another time": lambda name, column: column + 1000 if name == "seqs" else column,
        "another score": lambda name, column: column + 1e-6 if name == "scores" else column,
        "one message of each list is missing": lambda name, column: np.maximum(0, column - np.arange(len(column))) if name == "offsets" else column[:-1],
    }
    for change in other.values():
        monkeypatch.setattr(Skype, "topk", spoilt(change))
        assert skype.measure(setting, corpus, TINY)["different"] > 10


def test_lists_at_the_start_are_shared_between_runs(corpus):
    known = Known()
    lists = []
    for setting in (SkypeSetting(buffer="kmax"), SkypeSetting(index="taat", buffer="kmax"), SkypeSetting(buffer="kmax", buffer_options={"extra": 500})):
        engine, _, slots = prepare(setting, corpus, SkypeScale(40, 60, 1, 0), known)
        lists.append([column.tolist() for column in engine.topk(slots)])
        looked_up = known._count
    assert lists[0] == lists[1] == lists[2] and looked_up == 520


def test_every_experiment_is_measured(found):
    assert [e["name"] for e in found["experiments"]] == [e.name for e in EXPERIMENTS]
    assert len(found["lines"]) == sum(len(e.rows) for e in EXPERIMENTS)
    for e, experiment in zip(found["experiments"], EXPERIMENTS):
        assert not e["notes"] and len(e["rows"]) == len(experiment.rows)
        assert len(e["claims"]) == len(experiment.claims) and all(claim["figures"] != "rows are missing" for claim in e["claims"])
        for row in e["rows"]:
            assert row["amp_us"] >= row["match_us"] >= 0 and row["total_us"] == pytest.approx(row["amp_us"] + row["emp_us"])
            assert row["index_mib"] > 0 and row["buffer_mean"] > 0 and row["memory_mib"] > row["index_mib"]
    json.dumps(found["experiments"])


def test_equal_settings_are_measured_once_and_the_fastest_run_counts(corpus, monkeypatch):
    bench, times = SkypeBench(corpus, TINY, repeat=3), iter([9.0, 5.0, 3.0, 4.0, 9.0, 8.0, 7.0])  # the first one compiles
    monkeypatch.setattr(skype, "measure", lambda *arguments: {"total_us": next(times)})
    assert bench.run(SkypeSetting()) is bench.run(SkypeSetting())
    assert bench.run(SkypeSetting()) == {"total_us": 3.0} and bench.run(SkypeSetting(k=3)) == {"total_us": 7.0}


def test_what_is_not_registered_is_left_out_with_a_note(corpus):
    rows = [Row("old", None, SkypeSetting(index="taat")), Row("new", None, SkypeSetting(index="to come")), Row("newer", None, SkypeSetting(buffer="to come"))]
    claim = Claim("new is better", lambda found: (found["new", None]["amp_us"] < found["old", None]["amp_us"], ""))
    (one,) = run_experiments([Experiment("e", "E", "index", rows, [claim])], SkypeBench(corpus, TINY), lambda line: None)
    assert [row["series"] for row in one["rows"]] == ["old"]
    assert one["notes"] == ["new is left out: index 'to come' is not available", "newer is left out: buffer 'to come' is not available"]
    assert one["claims"] == [{"text": "new is better", "held": None, "figures": "rows are missing"}]


def test_claims_follow_the_figures():
    rng = random.Random(3)
    measures = ("match_us", "amp_us", "emp_us", "total_us", "index_mib", "memory_mib", "buffer_mean", "evaluations_per_1000")

    def make_up(experiment):
        by_series = {row.series: rng.choice((0.1, 1.0, 10.0)) for row in experiment.rows}
        slope = {m: rng.choice((-0.8, -0.01, 0.0, 0.01, 30.0)) for m in measures}
        last = max((row.x for row in experiment.rows if row.x is not None), default=1)
        return {
            (row.series, row.x): {m: by_series[row.series] * rng.choice((1, 1.05)) * (1 + slope[m] * ((row.x or 0) / last) ** 2) for m in measures}
            for row in experiment.rows
        }

    assert_claims_follow(EXPERIMENTS, make_up, trials=4000)


def test_one_point_where_skype_is_not_much_faster_is_enough_to_tell():
    (claim,) = [claim for e in EXPERIMENTS if e.name == "k" for claim in e.claims if "order of magnitude" in claim.text]

    def judge(points):
        rows = [{"series": name, "x": k, "subscriptions": 1_000_000, "total_us": us} for k, *both in points for name, us in zip(("skype", "ciq-kmax"), both)]
        return judged(about_named_rows(claim), rows)["held"]

    assert judge([(20, 10, 40)]) is False and judge([(20, 10, 60)]) is None
    assert judge([(k, 10, 60) for k in (10, 20, 30, 40, 50, 60)]) is True


# -- report ---------------------------------------------------------------------------------------


def test_the_report_has_every_figure_and_claim(found, tmp_path, capsys):
    rows = assert_reported(skype_report.REPORT, found, tmp_path, capsys)
    assert float(rows[0]["amp_us"]) == found["experiments"][0]["rows"][0]["amp_us"] and rows[0]["setting_buffer"] == "kmax"


def test_without_matplotlib_the_report_says_so(found, tmp_path, monkeypatch):
    assert_reported_without_plots(skype_report.REPORT, found, tmp_path, monkeypatch)


def test_the_command_line_runs_some_experiments_on_a_file(corpus, tmp_path: Path, capsys, monkeypatch):
    rng = random.Random(2)
    file = tmp_path / "messages.jsonl"
    file.write_text("".join(json.dumps({"text": " ".join(rng.choices("abcdefgh", k=3)), "lat": rng.random(), "lon": rng.random()}) + "\n" for _ in range(50)))
    sizes = ["--subscriptions", "20", "--window", "20", "--arrivals", "10", "--warm-up", "0", "--repeat", "2"]
    assert cli.main(["bench", "skype", str(file), "--only", "zipf,groups", *sizes, "-o", "json", "--folder", str(tmp_path / "out")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [e["name"] for e in result["experiments"]] == ["zipf", "groups"] and result["messages"] == 50
    assert (tmp_path / "out" / "report.md").is_file()
    assert cli.main(["bench", "skype", str(file), "--only", "groups", *sizes]) == 0
    assert "groups: Groups of the alpha-partition" in capsys.readouterr().out
    monkeypatch.setattr(skype, "different", lambda *arguments: 3)
    assert cli.main(["bench", "skype", str(file), "--only", "groups", *sizes]) == 1
    assert "error: 15 lists differ from those of a plain computation" in capsys.readouterr().err


def test_senseless_arguments_are_refused(tmp_path, capsys):
    assert cli.main(["bench", "skype", "--only", "kmax,nothing"]) == 2
    assert "'nothing'" in capsys.readouterr().err
    for arguments in (["--warm-up", "-1"], ["--window", "9"], [str(tmp_path / "nothing.csv")]):
        assert cli.main(["bench", "skype", *arguments]) != 0
        assert "given" in (err := capsys.readouterr().err) or "cannot be read" in err
