"""Workload of the distribution benchmark: sets of messages, subscriptions drawn from them with their lists at the start, hotspots."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.topk.engine import TopkEngine
from dskype.bolts.window.base import make_window
from dskype.deploy.cli.arguments import UsageError
from dskype.deploy.demo import places
from dskype.deploy.lab.corpus import Corpus, read_rows
from dskype.deploy.lab.skype.workload import Subscriptions, draw_subscriptions, look_up, shorten
from dskype.distribution.base import Sample
from dskype.spouts.batch import MessageBatch

__all__ = ["LONG", "PLACES", "DataSet", "DistributionWorkload", "DskypeScale", "View", "as_messages", "file_names", "read_data", "sample_of"]

PLACES, LONG = "places", "long"
"""Names of the places of GeoNames, and of long messages made of them."""

_LONG_KEYWORDS = 37
_REGION_SHARE = 0.02
"""Of all messages, those that are nearest to the centre of a hotspot."""

_HOT_SHARE = 0.5
"""Of messages and subscriptions, those that come from the hotspot."""


@dataclass(frozen=True)
class DskypeScale:
    """The sizes of a run.

    :ivar arrivals: messages to measure; ``warm_up``: messages before them, after the window is full, which are not measured.
    :ivar sample: subscriptions to learn plans from, with the messages of the window; they are not among those that are measured.
    :ivar step: messages that are distributed and processed at a time.
    """

    subscriptions: int
    window: int
    arrivals: int
    warm_up: int = 0
    sample: int = 20_000
    step: int = 1_000
    seed: int = 0


@dataclass(frozen=True)
class DataSet:
    """Messages, and their texts.

    :ivar texts: of the messages of ``corpus``, in its order.
    """

    name: str
    corpus: Corpus
    texts: Sequence[str]

    @classmethod
    def of_texts(cls, name: str, source: str, texts: Sequence[str], lat: np.ndarray, lon: np.ndarray) -> DataSet:
        """Return a data set of texts and their places."""
        return cls(name, Corpus.of_texts(source, texts, lat, lon), texts)

    def joined(self, name: str, keywords: int = _LONG_KEYWORDS, seed: int = 0) -> DataSet:
        """Return long messages: random texts, joined until they have about ``keywords`` different words, at the place of the first text."""
        lengths = np.diff(self.corpus.offsets)
        order = np.random.default_rng([seed, 17]).permutation(len(lengths))
        number = (np.cumsum(lengths[order]) - lengths[order]) // keywords
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        texts = [" ".join(self.texts[row] for row in rows.tolist()) for rows in np.split(order, starts[1:])]
        first = order[starts]
        return self.of_texts(name, f"{self.corpus.source}, texts joined", texts, self.corpus.lat[first], self.corpus.lon[first])


def file_names(files: Sequence[str]) -> list[str]:
    """Return the names of the data sets of files: their stems.

    :raises UsageError: two data sets have one name.
    """
    names = [Path(file).name.partition(".")[0] for file in files]
    for i, name in enumerate(names):
        if name in (PLACES, LONG, *names[:i]):
            raise UsageError(f"FILE: expected files with other names than {', '.join([PLACES, LONG, *names[:i]])}; given: {files[i]}")
    return names


def read_data(files: Sequence[str], wanted: Collection[str], join: str | None = None) -> dict[str, DataSet]:
    """Return data sets by name: places of GeoNames, each file by its stem, and long messages.

    :param wanted: the names to return.
    :param join: as for :func:`~dskype.deploy.lab.corpus.messages_of`, of every file.
    :raises UsageError: two data sets have one name, or a file has no messages.
    """
    sets = {}
    if PLACES in wanted or LONG in wanted:
        found = places.load()
        sets[PLACES] = DataSet.of_texts(PLACES, "GeoNames places (cities500)", found.texts.to_pylist(), found.lat, found.lon)
    for name, file in zip(file_names(files), files):
        if name in wanted:
            sets[name] = DataSet.of_texts(name, Path(file).name, *read_rows(Path(file), join))
    if LONG in wanted:
        sets[LONG] = sets[PLACES].joined(LONG)
    return {name: one for name, one in sets.items() if name in wanted}


def as_messages(corpus: Corpus, rows: np.ndarray) -> MessageBatch:
    """Return messages of a corpus in the order of ``rows``, with the sequence numbers 0, 1, ... as positions."""
    n = np.arange(len(corpus), dtype=np.int64)
    messages = MessageBatch(n, n, corpus.lat, corpus.lon, corpus.offsets, corpus.terms, corpus.weights).select(rows)
    number = np.arange(len(rows), dtype=np.int64)
    return messages._replace(seq=number, position=number)


class View:
    """Some of a workload's subscriptions, all with the same k.

    :ivar subscriptions: those that are registered.
    :ivar lists: their best messages of the window at registration, as many as the buffer holds.
    :ivar floors: float64[n], the buffer's threshold then; -inf if there is none.
    :ivar filled: float64[n], how full the buffer is then.
    :ivar sample: other subscriptions, to learn plans from.
    """

    def __init__(self, workload: DistributionWorkload, k: int, n: int) -> None:
        self.workload, self.k = workload, k
        limit = workload.limit(k)
        rows = np.concatenate([np.arange(n), np.arange(workload.scale.subscriptions, len(workload.subscriptions))])
        every = replace(workload.subscriptions.take(rows), k=np.full(len(rows), k, np.int32))
        lengths = np.diff(workload.lists.offsets)[rows]
        starts = workload.lists.offsets[rows]
        full = lengths >= limit
        floors = np.full(len(rows), -np.inf)
        floors[full] = workload.lists.scores[starts[full] + limit - 1]
        filled = np.minimum(1.0, lengths / limit)
        self.subscriptions, self.floors, self.filled = every.take(np.arange(n)), floors[:n], filled[:n]
        lists = RankedLists(workload.lists.offsets[: n + 1], *workload.lists[1:])
        self.lists = lists if k == workload.most_k else shorten(lists, np.full(n, limit))
        self.sample = sample_of(workload.window_messages(), every.take(np.arange(n, len(rows))), floors[n:], filled[n:])


class DistributionWorkload:
    """A stream of messages, the window at its start, and subscriptions.

    :param most_k: the largest k that will be used.
    :param hotspot: 0: none; 1, 2, ...: half of the messages and subscriptions come from a small region, a different one for each number.
    :ivar messages: all messages of the run; the first ``scale.window`` ones fill the window.
    :ivar window: holds all of them, and answers at every watermark from the full window on.
    :ivar lists: the best messages of the full window for every subscription, as many as the buffer holds with ``most_k``.
    """

    def __init__(self, data: DataSet, scale: DskypeScale, most_k: int, hotspot: int = 0) -> None:
        self.data, self.scale, self.most_k, self.hotspot = data, scale, most_k, hotspot
        corpus, n = data.corpus, scale.subscriptions + scale.sample
        self.diagonal_deg = corpus.diagonal_deg
        self.rows = self._message_rows(scale.window + scale.warm_up + scale.arrivals)
        self.messages = as_messages(corpus, self.rows)
        self.window = make_window("chunks")
        for start in range(0, self.messages.n, scale.step):
            part = self.messages.slice(start, min(self.messages.n, start + scale.step))
            self.window.insert(part, list(map(str, part.seq.tolist())))
        self.subscriptions = self._draw(n)
        found = look_up(self.window, self.subscriptions, scale.window - 1, np.full(n, self.limit(most_k)), scale.window, self.diagonal_deg)
        self.lists = RankedLists(found.offsets, found.seqs, found.seqs, found.scores)  # of a count window: positions are sequence numbers

    def view(self, k: int, share: float = 1.0) -> View:
        """Return a share of the subscriptions, each with this k."""
        return View(self, k, max(1, round(self.scale.subscriptions * share)))

    def limit(self, k: int) -> int:
        """Return how many messages a buffer holds for a subscription."""
        return int(self.engine().buffers.limits(np.array([k]))[0])

    def engine(self, index: str | None = None) -> TopkEngine:
        """Return a new engine: the default buffer, and the default index or another one."""
        return TopkEngine(self.scale.window, self.diagonal_deg, **({"index": index} if index else {}))

    def window_messages(self) -> MessageBatch:
        """Return the messages of the window at the start."""
        return self.messages.slice(0, self.scale.window)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the largest arrays."""
        return self.lists.seqs.nbytes + self.lists.scores.nbytes + self.messages.terms.nbytes + self.messages.weights.nbytes + self.window.memory_bytes

    def _region(self) -> np.ndarray:
        """Return the rows of the hotspot."""
        c = self.data.corpus
        centre = np.random.default_rng([self.scale.seed, 19, self.hotspot]).integers(len(c))
        away = np.hypot(c.lat - c.lat[centre], c.lon - c.lon[centre])
        return np.argsort(away, kind="stable")[: max(1, round(_REGION_SHARE * len(c)))]

    def _message_rows(self, n: int) -> np.ndarray:
        size = len(self.data.corpus)
        rounds = [np.random.default_rng([self.scale.seed, 13, i]).permutation(size) for i in range(-(-n // size))]
        rows = np.concatenate(rounds)[:n]
        if self.hotspot:
            rng = np.random.default_rng([self.scale.seed, 23, self.hotspot])
            hot = rng.random(n) < _HOT_SHARE
            rows[hot] = rng.choice(self._region(), hot.sum())
        return rows

    def _draw(self, n: int) -> Subscriptions:
        corpus, options = self.data.corpus, {"k": self.most_k, "keywords": (1, 5), "seed": self.scale.seed}
        drawn = draw_subscriptions(corpus, n, **options)
        if not self.hotspot:
            return drawn
        region = self._region()
        other = draw_subscriptions(corpus.of_rows(region), n, **options)
        hot = np.random.default_rng([self.scale.seed, 29, self.hotspot]).random(n) < _HOT_SHARE
        columns = {name: np.concatenate([getattr(drawn, name), getattr(other, name)]) for name in ("k", "alpha", "lat", "lon", "terms", "weights")}
        both = Subscriptions(**columns, offsets=np.concatenate([drawn.offsets, drawn.offsets[-1] + other.offsets[1:]]))
        return both.take(np.where(hot, n, 0) + np.arange(n))


def sample_of(messages: MessageBatch, s: Subscriptions, thresholds: np.ndarray, filled: np.ndarray) -> Sample:
    """Return a sample to learn plans from."""
    return Sample(messages, s.k.astype(np.int64), s.alpha, s.lat, s.lon, s.offsets.astype(np.int64), s.terms, s.weights, thresholds, filled)
