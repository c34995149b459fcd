"""The subscription bolt: keeps the results of the subscriptions that live on it, exact at every watermark.

How a top-k list stays exact (journal paper, sections 6 and 7.2):

1. Messages are applied in rising (position, sequence number), when the watermark has passed them: at watermark *w* the
   bolt has applied exactly the messages of the window's history up to *w*.
2. An *active* subscription's buffer ranks before everything of the window that it does not hold, and has at least k live
   entries or holds everything; so its first k are the top-k of the window.
3. A new subscription, and one whose buffer falls below k, is *pending*: the bolt asks all message bolts for the window as
   of its own watermark ``w_req`` and goes on collecting what arrives, without threshold. The answer is exact as of
   ``w_req``; together with what has arrived since, it is complete, and the subscription is active again. While it is
   pending nothing is published for it; then its list jumps from the last published one to the present one.
4. The bolt announces the watermarks below which it will not ask any more (``progress``), so message bolts can forget.
   An announcement never overtakes a request: both travel on the same channels, in order.

With a distributor that replicates, a subscription may live on several tasks: :mod:`dskype.bolts.replicas` says why it stays exact,
and what is sent to whom.

Everything is a function of the inbox: a task that is restored from a snapshot and gets its inbox again does the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np

from dskype.bolts import boolean
from dskype.bolts.busiest import Busiest
from dskype.bolts.changed_lists import ChangedLists
from dskype.bolts.entries import Entries
from dskype.bolts.filter_placements import FilterPlacements
from dskype.bolts.message_ids import MessageIds
from dskype.bolts.refusals import Refusals
from dskype.bolts.replicas import Coverage, Replicas
from dskype.bolts.results.base import run_of
from dskype.bolts.results.formats import MATCH, REMOVE
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.topk.engine import TopkEngine
from dskype.distribution import distributor_class
from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import csr_to_lists, lists_to_csr
from dskype.spouts.settings import CHANGEABLE_SETTINGS, Settings
from dskype.spouts.topics import Topics, topic_config
from dskype.topology.components import BatchBolt, OutputFieldsDeclarer
from dskype.topology.config import Config
from dskype.topology.errors import InvalidTopologyException, explain
from dskype.topology.tuples import Tuple, TupleBatch

__all__ = ["SubscriptionBolt"]

_BEFORE_ALL = -1
_NEVER_MS = np.iinfo(np.int64).max
_TTL_SLACK_MS = 60_000
"""How much earlier than others a message may have arrived that is applied after them, where several partitions are read.
With time windows one that is ahead of its arrival waits for its time: then ``dskype.window.ahead.ms`` if that is more."""


class SubscriptionBolt(BatchBolt):
    """Matches messages with the subscriptions of its task; see the module.

    Takes ``matching`` and ``placements`` (direct, from distribution bolts) and ``answers`` (direct, from aggregation
    bolts); emits ``requests`` and ``progress`` (all, to message bolts), ``results`` and ``lists`` (fields(subscription), to the
    result bolt), or writes results straight to their topics where nobody else has to see them. With a distributor that
    replicates also ``shortages`` (fields(subscription)) and ``switched`` (all), to distribution bolts.

    :param distribution_bolt: id of the distribution bolt; default ``distribution-bolt``.
    """

    changeable_settings = CHANGEABLE_SETTINGS

    def __init__(self, distribution_bolt: str = "distribution-bolt") -> None:
        self._distribution_bolt = distribution_bolt

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Check the settings, and the names of indexes and buffers."""
        settings = Settings.from_conf(conf)
        self._make_engine(settings)
        boolean.make_index(settings.boolean_index, settings.boolean_index_options)
        if self._distribution_bolt not in topology.components:
            raise InvalidTopologyException(
                explain(
                    "The distribution bolt is not there.", given=self._distribution_bolt, legal=", ".join(sorted(topology.components)), component=component_id
                )
            )

    def external_topics(self, topology: str, conf: Mapping[str, Any]) -> dict[str, dict[str, str]]:
        """Return the topics of results."""
        topics, config = Topics.of(topology), topic_config(Settings.from_conf(conf))
        return {getattr(topics, name): config[name] for name in ("results", "topk", "registrations")}

    @staticmethod
    def _make_engine(settings: Settings) -> TopkEngine:
        return TopkEngine(settings.extent, settings.space.diagonal_deg, settings.index, settings.buffer, settings.index_options, settings.buffer_options)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the streams."""
        for stream in (streams.REQUESTS, streams.PROGRESS, streams.RESULTS, streams.LISTS, streams.SHORTAGES, streams.SWITCHED):
            declarer.declare_stream(stream, streams.FIELDS[stream])

    def get_component_configuration(self) -> dict[str, Any]:
        """Return a tick every second: lists that changed last are written though no further message comes."""
        return {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: 1}

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Get ready, empty."""
        settings = self._settings = Settings.from_conf(conf)
        self._collector, self._context = collector, context
        self._engine = self._make_engine(settings)
        self._boolean = boolean.make_index(settings.boolean_index, settings.boolean_index_options)
        replicates = distributor_class(settings.distributor).replicates
        self._publisher = ResultPublisher(
            collector, context.plan.name, settings, via_bolt=replicates or settings.store != "kafka", run=run_of(context.get_storm_id())
        )
        self._refusals = Refusals(settings.subscriptions_max, collector, context)
        self._ids = MessageIds()
        self._watermark = self._announced = _BEFORE_ALL
        self._queue: list[tuple[MessageBatch, Any, np.ndarray]] = []  # not yet passed by the watermark
        self._topk: dict[str, int] = {}  # subscription -> slot of the engine
        self._filters: dict[str, int] = {}  # subscription -> slot of the boolean index
        self._topk_entries = Entries()
        self._filter_entries = Entries()
        self._busiest = Busiest(settings.results_per_s, self._topk_entries.name)
        self._busiest_filters = Busiest(settings.results_per_s, self._filter_entries.name)
        self._requests: dict[int, int] = {}  # request -> slot
        self._request_of: dict[int, int] = {}  # slot -> its newest request
        self._asked = 0
        self._frozen: dict[int, int] = {}  # pending slot -> watermark of its last published list
        self._fresh: set[int] = set()  # slots that have never published
        self._changed = ChangedLists(settings.topk_interval_ms)
        self._ends_ms: dict[int, int] = {}  # slot of the boolean index -> when it ends
        self._expiring: list[tuple[int, int, str]] = []  # heap of (end in ms, slot, registration) of the boolean index
        self._coverage: Coverage | None = None
        self._replicas: Replicas | None = None
        self._filter_placements: FilterPlacements | None = None
        if replicates:
            me = context.get_this_component_id()
            self._coverage = Coverage(len(context.get_component_tasks(self._distribution_bolt)))
            self._replicas = Replicas(
                self._engine,
                self._topk_entries,
                self._ids,
                collector,
                self._publisher,
                self._coverage,
                context.get_component_tasks(me),
                context.get_this_task_index(),
                settings.window_kind == "count",
            )
            self._filter_placements = FilterPlacements(self._filter_entries, collector, self._coverage, context.get_this_task_index(), self._forget_filter)
        self._counters = {name: context.register_counter(name) for name in ("deltas", "states", "matches", "evaluations", "unknown_unregistered")}
        context.register_gauge("subscriptions", lambda: len(self._topk) + len(self._filters))
        context.register_gauge("pending_evaluations", lambda: len(self._request_of))
        context.register_gauge("queued_messages", lambda: sum(batch.n for batch, _, _ in self._queue))

    # -- input ------------------------------------------------------------------------------------

    def execute_batch(self, batch: TupleBatch) -> None:
        """Take messages, placements or answers."""
        stream = batch.get_source_stream_id()
        if stream == streams.MATCHING:
            self._queue.append(_messages(batch))
        elif stream == streams.PLACEMENTS:
            if self._replicas is None:
                self._place(list(batch.rows()))
            else:
                self._take_placements(list(batch.rows()), batch.get_source_task())
        else:
            self._take_answers(batch)

    def on_watermark(self, watermark: int) -> None:
        """Apply the messages up to ``watermark``."""
        messages, ids, arrival_ms = self._due_messages(watermark)
        before = self._watermark
        self._ids.add(messages.seq, messages.position, ids)
        changes = self._engine.advance(messages, watermark)
        self._busiest.add(changes.slot)
        self._watermark = watermark
        for slot in changes.due.tolist():
            self._frozen.setdefault(slot, before)
        if self._replicas is None:
            self._publish_changes(changes)
            self._match_filters(messages, ids, arrival_ms)
        else:
            self._replicas.watermark = self._filter_placements.watermark = watermark
            touched = self._replicas.send_changes(changes, before, self._counters["deltas"].inc)
            if self._publisher.wants_states:
                self._changed.add(touched)
            self._match_filters(messages, ids, arrival_ms)
            self._filter_placements.end()
            self._check_coverage()
        self._ask(changes.due)
        self._write_states(self._context.clock_ms())
        self._ids.free(min([watermark, *self._frozen.values()]) - self._settings.extent)
        if watermark - self._announced >= max(1, self._settings.extent // 16):
            self._announced = watermark
            self._collector.emit((watermark,), streams.PROGRESS)

    def execute_tick(self, tup: Tuple) -> None:
        """Write the lists that are due, and name the subscriptions that make too many results."""
        now_ms = self._context.clock_ms()
        self._write_states(now_ms)
        for busiest in (self._busiest, self._busiest_filters):
            if (found := busiest.look(now_ms)) is not None:
                self._collector.report_error(found)

    def _due_messages(self, watermark: int) -> tuple[MessageBatch, Any, np.ndarray]:
        """Take the messages up to ``watermark`` from the queue, in order."""
        import pyarrow as pa

        batches, ids, arrivals, left = [], [], [], []
        for messages, names, arrival_ms in self._queue:
            due = messages.position <= watermark
            if due.all():
                batches.append(messages)
                ids.append(names)
                arrivals.append(arrival_ms)
                continue
            for rows, last in ((np.flatnonzero(due), False), (np.flatnonzero(~due), True)):
                if len(rows):
                    part = messages.take(rows), names.take(pa.array(rows)), arrival_ms[rows]
                    if last:
                        left.append(part)
                    else:
                        batches.append(part[0])
                        ids.append(part[1])
                        arrivals.append(part[2])
        self._queue = left
        if not batches:
            return MessageBatch.empty(), pa.array([], pa.string()), np.zeros(0, np.int64)
        messages, names, arrival_ms = MessageBatch.concat(batches), pa.concat_arrays(ids), np.concatenate(arrivals)
        order = np.lexsort((messages.seq, messages.position))
        if (order[1:] < order[:-1]).any():
            messages, names, arrival_ms = messages.take(order), names.take(pa.array(order)), arrival_ms[order]
        return messages, names, arrival_ms

    # -- subscriptions ----------------------------------------------------------------------------

    def _place(self, rows: list[tuple[str, str, Mapping[str, Any] | None]]) -> None:
        """Register, replace and unregister in order; runs of new top-k subscriptions go to the engine together."""
        new: list[tuple[str, str, Mapping[str, Any]]] = []
        names: set[str] = set()
        for subscription, registration, placement in rows:
            if subscription in names:
                self._insert_topk(new)
                new, names = [], set()
            if placement is not None and not self._has_room(subscription, len(new)):
                self._refusals.add(subscription, registration)
                continue
            self._remove(subscription, None if placement is None else placement["type"])
            if placement is None:
                continue
            if placement["type"] == "topk":
                new.append((subscription, registration, placement))
                names.add(subscription)
            else:
                self._insert_filter(subscription, registration, placement)
        self._insert_topk(new)

    def _has_room(self, subscription: str, coming: int) -> bool:
        """Tell whether one more subscription may be held, beside those that are about to be; one that takes the place of another always may."""
        return len(self._topk) + len(self._filters) + coming < self._refusals.most or subscription in self._topk or subscription in self._filters

    def _insert_topk(self, rows: list[tuple[str, str, Mapping[str, Any]]]) -> None:
        if not rows:
            return
        complete = self._watermark == _BEFORE_ALL
        slots = self._open_topk(rows, complete)
        self._fresh.update(slots.tolist())
        if complete:
            self._publish_touched(slots)
        else:
            self._ask(slots)

    def _open_topk(self, rows: list[tuple[str, str, Mapping[str, Any]]], complete: bool) -> np.ndarray:
        """Put subscriptions into the engine; returns their slots."""
        placements = [p for _, _, p in rows]
        lengths = [len(p["terms"]) for p in placements]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        slots = self._engine.insert(
            np.array([p["k"] for p in placements], np.int32),
            *(np.array([p[key] for p in placements], np.float64) for key in ("alpha", "lat", "lon")),
            offsets,
            np.concatenate([np.asarray(p["terms"], np.int64) for p in placements]),
            np.concatenate([np.asarray(p["weights"], np.float64) for p in placements]),
            complete,
        )
        for slot, (subscription, registration, placement) in zip(slots.tolist(), rows):
            self._topk[subscription] = slot
            self._topk_entries.set(slot, subscription, registration, placement["meta"])
            if not complete:
                self._frozen[slot] = self._watermark
        return slots

    def _insert_filter(self, subscription: str, registration: str, placement: Mapping[str, Any]) -> None:
        self._open_filter(subscription, registration, placement)
        self._publisher.events([subscription], [registration], ["active"], [self._watermark])

    def _open_filter(self, subscription: str, registration: str, placement: Mapping[str, Any]) -> int:
        slot = self._filter_entries.free_slot()
        self._filters[subscription] = slot
        self._filter_entries.set(slot, subscription, registration, placement["meta"])
        self._boolean.insert(slot, placement["bbox"], placement["expression"])
        if placement["expires_ms"] is not None:
            self._ends_ms[slot] = placement["expires_ms"]
            heapq.heappush(self._expiring, (placement["expires_ms"], slot, registration))
        return slot

    def _remove(self, subscription: str, new_type: str | None) -> None:
        """Remove a subscription wherever it is; to unregister an unknown one is a no-op, and counted.

        :param new_type: type of the subscription that takes its place; None: it is unregistered.
        """
        slot = self._topk.pop(subscription, None)
        if slot is not None:
            self._remove_topk(subscription, slot, replaced=new_type == "topk")
            return
        slot = self._filters.pop(subscription, None)
        if slot is not None:
            self._remove_filter(subscription, slot)
        elif new_type is None:
            self._counters["unknown_unregistered"].inc()

    def _remove_topk(self, subscription: str, slot: int, *, replaced: bool) -> None:
        registration = self._topk_entries.registration(slot)
        self._withdraw(slot)
        if replaced:
            self._publisher.events([subscription], [registration], ["removed"], [self._watermark])
        else:
            self._publisher.removed([subscription], [registration], [self._watermark])
        self._forget_topk(slot)

    def _forget_topk(self, slot: int) -> None:
        self._engine.remove(np.array([slot], np.int32))
        self._topk_entries.clear(slot)
        self._fresh.discard(slot)
        self._changed.forget(slot)
        self._frozen.pop(slot, None)
        request = self._request_of.pop(slot, None)
        if request is not None:
            del self._requests[request]

    def _withdraw(self, slot: int) -> None:
        """Take back what was published for a subscription that ends."""
        seqs = self._engine.topk(np.array([slot], np.int32)).seqs
        n = len(seqs)
        self._send_deltas(np.full(n, slot), np.full(n, REMOVE, np.int8), seqs, np.zeros(n), np.zeros(n, np.int64), np.full(n, self._watermark))

    def _remove_filter(self, subscription: str, slot: int) -> None:
        entry = self._filter_entries
        self._publisher.removed([subscription], [entry.registration(slot)], [self._watermark], states=False)
        self._forget_filter(slot)

    def _forget_filter(self, slot: int) -> None:
        entry = self._filter_entries
        self._boolean.remove(slot)
        self._ends_ms.pop(slot, None)
        entry.clear(slot)
        entry.free.append(slot)

    # -- placements on several tasks --------------------------------------------------------------

    def _take_placements(self, rows: list[tuple[str, str, Mapping[str, Any]]], source: int) -> None:
        """Take placements, epochs and ends in order; runs of new top-k subscriptions go to the engine together."""
        new: list[tuple[str, str, Mapping[str, Any]]] = []
        for subscription, registration, placement in rows:
            if placement["type"] == "topk":
                new.append((subscription, registration, placement))
                continue
            self._open_replicas(new)
            new = []
            self._take_placement(subscription, registration, placement, source)
        self._open_replicas(new)

    def _take_placement(self, subscription: str, registration: str, placement: Mapping[str, Any], source: int) -> None:
        kind = placement["type"]
        if kind == "boolean":
            self._filter_placements.open(self._open_filter(subscription, registration, placement), placement)
        elif kind == "plan":
            self._coverage.mark(placement["version"], source, placement["high"])
            self._check_coverage()
        elif kind == "done":
            if self._coverage.done(placement["version"], source):
                self._collector.emit((placement["version"],), streams.SWITCHED)
        elif subscription in self._topk:
            self._take_topk_news(subscription, self._topk[subscription], placement)
        elif not self._filter_placements.take(self._filters[subscription], placement):
            del self._filters[subscription]

    def _take_topk_news(self, subscription: str, slot: int, placement: Mapping[str, Any]) -> None:
        replicas, kind = self._replicas, placement["type"]
        if kind == "survey":
            replicas.survey(slot)
        elif kind == "epoch" and replicas.take_epoch(slot, placement):
            self._settle(np.array([slot], np.int32))
        else:
            if kind == "end":
                replicas.end(slot)
            del self._topk[subscription]
            replicas.forget(slot)
            self._forget_topk(slot)

    def _open_replicas(self, rows: list[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Begin replicas of top-k subscriptions."""
        empty = self._watermark == _BEFORE_ALL
        for complete in (True, False):
            chosen = [row for row in rows if (empty and self._coverage.since(row[2]["since"]) <= self._watermark) is complete]
            if not chosen:
                continue
            slots = self._open_topk(chosen, complete)
            self._replicas.open(slots.tolist(), [placement for _, _, placement in chosen], complete)
            if complete:
                self._settle(slots)
            else:
                self._ask(slots)

    def _settle(self, slots: np.ndarray, bases: Mapping[int, Any] | None = None) -> None:
        """Tell what has become of replicas; evaluate those anew for which that is asked."""
        again = self._replicas.settle(slots, bases or {})
        self._changed.discard(np.array([slot for slot in slots.tolist() if slot in self._changed and not self._replicas.is_alone(slot)], np.int64))
        for slot in again:
            name, registration = self._topk_entries.name(slot), self._topk_entries.registration(slot)
            placement = self._replicas.placement(slot) | self._replicas.epoch(slot)
            self._replicas.forget(slot)
            self._forget_topk(slot)
            renewed = self._open_topk([(name, registration, placement)], False)
            self._replicas.open(renewed.tolist(), [placement], False)
            self._ask(renewed)

    def _check_coverage(self) -> None:
        """Do what has waited for a plan to be in force everywhere."""
        waited = [slot for slot in self._replicas.covered() if slot not in self._request_of]
        self._ask(np.array(waited, np.int32))
        self._filter_placements.tell()

    # -- evaluations ------------------------------------------------------------------------------

    def _ask(self, slots: np.ndarray) -> None:
        """Ask the message bolts for the windows of ``slots`` as of the present watermark."""
        if self._replicas is not None and len(slots):
            slots = self._replicas.askable(slots)
        if not len(slots):
            return
        n = len(slots)
        numbers = np.arange(self._asked, self._asked + n, dtype=np.int64)
        self._asked += n
        self._counters["evaluations"].inc(n)
        for number, slot in zip(numbers.tolist(), slots.tolist()):
            old = self._request_of.get(slot)
            if old is not None:
                del self._requests[old]
            self._requests[number], self._request_of[slot] = slot, number
        asked = self._engine.index.table.columns(slots)
        self._collector.emit_batch(
            [
                numbers,
                self._topk_entries.take(slots)[0].tolist(),
                np.full(n, self._watermark),
                np.asarray(self._engine.wanted(slots), np.int64),
                asked["alpha"],
                asked["lat"],
                asked["lon"],
                csr_to_lists(asked["offsets"], asked["terms"]),
                csr_to_lists(asked["offsets"], asked["weights"]),
            ],
            streams.REQUESTS,
        )

    def _take_answers(self, batch: TupleBatch) -> None:
        """Merge answers; those of subscriptions that are gone, or asked anew, are passed over."""
        requests = np.array(batch["request"])
        rows = [i for i, request in enumerate(requests.tolist()) if request in self._requests]
        if not rows:
            return
        offsets, seqs = lists_to_csr(batch["seqs"], np.int64)
        positions, scores = lists_to_csr(batch["positions"], np.int64)[1], lists_to_csr(batch["scores"], np.float64)[1]
        ids = [name for names in _column_rows(batch["ids"]) for name in names]
        if len(rows) < len(requests):
            index = np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in rows])
            lengths = np.diff(offsets)[rows]
            offsets = np.zeros(len(rows) + 1, np.int64)
            np.cumsum(lengths, out=offsets[1:])
            seqs, positions, scores, ids = seqs[index], positions[index], scores[index], [ids[i] for i in index.tolist()]
        slots = []
        for row in rows:
            slot = self._requests.pop(int(requests[row]))
            del self._request_of[slot]
            slots.append(slot)
        self._ids.add(seqs, positions, ids)
        answered = np.array(slots, np.int32)
        bases = None if self._replicas is None else self._replicas.bases(answered)
        changes = self._engine.resolve(answered, offsets, seqs, positions, scores)
        due = set(changes.due.tolist())
        for slot in slots:
            if slot not in due:
                del self._frozen[slot]
        if self._replicas is None:
            self._publish_changes(changes)
        else:
            known = np.setdiff1d(answered, changes.due)
            self._replicas.resolved(known)
            self._settle(known, bases)
        self._ask(changes.due)
        self._write_states(self._context.clock_ms())

    # -- results ----------------------------------------------------------------------------------

    def _publish_changes(self, changes: Any) -> None:
        self._send_deltas(changes.slot, changes.op, changes.seq, changes.score, changes.rank, changes.watermark)
        self._publish_touched(changes.touched)

    def _publish_touched(self, slots: np.ndarray) -> None:
        first = [slot for slot in slots.tolist() if slot in self._fresh] if self._fresh else []
        if first:
            self._fresh.difference_update(first)
            names, registrations, _ = self._topk_entries.take(np.array(first))
            self._publisher.events(names, registrations, ["active"] * len(first), [self._watermark] * len(first))
        if self._publisher.wants_states:
            self._changed.add(slots)

    def _send_deltas(self, slots: np.ndarray, ops: np.ndarray, seqs: np.ndarray, scores: np.ndarray, ranks: np.ndarray, watermarks: np.ndarray) -> None:
        if not len(slots) or not self._publisher.wants_deltas:
            return
        self._counters["deltas"].inc(len(slots))
        names, registrations, metas = self._topk_entries.take(slots)
        self._publisher.deltas(names, registrations, ops, self._ids.get(seqs), scores, ranks, watermarks, metas)

    def _write_states(self, now_ms: int) -> None:
        """Write the lists that changed, each at most every ``topk_interval_ms``; pending ones wait."""
        slots = self._changed.take(now_ms, self._frozen)
        if not len(slots):
            return
        self._counters["states"].inc(len(slots))
        offsets, seqs, _, scores = self._engine.topk(slots)
        names, registrations, _ = self._topk_entries.take(slots)
        self._publisher.states(names, registrations, np.full(len(slots), self._watermark), offsets, self._ids.get(seqs), scores)

    def _match_filters(self, messages: MessageBatch, ids: Any, arrival_ms: np.ndarray) -> None:
        if not len(self._boolean) or not messages.n:
            return
        import pyarrow as pa

        rows, slots = self._boolean.match(messages)
        if self._expiring:
            ends = [self._ends_ms.get(s, _NEVER_MS) for s in slots.tolist()]
            alive = arrival_ms[rows] < np.array(ends, np.int64)
            rows, slots = rows[alive], slots[alive]
        self._busiest_filters.add(slots)
        if self._replicas is not None and len(rows):
            inside = self._filter_placements.inside(messages.position[rows], slots)
            rows, slots = rows[inside], slots[inside]
            self._counters["matches"].inc(len(rows))
            names, registrations, metas = self._filter_entries.take(slots)
            self._publisher.emit_rows(
                names,
                registrations,
                np.full(len(rows), MATCH, np.int8),
                ids.take(pa.array(rows)),
                messages.position[rows],
                metas=metas,
                seqs=messages.seq[rows],
            )
        elif len(rows):
            n = len(rows)
            self._counters["matches"].inc(n)
            names, registrations, metas = self._filter_entries.take(slots)
            self._publisher.deltas(
                names, registrations, np.full(n, MATCH, np.int8), ids.take(pa.array(rows)), np.zeros(n), np.zeros(n, np.int64), messages.position[rows], metas
            )
        if self._expiring:
            self._expire_filters(int(arrival_ms.min()) - max(_TTL_SLACK_MS, self._settings.ahead_ms))

    def _expire_filters(self, now_ms: int) -> None:
        while self._expiring and self._expiring[0][0] <= now_ms:
            _, slot, registration = heapq.heappop(self._expiring)
            name = self._filter_entries.name(slot)
            if name is None or self._filter_entries.registration(slot) != registration:
                continue
            if self._replicas is not None:
                self._filter_placements.expired(slot)
            else:
                del self._filters[name]
                self._remove_filter(name, slot)

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return everything, as arrays and plain values."""
        return {
            "engine": self._engine.snapshot(),
            "boolean": self._boolean.snapshot(),
            "ids": self._ids.snapshot(),
            "watermark": self._watermark,
            "announced": self._announced,
            "asked": self._asked,
            "queue": [[list(messages), names, arrival_ms] for messages, names, arrival_ms in self._queue],
            "topk": self._topk_entries.snapshot(),
            "filters": self._filter_entries.snapshot(),
            "requests": [[request, slot] for request, slot in self._requests.items()],
            "ends_ms": [[slot, end] for slot, end in self._ends_ms.items()],
            "frozen": [[slot, watermark] for slot, watermark in self._frozen.items()],
            "fresh": sorted(self._fresh),
            "changed": self._changed.snapshot(),
            **(
                {}
                if self._replicas is None
                else {"replicas": self._replicas.snapshot(), "coverage": self._coverage.snapshot(), "placements": self._filter_placements.snapshot()}
            ),
        }

    def restore(self, state: Any) -> None:
        """Take it over."""
        self._engine.restore(state["engine"])
        self._boolean.restore(state["boolean"])
        self._ids.restore(state["ids"])
        self._watermark, self._announced, self._asked = state["watermark"], state["announced"], state["asked"]
        self._queue = [(MessageBatch(*(np.array(a) for a in messages)), names, np.array(arrival_ms)) for messages, names, arrival_ms in state["queue"]]
        self._topk_entries.restore(state["topk"])
        self._filter_entries.restore(state["filters"])
        self._topk = self._topk_entries.by_name()
        self._filters = self._filter_entries.by_name()
        self._ends_ms = {slot: end for slot, end in state["ends_ms"]}
        self._expiring = [(end, slot, self._filter_entries.registration(slot)) for slot, end in self._ends_ms.items()]
        heapq.heapify(self._expiring)
        self._requests = {request: slot for request, slot in state["requests"]}
        self._request_of = {slot: request for request, slot in state["requests"]}
        self._frozen = {slot: watermark for slot, watermark in state["frozen"]}
        self._fresh = set(state["fresh"])
        self._changed.restore(state["changed"])
        if self._replicas is not None:
            self._replicas.restore(state["replicas"])
            self._coverage.restore(state["coverage"])
            self._filter_placements.restore(state["placements"])
            self._filters = {self._filter_entries.name(slot): slot for slot in self._filter_placements.slots()}


def _messages(batch: TupleBatch) -> tuple[MessageBatch, Any, np.ndarray]:
    """Return a frame of ``matching`` as messages, ids and arrival times, in arrays of their own."""
    import pyarrow as pa

    seq, position, ids, lat, lon, terms, weights, arrival_ms = batch.columns
    offsets, flat_terms = lists_to_csr(terms, np.int64)
    flat_weights = lists_to_csr(weights, np.float64)[1]
    messages = MessageBatch(
        np.array(seq, np.int64),
        np.array(position, np.int64),
        np.array(lat, np.float64),
        np.array(lon, np.float64),
        np.array(offsets, np.int64),
        np.array(flat_terms, np.int64),
        np.array(flat_weights, np.float64),
    )
    return messages, ids if isinstance(ids, pa.Array) else pa.array(ids, pa.string()), np.array(arrival_ms, np.int64)


def _column_rows(column: Any) -> list[Any]:
    return column if isinstance(column, list) else column.to_pylist()
