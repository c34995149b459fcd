"""Real-time queries: Spark's Kafka source reads, and passes each record to its executor at once (see docs/transport.md)."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import msgpack
from kafka.errors import KafkaError

from dskype.topology.components import KafkaSpout
from dskype.topology.config import RECORD_BYTES, Config
from dskype.topology.core.executor import route
from dskype.topology.core.frames import WAKE, encode_control
from dskype.topology.core.loss import LostInputError
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime.kafka import FAILOVER_MS, starting_offsets
from dskype.topology.runtime.queries import SOURCE, ComponentQuery, PartitionsAddedError, QueryContext
from dskype.topology.runtime.spark_executors import SparkExecutor, find_executors, place

__all__ = ["RealTimeQuery"]

log = logging.getLogger(__name__)

_FETCH = {"kafka.fetch.max.wait.ms": "5000", "kafka.max.partition.fetch.bytes": str(RECORD_BYTES // 4), "kafka.fetch.max.bytes": str(RECORD_BYTES // 2)}
"""A broker answers as soon as there is a record, and larger records come as well. There is a consumer for each partition, which waits while its executor is busy: with larger fetches, those
of a long backlog would fill the JVM's memory."""
_NEW_PARTITIONS_S = 10.0
"""Time after which new partitions of external topics are seen. Spark itself sees them when its batch ends."""
_DAEMON = "dskype.topology.runtime.daemon"


class RealTimeQuery(ComponentQuery):
    """The real-time query of one component: Kafka source -> executors. A Spark task for each partition lasts as long as Spark's batch, and a batch lasts for minutes.

    On a cluster, each executor has its place: the Spark executor on which the tasks of all its partitions run.
    """

    def __init__(self, context: QueryContext, component: str, positions: dict[tuple[str, int], int]) -> None:
        super().__init__(context, component, positions)
        self._stopped = threading.Event()
        self._outdated: Exception | None = None  # why the query has to end, although Spark does not see it

    def start(self) -> None:
        """Start the query; return before its first record."""
        plan, kafka, spark = self._context.plan, self._context.kafka, self._context.spark
        spout: Any = plan.spec(self.component).obj
        batch_s = plan.component_conf(self.component)[Config.TOPOLOGY_EMULATOR_REAL_TIME_BATCH_SECS]
        external = isinstance(spout, KafkaSpout)
        inbox = inbox_topic(plan.name, self.component)
        tasks = plan.component_tasks(self.component)
        wake = encode_control(WAKE, now_ms())  # each inbox has a record, upon which its task begins
        for sent in [self._context.producer.send(inbox, wake, partition=i) for i in range(len(tasks))]:
            sent.get()
        assigned: dict[str, list[int]] = {}
        for topic, partition in sorted(self._positions):
            assigned.setdefault(topic, []).append(partition)
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        source = {**SOURCE, **_FETCH, **kafka.options, **servers, "assign": json.dumps(assigned), "startingOffsets": starting_offsets(self._positions)}
        if external:
            source["includeHeaders"] = "true"
            source |= {f"kafka.{k}": str(v) for k, v in spout.kafka_options.items() if k not in ("group.id", "bootstrap.servers")}
        places = [] if self._context.local else place(plan, self.component, find_executors(spark.sparkContext))
        if places:
            source["dskype.places"] = "\n".join(f"{t}\t{p}\t{places[self._executor_of(t, p)].location}" for t, p in self._positions)
        reader = spark.readStream.format("dskype.spark.PlacedKafka" if places else "kafka")
        for key, value in source.items():
            reader = reader.option(key, value)
        writer = reader.load().writeStream
        writer._jwrite = writer._jwrite.foreach(self._writer(inbox, places))
        writer = writer.outputMode("update").queryName(f"{plan.topology_id}/{self.component}/{self._context.epoch}")
        self._query = writer.option("checkpointLocation", self._checkpoint.as_uri()).trigger(realTime=f"{batch_s} seconds").start()
        if external:
            threading.Thread(target=self._look_for_partitions, args=(spout,), name=f"partitions of {self.component}", daemon=True).start()

    def _executor_of(self, topic: str, partition: int) -> int:
        """Return the index of the executor that gets a partition's records."""
        return self._context.plan.executor_of(route(self._context.plan, self.component, topic, partition))

    def _writer(self, inbox: str, places: Sequence[SparkExecutor]) -> Any:
        """Return the sink's object in Java.

        :param places: the Spark executor of each executor; empty on one machine.
        """
        plan, context = self._context.plan, self._context.spark.sparkContext
        jvm, n = context._jvm, plan.num_executors(self.component)
        routes = jvm.java.util.HashMap()
        for topic, partition in self._positions:
            routes.put(f"{topic}/{partition}", self._executor_of(topic, partition))
        environment = jvm.java.util.HashMap()
        for name, value in context.environment.items():  # what PySpark gives the Python workers of its jobs
            environment.put(name, value)
        ids: Any = context._gateway.new_array(jvm.String, n) if places else None
        for i, place_of_executor in enumerate(places):
            ids[i] = place_of_executor.id
        request = {"op": "executor", "plain": True, "topology": plan.topology_id, "component": self.component, "epoch": self._context.epoch}
        starts = tuple((topic, partition, offset) for (topic, partition), offset in sorted(self._positions.items()) if topic != inbox)
        payload = self._context.payload(starts)
        return jvm.dskype.spark.ExecutorWriter(
            context.pythonExec, _DAEMON, environment, inbox, routes, ids, _head(request), _head({**request, "payload": payload})
        )

    def _look_for_partitions(self, spout: KafkaSpout) -> None:
        """Look for partitions that were added to the spout's topics, for new topics that match its pattern, and for topics that are gone, until there are any."""
        missed: set[str] = set()
        while not self._stopped.wait(_NEW_PARTITIONS_S):
            try:
                with closing(self._context.kafka.consumer(request_timeout_ms=FAILOVER_MS)) as consumer:
                    topics = [t for t in consumer.topics() if t in spout.topics or re.fullmatch(spout.pattern or "", t)]
                    found = {(topic, partition) for topic in topics for partition in consumer.partitions_for_topic(topic) or ()}
            except KafkaError as error:
                log.info("the partitions of component %s are not known now: %s", self.component, error)
                continue
            if new := sorted(found - set(self._positions)):
                self._outdated = PartitionsAddedError(f"{len(new)} new, the first is {new[0][0]}/{new[0][1]}")
                return
            inbox = inbox_topic(self._context.plan.name, self.component)
            gone = {topic for topic, _ in self._positions if topic != inbox} - set(topics)
            if again := sorted(gone & missed):  # a broker that has just started may not know all topics yet
                self._outdated = LostInputError(f"topic {again[0]} is gone", hint="it was deleted while the topology reads it")
                return
            missed = gone

    def failure(self) -> BaseException | None:
        """Return what ended the query, or why it has to end; None while it runs."""
        return super().failure() or self._outdated

    def stop(self) -> None:
        """Stop the query and remove its checkpoint."""
        self._stopped.set()
        super().stop()


def _head(request: dict[str, Any]) -> bytes:
    """Return a request to the supervisor up to the number of the executor, which its sender appends."""
    packer = msgpack.Packer()
    return packer.pack_map_header(len(request) + 1) + b"".join(packer.pack(k) + packer.pack(v) for k, v in request.items()) + packer.pack("index")
