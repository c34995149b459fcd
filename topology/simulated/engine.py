"""Runs one topology on the in-memory log, faithfully; :mod:`~dskype.topology.simulated.faulty` does it with faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dskype.topology.components import KafkaSpout
from dskype.topology.config import Config
from dskype.topology.core.clock import TopologyClock
from dskype.topology.core.executor import Executor, Owner, route, start_positions
from dskype.topology.core.frames import OutRecord, expand_records
from dskype.topology.core.offset_commits import OffsetCommits, consumer_group
from dskype.topology.core.old_records import OldRecords
from dskype.topology.core.snapshots import MemorySnapshotStore
from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import TopologyPlan, dead_letters_topic, inbox_topic, metrics_topic
from dskype.topology.simulated.log import MemoryLog
from dskype.topology.tuples import InRecord

__all__ = ["SimulatedQuery", "SimulatedTopology"]


@dataclass
class SimulatedQuery:
    """What Spark would hold for one component: positions and executors."""

    component: str
    positions: dict[tuple[str, int], int]
    batch_id: int = 0
    term: int = 0
    executors: dict[int, Executor] = field(default_factory=dict)


class SimulatedTopology:
    """One running topology: components take turns, and a batch has all records that are available.

    :param plan: the topology plan.
    :param log: the log, shared by all topologies of a cluster.
    :param clock: returns the simulated time, epoch ms.
    :ivar seed: what a run with faults is drawn from; None here.
    :ivar fault_counts: fault -> how often it has struck; none strikes here.
    """

    def __init__(self, plan: TopologyPlan, log: MemoryLog, clock: Callable[[], int]) -> None:
        self.plan, self.log, self._clock_source = plan, log, clock
        self.store = MemorySnapshotStore(plan.conf[Config.TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT])
        self.stats = TopologyStats()
        self.clock = TopologyClock(plan, self.stats, self.now_ms())
        self._commits = OffsetCommits(plan, self.stats)
        self._old = OldRecords(plan)
        self.active = False
        self.opened = False
        self._readers = {name: spec.obj for name, spec in plan.topology.components.items() if isinstance(spec.obj, KafkaSpout)}
        self.warnings: list[str] = []
        self.seed: int | None = None
        self.fault_counts: dict[str, int] = {}
        self._metrics_read = 0
        self._external_starts: dict[tuple[str, str, int], int] = {}
        self._queries: dict[str, SimulatedQuery] = {}
        self._owners, self._term = 0, 0
        self.real_time = frozenset(c for c in plan.topology.components if plan.component_conf(c)[Config.TOPOLOGY_EMULATOR_TRANSPORT] == "real-time")

    def now_ms(self) -> int:
        """Return the simulated time, epoch ms."""
        return self._clock_source()

    # -- lifecycle --------------------------------------------------------------------------------

    def activate(self) -> None:
        """Activate the spouts; the first call starts the queries."""
        if not self.opened:
            self.opened = True
            self.clock = TopologyClock(self.plan, self.stats, self.now_ms(), self.real_time)  # ticks and windows count from now
            self._take_term()
            for component in self.plan.topology.components:
                query = self._queries[component] = SimulatedQuery(component, start_positions(self.plan, component, self.store), term=self._term)
                self._external_positions(query, first=True)
                for index in range(self.plan.num_executors(component)):
                    self._executor(query, index)
        self.active = True
        self._write_clock(self.clock.control("activate", self.now_ms()))

    def deactivate(self) -> None:
        """Pause the spouts."""
        self.active = False
        if self.opened:
            self._write_clock(self.clock.control("deactivate", self.now_ms()))
            self._commit_offsets(all_spouts=True)

    def debug(self, percents: Mapping[str, float]) -> None:
        """Set which percentages of the tuples go to the event loggers."""
        if self.opened:
            self._write_clock(self.clock.debug(percents, self.now_ms()))

    def rebalance(self, plan: TopologyPlan) -> None:
        """Continue with the same tasks on other executors and workers.

        As the driver does, first let the spouts pause until everything is delivered: a snapshot may contain only what follows from records that are written.
        """
        active = self.active
        self.deactivate()
        self.run_until_quiet()
        self.plan = plan
        for query in self._queries.values():
            for executor in query.executors.values():
                self._save(executor, query.batch_id + 1)
            self._restart(query)
        if active:
            self.activate()

    def health(self) -> dict[str, Any]:
        """Return the health, which is always ``running``."""
        return {"state": "running", "why": [], "restarts": 0}

    def close(self, *, remove: bool = True) -> None:
        """Call ``close``/``cleanup`` of every component.

        :param remove: whether to delete the topology's own topics, so that a later topology of the same name starts afresh;
            external topics stay.
        """
        self._commit_offsets(all_spouts=True)
        for query in self._queries.values():
            for executor in query.executors.values():
                executor.close()
        if remove:
            for component in self.plan.topology.components:
                self.log.delete(inbox_topic(self.plan.name, component))
            self.log.delete(metrics_topic(self.plan.name))
            self.log.delete(dead_letters_topic(self.plan.name))

    def _external_positions(self, query: SimulatedQuery, *, first: bool = False) -> None:
        """Add the partitions of external topics that are not read yet.

        :param first: whether the topology starts now; partitions that are added later are read from their beginning.
        """
        if (spout := self._readers.get(query.component)) is None:
            return
        topics = spout.topics or list(filter(spout.reads, self.log.topics()))
        skips = self.plan.component_conf(query.component)[Config.TOPOLOGY_EMULATOR_ON_DATA_LOSS] == "skip"
        for topic in topics:
            for partition in range(self.log.partitions(topic)):
                start = self._external_starts.setdefault((query.component, topic, partition), self._first(spout, topic, partition) if first else 0)
                position = query.positions.setdefault((topic, partition), start)
                if skips and (begin := self.log.begin(topic, partition)) > position:
                    query.positions[topic, partition] = begin
                    self._report_of(query)
                    query.executors.clear()  # a query whose next records are gone fails, and starts again

    def _first(self, spout: KafkaSpout, topic: str, partition: int) -> int:
        """Return the offset at which to begin a partition that was never read."""
        strategy = spout.first_poll_strategy
        committed = self.log.committed(consumer_group(self.plan.name, spout), topic, partition) if strategy.startswith("UNCOMMITTED") else None
        begin, end = self.log.begin(topic, partition), self.log.end(topic, partition)
        if committed is not None:
            return committed if begin <= committed <= end else begin
        return end if strategy.endswith("LATEST") else begin

    def _commit_offsets(self, *, all_spouts: bool = False) -> None:
        """Commit the offsets that are due."""
        for group, offsets in self._commits.due(self.now_ms(), self._term, all_spouts=all_spouts).items():
            self.log.commit(group, offsets)
            self._commits.note(group, offsets, self.now_ms())

    def _executor(self, query: SimulatedQuery, index: int) -> Executor:
        executor = query.executors.get(index)
        if executor is None:
            self._owners += 1
            executor = query.executors[index] = Executor(
                self.plan, query.component, index, self.store, self.log, self.now_ms, owner=Owner(f"process {self._owners}", query.term)
            )
        return executor

    def _take_term(self) -> None:
        self._term = self.store.newest_term() + 1
        self.store.take_term(self._term, {"driver": f"of term {self._term}"})

    # -- running ----------------------------------------------------------------------------------

    def _write_clock(self, records) -> None:
        for record in records:
            self.log.append(record.topic, record.partition, None, record.value)

    def tick_clock(self) -> None:
        """Write the pulses and ticks that are due now."""
        if self.opened:
            self._write_clock(self.clock.due(self.now_ms(), active=self.active))
            self._commit_offsets()

    def drop_old_records(self) -> None:
        """Drop the inbox records that no task can need again, as the driver does."""
        for where, offset in self._old.find(self.store, self.stats).items():
            self.log.drop_before(*where, offset)

    def _read_metrics(self) -> None:
        topic = metrics_topic(self.plan.name)
        end = self.log.end(topic, 0)
        for record in self.log.read(topic, 0, self._metrics_read, end):
            self.stats.feed(record.value)
        self._metrics_read = end

    def _available(self, query: SimulatedQuery) -> dict[tuple[str, int], tuple[int, int]]:
        self._external_positions(query)
        return {key: (position, end) for key, position in query.positions.items() if (end := self.log.end(*key)) > position}

    def _is_busy(self, query: SimulatedQuery) -> bool:
        """Tell whether a query has something to read; asked of every query before each batch."""
        if query.component in self._readers:
            self._external_positions(query)
        return self.log.goes_beyond(query.positions)

    def run(self, max_batches: int) -> int:
        """Run up to ``max_batches`` batches, while any query has something to read; return how many were run."""
        count = 0
        try:
            while count < max_batches and (busy := list(filter(self._is_busy, self._queries.values()))):
                count += 1
                self._run_one(busy)
        finally:
            for query in self._queries.values():
                self._report_of(query)
            self._read_metrics()
        return count

    def _report_of(self, query: SimulatedQuery) -> None:
        """Let executors report what they have done since they last did: as in the runtime, from time to time and not with each batch."""
        for _, executor in sorted(query.executors.items()):
            for record in executor.report():
                self.log.write(record)

    def _run_one(self, busy: list[SimulatedQuery]) -> None:
        """Run a batch of one of the queries that have something to read."""
        self._run_batch(min(busy, key=lambda q: q.batch_id))

    def run_until_quiet(self, max_batches: int = 100_000) -> int:
        """Run batches until no query has anything to read; return how many were run.

        :raises RuntimeError: some query still had something to read after ``max_batches``.
        """
        count = self.run(max_batches)
        if count == max_batches:
            msg = f"topology {self.plan.name!r} is not at rest after {max_batches} batches (seed {self.seed})"
            raise RuntimeError(msg)
        return count

    def _batch_records(self, ranges: dict[tuple[str, int], tuple[int, int]]) -> list[InRecord]:
        return [r for (topic, partition), (start, stop) in sorted(ranges.items()) for r in self.log.read(topic, partition, start, stop)]

    def _handle(self, query: SimulatedQuery, records: list[InRecord]) -> list[OutRecord]:
        by_executor: dict[int, list[InRecord]] = {}
        for record in records:
            task = route(self.plan, query.component, record.topic, record.partition)
            by_executor.setdefault(self.plan.executor_of(task), []).append(record)
        out: list[OutRecord] = []
        for index in sorted(by_executor):
            executor = self._executor(query, index)
            if self._snapshot_due(query, executor):
                self._save(executor, query.batch_id)
            out += expand_records(executor.handle(query.batch_id, by_executor[index], report=False))
        return out

    def _snapshot_due(self, query: SimulatedQuery, executor: Executor) -> bool:
        return executor.snapshot_due(query.batch_id)

    @staticmethod
    def _save(executor: Executor, batch_id: int) -> None:
        due = executor.pending_snapshots(batch_id)
        try:
            executor.save_snapshots(due)
        except Exception as error:  # does not disturb the batch, as if it happened in a forked copy of the process
            executor.snapshots_failed(due, str(error))

    def _commit(self, query: SimulatedQuery, ranges: dict[tuple[str, int], tuple[int, int]]) -> None:
        for key, (_, stop) in ranges.items():
            query.positions[key] = stop
        query.batch_id += 1

    def _run_batch(self, query: SimulatedQuery) -> None:
        ranges = self._available(query)
        for record in self._handle(query, self._batch_records(ranges)):
            self.log.write(record)
        self._commit(query, ranges)

    def _restart(self, query: SimulatedQuery) -> None:
        """Restart a query, as after a crash: with new processes, and positions from the snapshots."""
        query.executors.clear()
        query.term = self._term
        query.positions = start_positions(self.plan, query.component, self.store)
        self.store.problems.clear()
        self._external_positions(query)
        query.batch_id = 0

    def restart_all(self) -> None:
        """Let the driver die: another one takes the next term and restarts every query."""
        self._take_term()
        for query in self._queries.values():
            self._restart(query)

    # -- looking inside ---------------------------------------------------------------------------

    def components(self, component: str) -> list[Any]:
        """Return the component instances of all tasks, in order of their indices."""
        query = self._queries[component]
        instances = []
        for index in range(self.plan.num_executors(component)):
            executor = self._last_executor(query, index)
            if not self.plan.spec(component).is_spout:  # a new executor catches up only with its next batch
                for task in executor.tasks:
                    if task.version != (position := query.positions[task.inbox, task.index]):
                        executor.bring_to(task.id, position)
            instances += [task.component for task in executor.tasks]
        return instances

    def _last_executor(self, query: SimulatedQuery, index: int) -> Executor:
        """Return an executor that knows what the last batches did."""
        return self._executor(query, index)

    def dead_letters(self) -> list[InRecord]:
        """Return all dead letters so far."""
        return self.log.records(dead_letters_topic(self.plan.name))

    def pending_records(self) -> int:
        """Return how many records wait in inboxes."""
        return sum(
            self.log.end(inbox_topic(self.plan.name, c), p) - self._queries[c].positions[inbox_topic(self.plan.name, c), p]
            for c in self._queries
            for p in range(len(self.plan.component_tasks(c)))
        )
