"""The gridt index against a plain search, and its changes by hand."""

import json

import numpy as np
import pytest

from dskype.distribution import distributor_class, make_distributor
from dskype.distribution.hybrid.distributor import HybridDistributor
from dskype.distribution.hybrid.gridt import BUCKETS, Part, Zone, buckets_of
from dskype.distribution.routing.interest import Interest
from dskype.distribution.routing.triggers import routing_terms
from dskype.topology.errors import IllegalArgumentException
from tests.distribution import worlds
from tests.distribution.test_distributors import assert_exact, questions, routed, world
from tests.naive import overlapping

OPTIONS = {"granularity": 10, "box": [-100, -40, 90, 60]}


def changed(rng, tasks, changes=12):
    """Return a distributor whose zones were split, divided and merged at random."""
    found = HybridDistributor(tasks, OPTIONS)
    for _ in range(changes):
        partition, task = int(rng.integers(len(found.partitions()))), int(rng.integers(tasks))
        change = rng.choice(["split", "divide", "divide", "merge"])
        try:
            plan = found.merge(partition, int(rng.integers(len(found.partitions())))) if change == "merge" else getattr(found, change)(partition, task)
        except IllegalArgumentException:
            continue
        zones = plan["zones"]
        for zone in zones:  # name some terms, as learning does
            if "parts" in zone and not any(part["terms"] for part in zone["parts"]):
                for term in rng.choice(300, 9, replace=False).tolist():
                    zone["parts"][int(rng.integers(len(zone["parts"])))]["terms"].append(term)
        found = HybridDistributor(tasks, OPTIONS, json.loads(json.dumps(plan)))
    return found


def plain_tasks(found, area, terms):
    """Return the tasks of terms in all zones that an area touches, with the terms for which each has it."""
    tasks, grid = {}, found.gridt.grid
    for number in grid.touching(area):
        zone = found.gridt.zones[number]
        for term in terms:
            own = [part.task for part in zone.parts if not zone.divided or term in part.terms]
            if not own:
                own = [part.task for part in zone.parts if int(buckets_of(np.array([term]))[0]) in part.buckets]
            assert len(own) == 1
            tasks.setdefault(own[0], set()).add(term)
    return tasks


@pytest.mark.parametrize("seed", range(4))
def test_tasks_are_those_of_a_plain_search(seed):
    rng = np.random.default_rng([seed, 51])
    found = changed(rng, (2, 5, 32, 70)[seed])
    points = worlds.messages(rng, 80, first=10)
    for messages in (points, worlds.with_areas(rng, points)):
        areas = messages.rectangles().tolist()
        expected = [plain_tasks(found, areas[i], messages.terms[messages.offsets[i] : messages.offsets[i + 1]].tolist()) for i in range(messages.n)]
        assert routed(found, messages) == [set(tasks) for tasks in expected]
    for number in range(30):
        subscription = worlds.boolean(rng, 300)
        assert found.place(f"s{number}", subscription).tasks == sorted(plain_tasks(found, subscription.bbox, routing_terms(subscription).tolist()))
    assert_exact(found, questions(rng, world(0), points, 10))


@pytest.mark.parametrize("seed", range(3))
def test_a_message_goes_to_a_task_only_for_a_term_that_the_task_has_there_and_needs(seed):
    rng = np.random.default_rng([seed, 52])
    tasks = (2, 5, 70)[seed]
    found, interest = changed(rng, tasks), Interest(tasks)
    pairs = np.unique(np.stack([rng.integers(0, tasks, 400), rng.integers(0, 300, 400)]), axis=1)
    interest.add(pairs[0].astype(np.int32), pairs[1])
    needed = set(zip(*pairs.tolist()))
    messages = worlds.messages(rng, 90, first=20)
    routes, before = found.wanted_tasks(messages, interest)
    withheld, expected, every = np.full(tasks, -1), set(), 0
    for i in range(messages.n):
        terms = messages.terms[messages.offsets[i] : messages.offsets[i + 1]].tolist()
        for task, own in plain_tasks(found, [messages.lon[i], messages.lat[i]] * 2, terms).items():
            every += 1
            if any((task, term) in needed for term in own):
                expected.add((i, task))
            else:
                withheld[task] = messages.position[i]
    assert set(zip(routes.rows.tolist(), routes.tasks.tolist())) == expected and len(routes.rows) == len(expected) < every == before
    assert (np.diff(routes.rows) >= 0).all() and routes.tasks.dtype == np.int32
    assert interest.withheld.tolist() == withheld.tolist()
    assert found.wanted_tasks(worlds.with_areas(rng, messages), interest) is None


def test_what_moves_is_on_a_task_that_gives():
    rng = np.random.default_rng(53)
    moved = 0
    for _ in range(6):
        one = changed(rng, 5)
        other = HybridDistributor(5, OPTIONS, one.split(0, 4) if one.gridt.zones[0].parts[0].task != 4 else one.split(0, 1))
        giving = one.giving_tasks(other)
        assert one.giving_tasks(one) == [] and one.giving_tasks(HybridDistributor(5)) is None
        for number in range(60):
            subscription = worlds.boolean(rng, 300)
            before, after = one.place(f"s{number}", subscription).tasks, other.place(f"s{number}", subscription).tasks
            assert before == after or set(before) & set(giving)
            moved += before != after
    assert moved


