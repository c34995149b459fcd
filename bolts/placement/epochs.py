"""Tells the other tasks where the subscriptions of a distribution task live, and remembers it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dskype.bolts.placement.plans import Plans
from dskype.bolts.placement.registry import Entry, Registry
from dskype.bolts.protocol.merging import Begin, Finish
from dskype.bolts.protocol.placements import End, Epoch, Placement, PlacementMessage, encode_placement
from dskype.distribution.subscriptions import Subscription
from dskype.spouts import streams

__all__ = ["Epochs"]


class Epochs:
    """The epochs of the subscriptions of one distribution task. It decides nothing.

    ::

        --begin--> epoch 1 --next--> epoch 2 --next--> ... --end-->

    Channels keep order. So the tasks in the registry have the subscription, or receive it before any other message about it.

    :param registry: where the subscriptions live.
    :param plans: of the distribution task.
    :param tasks: ids of the subscription tasks, by index.
    :param collector: collector of the bolt.
    :ivar watermark: of the distribution task.
    """

    def __init__(self, registry: Registry, plans: Plans, tasks: Sequence[int], collector: Any) -> None:
        self.registry, self.plans, self.collector = registry, plans, collector
        self._tasks = list(tasks)
        self.watermark = -1

    def epoch(
        self, number: int, tasks: list[int], guard: float, *, plan: int | None = None, since: int | None = None, moving: bool = False, **lists: list[int]
    ) -> Epoch:
        """Return an epoch. By default it is placed by the present plan, and waits for the plan that is in force everywhere.

        :param lists: ``report_ready`` and ``evaluate``.
        """
        plan, since = self.plans.version if plan is None else plan, self.plans.since if since is None else since
        return Epoch(number, tasks, float(guard), plan, since, self.watermark, moving, lists.get("report_ready", []), lists.get("evaluate", []))

    def begin(self, name: str, entry: Entry, subscription: Subscription, epoch: Epoch, *, updated: bool) -> None:
        """Begin a registration.

        :param updated: whether it goes on from the one before it.
        """
        self.registry.set(name, entry)
        self._send_registration(name, entry.registration, "begin", Begin(entry.topk, self.watermark, updated))
        placement = Placement(subscription, epoch)
        for index in entry.tasks:
            self.send(index, name, entry.registration, placement)

    def next(self, name: str, entry: Entry, tasks: Iterable[int], guard: float, subscription: Subscription | None, **options: Any) -> Entry:
        """Begin the next epoch of a subscription.

        :param subscription: None: no task is new, or another task sends it to those that are.
        :param options: of :meth:`epoch`.
        :returns: the new entry.
        """
        epoch = self.epoch(entry.epoch + 1, sorted(tasks), guard, **options)
        for index in sorted({*epoch.tasks, *entry.tasks}):
            self.send(index, name, entry.registration, epoch if index in entry.tasks or subscription is None else Placement(subscription, epoch))
        entry = entry._replace(epoch=epoch.number, tasks=tuple(epoch.tasks))
        self.registry.set(name, entry)
        return entry

    def end(self, name: str, entry: Entry, *, replaced: bool, updated: bool = False) -> None:
        """End a registration. The registry keeps it until another one replaces it, or the subscription is removed."""
        for index in entry.tasks:
            self.send(index, name, entry.registration, End(self.watermark))
        finish = Finish(entry.topk, self.watermark, [self._tasks[index] for index in entry.tasks], replaced, updated)
        self._send_registration(name, entry.registration, "end", finish)

    def _send_registration(self, name: str, registration: str, event: str, message: Begin | Finish) -> None:
        streams.Registrations(subscription=name, registration=registration, event=event, record=message._asdict()).emit(self.collector)

    def send(self, index: int, name: str, registration: str, message: PlacementMessage) -> None:
        """Send a message to a subscription task; name and registration are empty where it is not about a subscription."""
        streams.Placements(subscription=name, registration=registration, placement=encode_placement(message)).emit_direct(self.collector, self._tasks[index])

    def send_to_all(self, message: PlacementMessage) -> None:
        """Send a message that is not about a subscription to all subscription tasks."""
        for index in range(len(self._tasks)):
            self.send(index, "", "", message)
