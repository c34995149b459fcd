"""Snapshots and journals in Kafka: no folder that hosts share.

Two topics belong to a topology. ``<topology>.__state`` has small records, one for each thing that is kept;
``<topology>.__chunks`` has the pieces of large blobs. What counts is decided by offsets (see ``state_log``). A writer learns
its record's offset from Kafka: if it is the next one that the writer expected, nobody else has written in between.
Otherwise it first reads what the others have written.

Large blobs are cut into chunks whose borders follow from their content. A chunk that the task's newest snapshot has, too, is
not written again, unless it has become so old that it alone would keep much of the topic from being dropped.

The topics are not compacted. Compaction keeps the last record of a key, but here the first one wins; and it would copy large
states in the background. Instead Kafka drops what is before the oldest record that is needed, as it does for inboxes.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, islice
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError

from dskype.topology.core.chunking import cut
from dskype.topology.core.snapshots import TERMS, SnapshotError, SnapshotStore, WriteError, removed, taken
from dskype.topology.errors import TopologyError
from dskype.topology.planning.plan import chunks_topic, state_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.connections import FAILOVER_MS
from dskype.topology.runtime.kafka.reading import records_until
from dskype.topology.runtime.kafka.record_producer import RecordProducer
from dskype.topology.runtime.kafka.topic_admin import KEPT_TOPIC, TopicAdmin
from dskype.topology.runtime.stores.state_log import CLEAR, DOCUMENT, FENCE, JOURNAL, SNAPSHOT, TERM, Chunk, Commit, PartitionLog, pack_chunks, unpack_chunks

__all__ = ["KafkaSnapshotStore"]

_INLINE_BYTES = 512 << 10
"""Largest blob that its commit holds itself."""
_IN_FLIGHT = 16
"""Chunks that are sent before the first of them is waited for."""
_PINNED = 4
"""How old a chunk may become before it is written again: so many times the chunks of a snapshot may follow it in the topic."""
_TIMEOUT_S = 25
"""How long brokers may take: long enough for a request that a broker which stands still never answers, and for another one to its successor."""
_ASK_MS = 2000
_METADATA_MS = 3000
"""How often a client asks who leads its partitions. So it is connected to several brokers: one that knows a single broker may ask only that one, which stands still."""
_TRIM_SNAPSHOTS = 8
"""One of this many small snapshots reads the partition, and lets Kafka drop what is not needed."""
_TRIM_EVERY = 64
"""One of this many journal entries lets Kafka drop those that are no longer needed."""


class KafkaSnapshotStore(SnapshotStore):
    """Keeps snapshots and journals in two topics of a topology's own brokers.

    Threads may share a store. A fork opens its own connections.

    :param topology: its name.
    :param tasks: the highest task id; equal in all processes, because it decides about the number of partitions.
    :param kept: snapshots kept per task.
    """

    remote = True

    def __init__(self, kafka: KafkaSettings, topology: str, tasks: int, kept: int = 3) -> None:
        super().__init__(kept)
        self._kafka, self._topology, self._tasks = kafka, topology, max(1, tasks)
        self._topic, self._chunks = state_topic(topology), chunks_topic(topology)
        self._logs = {partition: PartitionLog(kept) for partition in range(self._tasks + 1)}
        self._missing = True  # whether the topics must be looked for before the next write
        self._ahead: dict[int, int] = {}  # partition -> offset behind the last snapshot, if all records before it are known to be in order
        self._forget_connections()

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self._kafka, self._topology, self._tasks, self.kept)

    # -- connections ------------------------------------------------------------------------------

    def _forget_connections(self, forked: bool = False) -> None:
        self._forked = forked
        self._pid, self._lock = os.getpid(), threading.RLock()
        self._consumer: KafkaConsumer | None = None
        self._producer: RecordProducer | None = None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._pid != os.getpid():  # the parent's connections belong to the parent
            self._forget_connections(forked=True)
        with self._lock:
            yield

    def rest(self) -> None:
        with self._locked():
            for client in (self._consumer, self._producer):
                if client is not None:
                    with suppress(KafkaError):
                        client.close()
            self._consumer = self._producer = None

    def _reader(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = self._kafka.consumer(allow_auto_create_topics=False, request_timeout_ms=FAILOVER_MS, metadata_max_age_ms=_METADATA_MS)
        return self._consumer

    def _writer(self) -> RecordProducer:
        if self._producer is None:
            self._producer = self._kafka.producer(delivery_timeout_s=_TIMEOUT_S, forked=self._forked)
        return self._producer

    # -- the topics -------------------------------------------------------------------------------

    def create(self) -> None:
        """Create the topics if they do not exist.

        :raises TopologyError: they exist with another number of partitions.
        """
        wanted = {self._topic: self._tasks + 1, self._chunks: self._tasks + 1}
        with self._locked(), TopicAdmin(self._kafka) as admin:
            existing = admin.existing(wanted)
            if wrong := {topic: n for topic, n in existing.items() if n != wanted[topic]}:
                raise TopologyError(
                    "The topics of a topology's state have another number of partitions.",
                    given=str(wrong),
                    legal=str(self._tasks + 1),
                    hint="start it afresh ('dskype submit --fresh') after deleting them, or under another name",
                )
            admin.create({topic: n for topic, n in wanted.items() if topic not in existing}, {**KEPT_TOPIC, "cleanup.policy": "delete"})

    def remove(self) -> None:
        self.rest()
        with TopicAdmin(self._kafka) as admin:
            admin.delete([self._topic, self._chunks])

    def clear(self) -> None:
        with self._locked():
            for partition in self._logs:
                self._commit(partition, Commit(CLEAR, -1, 0, uuid.uuid4().hex, self._refresh(partition).fence))
            self._trim(self._logs)
            with TopicAdmin(self._kafka) as admin:
                admin.delete_records({(self._chunks, p): end for p, (_, end) in admin.begin_and_end(self._chunks).items() if end})

    def holds_state(self) -> bool:
        with self._locked():
            return any(found for partition in self._logs for found in self._refresh(partition).entries.values())

    def location(self, task: int) -> str:
        return f"partition {self._partition(task)} of the topics {self._topic} and {self._chunks}"

    def _partition(self, task: int) -> int:
        return 1 + task % self._tasks

    # -- reading ----------------------------------------------------------------------------------

    def _refresh(self, partition: int) -> PartitionLog:
        """Read what was written to a partition since the last time; of a topic that is gone nothing is left."""
        log, where = self._logs[partition], TopicPartition(self._topic, partition)
        end = self._end(where)
        if end < log.position:
            log = self._logs[partition] = PartitionLog(self.kept)
        if end < 0:
            self._missing = True
            self.rest()  # a client that has met a topic that is gone waits for it
            return log
        self._missing = False
        if log.position < end:
            log.skip_to(self._reader().beginning_offsets([where])[where])
            for record in self._records(where, log.position, end):
                log.apply(Commit.parse(record.offset, record.key, record.value), record.offset)
            log.position = max(log.position, end)
        return log

    def _end(self, where: TopicPartition) -> int:
        """Return the offset behind the last record of a partition; -1 if there is no such topic."""
        if self._missing and where.partition not in self._reader().partitions_for_topic(where.topic):
            return -1
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return self._reader().end_offsets([where], timeout_ms=_ASK_MS)[where]
            except UnknownTopicOrPartitionError:
                return -1
            except KafkaTimeoutError:  # the client waits for topics that are gone, too
                if self._is_gone():
                    return -1
                if time.monotonic() > deadline:
                    raise

    def _records(self, where: TopicPartition, start: int, stop: int) -> Iterator[Any]:
        """Yield the records from ``start`` on and before ``stop`` that are there."""
        if start >= stop:
            return
        reader = self._reader()
        reader.assign([where])
        reader.seek(where, start)
        yield from records_until(reader, where, stop)

    def _numbers(self, folder: str, prefix: str) -> list[int]:
        with self._locked():
            if folder == TERMS:
                return sorted(self._refresh(0).terms)
            task = int(folder)
            return self._refresh(self._partition(task)).numbers(task, prefix.rstrip("-"))

    def _read(self, name: str) -> bytes:
        with self._locked():
            folder, _, rest = name.partition("/")
            if folder == TERMS:
                partition, commit = 0, self._logs[0].terms.get(int(rest))
            else:
                task, (kind, _, number) = int(folder), rest.partition("-")
                partition = self._partition(task)
                commit = self._logs[partition].entries.get((task, kind), {}).get(int(number))
            if commit is None:
                raise FileNotFoundError(name)
            return self._blob(partition, commit, name)

    def _blob(self, partition: int, commit: Commit, name: str) -> bytes:
        if not commit.chunked:
            return commit.value or b""
        parts: list[bytes] = []
        for run in _runs(unpack_chunks(commit.value or b"")):
            where = TopicPartition(self._chunks, partition)
            found = {r.offset: r.value or b"" for r in self._records(where, run[0].offset, run[-1].offset + 1)}
            for chunk in run:
                part = found.get(chunk.offset, b"")
                if _digest(part) != chunk.digest:
                    what = "is damaged" if part else "is gone"
                    raise SnapshotError(f"{name}: the chunk at offset {chunk.offset} of {self._chunks}/{partition} {what}; expected {chunk.length} bytes")
                parts.append(part)
        return b"".join(parts)

    # -- writing ----------------------------------------------------------------------------------

    def _commit(self, partition: int, commit: Commit) -> bool:
        """Write a record, and tell whether it counts."""
        log = self._logs[partition]
        if self._missing:
            log = self._refresh(partition)
            if self._missing:
                raise removed(f"topic {self._topic}")
        if commit.term is not None and log.fence not in (None, commit.term):
            self.check_term(commit.term)
        offset = self._send([(self._topic, partition, commit.key(), commit.value)])[0]
        commit = commit._replace(offset=offset)
        if offset == log.position:
            return log.apply(commit, offset)
        log = self._refresh(partition)  # others have written, too
        return any(found.attempt == commit.attempt for found in log.commits())

    def _send(self, records: Iterable[tuple[str, int, bytes | None, bytes | None]]) -> list[int]:
        """Write records, and return their offsets.

        :raises WriteError: the brokers did not take one in time.
        :raises LostStateError: the topic is gone.
        """
        offsets: list[int] = []
        try:
            left = iter(records)
            while some := list(islice(left, _IN_FLIGHT)):
                waiting = [self._writer().send(topic, value, key=key, partition=partition) for topic, partition, key, value in some]
                offsets += [sent.get().offset for sent in waiting]
        except KafkaError as error:
            self.rest()
            self._missing = True
            if self._is_gone():
                raise removed(f"topic {self._topic}") from error
            raise WriteError(
                f"The state of topology {self._topology!r} cannot be written to {self._topic}: {type(error).__name__}: {error}.",
                hint="the topology continues by itself when the brokers take records again",
            ) from error
        return offsets

    def _is_gone(self) -> bool:
        try:
            return self._topic not in self._reader().topics()
        except KafkaError:  # the brokers do not answer
            return False

    def _put(self, partition: int, commit: Commit, data: bytes, known: Sequence[Chunk] = ()) -> bool:
        """Write a blob and its commit, and tell whether it counts."""
        if len(data) <= _INLINE_BYTES:
            return self._commit(partition, commit._replace(value=data))
        return self._commit(partition, commit._replace(chunked=True, value=pack_chunks(self._put_chunks(partition, data, known))))

    def _put_chunks(self, partition: int, data: bytes, known: Sequence[Chunk]) -> list[Chunk]:
        """Write the chunks of a blob that are not ``known``; return them all, in order."""
        view, borders = memoryview(data), cut(data)
        pieces = [view[a:b] for a, b in zip([0, *borders], borders)]
        horizon = max((c.offset for c in known), default=0) - _PINNED * len(pieces)
        there = {c.digest: c for c in known if c.offset >= horizon}
        chunks = [there.get(digest) or Chunk(-1, len(piece), digest) for piece in pieces for digest in (_digest(piece),)]
        new = {chunk.digest: piece for chunk, piece in zip(chunks, pieces) if chunk.offset < 0}
        offsets = dict(zip(new, self._send((self._chunks, partition, None, bytes(piece)) for piece in new.values())))
        return [chunk._replace(offset=offsets[chunk.digest]) if chunk.offset < 0 else chunk for chunk in chunks]

    def save(self, task: int, version: int, data: bytes, *, term: int | None = None) -> None:
        with self._locked():
            partition = self._partition(task)
            commit = Commit(SNAPSHOT, task, version, uuid.uuid4().hex, term)
            ahead, ours = self._ahead.get(partition), self._logs[partition].fence in (None, term)
            if len(data) <= _INLINE_BYTES and ahead is not None and ours and not self._missing:
                # Nothing has to be read if nobody else has written since; a fork then needs one connection only.
                offset = self._send([(self._topic, partition, commit.key(), data)])[0]
                if offset == ahead and offset % _TRIM_SNAPSHOTS:
                    self._ahead[partition] = offset + 1
                    return
                counts = any(found.attempt == commit.attempt for found in self._refresh(partition).commits())
            else:
                log = self._refresh(partition)
                # Only of the newest one: what older ones alone need may be dropped while this one is written.
                former = log.entries.get((task, SNAPSHOT), {}).get(max(log.numbers(task, SNAPSHOT), default=-1))
                known = unpack_chunks(former.value or b"") if former is not None and former.chunked else []
                counts = self._put(partition, commit, data, known)
            if not counts:  # refuses a process of an earlier driver; a snapshot may also be too old only
                self.check_term(term)
            self._ahead[partition] = self._logs[partition].position
            self._trim([partition])

    def handover(self) -> bytes:
        return json.dumps(self._ahead).encode()

    def take_over(self, data: bytes) -> None:
        with suppress(ValueError, AttributeError):
            self._ahead = {int(partition): offset for partition, offset in json.loads(data).items()}

    def save_journal(self, task: int, number: int, data: bytes, *, term: int | None = None) -> None:
        with self._locked():
            partition = self._partition(task)
            if not self._put(partition, Commit(JOURNAL, task, number, uuid.uuid4().hex, term), data):
                self.check_term(term)
                raise taken(task, number, self.newest_journal(task))
            if number % _TRIM_EVERY == 0:
                self._trim([partition])

    def _trim(self, partitions: Iterable[int]) -> None:
        """Let Kafka drop what is no longer needed; if it does not, the next call tries again."""
        before = {(self._topic, p): self._logs[p].needed_from() for p in partitions}
        before |= {(self._chunks, p): self._logs[p].chunks_needed_from() for p in partitions}
        with suppress(KafkaError), TopicAdmin(self._kafka) as admin:
            admin.delete_records({where: offset for where, offset in before.items() if offset > 0})

    # -- terms ------------------------------------------------------------------------------------

    def take_term(self, term: int, holder: Mapping[str, Any]) -> None:
        with self._locked():
            self._refresh(0)
            # Without a term of its own: a lower one is refused by its number.
            if not self._commit(0, Commit(TERM, -1, term, uuid.uuid4().hex, None, value=json.dumps(holder).encode())):
                raise self._term_taken(term)
            # From here on, no process of an earlier driver writes anything that counts.
            self._send((self._topic, p, Commit(FENCE, -1, 0, uuid.uuid4().hex, term).key(), b"") for p in self._logs if p)
            self._trim([0])

    # -- documents --------------------------------------------------------------------------------

    def write_document(self, name: str, data: bytes) -> None:
        with self._locked():
            self._refresh(0)
            self._put(0, Commit(DOCUMENT, -1, 0, uuid.uuid4().hex, None, name=name), data)

    def read_document(self, name: str) -> bytes | None:
        with self._locked():
            commit = self._refresh(0).documents.get(name)
            return None if commit is None else self._blob(0, commit, name)

    def remove_document(self, name: str) -> None:
        with self._locked():
            self._commit(0, Commit(DOCUMENT, -1, 0, uuid.uuid4().hex, None, name=name, value=None))


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _runs(chunks: list[Chunk]) -> Iterator[list[Chunk]]:
    """Yield consecutive chunks that also follow each other in the topic, to be read at once."""
    for _, run in groupby(enumerate(chunks), lambda at: (at[1].offset - at[0], at[0] // (2 * _IN_FLIGHT))):
        yield [chunk for _, chunk in run]
