"""The contract of what decides where subscriptions and messages go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from dskype.distribution.subscriptions import Subscription
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks
from dskype.topology.tuples import TupleBatch

__all__ = ["PlacementStrategy"]


class PlacementStrategy(ABC):
    """Places the subscriptions that a distribution task owns, and routes the messages that pass through it. The distribution bolt makes one in ``prepare``."""

    @abstractmethod
    def routes(self, messages: MessageBatch) -> RowTasks | None:
        """Return which task indexes get which messages; None: every task gets all messages."""

    def has_room(self, name: str, limit: int) -> bool:
        """Tell whether a subscription can be registered without exceeding ``limit``; a known one always can. Default: subscription tasks check their own numbers."""
        return True

    @abstractmethod
    def register(self, name: str, registration: str, subscription: Subscription) -> None:
        """Place a subscription. It replaces the one of the same name."""

    @abstractmethod
    def unregister(self, name: str, registration: str) -> None:
        """End a subscription.

        :param registration: the place of the record that ends it.
        """

    @abstractmethod
    def handle(self, batch: TupleBatch) -> None:
        """Handle tuples of the streams between the tasks of the topology: ``shortages``, ``plans``, ``switched`` and ``interest``."""

    def advance(self, watermark: int) -> None:
        """Record the watermark of the distribution task. Default: nothing."""

    def finish_batch(self) -> None:
        """Do what is done once for each batch of tuples. Default: nothing."""

    def snapshot(self) -> Any:
        """Return the state as plain values, or None if there is none."""
        return None

    def restore(self, state: Any) -> None:
        """Continue from a snapshot. Default: nothing."""
