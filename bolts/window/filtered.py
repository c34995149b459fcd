"""A message window whose queries may have filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dskype.bolts.filters import Programs
from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.window import _kernels
from dskype.bolts.window.base import MessageWindow, QueryBatch
from dskype.bolts.window.kept import Queue, kernel_array
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.region_table import RegionTable

__all__ = ["FilteredWindow"]

_DETAILS = "details"
_ASKED_AT_ONCE = 1 << 20
"""The most messages that filtered queries ask for together, so that their answers need tens of MiB; a single one may ask for more."""
_TRIED_AT_ONCE = 1 << 16
"""Messages whose texts are put together at a time."""
_FEW = 32
"""Of one in so many messages it takes less time to try each than to look for words in all."""
_MANY_TERMS = 16
_NEWEST = 1 << 14
"""So many of the newest messages are looked at first where only the newest ones that match are wanted; then twice as many before them, and so on."""
_MARGIN, _LEAST_GROWTH, _MOST_GROWTH = 1.25, 2, 16


class FilteredWindow(MessageWindow):
    """Adds filters to any window: programs (:mod:`dskype.spouts.filters`) that decide which messages a query is about.

    It keeps what filters look at, and leaves the search to the window: it asks for the best messages of a filtered query, keeps those that
    satisfy the program, and asks for more until they are enough, or there are no more. How many more follows from the share that did. So an answer
    is exact with any index. Memory, beside that of the window: 48 bytes a message, 8 for each of its terms and prefixes, 2 for each
    word of its text, 16 for each value of its attributes.

    :param window: an empty one.
    """

    def __init__(self, window: MessageWindow) -> None:
        self.window = window
        self._position, self._seq = self._keys = Queue(np.int64), Queue(np.int64)
        # Ends and values of terms, order, attributes and prefixes.
        self._lists = tuple((Queue(np.int64), Queue(kind)) for kind in (np.int64, np.int16, np.int64, np.int64))
        self.asked = 0
        """How many messages filtered queries have asked the window for."""

    def __len__(self) -> int:
        return len(self.window)

    # -- messages ---------------------------------------------------------------------------------

    def insert(self, messages: MessageBatch, ids: Sequence[str] | pa.StringArray, details: Details | None = None) -> None:
        """See :meth:`MessageWindow.insert`.

        :param details: what filters look at; None: the messages have none.
        """
        details = Details.empty(messages.n) if details is None else details
        self.window.insert(messages, ids)
        self._position.append(messages.position)
        self._seq.append(messages.seq)
        columns = (messages.offsets, messages.terms), details[:2], details[2:4], details[4:6]
        for (ends, values), (offsets, column) in zip(self._lists, columns):
            ends.append(offsets[1:] - offsets[0] + values.end)
            values.append(column[offsets[0] : offsets[-1]])

    def free(self, position: int) -> None:
        """See :meth:`MessageWindow.free`; details leave at once."""
        self.window.free(position)
        n = int(np.searchsorted(self._position.view, position, side="right"))
        if not n:
            return
        for ends, values in self._lists:
            values.drop(int(ends.view[n - 1]) - values.base)
            ends.drop(n)
        for queue in self._keys:
            queue.drop(n)

    def end(self, seqs: np.ndarray, positions: np.ndarray, at: np.ndarray) -> None:
        """See :meth:`MessageWindow.end`."""
        self.window.end(seqs, positions, at)

    def ended(self, watermark: int) -> np.ndarray:
        """See :meth:`MessageWindow.ended`."""
        return self.window.ended(watermark)

    def ids(self, seqs: np.ndarray, positions: np.ndarray) -> list[str]:
        """See :meth:`MessageWindow.ids`."""
        return self.window.ids(seqs, positions)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """See :meth:`MessageWindow.places`."""
        return self.window.places()

    def places_of(self, seqs: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (lat, lon) in degrees of messages; NaN for those of versions without filters."""
        rows = _kernels.locate(self._position.view, self._seq.view, kernel_array(positions, np.int64), kernel_array(seqs, np.int64))
        lat, lon = self._places()
        return (np.where(rows < 0, np.nan, lat[rows]), np.where(rows < 0, np.nan, lon[rows])) if len(lat) else (np.full(len(rows), np.nan),) * 2

    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (lat, lon) of the messages with details: these are the last ones of the window."""
        lat, lon = self.window.places()
        before = len(lat) - len(self._seq)
        return lat[before:], lon[before:]

    # -- queries ----------------------------------------------------------------------------------

    def topk(
        self, queries: QueryBatch, extent: int, diagonal_deg: float, thresholds: np.ndarray | None = None, programs: Programs | None = None
    ) -> RankedLists:
        """See :meth:`MessageWindow.topk`.

        :param programs: the filters of the queries; None: they have none.
        """
        filtered = np.zeros(0, np.int64) if programs is None else np.flatnonzero(programs.sizes())
        if programs is None or not len(filtered):
            return self.window.topk(queries, extent, diagonal_deg, thresholds)
        parts: list[tuple[np.ndarray, RankedLists]] = []
        plain = np.flatnonzero(programs.sizes() == 0)
        if len(plain):
            parts.append((plain, self.window.topk(queries.select(plain), extent, diagonal_deg, None if thresholds is None else thresholds[plain])))
        todo, asked = filtered, queries.wanted.copy()
        while len(todo):
            again = []
            for rows in self._groups(todo, asked):
                part = queries.select(rows)._replace(wanted=asked[rows])
                found = self.window.topk(part, extent, diagonal_deg, None if thresholds is None else thresholds[rows])
                self.asked += int(asked[rows].sum())
                lists, passed = self._satisfying(found, programs.select(rows), queries.wanted[rows])
                done = (np.diff(lists.offsets) == queries.wanted[rows]) | (np.diff(found.offsets) < asked[rows])
                parts.append((rows[done], lists.select(np.flatnonzero(done))[0]))
                open_rows = rows[~done]
                asked[open_rows] = self._more(asked[open_rows], passed[~done], queries.wanted[open_rows])
                again.append(open_rows)
            todo = np.concatenate(again)
        return RankedLists.joined(parts, queries.n)

    def _groups(self, rows: np.ndarray, asked: np.ndarray) -> list[np.ndarray]:
        """Cut queries into groups that together ask for few enough messages."""
        most = np.minimum(asked[rows], len(self.window))
        return np.split(rows, np.flatnonzero(np.diff(np.cumsum(most) // _ASKED_AT_ONCE)) + 1)

    def _more(self, asked: np.ndarray, passed: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return how many messages to ask for, after ``passed`` of ``asked`` were not enough."""
        needed = np.ceil(_MARGIN * asked * wanted / np.maximum(passed, 0.5)).astype(np.int64)
        return np.minimum(np.clip(needed, _LEAST_GROWTH * asked, _MOST_GROWTH * asked), len(self.window) + 1)

    def _satisfying(self, found: RankedLists, programs: Programs, wanted: np.ndarray) -> tuple[RankedLists, np.ndarray]:
        """Return the first ``wanted`` messages of each list that satisfy its program, and how many of each list do."""
        lengths = np.diff(found.offsets)
        which = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        passed = np.zeros(len(which), np.bool_)
        rows = _kernels.locate(self._position.view, self._seq.view, kernel_array(found.positions, np.int64), kernel_array(found.seqs, np.int64))
        known = np.flatnonzero(rows >= 0)  # messages of earlier versions have no details, and satisfy no filter
        messages, details = self._texts(rows[known])
        extra = details.prefix_offsets, details.prefixes
        passed[known] = programs.satisfying(messages, details, extra, np.arange(len(known), dtype=np.int32), which[known])
        counts = np.concatenate(([0], np.cumsum(passed)))
        before, after = counts[found.offsets[:-1]], counts[found.offsets[1:]]
        index = np.flatnonzero(passed & (counts[1:] - np.repeat(before, lengths) <= np.repeat(wanted, lengths)))
        offsets = np.concatenate(([0], np.cumsum(np.minimum(after - before, wanted))))
        return RankedLists(offsets, found.seqs[index], found.positions[index], found.scores[index]), after - before

    def matching(
        self,
        positions: tuple[int, int],
        bbox: Sequence[float],
        region: Sequence[float] | None,
        program: Sequence[int] | None,
        terms: Sequence[int] | None,
        newest: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (seqs, positions) of the messages that satisfy a filter, int64[m], in rising order of (position, seq).

        O(messages and their terms); with ``newest`` of those from the newest one back to the last that is wanted, and fewer than twice as many more.

        :param positions: those in ``(positions[0], positions[1]]`` are looked at, as of the latter. An area lies at its centre.
        :param bbox: west, south, east, north in degrees.
        :param region: an encoded region (:mod:`dskype.spouts.regions`) in the rectangle; None: the rectangle decides.
        :param program: decides which messages count (:mod:`dskype.spouts.filters`); None: all do.
        :param terms: words of which each of them has one; None: nothing is known.
        :param newest: so many of the newest are wanted, >= 1; None: all.
        """
        first, stop = np.searchsorted(self._position.view, positions, side="right").tolist()
        ended = self.window.ended(positions[1])[len(self.window) - len(self._seq) :]
        table = None
        if region is not None:
            table = RegionTable()
            table.put(0, region)
        steps = None if program is None else Programs(np.array([0, len(program)]), np.asarray(program, np.int64))
        parts, left, size = [np.zeros(0, np.int64)], stop - first if newest is None else newest, stop - first if newest is None else _NEWEST
        while stop > first and left > 0:
            begin = max(first, stop - size)
            parts.append(self._matching_rows(begin, stop, ~ended[begin:stop], bbox, table, steps, terms))
            left, stop, size = left - len(parts[-1]), begin, 2 * size
        rows = np.concatenate(parts[::-1])
        rows = rows if newest is None else rows[-newest:]
        return self._seq.view[rows], self._position.view[rows]

    def _matching_rows(
        self, first: int, stop: int, present: np.ndarray, bbox: Sequence[float], region: RegionTable | None, program: Programs | None, terms: Any
    ) -> np.ndarray:
        """Return the rows from ``first`` up to ``stop`` that satisfy a filter, rising; see :meth:`matching`.

        :param present: bool[stop - first], those that count.
        :param region: its only slot is 0; ``program`` is the only one, too.
        """
        lat, lon = (column[first:stop] for column in self._places())
        west, south, east, north = bbox
        inside = (lat >= south) & (lat <= north)
        inside &= ((lon >= west) & (lon <= east)) if west <= east else ((lon >= west) | (lon <= east))
        inside &= present
        rows = np.flatnonzero(inside)
        if terms is not None and len(rows) > (stop - first) // _FEW:
            inside &= self._with_terms(terms, first, stop)
            rows = np.flatnonzero(inside)
        if region is not None:
            rows = rows[region.touches(np.zeros(len(rows), np.int64), rows, lat, lon)]
        rows += first
        if program is not None:
            parts = [self._passing(rows[at : at + _TRIED_AT_ONCE], program) for at in range(0, len(rows), _TRIED_AT_ONCE)]
            rows = np.concatenate(parts) if parts else rows
        return rows

    def _with_terms(self, terms: Sequence[int], first: int, stop: int) -> np.ndarray:
        """Tell which messages from row ``first`` up to ``stop`` have one of some words, bool[]."""
        ends, values = self._lists[0]
        bounds = ends.view[first:stop] - values.base
        begin = int(ends.view[first - 1]) - values.base if first else 0
        found = np.zeros(stop - first, np.bool_)
        if stop > first:
            words = values.view[begin : bounds[-1]]
            known = np.unique(np.asarray(terms, np.int64))
            hits = known[np.minimum(np.searchsorted(known, words), len(known) - 1)] == words if len(known) > _MANY_TERMS else np.zeros(len(words), np.bool_)
            for term in known if len(known) <= _MANY_TERMS else ():
                hits |= words == term
            at = np.flatnonzero(hits) + begin
            found[np.searchsorted(bounds, at, side="right")] = True
        return found

    def _passing(self, rows: np.ndarray, program: Programs) -> np.ndarray:
        """Return the rows whose messages satisfy a program."""
        messages, details = self._texts(rows)
        extra, numbers = (details.prefix_offsets, details.prefixes), np.arange(len(rows), dtype=np.int32)
        return rows[program.satisfying(messages, details, extra, numbers, np.zeros_like(numbers))]

    def _texts(self, rows: np.ndarray) -> tuple[MessageBatch, Details]:
        """Return what filters look at, of messages by their rows: terms without weights, and details."""
        offsets, terms, *details = (column for ends, values in self._lists for column in _gather(ends.view, values, rows))
        nothing = np.zeros(0)
        return MessageBatch(rows, rows, nothing, nothing, offsets, terms, nothing), Details(*[*details, *Details.empty(len(rows))[6:]])

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """See :meth:`MessageWindow.snapshot`: that of the window, and the details."""
        return {**self.window.snapshot(), _DETAILS: [[queue.base, queue.view] for queue in self._queues()]}

    def restore(self, state: dict[str, Any]) -> None:
        """See :meth:`MessageWindow.restore`; snapshots of earlier versions have no details."""
        self.window.restore({name: value for name, value in state.items() if name != _DETAILS})
        for queue, (base, values) in zip(self._queues(), state.get(_DETAILS, ())):
            queue.load(base, values)

    def _queues(self) -> list[Queue]:
        return [*self._keys, *(queue for pair in self._lists for queue in pair)]

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of window and details, in bytes."""
        return self.window.memory_bytes + sum(queue.nbytes for queue in self._queues())

    def _check(self) -> None:
        """Verify all invariants; for tests."""
        self.window._check()
        n = len(self._seq)
        assert n <= len(self.window) and all(len(queue) == n for queue in (*self._keys, *(ends for ends, _ in self._lists)))
        for ends, values in self._lists:
            assert sorted(ends.view.tolist()) == ends.view.tolist() and (values.end == ends.view[-1] if n else not len(values))


def _gather(ends: np.ndarray, values: Queue, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets, values) of the lists at ``rows``: list *i* ends at ``ends[i]`` and begins at the end of the one before."""
    begins = np.where(rows > 0, ends[rows - 1], values.base)
    offsets = np.concatenate(([0], np.cumsum(ends[rows] - begins)))
    return offsets, values.view[np.arange(offsets[-1]) + np.repeat(begins - values.base - offsets[:-1], np.diff(offsets))]
