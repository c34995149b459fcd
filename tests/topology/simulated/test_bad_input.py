"""Local failures that must not spread: exceptions, tuples that cannot be sent, damaged records."""

import random
import re
from collections import Counter

import msgpack
import numpy as np
import pytest

from dskype.topology import Bolt, Fields, Spout, TopologyBuilder, TopologyError
from dskype.topology.core.frames import encode_data, encode_segment
from dskype.topology.local import LocalCluster
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from dskype.topology.testing import FixedTupleSpout, TestWordCounter
from tests.tiers import seeds

from .fault_topologies import TOPOLOGIES
from .storm_helpers import Keep, Life, Script, fed, running

# --- exceptions -------------------------------------------------------------------------------------------------------


class Breaks(Keep):
    """Raises on 3; counts how often it was prepared and cleaned up."""

    prepared = cleaned = 0

    def prepare(self, conf, context, collector):
        super().prepare(conf, context, collector)
        type(self).prepared += 1

    def execute(self, tup):
        if tup[0] == 3:
            raise ValueError("three")
        super().execute(tup)

    def cleanup(self):
        type(self).cleaned += 1


class BreaksWithState(Breaks):
    def snapshot(self):
        return self.seen

    def restore(self, state):
        self.seen = [tuple(v) for v in state]


@pytest.mark.parametrize(("bolt", "left"), [(Breaks, [(4,), (5,)]), (BreaksWithState, [(0,), (1,), (2,), (4,), (5,)])])
def test_an_exception_in_execute_restarts_the_bolt_and_nobody_else(bolt, left):
    bolt.prepared = bolt.cleaned = 0
    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=6))
    builder.set_bolt("bad", bolt()).shuffle_grouping("1")
    builder.set_bolt("good", Keep()).shuffle_grouping("1")
    with running(builder, {"topology.message.timeout.secs": 5}, secs=1) as run:
        assert (bolt.prepared, bolt.cleaned) == (2, 1)
        assert run.components("bad")[0].seen == left
        assert len(run.components("good")[0].seen) == 6
        (letter,) = run.dead_letters()
        assert (letter["error"], letter["stage"], letter["component"], letter["stream"]) == ("ValueError: three", "execute", "bad", "default")
        assert "ValueError: three" in run.errors("bad")[0] and "Traceback" in run.errors("bad")[0]
        assert run.errors("good") == []
        assert run.total("bad", "dead_letters") == 1
        run.advance(15)
        assert sorted(run.components("1")[0].done) == [("ack", i) for i in (0, 1, 2, 4, 5)] + [("fail", 3)]


def test_an_exception_in_next_tuple_restarts_the_spout_and_it_goes_on():
    class Breaking(Life):
        def next_tuple(self):
            if self.emitted == 2 and not raised:
                raised.append(1)
                raise ValueError("spout")
            super().next_tuple()

    raised = []
    builder = TopologyBuilder()
    builder.set_spout("1", Breaking(limit=3))
    builder.set_bolt("2", Keep()).shuffle_grouping("1")
    with running(builder, secs=2) as run:
        assert run.components("2")[0].seen == [(0,), (1,), (0,), (1,), (2,)]
        assert run.components("1")[0].calls == ["open", "activate", "next_tuple"]
        assert "ValueError: spout" in run.errors("1")[0]


@pytest.mark.parametrize("method", ["ack", "fail"])
def test_an_exception_in_ack_or_fail_is_reported_and_the_others_are_still_called(method):
    class Breaking(Life):
        def ack(self, msg_id):
            settled.append(msg_id)
            if msg_id == 1:
                raise ValueError("settle")

        fail = ack

    settled = []
    builder = TopologyBuilder()
    builder.set_spout("1", Breaking(limit=3))
    builder.set_bolt("2", Script(lambda tup, collector, count: getattr(collector, method)(tup))).shuffle_grouping("1")
    with running(builder, secs=0.1) as run:
        assert settled[:3] == [0, 1, 2]
        assert "ValueError: settle" in run.errors("1")[0]


