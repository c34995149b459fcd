"""Statistics of tasks: tasks count, write their counts to the metrics topic as JSON, and readers merge them.

The counters are Storm's (Storm's docs/Metrics.md): *emitted* counts emit calls, *transferred* deliveries, *executed*
execute calls. *Acked* and *failed* count a bolt's own calls, but completed and failed trees of a spout. Counters are
exact and cumulative over the life of a topology, because they are part of a task's snapshot.

Traffic between tasks is counted by the receiver. A receiver that is set back to a snapshot gets the same frames again,
so its counts stay exact.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["Latency", "NewestReports", "TaskStats", "TopologyStats"]

SAMPLE_EVERY = 20
"""Latencies are sampled as in Storm (``topology.stats.sample.rate`` 0.05); counts are exact."""

_MAX_CODES = 32
_OTHER = "other"
_CODE_CHARS = 80


class Latency:
    """A running mean of durations in nanoseconds."""

    __slots__ = ("count", "total_ns")

    def __init__(self, count: int = 0, total_ns: int = 0) -> None:
        self.count, self.total_ns = count, total_ns

    def record(self, ns: int, count: int = 1) -> None:
        """Record ``count`` durations with the sum ``ns``."""
        self.count += count
        self.total_ns += ns

    @property
    def mean_ms(self) -> float:
        """The mean in milliseconds; 0 if there are none."""
        return self.total_ns / self.count / 1e6 if self.count else 0.0


_COUNTERS = ("executed", "acked", "failed", "stream_frames", "stream_bytes", "rejected")
_LATENCIES = ("execute", "process", "complete")
_NUMBERS = ("dead_letters", "errors", "gaps", "duplicates", "busy_ns", "frames", "out_bytes", "in_bytes")


class TaskStats:
    """Counters of one task.

    :ivar stream_frames: ``component/stream`` -> frames with tuples of that stream, repetitions included.
    :ivar stream_bytes: ``component/stream`` -> bytes; the header of a frame counts for its first stream.
    :ivar rejected: ``stage/code`` -> dead letters.
    """

    __slots__ = (*_COUNTERS, *_LATENCIES, *_NUMBERS)

    def __init__(self) -> None:
        self.executed: dict[str, int] = defaultdict(int)
        self.acked: dict[str, int] = defaultdict(int)
        self.failed: dict[str, int] = defaultdict(int)
        self.stream_frames: dict[str, int] = defaultdict(int)
        self.stream_bytes: dict[str, int] = defaultdict(int)
        self.rejected: dict[str, int] = defaultdict(int)
        self.execute, self.process, self.complete = Latency(), Latency(), Latency()
        self.dead_letters = self.errors = self.gaps = self.duplicates = 0
        self.busy_ns = self.frames = self.out_bytes = self.in_bytes = 0

    def reject(self, stage: str, code: str) -> None:
        """Count a dead letter by its stage and code. Beyond 32 different ones, further codes are counted as ``other``."""
        self.dead_letters += 1
        key = f"{stage}/{code[:_CODE_CHARS] or _OTHER}"
        self.rejected[key if key in self.rejected or len(self.rejected) < _MAX_CODES else f"{stage}/{_OTHER}"] += 1

    def count_streams(self, component: str, streams: Sequence[str | None], n_bytes: int, sizes: Callable[[], Sequence[int]]) -> None:
        """Count a frame and its bytes for the streams of its tuples; watermarks are included in their bytes.

        :param component: the component that sent the frame.
        :param streams: the stream of each segment; None for a watermark.
        :param n_bytes: size of the frame.
        :param sizes: returns the size of each segment in bytes; called only if the tuples are of several streams.
        """
        named = [(i, f"{component}/{stream}") for i, stream in enumerate(streams) if stream is not None]
        if not named:
            return
        different = {stream for _, stream in named}
        for stream in different:
            self.stream_frames[stream] += 1
        if len(different) == 1:
            self.stream_bytes[named[0][1]] += n_bytes
            return
        parts = sizes()
        for i, stream in named:
            self.stream_bytes[stream] += parts[i]
        self.stream_bytes[named[0][1]] += n_bytes - sum(parts[i] for i, _ in named)

    def to_dict(self) -> dict[str, Any]:
        """Return all counters for a snapshot or a report."""
        found: dict[str, Any] = {}
        for name in _COUNTERS:
            found[name] = dict(getattr(self, name))
        for name in _LATENCIES:
            latency = getattr(self, name)
            found[name] = [latency.count, latency.total_ns]
        for name in _NUMBERS:
            found[name] = getattr(self, name)
        return found

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the counters of a snapshot."""
        for name in _COUNTERS:
            setattr(self, name, defaultdict(int, state.get(name, ())))  # some are absent from snapshots of earlier versions
        for name in _LATENCIES:
            setattr(self, name, Latency(*state[name]))
        for name in _NUMBERS:
            setattr(self, name, state[name])


