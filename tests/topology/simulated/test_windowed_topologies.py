"""Windowed bolts in running topologies: timing, acks, late streams, exceptions, and equal windows despite faults."""

from collections import Counter
from functools import cache

import pytest

from dskype.topology import Bolt, Fields, IllegalArgumentException, Spout, TopologyBuilder
from dskype.topology.core.executor import Executor, Owner
from dskype.topology.core.snapshots import MemorySnapshotStore
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from dskype.topology.windows import Count, Duration, WindowedBolt

from .storm_helpers import AckBolt, Keep, Remember, fed, running

pytestmark = pytest.mark.long(seconds=60)

OUT = "windows"


class Windows(WindowedBolt):
    """Writes every window to a topic and emits its sum; keeps a running number as its state."""

    def prepare(self, conf, context, collector):
        self.collector, self.task, self.number, self.seen = collector, context.get_this_task_index(), 0, []

    def execute(self, window):
        values = [t["number"] for t in window]
        self.number += 1
        self.seen.append((values, [t["number"] for t in window.get_new()], [t["number"] for t in window.get_expired()]))
        line = (self.task, self.number, window.get_start_timestamp(), window.get_end_timestamp(), *map(sorted, self.seen[-1]))
        self.collector.send_record(OUT, None, repr(line).encode())
        self.collector.emit((sum(values), len(values)))

    def snapshot(self):
        return self.number

    def restore(self, state):
        self.number = state

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number", "count"))


