"""Checks at submission, before anything runs.

They are Storm's rules in Storm's words, with some that are stricter on purpose: a grouping's fields must be fields of
the subscribed stream (Storm accepts fields of any stream of the component and fails later), including those of a partial
key grouping; a component's own configuration is type-checked; and obvious mistakes are refused, such as no tasks, an
empty component id, a tick every 0 seconds, or a sample rate outside 0..1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from dskype.topology import config
from dskype.topology.config import Config
from dskype.topology.errors import AlreadyAliveException, IllegalArgumentException, InvalidTopologyException
from dskype.topology.fields import Fields
from dskype.topology.groupings import CustomGrouping, DirectGrouping, FieldsGrouping, PartialKeyGrouping
from dskype.topology.model import Component, ComponentSpec, StormTopology, is_system_id, stateful
from dskype.topology.named_classes import load_class, named_classes
from dskype.topology.planning.system import with_system
from dskype.topology.tuples import SYSTEM_COMPONENT_ID, SYSTEM_TICK_STREAM_ID

__all__ = ["CycleWarning", "find_cycles", "find_unreachable", "validate_name", "validate_submission"]

_NAME = re.compile(r"[^/.:\\]+")
_BLOB_KEY = re.compile(r"[\w \t._-]+")

_SYSTEM_STREAMS: dict[str, Fields] = {
    SYSTEM_TICK_STREAM_ID: Fields("rate_secs"),
    "__flush": Fields(),
    "__metrics_tick": Fields("interval"),
    "__credentials": Fields("creds"),
    "__system": Fields("event"),
    "__metrics": Fields("task_info", "data_points"),
}
"""Streams of the component ``__system``, which has no tasks."""


def validate_submission(
    name: str, conf: Mapping[str, Any] | None, topology: StormTopology, existing_names: Collection[str] = (), *, local: bool = False
) -> list[str]:
    """Refuse an invalid topology.

    :param name: its name.
    :param conf: its configuration.
    :param topology: the result of ``create_topology``.
    :param existing_names: names of topologies that are running, or killed and not yet removed.
    :param local: whether to accept a topology without spouts, as a local cluster does; default False.
    :returns: warnings about cycles, unreachable components, direct groupings on streams that are not direct, and so on.
    :raises InvalidTopologyException: the name, an id, an input, a stream or a field is invalid.
    :raises AlreadyAliveException: the name is in use.
    :raises IllegalArgumentException: the configuration is invalid.
    """
    validate_name(name)
    if name in existing_names:
        raise AlreadyAliveException.for_topology(name)
    conf = _validate_conf(conf)
    if not local and not topology.spouts:
        raise InvalidTopologyException(f"Topology {name} does not have any spout", given=sorted(topology.components), hint="add one with set_spout")
    _validate_basic(topology)
    _validate_runnable(topology)
    _validate_component_confs(topology)
    _validate_named_classes(topology, conf)
    system = with_system(topology, conf)
    _validate_structure(system)
    full = config.merge(config.DEFAULTS, conf)
    for spec in system.components.values():
        if isinstance(spec.obj, Component):
            spec.obj.check_topology(spec.id, full, system)
    return _conf_warnings(conf, topology) + _warnings(name, topology)


def validate_name(name: str) -> None:
    """Refuse an invalid name of a topology.

    :raises InvalidTopologyException: ``Topology name 'x' is not valid...``.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidTopologyException(
            f"Topology name '{name}' is not valid. It can't be null and it must match ^[^/.:\\\\]+$",
            given=name,
            legal="one or more characters, none of / . : \\",
        )
    if not _BLOB_KEY.fullmatch(name):
        raise InvalidTopologyException(
            f"Topology name '{name}' is not valid. {name} does not appear to be a valid blob key", given=name, legal="letters, digits, blanks, _ and -"
        )


