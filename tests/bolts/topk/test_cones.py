"""The cone index with tiny lists and limits, where everything happens often."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dskype.bolts.topk.cones import ConeIndex
from dskype.bolts.topk.cones import _kernels as kernels
from dskype.bolts.topk.cones.index import ConePool
from dskype.deploy.lab.skype.taat import TaatIndex
from tests.bolts.test_skype import python
from tests.bolts.topk.test_indexes import expected, found, insert
from tests.bolts.topk.world import DIAGONAL_DEG, World, batch, exact_score

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (1, {"short": 1, "flat": 0, "least": 1}),
        (2, {"short": 3, "flat": 1, "least": 4}),
        (3, {"short": 8, "flat": 0, "least": 8}),
        (4, {"short": 2, "flat": 0, "least": 1000, "slack": 0.0, "drift": 0.0}),
        (5, {"short": 1, "flat": 4, "least": 2, "drift": 0.3}),
    ],
)
def test_cones_stay_exact_while_everything_changes(seed, options):
    rng, world = random.Random(seed), World(seed, terms=9, places=60)
    index = ConeIndex(DIAGONAL_DEG, **options)
    subscriptions: dict[int, dict] = {}
    thresholds: dict[int, float] = {}
    for step in range(40):
        free = [slot for slot in range(130) if slot not in subscriptions]
        new = sorted(rng.sample(free, min(len(free), rng.randint(0, 40))))
        fresh = [world.subscription() for _ in new]
        insert(index, new, fresh)
        index._check()
        subscriptions.update(zip(new, fresh))
        thresholds.update((slot, -np.inf) for slot in new)
        messages = world.messages(8)
        for _ in range(3 if subscriptions else 0):
            some = rng.sample(sorted(subscriptions), rng.randint(1, len(subscriptions)))
            for slot in some:
                score = exact_score(subscriptions[slot], rng.choice(messages))
                near = thresholds[slot] + rng.uniform(-0.02, 0.02)
                thresholds[slot] = rng.choice(
                    (-np.inf, np.inf, near, near, rng.random(), 2 * rng.random() - 1, 40.0, -9.0, score if score is not None else 0.0)
                )
            index.set_thresholds(np.array(some, np.int32), np.array([thresholds[slot] for slot in some]))
            index._check()
        assert found(index, batch(messages)) == expected(messages, subscriptions, thresholds)
        few = len(subscriptions) if step % 13 == 12 else min(len(subscriptions), rng.randint(0, 30))
        gone = sorted(rng.sample(sorted(subscriptions), few))
        index.remove(np.array(gone, np.int32))
        index._check()
        for slot in gone:
            del subscriptions[slot], thresholds[slot]
        assert found(index, batch(messages)) == expected(messages, subscriptions, thresholds)


def draw(rng: np.random.Generator, n: int, terms: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keywords of ``n`` documents, weights as with term frequencies of 1 to 3, of unit norm."""
    rows = [np.unique((terms * rng.random(rng.integers(1, most + 1)) ** 2).astype(np.int64)) for _ in range(n)]
    weights = [rng.choice((1.0, 1.0, 2.0, 3.0), len(row)) * (1.0 + np.log(terms / (1.0 + row))) for row in rows]
    weights = [w / np.sqrt((w * w).sum()) for w in weights]
    return np.cumsum([0, *map(len, rows)]).astype(np.int64), np.concatenate(rows), np.concatenate(weights)


