"""Advice on distributors: what tasks would have to do is what a plain program counts, and the recommended one follows from that."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dskype.deploy.cli.main import main
from dskype.deploy.client.advice import CANDIDATES, Costs, advise, reasons
from dskype.distribution import distributor_class, make_distributor, read_plan
from dskype.distribution.hybrid.loads import LoadModel
from dskype.distribution.trials import try_out
from tests import naive
from tests.distribution import worlds

COSTS = Costs(LoadModel(0.0, 3.0, 2.0, 5.0, 7.0), change_us=11.0, copy_us=0.1)
WINDOW = 40


@pytest.fixture(scope="module")
def sample():
    """A sample of both kinds of subscriptions, too small to be halved."""
    rng = np.random.default_rng(4)
    found = worlds.sample(rng, 90, 80, vocabulary=40)
    boxes = np.array([worlds.boolean(rng, 40).bbox for _ in range(found.n)])
    boxes[rng.random(found.n) < 0.3] = np.nan
    return found._replace(boxes=boxes, thresholds=np.where(np.isnan(boxes[:, 0]), found.thresholds, -np.inf))


def plain_work(name, sample, tasks, scale):
    """Return the work of each task for a message, counted one by one, and how many copies of messages there are."""
    kind = distributor_class(name)
    options = {"box": [float(x) for x in (sample.messages.lon.min(), sample.messages.lat.min(), sample.messages.lon.max(), sample.messages.lat.max())]}
    options = {"subscriptions": 160, **options} if name == "hybrid" else options if name == "agrid" else {}
    distributor = make_distributor(name, tasks, options, kind.learn(tasks, sample, options))
    trial = try_out(distributor, sample, name in ("agrid", "hybrid"))
    m, work = sample.messages, np.zeros(tasks)
    areas = m.rectangles().tolist()
    goes = {(i, t) for i in range(m.n) for t in range(tasks)} if trial.routes is None else set(zip(trial.routes.rows.tolist(), trial.routes.tasks.tolist()))
    for s in range(sample.n):
        own = set(sample.terms[sample.offsets[s] : sample.offsets[s + 1]].tolist())
        for t in trial.tasks[trial.offsets[s] : trial.offsets[s + 1]].tolist():
            work[t] += (5 + 7) * 0.2 / 2 / sample.n
            if np.isnan(sample.boxes[s, 0]):
                work[t] += scale * 2 * 11 * sample.filled[s] * sample.k[s] / WINDOW
                continue
            for i in range(m.n):
                if (i, t) in goes and own & set(m.terms[m.offsets[i] : m.offsets[i + 1]].tolist()) and naive.overlapping(sample.boxes[s].tolist(), areas[i]):
                    work[t] += scale * 3 / m.n
    for _, t in goes:
        work[t] += 2 / m.n
    return work, len(goes) / m.n


@pytest.mark.long
def test_the_work_of_tasks_is_what_a_plain_program_counts(sample):
    found = advise(sample, WINDOW, 3, 160, COSTS)
    assert {one.distributor for one in found.candidates} == set(CANDIDATES)
    for one in found.candidates:
        work, copies = plain_work(one.distributor, sample, 3, 2.0)
        assert one.slowest_us == pytest.approx(work.max()) and one.work_us == pytest.approx(work.sum()) and one.communication == pytest.approx(copies)
        assert one.balance == pytest.approx(work.max() / work.mean()) and one.replication >= 1
    level = [one for one in found.candidates if one.slowest_us * 0.9 <= found.candidates[0].slowest_us]
    assert found.chosen.work_us + 0.1 * found.chosen.communication == min(one.work_us + 0.1 * one.communication for one in level)
    assert make_distributor(found.chosen.distributor, 3, plan=found.plan).tasks == 3


@pytest.mark.long
def test_the_reasons_fit_the_figures(sample):
    found = advise(sample, WINDOW, 3, costs=COSTS)
    for chosen in found.candidates:
        text = " ".join(reasons(found._replace(chosen=chosen)))
        assert f"{chosen.per_s:,.0f} messages/s" in text and ("needs no plan" in text) == (chosen.distributor == "hashing")


@pytest.fixture
def files(tmp_path):
    """Files of boolean subscriptions on small squares, and of messages that have few words in common."""
    rng = np.random.default_rng(1)
    rows = [(f"w{rng.integers(300)} w{rng.integers(300)}", rng.uniform(0, 20), rng.uniform(0, 20)) for _ in range(400)]
    (tmp_path / "m").write_text("".join(json.dumps({"text": text, "lat": lat, "lon": lon}) + "\n" for text, lat, lon in rows))
    lines = [{"id": f"s{i}", "type": "boolean", "expression": text.split()[0], "bbox": [lon, lat, lon + 1, lat + 1]} for i, (text, lat, lon) in enumerate(rows)]
    (tmp_path / "s").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["vocabulary", "build", str(tmp_path / "m"), "-o", str(tmp_path / "v")]) == 0
    return tmp_path


@pytest.mark.long
def test_the_command_recommends_and_writes_the_plan(files, capsys):
    command = ["partition", "advise", "--messages", str(files / "m"), "--subscriptions", str(files / "s"), "--tasks", "4"]
    capsys.readouterr()
    assert main([*command, "--vocabulary", str(files / "v"), "-o", str(files / "plan")]) == 0
    printed = capsys.readouterr().out
    (chosen,) = [line.split()[-1] for line in printed.splitlines() if line.startswith("Recommended: ")]
    assert chosen in ("agrid", "hybrid"), "small rectangles and messages at points"
    assert read_plan(files / "plan")["distributor"] == chosen and f"dskype.distributor: {chosen}" in printed and str(files / "plan") in printed
    assert main(command) == 0
    assert "-o FILE writes its plan" in capsys.readouterr().out


def test_what_the_command_cannot_do_is_said(files, capsys):
    command = ["partition", "advise", "--messages", str(files / "m"), "--subscriptions", str(files / "s"), "--tasks", "4"]
    for more, text in ((["-o", "plan"], "--vocabulary"), (["-o", str(files / "m")], "exists already"), (["--costs", '{"x": 1}'], "calibrate")):
        assert main([*command, *more]) == 1
        assert text in capsys.readouterr().err
