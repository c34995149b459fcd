"""Threshold subscriptions under every distributor, with faults and plans that change, and ``dskype verify`` about them. Random ones are part of every world of ``test_exactness.py``."""

import json
import math
import random

import pytest

from dskype.deploy.verification import Inputs, verify
from dskype.distribution import DISTRIBUTORS
from dskype.spouts.settings import Settings
from dskype.topology.simulated.faults import Faults

from .harness import DIAGONAL, TOPICS, Planner, Simulation, check, codes, drawing, metric, options_of, play, unfinished
from .thresholds import Thresholds

pytestmark = pytest.mark.long(spread=True, seconds=60)

NEAR = {"type": "threshold", "text": "lake park", "lat": 1, "lon": 2, "alpha": 0.5}


@pytest.mark.parametrize(("seed", "name"), list(enumerate(sorted(DISTRIBUTORS))))
def test_every_message_that_reaches_the_score_is_a_match_and_no_other(seed, name):
    rng, n = random.Random(f"thresholds {seed}"), 2 + seed % 3
    conf = {"dskype.distributor": name, "dskype.distributor.options": options_of(name, n), "dskype.results.matches": ("each", "grouped")[seed % 3 == 1]}
    tasks = {"subscription-bolt": n, "distribution-bolt": 2, "result-bolt": 2}
    simulation = Simulation(conf, tasks, seed=seed, faults=Faults.drawn(seed))
    planner = None if name == "hashing" else Planner(simulation, rng, often=0.2, takeovers=0.3)
    thresholds = Thresholds(scored := random.Random(f"scored {seed}"), drawing(scored, conf, None, topk=1.0), DIAGONAL, often=0.8)
    play(
        simulation,
        rng,
        messages=70,
        areas=0.2,
        topk=0.3,
        planner=planner,
        trouble=random.Random(seed),
        living=random.Random(f"l {seed}"),
        thresholds=thresholds,
    )
    for _ in range(4):
        if not unfinished(simulation):
            break
        simulation.drain(4)
    compared = check(simulation, hint=f"seed {seed}")
    assert compared["scored"] > 5 and compared["below the threshold"] > 5, compared
    report = verify(Inputs.read("dskype", simulation.records), Settings.from_conf(simulation.conf), final=True)
    assert report.ok, report.as_text()


def published(simulation):
    return [json.loads(r.value) for r in simulation.records(TOPICS.results)]


def test_a_score_on_the_threshold_is_enough():
    simulation = Simulation()
    simulation.subscription("s", {**NEAR, "alpha": 1, "min_score": 1 - 5 / DIAGONAL, "meta": 7})
    simulation.drain(2)
    for id, lat, lon in (("on", 1 + 3, 2 + 4), ("in", 1, 2), ("out", 1 + 4, 2 + 4)):
        simulation.message({"id": id, "text": "a lake", "lat": lat, "lon": lon})
    simulation.message({"id": "none", "text": "hill", "lat": 1, "lon": 2})
    simulation.drain(2)
    assert [(value["op"], value["message"], value["score"], value["meta"]) for value in published(simulation)] == [
        ("match", "on", 1 - 5 / DIAGONAL, 7),
        ("match", "in", 1.0, 7),
    ]
    assert "rank" not in published(simulation)[0]


def test_a_threshold_in_metres_reaches_across_the_antimeridian():
    conf = {"dskype.space": [-180, -90, 180, 90]}
    simulation = Simulation(conf)
    simulation.subscription("s", {**NEAR, "lat": 0, "lon": 179.99, "distance": "metres", "scale_m": 10_000, "min_score": 0.6})
    simulation.drain(2)
    simulation.message({"id": "near", "text": "lake park", "lat": 0, "lon": -179.99})
    simulation.message({"id": "far", "text": "lake park", "lat": 0, "lon": -179.9})
    simulation.drain(2)
    [match] = published(simulation)
    assert match["message"] == "near" and math.isclose(match["score"], 0.5 * (1 - 2223.9 / 10_000) + 0.5, abs_tol=1e-4)


def test_an_update_goes_on_and_an_end_withdraws_nothing():
    simulation = Simulation()
    simulation.subscription("s", {**NEAR, "min_score": 0.9})
    simulation.drain(2)
    simulation.message({"id": 1, "text": "lake park", "lat": 1, "lon": 2})
    simulation.drain(2)
    simulation.subscription("s", {**NEAR, "lat": 5, "min_score": 0.95, "update": True})
    simulation.drain(2)
    simulation.message({"id": 2, "text": "lake park", "lat": 1, "lon": 2})
    simulation.message({"id": 3, "text": "lake park", "lat": 5, "lon": 2})
    simulation.drain(2)
    simulation.subscription("s", None)
    simulation.drain(2)
    assert [(value["op"], value["message"]) for value in published(simulation)] == [("match", 1), ("match", 3)]
    assert [event["event"] for _, event, _ in simulation.json(TOPICS.registrations)] == ["active", "updated", "removed"]
    assert metric(simulation, "matches") == 2


def test_with_objects_they_are_refused_by_name():
    simulation = Simulation({"dskype.objects": True})
    simulation.subscription("s", {**NEAR, "min_score": 0.5})
    simulation.drain(2)
    assert set(codes(simulation).values()) == {"no-threshold"}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda value: {**value, "score": value["score"] - 0.01}, "wrong score"),
        (lambda value: {name: field for name, field in value.items() if name != "score"}, "wrong score"),
        (lambda value: {**value, "message": "below"}, "is wrong"),
        (lambda value: None, "was not published"),
    ],
)
def test_verify_finds_what_is_wrong(change, what):
    simulation = Simulation()
    simulation.subscription("s", {**NEAR, "min_score": 0.9})
    simulation.drain(2)
    simulation.message({"id": "above", "text": "lake park", "lat": 1, "lon": 2})
    simulation.message({"id": "below", "text": "park", "lat": 1, "lon": 2})
    simulation.drain(2)

    def records(topic):
        found = list(simulation.records(topic))
        if topic != TOPICS.results:
            return found
        changed = [(r, change(json.loads(r.value))) for r in found]
        return [r._replace(value=json.dumps(value).encode()) for r, value in changed if value is not None]

    settings = Settings.from_conf(simulation.conf)
    assert verify(Inputs.read("dskype", simulation.records), settings, final=True).ok
    report = verify(Inputs.read("dskype", records), settings, final=True)
    assert not report.ok and what in report.as_text(), report.as_text()
