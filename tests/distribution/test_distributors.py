"""The contract that every distributor keeps."""

import json
import os
import subprocess
import sys
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

from dskype.distribution import DISTRIBUTORS, distributor_class, distributor_of_plan, make_distributor, start_distributor
from dskype.distribution.methods.partitioned import Partitioned, measure
from dskype.distribution.routing.interest import Interest
from dskype.distribution.routing.triggers import routing_terms
from dskype.spouts.batch import MessageBatch
from dskype.spouts.expression import words
from dskype.spouts.settings import Settings
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.groupings import RowTasks
from tests import languages
from tests.distribution import worlds
from tests.distribution.worlds import EVERY
from tests.naive import holds, overlapping, satisfies

pytestmark = pytest.mark.long

every = pytest.mark.parametrize(("name", "options"), EVERY, ids=lambda x: x if isinstance(x, str) else "-".join(map(str, x.values())) or "default")
every_name = pytest.mark.parametrize("name", sorted(DISTRIBUTORS))
every_size = pytest.mark.parametrize("tasks", [1, 2, 5, 32])
PARTITIONED = {name: kind for name, kind in sorted(DISTRIBUTORS.items()) if issubclass(kind, Partitioned)}


@lru_cache
def world(seed):
    return worlds.sample(np.random.default_rng([seed, 1]))


def distributor(name, tasks, options=None, seed=0):
    """Return a distributor whose plan was written to a file and read back."""
    return make_distributor(name, tasks, options, json.loads(learned(name, tasks, json.dumps(options or None), seed)))


@cache
def learned(name, tasks, options, seed):
    """Return a plan as it is in a file; several tests need the same."""
    return json.dumps(distributor_class(name).learn(tasks, world(seed), json.loads(options)))


def routed(found, messages):
    """Check the form of the answer, and return the set of tasks of each message."""
    routes = found.message_tasks(messages)
    if routes is None:
        return [set(range(found.tasks))] * messages.n
    rows, tasks = routes
    assert rows.dtype == np.int64 and tasks.dtype == np.int32 and len(rows) == len(tasks)
    assert (np.diff(rows) >= 0).all() and len(np.unique(rows * found.tasks + tasks)) == len(rows) and (tasks >= 0).all() and (tasks < found.tasks).all()
    sets = [set() for _ in range(messages.n)]
    for row, task in zip(rows.tolist(), tasks.tolist()):
        sets[row].add(task)
    return sets


def assert_placed(found, placed, threshold):
    assert placed.tasks and placed.tasks == sorted(set(placed.tasks)) and all(type(t) is int and 0 <= t < found.tasks for t in placed.tasks)
    assert found.replicates or len(placed.tasks) == 1
    assert threshold is None or placed.guard < threshold or placed.guard == -np.inf


class Questions(NamedTuple):
    """Messages, and subscriptions with what the messages are to them: every distributor is asked the same."""

    messages: MessageBatch
    topk: list[Any]
    """(number, subscription, thresholds, (row, score) of each message with a common keyword)"""
    boolean: list[Any]
    """(subscription, rows of the messages that satisfy it)"""


def questions(rng, sample, messages, some):
    topk = []
    for i in rng.choice(sample.n, some, replace=False).tolist():
        scores = [(row, score) for row, score in enumerate(worlds.scores(sample, i, messages)) if score is not None]
        topk.append((i, worlds.subscription(sample, i), (None, float(sample.thresholds[i]), -np.inf, 0.0, *rng.random(1).tolist()), scores))
    return Questions(messages, topk, boolean_questions(rng, messages, some))


def boolean_questions(rng, messages, some):
    own, places = terms_of(messages), messages.rectangles().tolist()
    found = []
    for _ in range(some):
        one = worlds.boolean(rng, 300)
        found.append((one, [row for row in range(messages.n) if overlapping(one.bbox, places[row]) and satisfies(one.expression, own[row])]))
    return found


def terms_of(messages):
    """Return the set of terms of each message."""
    terms = messages.terms.tolist()
    return [set(terms[start:stop]) for start, stop in pairwise(messages.offsets.tolist())]


