"""Random worlds with crashes anywhere: everything that is published is what the plain oracle says.

Messages, subscriptions of both kinds, replaced and unregistered in between, bad records, points, areas and regions, also about the antimeridian, analyzed texts,
expressions of the whole language, matches each or grouped, any distributor and any number of tasks of
every bolt, count and time windows, one and two partitions, and changes of the distributor's plan. A failing seed runs alone
with ``DSKYPE_SEED=<seed>``; ``DSKYPE_SEEDS`` sets how many are drawn.
"""

import json
import math
import os
import random
from collections import Counter, defaultdict

import pytest

from dskype.deploy.verification import geometry
from dskype.distribution import DISTRIBUTORS
from dskype.topology.simulated.faults import Faults

from . import places as plain_places
from .harness import (
    TOPICS,
    Planner,
    Simulation,
    check,
    metric,
    options_of,
    play,
    random_area,
    random_message,
    random_run,
    random_subscription,
    unfinished,
    vocabulary,
)

pytestmark = pytest.mark.long(spread=True, seconds=60)

SEEDS = int(os.environ.get("DSKYPE_SEEDS", "104"))
CHUNKS = 3
"""No multiple of two: of four seeds in a row, one has time windows."""
WIDE = 100_000
"""Seeds from here on are of worlds with 32 tasks of the subscription bolt."""


def run(seed):
    return random_run(seed, most=32 if seed >= WIDE else 5)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_is_published_is_what_the_oracle_says(chunk):
    only = os.environ.get("DSKYPE_SEED")
    seeds = range(chunk, SEEDS, CHUNKS) if only is None else [int(only)] if chunk == 0 else []
    compared, faults = Counter(), Counter()
    for seed in seeds:
        found, met = run(seed)
        compared.update(found)
        faults.update(met)
    if len(seeds) > 20:  # as without DSKYPE_SEEDS
        assert all(compared[what] > 20 for what in ("state", "delta", "match", "grouped", "areas", "filtered", "final", "fields")) and compared["plans"], (
            compared
        )
        assert compared["wordless"] > 5 and compared["regions"] > 40 and compared["analyzed"] > 5 and compared["omitted fields"] > 3, compared
        assert {"lost_before", "lost_after", "torn_write", "repeated", "restarted", "all_restarted", "elsewhere", "snapshot"} <= set(faults)


@pytest.mark.parametrize("seed", [] if os.environ.get("DSKYPE_SEED") else range(WIDE, WIDE + max(1, SEEDS // 52)))
def test_it_is_with_many_tasks(seed):
    run(seed)


@pytest.mark.parametrize("seed", [] if os.environ.get("DSKYPE_SEED") else [*range(4), 8, 22])
def test_subscriptions_that_expire_end_once_everywhere(seed):
    """Time passes in long steps, because a task ends an expired subscription only a minute after its time."""
    rng, name, n, number = random.Random(seed), ("agrid", "keyword")[seed % 2], 3, 0
    conf = {"dskype.distributor": name, "dskype.distributor.options": options_of(name, n)}
    simulation = Simulation(conf, {"subscription-bolt": n, "distribution-bolt": 2, "result-bolt": 2}, seed=seed, faults=Faults.drawn(seed))
    for step in range(24):
        for _ in range(rng.randint(1, 4)):
            simulation.message(random_message(rng, number))
            number += 1
        for _ in range(rng.randint(0, 6) if step < 16 else 0):
            simulation.subscription(f"s{rng.randrange(60)}", {**random_subscription(rng, topk=0), "ttl_s": rng.choice([1, 10, 60])})
        simulation.step(rng.choice([3, 10, 30, 1000]), ms=rng.choice([20, 200, 20_000, 40_000]) if step < 16 else 20_000)
    for further in range(100):  # a task learns from its next message what time it is
        if not metric(simulation, "subscriptions"):
            break
        simulation.message(random_message(rng, number + further))
        simulation.step(1000, ms=20_000)
    simulation.drain(4)
    assert not unfinished(simulation)
    check(simulation, hint=f"seed {seed}")
    events = Counter(event["event"] for _, event, _ in simulation.json(TOPICS.registrations))
    assert events["removed"] == events["active"] > 15 and metric(simulation, "subscriptions") == 0


def published(simulation):
    """Return what was published of top-k subscriptions: {(registration, watermark): whole list}, and the same folded from deltas as sets; matches, and from where on."""
    states = {
        (state["registration"], state["watermark"]): [(json.dumps(e["message"]), e["score"]) for e in state["topk"]]
        for _, state, _ in simulation.json(TOPICS.topk)
        if state is not None
    }
    last = {id: state and state["topk"] for id, state, _ in simulation.json(TOPICS.topk)}
    current, folded, matches = defaultdict(dict), {}, defaultdict(set)
    for _, delta, headers in simulation.json(TOPICS.results):
        registration, message = headers["result-id"].decode().partition("/")[0], json.dumps(delta["message"])
        if delta["op"] == "match":
            matches[registration].add((delta["watermark"], message))
        elif delta["op"] == "add":
            current[registration][message] = delta["score"]
        else:
            del current[registration][message]
        folded[registration, delta["watermark"]] = dict(current[registration])
    lives = {}
    for _, event, _ in simulation.json(TOPICS.registrations):
        lives.setdefault(event["registration"], {})[event["event"]] = event["watermark"]
    ended = {event["registration"] for _, event, _ in simulation.json(TOPICS.registrations) if event["event"] == "removed"}
    return states, {key: value for key, value in folded.items() if key[0] not in ended}, last, (matches, lives)


def same_matches(one, other):
    """Tell whether both have the same matches of the messages at which a subscription was active in both."""
    (matches, lives), (other_matches, other_lives) = one, other
    assert lives.keys() == other_lives.keys()
    for registration, life in lives.items():
        both = life, other_lives[registration]
        begin, end = max(x.get("active", math.inf) for x in both), min(x.get("removed", math.inf) for x in both)
        if len({frozenset((w, m) for w, m in found[registration] if begin < w <= end) for found in (matches, other_matches)}) > 1:
            return False
    return True


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_all_distributors_publish_the_same(tasks):
    found = {}
    for name in [*sorted(DISTRIBUTORS), "location with summaries"]:
        distributor, _, summaries = name.partition(" with ")
        conf = {
            "dskype.distributor": distributor,
            "dskype.distributor.options": {"summaries": True} if summaries else options_of(distributor, tasks),
            "dskype.vocabulary": vocabulary(),
            "dskype.window.messages": 25,
        }
        simulation = Simulation(conf, {"subscription-bolt": tasks, "distribution-bolt": 2, "message-bolt": 2, "result-bolt": 2})
        planner = Planner(simulation, random.Random(8)) if name != "hashing" else None
        play(simulation, random.Random(tasks), messages=120, subscriptions=40, planner=planner, areas=0.2, drain=False)
        simulation.drain(4, ms=400)
        check(simulation)
        assert (metric(simulation, "plan_changes") > 0) == (name != "hashing") and not metric(simulation, "moving")
        assert distributor != "location" or not metric(simulation, "merged"), "a subscription that has moved has one replica again"
        found[name] = published(simulation)
    states, folded, last, matches = found["hashing"]
    for name, (other_states, other_folded, other_last, other_matches) in found.items():
        assert other_last == last and same_matches(matches, other_matches), name
        assert {key: value for key, value in other_states.items() if key in states} == {key: states[key] for key in other_states if key in states}, name
        assert len(states.keys() & other_states.keys()) > len(states) // 3
        assert {key: value for key, value in other_folded.items() if key in folded} == {key: folded[key] for key in other_folded if key in folded}, name
        assert len(folded.keys() & other_folded.keys()) > len(folded) // 2


@pytest.mark.parametrize("is_turned", [False, True])
def test_two_oracles_agree_on_where_regions_are(is_turned):
    """The one that worlds are judged by, in the plane in which they are drawn, and the one of ``dskype verify``, on the globe."""
    rng, found = random.Random(f"places {is_turned}"), Counter()
    for _ in range(150):
        region, other = ({"region": plain_places.random_region(rng)} for _ in range(2))
        other = rng.choice([other, {"lat": rng.randint(-10, 10), "lon": rng.randint(-10, 10)}, {"bbox": random_area(rng)}])
        if is_turned:
            region, other = plain_places.turned(region), plain_places.turned(other)
        one, two = region["region"], other.get("region") or {"bbox": other.get("bbox")}
        if len(shapes := [kind for place in (one, two) if place != {"bbox": None} for kind, _ in geometry.shapes_of(place)]) > 2 and "circle" in shapes:
            continue  # distances from edges take it long
        gap_m = geometry.gap_m(one, other["lat"], other["lon"]) if "lat" in other else geometry.regions_gap_m(one, two)
        assert plain_places.sharing(region, other, is_turned) == (gap_m <= 0), (region, other, gap_m)
        found[gap_m <= 0] += 1
    assert min(found.values()) > 20, found
