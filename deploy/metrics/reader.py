"""Read what topologies report: the records of a metrics topic, and what nimbus knows of a topology."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from kafka import TopicPartition

from dskype.spouts.topics import Topics
from dskype.topology.errors import NotAliveException, TopologyError
from dskype.topology.nimbus.observing import Contact, seen_health, started_ms
from dskype.topology.planning.plan import metrics_topic
from dskype.topology.runtime.kafka.connections import FAILOVER_MS
from dskype.topology.runtime.kafka.reading import read_ahead
from dskype.topology.runtime.nimbus import nimbus_topic

__all__ = ["MetricsReader", "Sink", "describe", "find", "observed"]

_CATCH_UP_S = 60


class Sink(Protocol):
    """Receives the records of a metrics topic: a :class:`~dskype.deploy.metrics.meter.Meter` or a :class:`~dskype.deploy.metrics.history.History`."""

    def feed(self, value: bytes, /) -> object:
        """Add a record."""


S = TypeVar("S", bound=Sink)


class MetricsReader(Generic[S]):
    """Reads the metrics topic of one topology, from its beginning.

    :param kafka: the brokers.
    :param topology: its name.
    :param sink: receives the records.
    """

    def __init__(self, kafka: Any, topology: str, sink: S) -> None:
        self.topology, self.sink, self._kafka = topology, sink, kafka
        self._ahead: dict[str, Any] = {}  # isolation level -> consumer that looks for the next record
        self._consumer = kafka.consumer(fetch_max_wait_ms=200, allow_auto_create_topics=False, request_timeout_ms=FAILOVER_MS)
        self._where = TopicPartition(metrics_topic(topology), 0)
        self._consumer.assign([self._where])
        self._consumer.seek_to_beginning(self._where)

    def poll(self, timeout_ms: int = 0) -> int:
        """Pass new records to the sink; return how many there were."""
        records = self._consumer.poll(timeout_ms=timeout_ms).get(self._where, ())
        for record in records:
            self.sink.feed(record.value)
        return len(records)

    def catch_up(self) -> None:
        """Read to the present end of the topic."""
        end = self._consumer.end_offsets([self._where])[self._where]
        deadline = time.monotonic() + _CATCH_UP_S
        while self._consumer.position(self._where) < end:
            if not self.poll(500) and time.monotonic() > deadline:
                msg = f"the statistics of topology {self.topology!r} could not be read within {_CATCH_UP_S} s"
                raise TopologyError(msg)

    def ends(self, positions: Mapping[str, Mapping[tuple[str, int], int]]) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> end of the log, as far as somebody who reads from a position on has something to read.

        Offsets that nobody gets, such as those of transactions' markers, do not count where they are next: where only they are left, that is the position.

        :param positions: isolation level -> (topic, partition) -> next offset.
        """
        found: dict[tuple[str, int], int] = {}
        for level, of_level in positions.items():
            if level not in self._ahead:
                self._ahead[level] = self._kafka.consumer(isolation_level=level, allow_auto_create_topics=False, request_timeout_ms=FAILOVER_MS)
            found |= {where: of_level[where] + end - ahead for where, (ahead, end) in read_ahead(self._ahead[level], of_level).items()}
        return found

    def expired(self) -> dict[str, int]:
        """Return topic -> records that Kafka has dropped by age or size, for the topics that the topology writes and that exist."""
        written = Topics.for_topology(self.topology)
        topics = [
            t
            for t in (written.results, written.matches, written.registrations, written.sequence, written.dead_letters)
            if self._consumer.partitions_for_topic(t)
        ]
        begins = self._consumer.beginning_offsets([TopicPartition(t, p) for t in topics for p in self._consumer.partitions_for_topic(t)]) if topics else {}
        return {t: sum(offset for tp, offset in begins.items() if tp.topic == t) for t in topics}

    def close(self) -> None:
        """Close the consumers."""
        for consumer in (self._consumer, *self._ahead.values()):
            consumer.close()


def observed(kafka: Any, topology: str | None) -> nimbus_topic.Observed:
    """Return a topology as this process sees it.

    :param topology: its name; None: the only one.
    :raises NotAliveException: there is no topology of that name.
    :raises TopologyError: no name is given, and not exactly one topology runs.
    """
    states = nimbus_topic.observe(kafka)
    if topology is None and len(states) == 1:
        topology = next(iter(states))
    if topology is None:
        raise TopologyError("Expected the name of a topology: not exactly one runs.", given=len(states), legal=", ".join(sorted(states)) or "none runs")
    if topology not in states:
        raise NotAliveException.for_topology(topology)
    return states[topology]


def find(kafka: Any, topology: str | None) -> dict[str, Any]:
    """Return what is known about a topology; see :func:`observed`."""
    seen = observed(kafka, topology)
    return describe(seen.record, seen.alive, seen.silent_s)


def describe(record: Mapping[str, Any], alive: bool | None, silent_s: float | None = None, contact: Contact | None = None) -> dict[str, Any]:
    """Return what :func:`~dskype.deploy.metrics.meter.measure` needs to know about a topology, from its record in the nimbus topic.

    :param alive: whether its driver is alive; None: not known yet.
    :param silent_s: for how many seconds its driver has written nothing, if that is long.
    :param contact: whether the brokers answer; None: they have just answered.
    """
    state = record["state"]
    return {
        "name": state["name"],
        "id": state["id"],
        "status": record["summary"]["status"],
        "conf": state["conf"],
        "driver_alive": alive,
        "health": seen_health(record["summary"].get("health"), alive, silent_s, contact),
        "uptime_secs": max(0, (time.time_ns() // 1_000_000 - started_ms(record)) // 1000),
        "submitted_ms": state["submitted_ms"],
    }