def _validate_conf(conf: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if conf is None:
        return {}
    if not isinstance(conf, Mapping):
        raise IllegalArgumentException("Storm conf is not valid. Must be json-serializable", given=conf, legal="a dict or a Config")
    config.check_json(conf)
    config.validate(conf)
    return conf


def _validate_basic(topology: StormTopology) -> None:
    """Check the ids of components and streams, and that spouts have no inputs."""
    specs = topology.components.values()
    for spec in specs:
        if not isinstance(spec.id, str) or not spec.id:
            raise InvalidTopologyException(f"{spec.id} is not a valid component id.", given=spec.id, legal="a string of at least one character")
        if is_system_id(spec.id):
            raise InvalidTopologyException(f"{spec.id} is not a valid component id.", given=spec.id, hint="ids that start with __ are reserved")
    for spec in specs:
        for stream_id in spec.outputs:
            if is_system_id(stream_id):
                raise InvalidTopologyException(
                    f"{stream_id} is not a valid stream id.", given=stream_id, component=spec.id, hint="ids that start with __ are reserved"
                )
    ids = [spec.id for spec in specs]
    repeated = sorted({i for i in ids if ids.count(i) > 1})
    if repeated:
        raise InvalidTopologyException(f"Duplicate component ids: [{', '.join(repeated)}]")
    for spec in specs:
        if spec.kind == "spout" and spec.inputs:
            raise InvalidTopologyException("May not declare inputs for a spout", given=[tuple(s) for s in spec.inputs], component=spec.id)


def _validate_runnable(topology: StormTopology) -> None:
    """Refuse components that stand for something that is not here, such as HDFS."""
    for spec in topology.components.values():
        if reason := getattr(spec.obj, "emulator_refusal", None):
            raise InvalidTopologyException(f"Component {spec.id} cannot be run: {reason}.", component=spec.id)


def _validate_component_confs(topology: StormTopology) -> None:
    for spec in topology.components.values():
        try:
            config.check_json(spec.conf)
            config.validate(spec.conf)
        except IllegalArgumentException as ex:
            raise IllegalArgumentException(str(ex), component=spec.id) from ex
        hint = 1 if spec.parallelism_hint is None else spec.parallelism_hint
        if hint <= 0:
            raise InvalidTopologyException("Number of executors must be greater than 0 when number of tasks is greater than 0", given=hint, component=spec.id)


def _validate_named_classes(topology: StormTopology, conf: Mapping[str, Any]) -> None:
    """Refuse hooks, event loggers and metrics consumers that cannot be loaded.

    :raises InvalidTopologyException: the key and the class.
    """
    for spec_conf in (conf, *(spec.conf for spec in topology.components.values())):
        for key, name, base in named_classes(spec_conf):
            load_class(name, base, key)


def _validate_structure(topology: StormTopology) -> None:
    """Check that the components, streams and fields that inputs name exist, in a topology with its system parts."""
    for component_id in sorted(topology.components):
        for (source_id, stream_id), grouping in topology.components[component_id].inputs.items():
            streams = _streams(topology, source_id)
            if streams is None:
                raise InvalidTopologyException(
                    f"Component: [{component_id}] subscribes from non-existent component [{source_id}]",
                    legal=", ".join(c for c in topology.components if not is_system_id(c)),
                )
            if stream_id not in streams:
                raise InvalidTopologyException(
                    f"Component: [{component_id}] subscribes from non-existent stream: [{stream_id}] of component [{source_id}]",
                    legal=", ".join(s for s in streams if not is_system_id(s)) or "(it declares no stream)",
                )
            if isinstance(grouping, (FieldsGrouping, PartialKeyGrouping)):
                missing = [f for f in grouping.fields if f not in streams[stream_id]]
                if missing:
                    raise InvalidTopologyException(
                        f"Component: [{component_id}] subscribes from stream: [{stream_id}] of component "
                        f"[{source_id}] + with non-existent fields: [{', '.join(missing)}]",
                        legal=", ".join(streams[stream_id]) or "(the stream has no fields)",
                    )


def _streams(topology: StormTopology, component_id: str) -> dict[str, Fields] | None:
    if component_id == SYSTEM_COMPONENT_ID:
        return _SYSTEM_STREAMS
    spec = topology.components.get(component_id)
    return None if spec is None else {stream: info.fields for stream, info in spec.outputs.items()}


# --- warnings ---------------------------------------------------------------------------------------------------------


class CycleWarning(str):
    """The warning that a topology has cycles, which may be intended."""

    __slots__ = ()


def _conf_warnings(conf: Mapping[str, Any], topology: StormTopology) -> list[str]:
    """Return warnings about keys that Storm does not know and that look like its own."""
    confs = [("", conf), *((f"Component: [{spec.id}] has the key ", spec.conf) for spec in topology.components.values())]
    return [
        f"{whose}{key}{', which' if whose else ''} is no key of Storm and has no effect on the emulator; hint: did you mean {meant}?"
        for whose, keys in confs
        for key, meant in config.misspelt(keys).items()
    ]


def _warnings(name: str, topology: StormTopology) -> list[str]:
    warnings: list[str] = []
    cycles = find_cycles(topology)
    if cycles:
        listed = " ; ".join(",".join(c) for c in cycles)
        warnings.append(CycleWarning(f'Topology {name} contains cycles in components "{listed}"'))
    unreachable = find_unreachable(topology)
    if unreachable:
        warnings.append(f'Topology {name} contains unreachable components "{",".join(unreachable)}"')
    for spec in topology.components.values():
        warnings.extend(_input_warnings(spec, topology))
        warnings.extend(_state_warnings(spec))
        if spec.conf.get(Config.TOPOLOGY_MAX_SPOUT_PENDING) is not None and spec.kind == "bolt":
            warnings.append(f"Component: [{spec.id}] is a bolt; {Config.TOPOLOGY_MAX_SPOUT_PENDING} has no effect on it")
    return warnings


def _input_warnings(spec: ComponentSpec, topology: StormTopology) -> list[str]:
    out = []
    for (source_id, stream_id), grouping in spec.inputs.items():
        source = topology.components.get(source_id)
        if source_id == SYSTEM_COMPONENT_ID:
            out.append(
                f"Component: [{spec.id}] subscribes from stream: [{stream_id}] of component [{source_id}], which sends "
                f"nothing to subscribers; set {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS} to get ticks"
            )
        info = source.outputs.get(stream_id) if source else None
        if info is None:
            continue
        direct = isinstance(grouping, DirectGrouping)
        if direct and not info.direct:
            out.append(
                f"Component: [{spec.id}] subscribes by direct grouping from stream: [{stream_id}] of component "
                f"[{source_id}], which is not declared direct; only emit_direct will work on it"
            )
        elif info.direct and not direct and not isinstance(grouping, CustomGrouping):
            out.append(
                f"Component: [{spec.id}] subscribes by {grouping} grouping from stream: [{stream_id}] of component "
                f"[{source_id}], which is declared direct; emit_direct to this component will be refused"
            )
    return out


def _state_warnings(spec: ComponentSpec) -> list[str]:
    cls = type(spec.obj)
    if stateful(spec.obj):
        return []
    has = [m for m in ("snapshot", "restore") if getattr(cls, m, None) not in (None, getattr(Component, m))]
    if not has:
        return []
    missing = "restore" if has == ["snapshot"] else "snapshot"
    return [f"Component: [{spec.id}] defines {has[0]} but not {missing}: its state does not survive a crash"]


def _successors(topology: StormTopology) -> dict[str, list[str]]:
    out: dict[str, set[str]] = {c: set() for c in topology.components}
    for spec in topology.components.values():
        for source_id, _ in spec.inputs:
            if source_id in out:
                out[source_id].add(spec.id)
    return {c: sorted(s) for c, s in sorted(out.items())}


def find_unreachable(topology: StormTopology) -> list[str]:
    """Return the components that no tuple of a spout can reach, sorted."""
    successors = _successors(topology)
    seen: set[str] = set()
    todo = [c for c, spec in topology.components.items() if spec.kind == "spout"]
    while todo:
        component_id = todo.pop()
        if component_id not in seen:
            seen.add(component_id)
            todo.extend(successors[component_id])
    return sorted(set(successors) - seen)


def find_cycles(topology: StormTopology) -> list[list[str]]:
    """Return the groups of components that lie on common cycles, each sorted; empty if there is no cycle.

    Like Storm, it follows the streams from the spouts: a cycle that no spout reaches is not found.

    These are the strongly connected components with an inner edge (Tarjan, SIAM J. Comput. 1(2), 1972, without
    recursion). Storm lists single cycles instead, in an order that depends on hashes.
    """
    unreachable = set(find_unreachable(topology))
    successors = {c: following for c, following in _successors(topology).items() if c not in unreachable}
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for root in successors:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        path = [(root, iter(successors[root]))]
        while path:
            node, rest = path[-1]
            for successor in rest:
                if successor not in order:
                    order[successor] = low[successor] = len(order)
                    stack.append(successor)
                    on_stack.add(successor)
                    path.append((successor, iter(successors[successor])))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], order[successor])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    group: list[str] = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on_stack.discard(group[-1])
                    if len(group) > 1 or node in successors[node]:
                        found.append(sorted(group))
    return sorted(found)
