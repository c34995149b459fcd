"""What an executor asks the brokers beside what its query brings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from dskype.topology.tuples import InRecord

__all__ = ["InboxReader"]


class InboxReader(Protocol):
    """Reads ranges of topics independently of any query."""

    def read(self, topic: str, partition: int, start: int, stop: int | None) -> Iterable[InRecord]:
        """Yield the records with ``start <= offset < stop``, in order.

        :param stop: None reads to the end of the log.
        :raises LostInputError: the log begins behind ``start``, or ends before ``stop``, or the topic is gone.
        :raises FatalError: the records are there, and will never be readable.
        :raises KafkaTimeoutError: no record came for a minute.
        """

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets in a consumer group, (topic, partition) -> next offset; return when the brokers have them."""

    def waiting(self, topics: Iterable[str], positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], bool]:
        """Return for each partition of external topics whether it holds records at or behind its position; True where no answer comes soon.

        :param positions: (topic, partition) -> offset; any other partition counts from where its query began to read it.
        :raises KafkaError: the brokers do not answer.
        """
