"""Hooks: code that runs when a task emits, executes, acks or fails, or when a process of the topology starts and ends (docs/Hooks.md of Storm).

A task hook is added with ``context.add_task_hook(hook)`` in ``open`` or ``prepare``, or to all tasks with the class's name in ``topology.auto.task.hooks``.
A worker hook is added with ``builder.add_worker_hook(hook)``, or in a Flux file under ``workerHooks``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dskype.topology.tuples import Tuple

__all__ = ["BoltAckInfo", "BoltExecuteInfo", "BoltFailInfo", "EmitInfo", "SpoutAckInfo", "SpoutFailInfo", "TaskHook", "WorkerHook"]


class EmitInfo(NamedTuple):
    """An emit of a spout or bolt.

    :ivar values: the values.
    :ivar stream: the stream's id.
    :ivar task_id: the task that emits.
    :ivar out_tasks: the tasks that get the tuple.
    """

    values: Sequence[Any]
    stream: str
    task_id: int
    out_tasks: Sequence[int]


class SpoutAckInfo(NamedTuple):
    """A tree is complete.

    :ivar message_id: its message id.
    :ivar spout_task_id: the spout's task.
    :ivar complete_latency_ms: time since the emit; None in a topology without ackers.
    """

    message_id: Any
    spout_task_id: int
    complete_latency_ms: int | None


class SpoutFailInfo(NamedTuple):
    """A tree has failed or timed out.

    :ivar message_id: its message id.
    :ivar spout_task_id: the spout's task.
    :ivar fail_latency_ms: time since the emit; None if it is not known.
    """

    message_id: Any
    spout_task_id: int
    fail_latency_ms: int | None


class BoltExecuteInfo(NamedTuple):
    """A bolt has executed a tuple.

    :ivar tuple: the tuple.
    :ivar executing_task_id: the bolt's task.
    :ivar execute_latency_ms: how long ``execute`` took.
    """

    tuple: Tuple
    executing_task_id: int
    execute_latency_ms: float


class BoltAckInfo(NamedTuple):
    """A bolt has acked a tuple.

    :ivar tuple: the tuple.
    :ivar acking_task_id: the bolt's task.
    :ivar process_latency_ms: time since ``execute`` got the tuple; None if the bolt acks it after that call.
    """

    tuple: Tuple
    acking_task_id: int
    process_latency_ms: float | None


class BoltFailInfo(NamedTuple):
    """A bolt has failed a tuple.

    :ivar tuple: the tuple.
    :ivar failing_task_id: the bolt's task.
    :ivar fail_latency_ms: time since ``execute`` got the tuple; None if the bolt fails it after that call.
    """

    tuple: Tuple
    failing_task_id: int
    fail_latency_ms: float | None


class TaskHook:
    """Base of task hooks; every method does nothing.

    A hook runs on the thread of its task. What it raises counts as an exception of the component. After a crash a task executes tuples again, and its
    hooks see them again. Columns (``emit_batch``, ``execute_batch``) and the streams of the system call no hook.
    """

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        """Set the hook up; called when it is added."""

    def cleanup(self) -> None:
        """Free resources; called after the component's ``close`` or ``cleanup``, and guaranteed only in a local cluster."""

    def emit(self, info: EmitInfo) -> None:
        """Handle an emit."""

    def spout_ack(self, info: SpoutAckInfo) -> None:
        """Handle a complete tree; called after the spout's ``ack``."""

    def spout_fail(self, info: SpoutFailInfo) -> None:
        """Handle a failed tree; called after the spout's ``fail``."""

    def bolt_execute(self, info: BoltExecuteInfo) -> None:
        """Handle a tuple, ticks included, that ``execute`` has processed."""

    def bolt_ack(self, info: BoltAckInfo) -> None:
        """Handle an ack of a bolt."""

    def bolt_fail(self, info: BoltFailInfo) -> None:
        """Handle a fail of a bolt."""


class WorkerHook:
    """Base of worker hooks; every method does nothing.

    Executors are processes here, so each executor's process has a copy of the hook.
    """

    def start(self, conf: Mapping[str, Any], context: Any) -> None:
        """Set the process up; called before its tasks are opened or prepared, and again when the process is started again.

        :param conf: the topology's configuration.
        :param context: the context of the executor's first task.
        """

    def shutdown(self) -> None:
        """Free resources; called after the tasks are closed, and guaranteed only in a local cluster."""
