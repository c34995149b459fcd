"""Snapshots and journals of tasks: format, checks and storage.

A *snapshot* is the state of a bolt task at a version (the next inbox offset to process). A *journal entry* is the state
of a spout task after a batch, together with the records that the batch emitted, because a spout cannot repeat them.
Both are msgpack with typed arrays, behind a header with format version, checksum and length::

    b"DSNP" | u16 format | u32 crc32 of the body | u64 length of the body | body

They are kept in a *snapshot store*: files (``file_store``), or what :mod:`dskype.topology.runtime.stores.choice` opens by a URL.
Whatever the store, a reader sees a complete blob or none.

Two processes may both believe that they own a task, for example when a host that was thought lost is still running.
Snapshots are safe then, because the state at a version follows from the inbox. What a spout emits follows from nothing
else, so its journal is one chain: entry N is created once and never replaced. A second process that tries to create it
is refused, and has to continue behind it.

*Terms* number the drivers of a topology. A driver that takes a topology over first takes the next term; from then on,
processes of earlier drivers are refused.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.errors import FatalError, TopologyError

__all__ = [
    "FencedError",
    "JournalTakenError",
    "LostStateError",
    "MemorySnapshotStore",
    "SnapshotError",
    "SnapshotStore",
    "TermTakenError",
    "WriteError",
    "decode_snapshot",
    "encode_snapshot",
    "removed",
    "taken",
]

FORMAT = 2
_READABLE = (1, FORMAT)
"""Format 1 had a row for each pending tree of a spout, and of an acker."""
_HEADER = struct.Struct("<4sHIQ")
_MAGIC = b"DSNP"

JOURNAL_KEPT = 3
"""Journal entries kept per task: the newest one, and two that stand in for a damaged one."""
TERMS = "terms"
TERMS_KEPT = 8
_DOCUMENTS = "documents"
_ATTEMPTS = 10
"""How often to list the files of a task when the one to read is removed in between."""


class SnapshotError(TopologyError):
    """A snapshot cannot be read: it is damaged, truncated, or of another format."""


class JournalTakenError(TopologyError):
    """Another process has written this journal entry or later ones; the batch has to be run again behind them."""

    retriable = True


class TermTakenError(TopologyError):
    """Another driver has taken this term, or a later one."""


class FencedError(FatalError):
    """Another driver has taken the topology over; this process must not write any more."""


class WriteError(TopologyError):
    """A snapshot or a journal entry could not be written, most likely because the disk is full."""

    retriable = True


class LostStateError(FatalError):
    """The state of a topology was removed while it was in use."""


def encode_snapshot(state: Any) -> bytes:
    """Serialize a state with header and checksum."""
    body = pack_state(state)
    return _HEADER.pack(_MAGIC, FORMAT, zlib.crc32(body), len(body)) + body


def decode_snapshot(data: bytes, name: str = "snapshot") -> Any:
    """Check and decode what :func:`encode_snapshot` wrote.

    :raises SnapshotError: with ``name``, what was expected and what was found.
    """
    return unpack_state(_checked(data, name))


def _checked(data: bytes, name: str) -> memoryview:
    """Return the body of what :func:`encode_snapshot` wrote, if it is whole."""
    if len(data) < _HEADER.size:
        msg = f"{name} is cut short; expected at least {_HEADER.size} bytes; given: {len(data)}"
        raise SnapshotError(msg)
    magic, version, crc, length = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC:
        msg = f"{name} is not a snapshot; expected it to begin with {_MAGIC!r}; given: {magic!r}"
        raise SnapshotError(msg)
    if version not in _READABLE:
        msg = f"{name} has another format; expected {FORMAT}; given: {version}; hint: start over or use the version that wrote it"
        raise SnapshotError(msg)
    if len(body) != length:
        msg = f"{name} is cut short; expected {length} bytes; given: {len(body)}"
        raise SnapshotError(msg)
    if zlib.crc32(body) != crc:
        msg = f"{name} is damaged; expected checksum {crc:08x}; given: {zlib.crc32(body):08x}"
        raise SnapshotError(msg)
    return body


class SnapshotStore:
    """Holds the snapshots and journals of one topology; its executors and its driver use it. Stores are made from this class, and may do in a way of
    their own what it does here: load the newest readable file, prune, keep journals as chains, check terms.

    Methods that write raise :class:`LostStateError` if the store was removed; only :meth:`create` creates one. With
    ``term`` they raise :class:`FencedError`, and write nothing, if another term has been taken.

    A store can be pickled and forked; each process opens connections of its own.

    :ivar problems: messages about damaged files that were skipped; the caller of a load reports them and clears the list.
    :ivar remote: whether calls are requests to a server, so that they take milliseconds.
    :ivar kept: snapshots kept per task.
    """

    remote = False

    def __init__(self, kept: int = 3) -> None:
        self.kept = kept
        self.problems: list[str] = []
        self._synced: dict[int, int] = {}  # task -> newest journal entry that was synced to the disk

    def create(self) -> None:
        """Create the store if it does not exist; only the driver calls this."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove all snapshots and journals, but not the terms, so that processes of earlier drivers stay refused."""
        raise NotImplementedError

    def remove(self) -> None:
        """Remove the store and everything in it."""
        raise NotImplementedError

    def holds_state(self) -> bool:
        """Tell whether there is a snapshot or a journal of any task."""
        raise NotImplementedError

    def location(self, task: int) -> str:
        """Return where the snapshots and the journal of a task are, for messages."""
        raise NotImplementedError

    def rest(self) -> None:
        """Close connections and end their threads; the next call opens others. A process calls this before it forks."""

    def handover(self) -> bytes:
        """Return what a fork that has written wants its parent's store to know."""
        return b""

    def take_over(self, data: bytes) -> None:
        """Take in what :meth:`handover` returned in a fork of this process."""

    def sweep(self, task: int) -> None:
        """Remove what killed processes have left half written for a task."""

    def sync_journal(self, task: int) -> None:
        """Make the newest journal entry of a task survive a power cut; another thread than the writer may call this."""

    def _write(self, name: str, data: bytes, term: int | None) -> None:
        raise NotImplementedError

    def _create(self, name: str, data: bytes, term: int | None, *, sync: bool) -> None:
        raise NotImplementedError

    def _read(self, name: str) -> bytes:
        raise NotImplementedError

    def _remove(self, name: str) -> None:
        raise NotImplementedError

    def _names(self, folder: str) -> Iterable[str]:
        """Return the names in a folder, [] if there is no such folder."""
        raise NotImplementedError

    def _numbers(self, folder: str, prefix: str) -> list[int]:
        start = len(prefix)
        return sorted([int(name[start:]) for name in self._names(folder) if name.startswith(prefix) and name[start:].isdigit()])

    # -- documents --------------------------------------------------------------------------------

    def write_document(self, name: str, data: bytes) -> None:
        """Keep ``data`` under a name of letters, digits, dots and dashes; replace what was there."""
        self._write(f"{_DOCUMENTS}/{name}", data, None)

    def read_document(self, name: str) -> bytes | None:
        """Return a document; None if there is none of that name."""
        try:
            return self._read(f"{_DOCUMENTS}/{name}")
        except FileNotFoundError:
            return None

    def remove_document(self, name: str) -> None:
        """Remove a document if there is one."""
        self._remove(f"{_DOCUMENTS}/{name}")

    # -- snapshots --------------------------------------------------------------------------------

    def _newest_readable(self, task: int, kind: str, decode: Callable[[bytes, str], Any] = decode_snapshot) -> tuple[int, int, Any] | None:
        """Return the number of the newest file, the number of the newest readable one, and what ``decode`` makes of its content."""
        for _ in range(_ATTEMPTS):
            problems: list[str] = []
            numbers = self._numbers(str(task), f"{kind}-")
            try:
                for number in reversed(numbers):
                    name = self._name(task, kind, number)
                    try:
                        found = numbers[-1], number, decode(self._read(name), name)
                    except SnapshotError as error:
                        problems.append(f"{error}; the one before it is used")
                    else:
                        self.problems += problems
                        return found
            except FileNotFoundError:  # another process has written newer files and removed this one
                continue
            self.problems += problems
            return None
        msg = f"the files of task {task} are replaced faster than they can be read; expected one of {[self._name(task, kind, n) for n in numbers]}"
        raise SnapshotError(msg)

    def load(self, task: int) -> tuple[int, Any] | None:
        """Return (version, state) of the newest readable snapshot."""
        found = self._newest_readable(task, "snapshot")
        return None if found is None else found[1:]

    def save(self, task: int, version: int, data: bytes, *, term: int | None = None) -> None:
        """Keep ``data`` (from :func:`encode_snapshot`) as the state of ``task`` at ``version``."""
        self._write(self._name(task, "snapshot", version), data, term)
        for old in self.versions(task)[: -self.kept]:
            self._remove(self._name(task, "snapshot", old))

    def versions(self, task: int) -> list[int]:
        """Return the versions of all snapshots, readable or not, in ascending order."""
        return self._numbers(str(task), "snapshot-")

    def newest_version(self, task: int) -> int | None:
        """Return the version from which to continue: that of the newest snapshot, which a remote store does not read for this."""
        if self.remote:  # a damaged one is noticed by the executor, which then uses an older one and reads more of the inbox
            return max(self.versions(task), default=None)
        found = self._newest_readable(task, "snapshot", _checked)
        return None if found is None else found[1]

    # -- journals ---------------------------------------------------------------------------------

    def save_journal(self, task: int, number: int, data: bytes, *, term: int | None = None) -> None:
        """Add entry ``number`` to a task's journal; keep the two entries before it, and remove older ones.

        :raises JournalTakenError: this entry or a later one exists; the journal is unchanged.
        """
        name = self._name(task, "journal", number)
        try:
            # Not synced: like the broker's own log, every entry survives the process, but only those that `sync_journal` syncs survive a power cut.
            self._create(name, data, term, sync=False)
        except FileExistsError:
            raise taken(task, number, self.newest_journal(task)) from None
        numbers = self._numbers(str(task), "journal-")
        # This process may have been suspended: meanwhile the number may have been used and pruned, or the journal may belong to another topology.
        if numbers[-1:] != [number] or (number > 1 and number - 1 not in numbers):
            self._remove(name)
            raise taken(task, number, max([n for n in numbers if n != number], default=0))
        for old in numbers[:-JOURNAL_KEPT]:
            if old != self._synced.get(task):
                self._remove(self._name(task, "journal", old))

    def load_journal(self, task: int) -> tuple[int, Any] | None:
        """Return the number of the newest journal entry, readable or not, and the newest readable entry.

        :raises SnapshotError: none of the entries can be read.
        """
        found = self._newest_readable(task, "journal")
        if found is not None:
            return found[0], found[2]
        if numbers := self._numbers(str(task), "journal-"):
            raise SnapshotError(
                f"None of the journal entries of task {task} can be read. Without one the task would begin with its first tuple, and its receivers would "
                "drop its tuples as repetitions.",
                given="; ".join(self.problems[-len(numbers) :]),
                hint=f"restore {self.location(task)} from a backup, or start the topology afresh",
            )
        return None

    def newest_journal(self, task: int) -> int:
        """Return the number of the newest journal entry, readable or not; 0 if there is none."""
        return max(self._numbers(str(task), "journal-"), default=0)

    # -- terms ------------------------------------------------------------------------------------

    def newest_term(self) -> int:
        """Return the newest term that was taken; 0 if none was."""
        return max(self._numbers(TERMS, ""), default=0)

    def take_term(self, term: int, holder: Mapping[str, Any]) -> None:
        """Take a term for a driver.

        :param term: one more than :meth:`newest_term`. The first term of a store must be above all terms of earlier stores in the same
            place, because processes of a killed topology may still run; the seconds since 1970, for example.
        :param holder: describes the driver in messages: plain values.
        :raises TermTakenError: another driver was faster; ask for the newest term again.
        """
        try:
            self._create(self._term_name(term), json.dumps(holder).encode(), None, sync=True)
        except FileExistsError:
            raise self._term_taken(term) from None
        terms = self._numbers(TERMS, "")
        for old in terms[:-TERMS_KEPT]:
            self._remove(self._term_name(old))
        if terms[-1] != term:
            raise self._term_taken(term)

    def _term_taken(self, term: int) -> TermTakenError:
        newest = self.newest_term()
        return TermTakenError("Another driver has taken this term.", given=term, hint=f"the newest term is {newest}: {self.term_holder(newest)}")

    def term_holder(self, term: int) -> dict[str, Any]:
        """Return the ``holder`` of a term as given to :meth:`take_term`; empty if it is no longer known."""
        try:
            return json.loads(self._read(self._term_name(term)))
        except (OSError, ValueError):
            return {}

    def check_term(self, term: int | None) -> None:
        """Raise :class:`FencedError` if a newer term than this has been taken."""
        if term is None or (newest := self.newest_term()) == term:
            return
        if newest < term:
            raise LostStateError(
                "The state of the topology was removed or started over while this process ran: its term is gone.", given=term, legal=str(newest)
            )
        msg = f"another driver has taken the topology over: term {newest}, ours {term}; it is {self.term_holder(newest) or 'unknown'}; nothing was written"
        raise FencedError(msg)

    @staticmethod
    def _name(task: int, kind: str, number: int) -> str:
        return f"{task}/{kind}-{number:020d}"

    @staticmethod
    def _term_name(term: int) -> str:
        return f"{TERMS}/{term:020d}"


