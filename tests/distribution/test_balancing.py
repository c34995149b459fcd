"""Decisions of load balancing: what evaluators offer, what is chosen, and what it brings, on random partitions of a small grid."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dskype.distribution.agrid.aggregates import Strip, Workload
from dskype.distribution.agrid.balancing import (
    Balance,
    Shift,
    SplitMerge,
    boxes_after,
    closed_sides,
    corner_neighbours,
    decide,
    evaluators_of,
    moves_of,
    sized,
    summarize,
)
from dskype.distribution.agrid.grid import AGrid, CellBox
from dskype.distribution.agrid.learning import CellCosts, halved_partitions

pytestmark = pytest.mark.long

SIDE = 24


class World:
    """Evaluators with random messages, most of them in a corner, and subscriptions."""

    def __init__(self, seed: int, evaluators: int = 12) -> None:
        self.random = np.random.default_rng(seed)
        even = self.random.integers(SIDE, size=(400, 2))
        parts = halved_partitions(CellCosts(CellBox(0, 0, SIDE, SIDE), *even.T, np.ones(400)), evaluators)
        self.grid = AGrid(SIDE, SIDE, partitions={number: part.box for number, part in enumerate(parts)})
        self.messages = np.concatenate((even, self.random.integers(8, size=(800, 2))))
        corners = self.random.integers(SIDE - 4, size=(200, 2))
        self.subscriptions = np.concatenate((corners, corners + self.random.integers(1, 5, (200, 2))), axis=1)

    def workloads(self) -> dict[int, Workload]:
        found = {}
        for evaluator, cells in self.grid.partitions().items():
            found[evaluator] = Workload(cells)
            inside = [m for m in self.messages.tolist() if cells.x0 <= m[0] < cells.x1 and cells.y0 <= m[1] < cells.y1]
            if inside:
                found[evaluator].record(*np.array(inside).T, np.ones(len(inside)))
            touching = [box for box in self.subscriptions.tolist() if CellBox(*box).intersection(cells).cells]
            found[evaluator].add_queries(np.array(touching).reshape(-1, 4))
        return found

    def summaries(self):
        boxes = self.grid.partitions()
        return [summarize(evaluator, workload, boxes) for evaluator, workload in self.workloads().items()]

    def carry_out(self, operation) -> None:
        for move in moves_of(operation, self.grid.partitions()):
            self.grid.move(*move)
        self.grid._check()


@pytest.mark.parametrize("seed", range(10))
def test_corners_and_closed_sides_are_those_of_the_grid(seed):
    world, rng = World(seed), random.Random(seed)
    for _ in range(6):
        boxes = world.grid.partitions()
        for evaluator in boxes:
            offered = {(other, strip.cells(boxes[evaluator])) for other, strip in corner_neighbours(boxes, evaluator)}
            found = {(other, world.grid.corner(evaluator, other)) for other in world.grid.neighbours(evaluator)}
            whole = {other for other in boxes if boxes[evaluator].union(boxes[other]) is not None}
            assert offered == {(other, cells) for other, cells in found if cells is not None and other not in whole}
            assert len(offered) <= 8
            for side, neighbours in closed_sides(boxes, evaluator).items():
                border = Strip(side, 1).cells(boxes[evaluator])
                assert sum(size for _, size in neighbours) == border.cells
        operations = decide(boxes, world.summaries(), Balance(beta=0.0, tolerance=0.0))
        operation = rng.choice([o for o in operations if isinstance(o, SplitMerge) or o.size is not None] or [None])
        if operation is None:
            break
        world.carry_out(operation)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("evaluators, beta", [(12, 0.0), (12, 0.3), (4, 0.0), (4, 0.3), (3, 0.1)])
def test_each_operation_lowers_the_greatest_cost_of_its_evaluators_by_more_than_its_overhead(seed, evaluators, beta):
    world = World(seed, evaluators)
    carried_out = 0
    for _ in range(12):
        workloads = world.workloads()
        operations = decide(world.grid.partitions(), world.summaries(), Balance(beta=beta))
        involved = [evaluator for operation in operations for evaluator in evaluators_of(operation)]
        assert len(involved) == len(set(involved)), "an evaluator takes part in one operation at a time"
        for operation in operations:
            chosen = sized(operation, workloads[operation.source], beta) if isinstance(operation, Shift) else operation
            if chosen is None:
                continue
            takers, boxes = evaluators_of(chosen), world.grid.partitions()
            before = max(workloads[evaluator].cost for evaluator in takers)
            queries = 0
            for taker, cells in boxes_after(chosen, boxes).items():
                touching = [box for box in map(CellBox._make, world.subscriptions.tolist()) if box.intersection(cells).cells]
                queries += sum(not box.intersection(boxes[taker]).cells for box in touching)
            world.carry_out(chosen)
            assert all(world.grid.cells(taker) == cells for taker, cells in boxes_after(chosen, boxes).items())
            after = world.workloads()
            assert before - max(after[evaluator].cost for evaluator in takers) > beta * queries - 1e-9
            assert sum(workload.cost for workload in after.values()) == len(world.messages)
            carried_out += 1
    assert carried_out


def test_balancing_reaches_a_hotspot():
    world = World(5)
    mean = len(world.messages) / len(world.grid.partitions())
    assert max(workload.cost for workload in world.workloads().values()) > 3 * mean
    refused: set[tuple[int, int]] = set()
    for _ in range(30):
        workloads = world.workloads()
        for operation in decide(world.grid.partitions(), world.summaries(), Balance(beta=0.01), refused=refused):
            chosen = sized(operation, workloads[operation.source], 0.01) if isinstance(operation, Shift) else operation
            if chosen is None:
                refused.add((operation.source, operation.target))
            else:
                world.carry_out(chosen)
    assert max(workload.cost for workload in world.workloads().values()) <= 1.3 * mean


def test_an_idle_evaluator_gets_work_though_all_its_sides_touch_the_loaded_one():
    """A partition is merged with its neighbours although one of them is the one to be split."""
    grid = AGrid(8, 8, partitions={0: (0, 0, 4, 4), 1: (0, 4, 4, 8), 2: (4, 0, 8, 8)})  # 2 has nothing to do, and 0 has all
    boxes = grid.partitions()
    workloads = {evaluator: Workload(cells) for evaluator, cells in boxes.items()}
    workloads[0].record(np.array([0, 1, 2, 3]), np.array([0, 1, 2, 3]), np.full(4, 10.0))
    workloads[1].record(np.array([1]), np.array([6]), np.array([20.0]))
    summaries = [summarize(evaluator, workload, boxes) for evaluator, workload in workloads.items()]
    [operation] = decide(boxes, summaries, Balance(beta=0.1))
    assert isinstance(operation, SplitMerge) and (operation.source, operation.auxiliary) == (0, 2)
    for move in moves_of(operation, boxes):
        grid.move(*move)
    after = grid.partitions()
    assert after == boxes_after(operation, boxes) and after[1] == CellBox(0, 4, 8, 8)
    assert sorted(sum(after[e].x0 <= i < after[e].x1 and after[e].y0 <= i < after[e].y1 for i in range(4)) for e in (0, 2)) == [2, 2]


@pytest.mark.parametrize("evaluators", [2, 3, 4, 6])
def test_no_evaluator_stays_idle_while_another_one_has_more_than_its_share(evaluators):
    """Whatever the partitions were before, a hotspot in a corner comes to all evaluators."""
    for seed in range(8):
        world, refused = World(seed, evaluators), set[tuple[int, int]]()
        world.messages = world.random.integers(12, size=(1_000, 2))
        for _ in range(25):
            workloads = world.workloads()
            for operation in decide(world.grid.partitions(), world.summaries(), Balance(beta=0.0, tolerance=0.05), refused=refused):
                chosen = sized(operation, workloads[operation.source], 0.0) if isinstance(operation, Shift) else operation
                if chosen is None:
                    refused.add((operation.source, operation.target))
                else:
                    world.carry_out(chosen)
        costs = [workload.cost for workload in world.workloads().values()]
        assert max(costs) <= 1.5 * len(world.messages) / evaluators, (seed, costs)


def test_a_split_is_decided_by_cost_reduction_and_subscriptions():
    """Two evaluators without load are merged for the sake of a third, unless sending the subscriptions costs more than that brings."""
    grid = AGrid(8, 8, partitions={0: (0, 0, 4, 8), 1: (4, 0, 8, 4), 2: (4, 4, 8, 8)})
    boxes = grid.partitions()
    workloads = {evaluator: Workload(cells) for evaluator, cells in boxes.items()}
    workloads[0].record(np.array([0, 0, 3, 3]), np.array([1, 5, 1, 5]), np.full(4, 10.0))
    workloads[1].record(np.array([5]), np.array([1]), np.array([1.0]))
    workloads[2].record(np.array([5]), np.array([6]), np.array([2.0]))
    workloads[2].add_queries(np.array([[4, 4, 8, 8]] * 10))
    summaries = [summarize(evaluator, workload, boxes) for evaluator, workload in workloads.items()]
    assert [s.evaluator for s in summaries if s.split and s.cost == 40] == [0]
    [operation] = decide(boxes, summaries, Balance(beta=0.1))
    assert isinstance(operation, SplitMerge)
    assert operation.source == 0 and operation.auxiliary == 1, "the one with fewer subscriptions is given away"
    for move in moves_of(operation, boxes):
        grid.move(*move)
    assert grid.cells(2) == CellBox(4, 0, 8, 8) and grid.cells(0).union(grid.cells(1)) == CellBox(0, 0, 4, 8)
    workloads[0].add_queries(np.array([[0, 0, 4, 8]] * 100))
    summaries[0] = summarize(0, workloads[0], boxes)
    assert decide(boxes, summaries, Balance(beta=0.3)) == []
    assert decide(boxes, summaries, Balance(beta=0.1), resting={1, 2}) == []
