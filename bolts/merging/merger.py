"""Merges what the replicas of subscriptions have found; the state of a result task with a distributor that replicates.

**What comes in.** Deltas of top-k lists and matches are columns (stream ``results``); their ``kind`` is that of the delta, plus
:data:`PART` if it is a change of one replica's list. Everything else are records on stream ``lists``, by kind::

    replica  [registration, watermark, k, meta, claims, alone, list, base]   what a replica has, as of a watermark (see below)
    drop     [registration, watermark]                                it has no replica any more
    gone     [registration, meta, base]                               it has forgotten the subscription, which has ended
    topk, event                                                       see ResultPublisher

``claims`` are the epochs [epoch, tasks] for which the replica is ready; ``list`` and ``base`` are [seqs, positions, scores, ids]
in rank order, or None; ``base`` is what was published of it so far, where the replica knows; ``alone`` tells that the replica is
ready and the only one of its newest epoch, so that its next changes come as deltas to be published. Stream ``registrations`` says what
the distribution task that owns a subscription has done, in its order: begin and end.

**When something is published.** The newest list of a replica holds until it sends a change, and changes of watermark *w* are
there when this task's watermark has reached *w*. At every watermark at which something changed, a subscription is published
if there is an epoch all of whose tasks claim it: the k best of their lists together. Why that is exact: :mod:`dskype.bolts.replicas`.
Otherwise nothing is published of it, and later its list jumps.

**One replica.** While a subscription has one replica that is ready, its deltas are what is to be published; they are passed on
as columns, and nothing is kept of it here. A :class:`_Life` is kept where that is not so: from the beginning to the first list;
while there are several replicas (the first one hands over what it has published, ``base``); and at the end until all tasks
have said ``gone``. A new registration of a subscription is published only when the one before has been taken back.

**Steady lives.** A life whose replicas are those of one epoch, from which nothing comes but changes, is kept in arrays
(:class:`~dskype.bolts.merging.steady.SteadyLists`) until anything else comes. That changes nothing but the time it takes.

**Matches** of boolean subscriptions wait for the watermark, and each is published once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.merging.steady import DeltaColumns, ListColumns, Row, SteadyLists
from dskype.bolts.results.formats import ADD, REMOVE

__all__ = ["Delta", "Event", "Merger", "PART", "Removed", "Taken", "Whole"]

PART = 4
"""Added to the kind of a delta that is of one replica's list."""
_BEFORE_ALL = -1
_PASSED_ON, _MERGED = -1, -2


class Delta(NamedTuple):
    """A change to be published."""

    subscription: str
    registration: str
    meta: str | None
    op: int
    message: str
    score: float
    rank: int
    watermark: int


class Event(NamedTuple):
    """An event to be published."""

    subscription: str
    registration: str
    event: str
    watermark: int


class Whole(NamedTuple):
    """A list to be published."""

    subscription: str
    registration: str
    watermark: int
    messages: list[str]
    scores: list[float]


class Removed(NamedTuple):
    """A list that is no more."""

    subscription: str
    registration: str
    watermark: int


class Taken(NamedTuple):
    """What is to be published; each in order.

    :ivar steady, lists: of steady lives. A subscription is in one of ``deltas`` and ``steady`` only.
    """

    deltas: list[Delta]
    steady: DeltaColumns | None
    events: list[Event]
    items: list[Whole | Removed]
    lists: ListColumns | None


class _Replica:
    """What one task has of a subscription."""

    __slots__ = ("alone", "claims", "entries")

    def __init__(self, claims: list[list[Any]], alone: bool, entries: dict[int, tuple[float, int, str]]) -> None:
        self.claims, self.alone, self.entries = claims, alone, entries

    def claims_epoch(self, epoch: int) -> bool:
        return any(claim[0] == epoch for claim in self.claims)