def test_changes_keep_the_load_and_cover_everything():
    rng = np.random.default_rng(54)
    for tasks in (2, 7):
        found = changed(rng, tasks, 30)
        assert found.loads().sum() == pytest.approx(tasks)
        assert sum(row["load"] for row in found.partitions()) == pytest.approx(tasks)
        assert sum(zone.cells.cells for zone in found.gridt.zones) == 100
    one = HybridDistributor(2, OPTIONS)
    divided = HybridDistributor(2, OPTIONS, one.divide(0, 1))
    shares = [row["share"] for row in divided.partitions() if "share" in row]
    assert shares == [0.5, 0.5]
    again = HybridDistributor(2, OPTIONS, divided.merge(0, 1))
    assert [part.task for zone in again.gridt.zones for part in zone.parts] == [0, 1], "both halves are one zone again"


def test_changes_that_make_no_sense_are_refused():
    found = HybridDistributor(3, OPTIONS)
    for change, given, text in [
        (found.split, (0, 0), "several cells or terms.*legal: 1, 2"),
        (found.split, (9, 0), "no such partition"),
        (found.divide, (0, 0), "divided with another task.*legal: 1, 2"),
        (found.merge, (1, 1), "the same task"),
    ]:
        with pytest.raises(IllegalArgumentException, match=text):
            change(*given)
    divided = HybridDistributor(3, OPTIONS, found.divide(0, 1))
    with pytest.raises(IllegalArgumentException, match="'split' divides terms further"):
        divided.divide(0, 2)


def test_damaged_plans_are_refused():
    plan = HybridDistributor(2, OPTIONS, HybridDistributor(2, OPTIONS).divide(0, 1)).plan()
    zone = plan["zones"][0]
    half = zone["parts"][0]
    for change in (
        {"zones": None},
        {"zones": []},
        {"zones": [{**zone, "cells": [0, 0, 1]}, *plan["zones"][1:]]},
        {"zones": plan["zones"][1:]},
        {"zones": [{**zone, "parts": []}, *plan["zones"][1:]]},
        {"zones": [{**zone, "parts": [half]}, *plan["zones"][1:]]},
        {"zones": [{**zone, "parts": [half, half]}, *plan["zones"][1:]]},
        {"zones": [{**zone, "parts": [{**half, "terms": [1.5]}, zone["parts"][1]]}, *plan["zones"][1:]]},
        {"zones": [{**zone, "parts": [{**half, "task": 2}, zone["parts"][1]]}, *plan["zones"][1:]]},
        {"grid": None},
        {"loads": [1.0]},
    ):
        with pytest.raises(IllegalArgumentException, match="plan is damaged"):
            HybridDistributor(2, OPTIONS, {**plan, **change})


def test_parts_of_the_same_task_are_one():
    everything = tuple(range(BUCKETS))
    whole = Zone((0, 0, 1, 1), ()).with_parts([Part(1, 2.0, (5,), everything[:9]), Part(1, 1.0, (3,), everything[9:])])
    assert whole.parts == (Part(1, 3.0),) and not whole.divided
    divided = Zone((0, 0, 1, 1), ()).with_parts([Part(1, 2.0, (5,), everything[:9]), Part(0, 4.0, (), everything[20:]), Part(1, 1.0, (3,), everything[9:20])])
    assert divided.parts == (Part(0, 4.0, (), everything[20:]), Part(1, 3.0, (3, 5), everything[:20]))


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("hybrid", {"sigma": 0.5}, "sigma.*a number from 1"),
        ("hybrid", {"delta": "x"}, "delta"),
        ("hybrid", {"theta": 1.5}, "theta"),
        ("hybrid", {"costs": {"check": 1}}, "costs.*check_us"),
        ("hybrid", {"costs": {"check_us": -1}}, "costs.*calibrate"),
        ("hybrid", {"matching": "all"}, r"checked \| product"),
        ("hybrid", {"subscriptions": 0}, "an integer from 1"),
        ("hybrid", {"granularity": 16_385}, "1 to 16384"),
        ("text-partitioning", {"method": "kd-tree"}, r"frequency \| hypergraph \| metric"),
        ("space-partitioning", {"method": "metric"}, r"grid \| kd-tree \| r-tree"),
    ],
)
def test_options_that_make_no_sense_are_refused(name, options, text):
    with pytest.raises(IllegalArgumentException, match=text):
        make_distributor(name, 6, options)


@pytest.mark.long
def test_partitioning_by_text_keeps_words_that_occur_together_together():
    found = {method: distributor_class("text-partitioning").learn(4, world(0), {"method": method}) for method in ("frequency", "metric", "hypergraph")}
    copies = {method: len(make_distributor("text-partitioning", 4, None, plan).message_tasks(world(0).messages).rows) for method, plan in found.items()}
    assert copies["metric"] < copies["frequency"] and copies["hypergraph"] < copies["frequency"], copies


def test_overlapping_areas_share_a_region():
    # What exactness rests on: degrees become cells by one rising function.
    rng, grid = np.random.default_rng(55), HybridDistributor(9, OPTIONS).gridt.grid
    areas = worlds.with_areas(rng, worlds.messages(rng, 60)).areas.tolist()
    for one in areas[:30]:
        for other in areas[30:]:
            assert not overlapping(one, other) or set(grid.touching(one)) & set(grid.touching(other))
