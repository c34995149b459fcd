"""The aggregation bolt: merges what the message tasks have found into one answer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dskype.spouts.columns import csr_to_lists, lists_to_csr
from dskype.spouts.streams import ANSWERS, FIELDS
from dskype.topology.components import BatchBolt, OutputFieldsDeclarer
from dskype.topology.errors import InvalidTopologyException, explain
from dskype.topology.tuples import TupleBatch, column_to_list

__all__ = ["AggregationBolt"]


class _Part(NamedTuple):
    """What one message task has found."""

    seqs: np.ndarray
    positions: np.ndarray
    scores: np.ndarray
    ids: list[str]


class _Collected(NamedTuple):
    """What has come for a request so far."""

    subscription: str
    count: int
    parts: list[_Part]


class AggregationBolt(BatchBolt):
    """Waits for the partial answers of all message tasks to a request, and sends their best to the task that asked.

    Takes ``partials`` (fields(subscription), from the message bolt); emits ``answers`` (direct, to the subscription bolt).
    What the answer is does not depend on the order in which the partials come: rank is a total order. Nothing is kept
    of a request that has been answered.

    :param message_bolt: id of the bolt whose tasks answer; default ``message-bolt``.
    """

    def __init__(self, message_bolt: str = "message-bolt") -> None:
        self._message_bolt = message_bolt

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Check that the message bolt is there."""
        if self._message_bolt not in topology.components:
            raise InvalidTopologyException(
                explain("The message bolt is not there.", given=self._message_bolt, legal=", ".join(sorted(topology.components)), component=component_id)
            )

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare ``answers``."""
        declarer.declare_stream(ANSWERS, FIELDS[ANSWERS], direct=True)

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Get ready, empty."""
        self._collector = collector
        self._tasks = len(context.get_component_tasks(self._message_bolt))
        self._collected: dict[tuple[int, int], _Collected] = {}  # by asking task and request
        context.register_gauge("pending_requests", lambda: len(self._collected))
        self._answered = context.register_counter("requests_answered")

    def execute_batch(self, batch: TupleBatch) -> None:
        """Take partial answers, and send the answers that they complete."""
        done: list[tuple[int, int, _Collected]] = []
        requests, subscriptions, tasks, counts = (column_to_list(column) for column in batch.columns[:4])
        offsets, seqs = lists_to_csr(batch["seqs"], np.int64)
        positions, scores = lists_to_csr(batch["positions"], np.int64)[1], lists_to_csr(batch["scores"], np.float64)[1]
        ids = column_to_list(batch["ids"])
        bounds = offsets.tolist()
        for i, (request, subscription, task, count) in enumerate(zip(requests, subscriptions, tasks, counts)):
            collected = self._collected.get((task, request))
            if collected is None:
                collected = self._collected[task, request] = _Collected(subscription, count, [])
            start, stop = bounds[i], bounds[i + 1]
            collected.parts.append(_Part(seqs[start:stop], positions[start:stop], scores[start:stop], ids[i]))
            if len(collected.parts) == self._tasks:
                del self._collected[task, request]
                done.append((task, request, collected))
        if done:
            self._send(done)

    def _send(self, done: list[tuple[int, int, _Collected]]) -> None:
        """Merge completed requests and send them, those of one asking task together."""
        done.sort(key=lambda entry: entry[0])  # stable: a task's answers stay in order of their completion
        parts = [part for _, _, collected in done for part in collected.parts]
        lengths = [sum(len(part.seqs) for part in collected.parts) for _, _, collected in done]
        offsets, seqs, positions, scores, order = _merge(lengths, [collected.count for _, _, collected in done], parts)
        names = [name for part in parts for name in part.ids]
        names = [names[i] for i in order.tolist()]
        tasks = np.array([task for task, _, _ in done])
        starts = [0, *(np.flatnonzero(np.diff(tasks)) + 1).tolist(), len(done)]
        bounds = offsets.tolist()
        for first, stop in itertools.pairwise(starts):
            own = offsets[first : stop + 1]
            self._collector.emit_direct_batch(
                int(tasks[first]),
                [
                    np.array([request for _, request, _ in done[first:stop]], np.int64),
                    [collected.subscription for _, _, collected in done[first:stop]],
                    csr_to_lists(own, seqs),
                    csr_to_lists(own, positions),
                    csr_to_lists(own, scores),
                    [names[a:b] for a, b in zip(bounds[first:stop], bounds[first + 1 : stop + 1])],
                ],
                ANSWERS,
            )
        self._answered.inc(len(done))

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return what has come for requests that are not complete, by columns."""
        keys, entries = list(self._collected), list(self._collected.values())
        parts = [part for entry in entries for part in entry.parts]
        return {
            "task": np.array([task for task, _ in keys], np.int64),
            "request": np.array([request for _, request in keys], np.int64),
            "subscription": [entry.subscription for entry in entries],
            "count": np.array([entry.count for entry in entries], np.int64),
            "parts": np.array([len(entry.parts) for entry in entries], np.int64),
            "lengths": np.array([len(part.seqs) for part in parts], np.int64),
            **{
                name: _concat([getattr(part, name) for part in parts], dtype)
                for name, dtype in (("seqs", np.int64), ("positions", np.int64), ("scores", np.float64))
            },
            "ids": [part.ids for part in parts],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take it over."""
        bounds = np.concatenate([[0], np.cumsum(state["lengths"])]).tolist()
        parts = [_Part(state["seqs"][a:b], state["positions"][a:b], state["scores"][a:b], ids) for a, b, ids in zip(bounds, bounds[1:], state["ids"])]
        self._collected, start = {}, 0
        for task, request, subscription, count, n in zip(
            state["task"].tolist(), state["request"].tolist(), state["subscription"], state["count"].tolist(), state["parts"].tolist()
        ):
            self._collected[task, request] = _Collected(subscription, count, parts[start : start + n])
            start += n


def _concat(arrays: list[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)


def _merge(lengths: list[int], counts: list[int], parts: list[_Part]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (offsets, seqs, positions, scores, rows) of the best of each group of candidates, in rank order.

    :param lengths: how many candidates each group has; ``parts`` holds them group after group.
    :param counts: how many are wanted of each.
    :returns: ``rows`` says which candidates these are.
    """
    seqs, positions = _concat([p.seqs for p in parts], np.int64), _concat([p.positions for p in parts], np.int64)
    scores = _concat([p.scores for p in parts], np.float64)
    group = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((-seqs, -positions, -scores, group))
    rank = np.arange(len(order)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    order = order[rank < np.repeat(counts, lengths)]
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.minimum(lengths, counts), out=offsets[1:])
    return offsets, seqs[order], positions[order], scores[order], order
