"""Counts results by subscription, and reports subscriptions whose results are so frequent that they may slow down others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dskype.bolts.arrays import grown

__all__ = ["Busiest"]

_EVERY_MS = 10_000
_NAMED = 3


class Busiest:
    """Counts the results of subscriptions, and names those with too many in the last ten seconds or so.

    The counts are a measurement, not state: after a crash they start at zero. 4 bytes per slot; counting is O(results).

    :param per_s: results per second above which a subscription is named; None: never.
    :param name: returns the id of the subscription in a slot, or None.
    """

    def __init__(self, per_s: int | None, name: Callable[[int], str | None]) -> None:
        self._per_s, self._name = per_s, name
        self._counts = np.zeros(64, np.int32)
        self._total = 0
        self._since_ms: int | None = None

    def count(self, slots: np.ndarray) -> None:
        """Count one result for each entry of ``slots``."""
        if self._per_s is None or not len(slots):
            return
        self._counts = grown(self._counts, int(slots.max()) + 1, 0)
        np.add.at(self._counts, slots, 1)
        self._total += len(slots)

    def pop_report(self, now_ms: int) -> str | None:
        """Return a report of the last seconds and reset the counts. None: it is too early, or no subscription made too many."""
        if self._per_s is None:
            return None
        if self._since_ms is None:
            self._since_ms = now_ms
        elapsed_s = (now_ms - self._since_ms) / 1000
        if elapsed_s * 1000 < _EVERY_MS:
            return None
        most, total = self._per_s * elapsed_s, self._total
        found = None
        if total > most:
            slots = np.flatnonzero(self._counts > most)
            slots = slots[np.argsort(-self._counts[slots], kind="stable")][:_NAMED].tolist()
            named = [f"{name[:80]!r} {self._counts[slot] / elapsed_s:,.0f}" for slot in slots if (name := self._name(slot)) is not None]
            if named:
                found = (
                    f"results per second of the busiest subscriptions: {', '.join(named)}; of all here {total / elapsed_s:,.0f}; "
                    f"named above {self._per_s:,} (dskype.limits.results.per.second)"
                )
        if total:
            self._counts[:] = 0
        self._total, self._since_ms = 0, now_ms
        return found
