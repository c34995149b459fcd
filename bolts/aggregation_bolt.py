"""The aggregation bolt: merges the partial answers of all message tasks into one answer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.checks import require_component
from dskype.bolts.ranked_lists import RankedList, RankedLists
from dskype.spouts.streams import Answers, Partials
from dskype.topology.components import BatchBolt, OutputFieldsDeclarer
from dskype.topology.tuples import TupleBatch, column_to_list

__all__ = ["AggregationBolt"]


class _Collected(NamedTuple):
    """The partial answers to one request so far."""

    subscription: str
    count: int
    parts: list[RankedList]


class AggregationBolt(BatchBolt):
    """Waits for the partial answers of all message tasks to a request, and sends their best to the task that asked.

    Input: ``partials`` (fields(subscription), from the message bolt). Output: ``answers`` (direct, to the subscription bolt).
    The order in which partial answers come does not matter, because rank is a total order. Nothing is kept of a request
    that has been answered.

    :param message_bolt: id of the bolt whose tasks answer; default ``message-bolt``.
    """

    def __init__(self, message_bolt: str = "message-bolt") -> None:
        self._message_bolt = message_bolt

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Check that the topology has the message bolt."""
        require_component(topology, component_id, self._message_bolt, "The message bolt is not there.")

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare ``answers``."""
        declarer.declare_stream(Answers.name, Answers.fields, direct=True)

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Start without requests."""
        self._collector = collector
        self._tasks = len(context.get_component_tasks(self._message_bolt))
        self._collected: dict[tuple[int, int], _Collected] = {}  # by asking task and request
        context.register_gauge("pending_requests", lambda: len(self._collected))
        self._answered = context.register_counter("requests_answered")

    def execute_batch(self, batch: TupleBatch) -> None:
        """Collect partial answers, and send the answers that are now complete."""
        done: list[tuple[int, int, _Collected]] = []
        partials = Partials.of(batch)
        parts = RankedLists.of(partials).split(column_to_list(partials.ids))
        for (request, subscription, task, count), part in zip(partials.each("request", "subscription", "task", "count"), parts):
            collected = self._collected.get((task, request))
            if collected is None:
                collected = self._collected[task, request] = _Collected(subscription, count, [])
            collected.parts.append(part)
            if len(collected.parts) == self._tasks:
                del self._collected[task, request]
                done.append((task, request, collected))
        if done:
            self._send(done)

    def _send(self, done: list[tuple[int, int, _Collected]]) -> None:
        """Merge complete requests and send the answers, one batch per asking task."""
        done.sort(key=lambda entry: entry[0])  # stable: a task's answers stay in order of their completion
        parts = [part for _, _, collected in done for part in collected.parts]
        lengths = [sum(len(part.seqs) for part in collected.parts) for _, _, collected in done]
        merged, order = _merge(lengths, [collected.count for _, _, collected in done], parts)
        names = [name for part in parts for name in part.ids]
        names = [names[i] for i in order.tolist()]
        tasks = np.array([task for task, _, _ in done])
        starts = [0, *(np.flatnonzero(np.diff(tasks)) + 1).tolist(), len(done)]
        for first, stop in itertools.pairwise(starts):
            answers = Answers(
                request=np.array([request for _, request, _ in done[first:stop]], np.int64),
                subscription=[collected.subscription for _, _, collected in done[first:stop]],
                **merged.slice(first, stop).columns(names),
            )
            answers.emit_direct_batch(self._collector, int(tasks[first]))
        self._answered.inc(len(done))

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the partial answers to incomplete requests, as columns."""
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
        """Continue from a snapshot."""
        offsets = np.concatenate([[0], np.cumsum(state["lengths"])])
        parts = RankedLists(offsets, state["seqs"], state["positions"], state["scores"]).split(state["ids"])
        self._collected, start = {}, 0
        for task, request, subscription, count, n in zip(
            state["task"].tolist(), state["request"].tolist(), state["subscription"], state["count"].tolist(), state["parts"].tolist()
        ):
            self._collected[task, request] = _Collected(subscription, count, parts[start : start + n])
            start += n


def _concat(arrays: list[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)


def _merge(lengths: list[int], counts: list[int], parts: list[RankedList]) -> tuple[RankedLists, np.ndarray]:
    """Return the list of the best candidates of each group, and their indexes.

    :param lengths: number of candidates in each group; ``parts`` holds the candidates, group after group.
    :param counts: number of candidates wanted from each group.
    """
    seqs, positions = _concat([p.seqs for p in parts], np.int64), _concat([p.positions for p in parts], np.int64)
    scores = _concat([p.scores for p in parts], np.float64)
    group = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((-seqs, -positions, -scores, group))
    rank = np.arange(len(order)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    order = order[rank < np.repeat(counts, lengths)]
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.minimum(lengths, counts), out=offsets[1:])
    return RankedLists(offsets, seqs[order], positions[order], scores[order]), order