class Paced(Spout):
    """Emits three numbers per 100 ms of its task's time, tracked, with event times that are out of order."""

    LIMIT = 90

    def open(self, conf, context, collector):
        self.collector, self.context, self.next, self.begin, self.done = collector, context, 0, None, []

    def next_tuple(self):
        now = self.context.clock_ms()
        self.begin = now if self.begin is None else self.begin
        while self.next < min(self.LIMIT, (now - self.begin) * 3 // 100):
            i = self.next
            self.next += 1
            self.collector.emit((i, i % 4, 1000 + i * 33 - (i * 7 % 5) * 40), message_id=i)

    def ack(self, msg_id):
        self.done.append(msg_id)

    def fail(self, msg_id):
        raise AssertionError(f"{msg_id} failed")

    def snapshot(self):
        return [self.next, self.begin, self.done]

    def restore(self, state):
        self.next, self.begin, self.done = state[0], state[1], list(state[2])

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number", "key", "ts"))


# --- timing and acks --------------------------------------------------------------------------------------------------


def test_duration_windows_slide_with_the_clock_from_the_activation_on():
    feeder, tracker = fed("number")
    builder = TopologyBuilder()
    builder.set_spout("in", feeder)
    builder.set_bolt("window", Windows().with_window(Duration.of_seconds(4), Duration.of_seconds(2))).shuffle_grouping("in")
    builder.set_bolt("sum", Keep()).shuffle_grouping("window")
    with running(builder, active=False, secs=7.3) as run:
        run.cluster.activate("t")
        for i in range(5):
            feeder.feed([i], i)
            run.advance(1)
        assert [w[0] for w in run.components("window")[0].bolt.seen] == [[0, 1], [0, 1, 2, 3]]
        run.advance(7)
        assert run.components("window")[0].bolt.seen[2:] == [([2, 3, 4], [4], [0, 1]), ([4], [], [2, 3])]
        assert run.components("sum")[0].seen == [(1, 2), (6, 4), (9, 3), (4, 1)]
        assert all(tracker.is_acked(i) for i in range(5))


def test_tuples_are_acked_when_they_expire_and_not_before():
    feeder, tracker = fed("number")
    builder = TopologyBuilder()
    builder.set_spout("in", feeder)
    builder.set_bolt("window", Windows().with_window(Count(3), Count(1))).shuffle_grouping("in")
    builder.set_bolt("sink", AckBolt()).shuffle_grouping("window")
    with running(builder) as run:
        for i in range(5):
            feeder.feed([i], i)
        run.advance(1)
        assert [tracker.is_acked(i) for i in range(5)] == [True, True, False, False, False]


def test_what_a_window_emits_belongs_to_the_trees_of_all_its_tuples():
    class Fail(Bolt):
        def prepare(self, conf, context, collector):
            self.collector = collector

        def execute(self, tup):
            self.collector.fail(tup) if tup["number"] == 3 + 4 + 5 else self.collector.ack(tup)

    feeder, tracker = fed("number")
    builder = TopologyBuilder()
    builder.set_spout("in", feeder)
    builder.set_bolt("window", Windows().with_tumbling_window(Count(3))).shuffle_grouping("in")
    builder.set_bolt("sink", Fail()).shuffle_grouping("window")
    with running(builder) as run:
        for i in range(10):
            feeder.feed([i], i)
        run.advance(1)
        assert [i for i in range(10) if tracker.is_failed(i)] == [3, 4, 5]
        assert [i for i in range(10) if tracker.is_acked(i)] == [0, 1, 2]


def test_late_tuples_reach_the_bolt_on_their_stream_as_they_were():
    class Late(Bolt):
        def prepare(self, conf, context, collector):
            self.collector, self.seen = collector, []

        def execute(self, tup):
            late = tup["late_tuple"]
            self.seen.append((late["number"], late.get_long_by_field("ts"), late.get_source_component(), late.get_fields().names))
            self.collector.ack(tup)

    feeder, tracker = fed("number", "ts")
    builder = TopologyBuilder()
    builder.set_spout("in", feeder)
    window = Windows().with_tumbling_window(Duration.of_seconds(10)).with_timestamp_field("ts").with_late_tuple_stream("late")
    builder.set_bolt("window", window).shuffle_grouping("in")
    builder.set_bolt("late", Late()).shuffle_grouping("window", "late")
    with running(builder, secs=0.5) as run:
        feeder.feed([1, 25_000], "a")
        run.advance(1)
        feeder.feed([2, 24_000], "b")
        run.advance(1)
        assert run.components("late")[0].seen == [(2, 24_000, "in", ("number", "ts"))]
        assert tracker.is_acked("b") and not tracker.is_acked("a")
        assert run.components("window")[0].late_tuples == 1


def test_an_exception_in_a_window_lets_its_tuples_time_out_and_the_next_windows_go_on():
    class Breaks(Windows):
        def execute(self, window):
            if any(t["number"] == 4 for t in window):
                raise ValueError("four")
            super().execute(window)

    feeder, tracker = fed("number")
    builder = TopologyBuilder()
    builder.set_spout("in", feeder)
    builder.set_bolt("window", Breaks().with_tumbling_window(Count(3))).shuffle_grouping("in")
    with running(builder, {"topology.message.timeout.secs": 5}) as run:
        for i in range(12):
            feeder.feed([i], i)
        run.advance(1)
        lines = [eval(r.value) for r in run.cluster.log.records(OUT)]
        assert [line[4] for line in lines] == [[0, 1, 2], [6, 7, 8], [9, 10, 11]]
        assert [line[1] for line in lines] == [1, 2, 3]  # the user's own state has continued
        assert "ValueError: four" in run.errors("window")[0]
        run.advance(12)
        assert [i for i in range(12) if tracker.is_acked(i)] == [0, 1, 2, 6, 7, 8]
        assert all(tracker.is_failed(i) for i in (3, 4, 5))


def test_a_window_that_is_too_long_is_refused_when_the_topology_starts():
    builder = TopologyBuilder()
    builder.set_spout("in", fed("number")[0])
    builder.set_bolt("window", Windows().with_tumbling_window(Duration.of_seconds(20))).shuffle_grouping("in")
    with pytest.raises(IllegalArgumentException, match="value 40000 is more than topology.message.timeout.secs value 30000"), running(builder):
        pass


# --- faults -----------------------------------------------------------------------------------------------------------

CONF = {"topology.emulator.snapshot.interval.ms": 300, "topology.emulator.pulse.idle.interval.ms": 20}

FORMS = {
    "sliding count": lambda: Windows().with_window(Count(7), Count(3)),
    "tumbling count": lambda: Windows().with_tumbling_window(Count(4)),
    "sliding time": lambda: Windows().with_window(Duration(1000), Duration(400)),
    "tumbling time": lambda: Windows().with_tumbling_window(Duration(600)),
    "time by count": lambda: Windows().with_window(Duration(500), Count(2)),
    "count by time": lambda: Windows().with_window(Count(5), Duration(800)),
    "event time": lambda: (
        Windows().with_window(Duration(700), Duration(300)).with_timestamp_field("ts").with_lag(Duration(200)).with_watermark_interval(Duration(200))
    ),
    "event count": lambda: Windows().with_window(Count(6), Count(2)).with_timestamp_field("ts").with_watermark_interval(Duration(500)),
    "late": lambda: (
        Windows().with_tumbling_window(Duration(300)).with_timestamp_field("ts").with_watermark_interval(Duration(100)).with_late_tuple_stream("late")
    ),
}


def run(form, seed=None, faults=Faults()):
    builder = TopologyBuilder()
    builder.set_spout("in", Paced())
    builder.set_bolt("window", FORMS[form](), 2).fields_grouping("in", Fields("key"))
    builder.set_bolt("sum", Keep()).shuffle_grouping("window")
    if form == "late":
        builder.set_bolt("late", Keep()).shuffle_grouping("window", "late")
    now = [1_000_000]
    plan = TopologyPlan.build("t", "t-1-0", CONF, builder.create_topology())
    log = MemoryLog(lambda: now[0])
    sim = simulate(plan, log, lambda: now[0], seed=seed, faults=faults)
    sim.activate()
    for _ in range(60):
        sim.tick_clock()
        sim.run_until_quiet()
        now[0] += 100
    return sim


def result(sim):
    once = {}
    for record in sim.log.records(OUT):
        key = dict(record.headers)["record-id"]
        assert once.setdefault(key, record.value) == record.value, "one record id, two windows"
    return Counter(once.values()), sorted(sim.components("in")[0].done), [b.late_tuples for b in sim.components("window")]


@cache
def expected(form):
    windows, acked, late = result(run(form))
    assert len(windows) > 10
    assert len(acked) > 60
    return windows, acked, late


def replayed(sim):
    """Run the whole inbox of the windowed bolt through new tasks, and return the windows that they write."""
    windows = Counter()
    for index in range(sim.plan.num_executors("window")):
        executor = Executor(sim.plan, "window", index, MemorySnapshotStore(3), sim.log, sim.now_ms, owner=Owner("test", 0))
        records = executor.handle(0, [r for r in sim.log.records("t.window", dropped=True) if r.partition == index])
        windows.update(record.value for record in records if record.topic == OUT)
    return windows


@cache
def outcome(form, seed):
    """Return the result of a run with heavy faults, the windows that its inbox gives again, and the faults; two tests look at it."""
    sim = run(form, seed, Faults.heavy())
    assert sim.dead_letters() == []
    return result(sim), replayed(sim), sim.fault_counts


@pytest.mark.parametrize("form", sorted(FORMS))
def test_windows_follow_from_the_inbox_whatever_fails(form):
    for seed in range(12):
        (windows, _, _), again, faults = outcome(form, seed)
        assert windows == again, f"seed {seed}, faults {faults}"
        assert len(windows) > 10


def without_ends(windows):
    """Leave out when windows of counts ended: that was when their last tuple came, and a pulse whose report is lost holds the next one up."""
    return Counter(repr((*line[:3], *line[4:])) for line in map(eval, windows.elements()))


@pytest.mark.parametrize("form", ["sliding count", "tumbling count", "event time"])
def test_windows_that_do_not_depend_on_arrival_times_are_those_of_the_plain_run_whatever_fails(form):
    comparable = Counter if form == "event time" else without_ends
    windows, *others = expected(form)
    for seed in [*range(12), 34, 71]:  # in 34 and 71 a pulse is held up
        (found, *rest), _, faults = outcome(form, seed)
        assert (comparable(found), rest) == (comparable(windows), others), f"seed {seed}, faults {faults}"


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_plain_run_loses_no_tuple(form):
    sim = run(form)
    held = {e.tup["number"] for bolt in sim.components("window") for e in bolt._manager.queue}
    assert set(sim.components("in")[0].done) | held == set(range(Paced.LIMIT))
    late = sum(bolt.late_tuples for bolt in sim.components("window"))
    assert (late > 0) == (form in ("late", "event count"))
    if form == "late":
        assert len(sim.components("late")[0].seen) == late


# --- prepare ----------------------------------------------------------------------------------------------------------


class Greets(Bolt):
    """Emits once when it is prepared, and then its inputs."""

    def prepare(self, conf, context, collector):
        self.collector = collector
        self.collector.emit((-1,))
        self.collector.send_record("greetings", None, b"hello")

    def execute(self, tup):
        self.collector.emit((tup["number"],), anchors=tup)
        self.collector.ack(tup)

    def snapshot(self):
        return None

    def restore(self, state):
        pass

    def declare_output_fields(self, declarer):
        declarer.declare("number")


@pytest.mark.parametrize("seed", [None, *range(40)])
def test_what_prepare_emits_is_emitted_once_although_crashes_prepare_again(seed):
    builder = TopologyBuilder()
    builder.set_spout("in", Paced())
    builder.set_bolt("greets", Greets()).shuffle_grouping("in")
    builder.set_bolt("sink", Remember()).shuffle_grouping("greets")
    now = [1_000_000]
    plan = TopologyPlan.build("t", "t-1-0", {"topology.emulator.snapshot.interval.ms": 200}, builder.create_topology())
    log = MemoryLog(lambda: now[0])
    sim = simulate(plan, log, lambda: now[0], seed=seed, faults=Faults() if seed is None else Faults.heavy())
    sim.activate()
    for _ in range(40):
        sim.tick_clock()
        sim.run_until_quiet()
        now[0] += 100
    assert sim.components("sink")[0].seen == [(i,) for i in range(-1, 90)]
    assert len({dict(r.headers)["record-id"] for r in log.records("greetings")}) == 1
