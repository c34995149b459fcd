"""The answers of Storm's UI about one topology, and about one of its components.

A topology counts completed and failed trees of its spouts, and what all of its components emitted and transferred. The latencies of a bolt are
those of all of its input streams together, and so are the rows of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.topology.planning.outline import ExecutorOutline
from dskype.topology.ui.cluster_answers import topology_row, worker_rows
from dskype.topology.ui.formats import decimal, encoded, lapsed, sanitized_stream
from dskype.topology.ui.view import TopologyView
from dskype.topology.ui.windows import WINDOWS, Counts, Window

__all__ = ["component_page", "lag", "metrics", "topology_page", "visualization"]

_LAST_ERROR_CHARS = 200
_GROUPINGS = {"global": "fields", "partial_key": "custom_serialized", "custom": "custom_serialized"}
"""How Storm names groupings in its wire model, where the names differ."""


def _spout_numbers(counts: Counts) -> dict[str, Any]:
    return {
        "emitted": counts.n("emitted"),
        "transferred": counts.n("transferred"),
        "completeLatency": decimal(counts.mean_ms("complete")),
        "acked": counts.n("acked"),
        "failed": counts.n("failed"),
    }


def _bolt_numbers(counts: Counts) -> dict[str, Any]:
    return {
        "emitted": counts.n("emitted"),
        "transferred": counts.n("transferred"),
        "executed": counts.n("executed"),
        "executeLatency": decimal(counts.mean_ms("execute")),
        "processLatency": decimal(counts.mean_ms("process")),
        "acked": counts.n("acked"),
        "failed": counts.n("failed"),
    }


def _window_name(window: Window) -> dict[str, str]:
    return {"window": window.key, "windowPretty": window.hint}


def _debugging(view: TopologyView, component: str = "") -> dict[str, Any]:
    """Return whether tuples go to the event loggers, and which percentage of them; as in Storm, 10 is proposed while debugging is off."""
    percents = view.record["state"].get("debug") or {}
    percent = percents.get(component, percents.get("", 0.0))
    return {"debug": percent > 0, "samplingPct": percent or 10}


# --- a topology -------------------------------------------------------------------------------------------------------


def topology_page(view: TopologyView, window: Window, version: str, *, system: bool = False) -> dict[str, Any]:
    """Answer ``topology/{id}``.

    :param system: whether to include system components and system streams.
    """
    plan, conf = view.plan, view.conf
    return {
        **topology_row(view, version),
        "msgTimeout": conf.get("topology.message.timeout.secs"),
        **_debugging(view),
        "ackers": view.has_ackers,
        "configuration": conf,
        "schedulerDisplayResource": False,
        "window": window.key,
        "windowHint": window.hint,
        "bugtracker-url": None,
        "central-log-url": None,
        "topologyStats": [_topology_stats(view, w, system) for w in WINDOWS.values()],
        "spouts": [_spout_row(view, c, window, system) for c in plan.ids(system=system, kind="spout")],
        "bolts": [_bolt_row(view, c, window, system) for c in plan.ids(system=system, kind="bolt")],
        "workers": worker_rows(view, system=system),
    }


def _topology_stats(view: TopologyView, window: Window, system: bool) -> dict[str, Any]:
    plan = view.plan
    everything = Counts.total(view.component_counts(c, window, system=system) for c in plan.ids(system=system))
    spouts = Counts.total(view.component_counts(c, window, system=system) for c in plan.ids(kind="spout"))
    return {
        **_window_name(window),
        "emitted": everything.n("emitted"),
        "transferred": everything.n("transferred"),
        "completeLatency": decimal(spouts.mean_ms("complete")),
        "acked": spouts.n("acked"),
        "failed": spouts.n("failed"),
    }


def _component_row(view: TopologyView, component: str) -> dict[str, Any]:
    outline = view.component(component)
    conf = view.conf
    return {
        "executors": len(outline.executors),
        "tasks": outline.num_tasks,
        **_last_error(view, component),
        "requestedMemOnHeap": conf.get("topology.component.resources.onheap.memory.mb") or 0.0,
        "requestedMemOffHeap": conf.get("topology.component.resources.offheap.memory.mb") or 0.0,
        "requestedCpu": conf.get("topology.component.cpu.pcore.percent") or 0.0,
        "requestedGenericResourcesComp": "",
    }


def _spout_row(view: TopologyView, component: str, window: Window, system: bool) -> dict[str, Any]:
    numbers = _spout_numbers(view.component_counts(component, window, system=system))
    return {"spoutId": component, "encodedSpoutId": encoded(component), **_component_row(view, component), **numbers}


def _bolt_row(view: TopologyView, component: str, window: Window, system: bool) -> dict[str, Any]:
    numbers = _bolt_numbers(view.component_counts(component, window, system=system))
    return {
        "boltId": component,
        "encodedBoltId": encoded(component),
        **_component_row(view, component),
        "capacity": decimal(view.capacity(component)),
        **numbers,
    }


def _error(view: TopologyView, component: str, error: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "error": error["error"],
        "errorTime": error["time_ms"] // 1000,
        "errorHost": view.host,
        "errorPort": view.port_of(component, error["task"]),
        "errorLapsedSecs": max(0, (view.now_ms - error["time_ms"]) // 1000),
        "errorWorkerLogLink": "",
    }


def _last_error(view: TopologyView, component: str) -> dict[str, Any]:
    errors = view.errors(component)
    if not errors:
        return {"lastError": "", "errorTime": None, "errorHost": "", "errorPort": "", "errorLapsedSecs": None, "errorWorkerLogLink": ""}
    found = _error(view, component, errors[0])
    text = found.pop("error")
    if text.startswith("Traceback"):  # its last line says what Java's first one says
        text = text.rstrip().rpartition("\n")[2]
    return {"lastError": text[:_LAST_ERROR_CHARS], **found}


# --- a component ------------------------------------------------------------------------------------------------------


def component_page(view: TopologyView, component: str, window: Window, *, system: bool = False) -> dict[str, Any]:
    """Answer ``topology/{id}/component/{component}``.

    :raises NotAliveException: there is no such component.
    """
    component = view.component_id(component)
    outline, conf = view.component(component), view.conf
    spout = outline.kind == "spout"
    numbers = _spout_numbers if spout else _bolt_numbers
    counts = view.component_counts(component, window, system=system)
    by_window = [{**_window_name(w), **numbers(view.component_counts(component, w, system=system))} for w in WINDOWS.values()]
    executors = [_executor_row(view, e, window, spout=spout, system=system) for e in outline.executors]
    found = {
        "id": component,
        "encodedId": encoded(component),
        "name": view.name,
        "topologyId": view.id,
        "encodedTopologyId": encoded(view.id),
        "topologyStatus": view.summary["status"],
        "componentType": outline.kind,
        "executors": len(outline.executors),
        "tasks": outline.num_tasks,
        "window": window.key,
        "windowHint": window.hint,
        **_debugging(view, component),
        "ackers": view.has_ackers,
        "eventLogLink": "",
        "profilingAndDebuggingCapable": False,
        "profileActionEnabled": False,
        "profilerActive": [],
        "schedulerDisplayResource": False,
        "requestedMemOnHeap": conf.get("topology.component.resources.onheap.memory.mb") or 0.0,
        "requestedMemOffHeap": conf.get("topology.component.resources.offheap.memory.mb") or 0.0,
        "requestedCpu": conf.get("topology.component.cpu.pcore.percent") or 0.0,
        "requestedGenericResources": "",
        "user": view.summary.get("owner") or "",
        "outputStats": _outputs(counts, spout=spout),
        "executorStats": executors,
        "componentErrors": [_error(view, component, e) for e in view.errors(component)],
    }
    if spout:
        return {**found, "spoutSummary": by_window}
    return {**found, "boltStats": by_window, "inputStats": _inputs(counts)}


def _outputs(counts: Counts, *, spout: bool) -> list[dict[str, Any]]:
    """Return the rows of a component's output streams."""
    rows = []
    for stream in sorted({*counts.emitted, *counts.transferred, *((*counts.acked, *counts.failed) if spout else ())}):
        row = {"stream": stream, "emitted": counts.emitted.get(stream, 0), "transferred": counts.transferred.get(stream, 0)}
        if spout:
            settled = {"acked": counts.acked.get(stream, 0), "failed": counts.failed.get(stream, 0)}
            row |= {"completeLatency": decimal(counts.mean_ms("complete")) if any(settled.values()) else decimal(0), **settled}
        rows.append(row)
    return rows


