"""Tuples that a bolt cannot process: only these become dead letters, and all others are processed once, despite crashes."""

import os
from collections import Counter

import numpy as np
import pytest

from dskype.topology import BasicBolt, BatchBolt, Fields, TopologyBuilder
from dskype.topology.core import poison
from dskype.topology.core.values import unpack_state
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog

from .fault_topologies import N, NumberSpout, Recorder
from .storm_helpers import Keep, Life, running

pytestmark = pytest.mark.long

SEEDS = int(os.environ.get("DSKYPE_FAULT_SEEDS", "252")) // 15
POISON = frozenset(i for i in range(N) if i % 7 == 3 or i in (20, 21, 22))
GOOD = frozenset(range(N)) - POISON


class SumsUp(BatchBolt):
    """Sums numbers by key, row by row, and has effects of all kinds before it raises in the middle of a batch."""

    def prepare(self, conf, context, collector):
        self.collector, self.sums, self.seen = collector, {}, []
        self.counter = context.register_counter("rows")
        collector.emit((-1, -1), stream="hello")  # emitted by prepare, and must not be repeated

    def execute_batch(self, batch):
        for row, (number, key) in enumerate(batch.rows()):
            self.sums[key] = self.sums.get(key, 0) + number
            self.seen.append(number)
            self.counter.inc()
            self.collector.emit_batch([np.array([number]), np.array([self.sums[key]])], parents=np.array([row]))
            self.collector.send_record("sums", None, repr((number, key)).encode())
            if number in POISON:
                self.collector.report_error(f"about to break at {number}")
                raise ValueError(f"poison {number}")

    def snapshot(self):
        return [self.sums, self.seen]

    def restore(self, state):
        self.sums, self.seen = dict(state[0]), list(state[1])

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number", "key"))
        declarer.declare_stream("hello", Fields("number", "key"))


class SumsUpFast(SumsUp):
    """The same with all rows at once; raises at the end."""

    def execute_batch(self, batch):
        numbers, keys = (np.asarray(c) for c in batch.columns)
        for number, key in zip(numbers.tolist(), keys.tolist()):
            self.sums[key] = self.sums.get(key, 0) + number
            self.seen.append(number)
        self.counter.inc(len(numbers))
        self.collector.emit_batch([numbers, numbers], parents=np.arange(len(numbers)))
        for number, key in zip(numbers.tolist(), keys.tolist()):
            self.collector.send_record("sums", None, repr((number, key)).encode())
        if bad := POISON & set(numbers.tolist()):
            raise ValueError(f"poison {max(bad)}")


class RowByRow(BasicBolt):
    """An ordinary bolt that raises before it has any effect."""

    def prepare(self, conf, context):
        self.sums, self.seen = {}, []
        self.counter = context.register_counter("rows")
        self.send = None

    def execute(self, tup, collector):
        number, key = tup.values
        if number in POISON:
            raise ValueError(f"poison {number}")
        self.sums[key] = self.sums.get(key, 0) + number
        self.seen.append(number)
        self.counter.inc()
        collector.emit((number, key))

    snapshot, restore = SumsUp.snapshot, SumsUp.restore

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number", "key"))


BOLTS = {"row by row in a batch": SumsUp, "all at once": SumsUpFast, "ordinary": RowByRow}


def run(which, tracked, seed=None, faults=Faults()):
    builder = TopologyBuilder()
    builder.set_spout("numbers", NumberSpout(tracked=tracked), 2)
    builder.set_bolt("sums", BOLTS[which](), 2).fields_grouping("numbers", Fields("key"))
    builder.set_bolt("shuffled", Recorder(), 2).shuffle_grouping("sums")
    conf = {"topology.emulator.snapshot.interval.ms": 600, "topology.acker.executors": 2 if tracked else 0, "topology.message.timeout.secs": 30}
    time_ms = [1_000_000]
    plan = TopologyPlan.build("t", "t-1-0", conf, builder.create_topology())
    log = MemoryLog(lambda: time_ms[0])
    sim = simulate(plan, log, lambda: time_ms[0], seed=seed, faults=faults)
    sim.activate()
    for _ in range(20):
        sim.tick_clock()
        sim.run_until_quiet()
        time_ms[0] += 200
    for _ in range(4):
        time_ms[0] += 31_000
        sim.tick_clock()
        sim.run_until_quiet()
    return sim


