"""Objects that move: the newest message of an object is its *state*, and replaces the one before it.

The distribution task that has an object sends each *update* as a pair, the state that begins and the state that ends. Both go to the subscription
tasks that need either. There a subscription reports the update as

- ``enter`` if it matches the new state and did not match the one before,
- ``inside`` if it matches both, for subscriptions that want to know,
- ``leave`` if it matched the one before only. A deletion and an expiry have no new state.

Subscription tasks keep nothing about objects: whether a subscription matched the former state follows from the state and from when the subscription
began. A task with the subscription that gets the pair has both states and the whole predicate, so all of them find the same. And one of them gets the pair
if either state matches, because every matching message goes to one of the subscription's tasks.

For a top-k subscription the new state is a message like others, and the former one leaves its list at the position of the update. An evaluation may have brought
a list messages that the distributor sends to other tasks. So tasks that need neither state get the former one, too, alone.

Updates are applied when the watermark has passed them, in rising order of (position, sequence number): by their own times with a time window, by
arrival with a count window. There an update whose own time is before that of the object's state is *outdated*, and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.bolts.message_queue import Arrived
from dskype.spouts.areas import areas_to_columns
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import csr_to_lists, distinct
from dskype.spouts.streams import Ends, Pairs

__all__ = ["FORMER", "FORMER_ALONE", "ObjectTable", "ObjectUpdates", "StatePairs"]

FORMER, FORMER_ALONE = 1, 2
"""Values of ``StatePairs.before``: the state before the update, beside the new one if there is one; and without it, for lists alone."""

_FREE = np.iinfo(np.int64).max // 2
"""Position of the state in a slot that is free."""
_SLACK = 4096
"""Rows of states that have been replaced, beside as many as there are objects, before they are dropped."""


class ObjectUpdates(NamedTuple):
    """Messages that are states of objects.

    :ivar states: the messages; a deletion has no words, and lies at (0, 0).
    :ivar names: ids of the objects, a pyarrow string array.
    :ivar times_ms: int64[n], by which the states of an object follow each other.
    :ivar deleted: int8[n], 1 where the object ends.
    """

    states: Arrived
    names: Any
    times_ms: np.ndarray
    deleted: np.ndarray

    @property
    def messages(self) -> MessageBatch:
        """The messages."""
        return self.states.messages

    @classmethod
    def concat(cls, parts: Sequence[ObjectUpdates]) -> ObjectUpdates:
        """Return the updates of several parts, one after another."""
        if not parts:
            return cls(Arrived.concat([]), pa.array([], pa.string()), np.zeros(0, np.int64), np.zeros(0, np.int8))
        states, names, times_ms, deleted = zip(*parts)
        return cls(Arrived.concat(states), pa.concat_arrays(names), np.concatenate(times_ms), np.concatenate(deleted))

    def select(self, rows: np.ndarray) -> ObjectUpdates:
        """Return the updates at ``rows``, in that order."""
        return ObjectUpdates(self.states.select(rows), self.names.take(pa.array(rows)), self.times_ms[rows], self.deleted[rows])

    def snapshot(self) -> Any:
        """Return them as arrays."""
        return [self.states.snapshot(), *self[1:]]

    @classmethod
    def restored(cls, state: Any) -> ObjectUpdates:
        """Return the updates in a snapshot."""
        states, names, times_ms, deleted = state
        return cls(Arrived.restored(states), names, np.array(times_ms), np.array(deleted))


class StatePairs(NamedTuple):
    """Updates with the states that they begin and end, as stream ``pairs`` has them: one or two rows for each, which are neighbours.

    :ivar states: of each row the state; position, sequence number, id and arrival are those of the update.
    :ivar before: int8[n]: 0, the state that begins; ``FORMER``, the one before; ``FORMER_ALONE``, the one before without the other.
    :ivar since: int64[n], position at which the state began.
    :ivar since_ms: int64[n], when the message arrived that it began with.
    :ivar since_seq: int64[n], sequence number of that message.
    """

    states: Arrived
    before: np.ndarray
    since: np.ndarray
    since_ms: np.ndarray
    since_seq: np.ndarray

    @property
    def messages(self) -> MessageBatch:
        """The states as columns."""
        return self.states.messages

    @classmethod
    def of(cls, received: Pairs) -> StatePairs:
        """Return the pairs in a batch of the stream."""
        seqs = received.since_seq if isinstance(received.since_seq, np.ndarray) else received.since  # frames of earlier versions have none
        return cls(Arrived.of(received), *(np.array(column) for column in (received.before, received.since, received.since_ms, seqs)))

    def columns(self) -> Pairs:
        """Return the pairs as they travel."""
        messages, ids, arrival_ms, details = self.states
        return Pairs(
            seq=messages.seq,
            position=messages.position,
            id=ids,
            terms=csr_to_lists(messages.offsets, messages.terms),
            weights=csr_to_lists(messages.offsets, messages.weights),
            **dict(zip(("lat", "lon"), areas_to_columns(messages.lat, messages.lon, messages.areas))),
            arrival_ms=arrival_ms,
            **details.columns(),
            before=self.before,
            since=self.since,
            since_ms=self.since_ms,
            since_seq=self.since_seq,
        )

    @classmethod
    def concat(cls, parts: Sequence[StatePairs]) -> StatePairs:
        """Return the pairs of several parts, one after another."""
        if not parts:
            return cls(Arrived.concat([]), np.zeros(0, np.int8), *(np.zeros(0, np.int64) for _ in range(3)))
        states, *columns = zip(*parts)
        return cls(Arrived.concat(states), *map(np.concatenate, columns))

    def select(self, rows: np.ndarray) -> StatePairs:
        """Return the rows at ``rows``, in that order."""
        return StatePairs(self.states.select(rows), *(column[rows] for column in self[1:]))

    def of_tasks(self) -> StatePairs:
        """Return the pairs without the former states that have come alone."""
        alone = self.before == FORMER_ALONE
        return self.select(np.flatnonzero(~alone)) if alone.any() else self

    def begun(self) -> Arrived:
        """Return the states that begin, as messages."""
        return self.states.select(np.flatnonzero(self.before == 0))

    def arrivals_ms(self) -> np.ndarray:
        """Return when updates arrived; an object whose time was over ended without one."""
        return self.states.arrival_ms[self.messages.seq >= 0]

    def ends(self) -> Ends:
        """Return the messages that end."""
        rows = np.flatnonzero(self.before > 0)
        return Ends(seq=self.since_seq[rows], since=self.since[rows], position=self.messages.position[rows])

    def with_messages(self, arrived: Arrived) -> tuple[Arrived, np.ndarray]:
        """Return what changes lists, in rising order of (position, sequence number): messages, states that begin, and those that end (bool[n]).

        A state that ends where it began is left out: it counts at no watermark. One that ends has its own sequence number, and the position of its end.

        :param arrived: messages of no object, in that order.
        """
        messages = self.messages
        short = (self.before > 0) & (self.since == messages.position)
        never = np.isin(messages.seq, self.since_seq[short])
        begun, ended = np.flatnonzero((self.before == 0) & ~never), np.flatnonzero((self.before > 0) & ~short)
        last = self.states.select(ended)
        last = last._replace(messages=last.messages._replace(seq=self.since_seq[ended]))
        found = Arrived.concat([arrived, self.states.select(begun), last])
        order = np.lexsort((found.messages.seq, found.messages.position))
        return found.select(order), order >= len(found.messages.seq) - len(ended)

    def updates(self) -> np.ndarray:
        """Return of each row the number of its update, rising from 0 (int64[n])."""
        seq, position = self.messages.seq, self.messages.position
        new = np.ones(len(seq), bool)
        new[1:] = (seq[1:] != seq[:-1]) | (position[1:] != position[:-1])
        return np.cumsum(new) - 1

    def snapshot(self) -> Any:
        """Return them as arrays."""
        return [self.states.snapshot(), *self[1:]]

    @classmethod
    def restored(cls, state: Any) -> StatePairs:
        """Return the pairs in a snapshot."""
        states, before, since, since_ms, *since_seq = state
        return cls(Arrived.restored(states), *map(np.array, (before, since, since_ms, *(since_seq or [since]))))


class _Rows(NamedTuple):
    """The rows of pairs that are being made: an update, and a state. Each is a row of the updates, or ``~slot`` of the table.

    :ivar before: int64[n], 1 where it is the state before the update.
    :ivar expired: bool[n], where an object ends by itself; None: nowhere, and the rows are in order.
    """

    update: np.ndarray
    state: np.ndarray
    before: np.ndarray
    expired: np.ndarray | None = None


class _RowList:
    """The same, row by row."""

    def __init__(self) -> None:
        self.update: list[int] = []
        self.state: list[int] = []
        self.before: list[int] = []
        self.expired: list[bool] = []

    def add(self, update: int, state: int, before: int, expired: bool = False) -> None:
        self.update.append(update)
        self.state.append(state)
        self.before.append(before)
        self.expired.append(expired)

    def rows(self) -> _Rows:
        update, state, before = (np.array(column, np.int64) for column in (self.update, self.state, self.before))
        return _Rows(update, state, before, np.array(self.expired, bool))


class ObjectTable:
    """The states of the objects of a distribution task.

    States lie in chunks of columns, and a slot says where the state of its object is. An update appends its state; chunks are joined, the newest
    first, so that there are O(log n) of them, and what has been replaced is dropped then. Applying an update takes O(log n) amortised.

    :param ttl_ms: how long an object lasts without an update, in ms; None: until it is deleted.
    :param most: how many objects it may have.
    """

    def __init__(self, ttl_ms: int | None, most: int) -> None:
        self._ttl_ms, self._most = ttl_ms, most
        self._slots: dict[str, int] = {}
        self._names: list[str] = []  # by slot; "" where it is free
        self._free: list[int] = []
        self._position, self._times_ms = np.full(0, _FREE), np.zeros(0, np.int64)  # by slot
        self._place = np.zeros((2, 0), np.int64)  # by slot: number of the chunk, and the row there
        self._chunks: dict[int, tuple[Arrived, np.ndarray]] = {}  # by rising number: states, and the slot of each
        self._next = 0
        self._due = _FREE  # no object expires before this position
        self.outdated = 0
        """How many updates were left out because the object has a newer state."""
        self.refused = 0
        """How many updates were refused because the table is full."""

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._slots)

    def apply(self, updates: ObjectUpdates, watermark: int) -> StatePairs:
        """Apply updates, and let objects expire up to a watermark; return the pairs, in rising order of (position, sequence number).

        :param updates: all up to the watermark, in that order.
        """
        rows, newest = self._follow_plain(updates) or self._follow(updates)
        parts = [self._pairs(updates, rows)] if len(rows.state) else []
        self._commit(updates, newest)
        if self._ttl_ms is not None and self._due <= watermark:
            parts += self._expire(watermark)
        found = StatePairs.concat(parts)
        return found if len(parts) < 2 else found.select(np.lexsort((found.before, found.messages.seq, found.messages.position)))

    def _follow(self, updates: ObjectUpdates) -> tuple[_Rows, dict[str, int | None]]:
        """Return the rows of the pairs, and the last state of each object that has been updated: a row, ``~slot``, or None if it has ended."""
        rows, newest, room = _RowList(), dict[str, int | None](), self._most - len(self._slots)
        positions, times_ms = updates.messages.position.tolist(), updates.times_ms.tolist()
        for row, (name, gone) in enumerate(zip(updates.names.to_pylist(), updates.deleted.tolist())):
            state = newest[name] if name in newest else self._ref(name)
            if state is not None:
                slot = ~state
                since, since_ms = (positions[state], times_ms[state]) if state >= 0 else (int(self._position[slot]), int(self._times_ms[slot]))
                if self._ttl_ms is not None and positions[row] > since + self._ttl_ms:
                    rows.add(state, state, 1, expired=True)
                    newest[name], state = None, None
                    room += 1
                elif times_ms[row] < since_ms:
                    self.outdated += 1
                    continue
            if gone:
                if state is not None:
                    rows.add(row, state, 1)
                    room += 1
                newest[name] = None
            elif state is None and room <= 0:
                self.refused += 1
            else:
                room -= state is None
                rows.add(row, row, 0)
                if state is not None:
                    rows.add(row, state, 1)
                newest[name] = row
        return rows.rows(), newest

    def _follow_plain(self, updates: ObjectUpdates) -> tuple[_Rows, dict[str, int | None]] | None:
        """Return the same without a loop over updates; None where one of them does more than to begin a state and to replace the one before it."""
        if updates.deleted.any():
            return None
        n, names, positions, times_ms = len(updates.times_ms), updates.names.to_pylist(), updates.messages.position, updates.times_ms
        slots, fresh = np.fromiter(map(self._slots.get, names, repeat(-1)), np.int64, n), dict[str, int]()
        for row in np.flatnonzero(slots < 0).tolist():
            slots[row] = ~fresh.setdefault(names[row], len(fresh))
        if len(fresh) > self._most - len(self._slots):
            return None
        order = np.argsort(slots, kind="stable")
        again = np.flatnonzero(slots[order[1:]] == slots[order[:-1]])
        before = ~slots  # of a new object it says nothing, unless an earlier row is about the same object
        before[order[again + 1]] = order[again]
        known = slots >= 0
        known[order[again + 1]] = True
        second, earlier = before[known], before[known] >= 0
        in_batch, in_table = second[earlier], ~second[~earlier]
        since, since_ms = np.zeros(len(second), np.int64), np.zeros(len(second), np.int64)
        since[earlier], since[~earlier] = positions[in_batch], self._position[in_table]
        since_ms[earlier], since_ms[~earlier] = times_ms[in_batch], self._times_ms[in_table]
        if (times_ms[known] < since_ms).any() or (self._ttl_ms is not None and (positions[known] > since + self._ttl_ms).any()):
            return None
        update = np.repeat(np.arange(n), 1 + known)
        state, is_before = update.copy(), np.zeros(len(update), np.int64)
        is_before[at := (np.cumsum(1 + known) - 1)[known]] = 1
        state[at] = second
        last = np.ones(n, bool)
        last[order[again]] = False
        return _Rows(update, state, is_before), {names[row]: row for row in np.flatnonzero(last).tolist()}

    def _ref(self, name: str) -> int | None:
        slot = self._slots.get(name)
        return None if slot is None else ~slot

    def _pairs(self, updates: ObjectUpdates, rows: _Rows) -> StatePairs:
        """Return pairs, in rising order of (position, sequence number)."""
        update, state, before, expired = rows
        if (old := distinct(update[update < 0], state[state < 0])).size:
            # States of the table come behind the updates.
            parts, places = self._parts(~old)
            everything = Arrived.concat([updates.states, *parts])
            for refs in (update, state):
                stored = refs < 0
                refs[stored] = updates.messages.n + places[np.searchsorted(old, refs[stored])]
        else:
            everything = updates.states
        found = everything.select(state)
        messages, position, seq = found.messages, everything.messages.position[update], everything.messages.seq[update]
        arrival_ms = everything.arrival_ms[update]
        if expired is not None and expired.any():
            assert self._ttl_ms is not None
            position, seq = np.where(expired, position + self._ttl_ms, position), np.where(expired, ~seq, seq)
            arrival_ms = np.where(expired, position, arrival_ms)
        ids = everything.ids.take(update)
        pairs = StatePairs(
            Arrived(messages._replace(seq=seq, position=position), ids, arrival_ms, found.details),
            before.astype(np.int8),
            messages.position,
            found.arrival_ms,
            messages.seq,
        )
        return pairs if expired is None else pairs.select(np.lexsort((pairs.before, seq, position)))

    def _expire(self, watermark: int) -> list[StatePairs]:
        """End the objects whose time is over at a watermark."""
        assert self._ttl_ms is not None
        slots = np.flatnonzero(self._position + self._ttl_ms <= watermark)
        parts = []
        if len(slots):
            ones = np.ones(len(slots), np.int64)
            parts = [self._pairs(ObjectUpdates.concat([]), _Rows(~slots, ~slots, ones, ones == 1))]
            for slot in slots.tolist():
                self._release(slot)
        self._due = int(self._position.min(initial=_FREE)) + self._ttl_ms
        return parts

    def _commit(self, updates: ObjectUpdates, newest: dict[str, int | None]) -> None:
        """Let the table have the last states."""
        kept, slots = [], []
        for name, state in newest.items():
            slot = self._slots.get(name)
            if state is None:
                if slot is not None:
                    self._release(slot)
            elif state >= 0:
                kept.append(state)
                slots.append(self._allocate(name) if slot is None else slot)
        if not kept:
            return
        rows, places = np.array(kept), np.array(slots)
        self._position[places], self._times_ms[places] = updates.messages.position[rows], updates.times_ms[rows]
        if self._ttl_ms is not None:
            self._due = min(self._due, int(updates.messages.position[rows].min()) + self._ttl_ms)
        self._add_chunk(updates.states.select(rows), places)
        self._join_chunks()

    def _allocate(self, name: str) -> int:
        if self._free:
            slot = self._free.pop()
            self._names[slot] = name
        else:
            slot = len(self._names)
            self._names.append(name)
            if slot >= len(self._position):
                more = 64 + slot // 2
                self._position = np.concatenate((self._position, np.full(more, _FREE)))
                self._times_ms = np.concatenate((self._times_ms, np.zeros(more, np.int64)))
                self._place = np.concatenate((self._place, np.full((2, more), -1)), axis=1)
        self._slots[name] = slot
        return slot

    def _release(self, slot: int) -> None:
        del self._slots[self._names[slot]]
        self._names[slot] = ""
        self._position[slot], self._place[0, slot] = _FREE, -1
        self._free.append(slot)

    # -- chunks -------------------------------------------------------------------------------------------------------

    def _add_chunk(self, states: Arrived, slots: np.ndarray) -> None:
        self._chunks[self._next] = states, slots
        self._place[:, slots] = np.full(len(slots), self._next), np.arange(len(slots))
        self._next += 1

    def _join_chunks(self) -> None:
        """Join the newest chunks while the one before is not twice as large, and all of them when most of their rows have been replaced."""
        numbers = list(self._chunks)
        sizes = [len(self._chunks[number][1]) for number in numbers]
        if sum(sizes) > 2 * len(self._slots) + _SLACK:
            self._join(numbers)
            return
        first, size = len(sizes) - 1, sizes[-1]
        while first and sizes[first - 1] < 2 * size:
            first -= 1
            size += sizes[first]
        if first < len(numbers) - 1:
            self._join(numbers[first:])

    def _join(self, numbers: list[int]) -> None:
        """Make one chunk of some, without what has been replaced."""
        parts, slots = [], []
        for number in numbers:
            states, of = self._chunks.pop(number)
            live = np.flatnonzero((self._place[0, of] == number) & (self._place[1, of] == np.arange(len(of))))
            parts.append(states.select(live))
            slots.append(of[live])
        self._add_chunk(Arrived.concat(parts), np.concatenate(slots))

    def _parts(self, slots: np.ndarray) -> tuple[list[Arrived], np.ndarray]:
        """Return the states in slots, those of each chunk together, and where each lies when these follow one another."""
        numbers, rows = self._place[:, slots]
        parts, order = [], []
        for number in distinct(numbers).tolist():
            at = np.flatnonzero(numbers == number)
            parts.append(self._chunks[number][0].select(rows[at]))
            order.append(at)
        back = np.empty(len(slots), np.int64)
        back[np.concatenate(order)] = np.arange(len(slots))
        return parts, back

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the states as arrays, and what was counted."""
        slots = np.array(list(self._slots.values()), np.int64)
        parts, places = self._parts(slots) if len(slots) else ([], slots)
        states = Arrived.concat(parts).select(places)
        return [list(self._slots), states.snapshot(), self._times_ms[slots], self.outdated, self.refused]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot, in a new table."""
        names, states, times_ms, self.outdated, self.refused = state
        slots = np.array([self._allocate(name) for name in names], np.int64)
        if len(slots):
            arrived = Arrived.restored(states)
            self._position[slots], self._times_ms[slots] = arrived.messages.position, times_ms
            self._add_chunk(arrived, slots)
        if self._ttl_ms is not None:
            self._due = int(self._position.min(initial=_FREE)) + self._ttl_ms