def test_an_exception_in_prepare_refuses_the_topology():
    class Unprepared(Bolt):
        def prepare(self, conf, context, collector):
            raise OSError("no such file")

        def execute(self, tup):
            pass

    builder = TopologyBuilder()
    builder.set_spout("1", Life())
    builder.set_bolt("2", Unprepared()).shuffle_grouping("1")
    with pytest.raises(OSError, match="no such file"), running(builder):
        pass


def test_report_error_shows_the_error_and_stops_nothing():
    def script(tup, collector, count):
        collector.report_error(ValueError(f"only told {count}"))
        collector.ack(tup)

    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=2))
    builder.set_bolt("2", Script(script)).shuffle_grouping("1")
    with running(builder, secs=1) as run:
        assert ["only told 1" in e or "only told 2" in e for e in run.errors("2")] == [True, True]
        assert run.components("1")[0].done == [("ack", 0), ("ack", 1)]
        assert run.dead_letters() == []
        assert len(run.cluster.get_topology_info("t")["errors"]["2"]) == 2


# --- tuples that cannot be sent ---------------------------------------------------------------------------------------


class Emits(Spout):
    """Emits the values of a function once, tracked."""

    def __init__(self, values):
        self.values = values

    def open(self, conf, context, collector):
        self.collector, self.left, self.failed = collector, list(self.values()), []

    def next_tuple(self):
        if self.left:
            number = len(self.left)
            self.collector.emit((self.left.pop(0),), message_id=number)

    def fail(self, msg_id):
        self.failed.append(msg_id)

    def declare_output_fields(self, declarer):
        declarer.declare("value")


def sent(values, secs=1.0, conf=None):
    builder = TopologyBuilder()
    builder.set_spout("1", Emits(values))
    builder.set_bolt("2", Keep()).shuffle_grouping("1")
    with running(builder, conf, secs=secs) as run:
        return [v for (v,) in run.components("2")[0].seen], run.dead_letters(), run.errors("1"), run.components("1")[0].failed


class Unshowable:
    def __repr__(self):
        raise RuntimeError


def recursive():
    endless = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (object, "a value cannot be serialized"),
        (Unshowable, "a Unshowable that cannot be shown"),
        (lambda: 2**100_000, "int (1024 bytes)"),
        (lambda: np.longdouble(1), "of type longdouble; expected one of None, bool, int"),
        (lambda: {1, 2}, "a value cannot be serialized"),
        (lambda: "\ud800", "UnicodeEncodeError"),
        (recursive, "recursion"),
        (lambda: np.array(["a"], dtype=object), "dtype"),
    ],
    ids=["object", "unshowable", "huge", "long double", "set", "surrogate", "recursive", "object array"],
)
def test_a_value_that_cannot_be_serialized_becomes_a_dead_letter_alone(bad, text):
    seen, letters, errors, failed = sent(lambda: ["a", "b", bad(), "c"], secs=12, conf={"topology.message.timeout.secs": 5})
    assert seen == ["a", "b", "c"]
    (letter,) = letters
    assert text in letter["error"]
    assert (letter["stage"], letter["component"], letter["stream"]) == ("emit", "1", "default")
    assert any(text in e for e in errors)
    assert failed == [2]  # its tree can never be complete


