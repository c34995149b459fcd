"""Kernels of :mod:`dskype.deploy.benchmarks.papers.balancing_workload`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

__all__ = ["Postings", "count_candidates"]


class Postings(NamedTuple):
    """Subscriptions by term: rows ``rows[starts[t]:starts[t + 1]]`` have term *t*; ``boxes`` are their rectangles in cells."""

    starts: np.ndarray
    rows: np.ndarray
    boxes: np.ndarray


@njit(cache=True)
def count_candidates(postings: Postings, x: np.ndarray, y: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """Return how many subscriptions around its cell have a keyword of each message, int64[n]; each counts once."""
    seen = np.full(len(postings.boxes), -1, np.int64)
    found = np.zeros(len(x), np.int64)
    for i in range(len(x)):
        for j in range(offsets[i], offsets[i + 1]):
            for p in range(postings.starts[terms[j]], postings.starts[terms[j] + 1]):
                row = postings.rows[p]
                box = postings.boxes[row]
                if seen[row] != i and box[0] <= x[i] < box[2] and box[1] <= y[i] < box[3]:
                    seen[row] = i
                    found[i] += 1
    return found
