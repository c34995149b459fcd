"""Boolean subscriptions that ask for what matches already: once, exactly the newest of the window, whatever happens meanwhile."""

import json
import os
import random
from collections import Counter

import pytest

from dskype.deploy.verification import Inputs, verify
from dskype.distribution import DISTRIBUTORS
from dskype.spouts.settings import Settings
from dskype.topology.simulated.faults import Faults

from .harness import EXPIRING, TOPICS, Planner, Simulation, check, codes, metric, options_of, play, unfinished
from .initial import Initial

pytestmark = pytest.mark.long(spread=True, seconds=30)

SEEDS = int(os.environ.get("DSKYPE_SEEDS", "104")) // 4
LAKES = {"type": "boolean", "bbox": [-5, -5, 5, 5], "expression": "lake"}
TOPK = {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": 2, "alpha": 0.5}


def lake(id, lat=0):
    return {"id": id, "text": "A lake", "lat": lat, "lon": 0}


def with_lakes(name="hashing", n=5, **conf):
    """Return a topology whose window has some lakes."""
    options = {"dskype.distributor": name, "dskype.distributor.options": options_of(name, 3)}
    simulation = Simulation(options | conf, {"subscription-bolt": 3, "message-bolt": 2, "distribution-bolt": 2, "result-bolt": 2})
    for number in range(n):
        simulation.message(lake(number, lat=9 if number == 2 else 0))
        simulation.step()
    return simulation


def found(simulation, id):
    return [(d["message"], d["watermark"], d.get("initial")) for key, d, _ in simulation.json(TOPICS.results) if key == id]


def is_right(simulation, final=True):
    check(simulation)
    report = verify(Inputs.read("dskype", simulation.records), Settings.from_conf(simulation.conf), final=final)
    assert report.ok, report.as_text()
    return report


@pytest.mark.parametrize("matches", ["each", "grouped"])
@pytest.mark.parametrize("name", sorted(DISTRIBUTORS))
def test_what_matches_already_comes_at_once_and_what_comes_later_follows(name, matches):
    simulation = with_lakes(name, **{"dskype.results.matches": matches, "dskype.results": "topk"})
    simulation.subscription("all", {**LAKES, "initial": True, "meta": "mine"})
    simulation.subscription("two", {**LAKES, "initial": 2})
    simulation.subscription("none", {**LAKES, "initial": False})
    simulation.drain(3)
    assert found(simulation, "all") == [(0, 4, True), (1, 4, True), (3, 4, True), (4, 4, True)], "in a stream that stands still"
    assert found(simulation, "two") == [(3, 4, True), (4, 4, True)] and found(simulation, "none") == []
    simulation.message(lake("next"))
    simulation.drain(4)
    later = [] if matches == "grouped" else [("next", 5, None)]
    assert found(simulation, "two") == [(3, 4, True), (4, 4, True), *later] and found(simulation, "none") == later
    assert {d.get("meta") for key, d, _ in simulation.json(TOPICS.results) if key == "all"} == {"mine"}
    assert is_right(simulation).compared["initial matches"] == 6 and metric(simulation, "pending_evaluations") == 0


@pytest.mark.parametrize("name", ["hashing", "location", "hybrid"])
def test_an_update_does_not_ask_again_unless_there_is_nothing_to_go_on_from(name):
    simulation = with_lakes(name)
    simulation.subscription("s", {**LAKES, "initial": True, "update": True})
    simulation.drain(3)
    simulation.subscription("s", {**LAKES, "bbox": [-9, -9, 9, 9], "initial": True, "update": True})
    simulation.drain(3)
    assert [id for id, _, initial in found(simulation, "s") if initial] == [0, 1, 3, 4]
    simulation.subscription("s", {**LAKES, "bbox": [-9, -9, 9, 9], "initial": True})
    simulation.drain(3)
    assert [id for id, _, initial in found(simulation, "s") if initial] == [0, 1, 3, 4, 0, 1, 2, 3, 4], "another registration asks"
    is_right(simulation)


@pytest.mark.parametrize("name", ["hashing", "agrid"])
def test_the_answer_is_published_even_if_the_subscription_has_ended(name):
    simulation = with_lakes(name)
    simulation.subscription("s", {**LAKES, "initial": 3})
    simulation.subscription("s", None)
    simulation.subscription("t", {**LAKES, "initial": 1})
    simulation.subscription("t", TOPK)
    simulation.drain(4)
    assert [id for id, _, _ in found(simulation, "s")] == [1, 3, 4] and (4, 4, True) in found(simulation, "t")
    is_right(simulation)


def test_before_the_first_message_there_is_nothing_to_ask():
    simulation = with_lakes(n=0)
    simulation.subscription("s", {**LAKES, "initial": True})
    simulation.drain(2)
    simulation.message(lake("a"))
    simulation.drain(4)
    assert found(simulation, "s") == [("a", 0, None)]
    is_right(simulation)


def test_other_subscriptions_and_objects_refuse_it_by_name():
    simulation = with_lakes()
    for id, record in {
        "topk": {**TOPK, "initial": True},
        "threshold": {**{name: value for name, value in TOPK.items() if name != "k"}, "type": "threshold", "min_score": 0.5, "initial": 1},
        "zero": {**LAKES, "initial": 0},
        "many": {**LAKES, "initial": 101},
        "text": {**LAKES, "initial": "yes"},
        "null": {**LAKES, "initial": None},
    }.items():
        simulation.subscription(id, record)
    simulation.drain(2)
    assert [code for place, code in codes(simulation).items() if place[0] == TOPICS.subscriptions] == ["invalid-initial"] * 6
    is_right(simulation)
    moving = Simulation({"dskype.objects": True})
    moving.subscription("s", {**LAKES, "initial": True})
    moving.subscription("t", {**LAKES, "initial": False})
    moving.drain(2)
    assert list(codes(moving).values()) == ["no-initial"] and b"dskype.objects" in dict(moving.sim.dead_letters()[0].headers)["error"]
    is_right(moving)


@pytest.mark.parametrize("chunk", range(2))
def test_worlds_with_crashes(chunk):
    compared = Counter()
    for seed in range(chunk, SEEDS, 2):
        rng, timed = random.Random(f"asking {seed}"), seed % 3 == 2
        name, n = rng.choice(sorted(DISTRIBUTORS)), rng.randint(1, 4)
        conf = {"dskype.distributor": name, "dskype.distributor.options": options_of(name, n), "dskype.results.matches": rng.choice(["each", "grouped"])}
        conf |= {"dskype.window.messages": None, "dskype.window.span.ms": 2000} if timed else {"dskype.window.messages": rng.choice([3, 10, 30])}
        tasks = {name: rng.randint(1, 3) for name in ("message-bolt", "distribution-bolt", "aggregation-bolt", "result-bolt")}
        simulation = Simulation(conf, {"subscription-bolt": n} | tasks, seed=seed, faults=Faults.drawn(seed))
        planner = Planner(simulation, rng) if name != "hashing" and rng.random() < 0.7 else None
        more = {"living": random.Random(f"moved {seed}"), "initial": Initial(rng), "lives": EXPIRING, "trouble": rng}
        play(simulation, rng, timed=timed, planner=planner, topk=0.1, messages=80, **more)
        for _ in range(4):
            if not unfinished(simulation):
                break
            simulation.drain(2, ms=400)
        compared.update(check(simulation, timed, hint := f"seed {seed}"))
        found = verify(Inputs.read("dskype", simulation.records), Settings.from_conf(simulation.conf), final=not unfinished(simulation))
        assert found.ok, f"{found.as_text()}; {hint}"
        assert found.compared["initial matches"] == sum("initial" in d for _, d, _ in simulation.json(TOPICS.results)), hint
    assert compared["initial"] > SEEDS and compared["asked at first and cut"], compared


@pytest.mark.parametrize("name", ["hashing", "location"])
def test_verification_finds_what_is_wrong(name):
    simulation = with_lakes(name)
    simulation.subscription("before", LAKES)
    simulation.drain(2)
    simulation.message(lake("first"))
    simulation.drain(2)
    simulation.subscription("s", {**LAKES, "initial": 3})
    simulation.drain(2)
    simulation.message(lake("next"))
    simulation.drain(3)
    is_right(simulation)

    def verified(change, final=True):
        def records(topic):
            listed = list(simulation.records(topic))
            return change(listed) if topic == TOPICS.results else listed

        return verify(Inputs.read("dskype", records), Settings.from_conf(simulation.conf), final=final)

    def changed(old, new):
        return lambda listed: [r._replace(value=r.value.replace(old, new), headers=[(k, v.replace(old, new)) for k, v in r.headers]) for r in listed]

    assert not verified(lambda listed: [listed[0], *listed[2:]]).ok and not verified(lambda listed: [listed[0], *listed[2:]], final=False).ok, "one is missing"
    assert not verified(lambda listed: [r for r in listed if b'"initial"' not in r.value]).ok
    assert verified(lambda listed: [r for r in listed if b'"initial"' not in r.value], final=False).ok, "they may be on their way"
    assert verified(changed(b'"message":3,', b'"message":0,')).counts["match"] == 2, "a wrong one, and one is missing"
    assert "became active at watermark 5" in verified(changed(b'"watermark":5,"op":"match","message":4', b'"watermark":3,"op":"match","message":4')).as_text()
    assert verified(changed(b',"initial":true', b"")).counts["match"] == 6, "three are outside its life, and three are missing"
    assert "a wrong field" in verified(changed(b'"initial":true', b'"initial":false')).as_text()
    assert json.loads(simulation.records(TOPICS.results)[1].value)["initial"] is True
