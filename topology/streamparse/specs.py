"""Specs of components, as streamparse has them: streams, groupings, parallelism, inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from dskype.topology.fields import DEFAULT_STREAM_ID, Fields
from dskype.topology.groupings import (
    AllGrouping,
    CustomGrouping,
    CustomStreamGrouping,
    DirectGrouping,
    FieldsGrouping,
    GlobalGrouping,
    LocalOrShuffleGrouping,
    NoneGrouping,
    ShuffleGrouping,
)
from dskype.topology.model import Grouping as EmulatorGrouping

__all__ = ["ComponentSpec", "Grouping", "Stream", "StreamOf"]


class Stream:
    """A stream that a component declares.

    :param fields: its fields; None: it has none.
    :param name: its name.
    :param direct: whether the sender chooses the task of each tuple.
    :raises TypeError: a value of the wrong type.
    """

    def __init__(self, fields: Sequence[str] | None = None, name: str = DEFAULT_STREAM_ID, direct: bool = False) -> None:
        fields = () if fields is None else fields
        if not isinstance(fields, (list, tuple)) or not all(isinstance(field, str) for field in fields):
            msg = f"Stream fields must be a list, tuple or None of strings, given: {fields!r}"
            raise TypeError(msg)
        if not isinstance(name, str):
            msg = f"Stream name must be a string, given: {name!r}"
            raise TypeError(msg)
        if not isinstance(direct, bool):
            msg = f'"direct" must be either True or False, given: {direct!r}'
            raise TypeError(msg)
        self.fields, self.name, self.direct = list(fields), name, direct


class Grouping:
    """The ways to divide a stream among the tasks of a bolt."""

    SHUFFLE: ClassVar[EmulatorGrouping] = ShuffleGrouping()
    GLOBAL: ClassVar[EmulatorGrouping] = GlobalGrouping()
    DIRECT: ClassVar[EmulatorGrouping] = DirectGrouping()
    ALL: ClassVar[EmulatorGrouping] = AllGrouping()
    NONE: ClassVar[EmulatorGrouping] = NoneGrouping()
    LOCAL_OR_SHUFFLE: ClassVar[EmulatorGrouping] = LocalOrShuffleGrouping()

    @classmethod
    def fields(cls, *fields: Any) -> EmulatorGrouping:
        """Group by fields, given one by one or as a list.

        :raises ValueError: there is none.
        """
        names = list(fields[0]) if len(fields) == 1 and isinstance(fields[0], (list, tuple)) else list(fields)
        if not names:
            msg = "List cannot be empty for fields grouping"
            raise ValueError(msg)
        return FieldsGrouping(Fields(names))

    @classmethod
    def custom_object(cls, grouping: Any, arg_list: Any = None) -> EmulatorGrouping:
        """Group by an object with ``prepare`` and ``choose_tasks``.

        :param grouping: the object; the name of a Java class is refused.
        :raises TypeError: it is not such an object.
        """
        if not isinstance(grouping, CustomStreamGrouping):
            msg = f"Java is not part of the emulator: write the grouping in Python, as a CustomStreamGrouping. Given: {grouping!r}"
            raise TypeError(msg)
        return CustomGrouping(grouping)

    custom_serialized = custom_object


class StreamOf(NamedTuple):
    """A stream of a component: ``spec["stream"]``."""

    spec: ComponentSpec
    stream: str


class ComponentSpec:
    """A component of a topology; made by ``spec`` of its class.

    :param kind: the class.
    :param name: its id; default: the attribute's name in the topology's class.
    :param inputs: {spec or ``spec["stream"]``: grouping}, or a list of them.
    :param par: executors, or {environment: executors}; default: the class's.
    :param config: its configuration; default: the class's.
    :raises TypeError, ValueError: a value that cannot be used.
    """

    def __init__(self, kind: Any, *, name: str | None = None, inputs: Any = None, par: Any = None, config: Mapping[str, Any] | None = None) -> None:
        self.kind, self.name = kind, name
        self.outputs = _streams(kind.outputs)
        self.par = _parallelism(kind.par if par is None else par)
        config = kind.config if config is None else config
        if config is not None and not isinstance(config, Mapping):
            msg = f"Component config must be a dict, given: {config!r}"
            raise TypeError(msg)
        self.config = dict(config or {})
        self.inputs = _inputs(inputs)

    @property
    def is_spout(self) -> bool:
        """True for a spout."""
        return bool(self.kind.storm_kind == "spout")

    def __getitem__(self, stream: str) -> StreamOf:
        """Return one of its streams.

        :raises KeyError: it has no such stream.
        """
        if stream not in self.outputs:
            msg = f"Invalid stream for {self.name or self.kind.__name__}: {stream!r}. Valid streams are: {list(self.outputs)}"
            raise KeyError(msg)
        return StreamOf(self, stream)

    def executors(self, environment: str | None) -> int:
        """Return its number of executors.

        :raises ValueError: it depends on the environment, and there is no number for this one.
        """
        if not isinstance(self.par, dict):
            return self.par
        if environment is None and len(self.par) == 1:
            return next(iter(self.par.values()))
        if environment not in self.par:
            msg = f"The parallelism of {self.name} depends on the environment, given: {environment!r}; legal: {', '.join(self.par)}"
            raise ValueError(msg)
        return self.par[environment]

    def __repr__(self) -> str:
        return f"ComponentSpec({self.kind.__name__}, name={self.name!r})"


def _streams(outputs: Any) -> dict[str, Stream]:
    if outputs is None:
        return {}
    if not isinstance(outputs, (list, tuple)):
        msg = f"Component outputs must be a list of strings or Streams, given: {outputs!r}"
        raise TypeError(msg)
    if all(isinstance(item, str) for item in outputs):
        return {DEFAULT_STREAM_ID: Stream(list(outputs))} if outputs else {}
    for item in outputs:
        if not isinstance(item, Stream):
            msg = f"Outputs must either be a list of strings or a list of Streams. Invalid entry: {item!r}"
            raise TypeError(msg)
    names = [stream.name for stream in outputs]
    if len(set(names)) < len(names):
        msg = f"Streams of a component must have different names, given: {names!r}"
        raise ValueError(msg)
    return dict(zip(names, outputs))


def _parallelism(par: Any) -> Any:
    for value in par.values() if isinstance(par, dict) else (par,):
        if isinstance(value, bool) or not isinstance(value, int):
            msg = f"Parallelism hint must be an integer greater than 0, given: {par!r}"
            raise TypeError(msg)
        if value < 1:
            msg = f"Parallelism hint must be an integer greater than 0, given: {par!r}"
            raise ValueError(msg)
    return par


def _inputs(inputs: Any) -> dict[StreamOf, EmulatorGrouping]:
    if inputs is None:
        return {}
    if isinstance(inputs, (ComponentSpec, StreamOf)):
        inputs = [inputs]
    if not isinstance(inputs, (list, dict)):
        msg = f"Inputs must either be a list, dict or None, given: {inputs!r}"
        raise TypeError(msg)
    found: dict[StreamOf, EmulatorGrouping] = {}
    for item in inputs:
        if not isinstance(item, (ComponentSpec, StreamOf)):
            msg = f"Inputs must be specs of components, or streams of them, given: {item!r}"
            raise TypeError(msg)
        stream = StreamOf(item, DEFAULT_STREAM_ID) if isinstance(item, ComponentSpec) else item
        if isinstance(inputs, dict):
            grouping = inputs[item]
            if not isinstance(grouping, EmulatorGrouping):
                msg = f"Input values must be groupings, given: {grouping!r}"
                raise TypeError(msg)
        else:
            declared = stream.spec.outputs.get(stream.stream)
            grouping = Grouping.DIRECT if declared is not None and declared.direct else Grouping.SHUFFLE
        found[stream] = grouping
    return found
