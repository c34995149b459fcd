"""Processes that must not outlive their parents, and their sockets."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["Stop", "StopSignal", "die_with_parent", "runtime_folder", "set_name", "share_memory", "short_address"]

_LONGEST_ADDRESS = 100
"""Most bytes of a socket's path; the kernel accepts 107."""

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_M_ARENA_MAX = -8

_STOP_PATIENCE_S = 2.0
"""How long work may go on after SIGTERM; less than the supervisor waits for an executor, because ``cleanup`` comes after it."""
_STOP_AGAIN_S = 0.5


class Stop(BaseException):
    """SIGTERM asks this process to end. No ``Exception``: code that handles errors of its input must not take a stop for one."""


class StopSignal:
    """Turn SIGTERM into :class:`Stop` where nothing is half done, not in the middle of work.

    Work that goes on for longer than ``patience_s`` is interrupted, and again every half a second, because destructors and callbacks lose exceptions.

    :param patience_s: time in s that work has to end by itself.
    """

    def __init__(self, patience_s: float = _STOP_PATIENCE_S) -> None:
        self._patience_s, self._asked, self._waiting = patience_s, False, False

    def install(self) -> None:
        """Handle SIGTERM, and SIGALRM for the patience; call it in the main thread. A fork has to set its own handler of SIGTERM."""
        signal.signal(signal.SIGALRM, self._interrupt)
        signal.signal(signal.SIGTERM, self._on_term)

    def ignore(self) -> None:
        """Ignore these signals from now on: the process is ending."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_term(self, number: int, frame: object) -> None:
        asked_before, self._asked = self._asked, True
        if self._waiting:
            raise Stop
        if not asked_before:  # another signal gives no more time
            signal.setitimer(signal.ITIMER_REAL, self._patience_s, _STOP_AGAIN_S)

    def _interrupt(self, number: int, frame: object) -> None:
        raise Stop

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Let SIGTERM end what is done within at once; enter it where the process may end.

        :raises Stop: SIGTERM came before or comes meanwhile.
        """
        self._waiting = True  # before the look at what was asked: no signal is missed between the two
        try:
            if self._asked:
                signal.setitimer(signal.ITIMER_REAL, 0)  # work has ended by itself: nothing may interrupt the end
                raise Stop
            yield
        finally:
            self._waiting = False


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


def share_memory() -> None:
    """Let all threads of this process take memory from a few places (glibc). Otherwise each of many threads keeps what it has used once."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 2)


def short_address(path: str) -> str:
    """Return where a Unix socket is found while this process lives: a path that is short enough for the kernel, however deep the temp folder is (Linux)."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS or sys.platform != "linux":
        return path
    return f"/proc/{os.getpid()}/fd/{_folder_handle(os.path.dirname(path))}/{os.path.basename(path)}"


@cache
def _folder_handle(folder: str) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
