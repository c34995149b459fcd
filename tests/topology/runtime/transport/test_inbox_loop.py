"""The loop of executors of real-time queries, on an in-memory log in place of Spark and Kafka."""

from __future__ import annotations

import itertools

import pytest

from dskype.topology import BasicBolt, Config, Fields, KafkaSpout, Spout, TopologyBuilder
from dskype.topology.core.executor import Executor, Owner
from dskype.topology.core.frames import encode_control, encode_pulse, expand_records
from dskype.topology.core.snapshots import MemorySnapshotStore
from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.transport import inbox_loop
from dskype.topology.runtime.transport.inbox_loop import InboxLoop, KeptPositions
from dskype.topology.simulated.log import MemoryLog
from dskype.topology.testing import FeederSpout
from tests.topology.simulated.test_owners import emitted


class Sum(BasicBolt):
    def prepare(self, conf, context):
        self.total = 0

    def execute(self, tup, collector):
        self.total += int(tup.values[0])
        collector.emit((self.total,))

    def snapshot(self):
        return self.total

    def restore(self, state):
        self.total = state

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("total"))


class Clock:
    """Time in which only waits take any."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Reader:
    """Reads the log as Spark passes Kafka's records on; its waits are over at once."""

    clock = Clock()

    def __init__(self, log, positions):
        self.log, self.positions = log, dict(positions)

    def read(self, wait_s, most):
        found = [r for (t, p), start in self.positions.items() for r in self.log.read(t, p, start, self.log.end(t, p))][:most]
        self.positions |= {(r.topic, r.partition): r.offset + 1 for r in found}
        if not found:
            Reader.clock.sleep(wait_s)
        return found


class Writer:
    """Writes to the log when it is flushed, unless its process has been killed; reports at once, because a client sends by itself and nobody waits for them."""

    killed = False

    def __init__(self, log):
        self.log, self.waiting = log, []

    def write(self, records):
        for record in expand_records(records):
            if record.topic != "t.metrics":
                self.waiting.append(record)
            elif not Writer.killed:
                self.log.write(record)

    def flush(self):
        if Writer.killed:
            raise KeyboardInterrupt
        for record in self.waiting:
            self.log.write(record)
        self.waiting.clear()


class Home:
    """What processes share: a log, snapshots, and a folder."""

    def __init__(self, folder, conf=None, feeder=None):
        self.log, self.store, self.folder = MemoryLog(lambda: 1_000_000), MemorySnapshotStore(3), folder
        self.feeder = feeder or FeederSpout("n")
        builder = TopologyBuilder()
        builder.set_spout("feeder", self.feeder)
        builder.set_spout("in", KafkaSpout(pattern="in-.*"), 2)
        builder.set_bolt("sum", Sum()).shuffle_grouping("feeder")
        builder.set_bolt("next", Sum()).shuffle_grouping("sum")
        self.plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, **(conf or {})}, builder.create_topology())

    def loop(self, component, epoch=1, external=None, index=0, interval_s=0.0):
        executor = Executor(self.plan, component, index, self.store, self.log, lambda: 1_000_000, owner=Owner("x", 0, epoch))
        kept = KeptPositions(self.folder / f"{component}-{epoch}", [task.id for task in executor.tasks])

        def save(number):
            if executor.snapshot_due(number):
                executor.save_snapshots(executor.pending_snapshots(number))

        return InboxLoop(executor, Writer(self.log), kept, external or {}, save, lambda positions: Reader(self.log, positions), interval_s=interval_s)

    def ask(self, n, credit=5):
        if n == 1:
            self.log.append("t.feeder", 0, None, encode_control("activate", 1_000_000))
        self.log.append("t.feeder", 0, None, encode_pulse(n, 1_000_000, credit))

    def totals(self):
        return [(number, *row) for _, _, number, row in emitted(self.log.read("t.next", 0, 0, self.log.end("t.next", 0)))]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(Reader, "clock", Clock())
    monkeypatch.setattr(inbox_loop, "time", Reader.clock)
    monkeypatch.setattr(Writer, "killed", False)
    return Home(tmp_path)


def steps(*loops, times=3):
    for _ in range(times):
        for loop in loops:
            loop.step()


def test_tuples_pass_and_an_idle_spout_needs_no_pulse(home):
    spout, bolt = home.loop("feeder"), home.loop("sum")
    home.ask(1)
    steps(spout, bolt)
    home.feeder.feed(["1"])
    home.feeder.feed(["2"])
    steps(spout, bolt)
    home.feeder.feed(["3"])
    steps(spout, bolt)
    assert home.totals() == [(0, 1), (1, 3), (2, 6)]


