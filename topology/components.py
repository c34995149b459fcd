"""Base classes of spouts and bolts, and the Kafka spout and bolt.

Each task works on its own copy of the component. It calls ``open`` or ``prepare`` once, then the other methods one
after another on a single thread, and finally ``close`` or ``cleanup`` (guaranteed only in a local cluster).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from dskype.topology.context import TopologyContext
from dskype.topology.errors import DeadLetter, IllegalArgumentException, InvalidTopologyException, explain
from dskype.topology.fields import DEFAULT_STREAM_ID, Fields, as_fields
from dskype.topology.model import Component, OutputFieldsDeclarer, StormTopology, stateful
from dskype.topology.tuples import InRecord, Tuple, TupleBatch

__all__ = ["BaseBolt", "BasicBolt", "BatchBolt", "Bolt", "Component", "KafkaBolt", "KafkaSpout", "OutputFieldsDeclarer", "Spout", "WrappingBolt", "stateful"]


class Spout(Component):
    """A source of tuples."""

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Initialize the spout; called once before any other method. Keep ``collector``: all emits go through it."""

    @abstractmethod
    def next_tuple(self) -> None:
        """Emit zero or more tuples and return quickly; never block. Called repeatedly while the topology is active."""

    def ack(self, msg_id: Any) -> None:
        """Handle the completion of the tuple tree emitted with ``msg_id``; called once, on the task that emitted it."""

    def fail(self, msg_id: Any) -> None:
        """Handle the failure or timeout of the tree of ``msg_id``. It is up to this method to emit the tuple again."""

    def activate(self) -> None:
        """Handle activation; called before the first ``next_tuple`` and whenever the topology is activated again."""

    def deactivate(self) -> None:
        """Handle deactivation: ``next_tuple`` is not called until ``activate``."""

    def close(self) -> None:
        """Free resources; guaranteed only in a local cluster."""


class BaseBolt(Component):
    """Base of all kinds of bolts; users subclass one of the kinds."""

    def cleanup(self) -> None:
        """Free resources; guaranteed only in a local cluster."""

    def on_watermark(self, watermark: int) -> None:
        """Handle a new watermark: no tuple older than ``watermark`` will follow. Optional."""


class Bolt(BaseBolt):
    """A bolt that anchors and acks explicitly: an input that is neither acked nor failed times out."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Initialize the bolt; called once before the first tuple. Keep ``collector``: all emits and acks go through it."""

    @abstractmethod
    def execute(self, tup: Tuple) -> None:
        """Process one tuple."""


class WrappingBolt(Bolt):
    """Runs a bolt of the user as another kind of bolt, and declares what that bolt declares; base of those that ``set_bolt`` makes.

    :param bolt: the user's bolt.
    """

    def __init__(self, bolt: BaseBolt) -> None:
        self.bolt = bolt
        self.changeable_settings, self.default_settings = bolt.changeable_settings, bolt.default_settings
        self.settings_from_start = bolt.settings_from_start

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the streams of the user's bolt."""
        self.bolt.declare_output_fields(declarer)

    def get_component_configuration(self) -> Mapping[str, Any] | None:
        """Return the configuration of the user's bolt."""
        return self.bolt.get_component_configuration()

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: StormTopology) -> None:
        """Let the user's bolt check the topology."""
        self.bolt.check_topology(component_id, conf, topology)

    def external_topics(self, topology: str, conf: Mapping[str, Any]) -> Mapping[str, Mapping[str, str]]:
        """Return the external topics of the user's bolt."""
        return self.bolt.external_topics(topology, conf)

    def files(self, conf: Mapping[str, Any]) -> Mapping[tuple[str, ...], str]:
        """Return the files that tasks of the user's bolt read."""
        return self.bolt.files(conf)

    def cleanup(self) -> None:
        """Clean up the user's bolt."""
        self.bolt.cleanup()


