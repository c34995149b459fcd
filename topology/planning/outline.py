"""The outline of a topology plan: what readers in other processes, which have no components, know about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dskype.topology.components import KafkaSpout
from dskype.topology.model import is_system_id
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["ComponentOutline", "ExecutorOutline", "Input", "PlanOutline"]


class Input(NamedTuple):
    """A subscription of a bolt.

    :ivar grouping: kind of the grouping, e.g. ``local_or_shuffle``.
    """

    component: str
    stream: str
    grouping: str


class ExecutorOutline(NamedTuple):
    """An executor: its first and its last task, and the port of its worker."""

    first_task: int
    last_task: int
    port: int

    @property
    def tasks(self) -> range:
        """The task ids."""
        return range(self.first_task, self.last_task + 1)


class ComponentOutline(NamedTuple):
    """A component.

    :ivar kind: ``spout`` or ``bolt``.
    :ivar streams: declared streams, system streams included.
    :ivar topics: those that a spout reads by name, in its order.
    """

    kind: str
    executors: tuple[ExecutorOutline, ...]
    inputs: tuple[Input, ...]
    streams: tuple[str, ...]
    topics: tuple[str, ...] = ()

    @property
    def num_tasks(self) -> int:
        """Number of tasks."""
        return sum(len(executor.tasks) for executor in self.executors)


class PlanOutline(NamedTuple):
    """A topology's components by id, system components included."""

    components: dict[str, ComponentOutline]

    @classmethod
    def of(cls, plan: TopologyPlan) -> PlanOutline:
        """Return the outline of a plan."""
        found = {}
        for component in plan.component_ids:
            spec = plan.spec(component)
            executors = tuple(ExecutorOutline(first, last, plan.worker_port(plan.worker_of(first))) for first, last in plan.executors(component))
            inputs = tuple(Input(source, stream, grouping.kind) for (source, stream), grouping in spec.inputs.items())
            topics = tuple(spec.obj.topics) if isinstance(spec.obj, KafkaSpout) else ()
            found[component] = ComponentOutline(spec.kind, executors, inputs, tuple(spec.outputs), topics)
        return cls(found)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {component: outline._asdict() for component, outline in self.components.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlanOutline:
        """Return the outline that :meth:`to_json` wrote.

        :raises ValueError, KeyError, TypeError, AttributeError: it is malformed; anyone may write to the topic that it comes from.
        """
        return cls(
            {
                str(component): ComponentOutline(
                    str(item["kind"]),
                    tuple(ExecutorOutline(*map(int, executor)) for executor in item["executors"]),
                    tuple(Input(*map(str, given)) for given in item["inputs"]),
                    tuple(map(str, item["streams"])),
                    tuple(map(str, item.get("topics", ()))),  # absent from records of earlier versions
                )
                for component, item in data.items()
            }
        )

    def ids(self, *, system: bool = False, kind: str | None = None) -> list[str]:
        """Return the ids of components, sorted.

        :param system: whether to include system components.
        :param kind: only spouts, or only bolts; default both.
        """
        return sorted(c for c, outline in self.components.items() if (system or not is_system_id(c)) and kind in (None, outline.kind))
