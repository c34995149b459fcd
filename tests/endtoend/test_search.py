"""What becomes of searches that are refused, come too late or wait, on the simulated log. Random ones are part of every world of ``test_exactness.py``."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

from dskype.bolts.searches import WindowSearches
from dskype.deploy.verification import Inputs, verify
from dskype.spouts.settings import Settings
from dskype.spouts.streams import Lookups

from .harness import TOPICS, Simulation, codes, metric
from .searching import answers_of, send_search

NEAR = {"type": "topk", "text": "lake", "lat": 1, "lon": 2}


def test_a_search_before_the_first_message_is_answered():
    simulation = Simulation({}, {"message-bolt": 2, "distribution-bolt": 2})
    send_search(simulation, "early", NEAR)
    send_search(simulation, "all", {"type": "boolean", "bbox": [0, 0, 1, 1]})
    simulation.drain(2)
    found = answers_of(simulation)
    assert [(part["watermark"], part["results"]) for part in found["early"]] == [(-1, [])] * 2
    assert [(part["watermark"], part["count"], part["results"]) for part in found["all"]] == [(-1, 0, [])] * 2
    assert metric(simulation, "answered_searches") == 4 and metric(simulation, "searches") == 2


def test_what_is_refused_is_counted_and_told():
    simulation = Simulation({"dskype.search.per.second": 2, "dskype.k.max": 5})
    simulation.message({"id": 1, "text": "lake", "lat": 1, "lon": 2})
    simulation.drain(2)
    bad = {"k": {**NEAR, "k": 6}, "where": {**NEAR, "where": "lake AND"}, "late": {**NEAR, "timeout_ms": 0}, "type": {"text": "lake"}, "json": b"{"}
    bad["threshold"] = {**NEAR, "type": "threshold", "min_score": 0.5}
    bad |= {"half": b'{"type":"topk","text":"\\ud800 lake","lat":1,"lon":2}', "endless": b'{"type":"topk","text":"lake","lat":1,"lon":2,"alpha":1e999}'}
    for id, record in bad.items():
        send_search(simulation, id, record)
    simulation.drain(2)
    found = answers_of(simulation)
    assert {id: part["code"] for id, [part] in found.items()} == {
        "k": "invalid-k",
        "where": "invalid-expression",
        "late": "invalid-timeout",
        "type": "unknown-type",
        "threshold": "unknown-type",
        "json": "invalid-json",
        "half": "invalid-json",
        "endless": "invalid-json",
    }
    assert sorted(codes(simulation).values()) == sorted(part["code"] for [part] in found.values())
    for i in range(5):
        send_search(simulation, f"q{i}", NEAR)
    simulation.drain(2)
    parts = [part for id, [part] in answers_of(simulation).items() if id.startswith("q")]
    assert sorted(part.get("code", "") for part in parts) == ["", "", "too-many", "too-many", "too-many"]
    assert all("dskype.search.per.second" in part["error"] for part in parts if "error" in part)
    assert metric(simulation, "refused_searches") == len(bad) + 3 and metric(simulation, "searches") == 2


def test_nobody_waits_any_more_for_an_old_search():
    simulation = Simulation()
    send_search(simulation, "old", {**NEAR, "timeout_ms": 100})
    simulation.time_ms += 60_000
    simulation.drain(2)
    assert not simulation.records(TOPICS.answers) and metric(simulation, "expired_searches") == 1 and not codes(simulation)


def test_with_objects_the_window_has_their_present_states():
    simulation = Simulation({"dskype.objects": True}, {"message-bolt": 2, "distribution-bolt": 2})
    for id, lat in ((1, 1), (2, 5), (3, 9)):
        simulation.message({"id": id, "object": f"bus-{id % 2}", "text": "lake", "lat": lat, "lon": 2})
    simulation.message({"id": 4, "text": "lake", "lat": 2, "lon": 2})
    simulation.drain(2)
    send_search(simulation, "q", NEAR)
    send_search(simulation, "all", {"type": "boolean", "bbox": [0, 0, 10, 10]})
    simulation.drain(2)
    found = answers_of(simulation)
    assert {id: {one["message"] for part in parts for one in part["results"]} for id, parts in found.items()} == {"q": {2, 3, 4}, "all": {2, 3, 4}}


def _damaged(value, damage):
    """Return an answer with something wrong."""
    value = json.loads(value)
    if damage == "refused":
        return {"v": 1, "search": value["search"], "error": "no", "code": "invalid-k"}
    results = value["results"]
    if damage == "count":
        value["count"] += 1
    elif damage == "order":
        results[0]["seq"], results[1]["seq"], results[0]["position"], results[1]["position"] = (results[i][n] for n in ("seq", "position") for i in (1, 0))
    elif damage == "missing":
        results.pop(0)
    elif damage == "watermark":
        value["watermark"] -= 1
    else:
        results[0][damage] = 0.25
    return value


@pytest.mark.parametrize(
    ("id", "damage"), [("near", d) for d in ("score", "lat", "missing", "refused")] + [("all", d) for d in ("lon", "count", "order", "missing", "watermark")]
)
def test_verification_finds_wrong_answers(id, damage):
    simulation = Simulation({"dskype.window.messages": 5}, {"message-bolt": 1})
    for i in range(9):
        simulation.message({"id": i, "text": "lake park" if i % 2 else "lake", "lat": i, "lon": 2})
    simulation.drain(2)
    send_search(simulation, "near", NEAR | {"text": "park"})
    send_search(simulation, "all", {"type": "boolean", "bbox": [0, 0, 10, 10], "k": 3})
    send_search(simulation, "bad", NEAR | {"k": 0})
    simulation.drain(2)

    def report(damaged):
        def read(topic):
            records = simulation.records(topic)
            wrong = damaged and topic == TOPICS.answers
            return [r._replace(value=json.dumps(_damaged(r.value, damage)).encode()) if wrong and r.key == id.encode() else r for r in records]

        return verify(Inputs.read("dskype", read), Settings.from_conf(simulation.conf), final=True)

    good, wrong = report(False), report(True)
    assert good.ok and good.compared["searches"] == 2 and good.compared["refused searches"] == 1, good.as_text()
    assert wrong.counts == {"search": 1} and id in wrong.differences[0].text, wrong.as_text()


class Task:
    """A message task's context, and what its searches send."""

    def __init__(self):
        self.plan, self.sent = SimpleNamespace(name="dskype"), []

    def get_this_task_id(self):
        return 7

    def get_this_component_id(self):
        return "message-bolt"

    def get_component_tasks(self, component):
        return [7]

    def register_counter(self, name):
        return SimpleNamespace(inc=lambda n=1: None)

    def send_record(self, topic, key, value):
        self.sent.append((key.decode(), json.loads(value)))


