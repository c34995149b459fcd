"""Columns as kernels take them: read-only views, and lists of numbers as (offsets, values) in place of the form that frames carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dskype.topology.errors import IllegalArgumentException

__all__ = ["csr_to_lists", "distinct", "empty_lists", "lists_to_csr", "read_only", "to_numbers", "to_strings"]

_MOST_VALUES = np.iinfo(np.int32).max


def read_only(array: np.ndarray, dtype: Any = None) -> np.ndarray:
    """Return a read-only, contiguous view of ``dtype`` (default: its own), so that kernels are compiled for one kind of input, whether the array can be written to or not."""
    view = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view


def distinct(*columns: np.ndarray) -> np.ndarray:
    """Return the different numbers of columns, rising: what ``np.unique`` returns. O(n log n).

    ``np.unique`` of whole numbers uses a hash table since numpy 2.3, and takes eight times as long for 1,000 of them and 26 times for 100,000 (docs/tuning.md).
    """
    numbers = np.sort(np.concatenate(columns))
    first = np.ones(len(numbers), bool)
    np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
    return numbers[first]


def lists_to_csr(column: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the lists of a column as (offsets, values): list *i* is ``values[offsets[i]:offsets[i + 1]]``.

    :param column: a pyarrow array of lists (no copy where the type of its numbers fits), or a sequence of lists or
        one-dimensional arrays. A null among the lists is an empty list.
    :param dtype: type of the values, e.g. ``np.int64``.
    :returns: offsets, int64[n + 1] from 0, and the values; they may be read-only.
    :raises IllegalArgumentException: the column holds no lists of numbers.
    """
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return _from_arrow(column, dtype)
    offsets = np.zeros(len(column) + 1, np.int64)
    try:
        parts = [np.asarray(() if values is None else values, dtype) for values in column]
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_lists(column, dtype) from error
    if any(part.ndim != 1 for part in parts):
        raise _no_lists(column, dtype)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return offsets, np.concatenate(parts) if parts else np.zeros(0, dtype)


def _from_arrow(column: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return lists_to_csr(column.to_pylist(), dtype)
    if column.null_count:
        column = pa.array(column.to_pylist(), column.type)  # values under a null are undefined: make its list empty
    offsets = column.offsets.to_numpy().astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    values = column.values.slice(first, last - first)
    if values.null_count or not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or not len(values)):
        raise _no_lists(column, dtype)
    if not len(values):
        return offsets - first, np.zeros(0, dtype)
    return offsets - first, values.to_numpy().astype(dtype, copy=False)


def _no_lists(column: Any, dtype: Any) -> IllegalArgumentException:
    return IllegalArgumentException(
        "A column does not hold lists of numbers.",
        given=f"{column!r:.200}",
        legal=f"a pyarrow array of lists, or a sequence of lists, of {np.dtype(dtype).name}",
    )


def csr_to_lists(offsets: np.ndarray, values: np.ndarray) -> pa.ListArray:
    """Return a column of lists; the opposite of :func:`lists_to_csr`.

    :param offsets: int64[n + 1], rising; they need not begin at 0.
    :param values: int64[] or float64[]; not copied.
    :raises IllegalArgumentException: more values than a column can have (2^31 - 1).
    """
    if len(offsets) and offsets[-1] > _MOST_VALUES:
        values = values[offsets[0] : offsets[-1]]
        offsets = np.asarray(offsets) - offsets[0]
        if offsets[-1] > _MOST_VALUES:
            raise IllegalArgumentException(
                "A column of lists has too many values.", given=int(offsets[-1]), legal=f"at most {_MOST_VALUES}", hint="emit fewer tuples at once"
            )
    return pa.ListArray.from_arrays(pa.array(np.asarray(offsets, np.int32)), pa.array(values))


def to_strings(column: Any) -> pa.StringArray:
    """Return a column of texts as a pyarrow string array, without a copy where it is one.

    :param column: a pyarrow array of strings, plain or dictionary, or a sequence of str.
    """
    if isinstance(column, pa.StringArray):
        return column
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.Array):
        return column.cast(pa.string())
    return pa.array(column, pa.string())


def to_numbers(column: Any, dtype: Any) -> np.ndarray:
    """Return a column of numbers as an array of ``dtype``, without a copy where it is one, with 0 in place of each None in a list."""
    return np.asarray([0 if number is None else number for number in column] if isinstance(column, list) else column, dtype)


def empty_lists(n: int, dtype: Any) -> pa.ListArray:
    """Return a column of ``n`` empty lists."""
    return csr_to_lists(np.zeros(n + 1, np.int64), np.zeros(0, dtype))
