"""Watermarks: which components send them to which, and those of one task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dskype.topology.components import BaseBolt
from dskype.topology.core.channels import Outbox, OutStream
from dskype.topology.model import StormTopology
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["TaskWatermarks", "takes_watermarks", "watermark_sources"]


def _reachable(topology: StormTopology, start: str) -> set[str]:
    """Return the components from which ``start`` gets tuples, directly or through others."""
    seen: set[str] = set()
    stack = [start]
    while stack:
        for source in _sources(topology, stack.pop()):
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return seen


def _sources(topology: StormTopology, component: str) -> set[str]:
    """Return the direct sources of a component, without those that only send it feedback."""
    spec = topology.components[component]
    feedback = getattr(spec.obj, "feedback_streams", ())
    return {source for source, stream in spec.inputs if source in topology.components and stream not in feedback}


def watermark_sources(topology: StormTopology, component: str) -> list[str]:
    """Return the components whose watermarks make up the watermark of ``component``, sorted.

    These are its direct sources that carry watermarks (spouts with ``emits_watermarks = True``, and bolts downstream of
    one) and do not depend on ``component`` themselves: a watermark that waited for its own feedback would never advance.
    If two components feed each other, the class of the upstream one names the streams that lead back to it in
    ``feedback_streams``; its watermark does not wait for these streams.
    """

    def carries(name: str) -> bool:
        return any(
            getattr(topology.components[c].obj, "emits_watermarks", False)
            for c in {name, *_reachable(topology, name)}
            if topology.components[c].kind == "spout"
        )

    return sorted(s for s in _sources(topology, component) if s != component and component not in _reachable(topology, s) and carries(s))


def takes_watermarks(topology: StormTopology, component: str, conf_of: Callable[[str], Mapping[str, Any]] | None = None) -> bool:
    """Tell whether a component needs watermarks: it overrides ``on_watermark``, or passes them on to a component that does.

    Other components get none, because an empty micro-batch costs as much as a full one. A bolt that needs watermarks only with
    some configurations has a method ``wants_watermarks(conf)``.

    :param conf_of: returns the configuration of a component; None counts every bolt that overrides ``on_watermark``.
    """

    def wants(name: str) -> bool:
        bolt = topology.components[name].obj
        if getattr(type(bolt), "on_watermark", BaseBolt.on_watermark) is BaseBolt.on_watermark:
            return False
        return conf_of is None or not hasattr(bolt, "wants_watermarks") or bolt.wants_watermarks(conf_of(name))

    seen, stack = {component}, [component]
    while stack:
        name = stack.pop()
        if wants(name):
            return True
        for other, spec in topology.components.items():
            if other not in seen and spec.kind == "bolt" and name in watermark_sources(topology, other):
                seen.add(other)
                stack.append(other)
    return False


class TaskWatermarks:
    """The watermark of one task, which never falls.

    That of a bolt is the lowest of its upstream tasks, and there is none before each of them has sent one. A spout raises its own::

        none ---- raise_to() ----> raised <--- raise_to() ---+
                                     |                       |
                                     +------- send() ----> sent

    Tasks that are *held* get none until the component lets them have it: it holds back tuples for them, and its watermark must not overtake these.

    :param plan: the topology plan.
    :param component: the task's component.
    :param outs: the component's streams.
    """

    def __init__(self, plan: TopologyPlan, component: str, outs: Iterable[OutStream]) -> None:
        self._upstream = [task for source in _sources_of(plan, component) for task in plan.component_tasks(source)]
        self._takers: list[int] = plan.once("watermark takers", component, lambda: _takers(plan, component, outs))
        self._known: dict[int, int] = {}
        self.own: int | None = None
        self._sent: dict[int, int] = {}
        self._held: set[int] = set()

    def receive(self, source: int, watermark: int) -> int | None:
        """Note the watermark of a source task; return the lowest of all upstream tasks if it may be another one now."""
        known = self._known
        if watermark <= known.get(source, watermark - 1):
            return None
        known[source] = watermark
        if not self._upstream or len(known) < len(self._upstream):
            return None
        try:
            return min(known[task] for task in self._upstream)
        except KeyError:  # some of the known watermarks are not from upstream tasks
            return None

    def raise_to(self, watermark: int) -> bool:
        """Raise the task's own watermark; return whether that is a change."""
        if self.own is not None and watermark <= self.own:
            return False
        self.own = watermark
        return True

    def send(self, outbox: Outbox) -> None:
        """Put the task's watermark behind everything that was emitted so far, where it was not sent before and is not held."""
        if (own := self.own) is not None:
            for task in self._takers:
                if self._sent.get(task) != own and task not in self._held:
                    self._sent[task] = own
                    outbox.channel(task).add_watermark(own)

    def hold(self, tasks: Iterable[int]) -> None:
        """Send these tasks no watermark until :meth:`let_go`."""
        self._held.update(tasks)

    def let_go(self, outbox: Outbox, tasks: Iterable[int]) -> None:
        """Put the task's watermark behind everything that was emitted to some tasks so far, and hold them no longer."""
        self._held.difference_update(tasks)
        if (own := self.own) is not None:
            for task in tasks:
                if task in self._takers:  # sent again, perhaps: a rollback may have taken it back
                    self._sent[task] = own
                    outbox.channel(task).add_watermark(own)

    def hold_none(self) -> None:
        """Forget which tasks are held: another component begins, and says it again when it has its state."""
        self._held.clear()

    def snapshot(self) -> dict[str, Any]:
        """Return the state, for the task's snapshot."""
        return {"watermarks": self._known, "watermark": self.own}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`snapshot` added to the task's snapshot."""
        self._known, self.own = dict(state["watermarks"]), state["watermark"]


def _sources_of(plan: TopologyPlan, component: str) -> list[str]:
    return plan.once("watermark sources", component, lambda: watermark_sources(plan.topology, component))


def _takers(plan: TopologyPlan, component: str, outs: Iterable[OutStream]) -> list[int]:
    """Return the tasks that get a component's watermarks."""
    following = {task for out in outs if not out.name.startswith("__") for task in out.regular_tasks | out.direct_tasks}
    takers = {
        c
        for c in {plan.task_component[task] for task in following}
        if component in _sources_of(plan, c) and takes_watermarks(plan.topology, c, plan.component_conf)
    }
    return sorted(task for task in following if plan.task_component[task] in takers)
