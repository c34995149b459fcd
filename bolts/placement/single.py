"""Places subscriptions that live on one task for good, so that nothing has to be remembered."""

from __future__ import annotations

from dskype.bolts.placement.base import PlacementStrategy
from dskype.distribution.subscriptions import Subscription
from dskype.spouts import streams
from dskype.topology.tuples import TupleBatch

__all__ = ["SinglePlacement"]


class SinglePlacement(PlacementStrategy):
    """Sends each subscription to the task that its name or its place determines. Parameters are those of :class:`~dskype.bolts.placement.base.PlacementStrategy`."""

    def register(self, name: str, registration: str, subscription: Subscription) -> None:
        """Send a subscription to its task."""
        self._send_record(self._distributor.place(name, subscription).tasks, name, registration, subscription.encode())

    def unregister(self, name: str, registration: str) -> None:
        """End a subscription: on its task if the name determines that, else on all tasks."""
        indexes = self._distributor.tasks_of_name(name)
        self._send_record(range(len(self._tasks)) if indexes is None else indexes, name, registration, None)

    def handle(self, batch: TupleBatch) -> None:
        """Report a plan as an error: it changes nothing."""
        if batch.get_source_stream_id() == streams.Plans.name:
            self._collector.report_error("a plan was received, but this distributor has no plans; it is ignored")