def _inputs(counts: Counts) -> list[dict[str, Any]]:
    """Return the rows of a bolt's input streams."""
    rows = []
    for key in sorted({*counts.executed, *counts.acked, *counts.failed}):
        component, _, stream = key.rpartition("/")
        rows.append(
            {
                "component": component,
                "encodedComponentId": encoded(component),
                "stream": stream,
                "executed": counts.executed.get(key, 0),
                "executeLatency": decimal(counts.mean_ms("execute")),
                "processLatency": decimal(counts.mean_ms("process")),
                "acked": counts.acked.get(key, 0),
                "failed": counts.failed.get(key, 0),
            }
        )
    return rows


def _executor_row(view: TopologyView, executor: ExecutorOutline, window: Window, *, spout: bool, system: bool) -> dict[str, Any]:
    counts = view.counts(executor.tasks, window, system=system)
    row = {
        "id": f"[{executor.first_task}-{executor.last_task}]",
        "encodedId": encoded(f"[{executor.first_task}-{executor.last_task}]"),
        "uptime": lapsed(view.uptime_secs),
        "uptimeSeconds": view.uptime_secs,
        "host": view.host,
        "port": executor.port,
        "workerLogLink": "",
    }
    if spout:
        return {**row, **_spout_numbers(counts)}
    return {**row, **_bolt_numbers(counts), "capacity": decimal(view.executor_capacity(executor))}