def taken(task: int, number: int, newest: int) -> JournalTakenError:
    """Return the error of a process that another one was faster than."""
    if not newest:
        return JournalTakenError(f"the journal of task {task} was removed or started over by another process; given: entry {number}; nothing was released")
    return JournalTakenError(
        f"another process continues the journal of task {task}; its newest entry is {newest}; given: {number}; "
        "nothing was released; the batch is run again behind that entry"
    )


class MemorySnapshotStore(SnapshotStore):
    """Keeps snapshots in memory, for the simulated transport."""

    def __init__(self, kept: int = 3) -> None:
        super().__init__(kept)
        self.files: dict[str, bytes] = {}
        self.exists = True

    def create(self) -> None:
        self.exists = True

    def clear(self) -> None:
        self.files = {name: data for name, data in self.files.items() if name.startswith(f"{TERMS}/")}

    def remove(self) -> None:
        self.exists = False
        self.files.clear()

    def holds_state(self) -> bool:
        return any(name[0].isdigit() for name in self.files)

    def location(self, task: int) -> str:
        return f"memory of task {task}"

    def _check_writable(self, term: int | None) -> None:
        if not self.exists:
            raise removed("memory")
        self.check_term(term)

    def _write(self, name: str, data: bytes, term: int | None) -> None:
        self._check_writable(term)
        self.files[name] = data

    def _create(self, name: str, data: bytes, term: int | None, *, sync: bool) -> None:
        self._check_writable(term)
        if self.files.setdefault(name, data) is not data:
            raise FileExistsError(name)

    def _read(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def _remove(self, name: str) -> None:
        self.files.pop(name, None)

    def _names(self, folder: str) -> Iterable[str]:
        prefix = f"{folder}/"
        return [name[len(prefix) :] for name in self.files if name.startswith(prefix)]


def removed(place: Path | str) -> LostStateError:
    """Return the error of a process that writes to a store that was removed."""
    return LostStateError(
        "The store of the topology's snapshots and journals is gone; nothing was written.",
        given=str(place),
        hint="the topology was killed or started over, or its store was removed",
    )
