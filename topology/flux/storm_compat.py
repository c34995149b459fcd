"""Python replacements of the Java classes that Storm's own Flux files name.

Some stand for what is not there, such as HDFS. They can be created, so that a file passes a dry run, and have an
``emulator_refusal``: the reason why a topology with them is not run.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from dskype.topology.builder import TopologyBuilder
from dskype.topology.components import BasicBolt, Bolt, KafkaSpout
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.fields import Fields
from dskype.topology.hooks import WorkerHook
from dskype.topology.joins import JoinBolt, Selector
from dskype.topology.model import StormTopology
from dskype.topology.multilang import ShellSpout
from dskype.topology.testing import LogInfoBolt
from dskype.topology.tuples import Tuple
from dskype.topology.windows import Duration as WindowDuration

_Class = TypeVar("_Class")

__all__ = [
    "BaseWorkerHook",
    "Duration",
    "HdfsBolt",
    "HdfsPart",
    "KafkaRecord",
    "KafkaSpoutConfig",
    "KafkaSpoutConfigBuilder",
    "OnlyValueRecordTranslator",
    "SimpleTopology",
    "StormDuration",
    "StormJoinBolt",
    "StormKafkaSpout",
    "TestBolt",
    "TestClass",
    "TestEnum",
]


def _with_setters(attribute: str, **kinds: type) -> Callable[[type[_Class]], type[_Class]]:
    """Return a class decorator that adds setters, which store their value in a dict of the object and return the object.

    :param attribute: the attribute with the dict.
    :param kinds: method -> type of its value, for checking values from Flux files; the dict's key is the name without its verb.
    """

    def add_setters(cls: type[_Class]) -> type[_Class]:
        for method, kind in kinds.items():
            setattr(cls, method, _setter(attribute, method.partition("_")[2], kind))
        return cls

    return add_setters


def _setter(attribute: str, key: str, kind: type) -> Callable[[Any, Any], Any]:
    def set_value(self: Any, value: Any) -> Any:
        getattr(self, attribute)[key] = value
        return self

    set_value.__annotations__ = {"value": kind}
    return set_value


# --- hooks -----------------------------------------------------------------------------------------------------------


class BaseWorkerHook(WorkerHook):
    """A worker hook that does nothing."""


# --- flux.test --------------------------------------------------------------------------------------------------------


class TestEnum(enum.Enum):
    """Storm's ``TestBolt$TestEnum``."""

    __test__ = False
    FOO = "FOO"
    BAR = "BAR"


@dataclass(frozen=True)
class TestClass:
    """Storm's ``TestBolt$TestClass``: holds one string."""

    __test__ = False
    field: str


class TestBolt(BasicBolt):
    """A bolt that has every kind of argument, property and method, and does nothing."""

    __test__ = False

    def __init__(self, te: TestEnum | int, f: float | None = None, b: bool | None = None, *classes: TestClass | None) -> None:
        self.te, self.f, self.b = te, f, b
        self.foo: str | None = None
        self.bar: str | None = None
        self.foo_bar: str | None = None
        self.none: str | None = None
        self.classes: tuple[TestClass | None, ...] = classes
        self.time_len: Duration | None = None

    @staticmethod
    def new_instance(te: TestEnum = TestEnum.FOO) -> TestBolt:
        """Make a bolt."""
        return TestBolt(te)

    @staticmethod
    def new_long_instance(n: int) -> TestBolt:
        """Make a bolt."""
        return TestBolt(n)

    def with_foo(self, foo: str) -> None:
        """Set foo."""
        self.foo = foo

    def with_none(self) -> None:
        """Record the call."""
        self.none = "hit"

    def with_bar(self, bar: str) -> None:
        """Set bar."""
        self.bar = bar

    def with_foo_bar(self, foo: str, bar: str) -> None:
        """Set foo_bar to both."""
        self.foo_bar = foo + bar

    def with_classes(self, *classes: TestClass | None) -> None:
        """Set the classes."""
        self.classes = classes

    def set_time_len(self, length: Duration) -> None:
        """Set a length of time."""
        self.time_len = length

    def set_time_len_arr(self, lengths: list[Duration]) -> None:
        """Accept several lengths of time."""

    def with_duration(self, length: Duration) -> None:
        """Set a length of time."""
        self.time_len = length

    def with_duration_arr(self, lengths: list[Duration]) -> None:
        """Accept several lengths of time."""

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Do nothing."""


class SimpleTopology:
    """Builds a topology of a shell spout and a log, like the classes of that name in Storm's tests, which use neither argument."""

    def __init__(self, foo: str | None = None, bar: str | None = None) -> None:
        self.foo, self.bar = foo, bar

    def get_topology(self, conf: Mapping[str, Any]) -> StormTopology:
        """Return the topology."""
        builder = TopologyBuilder()
        builder.set_spout("sentence-spout", ShellSpout(["node", "randomsentence.js"], ["word"]), 1)
        builder.set_bolt("log-bolt", LogInfoBolt(), 1).shuffle_grouping("sentence-spout")
        return builder.create_topology()

    get_topology_with_different_method_name = get_topology


