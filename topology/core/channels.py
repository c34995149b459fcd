"""The sending side of a task: channels to other tasks, and the streams that feed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dskype.topology.core import frames
from dskype.topology.core._kernels import edge_key, stream_ids
from dskype.topology.core.frames import OutRecord
from dskype.topology.core.values import slice_column
from dskype.topology.errors import DeadLetter
from dskype.topology.planning.acker_streams import ACKER_STREAMS
from dskype.topology.tuples import column_to_list

__all__ = ["Channel", "FrameLimits", "OutStream", "Outbox"]

_EDGES_FIRST, _EDGES_MOST = 16, 1024
"""How many edge ids a channel computes at a time: more each time, because most channels of a task that has just started need few."""
_ARRAY_FROM = 32
"""Rows from which on columns of integers are faster as arrays."""


class OutStream:
    """One declared stream of a task: its fields, its subscribers, and how targets are chosen.

    :ivar choose: values -> list of target tasks of all non-direct subscribers; the list is shared, callers must not
        change it.
    :ivar direct_tasks: tasks of components that subscribed with direct grouping.
    :ivar regular_tasks: tasks of components that subscribed with any other grouping.
    :ivar integers: whether all values are 64-bit integers, as those of acks are; rows then become arrays.
    """

    __slots__ = ("arity", "choose", "direct_tasks", "emitted", "fields", "groupers", "integers", "name", "regular_tasks", "transferred")

    def __init__(self, name: str, fields, groupers: Sequence[Any], regular_tasks: frozenset[int], direct_tasks: frozenset[int]) -> None:
        self.name, self.fields, self.arity = name, fields, fields.size()
        self.groupers = list(groupers)
        self.regular_tasks, self.direct_tasks = regular_tasks, direct_tasks
        self.emitted = self.transferred = 0
        self.integers = name in ACKER_STREAMS
        self.choose: Callable[[Sequence[Any]], list[int]] = self._chooser()

    def _chooser(self) -> Callable[[Sequence[Any]], list[int]]:
        groupers = self.groupers
        if not groupers:
            no_tasks: list[int] = []
            return lambda values: no_tasks
        if len(groupers) == 1:
            return groupers[0].choose
        return lambda values: [task for grouper in groupers for task in grouper.choose(values)]

    def snapshot(self) -> list[Any]:
        """Return the state: counts and what the groupers need."""
        return [self.emitted, self.transferred, [grouper.snapshot() for grouper in self.groupers]]

    def restore(self, state: Sequence[Any]) -> None:
        """Restore a state."""
        self.emitted, self.transferred, groupers = state
        for grouper, grouper_state in zip(self.groupers, groupers, strict=True):
            grouper.restore(grouper_state)


class Channel:
    """The tuples that one source task has emitted to one target task in the present batch.

    ``seq`` is the number of the first row of the open segment; only :meth:`renumber` sets it. Rows are kept as they were emitted; :meth:`drain`
    serializes them at the end of a batch.
    """

    __slots__ = ("anchors", "edge_block", "edge_key", "edges", "first_seq", "out", "outbox", "partition", "parts", "rows", "seq", "source", "target", "topic")

    def __init__(self, outbox: Outbox, source: int, target: int, topic: str, partition: int) -> None:
        self.outbox, self.source, self.target = outbox, source, target
        self.topic, self.partition = topic, partition
        self.seq = 0
        self.edge_key = edge_key(source, target)
        self.edge_block = _EDGES_FIRST
        self.edges: list[int] = []  # edge ids of the open segment's rows, known in advance
        self.out: OutStream | None = None
        self.rows: list[tuple] = []
        self.anchors: list[Any] | None = None
        self.parts: list[tuple] = []  # closed segments: (out, n, columns or rows, anchors, is_rows)

    def open(self, out: OutStream) -> None:
        """Begin a segment of another stream."""
        self._register()
        self.close_rows()
        self.out = out

    def _register(self) -> None:
        if not self.parts and self.out is None:
            self.outbox.dirty.append(self)

    def close_rows(self) -> None:
        """Close the open segment; the next row begins another."""
        if self.rows:
            self._advance(len(self.rows))
            self.parts.append((self.out, len(self.rows), self.rows, self.anchors, True))
            self.rows, self.anchors = [], None
        self.out = None

    def add_columns(self, out: OutStream, n: int, columns: list[Any], anchors: Any) -> None:
        """Append a segment of columns, and number its tuples."""
        self._register()
        self.close_rows()
        self.parts.append((out, n, columns, anchors, False))
        self._advance(n)

    def add_watermark(self, watermark: int) -> None:
        """Append a watermark."""
        self._register()
        self.close_rows()
        self.parts.append((None, 0, watermark, None, False))

    def edge_id(self) -> int:
        """Return the edge id of the channel's next tuple."""
        row, known = len(self.rows), len(self.edges)
        if row >= known:
            self.edges += stream_ids(self.edge_key, self.seq + known, row - known + self.edge_block).tolist()
            self.edge_block = min(4 * self.edge_block, _EDGES_MOST)
        return self.edges[row]

    def _advance(self, n: int) -> None:
        self.seq += n
        del self.edges[:n]

    def renumber(self, seq: int) -> None:
        """Give the next tuple this number; nothing is buffered."""
        self.seq = seq
        self.edges.clear()

    def roll_back(self, seq: int, n_parts: int) -> None:
        """Return to the time when the channel had numbered ``seq`` tuples and had ``n_parts`` closed segments."""
        self.rows, self.anchors, self.out = [], None, None
        del self.parts[n_parts:]
        self.renumber(seq)

    def discard(self) -> None:
        """Drop what is buffered, but keep the numbering advanced."""
        self.close_rows()
        self.parts.clear()

    def drain(self, first_seq: int, encoded: _Encoded) -> list[OutRecord]:
        """Serialize what is buffered into frames within the limits; the first tuple has the number ``first_seq``."""
        limits = encoded.limits
        records: list[OutRecord] = []
        pieces: list[bytes] = []
        size = count = 0
        frame_seq = seq = first_seq

        def cut() -> None:
            nonlocal pieces, size, count, frame_seq
            if pieces:
                value = frames.encode_data(self.source, frame_seq, pieces)
                records.append(OutRecord(self.topic, self.partition, None, value))
            pieces, size, count, frame_seq = [], 0, 0, seq

        for out, n, body, anchors, is_rows in self.parts:
            if out is None:
                pieces.append(frames.encode_watermark(body))
                continue
            for part_n, data in encoded.segments(out, n, body, anchors, is_rows):
                if count and (count + part_n > limits.max_tuples or size + len(data) > limits.max_bytes):
                    cut()
                pieces.append(data)
                size += len(data)
                count += part_n
                seq += part_n
        cut()
        self.parts.clear()
        return records


