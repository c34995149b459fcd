"""Places subscriptions that may live on several tasks, and moves them; see :mod:`dskype.bolts.protocol`.

A subscription belongs to one distribution task, because the streams ``subscriptions`` and ``shortages`` are grouped by its name.

A report names registration and epoch, and is ignored if these are not the newest ones. So reports, unregistrations and epochs may cross on
their way, and a restored task does the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dskype.bolts.placement.base import PlacementStrategy
from dskype.bolts.placement.epochs import Epochs
from dskype.bolts.placement.moves import Moves
from dskype.bolts.placement.plans import Plans, Takeover
from dskype.bolts.placement.registry import Entry, Registry, SubscriptionInterest
from dskype.bolts.placement.reviews import Reviews
from dskype.bolts.protocol.placements import AllMoved, Epoch, MovePlan, PlanMarker, Send, Survey
from dskype.bolts.protocol.reports import EXPIRED, READY, SHORT, SURVEYED, Located, ReplicaReport, ReportedPlacement
from dskype.distribution import Placed
from dskype.distribution.base import read_takeover
from dskype.distribution.subscriptions import BooleanSubscription, Subscription, TopkSubscription
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.groupings import RowTasks
from dskype.topology.tuples import TupleBatch

__all__ = ["ReplicatedPlacement"]


class ReplicatedPlacement(PlacementStrategy):
    """Decides where the subscriptions of one distribution task live; see the module.

    ::

                   register                                          unregister, or a report: expired
        (nowhere) ----------> on the tasks of the plans (Plans) ----------------------------------------> (nowhere)
                               |       ^
                               |       |  a report: short     more tasks, at once
                               +-------+  a review (Reviews)  fewer tasks, in two epochs
                                          a plan (Moves)      other tasks: first on those of both plans, then on the new ones

    Each arrow is an epoch, of which :class:`~dskype.bolts.placement.epochs.Epochs` tells the tasks.

    :param plans: at the start.
    :param tasks: ids of the subscription tasks, by index.
    :param collector: collector of the bolt.
    :param context: context of the bolt, for metrics.
    :param window: extent of the window, in positions.
    :param objects: whether to tell tasks when boolean subscriptions became active: of an update of an object they report what has changed since.
    :param registry: where the subscriptions live: nowhere so far.
    """

    def __init__(
        self, plans: Plans, tasks: Sequence[int], collector: Any, context: Any, window: int, objects: bool = False, registry: Registry | None = None
    ) -> None:
        self._registry = Registry() if registry is None else registry
        self._plans, self._moves, self.reviews = plans, Moves(), Reviews(self._registry, window)
        self.epochs = Epochs(self._registry, plans, tasks, collector)
        self._index = {task: i for i, task in enumerate(tasks)}
        self._collector, self._objects = collector, objects
        self._begun: dict[str, int] = {}  # boolean subscription -> when it became active; only with objects
        self._high = -1  # the highest position sent
        self._counters = {
            name: context.register_counter(name)
            for name in ("reallocations", "shrunk", "plan_changes", "plans_refused", "unknown_unregistered", "unknown_updated")
        }
        context.register_gauge("registered", lambda: len(self._registry))
        context.register_gauge("replicas", lambda: self._registry.replicas)
        context.register_gauge("moving", lambda: len(self._moves))
        context.register_gauge("plan_version", lambda: plans.version)
        context.register_gauge("plan_changing", lambda: int(plans.changing))
        context.register_gauge("placed_by_old_plan", lambda: 0 if plans.takeover is None else len(plans.takeover))

    # -- messages -----------------------------------------------------------------------------------------------------

    def routes(self, messages: MessageBatch) -> RowTasks | None:
        """Return which task indexes get which messages; during a plan change, the tasks of both plans."""
        self.record(messages)
        return self._plans.routes(lambda plan: plan.message_tasks(messages))

    def record(self, messages: MessageBatch) -> None:
        """Record that messages are sent."""
        if messages.n:
            self._high = max(self._high, int(messages.position.max()))
        self._moves.earn(messages.n)

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def has_room(self, name: str, limit: int) -> bool:
        """Tell whether fewer than ``limit`` subscriptions are registered, or this one is."""
        return len(self._registry) < limit or self._registry.has(name)

    def register(self, name: str, registration: str, subscription: Subscription, interest: SubscriptionInterest | None = None) -> None:
        """Place a subscription, and end the one of the same name. One that goes on from that has the same type, and its results do; it asks for nothing."""
        topk, old, watermark = isinstance(subscription, TopkSubscription), self._registry.get(name), self.epochs.watermark
        updated = bool(subscription.update) and old is not None and old.topk == topk
        self._counters["unknown_updated"].inc(bool(subscription.update) and old is None)
        begun, subscription = self._begun.get(name, watermark) if updated else watermark, subscription.placed(updated)
        if old is not None:
            self._end(name, old, replaced=topk, updated=updated)
        if isinstance(subscription, BooleanSubscription) and self._objects:
            self._begun[name], subscription = begun, subscription._replace(begun=begun)
        placed = self.place_first(name, subscription)
        epoch = self._first_epoch(name, subscription, placed)
        self.epochs.begin(name, Entry(registration, topk, 1, tuple(placed.tasks), interest), subscription, epoch, updated=updated)
        self._advance_until_blocked()

    def place_first(self, name: str, subscription: Subscription) -> Placed:
        """Choose tasks for a new subscription: before the first message no list can be full, and a placement for a threshold would have to grow at once."""
        return self._plans.place(name, subscription, -np.inf if self.epochs.watermark < 0 else None)

    def _first_epoch(self, name: str, subscription: Subscription, placed: Placed) -> Epoch:
        """Return the first epoch. During a takeover whose plan is not in force, a boolean subscription begins to move to the tasks of the new plan."""
        takeover, tasks = self._plans.takeover, list(placed.tasks)
        if takeover is None or takeover.in_force:
            return self.epochs.epoch(1, tasks, placed.guard)
        if isinstance(subscription, TopkSubscription):
            takeover.add(name)
            return self.epochs.epoch(1, tasks, placed.guard)
        target = self._plans.present.place(name, subscription).tasks
        self._moves.move(name, target, -np.inf)
        return self.epochs.epoch(1, tasks, placed.guard, since=self._plans.version, moving=True, report_ready=target)

    def unregister(self, name: str, registration: str = "") -> None:
        """End a subscription; count an unknown one."""
        if (entry := self._registry.get(name)) is None:
            self._counters["unknown_unregistered"].inc()
        else:
            self._unregister(name, entry)

    def _unregister(self, name: str, entry: Entry) -> None:
        self._end(name, entry, replaced=False)
        self._registry.remove(name)
        self._advance_until_blocked()

    def _end(self, name: str, entry: Entry, *, replaced: bool, updated: bool = False) -> None:
        self.epochs.end(name, entry, replaced=replaced, updated=updated)
        self._moves.end(name)
        self.reviews.end(name)
        self._begun.pop(name, None)
        if self._plans.takeover is not None:
            self._plans.takeover.end(name)

    def _begin_epoch(self, name: str, entry: Entry, tasks: Iterable[int], guard: float, subscription: Subscription | None, **options: Any) -> Entry:
        """Begin the next epoch of a subscription; parameters are those of :meth:`~dskype.bolts.placement.epochs.Epochs.next`."""
        self._counters["reallocations"].inc()
        self.reviews.end(name)
        return self.epochs.next(name, entry, tasks, guard, subscription, **options)

    # -- reports ------------------------------------------------------------------------------------------------------

    def handle(self, batch: TupleBatch) -> None:
        """Handle reports of replicas, new plans, and messages that a plan is in force."""
        stream = batch.get_source_stream_id()
        if stream == streams.Shortages.name:
            for report in streams.Shortages.rows(batch):
                self.handle_report(ReplicaReport.of(report), batch.get_source_task())
        elif stream == streams.Plans.name:
            for plan in streams.Plans.rows(batch):
                self.enqueue_plan(plan.version, plan.plan)
        else:
            for switched in streams.Switched.rows(batch):
                self.drop_old_routes(switched.version, -1 if switched.at is None else switched.at)

    def handle_report(self, report: ReplicaReport, task: int) -> None:
        """Act on a report of a task (its id), unless it is out of date."""
        name = report.subscription
        entry = self._registry.get(name)
        if entry is None or entry.registration != report.registration:
            return
        if report.kind == EXPIRED:
            self._unregister(name, entry)
            return
        if entry.epoch != report.epoch:
            return
        index, move = self._index[task], self._moves.moving.get(name)
        if report.kind == READY:
            if move is not None:
                self._finish_move(name, entry, index)
        elif report.kind == SURVEYED and name in self.reviews.asked:
            self._shrink(name, entry, index, report)
        elif move is None or index in move.target:
            self._reconsider(name, entry, index, report)
        self._advance_until_blocked()

    def _finish_move(self, name: str, entry: Entry, index: int) -> None:
        """Record that a task of a move is ready; after the last one the subscription lives on the new tasks alone."""
        if self._plans.takeover is not None:
            self._plans.takeover.in_force = True  # for this task, too: its watermark is not behind that of the task which reports
        move = self._moves.record_ready(name, index)
        if move is not None:
            self._begin_epoch(name, entry, move.target, move.guard, None)

    def _reconsider(self, name: str, entry: Entry, index: int, report: ReplicaReport) -> None:
        """Place a subscription again, with the floor and the placement in a report."""
        move, reported, floor, version = self._moves.moving.get(name), report.placement, report.floor, self._plans.version
        if isinstance(reported, Located):
            self._move_located(name, entry, index, reported)
            return
        assert reported is not None  # these kinds have one
        if report.kind == SHORT and move is None:
            self._grow(name, entry, index, floor, reported)
            return
        self._moves.surveyed.discard(name)
        if reported.plan == version and move is None:
            return
        subscription = reported.subscription
        placed = self._plans.place_by_present(name, subscription, floor)
        now, target, guard = set(entry.tasks), set(placed.tasks), placed.guard
        if move is not None:
            target |= set(move.target)
        elif target == now or (target < now and entry.topk and floor is None):
            self._keep_tasks(name, entry, index, guard, floor, reported)
            return
        elif target < now and entry.topk:
            self._begin_epoch(name, entry, target, guard, subscription, since=version, evaluate=[min(target)])
            return
        tasks = sorted(target)
        self._moves.move(name, tasks, float(guard))
        self._begin_epoch(name, entry, now | target, guard, subscription, since=version, moving=True, report_ready=tasks)

    def _move_located(self, name: str, entry: Entry, index: int, located: Located) -> None:
        """Move a boolean subscription to the tasks that one of its present tasks, ``index``, has found by the plan; that task sends it to new ones."""
        self._moves.surveyed.discard(name)
        now, target, version = set(entry.tasks), set(located.tasks), self._plans.version
        if located.plan == version or target == now:
            return
        self._moves.move(name, sorted(target), -np.inf)
        self._begin_epoch(name, entry, now | target, -np.inf, None, since=version, moving=True, report_ready=sorted(target))
        if target - now:
            self.epochs.send(index, name, entry.registration, Send(sorted(target - now)))

    def _grow(self, name: str, entry: Entry, index: int, floor: float | None, reported: ReportedPlacement) -> None:
        """Add the tasks that a lower floor requires to those of a subscription."""
        placed = self._plans.place(name, reported.subscription, floor)
        now, grown = set(entry.tasks), {*entry.tasks, *placed.tasks}
        self._moves.survey_again(name)
        plan = self._plans.version if self._plans.old is None else reported.plan
        self._begin_epoch(name, entry, grown, placed.guard, reported.subscription, plan=plan, evaluate=[index] if grown == now else [])

    def _keep_tasks(self, name: str, entry: Entry, index: int, guard: float, floor: float | None, reported: ReportedPlacement) -> None:
        """Keep the tasks of a subscription under another plan. The guard must cover what either plan sends to other tasks."""
        both = max(guard, reported.guard)
        if floor is not None and both > -np.inf and not floor > both:
            self._begin_epoch(name, entry, entry.tasks, guard, reported.subscription, since=self._plans.version, evaluate=[index])
        elif both > reported.guard:
            self._begin_epoch(name, entry, entry.tasks, both, reported.subscription)

    def _shrink(self, name: str, entry: Entry, index: int, report: ReplicaReport) -> None:
        """Record the answer of one task to a review; after the last one place the subscription by the best floor, if that takes fewer tasks."""
        best = self.reviews.collect(name, index, report.floor)
        if best is None:
            return
        assert isinstance(report.placement, ReportedPlacement)  # a top-k subscription
        subscription = report.placement.subscription
        placed = self._plans.place_by_present(name, subscription, best)
        if set(placed.tasks) < set(entry.tasks):
            self._counters["shrunk"].inc()
            # No floor is above the guard inf, so no replica of the first epoch is ever ready. The second epoch begins as for a new subscription.
            away = self._begin_epoch(name, entry, set(entry.tasks) - set(placed.tasks), np.inf, subscription)
            self._begin_epoch(name, away, placed.tasks, placed.guard, subscription)

    # -- plans --------------------------------------------------------------------------------------------------------

    def advance(self, watermark: int) -> None:
        """Record the watermark, which placements carry, and begin a review if it is time for one."""
        self.epochs.watermark = watermark
        if self._moves.drop_at is not None:
            self.drop_old_routes(self._plans.version, self._moves.drop_at)
        self.reviews.advance(watermark, settled=self._plans.old is None)
        self._advance_until_blocked()

    def enqueue_plan(self, version: int, plan: Any) -> None:
        """Change to a plan as soon as the previous change is over. A version that is not new is ignored; a plan that is unusable changes nothing, and ends no takeover."""
        if version <= self._plans.newest:
            return
        self._plans.newest = version
        try:
            kept = self._plans.check(plan)
        except IllegalArgumentException as error:
            self._refuse_plan(version, error)
            return
        self._plans.coming.append((version, plan))
        self._begin_next_plan()
        del kept  # until here, so that it is made once
        self._advance_until_blocked()  # a takeover ends

    def _refuse_plan(self, version: int, error: IllegalArgumentException) -> None:
        self._counters["plans_refused"].inc()
        self._collector.report_error(f"plan {version} is not used: {error}")

    def _begin_next_plan(self) -> None:
        plans = self._plans
        while plans.old is None and plans.coming:
            version, plan = plans.coming.pop(0)
            try:
                plan, rest = read_takeover(plan)
                plans.change(version, plan)
            except IllegalArgumentException as error:  # one that a task of version 0.2.0 had let wait
                self._refuse_plan(version, error)
                continue
            self._counters["plan_changes"].inc()
            names = self._registry.names()
            if plans.giving is not None:
                names = [name for name in names if (entry := self._registry.get(name)) is not None and (entry.topk or not plans.giving.isdisjoint(entry.tasks))]
            if rest is not None:
                plans.takeover, names = Takeover(names, rest), []
            self._moves.begin(names)
            self.reviews.end_all()
            self.epochs.send_to_all(PlanMarker(version, self._high))
            if plans.present.transfers:
                for index in range(len(self._index)) if plans.giving is None else sorted(plans.giving):
                    self.epochs.send(index, "", "", MovePlan(version, plan))
            self._advance_until_blocked()

    def _advance_until_blocked(self) -> None:
        """Review and survey as many more subscriptions as the limits allow; tell the subscription tasks when all have moved."""
        plans, moves = self._plans, self._moves
        for name, entry in self.reviews.begin():
            for index in entry.tasks:
                self.epochs.send(index, name, entry.registration, Survey())
        if moves.done:
            return
        if plans.takeover is not None:
            if not plans.takeover.over and not plans.coming:
                return
            moves.waiting, plans.takeover = plans.takeover.names(), None
        for name, entry in moves.begin_surveys(self._registry):
            self.epochs.send(plans.task_to_survey(entry), name, entry.registration, Survey())
        if not len(moves):
            moves.done = True
            self.epochs.send_to_all(AllMoved(plans.version, self.epochs.watermark))

    def drop_old_routes(self, version: int, at: int) -> None:
        """Drop the routes of the plan before ``version``, because no distribution task has subscriptions left that were placed by it.

        :param at: the last position for which a subscription matched messages on tasks of the older plan. Up to there messages may still come.
        """
        if self._plans.old is None or not self._moves.done or version != self._plans.version:
            return
        if self.epochs.watermark < at:
            self._moves.drop_at = at
            return
        self._plans.old, self._moves.drop_at = None, None
        self._begin_next_plan()

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values."""
        takeover = self._plans.takeover
        return {
            "registry": self._registry.snapshot(),
            **self._plans.snapshot(),
            **self._moves.snapshot(),
            "takeover": None if takeover is None else takeover.snapshot(),
            "watermark": self.epochs.watermark,
            "high": self._high,
            **self.reviews.snapshot(),
            "begun": list(self._begun.items()),
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        for part in (self._plans, self._moves, self.reviews):
            part.restore(state)
        self._registry.restore(state["registry"])
        self.epochs.watermark, self._high = state["watermark"], state["high"]
        self._begun = dict(state.get("begun", ()))  # absent from snapshots of earlier versions
