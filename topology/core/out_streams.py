"""The streams of a task with their groupers, as the topology plan has them."""

from __future__ import annotations

from typing import Any

from dskype.topology.context import TopologyContext
from dskype.topology.core.channels import OutStream
from dskype.topology.groupings import DirectGrouping
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.routing.groupers import build_grouper, grouping_seed

__all__ = ["make_out_streams"]

Subscriptions = tuple[list[tuple[str, Any]], frozenset[int], frozenset[int]]
"""Of one stream: (component, grouping) of its subscriptions but the direct ones, their tasks, and the tasks of the direct ones."""


def make_out_streams(plan: TopologyPlan, task: int, context: TopologyContext) -> dict[str, OutStream]:
    """Return stream -> the stream of a task, for all that its component declares.

    :param context: the task's context, for groupings of users.
    """
    component = plan.task_component[task]
    subscriptions: dict[str, Subscriptions] = plan.once("subscriptions", component, lambda: _subscriptions(plan, component))
    outs = {}
    for name, info in plan.topology.components[component].outputs.items():
        groupings, regular, direct = subscriptions[name]
        groupers = [
            build_grouper(
                grouping,
                producer_task=task,
                stream=(component, name),
                out_fields=info.fields,
                target_tasks=plan.component_tasks(consumer),
                local_tasks=plan.worker_tasks(plan.worker_of(task)),
                seed=grouping_seed(plan.topology_id, task, consumer, name),
                context=context,
            )
            for consumer, grouping in groupings
        ]
        outs[name] = OutStream(name, info.fields, groupers, regular, direct)
    return outs


def _subscriptions(plan: TopologyPlan, component: str) -> dict[str, Subscriptions]:
    """Return stream -> its subscriptions, for all streams of a component."""
    found: dict[str, tuple[list[tuple[str, Any]], set[int], set[int]]] = {name: ([], set(), set()) for name in plan.topology.components[component].outputs}
    for consumer, spec in sorted(plan.topology.components.items()):
        for (source, stream), grouping in spec.inputs.items():
            if source != component or stream not in found:
                continue
            groupings, regular, direct = found[stream]
            if isinstance(grouping, DirectGrouping):
                direct.update(plan.component_tasks(consumer))
            else:
                groupings.append((consumer, grouping))
                regular.update(plan.component_tasks(consumer))
    return {name: (groupings, frozenset(regular), frozenset(direct)) for name, (groupings, regular, direct) in found.items()}
