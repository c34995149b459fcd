"""The time of day, read once at the start and then advanced by a monotonic clock.

If the emulator followed the machine's clock, a correction of an hour would make everything due an hour late, or all at once.
"""

from __future__ import annotations

import time

__all__ = ["now_ms"]

_SOURCE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A monotonic clock; on Linux one that also advances while the machine is suspended."""
_AHEAD_NS = time.time_ns() - time.clock_gettime_ns(_SOURCE)


def now_ms() -> int:
    """Return epoch milliseconds that never decrease, even if the machine's clock is set back."""
    return (time.clock_gettime_ns(_SOURCE) + _AHEAD_NS) // 1_000_000
