"""From which watermark on a subscription task receives all that a plan sends to it."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Coverage"]

_UNKNOWN = np.iinfo(np.int64).max


class Coverage:
    """Collects what all distribution tasks say about a plan: their markers, and that all their subscriptions have moved.

    :param sources: how many distribution tasks there are.
    """

    def __init__(self, sources: int) -> None:
        self._sources = sources
        self._from: dict[int, int] = {0: -1}
        self._markers: dict[int, dict[int, int]] = {}
        self._finished: dict[int, set[int]] = {}

    def record_marker(self, version: int, source: int, high: int) -> None:
        """Record that a distribution task sends by a plan from here on; ``high`` is the newest position that it sent before."""
        marks = self._markers.setdefault(version, {})
        marks[source] = high
        if len(marks) == self._sources:
            self._from[version] = max(self._markers.pop(version).values())

    def record_finished(self, version: int, source: int) -> bool:
        """Record that all subscriptions of a distribution task have moved to a plan; return whether that is now so for all tasks."""
        finished = self._finished.setdefault(version, set())
        finished.add(source)
        if len(finished) < self._sources:
            return False
        del self._finished[version]
        return True

    def since(self, version: int) -> int:
        """Return the watermark from which on all comes that a plan sends; higher than any while it is not known."""
        return self._from.get(version, _UNKNOWN)

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [
            list(self._from.items()),
            [[version, list(marks.items())] for version, marks in self._markers.items()],
            [[version, sorted(sources)] for version, sources in self._finished.items()],
        ]

    def restore(self, state: Any) -> None:
        """Take over a snapshot."""
        since, markers, finished = state
        self._from = dict(since)
        self._markers = {version: dict(marks) for version, marks in markers}
        self._finished = {version: set(sources) for version, sources in finished}
