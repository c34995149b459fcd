"""The parts of a topology: components, the streams between them and their groupings.

These are the base classes of :mod:`~dskype.topology.components`, :mod:`~dskype.topology.groupings` and the builder, and
import none of them.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from dskype.topology.errors import IllegalArgumentException
from dskype.topology.fields import DEFAULT_STREAM_ID, Fields, GlobalStreamId, StreamInfo, as_fields

__all__ = ["Component", "ComponentSpec", "Grouping", "OutputFieldsDeclarer", "StormTopology", "is_system_id", "stateful"]


def is_system_id(name: str) -> bool:
    """Tell whether a component or stream id is reserved for the system, that is, starts with ``__``."""
    return name.startswith("__")


class OutputFieldsDeclarer:
    """Collects the streams that a component declares; passed to ``declare_output_fields``."""

    def __init__(self) -> None:
        self.streams: dict[str, StreamInfo] = {}

    def declare(self, fields: Fields | str | Iterable[str], direct: bool = False) -> None:
        """Declare the stream ``default``.

        :raises IllegalArgumentException: the stream is already declared.
        """
        self.declare_stream(DEFAULT_STREAM_ID, fields, direct)

    def declare_stream(self, stream_id: str, fields: Fields | str | Iterable[str], direct: bool = False, later: int = 0) -> None:
        """Declare a stream by its id.

        :param stream_id: the id; ids that start with ``__`` are reserved and refused at submission.
        :param fields: its fields, in the order of the values of an emit.
        :param direct: the stream is meant for ``emit_direct``; default False.
        :param later: how many of the last fields an earlier version of the component did not send. Its frames may still wait in inboxes when a
            topology is resumed; their tuples have None in these fields. Default 0.
        :raises IllegalArgumentException: no stream id, declared twice (``Fields for S already set``), bad fields.
        """
        if not isinstance(stream_id, str):
            raise IllegalArgumentException("streamId can't be null", given=stream_id, legal="a string")
        if stream_id in self.streams:
            raise IllegalArgumentException(f"Fields for {stream_id} already set", given=list(as_fields(fields)))
        self.streams[stream_id] = StreamInfo(as_fields(fields), bool(direct), later)

    def declare_direct(self, fields: Fields | str | Iterable[str], stream_id: str = DEFAULT_STREAM_ID) -> None:
        """Declare a direct stream; short for ``declare_stream(stream_id, fields, direct=True)``."""
        self.declare_stream(stream_id, fields, True)


class Component(ABC):
    """Base of spouts and bolts.

    The state of a component that overrides both ``snapshot`` and ``restore`` survives a crash. Other components lose
    theirs, as in Storm.

    :cvar changeable_settings: configuration keys that may change between a stop and a resume, because the state does not depend on them.
    :cvar settings_from_start: those of them that must have been set when the topology was first started, because its state counts what they are about.
    :cvar default_settings: what configuration keys are when they are not set. A resume takes a key that is not set for its default, so that a
        configuration may name a setting that an earlier version did not have.
    """

    changeable_settings: frozenset[str] = frozenset()
    settings_from_start: frozenset[str] = frozenset()
    default_settings: Mapping[str, Any] = {}

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the streams that this component emits; called once by ``create_topology``. Default: none."""

    def get_component_configuration(self) -> Mapping[str, Any] | None:
        """Return this component's own configuration, which overrides the topology's; default None."""
        return None

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: StormTopology) -> None:
        """Refuse a topology in which this component cannot work; called at submission. Default: accept every topology.

        :param component_id: this component's id.
        :param conf: the topology's configuration with defaults.
        :param topology: all components, ackers included.
        :raises InvalidTopologyException: with the reason.
        """

    def external_topics(self, topology: str, conf: Mapping[str, Any]) -> Mapping[str, Mapping[str, str]]:
        """Return the Kafka topics outside the topology that this component needs: name -> topic configuration.

        Missing topics are created before the topology starts, with one partition, and outlive it. Default: none.

        :param topology: the topology's name.
        :param conf: the component's configuration.
        """
        return {}

    def files(self, conf: Mapping[str, Any]) -> Mapping[tuple[str, ...], str]:
        """Return the files that tasks of this component read: the place in ``conf`` that names each file, and its path. Default: none.

        On Spark, the first start copies them into the topology's folder, and from then on ``conf`` names the copies. So tasks read the same
        content after every restart, whatever happens to the files.

        :param conf: the component's configuration.
        :returns: for instance ``{("words.file",): "/data/words.tsv", ("reader.options", "stop", "file"): "stop.txt"}``: a key of ``conf``,
            followed by keys of nested maps.
        """
        return {}

    def snapshot(self) -> Any:
        """Return the state of this task, for ``restore``, possibly in another process.

        Called between two calls of the task, in a forked copy of its process. The state may consist of dict, list, tuple,
        set, str, bytes, int, float, bool, None and numpy arrays, with tuples and sets nested at most 32 deep. If it
        cannot be written, the task reports why and continues without a snapshot.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no state")

    def restore(self, state: Any) -> None:
        """Restore ``state``; called after ``open``/``prepare`` and before the first tuple, if there is a snapshot."""
        raise NotImplementedError(f"{type(self).__name__} keeps no state")


def stateful(component: Component) -> bool:
    """Tell whether ``component`` keeps state: its class overrides both ``snapshot`` and ``restore``."""
    cls = type(component)
    return getattr(cls, "snapshot", None) not in (None, Component.snapshot) and getattr(cls, "restore", None) not in (None, Component.restore)


@dataclass(frozen=True)
class Grouping:
    """How a stream's tuples are divided among a bolt's tasks; base of the specs in ``groupings``."""

    kind: ClassVar[str] = ""
    """Name of the grouping, e.g. ``local_or_shuffle``."""

    def __str__(self) -> str:
        return self.kind


@dataclass
class ComponentSpec:
    """One component of a topology.

    :param id: its id, unique among spouts and bolts.
    :param kind: ``spout`` or ``bolt``.
    :param obj: the component; every task works on a copy of its own.
    :param parallelism_hint: initial executors; None means 1.
    :param conf: the component's own configuration.
    :param outputs: stream id -> fields and direct flag.
    :param inputs: (source component, source stream) -> grouping.
    """

    id: str
    kind: Literal["spout", "bolt"]
    obj: Component
    parallelism_hint: int | None = None
    conf: dict[str, Any] = field(default_factory=dict, repr=False)
    outputs: dict[str, StreamInfo] = field(default_factory=dict)
    inputs: dict[GlobalStreamId, Grouping] = field(default_factory=dict)

    @property
    def is_spout(self) -> bool:
        """True for a spout."""
        return self.kind == "spout"


@dataclass
class StormTopology:
    """A topology; made by :class:`TopologyBuilder`.

    :param components: component id -> spec, in the order they were declared.
    :param worker_hooks: hooks that run in the process of each executor.
    """

    components: dict[str, ComponentSpec]
    worker_hooks: list[Any] = field(default_factory=list)

    @property
    def spouts(self) -> dict[str, ComponentSpec]:
        """The spouts alone."""
        return {c.id: c for c in self.components.values() if c.kind == "spout"}

    @property
    def bolts(self) -> dict[str, ComponentSpec]:
        """The bolts alone, system bolts included."""
        return {c.id: c for c in self.components.values() if c.kind == "bolt"}

    def consumers(self, component_id: str, stream_id: str = DEFAULT_STREAM_ID) -> dict[str, Grouping]:
        """Return the subscribers of a stream, sorted by id: {component id: grouping}."""
        key = GlobalStreamId(component_id, stream_id)
        return {c: self.components[c].inputs[key] for c in sorted(self.components) if key in self.components[c].inputs}
