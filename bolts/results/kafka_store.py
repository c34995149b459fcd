"""The store ``kafka``: the compacted topic ``<topology>.topk``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dskype.bolts.results.base import Opening, Outcome, Removal, ResultStore, State, Stored, StoreUnavailable, supersedes
from dskype.spouts.topics import Topics
from dskype.topology.errors import IllegalStateException

if TYPE_CHECKING:
    from dskype.bolts.results.formats import Heads

__all__ = ["KafkaStore"]

_READ_TIMEOUT_S = 60.0
_NONE = Outcome()


class KafkaStore(ResultStore):
    """One record per state, key = subscription id; a null value when a subscription is removed.

    Records leave with the task's batch, at least once and in order, so when a replay is over the last record of a key is the
    newest state. During a replay the header ``version`` (run, registration, watermark) tells which record is newer; it also
    says which registration a null value ends.
    """

    name = "kafka"
    in_log = True
    OPTIONS: ClassVar = {}

    def open(self, opening: Opening) -> None:
        """Remember the collector, or the brokers."""
        self._topic = Topics.for_topology(opening.topology).topk
        self._run, self._collector, self._kafka = opening.run, opening.collector, opening.kafka

    def _send(self, subscription: str, registration: str, watermark: int, value: bytes | None) -> None:
        self._collector.send_record(self._topic, subscription.encode(), value, [("version", f"{self._run} {registration} {watermark}".encode())])

    def put(self, states: Sequence[State]) -> Outcome:
        """Write records."""
        for state in states:
            self._send(*state)
        return Outcome(written=len(states)) if states else _NONE

    def put_values(self, shared: Heads, watermarks: Any, values: Any) -> None:
        """Write many states at once.

        :param shared: the shared parts of n states.
        :param watermarks: int64[n].
        :param values: a pyarrow string array of n.
        """
        import numpy as np  # here, because readers need none of them
        import pyarrow as pa
        import pyarrow.compute as pc

        marks = pa.array(np.asarray(watermarks, np.int64)).cast(pa.string())
        versions = pc.binary_join_element_wise(str(self._run), shared.registrations, marks, " ")
        self._collector.send_records(self._topic, shared.keys, values, [("version", versions)])

    def remove(self, removals: Sequence[Removal]) -> Outcome:
        """Write null values."""
        for removal in removals:
            self._send(*removal, None)
        return Outcome(written=len(removals)) if removals else _NONE

    def get(self, subscription: str) -> Stored | None:
        """Read the topic to its end and return the newest state of a subscription. O(topic)."""
        if self._kafka is None:
            raise IllegalStateException("The store 'kafka' was opened for writing.", hint="give Opening(kafka=...) to read")
        from kafka import TopicPartition
        from kafka.errors import KafkaError

        key, newest = subscription.encode(), None
        try:
            consumer = self._kafka.consumer()
        except KafkaError as error:
            raise StoreUnavailable("The brokers do not answer.", given=type(error).__name__) from error
        try:
            partitions = [TopicPartition(self._topic, p) for p in sorted(consumer.partitions_for_topic(self._topic) or ())]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            consumer.seek_to_beginning(*partitions)
            deadline = time.monotonic() + _READ_TIMEOUT_S
            while any(consumer.position(p) < ends[p] for p in partitions):
                for records in (batch := consumer.poll(timeout_ms=500)).values():
                    for record in records:
                        if record.key == key:
                            newest = newer(newest, stored_of(record))
                if batch:
                    deadline = time.monotonic() + _READ_TIMEOUT_S
                elif time.monotonic() > deadline:
                    raise StoreUnavailable(f"Topic {self._topic} could not be read to its end.", given=f"no record for {_READ_TIMEOUT_S:g} s")
        except KafkaError as error:
            raise StoreUnavailable("The brokers do not answer.", given=type(error).__name__) from error
        finally:
            consumer.close()
        return newest

    def close(self) -> None:
        """Do nothing: the runtime owns the connections."""


def stored_of(record: Any) -> Stored:
    """Return the state in a record of the topic, with the version in its header."""
    run, registration, watermark = dict(record.headers)["version"].decode().split(" ")
    return Stored(registration, int(watermark), record.value, int(run))


def newer(known: Stored | None, found: Stored) -> Stored:
    """Return the state that remains when ``found`` follows ``known``."""
    return found if known is None or supersedes(found, known) else known