# --- java.time --------------------------------------------------------------------------------------------------------


def _duration_factory(millis: int) -> Any:
    """Return a factory of durations in units of ``millis``."""

    def make(n: int) -> Duration:
        return Duration(n * millis)

    return staticmethod(make)


@dataclass(frozen=True)
class Duration:
    """``java.time.Duration``, made by its factories."""

    millis: int = 0

    of_millis, of_seconds, of_minutes, of_hours, of_days = map(_duration_factory, (1, 1000, 60_000, 3_600_000, 86_400_000))

    def to_millis(self) -> int:
        """Return the length in milliseconds."""
        return self.millis


# --- storm-kafka-client -----------------------------------------------------------------------------------------------


class KafkaRecord(NamedTuple):
    """The input of a record translator: Kafka's ``ConsumerRecord`` with key and value deserialized."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Sequence[tuple[str, bytes]]


def _unpack(layout: str) -> Callable[[bytes], Any]:
    return lambda data: struct.unpack(layout, data)[0]


_DESERIALIZERS: dict[str, Callable[[bytes], Any]] = {
    "StringDeserializer": lambda data: data.decode(errors="replace"),  # as in Java
    "ByteArrayDeserializer": bytes,
    "IntegerDeserializer": _unpack(">i"),
    "LongDeserializer": _unpack(">q"),
    "DoubleDeserializer": _unpack(">d"),
    "FloatDeserializer": _unpack(">f"),
    "ShortDeserializer": _unpack(">h"),
}


class OnlyValueRecordTranslator:
    """Turns a record into its value, field ``value``."""

    def apply(self, record: KafkaRecord) -> list[Any]:
        """Return the values of the tuple; None drops the record."""
        return [record.value]

    def get_fields_for(self, stream: str) -> Fields:
        """Return the fields of a stream."""
        return Fields("value")

    def streams(self) -> list[str]:
        """Return the streams of the tuples."""
        return ["default"]


@_with_setters(
    "ignored",
    set_max_uncommitted_offsets=int,  # topology.max.spout.pending and back-pressure limit unfinished tuples
    set_poll_timeout_ms=int,  # Spark polls
    set_partition_refresh_period_ms=int,  # Spark watches the partitions
    set_emit_null_tuples=bool,  # a record without a tuple is settled at once
    set_metrics_time_bucket_size_in_secs=int,
)
class KafkaSpoutConfigBuilder:
    """Collects the settings of a Kafka spout, with the setters of Storm's ``KafkaSpoutConfig.Builder``.

    :param bootstrap_servers: ``host:port`` list.
    :param topics: topic names.
    """

    def __init__(self, bootstrap_servers: str, *topics: str) -> None:
        self.topics = list(topics)
        self.props: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
        self.first_poll_offset_strategy = "UNCOMMITTED_EARLIEST"
        self.processing_guarantee = "AT_LEAST_ONCE"
        self.offset_commit_period_ms = 30_000
        self.translator: Any = None
        self.ignored: dict[str, Any] = {}

    def set_prop(self, key: str | dict[str, Any], value: Any = None) -> KafkaSpoutConfigBuilder:
        """Set one property of the Kafka client, or all of a map."""
        self.props.update(key if isinstance(key, dict) else {key: value})
        return self

    def set_group_id(self, group_id: str) -> KafkaSpoutConfigBuilder:
        """Set ``group.id``."""
        return self.set_prop("group.id", group_id)

    def set_first_poll_offset_strategy(self, strategy: str) -> KafkaSpoutConfigBuilder:
        """Set where to start: EARLIEST, LATEST, UNCOMMITTED_EARLIEST or UNCOMMITTED_LATEST."""
        self.first_poll_offset_strategy = strategy
        return self

    def set_processing_guarantee(self, guarantee: str) -> KafkaSpoutConfigBuilder:
        """Set AT_LEAST_ONCE, AT_MOST_ONCE or NO_GUARANTEE."""
        self.processing_guarantee = guarantee
        return self

    def set_offset_commit_period_ms(self, period_ms: int) -> KafkaSpoutConfigBuilder:
        """Set the time between two commits."""
        self.offset_commit_period_ms = period_ms
        return self

    def set_record_translator(self, translator: Any) -> KafkaSpoutConfigBuilder:
        """Set the object that turns records into tuples: ``apply(record)``, ``get_fields_for(stream)``, ``streams()``."""
        missing = [m for m in ("apply", "get_fields_for", "streams") if not callable(getattr(translator, m, None))]
        if missing:
            raise IllegalArgumentException(
                "Not a record translator.", given=translator, legal="an object with apply, get_fields_for and streams", hint=f"it has no {', '.join(missing)}"
            )
        self.translator = translator
        return self

    def build(self) -> KafkaSpoutConfig:
        """Return the configuration."""
        return KafkaSpoutConfig(self)


class KafkaSpoutConfig:
    """The finished configuration.

    :param builder: its builder.
    """

    def __init__(self, builder: KafkaSpoutConfigBuilder) -> None:
        self.builder = builder


class StormKafkaSpout(KafkaSpout):
    """Storm's Kafka spout: this project's, with the deserializers and the record translator of a ``KafkaSpoutConfig``.

    Keys and values are strings unless ``key.deserializer`` or ``value.deserializer`` say otherwise.

    :param config: the configuration.
    """

    def __init__(self, config: KafkaSpoutConfig) -> None:
        builder = config.builder
        options = dict(builder.props)
        self._names = [str(options.pop(f"{part}.deserializer", "StringDeserializer")).rsplit(".", 1)[-1] for part in ("key", "value")]
        for name in self._names:
            if name not in _DESERIALIZERS:
                raise IllegalArgumentException("The deserializer is not known.", given=name, legal=", ".join(_DESERIALIZERS))
        self._translator = builder.translator
        outputs = None
        if self._translator is not None:
            outputs = {stream: self._translator.get_fields_for(stream) for stream in self._translator.streams()}
        super().__init__(
            builder.topics,
            kafka_options=options,
            first_poll_strategy=builder.first_poll_offset_strategy,
            outputs=outputs,
            processing_guarantee=builder.processing_guarantee,
            offset_commit_period_ms=builder.offset_commit_period_ms,
        )

    def translate(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Sequence[tuple[str, bytes]]
    ) -> Sequence[tuple[str, Sequence[Any]]]:
        """Deserialize, then translate. Values with an attribute ``stream``, as Storm's ``KafkaTuple`` has one, go to that stream."""
        key, value = (None if data is None else _DESERIALIZERS[name](data) for name, data in zip(self._names, (key, value), strict=True))
        if self._translator is None:
            return [("default", (topic, partition, offset, key, value))]
        values = self._translator.apply(KafkaRecord(topic, partition, offset, timestamp_ms, key, value, headers))
        return [] if values is None else [(getattr(values, "stream", None) or "default", list(values))]


