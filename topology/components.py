"""What users write: spouts and bolts, and the plain declarations of the Kafka spout and bolt.

Life of a task: its own copy of the component is made, then ``open``/``prepare`` once, then its calls one after
another on one thread, at last ``close``/``cleanup`` (guaranteed only in a local cluster). Nothing of a component runs
in two threads at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from dskype.topology.context import TopologyContext
from dskype.topology.errors import IllegalArgumentException, InvalidTopologyException, explain
from dskype.topology.fields import DEFAULT_STREAM_ID, Fields, as_fields
from dskype.topology.model import Component, OutputFieldsDeclarer, StormTopology, stateful
from dskype.topology.tuples import InRecord, Tuple, TupleBatch

__all__ = ["BaseBolt", "BasicBolt", "BatchBolt", "Bolt", "Component", "KafkaBolt", "KafkaSpout", "OutputFieldsDeclarer", "Spout", "stateful"]


class Spout(Component):
    """A source of tuples."""

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Get ready; called once before everything else. Keep ``collector``: all emits go through it."""

    @abstractmethod
    def next_tuple(self) -> None:
        """Emit zero or more tuples and return soon; never block. Called again and again while the topology is active."""

    def ack(self, msg_id: Any) -> None:
        """Take note that the tree of the tuple emitted with ``msg_id`` is complete; called once, on this task."""

    def fail(self, msg_id: Any) -> None:
        """Take note that the tree of ``msg_id`` failed or timed out. Emitting it again is up to this method."""

    def activate(self) -> None:
        """Hear of activation, before the first ``next_tuple`` and whenever the topology is activated again."""

    def deactivate(self) -> None:
        """Hear of deactivation: no ``next_tuple`` until ``activate``."""

    def close(self) -> None:
        """Free resources; guaranteed only in a local cluster."""


class BaseBolt(Component):
    """What the kinds of bolts have in common; users subclass one of the kinds."""

    def cleanup(self) -> None:
        """Free resources; guaranteed only in a local cluster."""

    def on_watermark(self, watermark: int) -> None:
        """Take note that no tuple older than ``watermark`` will come any more; called when it advances. Optional."""


class Bolt(BaseBolt):
    """A bolt that anchors and acks by itself: every input must be acked or failed, or it times out."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Get ready; called once before the first tuple. Keep ``collector``: all emits and acks go through it."""

    @abstractmethod
    def execute(self, tup: Tuple) -> None:
        """Process one tuple."""


class BasicBolt(BaseBolt):
    """A bolt whose emits are anchored to its input and whose input is acked when ``execute`` returns.

    Raising ``FailedException`` fails the input quietly, ``ReportedFailedException`` fails and reports it; any other
    exception takes the executor down.
    """

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Get ready; called once before the first tuple."""

    @abstractmethod
    def execute(self, tup: Tuple, collector: Any) -> None:
        """Process one tuple; emit through ``collector``."""


class BatchBolt(BaseBolt):
    """A bolt that gets whole frames as columns, for kernels over arrays. Emits with ``collector.emit_batch``.

    When ``execute_batch`` raises, the frame leaves no trace: its effects on the bolt's memory and what was emitted, sent and acked are taken back, and halves
    of the frame are tried until the tuples that cannot be processed are found; they alone become dead letters. A bolt without ``snapshot`` and
    ``restore`` loses its memory by that, as in Storm. Nothing can be taken back of what a bolt does by itself outside the topology.
    ``FailedException`` fails the trees of the whole frame instead, as it was.
    """

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Get ready; called once before the first batch."""

    @abstractmethod
    def execute_batch(self, batch: TupleBatch) -> None:
        """Process the tuples of one frame: one stream, one source task, in order."""

    def execute_tick(self, tup: Tuple) -> None:
        """Process a tick (``topology.tick.tuple.freq.secs``); default: ignore it."""


FirstPollStrategy = Literal["EARLIEST", "LATEST", "UNCOMMITTED_EARLIEST", "UNCOMMITTED_LATEST"]
ProcessingGuarantee = Literal["AT_LEAST_ONCE", "AT_MOST_ONCE", "NO_GUARANTEE"]
Translator = Callable[..., Sequence[tuple[str, Sequence[Any]]]]


def _one_of(what: str, value: str, kind: Any) -> str:
    if value not in get_args(kind):
        raise IllegalArgumentException(explain(f"{what} is not known.", given=value, legal=", ".join(get_args(kind))))
    return value


