"""The content of a Flux file, checked key by key; ``loader`` builds the topology from it.

The names are Flux's. An unknown key is an error. If a list has two definitions with the same id, the last one wins.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dskype.topology.flux.errors import FluxException

__all__ = [
    "GROUPING_TYPES",
    "BeanDef",
    "BoltDef",
    "ConfigMethodDef",
    "GroupingDef",
    "IncludeDef",
    "ListRef",
    "ObjectDef",
    "PropertyDef",
    "Ref",
    "SpoutDef",
    "StreamDef",
    "TopologyDef",
    "TopologySourceDef",
    "read_topology",
]

log = logging.getLogger(__name__)

_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")

GROUPING_TYPES = ("ALL", "CUSTOM", "DIRECT", "SHUFFLE", "LOCAL_OR_SHUFFLE", "FIELDS", "GLOBAL", "NONE")


@dataclass(frozen=True)
class Ref:
    """``{ref: id}``: refers to a component's object."""

    id: str


@dataclass(frozen=True)
class ListRef:
    """``{reflist: [id, ...]}``: refers to a list of components' objects."""

    ids: tuple[str, ...]


@dataclass(frozen=True)
class PropertyDef:
    """One property: a literal ``value`` or a :class:`Ref`."""

    name: str
    value: Any


@dataclass(frozen=True)
class ConfigMethodDef:
    """A method to call on the new object."""

    name: str
    args: list[Any] | dict[str, Any]


@dataclass
class ObjectDef:
    """How to create an object: by the constructor if it has arguments, else by the factory, else by the constructor without arguments."""

    where: str
    class_name: str
    constructor_args: list[Any] | dict[str, Any] = field(default_factory=list)
    factory: str | None = None
    factory_args: list[Any] | dict[str, Any] = field(default_factory=list)
    properties: list[PropertyDef] = field(default_factory=list)
    config_methods: list[ConfigMethodDef] = field(default_factory=list)


@dataclass
class BeanDef(ObjectDef):
    """An object with an id."""

    id: str = ""


@dataclass
class SpoutDef(BeanDef):
    """A spout. -1 means that a load, or ``num_tasks``, is not set."""

    parallelism: int = 1
    num_tasks: int = -1
    on_heap_memory_load: float = -1
    off_heap_memory_load: float = -1
    cpu_load: float = -1
    config: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class BoltDef(SpoutDef):
    """A bolt."""


@dataclass
class TopologySourceDef(ObjectDef):
    """A class with a method that returns the topology."""

    method_name: str = "getTopology"


@dataclass
class GroupingDef:
    """The grouping of a subscription."""

    type: str
    stream_id: str | None = None
    args: list[str] | None = None
    custom_class: ObjectDef | None = None


@dataclass
class StreamDef:
    """One subscription; ``name`` is not used."""

    where: str
    from_id: str
    to_id: str
    grouping: GroupingDef
    name: str | None = None


@dataclass
class IncludeDef:
    """Another file to merge in."""

    file: str
    resource: bool = False
    override: bool = False


