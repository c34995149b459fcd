"""Budgets for products of authors: what few short records may make the topology write."""

import json
from itertools import pairwise

import pytest

from .harness import TOPICS, Simulation, check, metric

LIKE_THE_PRODUCT = {"dskype.results.topk.interval.ms": 1000, "dskype.window.messages": 100}


def lists_of(simulation, id):
    return [(record.timestamp_ms, record.value) for record in simulation.records(TOPICS.topk) if record.key == id.encode()]


def filled(conf, k, id_bytes, subscriptions=3, tasks=None):
    """Return a topology with full lists, all of them written a while ago."""
    simulation = Simulation({**LIKE_THE_PRODUCT, "dskype.window.messages": k, **conf}, tasks)
    for number in range(subscriptions):
        simulation.subscription(f"s{number}", {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": k, "alpha": 0.5})
    simulation.drain(2)
    for number in range(k):
        simulation.message({"text": "lake", "lat": 0, "lon": 0, "id": f"{number}".rjust(id_bytes, "x")})
    simulation.drain(4)
    simulation.step(ms=60_000)
    simulation.drain(4)
    return simulation


def attacked(simulation, messages, id_bytes, every_ms=1200):
    """Send messages; return their bytes."""
    sent = 0
    for number in range(messages):
        record = json.dumps({"text": "lake", "lat": 0, "lon": 0, "id": f"a{number}".rjust(id_bytes, "x")}).encode()
        sent += len(record)
        simulation.message(record)
        for _ in range(4):
            simulation.step(ms=every_ms // 4)
    return sent


def written_bytes(simulation, before):
    return sum(len(record.value) for record in simulation.records(TOPICS.topk)) - before


def test_with_the_defaults_few_records_make_few_bytes_of_lists():
    """The attack of the review: it made 49 MB, 7,900 times what was sent."""
    simulation = filled({}, 100, 128, subscriptions=20)
    refused = len(simulation.sim.dead_letters())
    simulation.subscription("greedy", {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": 1000, "alpha": 0.5})
    simulation.message({"text": "lake", "lat": 0, "lon": 0, "id": "x" * 500})
    simulation.drain(2)
    assert len(simulation.sim.dead_letters()) == refused + 2
    before = written_bytes(simulation, 0)
    sent = attacked(simulation, 10, 128)
    made = written_bytes(simulation, before)
    assert 0 < made < 3_500_000 and made < 2000 * sent
    assert metric(simulation, "postponed_lists") == 0  # lists within the defaults keep their interval


@pytest.mark.parametrize("distributor", ["hashing", "agrid"])
def test_long_lists_are_written_later_and_are_exact_when_they_are(distributor):
    conf = {"dskype.results.topk.bytes.per.second": 1000, "dskype.results.topk.task.bytes.per.second": 4000, "dskype.distributor": distributor}
    simulation = filled(conf, 50, 128)
    before, times = written_bytes(simulation, 0), {f"s{number}": len(lists_of(simulation, f"s{number}")) for number in range(3)}
    attacked(simulation, 25, 128)
    long_bytes = len(lists_of(simulation, "s0")[-1][1])
    assert long_bytes > 7000
    assert written_bytes(simulation, before) <= 4000 * 30 + 3 * long_bytes + 4000
    assert metric(simulation, "postponed_lists") > 0
    for id, known in times.items():
        new = [time for time, _ in lists_of(simulation, id)][known:]
        assert new  # nothing starves
        if distributor == "hashing":
            assert all(later - earlier >= long_bytes * 0.9 for earlier, later in pairwise(new))  # 1 byte per ms
            assert any("writes of top-k lists were postponed" in e["error"] and "'s0' every 8." in e["error"] for e in simulation.sim.stats.errors)
    for _ in range(40):
        simulation.step(ms=2000)
    assert check(simulation)["final"] == 3  # the last lists are exact, and so were all others


def test_ids_and_metas_may_be_longer_where_the_settings_say_so():
    simulation = Simulation({"dskype.id.max.bytes": 200, "dskype.meta.max.bytes": 1000, "dskype.k.max": 101})
    for key, meta, k in (("i" * 200, "", 1), ("i" * 201, "", 1), ("m", "m" * 998, 1), ("n", "m" * 999, 1), ("k", "", 101), ("l", "", 102)):
        simulation.subscription(key, {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": k, "alpha": 0.5, "meta": meta})
    for id in ("x" * 200, "x" * 201):
        simulation.message({"text": "lake", "lat": 0, "lon": 0, "id": id})
    simulation.drain()
    codes = sorted(dict(record.headers)["code"].decode() for record in simulation.sim.dead_letters())
    assert codes == ["invalid-k", "long-key", "long-meta", "long-text"]
    assert {key for key, _, _ in simulation.json(TOPICS.topk)} == {"i" * 200, "m", "k"} and check(simulation)["final"] == 3


def test_without_limits_lists_keep_the_interval():
    conf = {"dskype.results.topk.bytes.per.second": None, "dskype.results.topk.task.bytes.per.second": None}
    simulation = filled(conf, 50, 128, subscriptions=1)
    before = len(lists_of(simulation, "s0"))
    attacked(simulation, 10, 128)
    assert len(lists_of(simulation, "s0")) - before == 10 and metric(simulation, "postponed_lists") == 0
