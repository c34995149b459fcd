"""Tasks: each runs one instance of a component, and knows what it has received and sent.

A task processes the records of its inbox in offset order, on one thread. What it does depends only on its state and on
these records, so processing the same records again gives the same tuples with the same numbers; see
docs/internals/architecture.md.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, cast

from dskype.topology.components import Spout
from dskype.topology.config import RECORD_BYTES, Config
from dskype.topology.context import TopologyContext
from dskype.topology.core.acking import AckerChannels
from dskype.topology.core.channels import FrameLimits, Outbox
from dskype.topology.core.dead_letters import DeadLetters, packed, reason_of
from dskype.topology.core.error_reports import ERROR_CHARS, ErrorReports
from dskype.topology.core.frames import WAKE, Control, DataFrame, OutRecord, OutRecords, Pulse, Segment, Tick, decode_frame, segment_sizes
from dskype.topology.core.out_streams import make_out_streams
from dskype.topology.core.receiver import Receiver
from dskype.topology.core.record_sender import RecordSender
from dskype.topology.core.redaction import redact_text
from dskype.topology.core.stats import TaskStats
from dskype.topology.core.system_emits import SystemEmits
from dskype.topology.core.task_clock import TaskClock
from dskype.topology.core.values import FrameError
from dskype.topology.core.watermarks import TaskWatermarks
from dskype.topology.errors import DeadLetter, code_of, shorten, text_of
from dskype.topology.hooks import TaskHook
from dskype.topology.model import stateful
from dskype.topology.named_classes import load_class
from dskype.topology.planning.acker_streams import ACKER_COMPONENT_ID
from dskype.topology.planning.plan import TopologyPlan, dead_letters_topic, inbox_topic
from dskype.topology.tuples import InRecord, StreamMeta

__all__ = ["Task"]


class Task:
    """Base of spout and bolt tasks: it runs the component, and joins the parts that know what was received and what is sent.

    The executor moves it from state to state::

        made ---- start() ----> started ---- restore() or process() ----> at a version <---------+
                                                                               |                  |
                                                                               +---- process() ---+
                                                                               |                  |
                                                                               +-- _restart() ----+

    An exception of the component *restarts* it: it is closed, and another one starts with the state that it had, at the same version.
    While *suppressed*, because the records that it processes were processed before, everything advances as usual and nothing leaves the task.

    :param plan: the topology plan.
    :param task: the task id.
    :param now_ms: wall clock, for statistics, error times, and how long a spout may be asked for tuples.
    :ivar version: the next inbox offset.
    :ivar suppressed: see above.
    """

    def __init__(self, plan: TopologyPlan, task: int, now_ms: Callable[[], int]) -> None:
        self.plan, self.id, self._wall_ms = plan, task, now_ms
        self.component_id = component = plan.task_component[task]
        self.index = plan.task_index(task)
        self.spec = plan.topology.components[component]
        self.conf = conf = plan.component_conf(component)
        self.tracking = ACKER_COMPONENT_ID in plan.topology.components
        self.inbox = inbox_topic(plan.name, component)
        self.stats, self.clock = TaskStats(), TaskClock()
        self.context = TopologyContext(plan, task)
        self.context.clock_ms = lambda: self.clock.now_ms
        self.context.now_ms = now_ms
        self.context.broker_ms = lambda: self.clock.broker_ms
        self.version = 0
        self.suppressed = False
        self.snapshot_wanted = False
        self.errors = ErrorReports(component, task, conf, self.stats, now_ms)
        self.letters = DeadLetters(dead_letters_topic(plan.name), component, task, min(RECORD_BYTES, conf[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_MAX_BYTES]))
        self._record_bytes = min(RECORD_BYTES, conf[Config.TOPOLOGY_EMULATOR_RECORD_MAX_BYTES])
        # A topology id ends with its number and start time, so a later topology of the same name has other record ids.
        self.records = RecordSender(component, f"{plan.topology_id.removeprefix(plan.name).lstrip('-')}-{task}-", self._record_bytes, self._refuse_record)
        self._receiver = Receiver(self.stats, self.report_error)
        self._metas: dict[tuple[int, str], StreamMeta] = {}
        frame_bytes = min(RECORD_BYTES, conf[Config.TOPOLOGY_EMULATOR_FRAME_MAX_BYTES])
        self.outbox = Outbox(task, self._inbox_of, FrameLimits(conf[Config.TOPOLOGY_EMULATOR_FRAME_MAX_TUPLES], frame_bytes, RECORD_BYTES, self._refuse))
        self.outs = make_out_streams(plan, task, self.context)
        self.ackers = AckerChannels(plan, self.outs, self.outbox)
        self.watermarks = TaskWatermarks(plan, component, self.outs.values())
        self.context.watermark = lambda: self.watermarks.own
        self.system = SystemEmits(self)
        self.observed = self.system.has_events or bool(conf[Config.TOPOLOGY_DEBUG])
        self.component: Any = None
        self.collector: Any = None

    def _inbox_of(self, task: int) -> tuple[str, int]:
        return inbox_topic(self.plan.name, self.plan.task_component[task]), self.plan.task_index(task)

    # -- receiving --------------------------------------------------------------------------------

    def process(self, records: Iterable[InRecord]) -> None:
        """Process inbox records in offset order, none of them below ``version``."""
        for record in records:
            self.clock.advance(record.timestamp_ms)
            self._run_segments(self._receiver.advance_time(record.timestamp_ms))
            self._process_record(record)
            self.version = record.offset + 1

    def _process_record(self, record: InRecord) -> None:
        try:
            frame = decode_frame(record.value)
            if isinstance(frame, DataFrame):
                self._check(frame)
        except FrameError as error:
            self._receiver.note_damaged(record.value)
            self.dead_letter(record.value, DeadLetter(str(error), "invalid-frame"), "decode", record)
            return
        value = cast(bytes, record.value)  # because it was decoded
        self.stats.frames += 1
        self.stats.in_bytes += len(value)
        if isinstance(frame, DataFrame):
            streams = [segment.stream for segment in frame.segments]
            self.stats.count_streams(self.plan.task_component[frame.source_task], streams, len(value), lambda: segment_sizes(value))
            self._run_segments(self._receiver.accept(frame, value))
            return
        if not isinstance(frame, Control) or frame.command != WAKE:
            self.clock.tell(frame.now_ms, record.timestamp_ms)
        if isinstance(frame, Tick):
            self._run_tick(frame)
        else:
            self._run_control(frame)

    def _run_segments(self, segments: Iterable[tuple[int, int, Segment]]) -> None:
        for source, first_seq, segment in segments:
            if segment.stream is None:
                if (low := self.watermarks.receive(source, segment.watermark)) is not None:
                    self.advance_watermark(low)
            else:
                self._run_segment(source, first_seq, segment)

    def _meta(self, source: int, stream: str) -> StreamMeta:
        meta = self._metas.get((source, stream))
        if meta is None:
            component = self.plan.task_component[source]
            info = self.plan.topology.components[component].outputs.get(stream)
            if info is None:
                msg = f"a frame names a stream that component {component!r} does not declare; given: {stream!r:.80}"
                raise FrameError(msg)
            meta = self._metas[source, stream] = StreamMeta(component, source, stream, info.fields)
        return meta

    def _check(self, frame: DataFrame) -> None:
        """Refuse a frame that does not fit the topology."""
        if frame.source_task not in self.plan.task_component:
            msg = f"a frame names a source task that does not exist; given: {frame.source_task}; legal: {sorted(self.plan.task_component)}"
            raise FrameError(msg)
        for segment in frame.segments:
            if segment.stream is not None:
                meta = self._meta(frame.source_task, segment.stream)
                if segment.columns is not None and (missing := meta.fields.size() - len(segment.columns)):
                    if 0 < missing <= self.plan.topology.components[meta.component].outputs[segment.stream].later:
                        segment.columns += [[None] * segment.n] * missing
                        continue
                    msg = (
                        f"a frame of stream {segment.stream!r} of component {meta.component!r} has the wrong arity; "
                        f"expected {meta.fields.size()} columns; given: {len(segment.columns)}"
                    )
                    raise FrameError(msg)

    def advance_watermark(self, watermark: int) -> None:
        """Raise the task's own watermark; it is sent downstream at the end of the batch."""
        if self.watermarks.raise_to(watermark):
            self._on_watermark(watermark)

    def _on_watermark(self, watermark: int) -> None:
        """Handle a new watermark; overridden by bolt tasks."""

    # -- sending ----------------------------------------------------------------------------------

    def flush(self) -> list[OutRecord | OutRecords]:
        """Return everything that the task has emitted since the last flush, as records for the sink; none while suppressed."""
        self.watermarks.send(self.outbox)
        frames, records = self.outbox.flush(suppressed=self.suppressed), self.records.take()
        if self.suppressed:
            return []
        self.stats.out_bytes += sum(len(frame.value or b"") for frame in frames)
        return [*frames, *records]

    def flush_letters(self) -> list[OutRecord]:
        """Return the dead letters since the last call; none while suppressed."""
        letters = self.letters.take()
        return [] if self.suppressed else letters

    # -- errors and dead letters ------------------------------------------------------------------

    def report_error(self, error: BaseException | str) -> None:
        """Count an error, and report it unless the interval has had ``topology.max.error.report.per.interval`` already."""
        self.errors.add(error, suppressed=self.suppressed)

    def dead_letter(self, value: bytes | None, error: Exception, stage: str, record: InRecord) -> None:
        """Send an unusable record to the dead letters, and count it."""
        self.stats.reject(stage, code_of(error))
        self.report_error(f"{stage}: {shorten(redact_text(reason_of(error)), ERROR_CHARS)} (record {record.topic}/{record.partition} offset {record.offset})")
        self.letters.add(record.key, value, error, stage, (record.topic, record.partition, record.offset))

    def dead_tuple(self, values: Any, error: Exception, stage: str, stream: str) -> None:
        """Send a tuple to the dead letters, its values as msgpack (or as text, if they cannot be packed), and count it."""
        self.stats.reject(stage, code_of(error))
        self.letters.add(None, packed(values), error, stage, (self.inbox, self.index, self.version), ("stream", stream))

    def _refuse(self, stream: str, row: Any, error: Exception) -> None:
        self.report_error(f"a tuple of stream {stream!r} cannot be sent: {reason_of(error)}")
        self.dead_tuple(row, error, "emit", stream)

    def _refuse_record(self, topic: str, key: bytes | None, value: bytes | None, size: int) -> None:
        error = DeadLetter(f"the record has {size} bytes; expected at most {self._record_bytes}; hint: topology.emulator.record.max.bytes", "long-record")
        self.stats.reject("send", error.code)
        self.report_error(f"a record for topic {topic!r} cannot be sent: {error.reason}")
        self.letters.add(key, value, error, "send", (self.inbox, self.index, self.version), ("target", topic))

    # -- life of the component --------------------------------------------------------------------

    def start(self) -> None:
        """Copy the component, and open or prepare the copy."""
        self.component = copy.deepcopy(self.spec.obj)
        self.watermarks.hold_none()
        for name in self.conf.get(Config.TOPOLOGY_AUTO_TASK_HOOKS) or ():
            self.context.add_task_hook(load_class(name, TaskHook, Config.TOPOLOGY_AUTO_TASK_HOOKS)())
        self._open()

    def _restart(self, error: BaseException) -> None:
        """Replace the component after an exception, as Storm replaces a worker.

        A component with ``snapshot`` and ``restore`` keeps its state; any other starts empty. Its counters belong to the task and continue.
        """
        self.report_error(error)
        old, state = self.component, None
        if stateful(old):
            try:
                state = copy.deepcopy(old.snapshot())
            except Exception as snapshot_error:  # the user's code: start empty rather than not at all
                self.report_error(snapshot_error)
        self.close()
        self.context.drop_component_metrics()
        self.start()
        if state is not None:
            self.component.restore(state)

    def close(self) -> None:
        """Close the component; its errors are only reported."""
        try:
            self.component.close() if isinstance(self.component, Spout) else self.component.cleanup()
        except Exception as error:  # the user's code
            self.report_error(error)
        hooks = self.context.get_hooks()
        while hooks:
            try:
                hooks.pop(0).cleanup()
            except Exception as error:  # the user's code
                self.report_error(error)

    def _open(self) -> None:
        raise NotImplementedError

    def _run_segment(self, source: int, first_seq: int, segment: Segment) -> None:
        raise NotImplementedError

    def _run_tick(self, tick: Tick) -> None:
        raise NotImplementedError

    def _run_control(self, frame: Pulse | Control) -> None:
        raise NotImplementedError

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return everything that this task needs to continue from ``version``; called between batches."""
        return {
            "topology": self.plan.topology_id,
            "component": self.component_id,
            "task": self.id,
            "version": self.version,
            **self.clock.snapshot(),
            "received": self._receiver.snapshot(),
            **self.watermarks.snapshot(),
            "sent": self.outbox.snapshot(),
            "records_sent": self.records.sent,
            "streams": {name: out.snapshot() for name, out in self.outs.items()},
            "stats": self.stats.to_dict(),
            "metric_counts": self.context.metric_counts(),
            "user": self.component.snapshot() if stateful(self.component) else None,
            **self.system.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a snapshot; called right after :meth:`start`."""
        self.version = state["version"]
        self.clock.restore(state)
        self._receiver.restore(state["received"])
        self.watermarks.restore(state)
        self.outbox.restore(state["sent"])
        self.records.restore(state["records_sent"])
        for name, out_state in state["streams"].items():
            self.outs[name].restore(out_state)
        self.stats.restore(state["stats"])
        self.system.restore(state)
        if stateful(self.component) and state["user"] is not None:
            self.component.restore(state["user"])
        self.context.restore_counts(state.get("metric_counts", {}))  # absent from snapshots of earlier versions

    def unwritable(self, error: BaseException) -> str:
        """Return the message for a component's state that cannot be written because of ``error``."""
        return (
            f"the state that snapshot() of component {self.component_id!r} (task {self.id}) returns cannot be written: {text_of(error)}; until "
            "it can, a crash of this task goes back to an earlier state, or to the beginning"
        )

    def report(self) -> dict[str, Any]:
        """Return the task's line of a statistics record."""
        return {
            "component": self.component_id,
            "task": self.id,
            "version": self.version,
            "emitted": {name: out.emitted for name, out in self.outs.items() if out.emitted},
            "transferred": {name: out.transferred for name, out in self.outs.items() if out.transferred},
            "sent": self.outbox.snapshot(),
            "received": self._receiver.expected,
            "watermark": self.watermarks.own,
            **self.stats.to_dict(),
            **({"metrics": self.context.read_metrics(reset=not self.system.has_consumers)} if self.context.metrics else {}),
        }
