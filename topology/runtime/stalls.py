"""Finds tasks that have input and do nothing with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Stall", "StallWatch"]


class Stall(NamedTuple):
    """A task that does not get on.

    :ivar seconds: how long it has been so.
    :ivar waiting: tuples (of a spout: pulses) that wait for it.
    """

    component: str
    task: int
    seconds: float
    waiting: int

    def as_text(self) -> str:
        """Say it in one sentence."""
        what = "tuple waits" if self.waiting == 1 else "tuples or pulses wait"
        return f"task {self.task} of component {self.component!r} has done nothing for {self.seconds:.0f} s while {self.waiting:,} {what} for it"


class StallWatch:
    """Remembers since when every task stands where it stands.

    :param after_s: so long a task may take for what it has; a micro-batch of a busy task takes seconds.

    >>> watch = StallWatch(after_s=30)
    >>> watch.look({4: "count"}, {4: 100}, {4: 7}, now_s=0), watch.look({4: "count"}, {4: 100}, {4: 9}, now_s=31)
    ([], [Stall(component='count', task=4, seconds=31, waiting=9)])
    >>> watch.look({4: "count"}, {4: 109}, {4: 0}, now_s=32)
    []
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since: dict[int, tuple[int | None, float]] = {}  # task -> its version, since when it has that and input

    def look(self, tasks: Mapping[int, str], versions: Mapping[int, int], waiting: Mapping[int, int], now_s: float) -> list[Stall]:
        """Return the tasks that have stood still for too long, the longest first.

        :param tasks: task -> component, of all tasks.
        :param versions: task -> version, as far as reported.
        :param waiting: task -> what waits for it.
        :param now_s: a clock that never goes back.
        """
        found = []
        for task, component in tasks.items():
            version, n = versions.get(task), waiting.get(task, 0)
            before = self._since.get(task)
            if not n or before is None or before[0] != version:
                self._since[task] = version, now_s
            elif now_s - before[1] >= self._after_s:
                found.append(Stall(component, task, now_s - before[1], n))
        return sorted(found, key=lambda stall: -stall.seconds)
