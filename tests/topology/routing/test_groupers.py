import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dskype.topology import (
    AllGrouping,
    CustomGrouping,
    CustomStreamGrouping,
    DirectGrouping,
    Fields,
    FieldsGrouping,
    GlobalGrouping,
    IllegalArgumentException,
    IllegalStateException,
    LocalOrShuffleGrouping,
    NoneGrouping,
    PartialKeyGrouping,
    RowTasks,
    ShuffleGrouping,
)
from dskype.topology.routing import groupers
from dskype.topology.routing.groupers import build_grouper, grouping_seed
from dskype.topology.routing.java_hash import deep_hash

TARGETS = [11, 12, 13, 14, 15]
FIELDS = Fields("word", "count")


def grouper(spec, targets=TARGETS, seed=3, **options):
    options = {"producer_task": 1, "stream": ("spout", "default"), "out_fields": FIELDS, **options}
    return build_grouper(spec, target_tasks=targets, seed=seed, **options)


def choices(g, rows):
    return [list(g.choose(row)) for row in rows]


ROWS = [(f"w{i % 37}", i % 11) for i in range(1000)]
COLUMNS = [pa.array([r[0] for r in ROWS]), np.array([r[1] for r in ROWS])]

STATEFUL = [ShuffleGrouping(), NoneGrouping(), LocalOrShuffleGrouping(), PartialKeyGrouping(Fields("word"))]
SINGLE_TASK = [
    *STATEFUL,
    FieldsGrouping(Fields("word")),
    FieldsGrouping(Fields("count")),
    FieldsGrouping(Fields("count", "word")),
    FieldsGrouping(Fields()),
    GlobalGrouping(),
    PartialKeyGrouping(Fields("count", "word")),
]


# --- what every grouping must do --------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SINGLE_TASK, ids=str)
@pytest.mark.parametrize("targets", [[4], TARGETS, list(range(30, 38))], ids=len)
def test_a_batch_gets_the_same_tasks_and_leaves_the_same_state_as_single_tuples(spec, targets):
    one, many = grouper(spec, targets), grouper(spec, targets)
    expected = choices(one, ROWS)
    got = np.concatenate([many.choose_batch([c[a:b] for c in COLUMNS], b - a) for a, b in [(0, 0), (0, 3), (3, 700), (700, 1000)]])
    assert got.dtype == np.int32
    assert [[task] for task in got.tolist()] == expected
    assert many.snapshot() == one.snapshot()
    assert choices(one, ROWS[:9]) == choices(many, ROWS[:9])


@pytest.mark.parametrize("spec", SINGLE_TASK, ids=str)
def test_a_restored_grouper_goes_on_as_the_old_one_would_have(spec):
    old = grouper(spec)
    choices(old, ROWS[:123])
    state = json.loads(json.dumps(old.snapshot()))
    new = grouper(spec)
    if state is not None:
        new.restore(state)
    assert choices(new, ROWS) == choices(old, ROWS)


@pytest.mark.parametrize("spec", SINGLE_TASK, ids=str)
def test_targets_may_come_unsorted(spec):
    assert choices(grouper(spec, [15, 11, 14, 12, 13]), ROWS) == choices(grouper(spec), ROWS)


@pytest.mark.long
def test_choices_are_the_same_in_another_process_with_another_hash_salt():
    code = (
        "from tests.topology.routing.test_groupers import *\n"
        "print([choices(grouper(s, seed=grouping_seed('t-1-1', 4, 'b', 'default')), ROWS[:50]) for s in SINGLE_TASK])"
    )
    root = Path(__file__).parents[3]
    runs = {
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": salt}, cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout
        for salt in ("1", "2")
    }
    here = [choices(grouper(s, seed=grouping_seed("t-1-1", 4, "b", "default")), ROWS[:50]) for s in SINGLE_TASK]
    assert runs == {f"{here}\n"}


def test_the_seed_depends_on_topology_producer_consumer_and_stream():
    args = [("t", 1, "b", "s"), ("u", 1, "b", "s"), ("t", 2, "b", "s"), ("t", 1, "c", "s"), ("t", 1, "b", "r"), ("t", 1, "bs", "")]
    assert len({grouping_seed(*a) for a in args}) == len(args)
    assert grouping_seed("t", 1, "b", "s") == grouping_seed("t", 1, "b", "s")
    assert 0 <= grouping_seed("t", 1, "b", "s") < 2**64


# --- one by one -------------------------------------------------------------------------------------------------------


def test_shuffle_gives_every_task_the_same_count_over_whole_rounds():
    g = grouper(ShuffleGrouping())
    rounds = choices(g, [()] * 50)
    assert Counter(task for (task,) in rounds) == dict.fromkeys(TARGETS, 10)
    assert rounds[:5] == rounds[5:10]


