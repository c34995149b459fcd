"""The balancing simulation: evaluators, routing and load balancing of Tornado without matching, for more evaluators than a machine carries.

Time goes in seconds. In each one subscriptions come and go, messages go to the evaluators of their cells, and every evaluator sends a summary.
The operations that the routing unit then decides take the next second: the source sends subscriptions, which costs
:data:`TRANSFER_COST` each on both sides. After that the routes change. The load of an evaluator is the cost of its messages and of these transfers.

*Throughput* is what the busiest evaluator leaves: messages per unit of its load. *Balance* is the greatest load by the mean, over
:data:`WINDOW_S` seconds. What balancing sends is counted as bytes of the messages that :mod:`dskype.distribution.agrid.balancing` defines; centralized
balancing would decide the same, but every evaluator would send the cost and the subscriptions of each cell that has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.tornado.balancing_workload import Second, WorkloadSetting, play
from dskype.distribution.agrid.aggregates import Workload
from dskype.distribution.agrid.balancing import (
    BOX_BYTES,
    OPERATION_BYTES,
    Balance,
    Operation,
    Shift,
    boxes_after,
    decide,
    evaluators_of,
    moves_of,
    sized,
    summarize,
)
from dskype.distribution.agrid.grid import AGrid, CellBox
from dskype.distribution.agrid.learning import CellCosts, initial_partitions

__all__ = ["TRANSFER_COST", "WINDOW_S", "BalancingSetting", "Evaluators", "simulate"]

WINDOW_S = 5
"""Seconds over which loads are added up for a balance."""

TRANSFER_COST = 0.2
"""What sending a subscription costs on both sides; a message costs 1."""

_LEARNED_FROM_S = 3
_CELL_BYTES = 12
"""A cell's number, its cost and its subscriptions, 4 bytes each."""
_REFUSED_FOR_S = 10


@dataclass(frozen=True)
class BalancingSetting:
    """One run.

    :ivar adaptive: False: the partitions stay what they are at the start.
    :ivar age: the factor by which costs are multiplied each second after they were counted.
    """

    evaluators: int
    adaptive: bool = True
    age: float = 0.7
    balance: Balance = field(default_factory=Balance)
    workload: WorkloadSetting = field(default_factory=WorkloadSetting)


class Evaluators:
    """The routes of messages, and the workload of each evaluator.

    :param grid: has a partition for each evaluator.
    :param subscriptions: int64[n, 4], cells of the subscriptions.
    """

    def __init__(self, grid: AGrid, subscriptions: np.ndarray) -> None:
        self.grid, self.subscriptions = grid, subscriptions
        self.workloads = {evaluator: Workload(cells) for evaluator, cells in grid.partitions().items()}
        for workload in self.workloads.values():
            workload.add_queries(_touching(workload.box, subscriptions))

    def receive(self, second: Second) -> np.ndarray:
        """Take the subscriptions and messages of a second; return the cost of the messages of each evaluator, float64[evaluators]."""
        self.subscriptions = second.boxes
        owner = self.grid.locate(second.places[:, 1], second.places[:, 0])
        order = np.argsort(owner, kind="stable")
        bounds = np.searchsorted(owner[order], np.arange(len(self.workloads) + 1))
        for evaluator, workload in self.workloads.items():
            workload.remove_queries(_touching(workload.box, second.expired))
            workload.add_queries(_touching(workload.box, second.boxes[second.replaced]))
            rows = order[bounds[evaluator] : bounds[evaluator + 1]]
            workload.record(second.x[rows], second.y[rows], second.cost[rows])
        return np.bincount(owner, second.cost, len(self.workloads))

    def age(self, factor: float) -> None:
        """Let all costs age."""
        for workload in self.workloads.values():
            workload.age(factor)

    def sent(self, operation: Operation) -> dict[tuple[int, int], int]:
        """Return how many subscriptions an operation sends, by (giver, taker): those that the taker does not have."""
        boxes, found = self.grid.partitions(), {}
        after = boxes_after(operation, boxes)
        for taker, new in after.items():
            missing = _touching(new, self.subscriptions)
            missing = missing[~_touches(boxes[taker], missing)]
            for giver in after:
                if giver != taker and (moved := new.intersection(boxes[giver])).cells:
                    found[giver, taker] = len(_touching(moved, missing))
        return found

    def carry_out(self, operation: Operation) -> int:
        """Change partitions and routes; return how many evaluators have to know of it: those that change, and their neighbours."""
        for cells, giver, taker in moves_of(operation, self.grid.partitions()):
            handed_over = self.workloads[giver].costs_in(cells)
            after = self.grid.cells(giver).without(cells)
            self.grid.move(cells, giver, taker)
            if after is not None and after.cells:
                self.workloads[giver] = self.workloads[giver].resized(after, _touching(after, self.subscriptions))
            own = self.grid.cells(taker)
            before = self.workloads[taker] if own != cells else Workload(cells)  # an evaluator that has given everything away starts again
            self.workloads[taker] = before.resized(own, _touching(own, self.subscriptions), handed_over)
        changed = evaluators_of(operation)
        return len(changed.union(*(self.grid.neighbours(evaluator) for evaluator in changed)))


def _touches(cells: CellBox, boxes: np.ndarray) -> np.ndarray:
    """Tell which rows of ``boxes`` have a cell in common with ``cells``, bool[n]."""
    found: np.ndarray = (boxes[:, 0] < cells.x1) & (boxes[:, 2] > cells.x0) & (boxes[:, 1] < cells.y1) & (boxes[:, 3] > cells.y0)
    return found


