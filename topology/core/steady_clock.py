"""The time of day, read once and carried on by a clock that is never set.

When a machine's clock is corrected, what is due by it falls due an hour late, or all at once. So the emulator's processes look at the
time of day when they start; from then on they count.
"""

from __future__ import annotations

import time

__all__ = ["now_ms"]

_SOURCE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has one that goes on while the machine sleeps."""
_AHEAD_NS = time.time_ns() - time.clock_gettime_ns(_SOURCE)


def now_ms() -> int:
    """Return epoch milliseconds; never less than before, however the machine's clock is set."""
    return (time.clock_gettime_ns(_SOURCE) + _AHEAD_NS) // 1_000_000
