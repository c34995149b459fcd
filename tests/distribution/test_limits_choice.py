"""The parameters of hybrid partitioning are chosen by what their plans cost for messages and subscriptions that they were not learned from."""

from __future__ import annotations

import numpy as np
import pytest

from dskype.distribution import distributor_class, make_distributor
from dskype.distribution.agrid.grid import AGrid, CellBox
from dskype.distribution.hybrid import limits_choice
from dskype.distribution.hybrid.gridt import Part, Zone
from dskype.distribution.hybrid.gridt_distributor import sample_loads
from dskype.distribution.hybrid.kdt_tree import Limits, candidates, exchange_leaves, hybrid_partitions, zones_of
from dskype.distribution.hybrid.leaf_loads import Leaf, SampleLoads
from dskype.distribution.hybrid.limits_choice import Judged, chosen_partitions, judged
from dskype.distribution.hybrid.migration import loads_of_zones
from dskype.distribution.learning.sampling import halves
from tests.distribution.test_kdt_tree import MODEL, plain_load, regional, sample_of

TASKS, SIGMA, THETA = 6, 1.3, 48
OPTIONS = {"costs": MODEL._asdict(), "matching": "checked", "subscriptions": 5000}


def root_of(sample) -> Leaf:
    return sample_loads(AGrid(32, 32), sample, OPTIONS).root()


@pytest.fixture(scope="module")
def sample():
    return regional(np.random.default_rng(81), 60.0)


def test_halves_have_each_message_and_subscription_once(sample):
    one, other = halves(sample)
    for column in ("lat", "lon", "terms", "boxes"):
        both = np.concatenate([getattr(half, column) for half in (one, other)])
        assert sorted(both.ravel().tolist()) == sorted(getattr(sample, column).ravel().tolist())
    assert sorted([*one.messages.lat.tolist(), *other.messages.lat.tolist()]) == sorted(sample.messages.lat.tolist())
    assert one.offsets[-1] == len(one.terms) and abs(one.n - other.n) <= 1


def test_too_few_are_not_halved():
    small = sample_of(np.random.default_rng(82), 60, 200)
    assert all(half is small for half in halves(small))


def test_a_kd_tree_is_among_the_candidates(sample):
    root = root_of(sample)
    trees = [zones_of(hybrid_partitions(root, TASKS, limits), sample.messages.n) for limits in candidates(root, TASKS, SIGMA, THETA)]
    plan = distributor_class("space-partitioning").learn(TASKS, sample, {"granularity": 32, **OPTIONS})
    expected = sorted(zone.cells for zone in make_distributor("space-partitioning", TASKS, {"granularity": 32}, plan).gridt.zones)
    assert expected in [sorted(zone.cells for zone in zones) for zones in trees]


@pytest.mark.long
def test_plans_are_judged_by_what_the_other_half_costs(sample):
    limits = Limits(0.0, SIGMA, THETA, False)
    (found,) = judged(root_of, sample, TASKS, [limits])
    greatest, sums = [], []
    for own, unseen in (pair[::way] for draw in range(3) for pair in [halves(sample, draw)] for way in (1, -1)):
        zones = zones_of(hybrid_partitions(root_of(own), TASKS, limits), own.messages.n)
        plan = distributor_class("hybrid").planned(TASKS, 32, [-180.0, -90.0, 180.0, 90.0], zones)
        hybrid = make_distributor("hybrid", TASKS, {"granularity": 32, **OPTIONS}, plan)
        offsets, tasks, _ = hybrid.place_all(unseen)
        loads = hybrid.task_loads(unseen, offsets, tasks, None)
        greatest.append(loads.max())
        sums.append(loads.sum())
    assert (found.greatest, found.sum) == (pytest.approx(np.mean(greatest)), pytest.approx(np.mean(sums)))


