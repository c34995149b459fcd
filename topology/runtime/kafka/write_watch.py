"""Notices that this process has become mute: what it writes to Kafka is not stored, although the brokers store what others write.

Its topology would look alive from here, and dead from everywhere else. So the process ends, and whoever starts it again, or stands by for it, takes over.
Brokers that are away are no reason to end: they store nothing of anybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka.errors import KafkaError

from dskype.topology.errors import explain
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.record_producer import RecordProducer

__all__ = ["WriteWatch", "write_once"]

_TRIAL_S = 5.0
"""How long another client tries to write a record."""
_SILENT_S, _GRACE_S = 90.0, 30.0
"""After how long without a stored record another client tries; how long the process has to store one when the other client has succeeded."""


class WriteWatch:
    """Compares a process's own producer with another client.

    :param producer: the producer of the process, which is used all the time.
    :param write_otherwise: writes a record with another client, and raises KafkaError if that one does not succeed either.
    """

    def __init__(self, producer: RecordProducer, write_otherwise: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._producer, self._write_otherwise, self._clock = producer, write_otherwise, clock
        self._other_wrote_s: float | None = None

    def problem(self) -> str | None:
        """Return why the process has to end; None if it writes, or if nobody can. This may take some seconds while nothing is stored."""
        silent_s = self._producer.silent_s
        if silent_s < _SILENT_S:
            self._other_wrote_s = None
        elif self._other_wrote_s is None:
            try:
                self._write_otherwise()
            except KafkaError:
                return None
            self._other_wrote_s = self._clock()
        elif self._clock() - self._other_wrote_s >= _GRACE_S:
            return explain(
                "Kafka stores nothing of what the driver writes, although it stores what another client writes.",
                given=f"no record for {silent_s:.0f} s",
                hint="this process ends, and its state stays: start it again, unless a supervisor or a standby does",
            )
        return None


def write_once(kafka: KafkaSettings, topic: str, value: bytes | None, key: bytes) -> None:
    """Write a record to the first partition of a topic with a client of its own.

    :raises KafkaError: it was not stored within some seconds.
    """
    with kafka.producer(delivery_timeout_s=_TRIAL_S) as producer:
        producer.send(topic, value, key=key, partition=0).get()
