"""What every result buffer promises, on made-up scores."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.topk.base import Matches
from dskype.bolts.topk.buffers import _kernels as kernels
from dskype.bolts.topk.buffers.base import ResultBuffers, Step
from dskype.bolts.topk.buffers.kmax import KmaxBuffers
from dskype.bolts.topk.buffers.store import BufferStore
from dskype.bolts.topk.engine import BUFFERS
from dskype.spouts.batch import MessageBatch
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.errors import IllegalArgumentException

pytestmark = pytest.mark.long


def bare_messages(seqs: list[int], positions: list[int]) -> MessageBatch:
    n = len(seqs)
    return MessageBatch(
        np.array(seqs, np.int64), np.array(positions, np.int64), np.zeros(n), np.zeros(n), np.zeros(n + 1, np.int64), np.zeros(0, np.int64), np.zeros(0)
    )


def as_lists(entries: list[list[tuple[float, int, int]]]) -> RankedLists:
    flat = [entry for one in entries for entry in one]
    return RankedLists(
        np.cumsum([0, *map(len, entries)]).astype(np.int64),
        np.array([e[2] for e in flat], np.int64),
        np.array([e[1] for e in flat], np.int64),
        np.array([e[0] for e in flat], float),
    )


class Stream:
    """Scores of messages for some slots, drawn at random; plays index, message window and caller."""

    def __init__(self, seed: int, buffers: ResultBuffers, ks: list[int], *, gaps: bool = False, levels: int = 20, chance: float = 0.7) -> None:
        self.rng, self.buffers, self.ks = random.Random(seed), buffers, ks
        self.gaps, self.levels, self.chance = gaps, levels, chance
        self.slots = np.arange(len(ks), dtype=np.int32)
        self.seen: list[list[tuple[float, int, int]]] = [[] for _ in ks]
        self.folded: list[list[int]] = [[] for _ in ks]
        self.open: dict[int, tuple[int, int]] = {}  # slot -> watermark of the request, messages wanted
        self.seq = self.position = self.watermark = -1
        buffers.open(self.slots, np.array(ks, np.int32), complete=True)

    def step(self, n: int) -> Step:
        seqs, positions, rows = [], [], []
        thresholds = self.buffers.thresholds(self.slots)
        for message in range(n):
            self.seq += 1
            self.position = max(self.position, self.watermark) + self.rng.randint(0, 3) if self.gaps else self.position + 1
            if self.gaps and self.position == self.watermark:
                self.position += 1
            seqs.append(self.seq)
            positions.append(self.position)
            for slot in range(len(self.ks)):
                if self.rng.random() < self.chance:
                    score = self.rng.randrange(self.levels) / self.levels
                    self.seen[slot].append((score, self.position, self.seq))
                    if score >= thresholds[slot]:
                        rows.append((message, slot, score))
        self.watermark = max(self.position, self.watermark) + (self.rng.randint(0, 4) if self.gaps else 0)
        columns = list(zip(*rows)) if rows else [(), (), ()]
        matches = Matches(np.array(columns[0], np.int32), np.array(columns[1], np.int32), np.array(columns[2], float))
        step = self.buffers.apply(bare_messages(seqs, positions), matches, self.watermark)
        self.fold(step)
        assert (self.buffers.thresholds(step.due) == np.inf).all()
        self.buffers.collect(step.due)
        self.ask(step.due)
        return step

    def ask(self, slots: np.ndarray) -> None:
        self.open.update((slot, (self.watermark, n)) for slot, n in zip(slots.tolist(), self.buffers.wanted(slots).tolist()))

    def best(self, slot: int, watermark: int, count: int) -> list[tuple[float, int, int]]:
        return sorted((e for e in self.seen[slot] if watermark - self.buffers.extent < e[1] <= watermark), reverse=True)[:count]

    def answer(self, slots: list[int]) -> Step:
        slots = sorted(slots)
        requests = [self.open.pop(slot) for slot in slots]
        lists = as_lists([self.best(slot, watermark, n) for slot, (watermark, n) in zip(slots, requests)])
        step = self.buffers.resolve(np.array(slots, np.int32), lists, self.watermark)
        self.fold(step)
        self.ask(step.due)
        return step

    def fold(self, step: Step) -> None:
        slot, op, seq, _, rank, _ = (a.tolist() for a in step.changes)
        for s, o, q, r in zip(slot, op, seq, rank):
            self.folded[s].remove(q) if o else self.folded[s].insert(r - 1, q)

    def check(self) -> None:
        self.buffers._check(self.watermark)
        offsets, seqs, positions, scores = self.buffers.published(self.slots)
        pending = self.buffers.pending(self.slots).tolist()
        for slot, k in enumerate(self.ks):
            found = [e[offsets[slot] : offsets[slot + 1]].tolist() for e in (scores, positions, seqs)]
            assert found[2] == self.folded[slot] and pending[slot] == (slot in self.open)
            if not pending[slot]:
                assert list(zip(*found)) == self.best(slot, self.watermark, k)


@pytest.mark.parametrize("name", BUFFERS)
@pytest.mark.parametrize(("extent", "gaps", "levels"), [(4, False, 3), (30, False, 1000), (25, True, 4), (1, True, 2)])
def test_buffers_publish_the_best_of_the_window(name, extent, gaps, levels):
    rng = random.Random(extent)
    stream = Stream(extent, BUFFERS[name](extent), [1, 2, 3, 7, 20, 1000], gaps=gaps, levels=levels)
    for _ in range(100):
        stream.step(rng.choice((0, 1, 3, 10)))
        stream.check()
        ready = [slot for slot in stream.open if rng.random() < 0.3]
        if ready:
            stream.answer(ready)
            stream.check()


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_go_on_from_a_snapshot_at_any_time(name):
    logs: list[list[Any]] = []
    for restoring in (False, True):
        rng = random.Random(1)
        stream = Stream(1, BUFFERS[name](20), [1, 2, 5, 9], levels=30)
        log: list[Any] = []
        for _ in range(80):
            steps = [stream.step(rng.choice((0, 2, 9)))]
            ready = [slot for slot in stream.open if rng.random() < 0.2]
            if ready:
                steps.append(stream.answer(ready))
            state = pack_state(stream.buffers.snapshot())
            log.append([[a.tolist() for a in step.changes] + [step.due.tolist()] for step in steps] + [state])
            if restoring:
                stream.buffers = BUFFERS[name](20)
                stream.buffers.restore(unpack_state(state))
                assert pack_state(stream.buffers.snapshot()) == state
                stream.check()
        logs.append(log)
    assert logs[0] == logs[1]


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_are_closed_and_opened_again_in_any_state(name):
    rng = random.Random(4)
    stream = Stream(4, BUFFERS[name](12), [1, 3, 6, 6])
    sizes = []
    for _ in range(300):
        stream.step(rng.choice((1, 4)))
        slot = rng.randrange(4)
        if rng.random() < 0.5:
            one = np.array([slot], np.int32)
            stream.buffers.close(one)
            stream.buffers._check(stream.watermark)
            stream.buffers.open(one, np.array([stream.ks[slot]], np.int32), complete=False)
            stream.folded[slot] = []
            stream.ask(one)
        ready = [slot for slot in stream.open if rng.random() < 0.4]
        if ready:
            stream.answer(ready)
        stream.check()
        sizes.append(stream.buffers.memory_bytes)
    assert max(sizes[150:]) <= 2 * max(sizes[:150])


@pytest.mark.parametrize("name", BUFFERS)
def test_dates_of_slots_that_are_gone_do_not_pile_up(name):
    """Nothing expires while slots come and go many times; then everything does."""
    rng = random.Random(6)
    stream = Stream(6, BUFFERS[name](5000), [1, 2, 3, 4, 5, 6, 7, 8])
    stream.step(5)
    memory = stream.buffers.memory_bytes
    for _ in range(400):
        some = np.array(sorted(rng.sample(range(8), 5)), np.int32)
        stream.buffers.close(some)
        stream.buffers.open(some, np.array([stream.ks[slot] for slot in some], np.int32), complete=False)
        for slot in some:
            stream.folded[slot] = []
        stream.ask(some)
        stream.step(1)
        stream.answer(list(stream.open))
        stream.check()
    assert stream.buffers.memory_bytes < 3 * memory
    stream.watermark = stream.position = 4990
    for _ in range(60):
        stream.step(10)
        if stream.open:
            stream.answer(list(stream.open))
        stream.check()


@pytest.mark.parametrize("name", BUFFERS)
@pytest.mark.parametrize("gaps", [False, True])
def test_many_messages_of_one_period_expire_one_after_another(name, gaps):
    """A window so wide that a period of the calendar has many positions: a slot may be in the same period again and again."""
    rng = random.Random(8)
    stream = Stream(8, BUFFERS[name](1 << 22), [1, 2, 3, 4, 9, 9, 9, 30], gaps=gaps, chance=0.4)
    for _ in range(20):
        stream.step(8)
    stream.watermark = stream.position = (1 << 22) - 3
    for _ in range(60):
        if not gaps and rng.random() < 0.5:
            stream.position = stream.watermark = stream.watermark + 2
        stream.step(rng.choice((1, 1, 5)))
        slot = rng.randrange(8)
        if rng.random() < 0.2:
            one = np.array([slot], np.int32)
            stream.buffers.close(one)
            stream.buffers.open(one, np.array([stream.ks[slot]], np.int32), complete=False)
            stream.folded[slot] = []
            stream.ask(one)
        stream.check()
        if stream.open and rng.random() < 0.7:
            stream.answer(list(stream.open))
            stream.check()


@pytest.mark.parametrize("name", BUFFERS)
def test_there_is_room_for_whatever_happens_at_once(name):
    """Hundreds of slots change, fall due, and get new dates in one step, long lists among them."""
    tight = {"kmax": {"factor": 1.0, "extra": 0}, "skyband": {"ratio": 1.0, "reach": 2.0}, "cskyband": {"reevaluation": 0.0, "match": 0.0}}
    stream = Stream(5, BUFFERS[name](60, **tight.get(name, {})), [1 + i % 4 for i in range(300)] + [500, 600], chance=0.9)
    due = 0
    for n in (30, 30, 40, 5, 60, 1, 90, 59):
        step = stream.step(n)
        due = max(due, len(step.due))
        stream.check()
        if stream.open:
            stream.answer(list(stream.open))
            stream.check()
    assert due > (128 if name == "kmax" else 10)


def test_the_calendar_knows_who_is_next():
    """Against a sorted list: slots enter and leave, in periods that are to come, or have come."""
    rng = random.Random(2)
    for extent in (5, 1000, 1 << 20, 1 << 50):
        store = BufferStore(extent)
        slots = np.arange(40, dtype=np.int32)
        store.open(slots, np.ones(40, np.int64), np.ones(40, np.int64), complete=True)
        store.expect_dates(40)
        calendar, long, dates, now = store.calendar, store.arrays.long, {}, 0
        for _ in range(600):
            now += rng.choice((0, 1, max(1, extent // 1000), rng.randrange(2 * extent) if rng.random() < 0.1 else 0))
            fallen = []
            while True:
                slot = int(kernels.first_out(calendar, long))
                if slot < 0:
                    if not kernels.pass_time(calendar, now):
                        break
                    kernels.turn_page(calendar, long)
                elif long[slot, kernels.KEY] > now:
                    break
                else:
                    assert kernels.fall_out(calendar, long) == slot and long[slot, kernels.KEY] == kernels.FAR
                    fallen.append((dates.pop(slot), slot))
                    if rng.random() < 0.4 and now < (key := fallen[-1][0] + rng.choice((1, 2, 300))) <= now + extent:
                        dates[slot] = key
                        kernels.enter_date(calendar, long, slot, key)
            assert fallen == sorted(fallen) and all(key > now for key in dates.values())
            for slot in rng.sample(range(40), 6):
                if slot in dates:
                    kernels.leave_dates(calendar, store.arrays, np.array([slot], np.int32))
                    del dates[slot]
                else:
                    dates[slot] = now + rng.randint(1, min(extent, rng.choice((3, extent))))
                    kernels.enter_date(calendar, long, slot, dates[slot])
            assert {int(slot): int(key) for slot, key in enumerate(long[:40, kernels.KEY]) if key != kernels.FAR} == dates


@pytest.mark.parametrize("name", BUFFERS)
def test_a_slot_that_waits_for_long_keeps_little_and_loses_nothing(name):
    """An answer that comes within the window, and one that comes when all it holds has expired."""
    for wait in (150, 900):
        buffers = BUFFERS[name](400)
        stream = Stream(wait, buffers, [3], levels=10**6, chance=1.0)
        for _ in range(40):
            stream.step(10)
        buffers.close(stream.slots)
        buffers.open(stream.slots, np.array([3], np.int32), complete=False)
        stream.folded = [[]]
        stream.ask(stream.slots)
        for _ in range(wait // 10):
            stream.step(10)
        assert len(buffers.snapshot()["seqs"]) < 200
        step = stream.answer([0])
        assert not len(step.due)
        stream.check()
        stream.step(1)
        stream.check()


def test_kmax_takes_its_size_from_k():
    buffers = KmaxBuffers(10)
    slots = np.arange(4, dtype=np.int32)
    buffers.open(slots, np.array([1, 15, 20, 1000], np.int32), complete=True)
    assert buffers.wanted(slots).tolist() == [21, 35, 40, 2000]
    tight = KmaxBuffers(10, factor=1.5, extra=0)
    tight.open(slots, np.array([1, 2, 3, 1000], np.int32), complete=True)
    assert tight.wanted(slots).tolist() == [1, 3, 4, 1500]
    with pytest.raises(IllegalArgumentException, match=r"given: 0.5; legal: buffer option factor >= 1"):
        KmaxBuffers(10, factor=0.5)
    with pytest.raises(IllegalArgumentException, match=r"given: -1; legal: buffer option extra >= 0"):
        KmaxBuffers(10, extra=-1)


def test_kmax_drops_the_last_entry_and_lets_equal_scores_in():
    buffers = KmaxBuffers(100, factor=1, extra=1)
    one = np.array([0], np.int32)
    buffers.open(one, np.array([2], np.int32), complete=True)
    last = -np.inf
    for seq, (score, size, theta) in enumerate(
        [(0.5, 1, -np.inf), (0.7, 2, -np.inf), (0.6, 3, -np.inf), (0.4, 3, 0.4), (0.3, 3, 0.4), (0.55, 3, 0.5), (0.55, 3, 0.55), (0.9, 3, 0.55)]
    ):
        step = buffers.apply(bare_messages([seq], [seq]), Matches(np.zeros(1, np.int32), one, np.array([score])), seq)
        assert (buffers.sizes(one)[0], buffers.thresholds(one)[0]) == (size, theta)
        assert step.retuned.tolist() == ([0] if theta != last else [])
        last = theta
    assert buffers.published(one).scores.tolist() == [0.9, 0.7]


def test_kmax_merges_as_if_it_had_kept_everything():
    """Against a plain merge of all that was collected, with answers whose last score others share."""
    rng = random.Random(9)
    one = np.array([0], np.int32)
    for case in range(150):
        extent, k = rng.choice((10, 60, 400)), rng.choice((1, 2, 5))
        buffers = KmaxBuffers(extent, factor=1, extra=rng.choice((0, 1, 4)))
        levels = rng.choice((2, 5, 1000))
        before = [(rng.randrange(levels) / levels, p, p) for p in range(50)]
        buffers.open(one, np.array([k], np.int32), complete=False)
        asked = 49
        limit = int(buffers.wanted(one)[0])
        window = sorted((e for e in before if e[1] > asked - extent), reverse=True)
        collected = []
        position = asked
        for _ in range(rng.randrange(12)):
            rows = [(rng.randrange(levels) / levels, position + 1 + i, position + 1 + i) for i in range(rng.randrange(15))]
            collected += rows
            position += len(rows)
            buffers.apply(
                bare_messages([r[2] for r in rows], [r[1] for r in rows]),
                Matches(np.arange(len(rows), dtype=np.int32), np.zeros(len(rows), np.int32), np.array([r[0] for r in rows])),
                position,
            )
            if rng.random() < 0.3:
                buffers.snapshot()  # forgets what it can
        answer = window[:limit]
        bound = answer[-1][0] if len(answer) == limit else -np.inf
        merged = sorted((e for e in answer + [c for c in collected if c[0] >= bound] if e[1] > position - extent), reverse=True)[:limit]
        bound = max(bound, merged[-1][0]) if len(merged) == limit else bound
        step = buffers.resolve(one, as_lists([answer]), position)
        buffers._check(position)
        if len(merged) < k and bound > -np.inf:
            assert step.due.tolist() == [0] and buffers.pending(one)[0] and buffers.sizes(one)[0] == 0
        else:
            assert buffers.thresholds(one)[0] == bound
            state = buffers.snapshot()
            assert list(zip(state["scores"].tolist(), state["positions"].tolist(), state["seqs"].tolist())) == merged
            assert step.changes[2].tolist() == [e[2] for e in merged[:k]] and (step.changes[1] == kernels.ADD).all()
