"""An in-memory log with topics and partitions."""

from __future__ import annotations

import zlib
from collections import defaultdict
from typing import Callable, Iterable, Iterator

from dskype.topology.core.executor import LostInputError
from dskype.topology.core.frames import InRecord, OutRecord

__all__ = ["MemoryLog"]


class MemoryLog:
    """Stands in for Kafka: append, read by offset; an :class:`~dskype.topology.core.executor.InboxReader`.

    :param now_ms: gives the records' timestamps.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._partitions: dict[tuple[str, int], list[InRecord]] = defaultdict(list)
        self._begins: dict[tuple[str, int], int] = {}

    def append(self, topic: str, partition: int | None, key: bytes | None, value: bytes | None,
               headers: Iterable[tuple[str, bytes]] | None = None) -> int:
        """Append a record and return its offset; no partition means: by the key, as Kafka's default does."""
        if partition is None:
            partition = zlib.crc32(key) % self.partitions(topic) if key is not None else 0
        records = self._partitions[topic, partition]
        records.append(InRecord(topic, partition, len(records), self._now_ms(), key, value, list(headers or [])))
        return len(records) - 1

    def delete(self, topic: str) -> None:
        """Forget a topic and its records."""
        for key in [key for key in self._partitions if key[0] == topic]:
            del self._partitions[key]
            self._begins.pop(key, None)

    def lose_tail(self, topic: str, partition: int, behind: int) -> None:
        """Lose the records from an offset on, as a broker does that had not written them to its disk; the offsets are given again."""
        del self._partitions[topic, partition][behind:]

    def drop(self, topic: str, partition: int, before: int) -> None:
        """Drop the records below an offset, as retention does."""
        self._begins[topic, partition] = before

    def write(self, record: OutRecord) -> None:
        """Append what an executor gave to the sink."""
        self.append(*record)

    def partitions(self, topic: str) -> int:
        """Return how many partitions of a topic have been touched; at least 1."""
        return max((p for t, p in self._partitions if t == topic), default=0) + 1

    def topics(self) -> list[str]:
        """Return the topics that have been touched, sorted."""
        return sorted({topic for topic, _ in self._partitions})

    def end(self, topic: str, partition: int) -> int:
        """Return the offset that the next record gets."""
        return len(self._partitions.get((topic, partition), ()))

    def read(self, topic: str, partition: int, start: int, stop: int) -> Iterator[InRecord]:
        """Yield the records with ``start <= offset < stop``.

        :raises LostInputError: the log begins behind ``start``.
        """
        if start < (begin := self._begins.get((topic, partition), 0)) and start < stop:
            msg = f"records of {topic}/{partition} from offset {start} are needed again, but the log begins at {begin}"
            raise LostInputError(msg)
        return iter(self._partitions.get((topic, partition), [])[start:stop])

    def records(self, topic: str) -> list[InRecord]:
        """Return all records of a topic, partition after partition."""
        return [r for key in sorted(self._partitions) if key[0] == topic for r in self._partitions[key]]
