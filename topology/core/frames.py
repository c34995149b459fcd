"""The frame: what one Kafka record of an inbox holds, and how it is written as msgpack.

A frame carries the tuples that one source task sends to one destination task (its *channel*), in
the order of emission and as columns. Tuples of a channel are numbered 0, 1, 2, ...; a frame states
the number of its first tuple, so a receiver can drop what it has seen. Layout, by position::

    [1, DATA, source_task, first_seq, [segment, ...]]     segment: [stream, n, columns, anchors]
                                                          or       [None, watermark]
    [1, PULSE, number, now_ms, credit]                    for spouts: call next_tuple
    [1, TICK, rate_secs, now_ms]                          for every task that asked for ticks
    [1, CONTROL, command, now_ms]                         for spouts: "activate" | "deactivate"

``columns`` is ``None`` for tuples that were too large to travel (a hole keeps the numbering whole).
``anchors`` is ``None`` (untracked), an int64 column with the one root of every tuple, or a list of
``[root, edge id, root, edge id, ...]`` for every tuple. There is no pickle in a frame.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

import msgpack
import numpy as np

from dskype.topology.errors import TopologyError
from dskype.topology.fields import Fields
from dskype.topology.tuples import StreamMeta, Tuple

__all__ = [
    "FRAME_VERSION", "DataFrame", "Control", "FrameError", "FrameHeader", "InRecord", "OutRecord", "OutRecords",
    "Pulse", "Segment", "Tick", "column_rows", "decode_frame", "encode_control", "encode_data",
    "encode_pulse", "encode_segment", "encode_tick", "encode_watermark", "one_by_one", "pack_state", "peek_header", "segment_sizes",
    "slice_column", "take_column", "unpack_state",
]

FRAME_VERSION = 1
DATA, PULSE, TICK, CONTROL = 0, 1, 2, 3

_EXT_ARRAY, _EXT_STRINGS, _EXT_DICTIONARY, _EXT_TUPLE, _EXT_SET, _EXT_STORM_TUPLE, _EXT_LISTS = 1, 2, 3, 4, 5, 6, 7
_ARRAY_DTYPES = frozenset("?bBhHiIlLqQefd")
_U32 = struct.Struct("<I")


class FrameError(TopologyError):
    """A record is not a well-formed frame, or a value cannot be put into one."""


class InRecord(NamedTuple):
    """A record as a query read it: an inbox frame, or a record of an external topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None = None


