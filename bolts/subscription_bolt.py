"""The subscription bolt: keeps the results of its subscriptions exact at every watermark.

:mod:`dskype.bolts.topk_subscriptions` explains how a top-k list stays exact. With a distributor that replicates, a subscription may live on
several tasks: :mod:`dskype.bolts.protocol` tells how, and :mod:`dskype.bolts.ownership.replicas` explains why results stay exact.

The output follows from the inbox alone: a restored task that reads its inbox again emits the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.bolts import boolean
from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
from dskype.bolts.checks import require_component
from dskype.bolts.initial_matches import InitialMatches
from dskype.bolts.message_queue import Arrived, MessageQueue
from dskype.bolts.objects import StatePairs
from dskype.bolts.ownership.base import OwnerStrategy
from dskype.bolts.ownership.replicated import ReplicatedOwner
from dskype.bolts.ownership.single import SingleOwner
from dskype.bolts.refusals import Refusals
from dskype.bolts.results.allowance import Allowance, share
from dskype.bolts.results.base import run_of
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.topk_subscriptions import BEFORE_ALL, TopkSubscriptions, make_engine
from dskype.distribution import distributor_class
from dskype.spouts import streams
from dskype.spouts.settings import CHANGEABLE_SETTINGS, DEFAULTS, SETTINGS_FROM_START, Settings
from dskype.spouts.topics import Topics, topic_config
from dskype.topology.components import BatchBolt, OutputFieldsDeclarer
from dskype.topology.config import RECORD_BYTES, Config
from dskype.topology.errors import InvalidTopologyException
from dskype.topology.tuples import Tuple, TupleBatch

__all__ = ["SubscriptionBolt"]

_SNAPSHOT_KEYS = "engine boolean ids watermark announced asked queue topk filters requests topk_ends_ms ends_ms expired frozen fresh inherited changed replicas coverage placements transfers evaluator allowance programs regions thresholds initial begun inside pairs".split()
"""Keys of a snapshot, in order; ``replicas`` to ``transfers`` only with a distributor that replicates, ``evaluator`` only with load balancing, ``thresholds`` only with threshold subscriptions, the last three only with objects."""


class SubscriptionBolt(BatchBolt):
    """Matches messages with the subscriptions of its task; see the module.

    Input: ``matching``, ``placements`` and with ``dskype.objects`` ``pairs`` (direct, from distribution bolts), and ``answers`` (direct, from aggregation bolts).
    Output: ``requests`` and ``progress`` (all, to message bolts), and ``results`` and ``lists`` (fields(subscription), to the
    result bolt). If no other component has to see the results, they are written straight to their topics. With a distributor
    that replicates, output is also ``shortages`` (fields(subscription)) and ``switched`` (all), to distribution bolts. With one whose subscriptions
    move from task to task, its tasks also send each other ``transfers`` (direct). With load balancing they send ``balance`` (direct) to a distribution task.

    :param distribution_bolt: id of the distribution bolt; default ``distribution-bolt``.
    """

    feedback_streams = (streams.Transfers.name,)
    changeable_settings = CHANGEABLE_SETTINGS
    settings_from_start = SETTINGS_FROM_START
    default_settings = DEFAULTS

    def __init__(self, distribution_bolt: str = "distribution-bolt") -> None:
        self._distribution_bolt = distribution_bolt

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Check the settings, the names of indexes and buffers, and that the topology has the distribution bolt."""
        settings = Settings.from_conf(conf)
        make_engine(settings)
        boolean.make_index(settings.boolean_index, settings.boolean_index_options)
        require_component(topology, component_id, self._distribution_bolt, "The distribution bolt is not there.")
        if settings.objects and (self._distribution_bolt, streams.Pairs.name) not in topology.components[component_id].inputs:
            legal = "pairs: DIRECT, from the distribution bolt"
            raise InvalidTopologyException(
                "dskype.objects needs a stream that the subscription bolt does not take.", given=streams.Pairs.name, legal=legal, component=component_id
            )
        if distributor_class(settings.distributor).transfers and (component_id, streams.Transfers.name) not in topology.components[component_id].inputs:
            raise InvalidTopologyException(
                f"The distributor {settings.distributor!r} needs a stream that the subscription bolt does not take.",
                given=streams.Transfers.name,
                legal="transfers: DIRECT, from itself",
                component=component_id,
            )

    def external_topics(self, topology: str, conf: Mapping[str, Any]) -> dict[str, dict[str, str]]:
        """Return the topics of results."""
        topics, config = Topics.for_topology(topology), topic_config(Settings.from_conf(conf))
        return {getattr(topics, name): config[name] for name in ("results", "matches", "topk", "registrations")}

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the streams."""
        for stream in (streams.Requests, streams.Progress, streams.Results, streams.Lists, streams.Shortages, streams.Switched):
            stream.declare(declarer)
        for stream in (streams.Transfers, streams.Balance):
            stream.declare(declarer, direct=True)

    def get_component_configuration(self) -> dict[str, Any]:
        """Ask for a tick every second, so that the last changed lists are written even if no more messages come."""
        return {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: 1}

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Start without subscriptions."""
        settings = self._settings = Settings.from_conf(conf)
        self._collector, self._context = collector, context
        replicates = distributor_class(settings.distributor).replicates
        allowance = self._allowance = Allowance(settings, context)
        publisher = ResultPublisher(
            collector,
            context.plan.name,
            settings,
            via_bolt=replicates or settings.store != "kafka",
            run=run_of(context.get_storm_id()),
            task=context.get_this_task_id(),
            record_bytes=conf.get(Config.TOPOLOGY_EMULATOR_RECORD_MAX_BYTES, RECORD_BYTES),
            allowance=allowance,
        )
        refusals = Refusals(settings.subscriptions_max, collector, context)
        counters = {
            name: context.register_counter(name)
            for name in ("deltas", "states", "postponed_lists", "matches", "evaluations", "unknown_unregistered", "unknown_updated")
        }
        self._announced = BEFORE_ALL
        self._queue = MessageQueue(Arrived)
        self._pairs = MessageQueue(StatePairs) if settings.objects else None
        topk = self._topk = TopkSubscriptions(settings, collector, publisher, counters, share(settings.topk_total_bytes_per_s, context))
        boolean_subscriptions = self._boolean = BooleanSubscriptions(settings)
        if replicates:
            distribution_tasks = context.get_component_tasks(self._distribution_bolt)
            self._owner: OwnerStrategy = ReplicatedOwner(topk, boolean_subscriptions, publisher, counters, collector, context, distribution_tasks, settings)
        else:
            self._owner = SingleOwner(topk, boolean_subscriptions, publisher, counters, refusals)
        self._initial = InitialMatches(collector, publisher, counters["matches"])
        context.register_gauge("subscriptions", lambda: len(topk.slots) + len(boolean_subscriptions.slots))
        context.register_gauge("pending_evaluations", lambda: topk.evaluations + len(self._initial))
        context.register_gauge("queued_messages", lambda: len(self._queue))

    # -- input ------------------------------------------------------------------------------------

    def execute_batch(self, batch: TupleBatch) -> None:
        """Handle messages, placements or answers."""
        stream = batch.get_source_stream_id()
        if stream == streams.Matching.name:
            self._queue.append(Arrived.of(streams.Matching.of(batch)))
        elif stream == streams.Pairs.name:
            assert self._pairs is not None
            self._pairs.append(StatePairs.of(streams.Pairs.of(batch)))
        elif stream == streams.Placements.name:
            self._initial.ask(self._owner.place(streams.Placements.of(batch), batch.get_source_task()))
        elif stream == streams.Transfers.name:
            self._owner.receive_transfers(list(streams.Transfers.rows(batch)))
        else:
            self._initial.publish(batch)
            if (answers := self._topk.pop_answers(batch)) is not None:
                self._owner.ask(self._owner.resolve(*answers).due)
                self._topk.write_lists(self._context.clock_ms())

    def on_watermark(self, watermark: int) -> None:
        """Apply the messages up to ``watermark``."""
        topk, owner, before = self._topk, self._owner, self._topk.watermark
        arrived, pairs = self._queue.pop_until(watermark), None if self._pairs is None else self._pairs.pop_until(watermark)
        changes = topk.advance(arrived, watermark, pairs)
        owner.publish_changes(changes, before)
        owner.match(arrived, None if pairs is None else pairs.of_tasks())
        owner.finish_watermark()
        owner.ask(changes.due)
        owner.end_expired_topk(arrived, pairs)
        topk.write_lists(self._context.clock_ms())
        topk.free_ids()
        if watermark - self._announced >= max(1, self._settings.extent // 16):
            self._announced = watermark
            streams.Progress(watermark=watermark).emit(self._collector)

    def execute_tick(self, tup: Tuple) -> None:
        """Write the lists that are due, and report the workload, and subscriptions with too many results."""
        now_ms = self._context.clock_ms()
        self._topk.write_lists(now_ms)
        self._owner.tick(now_ms)
        for found in (self._topk.busiest.pop_report(now_ms), self._boolean.busiest.pop_report(now_ms), self._topk.pop_postponed(now_ms)):
            if found is not None:
                self._collector.report_error(found)

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the whole state as arrays and plain values."""
        state = {
            "watermark": self._topk.watermark,
            "announced": self._announced,
            "queue": self._queue.snapshot(),
            **self._topk.snapshot(),
            **self._boolean.snapshot(),
            **self._owner.snapshot(),
            "allowance": self._allowance.snapshot(),
            "initial": self._initial.snapshot(),
            **({} if self._pairs is None else {"pairs": self._pairs.snapshot()}),
        }
        ordered = {key: state.pop(key) for key in _SNAPSHOT_KEYS if key in state}
        assert not state, f"not kept: {sorted(state)}"
        return ordered

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._announced = state["announced"]
        if "allowance" in state:  # absent from snapshots of earlier versions
            self._allowance.restore(state["allowance"])
        self._queue.restore(state["queue"])
        if self._pairs is not None and "pairs" in state:
            self._pairs.restore(state["pairs"])
        if "initial" in state:  # absent from snapshots of earlier versions
            self._initial.restore(state["initial"])
        self._topk.restore(state)
        self._boolean.restore(state)
        self._owner.restore(state)
