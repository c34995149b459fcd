"""An in-memory log with topics and partitions."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from dskype.topology.core.frames import OutRecord
from dskype.topology.core.inbox_reader import InboxReader
from dskype.topology.core.loss import lost_input
from dskype.topology.errors import TopologyError
from dskype.topology.tuples import InRecord

__all__ = ["MAX_RECORD_BYTES", "MemoryLog", "RecordTooLargeError"]

MAX_RECORD_BYTES = 16 << 20
"""Size, with headers, of the largest record that :meth:`MemoryLog.write` accepts, as that of Spark's sink and the broker."""


class RecordTooLargeError(TopologyError):
    """The sink got a record that the broker would refuse."""


class MemoryLog(InboxReader):
    """An in-memory replacement of Kafka; an :class:`~dskype.topology.core.inbox_reader.InboxReader`.

    :param now_ms: returns the timestamps of records.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._partitions: dict[tuple[str, int], list[InRecord | None]] = defaultdict(list)  # None: a marker
        self._used: dict[str, int] = {}  # topic -> number of its partitions
        self._begins: dict[tuple[str, int], int] = {}
        self._committed: dict[tuple[str, str, int], int] = {}

    def append(self, topic: str, partition: int | None, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes]] | None = None) -> int:
        """Append a record and return its offset; without a partition, the key determines it, as in Kafka."""
        if partition is None:
            partition = zlib.crc32(key) % self.partitions(topic) if key is not None else 0
        records = self._opened(topic, partition)
        records.append(InRecord(topic, partition, len(records), self._now_ms(), key, value, list(headers or [])))
        return len(records) - 1

    def _opened(self, topic: str, partition: int) -> list[InRecord | None]:
        """Return the records of a partition, which counts as used from now on."""
        if partition >= self._used.get(topic, 0):
            self._used[topic] = partition + 1
        return self._partitions[topic, partition]

    def mark(self, topic: str, partition: int = 0) -> None:
        """Append the marker of a transaction: it has an offset, and nobody ever gets it."""
        self._opened(topic, partition).append(None)

    def delete(self, topic: str) -> None:
        """Delete a topic with its records."""
        self._used.pop(topic, None)
        for key in [key for key in self._partitions if key[0] == topic]:
            del self._partitions[key]
            self._begins.pop(key, None)
        self._committed = {where: offset for where, offset in self._committed.items() if where[1] != topic}

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        self._committed.update(((group, *where), offset) for where, offset in offsets.items())

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        """Return the offset that a group has committed, if any."""
        return self._committed.get((group, topic, partition))

    def drop_before(self, topic: str, partition: int, offset: int) -> None:
        """Drop the records below ``offset``, as Kafka's retention does."""
        self._begins[topic, partition] = max(offset, self.begin(topic, partition))

    def begin(self, topic: str, partition: int) -> int:
        """Return the offset of the first available record."""
        return self._begins.get((topic, partition), 0)

    def lose_tail(self, topic: str, partition: int, behind: int) -> None:
        """Lose the records from an offset on, like a broker that had not written them to its disk; their offsets are reused."""
        del self._opened(topic, partition)[behind:]

    def write(self, record: OutRecord) -> None:
        """Append a record that an executor has returned for the sink.

        :raises RecordTooLargeError: it is larger than :data:`MAX_RECORD_BYTES`.
        """
        size = sum(map(len, filter(None, (record.key, record.value)))) + sum(len(k) + len(v) for k, v in record.headers or ())
        if size > MAX_RECORD_BYTES:
            msg = f"a record for topic {record.topic!r} has {size} bytes; expected at most {MAX_RECORD_BYTES}"
            raise RecordTooLargeError(msg)
        self.append(*record)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic that have been used; at least 1."""
        return self._used.get(topic, 1)

    def topics(self) -> list[str]:
        """Return the topics that have been used, sorted."""
        return sorted(self._used)

    def end(self, topic: str, partition: int) -> int:
        """Return the offset of the next record."""
        return len(self._partitions.get((topic, partition), ()))

    def goes_beyond(self, positions: Mapping[tuple[str, int], int]) -> bool:
        """Tell whether any partition has records at its position or behind it."""
        partitions = self._partitions
        return any(len(partitions.get(key, ())) > position for key, position in positions.items())

    def read(self, topic: str, partition: int, start: int, stop: int | None) -> Iterator[InRecord]:
        begin, end = self.begin(topic, partition), self.end(topic, partition)
        stop = max(start, end) if stop is None else stop
        if start < stop and not begin <= start <= stop <= end:
            raise lost_input(topic, partition, start, stop, begin, end)
        return filter(None, self._partitions.get((topic, partition), [])[start:stop])

    def waiting(self, topics: Iterable[str], positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], bool]:
        keys = [(topic, partition) for topic in topics for partition in range(self.partitions(topic))]
        return {key: max(positions.get(key, 0), self.begin(*key)) < self.end(*key) for key in keys}

    def records(self, topic: str, *, dropped: bool = False) -> list[InRecord]:
        """Return all records of a topic, partition after partition.

        :param dropped: whether those that were dropped are among them, for tests that compare with what the topic has had.
        """
        keys = [key for key in sorted(self._partitions) if key[0] == topic]
        return [r for key in keys for r in filter(None, self._partitions[key][0 if dropped else self.begin(*key) :])]
