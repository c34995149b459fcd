"""Keeps the interest of all distribution tasks equal, and says when a subscription may rely on it.

Every distribution task counts the pairs (region, routing term) of the subscriptions that it owns, and has a copy of the interest: for each pair, the
number of distribution tasks that need it. :meth:`~dskype.distribution.base.Distributor.summarizes` explains regions and terms.

- A pair that becomes needed is *announced* (``InterestAdded``). Each other task adds it to its copy and answers (``InterestKnown``) up to which
  position the region may have missed messages there. When all have answered, and the watermark has reached the highest of these positions, the
  pair is *settled*: every message above the watermark that is routed from now on, by any task, is routed with it. Only then subscriptions use it.
- A pair that nobody here needs any more is kept until the watermark rises; meanwhile others may need it again. Then it ends (``InterestEnded``)
  as of this watermark. Each task takes it out of its copy when its own watermark has got there, because up to there older messages may
  still come to it, which subscriptions that have just ended still match.

Copies are exact because channels deliver once and in order, to tasks whose state follows from their inbox. A pair that is announced again before its
end has come through counts twice meanwhile. So a pair that ends late costs messages, never matches.

Memory: 20 bytes for each slot of three hash tables with the distinct pairs, however many subscriptions share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dskype.bolts.protocol.interest import InterestAdded, InterestEnded, InterestKnown, InterestMessage
from dskype.distribution import Distributor
from dskype.distribution.routing.interest import CountedPairs, Interest
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks

__all__ = ["InterestExchange", "pairs_of"]


@dataclass(slots=True)
class _Announcement:
    """Pairs that are not settled.

    :ivar waits_for: ids of the tasks that have not answered.
    :ivar withheld: highest position that the regions may have missed, so far as is known.
    """

    number: int
    regions: np.ndarray
    terms: np.ndarray
    waits_for: list[int]
    withheld: int


def pairs_of(regions: Sequence[int], terms: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return each region with each term: (regions int32[n], terms int64[n])."""
    return np.repeat(np.asarray(regions, np.int32), len(terms)), np.tile(np.asarray(terms, np.int64), len(regions))


class InterestExchange:
    """The interest of one distribution task; see the module.

    :param regions: number of regions.
    :param others: ids of the other distribution tasks.
    :param collector: collector of the bolt.
    :param context: context of the bolt, for metrics.
    """

    def __init__(self, regions: int, others: Iterable[int], collector: Any, context: Any) -> None:
        self._others, self._collector = list(others), collector
        self._own = CountedPairs()
        self._copy = Interest(regions)
        self._number = 0  # of the last announcement
        self._unannounced: list[tuple[int, int]] = []
        self._unsettled: dict[tuple[int, int], int] = {}  # pair -> number of its announcement
        self._announcements: list[_Announcement] = []  # by number
        self._idle: dict[tuple[int, int], None] = {}  # announced, and not needed at present
        self._ended: list[InterestEnded] = []  # of all tasks; wait for the watermark
        self._watermark = -1
        self._withheld_counter = context.register_counter("withheld_messages")
        context.register_gauge("interest_pairs", lambda: len(self._copy))

    # -- messages -----------------------------------------------------------------------------------------------------

    def wanted(self, distributor: Distributor, messages: MessageBatch) -> RowTasks | None:
        """Route messages by a plan and by interest in one step; None: the distributor does not, see :meth:`~dskype.distribution.base.Distributor.wanted_tasks`."""
        found = distributor.wanted_tasks(messages, self._copy)
        if found is None:
            return None
        self._withheld_counter.inc(found[1] - len(found[0].rows))
        return found[0]

    def filter(self, distributor: Distributor, messages: MessageBatch, routes: RowTasks | None) -> RowTasks:
        """Return the routes on which a message is wanted.

        :param routes: from :meth:`~dskype.distribution.base.Distributor.message_tasks`.
        """
        regions_are_tasks = type(distributor).message_regions is Distributor.message_regions
        if routes is None and regions_are_tasks:
            before, found = messages.n * distributor.tasks, self._copy.routes(messages)
        else:
            if routes is None:
                every = np.arange(distributor.tasks, dtype=np.int32)
                routes = RowTasks(np.repeat(np.arange(messages.n), distributor.tasks), np.tile(every, messages.n))
            before, found = len(routes.rows), self._copy.filter(messages, *distributor.message_regions(messages, routes))
            if not regions_are_tasks:
                found = _once(found)
        self._withheld_counter.inc(before - len(found.rows))
        return found

    # -- what this task needs -----------------------------------------------------------------------------------------

    def need(self, regions: np.ndarray, terms: np.ndarray) -> int:
        """Count pairs that a subscription needs.

        :returns: the number to pass to :meth:`settled`.
        """
        fresh = self._own.add(regions, terms)
        for i in np.flatnonzero(fresh).tolist():
            pair = int(regions[i]), int(terms[i])
            if pair in self._idle:
                del self._idle[pair]
            else:
                self._unannounced.append(pair)
                self._unsettled[pair] = self._number + 1
        if not self._unsettled:
            return 0
        return max((self._unsettled.get(pair, 0) for pair in _pairs(regions, terms)), default=0)

    def release(self, regions: np.ndarray, terms: np.ndarray) -> None:
        """Count pairs that a subscription no longer needs."""
        gone = self._own.remove(regions, terms)
        for i in np.flatnonzero(gone).tolist():
            self._idle[int(regions[i]), int(terms[i])] = None

    def settled(self, number: int) -> bool:
        """Tell whether everything up to a number from :meth:`need` is settled."""
        return number < (self._announcements[0].number if self._announcements else self._number + 1)

    def announce(self) -> None:
        """Announce the pairs that have become needed. To be called at the end of every batch."""
        if not self._unannounced:
            return
        regions, terms = _columns(self._unannounced)
        self._unannounced = []
        self._number += 1
        self._copy.add(regions, terms)
        self._announcements.append(_Announcement(self._number, regions, terms, list(self._others), self._missed(regions)))
        self._send_to_others(InterestAdded(self._number, regions, terms))

    def _missed(self, regions: np.ndarray) -> int:
        return int(self._copy.withheld[regions].max(initial=-1))

    # -- what others need ---------------------------------------------------------------------------------------------

    def receive(self, message: InterestMessage, source: int) -> None:
        """Handle a message of another distribution task."""
        if isinstance(message, InterestAdded):
            regions, terms = np.asarray(message.regions, np.int32), np.asarray(message.terms, np.int64)
            self._copy.add(regions, terms)
            self._send(source, InterestKnown(message.number, self._missed(regions)))
        elif isinstance(message, InterestEnded):
            self._ended.append(message)
            self._apply_ended()
        else:
            for announcement in self._announcements:
                if announcement.number == message.number and source in announcement.waits_for:
                    announcement.waits_for.remove(source)
                    announcement.withheld = max(announcement.withheld, message.withheld)

    def _apply_ended(self) -> None:
        due = [message for message in self._ended if message.at <= self._watermark]
        if due:
            self._ended = [message for message in self._ended if message.at > self._watermark]
            for _, regions, terms in due:
                self._copy.remove(np.asarray(regions, np.int32), np.asarray(terms, np.int64))

    # -- time ---------------------------------------------------------------------------------------------------------

    def advance(self, watermark: int) -> None:
        """Record the watermark, and end the pairs that are not needed."""
        self._watermark = watermark
        self._apply_ended()
        if self._idle:
            ended = InterestEnded(watermark, *_columns(self._idle))
            for pair in self._idle:
                self._unsettled.pop(pair, None)
            self._idle = {}
            self._copy.remove(ended.regions, ended.terms)
            self._send_to_others(ended)

    def settle(self) -> bool:
        """Settle the announcements that can be settled, in the order of their numbers; return whether there were any."""
        settled = 0
        for announcement in self._announcements:
            if announcement.waits_for or announcement.withheld > self._watermark:
                break
            settled += 1
            for pair in _pairs(announcement.regions, announcement.terms):
                if self._unsettled.get(pair) == announcement.number:
                    del self._unsettled[pair]
        del self._announcements[:settled]
        return settled > 0

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as arrays and plain values."""
        return {
            "own": self._own.snapshot(),
            "copy": self._copy.snapshot(),
            "number": self._number,
            "unsettled": [list(self._unsettled.values()), *_columns(self._unsettled)],
            "announcements": [[a.number, a.regions, a.terms, a.waits_for, a.withheld] for a in self._announcements],
            "idle": list(_columns(self._idle)),
            "ended": [list(message) for message in self._ended],
            "watermark": self._watermark,
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._own.restore(state["own"])
        self._copy.restore(state["copy"])
        self._number, self._watermark, self._unannounced = state["number"], state["watermark"], []
        numbers, regions, terms = state["unsettled"]
        self._unsettled = dict(zip(_pairs(regions, terms), numbers))
        self._announcements = [
            _Announcement(number, *map(np.asarray, pairs), list(tasks), withheld) for number, *pairs, tasks, withheld in state["announcements"]
        ]
        self._idle = dict.fromkeys(_pairs(*state["idle"]))
        self._ended = [InterestEnded(*message) for message in state["ended"]]

    def _check(self) -> None:
        """Verify the invariants that hold between batches."""
        self._own._check()
        self._copy._check()
        assert not self._unannounced
        own = set(_pairs(*self._own.items()[:2]))
        assert not own & self._idle.keys()
        assert all(self._copy.count(*pair) > 0 for pair in own | self._idle.keys())
        assert set(self._unsettled.values()) <= {announcement.number for announcement in self._announcements}

    def _send_to_others(self, message: InterestMessage) -> None:
        for task in self._others:
            self._send(task, message)

    def _send(self, task: int, message: InterestMessage) -> None:
        streams.Interest(kind=message.kind, record=list(message)).emit_direct(self._collector, task)


def _once(routes: RowTasks) -> RowTasks:
    """Return each of some routes once; equal ones are next to each other."""
    rows, tasks = routes
    first = np.ones(len(rows), np.bool_)
    first[1:] = (rows[1:] != rows[:-1]) | (tasks[1:] != tasks[:-1])
    return RowTasks(rows[first], tasks[first])


def _columns(pairs: Iterable[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    listed = list(pairs)
    return np.array([region for region, _ in listed], np.int32), np.array([term for _, term in listed], np.int64)


def _pairs(regions: np.ndarray, terms: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(np.asarray(regions).tolist(), np.asarray(terms).tolist()))
