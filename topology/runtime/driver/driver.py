"""Runs one topology on Spark and Kafka: its topics, its queries, its clock, and the threads that watch over them."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError

from dskype.topology.config import Config
from dskype.topology.core.log_checks import check_journals
from dskype.topology.core.snapshots import FencedError
from dskype.topology.core.stats import TopologyStats
from dskype.topology.errors import FatalError, TopologyError, shorten
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.driver.clock_writer import ClockWriter
from dskype.topology.runtime.driver.committer import Committer
from dskype.topology.runtime.driver.inputs import ExternalInputs
from dskype.topology.runtime.driver.preflight import check_executors
from dskype.topology.runtime.driver.query_keeper import QueryKeeper
from dskype.topology.runtime.driver.reports import PARTS
from dskype.topology.runtime.driver.resume import check_changes, installed_version, read_started
from dskype.topology.runtime.driver.state import DriverState, TopologyFailedError
from dskype.topology.runtime.driver.topics import TopologyTopics, check_kafka_options
from dskype.topology.runtime.driver.watch import Janitor, Watch
from dskype.topology.runtime.kafka.clients import KafkaSettings, check_codecs
from dskype.topology.runtime.kafka.reading import KafkaInboxReader
from dskype.topology.runtime.stores.choice import ship_files
from dskype.topology.runtime.stores.control_files import MANIFEST, Manifest
from dskype.topology.runtime.stores.kept_files import keep_files
from dskype.topology.runtime.stores.shared_files import SharedFiles

__all__ = ["DriverThreads", "TopologyDriver"]

log = logging.getLogger(__name__)

_REST_S = 20
_ASK_AGAIN_S = 0.3
_JOIN_S = 10
_COMMIT_S = 10.0
"""How long the end of a topology waits for brokers that are to keep its last offsets."""
_NOTICE_S = 30
_ERROR_CHARS = 300
_AFTER_ERROR_S = 1.0


class DriverThreads:
    """Runs the steps of a driver's parts, each in a thread of its own, which no error ends, until the driver stops."""

    def __init__(self, state: DriverState) -> None:
        self._state = state
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, steps: Mapping[str, tuple[Callable[[], float], float]]) -> None:
        """Start the threads.

        :param steps: name, one of :data:`~dskype.topology.runtime.driver.reports.PARTS` -> a step, which says after how many seconds the next one follows, and the
            seconds before the first one.
        """
        assert steps.keys() <= set(PARTS), "metrics count the errors of each part from 0 on"
        for name, (step, wait_s) in steps.items():
            thread = threading.Thread(target=self._run, args=(name, step, wait_s), name=f"{self._state.plan.name}-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, name: str, step: Callable[[], float], wait_s: float) -> None:
        state = self._state
        while not self.stopping.wait(wait_s):
            wait_s = _AFTER_ERROR_S
            try:
                wait_s = step()
            except FatalError as error:
                state.fail(error)
            except KafkaError as error:
                state.brokers_away = True
                log.warning("the %s of topology %s cannot reach Kafka: %s; trying again", name, state.plan.name, error)
            except Exception as error:  # neither a bad record nor any other error may end a thread of the driver
                log.exception("the %s of topology %s had an error", name, state.plan.name)
                state.reports.add_error("__driver", f"the {name} had an error and continues: {type(error).__name__}: {error}", part=name)

    def dead(self) -> list[str]:
        """Return the names of threads that have ended although the driver has not stopped."""
        return [] if self.stopping.is_set() else [thread.name for thread in self._threads if not thread.is_alive()]

    def stop(self, timeout_s: float) -> bool:
        """Stop, and wait up to ``timeout_s`` for each thread; return whether all have ended."""
        self.stopping.set()
        for thread in self._threads:
            thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)


