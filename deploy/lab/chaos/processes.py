"""The process tree of a topology: find processes by what they are, and signal them."""

from __future__ import annotations

import os
import signal
import time

from dskype.deploy.lab.system import usage
from dskype.deploy.lab.system.usage import Process

__all__ = ["KINDS", "find", "running", "send", "sweep", "tree"]

KINDS = ("driver", "jvm", "daemon", "supervisor", "executor")


def running() -> dict[int, Process]:
    """Return all running processes of this machine by id, without zombies."""
    return {pid: process for pid, process in usage.processes().items() if not process.zombie}


def tree(root: int) -> dict[int, Process]:
    """Return ``root`` and the running processes below it, by id."""
    return {process.pid: process for process in usage.tree(running(), root)}


def find(kind: str, root: int) -> list[int]:
    """Return the ids of the processes of a kind in the tree of a driver, in order.

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
    if kind == "executor":  # without the forks that write snapshots: their parents are executors
        return sorted(p.pid for p in below.values() if p.parent in supervisors and p.name.startswith("dsk:"))
    return sorted(p.pid for p in below.values() if p.parent in machines and b"dskype.topology.runtime.processes.daemon" in p.command)


def send(pids: list[int], sign: signal.Signals) -> list[int]:
    """Signal processes; return those that existed."""
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

    :param mark: a folder that only their command lines contain.
    :param seconds: how long they have to end by themselves.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = [p.pid for p in running().values() if p.name == "java" and mark.encode() in p.command and b"org.apache.spark" in p.command]
        if not left:
            return []
        if time.monotonic() > deadline:
            return send(left, signal.SIGKILL)
        time.sleep(0.1)
