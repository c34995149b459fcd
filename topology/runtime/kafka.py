"""The runtime's use of Kafka besides Spark's source and sink: topics, positions, and reading ranges again."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

import kafka
from kafka import TopicPartition, codec
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import CorruptRecordError, KafkaError, NoError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, UnsupportedCodecError
from kafka.errors import KafkaTimeoutError as ClientTimeoutError
from kafka.structs import OffsetAndMetadata

from dskype.topology.config import RECORD_BYTES
from dskype.topology.core.loss import lost_input
from dskype.topology.errors import FatalError, TopologyError, explain
from dskype.topology.runtime.connections import FAILOVER_MS, Connection, reached
from dskype.topology.runtime.producers import make_producer
from dskype.topology.runtime.record_producer import RecordProducer
from dskype.topology.tuples import InRecord

__all__ = [
    "FAILOVER_MS",
    "INPUT_TOPIC",
    "OUTPUT_TOPIC",
    "OWN_TOPIC",
    "KafkaConsumer",
    "KafkaInboxReader",
    "KafkaSettings",
    "KafkaTimeoutError",
    "TopicAdmin",
    "brokers_answer",
    "check_codecs",
    "commit_offsets",
    "partitions_to_follow",
    "read_ahead",
    "read_to_end",
    "records_until",
    "refuse_own_security",
    "topic_warnings",
]

log = logging.getLogger(__name__)

_READ_TIMEOUT_S = 60
_ASK_MS = 30_000
_AHEAD_S = 3.0
"""How long a look at the next record may take."""
_KEPT_BYTES, _KEPT_WAIT_MS = 1 << 18, 1000
"""What a client that stays open asks for at once, unless a single batch is larger: it often reads one record. And how long it waits for it."""
_INPUT_BYTES = 64 << 20
"""Size of input records above which a warning is given: Spark's JVM and the executors hold a record several times."""

OWN_TOPIC = {"compression.type": "producer"}
"""Configuration of a topic that only topologies use. The brokers keep its records as they come, and do not pack each of them, whatever their default is."""
INPUT_TOPIC = {"compression.type": "uncompressed"}
"""Default configuration of a topic that a spout reads; without compression, a small record cannot unpack to a huge one."""
OUTPUT_TOPIC = {"max.message.bytes": str(2 * RECORD_BYTES)}
"""Default configuration of a topic that only bolts write to; it accepts every record that a topology may send."""


class KafkaTimeoutError(TopologyError):
    """Kafka did not answer in time; a later attempt may succeed."""

    retriable = True


