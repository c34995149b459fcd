"""The plain index: one list of postings per term, read term at a time."""

from __future__ import annotations

import numpy as np

from dskype.bolts import array_kernels
from dskype.bolts.arrays import BlockPool, grown
from dskype.bolts.topk.base import Matches, SubscriptionIndex
from dskype.bolts.topk.table import readable_messages
from dskype.deploy.lab.skype import taat_kernels
from dskype.spouts.batch import MessageBatch

__all__ = ["TaatIndex"]


class TaatIndex(SubscriptionIndex):
    """Sums up the text part of every subscription with a common term, then scores all of them.

    It has no bounds, so thresholds cost nothing to set, and a match takes the time to read the lists of the message's terms.
    It is the baseline for indexes that prune. Inserting and removing a subscription is O(keywords): a posting is appended, or
    the last one of the list fills its place.
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
        lists.reserve(terms, lists.block[terms, array_kernels.LENGTH] + counts)
        taat_kernels.link_postings(slots, table.keyword_arrays, self._arrays)

    def unlink(self, slots: np.ndarray) -> None:
        """Remove postings."""
        taat_kernels.unlink_postings(slots, self.table.keyword_arrays, self._arrays)

    def match(self, messages: MessageBatch) -> Matches:
        """Return the matches; O(postings of the messages' terms)."""
        table = self.table
        return Matches(*taat_kernels.match_taat(readable_messages(messages), table.terms.map, self._arrays, table.place, self.diagonal_deg, self._sums))

    @property
    def _arrays(self) -> taat_kernels.TaatLists:
        lists = self._lists
        return taat_kernels.TaatLists(lists.block, lists.slot, lists.nth, lists.weight)

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
                assert where < lists.block[term, array_kernels.LENGTH]
                at = lists.block[term, array_kernels.START] + where
                assert (lists.slot[at], lists.nth[at], lists.weight[at]) == (slot, nth, words.weight[start + nth])
                postings += 1
        assert postings == int(lists.block[:, array_kernels.LENGTH].sum())
