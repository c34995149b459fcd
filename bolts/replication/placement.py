"""The strategy of the distribution bolt: where subscriptions and messages go. This is the simple one."""

from __future__ import annotations

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


class PlacementStrategy:
    """Places the subscriptions that a distribution task owns, and routes the messages that pass through it.

    The distribution bolt makes one in ``prepare``. This class is for subscriptions that live on one task for good, so that nothing has to be
    remembered; :class:`~dskype.bolts.replication.replicated_placement.ReplicatedPlacement` is for those that may live on several, and move.

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
        """Tell whether a subscription can be registered without exceeding ``limit``; a known one always can.

        Without replication the subscription tasks check their own numbers, and this returns True.
        """
        return True

    def register(self, name: str, registration: str, subscription: Subscription) -> None:
        """Send a subscription to its task. It replaces the one of the same name."""
        self._send_record(self._distributor.place(name, subscription).tasks, name, registration, subscription.encode())

    def _place_by(self, distributor: Distributor, name: str, subscription: Subscription, floor: float | None) -> Placed:
        """Choose tasks for a subscription by one plan; without lasting floors, all to which a message may go that has one of its words."""
        return distributor.place(name, subscription, floor if self.lasting else -np.inf)

    def unregister(self, name: str, registration: str) -> None:
        """End a subscription: on its task if the name determines that, else on all tasks.

        :param registration: the place of the record that ends it.
        """
        indexes = self._distributor.tasks_of_name(name)
        self._send_record(range(len(self._tasks)) if indexes is None else indexes, name, registration, None)

    def _send_record(self, indexes: Iterable[int], name: str, registration: str, record: Mapping[str, Any] | None) -> None:
        placement = streams.Placements(subscription=name, registration=registration, placement=record)
        for index in indexes:
            placement.emit_direct(self._collector, self._tasks[index])

    def handle(self, batch: TupleBatch) -> None:
        """Handle tuples of the streams ``shortages``, ``plans`` and ``switched``. Without replication a plan is an error."""
        if batch.get_source_stream_id() == streams.Plans.name:
            self._collector.report_error("a plan was received, but this distributor has no plans; it is ignored")

    def advance(self, watermark: int) -> None:
        """Record the watermark of the distribution task."""

    def finish_batch(self) -> None:
        """Do what is done once for each batch of tuples. Default: nothing."""

    def snapshot(self) -> Any:
        """Return the state as plain values, or None if there is none."""
        return None

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