# --- storm-hdfs -------------------------------------------------------------------------------------------------------


@_with_setters(
    "settings", with_path=str, with_prefix=str, with_extension=str, with_field_delimiter=str, with_record_delimiter=str, with_fields=Fields, to_destination=str
)
class HdfsPart:
    """A policy or format of the HDFS bolt: keeps its arguments, does nothing.

    Accepts the methods of Storm's classes of that family.
    """

    def __init__(self, *args: Any) -> None:
        self.args = args
        self.settings: dict[str, Any] = {}


@_with_setters(
    "settings",
    with_config_key=str,
    with_fs_url=str,
    with_file_name_format=HdfsPart,
    with_record_format=HdfsPart,
    with_sync_policy=HdfsPart,
    with_rotation_policy=HdfsPart,
    add_rotation_action=HdfsPart,
)
class HdfsBolt(Bolt):
    """Storm's HDFS bolt: can be configured, is not run."""

    emulator_refusal: ClassVar[str] = "there is no HDFS here; write the results to Kafka (dskype.KafkaBolt)"

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}

    def execute(self, tup: Tuple) -> None:
        """Refuse."""
        raise NotImplementedError(self.emulator_refusal)


# --- windows and joins ------------------------------------------------------------------------------------------------


class TimeUnit(enum.Enum):
    """Java's units of time, in milliseconds."""

    MILLISECONDS = 1
    SECONDS = 1000
    MINUTES = 60_000
    HOURS = 3_600_000
    DAYS = 86_400_000


class StormDuration(WindowDuration):
    """A duration with the arguments of Storm's ``BaseWindowedBolt.Duration``."""

    def __init__(self, value: int, unit: TimeUnit) -> None:
        super().__init__(value * unit.value)


class StormJoinBolt(JoinBolt):
    """A join with the arguments of Storm's: ``(source, field)`` or ``(selector, source, field)``."""

    def __init__(self, first: str, second: str, third: str | None = None) -> None:
        if third is None:
            super().__init__(first, second)
        elif first not in Selector.__members__:
            raise IllegalArgumentException("Not a selector.", given=first, legal=", ".join(Selector.__members__))
        else:
            super().__init__(second, third, Selector[first])
