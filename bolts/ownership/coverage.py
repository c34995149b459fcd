"""Tracks from which watermark on a subscription task receives everything that a plan sends to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dskype.bolts.protocol.placements import Epoch

__all__ = ["Coverage"]

_UNKNOWN = np.iinfo(np.int64).max


class Coverage:
    """Collects what distribution tasks say about a plan: their markers, and when all their subscriptions have moved.

    :param sources: number of distribution tasks.
    :param summaries: whether they route by interest. Then all of them know the interest of a placement from its watermark on, not earlier.
    """

    def __init__(self, sources: int, summaries: bool = False) -> None:
        self._sources, self._summaries = sources, summaries
        self._from: dict[int, int] = {0: -1}
        self._markers: dict[int, dict[int, int]] = {}
        self._finished: dict[int, dict[int, int]] = {}  # version -> distribution task -> its watermark

    def record_marker(self, version: int, source: int, high: int) -> None:
        """Record that a distribution task sends by a plan from now on; ``high`` is the newest position that it sent before."""
        marks = self._markers.setdefault(version, {})
        marks[source] = high
        if len(marks) == self._sources:
            self._from[version] = max(self._markers.pop(version).values())

    def record_finished(self, version: int, source: int, at: int) -> int | None:
        """Record that all subscriptions of a distribution task have moved to a plan, at its watermark ``at``.

        :returns: when those of all tasks have, the position above which no subscription needs the routes of older plans: the highest of these watermarks, or
            the newest position that was sent by an older plan alone, which a subscription still matches that registers now. Otherwise None.
        """
        finished = self._finished.setdefault(version, {})
        finished[source] = at
        return None if len(finished) < self._sources else max(self._from[version], *self._finished.pop(version).values())

    def since(self, version: int) -> int:
        """Return the watermark from which on everything arrives that a plan sends here; higher than any while it is unknown."""
        return self._from.get(version, _UNKNOWN)

    def wanted_since(self, epoch: Epoch) -> int:
        """Return the watermark from which on no distribution task withholds a message that a new replica needs; -1: none ever did."""
        return epoch.at if self._summaries else -1

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [
            list(self._from.items()),
            [[version, list(marks.items())] for version, marks in self._markers.items()],
            [[version, sorted(finished.items())] for version, finished in self._finished.items()],
        ]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        since, markers, finished = state
        self._from = dict(since)
        self._markers = {version: dict(marks) for version, marks in markers}
        # Snapshots of earlier versions have no watermarks.
        self._finished = {version: dict((one, -1) if isinstance(one, int) else one for one in sources) for version, sources in finished}
