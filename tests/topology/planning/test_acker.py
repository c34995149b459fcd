"""The acker: every answer is that of a plain acker, which handles one message after another."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.fields import Fields
from dskype.topology.planning.acker import Acker
from dskype.topology.planning.acker_streams import ACKER_ACK_STREAM_ID, ACKER_FAIL_STREAM_ID, ACKER_INIT_STREAM_ID, ACKER_RESET_TIMEOUT_STREAM_ID
from dskype.topology.tuples import StreamMeta, TupleBatch
from tests.tiers import seeds

ANSWERS = ACKER_ACK_STREAM_ID, ACKER_FAIL_STREAM_ID, ACKER_RESET_TIMEOUT_STREAM_ID
FIELDS = {ACKER_INIT_STREAM_ID: 3, ACKER_ACK_STREAM_ID: 2, ACKER_FAIL_STREAM_ID: 1, ACKER_RESET_TIMEOUT_STREAM_ID: 1}


class PlainAcker:
    """Keeps ``[value, spout, failed, first message, last tick]`` of each root in a dictionary."""

    def __init__(self):
        self.trees, self.tick, self.answers = {}, 0, {}

    def handle(self, stream, rows, now_ms):
        for root, *values in rows:
            tree = self.trees.setdefault(root, [0, None, False, now_ms, 0])
            tree[4] = self.tick
            if stream in (ACKER_INIT_STREAM_ID, ACKER_ACK_STREAM_ID):
                tree[0] ^= values[0]
            if stream == ACKER_INIT_STREAM_ID:
                tree[1] = values[1]
            tree[2] |= stream == ACKER_FAIL_STREAM_ID
            if tree[1] is None:
                continue
            if stream == ACKER_RESET_TIMEOUT_STREAM_ID:
                self.answer(stream, root, now_ms)
            elif tree[2] or tree[0] == 0:
                self.answer(ACKER_FAIL_STREAM_ID if tree[2] else ACKER_ACK_STREAM_ID, root, now_ms)
                del self.trees[root]

    def answer(self, stream, root, now_ms):
        _, spout, _, since_ms, _ = self.trees[root]
        self.answers.setdefault(spout, []).append((stream, root, now_ms - since_ms))

    def end_tick(self):
        self.tick += 1
        self.trees = {root: tree for root, tree in self.trees.items() if self.tick - tree[4] < 3}

    def rows(self):
        """Return what a snapshot of the first format held."""
        ages = [{}, {}, {}]
        for root, (value, spout, failed, since_ms, tick) in self.trees.items():
            ages[self.tick - tick][root] = [value, spout, failed, since_ms]
        return ages


class Collector:
    def __init__(self):
        self.answers = {}

    def emit_direct(self, task, values, stream):
        self.emit_direct_batch(task, [np.array([value]) for value in values], stream)

    def emit_direct_batch(self, task, columns, stream):
        assert stream in ANSWERS
        self.answers.setdefault(task, []).extend((stream, *row) for row in zip(*(column.tolist() for column in columns)))


def make(clock):
    acker, collector = Acker(), Collector()
    acker.prepare({}, SimpleNamespace(clock_ms=lambda: clock[0]), collector)
    return acker, collector


def batch(stream, rows, *, arrays=False):
    columns = list(zip(*rows)) or [()] * FIELDS[stream]
    columns = [np.array(column, np.int64) for column in columns] if arrays else [list(column) for column in columns]
    return TupleBatch(columns, StreamMeta("bolt", 7, stream, Fields(*"abc"[: FIELDS[stream]])), len(rows))


def play(seed, n_rounds, n_roots, most):
    """Send random messages about few trees to both ackers; every answer is compared, and restored ackers go on."""
    rng = random.Random(seed)
    clock, plain = [1000], PlainAcker()
    acker, collector = make(clock)
    mask = 1 << 62
    roots = [rng.randrange(-mask, mask) for _ in range(n_roots)] + [0, 1, 1024, 2048, -1]  # some share a place in the table
    for _ in range(n_rounds):
        clock[0] += rng.randrange(5)
        stream = rng.choice([*FIELDS, ACKER_ACK_STREAM_ID, ACKER_INIT_STREAM_ID])
        rows = [(rng.choice(roots), rng.choice([1, 2, 3]), rng.choice([4, 9]))[: FIELDS[stream]] for _ in range(rng.randrange(most))]
        plain.handle(stream, rows, clock[0])
        acker.execute_batch(batch(stream, rows, arrays=rng.random() < 0.5))
        if rng.random() < 0.1:
            plain.end_tick()
            acker.execute_tick(None)
        if rng.random() < 0.1:
            state = plain.rows() if rng.random() < 0.3 else acker.snapshot()
            state, answers = unpack_state(pack_state(state)), collector.answers
            acker, collector = make(clock)
            collector.answers = answers
            acker.restore(state)
        assert collector.answers == plain.answers
        assert acker.pending == len(plain.trees)


@pytest.mark.parametrize("seed", seeds(6))
def test_every_answer_is_that_of_a_plain_acker(seed):
    play(seed, 250, (5, 60, 3000)[seed % 3], (6, 40, 1500)[seed % 3])


@pytest.mark.parametrize("column", [[1.5], ["x"], [2**63], [None], [[1, 2]], [True]])
def test_messages_that_are_not_integers_are_refused(column):
    acker, collector = make([0])
    with pytest.raises((TypeError, OverflowError, ValueError)):
        acker.execute_batch(TupleBatch([column, [1]], StreamMeta("bolt", 7, ACKER_ACK_STREAM_ID, Fields("id", "ack_val")), 1))
    assert acker.pending == 0 and not collector.answers


def test_the_table_becomes_small_again():
    acker, _ = make([0])
    acker.execute_batch(batch(ACKER_ACK_STREAM_ID, [(root, 1) for root in range(1, 20_001)]))
    large = len(acker._table)
    for _ in range(acker.GENERATIONS):
        acker.execute_tick(None)
    assert acker.pending == 0 and len(acker._table) < large
