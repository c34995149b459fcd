"""Searches at a message task: each is looked up in the task's part of the window as of its watermark, and the part of the answer is written to its topic."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.filters import Programs
from dskype.bolts.window.base import QueryBatch
from dskype.bolts.window.filtered import FilteredWindow
from dskype.distribution.subscriptions import TopkSubscription, from_map
from dskype.spouts.settings import Settings
from dskype.spouts.streams import Lookups
from dskype.spouts.topics import Topics

__all__ = ["Filter", "Found", "WindowSearches"]

_BEFORE_ALL = -1
_WAITING_MOST = 1000
"""Searches of one task that wait for its watermark; further ones are refused."""


class Filter(NamedTuple):
    """A boolean search with term ids.

    :ivar k: the most messages that the answer names, the newest ones.
    :ivar bbox: west, south, east, north in degrees.
    :ivar region, program, terms: see :meth:`~dskype.bolts.window.filtered.FilteredWindow.matching`.
    """

    k: int
    bbox: Any
    region: Any = None
    program: Any = None
    terms: Any = None

    def encode(self) -> dict[str, Any]:
        """Return the map that travels."""
        return {"type": "boolean", **self._asdict()}


class Found(NamedTuple):
    """Messages in the order of an answer: numbers int64[], positions int64[], scores float64[] or None; and how many match in all, if that is known."""

    seqs: np.ndarray
    positions: np.ndarray
    scores: np.ndarray | None
    total: int | None


class WindowSearches:
    """Answers the searches of a message task.

    :param window: of the task.
    :param settings: of the topology.
    :param context: of the task.
    :param collector: of the bolt.
    """

    def __init__(self, window: FilteredWindow, settings: Settings, context: Any, collector: Any) -> None:
        self._window, self._collector = window, collector
        self._extent, self._diagonal_deg = settings.extent, settings.space.diagonal_deg
        self._topic = Topics.for_topology(context.plan.name).answers
        self._task, self._tasks = context.get_this_task_id(), context.get_component_tasks(context.get_this_component_id())
        self._waiting: list[tuple[str, int, Mapping[str, Any]]] = []  # those above the watermark: id, watermark, record
        self._answered, self._refused = context.register_counter("answered_searches"), context.register_counter("refused_searches")

    def receive(self, lookups: Lookups, watermark: int, freed: int | None) -> None:
        """Answer searches, or keep them until the task has reached their watermarks.

        :param watermark: of the task; ``freed``: the highest position that was freed.
        """
        for search in lookups.each("search", "watermark", "record"):
            if len(self._waiting) < _WAITING_MOST or search[1] <= watermark:
                self._waiting.append(search)
            else:
                self._refuse(search[0], "too-many", f"{_WAITING_MOST} searches wait for a task of the message bolt already; try again later")
        self.answer(watermark, freed)

    def watermarks(self) -> list[int]:
        """Return the watermarks of the searches that wait."""
        return [watermark for _, watermark, _ in self._waiting]

    def answer(self, watermark: int, freed: int | None) -> None:
        """Answer the searches whose watermark is reached."""
        if not self._waiting:
            return
        due = [search for search in self._waiting if search[1] <= watermark or search[1] <= _BEFORE_ALL]
        self._waiting = [search for search in self._waiting if not (search[1] <= watermark or search[1] <= _BEFORE_ALL)]
        there = [s for s in due if s[1] > _BEFORE_ALL and (freed is None or s[1] - self._extent >= freed)]
        ranked = [s for s in there if s[2]["type"] == "topk"]
        found = dict(zip((s[0] for s in ranked), self._topk([s[1] for s in ranked], [from_map(TopkSubscription, s[2]) for s in ranked])))
        kept = {s[0] for s in there}
        for name, at, record in due:
            if at <= _BEFORE_ALL:
                none = np.zeros(0, np.int64)
                self._send(name, at, Found(none, none, None, 0 if record["type"] == "boolean" else None))
            elif name not in kept:
                self._refuse(name, "gone", f"the window of watermark {at} is no longer there; try again")
            else:
                self._send(name, at, found[name] if name in found else self.matching(at, from_map(Filter, record)))

    def _topk(self, watermarks: Sequence[int], asked: Sequence[TopkSubscription]) -> list[Found]:
        if not asked:
            return []
        terms = [np.asarray(s.terms, np.int64) for s in asked]
        alpha, lat, lon = (np.array([getattr(s, name) for s in asked], np.float64) for name in ("alpha", "lat", "lon"))
        queries = QueryBatch(
            np.array(watermarks, np.int64),
            np.array([s.k for s in asked], np.int64),
            alpha,
            lat,
            lon,
            np.cumsum([0, *map(len, terms)]),
            np.concatenate(terms),
            np.concatenate([np.asarray(s.weights, np.float64) for s in asked]),
            np.array([s.scale_m or 0.0 for s in asked]) if any(s.scale_m for s in asked) else None,
        )
        steps = [np.asarray([] if s.program is None else s.program, np.int64) for s in asked]
        programs = Programs(np.cumsum([0, *map(len, steps)]), np.concatenate(steps))
        offsets, seqs, positions, scores = self._window.topk(queries, self._extent, self._diagonal_deg, programs=programs)
        return [Found(seqs[a:b], positions[a:b], scores[a:b], None) for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist())]

    def matching(self, watermark: int, asked: Filter) -> Found:
        """Return the newest messages of the window at a watermark that satisfy a filter, newest first. O(messages of the window)."""
        seqs, positions = self._window.matching((watermark - self._extent, watermark), asked.bbox, asked.region, asked.program, asked.terms)
        return Found(seqs[::-1][: asked.k], positions[::-1][: asked.k], None, len(seqs))

    def newest(self, watermark: int, asked: Filter) -> Found:
        """Return the same messages, and do not count the others: none is looked at that is much older than the last of them."""
        seqs, positions = self._window.matching((watermark - self._extent, watermark), asked.bbox, asked.region, asked.program, asked.terms, asked.k)
        return Found(seqs[::-1], positions[::-1], None, None)

    def _send(self, name: str, watermark: int, found: Found) -> None:
        """Write the task's part of an answer. Ids of messages are JSON text, with the fields of results behind them."""
        ids = self._window.ids(found.seqs, found.positions) if len(found.seqs) else []
        lats, lons = (column.tolist() for column in self._window.places_of(found.seqs, found.positions))
        scores = [None] * len(ids) if found.scores is None else found.scores.tolist()
        entries = []
        for id, score, lat, lon, position, seq in zip(ids, scores, lats, lons, found.positions.tolist(), found.seqs.tolist()):
            place = "" if math.isnan(lat) else f',"lat":{lat!r},"lon":{lon!r}'
            entries.append(f'{{"message":{id}{"" if score is None else f""","score":{score!r}"""}{place},"position":{position},"seq":{seq}}}')
        count = "" if found.total is None else f',"count":{found.total}'
        head = json.dumps({"v": 1, "search": name, "task": self._task, "tasks": list(self._tasks), "watermark": watermark})[:-1]
        self._collector.send_record(self._topic, name.encode(), f'{head}{count},"results":[{",".join(entries)}]}}'.encode())
        self._answered.inc()

    def _refuse(self, name: str, code: str, error: str) -> None:
        self._refused.inc()
        self._collector.send_record(self._topic, name.encode(), json.dumps({"v": 1, "search": name, "error": error, "code": code}).encode())

    def snapshot(self) -> list[list[Any]]:
        """Return the searches that wait."""
        return [list(search) for search in self._waiting]

    def restore(self, state: Sequence[Sequence[Any]]) -> None:
        """Continue from a snapshot."""
        self._waiting = [(name, watermark, record) for name, watermark, record in state]
