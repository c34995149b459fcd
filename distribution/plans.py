"""The nodes of distribution plans: trees over places, ranges of keywords, and leaves with tasks.

A plan is plain data for JSON: ``{"v", "distributor", "tasks", "root": node, "loads": [float per task]}``. A node is one of

- a leaf, which is a *partition*: ``{"tasks": [t, ...], "load": float, "marks": {...}}``. With several tasks, its subscriptions are spread over
  them by the CRC-32 of their ids. ``marks`` say where it can be cut without a sample: quantiles of the cost along ``term``, or ``lat`` and ``lon``.
- a line: ``{"axis": "lat" | "lon", "at": degrees, "below": node, "above": node}``; a place on the line is above it.
- ranges: ``{"ranges": [{"from": term, "node": node}, ...]}``: a range ends where the next one begins; the first begins at 0, the last has no end.

Lines may be above ranges (spatial first), below them (keyword first), or both. Ranges are not nested. Partitions are numbered in depth-first order.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dskype.distribution.routing._kernels import FlatPlan, Lines, Routes
from dskype.topology.errors import IllegalArgumentException

__all__ = ["Leaf", "checked_root", "edited", "flatten", "joined", "leaf", "leaves"]

Node = dict[str, Any]
_MARKS = 31


def leaf(tasks: list[int], load: float = 0.0, **marks: list[Any]) -> Node:
    """Return a partition."""
    return {"tasks": tasks, "load": float(load), "marks": {key: values for key, values in marks.items() if len(values)}}


class Leaf(NamedTuple):
    """A partition and what it covers.

    :ivar node: the leaf in the plan.
    :ivar box: [west, south, east, north]; None: no border on that side.
    :ivar terms: [first, last + 1]; None: no end.
    :ivar in_range: whether its parent is a list of ranges.
    """

    node: Node
    box: tuple[float | None, float | None, float | None, float | None]
    terms: tuple[int, int | None]
    in_range: bool


def leaves(root: Node) -> Iterator[Leaf]:
    """Yield all partitions, in the order of their numbers."""

    def walk(node: Node, box: tuple[Any, Any, Any, Any], terms: tuple[int, int | None], in_range: bool) -> Iterator[Leaf]:
        if "tasks" in node:
            yield Leaf(node, box, terms, in_range)
        elif "axis" in node:
            low = 1 if node["axis"] == "lat" else 0
            yield from walk(node["below"], (*box[: low + 2], node["at"], *box[low + 3 :]), terms, False)
            yield from walk(node["above"], (*box[:low], node["at"], *box[low + 1 :]), terms, False)
        else:
            ends = [r["from"] for r in node["ranges"][1:]]
            for part, end in zip(node["ranges"], [*ends, None]):
                yield from walk(part["node"], box, (part["from"], end), True)

    yield from walk(root, (None, None, None, None), (0, None), False)


def checked_root(root: Any, tasks: int) -> Node:
    """Check all nodes of a plan; return its root.

    :raises IllegalArgumentException: a node is malformed.
    """

    def refuse(problem: str, given: Any, legal: str) -> IllegalArgumentException:
        return IllegalArgumentException(f"The plan is damaged: {problem}.", given=given, legal=legal, hint="'dskype partition learn' makes plans")

    def check(node: Any, ranged: bool, depth: int) -> None:
        if not isinstance(node, dict) or depth > 200:
            raise refuse("something is no node", node if depth <= 200 else "too many lines", "a map with tasks, axis or ranges")
        if "tasks" in node:
            indexes = node["tasks"]
            legal = isinstance(indexes, list) and indexes and all(type(t) is int and 0 <= t < tasks for t in indexes)
            if not legal or len(set(indexes)) != len(indexes):
                raise refuse("a partition's tasks are not usable", indexes, f"different task indexes from 0 to {tasks - 1}")
        elif "axis" in node:
            if node["axis"] not in ("lat", "lon") or type(node.get("at")) not in (int, float):
                raise refuse("a line is not usable", {key: node.get(key) for key in ("axis", "at")}, "axis lat or lon, at: degrees")
            check(node.get("below"), ranged, depth + 1)
            check(node.get("above"), ranged, depth + 1)
        else:
            parts = node.get("ranges")
            begins = [part.get("from") if isinstance(part, dict) else None for part in parts] if isinstance(parts, list) else []
            if ranged or not begins or not all(type(b) is int for b in begins) or begins[0] != 0 or any(a >= b for a, b in itertools.pairwise(begins)):
                raise refuse("ranges of keywords are not usable", begins[:8], "rising term ids from 0 on, not inside other ranges")
            for part in parts:
                check(part.get("node"), True, depth + 1)

    check(root, False, 0)
    return root


# -- changes --------------------------------------------------------------------------------------


def edited(root: Node, change: Callable[[int, Node], Node]) -> Node:
    """Return a copy with ``change(number, node)`` in place of each partition; neighbours with the same tasks are joined."""
    number = -1

    def walk(node: Node) -> Node:
        nonlocal number
        if "tasks" in node:
            number += 1
            return change(number, node)
        if "axis" in node:
            below, above = walk(node["below"]), walk(node["above"])
            return joined(below, above) or {**node, "below": below, "above": above}
        parts: list[dict[str, Any]] = []
        for part in node["ranges"]:
            child, begin = walk(part["node"]), part["from"]
            for inner in child["ranges"] if "ranges" in child else [{"from": begin, "node": child}]:  # a range that was cut is now a list of ranges
                at = begin if inner["from"] == 0 else inner["from"]
                if parts and (both := joined(parts[-1]["node"], inner["node"], at)):
                    parts[-1]["node"] = both
                else:
                    parts.append({"from": at, "node": inner["node"]})
        return {"ranges": parts}

    return walk(root)


def joined(one: Node, other: Node, term: int | None = None) -> Node | None:
    """Return two neighbours as one partition if they have the same tasks, else None.

    :param term: for ranges, the term at which the second begins.
    """
    if "tasks" not in one or "tasks" not in other or one["tasks"] != other["tasks"]:
        return None
    marks: dict[str, list[Any]] = {}
    for key in {**one["marks"], **other["marks"], **({"term": []} if term is not None else {})}:
        values = sorted({*one["marks"].get(key, ()), *other["marks"].get(key, ()), *((term,) if key == "term" and term is not None else ())})
        step = -(-len(values) // _MARKS)
        marks[key] = values[step // 2 :: step]
    return leaf(one["tasks"], one["load"] + other["load"], **marks)


# -- as arrays ------------------------------------------------------------------------------------


def flatten(root: Node) -> FlatPlan:
    """Return a plan as arrays."""
    lines: list[tuple[int, float, int, int]] = []
    cells: list[list[tuple[int, int, set[int]]]] = []  # first term, root, tasks of each range
    groups: list[list[int]] = []

    def walk(node: Node, end: Callable[[Node], int]) -> int:
        if "axis" not in node:
            return ~end(node)
        number = len(lines)
        lines.append((0, 0.0, 0, 0))
        lines[number] = (int(node["axis"] == "lon"), float(node["at"]), walk(node["below"], end), walk(node["above"], end))
        return number

    def group(node: Node) -> int:
        groups.append(node["tasks"])
        return len(groups) - 1

    def cell(node: Node) -> int:
        number = len(cells)
        cells.append([])
        for part in node["ranges"] if "ranges" in node else [{"from": 0, "node": node}]:
            before = len(groups)
            inner = walk(part["node"], group)
            cells[number].append((part["from"], inner, {task for tasks in groups[before:] for task in tasks}))
        return number

    begin = walk(root, cell)
    bounds = sorted({first for parts in cells for first, _, _ in parts})
    routes = []
    for bound in bounds:
        found: set[int] = set()
        for parts in cells:
            found |= parts[bisect_right(parts, bound, key=lambda part: part[0]) - 1][2]
        routes.append(sorted(found))

    def starts(lists: list[Any]) -> np.ndarray:
        return np.cumsum([0, *map(len, lists)]).astype(np.int64)

    axis, at, below, above = zip(*lines) if lines else ((), (), (), ())
    flat = [part for parts in cells for part in parts]
    return FlatPlan(
        begin,
        Lines(np.array(axis, np.int64), np.array(at, np.float64), np.array(below, np.int64), np.array(above, np.int64)),
        starts(cells),
        np.array([first for first, _, _ in flat], np.int64),
        np.array([inner for _, inner, _ in flat], np.int64),
        starts(groups),
        np.array([t for g in groups for t in g], np.int64),
        Routes(np.array(bounds, np.int64), starts(routes), np.array([t for r in routes for t in r], np.int64)),
    )
