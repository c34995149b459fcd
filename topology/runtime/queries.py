"""Structured Streaming queries, one per component."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dskype.topology.components import KafkaSpout
from dskype.topology.config import RECORD_BYTES, Config
from dskype.topology.core.snapshots import SnapshotStore
from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import TopologyPlan, inbox_topic
from dskype.topology.runtime import tuning
from dskype.topology.runtime.kafka import FAILOVER_MS, KafkaSettings, starting_offsets
from dskype.topology.runtime.resident import Payload
from dskype.topology.runtime.shim import Shim, stop_executors
from dskype.topology.runtime.spark_executors import tasks_on_all_executors
from dskype.topology.runtime.wire import OUTPUT_DDL

__all__ = ["SOURCE", "ComponentQuery", "Pace", "PartitionsAddedError", "QueryContext"]

log = logging.getLogger(__name__)

_BUSY_S = 1.0
_BUSY_POLL_MS, _IDLE_POLL_MS = 10, 150
"""Spark's default, and a delay with which four idle queries cost a tenth of a core instead of a half."""

_STANDSTILL_S = 10.0
"""Spark and its master notice no earlier that a host stands still, unless ``spark.network.timeout`` is short."""

_NEW_PARTITIONS_MS = 10_000
"""Time after which new partitions of an external topic are seen at the latest; the default of Kafka's clients is five minutes."""
SOURCE = {
    "kafka.request.timeout.ms": str(FAILOVER_MS),
    # At the end of the log the source must return at once; the available offsets were determined before.
    "kafka.fetch.max.wait.ms": "1",
    "kafka.max.partition.fetch.bytes": str(2 * RECORD_BYTES),
    "kafka.fetch.max.bytes": str(8 * RECORD_BYTES),
    "kafka.max.poll.records": "10000",
    "failOnDataLoss": "true",
}
_SINK = {
    "kafka.request.timeout.ms": str(FAILOVER_MS),
    "kafka.linger.ms": "0",
    "kafka.batch.size": "262144",
    "kafka.max.request.size": str(2 * RECORD_BYTES),
    "kafka.buffer.memory": str(8 * RECORD_BYTES),
    # Progress is written asynchronously, and only once a day: nothing is resumed from Spark's log (docs/decisions.md), and Spark never purges this one.
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "86400000",
}


class PartitionsAddedError(Exception):
    """A query has to start anew, because its external topics have partitions that it does not read."""


@dataclass(frozen=True)
class QueryContext:
    """The settings that all queries of one start of a topology share.

    :param spark: the session.
    :param store: where snapshots and journals are kept.
    :param scratch: folder for Spark's throw-away checkpoints.
    :param logs: folder of the executors' logs; None: where Spark runs its executors.
    :param term: the driver's term; processes of earlier drivers must not write any more.
    :param epoch: number of this start; executors of a higher epoch replace those of lower ones.
    """

    spark: Any
    plan: TopologyPlan
    kafka: KafkaSettings
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
        stop = stop_executors(self.plan.topology_id, self.epoch, component)
        self.spark.range(0, n, 1, n).mapInArrow(stop, "stopped int").collect()


