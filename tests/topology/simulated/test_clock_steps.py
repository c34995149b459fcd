"""The machines' clocks are set while a topology runs: nothing that depends on time is disturbed.

The log's timestamps are the machines' clocks here; the topology's own clock is not set (``steady_clock``).
"""

import pytest

from dskype.topology import Bolt, Fields, KafkaSpout, TopologyBuilder
from dskype.topology.core.frames import encode_control
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from dskype.topology.windows import Duration

from .test_windowed_topologies import OUT, Keep, Paced, Windows

HOUR_MS = 3_600_000


class Run:
    def __init__(self, topology, conf=None, seed=None):
        self.now_ms, self.set_by_ms = 1_000_000_000, 0
        self.log = MemoryLog(lambda: self.now_ms + self.set_by_ms)
        plan = TopologyPlan.build("t", "t-1-0", conf or {}, topology)
        self.sim = simulate(plan, self.log, lambda: self.now_ms, seed=seed)
        self.sim.activate()

    def go(self, ms):
        for _ in range(ms // 100):
            self.sim.tick_clock()
            self.sim.run_until_quiet()
            self.now_ms += 100
        return self


def windowed(window):
    builder = TopologyBuilder()
    builder.set_spout("in", Paced())
    builder.set_bolt("window", window, 2).fields_grouping("in", Fields("key"))
    builder.set_bolt("sum", Keep()).shuffle_grouping("window")
    return builder.create_topology()


@pytest.mark.parametrize(
    "steps", [(-HOUR_MS, 0), (HOUR_MS, 0), (-HOUR_MS, HOUR_MS), (HOUR_MS, -HOUR_MS)], ids=["back", "forward", "back, forward", "forward, back"]
)
def test_windows_by_time_go_on(steps):
    """A tuple may be in the next window if its task did not know the time yet; but it is in exactly one, and not further off."""
    conf = {"topology.emulator.snapshot.interval.ms": 300, "topology.emulator.pulse.idle.interval.ms": 20}
    numbers, windows = [], []
    for first, second in ((0, 0), steps):
        run = Run(windowed(Windows().with_tumbling_window(Duration(600))), conf).go(1_000)
        run.set_by_ms = first
        run.go(1_000)
        run.set_by_ms = second
        run.go(3_000)
        found = [eval(r.value) for r in run.log.records(OUT)]
        windows.append(len(found))
        numbers.append(sorted(n for *_, tuples, _, _ in found for n in tuples))
    assert len(numbers[0]) > 60 and numbers[0] == sorted(set(numbers[0]))
    assert numbers[1] == numbers[0] and abs(windows[1] - windows[0]) <= 2


class Failing(Bolt):
    def prepare(self, conf, context, collector):
        self.collector, self.clock_ms, self.times = collector, context.clock_ms, []

    def execute(self, tup):
        self.times.append(self.clock_ms())
        self.collector.fail(tup)


class Read(KafkaSpout):
    def translate(self, topic, partition, offset, key, value, timestamp_ms, headers):
        return [("default", (value.decode(),))]

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("word"))


@pytest.mark.parametrize("step", [-HOUR_MS, HOUR_MS], ids=["back", "forward"])
def test_what_failed_is_tried_again_when_it_is_due(step):
    builder = TopologyBuilder()
    builder.set_spout("in", Read(topics=["words"]))
    builder.set_bolt("fails", Failing()).shuffle_grouping("in")
    attempts = []
    for set_by_ms in (0, step):
        run = Run(builder.create_topology())
        run.log.append("words", 0, None, b"lake")
        run.go(500)
        run.set_by_ms = set_by_ms
        run.go(6_000)
        attempts.append(len(run.sim.components("fails")[0].times))
    assert attempts[0] >= 8 and attempts[1] == attempts[0]


def test_a_frame_that_waits_for_one_that_is_lost_waits_no_longer():
    """The time that a gap has lasted is counted from record to record, however their clock was set in between."""
    from dskype.topology.core.receiver import PATIENCE_MS, Receiver

    waits = []
    for step in (0, -HOUR_MS, HOUR_MS):
        receiver, records = Receiver(None, lambda text: None), 0
        receiver.advance_time(10 * HOUR_MS)
        start = receiver._waited_ms
        while receiver._waited_ms - start < PATIENCE_MS:
            records += 1
            receiver.advance_time(10 * HOUR_MS + records * 1000 + (step if records > 10 else 0))
        waits.append(records)
    assert waits == [30, 31, 26]  # the step itself counts for at most 5 s


def test_snapshots_are_taken_as_often(monkeypatch):
    builder = TopologyBuilder()
    builder.set_spout("in", Paced())
    builder.set_bolt("sum", Keep()).shuffle_grouping("in")
    run = Run(builder.create_topology(), {"topology.emulator.snapshot.interval.ms": 300}).go(1_000)
    run.set_by_ms = -HOUR_MS
    task = run.sim.plan.component_tasks("sum")[0]
    before = run.sim.store.versions(task)[-1]
    for _ in range(10):
        run.log.append("t.sum", 0, None, encode_control("nothing", run.now_ms))
        run.go(300)
    assert run.sim.store.versions(task)[-1] >= before + 8
