"""What the tasks of a running topology reported, over time: rates and totals between any two moments."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

__all__ = ["History"]

_APART_MS = 100
"""Reports of a task that are closer together than this are thinned out."""


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
    """Counters and watermarks of tasks by time. Between two reports a number is taken to grow evenly.

    :ivar pids: process id of an executor -> its component.
    :ivar errors: records of errors.
    """

    def __init__(self) -> None:
        self.pids: dict[int, str] = {}
        self.errors: list[dict[str, Any]] = []
        self._component: dict[int, str] = {}
        self._times: dict[int, list[int]] = {}
        self._rows: dict[int, list[dict[str, float]]] = {}
        self._batches: dict[str, dict[int, list[int]]] = {}

    def feed(self, value: bytes) -> None:
        """Take in a record of the metrics topic."""
        self.take(json.loads(value))

    def take(self, record: Mapping[str, Any]) -> None:
        """Take in a record that is parsed already."""
        if record.get("kind") == "error":
            self.errors.append(record)
        elif record.get("kind") == "stats":
            self.pids[record["pid"]] = record["component"]
            self._batches.setdefault(record["component"], {}).setdefault(record["executor"], []).append(record["time_ms"])
            for task in record["tasks"]:
                self._add(record["component"], task["task"], record["time_ms"], _numbers(task))

    def _add(self, component: str, task: int, time_ms: int, row: dict[str, float]) -> None:
        self._component[task] = component
        times, rows = self._times.setdefault(task, []), self._rows.setdefault(task, [])
        if len(times) > 1 and time_ms - times[-2] < _APART_MS:
            times[-1], rows[-1] = max(time_ms, times[-1]), row
        else:
            rows.append(row)  # before its time: readers look at the times first
            times.append(max(time_ms, times[-1]) if times else time_ms)

    def forget(self, before_ms: int) -> None:
        """Drop what is older; of each task the last report before that time stays, and its newest two."""
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
        """Return the time up to which all tasks of a component have reported; 0: none has."""
        return min((self._times[task][-1] for task in self.tasks(component)), default=0)

    def keys(self, component: str, prefix: str) -> set[str]:
        """Return the numbers of a component whose names begin with ``prefix``."""
        return {key for task in self.tasks(component) for key in self._rows[task][-1] if key.startswith(prefix)}

    def at(self, task: int, key: str, time_ms: float) -> float | None:
        """Return a number of a task at a time, None if it is not known; before the first report the first, after the last the last."""
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

    def now(self, component: str, key: str) -> float:
        """Return the newest sum of a number over a component's tasks."""
        return sum(self._rows[task][-1].get(key, 0) for task in self.tasks(component))

    def grown(self, component: str, key: str, start_ms: float, stop_ms: float) -> float:
        """Return by how much the sum of a number over a component's tasks grew."""
        return sum((self.at(task, key, stop_ms) or 0) - (self.at(task, key, start_ms) or 0) for task in self.tasks(component))

    def batches(self, component: str, start_ms: float, stop_ms: float) -> int:
        """Return how many micro-batches of a component ended between two times; every executor reports each that it took part in."""
        return max((sum(start_ms <= at < stop_ms for at in times) for times in self._batches.get(component, {}).values()), default=0)

    def largest_step(self, component: str, key: str) -> float:
        """Return by how much a number of one of a component's tasks grew at most from one report to the next."""
        steps = (
            after[key] - before[key] for task in self.tasks(component) for before, after in pairwise(self._rows[task][:]) if key in before and key in after
        )
        return max(steps, default=0)

    def applied(self, component: str, time_ms: float, tasks: int = 1) -> float:
        """Return how many messages the slowest task of a component has applied: the lowest watermark, from 0, and one.

        :param tasks: how many tasks there are; while not all have a watermark, none is applied.
        """
        marks = [mark for task in self.tasks(component) if (mark := self.at(task, "watermark", time_ms)) is not None]
        return min(marks) + 1 if len(marks) >= tasks else 0

    def rates(self, component: str, start_ms: float, stop_ms: float, window_ms: float) -> list[float]:
        """Return messages per second that the slowest task applied, in windows of the given length, the rest left out."""
        edges = [start_ms + i * window_ms for i in range(int((stop_ms - start_ms) // window_ms) + 1)]
        done = [self.applied(component, edge) for edge in edges]
        return [(b - a) * 1000 / window_ms for a, b in pairwise(done)]
