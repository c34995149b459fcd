"""Batches of deltas, as they travel from a subscription bolt to Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.spouts.columns import to_strings
from dskype.spouts.streams import Results
from dskype.topology.core.values import take_column
from dskype.topology.errors import IllegalArgumentException

__all__ = ["DeltaBatch"]

_TEXTS = frozenset({"subscriptions", "registrations", "messages", "metas"})


class DeltaBatch(NamedTuple):
    """Deltas in the order of publication, as columns of one length: arrays (numpy, pyarrow) or lists of plain values.

    A column that is None is absent.

    :ivar subscriptions: ids.
    :ivar registrations: ``"<partition>-<offset>"``.
    :ivar ops: int8, ``events.ADD``, ``REMOVE``, ``SCORE`` or one of ``MATCHES``; on the stream plus ``protocol.merging.PART`` for a change of one replica's list.
    :ivar watermarks: int64.
    :ivar messages: ids as JSON text; of an update of an object, ``,"object":`` and the object's id follow.
    :ivar scores: float64, read where the op is ``ADD``, ``SCORE`` or ``SCORED_MATCH``.
    :ivar ranks: int32, 1-based, read where the op is ``ADD`` or ``SCORE``.
    :ivar metas: JSON text of the subscriptions' ``meta``, or None; after :meth:`of` "" if a subscription has none.
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

    def encode(self, shared_messages: bool = False) -> Results:
        """Return the batch as it travels, with zeros and "" for absent columns.

        :param shared_messages: ids of messages are long, because fields are behind them; each travels once in a frame.
        :raises IllegalArgumentException: the columns differ in length.
        """
        n = len(self.subscriptions)
        check_lengths(self[:5])

        def numbers(column: Any, name: str) -> np.ndarray:
            dtype = Results.columns[name].dtype
            return np.zeros(n, dtype) if column is None else np.asarray(numbers_of(column), dtype)

        if self.metas is None:
            metas = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([""]))
        else:
            metas = pa.array(self.metas, pa.string()).fill_null("").dictionary_encode()
        return Results(
            subscription=to_strings(self.subscriptions).dictionary_encode(),
            registration=to_strings(self.registrations).dictionary_encode(),
            kind=numbers(self.ops, "kind"),
            watermark=numbers(self.watermarks, "watermark"),
            message=to_strings(self.messages).dictionary_encode() if shared_messages else to_strings(self.messages),
            score=numbers(self.scores, "score"),
            rank=numbers(self.ranks, "rank"),
            meta=metas,
            seq=numbers(self.seqs, "seq"),
            position=numbers(self.positions, "position"),
        )

    @classmethod
    def of(cls, results: Results) -> DeltaBatch:
        """Return the deltas in a batch of the stream."""
        return cls(
            subscriptions=results.subscription,
            registrations=results.registration,
            ops=results.kind,
            watermarks=results.watermark,
            messages=results.message,
            scores=results.score,
            ranks=results.rank,
            metas=results.meta,
            seqs=results.seq,
            positions=results.position,
        ).plain()

    def plain(self) -> DeltaBatch:
        """Return the same deltas with texts as pyarrow strings, and numbers as arrays; absent columns stay absent."""
        return DeltaBatch(
            *(None if column is None else to_strings(column) if name in _TEXTS else np.asarray(column) for name, column in self._asdict().items())
        )


def check_lengths(columns: Iterable[Any]) -> None:
    """Refuse columns of different lengths.

    :raises IllegalArgumentException: the lengths differ.
    """
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise IllegalArgumentException("The columns of deltas differ in length.", given=lengths)


def numbers_of(column: Any) -> Any:
    """Return a column of numbers, with 0 in place of each None in a list."""
    return [0 if number is None else number for number in column] if isinstance(column, list) else column
