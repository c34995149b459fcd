"""The contracts inside a subscription bolt: which subscriptions a message matters to, and what their results are.

A subscription lives in a *slot*, a small number that is used again after it was removed. ``TopkEngine`` hands out slots and
joins the two parts: a :class:`SubscriptionIndex` finds the slots that a message reaches with a score at or above their
threshold, :class:`ResultBuffers` hold the best messages of every slot, publish its top-k list, and set the threshold.

Rank order, everywhere: score descending, then newer first (position, then seq).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.topk import _kernels as kernels
from dskype.bolts.topk.store import BufferStore, Lists
from dskype.bolts.topk.table import SubscriptionTable
from dskype.spouts.batch import MessageBatch

__all__ = ["Changes", "Lists", "Matches", "ResultBuffers", "Step", "SubscriptionIndex"]


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
    """How top-k lists have changed, ordered by watermark, slot, removals before additions, rank.

    Applied up to watermark *w* they turn the list of an active slot into its list at *w*, for every *w*.

    :ivar slot: int32[n].
    :ivar op: int8[n], 0 the message entered the list, 1 it left.
    :ivar seq: int64[n].
    :ivar score: float64[n].
    :ivar rank: int32[n], from 1, in the list after all changes at that watermark; 0 for one that left.
    :ivar watermark: int64[n].
    :ivar due: int32[], rising: slots that became pending; their caller asks for them at the current watermark.
    :ivar touched: int32[], rising: slots whose list changed or was published anew.
    """

    slot: np.ndarray
    op: np.ndarray
    seq: np.ndarray
    score: np.ndarray
    rank: np.ndarray
    watermark: np.ndarray
    due: np.ndarray
    touched: np.ndarray


class Step(NamedTuple):
    """What :class:`ResultBuffers` did: changes as in :class:`Changes`, and more.

    :ivar changes: (slot, op, seq, score, rank, watermark).
    :ivar due: int32[]: slots whose buffer no longer holds enough, each once, in order of time.
    :ivar retuned: int32[], rising: slots whose threshold changed.
    """

    changes: tuple[np.ndarray, ...]
    due: np.ndarray
    retuned: np.ndarray


class SubscriptionIndex(ABC):
    """Finds the subscriptions that a message reaches.

    What every index has to know about its subscriptions is in ``self.table``: place, alpha, threshold, keywords with
    dense ids. An index links slots into structures of its own and matches; being exact it needs no snapshot of them: a
    restored index may look different inside but answers the same.

    :param diagonal_deg: diagonal of the data space, degrees: distance at which the spatial similarity is 0.
    :param options: of the implementation; unknown ones are a TypeError.
    """

    def __init__(self, diagonal_deg: float, **word_fields: type) -> None:
        self.diagonal_deg = float(diagonal_deg)
        self.table = SubscriptionTable(**word_fields)

    # -- what an implementation provides

    @abstractmethod
    def link(self, slots: np.ndarray) -> None:
        """Enter new slots.

        Called by :meth:`insert` when ``self.table`` holds them, with the threshold -inf.

        :param slots: int32[n], rising, none of them linked.
        """

    @abstractmethod
    def unlink(self, slots: np.ndarray) -> None:
        """Take slots out. Called by :meth:`remove` while ``self.table`` still holds them; the numbers may come back.

        :param slots: int32[n], rising, all linked.
        """

    @abstractmethod
    def match(self, messages: MessageBatch) -> Matches:
        """Return exactly the pairs with a common term and ``score >= threshold(slot)``.

        Thresholds are those of the call. Scores are the bits that :mod:`dskype.bolts._kernels` gives, with the text part
        added up in order of rising term id from 0.0. Called with a batch of some dozens to hundreds of messages.
        """

    def retune(self, slots: np.ndarray, before: np.ndarray) -> None:
        """Follow new thresholds. Called by :meth:`set_thresholds` after ``self.table`` has them; does nothing by default.

        :param slots: int32[n], each once, all linked.
        :param before: float64[n], the thresholds so far.
        """

    @property
    def structure_bytes(self) -> int:
        """Bytes of what the index holds besides ``self.table``; 0 by default."""
        return 0

    # -- what its users call

    def insert(self, slots: np.ndarray, lon: np.ndarray, lat: np.ndarray, alpha: np.ndarray,
               offsets: np.ndarray, terms: np.ndarray, weights: np.ndarray) -> None:
        """Insert subscriptions; their threshold is -inf: they match on every common keyword.

        :param slots: int32[n], free, rising.
        :param lon: float64[n], degrees; ``lat`` alike.
        :param alpha: float64[n], 0..1, weight of the spatial part.
        :param offsets: int64[n + 1], into terms (int64, rising within a subscription, negative ones allowed) and weights.
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
        """Raise or lower thresholds (float64[n]; -inf: everything, inf: nothing) of slots (int32[n], each once)."""
        self.retune(slots, self.table.set_thresholds(slots, thresholds))

    def snapshot(self) -> dict[str, Any]:
        """Return the subscriptions and thresholds as plain arrays, in order of slots; the same for every implementation."""
        return self.table.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill an empty index from a snapshot, possibly of another implementation."""
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


class ResultBuffers(ABC):
    """Holds for every slot the messages that are, or may yet come to be, its top-k list.

    A slot is *active*: its list is known and published with every change; or *pending*: its list is not known, the last one
    published stays as it is (frozen), what arrives is collected, and an answer of the message window is awaited. An active
    slot is *complete* while its buffer holds every message of the window that matches it: its threshold is -inf.

    What every buffer needs is in ``self.store``: state, k, limit, theta and entries by slot, and a calendar of what expires next.
    An implementation decides how many entries there are and which: it must see to it that the first k entries of an active slot are
    its top-k list at every watermark, and that a slot falls due as soon as it cannot guarantee that.

    :param extent: of the window: a message leaves when the watermark reaches its position + extent.
    :param options: of the implementation; unknown ones are a TypeError.
    """

    def __init__(self, extent: int) -> None:
        self.extent = int(extent)
        self.watermark = -1
        self.store = BufferStore()

    # -- what an implementation provides

    @abstractmethod
    def limits(self, k: np.ndarray) -> np.ndarray:
        """Return how many entries slots with these k may have at most (int64[n], >= k), when they are opened."""

    @abstractmethod
    def apply(self, messages: MessageBatch, matches: Matches, watermark: int) -> Step:
        """Process matches, and everything that expires, in order of time up to ``watermark``.

        At every time *t* at which a message arrives or an entry expires (position + extent), each slot concerned loses
        what has expired and gets what has arrived at once; the difference of its list is a change at watermark *t*. A slot that
        becomes due at *t* keeps the list from before *t*, has the threshold inf, and takes nothing until :meth:`collect`. A pending
        slot collects all of its matches, or as many as an answer can leave a use for.

        :param messages: rising in (position, seq), after the previous watermark; ``matches`` name its rows. Matches below
            the slot's threshold are left out.
        """

    @abstractmethod
    def resolve(self, slots: np.ndarray, answers: Lists, watermark: int) -> Step:
        """Merge answers with what was collected, and publish the lists at ``watermark``, which is that of the last :meth:`apply`.

        :param slots: int32[n], rising, pending.
        :param answers: the best :meth:`wanted` messages, or all if there are fewer, of the window at a watermark at or after
            the one at which the slot began to collect.
        :returns: also slots that are ``due`` again: too little is alive. They are pending, and collect from ``watermark`` on.
        """

    # -- what its users call

    def open(self, slots: np.ndarray, k: np.ndarray, complete: bool) -> None:
        """Start empty buffers: active ones when ``complete`` (the window has no messages), else pending ones.

        :param slots: int32[n], free, rising.
        :param k: int32[n], >= 1.
        """
        self.store.open(slots, k, self.limits(np.asarray(k, np.int64)), complete)

    def close(self, slots: np.ndarray) -> None:
        """Forget slots (int32[n], each once), whatever their state."""
        self.store.close(slots)

    def wanted(self, slots: np.ndarray) -> np.ndarray:
        """Return how many messages an answer should bring (int64[n], >= k); constant while a slot is pending. By default the limit."""
        return self.store.pool.block[slots, kernels.LIMIT]

    def collect(self, slots: np.ndarray) -> None:
        """Make slots that are due pending (int32[n], each once): they collect every match from now on."""
        self.store.collect(slots)

    def published(self, slots: np.ndarray) -> Lists:
        """Return the lists as published last (the frozen ones of pending slots)."""
        return self.store.published(slots)

    def pending(self, slots: np.ndarray) -> np.ndarray:
        """Tell which slots are pending (bool[n])."""
        return self.store.pool.block[slots, kernels.STATE] != kernels.ACTIVE

    def thresholds(self, slots: np.ndarray) -> np.ndarray:
        """Return the lowest score that slots have a use for (float64[n]): -inf everything, inf nothing."""
        return self.store.theta[slots]

    def sizes(self, slots: np.ndarray) -> np.ndarray:
        """Return how many entries the buffers of slots hold (int64[n])."""
        return self.store.sizes(slots)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain arrays, in order of slots; equal states give equal snapshots."""
        return {"watermark": int(self.watermark), **self.store.snapshot(self.watermark - self.extent)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill empty buffers from a snapshot of the same implementation; limits stay as they were. Arrays may be read-only."""
        self.watermark = int(state["watermark"])
        self.store.restore(state)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.store.memory_bytes

    def _check(self, watermark: int) -> None:
        """Verify all invariants at ``watermark`` (AssertionError); for tests, O(size). Implementations add their own."""
        self.store._check(watermark, self.extent)
