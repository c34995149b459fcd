"""The workload of a subscription task's partition, for load balancing (Tornado, section 4.3).

The distribution task that balances says which partitions there are (``PartitionMap``). From then on the task measures its own: a message costs 1,
and 1 for each boolean subscription that it matches. It reports a summary once in a period, and answers how much of its partition a shift
should move. When partitions change, it keeps the costs of the cells that it keeps, and hands those of the others over to the tasks that get the
cells. So the costs of all tasks cover the same time, and the next decision needs no new measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dskype.bolts.balancing.workload_meter import WorkloadMeter
from dskype.bolts.message_queue import Arrived
from dskype.bolts.protocol.balance import BalanceMessage, HandedOver, PartitionMap, ShiftSized, SizeShift, WorkloadReport
from dskype.distribution.agrid.aggregates import Workload
from dskype.distribution.agrid.balancing import REDUCTION_LASTS, Shift, sized, summarize
from dskype.distribution.agrid.distributor import AGridDistributor
from dskype.distribution.agrid.grid import CellBox
from dskype.distribution.agrid.learning import CellCosts
from dskype.spouts.settings import BalanceSettings

__all__ = ["Evaluator"]

_LEAST_COST = 0.01
"""Cells with a cost below this are not handed over: they are many, and weigh nothing."""

_AT_ONCE = 10_000
"""Cells in a message, of 16 bytes each."""

_CHANGES_MAX = 4_096
"""The most subscriptions that come or go and are counted together."""


class Evaluator(WorkloadMeter):
    """Measures the workload of one subscription task; see the module. O(1) per message, match and subscription.

    :param index: index of the task.
    :param settings: of load balancing.
    :param make: makes a distributor from a plan.
    :param send: sends a message to the distribution task that balances.
    :param hand_over: sends costs to another subscription task, by its index.
    """

    def __init__(
        self,
        index: int,
        settings: BalanceSettings,
        make: Callable[[Mapping[str, Any]], Any],
        send: Callable[[BalanceMessage], None],
        hand_over: Callable[[int, HandedOver], None],
    ) -> None:
        super().__init__(index, settings, send)
        self._make, self._hand_over = make, hand_over
        self._version = -1
        self._plan: Mapping[str, Any] | None = None
        self._distributor: AGridDistributor | None = None
        self._boxes: dict[int, CellBox] = {}  # the partition map
        self._workload: Workload | None = None  # None: no partition, or several
        self._areas = np.zeros((0, 4))  # by slot: rectangle of a subscription; NaN: there is none
        self._changes: list[tuple[int, Sequence[float]]] = []  # sign and rectangle of subscriptions that are yet to be counted in or out
        self._early: list[HandedOver] = []  # costs of partitions that are yet to be announced

    @property
    def measures(self) -> bool:
        """Whether the task has one partition."""
        return self._workload is not None

    # -- partitions ---------------------------------------------------------------------------------------------------

    def adopt(self, message: PartitionMap) -> None:
        """Measure another partition from now on. O(cells of both partitions + subscriptions)."""
        if message.version <= self._version:
            return
        before, grid = self._workload, None if self._distributor is None else self._distributor.grid
        self._version = message.version
        self._read_plan(message.plan)
        self._workload, self._changes, self._report_ms = None, [], None
        if before is not None and (self._distributor is None or grid is None or not grid.has_cells_of(self._distributor.grid)):
            before = None  # the cells are others
        if before is not None:
            self._give(before)
        if self._index in self._boxes:
            box = self._boxes[self._index]
            self._workload = Workload(box) if before is None else before
            self._workload = self._workload.resized(box, self._overlapping(self._areas, box))
        early, self._early = self._early, []
        for costs in early:
            self.take(costs)

    def _give(self, workload: Workload) -> None:
        """Hand the costs of cells over to the tasks that have them now."""
        for index, box in self._boxes.items():
            cells = box.intersection(workload.box)
            if index != self._index and cells.cells:
                _, x, y, cost = workload.costs_in(cells)
                some = cost >= _LEAST_COST
                x, y, cost = x[some].astype(np.int32), y[some].astype(np.int32), cost[some]
                for start in range(0, len(x), _AT_ONCE):
                    part = slice(start, start + _AT_ONCE)
                    self._hand_over(index, HandedOver(self._version, x[part], y[part], cost[part]))

    def take(self, message: HandedOver) -> None:
        """Add costs of cells that another task had before; if they come before the partition, when it comes."""
        if message.version > self._version:
            self._early.append(message)
        elif message.version == self._version and self._workload is not None:
            costs = CellCosts(self._workload.box, *message[1:]).inside(self._workload.box)
            self._workload.record(*costs[1:])

    def _read_plan(self, plan: Mapping[str, Any] | None) -> None:
        self._plan = plan
        self._distributor = None if plan is None else self._make(plan)
        self._boxes = {} if self._distributor is None else self._distributor.task_boxes() or {}

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def open(self, slot: int, bbox: Sequence[float]) -> None:
        """Count a boolean subscription in."""
        if slot >= len(self._areas):
            self._areas = np.concatenate((self._areas, np.full((slot + 16 - len(self._areas) + slot // 2, 4), np.nan)))
        self._areas[slot] = bbox
        self._change(1, bbox)

    def forget(self, slot: int) -> None:
        """Count a boolean subscription out."""
        self._change(-1, self._areas[slot].tolist())
        self._areas[slot] = np.nan

    def _change(self, sign: int, bbox: Sequence[float]) -> None:
        if self._workload is not None:
            self._changes.append((sign, bbox))
            if len(self._changes) >= _CHANGES_MAX:
                self._count_changes()

    def _count_changes(self) -> None:
        """Count the subscriptions that have come and gone: many at a time, because each call takes as long as many of them."""
        if self._workload is not None and self._changes:
            sign, areas = np.array([sign for sign, _ in self._changes]), np.array([bbox for _, bbox in self._changes])
            self._workload.add_queries(self._overlapping(areas[sign > 0], self._workload.box))
            self._workload.remove_queries(self._overlapping(areas[sign < 0], self._workload.box))
        self._changes = []

    def _overlapping(self, areas: np.ndarray, box: CellBox) -> np.ndarray:
        """Return the cells of areas that overlap a partition, int64[m, 4]; an area across the antimeridian may count twice."""
        assert self._distributor is not None
        _, boxes = self._distributor.grid.boxes_of(areas[~np.isnan(areas[:, 0])])
        return boxes[(boxes[:, 0] < box.x1) & (boxes[:, 2] > box.x0) & (boxes[:, 1] < box.y1) & (boxes[:, 3] > box.y0)]

    # -- messages -----------------------------------------------------------------------------------------------------

    def record(self, arrived: Arrived, rows: np.ndarray | None = None) -> None:
        """Add 1 to the cost of a message's cell, for each message or for each row of ``rows``.

        A point outside the partition came by an older plan, and does not count. An area counts at its centre, or at the cell nearest to it.
        """
        workload, messages = self._workload, arrived.messages
        if workload is None or not messages.n:
            return
        assert self._distributor is not None
        lat, lon, areas = messages.lat, messages.lon, messages.areas
        if rows is not None:
            lat, lon, areas = lat[rows], lon[rows], None if areas is None else areas[rows]
        x, y = self._distributor.grid.cells_of(lat, lon)
        x0, y0, x1, y1 = workload.box
        if areas is not None:
            wide = (areas[:, 0] != areas[:, 2]) | (areas[:, 1] != areas[:, 3])
            x, y = np.where(wide, np.clip(x, x0, x1 - 1), x), np.where(wide, np.clip(y, y0, y1 - 1), y)
        inside = (x >= x0) & (x < x1) & (y >= y0) & (y < y1)
        workload.record(x[inside], y[inside], np.ones(int(inside.sum())))

    # -- reports ------------------------------------------------------------------------------------------------------

    def report(self) -> None:
        """Report the workload; then let it age."""
        assert self._workload is not None
        self._count_changes()
        self._send(WorkloadReport(self._version, summarize(self._index, self._workload, self._boxes)))
        self._workload.age(self._settings.aging)

    def size(self, message: SizeShift) -> None:
        """Answer how much a shift should move."""
        chosen = None
        self._count_changes()
        if self._workload is not None and message.source_cost > 0:
            scale = self._workload.cost / message.source_cost
            shift = Shift(self._index, message.target, message.side, None, message.cost * scale)
            chosen = sized(shift, self._workload, self._settings.beta / REDUCTION_LASTS * scale)
        self._send(ShiftSized(message.decision, self._index, None if chosen is None else chosen.size))

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as arrays and plain values."""
        self._count_changes()
        workload = None if self._workload is None else self._workload.snapshot()
        return [self._version, self._plan, workload, np.array(self._areas), self._report_ms, [costs.encode() for costs in self._early]]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._version, plan, workload, areas, self._report_ms, early = state
        self._read_plan(plan)
        self._workload = None if workload is None else Workload.restored(workload)
        self._areas = np.array(areas).reshape(-1, 4)
        self._early = [HandedOver.decode(record) for record in early]

    def _check(self) -> None:
        """Verify that the workload counts exactly the subscriptions of the task."""
        self._count_changes()
        if self._workload is not None:
            self._workload._check()
            assert self._workload.queries == len(self._overlapping(self._areas, self._workload.box))
