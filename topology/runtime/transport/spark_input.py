"""What Spark passes to an executor with the real-time transport: the records of its partitions, over a socket for each (see docs/internals/transport.md)."""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Mapping

import msgpack

from dskype.topology.core.inbox_reader import InboxReader
from dskype.topology.core.next_offsets import NextOffsets
from dskype.topology.runtime.transport.wire import send
from dskype.topology.tuples import InRecord

__all__ = ["HELLO", "SparkInput"]

HELLO = struct.Struct("<qi")
"""The next offset that Spark passes on, and the partition; the topic's name follows."""
_ROOM_BYTES = 1 << 18
"""So much of a partition is taken at a time, and no more before the records in it are taken."""
_MUCH_BYTES, _PAUSE_S, _BATCH_BYTES = 1 << 15, 0.002, 1 << 23
"""While at least so much arrives within such a pause, a batch grows up to this size."""
_LULL_S, _GATHER_S = 0.0005, 0.002
"""Records that come singly are gathered until none has come for the first of these times, at most for the second."""
_PROCESSED = b"\x02"


class _Partition:
    """One connection: a Spark task, and so one partition."""

    def __init__(self, connection: socket.socket, topic: str, partition: int) -> None:
        self.connection, self.topic, self.partition = connection, topic, partition
        self.before: Iterator[InRecord] = iter(())  # records before those that Spark passes on
        self.ended = False  # Spark's batch has ended
        # Each record is an array: offset, time in epoch milliseconds, key, value, and headers as a map, which is None without them. Behind the last one is None.
        self._arrived = msgpack.Unpacker(use_list=False, object_pairs_hook=list, max_buffer_size=0)
        self._filled = False  # there may be whole records

    def receive(self, room: bytearray) -> int | None:
        """Take what has arrived, unless there are records already, and return the bytes of it; None: the connection is closed. What waits at the other end makes Spark wait."""
        if self._filled:
            return 0
        try:
            received = self.connection.recv_into(room)
        except BlockingIOError:
            return 0
        except OSError:
            return None
        self._arrived.feed(memoryview(room)[:received])
        self._filled = True
        return received or None

    def records(self, most: int) -> list[InRecord]:
        """Return up to so many records that are there."""
        if before := list(itertools.islice(self.before, most)):
            return before
        found = list(itertools.islice(self._arrived, most))
        self._filled, self.ended = len(found) == most, found[-1:] == [None]
        return [InRecord(self.topic, self.partition, *fields) for fields in found if fields is not None]


class SparkInput:
    """Reads the partitions of an executor's tasks as Spark passes them on.

    A connection begins at the offset that Spark is at. What an executor that was killed had not finished lies before it, so the records from the task's position on are read from Kafka first.

    :param reader: reads such records.
    :param positions: (topic, partition) -> next offset that the executor needs; a partition that is not there is read as it comes.
    :param calls: a wait for records ends when one of its sockets has something: somebody wants to connect.
    :param single: whether records come singly, though a client may have written many at once: those are one batch then.
    """

    def __init__(
        self, reader: InboxReader, positions: Mapping[tuple[str, int], int], calls: selectors.DefaultSelector | None = None, *, single: bool = False
    ) -> None:
        self._reader, self._next, self._single = reader, NextOffsets(positions), single
        self._selector = selectors.DefaultSelector()
        if calls is not None:
            self._selector.register(calls.fileno(), selectors.EVENT_READ)
        self._partitions: dict[socket.socket, _Partition] = {}
        self._left: dict[_Partition, None] = {}  # those of which more may be there, in the order in which they have their turns
        self._ended: list[_Partition] = []
        self._room = bytearray(_ROOM_BYTES)
        self._received = 0  # bytes, at the last look

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, connection: socket.socket, hello: bytes | bytearray | memoryview) -> None:
        """Read a partition through this connection, which takes the place of an earlier one.

        :param hello: see :data:`HELLO`.
        """
        following, partition = HELLO.unpack_from(hello)
        added = _Partition(connection, bytes(hello[HELLO.size :]).decode(), partition)
        where = added.topic, partition
        for former in [p for p in {**dict.fromkeys(self._partitions.values()), **self._left} if (p.topic, p.partition) == where]:
            self._left.pop(former, None)
            self._drop(former)
        if (position := self._next.get(*where, following)) < following:
            added.before = iter(self._reader.read(*where, position, following))
            self._left[added] = None
        connection.setblocking(False)
        self._partitions[connection] = added
        self._selector.register(connection, selectors.EVENT_READ, added)

    def read(self, wait_s: float, most: int) -> list[InRecord]:
        """Return the records that have arrived, those of a partition in order; wait for the first one at most this long.

        The caller has processed what it got before: where Spark's batch has ended, Spark is told so.

        :param most: most records to return.
        """
        for partition in self._ended:
            self._tell(partition, _PROCESSED)
            self._drop(partition)
        self._ended.clear()
        deadline = time.monotonic() + wait_s
        while True:
            called = self._receive(0.0 if self._left else max(0.0, deadline - time.monotonic()))
            records = self._take(most)
            if records or called or self._ended or self._left or time.monotonic() >= deadline:
                break
        until = time.monotonic() + _GATHER_S
        while self._single and records and 0 < self._received < _MUCH_BYTES and len(records) < most and time.monotonic() < until:
            time.sleep(_LULL_S)
            self._receive(0.0)
            records += self._take(most - len(records))
        # Spark has more: a larger batch costs less for each record.
        received = 0
        while self._received >= _MUCH_BYTES and len(records) < most and received < _BATCH_BYTES:
            received += self._received
            time.sleep(_PAUSE_S)
            self._receive(0.0)
            records += self._take(most - len(records))
        return records

    def _take(self, most: int) -> list[InRecord]:
        """Return up to so many records that are there and have not been taken before."""
        records: list[InRecord] = []
        for partition in list(self._left):
            del self._left[partition]
            found = partition.records(most - len(records))
            records += self._next.take(found)
            if partition.ended:
                self._ended.append(partition)
            elif found:
                self._left[partition] = None  # behind the others: each has its turn
            if len(records) >= most:
                break
        return records

    def _receive(self, wait_s: float) -> bool:
        """Take what arrives, or has arrived; return whether somebody wants to connect."""
        called, self._received = False, 0
        for key, _ in self._selector.select(wait_s):
            if key.data is None:
                called = True
                continue
            if (received := key.data.receive(self._room)) is None:
                self._drop(key.data)
            else:
                self._left[key.data] = None
                self._received += received
        return called

    def fail(self, words: bytes) -> None:
        """Tell all Spark tasks why this executor ends."""
        for partition in list(self._partitions.values()):
            self._tell(partition, words)
            self._drop(partition)

    def forget(self) -> None:
        """Close the copies that a fork of the executor has."""
        for connection in self._partitions:
            connection.close()
        self._selector.close()

    def _tell(self, partition: _Partition, words: bytes) -> None:
        with contextlib.suppress(OSError):  # the other end may have closed it
            partition.connection.settimeout(1.0)
            send(partition.connection, words)

    def _drop(self, partition: _Partition) -> None:
        if self._partitions.pop(partition.connection, None) is not None:
            self._selector.unregister(partition.connection)
            partition.connection.close()
