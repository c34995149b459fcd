"""The receiving side of a task: every channel's tuples once, in order, whatever the inbox holds.

A sink may write a batch again, write a part of it, or write a later frame and not an earlier one; and anyone may write
a record into an inbox that is no frame. Numbers tell these cases apart:

- what was received before is dropped;
- a frame behind a gap is dropped too: its batch is run again and brings both;
- unless a damaged frame stands where the gap is: then the tuples of that frame are lost, and the channel goes on;
- where the missing one does not come either, the brokers have lost what they had acknowledged: that is reported;
- after a record that nothing can be read from, a gap may mean either. Frames behind it are held back until the missing
  one comes, or until it is plain that it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from sortedcontainers import SortedKeyList

from dskype.topology.core.frames import DataFrame, Segment, decode_frame, peek_header
from dskype.topology.core.values import slice_column

__all__ = ["Receiver"]

PATIENCE_MS = 30_000
"""How long frames are held back for one that may be lost; a failed batch runs again much sooner."""
_MAX_STEP_MS = 5000
"""A record advances that time by this much at most: after a standstill there has to be time to write again."""

Numbered = tuple[int, int, Segment]


class Receiver:
    """What one task has received.

    :param stats: counts duplicates and gaps.
    :param report_error: called with a text about tuples that are lost.
    """

    def __init__(self, stats: Any, report_error: Callable[[str], None]) -> None:
        self.expected: dict[int, int] = {}
        """Source task -> number of the next tuple."""
        self._stats, self._report_error = stats, report_error
        self._damaged: dict[int, int] = {}  # source task -> first number of a damaged frame
        self._stray = False  # a record was seen that nothing can be read from
        self._held: dict[int, SortedKeyList] = {}  # source task -> frames that came too early, by the number of their first tuple
        self._held_since: dict[int, int] = {}
        self._gap_since: dict[int, int] = {}  # source task -> time waited when the first frame behind the gap came; -1: reported
        self._clock_ms = self._waited_ms = 0

    def pass_time(self, timestamp_ms: int) -> list[Numbered]:
        """Take note of the time; return frames that were held back for long enough.

        :param timestamp_ms: of the record that comes now; by a clock that may be set back.
        """
        self._waited_ms += min(_MAX_STEP_MS, max(0, timestamp_ms - self._clock_ms))
        self._clock_ms = timestamp_ms
        if self._gap_since:
            self._report_gaps()
        if not self._held:
            return []
        return [n for source, since in list(self._held_since.items()) if self._waited_ms - since >= PATIENCE_MS for n in self._give_up(source)]

    def damaged(self, value: bytes | None) -> None:
        """Take note of a record that is no frame."""
        header = peek_header(value)
        if header is None:
            self._stray = True
        else:
            first = self._damaged.get(header.source_task, header.first_seq)
            self._damaged[header.source_task] = min(first, header.first_seq)

    def accept(self, frame: DataFrame, value: bytes) -> list[Numbered]:
        """Return what is new: (source task, number of the first tuple, segment).

        :param value: the record that ``frame`` was read from.
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
            self._damaged.pop(source, None)  # nothing is missing up to here
            if self._gap_since:
                self._gap_since.pop(source, None)
        self.expected[source] = expected

    def _release(self, source: int) -> list[Numbered]:
        """Return what was held back and can go on now."""
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
                    f"tuple {self.expected.get(source, 0)} of task {source} does not come, though later ones did {PATIENCE_MS // 1000} s ago: either the query "
                    "of that task fails again and again, or the brokers have lost records that they had acknowledged; in that case start the topology afresh"
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
        """Take over a state."""
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
