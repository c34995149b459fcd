"""What an executor of a real-time query does all the time: take what Spark has passed on, process it, write what follows (see docs/internals/transport.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from dskype.topology.config import Config
from dskype.topology.core.executor import Executor, route
from dskype.topology.core.frames import OutRecord, OutRecords
from dskype.topology.core.waiting import SpoutWait
from dskype.topology.runtime.transport.record_writer import PlainRecordWriter, RecordWriter
from dskype.topology.runtime.transport.spark_input import SparkInput

__all__ = ["InboxLoop", "KeptPositions"]

_LEAST_INTERVAL_S = 0.005
"""Least time between the beginnings of two batches, unless it has to be longer. A batch costs executors and brokers the same however few tuples it has; what arrives meanwhile is in the
next one. The first batch after a pause begins at once."""
_PATIENCE_S = 0.2
"""Longest wait for a record: signals and connections are looked after in between."""
_REPORT_EVERY_S = 0.1
"""Least time between the reports of an executor, because its batches are small and many."""
_ASK_SHARE, _LONGEST_ASK_S = 0.01, 0.02
"""An idle spout is asked again after this share of the time for which it has had nothing, but at least so often, unless its strategy waits for longer."""
_EARLY_S = 0.001
"""How much too early a spout may be asked: the reader's waits are in milliseconds."""


class KeptPositions:
    """How far the tasks of an executor are: a mapped file that a successor reads when this process was killed.

    :param path: of the file, which is made if it does not exist.
    :param tasks: the executor's tasks.
    """

    def __init__(self, path: Path, tasks: Sequence[int]) -> None:
        with open(path, "ab") as file:
            file.truncate(8 * len(tasks))
        self._cells = np.memmap(path, np.int64, "r+")
        self._index = {task: i for i, task in enumerate(tasks)}

    def get(self, task: int) -> int:
        """Return the offset up to which everything that a task emitted is in Kafka; 0 if none is known."""
        return int(self._cells[self._index[task]])

    def keep(self, task: int, version: int) -> None:
        """Remember such an offset."""
        self._cells[self._index[task]] = version


class InboxLoop:
    """Processes what comes to an executor, in batches that are as large as the load demands.

    The next batch begins when the brokers have everything that the last one released. A bolt's task begins at the offset that its predecessor kept, or at its
    snapshot; a spout's at its journal.

    :param executor: it has processed nothing yet.
    :param writer: writes what the executor releases.
    :param kept: positions of the executor's tasks.
    :param external: (topic, partition) -> first offset, for all partitions of the external topics of a Kafka spout; the loop needs those of its tasks.
    :param save: called before each batch with its number, to take the snapshots that are due.
    :param open_input: returns what passes on the records from given positions on.
    :param permit: called before a batch, and before what it has released is written; it raises if another executor has the tasks now.
    :param interval_s: least time between the beginnings of two batches.
    :ivar input: what ``open_input`` has returned.
    """

    def __init__(
        self,
        executor: Executor,
        writer: RecordWriter | PlainRecordWriter,
        kept: KeptPositions,
        external: Mapping[tuple[str, int], int],
        save: Callable[[int], None],
        open_input: Callable[[dict[tuple[str, int], int]], SparkInput],
        *,
        permit: Callable[[], None] = lambda: None,
        interval_s: float = 0.0,
    ) -> None:
        self._executor, self._writer, self._kept, self._save, self._permit = executor, writer, kept, save, permit
        conf = executor.plan.component_conf(executor.component)
        self._most: int = conf[Config.TOPOLOGY_EMULATOR_MAX_FRAMES_PER_BATCH]
        if external:  # external records are single, not frames of many tuples
            self._most = max(self._most, conf[Config.TOPOLOGY_EMULATOR_PULSE_MAX_TUPLES])
        self._spout_wait, self._interval_s = SpoutWait(conf), max(_LEAST_INTERVAL_S, interval_s)
        for task in () if executor.is_spout else executor.tasks:
            # A snapshot is newer if another host has run the task in between.
            if (version := kept.get(task.id)) > task.version:
                executor.bring_to(task.id, version)
        tasks = {task.id for task in executor.tasks}
        own = {where: offset for where, offset in external.items() if route(executor.plan, executor.component, *where) in tasks}
        self.input = open_input({(task.inbox, task.index): task.version for task in executor.tasks} | own)
        self._number = 0  # of the last batch
        self._next_s = 0.0  # when the next batch may begin
        self._worked_s = time.monotonic()  # when there was something last
        self._idle_s: float | None = None  # since when idle spouts wait to be asked
        # When the next report is due; None: there is nothing to report.
        self._report_at: float | None = time.monotonic() + _REPORT_EVERY_S if executor.note_restored() else None

    def step(self) -> None:
        """Process one batch, or wait a moment for one."""
        if (pause_s := self._next_s - time.monotonic()) > 0:
            time.sleep(min(pause_s, _PATIENCE_S))
            if pause_s > _PATIENCE_S:
                return
        if self._idle_s is None:
            self._idle_s = time.monotonic()
        if records := self.input.read(self._wait_s(), self._most):
            self._idle_s = None
            self._begin()
            self._release(self._executor.handle(self._number, records, report=False))
        elif self._executor.unfinished or (self._executor.askable and self._ask_in_s(time.monotonic()) < _EARLY_S):
            self._idle_s = None
            self._begin()
            reply = self._executor.emit(self._number)
            self._spout_wait.note(idle=reply is None)
            if reply is not None:
                self._release(reply)
            else:
                self._next_s = 0.0
        if self._report_at is not None and time.monotonic() >= self._report_at:
            self._report_at = None
            self._writer.write(self._executor.report())  # the next batch waits until the brokers have it

    def _wait_s(self) -> float:
        """Return how long to wait for a record, at most until a report is due or spouts are asked."""
        if self._executor.unfinished:
            return 0.0
        now = time.monotonic()
        waits = [_PATIENCE_S]
        if self._report_at is not None:
            waits.append(max(0.0, self._report_at - now))
        if self._executor.askable:
            waits.append(max(0.0, self._ask_in_s(now)))
        return min(waits)

    def _ask_in_s(self, now: float) -> float:
        """Return after which time idle spouts are to be asked. They wait for longer than one read where their strategy says so, or a report is due meanwhile."""
        since = now if self._idle_s is None else self._idle_s
        return since + max(self._spout_wait.seconds, min(_LONGEST_ASK_S, (since - self._worked_s) * _ASK_SHARE)) - now

    def _begin(self) -> None:
        """Begin a batch."""
        self._next_s = time.monotonic() + self._interval_s
        self._number += 1
        self._permit()
        self._save(self._number)

    def _release(self, reply: list[OutRecord | OutRecords]) -> None:
        """Write what a batch has released, and return when the brokers have it."""
        self._permit()
        self._writer.write(reply)
        if reply:  # the pulses of an idle spout are no work
            self._worked_s = time.monotonic()
        if self._report_at is None:
            self._report_at = time.monotonic() + _REPORT_EVERY_S
        self._writer.flush()
        if not self._executor.is_spout:
            for task in self._executor.tasks:
                self._kept.keep(task.id, task.version)
