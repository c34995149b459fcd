"""Deltas on their way from a subscription bolt to Kafka: batches of the stream ``results``, column by column, whatever columns the stream has.

The columns of a batch have one length. They are numpy or pyarrow arrays, or lists of plain values. A column that the maker of a batch does not know is None;
when the batch travels, 0 or "" takes its place in each row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dskype.spouts.columns import to_numbers, to_strings
from dskype.spouts.streams import Results
from dskype.topology.errors import IllegalArgumentException

__all__ = ["batch_of", "concat", "encoded", "length_of", "plain", "without_blanks"]

_COLUMNS = [(name, None if kind.dtype is str else kind.dtype, name in Results.optional) for name, kind in Results.columns.items()]
"""Name, dtype (None: texts), and whether a batch may lack the column."""


def length_of(batch: Results) -> int:
    """Return the number of deltas.

    :raises IllegalArgumentException: the columns differ in length.
    """
    if len({len(column) for column in batch.values() if column is not None}) > 1:
        lengths = {name: len(column) for name, column in zip(batch.columns, batch.values()) if column is not None}
        raise IllegalArgumentException("The columns of deltas differ in length.", given=lengths)
    return len(batch.kind)


def encoded(batch: Results, shared_messages: bool = False) -> Results:
    """Return a batch as it travels.

    :param shared_messages: ids of messages are long, because fields are behind them; each travels once in a frame.
    :raises IllegalArgumentException: the columns differ in length.
    """
    n, columns = length_of(batch), []
    for (name, dtype, optional), column in zip(_COLUMNS, batch.values()):
        if dtype is not None:
            columns.append(np.zeros(n, dtype) if column is None else to_numbers(column, dtype))
        elif column is None:
            columns.append(pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([""])))
        else:
            texts = to_strings(column).fill_null("") if optional else to_strings(column)
            columns.append(texts if name == "message" and not shared_messages else texts.dictionary_encode())
    return Results.make(columns)


def plain(batch: Results) -> Results:
    """Return the same deltas with texts as pyarrow strings, and numbers as arrays. Columns that are None stay so."""
    columns = zip(_COLUMNS, batch.values())
    return Results.make([None if column is None else to_strings(column) if dtype is None else to_numbers(column, dtype) for (_, dtype, _), column in columns])


def concat(batches: Sequence[Results]) -> Results:
    """Return plain deltas, one batch after another. The same columns of all batches are None."""
    if len(batches) == 1:
        return batches[0]
    columns = zip(*(batch.values() for batch in batches))
    return Results.make(
        [None if parts[0] is None else np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts) for parts in columns]
    )


def batch_of(rows: Sequence[Results]) -> Results:
    """Return single deltas as a plain batch. A column is None if it is None in all of them."""
    columns = zip(*(row.values() for row in rows))
    return plain(Results.make([None if column.count(None) == len(column) else list(column) for column in columns]))


def without_blanks(batch: Results) -> Results:
    """Return plain deltas that have arrived, with None in place of each "" in optional columns; a column of nothing else becomes None."""
    columns = list(batch.values())
    for i, (_, dtype, optional) in enumerate(_COLUMNS):
        if dtype is None and optional and columns[i] is not None:
            blank = pc.equal(columns[i], "")
            columns[i] = None if pc.all(blank).as_py() else pc.if_else(blank, None, columns[i])
    return Results.make(columns)
