"""Whether a message was rightly refused as late: the documented rule (docs/concepts/pubsub.md, "Time windows"), judged by the times at which the brokers got the messages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from dskype.spouts.settings import Settings

__all__ = ["Accepted", "LatenessJudge"]


class Accepted(NamedTuple):
    """A message that got a number.

    :ivar partition, offset: its record.
    :ivar arrival_ms: when the broker got it, epoch ms.
    :ivar own_ms: its own time, epoch ms.
    """

    partition: int
    offset: int
    arrival_ms: int
    own_ms: int


class _Lane:
    """The accepted messages of one task."""

    def __init__(self, messages: Iterable[Accepted], idle_ms: int) -> None:
        rows = sorted((m.arrival_ms, m.own_ms) for m in messages)
        self._arrivals = [arrival for arrival, _ in rows]
        # A message from the future counts with its arrival.
        self._newest = list(accumulate((min(row) for row in rows), max))
        self._idle_ms = max(1, idle_ms)
        self._pauses = [i for i, (arrival, following) in enumerate(pairwise(self._arrivals)) if following - arrival >= self._idle_ms]

    def newest_ms(self) -> int:
        """Return the newest time of all messages; -1: there are none."""
        return self._newest[-1] if self._newest else -1

    def before_pause_ms(self, arrival_ms: int) -> int:
        """Return the newest time before the last pause that was over at an arrival; -1: there was none."""
        last = bisect_right(self._arrivals, arrival_ms) - 1
        if last >= 0 and arrival_ms - self._arrivals[last] >= self._idle_ms:
            return self._newest[last]
        before = bisect_left(self._pauses, last)
        return self._newest[self._pauses[before - 1]] if before else -1


class LatenessJudge:
    """Tells whether messages may be refused as late.

    A message is late if another one is newer by more than the lateness. That is so only if it came later than its own time by more than the lateness, or
    after a pause of all partitions that its task reads, because the watermark catches up then. How the spout reads its partitions makes no difference.

    :param accepted: the messages that got numbers.
    :param task_of: partition of the messages -> the task that numbers its messages; a partition that is missing may belong to any.
    :param complete: whether ``accepted`` has all that were ever accepted, or only those behind the first one of each partition.
    """

    def __init__(self, accepted: Iterable[Accepted], task_of: Mapping[int, Any], settings: Settings, *, complete: bool) -> None:
        groups: dict[Any, list[Accepted]] = defaultdict(list)
        self._first: dict[int, int] = {}
        for message in accepted:
            groups[task_of.get(message.partition)].append(message)
            self._first[message.partition] = min(message.offset, self._first.get(message.partition, message.offset))
        self._lanes = {task: _Lane(messages, settings.idle_ms) for task, messages in groups.items()}
        self._task_of, self._lateness_ms, self._complete = task_of, settings.lateness_ms, complete

    def may_be_late(self, message: Accepted) -> bool | None:
        """Return whether a refused message may have been late; None if the topics do not tell."""
        task = self._task_of.get(message.partition)
        lanes = [self._lanes[task]] if task in self._lanes else list(self._lanes.values())
        if message.arrival_ms - message.own_ms > self._lateness_ms:
            return not self._complete or any(message.own_ms < lane.newest_ms() - self._lateness_ms for lane in lanes)
        if any(message.own_ms <= lane.before_pause_ms(message.arrival_ms) for lane in lanes):
            return True
        known = self._complete or message.offset > self._first.get(message.partition, 1 << 62)
        return False if known else None
