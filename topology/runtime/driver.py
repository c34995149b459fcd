"""Runs one topology on Spark and Kafka: its topics, its queries, its clock, and the watch over them."""

from __future__ import annotations

import json
import logging
import re
import shutil
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from dskype.topology.components import KafkaBolt, KafkaSpout
from dskype.topology.config import Config
from dskype.topology.core.clock import ClockRecord, TopologyClock
from dskype.topology.core.executor import start_positions
from dskype.topology.core.snapshots import FileSnapshotStore
from dskype.topology.core.stats import NewestReports, TopologyStats
from dskype.topology.core.task import RECORD_BYTES
from dskype.topology.errors import TopologyError, explain
from dskype.topology.plan import TopologyPlan, dead_letters_topic, inbox_topic, metrics_topic
from dskype.topology.runtime.kafka import KafkaSettings, TopicAdmin
from dskype.topology.runtime.queries import ComponentQuery, QueryContext
from dskype.topology.steady_clock import now_ms

__all__ = ["TopologyDriver", "now_ms"]

log = logging.getLogger(__name__)

_CLOCK_STEP_S = 0.01
_RESTARTS_KEPT = 200
_WATCH_STEP_S = 0.5
_BUSY_S = 1.0
_JANITOR_EVERY_S = 30
_REST_S = 20
_ASK_AGAIN_S = 0.3
_CONTROL_TIMEOUT_S = 5
_METRICS_RETENTION_MS = 10 * 60_000


