"""The benchmark of distribution mechanisms, at tiny sizes: its simulations are exact, and its counts and claims follow from them."""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.cli.arguments import UsageError, common
from dskype.deploy.client.balancing import balance
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.dskype import report as distribution_report
from dskype.deploy.lab.dskype import run as distribution
from dskype.deploy.lab.dskype import spark as distribution_spark
from dskype.deploy.lab.dskype.boolean import PRODUCTION
from dskype.deploy.lab.dskype.experiments import METHODS, NAMES, VARIANTS, DskypeSetting, experiments
from dskype.deploy.lab.dskype.maintenance import MONITOR, SAMPLE, maintain
from dskype.deploy.lab.dskype.run import DskypeBench, run_experiments
from dskype.deploy.lab.dskype.simulation import Simulation, simulate, subscription_at
from dskype.deploy.lab.dskype.workload import LONG, PLACES, DataSet, DistributionWorkload, DskypeScale, as_messages, file_names, read_data, sample_of
from dskype.deploy.lab.ps2stream.simulation import Method
from dskype.deploy.lab.system import throughput_report
from dskype.distribution import DISTRIBUTORS, make_distributor
from dskype.distribution.methods.partitioned import measure
from tests import naive
from tests.deploy.lab.reported import assert_claims_follow, assert_reported, assert_reported_without_plots

TINY = DskypeScale(subscriptions=60, window=150, arrivals=120, warm_up=30, sample=40, step=50)
SMALL = {n: {"n1": 2, "n2": 2} for n in DISTRIBUTORS if n.endswith("-first")}
FOUR = [(name, SMALL.get(name, {})) for name in DISTRIBUTORS]


def words_of(rng: random.Random, n: int) -> list[str]:
    return [" ".join(rng.choices([f"w{i}" for i in range(60)], [1 / (i + 1) for i in range(60)], k=rng.randint(0, 9))) for _ in range(n)]


@pytest.fixture(scope="module")
def data() -> dict[str, DataSet]:
    rng = random.Random(1)
    texts = words_of(rng, 400)
    lat, lon = (np.array([rng.uniform(a, b) for _ in texts]) for a, b in ((-10, 10), (0, 30)))
    places = DataSet.of_texts(PLACES, "words", texts, lat, lon)
    return {PLACES: places, LONG: places.joined(LONG)}


@pytest.fixture(scope="module")
def workload(data) -> DistributionWorkload:
    return DistributionWorkload(data[PLACES], TINY, 5)


def distributor(name: str, options: dict, tasks: int, view) -> object:
    return make_distributor(name, tasks, options, DISTRIBUTORS[name].learn(tasks, view.sample, options))


# -- workload -------------------------------------------------------------------------------------


def test_long_messages_are_texts_joined(data):
    short, long = data[PLACES], data[LONG]
    assert sorted(" ".join(long.texts).split()) == sorted(" ".join(short.texts).split())
    counts = [len(set(text.split())) for text in long.texts[:-1]]
    assert 15 < np.mean(counts) < 37  # words of this small vocabulary repeat within a message
    assert set(zip(long.corpus.lat, long.corpus.lon)) <= set(zip(short.corpus.lat, short.corpus.lon))
    assert len(long.corpus.vocabulary) == len(short.corpus.vocabulary) and long.corpus.vocabulary.documents == len(long.texts)


def test_messages_come_in_another_order_again_and_again(data):
    workload = DistributionWorkload(data[PLACES], replace(TINY, window=700, sample=1, subscriptions=1), 5)
    assert sorted(workload.rows[:400].tolist()) == list(range(400)) and workload.rows[400:700].tolist() != workload.rows[:300].tolist()
    m = workload.messages
    assert m.seq.tolist() == m.position.tolist() == list(range(850)) and (m.lat == data[PLACES].corpus.lat[workload.rows]).all()


def test_half_of_everything_comes_from_a_hotspot(data):
    workloads = [DistributionWorkload(data[PLACES], TINY, 5, hotspot) for hotspot in (0, 1, 2)]
    regions = [set(w._region().tolist()) for w in workloads]
    assert regions[1] != regions[2] and len(regions[1]) == 8
    shares = [np.mean([row in regions[1] for row in w.rows.tolist()]) for w in workloads]
    assert shares[0] < 0.1 and 0.4 < shares[1] < 0.65 and shares[2] < 0.2
    lat = data[PLACES].corpus.lat
    near = {lat[row] for row in regions[1]}
    assert [np.mean([x in near for x in w.subscriptions.lat.tolist()]) > 0.35 for w in workloads] == [False, True, False]
    assert all((np.diff(w.subscriptions.terms[a:b]) > 0).all() for w in workloads for a, b in zip(w.subscriptions.offsets, w.subscriptions.offsets[1:]))


