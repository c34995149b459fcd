"""Reading topics, with or without an end: ranges for executors that process records again, present records, and how far a reader is behind."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import CorruptRecordError, KafkaError, NoError, UnknownTopicOrPartitionError, UnsupportedCodecError
from kafka.structs import OffsetAndMetadata

from dskype.topology.core.inbox_reader import InboxReader
from dskype.topology.core.loss import lost_input
from dskype.topology.errors import FatalError, explain
from dskype.topology.runtime.kafka.clients import KafkaConsumer, KafkaSettings, KafkaTimeoutError
from dskype.topology.runtime.kafka.connections import FAILOVER_MS
from dskype.topology.tuples import InRecord

__all__ = ["KafkaInboxReader", "commit_offsets", "partitions_to_follow", "read_ahead", "read_to_end", "records_until"]

log = logging.getLogger(__name__)

_READ_TIMEOUT_S = 60
_ASK_MS = 30_000
_AHEAD_S = 3.0
"""How long a look at the next record may take."""
_KEPT_BYTES, _KEPT_WAIT_MS = 1 << 18, 1000
"""What a client that stays open asks for at once, unless a single batch is larger: it often reads one record. And how long it waits for it."""


def _in_record(record: Any) -> InRecord:
    return InRecord(record.topic, record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers or []))


class KafkaInboxReader(InboxReader):
    """Reads with a client of kafka-python.

    :param isolation_level: ``read_committed`` leaves out the records of transactions that were aborted.
    :param keep: whether one client stays open for all ranges, as for a spout whose tuples fail; each range costs a single request then.
    :param starts: (topic, partition) -> where the query of a Kafka spout began to read; others are read from their beginning.
    """

    def __init__(
        self, settings: KafkaSettings, isolation_level: str = "read_uncommitted", *, keep: bool = False, starts: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        self._settings, self._isolation_level, self._keep, self._starts = settings, isolation_level, keep, starts or {}
        self._kept: KafkaConsumer | None = None

    def read(self, topic: str, partition: int, start: int, stop: int | None) -> Iterator[InRecord]:
        where = TopicPartition(topic, partition)
        if self._keep and stop is not None:
            start = yield from self._read_with_kept(where, start, stop)
        if stop is not None and start >= stop:
            return
        with closing(self._open()) as consumer:
            if partition not in (consumer.partitions_for_topic(topic) or ()):
                raise lost_input(topic, partition, start, start + 1 if stop is None else stop, 0, 0)
            consumer.assign([where])
            first, end = (ask([where], timeout_ms=_ASK_MS)[where] for ask in (consumer.beginning_offsets, consumer.end_offsets))
            stop = max(start, end) if stop is None else stop
            if first > start or end < stop:
                raise lost_input(topic, partition, start, stop, first, end)
            consumer.seek(where, start)
            try:
                yield from map(_in_record, records_until(consumer, where, stop))
            except (UnsupportedCodecError, CorruptRecordError) as error:
                raise FatalError(
                    f"Records of {topic}/{partition} from offset {consumer.position(where)} on can never be read again.",
                    given=f"{type(error).__name__}: {error}",
                    hint="install the library of the codec for Python, or let the broker restore the damaged log from a replica; then resume the topology",
                ) from error

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        with closing(self._settings.admin(request_timeout_ms=FAILOVER_MS)) as admin:
            commit_offsets(admin, group, offsets)

    def _open(self, **arguments: Any) -> KafkaConsumer:
        return self._settings.consumer(isolation_level=self._isolation_level, request_timeout_ms=FAILOVER_MS, **arguments)

    def _read_with_kept(self, where: TopicPartition, start: int, stop: int) -> Generator[InRecord, None, int]:
        """Yield records with the client that stays open, as long as they come at once; return the offset from which another client has to find out why not."""
        try:
            consumer = self._kept_open()
            consumer.assign([where])
            consumer.seek(where, start)
            while start < stop:
                for record in consumer.poll(timeout_ms=_KEPT_WAIT_MS).get(where, ()):
                    if record.offset >= stop:
                        return stop
                    yield _in_record(record)
                if (position := consumer.position(where)) == start:
                    return start
                start = position
        except KafkaError as error:
            log.info("%s/%s is read again with a new client: %s", where.topic, where.partition, error)
            self._drop_kept()
        return start

    def _kept_open(self) -> KafkaConsumer:
        if self._kept is None:
            self._kept = self._open(auto_offset_reset="none", fetch_max_wait_ms=1, max_partition_fetch_bytes=_KEPT_BYTES, allow_auto_create_topics=False)
        return self._kept

    def _drop_kept(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def waiting(self, topics: Iterable[str], positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], bool]:
        try:
            consumer = self._kept_open()
            found = [TopicPartition(topic, partition) for topic in topics for partition in sorted(consumer.partitions_for_topic(topic) or ())]
            begins = consumer.beginning_offsets(found, timeout_ms=_ASK_MS) if found else {}
            starts = {(p.topic, p.partition): max(positions.get(p, self._starts.get(p, 0)), begins[p]) for p in found}
            return {where: ahead < end for where, (ahead, end) in read_ahead(consumer, starts).items()}
        except KafkaError:
            self._drop_kept()
            raise


def commit_offsets(admin: KafkaAdminClient, group: str, offsets: Mapping[tuple[str, int], int], metadata: str = "") -> None:
    """Commit offsets in a consumer group that has no members.

    :param offsets: (topic, partition) -> next offset.
    :param metadata: what the brokers keep beside them.
    :raises KafkaError: the brokers do not answer, or have refused an offset; of several errors, the first.
    """
    answers = admin.alter_group_offsets(group, {TopicPartition(*where): OffsetAndMetadata(offset, metadata, -1) for where, offset in offsets.items()})
    for where, error in sorted(answers.items()):
        if error is not NoError:
            raise error(f"offset {offsets[where.topic, where.partition]} of {where.topic}/{where.partition}")


def read_ahead(consumer: KafkaConsumer, positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return, for each position, the offset of the next record that a reader there would get, and the end of the log.

    They are equal if there is no record, as behind the last record of a transaction: its marker has an offset, and so have the records of aborted ones.
    Their difference is the lag. Where no answer comes soon, the first number is the position. Partitions that do not exist are left out.

    :param consumer: reads with the isolation level of the reader in question, and does not create topics; what is assigned to it changes.
    :param positions: (topic, partition) -> next offset to read.
    """
    present = {topic: consumer.partitions_for_topic(topic) or () for topic in {topic for topic, _ in positions}}
    places = {TopicPartition(*where): offset for where, offset in positions.items() if where[1] in present[where[0]]}
    ends = consumer.end_offsets(list(places), timeout_ms=_ASK_MS) if places else {}
    found = {where: (offset, max(offset, ends[where])) for where, offset in places.items()}
    waiting = {where for where, (offset, end) in found.items() if offset < end}
    if waiting:
        consumer.assign(list(waiting))
        consumer.resume(*waiting)
        for where in waiting:
            consumer.seek(where, places[where])
    deadline = time.monotonic() + _AHEAD_S
    while waiting and time.monotonic() < deadline:
        batches = consumer.poll(timeout_ms=200)
        for where in list(waiting):
            end = found[where][1]
            ahead = batches[where][0].offset if batches.get(where) else consumer.position(where)
            if where in batches or ahead >= end:
                found[where] = min(ahead, end), end
                waiting.discard(where)
                consumer.pause(where)
    return {(where.topic, where.partition): answer for where, answer in found.items()}