@pytest.mark.parametrize("factor", [1e-6, 1.0, 37.5, 1e12])
def test_large_lists_find_what_term_at_a_time_finds_whatever_the_weights(factor):
    """Lists of thousands of postings, so that all levels of bounds are used; message weights need not be of unit norm."""
    rng, world = np.random.default_rng(7), World(7)
    n = 16000
    slots, alpha = np.arange(n, dtype=np.int32), rng.choice((0.0, 1.0, 0.5, *rng.random(7)), n)
    lon, lat = rng.normal(0.0, 8.0, n), rng.normal(0.0, 8.0, n)
    lon[::50] += 1000.0  # beyond what 16 bits can say
    keywords = draw(rng, n, 60, 7)
    offsets, terms, weights = draw(rng, 60, 60, 12)
    template = batch(world.messages(60))
    messages = template._replace(lon=rng.normal(0.0, 8.0, 60), lat=rng.normal(0.0, 8.0, 60))
    messages = messages._replace(offsets=offsets, terms=terms, weights=weights * factor)
    plain, cones = TaatIndex(DIAGONAL_DEG), ConeIndex(DIAGONAL_DEG)
    for index in (plain, cones):
        index.insert(slots, lon, lat, alpha, *keywords)
    for low, high in ((0.3, 1.2), (0.2, 1.1), (0.0, 0.5), (-2.5, 1.0), (0.7, 0.9)):
        some = np.sort(rng.choice(n, n // 2 if high < 1.2 else n, replace=False)).astype(np.int32)
        thresholds = rng.uniform(low, high, len(some)) * rng.choice((1.0, min(factor, 100.0)))
        for index in (plain, cones):
            index.set_thresholds(some, thresholds)
        assert pairs(cones, messages) == pairs(plain, messages)
    assert (cones._long[:, kernels.USED] > 4096).any()
    gone = np.sort(rng.choice(n, n // 2, replace=False)).astype(np.int32)
    for index in (plain, cones):
        index.remove(gone)
    assert pairs(cones, messages) == pairs(plain, messages)
    cones._check()


def test_what_is_added_is_arranged_in_runs_once_it_has_thresholds():
    """Subscriptions come and go some dozens at a time, as in a running topology; lists stay in order and exact."""
    rng, world = np.random.default_rng(9), World(9)
    plain, cones = TaatIndex(DIAGONAL_DEG), ConeIndex(DIAGONAL_DEG, flat=1)
    messages = batch(world.messages(30))
    offsets, terms, weights = draw(rng, 30, 8, 5)
    messages = messages._replace(offsets=offsets, terms=terms, weights=weights)
    moved = 0
    for low in range(0, 9000, 90):
        slots = np.arange(low, low + 90, dtype=np.int32)
        values = rng.normal(0.0, 8.0, 90), rng.normal(0.0, 8.0, 90), rng.random(90), *draw(rng, 90, 8, 5)
        gone = np.sort(rng.choice(low, 20, replace=False)).astype(np.int32) if low % 450 == 0 and low else np.zeros(0, np.int32)
        gone = gone[plain.table.live[gone]]
        thresholds = rng.uniform(0.3, 1.2, 90)
        for index in (plain, cones):
            index.insert(slots, *values)
            index.remove(gone)
            index.set_thresholds(slots, thresholds)
        bounded = np.flatnonzero(cones._groups.block[:, kernels.CAPACITY])
        used, base, fresh = cones._long[bounded][:, [kernels.USED, kernels.BASE, kernels.FRESH]].T
        assert (used - fresh < 2 * kernels.RUN).all()
        moved += int((fresh > base + 4 * kernels.RUN).sum())
        if low % 1800 == 0:
            cones._check()
            assert pairs(cones, messages) == pairs(plain, messages)
    cones._check()
    assert pairs(cones, messages) == pairs(plain, messages) and moved


def pairs(index, messages):
    return [column.tolist() for column in index.match(messages)]


def test_the_same_calls_lead_to_the_same_lists():
    states = []
    for _ in range(2):
        world, index = World(11), ConeIndex(DIAGONAL_DEG, short=2, flat=0, least=4)
        insert(index, list(range(90)), [world.subscription() for _ in range(90)])
        index.set_thresholds(np.arange(90, dtype=np.int32), np.linspace(0.1, 0.9, 90))
        index.remove(np.arange(0, 90, 3, dtype=np.int32))
        states.append([array[: pool.end].tolist() for pool in (index._lanes, index._groups) for array in pool.arrays.values()])
    assert states[0] == states[1]


def test_messages_outside_of_the_space_are_matched():
    world, index = World(12), ConeIndex(DIAGONAL_DEG, short=1, flat=0)
    subscriptions = dict(enumerate(world.subscription() for _ in range(60)))
    insert(index, list(subscriptions), list(subscriptions.values()))
    thresholds = dict.fromkeys(subscriptions, -3.0)
    index.set_thresholds(np.arange(60, dtype=np.int32), np.full(60, -3.0))
    messages = world.messages(12)
    for i, message in enumerate(messages):
        message["lon"] += 10.0**i
    assert found(index, batch(messages)) == expected(messages, subscriptions, thresholds)


def test_space_left_by_lists_that_grew_is_bounded():
    world, index = World(13, terms=40), ConeIndex(DIAGONAL_DEG)
    rng = random.Random(13)
    for i in range(0, 4000, 50):
        insert(index, list(range(i, i + 50)), [world.subscription() for _ in range(50)])
    postings = len(index.table.keywords(np.arange(4000))[1])
    assert index.structure_bytes < 60 * postings + 20000
    order = list(range(4000))
    rng.shuffle(order)
    for i in range(0, 4000, 100):
        index.remove(np.array(sorted(order[i : i + 100]), np.int32))
    index._check()
    assert not len(index.match(batch(world.messages(20))).slot)
    insert(index, [5], [world.subscription()])
    index._check()


def replace_all(n: int, at_once: int, terms: int, seed: int) -> tuple[int, float]:
    """Replace ``n`` subscriptions, some at a time, and compare with the plain index.

    :returns: how often those that were added to a list took lanes of those that went, and by how much the lists have grown.
    """
    rng, world = np.random.default_rng(seed), World(seed)
    plain, cones = TaatIndex(DIAGONAL_DEG), ConeIndex(DIAGONAL_DEG, flat=1)
    offsets, flat_terms, weights = draw(rng, 30, terms, 5)
    messages = batch(world.messages(30))._replace(offsets=offsets, terms=flat_terms, weights=weights)

    def enter(slots: np.ndarray) -> None:
        values = rng.normal(0.0, 8.0, len(slots)), rng.normal(0.0, 8.0, len(slots)), rng.random(len(slots)), *draw(rng, len(slots), terms, 5)
        thresholds = rng.uniform(0.3, 1.2, len(slots))
        for index in (plain, cones):
            index.insert(slots, *values)
            index.set_thresholds(slots, thresholds)

    for low in range(0, n, 100):
        enter(np.arange(low, min(low + 100, n), dtype=np.int32))
    lanes = cones._lanes.block[:, kernels.CAPACITY].sum()
    order = rng.permutation(n).astype(np.int32)
    moved = 0
    for low in range(0, n, at_once):
        slots = np.sort(order[low : low + at_once])
        for index in (plain, cones):
            index.remove(slots)
        before = cones._long[:, [kernels.BASE, kernels.USED, kernels.STALE]].copy()
        enter(slots)
        base, used, stale = cones._long[:, [kernels.BASE, kernels.USED, kernels.STALE]].T
        # Fewer lanes though cones were added, and not because all were arranged again.
        moved += int(((base == before[:, 0]) & (used < before[:, 1]) & (stale > before[:, 2])).sum())
        if low // at_once % 20 == 0:
            cones._check()
            assert pairs(cones, messages) == pairs(plain, messages)
    cones._check()
    assert pairs(cones, messages) == pairs(plain, messages)
    return moved, cones._lanes.block[:, kernels.CAPACITY].sum() / lanes


def test_replaced_subscriptions_take_the_lanes_of_those_that_went():
    """Lists stay about as large and exact while all of their subscriptions are replaced, some dozens at a time."""
    moved, growth = replace_all(6000, 60, 6, 10)
    assert moved and growth <= 1.2


def test_lanes_are_taken_over_without_compilation_too():
    code = "from tests.bolts.topk.test_cones import replace_all; print(replace_all(700, 60, 3, 10)[0])"
    assert int(python(code, NUMBA_DISABLE_JIT="1")) == replace_all(700, 60, 3, 10)[0] > 0


def test_runs_left_behind_are_used_again_and_rows_stay():
    rng = random.Random(14)
    pool = ConePool(0.25, row=(np.int32, (2,)))
    pool.block = np.zeros((30, 3), np.int64)
    rows = np.zeros(30, np.int64)
    for _ in range(400):
        some = np.array(sorted(rng.sample(range(30), rng.randint(1, 6))), np.int64)
        if rng.random() < 0.3:
            pool.release(some)
            rows[some] = 0
        else:
            rows[some] = np.maximum(rows[some], [rng.randint(1, 12) for _ in some])
            pool.reserve(some, rows[some])
        pool._check()
        for i, (start, _, capacity) in enumerate(pool.block.tolist()):
            assert capacity >= rows[i]
            if i in some:
                pool.arrays["row"][start : start + capacity] = i
            assert (pool.arrays["row"][start : start + capacity] == i).all()
    assert pool.end < 900