@pytest.mark.parametrize("k", [2, 5])
def test_lists_and_floors_at_the_start_are_those_of_an_engine(workload, k):
    view = workload.view(k, 0.5)
    assert len(view.subscriptions) == 30 and view.sample.n == 40 and set(view.subscriptions.k.tolist()) == {k}
    engine = workload.engine()
    engine.advance(workload.window_messages(), TINY.window - 1)
    slots = engine.insert(*vars(view.subscriptions).values(), complete=False)
    assert (engine.wanted(slots) == workload.limit(k)).all()
    engine.resolve(slots, *view.lists)
    assert engine.buffers.thresholds(slots).tolist() == view.floors.tolist()
    assert not set(view.sample.lat.tolist()) <= set(view.subscriptions.lat.tolist())


def test_data_sets_of_files_are_called_by_their_stems(tmp_path):
    assert file_names(["a/pois.csv.gz", "b.jsonl"]) == ["pois", "b"]
    for files in (["a.csv", "b/a.jsonl"], ["places.csv"], ["long.csv"]):
        with pytest.raises(UsageError, match="other names"):
            file_names(files)
    (tmp_path / "a.csv").write_text("1,2.5,3.5,red fox\n2,3.5,4.5,fox\n")
    found = read_data([str(tmp_path / "a.csv")], {"a"})
    assert list(found) == ["a"] and list(found["a"].texts) == ["red fox", "fox"]


# -- the simulation is exact ----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), FOUR, ids=[name for name, _ in FOUR])
def test_the_tasks_together_have_the_lists_of_one_engine(workload, name, options):
    view = workload.view(5)
    one = Simulation(view, make_distributor("hashing", 1), check=60)
    found = one.run()
    assert found["different"] == 0 and found["checked"] == 60
    several = Simulation(view, distributor(name, options, 4, view), check=60)
    found = several.run()
    assert found["different"] == 0

    def best(simulation):
        return {row: sorted(held.items(), key=lambda x: (-x[1], -x[0]))[:5] for row, held in simulation.merged.items()}

    assert best(several) == best(one)


def test_the_lists_are_those_of_a_plain_program(workload):
    view = workload.view(5)
    simulation = Simulation(view, distributor("keyword", {}, 4, view), check=60)
    simulation.run()
    m, s = workload.messages, view.subscriptions
    messages = [
        {
            "seq": i,
            "position": i,
            "lat": m.lat[i],
            "lon": m.lon[i],
            "weights": dict(zip(*(c[m.offsets[i] : m.offsets[i + 1]].tolist() for c in (m.terms, m.weights)))),
        }
        for i in range(m.n)
    ]
    for row, held in simulation.merged.items():
        first, last = s.offsets[row], s.offsets[row + 1]
        one = {
            "k": 5,
            "alpha": s.alpha[row],
            "lat": s.lat[row],
            "lon": s.lon[row],
            "weights": dict(zip(s.terms[first:last].tolist(), s.weights[first:last].tolist())),
        }
        expected = naive.topk(one, messages, m.n - 1, TINY.window, workload.diagonal_deg)
        mine = sorted(held.items(), key=lambda x: (-x[1], -x[0]))[:5]
        assert naive.same_topk(mine, expected, {x["seq"]: naive.score(one, x, workload.diagonal_deg) for x in messages})


