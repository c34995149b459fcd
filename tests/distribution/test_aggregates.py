"""Workloads of partitions, compared with plain sums over messages and subscriptions."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dskype.distribution.agrid.aggregates import SIDES, Strip, StripLoad, Workload
from dskype.distribution.agrid.grid import CellBox


def contains(cells: CellBox, x: int, y: int) -> bool:
    return cells.x0 <= x < cells.x1 and cells.y0 <= y < cells.y1


class Plain:
    """Messages and subscriptions one by one."""

    def __init__(self, box: CellBox) -> None:
        self.box, self.messages, self.boxes = box, [], []

    def load(self, cells: CellBox) -> tuple[float, int]:
        cost = sum(cost for x, y, cost in self.messages if contains(cells, x, y))
        return cost, sum(bool(CellBox(*box).intersection(cells).cells) for box in self.boxes)

    def strips(self) -> list[Strip]:
        width, height = self.box.x1 - self.box.x0, self.box.y1 - self.box.y0
        return [Strip(side, size) for side in range(4) for size in range(1, height if side % 2 else width)]

    def least_difference(self) -> float:
        return min(abs(self.load(strip.cells(self.box))[0] - self.load(self.box.without(strip.cells(self.box)))[0]) for strip in self.strips())


def drawn(seed: int) -> tuple[Workload, Plain]:
    rng = random.Random(seed)
    x0, y0 = rng.randrange(5), rng.randrange(5)
    box = CellBox(x0, y0, x0 + rng.randint(1, 9), y0 + rng.randint(1, 9))
    workload, plain = Workload(box), Plain(box)
    for _ in range(rng.randrange(60)):
        plain.messages.append((rng.randrange(box.x0, box.x1), rng.randrange(box.y0, box.y1), float(rng.randint(1, 9))))
    if plain.messages:
        x, y, cost = (np.array(column) for column in zip(*plain.messages))
        workload.record(x, y, cost)
    while len(plain.boxes) < 20:
        x, y = rng.randrange(-2, 14), rng.randrange(-2, 14)
        found = CellBox(x, y, x + rng.randint(1, 6), y + rng.randint(1, 6))
        if found.intersection(box).cells:
            plain.boxes.append(found)
    workload.add_queries(np.array(plain.boxes))
    gone = [plain.boxes.pop(rng.randrange(len(plain.boxes))) for _ in range(rng.randrange(20))]
    workload.remove_queries(np.array(gone).reshape(-1, 4))
    return workload, plain


@pytest.mark.parametrize("seed", range(40))
def test_strips_and_cuts_are_those_of_plain_sums(seed):
    workload, plain = drawn(seed)
    workload._check()
    assert (workload.cost, workload.queries) == plain.load(plain.box)
    for strip in plain.strips():
        assert workload.load_of(strip) == StripLoad(strip, *plain.load(strip.cells(plain.box)))
    split = workload.best_split()
    if split is None:
        assert not plain.strips() or not plain.messages
        return
    assert split.moving == StripLoad(split.moving.strip, *plain.load(split.moving.strip.cells(plain.box)))
    assert split.staying == workload.cost - split.moving.cost
    assert abs(split.staying - split.moving.cost) == plain.least_difference()
    assert split.moving.queries <= plain.load(plain.box.without(split.moving.strip.cells(plain.box)))[1]


@pytest.mark.parametrize("seed", range(40))
def test_the_strip_of_a_cost_comes_nearest_to_it(seed):
    workload, plain = drawn(seed)
    for side in range(len(SIDES)):
        wanted = workload.cost * (seed % 10) / 10
        found = workload.strip_of_cost(side, wanted)
        strips = [strip for strip in plain.strips() if strip.side == side]
        if found is None:
            assert not strips
        else:
            assert abs(found.cost - wanted) == min(abs(plain.load(strip.cells(plain.box))[0] - wanted) for strip in strips)


def test_spans_inside_a_partition_count_what_overlaps_them():
    workload, plain = drawn(7)
    x0, y0, x1, y1 = plain.box
    for start in range(x1 - x0):
        for stop in range(start + 1, x1 - x0 + 1):
            assert workload.span(0, start, stop) == plain.load(CellBox(x0 + start, y0, x0 + stop, y1))


def test_costs_age_without_touching_a_cell():
    workload = Workload(CellBox(2, 3, 6, 8))
    older, newer = np.array([6.0, 2.0]), np.array([5.0])
    workload.record(np.array([2, 5]), np.array([3, 7]), older)
    workload.age(0.5)
    workload.record(np.array([5]), np.array([4]), newer)
    assert workload.cost == 9.0
    assert workload.columns().tolist() == [3.0, 0, 0, 6.0] and workload.rows().tolist() == [3.0, 5.0, 0, 0, 1.0]
    for _ in range(400):  # the unit grows until all costs are written again
        workload.age(0.5)
        workload._check()
    assert 0 < workload.cost < 1e-100
    workload.record(np.array([2]), np.array([3]), np.array([1.0]))
    assert workload.cost == 1.0


def test_what_is_handed_over_joins_what_is_kept():
    workload, plain = drawn(3)
    strip = plain.strips()[0]
    cells = strip.cells(plain.box)
    rest = plain.box.without(cells)
    handed_over = workload.costs_in(cells)
    kept = workload.resized(rest, np.array([box for box in plain.boxes if CellBox(*box).intersection(rest).cells]).reshape(-1, 4))
    assert (kept.cost, kept.queries) == plain.load(rest)
    again = kept.resized(plain.box, np.array(plain.boxes), handed_over)
    again._check()
    assert (again.columns() == workload.columns()).all() and (again.rows() == workload.rows()).all()
    assert (again.cost, again.queries) == (workload.cost, workload.queries)
