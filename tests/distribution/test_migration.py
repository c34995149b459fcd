"""Local load adjustment: what is moved, by both phases."""

import itertools
import re

import numpy as np
import pytest

from dskype.distribution import HybridDistributor
from dskype.distribution.migration import SELECTIONS, matched_tasks, select_by_programme, select_greedily
from dskype.distribution.partitioned import measure
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.spouts.settings import Settings
from dskype.topology.errors import IllegalArgumentException
from tests.distribution.test_kdt_tree import MODEL, regional


def parts(rng, n=9):
    return rng.uniform(0.1, 5, n), rng.integers(0, 40, n)


@pytest.mark.parametrize("seed", range(30))
def test_the_programme_moves_least_and_every_selection_moves_enough(seed):
    rng = np.random.default_rng([seed, 71])
    loads, sizes = parts(rng)
    needed = float(loads.sum()) * rng.random()
    subsets = (some for k in range(len(loads) + 1) for some in itertools.combinations(range(len(loads)), k))
    least = min(int(sizes[list(some)].sum()) for some in subsets if loads[list(some)].sum() >= needed)
    for name, select in SELECTIONS.items():
        found = select(loads, sizes, needed)
        assert loads[found].sum() >= needed * (1 - 1e-9) and found.tolist() == sorted(set(found.tolist())), name
        assert sizes[found].sum() >= least
    assert sizes[select_by_programme(loads, sizes, needed)].sum() == least


def test_the_greedy_selection_is_cheaper_than_the_largest_parts_and_than_random_ones():
    rng, moved = np.random.default_rng(72), dict.fromkeys(SELECTIONS, 0)
    for _ in range(40):
        loads, sizes = parts(rng, 60)
        for name, select in SELECTIONS.items():
            moved[name] += int(sizes[select(loads, sizes, float(loads.sum()) / 5)].sum())
    assert moved["programme"] <= moved["greedy"] < 0.6 * moved["random"] < moved["size"]


def test_every_selection_may_be_chosen_for_load_balancing():
    for name in SELECTIONS:
        assert Settings.from_conf({"dskype.balance": "auto", "dskype.balance.selection": name}).balance.selection == name
    with pytest.raises(IllegalArgumentException, match=re.escape(f"legal: {' | '.join(sorted(SELECTIONS))}")):
        Settings.from_conf({"dskype.balance.selection": "first"})


def test_coarser_sizes_are_still_enough(monkeypatch):
    from dskype.distribution import migration

    monkeypatch.setattr(migration, "_MOST_STATES", 500)
    rng = np.random.default_rng(73)
    for _ in range(10):
        loads, sizes = parts(rng, 20)
        needed = float(loads.sum()) / 3
        assert loads[select_by_programme(loads, sizes * 1000, needed)].sum() >= needed * (1 - 1e-9)
        assert loads[select_greedily(loads, sizes * 1000, needed)].sum() >= needed


def drifted(rng):
    """Return a sample whose messages and subscriptions crowd in a small part of where they were."""
    found = regional(rng, 60.0)
    lat = 20 + found.lat / 8
    boxes = found.boxes.copy()
    boxes[:, 1::2] += (lat - found.lat)[:, None]
    return found._replace(messages=found.messages._replace(lat=lat), lat=lat, boxes=boxes)


@pytest.mark.parametrize("selection", sorted(SELECTIONS))
def test_an_adjustment_restores_the_balance_after_a_drift(selection):
    options = {"granularity": 64, "costs": MODEL._asdict(), "theta": 64}
    before = HybridDistributor(6, options, HybridDistributor.learn(6, regional(np.random.default_rng(66), 60.0), options))
    now = drifted(np.random.default_rng(67))
    plan, found = before.adjusted(now, selection)
    after = HybridDistributor(6, options, plan)
    loads = after.loads()
    busiest = [float(measure(one, now).loads.max()) for one in (before, after)]
    assert found.rounds > 0 and found.moved > 0 and busiest[1] < busiest[0]
    assert loads.max() / loads.mean() < 1.5
    giving = before.giving_tasks(after)
    for i in range(0, now.n, 40):
        one = BooleanSubscription(now.boxes[i].tolist(), int(now.terms[now.offsets[i]]), None, None)
        tasks = before.place("s", one).tasks
        assert after.place("s", one).tasks == tasks or set(tasks) & set(giving)


def test_nothing_is_moved_where_loads_are_balanced():
    options = {"granularity": 64, "costs": MODEL._asdict(), "theta": 64}
    sample = regional(np.random.default_rng(66), 60.0)
    plan = HybridDistributor.learn(6, sample, options)
    found = HybridDistributor(6, {**options, "sigma": 3}, plan).adjusted(sample)[1]
    assert found.moved == found.rounds == 0


def test_one_zone_for_everything_is_cut_so_that_it_can_move():
    """By space, and where there is one cell only by text."""
    sample = regional(np.random.default_rng(66), 60.0)
    for granularity in (64, 1):
        options = {"costs": MODEL._asdict()}
        zones = [{"cells": [0, 0, granularity, granularity], "task": 0, "load": 1}]
        plan = {
            "v": 1,
            "distributor": "hybrid",
            "tasks": 3,
            "loads": [1, 0, 0],
            "grid": {"columns": granularity, "rows": granularity, "box": [-180, -90, 180, 90]},
        }
        before = HybridDistributor(3, options, {**plan, "zones": zones})
        changed, found = before.adjusted(sample)
        after = HybridDistributor(3, options, changed)
        assert found.after < 0.75 * found.before and found.moved > 0
        assert (after.loads() > 0).all() and any(zone.divided for zone in after.gridt.zones) >= (granularity == 1)


def test_a_plan_from_scratch_has_to_be_much_better_and_leaves_what_it_can():
    options = {"granularity": 64, "costs": MODEL._asdict(), "theta": 64}
    before = HybridDistributor(6, options, HybridDistributor.learn(6, regional(np.random.default_rng(66), 60.0), options))
    now = drifted(np.random.default_rng(67))
    assert before.repartitioned(now, 0.99) is None
    plan = before.repartitioned(now, -10)
    after = HybridDistributor(6, options, plan)
    fresh = HybridDistributor(6, options, HybridDistributor.learn(6, now, options))
    same = [int((before._held_by_tasks(one, now) & before._held_by_tasks(before, now)).sum()) for one in (after, fresh)]
    assert sorted(after.loads()) == pytest.approx(sorted(fresh.loads())) and same[0] >= same[1]


def test_tasks_are_matched_by_what_they_have_in_common():
    assert matched_tasks(np.array([[0, 9, 1], [0, 8, 7], [5, 0, 0]])).tolist() == [1, 2, 0]
    assert matched_tasks(np.zeros((3, 3), np.int64)).tolist() == [0, 1, 2]
