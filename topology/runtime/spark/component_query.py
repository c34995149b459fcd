"""The query of a component: Spark's Kafka source reads, and passes each record to its executor (see docs/internals/transport.md)."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Mapping, Sequence
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
from dskype.topology.runtime.kafka.connections import FAILOVER_MS
from dskype.topology.runtime.spark.queries import QueryContext, is_local
from dskype.topology.runtime.spark.session import DAEMON
from dskype.topology.runtime.spark.spark_executors import SparkExecutor, find_executors, place

__all__ = ["ComponentQuery", "PartitionsAddedError"]

log = logging.getLogger(__name__)

_SOURCE = {"kafka.request.timeout.ms": str(FAILOVER_MS), "kafka.max.poll.records": "10000", "failOnDataLoss": "true"}
_FETCH = {"kafka.fetch.max.wait.ms": "5000", "kafka.max.partition.fetch.bytes": str(RECORD_BYTES // 4), "kafka.fetch.max.bytes": str(RECORD_BYTES // 2)}
"""A broker answers as soon as there is a record, and larger records come as well. There is a consumer for each partition, which waits while its executor is busy: with larger fetches, those
of a long backlog would fill the JVM's memory."""
_NEW_PARTITIONS_S = 10.0
"""Time after which new partitions of external topics are seen. Spark itself sees them when its batch ends."""


class PartitionsAddedError(Exception):
    """A query has to start anew, because its external topics have partitions that it does not read."""


