"""The executor: hosts a range of tasks, and brings each of them to the offset at which a batch begins.

A batch brings records that start at some offset. There are three cases for a bolt task:

- Its *version* (next inbox offset) is that offset: it processes the records.
- It has processed exactly this batch before: it sends the same reply again.
- Otherwise it goes on from where it is or, if that is behind the offset or the log no longer has the records in between, from its newest snapshot.
  It processes the inbox up to the offset with emission suppressed (its counters advance), and then the batch.

What followed from the records below a snapshot is in Kafka. So a task leaves them out, if another process has saved a snapshot within a batch or behind it.

A spout task never goes back (see ``spout``). If another process has run batches in between, it loads the newest journal
entry. If two processes run the task at once, only one of them can write the next entry (see ``snapshots``).

Snapshots are taken when a batch with a higher number arrives, before it is processed. Everything that the task emitted
before is in Kafka by then, so the whole topology can restart from any snapshot.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from dskype.topology.background import Result, Work, run_at_once
from dskype.topology.config import Config
from dskype.topology.context import TopologyContext
from dskype.topology.core.bolt_task import BoltTask
from dskype.topology.core.frames import OutRecord, OutRecords, expand_records
from dskype.topology.core.inbox_reader import InboxReader
from dskype.topology.core.kafka_spout import make_spout_task
from dskype.topology.core.log_checks import check_released
from dskype.topology.core.loss import LostInputError
from dskype.topology.core.poison import PoisonedBatchError
from dskype.topology.core.snapshots import FencedError, LostStateError, SnapshotStore, encode_snapshot
from dskype.topology.core.task import Task
from dskype.topology.errors import FatalError, TopologyError, explain, text_of
from dskype.topology.planning.plan import TopologyPlan, inbox_topic, metrics_topic
from dskype.topology.tuples import InRecord

__all__ = ["Executor", "LostInputError", "Owner", "PendingSnapshot", "route", "route_index", "start_positions"]

log = logging.getLogger(__name__)

_SNAPSHOT_SHARE = 20
"""Least time between snapshots, as a multiple of the processor time that the last ones took."""


class Owner(NamedTuple):
    """The process of an executor.

    :ivar name: unique, for what it writes and for messages.
    :ivar term: of the driver that started it.
    :ivar epoch: number of the query's start.
    """

    name: str
    term: int
    epoch: int = 0


class PendingSnapshot(NamedTuple):
    """A snapshot that is due: ``encode()`` serializes the task's state at ``version``."""

    task: int
    version: int
    encode: Callable[[], bytes]


def route(plan: TopologyPlan, component: str, topic: str, partition: int) -> int:
    """Return the task of ``component`` that gets the records of a topic's partition.

    Partition *i* of the inbox belongs to the task with index *i*. Partitions of external topics are distributed over
    the tasks of a Kafka spout, in every process alike.
    """
    tasks = plan.component_tasks(component)
    return tasks[route_index(inbox_topic(plan.name, component), len(tasks), topic, partition)]


def route_index(inbox: str, num_tasks: int, topic: str, partition: int) -> int:
    """Return the task index within its component; see :func:`route`."""
    return partition if topic == inbox else (zlib.crc32(topic.encode()) + partition) % num_tasks


def _is_spout(plan: TopologyPlan, component: str) -> bool:
    return plan.topology.components[component].kind == "spout"


def start_positions(plan: TopologyPlan, component: str, store: SnapshotStore) -> dict[tuple[str, int], int]:
    """Return (topic, partition) -> offset at which a new query for ``component`` has to start.

    It has all inbox partitions, and the external partitions that a spout has read before.
    """
    positions: dict[tuple[str, int], int] = {}
    for task in plan.component_tasks(component):
        positions[inbox_topic(plan.name, component), plan.task_index(task)] = 0
        if _is_spout(plan, component):
            found = store.load_journal(task)
            if found is not None:
                positions.update({(t, p): offset for t, p, offset in found[1]["positions"]})
        elif (version := store.newest_version(task)) is not None:
            positions[inbox_topic(plan.name, component), plan.task_index(task)] = version
    return positions


