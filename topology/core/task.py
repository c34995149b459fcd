"""Tasks: one instance of a component, what it has received, sent and remembers.

A task is driven by records of its inbox, in offset order, by one thread. What it does depends on
its state and on those records alone, so running the same records again gives the same tuples with
the same numbers; see docs/architecture.md.
"""

from __future__ import annotations

import copy
import re
import traceback
from itertools import islice, repeat
from time import perf_counter_ns
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dskype.topology import components
from dskype.topology.components import BasicBolt, BatchBolt, KafkaBolt, Spout
from dskype.topology.config import RECORD_BYTES, Config
from dskype.topology.context import TopologyContext
from dskype.topology.core._kernels import edge_key, stream_ids
from dskype.topology.core.channels import FrameLimits, Outbox, OutStream
from dskype.topology.core.collectors import BasicOutputCollector, OutputCollector
from dskype.topology.core.frames import Control, DataFrame, OutRecord, OutRecords, Pulse, Segment, Tick, decode_frame, segment_sizes
from dskype.topology.core.receiver import Receiver
from dskype.topology.core.redaction import redact_text
from dskype.topology.core.stats import SAMPLE_EVERY, TaskStats
from dskype.topology.core.values import FrameError, column_rows, pack_state, slice_column, unpack_state
from dskype.topology.core.watermarks import takes_watermarks, watermark_sources
from dskype.topology.errors import FailedException, IllegalArgumentException, ReportedFailedException, TopologyError, shorten, text_of
from dskype.topology.groupings import DirectGrouping
from dskype.topology.model import stateful
from dskype.topology.planning.acker import ACKER_ACK_STREAM_ID, ACKER_COMPONENT_ID, ACKER_FAIL_STREAM_ID, ACKER_RESET_TIMEOUT_STREAM_ID
from dskype.topology.planning.plan import TopologyPlan, dead_letters_topic, inbox_topic
from dskype.topology.routing.groupers import build_grouper, grouping_seed
from dskype.topology.tuples import InRecord, StreamMeta, Tuple, TupleBatch, tick_tuple

__all__ = ["BoltTask", "PoisonedBatchError", "Task"]

_LETTER_KEY_BYTES = _LETTER_TEXT_BYTES = 4096
"""What a dead letter holds of a key, and of the reason."""
_ERROR_CHARS = 16_384
"""What is kept of the text of an error."""
_MAX_FAILURES = 64
"""So often a batch that fails is run again in parts; then a part that fails goes to the dead letters whole: its service may be down."""
_CHEAP_NS = 50_000_000
"""A checkpoint that takes no longer is taken before every batch, once one has failed."""
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NO_END, _FIRST_UNTOLD_MS, _UNTOLD_MS = 1 << 62, 60_000, 5000
"""A timestamp so far beyond what the topology's clock told last, at least, is by a clock that was set; without a limit where that clock tells a task nothing."""


class PoisonedBatchError(TopologyError):
    """A batch bolt could not process a segment, and its memory may be half changed.

    :param place: offset of the record, and which segment of it; to be given to the task that goes on from a state before.
    """

    def __init__(self, component: str, place: tuple[int, int]) -> None:
        super().__init__(f"component {component!r} could not process segment {place[1]} of its record at offset {place[0]}")
        self.place = place


