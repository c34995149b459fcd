"""Whether the process that runs a topology is there.

On its own machine the system says so. On another one nobody's clock is asked, because the clocks of two hosts may differ by
anything: a driver is alive if its heartbeat changes while one watches.
"""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["DEAD_AFTER_S", "HEARTBEAT_S", "Watched", "here", "here_alive"]

HEARTBEAT_S = 2.0
DEAD_AFTER_S = 12.0
"""A driver whose heartbeat stands still for so long, while one watches, is taken for dead."""


@functools.cache
def here() -> str:
    """Return what tells this machine from every other, and this boot and container from the next."""

    def read(path: str) -> str:
        try:
            return Path(path).read_text().strip()
        except OSError:
            return ""

    def namespace() -> str:
        try:
            return os.readlink("/proc/self/ns/pid")
        except OSError:
            return ""

    return "/".join((platform.node(), read("/proc/sys/kernel/random/boot_id"), namespace()))


def start_ticks(pid: int) -> int | None:
    """Return when a process began, in clock ticks since boot; None where the system does not tell or there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat[stat.rindex(")") + 2 :].split()[19])


def describe_driver() -> dict[str, Any]:
    """Return what nimbus publishes of this process."""
    return {"host": platform.node(), "pid": os.getpid(), "machine": here(), "started": start_ticks(os.getpid())}


def here_alive(driver: Mapping[str, Any]) -> bool | None:
    """Tell whether a driver of this machine is there; None: it is on another machine, and must be watched."""
    if driver.get("machine") != here():
        return None
    try:
        os.kill(driver["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    started = start_ticks(driver["pid"])
    return started is None or driver.get("started") is None or started == driver["started"]


class Watched:
    """The heartbeats of drivers, as they are seen to change.

    :param clock: a clock that never goes back.
    """

    def __init__(self, clock=time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Any, float]] = {}  # name -> heartbeat, since when it stands
        self._changed: set[str] = set()

    def note(self, name: str, record: Mapping[str, Any]) -> None:
        """Take note of a topology's record."""
        beat = (record["driver"], record.get("heartbeat"))
        before = self._seen.get(name)
        if before is None:
            self._seen[name] = beat, self._clock()
        elif before[0] != beat:
            self._seen[name] = beat, self._clock()
            self._changed.add(name)

    def verdict(self, name: str, record: Mapping[str, Any]) -> bool | None:
        """Return whether a topology's driver is alive; None: it has to be watched for longer."""
        local = here_alive(record["driver"])
        if local is not None:
            return local
        _, since = self._seen.get(name, (None, self._clock()))
        if self._clock() - since >= DEAD_AFTER_S:
            return False
        return True if name in self._changed else None
