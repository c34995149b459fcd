"""The answers of Storm's UI about the whole cluster.

A machine that runs a topology stands for a supervisor, and each of its workers for a slot that is taken: Spark decides what else a machine can
run. Memory and processors are not assigned here, so these numbers are 0.
"""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Any

from dskype.topology.config import DEFAULTS
from dskype.topology.core.redaction import redact
from dskype.topology.planning.outline import ExecutorOutline
from dskype.topology.ui.formats import encoded, lapsed
from dskype.topology.ui.progress import Pace, Progress
from dskype.topology.ui.view import ClusterSource, TopologyView

__all__ = [
    "cluster_configuration",
    "cluster_summary",
    "health",
    "history_summary",
    "nimbus_summary",
    "owner_resources",
    "supervisor",
    "supervisor_summary",
    "topology_row",
    "topology_summary",
    "topology_workers",
    "worker_rows",
]

_NO_MEMORY = {"assignedMemOnHeap": 0.0, "assignedMemOffHeap": 0.0, "assignedTotalMem": 0.0, "assignedCpu": 0.0}
_NO_REQUESTS = {"requestedMemOnHeap": 0.0, "requestedMemOffHeap": 0.0, "requestedTotalMem": 0.0, "requestedCpu": 0.0, "requestedGenericResources": ""}


def cluster_configuration() -> dict[str, Any]:
    """Answer ``cluster/configuration``."""
    found: dict[str, Any] = redact(dict(DEFAULTS))
    return found


def cluster_summary(source: ClusterSource, version: str) -> dict[str, Any]:
    """Answer ``cluster/summary``.

    :param version: the version of this software.
    """
    views = source.topologies()
    slots = sum(row["slotsUsed"] for row in _supervisors(views, version))
    return {
        "user": _user(),
        "stormVersion": version,
        "stormVersionInfo": {"version": version, "url": "", "revision": "", "branch": "", "user": "", "date": ""},
        "supervisors": len({v.host for v in views}),
        "topologies": len(views),
        "slotsTotal": slots,
        "slotsUsed": slots,
        "slotsFree": 0,
        "executorsTotal": sum(int(v.summary.get("num_executors") or 0) for v in views),
        "tasksTotal": sum(int(v.summary.get("num_tasks") or 0) for v in views),
        "schedulerDisplayResource": False,
        "totalMem": 0.0,
        "availMem": 0.0,
        "fragmentedMem": 0.0,
        "memAssignedPercentUtil": "0.0",
        "totalCpu": 0.0,
        "availCpu": 0.0,
        "fragmentedCpu": 0.0,
        "cpuAssignedPercentUtil": "0.0",
        "totalGenerics": "",
        "availGenerics": "",
        "bugtracker-url": None,
        "central-log-url": None,
    }


def nimbus_summary(source: ClusterSource, version: str) -> dict[str, Any]:
    """Answer ``nimbus/summary``: the brokers, whose topic keeps the states of topologies.

    While they answer, the first one stands for the leader. Otherwise all are ``Offline``, as in Storm.
    """
    answer = source.contact().answer
    return {
        "nimbuses": [
            {
                "host": host,
                "port": port,
                "status": "Offline" if not answer else "Not a Leader" if i else "Leader",
                "version": version,
                "nimbusUpTime": "",
                "nimbusUpTimeSeconds": 0,
                "nimbusLogLink": "",
            }
            for i, (host, port) in enumerate(source.brokers())
        ]
    }


def topology_row(view: TopologyView, version: str) -> dict[str, Any]:
    """Return what the list of topologies says about one, and its page as well."""
    summary = view.summary
    health = view.health
    return {
        "id": view.id,
        "encodedId": encoded(view.id),
        "name": view.name,
        "owner": summary.get("owner") or "",
        "status": summary["status"],
        "uptime": lapsed(view.uptime_secs),
        "uptimeSeconds": view.uptime_secs,
        "workersTotal": summary.get("num_workers") or 0,
        "executorsTotal": summary.get("num_executors") or 0,
        "tasksTotal": summary.get("num_tasks") or 0,
        "replicationCount": 1,
        "schedulerInfo": None,
        "topologyVersion": view.conf.get("topology.version"),
        "stormVersion": version,
        "assignedGenericResources": "",
        **_NO_MEMORY,
        **_NO_REQUESTS,
        "driverAlive": view.alive,
        "health": {"state": health["state"], "why": health["why"], "restarts": health["restarts"]},
        "submittedTime": view.submitted_ms // 1000,
        "ageSeconds": view.age_secs,
        "reportAgeSeconds": view.report_age_secs,
    }


_SOON_SECS = 600
"""A topology that catches up within this time needs nothing."""
_REPORTS_OLD_SECS = 10
"""A topology that is active has reports every second. Numbers that are older than this are shown as old."""


