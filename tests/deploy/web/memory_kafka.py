"""Kafka in memory, as far as the client and the pages use it: topics with partitions, consumers, a producer, an admin."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaConnectionError, KafkaTimeoutError

from dskype.deploy.client.pubsub import PubSub
from dskype.spouts.topics import Topics
from dskype.topology.runtime.kafka.record_producer import Delivery, RecordProducer, Stored


@dataclass
class Broker:
    """The records. ``first`` is what retention has left. A broker that is ``away`` refuses everything; with one that ``stands_still``, polls find nothing."""

    partitions: dict[str, int] = field(default_factory=dict)
    logs: dict[TopicPartition, list[Any]] = field(default_factory=lambda: defaultdict(list))
    first: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    changed: threading.Condition = field(default_factory=threading.Condition)
    committed: dict[tuple[str, TopicPartition], Any] = field(default_factory=dict)
    away: bool = False
    stands_still: bool = False
    open_consumers: int = 0
    time_ms: int = 1_700_000_000_000

    def answer(self) -> None:
        """Raise what a client raises if the broker is away, or does not answer in time."""
        if self.away:
            raise KafkaConnectionError("away")
        if self.stands_still:
            raise KafkaTimeoutError("no answer in time")

    def write(self, topic: str, key: str | bytes | None, value: bytes | None, partition: int = 0, headers: Any = ()) -> int:
        """Append a record; return its offset."""
        with self.changed:
            where, key = TopicPartition(topic, partition), key.encode() if isinstance(key, str) else key
            self.partitions.setdefault(topic, 1)
            offset, self.time_ms = len(self.logs[where]), self.time_ms + 1
            record = SimpleNamespace(
                topic=topic, partition=partition, offset=offset, timestamp=self.time_ms, key=key, value=value, headers=[(k, v.encode()) for k, v in headers]
            )
            self.logs[where].append(record)
            self.changed.notify_all()
            return offset


class Consumer:
    """A consumer that is assigned its partitions; it can commit for a group."""

    def __init__(self, broker: Broker, max_poll_records: int = 500, group_id: str | None = None) -> None:
        broker.answer()
        self._broker, self._most, self._group = broker, max_poll_records, group_id
        self._at: dict[TopicPartition, int] = {}
        self._closed = False
        with broker.changed:
            broker.open_consumers += 1

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._broker.partitions.get(topic, 0)))

    def assign(self, partitions: Any) -> None:
        self._at = dict.fromkeys(partitions, 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._at[partition] = offset

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._at.update({p: self._broker.first[p] for p in partitions})

    def position(self, partition: TopicPartition) -> int:
        return self._at[partition]

    def beginning_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return {p: self._broker.first[p] for p in partitions}

    def end_offsets(self, partitions: Any, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        self._broker.answer()
        return {p: len(self._broker.logs[p]) for p in partitions}

    def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        return {p: next((SimpleNamespace(offset=r.offset) for r in self._broker.logs[p] if r.timestamp >= ms), None) for p, ms in times.items()}

    def committed(self, partition: TopicPartition, metadata: bool = False) -> Any:
        return self._broker.committed.get((self._group, partition))

    def commit(self, offsets: dict[TopicPartition, Any]) -> None:
        self._broker.committed |= {(self._group, p): found for p, found in offsets.items()}

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[Any]]:
        until = time.monotonic() + timeout_ms / 1000
        with self._broker.changed:
            while True:
                if not self._broker.stands_still:
                    self._broker.answer()
                left, found = max_records or self._most, {}
                for where, at in self._at.items():
                    records = self._broker.logs[where][max(at, self._broker.first[where]) :][:left] if left and not self._broker.stands_still else []
                    if records:
                        found[where], left, self._at[where] = records, left - len(records), records[-1].offset + 1
                wait_s = until - time.monotonic()
                if found or wait_s <= 0:
                    return found
                self._broker.changed.wait(wait_s)

    def close(self) -> None:
        with self._broker.changed:
            self._broker.open_consumers -= not self._closed
            self._closed = True


class Producer(RecordProducer):
    """A producer that writes at once."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(1.0)
        self._broker = broker
        self._release = lambda: None

    def _begin(self, delivery: Delivery, topic: str, value: bytes | None, key: bytes | None, headers: Any, partition: int | None) -> None:
        offset = self._broker.write(topic, key, value, headers=[(k, v.decode()) for k, v in headers or ()])
        self._end(delivery, Stored(topic, 0, offset, self._broker.time_ms))


@dataclass(frozen=True)
class MemoryKafka:
    """Stands for ``KafkaSettings``."""

    broker: Broker = field(default_factory=Broker)
    client: dict[str, Any] = field(default_factory=dict)
    bootstrap_servers: str = "memory:9092"

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(self.broker, settings.get("max_poll_records", 500), settings.get("group_id"))

    def producer(self, **_: Any) -> Producer:
        return Producer(self.broker)

    def admin(self) -> Any:
        return SimpleNamespace(list_topics=lambda: list(self.broker.partitions), close=lambda: None)

    def topology(self, name: str = "dskype", partitions: int = 1, *, grouped: bool = False) -> Topics:
        """Make the topics of a topology."""
        topics = Topics.for_topology(name)
        one = (topics.messages, topics.subscriptions, topics.registrations, topics.topk, topics.dead_letters, topics.plans)
        self.broker.partitions |= dict.fromkeys(one, 1) | {topics.results: partitions} | ({topics.matches: partitions} if grouped else {})
        return topics


def client_of(kafka: MemoryKafka, name: str = "dskype") -> PubSub:
    return PubSub(kafka, name, conf={})
