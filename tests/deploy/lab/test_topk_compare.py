"""The comparison of indexes of top-k subscriptions, and the costs of the engine, at tiny sizes: seeded, exact, differences are found."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from dskype.bolts.topk.base import Matches
from dskype.bolts.topk.buffers.kmax import KmaxBuffers
from dskype.bolts.topk.engine import INDEXES
from dskype.deploy.lab import comparing
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.skype.engine import Known, SkypeScale
from dskype.deploy.lab.skype.workload import Stream
from dskype.deploy.lab.topk import compare, truth
from dskype.deploy.lab.topk.engine import STEPS, measure_engine
from dskype.deploy.lab.topk.measure import Measured
from dskype.deploy.lab.topk.workload import draw
from dskype.spouts.batch import MessageBatch
from tests import naive

TINY = SkypeScale(subscriptions=60, window=120, arrivals=40, warm_up=0)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    rng = random.Random(1)
    words = [f"w{i}" for i in range(60)]
    texts = [" ".join(rng.choices(words, [1 / (i + 1) for i in range(60)], k=rng.randint(0, 9))) for _ in range(150)]
    return Corpus.of_texts("words", texts, np.array([rng.uniform(-10, 10) for _ in texts]), np.array([rng.uniform(0, 30) for _ in texts]))


def subscription_of(s, row):
    words = slice(s.offsets[row], s.offsets[row + 1])
    weights = dict(zip(s.terms[words].tolist(), s.weights[words].tolist()))
    return {"k": int(s.k[row]), "alpha": float(s.alpha[row]), "lat": float(s.lat[row]), "lon": float(s.lon[row]), "weights": weights}


def messages_of(batch):
    return [
        {
            "seq": int(batch.seq[i]),
            "position": int(batch.position[i]),
            "lat": float(batch.lat[i]),
            "lon": float(batch.lon[i]),
            "weights": dict(zip(*(column[batch.offsets[i] : batch.offsets[i + 1]].tolist() for column in (batch.terms, batch.weights)))),
        }
        for i in range(batch.n)
    ]


def window_of(corpus, window, batch, seed=0):
    """Return the messages of the first full window of a stream, its watermark and its extent."""
    stream = Stream(corpus, window, seed=seed, batch=batch)
    slots = [stream.slot() for _ in range(stream.slots_of_window)]
    return MessageBatch.concat([messages for messages, _, _ in slots]), slots[-1][1], stream.extent


def test_a_workload_follows_from_its_seed_and_thresholds_are_the_kth_scores_of_a_full_window(corpus):
    workload, again, other = (draw(corpus, 50, 120, 30, seed) for seed in (3, 3, 4))
    assert np.array_equal(workload.thresholds, again.thresholds) and not np.array_equal(workload.thresholds, other.thresholds)
    assert workload.n == 50 and workload.replaced == 10 and sum(batch.n for batch in workload.batches) >= 30
    window, watermark, extent = window_of(corpus, 120, 64, 3)
    assert window.n == 120 and workload.batches[0].position[0] > watermark
    messages, kinds = messages_of(window), set()
    for row in range(60):
        lists = naive.topk(subscription_of(workload.subscriptions, row), messages, watermark, extent, corpus.diagonal_deg)
        expected = lists[-1][1] if len(lists) == 20 else -np.inf
        assert workload.thresholds[row] == expected
        kinds.add(len(lists) == 20)
    assert kinds == {False, True}


def test_the_plain_computation_is_that_of_the_tests_to_the_last_bit(corpus):
    workload = draw(corpus, 40, 120, 30)
    s, window = workload.subscriptions, window_of(corpus, 120, 64)[0]
    messages = messages_of(window)
    expected = np.array([[naive.score(subscription_of(s, i), m, corpus.diagonal_deg) for m in messages] for i in range(48)], float)
    assert np.isnan(expected).any() and not np.isnan(expected).all()
    for row in range(window.n):
        assert np.array_equal(truth.scores_of_message(s, window, row, corpus.diagonal_deg), expected[:, row], equal_nan=True)
    for row in range(48):
        assert np.array_equal(truth.scores_of_subscription(s, row, window, corpus.diagonal_deg), expected[row], equal_nan=True)
        lists = naive.topk(subscription_of(s, row), messages, int(window.position[-1]), 10**9, corpus.diagonal_deg)
        assert list(zip(*(column.tolist() for column in truth.best(s, row, window, corpus.diagonal_deg)))) == lists


def test_every_index_finds_what_a_plain_computation_finds_before_and_after_subscriptions_are_replaced(corpus, capsys):
    found = compare.compare(draw(corpus, 150, 120, 60), list(INDEXES), rounds=2, samples=12, tell=lambda line: None)
    assert found["equal"] and not found["errors"] and list(found["indexes"]) == list(INDEXES) and 0 < found["unlimited"] < 1
    for states in found["indexes"].values():
        assert list(states) == ["filled", "replaced"]
        for row in states.values():
            assert set(row) == {*compare.MATCHING, *compare.CHANGING, "measured"} and min(row.values()) >= 0
            assert row["slowest_us"] >= row["message_us"] and row["matches"] > 0
    compare.show_indexes(found)
    shown = capsys.readouterr().out
    assert "all indexes find the same" in shown and "times cones" in shown and "taat, a fifth replaced" in shown


def test_replaced_and_removed_subscriptions_are_no_longer_matched(corpus):
    workload = draw(corpus, 100, 120, 30)
    index = Measured("taat", workload)
    assert index.rows.tolist() == list(range(100)) and "remove_us" not in index.found
    index.replace()
    assert index.rows.tolist() == [*range(100, 120), *range(20, 100)] and index.found["remove_us"] >= 0
    index.remove()
    assert (index.rows < 0).sum() == 10 and len(index.index.table.live[index.index.table.live]) == 90


@pytest.mark.parametrize("fault", ["pairs", "scores"])
def test_an_index_that_finds_something_else_is_reported(corpus, monkeypatch, capsys, fault):
    class Wrong(INDEXES["taat"]):
        def match(self, messages):
            message, slot, score = super().match(messages)
            return Matches(message[1:], slot[1:], score[1:]) if fault == "pairs" else Matches(message, slot, np.nextafter(score, 2))

    monkeypatch.setitem(INDEXES, "wrong", Wrong)
    found = compare.compare(draw(corpus, 100, 120, 30), ["taat", "wrong"], rounds=1, samples=64, tell=lambda line: None)
    assert not found["equal"] and not any(error.startswith("taat") for error in found["errors"])
    assert any("plain computation" in error for error in found["errors"]) and any("batches differ" in error for error in found["errors"])
    compare.show_indexes(found)
    assert "WRONG" in capsys.readouterr().out


def test_the_steps_of_the_engine_add_up_and_its_lists_are_exact(corpus, capsys):
    known = Known()
    engines = {index: measure_engine(index, corpus, TINY, known, parts=2, between=150, samples=60) for index in ("cones", "taat")}
    for found in engines.values():
        assert not found["errors"] and len(found["parts"]) == 2 and 0 < found["lists"] <= 20
        assert found["parts"][0]["first"] == 1 and found["parts"][1]["first"] > found["parts"][0]["last"] + 149
        for part in found["parts"]:
            assert part["last"] >= part["first"] + 39 and part["changes"] > 0 and part["engine_mib"] > 0
            assert sum(part[name] for name in STEPS if name != "all_us") <= part["all_us"]
    assert engines["cones"]["parts"][1]["changes"] == engines["taat"]["parts"][1]["changes"]
    compare.show_engine("cones", engines["cones"])
    shown = capsys.readouterr().out
    assert "arrivals in buffers" in shown and "messages 1 to" in shown and "lists are those of a plain computation" in shown


def test_an_engine_with_another_list_is_reported(corpus, monkeypatch, capsys):
    published = KmaxBuffers.published

    def worse(self, slots):
        lists = published(self, slots)
        return lists._replace(scores=np.nextafter(lists.scores, -2))

    monkeypatch.setattr(KmaxBuffers, "published", worse)
    found = measure_engine("cones", corpus, TINY, Known(), parts=1, samples=4)
    assert found["errors"] and all("is not that of a plain computation" in error for error in found["errors"])
    compare.show_engine("cones", found)
    assert "WRONG" in capsys.readouterr().out


def test_the_comparison_is_a_command(tmp_path, capsys):
    file = tmp_path / "messages.csv"
    file.write_text("id,lat,lon,text\n" + "".join(f"{i},{i % 50},{i % 70},word{i % 7} and word{i % 11}\n" for i in range(200)))
    sizes = ["--subscriptions", "80", "--window", "100", "--seed", "5", "--json", str(tmp_path / "found.json")]
    assert compare.main([str(file), *sizes, "--indexes", "taat,cones", "--messages", "30", "--rounds", "1"]) == 0
    found, shown = json.loads((tmp_path / "found.json").read_text()), capsys.readouterr().out
    assert found["equal"] and set(found["indexes"]) == {"taat", "cones"} and found["settings"]["seed"] == 5 and len(found["loop_ms"]) == 2
    assert all(words in shown for words in ("all indexes find the same", "200 messages of messages.csv", "seed 5", "numba", "a loop of 20,000 additions"))
    assert compare.main([str(file), *sizes, "--what", "engine", "--arrivals", "20"]) == 0
    found, shown = json.loads((tmp_path / "found.json").read_text()), capsys.readouterr().out
    assert found["equal"] and len(found["engines"]["cones"]["parts"]) == 3 and "The whole engine with cones" in shown
    for senseless in (["--indexes", "unknown"], ["--window", "9"], ["--what", "nothing"]):
        with pytest.raises(SystemExit):
            compare.main(senseless)
        assert "error" in capsys.readouterr().err


def test_the_fixed_loop_takes_some_time():
    assert comparing.fixed_loop_ms() > 0
