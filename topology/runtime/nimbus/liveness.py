"""Whether the process that runs a topology is alive, and whether it still writes.

If the process is on this machine, the operating system knows whether it is alive. If it is on another machine, it is alive if its heartbeat changes
while it is watched. Timestamps of two hosts are not compared, because their clocks may differ. A process may be alive and mute: it writes nothing
more (:meth:`HeartbeatWatch.silent_s`). Silence counts only while the brokers answer and the watching process runs: otherwise a living driver would seem
dead after an outage, or after a pause of the process that watches it.
"""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dskype.topology.core.steady_clock import AttentiveClock

__all__ = ["DEAD_AFTER_S", "HEARTBEAT_S", "SILENT_AFTER_S", "STANDBY_GONE_AFTER_S", "HeartbeatWatch", "alive_on_this_machine", "machine_id"]

HEARTBEAT_S = 2.0
DEAD_AFTER_S = 12.0
"""A driver is taken for dead if its heartbeat does not change for this long while it is watched."""
_GAP_S = 2 * HEARTBEAT_S
"""Of the time between two looks at the topic, at most this much counts as watched."""
SILENT_AFTER_S = 7.0
"""A driver is shown as silent if its heartbeat has not changed for so long, while the brokers answer: three heartbeats are missing."""
STANDBY_GONE_AFTER_S = 5.0
"""The same for a standby, whose beats come every second. Nothing but what is shown depends on it."""


@functools.cache
def machine_id() -> str:
    """Return an id of this machine, its present boot, and the container."""
    boot = container = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        container = os.readlink("/proc/self/ns/pid")
    return "/".join((platform.node(), boot, container))


def _stat(pid: int) -> tuple[str, int] | None:
    """Return a process's state and its start in clock ticks since boot, see proc(5); None if there is no such process or the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])


def describe_driver() -> dict[str, Any]:
    """Return what nimbus publishes about this process."""
    _, started = _stat(os.getpid()) or ("", None)
    return {"host": platform.node(), "pid": os.getpid(), "machine": machine_id(), "started": started}


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
    if (stat := _stat(driver["pid"])) is None:
        return True
    state, started = stat
    if state == "Z":  # it has ended; the first process of some containers never asks how
        return False
    return driver.get("started") in (None, started)


class HeartbeatWatch:
    """Watches the heartbeats of drivers, or the beats of standbys. Call :meth:`looked` whenever all records that the topic has are processed.

    :param clock: a clock that never goes back.
    :param dead_after_s: how long a beat may stay as it is; default: ``DEAD_AFTER_S``.
    """

    def __init__(self, clock=time.monotonic, dead_after_s: float | None = None) -> None:
        self._clock, self._watched = clock, AttentiveClock(_GAP_S, clock)
        self._dead_after_s = DEAD_AFTER_S if dead_after_s is None else dead_after_s
        self._seen: dict[str, tuple[Any, float, float]] = {}  # name -> (heartbeat, time watched when it got that value, when it was written)
        self._changed: set[str] = set()

    def update(self, name: str, record: Mapping[str, Any], written_ms: int | None = None) -> None:
        """Process the newest record of a topology or of a standby.

        :param written_ms: the timestamp of the record. It counts only if the driver is on this machine, whose clock is the observer's.
        """
        beat = (record["driver"], record.get("heartbeat", record.get("beat")))
        before = self._seen.get(name)
        if before is None or before[0] != beat:
            here = written_ms is not None and record["driver"].get("machine") == machine_id()
            age_s = max(0.0, time.time() - written_ms / 1000) if here and written_ms is not None else 0.0
            self._seen[name] = beat, self._watched.seconds, self._clock() - age_s
        if before is not None and before[0] != beat:
            self._changed.add(name)

    def looked(self) -> None:
        """Note that the brokers have answered, and that all records that they have are processed."""
        self._watched.look()

    def verdict(self, name: str, record: Mapping[str, Any]) -> bool | None:
        """Tell whether a topology's driver is alive; None if it has to be watched for longer."""
        local = alive_on_this_machine(record["driver"])
        if local is not None:
            return local
        if self._watched_s(name) >= self._dead_after_s:
            return False
        return True if name in self._changed else None

    def silent_s(self, name: str) -> float | None:
        """Return for how many seconds a heartbeat has not changed; None if that is not long, or it has not been watched for long."""
        return self._clock() - self._seen[name][2] if self._watched_s(name) >= SILENT_AFTER_S else None

    def is_settled(self, name: str, record: Mapping[str, Any]) -> bool:
        """Tell whether nothing more is learned of a driver by watching: it is gone, or silent, or its heartbeat is fresh."""
        verdict, watched_s = self.verdict(name, record), self._watched_s(name)
        fresh = name in self._seen and self._clock() - self._seen[name][2] < SILENT_AFTER_S
        return verdict is False or (verdict is True and (fresh or watched_s >= SILENT_AFTER_S))

    def _watched_s(self, name: str) -> float:
        """Return for how many seconds the present heartbeat has been watched."""
        return self._watched.seconds - self._seen[name][1] if name in self._seen else 0.0
