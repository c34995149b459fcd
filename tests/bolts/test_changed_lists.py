"""Which lists are written when."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.changed_lists import ChangedLists, list_bytes
from dskype.spouts.settings import ENTRY_BYTES, Settings
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


def test_a_long_list_waits_for_its_bytes_and_a_short_one_for_the_interval() -> None:
    lists, slots = ChangedLists(1000, 10_000), np.array([0, 1, 2])
    lists.mark(slots)
    assert lists.pop_due(5_000).tolist() == [0, 1, 2]
    assert lists.charge(slots, np.array([100, 10_000, 35_001]), 5_000) == 1
    lists.mark(slots)
    restored = ChangedLists(1000, 10_000)
    restored.restore(lists.snapshot())
    assert restored.pop_due(5_999).tolist() == []
    assert restored.pop_due(6_000).tolist() == [0, 1]
    assert restored.pop_due(8_500).tolist() == []
    assert restored.pop_due(8_501).tolist() == [2]


def test_the_bytes_of_lists_are_those_of_their_ids_and_of_what_is_beside_them() -> None:
    ids = ['"ab"', "17", '"cdefg"']
    for given in (ids, pa.array(ids)):
        assert list_bytes(np.array([0, 2, 2, 3]), given).tolist() == [6 + 2 * ENTRY_BYTES, 0, 7 + ENTRY_BYTES]


def test_the_longest_pause_is_that_of_the_longest_list() -> None:
    assert Settings.from_conf({}).topk_pause_max_ms == 1000, "with the defaults every list is written each second"
    assert Settings.from_conf({"dskype.k.max": 1000, "dskype.id.max.bytes": 512}).topk_pause_max_ms == 8545
