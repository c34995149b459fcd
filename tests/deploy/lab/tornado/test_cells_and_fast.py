"""The plain table, GI2 and FAST: small capacities, lazy deletion, memory under churn, and what their parts look like."""

import numpy as np
import pytest

from dskype.bolts.boolean import make_index
from dskype.deploy.lab.tornado import cell_kernels, fast_kernels
from dskype.topology import IllegalArgumentException
from dskype.topology.core.values import pack_state, unpack_state
from tests.bolts.boolean.oracle import any_message, any_place_message, any_subscription, expected, messages_of, pairs, seeded

SMALL = {
    "table": [{"cell_deg": 20.0, "most_cells": 5}, {"cell_deg": 180.0}],
    "gi2": [{"cells": 5, "vacuum": 1}, {"cells": 1}, {"cells": 7, "box": [-10, -5, 12.5, 10], "vacuum": 2}],
    "fast": [
        {"cells": 8, "frequent": 1, "spill": 1, "vacuum": 1},
        {"cells": 16, "frequent": 3, "spill": 1},
        {"cells": 1, "frequent": 2},
        {"frequent": 2, "spill": 4},
    ],
}
CASES = [(name, options) for name, several in SMALL.items() for options in several]
LAZY = [(name, options) for name, options in CASES if name != "table"]


def insert(index, subscriptions):
    boxes = np.array([box for box, _ in subscriptions.values()]).reshape(-1, 4)
    index.insert_many(list(subscriptions), boxes, [expression for _, expression in subscriptions.values()])


def nearby(rng, vocabulary=6):
    """Return a small rectangle with a few frequent words: such subscriptions crowd in the same lists."""
    west, south = rng.uniform(-10, 10), rng.uniform(-10, 10)
    return (west, south, west + rng.uniform(0, 4), south + rng.uniform(0, 4)), ["and", *rng.sample(range(vocabulary), rng.randrange(1, 4))]


def dead(index):
    return int(index._pyramid.counters[fast_kernels.DEAD] if index.name == "fast" else index._cells.counters[cell_kernels.DEAD])


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("seed", range(3))
def test_small_capacities_change_nothing(name, options, seed):
    rng, live, index = seeded(200 + seed), {}, make_index(name, options)
    for step in range(40):
        subscribe = (nearby, any_subscription)[step % 3 == 0]
        changed = rng.sample(range(150), rng.randrange(40))
        gone = [slot for slot in changed if slot in live]
        index.remove_many(gone)
        for slot in gone:
            del live[slot]
        new = {slot: subscribe(rng) for slot in changed[::2]}
        insert(index, {slot: subscription for slot, subscription in new.items() if slot not in live})
        live = new | live
        if step % 13 == 12:
            state = unpack_state(pack_state(index.snapshot()))
            index = make_index(name, options)
            index.restore(state)
        index._check()
        rows = [(rng.uniform(-10, 14), rng.uniform(-10, 14), rng.sample(range(6), 4)) for _ in range(8)]
        rows += [(any_message if step % 2 else any_place_message)(rng) for _ in range(4)]
        assert pairs(index.match(messages_of(rows))) == expected(live, rows), f"step {step}"
        index._check()


@pytest.mark.parametrize(("name", "options"), LAZY)
def test_a_removed_subscription_is_never_reported_nor_taken_for_the_one_in_its_slot(name, options):
    rng, index = seeded(5), make_index(name, options)
    first = {slot: nearby(rng) for slot in range(200)}
    insert(index, first)
    index._vacuum = 0  # nothing is cleaned but what messages meet
    second = {slot: nearby(rng) for slot in range(0, 200, 2)}
    for slot, subscription in second.items():
        index.remove(slot)
        index.insert(slot, *subscription)
    index.remove_many(range(1, 200, 4))
    live = {slot: s for slot, s in (first | second).items() if slot % 4 != 1}
    before = dead(index)
    assert before > 0
    rows = [(rng.uniform(-10, 14), rng.uniform(-10, 14), [0, 1, 2, 3, 4, 5]) for _ in range(300)]
    for part in range(0, 300, 50):
        assert pairs(index.match(messages_of(rows[part : part + 50]))) == expected(live, rows[part : part + 50])
        index._check()
    assert dead(index) < before  # messages met some
    index._vacuum = 8
    index.insert(1, *nearby(rng))
    index._check()


@pytest.mark.parametrize(("name", "options"), LAZY)
def test_the_vacuum_ends_when_nothing_is_dead(name, options):
    rng, index = seeded(6), make_index(name, options)
    insert(index, {slot: nearby(rng, 40) for slot in range(300)})
    index.remove_many(range(290))
    batch = messages_of([(80.0, 80.0, [99])] * 50)
    for _ in range(2000):
        if not dead(index):
            break
        index.match(batch)  # it meets nothing itself
    assert dead(index) == 0
    index._check()
    assert len(index) == 10