def assert_exact(found, asked):
    """Assert that messages reach a task of each placement, or cannot exceed its guard."""
    sets = routed(found, asked.messages)
    for i, at, thresholds, scores in asked.topk:
        for threshold in thresholds:
            placed = found.place(f"s{i}", at, threshold)
            assert_placed(found, placed, threshold)
            mine = set(placed.tasks)
            assert all(score <= placed.guard or sets[row] & mine for row, score in scores)
    for number, (subscription, wanted) in enumerate(asked.boolean):
        placed = found.place(f"b{number}", subscription)
        assert_placed(found, placed, None)
        assert placed.guard == -np.inf
        mine = set(placed.tasks)
        assert all(sets[row] & mine for row in wanted)


@cache
def questions_of_points(tasks):
    rng = np.random.default_rng([tasks, 2])
    messages = worlds.messages(rng, 150, first=400)
    return [questions(rng, world(0), messages, some) for some in (12, 6)]


@every
@every_size
def test_every_message_that_may_matter_reaches_a_task_of_the_placement(name, options, tasks):
    if options.get("n2", 1) != 1:
        return
    with_plan, without = questions_of_points(tasks)
    assert_exact(distributor(name, tasks, options), with_plan)
    assert_exact(make_distributor(name, tasks, options), without)


@cache
def questions_of_filters(tasks):
    """Return messages, and subscriptions of the whole language with the rows of the messages that they match."""
    rng = np.random.default_rng([tasks, 11])
    messages, records = worlds.described(rng, 120)
    messages = worlds.with_areas(rng, messages, 0.2)
    places, found = messages.rectangles().tolist(), []
    for _ in range(80):
        one, tree = worlds.filtered(rng)
        rows = [row for row, record in enumerate(records) if overlapping(one.bbox, places[row]) and holds(tree, record, languages.STOP_WORDS)]
        found.append((one, rows))
    return messages, found


@every
@every_size
def test_every_message_that_satisfies_a_filter_reaches_a_task_of_its_placement(name, options, tasks):
    if options.get("n2", 1) != 1:
        return
    messages, asked = questions_of_filters(tasks)
    assert sum(len(rows) for _, rows in asked) > 400
    for found in (distributor(name, tasks, options), make_distributor(name, tasks, options)):
        sets = routed(found, messages)
        for number, (subscription, wanted) in enumerate(asked):
            placed = found.place(f"b{number}", subscription)
            assert_placed(found, placed, None)
            assert all(sets[row] & set(placed.tasks) for row in wanted)


@cache
def questions_of_areas(tasks):
    rng = np.random.default_rng([tasks, 6])
    messages = worlds.with_areas(rng, worlds.messages(rng, 150, first=400))
    return [(boolean_questions(rng, messages, 40), questions(rng, world(0), messages, 6)) for _ in range(2)]


@every
@every_size
def test_every_area_that_meets_the_rectangle_of_a_subscription_reaches_a_task_of_its_placement(name, options, tasks):
    if options.get("n2", 1) != 1:
        return
    for found, (boolean, asked) in zip((distributor(name, tasks, options), make_distributor(name, tasks, options)), questions_of_areas(tasks)):
        messages = asked.messages
        sets = routed(found, messages)
        assert routed(found, messages.slice(30, 90)) == sets[30:90]
        for number, (subscription, wanted) in enumerate(boolean):
            mine = set(found.place(f"b{number}", subscription).tasks)
            assert all(sets[row] & mine for row in wanted)
        assert sum(len(wanted) for _, wanted in boolean) > 20
        assert_exact(found, asked)