class _Life:
    """A registration of a top-k subscription that needs to be looked at.

    :ivar begun: its beginning is known; nothing is published below ``floor``, nor while it is ``blocked`` by one before it.
    :ivar known: tasks whose changes belong to ``replicas``, now or when ``queue`` is done; of others they are passed on.
    :ivar queue: [watermark, task, what, ...] to be applied.
    :ivar at: watermark of what was applied last.
    :ivar published: (seq, position, score, id) in rank order; None: nothing yet, or not known here. ``last``: its watermark.
    :ivar ended: the tasks that will say ``gone``; None: it has not ended. ``gone``: those that have, and their bases.
    :ivar slot: where it is while it is steady, and what is published and in the replicas' lists is there; -1: it is not.
    """

    __slots__ = (
        "at",
        "begun",
        "blocked",
        "end_at",
        "ended",
        "floor",
        "gone",
        "k",
        "known",
        "last",
        "meta",
        "name",
        "published",
        "queue",
        "registration",
        "replaced",
        "replicas",
        "slot",
    )

    def __init__(self, name: str, registration: str) -> None:
        self.name, self.registration = name, registration
        self.meta: str | None = None
        self.k = 0
        self.begun = self.blocked = self.replaced = False
        self.floor = self.at = self.last = self.end_at = _BEFORE_ALL
        self.known: set[int] = set()
        self.queue: list[list[Any]] = []
        self.replicas: dict[int, _Replica] = {}
        self.published: list[tuple[int, int, float, str]] | None = None
        self.ended: set[int] | None = None
        self.gone: dict[int, Any] = {}
        self.slot = -1

    def may_publish(self) -> bool:
        return (self.begun or self.published is not None) and not self.blocked and self.ended is None and not self.gone

    def complete(self) -> list[_Replica] | None:
        """Return the replicas of the newest epoch that all of its tasks claim."""
        epochs = sorted({(epoch, tuple(tasks)) for replica in self.replicas.values() for epoch, tasks in replica.claims}, reverse=True)
        for epoch, tasks in epochs:
            replicas = [self.replicas.get(task) for task in tasks]
            if all(r is not None and r.claims_epoch(epoch) for r in replicas):
                return replicas  # type: ignore[return-value]
        return None

    def alone(self) -> bool:
        """Tell whether one replica's changes are all that will be published."""
        newest = max((epoch for replica in self.replicas.values() for epoch, _ in replica.claims), default=None)
        claiming = [replica for replica in self.replicas.values() if newest is not None and replica.claims_epoch(newest)]
        return len(claiming) == 1 and claiming[0].alone

    def empty(self) -> bool:
        """Tell whether nothing is known that anybody could need."""
        return not (self.begun or self.replicas or self.queue or self.gone or self.ended is not None or self.published is not None)


