"""Pending trees of a spout: what a journal entry holds is what was pending, in the same order."""

import random

import pytest

from dskype.topology.core.pending_trees import PendingTrees
from dskype.topology.core.values import pack_state, unpack_state


def add(trees, root, message_id, stream="default", time_ms=1):
    tree = trees.newer[root] = (root, message_id, stream, time_ms)
    trees.added.append(tree)


def restored(parts):
    trees = PendingTrees(lambda: None)
    add(trees, 99, "of an earlier attempt")
    trees.restore(unpack_state(pack_state(parts)))
    return trees


def content(trees):
    return list(trees.newer.items()), list(trees.older.items())


@pytest.mark.parametrize("seed", range(4))
def test_every_entry_holds_all_trees_in_order(seed):
    rng = random.Random(seed)
    trees, last, longest = PendingTrees(pytest.fail), 0, 0
    for round in range(400):
        for _ in range(rng.randrange(12)):
            last += 1
            add(trees, last, rng.choice([last, str(last), (last, b"x", None), [last]]), rng.choice(["default", "default", "other"]), round)
        known = [*trees.newer, *trees.older]
        list(trees.take([*rng.sample(known, rng.randrange(min(12, len(known) + 1))), last + 1, last + 1]))
        if rng.random() < 0.05:
            trees.renew(rng.sample(known, len(known) // 3))
        if rng.random() < 0.03:
            expected = list(trees.older.values())
            assert trees.rotate() == expected
        if rng.random() < 0.8:
            parts = trees.snapshot()
            longest = max(longest, len(parts))
            assert content(restored(parts)) == content(trees)
            assert trees.snapshot() == parts, "an entry without changes between repeats the last one"
            if rng.random() < 0.1:
                trees = restored(parts)
                trees._on_unpackable = pytest.fail
    assert longest > 3, "some entries hold changes"


def test_many_pending_trees_cost_what_changes():
    trees = PendingTrees(pytest.fail)
    for root in range(1, 10_001):
        add(trees, root, root)
    (whole,) = trees.snapshot()
    written = 0
    for root in range(10_001, 20_001, 100):
        for number in range(root, root + 100):
            add(trees, number, number)
        assert len(list(trees.take(range(root - 10_000, root - 9_900)))) == 100
        parts = trees.snapshot()
        written += len(parts[-1])
        assert sum(map(len, parts)) < 3 * len(whole)
    assert written < 4 * len(whole), "all trees were packed anew only as often as they had changed"
    assert content(restored(parts)) == content(trees)


def test_trees_whose_message_ids_cannot_be_written_are_left_out():
    reports = []
    trees = PendingTrees(lambda: reports.append(1))
    add(trees, 1, "good")
    add(trees, 2, object())
    assert content(restored(trees.snapshot())) == ([(1, (1, "good", "default", 1))], [])
    for root in range(3, 9):
        add(trees, root, object() if root % 2 else root)
    assert [root for root, _ in content(restored(trees.snapshot()))[0]] == [1, 4, 6, 8]
    assert len(reports) >= 2
    assert [tree[0] for tree in trees.take([2, 3])] == [2, 3], "this process knows them"


def test_rows_of_earlier_versions_are_read():
    trees = PendingTrees(pytest.fail)
    trees.restore_rows([[5, "a", "default", 7]], [[6, (1, 2), "other", 3], [4, None, "default", 2]])
    assert content(trees) == ([(5, (5, "a", "default", 7))], [(6, (6, (1, 2), "other", 3)), (4, (4, None, "default", 2))])
    assert content(restored(trees.snapshot())) == content(trees)
