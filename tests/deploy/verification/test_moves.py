"""``dskype verify`` finds what is wrong with results of objects."""

import json
from collections import defaultdict

import pytest

from dskype.deploy.verification import Inputs, verify
from dskype.deploy.verification.inputs import Record
from dskype.spouts.settings import Settings
from tests.endtoend.harness import TOPICS, Simulation, check

pytestmark = pytest.mark.product(seconds=20)


@pytest.fixture(scope="module")
def simulation():
    """A bus and a tram on their ways through two zones; the bus comes twice and is deleted, the tram gets late and expires."""
    conf = {"dskype.objects": True, "dskype.objects.ttl.ms": 5000, "dskype.boolean.wordless": True}
    conf |= {"dskype.window.messages": None, "dskype.window.span.ms": 60_000, "dskype.window.lateness.ms": 100}
    played = Simulation(conf, {"subscription-bolt": 2, "distribution-bolt": 2})
    played.subscription("zone", {"type": "boolean", "bbox": [0, 0, 5, 5], "inside": True})
    played.subscription("near", {"type": "topk", "text": "bus tram", "k": 1, "alpha": 1, "lat": 0, "lon": 0})
    played.subscription("buses", {"type": "boolean", "bbox": [0, 0, 5, 5], "expression": "bus", "meta": 1})
    played.message({"text": "before", "lat": 9, "lon": 9})
    played.drain(4)
    for lat in (1, 2, 8, 3):
        for name in ("bus", "tram"):
            played.message({"object": name, "text": f"{name} {lat}", "lat": lat, "lon": 1 if name == "bus" else lat, "ts": played.time_ms})
        played.step(ms=400)
    played.delete_object(b"bus")
    played.drain(4)
    for _ in range(20):
        played.message({"text": "after", "lat": 9, "lon": 9})
        played.step(ms=400)
    played.drain(4)
    return played


def verified(simulation, change=None):
    def read(topic):
        records = simulation.records(topic)
        if topic not in (TOPICS.results, TOPICS.topk) or change is None:
            return records
        found = [Record(r.partition, r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records]
        return [changed for r in found if (changed := change(r, defaultdict(str, json.loads(r.value)))) is not None]

    return verify(Inputs.read("dskype", read), Settings.from_conf(simulation.conf), final=True)


def test_what_was_published_is_right(simulation):
    report = verified(simulation)
    assert report.ok, report.as_text()
    results = [delta for _, delta, _ in simulation.json(TOPICS.results)]
    ops = [(delta["subscription"], delta["object"], delta["op"]) for delta in results if delta["subscription"] != "near"]
    assert report.compared["results of objects"] == len(ops)
    assert [op for *who, op in ops if who == ["zone", "bus"]] == ["enter", "inside", "leave", "enter", "leave"]
    assert [op for *who, op in ops if who == ["zone", "tram"]] == ["enter", "inside", "leave", "enter", "leave"]
    assert [op for *who, op in ops if who == ["buses", "bus"]] == ["enter", "leave", "enter", "leave"]
    near = [(delta["op"], delta["object"]) for delta in results if delta["subscription"] == "near"]
    steps = [("add", "tram"), ("remove", "tram"), *[("add", "bus"), ("remove", "bus")] * 3, ("add", "tram"), ("remove", "tram")]
    assert near == steps
    assert report.compared["lists"] > 3 and report.compared["deltas"] == len(near)


def test_an_end_without_a_time_ends_what_was_sent_by_a_clock_that_is_ahead():
    played = Simulation({"dskype.objects": True, "dskype.boolean.wordless": True})
    played.subscription("zone", {"type": "boolean", "bbox": [0, 0, 5, 5], "expression": "bus"})
    played.subscription("near", {"type": "topk", "keywords": ["bus"], "k": 9, "alpha": 1, "lat": 0, "lon": 0})
    played.message({"text": "before", "lat": 9, "lon": 9})
    played.drain(2)
    ends = [("a", None), ("b", {"deleted": True}), ("c", {"deleted": True, "ts": played.time_ms + 30_000})]
    for name, _ in ends:
        played.message({"object": name, "text": "bus", "lat": 1, "lon": 1, "ts": played.time_ms + 60_000})
    for name, end in ends:
        played.delete_object(name.encode()) if end is None else played.message({"object": name, **end})
    played.message({"object": "a", "text": "bus", "lat": 1, "lon": 1})
    played.drain(4)
    ops = [(delta["op"], delta["object"]) for _, delta, _ in played.json(TOPICS.results) if delta["subscription"] == "zone"]
    assert ops == [("enter", "a"), ("enter", "b"), ("enter", "c"), ("leave", "a"), ("leave", "b"), ("enter", "a")], "only what names an older time is outdated"
    report = verified(played)
    assert report.ok and report.compared["results of objects"] == 6, report.as_text()
    check(played)


def renamed(record, value, **fields):
    return record._replace(value=json.dumps(value | fields, separators=(",", ":")).encode())


FAULTS = {
    "a leave is missing": (lambda r, v: None if (v["op"], v["subscription"]) == ("leave", "buses") else r, "was not published"),
    "an expiry is missing": (lambda r, v: None if (v["op"], v["object"]) == ("leave", "tram") else r, "leave of object 'tram'"),
    "an enter is called inside": (lambda r, v: renamed(r, v, op="inside") if v["op"] == "enter" and v["object"] == "bus" else r, "enter of object 'bus'"),
    "another object": (lambda r, v: renamed(r, v, object="ship") if v["op"] == "inside" else r, "inside of object 'ship'"),
    "no object": (lambda r, v: renamed(r, {k: x for k, x in v.items() if k != "object"}) if v["op"] == "inside" else r, "wrong field"),
    "a former state stays in a list": (lambda r, v: None if (v["op"], v["object"]) == ("remove", "bus") else r, "the list"),
    "an object that has ended is in a list": (
        lambda r, v: renamed(r, v, topk=[{"message": "0-7", "object": "bus", "score": 0.9}]) if v["topk"] == [] else r,
        "list",
    ),
    "a list names another object": (lambda r, v: renamed(r, v, object="ship") if v["op"] == "add" else r, "another object"),
    "another time": (lambda r, v: renamed(r, v, watermark=v["watermark"] + 1) if v["op"] == "inside" else r, "is wrong"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(simulation, fault):
    change, words = FAULTS[fault]
    report = verified(simulation, change)
    assert not report.ok and any(words in difference.text for difference in report.differences), report.as_text()
