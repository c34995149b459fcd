"""Which components have continuous queries, and which have micro-batches."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from dskype.topology.components import KafkaSpout
from dskype.topology.config import Config
from dskype.topology.core.clock import ClockRecord
from dskype.topology.core.frames import NUDGE
from dskype.topology.core.nudges import nudge_each
from dskype.topology.errors import explain
from dskype.topology.planning.plan import TopologyPlan, inbox_topic
from dskype.topology.runtime.continuous import ContinuousQuery
from dskype.topology.runtime.kafka import KafkaSettings
from dskype.topology.runtime.queries import ComponentQuery, QueryContext
from dskype.topology.runtime.record_writer import UnsupportedOptionError, producer_settings

__all__ = ["TaskSlots", "Transports"]

_SPARK = "4.0."
_WAKE_S = 2.0
"""After this time without progress a task with input gets a nudge."""
_SESSION = {
    # Spark refuses Python functions in continuous queries. They run, but rows that they yield come to the sink only with the end of an epoch.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    "spark.sql.streaming.continuous.executorPollIntervalMs": "60000",
    # Rows of a partition that wait in the JVM; they hold up to 8 MiB each.
    "spark.sql.streaming.continuous.executorQueueSize": "16",
    # Every record goes to Python at once.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "64",
}


class TaskSlots:
    """Counts the task slots that continuous queries occupy, over all topologies of this process."""

    KEPT = 8
    """Slots that stay free for micro-batches and for the end of executors."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        self._lock = threading.Lock()

    def take(self, topology_id: str, n: int, total: int) -> int:
        """Take slots for a topology in place of those it has; return how many are missing, and take none if any are."""
        with self._lock:
            others = sum(m for topology, m in self._taken.items() if topology != topology_id)
            missing = max(0, others + n + self.KEPT - total)
            if not missing:
                self._taken[topology_id] = n
            return missing

    def release(self, topology_id: str) -> None:
        """Give the slots of a topology back."""
        with self._lock:
            self._taken.pop(topology_id, None)


_SLOTS = TaskSlots()


class Transports:
    """The transport of each component of a topology.

    A component has a continuous query if its configuration asks for it, unless it is a Kafka spout. Where continuous queries cannot run, all components
    have micro-batches, and :attr:`warnings` says why.

    :param plan: the topology plan; None: nothing is chosen yet.
    """

    def __init__(self, plan: TopologyPlan | None = None, spark: Any = None, kafka: KafkaSettings | None = None) -> None:
        self.continuous: frozenset[str] = frozenset()
        """Components with continuous queries."""
        self.nudged: frozenset[str] = frozenset()
        """Their inboxes: whoever writes a frame there writes a nudge behind it."""
        self.session: Any = None
        """The session that runs continuous queries."""
        self.sessions: tuple[Any, ...] = () if spark is None else (spark,)
        """The sessions of all queries."""
        self.warnings: list[str] = []
        self._places: dict[int, tuple[str, int]] = {}  # task -> where its frames are
        self._seen: dict[int, tuple[int, float]] = {}  # task -> version, and since when it has been that
        self._started: set[str] = set()
        self._wake_all = False
        self._topology_id = "" if plan is None else plan.topology_id
        if plan is not None and kafka is not None:
            self._choose(plan, spark, kafka)

    def _choose(self, plan: TopologyPlan, spark: Any, kafka: KafkaSettings) -> None:
        asked = [c for c in plan.component_ids if plan.component_conf(c)[Config.TOPOLOGY_EMULATOR_TRANSPORT] == "continuous"]
        # Nobody writes nudges into external topics.
        chosen = [c for c in asked if not isinstance(plan.spec(c).obj, KafkaSpout)]
        if not chosen:
            return
        needed, total = sum(len(plan.component_tasks(c)) for c in chosen), spark.sparkContext.defaultParallelism
        reason = _unsupported(spark, kafka)
        if reason is None and (missing := _SLOTS.take(plan.topology_id, needed, total)):
            reason = explain(
                "Each task of a component with a continuous query occupies a task slot of Spark.",
                given=f"{needed} tasks, {missing} slots too few",
                hint=f"start Spark with more slots, for example local[{total + missing}]: slots are not cores",
            )
        if reason is not None:
            self.warnings.append(f"topology {plan.name!r} runs in micro-batches, although its transport is continuous. {reason}")
            return
        self.continuous = frozenset(chosen)
        self.nudged = frozenset(inbox_topic(plan.name, c) for c in chosen)
        self._places = {task: (inbox_topic(plan.name, c), plan.task_index(task)) for c in chosen for task in plan.component_tasks(c)}
        self.session = spark.newSession()
        self.sessions = (self.session,) if len(chosen) == len(plan.component_ids) else (spark, self.session)
        for key, value in _SESSION.items():
            self.session.conf.set(key, value)

    def start_query(self, context: QueryContext, component: str, positions: dict[tuple[str, int], int]) -> ComponentQuery:
        """Start the query of a component."""
        self._wake_all = component in self._started or self._wake_all
        self._started.add(component)
        query = ComponentQuery(context, component, positions)
        if component in self.continuous:
            query = ContinuousQuery(context, component, positions, self.session)
        query.start()
        return query

    def with_nudges(self, records: Iterable[ClockRecord]) -> list[ClockRecord]:
        """Return records of the clock with the nudges that they need."""
        return nudge_each(records, self.nudged)

    def wake(self, versions: Mapping[int, int], waiting: Mapping[int, int], now_s: float) -> list[ClockRecord]:
        """Return nudges for tasks that have input and do not get on, at most one for a task in :data:`_WAKE_S`; after a restart, for all tasks.

        Spark notices only with the next record that a Python worker has ended. What has ended the worker of one query may have ended those of others.

        :param versions: task -> next inbox offset.
        :param waiting: task -> number of tuples or pulses that wait for it.
        :param now_s: monotonic time.
        """
        if self._wake_all:
            self._wake_all = False
            return [ClockRecord(topic, partition, NUDGE) for topic, partition in self._places.values()]
        records = []
        for task, (topic, partition) in self._places.items():
            version, since_s = self._seen.get(task, (-1, now_s))
            if not waiting.get(task) or versions.get(task, 0) != version:
                self._seen[task] = versions.get(task, 0), now_s
            elif now_s - since_s >= _WAKE_S:
                self._seen[task] = version, now_s
                records.append(ClockRecord(topic, partition, NUDGE))
        return records

    def release(self) -> None:
        """Give the task slots back."""
        _SLOTS.release(self._topology_id)


def _unsupported(spark: Any, kafka: KafkaSettings) -> str | None:
    """Return why Spark or the connection does not allow continuous queries; None if it does."""
    if not spark.version.startswith(_SPARK):
        return explain("Continuous queries with Python functions are known to run on one version of Spark.", given=spark.version, legal=f"{_SPARK}x")
    if not (master := spark.sparkContext.master).startswith("local"):
        return explain("Continuous queries run on one machine so far.", given=master, legal="local[...]")
    try:
        with producer_settings(kafka):
            return None
    except UnsupportedOptionError as error:
        return str(error)