class FrameLimits:
    """Cuts segments so that frames stay within limits, and replaces tuples that are too large by holes.

    :param max_tuples: most tuples per frame.
    :param max_bytes: most bytes per frame; a single tuple may exceed it, up to ``record_bytes``.
    :param record_bytes: size of the largest record that the broker accepts; a larger tuple becomes a hole.
    :param refuse: called with (stream, row, error) for a tuple that cannot be sent.
    """

    def __init__(self, max_tuples: int, max_bytes: int, record_bytes: int, refuse: Callable[[str, Sequence[Any], Exception], None]) -> None:
        self.max_tuples, self.max_bytes, self.record_bytes = max_tuples, max_bytes, record_bytes
        self.refuse = refuse

    def segments(self, out: OutStream, n: int, body: Any, anchors: Any, is_rows: bool):
        """Yield (tuples, bytes) pieces of one segment, each within the limits."""
        for start in range(0, n, self.max_tuples) if n else ():
            stop = min(n, start + self.max_tuples)
            if is_rows:
                part = body if stop - start == n else body[start:stop]
            else:
                part = body if stop - start == n else [slice_column(c, start, stop) for c in body]
            tracked = None if anchors is None else anchors if stop - start == n else anchors[start:stop]
            yield from self._fit(out, stop - start, part, tracked, is_rows)

    def _fit(self, out: OutStream, n: int, body: Any, anchors: Any, is_rows: bool):
        columns = list(zip(*body)) if is_rows else body
        if is_rows and out.integers and n >= _ARRAY_FROM:
            columns = [np.array(column, np.int64) for column in columns]
        try:
            data: Any = frames.encode_segment(out.name, n, columns, _anchor_column(anchors))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            if n == 1:
                yield self._hole(out, body, is_rows, error)
                return
            data = None
        if data is not None and (len(data) <= self.max_bytes or (n == 1 and len(data) <= self.record_bytes)):
            yield n, data
            return
        if n == 1:
            yield self._hole(out, body, is_rows, DeadLetter(f"the tuple has {len(data)} bytes; expected at most {self.record_bytes}", "long-tuple"))
            return
        half = n // 2
        for start, stop in ((0, half), (half, n)):
            part = body[start:stop] if is_rows else [slice_column(c, start, stop) for c in body]
            yield from self._fit(out, stop - start, part, None if anchors is None else anchors[start:stop], is_rows)

    def _hole(self, out: OutStream, body: Any, is_rows: bool, error: Exception) -> tuple[int, bytes | memoryview]:
        row = body[0] if is_rows else [column_to_list(c)[0] for c in body]
        self.refuse(out.name, row, error)
        return 1, frames.encode_segment(out.name, 1, None, None)


