"""Record the reports of a running topology, and measure the times from messages to their results."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from dskype.deploy.metrics.history import History
from dskype.deploy.metrics.reader import MetricsReader

__all__ = ["Latencies", "Recorder", "quantile"]


class Recorder:
    """Reads the metrics of one topology into a :class:`History`, in a thread.

    :param kafka: the brokers.
    :param topology: its name.
    """

    def __init__(self, kafka: Any, topology: str) -> None:
        self.history = History()
        self.failure: BaseException | None = None
        self._reader = MetricsReader(kafka, topology, self.history)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._reader.poll(200)
        except Exception as error:  # the waiting thread reports it
            self.failure = error

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join(timeout=5)
        self._reader.close()


class Latencies:
    """Times from a message's arrival in Kafka to its results there.

    :param messages: watermark of a message -> (its time in Kafka, epoch ms; its id as JSON text).
    :param ops: the results that count: ``add`` of top-k subscriptions, ``match`` of boolean ones, ``enter`` and ``leave`` of objects.
    """

    def __init__(self, messages: Mapping[int, tuple[int, bytes]], *ops: str) -> None:
        self._messages = messages
        self._result = re.compile(f',"op":"(?:{"|".join(ops or ("add",))})","message":'.encode())
        self.first: dict[int, int] = {}
        """Watermark -> ms to the first delta of that message, or to the first list with it."""
        self.all: list[int] = []
        """ms to each delta, or group of matches, that a message caused at its own watermark."""
        self.records = self.bytes = self.lists = self.matches = 0
        self._watermarks = {id: watermark for watermark, (_, id) in messages.items()}
        self._listed: list[int] = []
        self._newest: dict[bytes, int] = {}  # subscription -> watermark of its last list

    def add_delta(self, value: bytes, time_ms: int) -> None:
        """Add a delta. Only an ``add`` (or a ``match``) of a message at its own watermark has a latency."""
        self.records += 1
        self.bytes += len(value)
        found = self._result.search(value)
        if not found:
            return
        head, tail = value[: found.start()], value[found.end() :]
        watermark = int(head[head.rindex(b":") + 1 :])
        message = self._messages.get(watermark)
        if message is None or not tail.startswith((message[1] + b",", message[1] + b"}")):
            return
        self.all.append(self._note_result(watermark, time_ms))

    def add_group(self, value: bytes, time_ms: int) -> None:
        """Add a record with all matches of a message."""
        found = json.loads(value)
        self.records += 1
        self.bytes += len(value)
        self.matches += len(found["subscriptions"])
        if found["watermark"] in self._messages:
            self.all.append(self._note_result(found["watermark"], time_ms))

    def add_list(self, value: bytes | None, time_ms: int) -> None:
        """Add a whole list; lists must come in order. Only messages that arrived after the subscription's previous list have a latency.

        An older message that is new in the list has moved up because another one expired. A message with a later watermark has an id that occurs
        several times, because there are more messages than places.
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
                self._listed.append(self._note_result(watermark, time_ms))

    def _note_result(self, watermark: int, time_ms: int) -> int:
        """Note a result of a message; return its latency in ms."""
        ms = time_ms - self._messages[watermark][0]
        if ms < self.first.get(watermark, ms + 1):
            self.first[watermark] = ms
        return ms

    def first_between(self, start_ms: float, stop_ms: float) -> list[int]:
        """Return the ms to the first result of each message with results that arrived in a span of time."""
        return [ms for watermark, ms in self.first.items() if start_ms <= self._messages[watermark][0] < stop_ms]

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
    """Return the smallest value that at least a share ``q`` of all values does not exceed; for 0.5 the median. None if there are no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    if q == 0.5:
        return median(ordered)
    return ordered[min(len(ordered) - 1, max(0, -int(-q * len(ordered) // 1) - 1))]
