"""How far a running DSkype topology has come, from what it reports."""

from __future__ import annotations

import time
from typing import Any

from dskype.deploy.client.plans import SUBSCRIPTION_BOLT
from dskype.deploy.metrics.reader import MetricsReader
from dskype.topology.core.stats import TopologyStats
from dskype.topology.tuples import SYSTEM_COMPONENT_ID, SYSTEM_TICK_STREAM_ID

__all__ = ["Progress"]

_TICKS = f"{SYSTEM_COMPONENT_ID}/{SYSTEM_TICK_STREAM_ID}"
_AT_ONCE_S = 2.0
"""Reports may be this late. A tuple that seems to wait for longer does wait, and a task that has reported nothing for longer is silent."""


class Progress:
    """Follows the watermark of a topology. What tasks report is about a second old.

    :param kafka: the brokers.
    :param topology: its name.
    """

    def __init__(self, kafka: Any, topology: str) -> None:
        self._reader = MetricsReader(kafka, topology, TopologyStats())
        self._reader.catch_up()

    def watermark(self, wait_ms: int = 0) -> int:
        """Return the number of the last message that all subscription tasks have handled; -1: none.

        :param wait_ms: how long to wait for new reports.
        """
        self._reader.poll(wait_ms)
        tasks = self._reader.sink.tasks.values()
        marks = [task.get("watermark") for task in tasks if task["component"] == SUBSCRIPTION_BOLT]
        return min((-1 if mark is None else mark for mark in marks), default=-1)

    def versions(self) -> dict[int, int]:
        """Return task -> how many records of its inbox it has processed, for all tasks that get ticks: there that number grows every one or two seconds."""
        self._reader.poll()
        return {id: task.get("version", 0) for id, task in self._reader.sink.tasks.items() if _TICKS in task.get("executed", ())}

    def left(self, before: dict[int, int]) -> str:
        """Say what the tasks have yet to do; "" if nothing is to be seen. A task whose process is gone has reported nothing since.

        :param before: what :meth:`versions` returned some seconds ago.
        """
        deadline = time.monotonic() + _AT_ONCE_S
        while True:
            versions = self.versions()
            waiting, silent = self._reader.sink.undelivered_tuples(), [id for id, version in versions.items() if version <= before.get(id, -1)]
            if not waiting and not silent:
                return ""
            if time.monotonic() >= deadline:
                break
            self._reader.poll(100)
        if waiting:
            return f"{waiting:,} tuples wait for tasks"
        return f"task {silent[0]} of component {self._reader.sink.tasks[silent[0]]['component']!r} has done nothing for some seconds"

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
