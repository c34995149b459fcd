"""Tasks of bolts: they execute single tuples or whole segments, ack, handle ticks, and isolate poison tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, repeat
from time import perf_counter_ns
from typing import cast

from dskype.topology import components
from dskype.topology.components import BasicBolt, BatchBolt, KafkaBolt
from dskype.topology.config import Config
from dskype.topology.core.acking import message_ids
from dskype.topology.core.batch_execution import BatchExecution
from dskype.topology.core.collectors import BasicOutputCollector, OutputCollector
from dskype.topology.core.frames import Control, DataFrame, Pulse, Segment, Tick
from dskype.topology.core.observed import BoltHooks, ObservedOutputCollector
from dskype.topology.core.poison import PoisonIsolation
from dskype.topology.core.stats import SAMPLE_EVERY
from dskype.topology.core.task import Task
from dskype.topology.core.values import FrameError
from dskype.topology.errors import FailedException, ReportedFailedException
from dskype.topology.planning.acker_streams import ACKER_ACK_STREAM_ID, ACKER_FAIL_STREAM_ID, ACKER_RESET_TIMEOUT_STREAM_ID
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.tuples import StreamMeta, Tuple, column_to_list, tick_tuple

__all__ = ["BoltTask"]


class BoltTask(Task):
    """A task of an ordinary, basic, batch or Kafka bolt."""

    def __init__(self, plan: TopologyPlan, task: int, now_ms: Callable[[], int]) -> None:
        super().__init__(plan, task, now_ms)
        self._takes_batches = isinstance(self.spec.obj, BatchBolt)  # asked for each frame: an abstract class answers slowly
        self._batches = BatchExecution(self)
        self.batch_tracker = self._batches.tracker
        self.poison = PoisonIsolation(self, self._batches.execute)

    def _open(self) -> None:
        self._hooks: BoltHooks | None = None
        self._opened = False
        self.context.on_hook = self._call_hooks
        self.collector = ObservedOutputCollector(self) if self.observed else OutputCollector(self)
        if self.context.get_hooks():
            self._call_hooks()
        component = self.component
        self._sampled: dict[int, int] = {}
        self._until_sample = SAMPLE_EVERY
        if isinstance(component, BasicBolt):
            component.prepare(self.conf, self.context)
        elif not isinstance(component, KafkaBolt):
            component.prepare(self.conf, self.context, self.collector)
        self._opened = True
        self._choose_execute()
        has_hook = type(component).on_watermark is not components.BaseBolt.on_watermark
        self._watermark_hook = component.on_watermark if has_hook else None
        self._clock_hook = getattr(component, "on_clock", None)

    def _choose_execute(self) -> None:
        """Choose what processes a tuple, by the kind of bolt; a batch bolt has no such function."""
        component = self.component
        if self._takes_batches:
            return
        if isinstance(component, BasicBolt):
            self._basic = BasicOutputCollector(self.collector)
            execute = self._basic_execute if self.tracking or self._hooks else self._basic_execute_untracked
        else:
            execute = self._kafka_execute if isinstance(component, KafkaBolt) else component.execute
        self._execute = execute if self._hooks is None else self._hooks.around(execute)

    def _call_hooks(self) -> None:
        """Call the task's hooks from now on; what ``execute`` is doing now is not affected."""
        if self._hooks is None:
            self._hooks = BoltHooks(self.id, self.context.get_hooks())
            self.collector.__class__ = ObservedOutputCollector
            if self._opened:
                self._choose_execute()

    def _basic_execute(self, tup: Tuple) -> None:
        self._basic.input = tup
        try:
            self.component.execute(tup, self._basic)
        except ReportedFailedException as error:
            self.report_error(error)
            self.fail(tup)
        except FailedException:
            self.fail(tup)
        else:
            self.ack(tup)

    def _basic_execute_untracked(self, tup: Tuple) -> None:
        try:
            self.component.execute(tup, self._basic)
        except ReportedFailedException as error:
            self.report_error(error)
        except FailedException:
            pass

    def _kafka_execute(self, tup: Tuple) -> None:
        try:
            record = self.component.translate(tup)
            if record is not None and record[0] is not None:  # as in Storm, a record without a topic is not written
                topic, key, value, headers = record
                if not self.records.send(topic, key, value, headers):
                    self.collector.fail(tup)
                    return
        except Exception as error:  # the user's code or data: report and fail, as Storm's KafkaBolt does
            self.report_error(error)
            if self.conf[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_ON_EXCEPTION]:
                self.dead_tuple(tup.values, error, "execute", tup.meta.stream)
            self.collector.fail(tup)
        else:
            self.collector.ack(tup)

    def _run_segment(self, source: int, first_seq: int, segment: Segment) -> None:
        if segment.columns is None:  # a hole: the tuple was too large and is in the dead letters
            return
        meta = self._meta(source, cast(str, segment.stream))
        started = perf_counter_ns()
        if self._takes_batches:
            self.poison.run(meta, first_seq, segment)
        else:
            self._run_rows(meta, first_seq, segment)
        spent = perf_counter_ns() - started
        self.stats.executed[meta.counter] += segment.n
        self.stats.execute.record(spent, segment.n)
        self.stats.busy_ns += spent

    def _check(self, frame: DataFrame) -> None:
        super()._check(frame)
        if self._takes_batches:
            return
        try:
            for segment in frame.segments:
                if segment.columns:
                    segment.columns = [column_to_list(c) for c in segment.columns]
        except UnicodeDecodeError as error:
            msg = f"a column of strings in a frame is not UTF-8: {error.reason}; given: {error.object[:40]!r}"
            raise FrameError(msg) from error

    def _rows(self, meta: StreamMeta, first_seq: int, segment: Segment) -> Iterator[Tuple]:
        columns = [column_to_list(c) for c in segment.columns or ()]
        rows = zip(*columns) if columns else repeat((), segment.n)
        if segment.anchors is None or not self.tracking:
            return map(Tuple, rows, repeat(meta))
        return map(Tuple, rows, repeat(meta), message_ids(meta.task, self.id, first_seq, segment.n, segment.anchors))

    def _run_rows(self, meta: StreamMeta, first_seq: int, segment: Segment) -> None:
        rows = self._rows(meta, first_seq, segment)
        while True:
            tup = None
            execute = self._execute
            try:
                if not self.tracking:
                    for tup in rows:
                        execute(tup)
                    return
                while True:
                    for tup in islice(rows, self._until_sample):
                        self._until_sample -= 1
                        execute(tup)
                    if self._until_sample:
                        return
                    self._until_sample = SAMPLE_EVERY
                    tup = next(rows, None)
                    if tup is None:
                        return
                    self._sampled = {id(tup): perf_counter_ns()}
                    execute(tup)
            except Exception as error:  # the user's code: restart the component, continue with the next tuple
                if self.conf[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_ON_EXCEPTION]:
                    self.dead_tuple(cast(Tuple, tup).values, error, "execute", meta.stream)
                self._restart(error)

    def _run_tick(self, tick: Tick) -> None:
        if tick.rate_secs == 0 and self._clock_hook is not None:  # a timer of a windowed bolt, not a tick tuple
            try:
                self._clock_hook()
            except Exception as error:  # the user's code
                self._restart(error)
            return
        tup = tick_tuple(tick.rate_secs)
        started = perf_counter_ns()
        try:
            if self._takes_batches:
                self.component.execute_tick(tup)
            elif not isinstance(self.component, KafkaBolt):
                self._execute(tup)
        except Exception as error:  # the user's code
            self._restart(error)
        self.stats.busy_ns += perf_counter_ns() - started
        self.stats.executed["__system/__tick"] += 1

    def _run_control(self, frame: Pulse | Control) -> None:
        """Handle a request for a snapshot, or for what the system wants; activation does not concern bolts."""
        if type(frame) is Control:
            if frame.command == "snapshot":
                self.snapshot_wanted = True
            self.system.control(frame.command)

    def _on_watermark(self, watermark: int) -> None:
        if self._watermark_hook is not None:
            started = perf_counter_ns()
            try:
                self._watermark_hook(watermark)
            except Exception as error:  # the user's code
                self._restart(error)
            self.stats.busy_ns += perf_counter_ns() - started

    # -- acking -----------------------------------------------------------------------------------

    def _count_settled(self, counter: dict[str, int], tup: Tuple) -> None:
        counter[tup.meta.counter] += 1
        if self._sampled and (started := self._sampled.pop(id(tup), None)) is not None:
            self.stats.process.record(perf_counter_ns() - started)

    def ack(self, tup: Tuple) -> None:
        """Tell the ackers of a tuple's roots that it is acked."""
        ids = tup.message_id
        if ids:
            value = tup.ack_val
            if len(ids) == 2:
                root, edge = ids
                self.ackers.send(ACKER_ACK_STREAM_ID, root, (root, edge ^ value))
            else:
                for root, edge in zip(ids[::2], ids[1::2]):
                    self.ackers.send(ACKER_ACK_STREAM_ID, root, (root, edge ^ value))
        if self.tracking:
            self._count_settled(self.stats.acked, tup)
        if self._hooks is not None:
            self._hooks.acked(tup)

    def fail(self, tup: Tuple) -> None:
        """Tell the ackers of a tuple's roots that it has failed."""
        for root in (tup.message_id or ())[::2]:
            self.ackers.send(ACKER_FAIL_STREAM_ID, root, (root,))
        if self.tracking:
            self._count_settled(self.stats.failed, tup)
        if self._hooks is not None:
            self._hooks.failed(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the message timeout of a tuple's trees."""
        for root in (tup.message_id or ())[::2]:
            self.ackers.send(ACKER_RESET_TIMEOUT_STREAM_ID, root, (root,))
