"""Refuses valid subscriptions for which a task has no room, or their tenant no quota, by dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.bolts.quotas import Excess
from dskype.spouts import streams
from dskype.topology.errors import explain
from dskype.topology.planning.plan import dead_letters_topic

__all__ = ["LIMIT_STAGE", "Refusals"]

LIMIT_STAGE = "limit"
"""The header ``stage`` of such a dead letter. The dead letter has no value, because the compacted topic keeps the record."""


class Refusals:
    """Refuses subscriptions beyond the number that a task may hold, or beyond the quotas of their tenant.

    :param limit: ``dskype.limits.subscriptions``.
    :param collector: collector of the bolt.
    :param context: context of the bolt.
    :param tenants: whether there are quotas of tenants.
    """

    def __init__(self, limit: int, collector: Any, context: Any, *, tenants: bool = False) -> None:
        self.limit, self._collector, self._context = limit, collector, context
        self._counter = context.register_counter("refused_subscriptions")
        if tenants:
            self._over_quota = context.register_counter("over_quota_subscriptions")

    def refuse(self, subscription: str, registration: str) -> None:
        """Refuse a subscription for which there is no room: send a dead letter, report the error, and count it."""
        component = self._context.get_this_component_id()
        reason = explain(
            f"A task has room for {self.limit:,} subscriptions (dskype.limits.subscriptions), and has as many.",
            given=subscription[:80],
            component=component,
            hint="unregister some, use more tasks, or raise the limit where there is memory",
        )
        self._send(subscription, registration, reason, "no-room")
        self._collector.report_error(reason)
        self._counter.inc()

    def refuse_excess(self, subscription: str, registration: str, excess: Excess) -> None:
        """Refuse a subscription beyond a quota: send a dead letter, and count it. It is no error of the topology."""
        self._send(subscription, registration, excess.reason(subscription, self._context.get_this_component_id()), "over-quota", excess.headers())
        self._over_quota.inc()

    def _send(self, subscription: str, registration: str, reason: str, code: str, more: Mapping[str, str] | None = None) -> None:
        context, plan = self._context, self._context.plan
        component, task = context.get_this_component_id(), context.get_this_task_id()
        topic = next(spec.obj.topics[0] for spec in plan.topology.components.values() if spec.is_spout and streams.Subscriptions.name in spec.outputs)
        partition, _, offset = registration.partition("-")
        headers = {
            "error": reason,
            "code": code,
            "stage": LIMIT_STAGE,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "component": component,
            "task": str(task),
            **(more or {}),
        }
        self._collector.send_record(dead_letters_topic(plan.name), subscription.encode(), None, [(name, text.encode()) for name, text in headers.items()])
