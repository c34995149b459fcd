"""Java's hash codes, so that a fields grouping chooses the same task as Apache Storm does.

Storm hashes the selected values with ``Arrays.deepHashCode(list.toArray())``. Unlike Python's salted ``hash()``, the
result is equal in every process, on every machine and after every restart. Python values correspond to Java values:

====================  ==============================================================================================
Python                Java
====================  ==============================================================================================
None                  null: 0
bool, numpy bool      Boolean: 1231 or 1237
int, numpy integer    Long; beyond 64 bits BigInteger
float, numpy float    Double: its bits, one NaN, -0.0 differs from 0.0
str                   String: 31*h + unit over UTF-16 units, two units for a character beyond U+FFFF
bytes-like            byte[]: 31*h + signed byte, from 1
list, tuple, ndarray  List: 31*h + hash of element, from 1
dict                  Map: sum of hash(key) ^ hash(value)
set, frozenset        Set: sum of the elements' hashes
====================  ==============================================================================================

Values of other types are refused. All results are signed 32-bit integers. Single values are hashed in plain Python,
columns by the kernels in ``_kernels.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dskype.topology.errors import IllegalArgumentException

__all__ = [
    "bytes_hash",
    "deep_hash",
    "double_hash",
    "hash_column",
    "hash_columns",
    "kernels",
    "key_bytes_seed",
    "long_hash",
    "string_hash",
    "two_candidates",
    "value_hash",
]

_MASK = 0xFFFFFFFF
_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1

_pack_double = struct.Struct("<d").pack
_unpack_halves = struct.Struct("<II").unpack


def _int32(h: int) -> int:
    h &= _MASK
    return h - 0x100000000 if h & 0x80000000 else h


def string_hash(s: str) -> int:
    """Return ``String.hashCode()`` of ``s``: over UTF-16 units, lone surrogates included."""
    h = 0
    if s.isascii():
        for unit in s.encode("ascii"):
            h = (31 * h + unit) & _MASK
    else:
        for unit in memoryview(s.encode("utf-16-le", "surrogatepass")).cast("H"):
            h = (31 * h + unit) & _MASK
    return h - 0x100000000 if h & 0x80000000 else h


def long_hash(v: int) -> int:
    """Return ``Long.hashCode()`` of ``v``; beyond 64 bits ``BigInteger.hashCode()``."""
    if _INT64_MIN <= v <= _INT64_MAX:
        return _int32(v ^ (v >> 32))
    magnitude = abs(v)
    h = 0
    for shift in range((magnitude.bit_length() - 1) // 32 * 32, -1, -32):
        h = (31 * h + ((magnitude >> shift) & _MASK)) & _MASK
    return _int32(-h if v < 0 else h)


def double_hash(v: float) -> int:
    """Return ``Double.hashCode()`` of ``v``: equal for all NaNs, different for -0.0 and 0.0."""
    if v != v:
        return 2146959360
    low, high = _unpack_halves(_pack_double(v))
    h = low ^ high
    return h - 0x100000000 if h & 0x80000000 else h


def bool_hash(v: bool) -> int:
    """Return ``Boolean.hashCode()`` of ``v``."""
    return 1231 if v else 1237


def bytes_hash(v: bytes | bytearray | memoryview) -> int:
    """Return ``Arrays.hashCode(byte[])`` of ``v``."""
    h = 1
    for b in bytes(v):
        h = (31 * h + b - ((b & 0x80) << 1)) & _MASK
    return h - 0x100000000 if h & 0x80000000 else h


def deep_hash(values: Iterable[Any]) -> int:
    """Return ``Arrays.deepHashCode`` of the values, which Storm's fields grouping takes modulo the number of tasks.

    :raises IllegalArgumentException: the type of a value has no portable hash.
    """
    h = 1
    for value in values:
        h = (31 * h + value_hash(value)) & _MASK
    return h - 0x100000000 if h & 0x80000000 else h


def _none_hash(_: None) -> int:
    return 0


def _dict_hash(v: dict) -> int:
    return _int32(sum(value_hash(key) ^ value_hash(value) for key, value in v.items()))


def _set_hash(v: Iterable[Any]) -> int:
    return _int32(sum(map(value_hash, v)))


_HASHERS: dict[type, Callable[[Any], int]] = {
    str: string_hash,
    int: long_hash,
    float: double_hash,
    bool: bool_hash,
    type(None): _none_hash,
    bytes: bytes_hash,
    bytearray: bytes_hash,
    memoryview: bytes_hash,
    list: deep_hash,
    tuple: deep_hash,
    dict: _dict_hash,
    set: _set_hash,
    frozenset: _set_hash,
}


def value_hash(value: Any) -> int:
    """Return the Java hash code of one value (see the table above).

    :raises IllegalArgumentException: the type of the value has no portable hash.
    """
    hasher = _HASHERS.get(value.__class__)
    return hasher(value) if hasher is not None else _other_hash(value)


def _other_hash(value: Any) -> int:
    """Hash numpy scalars and arrays, and subclasses of the known types."""
    if isinstance(value, np.generic):
        if isinstance(value, (np.bool_, np.integer, np.floating, np.str_, np.bytes_)) and not isinstance(value, np.timedelta64):
            return value_hash(value.item())
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "biufSUO":
            return deep_hash(value.tolist())
    else:
        for base in type(value).__mro__[1:]:
            if base in _HASHERS:
                return _HASHERS[base](value)
    raise IllegalArgumentException(
        f"A fields grouping cannot hash a value of type {type(value).__module__}.{type(value).__qualname__}.",
        given=value,
        legal="None, bool, int, float, str, bytes, and lists, tuples, dicts, sets and numpy values of these",
        hint="group by a field that holds the value as a string or a number",
    )


# --- partial key grouping ---------------------------------------------------------------------------------------------


def key_bytes_seed(hashes: Iterable[int]) -> int:
    """Return ``Arrays.hashCode`` of the big-endian bytes of the hashes, the seed of Storm's partial key grouping.

    :param hashes: hash codes of the key's values, in field order.
    """
    h = 1
    for value in hashes:
        for shift in (24, 16, 8, 0):
            b = (value >> shift) & 0xFF
            h = (31 * h + b - ((b & 0x80) << 1)) & _MASK
    return _int32(h)


_LCG_MULTIPLIER = 0x5DEECE66D
_LCG_MASK = (1 << 48) - 1


def _next_int(state: int, bound: int) -> tuple[int, int]:
    """Return (new state, ``java.util.Random.nextInt(bound)``)."""
    while True:
        state = (state * _LCG_MULTIPLIER + 0xB) & _LCG_MASK
        bits = state >> 17
        if bound & (bound - 1) == 0:
            return state, (bound * bits) >> 31
        value = bits % bound
        if bits - value + (bound - 1) <= 0x7FFFFFFF:
            return state, value


def two_candidates(seed: int, num_tasks: int) -> tuple[int, int]:
    """Return the two task indices of a key; they differ if there is more than one task.

    :param seed: from :func:`key_bytes_seed`; the seed of ``java.util.Random``, as in Storm.
    :param num_tasks: number of target tasks, >= 1.
    """
    state = (seed ^ _LCG_MULTIPLIER) & _LCG_MASK
    state, first = _next_int(state, num_tasks)
    _, second = _next_int(state, num_tasks)
    if first == second:
        second = (second + 1) % num_tasks
    return first, second


# --- columns ----------------------------------------------------------------------------------------------------------


def kernels() -> ModuleType:
    """Return the module of compiled kernels, imported on first use.

    Importing numba takes a quarter of a second, as much as the rest of the emulator; topologies that group no columns do not need it.
    """
    from dskype.topology.routing import _kernels

    return _kernels


def hash_columns(columns: Sequence[Any], n: int) -> np.ndarray:
    """Return :func:`deep_hash` of every row.

    :param columns: the columns in the order of the grouping's fields, each of length ``n``.
    :returns: int32 array of length ``n``.
    """
    h = np.ones(n, np.int32)
    for column in columns:
        kernels().combine(h, hash_column(column))
    return h


def hash_column(column: Any) -> np.ndarray:
    """Return :func:`value_hash` of every value of a column.

    It is fast for bool, integer and float numpy arrays and for pyarrow string, binary, number and dictionary arrays (each
    dictionary entry is hashed once). Other columns are hashed value by value.

    :returns: int32 array.
    """
    if isinstance(column, np.ndarray):
        return _hash_numpy(column)
    if isinstance(column, (list, tuple)):
        return _hash_list(column)
    if type(column).__module__.startswith("pyarrow"):
        return _hash_arrow(column)
    return _hash_list(list(column))


_KERNEL_FROM = 32
"""Number of rows from which building an array for a kernel is faster."""


def _hash_list(values: Sequence[Any]) -> np.ndarray:
    """Hash a list; as one array if all values are of one plain type, else value by value."""
    if len(values) >= _KERNEL_FROM:
        kinds = set(map(type, values))
        kinds.discard(type(None))
        if kinds == {str}:
            try:
                return _hash_arrow(pa.array(values, pa.large_string()))
            except UnicodeEncodeError:  # lone surrogates cannot be encoded as UTF-8
                pass
        elif len(kinds) == 1 and kinds <= {int, float, bool} and None not in values:
            try:
                return _hash_numpy(np.array(values, {int: np.int64, float: np.float64, bool: np.bool_}[kinds.pop()]))
            except OverflowError:  # beyond 64 bits
                pass
    return np.array([value_hash(value) for value in values], np.int32)


def _hash_numpy(column: np.ndarray) -> np.ndarray:
    kind = column.dtype.kind
    if column.ndim == 1:
        if kind == "b":
            return kernels().hash_bool(column)
        if kind == "i" or (kind == "u" and column.dtype.itemsize < 8):
            return kernels().hash_int64(column.astype(np.int64, copy=False))
        if kind == "u" and (len(column) == 0 or column.max() <= _INT64_MAX):
            return kernels().hash_int64(column.astype(np.int64))
        if kind == "f" and column.dtype.itemsize <= 8:
            return kernels().hash_float64(column.astype(np.float64, copy=False))
    if kind in "mMV":
        # tolist() would turn these into integers or dates, and hide that they have no Java counterpart.
        return _hash_list(list(column))
    return _hash_list(column.tolist())


def _hash_arrow(column: Any) -> np.ndarray:
    if isinstance(column, pa.ChunkedArray):
        parts = [_hash_arrow(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)
    kind = column.type
    if pa.types.is_dictionary(kind):
        # An extra last entry with hash 0 stands for null.
        hashes = np.append(_hash_arrow(column.dictionary), np.int32(0)).astype(np.int32, copy=False)
        codes = column.indices
        if codes.null_count:
            codes = pc.fill_null(codes.cast(pa.int64()), len(hashes) - 1)
        return hashes[codes.to_numpy(zero_copy_only=False)]
    if pa.types.is_string_view(kind):
        column = column.cast(pa.large_string())
    elif pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.large_binary())
    kind = column.type
    if len(column) == 0:
        return np.empty(0, np.int32)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        out = kernels().hash_utf8(*_offsets_and_data(column))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        out = kernels().hash_bytes(*_offsets_and_data(column))
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        filled = pc.fill_null(column, False if pa.types.is_boolean(kind) else pa.scalar(0, kind)) if column.null_count else column
        out = _hash_numpy(filled.to_numpy(zero_copy_only=False))
    else:
        return _hash_list(column.to_pylist())
    if column.null_count:
        out[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return out


def _offsets_and_data(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return (n + 1 offsets, bytes) of an Arrow string or binary array, also of a slice, without a copy."""
    _, offsets, data = column.buffers()
    width = np.int64 if str(column.type).startswith("large_") else np.int32
    bounds = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
    return bounds, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
