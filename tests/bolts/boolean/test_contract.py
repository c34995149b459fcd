"""What every boolean index must do."""

import functools
import math

import numpy as np
import pytest

from dskype.bolts.boolean import INDEXES, make_index
from dskype.spouts.batch import MessageBatch
from dskype.topology import IllegalArgumentException
from dskype.topology.core.values import pack_state, unpack_state

from .oracle import UNKNOWN, any_message, any_place_message, any_subscription, expected, messages_of, pairs, place_of, seeded

WORLD = (-180.0, -90.0, 180.0, 90.0)


@pytest.fixture(params=sorted(INDEXES))
def index(request):
    return make_index(request.param)


def filled(index, subscriptions):
    index.insert_many(list(subscriptions), np.array([box for box, _ in subscriptions.values()]).reshape(-1, 4), [e for _, e in subscriptions.values()])
    return index


# What should match does not depend on the index, so the slow oracle computes it once for all of them.


@functools.cache
def points_world(seed):
    """Return random subscriptions, points, and what matches."""
    rng = seeded(seed)
    subscriptions = {slot: any_subscription(rng) for slot in range(0, 900, 3)}
    rows = [any_message(rng) for _ in range(150)]
    return subscriptions, messages_of(rows), expected(subscriptions, rows)


@functools.cache
def areas_world(seed):
    """Return random subscriptions, areas and points, and what matches."""
    rng = seeded(50 + seed)
    subscriptions = {slot: any_subscription(rng) for slot in range(0, 900, 3)}
    rows = [any_place_message(rng, areas=(0.1, 0.7, 1.0)[seed % 3]) for _ in range(150)]
    return subscriptions, messages_of(rows), expected(subscriptions, rows)


@functools.cache
def history(seed):
    """Return random steps: single changes (slot -> subscription, or None: it goes), slots that go at once, whether the state is restored, how many are left,
    messages, and what matches."""
    rng, live, steps = seeded(100 + seed), {}, []
    for step in range(60):
        changes = []
        for _ in range(rng.randrange(12)):
            slot = rng.randrange(120)
            if slot in live:
                changes.append((slot, None))
                del live[slot]
            else:
                live[slot] = any_subscription(rng)
                changes.append((slot, live[slot]))
        gone = rng.sample(sorted(live), rng.randrange(len(live) + 1)) if rng.random() < 0.3 and live else []
        for slot in gone:
            del live[slot]
        restored = rng.random() < 0.1
        rows = [(any_message if step % 2 else any_place_message)(rng) for _ in range(8)]
        steps.append((changes, gone, restored, len(live), messages_of(rows), expected(live, rows)))
    return steps


@pytest.mark.parametrize("seed", range(6))
def test_matches_are_those_of_the_oracle(index, seed):
    subscriptions, batch, wanted = points_world(seed)
    filled(index, subscriptions)._check()
    assert pairs(index.match(batch)) == wanted
    assert len(wanted) > 1000


@pytest.mark.parametrize("seed", range(6))
def test_matches_of_areas_and_points_are_those_of_the_oracle(index, seed):
    subscriptions, batch, wanted = areas_world(seed)
    assert batch.areas is not None
    assert pairs(filled(index, subscriptions).match(batch)) == wanted
    assert len(wanted) > 1500


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_subscriptions_come_and_go(index, seed):
    for step, (changes, gone, restored, size, batch, wanted) in enumerate(history(seed)):
        for slot, subscription in changes:
            if subscription is None:
                index.remove(slot)
            else:
                index.insert(slot, *subscription)
        index.remove_many(np.array(gone, np.int64))
        if restored:
            state = unpack_state(pack_state(index.snapshot()))
            index = make_index(index.name)
            index.restore(state)
        index._check()
        assert len(index) == size
        assert pairs(index.match(batch)) == wanted, f"step {step}"


def test_borders_belong_to_the_rectangle(index):
    boxes = {0: (10.0, 20.0, 30.0, 40.0), 1: (10.1, 20.2, 10.1, 20.2), 2: (0.1, 0.2, 0.3, 0.7)}
    filled(index, {slot: (box, 5) for slot, box in boxes.items()})
    rows = []
    for west, south, east, north in boxes.values():
        for lat in (south, north, (south + north) / 2):
            for lon in (west, east, (west + east) / 2):
                rows += [
                    (lat, lon, [5]),
                    (math.nextafter(lat, -90), lon, [5]),
                    (math.nextafter(lat, 90), lon, [5]),
                    (lat, math.nextafter(lon, -180), [5]),
                    (lat, math.nextafter(lon, 180), [5]),
                ]
    found = pairs(index.match(messages_of(rows)))
    assert found == expected({slot: (box, 5) for slot, box in boxes.items()}, rows)
    assert 0 < len(found) < len(rows)


