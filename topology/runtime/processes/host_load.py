"""How busy the processors of a host are, as its executors report it: who reads the reports need not be on that host."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any

__all__ = ["HostLoad"]

_FRESH_S = 1.0
"""Reports come ten times a second; the kernel counts in hundredths, and takes a millisecond where there are a hundred processors."""


class HostLoad:
    """What the reports of an executor say of its host."""

    def __init__(self) -> None:
        self._name, self._processors = socket.gethostname(), os.cpu_count() or 1
        self._told: dict[str, Any] = {}
        self._read_s = float("-inf")

    def report(self) -> dict[str, Any]:
        """Return ``host``: its ``name``, the number of its ``processors``, and the time that these have ``used`` and ``had`` since its start; {} if the host does not say.

        Time that a hypervisor has taken away counts as used: it is not free.
        """
        now_s = time.monotonic()
        if now_s - self._read_s >= _FRESH_S:
            self._read_s, self._told = now_s, {}
            with contextlib.suppress(OSError, ValueError), open("/proc/stat", encoding="ascii") as file:
                user, nice, system, idle, iowait, irq, softirq, steal = map(float, file.readline().split()[1:9])  # see proc(5)
                used = user + nice + system + irq + softirq + steal
                self._told = {"host": {"name": self._name, "processors": self._processors, "used": used, "had": used + idle + iowait}}
        return self._told
