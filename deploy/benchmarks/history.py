"""What the tasks of a running topology reported, over time: rates and totals between any two moments."""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from statistics import median
from typing import Any

from kafka import TopicPartition

from dskype.topology.planning.plan import metrics_topic

__all__ = ["History", "Latencies", "Recorder", "quantile", "sequence_numbers"]

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
        return [(b - a) * 1000 / window_ms for a, b in zip(done, done[1:])]


class Recorder:
    """Reads the metrics of one topology into a :class:`History`, in a thread.

    :param kafka: the brokers.
    :param topology: its name.
    """

    def __init__(self, kafka: Any, topology: str) -> None:
        self.history = History()
        self.failure: BaseException | None = None
        self._consumer = kafka.consumer(fetch_max_wait_ms=200)
        where = TopicPartition(metrics_topic(topology), 0)
        self._consumer.assign([where])
        self._consumer.seek_to_beginning(where)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for batch in self._consumer.poll(timeout_ms=200).values():
                    for record in batch:
                        self.history.feed(record.value)
        except Exception as error:  # told by whoever waits for what does not come
            self.failure = error

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join(timeout=5)
        self._consumer.close()


def sequence_numbers(runs: Iterable[Mapping[str, Any]], partition: int = 0) -> Callable[[int], int | None]:
    """Return a function from offsets of the messages' topic to sequence numbers.

    :param runs: records of the topic of sequences.
    """
    found = sorted((r["offset"], r["first"], r["n"], r.get("step", 1)) for r in runs if r["partition"] == partition)
    starts = [run[0] for run in found]

    def number(offset: int) -> int | None:
        i = bisect_left(starts, offset + 1) - 1
        if i < 0 or offset >= found[i][0] + found[i][2]:
            return None
        start, first, _, step = found[i]
        return first + (offset - start) * step

    return number


class Latencies:
    """Times from a message's arrival in Kafka to its results there.

    :param messages: watermark of a message -> (when Kafka took it, epoch ms; its id as JSON text).
    """

    def __init__(self, messages: Mapping[int, tuple[int, bytes]]) -> None:
        self._messages = messages
        self.first: dict[int, int] = {}
        """Watermark -> ms to the first delta of that message, or to the first list that has it."""
        self.all: list[int] = []
        """ms to each delta that a message caused when it came."""
        self.records = self.bytes = self.lists = 0
        self._watermarks = {id: watermark for watermark, (_, id) in messages.items()}
        self._listed: list[int] = []
        self._newest: dict[bytes, int] = {}  # subscription -> watermark of its last list

    def add(self, value: bytes, time_ms: int) -> None:
        """Take in a delta; what is not an ``add`` of the message at its own watermark is passed over."""
        self.records += 1
        self.bytes += len(value)
        head, found, tail = value.partition(b',"op":"add","message":')
        if not found:
            return
        watermark = int(head[head.rindex(b":") + 1 :])
        message = self._messages.get(watermark)
        if message is None or tail[: tail.index(b',"score":')] != message[1]:
            return
        self.all.append(self._came(watermark, time_ms))

    def add_list(self, value: bytes | None, time_ms: int) -> None:
        """Take in a whole list, all in order; counted are messages that came after the last one of this subscription.

        An older one that is new in the list has moved up because another expired: the time since it came says nothing. One that comes later has come
        before, too (where there are fewer places than messages).
        """
        self.lists += 1
        if not value:
            return
        head, _, entries = value.partition(b',"topk":[')
        subscription, _, rest = head.partition(b',"registration":')
        last = self._newest.get(subscription, -1)
        now = self._newest[subscription] = int(rest[rest.rindex(b":") + 1 :])
        for entry in entries.split(b'{"message":')[1:]:
            watermark = self._watermarks.get(entry[: entry.index(b',"score":')], -1)
            if last < watermark <= now:
                self._listed.append(self._came(watermark, time_ms))

    def _came(self, watermark: int, time_ms: int) -> int:
        """Note that a result of a message came; returns after how many ms."""
        ms = time_ms - self._messages[watermark][0]
        if ms < self.first.get(watermark, ms + 1):
            self.first[watermark] = ms
        return ms

    def summary(self) -> dict[str, Any]:
        """Return the quantiles."""
        first = list(self.first.values())
        return {
            "messages": len(self._messages),
            "messages_with_results": len(first),
            "first_p50_ms": quantile(first, 0.5),
            "first_p99_ms": quantile(first, 0.99),
            "first_max_ms": max(first, default=None),
            "deltas": self.records,
            "deltas_p50_ms": quantile(self.all, 0.5),
            "deltas_p99_ms": quantile(self.all, 0.99),
            "lists": self.lists,
            "lists_p50_ms": quantile(self._listed, 0.5),
            "lists_p99_ms": quantile(self._listed, 0.99),
        }


def quantile(values: Iterable[float], q: float) -> float | None:
    """Return the smallest value that at least ``q`` of all do not exceed; the median of an even number is between two. None of none."""
    ordered = sorted(values)
    if not ordered:
        return None
    if q == 0.5:
        return median(ordered)
    return ordered[min(len(ordered) - 1, max(0, -int(-q * len(ordered) // 1) - 1))]
