"""Replicate all: every task has every subscription (Tornado, section 5.1)."""

from __future__ import annotations

import numpy as np

from dskype.distribution.base import Placed
from dskype.distribution.methods.unlearned import Unlearned
from dskype.distribution.subscriptions import Subscription
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks

__all__ = ["ReplicateAllDistributor"]


class ReplicateAllDistributor(Unlearned):
    """Places every subscription on all tasks. A message goes to any one: its sequence number modulo their number.

    Replication N, communication 1.
    """

    name = "replicate-all"

    def place(self, name: str, subscription: Subscription, threshold: float | None = None) -> Placed:
        """Return all tasks."""
        return Placed(list(range(self.tasks)))

    def message_tasks(self, messages: MessageBatch) -> RowTasks:
        """Return one task for each message that has keywords."""
        rows = np.flatnonzero(np.diff(messages.offsets))
        return RowTasks(rows, (messages.seq[rows] % self.tasks).astype(np.int32))
