"""Topologies of streamparse: a class whose attributes are the specs of its components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

from dskype.topology.builder import TopologyBuilder
from dskype.topology.fields import Fields
from dskype.topology.model import StormTopology
from dskype.topology.streamparse.components import Component, adapted
from dskype.topology.streamparse.specs import ComponentSpec

__all__ = ["JavaBolt", "JavaSpout", "ShellBolt", "ShellSpout", "Topology"]


class _Elsewhere(Component):
    """Base of components that are not run here."""

    _reason: ClassVar[str]

    @classmethod
    def spec(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse.

        :raises TypeError: always; it names the reason.
        """
        msg = f"{cls.__name__} is not part of the emulator: {cls._reason}"
        raise TypeError(msg)


class JavaBolt(_Elsewhere):
    """A bolt in Java, which is refused."""

    _reason = "write the component in Python"


class JavaSpout(JavaBolt):
    """A spout in Java, which is refused."""


class _Shell(Component):
    """Base of components that are other processes (the multi-language protocol)."""

    @classmethod
    def spec(  # type: ignore[override]
        cls,
        name: str | None = None,
        command: str | None = None,
        script: str | None = None,
        inputs: Any = None,
        par: Any = None,
        config: Mapping[str, Any] | None = None,
        outputs: Any = None,
    ) -> ComponentSpec:
        """Return the spec of a component in another language.

        :param command: the program, e.g. ``node``.
        :param script: its argument, a file in the folder ``resources``, or in the working folder if there is none.
        :param outputs: its streams.
        :raises TypeError, ValueError: a value that cannot be used.
        """
        if not isinstance(command, str) or not command:
            msg = f"command must be the name of a program, given: {command!r}"
            raise ValueError(msg)
        kind = type(cls.__name__, (cls,), {"outputs": outputs, "command": [command, *([script] if script else [])]})
        return ComponentSpec(kind, name=name, inputs=inputs, par=par, config=config)


class ShellBolt(_Shell):
    """A bolt in another language."""

    storm_kind = "bolt"


class ShellSpout(_Shell):
    """A spout in another language."""

    storm_kind = "spout"


class TopologyType(type):
    """Reads the specs in the body of a topology's class, and checks them."""

    specs: dict[str, ComponentSpec]
    """Component id -> spec, in the order of the class."""

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> TopologyType:
        """Make the class.

        :raises TypeError, ValueError: the topology cannot be used.
        """
        specs: dict[str, ComponentSpec] = {}
        for attribute, value in body.items():
            if isinstance(value, type) and issubclass(value, Component):
                msg = f"Topology classes may only contain specs: {attribute} = {value.__name__} should be {value.__name__}.spec(...)"
                raise TypeError(msg)
            if isinstance(value, ComponentSpec):
                value.name = value.name or attribute
                if value.name in specs:
                    msg = f"Duplicate component name: {value.name}"
                    raise ValueError(msg)
                specs[value.name] = value
        if body.get("config") is not None and not isinstance(body["config"], Mapping):
            msg = f"Topology config must be a dict, given: {body['config']!r}"
            raise TypeError(msg)
        made = super().__new__(mcs, name, bases, body)
        made.specs = specs
        if bases:
            _check(specs)
        return made


def _check(specs: Mapping[str, ComponentSpec]) -> None:
    if not any(spec.is_spout for spec in specs.values()):
        msg = "A Topology requires at least one Spout"
        raise ValueError(msg)
    for spec in specs.values():
        if spec.is_spout:
            if not spec.outputs:
                msg = f"Spout {spec.name} requires at least one output, because it would do nothing otherwise"
                raise ValueError(msg)
            continue
        if spec.kind.storm_kind != "bolt":
            msg = f"{spec.name} is neither a Spout nor a Bolt: {spec.kind.__name__}"
            raise TypeError(msg)
        if not spec.inputs:
            msg = f"Bolt {spec.name} requires at least one input, because it would do nothing otherwise"
            raise ValueError(msg)
        for (source, stream), grouping in spec.inputs.items():
            if source not in specs.values():
                msg = f"{source!r} is an input of {spec.name}, and not part of the topology"
                raise ValueError(msg)
            if stream not in source.outputs:
                msg = f"{spec.name} reads stream {stream!r} of {source.name}, which has the streams {list(source.outputs)}"
                raise ValueError(msg)
            missing = [f for f in getattr(grouping, "fields", ()) if f not in source.outputs[stream].fields]
            if missing:
                msg = f"Field {missing[0]!r} specified in grouping is not in stream {stream!r} of {source.name}: {source.outputs[stream].fields}"
                raise ValueError(msg)


class Topology(metaclass=TopologyType):
    """A topology; subclasses have its specs as attributes, and may have a ``config``.

    >>> from dskype.topology.streamparse import Bolt, Grouping, Spout
    >>> class Words(Spout):
    ...     outputs = ["word"]
    >>> class Count(Bolt):
    ...     outputs = ["word", "count"]
    >>> class WordCount(Topology):
    ...     words = Words.spec()
    ...     count = Count.spec(inputs={words: Grouping.fields("word")}, par=2)
    >>> sorted(WordCount.build().components)
    ['count', 'words']
    """

    config: ClassVar[Mapping[str, Any] | None] = None

    @classmethod
    def build(cls, environment: str | None = None) -> StormTopology:
        """Return the topology, to be submitted with :attr:`config`.

        :param environment: chooses the parallelism of components where it depends on the environment.
        :raises ValueError: the parallelism depends on the environment, and there is none for this one.
        """
        builder = TopologyBuilder()
        for name, spec in cls.specs.items():
            component: Any = adapted(spec.kind, {s.name: (Fields(s.fields), s.direct) for s in spec.outputs.values()})
            declarer: Any
            if spec.is_spout:
                declarer = builder.set_spout(name, component, spec.executors(environment))
            else:
                declarer = builder.set_bolt(name, component, spec.executors(environment))
                for (source, stream), grouping in spec.inputs.items():
                    declarer.grouping(source.name, grouping, stream)
            declarer.add_configurations(spec.config)
        return builder.create_topology()

    def get_topology(self, conf: Mapping[str, Any]) -> StormTopology:
        """Return the topology, for a Flux file whose ``topologySource`` names the class."""
        return self.build()
