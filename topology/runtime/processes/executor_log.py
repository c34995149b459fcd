"""The log of an executor: what its process, libraries in it and programs that it starts write, without secrets.

They write to a pipe. A process beside the executor reads it, hides secrets line by line, and writes the file. It ends when nobody can write any more, so
that the last words of a process that crashes or is killed are kept as well. The log of Spark's JVM is written in the same way, by a thread of the driver.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from dskype.topology.core.redaction import redact_lines
from dskype.topology.runtime.processes.host import set_name

__all__ = ["redirect_output", "write_log"]

_LOG_BYTES = 8 << 20


def redirect_output(path: Path, max_bytes: int = _LOG_BYTES) -> int:
    """Let this process's output and errors go to a file, through a process that hides secrets. The caller must have no threads.

    If that process ends first, this one ends at once, and another takes its place: a component's next ``print`` would wait for ever, or fail as if
    its tuple were at fault.

    :param max_bytes: at this size the file is renamed to ``<name>.1``, and a new one is begun.
    :returns: the id of the process that writes the file.
    """
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.dup2(read, 0)
            os.closerange(1, os.sysconf("SC_OPEN_MAX"))
            set_name("dsk-log")
            for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # meant for the executor, whose last words are still to come
                signal.signal(sign, signal.SIG_IGN)
            write_log(0, path, max_bytes)
        finally:
            os._exit(0)
    os.dup2(write, 1)
    os.dup2(write, 2)
    os.close(write)  # the other end stays open, so that no print fails before the signal comes

    def end_with_it(number: int, frame: object) -> None:
        with contextlib.suppress(ChildProcessError):  # a fork of this process is told of its own children only
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                os._exit(1)

    signal.signal(signal.SIGCHLD, end_with_it)
    return pid


def write_log(handle: int, path: Path, max_bytes: int = _LOG_BYTES) -> None:
    """Write what comes from a pipe to a log, line by line and without secrets, until its end.

    :param max_bytes: see :func:`redirect_output`.
    """
    redact_lines(handle, _Log(path, max_bytes).write)


class _Log:
    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes, self._handle, self._lost = path, max_bytes, -1, 0
        with contextlib.suppress(OSError):
            self._open()

    def _open(self) -> None:
        self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, data: bytes) -> None:
        """Append to the file. A line that cannot be written (a full disk, a missing folder) is lost, for the executor must not wait; the next one says how many were."""
        self._lost += 1
        with contextlib.suppress(OSError):
            if self._handle < 0:
                self._open()
            if self._lost > 1:
                data = b"(%d lines before this one could not be written)\n" % (self._lost - 1) + data
            while data:
                data = data[os.write(self._handle, data) :]
            self._lost = 0
            if os.fstat(self._handle).st_size >= self._max_bytes:
                os.replace(self._path, f"{self._path}.1")
                os.close(self._handle)
                self._handle = -1
                self._open()