def test_borders_of_areas_belong_to_them(index):
    boxes = {0: (10.0, 20.0, 30.0, 40.0), 1: (10.1, 20.2, 10.1, 20.2), 2: (0.1, 0.2, 0.3, 0.7), 3: (0.3, 0.2, 0.1, 0.7)}
    subscriptions = {slot: (box, 5) for slot, box in boxes.items()}
    filled(index, subscriptions)
    rows = []
    for west, south, east, north in boxes.values():
        for near_x, low_x, high_x in ((east, east, east + 3), (math.nextafter(east, 180), math.nextafter(east, 180), east + 3), (west, west - 3, west)):
            rows += [((low_x, south, high_x, north), [5]), ((low_x, north, high_x, north + 2), [5]), ((near_x, south - 2, near_x, south), [5])]
            rows += [((low_x, math.nextafter(north, 90), high_x, north + 2), [5]), ((near_x, south - 2, near_x, math.nextafter(south, -90)), [5])]
        rows += [((west - 3, south, math.nextafter(west, -180), north), [5]), ((west, south, west, north), [5]), ((west, south, east, south), [5])]
        rows += [((math.nextafter(east, 180), south, math.nextafter(west, -180), north), [5])] if west <= east else []
    found = pairs(index.match(messages_of(rows)))
    assert found == expected(subscriptions, rows)
    assert 0 < len(found) < len(rows) * len(boxes) / 2


def test_areas_may_cross_the_antimeridian(index):
    boxes = {
        0: (170.0, -10.0, -170.0, 10.0),
        1: (0.1, -90.0, 0.0, 90.0),
        2: (180.0, -90.0, -180.0, 90.0),
        3: (math.nextafter(10.0, 11), 0.0, 10.0, 0.0),
        4: (10.0, 0.0, math.nextafter(10.0, 11), 0.0),
        5: (-180.0, -5.0, -180.0, 5.0),
        6: (180.0, -5.0, 180.0, 5.0),
        7: (-180.0, -90.0, 180.0, 90.0),
        8: (20.0, -5.0, 30.0, 5.0),
    }
    subscriptions = {slot: (box, ["or", 1, 2]) for slot, box in boxes.items()}
    filled(index, subscriptions)
    rows = [(box, [2]) for box in boxes.values()]
    rows += [((west, 0.0, east, 0.0), [1, 2]) for west in (10.0, 30.0, math.nextafter(30.0, 31), 179.0) for east in (-179.0, 5.0, 9.9)]
    rows += [((30.0, 0.0, 20.0, 0.0), [1]), ((math.nextafter(30.0, 31), 0.0, math.nextafter(20.0, 19), 0.0), [1]), ((175.0, 10.1, 5.0, 10.1), [1])]
    found = pairs(index.match(messages_of(rows)))
    assert found == expected(subscriptions, rows)
    assert {slot for _, slot in found} == set(boxes)
    assert len(found) < len(rows) * len(boxes)


def test_areas_at_poles_and_corners_of_the_world(index):
    boxes = {0: WORLD, 1: (-180.0, 90.0, 180.0, 90.0), 2: (-180.0, -90.0, -180.0, -90.0), 3: (180.0, 90.0, 180.0, 90.0), 4: (0.0, -90.0, 0.0, 90.0)}
    subscriptions = {slot: (box, 7) for slot, box in boxes.items()}
    rows = [(box, [7]) for box in boxes.values()] + [((-10.0, 80.0, 10.0, 90.0), [7]), ((170.0, -90.0, -170.0, -80.0), [7]), ((5.0, 5.0, 5.0, 5.0), [7])]
    assert pairs(filled(index, subscriptions).match(messages_of(rows))) == expected(subscriptions, rows)


def test_an_area_without_extent_matches_as_the_point_does(index):
    rng = seeded(61)
    subscriptions = {slot: any_subscription(rng) for slot in range(300)}
    points = [any_message(rng) for _ in range(60)]
    filled(index, subscriptions)
    as_areas = messages_of([(place_of(row), row[-1]) for row in points])
    assert as_areas.areas is not None
    assert pairs(index.match(as_areas)) == pairs(index.match(messages_of(points))) == expected(subscriptions, points)


