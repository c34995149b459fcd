"""The base of distributors whose decisions follow from their name and the number of tasks: there is nothing to learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.distribution.base import PLAN_FORMAT, Distributor, Sample, check_plan, refuse_options

__all__ = ["Unlearned"]


class Unlearned(Distributor):
    """A distributor without options, with one plan for each number of tasks."""

    def __init__(self, tasks: int, options: Mapping[str, Any] | None = None, plan: Mapping[str, Any] | None = None) -> None:
        refuse_options(self.name, options)
        if plan is not None:
            check_plan(type(self), tasks, plan)
        super().__init__(tasks)

    @classmethod
    def learn(cls, tasks: int, sample: Sample, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the only plan; there is nothing to learn."""
        return cls(tasks, options).plan()

    def plan(self) -> dict[str, Any]:
        """Return the number of tasks."""
        return {"v": PLAN_FORMAT, "distributor": self.name, "tasks": self.tasks}
