"""Loads a topology from a Flux YAML file.

Like ``storm jar flux.jar org.apache.storm.flux.Flux --dry-run``, ``load`` replaces placeholders, parses the YAML, merges
includes, creates the objects and builds the topology. Streams and fields are checked at submission, as in Storm.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dskype.topology import config as storm_config
from dskype.topology.builder import BoltDeclarer, SpoutDeclarer, TopologyBuilder
from dskype.topology.components import BaseBolt, Spout
from dskype.topology.config import Config
from dskype.topology.errors import IllegalArgumentException, TopologyError
from dskype.topology.fields import DEFAULT_STREAM_ID, Fields
from dskype.topology.flux.errors import FluxException
from dskype.topology.flux.model import BoltDef, GroupingDef, SpoutDef, StreamDef, TopologyDef, TopologySourceDef, read_topology
from dskype.topology.flux.objects import ObjectBuilder, find_member
from dskype.topology.flux.permissions import check_options, check_settings, refuse_command, refuse_variables
from dskype.topology.flux.registry import Registry, default_registry
from dskype.topology.flux.strict_yaml import Limits, parse
from dskype.topology.flux.substitution import parse_properties, substitute
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
from dskype.topology.hooks import WorkerHook
from dskype.topology.model import Grouping, StormTopology
from dskype.topology.named_classes import STORM_CLASSES, named_classes

__all__ = ["FluxTopology", "load", "read_properties", "read_yaml"]

log = logging.getLogger(__name__)


@dataclass
class FluxTopology:
    """A topology that was built from a Flux file and can be submitted.

    :param name: its name; None if the file has none.
    :param config: the topology's configuration.
    :param topology: the topology.
    :param definition: the content of the file, with its includes.
    :param warnings: messages for the user about placeholders without a value, omitted bolts and ignored parts.
    :param modules: the allowed modules from which its objects come. Executors need them, too: install them there, or
        register them with ``cloudpickle.register_pickle_by_value``.
    :param objects: id -> object, for components, spouts and bolts.
    """

    name: str | None
    config: dict[str, Any] = field(repr=False)
    topology: StormTopology
    definition: TopologyDef = field(repr=False)
    warnings: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    objects: dict[str, Any] = field(default_factory=dict)

    @property
    def refusals(self) -> dict[str, str]:
        """Component id -> why it cannot be run. A topology with refusals is for dry runs only."""
        found = {}
        for id, spec in self.topology.components.items():
            reason = getattr(spec.obj, "emulator_refusal", None)
            if reason:
                found[id] = reason
        return found

    def check_runnable(self) -> None:
        """Refuse a topology without a name, or with a component that cannot be run.

        :raises FluxException: it says which.
        """
        if self.name is None:
            raise FluxException("The topology has no name.", hint="set name: at the top of the file")
        for id, reason in self.refusals.items():
            raise FluxException(f"Component {id} cannot be run: {reason}.", component=id, hint="--dry-run shows the topology")

    def describe(self) -> str:
        """Return the description that Flux prints before a submission."""
        d = self.definition
        if not d.is_dsl:
            return self._describe_source(d.topology_source)
        lines = ["---------- TOPOLOGY DETAILS ----------", f"Topology Name: {self.name}"]
        lines.append("--------------- SPOUTS ---------------")
        lines += [f"{s.id} [{s.parallelism}] ({s.class_name})" for s in d.spouts.values()]
        lines.append("---------------- BOLTS ---------------")
        lines += [f"{b.id} [{b.parallelism}] ({b.class_name})" for b in d.bolts.values()]
        lines.append("--------------- STREAMS ---------------")
        lines += [f"{s.from_id} --{s.grouping.type}--> {s.to_id}" for s in d.streams]
        lines.append("--------------- WORKER HOOKS ---------------")
        lines += [f"{h.id} ({h.class_name})" for h in d.worker_hooks.values()]
        lines.append("--------------------------------------")
        return "\n".join(lines)

    def _describe_source(self, source: TopologySourceDef | None) -> str:
        assert source is not None
        lines = ["---------- TOPOLOGY DETAILS ----------", f"Topology Name: {self.name}"]
        lines.append(f"Topology Source: {source.class_name}.{source.method_name}")
        for id, spec in self.topology.components.items():
            lines.append(f"{id} [{spec.parallelism_hint or 1}] ({getattr(spec.obj, 'class_name', type(spec.obj).__name__)})")
            lines += [f"{stream.component_id} --{type(g).__name__}--> {id}" for stream, g in spec.inputs.items()]
        return "\n".join([*lines, "--------------------------------------"])


def load(
    source: str | os.PathLike[str],
    *,
    properties: Mapping[str, str] | str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    allow_modules: Iterable[str] = (),
    allow_commands: bool = False,
    registry: Registry | None = None,
    resources: Sequence[str | os.PathLike[str]] = (),
    resource: bool = False,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    trusted: Mapping[str, Any] | None = None,
    limits: Limits = Limits(),
) -> FluxTopology:
    """Load a topology.

    :param source: path of a YAML file; a string with a line break is the YAML itself.
    :param properties: values for ``${key}``: a mapping, or the path of a Java ``.properties`` file (UTF-8).
    :param environ: values for ``${ENV-NAME}``, e.g. ``os.environ``; None does not replace these placeholders.
    :param allow_modules: modules whose classes the file may name, including all modules below them.
    :param allow_commands: whether components of the file may start programs (``FluxShellSpout``, ``FluxShellBolt``).
    :param registry: the other classes that it may name; default :func:`default_registry`.
    :param resources: folders to search for files that are marked as resources.
    :param resource: whether ``source`` (and ``properties``, if a path) is such a resource (``-R``).
    :param name: a name that replaces the file's.
    :param config: configuration that overrides the file's.
    :param trusted: further settings of Spark, Kafka and ``topology.emulator.state.url`` that the caller allows: the file may have the same ones. Without it, it may set
        sizes, times and counts of Spark and Kafka, and keep its state in the topology's folder or in Kafka.
    :param limits: bounds of each YAML document.
    :returns: the topology; its streams and fields are not checked yet.
    :raises FluxException: the file cannot be read or built, or needs a permission; the message says where and why.
    :raises IllegalArgumentException: a configuration value is of the wrong type.
    """
    reader = _Reader(properties, environ, resources, resource, limits)
    definition = reader.read(source, resource)
    if name is not None:
        definition.name = name
    if environ is None:
        for part, conf in definition.configurations():
            refuse_variables(part, conf)
    config, trusted = config or {}, {**(trusted or {}), **(config or {})}
    check_settings({key: value for key, value in definition.config.items() if key not in config}, trusted)
    definition.config.update(config)
    topology = _Builder(definition, registry or default_registry(), tuple(allow_modules), allow_commands, reader.warnings).build()
    if not allow_commands:  # those that a topologySource has made; the file's own were looked at when they were made
        for id, spec in topology.topology.components.items():
            refuse_command(id, spec.obj, tuple(allow_modules))
    check_options(topology.topology, trusted)
    return topology


def read_properties(path: str | os.PathLike[str], limits: Limits = Limits()) -> dict[str, str]:
    """Read a Java ``.properties`` file (UTF-8).

    :raises FluxException: the file cannot be read.
    """
    return parse_properties(_read_text(Path(path), limits), str(path))


def read_yaml(path: str | os.PathLike[str], limits: Limits = Limits()) -> Any:
    """Read a YAML file of plain data, as strictly as a Flux file.

    :raises FluxException: the file cannot be read.
    """
    return parse(_read_text(Path(path), limits), str(path), limits)


def _read_text(path: Path, limits: Limits) -> str:
    try:
        if not path.is_file():
            raise FluxException(f"{path} is not a file.", given=str(path))
        with path.open("rb") as stream:
            data = stream.read(limits.bytes + 1)
    except OSError as ex:
        raise FluxException(f"{path} cannot be read: {ex.strerror}.") from ex
    if len(data) > limits.bytes:
        raise FluxException(f"{path}: the file is too large.", given=f"{path.stat().st_size} bytes", legal=f"at most {limits.bytes} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as ex:
        raise FluxException(f"{path} is not UTF-8 text.", given=f"byte {data[ex.start]:#04x} at {ex.start}") from ex


class _Reader:
    """Reads a file and its includes."""

    def __init__(
        self,
        properties: Mapping[str, str] | str | os.PathLike[str] | None,
        environ: Mapping[str, str] | None,
        resources: Sequence[str | os.PathLike[str]],
        resource: bool,
        limits: Limits,
    ) -> None:
        self._resources = [Path(r) for r in resources]
        self._limits = limits
        self._environ = environ
        self.warnings: list[str] = []
        if properties is None or isinstance(properties, Mapping):
            self._properties = properties
        else:
            self._properties = read_properties(self._find_resource(str(properties)) if resource else properties, limits)

    def read(self, source: str | os.PathLike[str], resource: bool) -> TopologyDef:
        """Return the definition with its includes."""
        if isinstance(source, str) and "\n" in source:
            definition, folder = self._parse(source, "text"), Path.cwd()
        else:
            path = self._find_resource(str(source)) if resource else Path(source)
            definition, folder = self._parse(_read_text(path, self._limits), str(source)), path.parent
        for include in definition.includes:
            path = self._find_resource(include.file) if include.resource else self._find_include(include.file, folder)
            included = self._parse(_read_text(path, self._limits), include.file)
            self.warnings += [f"{include.file}: {w}" for w in definition.merge(included, include.override)]
        return definition

    def _parse(self, text: str, name: str) -> TopologyDef:
        text, warnings = substitute(text, self._properties, self._environ)
        self.warnings += [f"{name}: {w}" for w in warnings]
        return read_topology(parse(text, name, self._limits), name)

    def _find_include(self, file: str, folder: Path) -> Path:
        """Return a path beside the including file if there is one, else in the working folder (where Storm looks); it is never outside both, links followed."""
        beside = folder / file
        path = beside if beside.is_file() else Path(file)
        roots = [folder.resolve(), Path.cwd().resolve()]
        if not any(path.resolve().is_relative_to(root) for root in roots):
            legal = f"a file in {' or '.join(dict.fromkeys(map(str, roots)))}"
            raise FluxException(
                "A file is included that is elsewhere.", given=file, legal=legal, hint="if you trust it, call the program in a folder that holds both"
            )
        return path

    def _find_resource(self, file: str) -> Path:
        """Return the path of a resource; it is never outside the resource folders."""
        for folder in self._resources:
            root = folder.resolve()
            path = (root / file.lstrip("/")).resolve()
            if path.is_relative_to(root) and path.is_file():
                return path
        raise FluxException(
            "There is no such resource.", given=file, legal=f"a file in {', '.join(map(str, self._resources)) or 'a resource folder; none is set'}"
        )


class _Builder:
    """Creates the objects and the topology of a definition, in Storm's order."""

    def __init__(self, definition: TopologyDef, registry: Registry, allow_modules: tuple[str, ...], allow_commands: bool, warnings: list[str]) -> None:
        self.definition = definition
        self.objects = ObjectBuilder(registry, allow_modules, allow_commands)
        self.warnings = warnings
        self._made: dict[str, Any] = {}

    def build(self) -> FluxTopology:
        """Build the topology."""
        d = self.definition
        d.check()
        storm_config.validate(d.config)
        self._check_named_classes(d.config)
        for bean in d.components.values():
            self.objects.components[bean.id] = self.objects.build(bean)
        topology = self._dsl() if d.is_dsl else self._from_source(d.topology_source)
        for warning in self.warnings:
            log.warning("%s", warning)
        made = {**self.objects.components, **self._made}
        return FluxTopology(d.name, dict(d.config), topology, d, self.warnings, sorted(self.objects.modules), made)

    def _check_named_classes(self, conf: Mapping[str, Any]) -> None:
        """Refuse classes in the configuration that the file may not name elsewhere."""
        for key, name, _ in named_classes(conf):
            if name not in STORM_CLASSES:
                self.objects.resolve(name, key)

    def _dsl(self) -> StormTopology:
        d, builder = self.definition, TopologyBuilder()
        for spout in d.spouts.values():
            obj = self._made[spout.id] = self.objects.build(spout)
            if not isinstance(obj, Spout):
                raise FluxException(f"Class does not appear to be a spout: {spout.class_name}", given=type(obj).__name__, component=spout.id)
            self._apply(spout, builder.set_spout(spout.id, obj, spout.parallelism))
        for bolt in d.bolts.values():
            self._made[bolt.id] = self.objects.build(bolt)
        declarers: dict[str, BoltDeclarer] = {}
        for stream in d.streams:
            self._subscribe(stream, builder, declarers)
        for bolt in d.bolts.values():
            if bolt.id not in declarers:
                self.warnings.append(f"bolt {bolt.id!r} is left out of the topology: no stream goes to it")
        for hook in d.worker_hooks.values():
            obj = self.objects.build(hook)
            if not isinstance(obj, WorkerHook):
                raise FluxException(f"Class does not appear to be a worker hook: {hook.class_name}", given=type(obj).__name__, component=hook.id)
            builder.add_worker_hook(obj)
        return builder.create_topology()

    def _subscribe(self, stream: StreamDef, builder: TopologyBuilder, declarers: dict[str, BoltDeclarer]) -> None:
        d = self.definition
        declarer = declarers.get(stream.to_id)
        if declarer is None:
            if stream.to_id not in d.bolts:
                if stream.to_id in d.spouts:
                    words = f"Class does not appear to be a bolt: {d.spouts[stream.to_id].class_name}"
                else:
                    words = f"{stream.where} goes to a component that is not defined."
                raise FluxException(words, given=stream.to_id, legal=", ".join(d.bolts) or "no bolt is defined")
            bolt: BoltDef = d.bolts[stream.to_id]
            obj = self._made[bolt.id]
            if not isinstance(obj, BaseBolt):
                raise FluxException(f"Class does not appear to be a bolt: {bolt.class_name}", given=type(obj).__name__, component=bolt.id)
            declarer = declarers[bolt.id] = builder.set_bolt(bolt.id, obj, bolt.parallelism)
            self._apply(bolt, declarer)
        stream_id = stream.grouping.stream_id or DEFAULT_STREAM_ID
        declarer.grouping(stream.from_id, self._grouping(stream.grouping, stream), stream_id)

    def _grouping(self, grouping: GroupingDef, stream: StreamDef) -> Grouping:
        simple = {
            "ALL": AllGrouping,
            "DIRECT": DirectGrouping,
            "SHUFFLE": ShuffleGrouping,
            "GLOBAL": GlobalGrouping,
            "LOCAL_OR_SHUFFLE": LocalOrShuffleGrouping,
            "NONE": NoneGrouping,
        }
        if grouping.type in simple:
            return simple[grouping.type]()
        if grouping.type == "FIELDS":
            return FieldsGrouping(Fields(grouping.args or ()))
        assert grouping.custom_class is not None
        obj = self.objects.build(grouping.custom_class)
        if isinstance(obj, CustomStreamGrouping):
            return CustomGrouping(obj)
        if isinstance(obj, Grouping):
            return obj
        raise FluxException(f"The customClass of {stream.where} is not a grouping.", given=grouping.custom_class.class_name, legal="a CustomStreamGrouping")

    def _apply(self, vertex: SpoutDef, declarer: SpoutDeclarer | BoltDeclarer) -> None:
        """Apply a component's loads, number of tasks and configuration."""
        if vertex.on_heap_memory_load > -1:
            declarer.set_memory_load(vertex.on_heap_memory_load, vertex.off_heap_memory_load if vertex.off_heap_memory_load > -1 else None)
        if vertex.cpu_load > -1:
            declarer.set_cpu_load(vertex.cpu_load)
        if vertex.num_tasks > -1:
            declarer.set_num_tasks(vertex.num_tasks)
        if vertex.config:
            try:
                storm_config.validate(vertex.config)
                self._check_named_classes(vertex.config)
            except IllegalArgumentException as ex:
                raise IllegalArgumentException(str(ex), component=vertex.id) from ex
            declarer.add_configurations(vertex.config)

    def _from_source(self, source: TopologySourceDef | None) -> StormTopology:
        assert source is not None
        obj = self.objects.build(source)
        method = find_member(obj, source.method_name)
        words = f"Unable to find method '{source.method_name}' method in class: {source.class_name}"
        if not callable(method):
            raise FluxException(words, hint="it takes the configuration and returns a StormTopology")
        conf = Config()
        conf.update(self.definition.config)
        try:
            topology = method(conf)
        except TopologyError:
            raise
        except Exception as ex:  # the user's code
            raise FluxException(f"{source.class_name}.{source.method_name} raised {type(ex).__name__}: {ex}") from ex
        if not isinstance(topology, StormTopology):
            raise FluxException(words, given=topology, legal="a StormTopology", hint="return builder.create_topology()")
        return topology
