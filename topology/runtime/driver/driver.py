"""Runs one topology on Spark and Kafka: its topics, its queries, its clock, and the threads that watch over them."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from kafka import TopicPartition
from kafka.errors import KafkaError

from dskype.topology.config import Config
from dskype.topology.core.clock import ClockRecord, TopologyClock
from dskype.topology.core.executor import check_journals, lost_tails
from dskype.topology.core.snapshots import FencedError
from dskype.topology.core.stats import NewestReports, TopologyStats
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.errors import FATAL_MARK, RETRIABLE_MARK, FatalError, TopologyError, explain, mark_of, text_after
from dskype.topology.planning.plan import TopologyPlan, inbox_topic, metrics_topic
from dskype.topology.runtime.driver.committer import Committer
from dskype.topology.runtime.driver.inputs import ExternalInputs
from dskype.topology.runtime.driver.preflight import check_executors
from dskype.topology.runtime.driver.reports import DRIVER_KEY, DriverReports, cause_of
from dskype.topology.runtime.driver.restarts import RESTARTED, Restarts
from dskype.topology.runtime.driver.resume import SNAPSHOTS, Tenure, check_changes, installed_version, read_started
from dskype.topology.runtime.driver.stalls import StallWatch
from dskype.topology.runtime.driver.topics import METRICS_RETENTION_MS, TopologyTopics, check_kafka_options
from dskype.topology.runtime.kafka.clients import KafkaSettings, brokers_answer, check_codecs
from dskype.topology.runtime.kafka.connections import FAILOVER_MS
from dskype.topology.runtime.kafka.reading import KafkaInboxReader
from dskype.topology.runtime.kafka.record_producer import RecordProducer
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.kafka.write_watch import WriteWatch, write_once
from dskype.topology.runtime.spark.component_query import ComponentQuery, PartitionsAddedError
from dskype.topology.runtime.spark.queries import QueryContext
from dskype.topology.runtime.spark.session import jvm_exit_code
from dskype.topology.runtime.spark.transports import Transports
from dskype.topology.runtime.stores.choice import choose_store, ship_files
from dskype.topology.runtime.stores.control_files import MANIFEST, Manifest
from dskype.topology.runtime.stores.kept_files import keep_files
from dskype.topology.runtime.stores.shared_files import SharedFiles

__all__ = ["TopologyDriver", "TopologyFailedError", "now_ms"]

log = logging.getLogger(__name__)

_CLOCK_STEP_S, _WATCH_STEP_S = 0.01, 0.5
_JANITOR_EVERY_S = 30
_REST_S = 20
_ASK_AGAIN_S = 0.3
_CONTROL_TIMEOUT_S = 5
_COMMIT_S = 10.0
"""How long the end of a topology waits for brokers that are to keep its last offsets."""
_BROKER_RETRY_S = _RETRY_S = 2.0
_STARTS_PER_TERM, _KEPT_RESTARTS = 1 << 20, 1000


class TopologyFailedError(TopologyError):
    """A topology has failed; its topics and snapshots stay, so that it can be resumed."""


class TopologyDriver:
    """Runs one topology, from its first query to the removal of its topics.

    It has three threads. The *clock* writes pulses and ticks to the inboxes. The *watch* reads the metrics topic, restarts failed queries, and reports the
    topology's health. The *janitor* looks after the topics, and whether what the driver writes arrives; its requests may wait long for a broker that is away, and the watch must not. A driver holds the
    topology's highest *term*; one that finds a higher term has been replaced, and ends without changing anything.

    :param plan: the topology plan.
    :param spark: the session that runs the queries.
    :param kafka: the brokers.
    :param folder: the topology's own folder, on the driver's host. It holds the files that describe the topology, and the snapshots unless they are elsewhere.
    :param resume: whether to continue from the snapshots and inboxes of an earlier run; otherwise both start empty.
    :param spark_scratch: folder for Spark's throw-away checkpoints; default within ``folder``.
    :param announce: called with text for the user when the topology's health changes, and while it starts on other hosts.
    """

    def __init__(
        self,
        plan: TopologyPlan,
        spark: Any,
        kafka: KafkaSettings,
        folder: Path,
        *,
        resume: bool = False,
        spark_scratch: Path | None = None,
        announce: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._spark, self.kafka, self.folder = spark, kafka, Path(folder)
        self.plan, self.store = choose_store(plan, spark, kafka, self.folder / SNAPSHOTS)
        self.tenure, self.resume = Tenure(self.store), resume
        self._scratch = Path(spark_scratch or self.folder / "spark")
        self.stats = TopologyStats()
        self._clock = TopologyClock(plan, self.stats, now_ms())
        self._topics = TopologyTopics(self.plan, kafka)
        self._shared = SharedFiles(self.plan, self.folder, self.store)
        self._inputs = ExternalInputs(kafka, self.folder, plan.name, self._shared.share)
        self._reports = DriverReports(plan.topology_id, self.stats, now_ms, announce)
        self._committer: Committer | None = None
        self._restarts = Restarts(plan.conf[Config.TOPOLOGY_EMULATOR_RESTARTS_MAX])
        self._stalls = StallWatch(plan.conf[Config.TOPOLOGY_EMULATOR_STALL_SECS], gap_s=10 * _WATCH_STEP_S)
        self._queries: dict[str, ComponentQuery] = {}
        self._due: dict[str, float] = {}  # component -> when to restart its query, monotonic
        self._active = self._opened = False
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._resources = contextlib.ExitStack()  # what the threads have opened
        self._lock = threading.RLock()
        self._producer: RecordProducer | None = None
        self._control_lock = threading.Lock()
        self._control_due: str | None = None
        self._starts, self._brokers_away = 0, False
        self._transports = Transports()
        self._obstacles: dict[str, str] = {}  # component -> retriable error of its query
        self.warnings: list[str] = []
        """Problems of external topics that do not prevent the topology from running."""
        self.restarts: deque[dict[str, Any]] = deque(maxlen=_KEPT_RESTARTS)
        self.failure: TopologyError | None = None
        """Why the topology has failed."""

    # -- lifecycle --------------------------------------------------------------------------------

    def open(self) -> None:
        """Create topics and start queries; nothing is emitted before :meth:`activate`.

        :raises ResumeRefusedError: the submitted topology differs too much from the one that was started.
        :raises ControlFileError: a file that describes the started topology is missing or damaged.
        :raises TopologyError: Kafka or Spark cannot run the topology.
        """
        check_codecs()
        check_kafka_options(self.plan, self.kafka)
        self._prepare_folder()
        self.warnings = self._topics.create(self.resume, self.store)
        ship_files(self.plan, self.store)
        if not self.resume:
            self._manifest.write(self.folder)
        self._shared.share()
        if self.resume:
            check_journals(self.plan, self.store, KafkaInboxReader(self.kafka))
        if not self._spark.sparkContext.master.startswith("local"):
            hosts = check_executors(self._spark, self.store, self.kafka, self.plan.conf[Config.TOPOLOGY_EMULATOR_START_TIMEOUT_SECS])
            self._reports.announce(f"topology {self.plan.name}: Spark's executors on {', '.join(hosts)} reach brokers and state; starting queries")
        self._producer = self.kafka.producer()
        self._writes = WriteWatch(self._producer, lambda: write_once(self.kafka, metrics_topic(self.plan.name), self._reports.document(), DRIVER_KEY))
        positions = self._all_positions()
        self.warnings += [*self._inputs.warnings, *self._transports.choose(self.plan, self._spark, positions)]
        self._clock = TopologyClock(self.plan, self.stats, now_ms(), self.plan.component_ids)  # the clock starts now, not when the driver was made
        self._start_queries(positions)
        runs = ((self._clock_step, "clock", 0.0), (self._watch(), "watch", 0.0), (self._look_after_topics, "janitor", _JANITOR_EVERY_S))
        self._threads = [threading.Thread(target=self._run, args=run, name=f"{self.plan.name}-{run[1]}", daemon=True) for run in runs]
        for thread in self._threads:
            thread.start()
        self._committer = Committer(self.plan, self.kafka, self.stats, self.tenure, lambda text: self._reports.add_error("__driver", text, part="commits"))
        self._committer.start()
        self._opened = True

    def _prepare_folder(self) -> None:
        """Resume the state in the topology's folder, or clear it; and take the next term."""
        if self.resume:
            self._shared.fetch()
        started = read_started(self.plan, self.folder, self.store) if self.resume else None
        self.resume = started is not None
        self.plan = self._topics.plan = keep_files(self.plan, self.folder, self.resume)
        self._manifest = Manifest.describe(self.plan, installed_version())
        if started is not None and check_changes(self.plan, started, self._manifest):
            self._manifest.write(self.folder)
        self.store.create()
        # Before anything else, so that an earlier driver's processes cannot write any more.
        self.tenure.take()
        if not self.resume:
            self.store.clear()
            (self.folder / MANIFEST).unlink(missing_ok=True)
            self._inputs.forget()

    def activate(self) -> None:
        """Let the spouts emit; opens the topology on the first call."""
        if not self._opened:
            self.open()
        self._active = True
        self._control("activate")

    def deactivate(self) -> None:
        """Pause the spouts; bolts and acks continue."""
        self._active = False
        if self._opened:
            self._control("deactivate")
        if self._committer is not None:
            self._committer.commit_soon()

    def debug(self, percents: Mapping[str, float]) -> None:
        """Set which percentages of the tuples go to the event loggers."""
        if self._opened:
            self._write(self._clock.debug(percents, now_ms()))

    def rebalance(self, plan: TopologyPlan) -> None:
        """Continue with the same tasks on other executors and workers: every query restarts from its snapshots.

        The spouts are already paused. Before the restart, all tuples are delivered and the bolts take snapshots, so that
        no tuple is routed a second time in another way (local-or-shuffle depends on the workers).
        """
        if not self._opened:
            self.plan = plan
            return
        self._drain()
        with self._lock:
            self._stop_queries()
            self.plan = plan
            positions = self._all_positions()
            for warning in self._transports.choose(plan, self._spark, positions):
                self._reports.add_error("__driver", warning)
            self._start_queries(positions)
            if self._active:
                self._control("activate")

    def _drain(self) -> None:
        """Wait until all tuples are delivered and every bolt task has a snapshot of that state."""
        try:
            self.wait_until(lambda stats: stats.undelivered_tuples() == 0, _REST_S, "an end of all deliveries")
            ends, asked = self.request_snapshots(), time.monotonic()

            def saved(_: TopologyStats) -> bool:
                nonlocal asked
                # A snapshot is taken only when a further batch begins and none is being written, so ask repeatedly.
                if time.monotonic() - asked > _ASK_AGAIN_S:
                    self.request_snapshots()
                    asked = time.monotonic()
                return all((self.store.versions(task) or [0])[-1] >= end for task, end in ends.items())

            self.wait_until(saved, _REST_S, "a snapshot of every bolt task")
        except (TimeoutError, KafkaError) as error:
            log.warning("topology %s is rebalanced before it is idle: %s", self.plan.name, error)

    def request_snapshots(self) -> dict[int, int]:
        """Ask every bolt task for a snapshot; return task -> version behind the request."""
        sent = {
            (topic, partition): self._producer.send(topic, value, partition=partition) for topic, partition, value in self._clock.snapshot_requests(now_ms())
        }
        return {
            task: sent[inbox_topic(self.plan.name, c), self.plan.task_index(task)].get().offset + 1
            for c in self.plan.component_ids
            if not self.plan.spec(c).is_spout
            for task in self.plan.component_tasks(c)
        }

    def close(self, *, remove: bool) -> None:
        """Stop everything; with ``remove`` also delete topics and snapshots, otherwise keep them for a resume.

        A driver that was replaced removes nothing, because topics and snapshots belong to its successor.
        """
        self._active = False
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=10)
        if not any(thread.is_alive() for thread in self._threads):
            self._resources.close()
        if self._committer is not None:
            self._committer.close(_COMMIT_S)
        with self._lock:
            self._stop_queries()
        self._transports.release()
        if self._producer is not None:
            with contextlib.suppress(KafkaError):
                self._reports.write(self._send_report)
            self._producer.close(timeout=5)
        if remove and not self.tenure.is_over():
            self._topics.delete()
            self.store.remove()
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self.store.rest()

    # -- the end of a driver ----------------------------------------------------------------------

    def abandon(self, reason: str) -> None:
        """End because the topology no longer belongs to this driver; change nothing."""
        self._fail(FencedError(f"topology {self.plan.name!r} ends here: {reason}"))

    def end(self, reason: str) -> None:
        """End because this process cannot do its work any more; the topology can be resumed."""
        self._fail(TopologyFailedError(reason))

    # -- queries ----------------------------------------------------------------------------------

    def _context(self) -> QueryContext:
        self._starts += 1
        self._last_context = QueryContext(
            spark=self._spark,
            plan=self.plan,
            kafka=self.kafka,
            producer=cast(RecordProducer, self._producer),
            store=self.store,
            scratch=self._scratch,
            logs=None if self.store.remote else self.folder / "logs",
            term=self.tenure.term,
            epoch=self.tenure.term * _STARTS_PER_TERM + self._starts,
        )
        return self._last_context

    def _start_queries(self, positions: Mapping[str, dict[tuple[str, int], int]]) -> None:
        context = self._context()
        self._due.clear()
        with ThreadPoolExecutor(max_workers=4) as pool:
            jobs = {c: pool.submit(self._transports.start_query, context, c, found) for c, found in positions.items()}
            self._queries = {c: job.result() for c, job in jobs.items()}

    def _all_positions(self) -> dict[str, dict[tuple[str, int], int]]:
        with ThreadPoolExecutor(max_workers=4) as pool:
            return dict(zip(self.plan.component_ids, pool.map(self._positions, self.plan.component_ids)))

    def _positions(self, component: str) -> dict[tuple[str, int], int]:
        return self._inputs.start_positions(self.plan, component, self.store)

    def _stop_queries(self) -> None:
        queries, self._queries = self._queries, {}
        if not queries or jvm_exit_code(self._spark) is not None:  # without the JVM there is nothing to stop, and every call would block
            return
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda query: query.stop(), queries.values()))
        try:
            self._last_context.stop_executors()
        except Exception as error:  # Spark has ended, and the executors with it
            log.warning("the executors of topology %s could not be stopped: %s", self.plan.name, error)

    # -- threads ----------------------------------------------------------------------------------

    def _run(self, step: Callable[[], float], name: str, wait_s: float) -> None:
        """Wait, run a step, which says how long to wait next, and so on until the driver stops. Errors of a step do not end the thread."""
        while not self._stop.wait(wait_s):
            try:
                wait_s = step()
            except FatalError as error:
                self._fail(error)
                wait_s = 1.0
            except KafkaError as error:
                self._brokers_away = True
                log.warning("the %s of topology %s cannot reach Kafka: %s; trying again", name, self.plan.name, error)
                wait_s = 1.0
            except Exception as error:  # neither a bad record nor any other error may end a thread of the driver
                log.exception("the %s of topology %s had an error", name, self.plan.name)
                self._reports.add_error("__driver", f"the {name} had an error and continues: {type(error).__name__}: {error}", part=name)
                wait_s = 1.0

    def check(self) -> None:
        """Raise the error that has ended the topology, if any.

        :raises TopologyError: the topology has failed, or a thread of the driver has ended.
        """
        if self.failure is not None:
            raise self.failure
        if (dead := [t.name for t in self._threads if not t.is_alive()]) and not self._stop.is_set():
            error = TopologyFailedError(f"threads of the driver have ended: {', '.join(dead)}")
            self._fail(error)
            raise self.failure or error

    def _fail(self, error: TopologyError) -> None:
        """End the topology: nothing more is emitted, and the metrics topic says why."""
        with self._lock:
            if self.failure is not None:
                return
            self._active, self.failure = False, error
        self._reports.add_error("__driver", str(error), part="failure")
        self._reports.set_health("failed", [str(error)])
        if not isinstance(error, FencedError) and self._producer is not None:
            with contextlib.suppress(KafkaError):
                self._reports.write(self._send_report)

    def note_broker(self, text: str, *, gone: bool) -> None:
        """Report an event of the broker that runs for this topology.

        :param gone: whether it has ended for good.
        """
        self._reports.add_error("__driver", text, part="broker")
        if gone:
            self.end(text)

    def health(self) -> dict[str, Any]:
        """Return ``{"state", "why", "restarts"}``; the state is starting, running, waiting (for the brokers), stalled or failed."""
        return self._reports.summary()

    # -- clock ------------------------------------------------------------------------------------

    def _write(self, records: list[ClockRecord], timeout_s: float = 30) -> None:
        if records and self.tenure.is_over():
            raise FencedError(f"topology {self.plan.name!r} ends here: another driver has taken it over")
        deadline = time.monotonic() + timeout_s
        for sent in [self._producer.send(record.topic, record.value, partition=record.partition) for record in records]:
            sent.get(max(0.0, deadline - time.monotonic()))
        if records:
            self._brokers_away = False

    def _control(self, command: str) -> None:
        """Send a command to all spouts; if the brokers are away, the clock sends it when they are back."""
        with self._control_lock:
            self._control_due = command
            try:
                self._write_control()
            except KafkaError as error:
                log.warning("the spouts of topology %s cannot get the command %s now: %s; trying again", self.plan.name, command, error)

    def _write_control(self) -> None:
        self._write(self._clock.control(cast("str", self._control_due), now_ms()), _CONTROL_TIMEOUT_S)
        self._control_due = None

    def _clock_step(self) -> float:
        if self.failure is not None:
            return _WATCH_STEP_S
        if self._control_due is not None:
            with self._control_lock:
                if self._control_due is not None:
                    self._write_control()
        self._write(self._clock.due(now_ms(), active=self._active))
        wait_s = (self._clock.next_due_ms(active=self._active) - now_ms()) / 1000
        return min(0.5, max(_CLOCK_STEP_S, wait_s))

    # -- watch ------------------------------------------------------------------------------------

    def _watch(self) -> Callable[[], float]:
        """Return the step of the watch."""
        where = TopicPartition(metrics_topic(self.plan.name), 0)
        reports = NewestReports(METRICS_RETENTION_MS / 2000)
        consumer: Any = None
        next_watch = time.monotonic()
        next_repeat = next_watch + _JANITOR_EVERY_S
        known = dict(self.plan.task_component)

        def step() -> float:
            nonlocal consumer, next_watch, next_repeat
            # First what needs no broker: a JVM that has ended, another driver, failed queries.
            if time.monotonic() >= next_watch:
                next_watch = time.monotonic() + _WATCH_STEP_S
                self._check_all()
            if self.failure is not None:
                return _WATCH_STEP_S
            if consumer is None:
                consumer = self._resources.enter_context(contextlib.closing(self.kafka.consumer(fetch_max_wait_ms=500, request_timeout_ms=FAILOVER_MS)))
                consumer.assign([where])
                consumer.seek_to_beginning(where)
            for batch in consumer.poll(timeout_ms=int(_WATCH_STEP_S * 1000)).values():
                for record in batch:
                    if record.key != DRIVER_KEY and self.stats.feed(record.value, known):
                        reports.remember(record.key, record.value, time.monotonic())
            self._reports.write(self._send_report)
            if time.monotonic() >= next_repeat:
                next_repeat = time.monotonic() + _JANITOR_EVERY_S
                for key, value in reports.due(self.stats, time.monotonic()):
                    self._producer.send(where.topic, value, key=key, partition=0)
            return 0.0

        return step

    def _send_report(self, key: bytes | None, value: bytes) -> None:
        self._producer.send(metrics_topic(self.plan.name), value, key=key, partition=0).get()

    def _check_all(self) -> None:
        """Check term, JVM and queries once; restart failed queries, and report the health."""
        if self.failure is not None:
            return
        if self.tenure.is_over():
            self.abandon("another driver has taken it over")
            return
        if (code := jvm_exit_code(self._spark)) is not None:
            self._fail(
                TopologyFailedError(
                    f"Spark's JVM has ended (exit code {code}), and topology {self.plan.name!r} with it; "
                    "hint: the log below the topology's folder says more; submit it again to resume it"
                )
            )
            return
        self._restart_queries()
        if self.failure is None:
            self._report_health()

    def _versions(self) -> dict[int, int]:
        return {task: report.get("version", 0) for task, report in list(self.stats.tasks.items())}

    def _waiting(self) -> dict[int, int]:
        """Return task -> number of tuples, or of a spout's pulses, that wait for it."""
        return self.stats.undelivered_by_task() | (self._clock.unseen_pulses() if self._active else {})

    def _report_health(self) -> None:
        waiting = {} if self._brokers_away else self._waiting()
        begun = self.stats.reported(self.tenure.term)
        self._reports.judge_health(
            self.kafka.bootstrap_servers if self._brokers_away else None,
            {c: reason for c, reason in self._obstacles.items() if c in self._due},
            {c: n for c in self.plan.component_ids if (n := self._restarts.in_a_row(c)) > 1 and c in self._due},
            self._stalls.find(self.plan.task_component, self._versions(), waiting, time.monotonic(), begun),
            begun=bool(begun),
            compiling={component: kernel for (component, _), (kernel, _) in list(self.stats.compiling.items())},
        )

    def _restart_queries(self) -> None:
        """Restart failed queries from their snapshots, without a delay unless they fail repeatedly."""
        with self._lock:
            for component, query in list(self._queries.items()):
                if self._stop.is_set() or self.failure is not None:
                    return
                if (error := query.failure()) is not None:
                    del self._queries[component]
                    query.stop()
                    self._handle_failure(component, error)
            for component, due in list(self._due.items()):
                if self._stop.is_set() or self.failure is not None:
                    return
                if time.monotonic() >= due:
                    self._restart_query(component)

    def _handle_failure(self, component: str, error: BaseException) -> None:
        """Decide whether and when to restart a component's failed query."""
        text = f"{mark_of(error)} {error}".strip()  # the text of an executor's error has its mark already
        if isinstance(error, PartitionsAddedError) or jvm_exit_code(self._spark) is not None:  # the next check reports that the JVM has ended
            self._due[component] = time.monotonic() + _WATCH_STEP_S
            return
        if (fatal := text_after(FATAL_MARK, text)) is not None:
            self._fail(TopologyFailedError(f"component {component!r} cannot continue: {fatal}"))
            return
        if (reason := text_after(RETRIABLE_MARK, text)) is not None:  # for example, a full disk
            self._obstacles[component] = reason
            self._reports.add_error(component, f"the query failed and is restarted until it succeeds: {reason}")
            self._due[component] = time.monotonic() + _RETRY_S
            return
        self._brokers_away = not brokers_answer(self.kafka)
        if self._brokers_away:
            log.warning("the query of component %s of topology %s failed, and the brokers do not answer: %s", component, self.plan.name, text[:200])
            self._due[component] = time.monotonic() + _BROKER_RETRY_S
            return
        tasks = set(self.plan.component_tasks(component))
        versions, waiting = {t: v for t, v in self._versions().items() if t in tasks}, {t for t, n in self._waiting().items() if n}
        delay_s = self._restarts.record_failure(component, versions, tasks & waiting)
        shown = cause_of(text)
        if delay_s is None:
            self._reports.add_error(component, f"the query failed and is given up: {shown}")
            self._fail(
                TopologyFailedError(
                    explain(
                        f"The query of component {component!r} of topology {self.plan.name!r} has failed {self._restarts.in_a_row(component)} times in a row without progress.",
                        given=shown,
                        hint=f"the executors' logs are in {self.folder / 'logs'}; when the cause is removed, submit the topology again to resume it",
                    )
                )
            )
            return
        log.warning("the query of component %s of topology %s %s in %g s: %s", component, self.plan.name, RESTARTED, delay_s, shown[:500])
        self.restarts.append({"component": component, "time_ms": now_ms(), "error": text[:2000]})
        self._reports.count_restart(component)
        self._reports.add_error(component, f"the query failed and starts again{f' in {delay_s:g} s' if delay_s else ''}: {shown}")
        self._due[component] = time.monotonic() + delay_s

    def _restart_query(self, component: str) -> None:
        try:
            with TopicAdmin(self.kafka) as admin:
                self._topics.recreate_deleted(admin, self._reports)
                self._topics.check_retention([component], admin, self.store)
            self._queries[component] = self._transports.start_query(self._context(), component, self._positions(component))
            del self._due[component]
            self._brokers_away = False
        except FatalError as error:
            self._fail(TopologyFailedError(str(error)))
        except Exception as error:  # a query that cannot be started counts as failed
            self._due.pop(component, None)
            self._handle_failure(component, error)

    def _look_after_topics(self) -> float:
        """End the topology if the brokers have lost records that its tasks have processed; create deleted side topics again; drop old records."""
        if self.failure is None and (problem := self._writes.problem()) is not None:
            self._producer = self.kafka.producer()  # it writes why
            self.end(problem)
        if self.failure is not None:
            return _JANITOR_EVERY_S
        with TopicAdmin(self.kafka) as admin:
            self._topics.recreate_deleted(admin, self._reports)
            versions = self._versions()  # before the ends, because logs may grow in between
            ends = admin.begins_and_ends(self._topics.inboxes)
        if lost := lost_tails(self.plan, versions, lambda topic, partition: ends[topic].get(partition, (0, 0))[1]):
            self._fail(TopologyFailedError("\n".join(lost)))
        self._topics.drop_old_records(self.store, self.stats)
        return _JANITOR_EVERY_S

    def wait_until(self, condition: Callable[[TopologyStats], bool], timeout_s: float, description: str = "the condition") -> None:
        """Wait until ``condition(stats)`` holds.

        :param description: names the condition in the error.
        :raises TimeoutError: it did not hold within ``timeout_s``.
        :raises TopologyError: the topology has failed.
        """
        deadline = time.monotonic() + timeout_s
        while not condition(self.stats):
            self.check()
            if time.monotonic() > deadline:
                msg = f"{description} was not reached within {timeout_s:g} s; errors: {[e['error'][-500:] for e in self.stats.errors][-3:]}"
                raise TimeoutError(msg)
            time.sleep(0.05)