class TopologyDriver:
    """One topology, from its first query to the removal of its topics.

    Threads: the *clock* writes pulses and ticks to the inboxes, the *watch* reads the metrics topic
    and restarts failed queries, and now and then lets Kafka drop records that no snapshot needs.

    :param plan: the physical plan.
    :param spark: the session that runs the queries.
    :param kafka: the brokers.
    :param folder: the topology's own folder, reachable by every Spark executor; snapshots live here.
    :param resume: go on from the snapshots and inboxes of an earlier run; otherwise both are made anew.
    :param spark_scratch: where Spark's throw-away checkpoints go; default within ``folder``.
    """

    def __init__(self, plan: TopologyPlan, spark: Any, kafka: KafkaSettings, folder: Path, *, resume: bool = False,
                 spark_scratch: Path | None = None) -> None:
        self.plan, self._spark, self.kafka, self.folder = plan, spark, kafka, Path(folder)
        self.resume = resume
        self._scratch = Path(spark_scratch) if spark_scratch else self.folder / "spark"
        self.stats = TopologyStats()
        self._clock = TopologyClock(plan, self.stats, now_ms())
        self._queries: dict[str, ComponentQuery] = {}
        self._active = False
        self._opened = False
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()
        self._producer: KafkaProducer | None = None
        self._control_lock = threading.Lock()
        self._control_due: str | None = None
        self._epoch = 0
        self._work: dict[str, tuple[int, float]] = {}  # component -> tuples so far, and since when
        self._low: dict[tuple[str, int], int] = {}
        self.restarts: deque[dict[str, Any]] = deque(maxlen=_RESTARTS_KEPT)
        self.failure: BaseException | None = None

    # -- lifecycle --------------------------------------------------------------------------------

    @property
    def snapshots(self) -> Path:
        """The folder of snapshots and journals."""
        return self.folder / "snapshots"

    def open(self) -> None:
        """Make topics and queries; nothing is emitted before :meth:`activate`."""
        self._check_kafka_options()
        self._clock = TopologyClock(self.plan, self.stats, now_ms())  # time begins now
        mark = self.folder / "topics-made"
        if not (mark.is_file() and mark.read_text() == self.plan.topology_id):
            self.resume = False  # it never came so far as to have topics and snapshots of its own
        if not self.resume:
            shutil.rmtree(self.snapshots, ignore_errors=True)
            self._first_starts_file.unlink(missing_ok=True)
        self._store().create()
        self._make_topics()
        mark.write_text(self.plan.topology_id)
        self._producer = self.kafka.producer()
        self._start_queries()
        for target, name in ((self._run_clock, "clock"), (self._run_watch, "watch")):
            thread = threading.Thread(target=target, name=f"{self.plan.name}-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._opened = True

    def activate(self) -> None:
        """Let the spouts emit; opens the topology on the first call."""
        if not self._opened:
            self.open()
        self._active = True
        self._control("activate")

    def deactivate(self) -> None:
        """Pause the spouts; bolts and acks go on."""
        self._active = False
        if self._opened:
            self._control("deactivate")

    def rebalance(self, plan: TopologyPlan) -> None:
        """Go on with another placement of the same tasks: every query starts anew from its snapshots.

        The spouts are paused by now. What is on its way is delivered first and the bolts are asked for
        snapshots, so that nothing is routed again under the new placement (local-or-shuffle depends on it).
        """
        if not self._opened:
            self.plan = plan
            return
        self._come_to_rest()
        with self._lock:
            self._stop_queries()
            self.plan = plan
            self._start_queries()
            if self._active:
                self._control("activate")

    def _come_to_rest(self) -> None:
        try:
            self.wait_until(lambda stats: stats.undelivered_tuples() == 0, _REST_S, "an end of all deliveries")
            ends, store, asked = self._snapshot_at_end(), self._store(), time.monotonic()

            def saved(_: TopologyStats) -> bool:
                nonlocal asked
                # A snapshot is taken when a further batch begins and none is being written: ask until it has come about.
                if time.monotonic() - asked > _ASK_AGAIN_S:
                    self._snapshot_at_end()
                    asked = time.monotonic()
                return all((store.versions(task) or [0])[-1] >= end for task, end in ends.items())

            self.wait_until(saved, _REST_S, "a snapshot of every bolt task")
        except (TimeoutError, KafkaError) as error:
            log.warning("topology %s is rebalanced while it works: %s", self.plan.name, error)

    def _snapshot_at_end(self) -> dict[int, int]:
        """Ask every bolt task for a snapshot; return task -> the version behind the request."""
        futures = {}
        for topic, partition, value in self._clock.snapshot_requests(now_ms()):
            futures[topic, partition] = self._producer.send(topic, value=value, partition=partition)
        self._producer.flush(timeout=30)
        return {task: futures[inbox_topic(self.plan.name, c), self.plan.task_index(task)].get(timeout=30).offset + 1
                for c in self.plan.component_ids if not self.plan.spec(c).is_spout for task in self.plan.component_tasks(c)}

    def close(self, *, remove: bool) -> None:
        """Stop everything; with ``remove`` also delete topics and snapshots, else leave them for a resume."""
        self._active = False
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=10)
        with self._lock:
            self._stop_queries()
        if self._producer is not None:
            self._producer.close(timeout=5)
        if remove:
            admin = TopicAdmin(self.kafka)
            try:
                admin.delete([*self._inboxes(), metrics_topic(self.plan.name)])
            finally:
                admin.close()
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            shutil.rmtree(self._scratch, ignore_errors=True)

    # -- topics -----------------------------------------------------------------------------------

    def _inboxes(self) -> dict[str, int]:
        return {inbox_topic(self.plan.name, c): len(self.plan.component_tasks(c)) for c in self.plan.component_ids}

    def _make_topics(self) -> None:
        admin = TopicAdmin(self.kafka)
        inboxes = self._inboxes()
        own = {metrics_topic(self.plan.name): 1}
        size = {"max.message.bytes": str(2 * RECORD_BYTES)}
        try:
            existing = admin.existing(inboxes)
            if self.resume:
                if wrong := {t: n for t, n in existing.items() if inboxes[t] != n}:
                    msg = (f"topology {self.plan.name!r} cannot be resumed: the number of tasks has changed; expected "
                           f"partitions {({t: inboxes[t] for t in wrong})}; given: {wrong}; hint: start it afresh")
                    raise TopologyError(msg)
            else:
                admin.delete([*existing, *own])
            # Kafka must not drop what a snapshot may need: the watch does that itself.
            admin.create(inboxes, {"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": str(64 << 20), **size})
            admin.create(own, {"retention.ms": str(_METRICS_RETENTION_MS), "segment.ms": str(_METRICS_RETENTION_MS // 5), **size})
            admin.create({dead_letters_topic(self.plan.name): 1}, size)
            self._make_external_topics(admin)
            if self.resume:
                self._check_retention(admin)
        finally:
            admin.close()

    def _make_external_topics(self, admin: TopicAdmin) -> None:
        """Make the topics that components need where they are missing: brokers need not do so by themselves."""
        wanted: dict[str, dict[str, str]] = {}
        for spec in self.plan.topology.components.values():
            for topic, config in spec.obj.external_topics(self.plan.name).items():
                wanted.setdefault(topic, {}).update(config)
        existing = admin.existing(wanted)
        for topic, config in wanted.items():
            if topic not in existing:
                admin.create({topic: 1}, config)

    def _check_retention(self, admin: TopicAdmin) -> None:
        for component in self.plan.component_ids:
            topic = inbox_topic(self.plan.name, component)
            begin_end = admin.begin_and_end(topic)
            for (name, partition), offset in start_positions(self.plan, component, self._store()).items():
                if name == topic and not begin_end[partition][0] <= offset <= begin_end[partition][1]:
                    msg = (f"topology {self.plan.name!r} cannot be resumed: component {component!r} has to go on at offset "
                           f"{offset} of {topic}/{partition}, but the log holds {begin_end[partition]}; hint: start it afresh")
                    raise TopologyError(msg)

    # -- queries ----------------------------------------------------------------------------------

    def _store(self) -> FileSnapshotStore:
        return FileSnapshotStore(self.snapshots, self.plan.conf[Config.TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT])

    def _context(self) -> QueryContext:
        self._epoch = now_ms() if self._epoch == 0 else self._epoch + 1
        self._last_context = QueryContext(spark=self._spark, plan=self.plan, kafka=self.kafka, snapshots=self.snapshots,
                            scratch=self._scratch, logs=self.folder / "logs", epoch=self._epoch)
        return self._last_context

    def _start_queries(self) -> None:
        context = self._context()
        with ThreadPoolExecutor(max_workers=4) as pool:
            jobs = {c: pool.submit(self._start_query, context, c) for c in self.plan.component_ids}
            self._queries = {c: job.result() for c, job in jobs.items()}

    def _start_query(self, context: QueryContext, component: str) -> ComponentQuery:
        positions = start_positions(self.plan, component, self._store())
        spout = self.plan.spec(component).obj
        if isinstance(spout, KafkaSpout):
            positions |= self._external_positions(spout, positions)
        query = ComponentQuery(context, component, positions)
        query.start()
        return query

    def _check_kafka_options(self) -> None:
        """Refuse options of Kafka components that this runtime cannot honour, rather than leave them out."""
        for component in self.plan.component_ids:
            obj = self.plan.spec(component).obj
            if isinstance(obj, KafkaBolt) and obj.kafka_options:
                raise TopologyError(explain("A KafkaBolt writes with the topology's own producer.", given=sorted(obj.kafka_options),
                                            component=component, hint="give kafka.* settings to the cluster"))
            servers = obj.kafka_options.get("bootstrap.servers") if isinstance(obj, KafkaSpout) else None
            if servers not in (None, self.kafka.bootstrap_servers):
                raise TopologyError(explain("A KafkaSpout reads from the brokers that carry the topology.", given=servers,
                                            component=component, legal=self.kafka.bootstrap_servers))

    def _external_positions(self, spout: KafkaSpout, known: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Return where to begin in the external topics' partitions that no spout task has read yet."""
        first_starts = self._first_starts()
        consumer = self.kafka.consumer(group_id=self._group(spout))
        try:
            topics = spout.topics or [t for t in consumer.topics() if re.fullmatch(spout.pattern, t)]
            if not topics:
                msg = f"no topic matches the pattern of a KafkaSpout; given: {spout.pattern!r}"
                raise TopologyError(msg)
            found: dict[tuple[str, int], int] = {}
            for topic in topics:
                numbers = consumer.partitions_for_topic(topic)
                if not numbers:
                    msg = f"a KafkaSpout reads a topic that does not exist; given: {topic!r}; hint: create it first"
                    raise TopologyError(msg)
                partitions = [TopicPartition(topic, p) for p in numbers]
                first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
                for tp in partitions:
                    if (topic, tp.partition) in known:
                        continue
                    if (topic, tp.partition) in first_starts:
                        found[topic, tp.partition] = first_starts[topic, tp.partition]
                        continue
                    strategy = spout.first_poll_strategy
                    committed = consumer.committed(tp) if strategy.startswith("UNCOMMITTED") else None
                    start = committed if committed is not None else last[tp] if strategy.endswith("LATEST") else first[tp]
                    found[topic, tp.partition] = max(start, first[tp])
            self._first_starts_file.write_text(json.dumps([[t, p, offset] for (t, p), offset in {**first_starts, **found}.items()]))
            return found
        finally:
            consumer.close()

    @property
    def _first_starts_file(self) -> Path:
        return self.folder / "first-offsets.json"

    def _first_starts(self) -> dict[tuple[str, int], int]:
        """Return where the topology began in external partitions: LATEST must not mean a later end after a restart."""
        try:
            return {(t, p): offset for t, p, offset in json.loads(self._first_starts_file.read_text())}
        except FileNotFoundError:
            return {}

    def _group(self, spout: KafkaSpout) -> str:
        return str(spout.kafka_options.get("group.id", f"dskype-{self.plan.name}"))

    def _stop_queries(self) -> None:
        queries, self._queries = self._queries, {}
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda query: query.stop(), queries.values()))
        if queries:
            try:
                self._last_context.stop_executors()
            except Exception as error:  # Spark is gone, and the executors with it
                log.warning("the executors of topology %s could not be stopped: %s", self.plan.name, error)

    # -- clock ------------------------------------------------------------------------------------

    def _write(self, records: list[ClockRecord], timeout_s: float = 30) -> None:
        for record in records:
            self._producer.send(record.topic, value=record.value, partition=record.partition)
        if records:
            self._producer.flush(timeout=timeout_s)

    def _control(self, command: str) -> None:
        """Tell all spouts; with the broker away the clock does it when that is back."""
        with self._control_lock:
            self._control_due = command
            try:
                self._write_control()
            except KafkaError as error:
                log.warning("topology %s cannot be told to %s now: %s; trying again", self.plan.name, command, error)

    def _write_control(self) -> None:
        self._write(self._clock.control(self._control_due, now_ms()), _CONTROL_TIMEOUT_S)
        self._control_due = None

    def _run_clock(self) -> None:
        while not self._stop.is_set():
            try:
                if self._control_due is not None:
                    with self._control_lock:
                        if self._control_due is not None:
                            self._write_control()
                self._write(self._clock.due(now_ms(), active=self._active))
            except KafkaError as error:
                log.warning("the clock of topology %s cannot write: %s; trying again", self.plan.name, error)
                self._stop.wait(1)
            wait = (self._clock.next_due_ms(active=self._active) - now_ms()) / 1000
            self._stop.wait(min(0.5, max(_CLOCK_STEP_S, wait)))

    # -- watch ------------------------------------------------------------------------------------

    def _run_watch(self) -> None:
        consumer = self.kafka.consumer(fetch_max_wait_ms=500)
        try:
            where = TopicPartition(metrics_topic(self.plan.name), 0)
            consumer.assign([where])
            consumer.seek_to_beginning(where)
            next_watch = next_clean = time.monotonic()
            next_clean += _JANITOR_EVERY_S
            reports = NewestReports(_METRICS_RETENTION_MS / 2000)
            while not self._stop.is_set():
                try:
                    for batch in consumer.poll(timeout_ms=int(_WATCH_STEP_S * 1000)).values():
                        for record in batch:
                            self.stats.feed(record.value)
                            reports.heard(record.key, record.value, time.monotonic())
                    if time.monotonic() >= next_watch:
                        self._revive()
                        self._pace()
                        next_watch = time.monotonic() + _WATCH_STEP_S
                    if time.monotonic() >= next_clean:
                        self._drop_old_records()
                        for key, value in reports.due(self.stats, time.monotonic()):
                            self._producer.send(where.topic, key=key, value=value, partition=0)
                        next_clean = time.monotonic() + _JANITOR_EVERY_S
                except KafkaError as error:
                    log.warning("the watch of topology %s cannot read: %s; trying again", self.plan.name, error)
                    self._stop.wait(1)
                except Exception as error:  # keep watching: a query must not stay down because of one bad round
                    self.failure = error
                    log.exception("the watch of topology %s met an error", self.plan.name)
                    self._stop.wait(1)
        finally:
            consumer.close()

    def _pace(self) -> None:
        """Let queries that have had no tuples for a while look for some less often."""
        now = time.monotonic()
        for component, query in list(self._queries.items()):
            # Tuples count, not batches: a spout with nothing to emit has batches, for its pulses.
            done = self.stats.total(component, "executed") + self.stats.total(component, "emitted")
            if done != self._work.get(component, (0, 0.0))[0]:
                self._work[component] = (done, now)
            query.pace(busy=now - self._work.get(component, (0, 0.0))[1] < _BUSY_S)

    def _revive(self) -> None:
        """Start failed queries anew, from their snapshots."""
        with self._lock:
            for component, query in list(self._queries.items()):
                if self._stop.is_set() or (error := query.failure()) is None:
                    continue
                log.warning("the query of component %s of topology %s failed and starts again: %s",
                            component, self.plan.name, str(error)[:500])
                self.restarts.append({"component": component, "time_ms": now_ms(), "error": str(error)[:2000]})
                self.stats.errors.append({"v": 1, "kind": "error", "component": component, "task": -1, "time_ms": now_ms(),
                                          "error": f"the query failed and was started again: {str(error)[:2000]}"})
                query.stop()
                self._queries[component] = self._start_query(self._context(), component)

    def _drop_old_records(self) -> None:
        """Let Kafka drop inbox records below the oldest snapshot of their task."""
        store, before, low = self._store(), {}, {}
        for component in self.plan.component_ids:
            topic = inbox_topic(self.plan.name, component)
            for task in self.plan.component_tasks(component):
                where = topic, self.plan.task_index(task)
                if self.plan.spec(component).is_spout:
                    # A spout goes on from its newest journal entry, which is younger than the last round's position.
                    if where in self._low:
                        before[where] = self._low[where]
                    low[where] = self.stats.tasks.get(task, {}).get("version", 0)
                elif versions := store.versions(task):
                    before[where] = versions[0]
        self._low = low
        admin = TopicAdmin(self.kafka)
        try:
            admin.delete_records({where: offset for where, offset in before.items() if offset > 0})
        finally:
            admin.close()

    # -- looking inside ---------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[TopologyStats], bool], timeout_s: float, what: str = "the condition") -> None:
        """Wait until ``condition(stats)`` holds.

        :raises TimeoutError: it did not within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        while not condition(self.stats):
            if time.monotonic() > deadline:
                msg = f"{what} did not come about within {timeout_s:g} s; errors: {[e['error'][-500:] for e in self.stats.errors][-3:]}"
                raise TimeoutError(msg)
            time.sleep(0.05)