def test_batches_begin_no_more_often_than_their_interval_says(home):
    """Those of a spout that always has something, too: each writes an entry of its journal."""
    loop = home.loop("feeder", interval_s=3.0)
    home.ask(1, credit=1000)
    batches, began_s = [], Reader.clock.now
    while Reader.clock.now < began_s + 31:
        home.feeder.feed(["1"])
        before, now = loop._number, Reader.clock.now
        loop.step()
        assert Reader.clock.now <= now + 0.5, "signals and connections are looked after in between"
        batches += [Reader.clock.now] * (loop._number - before)
    assert 10 <= len(batches) <= 11 and min(b - a for a, b in itertools.pairwise(batches)) >= 3.0 - 1e-6


class Asked(Spout):
    """Has nothing to emit, and notes when it is asked."""

    times: list[float] = []

    def next_tuple(self):
        self.times.append(Reader.clock.now)

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("n"))


SLEEP = {Config.TOPOLOGY_SPOUT_WAIT_STRATEGY: "org.apache.storm.spout.SleepSpoutWaitStrategy"}


@pytest.mark.parametrize(
    ("conf", "first_ms", "later_ms"),
    [
        ({}, 5, 20),
        ({Config.TOPOLOGY_SLEEP_SPOUT_WAIT_STRATEGY_TIME_MS: 70}, 5, 20),  # it is for another strategy, as in Storm
        ({**SLEEP, Config.TOPOLOGY_SLEEP_SPOUT_WAIT_STRATEGY_TIME_MS: 2}, 2, 20),
        ({**SLEEP, Config.TOPOLOGY_SLEEP_SPOUT_WAIT_STRATEGY_TIME_MS: 70}, 70, 70),
        ({**SLEEP, Config.TOPOLOGY_SLEEP_SPOUT_WAIT_STRATEGY_TIME_MS: 700}, 700, 700),  # longer than the loop waits at a time
    ],
)
def test_an_idle_spout_is_asked_as_often_as_its_strategy_says(home, monkeypatch, conf, first_ms, later_ms):
    monkeypatch.setattr(Asked, "times", [])
    home = Home(home.folder, conf, Asked())
    loop = home.loop("feeder")
    home.ask(1)
    while Reader.clock.now < 110:
        loop.step()
    gaps = [round((after - before) * 1000, 6) for before, after in itertools.pairwise(Asked.times)]
    assert gaps[1:4] == pytest.approx([first_ms] * 3, abs=1) and gaps[-3:] == pytest.approx([later_ms] * 3, abs=1)


def test_the_pulses_of_an_idle_spout_do_not_let_it_be_asked_more_often(home, monkeypatch):
    monkeypatch.setattr(Asked, "times", [])
    home = Home(home.folder, {}, Asked())
    loop, began = home.loop("feeder"), Reader.clock.now
    for pulse in range(1, 11):
        home.ask(pulse)
        while Reader.clock.now < began + pulse:
            loop.step()
    gaps = [after - before for before, after in itertools.pairwise(Asked.times)]
    assert gaps[-10:-1] == pytest.approx([0.02] * 9, abs=0.001)


def test_a_successor_begins_where_everything_before_was_written(home):
    spout, bolt = home.loop("feeder"), home.loop("sum")
    home.ask(1)
    home.feeder.feed(["1"])
    steps(spout, bolt)
    home.feeder.feed(["2"])
    steps(spout, times=1)
    Writer.killed = True
    with pytest.raises(KeyboardInterrupt):
        steps(bolt)
    Writer.killed = False
    home.feeder.feed(["4"])
    steps(spout, home.loop("sum"))
    assert home.totals() == [(0, 1), (1, 3), (2, 7)]


def test_a_successor_reports_what_its_predecessor_did_and_did_not_report(home):
    """Nothing further comes for its tasks, and without the report their input would count as undelivered, and a spout's pulses as unseen."""
    home.ask(1)
    home.feeder.feed(["1"])
    steps(home.loop("feeder"), home.loop("sum"), times=1)
    stats = TopologyStats()

    def read():
        for record in home.log.read("t.metrics", 0, 0, home.log.end("t.metrics", 0)):
            stats.feed(record.value, home.plan.task_component)
        return stats

    assert not read().tasks
    for component in ("feeder", "sum"):
        successor = home.loop(component)
        while Reader.clock.now < 101:
            successor.step()
        Reader.clock.now = 100.0
    (spout,), (bolt,) = map(home.plan.component_tasks, ("feeder", "sum"))
    assert read().tasks[spout]["pulse"] == 1 and stats.tasks[spout]["sent"] == {str(bolt): 1}
    assert stats.undelivered_by_task() == {bolt: 0, home.plan.component_tasks("next")[0]: 1}
    assert not stats.reported(0), "neither has run a batch"
    assert not home.loop("next")._executor.report(), "it has done nothing yet"


