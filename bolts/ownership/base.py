"""The contract of what a subscription task does with placements and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
from dskype.bolts.initial_matches import Question
from dskype.bolts.message_queue import Arrived
from dskype.bolts.objects import StatePairs
from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.results.events import MATCH, SCORED_MATCH
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.topk.base import Changes
from dskype.bolts.topk_subscriptions import TopkSubscriptions
from dskype.spouts.streams import Placements, Results, Transfers

__all__ = ["OwnerStrategy", "ops_of_matches"]


def ops_of_matches(n: int, scores: np.ndarray | None) -> np.ndarray:
    """Return the op codes of ``n`` matches, int8[n]: whether they have scores, which are NaN where not; None: none has."""
    return np.full(n, MATCH, np.int8) if scores is None else np.where(np.isnan(scores), MATCH, SCORED_MATCH).astype(np.int8)


class OwnerStrategy(ABC):
    """Opens and ends the subscriptions of a task as placements say, and publishes their results.

    The subscription bolt makes one in ``prepare``.

    :param topk: the task's top-k subscriptions; ``boolean``: its boolean ones.
    :param publisher: publisher of results.
    :param counters: counters ``deltas``, ``matches``, ``unknown_unregistered`` and ``unknown_updated``.
    """

    def __init__(self, topk: TopkSubscriptions, boolean: BooleanSubscriptions, publisher: ResultPublisher, counters: Mapping[str, Any]) -> None:
        self._topk, self._boolean, self._publisher, self._counters = topk, boolean, publisher, counters

    @abstractmethod
    def place(self, placements: Placements, source: int) -> list[Question]:
        """Apply placements in order, from the distribution task ``source``; return what new boolean subscriptions ask of the window."""

    def receive_transfers(self, rows: Sequence[Transfers]) -> None:
        """Apply rows of the stream ``transfers``: subscriptions that other tasks have sent. Without replication there are none."""

    def ask(self, slots: np.ndarray) -> None:
        """Request the windows of pending slots."""
        self._topk.ask(slots)

    @abstractmethod
    def publish_changes(self, changes: Changes, before: int) -> None:
        """Publish the changes that messages made to lists; ``before`` is the watermark before they were applied."""

    @abstractmethod
    def resolve(self, slots: np.ndarray, answers: RankedLists) -> Changes:
        """Merge an answer for each slot into its list and publish these; return the changes, which name the slots that are due again."""

    def match(self, arrived: Arrived, pairs: StatePairs | None = None) -> None:
        """Publish the matches of boolean subscriptions, and what updates of objects mean to them; then end the subscriptions that have expired."""
        applied = [part for part in (arrived, None if pairs is None else pairs.states) if part is not None and part.messages.n]
        if not len(self._boolean) or not applied:
            return
        matches = self._boolean.match(arrived) if arrived.messages.n else None
        moves = None if pairs is None or not pairs.messages.n else self._boolean.compare(pairs)
        if pairs is None or moves is None or not len(moves[0]):
            if matches is not None and len(matches[0]):
                self._publish_matches(arrived, *matches)
        elif matches is None or not len(matches[0]):
            self._publish_moves(pairs.states, *moves)
        else:
            self._publish_in_turn(arrived, matches, pairs.states, moves)
        for slot in self._boolean.pop_expired(*applied):
            self._end_expired(slot)

    def _publish_in_turn(
        self, arrived: Arrived, matches: tuple[np.ndarray, np.ndarray, np.ndarray | None], states: Arrived, moves: tuple[np.ndarray, np.ndarray, np.ndarray]
    ) -> None:
        """Publish matches of messages without an object, and updates, by their positions: the watermarks of a subscription's results must not go back."""
        (rows, slots, scores), (updated, moved, ops) = matches, moves
        order = np.argsort(np.concatenate((arrived.messages.position[rows], states.messages.position[updated])), kind="stable")
        are_moves = order >= len(rows)
        ends = [*(np.flatnonzero(are_moves[1:] != are_moves[:-1]) + 1).tolist(), len(order)]
        for start, end in zip([0, *ends], ends):
            after = int(are_moves[:start].sum())
            if are_moves[start]:
                part = slice(after, after + end - start)
                self._publish_moves(states, updated[part], moved[part], ops[part])
            else:
                part = slice(start - after, end - after)
                self._publish_matches(arrived, rows[part], slots[part], None if scores is None else scores[part])

    def end_expired_topk(self, arrived: Arrived, pairs: StatePairs | None = None) -> None:
        """End the top-k subscriptions that have expired when these messages and updates, which have been applied, had arrived."""
        for slot in self._topk.pop_expired(arrived, pairs):
            self._end_expired_topk(slot)

    @abstractmethod
    def _publish_matches(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray, scores: np.ndarray | None) -> None:
        """Publish matches: row ``rows[i]`` matches the subscription in ``slots[i]``, with a score that is NaN if this needs none; None: none does."""

    @abstractmethod
    def _publish_moves(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray, ops: np.ndarray) -> None:
        """Publish updates of objects: row ``rows[i]`` of the states means ``ops[i]`` to the subscription in ``slots[i]``."""

    @abstractmethod
    def _end_expired(self, slot: int) -> None:
        """End the expired boolean subscription in a slot."""

    @abstractmethod
    def _end_expired_topk(self, slot: int) -> None:
        """End the expired top-k subscription in a slot."""

    def _matches(self, arrived: Arrived, rows: np.ndarray, slots: np.ndarray, ops: np.ndarray, scores: np.ndarray | None = None) -> Results:
        self._counters["matches"].inc(len(rows))
        names, registrations, metas = self._boolean.metadata.columns(slots)
        watermarks, messages = arrived.messages.position[rows], arrived.ids.take(pa.array(rows))
        return Results(subscription=names, registration=registrations, kind=ops, watermark=watermarks, message=messages, score=scores, meta=metas)

    def _at_once(self, n: int) -> list[slice]:
        """Return ``n`` results in the parts that are published at once."""
        step = self._publisher.rows_at_once or max(n, 1)
        return [slice(start, min(start + step, n)) for start in range(0, n, step)]

    def finish_watermark(self) -> None:
        """Do what waited for the present watermark. Default: nothing."""

    def tick(self, now_ms: int) -> None:
        """Do what is due by the clock. Default: nothing."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the state of the strategy as arrays and plain values, by keys of the bolt's snapshot."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot; the subscriptions themselves have been restored."""
