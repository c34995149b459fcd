"""Input is gone before a Kafka spout has emitted it: the topology ends with an explanation, or continues and counts the loss."""

import random
from collections import Counter

import pytest

from dskype.topology import Bolt, Fields, KafkaSpout, TopologyBuilder
from dskype.topology.config import TRANSPORTS
from dskype.topology.core import kafka_spout as spouts
from dskype.topology.core.loss import DataLossError
from dskype.topology.local import LocalCluster
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from tests.tiers import seeds

from .storm_helpers import Run

SLOW = {"topology.acker.executors": 0, "topology.emulator.pulse.max.tuples": 3, "topology.emulator.pulse.interval.ms": 100}
SKIP = {"topology.emulator.on.data.loss": "skip"}


class Numbers(KafkaSpout):
    """Emits numbers singly or as columns; counts how often it was opened."""

    opened = 0

    def __init__(self, batched=False):
        super().__init__("in", translator=lambda topic, partition, offset, key, value, *_: [("default", (int(value),))], outputs=Fields("number"))

    def open(self, conf, context, collector):
        type(self).opened += 1
        self.collector = collector


class Batches(Numbers):
    def emit_records(self, records):
        self.collector.emit_batch([[int(r.value) for r in records]])
        return ()


class KeepAlways(Bolt):
    """Keeps numbers over crashes, and acks them."""

    def prepare(self, conf, context, collector):
        self.seen, self.collector = [], collector

    def execute(self, tup):
        self.seen.append(tup[0])
        self.collector.ack(tup)

    def snapshot(self):
        return self.seen

    def restore(self, state):
        self.seen = list(state)


def topology(spout, bolt):
    builder = TopologyBuilder()
    builder.set_spout("in", spout)
    builder.set_bolt("out", bolt).shuffle_grouping("in")
    return builder.create_topology()


def write(log, first, stop):
    for number in range(first, stop):
        log.append("in", 0, None, str(number).encode())


@pytest.fixture(autouse=True)
def small_backlog(monkeypatch):
    """Let a task hold only three waiting records, and read only a few at once."""
    monkeypatch.setattr(spouts, "_BACKLOG_BYTES", 1_000)
    monkeypatch.setattr(spouts, "_READ_RECORDS", 5)
    Numbers.opened = Batches.opened = 0


@pytest.fixture
def started(request):
    with LocalCluster(simulated=True) as cluster:

        def start(conf, spout=None, bolt=None, n=60):
            write(cluster.log, 0, n)
            run = Run(cluster, "t", cluster.submit_topology("t", {**SLOW, **conf}, topology(spout or Numbers(), bolt or KeepAlways())))
            run.advance(0.2)
            assert 0 < len(run.components("out")[0].seen) < 20
            return run

        yield start


@pytest.mark.parametrize("kind", [Numbers, Batches])
def test_records_that_aged_out_before_they_were_emitted_end_the_topology(started, kind):
    run = started({}, kind())
    run.cluster.log.drop_before("in", 0, 40)
    with pytest.raises(DataLossError) as raised:
        run.advance(5)
    error, seen = raised.value, run.components("out")[0].seen
    assert str(error).startswith(f"input is lost: {40 - error.first} records of in/0, offsets {error.first} to 39: ")
    assert (error.topic, error.partition, error.behind) == ("in", 0, 40) and error.first - 3 <= len(seen) <= error.first
    assert seen == list(range(len(seen)))
    assert "component: 'in'" in str(error) and "topology.emulator.on.data.loss" in str(error) and "skip" in str(error) and "retention.ms" in str(error)
    assert type(run.components("in")[0]).opened == 1, "the component is not at fault"


@pytest.mark.parametrize("kind", [Numbers, Batches])
def test_records_that_aged_out_are_counted_once_and_the_others_are_emitted(started, kind):
    run = started(SKIP, kind())
    run.cluster.log.drop_before("in", 0, 40)
    run.advance(5)
    write(run.cluster.log, 60, 63)
    run.advance(5)
    seen = run.components("out")[0].seen
    first = seen.index(40)
    assert seen == [*range(first), *range(40, 63)] and 3 < first < 25
    (letter,) = run.dead_letters()
    assert run.sim.dead_letters()[0].value is None
    assert (letter["stage"], letter["topic"], letter["partition"], letter["offset"], letter["first"], letter["last"]) == (
        "read",
        "in",
        "0",
        str(first),
        str(first),
        "39",
    )
    assert f"{40 - first} records were gone" in letter["error"] and "the log begins at 40" in letter["error"]
    (task,) = [t for t in run.sim.stats.tasks.values() if t["component"] == "in"]
    assert task["lost"] == {"in/0": 40 - first} and sum(n for key, n in task["rejected"].items() if key.startswith("read/")) == 1
    assert len([e for e in run.errors("in") if "were gone" in e]) == 1
    assert kind.opened == 1


