"""Which record of the messages' topic got which sequence number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["sequence_numbers"]


def sequence_numbers(runs: Iterable[Mapping[str, Any]], partition: int = 0, topic: str | None = None) -> Callable[[int], int | None]:
    """Return a function from offsets of a partition of a topic of messages to sequence numbers; None for a record that has none.

    :param runs: records of the topic of sequences.
    :param topic: of messages; None: the first one of the message spout.
    """
    found = sorted((r["offset"], r["first"], r["n"], r.get("step", 1)) for r in runs if r["partition"] == partition and r.get("topic") == topic)
    starts = [run[0] for run in found]

    def number(offset: int) -> int | None:
        i = bisect_left(starts, offset + 1) - 1
        if i < 0 or offset >= found[i][0] + found[i][2]:
            return None
        start, first, _, step = found[i]
        return first + (offset - start) * step

    return number
