"""The contract of subscription indexes: which subscriptions a message concerns.

A subscription lives in a *slot*, a small number that is reused after the subscription is removed. ``TopkEngine`` hands out slots and
combines two parts. A :class:`SubscriptionIndex` finds the slots whose threshold a message reaches.
:class:`~dskype.bolts.topk.buffers.base.ResultBuffers` hold the best messages of every slot, publish its top-k list, and set the threshold.

Rank order is the same everywhere: score descending, then newer first (position, then seq).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.topk.table import SubscriptionTable
from dskype.spouts.batch import MessageBatch

__all__ = ["Changes", "Matches", "SubscriptionIndex"]


class Matches(NamedTuple):
    """Pairs of a message and a slot, ordered by message, then slot.

    :ivar message: int32[n], row of the batch.
    :ivar slot: int32[n].
    :ivar score: float64[n].
    """

    message: np.ndarray
    slot: np.ndarray
    score: np.ndarray


class Changes(NamedTuple):
    """Changes of top-k lists, ordered by watermark, slot, removals before additions, rank.

    For every watermark *w*, the changes up to *w* turn the previous list of an active slot into its list at *w*.

    :ivar slot: int32[n].
    :ivar op: int8[n]: 0, the message entered the list; 1, it left; ``events.SCORE``, where a list was taken over from an earlier registration: its score has changed.
    :ivar seq: int64[n].
    :ivar score: float64[n].
    :ivar rank: int32[n], from 1, in the list after all changes at that watermark; 0 for a message that left.
    :ivar watermark: int64[n].
    :ivar due: int32[], rising: slots that became pending; the caller requests their windows at the current watermark.
    :ivar touched: int32[], rising: slots whose lists changed or were published again.
    """

    slot: np.ndarray
    op: np.ndarray
    seq: np.ndarray
    score: np.ndarray
    rank: np.ndarray
    watermark: np.ndarray
    due: np.ndarray
    touched: np.ndarray


class SubscriptionIndex(ABC):
    """Finds the subscriptions that a message reaches.

    ``self.table`` has what every index needs: place, alpha, threshold, and keywords with dense ids. An index links slots into its own
    structures. These are not part of a snapshot: a restored index may look different inside, but being exact it gives the same answers.

    :param diagonal_deg: diagonal of the data space in degrees, the distance at which the spatial similarity is 0.
    :param word_fields: further fields of the keywords in ``table``: name -> dtype. An implementation takes its own options in place of them;
        an unknown option is a TypeError.
    """

    def __init__(self, diagonal_deg: float, **word_fields: type) -> None:
        self.diagonal_deg = float(diagonal_deg)
        self.table = SubscriptionTable(**word_fields)

    # -- what an implementation provides

    @abstractmethod
    def link(self, slots: np.ndarray) -> None:
        """Enter new slots. Called by :meth:`insert` when ``self.table`` holds them, with threshold -inf.

        :param slots: int32[n], rising, none of them linked.
        """

    @abstractmethod
    def unlink(self, slots: np.ndarray) -> None:
        """Remove slots. Called by :meth:`remove` while ``self.table`` still holds them; their numbers may be reused.

        :param slots: int32[n], rising, all linked.
        """

    @abstractmethod
    def match(self, messages: MessageBatch) -> Matches:
        """Return exactly the pairs with a common term and ``score >= threshold(slot)``.

        The thresholds are the present ones. Scores are equal to the last bit to those of :mod:`dskype.spouts.score_kernels`, with the text
        part summed from 0.0 in order of rising term id. Called with batches of dozens to hundreds of messages.
        """

    def retune(self, slots: np.ndarray, before: np.ndarray) -> None:
        """Follow new thresholds. Called by :meth:`set_thresholds` after ``self.table`` has them. Default: nothing.

        :param slots: int32[n], each once, all linked.
        :param before: float64[n], the previous thresholds.
        """

    @property
    def structure_bytes(self) -> int:
        """Bytes of the index without ``self.table``. Default: 0."""
        return 0

    # -- what its users call

    def insert(
        self, slots: np.ndarray, lon: np.ndarray, lat: np.ndarray, alpha: np.ndarray, offsets: np.ndarray, terms: np.ndarray, weights: np.ndarray
    ) -> None:
        """Insert subscriptions with threshold -inf, which match every message with a common keyword.

        :param slots: int32[n], free, rising.
        :param lon: float64[n], degrees; ``lat`` likewise.
        :param alpha: float64[n], 0..1, weight of the spatial part.
        :param offsets: int64[n + 1], into terms (int64, rising within a subscription, may be negative) and weights.
        """
        self.table.insert(slots, lon, lat, alpha, offsets, terms, weights)
        self.link(slots)

    def remove(self, slots: np.ndarray) -> None:
        """Remove subscriptions.

        :param slots: int32[n], rising, each once.
        """
        self.unlink(slots)
        self.table.remove(slots)

    def set_thresholds(self, slots: np.ndarray, thresholds: np.ndarray) -> None:
        """Set thresholds (float64[n]; -inf: every message, inf: none) of slots (int32[n], each once)."""
        self.retune(slots, self.table.set_thresholds(slots, thresholds))

    def snapshot(self) -> dict[str, Any]:
        """Return subscriptions and thresholds as plain arrays in order of slots. The format is the same for all implementations."""
        return self.table.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill an empty index from a snapshot, which may be that of another implementation."""
        slots = np.array(state["slots"])
        self.insert(slots, *(state[name] for name in ("lon", "lat", "alpha", "offsets", "terms", "weights")))
        self.set_thresholds(slots, state["thresholds"])

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.table.memory_bytes + self.structure_bytes

    def _check(self) -> None:
        """Verify all invariants (AssertionError); for tests, O(size). Implementations add their own."""
        self.table._check()
