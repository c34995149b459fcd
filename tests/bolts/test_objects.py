"""The table of objects makes the pairs that the plain oracle makes, whatever was restored in between."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts import objects
from dskype.bolts.message_queue import Arrived
from dskype.bolts.objects import ObjectTable, ObjectUpdates, StatePairs
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.columns import lists_to_csr
from dskype.topology.core.values import pack_state, unpack_state
from tests.naive import object_changes


def message(rng, seq, timed):
    """Return an update; what its state says follows from the seq."""
    time_ms = seq * 3 + rng.randrange(12)
    return {
        "seq": seq,
        "position": time_ms if timed else seq,
        "id": f'"m{seq}"',
        "object": rng.choice(["a", "b", "c", "é", "7"]),
        "deleted": rng.random() < 0.15,
        "own_ms": time_ms,
        "arrival_ms": seq * 3 + 100,
    }


def updates_of(messages):
    """Return updates as columns."""
    seqs = np.array([m["seq"] for m in messages], np.int64)
    terms = [list(range(seq % 4)) for seq in seqs.tolist()]
    offsets, flat = lists_to_csr(terms, np.int64)
    places = MessageBatch(seqs, np.array([m["position"] for m in messages], np.int64), seqs / 2, seqs / 4, offsets, flat, flat / 8)
    details = Details.empty(len(seqs))
    details = details._replace(attribute_offsets=offsets, attributes=flat)
    arrived = Arrived(places, pa.array([m["id"] for m in messages], pa.string()), np.array([m["arrival_ms"] for m in messages], np.int64), details)
    names = pa.array([m["object"] for m in messages], pa.string())
    return ObjectUpdates(arrived, names, np.array([m["own_ms"] for m in messages], np.int64), np.array([m["deleted"] for m in messages], np.int8))


def rows_of(pairs):
    """Return pairs as (position, id, arrival, before, seq of the state, its position, its arrival); check that the state is that of its seq."""
    found = []
    messages, ids, arrival_ms, details = pairs.states
    for i, id in enumerate(ids.to_pylist()):
        state = round(messages.lat[i] * 2)
        assert messages.lon[i] == state / 4 and messages.offsets[i + 1] - messages.offsets[i] == state % 4
        assert details.attributes[details.attribute_offsets[i] : details.attribute_offsets[i + 1]].tolist() == list(range(state % 4))
        found.append((int(messages.position[i]), id, int(arrival_ms[i]), int(pairs.before[i]), state, int(pairs.since[i]), int(pairs.since_ms[i])))
    return found


def expected_rows(changes):
    found = []
    for change in changes:
        for before, state in enumerate((change["after"], change["before"])):
            if state is not None:
                found.append((change["position"], change["id"], change["arrival_ms"], before, state["seq"], state["position"], state["arrival_ms"]))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_pairs_are_those_of_the_oracle(seed, monkeypatch):
    monkeypatch.setattr(objects, "_SLACK", random.Random(seed).choice([0, 3, 4096]))
    rng, timed = random.Random(seed), seed % 2 == 1
    ttl_ms = rng.choice([None, 5, 30]) if timed else None
    messages = sorted((message(rng, seq, timed) for seq in range(120)), key=lambda m: (m["position"], m["seq"]))
    table, found, watermark, seen = ObjectTable(ttl_ms, 100), [], -1, []
    while seen != messages:
        watermark += rng.randrange(20)
        due = [m for m in messages if m["position"] <= watermark][len(seen) :]
        seen += due
        pairs = table.apply(updates_of(due), watermark)
        found += rows_of(pairs)
        if rng.random() < 0.3:
            state, restored = unpack_state(pack_state(table.snapshot())), ObjectTable(ttl_ms, 100)
            restored.restore(state)
            assert (len(restored), restored.outdated) == (len(table), table.outdated)
            table = restored
        kept = StatePairs.restored(unpack_state(pack_state(pairs.snapshot())))
        assert rows_of(kept) == rows_of(pairs)
    changes = object_changes(messages, watermark, ttl_ms)
    # Where objects expire at the same position as something else happens to others, the order is free.
    assert sorted(found) == sorted(expected_rows(changes)) and [row[0] for row in found] == sorted(row[0] for row in found)
    left_out = [m for m in messages if m["id"] not in {change["id"] for change in changes}]
    assert sum(not m["deleted"] for m in left_out) <= table.outdated <= len(left_out)
    assert sum(len(slots) for _, slots in table._chunks.values()) <= 2 * len(table) + objects._SLACK + len(messages)


@pytest.mark.parametrize("seed", range(20))
def test_updates_that_only_replace_states_are_followed_alike_with_and_without_a_loop(seed, monkeypatch):
    rng, timed = random.Random(seed), seed % 2 == 1
    ttl_ms = rng.choice([None, 40]) if timed else None
    messages = [{**message(rng, seq, timed), "deleted": rng.random() < 0.01} for seq in range(300)]
    for m in messages:
        m["object"] = str(rng.randrange(26))
        m["own_ms"] = m["position"] if rng.random() < 0.99 else 0
    messages.sort(key=lambda m: (m["position"], m["seq"]))
    fast, slow, plain = ObjectTable(ttl_ms, 25), ObjectTable(ttl_ms, 25), []
    followed = ObjectTable._follow_plain

    def follow(table, updates):
        found = None if table is slow else followed(table, updates)
        plain.append(found is not None)
        return found

    monkeypatch.setattr(ObjectTable, "_follow_plain", follow)
    while messages:
        due, messages = messages[: (n := rng.randrange(1, 20))], messages[n:]
        one, other = (rows_of(table.apply(updates_of(due), due[-1]["position"])) for table in (fast, slow))
        assert one == other and (fast.outdated, fast.refused, len(fast)) == (slow.outdated, slow.refused, len(slow))
    assert timed or plain.count(True) > 5


def test_a_full_table_refuses_further_objects_and_no_updates():
    table = ObjectTable(None, 2)

    def update(seq, name, deleted=False):
        row = {"seq": seq, "position": seq, "id": str(seq), "object": name, "deleted": deleted, "own_ms": seq, "arrival_ms": seq}
        return [row[3:5] for row in rows_of(table.apply(updates_of([row]), seq))]

    assert update(0, "a") == [(0, 0)] and update(1, "b") == [(0, 1)]
    assert update(2, "c") == [] and (len(table), table.refused) == (2, 1)
    assert update(3, "a") == [(0, 3), (1, 0)]
    assert update(4, "b", deleted=True) == [(1, 1)] and update(5, "c") == [(0, 5)]
    assert update(6, "d", deleted=True) == [] and (len(table), table.refused) == (2, 1)
