"""What the page of loads shows over time: rows of rates, whatever else is in the metrics topic."""

from __future__ import annotations

import json

import pytest

from dskype.deploy.web import trend
from dskype.deploy.web.trend import Trend, WatchedReports

from .scene import report, run_for


@pytest.fixture
def reports():
    found = WatchedReports({"state": {"conf": {}}})
    run_for(found, 60, 1_000_000)
    return found


def test_a_row_has_the_rates_since_the_row_before(reports):
    columns = reports.trend.columns()
    assert [b - a for a, b in zip(columns["time_s"], columns["time_s"][1:])] == [5.0] * (len(columns["time_s"]) - 1) and len(columns["time_s"]) > 10
    assert all(500 < rate < 1500 for rate in columns["messages_per_second"]) and [task["task"] for task in columns["tasks"]] == [2, 3]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[" * 100_000,
        b"[]",
        b"7",
        b'{"kind": "stats"}',
        *(json.dumps({**json.loads(report("b", 1)), "tasks": tasks}).encode() for tasks in (7, [7])),
    ],
)
def test_an_unreadable_record_is_counted_and_changes_nothing(reports, value):
    before = reports.trend.columns(), dict(reports.meter.stats.tasks)
    reports.feed(value)
    assert reports.stats.unreadable == 1 and (reports.trend.columns(), reports.meter.stats.tasks) == before


def test_a_topology_that_is_submitted_again_begins_a_new_trend(reports):
    again = json.loads(report("subscription-bolt", 2_000_000, {"task": 2}))
    reports.feed(json.dumps({**again, "topology": "dskype-2-2"}).encode())
    assert reports.trend.columns()["time_s"] == [] and list(reports.meter.stats.tasks) == [2]


def test_changes_of_the_plan_and_moves_of_subscriptions_are_events(reports):
    def told(version, moving, refused=0, task=1):
        metrics = {"plan_version": version, "moving": moving, "plans_refused": refused}
        reports.feed(report("distribution-bolt", 1_000_000, {"task": task, "metrics": metrics}))

    for arguments in ((1, 0), (2, 0), (2, 40), (2, 9), (2, 0), (2, 0, 0, 5), (2, 0, 1), (2, 0, 1, 5)):
        told(*arguments)
    found = reports.timeline.as_json()["events"]
    assert {event["component"] for event in found} == {"distribution-bolt"} and reports.timeline.since_ms == 940_000
    assert sorted((event["kind"], event["what"]) for event in found) == [
        ("moves", "40 subscriptions begin to move to other tasks"),
        ("moves", "subscriptions have moved to other tasks"),
        ("plan", "a plan was refused"),
        ("plan", "version 2 of the plan, was 1"),
    ]
    reports.feed(json.dumps({**json.loads(report("b", 2_000_000, {"task": 1})), "topology": "dskype-2-2"}).encode())
    assert reports.timeline.as_json()["events"] == []


def test_where_nothing_was_reported_there_is_a_row_without_values_and_no_rate_over_it(reports):
    before = reports.trend.columns()
    run_for(reports, 30, 1_000_000 + 630_000)  # ten minutes later
    after = reports.trend.columns()
    n = len(before["time_s"])
    gap = after["time_s"][n]
    assert before["time_s"][-1] < gap < after["time_s"][n + 1] and after["time_s"][n + 1] - gap > 500
    for name, column in after.items():
        if name not in ("time_s", "tasks"):
            assert column[n] is None, name
    assert all(task[name][n] is None and task[name][n + 1] is None for task in after["tasks"] for name in ("busy", "messages_per_second"))
    assert after["messages_per_second"][n + 1] is None and after["replication"][n + 1] == 1.2
    assert all(rate is not None for rate in after["messages_per_second"][n + 2 :])


def test_the_columns_are_made_once_for_each_row(reports, monkeypatch):
    """A reader must not choose how often an hour of rows is computed."""
    made = []
    whole = Trend._columns_of
    monkeypatch.setattr(Trend, "_columns_of", staticmethod(lambda rows: made.append(len(rows)) or whole(rows)))
    for _ in range(5):
        reports.trend.columns()
    assert len(made) <= 1
    rows = len(reports.trend.columns()["time_s"])
    run_for(reports, 30, 1_000_000 + 60_000)
    for _ in range(5):
        assert len(reports.trend.columns()["time_s"]) > rows
    assert len(made) <= 2


DAY_MS = 86_400_000


def test_measurements_are_kept_for_a_day_and_the_nearest_ones_are_found():
    found = WatchedReports({"state": {"conf": {}}})
    end_ms = 100 * DAY_MS
    assert found.earlier.at(end_ms - DAY_MS, end_ms) is None
    for ago_ms, rate in ((DAY_MS + 7_200_000, 100), (DAY_MS, 300), (3_600_000, 500)):
        run_for(found, 70, end_ms - ago_ms, per_second=rate)
    then = found.earlier.at(end_ms - DAY_MS, end_ms)
    assert abs(then["time_ms"] - (end_ms - DAY_MS)) <= 10_000 and [task["task"] for task in then["components"][1]["tasks"]] == [2, 3]
    assert 200 < then["messages"]["per_second"] < 400, "the first minute after a gap has no rates, and is not kept"
    assert found.earlier.at(end_ms - 3_600_000, end_ms)["time_ms"] > then["time_ms"]
    assert found.earlier.at(end_ms - 50 * DAY_MS, end_ms)["time_ms"] < then["time_ms"], "of a time before everything that is kept, the oldest"
    assert found.earlier.at(end_ms, end_ms - 50 * DAY_MS) is None


def test_measurements_are_kept_at_intervals_and_not_for_ever(monkeypatch):
    monkeypatch.setattr(trend, "EARLIER_MS", 10_000)
    monkeypatch.setattr(trend, "EARLIER", 5)
    found = WatchedReports({"state": {"conf": {}}})
    run_for(found, 300, 1_000_000)
    oldest, newest = (found.earlier.at(time_ms, 2**53)["time_ms"] for time_ms in (0, 2**53))
    assert newest == 1_000_000 and newest - oldest == 40_000


def test_a_topology_that_is_submitted_again_is_not_compared_with_the_one_before(reports):
    assert reports.earlier.at(0, 2**53) is not None
    reports.feed(json.dumps({**json.loads(report("subscription-bolt", 2_000_000, {"task": 2})), "topology": "dskype-2-2"}).encode())
    assert reports.earlier.at(0, 2**53) is None
