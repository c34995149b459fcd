"""Moves between subscription tasks under heavy faults: boolean subscriptions go from task to task, and what is published is what the oracle says."""

import itertools
import os
import random
from collections import Counter

import pytest

from dskype.distribution import make_distributor
from dskype.topology.config import TRANSPORTS
from dskype.topology.simulated.faults import Faults

from .harness import (
    EXPIRING,
    LONG_STEPS,
    SPACE,
    TOPICS,
    Planner,
    Simulation,
    boolean_index,
    check,
    end_expired,
    in_turn,
    metric,
    options_of,
    play,
    random_subscription,
    unfinished,
)

pytestmark = pytest.mark.long(spread=True, seconds=60)

SEEDS = int(os.environ.get("DSKYPE_SEEDS", "104")) * 11 // 4
CHUNKS = 8


def moved(seed, faults, distributor="agrid", takeovers=0.0):
    """Play a world whose plan changes all the time; return how many subscriptions were sent, how many plans were followed, and how many subscriptions ended.

    Both transports and all boolean indexes take turns. In every fifth world time passes in long steps, so that boolean subscriptions end by themselves while they move.

    :param takeovers: the share of plans that take over step by step.

    Most worlds are short: errors are found by what happens at the same time, and seldom need a long history.
    """
    rng, ends = random.Random(seed), seed % 5 == 2
    tasks = {"subscription-bolt": rng.randint(2, 4), "distribution-bolt": rng.randint(1, 3), "result-bolt": 1 + (seed % 8 == 0)}
    options = options_of(distributor, tasks["subscription-bolt"]) | {"summaries": rng.random() < 0.5}
    conf = {
        "dskype.distributor": distributor,
        "dskype.distributor.options": options,
        "dskype.window.messages": 10,
        "dskype.boolean.index": boolean_index(seed),
        "topology.emulator.transport": in_turn(seed, TRANSPORTS),
    }
    simulation = Simulation(conf, tasks, seed=seed, faults=faults)
    for number in range(8):  # those move from the first plan on
        simulation.subscription(f"s{number}", random_subscription(rng, topk=0.0, **(EXPIRING if ends else {})))
    simulation.step(30)
    messages = 9 if ends else 20 if seed % 16 == 0 else rng.choice([6, 8, 12])
    planner = Planner(simulation, rng, often=0.5 if takeovers or ends else 0.9, takeovers=takeovers)
    more = LONG_STEPS if ends else {"most": 5}
    play(simulation, rng, messages=messages, subscriptions=messages, planner=planner, areas=rng.choice([0.0, 0.3]), topk=0.3, drain=False, **more)
    if ends:
        end_expired(simulation, rng)
    else:
        simulation.rest()
    check(simulation, hint=f"reproduce with DSKYPE_SEED={seed}")
    assert not unfinished(simulation) and not metric(simulation, "arriving"), f"subscriptions still move; DSKYPE_SEED={seed}"
    ended = sum(record.get("event") == "removed" for _, record, _ in simulation.json(TOPICS.registrations)) if ends else 0
    return Counter({name: metric(simulation, name) for name in ("transferred", "plan_changes")}) + planner.seen + Counter(ended=ended)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_moves_at_any_moment_are_exact(chunk):
    only = os.environ.get("DSKYPE_SEED")
    seeds = range(chunk, SEEDS, CHUNKS) if only is None else [int(only)] if chunk == 0 else []
    found = sum((moved(seed, Faults.drawn(seed)) for seed in seeds), Counter())
    few = len(seeds) < 20
    assert few or (all(found[what] > len(seeds) for what in ("transferred", "plan_changes", "ended")) and found["corner shifts"] > len(seeds) // 4), found


def test_moves_of_regions_and_of_terms_are_exact():
    found = sum((moved(10_000 + seed, Faults.drawn(10_000 + seed), "hybrid") for seed in range(SEEDS // 6)), Counter())
    assert SEEDS < 60 or all(found[what] > SEEDS // 6 for what in ("transferred", "plan_changes", "ended")), found


@pytest.mark.parametrize("distributor", ["agrid", "hybrid", "location"])
def test_takeovers_at_any_moment_are_exact(distributor):
    """Two strategies live at once; some takeovers are never over, and the next plan ends most of them."""
    found = sum((moved(20_000 + seed, Faults.drawn(20_000 + seed), distributor, takeovers=0.7) for seed in range(SEEDS // 60)), Counter())
    assert found["plan_changes"] > SEEDS // 120, found


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


def zone(task):
    """Return a plan in which one task has everything."""
    return {
        "v": 1,
        "distributor": "hybrid",
        "tasks": 2,
        "loads": [0, 0],
        "grid": {"columns": 4, "rows": 4, "box": SPACE},
        "zones": [{"cells": [0, 0, 4, 4], "task": task, "load": 1}],
    }


def lake(simulation, name):
    simulation.subscription(name, {"type": "boolean", "bbox": [-9, -9, 9, 9], "expression": "lake"})


def replicas(simulation):
    """Return how many subscriptions each subscription task has."""
    return [simulation.sim.stats.tasks[task]["metrics"]["subscriptions"] for task in simulation.plan.component_tasks("subscription-bolt")]


@pytest.mark.parametrize("summaries", [False, True])
def test_a_plan_takes_over_step_by_step(summaries):
    """New subscriptions live by the new plan alone; the old ones stay until few are left, or another plan comes."""
    conf = {"dskype.distributor": "hybrid", "dskype.distributor.options": {"granularity": 4, "box": SPACE, "summaries": summaries}}
    simulation = Simulation(conf, {"subscription-bolt": 2, "distribution-bolt": 2})
    simulation.change_plan(1, zone(0))
    simulation.drain()
    for number in range(12):
        lake(simulation, f"old{number}")
    simulation.drain()
    assert replicas(simulation) == [12, 0]
    simulation.change_plan(2, {**zone(1), "takeover": 0.5})
    simulation.drain()
    for number in range(12):
        simulation.message({"id": number, "text": "lake", "lat": 0, "lon": number - 6})
        lake(simulation, f"new{number}")
        simulation.drain(2)
    simulation.drain()
    assert replicas(simulation) == [12, 12] and metric(simulation, "placed_by_old_plan") == 12 and metric(simulation, "plan_changing") == 2
    assert not metric(simulation, "transferred"), "nobody has moved"
    for number in range(10):
        simulation.subscription(f"old{number}", None)
    simulation.message({"id": 100, "text": "lake", "lat": 0, "lon": 0})
    simulation.drain()
    assert replicas(simulation) == [0, 14] and metric(simulation, "plan_changing") == 0 and metric(simulation, "transferred") == 2
    # Another plan ends a takeover at once.
    simulation.change_plan(3, {**zone(0), "takeover": 0})
    simulation.drain()
    assert replicas(simulation) == [0, 14] and metric(simulation, "plan_changing") == 2
    simulation.change_plan(4, zone(0))
    simulation.message({"id": 101, "text": "lake", "lat": 0, "lon": 0})
    simulation.drain(16)
    assert replicas(simulation) == [14, 0] and metric(simulation, "plan_changing") == 0 and metric(simulation, "transferred") == 16
    check(simulation)


@pytest.mark.parametrize("damage", [{"tasks": 3}, {"zones": []}, {"takeover": 2}], ids=["tasks", "zones", "takeover"])
def test_a_plan_that_is_refused_ends_no_takeover(damage):
    conf = {"dskype.distributor": "hybrid", "dskype.distributor.options": {"granularity": 4, "box": SPACE}}
    simulation = Simulation(conf, {"subscription-bolt": 2})
    simulation.change_plan(1, zone(0))
    simulation.drain()
    for number in range(4):
        lake(simulation, f"old{number}")
    simulation.drain()
    simulation.change_plan(2, {**zone(1), "takeover": 0})
    simulation.drain()
    simulation.change_plan(3, {**zone(0), **damage})
    simulation.drain()
    assert replicas(simulation) == [4, 0] and metric(simulation, "placed_by_old_plan") == 4
    assert metric(simulation, "plans_refused") == 1 and metric(simulation, "plan_version") == 2
    simulation.change_plan(4, zone(1))
    simulation.drain(16)
    assert replicas(simulation) == [0, 4] and metric(simulation, "plan_changing") == 0 == metric(simulation, "placed_by_old_plan")


@pytest.mark.parametrize("distributor", ["agrid", "hybrid", "keyword"])
def test_a_takeover_ends_when_its_older_subscriptions_are_gone_though_new_topk_ones_come(distributor):
    """Until a plan is in force, these live by both plans; only boolean subscriptions tell that it is."""
    options = options_of(distributor, 2)
    simulation = Simulation({"dskype.distributor": distributor, "dskype.distributor.options": options}, {"subscription-bolt": 2, "distribution-bolt": 2})
    found = make_distributor(distributor, 2, options)
    numbers = itertools.count()

    def topk(name):
        simulation.subscription(name, {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": 2, "alpha": 0.5})
        for number in itertools.islice(numbers, 2):
            simulation.message({"id": number, "text": "lake", "lat": number % 19 - 9, "lon": number * 7 % 19 - 9})
        simulation.drain(4)

    for number in range(6):
        topk(f"old{number}")
    simulation.change_plan(1, {**(found.merge if distributor == "agrid" else found.split)(0, 1), "takeover": 0.5})
    simulation.drain()
    for number in range(6):
        simulation.subscription(f"old{number}", None)
        topk(f"new{number}")
    simulation.rest()
    assert metric(simulation, "placed_by_old_plan") == 0 == metric(simulation, "plan_changing") and check(simulation)["final"] == 6


def test_the_versions_of_plans_may_be_times():
    conf = {"dskype.distributor": "hybrid", "dskype.distributor.options": {"granularity": 4, "box": SPACE}}
    simulation = Simulation(conf, {"subscription-bolt": 2, "distribution-bolt": 2})
    for number, version in enumerate((1_764_000_000_000, 1_764_000_000_001, 9007199254740991)):
        simulation.change_plan(version, zone(number % 2))
        simulation.drain()
        simulation.subscription(f"t{number}", {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": 2, "alpha": 0.5})
        lake(simulation, f"b{number}")
        simulation.message({"id": number, "text": "lake", "lat": 0, "lon": 0})
        simulation.drain()
    assert check(simulation)["final"] == 3 and not simulation.sim.stats.errors and metric(simulation, "plan_changes") == 6


def test_a_takeover_that_is_no_share_is_refused():
    simulation = Simulation({"dskype.distributor": "hybrid"}, {"subscription-bolt": 2})
    simulation.change_plan(1, {**zone(0), "takeover": "slowly"})
    simulation.drain()
    assert metric(simulation, "plans_refused") == 1