class OutRecord(NamedTuple):
    """A record that the sink has to write; ``partition`` None leaves the choice to Kafka."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None = None


class OutRecords(NamedTuple):
    """Many records of one external topic, as columns of n rows: pyarrow binary or string arrays.

    :ivar keys: None: no record has a key.
    :ivar headers: (name, values) pairs; every record has all of them.
    """

    topic: str
    keys: Any
    values: Any
    headers: Sequence[tuple[str, Any]]

    def records(self) -> Iterator[OutRecord]:
        """Yield them one by one."""
        n = len(self.values)
        columns = [_bytes_of(values) for _, values in self.headers]
        names = [name for name, _ in self.headers]
        keys = [None] * n if self.keys is None else _bytes_of(self.keys)
        for key, value, *headers in zip(keys, _bytes_of(self.values), *columns):
            yield OutRecord(self.topic, None, key, value, list(zip(names, headers)))


def _bytes_of(column: Any) -> list[bytes | None]:
    import pyarrow as pa

    return column.cast(pa.binary()).to_pylist()


def one_by_one(records: Iterable[OutRecord | OutRecords]) -> Iterator[OutRecord]:
    """Yield records, those of columns one by one."""
    for record in records:
        if isinstance(record, OutRecords):
            yield from record.records()
        else:
            yield record


class FrameHeader(NamedTuple):
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
    source_task: int
    first_seq: int
    segments: list[Segment] = field(default_factory=list)


class Pulse(NamedTuple):
    number: int
    now_ms: int
    credit: int


class Tick(NamedTuple):
    rate_secs: int
    now_ms: int


class Control(NamedTuple):
    command: str
    now_ms: int


# -- values ---------------------------------------------------------------------------------------


def _pack_array(array: np.ndarray) -> msgpack.ExtType:
    if array.dtype.char not in _ARRAY_DTYPES:
        msg = (f"expected a numpy array of numbers or booleans; given: dtype {array.dtype!r}; "
               "hint: convert it to a list, or to a pyarrow string array")
        raise TypeError(msg)
    shape = _U32.pack(len(array)) if array.ndim == 1 else np.asarray(array.shape, dtype="<u4").tobytes()
    head = bytes((ord(array.dtype.char), array.ndim))
    return msgpack.ExtType(_EXT_ARRAY, head + shape + array.tobytes())


def _string_buffers(array) -> bytes:
    """Offsets and UTF-8 bytes of a null-free pyarrow string array, rebased to start at 0."""
    n = len(array)
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype="<i4", count=n + 1, offset=4 * array.offset)
    first, last = int(offsets[0]), int(offsets[-1])
    data = b"" if data_buffer is None else memoryview(data_buffer)[first:last]
    if first:
        offsets = offsets - np.int32(first)
    return b"".join((_U32.pack(n), offsets.tobytes(), data))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _pack_arrow(value) -> Any:
    import pyarrow as pa

    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if value.null_count:
        return value.to_pylist()
    if isinstance(value, pa.ListArray) and _is_number(value.type.value_type):
        return _pack_lists(value)
    kind = value.type
    if pa.types.is_string(kind):
        return msgpack.ExtType(_EXT_STRINGS, _string_buffers(value) if len(value) else _U32.pack(0) + b"\0" * 4)
    if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
        codes = value.indices.cast(pa.int32()).to_numpy(zero_copy_only=False)
        strings = value.dictionary
        if len(strings) > len(codes):  # a slice of a large dictionary: ship only what is used
            used, codes = np.unique(codes, return_inverse=True)
            strings, codes = strings.take(pa.array(used)), codes.astype("<i4")
        body = _string_buffers(strings) if len(strings) else _U32.pack(0) + b"\0" * 4
        return msgpack.ExtType(_EXT_DICTIONARY, _U32.pack(len(codes)) + codes.astype("<i4").tobytes() + body)
    if pa.types.is_large_string(kind):
        return _pack_arrow(value.cast(pa.string()))
    if _is_number(kind):
        return _pack_array(value.to_numpy(zero_copy_only=False))
    return value.to_pylist()


def _pack_lists(value) -> Any:
    """Lists of numbers: how many, their n + 1 offsets from 0, the type, and the numbers of all of them."""
    offsets, numbers = value.offsets.to_numpy(), value.values
    first, last = int(offsets[0]), int(offsets[-1])
    if numbers.null_count and numbers.slice(first, last - first).null_count:
        return value.to_pylist()
    numbers = numbers.slice(first, last - first).to_numpy() if numbers.null_count else numbers.to_numpy()[first:last]
    return msgpack.ExtType(_EXT_LISTS, b"".join((_U32.pack(len(value)), (offsets - offsets[0]).tobytes(), numbers.dtype.char.encode(), numbers.tobytes())))


def _read_lists(view: memoryview):
    import pyarrow as pa

    (n,) = _U32.unpack_from(view)
    start = 4 + 4 * (n + 1)
    char = chr(view[start])
    if char not in _ARRAY_DTYPES:
        msg = f"unknown type of a list in a frame; given: {char!r}"
        raise FrameError(msg)
    numbers = pa.array(np.frombuffer(view, char, offset=start + 1))
    offsets = np.frombuffer(view, "<i4", n + 1, 4)
    if offsets[0] != 0 or offsets[-1] != len(numbers) or (np.diff(offsets) < 0).any():
        msg = f"the offsets of lists in a frame do not fit; given: {len(numbers)} numbers for offsets up to {offsets[-1]}"
        raise FrameError(msg)
    return pa.ListArray.from_arrays(pa.array(offsets), numbers)


def _pack_tuple(tup: Tuple, message_id: Any, ack_val: int) -> msgpack.ExtType:
    meta = tup.meta
    return msgpack.ExtType(_EXT_STORM_TUPLE, pack_state(
        [list(tup.values), meta.component, meta.task, meta.stream, list(meta.fields), message_id, ack_val]))


def _read_tuple(data: bytes) -> Tuple:
    values, component, task, stream, fields, message_id, ack_val = unpack_state(data)
    tup = Tuple(tuple(values), StreamMeta(component, task, stream, Fields(fields)), message_id)
    tup.ack_val = ack_val
    return tup


def _default(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, np.ndarray):
        return _pack_array(value)
    if isinstance(value, np.generic):
        return value.item()
    if type(value).__module__.startswith("pyarrow"):
        return _pack_arrow(value)
    if isinstance(value, Tuple):  # as Storm's DetachedTuple: a copy without anchors
        return _pack_tuple(value, None, 0)
    msg = (f"a tuple value cannot be serialized; given: {value!r} of type {type(value).__name__}; "
           "expected one of None, bool, int (64 bit), float, str, bytes, list, tuple, dict, numpy array, "
           "pyarrow array; hint: emit its fields as plain values")
    raise TypeError(msg)


def _read_strings(data: memoryview):
    import pyarrow as pa

    (n,) = _U32.unpack_from(data)
    start = 4 + 4 * (n + 1)
    offsets = pa.py_buffer(data[4:start])
    return pa.StringArray.from_buffers(n, offsets, pa.py_buffer(data[start:]))


def _ext_hook(code: int, data: bytes) -> Any:
    if code == _EXT_ARRAY:
        char, ndim = chr(data[0]), data[1]
        if char not in _ARRAY_DTYPES:
            msg = f"unknown array type in a frame; given: {char!r}"
            raise FrameError(msg)
        start = 2 + 4 * ndim
        array = np.frombuffer(data, dtype=char, offset=start)
        return array if ndim == 1 else array.reshape(np.frombuffer(data, "<u4", ndim, 2))
    if code == _EXT_TUPLE:
        return tuple(unpack_state(data))
    if code == _EXT_SET:
        return set(unpack_state(data))
    if code == _EXT_STORM_TUPLE:
        return _read_tuple(data)
    view = memoryview(data)
    if code == _EXT_STRINGS:
        return _read_strings(view)
    if code == _EXT_DICTIONARY:
        import pyarrow as pa

        (n,) = _U32.unpack_from(view)
        codes = pa.array(np.frombuffer(view, "<i4", n, 4))
        return pa.DictionaryArray.from_arrays(codes, _read_strings(view[4 + 4 * n:]))
    if code == _EXT_LISTS:
        return _read_lists(view)
    msg = f"unknown extension type in a frame; given: {code}; legal: 1 to 7"
    raise FrameError(msg)


def _dict(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    try:
        return dict(pairs)
    except TypeError:  # a tuple travels as a list, which cannot be a key
        return {_hashable(key): value for key, value in pairs}


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


_pack = msgpack.Packer(default=_default, use_bin_type=True, autoreset=True).pack


def _state_default(value: Any) -> Any:
    """Keep tuples and sets what they are (a message id must come back equal); widen subclasses."""
    if isinstance(value, tuple):
        return msgpack.ExtType(_EXT_TUPLE, pack_state(list(value)))
    if isinstance(value, (set, frozenset)):
        return msgpack.ExtType(_EXT_SET, pack_state(list(value)))
    if isinstance(value, Tuple):  # one that a bolt holds back: ack and anchors work after a crash
        return _pack_tuple(value, value.message_id, value.ack_val)
    for plain in (dict, list, str, bytes, bool, int, float):
        if isinstance(value, plain) and not isinstance(value, np.generic):
            return plain(value)
    return _default(value)


def pack_state(state: Any) -> bytes:
    """Serialize a state as msgpack: plain values, tuples, sets, numpy arrays, pyarrow string arrays, held :class:`Tuple` s.

    :raises TypeError: for a value of another type, naming it.
    """
    return msgpack.packb(state, default=_state_default, use_bin_type=True, strict_types=True)


def unpack_state(data: bytes) -> Any:
    """Read what :func:`pack_state` wrote; numpy arrays come back read-only."""
    return msgpack.unpackb(data, ext_hook=_ext_hook, strict_map_key=False, raw=False)


# -- columns --------------------------------------------------------------------------------------


def column_rows(column: Any) -> Sequence[Any]:
    """Return a column as a sequence of Python values."""
    if isinstance(column, (list, tuple)):
        return column
    if isinstance(column, np.ndarray):
        return column.tolist()
    return column.to_pylist()


def slice_column(column: Any, start: int, stop: int) -> Any:
    """Return rows ``start`` to ``stop`` of a column, without a copy where the type allows it."""
    if isinstance(column, (list, tuple, np.ndarray)):
        return column[start:stop]
    return column.slice(start, stop - start)


def take_column(column: Any, rows: np.ndarray) -> Any:
    """Return the given rows of a column, in the given order."""
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, (list, tuple)):
        return [column[i] for i in rows.tolist()]
    import pyarrow as pa

    return column.take(pa.array(rows))


# -- frames ---------------------------------------------------------------------------------------


def encode_segment(stream: str, n: int, columns: Sequence[Any] | None, anchors: Any) -> bytes:
    """Serialize one segment; frames are put together from such pieces by :func:`encode_data`."""
    return _pack((stream, n, columns, anchors))


def encode_watermark(watermark: int) -> bytes:
    return _pack((None, watermark))


def _array_header(n: int) -> bytes:
    return bytes((0x90 | n,)) if n < 16 else b"\xdc" + n.to_bytes(2, "big") if n < 65536 else b"\xdd" + n.to_bytes(4, "big")


def encode_data(source_task: int, first_seq: int, segments: Sequence[bytes]) -> bytes:
    """Put serialized segments together into the value of one inbox record."""
    head = b"\x95\x01\x00" + _pack(source_task) + _pack(first_seq)
    return b"".join((head, _array_header(len(segments)), *segments))


def encode_pulse(number: int, now_ms: int, credit: int) -> bytes:
    return msgpack.packb((FRAME_VERSION, PULSE, number, now_ms, credit))


def encode_tick(rate_secs: int, now_ms: int) -> bytes:
    return msgpack.packb((FRAME_VERSION, TICK, rate_secs, now_ms))


def encode_control(command: str, now_ms: int) -> bytes:
    return msgpack.packb((FRAME_VERSION, CONTROL, command, now_ms))


def peek_header(value: bytes | None) -> FrameHeader | None:
    """Return source task and first number of a damaged data frame, if its beginning can be read."""
    unpacker = msgpack.Unpacker(raw=False)
    try:
        unpacker.feed((value or b"")[:64])
        unpacker.read_array_header()
        if (unpacker.unpack(), unpacker.unpack()) != (FRAME_VERSION, DATA):
            return None
        source_task, first_seq = unpacker.unpack(), unpacker.unpack()
    except Exception:  # any damage means: not readable
        return None
    if type(source_task) is int and type(first_seq) is int:
        return FrameHeader(source_task, first_seq)
    return None


def segment_sizes(value: bytes) -> list[int]:
    """Return the bytes of each segment of a well-formed data frame; nothing is decoded."""
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
    if len(raw) == 2 and raw[0] is None and type(raw[1]) is int:
        return Segment(None, watermark=raw[1])
    stream, n, columns, anchors = raw
    if type(stream) is not str or type(n) is not int or n < 0:
        msg = f"malformed segment; expected [stream, n, columns, anchors]; given: {raw!r:.80}"
        raise FrameError(msg)
    if columns is not None and (type(columns) is not list or any(not _is_column(c) or len(c) != n for c in columns)):
        msg = f"a column differs in type or length from the segment's {n} tuples, stream {stream!r}"
        raise FrameError(msg)
    if anchors is not None and not (_are_anchors(anchors) and len(anchors) == n):
        msg = f"the anchors differ in type or length from the segment's {n} tuples, stream {stream!r}"
        raise FrameError(msg)
    return Segment(stream, n, columns, anchors)


def _is_column(column: Any) -> bool:
    return isinstance(column, (list, np.ndarray)) or hasattr(column, "to_pylist")


def _are_anchors(anchors: Any) -> bool:
    if isinstance(anchors, np.ndarray):
        return anchors.dtype == np.int64 and anchors.ndim == 1
    return type(anchors) is list and all(
        type(a) is int or (type(a) is list and len(a) % 2 == 0 and all(type(x) is int for x in a)) for a in anchors)


def _clock_frame(kind: type, types: tuple[type, ...], values: list[Any]) -> Any:
    if tuple(map(type, values)) != types:
        msg = f"malformed {kind.__name__.lower()}; expected {', '.join(t.__name__ for t in types)}; given: {values!r:.80}"
        raise FrameError(msg)
    return kind(*values)


def decode_frame(value: bytes | None) -> DataFrame | Pulse | Tick | Control:
    """Read one inbox record.

    :raises FrameError: the record is no well-formed frame; the text says what is wrong with it.
    """
    if not value:
        msg = f"expected a frame; given: {value!r}"
        raise FrameError(msg)
    try:
        raw = msgpack.unpackb(value, ext_hook=_ext_hook, strict_map_key=False, raw=False, object_pairs_hook=_dict)
        version, kind = raw[0], raw[1]
        if version != FRAME_VERSION:
            msg = f"unknown frame version; expected {FRAME_VERSION}; given: {version!r:.40}"
            raise FrameError(msg)
        if kind == DATA:
            _, _, source_task, first_seq, segments = raw
            if type(source_task) is not int or type(first_seq) is not int or first_seq < 0:
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
