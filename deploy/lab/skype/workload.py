"""Workload of the Skype benchmark: subscriptions drawn from the messages of a corpus, and the stream in time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.window.base import MessageWindow, QueryBatch
from dskype.deploy.lab.corpus import Corpus
from dskype.spouts.batch import MessageBatch, select_lists

__all__ = ["Stream", "Subscriptions", "draw_subscriptions", "look_up", "shorten"]

_AT_ONCE = 256


@dataclass(frozen=True)
class Subscriptions:
    """Subscriptions as the arguments of :meth:`dskype.bolts.skype.Skype.register`."""

    k: np.ndarray
    alpha: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.k)

    def take(self, rows: np.ndarray) -> Subscriptions:
        """Return the subscriptions at ``rows``, in that order."""
        offsets, index = select_lists(self.offsets, rows)
        return Subscriptions(self.k[rows], self.alpha[rows], self.lat[rows], self.lon[rows], offsets, self.terms[index], self.weights[index])


def draw_subscriptions(corpus: Corpus, n: int, *, k: int, keywords: tuple[int, int], zipf: bool = False, seed: int = 0) -> Subscriptions:
    """Draw subscriptions as in Skype, section 7.1: the place of a random message, some of its keywords, alpha uniform.

    :param keywords: fewest and most keywords, uniform in between; if the message has fewer, all of them.
    :param zipf: draw the keywords from all words instead, the *i*-th most common one with a probability proportional to 1 / i (journal, 8.1).
    """
    rng = np.random.default_rng([seed, 7])
    lengths = np.diff(corpus.offsets)
    rows = rng.choice(np.flatnonzero(lengths), n)
    wanted = rng.integers(keywords[0], keywords[1] + 1, n)
    alpha = rng.random(n)
    if zipf:
        ranks = np.exp(rng.random((n, keywords[1])) * math.log(len(corpus.vocabulary) + 1)).astype(np.int64)  # inverse of ln(i) / ln(V)
        terms = len(corpus.vocabulary) - np.clip(ranks, 1, len(corpus.vocabulary))
        owner = np.repeat(np.arange(n), wanted)
        pairs = np.unique(np.stack([owner, terms[np.arange(keywords[1]) < wanted[:, None]]], axis=1), axis=0)
        owner, terms = pairs[:, 0], pairs[:, 1]
    else:
        owner = np.repeat(np.arange(n), lengths[rows])
        begin = np.cumsum(lengths[rows]) - lengths[rows]
        postings = np.arange(len(owner)) - np.repeat(begin - corpus.offsets[rows], lengths[rows])
        order = np.lexsort((rng.random(len(owner)), owner))
        nth = np.arange(len(owner)) - np.repeat(begin, lengths[rows])
        chosen = np.sort(order[nth < wanted[owner]])
        owner, terms = owner[chosen], corpus.terms[postings[chosen]]
    idf = np.log1p(corpus.vocabulary.documents / corpus.vocabulary.df(terms))
    counts = np.bincount(owner, minlength=n)
    weights = idf / np.sqrt(np.repeat(np.add.reduceat(idf * idf, np.cumsum(counts) - counts), counts))
    return Subscriptions(np.full(n, k, np.int32), alpha, corpus.lat[rows], corpus.lon[rows], np.concatenate([[0], np.cumsum(counts)]), terms, weights)


def look_up(
    window: MessageWindow,
    s: Subscriptions,
    watermark: int,
    count: np.ndarray,
    extent: int,
    diagonal_deg: float,
    tell: Callable[[float], None] = lambda share: None,
) -> RankedLists:
    """Return the best messages of the window at a watermark for subscriptions, in rank order.

    :param count: int64[n], how many of them.
    :param tell: called with the share that is done.
    """
    n = len(s)
    queries = QueryBatch(np.full(n, watermark), count, s.alpha, s.lat, s.lon, s.offsets, s.terms, s.weights)
    parts = []
    for start in range(0, max(1, n), _AT_ONCE):
        parts.append(window.topk(queries.select(np.arange(start, min(n, start + _AT_ONCE))), extent, diagonal_deg))
        tell(start / max(1, n))
    tell(1.0)
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    return RankedLists(np.concatenate([[0], np.cumsum(lengths)]), *(np.concatenate([part[i] for part in parts]) for i in (1, 2, 3)))


def shorten(lists: RankedLists, count: np.ndarray) -> RankedLists:
    """Return the first ``count`` messages of each list."""
    lengths = np.minimum(np.diff(lists.offsets), count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    index = np.arange(offsets[-1]) + np.repeat(lists.offsets[:-1] - offsets[:-1], lengths)
    return RankedLists(offsets, lists.seqs[index], lists.positions[index], lists.scores[index])


class Stream:
    """Messages in time, in *slots* of ``2 * half`` positions each.

    The messages of a slot arrive in its first half, and messages expire in its second half. So a slot has one step with arrivals only and one
    with expiries only, which can be measured separately. After the arrivals the window is full.

    :param window: |W|; with ``timed``, the mean.
    :param timed: a time window. Where all messages of the corpus have times, they come in that order, accelerated so that a slot has ``batch`` of them
        in the mean, and begin again after the last one. Otherwise the number of messages per slot goes up and down by a third; times are random, and may be equal.
    :param batch: messages per slot; at most a tenth of the window.
    """

    def __init__(self, corpus: Corpus, window: int, *, timed: bool = False, seed: int = 0, batch: int = 100) -> None:
        self.corpus, self.timed = corpus, timed
        self.batch = max(1, min(batch, window // 10))
        self.slots_of_window = max(1, window // self.batch)
        self.half = self.batch * (10 if timed else 1)
        self.extent = 2 * self.half * self.slots_of_window - self.half
        self._rng = np.random.default_rng([seed, 11])
        self._order = np.zeros(0, np.int64)
        self._seq = self._slot = 0
        self._by_time: np.ndarray | None = None
        if timed and corpus.times_ms is not None and len(corpus) > self.batch:
            self._by_time = np.argsort(corpus.times_ms, kind="stable")
            times_ms = corpus.times_ms[self._by_time]
            self._slots_at = (times_ms - times_ms[0]) / (times_ms[-1] - times_ms[0] + 1) * -(-len(corpus) // self.batch)

    def slot(self) -> tuple[MessageBatch, int, int]:
        """Return the next slot: its messages, and the watermarks after the arrivals and after the expiries."""
        begin = 2 * self.half * self._slot
        rows, positions = self._timed_rows() if self._by_time is not None else self._drawn_rows()
        positions += begin
        n = len(rows)
        seqs = np.arange(self._seq, self._seq + n)
        c = self.corpus
        offsets, index = select_lists(c.offsets, rows)
        messages = MessageBatch(seqs, positions, c.lat[rows], c.lon[rows], offsets, c.terms[index], c.weights[index])
        self._seq += n
        self._slot += 1
        return messages, begin + self.half - 1, begin + 2 * self.half - 1

    def _drawn_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return random messages of the next slot, and their positions in it; after all messages they repeat in another order."""
        n = self.batch
        if self.timed:
            n = max(1, round(n * (1 + math.sin(2 * math.pi * self._slot / self.slots_of_window) / 3)))
        while len(self._order) < n:
            self._order = np.concatenate([self._order, self._rng.permutation(len(self.corpus))])
        rows, self._order = self._order[:n], self._order[n:]
        return rows, np.sort(self._rng.integers(0, self.half, n)) if self.timed else np.arange(n)

    def _timed_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the messages whose times are in the next slot, and their positions in it."""
        assert self._by_time is not None
        slot = self._slot % (math.floor(self._slots_at[-1]) + 1)
        first, last = np.searchsorted(self._slots_at, [slot, slot + 1])
        return self._by_time[first:last], ((self._slots_at[first:last] - slot) * self.half).astype(np.int64)
