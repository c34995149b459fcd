"""Finds stalled tasks, which have input and do not process it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from dskype.topology.core.steady_clock import AttentiveClock

__all__ = ["Stall", "StallWatch"]


class Stall(NamedTuple):
    """A stalled task.

    :ivar seconds: how long it has been stalled.
    :ivar waiting: tuples, or pulses of a spout, that wait for it.
    """

    component: str
    task: int
    seconds: float
    waiting: int

    def as_text(self) -> str:
        """Return a sentence about it."""
        waiting = "tuple waits" if self.waiting == 1 else "tuples or pulses wait"
        return f"task {self.task} of component {self.component!r} has done nothing for {self.seconds:.0f} s while {self.waiting:,} {waiting} for it"


_FIRST_BATCH_S = 600.0
"""Time after which a task that has never run a batch counts as stalled: Spark may start for minutes, and kernels may be compiled."""


class StallWatch:
    """Remembers since when each task has had its present version.

    :param after_s: time without progress after which a task with input is stalled; a micro-batch of a busy task takes seconds.
    :param gap_s: of the time between two calls of :meth:`find`, at most this many seconds count: a caller who stood still has watched no task.

    >>> watch = StallWatch(after_s=30)
    >>> watch.find({4: "count"}, {4: 100}, {4: 7}, now_s=0), watch.find({4: "count"}, {4: 100}, {4: 9}, now_s=31)
    ([], [Stall(component='count', task=4, seconds=31.0, waiting=9)])
    >>> watch.find({4: "count"}, {4: 109}, {4: 0}, now_s=32)
    []
    """

    def __init__(self, after_s: float, gap_s: float = math.inf) -> None:
        self._after_s, self._now_s = after_s, 0.0
        self._watched = AttentiveClock(gap_s, lambda: self._now_s)
        self._since: dict[int, tuple[int | None, float]] = {}  # task -> (version, since when it has had this version and input)

    def find(
        self, tasks: Mapping[int, str], versions: Mapping[int, int], waiting: Mapping[int, int], now_s: float, begun: Collection[int] | None = None
    ) -> list[Stall]:
        """Return the stalled tasks, the longest stalled first.

        :param tasks: task -> component, for all tasks.
        :param versions: task -> version, as far as reported.
        :param waiting: task -> number of tuples or pulses that wait for it.
        :param now_s: time by a clock that never goes back.
        :param begun: tasks that have run a batch since the topology was started here; the others may take ten minutes for the first one. None: all have.
        """
        self._now_s = now_s
        found, watched_s = [], self._watched.look()
        for task, component in tasks.items():
            version, n = versions.get(task), waiting.get(task, 0)
            before = self._since.get(task)
            if not n or before is None or before[0] != version:
                self._since[task] = version, watched_s
            elif watched_s - before[1] >= (self._after_s if begun is None or task in begun else _FIRST_BATCH_S):
                found.append(Stall(component, task, watched_s - before[1], n))
        return sorted(found, key=lambda stall: -stall.seconds)
