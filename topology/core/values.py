"""Encoding of values, columns and states as msgpack: in frames, snapshots, journals, and the logs of test helpers.

Anyone with access to an inbox can write arbitrary bytes there. Decoding checks whatever could crash the process: nesting,
lengths, offsets, codes and numbers. Whether Arrow strings are UTF-8 is left to their readers, because that check takes as
long as all others together. Pickle is never used.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Any, cast

import msgpack
import numpy as np
import pyarrow as pa

from dskype.topology.errors import TopologyError, repr_of
from dskype.topology.fields import Fields
from dskype.topology.tuples import StreamMeta, Tuple

__all__ = [
    "MAX_EMPTY",
    "MAX_INTEGER_BYTES",
    "MAX_NESTING",
    "FrameError",
    "NestingError",
    "pack_state",
    "pack_tuple",
    "pack_value",
    "slice_column",
    "take_column",
    "unpack_record",
    "unpack_state",
    "unpack_tuple",
]

_EXT_ARRAY, _EXT_STRINGS, _EXT_DICTIONARY, _EXT_TUPLE, _EXT_SET, _EXT_STORM_TUPLE, _EXT_LISTS, _EXT_FROZEN, _EXT_INTEGER = 1, 2, 3, 4, 5, 6, 7, 8, 9
_ARRAY_DTYPES = frozenset("?bBhHiIlLqQefd")
_DTYPES = {ord(char): np.dtype(char) for char in _ARRAY_DTYPES}
_LISTS = {char: (pa.list_(number := pa.from_numpy_dtype(dtype)), number, dtype.itemsize) for char, dtype in _DTYPES.items() if dtype.char != "?"}
"""Code of a type -> type of lists of such numbers, of the numbers, and the bytes of one."""
_I32, _INT32, _STRING = np.dtype("<i4"), pa.int32(), pa.string()
_frombuffer, _py_buffer, _from_buffers = np.frombuffer, pa.py_buffer, pa.Array.from_buffers
_U32 = struct.Struct("<I")

MAX_NESTING = 32
"""How deep tuples, sets and held tuples may be nested in each other: decoding takes 50 KB of the C stack per level."""
_SHORT = 16_384
"""msgpack allocates as many elements as a header claims. For more than this, the lengths are checked first."""
MAX_EMPTY = 1 << 24
"""Most elements that take no bytes (rows of an array with no columns, tuples without fields)."""


_LEGAL = "expected one of None, bool, int (1024 bytes), float, str, bytes, list, tuple, dict, numpy array, pyarrow array"
MAX_INTEGER_BYTES = 1024
"""Size of the largest integer: Python writes no number of more than 4300 digits as text, and error messages name values."""


class FrameError(TopologyError):
    """A record is not a well-formed frame, or a value cannot be encoded in one."""


class NestingError(TopologyError, ValueError):
    """A value is nested too deeply to be encoded."""


def _pack_array(array: np.ndarray) -> msgpack.ExtType:
    if array.dtype.char not in _ARRAY_DTYPES:
        msg = f"expected a numpy array of numbers or booleans; given: dtype {array.dtype!r}; hint: convert it to a list, or to a pyarrow string array"
        raise TypeError(msg)
    shape = _U32.pack(len(array)) if array.ndim == 1 else np.asarray(array.shape, dtype="<u4").tobytes()
    head = bytes((ord(array.dtype.char), array.ndim))
    return msgpack.ExtType(_EXT_ARRAY, head + shape + array.tobytes())


def _string_buffers(array) -> bytes:
    """Return length, offsets and UTF-8 bytes of a pyarrow string array without nulls; the offsets start at 0."""
    n = len(array)
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype="<i4", count=n + 1, offset=4 * array.offset)
    first, last = int(offsets[0]), int(offsets[-1])
    data = b"" if data_buffer is None else memoryview(data_buffer)[first:last]
    if first:
        offsets = offsets - np.int32(first)
    return b"".join((_U32.pack(n), offsets.tobytes(), data))


def _is_number(kind: Any) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _pack_arrow(value) -> Any:
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
        if len(strings) > len(codes):  # a slice of a large dictionary: send only the strings in use
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
    """Pack n lists of numbers: n, n + 1 offsets from 0, the type, and all numbers."""
    offsets, numbers = value.offsets.to_numpy(), value.values
    first, last = int(offsets[0]), int(offsets[-1])
    if numbers.null_count and numbers.slice(first, last - first).null_count:
        return value.to_pylist()
    numbers = numbers.slice(first, last - first).to_numpy() if numbers.null_count else numbers.to_numpy()[first:last]
    return msgpack.ExtType(_EXT_LISTS, b"".join((_U32.pack(len(value)), (offsets - offsets[0]).tobytes(), numbers.dtype.char.encode(), numbers.tobytes())))


def _read_lists(data: bytes):
    (n,) = _U32.unpack_from(data)
    start = 8 + 4 * n
    kinds = _LISTS.get(data[start])
    if kinds is None:
        msg = f"unknown type of a list in a frame; given: {chr(data[start])!r}"
        raise FrameError(msg)
    kind, number, number_bytes = kinds
    length, rest = divmod(len(data) - start - 1, number_bytes)
    if rest:
        msg = f"the numbers of lists in a frame do not fit; given: {len(data) - start - 1} bytes for numbers of {number_bytes} bytes"
        raise FrameError(msg)
    _offsets(data, n, length, exactly=True)
    buffer = _py_buffer(data)
    numbers = _from_buffers(number, length, [None, buffer.slice(start + 1)])
    return _from_buffers(kind, n, [None, buffer.slice(4, 4 * n + 4)], children=[numbers])


def _offsets(data: bytes, n: int, end: int, at: int = 0, *, exactly: bool = False) -> np.ndarray:
    """Return the n + 1 offsets behind the length at ``at``, and check them, because Arrow would read whatever they point to.

    :param end: the highest legal offset; with ``exactly``, the last offset.
    """
    offsets = _frombuffer(data, _I32, n + 1, at + 4)
    last = offsets.item(-1)
    # Comparisons instead of differences, which may overflow; searching bytes is faster than any().
    if data[at + 4 : at + 8] != b"\0\0\0\0" or last > end or (exactly and last != end) or 1 in (offsets[1:] < offsets[:-1]).tobytes():
        msg = f"the offsets of strings or lists in a frame do not fit; given: offsets from {offsets[0]} to {last} for a length of {end}"
        raise FrameError(msg)
    return offsets


def _pack_integer(value: int) -> msgpack.ExtType:
    """Pack an integer that msgpack has no form for, like a ``BigInteger`` of Java."""
    n = value.bit_length() // 8 + 1
    if n > MAX_INTEGER_BYTES:
        msg = f"a value cannot be serialized; given: an integer of {n} bytes; {_LEGAL}; hint: emit it as a string or as bytes"
        raise TypeError(msg)
    return msgpack.ExtType(_EXT_INTEGER, value.to_bytes(n, "big", signed=True))


def _default(value: Any, depth: int = 0) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, np.ndarray):
        return _pack_array(value)
    if isinstance(value, int):  # beyond 64 bits
        return _pack_integer(int(value))
    if isinstance(value, np.generic) and isinstance(item := value.item(), (bool, int, float, str, bytes)):
        return item
    if type(value).__module__.startswith("pyarrow"):
        return _pack_arrow(value)
    if isinstance(value, Tuple):  # a copy without anchors, like Storm's DetachedTuple
        return msgpack.ExtType(_EXT_STORM_TUPLE, _pack_nested([*pack_tuple(value)[:-2], None, 0], depth + 1))
    msg = f"a value cannot be serialized; given: {repr_of(value)} of type {type(value).__name__}; {_LEGAL}; hint: emit or keep its fields as plain values"
    raise TypeError(msg)


def _read_strings(data: bytes, at: int = 0):
    (n,) = _U32.unpack_from(data, at)
    start = at + 8 + 4 * n
    _offsets(data, n, len(data) - start, at)
    buffer = _py_buffer(data)
    return _from_buffers(_STRING, n, [None, buffer.slice(at + 4, start - at - 4), buffer.slice(start)], 0)


def _read_dictionary(data: bytes):
    (n,) = _U32.unpack_from(data)
    codes = pa.Array.from_buffers(_INT32, n, [None, pa.py_buffer(data).slice(4, 4 * n)])  # fails if there are fewer
    return pa.DictionaryArray.from_arrays(codes, _read_strings(data, 4 + 4 * n))  # pyarrow checks the codes


def _read_array(data: bytes) -> np.ndarray:
    dtype, ndim = _DTYPES.get(data[0]), data[1]
    if dtype is None:
        msg = f"unknown array type in a frame; given: {chr(data[0])!r}"
        raise FrameError(msg)
    array = _frombuffer(data, dtype, -1, 2 + 4 * ndim)
    shape = np.frombuffer(data, "<u4", ndim, 2).tolist()
    rows = 1
    for length in shape:  # without elements, an array could claim any number of rows, each of which becomes a list
        rows *= length or 1
    if rows > max(len(array), MAX_EMPTY):
        msg = f"an array in a frame has fewer elements than its shape says; given: {shape} for {len(array)} elements"
        raise FrameError(msg)
    return array.reshape(shape)


def _read_nested(data: bytes, depth: int) -> Any:
    """Decode what :func:`_pack_nested` wrote, from bytes that are not trusted."""
    if depth > MAX_NESTING:
        msg = f"tuples and sets are nested too deeply in a frame or state; expected at most {MAX_NESTING} levels"
        raise FrameError(msg)
    if len(data) > _SHORT:
        _check_lengths(data)
    return msgpack.unpackb(data, ext_hook=_EXT_HOOKS[depth], strict_map_key=False, raw=False)


def _check_lengths(data: bytes) -> None:
    """Refuse bytes in which a header claims more elements than there are, without creating objects.

    :raises msgpack.OutOfData: the bytes end too early.
    """
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    unpacker.skip()


def _ext_hook(code: int, data: bytes, depth: int = 0) -> Any:
    """Decode an extension value; ``depth`` is the number of extension values that contain it."""
    if code == _EXT_ARRAY:
        if data[1] == 1 and (dtype := _DTYPES.get(data[0])) is not None:  # by far the most frequent case
            return _frombuffer(data, dtype, -1, 6)
        return _read_array(data)
    if code == _EXT_STRINGS:
        return _read_strings(data)
    if code == _EXT_DICTIONARY:
        return _read_dictionary(data)
    if code == _EXT_LISTS:
        return _read_lists(data)
    if code == _EXT_TUPLE:
        return tuple(_read_nested(data, depth + 1))
    if code == _EXT_SET:
        return set(_read_nested(data, depth + 1))
    if code == _EXT_FROZEN:  # a code of its own, because only frozen sets may be elements of sets and keys
        return frozenset(_read_nested(data, depth + 1))
    if code == _EXT_STORM_TUPLE:
        return unpack_tuple(_read_nested(data, depth + 1))
    if code == _EXT_INTEGER and len(data) <= MAX_INTEGER_BYTES:
        return int.from_bytes(data, "big", signed=True)
    msg = (
        f"unknown extension type in a frame, or too long an integer; given: {code} with {len(data)} bytes; legal: 1 to 9, integers of {MAX_INTEGER_BYTES} bytes"
    )
    raise FrameError(msg)


_EXT_HOOKS = [_ext_hook, *(partial(_ext_hook, depth=depth) for depth in range(1, MAX_NESTING + 1))]


def _dict(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    try:
        return dict(pairs)
    except TypeError:  # a tuple is encoded as a list, which cannot be a key
        return {_hashable(key): value for key, value in pairs}


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


pack_value = msgpack.Packer(default=_default, use_bin_type=True, autoreset=True).pack


def _state_default(value: Any, depth: int) -> Any:
    """Encode tuples and sets so that they come back equal, as message ids must; encode subclasses as their base types."""
    if type(value) is np.ndarray:  # by far the most frequent case
        return _pack_array(value)
    if isinstance(value, tuple):
        return msgpack.ExtType(_EXT_TUPLE, _pack_nested(list(value), depth + 1))
    if isinstance(value, (set, frozenset)):
        return msgpack.ExtType(_EXT_SET if isinstance(value, set) else _EXT_FROZEN, _pack_nested(list(value), depth + 1))
    if isinstance(value, Tuple):  # held back by a bolt, which may ack and anchor it after a crash
        return msgpack.ExtType(_EXT_STORM_TUPLE, _pack_nested(pack_tuple(value), depth + 1))
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return _pack_integer(int(value))
    for plain in (dict, list, str, bytes, bool, int, float):
        if isinstance(value, plain) and not isinstance(value, np.generic):
            return cast("Any", plain)(value)
    return _default(value, depth)


_STATE_DEFAULTS = [partial(_state_default, depth=depth) for depth in range(MAX_NESTING + 1)]


def _pack_nested(state: Any, depth: int) -> bytes:
    if depth > MAX_NESTING:
        raise _too_deep()
    try:
        return msgpack.packb(state, default=_STATE_DEFAULTS[depth], use_bin_type=True, strict_types=True)
    except ValueError as error:
        if "recursion limit" in str(error):
            raise _too_deep() from error
        raise


def _too_deep() -> NestingError:
    return NestingError(
        f"a value is nested too deeply to be written; expected at most {MAX_NESTING} levels of tuples and sets in each other, and "
        "a few hundred of lists and mappings; hint: keep linked structures (lists of lists of lists) as one flat list"
    )


def pack_state(state: Any) -> bytes:
    """Encode a state as msgpack: plain values, tuples, sets, numpy arrays, pyarrow arrays, and tuples that a bolt holds back.

    :raises TypeError: a value of another type.
    :raises NestingError: a value is nested too deeply.
    """
    return _pack_nested(state, 0)


def unpack_state(data: bytes | memoryview) -> Any:
    """Decode what :func:`pack_state` wrote; numpy arrays come back read-only."""
    return msgpack.unpackb(data, ext_hook=_ext_hook, strict_map_key=False, raw=False)


def unpack_record(value: bytes) -> Any:
    """Decode the value of an inbox record; maps may have tuples as keys."""
    if len(value) <= _SHORT:  # msgpack refuses a header that claims more elements than there are bytes
        return msgpack.unpackb(value, ext_hook=_ext_hook, strict_map_key=False, raw=False, object_pairs_hook=_dict)
    try:
        return msgpack.unpackb(value, ext_hook=_ext_hook, strict_map_key=False, raw=False, object_pairs_hook=_dict, max_array_len=_SHORT, max_map_len=_SHORT)
    except ValueError as error:
        if "exceeds max_" not in str(error):
            raise
    _check_lengths(value)
    return msgpack.unpackb(value, ext_hook=_ext_hook, strict_map_key=False, raw=False, object_pairs_hook=_dict)


def pack_tuple(tup: Tuple) -> list[Any]:
    """Return a tuple that a bolt holds back as plain values, for its ``snapshot``."""
    meta = tup.meta
    return [list(tup.values), meta.component, meta.task, meta.stream, list(meta.fields), tup.message_id, tup.ack_val]


def unpack_tuple(state: list[Any]) -> Tuple:
    """Return the tuple that :func:`pack_tuple` encoded; it can be acked and used as an anchor."""
    values, component, task, stream, fields, message_id, ack_val = state
    tup = Tuple(tuple(values), StreamMeta(component, task, stream, Fields(fields)), None if message_id is None else tuple(message_id))
    tup.ack_val = ack_val
    return tup


# -- columns --------------------------------------------------------------------------------------


def slice_column(column: Any, start: int, stop: int) -> Any:
    """Return rows ``start`` to ``stop`` of a column, without a copy where the type allows it."""
    if isinstance(column, (list, tuple, np.ndarray)):
        return column[start:stop]
    return column.slice(start, stop - start)


def take_column(column: Any, rows: np.ndarray) -> Any:
    """Return the rows of a column with these numbers, in this order."""
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, (list, tuple)):
        return [column[i] for i in rows.tolist()]
    if n := len(rows):  # neighbours are a part of the column: to take a few rows costs much more than the rows
        first = int(rows[0])
        if int(rows[-1]) - first == n - 1 and (n <= 2 or (rows[1:] - rows[:-1] == 1).all()):
            return column.slice(first, n)
    return column.take(pa.array(rows))
