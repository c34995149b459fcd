"""Deltas on their way from a subscription bolt to Kafka: batches of the stream ``results``, column by column, whatever columns the stream has.

A batch that is made has columns of one length: numpy or pyarrow arrays, or lists of plain values. It lacks (None) what its maker does not know.
Where it arrives nothing is lacking: 0 and "" stand for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dskype.spouts.columns import to_numbers, to_strings
from dskype.spouts.streams import Results
from dskype.topology.errors import IllegalArgumentException

__all__ = ["batch_of", "concat", "encoded", "length_of", "plain", "without_blanks"]


def length_of(batch: Results) -> int:
    """Return the number of deltas.

    :raises IllegalArgumentException: the columns differ in length.
    """
    lengths = {name: len(column) for name, column in zip(batch.columns, batch.values()) if column is not None}
    if len(set(lengths.values())) > 1:
        raise IllegalArgumentException("The columns of deltas differ in length.", given=lengths)
    return len(batch.kind)


def encoded(batch: Results, shared_messages: bool = False) -> Results:
    """Return a batch as it travels.

    :param shared_messages: ids of messages are long, because fields are behind them; each travels once in a frame.
    :raises IllegalArgumentException: the columns differ in length.
    """
    n, columns = length_of(batch), []
    for (name, kind), column in zip(batch.columns.items(), batch.values()):
        if kind.dtype is not str:
            columns.append(np.zeros(n, kind.dtype) if column is None else to_numbers(column, kind.dtype))
        elif column is None:
            columns.append(pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([""])))
        else:
            texts = to_strings(column)
            texts = texts.fill_null("") if name in batch.optional else texts
            columns.append(texts if name == "message" and not shared_messages else texts.dictionary_encode())
    return Results.make(columns)


def plain(batch: Results) -> Results:
    """Return the same deltas with texts as pyarrow strings, and numbers as arrays; what they lack is lacking."""

    def column_of(column: Any, dtype: Any) -> Any:
        return None if column is None else to_strings(column) if dtype is str else to_numbers(column, dtype)

    return Results.make([column_of(column, kind.dtype) for kind, column in zip(batch.columns.values(), batch.values())])


def concat(batches: Sequence[Results]) -> Results:
    """Return plain deltas that lack the same columns, one batch after another."""
    if len(batches) == 1:
        return batches[0]
    columns = zip(*(batch.values() for batch in batches))
    return Results.make(
        [None if parts[0] is None else np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts) for parts in columns]
    )


def batch_of(rows: Sequence[Results]) -> Results:
    """Return single deltas as a plain batch; it lacks what all of them lack."""
    columns = zip(*(row.values() for row in rows))
    return plain(Results.make([None if all(value is None for value in column) else list(column) for column in columns]))


def without_blanks(batch: Results) -> Results:
    """Return plain deltas that have arrived with None in place of each "" that stands for nothing; a column of these is lacking."""

    def column_of(name: str, column: Any) -> Any:
        if name not in batch.optional or not isinstance(column, pa.Array):
            return column
        blank = pc.equal(column, "")
        return None if pc.all(blank).as_py() else pc.if_else(blank, None, column)

    return Results.make(list(map(column_of, batch.columns, batch.values())))
