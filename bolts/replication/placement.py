"""Where subscriptions and messages go: what the distribution bolt asks of its strategy, and the simple one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dskype.bolts.subscriptions import Subscription
from dskype.distribution import Distributor
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks
from dskype.topology.tuples import TupleBatch

__all__ = ["PlacementStrategy"]


class PlacementStrategy:
    """Places the subscriptions that a distribution task owns, and routes the messages that pass through it.

    The distribution bolt makes one at ``prepare``: this one where every subscription lives on one task for good, so that nothing has to be
    remembered; :class:`~dskype.bolts.replication.replicated_placement.ReplicatedPlacement` where it may live on several and move.

    :param distributor: names tasks.
    :param tasks: ids of the subscription bolt's tasks, by index.
    :param collector: the bolt's.
    """

    def __init__(self, distributor: Distributor, tasks: Sequence[int], collector: Any) -> None:
        self._distributor, self._tasks, self._collector = distributor, list(tasks), collector

    def routes(self, messages: MessageBatch) -> RowTasks | None:
        """Return which task indexes get which messages; None: all of them get all."""
        return self._distributor.message_tasks(messages)

    def has_room(self, name: str, limit: int) -> bool:
        """Tell whether a subscription can be registered with at most ``limit`` in all; one that is known always can.

        Without replication the subscription tasks know how many they hold, and refuse what is too much.
        """
        return True

    def register(self, name: str, registration: str, subscription: Subscription) -> None:
        """Send a subscription where it lives; it replaces the one of the same name."""
        placement = subscription.encode()
        self._send_record(self._distributor.place(name, placement).tasks, name, registration, placement)

    def unregister(self, name: str, registration: str) -> None:
        """End a subscription, on all tasks where its name does not say which one it is on; ``registration`` is the place of the record that says so."""
        indexes = self._distributor.place(name, {}).tasks if self._distributor.by_id else range(len(self._tasks))
        self._send_record(indexes, name, registration, None)

    def _send_record(self, indexes: Iterable[int], name: str, registration: str, record: Mapping[str, Any] | None) -> None:
        for index in indexes:
            self._collector.emit_direct(self._tasks[index], (name, registration, record), streams.PLACEMENTS)

    def handle(self, batch: TupleBatch) -> None:
        """Handle what came on one of the streams ``shortages``, ``plans`` and ``switched``; without replication a plan is an error."""
        if batch.get_source_stream_id() == streams.PLANS:
            self._collector.report_error("a plan came, but this distributor has none; it is passed over")

    def advance(self, watermark: int) -> None:
        """Note the watermark of the distribution task."""

    def snapshot(self) -> Any:
        """Return the state as plain values; None: there is none."""
        return None

    def restore(self, state: Any) -> None:
        """Take over a snapshot."""
