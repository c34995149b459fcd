"""The plans of a distribution task: the one by which it places, the one before it, and those to come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dskype.bolts.placement.registry import Entry
from dskype.distribution import Distributor, Placed
from dskype.distribution.base import read_takeover
from dskype.distribution.subscriptions import Subscription
from dskype.spouts.columns import distinct
from dskype.topology.groupings import RowTasks

__all__ = ["Plans", "Takeover", "union_of"]


class Takeover:
    """The subscriptions of one distribution task that the older plan places, while a plan takes over step by step (PS2Stream, section V-B).

    Such a plan has the key ``takeover``, and moves nobody at first. The subscriptions that were there before stay where they are. When few of them are left, they move as with any other plan.

    A plan is *in force* when all distribution tasks send by it, and the watermark has passed the messages that they sent before. Until then a new boolean subscription begins on the tasks of both
    plans, and reports when it receives everything on the new ones. The first such report says that the plan is in force.

    :param names: of these subscriptions.
    :param rest: the share of them that is few enough to be moved, 0 to 1.
    """

    def __init__(self, names: Iterable[str], rest: float) -> None:
        self._older = dict.fromkeys(names)  # a dict keeps their order, so that a restored task does the same
        self._newer: dict[str, None] = {}  # placed by both plans; how many there are says nothing about the older ones
        self._few = int(rest * len(self._older))
        self.in_force = False

    def __len__(self) -> int:
        """Return how many subscriptions are left."""
        return len(self._older) + len(self._newer)

    @property
    def over(self) -> bool:
        """Whether so few of the older subscriptions are left that all should move."""
        return len(self._older) <= self._few

    def names(self) -> list[str]:
        """Return the subscriptions that are left, the oldest first."""
        return [*self._older, *self._newer]

    def add(self, name: str) -> None:
        """Record a new subscription that both plans place."""
        self._newer[name] = None

    def end(self, name: str) -> None:
        """Record that a subscription has ended."""
        self._older.pop(name, None)
        self._newer.pop(name, None)

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [list(self._older), self._few, self.in_force, list(self._newer)]

    @classmethod
    def restored(cls, state: Any) -> Takeover:
        """Return the takeover of a snapshot."""
        names, few, in_force, *newer = state
        found = cls(names, 0)
        found._few, found.in_force = few, in_force
        found._newer = dict.fromkeys(newer[0] if newer else ())  # up to version 0.2.0 they were among the older ones
        return found


class Plans:
    """The plans of one distribution task, and what follows from them for messages and new subscriptions.

    ::

                     a plan comes                                 all have moved
        settled -----------------------------------> changing -----------------------> settled
           |                                            ^
           |  one that takes over                       |  few older subscriptions are left, or another plan comes
           +-----------------------> taking over -------+
                                          |             |
                                          +-> in force -+

    Messages follow one plan while settled, otherwise both. New subscriptions follow one plan while settled or in force, otherwise both, because other
    tasks may not send by the new one yet.

    :param distributor: the distributor at the start, version 0.
    :param make: makes a distributor from a plan; raises IllegalArgumentException for an unusable one.
    :param lasting: whether floors of replicas, apart from evaluations, only rise. With a half-life they fall all the time, and no guard would hold for long.
    :ivar present: the distributor by which subscriptions are placed; ``version``: of its plan.
    :ivar old: the one before it, while subscriptions move; ``old_version``: of its plan.
    :ivar takeover: None: the present plan does not take over step by step.
    :ivar newest: the highest version that has come.
    :ivar coming: (version, plan) of plans that wait for the end of a change.
    :ivar giving: indexes of the tasks from which boolean subscriptions move; None: perhaps all.
    """

    def __init__(self, distributor: Distributor, make: Callable[[Mapping[str, Any]], Distributor], lasting: bool = True) -> None:
        self.present, self._make, self._lasting = distributor, make, lasting
        self.old: Distributor | None = None
        self.takeover: Takeover | None = None
        self.version = self.old_version = self.newest = 0
        self.coming: list[tuple[int, Any]] = []
        self.giving: frozenset[int] | None = None

    @property
    def changing(self) -> bool:
        """Whether subscriptions may still live by an older plan, or another plan waits."""
        return self.old is not None or bool(self.coming)

    @property
    def _alone(self) -> bool:
        """Whether new subscriptions are placed by the present plan alone."""
        return self.old is None or (self.takeover is not None and self.takeover.in_force)

    @property
    def since(self) -> int:
        """The version of the newest plan that is in force everywhere."""
        return self.version if self._alone else self.old_version

    def check(self, plan: Mapping[str, Any]) -> Distributor:
        """Return the distributor of a plan. As long as somebody keeps it, :meth:`change` need not make it again.

        :raises IllegalArgumentException: the plan is unusable.
        """
        return self._make(read_takeover(plan)[0])

    def change(self, version: int, plan: Mapping[str, Any]) -> None:
        """Place by another plan from now on, and keep the routes of the one before it.

        :raises IllegalArgumentException: the plan is unusable; nothing has changed.
        """
        distributor = self._make(plan)
        self.old, self.old_version, self.present, self.version = self.present, self.version, distributor, version
        self._find_giving()

    def _find_giving(self) -> None:
        found = self.old.giving_tasks(self.present) if self.old is not None and self.present.transfers else None
        self.giving = None if found is None else frozenset(found)

    # -- messages -----------------------------------------------------------------------------------------------------

    def routes(self, route: Callable[[Distributor], RowTasks | None]) -> RowTasks | None:
        """Return what ``route`` finds by the present plan, and by the older one while there is one."""
        found = route(self.present)
        return found if self.old is None or found is None else union_of(found, route(self.old), self.present.tasks)

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def place(self, name: str, subscription: Subscription, floor: float | None) -> Placed:
        """Choose tasks for a subscription by the plans that new subscriptions follow."""
        placed = self.place_by_present(name, subscription, floor)
        if self.old is None or self._alone:
            return placed
        other = self._place(self.old, name, subscription, floor)
        return Placed(sorted({*placed.tasks, *other.tasks}), max(placed.guard, other.guard))

    def place_by_present(self, name: str, subscription: Subscription, floor: float | None) -> Placed:
        """Choose tasks for a subscription by the present plan."""
        return self._place(self.present, name, subscription, floor)

    def _place(self, distributor: Distributor, name: str, subscription: Subscription, floor: float | None) -> Placed:
        """Choose tasks by one plan; without lasting floors, all to which a message may go that has one of its words."""
        return distributor.place(name, subscription, floor if self._lasting else -np.inf)

    def task_to_survey(self, entry: Entry) -> int:
        """Return the index of a task of a subscription that can tell where it lives by the present plan."""
        return next((index for index in entry.tasks if self.giving is None or index in self.giving), entry.tasks[0])

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values, without the takeover."""
        return {
            "plan": self.present.plan(),
            "old": None if self.old is None else self.old.plan(),
            "version": self.version,
            "old_version": self.old_version,
            "newest": self.newest,
            "plans": [list(p) for p in self.coming],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot of the placement."""
        self.present = self._make(state["plan"])
        self.old = None if state["old"] is None else self._make(state["old"])
        self._find_giving()
        self.version, self.old_version, self.newest = state["version"], state["old_version"], state["newest"]
        self.coming = [tuple(p) for p in state["plans"]]
        takeover = state.get("takeover")  # absent from snapshots of earlier versions
        self.takeover = None if takeover is None else Takeover.restored(takeover)


def union_of(one: RowTasks | None, other: RowTasks | None, tasks: int) -> RowTasks | None:
    """Return the union of two routes, each pair once; rows do not decrease."""
    if one is None or other is None:
        return None
    keys = distinct(*(np.asarray(r.rows, np.int64) * tasks + np.asarray(r.tasks, np.int64) for r in (one, other)))
    return RowTasks(keys // tasks, (keys % tasks).astype(np.int32))
