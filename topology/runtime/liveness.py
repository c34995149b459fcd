"""Whether the process that runs a topology is alive.

If it is on this machine, the operating system knows. If it is on another machine, it is alive if its heartbeat changes while it is
watched. Timestamps are not compared, because the clocks of two hosts may differ. Silence counts only while the brokers answer and the watching
process runs: otherwise a living driver would seem dead after an outage, or after a pause of the process that watches it.
"""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dskype.topology.runtime.standstill import AttentiveClock

__all__ = ["DEAD_AFTER_S", "HEARTBEAT_S", "STANDBY_GONE_AFTER_S", "HeartbeatWatch", "alive_on_this_machine", "machine_id"]

HEARTBEAT_S = 2.0
DEAD_AFTER_S = 12.0
"""A driver is taken for dead if its heartbeat does not change for this long while it is watched."""
_GAP_S = 2 * HEARTBEAT_S
"""Of the time between two looks at the topic, at most this much counts as watched."""
STANDBY_GONE_AFTER_S = 5.0
"""The same for a standby, whose beats come every second. Nothing but what is shown depends on it."""


@functools.cache
def machine_id() -> str:
    """Return an id of this machine, its present boot, and the container."""

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


def _stat(pid: int) -> list[str] | None:
    """Return what Linux says of a process from its state on, see proc(5); None if there is no such process or the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat[stat.rindex(")") + 2 :].split()


def _started(stat: list[str]) -> int:
    """Return when a process started, in clock ticks since boot."""
    return int(stat[19])


def describe_driver() -> dict[str, Any]:
    """Return what nimbus publishes about this process."""
    stat = _stat(os.getpid())
    return {"host": platform.node(), "pid": os.getpid(), "machine": machine_id(), "started": None if stat is None else _started(stat)}


def alive_on_this_machine(driver: Mapping[str, Any]) -> bool | None:
    """Tell whether a driver on this machine is alive; None if it is on another machine and has to be watched."""
    if driver.get("machine") != machine_id():
        return None
    try:
        os.kill(driver["pid"], 0)
    except (ProcessLookupError, OverflowError):  # anyone who may write to the topic may write any number
        return False
    except PermissionError:
        pass
    stat = _stat(driver["pid"])
    if stat is None:
        return True
    if stat[0] == "Z":  # it has ended; the first process of some containers never asks how
        return False
    return driver.get("started") is None or _started(stat) == driver["started"]


class HeartbeatWatch:
    """Watches the heartbeats of drivers, or the beats of standbys. Call :meth:`looked` whenever all records that the topic has are processed.

    :param clock: a clock that never goes back.
    :param dead_after_s: how long a beat may stay as it is; default: ``DEAD_AFTER_S``.
    """

    def __init__(self, clock=time.monotonic, dead_after_s: float | None = None) -> None:
        self._watched, self._dead_after_s = AttentiveClock(_GAP_S, clock), DEAD_AFTER_S if dead_after_s is None else dead_after_s
        self._seen: dict[str, tuple[Any, float]] = {}  # name -> (heartbeat, time watched when it got that value)
        self._changed: set[str] = set()

    def update(self, name: str, record: Mapping[str, Any]) -> None:
        """Process the newest record of a topology or of a standby."""
        beat = (record["driver"], record.get("heartbeat", record.get("beat")))
        before = self._seen.get(name)
        if before is None:
            self._seen[name] = beat, self._watched.seconds
        elif before[0] != beat:
            self._seen[name] = beat, self._watched.seconds
            self._changed.add(name)

    def looked(self) -> None:
        """Note that the brokers have answered, and that all records that they have are processed."""
        self._watched.look()

    def verdict(self, name: str, record: Mapping[str, Any]) -> bool | None:
        """Tell whether a topology's driver is alive; None if it has to be watched for longer."""
        local = alive_on_this_machine(record["driver"])
        if local is not None:
            return local
        _, since = self._seen.get(name, (None, self._watched.seconds))
        if self._watched.seconds - since >= self._dead_after_s:
            return False
        return True if name in self._changed else None
