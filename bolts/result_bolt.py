"""The result bolt: writes results to Kafka and whole top-k states to the configured store."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np

from dskype.bolts.merging import Merger, Removed, Whole
from dskype.bolts.results import make_store
from dskype.bolts.results.base import Opening, Removal, State, run_of
from dskype.bolts.results.buffer import StateBuffer
from dskype.bolts.results.formats import MATCH, heads
from dskype.bolts.results.kafka_store import KafkaStore
from dskype.bolts.results.publisher import ResultPublisher
from dskype.distribution import distributor_class
from dskype.spouts import streams
from dskype.spouts.columns import to_strings
from dskype.spouts.settings import Settings
from dskype.topology.components import BatchBolt
from dskype.topology.config import Config

__all__ = ["ResultBolt"]


class ResultBolt(BatchBolt):
    """Takes streams ``results`` and ``lists``, grouped by subscription, from subscription bolts (see :class:`ResultPublisher`).

    With a distributor that replicates it also takes ``registrations`` from distribution bolts, and merges what replicas have found:
    see :mod:`dskype.bolts.merging.merger`.

    Deltas and events go to Kafka; states go to the store ``dskype.store``, and with the store's option ``topic`` to Kafka as
    well. All of it is encoded here, so the work is spread over this bolt's tasks.

    A store outside Kafka may be away. Then states wait in this bolt's state, the newest per subscription, and are tried again
    with every batch and every tick; metrics ``states-waiting``, ``states-written``, ``states-stale`` and ``store-failures``
    tell, and the outage is reported once. Nothing else waits for the store, but a call may take its timeout.

    :param tick_secs: how often to try again when no results come; None: no ticks (for the store ``kafka``, which needs none).
    """

    def __init__(self, tick_secs: int | None = 2) -> None:
        self._tick_secs = tick_secs

    def get_component_configuration(self) -> dict[str, Any] | None:
        """Ask for ticks."""
        return None if self._tick_secs is None else {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: self._tick_secs}

    def wants_watermarks(self, conf: Mapping[str, Any]) -> bool:
        """Only what is merged waits for watermarks."""
        return distributor_class(Settings.from_conf(conf).distributor).replicates

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Refuse an unknown store and options that it cannot use."""
        settings = Settings.from_conf(conf)
        make_store(settings.store, settings.store_options)

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Open the store; a server that is away is no reason not to start."""
        settings = Settings.from_conf(conf)
        topology, run = context.plan.name, run_of(context.get_storm_id())
        self._collector = collector
        self._publisher = ResultPublisher(collector, topology, settings, via_bolt=True, run=run)
        self._store = make_store(settings.store, settings.store_options)
        self._store.open(Opening(topology, run, collector))
        self._topic: KafkaStore | None = None
        self._buffer: StateBuffer | None = None
        if self._store.in_log:
            self._topic = self._store
        else:
            self._buffer = StateBuffer(self._store, run, collector.report_error, lambda: context.now_ms() / 1000)
            if getattr(self._store, "topic", False):
                self._topic = KafkaStore()
                self._topic.open(Opening(topology, run, collector))
        self._settings, self._context = settings, context
        self._merger = Merger(settings.extent, self._publisher.wants_states) if distributor_class(settings.distributor).replicates else None
        self._matches: list[tuple[Any, ...]] = []  # columns of matches above the watermark
        self._written_ms = 0
        if self._merger is not None:
            context.register_gauge("merged", lambda: len(self._merger))
        self._counters = {name: context.register_counter(name) for name in ("states-waiting", "states-written", "states-stale", "store-failures")}

    # -- input ----------------------------------------------------------------------------------------------------------

    def execute_batch(self, batch: Any) -> None:
        """Write one frame's results, or merge them."""
        stream = batch.get_source_stream_id()
        if stream == streams.RESULTS:
            self._take_deltas(batch)
        elif stream == streams.LISTS:
            self._take_lists(batch)
        elif self._merger is not None:
            for subscription, registration, event, record in batch.rows():
                (self._merger.begin if event == "begin" else self._merger.end)(subscription, registration, **record)
        if self._merger is not None:
            self._write_merged()

    def on_watermark(self, watermark: int) -> None:
        """Publish what has waited for the watermark."""
        if self._merger is not None:
            self._write_matches(watermark)
            self._merger.advance(watermark)
            self._write_merged()

    def _take_deltas(self, batch: Any) -> None:
        subscriptions, registrations, kinds, watermarks, messages, scores, ranks, metas, seqs, positions = batch.columns
        columns = [
            to_strings(subscriptions),
            to_strings(registrations),
            np.asarray(kinds),
            np.asarray(watermarks),
            to_strings(messages),
            np.asarray(scores),
            np.asarray(ranks),
            to_strings(metas),
        ]
        if self._merger is not None:
            rows = self._left_by_merger(batch.get_source_task(), columns, np.asarray(seqs), np.asarray(positions))
            if not self._publisher.wants_deltas:
                return
            if rows is not None:
                columns = _take(columns, rows)
        self._write_deltas(*columns)

    def _left_by_merger(self, task: int, columns: list[Any], seqs: np.ndarray, positions: np.ndarray) -> np.ndarray | None:
        """Keep matches, and changes that are to be merged; return the rows that are to be written at once, None for all."""
        _, registrations, kinds, watermarks, messages, scores, _, _ = columns
        found = kinds == MATCH
        if not found.any():
            left = self._merger.change(task, registrations, kinds, watermarks, seqs, positions, scores, messages)
            return None if left.all() else np.flatnonzero(left)
        rows, others = np.flatnonzero(found), np.flatnonzero(~found)
        self._matches.append((*_take(columns, rows), seqs[rows]))
        if not len(others):
            return others
        return others[self._merger.change(task, *_take([registrations, kinds, watermarks, seqs, positions, scores, messages], others))]

    def _take_lists(self, batch: Any) -> None:
        items: list[Whole | Removed] = []
        merger, task = self._merger, batch.get_source_task()
        for subscription, kind, record in batch.rows():
            if kind == "topk":
                if merger is not None and merger.owns(record[0], task):
                    merger.changed(record[0])
                else:
                    items.append(Removed(subscription, *record[:2]) if record[2] is None else Whole(subscription, *record))
            elif kind == "event":
                self._publisher.write_event(subscription, *record)
            elif kind == "replica":
                merger.replica(subscription, task, record)
            elif kind == "drop":
                merger.drop(task, record)
            else:
                merger.gone(subscription, task, record)
        if items:
            self._write_states(self._encoded(items))

    def _write_deltas(
        self, subscriptions: Any, registrations: Any, ops: np.ndarray, watermarks: np.ndarray, messages: Any, scores: np.ndarray, ranks: np.ndarray, metas: Any
    ) -> None:
        import pyarrow.compute as pc

        if not len(ops):
            return
        none = pc.equal(metas, "")
        metas = None if pc.all(none).as_py() else pc.if_else(none, None, metas)
        self._publisher.write_deltas(heads(subscriptions, registrations, metas), ops, messages, watermarks, scores, ranks)

    def _write_matches(self, watermark: int) -> None:
        """Write the matches up to a watermark, each once: several tasks may have found one."""
        if not self._matches:
            return
        columns = [_concat(parts) for parts in zip(*self._matches)]
        due = columns[3] <= watermark
        self._matches = [] if due.all() else [tuple(_take(columns, np.flatnonzero(~due)))]
        columns = _take(columns, np.flatnonzero(due))
        if not len(columns[2]):
            return
        codes, seqs = columns[1].dictionary_encode().indices.to_numpy(), columns[8]
        order = np.lexsort((seqs, columns[3], codes))
        once = np.ones(len(order), bool)
        once[1:] = (codes[order[1:]] != codes[order[:-1]]) | (seqs[order[1:]] != seqs[order[:-1]])
        rows = order[once]
        self._write_deltas(*_take(columns[:8], rows[np.argsort(columns[3][rows], kind="stable")]))

    def _write_merged(self) -> None:
        """Write what the merger has to be published; lists at most every ``topk_interval_ms``."""
        merger, settings, now_ms = self._merger, self._settings, self._context.clock_ms()
        if self._publisher.wants_states and now_ms - self._written_ms >= settings.topk_interval_ms and merger.write_lists():
            self._written_ms = now_ms
        deltas, steady, events, items, lists = merger.taken()
        for event in events:
            self._publisher.write_event(*event)
        if self._publisher.wants_deltas:
            if steady is not None:
                names, registrations, metas, ops, messages, scores, ranks, watermarks = steady
                self._publisher.write_deltas(heads(names, registrations, metas), ops, messages, watermarks, scores, ranks)
            if deltas:
                names, registrations, metas, ops, messages, scores, ranks, watermarks = zip(*deltas)
                shared = heads(list(names), list(registrations), None if all(meta is None for meta in metas) else list(metas))
                self._publisher.write_deltas(
                    shared, np.array(ops, np.int8), list(messages), np.array(watermarks, np.int64), np.array(scores), np.array(ranks, np.int32)
                )
        if self._publisher.wants_states:
            if items:
                self._write_states(self._encoded(items))
            if lists is not None:
                names, registrations, offsets, messages, scores = lists
                self._write_states(
                    self._publisher.encode_states(names.tolist(), registrations.tolist(), [merger.watermark] * len(names), offsets, messages, scores)
                )

    def _encoded(self, items: list[Whole | Removed]) -> list[State | Removal]:
        """Return lists with their JSON, and removals."""
        wholes = [item for item in items if not isinstance(item, Removed)]
        if not wholes:
            return [Removal(*item) for item in items]
        names, registrations, watermarks, messages, scores = zip(*wholes)
        states = iter(
            self._publisher.encode_states(
                list(names),
                list(registrations),
                list(watermarks),
                np.cumsum([0, *map(len, messages)]),
                [m for part in messages for m in part],
                np.array([s for part in scores for s in part], np.float64),
            )
        )
        return [Removal(*item) if isinstance(item, Removed) else next(states) for item in items]

    def _write_states(self, items: list[State | Removal]) -> None:
        if self._topic is not None:
            for removals, group in groupby(items, lambda item: isinstance(item, Removal)):
                (self._topic.remove if removals else self._topic.put)(list(group))
        if self._buffer is not None:
            self._buffer.add(items)
            self._flush()

    def execute_tick(self, tup: Any) -> None:
        """Try to write what waits."""
        if self._merger is not None:
            self._write_merged()
        if self._buffer is not None:
            self._flush()

    def _flush(self) -> None:
        buffer = self._buffer
        before = buffer.written, buffer.stale, buffer.failures
        buffer.flush()
        for name, old, new in zip(("states-written", "states-stale", "store-failures"), before, (buffer.written, buffer.stale, buffer.failures)):
            self._counters[name].inc(new - old)
        waiting = self._counters["states-waiting"]
        waiting.inc(len(buffer) - waiting.get_count())

    def cleanup(self) -> None:
        """Try once more, and close."""
        if self._buffer is not None:
            self._flush()
        self._store.close()

    # -- state ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return what waits for the store, for replicas or for the watermark."""
        return {
            "v": 1,
            "waiting": [] if self._buffer is None else self._buffer.snapshot(),
            "written_ms": self._written_ms,
            "merger": None if self._merger is None else self._merger.snapshot(),
            "matches": [list(columns) for columns in self._matches],
        }

    def restore(self, state: Any) -> None:
        """Take over what waited."""
        if self._buffer is not None:
            self._buffer.restore(state["waiting"])
        self._written_ms = state.get("written_ms", 0)
        if self._merger is not None and state.get("merger") is not None:
            self._merger.restore(state["merger"])
            self._matches = [tuple(np.array(c) if isinstance(c, np.ndarray) else to_strings(c) for c in columns) for columns in state["matches"]]


def _take(columns: list[Any], rows: np.ndarray) -> list[Any]:
    import pyarrow as pa

    index = pa.array(rows)
    return [column[rows] if isinstance(column, np.ndarray) else column.take(index) for column in columns]


def _concat(parts: Any) -> Any:
    import pyarrow as pa

    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)
