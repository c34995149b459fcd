"""Kernels of :mod:`dskype.deploy.lab.tornado.balancing_workload`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["Postings", "count_candidates"]


class Postings(NamedTuple):
    """Subscriptions by their rarest keyword.

    :ivar starts: int64[terms + 1]; those of term *t* are ``rows[starts[t]:starts[t + 1]]``.
    :ivar rows: int64[n].
    :ivar boxes: int64[subscriptions, 4], their cells (x0, y0, x1, y1).
    """

    starts: np.ndarray
    rows: np.ndarray
    boxes: np.ndarray


@njit(cache=True)
def count_candidates(postings: Postings, x: np.ndarray, y: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """Return how many subscriptions around the cell of each message have their rarest keyword in it, int64[n]."""
    found = np.zeros(len(x), np.int64)
    for i in range(len(x)):
        for j in range(offsets[i], offsets[i + 1]):
            for p in range(postings.starts[terms[j]], postings.starts[terms[j] + 1]):
                box = postings.boxes[postings.rows[p]]
                found[i] += box[0] <= x[i] < box[2] and box[1] <= y[i] < box[3]
    return found
