"""Load balancing of the partitions of an A-Grid (Tornado, section 4.2): the subscription tasks report summaries, and operations become a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dskype.bolts.balancing.balancer import Balancer
from dskype.bolts.placement.epochs import Epochs
from dskype.bolts.protocol.balance import BalanceMessage, ShiftSized, SizeShift, WorkloadReport
from dskype.distribution.agrid.aggregates import Strip
from dskype.distribution.agrid.balancing import REDUCTION_LASTS, Balance, Merger, Move, Operation, Part, Shift, SplitMerge, Summary, decide, moves_of
from dskype.distribution.agrid.distributor import AGridDistributor
from dskype.distribution.agrid.grid import CellBox
from dskype.spouts.settings import BalanceSettings

__all__ = ["PartitionBalancer"]

_REFUSED_ROUNDS = 10
"""How many rounds a shift that its source has refused is not asked for again."""


class PartitionBalancer(Balancer):
    """Decides by ``decide`` of :mod:`dskype.distribution.agrid.balancing`. Parameters are those of :class:`~dskype.bolts.balancing.balancer.Balancer`."""

    def __init__(self, settings: BalanceSettings, epochs: Epochs, write: Callable[[bytes], None], context: Any) -> None:
        super().__init__(settings, epochs, write, context)
        self._boxes: dict[int, CellBox] = {}  # the partitions that are measured, by task; empty: they cannot be balanced
        self._summaries: dict[int, Summary] = {}  # of the present round
        self._decision = 0
        self._operations: list[Operation] = []  # of the decision under way
        self._costs: dict[int, float] = {}  # of its tasks
        self._waits_for: list[int] = []  # tasks that choose the size of a shift
        self._refused: dict[tuple[int, int], int] = {}  # (source, target) -> round
        self._counters = {name: context.register_counter(name) for name in ("balance_refusals", "balance_cells")}

    # -- partitions ---------------------------------------------------------------------------------------------------

    def _begin_plan(self) -> Mapping[str, Any]:
        self._read_boxes()
        self._summaries, self._operations, self._waits_for = {}, [], []
        return self._plans.present.plan()

    def _read_boxes(self) -> None:
        self._boxes = self._distributor().task_boxes() or {}

    def _distributor(self) -> AGridDistributor:
        found = self._plans.present
        assert isinstance(found, AGridDistributor)
        return found

    # -- reports and decisions ----------------------------------------------------------------------------------------

    def receive(self, message: BalanceMessage) -> None:
        """Handle a message of a subscription task."""
        if isinstance(message, ShiftSized):
            self._record_size(message)
        elif isinstance(message, WorkloadReport) and self._is_current(message):
            self._summaries[message.summary.evaluator] = message.summary
            if len(self._summaries) == len(self._boxes):
                self._finish_round()

    def _is_current(self, message: WorkloadReport) -> bool:
        """Tell whether a report is about the partitions in force, and none but these are to come."""
        return message.version == self._announced and not self._replaced()

    def _finish_round(self) -> None:
        summaries, self._summaries = list(self._summaries.values()), {}
        if not self._begin_round([summary.cost for summary in summaries]) or self._operations:
            return
        self._refused = {pair: until for pair, until in self._refused.items() if until > self._round}
        settings = Balance(self._settings.beta / REDUCTION_LASTS, self._settings.tolerance, self._settings.operations)
        self._operations = decide(self._boxes, sorted(summaries), settings, refused=self._refused)
        if self._operations:
            self._decision += 1
            self._costs = {summary.evaluator: summary.cost for summary in summaries}
            self._ask_for_sizes()

    def _ask_for_sizes(self) -> None:
        open_shifts = [operation for operation in self._operations if isinstance(operation, Shift) and operation.size is None]
        self._waits_for = [shift.source for shift in open_shifts]
        for shift in open_shifts:
            self._epochs.send(shift.source, "", "", SizeShift(self._decision, shift.target, shift.side, shift.cost, self._costs[shift.source]))
        self._propose_if_complete()

    def _record_size(self, message: ShiftSized) -> None:
        """Record the answer of the source of a shift; a source has one operation in a decision."""
        if message.decision != self._decision or message.source not in self._waits_for:
            return
        self._waits_for.remove(message.source)
        found = next(operation for operation in self._operations if operation.source == message.source)
        assert isinstance(found, Shift)
        if message.size is None:
            self._counters["balance_refusals"].inc()
            self._refused[found.source, found.target] = self._round + _REFUSED_ROUNDS
            self._operations.remove(found)
        else:
            self._operations[self._operations.index(found)] = found._replace(size=message.size)
        self._propose_if_complete()

    def _propose_if_complete(self) -> None:
        """Write the plan of a decision when all sizes are known, unless the partitions have changed meanwhile."""
        if self._waits_for:
            return
        operations, self._operations = self._operations, []
        if not operations or self._replaced():
            return
        moves: list[Move] = [move for operation in operations for move in moves_of(operation, self._boxes)]
        plan = self._distributor().rearranged(moves, self._costs)
        if self._propose(plan):
            self._counters["balance_cells"].inc(sum(move.cells.cells for move in moves))

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return super().snapshot() | {
            "summaries": [summary.encode() for summary in self._summaries.values()],
            "decision": self._decision,
            "operations": [_encoded(operation) for operation in self._operations],
            "costs": [[task, cost] for task, cost in self._costs.items()],
            "waits_for": list(self._waits_for),
            "refused": [[*pair, until] for pair, until in self._refused.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot; the placement has been restored."""
        super().restore(state)
        self._decision = state["decision"]
        self._summaries = {summary.evaluator: summary for summary in map(Summary.decode, state["summaries"])}
        self._operations = [_decoded(operation) for operation in state["operations"]]
        self._costs, self._waits_for = dict(state["costs"]), list(state["waits_for"])
        self._refused = {(source, target): until for source, target, until in state["refused"]}
        self._boxes = {}
        if self._announced == self._plans.version:
            self._read_boxes()


def _encoded(operation: Operation) -> list[Any]:
    if isinstance(operation, Shift):
        return ["shift", *operation]
    source, strip, auxiliary, (side, parts) = operation
    return ["split", source, list(strip), auxiliary, side, [list(part) for part in parts]]


def _decoded(record: list[Any]) -> Operation:
    kind, *fields = record
    if kind == "shift":
        return Shift(*fields)
    source, strip, auxiliary, side, parts = fields
    return SplitMerge(source, Strip(*strip), auxiliary, Merger(side, tuple(Part(*part) for part in parts)))
