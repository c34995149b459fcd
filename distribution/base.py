"""The contract of distributors: which tasks hold a subscription, and which tasks need a message."""

from __future__ import annotations

import difflib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dskype.distribution.plans import Leaf
from dskype.distribution.routing.interest import Interest
from dskype.distribution.subscriptions import BooleanSubscription, Subscription, TopkSubscription
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.groupings import RowTasks

__all__ = [
    "PLAN_FORMAT",
    "TAKEOVER",
    "Distributor",
    "HasPartitions",
    "Placed",
    "Sample",
    "array_bytes",
    "check_flag",
    "check_plan",
    "default_hashes",
    "read_takeover",
    "refuse_options",
]

PLAN_FORMAT = 1
"""The value of ``v`` in a plan."""

TAKEOVER = "takeover"
"""Key of a plan that takes over step by step (:class:`~dskype.bolts.placement.plans.Takeover`): the share of the older subscriptions, 0 to 1, that is few enough to be moved."""


def default_hashes(n: int) -> np.ndarray:
    """Return ``n`` CRC-32s like those of ids."""
    return np.array([zlib.crc32(b"%d" % i) for i in range(n)], np.int64)


class Placed(NamedTuple):
    """Where a subscription lives.

    :ivar tasks: indexes of its tasks, rising; at least one.
    :ivar guard: no message that goes to none of these tasks has a score above it.
    """

    tasks: list[int]
    guard: float = -np.inf


class Sample(NamedTuple):
    """What plans are learned from: a sample of the messages and of the subscriptions.

    :ivar messages: a sample of the stream; ideally as many as several windows hold.
    :ivar k: int64[n], how many messages each subscription wants.
    :ivar alpha: float64[n], weight of the distance; ``lat``, ``lon``: float64[n], degrees.
    :ivar offsets: int64[n + 1]; the keywords of subscription *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :ivar terms: int64[], term ids, rising within a subscription, so the rarest first.
    :ivar weights: float64[], their weights, of unit norm per subscription.
    :ivar thresholds: float64[n], the score of the k-th best message of a window; -inf if fewer than k match.
    :ivar filled: float64[n], from 0 to 1: how full the messages of a window make the list.
    :ivar boxes: float64[n, 4], west, south, east and north of the boolean subscriptions among them, NaN for the others; None: there are none. A boolean
        subscription has the terms of its trigger, and lies at the centre of its rectangle.
    :ivar scale_m: float64[n], of distances in metres; 0: they are in degrees. None: all are.
    """

    messages: MessageBatch
    k: np.ndarray
    alpha: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray
    thresholds: np.ndarray
    filled: np.ndarray
    boxes: np.ndarray | None = None
    scale_m: np.ndarray | None = None

    @property
    def n(self) -> int:
        """The number of subscriptions."""
        return len(self.k)

    def rectangles(self) -> np.ndarray:
        """Return ``boxes``, also if there are none, float64[n, 4]."""
        return np.full((self.n, 4), np.nan) if self.boxes is None else self.boxes

    def scales_m(self) -> np.ndarray:
        """Return ``scale_m``, also if all are in degrees, float64[n]."""
        return np.zeros(self.n) if self.scale_m is None else self.scale_m

    def subscription(self, i: int) -> Subscription:
        """Return a subscription, as distributors place it; of a boolean one, an expression that any term of its trigger satisfies."""
        own = slice(self.offsets[i], self.offsets[i + 1])
        if self.boxes is not None and not np.isnan(self.boxes[i, 0]):
            return BooleanSubscription(self.boxes[i].tolist(), ["or", *self.terms[own].tolist()], None, None)
        place = float(self.lat[i]), float(self.lon[i])
        scale_m = float(self.scales_m()[i]) or None
        return TopkSubscription(int(self.k[i]), float(self.alpha[i]), *place, self.terms[own], self.weights[own], None, None, scale_m)


