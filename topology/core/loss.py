"""Errors about records that Kafka no longer has."""

from __future__ import annotations

from dskype.topology.errors import FatalError, TopologyError, explain

__all__ = ["DataLossError", "LostInputError", "lost_input"]


class LostInputError(TopologyError):
    """Records that a task has to read again are no longer in Kafka.

    :param reason: what is missing, as far as it is known.
    :param hint: what to do about it.
    :param begins: the first offset in the log, if it begins behind what is needed.
    :param ends: the offset behind the last record, if the log ends before what is needed.
    """

    def __init__(self, reason: str, *, hint: str | None = None, begins: int | None = None, ends: int | None = None) -> None:
        super().__init__(explain(reason, hint=hint))
        self.reason, self.begins, self.ends = reason, begins, ends


def lost_input(topic: str, partition: int, start: int, stop: int, begins: int, ends: int) -> LostInputError:
    """Return the error about a log that does not hold the offsets from ``start`` to ``stop``."""
    if begins > start:
        return LostInputError(
            f"records of {topic}/{partition} from offset {start} are needed again, but the log begins at {begins}",
            hint="the retention of the topic must reach back as far as the tasks that read it",
            begins=begins,
        )
    return LostInputError(
        f"records of {topic}/{partition} up to offset {stop - 1} are needed again, but the log ends at {ends}",
        hint="the topic was deleted and created again, or a broker has lost the end of it",
        ends=ends,
    )


class DataLossError(FatalError):
    """Records of an external topic were lost before a spout emitted them, and ``topology.emulator.on.data.loss`` is ``fail``.

    :param first: the first lost offset.
    :param behind: the offset behind the last lost one.
    :param why: what happened, as far as it is known.
    """

    def __init__(self, topic: str, partition: int, first: int, behind: int, why: str, component: str | None = None) -> None:
        super().__init__(
            explain(
                f"input is lost: {behind - first} records of {topic}/{partition}, offsets {first} to {behind - 1}: {why}.",
                component=component,
                given="topology.emulator.on.data.loss: fail",
                legal="fail, skip",
                hint="set skip to count the lost records and continue behind them, or let the topic keep its records for longer (retention.ms) than a task may "
                "be behind",
            )
        )
        self.topic, self.partition, self.first, self.behind = topic, partition, first, behind
