"""Moves between subscription tasks under heavy faults: boolean subscriptions go from task to task, and what is published is what the oracle says."""

import os
import random

import pytest

from dskype.topology.simulated.engine import Faults

from .harness import SPACE, Planner, Simulation, check, metric, options_of, play, random_subscription, unfinished

SEEDS = int(os.environ.get("DSKYPE_SEEDS", "208")) * 5 // 4
CHUNKS = 8


def moved(seed, faults, distributor="agrid"):
    """Play a world whose plan changes all the time; return how many subscriptions were sent, and how many plans were followed.

    Most worlds are short: errors are found by what happens at the same time, and seldom need a long history.
    """
    rng = random.Random(seed)
    tasks = {"subscription-bolt": rng.randint(2, 4), "distribution-bolt": rng.randint(1, 3), "result-bolt": 1 + (seed % 8 == 0)}
    options = options_of(distributor, tasks["subscription-bolt"]) | {"summaries": rng.random() < 0.5}
    conf = {"dskype.distributor": distributor, "dskype.distributor.options": options, "dskype.window.messages": 10, "dskype.boolean.index": "plain"}
    simulation = Simulation(conf, tasks, seed=seed, faults=faults)
    for number in range(8):  # those move from the first plan on
        simulation.subscription(f"b{number}", random_subscription(rng, topk=0.0))
    messages, planner = 40 if seed % 8 == 0 else rng.choice([8, 16, 24]), Planner(simulation, rng, often=0.9)
    play(simulation, rng, messages=messages, subscriptions=messages, planner=planner, areas=rng.choice([0.0, 0.3]), topk=0.3, drain=False)
    simulation.rest()
    check(simulation, hint=f"reproduce with DSKYPE_SEED={seed}")
    assert not unfinished(simulation) and not metric(simulation, "arriving"), f"subscriptions still move; DSKYPE_SEED={seed}"
    return metric(simulation, "transferred"), metric(simulation, "plan_changes")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_moves_at_any_moment_are_exact(chunk):
    only = os.environ.get("DSKYPE_SEED")
    seeds = range(chunk, SEEDS, CHUNKS) if only is None else [int(only)] if chunk == 0 else []
    found = [moved(seed, Faults.heavy()) for seed in seeds]
    assert len(seeds) < 5 or all(sum(counts) > len(seeds) for counts in zip(*found)), found


def test_moves_of_regions_and_of_terms_are_exact():
    found = [moved(10_000 + seed, Faults.heavy(), "hybrid") for seed in range(SEEDS // 5)]
    assert len(found) < 5 or all(sum(counts) > len(found) for counts in zip(*found)), found


def frames_with(simulation, component, text):
    """Return how many records of a component's inbox have a text in them."""
    return sum(text in bytes(record.value or b"") for record in simulation.log.records(f"dskype.{component}"))


def test_distribution_tasks_do_not_see_the_subscriptions_that_move():
    """All cells change hands. The subscriptions go from subscription task to subscription task, and match where they come to."""
    conf = {"dskype.distributor": "agrid", "dskype.distributor.options": {"granularity": 4, "box": SPACE, "summaries": False}}
    simulation = Simulation(conf, {"subscription-bolt": 2, "distribution-bolt": 2})
    for number in range(6):
        simulation.subscription(f"s{number}", {"type": "boolean", "bbox": [-9, -9, -8 + number, 9], "expression": "lake", "meta": "carried"})
    simulation.drain()
    inboxes = {component: frames_with(simulation, component, b"carried") for component in ("distribution-bolt", "subscription-bolt")}
    assert all(inboxes.values())
    plan = Planner(simulation, random.Random(1)).newest
    simulation.change_plan(1, {**plan, "partitions": [{**part, "task": 1 - part["task"]} for part in plan["partitions"]]})
    simulation.drain()
    simulation.message({"id": 1, "text": "lake", "lat": 0, "lon": -8.5})
    simulation.drain()
    check(simulation)
    assert metric(simulation, "transferred") > 0 and not metric(simulation, "arriving") and not metric(simulation, "moving")
    assert frames_with(simulation, "distribution-bolt", b"carried") == inboxes["distribution-bolt"]
    assert frames_with(simulation, "subscription-bolt", b"carried") > inboxes["subscription-bolt"]
