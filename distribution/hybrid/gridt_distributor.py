"""Distribution by a gridt index, whatever its zones come from: hybrid partitioning, or partitioning by space or text alone (PS2Stream, section IV)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dskype.distribution.agrid.grid import AGrid, CellBox
from dskype.distribution.agrid.learning import CellCosts, Cut, cell_costs, equal_partitions
from dskype.distribution.agrid.near_tasks import near_tasks, reach_of
from dskype.distribution.agrid.options import GRID_OPTIONS, LEARNED_GRANULARITY, check_grid
from dskype.distribution.base import PLAN_FORMAT, Distributor, HasPartitions, Placed, Sample, check_flag, check_plan, refuse_options
from dskype.distribution.hybrid import leaf_loads
from dskype.distribution.hybrid.gridt import BUCKETS, Gridt, Part, Zone, read_zones
from dskype.distribution.hybrid.leaf_loads import SampleLoads
from dskype.distribution.hybrid.loads import LoadModel
from dskype.distribution.hybrid.migration import loads_of_zones
from dskype.distribution.plans import Leaf, leaf
from dskype.distribution.routing.interest import Interest, documents_of
from dskype.distribution.routing.triggers import routing_terms
from dskype.distribution.subscriptions import BooleanSubscription, Subscription
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.groupings import RowTasks

__all__ = ["GridtDistributor", "sample_loads"]

_FINEST = 16_384
"""The most columns and rows."""


class GridtDistributor(HasPartitions):
    """Divides the world into zones; a task has a zone, or several tasks divide the terms in it.

    A boolean subscription lives on the tasks that have one of its routing terms in a zone that its rectangle touches; a message goes to the tasks that have one of its terms where it is. An area
    is in all zones that it touches.

    A top-k subscription has no rectangle, so it lives on the tasks that have one of its keywords in any zone, each of which keeps a list, and the result bolt merges the lists. When its
    threshold is known it gives up zones that are too far away, as with an A-Grid (:func:`~dskype.distribution.agrid.near_tasks.near_tasks`).

    A plan has ``grid``: ``{"columns", "rows", "box"}``, and ``zones``: a list of ``{"cells": [first column, first row, end of the columns, end of the rows], "task", "load"}``, or, if
    terms are divided, ``{"cells", "parts": [{"task", "load", "terms", "buckets"}, ...]}``. A task with a whole zone, or a part of one, is a partition; they are numbered in this order.

    Subclasses learn plans. The options here are ``granularity``: columns and rows of the grid (default 4096, at most 16384), and ``box``: its [west, south, east, north] in degrees
    (default: the world), for plans without a grid. ``summaries`` (default true): a task gets a message only because of a term that its subscriptions need. For learning, ``costs``: constants of the
    load model, from ``dskype partition calibrate``; ``matching``: ``checked`` (default) or ``product``, see :class:`~dskype.distribution.hybrid.leaf_loads.SampleLoads`; ``subscriptions``: how many there will be
    (default: those of the sample).
    """

    legal_options: tuple[str, ...] = ("granularity", "box", "summaries", "costs", "matching", "subscriptions")
    summaries = True
    transfers = True

    def __init__(self, tasks: int, options: Mapping[str, Any] | None = None, plan: Mapping[str, Any] | None = None) -> None:
        super().__init__(tasks)
        self.options = self.checked(tasks, options)
        if plan is None:
            plan = self.planned(tasks, self.options["granularity"], self.options["box"], self.unlearned(tasks, self.options))
        check_plan(type(self), tasks, plan)
        self._plan = dict(plan)
        self.gridt: Gridt = read_zones(tasks, plan)
        """The zones. Do not change it."""
        self._reach = reach_of(self.gridt.grid)

    # -- options and plans ------------------------------------------------------------------------

    @classmethod
    def checked(cls, tasks: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return all options with their defaults, checked."""
        found: dict[str, Any] = {
            **GRID_OPTIONS,
            "granularity": LEARNED_GRANULARITY,
            "summaries": cls.summaries,
            **refuse_options(cls.name, options, cls.legal_options),
        }
        check_grid(cls.name, tasks, found, _FINEST)
        check_flag(cls.name, found, "summaries")
        return _check_costs(cls.name, found)

    @classmethod
    def unlearned(cls, tasks: int, options: Mapping[str, Any]) -> list[Zone]:
        """Return the zones of a plan without a sample: one of about equal size for each task."""
        n = options["granularity"]
        return [Zone(cells, (Part(task, 1.0),)) for task, cells in enumerate(equal_partitions(CellBox(0, 0, n, n), tasks))]

    @classmethod
    def planned(cls, tasks: int, granularity: int, box: Sequence[float], zones: Sequence[Zone]) -> dict[str, Any]:
        """Return a plan."""
        sums = np.zeros(tasks)
        for zone in zones:
            for part in zone.parts:
                sums[part.task] += part.load
        return {
            "v": PLAN_FORMAT,
            "distributor": cls.name,
            "tasks": tasks,
            "loads": sums.tolist(),
            "grid": {"columns": granularity, "rows": granularity, "box": list(box)},
            "zones": [zone.encode() for zone in zones],
        }

    @classmethod
    def learn(cls, tasks: int, sample: Sample, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a plan of the zones that :meth:`learned` finds."""
        found = cls.checked(tasks, options)
        if not sample.n or not sample.messages.n:
            return cls(tasks, options).plan()
        n = found["granularity"]
        return cls.planned(tasks, n, found["box"], cls.learned(tasks, AGrid(n, n, found["box"]), sample, found))

    @classmethod
    def learned(cls, tasks: int, grid: AGrid, sample: Sample, options: Mapping[str, Any]) -> list[Zone]:
        """Return zones for a sample that has messages and subscriptions.

        :param grid: its cells; the partitions in it do not count.
        :param options: from :meth:`checked`.
        """
        raise NotImplementedError

    def plan(self) -> dict[str, Any]:
        """Return the plan."""
        return self._plan

    def loads(self) -> np.ndarray:
        """Return the load of each task as the plan estimates it."""
        return np.array(self._plan["loads"], np.float64)

    def task_loads(self, sample: Sample, offsets: np.ndarray, tasks: np.ndarray, routes: RowTasks | None) -> np.ndarray:
        """Return the load of each task for a sample by the load model, in us for a message."""
        if not sample.n or not sample.messages.n:
            return np.zeros(self.tasks)
        return loads_of_zones(self.root_of(sample), self.gridt.zones, self.tasks) / sample.messages.n

    def root_of(self, sample: Sample, measured: Mapping[str, Any] | None = None) -> leaf_loads.Leaf:
        """Return the whole grid with the loads of a sample.

        :param measured: options of learning that are used in place of those of the topology.
        """
        grid = self.gridt.grid
        return sample_loads(AGrid(grid.columns, grid.rows, grid.box), sample, {**self.options, **(measured or {})}).root()

    @property
    def memory_bytes(self) -> int:
        """Size of the gridt index."""
        return self.gridt.memory_bytes

    # -- routing ----------------------------------------------------------------------------------

    def place(self, name: str, subscription: Subscription, threshold: float | None = None) -> Placed:
        """Return the tasks of a subscription's routing terms: in the zones that its rectangle touches; of a top-k subscription in all zones that are not too far away."""
        terms = routing_terms(subscription)
        if isinstance(subscription, BooleanSubscription):
            return Placed(self.gridt.place(subscription.bbox, terms))
        zones, tasks = self.gridt.tasks_by_zone(terms)
        if threshold is None or threshold == -np.inf:
            return Placed(np.unique(tasks).tolist())
        return near_tasks(subscription, threshold, self._reach[zones], tasks, self.tasks)

    def place_all(self, sample: Sample, thresholds: np.ndarray | None = None, hashes: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Place all subscriptions of a sample at once, the boolean ones without a loop."""
        boxes = sample.rectangles()
        if np.isnan(boxes[:, 0]).any():
            return super().place_all(sample, thresholds, hashes)
        return *self.gridt.place_many(boxes, sample.offsets, sample.terms), np.full(sample.n, -np.inf)

    def message_tasks(self, messages: MessageBatch) -> RowTasks:
        """Return the tasks that have a term of a message where it is."""
        if messages.areas is None:
            return RowTasks(*self.gridt.route_points(messages.offsets, messages.terms, messages.lat, messages.lon))
        return RowTasks(*self.gridt.route_areas(messages.offsets, messages.terms, messages.areas))

    def wanted_tasks(self, messages: MessageBatch, interest: Interest) -> tuple[RowTasks, int] | None:
        """Return the tasks that have a term of a point, and need it for this term; None if there are areas."""
        if messages.areas is not None:
            return None
        found = self.gridt.wanted_points(documents_of(messages), messages.lat, messages.lon, interest.words, interest.withheld)
        return RowTasks(*found[:2]), found[2]

    def giving_tasks(self, other: Distributor) -> list[int] | None:
        """Return the tasks with a zone of which another task has something by another plan; None: the other plan has another grid. O(zones)."""
        assert isinstance(other, GridtDistributor)
        mine, theirs = self.gridt.grid, other.gridt.grid
        if (mine.box, mine.all_cells) != (theirs.box, theirs.all_cells):
            return None
        giving: set[int] = set()
        for zone in self.gridt.zones:
            there = [other.gridt.zones[number] for number in theirs.search(zone.cells)]
            same = [found.parts[0].task == zone.parts[0].task and not found.divided for found in there]
            if zone.divided:
                parts = [[(part.task, part.terms, part.buckets) for part in one.parts] for one in (zone, *there)]
                same = [one == parts[0] for one in parts[1:]]
            if not all(same):
                giving.update(part.task for part in zone.parts)
        return sorted(giving)

    # -- changes of the plan ----------------------------------------------------------------------

    def _numbered(self) -> list[tuple[int, int]]:
        """Return the zone and the part of each partition."""
        return [(number, at) for number, zone in enumerate(self.gridt.zones) for at in range(len(zone.parts))]

    def _partition(self, number: int) -> tuple[int, int]:
        """Return the zone and the part of a partition.

        :raises IllegalArgumentException: there is no such partition.
        """
        found = self._numbered()
        if not 0 <= number < len(found):
            raise IllegalArgumentException("There is no such partition.", given=number, legal=f"0 to {len(found) - 1}")
        return found[number]

    def leaves(self) -> list[Leaf]:
        """Return all partitions and what they cover; of divided terms only the zone."""
        found = []
        for (number, at), reach in ((key, self._reach[key[0]].tolist()) for key in self._numbered()):
            part = self.gridt.zones[number].parts[at]
            west, south, east, north = (border if np.isfinite(border) else None for border in reach)
            found.append(Leaf(leaf([part.task], part.load), (west, south, east, north), (0, None), False))
        return found

    def partitions(self) -> list[dict[str, Any]]:
        """Return number, tasks, load and extent of each partition: ``box`` in degrees (None: no border on that side), ``cells``, and if the terms are divided ``named``, the number of
        terms that are named, and ``share``, that of all other terms.
        """
        found = []
        for number, ((zone, at), part) in enumerate(zip(self._numbered(), self.leaves())):
            own = self.gridt.zones[zone]
            divided = {"named": len(own.parts[at].terms), "share": len(own.parts[at].buckets) / BUCKETS} if own.divided else {}
            found.append({"number": number, "tasks": part.node["tasks"], "load": part.node["load"], "box": list(part.box), "cells": list(own.cells), **divided})
        return found

    def split(self, partition: int, task: int, sample: Sample | None = None) -> dict[str, Any]:
        """Return a plan in which another task has half of a partition: of a zone half of the cells, of divided terms every second one.

        :param partition: its number.
        :param task: the index of the other task.
        :param sample: says where to cut a zone; default: in the middle of the longer side.
        :raises IllegalArgumentException: there is no such partition or task, the task has the partition already, or nothing can be cut.
        """
        number, at = self._partition(partition)
        zone, zones = self.gridt.zones[number], list(self.gridt.zones)
        own = zone.parts[at]
        whole = zone.cells.cells > 1 if not zone.divided else len(own.terms) + len(own.buckets) > 1
        if not 0 <= task < self.tasks or task == own.task or not whole:
            legal = [t for t in range(self.tasks) if t != own.task] if whole else []
            raise IllegalArgumentException(
                "A partition of several cells or terms can be split with a task that does not have it.", given=task, legal=", ".join(map(str, legal)) or "none"
            )
        if zone.divided:
            kept = own._replace(load=own.load / 2, terms=own.terms[1::2], buckets=own.buckets[::2])
            given = Part(task, own.load / 2, own.terms[::2], own.buckets[1::2])
            zones[number] = zone.with_parts((*zone.parts[:at], kept, *zone.parts[at + 1 :], given))
        else:
            cut, share = self._cut(zone, sample)
            nothing = np.zeros(0, np.int64)
            boxes = [side.box for side in CellCosts(zone.cells, nothing, nothing, np.zeros(0)).parted(cut)]
            zones[number : number + 1] = [Zone(boxes[0], (own._replace(load=own.load * (1 - share)),)), Zone(boxes[1], (Part(task, own.load * share),))]
        return self._joined(zones)

    def _cut(self, zone: Zone, sample: Sample | None) -> tuple[Cut, float]:
        """Return where a zone is cut, and which share of its load is behind the line."""
        nothing = np.zeros(0, np.int64)
        inside = CellCosts(zone.cells, nothing, nothing, np.zeros(0)) if sample is None else cell_costs(self.gridt.grid, sample).inside(zone.cells)
        cut = inside.cut() or inside.middle()
        return cut, inside.parted(cut)[1].total / inside.total if inside.total else 0.5

    def divide(self, partition: int, task: int) -> dict[str, Any]:
        """Return a plan in which another task has every second bucket of terms of a zone that one task had.

        :param partition: its number; ``task``: the index of the other task.
        :raises IllegalArgumentException: there is no such partition or task, the task has the zone already, or its terms are divided (then :meth:`split` divides them further).
        """
        number, _ = self._partition(partition)
        zones = list(self.gridt.zones)
        zone, own = zones[number], zones[number].parts[0]
        if zone.divided or not 0 <= task < self.tasks or task == own.task:
            legal = [] if zone.divided else [t for t in range(self.tasks) if t != own.task]
            raise IllegalArgumentException(
                "A zone of one task can be divided with another task.",
                given=task,
                legal=", ".join(map(str, legal)) or "none",
                hint="'split' divides terms further",
            )
        parts = [Part(each, own.load / 2, (), tuple(range(half, BUCKETS, 2))) for half, each in enumerate((own.task, task))]
        zones[number] = zone.with_parts(parts)
        return self._joined(zones)

    def merge(self, one: int, other: int) -> dict[str, Any]:
        """Return a plan in which the task of partition ``one`` also has partition ``other``. Zones with the same task that form a rectangle become one.

        :raises IllegalArgumentException: there is no such partition, or both have the same task.
        """
        (first, at), (number, place) = self._partition(one), self._partition(other)
        task, zone = self.gridt.zones[first].parts[at].task, self.gridt.zones[number]
        if zone.parts[place].task == task:
            raise IllegalArgumentException("Two partitions with the same task cannot be merged.", given=f"{one}, {other}")
        zones = list(self.gridt.zones)
        zones[number] = zone.with_parts(part if i != place else part._replace(task=task) for i, part in enumerate(zone.parts))
        return self._joined(zones)

    def _joined(self, zones: list[Zone]) -> dict[str, Any]:
        """Return the plan of zones, after those that one task has are joined if they form a rectangle. O(tasks * (zones of a task)^3)."""
        by_task: dict[int, list[Zone]] = {}
        for zone in zones:
            by_task.setdefault(-1 if zone.divided else zone.parts[0].task, []).append(zone)
        found = by_task.pop(-1, [])
        for own in by_task.values():
            while (pair := _neighbours(own)) is not None:
                one, other = pair
                cells = own[one].cells.union(own[other].cells)
                assert cells is not None
                own[one] = Zone(cells, (own[one].parts[0].joined(own[other].parts[0]),))
                del own[other]
            found += own
        grid = self.gridt.grid
        return self.planned(self.tasks, grid.columns, grid.box, sorted(found, key=lambda zone: zone.cells))


def _neighbours(zones: Sequence[Zone]) -> tuple[int, int] | None:
    """Return two zones that form a rectangle, the first pair; None: there are none."""
    pairs = ((i, j) for i in range(len(zones)) for j in range(i + 1, len(zones)))
    return next((pair for pair in pairs if zones[pair[0]].cells.union(zones[pair[1]].cells) is not None), None)


def _check_costs(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a distributor that learns by the load model, with its defaults.

    :raises IllegalArgumentException: ``costs``, ``matching`` or ``subscriptions`` is not usable.
    """
    found = {"costs": {}, "matching": "checked", "subscriptions": None, **options}
    LoadModel.checked(name, found["costs"])
    if found["matching"] not in ("checked", "product"):
        raise IllegalArgumentException(f"The option matching of the {name} distributor is not usable.", given=found["matching"], legal="checked | product")
    if found["subscriptions"] is not None and (type(found["subscriptions"]) is not int or found["subscriptions"] < 1):
        raise IllegalArgumentException(
            f"The option subscriptions of the {name} distributor is not usable.", given=found["subscriptions"], legal="an integer from 1"
        )
    return found


def sample_loads(grid: AGrid, sample: Sample, options: Mapping[str, Any]) -> SampleLoads:
    """Return the loads of a sample by the options of a distributor."""
    subscriptions = options["subscriptions"] or sample.n
    return SampleLoads(grid, sample, LoadModel(**options["costs"]), options["matching"] == "product", subscriptions)
