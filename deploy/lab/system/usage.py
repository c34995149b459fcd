"""The processes of a topology (Linux): their tree, and their processor time and memory by the part of the product that each belongs to."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "BENCHMARK",
    "BROKER",
    "PRODUCER",
    "PYTHON",
    "SNAPSHOTS",
    "SPARK",
    "SUPERVISOR",
    "Meter",
    "Process",
    "Usage",
    "busy_seconds",
    "by_kind",
    "kinds",
    "processes",
    "tree",
    "usage",
]

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

BENCHMARK, BROKER, SPARK, PYTHON = "benchmark and driver", "broker", "Spark (JVM)", "Python workers"
SUPERVISOR, SNAPSHOTS, PRODUCER = "supervisor", "snapshots", "producer"
_OTHER_EXECUTORS = "other executors"


class Process(NamedTuple):
    """One process at one moment.

    :ivar name: as ``ps`` shows it, 15 bytes.
    :ivar command: its command line, arguments separated by zero bytes.
    :ivar cpu_s: its own processor time.
    :ivar reaped_s: processor time of its children that have ended.
    :ivar rss: resident bytes, including shared ones.
    :ivar zombie: it has ended, and its parent has not waited for it yet.
    """

    pid: int
    parent: int
    name: str
    command: bytes
    cpu_s: float
    reaped_s: float
    rss: int
    zombie: bool = False


@dataclass
class Usage:
    """What the processes of one kind use together.

    :ivar cpu_s: processor seconds since they started.
    :ivar rss: resident bytes; memory that forked processes share counts for each of them.
    :ivar pss: resident bytes, with shared ones divided among the processes that share them; 0 if the kernel does not say.
    """

    cpu_s: float = 0.0
    rss: int = 0
    pss: int = 0
    count: int = 0


def processes() -> dict[int, Process]:
    """Return all processes of this machine by id."""
    found: dict[int, Process] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    name, _, rest = file.read().partition("(")[2].rpartition(")")
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    command = file.read()
            except OSError:  # it has ended
                continue
            fields = rest.split()
            user, system, reaped_user, reaped_system = map(int, fields[11:15])
            found[int(entry)] = Process(
                int(entry),
                int(fields[1]),
                name,
                command,
                (user + system) / _TICKS,
                (reaped_user + reaped_system) / _TICKS,
                int(fields[21]) * _PAGE,
                fields[0] == "Z",
            )
    return found


def tree(table: Mapping[int, Process], root: int) -> list[Process]:
    """Return ``root`` and all processes below it, parents before their children; [] if there is no such process."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found = [table[root]] if root in table else []
    for process in found:
        found += children.get(process.pid, ())
    return found


def kinds(table: Mapping[int, Process], root: int, components: Mapping[int, str]) -> dict[int, str]:
    """Return process id -> kind of ``root`` and all processes below it.

    :param root: the process that runs the topology's driver.
    :param components: process id of an executor -> its component's id, which is its kind.
    """
    found = {root: BENCHMARK}
    for process in tree(table, root)[1:]:
        found[process.pid] = _kind(process, found[process.parent], process.parent in components, components)
    return found


def _kind(process: Process, parent_kind: str, of_executor: bool, components: Mapping[int, str]) -> str:
    if process.pid in components:
        return components[process.pid]
    if of_executor:  # forked to write a snapshot
        return SNAPSHOTS
    if process.name.startswith("dsk:"):
        return _OTHER_EXECUTORS
    if process.name == "dskype-superv":
        return SUPERVISOR
    if b"kafka.Kafka" in process.command:
        return BROKER
    if b"system.feeder" in process.command:
        return PRODUCER
    if process.name == "java":
        return SPARK
    return PYTHON if b"runtime.processes.daemon" in process.command else parent_kind


def by_kind(table: Mapping[int, Process], kind_of: Mapping[int, str], components: Mapping[int, str]) -> dict[str, Usage]:
    """Return kind -> what its processes use. Ended children count for their parents, those of executors for :data:`SNAPSHOTS`."""
    found: dict[str, Usage] = {}
    for pid, kind in kind_of.items():
        if pid in table:
            process, entry = table[pid], found.setdefault(kind, Usage())
            entry.cpu_s += process.cpu_s
            entry.rss += process.rss
            entry.count += 1
            found.setdefault(SNAPSHOTS if pid in components else kind, Usage()).cpu_s += process.reaped_s
    return found


def usage(components: Mapping[int, str], *, memory: bool = False) -> dict[str, Usage]:
    """Return kind -> what this process and all below it use now.

    :param components: executors; see :func:`kinds`.
    :param memory: also read ``pss``, which takes the kernel some milliseconds per process.
    """
    table = processes()
    kind_of = kinds(table, os.getpid(), components)
    found = by_kind(table, kind_of, components)
    if memory:
        for pid, kind in kind_of.items():
            found[kind].pss += _pss(pid)
    return found


class Meter:
    """Measures what is used from its creation until :meth:`stop`.

    :param components: executors; see :func:`kinds`.
    :ivar start_ms: epoch ms.
    :ivar stop_ms: epoch ms.
    :ivar used: kind -> usage at the end, with the processor seconds of the measured time.
    :ivar others_s: processor seconds of all other processes of the machine.
    """

    def __init__(self, components: Mapping[int, str]) -> None:
        self._components = components
        self._before, self._busy_s = usage(components), busy_seconds()
        self.start_ms = self.stop_ms = time.time_ns() // 1_000_000
        self.used: dict[str, Usage] = {}
        self.others_s = 0.0

    def stop(self, *, memory: bool = False) -> None:
        """End the measurement.

        :param memory: see :func:`usage`.
        """
        self.stop_ms = time.time_ns() // 1_000_000
        busy_s, self.used = busy_seconds() - self._busy_s, usage(self._components, memory=memory)
        for kind, entry in self.used.items():
            if kind in self._before:
                entry.cpu_s -= self._before[kind].cpu_s
        self.others_s = max(0.0, busy_s - self.cpu_s)

    @property
    def seconds(self) -> float:
        """How long was measured."""
        return max(0.001, (self.stop_ms - self.start_ms) / 1000)

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all kinds."""
        return sum(entry.cpu_s for entry in self.used.values())


def busy_seconds(stat: str | None = None) -> float:
    """Return the processor seconds that the whole machine has spent.

    :param stat: text of ``/proc/stat``; default: read it now.
    """
    if stat is None:
        with open("/proc/stat") as file:
            stat = file.readline()
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, stat.split()[1:9])
    return (user + nice + system + interrupts + soft_interrupts + stolen) / _TICKS


def _pss(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:")), 0)
    except OSError:
        return 0