class KafkaSpout(Spout):
    """Reads Kafka topics; a plain declaration that the runtime realises with Spark's own Kafka source.

    Message id = (topic, partition, offset). Subclass and override :meth:`translate` and ``declare_output_fields``, or
    pass ``translator`` and ``outputs``.

    :param topics: topic name or names; exactly one of ``topics`` and ``pattern`` is given.
    :param pattern: regular expression over topic names (Java syntax).
    :param kafka_options: further options of the Kafka consumer, e.g. ``{"group.id": "readers"}``; default none. The topics
        must be on the brokers that carry the topology: other ``bootstrap.servers`` are refused at the start.
    :param first_poll_strategy: where to start: EARLIEST | LATEST (always), UNCOMMITTED_EARLIEST | UNCOMMITTED_LATEST
        (only where there is no committed position). Default UNCOMMITTED_EARLIEST.
    :param translator: a callable with the signature of :meth:`translate`; default: the whole record.
    :param outputs: the streams that ``translator`` emits: Fields (stream ``default``) or {stream: Fields}.
        Default ``topic, partition, offset, key, value``.
    :param processing_guarantee: AT_LEAST_ONCE (default) | AT_MOST_ONCE | NO_GUARANTEE.
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
    ) -> None:
        names = [topics] if isinstance(topics, str) else list(topics or ())
        if bool(names) == bool(pattern):
            raise IllegalArgumentException(explain("KafkaSpout needs exactly one of topics and pattern.", given={"topics": topics, "pattern": pattern}))
        self.topics: list[str] = names
        self.pattern = pattern
        self.kafka_options = dict(kafka_options or {})
        self.first_poll_strategy = _one_of("first_poll_strategy", first_poll_strategy, FirstPollStrategy)
        self.processing_guarantee = _one_of("processing_guarantee", processing_guarantee, ProcessingGuarantee)
        self.translator = translator
        if outputs is None:
            self.outputs = {DEFAULT_STREAM_ID: self.DEFAULT_FIELDS}
        elif isinstance(outputs, Mapping):
            self.outputs = {stream: as_fields(fields) for stream, fields in outputs.items()}
        else:
            self.outputs = {DEFAULT_STREAM_ID: as_fields(outputs)}

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare ``outputs``."""
        for stream, fields in self.outputs.items():
            declarer.declare_stream(stream, fields)

    def translate(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Sequence[tuple[str, bytes]]
    ) -> Sequence[tuple[str, Sequence[Any]]]:
        """Turn one record into tuples; must depend on its arguments alone, for records are read again after a crash.

        :returns: pairs (stream id, values); an empty list drops the record.
        :raises DeadLetter: the record cannot be used; it goes to the dead letters with the reason.
        """
        if self.translator is not None:
            return self.translator(topic, partition, offset, key, value, timestamp_ms, headers)
        return [(DEFAULT_STREAM_ID, (topic, partition, offset, key, value))]

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: StormTopology) -> None:
        """Refuse ackers where records are emitted untracked."""
        if type(self).emit_records is not KafkaSpout.emit_records and "__acker" in topology.components:
            raise InvalidTopologyException(
                explain(
                    "A spout that overrides emit_records emits untracked tuples and needs a topology without ackers.",
                    given=conf.get("topology.acker.executors"),
                    legal="topology.acker.executors: 0",
                    component=component_id,
                )
            )

    def emit_records(self, records: Sequence[InRecord]) -> Iterable[tuple[InRecord, str]]:
        """Emit the tuples of many records at once; optional, instead of :meth:`translate`.

        Overridden by spouts that emit columns, or keep state. Emits through the collector given to ``open``, untracked:
        only in a topology without ackers. What it raises must come before its first emit: the records are then given
        one by one, and the one that raises is a dead letter.

        :param records: of one partition, in order of their offsets: ``topic, partition, offset, timestamp_ms, key, value, headers``.
        :returns: the records that cannot be used, each with the reason; they go to the dead letters.
        """
        raise NotImplementedError

    def next_tuple(self) -> None:
        """Hear of a pulse, after its records; the runtime feeds the records. Default: nothing."""


def _as_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(explain("A Kafka key or value is bytes, str or None.", given=value, hint="convert it before, or override KafkaBolt.translate"))


class KafkaBolt(BaseBolt):
    """Writes its input tuples to a Kafka topic and acks them; a plain declaration that the runtime realises.

    :param topic: topic to write to; None when every tuple names it (``topic_field``).
    :param key_field: field of the record's key; default "key"; a tuple without the field has no key.
    :param value_field: field of the record's value; default "message", as in Storm.
    :param topic_field: field that names the topic of each tuple, over ``topic``; default none.
    :param kafka_options: default none. All components share the topology's producer: options of its own are refused at
        the start; give ``kafka.*`` settings to the cluster.
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
            raise IllegalArgumentException(explain("KafkaBolt needs a topic or a topic_field.", given=topic))
        self.topic = topic
        self.key_field = key_field
        self.value_field = value_field
        self.topic_field = topic_field
        self.kafka_options = dict(kafka_options or {})

    def external_topics(self, topology: str, conf: Mapping[str, Any]) -> Mapping[str, Mapping[str, str]]:
        """Return the topic, if it is fixed."""
        return {self.topic: {}} if self.topic else {}

    def translate(self, tup: Tuple) -> tuple[str, bytes | None, bytes | None, list[tuple[str, bytes]]] | None:
        """Turn one tuple into a record ``(topic, key, value, headers)``; None drops it."""
        topic: Any = tup[self.topic_field] if self.topic_field else self.topic
        key = tup[self.key_field] if tup.contains(self.key_field) else None
        return topic, _as_bytes(key), _as_bytes(tup[self.value_field]), []