@pytest.mark.parametrize(("name", "options"), [*CASES, ("table", {}), ("gi2", {}), ("fast", {})])
def test_memory_does_not_grow_under_churn(name, options):
    rng, index = seeded(7), make_index(name, options)

    def subscription(step):  # words and places wander: nothing of what is removed comes again
        (west, south, east, north), expression = nearby(rng, 8)
        away = step * 0.05
        return (west + away, south, east + away, north), ["and", *(term + step // 3 for term in expression[1:])]

    insert(index, {slot: subscription(0) for slot in range(400)})
    sizes = []
    for step in range(300):
        slots = rng.sample(range(400), 40)
        index.remove_many(slots)
        insert(index, {slot: subscription(step) for slot in slots})
        sizes.append(index.memory_bytes)
    index._check()
    assert max(sizes[200:]) <= 1.6 * max(sizes[60:100])


@pytest.mark.parametrize("name", SMALL)
def test_conjunctions_may_be_given_as_columns(name):
    boxes = np.tile([-10.0, -10.0, 10.0, 10.0], (4, 1))
    index = make_index(name)
    index.insert_conjunctions(np.arange(3), boxes[:3], np.array([1, 3, 4, 6]), np.array([99, 2, 5, 3, 2, 9]))
    index.insert_conjunctions([3], boxes[:1], np.array([0, 4]), np.array([5, 2, 2, 5]))  # neither rising nor once
    index._check()
    assert pairs(index.match(messages_of([(0.0, 0.0, [2, 5]), (0.0, 0.0, [2, 3, 9])]))) == [(0, 0), (0, 3), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("table", {"cell_deg": 0}, "option of boolean index 'table' has an illegal value.*given: {'cell_deg': 0}"),
        ("table", {"cell_deg": "wide"}, "has an illegal value"),
        ("gi2", {"cells": 2.5}, "must be a whole number.*given: {'cells': 2.5}"),
        ("gi2", {"vacuum": True}, "has an illegal value"),
        ("gi2", {"box": [10, 0, 0, 10]}, "option box of boolean index .gi2. is not usable.*given: \\[10, 0, 0, 10\\].*west < east"),
        ("gi2", {"box": [0, 0, 1]}, "is not usable"),
        ("fast", {"cells": 48}, "must be a power of two.*given: 48"),
        ("fast", {"frequent": 0}, "has an illegal value"),
    ],
)
def test_illegal_options_are_refused(name, options, message):
    with pytest.raises(IllegalArgumentException, match=message):
        make_index(name, options)


def test_wide_rectangles_do_not_fill_the_table():
    index = make_index("table")
    insert(index, {slot: ((-170.0, -80.0, 170.0, 80.0), ["or", *range(20)]) for slot in range(50)})
    assert index._cells.counters[cell_kernels.POSTINGS] == 50 * 20
    area = ((-180.0, -90.0, 180.0, 90.0), [3])  # more cells than lists
    assert len(pairs(index.match(messages_of([area, (0.0, 0.0, [19]), (85.0, 0.0, [19])])))) == 100


def test_fast_grows_tries_and_goes_down_the_pyramid_where_keywords_are_frequent():
    rng, index = seeded(9), make_index("fast", {"cells": 64, "frequent": 4, "spill": 4})
    rare = {slot: (nearby(rng)[0], ["and", 1000 + slot, 1]) for slot in range(100)}
    insert(index, rare)
    pyramid = index._pyramid
    assert pyramid.counters[fast_kernels.NODES_USED] == 1  # the world, with one list for each rare keyword
    assert pyramid.counters[fast_kernels.POSTINGS] == 100
    common = {slot: nearby(rng, 3) for slot in range(100, 900)}
    insert(index, common)
    index._check()
    pyramid = index._pyramid
    nodes = pyramid.node_parts[: pyramid.counters[fast_kernels.NODES_USED]]
    cells = nodes[nodes[:, fast_kernels.MASK] & fast_kernels.IS_CELL > 0]
    assert len(cells) > 20 and len(nodes) > 2 * len(cells)
    rows = [(rng.uniform(-10, 14), rng.uniform(-10, 14), [0, 1, 2, 1000 + i]) for i in range(50)]
    assert pairs(index.match(messages_of(rows))) == expected(rare | common, rows)


def test_neighbouring_cells_share_a_list():
    index = make_index("fast", {"frequent": 4, "spill": 4})
    live = {slot: ((-1.0 - slot, -1.0, 1.0, 1.0), 7) for slot in range(6)}  # around the corner of the four cells below the world
    insert(index, live)
    index._check()
    pyramid = index._pyramid
    blocks = pyramid.rows[pyramid.rows[:, 2] > fast_kernels.TOMB, 3]
    assert pyramid.units[blocks[blocks >= 0], fast_kernels.SHARES].tolist() == [4, 4, 4, 4]
    assert pyramid.counters[fast_kernels.POSTINGS] == 6
    live |= {6: ((1.0, 1.0, 2.0, 2.0), 7)}
    index.insert(6, *live[6])
    index.remove(5)
    del live[5]
    rows = [(lat, lon, [7]) for lat in (-1.0, 0.0, 1.0, 2.0) for lon in (-7.0, -1.0, 0.0, 1.0, 2.0)]
    assert pairs(index.match(messages_of(rows))) == expected(live, rows)
    index._check()


def test_fast_forgets_cells_and_tries_that_are_empty():
    rng, index = seeded(10), make_index("fast", {"cells": 64, "frequent": 4, "spill": 4})
    insert(index, {slot: nearby(rng, 3) for slot in range(800)})
    nodes = int(index._pyramid.counters[fast_kernels.NODES_USED])
    index.remove_many(range(790))
    for _ in range(50):
        index.match(messages_of([(80.0, 80.0, [99])] * 256))
    index._check()
    pyramid = index._pyramid
    free, head = 0, int(pyramid.counters[fast_kernels.FREE_NODE])
    while head >= 0:
        free, head = free + 1, int(pyramid.node_parts[head, fast_kernels.OWNER])
    assert nodes - free < nodes / 3
