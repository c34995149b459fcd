"""The timeline of a topology: differences between its reports become events, and what was not seen is not there."""

from __future__ import annotations

import json

import pytest

from dskype.topology.ui.timeline import Timeline
from dskype.topology.ui.view import Reports


def record(status="ACTIVE", workers=2, executors=9, pid=1, host="here"):
    return {"summary": {"status": status, "num_workers": workers, "num_executors": executors}, "driver": {"host": host, "pid": pid, "started": 5}}


def stats(time_ms, *tasks, component="count", executor=0, pid=1, term=1, topology="t-1-1"):
    head = {"kind": "stats", "topology": topology, "component": component, "executor": executor, "pid": pid, "term": term, "time_ms": time_ms}
    return {**head, "tasks": [{"task": i, **task} for i, task in enumerate(tasks)]}


def driver(time_ms, state="running", why=(), **restarts):
    return {"kind": "driver", "time_ms": time_ms, "state": state, "why": list(why), "restarts": restarts}


def error(time_ms, text, component="count"):
    return {"kind": "error", "component": component, "task": 1, "time_ms": time_ms, "error": text}


@pytest.fixture
def timeline():
    return Timeline()


def told(timeline):
    return [(event["kind"], event["component"], event["what"], event["times"]) for event in timeline.as_json()["events"]]


def test_nothing_happens_while_nothing_changes(timeline):
    assert timeline.as_json() == {"sinceMs": None, "events": []}
    for second in range(3):
        timeline.see(record(), 5000 + second)
        timeline.feed(stats(6000 + second, {"dead_letters": 7, "rejected": {"parse/bad": 7}}))
        timeline.feed(driver(6000 + second, count=4))
    assert timeline.as_json() == {"sinceMs": 5000, "events": []}


def test_commands_other_sizes_and_another_driver_are_in_the_record(timeline):
    timeline.see(record(), 1)
    timeline.see(record("REBALANCING"), 2)
    timeline.see(record("ACTIVE", executors=12), 3)
    timeline.see(record("INACTIVE", executors=12, pid=8, host="there"), 4)
    assert told(timeline) == [
        ("status", "", "INACTIVE, was ACTIVE", 1),
        ("takeover", "", "another driver runs it: process 8 on there", 1),
        ("status", "", "ACTIVE, was REBALANCING", 1),
        ("rebalance", "", "12 executors, were 9", 1),
        ("rebalance", "", "REBALANCING, was ACTIVE", 1),
    ]
    assert timeline.as_json()["events"][1]["why"] == "before it was process 1 on here"


def test_dead_letters_are_counted_together_with_their_reasons_until_there_are_none_for_a_minute(timeline):
    for time_ms, n, reasons in ((1000, 2, {"a/x": 2}), (2000, 5, {"a/x": 3, "b/y": 2}), (3000, 9, {"a/x": 3, "b/y": 6}), (70_000, 10, {"a/x": 4, "b/y": 6})):
        timeline.feed(stats(time_ms, {"dead_letters": n, "rejected": reasons}))
    timeline.feed(stats(71_000, {"dead_letters": 8, "rejected": {"a/x": 2, "b/y": 6}}))  # a task goes back to its snapshot,
    timeline.feed(stats(72_000, {"dead_letters": 10, "rejected": {"a/x": 4, "b/y": 6}}))  # and refuses the same again
    newest, oldest = timeline.as_json()["events"]
    assert (newest["times"], newest["why"], newest["timeMs"]) == (1, "a/x", 70_000)
    assert (oldest["times"], oldest["why"], oldest["timeMs"], oldest["untilMs"], oldest["component"]) == (7, "b/y", 2000, 3000, "count")


def test_processes_that_change_are_restarts_unless_another_driver_has_started_them(timeline):
    for executor in (0, 1):
        timeline.feed(stats(1000, executor=executor, pid=executor))
    timeline.feed(error(1500, "Traceback\nValueError: password=hidden"))
    timeline.feed(stats(2000, executor=1, pid=7))
    timeline.feed(stats(1900, executor=1, pid=1))  # late
    for executor in (0, 1):
        timeline.feed(stats(3000, executor=executor, pid=20 + executor, term=2))
    timeline.feed(stats(3100, executor=0, pid=0))  # of the driver before
    assert told(timeline) == [
        ("start", "", "its executors work for driver number 2", 1),
        ("restart", "count", "new process of an executor", 1),
        ("error", "count", "error", 1),
    ]
    assert [event["why"] for event in timeline.as_json()["events"][1:]] == ["ValueError: password=******"] * 2


def test_health_and_started_queries_are_in_the_reports_of_the_driver(timeline):
    timeline.feed(driver(1, "starting"))
    timeline.feed(driver(2, "running"))
    timeline.feed(error(3, "boom"))
    timeline.feed(driver(4, "stalled", ["it failed", "twice"], count=2))
    timeline.feed(driver(5, "running", count=2))
    timeline.feed(driver(6, "running"))  # of another driver, which counts anew
    timeline.feed(driver(7, "running", count=1))
    found = timeline.as_json()["events"]
    assert [(e["kind"], e["what"], e["why"], e["times"]) for e in found] == [
        ("restart", "its query was started again", "boom", 3),
        ("health", "running, was stalled", "", 1),
        ("health", "stalled, was running", "it failed; twice", 1),
        ("error", "error", "boom", 1),
        ("health", "running, was starting", "", 1),
    ]


def test_only_what_has_just_happened_is_the_reason_of_a_restart(timeline):
    timeline.see(record(), 500)
    timeline.feed(stats(1000))
    timeline.feed(error(1500, "boom"))
    timeline.feed(stats(90_000, pid=2))
    timeline.see(record("REBALANCING"), 165_000)
    timeline.feed(stats(170_000, pid=3))
    timeline.feed(error(231_000, "bang"))
    timeline.feed(stats(232_000, pid=4))
    assert [e["why"] for e in timeline.as_json()["events"] if e["kind"] == "restart"] == ["bang", "the topology was rebalanced", ""]


def test_two_hundred_events_stay_and_one_that_is_submitted_again_begins_anew(timeline):
    for i in range(300):
        timeline.add(i * 100_000, "kind", str(i))
    found = timeline.as_json()["events"]
    assert len(found) == 200 and (found[0]["what"], found[-1]["what"]) == ("299", "100")
    timeline.feed(stats(1))
    timeline.feed(stats(2, topology="t-2-9"))
    assert timeline.as_json()["events"] == []


@pytest.mark.parametrize("value", [{"time_ms": 1, "kind": "driver"}, {"time_ms": 1, "kind": "stats", "topology": "t", "component": "c", "tasks": [{}]}])
def test_a_record_of_another_shape_is_counted_as_unreadable(value):
    reports = Reports()
    for _ in range(2):
        reports.feed(json.dumps(value).encode())
    assert reports.stats.unreadable > 0 and reports.timeline.as_json()["events"] == []
