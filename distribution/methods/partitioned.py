"""The base of distributors with partitions: a plan of nodes, routing by it, and changes of it."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dskype.distribution.base import (
    PLAN_FORMAT,
    Distributor,
    HasPartitions,
    Placed,
    Sample,
    array_bytes,
    check_flag,
    check_plan,
    default_hashes,
    refuse_options,
)
from dskype.distribution.learning.cuts import Cost, Postings, best_line, first_terms
from dskype.distribution.plans import Leaf, Node, checked_root, edited, flatten, leaf, leaves
from dskype.distribution.routing import _kernels as kernels
from dskype.distribution.routing.triggers import trigger_terms
from dskype.distribution.subscriptions import BooleanSubscription, Subscription
from dskype.spouts.areas import centre_of
from dskype.spouts.batch import MessageBatch, select_lists
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.groupings import RowTasks

__all__ = ["COSTS", "METHODS", "Measured", "Partitioned", "measure", "postings", "work_of", "work_overhead"]

METHODS = ("balanced", "paper")
COSTS = ("product", "work")

_IDLE = 0.05
"""Work of a subscription without messages, where one with a full list has 1. Measured, as is the next."""
_OVERHEAD = 0.15
"""Work of all messages at all their keywords, where all subscriptions together have 1."""


class Partitioned(HasPartitions):
    """A distributor whose plan assigns partitions of the world or of the vocabulary to tasks (see :mod:`dskype.distribution.plans`).

    Unknown terms (negative ids) are in no partition: term *t* belongs to task ``(-1 - t) % tasks``.

    :param options: ``method``: ``balanced`` (default), or ``paper``: Algorithms 3 and 4 unchanged.
    """

    legal_options: ClassVar[tuple[str, ...]] = ("method",)
    methods: ClassVar[tuple[str, ...]] = METHODS
    """Legal values of ``method``, the default first."""

    cuts: ClassVar[str] = "terms"
    """Along what :meth:`split` cuts: ``terms`` or ``places``."""

    def __init__(self, tasks: int, options: Mapping[str, Any] | None = None, plan: Mapping[str, Any] | None = None) -> None:
        super().__init__(tasks)
        self.options = self.checked(tasks, options)
        if plan is None:
            plan = self.planned(tasks, self.uniform(tasks, self.options), [1.0] * tasks)
        check_plan(type(self), tasks, plan)
        loads = plan.get("loads")
        if not isinstance(loads, list) or len(loads) != tasks or not all(type(x) in (int, float) for x in loads):
            raise IllegalArgumentException("The plan is damaged: a load for each task is missing.", given=loads, legal=f"{tasks} numbers")
        self._plan = dict(plan)
        self._root: Node = checked_root(plan.get("root"), tasks)
        self._flat = flatten(self._root)

    # -- options and plans ------------------------------------------------------------------------

    @classmethod
    def checked(cls, tasks: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return all options with their defaults, checked."""
        legal = {"method": cls.methods, **({"cost": COSTS} if "cost" in cls.legal_options else {})}
        found = {**{option: values[0] for option, values in legal.items()}, **refuse_options(cls.name, options, cls.legal_options)}
        for option, values in legal.items():
            if found[option] not in values:
                raise IllegalArgumentException(
                    f"The option {option} of the {cls.name} distributor is not usable.", given=found[option], legal=" | ".join(values)
                )
        if cls.summaries is not None:
            found.setdefault("summaries", cls.summaries)
            check_flag(cls.name, found, "summaries")
        return found

    @classmethod
    def planned(cls, tasks: int, root: Node, loads: Sequence[float]) -> dict[str, Any]:
        """Return a plan with a root and the loads of the tasks."""
        return {"v": PLAN_FORMAT, "distributor": cls.name, "tasks": tasks, "root": root, "loads": list(map(float, loads))}

    @classmethod
    @abstractmethod
    def uniform(cls, tasks: int, options: Mapping[str, Any]) -> Node:
        """Return the root of a plan without a sample."""

    @classmethod
    @abstractmethod
    def learned(cls, tasks: int, sample: Sample, options: Mapping[str, Any]) -> Node:
        """Return the root of a plan that is learned from a sample."""

    @classmethod
    def learn(cls, tasks: int, sample: Sample, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a plan that balances the cost of a sample."""
        root = cls.learned(tasks, sample, cls.checked(tasks, options)) if sample.n and sample.messages.n else cls.uniform(tasks, cls.checked(tasks, options))
        return cls.planned(tasks, root, measure(cls(tasks, options, cls.planned(tasks, root, [1.0] * tasks)), sample).loads)

    def plan(self) -> dict[str, Any]:
        """Return the plan."""
        return self._plan

    def loads(self) -> np.ndarray:
        """Return the loads in the plan: by default subscriptions x the probability of a message (equations 15 and 16), as measured with a sample."""
        return np.array(self._plan["loads"], np.float64)

    @property
    def memory_bytes(self) -> int:
        """Size of the plan's arrays."""
        return array_bytes(self._flat)

    # -- routing ----------------------------------------------------------------------------------

    def limit(self, threshold: float | None) -> float:
        """Return the score that the guard has to stay below; -inf (the default): all keywords have to be covered."""
        return -np.inf

    def place(self, name: str, subscription: Subscription, threshold: float | None = None) -> Placed:
        """Return where a subscription lives: on the tasks of its keywords, the rarest first, as many as the threshold asks for."""
        if isinstance(subscription, BooleanSubscription):
            terms = np.array(trigger_terms(subscription.expression), np.int64)
            lat, lon = centre_of(*subscription.bbox)
            weights, alpha, limit = np.ones(len(terms)), 0.0, -np.inf
        else:
            terms, weights = np.asarray(subscription.terms, np.int64), np.asarray(subscription.weights, np.float64)
            lat, lon, alpha, limit = subscription.lat, subscription.lon, subscription.alpha, self.limit(threshold)
        placed = np.zeros(self.tasks, np.bool_)
        guard = kernels.place(terms, weights, float(alpha), float(lat), float(lon), limit, zlib.crc32(name.encode()), self.tasks, self._flat, placed)
        return Placed(np.flatnonzero(placed).tolist(), float(guard))

    def place_all(self, sample: Sample, thresholds: np.ndarray | None = None, hashes: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Place all subscriptions of a sample at once.

        :param thresholds: float64[n]; None: not known yet.
        :param hashes: int64[n], the CRC-32s of their ids; default: :func:`default_hashes`.
        :returns: (offsets int64[n + 1], tasks int32[], guards float64[n]).
        """
        limits = np.full(sample.n, self.limit(None)) if thresholds is None else np.array([self.limit(t) for t in thresholds.tolist()])
        return kernels.place_all(
            kernels.Subscriptions(np.asarray(sample.k, np.int64), *sample[2:8]),
            limits,
            default_hashes(sample.n) if hashes is None else hashes,
            self.tasks,
            self._flat,
        )

    def message_tasks(self, messages: MessageBatch) -> RowTasks | None:
        """Return the tasks of each message's keywords."""
        return RowTasks(*kernels.route(messages.offsets, messages.terms, self.tasks, self._flat.routes))

    # -- changes of the plan ----------------------------------------------------------------------

    def leaves(self) -> list[Leaf]:
        """Return all partitions and what they cover."""
        return list(leaves(self._root))

    def partitions(self) -> list[dict[str, Any]]:
        """Return number, tasks, load and extent (``box``, ``terms``) of each partition, for :meth:`split` and :meth:`merge`."""
        found = []
        for number, part in enumerate(leaves(self._root)):
            row: dict[str, Any] = {"number": number, "tasks": list(part.node["tasks"]), "load": part.node["load"]}
            if any(border is not None for border in part.box):
                row["box"] = list(part.box)
            if part.in_range or part.terms != (0, None):
                row["terms"] = list(part.terms)
            found.append(row)
        return found

    def _partition(self, number: int) -> Leaf:
        found = list(leaves(self._root))
        if not 0 <= number < len(found):
            raise IllegalArgumentException("There is no such partition.", given=number, legal=f"0 to {len(found) - 1}")
        return found[number]

    def split(self, partition: int, task: int, sample: Sample | None = None) -> dict[str, Any]:
        """Return a plan in which another task has half of a partition's cost.

        A partition that cannot be cut, because it is a single keyword or a single place, is shared: each task has a part of its subscriptions.

        :param partition: its number.
        :param task: the index of the other task.
        :param sample: says where to cut; default: the plan's marks.
        :raises IllegalArgumentException: there is no such partition or task, or the task has the partition already.
        """
        return self.rearranged({}, {partition: task}, sample)

    def merge(self, one: int, other: int) -> dict[str, Any]:
        """Return a plan in which the tasks of partition ``one`` also have partition ``other``; neighbours become one partition.

        :raises IllegalArgumentException: there is no such partition, or both have the same tasks.
        """
        to, away = self._partition(one).node["tasks"], self._partition(other).node["tasks"]
        if to == away:
            raise IllegalArgumentException("Two partitions with the same tasks cannot be merged.", given=f"{one}, {other}")
        return self.rearranged({other: to}, {})

    def rearranged(self, reassigned: Mapping[int, Sequence[int]], halved: Mapping[int, int], sample: Sample | None = None) -> dict[str, Any]:
        """Return a plan with several changes at once. Neighbours that get the same tasks become one partition.

        :param reassigned: partition (its present number) -> its new tasks.
        :param halved: partition (its present number) -> the task that gets half of it, see :meth:`split`.
        :raises IllegalArgumentException: see :meth:`split`.
        """
        loads, new = list(self._plan["loads"]), {}

        def moved(tasks: Sequence[int], load: float) -> None:
            for task in tasks:
                loads[task] = max(0.0, loads[task] + load / len(tasks))

        for number, tasks in reassigned.items():
            node = self._partition(number).node
            new[number] = {**node, "tasks": list(tasks)}
            moved(node["tasks"], -node["load"])
            moved(tasks, node["load"])
        for number, task in halved.items():
            part = self._partition(number)
            node, tasks = part.node, part.node["tasks"]
            if not 0 <= task < self.tasks or task in tasks:
                legal = [t for t in range(self.tasks) if t not in tasks]
                raise IllegalArgumentException(
                    "A partition can only be split with a task that does not have it.", given=task, legal=", ".join(map(str, legal)) or "none"
                )
            cut = None
            if len(tasks) == 1:
                cut = self._cut_terms(part, task, sample) if self.cuts == "terms" else self._cut_places(part, task, sample)
            new[number] = cut or leaf([*tasks, task], node["load"], **node["marks"])
            share = node["load"] / (len(tasks) + 1)
            moved(tasks, -share)
            moved([task], share)
        plan = self.planned(self.tasks, edited(self._root, new.get), loads)
        if sample is not None:
            plan["loads"] = measure(type(self)(self.tasks, self.options, plan), sample).loads.tolist()
        return plan

    def with_loads(self, loads: np.ndarray, sample: Sample | None = None) -> dict[str, Any]:
        """Return the plan with measured loads, float64[tasks] in any unit. The loads of a task's partitions add up to that of the task.

        :param sample: says which part of its task's load each partition has. Default: the parts in the plan, which come closer to the truth with
            every measurement.
        """
        nodes = [part.node for part in leaves(self._root)]
        own = np.array([max(node["load"], 1e-9) for node in nodes])
        if sample is not None:  # by subscriptions, and by messages where they differ; products would not add up
            alone, own = self._alone(sample), np.full(len(nodes), 1e-9)
            for counts in (alone.subscriptions, alone.messages)[: 1 if self.cuts == "places" else 2]:
                own += counts / max(1, counts.sum())
        planned = np.zeros(self.tasks)
        for node, load in zip(nodes, own.tolist()):
            planned[node["tasks"]] += load / len(node["tasks"])
        loads = np.asarray(loads, np.float64)
        factor = loads / max(1e-12, loads.sum()) * max(1e-12, sum(self._plan["loads"])) / np.maximum(planned, 1e-12)

        def change(number: int, node: Node) -> Node:
            return {**node, "load": float(f"{own[number] * factor[node['tasks']].mean():.6g}")}

        return self.planned(self.tasks, edited(self._root, change), (planned * factor).tolist())

    def _alone(self, sample: Sample) -> Measured:
        """Measure a sample as if each partition had a task of its own."""
        n = len(self.partitions())
        root = edited(self._root, lambda number, node: {**node, "tasks": [number]})
        options = {option: value for option, value in self.options.items() if option not in ("n1", "n2")}  # these must fit the real number of tasks
        return measure(type(self)(n, options, self.planned(n, root, [1.0] * n)), sample)

    def prefixes(self, sample: Sample) -> np.ndarray:
        """Return how many keywords of each subscription in a sample decide where it lives. Default: all."""
        return np.diff(sample.offsets)

    @classmethod
    def cost(cls, sample: Sample, options: Mapping[str, Any], lengths: np.ndarray, rows: np.ndarray | None = None) -> Cost:
        """Return the cost of ranges of keywords.

        :param lengths: int64[n], how many keywords of each subscription count, from the first on.
        :param rows: the subscriptions that count; default: all.
        """
        if options.get("cost") != "work":
            return Cost(*postings(sample, lengths, rows), -1.0)
        weights = work_of(sample)
        return Cost(*postings(sample, lengths, rows, weights), work_overhead(sample, weights))

    def _cut_terms(self, part: Leaf, task: int, sample: Sample | None) -> Node | None:
        (begin, end), load = part.terms, part.node["load"] / 2
        marks = [t for t in part.node["marks"].get("term", ()) if t > begin and (end is None or t < end)]
        if end == begin + 1:
            return None
        at = begin
        if sample is not None:
            cost = self.cost(sample, self.options, self.prefixes(sample), _in_box(sample, part.box))
            stop = cost.vocabulary if end is None else min(end, cost.vocabulary)
            if begin < stop and cost.per_task(begin, stop) > 0:
                at = cost.halve(begin, stop)
        if at == begin:
            at = marks[len(marks) // 2] if marks else 2 * begin + 1 if end is None else max(begin + 1, round((max(1, begin) * end) ** 0.5))
        lower, upper = [t for t in marks if t < at], [t for t in marks if t > at]
        return {
            "ranges": [
                {"from": 0 if part.in_range else begin, "node": leaf(part.node["tasks"], load, term=lower)},
                {"from": at, "node": leaf([task], load, term=upper)},
            ]
        }

    def _cut_places(self, part: Leaf, task: int, sample: Sample | None) -> Node | None:
        marks, load = part.node["marks"], part.node["load"] / 2
        line = None
        if sample is not None:
            s, m = _in_box(sample, part.box), _inside(sample.messages.lat, sample.messages.lon, part.box)
            if self.options.get("cost") == "work":
                line = best_line(sample.lat[s], sample.lon[s], np.zeros(0), np.zeros(0), work_of(sample)[s])
            else:
                line = best_line(sample.lat[s], sample.lon[s], sample.messages.lat[m], sample.messages.lon[m])
        if line is None:
            long = max(("lat", "lon"), key=lambda axis: marks[axis][-1] - marks[axis][0] if marks.get(axis) else -1.0)
            if marks.get(long):
                line = long, marks[long][len(marks[long]) // 2]
            elif not marks:
                west, south, east, north = (b if b is not None else edge for b, edge in zip(part.box, (-180.0, -90.0, 180.0, 90.0)))
                line = ("lon", (west + east) / 2) if east - west >= north - south else ("lat", (south + north) / 2)
        if line is None:
            return None
        axis, at = line
        sides = [{**marks, axis: [x for x in marks.get(axis, ()) if x < at]}, {**marks, axis: [x for x in marks.get(axis, ()) if x > at]}]
        return {"axis": axis, "at": at, "below": leaf(part.node["tasks"], load, **sides[0]), "above": leaf([task], load, **sides[1])}


# -- samples --------------------------------------------------------------------------------------


def _inside(lat: np.ndarray, lon: np.ndarray, box: Sequence[float | None]) -> np.ndarray:
    west, south, east, north = (b if b is not None else edge for b, edge in zip(box, (-np.inf, -np.inf, np.inf, np.inf)))
    return np.flatnonzero((lon >= west) & (lon < east) & (lat >= south) & (lat < north))


def _in_box(sample: Sample, box: Sequence[float | None]) -> np.ndarray:
    return _inside(sample.lat, sample.lon, box)


def work_of(sample: Sample) -> np.ndarray:
    """Return the work of each subscription, float64[n]: 1 for a full list, which changes all the time; less, but not 0, for fewer messages."""
    return np.maximum(sample.filled, _IDLE)


def work_overhead(sample: Sample, weights: np.ndarray) -> float:
    """Return the work of a message that comes to a task, in the unit of :func:`work_of`."""
    return _OVERHEAD * float(weights.sum()) / max(1, int(np.count_nonzero(sample.messages.terms >= 0)))


def postings(sample: Sample, lengths: np.ndarray, rows: np.ndarray | None = None, weights: np.ndarray | None = None) -> tuple[Postings, Postings]:
    """Return the postings of subscriptions and of messages.

    :param lengths: int64[n], how many keywords of each subscription count, from the first on.
    :param rows: the subscriptions that count; default: all.
    :param weights: float64[n], of all subscriptions; default: 1.
    """
    _, terms = first_terms(sample.offsets, sample.terms, lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if rows is not None and len(rows) < sample.n:
        offsets, index = select_lists(offsets, rows)
        terms = terms[index]
        weights = None if weights is None else weights[rows]
    messages = sample.messages
    vocabulary = int(max(sample.terms.max(initial=-1), messages.terms.max(initial=-1))) + 1
    return Postings.from_documents(offsets, terms, vocabulary, weights), Postings.from_documents(messages.offsets, messages.terms, vocabulary)


class Measured(NamedTuple):
    """How a distributor spreads a sample.

    :ivar replication: tasks per subscription.
    :ivar communication: tasks per message.
    :ivar subscriptions: int64[tasks], how many live on each task.
    :ivar messages: int64[tasks], how many each task gets.
    :ivar loads: float64[tasks], in units of the distributor's cost model.
    """

    replication: float
    communication: float
    subscriptions: np.ndarray
    messages: np.ndarray
    loads: np.ndarray

    @property
    def balance(self) -> float:
        """The greatest load divided by the mean load."""
        return float(self.loads.max() / self.loads.mean()) if self.loads.any() else 1.0


def measure(distributor: Distributor, sample: Sample, hashes: np.ndarray | None = None) -> Measured:
    """Place and route a sample, and measure the result.

    :param hashes: int64[n], the CRC-32s of the subscriptions' ids; default: :func:`default_hashes`.
    """
    n = max(1, sample.messages.n)
    routes = distributor.message_tasks(sample.messages)
    messages = np.full(distributor.tasks, sample.messages.n) if routes is None else np.bincount(routes.tasks, minlength=distributor.tasks)
    offsets, tasks, _ = distributor.place_all(sample, sample.thresholds, hashes)
    loads = distributor.task_loads(sample, offsets, tasks, routes)
    return Measured(len(tasks) / max(1, sample.n), float(messages.sum()) / n, np.bincount(tasks, minlength=distributor.tasks), messages, loads)
