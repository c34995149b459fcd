"""Merging what replicas have found: what is published when, and in what order."""

import itertools
import random
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.merging.merger import Event, Merger, TopkList
from dskype.bolts.protocol.merging import PART, Begin, Finish, ReplicaDropped, ReplicaGone, ReplicaList
from dskype.bolts.ranked_lists import RankedList
from dskype.bolts.results.base import Removal
from dskype.bolts.results.events import ADD, REMOVE
from dskype.spouts.streams import Results
from dskype.topology.core.values import pack_state, unpack_state


class Delta(NamedTuple):
    subscription: str
    registration: str
    kind: int
    watermark: int
    message: str
    score: float = 0.0
    rank: int = 0
    meta: str | None = None


def columns(*entries):
    """Return a list's columns of (seq, score) pairs; the position is the seq."""
    return RankedList([seq for seq, _ in entries], [seq for seq, _ in entries], [score for _, score in entries], [f'"m{seq}"' for seq, _ in entries])


def replica(watermark, claims, entries=None, *, alone=False, base=None, k=2, registration="0-1"):
    lists = (None if rows is None else columns(*rows) for rows in (entries, base))
    return ReplicaList.decode(
        unpack_state(pack_state([registration, watermark, k, None, claims, alone, *(None if ranked is None else list(ranked) for ranked in lists)]))
    )


def gone(meta=None, base=None, registration="0-1"):
    return ReplicaGone(registration, meta, base)


def change(merger, task, *rows, registration="0-1"):
    """Have changes of a task's list merged: (op, watermark, seq, position, score, message)."""
    kinds, watermarks, seqs, positions, scores, messages = zip(*rows)
    batch = Results(
        subscription=None,
        registration=pa.array([registration] * len(rows)),
        kind=np.array(kinds, np.int8) + PART,
        watermark=np.array(watermarks),
        message=pa.array(messages),
        score=np.array(scores, float),
        seq=np.array(seqs),
        position=np.array(positions),
    )
    return merger.receive_changes(task, batch).tolist()


def taken(merger):
    """Return all that is to be published as rows: deltas, events, lists."""
    batches, events, items, lists = merger.pop_publication()
    deltas = []
    for batch in reversed(batches):  # that of the fast path comes first
        n = len(batch.kind)
        given = replace(batch, **{name: [default] * n for name, default in Delta._field_defaults.items() if getattr(batch, name) is None})
        deltas += map(Delta._make, given.each(*Delta._fields))
    if lists is not None:
        messages, scores, bounds = lists.messages.to_pylist(), lists.scores.tolist(), lists.offsets.tolist()
        items = items + [
            TopkList(*row)
            for row in zip(
                lists.subscriptions.tolist(),
                lists.registrations.tolist(),
                lists.watermarks.tolist(),
                [messages[a:b] for a, b in itertools.pairwise(bounds)],
                [scores[a:b] for a, b in itertools.pairwise(bounds)],
            )
        ]
    return deltas, events, items


def ops(merger):
    """Return (op, message, rank, watermark) of the deltas, and the events and lists."""
    deltas, events, items = taken(merger)
    return [("add" if d.kind == ADD else "remove", d.message, d.rank, d.watermark) for d in deltas], [(e.event, e.watermark) for e in events], items


def test_one_replica_is_passed_on_once_it_has_begun():
    merger = Merger(100)
    merger.begin("s", "0-1", Begin(True, 4))
    merger.receive("s", 7, replica(3, [[1, [7]]], [(3, 0.5)], alone=True))
    assert merger.owns("0-1", 7) and ops(merger) == ([], [], [])
    merger.advance(4)
    assert ops(merger) == ([("add", '"m3"', 1, 4)], [("active", 4)], [TopkList("s", "0-1", 4, ['"m3"'], [0.5])])
    assert len(merger) == 0 and not merger.owns("0-1", 7)
    merger.finish("s", "0-1", Finish(True, 9, [7], False))
    merger.receive("s", 7, gone(None, columns((5, 0.7))))
    assert taken(merger) == ([Delta("s", "0-1", REMOVE, 9, '"m5"', 0.7)], [Event("s", "0-1", "removed", 9)], [Removal("s", "0-1", 9)])
    assert len(merger) == 0


