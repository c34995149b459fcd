"""The contract of distributors: where subscriptions live, and which of those places need a message."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain
from dskype.topology.groupings import RowTasks

__all__ = ["PLAN_FORMAT", "Distributor", "Placed", "Sample", "check_plan", "refuse_options"]

PLAN_FORMAT = 1
"""``v`` of a plan."""


class Placed(NamedTuple):
    """Where a subscription lives.

    :ivar tasks: indexes of tasks, rising; at least one.
    :ivar guard: no message that goes to none of these tasks has a score above it.
    """

    tasks: list[int]
    guard: float = -np.inf


class Sample(NamedTuple):
    """What plans are learned from: messages as they come, and top-k subscriptions as they are registered.

    :ivar messages: a sample of the stream, some windows' worth at best.
    :ivar k: int64[n], how many messages each subscription wants.
    :ivar alpha: float64[n], weight of the distance; ``lat``, ``lon``: float64[n], degrees.
    :ivar offsets: int64[n + 1]; the keywords of subscription *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :ivar terms: int64[], term ids, rising within a subscription: the rarest first.
    :ivar weights: float64[], their weights, of unit norm per subscription.
    :ivar thresholds: float64[n], the score of the k-th best message of a window; -inf where there are fewer than k.
    :ivar filled: float64[n], from 0 to 1: the share of a full list that the messages of a window give.
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

    @property
    def n(self) -> int:
        """The number of subscriptions."""
        return len(self.k)


class Distributor(ABC):
    """Distributes subscriptions and messages over the tasks of the subscription bolt (journal paper, section 7.3).

    Every distribution task holds one. Tasks are named by their index, 0 to ``tasks`` - 1. A distributor has no state: what it
    decides follows from its *plan*, which never changes, and from the arguments. So decisions are the same in every process and
    after a restart; no builtin ``hash()``, no order of a set. A plan is made by :meth:`learn`, is plain data for JSON, and is
    given to the constructor. Another plan is another distributor.

    Exactness asks one thing: a message that shares a keyword with a subscription goes to one of the tasks of its placement, or
    its score is not above the placement's guard. (Boolean subscriptions: a message that satisfies one goes to one of its tasks. Whoever routes messages by
    place has to look at ``messages.areas``: an area may overlap several partitions.)

    :param tasks: how many tasks there are.
    :param options: ``dskype.distributor.options``, without ``plan`` and ``sample``.
    :param plan: from :meth:`learn` or :meth:`plan`; None: one that needs no learning, exact but not balanced.
    :raises IllegalArgumentException: an option that is not known or makes no sense; a plan of another distributor, or for another
        number of tasks.
    """

    name: ClassVar[str]
    """What ``dskype.distributor`` calls it."""

    replicates: ClassVar[bool] = True
    """Whether a subscription may live on several tasks at once, be it while it moves; their results are then merged by the result bolt."""

    by_id: ClassVar[bool] = False
    """Whether :meth:`place` looks at the id alone and the plan cannot change: nothing has to be remembered in order to unregister."""

    def __init__(self, tasks: int, options: Mapping[str, Any] | None = None, plan: Mapping[str, Any] | None = None) -> None:
        self.tasks = tasks

    @classmethod
    @abstractmethod
    def learn(cls, tasks: int, sample: Sample, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a plan that balances the tasks' loads, were the future like the sample. The same arguments give the same plan."""

    @abstractmethod
    def place(self, subscription: str, placement: Mapping[str, Any], threshold: float | None = None) -> Placed:
        """Return where a subscription lives.

        :param subscription: its id.
        :param placement: what will be sent there, see ``DistributionBolt``: ``type`` ``topk`` with ``alpha``, ``lat``, ``lon``, ``terms``
            (int64, rising) and ``weights`` (unit norm), or ``boolean`` with ``bbox`` and ``expression`` over term ids.
        :param threshold: what the score of its k-th message is known to reach; None: nothing is known yet; -inf: known to have no bound.
        :returns: with a guard below ``threshold`` if one is given (or -inf).
        """

    @abstractmethod
    def message_tasks(self, messages: MessageBatch) -> RowTasks | None:
        """Return which tasks need which messages; None: every task needs all of them.

        :returns: ``RowTasks(rows, tasks)``, int64[m] and int32[m]: message ``rows[i]`` goes to task index ``tasks[i]``; rows do not
            decrease, and no pair occurs twice. A message that nobody can want is in no row.
        """

    def loads(self) -> np.ndarray:
        """Return the estimated load of each task by the plan, float64[tasks], in units of the distributor's cost model. Default: equal."""
        return np.ones(self.tasks)

    @abstractmethod
    def plan(self) -> dict[str, Any]:
        """Return the plan: plain data for JSON, with the keys ``v``, ``distributor``, ``tasks``; not to be changed."""


def check_plan(kind: type[Distributor], tasks: int, plan: Mapping[str, Any]) -> None:
    """Refuse a plan of another distributor, another number of tasks or another version."""
    name, given = kind.name, dict(plan) if isinstance(plan, Mapping) else {}
    if given.get("v") != PLAN_FORMAT:
        raise IllegalArgumentException(
            explain(
                "This is no plan of a distributor that is understood here.",
                given=given.get("v"),
                legal=f'"v": {PLAN_FORMAT}',
                hint="'dskype partition learn' makes plans",
            )
        )
    if given.get("distributor") != name:
        raise IllegalArgumentException(explain("The plan is of another distributor.", given=given.get("distributor"), legal=name))
    if given.get("tasks") != tasks:
        raise IllegalArgumentException(
            explain(
                "The plan is for another number of tasks of the subscription bolt.",
                given=given.get("tasks"),
                legal=str(tasks),
                hint="learn it again with --tasks, or change the bolt's parallelism",
            )
        )


def refuse_options(name: str, options: Mapping[str, Any] | None, legal: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the options of a distributor as a dict.

    :raises IllegalArgumentException: one is not among ``legal``.
    """
    import difflib

    for option in options or {}:
        if option not in legal:
            near = difflib.get_close_matches(str(option), legal, 1)
            raise IllegalArgumentException(
                explain(
                    f"The {name} distributor takes " + ("no such option." if legal else "no options."),
                    given=option if legal else dict(options or {}),
                    legal=", ".join(legal) or None,
                    hint=f"did you mean {near[0]}?" if near else None,
                )
            )
    return dict(options or {})
