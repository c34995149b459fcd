"""The indexes of LAPS: trees that split, join, and change their height with tiny nodes; orders of tokens."""

import numpy as np
import pytest

from dskype.bolts.boolean import INDEXES, make_index
from dskype.deploy.lab.laps import parts, parts_kernels
from dskype.deploy.lab.laps.rtree import token_kernels
from dskype.deploy.lab.laps.rtree.index import TreeIndex
from dskype.topology import IllegalArgumentException
from dskype.topology.core.values import pack_state, unpack_state
from tests.bolts.boolean.oracle import any_box, any_place_message, any_subscription, any_term, expected, messages_of, pairs, seeded

WORLD = (-180.0, -90.0, 180.0, 90.0)
TREES = sorted(name for name, index in INDEXES.items() if issubclass(index, TreeIndex))
ORDERS = ["random", "df", "idf", "local"]
ORDERED = [(name, {"node_capacity": 4, "token_order": order}) for name in ("rt+", "rt++") for order in ORDERS]
FIRST = [("rt++", {"node_capacity": 4, "first_level": n}) for n in (1, 3)]
SMALL = [("keyword-first", {}), *((name, {"node_capacity": n}) for name in TREES for n in (4, 7)), *ORDERED, *FIRST]


def height(index):
    a = index._index
    return int(a.node[a.meta[parts_kernels.ROOT], token_kernels.LEVEL])


def put(index, subscriptions):
    index.insert_many(list(subscriptions), np.array([box for box, _ in subscriptions.values()]).reshape(-1, 4), [e for _, e in subscriptions.values()])


def matches(index, rows):
    return pairs(index.match(messages_of(rows)))


