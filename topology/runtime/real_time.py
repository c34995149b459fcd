"""Real-time queries: Spark's Kafka source reads, and passes each record to its executor at once (see docs/transport.md)."""

from __future__ import annotations

import json
from typing import Any

import msgpack

from dskype.topology.components import KafkaSpout
from dskype.topology.config import RECORD_BYTES
from dskype.topology.core.executor import route
from dskype.topology.core.frames import WAKE, encode_control
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime import tuning
from dskype.topology.runtime.kafka import FAILOVER_MS, starting_offsets
from dskype.topology.runtime.queries import ComponentQuery

__all__ = ["RealTimeQuery"]

_BATCH = "5 minutes"
_SOURCE = {
    "kafka.request.timeout.ms": str(FAILOVER_MS),
    # A broker answers as soon as there is a record.
    "kafka.fetch.max.wait.ms": "5000",
    "kafka.max.partition.fetch.bytes": str(2 * RECORD_BYTES),
    "kafka.fetch.max.bytes": str(8 * RECORD_BYTES),
    "failOnDataLoss": "true",
}
_DAEMON = "dskype.topology.runtime.daemon"


class RealTimeQuery(ComponentQuery):
    """The real-time query of one component: Kafka source -> executors. A Spark task for each partition lasts as long as Spark's batch, and a batch lasts for minutes."""

    def start(self) -> None:
        """Start the query; return before its first record."""
        plan, kafka, spark = self._context.plan, self._context.kafka, self._context.spark
        spout: Any = plan.spec(self.component).obj
        external = isinstance(spout, KafkaSpout)
        inbox = inbox_topic(plan.name, self.component)
        tasks = plan.component_tasks(self.component)
        with kafka.producer() as producer:  # each inbox has a record, upon which its task begins
            for i in range(len(tasks)):
                producer.send(inbox, encode_control(WAKE, now_ms()), partition=i)
        assigned: dict[str, list[int]] = {}
        for topic, partition in sorted(self._positions):
            assigned.setdefault(topic, []).append(partition)
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        source = {**_SOURCE, **kafka.options, **servers, "assign": json.dumps(assigned), "startingOffsets": starting_offsets(self._positions)}
        columns = ["partition", "offset", "unix_micros(timestamp) AS timestamp", "value"]
        if external:
            source["includeHeaders"] = "true"
            source |= {f"kafka.{k}": str(v) for k, v in spout.kafka_options.items() if k not in ("group.id", "bootstrap.servers")}
            columns += ["key", "headers", "topic"]
        reader = spark.readStream.format("kafka")
        for key, value in source.items():
            reader = reader.option(key, value)
        rows = reader.load().selectExpr(*columns)
        writer = rows.writeStream
        writer._jwrite = writer._jwrite.foreach(self._writer(inbox, external))
        writer = writer.outputMode("update").queryName(f"{plan.topology_id}/{self.component}/{self._context.epoch}")
        self._query = writer.option("checkpointLocation", self._checkpoint.as_uri()).trigger(realTime=_BATCH).start()
        tuning.drop_listeners(spark)

    def _writer(self, inbox: str, external: bool) -> Any:
        """Return the sink's object in Java."""
        plan, context = self._context.plan, self._context.spark.sparkContext
        jvm = context._jvm
        executors = [plan.executor_of(t) for t in plan.component_tasks(self.component)]
        array = context._gateway.new_array(jvm.int, len(executors))
        for i, executor in enumerate(executors):
            array[i] = executor
        routes = jvm.java.util.HashMap()
        for topic, partition in self._positions:
            if topic != inbox:
                routes.put(f"{topic}/{partition}", plan.executor_of(route(plan, self.component, topic, partition)))
        request = {"op": "executor", "plain": True, "topology": plan.topology_id, "component": self.component, "epoch": self._context.epoch}
        starts = tuple((topic, partition, offset) for (topic, partition), offset in sorted(self._positions.items()) if topic != inbox)
        payload = self._context.payload(starts)
        return jvm.dskype.spark.ExecutorWriter(context.pythonExec, _DAEMON, inbox, array, routes, _head(request), _head({**request, "payload": payload}))

    def pace(self, *, busy: bool) -> None:
        """Do nothing: a real-time query does not poll."""


def _head(request: dict[str, Any]) -> bytes:
    """Return a request to the supervisor up to the number of the executor, which its sender appends."""
    packer = msgpack.Packer()
    return packer.pack_map_header(len(request) + 1) + b"".join(packer.pack(k) + packer.pack(v) for k, v in request.items()) + packer.pack("index")
