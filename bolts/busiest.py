"""Which subscriptions make so many results that the others suffer: counted by slot, named now and then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["Busiest"]

_EVERY_MS = 10_000
_NAMED = 3


class Busiest:
    """Counts the results of subscriptions and names those that made too many in the last ten seconds or so.

    It is a measurement and not state: after a crash it starts again at zero. 4 bytes per slot; counting is O(results).

    :param per_s: results per second above which a subscription is named; None: none is.
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
        if (top := int(slots.max())) >= len(self._counts):
            counts = np.zeros(max(top + 1, 2 * len(self._counts)), np.int32)
            counts[: len(self._counts)] = self._counts
            self._counts = counts
        np.add.at(self._counts, slots, 1)
        self._total += len(slots)

    def pop_report(self, now_ms: int) -> str | None:
        """Return a report of the last seconds, and count from zero again; None: no subscription is to be named, or it is not yet time."""
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
            told = [f"{name[:80]!r} {self._counts[slot] / elapsed_s:,.0f}" for slot in slots if (name := self._name(slot)) is not None]
            if told:
                found = (
                    f"results per second of the busiest subscriptions: {', '.join(told)}; of all here {total / elapsed_s:,.0f}; "
                    f"named above {self._per_s:,} (dskype.limits.results.per.second)"
                )
        if total:
            self._counts[:] = 0
        self._total, self._since_ms = 0, now_ms
        return found
