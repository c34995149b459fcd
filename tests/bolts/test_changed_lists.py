"""Which lists are written when."""

import random

import numpy as np
import pytest

from dskype.bolts.changed_lists import ChangedLists
from dskype.topology.core.values import pack_state, unpack_state


def slots(*given):
    return np.array(given, np.int32)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("interval_ms", [0, 1, 100])
def test_lists_are_taken_as_a_plain_program_would_take_them(seed, interval_ms):
    rng = random.Random(seed)
    lists, changed, written_ms, now_ms = ChangedLists(interval_ms), set(), {}, 1_700_000_000_000
    for _ in range(200):
        now_ms += rng.choice((0, 1, 10, 30, 150))
        some = [rng.randrange(40) for _ in range(rng.choice((0, 1, 5, 20)))]
        lists.mark(slots(*some))
        changed |= set(some)
        if rng.random() < 0.2:
            gone = rng.randrange(60)
            lists.forget(gone)
            changed.discard(gone)
            written_ms.pop(gone, None)
        if rng.random() < 0.2:
            withdrawn = rng.sample(range(60), 5)
            lists.discard(slots(*withdrawn))
            changed -= set(withdrawn)
        if rng.random() < 0.2:
            state = unpack_state(pack_state(lists.snapshot()))
            lists = ChangedLists(interval_ms)
            lists.restore(state)
        held = dict.fromkeys(rng.sample(range(60), rng.choice((0, 3, 30))))
        due = sorted(s for s in changed - held.keys() if s not in written_ms or now_ms - written_ms[s] >= interval_ms)
        assert [s for s in range(60) if s in lists] == sorted(changed)
        taken = lists.pop_due(now_ms, held)
        assert taken.tolist() == due and taken.dtype == np.int32
        changed -= set(due)
        written_ms.update(dict.fromkeys(due, now_ms))


def test_a_list_is_written_at_once_and_then_an_interval_later():
    lists = ChangedLists(1000)
    lists.mark(slots(3))
    assert lists.pop_due(5_000).tolist() == [3]
    lists.mark(slots(3, 4))
    assert lists.pop_due(5_001).tolist() == [4]  # it was not written before
    assert lists.pop_due(5_999).tolist() == [] and lists.pop_due(6_000).tolist() == [3] and lists.pop_due(9_000).tolist() == []


def test_a_slot_that_is_used_again_waits_for_nothing():
    lists = ChangedLists(1000)
    lists.mark(slots(3))
    assert lists.pop_due(5_000).tolist() == [3]
    lists.forget(3)
    lists.mark(slots(3))
    assert lists.pop_due(5_001).tolist() == [3]


def written(lists, now_ms, *sizes):
    """Take what is due, and say that these lists, in the order of their slots, had so many bytes."""
    found = lists.pop_due(now_ms)
    lists.note_written(found, np.array(sizes[: len(found)], np.int64), now_ms)
    return found.tolist()


def test_a_long_list_is_written_less_often_in_proportion_to_its_bytes():
    lists = ChangedLists(1000, 1000)
    lists.mark(slots(3, 4))
    assert written(lists, 5_000, 8_400, 999) == [3, 4] and lists.postponed == 0
    assert lists.slowest(3) == [(3, 8_400)]
    lists.mark(slots(3, 4))
    assert written(lists, 6_000, 999) == [4] and written(lists, 13_399) == [] and lists.postponed == 0
    copy = ChangedLists(1000, 1000)
    copy.restore(unpack_state(pack_state(lists.snapshot())))
    for each in (lists, copy):
        assert written(each, 13_399) == [] and written(each, 13_400, 500) == [3] and each.postponed == 1
        each.mark(slots(3))
        assert written(each, 14_399) == [] and written(each, 14_400, 500) == [3]  # it is short again


def test_lists_that_are_too_many_bytes_together_wait_and_the_oldest_comes_first():
    lists = ChangedLists(1000, None, 1000)
    lists.mark(slots(0, 1, 2))
    assert written(lists, 5_000, 700, 700, 700) == [0, 1, 2]  # how long they are was not known
    lists.mark(slots(0, 1, 2))
    assert written(lists, 6_000) == [] and written(lists, 6_099) == []  # 2,100 bytes, less a burst of a second
    assert written(lists, 6_100, 700) == [0] and lists.postponed == 1
    lists.mark(slots(0))
    assert written(lists, 6_799) == [] and written(lists, 6_800, 700) == [1] and written(lists, 7_500, 700) == [2] and written(lists, 8_200, 700) == [0]
    assert lists.postponed == 4
    lists.mark(slots(1))
    assert written(lists, 60_000, 10) == [1] and lists.postponed == 4


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_no_list_starves_and_the_newest_state_is_always_written(seed):
    rng = random.Random(seed)
    lists, size = ChangedLists(100, 10_000, 20_000), [rng.randrange(100, 9_000) for _ in range(30)]
    now_ms, written_at, total = 1_000_000, dict.fromkeys(range(30), 1_000_000), 0
    while now_ms < 1_120_000:
        now_ms += rng.choice((1, 10, 50))
        lists.mark(slots(*rng.sample(range(30), 3)))
        for slot in (found := lists.pop_due(now_ms)).tolist():
            written_at[slot] = now_ms
        lists.note_written(found, np.array([size[slot] for slot in found.tolist()], np.int64), now_ms)
        total += sum(size[slot] for slot in found.tolist())
    assert now_ms - min(written_at.values()) < 30 * sum(size) // 20
    assert total <= 20_000 * 120 + 20_000 + sum(size)
    for _ in range(200):
        now_ms += 1000
        lists.note_written(found := lists.pop_due(now_ms), np.array([size[slot] for slot in found.tolist()], np.int64), now_ms)
    assert not any(slot in lists for slot in range(30))


def test_a_snapshot_of_an_earlier_version_has_no_bytes():
    lists = ChangedLists(1000, 1000)
    lists.restore([np.array([True, False]), np.array([5_000, 5_000])])
    assert written(lists, 5_999) == [] and written(lists, 6_000, 50) == [0]
