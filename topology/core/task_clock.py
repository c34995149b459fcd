"""The time of a task, which advances with the records of its inbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["TaskClock"]

_NO_END, _FIRST_UNTOLD_MS, _UNTOLD_MS = 1 << 62, 60_000, 5000
"""Limits for a record's timestamp beyond the last time of the topology's clock; a higher timestamp comes from a clock that was set. Before the first
record of the topology's clock there is no limit; after it ``_FIRST_UNTOLD_MS`` applies, and later ``_UNTOLD_MS`` or twice the interval of such records."""


class TaskClock:
    """A task's time: it follows the timestamps of records, and never goes back.

    The clocks that give records their timestamps may be set; the topology's clock is not. So its records tell how far the timestamps are off, and
    from which time on to ignore timestamps until its next record::

        untold ------- tell() ------> told once ------- tell() ------> told regularly --+
        all timestamps count          60 s beyond it count             5 s, or twice    |
                                                                       the interval     |
                                                                            ^-- tell() -+

    :ivar now_ms: the task's time, epoch ms.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self._skew_ms, self._end_ms, self._told_ms = 0, _NO_END, 0

    @property
    def broker_ms(self) -> int:
        """What the clock that gives records their timestamps showed at the last record of the topology's clock, epoch ms."""
        return self._told_ms - self._skew_ms

    def advance(self, timestamp_ms: int) -> None:
        """Advance to a record's timestamp, if it counts."""
        now_ms = timestamp_ms + self._skew_ms
        if self.now_ms < now_ms <= self._end_ms:
            self.now_ms = now_ms

    def tell(self, now_ms: int, timestamp_ms: int) -> None:
        """Set the time from a record of the topology's clock.

        :param now_ms: the topology's time in the record, epoch ms.
        :param timestamp_ms: the record's timestamp.
        """
        self._skew_ms = now_ms - timestamp_ms
        self._end_ms = now_ms + (max(_UNTOLD_MS, 2 * (now_ms - self._told_ms)) if self._told_ms else _FIRST_UNTOLD_MS)
        self._told_ms = now_ms
        self.now_ms = max(self.now_ms, now_ms)

    def snapshot(self) -> dict[str, Any]:
        """Return the state, for the task's snapshot."""
        return {"clock_ms": self.now_ms, "clock": [self._skew_ms, self._end_ms, self._told_ms]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`snapshot` added to the task's snapshot."""
        self.now_ms = state["clock_ms"]
        self._skew_ms, self._end_ms, self._told_ms = state.get("clock", (0, _NO_END, 0))  # absent from snapshots of earlier versions
