"""Snapshots of every index are restored in another process, which finds what this one finds, before and after further changes."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from dskype.bolts.boolean import INDEXES
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.topology.core.values import pack_state
from tests.naive import overlapping, satisfies

from .continued import Step, empty_task, play
from .oracle import any_place_message, any_subscription, place_of, seeded

pytestmark = pytest.mark.long

HUGE = [
    ["or", *range(256)],
    ["and", *range(12)],
    ["or", *(["and", i, i + 1, i + 2] for i in range(60))],
    ["and", *(["or", 2 * i, 2 * i + 1] for i in range(12))],
]
END_MS, SLACK_MS = 1_000_000, 60_000


def subscriptions(rng, first, n):
    """Return random subscriptions by name: some huge expressions, many small rectangles with one word in common, and any others. A third of them ends at about ``END_MS``."""
    drawn = [((-30.0, -15.0, 30.0, 15.0), expression) for expression in HUGE]
    while len(drawn) < n:
        west, south = rng.uniform(-30, 29), rng.uniform(-15, 14)
        small = (west, south, west + rng.uniform(0, 1), south + rng.uniform(0, 1)), ["and", 2, rng.randrange(3, 9)]
        drawn.append(small if rng.random() < 0.7 else any_subscription(rng))
    ends = [END_MS + rng.randrange(-500, 500) if rng.random() < 0.33 else None for _ in drawn]
    return {f"s{first + i}": BooleanSubscription(list(box), e, end, None) for i, ((box, e), end) in enumerate(zip(drawn, ends))}


def messages(rng, n, arrival_ms):
    return [any_place_message(rng, areas=0.5) for _ in range(n)], [arrival_ms + rng.randrange(-300, 300) for _ in range(n)]


def scene():
    """Return the steps before the snapshot, and those after it: slots are emptied and some taken again, subscriptions expire on both sides, one of each kind of change at a time."""
    rng = seeded(22)
    gone = rng.sample(range(600), 250)
    early = [
        Step([], subscriptions(rng, 0, 600), *messages(rng, 20, 0)),
        Step(gone, subscriptions(rng, 600, 100), *messages(rng, 20, END_MS)),  # 150 slots are left free
        Step([], {}, *messages(rng, 5, END_MS + SLACK_MS)),  # some have expired, and wait for their end
    ]
    later_gone = rng.sample(sorted(set(range(600)) - set(gone)), 120)
    late = [
        Step([], {}, *messages(rng, 40, END_MS)),
        Step(later_gone, subscriptions(rng, 700, 400), *messages(rng, 40, END_MS)),  # more than there are free slots
        Step([], {}, *messages(rng, 20, END_MS + 2 * SLACK_MS)),
    ]
    return early, late


def wanted(steps):
    """Return what :func:`play` should, and by slot what is there at last; slots are given back and handed out as a stack."""
    live, free, expired, found = {}, [], set(), []
    for step in steps:
        for slot in step.gone:
            del live[slot]
            expired.discard(slot)
            free.append(slot)
        for subscription in step.new.values():
            live[free.pop() if free else len(live)] = subscription
        now_ms = min(step.arrival_ms) - SLACK_MS
        matches = [
            (i, slot)
            for i, (row, at_ms) in enumerate(zip(step.rows, step.arrival_ms))
            for slot, s in sorted(live.items())
            if (s.expires_ms is None or at_ms < s.expires_ms) and overlapping(s.bbox, place_of(row)) and satisfies(s.expression, set(row[-1]))
        ]
        over = sorted((s.expires_ms, slot) for slot, s in live.items() if s.expires_ms is not None and s.expires_ms <= now_ms and slot not in expired)
        expired.update(slot for _, slot in over)
        found.append((matches, [slot for _, slot in over]))
    return found, live


@pytest.fixture(scope="module")
def expected():
    """Return the steps before and after the snapshot, and what they should find."""
    early, late = scene()
    found = wanted([*early, *late])[0]
    return early, late, found[: len(early)], found[len(early) :]


@pytest.fixture(scope="module")
def begun(expected):
    """Return what each index finds before the snapshot, its snapshot, and what it finds then if it just goes on."""
    early, late, *_ = expected
    found = {}
    for name in INDEXES:
        task = empty_task(name)
        first = play(task, early)
        found[name] = first, pack_state(task.snapshot()), play(task, late)
    return found


@pytest.fixture(scope="module")
def continued(expected, begun):
    """Return what each index finds after the snapshot in another process, one for all of them."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.bolts.boolean.continued"],
        input=pickle.dumps(({name: state for name, (_, state, _) in begun.items()}, expected[1])),
        capture_output=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        timeout=600,
        check=False,
    )
    assert child.returncode == 0, child.stderr.decode()
    return pickle.loads(child.stdout)


@pytest.mark.parametrize("name", sorted(INDEXES))
def test_a_snapshot_is_continued_in_another_process(expected, begun, continued, name):
    _, _, before, after = expected
    first, _, here = begun[name]
    there = continued[name]
    assert not isinstance(there, str), there
    for found, right in ((first, before), (here, after), (there, after)):
        for step, (one, other) in enumerate(zip(found, right, strict=True)):
            assert one == other, f"step {step}"


def test_the_scene_has_what_it_is_for():
    early, late = scene()
    found, live = wanted([*early, *late])
    before = wanted(early)[1]
    assert len(before) == 450 and max(before) == 599 and len(live) == 730 and max(live) > 700
    assert all(matches for matches, _ in found) and [bool(expired) for _, expired in found] == [False, False, True, False, False, True]
    for steps in (early, late):
        slots = {slot for step, (matches, _) in zip(steps, found[:3] if steps is early else found[3:]) for _, slot in matches}
        there = before if steps is early else live
        matched = [there[slot] for slot in slots & there.keys()]
        assert any(s.bbox[0] > s.bbox[2] for s in matched) and any(isinstance(s.expression, list) and len(s.expression) > 200 for s in matched)
        areas = [row[0] for step in steps for row in step.rows if len(row) == 2]
        assert any(west > east for west, _, east, _ in areas) and any(west < east for west, _, east, _ in areas)