class _Encoded:
    """Serializes the segments of one flush; a segment that goes to several tasks is serialized once.

    :param parts: all parts that will be serialized.
    """

    def __init__(self, limits: FrameLimits, parts: Iterable[tuple]) -> None:
        self.limits = limits
        keys = Counter(self._key(out, body) for out, _, body, anchors, is_rows in parts if out is not None and anchors is None and not is_rows)
        self._shared: dict[tuple, list[tuple[int, bytes]] | None] = {key: None for key, uses in keys.items() if uses > 1}

    @staticmethod
    def _key(out: OutStream, columns: list[Any]) -> tuple:
        return out.name, *map(id, columns)  # ids are unique here, because all columns live until they are serialized

    def segments(self, out: OutStream, n: int, body: Any, anchors: Any, is_rows: bool) -> Iterable[tuple[int, bytes]]:
        """Return the pieces of a segment, as :meth:`FrameLimits.segments` does."""
        key = None if is_rows or anchors is not None else self._key(out, body)
        if key not in self._shared:
            return self.limits.segments(out, n, body, anchors, is_rows)
        pieces = self._shared[key]
        if pieces is None:
            pieces = self._shared[key] = list(self.limits.segments(out, n, body, anchors, is_rows))
        return pieces


def _anchor_column(anchors: Any) -> Any:
    if anchors is None or isinstance(anchors, np.ndarray):
        return anchors
    if set(map(type, anchors)) <= {int}:
        return np.array(anchors, dtype=np.int64)
    return anchors


class Outbox:
    """All channels of one source task.

    :param inboxes: target task -> (inbox topic, partition).
    """

    def __init__(self, source: int, inboxes: Callable[[int], tuple[str, int]], limits: FrameLimits) -> None:
        self.source, self._inboxes, self.limits = source, inboxes, limits
        self.channels: dict[int, Channel] = {}
        self.dirty: list[Channel] = []
        self._first: dict[int, int] = {}

    def channel(self, target: int) -> Channel:
        """Return the channel to a task, made on first use."""
        channel = self.channels.get(target)
        if channel is None:
            topic, partition = self._inboxes(target)
            channel = self.channels[target] = Channel(self, self.source, target, topic, partition)
            self._first[target] = 0
        return channel

    def flush(self, *, suppressed: bool) -> list[OutRecord]:
        """Return the frames of everything emitted since the last flush; none when ``suppressed``."""
        records: list[OutRecord] = []
        for channel in self.dirty:
            channel.close_rows()
        encoded = _Encoded(self.limits, () if suppressed else (part for channel in self.dirty for part in channel.parts))
        for channel in self.dirty:
            if suppressed:
                channel.discard()
            else:
                records += channel.drain(self._first[channel.target], encoded)
            self._first[channel.target] = channel.seq
        self.dirty.clear()
        return records

    def checkpoint(self) -> dict[int, tuple[int, int]]:
        """Return a checkpoint for :meth:`roll_back`."""
        for channel in self.dirty:
            channel.close_rows()
        return {target: (channel.seq, len(channel.parts)) for target, channel in self.channels.items()}

    def roll_back(self, checkpoint: dict[int, tuple[int, int]]) -> None:
        """Undo everything that was emitted since the :meth:`checkpoint`, including the numbering."""
        for target, channel in self.channels.items():
            channel.roll_back(*checkpoint.get(target, (0, 0)))
        self.dirty = [channel for channel in self.dirty if channel.parts]

    def snapshot(self) -> dict[int, int]:
        """Return target task -> next tuple number; taken between batches, when nothing is buffered."""
        return {target: channel.seq for target, channel in self.channels.items()}

    def restore(self, state: dict[int, int]) -> None:
        """Restore a state, and drop what the component emitted while it was prepared."""
        for channel in self.dirty:
            channel.discard()
        self.dirty.clear()
        for target, channel in self.channels.items():
            channel.renumber(0)
            self._first[target] = 0
        for target, seq in state.items():
            self.channel(target).renumber(seq)
            self._first[target] = seq
