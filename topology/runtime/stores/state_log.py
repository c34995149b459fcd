"""What the records of a state topic mean: which of them count, and which are still needed.

A state topic has one partition for the terms of drivers and for documents (0), and further ones for tasks. A record is a
*commit*: its key says what it is (JSON), and its value holds the blob, or where in the topic of chunks the blob's pieces are.
The order of a partition decides, for all readers alike:

- A record of a term lower than one before it in its partition does not count. A driver that takes a term first writes it
  to every partition, so nothing that an earlier driver's processes write later counts.
- Of several records for one entry of a journal the first one counts, and only if its number follows the newest entry. What is before
  the oldest entry that is kept is dropped, so for a reader who comes later the first one that is left counts. Therefore a task with a journal
  has a partition of its own.
- Of several records for one version of a snapshot, or for one document, the last one counts.

What counts is therefore settled by Kafka's offsets alone. Nothing here does any input or output.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dskype.topology.core.snapshots import JOURNAL_KEPT, TERMS_KEPT

__all__ = ["CLEAR", "DOCUMENT", "FENCE", "JOURNAL", "SNAPSHOT", "TERM", "Chunk", "Commit", "PartitionLog", "pack_chunks", "unpack_chunks"]

TERM, FENCE, CLEAR, JOURNAL, SNAPSHOT, DOCUMENT = "term", "fence", "clear", "journal", "snapshot", "document"
_KINDS = frozenset({TERM, FENCE, CLEAR, JOURNAL, SNAPSHOT, DOCUMENT})
_CHUNK = struct.Struct("<QI16s")


class Chunk(NamedTuple):
    """A piece of a blob: its offset in the topic of chunks, its length, and the BLAKE2b digest of its content (16 bytes)."""

    offset: int
    length: int
    digest: bytes


def pack_chunks(chunks: list[Chunk]) -> bytes:
    """Serialize the pieces of a blob, in order."""
    return b"".join(_CHUNK.pack(*chunk) for chunk in chunks)


def unpack_chunks(data: bytes) -> list[Chunk]:
    """Return what :func:`pack_chunks` serialized; what does not have that shape is dropped."""
    return [Chunk(*fields) for fields in _CHUNK.iter_unpack(data[: len(data) - len(data) % _CHUNK.size])]


class Commit(NamedTuple):
    """One record of a state topic.

    :ivar kind: one of the kinds above.
    :ivar task: task id; -1 where a record concerns none.
    :ivar number: of a journal entry, a version, or a term; 0 for others.
    :ivar attempt: unique name of the attempt to write this record.
    :ivar term: the writer's term; None writes without one.
    :ivar chunked: whether ``value`` has the places of chunks instead of the blob.
    :ivar name: of a document.
    :ivar offset: where the record is; -1 until it is written.
    """

    kind: str
    task: int
    number: int
    attempt: str
    term: int | None
    chunked: bool = False
    name: str = ""
    value: bytes | None = b""
    offset: int = -1

    def key(self) -> bytes:
        """Return the record's key."""
        fields = {"v": 1, **self._asdict()}
        del fields["value"], fields["offset"]
        return json.dumps(fields).encode()

    @classmethod
    def parse(cls, offset: int, key: bytes | None, value: bytes | None) -> Commit | None:
        """Return the commit in a record; None for a record of another shape, because anyone with access to the topic may write there."""
        try:
            fields: dict[str, Any] = json.loads(key or b"")
            if fields.pop("v") != 1:
                return None
            commit = cls(**fields, value=value, offset=offset)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        legal = (
            commit.kind in _KINDS
            and all(type(n) is int for n in (commit.task, commit.number, 0 if commit.term is None else commit.term))
            and isinstance(commit.attempt, str)
            and isinstance(commit.name, str)
        )
        return commit if legal else None


@dataclass
class PartitionLog:
    """What counts in one partition, up to an offset.

    :ivar kept: snapshots that are kept of each task.
    :ivar position: offset of the next record to read.
    :ivar fence: the highest term that a record has, None without one.
    :ivar fenced_at: offset of the last record of that term; it, or a later one, must stay in the topic.
    :ivar whole: whether everything from the first record on, or from the last clear on, has been read.
    """

    kept: int
    position: int = 0
    fence: int | None = None
    fenced_at: int | None = None
    whole: bool = True
    terms: dict[int, Commit] = field(default_factory=dict)
    documents: dict[str, Commit] = field(default_factory=dict)
    entries: dict[tuple[int, str], dict[int, Commit]] = field(default_factory=dict)

    def skip_to(self, offset: int) -> None:
        """Continue at a later offset, because what was before was dropped: it is not needed any more."""
        if offset > self.position:
            self.position, self.whole = offset, False
            self.terms.clear()
            self.documents.clear()
            self.entries.clear()

    def apply(self, commit: Commit | None, offset: int) -> bool:
        """Take in the next record, and tell whether it counts.

        :param commit: None for a record that is not a commit.
        """
        self.position = offset + 1
        if commit is None:
            return False
        if commit.term is not None and self.fence is not None and (commit.term < self.fence if commit.kind == FENCE else commit.term != self.fence):
            return False  # a higher term than that of the fence belongs to a topology that was removed
        counts = commit.kind == FENCE or getattr(self, f"_{commit.kind}")(commit)
        if commit.term is not None and (counts or commit.term != self.fence):
            self.fence, self.fenced_at = commit.term, offset
        return counts

    def _term(self, commit: Commit) -> bool:
        if commit.number <= max(self.terms, default=-1):
            return False
        return _keep(self.terms, commit, TERMS_KEPT)

    def _clear(self, commit: Commit) -> bool:
        self.entries.clear()
        self.documents.clear()
        self.whole = True
        return True

    def _document(self, commit: Commit) -> bool:
        if commit.value is None:
            self.documents.pop(commit.name, None)
        else:
            self.documents[commit.name] = commit
        return True

    def _journal(self, commit: Commit) -> bool:
        found = self.entries.setdefault((commit.task, JOURNAL), {})
        if commit.number != max(found) + 1 if found else self.whole and commit.number != 1:
            return False
        return _keep(found, commit, JOURNAL_KEPT)

    def _snapshot(self, commit: Commit) -> bool:
        return _keep(self.entries.setdefault((commit.task, SNAPSHOT), {}), commit, self.kept)

    def numbers(self, task: int, kind: str) -> list[int]:
        """Return the numbers of what is kept of a task, in ascending order."""
        return sorted(self.entries.get((task, kind), ()))

    def commits(self) -> Iterator[Commit]:
        """Yield the commits that are still needed."""
        yield from self.terms.values()
        yield from self.documents.values()
        for found in self.entries.values():
            yield from found.values()

    def needed_from(self) -> int:
        """Return the offset from which on records are needed; Kafka may drop those before it."""
        needed = [commit.offset for commit in self.commits()]
        return min([*needed, self.position if self.fenced_at is None else self.fenced_at])

    def chunks_needed_from(self) -> int:
        """Return the first offset in the topic of chunks that is needed; 0 if none is."""
        return min((chunk.offset for commit in self.commits() if commit.chunked for chunk in unpack_chunks(commit.value or b"")), default=0)


def _keep(found: dict[int, Commit], commit: Commit, kept: int) -> bool:
    """Add a commit to those of which the newest are kept, and return True: it counts."""
    found[commit.number] = commit
    for old in sorted(found)[:-kept]:
        del found[old]
    return True
