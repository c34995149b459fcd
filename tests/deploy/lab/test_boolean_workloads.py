"""Workloads of boolean subscriptions and their comparison, at tiny sizes: they follow from their seed, are matched exactly, and differences are found."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from dskype.bolts.boolean import INDEXES
from dskype.deploy.lab.boolean import compare, truth
from dskype.deploy.lab.boolean.measure import BATCH, Measured
from dskype.deploy.lab.boolean.subscriptions import ALL, BooleanSubscriptions, boxes_around
from dskype.deploy.lab.boolean.workloads import WORKLOADS, draw, draw_messages, draw_subscriptions
from dskype.deploy.lab.corpus import Corpus
from dskype.spouts.areas import centres
from dskype.spouts.batch import MessageBatch
from tests import naive

EVERY_INDEX = ("q1", "many-keywords", "laps-long-areas", "expressions")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    rng = random.Random(1)
    words = [f"w{i}" for i in range(400)]
    texts = [" ".join(rng.choices(words, [1 / (i + 1) for i in range(400)], k=rng.randint(0, 12))) for _ in range(300)]
    return Corpus.of_texts("words", texts, np.array([rng.uniform(-89, 89) for _ in texts]), np.array([rng.uniform(-180, 180) for _ in texts]))


def expected(subscriptions, messages, row):
    """Return what :func:`truth.matches` returns, computed by the oracle of the tests."""
    words = set(messages.terms[messages.offsets[row] : messages.offsets[row + 1]].tolist())
    expressions = subscriptions.expressions(np.arange(subscriptions.n))
    area = messages.rectangles()[row].tolist()
    return [i for i, e in enumerate(expressions) if naive.overlapping(subscriptions.boxes[i].tolist(), area) and naive.satisfies(e, words)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_follows_from_its_seed_and_every_index_finds_what_a_plain_computation_finds(corpus, name):
    workload, again, other = (draw(name, corpus, 120, 60, seed) for seed in (3, 3, 4))
    for a, b, c in zip(workload[1:], again[1:], other[1:]):
        assert all((x is None and y is None) or np.array_equal(x, y) for x, y in zip(a, b)) and not np.array_equal(
            a[0 if a is workload.subscriptions else 2], c[0 if a is workload.subscriptions else 2]
        )
    s, m = workload.subscriptions, workload.messages
    assert s.n == len(s.offsets) - 1 == len(s.shapes) == 120 and m.n == 60 and s.offsets[-1] == len(s.terms) and m.offsets[-1] == len(m.terms)
    assert (np.diff(s.offsets) > 0).all() and np.isfinite(s.boxes).all() and (np.abs(s.boxes[:, ::2]) <= 180).all() and (s.boxes[:, 1] <= s.boxes[:, 3]).all()
    for row in range(60):
        terms = m.terms[m.offsets[row] : m.offsets[row + 1]]
        assert (np.diff(terms) > 0).all()
    indexes = list(INDEXES) if name in EVERY_INDEX else ["plain", "table"]
    found = compare.compare(workload, indexes, rounds=2, samples=10, tell=lambda line: None)
    assert found["equal"] and not found["errors"] and list(found["indexes"]) == indexes
    assert all(set(row) == set(compare.COLUMNS) | {"measured"} for row in found["indexes"].values())
    assert ("area" in name) == (m.areas is not None)
    assert all(truth.matches(s, m, row).tolist() == expected(s, m, row) for row in range(20))


def test_workloads_have_the_sizes_that_they_name(corpus):
    rng = np.random.default_rng(1)
    few = draw_subscriptions(corpus, 500, rng, km=(50, 50), keywords=(2, 2))
    middle = (few.boxes[:, 3] < 90) & (few.boxes[:, 1] > -90)
    assert np.allclose((few.boxes[:, 3] - few.boxes[:, 1])[middle] * 111.195, 50)
    assert set(np.diff(few.offsets).tolist()) <= {1, 2}
    words = np.diff(draw_messages(corpus, 50, rng, words=(20, 30)).offsets)
    assert words.min() >= 20 and words.max() <= 30
    widths = {name: np.diff(draw(name, corpus, 200, 5).subscriptions.offsets) for name in ("wide-or-1", "wide-or-16", "wide-or")}
    assert set(widths["wide-or-1"].tolist()) == {1} and 14 < widths["wide-or-16"].mean() <= 16 and widths["wide-or"].mean() > 50
    assert (np.diff(draw("many-keywords", corpus, 100, 50).subscriptions.offsets) == 20).all()
    hot = draw("hot-keyword", corpus, 100, 50)
    assert set(hot.subscriptions.terms.tolist()) == {len(corpus.vocabulary) - 1} == set(hot.messages.terms[hot.messages.offsets[1:] - 1].tolist())
    shapes = draw("expressions", corpus, 400, 5).subscriptions
    kinds = {json.dumps(e)[:6] if isinstance(e, list) else "term" for e in shapes.expressions(np.arange(400))}
    assert set(shapes.shapes.tolist()) == {0, 1, 2, 3} and kinds == {"term", '["and"', '["or",'}


def test_rectangles_around_points_cross_the_antimeridian_and_end_at_the_poles():
    boxes = boxes_around(np.array([0.0, 89.99, 0.0]), np.array([179.9, 0.0, -179.9]), np.array([111.195, 20000.0, 111.195]), np.full(3, 111.195))
    assert np.allclose(boxes[0], [179.4, -0.5, -179.6, 0.5]) and np.allclose(boxes[2], [179.6, -0.5, -179.4, 0.5])
    assert boxes[1].tolist()[0::2] == [-180, 180] and boxes[1][3] == 90


def test_areas_overlap_by_their_borders_and_across_the_antimeridian():
    areas = np.array([[10.0, 10, 20, 20], [170, -5, -170, 5], [-180, -5, -175, 5], [30, 30, 40, 40]])
    messages = MessageBatch(np.arange(4), np.arange(4), *centres(areas), np.arange(5), np.zeros(4, np.int64), np.zeros(4), areas)
    boxes = np.array([[20.0, 20, 25, 25], [175, 0, 178, 1], [-179, 0, -178, 1], [179, -9, -179, 9], [40.1, 30, 50, 40]])
    s = BooleanSubscriptions(boxes, np.arange(6), np.zeros(5, np.int32), np.full(5, ALL, np.int8))
    assert [truth.matches(s, messages, row).tolist() for row in range(4)] == [[0], [1, 2, 3], [2, 3], []]


def test_an_index_that_finds_something_else_is_reported(corpus, monkeypatch, capsys):
    class Wrong(INDEXES["plain"]):
        name = "wrong"

        def match(self, messages):
            message, slot = super().match(messages)
            return message[1:], slot[1:]

    monkeypatch.setitem(INDEXES, "wrong", Wrong)
    found = compare.compare(draw("q1", corpus, 200, 2 * BATCH), ["plain", "wrong"], samples=BATCH, rounds=1, apart=True, tell=lambda line: None)
    assert not found["equal"] and any("plain computation" in e for e in found["errors"]) and any("2 batches differ" in e for e in found["errors"])
    compare.show(found)
    assert "WRONG" in capsys.readouterr().out


def test_an_index_that_takes_too_long_to_build_is_left_out(corpus, capsys):
    told = []
    found = compare.compare(draw("q1", corpus, 20, 10), ["plain"], limit_s=1e-6, tell=told.append)
    assert found["left_out"] == ["plain"] and not found["indexes"] and found["equal"] and "left out" in told[0]
    compare.show(found)
    assert "took too long to build: plain" in capsys.readouterr().out


def test_a_slow_index_matches_as_many_batches_as_its_budget_lasts_for(corpus):
    index = Measured("plain", draw("q1", corpus, 50, 5 * BATCH))
    index.match(0.0)
    assert index.found["measured"] == BATCH
    index.match(100.0)
    assert index.found["measured"] == BATCH and len(index.digests) == 1


def test_the_comparison_is_a_command(corpus, tmp_path, capsys):
    file = tmp_path / "messages.csv"
    file.write_text("id,lat,lon,text\n" + "".join(f"{i},{i % 50},{i % 70},word{i % 7} and word{i % 11}\n" for i in range(200)))
    arguments = [
        str(file),
        "--workloads",
        "q1,small",
        "--indexes",
        "plain",
        "--scale",
        "0.0001",
        "--messages",
        "20",
        "--rounds",
        "1",
        "--json",
        str(tmp_path / "found.json"),
    ]
    assert compare.main(arguments) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    shown = capsys.readouterr().out
    assert [w["subscriptions"] for w in found["workloads"]] == [100, 100] and "all indexes find the same" in shown
    cells = [line.replace("│", " ").split() for line in shown.splitlines()]
    last = [line for line in cells if line[:1] in (["q1"], ["small"])]
    assert [line[0] for line in last] == ["q1", "small"] * 3, "side by side: time of messages, time of insertions, bytes"
    assert [float(line[1]) for line in last[:2]] == [round(w["indexes"]["plain"]["message_us"], 2) for w in found["workloads"]]
    assert compare.main(["--list"]) == 0 and "hotspot" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        compare.main(["--workloads", "unknown"])
