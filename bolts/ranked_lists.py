"""Lists of results in rank order: higher score first, then newer (position, then sequence number) first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.spouts.batch import select_lists
from dskype.spouts.columns import csr_to_lists, lists_to_csr
from dskype.spouts.streams import Answers, Partials

__all__ = ["RankedList", "RankedLists"]


class RankedList(NamedTuple):
    """A list in rank order, as columns: numbers as arrays or lists, ``ids`` of messages as JSON text."""

    seqs: Any
    positions: Any
    scores: Any
    ids: Any

    def rows(self) -> list[tuple[int, int, float, str]]:
        """Return (seq, position, score, id) of each message."""
        return list(zip(*(column.tolist() if isinstance(column, np.ndarray) else column for column in self), strict=True))


class RankedLists(NamedTuple):
    """Many lists in rank order.

    :ivar offsets: int64[n + 1]; list *i* is ``offsets[i]:offsets[i + 1]`` of the other arrays.
    :ivar seqs: int64[], sequence numbers of messages.
    :ivar positions: int64[].
    :ivar scores: float64[].
    """

    offsets: np.ndarray
    seqs: np.ndarray
    positions: np.ndarray
    scores: np.ndarray

    @classmethod
    def of(cls, batch: Partials | Answers) -> RankedLists:
        """Return the lists in a batch; their arrays may be read-only views of the frame."""
        offsets, seqs = lists_to_csr(batch.seqs, np.int64)
        return cls(offsets, seqs, lists_to_csr(batch.positions, np.int64)[1], lists_to_csr(batch.scores, np.float64)[1])

    @classmethod
    def joined(cls, parts: Sequence[tuple[np.ndarray, RankedLists]], n: int) -> RankedLists:
        """Return one list for each of ``n`` queries, from lists of some of them, each once; the others get none.

        :param parts: numbers of queries (int64[]), and a list for each.
        """
        owner = np.concatenate([np.repeat(rows, np.diff(lists.offsets)) for rows, lists in parts])
        order = np.argsort(owner, kind="stable")
        columns = (np.concatenate([lists[i] for _, lists in parts])[order] for i in (1, 2, 3))
        return cls(np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=n)))), *columns)

    def columns(self, ids: Sequence[str]) -> dict[str, Any]:
        """Return the columns of :class:`Partials` and :class:`Answers` that hold the lists.

        :param ids: of all messages, as JSON text.
        """
        numbers = {name: csr_to_lists(self.offsets, getattr(self, name)) for name in ("seqs", "positions", "scores")}
        return {**numbers, "ids": self.cut(ids)}

    def cut(self, ids: Sequence[str]) -> list[Sequence[str]]:
        """Cut the ids of all messages into those of each list."""
        return [ids[start:stop] for start, stop in itertools.pairwise(self.offsets.tolist())]

    def split(self, ids: Sequence[Sequence[str]]) -> list[RankedList]:
        """Return each list; the arrays are not copied.

        :param ids: of the messages of each list, as JSON text.
        """
        _, seqs, positions, scores = self
        bounds = itertools.pairwise(self.offsets.tolist())
        return [RankedList(seqs[a:b], positions[a:b], scores[a:b], names) for (a, b), names in zip(bounds, ids, strict=True)]

    def select(self, rows: np.ndarray) -> tuple[RankedLists, np.ndarray]:
        """Return the lists at ``rows`` (int64[]), in that order, and the indexes of their messages in the arrays."""
        offsets, index = select_lists(self.offsets, rows)
        return RankedLists(offsets, self.seqs[index], self.positions[index], self.scores[index]), index

    def slice(self, start: int, stop: int) -> RankedLists:
        """Return the lists from ``start`` up to ``stop``, without a copy; their offsets need not begin at 0."""
        return self._replace(offsets=self.offsets[start : stop + 1])
