"""Tasks: each runs one instance of a component, and knows what it has received and sent.

A task processes the records of its inbox in offset order, on one thread. What it does depends only on its state and on
these records, so processing the same records again gives the same tuples with the same numbers; see
docs/internals/architecture.md.
"""

from __future__ import annotations

import copy
import re
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dskype.topology.components import Spout
from dskype.topology.config import RECORD_BYTES, Config
from dskype.topology.context import TopologyContext
from dskype.topology.core.channels import FrameLimits, Outbox, OutStream
from dskype.topology.core.frames import WAKE, Control, DataFrame, OutRecord, OutRecords, Pulse, Segment, Tick, decode_frame, segment_sizes
from dskype.topology.core.receiver import Receiver
from dskype.topology.core.redaction import redact_text
from dskype.topology.core.stats import TaskStats
from dskype.topology.core.system_emits import SystemEmits
from dskype.topology.core.values import FrameError, pack_state
from dskype.topology.core.watermarks import takes_watermarks, watermark_sources
from dskype.topology.errors import DeadLetter, IllegalArgumentException, code_of, message_of, shorten, text_of
from dskype.topology.groupings import DirectGrouping
from dskype.topology.hooks import TaskHook
from dskype.topology.model import stateful
from dskype.topology.named_classes import load_class
from dskype.topology.planning.acker_streams import ACKER_COMPONENT_ID
from dskype.topology.planning.plan import TopologyPlan, dead_letters_topic, inbox_topic
from dskype.topology.routing.groupers import build_grouper, grouping_seed
from dskype.topology.tuples import InRecord, StreamMeta

__all__ = ["Task"]

_LETTER_KEY_BYTES = _LETTER_TEXT_BYTES = 4096
"""Most bytes of a key, and of the reason, that a dead letter holds."""
_ERROR_CHARS = 16_384
"""Most characters of an error's text that are reported."""
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NO_END, _FIRST_UNTOLD_MS, _UNTOLD_MS = 1 << 62, 60_000, 5000
"""Limits for a record's timestamp beyond the last time of the topology's clock; a higher timestamp comes from a clock that was set. Before the first
record of the topology's clock there is no limit; after it ``_FIRST_UNTOLD_MS`` applies, and later ``_UNTOLD_MS`` or twice the interval of such records."""