class KafkaConsumer(kafka.KafkaConsumer):
    """A consumer of kafka-python that does not take a position that it could not find out for an answer."""

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record.

        :raises kafka.errors.KafkaTimeoutError: the brokers have not said it in time.
        """
        position = super().position(partition, timeout_ms)
        if position is None:
            raise ClientTimeoutError(f"the position in {partition.topic}/{partition.partition} is not known: the brokers do not answer")
        return position


def check_codecs() -> None:
    """Check that records can be unpacked, whatever they are packed with.

    :raises FatalError: a package is missing.
    """
    there = {"snappy": codec.has_snappy(), "lz4": codec.has_lz4(), "zstd": codec.has_zstd()}
    if missing := [name for name, found in there.items() if not found]:
        raise FatalError(
            explain(
                "Compressed records cannot be read here.",
                given=f"no package for {', '.join(missing)}",
                hint="install dskype with all its packages: python-snappy, lz4, zstandard",
            )
        )


class KafkaSettings(Connection):
    """How to reach the brokers, and the clients that do; see :class:`~dskype.topology.runtime.connections.Connection`."""

    def consumer(self, **arguments: Any) -> KafkaConsumer:
        """Return a consumer without a group; the caller assigns partitions and closes it.

        :raises FatalError: records that are packed in one of Kafka's ways could not be read.
        """
        check_codecs()
        settings = {
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 100,
            "max_partition_fetch_bytes": 2 * RECORD_BYTES,
            "fetch_max_bytes": 8 * RECORD_BYTES,
            "group_id": None,
        }
        return reached(KafkaConsumer, {**settings, **self.arguments(), **arguments})

    def producer(self, *, delivery_timeout_s: float = 30, linger_ms: float = 0, forked: bool = False) -> RecordProducer:
        """Return a producer, which waits for all replicas; the caller closes it.

        :param delivery_timeout_s: a record that the brokers have not taken after so many seconds is given up.
        :param linger_ms: how long a record may wait for others that share its request.
        :param forked: the process is a fork of one that has clients of librdkafka.
        """
        return make_producer(self, delivery_timeout_s, linger_ms, forked=forked)

    def admin(self, **arguments: Any) -> KafkaAdminClient:
        """Return an admin client; the caller closes it."""
        return reached(KafkaAdminClient, {**self.arguments(), **arguments})


def _in_record(record: Any) -> InRecord:
    return InRecord(record.topic, record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers or []))


class KafkaInboxReader:
    """Reads ranges of topics; an :class:`~dskype.topology.core.inbox_reader.InboxReader`.

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
        """Yield the records with ``start <= offset < stop``, in order.

        :param stop: None reads to the end of the log.
        :raises LostInputError: the log begins behind ``start``, or ends before ``stop``, or the topic is gone.
        :raises FatalError: the records are there, and will never be readable.
        :raises KafkaTimeoutError: no record came for a minute.
        """
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
                    explain(
                        f"Records of {topic}/{partition} from offset {consumer.position(where)} on can never be read again.",
                        given=f"{type(error).__name__}: {error}",
                        hint="install the library of the codec for Python, or let the broker restore the damaged log from a replica; then resume the topology",
                    )
                ) from error

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets in a consumer group; see :func:`commit_offsets`."""
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
        """Return for each partition of topics whether it holds records at or behind its position; True where no answer comes soon.

        :param positions: (topic, partition) -> offset; any other partition counts from where its query began to read it.
        :raises KafkaError: the brokers do not answer.
        """
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
        if not partitions:
            return []
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        consumer.seek_to_beginning(*partitions)
        records: list[InRecord] = []
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while any(consumer.position(p) < ends[p] for p in partitions):
            for batch in consumer.poll(timeout_ms=500).values():
                records += map(_in_record, batch)
                deadline = time.monotonic() + _READ_TIMEOUT_S
            if time.monotonic() > deadline:
                msg = f"topic {topic} could not be read to its end within {_READ_TIMEOUT_S} s"
                raise KafkaTimeoutError(msg)
        return sorted(records, key=lambda r: (r.partition, r.offset))


def brokers_answer(settings: KafkaSettings) -> bool:
    """Tell whether the brokers answer a request for their topics."""
    try:
        with closing(settings.admin()) as admin:
            admin.list_topics()
    except Exception:  # clients raise errors of many kinds
        return False
    return True


class TopicAdmin:
    """Creates, describes and deletes topics."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin = settings.admin()

    def close(self) -> None:
        """Close the connection."""
        self._admin.close()

    def __enter__(self) -> TopicAdmin:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return sorted(self._admin.list_topics())

    def existing(self, topics: Iterable[str]) -> dict[str, int]:
        """Return topic -> number of partitions, for those of ``topics`` that exist."""
        wanted = set(topics)
        found = wanted & set(self._admin.list_topics())
        return {d["name"]: len(d["partitions"]) for d in self._admin.describe_topics(sorted(found))} if found else {}

    def matching(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches a regular expression."""
        return [topic for topic in self._admin.list_topics() if re.fullmatch(pattern, topic)]

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return topic -> its settings, defaults included; topics whose settings this user may not see are missing."""
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in sorted(set(topics))]
        try:
            found = self._admin.describe_configs(resources, config_filter="all") if resources else {}
        except KafkaError as error:
            log.warning("the settings of topics cannot be read: %s", error)
            return {}
        return {topic: {name: value["value"] for name, value in settings.items()} for topic, settings in found.get("topic", {}).items() if settings}

    def create(self, topics: Mapping[str, int], config: Mapping[str, str], timeout_s: float = 30) -> None:
        """Create topics (name -> partitions) with one configuration; existing ones stay as they are."""
        if not topics:
            return
        new = [NewTopic(name, partitions, -1, topic_configs=dict(config)) for name, partitions in topics.items()]
        with suppress(TopicAlreadyExistsError):
            self._admin.create_topics(new)
        deadline = time.monotonic() + timeout_s
        while missing := {t: n for t, n in topics.items() if self.existing([t]).get(t) != n}:
            if time.monotonic() > deadline:
                msg = f"topics do not exist {timeout_s:g} s after their creation; expected topic: partitions {missing}; given: {self.existing(missing)}"
                raise KafkaTimeoutError(msg)
            time.sleep(0.05)

    def delete(self, topics: Iterable[str], timeout_s: float = 30) -> None:
        """Delete topics, and wait until they are gone; unknown topics are ignored."""
        topics = sorted(self.existing(topics))
        if topics:
            with suppress(UnknownTopicOrPartitionError):
                self._admin.delete_topics(topics)
        deadline = time.monotonic() + timeout_s
        while left := self.existing(topics):
            if time.monotonic() > deadline:
                msg = f"topics still exist {timeout_s:g} s after their deletion; given: {sorted(left)}"
                raise KafkaTimeoutError(msg)
            time.sleep(0.05)

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
        """Let Kafka drop the records below the given offsets."""
        if before:
            self._admin.delete_records({TopicPartition(t, p): offset for (t, p), offset in before.items()})

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition."""
        (described,) = self._admin.describe_topics([topic])
        return next(p["leader_id"] for p in described["partitions"] if p["partition_index"] == partition)

    def begin_and_end(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return partition -> (first offset, next offset) of a topic; empty for an unknown one."""
        return self.begins_and_ends([topic])[topic]

    def begins_and_ends(self, topics: Iterable[str]) -> dict[str, dict[int, tuple[int, int]]]:
        """Return topic -> what :meth:`begin_and_end` returns, with as few requests as for one topic."""
        with closing(self._settings.consumer()) as consumer:
            found = {topic: sorted(consumer.partitions_for_topic(topic) or ()) for topic in topics}
            partitions = [TopicPartition(topic, p) for topic, numbers in found.items() for p in numbers]
            first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
            extents: dict[str, dict[int, tuple[int, int]]] = {topic: {} for topic in found}
            for where in partitions:
                extents[where.topic][where.partition] = first[where], last[where]
            return extents


