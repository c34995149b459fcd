"""Merging what replicas have found: what is published when, and in what order."""

import random

from dskype.bolts.merging import Delta, Event, Merger, Removed, Whole
from dskype.bolts.results.formats import ADD, REMOVE
from dskype.topology.core.frames import pack_state, unpack_state


def columns(*entries):
    """Return a list's columns of (seq, score) pairs; the position is the seq."""
    return [[seq for seq, _ in entries], [seq for seq, _ in entries], [score for _, score in entries], [f'"m{seq}"' for seq, _ in entries]]


def replica(watermark, claims, entries=None, *, alone=False, base=None, k=2, registration="0-1"):
    return [registration, watermark, k, None, claims, alone, None if entries is None else columns(*entries), None if base is None else columns(*base)]


def ops(merger):
    """Return (op, message, rank, watermark) of the deltas, and the events and lists."""
    deltas, events, items = merger.taken()
    return [("add" if d.op == ADD else "remove", d.message, d.rank, d.watermark) for d in deltas], [(e.event, e.watermark) for e in events], items


def test_one_replica_is_passed_on_once_it_has_begun():
    merger = Merger()
    merger.begin("s", "0-1", True, 4)
    merger.replica("s", 7, replica(3, [[1, [7]]], [(3, 0.5)], alone=True))
    assert merger.owns("0-1", 7) and ops(merger) == ([], [], [])
    merger.advance(4)
    assert ops(merger) == ([("add", '"m3"', 1, 4)], [("active", 4)], [Whole("s", "0-1", 4, ['"m3"'], [0.5])])
    assert len(merger) == 0 and not merger.owns("0-1", 7)
    merger.end("s", "0-1", True, 9, [7], False)
    merger.gone("s", 7, ["0-1", None, columns((5, 0.7))])
    assert merger.taken() == ([Delta("s", "0-1", None, REMOVE, '"m5"', 0.7, 0, 9)], [Event("s", "0-1", "removed", 9)], [Removed("s", "0-1", 9)])
    assert len(merger) == 0


def test_the_lists_of_several_replicas_become_one_at_every_watermark():
    merger = Merger()
    merger.begin("s", "0-1", True, -1)
    merger.advance(3)
    both = [[1, [7, 8]]]
    merger.replica("s", 7, replica(3, both, [(3, 0.5), (1, 0.3)]))
    assert ops(merger) == ([], [], [])
    merger.replica("s", 8, replica(3, both, [(3, 0.5), (2, 0.3)]))
    assert ops(merger)[:2] == ([("add", '"m3"', 1, 3), ("add", '"m2"', 2, 3)], [("active", 3)])   # of equal scores the newer one first, and m3 once
    merger.change("0-1", 8, ADD, 5, 5, 5, 0.4, '"m5"')
    merger.change("0-1", 8, REMOVE, 6, 3, 3, 0.0, '"m3"')
    merger.change("0-1", 7, REMOVE, 6, 3, 3, 0.0, '"m3"')
    merger.change("0-1", 7, ADD, 4, 4, 4, 0.9, '"m4"')
    merger.advance(6)
    assert ops(merger)[0] == [("remove", '"m2"', 0, 4), ("add", '"m4"', 1, 4), ("remove", '"m3"', 0, 6), ("add", '"m5"', 2, 6)]
    merger.write_lists()
    assert merger.taken()[2] == [Whole("s", "0-1", 6, ['"m4"', '"m5"'], [0.9, 0.4])]
    merger.replica("s", 7, replica(7, []))      # pending from here on
    merger.change("0-1", 8, ADD, 8, 8, 8, 0.95, '"m8"')
    merger.advance(8)
    assert ops(merger) == ([], [], []) and not merger.write_lists()
    merger.replica("s", 7, replica(8, both, [(4, 0.9)]))
    assert ops(merger)[0] == [("remove", '"m5"', 0, 8), ("add", '"m8"', 1, 8)]
    assert len(merger) == 1


def test_one_replica_hands_over_to_two_and_two_to_one():
    merger = Merger()
    merger.advance(5)
    merger.replica("s", 8, replica(5, [[2, [7, 8]]], [(4, 0.9)]))     # it was alone on 7 until now, which speaks later
    assert ops(merger) == ([], [], []) and not merger.owns("0-1", 7) and merger.owns("0-1", 8)
    merger.replica("s", 7, replica(5, [[1, [7]], [2, [7, 8]]], [(3, 0.5)], base=[(3, 0.5)]))
    assert ops(merger)[:2] == ([("add", '"m4"', 1, 5)], [])
    merger.drop(7, ["0-1", 6])
    merger.replica("s", 8, replica(7, [[3, [8]]], [(4, 0.9), (3, 0.5)], alone=True))
    assert len(merger) == 1
    merger.advance(7)
    assert ops(merger)[0] == [] and len(merger) == 0


