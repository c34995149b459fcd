"""The driver's watch over a topology: what its tasks report, whether its queries run, which tasks are stalled, and how it is. And its janitor."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from kafka import TopicPartition

from dskype.topology.config import Config
from dskype.topology.core.log_checks import lost_tails
from dskype.topology.core.snapshots import FencedError
from dskype.topology.core.stats import NewestReports
from dskype.topology.core.steady_clock import AttentiveClock
from dskype.topology.planning.plan import metrics_topic
from dskype.topology.runtime.driver.query_keeper import QueryKeeper
from dskype.topology.runtime.driver.reports import DRIVER_KEY, HealthState
from dskype.topology.runtime.driver.state import DriverState, TopologyFailedError
from dskype.topology.runtime.driver.topics import METRICS_RETENTION_MS, TopologyTopics
from dskype.topology.runtime.kafka.connections import FAILOVER_MS
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.kafka.write_watch import WriteWatch, write_once
from dskype.topology.runtime.spark.session import jvm_exit_code

__all__ = ["Janitor", "StallWatch", "Watch"]

_STEP_S = 0.5
_REPEAT_EVERY_S = 30.0


class Watch:
    """Looks at the topology twice a second; what needs no broker comes first: a JVM that has ended, another driver, failed queries.

    :param waiting: returns task -> number of tuples that wait for it.
    """

    def __init__(self, state: DriverState, queries: QueryKeeper, waiting: Callable[[], Mapping[int, int]]) -> None:
        self._state, self._queries, self._waiting = state, queries, waiting
        self._stalls = StallWatch(state.plan.conf[Config.TOPOLOGY_EMULATOR_STALL_SECS], gap_s=10 * _STEP_S)
        self._newest = NewestReports(METRICS_RETENTION_MS / 2000)
        self._consumer: Any = None
        self._look_at_s = time.monotonic()
        self._repeat_at_s = self._look_at_s + _REPEAT_EVERY_S

    def step(self) -> float:
        """Look, read the metrics topic, and write reports; return the seconds until the next step."""
        if time.monotonic() >= self._look_at_s:
            self._look_at_s = time.monotonic() + _STEP_S
            self.look()
        state = self._state
        if state.failure is not None:
            return _STEP_S
        where = TopicPartition(metrics_topic(state.plan.name), 0)
        if self._consumer is None:
            self._consumer = state.kafka.consumer(fetch_max_wait_ms=500, request_timeout_ms=FAILOVER_MS)
            self._consumer.assign([where])
        for batch in self._consumer.poll(timeout_ms=int(_STEP_S * 1000)).values():
            for record in batch:
                if record.key != DRIVER_KEY and state.stats.feed(record.value, state.plan.task_component):
                    self._newest.remember(record.key, record.value, time.monotonic())
        state.write_reports()
        if time.monotonic() >= self._repeat_at_s:
            self._repeat_at_s = time.monotonic() + _REPEAT_EVERY_S
            for key, value in self._newest.due(state.stats, time.monotonic()):
                state.send(where.topic, value, key=key, partition=0)
        return 0.0

    def look(self) -> None:
        """Check term, JVM and queries once; restart failed queries, and report the health."""
        state = self._state
        if state.failure is not None:
            return
        if state.tenure.is_over():
            state.fail(FencedError(f"topology {state.plan.name!r} ends here: another driver has taken it over"))
            return
        if (code := jvm_exit_code(state.spark)) is not None:
            state.fail(
                TopologyFailedError(
                    f"Spark's JVM has ended (exit code {code}), and topology {state.plan.name!r} with it; "
                    "hint: the log below the topology's folder says more; submit it again to resume it"
                )
            )
            return
        self._queries.look()
        if state.failure is None:
            self.report_health()

    def report_health(self) -> None:
        """Set the topology's health by what is known now; until a task has run since the topology was started here, it stays ``starting``."""
        state = self._state
        begun = state.stats.reported(state.tenure.term)
        waiting = {} if state.brokers_away else self._waiting()
        stalls = self._stalls.find(state.plan.task_component, state.versions(), waiting, time.monotonic(), begun)
        failing, obstacles = self._queries.failing(), self._queries.obstacles()
        health: HealthState = "running" if begun else "starting"
        if state.brokers_away:
            health, why = "waiting", [f"the brokers at {state.kafka.bootstrap_servers} do not answer; the topology continues when they are back"]
        elif obstacles:
            health, why = "waiting", [f"component {c!r} waits: {reason}" for c, reason in obstacles.items()]
        elif stalls or failing:
            health, why = "stalled", [f"the query of component {c!r} has failed {n} times in a row, without progress in between" for c, n in failing.items()]
            why += [stall.as_text() for stall in stalls[:5]]
        else:
            compiling = {component: kernel for (component, _), (kernel, _) in list(state.stats.compiling.items())}
            why = [f"component {c!r} compiles the kernel {kernel}; the next start finds it compiled" for c, kernel in compiling.items()]
        state.reports.set_health(health, why)

    def close(self) -> None:
        """Close what was opened; no step runs any more."""
        if self._consumer is not None:
            self._consumer.close()


