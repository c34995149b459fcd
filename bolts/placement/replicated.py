"""Places subscriptions that may live on several tasks, and moves them; see :mod:`dskype.bolts.protocol`.

A subscription belongs to one distribution task, because the streams ``subscriptions`` and ``shortages`` are grouped by its name. Channels
keep order. So the tasks in the registry have the subscription, or receive it before any other message about it.

A report names registration and epoch, and is ignored if these are not the newest ones. So reports, unregistrations and epochs may cross on
their way, and a restored task does the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.placement.base import PlacementStrategy
from dskype.bolts.placement.registry import Entry, Registry
from dskype.bolts.placement.takeover import Takeover
from dskype.bolts.protocol.balance import PartitionMap, SizeShift
from dskype.bolts.protocol.merging import Begin, Finish
from dskype.bolts.protocol.placements import AllMoved, End, Epoch, MovePlan, Placement, PlacementMessage, PlanMarker, Send, Survey
from dskype.bolts.protocol.reports import EXPIRED, READY, SHORT, SURVEYED, Located, ReplicaReport, ReportedPlacement
from dskype.distribution import Distributor, Placed
from dskype.distribution.base import read_takeover
from dskype.distribution.subscriptions import BooleanSubscription, Subscription, TopkSubscription
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.groupings import RowTasks
from dskype.topology.tuples import TupleBatch

__all__ = ["ReplicatedPlacement", "union_of"]

_PORTION = 512
"""The most subscriptions that are surveyed or moving at a time, and the most that are reviewed."""
_ALWAYS = 32
"""So many may always be surveyed or moving. More begin with the messages that are routed, one for :data:`_MESSAGES_PER_MOVE`."""
_MESSAGES_PER_MOVE = 32
"""A move costs all tasks together as much as ten to twenty messages, so moves take a third of the time under full load."""
_LOOKED_AT = 16 * _PORTION
"""The most subscriptions that one call examines for whether a review is worth while."""
_RAREST = 64
"""The greatest distance of reviews, in windows; they become rarer until it is reached."""


class _Move(NamedTuple):
    """A subscription that lives on the tasks of two plans.

    :ivar target: indexes of the tasks on which it will live, by the newer plan.
    :ivar guard: guard of these tasks.
    :ivar waits_for: indexes of those that have not reported ready.
    """

    target: list[int]
    guard: float
    waits_for: list[int]


class _Review(NamedTuple):
    """A subscription whose tasks are asked for their floors.

    :ivar waits_for: indexes of the tasks that have not answered.
    :ivar best: the highest floor in the answers so far.
    """

    waits_for: list[int]
    best: float


class ReplicatedPlacement(PlacementStrategy):
    """Knows where the subscriptions of one distribution task live, and the plan that places them; see the module.

    :param distributor: the distributor at the start, version 0.
    :param make: makes a distributor from a plan; raises IllegalArgumentException for an unusable one.
    :param tasks: ids of the subscription tasks, by index.
    :param collector: collector of the bolt.
    :param context: context of the bolt, for metrics.
    :param window: extent of the window, in positions.
    """

    def __init__(
        self, distributor: Distributor, make: Callable[[Mapping[str, Any]], Distributor], tasks: list[int], collector: Any, context: Any, window: int
    ) -> None:
        super().__init__(distributor, tasks, collector)
        self._make, self._index = make, {task: i for i, task in enumerate(tasks)}
        self._registry = Registry()
        self._old: Distributor | None = None  # its routes are kept while subscriptions move
        self._giving: frozenset[int] | None = None  # the tasks from which boolean subscriptions move; None: perhaps all
        self._version = self._old_version = self._newest = 0
        self._plans: list[tuple[int, Any]] = []  # to come
        self._to_survey: list[str] = []
        self._surveyed: set[str] = set()
        self._moving: dict[str, _Move] = {}
        self._earned = 0  # messages that have not been counted for a move yet
        self._done = True  # all have moved, and the subscription tasks know
        self._takeover: Takeover | None = None  # the present plan takes over step by step
        self._window, self._apart = window, 1  # the next review is this many windows after the one before
        self._review_at: int | None = None  # watermark
        self._to_review: list[str] = []
        self._reviewed: dict[str, _Review] = {}
        self._objects = False
        self._begun: dict[str, int] = {}  # boolean subscription -> when it became active; only with objects
        self._drop_at: int | None = None  # when the watermark has got there, the old routes are dropped
        self.watermark = -1
        self._high = -1  # the highest position sent
        self._counters = {
            name: context.register_counter(name)
            for name in ("reallocations", "shrunk", "plan_changes", "plans_refused", "unknown_unregistered", "unknown_updated")
        }
        context.register_gauge("registered", lambda: len(self._registry))
        context.register_gauge("replicas", lambda: self._registry.replicas)
        context.register_gauge("moving", lambda: len(self._to_survey) + len(self._surveyed) + len(self._moving))
        context.register_gauge("plan_version", lambda: self._version)
        context.register_gauge("plan_changing", lambda: int(self.changing))
        context.register_gauge("placed_by_old_plan", lambda: 0 if self._takeover is None else len(self._takeover))

    # -- messages -----------------------------------------------------------------------------------------------------

    def routes(self, messages: MessageBatch) -> RowTasks | None:
        """Return which task indexes get which messages; during a plan change, the tasks of both plans."""
        self._record_positions(messages)
        routes = super().routes(messages)
        return routes if self._old is None else union_of(routes, self._old.message_tasks(messages), len(self._tasks))

    def _record_positions(self, messages: MessageBatch) -> None:
        if messages.n:
            self._high = max(self._high, int(messages.position.max()))
        if self._to_survey:
            self._earned = min(self._earned + messages.n, _PORTION * _MESSAGES_PER_MOVE)

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def has_room(self, name: str, limit: int) -> bool:
        """Tell whether fewer than ``limit`` subscriptions are registered, or this one is."""
        return len(self._registry) < limit or self._registry.get(name) is not None

    def register(self, name: str, registration: str, subscription: Subscription) -> None:
        """Place a subscription, and end the one of the same name. One that goes on from that has the same type, and its results do; it asks for nothing."""
        topk, old = isinstance(subscription, TopkSubscription), self._registry.get(name)
        updated = bool(subscription.update) and old is not None and old.topk == topk
        self._counters["unknown_updated"].inc(bool(subscription.update) and old is None)
        begun, subscription = self._begun.get(name, self.watermark) if updated else self.watermark, subscription.placed(updated)
        if old is not None:
            self._end(name, old, replaced=topk, updated=updated)
        if isinstance(subscription, BooleanSubscription) and self._objects:
            self._begun[name], subscription = begun, subscription._replace(begun=begun)
        # Before the first message no list can be full, and a placement for a threshold would have to grow at once.
        placed = self._place(name, subscription, self._first_threshold())
        self._remember(name, Entry(registration, topk, 1, tuple(placed.tasks)), subscription)
        self._send_registration(name, registration, "begin", Begin(topk, self.watermark, updated))
        placement = Placement(subscription, self._first_epoch(name, subscription, placed))
        for index in placed.tasks:
            self._send(index, name, registration, placement)
        self._advance_until_blocked()

    def _first_epoch(self, name: str, subscription: Subscription, placed: Placed) -> Epoch:
        """Return the first epoch. During a takeover whose plan is not in force, a boolean subscription begins to move to the tasks of the new plan."""
        if self._takeover is None or self._takeover.in_force:
            return self._epoch(1, placed.tasks, placed.guard)
        if isinstance(subscription, TopkSubscription):
            self._takeover.add(name)
            return self._epoch(1, placed.tasks, placed.guard)
        target = self._distributor.place(name, subscription).tasks
        self._moving[name] = _Move(target, -np.inf, target)
        return self._epoch(1, placed.tasks, placed.guard, since=self._version, moving=True, report_ready=target)

    def _first_threshold(self) -> float | None:
        """Return the threshold by which a new subscription is placed."""
        return -np.inf if self.watermark < 0 else None

    def _remember(self, name: str, entry: Entry, subscription: Subscription | None) -> None:
        """Record where a subscription lives. ``subscription`` is None if it lives there already."""
        self._registry.set(name, *entry)

    def _forget(self, name: str) -> None:
        """Remove a subscription from the registry."""
        self._registry.remove(name)

    def _place(self, name: str, subscription: Subscription, floor: float | None) -> Placed:
        """Choose tasks for a subscription; during a plan change those of both plans, because other tasks may not send by the new one yet."""
        placed = self._place_by(self._distributor, name, subscription, floor)
        if self._old is None or self._in_force:
            return placed
        other = self._place_by(self._old, name, subscription, floor)
        return Placed(sorted({*placed.tasks, *other.tasks}), max(placed.guard, other.guard))

    @property
    def _in_force(self) -> bool:
        """Whether the present plan takes over, and is in force."""
        return self._takeover is not None and self._takeover.in_force

    def unregister(self, name: str, registration: str = "") -> None:
        """End a subscription; count an unknown one."""
        if (entry := self._registry.get(name)) is None:
            self._counters["unknown_unregistered"].inc()
        else:
            self._unregister(name, entry)

    def _unregister(self, name: str, entry: Entry) -> None:
        self._end(name, entry, replaced=False)
        self._forget(name)
        self._advance_until_blocked()

    def _end(self, name: str, entry: Entry, *, replaced: bool, updated: bool = False) -> None:
        for index in entry.tasks:
            self._send(index, name, entry.registration, End(self.watermark))
        self._send_registration(name, entry.registration, "end", Finish(entry.topk, self.watermark, [self._tasks[i] for i in entry.tasks], replaced, updated))
        self._surveyed.discard(name)
        for known in (self._moving, self._reviewed, self._begun):
            known.pop(name, None)
        if self._takeover is not None:
            self._takeover.end(name)

    def _send(self, index: int, name: str, registration: str, message: PlacementMessage) -> None:
        self._send_record([index], name, registration, message.encode())

    def _send_to_all(self, message: PlacementMessage) -> None:
        self._send_record(range(len(self._tasks)), "", "", message.encode())

    def _send_registration(self, name: str, registration: str, event: str, message: Begin | Finish) -> None:
        streams.Registrations(subscription=name, registration=registration, event=event, record=message._asdict()).emit(self._collector)

    def _epoch(
        self, number: int, tasks: Iterable[int], guard: float, *, plan: int | None = None, since: int | None = None, moving: bool = False, **lists: list[int]
    ) -> Epoch:
        """Return an epoch. By default it is placed by the present plan, and waits for the plan that is in force everywhere.

        :param lists: ``report_ready`` and ``evaluate``.
        """
        if since is None:
            since = self._version if self._old is None or self._in_force else self._old_version
        plan = self._version if plan is None else plan
        return Epoch(number, list(tasks), float(guard), plan, since, self.watermark, moving, lists.get("report_ready", []), lists.get("evaluate", []))

    def _begin_epoch(self, name: str, entry: Entry, tasks: Iterable[int], guard: float, subscription: Subscription | None, **options: Any) -> None:
        """Begin the next epoch of a subscription.

        :param subscription: None: no task is new, or another task sends it to those that are.
        """
        self._counters["reallocations"].inc()
        self._reviewed.pop(name, None)  # the answers would belong to an epoch that is over
        epoch = self._epoch(entry.epoch + 1, sorted(tasks), guard, **options)
        for index in sorted({*epoch.tasks, *entry.tasks}):
            self._send(index, name, entry.registration, epoch if index in entry.tasks or subscription is None else Placement(subscription, epoch))
        self._remember(name, entry._replace(epoch=epoch.number, tasks=tuple(epoch.tasks)), subscription)

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
        index, move = self._index[task], self._moving.get(name)
        if report.kind == READY:
            if move is not None:
                if self._takeover is not None:
                    self._takeover.in_force = True  # for this task, too: its watermark is not behind that of the task which reports
                self._finish_move(name, entry, move, index)
        elif report.kind == SURVEYED and name in self._reviewed:
            self._collect_review(name, entry, index, report)
        elif move is None or index in move.target:
            self._reconsider(name, entry, index, report)
        self._advance_until_blocked()

    def _finish_move(self, name: str, entry: Entry, move: _Move, index: int) -> None:
        """Record that a task of a move is ready; after the last one the subscription lives on the new tasks alone."""
        waits_for = [i for i in move.waits_for if i != index]
        if waits_for:
            self._moving[name] = move._replace(waits_for=waits_for)
        else:
            del self._moving[name]
            self._begin_epoch(name, entry, move.target, move.guard, None)

    def _reconsider(self, name: str, entry: Entry, index: int, report: ReplicaReport) -> None:
        """Place a subscription again, with the floor and the placement in a report."""
        move, reported, floor = self._moving.get(name), report.placement, report.floor
        if isinstance(reported, Located):
            self._move_located(name, entry, index, reported)
            return
        if report.kind == SHORT and move is None:
            self._grow(name, entry, index, floor, reported)
            return
        self._surveyed.discard(name)
        if reported.plan == self._version and move is None:
            return
        subscription = reported.subscription
        placed = self._place_by(self._distributor, name, subscription, floor)
        now, target, guard = set(entry.tasks), set(placed.tasks), placed.guard
        if move is not None:
            target |= set(move.target)
        elif target == now or (target < now and entry.topk and floor is None):
            self._keep_tasks(name, entry, index, guard, floor, reported)
            return
        elif target < now and entry.topk:
            self._begin_epoch(name, entry, target, guard, subscription, since=self._version, evaluate=[min(target)])
            return
        tasks = sorted(target)
        self._moving[name] = _Move(tasks, float(guard), tasks)
        self._begin_epoch(name, entry, now | target, guard, subscription, since=self._version, moving=True, report_ready=tasks)

    def _move_located(self, name: str, entry: Entry, index: int, located: Located) -> None:
        """Move a boolean subscription to the tasks that one of its present tasks, ``index``, has found by the plan; that task sends it to new ones."""
        self._surveyed.discard(name)
        now, target = set(entry.tasks), set(located.tasks)
        if located.plan == self._version or target == now:
            return
        self._moving[name] = _Move(sorted(target), -np.inf, sorted(target))
        self._begin_epoch(name, entry, now | target, -np.inf, None, since=self._version, moving=True, report_ready=sorted(target))
        if target - now:
            self._send(index, name, entry.registration, Send(sorted(target - now)))

    def _grow(self, name: str, entry: Entry, index: int, floor: float | None, reported: ReportedPlacement) -> None:
        """Add the tasks that a lower floor requires to those of a subscription."""
        placed = self._place(name, reported.subscription, floor)
        now, grown = set(entry.tasks), {*entry.tasks, *placed.tasks}
        if name in self._surveyed:  # the answer would belong to an epoch that is over
            self._surveyed.discard(name)
            self._to_survey.append(name)
        plan = self._version if self._old is None else reported.plan
        self._begin_epoch(name, entry, grown, placed.guard, reported.subscription, plan=plan, evaluate=[index] if grown == now else [])

    def _keep_tasks(self, name: str, entry: Entry, index: int, guard: float, floor: float | None, reported: ReportedPlacement) -> None:
        """Keep the tasks of a subscription under another plan. The guard must cover what either plan sends to other tasks."""
        both = max(guard, reported.guard)
        if floor is not None and both > -np.inf and not floor > both:
            self._begin_epoch(name, entry, entry.tasks, guard, reported.subscription, since=self._version, evaluate=[index])
        elif both > reported.guard:
            self._begin_epoch(name, entry, entry.tasks, both, reported.subscription)

    # -- reviews ------------------------------------------------------------------------------------------------------

    def advance(self, watermark: int) -> None:
        """Record the watermark, which placements carry, and begin a review if it is time for one."""
        self.watermark = watermark
        if self._drop_at is not None:
            self.drop_old_routes(self._version, self._drop_at)
        if self._review_at is None:
            self._review_at = watermark + self._window
        elif watermark >= self._review_at and self._old is None and not self._to_review:
            self._apart = min(2 * self._apart, _RAREST)
            self._review_at = watermark + self._apart * self._window
            self._to_review = self._registry.names()
        self._advance_until_blocked()

    def _collect_review(self, name: str, entry: Entry, index: int, report: ReplicaReport) -> None:
        """Record the answer of one task; after the last one place the subscription by the best floor, if that takes fewer tasks."""
        review = self._reviewed[name]
        waits_for = [i for i in review.waits_for if i != index]
        best = review.best if report.floor is None else max(review.best, report.floor)
        if waits_for:
            self._reviewed[name] = _Review(waits_for, best)
            return
        del self._reviewed[name]
        if self._old is not None or best == -np.inf:
            return
        subscription = report.placement.subscription
        placed = self._place_by(self._distributor, name, subscription, best)
        if set(placed.tasks) < set(entry.tasks):
            away = [i for i in entry.tasks if i not in placed.tasks]
            self._counters["shrunk"].inc()
            # No floor is above the guard inf, so no replica of the first epoch is ever ready. The second epoch begins as for a new subscription.
            self._begin_epoch(name, entry, away, np.inf, subscription)
            self._begin_epoch(name, entry._replace(epoch=entry.epoch + 1, tasks=tuple(away)), placed.tasks, placed.guard, subscription)

    # -- plans --------------------------------------------------------------------------------------------------------

    def enqueue_plan(self, version: int, plan: Any) -> None:
        """Change to a plan as soon as the previous change is over. A version that is not new is ignored."""
        if version > self._newest:
            self._newest = version
            self._plans.append((version, plan))
            self._begin_next_plan()
            self._advance_until_blocked()  # a takeover ends

    def _begin_next_plan(self) -> None:
        while self._old is None and self._plans:
            version, plan = self._plans.pop(0)
            try:
                plan, rest = read_takeover(plan)
                distributor = self._make(plan)
            except IllegalArgumentException as error:
                self._counters["plans_refused"].inc()
                self._collector.report_error(f"plan {version} is not used: {error}")
                continue
            self._counters["plan_changes"].inc()
            self._old, self._old_version = self._distributor, self._version
            self._distributor, self._version = distributor, version
            self._begin_moves()
            if rest is not None:
                self._takeover, self._to_survey = Takeover(self._to_survey, rest), []
            self._to_review, self._reviewed = [], {}  # all are placed again
            self._send_to_all(PlanMarker(version, self._high))
            if distributor.transfers:
                for index in range(len(self._tasks)) if self._giving is None else sorted(self._giving):
                    self._send(index, "", "", MovePlan(version, plan))
            self._advance_until_blocked()

    def _begin_moves(self) -> None:
        """Determine which subscriptions the present plan may move: those of tasks that give something away, and all top-k subscriptions."""
        self._giving = self._giving_tasks()
        self._to_survey, self._done, self._earned = self._registry.names(), False, 0
        if self._giving is not None:
            entries = ((name, self._registry.get(name)) for name in self._to_survey)
            self._to_survey = [name for name, entry in entries if entry is not None and (entry.topk or not self._giving.isdisjoint(entry.tasks))]

    def _giving_tasks(self) -> frozenset[int] | None:
        found = self._old.giving_tasks(self._distributor) if self._old is not None and self._distributor.transfers else None
        return None if found is None else frozenset(found)

    def _task_to_survey(self, entry: Entry) -> int:
        """Return the index of a task of a subscription that can tell where it lives by the present plan."""
        return next((index for index in entry.tasks if self._giving is None or index in self._giving), entry.tasks[0])

    def _advance_until_blocked(self) -> None:
        """Review and survey as many more subscriptions as the limits allow; tell the subscription tasks when all have moved."""
        for _ in range(min(_LOOKED_AT, len(self._to_review)) if self._old is None else 0):
            if len(self._reviewed) >= _PORTION:
                break
            name = self._to_review.pop()
            if self._registry.may_shrink(name):
                entry = self._registry.get(name)
                self._reviewed[name] = _Review(list(entry.tasks), -np.inf)
                for index in entry.tasks:
                    self._send(index, name, entry.registration, Survey())
        if self._done:
            return
        if self._takeover is not None:
            if not self._takeover.over and not self._plans:
                return
            self._to_survey, self._takeover = self._takeover.names(), None
        while self._to_survey and self._may_begin():
            name = self._to_survey.pop()
            entry = self._registry.get(name)
            if entry is not None and name not in self._moving:
                self._surveyed.add(name)
                self._send(self._task_to_survey(entry), name, entry.registration, Survey())
        if not self._to_survey and not self._surveyed and not self._moving:
            self._done = True
            self._send_to_all(AllMoved(self._version, self.watermark))

    def _may_begin(self) -> bool:
        """Tell whether one more subscription may be surveyed now, and count the messages that it is begun for."""
        under_way = len(self._surveyed) + len(self._moving)
        if under_way >= _PORTION or (under_way >= _ALWAYS and self._earned < _MESSAGES_PER_MOVE):
            return False
        self._earned = max(0, self._earned - _MESSAGES_PER_MOVE)
        return True

    def drop_old_routes(self, version: int, at: int) -> None:
        """Drop the routes of the plan before ``version``, because no distribution task has subscriptions left that were placed by it.

        :param at: the last position for which a subscription matched messages on tasks of the older plan. Up to there messages may still come.
        """
        if self._old is None or not self._done or version != self._version:
            return
        if self.watermark < at:
            self._drop_at = at
            return
        self._old, self._drop_at = None, None
        self._begin_next_plan()

    def begin_objects(self) -> None:
        """Tell tasks when boolean subscriptions became active: of an update of an object they report what has changed since."""
        self._objects = True

    # -- what load balancing needs ------------------------------------------------------------------------------------

    @property
    def distributor(self) -> Distributor:
        """The distributor by which subscriptions are placed."""
        return self._distributor

    @property
    def version(self) -> int:
        """The version of the plan by which subscriptions are placed."""
        return self._version

    @property
    def newest(self) -> int:
        """The highest version of a plan that has come."""
        return self._newest

    @property
    def changing(self) -> bool:
        """Whether subscriptions may still live by an older plan, or another plan waits."""
        return self._old is not None or bool(self._plans)

    @property
    def taking_over(self) -> bool:
        """Whether the present plan takes over step by step, and subscriptions of the older one are left."""
        return self._takeover is not None

    @property
    def registered(self) -> int:
        """The number of subscriptions of this distribution task."""
        return len(self._registry)

    def has(self, name: str) -> bool:
        """Tell whether this distribution task has placed a subscription."""
        return self._registry.get(name) is not None

    def send_to(self, index: int, message: PartitionMap | SizeShift) -> None:
        """Send a message that is not about a subscription to a subscription task."""
        self._send(index, "", "", message)

    def report_error(self, problem: str) -> None:
        """Report an error of load balancing."""
        self._collector.report_error(problem)

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return {
            "registry": self._registry.snapshot(),
            "plan": self._distributor.plan(),
            "old": None if self._old is None else self._old.plan(),
            "version": self._version,
            "old_version": self._old_version,
            "newest": self._newest,
            "plans": [list(p) for p in self._plans],
            "to_survey": self._to_survey,
            "surveyed": sorted(self._surveyed),
            "moving": [[name, *move] for name, move in self._moving.items()],
            "earned": self._earned,
            "done": self._done,
            "drop_at": self._drop_at,
            "takeover": None if self._takeover is None else self._takeover.snapshot(),
            "watermark": self.watermark,
            "high": self._high,
            "apart": self._apart,
            "review_at": self._review_at,
            "to_review": self._to_review,
            "reviewed": [[name, *review] for name, review in self._reviewed.items()],
            "begun": list(self._begun.items()),
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._registry.restore(state["registry"])
        self._distributor = self._make(state["plan"])
        self._old = None if state["old"] is None else self._make(state["old"])
        self._giving = self._giving_tasks()
        self._version, self._old_version, self._newest, self._done = state["version"], state["old_version"], state["newest"], state["done"]
        self._plans = [tuple(p) for p in state["plans"]]
        self._to_survey, self._surveyed = list(state["to_survey"]), set(state["surveyed"])
        self._moving = {name: _Move(*move) for name, *move in state["moving"]}
        self.watermark, self._high = state["watermark"], state["high"]
        self._drop_at, self._earned, takeover = state.get("drop_at"), state.get("earned", 0), state.get("takeover")  # absent from snapshots of earlier versions
        self._takeover = None if takeover is None else Takeover.restored(takeover)
        self._apart, self._review_at = state.get("apart", 1), state.get("review_at")  # absent from snapshots of earlier versions
        self._reviewed = {name: _Review(*review) for name, *review in state.get("reviewed", ())}
        self._to_review, self._begun = list(state.get("to_review", ())), dict(state.get("begun", ()))


def union_of(one: RowTasks | None, other: RowTasks | None, tasks: int) -> RowTasks | None:
    """Return the union of two routes, each pair once; rows do not decrease."""
    if one is None or other is None:
        return None
    keys = np.unique(np.concatenate([np.asarray(r.rows, np.int64) * tasks + np.asarray(r.tasks, np.int64) for r in (one, other)]))
    return RowTasks(keys // tasks, (keys % tasks).astype(np.int32))
