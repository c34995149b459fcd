"""Counters of tasks over Storm's windows: the last ten minutes, three hours, a day, and all time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dskype.topology.model import is_system_id

__all__ = ["ALL_TIME", "WINDOWS", "CounterHistory", "Counts", "Window"]

_PARTS = 20
"""Into how many parts a window is divided (Storm's ``num.stat.buckets``): it ends now, and begins with a whole part."""


class Window(NamedTuple):
    """A window of Storm's UI.

    :ivar key: its name in the API.
    :ivar hint: its name for people.
    :ivar secs: its length; None: all time.
    """

    key: str
    hint: str
    secs: int | None


ALL_TIME = Window(":all-time", "All time", None)
WINDOWS = {w.key: w for w in (Window("600", "10m 0s", 600), Window("10800", "3h 0m 0s", 10_800), Window("86400", "1d 0h 0m 0s", 86_400), ALL_TIME)}
"""Key -> window."""

_BY_STREAM = ("emitted", "transferred", "executed", "acked", "failed")
_LATENCIES = ("execute", "process", "complete")


class Counts(NamedTuple):
    """What tasks have done.

    The keys of ``emitted`` and ``transferred`` are streams, and so are those of a spout's ``acked`` and ``failed``. All others are
    ``component/stream``. A latency is (number of durations, sum in nanoseconds).
    """

    emitted: dict[str, int]
    transferred: dict[str, int]
    executed: dict[str, int]
    acked: dict[str, int]
    failed: dict[str, int]
    execute: tuple[int, int]
    process: tuple[int, int]
    complete: tuple[int, int]

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Counts:
        """Return the counts in a task's report, which may lack some."""
        fields: dict[str, Any] = {name: dict(report.get(name) or {}) for name in _BY_STREAM}
        for name in _LATENCIES:
            count, total_ns = report.get(name) or (0, 0)
            fields[name] = int(count), int(total_ns)
        return cls(**fields)

    @classmethod
    def total(cls, parts: Iterable[Counts]) -> Counts:
        """Return the sum of counts."""
        found = cls.of({})
        sums = [[0, 0] for _ in _LATENCIES]
        for part in parts:
            for name in _BY_STREAM:
                mine = getattr(found, name)
                for key, n in getattr(part, name).items():
                    mine[key] = mine.get(key, 0) + n
            for pair, name in zip(sums, _LATENCIES):
                count, total_ns = getattr(part, name)
                pair[0] += count
                pair[1] += total_ns
        latencies: dict[str, Any] = {name: tuple(pair) for name, pair in zip(_LATENCIES, sums)}
        return found._replace(**latencies)

    def since(self, before: Counts) -> Counts:
        """Return what was added to ``before``."""
        fields: dict[str, Any] = {name: {k: max(0, n - getattr(before, name).get(k, 0)) for k, n in getattr(self, name).items()} for name in _BY_STREAM}
        for name in _LATENCIES:
            fields[name] = tuple(max(0, now - then) for now, then in zip(getattr(self, name), getattr(before, name)))
        return Counts(**fields)

    def user(self) -> Counts:
        """Return the counts without system streams."""
        fields: dict[str, Any] = {name: {k: n for k, n in getattr(self, name).items() if not is_system_id(k.rpartition("/")[2])} for name in _BY_STREAM}
        return self._replace(**fields)

    def n(self, name: str) -> int:
        """Return the sum of a counter over its streams."""
        return sum(getattr(self, name).values())

    def mean_ms(self, name: str) -> float:
        """Return a mean latency in milliseconds; 0 if there are no durations."""
        count, total_ns = getattr(self, name)
        return total_ns / count / 1e6 if count else 0.0


class _TaskHistory:
    """Samples of a task's counts: of each window, one per part."""

    def __init__(self) -> None:
        self.newest_ms = -1
        self.newest = Counts.of({})
        self._samples: dict[int, deque[tuple[int, Counts]]] = {w.secs: deque() for w in WINDOWS.values() if w.secs is not None}

    def add(self, time_ms: int, counts: Counts) -> None:
        if time_ms <= self.newest_ms:  # written again so that the topic does not forget it
            return
        self.newest_ms, self.newest = time_ms, counts
        for secs, samples in self._samples.items():
            if not samples or time_ms - samples[-1][0] >= secs * 1000 // _PARTS:
                samples.append((time_ms, counts))
            while len(samples) > 1 and samples[1][0] <= time_ms - secs * 1000:
                samples.popleft()

    def over(self, secs: int, now_ms: int, born_ms: int) -> Counts:
        start_ms, before = now_ms - secs * 1000, None
        if born_ms >= start_ms:
            return self.newest
        for time_ms, counts in list(self._samples[secs]):  # a copy, because another thread may add to it
            if before is not None and time_ms > start_ms:
                break
            before = counts
        return self.newest if before is None else self.newest.since(before)


class CounterHistory:
    """The counts of all tasks of a topology over Storm's windows, fed with the records of its metrics topic.

    A window that begins before the first report that was read begins with that report. Memory: at most 66 samples per task.
    """

    def __init__(self) -> None:
        self._tasks: dict[int, _TaskHistory] = {}
        self.first_ms: dict[int, int] = {}
        """Task -> time of the first report that was read."""

    def add_record(self, record: Mapping[str, Any]) -> None:
        """Add a parsed record of statistics."""
        time_ms = int(record["time_ms"])
        for report in record["tasks"]:
            task = int(report["task"])
            self.first_ms.setdefault(task, time_ms)
            self._tasks.setdefault(task, _TaskHistory()).add(time_ms, Counts.of(report))

    def counts(self, tasks: Iterable[int], window: Window, now_ms: int, born_ms: int) -> Counts:
        """Return what tasks did within a window.

        :param now_ms: the end of the window.
        :param born_ms: when the topology was submitted; in a window that begins before, all counts are new.
        """
        histories = [history for task in tasks if (history := self._tasks.get(task)) is not None]
        if window.secs is None:
            return Counts.total(history.newest for history in histories)
        return Counts.total(history.over(window.secs, now_ms, born_ms) for history in histories)
