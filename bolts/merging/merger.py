"""Merges the results of replicas; the state of a result task with a distributor that replicates.

**When a list is published.** A replica's list holds until the replica sends a change, and all changes of watermark *w* have arrived when
the watermark of this task reaches *w*. At every watermark with changes, the list of a subscription is published if all tasks of one of its
epochs claim that epoch: it consists of the k best messages of their lists (:mod:`dskype.bolts.ownership.replicas` explains why that is
exact). Otherwise nothing is published for the subscription, and later its list jumps.

**One replica.** While a subscription has one replica, and this is ready, the replica's deltas are passed on unchanged, as columns, and
nothing about the subscription is kept here. A :class:`ReplicatedSubscription` is kept in all other cases: from the beginning to the first
list; while there are several replicas (the first one hands over what it has published, its *base*); and at the end until all tasks have
confirmed that they have forgotten it. A new registration of a subscription is published only after the results of the previous one have been
withdrawn. One that goes on from the previous one (an update) takes its published list over instead, and publishes the difference.

**The fast path.** A subscription is *steady* if its replicas are those of one epoch, and nothing but changes arrives from them. It is kept in
arrays (:class:`FastMergedLists`) until something else arrives. The fast path only saves time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.bolts.merging.fast_lists import FastMergedLists, MergedLists, Row
from dskype.bolts.merging.replicated_subscription import BEFORE_ALL, Change, Drop, Listing, Replica, ReplicatedSubscription, best_of
from dskype.bolts.protocol.merging import PART, Begin, Finish, ReplicaDropped, ReplicaGone, ReplicaList
from dskype.bolts.results.base import Removal
from dskype.bolts.results.deltas import batch_of
from dskype.bolts.results.events import ADD, REMOVE, SCORE
from dskype.spouts.streams import Results

__all__ = ["Event", "Merger", "Publication", "TopkList"]

_PASSED_ON, _MERGED = -1, -2


class Event(NamedTuple):
    """An event to publish."""

    subscription: str
    registration: str
    event: str
    watermark: int


class TopkList(NamedTuple):
    """A list to publish, in rank order."""

    subscription: str
    registration: str
    watermark: int
    messages: list[str]
    scores: list[float]


class Publication(NamedTuple):
    """Results to publish. Each field is in order, and the deltas of a subscription are in one batch."""

    deltas: list[Results]
    events: list[Event]
    items: list[TopkList | Removal]
    lists: MergedLists | None


class Merger:
    """Keeps the subscriptions whose results are not simply passed on; see the module.

    Calls collect results to publish; :meth:`pop_publication` returns them.

    :param extent: extent of the window.
    :param lists: whether whole lists are published.
    """

    def __init__(self, extent: int, lists: bool = True) -> None:
        self.watermark = BEFORE_ALL
        self._wants_lists = lists
        self._fast = FastMergedLists(extent)
        self._kept: dict[str, ReplicatedSubscription] = {}  # by registration
        self._chains: dict[str, list[str]] = {}  # subscription -> its registrations; the others wait until the first is withdrawn
        self._busy: dict[str, None] = {}  # registrations with something to do when the watermark rises
        self._dirty: dict[str, None] = {}  # registrations whose list changed since it was written
        self._ends: list[tuple[int, str, str]] = []  # boolean registrations that ended
        self._clear_publication()

    def __len__(self) -> int:
        return len(self._kept)

    def _clear_publication(self) -> None:
        self._fast_deltas: Results | None = None
        self._deltas: list[Results] = []  # each is one delta
        self._events: list[Event] = []
        self._items: list[TopkList | Removal] = []
        self._lists: MergedLists | None = None

    def pop_publication(self) -> Publication:
        """Return the results to publish, and forget them."""
        deltas = [] if self._fast_deltas is None else [self._fast_deltas]
        if self._deltas:
            deltas.append(batch_of(self._deltas))
        found = Publication(deltas, self._events, self._items, self._lists)
        self._clear_publication()
        return found

    # -- beginnings and ends --------------------------------------------------------------------------------------------

    def begin(self, name: str, registration: str, begin: Begin) -> None:
        """Record a registration. A boolean subscription is active at once, for messages after the watermark."""
        if not begin.topk:
            self._events.append(Event(name, registration, "updated" if begin.updated else "active", begin.at))
            return
        one = self._open(name, registration)
        one.begun, one.floor = True, begin.at
        if name in self._chains:
            self._chains[name].append(registration)
            one.blocked = True
            self._close(name)  # that may have waited for this one
        if registration in self._kept:
            self._process(one)

    def finish(self, name: str, registration: str, finish: Finish) -> None:
        """Record the end of a registration."""
        if not finish.topk:
            if finish.updated:
                return
            self._ends.append((finish.at, name, registration))
            self._end_boolean()
            return
        one = self._open(name, registration)
        one.ended, one.end_at, one.replaced = set(finish.tasks), finish.at, finish.replaced
        one.updated = finish.updated
        chain = self._chains.setdefault(name, [])
        if registration not in chain:
            chain.append(registration)
        self._close(name)

    def _open(self, name: str, registration: str) -> ReplicatedSubscription:
        one = self._find(registration)
        if one is None:
            one = self._kept[registration] = ReplicatedSubscription(name, registration)
        return one

    def _find(self, registration: str) -> ReplicatedSubscription | None:
        """Return a registration, if it is kept, and take it off the fast path, because something other than a change has arrived."""
        one = self._kept.get(registration)
        if one is not None and one.slot >= 0:
            self._leave_fast_path(one)
        return one

    def _close(self, name: str) -> None:
        """Withdraw the registrations of a subscription that have ended everywhere, one after the other."""
        chain = self._chains.get(name)
        if chain is None:
            return
        while chain:
            one = self._find(chain[0])
            if one.ended is None:
                one.blocked = False
                if len(chain) == 1:
                    del self._chains[name]
                self._process(one)
                return
            if not one.ended <= one.gone.keys() or (one.updated and len(chain) == 1):
                return
            chain.pop(0)
            if one.updated and one.has_published():
                self._bequeath(one, self._find(chain[0]))
            else:
                self._withdraw(one)
        del self._chains[name]

    def _bequeath(self, one: ReplicatedSubscription, heir: ReplicatedSubscription) -> None:
        """Let the registration that goes on from one that has ended have its published list."""
        heir.published, heir.last, heir.heir_of = one.published_results(), max(one.end_at, one.last), one.heir_of or (one.registration, one.meta)
        self._forget(one)

    def _withdraw(self, one: ReplicatedSubscription) -> None:
        watermark, (registration, meta) = max(one.end_at, one.last), one.heir_of or (one.registration, one.meta)
        delta = partial(Results, subscription=one.name, registration=registration, watermark=watermark, meta=meta)
        self._deltas.extend(delta(kind=REMOVE, message=message, score=score) for _, _, score, message in one.published_results())
        self._events.append(Event(one.name, registration, "removed", watermark))
        if not one.replaced:
            self._items.append(Removal(one.name, one.registration, watermark))
        self._forget(one)

    def _forget(self, one: ReplicatedSubscription) -> None:
        del self._kept[one.registration]
        self._busy.pop(one.registration, None)
        self._dirty.pop(one.registration, None)

    def _end_boolean(self) -> None:
        left = []
        for at, name, registration in self._ends:
            if at <= self.watermark:
                self._events.append(Event(name, registration, "removed", at))
            else:
                left.append((at, name, registration))
        self._ends = left

    # -- replicas -------------------------------------------------------------------------------------------------------

    def owns(self, registration: str, task: int) -> bool:
        """Tell whether a task's changes of a registration are merged here instead of being passed on."""
        one = self._kept.get(registration)
        return one is not None and task in one.known

    def note_changed(self, registration: str) -> None:
        """Record the change of a list that a replica would have written itself."""
        self._find(registration)
        self._mark_dirty(registration)

    def _mark_dirty(self, registration: str) -> None:
        if self._wants_lists:
            self._dirty[registration] = None

    def receive(self, name: str, task: int, message: ReplicaList | ReplicaDropped | ReplicaGone) -> None:
        """Handle a message of a task about its replica."""
        if isinstance(message, ReplicaList):
            self._receive_list(name, task, message)
        elif isinstance(message, ReplicaGone):
            one = self._open(name, message.registration)
            one.known.discard(task)
            one.replicas.pop(task, None)
            one.gone[task], one.meta = message.base, message.meta
            self._close(name)
        elif (found := self._find(message.registration)) is not None:
            found.known.discard(task)
            found.queue.append(Drop(message.watermark, task))
            self._process(found)

    def _receive_list(self, name: str, task: int, message: ReplicaList) -> None:
        one = self._find(message.registration)
        if one is None:
            if not message.claims and message.base is None:
                return
            one = self._open(name, message.registration)
        one.k, one.meta = message.k, message.meta
        one.known.add(task)
        one.queue.append(Listing(message.watermark, task, message.claims, message.alone, message.base, message.ranked))
        self._process(one)

    def receive_changes(self, task: int, batch: Results) -> np.ndarray:
        """Receive changes of a task's lists, at watermarks that this task has not reached, with texts as pyarrow arrays.

        Does not read ``subscription``, ``rank`` and ``meta`` of the batch.

        :returns: which changes to pass on, bool[n]; the others are merged, or belong to a replica that no longer counts.
        """
        parts = batch.kind >= PART
        if not self._kept:
            return ~parts
        names = batch.registration.dictionary_encode()
        listed = names.dictionary.to_pylist()
        indices = names.indices.to_numpy()
        owners = np.array([self._owner(name, task) for name in listed], np.int64)[indices]
        changes = replace(batch, subscription=None, registration=None, kind=batch.kind % PART, rank=None, meta=None)
        steady = np.flatnonzero(owners >= 0)
        if len(steady):
            self._fast.queue(owners[steady], task, changes.take(steady))
        loose = np.flatnonzero(owners == _MERGED)
        if len(loose):
            rows = [column[loose].tolist() for column in (indices, changes.watermark, changes.kind, changes.seq, changes.position, changes.score)]
            for name, watermark, op, seq, position, score, message in zip(*rows, changes.message.take(pa.array(loose)).to_pylist()):
                self._kept[listed[name]].queue.append(Change(watermark, task, op, seq, position, score, message))
                self._busy[listed[name]] = None
        return ~parts & (owners == _PASSED_ON)

    def _owner(self, registration: str, task: int) -> int:
        """Return the slot of the steady subscription that a task's changes belong to, or ``_MERGED`` or ``_PASSED_ON``."""
        one = self._kept.get(registration)
        if one is None or task not in one.known:
            return _PASSED_ON
        return one.slot if one.slot >= 0 else _MERGED

    def advance(self, watermark: int) -> None:
        """Apply the changes up to a watermark, and collect what can be published."""
        self.watermark = watermark
        steady = self._fast.advance(watermark)
        if steady is not None:
            self._fast_deltas = steady
        for registration in list(self._busy):
            if registration in self._kept:
                self._process(self._kept[registration])
        self._end_boolean()

    def _process(self, one: ReplicatedSubscription) -> None:
        """Apply the actions that the watermark has reached, and publish."""
        self._apply_due(one)
        now, waits = self.watermark, bool(one.queue)
        if one.may_publish() and not waits and (replicas := one.complete()) is not None:
            if one.floor <= now:
                if one.published is None or one.heir_of is not None or one.last < one.floor:
                    self._publish(one)
                if one.is_alone():
                    if one.registration in self._dirty:
                        self._items.append(self._whole(one))
                    self._forget(one)
                    return
                self._enter_fast_path(one, replicas)
            else:
                waits = True
        if one.is_empty():
            self._forget(one)
        elif waits:
            self._busy[one.registration] = None
        else:
            self._busy.pop(one.registration, None)

    def _apply_due(self, one: ReplicatedSubscription) -> None:
        """Apply the actions that the watermark has reached, and publish at each of their watermarks."""
        queue, now = one.queue, self.watermark
        queue.sort(key=lambda action: action.watermark)  # stable: a task's actions stay in order
        i, n = 0, len(queue)
        while i < n and queue[i].watermark <= now:
            watermark = queue[i].watermark
            while i < n and queue[i].watermark == watermark:
                self._apply(one, queue[i])
                i += 1
            one.at = max(one.at, watermark)
            if watermark >= one.floor and one.may_publish():
                self._publish(one)
        del queue[:i]

    def _enter_fast_path(self, one: ReplicatedSubscription, replicas: list[Replica]) -> None:
        """Put a subscription on the fast path if it is steady: all its replicas count, and the published list is that of the replicas."""
        if (
            len(replicas) < len(one.replicas)
            or one.known != one.replicas.keys()
            or [(row[2], *row[:2]) for row in best_of(replicas, one.k)] != [(seq, score, position) for seq, position, score, _ in one.published]
        ):
            return
        rows = [
            Row(score, position, seq, task, message) for task, replica in one.replicas.items() for seq, (score, position, message) in replica.entries.items()
        ]
        written = one.registration not in self._dirty
        self._dirty.pop(one.registration, None)
        one.slot = self._fast.enter(one.name, one.registration, one.meta, one.k, rows, one.last, written or not self._wants_lists)
        one.published = None
        for replica in replicas:
            replica.entries = {}

    def _leave_fast_path(self, one: ReplicatedSubscription) -> None:
        rows, last, written, one.queue = self._fast.leave(one.slot)
        one.slot = -1
        one.at = one.last = last
        for score, position, seq, task, message in rows:
            one.replicas[task].entries[seq] = (score, position, message)
        one.published = [(seq, position, score, message) for score, position, seq, message in best_of(one.replicas.values(), one.k)]
        if not written:
            self._mark_dirty(one.registration)
        if one.queue:
            self._busy[one.registration] = None

    def _apply(self, one: ReplicatedSubscription, action: Listing | Drop | Change) -> None:
        if isinstance(action, Listing):
            if action.base is not None and one.published is None and not one.begun:  # nothing is published of one that began here
                one.published = action.base.rows()
                self._mark_dirty(one.registration)  # the replica may not have written it yet
            if action.claims:
                entries = {seq: (score, position, message) for seq, position, score, message in action.ranked.rows()}
                one.replicas[action.task] = Replica(action.claims, action.alone, entries)
            else:
                one.replicas.pop(action.task, None)
        elif (replica := one.replicas.get(action.task)) is not None:
            if isinstance(action, Drop):
                del one.replicas[action.task]
            elif action.op == ADD:
                replica.entries[action.seq] = (action.score, action.position, action.message)
            else:
                replica.entries.pop(action.seq, None)

    def _publish(self, one: ReplicatedSubscription) -> None:
        """Publish the merged list, if it is known, as of the last action."""
        replicas = one.complete()
        if replicas is None:
            return
        watermark = max(one.at, one.floor, one.last)
        best = best_of(replicas, one.k)
        before = one.published
        scores: dict[int, float] = {}  # that are published and may be others now
        if before is None or one.heir_of is not None:
            self._events.append(Event(one.name, one.registration, "active" if before is None else "updated", watermark))
            self._mark_dirty(one.registration)
            before, one.heir_of = before or [], None
            scores = {seq: score for seq, _, score, _ in before}
        one.last = watermark
        listed, had = {seq for _, _, seq, _ in best}, {seq for seq, _, _, _ in before}
        one.published = [(seq, position, score, message) for score, position, seq, message in best]
        if listed == had and not scores:
            return
        self._mark_dirty(one.registration)
        delta = partial(Results, subscription=one.name, registration=one.registration, watermark=watermark, meta=one.meta)
        self._deltas.extend(delta(kind=REMOVE, message=message) for seq, _, _, message in before if seq not in listed)
        for rank, (score, _, seq, message) in enumerate(best, 1):
            if seq not in had or score != scores.get(seq, score):
                self._deltas.append(delta(kind=SCORE if seq in had else ADD, message=message, score=score, rank=rank))

    def write_lists(self) -> bool:
        """Publish lists that changed since they were written, unless they are unknown at present; return whether there were any."""
        done = []
        for registration in self._dirty:
            one = self._kept.get(registration)
            if one is None:
                done.append(registration)
            elif one.published is not None and one.heir_of is None and one.may_publish() and one.floor <= self.watermark and one.complete() is not None:
                self._items.append(self._whole(one))
                done.append(registration)
        for registration in done:
            del self._dirty[registration]
        lists = self._fast.pop_unwritten(self.watermark)
        if lists is not None:
            self._lists = lists
        return bool(done) or lists is not None

    def _whole(self, one: ReplicatedSubscription) -> TopkList:
        return TopkList(one.name, one.registration, max(self.watermark, one.last), [row[3] for row in one.published], [row[2] for row in one.published])

    # -- state ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as plain values, when everything has been published."""
        return {
            "watermark": self.watermark,
            "lives": [one.snapshot() for one in self._kept.values()],
            "steady": self._fast.snapshot(),
            "chains": list(self._chains.items()),
            "busy": list(self._busy),
            "dirty": list(self._dirty),
            "ends": self._ends,
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self.watermark = state["watermark"]
        self._fast.restore(state["steady"])
        for one in map(ReplicatedSubscription.restored, state["lives"]):
            self._kept[one.registration] = one
        self._chains = {name: list(chain) for name, chain in state["chains"]}
        self._busy, self._dirty = dict.fromkeys(state["busy"]), dict.fromkeys(state["dirty"])
        self._ends = [tuple(end) for end in state["ends"]]
