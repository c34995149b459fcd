"""Dead letters about good subscriptions for which a task has no room."""

from __future__ import annotations

from typing import Any

from dskype.spouts import streams
from dskype.topology.errors import explain
from dskype.topology.planning.plan import dead_letters_topic

__all__ = ["LIMIT_STAGE", "Refusals"]

LIMIT_STAGE = "limit"
"""The header ``stage`` of such a dead letter. It has no value: the record is in its topic, which is compacted."""


class Refusals:
    """Refuses subscriptions beyond the number that a task may hold.

    :param most: ``dskype.limits.subscriptions``.
    :param collector: the bolt's.
    :param context: the bolt's.
    """

    def __init__(self, most: int, collector: Any, context: Any) -> None:
        self.most, self._collector, self._context = most, collector, context
        self._counter = context.register_counter("refused_subscriptions")

    def refuse(self, subscription: str, registration: str) -> None:
        """Refuse a subscription: a dead letter, an error report, and a count."""
        context, plan = self._context, self._context.plan
        component, task = context.get_this_component_id(), context.get_this_task_id()
        reason = explain(
            f"A task has room for {self.most:,} subscriptions (dskype.limits.subscriptions), and has as many.",
            given=subscription[:80],
            component=component,
            hint="unregister some, use more tasks, or raise the limit where there is memory",
        )
        topic = next(spec.obj.topics[0] for spec in plan.topology.components.values() if spec.is_spout and streams.SUBSCRIPTIONS in spec.outputs)
        partition, _, offset = registration.partition("-")
        headers = {"error": reason, "stage": LIMIT_STAGE, "topic": topic, "partition": partition, "offset": offset, "component": component, "task": str(task)}
        self._collector.send_record(dead_letters_topic(plan.name), subscription.encode(), None, [(name, text.encode()) for name, text in headers.items()])
        self._collector.report_error(reason)
        self._counter.inc()
