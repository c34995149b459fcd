"""Offsets that Kafka spouts commit, and where a topology that is submitted later goes on."""

import pytest

from dskype.topology import Bolt, Fields, KafkaSpout, TopologyBuilder
from dskype.topology.config import TRANSPORTS
from dskype.topology.local import LocalCluster
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from tests.tiers import seeds

from .storm_helpers import Keep, Run, Script


def topology(*spouts, bolt):
    builder = TopologyBuilder()
    for number, spout in enumerate(spouts):
        builder.set_spout(f"in{number}", spout)
    out = builder.set_bolt("out", bolt)
    for number in range(len(spouts)):
        out.global_grouping(f"in{number}")
    return builder.create_topology()


def started(cluster, *spouts, bolt=None, secs=1.0, conf=None):
    run = Run(cluster, "t", cluster.submit_topology("t", conf or {}, topology(*spouts, bolt=bolt or Keep())))
    run.advance(secs)
    return run


def write(cluster, *numbers, topic="in", partition=0):
    for number in numbers:
        cluster.log.append(topic, partition, None, b"%d" % number)


def got(run):
    return [int(row[4]) for row in run.components("out")[0].seen]


def acking(*failing):
    """Return a bolt that acks all records but those of some offsets."""
    return Script(lambda tup, collector, count: None if tup["offset"] in failing else collector.ack(tup))


UNCOMMITTED = ("UNCOMMITTED_EARLIEST", "UNCOMMITTED_LATEST")


@pytest.mark.parametrize("strategy", UNCOMMITTED)
@pytest.mark.parametrize("guarantee", ["AT_LEAST_ONCE", "AT_MOST_ONCE", "NO_GUARANTEE"])
def test_a_later_topology_of_the_same_name_goes_on_where_the_earlier_one_was(strategy, guarantee):
    """Kill and submit is how a new version is deployed: nothing comes twice, and nothing that came in between is lost."""
    with LocalCluster(simulated=True) as cluster:
        spout = KafkaSpout("in", first_poll_strategy=strategy, processing_guarantee=guarantee)
        write(cluster, 0, 1)
        first = started(cluster, spout)
        write(cluster, 2, 3)
        first.advance(1)
        assert got(first) == ([0, 1, 2, 3] if strategy == "UNCOMMITTED_EARLIEST" else [2, 3])
        cluster.kill_topology("t", wait_secs=0)
        write(cluster, 4, 5)
        assert got(started(cluster, spout)) == [4, 5]


def test_earliest_and_latest_do_not_look_at_what_is_committed():
    for strategy, expected in (("EARLIEST", [0, 1, 2]), ("LATEST", [])):
        with LocalCluster(simulated=True) as cluster:
            write(cluster, 0, 1)
            cluster.log.commit("dskype-t", {("in", 0): 1})
            write(cluster, 2)
            assert got(started(cluster, KafkaSpout("in", first_poll_strategy=strategy))) == expected


def test_what_is_not_acked_is_not_committed_and_comes_again():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, *range(6))
        started(cluster, KafkaSpout("in"), bolt=acking(2, 4))
        cluster.kill_topology("t", wait_secs=0)
        assert cluster.log.committed("dskype-t", "in", 0) == 2
        assert got(started(cluster, KafkaSpout("in"))) == [2, 3, 4, 5]


def test_offsets_are_committed_at_their_period_and_when_the_topology_is_deactivated():
    with LocalCluster(simulated=True) as cluster:
        run = started(cluster, KafkaSpout("in"), KafkaSpout("quick", offset_commit_period_ms=2000), secs=3)
        write(cluster, 1, 2)
        write(cluster, 1, 2, topic="quick")
        run.advance(4)
        assert cluster.log.committed("dskype-t", "in", 0) is None and cluster.log.committed("dskype-t", "quick", 0) == 2
        run.advance(30)
        assert cluster.log.committed("dskype-t", "in", 0) == 2
        write(cluster, 3)
        run.advance(1)
        cluster.deactivate("t")
        assert cluster.log.committed("dskype-t", "in", 0) == 3