class Task:
    """What spout and bolt tasks share.

    :param plan: the physical plan.
    :param task: the task id.
    :param now_ms: wall clock, used for statistics and error times only.
    """

    def __init__(self, plan: TopologyPlan, task: int, now_ms: Callable[[], int]) -> None:
        self.plan, self.id, self._wall_ms = plan, task, now_ms
        self.component_id = component = plan.task_component[task]
        self.index = plan.task_index(task)
        self.spec = plan.topology.components[component]
        self.conf = plan.component_conf(component)
        self.tracking = ACKER_COMPONENT_ID in plan.topology.components
        self.context = TopologyContext(plan, task)
        self.context.clock_ms = lambda: self.clock_ms
        self.context.now_ms = now_ms
        self.inbox = inbox_topic(plan.name, component)
        self.stats = TaskStats()
        self.version = 0
        self.clock_ms = 0
        self._skew_ms, self._clock_end_ms, self._told_ms = 0, _NO_END, 0
        self.suppressed = False
        self.snapshot_wanted = False
        self.errors: list[dict[str, Any]] = []
        self._errors_since_ms = self._errors_shown = 0
        self.letters: list[OutRecord] = []
        self._letter_bytes = min(RECORD_BYTES, self.conf[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_MAX_BYTES])
        self.records: list[OutRecord | OutRecords] = []
        self._record_bytes = min(RECORD_BYTES, self.conf[Config.TOPOLOGY_EMULATOR_RECORD_MAX_BYTES])
        self._topics: set[str] = set()  # whose names have been checked
        self._records_sent = 0
        # The id of a topology ends in a number and its start: a successor of the same name has other record ids.
        self._record_id = f"{plan.topology_id.removeprefix(plan.name).lstrip('-')}-{task}-"
        self._receiver = Receiver(self.stats, self.report_error)
        self._metas: dict[tuple[int, str], StreamMeta] = {}
        self._watermark_sources = watermark_sources(plan.topology, component)
        self._upstream = [t for c in self._watermark_sources for t in plan.component_tasks(c)]
        self._watermarks: dict[int, int] = {}
        self.watermark: int | None = None
        self._watermark_sent: int | None = None
        limits = FrameLimits(
            self.conf[Config.TOPOLOGY_EMULATOR_FRAME_MAX_TUPLES],
            min(RECORD_BYTES, self.conf[Config.TOPOLOGY_EMULATOR_FRAME_MAX_BYTES]),
            RECORD_BYTES,
            self._refuse,
        )
        self.outbox = Outbox(task, self._inbox_of, limits)
        self.outs = {name: self._out_stream(name, info) for name, info in self.spec.outputs.items()}
        following = {t for o in self.outs.values() if not o.name.startswith("__") for t in o.regular_tasks | o.direct_tasks}
        takers = {
            c
            for c in {plan.task_component[t] for t in following}
            if component in watermark_sources(plan.topology, c) and takes_watermarks(plan.topology, c, plan.component_conf)
        }
        self._watermark_takers = sorted(t for t in following if plan.task_component[t] in takers)
        self._ackers = plan.component_tasks(ACKER_COMPONENT_ID) if self.tracking else []
        self.component: Any = None

    def _inbox_of(self, task: int) -> tuple[str, int]:
        return inbox_topic(self.plan.name, self.plan.task_component[task]), self.plan.task_index(task)

    def _out_stream(self, name: str, info) -> OutStream:
        groupers, regular, direct = [], set(), set()
        for consumer, spec in sorted(self.plan.topology.components.items()):
            grouping = spec.inputs.get((self.component_id, name))
            if grouping is None:
                continue
            targets = self.plan.component_tasks(consumer)
            if isinstance(grouping, DirectGrouping):
                direct.update(targets)
                continue
            regular.update(targets)
            groupers.append(
                build_grouper(
                    grouping,
                    producer_task=self.id,
                    stream=(self.component_id, name),
                    out_fields=info.fields,
                    target_tasks=targets,
                    local_tasks=self.plan.worker_tasks(self.plan.worker_of(self.id)),
                    seed=grouping_seed(self.plan.topology_id, self.id, consumer, name),
                    context=self.context,
                )
            )
        return OutStream(name, info.fields, groupers, frozenset(regular), frozenset(direct))

    # -- receiving --------------------------------------------------------------------------------

    def process(self, records: Iterable[InRecord]) -> None:
        """Process inbox records in offset order; records below ``version`` must not be given."""
        for record in records:
            now_ms = record.timestamp_ms + self._skew_ms
            if self.clock_ms < now_ms <= self._clock_end_ms:
                self.clock_ms = now_ms
            self._run_segments(self._receiver.pass_time(record.timestamp_ms))
            self._process_record(record)
            self.version = record.offset + 1

    def _process_record(self, record: InRecord) -> None:
        try:
            frame = decode_frame(record.value)
            if type(frame) is DataFrame:
                self._check(frame)
        except FrameError as error:
            self._receiver.damaged(record.value)
            self.dead_letter(record.value, str(error), "decode", record)
            return
        self.stats.frames += 1
        self.stats.in_bytes += len(record.value)
        if type(frame) is DataFrame:
            self._count_streams(frame, record.value)
            self._run_segments(self._receiver.accept(frame, record.value))
        else:
            self._set_clock(frame.now_ms, record.timestamp_ms)
            if type(frame) is Tick:
                self._run_tick(frame)
            else:
                self._run_control(frame)

    def _set_clock(self, now_ms: int, timestamp_ms: int) -> None:
        """Take the time from a record of the topology's clock.

        Timestamps of records come from clocks that may be set. The topology's is not; what it says tells how far the others are off, and which timestamps to
        leave out until it says the time again.
        """
        self._skew_ms = now_ms - timestamp_ms
        self._clock_end_ms = now_ms + (max(_UNTOLD_MS, 2 * (now_ms - self._told_ms)) if self._told_ms else _FIRST_UNTOLD_MS)
        self._told_ms = now_ms
        if now_ms > self.clock_ms:
            self.clock_ms = now_ms

    def _count_streams(self, frame: DataFrame, value: bytes) -> None:
        """Count the frame and its bytes for the streams whose tuples it brings; watermarks travel on their cost."""
        named = [(i, s.stream) for i, s in enumerate(frame.segments) if s.stream is not None]
        if not named:
            return
        frames, sizes = self.stats.stream_frames, self.stats.stream_bytes
        component = self.plan.task_component[frame.source_task]
        streams = {stream for _, stream in named}
        for stream in streams:
            frames[f"{component}/{stream}"] += 1
        if len(streams) == 1:
            sizes[f"{component}/{named[0][1]}"] += len(value)
            return
        parts = segment_sizes(value)
        for i, stream in named:
            sizes[f"{component}/{stream}"] += parts[i]
        sizes[f"{component}/{named[0][1]}"] += len(value) - sum(parts[i] for i, _ in named)

    def _run_segments(self, segments: Iterable[tuple[int, int, Segment]]) -> None:
        for source, first_seq, segment in segments:
            if segment.stream is None:
                self._source_watermark(source, segment.watermark)
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
                if segment.columns is not None and len(segment.columns) != meta.fields.size():
                    msg = (
                        f"a frame of stream {segment.stream!r} of component {meta.component!r} has the wrong arity; "
                        f"expected {meta.fields.size()} columns; given: {len(segment.columns)}"
                    )
                    raise FrameError(msg)

    def _message_ids(self, source: int, first_seq: int, n: int, anchors: Any) -> Iterator[tuple | None]:
        edges = stream_ids(edge_key(source, self.id), first_seq, n).tolist()
        for root, edge in zip(anchors.tolist() if isinstance(anchors, np.ndarray) else anchors, edges):
            if not root:
                yield None
            elif type(root) is int:
                yield (root, edge)
            else:
                yield tuple(root)

    # -- watermarks -------------------------------------------------------------------------------

    def _source_watermark(self, source: int, watermark: int) -> None:
        known = self._watermarks
        if watermark <= known.get(source, watermark - 1):
            return
        known[source] = watermark
        if not self._upstream or len(known) < len(self._upstream):
            return
        try:
            low = min(known[t] for t in self._upstream)
        except KeyError:  # a source outside the watermark's way
            return
        self.advance_watermark(low)

    def advance_watermark(self, watermark: int) -> None:
        """Raise the task's own watermark; it is broadcast at the end of the batch."""
        if self.watermark is None or watermark > self.watermark:
            self.watermark = watermark
            self._on_watermark(watermark)

    def _on_watermark(self, watermark: int) -> None:
        """Hook of bolt tasks."""

    # -- sending ----------------------------------------------------------------------------------

    def flush(self) -> list[OutRecord | OutRecords]:
        """Return what the task has emitted since the last flush, as records for the sink."""
        if self.watermark is not None and self.watermark != self._watermark_sent:
            self._watermark_sent = self.watermark
            for task in self._watermark_takers:
                self.outbox.channel(task).add_watermark(self.watermark)
        out = self.outbox.flush(suppressed=self.suppressed)
        if not self.suppressed:
            self.stats.out_bytes += sum(len(r.value) for r in out)
            out += self.records
        self.records = []
        return out

    def flush_letters(self) -> list[OutRecord]:
        letters, self.letters = self.letters, []
        return [] if self.suppressed else letters

    def send_record(self, topic: str, key, value, headers=(), partition=None) -> bool:
        """Send a record; return False if it is too large: then it is a dead letter."""
        self._check_topic(topic)
        if type(partition) is not int and partition is not None or partition is not None and partition < 0:
            raise self._no_record(topic, "partition", partition, "a number from 0, or None")
        key, value = self._bytes_of(topic, "key", key), self._bytes_of(topic, "value", value)
        headers = list(headers)
        size = len(key or b"") + len(value or b"")
        for header in headers:
            if type(header) not in (tuple, list) or len(header) != 2 or type(header[0]) is not str or type(header[1]) not in (bytes, type(None)):
                raise self._no_record(topic, "header", header, "(name, bytes)")
            size += len(header[0].encode()) + len(header[1] or b"")
        if size > self._record_bytes:
            self._refuse_record(topic, key, value, size)
            return False
        number = self._records_sent
        self._records_sent += 1
        self.records.append(OutRecord(topic, partition, key, value, [("record-id", f"{self._record_id}{number}".encode()), *headers]))
        return True

    def send_records(self, topic: str, keys, values, headers) -> int:
        self._check_topic(topic)
        columns = [values, *(() if keys is None else (keys,)), *(column for _, column in headers)]
        if sum(column.nbytes for column in columns) > self._record_bytes:  # one of them may be too large, but need not be
            keys, values, headers = self._fitting(topic, keys, values, headers)
        n = len(values)
        if n:
            numbers = pa.array(np.arange(self._records_sent, self._records_sent + n)).cast(pa.string())
            self._records_sent += n
            ids = pc.binary_join_element_wise(self._record_id, numbers, "")
            self.records.append(OutRecords(topic, keys, values, [("record-id", ids), *headers]))
        return n

    def _fitting(self, topic: str, keys, values, headers) -> tuple[Any, Any, list[tuple[str, Any]]]:
        """Return the columns of records without those that are too large, which become dead letters."""
        sizes = sum(_byte_lengths(column) for column in (values, *(() if keys is None else (keys,)), *(column for _, column in headers)))
        sizes += sum(len(name.encode()) for name, _ in headers)
        for row in np.flatnonzero(sizes > self._record_bytes).tolist():
            key, value = (None if column is None else self._bytes_of(topic, "column", column[row].as_py()) for column in (keys, values))
            self._refuse_record(topic, key, value, int(sizes[row]))
        rows = np.flatnonzero(sizes <= self._record_bytes)
        if len(rows) == len(values):
            return keys, values, headers
        rows = pa.array(rows)
        return None if keys is None else keys.take(rows), values.take(rows), [(name, column.take(rows)) for name, column in headers]

    def _check_topic(self, topic: Any) -> None:
        if topic not in self._topics:
            if not isinstance(topic, str) or not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
                msg = (
                    f"a record cannot be sent: this is no topic's name (component {self.component_id!r}); given: {topic!r:.300}; "
                    "legal: 1 to 249 of the characters a-z A-Z 0-9 . _ -"
                )
                raise IllegalArgumentException(msg)
            self._topics.add(topic)

    def _no_record(self, topic: str, what: str, given: Any, expected: str) -> TypeError:
        return TypeError(
            f"a record for topic {topic!r} has a {what} that cannot be sent (component {self.component_id!r}); given: {given!r:.300}; expected {expected}"
        )

    def _bytes_of(self, topic: str, what: str, value: Any) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise self._no_record(topic, what, value, "bytes or None")

    # -- errors and dead letters ------------------------------------------------------------------

    def report_error(self, error: BaseException | str) -> None:
        """Report an error: counted always, shown at most ``topology.max.error.report.per.interval`` times an interval."""
        self.stats.errors += 1
        now = self._wall_ms()
        if now - self._errors_since_ms >= self.conf[Config.TOPOLOGY_ERROR_THROTTLE_INTERVAL_SECS] * 1000:
            self._errors_since_ms, self._errors_shown = now, 0
        if self.suppressed or self._errors_shown >= self.conf[Config.TOPOLOGY_MAX_ERROR_REPORT_PER_INTERVAL]:
            return
        self._errors_shown += 1
        text = redact_text(shorten(error if isinstance(error, str) else "".join(traceback.format_exception(error)).rstrip(), _ERROR_CHARS))
        self.errors.append({"v": 1, "kind": "error", "component": self.component_id, "task": self.id, "time_ms": now, "error": text})

    def dead_letter(self, value: bytes | None, error: str, stage: str, record: InRecord) -> None:
        """Send a record that cannot be processed to the dead letters, and count it."""
        self.stats.reject(stage, error)
        self.report_error(f"{stage}: {shorten(error, _ERROR_CHARS)} (record {record.topic}/{record.partition} offset {record.offset})")
        self._letter(record.key, value, None if value is None else len(value), error, stage, record.topic, record.partition, record.offset)

    def _letter(
        self, key: bytes | None, value: bytes | None, size: int | None, error: str, stage: str, topic: str, partition: int, offset: int, *more: tuple[str, str]
    ) -> None:
        """Write a dead letter: the beginning of what could not be processed, so that no letter is too large for its topic.

        :param size: bytes of the value before anything was cut.
        :param more: further headers.
        """
        headers = [
            ("error", _short_bytes(redact_text(error))),
            ("stage", stage.encode()),
            ("topic", topic.encode()),
            ("partition", str(partition).encode()),
            ("offset", str(offset).encode()),
            ("component", self.component_id.encode()),
            ("task", str(self.id).encode()),
            *((name, _short_bytes(text)) for name, text in more),
        ]
        if size is not None:
            headers.append(("size", str(size).encode()))
        if key is not None and len(key) > _LETTER_KEY_BYTES:
            headers.append(("key-size", str(len(key)).encode()))
        kept_key, kept = key and key[:_LETTER_KEY_BYTES], value and value[: self._letter_bytes]
        if kept_key != key or size is not None and len(kept) < size:
            headers.append(("truncated", b"true"))
        self.letters.append(OutRecord(dead_letters_topic(self.plan.name), None, kept_key, kept, headers))

    def dead_tuple(self, values: Any, error: str, stage: str, stream: str) -> None:
        """Send one tuple to the dead letters (as JSON-like text of its values), and count it."""
        self.stats.reject(stage, error)
        try:
            data = pack_state(list(values))
        except (TypeError, ValueError, OverflowError, RecursionError):
            data = _repr(values).encode(errors="backslashreplace")
        self._letter(None, data, len(data), error, stage, self.inbox, self.index, self.version, ("stream", stream))

    def _refuse(self, stream: str, row: Any, reason: str) -> None:
        self.report_error(f"a tuple of stream {stream!r} cannot be sent: {reason}")
        self.dead_tuple(row, reason, "emit", stream)

    def _refuse_record(self, topic: str, key: bytes | None, value: bytes | None, size: int) -> None:
        error = f"the record has {size} bytes; expected at most {self._record_bytes}; hint: topology.emulator.record.max.bytes"
        self.stats.reject("send", error)
        self.report_error(f"a record for topic {topic!r} cannot be sent: {error}")
        self._letter(key, value, None if value is None else len(value), error, "send", self.inbox, self.index, self.version, ("target", topic))

    # -- life of the component --------------------------------------------------------------------

    def _instantiate(self) -> Any:
        # Every task works on a copy of its own, as a task of Storm works on its deserialized copy.
        return copy.deepcopy(self.spec.obj)

    def start(self) -> None:
        """Make the component and open or prepare it."""
        self.component = self._instantiate()
        self._open()

    def _restart(self, error: BaseException) -> None:
        """Replace the component after an exception, as a worker of Storm dies and comes back.

        A component with ``snapshot`` and ``restore`` keeps its state; any other starts empty. What it has counted belongs to the task and goes on.
        """
        self.report_error(error)
        old, state = self.component, None
        if stateful(old):
            try:
                state = copy.deepcopy(old.snapshot())
            except Exception as snapshot_error:  # the user's code: start empty rather than not at all
                self.report_error(snapshot_error)
        try:
            old.close() if isinstance(old, Spout) else old.cleanup()
        except Exception as close_error:
            self.report_error(close_error)
        self.context.keep_counts()
        self.start()
        if state is not None:
            self.component.restore(state)

    def close(self) -> None:
        """Close the component; errors are the user's own and only reported."""
        try:
            self.component.close() if isinstance(self.component, Spout) else self.component.cleanup()
        except Exception as error:
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
        """Return everything this task needs to go on from ``version``; taken between batches."""
        return {
            "topology": self.plan.topology_id,
            "component": self.component_id,
            "task": self.id,
            "version": self.version,
            "clock_ms": self.clock_ms,
            "clock": [self._skew_ms, self._clock_end_ms, self._told_ms],
            "received": self._receiver.snapshot(),
            "watermarks": self._watermarks,
            "watermark": self.watermark,
            "sent": self.outbox.snapshot(),
            "records_sent": self._records_sent,
            "streams": {name: [out.emitted, out.transferred, [g.snapshot() for g in out.groupers]] for name, out in self.outs.items()},
            "stats": self.stats.to_dict(),
            "metric_counts": self.context.metric_counts(),
            "user": self.component.snapshot() if stateful(self.component) else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a snapshot; called right after :meth:`start`."""
        self.version, self.clock_ms = state["version"], state["clock_ms"]
        self._skew_ms, self._clock_end_ms, self._told_ms = state.get("clock", (0, _NO_END, 0))  # absent from snapshots of earlier versions
        self._receiver.restore(state["received"])
        self._watermarks, self.watermark = dict(state["watermarks"]), state["watermark"]
        self.outbox.restore(state["sent"])
        self._records_sent = state["records_sent"]
        self.records.clear()  # of open or prepare, which have been called before
        for name, (emitted, transferred, groupers) in state["streams"].items():
            out = self.outs[name]
            out.emitted, out.transferred = emitted, transferred
            for grouper, grouper_state in zip(out.groupers, groupers, strict=True):
                grouper.restore(grouper_state)
        self.stats.restore(state["stats"])
        if stateful(self.component) and state["user"] is not None:
            self.component.restore(state["user"])
        self.context.restore_counts(state.get("metric_counts", {}))  # absent from snapshots of earlier versions

    def unwritable(self, error: BaseException) -> str:
        """Return what to say when the component's state cannot be written because of ``error``."""
        return (
            f"the state that snapshot() of component {self.component_id!r} (task {self.id}) returns cannot be written: {text_of(error)}; without "
            "it a crash of this task goes back to the state before, or to the beginning"
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
            "watermark": self.watermark,
            **self.stats.to_dict(),
            **({"metrics": self.context.read_metrics()} if self.context.metrics else {}),
        }


class BoltTask(Task):
    """A task of a bolt: ordinary, basic, batch or Kafka bolt.

    :ivar poisoned: places (see :class:`PoisonedBatchError`) where a batch bolt has failed, with the exception's text.
    """

    def __init__(self, plan: TopologyPlan, task: int, now_ms: Callable[[], int]) -> None:
        super().__init__(plan, task, now_ms)
        self.poisoned: dict[tuple[int, int], str] = {}
        self._place = (-1, 0)
        self._checkpoint_ns = 0

    def _open(self) -> None:
        self.collector = OutputCollector(self)
        component = self.component
        self._sampled: dict[int, int] = {}
        self._batch: TupleBatch | None = None
        self._batch_ack: np.ndarray | None = None
        self._until_sample = SAMPLE_EVERY
        if isinstance(component, BasicBolt):
            self._basic = BasicOutputCollector(self.collector)
            component.prepare(self.conf, self.context)
            self._execute = self._basic_execute if self.tracking else self._basic_execute_untracked
        elif isinstance(component, KafkaBolt):
            self._execute = self._kafka_execute
        elif isinstance(component, BatchBolt):
            component.prepare(self.conf, self.context, self.collector)
        else:
            component.prepare(self.conf, self.context, self.collector)
            self._execute = component.execute
        has_hook = type(component).on_watermark is not components.BaseBolt.on_watermark
        self._watermark_hook = component.on_watermark if has_hook else None
        self._clock_hook = getattr(component, "on_clock", None)

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
            if record is not None and record[0] is not None:  # without a topic there is nothing to write, as in Storm
                topic, key, value, headers = record
                if not self.send_record(topic, key, value, headers):
                    self.collector.fail(tup)
                    return
        except Exception as error:  # the user's code or data; Storm's KafkaBolt reports and fails
            self.report_error(error)
            if self.conf[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_ON_EXCEPTION]:
                self.dead_tuple(tup.values, text_of(error), "execute", tup.meta.stream)
            self.collector.fail(tup)
        else:
            self.collector.ack(tup)

    def _run_segment(self, source: int, first_seq: int, segment: Segment) -> None:
        if segment.columns is None:  # a hole: the tuple was too large and went to the dead letters
            return
        meta = self._meta(source, segment.stream)
        started = perf_counter_ns()
        if isinstance(self.component, BatchBolt):
            self._run_batch(meta, first_seq, segment)
        else:
            self._run_rows(meta, first_seq, segment)
        spent = perf_counter_ns() - started
        self.stats.executed[f"{meta.component}/{segment.stream}"] += segment.n
        self.stats.execute.add(spent, segment.n)
        self.stats.busy_ns += spent

    def _check(self, frame: DataFrame) -> None:
        super()._check(frame)
        if isinstance(self.component, BatchBolt):
            return
        try:
            for segment in frame.segments:
                if segment.columns:
                    segment.columns = [column_rows(c) for c in segment.columns]
        except UnicodeDecodeError as error:
            msg = f"a column of strings in a frame is no UTF-8: {error.reason}; given: {error.object[:40]!r}"
            raise FrameError(msg) from error

    def _rows(self, meta: StreamMeta, first_seq: int, segment: Segment) -> Iterator[Tuple]:
        columns = [column_rows(c) for c in segment.columns]
        rows = zip(*columns) if columns else repeat((), segment.n)
        if segment.anchors is None or not self.tracking:
            return map(Tuple, rows, repeat(meta))
        return map(Tuple, rows, repeat(meta), self._message_ids(meta.task, first_seq, segment.n, segment.anchors))

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
            except Exception as error:  # the user's code: restart the component, go on with the next tuple
                self._failed_tuple(tup, error)

    def _failed_tuple(self, tup: Tuple, error: Exception) -> None:
        if self.conf[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_ON_EXCEPTION]:
            self.dead_tuple(tup.values, text_of(error), "execute", tup.meta.stream)
        self._restart(error)

    def _run_batch(self, meta: StreamMeta, first_seq: int, segment: Segment) -> None:
        """Let a batch bolt process a segment.

        :raises PoisonedBatchError: it raised, so its state is to be brought back to the one before; see :meth:`_run_carefully`.
        """
        offset, ordinal = self._place
        self._place = place = (self.version, ordinal + 1 if offset == self.version else 0)
        if self.poisoned and (place in self.poisoned or (place > min(self.poisoned) and self._checkpoint_ns <= _CHEAP_NS)):
            failures = self._run_carefully(meta, first_seq, segment)
            if place in self.poisoned and not failures:  # a service that was down for a moment, say
                self.report_error(f"execute_batch raised an exception that did not come again: {self.poisoned[place]}; nothing was lost")
            return
        try:
            self._execute_batch(meta, first_seq, segment)
        except Exception as error:  # the user's code
            raise PoisonedBatchError(self.component_id, place) from error

    def _run_carefully(self, meta: StreamMeta, first_seq: int, segment: Segment) -> int:
        """Let a batch bolt process a segment in which tuples may be that it cannot process; they alone become dead letters.

        A part that fails leaves nothing behind: neither in the component's memory (if it has ``snapshot`` and ``restore``; else its memory is
        lost, as in Storm), nor among what was emitted, sent or acked. Then its halves are tried.

        :returns: how many parts failed.
        """
        before, failures = self._checkpoint(), 0
        parts = [(0, segment.n)]
        while parts:
            start, stop = parts.pop()
            whole = stop - start == segment.n
            part = (
                segment
                if whole
                else Segment(
                    segment.stream,
                    stop - start,
                    [slice_column(c, start, stop) for c in segment.columns],
                    None if segment.anchors is None else segment.anchors[start:stop],
                )
            )
            try:
                self._execute_batch(meta, first_seq + start, part)
            except Exception as error:  # the user's code
                self._roll_back(before)
                failures += 1
                if stop - start > 1 and failures <= _MAX_FAILURES:
                    middle = (start + stop) // 2
                    parts += [(middle, stop), (start, middle)]
                    continue
                self._poison(meta, part, error)
                before = before._replace(**self._sent_so_far())
            else:
                if parts:
                    before = self._checkpoint()
        return failures

    def _poison(self, meta: StreamMeta, part: Segment, error: Exception) -> None:
        self.report_error(error)
        self.snapshot_wanted = True  # another one is likely: going back shall be short
        if self.conf[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_ON_EXCEPTION]:
            for values in _rows_of(TupleBatch(part.columns, meta, part.n)):
                self.dead_tuple(values, text_of(error), "execute_batch", meta.stream)

    def _sent_so_far(self) -> dict[str, Any]:
        return {
            "channels": self.outbox.mark(),
            "records": len(self.records),
            "records_sent": self._records_sent,
            "letters": len(self.letters),
            "errors": len(self.errors),
            "errors_shown": self._errors_shown,
            "watermark": self.watermark,
            "stats": self.stats.to_dict(),
            "streams": pack_state({name: (out.emitted, out.transferred, [g.snapshot() for g in out.groupers]) for name, out in self.outs.items()}),
        }

    def _checkpoint(self) -> _Checkpoint:
        """Return the state, in memory, to roll back to."""
        started = perf_counter_ns()
        found = _Checkpoint(**self._sent_so_far(), counts=self.context.metric_counts(), user=self._user_state())
        self._checkpoint_ns = perf_counter_ns() - started
        return found

    def _user_state(self) -> Callable[[], Any] | None:
        """Return what gives the component's state, as it is now, as often as it is called; None if it has none."""
        if not stateful(self.component):
            return None
        try:
            packed = pack_state(self.component.snapshot())
        except Exception as error:  # the user's code or data: what fails finds an empty memory, as without snapshots
            self.report_error(self.unwritable(error))
            return None
        return lambda: unpack_state(packed)

    def _roll_back(self, to: _Checkpoint) -> None:
        try:
            self.component.cleanup()
        except Exception as error:  # the user's code
            self.report_error(error)
        self.context.keep_counts()
        self.start()
        self.outbox.cut_back(to.channels)
        del self.records[to.records :], self.letters[to.letters :], self.errors[to.errors :]
        self._records_sent, self._errors_shown, self.watermark = to.records_sent, to.errors_shown, to.watermark
        for name, (emitted, transferred, groupers) in unpack_state(to.streams).items():
            out = self.outs[name]
            out.emitted, out.transferred = emitted, transferred
            for grouper, state in zip(out.groupers, groupers, strict=True):
                grouper.restore(state)
        self.stats.restore(to.stats)
        if to.user is not None:
            self.component.restore(to.user())
        self.context.restore_counts(to.counts)

    def _execute_batch(self, meta: StreamMeta, first_seq: int, segment: Segment) -> None:
        n = segment.n
        batch = TupleBatch(segment.columns, meta, n)
        tracked = self.tracking and segment.anchors is not None
        if tracked:
            batch.roots = segment.anchors
            if isinstance(segment.anchors, np.ndarray):
                batch.ids = stream_ids(edge_key(meta.task, self.id), first_seq, n)
            else:
                batch.ids = list(self._message_ids(meta.task, first_seq, n, segment.anchors))
            self._batch_ack = np.zeros(n, dtype=np.int64)
        self._batch = batch if tracked else None
        try:
            self.component.execute_batch(batch)
        except (FailedException, ReportedFailedException) as error:
            if isinstance(error, ReportedFailedException):
                self.report_error(error)
            if tracked:
                self._settle_batch(batch, meta, failed=True)
        else:
            if tracked:
                self._settle_batch(batch, meta, failed=False)
        finally:
            self._batch = self._batch_ack = None

    def batch_tracker(self, parents: np.ndarray):
        """Return what gives the anchors of rows that are emitted as children of the current batch's rows."""
        batch, acks = self._batch, self._batch_ack
        if batch is None:
            return None
        parents = np.asarray(parents, dtype=np.int64)

        def anchors_of(channel, rows: np.ndarray | None, n: int):
            chosen = parents if rows is None else parents[rows]
            if len(chosen) != n:
                msg = f"expected one parent row per emitted row (component {self.component_id!r}); given: {len(chosen)} parents for {n} rows"
                raise ValueError(msg)
            edges = stream_ids(channel.edge_key, channel.seq, n)
            np.bitwise_xor.at(acks, chosen, edges)
            if isinstance(batch.roots, np.ndarray):
                return batch.roots[chosen]
            return [_with_edge(batch.ids[p], e) for p, e in zip(chosen.tolist(), edges.tolist())]

        return anchors_of

    def _settle_batch(self, batch: TupleBatch, meta: StreamMeta, *, failed: bool) -> None:
        key = f"{meta.component}/{meta.stream}"
        counter = self.stats.failed if failed else self.stats.acked
        counter[key] += batch.n
        if isinstance(batch.roots, np.ndarray):
            rows = np.flatnonzero(batch.roots)
            roots, values = batch.roots[rows], (batch.ids ^ self._batch_ack)[rows]
        else:
            pairs = [(r, i ^ a) for ids, a in zip(batch.ids, self._batch_ack.tolist()) if ids for r, i in zip(ids[::2], ids[1::2])]
            roots = np.array([r for r, _ in pairs], dtype=np.int64)
            values = np.array([v for _, v in pairs], dtype=np.int64)
        out = self.outs[ACKER_FAIL_STREAM_ID if failed else ACKER_ACK_STREAM_ID]
        out.emitted += len(roots)
        out.transferred += len(roots)
        which = roots % len(self._ackers)
        for index, task in enumerate(self._ackers):
            part = which == index if len(self._ackers) > 1 else slice(None)
            if n := len(roots[part]):
                columns = [roots[part]] if failed else [roots[part], values[part]]
                channel = self.outbox.channel(task)
                channel.close_rows()
                channel.add_columns(out, n, columns, None)

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
            if isinstance(self.component, BatchBolt):
                self.component.execute_tick(tup)
            elif not isinstance(self.component, KafkaBolt):
                self._execute(tup)
        except Exception as error:  # the user's code
            self._restart(error)
        self.stats.busy_ns += perf_counter_ns() - started
        self.stats.executed["__system/__tick"] += 1

    def _run_control(self, frame: Pulse | Control) -> None:
        """Take a request for a snapshot; bolts take no part in activation."""
        if type(frame) is Control and frame.command == "snapshot":
            self.snapshot_wanted = True

    def _on_watermark(self, watermark: int) -> None:
        if self._watermark_hook is not None:
            started = perf_counter_ns()
            try:
                self._watermark_hook(watermark)
            except Exception as error:  # the user's code
                self._restart(error)
            self.stats.busy_ns += perf_counter_ns() - started

    # -- acking -----------------------------------------------------------------------------------

    def _to_acker(self, stream: str, root: int, row: tuple) -> None:
        out = self.outs[stream]
        task = self._ackers[root % len(self._ackers)]
        channel = self.outbox.channel(task)
        if channel.out is not out:
            channel.open(out)
        channel.rows.append(row)
        out.emitted += 1
        out.transferred += 1

    def _count_settled(self, counter: dict[str, int], tup: Tuple) -> None:
        meta = tup.meta
        counter[f"{meta.component}/{meta.stream}"] += 1
        if self._sampled and (started := self._sampled.pop(id(tup), None)) is not None:
            self.stats.process.add(perf_counter_ns() - started)

    def ack(self, tup: Tuple) -> None:
        ids = tup.message_id
        if ids:
            value = tup.ack_val
            for root, edge in zip(ids[::2], ids[1::2]):
                self._to_acker(ACKER_ACK_STREAM_ID, root, (root, edge ^ value))
        self._count_settled(self.stats.acked, tup)

    def fail(self, tup: Tuple) -> None:
        for root in (tup.message_id or ())[::2]:
            self._to_acker(ACKER_FAIL_STREAM_ID, root, (root,))
        if self.tracking:
            self._count_settled(self.stats.failed, tup)

    def reset_timeout(self, tup: Tuple) -> None:
        for root in (tup.message_id or ())[::2]:
            self._to_acker(ACKER_RESET_TIMEOUT_STREAM_ID, root, (root,))


class _Checkpoint(NamedTuple):
    """The state of a bolt task in memory, between two parts of a batch; see :meth:`BoltTask._roll_back`."""

    channels: dict[int, tuple[int, int]]
    records: int
    records_sent: int
    letters: int
    errors: int
    errors_shown: int
    watermark: int | None
    stats: dict[str, Any]
    streams: bytes
    counts: dict[str, Any]
    user: Callable[[], Any] | None


def _short_bytes(text: str) -> bytes:
    """Return what a header holds of a text; one with half a surrogate pair, for example from JSON, has no UTF-8."""
    return text[:_LETTER_TEXT_BYTES].encode(errors="backslashreplace")[:_LETTER_TEXT_BYTES]


def _byte_lengths(column: Any) -> np.ndarray:
    """Return the bytes of every value of a pyarrow binary or string array."""
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)


def _rows_of(batch: TupleBatch) -> Iterator[tuple[Any, ...]]:
    """Return a batch's rows, with bytes in place of strings that are no UTF-8."""
    return zip(*map(_values_of, batch.columns)) if batch.columns else repeat((), batch.n)


def _values_of(column: Any) -> Sequence[Any]:
    try:
        return column_rows(column)
    except UnicodeDecodeError:
        return (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column).cast(pa.binary()).to_pylist()


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # the user's code
        return f"a {type(value).__name__} that cannot be shown"


def _with_edge(ids: tuple | None, edge: int) -> Any:
    """Return the anchor of a child of a tuple with several roots: each root with the child's edge."""
    if ids is None:
        return 0
    return [x for root in ids[::2] for x in (root, edge)]