class Merger:
    """What a result task knows of subscriptions that are not simply passed on; see the module.

    Every call adds to what is to be published; :meth:`taken` returns it.

    :param extent: of the window.
    :param lists: whether whole lists are wanted.
    """

    def __init__(self, extent: int, lists: bool = True) -> None:
        self.watermark = _BEFORE_ALL
        self._wants_lists = lists
        self._steady = SteadyLists(extent)
        self._lives: dict[str, _Life] = {}
        self._chains: dict[str, list[str]] = {}  # subscription -> registrations that wait for the first to be taken back
        self._busy: dict[str, None] = {}  # those with something to be done when the watermark rises
        self._dirty: dict[str, None] = {}
        self._ends: list[tuple[int, str, str]] = []  # boolean registrations that ended
        self._taken = Taken([], None, [], [], None)

    def __len__(self) -> int:
        return len(self._lives)

    def taken(self) -> Taken:
        """Return what is to be published, and forget it."""
        found, self._taken = self._taken, Taken([], None, [], [], None)
        return found

    # -- beginnings and ends --------------------------------------------------------------------------------------------

    def begin(self, subscription: str, registration: str, topk: bool, at: int) -> None:
        """Note that a subscription was registered; boolean ones are active at once, for what comes after ``at``."""
        if not topk:
            self._taken.events.append(Event(subscription, registration, "active", at))
            return
        life = self._life(subscription, registration)
        life.begun, life.floor = True, at
        if subscription in self._chains:
            self._chains[subscription].append(registration)
            life.blocked = True
        self._process(life)

    def end(self, subscription: str, registration: str, topk: bool, at: int, tasks: Sequence[int], replaced: bool) -> None:
        """Note that a registration has ended; ``tasks`` will say ``gone``."""
        if not topk:
            self._ends.append((at, subscription, registration))
            self._end_filters()
            return
        life = self._life(subscription, registration)
        life.ended, life.end_at, life.replaced = set(tasks), at, replaced
        chain = self._chains.setdefault(subscription, [])
        if registration not in chain:
            chain.append(registration)
        self._close(subscription)

    def _life(self, subscription: str, registration: str) -> _Life:
        life = self._found(registration)
        if life is None:
            life = self._lives[registration] = _Life(subscription, registration)
        return life

    def _found(self, registration: str) -> _Life | None:
        """Return a life to which something happens, which ends its being steady."""
        life = self._lives.get(registration)
        if life is not None and life.slot >= 0:
            self._loosen(life)
        return life

    def _close(self, subscription: str) -> None:
        """Take back the registrations of a subscription that have ended everywhere, one after the other."""
        chain = self._chains.get(subscription)
        if chain is None:
            return
        while chain:
            life = self._found(chain[0])
            if life.ended is None:
                life.blocked = False
                if len(chain) == 1:
                    del self._chains[subscription]
                self._process(life)
                return
            if not life.ended <= life.gone.keys():
                return
            chain.pop(0)
            self._take_back(life)
        del self._chains[subscription]

    def _take_back(self, life: _Life) -> None:
        published = life.published
        if published is None:
            # One that has begun here has published nothing, whatever its replica was sure of. Else it has published what the
            # replica handed over first: that may still wait here, and what came later has never been published.
            waiting = [action[5] for action in life.queue if action[2] == "replica"]
            published = [] if life.begun else next((_rows(base) for base in (*waiting, *life.gone.values()) if base is not None), [])
        watermark = max(life.end_at, life.last)
        for _, _, score, message in published:
            self._taken.deltas.append(Delta(life.name, life.registration, life.meta, REMOVE, message, score, 0, watermark))
        self._taken.events.append(Event(life.name, life.registration, "removed", watermark))
        if not life.replaced:
            self._taken.items.append(Removed(life.name, life.registration, watermark))
        self._forget(life)

    def _forget(self, life: _Life) -> None:
        del self._lives[life.registration]
        self._busy.pop(life.registration, None)
        self._dirty.pop(life.registration, None)

    def _end_filters(self) -> None:
        left = []
        for at, subscription, registration in self._ends:
            if at <= self.watermark:
                self._taken.events.append(Event(subscription, registration, "removed", at))
            else:
                left.append((at, subscription, registration))
        self._ends = left

    # -- replicas -------------------------------------------------------------------------------------------------------

    def owns(self, registration: str, task: int) -> bool:
        """Tell whether a task's changes of a registration are merged here, and not passed on."""
        life = self._lives.get(registration)
        return life is not None and task in life.known

    def changed(self, registration: str) -> None:
        """Note that a list has changed which a replica would have written itself."""
        self._found(registration)
        self._soil(registration)

    def _soil(self, registration: str) -> None:
        if self._wants_lists:
            self._dirty[registration] = None

    def replica(self, subscription: str, task: int, record: list[Any]) -> None:
        """Take what a replica has."""
        registration, watermark, k, meta, claims, alone, entries, base = record
        life = self._found(registration)
        if life is None:
            if not claims and base is None:
                return
            life = self._life(subscription, registration)
        life.k, life.meta = k, meta
        life.known.add(task)
        life.queue.append([watermark, task, "replica", claims, alone, base, entries])
        self._process(life)

    def drop(self, task: int, record: list[Any]) -> None:
        """Take note that a task has no replica of a registration any more."""
        registration, watermark = record
        life = self._found(registration)
        if life is not None:
            life.known.discard(task)
            life.queue.append([watermark, task, "drop"])
            self._process(life)

    def gone(self, subscription: str, task: int, record: list[Any]) -> None:
        """Take note that a task has forgotten a registration that has ended."""
        registration, meta, base = record
        life = self._life(subscription, registration)
        life.known.discard(task)
        life.replicas.pop(task, None)
        life.gone[task] = base
        life.meta = meta
        self._close(subscription)

    def change(
        self,
        task: int,
        registrations: Any,
        kinds: np.ndarray,
        watermarks: np.ndarray,
        seqs: np.ndarray,
        positions: np.ndarray,
        scores: np.ndarray,
        messages: Any,
    ) -> np.ndarray:
        """Take changes of a task's lists, of watermarks that are still to come; columns, texts as pyarrow arrays.

        :returns: which of them are to be passed on, bool[n]; the others are merged, or are of a replica that does not count any more.
        """
        import pyarrow as pa

        parts = kinds >= PART
        if not self._lives:
            return ~parts
        names = registrations.dictionary_encode()
        listed = names.dictionary.to_pylist()
        owners = np.array([self._owner(name, task) for name in listed], np.int64)[names.indices.to_numpy()]
        columns = kinds % PART, watermarks, seqs, positions, scores
        steady = np.flatnonzero(owners >= 0)
        if len(steady):
            ops, *numbers = (column[steady] for column in columns)
            self._steady.add(owners[steady], task, ops, *numbers, messages.take(pa.array(steady)))
        loose = np.flatnonzero(owners == _MERGED)
        if len(loose):
            texts = messages.take(pa.array(loose)).to_pylist()
            for name, op, watermark, *given in zip(names.indices.to_numpy()[loose].tolist(), *(column[loose].tolist() for column in columns), texts):
                registration = listed[name]
                self._lives[registration].queue.append([watermark, task, "add" if op == ADD else "remove", *given])
                self._busy[registration] = None
        return ~parts & (owners == _PASSED_ON)

    def _owner(self, registration: str, task: int) -> int:
        """Return the slot of a steady life to which a task's changes belong, or a code."""
        life = self._lives.get(registration)
        if life is None or task not in life.known:
            return _PASSED_ON
        return life.slot if life.slot >= 0 else _MERGED

    def advance(self, watermark: int) -> None:
        """Do what the watermark allows."""
        self.watermark = watermark
        steady = self._steady.advance(watermark)
        if steady is not None:
            self._taken = self._taken._replace(steady=steady)
        for registration in list(self._busy):
            if registration in self._lives:
                self._process(self._lives[registration])
        self._end_filters()

    def _process(self, life: _Life) -> None:
        """Apply what the watermark has reached, and publish."""
        queue, now = life.queue, self.watermark
        if queue:
            queue.sort(key=lambda action: action[0])  # stable: a task's actions stay in order
            i, n = 0, len(queue)
            while i < n and queue[i][0] <= now:
                watermark = queue[i][0]
                while i < n and queue[i][0] == watermark:
                    self._apply(life, queue[i])
                    i += 1
                life.at = max(life.at, watermark)
                if watermark >= life.floor and life.may_publish():
                    self._publish(life)
            del queue[:i]
        waits = bool(queue)
        if life.may_publish() and not waits and (replicas := life.complete()) is not None:
            if life.floor <= now:
                if life.published is None or life.last < life.floor:
                    self._publish(life)
                if life.alone():
                    if life.registration in self._dirty:
                        self._taken.items.append(self._whole(life))
                    self._forget(life)
                    return
                self._steady_if(life, replicas)
            else:
                waits = True
        if life.empty():
            self._forget(life)
        elif waits:
            self._busy[life.registration] = None
        else:
            self._busy.pop(life.registration, None)

    def _steady_if(self, life: _Life, replicas: list[_Replica]) -> None:
        """Make a life steady if it can be: all replicas count, and what is published is what they have."""
        if (
            len(replicas) < len(life.replicas)
            or life.known != life.replicas.keys()
            or [(row[2], *row[:2]) for row in _best(replicas, life.k)] != [(seq, score, position) for seq, position, score, _ in life.published]
        ):
            return
        rows = [
            Row(score, position, seq, task, message) for task, replica in life.replicas.items() for seq, (score, position, message) in replica.entries.items()
        ]
        written = life.registration not in self._dirty
        self._dirty.pop(life.registration, None)
        life.slot = self._steady.enter(life.name, life.registration, life.meta, life.k, rows, life.last, written or not self._wants_lists)
        life.published = None
        for replica in replicas:
            replica.entries = {}

    def _loosen(self, life: _Life) -> None:
        """Take a life back that has been steady."""
        rows, last, written, waiting = self._steady.leave(life.slot)
        life.slot = -1
        life.at = life.last = last
        for score, position, seq, task, message in rows:
            life.replicas[task].entries[seq] = (score, position, message)
        life.published = [(seq, position, score, message) for score, position, seq, message in _best(life.replicas.values(), life.k)]
        if not written:
            self._soil(life.registration)
        ids = iter(self._steady.ids([change[3] for change in waiting if change[2] == ADD]))
        life.queue = [[watermark, task, "add" if op == ADD else "remove", *given, next(ids) if op == ADD else ""] for watermark, task, op, *given in waiting]
        if life.queue:
            self._busy[life.registration] = None

    def _apply(self, life: _Life, action: list[Any]) -> None:
        _, task, what, *given = action
        if what == "replica":
            claims, alone, base, entries = given
            if base is not None and life.published is None and not life.begun:  # (of one that has begun here nothing is published yet)
                life.published = _rows(base)
                self._soil(life.registration)  # the replica may have had it to write
            if claims:
                life.replicas[task] = _Replica(claims, alone, {seq: (score, position, message) for seq, position, score, message in _rows(entries)})
            else:
                life.replicas.pop(task, None)
            return
        replica = life.replicas.get(task)
        if replica is None:
            return
        if what == "drop":
            del life.replicas[task]
        elif what == "add":
            seq, position, score, message = given
            replica.entries[seq] = (score, position, message)
        else:
            replica.entries.pop(given[0], None)

    def _publish(self, life: _Life) -> None:
        """Publish the merged list, if it is known, as of what was applied last."""
        replicas = life.complete()
        if replicas is None:
            return
        watermark = max(life.at, life.floor, life.last)
        best = _best(replicas, life.k)
        before = life.published
        if before is None:
            self._taken.events.append(Event(life.name, life.registration, "active", watermark))
            self._soil(life.registration)
            before = []
        life.last = watermark
        listed, had = {seq for _, _, seq, _ in best}, {seq for seq, _, _, _ in before}
        life.published = [(seq, position, score, message) for score, position, seq, message in best]
        if listed == had:
            return
        self._soil(life.registration)
        name, registration, meta = life.name, life.registration, life.meta
        self._taken.deltas.extend(Delta(name, registration, meta, REMOVE, message, 0.0, 0, watermark) for seq, _, _, message in before if seq not in listed)
        self._taken.deltas.extend(
            Delta(name, registration, meta, ADD, message, score, rank, watermark) for rank, (score, _, seq, message) in enumerate(best, 1) if seq not in had
        )

    def write_lists(self) -> bool:
        """Have the lists written that changed since they were; those that are not known now wait. Returns whether there were any."""
        done = []
        for registration in self._dirty:
            life = self._lives.get(registration)
            if life is None:
                done.append(registration)
            elif life.published is not None and life.may_publish() and life.floor <= self.watermark and life.complete() is not None:
                self._taken.items.append(self._whole(life))
                done.append(registration)
        for registration in done:
            del self._dirty[registration]
        lists = self._steady.unwritten()
        if lists is not None:
            self._taken = self._taken._replace(lists=lists)
        return bool(done) or lists is not None

    def _whole(self, life: _Life) -> Whole:
        return Whole(life.name, life.registration, max(self.watermark, life.last), [row[3] for row in life.published], [row[2] for row in life.published])

    # -- state ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as plain values; taken when everything has been published."""
        lives = [
            [
                life.name,
                life.registration,
                life.meta,
                life.k,
                life.begun,
                life.blocked,
                life.replaced,
                life.floor,
                life.at,
                life.last,
                life.end_at,
                sorted(life.known),
                life.queue,
                [[task, r.claims, r.alone, list(r.entries), list(r.entries.values())] for task, r in life.replicas.items()],
                life.published,
                None if life.ended is None else sorted(life.ended),
                list(life.gone.items()),
                life.slot,
            ]
            for life in self._lives.values()
        ]
        return {
            "watermark": self.watermark,
            "lives": lives,
            "steady": self._steady.snapshot(),
            "chains": list(self._chains.items()),
            "busy": list(self._busy),
            "dirty": list(self._dirty),
            "ends": self._ends,
        }

    def restore(self, state: Any) -> None:
        """Take it over."""
        self.watermark = state["watermark"]
        self._steady.restore(state["steady"])
        for name, registration, meta, k, begun, blocked, replaced, floor, at, last, end_at, known, queue, replicas, published, ended, gone, slot in state[
            "lives"
        ]:
            life = self._lives[registration] = _Life(name, registration)
            life.meta, life.k, life.begun, life.blocked, life.replaced = meta, k, begun, blocked, replaced
            life.floor, life.at, life.last, life.end_at = floor, at, last, end_at
            life.known, life.queue = set(known), [list(action) for action in queue]
            life.replicas = {task: _Replica(claims, alone, dict(zip(seqs, map(tuple, entries)))) for task, claims, alone, seqs, entries in replicas}
            life.published = None if published is None else [tuple(row) for row in published]
            life.ended = None if ended is None else set(ended)
            life.gone, life.slot = {task: base for task, base in gone}, slot
        self._chains = {name: list(chain) for name, chain in state["chains"]}
        self._busy, self._dirty = dict.fromkeys(state["busy"]), dict.fromkeys(state["dirty"])
        self._ends = [tuple(end) for end in state["ends"]]


def _best(replicas: Iterable[_Replica], k: int) -> list[tuple[float, int, int, str]]:
    """Return (score, position, seq, id) of the k best messages of replicas' lists, in rank order."""
    union: dict[int, tuple[float, int, str]] = {}
    for replica in replicas:
        union.update(replica.entries)
    return sorted(((score, position, seq, message) for seq, (score, position, message) in union.items()), reverse=True)[:k]


def _rows(columns: Any) -> list[tuple[int, int, float, str]]:
    """Return (seq, position, score, id) of a list's columns."""
    seqs, positions, scores, messages = (column.tolist() if isinstance(column, np.ndarray) else column for column in columns)
    return list(zip(seqs, positions, scores, messages, strict=True))