@pytest.mark.parametrize(("name", "options"), [(name, options) for name, options in EVERY if distributor_class(name).summaries is not None])
@every_size
def test_interest_keeps_every_message_that_a_subscription_needs(name, options, tasks):
    rng = np.random.default_rng([tasks, 7])
    points = worlds.messages(rng, 120, first=400)
    terms_of_points = terms_of(points)
    for found in (distributor(name, tasks, options), make_distributor(name, tasks, options)):
        lives, interest = [], Interest(found.regions())
        for number in range(25):
            for subscription in (worlds.boolean(rng, 300), worlds.subscription(world(0), number)):
                placed = found.place(f"s{number}", subscription, None)
                regions, terms = found.regions_of(subscription), routing_terms(subscription)
                regions = np.array(placed.tasks if regions is None else regions, np.int32)
                assert len(set(regions.tolist())) == len(regions) and ((regions >= 0) & (regions < found.regions())).all()
                interest.add(np.repeat(regions, len(terms)), np.tile(terms, len(regions)))
                lives.append((subscription, placed, set(terms.tolist())))
        for messages in (points, worlds.with_areas(rng, points)):
            routes = found.message_tasks(messages)
            if routes is None:
                routes = RowTasks(np.repeat(np.arange(messages.n), tasks), np.tile(np.arange(tasks, dtype=np.int32), messages.n))
            in_regions, at = found.message_regions(messages, routes)
            assert at.dtype == np.int32 and len(at) == len(in_regions.rows) and routed_pairs(in_regions) == routed_pairs(routes)
            before, kept = routed_pairs(routes), routed_pairs(interest.filter(messages, in_regions, at))
            assert kept <= before
            for subscription, placed, terms in lives:
                needed = [row for row, own in enumerate(terms_of_points) if terms & own]
                for row in needed:  # it may match, so what the interest keeps from its tasks was not on the way to them
                    assert all((row, task) in kept for task in placed.tasks if (row, task) in before)
            assert len(kept) < len(before)


def routed_pairs(routes):
    """Return the pairs of a message and a task."""
    return set(zip(routes.rows.tolist(), routes.tasks.tolist()))


@every_name
@every_size
def test_words_that_the_sample_did_not_have_are_distributed_as_well(name, tasks):
    assert_exact(distributor(name, tasks), questions_of_other_words())


@cache
def questions_of_other_words():
    rng = np.random.default_rng(3)
    other = worlds.sample(rng, 100, 60, vocabulary=4000, unknown=0.5)
    return questions(rng, other, other.messages, 12)


@every_name
def test_a_batch_may_be_empty_or_a_part_of_another(name):
    found, messages = distributor(name, 5), world(0).messages
    assert routed(found, MessageBatch.empty()) == []
    assert routed(found, messages.slice(30, 90)) == routed(found, messages)[30:90]


@every_name
def test_many_are_placed_as_one_after_another(name):
    found, sample = distributor(name, 5), world(0)
    if not isinstance(found, Partitioned):
        return
    from zlib import crc32

    hashes = np.array([crc32(b"s%d" % i) for i in range(sample.n)])
    for thresholds in (None, sample.thresholds):
        offsets, tasks, guards = found.place_all(sample, thresholds, hashes)
        for i in range(sample.n):
            placed = found.place(f"s{i}", worlds.subscription(sample, i), None if thresholds is None else float(thresholds[i]))
            assert placed == (tasks[offsets[i] : offsets[i + 1]].tolist(), guards[i])


def decisions(name, tasks):
    """Return what a distributor decides, as text."""
    found, sample, rng = distributor(name, tasks, seed=7), world(8), np.random.default_rng(9)
    placed = [found.place(f"s{i}", worlds.subscription(sample, i), float(sample.thresholds[i])) for i in range(60)]
    placed += [found.place(f"b{i}", worlds.boolean(rng, 300)) for i in range(60)]
    return repr((placed, [sorted(s) for s in routed(found, sample.messages)], json.dumps(found.plan())))


@every_name
def test_a_plan_that_was_stored_decides_the_same(name):
    found, sample = distributor(name, 5), world(8)
    again = make_distributor(name, 5, plan=json.loads(json.dumps(found.plan())))
    assert again.plan() == found.plan() and routed(again, sample.messages) == routed(found, sample.messages)
    assert all(again.place(f"s{i}", worlds.subscription(sample, i), 0.4) == found.place(f"s{i}", worlds.subscription(sample, i), 0.4) for i in range(sample.n))


