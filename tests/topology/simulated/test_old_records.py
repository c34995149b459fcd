"""Inbox records that no task needs are dropped; a process that is behind another one, or ahead of it, goes on without them."""

import pytest

from dskype.topology.core.executor import Executor, LostInputError, Owner
from dskype.topology.core.frames import expand_records
from dskype.topology.core.old_records import OldRecords
from dskype.topology.core.snapshots import MemorySnapshotStore
from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.engine import SimulatedTopology
from dskype.topology.simulated.log import MemoryLog

from .fault_topologies import OUT, TOPOLOGIES

INBOX = "t.first", 0
KEPT = 3


class Hosts:
    """Executors of one bolt on several hosts that share a log and a store."""

    def __init__(self):
        topology, conf = TOPOLOGIES["chain"]()
        few = {"topology.emulator.pulse.interval.ms": 200, "topology.emulator.pulse.max.tuples": 1}  # so that there are many records
        self.plan = TopologyPlan.build("t", "t-1-0", few | conf, topology)
        now_ms = [1_000_000]
        self.log = MemoryLog(lambda: now_ms[0])
        sim = SimulatedTopology(self.plan, self.log, lambda: now_ms[0])
        sim.activate()
        for _ in range(20):
            sim.tick_clock()
            sim.run_until_quiet()
            now_ms[0] += 200
        self.task = self.plan.component_tasks("first")[0]
        self.end = self.log.end(*INBOX)
        self.store = MemorySnapshotStore(KEPT)
        reference = self.start("reference")
        self.replies = [self.handle(reference, i, i + 1) for i in range(self.end)]

    def start(self, name):
        return Executor(self.plan, "first", 0, self.store, self.log, lambda: 1_000_000, owner=Owner(name, 0))

    def handle(self, executor, begin, end, batch_id=None):
        """Process the records from ``begin`` to ``end`` as a batch; return what it releases."""
        records = list(self.log.read(*INBOX, begin, end))
        return list(expand_records(executor.handle(begin if batch_id is None else batch_id, records, report=False)))

    def go_on(self, executor, begin, end):
        """Let a process run a batch for each record, and save a snapshot before each."""
        for i in range(begin, end):
            executor.save_snapshots(executor.pending_snapshots(i))
            assert self.handle(executor, i, i + 1) == self.replies[i]

    def drop(self):
        for where, offset in OldRecords(self.plan).find(self.store, TopologyStats()).items():
            self.log.drop_before(*where, offset)
        assert self.log.begin(*INBOX) == self.store.versions(self.task)[0] > 0


@pytest.fixture
def hosts():
    hosts = Hosts()
    assert hosts.end >= 8 and all(hosts.replies), "each record has an effect"
    return hosts


def test_a_process_that_was_left_behind_takes_the_snapshot_of_another_one(hosts):
    behind, ahead = hosts.start("behind"), hosts.start("ahead")
    hosts.go_on(behind, 0, 1)
    hosts.go_on(ahead, 0, hosts.end - 1)
    hosts.drop()
    assert hosts.handle(behind, hosts.end - 1, hosts.end) == hosts.replies[-1]


def test_what_was_processed_before_a_snapshot_is_neither_needed_nor_sent_again(hosts):
    ahead = hosts.start("ahead")
    hosts.go_on(ahead, 0, hosts.end - 1)
    versions = hosts.store.versions(hosts.task)
    begin = versions[0] - 2  # a query that began there has got these records before they were dropped
    records = list(hosts.log.read(*INBOX, begin, hosts.end))
    hosts.drop()
    overtaken = hosts.start("overtaken")
    assert list(expand_records(overtaken.handle(0, records[:1], report=False))) == []
    for _ in range(2):  # a batch that is run again gets the same answer
        assert list(expand_records(overtaken.handle(1, records[1:], report=False))) == sum(hosts.replies[versions[-1] :], [])
    assert overtaken.tasks[0].version == hosts.end