_KERNEL = re.compile(r"[\w.<>]{1,200}")


class TopologyStats:
    """The latest statistics of every task of one topology, fed with metrics records.

    Thread-safe for one writer and many readers, because a task's record is replaced as a whole.
    """

    MAX_ERRORS = 200
    CAPACITY_WINDOW_MS, CAPACITY_STEP_MS = 600_000, 10_000

    def __init__(self) -> None:
        self._busy: dict[tuple[str, Any, int], deque[tuple[int, int]]] = {}
        self.tasks: dict[int, dict[str, Any]] = {}
        self._order: dict[int, tuple[int, int, int]] = {}  # task -> (driver's term, journal entry, version) of its newest report
        self.topology_id: str | None = None
        self.errors: deque[dict[str, Any]] = deque(maxlen=self.MAX_ERRORS)
        self.driver: dict[str, Any] = {}
        """The newest record of the topology's driver: restarts, problems, health."""
        self.compiling: dict[tuple[Any, Any], tuple[str, int]] = {}
        """(component, executor) -> the kernel that it compiles, and since when, epoch ms; until its next report."""
        self.unreadable = 0

    def feed(self, value: bytes | None, tasks: Mapping[int, str] | None = None) -> str | None:
        """Process the value of one metrics record and return its component; an invalid record is ignored and counted.

        :param tasks: task -> component of the topology, if known: a record about other tasks is invalid, too. Anyone with
            access to the metrics topic may write to it.
        """
        try:
            record = json.loads(value or b"")
            component = record.get("component")
            if record.get("kind") == "stats" and tasks is not None and not all(_fits(task, component, tasks) for task in record["tasks"]):
                raise ValueError
            if record.get("kind") == "compiling" and ((tasks is not None and component not in tasks.values()) or not _KERNEL.fullmatch(record["kernel"])):
                raise ValueError
            self.feed_record(record)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self.unreadable += 1
            return None
        return component

    def feed_record(self, record: dict[str, Any]) -> None:
        """Process a parsed metrics record."""
        if record.get("kind") == "stats":
            if self.topology_id != (topology := record.get("topology")):
                self.topology_id = topology
                self._order.clear()
            # A replaced process may report late. With its outdated reports the clock would wait forever for pulses that were seen long ago.
            record = {**record, "tasks": [task for task in record["tasks"] if self._is_newer(record.get("term", 0), task)]}
            self._note_busy(record)
            self.compiling.pop((record.get("component"), record.get("executor")), None)
            for task in record["tasks"]:
                before = self.tasks.get(task["task"], {})
                self.tasks[task["task"]] = {
                    **task,
                    "restored": bool(task.get("restored")) and (before.get("restored", True) or before["term"] < record.get("term", 0)),
                    "executor": record.get("executor"),
                    "pid": record.get("pid"),
                    "time_ms": record.get("time_ms"),
                    "term": record.get("term", 0),
                }
        elif record.get("kind") == "compiling":
            self.compiling[record["component"], int(record["executor"])] = record["kernel"], int(record["time_ms"])
        elif record.get("kind") == "error":
            self.errors.append(record)
        elif record.get("kind") == "driver":
            self.driver = record

    def newest_ms(self) -> int | None:
        """Return when the newest report of a task was made, epoch ms; None without any."""
        return max((ms for task in list(self.tasks.values()) if (ms := task.get("time_ms")) is not None), default=None)

    def reported(self, term: int) -> set[int]:
        """Return the tasks that have handled records under a driver's term, or a later one; older reports are of an earlier driver."""
        return {id for id, task in list(self.tasks.items()) if task.get("term", 0) >= term and not task.get("restored")}

    def _is_newer(self, term: int, task: dict[str, Any]) -> bool:
        order = term, task.get("entry", 0), task.get("version", 0)
        if order < self._order.get(task["task"], order):
            return False
        self._order[task["task"]] = order
        return True

    def _note_busy(self, record: dict[str, Any]) -> None:
        now_ms = record.get("time_ms")
        for task in record["tasks"]:
            if now_ms is None or "execute" not in task:  # written by another version
                continue
            history = self._busy.setdefault((record["component"], record.get("executor"), task["task"]), deque())
            if len(history) < 2 or now_ms - history[-2][0] >= self.CAPACITY_STEP_MS:
                history.append((now_ms, task["execute"][1]))
            else:
                history[-1] = (now_ms, task["execute"][1])
            while now_ms - history[0][0] > self.CAPACITY_WINDOW_MS:
                history.popleft()

    def capacity(self, component: str) -> float:
        """Return the share of time spent inside ``execute`` over the last ten minutes, of the busiest executor.

        Storm's capacity: executed x execute latency / window; about 1.0 means that the bolt cannot do more.
        """
        executors: dict[Any, float] = {}
        for (name, executor, _), history in list(self._busy.items()):
            if name == component and len(history) > 1:
                (since_ms, before), (until_ms, after) = history[0], history[-1]
                executors[executor] = executors.get(executor, 0.0) + max(0, after - before) / 1e6 / max(1, until_ms - since_ms)
        return max(executors.values(), default=0.0)

    def undelivered_tuples(self) -> int:
        """Return how many tuples were sent by a task and not yet received by their target."""
        return sum(self.undelivered_by_task().values())

    def undelivered_by_task(self) -> dict[int, int]:
        """Return target task -> undelivered tuples, for tasks to which anything was sent."""
        received: dict[tuple[int, int], int] = {}
        for task_id, task in list(self.tasks.items()):
            for source, count in task["received"].items():
                received[int(source), task_id] = count
        found: dict[int, int] = {}
        for task_id, task in list(self.tasks.items()):
            for target, count in task["sent"].items():
                found[int(target)] = found.get(int(target), 0) + max(0, count - received.get((task_id, int(target)), 0))
        return found

    def positions(self) -> dict[str, dict[tuple[str, int], int]]:
        """Return isolation level -> (topic, partition) -> next offset to emit, of everything that the topology's Kafka spouts read."""
        found: dict[str, dict[tuple[str, int], int]] = {}
        for task in list(self.tasks.values()):
            for topic, partition, position, _ in task.get("kafka", ()):
                of_level = found.setdefault(task.get("isolation", "read_uncommitted"), {})
                of_level[topic, partition] = min(position, of_level.get((topic, partition), position))
        return found

    def total(self, component: str, counter: str, stream: str | None = None) -> int:
        """Sum a counter (emitted, transferred, executed, acked, failed, ...) over a component's tasks."""
        result = 0
        for task in list(self.tasks.values()):
            if task["component"] == component:
                value = task.get(counter, 0)
                if isinstance(value, dict):
                    value = sum(v for k, v in value.items() if (k == stream if stream is not None else not k.rpartition("/")[2].startswith("__")))
                result += value
        return result

    def mean_latency_ms(self, component: str, kind: str) -> float:
        """Return the mean execute, process or complete latency over a component's tasks."""
        latency = Latency()
        for task in list(self.tasks.values()):
            if task["component"] == component:
                latency.record(task[kind][1], task[kind][0])
        return latency.mean_ms