class BasicBolt(BaseBolt):
    """A bolt whose emits are anchored to its input and whose input is acked when ``execute`` returns.

    Raising ``FailedException`` fails the input quietly, ``ReportedFailedException`` fails and reports it. Any other
    exception restarts the component.
    """

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Initialize the bolt; called once before the first tuple."""

    @abstractmethod
    def execute(self, tup: Tuple, collector: Any) -> None:
        """Process one tuple; emit through ``collector``."""


class BatchBolt(BaseBolt):
    """A bolt that gets the tuples of a segment as columns, for kernels over arrays. It emits with ``collector.emit_batch``.

    When ``execute_batch`` raises, the segment is rolled back: the bolt's state, and whatever was emitted, sent or acked,
    is as before. Then its halves are run, and halves of those, until the tuples that cause the exception are found.
    Only these become dead letters. Effects outside the topology cannot be rolled back, and a bolt without ``snapshot``
    and ``restore`` loses its state, as in Storm. ``FailedException`` is different: it fails the trees of all tuples in
    the segment and rolls nothing back.
    """

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Initialize the bolt; called once before the first batch."""

    @abstractmethod
    def execute_batch(self, batch: TupleBatch) -> None:
        """Process consecutive tuples of one stream from one source task, in order."""

    def execute_tick(self, tup: Tuple) -> None:
        """Process a tick (``topology.tick.tuple.freq.secs``); default: ignore it."""


