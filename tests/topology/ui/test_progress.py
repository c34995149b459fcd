"""Whether a topology keeps up, as the server sees it: rates, what waits, and since when."""

from __future__ import annotations

import random

import pytest

from dskype.topology.ui.progress import Progress
from dskype.topology.ui.view import Reports, TopologyView

RECORD = {
    "state": {"id": "t-1-1", "name": "t", "submitted_ms": 1, "conf": {}},
    "summary": {"status": "ACTIVE", "name": "t"},
    "driver": {"host": "here", "pid": 1},
}
START_MS = 1_700_000_000_000


class Spouts:
    """A topology whose spout has taken so many of so many records."""

    def __init__(self) -> None:
        self.now_s, self.reports = 0.0, Reports()
        self.progress = Progress(lambda: self.now_s)

    def look(self, taken, ends, secs=2.0):
        self.now_s += secs
        self.reports.stats.tasks[1] = {"component": "spout", "kafka": [["topic", 0, taken, taken]]}
        view = TopologyView(RECORD, self.reports, True, START_MS + round(self.now_s * 1000), {("topic", 0): ends})
        return self.progress.look([view])["t-1-1"]


@pytest.fixture
def spouts():
    return Spouts()


def test_one_that_keeps_up_runs(spouts):
    paces = [spouts.look(1000 * i, 1000 * i + 50) for i in range(30)]
    assert {pace.state for pace in paces} == {"running"} and paces[0].taken_per_s is None
    assert paces[-1].taken_per_s == paces[-1].coming_per_s == 500 and paces[-1].waiting == 50 and paces[-1].since_ms is None


def test_one_with_more_than_ten_seconds_of_work_is_behind_since_it_was_first_seen(spouts):
    for i in range(10):
        spouts.look(200 * i, 200 * i)
    paces = [spouts.look(2000 + 200 * i, 2000 + 1200 * i) for i in range(1, 20)]
    states = [pace.state for pace in paces]
    first = states.index("behind")
    assert states == ["running"] * first + ["behind"] * (19 - first) and first > 0
    assert {pace.since_ms for pace in paces[first:]} == {START_MS + (10 + first + 1) * 2000}
    assert paces[-1].as_text() == "19,000 records wait; 100/s are taken, and 600/s come"
    assert spouts.look(25_000, 25_000).state == "running"


def test_few_records_are_no_delay(spouts):
    assert {spouts.look(0, 100).state for _ in range(10)} == {"running"}


def test_one_that_takes_nothing_for_half_a_minute_is_stuck(spouts):
    for i in range(5):
        spouts.look(100 * i, 100 * i)
    paces = [spouts.look(400, 401) for _ in range(20)]
    states = [pace.state for pace in paces]
    assert states.index("stuck") == 14 and set(states[14:]) == {"stuck"}
    assert paces[-1].since_ms == START_MS + 5 * 2000, "since it has taken the last one"
    assert spouts.look(401, 401).state == "running"


def test_an_idle_one_is_not_stuck(spouts):
    assert {spouts.look(400, 400).state for _ in range(40)} == {"running"}


def test_what_was_seen_long_ago_says_nothing(spouts):
    for i in range(5):
        spouts.look(100 * i, 100 * i + 5)
    pace = spouts.look(400, 90_000, secs=100)
    assert (pace.state, pace.taken_per_s) == ("running", None)
    assert spouts.look(10, 90_000).taken_per_s is None, "it has gone back"


def test_topologies_that_are_gone_are_forgotten(spouts):
    spouts.look(1, 2)
    assert spouts.progress.look([]) == {} and not spouts.progress._seen and not spouts.progress._moved_s and not spouts.progress._since


@pytest.mark.parametrize("seed", range(20))
def test_rates_are_those_of_the_last_half_minute(spouts, seed):
    draw = random.Random(seed)
    taken = ends = 0
    points = []
    for _ in range(60):
        taken, ends = taken + draw.randrange(500), ends + draw.randrange(500, 900)
        secs = draw.choice([0.5, 1, 2, 5])
        pace = spouts.look(taken, ends, secs)
        points.append((spouts.now_s, taken, ends))
        kept = [point for point in points if spouts.now_s - point[0] <= 30]
        span = spouts.now_s - kept[0][0]
        if span >= 4:
            assert pace.taken_per_s == pytest.approx((taken - kept[0][1]) / span) and pace.coming_per_s == pytest.approx((ends - kept[0][2]) / span)
            assert pace.state == ("behind" if ends - taken > max(100, 10 * pace.taken_per_s) else "running")
