"""The process tree of a topology: who is who."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["KINDS", "Process", "find", "resident_bytes", "send", "sweep", "tree"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
KINDS = ("driver", "jvm", "supervisor", "executor", "worker")


class Process(NamedTuple):
    """:ivar name: what ``ps`` shows, up to 15 characters."""

    pid: int
    parent: int
    name: str
    command: str


def _read(pid: int) -> tuple[Process, str] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    rest = stat[stat.rindex(")") + 2 :].split()
    return Process(pid, int(rest[1]), stat[stat.index("(") + 1 : stat.rindex(")")], command), rest[0]


def tree(root: int) -> dict[int, Process]:
    """Return the running processes below ``root``, itself included, zombies left out."""
    children: dict[int, list[Process]] = {}
    found: dict[int, Process] = {}
    for folder in os.listdir("/proc"):
        if folder.isdigit() and (read := _read(int(folder))) is not None and read[1] != "Z":
            children.setdefault(read[0].parent, []).append(read[0])
            if read[0].pid == root:
                found[root] = read[0]
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found[child.pid] = child
            waiting.append(child.pid)
    return found


def find(kind: str, root: int) -> list[int]:
    """Return the process ids of a kind in the tree of a driver, in order.

    :param kind: one of :data:`KINDS`.
    """
    below = tree(root)
    if kind == "driver":
        return [root] if root in below else []
    machines = {p.pid for p in below.values() if p.name == "java"}
    if kind == "jvm":
        return sorted(machines)
    supervisors = {p.pid for p in below.values() if p.name == "dskype-superv"}
    if kind == "supervisor":
        return sorted(supervisors)
    if kind == "executor":  # without the forks that write snapshots, whose parents are executors
        return sorted(p.pid for p in below.values() if p.parent in supervisors and p.name.startswith("dsk:"))
    daemons = {p.pid for p in below.values() if p.parent in machines and "dskype.topology.runtime.daemon" in p.command}
    return sorted(p.pid for p in below.values() if p.parent in daemons and p.pid not in supervisors)


def resident_bytes(pid: int) -> int:
    """Return how much memory a process has; 0: there is none."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def send(pids: list[int], sign: signal.Signals) -> list[int]:
    """Signal processes; return those that were there."""
    done = []
    for pid in pids:
        try:
            os.kill(pid, sign)
            done.append(pid)
        except ProcessLookupError:
            continue
    return done


def sweep(mark: str, seconds: float = 5) -> list[int]:
    """Kill JVMs that still work for a driver that is gone; return those that had to be killed.

    :param mark: what their command lines have and no others have: a folder.
    :param seconds: how long they get to end by themselves.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = [
            read[0].pid
            for folder in os.listdir("/proc")
            if folder.isdigit()
            and (read := _read(int(folder))) is not None
            and read[1] != "Z"
            and read[0].name == "java"
            and mark in read[0].command
            and "org.apache.spark" in read[0].command
        ]
        if not left:
            return []
        if time.monotonic() > deadline:
            return send(left, signal.SIGKILL)
        time.sleep(0.1)