@pytest.mark.parametrize("waiting", [1000])
def test_a_task_keeps_a_bounded_number_of_searches(waiting):
    task = Task()
    searches = WindowSearches(SimpleNamespace(), Settings(), task, task)
    names = [f"q{i}" for i in range(waiting + 2)]
    searches.receive(Lookups(search=names, watermark=[5] * len(names), record=[{"type": "topk"}] * len(names)), 4, None)
    assert [(key, value["code"]) for key, value in task.sent] == [(name, "too-many") for name in names[waiting:]]
    assert len(searches.snapshot()) == waiting and searches.watermarks() == [5] * waiting
    again = WindowSearches(SimpleNamespace(), Settings(), task, task)
    again.restore(searches.snapshot())
    again.answer(4, None)
    assert len(task.sent) == 2 and again.snapshot() == searches.snapshot()


@pytest.mark.parametrize(("objects", "asks"), [(False, "search"), (False, "topk"), (False, "initial"), (True, "search"), (True, "topk")])
def test_what_the_message_tasks_did_not_get_yet_is_there_when_somebody_asks(objects, asks):
    """While nobody asks, they get little and late; with the first question everything up to its watermark, and from then on all at once."""
    simulation = Simulation({"dskype.objects": objects}, {"message-bolt": 2})
    simulation.subscription("lakes", {"type": "boolean", "bbox": [0, 0, 10, 10], "expression": "lake"})
    simulation.drain(2)  # and a tick
    for id in range(6):
        simulation.message({"id": id, "text": "lake", "lat": id, "lon": 2, **({"object": f"bus-{id % 4}"} if objects else {})})
        simulation.step(ms=50)
    counted = Counter(d["op"] for _, d, _ in simulation.json(TOPICS.results))
    assert counted == ({"enter": 4} if objects else {"match": 6}) and metric(simulation, "window_messages") == 0
    if asks == "search":
        send_search(simulation, "q", {"type": "boolean", "bbox": [0, 0, 10, 10]})
    else:
        initial = {"type": "boolean", "bbox": [0, 0, 10, 10], "expression": "lake", "initial": True}
        simulation.subscription("asks", {"type": "topk", "text": "lake", "lat": 0, "lon": 2, "k": 9, "alpha": 0.5} if asks == "topk" else initial)
    for _ in range(4):
        simulation.step(ms=10)
    assert metric(simulation, "window_messages") == 6
    if asks == "search":
        found = {one["message"] for part in answers_of(simulation)["q"] for one in part["results"]}
    else:
        found = {d["message"] for key, d, _ in simulation.json(TOPICS.results) if key == "asks"}
    assert found == ({2, 3, 4, 5} if objects else set(range(6)))
    simulation.message({"id": 6, "text": "lake", "lat": 1, "lon": 2})
    simulation.step(ms=10)
    assert metric(simulation, "window_messages") == (6 if asks == "search" else 7)
    simulation.drain(6)
    report = verify(Inputs.read("dskype", simulation.records), Settings.from_conf(simulation.conf), final=True)
    assert report.ok and metric(simulation, "window_messages") == 7, report.as_text()
