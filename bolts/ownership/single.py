"""The strategy of the subscription bolt for subscriptions that live on one task alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
from dskype.bolts.initial_matches import Question
from dskype.bolts.message_queue import Arrived
from dskype.bolts.ownership.base import OwnerStrategy, ops_of_matches
from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.refusals import Refusals
from dskype.bolts.results.events import ADD, REMOVE, SCORE
from dskype.bolts.results.formats import MessageKeys
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.topk.base import Changes
from dskype.bolts.topk_subscriptions import BEFORE_ALL, TopkSubscriptions
from dskype.distribution.subscriptions import Subscription, TopkSubscription, decode_subscription
from dskype.spouts.streams import Placements, Results

__all__ = ["SingleOwner"]


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


class SingleOwner(OwnerStrategy):
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
            self._publish_batch(
                Results(
                    subscription=[name] * n,
                    registration=[registration] * n,
                    kind=np.full(n, REMOVE, np.int8),
                    watermark=[watermark] * n,
                    message=self._topk.ids.get(np.array(inherited.seqs, np.int64)),
                    meta=[inherited.meta] * n,
                )
            )
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

    def _publish_batch(self, batch: Results) -> None:
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