def _touching(cells: CellBox, boxes: np.ndarray) -> np.ndarray:
    """Return the rows of ``boxes`` that have a cell in common with ``cells``."""
    return boxes[_touches(cells, boxes)]


class _Balancer:
    """The routing unit that decides, and what balancing sends."""

    def __init__(self, evaluators: Evaluators, setting: BalancingSetting) -> None:
        self.evaluators, self.setting = evaluators, setting
        self.under_way: list[Operation] = []
        self.refused: dict[tuple[int, int], int] = {}
        self.operations: dict[str, int] = {"shift": 0, "corner shift": 0, "split/merge": 0}

    def finish(self) -> int:
        """Carry out the operations under way; return the bytes of the messages that say so."""
        known = sum(self.evaluators.carry_out(operation) for operation in self.under_way)
        self.under_way = []
        return known * 2 * BOX_BYTES

    def transfers(self) -> tuple[np.ndarray, int]:
        """Return the load of the transfers under way, float64[evaluators], and the number of subscriptions that they send."""
        load, sent = np.zeros(len(self.evaluators.workloads)), 0
        for operation in self.under_way:
            for ends, queries in self.evaluators.sent(operation).items():
                load[list(ends)] += TRANSFER_COST * queries
                sent += queries
        return load, sent

    def decide(self, now_s: int) -> int:
        """Begin the operations that the summaries ask for; return the bytes of summaries and orders."""
        boxes, workloads, settings = self.evaluators.grid.partitions(), self.evaluators.workloads, self.setting.balance
        summaries = [summarize(evaluator, workload, boxes) for evaluator, workload in workloads.items()]
        sent = sum(summary.size_bytes for summary in summaries)
        self.refused = {pair: until for pair, until in self.refused.items() if until > now_s}
        for operation in decide(boxes, summaries, settings, refused=self.refused):
            chosen: Operation | None = operation
            corner = isinstance(operation, Shift) and operation.size is not None
            sent += 2 * OPERATION_BYTES
            if isinstance(operation, Shift):
                chosen = sized(operation, workloads[operation.source], settings.beta)
                sent += OPERATION_BYTES
                if chosen is None:
                    self.refused[operation.source, operation.target] = now_s + _REFUSED_FOR_S
            if chosen is not None:
                self.under_way.append(chosen)
                self.operations["corner shift" if corner else "shift" if isinstance(operation, Shift) else "split/merge"] += 1
        return sent


def learned_grid(seconds: list[Second], size: int, evaluators: int) -> AGrid:
    """Return a grid with the initial partitions for a sample of the workload."""
    x, y, cost = (np.concatenate([getattr(second, name) for second in seconds]) for name in ("x", "y", "cost"))
    parts = initial_partitions(CellCosts(CellBox(0, 0, size, size), x, y, cost), evaluators)
    return AGrid(size, size, (0.0, 0.0, 1.0, 1.0), {number: part.box for number, part in enumerate(parts)})


def simulate(corpus: Corpus, setting: BalancingSetting) -> dict[str, Any]:
    """Run a simulation.

    :returns: by second: ``phase``, ``balance`` (over the last :data:`WINDOW_S` seconds), ``throughput`` (messages per unit of the busiest
        evaluator), ``sent_bytes`` (what balancing sends), ``centralized_bytes``, ``transferred`` (subscriptions), ``granularity`` (what the
        balance would be if each cell had an evaluator of its own, at least 1); and ``operations`` by kind, ``boxes`` at the end of each phase.
    """
    stream = play(corpus, setting.workload)
    learning = [next(stream) for _ in range(min(_LEARNED_FROM_S, setting.workload.calm_s))]
    grid = learned_grid(learning, setting.workload.grid, setting.evaluators)
    evaluators = Evaluators(grid, learning[-1].boxes)
    balancer = _Balancer(evaluators, setting)
    rows, boxes = [], {}
    for row in _seconds(stream, evaluators, balancer, setting):
        rows.append(row)
        boxes[row["phase"]] = {evaluator: list(box) for evaluator, box in grid.partitions().items()}
    loads = np.array([row.pop("loads") for row in rows])
    for i, row in enumerate(rows):
        recent = loads[max(0, i + 1 - WINDOW_S) : i + 1].sum(axis=0)
        row["balance"] = float(recent.max() / recent.mean())
    series = {key: [row[key] for row in rows] for key in rows[0]}
    return series | {"operations": balancer.operations, "boxes": boxes}


def _seconds(stream: Iterator[Second], evaluators: Evaluators, balancer: _Balancer, setting: BalancingSetting) -> Iterator[dict[str, Any]]:
    grid = setting.workload.grid
    for now_s, second in enumerate(stream):
        load, transferred = balancer.transfers()
        load += evaluators.receive(second)
        cells, number = np.unique(second.x * grid + second.y, return_inverse=True)
        largest = np.bincount(number, second.cost).max()
        sent = balancer.finish()
        if setting.adaptive:
            sent += balancer.decide(now_s)
        evaluators.age(setting.age)
        yield {
            "phase": second.phase,
            "loads": load,
            "throughput": len(second.x) / load.max(),
            "sent_bytes": sent,
            "centralized_bytes": _CELL_BYTES * len(cells),
            "transferred": transferred,
            "granularity": max(1.0, float(largest / load.mean())),
        }
