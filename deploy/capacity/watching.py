"""Watches a running topology for some seconds, and takes the measures that the rules of ``dskype advise`` need.

Nothing counts that was not just seen: a task's numbers are the growth between two of its reports that both came while this process watched, or were the newest
when it began. All times of an executor are by its own clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from dskype.deploy.capacity.rules import ComponentLoad, Measures, Processors
from dskype.deploy.metrics.meter import Meter, consumer_lag, in_flight
from dskype.deploy.metrics.reader import MetricsReader, observed
from dskype.topology.errors import TopologyError
from dskype.topology.planning.outline import ComponentOutline, PlanOutline
from dskype.topology.runtime.nimbus.nimbus_topic import Observed

__all__ = ["NotRunningError", "Watched", "await_executors", "hosts_between", "watch"]

_STEP_MS = 500
_LEAST_S = 1.0
"""Between two reports of a task there must be so much time for a share."""
_REBALANCED_S, _ASK_EVERY_S = 180.0, 1.0


class NotRunningError(TopologyError):
    """The topology does not run, or not so that its figures say anything."""


class Watched(NamedTuple):
    """A topology that was watched."""

    id: str
    measures: Measures


class _Host(NamedTuple):
    """What an executor said of its host: its name, how many processors it has, and the time that these have used and had since its start."""

    name: str
    processors: int
    used: float
    had: float


class _Reports(Meter):
    """A meter that also adds up how long each executor has handled micro-batches, and keeps what it said of its host."""

    def __init__(self, window_s: float) -> None:
        super().__init__(window_s)
        self.handled_ms: dict[tuple[str, int], float] = {}
        self.hosts: dict[tuple[str, int], _Host] = {}
        self._last_ms: dict[tuple[str, int], int] = {}

    def feed_record(self, record: dict[str, Any]) -> None:
        """Add a parsed record."""
        super().feed_record(record)
        if record.get("kind") == "stats" and record.get("batch_ms") is not None:
            executor = str(record["component"]), int(record["executor"])
            if record["time_ms"] > self._last_ms.get(executor, 0):  # the driver writes old records again, and an executor may repeat one
                self._last_ms[executor] = record["time_ms"]
                self.handled_ms[executor] = self.handled_ms.get(executor, 0.0) + record["batch_ms"]
                self._note_host(executor, record.get("host"))

    def _note_host(self, executor: tuple[str, int], told: Any) -> None:
        if isinstance(told, Mapping) and told.keys() >= {"name", "processors", "used", "had"}:  # executors of earlier versions say nothing of it
            self.hosts[executor] = _Host(str(told["name"]), int(told["processors"]), float(told["used"]), float(told["had"]))


class _Moment(NamedTuple):
    """What was known at one moment: the newest report of each task, how long executors have handled batches, what they said of their hosts, and what waits."""

    tasks: dict[int, dict[str, Any]]
    handled_ms: dict[tuple[str, int], float]
    hosts: dict[tuple[str, int], _Host]
    waiting: dict[str, int]


def running(kafka: Any, topology: str | None) -> Observed:
    """Return a topology that is active and runs, as its driver has just said.

    :raises NotRunningError, NotAliveException, TopologyError: there is none, or it does not run.
    """
    found = observed(kafka, topology)
    name, status, health = found.record["state"]["name"], found.record["summary"]["status"], found.health
    if not found.alive or health["state"] != "running":
        why = "; ".join(health["why"]) or health["state"]
        raise NotRunningError(f"Topology {name} does not run, so there are no figures of now.", given=health["state"], legal="running", hint=why)
    if status != "ACTIVE":
        raise NotRunningError(
            f"Topology {name} takes no messages now, so its figures say nothing.", given=status, legal="ACTIVE", hint=f"dskype activate {name}"
        )
    return found


def watch(kafka: Any, topology: str | None, seconds: float) -> Watched:
    """Watch a topology.

    :param topology: its name; None: the only one.
    :param seconds: how long.
    :raises NotRunningError: it does not run, no task has reported, or it was changed meanwhile.
    """
    seen = running(kafka, topology)
    name = str(seen.record["state"]["name"])
    try:
        plan = PlanOutline.from_json(seen.record["plan"])
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise NotRunningError(f"The record of topology {name} does not say which executors it has.", given=type(error).__name__) from error
    reports = _Reports(seconds)
    source = MetricsReader(kafka, name, reports)
    try:
        source.catch_up()
        moments = [_moment(source, reports)]
        began = time.monotonic()
        for part in (0.5, 1.0):
            while (left := began + seconds * part - time.monotonic()) > 0:
                source.poll(max(1, min(_STEP_MS, int(left * 1000))))
            moments.append(_moment(source, reports))
        elapsed = time.monotonic() - began
        uneven = reports.distribution()
    finally:
        source.close()
    after = running(kafka, name)
    if (after.record["state"]["id"], after.record.get("plan")) != (seen.record["state"]["id"], seen.record["plan"]):
        raise NotRunningError(f"Topology {name} was changed while it was watched.", hint="ask again")
    measures = _measures(name, plan, moments, elapsed, seen.record["state"]["conf"], uneven)
    if not any(task["time_ms"] > moments[0].tasks.get(id, task)["time_ms"] for id, task in moments[-1].tasks.items()):
        newest = reports.stats.newest_ms()
        age = "none" if newest is None else f"the newest one is {max(0.0, time.time() - newest / 1000):,.0f} s old"
        raise NotRunningError(
            f"No task of {name} has reported within {elapsed:.0f} s.", given=age, hint="'dskype get-errors' and the logs say more; advice needs figures of now"
        )
    return Watched(str(seen.record["state"]["id"]), measures)


def await_executors(kafka: Any, topology: str, executors: Mapping[str, int]) -> None:
    """Wait until a topology runs with so many executors.

    :param executors: component -> executors.
    :raises TopologyError: it does not, after three minutes.
    """
    deadline = time.monotonic() + _REBALANCED_S
    while True:
        seen = observed(kafka, topology)
        plan = PlanOutline.from_json(seen.record["plan"])
        now = {component: len(plan.components[component].executors) for component in executors}
        if now == dict(executors) and seen.alive and seen.health["state"] == "running" and seen.record["summary"]["status"] == "ACTIVE":
            return
        if time.monotonic() > deadline:
            raise TopologyError(
                f"Topology {topology} does not run with the executors that it was to get.",
                given={"executors": now, "state": seen.health["state"]},
                legal=str(dict(executors)),
                hint=f"'dskype get-errors {topology}' may say why",
            )
        time.sleep(_ASK_EVERY_S)


def _moment(source: MetricsReader[_Reports], reports: _Reports) -> _Moment:
    lag = consumer_lag(reports, source.ends(reports.positions()))
    waiting = dict(in_flight(reports))
    for task in reports.stats.tasks.values():
        if task.get("kafka"):
            waiting[task["component"]] = sum(
                lag.get(topic, 0) for topic in {place[0] for t in reports.tasks(task["component"]).values() for place in t.get("kafka", ())}
            )
    return _Moment(dict(reports.stats.tasks), dict(reports.handled_ms), dict(reports.hosts), waiting)


def hosts_between(before: Mapping[tuple[str, int], _Host], after: Mapping[tuple[str, int], _Host]) -> dict[str, Processors]:
    """Return host -> how busy its processors were between two moments, as the executor says that has watched it longest.

    :param before: executor -> what it said of its host last; ``after``: the same, later.
    """
    longest: dict[str, tuple[float, Processors]] = {}
    for executor, now in after.items():
        then = before.get(executor)
        if then is not None and then.name == now.name and now.had > then.had:
            busy = max(0.0, min(1.0, (now.used - then.used) / (now.had - then.had)))
            longest[now.name] = max(longest.get(now.name, (0.0, Processors(now.processors, busy))), (now.had - then.had, Processors(now.processors, busy)))
    return {name: found for name, (_, found) in sorted(longest.items())}


def _measures(name: str, plan: PlanOutline, moments: list[_Moment], seconds: float, conf: Mapping[str, Any], roles: tuple[str, str] | None) -> Measures:
    loads, silent = [], dict[str, str]()
    for component in plan.ids():
        found = _load(component, plan.components[component], moments, seconds)
        if isinstance(found, str):
            silent[component] = found
        else:
            loads.append(found)
    return Measures(
        name,
        seconds,
        tuple(loads),
        silent,
        hosts_between(moments[0].hosts, moments[-1].hosts),
        None if roles is None else roles[1],
        str(conf.get("dskype.distributor", "hashing")),
        conf.get("dskype.balance") == "auto",
    )


def _load(component: str, outline: ComponentOutline, moments: list[_Moment], seconds: float) -> ComponentLoad | str:
    """Return what a component did, or why that is not known."""
    first, last = moments[0], moments[-1]
    waiting = tuple(moment.waiting.get(component, 0) for moment in moments)
    executors, taken, executed, execute_ns, heard = [], 0.0, 0, 0, False
    for index, executor in enumerate(outline.executors):
        shares, span_s = [], seconds
        for task in executor.tasks:
            before, after = first.tasks.get(task), last.tasks.get(task)
            if before is None or after is None:
                return f"task {task} has not reported yet"
            if (before["pid"], before["term"]) != (after["pid"], after["term"]):
                return f"the process of task {task} was started again meanwhile"
            own_s = (after["time_ms"] - before["time_ms"]) / 1000
            heard = heard or own_s > 0
            if waiting[2] and own_s < min(_LEAST_S, seconds / 2):
                return f"task {task} has not reported, although {waiting[2]:,} wait for the component"
            # A task that nothing waits for says nothing while it has nothing to do: it was idle for the rest of the time.
            span_s = own_s if waiting[2] else max(own_s, seconds)
            shares.append(max(0, after["busy_ns"] - before["busy_ns"]) / 1e9 / span_s)
            taken += _taken(before, after, outline.kind) / span_s
            executed += after["execute"][0] - before["execute"][0]
            execute_ns += after["execute"][1] - before["execute"][1]
        handled = (last.handled_ms.get((component, index), 0.0) - first.handled_ms.get((component, index), 0.0)) / 1000 / span_s
        executors.append(_with_frames(shares, handled))
    if not heard and outline.kind == "spout":  # it gets pulses, so it always has something to report
        return f"no task has reported within {seconds:.0f} s"
    partitions = sum(len(task.get("kafka", ())) for id, task in last.tasks.items() if any(id in executor.tasks for executor in outline.executors))
    return ComponentLoad(
        component,
        outline.kind,
        tuple(executors),
        (waiting[0], waiting[1], waiting[2]),
        taken,
        execute_ns / executed / 1e6 if executed > 0 else None,
        tuple(sorted({given.grouping for given in outline.inputs if not given.stream.startswith("__")})),
        partitions,
        tuple(found.name if (found := last.hosts.get((component, index))) is not None else None for index in range(len(executors))),
    )


def _with_frames(shares: list[float], handled: float) -> tuple[float, ...]:
    """Return the shares of an executor's tasks with what it does beside their code, such as reading and writing frames, as far as it is known.

    :param handled: the share of the time in which the executor handled micro-batches.
    """
    total = sum(shares)
    if handled <= total:
        return tuple(min(1.0, share) for share in shares)
    handled = min(1.0, handled)
    return tuple(handled * share / total for share in shares) if total else tuple(handled / len(shares) for _ in shares)


def _taken(before: Mapping[str, Any], after: Mapping[str, Any], kind: str) -> float:
    """Return how many records or tuples a task has taken between two reports."""
    if after.get("kafka"):
        was = {(topic, partition): position for topic, partition, position, _ in before.get("kafka", ())}
        return sum(max(0, position - was.get((topic, partition), position)) for topic, partition, position, _ in after["kafka"])
    counter = "emitted" if kind == "spout" else "executed"
    return max(0, _sum(after[counter]) - _sum(before[counter]))


def _sum(counts: Mapping[str, int]) -> int:
    return sum(n for stream, n in counts.items() if not stream.rpartition("/")[2].startswith("__"))
