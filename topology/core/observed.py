"""Collectors that tell hooks, event loggers and the log what their task emits; a task without any of these has the plain ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import Any

from dskype.topology.config import Config
from dskype.topology.core.channels import OutStream
from dskype.topology.core.collectors import OutputCollector, SpoutOutputCollector
from dskype.topology.hooks import BoltAckInfo, BoltExecuteInfo, BoltFailInfo, EmitInfo
from dskype.topology.tuples import Tuple

__all__ = ["BoltHooks", "ObservedOutputCollector", "ObservedSpoutOutputCollector"]


log = logging.getLogger(__name__)


class ObservedOutputCollector(OutputCollector):
    """The collector of a bolt that is observed."""

    def emit(self, values: Sequence[Any], stream: str = "default", anchors: Tuple | Iterable[Tuple] | None = None) -> list[int]:
        """Emit a tuple, and tell the observers."""
        anchors = _listed(anchors)
        tasks = super().emit(values, stream, anchors)
        self._tell(values, stream, tasks, anchors)
        return tasks

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = "default", anchors: Tuple | Iterable[Tuple] | None = None) -> list[int]:
        """Emit a tuple to one task, and tell the observers."""
        anchors = _listed(anchors)
        tasks = super().emit_direct(task, values, stream, anchors)
        self._tell(values, stream, tasks, anchors)
        return tasks

    def _tell(self, values: Sequence[Any], stream: str, tasks: Sequence[int], anchors: Sequence[Tuple]) -> None:
        roots = [root for anchor in anchors for root in (anchor.message_id or ())[::2]] or None
        _tell(self._task, self._outs[stream], values, tasks, roots)

    def ack(self, tup: Tuple) -> None:
        """Ack a tuple; the hooks learn of it in a topology without ackers, too."""
        self._task.ack(tup)

    def fail(self, tup: Tuple) -> None:
        """Fail a tuple; see :meth:`ack`."""
        self._task.fail(tup)


class ObservedSpoutOutputCollector(SpoutOutputCollector):
    """The collector of a spout that is observed."""

    def _emit(self, out: OutStream, targets: Sequence[int], row: tuple, message_id: Any) -> None:
        super()._emit(out, targets, row, message_id)
        _tell(self._task, out, row, targets, None if message_id is None else str(message_id))


def _listed(anchors: Tuple | Iterable[Tuple] | None) -> list[Tuple]:
    return [] if anchors is None else [anchors] if isinstance(anchors, Tuple) else list(anchors)


def _tell(task: Any, out: OutStream, values: Sequence[Any], targets: Sequence[int], message_id: Any) -> None:
    """Tell the hooks of a task, its event loggers and the log what it has emitted."""
    if task.conf[Config.TOPOLOGY_DEBUG]:
        log.info("Emitting: %s %s %s", task.component_id, out.name, list(values))
    info = EmitInfo(values, out.name, task.id, targets)
    for hook in task.context.get_hooks():
        hook.emit(info)
    task.system.event(out, values, message_id)


class BoltHooks:
    """Tells the hooks of a bolt's task what it executes, acks and fails.

    :param task: the task's id.
    :param hooks: its hooks; more may be added.
    """

    def __init__(self, task: int, hooks: list[Any]) -> None:
        self._task, self._hooks = task, hooks
        self._present: Tuple | None = None
        self._started_ns = 0

    def around(self, execute: Callable[[Tuple], None]) -> Callable[[Tuple], None]:
        """Return ``execute`` with the hooks behind it."""

        def run(tup: Tuple) -> None:
            self._present, self._started_ns = tup, perf_counter_ns()
            execute(tup)
            info = BoltExecuteInfo(tup, self._task, (perf_counter_ns() - self._started_ns) / 1e6)
            self._present = None
            for hook in self._hooks:
                hook.bolt_execute(info)

        return run

    def _latency_ms(self, tup: Tuple) -> float | None:
        return (perf_counter_ns() - self._started_ns) / 1e6 if tup is self._present else None

    def acked(self, tup: Tuple) -> None:
        """Tell the hooks that a tuple was acked."""
        info = BoltAckInfo(tup, self._task, self._latency_ms(tup))
        for hook in self._hooks:
            hook.bolt_ack(info)

    def failed(self, tup: Tuple) -> None:
        """Tell the hooks that a tuple has failed."""
        info = BoltFailInfo(tup, self._task, self._latency_ms(tup))
        for hook in self._hooks:
            hook.bolt_fail(info)
