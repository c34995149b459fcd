"""The distribution bolt: turns texts into weighted keywords, and sends messages and subscriptions to the tasks that need them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from dskype.bolts.balancing import make_balancer
from dskype.bolts.balancing.balancer import Balancer
from dskype.bolts.checks import require_component
from dskype.bolts.message_queue import Arrived, MessageQueue
from dskype.bolts.objects import FORMER, FORMER_ALONE, ObjectTable, ObjectUpdates, StatePairs
from dskype.bolts.placement.base import PlacementStrategy
from dskype.bolts.placement.plans import Plans
from dskype.bolts.placement.replicated import ReplicatedPlacement
from dskype.bolts.placement.single import SinglePlacement
from dskype.bolts.placement.summarized import SummarizedPlacement
from dskype.bolts.protocol.balance import decode_balance
from dskype.bolts.quotas import Quotas
from dskype.bolts.refusals import Refusals
from dskype.bolts.searches import Filter
from dskype.bolts.window_feed import WindowFeed, send_rows
from dskype.distribution import DISTRIBUTORS, Distributor, check_distributor, distributor_class, distributor_files, start_distributor, summarizes
from dskype.distribution.routing.triggers import trigger_terms
from dskype.distribution.subscriptions import BooleanSubscription, Scorer, Subscription, TopkSubscription
from dskype.spouts import expression as expressions
from dskype.spouts import streams
from dskype.spouts.analyzer_settings import synonym_files
from dskype.spouts.areas import areas_to_columns, columns_to_areas
from dskype.spouts.batch import Details, MessageBatch, select_lists
from dskype.spouts.columns import csr_to_lists, distinct, lists_to_csr, to_strings
from dskype.spouts.filters import compile_filter, compile_program
from dskype.spouts.message_terms import MessageTerms
from dskype.spouts.reach import needed_terms, reach
from dskype.spouts.settings import Settings
from dskype.spouts.tenants import TENANTS
from dskype.spouts.text import WORD_RULE, refuse_analyzer, refuse_word_rule
from dskype.spouts.topics import BALANCE_KEY, Topics, topic_config
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.components import BatchBolt, OutputFieldsDeclarer
from dskype.topology.config import Config
from dskype.topology.errors import IllegalArgumentException, InvalidTopologyException, explain
from dskype.topology.groupings import RowTasks
from dskype.topology.tuples import Tuple, TupleBatch

__all__ = ["DistributionBolt"]


class DistributionBolt(BatchBolt):
    """Distributes messages and subscriptions (journal paper, section 7.2).

    Input: ``messages`` (shuffle), with ``dskype.objects`` also ``updates`` (fields(object)), and ``subscriptions`` (fields(subscription)). Output: ``matching`` and ``placements``, to the subscription
    tasks that the distributor names, and ``window``, to the one message task that keeps the message (its sequence number modulo their
    number). An update of an object goes to subscription tasks on ``pairs`` (:mod:`dskype.bolts.objects`), and to message tasks on ``window``
    and, where a state ends, on ``ends``. What goes to message tasks may come later (:mod:`dskype.bolts.window_feed`).

    With a distributor that replicates, input is also ``shortages`` (fields(subscription)) and ``switched`` (all), from the subscription
    bolt, and ``plans`` (all), from the subscription spout; output is also ``registrations`` (fields(subscription)), to the result bolt. With
    summaries its tasks also send each other ``interest`` (direct). With load balancing, input is also ``balance`` (direct), from the subscription
    bolt, and the first task writes plans to their topic. See :mod:`dskype.bolts.protocol`.

    Searches come on ``searches`` (shuffle), from the subscription spout, and leave on ``lookups`` (all), to the message bolt.

    :param subscription_bolt: id of the subscription bolt; default ``subscription-bolt``.
    :param message_bolt: id of the message bolt; default ``message-bolt``.
    """

    feedback_streams = (streams.Shortages.name, streams.Switched.name, streams.Interest.name, streams.Balance.name)

    def __init__(self, subscription_bolt: str = "subscription-bolt", message_bolt: str = "message-bolt") -> None:
        self._subscription_bolt, self._message_bolt = subscription_bolt, message_bolt

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Check the settings, and that the topology has both bolts."""
        settings = Settings.from_conf(conf)
        check_distributor(settings, must_exist=False)
        for other in (self._subscription_bolt, self._message_bolt):
            require_component(topology, component_id, other, "The distribution bolt sends to a component that is not there.")
        spec = topology.components[component_id]
        inputs, tasks = spec.inputs, spec.conf.get("topology.tasks") or spec.parallelism_hint or 1
        if settings.tenants and tasks > 1:
            raise InvalidTopologyException(
                "The quotas of a tenant are about all its subscriptions, and only one task sees all of them (dskype.tenants).",
                given=f"{tasks} tasks",
                legal="1 task of the distribution bolt",
                component=component_id,
            )
        if settings.objects and not any(stream == streams.Updates.name for _, stream in inputs):
            raise InvalidTopologyException(
                "dskype.objects needs a stream that the distribution bolt does not take.",
                given=sorted(stream for _, stream in inputs),
                legal="updates: FIELDS by object, from the message spout",
                component=component_id,
            )
        if any(stream == streams.Searches.name for _, stream in inputs):
            wanted = component_id, streams.Lookups.name
            if wanted not in topology.components[self._message_bolt].inputs:
                legal = "lookups: ALL, from the distribution bolt to the message bolt"
                raise InvalidTopologyException(
                    explain("Searches need a stream that the message bolt does not take.", given=self._message_bolt, legal=legal, component=component_id)
                )
        if settings.balance is not None:
            self._check_balancing(component_id, settings, inputs)
        if distributor_class(settings.distributor).replicates:
            needed = [(self._subscription_bolt, streams.Shortages.name), (self._subscription_bolt, streams.Switched.name)]
            for source, stream in [*needed, (component_id, streams.Interest.name)][: 3 if summarizes(settings) else 2]:
                if (source, stream) not in inputs:
                    raise InvalidTopologyException(
                        f"The distributor {settings.distributor!r} needs a stream that the distribution bolt does not take.",
                        given=stream,
                        legal="shortages: FIELDS by subscription, switched: ALL, both from the subscription bolt; with summaries, interest: DIRECT, from itself",
                        component=component_id,
                    )

    def _check_balancing(self, component_id: str, settings: Settings, inputs: Any) -> None:
        if not distributor_class(settings.distributor).balances:
            legal = ", ".join(sorted(name for name, kind in DISTRIBUTORS.items() if kind.balances))
            raise IllegalArgumentException(
                "dskype.balance: auto does not work with this distributor.", given=settings.distributor, legal=legal, component=component_id
            )
        if (self._subscription_bolt, streams.Balance.name) not in inputs or not any(stream == streams.Plans.name for _, stream in inputs):
            raise InvalidTopologyException(
                "dskype.balance: auto needs streams that the distribution bolt does not take.",
                given=sorted(stream for _, stream in inputs),
                legal="balance: DIRECT, from the subscription bolt; plans: ALL, from the subscription spout",
                component=component_id,
            )

    def external_topics(self, topology: str, conf: Mapping[str, Any]) -> dict[str, dict[str, str]]:
        """Return the topic of plans, with load balancing."""
        settings = Settings.from_conf(conf)
        return {} if settings.balance is None else {Topics.for_topology(topology).plans: topic_config(settings)["plans"]}

    def files(self, conf: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
        """Return the vocabulary, the files of synonyms, and those that the distributor's plan comes from."""
        settings = Settings.from_conf(conf)
        found = {("dskype.distributor.options", *key): file for key, file in distributor_files(settings).items()}
        return found | synonym_files(conf) | ({("dskype.vocabulary",): settings.vocabulary} if settings.vocabulary else {})

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the direct streams ``matching``, ``pairs``, ``placements``, ``window``, ``ends`` and ``interest``, ``registrations`` and ``lookups``."""
        for stream in (streams.Matching, streams.Pairs, streams.Placements, streams.Window, streams.Ends, streams.Interest):
            stream.declare(declarer, direct=True)
        streams.Registrations.declare(declarer)
        streams.Lookups.declare(declarer)

    def get_component_configuration(self) -> dict[str, Any]:
        """Ask for a tick every second, so that what is held back for the message tasks never waits longer."""
        return {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: 1}

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Load the vocabulary (one copy per process), and make the distributor and its strategy."""
        settings = self._settings = Settings.from_conf(conf)
        self._collector, self._context, self._component = collector, context, context.get_this_component_id()
        self._tokenizer = settings.analyzer()
        self._message_terms = MessageTerms(settings)
        self._vocabulary = Vocabulary.load(settings.vocabulary, self._tokenizer) if settings.vocabulary else Vocabulary.empty()
        self._subscription_tasks = context.get_component_tasks(self._subscription_bolt)
        alone = len(context.get_component_tasks(self._component)) == 1
        self._window = WindowFeed(context.get_component_tasks(self._message_bolt), collector, alone=alone)

        def make(plan: Mapping[str, Any] | None) -> Distributor:
            return start_distributor(settings, len(self._subscription_tasks), self._vocabulary, plan)

        self._refusals = Refusals(settings.subscriptions_max, collector, context, tenants=bool(settings.tenants))
        self._quotas = Quotas() if settings.tenants else None
        if self._quotas is not None:
            context.register_gauge(TENANTS, self._quotas.report)
        distributor = make(None)
        plans = Plans(distributor, make, lasting=settings.half_life_ms is None)
        self._placement: PlacementStrategy
        if not distributor.replicates:
            self._placement = SinglePlacement(distributor, self._subscription_tasks, collector)
        elif not summarizes(settings):
            self._placement = ReplicatedPlacement(plans, self._subscription_tasks, collector, context, settings.extent, bool(settings.objects))
        else:
            others = [task for task in context.get_component_tasks(self._component) if task != context.get_this_task_id()]
            self._placement = SummarizedPlacement(plans, self._subscription_tasks, collector, context, settings.extent, others, bool(settings.objects))
        self._objects: ObjectTable | None = None
        if settings.objects:
            self._open_objects(settings, context)
        self._balancer: Balancer | None = None
        if settings.balance is not None and context.get_this_task_index() == 0:
            assert isinstance(self._placement, ReplicatedPlacement | SummarizedPlacement)
            topic = Topics.for_topology(context.plan.name).plans
            sources = len(context.get_component_tasks(self._component))
            write = partial(collector.send_record, topic, BALANCE_KEY, numbered=False)  # a plan has a version
            self._balancer = make_balancer(settings, self._placement.epochs, write, context, sources)

    def _open_objects(self, settings: Settings, context: Any) -> None:
        table = self._objects = ObjectTable(settings.objects_ttl_ms, settings.objects_max)
        self._updates = MessageQueue(ObjectUpdates)
        self._refused_objects, self._outdated = context.register_counter("refused_objects"), context.register_counter("outdated_updates")
        context.register_gauge("objects", lambda: len(table))

    def execute_batch(self, batch: TupleBatch) -> None:
        """Distribute a frame of messages or of subscriptions, or handle reports and plans."""
        stream = batch.get_source_stream_id()
        if stream == streams.Messages.name:
            self._distribute_messages(batch)
        elif stream == streams.Updates.name:
            self._keep_updates(streams.Updates.of(batch))
        elif stream == streams.Subscriptions.name:
            for name, registration, record in streams.Subscriptions.of(batch).each("subscription", "registration", "record"):
                self._handle_subscription(name, registration, record)
        elif stream == streams.Searches.name:
            for name, record in streams.Searches.of(batch).each("search", "record"):
                self._look_up(name, record)
        elif stream == streams.Balance.name:
            assert self._balancer is not None
            for report in streams.Balance.rows(batch):
                self._balancer.receive(decode_balance(report.kind, report.record))
        else:
            self._placement.handle(batch)
        self._placement.finish_batch()
        if self._balancer is not None:
            self._balancer.advance()

    def execute_tick(self, tup: Tuple) -> None:
        """Let the message tasks have what was held back for them."""
        self._window.tick()

    def on_watermark(self, watermark: int) -> None:
        """Apply updates of objects, and record the watermark: placements say from when on they hold, and are reviewed from time to time."""
        if self._objects is not None:
            self._apply_updates(self._objects, watermark)
        self._placement.advance(watermark)

    # -- messages ---------------------------------------------------------------------------------

    def _distribute_messages(self, batch: TupleBatch) -> None:
        received = streams.Messages.of(batch)
        messages, details = self._analyze(received)
        ids, routes = to_strings(received.id), self._routes(messages, details)
        matching = streams.Matching(
            seq=messages.seq,
            position=messages.position,
            id=ids,
            terms=csr_to_lists(messages.offsets, messages.terms),
            weights=csr_to_lists(messages.offsets, messages.weights),
            **dict(zip(("lat", "lon"), areas_to_columns(messages.lat, messages.lon, messages.areas))),
            arrival_ms=received.arrival_ms,
            **details.columns(),
        )
        if routes is None:
            for task in self._subscription_tasks:
                matching.emit_direct_batch(self._collector, task)
        else:
            send_rows(self._collector, matching, routes.rows, routes.tasks, self._subscription_tasks)
        self._window.messages(Arrived(messages, ids, np.asarray(received.arrival_ms, np.int64), details))

    def _analyze(self, received: streams.Messages | streams.Updates) -> tuple[MessageBatch, Details]:
        """Return messages with their keywords, and what filters look at."""
        texts = to_strings(received.text)
        words = self._vocabulary.analyze(texts, self._tokenizer)
        details = Details(
            words.order_offsets,
            words.order,
            *lists_to_csr(received.attributes, np.int64),
            *self._message_terms.prefixes(texts),
            *lists_to_csr(received.region, np.float64),
        )
        lat, lon, areas = columns_to_areas(received.lat, received.lon)
        return MessageBatch(np.array(received.seq), np.array(received.position), lat, lon, words.offsets, words.terms, words.weights, areas), details

    def _routes(self, messages: MessageBatch, details: Details) -> RowTasks | None:
        """Return which task indexes get which messages; None: every task gets all."""
        messages = self._message_terms.add(messages, self._message_terms.of(details))
        if self._balancer is not None:
            self._balancer.record(messages)
        return self._placement.routes(messages)

    # -- objects ----------------------------------------------------------------------------------

    def _keep_updates(self, received: streams.Updates) -> None:
        """Keep updates until the watermark has passed them."""
        messages, details = self._analyze(received)
        states = Arrived(messages, to_strings(received.id), np.array(received.arrival_ms, np.int64), details)
        self._updates.append(ObjectUpdates(states, to_strings(received.object), np.array(received.time_ms), np.array(received.deleted)))

    def _apply_updates(self, table: ObjectTable, watermark: int) -> None:
        outdated, refused = table.outdated, table.refused
        pairs = table.apply(self._updates.pop_until(watermark), watermark)
        if pairs.messages.n:
            self._send_pairs(pairs)
            self._window.updates(pairs)
        self._outdated.inc(table.outdated - outdated)
        if table.refused > refused:
            self._refused_objects.inc(table.refused - refused)
            limit, component = self._settings.objects_max, self._component
            self._collector.report_error(
                explain(
                    f"A task has room for {limit:,} objects (dskype.objects.max), and has as many; updates of others are left out.",
                    given=f"{table.refused - refused} updates",
                    component=component,
                    hint="delete objects, set dskype.objects.ttl.ms, use more tasks, or raise the limit where there is memory",
                )
            )

    def _send_pairs(self, pairs: StatePairs) -> None:
        """Send both states of an update to all tasks that need one of them, and the former one to the others, which may have it in a list."""
        sent, routes, tasks = pairs.columns(), self._routes(pairs.messages, pairs.states.details), self._subscription_tasks
        if routes is None:
            for task in tasks:
                sent.emit_direct_batch(self._collector, task)
            return
        updates = pairs.updates()
        first = np.searchsorted(updates, np.arange(updates[-1] + 2))
        keys = distinct(updates[routes.rows] * len(tasks) + routes.tasks)
        _, rows = select_lists(first, keys // len(tasks))
        send_rows(self._collector, sent, rows, np.repeat(keys % len(tasks), np.diff(first)[keys // len(tasks)]), tasks)
        former = np.flatnonzero(pairs.before == FORMER)
        others = np.setdiff1d((updates[former][:, None] * len(tasks) + np.arange(len(tasks))).ravel(), keys, assume_unique=True)
        if len(others):
            sent = pairs._replace(before=np.full(len(updates), FORMER_ALONE, np.int8)).columns()
            send_rows(self._collector, sent, former[np.searchsorted(updates[former], others // len(tasks))], others % len(tasks), tasks)

    # -- subscriptions ----------------------------------------------------------------------------

    def _handle_subscription(self, name: str, registration: str, record: Mapping[str, Any] | None) -> None:
        if record is None:
            if self._quotas is not None:
                self._quotas.remove(name)
            self._placement.unregister(name, registration)
        elif not self._placement.has_room(name, self._refusals.limit):
            self._refusals.refuse(name, registration)
        elif self._quotas is not None and (excess := self._quotas.excess(name, record)) is not None:
            self._refusals.refuse_excess(name, registration, excess)
        else:
            subscription = self._subscription(record)
            if isinstance(subscription, TopkSubscription):
                self._window.ask(lasting=True)
            elif subscription.initial is not None:
                self._window.ask()
            if self._balancer is not None:
                self._balancer.register(name, subscription)
            self._placement.register(name, registration, subscription)

    def _subscription(self, record: Mapping[str, Any]) -> Subscription:
        """Return the subscription in a record of the subscription spout, with term ids in place of words."""
        if record["type"] == "topk":
            terms, weights = self._vocabulary.weigh(record["keywords"])
            program = self._program(record)
            place = record["alpha"], record["lat"], record["lon"]
            return TopkSubscription(
                record["k"], *place, terms, weights, record.get("meta"), program, record.get("scale_m"), record.get("expires_ms"), record.get("update")
            )
        if record["type"] == "threshold":
            return self._threshold(record)
        expression = expressions.as_lists(record["expression"])
        condition, program = compile_filter(expression, self._vocabulary.ids_of(expressions.words(expression)), self._settings.language.fields)
        inside = record.get("inside") or None
        more = record.get("expires_ms"), record.get("meta"), program, record.get("region"), inside
        initial = self._filter(record, record["initial"]).encode() if "initial" in record else None
        return BooleanSubscription(record["bbox"], condition, *more, update=record.get("update"), initial=initial)

    def _program(self, record: Mapping[str, Any]) -> list[int] | None:
        """Return what decides which messages count, by the expression ``where`` of a record; None: it has none."""
        where = expressions.as_lists(record.get("where"))
        return None if where is None else compile_program(where, self._vocabulary.ids_of(expressions.words(where)), self._settings.language.fields)

    def _threshold(self, record: Mapping[str, Any]) -> BooleanSubscription:
        """Return a threshold subscription as one of all messages that may reach its score, and what decides which do."""
        terms, weights = self._vocabulary.weigh(record["keywords"])
        place, min_score, scale_m = (record["alpha"], record["lat"], record["lon"]), record["min_score"], record.get("scale_m")
        condition = ["or", *needed_terms(record["alpha"], min_score, terms.tolist(), weights.tolist())]
        scorer = Scorer(min_score, *place, scale_m or 0.0, terms, weights)
        bbox = list(reach(*place, scale_m, min_score, self._settings.space.diagonal_deg))
        more = record.get("expires_ms"), record.get("meta"), self._program(record)
        return BooleanSubscription(bbox, condition, *more, update=record.get("update"), scorer=scorer)

    def _look_up(self, name: str, record: Mapping[str, Any]) -> None:
        """Let the message tasks look a search up as of this task's watermark: they have all messages up to there when they have reached it themselves."""
        self._window.release()
        watermark = self._context.watermark()
        looked = self._filter(record, record["k"]) if record["type"] == "boolean" else self._subscription(record)
        streams.Lookups(search=name, watermark=-1 if watermark is None else watermark, record=looked.encode()).emit(self._collector)

    def _filter(self, record: Mapping[str, Any], k: int) -> Filter:
        """Return what a boolean record asks of the window, for the newest ``k`` messages."""
        expression = expressions.as_lists(record["expression"])
        if expression == expressions.EVERYTHING:
            return Filter(k, record["bbox"], record.get("region"))
        ids, fields = self._vocabulary.ids_of(expressions.words(expression)), self._settings.language.fields
        terms = trigger_terms(compile_filter(expression, ids, fields).condition)
        words = set(ids.values())
        return Filter(k, record["bbox"], record.get("region"), compile_program(expression, ids, fields), terms if words.issuperset(terms) else None)

    def snapshot(self) -> Any:
        """Return the digest of the vocabulary and the states of the placement strategy and of load balancing."""
        objects = {} if self._objects is None else {"objects": self._objects.snapshot(), "updates": self._updates.snapshot()}
        state = {"words": WORD_RULE, "analyzer": self._tokenizer.identity, "vocabulary": self._vocabulary.digest, "placer": self._placement.snapshot()}
        state["window"] = self._window.snapshot()
        state |= objects if self._quotas is None else objects | {"quotas": self._quotas.snapshot()}
        return state if self._balancer is None else state | {"balancer": self._balancer.snapshot()}

    def restore(self, state: Any) -> None:
        """Continue from a snapshot.

        :raises IllegalArgumentException: the vocabulary or the rules for words have changed. Term ids are ranks in the vocabulary, and other
            tasks hold ids of the old one, and of words that are cut in another way now.
        """
        hint = "start over with --fresh, or use the version that wrote it"
        refuse_word_rule(f"{self._component}: the state", state.get("words"), hint)
        refuse_analyzer(f"{self._component}: the state", state.get("analyzer"), self._tokenizer.identity, f"{hint}, and its packages")
        if self._vocabulary.digest != state["vocabulary"]:
            raise IllegalArgumentException(
                f"The vocabulary {self._settings.vocabulary or '(none)'} is not the one that the topology was started with: SHA-256 {state['vocabulary']} was expected.",
                given=self._vocabulary.digest,
                component=self._component,
                hint="restore the file, or start another topology with the new one beside this one (docs/guides/data.md)",
            )
        if self._quotas is not None:
            if "quotas" not in state:
                raise IllegalArgumentException(
                    "dskype.tenants is set now, and the topology has not counted the subscriptions of tenants so far.",
                    given="a state without quotas",
                    component=self._component,
                    hint="start over with --fresh, so that all subscriptions are registered and counted anew, or take dskype.tenants away",
                )
            self._quotas.restore(state["quotas"])
        self._placement.restore(state["placer"])
        self._window.restore(state.get("window"))  # absent from snapshots of earlier versions
        if self._objects is not None and "objects" in state:
            self._objects.restore(state["objects"])
            self._updates.restore(state["updates"])
        if self._balancer is not None and "balancer" in state:
            self._balancer.restore(state["balancer"])
