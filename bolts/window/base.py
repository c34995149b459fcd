"""The contract of message windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.bolts.ranked_lists import RankedLists
from dskype.spouts.batch import MessageBatch, select_lists
from dskype.spouts.columns import csr_to_lists, lists_to_csr
from dskype.spouts.streams import Requests
from dskype.topology.errors import IllegalArgumentException, explain
from dskype.topology.plugins import Plugins

__all__ = ["WINDOWS", "MessageWindow", "QueryBatch", "make_window"]


class QueryBatch(NamedTuple):
    """Many top-k queries as columns, each at its own watermark.

    :ivar watermark: int64[n]; query *i* is over the positions in ``(watermark[i] - extent, watermark[i]]``.
    :ivar wanted: int64[n], the most messages wanted.
    :ivar alpha: float64[n] in [0, 1], weight of the distance.
    :ivar lat: float64[n], degrees.
    :ivar lon: float64[n], degrees.
    :ivar offsets: int64[n + 1]; the keywords of query *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :ivar terms: int64[], term ids, rising within a query, each once; negative ones are unknown to the vocabulary.
    :ivar weights: float64[], their weights.
    :ivar scale_m: float64[n], the great-circle distance from which on the spatial similarity is 0; 0: that of a query is in degrees. None: all are.
    """

    watermark: np.ndarray
    wanted: np.ndarray
    alpha: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray
    scale_m: np.ndarray | None = None

    @classmethod
    def of(cls, requests: Requests) -> QueryBatch:
        """Return the queries in a batch of requests; their arrays may be read-only views of the frame."""
        offsets, terms = lists_to_csr(requests.terms, np.int64)
        scale_m = np.zeros(0) if requests.scale_m is None else np.asarray(requests.scale_m, np.float64)  # NaN in frames of earlier versions
        return cls(
            watermark=np.asarray(requests.watermark, np.int64),
            wanted=np.asarray(requests.count, np.int64),
            alpha=np.asarray(requests.alpha, np.float64),
            lat=np.asarray(requests.lat, np.float64),
            lon=np.asarray(requests.lon, np.float64),
            offsets=offsets,
            terms=terms,
            weights=lists_to_csr(requests.weights, np.float64)[1],
            scale_m=np.nan_to_num(scale_m) if (scale_m > 0).any() else None,
        )

    def columns(self) -> dict[str, Any]:
        """Return the columns of :class:`Requests` that hold the queries."""
        return {
            "watermark": self.watermark,
            "count": self.wanted,
            "alpha": self.alpha,
            "lat": self.lat,
            "lon": self.lon,
            **{name: csr_to_lists(self.offsets, getattr(self, name)) for name in ("terms", "weights")},
            "scale_m": self.scales_m(),
        }

    def scales_m(self) -> np.ndarray:
        """Return ``scale_m``, also if all are in degrees."""
        return np.zeros(self.n) if self.scale_m is None else self.scale_m

    def numbers(self) -> tuple[np.ndarray, ...]:
        """Return the columns with one number for each query, but for ``scale_m``."""
        return self.watermark, self.wanted, self.alpha, self.lat, self.lon

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
        watermark, wanted, alpha, lat, lon = (np.concatenate(columns) for columns in zip(*(b.numbers() for b in batches)))
        terms, weights = (np.concatenate([getattr(b, name)[b.offsets[0] : b.offsets[-1]] for b in batches]) for name in ("terms", "weights"))
        scale_m = None if all(b.scale_m is None for b in batches) else np.concatenate([b.scales_m() for b in batches])
        return cls(watermark, wanted, alpha, lat, lon, np.concatenate([*offsets, starts[-1:]]).astype(np.int64), terms, weights, scale_m)

    def select(self, rows: np.ndarray) -> QueryBatch:
        """Return the queries at ``rows``, in that order."""
        offsets, index = select_lists(self.offsets, rows)
        watermark, wanted, alpha, lat, lon = (column[rows] for column in self.numbers())
        scale_m = None if self.scale_m is None else self.scale_m[rows]
        return QueryBatch(watermark, wanted, alpha, lat, lon, offsets, self.terms[index], self.weights[index], scale_m)


class MessageWindow(ABC):
    """The messages of the sliding window, and older ones that requests may still need.

    A message task owns one. It inserts messages in rising order of (position, seq), and queries the best messages of windows that
    end at or before the newest message, because a subscription task may ask late. Messages that no request can need are freed.
    Answers are exact at every watermark whose window has not been freed, however many older messages are kept. Scores are equal
    to those of the subscription index to the last bit: both sum up the common terms from 0.0 in rising order of their ids, and use
    :func:`dskype.spouts.score_kernels.score`.

    Implementations are registered in :data:`WINDOWS`, and take their options as keyword arguments. ``cls(**options)`` makes an
    empty window, on which :meth:`restore` may be called.
    """

    ends: ClassVar[bool] = False
    """Whether messages may end before they leave the window, see :meth:`end`."""

    @abstractmethod
    def insert(self, messages: MessageBatch, ids: Sequence[str] | pa.StringArray) -> None:
        """Add messages; called when the watermark has passed them.

        :param messages: in rising order of (position, seq), above all earlier messages and above the freed positions. The
            arrays may be read-only views of a received frame, so copy the values to keep. Messages without keywords are
            legal; no query finds them. An area lies at its centre, ``lat`` and ``lon``; ``areas`` is not used.
        :param ids: the id of each message, as JSON text.
        :raises IllegalArgumentException: a message is out of order.
        """

    @abstractmethod
    def free(self, position: int) -> None:
        """Free the messages at or below ``position``, which no query will need; called whenever that position has risen.

        A bounded number of them may stay a little longer. A position that is lower than before has no effect.
        """

    def end(self, seqs: np.ndarray, positions: np.ndarray, at: np.ndarray) -> None:
        """Let messages count up to a position only: queries at watermarks from there on leave them out. Only where :attr:`ends` says so.

        :param seqs: int64[n], and ``positions``, int64[n]: messages that are there; others are ignored.
        :param at: int64[n], where each ends.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot take a message out")

    def ended(self, watermark: int) -> np.ndarray:
        """Tell which of the messages in memory have ended at a watermark (bool[len(self)]). Default: none."""
        return np.zeros(len(self), np.bool_)

    @abstractmethod
    def topk(self, queries: QueryBatch, extent: int, diagonal_deg: float, thresholds: np.ndarray | None = None) -> RankedLists:
        """Return a list for each query: the best messages with a common keyword.

        :param queries: at any watermarks whose windows are not freed; the arrays may be read-only. Distances are in degrees, or in metres where
            ``queries.scale_m`` says so (:func:`dskype.spouts.score_kernels.ssim_in_metres`).
        :param extent: |W|, or the span in ms.
        :param diagonal_deg: diagonal of the data space in degrees.
        :param thresholds: float64[n], the least score for each query; default: any score.
        :raises IllegalArgumentException: a query needs freed messages.
        """

    @abstractmethod
    def ids(self, seqs: np.ndarray, positions: np.ndarray) -> list[str]:
        """Return the ids of messages in an answer.

        :param seqs: int64[], sequence numbers, in any order, with repetitions.
        :param positions: int64[], their positions.
        :raises IllegalArgumentException: a message is not in the window.
        """

    @abstractmethod
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (lat, lon), float64[len(self)] in degrees, of the messages in memory, in their order; valid until the next change."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the state, as values that :func:`dskype.topology.core.frames.pack_state` accepts."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the state of another window of this class, whose arrays are read-only."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of messages in memory, including freed ones."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """The approximate memory of messages and index, in bytes."""

    def _check(self) -> None:
        """Verify all invariants; for tests. Raises AssertionError."""


WINDOWS: Plugins[MessageWindow] = Plugins("dskype.window.index", {"chunks": "dskype.bolts.window.chunks:ChunkWindow"})
"""Windows by their names in ``dskype.window.index``."""


def make_window(name: str, options: Mapping[str, Any] | None = None) -> MessageWindow:
    """Make an empty window.

    :param name: a key of :data:`WINDOWS`.
    :param options: its options; default: none.
    :raises IllegalArgumentException: an unknown name or option.
    """
    if name not in WINDOWS:
        raise IllegalArgumentException(explain("The message window is not known.", given=name, legal=", ".join(WINDOWS)))
    options = dict(options or {})
    parameters = signature(WINDOWS[name]).parameters if options else {}
    if unknown := sorted(options.keys() - parameters.keys()):
        raise IllegalArgumentException(
            explain(f"The message window {name!r} does not know an option.", given=", ".join(unknown), legal=", ".join(parameters) or "none")
        )
    return WINDOWS[name](**options)
