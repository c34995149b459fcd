"""The strategy of the subscription bolt for subscriptions that may live on other tasks, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dskype.bolts.balancing import make_meter
from dskype.bolts.balancing.workload_meter import WorkloadMeter
from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
from dskype.bolts.initial_matches import Question
from dskype.bolts.message_queue import Arrived
from dskype.bolts.objects import StatePairs
from dskype.bolts.ownership.base import OwnerStrategy, ops_of_matches
from dskype.bolts.ownership.boolean_placements import BooleanPlacements
from dskype.bolts.ownership.coverage import Coverage
from dskype.bolts.ownership.replicas import Replicas
from dskype.bolts.ownership.transfers import Transfers
from dskype.bolts.protocol.balance import BalanceMessage, HandedOver, PartitionMap, SizeShift, encode_balance
from dskype.bolts.protocol.placements import AllMoved, End, Epoch, MovePlan, Placement, PlanMarker, Send, Survey, decode_placement
from dskype.bolts.ranked_lists import RankedList, RankedLists
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.topk.base import Changes
from dskype.bolts.topk_subscriptions import BEFORE_ALL, TopkSubscriptions
from dskype.distribution import distributor_of_plan, summarizes
from dskype.distribution.subscriptions import TopkSubscription
from dskype.spouts import streams
from dskype.spouts.columns import distinct
from dskype.spouts.settings import Settings

__all__ = ["ReplicatedOwner"]


class ReplicatedOwner(OwnerStrategy):
    """Keeps replicas, whose results the result bolt merges; see :mod:`dskype.bolts.protocol`.

    :param collector: collector of the bolt.
    :param context: context of the bolt.
    :param distribution_tasks: ids of the distribution tasks; the first one balances.
    :param settings: of the topology.
    """

    def __init__(
        self,
        topk: TopkSubscriptions,
        boolean: BooleanSubscriptions,
        publisher: ResultPublisher,
        counters: Mapping[str, Any],
        collector: Any,
        context: Any,
        distribution_tasks: Sequence[int],
        settings: Settings,
    ) -> None:
        super().__init__(topk, boolean, publisher, counters)
        self._collector, self._distribution_tasks = collector, distribution_tasks
        tasks, index = context.get_component_tasks(context.get_this_component_id()), context.get_this_task_index()
        self._index = index
        self._coverage = Coverage(len(distribution_tasks), summarizes(settings))
        self._replicas = Replicas(topk, collector, publisher, self._coverage, tasks, index, settings.window_kind == "count")
        self._transfers = Transfers(collector, tasks, partial(distributor_of_plan, settings, len(tasks)), context.register_counter("transferred"))
        context.register_gauge("arriving", lambda: len(self._transfers))
        self._boolean_placements = BooleanPlacements(boolean.metadata, collector, self._coverage, index, self._forget_boolean)
        self._meter: WorkloadMeter | None = None  # with load balancing
        if settings.balance is not None:
            self._meter = make_meter(settings, index, len(tasks), self._send_to_balancer, self._transfers.hand_over)

    # -- placements -------------------------------------------------------------------------------

    def place(self, placements: streams.Placements, source: int) -> list[Question]:
        """Apply placements, epochs and ends in order; runs of new top-k subscriptions go to the engine together.

        Of the first tasks of a boolean subscription the first one asks for what matches already.
        """
        new: list[tuple[str, str, Placement]] = []
        questions: list[Question] = []
        for name, registration, record in placements.each("subscription", "registration", "placement"):
            message = decode_placement(record)
            if isinstance(message, Placement) and isinstance(message.subscription, TopkSubscription):
                new.append((name, registration, message))
                continue
            self._open_replicas(new)
            new = []
            if isinstance(message, Placement):
                if (filter := (subscription := message.subscription).initial) is not None:
                    if message.epoch.number == 1 and message.epoch.tasks[0] == self._index:
                        questions.append(Question(name, registration, subscription.meta, message.epoch.at, filter))
                    message = message._replace(subscription=subscription._replace(initial=None))
                self._open_boolean(name, registration, message)
            elif isinstance(message, PlanMarker):
                self._coverage.record_marker(message.version, source, message.high)
                self._check_coverage()
            elif isinstance(message, AllMoved):
                if (at := self._coverage.record_finished(message.version, source, message.at)) is not None:
                    streams.Switched(version=message.version, at=at).emit(self._collector)
            elif isinstance(message, MovePlan):
                self._transfers.adopt_plan(*message)
            elif isinstance(message, PartitionMap | SizeShift):
                self._handle_balancing(message)
            elif isinstance(message, End) and self._transfers.cancel(name, registration):
                pass
            elif name in self._topk.slots:
                self._apply_to_replica(name, message)
            else:
                self._apply_to_boolean(name, registration, message)
        self._open_replicas(new)
        return questions

    def _open_boolean(self, name: str, registration: str, placement: Placement) -> None:
        slot = self._boolean.open(name, registration, placement.subscription)
        self._boolean_placements.open(slot, placement)
        if self._meter is not None:
            self._meter.open(slot, placement.subscription.bbox)

    def _forget_boolean(self, slot: int) -> None:
        self._boolean.forget(slot)
        if self._meter is not None:
            self._meter.forget(slot)

    def _apply_to_boolean(self, name: str, registration: str, message: Epoch | End | Survey | Send) -> None:
        slot, placements = self._boolean.slots.get(name), self._boolean_placements
        if slot is None or self._boolean.metadata.registration(slot) != registration:
            assert isinstance(message, Epoch)  # nothing else follows before the task has reported that it is ready
            arrived = self._transfers.expect(name, registration, message)
            if arrived is not None:
                self._open_boolean(name, registration, arrived)
        elif isinstance(message, Survey):
            placements.survey(slot, self._transfers.locate(name, placements.placement(slot).subscription))
        elif isinstance(message, Send):
            self._transfers.send(name, registration, placements.placement(slot).subscription, message.tasks)
        elif not placements.apply(slot, message):
            del self._boolean.slots[name]

    def receive_transfers(self, rows: Sequence[streams.Transfers]) -> None:
        """Open the boolean subscriptions that other tasks have sent, where they are expected, and take costs over."""
        for row in rows:
            if row.record["type"] == HandedOver.kind:
                if self._meter is not None:
                    self._meter.take(HandedOver.decode(row.record))
                continue
            arrived = self._transfers.arrive(row.subscription, row.registration, row.record)
            if arrived is not None:
                self._open_boolean(row.subscription, row.registration, arrived)

    def _apply_to_replica(self, name: str, message: Epoch | End | Survey) -> None:
        slot = self._topk.slots[name]
        if isinstance(message, Survey):
            self._replicas.survey(slot)
        elif isinstance(message, Epoch) and self._replicas.begin_epoch(slot, message):
            self._settle(np.array([slot], np.int32))
        else:
            if isinstance(message, End):
                self._replicas.end(slot)
            del self._topk.slots[name]
            self._forget(slot)

    def _forget(self, slot: int) -> None:
        self._replicas.forget(slot)
        self._topk.forget(slot)

    def _open_replicas(self, rows: Sequence[tuple[str, str, Placement]]) -> None:
        """Begin replicas of top-k subscriptions."""
        watermark = self._topk.watermark
        for complete in (True, False):
            chosen = [row for row in rows if (watermark == BEFORE_ALL and self._receives_all(row[2].epoch)) is complete]
            if chosen:
                slots = self._open(chosen, complete)
                if complete:
                    self._settle(slots)
                else:
                    self.ask(slots)

    def _receives_all(self, epoch: Epoch) -> bool:
        """Tell whether a new replica of an epoch receives everything that it needs above the present watermark."""
        return max(self._coverage.since(epoch.since), self._coverage.wanted_since(epoch)) <= self._topk.watermark

    def _open(self, rows: Sequence[tuple[str, str, Placement]], complete: bool) -> np.ndarray:
        slots = self._topk.open([(name, registration, placement.subscription) for name, registration, placement in rows], complete)
        self._replicas.open(slots.tolist(), [placement.epoch for _, _, placement in rows], complete)
        return slots

    def ask(self, slots: np.ndarray) -> None:
        """Request the windows of pending slots whose plan is in force; the others wait."""
        if len(slots):
            super().ask(self._replicas.askable(slots))

    def _settle(self, slots: np.ndarray, bases: Mapping[int, RankedList] | None = None) -> None:
        """Tell the other bolts the state of replicas, and begin again the replicas that have to be evaluated again."""
        to_evaluate = self._replicas.settle(slots, bases or {})
        changed = self._topk.changed
        changed.discard(np.array([slot for slot in slots.tolist() if slot in changed and not self._replicas.is_alone(slot)], np.int64))
        for slot in to_evaluate:
            name, registration, placement = self._topk.metadata.name(slot), self._topk.metadata.registration(slot), self._replicas.renewed_placement(slot)
            self._forget(slot)
            self.ask(self._open([(name, registration, placement)], False))

    def _check_coverage(self) -> None:
        """Do what waited for a plan to be in force everywhere."""
        self.ask(np.array([slot for slot in self._replicas.pop_covered() if not self._topk.is_asked(slot)], np.int32))
        self._boolean_placements.report_ready()

    def finish_watermark(self) -> None:
        """End boolean subscriptions, and do what waited for a plan."""
        self._boolean_placements.end_due()
        self._check_coverage()

    def _end_expired(self, slot: int) -> None:
        """Report the expiry; the distribution task that owns the subscription ends it everywhere."""
        self._boolean_placements.report_expired(slot)

    def _end_expired_topk(self, slot: int) -> None:
        self._replicas.report_expired(slot)

    # -- load balancing ---------------------------------------------------------------------------

    def _handle_balancing(self, message: PartitionMap | SizeShift) -> None:
        assert self._meter is not None
        if isinstance(message, PartitionMap):
            self._meter.adopt(message)
        else:
            self._meter.size(message)

    def _send_to_balancer(self, message: BalanceMessage) -> None:
        streams.Balance(kind=message.kind, record=encode_balance(message)).emit_direct(self._collector, self._distribution_tasks[0])

    def match(self, arrived: Arrived, pairs: StatePairs | None = None) -> None:
        """Publish the matches of boolean subscriptions, and what updates of objects mean to them, and measure the workload."""
        if self._meter is not None:
            self._meter.record(arrived)
            if pairs is not None:
                self._meter.record(pairs.states)
        super().match(arrived, pairs)

    def tick(self, now_ms: int) -> None:
        """Report the workload if it is time."""
        if self._meter is not None:
            self._meter.tick(now_ms)

    # -- results ----------------------------------------------------------------------------------

    def publish_changes(self, changes: Changes, before: int) -> None:
        """Send changes to the result bolt; mark the lists of replicas that are alone to be written here."""
        self._replicas.watermark = self._boolean_placements.watermark = self._topk.watermark
        self._topk.mark_changed(self._replicas.send_changes(changes, before, self._counters["deltas"].inc))

    def resolve(self, slots: np.ndarray, answers: RankedLists) -> Changes:
        """Merge answers; replicas whose lists are now known send them."""
        bases = self._replicas.bases(slots)
        changes = self._topk.resolve(slots, answers)
        known = distinct(slots[~np.isin(slots, changes.due)])
        self._replicas.record_resolved(known)
        self._settle(known, bases)
        return changes

    def _publish_matches(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray, scores: np.ndarray | None) -> None:
        """Send valid matches to the result bolt, with sequence numbers by which it publishes each once."""
        self._publish_moves(arrived, rows, slots, ops_of_matches(len(rows), scores), scores)

    def _publish_moves(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray, ops: np.ndarray, scores: np.ndarray | None = None) -> None:
        inside = self._boolean_placements.inside(arrived.messages.position[rows], slots)
        rows = rows[inside]
        if self._meter is not None:
            self._meter.record(arrived, rows)
        slots, ops, scores = slots[inside], ops[inside], None if scores is None else scores[inside]
        for part in self._at_once(len(rows)):
            own = None if scores is None else scores[part]
            self._publisher.emit_deltas(replace(self._matches(arrived, rows[part], slots[part], ops[part], own), seq=arrived.messages.seq[rows[part]]))

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return placements and coverage."""
        balancing = {} if self._meter is None else {"evaluator": self._meter.snapshot()}
        return balancing | {
            "fresh": [],
            "replicas": self._replicas.snapshot(),
            "coverage": self._coverage.snapshot(),
            "placements": self._boolean_placements.snapshot(),
            "transfers": self._transfers.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot."""
        self._replicas.restore(state["replicas"])
        self._coverage.restore(state["coverage"])
        self._boolean_placements.restore(state["placements"])
        if "transfers" in state:  # absent from snapshots of earlier versions
            self._transfers.restore(state["transfers"])
        if self._meter is not None and "evaluator" in state:
            self._meter.restore(state["evaluator"])
        self._boolean.slots = {self._boolean.metadata.name(slot): slot for slot in self._boolean_placements.slots()}
