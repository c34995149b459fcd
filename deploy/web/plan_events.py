"""Events of a distribution plan, for the timeline of a topology: its changes, and subscriptions that move between tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.topology.ui.timeline import Timeline

__all__ = ["PlanEvents"]

_CHANGES, _MOVING, _REFUSED = "plan_version", "moving", "plans_refused"


class PlanEvents:
    """Finds them in what the tasks of distribution bolts report.

    :param timeline: gets them.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._before: dict[str, dict[int, float]] = {name: {} for name in (_CHANGES, _MOVING, _REFUSED)}  # number -> task -> value

    def note(self, record: Mapping[str, Any]) -> None:
        """Compare a statistics record with those before."""
        for task in record["tasks"]:
            metrics = task.get("metrics") or {}
            for name, before in self._before.items():
                if isinstance(value := metrics.get(name), (int, float)):
                    was = max(before.values(), default=value)
                    before[task["task"]] = value
                    self._tell(name, int(was), int(max(before.values())), str(record["component"]), record["time_ms"])

    def _tell(self, name: str, was: int, now: int, component: str, time_ms: int) -> None:
        if name == _MOVING and (was == 0) != (now == 0):
            what = f"{now:,} subscriptions begin to move to other tasks" if now else "subscriptions have moved to other tasks"
            self._timeline.add(time_ms, "moves", what, component=component)
        elif name != _MOVING and now > was:
            what = f"version {now} of the plan, was {was}" if name == _CHANGES else "a plan was refused"
            self._timeline.add(time_ms, "plan", what, component=component, times=1 if name == _CHANGES else now - was)
