"""The score of a message for a top-k subscription, and what it can be at most.

Everything that scores or prunes uses these functions, so scores are equal to the last bit wherever they are computed. Three oracles have formulas of their
own on purpose: ``tests/naive.py``, ``dskype verify`` and the comparison of top-k indexes. ``tests/spouts/test_score.py`` compares all of them, and lists the
modules that use parts of the formula for bounds of their own.
"""

from __future__ import annotations

import numpy as np

from dskype.spouts.sphere_kernels import great_circle_m
from dskype.topology.kernel_cache import njit

__all__ = ["LEAST", "MARGIN", "score", "score_anywhere", "ssim", "ssim_in_metres", "time_score", "time_scores"]

MARGIN = 1e-9
"""Added to bounds; larger than all rounding errors of a score together."""
LEAST = 2.0**-32
"""Scores below count as this in a time score, so that each has a logarithm."""


@njit(cache=True, inline="always")
def ssim(dx, dy, diagonal_deg):
    """Return the spatial similarity of two points that differ by (dx, dy) degrees (Skype, section 2)."""
    return 1.0 - np.sqrt(dx * dx + dy * dy) / diagonal_deg


@njit(cache=True)
def ssim_in_metres(lat, lon, other_lat, other_lon, scale_m):
    """Return the spatial similarity of two places in degrees: 1 at the same place, 0 from a great-circle distance of ``scale_m`` on."""
    return 1.0 - min(1.0, great_circle_m(lat, lon, other_lat, other_lon) / scale_m)


@njit(cache=True, inline="always")
def score(alpha, spatial, textual):
    """Return ``alpha * SSim + (1 - alpha) * TSim`` (Skype, section 2)."""
    return alpha * spatial + (1.0 - alpha) * textual


@njit(cache=True, inline="always")
def score_anywhere(alpha, textual):
    """Return what a message with at most this textual similarity can reach, wherever it is (journal paper, Lemma 7)."""
    return alpha + (1.0 - alpha) * textual + MARGIN


@njit(cache=True, inline="always")
def time_score(plain, position_ms, half_life_ms):
    """Return the score that ranks with a half-life: the binary logarithm of the score, and the message's time in half-lives. Two messages keep their order for ever.

    Rounding is monotone, so the result never falls while the score or the time rises.
    """
    return np.log2(max(plain, LEAST)) + position_ms / half_life_ms


@njit(cache=True)
def time_scores(plain, positions_ms, half_life_ms):
    """Return :func:`time_score` of many messages, float64[n]."""
    found = np.empty(plain.shape[0])
    for i in range(plain.shape[0]):
        found[i] = time_score(plain[i], positions_ms[i], half_life_ms)
    return found
