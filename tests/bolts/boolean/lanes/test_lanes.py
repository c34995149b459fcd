"""What only the lanes index can get wrong: groups, trees, frames, codes, pools, and its vector instructions."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dskype.bolts.boolean import make_index
from dskype.bolts.boolean.lanes import _kernels as kernels
from dskype.bolts.boolean.lanes.instruction_kernels import INSTRUCTIONS
from dskype.bolts.boolean.lanes.memory import GrowingRows
from dskype.bolts.boolean.lanes.sort_kernels import sort_slots
from dskype.topology.core.values import pack_state, unpack_state
from tests.bolts.boolean.lanes.other_instructions import dump
from tests.bolts.boolean.oracle import any_place_message, any_subscription, expected, messages_of, pairs, seeded

pytestmark = pytest.mark.long

WORLD = (-180.0, -90.0, 180.0, 90.0)


def slow_matches(boxes, offsets, terms, messages):
    """Return the pairs of a batch of points and conjunctions by numpy, for what is too much for the oracle."""
    found = []
    for i in range(messages.n):
        own = messages.terms[messages.offsets[i] : messages.offsets[i + 1]]
        there = np.add.reduceat(np.isin(terms, own), offsets[:-1]) == np.diff(offsets)
        x, y = messages.lon[i], messages.lat[i]
        inside = (boxes[:, 0] <= x) & (x <= boxes[:, 2]) & (boxes[:, 1] <= y) & (y <= boxes[:, 3])
        found += [(i, slot) for slot in np.flatnonzero(there & inside).tolist()]
    return found


def conjunctions(rng, n, words=30, extent_deg=2.0, centre=(0.0, 0.0), spread=(160.0, 80.0)):
    """Return (boxes, offsets, terms) of random conjunctions; low terms are rare."""
    x, y = (centre[i] + rng.uniform(-spread[i], spread[i], n) for i in (0, 1))
    size = rng.uniform(0, extent_deg, (n, 2))
    terms = [np.unique((words * rng.random(rng.integers(1, 6)) ** 0.5).astype(np.int64)) for _ in range(n)]
    offsets = np.cumsum([0, *map(len, terms)]).astype(np.int64)
    return np.stack([x - size[:, 0], y - size[:, 1], x + size[:, 0], y + size[:, 1]], axis=1), offsets, np.concatenate(terms)


def messages_near(rng, boxes, n, words=30, most=12):
    """Return points in rectangles, with random terms."""
    at = rng.integers(0, len(boxes), n)
    share = rng.choice([0.0, 0.3, 1.0], (n, 2), p=[0.1, 0.8, 0.1])
    lon, lat = (boxes[at, e] + share[:, e] * (boxes[at, e + 2] - boxes[at, e]) for e in (0, 1))
    return messages_of([(float(lat[i]), float(lon[i]), rng.integers(0, words, rng.integers(1, most)).tolist()) for i in range(n)])


@pytest.mark.parametrize("words", [1, 8, 400])
def test_long_lists_become_groups_and_trees(words):
    rng = np.random.default_rng(words)
    boxes, offsets, terms = conjunctions(rng, 12_000, words, extent_deg=12.0)
    index = make_index("lanes")
    for first in range(0, 12_000, 1000):
        index.insert_conjunctions(np.arange(first, first + 1000), boxes[first : first + 1000], offsets[first : first + 1001], terms)
    index._check()
    kinds = {int(word) >> 16 & 7 for term, word in index._rows["table"].array.tolist() if 0 <= term < words}
    assert kernels.TREE in kinds if words < 100 else {kernels.RECORDS, kernels.GROUP} <= kinds
    batch = messages_near(rng, boxes, 60, words)
    found = pairs(index.match(batch))
    assert found == slow_matches(boxes, offsets, terms, batch)
    assert len(found) > (60 if words < 100 else 0)


@pytest.mark.parametrize("spread", [(160.0, 80.0), (0.01, 0.01), (0.0, 0.0)])
def test_lists_shrink_again(spread):
    rng = np.random.default_rng(4)
    boxes, offsets, terms = conjunctions(rng, 6000, 3, extent_deg=spread[0] / 50, centre=(10.0, 50.0 if spread[1] < 80 else 0.0), spread=spread)
    index = make_index("lanes")
    index.insert_conjunctions(np.arange(6000), boxes, offsets, terms)
    batch = messages_near(rng, boxes, 12, 3)
    everything = slow_matches(boxes, offsets, terms, batch)
    order = rng.permutation(6000)
    for first in range(0, 6000, 500):
        index.remove_many(order[first : first + 500])
        index._check()
        left = set(order[first + 500 :].tolist())
        assert pairs(index.match(batch)) == [(i, slot) for i, slot in everything if slot in left]
    state = index._state
    assert len(index) == 0
    # Everything is free again: groups, nodes, codes.
    assert state[kernels.FREE_CODES] == state[kernels.CODES_END] - 1


def test_subscriptions_that_move_through_many_groups_keep_their_halves_and_triggers():
    rng, numbers = seeded(3), np.random.default_rng(3)
    live, index = {}, make_index("lanes")
    for step in range(30):
        for slot in numbers.permutation(900)[:150].tolist():
            if slot in live:
                index.remove(slot)
                del live[slot]
            else:
                box = any_subscription(rng)[0] if rng.random() < 0.5 else (170.0 + rng.random() * 9, -5.0, -170.0 - rng.random() * 9, 5.0)
                live[slot] = box, rng.choice([1, ["or", 1, 2], ["or", *range(1, 9)], ["and", 1, ["or", 2, 3]], ["and", *range(1, 9)]])
                index.insert(slot, *live[slot])
        if step % 5 == 0:
            index._check()
        rows = [((*any_place_message(rng)[0:-1], rng.sample(range(1, 10), rng.randrange(1, 9)))) for _ in range(4)]
        rows += [(0.0, 175.0 + rng.random() * 5, [1]), ((-179.0, -1.0, 179.0, 1.0), list(range(1, 9)))]
        assert pairs(index.match(messages_of(rows))) == expected(live, rows)


def test_short_lists_and_the_term_table_waste_little():
    rng = np.random.default_rng(17)
    n, words = 30_000, 6000
    terms = np.where(rng.random(n) < 0.5, rng.integers(0, words, n), rng.integers(0, words // 8, n))
    boxes = np.tile(np.array(WORLD), (n, 1))
    index = make_index("lanes")
    for first in range(0, n, 250):
        index.insert_conjunctions(np.arange(first, first + 250), boxes[:250], np.arange(251), terms[first : first + 250])
        if first % 5000 == 0:
            index._check()
    state = index._state
    lengths = np.bincount(terms)
    assert state[kernels.RECORDS_END] < 1.15 * lengths[lengths <= kernels.SHORT].sum()
    assert state[kernels.TABLE_END] < 1.35 * (1 << (state[kernels.PARTITION + 1 :: 2][: kernels.PARTITIONS] >> 32)).sum()
    order = rng.permutation(n)
    for first in range(0, n, 250):
        index.remove_many(order[first : first + 250])
        if first % 5000 == 0:
            index._check()
    assert len(index) == state[kernels.RECORDS_END] == 0


def test_more_keywords_than_there_are_codes():
    rng = np.random.default_rng(8)
    n = 70_000
    boxes = np.tile(np.array(WORLD), (n, 1))
    terms = np.stack([rng.integers(0, 100, n), 1000 + np.arange(n)], axis=1).ravel()
    index = make_index("lanes")
    index.insert_conjunctions(np.arange(n), boxes, np.arange(0, 2 * n + 1, 2), terms)
    assert index._state[kernels.CODES_END] == kernels.CODES_MOST
    at = [0, 1, 65_000, 65_533, 65_534, 65_535, 69_999]
    batch = messages_of([(1.0, 1.0, terms[2 * i : 2 * i + 2].tolist()) for i in at] + [(1.0, 1.0, [terms[2 * i].item(), 1000]) for i in at[1:]])
    assert pairs(index.match(batch))[: len(at)] == list(enumerate(at))
    index.remove_many(np.arange(0, 60_000))
    index.insert_conjunctions(np.arange(0, 60_000), boxes[:60_000], np.arange(0, 120_001, 2), terms + 100_000)
    batch = messages_of([(1.0, 1.0, (terms[2 * i : 2 * i + 2] + (100_000 if i < 60_000 else 0)).tolist()) for i in at])
    assert pairs(index.match(batch)) == list(enumerate(at))


def test_many_slots_of_one_message_are_sorted():
    rng = np.random.default_rng(5)
    for n, most, spare in [
        (1, 1, 1),
        (17, 5, 1),
        (100, 10**9, 4),
        (300, 2, 4),
        (5000, 10**6, 1),
        (5000, 10**6, 4),
        (5000, 3, 4),
        (999, 2**31 - 2, 4),
        (9999, 2**31 - 2, 4),
    ]:
        values = rng.integers(0, most + 1, n + 40).astype(np.int32)
        if n == 999:
            values[5:500] = 77
        wanted = values.copy()
        wanted[3 : n + 3] = np.sort(values[3 : n + 3])
        sort_slots(values, 3, n + 3, most, np.zeros(spare * (n + 16), np.int32), np.zeros((40, 4), np.int64))
        assert (values == wanted).all()


def test_long_messages_are_looked_up_in_a_bitmap():
    rng = np.random.default_rng(6)
    boxes, offsets, terms = conjunctions(rng, 4000, 2000, extent_deg=60.0)
    index = make_index("lanes")
    index.insert_conjunctions(np.arange(4000), boxes, offsets, terms)
    batch = messages_of(
        [(lat, lon, rng.integers(0, 2000, n).tolist()) for lat, lon, n in [(0.0, 0.0, 3000), (10.0, 10.0, 900), (20.0, -50.0, 20), (5.0, 5.0, 9000)]]
    )
    found = pairs(index.match(batch))
    assert found == slow_matches(boxes, offsets, terms, batch)
    assert len(found) > 400


def test_either_index_takes_over_a_state_of_the_other():
    rng = seeded(12)
    subscriptions = {slot: any_subscription(rng) for slot in range(0, 600, 2)}
    rows = [any_place_message(rng) for _ in range(50)]
    for name, other in (("lanes", "plain"), ("plain", "lanes")):
        index, heir = make_index(name), make_index(other)
        index.insert_many(list(subscriptions), np.array([box for box, _ in subscriptions.values()]), [e for _, e in subscriptions.values()])
        heir.restore(unpack_state(pack_state(index.snapshot())))
        heir._check()
        assert pairs(heir.match(messages_of(rows))) == expected(subscriptions, rows)
        for key, value in heir.snapshot().items():
            assert np.array_equal(value, index.snapshot()[key])


def test_a_large_result_is_the_callers():
    index = make_index("lanes")
    index.insert_conjunctions(np.arange(1000), np.tile(np.array(WORLD), (1000, 1)), np.arange(1001), np.ones(1000, np.int64))
    batch = messages_of([(1.0, 2.0, [1])] * 300)
    message, slot = index.match(batch)
    index.remove_many(np.arange(500))
    assert len(index.match(batch)[0]) == 150_000
    assert (message == np.repeat(np.arange(300), 1000)).all() and (slot == np.tile(np.arange(1000), 300)).all()


def test_a_part_of_a_large_result_is_the_callers_as_long_as_it_is_held():
    rng = np.random.default_rng(21)
    index = make_index("lanes")
    index.insert_conjunctions(np.arange(1000), np.tile(np.array(WORLD), (1000, 1)), np.arange(1001), np.ones(1000, np.int64))
    batch, held, addresses = messages_of([(1.0, 2.0, [1])] * 200), [], set()
    for turn in range(60):
        n = 1000 - 10 * turn
        message, slot = index.match(batch)
        if turn < 12:  # nothing is held from turn to turn
            addresses.add(slot.__array_interface__["data"][0])
        first = int(rng.integers(0, 100_000))
        part = slice(first, first + int(rng.integers(1, 90_000)))
        held.append((message[part] if turn % 2 else message, slot[part].view(np.uint32), part if turn % 2 else slice(None), part, n))
        del message, slot
        while len(held) > turn // 12:
            message, slot, rows, part, n = held.pop(int(rng.integers(0, len(held))))
            assert (message == np.repeat(np.arange(200), n)[rows]).all() and (slot == np.tile(np.arange(1000 - n, 1000), 200)[part]).all()
            del message, slot
        index.remove_many(np.arange(10 * turn, 10 * turn + 10))
    assert len(addresses) == 1, "arrays that nobody holds are used again"


@pytest.mark.parametrize("reserved_bytes", [1, 2_000_000, 1 << 30, 1 << 62])  # the last is more than there is
def test_rows_keep_what_they_hold_when_they_grow(reserved_bytes):
    rows = GrowingRows(np.int32, 3, reserved_bytes)
    rows.reserve(10)
    rows.array[:10] = 7
    for n in (100_000, 300_000, 2_000_000):
        rows.reserve(n)
        assert len(rows.array) >= n and (rows.array[:10] == 7).all() and not rows.array[n - 1].any()
    held = rows.array  # who holds the old array keeps it
    rows.reserve(4_000_000)
    rows.array[0] = 8
    assert held[0].tolist() == [7, 7, 7] and (rows.array[1:10] == 7).all()


@pytest.mark.lab
def test_processors_with_other_instructions_find_the_same(tmp_path):
    rng, numbers = seeded(13), np.random.default_rng(13)
    for words, extent_deg, most in ((8, 20.0, 12), (400, 60.0, 90), (2000, 60.0, 3000)):
        boxes, offsets, terms = conjunctions(numbers, 6000, words, extent_deg)
        index = make_index("lanes")
        index.insert_conjunctions(np.arange(6000), boxes, offsets, terms)
        index.remove_many(np.arange(0, 6000, 7))
        batch = messages_near(numbers, boxes, 40, words, most)
        dump(index, batch, tmp_path / f"{words}-points.npz")
        west, south = batch.lon - numbers.uniform(0, 3, 40), batch.lat - numbers.uniform(0, 3, 40)
        dump(index, batch._replace(areas=np.stack([west, south, batch.lon, batch.lat], axis=1)), tmp_path / f"{words}-areas.npz")
    index = make_index("lanes")
    subscriptions = [any_subscription(rng) for _ in range(1500)]
    index.insert_many(np.arange(1500), np.array([box for box, _ in subscriptions]), [expression for _, expression in subscriptions])
    dump(index, messages_of([any_place_message(rng) for _ in range(200)]), tmp_path / "expressions.npz")

    root = Path(__file__).parents[4]
    others = {"any": "+sse2"} | ({"avx2": "+avx2,+popcnt,+bmi"} if INSTRUCTIONS == "avx512" else {})
    for instructions, features in others.items():
        command = [sys.executable, "-m", "tests.bolts.boolean.lanes.other_instructions", instructions, str(tmp_path)]
        other = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
        done = subprocess.run(command, cwd=root, env=other, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        assert all(int(line.split()[1]) > 100 for line in done.stdout.splitlines()) and len(done.stdout.splitlines()) == 7, done.stdout