class _Hosted:
    """A task, and what the executor remembers about its last batch."""

    __slots__ = ("alone", "batch_id", "epoch", "first", "former_ms", "number", "reply", "saved", "saved_ms", "task", "until")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.batch_id = -1
        self.first = self.until = -1
        self.reply: list[OutRecord | OutRecords] = []
        self.saved = -1  # version of the newest snapshot
        self.saved_ms: int | None = None  # the task's clock at that snapshot; without one, at its first batch
        self.former_ms: int | None = None  # the task's clock at the previous snapshot
        self.number = 0  # number of the newest journal entry
        self.epoch = -1  # of the query whose executor wrote it
        self.alone = True  # whether this process alone can have run the last batch


class Executor:
    """Runs the tasks of one Storm executor.

    :param plan: the topology plan.
    :param component: the component's id.
    :param index: index of the executor within its component.
    :param store: where snapshots and journals are kept.
    :param reader: reads inbox ranges again after a crash.
    :param now_ms: wall clock.
    :param owner: this process.
    """

    def __init__(
        self, plan: TopologyPlan, component: str, index: int, store: SnapshotStore, reader: InboxReader, now_ms: Callable[[], int], *, owner: Owner
    ) -> None:
        self.plan, self.component, self.index = plan, component, index
        self.owner, self.term, self.epoch = owner
        self._store, self._reader, self._now_ms = store, reader, now_ms
        self._inbox = inbox_topic(plan.name, component)
        self.is_spout = _is_spout(plan, component)
        self.about_host: Callable[[], Mapping[str, Any]] = dict
        """Returns what reports say of the host."""
        self.run_in_background: Callable[[Work], Result] = run_at_once
        """Begins work beside a task; see the attribute of the same name of its context."""
        self._interval_ms = plan.component_conf(component)[Config.TOPOLOGY_EMULATOR_SNAPSHOT_INTERVAL_MS]
        self._snapshot_at = now_ms() + self._interval_ms
        self._worker_hooks = copy.deepcopy(plan.topology.worker_hooks)
        for hook in self._worker_hooks:
            hook.start(plan.conf, TopologyContext(plan, plan.executor_tasks(component, index)[0]))
        self._hosted = {task: self._load(task) for task in plan.executor_tasks(component, index)}
        self._unreported: set[int] = set()  # tasks that have handled records since the last report
        self._restored: set[int] = set()  # tasks that have handled none here, and whose last process may have ended before its report
        self._unreported_s = 0.0
        limit = plan.component_conf(component)[Config.TOPOLOGY_MAX_SPOUT_PENDING]
        if self.is_spout and limit is not None:
            # As in Storm, the limit of an executor is the value times its tasks.
            for spout in (spouts := self.tasks):
                spout.limited = True
                spout.pending_room = lambda: limit * len(spouts) - sum(s.pending for s in spouts)

    @property
    def tasks(self) -> list[Task]:
        """The task objects, in order of their ids."""
        return [hosted.task for hosted in self._hosted.values()]

    def positions_since_start(self) -> dict[tuple[str, int], int]:
        """Return how far the spouts' journals are in what they read, for tasks that have written one since this start of the query.

        The positions with which the query was started are older. For other tasks those count: the driver may have left out records that are gone.
        """
        positions: dict[tuple[str, int], int] = {}
        for hosted in self._hosted.values():
            if hosted.epoch == self.epoch:
                positions |= hosted.task.positions()
        return positions

    # -- state ------------------------------------------------------------------------------------

    def _load(self, task_id: int) -> _Hosted:
        """Create a task, and restore its newest snapshot or journal entry if there is one."""
        if self.is_spout:
            task: Task = make_spout_task(self.plan, task_id, self._now_ms, self._reader.read, self._reader.commit, partial(self._waiting, task_id))
            task.start()
            hosted = _Hosted(task)
            if (found := self._store.load_journal(task_id)) is not None:
                newest, entry = found
                self._check_task(entry["state"], task_id)
                if entry.get("term", 0) > self.term:  # (absent from entries of earlier versions)
                    msg = f"another driver has taken the topology over: term {entry['term']} by {entry['owner']}, ours {self.term}; nothing was written"
                    raise FencedError(msg)
                if entry["number"] != newest:  # the newest ones are damaged
                    check_released(self.plan, self._store, self._reader, task_id, entry)
                task.restore(entry["state"])
                hosted.number, hosted.epoch, hosted.alone = newest, entry.get("epoch", -1), False
                # These may never have reached Kafka: they are sent again with the first reply.
                hosted.reply = [OutRecord(*record) for record in entry["reply"]]
        else:
            task = BoltTask(self.plan, task_id, self._now_ms)
            task.start()
            hosted = _Hosted(task)
            found = self._store.load(task_id)
            if found is not None:
                self._check_task(found[1], task_id)
                task.restore(found[1])
                hosted.saved, hosted.saved_ms = found[0], task.clock.now_ms
        task.context.run_in_background = self._begin_work
        for problem in self._store.problems:
            task.report_error(problem)
        self._store.problems.clear()
        return hosted

    def _begin_work(self, work: Work) -> Result:
        return self.run_in_background(work)  # it is set when the tasks are there

    def _waiting(self, task_id: int, topics: Iterable[str], positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], bool]:
        """Return those partitions of :meth:`InboxReader.waiting` that belong to a task."""
        return {where: waits for where, waits in self._reader.waiting(topics, positions).items() if route(self.plan, self.component, *where) == task_id}

    def _check_task(self, state: dict[str, Any], task_id: int) -> None:
        given = (state["topology"], state["component"], state["task"])
        expected = (self.plan.topology_id, self.component, task_id)
        if given != expected:
            msg = (
                f"a snapshot belongs to another task; expected {expected!r}; given: {given!r}; "
                "hint: a topology must not change its components between a stop and a resume"
            )
            raise TopologyError(msg)

    def snapshot_due(self, batch_id: int) -> bool:
        """Tell whether to take snapshots now, before batch ``batch_id`` is handled."""
        late = self._now_ms() >= self._snapshot_at
        return not self.is_spout and any(
            (late or h.task.snapshot_wanted) and h.task.version > h.saved and -1 < h.batch_id < batch_id for h in self._hosted.values()
        )

    def pending_snapshots(self, batch_id: int) -> list[PendingSnapshot]:
        """Return the snapshots that are due, and treat them as saved.

        The caller serializes and saves them before the next call of :meth:`handle`, or in a fork.
        """
        if not self._store.remote:  # a request would hold up the batch; the fork that writes to a remote store reports that it was refused
            self._store.check_term(self.term)
        self._snapshot_at = self._now_ms() + self._interval_ms
        due = []
        for task_id, hosted in self._hosted.items():
            # A task that has handled no batch needs none: what prepare emitted is not released yet.
            if hosted.task.version > hosted.saved and -1 < hosted.batch_id < batch_id:
                hosted.saved = hosted.task.version
                hosted.former_ms, hosted.saved_ms = hosted.saved_ms, hosted.task.clock.now_ms
                hosted.task.snapshot_wanted = False
                due.append(PendingSnapshot(task_id, hosted.saved, lambda task=hosted.task: self._encode(task)))
        return due

    def _encode(self, task: Task) -> bytes:
        try:
            return encode_snapshot(task.snapshot() | {"owner": self.owner, "term": self.term})
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise TopologyError(task.unwritable(error)) from error

    def save_snapshots(self, due: Iterable[PendingSnapshot], confirm: Callable[[], object] = lambda: None) -> None:
        """Serialize and save snapshots.

        :param confirm: called just before each one is saved; raises if another executor has the tasks now.
        """
        for snapshot in due:
            data = snapshot.encode()
            confirm()
            self._store.save(snapshot.task, snapshot.version, data, term=self.term)

    def delay_snapshots(self, cpu_ms: float) -> None:
        """Delay the next snapshots so that they cost at most a twentieth of a core: a large state is written less often.

        :param cpu_ms: processor time that the last snapshots took.
        """
        self._snapshot_at = max(self._snapshot_at, self._now_ms() + int(cpu_ms * _SNAPSHOT_SHARE))

    def snapshots_failed(self, failed: Iterable[PendingSnapshot], reason: str) -> None:
        """Make snapshots that could not be saved due again, and report why they failed."""
        for snapshot in failed:
            hosted = self._hosted[snapshot.task]
            hosted.saved, hosted.saved_ms = min(hosted.saved, snapshot.version - 1), hosted.former_ms
            hosted.task.report_error(f"the snapshot of task {snapshot.task} at version {snapshot.version} failed: {reason}")

    # -- between batches --------------------------------------------------------------------------

    @property
    def askable(self) -> bool:
        """Whether an idle spout may be asked for tuples."""
        return self.is_spout and any(map(self._may_be_asked, self._hosted.values()))

    @staticmethod
    def _may_be_asked(hosted: _Hosted) -> bool:
        # Before its first batch here, the state may be that of an earlier process.
        return hosted.number >= 0 and hosted.batch_id >= 0 and hosted.task.askable

    @property
    def unfinished(self) -> bool:
        """Whether :meth:`emit` will most likely find tuples: a spout's last turn ended by time, and it has credit left."""
        return self.is_spout and any(hosted.task.unfinished and self._may_emit(hosted) for hosted in self._hosted.values())

    @staticmethod
    def _may_emit(hosted: _Hosted) -> bool:
        task: Any = hosted.task
        return hosted.number >= 0 and hosted.batch_id >= 0 and task.active and task.credit > 0 and (task.idle or task.unfinished)

    def emit(self, batch_id: int) -> list[OutRecord | OutRecords] | None:
        """Ask idle and unfinished spouts for tuples, and return them as a batch that no record has started; None if there are none.

        For a process that reads its inboxes itself.
        """
        started = perf_counter()
        found = [hosted.task.id for hosted in self._hosted.values() if self._may_emit(hosted) and hosted.task.emit()]
        reply: list[OutRecord | OutRecords] = []
        for task in found:
            reply += self._handle_spout(task, batch_id, [])
            self._unreported.add(task)
        self._unreported_s += perf_counter() - started
        return reply if found else None

    # -- batches ----------------------------------------------------------------------------------

    def handle(self, batch_id: int, records: Iterable[InRecord], *, report: bool = True) -> list[OutRecord | OutRecords]:
        """Process the records of a batch for this executor, and return what the sink has to write.

        May be called again with the same batch, with a part of it, or with one that has other boundaries.

        :param report: whether the statistics are part of it; otherwise :meth:`report` returns them later.
        """
        started = perf_counter()
        by_task: dict[int, list[InRecord]] = {}
        of_partition: dict[tuple[str, int], list[InRecord]] = {}
        for record in records:
            place = record.topic, record.partition
            rows = of_partition.get(place)
            if rows is None:
                rows = of_partition[place] = by_task.setdefault(route(self.plan, self.component, *place), [])
            rows.append(record)
        reply: list[OutRecord | OutRecords] = []
        for task_id in sorted(by_task):
            if task_id not in self._hosted:
                msg = f"executor {self.index} of component {self.component!r} got a record of task {task_id}; legal: {sorted(self._hosted)}"
                raise TopologyError(msg)
            handle = self._handle_spout if self.is_spout else self._handle_bolt
            reply += handle(task_id, batch_id, by_task[task_id])
            self._unreported.add(task_id)
        self._unreported_s += perf_counter() - started
        return reply + self.report() if report else reply

    def _handle_bolt(self, task_id: int, batch_id: int, records: list[InRecord]) -> list[OutRecord | OutRecords]:
        hosted = self._hosted[task_id]
        first, until = records[0].offset, records[-1].offset + 1
        if hosted.task.version == until and (hosted.first, hosted.until) == (first, until):
            hosted.batch_id = batch_id
            return hosted.reply
        while True:
            if (begin := max(first, hosted.saved)) >= until:
                return []
            if hosted.task.version != begin:
                hosted = self.bring_to(task_id, begin)
                if hosted.task.version > begin:
                    continue
            task = hosted.task
            rest = records if begin == first else [r for r in records if r.offset >= begin]
            if hosted.saved_ms is None:
                hosted.saved_ms = rest[0].timestamp_ms
            try:
                task.process(rest)
                break
            except PoisonedBatchError as error:
                hosted = self._roll_back(task_id, error)
        hosted.reply = task.flush() + task.flush_letters()
        hosted.batch_id, hosted.first, hosted.until = batch_id, first, until
        return hosted.reply

    def bring_to(self, task_id: int, version: int) -> _Hosted:
        """Bring a bolt task to ``version`` by its newest snapshot and its inbox, or to the snapshot if that is newer.

        :raises LostInputError: the inbox no longer reaches back to a readable snapshot.
        """
        hosted = self._hosted[task_id]
        if hosted.task.version > version:
            hosted = self._reload(task_id)
        while (start := (task := hosted.task).version) < version:
            task.suppressed = True
            try:
                task.process(self._reader.read(self._inbox, task.index, start, version))
                task.flush()
                task.flush_letters()
            except PoisonedBatchError as error:
                hosted = self._roll_back(task_id, error)
                continue
            except LostInputError as error:
                # Another process may have run the task in between: then the log reaches back only to the snapshots that it has saved.
                hosted = self._reload(task_id)
                if hosted.task.version > start:
                    continue
                if hosted.saved >= 0 or not (versions := self._store.versions(task_id)):
                    raise
                msg = explain(
                    f"None of the snapshots of task {task_id} can be read, and Kafka has dropped the records from which its state could be rebuilt.",
                    given=f"snapshots {versions}; {error}",
                    component=self.component,
                    hint=f"restore {self._store.location(task_id)} from a backup, or start the topology afresh",
                )
                raise LostInputError(msg) from error
            finally:
                task.suppressed = False
            break
        if hosted.task.version < version:
            raise LostInputError(
                f"task {task_id} of component {self.component!r} needs its inbox up to offset {version}, but the log gave records up to {hosted.task.version} only",
                hint="the retention of inbox topics must reach back past the oldest snapshot",
            )
        return hosted

    def _reload(self, task_id: int) -> _Hosted:
        """Load a task's newest snapshot or journal entry, which another process may have written, in place of the state in this process."""
        self._hosted[task_id].task.close()
        hosted = self._hosted[task_id] = self._load(task_id)
        return hosted

    def _roll_back(self, task_id: int, error: PoisonedBatchError) -> _Hosted:
        """Reload a task from a snapshot, so that it reaches ``error.place`` again and isolates the poison tuples there."""
        poisoned = self._hosted[task_id].task.poison.places
        hosted = self._reload(task_id)
        poisoned |= {error.place: text_of(error.__cause__)}
        hosted.task.poison.places = {place: text for place, text in poisoned.items() if place[0] >= hosted.task.version}
        return hosted

    def _handle_spout(self, task_id: int, batch_id: int, records: list[InRecord]) -> list[OutRecord]:
        hosted = self._hosted[task_id]
        if (newest := self._store.newest_journal(task_id)) != hosted.number:
            # Another process ran batches in between, or the last batch failed here: the state in this process is out of date.
            if not newest and hosted.number > 0:
                raise LostStateError(
                    "The journal of a spout task has disappeared while the topology runs.",
                    given=f"task {task_id}, entry {hosted.number}",
                    component=self.component,
                    hint="the topology was killed or started over, or its folder was removed",
                )
            hosted = self._reload(task_id)
        task = hosted.task
        # The last reply is sent again if its batch is run again, and with the first batch after a load. It is also sent with the
        # second one: another process may have run the first one too, and the sink may have written that process's reply.
        again = hosted.reply if hosted.batch_id == batch_id or not hosted.alone else []
        alone = hosted.alone or hosted.batch_id not in (batch_id, -1)
        inbox = [r for r in records if r.topic == self._inbox and r.offset >= task.version]
        external = [r for r in records if r.topic != self._inbox]
        if inbox and inbox[0].offset > task.version and hosted.batch_id == -1:
            if not hosted.number:
                raise LostStateError(
                    "A spout task has no journal, but its inbox has been read before.",
                    given=f"task {task_id}, offset {inbox[0].offset}",
                    component=self.component,
                    hint="its folder was removed while the topology ran; start the topology afresh",
                )
            task.process(self._reader.read(self._inbox, task.index, task.version, inbox[0].offset))
        if not inbox and not external and again:
            hosted.batch_id, hosted.alone = batch_id, alone
            return again
        number, hosted.number = hosted.number + 1, -1  # until the entry is written, the state in this process is invalid
        task.process_external(external)
        task.process(inbox)
        reply = again + list(expand_records(task.flush())) + task.flush_letters()
        entry = {
            "number": number,
            "owner": self.owner,
            "term": self.term,
            "epoch": self.epoch,
            "state": task.snapshot(),
            "reply": [tuple(r) for r in reply],
            "positions": [[t, p, offset] for (t, p), offset in task.positions().items()],
        }
        try:
            data = encode_snapshot(entry)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise FatalError(task.unwritable(error)) from error
        self._store.save_journal(task_id, number, data, term=self.term)
        hosted.number, hosted.epoch, hosted.reply, hosted.batch_id, hosted.alone = number, self.epoch, reply, batch_id, alone
        return reply

    def note_restored(self) -> bool:
        """Let the next report say where restored tasks stand, and return whether there are any.

        The process before this one may have ended with its last report unsent. Until a record came for such a task, the driver would count what it has received as
        undelivered, and give a spout no credit because of pulses that it has seen.
        """
        self._restored = {task.id for task in self.tasks if task.version > 0}
        return bool(self._restored)

    def report(self) -> list[OutRecord]:
        """Return statistics and errors of the tasks that have handled records since the last report, or were restored; [] if there are none."""
        restored, self._restored = self._restored - self._unreported, set()
        if not (due := sorted(self._unreported | restored)):
            return []
        tasks = [self._hosted[task].task for task in due]
        busy_ms, self._unreported_s = self._unreported_s * 1000, 0.0
        self._unreported.clear()
        topic = metrics_topic(self.plan.name)
        records = [OutRecord(topic, None, None, json.dumps(error).encode()) for task in tasks for error in task.errors.take()]
        line = {
            "v": 1,
            "kind": "stats",
            "topology": self.plan.topology_id,
            "term": self.term,
            "component": self.component,
            "executor": self.index,
            "pid": os.getpid(),
            "time_ms": self._now_ms(),
            "batch_ms": round(busy_ms, 3),
            **self.about_host(),
            "tasks": [task.report() | self._progress(task) | ({"restored": True} if task.id in restored else {}) for task in tasks],
        }
        return [*records, OutRecord(topic, None, f"{self.component}/{self.index}".encode(), json.dumps(line).encode())]

    def _progress(self, task: Task) -> dict[str, int]:
        """Return a spout's journal entry; of a bolt, the time span of the inbox records that a restart would process again."""
        hosted = self._hosted[task.id]
        if self.is_spout:
            return {"entry": hosted.number}
        return {} if hosted.saved_ms is None else {"checkpoint_age_ms": max(0, task.clock.now_ms - hosted.saved_ms)}

    def close(self) -> None:
        """Close all components (``close``/``cleanup``), and shut the worker hooks down; their errors are only logged."""
        for hosted in self._hosted.values():
            hosted.task.close()
        for hook in self._worker_hooks:
            try:
                hook.shutdown()
            except Exception:  # the user's code
                log.exception("a worker hook could not be shut down")
