"""Distribution by an A-Grid: rectangular partitions of the world, as in Tornado (section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dskype.distribution.agrid import _kernels as kernels
from dskype.distribution.agrid.balancing import Move
from dskype.distribution.agrid.grid import AGrid, CellBox
from dskype.distribution.agrid.learning import CellCosts, box_of_messages, cell_costs, equal_partitions, initial_partitions, message_costs
from dskype.distribution.agrid.near_tasks import near_tasks, reach_of
from dskype.distribution.agrid.options import GRID_OPTIONS, LEARNED_GRANULARITY, check_grid
from dskype.distribution.base import PLAN_FORMAT, Distributor, HasPartitions, Placed, Sample, check_flag, check_plan, refuse_options
from dskype.distribution.plans import Leaf, leaf
from dskype.distribution.subscriptions import BooleanSubscription, Subscription, TopkSubscription
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.groupings import RowTasks

__all__ = ["AGridDistributor"]

_ONE = np.array([0, 1])
"""The offsets of one rectangle."""


class AGridDistributor(HasPartitions):
    """Places a boolean subscription on every task whose partitions its rectangle touches. A point goes to the one task of its place, an area to those that it touches.

    Communication is 1 for points. Replication grows with the rectangles: a subscription lives on few tasks unless it crosses many borders.

    A top-k subscription has no rectangle: any message may enter its list. It lives on all tasks that have a partition, each of which keeps a list of the messages of its
    partitions, and the result bolt merges the lists. So messages still go to one task, and a topology of boolean subscriptions pays nothing; but N lists are kept for each top-k
    subscription, N times the memory and the evaluations, while the work of matching is divided. When its threshold is known it gives up the tasks whose partitions are so far away that
    no message there reaches it, ``alpha * (1 - distance / diagonal) + 1 - alpha < threshold``, which is the spatial counterpart of the loose prefix.

    A plan has ``grid``: ``{"columns", "rows", "box"}``, and ``partitions``: a list of ``{"cells": [first column, first row, end of the columns, end of the rows], "task", "load"}``, which
    are numbered from 0.

    :param options: for plans without a grid, ``granularity``: columns and rows of the grid (default 4096 with a sample, 1000 without), and ``box``: its [west, south, east, north] in degrees (default: around the
        messages of a sample, :func:`~dskype.distribution.agrid.learning.box_of_messages`; without a sample the world). Messages and rectangles outside of the box belong to the cells at its border. ``summaries`` (default true): a task gets only messages with a routing
        term of its subscriptions (section 3.2).
    """

    name = "agrid"
    legal_options = ("granularity", "box", "summaries")
    summaries = True
    transfers = True
    balances = True

    def __init__(self, tasks: int, options: Mapping[str, Any] | None = None, plan: Mapping[str, Any] | None = None) -> None:
        super().__init__(tasks)
        self.options = self.checked(tasks, options)
        if plan is None:
            grid = self.equal_grid(tasks, self.options)
            plan = self.planned(tasks, grid, list(range(tasks)), np.ones(tasks))
        check_plan(type(self), tasks, plan)
        self._plan = dict(plan)
        self.grid, self.task_of, self._loads = _read_plan(tasks, plan)
        """The partitions. Do not change it, but a copy."""
        self.used = sorted(set(self.task_of.tolist()))
        """The tasks that have a partition, rising."""
        self._reach = reach_of(self.grid)

    # -- options and plans ------------------------------------------------------------------------

    @classmethod
    def checked(cls, tasks: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return all options with their defaults, checked."""
        found: dict[str, Any] = {**GRID_OPTIONS, "summaries": cls.summaries, **refuse_options(cls.name, options, cls.legal_options)}
        check_grid(cls.name, tasks, found)
        check_flag(cls.name, found, "summaries")
        return found

    @classmethod
    def equal_grid(cls, tasks: int, options: Mapping[str, Any]) -> AGrid:
        """Return a grid with a partition of about equal size for each task."""
        n = options["granularity"]
        return AGrid(n, n, options["box"], dict(enumerate(equal_partitions(CellBox(0, 0, n, n), tasks))))

    @classmethod
    def planned(cls, tasks: int, grid: AGrid, task_of: Sequence[int] | np.ndarray, loads: Sequence[float] | np.ndarray) -> dict[str, Any]:
        """Return a plan.

        :param task_of: the task of each partition, by its number.
        :param loads: the load of each partition, by its number; numbers that are free do not count.
        """
        parts = [
            {"cells": list(cells), "task": int(task_of[number]), "load": float(f"{float(loads[number]):.6g}")} for number, cells in grid.partitions().items()
        ]
        sums = np.zeros(tasks)
        for part in parts:
            sums[part["task"]] += part["load"]
        return {
            "v": PLAN_FORMAT,
            "distributor": cls.name,
            "tasks": tasks,
            "loads": sums.tolist(),
            "grid": {"columns": grid.columns, "rows": grid.rows, "box": list(grid.box)},
            "partitions": parts,
        }

    @classmethod
    def learn(cls, tasks: int, sample: Sample, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a plan whose costliest partition costs as little as k-d splits allow: :func:`~dskype.distribution.agrid.learning.initial_partitions`."""
        found = cls.checked(tasks, options)
        if not sample.n or not sample.messages.n:
            return cls(tasks, options).plan()
        given = options or {}
        n = found["granularity"] if "granularity" in given else LEARNED_GRANULARITY
        box = found["box"] if "box" in given else box_of_messages(sample.messages.lat, sample.messages.lon)
        parts = initial_partitions(cell_costs(AGrid(n, n, box), sample), tasks)
        grid = AGrid(n, n, box, {number: part.box for number, part in enumerate(parts)})
        return cls.planned(tasks, grid, list(range(tasks)), np.array([part.total for part in parts]) / sample.messages.n)

    def plan(self) -> dict[str, Any]:
        """Return the plan."""
        return self._plan

    def loads(self) -> np.ndarray:
        """Return the cost of a message at each task: 1 + the subscriptions that it concerns, times the share of the messages."""
        return np.array(self._plan["loads"], np.float64)

    @classmethod
    def costs_of(cls, grid: AGrid, sample: Sample) -> np.ndarray:
        """Return what a message of a sample costs in each partition, float64[partitions], times the share of the messages."""
        found = grid.locate(sample.messages.lat, sample.messages.lon)
        return np.bincount(found, message_costs(sample), len(grid.arrays.bounds)) / max(1, sample.messages.n)

    def task_loads(self, sample: Sample, offsets: np.ndarray, tasks: np.ndarray, routes: RowTasks | None) -> np.ndarray:
        """Return the cost of each task for a sample, float64[tasks]; see :meth:`loads`."""
        return np.bincount(self.task_of, self.costs_of(self.grid, sample), self.tasks)

    @property
    def memory_bytes(self) -> int:
        """Size of the A-Grid."""
        return self.grid.memory_bytes + self.task_of.nbytes

    # -- routing ----------------------------------------------------------------------------------

    def place(self, name: str, subscription: Subscription, threshold: float | None = None) -> Placed:
        """Return the tasks of all partitions that a rectangle touches; of a top-k subscription, all tasks that have a partition not too far away."""
        if isinstance(subscription, BooleanSubscription):
            _, found = kernels.route_areas(_ONE, np.array([subscription.bbox], np.float64), self.grid.arrays, self.task_of, self.tasks)
            return Placed(sorted(found.tolist()))
        return self.place_topk(subscription, threshold)

    def place_topk(self, subscription: TopkSubscription, threshold: float | None) -> Placed:
        """Return the tasks with a partition from which a message may reach a score. O(partitions).

        :param threshold: the score; None or -inf: any.
        """
        if threshold is None or threshold == -np.inf:
            return Placed(list(self.used))
        return near_tasks(subscription, threshold, self._reach, self.task_of, self.tasks)

    def message_tasks(self, messages: MessageBatch) -> RowTasks:
        """Return the task of each point, and all tasks that each area touches."""
        if messages.areas is None:
            return RowTasks(*kernels.route_points(messages.offsets, messages.lat, messages.lon, self.grid.arrays, self.task_of))
        return RowTasks(*kernels.route_areas(messages.offsets, messages.areas, self.grid.arrays, self.task_of, self.tasks))

    def giving_tasks(self, other: Distributor) -> list[int] | None:
        """Return the tasks that have cells which another task has by another plan; None: the other plan has another grid. O(partitions)."""
        assert isinstance(other, AGridDistributor)
        if not self.grid.has_cells_of(other.grid):
            return None
        owner = {number: int(self.task_of[number]) for number in self.grid.partitions()}
        return sorted({task for number, task in owner.items() if any(other.task_of[p] != task for p in other.grid.search(self.grid.cells(number)))})

    # -- changes of the plan ----------------------------------------------------------------------

    def leaves(self) -> list[Leaf]:
        """Return all partitions and what they cover."""
        found = []
        for task, load, reach in zip(self.task_of.tolist(), self._loads.tolist(), self._reach.tolist()):
            west, south, east, north = (border if np.isfinite(border) else None for border in reach)
            found.append(Leaf(leaf([task], load), (west, south, east, north), (0, None), False))
        return found

    def partitions(self) -> list[dict[str, Any]]:
        """Return number, tasks, load and extent (``box`` in degrees, None: no border on that side; and ``cells``) of each partition."""
        return [
            {"number": number, "tasks": part.node["tasks"], "load": part.node["load"], "box": list(part.box), "cells": list(self.grid.cells(number))}
            for number, part in enumerate(self.leaves())
        ]

    def split(self, partition: int, task: int, sample: Sample | None = None) -> dict[str, Any]:
        """Return a plan in which another task has half of a partition.

        :param partition: its number.
        :param task: the index of the other task.
        :param sample: says where to cut; default: in the middle of the longer side.
        :raises IllegalArgumentException: there is no such partition or task, the task has the partition already, or it is a single cell.
        """
        cells, own = self.grid.cells(partition), int(self.task_of[partition])
        if not 0 <= task < self.tasks or task == own or cells.cells == 1:
            legal = [t for t in range(self.tasks) if t != own] if cells.cells > 1 else []
            raise IllegalArgumentException(
                "A partition of several cells can be split with a task that does not have it.", given=task, legal=", ".join(map(str, legal)) or "none"
            )
        inside = CellCosts(cells, np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        if sample is not None:
            inside = cell_costs(self.grid, sample).inside(cells)
        cut = inside.cut() or inside.middle()
        share = inside.parted(cut)[1].total / inside.total if inside.total else 0.5
        grid = self.grid.copy()
        grid.split(partition, cut.axis, cut.at + (cells.x0 if cut.axis == "lon" else cells.y0), len(self.task_of))
        moved = float(self._loads[partition]) * share
        loads = np.append(self._loads, moved)
        loads[partition] -= moved
        return self._joined(grid, np.append(self.task_of, task), loads)

    def merge(self, one: int, other: int) -> dict[str, Any]:
        """Return a plan in which the task of partition ``one`` also has partition ``other``. Neighbours with the same task that form a rectangle become one partition.

        :raises IllegalArgumentException: there is no such partition, or both have the same task.
        """
        self.grid.cells(one), self.grid.cells(other)
        if self.task_of[one] == self.task_of[other]:
            raise IllegalArgumentException("Two partitions with the same task cannot be merged.", given=f"{one}, {other}")
        task_of = self.task_of.copy()
        task_of[other] = task_of[one]
        return self._joined(self.grid.copy(), task_of, self._loads.copy())

    def shift(self, giver: int, taker: int, at: int | None = None) -> dict[str, Any]:
        """Return a plan in which a partition has some cells of a neighbour; see :meth:`AGrid.shift`. Their load is taken to be in proportion to the cells."""
        grid, before = self.grid.copy(), self.grid.cells(giver).cells
        moved = grid.shift(giver, taker, at).cells / before * self._loads[giver]
        loads = self._loads.copy()
        loads[giver] -= moved
        loads[taker] += moved
        return self._joined(grid, self.task_of, loads)

    def task_boxes(self) -> dict[int, CellBox] | None:
        """Return the partition of each task that has one; None: a task has several, and load balancing does not apply."""
        return {int(self.task_of[number]): cells for number, cells in self.grid.partitions().items()} if len(self.used) == len(self.task_of) else None

    def rearranged(self, moves: Sequence[Move], loads: Mapping[int, float]) -> dict[str, Any]:
        """Return the plan after moves of cells between tasks, where each task has at most one partition.

        :param moves: in order; :func:`~dskype.distribution.agrid.balancing.moves_of`.
        :param loads: of each task before them. A load is taken to move in proportion to the cells.
        """
        boxes = self.task_boxes()
        assert boxes is not None
        grid = AGrid(self.grid.columns, self.grid.rows, self.grid.box, boxes)
        after = np.array([loads.get(task, 0.0) for task in range(self.tasks)])
        for cells, giver, taker in moves:
            moved = after[giver] * cells.cells / grid.cells(giver).cells
            after[giver], after[taker] = after[giver] - moved, after[taker] + moved
            grid.move(cells, giver, taker)
        return self.planned(self.tasks, grid, range(self.tasks), after)

    def _joined(self, grid: AGrid, task_of: np.ndarray, loads: np.ndarray) -> dict[str, Any]:
        """Return the plan of partitions after joining neighbours that have the same task and form a rectangle; changes ``grid`` and ``loads``."""
        joining = True
        while joining:
            joining = False
            for number in grid.partitions():
                for other in grid.neighbours(number) if number in grid.partitions() else ():
                    if task_of[number] == task_of[other] and grid.cells(number).union(grid.cells(other)) is not None:
                        grid.merge(number, other)
                        loads[number] += loads[other]
                        joining = True
                        break
        return self.planned(self.tasks, grid, task_of, loads)


def _read_plan(tasks: int, plan: Mapping[str, Any]) -> tuple[AGrid, np.ndarray, np.ndarray]:
    """Return the grid, the task of each partition (int32) and its load (float64).

    :raises IllegalArgumentException: the plan is damaged.
    """

    def refuse(problem: str, given: Any, legal: str) -> IllegalArgumentException:
        return IllegalArgumentException(f"The plan is damaged: {problem}.", given=given, legal=legal, hint="'dskype partition learn' makes plans")

    loads, size, parts = plan.get("loads"), plan.get("grid"), plan.get("partitions")
    if not isinstance(loads, list) or len(loads) != tasks or not all(type(x) in (int, float) for x in loads):
        raise refuse("a load for each task is missing", loads, f"{tasks} numbers")
    if not isinstance(size, Mapping) or any(type(size.get(key)) is not int for key in ("columns", "rows")) or not _numbers(size.get("box"), (int, float)):
        raise refuse("the grid is missing", size, '{"columns": n, "rows": n, "box": [west, south, east, north]}')
    if not isinstance(parts, list) or not parts:
        raise refuse("the partitions are missing", parts, "a list")
    for part in parts:
        if not isinstance(part, Mapping) or not _numbers(part.get("cells"), (int,)) or type(part.get("load")) not in (int, float):
            raise refuse("a partition is not usable", part, '{"cells": [4 integers], "task": index, "load": number}')
        if type(part.get("task")) is not int or not 0 <= part["task"] < tasks:
            raise refuse("a partition's task is not usable", part.get("task"), f"0 to {tasks - 1}")
    try:
        grid = AGrid(size["columns"], size["rows"], size["box"], {number: part["cells"] for number, part in enumerate(parts)})
    except IllegalArgumentException as error:
        raise refuse("its partitions do not fit", str(error), "partitions that cover the grid once") from None
    return grid, np.array([part["task"] for part in parts], np.int32), np.array([part["load"] for part in parts], np.float64)


def _numbers(values: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(values, list) and len(values) == 4 and all(type(value) in kinds for value in values)
