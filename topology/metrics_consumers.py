"""Metrics consumers: they get the metrics of all tasks every ``topology.builtin.metrics.bucket.size.secs``, 60 s by default (Storm's docs/Metrics.md).

Name the class in ``topology.metrics.consumer.register``, or call ``conf.register_metrics_consumer``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["DataPoint", "LoggingMetricsConsumer", "MetricsConsumer", "TaskInfo"]

log = logging.getLogger("dskype.metrics")


class TaskInfo(NamedTuple):
    """The task that sends data points.

    :ivar src_worker_host: its machine.
    :ivar src_worker_port: the port that stands for its worker.
    :ivar src_component_id: its component.
    :ivar src_task_id: its id.
    :ivar timestamp: its time, epoch seconds.
    :ivar update_interval_secs: time between two such messages.
    """

    src_worker_host: str
    src_worker_port: int
    src_component_id: str
    src_task_id: int
    timestamp: int
    update_interval_secs: int


class DataPoint(NamedTuple):
    """A metric's value.

    :ivar name: the metric's name. Names of Storm's own metrics begin with ``__``, and these metrics count since the last message.
    :ivar value: a plain value, often a map.
    """

    name: str
    value: Any


class MetricsConsumer:
    """Base of metrics consumers."""

    def prepare(self, conf: Mapping[str, Any], argument: Any, context: Any, report_error: Callable[[BaseException | str], None]) -> None:
        """Set the consumer up.

        :param argument: that of its registration.
        :param report_error: reports an error of the consumer's task.
        """

    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        """Handle the metrics of a task. A crash may repeat them."""

    def cleanup(self) -> None:
        """Free resources; guaranteed only in a local cluster."""


class LoggingMetricsConsumer(MetricsConsumer):
    """Writes a line for each data point into the log of the consumer's executor, in Storm's columns."""

    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        """Write the lines."""
        t = task_info
        head = f"{t.timestamp}\t{t.src_worker_host:>15}:{t.src_worker_port:<4}\t{t.src_task_id:3}:{t.src_component_id:<11}\t"
        for point in data_points:
            log.info("%s%s", f"{head}{point.name:<24}", point.value)
