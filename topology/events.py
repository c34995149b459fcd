"""Event loggers: they get a sample of the tuples that components emit (Storm's docs/Eventlogging.md).

A topology has them with ``topology.eventlogger.executors``; they are silent until debugging is switched on, for a component or for all, with the percentage
of tuples to log: ``POST /api/v1/topology/{id}/component/{component}/debug/enable/{percent}``, or ``LocalCluster.debug``. Columns (``emit_batch``) are not
sampled.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

__all__ = ["EventInfo", "EventLogger", "LogEventLogger"]

log = logging.getLogger("dskype.events")


class EventInfo(NamedTuple):
    """A tuple that a component has emitted.

    :ivar ts: time of the task that emitted it, epoch ms.
    :ivar component: its component.
    :ivar task: the task.
    :ivar message_id: of a spout: the message id, as text; of a bolt: the ids of the trees that the tuple belongs to; None if it is not tracked.
    :ivar values: its values.
    """

    ts: int
    component: str
    task: int
    message_id: Any
    values: Sequence[Any]

    def __str__(self) -> str:
        message_id = "" if self.message_id is None else self.message_id
        return f"{datetime.fromtimestamp(self.ts / 1000, UTC):%Y-%m-%dT%H:%M:%S.%f}Z,{self.component},{self.task},{message_id},{list(self.values)}"


class EventLogger:
    """Base of event loggers; name the class in ``topology.event.logger.register``."""

    def prepare(self, conf: Mapping[str, Any], arguments: Mapping[str, Any], context: Any) -> None:
        """Set the logger up.

        :param arguments: those of its registration.
        """

    def log(self, event: EventInfo) -> None:
        """Handle an event. A crash may repeat it."""

    def close(self) -> None:
        """Free resources; guaranteed only in a local cluster."""


class LogEventLogger(EventLogger):
    """The default: writes a line into the log of the event logger's executor."""

    def log(self, event: EventInfo) -> None:
        """Write the line: time, component, task, message id, values."""
        log.info("%s", event)