def test_placements_that_grow_stay_exact():
    """About as many messages of the window have the rarer word of a subscription as its buffer wants: floors go up and down past guards."""
    rng = random.Random(4)
    texts = [" ".join(([f"rare{rng.randrange(10)}"] if rng.random() < 0.8 else []) + rng.sample(["x", "y", "z"], rng.randint(0, 2))) for _ in range(900)]
    place = np.array([rng.random() for _ in texts])
    workload = DistributionWorkload(DataSet.of_texts(PLACES, "words", texts, place, place), DskypeScale(300, 300, 600, 0, sample=100, step=25), 2)
    view = workload.view(2)
    ranges = [{"from": i, "node": {"tasks": [i], "load": 1.0, "marks": {}}} for i in range(13)]  # a task for each word
    plan = {**make_distributor("prefix", 13).plan(), "root": {"ranges": ranges}}
    simulation = Simulation(view, make_distributor("prefix", 13, {"slack": 0}, plan), check=300)
    began = simulation.distributor.place_all(sample_of(workload.messages, view.subscriptions, view.floors, view.filled), view.floors)[0][-1]
    found = simulation.run()
    assert found["grown"] > 0 and found["late"] > 0 and found["different"] == 0
    assert sum(map(len, simulation.tasks_of)) == began + found["late"] == simulation.living.sum()


def test_a_distributor_that_loses_messages_is_found_out(workload):
    class Loses(DISTRIBUTORS["keyword"]):
        def message_tasks(self, messages):
            routes = super().message_tasks(messages)
            return type(routes)(routes.rows[::2], routes.tasks[::2])

    found = simulate(workload.view(5), Loses(4), check=60)
    assert found["different"] > 5


# -- what is counted ------------------------------------------------------------------------------


def test_what_is_counted_is_what_the_distributor_says(workload):
    view = workload.view(5)
    by = distributor("keyword", {}, 4, view)
    found = simulate(view, by, check=5)
    measured = workload.messages.slice(200, 300)  # the window's and the warm-up's steps are not
    tasks = by.message_tasks(measured).tasks
    assert found["communication"] == pytest.approx(len(tasks) / 100)
    placed = [by.place(f"s{row}", subscription_at(view.subscriptions, row), view.floors[row]).tasks for row in range(60)]
    living = np.bincount(np.concatenate(placed), minlength=4)
    assert found["replication"] == pytest.approx(living.sum() / 60)
    received = np.bincount(tasks, minlength=4)
    for measure_, loads in (("subscriptions", living), ("messages", received), ("load", living * received)):
        assert found[f"balance_{measure_}"] == pytest.approx(loads.max() / loads.mean())
    assert found["distribution_us"] == pytest.approx(found["weigh_us"] + found["route_us"] + found["encode_us"])
    assert found["throughput"] == pytest.approx(1e6 / found["slowest_us"]) and found["cpu_us"] == pytest.approx(found["distribution_us"] + found["work_us"])
    assert found["work_us"] >= found["slowest_us"] >= found["work_us"] / 4 and found["critical_us"] >= found["distribution_us"]
    json.dumps(found)


def test_hashing_sends_everything_everywhere_and_keeps_one_copy(workload):
    found = simulate(workload.view(5), make_distributor("hashing", 5), check=5, repeat=2)
    assert found["communication"] == 5 and found["replication"] == 1 and found["balance_messages"] == 1 and found["tasks"] == 5
    assert found["probes_enough"] == 1 and found["grown"] == found["late"] == 0
    assert 0 < found["largest_mib"] < found["memory_mib"] <= 5 * found["largest_mib"]


# -- maintenance ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [MONITOR, SAMPLE])
@pytest.mark.parametrize("name", ["location", "keyword", "prefix"])
def test_maintenance_balances_a_hotspot(data, name, way):
    scale = DskypeScale(400, 300, 50, 0, sample=300, step=50)
    before, after = (DistributionWorkload(data[PLACES], scale, 3, hotspot).view(3) for hotspot in (0, 1))
    plan = DISTRIBUTORS[name].learn(8, before.sample)
    now = sample_of(after.workload.window_messages(), after.subscriptions, after.floors, after.filled)

    def make(plan):
        return make_distributor(name, 8, {}, plan)

    changed, changes = maintain(make, plan, after, way)
    uneven = [balance((found := measure(make(p), now)).subscriptions * found.messages) for p in (plan, changed)]
    assert uneven[1] <= uneven[0] and (changes > 0) == (changed != plan)
    assert uneven[1] < 1.5
    assert simulate(after, make(changed), check=50)["different"] == 0


def test_what_has_no_partitions_is_left_as_it_is(workload):
    plan = make_distributor("hashing", 4).plan()
    assert maintain(lambda plan: make_distributor("hashing", 4, None, plan), plan, workload.view(5), SAMPLE) == (plan, 0)


