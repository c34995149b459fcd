"""The collectors through which components emit, ack and fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dskype.topology.core._kernels import stream_ids
from dskype.topology.core.channels import Channel, OutStream
from dskype.topology.core.values import take_column
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.groupings import RowTasks
from dskype.topology.tuples import Tuple, column_to_list

__all__ = ["BasicOutputCollector", "OutputCollector", "SpoutOutputCollector"]

_NO_ANCHOR = 0


class _Collector:
    """Base of all collectors: checks emits, chooses targets, puts rows on channels."""

    _order: ClassVar[str]
    """How ``emit`` is called."""

    def __init__(self, task) -> None:
        self._task = task
        self._outs: dict[str, OutStream] = task.outs
        self._outbox = task.outbox
        self._channels: dict[int, Channel] = task.outbox.channels
        self._tracking: bool = task.tracking
        self.emits = 0

    def report_error(self, error: BaseException | str) -> None:
        """Report an error of this task without stopping it; ``dskype get-errors`` shows it."""
        self._task.report_error(error)

    def emit_watermark(self, watermark: int) -> None:
        """Promise that nothing older than ``watermark`` will follow from this task.

        It is sent to every task downstream at the end of the batch, behind everything emitted so far. Bolts forward the
        minimum over their sources automatically; only spouts need to call this.
        """
        self._task.advance_watermark(watermark)

    def hold_watermarks(self, tasks: Sequence[int]) -> None:
        """Send some tasks downstream no watermark until :meth:`pass_watermarks`, because the component holds back tuples for them.

        A component that continues from a snapshot with such tuples calls it in ``restore``.
        """
        self._task.watermarks.hold(tasks)

    def pass_watermarks(self, tasks: Sequence[int]) -> None:
        """Send some tasks downstream the present watermark, behind everything that was emitted to them so far, and hold it back no longer."""
        self._task.watermarks.let_go(self._outbox, tasks)

    def send_record(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
        *,
        numbered: bool = True,
    ) -> None:
        """Write a record to an external Kafka topic with this batch; at least once, in order.

        The header ``record-id`` (the topology's start, task id and a number) is equal for repetitions of a record, so
        that consumers can drop them.

        :param numbered: False: send no such header, because the record does not follow from the inbox, such as the result of work in the background;
            consumers recognise repetitions by themselves.
        """
        self._task.records.send(topic, key, value, headers, partition, numbered=numbered)

    def send_records(self, topic: str, keys: Any, values: Any, headers: Sequence[tuple[str, Any]] = ()) -> int:
        """Write many records to an external Kafka topic, given as columns; otherwise like :meth:`send_record`.

        :param keys: pyarrow binary or string array, one per record; None: no keys.
        :param values: pyarrow binary or string array.
        :param headers: (name, pyarrow binary or string array) pairs.
        :returns: how many were sent; records that are too large become dead letters.
        """
        lengths = {len(column) for column in (values, *(() if keys is None else (keys,)), *(column for _, column in headers))}
        if len(lengths) > 1:
            msg = f"the columns of records differ in length (component {self._task.component_id!r}, topic {topic!r}); given: {sorted(lengths)}"
            raise IllegalArgumentException(msg)
        return self._task.records.send_columns(topic, keys, values, headers)

    # -- checks ---------------------------------------------------------------------------------

    def _out(self, stream: str) -> OutStream:
        out = self._outs.get(stream) if isinstance(stream, str) else None
        if out is None:
            raise self._unknown_stream(stream)
        return out

    def _unknown_stream(self, stream: Any) -> IllegalArgumentException:
        names = sorted(name for name in self._outs if not name.startswith("__"))
        order = "" if isinstance(stream, str) else f"; hint: the order is {self._order}, which differs from Java's"
        return IllegalArgumentException(
            f"Unknown stream ID: {stream} (component {self._task.component_id!r}); given: {stream!r}; "
            f"legal: {', '.join(names) or 'none, the component declares no stream'}{order}"
        )

    def _wrong_arity(self, out: OutStream, values: Sequence[Any]) -> IllegalArgumentException:
        return IllegalArgumentException(
            f"Tuple created with wrong number of fields. Expected {out.arity} fields but got {len(values)} fields "
            f"(component {self._task.component_id!r}, stream {out.name!r}, fields {list(out.fields)}); given: {values!r:.200}"
        )

    def _row(self, out: OutStream, values: Any) -> tuple:
        if isinstance(values, (str, bytes)) or not isinstance(values, (list, tuple)):
            msg = f"expected a list or tuple of values, one per field of stream {out.name!r} (component {self._task.component_id!r}); given: {values!r:.200}"
            raise TypeError(msg)
        return tuple(values)

    def _targets(self, out: OutStream, row: tuple) -> list[int]:
        if len(row) != out.arity:
            raise self._wrong_arity(out, row)
        if out.direct_tasks:
            msg = f"Cannot do regular emit to direct stream (component {self._task.component_id!r}, stream {out.name!r}); hint: use emit_direct"
            raise IllegalArgumentException(msg)
        return out.choose(row)

    def _direct_target(self, task: int, out: OutStream, row: tuple) -> list[int]:
        if len(row) != out.arity:
            raise self._wrong_arity(out, row)
        if task in out.direct_tasks:
            return [task]
        if task in out.regular_tasks:
            msg = (
                f"Cannot emitDirect to a task expecting a regular grouping (component {self._task.component_id!r}, "
                f"stream {out.name!r}); given: task {task}; legal: {sorted(out.direct_tasks) or 'none'}"
            )
            raise IllegalArgumentException(msg)
        return []

    # -- rows and columns on channels -----------------------------------------------------------

    def put(self, out: OutStream, targets: Sequence[int], row: tuple) -> None:
        """Put an untracked row on the channels to some tasks, unchecked."""
        channels = self._channels
        for task in targets:
            channel = channels.get(task) or self._outbox.channel(task)
            if channel.out is not out:
                channel.open(out)
            channel.rows.append(row)
            if channel.anchors is not None:
                channel.anchors.append(_NO_ANCHOR)
        out.transferred += len(targets)

    def _put_tree(self, out: OutStream, targets: Sequence[int], row: tuple, root: int) -> int:
        """Put a row of one tree on the channels to some tasks; return the XOR of the edge ids, which follow from the tuples' numbers."""
        channels, total = self._channels, 0
        for task in targets:
            channel = channels.get(task) or self._outbox.channel(task)
            if channel.out is not out:
                channel.open(out)
            rows, edges = channel.rows, channel.edges
            number = len(rows)
            total ^= edges[number] if number < len(edges) else channel.edge_id()
            if channel.anchors is None:
                channel.anchors = [_NO_ANCHOR] * number
            rows.append(row)
            channel.anchors.append(root)
        out.transferred += len(targets)
        return total

    def _put_tracked(self, out: OutStream, task: int, row: tuple, anchor: list[int]) -> None:
        """Put a row of several trees on a channel, with its anchor ``[root, edge id, ...]``."""
        channel = self._channels.get(task) or self._outbox.channel(task)
        if channel.out is not out:
            channel.open(out)
        if channel.anchors is None:
            channel.anchors = [_NO_ANCHOR] * len(channel.rows)
        channel.rows.append(row)
        channel.anchors.append(anchor)
        out.transferred += 1

    def _next_edge(self, task: int, out: OutStream) -> int:
        channel = self._channels.get(task) or self._outbox.channel(task)
        if channel.out is not out:
            channel.open(out)
        return channel.edge_id()

    def _columns(self, out: OutStream, columns: Mapping[str, Any] | Sequence[Any]) -> tuple[list[Any], int]:
        if isinstance(columns, Mapping):
            if set(columns) != set(out.fields):
                msg = (
                    f"the columns differ from the fields of stream {out.name!r} (component {self._task.component_id!r}); "
                    f"expected {list(out.fields)}; given: {sorted(map(str, columns))}"
                )
                raise IllegalArgumentException(msg)
            columns = [columns[field] for field in out.fields]
        columns = list(columns)
        if len(columns) != out.arity:
            raise self._wrong_arity(out, columns)
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            msg = (
                f"the columns of a batch have different lengths (component {self._task.component_id!r}, stream {out.name!r}); "
                f"given: {[len(c) for c in columns]}"
            )
            raise IllegalArgumentException(msg)
        return columns, lengths.pop() if lengths else 0

    def _put_columns(self, out: OutStream, columns: list[Any], n: int, tracker) -> None:
        """Route a batch of rows; ``tracker(channel, rows, n)`` returns the anchors of the ``n`` rows sent on a channel."""
        if out.direct_tasks:
            self._targets(out, tuple(columns))
        outbox = self._outbox
        for grouper in out.groupers:
            chosen = grouper.choose_batch(columns, n)
            if chosen is None:
                for task in grouper.all_tasks:
                    channel = outbox.channel(task)
                    channel.close_rows()
                    channel.add_columns(out, n, columns, tracker(channel, None, n) if tracker else None)
                out.transferred += n * len(grouper.all_tasks)
                continue
            rows = None
            if isinstance(chosen, RowTasks):  # from a custom grouping: several or no tasks per row
                rows, chosen = chosen
            out.transferred += len(chosen)
            if not len(chosen):
                continue
            first = int(chosen[0])
            if rows is None and (chosen == first).all():
                channel = outbox.channel(first)
                channel.close_rows()
                channel.add_columns(out, n, columns, tracker(channel, None, n) if tracker else None)
                continue
            order = np.argsort(chosen, kind="stable")
            bounds = np.flatnonzero(np.diff(chosen[order])) + 1
            for part in np.split(order, bounds):
                channel = outbox.channel(int(chosen[part[0]]))
                channel.close_rows()
                index = part if rows is None else rows[part]
                channel.add_columns(out, len(part), [take_column(c, index) for c in columns], tracker(channel, index, len(part)) if tracker else None)


class OutputCollector(_Collector):
    """The collector of bolts.

    In a topology without ackers (``topology.acker.executors: 0``), ``ack`` and ``fail`` do nothing, as in Storm.
    """

    _order = "emit(values, stream, anchors=...)"

    def __init__(self, task) -> None:
        super().__init__(task)
        if self._tracking:
            self.ack = task.ack  # type: ignore[method-assign]  # save a call per tuple

    def emit(self, values: Sequence[Any], stream: str = "default", anchors: Tuple | Iterable[Tuple] | None = None) -> list[int]:
        """Emit a tuple.

        :param values: one value per field of the stream.
        :param anchors: the input tuple or tuples whose trees the new one joins; None leaves it untracked.
        :returns: the task ids it was sent to (shared list, do not change it).
        :raises IllegalArgumentException: unknown stream, wrong number of fields, or a direct stream.
        """
        # The hottest lines of the emulator: the checks and put are inlined for the common case.
        try:
            out = self._outs.get(stream)
        except TypeError:  # a list of values, where Java has them
            out = None
        if out is None:
            raise self._unknown_stream(stream)
        row = tuple(values) if type(values) is list else values if type(values) is tuple else self._row(out, values)
        targets = self._targets(out, row) if len(row) != out.arity or out.direct_tasks else out.choose(row)
        out.emitted += 1
        if anchors is not None and self._tracking:
            if type(anchors) is Tuple and (ids := anchors.message_id) and len(ids) == 2:
                anchors.ack_val ^= self._put_tree(out, targets, row, ids[0])
            else:
                self._anchored(out, targets, row, anchors)
            return targets
        for task in targets:
            channel = self._channels.get(task) or self._outbox.channel(task)
            if channel.out is not out:
                channel.open(out)
            channel.rows.append(row)
            if channel.anchors is not None:
                channel.anchors.append(_NO_ANCHOR)
        out.transferred += len(targets)
        return targets

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = "default", anchors: Tuple | Iterable[Tuple] | None = None) -> list[int]:
        """Emit a tuple to one task that subscribed to the stream with direct grouping.

        :returns: ``[task]``, or ``[]`` when the task's component does not subscribe (the tuple is dropped).
        :raises IllegalArgumentException: the task expects a regular grouping; unknown stream; wrong arity.
        """
        out = self._out(stream)
        row = self._row(out, values)
        targets = self._direct_target(task, out, row)
        out.emitted += 1
        if anchors is None or not self._tracking:
            self.put(out, targets, row)
        else:
            self._anchored(out, targets, row, anchors)
        return targets

    def _anchored(self, out: OutStream, targets: Sequence[int], row: tuple, anchors: Tuple | Iterable[Tuple]) -> None:
        anchor_list = [anchors] if isinstance(anchors, Tuple) else list(anchors)
        tracked = [a for a in anchor_list if a.message_id]
        if not tracked:
            self.put(out, targets, row)
            return
        if len(tracked) == 1 and len(tracked[0].message_id) == 2:
            anchor = tracked[0]
            anchor.ack_val ^= self._put_tree(out, targets, row, anchor.message_id[0])
            return
        for task in targets:
            # As in Storm's collector, one edge id per anchor: a tuple may be anchored to several trees, or twice to one.
            edge = self._next_edge(task, out)
            ids: dict[int, int] = {}
            for anchor, part in zip(tracked, stream_ids(edge, 0, len(tracked)).tolist()):
                anchor.ack_val ^= part
                for root in anchor.message_id[::2]:
                    ids[root] = ids.get(root, 0) ^ part
            self._put_tracked(out, task, row, [x for pair in ids.items() for x in pair])

    def emit_batch(self, columns: Mapping[str, Any] | Sequence[Any], stream: str = "default", parents: np.ndarray | None = None) -> int:
        """Emit many tuples as columns.

        :param columns: one column per field, in order or by name: numpy arrays, pyarrow string arrays, lists.
        :param parents: in a topology with ackers: the row of the current input batch to which each new row is anchored
            (int array); None leaves the rows untracked.
        :returns: the number of tuples emitted.
        """
        out = self._out(stream)
        columns, n = self._columns(out, columns)
        tracker = self._task.batch_tracker(parents) if parents is not None and self._tracking else None
        if n:
            self._put_columns(out, columns, n, tracker)
        out.emitted += n
        return n

    def emit_direct_batch(self, task: int, columns: Mapping[str, Any] | Sequence[Any], stream: str = "default", parents: np.ndarray | None = None) -> int:
        """Emit many tuples as columns to one task that subscribed to the stream with direct grouping.

        :param parents: see :meth:`emit_batch`.
        :returns: the number of tuples sent; 0 if the task's component does not subscribe (the tuples are dropped).
        :raises IllegalArgumentException: as :meth:`emit_direct` and :meth:`emit_batch`.
        """
        out = self._out(stream)
        columns, n = self._columns(out, columns)
        out.emitted += n
        if not n or not self._direct_target(task, out, tuple(columns)):
            return 0
        tracker = self._task.batch_tracker(parents) if parents is not None and self._tracking else None
        channel = self._outbox.channel(task)
        channel.close_rows()
        channel.add_columns(out, n, columns, tracker(channel, None, n) if tracker else None)
        out.transferred += n
        return n

    def ack(self, tup: Tuple) -> None:
        """Acknowledge an input tuple; its tree is complete when every tuple anchored to it is acked."""
        if self._tracking:
            self._task.ack(tup)

    def fail(self, tup: Tuple) -> None:
        """Fail all trees of an input tuple immediately."""
        if self._tracking:
            self._task.fail(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the message timeout of the tuple's trees."""
        if self._tracking:
            self._task.reset_timeout(tup)


class BasicOutputCollector:
    """The collector of ``BasicBolt.execute``: anchors every emit to the current input."""

    def __init__(self, collector: OutputCollector) -> None:
        self._collector = collector
        self.input: Tuple | None = None
        self.report_error = collector.report_error
        if not collector._tracking:
            self.emit = collector.emit  # type: ignore[method-assign]  # nothing to anchor: save a call per tuple

    def emit(self, values: Sequence[Any], stream: str = "default") -> list[int]:
        """Emit a tuple anchored to the current input; see :meth:`OutputCollector.emit`."""
        return self._collector.emit(values, stream, self.input)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = "default") -> list[int]:
        """Emit to one task, anchored to the current input; see :meth:`OutputCollector.emit_direct`."""
        return self._collector.emit_direct(task, values, stream, self.input)

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the message timeout of the tuple's trees."""
        self._collector.reset_timeout(tup)


