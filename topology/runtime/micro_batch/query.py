"""Micro-batches: Kafka source -> Python worker -> executors -> Python worker -> Kafka sink."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from dskype.topology.components import KafkaSpout
from dskype.topology.config import RECORD_BYTES, Config
from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime.kafka import FAILOVER_MS, starting_offsets
from dskype.topology.runtime.micro_batch import tuning
from dskype.topology.runtime.micro_batch.shim import Shim
from dskype.topology.runtime.queries import SOURCE, ComponentQuery, QueryContext
from dskype.topology.runtime.wire import OUTPUT_DDL

__all__ = ["MicroBatchQuery", "Pace"]

_BUSY_S = 1.0
_BUSY_POLL_MS, _IDLE_POLL_MS = 10, 150
"""Spark's default, and a delay with which four idle queries cost a tenth of a core instead of a half."""

_NEW_PARTITIONS_MS = 10_000
"""Time after which new partitions of an external topic are seen at the latest; the default of Kafka's clients is five minutes."""
_SOURCE = SOURCE | {
    # At the end of the log the source must return at once; the available offsets were determined before.
    "kafka.fetch.max.wait.ms": "1",
    "kafka.max.partition.fetch.bytes": str(2 * RECORD_BYTES),
    "kafka.fetch.max.bytes": str(8 * RECORD_BYTES),
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


class MicroBatchQuery(ComponentQuery):
    """The query of one component that runs in micro-batches: Kafka source -> shim -> Kafka sink."""

    def __init__(self, context: QueryContext, component: str, positions: dict[tuple[str, int], int]) -> None:
        super().__init__(context, component, positions)
        self._delay_ms = _BUSY_POLL_MS

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
            **_SOURCE,
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
        tuning.exclude_rules(self._context.spark)
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