@pytest.mark.parametrize("conf", [{}, SKIP], ids=["fail", "skip"])
def test_a_topic_that_was_deleted_and_made_again(started, conf):
    run = started(conf)
    run.cluster.log.delete("in")
    for query in run.sim._queries.values():  # like the driver: the old position is behind the end
        if ("in", 0) in query.positions:
            query.positions["in", 0] = 0
    write(run.cluster.log, 1000, 1010)
    if not conf:
        with pytest.raises(DataLossError, match="input is lost: .*the log ends at 10.*"):
            run.advance(5)
        return
    run.advance(5)
    seen = run.components("out")[0].seen
    assert seen[-10:] == list(range(1000, 1010)) and seen[:-10] == list(range(len(seen) - 10))
    (task,) = [t for t in run.sim.stats.tasks.values() if t["component"] == "in"]
    assert task["lost"] == {"in/0": 60 - (len(seen) - 10)}
    assert {letter["stage"] for letter in run.dead_letters()} == {"read"}


class FailsTwo(KeepAlways):
    """Fails number 2; from then on, this record and those before it are gone."""

    log = None

    def execute(self, tup):
        if tup[0] == 2:
            self.collector.fail(tup)
            self.log.drop_before("in", 0, 3)
        else:
            self.collector.ack(tup)


@pytest.mark.parametrize("conf", [{}, SKIP], ids=["fail", "skip"])
def test_a_failed_record_that_is_gone_is_lost_too(conf):
    with LocalCluster(simulated=True) as cluster:
        write(cluster.log, 0, 6)
        run = Run(cluster, "t", cluster.submit_topology("t", conf, topology(Numbers(), FailsTwo()), active=False))
        FailsTwo.log = cluster.log
        cluster.activate("t")
        if not conf:
            with pytest.raises(DataLossError, match="input is lost: 1 records of in/0, offsets 2 to 2"):
                run.advance(5)
            return
        run.advance(5)
        (task,) = [t for t in run.sim.stats.tasks.values() if t["component"] == "in"]
        assert task["lost"] == {"in/0": 1} and task["kafka"] == [["in", 0, 6, 6]]
        assert len(run.dead_letters()) == 1 and run.total("out", "executed") == 6


def test_a_broker_that_does_not_answer_loses_nothing_and_restarts_nothing(started, monkeypatch):
    run = started({})
    read, down = run.cluster.log.read, [True]

    def unreachable(topic, partition, start, stop):
        if down and topic == "in":
            yield from read(topic, partition, start, min(stop, start + (start < 20)))
            raise OSError("no brokers available")
        yield from read(topic, partition, start, stop)

    for executor in run.sim._queries["in"].executors.values():
        for task in executor.tasks:
            task._reader = unreachable
    run.advance(3)
    assert len(run.components("out")[0].seen) < 60
    assert any("cannot be read again now: OSError: no brokers available" in e for e in run.errors("in"))
    down.clear()
    run.advance(5)
    assert run.components("out")[0].seen == list(range(60))
    assert run.dead_letters() == [] and Numbers.opened == 1


@pytest.mark.parametrize("seed", seeds(25))
def test_every_record_is_emitted_once_or_counted_whatever_crashes(seed):
    rng, time_ms = random.Random(seed), [0]
    log = MemoryLog(lambda: time_ms[0])
    conf = {**SLOW, **SKIP, "topology.emulator.transport": TRANSPORTS[seed % 2]}
    plan = TopologyPlan.build("t", "t-1-0", conf, topology(rng.choice((Numbers, Batches))(), KeepAlways()))
    sim = simulate(
        plan,
        log,
        lambda: time_ms[0],
        seed=seed,
        faults=Faults(lost_before=0.1, torn_write=0.1, repeated=0.2, restarted=0.1, all_restarted=0.05, elsewhere=0.05, snapshot=0.2),
    )
    sim.activate()
    total = 0
    for _ in range(40):
        more = rng.randint(0, 12)
        write(log, total, total + more)
        total += more
        time_ms[0] += 100
        sim.tick_clock()
        sim.run_until_quiet()
        if rng.random() < 0.2:
            log.drop_before("in", 0, rng.randint(log.begin("in", 0), total))
    for _ in range(200):
        time_ms[0] += 100
        sim.tick_clock()
        sim.run_until_quiet()
    seen = sim.components("out")[0].seen
    assert seen == sorted(set(seen)), "in order, and none twice"
    (task,) = [t for t in sim.stats.tasks.values() if t["component"] == "in"]
    lost = set(range(total)) - set(seen)
    gaps = {(int(h["first"]), int(h["last"])) for h in ({k: v.decode() for k, v in r.headers} for r in sim.dead_letters())}
    assert lost == {number for first, last in gaps for number in range(first, last + 1)}
    assert task.get("lost", {}) == ({"in/0": len(lost)} if lost else {})
    assert Counter(task["rejected"]).total() == len(gaps)