def test_a_group_of_its_own_and_one_that_spouts_share():
    """Of two spouts that read a topic in one group, the slower one decides."""
    with LocalCluster(simulated=True) as cluster:
        write(cluster, *range(4))
        own = KafkaSpout("in", kafka_options={"group.id": "mine"})
        slow = KafkaSpout("in", translator=lambda *record: [("default", record[:5])])
        builder = TopologyBuilder()
        builder.set_spout("own", own)
        builder.set_spout("quick", KafkaSpout("in"))
        builder.set_spout("slow", slow)
        builder.set_bolt("acks", Keep()).shuffle_grouping("own").shuffle_grouping("quick")
        builder.set_bolt("holds", acking(1)).shuffle_grouping("slow")
        Run(cluster, "t", cluster.submit_topology("t", {}, builder.create_topology())).advance(1)
        cluster.kill_topology("t", wait_secs=0)
        assert cluster.log.committed("mine", "in", 0) == 4
        assert cluster.log.committed("dskype-t", "in", 0) == 1


def test_with_at_most_once_nothing_is_emitted_before_it_is_committed(monkeypatch):
    with LocalCluster(simulated=True) as cluster:
        commit, attempts, away = cluster.log.commit, [], [True]

        def failing(group, offsets):
            attempts.append(offsets)
            if away[0]:
                raise PermissionError("not allowed")
            commit(group, offsets)

        monkeypatch.setattr(cluster.log, "commit", failing)
        write(cluster, 0, 1)
        run = started(cluster, KafkaSpout("in", processing_guarantee="AT_MOST_ONCE"), secs=12)
        assert got(run) == [] and 2 <= len(attempts) <= 3
        assert "cannot be committed in group 'dskype-t' before they are emitted: PermissionError: not allowed" in run.errors("in0")[0]
        away[0] = False
        run.advance(6)
        assert got(run) == [0, 1] and cluster.log.committed("dskype-t", "in", 0) == 2


class Moody(Bolt):
    """Fails a few records at their first attempt, and remembers outside of its state what it has acked: an ack counts, even if its batch is run again later."""

    acked = set()

    def prepare(self, conf, context, collector):
        self.collector, self.failed = collector, set()

    def execute(self, tup):
        offset = tup["offset"]
        if offset % 4 == 3 and offset not in self.failed:
            self.failed.add(offset)
            self.collector.fail(tup)
        else:
            Moody.acked.add(offset)
            self.collector.ack(tup)

    def snapshot(self):
        return sorted(self.failed)

    def restore(self, state):
        self.failed = set(state)

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("none"))


class WatchedLog(MemoryLog):
    """Checks that commits never go back."""

    def commit(self, group, offsets):
        for (topic, partition), offset in offsets.items():
            assert offset >= (self.committed(group, topic, partition) or 0), "the committed offset went back"
        super().commit(group, offsets)


@pytest.mark.parametrize("seed", seeds(30))
def test_a_crash_at_any_moment_loses_no_record_for_the_next_topology(seed):
    """The topology dies under faults, without a last commit: the next one goes on at or before the first record that is not settled."""
    now = [1_000_000]
    log = WatchedLog(lambda: now[0])
    conf = {
        "topology.emulator.snapshot.interval.ms": 300,
        "topology.max.spout.pending": 5,
        "topology.message.timeout.secs": 2,
        "topology.emulator.transport": TRANSPORTS[seed % 2],
    }
    Moody.acked = set()
    for life in range(3):
        spout = KafkaSpout("in", first_poll_strategy=UNCOMMITTED[seed // 2 % 2] if life else "EARLIEST", offset_commit_period_ms=100)
        plan = TopologyPlan.build("t", f"t-{life}-0", conf, topology(spout, bolt=Moody()))
        sim = simulate(plan, log, lambda: now[0], seed=seed, faults=Faults.heavy())
        for number in range(12):
            log.append("in", 0, None, b"%d" % number)
            if number % 3 == seed % 3:
                log.mark("in")
        sim.activate()
        for _ in range(25):
            sim.tick_clock()
            sim.run(4)
            now[0] += 200
        if life == 2:
            sim.run_until_quiet()
            for _ in range(40):
                now[0] += 500
                sim.tick_clock()
                sim.run_until_quiet()
        committed = log.committed("dskype-t", "in", 0) or 0
        records = {r.offset for r in log.records("in")}
        assert {o for o in records if o < committed} <= Moody.acked, "committed, and never acked"
        for component in plan.component_ids:  # it is gone, with its topics, and has committed nothing more
            log.delete(f"t.{component}")
        log.delete("t.metrics")
    assert Moody.acked == records and committed == max(records) + 1
