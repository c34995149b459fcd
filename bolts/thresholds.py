"""The scores of threshold subscriptions, by slot."""

from __future__ import annotations

from typing import Any

import numpy as np

from dskype.bolts.arrays import grown
from dskype.bolts.topk import _kernels as kernels
from dskype.bolts.topk.table import SubscriptionTable, readable_messages
from dskype.distribution.subscriptions import Scorer
from dskype.spouts.batch import MessageBatch

__all__ = ["Thresholds"]


class Thresholds:
    """Scorers by slot: they decide which of the messages that an index has found reach the score of a subscription, and say what each scores.

    Scores have the bits of those of top-k subscriptions. Memory: 45 bytes for each slot up to the highest with a scorer, and those of its keywords.

    :param diagonal_deg: of the data space, degrees.
    """

    def __init__(self, diagonal_deg: float) -> None:
        self._diagonal_deg = diagonal_deg
        self._table = SubscriptionTable()
        self._scale_m = np.zeros(0)  # by slot
        self._rows = np.zeros(0, np.int32)  # by slot: its own number, because its keywords are in its own row
        self._size = 0

    def __bool__(self) -> bool:
        """Tell whether any slot has a scorer."""
        return self._size > 0

    def set(self, slot: int, scorer: Scorer) -> None:
        """Give an empty slot a scorer. O(keywords)."""
        terms, weights = np.asarray(scorer.terms, np.int64), np.asarray(scorer.weights, np.float64)
        place = (np.array([value]) for value in (scorer.lon, scorer.lat, scorer.alpha))
        self._insert(
            np.array([slot], np.int32), tuple(place), np.array([scorer.scale_m]), np.array([scorer.min_score]), (np.array([0, len(terms)]), terms, weights)
        )

    def _insert(self, slots: np.ndarray, place: tuple[np.ndarray, ...], scale_m: np.ndarray, min_scores: np.ndarray, lists: tuple[np.ndarray, ...]) -> None:
        """Fill empty slots, rising; the arguments are as in :meth:`SubscriptionTable.insert`."""
        self._table.insert(slots, *place, *lists)
        self._table.set_thresholds(slots, min_scores)
        if len(self._scale_m) < len(self._table):
            self._scale_m = grown(self._scale_m, len(self._table), 0.0)
            self._rows = np.arange(len(self._scale_m), dtype=np.int32)
        self._scale_m[slots] = scale_m
        self._size += len(slots)

    def clear(self, slot: int) -> None:
        """Empty a slot; nothing happens if it has no scorer."""
        if slot < len(self._table) and self._table.live[slot]:
            self._table.remove(np.array([slot], np.int32))
            self._size -= 1

    def keep(self, messages: MessageBatch, rows: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return those of the pairs in which the message reaches the slot's score, and all pairs of slots without one. O(words of the pairs).

        :param messages: with their weights; an area lies at its centre.
        :param rows, slots: int32[m].
        :returns: rows, slots and scores, float64[]; the score is NaN where the slot has no scorer.
        """
        table, scores = self._table, np.full(len(slots), np.nan)
        scored = slots < len(table)
        scored[scored] = table.live[slots[scored]]
        at = np.flatnonzero(scored)
        if not len(at):
            return rows, slots, scores
        scores[at] = kernels.scores_of_pairs(
            readable_messages(messages),
            np.ascontiguousarray(rows[at], np.int32),
            np.ascontiguousarray(slots[at], np.int32),
            self._rows,
            table.place,
            self._scale_m,
            table.keyword_arrays,
            table.terms.map.name,
            self._diagonal_deg,
        )
        kept = ~scored
        kept[at] = scores[at] >= table.place[slots[at], kernels.THRESHOLD]
        return rows[kept], slots[kept], scores[kept]

    def snapshot(self) -> Any:
        """Return the state as arrays."""
        state = self._table.snapshot()
        return {**state, "scale_m": self._scale_m[state["slots"]]}

    def restore(self, state: Any) -> None:
        """Continue from a snapshot; there is nothing yet."""
        columns = {name: np.array(column) for name, column in state.items()}
        place, lists = (tuple(columns[name] for name in names) for names in (("lon", "lat", "alpha"), ("offsets", "terms", "weights")))
        self._insert(columns["slots"], place, columns["scale_m"], columns["thresholds"], lists)
