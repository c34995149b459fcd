"""Runs one topology on the in-memory log with faults.

An executor gets the records of its partitions one by one, cuts its own batches, and writes its records itself:

- It goes on while a batch of another executor of its component has failed.
- An executor that cannot write ends, so its tasks are never ahead of what was written. Its successor begins where everything before was written, and cuts its
  batches elsewhere.
- Nobody runs a batch beside its executor. But a query that was replaced may go on reading and writing.
- An executor that Spark starts on another host begins at its snapshots, and emits again.
- Spark may pass on records again, which the executor leaves out.
- Spouts emit without a record, too.
- Executors report from time to time and not with each batch.
- Work in the background takes a while.

Micro-batches take the same path; only the pulses differ, which wake an executor for an idle spout.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dskype.topology.background import Result, Work
from dskype.topology.config import Config
from dskype.topology.core.executor import Executor, route, start_positions
from dskype.topology.core.frames import OutRecord, expand_records
from dskype.topology.core.loss import LostInputError
from dskype.topology.core.next_offsets import NextOffsets
from dskype.topology.core.snapshots import FencedError, JournalTakenError, MemorySnapshotStore
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.engine import SimulatedQuery, SimulatedTopology
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.log import MemoryLog
from dskype.topology.tuples import InRecord

__all__ = ["FaultyTopology", "simulate"]

_EMITS = 0.3
"""How often a spout that may emit is asked before its next record comes."""


def simulate(plan: TopologyPlan, log: MemoryLog, clock: Callable[[], int], *, seed: int | None = None, faults: Faults = Faults()) -> SimulatedTopology:
    """Return a topology that runs with faults, or without a seed plainly."""
    return SimulatedTopology(plan, log, clock) if seed is None else FaultyTopology(plan, log, clock, seed, faults)


@dataclass
class _Stale:
    """A query that was replaced, and does not know it.

    :param unwritten: records of its last batch that are not in the log yet.
    """

    query: SimulatedQuery
    unwritten: list[OutRecord] = field(default_factory=list)


class _ContendedStore(MemorySnapshotStore):
    """Lets other owners run immediately before a journal entry is written."""

    in_between: Callable[[], None] | None = None

    def save_journal(self, task: int, number: int, data: bytes, *, term: int | None = None) -> None:
        others, self.in_between = self.in_between, None
        if others is not None:
            others()
        super().save_journal(task, number, data, term=term)


class FaultyTopology(SimulatedTopology):
    """One running topology, with faults.

    The order of components, the boundaries of batches and the faults are drawn from the seed; the same seed gives the same run. A query has one of three states::

        alone ---- it is replaced ----> beside a stale one ---- that one ends, is fenced, or falls behind what is kept ----> alone

    The parameters are those of :class:`~dskype.topology.simulated.engine.SimulatedTopology`, and:

    :param seed: of everything random.
    :param faults: how likely each fault is.
    """

    def __init__(self, plan: TopologyPlan, log: MemoryLog, clock: Callable[[], int], seed: int, faults: Faults) -> None:
        super().__init__(plan, log, clock)
        self.seed, self._faults = seed, faults
        self._random = random.Random(seed)
        self._contended = self.store = _ContendedStore(plan.conf[Config.TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT])
        self._stale: dict[str, _Stale] = {}  # by component
        self._late: list[OutRecord] = []
        self._left: dict[tuple[str, bytes], bytes | None] = {}  # records to external topics: (topic, record id) -> value

    def rebalance(self, plan: TopologyPlan) -> None:
        super().rebalance(plan)
        for stale in self._stale.values():  # its executors know the former plan only
            self._late += stale.unwritten
        self._stale.clear()

    def run(self, max_batches: int) -> int:
        count = super().run(max_batches)
        self._report()
        self._read_metrics()
        return count

    def _run_one(self, busy: list[SimulatedQuery]) -> None:
        self._run_executor(self._random.choice(busy))

    def _snapshot_due(self, query: SimulatedQuery, executor: Executor) -> bool:
        # In real time, executors that were replaced have lost their leases, and save no snapshots.
        current = query.component not in self.real_time or query is self._queries[query.component]
        return current and super()._snapshot_due(query, executor)

    def _last_executor(self, query: SimulatedQuery, index: int) -> Executor:
        if self.plan.spec(query.component).is_spout:
            query.executors.pop(index, None)  # another process may have run the last batches
        return super()._last_executor(query, index)

    def _executor(self, query: SimulatedQuery, index: int) -> Executor:
        executor = super()._executor(query, index)
        executor.run_in_background = self._run_in_background
        return executor

    def _run_in_background(self, work: Work) -> Result:
        """Do the work now; the result is there when it was asked for a drawn number of times."""
        waits = [work(), *[None] * self._random.choice((0, 0, 0, 2))]
        return waits.pop

    # -- batches ----------------------------------------------------------------------------------

    def _run_executor(self, query: SimulatedQuery) -> None:
        """Run the next batch of one executor of a query, perhaps with faults."""
        rng = self._random
        self._write_late()
        self._perhaps_restart(query)
        by_executor: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}
        for place, cut in self._cut(query).items():
            by_executor.setdefault(self.plan.executor_of(route(self.plan, query.component, *place)), {})[place] = cut
        if not by_executor:
            return
        index = rng.choice(sorted(by_executor))
        if self._strikes("elsewhere"):
            self._move(query, index)
            return
        ranges = by_executor[index]
        try:
            records = self._begun_again(ranges) if self._strikes("begun_again") else self._batch_records(ranges)
        except LostInputError:  # an executor that it has replaced was ahead of it
            self._count("overtaken")
            self._move(query, index)
            return
        query.batch_id += 1
        self._perhaps_save(query)
        if self._strikes("lost_before"):
            self._lose_executors(query)
        done: dict[tuple[str, int], tuple[int, int]] = {}

        def step() -> list[OutRecord]:
            # A spout may emit before its next record comes: that is a batch of its own.
            emitted = self._emitted(query, index) if rng.random() < _EMITS else None
            if emitted is not None:
                return emitted
            done.update(ranges)
            return self._handle(query, records)

        if (out := self._run_among(self._other_owners(query), [step])) is None:
            query.executors.pop(index, None)
            return
        if self._strikes("lost_after"):
            written, acknowledged = 0, False
        elif self._strikes("torn_write"):
            written, acknowledged = rng.randint(0, len(out)), False
        else:
            written, acknowledged = len(out), not self._strikes("repeated")
        for record in _in_any_order(out, rng)[:written]:
            self._write(record)
        if not acknowledged:  # the process has ended before the brokers had everything
            query.executors.pop(index, None)
            return
        self._commit(query, done)

    def _begun_again(self, ranges: dict[tuple[str, int], tuple[int, int]]) -> list[InRecord]:
        """Return what an executor takes if Spark's tasks begin again where their batch began, and those that they replace pass on some records first."""
        rng, passed_on = self._random, list[InRecord]()
        for (topic, partition), (start, stop) in sorted(ranges.items()):
            again = rng.randint(min(self.log.begin(topic, partition), start), start)
            passed_on += [*self.log.read(topic, partition, start, rng.randint(start, stop)), *self.log.read(topic, partition, again, stop)]
        return NextOffsets({place: start for place, (start, _) in ranges.items()}).take(passed_on)

    def _report(self) -> None:
        """Let executors report what they have done since they last did; those that have ended start again before."""
        for component, query in sorted(self._queries.items()):
            for index in range(self.plan.num_executors(component)):
                if index not in query.executors:
                    executor = self._executor(query, index)
                    for task in () if executor.is_spout else executor.tasks:
                        if (version := query.positions[task.inbox, task.index]) > task.version:
                            executor.bring_to(task.id, version)
                    executor.note_restored()
                for record in query.executors[index].report():
                    self.log.write(record)

    def _move(self, query: SimulatedQuery, index: int) -> None:
        """Start an executor on another host, where nobody knows how far the former one was."""
        query.executors.pop(index, None)
        tasks = self.plan.executor_tasks(query.component, index)
        starts = start_positions(self.plan, query.component, self.store)
        query.positions |= {place: offset for place, offset in starts.items() if route(self.plan, query.component, *place) in tasks}

    def _emitted(self, query: SimulatedQuery, index: int) -> list[OutRecord] | None:
        """Return what an executor's spouts emit without a record; None if that is nothing."""
        executor = self._executor(query, index)
        reply = executor.emit(query.batch_id) if executor.askable or executor.unfinished else None
        if reply is None:
            return None
        self._count("emitted_between")
        return list(expand_records(reply))

    # -- faults -----------------------------------------------------------------------------------

    def _strikes(self, name: str) -> bool:
        if self._random.random() >= getattr(self._faults, name):
            return False
        self._count(name)
        return True

    def _count(self, name: str) -> None:
        self.fault_counts[name] = self.fault_counts.get(name, 0) + 1

    def _restart(self, query: SimulatedQuery) -> None:
        for task in self.plan.component_tasks(query.component):
            versions = self.store.versions(task)
            if len(versions) > 1 and self._strikes("damaged"):
                name = self.store._name(task, "snapshot", versions[-1])
                data, self.store.files[name] = self.store.files[name], self.store.files[name][:-1]
                if self.store.load(task) is None:  # all others were damaged before
                    self.store.files[name] = data
        super()._restart(query)

    def _write_late(self) -> None:
        """Write, perhaps, the records that ended processes have left on their way."""
        if self._late and self._random.random() < 0.1:
            for record in self._late:
                self._write_stale(record, late=True)
            self._late = []

    def _lose_executors(self, query: SimulatedQuery) -> None:
        for index in list(query.executors):
            if self._random.random() < 0.7:
                del query.executors[index]

    def _perhaps_restart(self, query: SimulatedQuery) -> None:
        """Let the driver die, or the query restart, or neither."""
        if self._strikes("all_restarted"):
            self.restart_all()
        elif self._strikes("restarted"):
            self._restart(query)

    def _perhaps_save(self, query: SimulatedQuery) -> None:
        """Take snapshots, perhaps, besides those that are due by time, and drop what is no longer needed then."""
        if self._strikes("snapshot"):
            for executor in query.executors.values():
                self._save(executor, query.batch_id)
            self.drop_old_records()

    # -- second owners ----------------------------------------------------------------------------

    def _other_owners(self, query: SimulatedQuery) -> list[Callable[[], None]]:
        """Replace the query, perhaps; return what runs the next batch of the one that was replaced, if there is one."""
        if query.component not in self._stale and self._strikes("second_owner"):
            self._leave_behind(query)
        return [lambda: self._run_stale(query.component)] if query.component in self._stale else []

    def _run_among(self, others: list[Callable[[], None]], steps: list[Callable[[], list[OutRecord]]]) -> list[OutRecord] | None:
        """Run the steps of a batch, while other owners may run before, between and after them, and before each journal entry.

        :returns: what the steps release; None if another owner has written the next journal entry.
        """
        out: list[OutRecord] = []
        try:
            for step in steps:
                self._let_run(others, 0.3)
                self._contended.in_between = lambda: self._let_run(others, 0.3)
                out += step()
            self._let_run(others, 0.5)
        except JournalTakenError:
            self._count("journal_taken")
            return None
        finally:
            self._contended.in_between = None
        return out

    def _leave_behind(self, query: SimulatedQuery) -> None:
        """Replace a query, and keep the old one running as a stale one."""
        self._stale[query.component] = _Stale(SimulatedQuery(query.component, dict(query.positions), query.batch_id, query.term, query.executors))
        query.executors = {}

    def _write(self, record: OutRecord) -> None:
        """Write a record.

        :raises RuntimeError: another record with the same id was written to an external topic.
        """
        if (mark := dict(record.headers or ()).get("record-id")) is not None:
            if self._left.setdefault((record.topic, mark), record.value) != record.value:
                msg = (
                    f"two records of topic {record.topic} have the id {mark.decode()} (seed {self.seed}): {self._left[record.topic, mark]!r}, {record.value!r}"
                )
                raise RuntimeError(msg)
        self.log.write(record)

    def _write_stale(self, record: OutRecord, *, late: bool = False) -> None:
        """Write a record of a stale owner, unless it repeats a record of an external topic.

        Readers would drop repetitions by their ids. But tests read the last occurrence of a record, because a failed sink may have written later records
        without earlier ones.
        """
        mark = dict(record.headers or ()).get("record-id")
        if mark is None or not (late or (record.topic, mark) in self._left):
            self._write(record)
        elif self._left.get((record.topic, mark), record.value) != record.value:
            self._write(record)  # raises

    def _let_run(self, others: list[Callable[[], None]], chance: float) -> None:
        if others and self._random.random() < chance:
            self._random.choice(others)()

    def _run_stale(self, component: str) -> None:
        """Run the next batch of a component's stale query, or let it end."""
        rng, stale = self._random, self._stale.get(component)
        if stale is None:
            return
        if rng.random() < 0.1:
            self._late += [record for record in stale.unwritten if rng.random() < 0.5]
            self._stale.pop(component, None)
            return
        for record in stale.unwritten:
            self._write_stale(record)
        stale.unwritten = []
        ranges = self._cut(stale.query)
        try:
            records = self._batch_records(ranges)
        except LostInputError:  # its successor is ahead of it
            self._stale.pop(component, None)
            return
        try:
            stale.unwritten = self._handle(stale.query, records)  # its successor waits until it reports no more
            self._commit(stale.query, ranges)
            self._count("stale_batches")
        except JournalTakenError:
            self._count("journal_taken")
            stale.query.executors.clear()
        except FencedError:
            self._count("fenced")
            self._stale.pop(component, None)  # another one that ran within its batch may have removed it

    def _cut(self, query: SimulatedQuery) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the ranges of a batch: all or a part of the available records."""
        rng = self._random
        ranges = {key: (start, rng.randint(start, end) if rng.random() < 0.5 else end) for key, (start, end) in self._available(query).items()}
        return {key: r for key, r in ranges.items() if r[1] > r[0]}


def _in_any_order(records: list[OutRecord], rng: Any) -> list[OutRecord]:
    """Mix the records of different partitions; those of one partition stay in order."""
    places = [(r.topic, r.partition) for r in records]
    queues: dict[Any, list[OutRecord]] = {}
    for place, record in zip(places, records):
        queues.setdefault(place, []).append(record)
    rng.shuffle(places)
    iterators = {place: iter(queue) for place, queue in queues.items()}
    return [next(iterators[place]) for place in places]
