"""The life of topologies: states, legal transitions, and the keeper that carries them out.

States and errors are Storm's: ACTIVE, INACTIVE, REBALANCING, KILLED. Nothing here knows a transport; a
*backend* (the simulated topology or the driver on Spark) does what a transition asks for.
"""

from __future__ import annotations

import getpass
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Mapping, Protocol

from dskype.topology.builder import StormTopology, is_system_id
from dskype.topology.config import DEFAULTS, Config, merge
from dskype.topology.core.stats import TopologyStats
from dskype.topology.errors import NotAliveException, TransitionException
from dskype.topology.plan import TopologyPlan
from dskype.topology.validation import validate_submission

__all__ = ["ACTIVE", "INACTIVE", "KILLED", "REBALANCING", "Backend", "Keeper", "ManagedTopology", "TopologyState", "topology_id"]

ACTIVE, INACTIVE, REBALANCING, KILLED = "ACTIVE", "INACTIVE", "REBALANCING", "KILLED"


def topology_id(name: str, counter: int, now_ms: int) -> str:
    """Return Storm's form of a topology id: ``name-counter-epochSecs``."""
    return f"{name}-{counter}-{now_ms // 1000}"


@dataclass
class TopologyState:
    """What is kept of a topology; JSON-able, so that it outlives its driver.

    :ivar status: ACTIVE | INACTIVE | REBALANCING | KILLED.
    :ivar previous: the status to go back to after a rebalance.
    :ivar due_ms: when a rebalance is applied or a killed topology removed.
    :ivar wait_ms: the wait that led to ``due_ms``; armed again after a restart.
    :ivar rebalance: ``{"num_workers": int | None, "executors": {component: int}}`` while REBALANCING.
    """

    id: str
    name: str
    status: str
    conf: dict[str, Any]
    submitted_ms: int
    owner: str = ""
    previous: str | None = None
    due_ms: int | None = None
    wait_ms: int = 0
    rebalance: dict[str, Any] | None = None
    num_tasks: int = 0
    num_workers: int = 1
    num_executors: int = 0

    def _refuse(self, event: str) -> TransitionException:
        return TransitionException(event, self.status, self.id)

    def _arm(self, now_ms: int, wait_secs: float | None) -> None:
        if wait_secs is None:
            wait_secs = self.conf.get(Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS, DEFAULTS[Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS])
        self.wait_ms = int(wait_secs * 1000)
        self.due_ms = now_ms + self.wait_ms

    def activate(self) -> None:
        """ACTIVE or INACTIVE -> ACTIVE.

        :raises TransitionException: in any other state.
        """
        if self.status not in (ACTIVE, INACTIVE):
            raise self._refuse("ACTIVATE")
        self.status = ACTIVE

    def deactivate(self) -> None:
        """ACTIVE or INACTIVE -> INACTIVE.

        :raises TransitionException: in any other state.
        """
        if self.status not in (ACTIVE, INACTIVE):
            raise self._refuse("INACTIVATE")
        self.status = INACTIVE

    def start_rebalance(self, now_ms: int, wait_secs: float | None, options: dict[str, Any]) -> None:
        """ACTIVE or INACTIVE -> REBALANCING, for the wait (default: the message timeout).

        :raises TransitionException: in any other state.
        """
        if self.status not in (ACTIVE, INACTIVE):
            raise self._refuse("REBALANCE")
        self.previous, self.status, self.rebalance = self.status, REBALANCING, options
        self._arm(now_ms, wait_secs)

    def end_rebalance(self) -> None:
        """REBALANCING -> the status before."""
        self.status, self.previous, self.rebalance, self.due_ms = self.previous, None, None, None

    def kill(self, now_ms: int, wait_secs: float | None) -> None:
        """Any state -> KILLED; a second kill arms the wait anew."""
        self.status, self.previous, self.rebalance = KILLED, None, None
        self._arm(now_ms, wait_secs)

    def rearm(self, now_ms: int) -> None:
        """Start a running wait again, after its keeper was restarted."""
        if self.due_ms is not None:
            self.due_ms = now_ms + self.wait_ms

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> TopologyState:
        """Read what :meth:`to_json` gave; unknown keys of a newer version are left out."""
        return cls(**{k: v for k, v in state.items() if k in cls.__dataclass_fields__})


class Backend(Protocol):
    """Runs one topology."""

    plan: TopologyPlan
    stats: TopologyStats

    def activate(self) -> None:
        """Let the spouts emit; the first call opens spouts and prepares bolts."""

    def deactivate(self) -> None:
        """Pause the spouts."""

    def rebalance(self, plan: TopologyPlan) -> None:
        """Go on with another placement of the same tasks."""

    def close(self, *, remove: bool) -> None:
        """End it; with ``remove`` nothing stays."""


@dataclass
class ManagedTopology:
    """A topology, its state and what runs it."""

    state: TopologyState
    backend: Backend
    warnings: list[str] = field(default_factory=list)

    @property
    def plan(self) -> TopologyPlan:
        return self.backend.plan

    @property
    def stats(self) -> TopologyStats:
        return self.backend.stats


