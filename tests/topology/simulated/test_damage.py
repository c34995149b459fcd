"""Damaged and missing files of snapshots and journals: the result is exact, or an error says which file and what to do."""

from collections import Counter

import pytest

from dskype.topology.core.executor import LostInputError
from dskype.topology.core.frames import encode_control
from dskype.topology.core.log_checks import check_journals, lost_tails
from dskype.topology.core.snapshots import LostStateError, SnapshotError
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.engine import SimulatedTopology
from dskype.topology.simulated.log import MemoryLog

from .fault_topologies import OUT, TOPOLOGIES, N

DAMAGE = {
    "truncated": lambda d: d[:-1],
    "halved": lambda d: d[: len(d) // 2],
    "empty": lambda d: b"",
    "a flipped bit": lambda d: d[:-9] + bytes([d[-9] ^ 4]) + d[-8:],
    "a flipped bit in the header": lambda d: d[:8] + bytes([d[8] ^ 1]) + d[9:],
}


class Run:
    def __init__(self, name="drawn"):
        topology, conf = TOPOLOGIES[name]()
        conf = {"topology.emulator.snapshot.interval.ms": 300, **conf}
        self.now_ms = 1_000_000
        plan = TopologyPlan.build("t", "t-1-0", conf, topology)
        self.log = MemoryLog(lambda: self.now_ms)
        self.sim = SimulatedTopology(plan, self.log, lambda: self.now_ms)
        self.store = self.sim.store
        self.sim.activate()

    def go(self, steps):
        for _ in range(steps):
            self.sim.tick_clock()
            self.sim.run_until_quiet()
            self.now_ms += 200
        return self

    def restart(self):
        """Restart all queries, as after a crash of the driver."""
        for query in self.sim._queries.values():
            self.sim._restart(query)

    def files(self, kind, task):
        return sorted(name for name in self.store.files if name.startswith(f"{task}/{kind}-"))

    def damage(self, change, names):
        for name in names:
            self.store.files[name] = change(self.store.files[name])

    def task(self, component):
        return self.sim.plan.component_tasks(component)[0]

    def is_exact(self):
        outputs = {}
        for record in self.log.records(OUT):
            key = dict(record.headers)["record-id"]
            assert outputs.setdefault(key, record.value) == record.value
        assert Counter(outputs.values()) == {repr((i, i % 7)).encode(): 1 for i in range(N)}
        return True


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_spout_without_a_readable_journal_entry_does_not_begin_anew(damage):
    run = Run().go(4)
    names = run.files("journal", run.task("numbers"))
    assert len(names) == 3
    run.damage(DAMAGE[damage], names)
    with pytest.raises(SnapshotError, match="None of the journal entries of task .* hint: restore .* from a backup") as error:
        run.restart()
    assert all(name in str(error.value) for name in names)


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_damaged_journal_entry_that_released_nothing_is_passed_over(damage):
    run = Run().go(30)  # everything is emitted by now
    before = len(run.files("journal", run.task("numbers")))
    run.damage(DAMAGE[damage], run.files("journal", run.task("numbers"))[-1:])
    run.restart()
    run.go(5)
    assert run.is_exact() and before == 3
    assert any("the one before it is used" in e["error"] for e in run.sim.stats.errors)


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_damaged_journal_entry_that_released_tuples_is_an_error(damage):
    run = Run().go(4)
    run.damage(DAMAGE[damage], run.files("journal", run.task("numbers"))[-2:])
    run.restart()
    with pytest.raises(LostStateError, match="journal of spout 'numbers' has lost its newest entries.*hint: restore"):
        run.go(2)


def test_journal_entries_that_a_power_cut_took_are_missed_when_a_topology_is_resumed():
    run = Run().go(4)
    check_journals(run.sim.plan, run.store, run.log)
    for name in run.files("journal", run.task("numbers"))[-2:]:
        del run.store.files[name]
    with pytest.raises(LostStateError, match="task .*, entry .* tuples for task .*, of which the log has"):
        check_journals(run.sim.plan, run.store, run.log)
    quiet = Run("acked").go(40)
    for name in quiet.files("journal", quiet.task("numbers"))[-2:]:
        del quiet.store.files[name]
    check_journals(quiet.sim.plan, quiet.store, quiet.log)


@pytest.mark.parametrize("damage", sorted(DAMAGE))
@pytest.mark.parametrize("how_many", [1, 3])
def test_a_bolt_is_built_from_an_older_snapshot_or_from_its_inbox(damage, how_many):
    run = Run().go(12)
    for component in ("first", "sink"):
        names = run.files("snapshot", run.task(component))
        assert len(names) == 3
        run.damage(DAMAGE[damage], names[-how_many:])
    run.restart()
    run.go(30)
    assert run.is_exact()


def test_a_bolt_without_a_readable_snapshot_and_without_its_inbox_is_an_error():
    run = Run().go(12)
    task = run.task("first")
    run.damage(DAMAGE["empty"], run.files("snapshot", task))
    query = run.sim._queries["first"]
    query.executors.clear()
    run.log.drop_before("t.first", 0, run.store.versions(task)[0])
    with pytest.raises(LostInputError, match="None of the snapshots of task .* component: 'first'; hint: restore"):
        run.sim.components("first")


def test_a_removed_snapshot_is_no_loss():
    run = Run().go(12)
    for name in run.files("snapshot", run.task("first")):
        del run.store.files[name]
    run.restart()
    run.go(30)
    assert run.is_exact()


def test_a_log_that_has_lost_what_was_processed_is_noticed():
    run = Run().go(4)
    versions = {task: report["version"] for task, report in run.sim.stats.tasks.items()}
    assert lost_tails(run.sim.plan, versions, run.log.end) == []
    task = run.task("first")
    run.log.lose_tail("t.first", 0, versions[task] - 2)
    [problem] = lost_tails(run.sim.plan, versions, run.log.end)
    assert "lost records of t.first/0 that task" in problem and f"the log ends at offset {versions[task] - 2}" in problem and "hint" in problem


def test_tuples_that_the_log_has_lost_are_missed_by_their_receiver():
    run = Run()
    for _ in range(4):
        run.sim.tick_clock()
        while run.log.end("t.first", 0) == run.sim._queries["first"].positions["t.first", 0]:
            run.sim.run(1)
        run.log.lose_tail("t.first", 0, run.sim._queries["first"].positions["t.first", 0])  # acknowledged, and not yet read
        run.go(1)
    for _ in range(60):  # time passes with the records that come
        run.log.append("t.first", 0, None, encode_control("snapshot", run.now_ms))
        run.go(5)
    reported = [e["error"] for e in run.sim.stats.errors]
    assert len(reported) == 2 and all("has not arrived, though later ones did 30 s ago" in e and "start the topology afresh" in e for e in reported)
