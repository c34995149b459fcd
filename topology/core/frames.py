"""The frame: the content of one inbox record, and its encoding as msgpack.

A frame carries tuples from one source task to one target task (their *channel*), in the order of emission and as
columns. Tuples of a channel are numbered 0, 1, 2, ...; a frame states the number of its first tuple, so that a receiver
can drop repetitions. Layout, by position::

    [1, DATA, source_task, first_seq, [segment, ...]]     segment: [stream, n, columns, anchors]
                                                          or       [None, watermark]
    [1, PULSE, number, now_ms, credit]                    for spouts: call next_tuple
    [1, TICK, rate_secs, now_ms]                          for every task with a tick interval
    [1, CONTROL, command, now_ms]                         for spouts: "activate" | "deactivate" | "wake"; for bolts: "snapshot"; for all:
                                                          "debug PERCENT", "metrics SECS"

``columns`` is ``None`` for a hole: a tuple that was too large, whose number stays in use. ``anchors`` is ``None``
(untracked), an int64 column with one root per tuple, or a list with ``[root, edge id, root, edge id, ...]`` for every
tuple. :mod:`~dskype.topology.core.values` encodes and decodes values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa

from dskype.topology.core.values import MAX_EMPTY, FrameError, pack_value, unpack_record

__all__ = [
    "FRAME_VERSION",
    "Control",
    "DataFrame",
    "FrameHeader",
    "OutRecord",
    "OutRecords",
    "Pulse",
    "Segment",
    "Tick",
    "decode_frame",
    "encode_control",
    "encode_data",
    "encode_pulse",
    "encode_segment",
    "encode_tick",
    "encode_watermark",
    "expand_records",
    "peek_header",
    "segment_sizes",
]

FRAME_VERSION = 1
DATA, PULSE, TICK, CONTROL = 0, 1, 2, 3

WAKE = "wake"
"""A control record that a spout's own process writes: it only starts a batch, and does not tell the time."""

_INT64 = range(-(2**63), 2**63)
_SEQ = range(2**62)


class OutRecord(NamedTuple):
    """A record for the sink to write; with ``partition`` None, Kafka chooses the partition."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None = None


class OutRecords(NamedTuple):
    """Many records of one external topic as columns: pyarrow binary or string arrays of equal length.

    :ivar keys: None if no record has a key.
    :ivar headers: (name, values) pairs; every record has all of them.
    """

    topic: str
    keys: Any
    values: Any
    headers: Sequence[tuple[str, Any]]

    def rows(self) -> Iterator[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]:
        """Yield key, value and headers of each record."""
        n = len(self.values)
        keys = [None] * n if self.keys is None else _bytes_of(self.keys)
        headers = zip(*(zip(repeat(name), _bytes_of(values)) for name, values in self.headers)) if self.headers else repeat((), n)
        return zip(keys, _bytes_of(self.values), map(list, headers))

    def records(self) -> Iterator[OutRecord]:
        """Yield the records one by one."""
        for key, value, headers in self.rows():
            yield OutRecord(self.topic, None, key, value, headers)


def _bytes_of(column: Any) -> list[bytes | None]:
    return column.cast(pa.binary()).to_pylist()


def expand_records(records: Iterable[OutRecord | OutRecords]) -> Iterator[OutRecord]:
    """Yield single records; those in columns are expanded."""
    for record in records:
        if isinstance(record, OutRecords):
            yield from record.records()
        else:
            yield record


class FrameHeader(NamedTuple):
    """The sender of a data frame and the number of its first tuple."""

    source_task: int
    first_seq: int


@dataclass(slots=True)
class Segment:
    """Consecutive tuples of one stream, or a watermark (``stream`` None)."""

    stream: str | None
    n: int = 0
    columns: list[Any] | None = None
    anchors: Any = None
    watermark: int = 0


@dataclass(slots=True)
class DataFrame:
    """Tuples and watermarks of one task, numbered from ``first_seq``."""

    source_task: int
    first_seq: int
    segments: list[Segment] = field(default_factory=list)


class Pulse(NamedTuple):
    """Lets a spout task call ``next_tuple`` and emit up to ``credit`` tuples."""

    number: int
    now_ms: int
    credit: int


class Tick(NamedTuple):
    """A tick of an interval; with ``rate_secs`` 0 it is a timer, not a tick tuple."""

    rate_secs: int
    now_ms: int


class Control(NamedTuple):
    """A command to a spout (``activate``, ``deactivate``), a bolt (``snapshot``) or any task (``debug 10``, ``metrics 60``)."""

    command: str
    now_ms: int


# -- frames ---------------------------------------------------------------------------------------


def encode_segment(stream: str, n: int, columns: Sequence[Any] | None, anchors: Any) -> bytes | memoryview:
    """Serialize one segment; frames are put together from such pieces by :func:`encode_data`.

    :raises ValueError: a value is nested too deeply for a receiver to decode the frame.
    """
    # Nested in two lists, as in a frame: msgpack must refuse here what it could not decode there.
    data = pack_value((((stream, n, columns, anchors),),))
    return data[2:] if len(data) < 4096 else memoryview(data)[2:]


def encode_watermark(watermark: int) -> bytes:
    """Serialize a watermark as a segment."""
    return pack_value((None, watermark))


def _array_header(n: int) -> bytes:
    return bytes((0x90 | n,)) if n < 16 else b"\xdc" + n.to_bytes(2, "big") if n < 65536 else b"\xdd" + n.to_bytes(4, "big")


def encode_data(source_task: int, first_seq: int, segments: Sequence[bytes | memoryview]) -> bytes:
    """Join serialized segments to the value of one inbox record."""
    head = b"\x95\x01\x00" + pack_value(source_task) + pack_value(first_seq)
    return b"".join((head, _array_header(len(segments)), *segments))


def encode_pulse(number: int, now_ms: int, credit: int) -> bytes:
    """Return the value of a pulse record."""
    return msgpack.packb((FRAME_VERSION, PULSE, number, now_ms, credit))


def encode_tick(rate_secs: int, now_ms: int) -> bytes:
    """Return the value of a tick record."""
    return msgpack.packb((FRAME_VERSION, TICK, rate_secs, now_ms))


def encode_control(command: str, now_ms: int) -> bytes:
    """Return the value of a control record."""
    return msgpack.packb((FRAME_VERSION, CONTROL, command, now_ms))


def peek_header(value: bytes | None) -> FrameHeader | None:
    """Return the source task and first tuple number of a possibly damaged data frame; None if they cannot be read."""
    unpacker = msgpack.Unpacker(raw=False)
    try:
        unpacker.feed((value or b"")[:64])
        unpacker.read_array_header()
        if (unpacker.unpack(), unpacker.unpack()) != (FRAME_VERSION, DATA):
            return None
        source_task, first_seq = unpacker.unpack(), unpacker.unpack()
    except Exception:  # damaged bytes raise errors of many kinds
        return None
    if type(source_task) is int and type(first_seq) is int and first_seq in _SEQ:
        return FrameHeader(source_task, first_seq)
    return None


def segment_sizes(value: bytes) -> list[int]:
    """Return the size in bytes of each segment of a well-formed data frame, without decoding it."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(value))
    unpacker.feed(value)
    unpacker.read_array_header()
    for _ in range(4):
        unpacker.skip()
    sizes = []
    for _ in range(unpacker.read_array_header()):
        before = unpacker.tell()
        unpacker.skip()
        sizes.append(unpacker.tell() - before)
    return sizes


