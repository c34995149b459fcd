"""Errors about records that Kafka no longer has."""

from __future__ import annotations

from dskype.topology.errors import FatalError, TopologyError, explain

__all__ = ["DataLossError", "LostInputError", "lost_input"]


class LostInputError(TopologyError):
    """Records that a task needs to read again are no longer in Kafka.

    :param begins: the first offset that is there, if the log begins behind what is needed.
    :param ends: the offset behind the last one, if the log ends before what is needed.
    """

    def __init__(self, message: str, *, begins: int | None = None, ends: int | None = None) -> None:
        super().__init__(message)
        self.begins, self.ends = begins, ends


def lost_input(topic: str, partition: int, start: int, stop: int, begins: int, ends: int) -> LostInputError:
    """Return the error about a log that does not hold the offsets from ``start`` to ``stop``."""
    if begins > start:
        return LostInputError(
            f"records of {topic}/{partition} from offset {start} are needed again, but the log begins at {begins}; "
            "hint: the retention of the topic must reach back as far as the tasks that read it",
            begins=begins,
        )
    return LostInputError(
        f"records of {topic}/{partition} up to offset {stop - 1} are needed again, but the log ends at {ends}; "
        "hint: the topic was deleted and made again, or a broker has lost the end of it",
        ends=ends,
    )


class DataLossError(FatalError):
    """Records of an external topic are gone that no spout has emitted, and ``topology.emulator.on.data.loss`` is ``fail``.

    :param first: the first offset that is lost.
    :param behind: the offset behind the last one that is lost.
    :param why: what happened, as far as it is known.
    """

    def __init__(self, topic: str, partition: int, first: int, behind: int, why: str, component: str | None = None) -> None:
        super().__init__(
            explain(
                f"input is lost: {behind - first} records of {topic}/{partition}, offsets {first} to {behind - 1}: {why}.",
                component=component,
                given="topology.emulator.on.data.loss: fail",
                legal="fail, skip",
                hint="set skip to count what is lost and go on behind it, or let the topic keep its records for longer (retention.ms) than a task may be behind",
            )
        )
        self.topic, self.partition, self.first, self.behind = topic, partition, first, behind
