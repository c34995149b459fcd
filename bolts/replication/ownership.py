"""The strategies of the subscription bolt for placements and results: the contract, and the simple one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
from dskype.bolts.initial_matches import Question
from dskype.bolts.message_queue import Arrived
from dskype.bolts.objects import StatePairs
from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.refusals import Refusals
from dskype.bolts.results.deltas import DeltaBatch
from dskype.bolts.results.events import ADD, MATCH, REMOVE, SCORE, SCORED_MATCH
from dskype.bolts.results.formats import MessageKeys
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.topk.base import Changes
from dskype.bolts.topk_subscriptions import BEFORE_ALL, TopkSubscriptions
from dskype.distribution.subscriptions import Subscription, TopkSubscription, decode_subscription
from dskype.spouts.streams import Placements, Transfers

__all__ = ["SingleOwner", "SubscriptionOwner", "ops_of_matches"]


def ops_of_matches(n: int, scores: np.ndarray | None) -> np.ndarray:
    """Return the op codes of ``n`` matches, int8[n]: whether they have scores, which are NaN where not; None: none has."""
    return np.full(n, MATCH, np.int8) if scores is None else np.where(np.isnan(scores), MATCH, SCORED_MATCH).astype(np.int8)


class _Inherited(NamedTuple):
    """A published list from which that of a pending slot goes on.

    :ivar registration: the one that has published it.
    :ivar meta: of that registration.
    :ivar seqs: its messages.
    :ivar scores: of the messages.
    :ivar at: the watermark of the list.
    """

    registration: str
    meta: str | None
    seqs: list[int]
    scores: list[float]
    at: int


class SubscriptionOwner(ABC):
    """Opens and ends the subscriptions of a task as placements say, and publishes their results.

    The subscription bolt makes one in ``prepare``: :class:`SingleOwner` if its subscriptions live on this task alone,
    :class:`~dskype.bolts.replication.replicated_owner.ReplicatedOwner` if they may live on other tasks, too.

    :param topk: the task's top-k subscriptions; ``boolean``: its boolean ones.
    :param publisher: publisher of results.
    :param counters: counters ``deltas``, ``matches``, ``unknown_unregistered`` and ``unknown_updated``.
    """

    def __init__(self, topk: TopkSubscriptions, boolean: BooleanSubscriptions, publisher: ResultPublisher, counters: Mapping[str, Any]) -> None:
        self._topk, self._boolean, self._publisher, self._counters = topk, boolean, publisher, counters

    @abstractmethod
    def place(self, placements: Placements, source: int) -> list[Question]:
        """Apply placements in order, from the distribution task ``source``; return what new boolean subscriptions ask of the window."""

    def receive_transfers(self, rows: Sequence[Transfers]) -> None:
        """Apply rows of the stream ``transfers``: subscriptions that other tasks have sent. Without replication there are none."""

    def ask(self, slots: np.ndarray) -> None:
        """Request the windows of pending slots."""
        self._topk.ask(slots)

    @abstractmethod
    def publish_changes(self, changes: Changes, before: int) -> None:
        """Publish the changes that messages made to lists; ``before`` is the watermark before they were applied."""

    @abstractmethod
    def resolve(self, slots: np.ndarray, answers: RankedLists) -> Changes:
        """Merge an answer for each slot into its list and publish these; return the changes, which name the slots that are due again."""

    def match(self, arrived: Arrived, pairs: StatePairs | None = None) -> None:
        """Publish the matches of boolean subscriptions, and what updates of objects mean to them; then end the subscriptions that have expired."""
        applied = [part for part in (arrived, None if pairs is None else pairs.states) if part is not None and part.messages.n]
        if not len(self._boolean) or not applied:
            return
        matches = self._boolean.match(arrived) if arrived.messages.n else None
        moves = None if pairs is None or not pairs.messages.n else self._boolean.compare(pairs)
        if pairs is None or moves is None or not len(moves[0]):
            if matches is not None and len(matches[0]):
                self._publish_matches(arrived, *matches)
        elif matches is None or not len(matches[0]):
            self._publish_moves(pairs.states, *moves)
        else:
            self._publish_in_turn(arrived, matches, pairs.states, moves)
        for slot in self._boolean.pop_expired(*applied):
            self._end_expired(slot)

    def _publish_in_turn(
        self, arrived: Arrived, matches: tuple[np.ndarray, np.ndarray, np.ndarray | None], states: Arrived, moves: tuple[np.ndarray, np.ndarray, np.ndarray]
    ) -> None:
        """Publish matches of messages without an object, and updates, by their positions: the watermarks of a subscription's results must not go back."""
        (rows, slots, scores), (updated, moved, ops) = matches, moves
        order = np.argsort(np.concatenate((arrived.messages.position[rows], states.messages.position[updated])), kind="stable")
        are_moves = order >= len(rows)
        ends = [*(np.flatnonzero(are_moves[1:] != are_moves[:-1]) + 1).tolist(), len(order)]
        for start, end in zip([0, *ends], ends):
            after = int(are_moves[:start].sum())
            if are_moves[start]:
                part = slice(after, after + end - start)
                self._publish_moves(states, updated[part], moved[part], ops[part])
            else:
                part = slice(start - after, end - after)
                self._publish_matches(arrived, rows[part], slots[part], None if scores is None else scores[part])

    def end_expired_topk(self, arrived: Arrived, pairs: StatePairs | None = None) -> None:
        """End the top-k subscriptions that have expired when these messages and updates, which have been applied, had arrived."""
        for slot in self._topk.pop_expired(arrived, pairs):
            self._end_expired_topk(slot)

    @abstractmethod
    def _publish_matches(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray, scores: np.ndarray | None) -> None:
        """Publish matches: row ``rows[i]`` matches the subscription in ``slots[i]``, with a score that is NaN if this needs none; None: none does."""

    @abstractmethod
    def _publish_moves(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray, ops: np.ndarray) -> None:
        """Publish updates of objects: row ``rows[i]`` of the states means ``ops[i]`` to the subscription in ``slots[i]``."""

    @abstractmethod
    def _end_expired(self, slot: int) -> None:
        """End the expired boolean subscription in a slot."""

    @abstractmethod
    def _end_expired_topk(self, slot: int) -> None:
        """End the expired top-k subscription in a slot."""

    def _matches(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray, ops: np.ndarray, scores: np.ndarray | None = None) -> DeltaBatch:
        self._counters["matches"].inc(len(rows))
        names, registrations, metas = self._boolean.metadata.columns(slots)
        return DeltaBatch(names, registrations, ops, arrived.messages.position[rows], arrived.ids.take(pa.array(rows)), scores, metas=metas)

    def _at_once(self, n: int) -> list[slice]:
        """Return ``n`` results in the parts that are published at once."""
        step = self._publisher.rows_at_once or max(n, 1)
        return [slice(start, min(start + step, n)) for start in range(0, n, step)]

    def finish_watermark(self) -> None:
        """Do what waited for the present watermark. Default: nothing."""

    def tick(self, now_ms: int) -> None:
        """Do what is due by the clock. Default: nothing."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the state of the strategy as arrays and plain values, by keys of the bolt's snapshot."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot; the subscriptions themselves have been restored."""


