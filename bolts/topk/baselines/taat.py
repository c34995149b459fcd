"""The plain index: one list of postings per term, read term at a time."""

from __future__ import annotations

import numpy as np

from dskype.bolts.topk import _kernels as kernels
from dskype.bolts.topk.base import Matches, SubscriptionIndex
from dskype.bolts.topk.baselines import taat_kernels
from dskype.bolts.topk.pool import BlockPool, grown
from dskype.bolts.topk.table import readable
from dskype.spouts.batch import MessageBatch

__all__ = ["TaatIndex"]


class TaatIndex(SubscriptionIndex):
    """Adds up the text part of every subscription with a common term, then scores all of them.

    No bound prunes anything, so thresholds cost nothing to set and the time of a match is that of reading the lists of the
    message's terms: the baseline that cleverer indexes are measured against. Inserting and removing a subscription is
    O(keywords): a posting is appended, or the list's last one fills its place.
    """

    def __init__(self, diagonal_deg: float) -> None:
        super().__init__(diagonal_deg, where=np.int32)  # where: place of the keyword's posting in its list
        self._lists = BlockPool({"slot": np.int32, "nth": np.int16, "weight": np.float64})
        self._sums = np.zeros(0)

    def link(self, slots: np.ndarray) -> None:
        """Append postings."""
        table, lists = self.table, self._lists
        self._sums = grown(self._sums, len(table), -1.0)
        lists.widen(len(table.terms))
        terms, counts = np.unique(table.keywords(slots)[1], return_counts=True)
        lists.reserve(terms, lists.block[terms, kernels.LENGTH] + counts)
        words = table.words
        taat_kernels.link_postings(slots, words.block, words.term, words.weight, words.where, lists.block, lists.slot, lists.nth, lists.weight)

    def unlink(self, slots: np.ndarray) -> None:
        """Remove postings."""
        words, lists = self.table.words, self._lists
        taat_kernels.unlink_postings(slots, words.block, words.term, words.where, lists.block, lists.slot, lists.nth, lists.weight)

    def match(self, messages: MessageBatch) -> Matches:
        """Return what reaches its threshold; O(postings of the messages' terms)."""
        lists, terms = self._lists, self.table.terms.map
        return Matches(
            *taat_kernels.match_taat(
                readable(messages.lon, np.float64),
                readable(messages.lat, np.float64),
                readable(messages.offsets, np.int64),
                readable(messages.terms, np.int64),
                readable(messages.weights, np.float64),
                terms.key,
                terms.local,
                lists.block,
                lists.slot,
                lists.weight,
                self.table.place,
                self.diagonal_deg,
                self._sums,
            )
        )

    @property
    def structure_bytes(self) -> int:
        """Bytes of the lists."""
        return self._lists.memory_bytes + self._sums.nbytes

    def _check(self) -> None:
        """Verify that every keyword has its posting and every posting its keyword."""
        super()._check()
        self._lists._check()
        words, lists = self.table.words, self._lists
        assert (self._sums == -1.0).all()
        postings = 0
        for slot in np.flatnonzero(self.table.live).tolist():
            start, length = words.block[slot, :2]
            for nth in range(length):
                term, where = words.term[start + nth], words.where[start + nth]
                assert where < lists.block[term, kernels.LENGTH]
                at = lists.block[term, kernels.START] + where
                assert (lists.slot[at], lists.nth[at], lists.weight[at]) == (slot, nth, words.weight[start + nth])
                postings += 1
        assert postings == int(lists.block[:, kernels.LENGTH].sum())