def _fits(report: Mapping[str, Any], component: Any, tasks: Mapping[int, str]) -> bool:
    """Tell whether a task's report is valid, so that the clock can calculate with it."""
    counts = [*report["emitted"].values(), *report["received"].values(), *report["sent"].values(), report["version"], report.get("pulse", 0)]
    return (
        tasks.get(report["task"]) == component == report["component"]
        and all(type(n) is int and n >= 0 for n in counts)
        and all(int(task) in tasks for task in (*report["received"], *report["sent"]))
    )


class NewestReports:
    """The newest statistics record of every executor, to be written again before its topic drops it.

    An idle executor reports nothing. Without repeated records, later readers would not know what it has done.

    :param every_s: age at which records are written again.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._newest: dict[bytes, tuple[bytes, float]] = {}

    def remember(self, key: bytes | None, value: bytes, now_s: float) -> None:
        """Remember a record of the metrics topic, unless it has no key and so is not statistics."""
        if key is not None:
            self._newest[key] = value, now_s

    def due(self, stats: TopologyStats, now_s: float) -> list[tuple[bytes, bytes]]:
        """Return (key, value) of the records to write again, and forget those that are superseded.

        :param stats: statistics that were fed with the same records.
        """
        found = []
        for key, (value, received_s) in list(self._newest.items()):
            if now_s - received_s < self._every_s:
                continue
            record = json.loads(value)
            if all((stats.tasks.get(t["task"]) or {}).get("time_ms") == record["time_ms"] for t in record["tasks"]):
                found.append((key, value))
            else:  # another executor has its tasks now
                del self._newest[key]
        return found