def health(source: ClusterSource, progress: Progress) -> dict[str, Any]:
    """Answer ``health``: whether the brokers answer the server, how every topology is, and what is wrong, in sentences for the pages. It does not block.

    :param progress: has noted where the spouts were at earlier questions.
    """
    contact = source.contact()
    views = source.topologies() if contact.heard_ms is not None else []
    problems = []
    if contact.answer is False:
        asks = "Are they up, and are their address and the security settings right?"
        hint = asks if contact.heard_ms is None else "Are they up, and does the network reach them? What is shown is from that time."
        cause = f" ({contact.why})" if contact.why else ""
        what = f"{contact.as_text().capitalize()}{cause}. {hint} The pages go on by themselves when the brokers answer."
        problems.append(_problem("unknown", what, contact.heard_ms, numbers_old=True))
    paces = progress.look(views) if contact.answer else {}
    for view in views if contact.answer else ():
        problems += _problems_of(view, paces.get(view.id))
    return {
        "brokers": {"answer": contact.answer, "heardMs": contact.heard_ms, "silentSeconds": round(contact.silent_s, 1)},
        "topologies": [_state_of(view, paces.get(view.id)) for view in views],
        "problems": problems,
    }


def _state_of(view: TopologyView, pace: Pace | None) -> dict[str, Any]:
    found = {"id": view.id, "name": view.name, "status": view.summary["status"], "health": view.health, "reportAgeSeconds": view.report_age_secs}
    return {
        **found,
        "waiting": None if pace is None else pace.waiting,
        "takenPerSecond": None if pace is None or pace.taken_per_s is None else round(pace.taken_per_s, 1),
    }


def _problem(state: str, what: str, since_ms: int | None, topology: str | None = None, *, numbers_old: bool = False) -> dict[str, Any]:
    """Return a problem.

    :param state: ``stuck``, ``behind`` or ``unknown``.
    """
    return {"state": state, "what": what, "sinceMs": since_ms, "topology": topology, "numbersOld": numbers_old}


def _problems_of(view: TopologyView, pace: Pace | None) -> list[dict[str, Any]]:
    found, age_secs = view.health, view.report_age_secs
    since_ms = None if view.silent_s is None else view.now_ms - int(view.silent_s * 1000)
    if found["state"] not in ("starting", "running"):
        return [_problem("stuck", f"Topology {view.name} is {found['state']}: {'; '.join(found['why'])}", since_ms, view.id)]
    if view.summary["status"] != "ACTIVE" or found["state"] != "running":
        return []
    if age_secs is not None and age_secs > _REPORTS_OLD_SECS:
        what = f"The tasks of topology {view.name} have reported nothing for {age_secs:.0f} s; its numbers are from then."
        return [_problem("unknown", what, view.now_ms - int(age_secs * 1000), view.id, numbers_old=True)]
    if pace is None or pace.state == "running":
        return []
    busiest = _busiest(view)
    if pace.state == "stuck":
        what = f"Topology {view.name} is stuck: {pace.waiting:,} records wait, and its spouts have taken none for half a minute. Its logs may say why; 'dskype status' shows what waits for what."
        return [_problem("stuck", what, pace.since_ms, view.id)]
    surplus = (pace.taken_per_s or 0) - (pace.coming_per_s or 0)
    if surplus > 0 and pace.waiting / surplus < _SOON_SECS:
        hint = f"It catches up in about {pace.waiting / surplus:,.0f} s."
    elif busiest is None:
        hint = "Give it more executors, or a machine with more processors."
    else:
        name, share = busiest
        hint = f"Its busiest bolt is {name}, {share:.0%} of the time: give it more executors ('dskype rebalance {view.name} -e {name}=N'), or a machine with more processors."
    return [_problem("behind", f"Topology {view.name} is behind: {pace.as_text()}. {hint}", pace.since_ms, view.id)]


def _busiest(view: TopologyView) -> tuple[str, float] | None:
    """Return the bolt that is busy for the greatest share of the time, and the share; None if no bolt has measured it."""
    name, share = max(((bolt, view.capacity(bolt)) for bolt in view.plan.ids(kind="bolt")), key=lambda pair: pair[1], default=("", 0.0))
    return (name, share) if share > 0 else None


def topology_summary(source: ClusterSource, version: str) -> dict[str, Any]:
    """Answer ``topology/summary``."""
    return {"topologies": [topology_row(v, version) for v in source.topologies()], "schedulerDisplayResource": False}


def _ports(view: TopologyView) -> dict[int, dict[str, list[ExecutorOutline]]]:
    """Return port -> component -> its executors on that worker."""
    found: dict[int, dict[str, list[ExecutorOutline]]] = {}
    for component, outline in view.plan.components.items():
        for executor in outline.executors:
            found.setdefault(executor.port, {}).setdefault(component, []).append(executor)
    return dict(sorted(found.items()))


