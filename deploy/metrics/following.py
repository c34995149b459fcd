"""Follows the topologies of a cluster: their records in the nimbus topic, and the metrics of each."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kafka import TopicPartition
from kafka.errors import KafkaError

from dskype.deploy.metrics.reader import MetricsReader, Sink
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.nimbus.observing import Contact, ContactWatch
from dskype.topology.runtime.kafka.connections import FAILOVER_MS
from dskype.topology.runtime.nimbus.liveness import HeartbeatWatch
from dskype.topology.runtime.nimbus.nimbus_topic import NIMBUS_TOPIC, read_record

__all__ = ["Followed", "Following", "Inputs"]

log = logging.getLogger(__name__)
_LIST_EVERY_S, _ENDS_EVERY_S = 1.0, 2.0
_STEP_MS = 250
_ASK_MS = 5000


class Inputs(Sink, Protocol):
    """A sink that knows what the topology's spouts read, and is told what Kafka has dropped."""

    expired: dict[str, int]

    def positions(self) -> dict[str, dict[tuple[str, int], int]]:
        """Return isolation level -> (topic, partition) -> next offset, of what the topology's spouts read."""


S = TypeVar("S", bound=Inputs)


class Followed(NamedTuple, Generic[S]):
    """A topology that is followed.

    :ivar record: its record in the nimbus topic.
    :ivar sink: what has received its metrics.
    :ivar ends: what :meth:`MetricsReader.ends` returns, for what its spouts read.
    :ivar alive: whether its driver is alive; None: not known yet.
    :ivar silent_s: for how many seconds its driver has written nothing, if that is long.
    """

    record: Mapping[str, Any]
    sink: S
    ends: Mapping[tuple[str, int], int]
    alive: bool | None
    silent_s: float | None


class Following(Generic[S]):
    """Follows topologies in a thread, those that start later included, and notes whether the brokers answer.

    :param kafka: how to reach the brokers.
    :param make_sink: makes what receives the metrics of one topology, from its record in the nimbus topic.
    :param names: only these topologies; None: all.
    :param tell: called with a sink, each record of its topology in the nimbus topic from then on, and when that was written, epoch ms.
    :ivar lock: held while sinks are fed; hold it to read a sink as of one moment.
    """

    def __init__(
        self,
        kafka: Any,
        make_sink: Callable[[Mapping[str, Any]], S],
        *,
        names: list[str] | None = None,
        tell: Callable[[S, Mapping[str, Any], int], object] = lambda sink, record, time_ms: None,
    ) -> None:
        self._tell = tell
        self._kafka, self._make_sink, self._names = kafka, make_sink, None if names is None else set(names)
        self.lock = threading.Lock()
        self._sources: dict[str, tuple[dict[str, Any], MetricsReader[S]]] = {}
        self._ends: dict[str, dict[tuple[str, int], int]] = {}
        self._records: dict[str, dict[str, Any]] = {}
        self._watched, self._contact = HeartbeatWatch(), ContactWatch()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="following", daemon=True)

    def start(self) -> None:
        """Start to follow; from now on the brokers are asked."""
        self._contact = ContactWatch()
        self._thread.start()

    def known(self) -> list[Followed[S]]:
        """Return the topologies that are followed now, sorted by name."""
        records = dict(self._records)
        return [
            Followed(records[name], source.sink, self._ends.get(name, {}), self._watched.verdict(name, records[name]), self._watched.silent_s(name))
            for name, (_, source) in sorted(self._sources.items())
            if name in records
        ]

    def contact(self) -> Contact:
        """Return whether the brokers answer. Before the topologies were listed once, that is not known, or they do not."""
        return self._contact.contact()

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _run(self) -> None:
        consumer = None
        try:
            listed = ends = 0.0
            while not self._stop.is_set():
                try:
                    if time.monotonic() - listed > _LIST_EVERY_S:
                        if consumer is None:
                            consumer = self._nimbus()
                        if consumer is not None:
                            self._list(consumer)
                        self._contact.note_answer()
                        listed = time.monotonic()
                    self._poll()
                    if time.monotonic() - ends > _ENDS_EVERY_S:
                        for name, (_, source) in self._sources.items():
                            self._ends[name] = source.ends(source.sink.positions())
                            source.sink.expired = source.expired()
                        ends = time.monotonic()
                except KafkaError as error:
                    self._contact.note_error(error)
                    log.warning("the metrics cannot be read: %s; trying again", error)
                except Exception:  # keep trying: an endpoint must not serve old numbers forever
                    log.exception("the metrics could not be read; trying again")
                self._stop.wait(_STEP_MS / 1000)
        finally:
            for _, source in self._sources.values():
                source.close()
            if consumer is not None:
                consumer.close()

    def _nimbus(self) -> Any:
        consumer = self._kafka.consumer(allow_auto_create_topics=False, request_timeout_ms=FAILOVER_MS)
        if not consumer.partitions_for_topic(NIMBUS_TOPIC):  # nothing has ever been submitted
            consumer.close()
            return None
        where = TopicPartition(NIMBUS_TOPIC, 0)
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        return consumer

    def _list(self, consumer: Any) -> None:
        """Update the known topologies. One that was submitted again is followed from its beginning."""
        where = TopicPartition(NIMBUS_TOPIC, 0)
        end = consumer.end_offsets([where], timeout_ms=_ASK_MS)[where]
        while consumer.position(where) < end and not self._stop.is_set():
            for record in consumer.poll(timeout_ms=500).get(where, ()):
                name, document = read_record(record)
                if not name or (self._names is not None and name not in self._names):
                    continue
                if document is None:
                    self._records.pop(name, None)
                else:
                    self._records[name] = document
                    self._watched.update(name, document, record.timestamp)
                    if name in self._sources and self._sources[name][0]["id"] == document["state"]["id"]:
                        with self.lock:
                            self._tell(self._sources[name][1].sink, document, record.timestamp)
        self._watched.looked()
        for name in list(self._sources):
            identity, source = self._sources[name][0]["id"], self._sources[name][1]
            if name not in self._records or self._records[name]["state"]["id"] != identity:
                with self.lock:
                    del self._sources[name]
                    self._ends.pop(name, None)
                source.close()
        for name, record in self._records.items():
            if name not in self._sources:
                source = MetricsReader(self._kafka, name, self._make_sink(record))
                with self.lock:
                    self._sources[name] = record["state"], source
                    self._tell(source.sink, record, now_ms())

    def _poll(self) -> None:
        for _, source in list(self._sources.values()):
            more = True
            while more and not self._stop.is_set():
                with self.lock:
                    more = source.poll(0) > 0
                if more:
                    self._contact.note_answer()
