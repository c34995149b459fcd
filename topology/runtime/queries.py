"""Structured Streaming queries, one per component: what both transports share."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from dskype.topology.core.snapshots import SnapshotStore
from dskype.topology.planning.plan import TopologyPlan, inbox_topic
from dskype.topology.runtime.kafka import FAILOVER_MS, KafkaSettings
from dskype.topology.runtime.record_producer import RecordProducer
from dskype.topology.runtime.resident import Payload
from dskype.topology.runtime.spark_executors import tasks_on_all_executors
from dskype.topology.runtime.supervisor import ask_supervisor

__all__ = ["SOURCE", "ComponentQuery", "PartitionsAddedError", "QueryContext"]

log = logging.getLogger(__name__)

_STANDSTILL_S = 10.0
"""Spark and its master notice no earlier that a host stands still, unless ``spark.network.timeout`` is short."""

SOURCE = {"kafka.request.timeout.ms": str(FAILOVER_MS), "kafka.max.poll.records": "10000", "failOnDataLoss": "true"}
"""Options of Spark's Kafka source that both transports have."""


class PartitionsAddedError(Exception):
    """A query has to start anew, because its external topics have partitions that it does not read."""


@dataclass(frozen=True)
class QueryContext:
    """The settings that all queries of one start of a topology share.

    :param spark: the session.
    :param producer: the driver's.
    :param store: where snapshots and journals are kept.
    :param scratch: folder for Spark's throw-away checkpoints.
    :param logs: folder of the executors' logs; None: where Spark runs its executors.
    :param term: the driver's term; processes of earlier drivers must not write any more.
    :param epoch: number of this start; executors of a higher epoch replace those of lower ones.
    """

    spark: Any
    plan: TopologyPlan
    kafka: KafkaSettings
    producer: RecordProducer
    store: SnapshotStore
    scratch: Path
    logs: Path | None
    term: int
    epoch: int

    @cached_property
    def _payload(self) -> Payload:
        return Payload(self.plan, self.kafka, self.store, self.logs, list(map(os.path.abspath, sys.path)), self.term, self.epoch, self.given_up_s)

    @cached_property
    def _plain_payload(self) -> bytes:
        return self._payload.dumps()

    def payload(self, starts: tuple[tuple[str, int, int], ...]) -> bytes:
        """Return the executors' payload; without external topics it is serialized once.

        :param starts: rows (topic, partition, first offset) of external topics.
        """
        return replace(self._payload, starts=starts).dumps() if starts else self._plain_payload

    @property
    def local(self) -> bool:
        """Whether Spark runs on one machine."""
        return self.spark.sparkContext.master.startswith("local")

    @cached_property
    def standstill_s(self) -> float | None:
        """After which standstill of a host Spark may have given it up; None on one machine."""
        if self.local:
            return None
        return min(_STANDSTILL_S, self._seconds("spark.network.timeout", "120s") / 3)

    @cached_property
    def given_up_s(self) -> float | None:
        """After which silence of a host Spark may run its executors elsewhere; None on one machine."""
        if self.local:
            return None
        return max(1.0, self._seconds("spark.network.timeout", "120s") - self._seconds("spark.executor.heartbeatInterval", "10s"))

    def _seconds(self, key: str, default: str) -> float:
        """Return a time in Spark's configuration."""
        found: float = self.spark.sparkContext._jsc.sc().conf().getTimeAsSeconds(key, default)
        return found

    def stop_executors(self, component: str | None = None) -> None:
        """End the resident executors on every Spark executor."""
        n = 1 if self.local else tasks_on_all_executors(self.spark.sparkContext)
        # With SQL, like the queries: RDDs would get Python daemons, and with them supervisors, of their own.
        stop = _stop_executors(self.plan.topology_id, self.epoch, component)
        self.spark.range(0, n, 1, n).mapInArrow(stop, "stopped int").collect()


class ComponentQuery(ABC):
    """The query of one component, which reads what it gets with Spark's Kafka source.

    :param context: settings that it shares with the topology's other queries.
    :param component: component id.
    :param positions: (topic, partition) -> first offset to read, for every partition.
    """

    def __init__(self, context: QueryContext, component: str, positions: dict[tuple[str, int], int]) -> None:
        self._context, self.component, self._positions = context, component, positions
        self._query: Any = None
        self._checkpoint = context.scratch / str(context.epoch) / inbox_topic("x", component)[2:]  # the component's id, escaped as in its topic

    @abstractmethod
    def start(self) -> None:
        """Start the query; return before its first record."""

    def pace(self, *, busy: bool) -> None:
        """Let the query do less while its component processes no tuples, if it can."""

    def failure(self) -> BaseException | None:
        """Return what ended the query, or None while it runs."""
        if self._query is None or self._query.isActive:
            return None
        return self._query.exception() or RuntimeError("the query has ended")

    def stop(self) -> None:
        """Stop the query and remove its checkpoint."""
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # the query or the JVM has ended already
                log.warning("the query of component %s did not stop cleanly: %s", self.component, error)
        shutil.rmtree(self._checkpoint, ignore_errors=True)


def _stop_executors(topology: str, epoch: int, component: str | None = None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that ends a topology's executors on the Spark executor it runs on."""

    def stop(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            stopped = ask_supervisor({"op": "stop", "topology": topology, "epoch": epoch, "component": component})["stopped"]
        except OSError:  # the supervisor has ended, and its executors with it
            stopped = 0
        yield pa.RecordBatch.from_arrays([pa.array([stopped], pa.int32())], names=["stopped"])

    return stop
