"""Follow results: every client of its own, from any place on, without a gap, and without slowing the others.

One thread per topology reads the ends of the topics (:class:`ResultTail`) and puts what a client wants into its queue. A client that begins in the
past, or whose queue was full because it takes too slowly, reads the topics itself until it has reached the place from which on the queue holds
everything; the consumers for that are shared (:mod:`~dskype.deploy.web.past`). So a client costs a bounded queue and some hundred records, whatever it does: what does not fit stays in Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kafka.errors import KafkaError

from dskype.deploy.client.follower import Follower, Once
from dskype.deploy.web.findings import Found, found_in
from dskype.deploy.web.message_feed import Listener, MessageTail
from dskype.deploy.web.past import Shared
from dskype.deploy.web.places import Place, Places
from dskype.deploy.web.tail import Tail
from dskype.spouts.topics import Topics
from dskype.topology.errors import TopologyError
from dskype.topology.ui.events import Event

__all__ = ["ResultFollower", "ResultTail"]

QUEUE = 500
"""Results that wait for one client, at most."""
_EACH_BYTES = 64 << 10
"""Bytes of records that may wait for a client although much waits for others."""
_AT_ONCE = 200
_READ_RECORDS, _READ_BYTES, _READ_S = 500, 128 << 10, 0.2
"""How much a client that reads alone gets at once; how many records have so many bytes is estimated from those that it has had."""
_QUIET_S = 15.0
_PATIENCE_S = 3.0
_REMEMBERED = 4096


class _Batch(NamedTuple):
    """What a record has for one client.

    :ivar place: behind the record.
    :ivar size: of this client's share of the record, bytes.
    """

    where: tuple[str, int]
    place: Place
    found: Sequence[Found]
    size: int


class ResultTail(Tail["ResultFollower"]):
    """Reads the ends of a topology's topics for all clients.

    :param topics: of the topology.
    :param queued_bytes: how many bytes of records may wait for all clients together, beside some that each may have in any case.
    :param is_current: as in :class:`~dskype.deploy.web.tail.Tail`.
    """

    def __init__(
        self, open_follower: Callable[[], Follower], topics: Topics, queued_bytes: int = 64 << 20, is_current: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(open_follower, f"results of {topics.results}", is_current)
        self._topics, self._most = topics, queued_bytes
        self._by_subscription: dict[str, set[ResultFollower]] = {}
        self._of_all: set[ResultFollower] = set()
        self.queued_bytes = 0

    def _add(self, member: ResultFollower) -> None:
        super()._add(member)
        if member.wanted is None:
            self._of_all.add(member)
        for id in member.wanted or ():
            self._by_subscription.setdefault(id, set()).add(member)

    def _remove(self, member: ResultFollower) -> None:
        super()._remove(member)
        self._of_all.discard(member)
        for id in member.wanted or ():
            if (others := self._by_subscription.get(id)) is not None:
                others.discard(member)
                if not others:
                    del self._by_subscription[id]

    def may_wait(self, queued_bytes: int, more: int) -> bool:
        """Tell whether further bytes may wait for a client; call it with the lock.

        :param queued_bytes: how many wait for it.
        """
        return queued_bytes + more <= _EACH_BYTES or self.queued_bytes + more <= self._most

    def _take(self, records: Sequence[Any]) -> None:
        for record in records:
            found = found_in(record, self._topics, None if self._of_all else self._by_subscription)
            if not found:
                continue
            shares: dict[ResultFollower, list[Found]] = dict.fromkeys(self._of_all, found)
            for one in found:
                for member in self._by_subscription.get(one.subscription, ()):
                    shares.setdefault(member, []).append(one)
            for member, its in shares.items():
                size = len(record.value or b"") * len(its) // len(found)
                if not member.offer(_Batch((record.topic, record.partition), Place(record.offset + 1), its, size)):
                    member.left = Places.of({**self._positions, **self._read_before(records, record)})
                    self._remove(member)

    def _read_before(self, records: Sequence[Any], last: Any) -> dict[tuple[str, int], int]:
        """Return the positions of partitions of a batch before the record ``last``: what comes before it has been handed out."""
        positions: dict[tuple[str, int], int] = {}
        for record in records:
            if record is last:
                break
            positions[record.topic, record.partition] = record.offset + 1
        return {**positions, (last.topic, last.partition): last.offset}

    def _dropped(self, member: ResultFollower) -> None:
        member.end()


class ResultFollower:
    """One client's events; an :class:`~dskype.topology.ui.events.EventSource`.

    :param tail: reads for all clients.
    :param topics: of the topology.
    :param wanted: ids of subscriptions; None: all.
    :param places: where to begin; None: now.
    :param present: returns the topics that are there.
    :param shared: consumers and threads.
    :param messages: adds to a result what is known of its message; None: nothing is added.
    :param unknown: returns which of the wanted subscriptions are not registered; None: nobody wants to know.
    :ivar closed: whether the client has gone.
    """

    def __init__(
        self,
        tail: ResultTail,
        topics: Topics,
        wanted: frozenset[str] | None,
        places: Places | None,
        present: Callable[[], list[str]],
        shared: Shared,
        messages: MessageTail | None = None,
        unknown: Callable[[], list[str]] | None = None,
    ) -> None:
        self._unknown = unknown
        self._asked: asyncio.Future[list[str]] | None = None
        self.wanted = wanted
        self.left: Places | None = None
        """Where the queue ends, if the tail has dropped this client because it was full."""
        self._tail, self._topics, self._present, self._messages = tail, topics, present, messages
        self._past, self._pool, self._joining = shared.past, shared.reading, shared.joining
        self._listener = Listener(self.end)
        self._queue: deque[_Batch] = deque()
        self._queued = self._queued_bytes = 0
        self._places, self._mark = places, Places()
        self._reads = False
        self._left_over: deque[Any] = deque()  # records that were read, and not handed over yet
        self._read_to: dict[tuple[str, int], int] = {}
        self._heard_s, self._record_bytes = 0.0, 1000.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._once = Once(_REMEMBERED)
        self.closed = False
        self._opened = self._joined = self._ended = False
        self._told_at = time.monotonic()

    # -- called by the tail, with its lock ----------------------------------------------------------------------------

    def offer(self, batch: _Batch) -> bool:
        """Put a record's findings into the queue; return False if there is no room. A single record always finds room in an empty queue."""
        if self._queued and (self._queued + len(batch.found) > QUEUE or not self._tail.may_wait(self._queued_bytes, batch.size)):
            return False
        self._queue.append(batch)
        self._count(len(batch.found), batch.size)
        self._notify()
        return True

    def _count(self, results: int, size: int) -> None:
        self._queued += results
        self._queued_bytes += size
        self._tail.queued_bytes += size

    def end(self) -> None:
        """Note that the tail of results or of messages has stopped: the client has to connect again."""
        self._ended = True
        self._notify()

    def _notify(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    # -- called by the server ------------------------------------------------------------------------------------------

    async def next(self) -> Sequence[Event] | None:
        """Return the next events; after some seconds without any, one without data that has the place; None when reading has ended."""
        self._loop = asyncio.get_running_loop()
        try:
            while not self.closed:
                self._wake.clear()
                if not self._joined:
                    await self._loop.run_in_executor(self._joining, self._join)
                    if not self._opened:
                        self._opened = True
                        return [Event("following", {"subscriptions": None if self.wanted is None else sorted(self.wanted)}, self._text())]
                if self._unknown is not None:  # in a pool of its own: the first time takes long, and holds up nobody's results
                    self._asked, self._unknown = self._loop.run_in_executor(None, self._unknown), None
                    self._asked.add_done_callback(lambda _: self._wake.set())
                if self._asked is not None and self._asked.done():
                    missing, self._asked = self._asked.result(), None
                    if missing:
                        return [Event("unknown", {"subscriptions": missing}, self._text())]
                if self._reads:
                    events = self._described(await self._loop.run_in_executor(self._pool, self._read))
                else:
                    events = await self._described_when_known(self._from_queue())
                if not events and time.monotonic() - self._told_at >= _QUIET_S:
                    events = [Event(id=self._caught_up())]  # the place moves on although nothing was for this client
                if events:
                    self._told_at = time.monotonic()
                    return events
                if not self._reads and self._joined:
                    if self._ended:
                        return None
                    await self._woken()
        except (KafkaError, OSError, TopologyError):
            return None
        return None

    @property
    def is_behind(self) -> bool:
        """Whether it still reads what came before it began."""
        return self._reads or not self._joined

    async def _woken(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), max(0.0, self._told_at + _QUIET_S - time.monotonic()))

    def close(self) -> None:
        """Leave the tail, and let others have the consumer."""
        self.closed = True
        self._leave()

    def _leave(self) -> None:
        self._tail.leave(self)
        with self._tail.lock:
            self._queue.clear()
            self._count(-self._queued, -self._queued_bytes)
        self._past.release(self)
        if self._messages is not None:
            self._messages.leave(self._listener)

    # -- reading alone, in a thread -------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Join the tail, and note whether something lies before it, which is read alone."""
        if self._messages is not None and not self._opened:
            self._messages.join(self._listener)
        self.left = None  # before it joins: from then on the tail may set it
        self._mark = Places.of(self._tail.join(self))
        if self._places is None:
            self._places = Places(self._mark)
        # Behind the mark there may be records that the tail has not read yet, or nothing, because the topic was made anew: only Kafka knows. So it does of
        # partitions that the tail does not have.
        ahead = any(where not in self._mark or place.offset > self._mark[where].offset for where, place in self._places.items())
        self._reads, self._heard_s = ahead or not self._places.reached(self._mark), time.monotonic()
        self._joined = True
        if self.closed:  # meanwhile
            self._leave()

    def _read(self) -> list[Event]:
        """Read on towards the mark, and return events, some hundred at most."""
        assert self._places is not None
        if not self._left_over:
            with self._past.reading(self, self._present, self._places.offsets) as (reader, begun):
                if self.closed:
                    return []
                if begun and (first := self._began(reader)):
                    return first
                if not self._places.reached(self._mark):
                    most = max(1, min(_READ_RECORDS, int(_READ_BYTES / self._record_bytes)))
                    self._left_over.extend(reader.poll(_READ_S, most))
                    if self._left_over:
                        self._heard_s = time.monotonic()
                        self._record_bytes = sum(len(record.value or b"") for record in self._left_over) / len(self._left_over) + 100
                    elif time.monotonic() - self._heard_s > _PATIENCE_S:
                        reader.check(_PATIENCE_S)
                        self._heard_s = time.monotonic()
                self._read_to = reader.positions()
        events: list[Event] = []
        while self._left_over and len(events) < _AT_ONCE:
            record = self._left_over.popleft()
            where = (record.topic, record.partition)
            if record.offset >= self._mark.get(where, Place(0)).offset:
                continue  # the queue has it
            events += self._events(where, record.offset, found_in(record, self._topics, self.wanted))
            self._places[where] = Place(record.offset + 1)
        if not self._left_over:
            for where, at in self._read_to.items():  # offsets without records: what was compacted, marks of transactions
                end = self._mark.get(where, Place(at))
                self._places.advance([(where, min(Place(at), end))])
            if self._places.reached(self._mark):
                self._reads = False
                self._past.release(self)
        return events

    def _began(self, reader: Follower) -> list[Event]:
        """Take the places from which the consumer really reads; return what has to be said about the difference."""
        positions = reader.positions()
        places = (self._places or Places()).within(positions.keys() | self._mark.keys())
        for where, at in positions.items():
            if places.get(where, Place(0)).offset != at:
                places[where] = Place(at)
        self._places = places
        if not reader.lost:
            return []
        rows = [{"topic": topic, "partition": partition, "records": n} for (topic, partition), n in sorted(reader.lost.items())]
        return [Event("lost", {"reason": "Kafka has dropped these records by age or size.", "partitions": rows}, self._text())]

    # -- events ----------------------------------------------------------------------------------------------------------

    def _from_queue(self) -> list[Event]:
        events: list[Event] = []
        assert self._places is not None
        while len(events) < _AT_ONCE:
            with self._tail.lock:
                if not self._queue:
                    if self.left is not None:  # what did not fit is read from Kafka
                        self._places.advance(self.left.items())
                        self._joined = False
                    break
                batch = self._queue.popleft()
                self._count(-len(batch.found), -batch.size)
            events += self._events(batch.where, batch.place.offset - 1, batch.found)
            self._places.advance([(batch.where, batch.place)])
        return events

    def _events(self, where: tuple[str, int], offset: int, found: Sequence[Found]) -> list[Event]:
        """Return the events of a record's findings, without those that the client has had; each with the place behind it."""
        assert self._places is not None
        events = []
        for one, behind in self._places.get(where, Place(0)).left_of(offset, found):
            if not self._once.first(one.identity):
                continue
            self._places[where] = behind
            events.append(Event(one.name, one.data, self._text()))
        return events

    def _described(self, events: list[Event]) -> list[Event]:
        """Return the events, the results with what is known of their messages."""
        if self._messages is None:
            return events
        return [replace(event, data=self._messages.describe(event.data)) if event.name == "result" else event for event in events]

    async def _described_when_known(self, events: list[Event]) -> list[Event]:
        """Return the events like :meth:`_described`, when the messages of new results had time to come."""
        if self._messages is not None and (results := [event.data for event in events if event.name == "result"]):
            await self._messages.wait_for_messages_of(results)
        return self._described(events)

    def _text(self) -> str:
        return (self._places or Places()).text(self._topics)

    def _caught_up(self) -> str:
        """Return the place up to which everything was handed over, which is the tail's if nothing waits."""
        assert self._places is not None
        with self._tail.lock:
            if not self._queue and self.left is None and self._joined:
                self._places.advance((where, Place(at)) for where, at in self._tail.positions().items())
        return self._text()