def test_without_kept_positions_a_successor_begins_at_its_snapshot_and_emits_again(home):
    spout, bolt = home.loop("feeder"), home.loop("sum")
    home.ask(1)
    home.feeder.feed(["1"])
    steps(spout, bolt)
    home.log.append("t.sum", 0, None, encode_control("snapshot", 1_000_000))
    home.feeder.feed(["2"])
    steps(spout, bolt)
    home.feeder.feed(["4"])
    steps(spout, bolt)
    steps(home.loop("sum", epoch=2))
    found = home.totals()
    assert found[:3] == [(0, 1), (1, 3), (2, 7)] and set(found) == set(found[:3]) and 3 < len(found) < 6


def test_a_bolt_that_comes_back_to_a_host_does_not_go_back_behind_its_newest_snapshot(home):
    spout, here = home.loop("feeder"), home.loop("sum")
    home.ask(1)
    home.feeder.feed(["1"])
    steps(spout, here)
    elsewhere = home.loop("sum", epoch=2)  # another file, as on another host
    for words in ["2"], ["4"]:
        home.log.append("t.sum", 0, None, encode_control("snapshot", 1_000_000))
        home.feeder.feed(words)
        steps(spout, elsewhere)
    newest = home.store.newest_version(home.plan.component_tasks("sum")[0])
    back = home.loop("sum")
    assert back.input.positions["t.sum", 0] == newest > 1
    steps(back)
    assert set(home.totals()) == {(0, 1), (1, 3), (2, 7)}


def test_a_kafka_spout_that_moves_reads_on_where_its_journal_is_unless_the_query_was_started_anew(home):
    spout = home.loop("in", external={("in-a", 0): 0})
    home.log.append("t.in", 0, None, encode_control("activate", 1_000_000))
    home.log.append("t.in", 0, None, encode_pulse(1, 1_000_000, 5))
    for value in (b"1", b"2"):
        home.log.append("in-a", 0, None, value)
    steps(spout)

    def read_so_far(epoch):
        executor = Executor(home.plan, "in", 0, home.store, home.log, lambda: 1_000_000, owner=Owner("y", 0, epoch))
        return executor.positions_since_start().get(("in-a", 0))

    assert read_so_far(epoch=1) == 2
    assert read_so_far(epoch=2) is None


def test_a_spout_goes_on_behind_its_journal(home):
    spout, bolt = home.loop("feeder"), home.loop("sum")
    home.ask(1)
    steps(spout)
    home.feeder.feed(["1"])
    Writer.killed = True
    with pytest.raises(KeyboardInterrupt):
        steps(spout)
    Writer.killed = False
    spout = home.loop("feeder")
    home.ask(2)
    home.feeder.feed(["2"])
    steps(spout)
    home.ask(3)
    steps(spout, bolt)
    assert home.totals() == [(0, 1), (1, 3)]


def test_external_partitions_go_to_one_executor_each(home):
    external = dict.fromkeys([("in-a", 0), ("in-a", 1), ("in-b", 0)], 0)
    read = [{where for where in home.loop("in", external=external, index=i).input.positions if where[0] != "t.in"} for i in range(2)]
    assert read[0] | read[1] == set(external) and not read[0] & read[1] and read[0] and read[1]


def test_a_successor_goes_on_in_partitions_that_its_predecessor_read_though_their_beginning_is_gone(home):
    def play(*starts):
        loops = [home.loop("in", external=dict(starts), index=i) for i in range(2)]
        for number in range(3):
            for index in range(2):
                home.log.append("t.in", index, None, encode_control("activate", 1_000_000))
                home.log.append("t.in", index, None, encode_pulse(number, 1_000_000, 5))
            steps(*loops)
        assert not any(task.errors.lines for loop in loops for task in loop._executor.tasks)
        return {where: offset for loop in loops for task in loop._executor.tasks for where, offset in task.positions().items()}["in-b", 0]

    for value in (b"1", b"2", b"3"):
        home.log.append("in-b", 0, None, value)
    assert play((("in-b", 0), 0)) == 3
    home.log.drop_before("in-b", 0, 2)  # by retention
    home.log.append("in-b", 0, None, b"4")
    assert play((("in-b", 0), 3)) == 4
