"""Load balancing that runs by itself (``dskype.balance: auto``; Tornado, section 4.2): one distribution task decides from summaries.

It tells the subscription tasks the partitions (``PartitionMap``), and they report summaries of their workload. When all have reported, it decides.
Operations become a plan, which it writes to the topic of plans. From there the plan comes to all distribution tasks as any other plan does: in
the same order everywhere, and with a version, so that it counts once. A decision follows from the inbox alone, so a restored task writes the
same plan again, which is ignored. If somebody else publishes a plan of the same version first, that one counts.

It decides nothing while a plan changes, and ignores the first reports after a change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dskype.bolts.replication.messages import BalanceMessage, PartitionMap, ShiftSized, SizeShift, WorkloadReport
from dskype.bolts.replication.replicated_placement import ReplicatedPlacement
from dskype.distribution import AGridDistributor
from dskype.distribution.aggregates import Strip
from dskype.distribution.agrid import CellBox
from dskype.distribution.balancing import Balance, Merger, Move, Operation, Part, Shift, SplitMerge, Summary, decide, moves_of
from dskype.spouts.settings import BalanceSettings

__all__ = ["Balancer"]

_REFUSED_ROUNDS = 10
"""For so many rounds of reports a shift that its source has refused is not asked for again."""


class Balancer:
    """Decides for all subscription tasks; see the module.

    :param settings: of load balancing.
    :param placement: of this distribution task.
    :param write: writes a record to the topic of plans.
    :param context: context of the bolt, for metrics.
    """

    def __init__(self, settings: BalanceSettings, placement: ReplicatedPlacement, write: Callable[[bytes], None], context: Any) -> None:
        self._settings, self._placement, self._write = settings, placement, write
        self._announced = -1  # version of the partitions that the subscription tasks measure
        self._boxes: dict[int, CellBox] = {}  # these partitions, by task; empty: they cannot be balanced
        self._summaries: dict[int, Summary] = {}  # of the present round
        self._round = self._rest_until = 0
        self._decision = 0
        self._operations: list[Operation] = []  # of the decision under way
        self._costs: dict[int, float] = {}  # of its tasks
        self._waits_for: list[int] = []  # tasks that choose the size of a shift
        self._proposed = 0  # version of the last plan
        self._refused: dict[tuple[int, int], int] = {}  # (source, target) -> round
        self._balance_percent = 0
        self._counters = {name: context.register_counter(name) for name in ("balance_decisions", "balance_refusals", "balance_cells")}
        context.register_gauge("balance_percent", lambda: self._balance_percent)

    # -- partitions ---------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Tell the subscription tasks the partitions when a change of the plan is over. To be called after every batch."""
        placement = self._placement
        if placement.changing or placement.version == self._announced:
            return
        self._announced = placement.version
        self._read_boxes()
        self._summaries, self._operations, self._waits_for = {}, [], []
        self._rest_until = self._round + self._settings.rest_periods
        message = PartitionMap(placement.version, placement.distributor.plan())
        for index in range(placement.distributor.tasks):
            placement.send_to(index, message)

    def _read_boxes(self) -> None:
        self._boxes = self._distributor().task_boxes() or {}

    def _distributor(self) -> AGridDistributor:
        found = self._placement.distributor
        assert isinstance(found, AGridDistributor)
        return found

    # -- reports and decisions ----------------------------------------------------------------------------------------

    def receive(self, message: BalanceMessage) -> None:
        """Handle a message of a subscription task."""
        if isinstance(message, ShiftSized):
            self._record_size(message)
        elif self._is_current(message):
            self._summaries[message.summary.evaluator] = message.summary
            if len(self._summaries) == len(self._boxes):
                self._finish_round()

    def _is_current(self, message: WorkloadReport) -> bool:
        """Tell whether a report is about the partitions in force, and none but these are to come."""
        return message.version == self._announced and not self._replaced()

    def _replaced(self) -> bool:
        return self._placement.changing or self._placement.version != self._announced or self._proposed > self._placement.newest

    def _finish_round(self) -> None:
        summaries, self._summaries = list(self._summaries.values()), {}
        self._round += 1
        costs = [summary.cost for summary in summaries]
        mean = sum(costs) / len(costs)
        self._balance_percent = round(100 * max(costs) / mean) if mean else 100
        if self._operations or self._round <= self._rest_until or mean < self._settings.cost_min:
            return
        self._refused = {pair: until for pair, until in self._refused.items() if until > self._round}
        settings = Balance(self._settings.beta, self._settings.tolerance, self._settings.operations)
        self._operations = decide(self._boxes, sorted(summaries), settings, refused=self._refused)
        if self._operations:
            self._decision += 1
            self._costs = {summary.evaluator: summary.cost for summary in summaries}
            self._ask_for_sizes()

    def _ask_for_sizes(self) -> None:
        open_shifts = [operation for operation in self._operations if isinstance(operation, Shift) and operation.size is None]
        self._waits_for = [shift.source for shift in open_shifts]
        for shift in open_shifts:
            self._placement.send_to(shift.source, SizeShift(self._decision, shift.target, shift.side, shift.cost, self._costs[shift.source]))
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
        self._proposed = self._placement.newest + 1
        self._counters["balance_decisions"].inc()
        self._counters["balance_cells"].inc(sum(move.cells.cells for move in moves))
        self._write(json.dumps({"v": 1, "version": self._proposed, "plan": plan}, separators=(",", ":")).encode())

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return {
            "announced": self._announced,
            "summaries": [summary.encode() for summary in self._summaries.values()],
            "round": self._round,
            "rest_until": self._rest_until,
            "decision": self._decision,
            "operations": [_encoded(operation) for operation in self._operations],
            "costs": [[task, cost] for task, cost in self._costs.items()],
            "waits_for": list(self._waits_for),
            "proposed": self._proposed,
            "refused": [[*pair, until] for pair, until in self._refused.items()],
            "balance_percent": self._balance_percent,
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot; the placement has been restored."""
        self._announced, self._round, self._rest_until = state["announced"], state["round"], state["rest_until"]
        self._decision, self._proposed, self._balance_percent = state["decision"], state["proposed"], state["balance_percent"]
        self._summaries = {summary.evaluator: summary for summary in map(Summary.decode, state["summaries"])}
        self._operations = [_decoded(operation) for operation in state["operations"]]
        self._costs, self._waits_for = dict(state["costs"]), list(state["waits_for"])
        self._refused = {(source, target): until for source, target, until in state["refused"]}
        self._boxes = {}
        if self._announced == self._placement.version:
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