class SingleOwner(SubscriptionOwner):
    """Publishes results at once, because no other task has these subscriptions.

    :param refusals: refuses subscriptions beyond the limit of a task.
    """

    def __init__(
        self, topk: TopkSubscriptions, boolean: BooleanSubscriptions, publisher: ResultPublisher, counters: Mapping[str, Any], refusals: Refusals
    ) -> None:
        super().__init__(topk, boolean, publisher, counters)
        self._refusals = refusals
        self._fresh: set[int] = set()  # slots that have never published
        self._inherited: dict[int, _Inherited] = {}  # fresh slot -> the list that it goes on from

    # -- placements -------------------------------------------------------------------------------

    def place(self, placements: Placements, source: int) -> list[Question]:
        """Register, replace and unregister subscriptions in order; runs of new top-k subscriptions go to the engine together."""
        new: list[tuple[str, str, TopkSubscription]] = []
        names: set[str] = set()
        questions: list[Question] = []
        for name, registration, record in placements.each("subscription", "registration", "placement"):
            if name in names:
                self._insert_topk(new)
                new, names = [], set()
            if record is not None and not self._has_room(name, len(new)):
                self._refusals.refuse(name, registration)
                continue
            subscription = None if record is None else decode_subscription(record)
            event = "active"
            if subscription is not None and subscription.update:
                if isinstance(subscription, TopkSubscription) and name in self._topk.slots:
                    self._insert_topk([(name, registration, subscription)], self._bequeath(name))
                    continue
                if not isinstance(subscription, TopkSubscription) and (old := self._boolean.slots.pop(name, None)) is not None:
                    subscription, event = subscription._replace(begun=self._boolean.begun(old)), "updated"
                    self._boolean.forget(old)
                self._counters["unknown_updated"].inc(event == "active" and name not in self._topk.slots and name not in self._boolean.slots)
            if event == "active":
                self._remove(name, subscription)
            if isinstance(subscription, TopkSubscription):
                new.append((name, registration, subscription))
                names.add(name)
            elif subscription is not None:
                self._boolean.open(name, registration, subscription, self._topk.watermark)
                self._publisher.events([name], [registration], [event], [self._topk.watermark])
                if subscription.initial is not None and event == "active":
                    questions.append(Question(name, registration, subscription.meta, self._topk.watermark, subscription.initial))
        self._insert_topk(new)
        return questions

    def _bequeath(self, name: str) -> _Inherited | None:
        """Forget a top-k subscription without a word, and return the list that it has published; None: it has not been active, and is removed."""
        slot, topk = self._topk.slots[name], self._topk
        inherited = self._inherited.pop(slot, None)
        if inherited is None and slot in self._fresh:
            self._remove_topk(name, topk.slots.pop(name), replaced=True)
            return None
        if inherited is None:
            listed = topk.engine.topk(np.array([slot], np.int32))
            inherited = _Inherited(
                topk.metadata.registration(slot), topk.metadata.meta(slot), listed.seqs.tolist(), listed.scores.tolist(), topk.published_at(slot)
            )
        del topk.slots[name]
        topk.forget(slot)
        self._fresh.discard(slot)
        return inherited

    def _has_room(self, name: str, coming: int) -> bool:
        """Tell whether the task may hold one more subscription, beside ``coming`` others; a replacement is always allowed."""
        topk, boolean = self._topk.slots, self._boolean.slots
        return len(topk) + len(boolean) + coming < self._refusals.limit or name in topk or name in boolean

    def _insert_topk(self, rows: Sequence[tuple[str, str, TopkSubscription]], inherited: _Inherited | None = None) -> None:
        """Begin top-k subscriptions; one that goes on from a list, ``inherited``, comes alone."""
        if not rows:
            return
        complete = self._topk.watermark == BEFORE_ALL
        slots = self._topk.open(rows, complete)
        self._fresh.update(slots.tolist())
        if inherited is not None:
            self._inherited[int(slots[0])] = inherited
            if not complete:
                self._topk.keep_ids(int(slots[0]), inherited.at)
        if complete:
            self._publish_lists(slots)
        else:
            self.ask(slots)

    def _remove(self, name: str, successor: Subscription | None) -> None:
        """Remove a subscription, top-k or boolean, if it is known; count an attempt to unregister an unknown one.

        :param successor: the subscription that replaces it; None: it is unregistered.
        """
        slot = self._topk.slots.pop(name, None)
        if slot is not None:
            self._remove_topk(name, slot, replaced=isinstance(successor, TopkSubscription))
            return
        slot = self._boolean.slots.pop(name, None)
        if slot is not None:
            self._remove_boolean(name, slot)
        elif successor is None:
            self._counters["unknown_unregistered"].inc()

    def _remove_topk(self, name: str, slot: int, *, replaced: bool) -> None:
        registration, watermark = self._topk.metadata.registration(slot), self._topk.watermark
        inherited = self._inherited.pop(slot, None)
        if inherited is None:
            self._withdraw(slot)
        else:
            registration, n = inherited.registration, len(inherited.seqs)
            one, messages = [registration] * n, self._topk.ids.get(np.array(inherited.seqs, np.int64))
            self._publish_batch(DeltaBatch([name] * n, one, np.full(n, REMOVE, np.int8), [watermark] * n, messages, metas=[inherited.meta] * n))
        if replaced:
            self._publisher.events([name], [registration], ["removed"], [watermark])
        else:
            self._publisher.removed([name], [registration], [watermark])
        self._topk.forget(slot)
        self._fresh.discard(slot)

    def _withdraw(self, slot: int) -> None:
        """Withdraw the published results of a subscription that ends."""
        seqs = self._topk.engine.topk(np.array([slot], np.int32)).seqs
        n, no_slots = len(seqs), np.zeros(0, np.int32)
        self._publish_deltas(
            Changes(
                np.full(n, slot), np.full(n, REMOVE, np.int8), seqs, np.zeros(n), np.zeros(n, np.int32), np.full(n, self._topk.watermark), no_slots, no_slots
            )
        )

    def _remove_boolean(self, name: str, slot: int) -> None:
        self._publisher.removed([name], [self._boolean.metadata.registration(slot)], [self._topk.watermark], states=False)
        self._boolean.forget(slot)

    def _end_expired(self, slot: int) -> None:
        """Remove the subscription, which lives here only."""
        name = self._boolean.metadata.name(slot)
        del self._boolean.slots[name]
        self._remove_boolean(name, slot)

    def _end_expired_topk(self, slot: int) -> None:
        name = self._topk.metadata.name(slot)
        del self._topk.slots[name]
        self._remove_topk(name, slot, replaced=False)

    # -- results ----------------------------------------------------------------------------------

    def publish_changes(self, changes: Changes, before: int) -> None:
        """Publish deltas, and mark the lists to be written."""
        self._publish_deltas(changes)
        self._publish_lists(changes.touched)

    def resolve(self, slots: np.ndarray, answers: RankedLists) -> Changes:
        """Merge answers; publish their changes as those of messages."""
        changes = self._topk.resolve(slots, answers)
        going_on = [slot for slot in changes.touched.tolist() if slot in self._inherited] if self._inherited else []
        self._publish_deltas(self._differences(changes, going_on) if going_on else changes)
        self._publish_lists(changes.touched)
        return changes

    def _differences(self, changes: Changes, going_on: list[int]) -> Changes:
        """Return changes in which each first list of a slot that goes on from another list is the difference from that: what left it, what came, other scores."""
        mine = np.isin(changes.slot, going_on)
        rows: list[tuple[int, int, int, float, int]] = []
        for slot in going_on:
            listed, had = np.flatnonzero(changes.slot == slot).tolist(), dict(zip(*self._inherited[slot][2:4]))
            stays = {int(changes.seq[i]) for i in listed}
            rows += [(slot, REMOVE, seq, 0.0, 0) for seq in had if seq not in stays]
            for i in listed:
                seq, score = int(changes.seq[i]), float(changes.score[i])
                if score != had.get(seq):
                    rows.append((slot, SCORE if seq in had else ADD, seq, score, int(changes.rank[i])))
        kept = [column[~mine] for column in changes[:6]]
        names = ("slot", "op", "seq", "score", "rank")
        columns = {name: np.array([row[i] for row in rows], getattr(changes, name).dtype) for i, name in enumerate(names)}
        columns["watermark"] = np.full(len(rows), self._topk.watermark)
        return changes._replace(**{name: np.concatenate((old, columns[name])) for name, old in zip(Changes._fields, kept)})

    def _publish_deltas(self, changes: Changes) -> None:
        n = len(changes.slot)
        if n and self._publisher.wants_deltas:
            self._counters["deltas"].inc(n)
            for rows in self._at_once(n):
                self._publisher.deltas(self._topk.deltas(changes, rows))

    def _publish_batch(self, batch: DeltaBatch) -> None:
        if self._publisher.wants_deltas:
            self._counters["deltas"].inc(self._publisher.deltas(batch))

    def _publish_lists(self, slots: np.ndarray) -> None:
        """Mark lists to be written; publish that subscriptions are active which publish for the first time."""
        first = [slot for slot in slots.tolist() if slot in self._fresh] if self._fresh else []
        if first:
            self._fresh.difference_update(first)
            names, registrations, _ = self._topk.metadata.columns(np.array(first))
            events = ["active" if self._inherited.pop(slot, None) is None else "updated" for slot in first]
            self._publisher.events(names, registrations, events, [self._topk.watermark] * len(first))
        self._topk.mark_changed(slots)

    def _publish_matches(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray, scores: np.ndarray | None) -> None:
        if not self._publisher.groups_matches:
            for part in self._at_once(len(rows)):
                own = None if scores is None else scores[part]
                self._publisher.deltas(self._matches(arrived, rows[part], slots[part], ops_of_matches(len(rows[part]), own), own))
            return
        self._counters["matches"].inc(len(rows))
        messages = MessageKeys(arrived.ids, arrived.messages.position, arrived.messages.seq)
        self._publisher.matches(messages, rows, slots, self._boolean.metadata.json_names())

    def _publish_moves(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray, ops: np.ndarray) -> None:
        self._publisher.deltas(self._matches(arrived, rows, slots, ops))

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the slots that have never published."""
        return {"fresh": sorted(self._fresh), "inherited": [[slot, *one] for slot, one in self._inherited.items()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot."""
        self._fresh = set(state["fresh"])
        self._inherited = {slot: _Inherited(*one) for slot, *one in state.get("inherited", ())}  # absent from snapshots of earlier versions