def test_areas_find_each_of_many_subscriptions_under_one_term_once(index):
    rng = seeded(62)
    subscriptions = {slot: (any_subscription(rng)[0], rng.choice([5, ["and", 5, 6], ["or", 5, 4, 6]])) for slot in range(3000)}
    filled(index, subscriptions)
    rows = [(area, [4, 5, 6]) for area in (WORLD, (10.0, -90.0, 9.0, 90.0), (-40.0, -20.0, 40.0, 20.0), (11.0, 11.0, 11.0, 11.0))]
    found = pairs(index.match(messages_of(rows)))
    assert found == expected(subscriptions, rows)
    assert found[:3000] == [(0, slot) for slot in range(3000)]


def test_a_rectangle_may_cross_the_antimeridian(index):
    boxes = {0: (170.0, -10.0, -170.0, 10.0), 1: (0.1, -90.0, 0.0, 90.0), 2: (180.0, -90.0, -180.0, 90.0), 3: (math.nextafter(10.0, 11), 0.0, 10.0, 0.0)}
    subscriptions = {slot: (box, ["or", 1, 2]) for slot, box in boxes.items()}
    filled(index, subscriptions)
    longitudes = [-180.0, -179.9, -170.0, math.nextafter(-170, 0), 0.0, 0.05, 0.1, 10.0, math.nextafter(10.0, 11), 169.9, 170.0, 180.0]
    rows = [(lat, lon, [1, 2]) for lon in longitudes for lat in (-10.0, 0.0, 10.0, 10.1)]
    found = pairs(index.match(messages_of(rows)))
    assert found == expected(subscriptions, rows)
    assert {slot for _, slot in found} == {0, 1, 2, 3}


def test_poles_and_corners_of_the_world(index):
    boxes = {0: WORLD, 1: (-180.0, 90.0, 180.0, 90.0), 2: (-180.0, -90.0, -180.0, -90.0), 3: (180.0, 90.0, 180.0, 90.0)}
    subscriptions = {slot: (box, 7) for slot, box in boxes.items()}
    rows = [(lat, lon, [7]) for lat in (-90.0, 0.0, 90.0) for lon in (-180.0, 0.0, 180.0)]
    assert pairs(filled(index, subscriptions).match(messages_of(rows))) == expected(subscriptions, rows)


def test_messages_without_terms_or_with_unknown_ones(index):
    subscriptions = {0: (WORLD, UNKNOWN[0]), 1: (WORLD, ["and", UNKNOWN[1], 3]), 2: (WORLD, ["or", UNKNOWN[2], 3])}
    rows = [(0.0, 0.0, []), (0.0, 0.0, [UNKNOWN[0]]), (0.0, 0.0, [UNKNOWN[1], 3]), (0.0, 0.0, [UNKNOWN[2]]), (0.0, 0.0, [-77, 99])]
    assert pairs(filled(index, subscriptions).match(messages_of(rows))) == [(1, 0), (2, 1), (2, 2), (3, 2)]


def test_a_term_of_the_next_message_does_not_count(index):
    filled(index, {0: (WORLD, ["and", 1, 9]), 1: (WORLD, ["or", ["and", 1, 9], ["and", 2, 9]])})
    assert pairs(index.match(messages_of([(0.0, 0.0, [1]), (0.0, 0.0, [9]), (0.0, 0.0, [1]), (0.0, 0.0, [2, 9])]))) == [(3, 1)]


def test_a_slice_of_a_batch_gives_a_slice_of_the_matches(index):
    rng = seeded(7)
    subscriptions = {slot: any_subscription(rng) for slot in range(200)}
    rows = [any_message(rng) for _ in range(60)]
    filled(index, subscriptions)
    part = messages_of(rows).slice(20, 50)
    assert pairs(index.match(part)) == expected(subscriptions, rows[20:50])
    rows = [any_place_message(rng) for _ in range(60)]
    assert pairs(index.match(messages_of(rows).slice(20, 50))) == expected(subscriptions, rows[20:50])
    some = np.array([40, 3, 3, 17])
    assert pairs(index.match(messages_of(rows).select(some))) == expected(subscriptions, [rows[i] for i in some])


def test_an_empty_index_and_an_empty_batch_match_nothing(index):
    assert pairs(index.match(messages_of([(0.0, 0.0, [1])]))) == []
    index._check()
    filled(index, {3: (WORLD, 1)})
    assert pairs(index.match(MessageBatch.empty())) == []
    index.remove(3)
    assert pairs(index.match(messages_of([(0.0, 0.0, [1])]))) == []
    assert len(index) == 0
    filled(index, {})
    index.remove_many([])
    index._check()


