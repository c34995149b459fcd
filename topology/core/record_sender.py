"""Records that a task's component sends to topics outside the topology."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dskype.topology.core.frames import OutRecord, OutRecords
from dskype.topology.errors import IllegalArgumentException

__all__ = ["RecordSender"]

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class RecordSender:
    """Checks and numbers the records of a task, and keeps them until they are taken.

    :param component: the task's component, for errors.
    :param prefix: begins the header ``record-id`` of each record; its number follows.
    :param max_bytes: most bytes of a record: key, value and headers.
    :param refuse: called with (topic, key, value, bytes) for a larger one.
    :ivar sent: how many records were sent; the number of the next one.
    """

    def __init__(self, component: str, prefix: str, max_bytes: int, refuse: Callable[[str, bytes | None, bytes | None, int], None]) -> None:
        self._component, self._prefix, self._max_bytes, self._refuse = component, prefix, max_bytes, refuse
        self._topics: set[str] = set()  # topics with a checked name
        self._records: list[OutRecord | OutRecords] = []
        self.sent = 0

    def send(self, topic: str, key: Any, value: Any, headers: Iterable[tuple[str, Any]] = (), partition: int | None = None, *, numbered: bool = True) -> bool:
        """Send a record; return False if it is too large and was refused.

        :param numbered: whether it has the header.
        :raises IllegalArgumentException: Kafka allows no such name of a topic.
        :raises TypeError: a part of the record cannot be sent.
        """
        self._check_topic(topic)
        if partition is not None and (type(partition) is not int or partition < 0):
            raise self._invalid(topic, "partition", partition, "a number from 0, or None")
        key, value = self._bytes_of(topic, "key", key), self._bytes_of(topic, "value", value)
        headers = list(headers)
        size = len(key or b"") + len(value or b"")
        for header in headers:
            if type(header) not in (tuple, list) or len(header) != 2 or type(header[0]) is not str or type(header[1]) not in (bytes, type(None)):
                raise self._invalid(topic, "header", header, "(name, bytes)")
            size += len(header[0].encode()) + len(header[1] or b"")
        if size > self._max_bytes:
            self._refuse(topic, key, value, size)
            return False
        if numbered:
            headers.insert(0, ("record-id", f"{self._prefix}{self.sent}".encode()))
            self.sent += 1
        self._records.append(OutRecord(topic, partition, key, value, headers))
        return True

    def send_columns(self, topic: str, keys: Any, values: Any, headers: Iterable[tuple[str, Any]]) -> int:
        """Send many records given as pyarrow arrays of binary or strings; return how many were sent. Those that are too large are refused."""
        self._check_topic(topic)
        headers = list(headers)
        columns = [values, *(() if keys is None else (keys,)), *(column for _, column in headers)]
        if sum(column.nbytes for column in columns) > self._max_bytes:  # otherwise no record can be too large
            keys, values, headers = self._refuse_large(topic, keys, values, headers)
        n = len(values)
        if n:
            numbers = pa.array(np.arange(self.sent, self.sent + n)).cast(pa.string())
            self.sent += n
            ids = pc.binary_join_element_wise(self._prefix, numbers, "")
            self._records.append(OutRecords(topic, keys, values, [("record-id", ids), *headers]))
        return n

    def _refuse_large(self, topic: str, keys: Any, values: Any, headers: list[tuple[str, Any]]) -> tuple[Any, Any, list[tuple[str, Any]]]:
        """Return the columns without records that are too large, which are refused."""
        sizes: Any = sum(_byte_lengths(column) for column in (values, *(() if keys is None else (keys,)), *(column for _, column in headers)))
        sizes += sum(len(name.encode()) for name, _ in headers)
        for row in np.flatnonzero(sizes > self._max_bytes).tolist():
            key, value = (None if column is None else self._bytes_of(topic, "column", column[row].as_py()) for column in (keys, values))
            self._refuse(topic, key, value, int(sizes[row]))
        rows = np.flatnonzero(sizes <= self._max_bytes)
        if len(rows) == len(values):
            return keys, values, headers
        rows = pa.array(rows)
        return None if keys is None else keys.take(rows), values.take(rows), [(name, column.take(rows)) for name, column in headers]

    def _check_topic(self, topic: Any) -> None:
        if topic not in self._topics:
            if not isinstance(topic, str) or not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
                msg = (
                    f"a record cannot be sent: invalid name of a topic (component {self._component!r}); given: {topic!r:.300}; "
                    "legal: 1 to 249 of the characters a-z A-Z 0-9 . _ -"
                )
                raise IllegalArgumentException(msg)
            self._topics.add(topic)

    def _invalid(self, topic: str, part: str, given: Any, expected: str) -> TypeError:
        return TypeError(
            f"a record for topic {topic!r} has a {part} that cannot be sent (component {self._component!r}); given: {given!r:.300}; expected {expected}"
        )

    def _bytes_of(self, topic: str, part: str, value: Any) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise self._invalid(topic, part, value, "bytes or None")

    def take(self) -> list[OutRecord | OutRecords]:
        """Return the records since the last call."""
        records, self._records = self._records, []
        return records

    def checkpoint(self) -> tuple[int, int]:
        """Return a checkpoint for :meth:`roll_back`."""
        return len(self._records), self.sent

    def roll_back(self, checkpoint: tuple[int, int]) -> None:
        """Take back what was sent since the checkpoint."""
        n, self.sent = checkpoint
        del self._records[n:]

    def restore(self, sent: int) -> None:
        """Continue behind ``sent`` records, and drop those that the component sent while it was prepared."""
        self.sent = sent
        self._records.clear()


def _byte_lengths(column: Any) -> np.ndarray:
    """Return the length in bytes of every value of a pyarrow binary or string array."""
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
