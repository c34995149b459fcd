"""The parts that the system adds to a user's topology: system streams and the acker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dskype.topology.config import DEFAULTS, Config, merge
from dskype.topology.fields import Fields, GlobalStreamId, StreamInfo
from dskype.topology.groupings import DirectGrouping, FieldsGrouping
from dskype.topology.model import Component, ComponentSpec, StormTopology
from dskype.topology.planning.acker import (
    ACKER_ACK_STREAM_ID,
    ACKER_COMPONENT_ID,
    ACKER_FAIL_STREAM_ID,
    ACKER_INIT_STREAM_ID,
    ACKER_RESET_TIMEOUT_STREAM_ID,
    Acker,
)

__all__ = ["with_system"]

SYSTEM_STREAM_ID = "__system"
METRICS_STREAM_ID = "__metrics"


def with_system(topology: StormTopology, conf: Mapping[str, Any] | None = None, acker: Component | None = None) -> StormTopology:
    """Return the user's topology with the system streams and, unless it is switched off, the acker.

    Each component gets the streams ``__system`` and ``__metrics``. With ackers, spouts emit ``__ack_init``, bolts
    ``__ack_ack``, ``__ack_fail`` and ``__ack_reset_timeout``, all with fields grouping on ``id`` to the bolt
    ``__acker``. It answers the spouts on direct streams. Acker and spouts get ticks every
    ``topology.message.timeout.secs``.

    :param conf: the topology's configuration. ``topology.acker.executors`` None means as many as workers; 0 means no
        acker.
    :param acker: the acker's implementation; default :class:`~dskype.topology.planning.acker.Acker`.
    """
    if ACKER_COMPONENT_ID in topology.components:
        return topology
    full = merge(DEFAULTS, conf)
    components = {c.id: replace(c, conf=dict(c.conf), outputs=dict(c.outputs), inputs=dict(c.inputs)) for c in topology.components.values()}
    ackers = full[Config.TOPOLOGY_ACKER_EXECUTORS]
    if ackers is None:
        ackers = full[Config.TOPOLOGY_WORKERS] or 1
    if ackers > 0:
        components[ACKER_COMPONENT_ID] = _add_acker(components, ackers, full, acker or Acker())
    for spec in components.values():
        spec.outputs[METRICS_STREAM_ID] = StreamInfo(Fields("task_info", "data_points"))
        spec.outputs[SYSTEM_STREAM_ID] = StreamInfo(Fields("event"))
    return StormTopology(components)


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
