"""Puts terms between those of messages."""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["add_terms"]


@njit(cache=True)
def add_terms(offsets, terms, weights, starts, added):
    """Return (offsets, terms, weights) with ``added[starts[i]:starts[i + 1]]``, rising, among the terms of message *i*.

    The new terms weigh 0. None of them is among the message's terms.
    """
    n = len(offsets) - 1
    size = offsets[n] - offsets[0] + starts[n] - starts[0]
    new_offsets, new_terms, new_weights = np.zeros(n + 1, np.int64), np.empty(size, np.int64), np.zeros(size)
    at = np.int64(0)
    for row in range(n):
        own, last, extra, end = offsets[row], offsets[row + 1], starts[row], starts[row + 1]
        while own < last or extra < end:
            if own == last or (extra < end and added[extra] < terms[own]):
                new_terms[at] = added[extra]
                extra += 1
            else:
                new_terms[at], new_weights[at] = terms[own], weights[own]
                own += 1
            at += 1
        new_offsets[row + 1] = at
    return new_offsets, new_terms, new_weights
