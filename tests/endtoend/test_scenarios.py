"""What users encounter, on the simulated log: registering, replacing, unregistering, bad input, time to live, time windows."""

import json
import random
import re

import pytest

from dskype.deploy.verification import Inputs, verify
from dskype.distribution import make_distributor
from dskype.spouts.settings import Settings
from dskype.topology.config import DEFAULTS, TRANSPORTS, Config
from dskype.topology.core.watermarks import takes_watermarks, watermark_sources
from dskype.topology.errors import IllegalArgumentException, InvalidTopologyException
from dskype.topology.planning.validation import validate_submission
from dskype.topology.simulated.faults import Faults

from .harness import TOPICS, Simulation, check, dead_letters, metric, options_of, random_message, random_subscription, topology

pytestmark = pytest.mark.long

TOPK = {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": 2, "alpha": 0.5}
FILTER = {"type": "boolean", "bbox": [-5, -5, 5, 5], "expression": "lake AND (park OR hill)"}


def message(text, lat=0, lon=0, **more):
    return {"text": text, "lat": lat, "lon": lon, **more}


def last_state(simulation, id):
    return [state for key, state, _ in simulation.json(TOPICS.topk) if key == id][-1]


def results(simulation, id, *fields):
    return [tuple(d.get(f) for f in fields) for key, d, _ in simulation.json(TOPICS.results) if key == id]


def played(*steps, conf=None, tasks=None):
    """Run steps one after another: (id, record) registers, a dict is a message, bytes are a raw message."""
    simulation = Simulation(conf, tasks)
    for step in steps:
        if isinstance(step, tuple):
            simulation.subscription(*step)
        else:
            simulation.message(step)
        simulation.step()
    simulation.drain(4)
    check(simulation, timed="dskype.window.span.ms" in (conf or {}))
    return simulation


def test_a_subscription_gets_the_best_messages_of_the_window_and_follows_it():
    simulation = played(
        ("s", TOPK), message("lake", id="far", lat=9), message("lake", id="near"), message("a lake", id=7, lat=1), conf={"dskype.window.messages": 2}
    )
    assert results(simulation, "s", "op", "message", "rank", "watermark") == [
        ("add", "far", 1, 0),
        ("add", "near", 1, 1),
        ("remove", "far", None, 2),
        ("add", 7, 2, 2),
    ]
    assert [e["message"] for e in last_state(simulation, "s")["topk"]] == ["near", 7]
    assert last_state(simulation, "s")["registration"] == "0-0"


def test_a_subscription_that_comes_later_finds_what_the_window_holds():
    simulation = played(message("lake", id="a"), message("park", id="b"), ("s", TOPK), ("none", {**TOPK, "keywords": ["hill"]}))
    assert [e["message"] for e in last_state(simulation, "s")["topk"]] == ["a"]
    assert last_state(simulation, "none")["topk"] == []
    assert metric(simulation, "evaluations") == 2 and metric(simulation, "pending_evaluations") == 0


def test_meta_is_echoed_and_ids_keep_their_types():
    simulation = played(("s", {**TOPK, "meta": {"to": ["ö"]}}), message("lake", id=5), message("lake", id="5"), message("lake"))
    assert results(simulation, "s", "message", "meta")[:2] == [(5, {"to": ["ö"]}), ("5", {"to": ["ö"]})]
    assert ("0-2", {"to": ["ö"]}) in results(simulation, "s", "message", "meta")


def test_the_same_id_again_replaces_a_subscription():
    simulation = played(("s", TOPK), message("lake", id="a"), message("hill", id="b"), ("s", {**TOPK, "keywords": ["hill"]}), message("lake", id="c"))
    assert last_state(simulation, "s")["registration"] == "0-1"
    assert [e["message"] for e in last_state(simulation, "s")["topk"]] == ["b"]
    assert results(simulation, "s", "op", "message") == [("add", "a"), ("remove", "a"), ("add", "b")]
    assert [(e["registration"], e["event"]) for _, e, _ in simulation.json(TOPICS.registrations)] == [("0-0", "active"), ("0-0", "removed"), ("0-1", "active")]


def test_the_same_registration_again_changes_nothing_in_the_end():
    simulation = played(("s", TOPK), message("lake", id="a"), ("s", TOPK))
    assert [e["message"] for e in last_state(simulation, "s")["topk"]] == ["a"]


def test_a_subscription_may_change_its_kind():
    simulation = played(("s", TOPK), message("lake park", id="a"), ("s", FILTER), message("lake park", id="b"), ("s", TOPK))
    assert results(simulation, "s", "op", "message") == [("add", "a"), ("remove", "a"), ("match", "b"), ("add", "b"), ("add", "a")]


def test_an_unregistered_subscription_is_gone():
    simulation = played(("s", TOPK), ("b", FILTER), message("lake park", id="a"), ("s", None), ("b", None), message("lake park", id="b"))
    assert last_state(simulation, "s") is None
    assert results(simulation, "s", "op", "message") == [("add", "a"), ("remove", "a")]
    assert results(simulation, "b", "op", "message") == [("match", "a")]
    assert metric(simulation, "subscriptions") == 0


@pytest.mark.parametrize("name", ["hashing", "location", "hybrid"])
def test_a_list_ends_with_the_first_message_that_arrives_when_its_time_is_over(name):
    conf = {"dskype.distributor": name, "dskype.distributor.options": options_of(name, 2)}
    steps = ("s", {**TOPK, "ttl_s": 0.5}), ("stays", {**TOPK, "ttl_s": 500}), message("lake", id="a"), message("lake", id="b"), message("lake", id="c")
    simulation = played(*steps, message("lake", id="d"), ("s", TOPK), conf=conf, tasks={"subscription-bolt": 2, "result-bolt": 1})
    (ended,) = [e["watermark"] for _, e, _ in simulation.json(TOPICS.registrations) if e["registration"] == "0-0" and e["event"] == "removed"]
    assert ended in (1, 2) and last_state(simulation, "s")["registration"] == "0-2" and last_state(simulation, "stays")["registration"] == "0-1"
    first = [(op, id) for op, id, watermark in results(simulation, "s", "op", "message", "watermark") if watermark <= ended][:2]
    assert first == [("add", "a"), ("add", "b")] and metric(simulation, "unknown_unregistered") == 0
    assert verify(Inputs.read("dskype", simulation.records), Settings.from_conf(simulation.conf), final=True).ok


@pytest.mark.parametrize("name", ["hashing", "location", "hybrid"])
def test_a_subscription_that_moves_changes_by_the_difference(name):
    conf = {"dskype.distributor": name, "dskype.distributor.options": options_of(name, 2)}
    lakes = [message("lake", id=id, lat=lat) for id, lat in (("a", 1), ("b", 3), ("c", 9))]
    inside = {**FILTER, "expression": "lake", "bbox": [-5, -5, 5, 5]}
    steps = ("s", TOPK), ("b", inside), ("new", {**TOPK, "update": True}), *lakes, ("s", {**TOPK, "lat": 7, "update": True})
    simulation = played(
        *steps, ("b", {**inside, "bbox": [-5, -5, 9, 9], "update": True}), message("lake", id="d", lat=8), conf=conf, tasks={"subscription-bolt": 2}
    )
    found = results(simulation, "s", "op", "message", "rank", "watermark")
    assert found[:2] == [("add", "a", 1, 0), ("add", "b", 2, 1)]
    assert found[2:5] == [("remove", "a", None, 2), ("add", "c", 1, 2), ("score", "b", 2, 2)]
    assert sorted(found[5:]) == [("add", "d", 1, 3), ("remove", "b", None, 3)]
    assert results(simulation, "b", "op", "message") == [("match", "a"), ("match", "b"), ("match", "d")]
    events = [(e["registration"], e["event"], e["watermark"]) for _, e, _ in simulation.json(TOPICS.registrations)]
    assert sorted(events) == [("0-0", "active", -1), ("0-1", "active", -1), ("0-2", "active", -1), ("0-3", "updated", 2), ("0-4", "updated", 2)]
    assert metric(simulation, "unknown_updated") == 1 and last_state(simulation, "s")["registration"] == "0-3"
    assert verify(Inputs.read("dskype", simulation.records), Settings.from_conf(simulation.conf), final=True).ok


@pytest.mark.parametrize("name", ["hashing", "hybrid"])
def test_a_list_is_verified_whose_subscription_has_moved_since_its_records_were_compacted(name):
    conf = {"dskype.distributor": name, "dskype.distributor.options": options_of(name, 2)}
    lakes = [message("lake", id=id, lat=lat) for id, lat in (("a", 1), ("b", 3), ("c", 9), ("d", 4))]
    steps = ("s", TOPK), *lakes, ("s", {**TOPK, "lat": 7, "update": True}), message("lake", id="e", lat=6), ("s", {**TOPK, "lat": 2, "update": True})
    simulation = played(*steps, message("lake", id="f", lat=2), conf=conf, tasks={"subscription-bolt": 2})
    for gone in ((), (0,), (0, 1)):
        kept = Inputs.read("dskype", lambda topic, gone=gone: [r for r in simulation.records(topic) if topic != TOPICS.subscriptions or r.offset not in gone])
        assert verify(kept, Settings.from_conf(simulation.conf), final=True).ok, gone


def test_unregistering_an_unknown_id_does_nothing_and_is_counted():
    simulation = played(("nobody", None), message("lake"))
    assert metric(simulation, "unknown_unregistered") == 1
    assert not simulation.json(TOPICS.registrations) and not simulation.json(TOPICS.topk) and not dead_letters(simulation)


def test_a_filter_reports_every_message_that_satisfies_it():
    simulation = played(
        ("b", {**FILTER, "meta": 1}),
        message("lake park", id="a"),
        message("lake", id="b"),
        message("hill lake", id="c", lat=6),
        message("The HILL, by the lake", id="d", lat=5, lon=-5),
    )
    assert results(simulation, "b", "op", "message", "watermark", "meta") == [("match", "a", 0, 1), ("match", "d", 3, 1)]


def test_a_filter_ends_when_its_time_is_over():
    simulation = Simulation()
    simulation.subscription("b", {**FILTER, "ttl_s": 1})
    simulation.step()
    for number in range(10):
        simulation.message(message("lake park", id=number))
        simulation.step(ms=200)
    assert len(results(simulation, "b", "op")) < 6
    simulation.step(ms=70_000)
    simulation.message(message("lake park", id=99))
    simulation.drain(2)
    assert check(simulation)["match"] > 2
    assert [e["event"] for _, e, _ in simulation.json(TOPICS.registrations)] == ["active", "removed"]


BAD_MESSAGES = {
    b"": "JSON",
    b"{": "JSON",
    b"[1]": "object",
    b'"x"': "object",
    b"\xff": "UTF-8|JSON",
    b'{"lat":1,"lon":1}': "text",
    b'{"text":"a","lon":1}': "lat",
    b'{"text":"a","lat":"1","lon":1}': "lat",
    b'{"text":"a","lat":NaN,"lon":1}': "NaN|number",
    b'{"text":"a","lat":Infinity,"lon":1}': "Infinity|number",
    b'{"text":"a","lat":91,"lon":1}': "lat",
    b'{"text":"a","lat":1,"lon":11}': "space|lon",
    b'{"text":"a","lat":1,"lon":1,"id":true}': "id",
    b'{"text":"a","lat":1,"lon":1,"id":1.5}': "id",
    b'{"text":5,"lat":1,"lon":1}': "text",
    b'{"text":"a","lat":1,"lon":1,"ts":-1}': "ts",
    b'{"text":"' + b"a " * 5_000_000 + b'","lat":1,"lon":1}': "bytes",
    b"[" * 100_000: "nest|deep|JSON",
}


def test_every_bad_message_is_one_dead_letter_with_its_reason_and_disturbs_nobody():
    simulation = Simulation()
    simulation.subscription("s", TOPK)
    simulation.step()
    for number, bad in enumerate(BAD_MESSAGES):
        simulation.message(bad)
        simulation.message(message("lake", id=number))
    simulation.drain(4)
    letters = simulation.sim.dead_letters()
    most = DEFAULTS[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_MAX_BYTES]
    assert [r.value for r in letters] == [bad[:most] for bad in BAD_MESSAGES] and any(len(bad) > most for bad in BAD_MESSAGES)
    for record, (bad, hint) in zip(letters, BAD_MESSAGES.items()):
        headers = {k: v.decode() for k, v in record.headers}
        assert headers["size"] == str(len(bad)) and ("truncated" in headers) == (len(bad) > most)
        assert re.search(hint, headers["error"]), headers
        assert headers["stage"] == "translate" and headers["topic"] == TOPICS.messages and len(headers["error"]) < 1000
    assert check(simulation)["final"] == 1
    assert simulation.sim.stats.total("message-spout", "dead_letters") == len(BAD_MESSAGES)


def topk(**changes):
    return json.dumps({k: v for k, v in {**TOPK, **changes}.items() if v is not None}).encode()


def boolean(**changes):
    return json.dumps({k: v for k, v in {**FILTER, **changes}.items() if v is not None}).encode()


BAD_SUBSCRIPTIONS = [
    b"{",
    b"[]",
    b"{}",
    b'{"type":"knn"}',
    topk(type=None),
    topk(k=0),
    topk(k=1.5),
    topk(k=True),
    topk(k=5000),
    topk(k=None),
    topk(alpha=-0.1),
    topk(alpha=1.1),
    topk(alpha="x"),
    topk(keywords=[]),
    topk(keywords=["the"]),
    topk(keywords=["..."]),
    topk(keywords=None),
    topk(keywords=None, text=""),
    topk(keywords="lake"),
    topk(keywords=[f"w{i}" for i in range(100)]),
    topk(lat=95),
    topk(lat=None),
    topk(lon=50),
    topk(text="lake"),
    boolean(bbox="everywhere"),
    boolean(bbox=[1, 2, 3]),
    boolean(bbox=[0, 5, 1, 4]),
    boolean(bbox=[0, "5", 1, 4]),
    boolean(expression=""),
    boolean(expression="lake AND"),
    boolean(expression="(lake"),
    boolean(expression="lake AND -park"),
    boolean(expression="NOT park"),
    boolean(expression=None, text="park"),
    boolean(expression="price < 5"),
    boolean(region={"center": {"lat": 1, "lon": 2}}),
    boolean(expression="the"),
    boolean(expression="(" * 50 + "lake" + ")" * 50),
    boolean(ttl_s=0),
    boolean(ttl_s=-1),
    boolean(ttl_s="x"),
    boolean(expression=" OR ".join(f"w{i}" for i in range(400))),
    topk(meta="x" * 10_000),
]


def test_every_bad_subscription_is_one_dead_letter_and_disturbs_nobody():
    simulation = Simulation({"dskype.stop.words": ["the"]})
    simulation.subscription("good", TOPK)
    for bad in BAD_SUBSCRIPTIONS:
        simulation.subscription("bad", bad)
    for key in (None, b"", b"\xff", b"x" * 10_000):
        simulation.log.append(TOPICS.subscriptions, 0, key, topk())
    simulation.message(message("the lake", id="a"))
    simulation.drain(4)
    assert len(dead_letters(simulation)) == len(simulation.sim.dead_letters()) == len(BAD_SUBSCRIPTIONS) + 4
    assert metric(simulation, "subscriptions") == 1
    assert [e["message"] for e in last_state(simulation, "good")["topk"]] == ["a"]


def test_a_bad_replacement_leaves_the_subscription_as_it_is():
    simulation = played(("s", TOPK), message("lake", id="a"), ("s", b"{"), message("lake", id="b"))
    assert len(last_state(simulation, "s")["topk"]) == 2


def test_only_what_is_asked_for_is_published():
    steps = ("s", TOPK), ("b", FILTER), message("lake park", id="a")
    simulation = played(*steps, conf={"dskype.results": "topk"})
    assert results(simulation, "s", "op") == [] and results(simulation, "b", "op") == [("match",)] and last_state(simulation, "s")["topk"]
    simulation = played(*steps, conf={"dskype.results": "deltas"})
    assert results(simulation, "s", "op") == [("add",)] and not simulation.json(TOPICS.topk)


@pytest.mark.parametrize("name", ["location", "keyword", "prefix"])
def test_where_replicas_are_merged_only_what_is_asked_for_is_published_too(name):
    steps = (
        ("s", {**TOPK, "keywords": ["lake", "park"], "meta": 1}),
        ("b", {**FILTER, "meta": 2}),
        message("lake park", id="a"),
        message("hill lake", id="b"),
        ("b", None),
    )
    conf, tasks = {"dskype.distributor": name}, {"subscription-bolt": 4, "distribution-bolt": 2, "result-bolt": 2}
    simulation = played(*steps, conf={**conf, "dskype.results": "topk"}, tasks=tasks)
    assert results(simulation, "s", "op") == [] and results(simulation, "b", "op", "message", "meta") == [("match", "a", 2), ("match", "b", 2)]
    assert [e["message"] for e in last_state(simulation, "s")["topk"]] == ["a", "b"]
    simulation = played(*steps, conf={**conf, "dskype.results": "deltas"}, tasks=tasks)
    assert results(simulation, "s", "op", "message", "rank", "meta") == [("add", "a", 1, 1), ("add", "b", 2, 1)] and not simulation.json(TOPICS.topk)


def test_a_plan_that_is_none_is_a_dead_letter_and_one_for_another_topology_an_error():
    simulation = Simulation({"dskype.distributor": "location"}, {"subscription-bolt": 2})
    for bad in (
        b"{",
        b"null",
        None,
        b'{"v": 1, "version": 0, "plan": {}}',
        b'{"v": 1, "version": true, "plan": {}}',
        b'{"v": 2, "version": 1, "plan": {}}',
        b'{"v": 1, "version": 1}',
        b'{"v": 1, "version": 9007199254740992, "plan": {}}',
    ):
        simulation.log.append(TOPICS.plans, 0, b"plan", bad)
    simulation.change_plan(3, make_distributor("location", 5).plan())
    simulation.change_plan(4, make_distributor("keyword", 2).plan())
    simulation.change_plan(7, make_distributor("location", 2).plan())
    simulation.change_plan(6, make_distributor("location", 2).plan())
    simulation.drain(4)
    assert len(dead_letters(simulation)) == 8
    assert metric(simulation, "plans_refused") == 2 and metric(simulation, "plan_changes") == 1 and metric(simulation, "plan_version") == 7
    errors = [e["error"] for e in simulation.sim.stats.errors if e["component"] == "distribution-bolt"]
    assert len(errors) == 2 and "another number of tasks" in errors[0] and "another distributor" in errors[1]


def test_a_plan_for_hashing_is_reported_and_changes_nothing():
    simulation = Simulation()
    simulation.change_plan(1, make_distributor("hashing", 1).plan())
    simulation.subscription("s", TOPK)
    simulation.message(message("lake"))
    simulation.drain(4)
    assert check(simulation)["final"] == 1 and any("has no plans" in e["error"] for e in simulation.sim.stats.errors)


def test_a_distributor_that_replicates_needs_the_streams_that_lead_back():
    builder = topology({})
    del builder.components["distribution-bolt"].inputs["subscription-bolt", "shortages"]
    validate_submission("dskype", {"topology.acker.executors": 0}, builder)
    with pytest.raises(InvalidTopologyException, match="needs a stream.*given: 'shortages'"):
        validate_submission("dskype", {"topology.acker.executors": 0, "dskype.distributor": "prefix"}, builder)


def test_summaries_need_the_stream_between_distribution_tasks():
    builder, conf = topology({}), {"topology.acker.executors": 0, "dskype.distributor": "agrid"}
    del builder.components["distribution-bolt"].inputs["distribution-bolt", "interest"]
    validate_submission("dskype", {**conf, "dskype.distributor.options": {"summaries": False}}, builder)
    with pytest.raises(InvalidTopologyException, match="needs a stream.*given: 'interest'"):
        validate_submission("dskype", conf, builder)


def test_watermarks_go_where_they_are_waited_for():
    built = topology({})
    assert watermark_sources(built, "distribution-bolt") == ["message-spout"] and watermark_sources(built, "subscription-bolt") == ["distribution-bolt"]
    assert watermark_sources(built, "result-bolt") == ["distribution-bolt", "subscription-bolt"]
    for name, wanted in (("hashing", False), ("prefix", True)):
        assert takes_watermarks(built, "result-bolt", lambda component: {"dskype.distributor": name}) == wanted


def test_changed_lists_are_written_at_most_so_often_and_the_last_one_always():
    simulation = Simulation({"dskype.results.topk.interval.ms": 2000})
    simulation.subscription("s", TOPK)
    for number in range(40):
        simulation.message(message("lake", id=number))
        simulation.step(ms=100)
    simulation.drain(12)
    states = [s for _, s, _ in simulation.json(TOPICS.topk)]
    assert 2 <= len(states) <= 5 and states[-1]["watermark"] == 39
    assert check(simulation)["final"] == 1


def test_a_time_window_goes_by_the_messages_own_times():
    conf = {"dskype.window.messages": None, "dskype.window.span.ms": 1000, "dskype.window.ahead.ms": 10_000}
    simulation = Simulation(conf)
    start = simulation.time_ms
    simulation.subscription("s", TOPK)
    simulation.step(ms=2_000)  # none but the last one is ahead of its arrival
    for ts, id in ((0, "a"), (900, "b"), (1000, "c"), (950, "late"), (20_000, "ahead"), (1999, "d")):
        simulation.message(message("lake", id=id, ts=start + ts))
        simulation.step(ms=200)
    simulation.drain(6)
    check(simulation, timed=True)
    assert [e["message"] for e in last_state(simulation, "s")["topk"]] == ["d", "c"]
    assert last_state(simulation, "s")["watermark"] == start + 1999
    reasons = [dict(r.headers)["error"].decode() for r in simulation.sim.dead_letters()]
    assert len(reasons) == 2 and "late" in reasons[0] and "ahead" in reasons[1]


TIMED = {"dskype.window.messages": None, "dskype.window.span.ms": 60_000}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("every_ms", [20, 100, 1000])
def test_of_two_partitions_of_one_task_neither_makes_messages_of_the_other_one_late(transport, every_ms):
    """Messages come in order of time, in turn to both partitions; the spout looks at them every now and then."""
    simulation = Simulation({**TIMED, "dskype.window.lateness.ms": 50, "topology.emulator.transport": transport}, seed=1)
    simulation.subscription("s", {**FILTER, "expression": "lake"})
    simulation.message(message("tea", id="first"), 1)
    simulation.drain()
    for number in range(100):
        simulation.message(message("lake", id=number), number % 2)
        simulation.time_ms += 10
        if number % (every_ms // 10) == 0:
            simulation.step(ms=0)
    simulation.drain(8, ms=500)
    assert not simulation.sim.dead_letters()
    assert sorted(m for (m,) in results(simulation, "s", "message")) == list(range(100))
    check(simulation, timed=True)


@pytest.mark.parametrize("batch_ms", [400, 600, 1000])
def test_while_messages_come_without_a_pause_no_batch_is_too_slow(batch_ms):
    simulation = Simulation({**TIMED, "dskype.window.lateness.ms": 1000})
    for number in range(160):
        simulation.message(message("lake", id=number, ts=simulation.time_ms - 300 * (number % 5 == 0)))
        simulation.time_ms += 20
        simulation.sim.tick_clock()
        if number % (batch_ms // 20) == 0:
            simulation.step(ms=0)
    simulation.drain(8, ms=500)
    assert not simulation.sim.dead_letters()
    check(simulation, timed=True)


def test_the_simulated_brokers_clock_may_differ_from_that_of_the_topology():
    """Whether it is quiet is judged by the brokers' clock alone, which stamps arrivals."""
    simulation = Simulation({**TIMED, "dskype.window.lateness.ms": 1000})
    simulation.sim._clock_source = lambda: simulation.time_ms + 3_600_000
    for number in range(20):
        simulation.message(message("lake", id=number, ts=simulation.time_ms - 300 * (number % 2)))
        simulation.step(ms=300)
    assert metric(simulation, "queued_messages") > 0, "there was no pause"
    simulation.drain(8, ms=500)
    assert not simulation.sim.dead_letters() and metric(simulation, "queued_messages") == 0
    check(simulation, timed=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_rebalance_while_batches_are_in_flight_changes_no_result(seed):
    """A snapshot that is taken for it contains only what follows from records that are written."""
    rng = random.Random(seed)
    simulation = Simulation(
        {"dskype.distributor": "keyword"}, {"subscription-bolt": 3, "distribution-bolt": 2, "message-bolt": 2}, seed=seed, faults=Faults.drawn(seed)
    )
    for number in range(25):
        simulation.message(random_message(rng, number))
        simulation.subscription(f"s{number % 6}", random_subscription(rng))
        simulation.step(rng.randint(1, 9))
        if number % 5 == 4:
            simulation.rebalance(rng)
    simulation.drain(8)
    assert check(simulation, hint=f"seed {seed}")["final"]


def test_a_message_ahead_of_its_arrival_makes_no_others_late_and_waits_for_its_time():
    simulation = Simulation(TIMED)
    simulation.subscription("s", {**TOPK, "k": 50})
    simulation.step()
    ahead = simulation.time_ms + 5_000
    for number in range(8):
        if number == 2:
            simulation.message(message("lake", id="ahead", ts=ahead))
        simulation.message(message("lake", id=number, ts=simulation.time_ms))
        simulation.step(ms=[200, 900][number % 2])  # now and then it is quiet for longer than dskype.window.idle.ms
    simulation.drain(4)
    assert not simulation.sim.dead_letters()
    assert [m for (m,) in results(simulation, "s", "message")] == list(range(8))
    while simulation.time_ms < ahead + 500:
        simulation.step(ms=100)
    assert "ahead" not in [m for (m,) in results(simulation, "s", "message")][:-1], (
        "nothing comes any more: it is its turn when its time is over by the idle time"
    )
    simulation.drain(4)
    assert [m for (m,) in results(simulation, "s", "message")][-1] == "ahead"
    check(simulation, timed=True)


def test_a_message_ahead_of_its_arrival_is_applied_under_load_when_the_others_pass_it():
    simulation = Simulation({**TIMED, "dskype.window.lateness.ms": 300})
    simulation.subscription("s", {**TOPK, "k": 50})
    simulation.step()
    ahead = simulation.time_ms + 2_000
    simulation.message(message("lake", id="ahead", ts=ahead))
    seen = 0
    for number in range(30):
        simulation.message(message("lake", id=number, ts=simulation.time_ms - number % 4 * 100))  # up to as late as they may be
        simulation.step(ms=100)
        found = [m for (m,) in results(simulation, "s", "message")]
        seen = seen or ("ahead" in found and simulation.time_ms)
    simulation.drain(12)
    assert not simulation.sim.dead_letters() and ahead + 300 <= seen <= ahead + 800
    check(simulation, timed=True)


def test_a_boolean_subscription_outlives_messages_that_were_applied_before_an_older_one():
    simulation = Simulation({**TIMED, "dskype.window.ahead.ms": 200_000})
    simulation.subscription("s", {**FILTER, "expression": "lake", "ttl_s": 20})
    simulation.step()
    simulation.message(message("lake", id="ahead", ts=simulation.time_ms + 120_000))
    for _ in range(20):
        simulation.step(ms=6_500)
        simulation.message(message("lake", ts=simulation.time_ms))
    simulation.drain(8)
    assert "ahead" in [m for (m,) in results(simulation, "s", "message")]
    check(simulation, timed=True)


def test_a_task_that_has_reported_an_expired_subscription_does_not_report_it_again_when_its_process_is_replaced():
    """A second report would shift the numbers of all later tuples on this channel, and their receiver would take them for tuples behind a gap."""
    simulation = Simulation({"dskype.distributor": "keyword"})
    queries, run = simulation.sim._queries, simulation.sim._run_batch
    for id, ttl_s in (("first", 1), ("second", 100)):
        simulation.subscription(id, {**FILTER, "expression": "lake", "ttl_s": ttl_s})
    simulation.step()
    for ms in (70_000, 1_000):  # the second message is under way before "first" is reported
        simulation.time_ms += ms
        simulation.message(message("lake"))
        run(queries["message-spout"])
        if ms > 1_000:
            run(queries["distribution-bolt"])
    run(queries["subscription-bolt"])
    for executor in queries["subscription-bolt"].executors.values():
        simulation.sim._save(executor, queries["subscription-bolt"].batch_id)
    run(queries["distribution-bolt"])
    run(queries["subscription-bolt"])
    queries["subscription-bolt"].executors.clear()
    simulation.step(ms=200_000)
    simulation.message(message("lake"))
    simulation.drain(4)
    check(simulation)
    assert sorted(e["subscription"] for _, e, _ in simulation.json(TOPICS.registrations) if e["event"] == "removed") == ["first", "second"]


@pytest.mark.parametrize("distributor", ["hashing", "prefix"])
def test_the_deepest_expression_travels_and_matches(distributor):
    deepest = "(lake OR park AND " * 16 + "hill" + ")" * 16
    simulation = Simulation({"dskype.distributor": distributor})
    simulation.subscription("deep", {**FILTER, "expression": deepest})
    simulation.step()
    for text in ("lake", "park", "park hill", "hill"):
        simulation.message(message(text, id=text))
        simulation.step()
    simulation.drain()
    assert not simulation.sim.dead_letters()
    assert sorted(m for (m,) in results(simulation, "deep", "message")) == ["lake", "park hill"]


def test_a_count_window_refuses_several_message_spout_tasks():
    conf = {"topology.acker.executors": 0}
    with pytest.raises(InvalidTopologyException, match="count window.*given: '2 tasks'.*message-spout.*time window"):
        validate_submission("dskype", conf, topology({"message-spout": 2}))
    validate_submission("dskype", {**conf, "dskype.window.span.ms": 1000}, topology({"message-spout": 2}))


@pytest.mark.parametrize(
    "conf",
    [
        {"dskype.index": "b-tree"},
        {"dskype.buffer": "x"},
        {"dskype.boolean.index": "x"},
        {"dskype.window.index": "x"},
        {"dskype.distributor": "x"},
        {"dskype.store": "x"},
        {"dskype.k.max": 0},
    ],
)
def test_unknown_plug_ins_and_bad_settings_are_refused_before_anything_starts(conf):
    with pytest.raises(IllegalArgumentException, match="given: "):
        validate_submission("dskype", {"topology.acker.executors": 0, **conf}, topology({}))


@pytest.mark.parametrize("distributor", ["hashing", "prefix"])
def test_a_task_that_is_full_refuses_new_subscriptions_and_goes_on_with_the_others(distributor):
    conf = {"dskype.distributor": distributor, "dskype.limits.subscriptions": 3}
    simulation = Simulation(conf)
    simulation.subscription("a", TOPK)
    simulation.subscription("b", FILTER)
    simulation.step()
    for id in ("c", "full", "also"):
        simulation.subscription(id, TOPK)
    simulation.subscription("a", {**TOPK, "k": 1})  # takes the place of another
    simulation.subscription("full", None)
    simulation.step()
    for id in ("x", "y"):
        simulation.message(message("lake hill", id=id))
        simulation.step()
    simulation.drain()  # a tick comes and snapshots are taken: a restart decides the same
    for component in ("subscription-bolt", "distribution-bolt"):
        simulation.sim._restart(simulation.sim._queries[component])
    simulation.subscription("b", None)
    simulation.subscription("d", TOPK)
    simulation.subscription("over", TOPK)
    simulation.drain(16)
    letters = {record.key.decode(): dict(record.headers) for record in simulation.sim.dead_letters()}
    assert sorted(letters) == ["also", "full", "over"]
    assert (
        (letters["full"]["stage"], letters["full"]["code"]) == (b"limit", b"no-room")
        and letters["full"]["topic"] == b"dskype.subscriptions"
        and (letters["full"]["partition"], letters["full"]["offset"]) == (b"0", b"3")
    )
    assert b"room for 3 subscriptions (dskype.limits.subscriptions)" in letters["full"]["error"] and b"given: 'full'" in letters["full"]["error"]
    assert {id for id, _, _ in simulation.json(TOPICS.results)} == {"a", "b", "c", "d"}
    assert metric(simulation, "refused_subscriptions") == 3
    assert check(simulation)["final"] == 3
    inputs = Inputs.read("dskype", simulation.log.records)
    report = verify(inputs, Settings.from_conf(simulation.conf), final=True)
    assert report.ok, report.as_text(3)
    assert report.notes["subscriptions that were refused because a task was full"] == 3


@pytest.mark.parametrize("summaries", [False, True])
def test_registrations_that_replace_others_take_no_room_while_they_are_held(summaries):
    options = options_of("hybrid", 2) | {"summaries": summaries}
    simulation = Simulation({"dskype.distributor": "hybrid", "dskype.distributor.options": options, "dskype.limits.subscriptions": 4}, {"distribution-bolt": 1})
    for id in "abc":
        simulation.subscription(id, FILTER)
    simulation.message(message("lake"))
    simulation.drain()
    for id in "abc":
        simulation.subscription(id, {**FILTER, "expression": f"word-{id}"})  # of which no task knows yet that it is wanted
    simulation.subscription("d", FILTER)
    simulation.subscription("full", FILTER)
    simulation.drain()
    assert metric(simulation, "registered") == 4 and [record.key for record in simulation.sim.dead_letters()] == [b"full"]
