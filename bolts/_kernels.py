"""The score. All indexes use these functions, so their scores are equal to the last bit."""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["score", "ssim"]


@njit(cache=True, inline="always")
def ssim(dx, dy, diagonal_deg):
    """Return the spatial similarity of two points that differ by (dx, dy) degrees (Skype, section 2)."""
    return 1.0 - np.sqrt(dx * dx + dy * dy) / diagonal_deg


@njit(cache=True, inline="always")
def score(alpha, spatial, textual):
    """Return ``alpha * SSim + (1 - alpha) * TSim`` (Skype, section 2)."""
    return alpha * spatial + (1.0 - alpha) * textual
