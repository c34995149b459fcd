"""The contract of what decides where subscriptions and messages go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dskype.distribution import Distributor, Placed
from dskype.distribution.subscriptions import Subscription
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks
from dskype.topology.tuples import TupleBatch

__all__ = ["PlacementStrategy"]


class PlacementStrategy(ABC):
    """Places the subscriptions that a distribution task owns, and routes the messages that pass through it.

    The distribution bolt makes one in ``prepare``.

    :param distributor: chooses tasks.
    :param tasks: ids of the subscription tasks, by index.
    :param collector: collector of the bolt.
    """

    lasting = True
    """Whether floors of replicas, apart from evaluations, only rise. With a half-life they fall all the time, and no guard would hold for long."""

    def __init__(self, distributor: Distributor, tasks: Sequence[int], collector: Any) -> None:
        self._distributor, self._tasks, self._collector = distributor, list(tasks), collector

    def routes(self, messages: MessageBatch) -> RowTasks | None:
        """Return which task indexes get which messages; None: every task gets all messages."""
        return self._distributor.message_tasks(messages)

    def has_room(self, name: str, limit: int) -> bool:
        """Tell whether a subscription can be registered without exceeding ``limit``; a known one always can. Default: subscription tasks check their own numbers."""
        return True

    @abstractmethod
    def register(self, name: str, registration: str, subscription: Subscription) -> None:
        """Place a subscription. It replaces the one of the same name."""

    def _place_by(self, distributor: Distributor, name: str, subscription: Subscription, floor: float | None) -> Placed:
        """Choose tasks for a subscription by one plan; without lasting floors, all to which a message may go that has one of its words."""
        return distributor.place(name, subscription, floor if self.lasting else -np.inf)

    @abstractmethod
    def unregister(self, name: str, registration: str) -> None:
        """End a subscription.

        :param registration: the place of the record that ends it.
        """

    def _send_record(self, indexes: Iterable[int], name: str, registration: str, record: Mapping[str, Any] | None) -> None:
        placement = streams.Placements(subscription=name, registration=registration, placement=record)
        for index in indexes:
            placement.emit_direct(self._collector, self._tasks[index])

    @abstractmethod
    def handle(self, batch: TupleBatch) -> None:
        """Handle tuples of the streams ``shortages``, ``plans`` and ``switched``."""

    def advance(self, watermark: int) -> None:
        """Record the watermark of the distribution task. Default: nothing."""

    def finish_batch(self) -> None:
        """Do what is done once for each batch of tuples. Default: nothing."""

    def snapshot(self) -> Any:
        """Return the state as plain values, or None if there is none."""
        return None

    def restore(self, state: Any) -> None:
        """Continue from a snapshot. Default: nothing."""
