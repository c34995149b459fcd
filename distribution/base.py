"""The contract of distributors: where subscriptions live, and which of those places need a message."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks

__all__ = ["Distributor"]


class Distributor(ABC):
    """Distributes subscriptions and messages over the tasks of the subscription bolt (journal paper, section 7.3).

    Every distribution task holds one. Tasks are named by their index, 0 to ``tasks`` - 1. Decisions must be the same in
    every process and after a restart: no builtin ``hash()``, no order of a set.

    Exactness asks one thing: a task on which a subscription lives gets every message that can be in its results.

    :param tasks: how many tasks there are.
    :param options: ``dskype.distributor.options``.
    :raises IllegalArgumentException: an option that is not known or makes no sense.
    """

    replicates: ClassVar[bool] = False
    """Whether a subscription may live on several tasks at once; their results are then merged by the result bolt."""

    def __init__(self, tasks: int, options: Mapping[str, Any] | None = None) -> None:
        self.tasks = tasks

    @abstractmethod
    def subscription_tasks(self, subscription: str, placement: Mapping[str, Any] | None) -> list[int]:
        """Return the indexes of the tasks on which a subscription lives, rising.

        Called once when it is registered or replaced, and once with None when it is unregistered.

        :param subscription: its id.
        :param placement: what will be sent there (see ``DistributionBolt``); None: those on which it may live now.
        """

    @abstractmethod
    def message_tasks(self, messages: MessageBatch) -> RowTasks | None:
        """Return which tasks need which messages; None: every task needs all of them.

        Called once per batch.

        :returns: ``RowTasks(rows, tasks)``, two int arrays of equal length: message ``rows[i]`` goes to task index ``tasks[i]``.
        """

    def loads(self) -> np.ndarray:
        """Return the estimated load of each task, float64[tasks], in units of the distributor's cost model. Default: equal."""
        return np.ones(self.tasks)

    def snapshot(self) -> Any:
        """Return the state for ``restore``; default: there is none."""
        return None

    def restore(self, state: Any) -> None:
        """Take over what ``snapshot`` returned."""
