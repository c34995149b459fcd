"""What the Structured Streaming queries of a topology share; there is one for each component."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from dskype.topology.runtime.kafka.record_producer import RecordProducer
from dskype.topology.runtime.processes.payload import Payload
from dskype.topology.runtime.processes.supervisor_client import ask_supervisor
from dskype.topology.runtime.spark.spark_executors import tasks_on_all_executors

__all__ = ["QueryContext", "given_up_s", "is_local"]


@dataclass(frozen=True)
class QueryContext:
    """What all queries of one start of a topology share.

    :param producer: the driver's.
    :param scratch: folder for Spark's throw-away checkpoints.
    :param common: what all executors need.
    """

    spark: Any
    producer: RecordProducer
    scratch: Path
    common: Payload

    @cached_property
    def _plain_payload(self) -> bytes:
        return self.common.dumps()

    def payload(self, starts: tuple[tuple[str, int, int], ...], interval_s: float = 0.0) -> bytes:
        """Return the executors' payload; without external topics and an interval it is serialized once.

        :param starts: rows (topic, partition, first offset) of external topics.
        :param interval_s: least time between the beginnings of two batches of an executor.
        """
        return replace(self.common, starts=starts, interval_s=interval_s).dumps() if starts or interval_s else self._plain_payload

    def stop_executors(self) -> None:
        """End the resident executors on every Spark executor."""
        n = 1 if is_local(self.spark) else tasks_on_all_executors(self.spark.sparkContext)
        # With SQL, like the queries: RDDs would get Python daemons, and with them supervisors, of their own.
        stop = _stop_executors(self.common.plan.topology_id, self.common.epoch)
        self.spark.range(0, n, 1, n).mapInArrow(stop, "id long").collect()


def is_local(spark: Any) -> bool:
    """Tell whether Spark runs on one machine."""
    return spark.sparkContext.master.startswith("local")


def given_up_s(spark: Any) -> float | None:
    """Return after which silence of a host Spark may run its executors elsewhere; None on one machine."""
    if is_local(spark):
        return None
    conf = spark.sparkContext._jsc.sc().conf()
    return max(1.0, conf.getTimeAsSeconds("spark.network.timeout", "120s") - conf.getTimeAsSeconds("spark.executor.heartbeatInterval", "10s"))


def _stop_executors(topology: str, epoch: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that ends a topology's executors on the Spark executor it runs on."""

    def stop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with suppress(OSError):  # the supervisor has ended, and its executors with it
            ask_supervisor({"op": "stop", "topology": topology, "epoch": epoch})
        yield from (batch.slice(0, 0) for batch in batches)

    return stop
