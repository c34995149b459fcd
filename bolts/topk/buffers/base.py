"""The contract of result buffers, which hold the top-k lists of subscriptions and log their changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.topk.base import Matches
from dskype.bolts.topk.buffers import _kernels as kernels
from dskype.bolts.topk.buffers.store import BufferStore
from dskype.spouts.batch import MessageBatch

__all__ = ["ResultBuffers", "Step"]


class Step(NamedTuple):
    """The result of a step of :class:`ResultBuffers`.

    :ivar changes: (slot, op, seq, score, rank, watermark), as in :class:`~dskype.bolts.topk.base.Changes`.
    :ivar due: int32[]: slots whose buffer no longer holds enough messages, each once, in order of time.
    :ivar retuned: int32[], rising: slots whose threshold changed.
    """

    changes: tuple[np.ndarray, ...]
    due: np.ndarray
    retuned: np.ndarray


class ResultBuffers(ABC):
    """Holds for every slot the messages that are in its top-k list, or may come to be.

    The list of an *active* slot is known, and published with every change. The list of a *pending* slot is unknown: the last published list
    stays as it is (frozen), arriving messages are collected, and an answer of the message window is awaited. An active slot is *complete*
    while its buffer holds every matching message of the window; its threshold is then -inf.

    ``self.store`` has what every buffer needs: state, k, limit, theta and entries by slot, and a calendar of expiry. An implementation
    decides which entries a buffer has. It must ensure that the first k entries of an active slot are its top-k list at every watermark, and
    that a slot falls due as soon as this cannot be guaranteed. It may take further options; an unknown one is a TypeError.

    :param extent: extent of the window: a message leaves when the watermark reaches its position + extent.
    """

    ends: ClassVar[bool] = False
    """Whether a message may end before it leaves the window: then :meth:`apply` takes ``ended``."""

    decays: ClassVar[bool] = False
    """Whether the buffer needs no more of scores than their order: then they may be time scores."""

    def __init__(self, extent: int) -> None:
        self.extent = int(extent)
        self.watermark = -1
        self.store = BufferStore(self.extent)

    # -- what an implementation provides

    @abstractmethod
    def limits(self, k: np.ndarray) -> np.ndarray:
        """Return the most entries that new slots with these k may have (int64[n], >= k)."""

    @abstractmethod
    def apply(self, messages: MessageBatch, matches: Matches, watermark: int, ended: np.ndarray | None = None) -> Step:
        """Process matches and expiry in order of time, up to ``watermark``.

        At every time *t* at which a message arrives or an entry expires (position + extent), each slot concerned first drops its
        expired entries, and those that end at *t*, and then gets all arriving messages; the difference of its list is a change at watermark *t*. A slot that becomes
        due at *t* keeps the list from before *t*, has the threshold inf, and ignores messages until :meth:`collect`. A pending slot
        collects all its matches, or those that may be useful together with an answer.

        :param messages: rising in (position, seq), after the previous watermark.
        :param matches: pairs of a row of ``messages`` and a slot. Matches below the slot's threshold are ignored.
        :param ended: bool[n], the rows of ``messages`` that are former messages at the positions where they end; None: none is.
        """

    @abstractmethod
    def resolve(self, slots: np.ndarray, answers: RankedLists, watermark: int, ended: np.ndarray | None = None) -> Step:
        """Merge answers with the collected messages, and publish the lists at ``watermark``, which is that of the last :meth:`apply`.

        :param slots: int32[n], rising, pending.
        :param answers: the best :meth:`wanted` messages, or all if there are fewer, of the window at a watermark at or after
            the one at which the slot began to collect.
        :param ended: bool[], the messages of the answers that have ended since; None: none has.
        :returns: ``due`` has the slots with too few live messages. They stay pending, and collect from ``watermark`` on.
        """

    # -- what implementations use

    def _advance(self, messages: MessageBatch, matches: Matches, watermark: int, skyband: bool, ended: np.ndarray | None = None) -> Step:
        """Implement :meth:`apply` for skybands, or else for *kmax*."""
        changes, due, marked = self.store.advance(messages, matches, self.watermark, watermark, skyband, ended)
        self.watermark = watermark
        return Step(changes, due, marked)

    # -- what its users call

    def open(self, slots: np.ndarray, k: np.ndarray, complete: bool) -> None:
        """Start empty buffers: active ones if ``complete`` (the window has no messages), else pending ones.

        :param slots: int32[n], free, rising.
        :param k: int32[n], >= 1.
        """
        self.store.open(slots, k, self.limits(np.asarray(k, np.int64)), complete)

    def close(self, slots: np.ndarray) -> None:
        """Forget slots (int32[n], each once), whatever their state."""
        self.store.close(slots)

    def wanted(self, slots: np.ndarray) -> np.ndarray:
        """Return how many messages an answer should have (int64[n], >= k), constant while a slot is pending. Default: the limit."""
        return self.store.pool.block[slots, kernels.LIMIT].astype(np.int64)

    def collect(self, slots: np.ndarray) -> None:
        """Make due slots pending (int32[n], each once): they collect every match from now on."""
        self.store.collect(slots)

    def published(self, slots: np.ndarray) -> RankedLists:
        """Return the lists that were published last; those of pending slots are frozen."""
        return self.store.published(slots)

    def pending(self, slots: np.ndarray) -> np.ndarray:
        """Tell which slots are pending (bool[n])."""
        return self.store.pool.block[slots, kernels.STATE] != kernels.ACTIVE

    def k(self, slots: np.ndarray) -> np.ndarray:
        """Return how many messages the lists of slots hold at most (int32[n])."""
        return self.store.pool.block[slots, kernels.K]

    def thresholds(self, slots: np.ndarray) -> np.ndarray:
        """Return the lowest score that slots can use (float64[n]): -inf: any; inf: none."""
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
        self.store.restore(state, self.watermark - self.extent)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.store.memory_bytes

    def _check(self, watermark: int) -> None:
        """Verify all invariants at ``watermark`` (AssertionError); for tests, O(size). Implementations add their own."""
        self.store._check(watermark, self.extent)