def test_decisions_are_the_same_in_every_process():
    code = (
        "import zlib; from tests.distribution.test_distributors import *\n"
        "for name in sorted(DISTRIBUTORS): print(name, zlib.crc32(decisions(name, 5).encode()))"
    )
    import zlib

    here = "".join(f"{name} {zlib.crc32(decisions(name, 5).encode())}\n" for name in sorted(DISTRIBUTORS))
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "1"}).stdout == here


@every
def test_loads_are_one_number_per_task(name, options):
    if options.get("n2", 1) == 1:
        loads = distributor(name, 6, options).loads()
        assert loads.shape == (6,) and loads.dtype == np.float64 and (loads >= 0).all()


# -- the paper's bounds ---------------------------------------------------------------------------


@every_size
def test_hashing_and_location_have_replication_1_and_communication_n(tasks):
    for name in ("hashing", "location"):
        found = measure(distributor(name, tasks), world(0))
        assert found.replication == 1 and found.communication == tasks


@every_size
@pytest.mark.parametrize("name", ["keyword", "prefix"])
def test_keyword_and_prefix_use_no_more_tasks_than_there_are_keywords(name, tasks):
    found, sample = distributor(name, tasks, {"method": "paper"}), world(0)
    for lengths, used in (
        (np.diff(sample.messages.offsets), list(map(len, routed(found, sample.messages)))),
        (np.diff(sample.offsets), np.diff(found.place_all(sample, sample.thresholds)[0])),
    ):
        assert (np.array(used) <= np.minimum(lengths, tasks)).all()


@every_size
def test_prefix_never_replicates_more_than_keyword(tasks):
    plan = distributor_class("keyword").learn(tasks, world(0))
    keyword, prefix = make_distributor("keyword", tasks, plan=plan), make_distributor("prefix", tasks, {"slack": 0}, {**plan, "distributor": "prefix"})
    sample = world(0)
    for i in range(sample.n):
        all_of_them = keyword.place(f"s{i}", worlds.subscription(sample, i)).tasks
        placed = [set(prefix.place(f"s{i}", worlds.subscription(sample, i), t).tasks) for t in (None, float(sample.thresholds[i]), -np.inf)]
        assert placed[0] <= placed[1] <= placed[2] == set(all_of_them)


def test_the_loose_prefix_contains_every_prefix_of_a_place():
    # Definition 4: the shortest prefix without which the textual similarity stays below (threshold - alpha * SSim) / (1 - alpha).
    rng, sample = np.random.default_rng(4), world(0)
    loose = distributor("prefix", 5, {"slack": 0}).prefixes(sample)
    for i in np.flatnonzero(np.isfinite(sample.thresholds)).tolist():
        weights = sample.weights[sample.offsets[i] : sample.offsets[i + 1]]
        for near in rng.random(5).tolist():
            wanted = (sample.thresholds[i] - sample.alpha[i] * near) / (1 - sample.alpha[i])
            exact = next(p for p in range(len(weights) + 1) if p == len(weights) or np.sqrt((weights[p:] ** 2).sum()) < wanted)
            assert exact <= loose[i]


# -- what is refused ------------------------------------------------------------------------------


def test_hashing_spreads_subscriptions_evenly():
    found = make_distributor("hashing", 8)
    counts = np.bincount([found.tasks_of_name(f"s{i}")[0] for i in range(8000)], minlength=8)
    assert counts.min() > 900 and counts.max() < 1100
    golden = {"s0": [6], "s1": [0], "lake-park": [7], "東京": [7]}  # CRC-32 modulo 8
    for id, tasks in golden.items():
        assert found.tasks_of_name(id) == found.place(id, worlds.subscription(world(0), 0)).tasks == tasks


@every_name
def test_the_id_alone_determines_tasks_with_hashing_only(name):
    found = distributor(name, 5)
    assert (found.tasks_of_name("s0") is None) is (name != "hashing")