@functools.cache
def huge_world():
    """Return huge expressions, messages, and what matches."""
    rng = seeded(8)

    def deep(depth, operator):
        other = "or" if operator == "and" else "and"
        return rng.randrange(64) if depth == 0 else [operator, deep(depth - 1, other), rng.randrange(64), deep(0, other)]

    wide = ["or", *(["and", *rng.sample(range(64), 3)] for _ in range(85)), 63]
    tree = [i % 64 for i in range(256)]
    while len(tree) > 1:
        tree = [[rng.choice(["and", "or"]), a, b] for a, b in zip(tree[::2], tree[1::2])]
    subscriptions = {
        0: (WORLD, ["and", *range(256)]),
        1: (WORLD, ["or", *range(256)]),
        2: (WORLD, wide),
        3: (WORLD, tree[0]),
        4: (WORLD, deep(16, "and")),
        5: (WORLD, deep(16, "or")),
        6: (WORLD, deep(15, "and")),
    }
    rows = [(0.0, 0.0, list(range(256)))] + [(0.0, 0.0, rng.sample(range(64), rng.randrange(1, 60))) for _ in range(300)]
    return subscriptions, messages_of(rows), expected(subscriptions, rows)


def test_huge_expressions(index):
    subscriptions, batch, wanted = huge_world()
    filled(index, subscriptions)._check()
    assert pairs(index.match(batch)) == wanted
    assert {slot for _, slot in wanted} == set(subscriptions)
    restored = make_index(index.name)
    restored.restore(unpack_state(pack_state(index.snapshot())))
    assert pairs(restored.match(batch)) == wanted


