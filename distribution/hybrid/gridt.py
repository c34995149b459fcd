"""The gridt index: zones of the world whose messages and subscriptions belong to one task each, or are divided by terms (PS2Stream, section IV-C)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.distribution.agrid.grid import AGrid, CellBox
from dskype.distribution.hybrid import gridt_kernels as kernels
from dskype.distribution.routing.interest_kernels import Documents, Pairs, Words, rehash
from dskype.topology.errors import IllegalArgumentException

__all__ = ["BUCKETS", "Gridt", "Part", "Zone", "buckets_of", "read_zones"]

BUCKETS = kernels.BUCKETS


def buckets_of(terms: np.ndarray) -> np.ndarray:
    """Return the bucket of each term (int64[n]), int64[n]."""
    mixed = np.asarray(terms, np.int64).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(56)).astype(np.int64)


class Part(NamedTuple):
    """What a task has of a zone.

    :ivar task: index of the task.
    :ivar load: estimated, in the plan's units.
    :ivar terms: terms that are named, rising.
    :ivar buckets: numbers of the buckets of all other terms, rising; see :func:`buckets_of`.
    """

    task: int
    load: float
    terms: tuple[int, ...] = ()
    buckets: tuple[int, ...] = ()

    def joined(self, other: Part) -> Part:
        """Return both parts as one of this task."""
        terms, buckets = (tuple(sorted((*a, *b))) for a, b in ((self.terms, other.terms), (self.buckets, other.buckets)))
        return Part(self.task, self.load + other.load, terms, buckets)


class Zone(NamedTuple):
    """A leaf of a kdt-tree: a rectangle of cells, which one task has, or several that divide its terms.

    :ivar cells: the rectangle.
    :ivar parts: one part, whose terms and buckets are empty and mean all; or several, of different tasks, which have every bucket once and every named
        term at most once.
    """

    cells: CellBox
    parts: tuple[Part, ...]

    @property
    def divided(self) -> bool:
        """Whether several tasks divide the terms."""
        return len(self.parts) > 1

    @property
    def load(self) -> float:
        """The load of all parts."""
        return sum(part.load for part in self.parts)

    def with_parts(self, parts: Iterable[Part]) -> Zone:
        """Return the zone with other parts; those of the same task are joined, and a single one has everything."""
        by_task: dict[int, Part] = {}
        for part in parts:
            by_task[part.task] = by_task[part.task].joined(part) if part.task in by_task else part
        if len(by_task) == 1:
            ((task, part),) = by_task.items()
            return Zone(self.cells, (Part(task, part.load),))
        return Zone(self.cells, tuple(by_task[task] for task in sorted(by_task)))

    def encode(self) -> dict[str, Any]:
        """Return the zone as a plan has it."""
        if not self.divided:
            return {"cells": list(self.cells), "task": self.parts[0].task, "load": _short(self.parts[0].load)}
        parts = [{"task": p.task, "load": _short(p.load), "terms": list(p.terms), "buckets": list(p.buckets)} for p in self.parts]
        return {"cells": list(self.cells), "parts": parts}


def _short(load: float) -> float:
    return float(f"{load:.6g}")


class Gridt:
    """Finds the tasks of places and terms.

    A place costs one look-up in a grid, as in an A-Grid; a term of a divided zone one more in a hash table of the terms that are named, and else in a table of
    buckets. Memory: 20 bytes for each slot of the hash table, which is at least half empty, and 1 KiB for each divided zone.

    :param tasks: number of tasks.
    :param columns: of the grid; ``rows``: likewise; ``box``: west, south, east, north in degrees.
    :param zones: together they are the whole grid, each cell once.
    :raises IllegalArgumentException: the zones are no division of the grid.
    """

    def __init__(self, tasks: int, columns: int, rows: int, box: Sequence[float], zones: Sequence[Zone]) -> None:
        self.tasks, self.zones = tasks, list(zones)
        self.grid = AGrid(columns, rows, box, {number: zone.cells for number, zone in enumerate(zones)})
        divided = [zone for zone in zones if zone.divided]
        numbers = iter(range(len(divided)))
        task_of = np.array([~next(numbers) if zone.divided else zone.parts[0].task for zone in zones], np.int32)
        buckets = np.zeros((len(divided), BUCKETS), np.int32)
        named = [(term, number, part.task + 1) for number, zone in enumerate(divided) for part in zone.parts for term in part.terms]
        for number, zone in enumerate(divided):
            for part in zone.parts:
                buckets[number, list(part.buckets)] = part.task
        size = 1 << (2 * max(8, len(named))).bit_length()
        table = Pairs(np.zeros(size, np.int64), np.zeros(size, np.int32), np.zeros(size, np.int64))
        rehash(Pairs(*_columns(named)), table)
        self.term_tasks = kernels.TermTasks(task_of, buckets, *table)
        """The tasks as arrays, for kernels."""

    @property
    def memory_bytes(self) -> int:
        """Size of its arrays."""
        return self.grid.memory_bytes + sum(array.nbytes for array in self.term_tasks)

    def place(self, area: Sequence[float], terms: np.ndarray) -> list[int]:
        """Return the tasks of terms in all zones that an area touches, rising.

        :param area: west, south, east, north in degrees; west > east crosses the antimeridian.
        :param terms: int64[n].
        """
        return kernels.place(np.array(area, np.float64), terms, self.grid.arrays, self.term_tasks, self.tasks).tolist()

    def place_many(self, areas: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (offsets int64[n + 1], tasks int32[]) of many areas, each with its terms; see :func:`dskype.distribution.hybrid.gridt_kernels.place_many`."""
        return kernels.place_many(np.asarray(areas, np.float64), offsets, terms, self.grid.arrays, self.term_tasks, self.tasks)

    def tasks_by_zone(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (zones int64[m], tasks int64[m]): the tasks that terms have in each zone. O(zones + terms * divided zones)."""
        whole = np.flatnonzero(self.term_tasks.task_of >= 0)
        zones, tasks = [whole], [self.term_tasks.task_of[whole].astype(np.int64)]
        for zone in np.flatnonzero(self.term_tasks.task_of < 0).tolist():
            own = np.unique(kernels.tasks_of(~int(self.term_tasks.task_of[zone]), terms, self.term_tasks))
            zones.append(np.full(len(own), zone))
            tasks.append(own)
        return np.concatenate(zones), np.concatenate(tasks)

    def route_points(self, offsets: np.ndarray, terms: np.ndarray, lat: np.ndarray, lon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (rows int64[m], tasks int32[m]): the tasks of messages at points."""
        return kernels.route_points(offsets, terms, self.grid.locate(lat, lon), self.term_tasks, self.tasks)

    def route_areas(self, offsets: np.ndarray, terms: np.ndarray, areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (rows int64[m], tasks int32[m]): the tasks of messages that are areas."""
        return kernels.route_areas(offsets, terms, areas, self.grid.arrays, self.term_tasks, self.tasks)

    def wanted_points(self, documents: Documents, lat: np.ndarray, lon: np.ndarray, words: Words, withheld: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Route messages at points by interest, too; see :func:`dskype.distribution.hybrid.gridt_kernels.wanted_points`."""
        return kernels.wanted_points(documents, self.grid.locate(lat, lon), self.term_tasks, words, withheld)


def _columns(named: Sequence[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = np.array(named, np.int64).reshape(-1, 3)
    return found[:, 0].copy(), found[:, 1].astype(np.int32), found[:, 2].copy()


# -- plans ----------------------------------------------------------------------------------------


def _refused(problem: str, given: Any, legal: str) -> IllegalArgumentException:
    return IllegalArgumentException(f"The plan is damaged: {problem}.", given=given, legal=legal, hint="'dskype partition learn' makes plans")


def read_zones(tasks: int, plan: Mapping[str, Any]) -> Gridt:
    """Return the gridt index of a plan.

    :raises IllegalArgumentException: the plan is damaged.
    """
    loads, size, zones = plan.get("loads"), plan.get("grid"), plan.get("zones")
    if not isinstance(loads, list) or len(loads) != tasks or not all(type(x) in (int, float) for x in loads):
        raise _refused("a load for each task is missing", loads, f"{tasks} numbers")
    if not isinstance(size, Mapping) or any(type(size.get(key)) is not int for key in ("columns", "rows")) or not _numbers(size.get("box"), (int, float)):
        raise _refused("the grid is missing", size, '{"columns": n, "rows": n, "box": [west, south, east, north]}')
    if not isinstance(zones, list) or not zones:
        raise _refused("the zones are missing", zones, "a list")
    try:
        return Gridt(tasks, size["columns"], size["rows"], size["box"], [_read_zone(tasks, zone) for zone in zones])
    except IllegalArgumentException as error:
        if "plan is damaged" in str(error):
            raise
        raise _refused("its zones do not fit", str(error), "zones that cover the grid once") from None


def _read_zone(tasks: int, zone: Any) -> Zone:
    if not isinstance(zone, Mapping) or not _numbers(zone.get("cells"), (int,)):
        raise _refused("a zone is not usable", zone, '{"cells": [4 integers], "task": index, "load": number} or {"cells", "parts"}')
    parts = zone.get("parts", [zone])
    if not isinstance(parts, list) or not parts:
        raise _refused("the parts of a zone are missing", parts, "a list")
    found = []
    for part in parts:
        if not isinstance(part, Mapping) or type(part.get("load")) not in (int, float) or type(part.get("task")) is not int or not 0 <= part["task"] < tasks:
            raise _refused("a part of a zone is not usable", part, f'{{"task": 0 to {tasks - 1}, "load": number, "terms": [...], "buckets": [...]}}')
        terms, buckets = part.get("terms", []), part.get("buckets", [])
        if not _integers(terms) or not _integers(buckets):
            raise _refused("the terms of a part are not usable", str(part)[:80], "lists of integers")
        found.append(Part(part["task"], float(part["load"]), tuple(terms), tuple(buckets)))
    if len(found) > 1 or "parts" in zone:
        named, buckets = [t for p in found for t in p.terms], [b for p in found for b in p.buckets]
        if len(set(named)) != len(named) or sorted(buckets) != list(range(BUCKETS)) or len({p.task for p in found}) < max(2, len(found)):
            raise _refused("the parts of a zone do not fit", zone["cells"], f"different tasks; each of {BUCKETS} buckets once, each term at most once")
    return Zone(CellBox(*zone["cells"]), tuple(found))


def _integers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


def _numbers(values: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(values, list) and len(values) == 4 and all(type(value) in kinds for value in values)