def test_while_a_subscription_moves_its_old_epoch_goes_on():
    merger = Merger()
    merger.advance(5)
    merger.replica("s", 7, replica(5, [[1, [7]], [2, [7, 8]]], [(3, 0.5)], base=[(3, 0.5)]))
    merger.change("0-1", 7, ADD, 6, 6, 6, 0.7, '"m6"')
    merger.advance(6)
    assert ops(merger)[0] == [("add", '"m6"', 1, 6)] and len(merger) == 1


def test_a_registration_is_published_after_the_one_before_has_been_taken_back():
    merger = Merger()
    merger.advance(5)
    merger.replica("s", 8, replica(5, [[1, [8]]], [(5, 0.9)], alone=True, registration="0-2"))   # faster than what is known of it
    merger.end("s", "0-1", True, 5, [7], True)
    merger.begin("s", "0-2", True, 5)
    assert merger.taken() == ([], [], [])
    merger.gone("s", 7, ["0-1", '{"x":1}', columns((3, 0.5))])
    deltas, events, items = merger.taken()
    assert [(d.registration, d.op, d.meta, d.watermark) for d in deltas] == [("0-1", REMOVE, '{"x":1}', 5), ("0-2", ADD, None, 5)]
    assert [(e.registration, e.event) for e in events] == [("0-1", "removed"), ("0-2", "active")]
    assert [type(item) for item in items] == [Whole] and len(merger) == 0


def test_one_that_ends_before_it_was_known_leaves_its_events_only():
    merger = Merger()
    merger.begin("s", "0-1", True, 5)
    merger.end("s", "0-1", True, 5, [7, 8], False)
    merger.gone("s", 8, ["0-1", None, None])
    assert merger.taken() == ([], [], [])
    merger.gone("s", 7, ["0-1", None, columns((3, 0.5))])       # it was sure to be alone; nothing of it had been published
    assert merger.taken() == ([], [Event("s", "0-1", "removed", 5)], [Removed("s", "0-1", 5)]) and len(merger) == 0


def test_what_was_handed_over_and_waits_is_what_is_taken_back():
    merger = Merger()
    merger.advance(3)
    merger.end("s", "0-1", True, 9, [7], False)
    merger.replica("s", 7, replica(9, [[1, [7]]], [(8, 0.9)], alone=True, base=[(2, 0.5)]))
    merger.gone("s", 7, ["0-1", None, columns((8, 0.9))])
    assert ops(merger)[0] == [("remove", '"m2"', 0, 9)] and len(merger) == 0


def test_boolean_registrations_are_removed_when_all_their_matches_are_there():
    merger = Merger()
    merger.begin("b", "0-3", False, 2)
    merger.end("b", "0-3", False, 6, [7, 8], False)
    assert ops(merger) == ([], [("active", 2)], [])
    merger.advance(6)
    assert ops(merger) == ([], [("removed", 6)], []) and len(merger) == 0


def test_what_old_tasks_say_late_is_nothing():
    merger = Merger()
    merger.advance(9)
    merger.replica("s", 7, replica(9, []))
    merger.drop(7, ["0-1", 9])
    merger.change("0-1", 7, ADD, 10, 1, 1, 0.5, "1")
    assert len(merger) == 0
    merger.replica("s", 7, replica(9, [[2, [7, 8]]], [(3, 0.5)]))
    merger.drop(7, ["0-1", 9])
    assert len(merger) == 0 and merger.taken() == ([], [], [])


def test_a_snapshot_anywhere_changes_nothing():
    published = 0
    for seed in range(30):
        rng, merger, copy = random.Random(seed), Merger(), Merger()
        found = []
        for watermark in range(12):
            calls = []
            if watermark == 0:
                calls.append(("begin", "s", "0-1", True, 0))
            for task in (7, 8):
                if rng.random() < 0.5:
                    calls.append(("replica", "s", task, replica(watermark, rng.choice([[[1, [7, 8]]], [[1, [7, 8]]], []]), [(watermark, rng.random())])))
                calls.append(("change", "0-1", task, ADD, watermark + 1, 100 + watermark, watermark, rng.random(), "1"))
            calls.append(("advance", watermark + rng.randint(0, 1)))
            for name, *arguments in calls:
                for one in (merger, copy):
                    getattr(one, name)(*unpack_state(pack_state(list(arguments))))
            merger.write_lists(), copy.write_lists()
            found.append(merger.taken())
            assert copy.taken() == found[-1]
            state, copy = unpack_state(pack_state(copy.snapshot())), Merger()
            copy.restore(state)
        published += any(deltas for deltas, _, _ in found)
    assert published > 20
