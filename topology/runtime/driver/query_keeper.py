"""Keeps the queries of a topology running: starts them, starts them again after failures, and gives up."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, cast

from dskype.topology.config import Config
from dskype.topology.errors import FATAL_MARK, RETRIABLE_MARK, FatalError, mark_of, text_after
from dskype.topology.runtime.driver.inputs import ExternalInputs
from dskype.topology.runtime.driver.reports import cause_of
from dskype.topology.runtime.driver.state import DriverState, TopologyFailedError
from dskype.topology.runtime.driver.topics import TopologyTopics
from dskype.topology.runtime.kafka.clients import brokers_answer
from dskype.topology.runtime.kafka.record_producer import RecordProducer
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.processes.payload import Payload
from dskype.topology.runtime.spark.component_query import ComponentQuery, PartitionsAddedError, QueryContext
from dskype.topology.runtime.spark.session import jvm_exit_code
from dskype.topology.runtime.spark.spark_executors import given_up_s
from dskype.topology.runtime.spark.transports import Transports

__all__ = ["RESTARTED", "QueryKeeper", "Restarts"]

log = logging.getLogger(__name__)

_AGAIN_S = 0.5
_RETRY_S = 2.0
_STARTS_PER_TERM = 1 << 20
RESTARTED = "failed and starts again"
"""In the driver's log line of every restart, by which the fault suite counts them."""
_DELAYS_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)


class _Row(NamedTuple):
    """Failures without progress in between: how many; and at the last one the versions of the component's tasks, and which of these had input."""

    failures: int
    versions: dict[int, int]
    waiting: frozenset[int]


