"""Reads the topics of a topology: whether they are there, and what they hold."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from dskype.deploy.client.follower import Follower, make_consumer
from dskype.deploy.client.names import TopicNames
from dskype.spouts.topics import Topics
from dskype.topology.errors import TopologyError
from dskype.topology.runtime.kafka.clients import KafkaSettings, KafkaTimeoutError
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

__all__ = ["TopicReader", "UnknownTopicError", "UnreachableError"]


class UnknownTopicError(TopologyError):
    """A topic does not exist; the client never creates one."""


class UnreachableError(TopologyError):
    """No broker answers."""

    retriable = True


class TopicReader:
    """Reads the topics of one topology; threads may share it.

    :param kafka: how to reach the brokers.
    :param name: the topology's name: the prefix of its topics.
    :param timeout_s: how long the brokers may take to answer.
    :param names: remembers which topics there are; None: they are asked for whenever one seems to be missing.
    """

    def __init__(self, kafka: KafkaSettings, name: str, timeout_s: float, names: TopicNames | None) -> None:
        self.name, self.topics = name, Topics.for_topology(name)
        self.kafka = replace(kafka, client={"bootstrap_timeout_ms": int(timeout_s * 1000), **kafka.client})
        self._timeout_s = timeout_s
        self._lock = threading.RLock()
        self._known: set[str] = set()
        self._names = names or TopicNames(fresh_s=0.0)
        self._readers: list[KafkaConsumer] = []

    def _exists(self, *topics: str) -> bool:
        with self._lock:
            if not self._known.issuperset(topics):
                self._known = self._names.known(self._list_topics)
            return self._known.issuperset(topics)

    def _list_topics(self) -> set[str]:
        try:
            admin = self.kafka.admin()
            try:
                return set(admin.list_topics())
            finally:
                admin.close()
        except (KafkaError, OSError) as ex:
            raise UnreachableError(
                "The brokers do not answer.",
                given=self.kafka.bootstrap_servers,
                hint=f"{ex or type(ex).__name__}; are they up, and are address and security settings right? They had {self._timeout_s:g} s",
            ) from ex

    def require(self, *topics: str) -> None:
        """Check that topics exist.

        :raises UnknownTopicError: one does not.
        :raises UnreachableError: the brokers do not answer.
        """
        if self._known.issuperset(topics) or self._exists(*topics):
            return
        missing = sorted(set(topics) - self._known)
        raise UnknownTopicError(
            f"The topic {missing[0]} does not exist." if len(missing) == 1 else f"The topics {', '.join(missing)} do not exist.",
            hint=f"a DSkype topology creates its topics when it starts: run one named {self.name!r} with 'dskype local' or 'dskype submit' "
            "(for example -R dskype.yaml), or name the running one with -t ('dskype list')",
        )

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has.

        :raises UnknownTopicError: no such topic.
        """
        self.require(topic)
        with contextlib.closing(TopicAdmin(self.kafka)) as admin:
            return admin.existing([topic])[topic]

    def scan(
        self, topic: str, start: str | int | Mapping[tuple[str, int], int] = "beginning", progress: Callable[[int, int], None] | None = None
    ) -> Iterator[Any]:
        """Yield the present records of a topic, in order within each partition.

        :param start: see :class:`Follower`.
        :param progress: called with (records read, records at most) after each batch.
        :raises UnknownTopicError: no such topic.
        :raises KafkaTimeoutError: nothing came for ``timeout_s`` although there is more.
        """
        self.require(topic)
        with self.reader() as consumer:
            follower = Follower(self.kafka, [topic], start, consumer)
            read, size, heard = 0, follower.size(), time.monotonic()
            while not follower.at_end():
                records = follower.poll()
                if records:
                    yield from records
                    read, heard = read + len(records), time.monotonic()
                    if progress is not None:
                        progress(read, size)
                elif time.monotonic() - heard > self._timeout_s:
                    raise KafkaTimeoutError(f"topic {topic} could not be read to its end: nothing came for {self._timeout_s:g} s")

    def offsets_at(self, topic: str, time_ms: int) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> offset of the first record that arrived at or after a time; the end if there is none."""
        self.require(topic)
        with self.reader() as consumer:
            return Follower(self.kafka, [topic], "beginning", consumer).at_time(time_ms)

    @contextlib.contextmanager
    def reader(self) -> Iterator[KafkaConsumer]:
        """Lend a consumer. A new connection takes a tenth of a second, so one that was given back is lent again, unless an error of Kafka has ended its use."""
        with self._lock:
            consumer = self._readers.pop() if self._readers else None
        consumer = consumer or make_consumer(self.kafka)
        try:
            yield consumer
        except KafkaError:
            consumer.close()
            raise
        except BaseException:
            self._give_back(consumer)
            raise
        self._give_back(consumer)

    def _give_back(self, consumer: KafkaConsumer) -> None:
        with self._lock:
            self._readers.append(consumer)

    def _close_readers(self) -> None:
        with self._lock:
            readers, self._readers = self._readers, []
        for reader in readers:
            reader.close()
