"""The result bolt: writes results to Kafka, and whole top-k lists to the configured store."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np

from dskype.bolts.merging.base import ResultStrategy
from dskype.bolts.merging.merger import TopkList
from dskype.bolts.merging.replicated import ReplicatedResults
from dskype.bolts.merging.single import SingleResults
from dskype.bolts.results import make_store
from dskype.bolts.results.allowance import Allowance, share
from dskype.bolts.results.base import Opening, Removal, State, run_of
from dskype.bolts.results.buffer import StateBuffer
from dskype.bolts.results.deltas import plain, without_blanks
from dskype.bolts.results.events import LISTS, MATCH, SCORED_MATCH
from dskype.bolts.results.kafka_store import KafkaStore
from dskype.bolts.results.publisher import ResultPublisher
from dskype.distribution import distributor_class
from dskype.spouts import streams
from dskype.spouts.settings import Settings
from dskype.topology.components import BatchBolt
from dskype.topology.config import RECORD_BYTES, Config

__all__ = ["ResultBolt"]


class ResultBolt(BatchBolt):
    """Writes results that arrive on the streams ``results`` and ``lists``, grouped by subscription, from subscription bolts.

    :class:`ResultPublisher` describes these streams. With a distributor that replicates, input is also ``registrations``, from
    distribution bolts, and the results of replicas are merged: see :mod:`dskype.bolts.merging.merger`.

    Deltas and events go to Kafka. States go to the store ``dskype.store``, and with the store's option ``topic`` to Kafka as
    well. They are encoded here, so that this bolt's tasks share the work.

    A store outside Kafka may be away. Then the newest state of each subscription waits in this bolt's own state, and is tried again
    with every batch and every tick. The metrics ``states-waiting``, ``states-written``, ``states-stale`` and ``store-failures``
    show it, and the outage is reported once. Nothing else waits for the store, but a call may take as long as its timeout.

    :param tick_secs: seconds between attempts when no results come; None: no ticks (for the store ``kafka``, which needs none).
    """

    def __init__(self, tick_secs: int | None = 2) -> None:
        self._tick_secs = tick_secs

    def get_component_configuration(self) -> dict[str, Any] | None:
        """Ask for ticks."""
        return None if self._tick_secs is None else {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: self._tick_secs}

    def wants_watermarks(self, conf: Mapping[str, Any]) -> bool:
        """Return True if results are merged; only merging waits for watermarks."""
        return distributor_class(Settings.from_conf(conf).distributor).replicates

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Refuse an unknown store, or options that it cannot use."""
        settings = Settings.from_conf(conf)
        make_store(settings.store, settings.store_options)

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Open the store. A server that is away does not prevent the start."""
        settings = Settings.from_conf(conf)
        topology, run = context.plan.name, run_of(context.get_storm_id())
        self._allowance = Allowance(settings, context)
        self._lists_bytes_per_s = share(settings.topk_total_bytes_per_s, context)
        self._publisher = ResultPublisher(
            collector,
            topology,
            settings,
            via_bolt=True,
            run=run,
            task=context.get_this_task_id(),
            record_bytes=conf.get(Config.TOPOLOGY_EMULATOR_RECORD_MAX_BYTES, RECORD_BYTES),
            allowance=self._allowance,
        )
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
        self._strategy: ResultStrategy = (
            ReplicatedResults(settings.extent, self._publisher.wants_deltas, self._publisher.wants_states, context)
            if distributor_class(settings.distributor).replicates
            else SingleResults()
        )
        self._written_ms = 0
        self._postponed = context.register_counter("postponed_lists")
        self._counters = {name: context.register_counter(name) for name in ("states-waiting", "states-written", "states-stale", "store-failures")}

    # -- input ----------------------------------------------------------------------------------------------------------

    def execute_batch(self, batch: Any) -> None:
        """Write one frame's results, or merge them."""
        stream = batch.get_source_stream_id()
        if stream == streams.Results.name:
            deltas = self._strategy.filter_deltas(batch.get_source_task(), plain(streams.Results.of(batch)))
            if deltas is not None:
                self._write_deltas(deltas)
        elif stream == streams.Lists.name:
            self._handle_lists(batch)
        else:
            self._strategy.receive_registrations(batch)
        self._write_merged()

    def on_watermark(self, watermark: int) -> None:
        """Publish what waited for the watermark."""
        for matches in self._strategy.advance(watermark):
            if not self._publisher.groups_matches:
                self._write_deltas(matches)
                continue
            grouped = np.isin(matches.kind, (MATCH, SCORED_MATCH))
            self._publisher.merged_matches(matches.take(np.flatnonzero(grouped)))
            self._write_deltas(matches.take(np.flatnonzero(~grouped)))
        self._write_merged()

    def _handle_lists(self, batch: Any) -> None:
        items: list[TopkList | Removal] = []
        task = batch.get_source_task()
        for name, kind, record in streams.Lists.of(batch).each("subscription", "kind", "record"):
            if kind == "event":
                self._publisher.write_event(name, *record)
            elif kind == "limited":
                self._publisher.write_limited(name, *record)
            elif kind != "topk":
                self._strategy.receive(name, task, kind, record)
            elif not self._strategy.keeps_list(record[0], task):
                items.append(Removal(name, *record[:2]) if record[2] is None else TopkList(name, *record))
        if items:
            self._write_states(self._encode_states(items))

    def _write_deltas(self, batch: streams.Results) -> None:
        """Write deltas that have arrived."""
        n = len(batch.kind)
        step = self._publisher.rows_at_once or max(1, n)
        for start in range(0, n, step):
            part = batch if step >= n else batch.take(np.arange(start, min(start + step, n)))
            self._publisher.write_deltas(without_blanks(part))

    def _write_merged(self) -> None:
        """Write merged results; lists at most every ``topk_interval_ms``, and less often where they are more bytes than a task may write."""
        publisher, settings, now_ms = self._publisher, self._settings, self._context.clock_ms()
        wrote = publisher.wants_states and now_ms - self._written_ms >= settings.topk_interval_ms and self._strategy.write_lists()
        found = self._strategy.pop_publication()
        for event in found.events:
            publisher.write_event(*event)
        if publisher.wants_deltas:
            for batch in found.deltas:
                publisher.write_deltas(batch)
        states: list[State | Removal] = []
        if publisher.wants_states:
            if found.items:
                states += self._encode_states(found.items)
            if found.lists is not None:
                names, registrations, watermarks, *lists = found.lists
                states += publisher.encode_states(names.tolist(), registrations.tolist(), watermarks.tolist(), *lists)
            if states:
                self._write_states(states)
        if wrote:
            self._written_ms = now_ms
            if self._lists_bytes_per_s is not None:
                lists = [s for s in states if isinstance(s, State)]
                longer_ms = sum(len(s.value) for s in lists) * 1000 // self._lists_bytes_per_s - settings.topk_interval_ms
                if longer_ms > 0:
                    self._written_ms += longer_ms
                    self._postponed.inc()
                    publisher.tell(((s.subscription, s.registration, s.watermark) for s in lists), LISTS[1])

    def _encode_states(self, items: list[TopkList | Removal]) -> list[State | Removal]:
        """Return the items with each list encoded as JSON."""
        lists = [item for item in items if isinstance(item, TopkList)]
        if not lists:
            return items
        names, registrations, watermarks, messages, scores = zip(*lists)
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
        return [next(states) if isinstance(item, TopkList) else item for item in items]

    def _write_states(self, items: list[State | Removal]) -> None:
        if self._topic is not None:
            for removals, group in groupby(items, lambda item: isinstance(item, Removal)):
                (self._topic.remove if removals else self._topic.put)(list(group))
        if self._buffer is not None:
            self._buffer.enqueue(items)
            self._flush()

    def execute_tick(self, tup: Any) -> None:
        """Try to write the states that wait."""
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
        """Try to write once more, and close the store."""
        if self._buffer is not None:
            self._flush()
        self._store.close()

    # -- state ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the results that wait for the store, for replicas or for the watermark."""
        return {
            "v": 1,
            "waiting": [] if self._buffer is None else self._buffer.snapshot(),
            "written_ms": self._written_ms,
            "allowance": self._allowance.snapshot(),
            **self._strategy.snapshot(),
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        if self._buffer is not None:
            self._buffer.restore(state["waiting"])
        self._written_ms = state.get("written_ms", 0)
        if "allowance" in state:  # absent from snapshots of earlier versions
            self._allowance.restore(state["allowance"])
        self._strategy.restore(state)
