"""The table of subscriptions that every subscription index has."""

from __future__ import annotations

from typing import Any

import numpy as np

from dskype.bolts import array_kernels
from dskype.bolts.arrays import BlockPool, aligned, grown
from dskype.bolts.topk import _kernels as kernels
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import read_only

__all__ = ["SubscriptionTable", "TermIds", "readable_messages"]


_NOWHERE = np.zeros(0, np.int32)


def readable_messages(messages: MessageBatch) -> kernels.Messages:
    """Return the columns of messages that the kernels of indexes read."""
    return kernels.Messages(
        read_only(messages.lon, np.float64),
        read_only(messages.lat, np.float64),
        read_only(messages.offsets, np.int64),
        read_only(messages.terms, np.int64),
        read_only(messages.weights, np.float64),
    )


def _widened(array: np.ndarray, n: int) -> np.ndarray:
    """Return ``array`` with ``n`` rows; new ones are 0."""
    new = aligned((n, *array.shape[1:]), array.dtype)
    new[: len(array)] = array
    new[len(array) :] = 0
    return new


class TermIds:
    """Gives terms (any int64) dense ids 0, 1, 2, ...; an id is reused when its term is no longer in use.

    A lookup is O(1); kernels take ``map``.
    """

    def __init__(self) -> None:
        self.map = kernels.TermMap(
            np.zeros(16, np.int64), np.full(16, -1, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(3, np.int64)
        )

    def __len__(self) -> int:
        """Return the number below which all ids lie."""
        return int(self.map.counters[0])

    def acquire(self, terms: np.ndarray) -> np.ndarray:
        """Return the ids (int32[n]) of terms, and count each as a use."""
        old = self.map
        key, local = old.key, old.local
        ever, _, used = old.counters.tolist()
        if 2 * (used + len(terms)) > len(key):
            size = 1 << int(2 * (used + len(terms))).bit_length()
            key, local = np.zeros(size, np.int64), np.full(size, -1, np.int32)
            kernels.rehash_terms(old.key, old.local, key, local)
        n = ever + len(terms)
        self.map = kernels.TermMap(key, local, grown(old.name, n, 0), grown(old.references, n, 0), grown(old.spare, n, 0), old.counters)
        return kernels.acquire_terms(read_only(terms, np.int64), self.map)

    def release(self, ids: np.ndarray) -> None:
        """Count one use less for each of the ids."""
        kernels.release_terms(ids, self.map)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.map)

    def _check(self, uses: np.ndarray) -> None:
        """Verify the map against all ids in use, with repetitions."""
        ever, spare, used = self.map.counters.tolist()
        assert (np.bincount(uses, minlength=ever) == self.map.references[:ever]).all()
        live = np.flatnonzero(self.map.references[:ever])
        assert len(live) == used == int((self.map.local >= 0).sum()) and ever == used + spare
        assert all(kernels.find_term(self.map.name[i], self.map.key, self.map.local) == i for i in live)
        assert not set(self.map.spare[:spare].tolist()) & set(live.tolist())


class SubscriptionTable:
    """Location, alpha, threshold and keywords by slot.

    ``place`` is float64[slots, 4] (LON, LAT, ALPHA, THRESHOLD: 32 bytes, so one cache line serves a score); keywords lie in
    ``words``, a :class:`BlockPool` by slot with the fields ``term`` (int32, dense id) and ``weight``, in order of rising global term id.

    :param word_fields: further fields of ``words``, for indexes: name -> dtype.
    """

    def __init__(self, **word_fields: type) -> None:
        self.place = np.zeros((0, 4))
        self.live = np.zeros(0, np.bool_)
        self.terms = TermIds()
        self.words = BlockPool({"term": np.int32, "weight": np.float64, **word_fields}, dtype=np.int32)

    def __len__(self) -> int:
        """Return the number below which all live slots lie."""
        return len(self.live)

    def insert(
        self, slots: np.ndarray, lon: np.ndarray, lat: np.ndarray, alpha: np.ndarray, offsets: np.ndarray, terms: np.ndarray, weights: np.ndarray
    ) -> None:
        """Insert subscriptions, see :meth:`SubscriptionIndex.insert`; O(keywords)."""
        if not len(slots):
            return
        n = int(slots.max()) + 1
        if n > len(self.live):
            n = max(n, len(self.live) + len(self.live) // 8 + 16)
            self.place, self.live = _widened(self.place, n), _widened(self.live, n)
            self.words.block = _widened(self.words.block, n)
        self.place[slots] = np.stack((lon, lat, alpha, np.full(len(slots), -np.inf)), axis=1)
        self.live[slots] = True
        offsets = np.asarray(offsets, np.int64)
        lengths = np.diff(offsets)
        self.words.reserve(slots, lengths)
        block = self.words.block
        block[slots, array_kernels.LENGTH] = lengths
        to = block[slots, array_kernels.START].astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        ids = self.terms.acquire(np.asarray(terms)[first:last])
        array_kernels.copy_ranges(ids, offsets[:-1] - first, lengths, to, self.words.term)
        array_kernels.copy_ranges(read_only(weights[first:last], np.float64), offsets[:-1] - first, lengths, to, self.words.weight)

    def remove(self, slots: np.ndarray) -> None:
        """Remove subscriptions; O(keywords)."""
        self.terms.release(self.keywords(slots)[1])
        self.words.release(slots)
        self.live[slots] = False

    def set_thresholds(self, slots: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        """Set thresholds; return the former ones."""
        before = self.place[slots, kernels.THRESHOLD]
        self.place[slots, kernels.THRESHOLD] = thresholds
        return before

    def keywords(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the keywords of slots: offsets int64[n + 1], dense term ids int32[], weights float64[]."""
        block = self.words.block
        start, lengths = block[slots, array_kernels.START].astype(np.int64), block[slots, array_kernels.LENGTH].astype(np.int64)
        offsets = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return offsets, *self.words.gather(start, lengths, "term", "weight")

    @property
    def keyword_arrays(self) -> kernels.Words:
        """All keywords as kernels take them."""
        words = self.words
        return kernels.Words(words.block, words.term, words.weight, getattr(words, "where", _NOWHERE))

    def columns(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """Return ``lon``, ``lat``, ``alpha``, ``offsets``, ``terms`` and ``weights`` of slots, as :meth:`insert` takes them."""
        lon, lat, alpha, _ = self.place[slots].T.copy()
        offsets, terms, weights = self.keywords(slots)
        return {"lon": lon, "lat": lat, "alpha": alpha, "offsets": offsets, "terms": self.terms.map.name[terms], "weights": weights}

    def snapshot(self) -> dict[str, Any]:
        """Return the live subscriptions in order of slots, terms by their global ids."""
        slots = np.flatnonzero(self.live).astype(np.int32)
        return {"slots": slots, "thresholds": self.place[slots, kernels.THRESHOLD], **self.columns(slots)}

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.place.nbytes + self.live.nbytes + self.terms.memory_bytes + self.words.memory_bytes

    def _check(self) -> None:
        """Verify all invariants."""
        self.words._check()
        offsets, terms, _ = self.keywords(np.flatnonzero(self.live))
        self.terms._check(terms)
        assert kernels.first_unordered_terms(offsets, self.terms.map.name[terms]) < 0
        assert not self.words.block[: len(self.live), array_kernels.CAPACITY][~self.live].any(), "a free slot has keywords"