def test_a_process_that_is_behind_all_snapshots_goes_on_from_the_newest_one(hosts):
    behind, ahead = hosts.start("behind"), hosts.start("ahead")
    hosts.go_on(behind, 0, 1)
    hosts.go_on(ahead, 0, hosts.end - 1)
    versions = hosts.store.versions(hosts.task)
    records = list(hosts.log.read(*INBOX, versions[0] - 1, hosts.end))  # fetched before they were dropped
    hosts.drop()
    assert list(expand_records(behind.handle(1, records, report=False))) == sum(hosts.replies[versions[-1] :], [])


def test_without_a_readable_snapshot_the_error_names_those_that_cannot_be_read(hosts):
    hosts.go_on(hosts.start("ahead"), 0, hosts.end - 1)
    hosts.drop()
    for version in hosts.store.versions(hosts.task):
        name = hosts.store._name(hosts.task, "snapshot", version)
        hosts.store.files[name] = hosts.store.files[name][:-1]
    with pytest.raises(LostInputError, match="^None of the snapshots of task .* can be read") as caught:
        hosts.handle(hosts.start("next"), hosts.end - 1, hosts.end)
    assert f"snapshots {hosts.store.versions(hosts.task)}" in str(caught.value)


def test_a_bolt_keeps_everything_until_there_are_snapshots_that_stand_in_for_the_newest_one(hosts):
    old, only = OldRecords(hosts.plan), hosts.start("only")
    hosts.go_on(only, 0, KEPT)  # the first batch has none before it
    assert len(hosts.store.versions(hosts.task)) == KEPT - 1
    assert old.find(hosts.store, TopologyStats()) == {}
    hosts.go_on(only, KEPT, hosts.end)
    assert old.find(hosts.store, TopologyStats()) == {INBOX: hosts.end - KEPT}


def test_a_spout_keeps_what_follows_the_oldest_of_its_journal_entries(hosts):
    spout = hosts.plan.component_tasks("numbers")[0]
    inbox = "t.numbers", hosts.plan.task_index(spout)
    old, stats = OldRecords(hosts.plan), TopologyStats()
    reports = [(1, 5), (2, 6), (3, 8), (4, 9), (4, 9), (5, 11), (9, 20)]
    dropped = []
    for entry, version in reports:
        stats.tasks[spout] = {"entry": entry, "version": version}
        dropped.append(old.find(hosts.store, stats).get(inbox, 0))
    assert dropped == [0, 0, 5, 0, 0, 8, 11]  # three entries are kept


def test_a_spout_that_was_deactivated_goes_on_from_the_entry_before_a_damaged_one():
    topology, conf = TOPOLOGIES["chain"]()
    plan = TopologyPlan.build("t", "t-1-0", {"topology.emulator.pulse.interval.ms": 200, "topology.emulator.pulse.max.tuples": 1} | conf, topology)
    now_ms = [1_000_000]
    sim = SimulatedTopology(plan, MemoryLog(lambda: now_ms[0]), lambda: now_ms[0])
    sim.activate()
    spout = plan.component_tasks("numbers")[0]
    inbox = "t.numbers", plan.task_index(spout)

    def go_on():
        for _ in range(8):
            sim.tick_clock()
            sim.run_until_quiet()
            sim.drop_old_records()
            now_ms[0] += 200

    go_on()
    sim.deactivate()
    go_on()  # it gets no pulses, so it writes no further entries
    assert 0 < sim.log.begin(*inbox) < sim.log.end(*inbox) - 1
    name = sim.store._name(spout, "journal", sim.store.newest_journal(spout))
    sim.store.files[name] = sim.store.files[name][:-1]
    before = len(sim.log.records(OUT))
    sim.restart_all()
    sim.activate()
    go_on()
    assert len(sim.log.records(OUT)) > before > 0
    keys = [dict(record.headers)["record-id"] for record in sim.log.records(OUT)]
    assert len(set(keys)) == len({record.value for record in sim.log.records(OUT)})
