"""The bolts of event loggers and metrics consumers, which the system adds to a topology."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dskype.topology.components import BasicBolt
from dskype.topology.config import Config
from dskype.topology.context import TopologyContext
from dskype.topology.errors import InvalidTopologyException
from dskype.topology.events import EventInfo, EventLogger
from dskype.topology.metrics_consumers import DataPoint, MetricsConsumer, TaskInfo
from dskype.topology.named_classes import load_class
from dskype.topology.tuples import Tuple

__all__ = ["EventLoggerBolt", "MetricsConsumerBolt"]

_DEFAULT_LOGGERS: list[dict[str, Any]] = [{"class": "dskype.topology.events.LogEventLogger"}]


class EventLoggerBolt(BasicBolt):
    """Gives events to the registered loggers."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Make the loggers."""
        key = Config.TOPOLOGY_EVENT_LOGGER_REGISTER
        self._loggers: list[EventLogger] = []
        for entry in conf.get(key) or _DEFAULT_LOGGERS:
            logger = load_class(entry["class"], EventLogger, key)()
            logger.prepare(conf, entry.get("arguments") or {}, context)
            self._loggers.append(logger)

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Pass an event on."""
        event = EventInfo(tup["timestamp"], tup.meta.component, tup.meta.task, tup["message-id"], tup["values"])
        for logger in self._loggers:
            logger.log(event)

    def cleanup(self) -> None:
        """Close the loggers."""
        for logger in self._loggers:
            logger.close()


class MetricsConsumerBolt(BasicBolt):
    """Gives the metrics of all tasks to one consumer.

    :param registration: its entry in ``topology.metrics.consumer.register``: ``class``, ``argument``; ``whitelist`` or ``blacklist``: patterns of names to
        pass on or leave out; ``expandMapType``: whether a map becomes a data point for each key, named with ``metricNameSeparator`` (default ``.``).
    :raises InvalidTopologyException: both lists, or a pattern that is none.
    """

    def __init__(self, registration: Mapping[str, Any]) -> None:
        self._registration = dict(registration)
        lists = [name for name in ("whitelist", "blacklist") if registration.get(name)]
        if len(lists) > 1:
            raise InvalidTopologyException("A metrics consumer has a whitelist and a blacklist.", given=registration["class"], hint="leave one out")
        self._passes = lists == ["whitelist"]
        try:
            self._patterns = [re.compile(pattern) for name in lists for pattern in registration[name]]
        except (re.error, TypeError) as error:
            raise InvalidTopologyException(f"A metrics consumer has a pattern that is none: {error}.", given=registration["class"]) from error

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Keep the arguments: the consumer is made with the first data points, because a basic bolt has no collector before."""
        self._consumer: MetricsConsumer | None = None
        self._prepared = conf, context

    def _ready(self, collector: Any) -> MetricsConsumer:
        if self._consumer is None:
            consumer = load_class(self._registration["class"], MetricsConsumer, Config.TOPOLOGY_METRICS_CONSUMER_REGISTER)()
            conf, context = self._prepared
            consumer.prepare(conf, self._registration.get("argument"), context, collector.report_error)
            self._consumer = consumer
        return self._consumer

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Pass the data points of a task on, unless there are none."""
        points = [point for name, value in tup["data_points"] for point in self._expanded(name, value) if self._wanted(point.name)]
        if points:
            self._ready(collector).handle_data_points(TaskInfo(*tup["task_info"]), points)

    def _expanded(self, name: str, value: Any) -> Iterator[DataPoint]:
        if self._registration.get("expandMapType") and isinstance(value, Mapping):
            separator = self._registration.get("metricNameSeparator", ".")
            for key, part in value.items():
                yield from self._expanded(f"{name}{separator}{key}", part)
        else:
            yield DataPoint(name, value)

    def _wanted(self, name: str) -> bool:
        return not self._patterns or any(pattern.search(name) for pattern in self._patterns) == self._passes

    def cleanup(self) -> None:
        """Clean the consumer up."""
        if self._consumer is not None:
            self._consumer.cleanup()
