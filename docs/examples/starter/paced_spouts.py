"""Spouts of the starter topologies. Their random words and numbers follow from the task and the number of the tuple, so that two runs are alike."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from dskype import Fields, Spout
from dskype.topology.mixins import DeclaresFields, RemembersAttribute

__all__ = ["NumberSpout", "PacedSpout", "SentenceSpout"]


class PacedSpout(DeclaresFields, RemembersAttribute, Spout):
    """Emits one tuple per interval, tracked, and again when it fails; base of the spouts below.

    :param interval_ms: time between two tuples.
    :param limit: how many tuples each task emits; 0: without end.
    """

    _state = "_progress"

    def __init__(self, interval_ms: int = 100, limit: int = 0) -> None:
        self._interval_ms, self._limit = interval_ms, limit
        self._progress: dict[str, Any] = {"next": 0, "again": []}

    def values(self, number: int) -> tuple[Any, ...]:
        """Return the values of a task's tuple.

        :param number: 0 for the task's first one.
        """
        raise NotImplementedError

    def random(self, number: int) -> random.Random:
        """Return a generator of random numbers for a tuple."""
        return random.Random(f"{self._task}/{number}")

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Keep the collector."""
        self._context, self._collector, self._task = context, collector, context.get_this_task_index()
        self._due_ms = 0

    def next_tuple(self) -> None:
        """Emit a failed tuple again; or the next one, if its time has come."""
        progress, now_ms = self._progress, self._context.now_ms()
        if progress["again"]:
            number = progress["again"].pop(0)
        elif now_ms >= self._due_ms and (not self._limit or progress["next"] < self._limit):
            number = progress["next"]
            progress["next"] += 1
            self._due_ms = now_ms + self._interval_ms
        else:
            return
        self._collector.emit(self.values(number), message_id=number)

    def fail(self, msg_id: Any) -> None:
        """Emit the tuple again."""
        self._progress["again"].append(msg_id)


class SentenceSpout(PacedSpout):
    """Emits sentences: field ``sentence``."""

    _fields = Fields("sentence")
    SENTENCES = (
        "a storm is a topology that never ends",
        "a spout pours tuples and a bolt drinks them",
        "every tuple has a tree and every tree has an end",
        "count the words that the spout pours",
    )

    def values(self, number: int) -> tuple[Any, ...]:
        """Return one of the sentences."""
        return (self.random(number).choice(self.SENTENCES),)


class NumberSpout(PacedSpout):
    """Emits random numbers below 1000: fields ``value``, ``ts`` (a day ago, epoch ms) and ``msgid``."""

    _fields = Fields("value", "ts", "msgid")

    def values(self, number: int) -> tuple[Any, ...]:
        """Return a number."""
        return self.random(number).randrange(1000), self._context.now_ms() - 86_400_000, number
