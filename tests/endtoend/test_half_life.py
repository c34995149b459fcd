"""Top-k lists with a half-life under every distributor, with faults, moves and takeovers, and ``dskype verify`` about them. Random ones are part of the worlds of ``test_exactness.py``."""

import json
import math
import random
from collections import Counter

import pytest

from dskype.bolts.topk.engine import BUFFERS, INDEXES
from dskype.bolts.window.base import WINDOWS
from dskype.deploy.verification import Inputs, verify
from dskype.distribution import DISTRIBUTORS
from dskype.spouts.settings import Settings
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.simulated.faults import Faults

from .harness import TOPICS, Planner, Simulation, check, drawing, in_turn, metric, options_of, play, unfinished, vocabulary
from .searching import Searcher

pytestmark = pytest.mark.long(spread=True, seconds=60)

TIMED = {"dskype.window.messages": None, "dskype.window.span.ms": 2000, "dskype.window.lateness.ms": 300}
LAKE = {"type": "topk", "keywords": ["lake", "park"], "lat": 0, "lon": 0, "alpha": 0.5, "k": 2}


def verified(simulation):
    report = verify(Inputs.read("dskype", simulation.records), Settings.from_conf(simulation.conf), final=True)
    assert report.ok, report.as_text()
    return report


@pytest.mark.parametrize(("seed", "name"), [(seed, name) for turn in range(2) for seed, name in enumerate(sorted(DISTRIBUTORS), 20 * turn)])
def test_every_list_is_the_oracles(seed, name):
    rng, n = random.Random(f"half-life {seed}"), 2 + seed % 3
    conf = TIMED | {
        "dskype.half.life.s": rng.choice([0.1, 0.2, 0.5, 2]),
        "dskype.distributor": name,
        "dskype.distributor.options": options_of(name, n),
        "dskype.index": in_turn(seed, INDEXES),
        "dskype.buffer": in_turn(seed, [buffer for buffer in BUFFERS if BUFFERS[buffer].decays]),
        "dskype.window.index": in_turn(seed, WINDOWS),
        "dskype.vocabulary": vocabulary(),
    }
    tasks = {"subscription-bolt": n, "distribution-bolt": 2, "message-bolt": 2, "result-bolt": 2}
    simulation = Simulation(conf, tasks, seed=seed, faults=Faults.drawn(seed))
    planner = None if name == "hashing" else Planner(simulation, rng, often=0.2, takeovers=0.3)
    searcher = Searcher(simulation, searches := random.Random(f"s {seed}"), drawing(searches, conf, None, topk=1.0))
    more = {"trouble": random.Random(seed), "living": random.Random(f"l {seed}"), "searcher": searcher, "planner": planner}
    play(simulation, rng, messages=90, timed=True, areas=0.2, topk=0.9, **more)
    for _ in range(4):
        if not unfinished(simulation):
            break
        simulation.drain(4)
    compared = check(simulation, True, hint=f"seed {seed}")
    assert compared["delta"] + compared["state"] > 20 and compared["final"] and compared["top-k searches"] > 5, compared
    verified(simulation)


def published(simulation):
    """Return {(registration, watermark): list}, for all lists that were written."""
    return {
        (state["registration"], state["watermark"]): [(entry["message"], entry["score"]) for entry in state["topk"]]
        for _, state, _ in simulation.json(TOPICS.topk)
        if state is not None
    }


@pytest.mark.parametrize("tasks", [1, 3])
def test_all_distributors_publish_the_same(tasks):
    found = {}
    for name in sorted(DISTRIBUTORS):
        conf = TIMED | {"dskype.half.life.s": 0.4, "dskype.distributor": name, "dskype.distributor.options": options_of(name, tasks)}
        simulation = Simulation(conf, {"subscription-bolt": tasks, "distribution-bolt": 2, "message-bolt": 2, "result-bolt": 2})
        planner = Planner(simulation, random.Random(8)) if name != "hashing" else None
        play(simulation, random.Random(tasks), messages=120, subscriptions=40, timed=True, planner=planner, areas=0.2, topk=0.9)
        simulation.drain(4, ms=400)
        check(simulation, True)
        assert not metric(simulation, "moving")
        found[name] = published(simulation), {id: state and state["topk"] for id, state, _ in simulation.json(TOPICS.topk)}
    lists, last = found["hashing"]
    for name, (other, other_last) in found.items():
        common = lists.keys() & other.keys()
        assert other_last == last and len(common) > len(lists) // 3, name
        assert {key: lists[key] for key in common} == {key: other[key] for key in common}, name