def test_a_tuple_larger_than_any_record_becomes_a_dead_letter_and_the_channel_goes_on():
    seen, letters, errors, _ = sent(lambda: ["a", b"x" * (9 << 20), "b", b"y" * (7 << 20), "c"])
    assert [v if len(v) < 9 else len(v) for v in seen] == ["a", "b", 7 << 20, "c"]
    (letter,) = letters
    assert "the tuple has 94" in letter["error"] and "at most 8388608" in letter["error"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**63),
        2**64 - 1,
        2**64,
        -(2**63) - 1,
        [2**8000, {-(2**70): 1}],
        0.1,
        float("inf"),
        "ü\0",
        b"\xff",
        [1, [2]],
        {"a": {"b": [1]}},
        {1: 2},
        {(1, 2): "x"},
        {(1, (2, "y")): (3,)},
    ],
    ids=repr,
)
def test_plain_values_arrive_as_they_were_and_tuples_as_lists(value):
    def listed(v):
        return [listed(x) for x in v] if isinstance(v, (list, tuple)) else {k: listed(x) for k, x in v.items()} if isinstance(v, dict) else v

    seen, letters, _, _ = sent(lambda: ["a", value, "b"])
    assert letters == []
    assert seen == ["a", listed(value), "b"]


# --- damaged records --------------------------------------------------------------------------------------------------


def counting():
    spout, tracker = fed("word")
    builder = TopologyBuilder()
    builder.set_spout("1", spout)
    builder.set_bolt("2", TestWordCounter(), 2).fields_grouping("1", Fields("word"))
    return builder, spout, tracker


def counts(run):
    total = Counter()
    for bolt in run.components("2"):
        total.update(bolt._counts)
    return total


GARBAGE = {
    "empty": b"",
    "none": None,
    "noise": b"\x00\xff\x13garbage",
    "text": b"hello",
    "truncated": encode_data(1, 0, [encode_segment("default", 3, [["a", "b", "c"]], None)])[:-3],
    "wrong version": msgpack.packb([9, 0, 1, 0, []]),
    "unknown kind": msgpack.packb([1, 77]),
    "unknown task": encode_data(99, 0, [encode_segment("default", 1, [["a"]], None)]),
    "task of no subscription": encode_data(2, 0, [encode_segment("elsewhere", 1, [["a"]], None)]),
    "two columns": encode_data(1, 0, [encode_segment("default", 1, [["a"], ["b"]], None)]),
    "short column": encode_data(1, 0, [encode_segment("default", 3, [["a"]], None)]),
    "scalar column": encode_data(1, 0, [encode_segment("default", 1, [7], None)]),
    "anchors of text": encode_data(1, 0, [encode_segment("default", 1, [["a"]], ["x"])]),
    "anchors of one": encode_data(1, 0, [encode_segment("default", 1, [["a"]], [[5]])]),
    "float anchors": encode_data(1, 0, [encode_segment("default", 1, [["a"]], np.array([1.5]))]),
    "text column": encode_data(1, 0, [encode_segment("default", 2, ["ab"], None)]),
    "column of a mapping": encode_data(1, 0, [encode_segment("default", 1, [{"a": 1}], None)]),
    "negative": encode_data(1, -5, [encode_segment("default", 1, [["a"]], None)]),
    "no segments": msgpack.packb([1, 0, 1, 0, 5]),
    "map": msgpack.packb({"a": 1}),
    "pulse": msgpack.packb([1, 1]),
    "tick": msgpack.packb([1, 2, "often", None]),
    "unhashable stream": msgpack.packb([1, 0, 1, 0, [[["default"], 1, [["a"]], None]]]),
}


@pytest.mark.parametrize("component", ["1", "2", "__acker"])
@pytest.mark.parametrize("kind", sorted(GARBAGE))
def test_a_record_that_is_no_frame_becomes_a_dead_letter_and_everything_else_is_exact(kind, component):
    builder, spout, tracker = counting()
    with running(builder, secs=1) as run:
        for i in range(20):
            if i in (0, 7, 13):
                run.sim.log.append(f"t.{component}", 0, None, GARBAGE[kind])
            spout.feed([f"w{i % 5}"], i)
            run.advance(0.3)
        run.advance(1)
        assert counts(run) == Counter({f"w{i}": 4 for i in range(5)})
        assert all(tracker.is_acked(i) for i in range(20))
        letters = run.dead_letters()
        assert len(letters) == 3, [letter["error"] for letter in letters]
        assert {(x["stage"], x["topic"], x["partition"], x["component"]) for x in letters} == {("decode", f"t.{component}", "0", component)}
        assert run.total(component, "dead_letters") == 3