def worker_rows(view: TopologyView, *, system: bool = False) -> list[dict[str, Any]]:
    """Return the workers of a topology.

    :param system: whether to count the tasks of system components.
    """
    shown = set(view.plan.ids(system=system))
    return [
        {
            "topologyId": view.id,
            "topologyName": view.name,
            "owner": view.summary.get("owner") or "",
            "host": view.host,
            "supervisorId": view.host,
            "workerId": f"{view.id}-{port}",
            "port": port,
            "workerLogLink": "",
            "uptime": lapsed(view.uptime_secs),
            "uptimeSeconds": view.uptime_secs,
            "executorsTotal": sum(map(len, components.values())),
            "componentNumTasks": {c: sum(len(e.tasks) for e in executors) for c, executors in sorted(components.items()) if c in shown},
            **_NO_MEMORY,
        }
        for port, components in _ports(view).items()
    ]


def topology_workers(view: TopologyView) -> dict[str, Any]:
    """Answer ``topology-workers/{id}``."""
    return {"hostPortList": [{"host": view.host, "port": port} for port in _ports(view)], "logviewerPort": 0}


def _supervisors(views: Sequence[TopologyView], version: str) -> list[dict[str, Any]]:
    rows = []
    for host in sorted({v.host for v in views}):
        here = [v for v in views if v.host == host]
        slots, uptime_secs = sum(len(_ports(v)) for v in here), max(v.uptime_secs for v in here)
        rows.append(
            {
                "id": host,
                "host": host,
                "uptime": lapsed(uptime_secs),
                "uptimeSeconds": uptime_secs,
                "slotsTotal": slots,
                "slotsUsed": slots,
                "slotsFree": 0,
                "totalMem": 0.0,
                "usedMem": 0.0,
                "availMem": 0.0,
                "totalCpu": 0.0,
                "usedCpu": 0.0,
                "availCpu": 0.0,
                "totalGenericResources": "",
                "usedGenericResources": "",
                "availGenericResources": "",
                "version": version,
                "blacklisted": False,
                "logLink": "",
                "schedulerDisplayResource": False,
            }
        )
    return rows


def supervisor_summary(source: ClusterSource, version: str) -> dict[str, Any]:
    """Answer ``supervisor/summary``."""
    return {"supervisors": _supervisors(source.topologies(), version), "schedulerDisplayResource": False, "logviewerPort": 0}


def supervisor(source: ClusterSource, version: str, host: str, *, system: bool = False) -> dict[str, Any]:
    """Answer ``supervisor``: one machine and its workers.

    :param host: the machine; its name is its id, too.
    """
    views = [v for v in source.topologies() if v.host == host]
    return {
        "supervisors": _supervisors(views, version),
        "schedulerDisplayResource": False,
        "workers": [row for v in views for row in worker_rows(v, system=system)],
    }


def owner_resources(source: ClusterSource, owner: str | None, version: str) -> dict[str, Any]:
    """Answer ``owner-resources`` and ``owner-resources/{id}``."""
    views = source.topologies()
    owners = sorted({str(v.summary.get("owner") or "") for v in views}) if owner is None else [owner]
    rows = []
    for name in owners:
        mine = [v for v in views if (v.summary.get("owner") or "") == name]
        rows.append(
            {
                "owner": name,
                "totalTopologies": len(mine),
                "totalExecutors": sum(int(v.summary.get("num_executors") or 0) for v in mine),
                "totalWorkers": sum(int(v.summary.get("num_workers") or 0) for v in mine),
                "totalTasks": sum(int(v.summary.get("num_tasks") or 0) for v in mine),
                "totalMemoryUsage": 0.0,
                "totalCpuUsage": 0.0,
                "totalReqOnHeapMem": 0.0,
                "totalReqOffHeapMem": 0.0,
                "totalReqMem": 0.0,
                "totalReqCpu": 0.0,
                "totalAssignedOnHeapMem": 0.0,
                "totalAssignedOffHeapMem": 0.0,
                "memoryGuarantee": "N/A",
                "memoryGuaranteeRemaining": "N/A",
                "cpuGuarantee": "N/A",
                "cpuGuaranteeRemaining": "N/A",
                "isolatedNodes": "N/A",
            }
        )
    found: dict[str, Any] = {"schedulerDisplayResource": False}
    if owner is None:
        return {**found, "owners": rows}
    topologies = [topology_row(v, version) for v in views if (v.summary.get("owner") or "") == owner]
    return {**found, **rows[0], "owners": rows, "topologies": topologies}


def history_summary(source: ClusterSource) -> dict[str, Any]:
    """Answer ``history/summary``."""
    return {"topo-history": [v.id for v in source.topologies()]}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
