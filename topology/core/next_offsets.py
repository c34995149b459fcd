"""What an executor has taken of the partitions that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dskype.topology.tuples import InRecord

__all__ = ["NextOffsets"]


class NextOffsets:
    """Leaves out records that come again: a Spark task that failed begins where its batch began, and may pass on records beside its successor.

    :param positions: (topic, partition) -> next offset that is needed; a partition that is not there is taken as it comes.
    """

    def __init__(self, positions: Mapping[tuple[str, int], int]) -> None:
        self._positions = dict(positions)

    def get(self, topic: str, partition: int, otherwise: int) -> int:
        """Return the next offset of a partition."""
        return self._positions.get((topic, partition), otherwise)

    def take(self, records: Iterable[InRecord]) -> list[InRecord]:
        """Return the records that are needed, those of a partition in order; the next ones lie behind them."""
        taken, positions = [], self._positions
        for record in records:
            where = record.topic, record.partition
            if record.offset >= positions.get(where, record.offset):
                positions[where] = record.offset + 1
                taken.append(record)
        return taken
