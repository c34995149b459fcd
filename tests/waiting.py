"""Waiting: a limit that only a hang reaches, however busy the machine is.

With ten threads for each processor, everything that a test waits for takes ten times as long, and nothing is wrong. The clock of these limits therefore
goes slower on a busy machine (decision 0216).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

_MOST = 20
"""The clock never goes slower than this: a hang has to end, too."""


def crowding() -> float:
    """Return how many threads have wanted each processor in the last minute: from 1 to 20."""
    return min(max(os.getloadavg()[0] / len(os.sched_getaffinity(0)), 1.0), _MOST)


class Limit:
    """A time limit of a wait.

    :param limit_s: seconds on a machine that nobody else uses.
    """

    def __init__(self, limit_s: float) -> None:
        self._left_s, self._seen_s = limit_s, time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        now_s = time.monotonic()
        self._left_s -= (now_s - self._seen_s) / crowding()
        self._seen_s = now_s
        return self._left_s < 0


def wait_for(condition: Callable[[], Any], limit_s: float = 60, what: str | Callable[[], str] = "the condition") -> Any:
    """Return the first true result of ``condition``; raise AssertionError after ``limit_s`` seconds (see :class:`Limit`).

    What the condition costs is left to what it waits for: the pauses are longer than its evaluation, but never longer than half a second.

    :param what: is waited for; or a function that says so at the end.
    """
    limit, began_s, pause_began_s = Limit(limit_s), time.monotonic(), time.monotonic()
    while not (result := condition()):
        if limit.over:
            seen = what if isinstance(what, str) else what()
            raise AssertionError(f"{seen} did not come about within {limit_s:g} s ({time.monotonic() - began_s:.0f} s on this busy machine)")
        time.sleep(min(max(0.02, 2 * (time.monotonic() - pause_began_s)), 0.5))
        pause_began_s = time.monotonic()
    return result
