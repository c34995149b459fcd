"""Routing by interest: what is published stays what the oracle says, while terms come and go on several distribution tasks that crash."""

import random
from collections import Counter

import pytest

from dskype.topology.config import TRANSPORTS
from dskype.topology.simulated.faults import Faults

from .harness import Planner, Simulation, boolean_index, check, end_expired, in_turn, metric, unfinished

pytestmark = pytest.mark.long(spread=True, seconds=35)

WORDS = [f"w{i}" for i in range(14)]
TOPK = {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": 2, "alpha": 0.5}
FILTER = {"type": "boolean", "bbox": [-10, -10, 10, 10], "expression": "lake"}


def subscription(rng, expiring):
    """Return a subscription with rare words: mostly a boolean one, which expires with the probability ``expiring``."""
    words = rng.sample(WORDS, rng.randint(1, 2))
    lat, lon = rng.randint(-10, 0), rng.randint(-10, 0)
    if rng.random() < 0.3:
        return {"type": "topk", "keywords": words, "k": rng.randint(1, 4), "alpha": rng.choice([0.2, 0.8]), "lat": lat, "lon": lon}
    record = {
        "type": "boolean",
        "bbox": [lat, lon, lat + rng.randint(4, 20), lon + rng.randint(4, 20)],
        "expression": rng.choice([" AND ", " OR ", " AND "]).join(words),
    }
    return {**record, "ttl_s": rng.choice([0.3, 1, 3])} if rng.random() < expiring else record


def world(seed, distributor):
    """Play a world whose subscriptions come, are replaced and go all the time. In every third one time passes in long steps, so that they end by themselves, too."""
    rng, ends = random.Random(seed), seed % 3 == 2
    tasks = {"subscription-bolt": rng.randint(1, 4), "distribution-bolt": rng.randint(1, 4), "subscription-spout": rng.randint(1, 2), "result-bolt": 2}
    conf = {"dskype.distributor": distributor, "dskype.distributor.options": {"summaries": True}, "dskype.window.messages": rng.choice([5, 20])}
    conf |= {"dskype.boolean.index": boolean_index(seed), "topology.emulator.transport": in_turn(seed, TRANSPORTS)}
    simulation = Simulation(conf, tasks, seed=seed, faults=Faults.drawn(seed))
    planner = Planner(simulation, rng, 0.3) if ends or rng.random() < 0.7 else None
    number = 0
    while number < (24 if ends else 45):
        for _ in range(rng.randint(0, 3 if ends else 8)):
            text = " ".join(rng.choices(WORDS, k=rng.randint(0, 7)))
            simulation.message({"text": text, "lat": rng.randint(-10, 10), "lon": rng.randint(-10, 10), "id": number})
            number += 1
        for _ in range(rng.randint(0, 4)):
            simulation.subscription(f"s{rng.randrange(14)}", None if rng.random() < 0.35 else subscription(rng, 0.7 if ends else 0.3))
        if planner is not None:
            planner.step()
        simulation.step(rng.choice([3, 10, 30, 1000]), ms=rng.choice([200, 30_000, 40_000] if ends else [20, 200]))
    if ends:
        end_expired(simulation, rng, WORDS)
    else:
        simulation.rest()
    assert not unfinished(simulation)
    return simulation, check(simulation, hint=f"seed {seed} of {distributor}")


@pytest.mark.parametrize("distributor", ["agrid", "hybrid", "location"])
def test_what_is_published_is_what_the_oracle_says(distributor):
    seen = Counter()
    for seed in range(12 if distributor == "agrid" else 10):
        simulation, compared = world(seed, distributor)
        seen.update(compared)
        seen.update({name: metric(simulation, name) for name in ("withheld_messages", "interest_pairs", "plan_changes")})
    assert all(seen[what] > 20 for what in ("match", "final", "withheld_messages", "interest_pairs", "plan_changes")), seen


def test_when_all_have_gone_no_interest_is_left():
    conf = {"dskype.distributor": "agrid"}
    simulation = Simulation(conf, {"subscription-bolt": 3, "distribution-bolt": 3})
    for i in range(12):
        simulation.subscription(f"s{i}", {**FILTER, "expression": WORDS[i], "ttl_s": 1} if i % 3 == 0 else {**(FILTER, TOPK)[i % 2]})
    simulation.step()
    simulation.message({"text": "lake w1", "lat": 0, "lon": 0})
    simulation.drain(2)
    assert metric(simulation, "interest_pairs") == 3 * (3 + 4 * 2), (
        "each of three tasks knows lake in three regions, and four words in the two that the rectangles touch"
    )
    for i in range(12):
        if i % 3:
            simulation.subscription(f"s{i}", None)
    simulation.step(ms=70_000)
    for i in range(4):
        simulation.message({"text": "lake w0", "lat": 0, "lon": 0, "id": i})
        simulation.step()
    simulation.drain(2)
    assert metric(simulation, "registered") == metric(simulation, "interest_pairs") == metric(simulation, "held_registrations") == 0
    check(simulation)


def test_messages_that_nobody_wants_are_not_sent():
    simulation = Simulation({"dskype.distributor": "agrid"}, {"subscription-bolt": 4, "distribution-bolt": 2})
    simulation.subscription("s", {**FILTER, "bbox": [-10, -10, -9, -9]})
    simulation.drain(2)
    for i, (text, lat) in enumerate([("lake", -9.5), ("lake", 9.5), ("park", -9.5), ("", -9.5)]):
        simulation.message({"text": text, "lat": lat, "lon": lat, "id": i})
    simulation.drain(2)
    assert simulation.sim.stats.total("subscription-bolt", "executed") >= 1
    assert metric(simulation, "withheld_messages") == 2, "the one without words goes nowhere in any case"
    assert check(simulation)["match"] == 1


def test_a_subscription_replaces_another_without_a_gap():
    simulation = Simulation({"dskype.distributor": "location", "dskype.distributor.options": {"summaries": True}}, {"distribution-bolt": 3})
    simulation.subscription("s", FILTER)
    simulation.drain(2)
    simulation.subscription("s", {**FILTER, "expression": "park"})
    for i in range(40):
        simulation.message({"text": "lake park", "lat": 0, "lon": 0, "id": i})
        simulation.step(5, ms=20)
    simulation.drain(2)
    assert check(simulation)["match"] == 40
