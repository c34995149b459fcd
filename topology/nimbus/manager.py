"""Manages topologies: :mod:`~dskype.topology.nimbus.states` decides what to do, a *backend* does it.

This module is independent of the transport; a backend is the simulated topology, or the driver on Spark and Kafka.
"""

from __future__ import annotations

import getpass
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dskype.topology.config import Config
from dskype.topology.core.redaction import redact, redact_text, restore_secrets
from dskype.topology.core.stats import TopologyStats
from dskype.topology.model import StormTopology, is_system_id
from dskype.topology.nimbus.states import Action, Event, Nimbus, Rebalance, TopologyState
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.planning.validation import validate_submission

__all__ = ["Backend", "ManagedTopology", "TopologyManager"]


log = logging.getLogger(__name__)

_REMOVE_AGAIN_MS = 3_000


class Backend(Protocol):
    """Runs one topology."""

    plan: TopologyPlan
    stats: TopologyStats
    warnings: list[str]

    def activate(self) -> None:
        """Let the spouts emit; the first call opens spouts and prepares bolts."""

    def deactivate(self) -> None:
        """Pause the spouts."""

    def rebalance(self, plan: TopologyPlan) -> None:
        """Continue with the same tasks on other executors and workers."""

    def debug(self, percents: Mapping[str, float]) -> None:
        """Tell the tasks of components which percentage of their tuples goes to the event loggers; without effect before the first activation."""

    def close(self, *, remove: bool) -> None:
        """End the topology; with ``remove``, also remove everything that it has stored."""

    def health(self) -> dict[str, Any]:
        """Return its health: ``{"state", "why", "restarts"}``."""


@dataclass
class ManagedTopology:
    """A topology's state, and the backend that runs it.

    :ivar started_ms: when this process started it, epoch ms; it may have been submitted to an earlier process.
    """

    state: TopologyState
    backend: Backend
    warnings: list[str] = field(default_factory=list)
    started_ms: int = 0

    @property
    def plan(self) -> TopologyPlan:
        """The present topology plan."""
        return self.backend.plan

    @property
    def stats(self) -> TopologyStats:
        """Live statistics."""
        return self.backend.stats


