"""Tasks of bolts: they execute single tuples or whole segments, ack, handle ticks, and isolate poison tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.topology import components
from dskype.topology.components import BasicBolt, BatchBolt, KafkaBolt
from dskype.topology.config import Config
from dskype.topology.core._kernels import edge_key, stream_ids
from dskype.topology.core.collectors import BasicOutputCollector, OutputCollector
from dskype.topology.core.frames import Control, DataFrame, Pulse, Segment, Tick
from dskype.topology.core.observed import BoltHooks, ObservedOutputCollector
from dskype.topology.core.stats import SAMPLE_EVERY
from dskype.topology.core.task import Task
from dskype.topology.core.values import FrameError, pack_state, slice_column, unpack_state
from dskype.topology.errors import FailedException, ReportedFailedException, TopologyError
from dskype.topology.model import stateful
from dskype.topology.planning.acker_streams import ACKER_ACK_STREAM_ID, ACKER_FAIL_STREAM_ID, ACKER_RESET_TIMEOUT_STREAM_ID
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.tuples import StreamMeta, Tuple, TupleBatch, column_to_list, tick_tuple

__all__ = ["BoltTask", "PoisonedBatchError"]

_MAX_FAILURES = 64
"""Number of failed parts of a batch after which a failing part becomes dead letters as a whole: a service that it needs may be down."""
_CHEAP_NS = 50_000_000
"""Once a batch has failed, a checkpoint is taken before every batch unless it takes longer than this."""


class PoisonedBatchError(TopologyError):
    """A batch bolt could not process a segment, and its state may be inconsistent.

    :param place: (offset of the record, number of the segment within it), for the task that continues from an earlier state.
    """

    def __init__(self, component: str, place: tuple[int, int]) -> None:
        super().__init__(f"component {component!r} could not process segment {place[1]} of its record at offset {place[0]}")
        self.place = place


class BoltTask(Task):
    """A task of an ordinary, basic, batch or Kafka bolt.

    :ivar poisoned: place where a batch bolt has failed (see :class:`PoisonedBatchError`) -> text of the exception.
    """

    def __init__(self, plan: TopologyPlan, task: int, now_ms: Callable[[], int]) -> None:
        super().__init__(plan, task, now_ms)
        self.poisoned: dict[tuple[int, int], str] = {}
        self._place = (-1, 0)
        self._checkpoint_ns = 0

    def _open(self) -> None:
        self._hooks: BoltHooks | None = None
        self._opened = False
        self.context.on_hook = self._call_hooks
        self.collector = ObservedOutputCollector(self) if self.observed else OutputCollector(self)
        if self.context.get_hooks():
            self._call_hooks()
        component = self.component
        self._sampled: dict[int, int] = {}
        self._batch: TupleBatch | None = None
        self._batch_ack: np.ndarray | None = None
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
        if isinstance(component, BatchBolt):
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
                if not self.send_record(topic, key, value, headers):
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
        meta = self._meta(source, segment.stream)
        started = perf_counter_ns()
        if isinstance(self.component, BatchBolt):
            self._run_batch(meta, first_seq, segment)
        else:
            self._run_rows(meta, first_seq, segment)
        spent = perf_counter_ns() - started
        self.stats.executed[meta.counter] += segment.n
        self.stats.execute.record(spent, segment.n)
        self.stats.busy_ns += spent

    def _check(self, frame: DataFrame) -> None:
        super()._check(frame)
        if isinstance(self.component, BatchBolt):
            return
        try:
            for segment in frame.segments:
                if segment.columns:
                    segment.columns = [column_to_list(c) for c in segment.columns]
        except UnicodeDecodeError as error:
            msg = f"a column of strings in a frame is not UTF-8: {error.reason}; given: {error.object[:40]!r}"
            raise FrameError(msg) from error

    def _rows(self, meta: StreamMeta, first_seq: int, segment: Segment) -> Iterator[Tuple]:
        columns = [column_to_list(c) for c in segment.columns]
        rows = zip(*columns) if columns else repeat((), segment.n)
        if segment.anchors is None or not self.tracking:
            return map(Tuple, rows, repeat(meta))
        return map(Tuple, rows, repeat(meta), self._message_ids(meta.task, first_seq, segment.n, segment.anchors))

    def _message_ids(self, source: int, first_seq: int, n: int, anchors: Any) -> Iterator[tuple | None]:
        edges = stream_ids(edge_key(source, self.id), first_seq, n).tolist()
        if isinstance(anchors, np.ndarray) and anchors.all():
            return zip(anchors.tolist(), edges)
        return self._mixed_ids(anchors, edges)

    @staticmethod
    def _mixed_ids(anchors: Any, edges: list[int]) -> Iterator[tuple | None]:
        """Return the ids of tuples of which some are untracked, or have several roots."""
        for root, edge in zip(anchors.tolist() if isinstance(anchors, np.ndarray) else anchors, edges):
            if not root:
                yield None
            elif type(root) is int:
                yield (root, edge)
            else:
                yield tuple(root)

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
                    self.dead_tuple(tup.values, error, "execute", tup.meta.stream)
                self._restart(error)

    def _run_batch(self, meta: StreamMeta, first_seq: int, segment: Segment) -> None:
        """Let a batch bolt process a segment.

        :raises PoisonedBatchError: the bolt raised; the executor restores an earlier state and runs :meth:`_run_carefully`.
        """
        offset, ordinal = self._place
        self._place = place = (self.version, ordinal + 1 if offset == self.version else 0)
        if self.poisoned and (place in self.poisoned or (place > min(self.poisoned) and self._checkpoint_ns <= _CHEAP_NS)):
            failures = self._run_carefully(meta, first_seq, segment)
            if place in self.poisoned and not failures:  # for example, a service was briefly down
                self.report_error(f"execute_batch raised an exception that did not occur again: {self.poisoned[place]}; nothing was lost")
            return
        try:
            self._execute_batch(meta, first_seq, segment)
        except Exception as error:  # the user's code
            raise PoisonedBatchError(self.component_id, place) from error

    def _run_carefully(self, meta: StreamMeta, first_seq: int, segment: Segment) -> int:
        """Let a batch bolt process a segment that may hold poison tuples; only these become dead letters.

        A part that fails is rolled back: the component's state (if it has ``snapshot`` and ``restore``; otherwise the state is lost, as in
        Storm) and everything that was emitted, sent or acked. Then its two halves are run.

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
        self.snapshot_wanted = True  # another failure is likely: make the next rollback short
        if self.conf[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_ON_EXCEPTION]:
            for values in _rows_of(TupleBatch(part.columns, meta, part.n)):
                self.dead_tuple(values, error, "execute_batch", meta.stream)

    def _sent_so_far(self) -> dict[str, Any]:
        return {
            "channels": self.outbox.checkpoint(),
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
        """Return the present state, for :meth:`_roll_back`."""
        started = perf_counter_ns()
        checkpoint = _Checkpoint(**self._sent_so_far(), counts=self.context.metric_counts(), user=self._packed_user_state())
        self._checkpoint_ns = perf_counter_ns() - started
        return checkpoint

    def _packed_user_state(self) -> bytes | None:
        """Return the component's state as bytes; None if it keeps none, or if it cannot be written."""
        if not stateful(self.component):
            return None
        try:
            return pack_state(self.component.snapshot())
        except Exception as error:  # the user's code or data: a rollback then leaves an empty state, as without snapshots
            self.report_error(self.unwritable(error))
            return None

    def _roll_back(self, to: _Checkpoint) -> None:
        self.close()
        self.context.drop_component_metrics()
        self.start()
        self.outbox.roll_back(to.channels)
        del self.records[to.records :], self.letters[to.letters :], self.errors[to.errors :]
        self._records_sent, self._errors_shown, self.watermark = to.records_sent, to.errors_shown, to.watermark
        for name, (emitted, transferred, groupers) in unpack_state(to.streams).items():
            out = self.outs[name]
            out.emitted, out.transferred = emitted, transferred
            for grouper, state in zip(out.groupers, groupers, strict=True):
                grouper.restore(state)
        self.stats.restore(to.stats)
        if to.user is not None:
            self.component.restore(unpack_state(to.user))
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
        """Return a function that gives the anchors of rows emitted as children of the current batch's rows."""
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
        counter = self.stats.failed if failed else self.stats.acked
        counter[meta.counter] += batch.n
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
                self._send_to_acker(ACKER_ACK_STREAM_ID, root, (root, edge ^ value))
            else:
                for root, edge in zip(ids[::2], ids[1::2]):
                    self._send_to_acker(ACKER_ACK_STREAM_ID, root, (root, edge ^ value))
        if self.tracking:
            self._count_settled(self.stats.acked, tup)
        if self._hooks is not None:
            self._hooks.acked(tup)

    def fail(self, tup: Tuple) -> None:
        """Tell the ackers of a tuple's roots that it has failed."""
        for root in (tup.message_id or ())[::2]:
            self._send_to_acker(ACKER_FAIL_STREAM_ID, root, (root,))
        if self.tracking:
            self._count_settled(self.stats.failed, tup)
        if self._hooks is not None:
            self._hooks.failed(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the message timeout of a tuple's trees."""
        for root in (tup.message_id or ())[::2]:
            self._send_to_acker(ACKER_RESET_TIMEOUT_STREAM_ID, root, (root,))


class _Checkpoint(NamedTuple):
    """The state of a bolt task between two parts of a batch; see :meth:`BoltTask._roll_back`."""

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
    user: bytes | None


def _rows_of(batch: TupleBatch) -> Iterator[tuple[Any, ...]]:
    """Return a batch's rows, with bytes in place of strings that are not UTF-8."""
    return zip(*map(_values_of, batch.columns)) if batch.columns else repeat((), batch.n)


def _values_of(column: Any) -> Sequence[Any]:
    try:
        return column_to_list(column)
    except UnicodeDecodeError:
        return (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column).cast(pa.binary()).to_pylist()


def _with_edge(ids: tuple | None, edge: int) -> Any:
    """Return the anchor of a child whose parent has several roots: each root with the child's edge."""
    if ids is None:
        return 0
    return [x for root in ids[::2] for x in (root, edge)]