# -- experiments ----------------------------------------------------------------------------------


def fewer_tasks(e):
    """Return an experiment with at most 4 tasks."""
    return replace(
        e,
        rows=[
            replace(
                row,
                setting=replace(
                    row.setting,
                    tasks=4 if "n1" in row.setting.options else min(4, row.setting.tasks),
                    options={"n1": n1, "n2": 4 // n1} if (n1 := min(4, row.setting.options.get("n1", 0))) else row.setting.options,
                ),
            )
            for row in e.rows
        ],
    )


@pytest.fixture(scope="module")
def found(data):
    bench = DskypeBench(data, TINY, {PLACES: 50, LONG: 20}, check=10)
    bench._warm = True  # a test of the command line warms up
    lines: list[str] = []
    done = run_experiments([fewer_tasks(e) for e in experiments([PLACES, LONG])], bench, lines.append)
    return {
        "machine": throughput_report.machine(),
        "scale": vars(TINY),
        "repeat": 2,
        "seconds": 1.0,
        "experiments": done,
        "lines": lines,
        "data": [{"name": d.name, "source": d.corpus.source, "messages": len(d.corpus), "vocabulary": 60, "keywords_per_message": 4.0} for d in data.values()],
    }


def test_every_experiment_is_measured(found):
    expected = experiments([PLACES, LONG])
    assert [e["name"] for e in found["experiments"]] == [e.name for e in expected] == list(NAMES)
    assert len(found["lines"]) == sum(len(e.rows) for e in expected)
    for e, experiment in zip(found["experiments"], expected):
        assert not e["notes"] and len(e["rows"]) == len(experiment.rows)
        assert [type(claim["held"]) for claim in e["claims"]] == [bool] * len(experiment.claims)
        assert all(row["different"] == 0 and row["checked"] == 10 and row["throughput"] > 0 for row in e["rows"])
    json.dumps(found["experiments"])


def test_without_long_messages_their_experiment_is_left_out():
    assert [e.name for e in experiments([PLACES])] == [name for name in NAMES if name != "tasks-long"]
    assert {row.x for row in experiments(["pois"], ["methods"])[0].rows} == {"pois"}


def test_equal_settings_are_measured_once(data, monkeypatch):
    bench, runs = DskypeBench(data, TINY, check=1), []
    bench._warm = True
    monkeypatch.setattr(Simulation, "run", lambda self: runs.append(1) or {"throughput": 1.0})
    assert bench.run(DskypeSetting("hashing", tasks=2)) is bench.run(DskypeSetting("hashing", tasks=2)) and len(runs) == 1
    bench.run(DskypeSetting("hashing", tasks=3))
    assert len(runs) == 2 and bench.view(DskypeSetting("hashing")).workload is bench.view(DskypeSetting("prefix", k=5)).workload


def test_a_distributor_that_is_not_there_is_left_out_with_a_note(data):
    e = experiments([PLACES], ["methods"])[0]
    rows = [replace(e.rows[0], setting=DskypeSetting("hashing", tasks=2)), replace(e.rows[1], setting=DskypeSetting("to come"))]
    bench = DskypeBench({PLACES: data[PLACES]}, TINY, check=1)
    bench._warm = True
    (one,) = run_experiments([replace(e, rows=rows)], bench, lambda line: None)
    assert one["notes"] == ["location is left out: distributor 'to come' is not available"] and len(one["rows"]) == 1
    assert {claim["held"] for claim in one["claims"]} == {None, True}  # what was measured is exact; the other claims are left open


def test_claims_follow_the_figures():
    rng = random.Random(5)
    measures = (
        "grown",
        "subscriptions",
        "evaluations_per_1000",
        "throughput",
        "communication",
        "replication",
        "balance_load",
        "balance_busy",
        "route_us",
        "place_us",
        "work_us",
    )

    def make_up(experiment):
        by_series = {(row.series, m): rng.choice((0.1, 1.0, 1.3, 10.0)) for row in experiment.rows for m in measures}
        slope, spread = {m: rng.choice((-0.8, -0.01, 0.0, 0.01, 30.0)) for m in measures}, rng.choice((1, 1, 3))
        last = max((row.x for row in experiment.rows if isinstance(row.x, (int, float))), default=1)
        return {
            (row.series, row.x): {"checked": 10, "different": rng.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 1))}
            | {
                m: by_series[row.series, m] * rng.choice((1, spread)) * (1 + slope[m] * ((row.x if isinstance(row.x, (int, float)) else 0) / last) ** 2)
                for m in measures
            }
            for row in experiment.rows
        }

    assert_claims_follow(experiments([PLACES, LONG]), make_up)