class Janitor:
    """Looks after the topics, and whether what the driver writes arrives. Its requests may wait long for a broker that is away, so it has a thread of its own.

    :param state: the driver's, with a producer.
    """

    EVERY_S = 30.0
    """Seconds between two steps."""

    def __init__(self, state: DriverState, topics: TopologyTopics) -> None:
        self._state, self._topics = state, topics
        assert state.producer is not None, "the driver is open"
        self._writes = WriteWatch(state.producer, lambda: write_once(state.kafka, metrics_topic(state.plan.name), state.reports.document(), DRIVER_KEY))

    def step(self) -> float:
        """End the topology if the brokers have lost records that its tasks have processed; create deleted side topics again; drop old records.

        :returns: the seconds until the next step.
        """
        state = self._state
        if state.failure is None and (problem := self._writes.problem()) is not None:
            state.producer = state.kafka.producer()  # it writes why
            state.fail(TopologyFailedError(problem))
        if state.failure is not None:
            return self.EVERY_S
        with TopicAdmin(state.kafka) as admin:
            self._topics.recreate_deleted(admin, state.reports)
            versions = state.versions()  # before the ends, because logs may grow in between
            ends = admin.begins_and_ends(self._topics.inboxes)
            if lost := lost_tails(state.plan, versions, lambda topic, partition: ends[topic].get(partition, (0, 0))[1]):
                state.fail(TopologyFailedError("\n".join(lost)))
            self._topics.drop_old_records(admin, state.store, state.stats)
        return self.EVERY_S


class Stall(NamedTuple):
    """A stalled task.

    :ivar seconds: how long it has been stalled.
    :ivar waiting: tuples, or pulses of a spout, that wait for it.
    """

    component: str
    task: int
    seconds: float
    waiting: int

    def as_text(self) -> str:
        """Return a sentence about it."""
        waiting = "tuple waits" if self.waiting == 1 else "tuples or pulses wait"
        return f"task {self.task} of component {self.component!r} has done nothing for {self.seconds:.0f} s while {self.waiting:,} {waiting} for it"


_FIRST_BATCH_S = 600.0
"""Time after which a task that has never run a batch counts as stalled: Spark may start for minutes, and kernels may be compiled."""


class StallWatch:
    """Remembers since when each task has had its present version.

    :param after_s: time without progress after which a task with input is stalled; a micro-batch of a busy task takes seconds.
    :param gap_s: of the time between two calls of :meth:`find`, at most this many seconds count: a caller who stood still has watched no task.

    >>> watch = StallWatch(after_s=30, gap_s=60)
    >>> [watch.find({4: "count"}, {4: 100}, {4: waiting}, now_s, begun={4}) for waiting, now_s in ((7, 0), (9, 31))]
    [[], [Stall(component='count', task=4, seconds=31.0, waiting=9)]]
    >>> watch.find({4: "count"}, {4: 109}, {4: 0}, now_s=32, begun={4})
    []
    """

    def __init__(self, after_s: float, gap_s: float) -> None:
        self._after_s, self._now_s = after_s, 0.0
        self._watched = AttentiveClock(gap_s, lambda: self._now_s)
        self._since: dict[int, tuple[int | None, float]] = {}  # task -> (version, since when it has had this version and input)

    def find(self, tasks: Mapping[int, str], versions: Mapping[int, int], waiting: Mapping[int, int], now_s: float, begun: Collection[int]) -> list[Stall]:
        """Return the stalled tasks, the longest stalled first.

        :param tasks: task -> component, for all tasks.
        :param versions: task -> version, as far as reported.
        :param waiting: task -> number of tuples or pulses that wait for it.
        :param now_s: time by a clock that never goes back.
        :param begun: tasks that have run a batch since the topology was started here; the others may take ten minutes for the first one.
        """
        self._now_s = now_s
        found, watched_s = [], self._watched.look()
        for task, component in tasks.items():
            version, n = versions.get(task), waiting.get(task, 0)
            before = self._since.get(task)
            if not n or before is None or before[0] != version:
                self._since[task] = version, watched_s
            elif watched_s - before[1] >= (self._after_s if task in begun else _FIRST_BATCH_S):
                found.append(Stall(component, task, watched_s - before[1], n))
        return sorted(found, key=lambda stall: -stall.seconds)