@dataclass
class TopologyDef:
    """The content of a file."""

    name: str | None = None
    config: dict[str, Any] = field(default_factory=dict, repr=False)
    components: dict[str, BeanDef] = field(default_factory=dict)
    spouts: dict[str, SpoutDef] = field(default_factory=dict)
    bolts: dict[str, BoltDef] = field(default_factory=dict)
    streams: list[StreamDef] = field(default_factory=list)
    includes: list[IncludeDef] = field(default_factory=list)
    worker_hooks: dict[str, BeanDef] = field(default_factory=dict)
    topology_source: TopologySourceDef | None = None

    @property
    def is_dsl(self) -> bool:
        """True unless the file names a topology source."""
        return self.topology_source is None

    def configurations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what is configured, and the configuration: the topology's and each component's."""
        yield "The topology", self.config
        for vertex in (*self.spouts.values(), *self.bolts.values()):
            yield f"Component {vertex.id}", vertex.config

    def check(self) -> None:
        """Refuse a topology source together with spouts, bolts or streams."""
        if self.topology_source is not None and (self.spouts or self.bolts or self.streams):
            raise FluxException(
                "Invalid topology config. Spouts, bolts and streams cannot be defined in the same configuration as a topologySource.",
                given=[k for k, v in (("spouts", self.spouts), ("bolts", self.bolts), ("streams", self.streams)) if v],
                component=self.topology_source.class_name,
            )

    def merge(self, other: TopologyDef, override: bool) -> list[str]:
        """Merge an included file: definitions by id; streams are appended; its hooks, source and includes are ignored.

        :param override: whether the included file wins.
        :returns: warnings about ignored parts.
        """
        warnings: list[str] = []

        def include(kind: str, own: dict[str, Any], included: Mapping[str, Any]) -> None:
            for key, value in included.items():
                if key in own and not override:
                    warnings.append(f"Ignoring attempt to set {kind} {key!r} with override == false.")
                else:
                    own[key] = value

        if other.name is not None:
            if self.name is None or override:
                self.name = other.name
            else:
                warnings.append("Ignoring attempt to set property 'name' with override == false.")
        include("topology config property", self.config, other.config)
        include("component", self.components, other.components)
        include("bolt", self.bolts, other.bolts)
        include("spout", self.spouts, other.spouts)
        self.streams.extend(other.streams)
        for part, ignored in (("includes", other.includes), ("workerHooks", other.worker_hooks), ("topologySource", other.topology_source)):
            if ignored:
                warnings.append(f"{part} of an included file are ignored: includes go one level deep.")
        return warnings


# --- reading ----------------------------------------------------------------------------------------------------------


class _Map:
    """A map in the file, with typed access to its keys; unknown keys are an error."""

    def __init__(self, data: Any, where: str, *keys: str) -> None:
        if not isinstance(data, Mapping):
            raise FluxException(f"{where} must be a map.", given=data, legal=f"the keys {', '.join(keys)}")
        for key in data:
            if key not in keys:
                near = difflib.get_close_matches(str(key), keys, 1)
                raise FluxException(
                    f"Unable to find property '{key}' in {where}.", given=key, legal=", ".join(keys), hint=f"did you mean {near[0]!r}?" if near else None
                )
        self.data, self.where = data, where

    def _get(self, key: str, expected: str, convert: Callable[[Any], Any], default: Any, required: bool) -> Any:
        value = self.data.get(key)
        if value is None:
            if required:
                raise FluxException(f"{self.where} has no {key}.", given=sorted(map(str, self.data)), legal=expected)
            return default
        converted = convert(value)
        if converted is None:
            raise FluxException(f"{key} of {self.where} must be {expected}.", given=value)
        return converted

    def text(self, key: str, default: str | None = None, required: bool = False) -> Any:
        return self._get(key, "a string", _text, default, required)

    def integer(self, key: str, default: int) -> int:
        return self._get(key, "an integer", _integer, default, False)

    def number(self, key: str, default: float) -> float:
        return self._get(key, "a number", _number, default, False)

    def flag(self, key: str, default: bool) -> bool:
        return self._get(key, "true or false", lambda v: v if isinstance(v, bool) else None, default, False)

    def mapping(self, key: str) -> dict[str, Any]:
        return dict(self._get(key, "a map", lambda v: v if isinstance(v, Mapping) else None, {}, False))

    def items(self, key: str) -> list[Any]:
        return list(self._get(key, "a list", lambda v: v if isinstance(v, list) else None, (), False))

    def strings(self, key: str) -> list[str] | None:
        if self.data.get(key) is None:
            return None
        items = self.items(key)
        found = [text for item in items if (text := _text(item)) is not None]
        if len(found) < len(items):
            raise FluxException(f"{key} of {self.where} must be a list of strings.", given=self.data[key])
        return found

    def args(self, key: str) -> list[Any] | dict[str, Any]:
        """Return arguments, with references resolved to :class:`Ref` and :class:`ListRef`: a list, or (not in Storm) a map by name."""
        value = self._get(key, "a list, or a map of named arguments", lambda v: v if isinstance(v, (list, Mapping)) else None, [], False)
        if isinstance(value, Mapping):
            if _reference(value) is not value:
                raise FluxException(f"{key} of {self.where} must be a list.", given=value, hint=f"write it as an item: [{value}]")
            for name in value:
                if not isinstance(name, str) or not name.isidentifier():
                    hint = "quote it, because YAML reads on, off, yes and no as booleans" if isinstance(name, bool) else None
                    raise FluxException(f"{key} of {self.where} has a key that cannot be a parameter's name.", given=name, hint=hint)
            return {name: _reference(arg) for name, arg in value.items()}
        return [_reference(arg) for arg in value]


def _text(value: Any) -> str | None:
    # Any scalar but a float, like a Java String property: a float's text may differ from what was written.
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int)) else None


def _integer(value: Any) -> int | None:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _reference(value: Any) -> Any:
    if isinstance(value, Mapping) and len(value) == 1:
        if "ref" in value:
            return Ref(_ref_id(value["ref"], value))
        if "reflist" in value:
            ids = value["reflist"]
            if not isinstance(ids, list):
                raise FluxException("reflist must be a list of ids.", given=value)
            return ListRef(tuple(_ref_id(i, value) for i in ids))
    return value


def _ref_id(value: Any, given: Any) -> str:
    text = _text(value)
    if text is None:
        raise FluxException("A reference must name a component's id.", given=given)
    return text


_OBJECT = ("className", "constructorArgs", "properties", "configMethods", "factory", "factoryArgs")
_VERTEX = (*_OBJECT, "id", "parallelism", "numTasks", "onHeapMemoryLoad", "offHeapMemoryLoad", "cpuLoad", "config")


def _object(m: _Map) -> dict[str, Any]:
    return {
        "where": m.where,
        "class_name": m.text("className", required=True),
        "constructor_args": m.args("constructorArgs"),
        "factory": m.text("factory"),
        "factory_args": m.args("factoryArgs"),
        "properties": [_property(p, f"properties[{i}] of {m.where}") for i, p in enumerate(m.items("properties"))],
        "config_methods": [_method(c, f"configMethods[{i}] of {m.where}") for i, c in enumerate(m.items("configMethods"))],
    }


def _property(data: Any, where: str) -> PropertyDef:
    m = _Map(data, where, "name", "value", "ref")
    ref = m.text("ref")
    if ref is not None and m.data.get("value") is not None:
        raise FluxException("A property can only have a value OR a reference, not both.", given=dict(m.data), hint=f"in {where}")
    return PropertyDef(m.text("name", required=True), m.data.get("value") if ref is None else Ref(ref))


def _method(data: Any, where: str) -> ConfigMethodDef:
    m = _Map(data, where, "name", "args")
    return ConfigMethodDef(m.text("name", required=True), m.args("args"))


def _named(kind: str, section: str, data: Any, index: int) -> str:
    name = data.get("id") if isinstance(data, Mapping) else None
    return f"{kind} {name!r}" if name is not None else f"{section}[{index}]"


def _bean(data: Any, where: str) -> BeanDef:
    m = _Map(data, where, "id", *_OBJECT)
    return BeanDef(**_object(m), id=m.text("id", required=True))


def _vertex(cls: type[SpoutDef]) -> Callable[[Any, str], SpoutDef]:
    def read(data: Any, where: str) -> SpoutDef:
        m = _Map(data, where, *_VERTEX)
        return cls(
            **_object(m),
            id=m.text("id", required=True),
            parallelism=m.integer("parallelism", 1),
            num_tasks=m.integer("numTasks", -1),
            on_heap_memory_load=m.number("onHeapMemoryLoad", -1),
            off_heap_memory_load=m.number("offHeapMemoryLoad", -1),
            cpu_load=m.number("cpuLoad", -1),
            config=m.mapping("config"),
        )

    return read


def _grouping(data: Any, where: str) -> GroupingDef:
    m = _Map(data, where, "type", "streamId", "args", "customClass")
    kind = m.text("type", required=True)
    if kind not in GROUPING_TYPES:
        hint = None
        if str(kind).upper() in GROUPING_TYPES:
            hint = f"write {str(kind).upper()}"
        elif str(kind).upper().startswith("PARTIAL"):
            hint = "use type CUSTOM with customClass org.apache.storm.grouping.PartialKeyGrouping"
        raise FluxException(f"{where} is of an unknown type.", given=kind, legal=", ".join(GROUPING_TYPES), hint=hint)
    custom = m.data.get("customClass")
    grouping = GroupingDef(
        kind, m.text("streamId"), m.strings("args"), None if custom is None else ObjectDef(**_object(_Map(custom, f"customClass of {where}", *_OBJECT)))
    )
    if kind == "FIELDS" and grouping.args is None:  # without any field it is a global grouping, as in Storm
        raise FluxException(f"{where} needs args.", given=m.data.get("args"), legal="a list of field names")
    if kind == "CUSTOM" and grouping.custom_class is None:
        raise FluxException(f"{where} needs a customClass.", given=sorted(m.data), legal="an object with a className")
    return grouping


def _stream(data: Any, where: str) -> StreamDef:
    if isinstance(data, Mapping) and data.get("from") is not None and data.get("to") is not None:
        where = f"{where} ({data['from']} -> {data['to']})"
    m = _Map(data, where, "name", "from", "to", "grouping")
    if m.data.get("grouping") is None:
        raise FluxException(f"{where} has no grouping.", given=sorted(m.data), legal="a map with a type")
    return StreamDef(
        where, m.text("from", required=True), m.text("to", required=True), _grouping(m.data["grouping"], f"the grouping of {where}"), m.text("name")
    )


def _include(data: Any, where: str) -> IncludeDef:
    m = _Map(data, where, "file", "resource", "override")
    return IncludeDef(m.text("file", required=True), m.flag("resource", False), m.flag("override", False))


def _source(data: Any) -> TopologySourceDef:
    m = _Map(data, "topologySource", *_OBJECT, "methodName")
    return TopologySourceDef(**_object(m), method_name=m.text("methodName", "getTopology"))


def _by_id(items: Sequence[Any], section: str, kind: str, read: Callable[[Any, str], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for i, data in enumerate(items):
        bean = read(data, _named(kind, section, data, i))
        if bean.id in found:
            log.warning("%s is defined twice in %s; the last definition wins", bean.where, section)
        found[bean.id] = bean
    return found


def read_topology(data: Any, source: str) -> TopologyDef:
    """Check the data of a Flux file, and return its definition.

    :param data: the parsed YAML.
    :param source: the file's name, for messages.
    :raises FluxException: an unknown key, a missing key, or a value of the wrong type.
    """
    m = _Map({} if data is None else data, source, "name", "config", "components", "includes", "spouts", "bolts", "streams", "workerHooks", "topologySource")
    if data is None:
        raise FluxException(f"{source} is empty.", legal="a map with the keys name, spouts, bolts, streams, ...")
    source_data = m.data.get("topologySource")
    return TopologyDef(
        name=m.text("name"),
        config=m.mapping("config"),
        components=_by_id(m.items("components"), "components", "component", _bean),
        spouts=_by_id(m.items("spouts"), "spouts", "spout", _vertex(SpoutDef)),
        bolts=_by_id(m.items("bolts"), "bolts", "bolt", _vertex(BoltDef)),
        streams=[_stream(s, f"streams[{i}]") for i, s in enumerate(m.items("streams"))],
        includes=[_include(s, f"includes[{i}]") for i, s in enumerate(m.items("includes"))],
        worker_hooks=_by_id(m.items("workerHooks"), "workerHooks", "worker hook", _bean),
        topology_source=None if source_data is None else _source(source_data),
    )
