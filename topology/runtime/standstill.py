"""Notices that this process has not run for a long time, for example after SIGSTOP or because its host was frozen.

Meanwhile Spark may have given it up, and let another host do its work. What it was about to write would then come again, behind newer records.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

__all__ = ["AttentiveClock", "StandstillWatch", "boot_s", "process_watch"]

_TICK_S = 0.25
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # only Linux has the first one


def boot_s() -> float:
    """Return the seconds since the start of the host; on Linux they go on while it is suspended."""
    return time.clock_gettime(_CLOCK)


class AttentiveClock:
    """A clock for whoever judges others by their silence: it counts only the time in which this process watched them.

    Whoever stood still himself, or got no answer, has seen nothing, and must not conclude anything from it.

    :param gap_s: of the time between two looks, at most this many seconds count.
    :param clock: a clock that never goes back.

    >>> now = [0.0]
    >>> attentive = AttentiveClock(3, lambda: now[0])
    >>> now[0] = 2; attentive.look()
    2.0
    >>> now[0] = 162; attentive.look()
    5.0
    """

    def __init__(self, gap_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._gap_s, self._clock = gap_s, clock
        self._looked_s = clock()
        self.seconds = 0.0
        """The time watched so far, in seconds."""

    def look(self) -> float:
        """Note that somebody has looked, and has seen all that there was to see; return the time watched so far, in seconds."""
        now_s = self._clock()
        self.seconds += min(now_s - self._looked_s, self._gap_s)
        self._looked_s = now_s
        return self.seconds


class StandstillWatch:
    """Remembers when this process stood still: a thread of its own looks at the clock four times a second.

    :param limit_s: shorter gaps do not count.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = boot_s) -> None:
        self._limit_s, self._clock = limit_s, clock
        self._seen_s = clock()
        self._ends_s = -math.inf
        self._lock = threading.Lock()

    def start(self) -> StandstillWatch:
        """Start the thread; return this watch."""
        threading.Thread(target=self._run, name="standstill", daemon=True).start()
        return self

    def _run(self) -> None:
        while True:
            time.sleep(_TICK_S)
            self.look()

    def look(self) -> None:
        """Look at the clock; note the end of a standstill."""
        with self._lock:
            now_s = self._clock()
            if now_s - self._seen_s > self._limit_s:
                self._ends_s = now_s
            self._seen_s = now_s

    def ended_since(self, start_s: float) -> float | None:
        """Return when the last standstill ended (:func:`boot_s`), if that was after ``start_s``; None if there was none."""
        self.look()
        with self._lock:
            return self._ends_s if self._ends_s > start_s else None


_watches: dict[tuple[int, float], StandstillWatch] = {}


def process_watch(limit_s: float) -> StandstillWatch:
    """Return the watch of this process, and start it with the first call; a fork gets one of its own."""
    key = os.getpid(), limit_s
    if key not in _watches:
        _watches.clear()
        _watches[key] = StandstillWatch(limit_s).start()
    return _watches[key]
