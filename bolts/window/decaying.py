"""A message window that ranks with a half-life."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.window.base import MessageWindow, QueryBatch
from dskype.spouts.batch import MessageBatch
from dskype.spouts.recency import least_scores
from dskype.spouts.score_kernels import time_scores

__all__ = ["DecayingWindow"]

_FIRST, _GROWTH = 0.25, 2.0
"""Length of the newest slice of a window in half-lives, and how much longer each older one is."""
_MORE = 4
"""How many times as many messages are asked for where those of a slice were too few."""
_HIGHEST = np.array([1.0 + 1e-9])
"""No plain score is above."""


class DecayingWindow(MessageWindow):
    """Ranks the messages of any window by their time scores (:func:`dskype.spouts.score_kernels.time_score`), which take the place of scores in answers.

    The window knows plain scores only. It is asked for one slice of time after another, the newest first and each longer than the one before. A message of a slice that was
    not among those returned has at most the plain score of the last one, and is not newer than the slice: that bounds its time score. So more of the slice is asked for
    until the last place of the answer is above the bound. Older slices follow until not even the highest plain score could reach that place. With *n* half-lives in the window these are
    at most log2(4 n) + 1 slices. Every window takes this, and ranks exactly.

    :param window: an empty one; its :meth:`end` is not supported.
    :param half_life_ms: after how long a message counts half as much.
    """

    def __init__(self, window: MessageWindow, half_life_ms: float) -> None:
        self.window, self.half_life_ms = window, half_life_ms

    def __len__(self) -> int:
        return len(self.window)

    def insert(self, messages: MessageBatch, ids: Sequence[str] | pa.StringArray) -> None:
        """See :meth:`MessageWindow.insert`."""
        self.window.insert(messages, ids)

    def free(self, position: int) -> None:
        """See :meth:`MessageWindow.free`."""
        self.window.free(position)

    def topk(self, queries: QueryBatch, extent: int, diagonal_deg: float, thresholds: np.ndarray | None = None) -> RankedLists:
        """See :meth:`MessageWindow.topk`; scores and ``thresholds`` are time scores."""
        least = np.full(queries.n, -np.inf) if thresholds is None else np.asarray(thresholds, np.float64)
        best = _Best(queries, least)
        open_rows, end, length = np.flatnonzero(queries.wanted > 0), 0, max(1, int(_FIRST * self.half_life_ms))
        lowest = best.lowest()
        while len(open_rows) and end < extent:
            size = min(length, extent - end)
            if self._add_slice(best, lowest, open_rows, end, size, diagonal_deg):
                lowest = best.lowest()
            end, length = end + size, int(_GROWTH * length) + 1
            above = time_scores(np.repeat(_HIGHEST, len(open_rows)), queries.watermark[open_rows] - end, self.half_life_ms)
            open_rows = open_rows[lowest[open_rows] <= above]
        return best.lists

    def _add_slice(self, best: _Best, lowest: np.ndarray, rows: np.ndarray, end: int, size: int, diagonal_deg: float) -> bool:
        """Add the best messages with ``watermark - end - size < position <= watermark - end`` to the answers at ``rows``; tell whether there are any.

        :param lowest: what :meth:`_Best.lowest` returns.
        :param rows: in rising order, as everywhere here.
        """
        queries = best.queries
        todo, asked = rows, queries.wanted[rows].copy()
        parts: list[tuple[np.ndarray, RankedLists]] = []
        while len(todo):
            until = queries.watermark[todo] - end
            part = queries if len(todo) == queries.n else queries.select(todo)
            found = self.window.topk(part._replace(watermark=until, wanted=asked), size, diagonal_deg, least_scores(lowest[todo], until, self.half_life_ms))
            if not len(found.seqs):  # often: slices are short where the half-life is
                break
            full = np.flatnonzero(np.diff(found.offsets) >= asked)
            ranked = _by_time(found, self.half_life_ms)
            done = np.full(len(todo), True)
            if len(full):
                bound = time_scores(found.scores[found.offsets[1:][full] - 1], until[full], self.half_life_ms)
                done[full] = best.lowest_with(todo[full], ranked.select(full)[0]) > bound
            parts.append((todo[done], ranked.select(np.flatnonzero(done))[0]))
            todo, asked = todo[~done], np.minimum(_MORE * asked[~done], len(self.window) + 1)
        if parts:
            best.add(RankedLists.joined(parts, queries.n))
        return bool(parts)

    def ids(self, seqs: np.ndarray, positions: np.ndarray) -> list[str]:
        """See :meth:`MessageWindow.ids`."""
        return self.window.ids(seqs, positions)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """See :meth:`MessageWindow.places`."""
        return self.window.places()

    def snapshot(self) -> dict[str, Any]:
        """See :meth:`MessageWindow.snapshot`."""
        return self.window.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """See :meth:`MessageWindow.restore`."""
        self.window.restore(state)

    @property
    def memory_bytes(self) -> int:
        """See :meth:`MessageWindow.memory_bytes`."""
        return self.window.memory_bytes

    def _check(self) -> None:
        """Verify all invariants; for tests."""
        self.window._check()


def _by_time(found: RankedLists, half_life_ms: float) -> RankedLists:
    """Return lists with time scores in place of plain ones, in the order of these."""
    scores = time_scores(found.scores, found.positions, half_life_ms)
    return _sorted(np.repeat(np.arange(len(found.offsets) - 1), np.diff(found.offsets)), found._replace(scores=scores))


def _sorted(owner: np.ndarray, lists: RankedLists) -> RankedLists:
    """Return lists in rank order; message *i* is in list ``owner[i]``, whichever order they come in."""
    order = np.lexsort((-lists.seqs, -lists.positions, -lists.scores, owner))
    return RankedLists(lists.offsets, lists.seqs[order], lists.positions[order], lists.scores[order])


class _Best:
    """The answers so far.

    :param queries: what is asked.
    :param least: float64[n], time scores below which nothing counts.
    """

    def __init__(self, queries: QueryBatch, least: np.ndarray) -> None:
        nothing = np.zeros(0, np.int64)
        self.queries, self._least = queries, least
        self.lists = RankedLists(np.zeros(queries.n + 1, np.int64), nothing, nothing, np.zeros(0))

    def lowest(self) -> np.ndarray:
        """Return the time score that the last message of each full answer has, or the least that counts, float64[n]."""
        full = np.flatnonzero(np.diff(self.lists.offsets) >= np.maximum(self.queries.wanted, 1))
        lowest = self._least.copy()
        lowest[full] = np.maximum(lowest[full], self.lists.scores[self.lists.offsets[1:][full] - 1])
        return lowest

    def lowest_with(self, rows: np.ndarray, lists: RankedLists) -> np.ndarray:
        """Return what :meth:`lowest` would be for ``rows`` if the messages of ``lists``, one for each of them, were added."""
        return _Best.added(self.queries.select(rows), self._least[rows], self.lists.select(rows)[0], lists).lowest()

    @classmethod
    def added(cls, queries: QueryBatch, least: np.ndarray, one: RankedLists, other: RankedLists) -> _Best:
        """Return the best of two answers to each query."""
        owner = np.concatenate([np.repeat(np.arange(queries.n), np.diff(lists.offsets)) for lists in (one, other)])
        columns = (np.concatenate(pair) for pair in zip(one[1:], other[1:]))
        both = RankedLists(np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=queries.n)))), *columns)
        both = _sorted(owner, both)
        starts, lengths = both.offsets[:-1], np.diff(both.offsets)
        kept = np.arange(len(both.seqs)) - np.repeat(starts, lengths) < np.repeat(queries.wanted, lengths)
        kept &= both.scores >= np.repeat(least, lengths)
        offsets = np.concatenate(([0], np.cumsum(np.bincount(np.repeat(np.arange(queries.n), lengths)[kept], minlength=queries.n))))
        found = cls(queries, least)
        found.lists = RankedLists(offsets, *(column[kept] for column in both[1:]))
        return found

    def add(self, lists: RankedLists) -> None:
        """Add messages to each answer."""
        self.lists = _Best.added(self.queries, self._least, self.lists, lists).lists
