"""Local load adjustment: what is moved, by both phases."""

import itertools
import re

import numpy as np
import pytest

from dskype.distribution.agrid.grid import AGrid, CellBox
from dskype.distribution.hybrid import migration
from dskype.distribution.hybrid.distributor import HybridDistributor
from dskype.distribution.hybrid.gridt import Part, Zone
from dskype.distribution.hybrid.leaf_loads import SampleLoads
from dskype.distribution.hybrid.migration import SELECTIONS, Movable, loads_of_zones, matched_tasks, select_by_moves, select_by_programme, select_greedily
from dskype.distribution.methods.partitioned import measure
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.spouts.settings import Settings
from dskype.topology.errors import IllegalArgumentException
from tests.distribution.test_kdt_tree import MODEL, regional


def apart(loads, sizes):
    """Return parts that have no subscription in common, and none that the other task has."""
    ends = np.cumsum(sizes)
    return Movable(loads, [np.arange(end - size, end) for size, end in zip(sizes.tolist(), ends.tolist())], np.zeros(ends[-1], np.bool_))


def parts(rng, n=9):
    return apart(rng.uniform(0.1, 5, n), rng.integers(0, 40, n))


def overlapping(rng, n=9, m=60):
    """Return intervals of a line, as neighbouring rectangles have subscriptions in common."""
    begins = rng.integers(0, m - m // 5, n)
    return Movable(rng.uniform(0.1, 5, n), [np.arange(begin, begin + rng.integers(0, m // 5)) for begin in begins], rng.random(m) < 0.2)


def subsets(parts, needed):
    every = (np.array(some, np.int64) for k in range(len(parts.loads) + 1) for some in itertools.combinations(range(len(parts.loads)), k))
    return [some for some in every if parts.loads[some].sum() >= needed]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("drawn", [parts, overlapping])
def test_the_programme_moves_least_and_every_selection_moves_enough(drawn, seed):
    rng = np.random.default_rng([seed, 71])
    movable = drawn(rng)
    needed = float(movable.loads.sum()) * rng.random()
    enough = subsets(movable, needed)
    least, fewest = min(int(movable.sizes[some].sum()) for some in enough), min(map(movable.moved, enough))
    for name, select in SELECTIONS.items():
        found = select(movable, needed)
        assert movable.loads[found].sum() >= needed * (1 - 1e-9) and found.tolist() == sorted(set(found.tolist())), name
        assert movable.sizes[found].sum() >= least and movable.moved(found) >= fewest
    assert movable.sizes[select_by_programme(movable, needed)].sum() == least


def test_without_common_subscriptions_the_selection_by_moves_is_the_greedy_one():
    rng = np.random.default_rng(75)
    for _ in range(40):
        movable = parts(rng, 30)
        needed = float(movable.loads.sum()) / 4
        assert movable.moved(select_by_moves(movable, needed)) == movable.sizes[select_greedily(movable, needed)].sum()


@pytest.mark.long
def test_the_greedy_selection_is_cheaper_than_the_largest_parts_and_than_random_ones():
    rng, sizes, moved = np.random.default_rng(72), dict.fromkeys(SELECTIONS, 0), dict.fromkeys(SELECTIONS, 0)
    for _ in range(40):
        movable, common = parts(rng, 60), overlapping(rng, 60, 400)
        for name, select in SELECTIONS.items():
            sizes[name] += int(movable.sizes[select(movable, float(movable.loads.sum()) / 5)].sum())
            moved[name] += common.moved(select(common, float(common.loads.sum()) / 5))
    assert sizes["programme"] <= sizes["greedy"] < 0.6 * sizes["random"] < sizes["size"]
    assert moved["moves"] < 0.9 * moved["greedy"] < 0.6 * moved["random"] < moved["size"]


def test_every_selection_may_be_chosen_for_load_balancing():
    for name in SELECTIONS:
        assert Settings.from_conf({"dskype.balance": "auto", "dskype.balance.selection": name}).balance.selection == name
    with pytest.raises(IllegalArgumentException, match=re.escape(f"legal: {' | '.join(sorted(SELECTIONS))}")):
        Settings.from_conf({"dskype.balance.selection": "first"})


def test_coarser_sizes_are_still_enough(monkeypatch):
    monkeypatch.setattr(migration, "_MOST_STATES", 500)
    rng = np.random.default_rng(73)
    for _ in range(10):
        movable = apart(rng.uniform(0.1, 5, 20), 1000 * rng.integers(0, 40, 20))
        needed = float(movable.loads.sum()) / 3
        assert movable.loads[select_by_programme(movable, needed)].sum() >= needed * (1 - 1e-9)
        assert movable.loads[select_greedily(movable, needed)].sum() >= needed


def drifted(rng):
    """Return a sample whose messages and subscriptions crowd in a small part of where they were."""
    found = regional(rng, 60.0)
    lat = 20 + found.lat / 8
    boxes = found.boxes.copy()
    boxes[:, 1::2] += (lat - found.lat)[:, None]
    return found._replace(messages=found.messages._replace(lat=lat), lat=lat, boxes=boxes)


@pytest.mark.long
@pytest.mark.parametrize("selection", sorted(SELECTIONS))
def test_an_adjustment_restores_the_balance_after_a_drift(selection):
    options = {"granularity": 64, "costs": MODEL._asdict(), "theta": 64}
    before = HybridDistributor(6, options, HybridDistributor.learn(6, regional(np.random.default_rng(66), 60.0), options))
    now = drifted(np.random.default_rng(67))
    plan, found = before.adjusted(now, selection)
    after = HybridDistributor(6, options, plan)
    loads = after.loads()
    busiest = [float(measure(one, now).loads.max()) for one in (before, after)]
    held = [one._held_by_tasks(one, now) for one in (before, after)]
    moved = int(((1 - held[0]) * held[1]).sum())
    assert found.rounds > 0 and found.moved >= moved > 0 and busiest[1] < busiest[0]  # what moves twice counts twice
    assert loads.max() / loads.mean() < 1.5
    giving = before.giving_tasks(after)
    for i in range(0, now.n, 40):
        one = BooleanSubscription(now.boxes[i].tolist(), int(now.terms[now.offsets[i]]), None, None)
        tasks = before.place("s", one).tasks
        assert after.place("s", one).tasks == tasks or set(tasks) & set(giving)


@pytest.mark.long
def test_nothing_is_moved_where_loads_are_balanced():
    options = {"granularity": 64, "costs": MODEL._asdict(), "theta": 64}
    sample = regional(np.random.default_rng(66), 60.0)
    plan = HybridDistributor.learn(6, sample, options)
    found = HybridDistributor(6, {**options, "sigma": 3}, plan).adjusted(sample)[1]
    assert found.moved == found.rounds == 0


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_task_with_several_zones_updates_a_subscription_once():
    sample = regional(np.random.default_rng(66), 60.0)
    root = SampleLoads(AGrid(16, 16), sample, MODEL, False, sample.n).root()
    whole, left, right = CellBox(0, 0, 16, 16), CellBox(0, 0, 8, 16), CellBox(8, 0, 16, 16)

    def loads(*zones):
        return loads_of_zones(root, [Zone(cells, (Part(task, 1.0, (), ()),)) for cells, task in zones], 2)

    both = sum(bool(x0 < 8) and bool(x1 > 8) for x0, x1 in root.loads.boxes[:, 0, [0, 2]].tolist())
    apart_, together = loads((left, 0), (right, 1)), loads((left, 0), (right, 0))
    assert both > 10 and together[0] == pytest.approx(apart_.sum() - both * root.loads.update_us) and together[1] == 0
    assert together[0] == pytest.approx(loads((whole, 0))[0])


@pytest.mark.long
def test_of_the_least_loaded_tasks_the_one_with_most_in_common_takes():
    """So fewer subscriptions move, and fewer live on several tasks."""
    root = SampleLoads(AGrid(16, 16), regional(np.random.default_rng(66), 60.0), MODEL, False, 1).root()
    strips = [CellBox(x, 0, x + 2, 16) for x in range(0, 16, 2)]
    held = [part for task, cells in enumerate(strips) for part in migration._held(root, task, Zone(cells, (Part(task, 1.0, (), ()),)))]
    sets = [set(root.inside(cells).subscriptions.tolist()) for cells in strips]
    loads = np.array([2.0, 9.0, 7.5, 2.0, 1.0, 2.0, 2.0, 2.0])  # the third one has nearly as much
    expected = sorted([4, 0, 3, 5], key=lambda task: -len(sets[1] & sets[task]))
    assert migration._takers(held, loads, 1.3) == expected and len(sets[1] & sets[expected[0]]) > len(sets[1] & sets[expected[-1]])
    assert migration._takers(held, np.append(9.0, np.full(7, 7.5)), 1.3) == []


def test_tasks_are_matched_by_what_they_have_in_common():
    assert matched_tasks(np.array([[0, 9, 1], [0, 8, 7], [5, 0, 0]])).tolist() == [1, 2, 0]
    assert matched_tasks(np.zeros((3, 3), np.int64)).tolist() == [0, 1, 2]
