"""Processes that must not outlive their parents, and their sockets."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["bind_socket", "connect_socket", "die_with_parent", "runtime_folder", "set_name"]

_LONGEST_ADDRESS = 100
"""Most bytes of a socket's path; the kernel accepts 107."""

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def die_with_parent(parent: int, sign: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel signal this process when its parent ends for whatever reason (Linux).

    :param parent: the parent's process id from before the fork. If the parent has ended since, this process ends now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(sign), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def set_name(name: str) -> None:
    """Set the name of this process in ``ps`` and ``top`` (15 bytes, Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def runtime_folder() -> tuple[Path, bool]:
    """Return a folder below the temp folder to which no other user can write, and whether this user's processes share it.

    Any user may write to the temp folder, and may have created a folder with a predictable name as a trap. If the shared folder belongs to
    another user, each process gets a folder of its own.
    """
    root = Path(tempfile.gettempdir())
    shared = root / f"dskype-{os.getuid()}" / "run"
    for folder in (shared.parent, shared):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return Path(tempfile.mkdtemp(prefix="dskype-run-", dir=root)), False
        if found.st_mode & 0o077:
            os.chmod(folder, 0o700)
    return shared, True


@contextlib.contextmanager
def _address(path: str) -> Iterator[str]:
    """Yield a path that is short enough for the kernel, however deep the temp folder is (Linux)."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS or sys.platform != "linux":
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


def bind_socket(listener: socket.socket, path: str) -> None:
    """Bind a Unix socket to a path of any length."""
    with _address(path) as address:
        listener.bind(address)


def connect_socket(connection: socket.socket, path: str) -> None:
    """Connect a Unix socket to a path of any length."""
    with _address(path) as address:
        connection.connect(address)