def refuse_own_security(options: Mapping[str, Any], component: str) -> None:
    """Refuse a component's own connection options, because all components connect to the brokers in the same way.

    :raises TopologyError: there are such options; the message names them.
    """
    own = sorted(k for k in options if k.startswith(("security.", "sasl.", "ssl.")))
    if own:
        raise TopologyError(
            explain(
                "A component connects to the brokers as its topology does.",
                given=own,
                component=component,
                hint="give them to the cluster, as kafka.* settings",
            )
        )


_BATCH_BYTES = 1024
"""Upper bound of what Kafka's format and the header ``record-id`` add to a record in what ``max.message.bytes`` counts."""


def topic_warnings(admin: TopicAdmin, inputs: Iterable[str], outputs: Mapping[str, int]) -> list[str]:
    """Return a warning for each dangerous setting of an external topic.

    :param inputs: topics that spouts read. Only the topic, and no setting of a consumer, limits the size to which a compressed record unpacks.
    :param outputs: topic -> size of the largest record that a component sends there, in bytes.
    """
    inputs, found = sorted(set(inputs)), []
    settings = admin.configs([*inputs, *outputs])
    for topic in inputs:
        config = settings.get(topic, {})
        most = int(config.get("max.message.bytes", 0))
        if config.get("compression.type", "uncompressed") != "uncompressed":
            found.append(
                f"topic {topic!r} accepts compressed records, and a few KB of those may unpack to hundreds of MB, more than Spark can hold; "
                f"given: compression.type={config['compression.type']}; hint: set compression.type=uncompressed on the topic, so that "
                "max.message.bytes limits the unpacked size, unless all who write to it are trusted"
            )
        elif most > _INPUT_BYTES:
            found.append(
                f"topic {topic!r} accepts records that are too large for Spark and the executors; given: max.message.bytes={most}; "
                f"expected at most {_INPUT_BYTES}"
            )
    for topic, limit in sorted(outputs.items()):
        limit += _BATCH_BYTES
        most = int(settings.get(topic, {}).get("max.message.bytes", limit))
        if most < limit:
            found.append(
                f"topic {topic!r} refuses records that the topology may send there, and then the sender cannot continue; given: "
                f"max.message.bytes={most}; expected at least {limit}; hint: raise it, or lower topology.emulator.record.max.bytes"
            )
    return found


def starting_offsets(positions: Mapping[tuple[str, int], int]) -> str:
    """Return positions as the JSON for Spark's ``startingOffsets``."""
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in positions.items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(offsets)
