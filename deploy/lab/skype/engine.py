"""A :class:`~dskype.bolts.skype.Skype` with a full window and all its subscriptions: what benchmarks of the whole engine start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.skype import Skype
from dskype.deploy.lab.comparing import show_share
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.skype.experiments import SkypeSetting
from dskype.deploy.lab.skype.workload import Stream, Subscriptions, draw_subscriptions, look_up, shorten

__all__ = ["Known", "SkypeScale", "prepare"]

_LISTS_BYTES = 1 << 30
"""The lists of all subscriptions at the start are kept for the next run if they are not larger than this."""


@dataclass(frozen=True)
class SkypeScale:
    """The sizes of a run.

    :ivar arrivals: messages to measure; ``warm_up``: messages before them, which are not measured.
    """

    subscriptions: int
    window: int
    arrivals: int
    warm_up: int
    seed: int = 0


class Known:
    """The lists of all subscriptions at the start, computed once for each workload, as long as needed so far."""

    def __init__(self) -> None:
        self._key: Any = None
        self._lists: RankedLists | None = None
        self._count = 0

    def lists_of(self, key: Any, skype: Skype, subscriptions: Subscriptions) -> Callable[[np.ndarray], RankedLists]:
        """Return a function that returns the best messages of the window for all subscriptions.

        :param key: everything that the lists depend on.
        """

        def lists(wanted: np.ndarray) -> RankedLists:
            count = int(wanted.max())
            if self._lists is None or self._key != key or self._count < count:
                wanted_by_all = np.full(len(subscriptions), count)
                tell = show_share("subscriptions are looked up in the window")
                found = look_up(skype.window, subscriptions, skype.watermark, wanted_by_all, skype.extent, skype.engine.diagonal_deg, tell)
                if sum(column.nbytes for column in found) > _LISTS_BYTES:
                    return shorten(found, wanted)
                self._key, self._lists, self._count = key, found, count
            return shorten(self._lists, wanted)

        return lists


def prepare(setting: SkypeSetting, corpus: Corpus, scale: SkypeScale, known: Known) -> tuple[Skype, Stream, np.ndarray]:
    """Fill the window, register all subscriptions, and let ``scale.warm_up`` messages pass; return engine, stream and slots."""
    n, window = max(1, round(scale.subscriptions * setting.subscriptions)), max(10, round(scale.window * setting.window))
    stream = Stream(corpus, window, timed=setting.timed, seed=scale.seed)
    skype = Skype(
        stream.extent,
        corpus.diagonal_deg,
        index=setting.index,
        index_options=setting.index_options,
        buffer=setting.buffer,
        buffer_options=setting.buffer_options,
        window_index=setting.window_index,
    )
    for _ in range(stream.slots_of_window):
        messages, _, end = stream.slot()
        skype.advance(messages, watermark=end)
    subscriptions = draw_subscriptions(corpus, n, k=setting.k, keywords=setting.keywords, zipf=setting.zipf, seed=scale.seed)
    key = (id(corpus), scale.seed, n, setting.keywords, setting.zipf, window, setting.timed)
    slots = skype.register(*vars(subscriptions).values(), known=known.lists_of(key, skype, subscriptions))
    for _ in range(-(-scale.warm_up // stream.batch)):
        messages, _, end = stream.slot()
        skype.advance(messages, watermark=end)
    return skype, stream, slots