def damage_one(run, topic, number, how):
    """Damage the ``number``-th data frame of a topic from now on, as it is written."""
    log, seen = run.sim.log, [0]
    append = log.append

    def damaged(topic_, partition, key, value, headers=None):
        if topic_ == topic and value[:3] == b"\x95\x01\x00":
            seen[0] += 1
            if seen[0] == number:
                value = how(value)
        return append(topic_, partition, key, value, headers)

    log.append = damaged


@pytest.mark.long
@pytest.mark.parametrize("how", [lambda v: v[:-2], lambda v: v[:2], lambda v: b"\xc1" + v], ids=["truncated", "header lost", "garbage"])
def test_a_frame_damaged_on_its_way_loses_its_own_tuples_only(how):
    builder, spout, tracker = counting()
    with running(builder, {"topology.message.timeout.secs": 60}, secs=1) as run:
        damage_one(run, "t.2", 4, how)
        for i in range(12):
            spout.feed(["same"], i)
            run.advance(1)
        for i in range(12, 21):  # if the header is damaged, the frames behind it are held back for a while
            run.advance(5)
            spout.feed(["same"], i)
        run.advance(1)
        assert counts(run) == {"same": 20}
        (lost,) = [i for i in range(21) if not tracker.is_acked(i)]
        assert len(run.dead_letters()) == 1
        assert any(f"tuples {lost} to {lost} of task 1 are lost in a damaged record" in e for e in run.errors("2"))
        run.advance(75, 1)
        assert tracker.is_failed(lost)


@pytest.mark.parametrize("seed", seeds(40))
def test_no_damage_whatever_stops_a_task(seed):
    rng = random.Random(seed)
    builder, spout, _ = counting()
    with running(builder, {"topology.message.timeout.secs": 3}, secs=0.5) as run:
        frames = []
        for i in range(25):
            spout.feed([f"w{i % 5}"], i)
            run.advance(0.2)
            for topic in ("t.1", "t.2", "t.__acker"):
                frames += [(topic, r.value) for r in run.sim.log.records(topic)[-3:]]
            topic, value = rng.choice(frames)
            mutant = bytearray(value or b"\0")
            for _ in range(rng.randint(1, 4)):
                mutant[rng.randrange(len(mutant))] = rng.randrange(256)
            if rng.random() < 0.3:
                del mutant[rng.randrange(len(mutant)) :]
            run.sim.log.append(rng.choice((topic, "t.1", "t.2", "t.__acker")), 0, None, bytes(mutant))
        run.advance(3)
        assert run.sim.pending_records() == 0


@pytest.mark.parametrize("seed", seeds(40))
def test_stray_garbage_changes_nothing_under_faults_either(seed):
    def run(seed, faults):
        topology, conf = TOPOLOGIES["chain"]()
        now = [1_000_000]
        conf |= {"topology.emulator.snapshot.interval.ms": 300, "topology.emulator.frame.max.tuples": 2}
        plan = TopologyPlan.build("t", "t-1-0", conf, topology)
        log = MemoryLog(lambda: now[0])
        sim = simulate(plan, log, lambda: now[0], seed=seed, faults=faults)
        sim.activate()
        for step in range(30):
            if step in (0, 1, 2, 5):
                for component in plan.component_ids:
                    log.append(f"t.{component}", 0, None, GARBAGE["noise"])
            sim.tick_clock()
            sim.run_until_quiet()
            now[0] += 200
        outputs = {dict(r.headers)["record-id"]: r.value for r in log.records("out")}
        return Counter(outputs.values()), [sorted(b.seen) for b in sim.components("sink")], sim

    plain = run(None, Faults())
    assert sum(plain[0].values()) == 36
    assert len(plain[2].dead_letters()) == 16
    faulty = run(seed, Faults(torn_write=0.4, repeated=0.1, restarted=0.05, snapshot=0.2))
    assert faulty[:2] == plain[:2], faulty[2].fault_counts
    offsets = {(dict(r.headers)["topic"], dict(r.headers)["offset"]) for r in faulty[2].dead_letters()}
    assert len(offsets) == 16


