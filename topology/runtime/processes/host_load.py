"""How busy the processors of a host are, as its executors report it: who reads the reports need not be on that host."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

__all__ = ["HostLoad", "processor_time"]

_FRESH_S = 1.0
"""Reports come ten times a second; the kernel counts in hundredths, and takes a millisecond where there are a hundred processors."""


def processor_time() -> tuple[float, float] | None:
    """Return the processor time that this host has used since its start, and all that it has had, in the same unit; None if it does not say.

    Time that a hypervisor has taken away counts as used: it is not free.
    """
    try:
        with open("/proc/stat", encoding="ascii") as file:
            times = [float(x) for x in file.readline().split()[1:9]]  # user nice system idle iowait irq softirq steal, see proc(5)
    except (OSError, ValueError):
        return None
    return (sum(times) - times[3] - times[4], sum(times)) if len(times) == 8 else None


class HostLoad:
    """What the reports of an executor say of its host."""

    def __init__(self) -> None:
        self._name, self._processors = socket.gethostname(), os.cpu_count() or 1
        self._told: dict[str, Any] = {}
        self._read_s = float("-inf")

    def report(self) -> dict[str, Any]:
        """Return ``host``: its ``name``, the number of its ``processors``, and the time that these have ``used`` and ``had`` since its start; {} if the host does not say."""
        now_s = time.monotonic()
        if now_s - self._read_s >= _FRESH_S:
            self._read_s, times = now_s, processor_time()
            self._told = {} if times is None else {"host": {"name": self._name, "processors": self._processors, "used": times[0], "had": times[1]}}
        return self._told