def _segment(raw: Any) -> Segment:
    if len(raw) == 2 and raw[0] is None and type(raw[1]) is int and raw[1] in _INT64:
        return Segment(None, watermark=raw[1])
    stream, n, columns, anchors = raw
    if type(stream) is not str or type(n) is not int or n < 0:
        msg = f"malformed segment; expected [stream, n, columns, anchors]; given: {raw!r:.80}"
        raise FrameError(msg)
    if not columns:
        if (columns is None and n != 1) or (columns is not None and type(columns) is not list) or n > MAX_EMPTY:
            msg = f"a segment without columns has too many tuples; given: {n}, stream {stream!r:.80}"
            raise FrameError(msg)
    elif type(columns) is not list:
        msg = f"the columns of a segment are not a list; given: {columns!r:.80}, stream {stream!r:.80}"
        raise FrameError(msg)
    else:
        for column in columns:
            if (type(column) not in _COLUMNS and not _is_column(column)) or len(column) != n:
                msg = f"a column differs in type or length from the segment's {n} tuples, stream {stream!r:.80}"
                raise FrameError(msg)
    if anchors is not None and not (_are_anchors(anchors) and len(anchors) == n):
        msg = f"the anchors differ in type or length from the segment's {n} tuples, stream {stream!r:.80}"
        raise FrameError(msg)
    return Segment(stream, n, columns, anchors)


_COLUMNS = frozenset((list, np.ndarray))


def _is_column(column: Any) -> bool:
    return isinstance(column, (list, np.ndarray)) or hasattr(column, "to_pylist")


def _are_anchors(anchors: Any) -> bool:
    if isinstance(anchors, np.ndarray):
        return anchors.dtype == np.int64 and anchors.ndim == 1
    if type(anchors) is not list:
        return False
    try:  # numpy checks all at once that every number fits in 64 bits
        flat = [x for a in anchors for x in (a if type(a) is list else (a,))]
        return set(map(type, flat)) <= {int} and np.array(flat, np.int64).ndim == 1 and all(len(a) % 2 == 0 for a in anchors if type(a) is list)
    except OverflowError:
        return False


def _clock_frame(kind: type, types: tuple[type, ...], values: list[Any]) -> Any:
    if tuple(map(type, values)) != types:
        msg = f"malformed {kind.__name__.lower()}; expected {', '.join(t.__name__ for t in types)}; given: {values!r:.80}"
        raise FrameError(msg)
    return kind(*values)


def decode_frame(value: bytes | None) -> DataFrame | Pulse | Tick | Control:
    """Decode one inbox record.

    :raises FrameError: the record is not a well-formed frame; the text says what is wrong.
    """
    if not value:
        msg = f"expected a frame; given: {value!r}"
        raise FrameError(msg)
    try:
        raw = unpack_record(value)
        version, kind = raw[0], raw[1]
        if version != FRAME_VERSION:
            msg = f"unknown frame version; expected {FRAME_VERSION}; given: {version!r:.40}"
            raise FrameError(msg)
        if kind == DATA:
            _, _, source_task, first_seq, segments = raw
            if type(source_task) is not int or type(first_seq) is not int or first_seq not in _SEQ:
                msg = f"malformed frame header; given: {raw[:4]!r:.80}"
                raise FrameError(msg)
            return DataFrame(source_task, first_seq, [_segment(s) for s in segments])
        if kind == PULSE:
            return _clock_frame(Pulse, (int, int, int), raw[2:])
        if kind == TICK:
            return _clock_frame(Tick, (int, int), raw[2:])
        if kind == CONTROL:
            return _clock_frame(Control, (str, int), raw[2:])
        msg = f"unknown kind of frame; legal: 0 to 3; given: {kind!r:.40}"
        raise FrameError(msg)
    except FrameError:
        raise
    except Exception as error:
        msg = f"not a frame: {type(error).__name__}: {error}; given: {value[:24]!r} ({len(value)} bytes)"
        raise FrameError(msg) from error
