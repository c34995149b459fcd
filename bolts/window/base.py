"""What a message window can do; implementations are chosen by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["WINDOWS", "Answers", "MessageWindow", "QueryBatch", "make_window"]


class QueryBatch(NamedTuple):
    """Many top-k queries as arrays, each at a watermark of its own.

    :ivar watermark: int64[n]; query *i* is over the positions in ``(watermark[i] - extent, watermark[i]]``.
    :ivar count: int64[n], how many messages are wanted at most.
    :ivar alpha: float64[n] in [0, 1], weight of the distance.
    :ivar lat: float64[n], degrees.
    :ivar lon: float64[n], degrees.
    :ivar offsets: int64[n + 1]; the keywords of query *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :ivar terms: int64[], term ids, rising within a query, each once; negative ones are unknown to the vocabulary.
    :ivar weights: float64[], their weights.
    """

    watermark: np.ndarray
    count: np.ndarray  # type: ignore[assignment]  # tuple.count is not used
    alpha: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray

    @property
    def n(self) -> int:
        """The number of queries."""
        return len(self.watermark)

    @classmethod
    def concat(cls, batches: Sequence[QueryBatch]) -> QueryBatch:
        """Return the queries of several batches, one after another."""
        if len(batches) == 1:
            return batches[0]
        if not batches:
            i, f = np.zeros(0, np.int64), np.zeros(0)
            return cls(i, i, f, f, f, np.zeros(1, np.int64), i, f)
        starts = np.cumsum([0, *(b.offsets[-1] - b.offsets[0] for b in batches)])
        offsets = [b.offsets[:-1] - b.offsets[0] + start for b, start in zip(batches, starts)]
        whole = [np.concatenate([b[i] for b in batches]) for i in range(5)]
        terms, weights = (np.concatenate([b[i][b.offsets[0] : b.offsets[-1]] for b in batches]) for i in (6, 7))
        watermark, count, alpha, lat, lon = whole
        return cls(watermark, count, alpha, lat, lon, np.concatenate([*offsets, starts[-1:]]).astype(np.int64), terms, weights)

    def take(self, rows: np.ndarray) -> QueryBatch:
        """Return the queries at ``rows``, in that order."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        index = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        watermark, count, alpha, lat, lon = (column[rows] for column in self[:5])
        return QueryBatch(watermark, count, alpha, lat, lon, offsets, self.terms[index], self.weights[index])


class Answers(NamedTuple):
    """The answers to a :class:`QueryBatch`, in its order.

    :ivar offsets: int64[n + 1]; the answer to query *i* are the rows ``offsets[i]`` to ``offsets[i + 1]``, in rank order:
        higher score first, then newer (position, then seq) first.
    :ivar seqs: int64[], sequence numbers of messages.
    :ivar positions: int64[].
    :ivar scores: float64[].
    """

    offsets: np.ndarray
    seqs: np.ndarray
    positions: np.ndarray
    scores: np.ndarray


class MessageWindow(ABC):
    """The messages of the sliding window, and those before it that may still be asked for.

    A message task owns one. It inserts messages in rising order of (position, seq) and asks for the best messages of
    windows that end at or before the newest one: a subscription task may ask late. What nobody can ask for any more is
    freed. The answers are exact at every watermark whose window has not been freed, however much is kept beside it.
    Scores are bit-identical to those of the subscription index: the common terms are added up in rising order of their
    ids, from 0.0, and both use :func:`dskype.bolts._kernels.score`.

    Implementations are registered in :data:`WINDOWS`, and take their options as keyword arguments. An empty window is
    made with ``cls(**options)``; :meth:`restore` is called on such a one.
    """

    @abstractmethod
    def insert(self, messages: MessageBatch, ids: Sequence[str] | pa.StringArray) -> None:
        """Add messages; called when the watermark has passed them.

        :param messages: in rising order of (position, seq), above all that were inserted before and above what was
            freed. The arrays may be read-only views of a received frame: copy what is kept. Messages without keywords
            are legal; no query finds them. An area lies at its centre, which ``lat`` and ``lon`` are; ``areas`` is not looked at.
        :param ids: the id of each message, as JSON text.
        :raises IllegalArgumentException: a message is out of order.
        """

    @abstractmethod
    def free(self, position: int) -> None:
        """Take note that no query will need a message at or below ``position``; called whenever that has risen.

        They may stay a little longer, a bounded number of them; a lower position than before
        has no effect.
        """

    @abstractmethod
    def topk(self, queries: QueryBatch, extent: int, diagonal_deg: float, thresholds: np.ndarray | None = None) -> Answers:
        """Return the best messages for each query: of those with a common keyword, in rank order.

        :param queries: at watermarks up to the newest message's and beyond; the arrays may be read-only.
        :param extent: |W|, or the span in ms.
        :param diagonal_deg: diagonal of the data space in degrees.
        :param thresholds: float64[n], what scores must not be below; default: any score will do.
        :raises IllegalArgumentException: a query needs messages that have been freed.
        """

    @abstractmethod
    def ids(self, seqs: np.ndarray, positions: np.ndarray) -> list[str]:
        """Return the ids of messages that an answer has named.

        :param seqs: int64[], sequence numbers, in any order, with repetitions.
        :param positions: int64[], their positions.
        :raises IllegalArgumentException: a message is not there (any more).
        """

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the state, of values that :func:`dskype.topology.core.frames.pack_state` takes."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Take over the state of another window of this class; its arrays are read-only."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many messages are kept, freed ones included that are still there."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """About how much memory the messages and the index take."""

    def _check(self) -> None:
        """Verify all invariants; for tests. Raises AssertionError."""


WINDOWS: dict[str, type[MessageWindow]] = {}
"""Name -> class, for ``dskype.window.index``; the package registers its own."""


def make_window(name: str, options: Mapping[str, Any] | None = None) -> MessageWindow:
    """Make an empty window.

    :param name: a key of :data:`WINDOWS`.
    :param options: its options; default none.
    :raises IllegalArgumentException: an unknown name, or options that the window does not take.
    """
    if name not in WINDOWS:
        raise IllegalArgumentException(explain("The message window is not known.", given=name, legal=", ".join(WINDOWS)))
    options = dict(options or {})
    parameters = signature(WINDOWS[name]).parameters
    if unknown := sorted(options.keys() - parameters.keys()):
        raise IllegalArgumentException(
            explain(f"The message window {name!r} does not know an option.", given=", ".join(unknown), legal=", ".join(parameters) or "none")
        )
    return WINDOWS[name](**options)