def test_a_newer_message_outranks_a_better_one_that_is_old_and_nothing_is_published_meanwhile():
    simulation = Simulation(TIMED | {"dskype.window.span.ms": 60_000, "dskype.half.life.s": 1})
    simulation.subscription("s", LAKE)
    simulation.drain(2)
    begin = simulation.time_ms
    for id, after_ms, text, lat in (("old", 0, "lake park", 0), ("newer", 900, "lake", 2), ("newest", 2900, "lake", 8)):
        simulation.message({"id": id, "ts": begin + after_ms, "text": text, "lat": lat, "lon": 0})
    simulation.drain(4, ms=1000)
    before = len(simulation.json(TOPICS.results))
    lists = [[entry["message"] for entry in state["topk"]] for _, state, _ in simulation.json(TOPICS.topk)]
    assert lists[-1] == ["newest", "newer"], lists
    simulation.drain(6, ms=1000)
    assert len(simulation.json(TOPICS.results)) == before
    ops = [(delta["op"], delta["message"], delta.get("rank")) for _, delta, _ in simulation.json(TOPICS.results)]
    assert ("remove", "old", None) in ops
    check(simulation, True)
    verified(simulation)


def test_what_is_left_of_a_score_follows_from_the_result_alone():
    simulation = Simulation(TIMED | {"dskype.half.life.s": 2})
    simulation.subscription("s", {**LAKE, "alpha": 1})
    simulation.drain(2)
    now = simulation.time_ms
    simulation.message({"id": "a", "ts": now, "text": "lake", "lat": 0, "lon": 0})
    simulation.drain(4, ms=400)
    [score] = [entry["score"] for _, state, _ in simulation.json(TOPICS.topk) if state for entry in state["topk"]][-1:]
    assert math.isclose(2 ** (score - now / 2000), 1.0, rel_tol=1e-6) and math.isclose(2 ** (score - (now + 6000) / 2000), 0.125, rel_tol=1e-6)


def test_threshold_subscriptions_look_at_plain_scores():
    simulation = Simulation(TIMED | {"dskype.half.life.s": 0.5})
    simulation.subscription("s", {"type": "threshold", "text": "lake park", "lat": 0, "lon": 0, "alpha": 0.5, "min_score": 0.9})
    simulation.drain(2)
    simulation.message({"id": "a", "ts": simulation.time_ms - 250, "text": "lake park", "lat": 0, "lon": 0})
    simulation.drain(4, ms=400)
    assert [delta["op"] for _, delta, _ in simulation.json(TOPICS.results)] == ["match"]
    assert abs(simulation.json(TOPICS.results)[0][1]["score"] - 1.0) < 1e-9
    verified(simulation)


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"dskype.window.messages": 20, "dskype.half.life.s": 5}, "only a time window"),
        (TIMED | {"dskype.half.life.s": 5, "dskype.objects": True}, "dskype.objects.ttl.ms"),
        (TIMED | {"dskype.half.life.s": 0}, "seconds from 0.1"),
        (TIMED | {"dskype.half.life.s": "1 h"}, "seconds from 0.1"),
        (TIMED | {"dskype.half.life.s": 5, "dskype.buffer": "skyband"}, "set dskype.buffer"),
    ],
)
def test_what_cannot_be_is_refused_by_name_before_a_topology_starts(conf, words):
    with pytest.raises(IllegalArgumentException, match=words) as refused:
        Simulation(conf)
    assert "dskype.half.life.s" in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [lambda entry: {**entry, "score": entry["score"] - 1}, lambda entry: {**entry, "message": "b" if entry["message"] == "a" else "a"}, lambda entry: None],
)
def test_verify_finds_what_is_wrong(change):
    simulation = Simulation(TIMED | {"dskype.half.life.s": 0.5})
    simulation.subscription("s", {**LAKE, "k": 1})
    simulation.drain(2)
    now = simulation.time_ms
    simulation.message({"id": "a", "ts": now, "text": "lake park", "lat": 0, "lon": 0})
    simulation.message({"id": "b", "ts": now - 200, "text": "lake park", "lat": 0, "lon": 0})
    simulation.drain(4, ms=300)

    def records(topic):
        found = list(simulation.records(topic))
        if topic != TOPICS.topk:
            return found
        values = [json.loads(record.value) for record in found]
        lists = [[new for entry in value["topk"] if (new := change(entry)) is not None] for value in values]
        return [r._replace(value=json.dumps({**value, "topk": topk}).encode()) for r, value, topk in zip(found, values, lists)]

    verified(simulation)
    report = verify(Inputs.read("dskype", records), Settings.from_conf(simulation.conf), final=True)
    assert not report.ok and Counter(report.counts)["state"], report.as_text()
