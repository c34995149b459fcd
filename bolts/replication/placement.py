"""Where subscriptions and messages go: the contract between the distribution bolt and its two strategies, and the simple one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from dskype.bolts.subscriptions import Subscription
from dskype.distribution import Distributor
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks
from dskype.topology.tuples import TupleBatch

__all__ = ["PlacementStrategy", "SinglePlacement"]


class PlacementStrategy(ABC):
    """Places the subscriptions that a distribution task owns, and routes the messages that pass through it.

    The distribution bolt makes one at ``prepare``: :class:`SinglePlacement` where every subscription lives on one task for good,
    :class:`~dskype.bolts.replication.replicated_placement.ReplicatedPlacement` where it may live on several and move.
    """

    @abstractmethod
    def routes(self, messages: MessageBatch) -> RowTasks | None:
        """Return which task indexes get which messages; None: all of them get all."""

    @abstractmethod
    def has_room(self, name: str, limit: int) -> bool:
        """Tell whether a subscription can be registered with at most ``limit`` in all; one that is known always can."""

    @abstractmethod
    def register(self, name: str, registration: str, subscription: Subscription) -> None:
        """Send a subscription where it lives; it replaces the one of the same name."""

    @abstractmethod
    def unregister(self, name: str, registration: str) -> None:
        """End a subscription; ``registration`` is the place of the record that says so."""

    @abstractmethod
    def handle(self, batch: TupleBatch) -> None:
        """Handle what came on one of the streams ``shortages``, ``plans`` and ``switched``."""

    def advance(self, watermark: int) -> None:
        """Note the watermark of the distribution task. Default: nothing."""

    def snapshot(self) -> Any:
        """Return the state as plain values; None: there is none."""
        return None

    def restore(self, state: Any) -> None:
        """Take over a snapshot. Default: nothing."""


class SinglePlacement(PlacementStrategy):
    """Sends every subscription to the one task that the distributor names; remembers nothing.

    :param distributor: one that does not replicate.
    :param tasks: ids of the subscription bolt's tasks, by index.
    :param collector: the bolt's.
    """

    def __init__(self, distributor: Distributor, tasks: Sequence[int], collector: Any) -> None:
        self._distributor, self._tasks, self._collector = distributor, tasks, collector

    def routes(self, messages: MessageBatch) -> RowTasks | None:
        """Return the distributor's routes."""
        return self._distributor.message_tasks(messages)

    def has_room(self, name: str, limit: int) -> bool:
        """Return True: the subscription tasks know how many they hold, and refuse what is too much."""
        return True

    def register(self, name: str, registration: str, subscription: Subscription) -> None:
        """Send a subscription to its task."""
        placement = subscription.encode()
        self._send(self._distributor.place(name, placement).tasks, name, registration, placement)

    def unregister(self, name: str, registration: str) -> None:
        """End a subscription on its task, or on all tasks where its name does not say which one that is."""
        self._send(self._distributor.place(name, {}).tasks if self._distributor.by_id else range(len(self._tasks)), name, registration, None)

    def _send(self, indexes: Sequence[int], name: str, registration: str, placement: Mapping[str, Any] | None) -> None:
        for index in indexes:
            self._collector.emit_direct(self._tasks[index], (name, registration, placement), streams.PLACEMENTS)

    def handle(self, batch: TupleBatch) -> None:
        """Report a plan as an error; the other streams are empty."""
        if batch.get_source_stream_id() == streams.PLANS:
            self._collector.report_error("a plan came, but this distributor has none; it is passed over")