class ComponentQuery:
    """The query of one component: Kafka source -> shim -> Kafka sink.

    :param context: settings that it shares with the topology's other queries.
    :param component: component id.
    :param positions: (topic, partition) -> first offset to read, for every partition.
    """

    def __init__(self, context: QueryContext, component: str, positions: dict[tuple[str, int], int]) -> None:
        self._context, self.component, self._positions = context, component, positions
        self._query: Any = None
        self._delay_ms = _BUSY_POLL_MS
        self._checkpoint = context.scratch / str(context.epoch) / inbox_topic("x", component)[2:]  # the component's id, escaped as in its topic

    def start(self) -> None:
        """Start the query; return before its first batch."""
        plan, kafka = self._context.plan, self._context.kafka
        spout: Any = plan.spec(self.component).obj
        external = isinstance(spout, KafkaSpout)
        inbox = inbox_topic(plan.name, self.component)
        topics = sorted({topic for topic, _ in self._positions})
        reader = self._context.spark.readStream.format("kafka")
        if external and spout.pattern:  # also reads topics that are created later
            reader = reader.option("subscribePattern", f"(?:{spout.pattern})|{re.escape(inbox)}")
        elif external:  # also reads partitions that are added later
            reader = reader.option("subscribe", ",".join(topics))
        else:
            reader = reader.option("assign", json.dumps({inbox: [partition for _, partition in sorted(self._positions)]}))
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        conf = plan.component_conf(self.component)
        source = {
            **SOURCE,
            **kafka.options,
            **servers,
            "startingOffsets": starting_offsets(self._positions),
            "maxOffsetsPerTrigger": conf[Config.TOPOLOGY_EMULATOR_MAX_FRAMES_PER_BATCH],
        }
        if external:  # external records are single, not frames of many tuples
            source["maxOffsetsPerTrigger"] = max(source["maxOffsetsPerTrigger"], conf[Config.TOPOLOGY_EMULATOR_PULSE_MAX_TUPLES])
            source["includeHeaders"] = "true"
            source.setdefault("kafka.metadata.max.age.ms", _NEW_PARTITIONS_MS)
            # Only the driver uses the group, for committed positions; Spark reads without it.
            source |= {f"kafka.{k}": str(v) for k, v in spout.kafka_options.items() if k not in ("group.id", "bootstrap.servers")}
        for key, value in source.items():
            reader = reader.option(key, value)
        columns = ["partition", "offset", "unix_micros(timestamp) AS timestamp", "value"]
        if external:
            columns = ["topic", *columns, "key", "headers"]
        rows = reader.load().selectExpr(*columns)
        # A Kafka spout's query has a single Spark task, because the partitions of one spout task must not go to two of them: on two hosts, the spout
        # task would have two owners. On one machine, a query has one Spark task per worker, whose shim serves all executors there. On a cluster, each
        # partition is a Spark task, even with one worker: a coalesced one would run on any Spark executor of some partition's host, batch by batch.
        if external or self._context.local:
            rows = rows.coalesce(1 if external else plan.used_workers)
        rows = rows.mapInArrow(self._shim(), OUTPUT_DDL)
        writer = rows.writeStream.format("kafka").queryName(f"{plan.topology_id}/{self.component}/{self._context.epoch}")
        for key, value in {**_SINK, **kafka.options, **servers, "checkpointLocation": self._checkpoint.as_uri()}.items():
            writer = writer.option(key, value)
        if interval_ms := conf[Config.TOPOLOGY_EMULATOR_TRIGGER_INTERVAL_MS]:
            writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
        self._query = writer.start()
        tuning.drop_listeners(self._context.spark)

    def _shim(self) -> Shim:
        """Return the function that Spark's Python workers run for this component."""
        plan = self._context.plan
        inbox = inbox_topic(plan.name, self.component)
        starts = tuple((topic, partition, offset) for (topic, partition), offset in sorted(self._positions.items()) if topic != inbox)
        return Shim(
            topology=plan.topology_id,
            component=self.component,
            epoch=self._context.epoch,
            inbox=inbox,
            executors=tuple(plan.executor_of(t) for t in plan.component_tasks(self.component)),
            external=isinstance(plan.spec(self.component).obj, KafkaSpout),
            payload=self._context.payload(starts),
            standstill_s=self._context.standstill_s,
        )

    def pace(self, *, busy: bool) -> None:
        """Let the query poll for new records frequently while it is busy, and every 150 ms while it is idle."""
        delay_ms = _BUSY_POLL_MS if busy else _IDLE_POLL_MS
        if delay_ms != self._delay_ms and self._query is not None and self._query.isActive:
            self._delay_ms = delay_ms
            tuning.set_polling_delay(self._context.spark, self._query, delay_ms)

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


class Pace:
    """Lets queries poll less often while their components process no tuples."""

    def __init__(self) -> None:
        self._work: dict[str, tuple[int, float]] = {}  # component -> tuples so far, and since when that is the number

    def keep(self, queries: Mapping[str, ComponentQuery], stats: TopologyStats) -> None:
        """Look at what components have done since the last call."""
        now = time.monotonic()
        for component, query in list(queries.items()):
            # By tuples, not by batches: an idle spout has batches as well, because of its pulses.
            done = stats.total(component, "executed") + stats.total(component, "emitted")
            if done != self._work.get(component, (0, 0.0))[0]:
                self._work[component] = (done, now)
            query.pace(busy=now - self._work.get(component, (0, 0.0))[1] < _BUSY_S)