FirstPollStrategy = Literal["EARLIEST", "LATEST", "UNCOMMITTED_EARLIEST", "UNCOMMITTED_LATEST"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
ProcessingGuarantee = Literal["AT_LEAST_ONCE", "AT_MOST_ONCE", "NO_GUARANTEE"]
Translator = Callable[..., Sequence[tuple[str, Sequence[Any]]]]


def _check_literal(name: str, value: str, kind: Any) -> str:
    if value not in get_args(kind):
        raise IllegalArgumentException(f"{name} is not known.", given=value, legal=", ".join(get_args(kind)))
    return value


class KafkaSpout(Spout):
    """Reads Kafka topics; the runtime does the reading: Spark's Kafka source, with either transport.

    The message id of a record is (topic, partition, offset). Subclass it and override :meth:`translate` and
    ``declare_output_fields``, or pass ``translator`` and ``outputs``.

    :param topics: topic name or names; give either ``topics`` or ``pattern``.
    :param pattern: regular expression over topic names (Java syntax).
    :param kafka_options: further options of the Kafka consumer, e.g. ``{"group.id": "readers"}``; default none. The topics
        must be on the brokers that carry the topology: other ``bootstrap.servers`` are refused at the start. With
        ``{"isolation.level": "read_committed"}`` records of aborted transactions are not emitted.
    :param first_poll_strategy: where to start: EARLIEST | LATEST (always), UNCOMMITTED_EARLIEST | UNCOMMITTED_LATEST
        (only where there is no committed position). Default UNCOMMITTED_EARLIEST.
    :param translator: a callable with the signature of :meth:`translate`; default: the whole record.
    :param outputs: the streams that ``translator`` emits: Fields (stream ``default``) or {stream: Fields}.
        Default ``topic, partition, offset, key, value``.
    :param processing_guarantee: AT_LEAST_ONCE (default) | AT_MOST_ONCE | NO_GUARANTEE.
    :param offset_commit_period_ms: time between two commits of the offsets that are settled; default 30,000, as in Storm.
    """

    DEFAULT_FIELDS = Fields("topic", "partition", "offset", "key", "value")

    def __init__(
        self,
        topics: str | Iterable[str] | None = None,
        pattern: str | None = None,
        kafka_options: Mapping[str, Any] | None = None,
        first_poll_strategy: str = "UNCOMMITTED_EARLIEST",
        translator: Translator | None = None,
        outputs: Fields | Mapping[str, Fields] | None = None,
        processing_guarantee: str = "AT_LEAST_ONCE",
        offset_commit_period_ms: int = 30_000,
    ) -> None:
        names = [topics] if isinstance(topics, str) else list(topics or ())
        if bool(names) == bool(pattern):
            raise IllegalArgumentException("KafkaSpout needs exactly one of topics and pattern.", given={"topics": topics, "pattern": pattern})
        self.topics: list[str] = names
        self.pattern = pattern
        self.kafka_options = dict(kafka_options or {})
        self.isolation_level = _check_literal("isolation.level", self.kafka_options.get("isolation.level", "read_uncommitted"), IsolationLevel)
        self.first_poll_strategy = _check_literal("first_poll_strategy", first_poll_strategy, FirstPollStrategy)
        self.processing_guarantee = _check_literal("processing_guarantee", processing_guarantee, ProcessingGuarantee)
        if type(offset_commit_period_ms) is not int or offset_commit_period_ms < 1:
            raise IllegalArgumentException("The time between two commits is wrong.", given=offset_commit_period_ms, legal="an integer from 1 on, in ms")
        self.offset_commit_period_ms = offset_commit_period_ms
        self.translator = translator
        if outputs is None:
            self.outputs = {DEFAULT_STREAM_ID: self.DEFAULT_FIELDS}
        elif isinstance(outputs, Mapping):
            self.outputs = {stream: as_fields(fields) for stream, fields in outputs.items()}
        else:
            self.outputs = {DEFAULT_STREAM_ID: as_fields(outputs)}

    def reads(self, topic: str) -> bool:
        """Tell whether the spout reads a topic, if it exists."""
        return topic in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare ``outputs``."""
        for stream, fields in self.outputs.items():
            declarer.declare_stream(stream, fields)

    def translate(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Sequence[tuple[str, bytes]]
    ) -> Sequence[tuple[str, Sequence[Any]]]:
        """Turn one record into tuples. The result must depend only on the arguments, because a crash repeats the call.

        :returns: pairs (stream id, values); an empty list drops the record.
        :raises DeadLetter: the record is unusable; it goes to the dead letters with reason and code.
        """
        if self.translator is not None:
            return self.translator(topic, partition, offset, key, value, timestamp_ms, headers)
        return [(DEFAULT_STREAM_ID, (topic, partition, offset, key, value))]

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: StormTopology) -> None:
        """Refuse a topology with ackers if the spout overrides :meth:`emit_records`, which emits untracked tuples."""
        if type(self).emit_records is not KafkaSpout.emit_records and "__acker" in topology.components:
            raise InvalidTopologyException(
                "A spout that overrides emit_records emits untracked tuples and needs a topology without ackers.",
                given=conf.get("topology.acker.executors"),
                legal="topology.acker.executors: 0",
                component=component_id,
            )

    def emit_records(self, records: Sequence[InRecord]) -> Iterable[tuple[InRecord, DeadLetter]]:
        """Emit the tuples of many records at once; optional, replaces :meth:`translate`.

        Override it in spouts that emit columns or keep state. It emits untracked tuples through the collector given to
        ``open``, so it needs a topology without ackers. It may raise only before its first emit. The records are then
        passed one by one, and each that raises becomes a dead letter. After an error that is ``retriable`` (:class:`~dskype.topology.errors.DskypeError`)
        the component's query is restarted instead, and the records come again.

        :param records: of one partition, in order of their offsets: ``topic, partition, offset, timestamp_ms, key, value, headers``.
        :returns: the unusable records, each with its reason; they go to the dead letters.
        """
        raise NotImplementedError

    def next_tuple(self) -> None:
        """Handle a pulse, after the runtime has emitted its records. Default: nothing."""


def _as_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(explain("A Kafka key or value is bytes, str or None.", given=value, hint="convert it before, or override KafkaBolt.translate"))


class KafkaBolt(BaseBolt):
    """Writes its input tuples to a Kafka topic and acks them; the runtime does the writing.

    :param topic: topic to write to; None when every tuple names it (``topic_field``).
    :param key_field: field of the record's key; default "key"; a tuple without the field has no key.
    :param value_field: field of the record's value; default "message", as in Storm.
    :param topic_field: field that names the topic of each tuple and takes precedence over ``topic``; default none.
    :param kafka_options: must be empty: all components share the topology's producer. Give ``kafka.*`` settings to
        the cluster instead.
    """

    def __init__(
        self,
        topic: str | None = None,
        key_field: str = "key",
        value_field: str = "message",
        topic_field: str | None = None,
        kafka_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not topic and not topic_field:
            raise IllegalArgumentException("KafkaBolt needs a topic or a topic_field.", given=topic)
        self.topic = topic
        self.key_field = key_field
        self.value_field = value_field
        self.topic_field = topic_field
        self.kafka_options = dict(kafka_options or {})

    def external_topics(self, topology: str, conf: Mapping[str, Any]) -> Mapping[str, Mapping[str, str]]:
        """Return the topic, unless each tuple names its own."""
        return {self.topic: {}} if self.topic else {}

    def translate(self, tup: Tuple) -> tuple[str, bytes | None, bytes | None, list[tuple[str, bytes]]] | None:
        """Turn one tuple into a record ``(topic, key, value, headers)``; None drops it."""
        topic: Any = tup[self.topic_field] if self.topic_field else self.topic
        key = tup[self.key_field] if tup.contains(self.key_field) else None
        return topic, _as_bytes(key), _as_bytes(tup[self.value_field]), []
