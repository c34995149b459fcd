"""How far a running DSkype topology has come, from what it reports."""

from __future__ import annotations

from typing import Any

from dskype.deploy.client.plans import SUBSCRIPTION_BOLT
from dskype.deploy.metrics.reader import MetricsReader
from dskype.topology.core.stats import TopologyStats

__all__ = ["Progress"]


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

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