def check(which, tracked, seed=None, faults=Faults()):
    sim = run(which, tracked, seed, faults)
    hint = f"{which}, tracked {tracked}, seed {seed}, faults {sim.fault_counts}"
    expected = Counter()
    for number in GOOD:
        expected[number % 7] += number
    sums = Counter()
    for instance in sim.components("sums"):
        sums.update(instance.sums)
        assert len(set(instance.seen)) == len(instance.seen), hint
    assert sums == expected, hint
    assert sorted(n for i in sim.components("sums") for n in i.seen) == sorted(GOOD), hint
    assert sorted(n for i in sim.components("shuffled") for n, _ in i.seen) == sorted(GOOD), hint
    for topic in ("sums", "out") if which != "ordinary" else ("out",):
        records = {}
        for record in sim.log.records(topic):
            assert records.setdefault(dict(record.headers)["record-id"], record.value) == record.value, f"one record id, two values; {hint}"
        assert len(records) == len(GOOD), f"{topic}; {hint}"
    if tracked:
        spouts = sim.components("numbers")
        assert Counter(i for s in spouts for i in s.acked) == Counter(GOOD), f"false, missing or double ack; {hint}"
        assert Counter(i for s in spouts for i in s.failed) == Counter(POISON), f"false, missing or double fail; {hint}"
    letters = [(unpack_state(r.value)[0], {k: v.decode() for k, v in r.headers}) for r in sim.dead_letters()]
    assert {number for number, _ in letters} == POISON, hint
    assert all(
        h["error"] == f"ValueError: poison {number}"
        and h["component"] == "sums"
        and h["stream"] == "default"
        and h["stage"] == ("execute" if which == "ordinary" else "execute_batch")
        for number, h in letters
    ), hint
    reports = [t for t in sim.stats.tasks.values() if t["component"] == "sums"]
    assert sum(t["dead_letters"] for t in reports) == len(POISON), hint
    assert sum(t["metrics"]["rows"] for t in reports) == len(GOOD), hint
    assert sum(t["executed"]["numbers/default"] for t in reports) == N, hint
    assert sum(t["emitted"]["default"] for t in reports) == len(GOOD), hint
    return sim, letters


@pytest.mark.parametrize("tracked", [False, True], ids=["untracked", "tracked"])
@pytest.mark.parametrize("which", BOLTS)
def test_poison_tuples_are_one_dead_letter_each_and_leave_no_trace(which, tracked):
    sim, letters = check(which, tracked)
    assert len(letters) == len(POISON)
    errors = [e["error"] for e in sim.stats.errors if e["component"] == "sums"]
    assert errors and all("ValueError: poison" in e for e in errors)


@pytest.mark.parametrize("cheap_ns", [50_000_000, -1], ids=["small state", "large state"])
@pytest.mark.parametrize("tracked", [False, True], ids=["untracked", "tracked"])
@pytest.mark.parametrize("which", BOLTS)
def test_crashes_change_nothing_about_poison_tuples(which, tracked, cheap_ns, monkeypatch):
    monkeypatch.setattr(poison, "_CHEAP_NS", cheap_ns)
    met = Counter()
    for seed in range(SEEDS):
        met.update(check(which, tracked, seed, Faults.heavy())[0].fault_counts)
    if SEEDS > 15:
        assert not {"lost_before", "lost_after", "torn_write", "repeated", "restarted", "all_restarted", "elsewhere", "snapshot"} - set(met)


class Counts(BatchBolt):
    """Counts how often it was prepared; raises if ``bad`` says so."""

    prepared = 0
    bad = frozenset()

    def prepare(self, conf, context, collector):
        type(self).prepared += 1
        self.seen = []

    def execute_batch(self, batch):
        for (number,) in batch.rows():
            self.seen.append(number)
            if number in self.bad:
                raise ValueError(f"poison {number}")


def counted(bad, limit=1000, conf=None, bolt=Counts):
    bolt.prepared, bolt.bad = 0, frozenset(bad)
    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=limit))
    builder.set_bolt("2", bolt()).shuffle_grouping("1")
    builder.set_bolt("3", Keep()).shuffle_grouping("1")
    # One pulse emits all, however slow the machine is: the counts are those of one frame.
    return running(builder, {"topology.acker.executors": 0, "topology.emulator.pulse.max.ms": 600_000, **(conf or {})}, secs=1)


def test_one_poison_tuple_in_a_frame_of_a_thousand_is_the_only_dead_letter():
    with counted({700}) as run:
        (letter,) = run.dead_letters()
        assert letter["error"] == "ValueError: poison 700"
        assert unpack_state(run.sim.dead_letters()[0].value) == [700]
        assert Counts.prepared < 20, "found by halving"
        assert len([e for e in run.errors("2") if "poison" in e]) == 1
        assert run.components("2")[0].seen == list(range(701, 1000)), "without snapshots the memory is lost, as in Storm"


def test_when_nothing_can_be_processed_the_search_ends_soon(monkeypatch):
    monkeypatch.setattr(poison, "_CHEAP_NS", 1 << 62)  # however slow the machine is
    with counted(range(1000)) as run:
        assert Counter(unpack_state(r.value)[0] for r in run.sim.dead_letters()) == Counter(range(1000))
        assert Counts.prepared < 100
        assert run.total("2", "dead_letters") == 1000


def test_dead_letters_of_batches_can_be_switched_off():
    with counted({5}, 10, {"topology.emulator.dead.letters.on.exception": False}) as run:
        assert run.dead_letters() == [] and any("poison 5" in e for e in run.errors("2"))
        assert run.components("2")[0].seen == [6, 7, 8, 9]


def test_a_batch_without_poison_after_one_with_it_is_not_made_again():
    class Remembers(Counts):
        def snapshot(self):
            return self.seen

        def restore(self, state):
            self.seen = list(state)

    with counted({3}, 2000, {"topology.emulator.pulse.max.tuples": 100}, Remembers) as run:
        run.advance(5)
        assert run.components("2")[0].seen == [i for i in range(2000) if i != 3]
        assert Remembers.prepared < 15
        assert len(run.dead_letters()) == 1