class Measured(Bolt):
    """Registers a gauge and a counter, and raises once."""

    def prepare(self, conf, context, collector):
        self.seen = []
        self.counter = context.register_counter("seen")
        context.register_gauge("last", lambda: self.seen[-1] if self.seen else None)

    def execute(self, tup):
        if tup[0] == 2:
            raise ValueError("two")
        self.seen.append(tup[0])
        self.counter.inc()

    def snapshot(self):
        return self.seen

    def restore(self, state):
        self.seen = list(state)


def test_a_component_that_breaks_registers_its_metrics_anew_and_its_counters_go_on():
    builder = TopologyBuilder()
    builder.set_spout("spout", FixedTupleSpout([(i,) for i in range(5)], "n"))
    builder.set_bolt("measured", Measured()).shuffle_grouping("spout")
    with LocalCluster(simulated=True) as cluster:
        handle = cluster.submit_topology("t", {"topology.acker.executors": 0}, builder.create_topology())
        cluster.advance_cluster_time(1)
        [task] = [t for t in handle.stats.tasks.values() if t["component"] == "measured"]
        assert task["metrics"] == {"seen": 4, "last": 4}


# --- states that cannot be written ------------------------------------------------------------------------------------


class Chain(Bolt):
    """Keeps its inputs as a chain of tuples, ``((((), 1), 2), 3)``, or as the result of ``shape``."""

    def __init__(self, shape=None):
        self.shape = shape

    def prepare(self, conf, context, collector):
        self.seen = []

    def execute(self, tup):
        self.seen.append(tup[0])

    def snapshot(self):
        chain = ()
        for number in self.seen if len(self.seen) < 40 else []:
            chain = (chain, number)
        return [self.seen, self.shape() if self.shape and len(self.seen) < 40 else chain]

    def restore(self, state):
        self.seen = list(state[0])


@pytest.mark.parametrize(("shape", "text"), [(None, "nested too deeply.*at most 32"), (object, "given: <object object")])
def test_a_state_that_cannot_be_written_is_reported_with_its_component_and_snapshots_go_on_when_it_can(shape, text):
    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=60))
    builder.set_bolt("keeps", Chain(shape)).shuffle_grouping("1")
    conf = {"topology.acker.executors": 0, "topology.emulator.snapshot.interval.ms": 300, "topology.emulator.pulse.max.tuples": 1}
    with running(builder, conf, secs=4) as run:
        (task,) = run.sim.plan.component_tasks("keeps")
        first = run.sim.store.versions(task)[-1] if run.sim.store.versions(task) else 0
        assert first < 40 and run.components("keeps")[0].seen == list(range(len(run.components("keeps")[0].seen)))
        (error, *_) = [e for e in run.errors("keeps") if "snapshot()" in e]
        assert re.search(f"component 'keeps'.*cannot be written: .*{text}", error), error
        run.advance(6)
        assert run.components("keeps")[0].seen == list(range(60))
        assert run.sim.store.versions(task)[-1] > first, "no snapshot was taken when the state could be written again"


def test_the_state_of_a_spout_that_cannot_be_written_is_an_error_that_names_it():
    class Deep(Life):
        def snapshot(self):
            return wrapped(300)

        def restore(self, state):
            pass

    builder = TopologyBuilder()
    builder.set_spout("deep", Deep(limit=3))
    builder.set_bolt("2", Keep()).shuffle_grouping("deep")
    with pytest.raises(TopologyError, match="snapshot\\(\\) of component 'deep'.*nested too deeply"), running(builder, secs=1):
        pass


def wrapped(depth):
    value = ()
    for _ in range(depth):
        value = (value,)
    return value