class Restarts:
    """Counts failures of queries. The first restart is immediate, further ones come after growing delays, up to a limit.

    Only failures without progress in between count. There is no progress if a task that had input at one failure has the
    same version at the next, whatever the component's other tasks have done.

    :param most: failures in a row without progress at which a component is given up.

    >>> restarts = Restarts(most=3)
    >>> [restarts.record_failure("count", {7: 10}, {7}) for _ in range(3)]
    [0.0, 0.5, None]
    >>> restarts.record_failure("count", {7: 11}, {7})
    0.0
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows = defaultdict[str, _Row](lambda: _Row(0, {}, frozenset()))

    def record_failure(self, component: str, versions: Mapping[int, int], waiting: set[int]) -> float | None:
        """Count a failure.

        :param versions: task -> newest version, for the component's tasks.
        :param waiting: the tasks that have input.
        :returns: seconds to wait before the restart; None to give up.
        """
        row = self._rows[component]
        stuck = any(versions.get(t) == row.versions.get(t) for t in row.waiting) if row.waiting else dict(versions) == row.versions
        failures = row.failures + 1 if stuck else 1
        self._rows[component] = _Row(failures, dict(versions), frozenset(waiting))
        return None if failures >= self._most else _DELAYS_S[min(failures, len(_DELAYS_S)) - 1]

    def in_a_row(self, component: str) -> int:
        """Return the number of failures since the last progress."""
        return self._rows[component].failures


class QueryKeeper:
    """The queries of one topology.

    Each is in one of these states::

        running ---- it fails ----> judged ----> due ---- its time has come ----> running; or judged again, if it cannot be started
                                      |
                                      +--------> given up, and the topology fails

    A query that is judged falls due again and again while the brokers are away, while an obstacle lasts (for example, a full disk), or because its inputs
    have new partitions. After any other failure it falls due at once or later and later, and is given up if it failed too often without progress
    (:class:`Restarts`) or if its error says that a retry cannot help.

    :param inputs: where spouts begin to read.
    :param waiting: returns task -> number of tuples that wait for it.
    :param stopping: tells whether the driver ends.
    """

    def __init__(
        self, state: DriverState, topics: TopologyTopics, inputs: ExternalInputs, waiting: Callable[[], Mapping[int, int]], stopping: Callable[[], bool]
    ) -> None:
        self._state, self._topics, self._inputs, self._waiting, self._stopping = state, topics, inputs, waiting, stopping
        self.transports = Transports()
        self._failures = Restarts(state.plan.conf[Config.TOPOLOGY_EMULATOR_RESTARTS_MAX])
        self._queries: dict[str, ComponentQuery] = {}
        self._due: dict[str, float] = {}  # component -> when to restart its query, monotonic
        self._obstacles: dict[str, str] = {}  # component -> retriable error of its query
        self._starts = 0

    # -- all queries ------------------------------------------------------------------------------

    def start(self) -> list[str]:
        """Start all queries where they have to begin, with transports that are chosen anew; return the warnings about these."""
        components = self._state.plan.component_ids
        with ThreadPoolExecutor(max_workers=4) as pool:
            positions = dict(zip(components, pool.map(self._positions_of, components)))
            warnings = self.transports.choose(self._state.plan, self._state.spark, positions)
            context = self._context()
            self._due.clear()
            self._queries = dict(zip(components, pool.map(lambda c: self.transports.start_query(context, c, positions[c]), components)))
        return warnings

    def stop(self) -> None:
        """Stop all queries, and end their executors."""
        queries, self._queries = self._queries, {}
        if not queries or jvm_exit_code(self._state.spark) is not None:  # without the JVM there is nothing to stop, and every call would block
            return
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda query: query.stop(), queries.values()))
        try:
            self._last_context.stop_executors()
        except Exception as error:  # Spark has ended, and the executors with it
            log.warning("the executors of topology %s could not be stopped: %s", self._state.plan.name, error)

    def _context(self) -> QueryContext:
        state = self._state
        self._starts += 1
        term, logs = state.tenure.term, None if state.store.remote else state.folder / "logs"
        epoch, path = term * _STARTS_PER_TERM + self._starts, list(map(os.path.abspath, sys.path))
        common = Payload(state.plan, state.kafka, state.store, logs, path, term, epoch, given_up_s(state.spark))
        self._last_context = QueryContext(state.spark, cast(RecordProducer, state.producer), state.scratch, common)
        return self._last_context

    def _positions_of(self, component: str) -> dict[tuple[str, int], int]:
        return self._inputs.start_positions(self._state.plan, component, self._state.store)

    # -- failed queries ---------------------------------------------------------------------------

    def obstacles(self) -> dict[str, str]:
        """Return component -> what its query waits for."""
        return {c: reason for c, reason in self._obstacles.items() if c in self._due}

    def failing(self) -> dict[str, int]:
        """Return component -> how often its query has failed in a row, if that was more than once and it does not run."""
        return {c: n for c in self._state.plan.component_ids if (n := self._failures.in_a_row(c)) > 1 and c in self._due}

    def look(self) -> None:
        """Restart failed queries from their snapshots, without a delay unless they fail repeatedly."""
        with self._state.lock:
            for component in self._state.plan.component_ids:
                if self._stopping() or self._state.failure is not None:
                    return
                if (query := self._queries.get(component)) is not None and (error := query.failure()) is not None:
                    del self._queries[component]
                    query.stop()
                    self._judge(component, error)
                if time.monotonic() >= self._due.get(component, math.inf):
                    self._restart(component)

    def _judge(self, component: str, error: BaseException) -> None:
        """Decide whether and when to restart a component's failed query."""
        state = self._state
        text = f"{mark_of(error)} {error}".strip()  # the text of an executor's error has its mark already
        self._obstacles.pop(component, None)  # it may wait for something else now
        if isinstance(error, PartitionsAddedError) or jvm_exit_code(state.spark) is not None:  # the next check reports that the JVM has ended
            self._due[component] = time.monotonic() + _AGAIN_S
            return
        if (fatal := text_after(FATAL_MARK, text)) is not None:
            state.fail(TopologyFailedError(f"component {component!r} cannot continue: {fatal}"))
            return
        if (reason := text_after(RETRIABLE_MARK, text)) is not None:  # for example, a full disk
            self._obstacles[component] = reason
            state.reports.add_error(component, f"the query failed and is restarted until it succeeds: {reason}")
            self._due[component] = time.monotonic() + _RETRY_S
            return
        state.brokers_away = not brokers_answer(state.kafka)
        if state.brokers_away:
            log.warning("the query of component %s of topology %s failed, and the brokers do not answer: %s", component, state.plan.name, text[:200])
            self._due[component] = time.monotonic() + _RETRY_S
            return
        self._count(component, text)

    def _count(self, component: str, text: str) -> None:
        """Count a failure that nothing else explains; restart the query later, or give it up."""
        state, shown = self._state, cause_of(text)[:1000] or "no reason given"
        tasks = set(state.plan.component_tasks(component))
        versions, waiting = {t: v for t, v in state.versions().items() if t in tasks}, {t for t, n in self._waiting().items() if n}
        delay_s = self._failures.record_failure(component, versions, tasks & waiting)
        if delay_s is None:
            state.reports.add_error(component, f"the query failed and is given up: {shown}")
            state.fail(
                TopologyFailedError(
                    f"The query of component {component!r} of topology {state.plan.name!r} has failed {self._failures.in_a_row(component)} times in a row without progress.",
                    given=shown,
                    hint=f"the executors' logs are in {state.folder / 'logs'}; when the cause is removed, submit the topology again to resume it",
                )
            )
            return
        log.warning("the query of component %s of topology %s %s in %g s: %s", component, state.plan.name, RESTARTED, delay_s, shown[:500])
        state.reports.count_restart(component)
        state.reports.add_error(component, f"the query failed and starts again{f' in {delay_s:g} s' if delay_s else ''}: {shown}")
        self._due[component] = time.monotonic() + delay_s

    def _restart(self, component: str) -> None:
        state = self._state
        try:
            with TopicAdmin(state.kafka) as admin:
                self._topics.recreate_deleted(admin, state.reports)
                self._topics.check_retention([component], admin, state.store)
            self._queries[component] = self.transports.start_query(self._context(), component, self._positions_of(component))
            del self._due[component]
            state.brokers_away = False
        except FatalError as error:
            state.fail(TopologyFailedError(str(error)))
        except Exception as error:  # a query that cannot be started counts as failed
            self._due.pop(component, None)
            self._judge(component, error)
