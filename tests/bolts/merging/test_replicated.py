"""What the result bolt does with deltas of subscriptions that may live on several tasks."""

import numpy as np

from dskype.bolts.merging.replicated import ReplicatedResults
from dskype.bolts.results.deltas import encoded, plain
from dskype.bolts.results.events import INITIAL, MATCH
from dskype.topology.core.values import pack_state, unpack_state
from tests.bolts.results.batches import batch


class Context:
    def register_gauge(self, name, value):
        pass


def arrived(*rows):
    """Return matches as they arrive, of (kind, watermark, message, seq)."""
    kinds, watermarks, messages, seqs = zip(*rows)
    n = len(rows)
    given = batch(["b"] * n, ["0-3"] * n, np.array(kinds, np.int8), watermarks, messages, meta=["{}"] * n, seq=np.array(seqs), position=np.array(seqs))
    return plain(encoded(given))


def test_a_match_that_several_tasks_find_is_published_once_from_a_snapshot_too():
    first, copy = ReplicatedResults(100, True, True, Context()), ReplicatedResults(100, True, True, Context())
    initial = first.filter_deltas(7, arrived((MATCH, 5, "1", 1), (INITIAL, 4, "9", 0), (MATCH, 8, "2", 2)))
    assert initial.message.to_pylist() == ["9"] and initial.seq is None and initial.position is None
    state = unpack_state(pack_state(first.snapshot()))
    assert [len(columns) for columns in state["matches"]] == [9]  # up to the sequence numbers, as in earlier versions
    copy.restore(state)
    for one in (first, copy):
        assert one.filter_deltas(8, arrived((MATCH, 5, "1", 1), (MATCH, 5, "3", 3))) is None
        (found,) = one.advance(5)
        assert list(found.each("subscription", "registration", "kind", "watermark", "message", "meta")) == [
            ("b", "0-3", MATCH, 5, message, "{}") for message in ("1", "3")
        ]
        assert one.advance(7) == [] and next(iter(one.advance(8))).message.to_pylist() == ["2"]
