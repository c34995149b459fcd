"""The cost model of cost-based skybands (Skype, section 6.2; its journal version, section 6.3).

A subscription's skyband is kept for messages with a score of at least theta. Let *n* be their number in a window of |W| messages; then
their share is ``prob(theta) = n / |W|``. Per message that arrives or expires, a threshold costs

``C(theta) = C_sm + C_re``
    *C_sm* ``= prob(theta) * (k * ln(n / k) + match)``: maintenance of the skyband, with the expected size ``k * ln(n / k)`` (equation 11).
    ``match`` is not in the paper: the cost of finding the subscription and fetching its skyband, whatever its size.
    *C_re* ``= reevaluation / Z`` (equation 12), with Z messages between two re-evaluations.

**Z.** The number of messages at or above theta is a random walk that begins at *n*. It goes up with probability ``u = prob(theta) * a`` and
down with ``d = prob(theta) * b``, where *a* and *b* are the shares of arrivals and expiries. It is reflected at ``B = 2n``, and the
re-evaluation is due at k - 1. Distances count from there: the walk begins at x = n - k + 1, and the barrier is at y = 2n - k + 1. The step
from distance j to j - 1 takes ``h(j) = 1/d + (u/d) h(j + 1)``, at the barrier 1/d. With ``rho = a / b``, the sum of h(1)..h(x) is

``Z = (x * (2y - x + 1) / 2) / d``                                              for rho = 1 (the paper's equation 15: a = b = 1/2),
``Z = (x - rho**(y - x + 1) * (1 - rho**x) / (1 - rho)) / ((1 - rho) * d)``      otherwise.

So no simulation is needed. C is proportional to ``1 / |W|``, so the best *n* follows from k and rho, whatever |W| is. In a count window
rho is 1; in a time window it is estimated from the recent past (:class:`Pace`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np

__all__ = ["LEAST_RHO", "MOST_RHO", "CostModel", "Pace"]

LEAST_RHO, MOST_RHO = 0.9, 1.1
"""Bounds of rho, because the recent past is not expected to continue for a whole window."""

_BUCKETS, _RECENT = 32, 8


class CostModel:
    """Finds the threshold with the least cost, as the number of messages at or above it.

    :param reevaluation: cost of a re-evaluation, in units of visiting one entry of a buffer.
    :param match: cost of a match before any entry is visited, in the same unit; 0 gives the paper's formula.
    """

    def __init__(self, reevaluation: float, match: float) -> None:
        self.reevaluation, self.match = float(reevaluation), float(match)
        self._best: dict[tuple[int, float], int] = {}

    def lasting(self, n: int, k: int, rho: float = 1.0) -> float:
        """Return ``Z * prob(theta)``: the expected number of arrivals and expiries at or above theta until a re-evaluation is due."""
        x, y, b = n - k + 1, 2 * n - k + 1, 1.0 / (1.0 + rho)
        if rho == 1.0:
            return x * (2 * y - x + 1) / (2 * b)
        return (x - rho ** (y - x + 1) * (1.0 - rho**x) / (1.0 - rho)) / ((1.0 - rho) * b)

    def cost(self, n: int, k: int, rho: float = 1.0) -> float:
        """Return ``C(theta) * |W|``."""
        return n * (k * log(n / k) + self.match + self.reevaluation / self.lasting(n, k, rho))

    def best(self, k: int, rho: float = 1.0) -> int:
        """Return how many messages should be at or above theta, at least k.

        Theta descends from the k-th score, message by message, as long as the cost falls (section 6.2: similar to a gradient descent).
        """
        n = self._best.get((k, rho))
        if n is None:
            n, cost = k, self.cost(k, k, rho)
            while (lower := self.cost(n + 1, k, rho)) < cost:
                n, cost = n + 1, lower
            if len(self._best) > 4096:
                self._best.clear()
            self._best[k, rho] = n
        return n

    def size(self, k: int) -> int:
        """Return the expected size of the best skyband (Zhang et al., cited in section 6.2.1): ``k * (1 + ln(n / k))``."""
        return int(np.ceil(k * (1.0 + log(self.best(k) / k))))


class Pace:
    """Counts arrivals by time, to estimate the ratio of arrivals to expiries in the recent past (journal version, section 6.3).

    It covers a window and a quarter, in 40 periods of 1/32 of the extent.

    :param extent: extent of the window, in positions.
    """

    def __init__(self, extent: int) -> None:
        self.width = max(1, -(-extent // _BUCKETS))
        self.counts = np.zeros(_BUCKETS + _RECENT, np.int64)
        self.newest = -1  # period of the last count

    def count(self, positions: np.ndarray) -> None:
        """Count arrivals (int64[], rising, not before earlier ones)."""
        if not len(positions):
            return
        periods = positions // self.width
        self._reach(int(periods[-1]))
        size = len(self.counts)
        age = self.newest - periods
        self.counts += np.bincount(size - 1 - age[age < size], minlength=size)

    def rho(self, watermark: int) -> float:
        """Return arrivals per expiry, within bounds; 1 while there are too few counts."""
        self._reach(watermark // self.width)
        if self.newest < len(self.counts):
            return 1.0
        arrived, expired = int(self.counts[-_RECENT - 1 : -1].sum()), int(self.counts[:_RECENT].sum())
        return min(MOST_RHO, max(LEAST_RHO, round((arrived + 64) / (expired + 64), 2)))

    def snapshot(self) -> dict[str, Any]:
        """Return the counts."""
        return {"counts": self.counts.copy(), "newest": self.newest}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with the counts of a snapshot."""
        self.counts, self.newest = np.array(state["counts"], np.int64), int(state["newest"])

    def _reach(self, period: int) -> None:
        passed = min(period - self.newest, len(self.counts))
        if passed > 0:
            self.counts[: -passed or None] = self.counts[passed:]
            self.counts[len(self.counts) - passed :] = 0
            self.newest = period