def test_shuffle_rings_differ_between_producers():
    rings = {tuple(t for (t,) in choices(grouper(ShuffleGrouping(), seed=s), [()] * 5)) for s in range(40)}
    assert len(rings) > 20
    assert {ring[0] for ring in rings} == set(TARGETS)


def test_fields_grouping_equals_storms_formula():
    g = grouper(FieldsGrouping(Fields("count", "word")))
    for word, count in ROWS[:40]:
        assert g.choose((word, count)) == [TARGETS[deep_hash([count, word]) % 5]]


@pytest.mark.parametrize("value", [1, True, 1.0, 0, False, 0.0, -0.0, None, "1", b"1", (1,), (True,), float("nan"), 2**70])
def test_values_that_python_finds_equal_are_kept_apart_by_their_type(value):
    for spec in (FieldsGrouping(Fields("word")), FieldsGrouping(Fields("word", "count")), PartialKeyGrouping(Fields("word"))):
        crowded, alone = grouper(spec, range(97)), grouper(spec, range(97))
        for other in (1, True, 1.0, 0, False, 0.0, -0.0, None, "1", b"1", (1,), (True,)):
            crowded.choose((other, 0))
        if isinstance(spec, FieldsGrouping):
            assert crowded.choose((value, 0)) == alone.choose((value, 0)) == [deep_hash([value, 0][: len(spec.fields)]) % 97]
        else:
            assert crowded.choose((value, 0))[0] in {alone.choose((value, 0))[0] for _ in range(2)}


def test_the_memory_of_keys_is_bounded(monkeypatch):
    monkeypatch.setattr(groupers, "_CACHE_LIMIT", 50)
    g = grouper(FieldsGrouping(Fields("word")))
    for i in range(120):
        assert g.choose((i, 0)) == [TARGETS[deep_hash([i]) % 5]]
        assert len(g._caches[int]) <= 50
    assert g.choose((5, 0)) == [TARGETS[deep_hash([5]) % 5]]


def test_fields_grouping_on_an_unknown_field_is_refused():
    with pytest.raises(IllegalArgumentException, match="^nope does not exist"):
        grouper(FieldsGrouping(Fields("nope")))


def test_fields_grouping_without_fields_is_global():
    assert grouper(FieldsGrouping(Fields())).choose(("x", 1)) == [11]


def test_global_takes_the_lowest_task():
    assert grouper(GlobalGrouping(), [9, 3, 5]).choose(()) == [3]


def test_all_gives_everything_to_every_task():
    g = grouper(AllGrouping())
    assert g.choose(("x", 1)) == g.all_tasks == TARGETS
    assert g.choose_batch(COLUMNS, 1000) is None


def test_none_draws_every_task_about_equally_often():
    drawn = Counter(grouper(NoneGrouping()).choose_batch(COLUMNS, 50_000).tolist())
    assert set(drawn) == set(TARGETS)
    assert all(abs(count - 10_000) < 500 for count in drawn.values())


def test_direct_refuses_a_regular_emit():
    g = grouper(DirectGrouping())
    assert g.is_direct and g.all_tasks == TARGETS
    for emit in (lambda: g.choose(("x", 1)), lambda: g.choose_batch(COLUMNS, 1000)):
        with pytest.raises(IllegalArgumentException, match="Cannot do regular emit to direct stream"):
            emit()


def test_local_or_shuffle_stays_in_the_worker_if_it_has_targets():
    spec = LocalOrShuffleGrouping()
    assert Counter(t for (t,) in choices(grouper(spec, local_tasks=[1, 12, 14, 99]), [()] * 10)) == {12: 5, 14: 5}
    assert set(grouper(spec, local_tasks=[1, 99]).choose_batch([], 10).tolist()) == set(TARGETS)


def test_local_or_shuffle_takes_the_position_of_a_longer_ring_after_a_rebalance():
    old = grouper(LocalOrShuffleGrouping())
    choices(old, [()] * 4)
    new = grouper(LocalOrShuffleGrouping(), local_tasks=[12, 14])
    new.restore(old.snapshot())
    assert {t for (t,) in choices(new, [()] * 2)} == {12, 14}


def test_partial_key_uses_two_tasks_per_key_and_balances_them():
    g = grouper(PartialKeyGrouping(Fields("word")))
    used = {w: Counter(g.choose((f"w{w}", 0))[0] for _ in range(100)) for w in range(20)}
    assert all(len(tasks) <= 2 for tasks in used.values())
    skewed = grouper(PartialKeyGrouping(Fields("word")))
    hot = Counter(t for (t,) in choices(skewed, [("hot", 0)] * 1000))
    assert sorted(hot.values()) == [500, 500]