class TopologyDriver:
    """Runs one topology, from its first query to the removal of its topics.

    ::

        made ---- open(), or the first activate() ----> opened ---- close() ----> closed

    While it is opened, the topology is active, inactive or failed (:class:`~dskype.topology.runtime.driver.state.DriverState`), and three threads run.
    The *clock* writes pulses and ticks to the inboxes. The *watch* reads the metrics topic, restarts failed queries, and reports the topology's health.
    The *janitor* looks after the topics, and whether what the driver writes arrives; its requests may wait long for a broker that is away, and the watch
    must not. A driver holds the topology's highest *term*; one that finds a higher term has been replaced, and ends without changing anything.

    :param folder: the topology's own folder, on the driver's host. It holds the files that describe the topology, and the snapshots unless they are elsewhere.
    :param resume: whether to continue from the snapshots and inboxes of an earlier run; otherwise both start empty.
    :param announce: called with text for the user when the topology's health changes, and while it starts on other hosts.
    """

    def __init__(
        self, plan: TopologyPlan, spark: Any, kafka: KafkaSettings, folder: Path, *, resume: bool = False, announce: Callable[[str], None] = lambda text: None
    ) -> None:
        self.state = state = DriverState(plan, spark, kafka, Path(folder), announce)
        self.kafka, self.folder, self.store, self.tenure, self.stats = kafka, state.folder, state.store, state.tenure, state.stats
        self.resume = resume
        self._topics = TopologyTopics(state.plan, kafka)
        self._shared = SharedFiles(state.plan, self.folder, self.store)
        self._inputs = ExternalInputs(kafka, self.folder, plan.name, self._shared.share)
        self._threads = DriverThreads(state)
        self._clock = ClockWriter(state)
        self._queries = QueryKeeper(state, self._topics, self._inputs, self._clock.waiting, self._threads.stopping.is_set)
        self._watch = Watch(state, self._queries, self._clock.waiting)
        self._committer = Committer(state)
        self._opened = False
        self.warnings: list[str] = []
        """Problems of external topics that do not prevent the topology from running."""

    @property
    def plan(self) -> TopologyPlan:
        """The topology plan; a rebalance replaces it."""
        return self.state.plan

    @property
    def failure(self) -> TopologyError | None:
        """Why the topology has failed."""
        return self.state.failure

    # -- lifecycle --------------------------------------------------------------------------------

    def open(self) -> None:
        """Create topics and start queries; nothing is emitted before :meth:`activate`.

        :raises ResumeRefusedError: the submitted topology differs too much from the one that was started.
        :raises ControlFileError: a file that describes the started topology is missing or damaged.
        :raises TopologyError: Kafka or Spark cannot run the topology.
        """
        check_codecs()
        check_kafka_options(self.plan, self.kafka)
        state = self.state
        self._prepare_folder()
        self.warnings = self._topics.create(self.resume, self.store)
        ship_files(self.plan, self.store)
        if not self.resume:
            self._manifest.write(self.folder)
        self._shared.share()
        if self.resume:
            check_journals(self.plan, self.store, KafkaInboxReader(self.kafka))
        if not state.spark.sparkContext.master.startswith("local"):
            hosts = check_executors(state.spark, self.store, self.kafka, self.plan.conf[Config.TOPOLOGY_EMULATOR_START_TIMEOUT_SECS])
            state.reports.announce(f"topology {self.plan.name}: Spark's executors on {', '.join(hosts)} reach brokers and state; starting queries")
        state.producer = self.kafka.producer()
        self._clock.begin()
        chosen = self._queries.start()
        self.warnings += [*self._inputs.warnings, *chosen]
        janitor = Janitor(state, self._topics)
        self._threads.start({"clock": (self._clock.step, 0.0), "watch": (self._watch.step, 0.0), "janitor": (janitor.step, janitor.EVERY_S)})
        self._committer.start()
        self._opened = True

    def _prepare_folder(self) -> None:
        """Resume the state in the topology's folder, or clear it; and take the next term."""
        if self.resume:
            self._shared.fetch()
        started = read_started(self.plan, self.folder, self.store) if self.resume else None
        self.resume = started is not None
        self.state.plan = self._topics.plan = keep_files(self.plan, self.folder, self.resume)
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
        self.state.active = True
        self._clock.control("activate")

    def deactivate(self) -> None:
        """Pause the spouts; bolts and acks continue."""
        self.state.active = False
        if self._opened:
            self._clock.control("deactivate")
        self._committer.commit_soon()

    def debug(self, percents: Mapping[str, float]) -> None:
        """Set which percentages of the tuples go to the event loggers."""
        if self._opened:
            self._clock.debug(percents)

    def rebalance(self, plan: TopologyPlan) -> None:
        """Continue with the same tasks on other executors and workers: every query restarts from its snapshots.

        The spouts are already paused. Before the restart, all tuples are delivered and the bolts take snapshots, so that
        no tuple is routed a second time in another way (local-or-shuffle depends on the workers).
        """
        if not self._opened:
            self.state.plan = plan
            return
        self._drain()
        with self.state.lock:
            self._queries.stop()
            self.state.plan = plan
            for warning in self._queries.start():
                self.state.reports.add_error("__driver", warning)
            if self.state.active:
                self._clock.control("activate")

    def _drain(self) -> None:
        """Wait until all tuples are delivered and every bolt task has a snapshot of that state."""
        try:
            self.wait_until(lambda stats: stats.undelivered_tuples() == 0, _REST_S, "an end of all deliveries")
            ends, asked = self._clock.request_snapshots(), time.monotonic()

            def saved(_: TopologyStats) -> bool:
                nonlocal asked
                # A snapshot is taken only when a further batch begins and none is being written, so ask repeatedly.
                if time.monotonic() - asked > _ASK_AGAIN_S:
                    self._clock.request_snapshots()
                    asked = time.monotonic()
                return all((self.store.versions(task) or [0])[-1] >= end for task, end in ends.items())

            self.wait_until(saved, _REST_S, "a snapshot of every bolt task")
        except (TimeoutError, KafkaError) as error:
            log.warning("topology %s is rebalanced before it is idle: %s", self.plan.name, error)

    def close(self, *, remove: bool) -> None:
        """Stop everything; with ``remove`` also delete topics and snapshots, otherwise keep them for a resume.

        A driver that was replaced removes nothing, because topics and snapshots belong to its successor.
        """
        self.state.active = False
        if self._threads.stop(_JOIN_S):
            self._watch.close()
        self._committer.close(_COMMIT_S)
        with self.state.lock:
            self._queries.stop()
        self._queries.transports.release()
        if self.state.producer is not None:
            with contextlib.suppress(KafkaError):
                self.state.write_reports()
            self.state.producer.close(timeout=5)
        if remove and not self.tenure.is_over():
            self._topics.delete()
            self.store.remove()
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            shutil.rmtree(self.state.scratch, ignore_errors=True)
        self.store.rest()

    # -- the end of a driver ----------------------------------------------------------------------

    def abandon(self, reason: str) -> None:
        """End because the topology no longer belongs to this driver; change nothing."""
        self.state.fail(FencedError(f"topology {self.plan.name!r} ends here: {reason}"))

    def end(self, reason: str) -> None:
        """End because this process cannot do its work any more; the topology can be resumed."""
        self.state.fail(TopologyFailedError(reason))

    def check(self) -> None:
        """Raise the error that has ended the topology, if any.

        :raises TopologyError: the topology has failed, or a thread of the driver has ended.
        """
        if dead := self._threads.dead():
            self.state.fail(TopologyFailedError(f"threads of the driver have ended: {', '.join(dead)}"))
        if self.failure is not None:
            raise self.failure

    def note_broker(self, text: str, *, gone: bool) -> None:
        """Report an event of the broker that runs for this topology.

        :param gone: whether it has ended for good.
        """
        self.state.reports.add_error("__driver", text, part="broker")
        if gone:
            self.end(text)

    def health(self) -> dict[str, Any]:
        """Return ``{"state", "why", "restarts"}``; the state is starting, running, waiting (for the brokers), stalled or failed."""
        return self.state.reports.summary()

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

    def await_first_batches(self, notice: Callable[[str], None], wanted: Callable[[], bool], since_ms: int) -> None:
        """Wait until every component has reported to this driver, which is opened; this shows that Spark, brokers and executors work together.

        :param notice: gets a line of text every half minute, about what is waited for.
        :param wanted: tells whether the topology is still to run; if not, the wait ends.
        :param since_ms: when the start began, epoch ms: errors before that are of an earlier run, and say nothing about this one.
        :raises TopologyError: the topology has failed.
        """

        def missing(stats: TopologyStats) -> list[str]:
            """Return the components of which no task has reported."""
            reported = stats.reported(self.tenure.term)
            return [c for c in self.plan.component_ids if reported.isdisjoint(self.plan.component_tasks(c))]

        while wanted() and (silent := missing(self.stats)):
            with contextlib.suppress(KafkaError):
                self._clock.request_snapshots()  # bolts without input have a batch, too
            with contextlib.suppress(TimeoutError):
                self.wait_until(lambda stats: not wanted() or not missing(stats), _NOTICE_S, "a first batch")
                return
            errors = [error for error in list(self.stats.errors) if error.get("time_ms", 0) >= since_ms]
            last = f"; the last error is of {errors[-1]['component']}: {shorten(errors[-1]['error'], _ERROR_CHARS)}" if errors else ""
            notice(f"waiting for the first batch of {', '.join(silent)}{last}")
