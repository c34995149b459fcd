"""Subscriptions that need fewer tasks than they have give them up, whatever happens meanwhile, and what is published stays what the oracle says."""

import random
from collections import Counter

import pytest

from dskype.topology.simulated.faults import Faults

from .harness import WORDS, Planner, Simulation, check, metric, options_of, vocabulary

pytestmark = pytest.mark.long


def world(seed, distributor, faults, plans):
    """Play a world in which floors rise high: few words, small buffers, places that hardly count, and subscriptions from before the first message."""
    rng = random.Random(seed)
    n = rng.randint(2, 5) if distributor == "prefix" else 4
    tasks = {"subscription-bolt": n, "distribution-bolt": rng.randint(1, 2), "message-bolt": rng.randint(1, 2), "result-bolt": rng.randint(1, 2)}
    conf = {
        "dskype.distributor": distributor,
        "dskype.distributor.options": options_of(distributor, n),
        "dskype.window.messages": rng.choice([8, 15]),
        "dskype.buffer.options": {"factor": 1, "extra": rng.choice([0, 1, 3])},
        "dskype.results.topk.interval.ms": rng.choice([0, 300]),
    }
    if rng.random() < 0.5:
        conf["dskype.vocabulary"] = vocabulary()
    simulation = Simulation(conf, tasks, seed=seed if faults else None, faults=Faults.heavy() if faults else Faults())
    planner = Planner(simulation, rng, 0.2) if plans else None
    words, number = rng.sample(WORDS, 3), 0

    def register(i):
        simulation.subscription(f"s{i}", {"type": "topk", "keywords": rng.sample(words, 2), "k": 1, "alpha": rng.choice([0, 0, 0.05]), "lat": 0, "lon": 0})

    for i in range(8):
        register(i)
    simulation.step()
    while number < 70:
        for _ in range(rng.randint(1, 6)):
            simulation.message({"text": " ".join(rng.sample(words, rng.choice([1, 2, 2, 2]))), "lat": rng.choice([0, 0, 3]), "lon": 0, "id": number})
            number += 1
        if rng.random() < 0.15:
            register(rng.randrange(10))
        if rng.random() < 0.05:
            simulation.subscription(f"s{rng.randrange(10)}", None)
        if planner is not None:
            planner.step()
        simulation.step(rng.choice([10, 30, 1000]), ms=rng.choice([20, 200]))
    simulation.drain()
    for _ in range(4):
        if metric(simulation, "moving"):
            simulation.drain(4)
    return simulation, check(simulation, hint=f"seed {seed} of {distributor}, faults {faults}, plans {plans}")


@pytest.mark.parametrize(
    ("distributor", "faults", "plans", "seeds"),
    [("prefix", False, False, range(8)), ("prefix", True, False, range(3)), ("prefix", True, True, range(3)), ("spatial-first", False, False, range(3, 6))],
)
def test_shrinking_subscriptions_stay_exact(distributor, faults, plans, seeds):
    seen = Counter()
    for seed in seeds:
        simulation, compared = world(seed, distributor, faults, plans)
        seen.update({name: metric(simulation, name) for name in ("shrunk", "plan_changes")}, final=compared["final"])
        assert not metric(simulation, "moving")
    assert seen["shrunk"] and seen["final"] and (seen["plan_changes"] > 0) == plans


def test_a_subscription_from_before_the_first_message_ends_up_where_a_later_one_is_placed():
    simulation = Simulation(
        {"dskype.distributor": "prefix", "dskype.window.messages": 20, "dskype.buffer.options": {"factor": 1, "extra": 1}}, {"subscription-bolt": 4}
    )
    early = {"type": "topk", "keywords": ["lake", "hill"], "k": 1, "alpha": 0, "lat": 0, "lon": 0}
    simulation.subscription("early", early)
    simulation.drain(2)
    assert metric(simulation, "replicas") == 2
    for number in range(30):
        simulation.message({"text": "lake hill", "lat": 0, "lon": 0, "id": number})
        simulation.step()
    simulation.drain(2)
    assert metric(simulation, "replicas") == metric(simulation, "shrunk") == 1
    simulation.subscription("late", early)
    simulation.drain()
    assert metric(simulation, "replicas") == 2 and metric(simulation, "reallocations") == 2
    assert check(simulation)["final"] == 2
