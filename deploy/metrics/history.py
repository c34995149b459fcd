"""The reports of a running topology's tasks over time: rates and totals between any two moments."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

__all__ = ["History"]

_APART_MS = 100
"""Of reports of a task that are closer together than this, only some are kept."""


def _numbers(task: Mapping[str, Any]) -> dict[str, float]:
    """Flatten a task's report: ``{"emitted": {"x": 3}}`` becomes ``{"emitted/x": 3}``."""
    found: dict[str, float] = {}
    for key, value in task.items():
        if isinstance(value, Mapping):
            found.update((f"{key}/{k}", v) for k, v in value.items() if isinstance(v, (int, float)))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[key] = value
    return found


class History:
    """Counters and watermarks of tasks by time. Between two reports a number is assumed to grow evenly.

    :ivar pids: process id of an executor -> its component.
    :ivar errors: error records.
    """

    def __init__(self) -> None:
        self.pids: dict[int, str] = {}
        self.errors: list[dict[str, Any]] = []
        self._component: dict[int, str] = {}
        self._times: dict[int, list[int]] = {}
        self._rows: dict[int, list[dict[str, float]]] = {}
        self._batches: dict[str, dict[int, list[int]]] = {}

    def feed(self, value: bytes) -> None:
        """Add a record of the metrics topic."""
        self.add_record(json.loads(value))

    def add_record(self, record: Mapping[str, Any]) -> None:
        """Add a parsed record."""
        if record.get("kind") == "error":
            self.errors.append(record)
        elif record.get("kind") == "stats":
            self.pids[record["pid"]] = record["component"]
            self._batches.setdefault(record["component"], {}).setdefault(record["executor"], []).append(record["time_ms"])
            for task in record["tasks"]:
                self._add_task(record["component"], task["task"], record["time_ms"], _numbers(task))

    def _add_task(self, component: str, task: int, time_ms: int, row: dict[str, float]) -> None:
        self._component[task] = component
        times, rows = self._times.setdefault(task, []), self._rows.setdefault(task, [])
        if len(times) > 1 and time_ms - times[-2] < _APART_MS:
            times[-1], rows[-1] = max(time_ms, times[-1]), row
        else:
            rows.append(row)  # before the time: readers in other threads look at the times first
            times.append(max(time_ms, times[-1]) if times else time_ms)

    def forget(self, before_ms: int) -> None:
        """Drop older reports. Of each task, the last report before that time stays, and so do its newest two."""
        for task, times in self._times.items():
            cut = min(bisect_left(times, before_ms) - 1, len(times) - 2)
            if cut > 0:
                del times[:cut], self._rows[task][:cut]
        for executors in self._batches.values():
            for ends in executors.values():
                del ends[: bisect_left(ends, before_ms)]
        del self.errors[:-1000]

    def since_ms(self) -> int | None:
        """Return the time of the oldest report that is kept."""
        return min((times[0] for times in self._times.values()), default=None)

    def tasks(self, component: str) -> list[int]:
        """Return the tasks of a component that have reported."""
        return sorted(task for task, name in list(self._component.items()) if name == component)

    def last_ms(self, component: str) -> int:
        """Return the time up to which all tasks of a component have reported; 0 if none has."""
        return min((self._times[task][-1] for task in self.tasks(component)), default=0)

    def keys(self, component: str, prefix: str) -> set[str]:
        """Return the names of a component's numbers that begin with ``prefix``."""
        return {key for task in self.tasks(component) for key in self._rows[task][-1] if key.startswith(prefix)}

    def value_at(self, task: int, key: str, time_ms: float) -> float | None:
        """Return a number of a task at a time; None if it is not known. Before its first report the first value counts, after its last one the last."""
        times = self._times.get(task, [])
        n = len(times)
        if not n:
            return None
        rows, i = self._rows[task], bisect_left(times, time_ms, 0, n)
        after = rows[min(i, n - 1)].get(key)
        before = rows[max(i - 1, 0)].get(key)
        if after is None or before is None or i in (0, n):
            return after if before is None or i == 0 else before if after is None else after
        span = times[i] - times[i - 1]
        return before + (after - before) * (time_ms - times[i - 1]) / span if span else after

    def total(self, component: str, key: str) -> float:
        """Return the newest sum of a number over a component's tasks."""
        return sum(self._rows[task][-1].get(key, 0) for task in self.tasks(component))

    def growth(self, component: str, key: str, start_ms: float, stop_ms: float) -> float:
        """Return by how much the sum of a number over a component's tasks grew."""
        return sum((self.value_at(task, key, stop_ms) or 0) - (self.value_at(task, key, start_ms) or 0) for task in self.tasks(component))

    def batches(self, component: str, start_ms: float, stop_ms: float) -> int:
        """Return how many micro-batches of a component ended between two times. Each executor reports the ones that it took part in."""
        return max((sum(start_ms <= at < stop_ms for at in times) for times in self._batches.get(component, {}).values()), default=0)

    def largest_step(self, component: str, key: str) -> float:
        """Return the largest growth of a number from one report of a task to its next one, over all tasks of a component."""
        steps = (
            after[key] - before[key] for task in self.tasks(component) for before, after in pairwise(self._rows[task][:]) if key in before and key in after
        )
        return max(steps, default=0)

    def applied(self, component: str, time_ms: float, tasks: int = 1) -> float:
        """Return how many messages the slowest task of a component has applied: the lowest watermark, which counts from 0, plus one.

        :param tasks: how many tasks there are; until all have a watermark, the answer is 0.
        """
        marks = [mark for task in self.tasks(component) if (mark := self.value_at(task, "watermark", time_ms)) is not None]
        return min(marks) + 1 if len(marks) >= tasks else 0

    def rates(self, component: str, start_ms: float, stop_ms: float, window_ms: float) -> list[float]:
        """Return the messages per second that the slowest task applied, for each whole window of the given length."""
        edges = [start_ms + i * window_ms for i in range(int((stop_ms - start_ms) // window_ms) + 1)]
        done = [self.applied(component, edge) for edge in edges]
        return [(b - a) * 1000 / window_ms for a, b in pairwise(done)]