class SpoutOutputCollector(_Collector):
    """The collector of spouts."""

    _order = "emit(values, stream, message_id=...)"

    def emit(self, values: Sequence[Any], stream: str = "default", message_id: Any = None) -> list[int]:
        """Emit a tuple.

        :param message_id: if given, the tuple's tree is tracked, and ``ack`` or ``fail`` is called with this value, on
            this task. To survive a crash of the spout's process it must consist of plain values (str, int, bytes,
            tuple, ...).
        :returns: the task ids it was sent to (shared list, do not change it).
        """
        try:
            out = self._outs[stream]
        except (KeyError, TypeError):
            raise self._unknown_stream(stream) from None
        row = values if type(values) is tuple else self._row(out, values)
        targets = self._targets(out, row) if len(row) != out.arity or out.direct_tasks else out.choose(row)
        self._emit(out, targets, row, message_id)
        return targets

    def emit_all(self, tuples: Iterable[tuple[str, Sequence[Any]]], message_id: Any = None) -> None:
        """Emit (stream, values) pairs with one message id: all of them, or none if one is refused."""
        checked = []
        for stream, values in tuples:
            out = self._out(stream)
            row = self._row(out, values)
            checked.append((out, self._targets(out, row), row))
        for out, targets, row in checked:
            self._emit(out, targets, row, message_id)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = "default", message_id: Any = None) -> list[int]:
        """Emit a tuple to one task that subscribed with direct grouping; see :meth:`emit`."""
        out = self._out(stream)
        row = self._row(out, values)
        targets = self._direct_target(task, out, row)
        self._emit(out, targets, row, message_id)
        return targets

    def _emit(self, out: OutStream, targets: Sequence[int], row: tuple, message_id: Any) -> None:
        self.emits += 1
        out.emitted += 1
        if message_id is None or not self._tracking:
            self.put(out, targets, row)
            if message_id is not None:
                self._task.ack_at_once(message_id, out.name)
            return
        root = self._task.new_root()
        self._task.track(root, self._put_tree(out, targets, row, root), message_id, out.name)

    def emit_batch(self, columns: Mapping[str, Any] | Sequence[Any], stream: str = "default", message_ids: Sequence[Any] | None = None) -> int:
        """Emit many tuples as columns; see :meth:`OutputCollector.emit_batch`.

        :param message_ids: one per row to track each row's tree, or None.
        """
        out = self._out(stream)
        columns, n = self._columns(out, columns)
        if message_ids is not None:
            rows = zip(*(column_to_list(c) for c in columns), strict=True)
            for row, message_id in zip(rows, message_ids, strict=True):
                self._emit(out, self._targets(out, row), row, message_id)
            return n
        if n:
            self._put_columns(out, columns, n, None)
        self.emits += n
        out.emitted += n
        return n
