"""Distribution by hashing (journal paper, section 7.3, equation 14)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from dskype.distribution.base import PLAN_FORMAT, Distributor, Placed, Sample, check_plan, refuse_options
from dskype.distribution.subscriptions import Subscription
from dskype.spouts.batch import MessageBatch

__all__ = ["HashingDistributor"]


class HashingDistributor(Distributor):
    """Places a subscription by the CRC-32 of its id, modulo the number of tasks. Every task needs every message.

    Replication 1, communication N. There is nothing to learn.
    """

    name = "hashing"
    replicates = False

    def __init__(self, tasks: int, options: Mapping[str, Any] | None = None, plan: Mapping[str, Any] | None = None) -> None:
        refuse_options(self.name, options)
        if plan is not None:
            check_plan(type(self), tasks, plan)
        super().__init__(tasks)

    @classmethod
    def learn(cls, tasks: int, sample: Sample, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the only plan; there is nothing to learn."""
        return cls(tasks, options).plan()

    def place(self, name: str, subscription: Subscription, threshold: float | None = None) -> Placed:
        """Return its one task, which depends on the id alone."""
        return Placed(self.tasks_of_name(name))

    def tasks_of_name(self, name: str) -> list[int]:
        """Return the one task of a subscription."""
        return [zlib.crc32(name.encode()) % self.tasks]

    def message_tasks(self, messages: MessageBatch) -> None:
        """Return None: every task needs every message."""
        return

    def plan(self) -> dict[str, Any]:
        """Return the number of tasks."""
        return {"v": PLAN_FORMAT, "distributor": self.name, "tasks": self.tasks}