class Keeper:
    """Keeps the topologies of one process: what nimbus does in Storm.

    :param make_backend: (plan) -> backend.
    :param now_ms: the clock for waits and uptimes.
    :param on_change: called with a state whenever it has changed (and with ``removed=True`` at the end).
    :param local: whether the rules of a local cluster hold (a topology without a spout is accepted).
    """

    def __init__(self, make_backend: Callable[[TopologyPlan], Backend], now_ms: Callable[[], int], *,
                 on_change: Callable[..., None] = lambda state, removed=False: None, local: bool = True) -> None:
        self._make_backend, self._now_ms, self._on_change, self._local = make_backend, now_ms, on_change, local
        self.topologies: dict[str, ManagedTopology] = {}
        self._counter = 0

    def submit(self, name: str, conf: Mapping[str, Any] | None, topology: StormTopology, *, active: bool = True,
               resumed: TopologyState | None = None) -> ManagedTopology:
        """Check and start a topology.

        :param active: False submits it inactive: nothing is opened or prepared before :meth:`activate`.
        :param resumed: the state of an earlier run that goes on; its id stays.
        :raises InvalidTopologyException, AlreadyAliveException, IllegalArgumentException: see ``validate_submission``.
        """
        conf = dict(conf or {})
        warnings = validate_submission(name, conf, topology, self.topologies.keys(), local=self._local)
        now = self._now_ms()
        self._counter += 1
        identity = resumed.id if resumed else topology_id(name, self._counter, now)
        plan = TopologyPlan.build(name, identity, conf, topology)
        state = resumed or TopologyState(identity, name, ACTIVE if active else INACTIVE, conf, now, owner=_user())
        state.num_tasks, state.num_workers, state.num_executors = plan.num_tasks, plan.used_workers, plan.total_executors
        state.rearm(now)
        managed = self.topologies[name] = ManagedTopology(state, self._make_backend(plan), warnings)
        try:
            if state.status == ACTIVE:
                managed.backend.activate()
        except BaseException:
            del self.topologies[name]
            managed.backend.close(remove=resumed is None)
            raise
        self._on_change(state)
        return managed

    def get(self, name: str) -> ManagedTopology:
        """Return a topology by its name.

        :raises NotAliveException: there is none.
        """
        if name not in self.topologies:
            raise NotAliveException.of(name)
        return self.topologies[name]

    def activate(self, name: str) -> None:
        """Resume the spouts; idempotent."""
        managed = self.get(name)
        managed.state.activate()
        managed.backend.activate()
        self._on_change(managed.state)

    def deactivate(self, name: str) -> None:
        """Pause the spouts; idempotent."""
        managed = self.get(name)
        managed.state.deactivate()
        managed.backend.deactivate()
        self._on_change(managed.state)

    def rebalance(self, name: str, wait_secs: float | None = None, num_workers: int | None = None,
                  executors: Mapping[str, int] | None = None) -> None:
        """Pause the spouts, wait, then apply workers and executors; the tasks stay."""
        managed = self.get(name)
        managed.plan.rebalanced(executors, num_workers)  # refuses what is wrong, now
        managed.state.start_rebalance(self._now_ms(), wait_secs, {"num_workers": num_workers, "executors": dict(executors or {})})
        managed.backend.deactivate()
        self._on_change(managed.state)
        self.step()

    def kill(self, name: str, wait_secs: float | None = None) -> None:
        """Pause the spouts, wait, then remove the topology."""
        managed = self.get(name)
        managed.state.kill(self._now_ms(), wait_secs)
        managed.backend.deactivate()
        self._on_change(managed.state)
        self.step()

    def step(self) -> None:
        """Apply the rebalances and removals that are due."""
        now = self._now_ms()
        for name, managed in list(self.topologies.items()):
            state = managed.state
            if state.due_ms is None or now < state.due_ms:
                continue
            if state.status == KILLED:
                managed.backend.close(remove=True)
                del self.topologies[name]
                self._on_change(state, removed=True)
            elif state.status == REBALANCING:
                plan = managed.plan.rebalanced(state.rebalance["executors"], state.rebalance["num_workers"])
                managed.backend.rebalance(plan)
                state.num_workers, state.num_executors = plan.used_workers, plan.total_executors
                state.end_rebalance()
                if state.status == ACTIVE:
                    managed.backend.activate()
                self._on_change(state)

    def close(self, *, remove: bool = True) -> None:
        """End every topology at once."""
        for managed in list(self.topologies.values()):
            managed.backend.close(remove=remove)
        self.topologies.clear()

    def summary(self, name: str) -> dict[str, Any]:
        """Return a topology's line for ``list``."""
        state = self.get(name).state
        return {"name": state.name, "id": state.id, "status": state.status, "owner": state.owner,
                "num_tasks": state.num_tasks, "num_workers": state.num_workers, "num_executors": state.num_executors,
                "uptime_secs": max(0, (self._now_ms() - state.submitted_ms) // 1000)}

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
            components[component] = {"kind": plan.spec(component).kind, "tasks": list(plan.component_tasks(component)),
                                     "executors": plan.executors(component), **counters, **latencies}
        errors: dict[str, list[dict[str, Any]]] = {}
        for error in list(stats.errors):
            errors.setdefault(error["component"], []).append(error)
        return {**self.summary(name), "conf": plan.conf, "components": components, "errors": errors}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
