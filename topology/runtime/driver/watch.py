"""The driver's watch over a topology: what its tasks report, whether its queries run, and how it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka import TopicPartition

from dskype.topology.config import Config
from dskype.topology.core.snapshots import FencedError
from dskype.topology.core.stats import NewestReports
from dskype.topology.planning.plan import metrics_topic
from dskype.topology.runtime.driver.query_keeper import QueryKeeper
from dskype.topology.runtime.driver.reports import DRIVER_KEY
from dskype.topology.runtime.driver.stalls import StallWatch
from dskype.topology.runtime.driver.state import DriverState, TopologyFailedError
from dskype.topology.runtime.driver.topics import METRICS_RETENTION_MS
from dskype.topology.runtime.kafka.connections import FAILOVER_MS
from dskype.topology.runtime.spark.session import jvm_exit_code

__all__ = ["Watch"]

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
        self._known = dict(state.plan.task_component)
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
            self._consumer.seek_to_beginning(where)
        for batch in self._consumer.poll(timeout_ms=int(_STEP_S * 1000)).values():
            for record in batch:
                if record.key != DRIVER_KEY and state.stats.feed(record.value, self._known):
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
        """Set the topology's health by what is known now."""
        state = self._state
        begun = state.stats.reported(state.tenure.term)
        state.reports.judge_health(
            state.kafka.bootstrap_servers if state.brokers_away else None,
            self._queries.obstacles(),
            self._queries.failing(),
            self._stalls.find(state.plan.task_component, state.versions(), {} if state.brokers_away else self._waiting(), time.monotonic(), begun),
            begun=bool(begun),
            compiling={component: kernel for (component, _), (kernel, _) in list(state.stats.compiling.items())},
        )

    def close(self) -> None:
        """Close what was opened; no step runs any more."""
        if self._consumer is not None:
            self._consumer.close()
