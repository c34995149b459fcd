"""The receiving side of a task: delivers every channel's tuples once and in order, whatever the inbox holds.

A sink may write a batch twice, write only a part of it, or write a later frame without an earlier one. Besides, anyone
may write records into an inbox that are not frames. The numbers of tuples tell these cases apart:

- A tuple that was received before is dropped.
- A frame behind a gap is dropped as well: its batch will be run again and bring the missing frame, too.
- If a damaged frame begins in the gap, the missing tuples were in it. They are lost, and the channel continues.
- If the missing tuples never arrive, the brokers have lost records that they had acknowledged. This is reported.
- After a record of which nothing can be read, a gap may mean a failed batch or a lost frame. Frames behind the gap are
  held back until the missing one arrives, or until it has had enough time to arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from sortedcontainers import SortedKeyList

from dskype.topology.core.frames import DataFrame, Segment, decode_frame, peek_header
from dskype.topology.core.values import slice_column

__all__ = ["Receiver"]

PATIENCE_MS = 30_000
"""How long to wait for a missing frame; a failed batch is run again much sooner."""
_MAX_STEP_MS = 5000
"""A record advances the waited time by at most this much, so that after a standstill a missing frame still has time to arrive."""

Numbered = tuple[int, int, Segment]


class Receiver:
    """Tracks what one task has received on its channels.

    :param stats: counts duplicates and gaps.
    :param report_error: called with a text about lost tuples.
    """

    def __init__(self, stats: Any, report_error: Callable[[str], None]) -> None:
        self.expected: dict[int, int] = {}
        """Source task -> number of the next tuple."""
        self._stats, self._report_error = stats, report_error
        self._damaged: dict[int, int] = {}  # source task -> first number of a damaged frame
        self._stray = False  # whether a record was seen whose header cannot be read
        self._held: dict[int, SortedKeyList] = {}  # source task -> frames that came too early, by the number of their first tuple
        self._held_since: dict[int, int] = {}
        self._gap_since: dict[int, int] = {}  # source task -> waited time when the first frame behind the gap came; -1: reported
        self._clock_ms = self._waited_ms = 0

    def advance_time(self, timestamp_ms: int) -> list[Numbered]:
        """Advance the waited time, and return the frames that were held back for long enough.

        :param timestamp_ms: timestamp of the next record, from a clock that may be set back.
        """
        self._waited_ms += min(_MAX_STEP_MS, max(0, timestamp_ms - self._clock_ms))
        self._clock_ms = timestamp_ms
        if self._gap_since:
            self._report_gaps()
        if not self._held:
            return []
        return [n for source, since in list(self._held_since.items()) if self._waited_ms - since >= PATIENCE_MS for n in self._give_up(source)]

    def note_damaged(self, value: bytes | None) -> None:
        """Remember a record that is not a well-formed frame."""
        header = peek_header(value)
        if header is None:
            self._stray = True
        else:
            first = self._damaged.get(header.source_task, header.first_seq)
            self._damaged[header.source_task] = min(first, header.first_seq)

    def accept(self, frame: DataFrame, value: bytes) -> list[Numbered]:
        """Return the new segments of a frame: (source task, number of the first tuple, segment).

        :param value: the record that ``frame`` was decoded from.
        """
        source, first = frame.source_task, frame.first_seq
        expected = self.expected.get(source, 0)
        if first > expected:
            if expected >= self._damaged.get(source, first):
                self._lose(source, expected, first)
            else:
                self._stats.gaps += 1
                if not self._stray:
                    self._gap_since.setdefault(source, self._waited_ms)
                else:
                    self._held.setdefault(source, SortedKeyList(key=_first_seq)).add(value)
                    self._held_since.setdefault(source, self._waited_ms)
                return []
        accepted = list(self._new(frame))
        return accepted + self._release(source) if source in self._held else accepted

    def _new(self, frame: DataFrame) -> Iterator[Numbered]:
        source = frame.source_task
        expected = self.expected.get(source, 0)
        skip = expected - frame.first_seq
        for segment in frame.segments:
            n = segment.n
            if segment.stream is None:
                yield source, expected, segment
                continue
            if skip >= n:
                skip -= n
                self._stats.duplicates += n
                continue
            if skip:
                self._stats.duplicates += skip
                segment = Segment(
                    segment.stream,
                    n - skip,
                    None if segment.columns is None else [slice_column(c, skip, n) for c in segment.columns],
                    None if segment.anchors is None else segment.anchors[skip:],
                )
                skip = 0
            yield source, expected, segment
            expected += segment.n
        if expected > self.expected.get(source, 0):
            self._damaged.pop(source, None)  # everything up to here has arrived
            if self._gap_since:
                self._gap_since.pop(source, None)
        self.expected[source] = expected

    def _release(self, source: int) -> list[Numbered]:
        """Return the held-back frames that follow without a gap."""
        held = self._held[source]
        released: list[Numbered] = []
        while held and _first_seq(held[0]) <= self.expected.get(source, 0):
            released += self._new(cast("DataFrame", decode_frame(held.pop(0))))
        if not held:
            del self._held[source], self._held_since[source]
        return released

    def _report_gaps(self) -> None:
        for source, since in self._gap_since.items():
            if since >= 0 and self._waited_ms - since >= PATIENCE_MS:
                self._gap_since[source] = -1
                self._report_error(
                    f"tuple {self.expected.get(source, 0)} of task {source} has not arrived, though later ones did {PATIENCE_MS // 1000} s ago: either the query "
                    "of that task keeps failing, or the brokers have lost records that they had acknowledged; in that case start the topology afresh"
                )

    def _give_up(self, source: int) -> list[Numbered]:
        self._lose(source, self.expected.get(source, 0), _first_seq(self._held[source][0]))
        self._held_since[source] = self._waited_ms
        return self._release(source)

    def _lose(self, source: int, first: int, behind: int) -> None:
        self._report_error(f"tuples {first} to {behind - 1} of task {source} are lost in a damaged record")
        self.expected[source] = behind
        self._damaged.pop(source, None)

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state."""
        return {
            "expected": self.expected,
            "damaged": self._damaged,
            "stray": self._stray,
            "held": {source: list(values) for source, values in self._held.items()},
            "held_since": self._held_since,
            "gap_since": self._gap_since,
            "clock_ms": self._clock_ms,
            "waited_ms": self._waited_ms,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.expected, self._damaged, self._stray = dict(state["expected"]), dict(state["damaged"]), state["stray"]
        self._held = {source: SortedKeyList(values, key=_first_seq) for source, values in state["held"].items()}
        self._held_since = dict(state["held_since"])
        self._gap_since = dict(state.get("gap_since", ()))  # absent from snapshots of earlier versions
        self._clock_ms, self._waited_ms = state["clock_ms"], state["waited_ms"]


def _first_seq(value: bytes) -> int:
    """Return the number of the first tuple of a well-formed frame."""
    header = peek_header(value)
    assert header is not None
    return header.first_seq
