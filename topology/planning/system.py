"""The parts that the system adds to a user's topology: system streams, the acker, event loggers and metrics consumers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dskype.topology.config import DEFAULTS, Config, merge
from dskype.topology.fields import Fields, GlobalStreamId, StreamInfo
from dskype.topology.groupings import DirectGrouping, FieldsGrouping, ShuffleGrouping
from dskype.topology.model import Component, ComponentSpec, Grouping, StormTopology, is_system_id
from dskype.topology.planning.acker_streams import (
    ACKER_ACK_STREAM_ID,
    ACKER_COMPONENT_ID,
    ACKER_FAIL_STREAM_ID,
    ACKER_INIT_STREAM_ID,
    ACKER_RESET_TIMEOUT_STREAM_ID,
)
from dskype.topology.planning.observers import EventLoggerBolt, MetricsConsumerBolt

__all__ = ["EVENT_LOGGER_COMPONENT_ID", "EVENT_STREAM_ID", "METRICS_STREAM_ID", "system_bolts", "with_system"]

EVENT_LOGGER_COMPONENT_ID = "__eventlogger"
METRICS_COMPONENT_PREFIX = "__metrics_"

SYSTEM_STREAM_ID = "__system"
METRICS_STREAM_ID = "__metrics"
EVENT_STREAM_ID = "__eventlog"


def system_bolts(conf: Mapping[str, Any]) -> dict[str, int]:
    """Return component id -> executors of the bolts that the system adds, as in Storm.

    :param conf: the topology's configuration, with or without defaults.
    """
    full = merge(DEFAULTS, conf)
    workers = full[Config.TOPOLOGY_WORKERS] or 1
    found = {}
    for component, key in ((ACKER_COMPONENT_ID, Config.TOPOLOGY_ACKER_EXECUTORS), (EVENT_LOGGER_COMPONENT_ID, Config.TOPOLOGY_EVENTLOGGER_EXECUTORS)):
        if executors := workers if full[key] is None else full[key]:
            found[component] = executors
    return found | {component: entry["parallelism.hint"] for component, entry in _metrics_consumers(full)}


def _metrics_consumers(conf: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (component id, registration) of the metrics consumers."""
    seen: Counter[str] = Counter()
    for entry in conf.get(Config.TOPOLOGY_METRICS_CONSUMER_REGISTER) or ():
        name = entry["class"]
        seen[name] += 1
        yield f"{METRICS_COMPONENT_PREFIX}{name}" + (f"#{seen[name]}" if seen[name] > 1 else ""), entry


def _system_bolt(component: str, obj: Component, executors: int, inputs: dict[GlobalStreamId, Grouping]) -> ComponentSpec:
    return ComponentSpec(component, "bolt", obj, executors, conf={Config.TOPOLOGY_TASKS: executors}, inputs=inputs)


def with_system(topology: StormTopology, conf: Mapping[str, Any] | None = None, acker: Component | None = None) -> StormTopology:
    """Return the user's topology with the system streams and bolts; unless it is switched off, there is an acker.

    Each component gets the streams ``__system`` and ``__metrics``. With ackers, spouts emit ``__ack_init``, bolts
    ``__ack_ack``, ``__ack_fail`` and ``__ack_reset_timeout``, all with fields grouping on ``id`` to the bolt
    ``__acker``. It answers the spouts on direct streams. Acker and spouts get ticks every
    ``topology.message.timeout.secs``. With event loggers, the user's components emit ``__eventlog``. All components but the metrics consumers send them
    ``__metrics``.

    :param conf: the topology's configuration. ``topology.acker.executors`` None means as many as workers; 0 means no
        acker.
    :param acker: the acker's implementation; default :class:`~dskype.topology.planning.acker.Acker`.
    """
    if any(map(is_system_id, topology.components)):
        return topology
    full = merge(DEFAULTS, conf)
    components = {c.id: replace(c, conf=dict(c.conf), outputs=dict(c.outputs), inputs=dict(c.inputs)) for c in topology.components.values()}
    bolts = system_bolts(full)
    if ACKER_COMPONENT_ID in bolts:
        from dskype.topology.planning.acker import Acker  # here, because clients plan nothing and need not load numpy

        components[ACKER_COMPONENT_ID] = _add_acker(components, bolts.pop(ACKER_COMPONENT_ID), full, acker or Acker())
    if EVENT_LOGGER_COMPONENT_ID in bolts:
        for component in topology.components:
            components[component].outputs[EVENT_STREAM_ID] = StreamInfo(Fields("component-id", "message-id", "timestamp", "values"))
        inputs: dict[GlobalStreamId, Grouping] = {GlobalStreamId(c, EVENT_STREAM_ID): FieldsGrouping(Fields("component-id")) for c in topology.components}
        components[EVENT_LOGGER_COMPONENT_ID] = _system_bolt(EVENT_LOGGER_COMPONENT_ID, EventLoggerBolt(), bolts[EVENT_LOGGER_COMPONENT_ID], inputs)
    sources = list(components)
    for component, entry in _metrics_consumers(full):
        inputs = {GlobalStreamId(source, METRICS_STREAM_ID): ShuffleGrouping() for source in sources}
        components[component] = _system_bolt(component, MetricsConsumerBolt(entry), bolts[component], inputs)
    for spec in components.values():
        spec.outputs[METRICS_STREAM_ID] = StreamInfo(Fields("task_info", "data_points"))
        spec.outputs[SYSTEM_STREAM_ID] = StreamInfo(Fields("event"))
    return StormTopology(components, topology.worker_hooks)


def _add_acker(components: dict[str, ComponentSpec], executors: int, conf: Mapping[str, Any], obj: Component) -> ComponentSpec:
    by_id = FieldsGrouping(Fields("id"))
    tick = {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: conf[Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS]}
    answer = StreamInfo(Fields("id", "time_delta_ms"), direct=True)
    answers = (ACKER_ACK_STREAM_ID, ACKER_FAIL_STREAM_ID, ACKER_RESET_TIMEOUT_STREAM_ID)
    acker = ComponentSpec(ACKER_COMPONENT_ID, "bolt", obj, executors, conf={Config.TOPOLOGY_TASKS: executors, **tick}, outputs=dict.fromkeys(answers, answer))
    for spec in components.values():
        if spec.kind == "spout":
            spec.conf.update(tick)
            spec.outputs[ACKER_INIT_STREAM_ID] = StreamInfo(Fields("id", "init_val", "spout_task"))
            acker.inputs[GlobalStreamId(spec.id, ACKER_INIT_STREAM_ID)] = by_id
            for stream in answers:
                spec.inputs[GlobalStreamId(ACKER_COMPONENT_ID, stream)] = DirectGrouping()
        else:
            spec.outputs[ACKER_ACK_STREAM_ID] = StreamInfo(Fields("id", "ack_val"))
            spec.outputs[ACKER_FAIL_STREAM_ID] = StreamInfo(Fields("id"))
            spec.outputs[ACKER_RESET_TIMEOUT_STREAM_ID] = StreamInfo(Fields("id"))
            for stream in answers:
                acker.inputs[GlobalStreamId(spec.id, stream)] = by_id
    return acker
