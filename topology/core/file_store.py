"""Snapshots and journals as files below a folder.

Files are written under a temporary name and then renamed or linked, so a reader sees a complete file or none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from dskype.topology.core.atomic_files import replace_file
from dskype.topology.core.ownership import fault_of, foreign_in
from dskype.topology.core.snapshots import TERMS, SnapshotStore, WriteError, removed
from dskype.topology.errors import TopologyError

__all__ = ["FileSnapshotStore"]

_PARTIAL, _ABANDONED_S = ".partial", 60
"""Suffix of files that are being written, and the age from which they must belong to killed processes."""


class FileSnapshotStore(SnapshotStore):
    """Keeps snapshots as files below a folder that the driver and every executor can reach.

    :param folder: created by :meth:`create`, readable by its owner only.
    :param kept: snapshots kept per task; older ones are used only if newer ones are damaged.
    """

    def __init__(self, folder: str | Path, kept: int = 3) -> None:
        super().__init__(kept)
        self.folder = Path(folder)
        # Processes on two hosts that share the folder may have the same id.
        self._partial = f"{os.getpid()}-{secrets.token_hex(4)}{_PARTIAL}"

    def __reduce__(self) -> tuple[type, tuple[Path, int]]:
        return type(self), (self.folder, self.kept)

    def create(self) -> None:
        """Create the folder if it does not exist, and remove partial files."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (fault := fault_of(self.folder) or foreign_in(self.folder)) is not None:
            raise TopologyError("State that another user may have written is not used.", given=fault, hint="look at it, then 'chown -R' and 'chmod -R go-w' it")
        for folder in self.folder.iterdir():
            _sweep(folder, 0)

    def sweep(self, task: int) -> None:
        _sweep(self.folder / str(task), _ABANDONED_S)

    def clear(self) -> None:
        for path in self.folder.iterdir():
            if path.name != TERMS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def holds_state(self) -> bool:
        return any(self.folder.glob("[0-9]*/*"))

    def write_document(self, name: str, data: bytes) -> None:
        with replace_file(self.folder / f".{name}") as file:
            file.write(data)

    def read_document(self, name: str) -> bytes | None:
        try:
            return (self.folder / f".{name}").read_bytes()
        except FileNotFoundError:
            return None

    def remove_document(self, name: str) -> None:
        (self.folder / f".{name}").unlink(missing_ok=True)

    def location(self, task: int) -> str:
        return f"the folder {self.folder / str(task)}"

    def sync_journal(self, task: int) -> None:
        """Sync the newest journal entry of a task to the disk; it is kept until a newer one is synced.

        May be called by another thread than the one that writes entries.
        """
        number = self.newest_journal(task)
        if number in (0, self._synced.get(task)):
            return
        for path in (self.folder / self._name(task, "journal", number), self.folder / str(task)):
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:  # newer entries have replaced it
                return
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._synced[task] = number

    def _partial_file(self, name: str, data: bytes, *, sync: bool) -> str:
        """Write the file under a temporary name, and return its path."""
        folder, _, file_name = name.partition("/")
        path = f"{self.folder}/{folder}/.{file_name}.{self._partial}"
        try:
            self._fill(path, data, sync=sync)
        except FileNotFoundError:
            try:
                os.mkdir(f"{self.folder}/{folder}", 0o700)
            except FileNotFoundError:
                raise removed(self.folder) from None
            except FileExistsError:  # another process was faster
                pass
            except OSError as error:
                raise self._write_error(name, data, error) from error
            return self._partial_file(name, data, sync=sync)
        except OSError as error:
            raise self._write_error(name, data, error) from error
        return path

    def _write_error(self, name: str, data: bytes, error: OSError) -> WriteError:
        try:
            free = str(shutil.disk_usage(self.folder).free)
        except OSError:
            free = "an unknown number of"
        return WriteError(
            f"{name} cannot be written: {error.strerror or error}.",
            given=f"{len(data)} bytes to write; {free} bytes free in {self.folder}",
            hint="free some space there; the topology then continues by itself"
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            else "the folder must be writable, on a file system with hard links",
        )

    def _fill(self, path: str, data: bytes, *, sync: bool) -> None:
        """Write a file; remove it if that fails."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
        except BaseException:
            self._discard(path)
            raise

    @staticmethod
    def _discard(path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def _write(self, name: str, data: bytes, term: int | None) -> None:
        self._put(os.replace, name, data, term, sync=True)

    def _create(self, name: str, data: bytes, term: int | None, *, sync: bool) -> None:
        self._put(os.link, name, data, term, sync=sync)  # unlike a rename, it refuses to replace a file

    def _put(self, move: Callable[[str, str], None], name: str, data: bytes, term: int | None, *, sync: bool) -> None:
        partial = self._partial_file(name, data, sync=sync)
        try:
            self.check_term(term)  # as late as possible, because writing took time
            move(partial, f"{self.folder}/{name}")
        except FileExistsError:
            raise
        except OSError as error:
            raise self._write_error(name, data, error) from error
        finally:
            self._discard(partial)

    def _read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def _remove(self, name: str) -> None:
        self._discard(f"{self.folder}/{name}")

    def _names(self, folder: str) -> Iterable[str]:
        try:
            return os.listdir(f"{self.folder}/{folder}")
        except FileNotFoundError:
            return []


def _sweep(folder: Path, older_than_s: float) -> None:
    for path in folder.glob(f".*{_PARTIAL}"):
        try:
            if time.time() - path.stat().st_mtime >= older_than_s:
                path.unlink()
        except FileNotFoundError:  # finished since
            pass
