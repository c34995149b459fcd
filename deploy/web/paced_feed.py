"""Server-sent results at a client's pace: like :mod:`~dskype.deploy.web.paced_delivery`, but what is held lives as long as the connection."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dskype.deploy.web.findings import Found
from dskype.deploy.web.own_results import OwnResults
from dskype.deploy.web.pace import Pace, parse_pace
from dskype.deploy.web.pacer import SCHEMA, Digest, Pacer, Released
from dskype.deploy.web.result_feed import ResultFollower
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.ui.events import Event

__all__ = ["SUBSCRIPTIONS_MOST", "PacedFollower", "pace_of_text"]

SUBSCRIPTIONS_MOST = 10
"""Subscriptions of a client with a pace, at most: what it makes the server hold is bounded."""
_HELD_MOST = 100
"""Results that are held for each of them, at most."""
_GRACE_MS = 1000


def pace_of_text(text: str, timezone: str) -> Pace | None:
    """Return the pace that a client asks for, as JSON.

    :raises IllegalArgumentException: it cannot be used.
    """
    try:
        data = json.loads(text)
    except ValueError:
        raise IllegalArgumentException("The pace is no JSON.", given=text[:100], legal='for example {"throttle": {"most": 5, "every_s": 60}}') from None
    pace = parse_pace("pace", data, timezone)
    if pace is not None and pace.best > _HELD_MOST:
        raise IllegalArgumentException("A digest of server-sent events cannot have so many results.", given=pace.best, legal=f"up to {_HELD_MOST}")
    return pace


class PacedFollower:
    """One client's events as its pace asks; an :class:`~dskype.topology.ui.events.EventSource`.

    While results are held, events have the id of the place before them. So a client that reconnects is told of them again, and maybe of others, with the same ``result_id``.

    :param source: all its events.
    :param pace: how often it wants to hear of a subscription.
    :param clock_ms: the time.
    """

    def __init__(self, source: ResultFollower | OwnResults, pace: Pace, clock_ms: Callable[[], float] = lambda: time.time() * 1000) -> None:
        self._source, self._clock_ms = source, clock_ms
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._database.executescript(SCHEMA)
        self._pacer = Pacer(self._database, lambda _: pace, _HELD_MOST)
        self._next: asyncio.Future[Sequence[Event] | None] | None = None
        self._seen = self._safe = ""

    async def next(self) -> Sequence[Event] | None:
        """Return the next events that may be sent; None at the end."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._source.next())
        due_ms = self._pacer.due_ms()
        wait_s = None if due_ms is None else max(0.0, (due_ms + _GRACE_MS - self._clock_ms()) / 1000)
        done, _ = await asyncio.wait({self._next}, timeout=wait_s)
        found: list[Event] = []
        if done:
            events, self._next = self._next.result(), None
            if events is None:
                return None
            for event in events:
                found += self._paced(event)
        if not self._source.is_behind:
            found += self._over()
        return found

    def _paced(self, event: Event) -> list[Event]:
        sent = event.name != "result" or self._pacer.take(_finding(event.data), event.data["time_ms"], ("", 0, 0), int(self._clock_ms()))
        self._seen = event.id or self._seen
        self._note_place()
        return [replace(event, id=self._safe)] if sent else []

    def _over(self) -> list[Event]:
        """Return what is to be told of the periods that are over."""
        now_ms, found = int(self._clock_ms()), []
        due_ms = self._pacer.due_ms()
        if due_ms is None or due_ms > now_ms - _GRACE_MS:
            return []
        for one in self._pacer.release(now_ms - _GRACE_MS, now_ms):
            name = "result" if isinstance(one, Released) else "digest" if isinstance(one, Digest) else "left_out"
            found.append(Event(name, one.result if isinstance(one, Released) else one._asdict()))
        self._note_place()
        return [replace(event, id=self._safe) for event in found]

    def _note_place(self) -> None:
        if not self._pacer.held_from():
            self._safe = self._seen

    def close(self) -> None:
        """End."""
        if self._next is not None:
            self._next.cancel()
        self._source.close()
        self._database.close()


def _finding(data: dict[str, Any]) -> Found:
    return Found(data["subscription"], "result", data, data["result_id"])
