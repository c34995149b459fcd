"""Scores with a half-life: bounds of plain scores for time scores, and back.

A *time score* is ``log2(score) + t / half-life`` (:func:`dskype.spouts.score_kernels.time_score`); ``docs/concepts/topk.md`` proves that it ranks as ``score * 2 ** (-age / half-life)`` does.
"""

from __future__ import annotations

import numpy as np

from dskype.spouts.score_kernels import LEAST

__all__ = ["least_scores"]

_MARGIN = 1e-9


def least_scores(time_scores: np.ndarray, until_ms: int | np.ndarray, half_life_ms: float) -> np.ndarray:
    """Return the score below which no message up to a time has some time score, float64[n]: a little less, so that it holds in spite of rounding.

    :param time_scores: float64[n]; -inf: any; inf: none.
    :param until_ms: the latest time of a message, or int64[n].
    """
    until = until_ms / half_life_ms
    slack = _MARGIN + 4.0 * np.abs(np.spacing(until))  # time scores are sums, rounded as numbers of this size are
    found = np.exp2(np.minimum(time_scores - until, 2.0)) * (1.0 - slack)
    return np.where(time_scores == np.inf, np.inf, np.where(found > 2.0 * LEAST, found, -np.inf))
