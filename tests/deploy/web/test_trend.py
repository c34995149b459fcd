"""What the page of loads shows over time: rows of rates, whatever else is in the metrics topic."""

from __future__ import annotations

import json

import pytest

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
