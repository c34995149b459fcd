"""Top-k subscriptions with the thresholds of a full window, and the messages that come next."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dskype.bolts.skype import Skype
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.skype.experiments import SkypeSetting
from dskype.deploy.lab.skype.workload import Stream, Subscriptions, draw_subscriptions, look_up
from dskype.spouts.batch import MessageBatch

__all__ = ["BATCH", "SETTING", "TopkIndexWorkload", "draw"]

BATCH = 64
"""Messages per batch; fewer if the window is smaller than ten batches."""

SETTING = SkypeSetting(index="cones", buffer="kmax")
"""What subscriptions ask for: k = 20, 1 to 5 keywords, alpha uniform."""

_AT_ONCE = 10_000


class TopkIndexWorkload(NamedTuple):
    """What indexes of top-k subscriptions are compared on.

    :ivar n: how many subscriptions an index is filled with: the first ones. The others replace the first of these.
    :ivar thresholds: float64[], of each subscription: its k-th best score in the window; -inf if fewer messages share a keyword with it.
    :ivar batches: the messages to match, later than those of the window.
    """

    n: int
    subscriptions: Subscriptions
    thresholds: np.ndarray
    batches: list[MessageBatch]
    diagonal_deg: float

    @property
    def replaced(self) -> int:
        """How many subscriptions are replaced: a fifth."""
        return len(self.subscriptions) - self.n

    def first(self, n: int, batches: int) -> TopkIndexWorkload:
        """Return a small workload: the first ``n`` subscriptions, the first ones of those that replace some, the first batches."""
        rows = np.concatenate([np.arange(n), self.n + np.arange(min(self.replaced, _fifth(n)))])
        return TopkIndexWorkload(n, self.subscriptions.take(rows), self.thresholds[rows], self.batches[:batches], self.diagonal_deg)


def draw(corpus: Corpus, n: int, window: int, messages: int, seed: int = 0, tell: Callable[[float], None] = lambda share: None) -> TopkIndexWorkload:
    """Fill a window, draw subscriptions, and look all of them up in it; the same arguments give the same workload.

    :param window: |W|, messages; they come from the corpus in a random order, and repeat in another one if it has fewer.
    :param messages: how many come next, at least; batches are full.
    :param tell: called with the share of the subscriptions that have been looked up.
    """
    stream = Stream(corpus, window, seed=seed, batch=BATCH)
    skype = Skype(stream.extent, corpus.diagonal_deg)
    for _ in range(stream.slots_of_window):
        batch, full, _ = stream.slot()
        skype.advance(batch, watermark=full)
    subscriptions = draw_subscriptions(corpus, n + _fifth(n), k=SETTING.k, keywords=SETTING.keywords, seed=seed)
    thresholds = np.full(len(subscriptions), -np.inf)
    for start in range(0, len(subscriptions), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, len(subscriptions)))
        some = subscriptions.take(rows)
        lists = look_up(skype.window, some, skype.watermark, some.k.astype(np.int64), skype.extent, corpus.diagonal_deg)
        full_lists = np.diff(lists.offsets) == some.k
        thresholds[rows[full_lists]] = lists.scores[lists.offsets[1:][full_lists] - 1]
        tell(start / len(subscriptions))
    tell(1.0)
    batches = [stream.slot()[0] for _ in range(-(-messages // stream.batch))]
    return TopkIndexWorkload(n, subscriptions, thresholds, batches, corpus.diagonal_deg)


def _fifth(n: int) -> int:
    return max(1, n // 5)
