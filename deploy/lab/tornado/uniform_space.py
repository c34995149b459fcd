"""Uniform space: partitions of equal size, whatever the workload (Tornado, section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.distribution.agrid.distributor import AGridDistributor
from dskype.distribution.base import Sample

__all__ = ["UniformSpaceDistributor"]


class UniformSpaceDistributor(AGridDistributor):
    """Routes as the A-Grid does, over partitions of equal size. A sample only says what they cost.

    Textual summaries are part of the A-Grid (section 3.1), and section 5.1 describes this baseline by its partitions and its index alone. So its option ``summaries`` is false by
    default.
    """

    name = "uniform-space"
    summaries = False
    balances = False

    @classmethod
    def learn(cls, tasks: int, sample: Sample, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return partitions of equal size, with what they cost for the sample."""
        found = cls(tasks, options)
        if not sample.messages.n:
            return found.plan()
        return cls.planned(tasks, found.grid, found.task_of, cls.costs_of(found.grid, sample))
