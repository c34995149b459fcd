"""What a task emits for the system: a sample of its tuples to event loggers, and data points to metrics consumers."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from dskype.topology.core.channels import OutStream
from dskype.topology.planning.system import EVENT_STREAM_ID, METRICS_STREAM_ID

__all__ = ["DEBUG", "METRICS", "SystemEmits"]

DEBUG = "debug "
"""Begins the control record that sets which percentage of tuples goes to the event loggers."""
METRICS = "metrics "
"""Begins the control record that asks for data points; the seconds between two such records follow."""

_PARTS = 1_000_000


class SystemEmits:
    """Emits a task's events and data points; part of the task.

    Which tuples are events follows from the stream and the tuple's number, so a task that runs its inbox again chooses the same ones.

    :param task: the task, with its streams.
    """

    def __init__(self, task: Any) -> None:
        self._task = task
        self._events: OutStream | None = task.outs.get(EVENT_STREAM_ID)
        points = task.outs.get(METRICS_STREAM_ID)
        self._points = points if points is not None and points.groupers else None
        self._percent = 0.0
        self._before: dict[str, Any] = {}

    @property
    def has_events(self) -> bool:
        """Whether the topology has event loggers."""
        return self._events is not None

    @property
    def has_consumers(self) -> bool:
        """Whether the topology has metrics consumers."""
        return self._points is not None

    def control(self, command: str) -> None:
        """Handle a control record; ignore those of other parts."""
        if command.startswith(DEBUG):
            self._percent = float(command.removeprefix(DEBUG))
        elif command.startswith(METRICS) and self._points is not None:
            secs = int(command.removeprefix(METRICS))
            context = self._task.context
            info = [socket.gethostname(), context.get_this_worker_port(), self._task.component_id, self._task.id, self._task.clock.now_ms // 1000, secs]
            self._emit(self._points, (info, [*self._counts(), *map(list, context.read_metrics().items())]))

    def event(self, out: OutStream, values: Sequence[Any], message_id: Any) -> None:
        """Send a tuple to the event loggers if it belongs to the sample.

        :param out: its stream, with the tuple counted.
        """
        percent = self._percent
        if self._events is None or not percent:
            return
        if percent >= 100 or zlib.crc32(f"{self._task.id}/{out.name}/{out.emitted}".encode()) % _PARTS < percent * (_PARTS / 100):
            self._emit(self._events, (self._task.component_id, message_id, self._task.clock.now_ms, list(values)))

    def _emit(self, out: OutStream, row: tuple[Any, ...]) -> None:
        out.emitted += 1
        self._task.collector.put(out, out.choose(row), row)

    def _counts(self) -> list[list[Any]]:
        """Return the counts of Storm's own metrics since the last call."""
        task, stats = self._task, self._task.stats
        counts: dict[str, Mapping[str, int]] = {
            "__emit-count": {name: out.emitted for name, out in task.outs.items()},
            "__transfer-count": {name: out.transferred for name, out in task.outs.items()},
            "__ack-count": dict(stats.acked),
            "__fail-count": dict(stats.failed),
        }
        latencies = {"__complete-latency": stats.complete}
        if not task.spec.is_spout:
            counts["__execute-count"] = dict(stats.executed)
            latencies = {"__execute-latency": stats.execute, "__process-latency": stats.process}
        before = self._before
        points: list[list[Any]] = []
        for name, now in counts.items():
            former = before.get(name, {})
            points.append([name, {key.replace("/", ":", 1): n - former.get(key, 0) for key, n in now.items() if n != former.get(key, 0)}])
        for name, latency in latencies.items():
            count, total_ns = before.get(name, (0, 0))
            new = latency.count - count
            points.append([name, (latency.total_ns - total_ns) / new / 1e6 if new else 0.0])
        self._before = {**counts, **{name: [latency.count, latency.total_ns] for name, latency in latencies.items()}}
        return points

    def snapshot(self) -> dict[str, Any]:
        """Return the state, for the task's snapshot; empty in a topology without event loggers and metrics consumers."""
        return {"system": [self._percent, self._before]} if self.has_events or self.has_consumers else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`snapshot` added to the task's snapshot."""
        self._percent, self._before = state.get("system", (0.0, {}))
