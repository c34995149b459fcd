"""Consumers for clients that read what lies in the past: a few, which all of them share.

A consumer has threads, connections and megabytes of buffers, and a client may take its results as slowly as it likes. So a client has a consumer only
while it reads some hundred records. It gets the same one again, unless another client needed it meanwhile; then it begins anew where it was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from dskype.deploy.client.follower import Follower
from dskype.deploy.web.result_rates import TenantResults
from dskype.topology.errors import TopologyError
from dskype.topology.ui.budget import Budget

__all__ = ["PastReaders", "Reading", "Shared"]

_SETTINGS = {"allow_auto_create_topics": False, "max_partition_fetch_bytes": 1 << 18, "fetch_max_bytes": 1 << 20}
"""What a consumer may hold of each partition, and of all; a single larger record still comes."""
_SPARE_S = 5.0
"""How long a consumer that nobody uses stays open."""
_LOOK_S = 1.0
_THREADS = 4

Start = str | Mapping[tuple[str, int], int]


class Reading(NamedTuple):
    """A turn at a consumer.

    :ivar begun: whether it has just been put to the places from which the client reads, which may have been dropped from Kafka.
    """

    follower: Follower
    begun: bool


class _Reader:
    """A consumer, the client that it stands ready for, and whether that client reads now."""

    def __init__(self, owner: object) -> None:
        self.owner: object | None = owner
        self.consumer: Any = None
        self.follower: Follower | None = None
        self.reads, self.used_s = True, 0.0


class PastReaders:
    """The consumers.

    :param kafka: how to reach the brokers.
    :param most: how many there may be.
    """

    def __init__(self, kafka: Any, most: int) -> None:
        self._kafka, self._most = kafka, most
        self._changed = threading.Condition()
        self._readers: list[_Reader] = []
        self._closed = self._tidies = False

    @contextmanager
    def reading(self, owner: object, topics: Callable[[], Iterable[str]], start: Callable[[], Start]) -> Iterator[Reading]:
        """Read for a client; it waits while all consumers are being read from.

        :param owner: the client. Only one thread reads for it at a time.
        :param topics: returns what to read; called if a consumer has to be put there.
        :param start: returns from where, as :class:`~dskype.deploy.client.follower.Follower` takes it.
        :raises TopologyError: the server is stopping.
        """
        reader, begun = self._take(owner), False
        try:
            if reader.follower is None:
                consumer, reader.consumer = reader.consumer or self._kafka.consumer(**_SETTINGS), None  # it is closed if the start cannot be found
                begun, reader.follower = True, Follower(self._kafka, topics(), start(), consumer)
                reader.consumer = consumer
            yield Reading(reader.follower, begun)
        except BaseException:
            reader.owner, reader.follower = None, None
            self._drop(reader)
            raise
        with self._changed:
            reader.reads, reader.used_s = False, time.monotonic()
            self._changed.notify()
            unwanted = self._closed
        if unwanted:
            self._drop(reader)

    def _take(self, owner: object) -> _Reader:
        with self._changed:
            while not self._closed:
                free = [reader for reader in self._readers if not reader.reads]
                reader = next((reader for reader in free if reader.owner is owner), None)
                if reader is None and len(self._readers) < self._most:
                    reader = _Reader(owner)
                    self._readers.append(reader)
                    if not self._tidies:
                        self._tidies = True
                        threading.Thread(target=self._tidy, name="readers of the past", daemon=True).start()
                if reader is None and free:
                    reader = min(free, key=lambda reader: (reader.owner is not None, reader.used_s))
                if reader is not None:
                    if reader.owner is not owner:
                        reader.owner, reader.follower = owner, None
                    reader.reads = True
                    return reader
                self._changed.wait()
            raise TopologyError("The server is stopping.")

    def release(self, owner: object) -> None:
        """Note that a client reads no more. It does not block."""
        with self._changed:
            for reader in self._readers:
                if reader.owner is owner:
                    reader.owner = None

    def close(self) -> None:
        """Close all; those that are being read from, after that."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            idle = [reader for reader in self._readers if not reader.reads]
        for reader in idle:
            self._drop(reader)

    def _drop(self, reader: _Reader) -> None:
        with self._changed:
            if reader not in self._readers:
                return
            self._readers.remove(reader)
            self._changed.notify_all()
        if reader.consumer is not None:
            reader.consumer.close()

    def _tidy(self) -> None:
        """Close what nobody has used for some seconds; end when nothing is left."""
        while True:
            with self._changed:
                if not self._readers:
                    self._tidies = False
                    return
                self._changed.wait(_LOOK_S)
                now_s = time.monotonic()
                old = [reader for reader in self._readers if not reader.reads and now_s - reader.used_s > _SPARE_S]
                for reader in old:
                    reader.reads = True  # so that nobody takes it
            for reader in old:
                self._drop(reader)


class Shared:
    """What the feeds of all topologies share.

    :param kafka: how to reach the brokers.
    :param budget: what readers may use.
    :param tenants: whether some readers are tenants.
    :ivar sent: counts what tenants are sent.
    :ivar reading: runs what reads the past.
    :ivar joining: runs what else blocks.
    """

    def __init__(self, kafka: Any, budget: Budget, tenants: bool = False) -> None:
        self.budget, self.tenants, self.past = budget, tenants, PastReaders(kafka, budget.past_readers)
        self.sent = TenantResults()
        self.reading = ThreadPoolExecutor(_THREADS, thread_name_prefix="past")
        self.joining = ThreadPoolExecutor(_THREADS, thread_name_prefix="join")

    def close(self) -> None:
        """Stop."""
        self.past.close()
        for pool in (self.reading, self.joining):
            pool.shutdown(wait=False, cancel_futures=True)