def partitions_to_follow(consumer: KafkaConsumer, topics: Iterable[str]) -> list[TopicPartition]:
    """Return all partitions of topics, for whoever waits for their records: a reader of no partitions would wait forever and say nothing.

    :raises UnknownTopicOrPartitionError: the brokers do not show one of the topics to this account.
    """
    found: list[TopicPartition] = []
    for topic in topics:
        if not (numbers := consumer.partitions_for_topic(topic)):
            raise UnknownTopicOrPartitionError(explain("Kafka shows no such topic.", given=topic, hint="it was deleted, or this account may not describe it"))
        found += [TopicPartition(topic, number) for number in sorted(numbers)]
    return found


def records_until(consumer: KafkaConsumer, where: TopicPartition, stop: int) -> Iterator[Any]:
    """Yield the records of a partition from a consumer's position up to an offset, as they come.

    :param where: the only partition that is assigned to the consumer.
    :param stop: the offset behind the last record.
    :raises KafkaTimeoutError: no record came for a minute.
    """
    deadline = time.monotonic() + _READ_TIMEOUT_S
    while (position := consumer.position(where)) < stop:
        batch = consumer.poll(timeout_ms=1000).get(where, ())
        for record in batch:
            if record.offset >= stop:
                return
            yield record
        if batch:
            deadline = time.monotonic() + _READ_TIMEOUT_S
        elif time.monotonic() > deadline:
            msg = f"no records of {where.topic}/{where.partition} came for {_READ_TIMEOUT_S} s; expected offsets {position} to {stop - 1}"
            raise KafkaTimeoutError(msg)


def read_to_end(settings: KafkaSettings, topic: str) -> list[InRecord]:
    """Return all present records of a topic, partition after partition; [] for an unknown topic, which is not created."""
    with closing(settings.consumer(allow_auto_create_topics=False)) as consumer:
        partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        ends = consumer.end_offsets(partitions) if partitions else {}
        records: list[InRecord] = []
        for where in partitions:
            consumer.assign([where])
            records += map(_in_record, records_until(consumer, where, ends[where]))
        return records