@pytest.mark.parametrize(
    ("figures", "best"), [([(3.0, 9.0), (2.0, 9.0), (2.0, 8.0)], 2), ([(2.03, 7.0), (2.0, 9.0), (2.2, 1.0)], 0), ([(2.2, 1.0), (2.0, 9.0), (2.3, 2.0)], 1)]
)
def test_the_least_greatest_load_wins_and_of_level_ones_the_least_sum(sample, monkeypatch, figures, best):
    every = candidates(root_of(sample), TASKS, SIGMA, THETA)
    assert len(every) > 3 and len(set(every)) == len(every)
    figures = figures + [(4.0, 1.0)] * (len(every) - 3)
    far = 1e6  # no plan costs so much for what it was learned from
    monkeypatch.setattr(limits_choice, "judged", lambda *_: [Judged(limits, far * most, total) for limits, (most, total) in zip(every, figures)])
    root = root_of(sample)
    assert plain(chosen_partitions(root, root_of, sample, TASKS, SIGMA, THETA)) == plain(exchange_leaves(hybrid_partitions(root, TASKS, every[best])))


def plain(partitions):
    return [(partition.load, [node.leaf.cells for node in partition.nodes]) for partition in partitions]


@pytest.mark.long
def test_a_plan_that_costs_more_than_those_by_which_its_parameters_were_judged_is_not_taken(sample, monkeypatch):
    root = root_of(sample)
    every = candidates(root, TASKS, SIGMA, THETA)
    own = [max(partition.load for partition in hybrid_partitions(root, TASKS, limits)) / sample.messages.n for limits in every]
    figures = [(0.5 * own[0], 1.0), *((2.0 * most, 1.0) for most in own[1:])]
    monkeypatch.setattr(limits_choice, "judged", lambda *_: [Judged(limits, *pair) for limits, pair in zip(every, figures)])
    found = plain(chosen_partitions(root, root_of, sample, TASKS, SIGMA, THETA))
    first, *others = (plain(exchange_leaves(hybrid_partitions(root, TASKS, limits))) for limits in every)
    assert found != first and found in others


def test_a_threshold_that_is_given_is_used_as_it_is(sample):
    options = {"granularity": 32, **OPTIONS, "delta": 0.3}
    plan = distributor_class("hybrid").learn(TASKS, sample, options)
    zones = zones_of(exchange_leaves(hybrid_partitions(root_of(sample), TASKS, Limits(0.3, SIGMA, 8 * TASKS))), sample.messages.n)
    assert plan["zones"] == [zone.encode() for zone in zones]


def test_tasks_of_a_divided_zone_check_what_lives_there_for_other_terms_too():
    rng = np.random.default_rng(83)
    drawn = sample_of(rng, 300, 120, side_deg=90.0)
    loads = SampleLoads(AGrid(16, 16), drawn, MODEL, False, drawn.n)
    cells = CellBox(2, 1, 14, 15)
    leaf = loads.root().inside(cells)
    part_of = rng.integers(0, 3, len(leaf.items.loads))
    parts = tuple(Part(task, 1.0, *leaf.items.described(np.flatnonzero(part_of == task))) for task in range(3))
    found = loads_of_zones(loads.root(), [Zone(cells, parts)], 3)
    again = 0
    for task in range(3):
        mine = {int(term) for term in loads.known if part_of[leaf.items.of(np.array([term]))[0]] == task}
        subscriptions = [
            (set(drawn.terms[drawn.offsets[i] : drawn.offsets[i + 1]].tolist()), drawn.boxes[i].tolist())
            for i, (x0, y0, x1, y1) in enumerate(loads.boxes[:, 0].tolist())
            if x0 < cells.x1 and x1 > cells.x0 and y0 < cells.y1 and y1 > cells.y0
        ]
        living = [(terms, box) for terms, box in subscriptions if terms & mine]
        needed = set().union(*(terms & mine for terms, _ in living))
        expected = plain_load(loads, cells, mine)
        for j in range(drawn.messages.n):
            words = set(drawn.messages.terms[drawn.messages.offsets[j] : drawn.messages.offsets[j + 1]].tolist())
            lat, lon = drawn.messages.lat[j], drawn.messages.lon[j]
            if words & needed and cells.x0 <= loads.x[j] < cells.x1 and cells.y0 <= loads.y[j] < cells.y1:
                more = sum(len((terms - mine) & words) for terms, (west, south, east, north) in living if west <= lon <= east and south <= lat <= north)
                expected += MODEL.check_us * more
                again += more
        assert found[task] == pytest.approx(expected)
    assert again > 50, "subscriptions have several routing terms"