@pytest.mark.parametrize(("name", "options"), SMALL, ids=str)
def test_trees_grow_and_shrink_and_stay_right(name, options):
    rng, index, live = seeded(len(str(options))), make_index(name, options), {}
    heights = set()
    for step in range(80):
        grows = step % 40 < 20
        for _ in range(rng.randrange(12)):
            slot = rng.randrange(150)
            if slot in live and (not grows or rng.random() < 0.3):
                index.remove(slot)
                del live[slot]
            elif slot not in live and grows:
                live[slot] = any_subscription(rng, 12, 2)
                index.insert(slot, *live[slot])
        if step in (25, 39):
            gone = rng.sample(sorted(live), len(live) // 3)
            index.remove_many(gone)
            for slot in gone:
                del live[slot]
        index._check()
        rows = [any_place_message(rng, 12) for _ in range(6)]
        assert matches(index, rows) == expected(live, rows), step
        if isinstance(index, TreeIndex):
            heights.add(height(index))
        if step == 30:
            state = unpack_state(pack_state(index.snapshot()))
            index = make_index(name, options)
            index.restore(state)
    assert len(heights) > (2 if options.get("node_capacity") == 4 else 1) or not isinstance(index, TreeIndex)
    index.remove_many(list(live))
    index._check()
    assert len(index) == 0 and matches(index, rows) == []


@pytest.mark.parametrize(("name", "options"), SMALL, ids=str)
def test_batches_build_what_single_insertions_build(name, options):
    rng = seeded(5)
    subscriptions = {slot: any_subscription(rng, 20, 2) for slot in range(300)}
    rows = [any_place_message(rng, 20) for _ in range(40)]
    index = make_index(name, options)
    put(index, subscriptions)
    index._check()
    assert matches(index, rows) == expected(subscriptions, rows)
    for first in range(0, 300, 60):
        gone = list(range(first, first + 45))
        index.remove_many(gone)
        index._check()
        put(index, {slot: subscriptions[slot] for slot in gone})
        index._check()
    assert matches(index, rows) == expected(subscriptions, rows)


@pytest.mark.parametrize("name", sorted(set(TREES) | {"keyword-first"}))
def test_equal_rectangles_and_equal_tokens(name):
    index = make_index(name, {} if name == "keyword-first" else {"node_capacity": 4})
    box = (1.0, 2.0, 3.0, 4.0)
    subscriptions = {slot: (box, ["and", 1, 2, 3, 4, 5, 6, 7, 8][: 2 + slot % 8]) for slot in range(200)}
    put(index, subscriptions)
    index._check()
    rows = [(2.0, 2.0, list(range(1, n))) for n in range(1, 10)] + [((3.0, 4.0, 9.0, 9.0), [1, 2]), (4.1, 2.0, [1])]
    assert matches(index, rows) == expected(subscriptions, rows)
    for slot in range(0, 200, 2):
        index.remove(slot)
        del subscriptions[slot]
    index._check()
    assert matches(index, rows) == expected(subscriptions, rows)


@pytest.mark.parametrize("name", sorted(set(TREES) | {"keyword-first"}))
def test_messages_of_a_thousand_words_and_subscriptions_of_many(name):
    rng = seeded(6)
    index = make_index(name)
    subscriptions = {slot: (any_box(rng), ["and", *(any_term(rng, 1500) for _ in range(rng.choice([1, 2, 3, 40])))]) for slot in range(2500)}
    put(index, subscriptions)
    index._check()
    rows = [any_place_message(rng) for _ in range(8)]
    rows = [(*row[:-1], rng.sample(range(1500), n)) for row, n in zip(rows, (0, 1, 100, 400, 1000, 1000, 1000, 1500))]
    found = matches(index, rows)
    assert found == expected(subscriptions, rows)
    assert len(found) > 1000


@pytest.mark.parametrize("name", sorted(set(TREES) | {"keyword-first"}))
def test_the_numbers_of_searches_may_run_out(name, monkeypatch):
    monkeypatch.setattr(parts, "_SEARCHES", 50)
    rng = seeded(7)
    index = make_index(name)
    subscriptions = {slot: any_subscription(rng) for slot in range(200)}
    put(index, subscriptions)
    for _ in range(12):
        rows = [any_place_message(rng) for _ in range(10)]
        assert matches(index, rows) == expected(subscriptions, rows)


def first_terms(order, subscriptions):
    index = make_index("rt+", {"token_order": order})
    put(index, subscriptions)
    index._check()
    names = index._terms.map.name
    return [int(names[index._terms_of(int(index._index.head[slot]))[0]]) for slot in subscriptions]


def test_the_representative_token_is_the_rarest_or_the_most_frequent_one():
    subscriptions = {0: (WORLD, ["and", 5, 2, 9]), 1: (WORLD, ["and", 7, -3]), 2: (WORLD, 4)}
    assert first_terms("idf", subscriptions) == [2, -3, 4]
    assert first_terms("df", subscriptions) == [9, 7, 4]
    drawn = first_terms("random", subscriptions)
    assert drawn == first_terms("random", subscriptions)
    assert all(term in ([5, 2, 9], [7, -3], [4])[slot] for slot, term in enumerate(drawn))


def test_random_tokens_differ_between_places():
    subscriptions = {slot: ((float(slot), 0.0, float(slot), 1.0), ["and", 1, 2, 3]) for slot in range(100)}
    assert set(first_terms("random", subscriptions)) == {1, 2, 3}


def test_the_local_token_is_rare_where_the_subscription_lies():
    here, there = (10.0, 10.0, 11.0, 11.0), (100.0, -50.0, 101.0, -49.0)
    subscriptions = dict.fromkeys(range(50), (here, 1)) | dict.fromkeys(range(50, 100), (there, 2))
    subscriptions |= {100: (here, ["and", 1, 2]), 101: (there, ["and", 1, 2])}
    assert first_terms("local", subscriptions)[100:] == [2, 1]
    assert first_terms("idf", subscriptions)[100:] == [1, 1]


def test_counters_of_cells_fall_again():
    rng = seeded(8)
    index = make_index("rt++", {"token_order": "local"})
    subscriptions = {slot: any_subscription(rng) for slot in range(300)}
    put(index, subscriptions)
    assert index._counts.sum() > 300
    index.remove_many(list(subscriptions))
    assert not index._counts.any()


@pytest.mark.parametrize("capacity", [3, 63, 25.0, True, "50"])
def test_capacities_that_do_not_work_are_refused(capacity):
    for name in TREES:
        with pytest.raises(IllegalArgumentException, match="capacity of a node is not usable.*legal: an integer from 4 to 62"):
            make_index(name, {"node_capacity": capacity})


@pytest.mark.parametrize("first", [0, 32, 1.0, True])
def test_levels_that_do_not_work_are_refused(first):
    with pytest.raises(IllegalArgumentException, match="level at which lists begin is not usable.*legal: an integer from 1 to 31"):
        make_index("rt++", {"first_level": first})


def test_orders_that_are_not_known_are_refused():
    with pytest.raises(IllegalArgumentException, match="order of tokens is not known.*given: 'tf'.*legal: random, df, idf, local"):
        make_index("rt+", {"token_order": "tf"})
    with pytest.raises(IllegalArgumentException, match="option of boolean index 'rt' is not known.*given: 'token_order'"):
        make_index("rt", {"token_order": "idf"})