class Task:
    """Base of spout and bolt tasks.

    :param plan: the topology plan.
    :param task: the task id.
    :param now_ms: wall clock, for statistics and error times only.
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
        self.context.broker_ms = lambda: self._told_ms - self._skew_ms
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
        self._topics: set[str] = set()  # topics with a checked name
        self._records_sent = 0
        # A topology id ends with its number and start time, so a later topology of the same name has other record ids.
        self._record_id = f"{plan.topology_id.removeprefix(plan.name).lstrip('-')}-{task}-"
        self._receiver = Receiver(self.stats, self.report_error)
        self._metas: dict[tuple[int, str], StreamMeta] = {}
        self._watermark_sources = self._sources_of(component)
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
        self._watermark_takers = plan.once("watermark takers", component, self._takers)
        self._ackers = plan.component_tasks(ACKER_COMPONENT_ID) if self.tracking else []
        self.system = SystemEmits(self)
        self.observed = self.system.has_events or bool(self.conf[Config.TOPOLOGY_DEBUG])
        self.component: Any = None
        self.collector: Any = None

    def _inbox_of(self, task: int) -> tuple[str, int]:
        return inbox_topic(self.plan.name, self.plan.task_component[task]), self.plan.task_index(task)

    def _sources_of(self, component: str) -> list[str]:
        return self.plan.once("watermark sources", component, lambda: watermark_sources(self.plan.topology, component))

    def _takers(self) -> list[int]:
        """Return the tasks that get this component's watermarks."""
        plan, component = self.plan, self.component_id
        following = {t for o in self.outs.values() if not o.name.startswith("__") for t in o.regular_tasks | o.direct_tasks}
        takers = {
            c
            for c in {plan.task_component[t] for t in following}
            if component in self._sources_of(c) and takes_watermarks(plan.topology, c, plan.component_conf)
        }
        return sorted(t for t in following if plan.task_component[t] in takers)

    def _subscriptions(self) -> dict[str, tuple[list[tuple[str, Any]], frozenset[int], frozenset[int]]]:
        """Return, for each of this component's streams, (component, grouping) of its subscriptions but the direct ones, their tasks, and the tasks of the direct ones."""
        found: dict[str, tuple[list[tuple[str, Any]], set[int], set[int]]] = {name: ([], set(), set()) for name in self.spec.outputs}
        for consumer, spec in sorted(self.plan.topology.components.items()):
            for (source, stream), grouping in spec.inputs.items():
                if source != self.component_id or stream not in found:
                    continue
                groupings, regular, direct = found[stream]
                if isinstance(grouping, DirectGrouping):
                    direct.update(self.plan.component_tasks(consumer))
                else:
                    groupings.append((consumer, grouping))
                    regular.update(self.plan.component_tasks(consumer))
        return {name: (groupings, frozenset(regular), frozenset(direct)) for name, (groupings, regular, direct) in found.items()}

    def _out_stream(self, name: str, info) -> OutStream:
        groupings, regular, direct = self.plan.once("subscriptions", self.component_id, self._subscriptions)[name]
        groupers = [
            build_grouper(
                grouping,
                producer_task=self.id,
                stream=(self.component_id, name),
                out_fields=info.fields,
                target_tasks=self.plan.component_tasks(consumer),
                local_tasks=self.plan.worker_tasks(self.plan.worker_of(self.id)),
                seed=grouping_seed(self.plan.topology_id, self.id, consumer, name),
                context=self.context,
            )
            for consumer, grouping in groupings
        ]
        return OutStream(name, info.fields, groupers, regular, direct)

    # -- receiving --------------------------------------------------------------------------------

    def process(self, records: Iterable[InRecord]) -> None:
        """Process inbox records in offset order, none of them below ``version``."""
        for record in records:
            now_ms = record.timestamp_ms + self._skew_ms
            if self.clock_ms < now_ms <= self._clock_end_ms:
                self.clock_ms = now_ms
            self._run_segments(self._receiver.advance_time(record.timestamp_ms))
            self._process_record(record)
            self.version = record.offset + 1

    def _process_record(self, record: InRecord) -> None:
        try:
            frame = decode_frame(record.value)
            if type(frame) is DataFrame:
                self._check(frame)
        except FrameError as error:
            self._receiver.note_damaged(record.value)
            self.dead_letter(record.value, DeadLetter(str(error), "invalid-frame"), "decode", record)
            return
        self.stats.frames += 1
        self.stats.in_bytes += len(record.value)
        if type(frame) is DataFrame:
            self._count_streams(frame, record.value)
            self._run_segments(self._receiver.accept(frame, record.value))
        else:
            if type(frame) is not Control or frame.command != WAKE:
                self._set_clock(frame.now_ms, record.timestamp_ms)
            if type(frame) is Tick:
                self._run_tick(frame)
            else:
                self._run_control(frame)

    def _set_clock(self, now_ms: int, timestamp_ms: int) -> None:
        """Set the task's time from a record of the topology's clock.

        The clocks that give records their timestamps may be set; the topology's clock is not. So its records tell how far the timestamps are off, and
        from which time on to ignore timestamps until its next record.
        """
        self._skew_ms = now_ms - timestamp_ms
        self._clock_end_ms = now_ms + (max(_UNTOLD_MS, 2 * (now_ms - self._told_ms)) if self._told_ms else _FIRST_UNTOLD_MS)
        self._told_ms = now_ms
        if now_ms > self.clock_ms:
            self.clock_ms = now_ms

    def _count_streams(self, frame: DataFrame, value: bytes) -> None:
        """Count a frame and its bytes for the streams of its tuples; watermarks are included in their bytes."""
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
                if segment.columns is not None and (missing := meta.fields.size() - len(segment.columns)):
                    if 0 < missing <= self.plan.topology.components[meta.component].outputs[segment.stream].later:
                        segment.columns += [[None] * segment.n] * missing
                        continue
                    msg = (
                        f"a frame of stream {segment.stream!r} of component {meta.component!r} has the wrong arity; "
                        f"expected {meta.fields.size()} columns; given: {len(segment.columns)}"
                    )
                    raise FrameError(msg)

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
        except KeyError:  # some of the known watermarks are not from upstream tasks
            return
        self.advance_watermark(low)

    def advance_watermark(self, watermark: int) -> None:
        """Raise the task's own watermark; it is sent downstream at the end of the batch."""
        if self.watermark is None or watermark > self.watermark:
            self.watermark = watermark
            self._on_watermark(watermark)

    def _on_watermark(self, watermark: int) -> None:
        """Handle a new watermark; overridden by bolt tasks."""

    # -- sending ----------------------------------------------------------------------------------

    def _send_to_acker(self, stream: str, root: int, row: tuple) -> None:
        """Send a row to the acker task of a root."""
        out, ackers = self.outs[stream], self._ackers
        task = ackers[root % len(ackers)] if len(ackers) > 1 else ackers[0]
        channel = self.outbox.channels.get(task) or self.outbox.channel(task)
        if channel.out is not out:
            channel.open(out)
        channel.rows.append(row)
        out.emitted += 1
        out.transferred += 1

    def flush(self) -> list[OutRecord | OutRecords]:
        """Return everything that the task has emitted since the last flush, as records for the sink."""
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
        """Return the dead letters since the last call; none while emission is suppressed."""
        letters, self.letters = self.letters, []
        return [] if self.suppressed else letters

    def send_record(self, topic: str, key, value, headers=(), partition=None) -> bool:
        """Send a record; return False if it is too large and became a dead letter."""
        self._check_topic(topic)
        if partition is not None and (type(partition) is not int or partition < 0):
            raise self._invalid_record(topic, "partition", partition, "a number from 0, or None")
        key, value = self._bytes_of(topic, "key", key), self._bytes_of(topic, "value", value)
        headers = list(headers)
        size = len(key or b"") + len(value or b"")
        for header in headers:
            if type(header) not in (tuple, list) or len(header) != 2 or type(header[0]) is not str or type(header[1]) not in (bytes, type(None)):
                raise self._invalid_record(topic, "header", header, "(name, bytes)")
            size += len(header[0].encode()) + len(header[1] or b"")
        if size > self._record_bytes:
            self._refuse_record(topic, key, value, size)
            return False
        number = self._records_sent
        self._records_sent += 1
        self.records.append(OutRecord(topic, partition, key, value, [("record-id", f"{self._record_id}{number}".encode()), *headers]))
        return True

    def send_records(self, topic: str, keys, values, headers) -> int:
        """Send many records given as columns; return how many were sent. Those that are too large become dead letters."""
        self._check_topic(topic)
        columns = [values, *(() if keys is None else (keys,)), *(column for _, column in headers)]
        if sum(column.nbytes for column in columns) > self._record_bytes:  # otherwise no record can be too large
            keys, values, headers = self._refuse_large(topic, keys, values, headers)
        n = len(values)
        if n:
            numbers = pa.array(np.arange(self._records_sent, self._records_sent + n)).cast(pa.string())
            self._records_sent += n
            ids = pc.binary_join_element_wise(self._record_id, numbers, "")
            self.records.append(OutRecords(topic, keys, values, [("record-id", ids), *headers]))
        return n

    def _refuse_large(self, topic: str, keys, values, headers) -> tuple[Any, Any, list[tuple[str, Any]]]:
        """Return the columns without records that are too large, which become dead letters."""
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
                    f"a record cannot be sent: invalid name of a topic (component {self.component_id!r}); given: {topic!r:.300}; "
                    "legal: 1 to 249 of the characters a-z A-Z 0-9 . _ -"
                )
                raise IllegalArgumentException(msg)
            self._topics.add(topic)

    def _invalid_record(self, topic: str, part: str, given: Any, expected: str) -> TypeError:
        return TypeError(
            f"a record for topic {topic!r} has a {part} that cannot be sent (component {self.component_id!r}); given: {given!r:.300}; expected {expected}"
        )

    def _bytes_of(self, topic: str, part: str, value: Any) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise self._invalid_record(topic, part, value, "bytes or None")

    # -- errors and dead letters ------------------------------------------------------------------

    def report_error(self, error: BaseException | str) -> None:
        """Count an error, and report it unless the interval has had ``topology.max.error.report.per.interval`` already."""
        self.stats.errors += 1
        now = self._wall_ms()
        if now - self._errors_since_ms >= self.conf[Config.TOPOLOGY_ERROR_THROTTLE_INTERVAL_SECS] * 1000:
            self._errors_since_ms, self._errors_shown = now, 0
        if self.suppressed or self._errors_shown >= self.conf[Config.TOPOLOGY_MAX_ERROR_REPORT_PER_INTERVAL]:
            return
        self._errors_shown += 1
        text = error if isinstance(error, str) else "".join(traceback.format_exception(error)).rstrip()
        text = shorten(redact_text(text), _ERROR_CHARS)  # in this order: what is left out may be the name of a secret
        self.errors.append({"v": 1, "kind": "error", "component": self.component_id, "task": self.id, "time_ms": now, "error": text})

    def dead_letter(self, value: bytes | None, error: Exception, stage: str, record: InRecord) -> None:
        """Send an unusable record to the dead letters, and count it."""
        self.stats.reject(stage, code_of(error))
        self.report_error(f"{stage}: {shorten(redact_text(_reason(error)), _ERROR_CHARS)} (record {record.topic}/{record.partition} offset {record.offset})")
        self._letter(record.key, value, None if value is None else len(value), error, stage, record.topic, record.partition, record.offset)

    def _letter(
        self,
        key: bytes | None,
        value: bytes | None,
        size: int | None,
        error: Exception,
        stage: str,
        topic: str,
        partition: int,
        offset: int,
        *more: tuple[str, str],
    ) -> None:
        """Write a dead letter, with key and value cut to a length that fits in its topic.

        :param size: original size of the value in bytes.
        :param more: further headers.
        """
        headers = [
            ("error", _short_bytes(redact_text(_reason(error)))),
            ("code", code_of(error).encode()),
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
        if kept_key != key or (size is not None and len(kept) < size):
            headers.append(("truncated", b"true"))
        self.letters.append(OutRecord(dead_letters_topic(self.plan.name), None, kept_key, kept, headers))

    def dead_tuple(self, values: Any, error: Exception, stage: str, stream: str) -> None:
        """Send a tuple to the dead letters, its values as msgpack (or as text, if they cannot be packed), and count it."""
        self.stats.reject(stage, code_of(error))
        try:
            data = pack_state(list(values))
        except (TypeError, ValueError, OverflowError, RecursionError):
            data = _repr(values).encode(errors="backslashreplace")
        self._letter(None, data, len(data), error, stage, self.inbox, self.index, self.version, ("stream", stream))

    def _refuse(self, stream: str, row: Any, error: Exception) -> None:
        self.report_error(f"a tuple of stream {stream!r} cannot be sent: {_reason(error)}")
        self.dead_tuple(row, error, "emit", stream)

    def _refuse_record(self, topic: str, key: bytes | None, value: bytes | None, size: int) -> None:
        error = DeadLetter(f"the record has {size} bytes; expected at most {self._record_bytes}; hint: topology.emulator.record.max.bytes", "long-record")
        self.stats.reject("send", error.code)
        self.report_error(f"a record for topic {topic!r} cannot be sent: {error.reason}")
        self._letter(key, value, None if value is None else len(value), error, "send", self.inbox, self.index, self.version, ("target", topic))

    # -- life of the component --------------------------------------------------------------------

    def start(self) -> None:
        """Copy the component, and open or prepare the copy."""
        self.component = copy.deepcopy(self.spec.obj)
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
            **self.system.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a snapshot; called right after :meth:`start`."""
        self.version, self.clock_ms = state["version"], state["clock_ms"]
        self._skew_ms, self._clock_end_ms, self._told_ms = state.get("clock", (0, _NO_END, 0))  # absent from snapshots of earlier versions
        self._receiver.restore(state["received"])
        self._watermarks, self.watermark = dict(state["watermarks"]), state["watermark"]
        self.outbox.restore(state["sent"])
        self._records_sent = state["records_sent"]
        self.records.clear()  # sent by open or prepare
        for name, (emitted, transferred, groupers) in state["streams"].items():
            out = self.outs[name]
            out.emitted, out.transferred = emitted, transferred
            for grouper, grouper_state in zip(out.groupers, groupers, strict=True):
                grouper.restore(grouper_state)
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
            "watermark": self.watermark,
            **self.stats.to_dict(),
            **({"metrics": self.context.read_metrics(reset=not self.system.has_consumers)} if self.context.metrics else {}),
        }


def _reason(error: Exception) -> str:
    """Return why a record or tuple is unusable."""
    return message_of(error) if isinstance(error, DeadLetter) else text_of(error)


def _short_bytes(text: str) -> bytes:
    """Return a text as a header's bytes, cut to length; half a surrogate pair, which JSON allows and UTF-8 does not, is escaped."""
    return text[:_LETTER_TEXT_BYTES].encode(errors="backslashreplace")[:_LETTER_TEXT_BYTES]


def _byte_lengths(column: Any) -> np.ndarray:
    """Return the length in bytes of every value of a pyarrow binary or string array."""
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # the user's code
        return f"a {type(value).__name__} that cannot be shown"
