"""What every subscription index promises, and the arrays below them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dskype.bolts.arrays import BlockPool
from dskype.bolts.topk import _kernels as kernels
from dskype.bolts.topk.base import SubscriptionIndex
from dskype.bolts.topk.engine import INDEXES
from dskype.bolts.topk.table import TermIds
from dskype.spouts.batch import MessageBatch
from dskype.topology.core.values import pack_state, unpack_state
from tests.bolts.topk.world import DIAGONAL_DEG, World, batch, columns, exact_score, weigh

pytestmark = pytest.mark.long


def insert(index: SubscriptionIndex, slots: list[int], subscriptions: list[dict]) -> None:
    _, alpha, lat, lon, offsets, terms, weights = columns(subscriptions)
    index.insert(np.array(slots, np.int32), lon, lat, alpha, offsets, terms, weights)


def expected(messages: list[dict], subscriptions: dict[int, dict], thresholds: dict[int, float]) -> list[tuple[int, int, float]]:
    """Every pair that must be found, with its score to the last bit."""
    return [
        (row, slot, score)
        for row, message in enumerate(messages)
        for slot, subscription in sorted(subscriptions.items())
        if (score := exact_score(subscription, message)) is not None and score >= thresholds[slot]
    ]


def found(index: SubscriptionIndex, messages: MessageBatch) -> list[tuple[int, int, float]]:
    matches = index.match(messages)
    assert [a.dtype for a in matches] == [np.int32, np.int32, np.float64]
    return list(zip(*(a.tolist() for a in matches)))


@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_index_finds_exactly_what_reaches_its_threshold(name, seed):
    rng, world = random.Random(seed), World(seed, terms=20)
    index = INDEXES[name](DIAGONAL_DEG)
    subscriptions: dict[int, dict] = {}
    thresholds: dict[int, float] = {}
    for _ in range(60):
        free = [slot for slot in range(60) if slot not in subscriptions]
        new = sorted(rng.sample(free, min(len(free), rng.randint(0, 8))))
        fresh = [world.subscription() for _ in new]
        insert(index, new, fresh)
        subscriptions.update(zip(new, fresh))
        thresholds.update((slot, -np.inf) for slot in new)
        messages = world.messages(rng.choice((0, 1, 6)))
        if messages and subscriptions:  # raise and lower; some to a score that a message has to the last bit
            some = rng.sample(sorted(subscriptions), rng.randint(1, len(subscriptions)))
            for slot in some:
                score = exact_score(subscriptions[slot], rng.choice(messages))
                thresholds[slot] = rng.choice((-np.inf, np.inf, rng.random(), rng.random(), score if score is not None else 0.0))
            index.set_thresholds(np.array(some, np.int32), np.array([thresholds[slot] for slot in some]))
        assert found(index, batch(messages)) == expected(messages, subscriptions, thresholds)
        index._check()
        gone = sorted(rng.sample(sorted(subscriptions), min(len(subscriptions), rng.randint(0, 7))))
        index.remove(np.array(gone, np.int32))
        for slot in gone:
            del subscriptions[slot], thresholds[slot]
        index._check()
        assert found(index, batch(messages)) == expected(messages, subscriptions, thresholds)
    index.remove(np.array(sorted(subscriptions), np.int32))
    index._check()
    assert len(index.match(batch(world.messages(5))).slot) == 0


def subscription(alpha: float, weights: dict[int, float], lat: float = 0.0, lon: float = 0.0) -> dict:
    return {"k": 1, "alpha": alpha, "lat": lat, "lon": lon, "weights": weights}


def compare(name: str, subscriptions: list[dict], messages: list[dict], levels: list[float]) -> None:
    """Compare an index with the oracle when all thresholds are one level after another, and when they are mixed."""
    index, known = INDEXES[name](DIAGONAL_DEG), dict(enumerate(subscriptions))
    insert(index, list(known), subscriptions)
    slots = np.arange(len(known), dtype=np.int32)
    for level in [*levels, None]:
        thresholds = np.full(len(known), level) if level is not None else np.resize(levels, len(known))
        index.set_thresholds(slots, thresholds)
        index._check()
        assert found(index, batch(messages)) == expected(messages, known, dict(enumerate(thresholds.tolist())))


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_is_exact_for_text_alone_and_for_place_alone(name):
    """With alpha = 1 a common term is still needed; with alpha = 0 the place does not matter. Many scores meet a threshold exactly."""
    world = World(21, places=40)
    subscriptions = [{**world.subscription(), "alpha": float(i % 2)} for i in range(80)]
    messages = world.messages(20)
    scores = sorted({s for m in messages for one in subscriptions if (s := exact_score(one, m)) is not None})
    compare(name, subscriptions, messages, [-np.inf, np.inf, 0.0, 1.0, -1.0, *scores[:: max(1, len(scores) // 12)]])


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_takes_subscriptions_and_messages_with_very_many_keywords(name):
    rng = random.Random(22)
    many = [weigh(sorted(rng.sample(range(-60, 240), n)), rng) for n in (64, 64, 33, 17, 6, 5, 1, 300, 64, 40)]
    subscriptions = [subscription(rng.choice((0.0, 0.3, 1.0)), many[i % 10], rng.random(), rng.random()) for i in range(60)]
    messages = World(22).messages(12)
    for message in messages:
        message["weights"] = weigh(sorted(rng.sample(range(-60, 240), rng.choice((1, 3, 90, 300)))), rng)
    compare(name, subscriptions, messages, [-np.inf, 0.1, 0.5, 0.8, 0.3, np.inf])


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_keeps_subscriptions_apart_that_are_all_the_same(name):
    """One place, one text, one alpha: no way to tell them from each other but the threshold."""
    subscriptions = [subscription(0.5, {-4: 0.6, 3: 0.8}, 1.0, 1.0) for _ in range(400)]
    messages = [
        {"seq": i, "position": i, "lat": 1.0, "lon": 1.0 + i % 3, "weights": w}
        for i, w in enumerate(({-4: 0.6, 3: 0.8}, {3: 1.0}, {-4: 1.0}, {5: 1.0}, {-5: 1.0}, {}))
    ]
    compare(name, subscriptions, messages, [-np.inf, 1.0, 0.9, exact_score(subscriptions[0], messages[1]), 0.5, np.inf, 0.0])


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_allows_for_terms_that_occur_often_in_a_message(name):
    """A term with tf = 5 outweighs rarer ones; messages of any norm are matched exactly."""
    rng, world = random.Random(23), World(23, places=30)
    subscriptions = [world.subscription() for _ in range(150)]
    messages = world.messages(30)
    for i, message in enumerate(messages):
        raw = {term: rng.choice((1, 1, 2, 5)) * 9.0 / (1 + j) for j, term in enumerate(message["weights"])}
        norm = (sum(w * w for w in raw.values()) ** 0.5 or 1.0) / (1.0, 1.0, 1e-9, 30.0)[i % 4]
        message["weights"] = {term: w / norm for term, w in raw.items()}
    compare(name, subscriptions, messages, [0.4, 0.6, 0.8, 5.0, 0.2, -0.5])


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_takes_batches_of_nothing(name):
    index, world = INDEXES[name](DIAGONAL_DEG), World(24)
    nothing = np.zeros(0, np.int32)
    for _ in range(2):
        assert found(index, MessageBatch.empty()) == []
        insert(index, [], [])
        index.remove(nothing)
        index.set_thresholds(nothing, np.zeros(0))
        index._check()
        insert(index, [7], [world.subscription()])
        assert len(index.match(batch([m for m in world.messages(5) if not m["weights"]])).slot) == 0
        index.remove(np.array([7], np.int32))
    assert index.memory_bytes >= 0


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_reads_slices_and_arrays_that_it_may_not_write(name):
    world = World(4)
    index = INDEXES[name](DIAGONAL_DEG)
    subscriptions = dict(enumerate(world.subscription() for _ in range(40)))
    insert(index, list(subscriptions), list(subscriptions.values()))
    thresholds = dict.fromkeys(subscriptions, 0.4)
    index.set_thresholds(np.arange(40, dtype=np.int32), np.full(40, 0.4))
    messages = world.messages(50)
    whole = MessageBatch(*unpack_state(pack_state(list(batch(messages)))))
    assert not whole.lat.flags.writeable
    assert found(index, whole.slice(20, 45)) == expected(messages[20:45], subscriptions, thresholds)
    assert found(index, whole.slice(50, 50)) == []


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_is_restored_from_any_other(name):
    world = World(6)
    for other in INDEXES:
        first = INDEXES[other](DIAGONAL_DEG)
        insert(first, list(range(30)), [world.subscription() for _ in range(30)])
        first.remove(np.array([3, 4, 17], np.int32))
        first.set_thresholds(np.array([5, 9], np.int32), np.array([0.7, np.inf]))
        second = INDEXES[name](DIAGONAL_DEG)
        second.restore(unpack_state(pack_state(first.snapshot())))
        second._check()
        assert pack_state(second.snapshot()) == pack_state(first.snapshot())
        messages = batch(world.messages(40))
        assert found(second, messages) == found(first, messages)
        insert(second, [3], [world.subscription()])
        second._check()


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_does_not_grow_with_subscriptions_that_come_and_go(name):
    world = World(8)
    index = INDEXES[name](DIAGONAL_DEG)
    sizes = []
    for i in range(400):  # every one with a keyword of its own
        fresh = world.subscription()
        fresh["weights"] = {-(10**9) - i: 1.0} if i % 2 else fresh["weights"]
        insert(index, [i % 50], [fresh])
        if i >= 49:
            index.remove(np.array([(i + 1) % 50], np.int32))
        sizes.append(index.memory_bytes)
    index._check()
    assert sizes[-1] < 2 * sizes[150]


@pytest.mark.parametrize("seed", [1, 2])
def test_term_ids_survive_collisions_and_deletions(seed):
    """Terms are drawn so that many share a place in the table, whatever its size."""
    rng = random.Random(seed)
    homes: dict[int, list[int]] = {}
    for term in range(20000):
        homes.setdefault(int(kernels._home(term, 15)), []).append(term)
    pool = homes[15][:40] + homes[0][:20] + [2**63 - 1, -(2**63), -1]
    ids = TermIds()
    uses: list[tuple[int, int]] = []
    for _ in range(300):
        if rng.random() < 0.5 or not uses:
            terms = rng.choices(pool, k=rng.randint(0, 6))
            given = ids.acquire(np.array(terms, np.int64)).tolist()
            uses += zip(terms, given)
        else:
            rng.shuffle(uses)
            gone, uses = uses[:5], uses[5:]
            ids.release(np.array([i for _, i in gone], np.int32))
        assert len({(term, i) for term, i in uses}) == len({term for term, _ in uses}) == len({i for _, i in uses})
        ids._check(np.array([i for _, i in uses], np.int64))
    assert len(ids) <= len(pool)


def test_blocks_keep_their_entries_while_they_move():
    rng = random.Random(3)
    pool = BlockPool({"value": np.int64, "weight": np.float64})
    pool.widen(10)
    truth: dict[int, list[int]] = {i: [] for i in range(10)}
    for step in range(500):
        items = rng.sample(range(10), rng.randint(1, 5))
        if rng.random() < 0.2:
            pool.release(np.array(items))
            truth.update((i, []) for i in items)
        else:
            lengths = [len(truth[i]) + rng.randint(0, 9) for i in items]
            pool.reserve(np.array(items), np.array(lengths))
            for i, length in zip(items, lengths):
                new = [rng.randrange(100) for _ in range(length - len(truth[i]))]
                at = pool.block[i, 0] + len(truth[i])
                pool.value[at : at + len(new)] = new
                pool.weight[at : at + len(new)] = new
                truth[i] += new
                pool.block[i, 1] = len(truth[i])
            if rng.random() < 0.2:
                pool.trim(np.array(items), np.array(lengths))
        pool._check()
        for i, values in truth.items():
            start, length = pool.block[i, :2]
            assert pool.value[start : start + length].tolist() == values == pool.weight[start : start + length].tolist()
    assert len(pool.value) < 4 * sum(map(len, truth.values())) + 200
