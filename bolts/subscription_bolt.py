"""The subscription bolt: keeps the results of the subscriptions that live on it, exact at every watermark.

How a top-k list stays exact is in :mod:`dskype.bolts.topk_subscriptions`. With a distributor that replicates, a subscription may live on
several tasks: :mod:`dskype.bolts.replication` has the protocol, :mod:`dskype.bolts.replication.replicas` says why it stays exact.

Everything is a function of the inbox: a task that is restored from a snapshot and gets its inbox again does the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.bolts import boolean
from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
from dskype.bolts.message_queue import MessageQueue
from dskype.bolts.refusals import Refusals
from dskype.bolts.replication.ownership import SingleOwner, SubscriptionOwner
from dskype.bolts.replication.replicated_owner import ReplicatedOwner
from dskype.bolts.results.base import run_of
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.topk_subscriptions import BEFORE_ALL, TopkSubscriptions, make_engine
from dskype.distribution import distributor_class
from dskype.spouts import streams
from dskype.spouts.settings import CHANGEABLE_SETTINGS, Settings
from dskype.spouts.topics import Topics, topic_config
from dskype.topology.components import BatchBolt, OutputFieldsDeclarer
from dskype.topology.config import RECORD_BYTES, Config
from dskype.topology.errors import InvalidTopologyException, explain
from dskype.topology.tuples import Tuple, TupleBatch

__all__ = ["SubscriptionBolt"]

_SNAPSHOT_KEYS = "engine boolean ids watermark announced asked queue topk filters requests ends_ms frozen fresh changed replicas coverage placements".split()
"""Keys of a snapshot in their order; the last three with a distributor that replicates."""


class SubscriptionBolt(BatchBolt):
    """Matches messages with the subscriptions of its task; see the module.

    Takes ``matching`` and ``placements`` (direct, from distribution bolts) and ``answers`` (direct, from aggregation
    bolts); emits ``requests`` and ``progress`` (all, to message bolts), ``results`` and ``lists`` (fields(subscription), to the
    result bolt), or writes results straight to their topics where no other component has to see them. With a distributor that
    replicates also ``shortages`` (fields(subscription)) and ``switched`` (all), to distribution bolts.

    :param distribution_bolt: id of the distribution bolt; default ``distribution-bolt``.
    """

    changeable_settings = CHANGEABLE_SETTINGS

    def __init__(self, distribution_bolt: str = "distribution-bolt") -> None:
        self._distribution_bolt = distribution_bolt

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Check the settings, and the names of indexes and buffers."""
        settings = Settings.from_conf(conf)
        make_engine(settings)
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
        return {getattr(topics, name): config[name] for name in ("results", "matches", "topk", "registrations") if name in config}

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
        replicates = distributor_class(settings.distributor).replicates
        publisher = ResultPublisher(
            collector,
            context.plan.name,
            settings,
            via_bolt=replicates or settings.store != "kafka",
            run=run_of(context.get_storm_id()),
            task=context.get_this_task_id(),
            record_bytes=conf.get(Config.TOPOLOGY_EMULATOR_RECORD_MAX_BYTES, RECORD_BYTES),
        )
        refusals = Refusals(settings.subscriptions_max, collector, context)
        counters = {name: context.register_counter(name) for name in ("deltas", "states", "matches", "evaluations", "unknown_unregistered")}
        self._announced = BEFORE_ALL
        self._queue = MessageQueue()
        topk = self._topk = TopkSubscriptions(settings, collector, publisher, counters)
        filters = self._boolean = BooleanSubscriptions(settings)
        if replicates:
            sources = len(context.get_component_tasks(self._distribution_bolt))
            self._owner: SubscriptionOwner = ReplicatedOwner(topk, filters, publisher, counters, collector, context, sources, settings.window_kind == "count")
        else:
            self._owner = SingleOwner(topk, filters, publisher, counters, refusals)
        context.register_gauge("subscriptions", lambda: len(topk.slots) + len(filters.slots))
        context.register_gauge("pending_evaluations", lambda: topk.evaluations)
        context.register_gauge("queued_messages", lambda: len(self._queue))

    # -- input ------------------------------------------------------------------------------------

    def execute_batch(self, batch: TupleBatch) -> None:
        """Take in messages, placements or answers."""
        stream = batch.get_source_stream_id()
        if stream == streams.MATCHING:
            self._queue.append(batch)
        elif stream == streams.PLACEMENTS:
            self._owner.place(list(batch.rows()), batch.get_source_task())
        elif (answers := self._topk.pop_answers(batch)) is not None:
            self._owner.ask(self._owner.resolve(answers).due)
            self._topk.write_lists(self._context.clock_ms())

    def on_watermark(self, watermark: int) -> None:
        """Apply the messages up to ``watermark``."""
        topk, owner, before = self._topk, self._owner, self._topk.watermark
        arrived = self._queue.pop_until(watermark)
        changes = topk.advance(arrived, watermark)
        owner.publish_changes(changes, before)
        owner.match(arrived)
        owner.finish_watermark()
        owner.ask(changes.due)
        topk.write_lists(self._context.clock_ms())
        topk.free_ids()
        if watermark - self._announced >= max(1, self._settings.extent // 16):
            self._announced = watermark
            self._collector.emit((watermark,), streams.PROGRESS)

    def execute_tick(self, tup: Tuple) -> None:
        """Write the lists that are due, and name the subscriptions that make too many results."""
        now_ms = self._context.clock_ms()
        self._topk.write_lists(now_ms)
        for busiest in (self._topk.busiest, self._boolean.busiest):
            if (found := busiest.pop_report(now_ms)) is not None:
                self._collector.report_error(found)

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return everything, as arrays and plain values."""
        state = {
            "watermark": self._topk.watermark,
            "announced": self._announced,
            "queue": self._queue.snapshot(),
            **self._topk.snapshot(),
            **self._boolean.snapshot(),
            **self._owner.snapshot(),
        }
        return {key: state[key] for key in _SNAPSHOT_KEYS if key in state}

    def restore(self, state: Any) -> None:
        """Take over a snapshot."""
        self._announced = state["announced"]
        self._queue.restore(state["queue"])
        self._topk.restore(state)
        self._boolean.restore(state)
        self._owner.restore(state)
