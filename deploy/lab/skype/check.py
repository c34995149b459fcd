"""Whether the lists at the end of a run are the best k messages of its window, by a plain computation of every score."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from dskype.bolts.ranked_lists import RankedLists
from dskype.deploy.lab.skype.workload import Stream, Subscriptions
from dskype.spouts.batch import MessageBatch

__all__ = ["different"]

_ROUNDING = 1e-9
"""Scores that add the same terms in another order differ by less."""


def _scores(s: Subscriptions, messages: Sequence[MessageBatch], oldest: int, diagonal_deg: float) -> dict[int, float]:
    """Return the score of each message from a position on that shares a word with the only subscription."""
    weight_of, found = dict(zip(s.terms.tolist(), s.weights.tolist())), {}
    for batch in messages:
        hits = np.flatnonzero(np.isin(batch.terms, s.terms))
        owners = np.searchsorted(batch.offsets, hits, "right") - 1
        tsim = np.zeros(batch.n)
        for owner, hit in zip(owners.tolist(), hits.tolist()):
            tsim[owner] += weight_of[int(batch.terms[hit])] * batch.weights[hit]
        ssim = 1 - np.hypot(batch.lat - s.lat[0], batch.lon - s.lon[0]) / diagonal_deg
        scores = s.alpha[0] * ssim + (1 - s.alpha[0]) * tsim
        found.update({int(batch.seq[row]): float(scores[row]) for row in np.unique(owners) if batch.position[row] >= oldest})
    return found


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
        known = _scores(s.take(np.array([i])), kept, watermark - extent + 1, diagonal_deg)
        best = sorted(known.values(), reverse=True)[: int(s.k[i])]
        own = [known.get(seq, -np.inf) for seq in seqs]
        wrong += not (len(set(seqs)) == len(best) == len(scores) and np.allclose(scores, best, 0, _ROUNDING) and np.allclose(own, scores, 0, _ROUNDING))
    return wrong
