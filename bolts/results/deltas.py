"""Batches of deltas, as they travel from a subscription bolt to Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.spouts.columns import to_strings
from dskype.topology.core.values import take_column
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["DeltaBatch"]

_NUMBERS = {"ops": np.int8, "watermarks": np.int64, "scores": np.float64, "ranks": np.int32, "seqs": np.int64, "positions": np.int64}


class DeltaBatch(NamedTuple):
    """Deltas in the order of publication, as columns of one length: arrays (numpy, pyarrow) or lists of plain values.

    The fields and their order are those of the stream ``results``. A column that is None is absent.

    :ivar subscriptions: ids.
    :ivar registrations: ``"<partition>-<offset>"``.
    :ivar ops: int8, ``events.ADD``, ``REMOVE`` or ``MATCH``; on the stream plus ``replication.messages.PART`` for a change of one replica's list.
    :ivar watermarks: int64.
    :ivar messages: ids as JSON text.
    :ivar scores: float64, read where the op is ``ADD``.
    :ivar ranks: int32, 1-based, read where the op is ``ADD``.
    :ivar metas: JSON text of the subscriptions' ``meta``, or None; after :meth:`decode` "" if a subscription has none.
    :ivar seqs: int64, sequence numbers of the messages; for merging only.
    :ivar positions: int64, positions of the messages; for merging only.
    """

    subscriptions: Any
    registrations: Any
    ops: Any
    watermarks: Any
    messages: Any
    scores: Any = None
    ranks: Any = None
    metas: Any = None
    seqs: Any = None
    positions: Any = None

    def select(self, rows: np.ndarray) -> DeltaBatch:
        """Return the deltas at ``rows`` (integers), in that order; absent columns stay absent."""
        return DeltaBatch(*(None if column is None else take_column(column, rows) for column in self))

    @classmethod
    def concat(cls, batches: Sequence[DeltaBatch]) -> DeltaBatch:
        """Return the deltas of decoded batches, one batch after another."""
        if len(batches) == 1:
            return batches[0]
        return cls(
            *(None if parts[0] is None else np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts) for parts in zip(*batches))
        )

    def encode(self) -> list[Any]:
        """Return the columns of the stream ``results``, with zeros and "" for absent columns.

        :raises IllegalArgumentException: the columns differ in length.
        """
        n = len(self.subscriptions)
        check_lengths(self[:5])
        numbers = {
            name: np.zeros(n, dtype) if (column := getattr(self, name)) is None else np.asarray(numbers_of(column), dtype) for name, dtype in _NUMBERS.items()
        }
        texts = [to_strings(column).dictionary_encode() for column in self[:2]]
        if self.metas is None:
            metas = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([""]))
        else:
            metas = pa.array(self.metas, pa.string()).fill_null("").dictionary_encode()
        return list(DeltaBatch(*texts, messages=to_strings(self.messages), metas=metas, **numbers))

    @classmethod
    def decode(cls, columns: Sequence[Any]) -> DeltaBatch:
        """Return the batch in columns of the stream ``results``, or in its first columns: texts as pyarrow strings, numbers as arrays."""
        return cls(*(np.asarray(column) if name in _NUMBERS else to_strings(column) for name, column in zip(cls._fields, columns)))


def check_lengths(columns: Iterable[Any]) -> None:
    """Refuse columns of different lengths.

    :raises IllegalArgumentException: the lengths differ.
    """
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise IllegalArgumentException(explain("The columns of deltas differ in length.", given=lengths))


def numbers_of(column: Any) -> Any:
    """Return a column of numbers, with 0 in place of each None in a list."""
    return [0 if number is None else number for number in column] if isinstance(column, list) else column
