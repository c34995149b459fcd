"""Boolean subscriptions that move from one subscription task to another, past the distribution tasks (Tornado, section 4.4).

A distribution task knows where a subscription lives, but does not have it. When a plan moves cells, it asks a task that gives cells away
(``Survey``), which answers where the subscription lives by the new plan (``Located``). Then it begins the next epoch: on the new tasks by a bare
``Epoch``, and at the task that answered by ``Send``, which makes that task send the subscription itself on the stream ``transfers``.

Epoch and subscription come to a new task on two channels, so in any order. The task opens the subscription when it has both, from its own
watermark on: its other tasks match until it is ready. If the subscription ends before it has come, it is not opened here at all. A ``Send`` is
always answered, because it reaches its task before the end of the subscription does. So every expectation meets exactly one subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dskype.bolts.protocol.balance import HandedOver
from dskype.bolts.protocol.placements import Epoch, Placement
from dskype.distribution import Distributor
from dskype.distribution.subscriptions import BooleanSubscription, decode_subscription
from dskype.spouts import streams

__all__ = ["Transfers"]

_Key = tuple[str, str]
"""Subscription and registration."""


class Transfers:
    """What a subscription task sends to others, and what it expects from them; see the module.

    :param collector: collector of the bolt.
    :param tasks: ids of all tasks of the bolt, by index.
    :param make: makes a distributor from a plan.
    :param counter: counts the subscriptions that are sent.
    """

    def __init__(self, collector: Any, tasks: Sequence[int], make: Callable[[Mapping[str, Any]], Distributor], counter: Any) -> None:
        self._collector, self._tasks, self._make, self._counter = collector, list(tasks), make, counter
        self._version = 0
        self._plan: Any = None
        self._distributor: Distributor | None = None
        self._expected: dict[_Key, Epoch | None] = {}  # None: it has ended meanwhile
        self._arrived: dict[_Key, Any] = {}  # and its epoch has not

    # -- giving -------------------------------------------------------------------------------------------------------

    def adopt_plan(self, version: int, plan: Mapping[str, Any]) -> None:
        """Locate subscriptions by a plan from now on; every distribution task sends it."""
        if version > self._version:
            self._version, self._plan, self._distributor = version, dict(plan), self._make(plan)

    def locate(self, name: str, subscription: BooleanSubscription) -> list[int] | None:
        """Return the indexes of the tasks of a subscription by the plan; None: there is no plan."""
        return None if self._distributor is None else self._distributor.place(name, subscription).tasks

    def send(self, name: str, registration: str, subscription: BooleanSubscription, indexes: Sequence[int]) -> None:
        """Send a subscription to other tasks."""
        self._counter.inc(len(indexes))
        transfer = streams.Transfers(subscription=name, registration=registration, record=subscription.encode())
        for index in indexes:
            transfer.emit_direct(self._collector, self._tasks[index])

    def hand_over(self, index: int, costs: HandedOver) -> None:
        """Send costs of cells to another task, for load balancing."""
        streams.Transfers(subscription="", registration="", record=costs.encode()).emit_direct(self._collector, self._tasks[index])

    # -- taking -------------------------------------------------------------------------------------------------------

    def expect(self, name: str, registration: str, epoch: Epoch) -> Placement | None:
        """Record the epoch in which a subscription begins here; return its placement if it has arrived."""
        record = self._arrived.pop((name, registration), None)
        if record is not None:
            return Placement(decode_subscription(record), epoch)
        self._expected[name, registration] = epoch
        return None

    def cancel(self, name: str, registration: str) -> bool:
        """Record that a subscription has ended; return whether it is still expected here, so that there is nothing else to end."""
        if (name, registration) not in self._expected:
            return False
        self._expected[name, registration] = None
        return True

    def arrive(self, name: str, registration: str, record: Mapping[str, Any]) -> Placement | None:
        """Take a subscription that another task has sent; return its placement if it is expected and has not ended."""
        key = name, registration
        if key not in self._expected:
            self._arrived[key] = dict(record)
            return None
        epoch = self._expected.pop(key)
        return None if epoch is None else Placement(decode_subscription(record), epoch)

    def __len__(self) -> int:
        """Return how many subscriptions are on their way to this task."""
        return len(self._expected) + len(self._arrived)

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        expected = [[*key, None if epoch is None else epoch.encode()] for key, epoch in self._expected.items()]
        return [self._version, self._plan, expected, [[*key, record] for key, record in self._arrived.items()]]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._version, self._plan, expected, arrived = state
        self._distributor = None if self._plan is None else self._make(self._plan)
        self._expected = {(name, registration): None if epoch is None else Epoch.decode(epoch) for name, registration, epoch in expected}
        self._arrived = {(name, registration): record for name, registration, record in arrived}