def test_partial_key_balances_what_the_producer_has_sent_over_all_keys():
    rng = random.Random(5)
    rows = [(f"w{min(int(rng.expovariate(0.3)), 60)}", 0) for _ in range(5000)]
    counts = Counter(t for (t,) in choices(grouper(PartialKeyGrouping(Fields("word"))), rows))
    by_fields = Counter(t for (t,) in choices(grouper(FieldsGrouping(Fields("word"))), rows))
    assert max(counts.values()) < max(by_fields.values())


def test_a_grouping_without_targets_is_refused_unless_it_needs_none():
    with pytest.raises(IllegalStateException, match="has no target tasks"):
        grouper(ShuffleGrouping(), [])
    assert grouper(AllGrouping(), []).choose(()) == []


def test_something_that_is_no_grouping_is_refused():
    with pytest.raises(IllegalArgumentException, match="Not a grouping. given: 'shuffle'"):
        grouper("shuffle")


# --- custom -----------------------------------------------------------------------------------------------------------


class ByLength(CustomStreamGrouping):
    """Chooses as many tasks as the word has letters, beginning with the next task at each call."""

    def __init__(self):
        self.calls = 0

    def prepare(self, context, stream, target_tasks):
        self.prepared = (context, stream, target_tasks)
        self.tasks = target_tasks

    def choose_tasks(self, task_id, values):
        assert task_id == 1
        self.calls += 1
        return [self.tasks[(self.calls + i) % len(self.tasks)] for i in range(len(values[0]))]

    def snapshot(self):
        return {"calls": self.calls}

    def restore(self, state):
        self.calls = state["calls"]


class Whole(ByLength):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def choose_tasks(self, task_id, values):
        return self.answer

    def choose_tasks_batch(self, task_id, columns, n):
        return self.answer


def test_a_custom_grouping_is_prepared_on_a_copy_and_may_choose_several_tasks_or_none():
    mine = ByLength()
    g = grouper(CustomGrouping(mine), context="the context")
    assert choices(g, [("ab", 0), ("", 0), ("abc", 0)]) == [[12, 13], [], [14, 15, 11]]
    assert not hasattr(mine, "tasks")
    assert g._grouping.prepared == ("the context", ("spout", "default"), TARGETS)


def test_a_custom_grouping_in_batches_equals_single_tuples():
    words = ["ab", "", "c", "def"]
    one, many = grouper(CustomGrouping(ByLength())), grouper(CustomGrouping(ByLength()))
    expected = choices(one, [(w, 0) for w in words])
    copies = many.choose_batch([pa.array(words), np.zeros(4)], 4)
    assert isinstance(copies, RowTasks)
    assert copies.rows.tolist() == [0, 0, 2, 3, 3, 3]
    assert copies.tasks.tolist() == [task for tasks in expected for task in tasks]
    assert many.snapshot() == one.snapshot() == {"calls": 4}
    many.restore({"calls": 0})
    assert many.choose(("a", 0)) == [12]


def test_one_task_per_row_comes_back_as_a_plain_array():
    g = grouper(CustomGrouping(ByLength()))
    assert g.choose_batch([["a", "b"], [0, 0]], 2).tolist() == [12, 13]


@pytest.mark.parametrize("answer", [[12, 11], np.array([12, 11]), (np.array([0, 1]), np.array([12, 11]))], ids=["list", "array", "rows"])
def test_a_custom_batch_may_answer_with_one_task_per_row(answer):
    assert grouper(CustomGrouping(Whole(answer))).choose_batch([[]], 2).tolist() == [12, 11]


def test_a_custom_batch_may_answer_none_for_everyone():
    assert grouper(CustomGrouping(Whole(None))).choose_batch([[]], 2) is None


@pytest.mark.parametrize("answer", [[12], [12, 99], ([0], [12, 13]), ([0, 0], [12, 99])])
def test_a_custom_grouping_that_chooses_foreign_tasks_or_too_few_is_refused(answer):
    with pytest.raises(IllegalArgumentException, match=r"custom grouping Whole chose .*legal: \[11, 12, 13, 14, 15\]"):
        grouper(CustomGrouping(Whole(answer))).choose_batch([[]], 2)


def test_a_single_foreign_task_is_refused():
    with pytest.raises(IllegalArgumentException, match=r"chose tasks that are not its targets. given: \[99\]"):
        grouper(CustomGrouping(Whole([99]))).choose(("a", 1))


def test_groupings_show_storms_names():
    specs = [*SINGLE_TASK[:4], FieldsGrouping(Fields("a", "b")), AllGrouping(), GlobalGrouping(), DirectGrouping(), CustomGrouping(ByLength())]
    assert [str(s) for s in specs] == [
        "shuffle", "none", "local_or_shuffle", "partial_key(word)", "fields(a, b)", "all", "global", "direct", "custom(ByLength)",
    ]  # fmt: skip
