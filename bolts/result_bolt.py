"""The result bolt: writes results to Kafka and whole top-k states to the configured store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.bolts.results import make_store
from dskype.bolts.results.base import Opening, Removal, State, run_of
from dskype.bolts.results.buffer import StateBuffer
from dskype.bolts.results.formats import heads
from dskype.bolts.results.kafka_store import KafkaStore
from dskype.bolts.results.publisher import ResultPublisher
from dskype.spouts.settings import Settings
from dskype.topology.components import BatchBolt
from dskype.topology.config import Config

__all__ = ["ResultBolt"]


class ResultBolt(BatchBolt):
    """Takes stream ``results``, grouped by subscription, from subscription bolts (see :class:`ResultPublisher` for its form).

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
        self._counters = {name: context.register_counter(name) for name in ("states-waiting", "states-written", "states-stale", "store-failures")}

    # -- input ----------------------------------------------------------------------------------------------------------

    def execute_batch(self, batch: Any) -> None:
        """Write one frame's results."""
        deltas: list[tuple[str, list[Any]]] = []
        items: list[State | Removal] = []
        for subscription, kind, record in batch.rows():
            if kind == "delta":
                deltas.append((subscription, record))
            elif kind == "topk":
                items.append(self._item(subscription, record))
            else:
                registration, event, watermark = record
                self._publisher.write_event(subscription, registration, event, watermark)
        if deltas:
            self._write_deltas(deltas)
        if items:
            self._write_states(items)

    def _write_deltas(self, deltas: list[tuple[str, list[Any]]]) -> None:
        shared: tuple[list[Any], ...] = ([], [], [])
        columns: list[list[Any]] = [[], [], [], [], []]
        for subscription, (registration, meta, *parts) in deltas:
            for column, value in zip(shared, (subscription, registration, meta)):
                column += [value] * len(parts[0])
            for column, part in zip(columns, parts, strict=True):
                column += part
        self._publisher.write_deltas(heads(*shared), *columns)

    def _item(self, subscription: str, record: list[Any]) -> State | Removal:
        registration, watermark, messages, scores = record
        if messages is None:
            return Removal(subscription, registration, watermark)
        return self._publisher.encode_states([subscription], [registration], [watermark], [0, len(messages)], messages, scores)[0]

    def _write_states(self, items: list[State | Removal]) -> None:
        if self._topic is not None:
            for item in items:
                if isinstance(item, State):
                    self._topic.put((item,))
                else:
                    self._topic.remove((item,))
        if self._buffer is not None:
            self._buffer.add(items)
            self._flush()

    def execute_tick(self, tup: Any) -> None:
        """Try to write what waits."""
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
        """Return what waits for the store."""
        return {"v": 1, "waiting": [] if self._buffer is None else self._buffer.snapshot()}

    def restore(self, state: Any) -> None:
        """Take over what waited."""
        if self._buffer is not None:
            self._buffer.restore(state["waiting"])
