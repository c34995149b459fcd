"""Child processes: those that never outlive this process, and the command of one that runs a module of this software."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["command_line", "file_command", "module_command", "spawn_tied"]

# The child asks the kernel to be killed together with its parent, then executes the program; the request survives exec. A separate interpreter
# does this, because code between fork and exec of a process with threads (preexec_fn) can deadlock. 1 is PR_SET_PDEATHSIG, 9 is SIGKILL.
_LAUNCHER = """
import ctypes, os, sys
parent, program = int(sys.argv[1]), sys.argv[2:]
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != parent:
    os._exit(137)
os.execv(program[0], program)
"""

_lock = threading.Lock()
_requests: queue.SimpleQueue[Any] | None = None
_requests_pid = 0


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module as a program, with this process's Python. No other place builds such a command, except :func:`file_command`.

    ``-P``: without it, Python imports modules that lie in the working folder before all others, and anybody may have put them there.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def file_command(file: Path) -> list[str]:
    """Return the command that runs a file as a program, with this process's Python: one that is not a module where it runs."""
    return [sys.executable, "-P", str(file)]


def spawn_tied(command: Sequence[str], **popen_options: Any) -> subprocess.Popen[bytes]:
    """Start ``command`` (absolute path first) so that the kernel kills it when this process ends, even by SIGKILL.

    Accepts the keyword arguments of subprocess.Popen. Except on Linux, the child is an ordinary one.
    """
    if sys.platform == "linux" and sys.executable:
        command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]
    answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
    _spawner().put((list(command), popen_options, answer))
    result = answer.get()
    if isinstance(result, BaseException):
        raise result
    return result


def _spawner() -> queue.SimpleQueue[Any]:
    """Return the queue of the spawning thread.

    For the kernel, the parent is the *thread* that forked: a child of a short-lived thread would die with that thread. So one thread that never
    ends starts all children. A fork of this process does not have that thread, and starts its own.
    """
    global _requests, _requests_pid
    with _lock:
        if _requests is None or _requests_pid != os.getpid():
            _requests, _requests_pid = queue.SimpleQueue(), os.getpid()
            threading.Thread(target=_serve, args=(_requests,), name="dskype-spawner", daemon=True).start()
        return _requests


def _serve(requests: queue.SimpleQueue[Any]) -> None:
    while True:
        command, options, answer = requests.get()
        try:
            answer.put(subprocess.Popen(command, **options))
        except BaseException as e:  # the caller waits for an answer, and raises it
            answer.put(e)


def command_line(pid: int) -> str:
    """Return the command line of a running process, arguments separated by spaces; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        pass
    if sys.platform == "linux":
        return ""
    done = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()
