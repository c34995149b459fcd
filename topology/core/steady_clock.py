"""Clocks that neither a correction of the machine's clock nor a pause of this process leads astray.

If the emulator followed the machine's clock, a correction of an hour would make everything due an hour late, or all at once. A process stands still, for
example, after SIGSTOP or because its host was frozen.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["AttentiveClock", "boot_s", "now_ms"]

_SOURCE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A monotonic clock; on Linux one that also advances while the machine is suspended."""
_AHEAD_NS = time.time_ns() - time.clock_gettime_ns(_SOURCE)


def now_ms() -> int:
    """Return epoch milliseconds that never decrease, even if the machine's clock is set back."""
    return (time.clock_gettime_ns(_SOURCE) + _AHEAD_NS) // 1_000_000


def boot_s() -> float:
    """Return the seconds since the start of the host; on Linux they go on while it is suspended."""
    return time.clock_gettime(_SOURCE)


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
