"""Whether topologies keep up with what their Kafka spouts read, as the server sees it from question to question."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dskype.topology.ui.view import TopologyView

__all__ = ["Pace", "Progress"]

_RATE_S = 30.0
"""Rates are those of so much time."""
_FORGET_S = 60.0
"""After so long without a question what was seen before says nothing."""
_LEAST_S = 4.0
_LEAST_WAITING = 100
_BEHIND_S, _STUCK_S = 10.0, 30.0


class Pace(NamedTuple):
    """How a topology keeps up.

    :ivar state: ``running``; ``behind``: what waits is more than it takes in ten seconds; ``stuck``: records wait, and it has taken none for half a minute.
    :ivar waiting: records that no spout has taken.
    :ivar taken_per_s: records per second; None: not known yet.
    :ivar coming_per_s: records per second that are written.
    :ivar since_ms: since when the server has seen it in this state, if that is not ``running``, epoch ms.
    """

    state: str
    waiting: int
    taken_per_s: float | None = None
    coming_per_s: float | None = None
    since_ms: int | None = None

    def as_text(self) -> str:
        """Return the numbers in words."""
        if self.taken_per_s is None or self.coming_per_s is None:
            return f"{self.waiting:,} records wait"
        return f"{self.waiting:,} records wait; {_rate(self.taken_per_s)}/s are taken, and {_rate(self.coming_per_s)}/s come"


def _rate(n: float) -> str:
    return f"{n:,.0f}" if n >= 10 else f"{n:.2g}"


class _Seen(NamedTuple):
    time_s: float
    taken: int
    ends: int


class Progress:
    """Notes at each question where the spouts of topologies are. O(topologies) memory; not thread-safe.

    :param clock: a clock that never goes back, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, deque[_Seen]] = {}
        self._moved_s: dict[str, float] = {}
        self._since: dict[str, tuple[str, int]] = {}

    def look(self, views: Sequence[TopologyView]) -> dict[str, Pace]:
        """Return id -> pace of those topologies whose spouts read Kafka and have reported."""
        now_s, found = self._clock(), dict[str, Pace]()
        for view in views:
            if (seen := self._position(view, now_s)) is not None:
                found[view.id] = self._pace(view, seen)
        for known in (self._seen, self._moved_s, self._since):
            for id in known.keys() - found.keys():
                del known[id]
        return found

    @staticmethod
    def _position(view: TopologyView, now_s: float) -> _Seen | None:
        positions = {where: at for places in view.reports.positions().values() for where, at in places.items() if where in view.ends}
        return _Seen(now_s, sum(positions.values()), sum(max(at, view.ends[where]) for where, at in positions.items())) if positions else None

    def _pace(self, view: TopologyView, now: _Seen) -> Pace:
        seen = self._seen.setdefault(view.id, deque())
        if seen and (now.time_s - seen[-1].time_s > _FORGET_S or now.taken < seen[-1].taken):  # or the topology has gone back, after a crash
            seen.clear()
            self._since.pop(view.id, None)
        if not seen or now.taken > seen[-1].taken:
            self._moved_s[view.id] = now.time_s
        if not seen or now.time_s > seen[-1].time_s:
            seen.append(now)
        while now.time_s - seen[0].time_s > _RATE_S:
            seen.popleft()
        secs, waiting = now.time_s - seen[0].time_s, now.ends - now.taken
        taken = (now.taken - seen[0].taken) / secs if secs >= _LEAST_S else None
        coming = (now.ends - seen[0].ends) / secs if secs >= _LEAST_S else None
        state = "running"
        if waiting > 0 and now.time_s - self._moved_s[view.id] >= _STUCK_S:
            state = "stuck"
        elif taken is not None and waiting > max(_LEAST_WAITING, _BEHIND_S * taken):
            state = "behind"
        before = self._since.get(view.id)
        if before is None or before[0] != state:
            since_ms = view.now_ms - round((now.time_s - self._moved_s[view.id]) * 1000 if state == "stuck" else 0)
            self._since[view.id] = before = (state, since_ms)
        return Pace(state, waiting, taken, coming, None if state == "running" else before[1])
