"""What the UI knows: the record of each topology in the nimbus topic, and what its tasks have reported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from dskype.topology.config import DEFAULTS, merge
from dskype.topology.core.redaction import redact, redact_text
from dskype.topology.core.stats import TopologyStats
from dskype.topology.errors import NotAliveException, TopologyError, explain
from dskype.topology.nimbus.observing import Contact, seen_health, started_ms
from dskype.topology.planning.acker_streams import ACKER_COMPONENT_ID
from dskype.topology.planning.outline import ComponentOutline, ExecutorOutline, PlanOutline
from dskype.topology.ui.formats import encoded
from dskype.topology.ui.timeline import Timeline
from dskype.topology.ui.windows import ALL_TIME, WINDOWS, CounterHistory, Counts, Window

__all__ = ["BrokersAwayError", "ClusterSource", "Reports", "TopologyView", "find"]

_CAPACITY_SECS = 600


class BrokersAwayError(TopologyError):
    """The brokers do not answer the server."""

    retriable = True

    @classmethod
    def after(cls, contact: Contact, servers: str) -> BrokersAwayError:
        """Return the error for brokers that have been silent for some time.

        :param servers: their addresses.
        """
        hint = f"{contact.why}; " if contact.why else ""
        return cls(explain("The brokers do not answer.", given=servers, hint=f"{hint}{contact.as_text()}; are they up? The server goes on asking"))


class Reports:
    """What the tasks of a topology have reported; fed with the records of its metrics topic.

    :ivar stats: the newest reports, and the last errors.
    :ivar history: counts over time.
    :ivar timeline: what happened.
    :ivar expired: topic -> records that Kafka has dropped by age or size; the reader sets it.
    """

    def __init__(self) -> None:
        self.stats, self.history, self.timeline = TopologyStats(), CounterHistory(), Timeline()
        self.expired: dict[str, int] = {}

    def positions(self) -> dict[str, dict[tuple[str, int], int]]:
        """Return where the topology's Kafka spouts are; see :meth:`TopologyStats.positions`."""
        return self.stats.positions()

    def feed(self, value: bytes | None) -> None:
        """Add a record; an unreadable one is ignored. A topology that was submitted again starts afresh."""
        try:
            self.feed_record(json.loads(value or b""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # anyone may write to the topic
            self.stats.unreadable += 1

    def feed_record(self, record: dict[str, Any]) -> None:
        """Add a parsed record; raise one of several errors if it is no record of metrics."""
        if record.get("kind") == "stats":
            if self.stats.topology_id not in (None, record["topology"]):
                self.stats, self.history = TopologyStats(), CounterHistory()
            self.history.add_record(record)
        self.stats.feed_record(record)
        self.timeline.feed(record)


@dataclass(frozen=True)
class TopologyView:
    """One topology at one moment.

    :param record: its record in the nimbus topic.
    :param reports: what its tasks have reported.
    :param alive: whether its driver is alive; None: not known yet.
    :param now_ms: the moment.
    :param ends: (topic, partition) -> next offset, for what its Kafka spouts read.
    :param logs: the folder with the logs of its executors; None: it is on other machines, or not known.
    :param silent_s: for how many seconds its driver has written nothing, if that is long.
    :param contact: whether the brokers answer; None: they have just answered.
    """

    record: Mapping[str, Any]
    reports: Reports
    alive: bool | None
    now_ms: int
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    logs: Path | None = None
    silent_s: float | None = None
    contact: Contact | None = None

    @property
    def id(self) -> str:
        """Its id, ``name-counter-epochSecs``."""
        return str(self.record["state"]["id"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.record["state"]["name"])

    @property
    def summary(self) -> Mapping[str, Any]:
        """Its line for ``list``."""
        found: Mapping[str, Any] = self.record["summary"]
        return found

    @property
    def host(self) -> str:
        """Where its driver runs."""
        return str(self.record["driver"]["host"])

    @property
    def submitted_ms(self) -> int:
        """When it was submitted."""
        return int(self.record["state"]["submitted_ms"])

    @property
    def age_secs(self) -> int:
        """Seconds since it was submitted."""
        return max(0, (self.now_ms - self.submitted_ms) // 1000)

    @property
    def uptime_secs(self) -> int:
        """Seconds since the process that runs it started it."""
        return max(0, (self.now_ms - started_ms(self.record)) // 1000)

    @property
    def health(self) -> dict[str, Any]:
        """Its health as far as the server has just seen it: ``{"state", "why", "restarts"}``."""
        return seen_health(self.summary.get("health"), self.alive, self.silent_s, self.contact)

    @property
    def report_age_secs(self) -> float | None:
        """How old the newest report of a task is, in seconds; None without any. The clocks of two hosts may differ by some of it."""
        newest_ms = self.reports.stats.newest_ms()
        return None if newest_ms is None else max(0.0, (self.now_ms - newest_ms) / 1000)

    @property
    def has_ackers(self) -> bool:
        """Whether trees of tuples are followed: without ackers nothing is acked, and latencies of trees are not known."""
        return ACKER_COMPONENT_ID in self.plan.components

    @cached_property
    def conf(self) -> dict[str, Any]:
        """Its configuration with defaults, without secrets."""
        found: dict[str, Any] = redact(merge(DEFAULTS, self.record["state"].get("conf")))
        return found

    @cached_property
    def plan(self) -> PlanOutline:
        """Its components; none if the record is of a version that did not write them, or malformed."""
        try:
            return PlanOutline.from_json(self.record["plan"])
        except (KeyError, ValueError, TypeError, AttributeError):
            return PlanOutline({})

    def component(self, component: str) -> ComponentOutline:
        """Return a component.

        :raises NotAliveException: there is none of that id.
        """
        return self.plan.components[self.component_id(component)]

    def component_id(self, given: str) -> str:
        """Return the id of a component that is named by it, or by the encoded one.

        :raises NotAliveException: there is none.
        """
        for component in self.plan.components:
            if given in (component, encoded(component)):
                return component
        msg = f"component {given!r} is not part of topology {self.name!r}"
        raise NotAliveException(msg)

    # -- numbers ----------------------------------------------------------------------------------

    def counts(self, tasks: Iterable[int], window: Window = ALL_TIME, *, system: bool = True) -> Counts:
        """Return what tasks did within a window.

        :param system: whether to count system streams.
        """
        found = self.reports.history.counts(tasks, window, self.now_ms, self.submitted_ms)
        return found if system else found.user()

    def component_counts(self, component: str, window: Window = ALL_TIME, *, system: bool = True) -> Counts:
        """Return what a component's tasks did within a window."""
        return self.counts((t for executor in self.component(component).executors for t in executor.tasks), window, system=system)

    def executor_capacity(self, executor: ExecutorOutline) -> float:
        """Return the share of the last ten minutes, or of a shorter life, that an executor has spent in ``execute``."""
        secs = min(_CAPACITY_SECS, self._observed_secs(executor))
        if secs <= 0:
            return 0.0
        counts = self.counts(executor.tasks, WINDOWS[str(_CAPACITY_SECS)])
        return counts.n("executed") * counts.mean_ms("execute") / 1000 / secs

    def _observed_secs(self, executor: ExecutorOutline) -> float:
        """Return for how long the counts of an executor are known, up to its life."""
        first = [first for t in executor.tasks if (first := self.reports.history.first_ms.get(t)) is not None]
        born_ms = self.submitted_ms if self.age_secs < _CAPACITY_SECS else min(first, default=self.now_ms)
        return (self.now_ms - born_ms) / 1000

    def capacity(self, component: str) -> float:
        """Return the capacity of a bolt: that of its busiest executor."""
        return max(map(self.executor_capacity, self.component(component).executors), default=0.0)

    # -- errors -----------------------------------------------------------------------------------

    def errors(self, component: str) -> list[dict[str, Any]]:
        """Return a component's last errors as ``{"time_ms", "error", "task"}``, newest first, without secrets."""
        found = [
            {"time_ms": int(e.get("time_ms") or 0), "error": redact_text(str(e.get("error", ""))), "task": e.get("task", -1)}
            for e in list(self.reports.stats.errors)
            if e.get("component") == component
        ]
        return sorted(found, key=lambda e: -e["time_ms"])

    def port_of(self, component: str, task: Any) -> int | None:
        """Return the port of the worker of a task; None if there is no such task."""
        return next((e.port for e in self.component(component).executors if task in e.tasks), None)


class ClusterSource(Protocol):
    """Where the UI gets topologies from, and sends commands to."""

    def topologies(self) -> Sequence[TopologyView]:
        """Return all topologies, sorted by name."""

    def contact(self) -> Contact:
        """Return whether the brokers answer the server; it does not block."""

    def brokers(self) -> Sequence[tuple[str, int]]:
        """Return host and port of the brokers, whose topic keeps the states of topologies."""

    def send(self, command: Mapping[str, Any]) -> None:
        """Send ``{"name", "event", ...}`` to the process that runs a topology, and wait for its answer.

        :raises TopologyError: it was refused, or there was no answer.
        """


def find(source: ClusterSource, topology_id: str) -> TopologyView:
    """Return the topology of an id, or of an encoded one, as ``encodedId`` has it.

    :raises NotAliveException: there is none.
    """
    for view in source.topologies():
        if topology_id in (view.id, encoded(view.id)):
            return view
    raise NotAliveException.for_topology(topology_id)