@pytest.mark.parametrize("words", [3, 20])
def test_no_subscription_is_lost_while_the_vocabulary_grows(index, words):
    rng = seeded(words)
    box = (0.0, 0.0, 9.0, 9.0)
    subscriptions = {slot: (box, ["and", *sorted(rng.sample(range(60_000), words))]) for slot in range(6000 // words)}
    for start in range(0, len(subscriptions), 100):
        filled(index, {slot: subscriptions[slot] for slot in range(start, min(start + 100, len(subscriptions)))})
    index._check()
    rows = [(5.0, 5.0, expression[1:]) for _, expression in subscriptions.values()]
    message, slot = index.match(messages_of(rows))
    assert set(subscriptions) <= set(slot[message == slot].tolist())


@functools.cache
def one_term_world():
    """Return subscriptions of which nearly all are under one term, messages, and what matches without every seventh subscription."""
    rng = seeded(11)
    subscriptions = {slot: (any_subscription(rng)[0], rng.choice([5, ["and", 5, 6], ["or", 5, 4], ["and", 5, ["or", 6, 7]]])) for slot in range(3000)}
    rows = [(lat, lon, rng.choice([[5], [5, 6], [4], [4, 5, 7], [6, 7]])) for lat, lon, _ in (any_message(rng) for _ in range(25))]
    return subscriptions, messages_of(rows), expected({slot: s for slot, s in subscriptions.items() if slot % 7}, rows)


@pytest.mark.long
def test_many_subscriptions_under_one_term(index):
    subscriptions, batch, wanted = one_term_world()
    filled(index, subscriptions)._check()
    index.remove_many(range(0, 3000, 7))
    assert pairs(index.match(batch)) == wanted
    assert len(wanted) > 3000


def test_equal_and_nested_children_change_nothing(index):
    expressions = [
        ["and", 1, 1],
        ["or", 2, 2],
        ["and", ["and", 1, 2], ["and", 2, 3]],
        ["or", ["and", 4], ["or", 4, ["or", 5]]],
        ["and", ["or", 1, 2], ["or", 2, 1]],
        ["and", ["and", ["and", 6]]],
    ]
    subscriptions = {slot: (WORLD, e) for slot, e in enumerate(expressions)}
    rows = [(0.0, 0.0, [t for t in range(1, 7) if bits >> t & 1]) for bits in range(128)]
    assert pairs(filled(index, subscriptions).match(messages_of(rows))) == expected(subscriptions, rows)


def test_conjunctions_may_be_given_as_columns(index):
    terms = np.array([3, 5, 1, 2, 3, 4, 5, 6, 7, 9, 8, 8, 9])  # the last ones neither rise nor are there once
    index.insert_conjunctions([0, 4, 9, 10], np.tile(np.array(WORLD), (4, 1)), np.array([0, 2, 3, 9, 13]), terms)
    index._check()
    rows = [(0.0, 0.0, [2, 3, 4, 5, 6, 7]), (0.0, 0.0, [1, 8, 9]), (0.0, 0.0, [3, 4])]
    assert pairs(index.match(messages_of(rows))) == [(0, 0), (0, 9), (1, 4), (1, 10)]
    with pytest.raises(IllegalArgumentException, match="cannot be indexed"):
        index.insert_conjunctions([5, 6], np.tile(np.array(WORLD), (2, 1)), np.array([0, 0, 2]), np.array([1, 2]))
    with pytest.raises(IllegalArgumentException, match="A slot must be free"):
        index.insert_conjunctions([4], np.array([WORLD]), np.array([0, 1]), np.array([1]))
    index.insert_conjunctions([], np.zeros((0, 4)), np.array([0]), np.zeros(0, np.int64))
    assert len(index) == 4


def test_what_is_given_may_be_read_only_or_of_numpy(index):
    boxes = np.array([WORLD])
    boxes.flags.writeable = False
    index.insert_many(np.array([4], np.int32), boxes, [["and", np.int64(3), np.int32(5)]])
    for rows in ([(1.0, 1.0, [3, 5])], [((1.0, 1.0, 2.0, 2.0), [3, 5])]):
        batch = messages_of(rows)
        for array in batch:
            if array is not None:
                array.flags.writeable = False
        assert pairs(index.match(batch)) == [(0, 4)]


def test_a_state_is_that_of_the_moment_it_was_taken(index):
    rng = seeded(9)
    subscriptions = {slot: any_subscription(rng) for slot in range(50)}
    rows = [any_message(rng) for _ in range(40)]
    state = filled(index, subscriptions).snapshot()
    index.remove_many(range(0, 50, 2))
    index.insert(0, WORLD, 1)
    index.restore(state)
    index._check()
    assert pairs(index.match(messages_of(rows))) == expected(subscriptions, rows)


@pytest.mark.parametrize(
    ("slots", "boxes", "expressions", "message"),
    [
        ([5], [WORLD], [1], "A slot must be free.*given: \\[5\\]"),
        ([-1], [WORLD], [1], "A slot must be free"),
        ([2**31], [WORLD], [1], "A slot must be free"),
        ([6, 6], [WORLD, WORLD], [1, 2], "A slot must be free, and be given once"),
        ([6, 7], [WORLD, WORLD], [1, ["xor", 1, 2]], "cannot be indexed.*given: \\['xor', 1, 2\\].*legal: an int"),
        ([6], [WORLD], [["and"]], "cannot be indexed"),
        ([6], [WORLD], [[]], "cannot be indexed"),
        ([6], [WORLD], ["coffee"], "cannot be indexed"),
        ([6], [WORLD], [True], "cannot be indexed"),
        ([6], [WORLD], [1.5], "cannot be indexed"),
        ([6], [(0.0, 0.0, math.nan, 1.0)], [1], "Rectangles cannot be indexed"),
        ([6], [(0.0, 0.0, math.inf, 1.0)], [1], "Rectangles cannot be indexed"),
        ([6], [(0.0, 0.0, 1.0)], [1], "Rectangles cannot be indexed"),
        ([6, 7], [WORLD, WORLD], [1], "Rectangles cannot be indexed"),
        ([6, 7], [WORLD], [1], "Each subscription needs a slot"),
    ],
)
def test_what_cannot_be_inserted_is_refused_as_a_whole(index, slots, boxes, expressions, message):
    index.insert(5, WORLD, 9)
    with pytest.raises(IllegalArgumentException, match=message):
        index.insert_many(slots, boxes, expressions)
    index._check()
    assert len(index) == 1
    assert pairs(index.match(messages_of([(0.0, 0.0, [1, 2, 9])]))) == [(0, 5)]


@pytest.mark.parametrize("slots", [[4], [5, 5], [5, 6], [-1], [10**9]])
def test_what_cannot_be_removed_is_refused_as_a_whole(index, slots):
    index.insert(5, WORLD, 9)
    with pytest.raises(IllegalArgumentException, match="must hold a subscription"):
        index.remove_many(slots)
    assert len(index) == 1


def test_memory_is_told_and_slots_are_used_again(index):
    rng = seeded(10)
    subscriptions = {slot: any_subscription(rng) for slot in range(400)}
    filled(index, subscriptions)
    index.remove_many(list(subscriptions))
    filled(index, subscriptions)
    index.remove_many(list(subscriptions))
    once = index.memory_bytes
    assert once > 0
    for _ in range(20):
        filled(index, subscriptions)
        index.remove_many(list(subscriptions))
    assert index.memory_bytes == once


def test_unknown_names_and_options_are_refused():
    with pytest.raises(IllegalArgumentException, match=r"index is not known.*given: 'slow'.*legal: .*plain"):
        make_index("slow")
    for name in INDEXES:
        with pytest.raises(IllegalArgumentException, match="option of boolean index .* is not known.*given: 'cells-please'"):
            make_index(name, {"cells-please": 3})