class TopologyManager:
    """Manages the topologies of one process.

    :param make_backend: (plan) -> backend.
    :param now_ms: the clock for waits and uptimes.
    :param on_change: called with the topology whenever its state has changed, and with ``removed=True`` at the end.
    :param local: whether to apply the rules of a local cluster, which accepts a topology without a spout.
    :param resumed: states of topologies that an earlier process ran and that :meth:`submit` resumes.
    """

    def __init__(
        self,
        make_backend: Callable[[TopologyPlan], Backend],
        now_ms: Callable[[], int],
        *,
        on_change: Callable[..., None] = lambda managed, removed=False: None,
        local: bool = True,
        resumed: Iterable[TopologyState] = (),
    ) -> None:
        self._make_backend, self._now_ms, self._on_change, self._local = make_backend, now_ms, on_change, local
        self._resumed = {state.name: state for state in resumed}
        self.nimbus = Nimbus()
        self.topologies: dict[str, ManagedTopology] = {}

    def submit(self, name: str, conf: Mapping[str, Any] | None, topology: StormTopology, *, active: bool = True) -> ManagedTopology:
        """Check and start a topology.

        :param active: False submits it inactive: nothing is opened or prepared before :meth:`activate`.
        :raises InvalidTopologyException, AlreadyAliveException, IllegalArgumentException: see ``validate_submission``.
        """
        warnings = validate_submission(name, conf, topology, self.nimbus.names, local=self._local)
        now = self._now_ms()
        former = self._resumed.get(name)
        resumed = former is not None
        if former is not None:
            state = former
            restore_secrets(state.conf, conf or {})  # raises if one is missing: they are not stored
            # The workers are those of the last rebalance. Everything else is as submitted now; the backend refuses incompatible changes.
            state.conf = {**(conf or {}), **{key: state.conf[key] for key in (Config.TOPOLOGY_WORKERS,) if key in state.conf}}
            del self._resumed[name]
            self.nimbus.adopt(state)
            actions = state.transition("STARTUP", now)
        else:
            state, actions = self.nimbus.submit(name, conf or {}, topology.components, now, active=active, owner=_user())
        try:
            plan = TopologyPlan.build(name, state.id, state.conf, topology)
            if state.executors:
                plan = plan.rebalanced(state.executors)
            managed = ManagedTopology(state, self._make_backend(plan), warnings, now)
        except BaseException:
            self._forget(name)
            raise
        self.topologies[name] = managed
        try:
            if not resumed:
                self._on_change(managed)  # first, so that the topology is known even if this process crashes while it starts
            self._carry_out(managed, actions)
            warnings += managed.backend.warnings
        except BaseException:
            self._forget(name)
            managed.backend.close(remove=not resumed)  # keep what could not be resumed this time
            if resumed:
                self._resumed[name] = state
            else:
                self._on_change(managed, removed=True)
            raise
        return managed

    def get(self, name: str) -> ManagedTopology:
        """Return a topology by its name.

        :raises NotAliveException: there is none.
        """
        self.nimbus.get(name)
        return self.topologies[name]

    def command(self, name: str, event: Event, *, wait_secs: float | None = None, rebalance: Rebalance | None = None) -> None:
        """Apply ACTIVATE, INACTIVATE, REBALANCE or KILL to a topology.

        :raises NotAliveException, TransitionException, InvalidTopologyException, IllegalArgumentException: as in Storm.
        """
        managed = self.get(name)
        self._carry_out(managed, self.nimbus.transition(name, event, self._now_ms(), wait_secs=wait_secs, rebalance=rebalance))
        self.step()

    def execute(self, command: Mapping[str, Any]) -> None:
        """Carry out ``{"name", "event", ...}``: an event of :meth:`command`, or DEBUG with ``percent`` and ``component``.

        :raises TopologyError: as the methods.
        """
        name, event = command["name"], command["event"]
        if event == "DEBUG":
            self.debug(name, command["percent"], command.get("component"))
            return
        rebalance = Rebalance(command.get("workers"), command.get("executors") or {}) if event == "REBALANCE" else None
        self.command(name, event, wait_secs=command.get("wait_secs"), rebalance=rebalance)

    def debug(self, name: str, percent: float, component: str | None = None) -> None:
        """Send a percentage of the tuples that a topology's components emit to its event loggers.

        :param percent: 0..100; 0 switches it off.
        :param component: None: all components that have no percentage of their own.
        :raises NotAliveException, InvalidTopologyException, IllegalArgumentException: see ``TopologyState.set_debug``.
        """
        managed = self.get(name)
        managed.state.set_debug(component, percent)
        self._tell_debug(managed)
        self._on_change(managed)

    def _tell_debug(self, managed: ManagedTopology) -> None:
        managed.backend.debug({c: managed.state.debug_percent(c) for c in managed.state.components})

    def step(self) -> None:
        """Apply the rebalances and removals whose waits are over."""
        for state, actions in self.nimbus.due(self._now_ms()):
            self._carry_out(self.topologies[state.name], actions)

    def _carry_out(self, managed: ManagedTopology, actions: list[Action]) -> None:
        backend = managed.backend
        for action in actions:
            if action.kind == "activate spouts":
                backend.activate()
                if managed.state.debug:  # set before the first activation, or by an earlier driver
                    self._tell_debug(managed)
            elif action.kind == "deactivate spouts":
                backend.deactivate()
            elif action.kind == "apply rebalance":
                backend.rebalance(managed.plan.rebalanced(action.executors, action.workers))
            elif action.kind == "remove":
                try:
                    backend.close(remove=True)
                except Exception:  # for example, the brokers are away: the topology stays KILLED until it can be removed
                    log.exception("topology %s cannot be removed; trying again", managed.state.name)
                    managed.state.due_ms = self._now_ms() + _REMOVE_AGAIN_MS
                    self.nimbus = Nimbus([*(s for s in self.nimbus if s is not managed.state), managed.state])
                    return
                self._forget(managed.state.name)
                self._on_change(managed, removed=True)
                return
        self._on_change(managed)

    def _forget(self, name: str) -> None:
        self.topologies.pop(name, None)
        self.nimbus.forget(name)

    def close(self, *, remove: bool = True) -> None:
        """End every topology at once.

        :raises Exception: the first error; all topologies are closed nevertheless.
        """
        errors: list[Exception] = []
        for managed in list(self.topologies.values()):
            try:
                managed.backend.close(remove=remove)
            except Exception as error:
                errors.append(error)
            self._forget(managed.state.name)
            if remove:
                self._on_change(managed, removed=True)
        if errors:
            raise errors[0]

    def summary(self, name: str) -> dict[str, Any]:
        """Return a topology's line for ``list``."""
        managed = self.get(name)
        state, plan = managed.state, managed.plan
        return {
            "name": state.name,
            "id": state.id,
            "status": state.status,
            "owner": state.owner,
            "num_tasks": plan.num_tasks,
            "num_workers": plan.used_workers,
            "num_executors": plan.total_executors,
            "uptime_secs": max(0, (self._now_ms() - managed.started_ms) // 1000),
            "started_ms": managed.started_ms,
            "submitted_ms": state.submitted_ms,
            "health": managed.backend.health(),
        }

    def info(self, name: str, *, system: bool = False) -> dict[str, Any]:
        """Return a topology's summary with its components, executors, counters and errors.

        :param system: include system components.
        """
        managed = self.get(name)
        plan, stats = managed.plan, managed.stats
        components: dict[str, Any] = {}
        for component in plan.component_ids:
            if is_system_id(component) and not system:
                continue
            counters = {c: stats.total(component, c) for c in ("emitted", "transferred", "executed", "acked", "failed", "dead_letters")}
            latencies = {f"{kind}_latency_ms": stats.mean_latency_ms(component, kind) for kind in ("execute", "process", "complete")}
            components[component] = {
                "kind": plan.spec(component).kind,
                "tasks": list(plan.component_tasks(component)),
                "executors": plan.executors(component),
                "capacity": stats.capacity(component),
                **counters,
                **latencies,
            }
        errors: dict[str, list[dict[str, Any]]] = {}
        for error in list(stats.errors):
            errors.setdefault(error["component"], []).append({**error, "error": redact_text(error["error"])})
        return {**self.summary(name), "conf": redact(plan.conf), "components": components, "errors": errors}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
