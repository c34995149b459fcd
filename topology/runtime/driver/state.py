"""What the parts of a driver share: the topology's plan and folder, the driver's term, and how the topology stands."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError

from dskype.topology.core.snapshots import FencedError
from dskype.topology.core.stats import TopologyStats
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.errors import TopologyError
from dskype.topology.planning.plan import TopologyPlan, metrics_topic
from dskype.topology.runtime.driver.reports import DriverReports
from dskype.topology.runtime.driver.resume import SNAPSHOTS, Tenure
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.record_producer import RecordProducer
from dskype.topology.runtime.stores.choice import choose_store

__all__ = ["DriverState", "TopologyFailedError"]


class TopologyFailedError(TopologyError):
    """A topology has failed; its topics and snapshots stay, so that it can be resumed."""


class DriverState:
    """How a topology stands, for all threads of its driver.

    ::

        inactive <---- activate(), deactivate() of the driver ----> active
            |                                                         |
            +------------------------- fail() ------------------------+----> failed, for good: nothing more is emitted

    In each of these states the brokers may be *away*: the last request of the driver had no answer.

    :param folder: the topology's own folder, on the driver's host.
    :param announce: called with text for the user when the topology's health changes.
    """

    def __init__(self, plan: TopologyPlan, spark: Any, kafka: KafkaSettings, folder: Path, announce: Callable[[str], None]) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.scratch = folder / "spark"
        """For Spark's throw-away checkpoints."""
        self.plan, self.store = choose_store(plan, spark, kafka, folder / SNAPSHOTS)
        self.tenure = Tenure(self.store)
        self.stats = TopologyStats()
        self.reports = DriverReports(plan.topology_id, self.stats, now_ms, announce)
        self.producer: RecordProducer | None = None
        self.active = self.brokers_away = False
        self.failure: TopologyError | None = None
        self.lock = threading.RLock()
        """Held while queries start or stop, and while the topology fails."""

    def fail(self, error: TopologyError) -> None:
        """End the topology: nothing more is emitted, and the metrics topic says why. Only the first error counts."""
        with self.lock:
            if self.failure is not None:
                return
            self.active, self.failure = False, error
        self.reports.add_error("__driver", str(error), part="failure")
        self.reports.set_health("failed", [str(error)])
        if not isinstance(error, FencedError) and self.producer is not None:
            with contextlib.suppress(KafkaError):
                self.write_reports()

    def send(self, topic: str, value: bytes | None, *, partition: int, key: bytes | None = None) -> Any:
        """Send a record with the driver's producer; return what gives its outcome."""
        assert self.producer is not None, "the driver is open"
        return self.producer.send(topic, value, key=key, partition=partition)

    def write_reports(self) -> None:
        """Write what is new about the driver to the metrics topic.

        :raises KafkaError: the brokers do not take it; the next call writes it.
        """
        topic = metrics_topic(self.plan.name)
        self.reports.write(lambda key, value: self.send(topic, value, key=key, partition=0).get())

    def versions(self) -> dict[int, int]:
        """Return task -> its newest version, as far as reported."""
        return {task: report.get("version", 0) for task, report in list(self.stats.tasks.items())}
