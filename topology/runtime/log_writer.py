"""The writer of executors' logs: one process beside each supervisor, which hides secrets before they are on the disk.

The output and the errors of an executor are a pipe, whose other end the executor hands to the writer with the path of its log. So the rule of
:mod:`dskype.topology.core.redaction` holds for all that the process and its children print: components, libraries in C, shell components, copies that write snapshots.
The last words of a process that crashes are in the pipe, and are written. The writer ends when its supervisor and all that print into its pipes have ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
import traceback
from pathlib import Path

from dskype.topology.core.redaction import LineRedactor
from dskype.topology.runtime.processes import set_name

__all__ = ["LogFile", "print_into", "start_log_writer"]

_LOG_BYTES = 8 << 20
_LINE_BYTES = 64 << 10
"""A line is kept up to this length, because it is redacted as a whole."""
_READ_BYTES, _MOST_HANDED = 64 << 10, 16
_PATIENCE_S = 5.0
"""So long the writer waits for what its executors have left behind when the supervisor has ended."""


def start_log_writer() -> tuple[int, socket.socket]:
    """Fork the writer of logs; call it in the supervisor.

    :returns: its process id, and the socket for :func:`print_into`. The socket tells when the writer has ended.
    """
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    pid = os.fork()
    if pid:
        its.close()
        return pid, ours
    try:
        ours.close()
        set_name("dskype-logs")
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # it ends after those who print
            signal.signal(sign, signal.SIG_IGN)
        _write_logs(its)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def print_into(path: Path, writer: socket.socket) -> None:
    """Let the writer have the output and the errors of this process, and of its children, for the log at this path."""
    read, write = os.pipe()
    socket.send_fds(writer, [os.fsencode(path) + b"\0"], [read])
    os.dup2(write, 1)
    os.dup2(write, 2)
    os.close(read)
    os.close(write)


class LogFile:
    """A log that is written in redacted lines; at a size of ``max_bytes`` it is renamed to ``<name>.1``, and a new one is begun.

    :param path: of the log.
    :ivar lost: lines that could not be written, for example because the disk is full. The log says so when it can be written again.
    """

    def __init__(self, path: Path, max_bytes: int = _LOG_BYTES) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._redactor = LineRedactor()
        self._rest, self._cut = b"", False
        self._descriptor: int | None = None
        self.lost = 0

    def take(self, data: bytes) -> None:
        """Write the lines that are whole with this data, and keep the rest."""
        if self._cut:
            end = data.find(b"\n")
            if end < 0:
                return
            data, self._cut = data[end + 1 :], False
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        lines, self._rest = data[:end], data[end:]
        if len(self._rest) > _LINE_BYTES:
            lines += self._rest[:_LINE_BYTES] + b" ... (the rest of this line is not kept)\n"
            self._rest, self._cut = b"", True
        if lines:
            self._write(self._redactor.redact(lines.decode(errors="surrogateescape")).encode(errors="surrogateescape"))

    def close(self) -> None:
        """Write what is left, and close the file."""
        if self._rest:
            self.take(b"\n")
        self._close()

    def _write(self, lines: bytes) -> None:
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if self.lost:
                lines = b"(%d lines could not be written)\n" % self.lost + lines
            view = memoryview(lines)
            while view:
                view = view[os.write(self._descriptor, view) :]
            self.lost = 0
        except OSError:  # for example, the disk is full or the folder is gone: those who print must go on
            self.lost += lines.count(b"\n")
            self._close()
            return
        with contextlib.suppress(OSError):
            if os.fstat(self._descriptor).st_size >= self._max_bytes:
                os.replace(self._path, f"{self._path}.1")
                self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _write_logs(channel: socket.socket) -> None:
    """Write what comes from the pipes until there is nobody left who prints."""
    selector = selectors.DefaultSelector()
    selector.register(channel, selectors.EVENT_READ)
    ends_at = None
    while selector.get_map() and (ends_at is None or time.monotonic() < ends_at):
        for key, _ in selector.select(None if ends_at is None else ends_at - time.monotonic()):
            if key.fileobj is not channel:
                if data := os.read(key.fd, _READ_BYTES):
                    key.data.take(data)
                else:
                    key.data.close()
                    selector.unregister(key.fd)
                    os.close(key.fd)
                continue
            paths, handed, _, _ = socket.recv_fds(channel, _READ_BYTES, _MOST_HANDED)
            for path, pipe in zip(paths.split(b"\0"), handed):
                selector.register(pipe, selectors.EVENT_READ, LogFile(Path(os.fsdecode(path))))
            if not paths:
                selector.unregister(channel)
                ends_at = time.monotonic() + _PATIENCE_S
