"""The message bolt: keeps its part of the window, and answers requests exactly as of their watermarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.bolts.checks import require_component
from dskype.bolts.filters import Programs
from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.searches import Filter, WindowSearches
from dskype.bolts.window.base import WINDOWS, MessageWindow, QueryBatch, make_window
from dskype.bolts.window.decaying import DecayingWindow
from dskype.bolts.window.filtered import FilteredWindow
from dskype.distribution.subscriptions import from_map
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.columns import to_strings
from dskype.spouts.settings import Settings
from dskype.spouts.streams import Ends, Lookups, Partials, Progress, Requests, Window
from dskype.spouts.topics import Topics, topic_config
from dskype.topology.components import BatchBolt, OutputFieldsDeclarer
from dskype.topology.errors import IllegalArgumentException, explain
from dskype.topology.tuples import TupleBatch, column_to_list

__all__ = ["MessageBolt"]

_BEFORE_ALL = -1
_AT_ONCE = 256
"""Queries evaluated by one call: enough to share work, few enough to bound the memory for their answers."""


class _Arrived(NamedTuple):
    """Messages, with their ids and what filters look at."""

    messages: MessageBatch
    ids: pa.StringArray
    details: Details

    def select(self, rows: np.ndarray) -> _Arrived:
        return _Arrived(self.messages.select(rows), self.ids.take(pa.array(rows)), self.details.select(rows))

    @classmethod
    def concat(cls, parts: Sequence[_Arrived]) -> _Arrived:
        messages, ids, details = zip(*parts)
        return cls(MessageBatch.concat(messages), pa.concat_arrays(ids), Details.concat(details))


class _Asked(NamedTuple):
    """Queries with their filters, and who asks: numbers of requests, subscriptions and tasks. What boolean subscriptions ask is in ``filters``, which has None for others."""

    request: np.ndarray
    subscription: list[str]
    task: np.ndarray
    queries: QueryBatch
    programs: Programs
    filters: list[Mapping[str, Any] | None]

    def select(self, rows: np.ndarray) -> _Asked:
        names, filters = ([column[i] for i in rows.tolist()] for column in (self.subscription, self.filters))
        return _Asked(self.request[rows], names, self.task[rows], self.queries.select(rows), self.programs.select(rows), filters)

    @classmethod
    def concat(cls, parts: Sequence[_Asked]) -> _Asked:
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([p.request for p in parts]),
            [s for p in parts for s in p.subscription],
            np.concatenate([p.task for p in parts]),
            QueryBatch.concat([p.queries for p in parts]),
            Programs.concat([p.programs for p in parts]),
            [one for p in parts for one in p.filters],
        )


class MessageBolt(BatchBolt):
    """Evaluates subscriptions over the messages of its task, as of a past or present watermark.

    Input: ``window`` (direct, from distribution bolts: each message goes to one task), with ``dskype.objects`` ``ends`` (direct, from the same), ``requests`` and ``progress`` (all,
    from subscription bolts), and ``lookups`` (all, from distribution bolts). Output: ``partials`` (fields(subscription), to the aggregation bolt), and
    parts of the answers to searches, to their topic (:mod:`dskype.bolts.searches`).

    - Messages come from several distribution tasks. They are inserted in order of (position, seq) when the bolt's
      watermark passes them, so at watermark *w* the window holds exactly the messages up to *w*.
    - A state of an object that ends stays as long as others, and counts in windows of watermarks before its end.
    - A request at watermark *w* waits until the bolt's watermark reaches *w*. Requests that become answerable at the same
      time are evaluated together.
    - A message is kept as long as a request may need it: until every subscription task has announced (``progress``) a
      watermark whose window begins after it, and no waiting request needs it. A search comes at the watermark of a distribution task, which the bolt's own
      has not passed; so nothing is freed that a window at the bolt's own watermark has.

    The output follows from the inbox alone: a restored task that reads its inbox again emits the same.

    :param window_index: name of the window's implementation; default ``dskype.window.index`` of the configuration.
    :param window_index_options: its options; default ``dskype.window.index.options``, or none where ``window_index`` is given.
    :param subscription_bolt: id of the bolt whose tasks announce their progress; default ``subscription-bolt``.
    """

    def __init__(
        self, window_index: str | None = None, window_index_options: Mapping[str, Any] | None = None, subscription_bolt: str = "subscription-bolt"
    ) -> None:
        self._window_index, self._window_index_options = window_index, window_index_options
        self._subscription_bolt = subscription_bolt

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Check the settings, the window's name and options, and that the topology has the subscription bolt."""
        settings = Settings.from_conf(conf)
        if not self._make_window(settings).ends and settings.objects:
            raise IllegalArgumentException(
                explain(
                    "The window cannot take out a message before it leaves, as dskype.objects needs.",
                    given=self._window_index or settings.window_index,
                    legal=", ".join(sorted(name for name in WINDOWS if WINDOWS[name].ends)),
                    component=component_id,
                    hint="set dskype.window.index",
                )
            )
        if settings.objects and not any(stream == Ends.name for _, stream in topology.components[component_id].inputs):
            raise IllegalArgumentException(
                explain(
                    "dskype.objects needs a stream that the message bolt does not take.",
                    given=sorted(stream for _, stream in topology.components[component_id].inputs),
                    legal="ends: DIRECT, from the distribution bolt",
                    component=component_id,
                )
            )
        require_component(topology, component_id, self._subscription_bolt, "The subscription bolt is not there.")

    def external_topics(self, topology: str, conf: Mapping[str, Any]) -> dict[str, dict[str, str]]:
        """Return the topic of answers."""
        return {Topics.for_topology(topology).answers: topic_config(Settings.from_conf(conf))["answers"]}

    def _make_window(self, settings: Settings) -> MessageWindow:
        if self._window_index is None:
            options = settings.window_index_options if self._window_index_options is None else self._window_index_options
            return make_window(settings.window_index, options)
        return make_window(self._window_index, self._window_index_options)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare ``partials``."""
        declarer.declare_stream(Partials.name, Partials.fields)

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Start with an empty window."""
        settings = Settings.from_conf(conf)
        self._extent, self._diagonal_deg = settings.extent, settings.space.diagonal_deg
        self._collector = collector
        window = self._make_window(settings)
        self._window = FilteredWindow(window if settings.half_life_ms is None else DecayingWindow(window, settings.half_life_ms))
        self._searches = WindowSearches(self._window, settings, context, collector)
        self._askers = len(context.get_component_tasks(self._subscription_bolt))
        self._watermark = _BEFORE_ALL
        self._ahead: list[_Arrived] = []  # messages above the watermark
        self._ends: list[np.ndarray] = []  # int64[3, n]: sequence number, position and end of messages that end above the watermark
        self._waiting: list[_Asked] = []  # requests above the watermark
        self._progress: dict[int, int] = {}  # subscription task -> the watermark it announced
        self._freed: int | None = None  # no request can need positions up to here
        context.register_gauge("window_messages", lambda: len(self._window))
        context.register_gauge("window_bytes", lambda: self._window.memory_bytes)
        context.register_gauge("pending_requests", lambda: sum(len(r.request) for r in self._waiting))
        self._answered = context.register_counter("requests_answered")

    # -- input ------------------------------------------------------------------------------------

    def execute_batch(self, batch: TupleBatch) -> None:
        """Handle messages, requests or progress."""
        stream = batch.get_source_stream_id()
        if stream == Window.name:
            self._receive_messages(batch)
        elif stream == Requests.name:
            self._receive_requests(batch)
        elif stream == Ends.name:
            ends = Ends.of(batch)
            self._ends.append(np.stack([np.asarray(column, np.int64) for column in (ends.seq, ends.since, ends.position)]))
        elif stream == Progress.name:
            task = batch.get_source_task()
            self._progress[task] = max(self._progress.get(task, _BEFORE_ALL), *map(int, Progress.of(batch).watermark))
            self._free()
        elif stream == Lookups.name:
            self._searches.receive(Lookups.of(batch), self._watermark, self._freed)
        else:
            raise IllegalArgumentException(
                explain(
                    "The message bolt does not take this stream.",
                    given=stream,
                    legal=f"{Window.name}, {Ends.name}, {Requests.name}, {Progress.name}, {Lookups.name}",
                    component=batch.get_source_component(),
                )
            )

    def on_watermark(self, watermark: int) -> None:
        """Insert the messages up to ``watermark``, and answer the requests up to it."""
        self._watermark = watermark
        self._free()
        self._insert_due()
        if self._ends:
            self._end_due()
        due, self._waiting = _split(self._waiting, watermark)
        if due:
            self._answer(_Asked.concat(due))
        self._searches.answer(watermark, self._freed)
        if due:
            self._free()

    def _receive_messages(self, batch: TupleBatch) -> None:
        received = Window.of(batch)
        arrived = _Arrived(MessageBatch.of(received, copy=False), to_strings(received.id), Details.of(received))
        position = arrived.messages.position
        late = position <= self._watermark
        if late.any():
            self._collector.report_error(
                explain(
                    f"{late.sum()} messages have come behind the watermark and are left out.",
                    given=f"position {position[late][0]}",
                    legal=f"above {self._watermark}",
                    hint="a task upstream announced a watermark before all of its messages were sent",
                )
            )
            arrived = arrived.select(np.flatnonzero(~late))
        if arrived.messages.n:
            self._ahead.append(arrived)

    def _receive_requests(self, batch: TupleBatch) -> None:
        requests, tasks = Requests.of(batch), np.full(batch.n, batch.get_source_task(), np.int64)
        asked = _Asked(
            np.asarray(requests.request, np.int64),
            column_to_list(requests.subscription),
            tasks,
            QueryBatch.of(requests),
            Programs.of(requests.programs, batch.n),
            column_to_list(requests.filter),
        )
        due, later = _split([asked], self._watermark)
        self._waiting += later
        if due:
            self._answer(due[0])

    # -- window -----------------------------------------------------------------------------------

    def _insert_due(self) -> None:
        """Insert the messages that the watermark has passed, in order."""
        due, ahead = [], []
        for arrived in self._ahead:
            passed = arrived.messages.position <= self._watermark
            if passed.all():
                due.append(arrived)
            elif not passed.any():
                ahead.append(arrived)
            else:
                due.append(arrived.select(np.flatnonzero(passed)))
                ahead.append(arrived.select(np.flatnonzero(~passed)))
        if not due:
            return
        self._ahead = ahead
        arrived = _Arrived.concat(due)
        position = arrived.messages.position
        order = np.lexsort((arrived.messages.seq, position))
        if self._freed is not None:
            order = order[position[order] > self._freed]
        if len(order) < len(position) or (order[1:] < order[:-1]).any():
            arrived = arrived.select(order)
        self._window.insert(*arrived)

    def _end_due(self) -> None:
        """Let messages end that the watermark has passed, and that are in the window if they have not been freed."""
        ends = np.concatenate(self._ends, axis=1)
        due = ends[2] <= self._watermark
        self._ends = [] if due.all() else [ends[:, ~due]]
        self._window.end(*ends[:, due])

    def _free(self) -> None:
        """Forget the messages that no request can need."""
        if len(self._progress) < self._askers or not self._progress:
            return
        waiting = (int(r.queries.watermark.min()) for r in self._waiting)
        lowest = min([self._watermark, *self._progress.values(), *waiting, *self._searches.watermarks()])
        if self._freed is None or lowest - self._extent > self._freed:
            self._freed = lowest - self._extent
            self._window.free(self._freed)

    # -- answers ----------------------------------------------------------------------------------

    def _answer(self, asked: _Asked) -> None:
        """Evaluate requests whose watermark is reached, and send the partial answers."""
        watermark = asked.queries.watermark
        before = watermark <= _BEFORE_ALL  # asked before the first message: the window was empty
        if self._freed is not None:
            gone = ~before & (watermark < self._freed + self._extent)
            if gone.any():
                self._collector.report_error(
                    explain(
                        f"{gone.sum()} requests are below the watermark that was announced; they are not answered.",
                        given=f"watermark {watermark[gone][0]}",
                        legal=f"{self._freed + self._extent} and above",
                        hint="a subscription bolt must announce nothing above what it may still ask for",
                    )
                )
                rows = np.flatnonzero(~gone)
                asked, before = asked.select(rows), before[rows]
        for start in range(0, len(asked.request), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(asked.request)))
            part = asked if len(rows) == len(asked.request) else asked.select(rows)
            self._send(part, self._evaluate(part, before[rows]))
        self._answered.inc(len(asked.request))

    def _evaluate(self, asked: _Asked, before: np.ndarray) -> RankedLists:
        """Return a list for each request; those of ``before`` (bool[]) are empty."""
        boolean = np.array([one is not None for one in asked.filters], np.bool_)
        rows = np.flatnonzero(~(before | boolean))
        some = asked if len(rows) == len(before) else asked.select(rows)
        found = self._window.topk(some.queries, self._extent, self._diagonal_deg, programs=some.programs)
        if some is asked:
            return found
        parts = [(rows, found)]
        for row, one in enumerate(asked.filters):
            if one is not None and not before[row]:
                newest = self._searches.newest(int(asked.queries.watermark[row]), from_map(Filter, one))
                n = len(newest.seqs)
                parts.append((np.array([row]), RankedLists(np.array([0, n]), newest.seqs, newest.positions, np.zeros(n))))
        return RankedLists.joined(parts, len(before))

    def _send(self, asked: _Asked, answers: RankedLists) -> None:
        lists = answers.columns(self._window.ids(answers.seqs, answers.positions))
        Partials(request=asked.request, subscription=asked.subscription, task=asked.task, count=asked.queries.wanted, **lists).emit_batch(self._collector)

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the window, and the messages and requests that wait."""
        return {
            "window": self._window.snapshot(),
            "watermark": self._watermark,
            "freed": self._freed,
            "progress": dict(self._progress),
            "ahead": [[messages.columns(), ids, list(details)] for messages, ids, details in self._ahead],
            **({"ends": np.concatenate(self._ends, axis=1)} if self._ends else {}),
            "searches": self._searches.snapshot(),
            "waiting": [[r.request, r.subscription, r.task, list(r.queries), list(r.programs), r.filters] for r in self._waiting],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._window.restore(state["window"])
        self._watermark, self._freed, self._progress = state["watermark"], state["freed"], dict(state["progress"])
        self._ahead, self._waiting = [], []  # those in snapshots of earlier versions have no details, no programs and no filters
        for columns, ids, *rest in state["ahead"]:
            messages = MessageBatch(*columns)
            self._ahead.append(_Arrived(messages, to_strings(ids), Details(*rest[0]) if rest else Details.empty(messages.n)))
        self._ends = [np.array(state["ends"])] if "ends" in state else []
        self._searches.restore(state.get("searches", ()))
        for request, subscription, task, queries, *rest in state["waiting"]:
            programs = Programs(*rest[0]) if rest else Programs.of(None, len(request))
            filters = list(rest[1]) if len(rest) > 1 else [None] * len(request)
            self._waiting.append(_Asked(request, subscription, task, QueryBatch(*queries), programs, filters))


def _split(parts: list[_Asked], watermark: int) -> tuple[list[_Asked], list[_Asked]]:
    """Return the requests up to ``watermark``, and the others, both in order."""
    due: list[_Asked] = []
    later: list[_Asked] = []
    for part in parts:
        reached = (part.queries.watermark <= watermark) | (part.queries.watermark <= _BEFORE_ALL)
        if reached.all() or not reached.any():
            (due if reached.any() else later).append(part)
        else:
            due.append(part.select(np.flatnonzero(reached)))
            later.append(part.select(np.flatnonzero(~reached)))
    return due, later
