"""Where queries begin to read external topics, and what happens if the records there are gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from kafka import TopicPartition

from dskype.topology.components import KafkaSpout
from dskype.topology.config import Config
from dskype.topology.core.executor import start_positions
from dskype.topology.core.loss import DataLossError
from dskype.topology.core.offset_commits import consumer_group
from dskype.topology.core.snapshots import SnapshotStore
from dskype.topology.errors import FatalError, TopologyError, explain
from dskype.topology.planning.plan import TopologyPlan, inbox_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.stores.control_files import FIRST_OFFSETS, read_json, write_json

__all__ = ["ExternalInputs"]

Partition = tuple[str, int]


class ExternalInputs:
    """The external topics of a topology's Kafka spouts.

    :param folder: the topology's folder; a file there has the first offset of each partition.
    :param on_change: called when that file has been written, before anything is read from there.
    """

    def __init__(self, kafka: KafkaSettings, folder: Path, name: str, on_change: Callable[[], None] = lambda: None) -> None:
        self._kafka, self._file, self._name, self._on_change = kafka, folder / FIRST_OFFSETS, name, on_change
        self._lock = threading.Lock()
        self.warnings: list[str] = []
        """What the user should know about where the spouts begin."""

    def forget(self) -> None:
        """Forget the first offsets of an earlier run of the topology."""
        self._file.unlink(missing_ok=True)

    def start_positions(self, plan: TopologyPlan, component: str, store: SnapshotStore) -> dict[Partition, int]:
        """Return where a component's query has to begin: (topic, partition) -> offset, for its inbox and for the external topics of a Kafka spout.

        The errors are those of :meth:`positions`.
        """
        known, spout = start_positions(plan, component, store), plan.spec(component).obj
        if not isinstance(spout, KafkaSpout):
            return known
        skip = plan.component_conf(component)[Config.TOPOLOGY_EMULATOR_ON_DATA_LOSS] == "skip"
        inbox = {where: offset for where, offset in known.items() if where[0] == inbox_topic(plan.name, component)}
        return inbox | self.positions(component, spout, known, skip_lost=skip)

    def positions(self, component: str, spout: KafkaSpout, known: Mapping[Partition, int], *, skip_lost: bool) -> dict[Partition, int]:
        """Return the offset at which to begin, for every partition of the spout's topics.

        :param known: next offsets of the spout's tasks, inboxes included, for partitions that they have read.
        :param skip_lost: whether to begin with the first available record if others are gone; the spout's task counts them.
        :raises DataLossError: records are gone, and must not be skipped.
        :raises FatalError: the topic is not the one that was read before.
        :raises TopologyError: there is no such topic.
        """
        with self._lock, closing(self._kafka.consumer(group_id=consumer_group(self._name, spout))) as consumer:  # the queries of several spouts start at once
            first_starts = self._first_starts()
            before = dict(first_starts)
            found: dict[Partition, int] = {}
            topics = self._topics(consumer, component, spout)
            begun = {topic for topic, _ in first_starts} | {topic for topic, _ in known}
            if spout.pattern and begun.intersection(topics):
                begun.update(topics)
            for topic in topics:
                numbers = consumer.partitions_for_topic(topic)
                if not numbers:
                    raise TopologyError("A KafkaSpout reads a topic that does not exist.", given=topic, component=component, hint="create it first")
                partitions = [TopicPartition(topic, p) for p in numbers]
                begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
                for tp in partitions:
                    where = topic, tp.partition
                    if (offset := known.get(where, first_starts.get(where))) is not None:
                        found[where] = _check_offset(offset, begins[tp], ends[tp], where, component, skip_lost=skip_lost)
                    else:
                        # Where the spout has begun already, this one was added since, and all its records are to be read.
                        first_starts[where] = found[where] = begins[tp] if topic in begun else self._first(consumer, spout, tp, begins[tp], ends[tp])
            if first_starts != before:
                write_json(self._file, [[t, p, offset] for (t, p), offset in sorted(first_starts.items())])
                self._on_change()
            return found

    def _topics(self, consumer, component: str, spout: KafkaSpout) -> list[str]:
        if not (topics := spout.topics or sorted(filter(spout.reads, consumer.topics()))):
            raise TopologyError(
                "No topic matches the pattern of a KafkaSpout.",
                given=spout.pattern,
                component=component,
                hint="create one; topics that are created later are read, too",
            )
        return topics

    def _first(self, consumer, spout: KafkaSpout, tp: TopicPartition, begin: int, end: int) -> int:
        """Return the offset at which to begin a partition that was never read."""
        strategy = spout.first_poll_strategy
        committed = consumer.committed(tp) if strategy.startswith("UNCOMMITTED") else None
        if committed is not None and not begin <= committed <= end:
            self.warnings.append(
                explain(
                    f"The offset that is committed for {tp.topic}/{tp.partition} is no longer there: the records between it and the first available one are not read.",
                    given=f"offset {committed}; the log has {begin} to {end}",
                    hint="the topic's retention is shorter than the topology was away, or the topic was made again",
                )
            )
            return begin
        return committed if committed is not None else end if strategy.endswith("LATEST") else begin

    def _first_starts(self) -> dict[Partition, int]:
        """Return the first offsets of external partitions, because LATEST must not mean a later offset after a restart."""
        expected = "rows [topic, partition, first offset]"
        return read_json(self._file, expected, lambda rows: {(str(t), int(p)): int(offset) for t, p, offset in rows}) or {}


def _check_offset(offset: int, begin: int, end: int, where: Partition, component: str, *, skip_lost: bool) -> int:
    """Return ``offset`` if the log has it, else, with ``skip_lost``, the beginning of the log."""
    if begin <= offset <= end:
        return offset
    if skip_lost:
        return begin
    topic, partition = where
    if offset < begin:
        raise DataLossError(topic, partition, offset, begin, f"the log begins at {begin}, most likely by the topic's retention", component)
    raise FatalError(
        f"Input of a KafkaSpout has changed: its next record is offset {offset} of {topic}/{partition}, but the log ends at {end}.",
        given="topology.emulator.on.data.loss: fail",
        legal="fail, skip",
        component=component,
        hint="the topic was deleted and created again, or a broker lost its end; set skip to begin with the first available record",
    )