def test_an_unknown_distributor_is_refused():
    with pytest.raises(IllegalArgumentException, match="given: 'hasing'.*legal: .*hashing.*did you mean hashing"):
        make_distributor("hasing", 2)
    with pytest.raises(IllegalArgumentException, match="takes no options"):
        make_distributor("hashing", 2, {"n": 1})


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("location", {"slack": 0.1}, "no such option.*given: 'slack'.*legal: method"),
        ("prefix", {"slac": 0.1}, "did you mean slack"),
        ("prefix", {"slack": 2}, "slack.*given: 2"),
        ("prefix", {"slack": True}, "slack.*given: True"),
        ("keyword", {"cost": "much"}, "product | work"),
        ("keyword", {"method": "best"}, "balanced | paper"),
        ("spatial-first", {"n1": 4}, r"given: '4 x 1'.*n1 \* n2 = 6"),
        ("keyword-first", {"n2": 0}, "n2.*1 or more"),
        ("keyword-first", {"keywords": "x"}, "prefix | keyword"),
        ("location", {"summaries": "yes"}, "summaries.*true | false"),
        ("agrid", {"summaries": 1}, "summaries.*true | false"),
    ],
)
def test_options_that_make_no_sense_are_refused(name, options, text):
    with pytest.raises(IllegalArgumentException, match=text):
        make_distributor(name, 6, options)


def test_the_levels_of_hybrids_follow_from_each_other():
    assert [(d.options["n1"], d.options["n2"]) for d in (make_distributor("spatial-first", 12, o) for o in ({}, {"n1": 2}, {"n2": 2}))] == [
        (3, 4),
        (2, 6),
        (6, 2),
    ]


@every_name
def test_a_plan_of_something_else_is_refused(name):
    plan = distributor_class(name).learn(4, world(0))
    for change in ({"v": 2}, {"distributor": "other"}, {"tasks": 5}):
        with pytest.raises(IllegalArgumentException, match="plan"):
            make_distributor(name, 4, plan={**plan, **change})


@pytest.mark.parametrize(
    "root",
    [
        None,
        {},
        {"tasks": [4]},
        {"tasks": []},
        {"tasks": [1, 1]},
        {"axis": "x", "at": 1},
        {"axis": "lat", "at": 1.0, "below": {"tasks": [0]}},
        {"ranges": []},
        {"ranges": [{"from": 1, "node": {"tasks": [0]}}]},
        {"ranges": [{"from": 0, "node": {"ranges": [{"from": 0, "node": {"tasks": [0]}}]}}]},
    ],
)
def test_a_damaged_plan_is_refused(root):
    plan = {"v": 1, "distributor": "prefix", "tasks": 4, "loads": [1.0] * 4, "root": root}
    with pytest.raises(IllegalArgumentException, match="plan is damaged"):
        make_distributor("prefix", 4, plan=plan)
    with pytest.raises(IllegalArgumentException, match="plan is damaged"):
        make_distributor("prefix", 4, plan={**plan, "root": {"tasks": [0], "load": 1.0, "marks": {}}, "loads": [1.0]})


def test_terms_of_expressions_cover_them():
    from dskype.distribution.routing.triggers import trigger_terms

    rng = np.random.default_rng(5)
    for _ in range(200):
        expression = worlds.expression(rng, 30, 3)
        covering = set(trigger_terms(expression))
        assert covering <= set(words(expression))
        for _ in range(20):
            own = {int(t) for t in rng.choice(30, rng.integers(1, 12), replace=False)}
            assert not satisfies(expression, own) or own & covering


def test_tasks_of_a_process_share_the_distributor_of_a_plan():
    settings = Settings.from_conf({"dskype.distributor": "agrid", "dskype.distributor.options": {"granularity": 8}})
    first = start_distributor(settings, 2, Vocabulary.empty())
    assert start_distributor(settings, 2, Vocabulary.empty()) is first
    assert start_distributor(settings, 3, Vocabulary.empty()) is not first
    plan = first.split(0, 1)
    other = distributor_of_plan(settings, 2, plan)
    assert other is not first and start_distributor(settings, 2, Vocabulary.empty(), json.loads(json.dumps(plan))) is other
    plan["partitions"].clear()
    assert len(other.partitions()) == 3 and len(other.plan()["partitions"]) == 3, "the caller may change its plan"
    with pytest.raises(IllegalArgumentException, match="the partitions are missing"):
        distributor_of_plan(settings, 2, plan)