# -- report and command line ----------------------------------------------------------------------


def test_the_report_has_every_figure_and_claim(found, tmp_path, capsys):
    rows = assert_reported(distribution_report.REPORT, found, tmp_path, capsys)
    assert float(rows[0]["throughput"]) == found["experiments"][0]["rows"][0]["throughput"] and rows[1]["method"] == "location"


def test_without_matplotlib_the_report_says_so(found, tmp_path, monkeypatch):
    assert_reported_without_plots(distribution_report.REPORT, found, tmp_path, monkeypatch)


def test_the_command_line_runs_an_experiment_on_a_file(tmp_path: Path, capsys, monkeypatch):
    rng = random.Random(2)
    file = tmp_path / "words.jsonl"
    file.write_text("".join(json.dumps({"text": text, "lat": rng.random(), "lon": rng.random()}) + "\n" for text in words_of(rng, 80)))
    monkeypatch.setattr(distribution, "experiments", lambda data, names: [fewer_tasks(e) for e in experiments(data, names)])
    sizes = ["--subscriptions", "20", "--window", "50", "--arrivals", "20", "--warm-up", "0", "--sample", "20", "--repeat", "1", "--check", "20"]
    only = ["bench", "distribution", str(file), "--data", "words", "--only", "methods", *sizes]
    assert cli.main([*only, "-o", "json", "--folder", str(tmp_path / "out")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [e["name"] for e in result["experiments"]] == ["methods"] and result["data"][0]["messages"] == 80
    assert {row["series"] for row in result["experiments"][0]["rows"]} == {*METHODS, *VARIANTS, "one task"}
    assert (tmp_path / "out" / "report.md").is_file()


def test_senseless_arguments_are_refused(tmp_path, capsys):
    assert cli.main(["bench", "distribution", "--only", "methods,nothing"]) == 2
    assert "'nothing'" in capsys.readouterr().err
    for arguments in (
        ["--warm-up", "-1"],
        ["--data", "nothing"],
        ["a.csv", "b/a.csv"],
        ["--spark", "--methods", "nothing"],
        ["--spark", "--full"],
        ["--spark", "a.csv"],
    ):
        assert cli.main(["bench", "distribution", *arguments]) != 0
        assert "given" in capsys.readouterr().err


# -- on Spark: what is asked for, and what is told ------------------------------------------------


def parsed(*line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    common(parser)
    distribution.add_arguments(parser)
    return parser.parse_args(line)


def test_the_throughput_benchmark_is_asked_for_a_method(tmp_path):
    args = parsed("--spark", "--subscriptions", "300", "--window", "200", "--seconds", "3", "-c", "x=1")
    asked = distribution_spark.settings(args, Method("prefix"), 3, tmp_path / "plan.json")
    assert asked.subscriptions == [300] and asked.window == 200 and dict(asked.tasks) == {"subscription-bolt": 3} and asked.seconds == 3
    assert dict(asked.overrides) == {"dskype.distributor": "prefix", "dskype.distributor.options": {"plan": str(tmp_path / "plan.json")}}
    assert dict(asked.conf) == {"x": 1} and not asked.boolean
    assert dict(distribution_spark.settings(args, Method("hashing"), 3, None).overrides) == {"dskype.distributor": "hashing"}


def test_methods_on_spark_are_distributors_and_with_boolean_subscriptions_baselines_too(tmp_path):
    assert list(distribution_spark.methods(parsed("--spark"))) == ["hashing", "location", "keyword", "prefix"]
    assert list(distribution_spark.methods(parsed("--spark", "--boolean"))) == list(PRODUCTION)
    args = parsed("--spark", "--boolean", "--methods", "text: metric,uniform-space", "--check", "7")
    metric, uniform = distribution_spark.methods(args).values()
    asked = distribution_spark.settings(args, metric, 4, tmp_path / "plan.json")
    assert asked.boolean and asked.matches == "grouped" and asked.verify == 7 and asked.subscriptions == [100_000]
    options = {"method": "metric", "summaries": False, "plan": str(tmp_path / "plan.json")}
    assert dict(asked.overrides) == {"dskype.distributor": "text-partitioning", "dskype.distributor.options": options}
    assert uniform == Method("uniform-space")


def test_boolean_plans_for_spark_are_learned_from_other_subscriptions_than_those_that_are_registered(tmp_path, monkeypatch):
    from dskype.deploy.demo import places
    from dskype.deploy.lab.boolean.learning import boolean_sample
    from dskype.deploy.lab.system import throughput

    whole = places.load()
    monkeypatch.setattr(places, "load", lambda file=None: whole.slice(0, 500))
    asked = distribution_spark.settings(parsed("--spark", "--boolean", "--subscriptions", "300"), Method("hashing"), 1, None)
    sample = boolean_sample(asked, throughput.build_vocabulary(asked, tmp_path), tmp_path)
    assert sample.messages.n == 500 and sample.n == 300 and np.isfinite(sample.rectangles()).all()
    for name, method in distribution_spark.methods(parsed("--spark", "--boolean")).items():
        if name != "hashing":
            plan = DISTRIBUTORS[method.distributor].learn(2, sample, dict(method.options))
            assert make_distributor(method.distributor, 2, dict(method.options), json.loads(json.dumps(plan))).tasks == 2


def test_plans_for_spark_are_learned_by_the_vocabulary_of_the_topology(data, tmp_path, monkeypatch):
    from dskype.deploy.demo import places
    from dskype.deploy.lab.system import throughput

    whole = places.load()
    monkeypatch.setattr(places, "load", lambda file=None: whole.slice(0, 500))
    asked = distribution_spark.settings(parsed("--spark", "--subscriptions", "50", "--window", "100"), Method("hashing"), 2, None)
    asked.sample = 400
    vocabulary = throughput.build_vocabulary(asked, tmp_path)
    workload = distribution_spark._workload(asked, vocabulary)
    assert workload.data.corpus.vocabulary.documents == 400 and (workload.messages.terms < 0).any()  # words that are missing in the sample
    plan = DISTRIBUTORS["prefix"].learn(2, workload.view(20).sample)
    assert make_distributor("prefix", 2, {}, json.loads(json.dumps(plan))).message_tasks(workload.messages).tasks.max() == 1


def test_a_run_on_spark_is_told_by_its_figures():
    r = {
        "mean_per_s": 1234.0,
        "all_active_s": 5.0,
        "placements": 30.0,
        "subscriptions": 20,
        "other_cores": 0.5,
        "latency": {"first_p50_ms": 12.3, "first_p99_ms": None},
        "streams": [
            {"stream": "matching", "tuples_per_message": 1.5, "bytes_per_message": 300.0},
            {"stream": "window", "tuples_per_message": 1.0, "bytes_per_message": 9.0},
        ],
        "components": {"subscription-bolt": {"busy_us_per_message": 40.0}, "distribution-bolt": {"busy_us_per_message": 7.0}},
        "processes": {"spark": {"cpu_us_per_message": 100.0}, "broker": {"cpu_us_per_message": 50.0}},
    }
    row = {"method": "prefix", "tasks": 4, **distribution_spark.summary(r)}
    assert row["replication"] == 1.5 and row["communication"] == 1.5 and row["cpu_us"] == 150 and row["work_us"] == 40
    found = {"machine": {"cores": 2, "processor": "P"}, "boolean": False, "rows": [row], "subscriptions": 20, "window": 10, "seconds_each": 3}
    page = distribution_spark.markdown(found)
    assert "| prefix | 4 | 1,234 | 0.00 | 1.50 | 300 | 1.50 | 7.0 | 40.0 | 150.0 | 5.0 | 12 | - | 0.50 |" in page
    nothing = distribution_spark.summary({"mean_per_s": 0.0, "all_active_s": 1.0, "placements": 0, "subscriptions": 1})
    assert nothing["communication"] == nothing["cpu_us"] == 0


def test_corpora_of_few_rows_keep_their_vocabulary(data):
    corpus: Corpus = data[PLACES].corpus
    some = as_messages(corpus, np.array([5, 3]))
    assert some.n == 2 and some.lat.tolist() == corpus.lat[[5, 3]].tolist() and len(some.terms) == np.diff(corpus.offsets)[[5, 3]].sum()
