"""Places subscriptions that may live on several tasks, and moves them: what a distribution task does for those it owns.

A subscription belongs to one distribution task (streams ``subscriptions`` and ``shortages`` are grouped by its id). Every
decision about it is a new *epoch* of its placement, told to the tasks that have it and to those that shall. Channels keep
order, so the tasks named by the registry are those that have it, or will before anything else that is sent to them.

**Growing.** A replica whose floor is not above its guard is short (see :mod:`dskype.bolts.replicas`): it sends back its
whole placement with the floor, and the distributor places anew, with tasks that are a superset.

**Shrinking.** A subscription that was placed while little was known of its floor has more tasks than it needs later. One, 2, 4, ... and then
every 64 windows after the first watermark all top-k subscriptions on several tasks are *reviewed*, some hundreds at a time: their tasks send
placement and floor back, and if the distributor needs fewer tasks for the best of these floors, the subscription begins anew on those: the
first epoch, with a guard that nobody's floor is above, takes it from them, the second one gives it to them alone. They look the window up,
once, as those of a new subscription do; no result is published meanwhile.

**A change of plan**, from version u to v:

1. The plan arrives (stream ``plans``, at all distribution tasks). From here on messages go to the tasks that either plan
   names. Each subscription task gets a *marker*: up to which position this distribution task has sent messages by u alone.
   New subscriptions, and those that grow, get the tasks of both plans.
2. Subscriptions placed by u are surveyed, some hundreds at a time: one of their tasks sends the placement back, and it is
   placed by v. Where the tasks differ it lives on both (a *moving* epoch, in which the old epoch stays good) until the new
   tasks have reported ready; then it gets an epoch of the new tasks alone.
3. When all its own have moved, a distribution task says so to all subscription tasks (``done``). One of these that has
   heard it from all distribution tasks tells them (stream ``switched``), and the routes of u are dropped.

What a subscription task asks for by plan v it asks at a watermark that covers all markers of v: from there on it gets all
that v sends it. So what a distribution task has sent by u alone is seen by that evaluation. Where no new task brings such
an evaluation, either the guard of the old epoch stays (what was sent by u is covered as before), or the placement says
which task has to *evaluate* anew.

**Reports** carry registration and epoch; those that do not name the newest ones are passed over. So it does not matter in
what order reports, unregistrations and other epochs meet, and a restored task does the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dskype.bolts.registry import Entry, Registry
from dskype.distribution import Distributor, Placed
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.groupings import RowTasks

__all__ = ["Placer", "union_of"]

_PORTION = 512
"""So many subscriptions are surveyed, reviewed or moving at the same time."""
_LOOKED_AT = 16 * _PORTION
"""So many subscriptions are looked at, at once, in search of those that are worth a review."""
_RAREST = 64
"""Reviews become rarer until they are so many windows apart."""


class Placer:
    """The subscriptions of one distribution task, and the plan by which they are placed; see the module.

    :param distributor: the one at the start, version 0.
    :param make: makes a distributor from a plan; raises IllegalArgumentException for one that cannot be used.
    :param tasks: ids of the subscription bolt's tasks, by index.
    :param collector: the bolt's.
    :param context: for metrics.
    :param window: how long the window is, in positions.
    """

    def __init__(
        self, distributor: Distributor, make: Callable[[Mapping[str, Any]], Distributor], tasks: list[int], collector: Any, context: Any, window: int
    ) -> None:
        self._distributor, self._make, self._collector = distributor, make, collector
        self._tasks, self._index = list(tasks), {task: i for i, task in enumerate(tasks)}
        self._registry = Registry()
        self._old: Distributor | None = None  # its routes are kept while subscriptions move
        self._version = self._old_version = self._newest = 0
        self._plans: list[tuple[int, Any]] = []  # to come
        self._to_survey: list[str] = []
        self._surveyed: set[str] = set()
        self._moving: dict[str, list[Any]] = {}  # subscription -> [target, guard, tasks that are not ready]
        self._done = True  # and said so
        self._window, self._apart = window, 1  # the next review is so many windows after the one before
        self._review_at: int | None = None  # watermark
        self._to_review: list[str] = []
        self._reviewed: dict[str, list[Any]] = {}  # subscription -> [tasks that have not answered, the best floor of the others]
        self.watermark = -1
        self._high = -1  # the highest position sent
        self._counters = {name: context.register_counter(name) for name in ("reallocations", "shrunk", "plan_changes", "plans_refused", "unknown_unregistered")}
        context.register_gauge("registered", lambda: len(self._registry))
        context.register_gauge("replicas", lambda: self._registry.replicas)
        context.register_gauge("moving", lambda: len(self._to_survey) + len(self._surveyed) + len(self._moving))
        context.register_gauge("plan_version", lambda: self._version)

    # -- messages -----------------------------------------------------------------------------------------------------

    def routes(self, messages: MessageBatch) -> RowTasks | None:
        """Return which task indexes get which messages; None: all of them get all."""
        if messages.n:
            self._high = max(self._high, int(messages.position.max()))
        routes = self._distributor.message_tasks(messages)
        return routes if self._old is None else union_of(routes, self._old.message_tasks(messages), len(self._tasks))

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def has_room(self, subscription: str, most: int) -> bool:
        """Tell whether a subscription can be registered with no more than ``most`` in all; one that is known always can."""
        return len(self._registry) < most or self._registry.get(subscription) is not None

    def register(self, subscription: str, registration: str, placement: dict[str, Any]) -> None:
        """Place a subscription; one of the same id ends."""
        topk = placement["type"] == "topk"
        old = self._registry.get(subscription)
        if old is not None:
            self._end(subscription, old, replaced=topk)
        # Before any message nobody can have k of them: what is placed by a threshold would have to grow at once.
        placed = self._placed(subscription, placement, -np.inf if self.watermark < 0 else None)
        self._registry.set(subscription, registration, topk, 1, placed.tasks)
        self._collector.emit((subscription, registration, "begin", {"topk": topk, "at": self.watermark}), streams.REGISTRATIONS)
        whole = placement | self._epoch_of(1, placed.tasks, placed.guard)
        for index in placed.tasks:
            self._send(index, subscription, registration, whole)
        self._go_on()

    def _placed(self, subscription: str, placement: Mapping[str, Any], theta: float | None) -> Placed:
        """Place a subscription; while the plan changes where either plan puts it: others may still send by the old one alone."""
        placed = self._distributor.place(subscription, placement, theta)
        if self._old is None:
            return placed
        other = self._old.place(subscription, placement, theta)
        return Placed(sorted({*placed.tasks, *other.tasks}), max(placed.guard, other.guard))

    def unregister(self, subscription: str) -> None:
        """End a subscription; an unknown one is counted."""
        entry = self._registry.get(subscription)
        if entry is None:
            self._counters["unknown_unregistered"].inc()
            return
        self._end(subscription, entry, replaced=False)
        self._registry.remove(subscription)
        self._go_on()

    def _end(self, subscription: str, entry: Entry, *, replaced: bool) -> None:
        for index in entry.tasks:
            self._send(index, subscription, entry.registration, {"type": "end", "at": self.watermark})
        self._collector.emit(
            (
                subscription,
                entry.registration,
                "end",
                {"topk": entry.topk, "at": self.watermark, "tasks": [self._tasks[i] for i in entry.tasks], "replaced": replaced},
            ),
            streams.REGISTRATIONS,
        )
        self._moving.pop(subscription, None)
        self._surveyed.discard(subscription)
        self._reviewed.pop(subscription, None)

    def _send(self, index: int, subscription: str, registration: str, placement: Mapping[str, Any]) -> None:
        self._collector.emit_direct(self._tasks[index], (subscription, registration, placement), streams.PLACEMENTS)

    def _epoch_of(
        self,
        epoch: int,
        tasks: Any,
        guard: float,
        *,
        plan: int | None = None,
        since: int | None = None,
        moving: bool = False,
        tell: Any = (),
        evaluate: Any = (),
    ) -> dict[str, Any]:
        """Return what a placement says of its epoch.

        ``plan``: by which it was placed; ``since``: the plan that has to be in force before a new replica, or one that is to
        ``evaluate``, may ask for the window; ``tell``: tasks that report when they are ready.
        """
        if since is None:
            since = self._version if self._old is None else self._old_version
        return {
            "epoch": epoch,
            "tasks": list(tasks),
            "guard": float(guard),
            "plan": self._version if plan is None else plan,
            "since": since,
            "at": self.watermark,
            "moving": moving,
            "tell": list(tell),
            "evaluate": list(evaluate),
        }

    def _place_anew(self, subscription: str, entry: Entry, tasks: Any, guard: float, placement: Mapping[str, Any], **how: Any) -> None:
        """Begin the next epoch of a subscription."""
        self._counters["reallocations"].inc()
        self._reviewed.pop(subscription, None)  # the answers will be of an epoch that is over
        tasks, epoch = sorted(tasks), entry.epoch + 1
        news = self._epoch_of(epoch, tasks, guard, **how)
        whole = {key: value for key, value in placement.items() if key not in news} | news
        for index in sorted({*tasks, *entry.tasks}):
            self._send(index, subscription, entry.registration, {"type": "epoch", **news} if index in entry.tasks else whole)
        self._registry.set(subscription, entry.registration, entry.topk, epoch, tasks)

    # -- reports ------------------------------------------------------------------------------------------------------

    def report(self, subscription: str, registration: str, epoch: int, kind: str, theta: float | None, placement: Mapping[str, Any] | None, task: int) -> None:
        """Take a report of a task: ``short``, ``survey`` (with placement and floor; also the answers of a review), ``ready`` or ``expired``."""
        entry = self._registry.get(subscription)
        if entry is None or entry.registration != registration:
            return
        if kind == "expired":
            self.unregister(subscription)
            return
        if entry.epoch != epoch:
            return
        index, moving = self._index[task], self._moving.get(subscription)
        if kind == "ready":
            if moving is not None:
                moving[2] = [i for i in moving[2] if i != index]
                if not moving[2]:
                    del self._moving[subscription]
                    self._place_anew(subscription, entry, moving[0], moving[1], {})
        elif kind == "survey" and subscription in self._reviewed:
            self._review(subscription, entry, index, theta, placement)
        elif moving is None or index in moving[0]:
            self._reconsider(subscription, entry, index, kind, theta, placement)
        self._go_on()

    def _reconsider(self, subscription: str, entry: Entry, index: int, kind: str, theta: float | None, placement: Mapping[str, Any]) -> None:
        """Place a subscription by what is known now."""
        moving = self._moving.get(subscription)
        if kind == "short" and moving is None:
            self._grow(subscription, entry, index, theta, placement)
            return
        self._surveyed.discard(subscription)
        if placement["plan"] == self._version and moving is None:
            return
        placed = self._distributor.place(subscription, placement, theta)
        now, target, guard = set(entry.tasks), set(placed.tasks), placed.guard
        if moving is not None:
            target |= set(moving[0])
        elif target == now or (target < now and entry.topk and theta is None):
            self._relabel(subscription, entry, index, guard, theta, placement)
            return
        elif target < now and entry.topk:
            self._place_anew(subscription, entry, target, guard, placement, since=self._version, evaluate=[min(target)])
            return
        self._moving[subscription] = [sorted(target), float(guard), sorted(target)]
        self._place_anew(subscription, entry, now | target, guard, placement, since=self._version, moving=True, tell=sorted(target))

    def _grow(self, subscription: str, entry: Entry, index: int, theta: float | None, placement: Mapping[str, Any]) -> None:
        """Give a subscription the tasks that a lower floor asks for; it loses none."""
        placed = self._placed(subscription, placement, theta)
        now = set(entry.tasks)
        grown = now | set(placed.tasks)
        if subscription in self._surveyed:  # the answer will be of an epoch that is over
            self._surveyed.discard(subscription)
            self._to_survey.append(subscription)
        self._place_anew(
            subscription,
            entry,
            grown,
            placed.guard,
            placement,
            plan=self._version if self._old is None else placement["plan"],
            evaluate=[index] if grown == now else (),
        )

    def _relabel(self, subscription: str, entry: Entry, index: int, guard: float, theta: float | None, placement: Mapping[str, Any]) -> None:
        """Keep the tasks of a subscription under another plan: the guard must cover what either of them sends elsewhere."""
        both = max(guard, placement["guard"])
        if theta is not None and both > -np.inf and not theta > both:
            self._place_anew(subscription, entry, entry.tasks, guard, placement, since=self._version, evaluate=[index])
        elif both > placement["guard"]:
            self._place_anew(subscription, entry, entry.tasks, both, placement)

    # -- reviews ------------------------------------------------------------------------------------------------------

    def advance(self, watermark: int) -> None:
        """Note the watermark: placements say as of when they are in force. Begin a review if it is time for one."""
        self.watermark = watermark
        if self._review_at is None:
            self._review_at = watermark + self._window
        elif watermark >= self._review_at and self._old is None and not self._to_review:
            self._apart = min(2 * self._apart, _RAREST)
            self._review_at = watermark + self._apart * self._window
            self._to_review = self._registry.names()
        self._go_on()

    def _review(self, subscription: str, entry: Entry, index: int, theta: float | None, placement: Mapping[str, Any]) -> None:
        """Take the answer of one task; when all have answered place the subscription by the best floor, if that takes fewer tasks."""
        waits = self._reviewed[subscription]
        waits[0] = [i for i in waits[0] if i != index]
        if theta is not None:
            waits[1] = max(waits[1], theta)
        if waits[0]:
            return
        del self._reviewed[subscription]
        if self._old is not None or waits[1] == -np.inf:
            return
        placed = self._distributor.place(subscription, placement, waits[1])
        if set(placed.tasks) < set(entry.tasks):
            away = [i for i in entry.tasks if i not in placed.tasks]
            self._counters["shrunk"].inc()
            self._place_anew(subscription, entry, away, np.inf, placement)
            self._place_anew(subscription, entry._replace(epoch=entry.epoch + 1, tasks=tuple(away)), placed.tasks, placed.guard, placement)

    # -- plans --------------------------------------------------------------------------------------------------------

    def take_plan(self, version: int, plan: Any) -> None:
        """Take a plan; it begins when the change before it is over. A version that is not new is passed over."""
        if version > self._newest:
            self._newest = version
            self._plans.append((version, plan))
            self._next_plan()

    def _next_plan(self) -> None:
        while self._old is None and self._plans:
            version, plan = self._plans.pop(0)
            try:
                distributor = self._make(plan)
            except IllegalArgumentException as error:
                self._counters["plans_refused"].inc()
                self._collector.report_error(f"plan {version} is not used: {error}")
                continue
            self._counters["plan_changes"].inc()
            self._old, self._old_version = self._distributor, self._version
            self._distributor, self._version = distributor, version
            self._to_survey, self._done = self._registry.names(), False
            self._to_review, self._reviewed = [], {}  # all are placed anew
            self._tell_all({"type": "plan", "version": version, "high": self._high})
            self._go_on()

    def _tell_all(self, what: dict[str, Any]) -> None:
        for index in range(len(self._tasks)):
            self._send(index, "", "", what)

    def _go_on(self) -> None:
        """Survey and review the next ones; say when all have moved."""
        for _ in range(min(_LOOKED_AT, len(self._to_review)) if self._old is None else 0):
            if len(self._reviewed) >= _PORTION:
                break
            subscription = self._to_review.pop()
            if self._registry.may_shrink(subscription):
                entry = self._registry.get(subscription)
                self._reviewed[subscription] = [list(entry.tasks), -np.inf]
                for index in entry.tasks:
                    self._send(index, subscription, entry.registration, {"type": "survey"})
        if self._done:
            return
        while self._to_survey and len(self._surveyed) + len(self._moving) < _PORTION:
            subscription = self._to_survey.pop()
            entry = self._registry.get(subscription)
            if entry is not None and subscription not in self._moving:
                self._surveyed.add(subscription)
                self._send(entry.tasks[0], subscription, entry.registration, {"type": "survey"})
        if not self._to_survey and not self._surveyed and not self._moving:
            self._done = True
            self._tell_all({"type": "done", "version": self._version})

    def switched(self, version: int) -> None:
        """Drop the old routes: no distribution task has anything left that was placed by them."""
        if self._old is not None and self._done and version == self._version:
            self._old = None
            self._next_plan()

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
            "moving": [[name, *what] for name, what in self._moving.items()],
            "done": self._done,
            "watermark": self.watermark,
            "high": self._high,
            "apart": self._apart,
            "review_at": self._review_at,
            "to_review": self._to_review,
            "reviewed": [[name, *what] for name, what in self._reviewed.items()],
        }

    def restore(self, state: Any) -> None:
        """Take it over."""
        self._registry.restore(state["registry"])
        self._distributor = self._make(state["plan"])
        self._old = None if state["old"] is None else self._make(state["old"])
        self._version, self._old_version, self._newest, self._done = state["version"], state["old_version"], state["newest"], state["done"]
        self._plans = [tuple(p) for p in state["plans"]]
        self._to_survey, self._surveyed = list(state["to_survey"]), set(state["surveyed"])
        self._moving = {name: list(what) for name, *what in state["moving"]}
        self.watermark, self._high = state["watermark"], state["high"]
        self._apart, self._review_at = state.get("apart", 1), state.get("review_at")  # absent from snapshots of earlier versions
        self._to_review = list(state.get("to_review", ()))
        self._reviewed = {name: [list(waits), best] for name, waits, best in state.get("reviewed", ())}


def union_of(one: RowTasks | None, other: RowTasks | None, tasks: int) -> RowTasks | None:
    """Return the routes of both, each pair once; rows do not decrease."""
    if one is None or other is None:
        return None
    keys = np.unique(np.concatenate([np.asarray(r.rows, np.int64) * tasks + np.asarray(r.tasks, np.int64) for r in (one, other)]))
    return RowTasks(keys // tasks, (keys % tasks).astype(np.int32))