class ComponentQuery:
    """The query of one component: Kafka source -> executors. In each of Spark's batches a task for each partition passes the partition's records on.

    In real-time mode the tasks last as long as the batch, and a batch lasts for minutes: a record is passed on as it comes. In micro-batches, a task passes on what is there,
    and waits until the executor has processed it.

    On a cluster, each executor has its place: the Spark executor on which the tasks of all its partitions run.

    :param context: settings that it shares with the topology's other queries.
    :param component: component id.
    :param positions: (topic, partition) -> first offset to read, for every partition.
    :param real_time: whether Spark runs it in real-time mode.
    """

    def __init__(self, context: QueryContext, component: str, positions: dict[tuple[str, int], int], *, real_time: bool) -> None:
        self._context, self.component, self._positions, self._real_time = context, component, positions, real_time
        self._query: Any = None
        self._checkpoint = context.scratch / str(context.common.epoch) / inbox_topic("x", component)[2:]  # the component's id, escaped as in its topic
        self._stopped = threading.Event()
        self._outdated: Exception | None = None  # why the query has to end, although Spark does not see it

    def start(self) -> None:
        """Start the query; return before its first record."""
        plan, kafka, spark = self._context.common.plan, self._context.common.kafka, self._context.spark
        spout: Any = plan.spec(self.component).obj
        conf = plan.component_conf(self.component)
        external = isinstance(spout, KafkaSpout)
        inbox = inbox_topic(plan.name, self.component)
        tasks = plan.component_tasks(self.component)
        wake = encode_control(WAKE, now_ms())  # each inbox has a record, upon which its task begins
        for sent in [self._context.producer.send(inbox, wake, partition=i) for i in range(len(tasks))]:
            sent.get()
        assigned: dict[str, list[int]] = {}
        for topic, partition in sorted(self._positions):
            assigned.setdefault(topic, []).append(partition)
        source: dict[str, Any] = {
            **_SOURCE,
            **_FETCH,
            **kafka.options,
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "assign": json.dumps(assigned),
            "startingOffsets": _starting_offsets(self._positions),
        }
        if not self._real_time:
            most: int = conf[Config.TOPOLOGY_EMULATOR_MAX_FRAMES_PER_BATCH]
            # At the end of the log the source must return at once; the available offsets were determined before.
            source["kafka.fetch.max.wait.ms"] = "1"
            # External records are single, not frames of many tuples.
            source["maxOffsetsPerTrigger"] = max(most, conf[Config.TOPOLOGY_EMULATOR_PULSE_MAX_TUPLES]) if external else most
        if external:
            source["includeHeaders"] = "true"
            source |= {f"kafka.{k}": str(v) for k, v in spout.kafka_options.items() if k not in ("group.id", "bootstrap.servers")}
        places = [] if is_local(spark) else place(plan, self.component, find_executors(spark.sparkContext))
        if places:
            source["dskype.places"] = "\n".join(f"{t}\t{p}\t{places[self._executor_of(t, p)].location}" for t, p in self._positions)
        reader = spark.readStream.format("dskype.spark.PlacedKafka" if places else "kafka")
        for key, value in source.items():
            reader = reader.option(key, value)
        writer = reader.load().writeStream
        writer._jwrite = writer._jwrite.foreach(self._writer(inbox, places))
        writer = writer.outputMode("update").queryName(f"{plan.topology_id}/{self.component}/{self._context.common.epoch}")
        writer = writer.option("checkpointLocation", self._checkpoint.as_uri())
        if self._real_time:
            writer = writer.trigger(realTime=f"{conf[Config.TOPOLOGY_EMULATOR_REAL_TIME_BATCH_SECS]} seconds")
        elif interval_ms := conf[Config.TOPOLOGY_EMULATOR_TRIGGER_INTERVAL_MS]:
            writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
        self._query = writer.start()
        if external:
            threading.Thread(target=self._look_for_partitions, args=(spout,), name=f"partitions of {self.component}", daemon=True).start()

    def _executor_of(self, topic: str, partition: int) -> int:
        """Return the index of the executor that gets a partition's records."""
        return self._context.common.plan.executor_of(route(self._context.common.plan, self.component, topic, partition))

    def _writer(self, inbox: str, places: Sequence[SparkExecutor]) -> Any:
        """Return the sink's object in Java.

        :param places: the Spark executor of each executor; empty on one machine.
        """
        plan, context = self._context.common.plan, self._context.spark.sparkContext
        routes = {f"{topic}/{partition}": self._executor_of(topic, partition) for topic, partition in self._positions}
        ids = [place_of_executor.id for place_of_executor in places] or None
        request = {"op": "executor", "topology": plan.topology_id, "component": self.component, "epoch": self._context.common.epoch}
        starts = tuple((topic, partition, offset) for (topic, partition), offset in sorted(self._positions.items()) if topic != inbox)
        interval_ms: int = 0 if self._real_time else plan.component_conf(self.component)[Config.TOPOLOGY_EMULATOR_TRIGGER_INTERVAL_MS]
        payload = self._context.payload(starts, interval_ms / 1000)
        heads = _head(request), _head({**request, "payload": payload})
        return context._jvm.dskype.spark.ExecutorWriter(context.pythonExec, DAEMON, context.environment, inbox, routes, ids, *heads)

    def _look_for_partitions(self, spout: KafkaSpout) -> None:
        """Look for partitions that were added to the spout's topics, for new topics that match its pattern, and for topics that are gone, until there are any."""
        missed: set[str] = set()
        while not self._stopped.wait(_NEW_PARTITIONS_S):
            try:
                with closing(self._context.common.kafka.consumer(request_timeout_ms=FAILOVER_MS)) as consumer:
                    topics = list(filter(spout.reads, consumer.topics()))
                    found = {(topic, partition) for topic in topics for partition in consumer.partitions_for_topic(topic) or ()}
            except KafkaError as error:
                log.info("the partitions of component %s are not known now: %s", self.component, error)
                continue
            if new := sorted(found - set(self._positions)):
                self._outdated = PartitionsAddedError(f"{len(new)} new, the first is {new[0][0]}/{new[0][1]}")
                return
            inbox = inbox_topic(self._context.common.plan.name, self.component)
            gone = {topic for topic, _ in self._positions if topic != inbox} - set(topics)
            if again := sorted(gone & missed):  # a broker that has just started may not know all topics yet
                self._outdated = LostInputError(f"topic {again[0]} is gone", hint="it was deleted while the topology reads it")
                return
            missed = gone

    def failure(self) -> BaseException | None:
        """Return what ended the query, or why it has to end; None while it runs."""
        if self._query is None or self._query.isActive:
            return self._outdated
        return self._query.exception() or RuntimeError("the query has ended")

    def stop(self) -> None:
        """Stop the query and remove its checkpoint."""
        self._stopped.set()
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # the query or the JVM has ended already
                log.warning("the query of component %s did not stop cleanly: %s", self.component, error)
        shutil.rmtree(self._checkpoint, ignore_errors=True)


def _head(request: dict[str, Any]) -> bytes:
    """Return a request to the supervisor up to the number of the executor, which its sender appends."""
    packer = msgpack.Packer()
    return packer.pack_map_header(len(request) + 1) + b"".join(packer.pack(k) + packer.pack(v) for k, v in request.items()) + packer.pack("index")


def _starting_offsets(positions: Mapping[tuple[str, int], int]) -> str:
    """Return positions as the JSON for Spark's ``startingOffsets``."""
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in positions.items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(offsets)
