"""The backlog of a Kafka spout's task: records that have arrived and are not emitted yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from dskype.topology.tuples import InRecord

__all__ = ["BACKLOG_BYTES", "READ_RECORDS", "Backlog"]

BACKLOG_BYTES, _RECORD_BYTES = 64 << 20, 400
"""Most bytes of external records that a task holds while it may not emit, where a record counts for its key, its value and this much more. Further records
are read again later."""
READ_RECORDS, _READ_BYTES = 20_000, 16 << 20
"""Most records and bytes that are read again at once."""


class Backlog:
    """Records of a partition that have arrived and are not emitted yet, in order."""

    __slots__ = ("_records", "n_bytes")

    def __init__(self) -> None:
        self._records: deque[InRecord] = deque()
        self.n_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._records)

    def append(self, record: InRecord) -> int:
        """Append a record; return its size in bytes."""
        self._records.append(record)
        size = _size(record)
        self.n_bytes += size
        return size

    def fill(self, records: Iterable[InRecord], stop: int) -> int:
        """Append records, up to :data:`_READ_BYTES`; return the offset behind the last one, or ``stop`` if all were appended."""
        limit = self.n_bytes + _READ_BYTES
        for record in records:
            self.append(record)
            if self.n_bytes >= limit:
                return record.offset + 1
        return stop

    def pop_first(self, n: int) -> list[InRecord]:
        """Remove and return the first ``n`` records, or as many as there are."""
        records = [self._records.popleft() for _ in range(min(n, len(self._records)))]
        self.n_bytes -= sum(map(_size, records))
        return records

    def drop_before(self, offset: int) -> None:
        """Remove the records before ``offset``."""
        while self._records and self._records[0].offset < offset:
            self.pop_first(1)


def _size(record: InRecord) -> int:
    return _RECORD_BYTES + len(record.value or b"") + len(record.key or b"")
