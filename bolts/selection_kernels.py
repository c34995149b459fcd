"""Selection among keys, for indexes that halve what they hold again and again. Imports numpy and numba only."""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["select"]


@njit(cache=True)
def select(keys, low, high, at):
    """Put the keys of ``keys[low:high]``, all different, that belong before ``at`` before it (quickselect without branches)."""
    sample = np.empty(15, np.int64)
    while high - low > 1:
        size = 15 if high - low > 512 else 3
        for i in range(size):
            value = keys[low + i * (high - low - 1) // (size - 1)]
            j = i - 1
            while j >= 0 and sample[j] > value:
                sample[j + 1] = sample[j]
                j -= 1
            sample[j + 1] = value
        # Not the lowest of the sample: then something is below it, and the range gets smaller.
        pivot = sample[min(max(size * (at - low) // (high - low), 1), size - 1)] if high - low > 2 else max(keys[low], keys[low + 1])
        j = low
        for i in range(low, high):
            value = keys[i]
            keys[i] = keys[j]
            keys[j] = value
            j += value < pivot
        if at == j:
            return
        if at < j:
            high = j
        else:
            low = j
