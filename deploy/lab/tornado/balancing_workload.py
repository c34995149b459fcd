"""Workload of the balancing simulation: messages and subscriptions of real places, and a hotspot that moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.tornado import balancing_kernels as kernels
from dskype.spouts.batch import select_lists

__all__ = ["Hotspot", "Second", "WorkloadSetting", "play"]

_TRIMMED = 0.001
"""Share of the places that lie outside the space on each side."""


@dataclass(frozen=True)
class WorkloadSetting:
    """Sizes of a workload.

    :ivar grid: columns and rows of the fine grid.
    :ivar subscriptions: how many live at a time; each lives ``lifetime_s`` seconds.
    :ivar keywords: of each subscription; ``side``: width and height of its rectangle, as a share of the space (both as in the paper).
    :ivar messages_per_s: messages in a second.
    :ivar calm_s: seconds without a hotspot, at the start; then there are ``moves`` hotspots, ``hot_s`` seconds each.
    :ivar hot_share: share of messages and new subscriptions that come from the hotspot.
    :ivar hot_scale: width and height of the hotspot, as a share of the space: the whole workload is condensed into it (section 5.4).
    """

    grid: int = 1000
    subscriptions: int = 20_000
    lifetime_s: int = 60
    keywords: int = 3
    side: float = 0.005
    messages_per_s: int = 20_000
    calm_s: int = 30
    moves: int = 2
    hot_s: int = 60
    hot_share: float = 0.7
    hot_scale: float = 0.2
    seed: int = 0


class Hotspot(NamedTuple):
    """The south-west corner of a hotspot, as shares of the space."""

    x: float
    y: float


class Second(NamedTuple):
    """What happens in a second.

    :ivar places: float64[n, 2], of its messages, as shares of the space from the west and from the south.
    :ivar x, y: int64[n], their cells; ``cost``: float64[n], their costs: 1 for receiving each, and 1 for each subscription around its cell of which
        it has the rarest keyword. (Equation 1 counts those of which it has any keyword; an index does not look at them.)
    :ivar boxes: int64[subscriptions, 4], the cells (x0, y0, x1, y1) of the subscriptions.
    :ivar replaced: int64[], the rows that are new in this second; ``expired``: int64[len(replaced), 4], what they were before.
    :ivar phase: 0 without a hotspot, 1, 2, ... with the first, the second one.
    """

    places: np.ndarray
    x: np.ndarray
    y: np.ndarray
    cost: np.ndarray
    boxes: np.ndarray
    replaced: np.ndarray
    expired: np.ndarray
    phase: int


class _Drawer:
    """Draws places of a corpus, condensed into a hotspot with a certain share."""

    def __init__(self, corpus: Corpus, setting: WorkloadSetting) -> None:
        self.setting, self.corpus = setting, corpus
        self.random = np.random.default_rng([setting.seed, 23])
        ends = [np.quantile(axis, (_TRIMMED, 1 - _TRIMMED)) for axis in (corpus.lon, corpus.lat)]
        places = [(axis - low) / max(high - low, 1e-9) for axis, (low, high) in zip((corpus.lon, corpus.lat), ends)]
        self.rows = np.flatnonzero((places[0] >= 0) & (places[0] < 1) & (places[1] >= 0) & (places[1] < 1))
        self.places = np.stack(places, axis=1)

    def draw(self, n: int, hotspot: Hotspot | None) -> tuple[np.ndarray, np.ndarray]:
        """Return rows of the corpus, int64[n], and their places, float64[n, 2], as shares of the space."""
        rows = self.random.choice(self.rows, n)
        places = self.places[rows]
        if hotspot is not None:
            hot = self.random.random(n) < self.setting.hot_share
            places[hot] = np.array(hotspot) + self.setting.hot_scale * places[hot]
        return rows, places

    def cells(self, places: np.ndarray) -> np.ndarray:
        """Return the cells of places, int64 of the same shape."""
        return np.clip((places * self.setting.grid).astype(np.int64), 0, self.setting.grid - 1)

    def subscriptions(self, n: int, hotspot: Hotspot | None) -> tuple[np.ndarray, np.ndarray]:
        """Return boxes of cells, int64[n, 4], and the rarest keyword of each, int64[n]; -1 where a place has no words."""
        rows, places = self.draw(n, hotspot)
        half = self.setting.side / 2
        boxes = np.concatenate((self.cells(places - half), 1 + self.cells(places + half)), axis=1)
        offsets, first = self.corpus.offsets, np.full(n, -1, np.int64)
        lengths = np.diff(offsets)[rows]
        drawn = np.argsort(self.random.random((n, int(lengths.max(initial=1)))) + (np.arange(lengths.max(initial=1)) >= lengths[:, None]), axis=1)
        ranks = np.where(np.arange(drawn.shape[1]) < np.minimum(lengths, self.setting.keywords)[:, None], drawn, drawn.shape[1]).min(axis=1)
        some = lengths > 0
        first[some] = self.corpus.terms[offsets[rows[some]] + ranks[some]]  # terms rise within a place, so the first one is the rarest
        return boxes, first

    def hotspots(self) -> list[Hotspot | None]:
        """Return the hotspot of each phase; each is far from the one before."""
        found: list[Hotspot | None] = [None]
        room = 1 - self.setting.hot_scale
        for _ in range(self.setting.moves):
            drawn = [Hotspot(*(room * self.random.random(2)).tolist()) for _ in range(16)]
            last = found[-1] or Hotspot(room / 2, room / 2)
            found.append(max(drawn, key=lambda one: abs(one.x - last.x) + abs(one.y - last.y)))
        return found


def play(corpus: Corpus, setting: WorkloadSetting) -> Iterator[Second]:
    """Yield the seconds of a workload. The same arguments give the same seconds."""
    drawer, vocabulary = _Drawer(corpus, setting), int(corpus.terms.max(initial=0)) + 1
    hotspots = drawer.hotspots()
    boxes, terms = drawer.subscriptions(setting.subscriptions, None)
    oldest, per_s = 0, max(1, setting.subscriptions // setting.lifetime_s)
    for phase, hotspot in enumerate(hotspots):
        for _ in range(setting.hot_s if phase else setting.calm_s):
            replaced = np.arange(oldest, oldest + per_s) % setting.subscriptions
            oldest = (oldest + per_s) % setting.subscriptions
            expired = boxes[replaced]
            boxes[replaced], terms[replaced] = drawer.subscriptions(per_s, hotspot)
            rows, places = drawer.draw(setting.messages_per_s, hotspot)
            x, y = drawer.cells(places).T
            offsets, index = select_lists(corpus.offsets, rows)
            found = kernels.count_candidates(_postings(boxes, terms, vocabulary), x, y, offsets, corpus.terms[index])
            yield Second(places, x, y, 1.0 + found, boxes.copy(), replaced, expired, phase)


def _postings(boxes: np.ndarray, terms: np.ndarray, vocabulary: int) -> kernels.Postings:
    order = np.argsort(terms, kind="stable")
    return kernels.Postings(np.searchsorted(terms[order], np.arange(vocabulary + 1)), order, boxes)
