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


def attacked(simulation, messages, id_bytes, every_ms=1200, name="a"):
    """Send messages whose ids end with a name and numbers; return their bytes."""
    sent = 0
    for number in range(messages):
        record = json.dumps({"text": "lake", "lat": 0, "lon": 0, "id": f"{name}{number}".rjust(id_bytes, "x")}).encode()
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


@pytest.mark.long
@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("distributor", ["hashing", "agrid"])
def test_long_lists_are_written_later_and_are_exact_when_they_are(distributor, tasks):
    conf = {"dskype.results.topk.bytes.per.second": 1000, "dskype.results.topk.total.bytes.per.second": 4000, "dskype.distributor": distributor}
    simulation = filled(conf, 50, 128, tasks={"subscription-bolt": tasks, "result-bolt": tasks})
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
    conf = {"dskype.results.topk.bytes.per.second": None, "dskype.results.topk.total.bytes.per.second": None}
    simulation = filled(conf, 50, 128, subscriptions=1)
    before = len(lists_of(simulation, "s0"))
    attacked(simulation, 10, 128)
    assert len(lists_of(simulation, "s0")) - before == 10 and metric(simulation, "postponed_lists") == 0


# --- authors are told --------------------------------------------------------------------------------------------------


def told(simulation):
    """Return the events ``limited`` as (subscription, setting)."""
    found = [record for record in simulation.records(TOPICS.registrations) if b'"limited"' in record.value]
    values = [json.loads(record.value) for record in found]
    # Compaction keeps the last record of a key: that of another event says whether the subscription is active.
    assert all(record.key == b"\xff" + value["subscription"].encode() for record, value in zip(found, values))
    return [(value["subscription"], value["limit"]) for value in values]


@pytest.mark.long
def test_authors_are_told_once_an_hour_that_a_list_comes_later():
    simulation = filled({"dskype.results.topk.bytes.per.second": 1000}, 50, 128, subscriptions=2)
    simulation.subscription("short", {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": 1, "alpha": 0.5})
    attacked(simulation, 25, 128)
    list_limit = "dskype.results.topk.bytes.per.second"
    assert sorted(told(simulation)) == [("s0", list_limit), ("s1", list_limit)] and metric(simulation, "postponed_lists") > 2
    simulation.step(ms=3_600_000)
    attacked(simulation, 25, 128, name="b")
    assert sorted(told(simulation)) == [("s0", list_limit)] * 2 + [("s1", list_limit)] * 2
    simulation.subscription("s0", {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": 50, "alpha": 0.4})  # another author, perhaps
    simulation.drain(4)
    attacked(simulation, 25, 128, name="c")
    assert sorted(told(simulation)) == [("s0", list_limit)] * 3 + [("s1", list_limit)] * 2
    for _ in range(10):  # the last lists are written
        simulation.step(ms=2000)
    assert check(simulation)["limited"] == 5


@pytest.mark.long
def test_authors_are_told_that_their_list_waits_for_those_of_others_where_the_topology_has_too_many_bytes():
    total_limit = "dskype.results.topk.total.bytes.per.second"
    for distributor in ("hashing", "agrid"):
        simulation = filled({total_limit: 4000, "dskype.distributor": distributor}, 50, 128)
        attacked(simulation, 25, 128)
        assert sorted(told(simulation)) == [(f"s{number}", total_limit) for number in range(3)]


# --- meta times matches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distributor", ["hashing", "agrid"])
def test_metas_beyond_the_budget_are_left_out_of_matches_which_are_all_there(distributor):
    simulation = Simulation({"dskype.results.meta.bytes.per.second": 1000, "dskype.distributor": distributor})
    meta = "m" * 98  # 100 bytes as JSON
    everywhere = {"type": "boolean", "bbox": [-180, -90, 180, 90], "expression": "lake"}
    simulation.subscription("greedy", {**everywhere, "meta": meta})
    simulation.subscription("modest", {**everywhere, "meta": "m"})
    simulation.subscription("none", everywhere)
    simulation.drain(4)
    for number in range(200):
        simulation.message({"text": "lake", "lat": 0, "lon": 0, "id": number})
    simulation.drain()
    matches = {id: [value for _, value, _ in simulation.json(TOPICS.results) if value["subscription"] == id] for id in ("greedy", "modest", "none")}
    assert {id: len(found) for id, found in matches.items()} == {"greedy": 200, "modest": 200, "none": 200}
    with_meta = [match for match in matches["greedy"] if match.get("meta") == meta]
    without = [match for match in matches["greedy"] if match.get("meta_omitted") is True and "meta" not in match]
    seconds = 8 * 200 // 1000 + 1  # of the topology's clock that drain takes, at most
    assert 10 <= len(with_meta) <= 10 * (seconds + 1) and len(with_meta) + len(without) == 200
    assert all(match["meta"] == "m" for match in matches["modest"]) and not any(match.keys() & {"meta", "meta_omitted"} for match in matches["none"])
    assert metric(simulation, "omitted_metas") == len(without)
    assert told(simulation) == [("greedy", "dskype.results.meta.bytes.per.second")]
    simulation.step(ms=5000)
    simulation.message({"text": "lake", "lat": 0, "lon": 0, "id": "later"})
    simulation.drain()
    assert [value["meta"] for _, value, _ in simulation.json(TOPICS.results) if value["subscription"] == "greedy" and value["message"] == "later"] == [meta]
    assert check(simulation)["omitted"] == len(without)


def test_a_topology_has_a_budget_of_metas_and_a_meta_that_is_longer_than_the_budget_comes_once_a_second():
    conf = {"dskype.results.meta.bytes.per.second": 10, "dskype.results.meta.total.bytes.per.second": 500}
    simulation = Simulation(conf, {"subscription-bolt": 2})  # with half of it each
    for number in range(4):
        simulation.subscription(f"s{number}", {"type": "boolean", "bbox": [-180, -90, 180, 90], "expression": "lake", "meta": "m" * 98})
    simulation.drain(4)
    simulation.message({"text": "lake", "lat": 0, "lon": 0})
    simulation.message({"text": "lake", "lat": 0, "lon": 0})
    simulation.drain()
    found = [value for _, value, _ in simulation.json(TOPICS.results)]
    assert len(found) == 8 and sum("meta" in match for match in found) == 2
    assert {setting for _, setting in told(simulation)} == set(conf)
    assert check(simulation)["omitted"] == 6


def test_grouped_matches_have_no_meta_and_need_no_budget():
    simulation = Simulation({"dskype.results.matches": "grouped", "dskype.results.meta.bytes.per.second": 1})
    simulation.subscription("s", {"type": "boolean", "bbox": [-180, -90, 180, 90], "expression": "lake", "meta": "m" * 98})
    simulation.drain(4)
    for number in range(10):
        simulation.message({"text": "lake", "lat": 0, "lon": 0, "id": number})
    simulation.drain()
    assert told(simulation) == [] and metric(simulation, "omitted_metas") == 0 and check(simulation)["grouped"] == 10