def test_the_lists_of_several_replicas_become_one_at_every_watermark():
    merger = Merger(100)
    merger.begin("s", "0-1", Begin(True, -1))
    merger.advance(3)
    both = [[1, [7, 8]]]
    merger.receive("s", 7, replica(3, both, [(3, 0.5), (1, 0.3)]))
    assert ops(merger) == ([], [], [])
    merger.receive("s", 8, replica(3, both, [(3, 0.5), (2, 0.3)]))
    assert ops(merger)[:2] == ([("add", '"m3"', 1, 3), ("add", '"m2"', 2, 3)], [("active", 3)])  # of equal scores the newer one first, and m3 once
    change(merger, 8, (ADD, 5, 5, 5, 0.4, '"m5"'))
    change(merger, 8, (REMOVE, 6, 3, 3, 0.0, '"m3"'))
    change(merger, 7, (REMOVE, 6, 3, 3, 0.0, '"m3"'))
    change(merger, 7, (ADD, 4, 4, 4, 0.9, '"m4"'))
    merger.advance(6)
    assert ops(merger)[0] == [("remove", '"m2"', 0, 4), ("add", '"m4"', 1, 4), ("remove", '"m3"', 0, 6), ("add", '"m5"', 2, 6)]
    merger.write_lists()
    assert taken(merger)[2] == [TopkList("s", "0-1", 6, ['"m4"', '"m5"'], [0.9, 0.4])]
    merger.receive("s", 7, replica(7, []))  # pending from here on
    change(merger, 8, (ADD, 8, 8, 8, 0.95, '"m8"'))
    merger.advance(8)
    assert ops(merger) == ([], [], []) and not merger.write_lists()
    merger.receive("s", 7, replica(8, both, [(4, 0.9)]))
    assert ops(merger)[0] == [("remove", '"m5"', 0, 8), ("add", '"m8"', 1, 8)]
    assert len(merger) == 1


def test_one_replica_hands_over_to_two_and_two_to_one():
    merger = Merger(100)
    merger.advance(5)
    merger.receive("s", 8, replica(5, [[2, [7, 8]]], [(4, 0.9)]))  # it was alone on 7 until now, which speaks later
    assert ops(merger) == ([], [], []) and not merger.owns("0-1", 7) and merger.owns("0-1", 8)
    merger.receive("s", 7, replica(5, [[1, [7]], [2, [7, 8]]], [(3, 0.5)], base=[(3, 0.5)]))
    assert ops(merger)[:2] == ([("add", '"m4"', 1, 5)], [])
    merger.receive("s", 7, ReplicaDropped("0-1", 6))
    merger.receive("s", 8, replica(7, [[3, [8]]], [(4, 0.9), (3, 0.5)], alone=True))
    assert len(merger) == 1
    merger.advance(7)
    assert ops(merger)[0] == [] and len(merger) == 0


def test_while_a_subscription_moves_its_old_epoch_goes_on():
    merger = Merger(100)
    merger.advance(5)
    merger.receive("s", 7, replica(5, [[1, [7]], [2, [7, 8]]], [(3, 0.5)], base=[(3, 0.5)]))
    change(merger, 7, (ADD, 6, 6, 6, 0.7, '"m6"'))
    merger.advance(6)
    assert ops(merger)[0] == [("add", '"m6"', 1, 6)] and len(merger) == 1


def test_a_registration_is_published_after_the_one_before_has_been_taken_back():
    merger = Merger(100)
    merger.advance(5)
    merger.receive("s", 8, replica(5, [[1, [8]]], [(5, 0.9)], alone=True, registration="0-2"))  # faster than what is known of it
    merger.finish("s", "0-1", Finish(True, 5, [7], True))
    merger.begin("s", "0-2", Begin(True, 5))
    assert taken(merger) == ([], [], [])
    merger.receive("s", 7, gone('{"x":1}', columns((3, 0.5))))
    deltas, events, items = taken(merger)
    assert [(d.registration, d.kind, d.meta, d.watermark) for d in deltas] == [("0-1", REMOVE, '{"x":1}', 5), ("0-2", ADD, None, 5)]
    assert [(e.registration, e.event) for e in events] == [("0-1", "removed"), ("0-2", "active")]
    assert [type(item) for item in items] == [TopkList] and len(merger) == 0


def test_one_that_ends_before_it_was_known_leaves_its_events_only():
    merger = Merger(100)
    merger.begin("s", "0-1", Begin(True, 5))
    merger.finish("s", "0-1", Finish(True, 5, [7, 8], False))
    merger.receive("s", 8, gone(None, None))
    assert taken(merger) == ([], [], [])
    merger.receive("s", 7, gone(None, columns((3, 0.5))))  # it was sure to be alone; nothing of it had been published
    assert taken(merger) == ([], [Event("s", "0-1", "removed", 5)], [Removal("s", "0-1", 5)]) and len(merger) == 0


def test_what_was_handed_over_and_waits_is_what_is_taken_back():
    merger = Merger(100)
    merger.advance(3)
    merger.finish("s", "0-1", Finish(True, 9, [7], False))
    merger.receive("s", 7, replica(9, [[1, [7]]], [(8, 0.9)], alone=True, base=[(2, 0.5)]))
    merger.receive("s", 7, gone(None, columns((8, 0.9))))
    assert ops(merger)[0] == [("remove", '"m2"', 0, 9)] and len(merger) == 0


