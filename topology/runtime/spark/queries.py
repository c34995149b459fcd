"""What the Structured Streaming queries of a topology share; there is one for each component."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from dskype.topology.core.snapshots import SnapshotStore
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.record_producer import RecordProducer
from dskype.topology.runtime.processes.payload import Payload
from dskype.topology.runtime.processes.supervisor_client import ask_supervisor
from dskype.topology.runtime.spark.spark_executors import tasks_on_all_executors

__all__ = ["QueryContext"]


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

    def payload(self, starts: tuple[tuple[str, int, int], ...], interval_s: float = 0.0) -> bytes:
        """Return the executors' payload; without external topics and an interval it is serialized once.

        :param starts: rows (topic, partition, first offset) of external topics.
        :param interval_s: least time between the beginnings of two batches of an executor.
        """
        return replace(self._payload, starts=starts, interval_s=interval_s).dumps() if starts or interval_s else self._plain_payload

    @property
    def local(self) -> bool:
        """Whether Spark runs on one machine."""
        return self.spark.sparkContext.master.startswith("local")

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

    def stop_executors(self) -> None:
        """End the resident executors on every Spark executor."""
        n = 1 if self.local else tasks_on_all_executors(self.spark.sparkContext)
        # With SQL, like the queries: RDDs would get Python daemons, and with them supervisors, of their own.
        stop = _stop_executors(self.plan.topology_id, self.epoch)
        self.spark.range(0, n, 1, n).mapInArrow(stop, "stopped int").collect()


def _stop_executors(topology: str, epoch: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that ends a topology's executors on the Spark executor it runs on."""

    def stop(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            stopped = ask_supervisor({"op": "stop", "topology": topology, "epoch": epoch})["stopped"]
        except OSError:  # the supervisor has ended, and its executors with it
            stopped = 0
        yield pa.RecordBatch.from_arrays([pa.array([stopped], pa.int32())], names=["stopped"])

    return stop
