"""Interest: a counted multiset of (region, routing term), and the routing of messages by it.

:meth:`dskype.distribution.base.Distributor.summarizes` says what regions and routing terms are, and
:mod:`dskype.bolts.placement.interest_exchange` how distribution tasks keep their copies equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dskype.distribution.routing import interest_kernels as kernels
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks

__all__ = ["CountedPairs", "Interest", "documents_of"]

_SMALLEST = 64


class CountedPairs:
    """A multiset of (region, term): a hash table of 20 bytes per slot, at most half full. Adding and removing a pair take O(1)."""

    def __init__(self) -> None:
        self._table = _pairs(_SMALLEST)
        self._used = 0

    def __len__(self) -> int:
        """Return the number of distinct pairs."""
        return self._used

    @property
    def memory_bytes(self) -> int:
        """Size of its tables."""
        return sum(array.nbytes for array in self._table)

    def count(self, region: int, term: int) -> int:
        """Return how often a pair is there."""
        return int(kernels.count_of(self._table, region, term))

    def add(self, regions: np.ndarray, terms: np.ndarray) -> np.ndarray:
        """Add pairs once; return which of them were not there before, bool[n].

        :param regions: int32[n]; ``terms``: int64[n].
        """
        if 2 * (self._used + len(terms)) > len(self._table.terms):
            self._resize(self._used + len(terms))
        fresh = np.zeros(len(terms), np.bool_)
        self._used += kernels.add_pairs(self._table, regions, terms, fresh)
        return fresh

    def remove(self, regions: np.ndarray, terms: np.ndarray) -> np.ndarray:
        """Remove pairs once; return which of them are no longer there, bool[n].

        :raises ValueError: a pair was not there.
        """
        gone = np.zeros(len(terms), np.bool_)
        removed = kernels.remove_pairs(self._table, regions, terms, gone)
        if removed < 0:
            msg = f"a pair of interest is not there; given: region {regions[~removed]}, term {terms[~removed]}"
            raise ValueError(msg)
        self._used -= removed
        if 16 * self._used + _SMALLEST < len(self._table.terms):
            self._resize(self._used)
        return gone

    def _resize(self, pairs: int) -> None:
        table = _pairs(_capacity(pairs))
        kernels.rehash(self._table, table)
        self._table = table

    def items(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (regions int32[n], terms int64[n], counts int64[n]), sorted by region and term."""
        used = np.flatnonzero(self._table.values)
        regions, terms = self._table.seconds[used], self._table.terms[used]
        order = np.lexsort((terms, regions))
        return regions[order], terms[order], self._table.values[used][order]

    def snapshot(self) -> Any:
        """Return the pairs as arrays."""
        return list(self.items())

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        regions, terms, counts = map(np.asarray, state)
        self._used, self._table = len(terms), _pairs(_capacity(len(terms)))
        kernels.rehash(kernels.Pairs(terms, regions, counts), self._table)

    def _check(self) -> None:
        """Verify the invariants."""
        values = self._table.values
        assert self._used == np.count_nonzero(values) and (values >= 0).all() and 2 * self._used <= len(values)
        for region, term, count in zip(*(column.tolist() for column in self.items())):
            assert self.count(region, term) == count


class Interest(CountedPairs):
    """Routes messages by the pairs in it.

    Besides the counts it has a bit for each pair, in words of 64 regions by term. So a message costs one look-up for each of its terms,
    however many regions it might go to.

    :param regions: number of regions.
    """

    def __init__(self, regions: int) -> None:
        super().__init__()
        self._words, self._words_used = _words(_SMALLEST), 0
        self.withheld = np.full(regions, -1, np.int64)
        """By region, the highest position of a message that the region did not want; -1: there was none."""

    def add(self, regions: np.ndarray, terms: np.ndarray) -> np.ndarray:
        """Add pairs once; return which of them were not there before, bool[n]."""
        fresh = super().add(regions, terms)
        if fresh.any():
            self._set(regions[fresh], terms[fresh])
        return fresh

    def _set(self, regions: np.ndarray, terms: np.ndarray) -> None:
        if 2 * (self._words_used + len(terms)) > len(self._words.terms):
            self._resize_words(self._words_used + len(terms))
        self._words_used += kernels.set_bits(self._words, regions, terms)

    def remove(self, regions: np.ndarray, terms: np.ndarray) -> np.ndarray:
        """Remove pairs once; return which of them are no longer there, bool[n].

        :raises ValueError: a pair was not there.
        """
        gone = super().remove(regions, terms)
        if gone.any():
            self._words_used -= kernels.clear_bits(self._words, regions[gone], terms[gone])
            if 16 * self._words_used + _SMALLEST < len(self._words.terms):
                self._resize_words(self._words_used)
        return gone

    @property
    def memory_bytes(self) -> int:
        """Size of its tables."""
        return super().memory_bytes + self.withheld.nbytes + sum(array.nbytes for array in self._words)

    @property
    def words(self) -> kernels.Words:
        """The bits by term, for kernels; another table after a change."""
        return self._words

    def _resize_words(self, words: int) -> None:
        table = _words(_capacity(words))
        kernels.rehash(self._words, table)
        self._words = table

    def filter(self, messages: MessageBatch, routes: RowTasks, regions: np.ndarray) -> RowTasks:
        """Return the routes on which a message is wanted.

        :param regions: int32[m], the region in which each message goes to its task.
        """
        kept = kernels.interested(self._words, documents_of(messages), routes.rows, regions, self.withheld)
        return RowTasks(routes.rows[kept], routes.tasks[kept])

    def routes(self, messages: MessageBatch) -> RowTasks:
        """Return which regions want which messages, where regions are tasks and every message might go to every task."""
        return RowTasks(*kernels.candidates(self._words, documents_of(messages), self.withheld))

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        *pairs, withheld = state
        super().restore(pairs)
        self.withheld = np.array(withheld)
        self._words, self._words_used = _words(_SMALLEST), 0
        regions, terms, _ = self.items()
        self._set(regions, terms)

    def snapshot(self) -> Any:
        """Return the pairs and the highest positions as arrays."""
        return [*super().snapshot(), self.withheld.copy()]

    def _check(self) -> None:
        """Verify the invariants."""
        super()._check()
        regions, terms, _ = self.items()
        expected: dict[tuple[int, int], int] = {}
        for region, term in zip(regions.tolist(), terms.tolist()):
            key = term, region // kernels.BLOCK
            expected[key] = expected.get(key, 0) | 1 << region % kernels.BLOCK
        used = np.flatnonzero(self._words.values)
        found = dict(zip(zip(self._words.terms[used].tolist(), self._words.seconds[used].tolist()), self._words.values[used].tolist()))
        assert found == expected and self._words_used == len(used) and 2 * len(used) <= len(self._words.terms)


def _capacity(keys: int) -> int:
    """Return the number of slots for ``keys`` keys: a power of two, so that the table is a quarter full at most."""
    return max(_SMALLEST, 1 << (4 * keys - 1).bit_length()) if keys else _SMALLEST


def _pairs(capacity: int) -> kernels.Pairs:
    return kernels.Pairs(np.zeros(capacity, np.int64), np.zeros(capacity, np.int32), np.zeros(capacity, np.int64))


def _words(capacity: int) -> kernels.Words:
    return kernels.Words(np.zeros(capacity, np.int64), np.zeros(capacity, np.int32), np.zeros(capacity, np.uint64))


def documents_of(messages: MessageBatch) -> kernels.Documents:
    """Return the terms of messages, for kernels."""
    return kernels.Documents(messages.offsets, messages.terms, messages.position)