def test_boolean_registrations_are_removed_when_all_their_matches_are_there():
    merger = Merger(100)
    merger.begin("b", "0-3", Begin(False, 2))
    merger.finish("b", "0-3", Finish(False, 6, [7, 8], False))
    assert ops(merger) == ([], [("active", 2)], [])
    merger.advance(6)
    assert ops(merger) == ([], [("removed", 6)], []) and len(merger) == 0


def test_what_old_tasks_say_late_is_nothing():
    merger = Merger(100)
    merger.advance(9)
    merger.receive("s", 7, replica(9, []))
    merger.receive("s", 7, ReplicaDropped("0-1", 9))
    change(merger, 7, (ADD, 10, 1, 1, 0.5, "1"))
    assert len(merger) == 0
    merger.receive("s", 7, replica(9, [[2, [7, 8]]], [(3, 0.5)]))
    merger.receive("s", 7, ReplicaDropped("0-1", 9))
    assert len(merger) == 0 and taken(merger) == ([], [], [])


@pytest.mark.long
def test_a_snapshot_anywhere_changes_nothing():
    published = 0
    for seed in range(30):
        rng, merger, copy = random.Random(seed), Merger(100), Merger(100)
        found = []
        for watermark in range(12):
            calls = []
            if watermark == 0:
                calls.append(("begin", "s", "0-1", Begin(True, 0)))
            for task in (7, 8):
                if rng.random() < 0.5:
                    calls.append(("receive", "s", task, replica(watermark, rng.choice([[[1, [7, 8]]], [[1, [7, 8]]], []]), [(watermark, rng.random())])))
                calls.append(("change", task, (ADD, watermark + 1, 100 + watermark, watermark, rng.random(), "1")))
            calls.append(("advance", watermark + rng.randint(0, 1)))
            for name, *arguments in calls:
                for one in (merger, copy):
                    change(one, *arguments) if name == "change" else getattr(one, name)(*arguments)
            merger.write_lists(), copy.write_lists()
            found.append(taken(merger))
            assert taken(copy) == found[-1]
            state, copy = unpack_state(pack_state(copy.snapshot())), Merger(100)
            copy.restore(state)
        published += any(deltas for deltas, _, _ in found)
    assert published > 20


@pytest.mark.long
def test_arrays_publish_what_single_lists_would():
    """Replicas with random messages, which expire; some are pending for a while; a snapshot is taken now and then."""
    extent, k, tasks = 8, 3, (7, 8, 9)

    class Loose(Merger):
        def _enter_fast_path(self, one, replicas):
            pass

    steady_deltas = 0
    for seed in range(25):
        rng, both = random.Random(seed), (Merger(extent), Loose(extent))
        got = {(name, task): {} for name in "abc" for task in tasks}  # seq -> score of what a replica received
        lists = {key: [] for key in got}
        pending = dict.fromkeys(got, False)
        for one in both:
            for name in "abc":
                one.begin(name, f"0-{ord(name)}", Begin(True, -1))
        watermark = -1

        def tell(key):
            name, task = key
            for one in both:
                rows = [[seq, *rest] for seq, *rest in lists[key]]
                ranked = None if pending[key] else [list(column) for column in zip(*rows)] or [[], [], [], []]
                claims = [] if pending[key] else [[1, list(tasks)]]
                one.receive(name, task, ReplicaList.decode([f"0-{ord(name)}", watermark, k, None, claims, False, ranked, None]))

        for key in got:
            tell(key)
        for step in range(60):
            for _ in range(rng.randint(1, 4)):
                watermark += 1
                score = rng.choice((0.1, 0.5, rng.random()))
                for key in got:
                    name, task = key
                    if rng.random() < 0.5:
                        got[key][watermark] = score
                    live = sorted(((s, seq) for seq, s in got[key].items() if seq > watermark - extent), reverse=True)[:k]
                    new = [(seq, seq, s, f'"m{seq}"') for s, seq in live]
                    rows = [(REMOVE, watermark, *row[:2], 0.0, row[3]) for row in lists[key] if row not in new]
                    rows += [(ADD, watermark, *row) for row in new if row not in lists[key]]
                    lists[key] = new
                    if rows and not pending[key]:
                        for one in both:
                            change(one, task, *rows, registration=f"0-{ord(name)}")
            for key in got:
                if rng.random() < 0.03:
                    pending[key] = not pending[key]
                    tell(key)
            reached = max(both[0].watermark, watermark - rng.randint(0, 2))
            found = []
            for one in both:
                one.advance(reached)
                one._fast._check()
                if step % 3 == 0:
                    one.write_lists()
                steady_deltas += one._fast_deltas is not None
                deltas, events, items = taken(one)
                found.append((sorted(deltas, key=lambda d: d.subscription), events, sorted(items, key=lambda item: item.subscription)))
            assert found[0] == found[1], (seed, step)
            if rng.random() < 0.1:
                state, copy = unpack_state(pack_state(both[0].snapshot())), Merger(extent)
                copy.restore(state)
                both = (copy, both[1])
    assert steady_deltas > 300
