"""Refuses valid subscriptions for which a task has no room, by dead letters."""

from __future__ import annotations

from typing import Any

from dskype.spouts import streams
from dskype.topology.errors import explain
from dskype.topology.planning.plan import dead_letters_topic

__all__ = ["LIMIT_STAGE", "Refusals"]

LIMIT_STAGE = "limit"
"""The header ``stage`` of such a dead letter. The dead letter has no value, because the compacted topic keeps the record."""


class Refusals:
    """Refuses subscriptions beyond the number that a task may hold.

    :param limit: ``dskype.limits.subscriptions``.
    :param collector: collector of the bolt.
    :param context: context of the bolt.
    """

    def __init__(self, limit: int, collector: Any, context: Any) -> None:
        self.limit, self._collector, self._context = limit, collector, context
        self._counter = context.register_counter("refused_subscriptions")

    def refuse(self, subscription: str, registration: str) -> None:
        """Refuse a subscription: send a dead letter, report the error, and count it."""
        context, plan = self._context, self._context.plan
        component, task = context.get_this_component_id(), context.get_this_task_id()
        reason = explain(
            f"A task has room for {self.limit:,} subscriptions (dskype.limits.subscriptions), and has as many.",
            given=subscription[:80],
            component=component,
            hint="unregister some, use more tasks, or raise the limit where there is memory",
        )
        topic = next(spec.obj.topics[0] for spec in plan.topology.components.values() if spec.is_spout and streams.Subscriptions.name in spec.outputs)
        partition, _, offset = registration.partition("-")
        headers = {
            "error": reason,
            "code": "no-room",
            "stage": LIMIT_STAGE,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "component": component,
            "task": str(task),
        }
        self._collector.send_record(dead_letters_topic(plan.name), subscription.encode(), None, [(name, text.encode()) for name, text in headers.items()])
        self._collector.report_error(reason)
        self._counter.inc()
