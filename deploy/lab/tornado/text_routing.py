"""Text routing: each task has a part of the words, by a hash (Tornado, section 5.1)."""

from __future__ import annotations

import numpy as np

from dskype.distribution.base import Placed
from dskype.distribution.methods.unlearned import Unlearned
from dskype.distribution.routing.triggers import routing_terms
from dskype.distribution.subscriptions import Subscription
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks

__all__ = ["TextRoutingDistributor"]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class TextRoutingDistributor(Unlearned):
    """Places a boolean subscription on the tasks of its trigger, which is the rarest keyword of each conjunct, and a top-k subscription on those of all its keywords.

    A message goes to the tasks of all its keywords: communication is up to min(keywords, N), and a message is matched several times.
    """

    name = "text-routing"

    def tasks_of_terms(self, terms: np.ndarray) -> np.ndarray:
        """Return the task of each term (int64[n]), int64[n]: by the high bits of the term times a constant (Fibonacci hashing)."""
        mixed = np.asarray(terms, np.int64).astype(np.uint64) * _FACTOR
        return ((mixed >> np.uint64(32)) % np.uint64(self.tasks)).astype(np.int64)

    def place(self, name: str, subscription: Subscription, threshold: float | None = None) -> Placed:
        """Return the tasks of the words that a message needs one of."""
        return Placed(np.unique(self.tasks_of_terms(routing_terms(subscription))).tolist())

    def message_tasks(self, messages: MessageBatch) -> RowTasks:
        """Return the tasks of each message's keywords."""
        begin, end = int(messages.offsets[0]), int(messages.offsets[-1])
        rows = np.repeat(np.arange(messages.n, dtype=np.int64), np.diff(messages.offsets))
        pairs = np.unique(rows * self.tasks + self.tasks_of_terms(messages.terms[begin:end]))
        return RowTasks(pairs // self.tasks, (pairs % self.tasks).astype(np.int32))
