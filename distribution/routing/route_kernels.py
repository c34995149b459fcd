"""What kernels that route messages have in common: arrays of routes that grow. Imports numpy and numba only."""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["with_room"]


@njit(cache=True)
def with_room(rows, to, total, more):
    """Return arrays of routes (int64[], int32[]) with room for ``more`` entries behind the first ``total``: the same ones, or copies of at least twice the length. Amortised O(more)."""
    if total + more <= len(rows):
        return rows, to
    more_rows, more_to = np.empty(2 * len(rows) + more, np.int64), np.empty(2 * len(rows) + more, np.int32)
    more_rows[:total], more_to[:total] = rows[:total], to[:total]
    return more_rows, more_to
