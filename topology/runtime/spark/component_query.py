"""The queries of a topology, one for each component: Spark's Kafka source reads, and passes each record to its executor (see docs/internals/transport.md)."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
from kafka.errors import KafkaError

from dskype.topology.components import KafkaSpout
from dskype.topology.config import RECORD_BYTES, Config
from dskype.topology.core.executor import route
from dskype.topology.core.frames import WAKE, encode_control
from dskype.topology.core.loss import LostInputError
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime.kafka.connections import FAILOVER_MS
from dskype.topology.runtime.kafka.record_producer import RecordProducer
from dskype.topology.runtime.processes.payload import Payload
from dskype.topology.runtime.processes.supervisor_client import ask_supervisor
from dskype.topology.runtime.spark.spark_executors import SparkExecutor, find_executors, is_local, on_all_executors, place

__all__ = ["ComponentQuery", "PartitionsAddedError", "QueryContext"]

log = logging.getLogger(__name__)

_SOURCE = {"kafka.request.timeout.ms": str(FAILOVER_MS), "kafka.max.poll.records": "10000", "failOnDataLoss": "true"}
_FETCH = {"kafka.fetch.max.wait.ms": "5000", "kafka.max.partition.fetch.bytes": str(RECORD_BYTES // 4), "kafka.fetch.max.bytes": str(RECORD_BYTES // 2)}
"""A broker answers as soon as there is a record, and larger records come as well. There is a consumer for each partition, which waits while its executor is busy: with larger fetches, those
of a long backlog would fill the JVM's memory."""
_NEW_PARTITIONS_S = 10.0
"""Time after which new partitions of external topics are seen. Spark itself sees them when its batch ends."""


class PartitionsAddedError(Exception):
    """A query has to start anew, because its external topics have partitions that it does not read."""


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

    def stop_executors(self) -> None:
        """End the resident executors on every Spark executor."""
        request = {"op": "stop", "topology": self.common.plan.topology_id, "epoch": self.common.epoch}

        def stop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with suppress(OSError):  # the supervisor has ended, and its executors with it
                ask_supervisor(request)
            yield from (batch.slice(0, 0) for batch in batches)

        on_all_executors(self.spark, stop, "id long")


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
        offsets: dict[str, dict[int, int]] = {}  # topic -> partition -> first offset
        for (topic, partition), offset in sorted(self._positions.items()):
            offsets.setdefault(topic, {})[partition] = offset
        source: dict[str, Any] = {
            **_SOURCE,
            **_FETCH,
            **kafka.options,
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "assign": json.dumps({topic: list(partitions) for topic, partitions in offsets.items()}),
            "startingOffsets": json.dumps(offsets),
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
        routes = {f"{topic}/{partition}": plan.executor_of(route(plan, self.component, topic, partition)) for topic, partition in self._positions}
        places = [] if is_local(spark) else place(plan, self.component, find_executors(spark.sparkContext))
        if places:
            source["dskype.places"] = "\n".join(f"{where} {places[executor].location}" for where, executor in routes.items())
        writer = spark.readStream.format("dskype.spark.PlacedKafka" if places else "kafka").options(**source).load().writeStream
        writer._jwrite = writer._jwrite.foreach(self._writer(inbox, routes, places))
        writer = writer.outputMode("update").queryName(f"{plan.topology_id}/{self.component}/{self._context.common.epoch}")
        writer = writer.option("checkpointLocation", self._checkpoint.as_uri())
        if self._real_time:
            writer = writer.trigger(realTime=f"{conf[Config.TOPOLOGY_EMULATOR_REAL_TIME_BATCH_SECS]} seconds")
        elif interval_ms := conf[Config.TOPOLOGY_EMULATOR_TRIGGER_INTERVAL_MS]:
            writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
        self._query: Any = writer.start()
        if external:
            threading.Thread(target=self._look_for_partitions, args=(spout,), name=f"partitions of {self.component}", daemon=True).start()

    def _writer(self, inbox: str, routes: dict[str, int], places: Sequence[SparkExecutor]) -> Any:
        """Return the sink's object in Java.

        :param routes: "topic/partition" -> index of the executor that gets its records.
        :param places: the Spark executor of each executor; empty on one machine.
        """
        plan, context = self._context.common.plan, self._context.spark.sparkContext
        ids = [place_of_executor.id for place_of_executor in places] or None
        request = {"op": "executor", "topology": plan.topology_id, "component": self.component, "epoch": self._context.common.epoch}
        starts = {where: offset for where, offset in self._positions.items() if where[0] != inbox}
        interval_ms: int = 0 if self._real_time else plan.component_conf(self.component)[Config.TOPOLOGY_EMULATOR_TRIGGER_INTERVAL_MS]
        payload = replace(self._context.common, starts=starts, interval_s=interval_ms / 1000).dumps()
        heads = [msgpack.packb(asked | {"index": 0})[:-1] for asked in (request, request | {"payload": payload})]  # the sink appends the executor's number
        return context._jvm.dskype.spark.ExecutorWriter(context.pythonExec, context.environment, inbox, routes, ids, *heads)

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
        """Return what ended the query, or why it has to end; None while it runs. It was started."""
        if self._query.isActive:
            return self._outdated
        return self._query.exception() or RuntimeError("the query has ended")

    def stop(self) -> None:
        """Stop the query, which was started, and remove its checkpoint."""
        self._stopped.set()
        try:
            self._query.stop()
        except Exception as error:  # the query or the JVM has ended already
            log.warning("the query of component %s did not stop cleanly: %s", self.component, error)
        shutil.rmtree(self._checkpoint, ignore_errors=True)
