"""Snapshots and journals of tasks: format, checks, and where they are kept.

A *snapshot* is the state of a bolt task at a version (the next inbox offset to process). A
*journal entry* is the state of a spout task after a batch together with the records that the batch
emitted, because a spout cannot be asked again for what it emitted. Both are msgpack with typed
arrays behind a header with format version, checksum and length::

    b"DSNP" | u16 format | u32 crc32 of the body | u64 length of the body | body

Files are written beside their place, synced and renamed, so a reader sees a whole file or none.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Any, Iterable, Protocol

from dskype.topology.core.frames import pack_state, unpack_state
from dskype.topology.errors import TopologyError

__all__ = ["FileSnapshotStore", "MemorySnapshotStore", "SnapshotError", "SnapshotStore",
           "decode_snapshot", "encode_snapshot"]

FORMAT = 1
_HEADER = struct.Struct("<4sHIQ")
_MAGIC = b"DSNP"


class SnapshotError(TopologyError):
    """A snapshot cannot be read: damaged, cut short, or of another format."""


def encode_snapshot(state: Any) -> bytes:
    """Serialize a state with header and checksum."""
    body = pack_state(state)
    return _HEADER.pack(_MAGIC, FORMAT, zlib.crc32(body), len(body)) + body


def decode_snapshot(data: bytes, name: str = "snapshot") -> Any:
    """Check and read what :func:`encode_snapshot` wrote.

    :raises SnapshotError: naming ``name``, what was expected and what was found.
    """
    if len(data) < _HEADER.size:
        msg = f"{name} is cut short; expected at least {_HEADER.size} bytes; given: {len(data)}"
        raise SnapshotError(msg)
    magic, version, crc, length = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size:]
    if magic != _MAGIC:
        msg = f"{name} is no snapshot; expected it to begin with {_MAGIC!r}; given: {magic!r}"
        raise SnapshotError(msg)
    if version != FORMAT:
        msg = f"{name} has another format; expected {FORMAT}; given: {version}; hint: start anew or use the version that wrote it"
        raise SnapshotError(msg)
    if len(body) != length:
        msg = f"{name} is cut short; expected {length} bytes; given: {len(body)}"
        raise SnapshotError(msg)
    if zlib.crc32(body) != crc:
        msg = f"{name} is damaged; expected checksum {crc:08x}; given: {zlib.crc32(body):08x}"
        raise SnapshotError(msg)
    return unpack_state(body)


class SnapshotStore(Protocol):
    """Where snapshots and journals of one topology live; used by its executors and its driver.

    ``problems`` collects the texts of damaged snapshots that were passed over; whoever loads
    reports and empties it.
    """

    problems: list[str]

    def save(self, task: int, version: int, data: bytes) -> None:
        """Keep ``data`` (from :func:`encode_snapshot`) as the state of ``task`` at ``version``."""

    def versions(self, task: int) -> list[int]:
        """Return the versions kept, ascending, whether readable or not."""

    def load(self, task: int, at_most: int | None = None) -> tuple[int, Any] | None:
        """Return (version, state) of the newest readable snapshot not above ``at_most``."""

    def save_journal(self, task: int, number: int, data: bytes) -> None:
        """Keep a journal entry; the two entries before it stay, older ones go."""

    def load_journal(self, task: int) -> Any | None:
        """Return the newest readable journal entry."""

    def newest_journal(self, task: int) -> int:
        """Return the number of the newest journal entry, readable or not; 0 if there is none."""


class _StoreBase:
    """What every store shares: newest readable first, and pruning."""

    def __init__(self, kept: int = 3) -> None:
        self.kept = kept
        self.problems: list[str] = []

    def _newest_readable(self, candidates: Iterable[tuple[int, str]]) -> tuple[int, Any] | None:
        for number, name in sorted(candidates, reverse=True):
            try:
                return number, decode_snapshot(self._read(name), name)
            except (SnapshotError, OSError) as error:
                self.problems.append(f"{error}; the one before it is used")
        return None

    def load(self, task: int, at_most: int | None = None) -> tuple[int, Any] | None:
        return self._newest_readable(
            (v, self._name(task, "snapshot", v)) for v in self.versions(task) if at_most is None or v <= at_most)

    def save(self, task: int, version: int, data: bytes) -> None:
        self._write(self._name(task, "snapshot", version), data, sync=True)
        for old in self.versions(task)[:-self.kept]:
            self._remove(self._name(task, "snapshot", old))

    def save_journal(self, task: int, number: int, data: bytes) -> None:
        # Not synced: it has to survive the process, as the broker's own log does, not the machine.
        self._write(self._name(task, "journal", number), data, sync=False)
        self._remove(self._name(task, "journal", number - 3))

    def load_journal(self, task: int) -> Any | None:
        found = self._newest_readable((n, self._name(task, "journal", n)) for n in self._numbers(task, "journal"))
        return None if found is None else found[1]

    def newest_journal(self, task: int) -> int:
        return max(self._numbers(task, "journal"), default=0)

    def versions(self, task: int) -> list[int]:
        return self._numbers(task, "snapshot")

    @staticmethod
    def _name(task: int, kind: str, number: int) -> str:
        return f"{task}/{kind}-{number:020d}"


class MemorySnapshotStore(_StoreBase):
    """Keeps snapshots in a dictionary: for the simulated transport."""

    def __init__(self, kept: int = 3) -> None:
        super().__init__(kept)
        self.files: dict[str, bytes] = {}

    def _write(self, name: str, data: bytes, *, sync: bool) -> None:
        self.files[name] = data

    def _read(self, name: str) -> bytes:
        return self.files[name]

    def _remove(self, name: str) -> None:
        self.files.pop(name, None)

    def _numbers(self, task: int, kind: str) -> list[int]:
        prefix = f"{task}/{kind}-"
        return sorted(int(name[len(prefix):]) for name in self.files if name.startswith(prefix))


class FileSnapshotStore(_StoreBase):
    """Keeps snapshots as files below a folder that every executor and the driver can reach.

    :param folder: created when absent, readable by its owner only.
    :param kept: snapshots kept per task; the newest one serves, older ones stand in for damaged ones.
    """

    def __init__(self, folder: str | Path, kept: int = 3) -> None:
        super().__init__(kept)
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _write(self, name: str, data: bytes, *, sync: bool) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, mode=0o700)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with open(partial, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)

    def _read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def _remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def _numbers(self, task: int, kind: str) -> list[int]:
        try:
            names = os.listdir(self.folder / str(task))
        except FileNotFoundError:
            return []
        prefix = f"{kind}-"
        return sorted(int(name[len(prefix):]) for name in names if name.startswith(prefix) and name[len(prefix):].isdigit())
