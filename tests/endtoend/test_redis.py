"""Redis as the store of whole lists, while replicas are merged and the result bolt crashes: at the end it holds what the oracle says."""

import json
import random

import pytest
import redis

from dskype.topology.simulated.faults import Faults
from tests import naive
from tests.bolts.results.redis_server import RedisServer

from .harness import DIAGONAL, Simulation, check, metric, random_message, random_subscription, world_of

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis")) as running, redis.Redis.from_url(running.url) as client:
        yield running, client


def crash(simulation, component, *, handled):
    """Let a component's executors die: between two batches, or when they have handled one and nothing of it is in Kafka yet."""
    sim = simulation.sim
    query = sim._queries[component]
    ranges = sim._available(query)
    if handled and ranges:
        sim._handle(query, sim._batch_records(ranges))
    sim._restart(query)
    return bool(ranges)


def stored(client):
    """Return what Redis holds: id -> (registration, state or None)."""
    found = {}
    for key in client.scan_iter("dskype:topk:*"):
        registration, state = client.hmget(key, "registration", "topk")
        found[key.decode().removeprefix("dskype:topk:")] = registration.decode(), state and json.loads(state)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_final_lists_in_redis_are_those_of_the_oracle_under_prefix(server, seed):
    running, client = server
    client.flushall()
    rng = random.Random(seed)
    conf = {
        "dskype.distributor": "prefix",
        "dskype.window.messages": 25,
        "dskype.store": "redis",
        "dskype.store.options": {"url": running.url, "topic": True},
        "topology.emulator.snapshot.interval.ms": 500,
    }
    faults = Faults.heavy() if seed % 2 else Faults()
    simulation = Simulation(
        conf, {"subscription-bolt": 2, "distribution-bolt": 2, "result-bolt": 1 + seed // 2}, seed=seed if seed % 2 else None, faults=faults
    )
    interrupted = replicated = 0
    for step in range(24):
        for number in range(4 * step, 4 * step + 4):
            simulation.message(random_message(rng, number))
        for _ in range(rng.choice([0, 1, 3])):
            simulation.subscription(f"s{rng.randrange(12)}", None if rng.random() < 0.2 else random_subscription(rng))
        simulation.step(rng.choice([5, 15, 1000]))
        replicated = max(replicated, metric(simulation, "replicas") - metric(simulation, "registered"))
        if step % 4 == 3:
            interrupted += crash(simulation, "result-bolt", handled=step % 8 == 7)
    simulation.drain()
    assert interrupted and replicated
    compared = check(simulation, hint=f"seed {seed}")
    assert compared["final"]
    world, found = world_of(simulation), stored(client)
    final = 0
    for id, registration in world.newest.items():
        subscription = world.subscriptions.get(registration)
        if subscription is None or subscription["type"] != "topk":
            assert id not in found or found[id][1] is None, f"{id} has ended and has a list"
            continue
        best = naive.topk(subscription, world.messages, world.watermark, 25, DIAGONAL)
        ids = {m["seq"]: m["id"] for m in world.messages}
        window = [m for m in world.messages if world.watermark - 25 < m["position"] <= world.watermark]
        scores = {m["id"]: s for m in window if (s := naive.score(subscription, m, DIAGONAL)) is not None}
        kept, state = found[id]
        assert kept == registration and state["registration"] == registration
        assert naive.same_topk([(json.dumps(e["message"]), e["score"]) for e in state["topk"]], [(ids[seq], s) for seq, s in best], scores), (id, state, best)
        final += 1
    assert final >= 3
