"""Places subscriptions that live on one task for good, so that nothing has to be remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dskype.bolts.placement.base import PlacementStrategy
from dskype.distribution import Distributor
from dskype.distribution.subscriptions import Subscription
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks
from dskype.topology.tuples import TupleBatch

__all__ = ["SinglePlacement"]


class SinglePlacement(PlacementStrategy):
    """Sends each subscription to its task.

    :param distributor: chooses tasks.
    :param tasks: ids of the subscription tasks, by index.
    :param collector: collector of the bolt.
    """

    def __init__(self, distributor: Distributor, tasks: Sequence[int], collector: Any) -> None:
        self._distributor, self._tasks, self._collector = distributor, tasks, collector

    def routes(self, messages: MessageBatch) -> RowTasks | None:
        """Return which task indexes get which messages; None: every task gets all messages."""
        return self._distributor.message_tasks(messages)

    def register(self, name: str, registration: str, subscription: Subscription) -> None:
        """Send a subscription to its task, where it replaces the one of the same name."""
        self._send(self._distributor.place(name, subscription).tasks, name, registration, subscription.encode())

    def unregister(self, name: str, registration: str) -> None:
        """End a subscription: on its task if the name determines that, else on all tasks."""
        indexes = self._distributor.tasks_of_name(name)
        self._send(range(len(self._tasks)) if indexes is None else indexes, name, registration, None)

    def _send(self, indexes: Iterable[int], name: str, registration: str, record: Mapping[str, Any] | None) -> None:
        placement = streams.Placements(subscription=name, registration=registration, placement=record)
        for index in indexes:
            placement.emit_direct(self._collector, self._tasks[index])

    def handle(self, batch: TupleBatch) -> None:
        """Report a plan as an error: it changes nothing."""
        if batch.get_source_stream_id() == streams.Plans.name:
            self._collector.report_error("a plan was received, but this distributor has no plans; it is ignored")
