"""Whether the lists at the end of a run are the best k messages of its window, by a plain computation of every score."""

from __future__ import annotations

from collections import deque

import numpy as np

from dskype.bolts.ranked_lists import RankedLists
from dskype.deploy.lab.skype.workload import Stream, Subscriptions
from dskype.deploy.lab.topk.truth import scores_of_subscription
from dskype.spouts.batch import MessageBatch

__all__ = ["different"]

_ROUNDING = 1e-9
"""Scores that add the same terms in another order differ by less."""


def different(lists: RankedLists, s: Subscriptions, stream: Stream, watermark: int, extent: int, diagonal_deg: float) -> int:
    """Return how many lists are not the best messages of the window, in the order of their scores. Messages of equal scores may stand in any order.

    :param lists: of the subscriptions.
    :param stream: the run's from its beginning on.
    :param watermark: of the window.
    :param extent: of the window, in positions.
    """
    kept: deque[MessageBatch] = deque(maxlen=stream.slots_of_window + 1)
    end = -1
    while end < watermark:
        batch, _, end = stream.slot()
        kept.append(batch)
    wrong = 0
    for i in range(len(s)):
        part = slice(lists.offsets[i], lists.offsets[i + 1])
        seqs, scores = lists.seqs[part].tolist(), lists.scores[part]
        known: dict[int, float] = {}
        for batch in kept:
            scored = scores_of_subscription(s, i, batch, diagonal_deg)
            rows = np.flatnonzero(~np.isnan(scored) & (batch.position > watermark - extent))
            known.update(zip(batch.seq[rows].tolist(), scored[rows].tolist()))
        best = sorted(known.values(), reverse=True)[: int(s.k[i])]
        own = [known.get(seq, -np.inf) for seq in seqs]
        wrong += not (len(set(seqs)) == len(best) == len(scores) and np.allclose(scores, best, 0, _ROUNDING) and np.allclose(own, scores, 0, _ROUNDING))
    return wrong