class Distributor(ABC):
    """Distributes subscriptions and messages over the tasks of the subscription bolt (journal paper, section 7.3).

    Every distribution task holds one. Tasks are named by their index, 0 to ``tasks`` - 1. A distributor has no state: its decisions
    follow from its *plan*, which never changes, and from the arguments. So they are the same in every process and after a restart; do
    not use the builtin ``hash()`` or the order of a set. :meth:`learn` makes a plan, which is plain data for JSON and is passed to the
    constructor. Another plan needs another distributor.

    Exactness requires one thing: a message that shares a keyword with a subscription either goes to one of the subscription's tasks, or
    scores no more than the guard of the placement. (The score depends on distances in degrees, or in metres if the subscription has a ``scale_m``. A message that satisfies a boolean subscription always goes to one of its tasks. A distributor that
    routes messages by place has to use ``messages.areas``: an area may overlap several partitions.)

    :param tasks: number of tasks.
    :param options: ``dskype.distributor.options``, without ``plan`` and ``sample``.
    :param plan: from :meth:`learn` or :meth:`plan`; None: a plan that needs no learning, exact but not balanced.
    :raises IllegalArgumentException: an option is not known or not usable, or the plan is for another distributor or another number of
        tasks.
    """

    name: ClassVar[str]
    """Its name in ``dskype.distributor``."""

    replicates: ClassVar[bool] = True
    """Whether a subscription may live on several tasks at once, if only while it moves. The result bolt then merges their results."""

    transfers: ClassVar[bool] = False
    """Whether a boolean subscription that a plan moves is sent by its subscription task, not by the distribution task that owns it.

    Its tasks then have to follow from the subscription and the plan alone, see :meth:`giving_tasks`.
    """

    balances: ClassVar[bool] = False
    """Whether load balancing can run by itself (``dskype.balance: auto``), see :mod:`dskype.bolts.balancing`."""

    # -- the optional part: summaries -------------------------------------------------------------

    summaries: ClassVar[bool | None] = None
    """Default of the option ``summaries``; None: the distributor has no such option, and no interest."""

    @classmethod
    def summarizes(cls, options: Mapping[str, Any] | None) -> bool:
        """Tell whether distribution tasks keep the *interest* of subscriptions, and route by it, as the option ``summaries`` says.

        Interest is a counted multiset of (region, routing term). A subscription counts in the regions of :meth:`regions_of`, once with each
        of its routing terms (:func:`dskype.distribution.routing.triggers.routing_terms`). A message goes to a task only if the region in which
        it would go there (:meth:`message_regions`) has one of its terms. The interest is state of the distribution tasks, and changes with
        subscriptions; plans and distributors know nothing of it. Only a distributor with :attr:`replicates` can have it.

        A region is a number from 0 to :meth:`regions` - 1. It means the same under every plan of a topology. By default it is a task.

        Exactness requires one more thing: if a subscription needs a message on a task, it counts in the region in which the message goes there.
        """
        return bool((options or {}).get("summaries", cls.summaries))

    def regions(self) -> int:
        """Return the number of regions. Default: the number of tasks."""
        return self.tasks

    def regions_of(self, subscription: Subscription) -> Sequence[int] | None:
        """Return the regions in which a subscription counts, each once; None (the default): in the tasks that it lives on."""
        return None

    def message_regions(self, messages: MessageBatch, routes: RowTasks) -> tuple[RowTasks, np.ndarray]:
        """Return the routes of messages with the region of each, int32[m]. Default: the task.

        A message that may go to a task in several regions, as an area can, has a row for each of them, next to each other; it goes there if
        one of them wants it.

        :param routes: from :meth:`message_tasks`, of this plan or an earlier one.
        """
        return routes, routes.tasks

    def wanted_tasks(self, messages: MessageBatch, interest: Interest) -> tuple[RowTasks, int] | None:
        """Return which tasks need which messages and want them, in one step, and how many pairs there would be without interest.

        None (the default): routes are filtered by :meth:`message_regions`. A distributor that sends a message to a task because of a term may ask for the interest in this very term;
        then it keeps less. It is called while one plan is in force. Regions have to be tasks, and :attr:`~dskype.distribution.routing.interest.Interest.withheld` is raised for each message that is kept
        from a task.
        """
        return None

    # ---------------------------------------------------------------------------------------------

    def __init__(self, tasks: int, options: Mapping[str, Any] | None = None, plan: Mapping[str, Any] | None = None) -> None:
        self.tasks = tasks

    @classmethod
    @abstractmethod
    def learn(cls, tasks: int, sample: Sample, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a plan that balances the loads of the tasks for messages and subscriptions like the sample. It follows from the arguments alone."""

    @abstractmethod
    def place(self, name: str, subscription: Subscription, threshold: float | None = None) -> Placed:
        """Return where a subscription lives.

        :param name: id of the subscription.
        :param subscription: the subscription itself.
        :param threshold: a lower bound of the score of its k-th message; None: not known yet; -inf: there is none.
        :returns: the tasks, and a guard below ``threshold`` if one is given (-inf if it is -inf).
        """

    def tasks_of_name(self, name: str) -> list[int] | None:
        """Return the tasks of a subscription if its id alone determines them, whatever the plan; None (the default): it does not.

        Nothing has to be remembered in order to unregister a subscription whose tasks follow from its id.
        """
        return None

    def place_all(self, sample: Sample, thresholds: np.ndarray | None = None, hashes: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Place all subscriptions of a sample at once. Default: one after another.

        :param thresholds: float64[n]; None: not known yet.
        :param hashes: int64[n], the CRC-32s of their ids; default: those of the texts ``0``, ``1``, ...
        :returns: (offsets int64[n + 1], tasks int32[], guards float64[n]); subscription *i* lives on ``tasks[offsets[i]:offsets[i + 1]]``.
        """
        placed = [self.place(str(i), sample.subscription(i), None if thresholds is None else float(thresholds[i])) for i in range(sample.n)]
        offsets = np.cumsum([0, *(len(p.tasks) for p in placed)]).astype(np.int64)
        return offsets, np.array([task for p in placed for task in p.tasks], np.int32), np.array([p.guard for p in placed], np.float64)

    def task_loads(self, sample: Sample, offsets: np.ndarray, tasks: np.ndarray, routes: RowTasks | None) -> np.ndarray:
        """Return the cost of each task for a sample that was placed and routed. Default: its subscriptions x the probability of a message at the task.

        :param offsets: of the subscriptions, and their ``tasks``, as :meth:`place_all` returns them.
        :param routes: as :meth:`message_tasks` returns them.
        """
        messages = np.full(self.tasks, sample.messages.n) if routes is None else np.bincount(routes.tasks, minlength=self.tasks)
        return np.bincount(tasks, minlength=self.tasks) * (messages / max(1, sample.messages.n))

    @abstractmethod
    def message_tasks(self, messages: MessageBatch) -> RowTasks | None:
        """Return which tasks need which messages; None: every task needs all of them.

        :returns: ``RowTasks(rows, tasks)``, int64[m] and int32[m]: message ``rows[i]`` goes to task index ``tasks[i]``; rows do not
            decrease, and no pair occurs twice. A message that no subscription can match is in no row.
        """

    def giving_tasks(self, other: Distributor) -> list[int] | None:
        """Return the tasks with boolean subscriptions that live on other tasks by another plan, rising; None (the default): perhaps all tasks.

        Called at a change of plans if :attr:`transfers`; the boolean subscriptions of all other tasks are left alone.
        """
        return None

    def loads(self) -> np.ndarray:
        """Return the load of each task as the plan estimates it, float64[tasks], in units of the distributor's cost model. Default: equal loads."""
        return np.ones(self.tasks)

    @property
    def memory_bytes(self) -> int:
        """Size of the arrays that it routes by. Default: 0."""
        return 0

    @abstractmethod
    def plan(self) -> dict[str, Any]:
        """Return the plan: plain data for JSON, with the keys ``v``, ``distributor``, ``tasks``. Do not change it."""


class HasPartitions(Distributor):
    """A distributor whose plan has partitions that can be split and merged by hand."""

    @abstractmethod
    def leaves(self) -> list[Leaf]:
        """Return all partitions and what they cover, in the order of their numbers."""

    @abstractmethod
    def partitions(self) -> list[dict[str, Any]]:
        """Return number, tasks, load and extent of each partition, for :meth:`split` and :meth:`merge`."""

    @abstractmethod
    def split(self, partition: int, task: int, sample: Sample | None = None) -> dict[str, Any]:
        """Return a plan in which another task has half of a partition's cost.

        :param partition: its number.
        :param task: the index of the other task.
        :param sample: says where to cut; default: the plan says.
        :raises IllegalArgumentException: there is no such partition or task, or the task has the partition already.
        """

    @abstractmethod
    def merge(self, one: int, other: int) -> dict[str, Any]:
        """Return a plan in which the tasks of partition ``one`` also have partition ``other``; neighbours become one partition.

        :raises IllegalArgumentException: there is no such partition, or both have the same tasks.
        """


def array_bytes(value: Any) -> int:
    """Return the size of an array, or of all arrays in a tuple of tuples."""
    return sum(map(array_bytes, value)) if isinstance(value, tuple) else int(getattr(value, "nbytes", 0))


def check_flag(name: str, options: Mapping[str, Any], option: str) -> None:
    """Refuse an option of a distributor that is neither true nor false."""
    if type(options[option]) is not bool:
        raise IllegalArgumentException(f"The option {option} of the {name} distributor is not usable.", given=options[option], legal="true | false")


def check_plan(kind: type[Distributor], tasks: int, plan: Mapping[str, Any]) -> None:
    """Refuse a plan of another distributor, another number of tasks or another version."""
    name, found = kind.name, dict(plan) if isinstance(plan, Mapping) else {}
    if found.get("v") != PLAN_FORMAT:
        raise IllegalArgumentException(
            "The plan has an unknown format.", given=found.get("v"), legal=f'"v": {PLAN_FORMAT}', hint="'dskype partition learn' makes plans"
        )
    if found.get("distributor") != name:
        raise IllegalArgumentException("The plan is of another distributor.", given=found.get("distributor"), legal=name)
    if found.get("tasks") != tasks:
        raise IllegalArgumentException(
            "The plan is for another number of tasks of the subscription bolt.",
            given=found.get("tasks"),
            legal=str(tasks),
            hint="learn it again with --tasks, or change the bolt's parallelism",
        )


def read_takeover(plan: Mapping[str, Any]) -> tuple[dict[str, Any], float | None]:
    """Return a plan without the key :data:`TAKEOVER`, and its value; None: the plan does not take over step by step.

    :raises IllegalArgumentException: it is no share.
    """
    found = dict(plan)
    rest = found.pop(TAKEOVER, None)
    if rest is not None and (type(rest) not in (int, float) or not 0 <= rest <= 1):
        raise IllegalArgumentException("The takeover of the plan is not usable.", given=rest, legal="the share of subscriptions that moves in the end, 0 to 1")
    return found, rest


def refuse_options(name: str, options: Mapping[str, Any] | None, legal: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the options of a distributor as a dict.

    :raises IllegalArgumentException: one is not among ``legal``.
    """
    for option in options or {}:
        if option not in legal:
            near = difflib.get_close_matches(str(option), legal, 1)
            raise IllegalArgumentException(
                f"The {name} distributor takes " + ("no such option." if legal else "no options."),
                given=option if legal else dict(options or {}),
                legal=", ".join(legal) or None,
                hint=f"did you mean {near[0]}?" if near else None,
            )
    return dict(options or {})