# --- the graph, the lag, the metrics ----------------------------------------------------------------------------------


def visualization(view: TopologyView, *, system: bool = False) -> dict[str, Any]:
    """Answer ``topology/{id}/visualization``; keys begin with a colon, as in Storm."""
    plan = view.plan
    shown = plan.ids(system=system)
    found = {}
    for component in shown:
        outline = plan.components[component]
        spout = outline.kind == "spout"
        everything = view.component_counts(component, system=system)
        found[component] = {
            ":type": outline.kind,
            ":capacity": "0" if spout else decimal(view.capacity(component)),
            ":latency": decimal(everything.mean_ms("complete" if spout else "process")),
            ":transferred": {w.key: _sanitized(view.component_counts(component, w, system=system)) for w in WINDOWS.values()},
            ":link": f"component.html?id={encoded(component)}&topology_id={encoded(view.id)}",
            ":inputs": [
                {
                    ":component": given.component,
                    ":stream": given.stream,
                    ":sani-stream": sanitized_stream(given.stream),
                    ":grouping": _GROUPINGS.get(given.grouping, given.grouping),
                }
                for given in outline.inputs
                if given.component in shown and (system or not given.stream.startswith("__"))
            ],
            ":stats": [
                {
                    ":host": view.host,
                    ":port": executor.port,
                    ":uptime_secs": view.uptime_secs,
                    ":transferred": {w.key: _sanitized(view.counts(executor.tasks, w, system=system)) for w in WINDOWS.values()},
                }
                for executor in outline.executors
            ],
        }
    return found


def _sanitized(counts: Counts) -> dict[str, int]:
    found: dict[str, int] = {}
    for stream, n in counts.transferred.items():
        name = sanitized_stream(stream)
        found[name] = found.get(name, 0) + n
    return found


def lag(view: TopologyView) -> dict[str, Any]:
    """Answer ``topology/{id}/lag``: how far the Kafka spouts are behind the ends of their topics."""
    found: dict[str, Any] = {}
    reports = list(view.reports.stats.tasks.values())
    for component in view.plan.ids(kind="spout"):
        topics: dict[str, dict[str, Any]] = {}
        for report in reports:
            if report.get("component") != component:
                continue
            for topic, partition, _, committed in report.get("kafka") or ():
                head = view.ends.get((topic, partition))
                if head is not None:
                    topics.setdefault(topic, {})[str(partition)] = {
                        "logHeadOffset": head,
                        "consumerCommittedOffset": committed,
                        "lag": max(0, head - committed),
                    }
        if topics:
            found[component] = {"spoutId": component, "spoutType": "KAFKA", "spoutLagResult": topics}
    return found


def metrics(view: TopologyView, window: Window, *, system: bool = False) -> dict[str, Any]:
    """Answer ``topology/{id}/metrics``: the counts of each component by stream."""
    spouts, bolts = [], []
    for component in view.plan.ids(system=system):
        counts = view.component_counts(component, window, system=system)
        if view.component(component).kind == "spout":
            spouts.append(
                {
                    "id": component,
                    **{name: _by_stream(getattr(counts, name)) for name in ("emitted", "transferred", "acked", "failed")},
                    "complete_ms_avg": [{"stream_id": s, "value": decimal(counts.mean_ms("complete"))} for s in sorted({*counts.acked, *counts.failed})],
                }
            )
            continue
        bolts.append(
            {
                "id": component,
                **{name: _by_stream(getattr(counts, name)) for name in ("emitted", "transferred")},
                **{name: _by_input(getattr(counts, name)) for name in ("acked", "failed", "executed")},
                "executed_ms_avg": _by_input(dict.fromkeys(counts.executed, decimal(counts.mean_ms("execute")))),
                "process_ms_avg": _by_input(dict.fromkeys(counts.acked, decimal(counts.mean_ms("process")))),
            }
        )
    return {"window": window.key, "windowHint": window.hint, "spouts": spouts, "bolts": bolts}


def _by_stream(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"stream_id": stream, "value": value} for stream, value in sorted(values.items())]


def _by_input(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"component_id": component, "stream_id": stream, "value": value}
        for component, stream, value in sorted((*key.rpartition("/")[::2], value) for key, value in values.items())
    ]
