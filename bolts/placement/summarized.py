"""Places subscriptions where distribution tasks route by interest: a subscription begins when all of them know its routing terms.

:mod:`dskype.bolts.placement.interest_exchange` says when a pair of a region and a routing term is *settled*. This strategy holds back what would
need a pair that is not:

- **A registration.** The one that it replaces lives on meanwhile. It is let through when its pairs are settled, and begins at the watermark of
  that time. If the subscription is unregistered or replaced before, both happen at once, so that it begins and ends at the same watermark.
- **A report** of a replica that brings the subscription to more tasks. It is handled as if it had come later, and may be out of date then.

So every placement in the registry has settled pairs. A task that opens a new replica of a top-k subscription evaluates it at the watermark of the
placement or later; a boolean subscription matches from this watermark on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.placement.base import PlacementStrategy
from dskype.bolts.placement.interest_exchange import InterestExchange, pairs_of
from dskype.bolts.placement.plans import Plans
from dskype.bolts.placement.registry import Entry, Registry, SubscriptionInterest
from dskype.bolts.placement.replicated import ReplicatedPlacement
from dskype.bolts.protocol.interest import decode_interest
from dskype.bolts.protocol.reports import SHORT, SURVEYED, Located, ReplicaReport
from dskype.distribution.routing.triggers import routing_terms
from dskype.distribution.subscriptions import Subscription, decode_subscription
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks
from dskype.topology.tuples import TupleBatch

__all__ = ["SummarizedPlacement"]


class _Held(NamedTuple):
    """What waits for pairs, and counts as a subscription with them.

    :ivar name: of the subscription.
    :ivar registration: of the newest registration that is held.
    :ivar report: a report and the task that sent it; None: the registrations of this name wait.
    """

    regions: np.ndarray
    terms: np.ndarray
    name: str
    registration: str
    report: tuple[ReplicaReport, int] | None


class _CountedRegistry(Registry):
    """A registry whose subscriptions need their pairs."""

    def __init__(self, exchange: InterestExchange) -> None:
        super().__init__()
        self._exchange = exchange

    def set(self, subscription: str, entry: Entry) -> None:
        """Remember a placement."""
        before = self.get(subscription)
        self._exchange.need(*_pairs(entry))
        super().set(subscription, entry)
        if before is not None:
            self._exchange.release(*_pairs(before))

    def remove(self, subscription: str) -> None:
        """Forget a subscription."""
        if (before := self.get(subscription)) is not None:
            self._exchange.release(*_pairs(before))
        super().remove(subscription)


class SummarizedPlacement(PlacementStrategy):
    """Lets registrations and reports through to a :class:`~dskype.bolts.placement.replicated.ReplicatedPlacement`, and routes messages by interest.

    ::

        registration, report --hold: a pair is not settled--> waiting --let through: all are--> ReplicatedPlacement
                  |                                                                                ^
                  +------------------------------- all pairs are settled -------------------------+

    Parameters are those of ``ReplicatedPlacement``, and

    :param others: ids of the other distribution tasks.
    """

    def __init__(self, plans: Plans, tasks: Sequence[int], collector: Any, context: Any, window: int, others: Iterable[int], objects: bool = False) -> None:
        self._plans = plans
        self._exchange = InterestExchange(plans.present.regions(), others, collector, context)
        self._registry = _CountedRegistry(self._exchange)
        self._replicated = ReplicatedPlacement(plans, tasks, collector, context, window, objects, self._registry)
        self.epochs = self._replicated.epochs
        self._registrations: dict[str, list[tuple[str, Subscription]]] = {}  # held, by name, in order
        self._waiting: dict[int, list[_Held]] = {}  # by the number that has to be settled
        context.register_gauge("held_registrations", lambda: len(self._registrations))

    # -- messages -----------------------------------------------------------------------------------------------------

    def routes(self, messages: MessageBatch) -> RowTasks | None:
        """Return which task indexes get which messages: those that the plan names, and that want them; during a plan change, those of both plans.

        What each plan finds in one step is complete for the subscriptions that this plan places, so both together are complete.
        """
        found = self._plans.routes(lambda plan: self._exchange.wanted(plan, messages))
        if found is not None:
            self._replicated.record(messages)
            return found
        return self._exchange.filter(self._plans.present, messages, self._replicated.routes(messages))

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def has_room(self, name: str, limit: int) -> bool:
        """Tell whether fewer than ``limit`` subscriptions are registered or held, or this one is; O(1), near the limit O(held)."""
        if name in self._registrations or self._replicated.has_room(name, limit - len(self._registrations)):
            return True
        return self._replicated.has_room(name, limit - sum(not self._registry.has(held) for held in self._registrations))  # some replace a registered one

    def register(self, name: str, registration: str, subscription: Subscription) -> None:
        """Place a subscription as soon as its pairs are settled."""
        self._registrations.setdefault(name, []).append((registration, subscription))
        self._place_held(name)

    def _place_held(self, name: str) -> None:
        """Place the held registrations of a name, one after another, unless the last one has to wait."""
        registration, subscription = self._registrations[name][-1]
        if not self._hold(self._interest(subscription), self._replicated.place_first(name, subscription).tasks, name, registration, None):
            self._register_held(name)

    def _register_held(self, name: str) -> None:
        for registration, subscription in self._registrations.pop(name, ()):
            self._replicated.register(name, registration, subscription, self._interest(subscription))

    def _interest(self, subscription: Subscription) -> SubscriptionInterest:
        regions = self._plans.present.regions_of(subscription)
        return SubscriptionInterest(None if regions is None else tuple(regions), tuple(routing_terms(subscription).tolist()))

    def _hold(self, interest: SubscriptionInterest, tasks: Sequence[int], name: str, registration: str, report: tuple[ReplicaReport, int] | None) -> bool:
        """Hold something back if a subscription cannot use its pairs on tasks yet; return whether it was held back."""
        regions, terms = pairs_of(tasks if interest.regions is None else interest.regions, interest.terms)
        number = self._exchange.need(regions, terms)
        if self._exchange.settled(number):
            self._exchange.release(regions, terms)
            return False
        self._waiting.setdefault(number, []).append(_Held(regions, terms, name, registration, report))
        return True

    def unregister(self, name: str, registration: str = "") -> None:
        """End a subscription, and those of its registrations that are held; count an unknown one."""
        self._register_held(name)
        self._replicated.unregister(name, registration)

    # -- reports ------------------------------------------------------------------------------------------------------

    def handle(self, batch: TupleBatch) -> None:
        """Handle messages of other distribution tasks, reports of replicas, plans, and messages that a plan is in force."""
        stream, source = batch.get_source_stream_id(), batch.get_source_task()
        if stream == streams.Interest.name:
            for row in streams.Interest.rows(batch):
                self._exchange.receive(decode_interest(row.kind, row.record), source)
        elif stream == streams.Shortages.name:
            for report in streams.Shortages.rows(batch):
                self.handle_report(ReplicaReport.of(report), source)
        else:
            self._replicated.handle(batch)

    def handle_report(self, report: ReplicaReport, task: int) -> None:
        """Act on a report of a task (its id) as soon as the pairs that it leads to are settled."""
        if not self._holds_report(report, task):
            self._replicated.handle_report(report, task)

    def _holds_report(self, report: ReplicaReport, task: int) -> bool:
        name, placed = report.subscription, report.placement
        entry = self._registry.get(name)
        if entry is None or (entry.registration, entry.epoch) != (report.registration, report.epoch):
            return False
        if report.kind not in (SHORT, SURVEYED) or (report.kind == SURVEYED and name in self._replicated.reviews.asked):
            return False
        assert placed is not None and entry.interest is not None
        tasks = placed.tasks if isinstance(placed, Located) else self._plans.place(name, placed.subscription, report.floor).tasks
        new = sorted(set(tasks) - set(entry.tasks))
        return bool(new) and self._hold(entry.interest, new, name, report.registration, (report, task))

    # -- time ---------------------------------------------------------------------------------------------------------

    def advance(self, watermark: int) -> None:
        """Record the watermark, and let through what it has settled."""
        self._exchange.advance(watermark)
        self._replicated.advance(watermark)
        self.finish_batch()

    def finish_batch(self) -> None:
        """Announce the pairs that have become needed; let through what has been settled."""
        self._exchange.announce()
        while self._exchange.settle():
            for number in sorted(filter(self._exchange.settled, self._waiting)):
                for held in self._waiting.pop(number):
                    self._let_through(held)
            self._exchange.announce()

    def _let_through(self, held: _Held) -> None:
        if held.report is not None:
            self.handle_report(*held.report)
        elif held.name in self._registrations and self._registrations[held.name][-1][0] == held.registration:
            self._place_held(held.name)
        self._exchange.release(held.regions, held.terms)

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return self._replicated.snapshot() | {
            "interest": self._exchange.snapshot(),
            "held": [[name, [[registration, one.encode()] for registration, one in held]] for name, held in self._registrations.items()],
            "waiting": [
                [number, [[*one[:4], None if one.report is None else [list(one.report[0].encode()), one.report[1]]] for one in held]]
                for number, held in self._waiting.items()
            ],
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._replicated.restore(state)
        self._exchange.restore(state["interest"])
        self._registrations = {name: [(registration, decode_subscription(one)) for registration, one in held] for name, held in state["held"]}
        self._waiting = {
            number: [
                _Held(np.asarray(regions), np.asarray(terms), name, registration, None if report is None else (ReplicaReport.decode(report[0]), report[1]))
                for regions, terms, name, registration, report in held
            ]
            for number, held in state["waiting"]
        }


def _pairs(entry: Entry) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of a placement."""
    assert entry.interest is not None
    return pairs_of(entry.tasks if entry.interest.regions is None else entry.interest.regions, entry.interest.terms)
