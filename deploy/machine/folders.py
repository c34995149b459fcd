"""Folders that belong to one process, and the removal of those whose process is gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from dskype.deploy.machine import paths
from dskype.deploy.machine.errors import DeployError
from dskype.deploy.machine.processes import command_line

_LOCK = "owner.lock"
_registry_lock = threading.Lock()
_owned: set[Path] = set()
"""Folders that this process owns. A POSIX lock would not stop a second owner in the same process, and closing any handle of the file drops it."""


class FolderInUseError(DeployError):
    """The folder belongs to a running process."""


class OwnedFolder:
    """A folder that only one process can own at a time. The system frees it when the process dies in any way.

    Create one with ``temporary`` or ``take``. Note a child process that works in the folder with ``note_process``: if its owner dies, the next
    owner kills it.
    """

    def __init__(self, path: Path, handle: Any, *, is_temporary: bool) -> None:
        self.path = path
        self.is_temporary = is_temporary
        self._handle = handle
        self._pid = os.getpid()

    @classmethod
    def temporary(cls, prefix: str) -> Self:
        """Create a folder in the scratch folder, after a sweep. ``release`` removes it; after a crash, the next sweep does."""
        sweep_stale()
        base = paths.scratch_dir()
        with _creation_lock(base):  # no sweep may come between creating the folder and locking it
            return cls._lock(Path(tempfile.mkdtemp(prefix=prefix, dir=base)), is_temporary=True)

    @classmethod
    def take(cls, path: Path) -> Self:
        """Own an ordinary folder; create it if it is missing.

        :raises FolderInUseError: a running process owns it.
        :raises OptionError: another user may have written what it holds.
        """
        if not paths.make_writable(path):
            raise DeployError(f"the folder must be writable, given: {str(path)!r}", fix="choose another folder")
        paths.check_all_ours(path)
        owned = cls._lock(path, is_temporary=False)
        _kill_left_over(owned.path)
        return owned

    @classmethod
    def _lock(cls, path: Path, *, is_temporary: bool) -> Self:
        path = path.resolve()
        with _registry_lock:
            if path not in _owned:
                # A POSIX lock, not flock: it belongs to this process alone and is not kept alive by forked children.
                handle = open(path / _LOCK, "a")  # noqa: SIM115 - held as long as the folder is ours
                try:
                    fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _owned.add(path)
                    return cls(path, handle, is_temporary=is_temporary)
                except OSError:
                    handle.close()
        raise FolderInUseError(f"the folder {path} must not be in use, given: a running process owns it", fix="end that process, or choose another folder")

    def note_process(self, pid: int) -> None:
        """Remember a child process whose command line names this folder."""
        (self.path / "child.pid").write_text(str(pid))

    def is_ours(self) -> bool:
        """Tell whether this process owns the folder; false in a fork of the owner."""
        return os.getpid() == self._pid

    def release(self) -> None:
        """Give up the folder, and remove it if it is temporary."""
        if not self.is_ours() or self.path not in _owned:
            return
        if self.is_temporary:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                (self.path / "child.pid").unlink()
        with _registry_lock:
            _owned.discard(self.path)
            self._handle.close()


def sweep_stale() -> int:
    """Remove the temporary folders of crashed processes, and kill children that still work in them; return how many folders were removed."""
    base = paths.scratch_dir()
    removed = 0
    with _creation_lock(base):
        for lock in base.glob(f"*/{_LOCK}"):
            folder = lock.parent.resolve()
            with _registry_lock:
                if folder in _owned:
                    continue
                try:
                    with open(lock, "a") as f:
                        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue  # its owner is alive
            _kill_left_over(folder)
            shutil.rmtree(folder, ignore_errors=True)
            removed += 1
    return removed


def _kill_left_over(folder: Path) -> None:
    """Kill the child that a crashed owner left. Its command line proves that the process id has not been reused."""
    try:
        pid = int((folder / "child.pid").read_text())
    except (OSError, ValueError):
        return
    mark = f"{folder}{os.sep}"
    if mark in command_line(pid):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        for _ in range(100):
            if mark not in command_line(pid):
                break
            time.sleep(0.02)


@contextlib.contextmanager
def _creation_lock(base: Path) -> Iterator[None]:
    with open(base / "sweep.lock", "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield
