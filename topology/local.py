"""A cluster in this process, with the methods of Storm's ``LocalCluster``."""

from __future__ import annotations

import importlib.metadata
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dskype.topology.core.steady_clock import now_ms
from dskype.topology.errors import IllegalStateException, TopologyError
from dskype.topology.model import StormTopology
from dskype.topology.nimbus.environment import ENVIRONMENTS, Environment
from dskype.topology.nimbus.manager import Backend, ManagedTopology, TopologyManager
from dskype.topology.nimbus.states import Rebalance
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog

__all__ = ["LocalCluster", "LocalTopology"]

log = logging.getLogger(__name__)


class LocalTopology:
    """A submitted topology; used as a context manager, it kills the topology at the end without a wait."""

    def __init__(self, cluster: LocalCluster, managed: ManagedTopology) -> None:
        self._cluster, self._managed = cluster, managed
        self.name, self.id = managed.state.name, managed.state.id
        self.warnings = managed.warnings

    @property
    def backend(self) -> Any:
        """The simulated topology, or the driver on Spark."""
        return self._managed.backend

    @property
    def stats(self) -> Any:
        """Live statistics."""
        return self._managed.stats

    @property
    def status(self) -> str:
        """ACTIVE, INACTIVE, REBALANCING or KILLED."""
        return self._managed.state.status

    def __enter__(self) -> LocalTopology:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._cluster.manager.topologies.get(self.name) is self._managed:
            self._cluster.kill_topology(self.name, wait_secs=0)


class LocalCluster:
    """Runs topologies in this process.

    ``LocalCluster()`` runs Spark in local mode and starts a Kafka broker unless ``bootstrap_servers`` names one.
    ``LocalCluster(simulated=True)`` runs the same executor core on an in-memory log with simulated time. It takes
    milliseconds and serves tests, or stepping through a topology.

    :param simulated: whether to use the in-memory transport.
    :param seed: simulated only: draw the order, sizes and faults of batches from this seed; None for a plain run.
    :param faults: simulated only: how likely each fault is; needs a seed.
    :param start_ms: simulated only: the time at the start, epoch milliseconds.
    :param options: on Spark: ``bootstrap_servers``, ``master``, ``conf`` (``spark.*`` and ``kafka.*`` settings),
        ``folder``, ``progress`` (a callable that gets lines of text); see ``dskype.deploy.machine.environment``.
    """

    def __init__(
        self, simulated: bool = False, *, seed: int | None = None, faults: Faults = Faults(), start_ms: int = 1_000_000_000_000, **options: Any
    ) -> None:
        self.simulated = simulated
        self._closed = False
        self.environment: Any = None
        self._lock = threading.RLock()
        if simulated:
            if options:
                msg = f"these options have no meaning for a simulated cluster; given: {sorted(options)}"
                raise TypeError(msg)
            self._time_ms = start_ms
            self.log = MemoryLog(self.now_ms)
            self.manager = TopologyManager(self._simulated_backend(seed, faults), self.now_ms)
        else:
            self.environment = _bring_up(**options)
            self.manager = TopologyManager(self.environment.make_backend, self.now_ms, on_change=self.environment.on_change, resumed=self.environment.resumed)
            try:
                self.environment.attach(self.manager, self._lock)
            except BaseException:
                self.environment.close()
                raise
            self._stepper = threading.Thread(target=self._run_stepper, name="local-cluster", daemon=True)
            self._stepper.start()

    def _simulated_backend(self, seed: int | None, faults: Faults) -> Callable[[TopologyPlan], Backend]:
        return lambda plan: simulate(plan, self.log, self.now_ms, seed=seed, faults=faults)

    def now_ms(self) -> int:
        """Return the cluster's time: simulated, or the wall clock."""
        return self._time_ms if self.simulated else now_ms()

    def _run_stepper(self) -> None:
        while not self._closed:
            try:
                with self._lock:
                    if not self._closed:
                        self.manager.step()
            except Exception:  # an error of one topology must not hold up the others
                log.exception("a rebalance or removal failed at the end of its wait")
            time.sleep(0.1)

    # -- Storm's calls ----------------------------------------------------------------------------

    def submit_topology(self, name: str, conf: Mapping[str, Any] | None, topology: StormTopology, *, active: bool = True) -> LocalTopology:
        """Start a topology.

        :param active: False submits it inactive: nothing is opened or prepared before :meth:`activate`.
        :returns: a handle; ``with cluster.submit_topology(...)`` kills the topology at the end.
        """
        with self._lock:
            if self._closed:
                msg = "the cluster is shut down"
                raise IllegalStateException(msg)
            handle = LocalTopology(self, self.manager.submit(name, conf, topology, active=active))
        self._settle()
        return handle

    def activate(self, name: str) -> None:
        """Resume a topology's spouts; idempotent."""
        with self._lock:
            self.manager.command(name, "ACTIVATE")
        self._settle()

    def deactivate(self, name: str) -> None:
        """Pause a topology's spouts; bolts and acks continue; idempotent."""
        with self._lock:
            self.manager.command(name, "INACTIVATE")
        self._settle()

    def rebalance(self, name: str, wait_secs: float | None = None, num_workers: int | None = None, executors: Mapping[str, int] | None = None) -> None:
        """Change workers and executors after a wait (default: the message timeout)."""
        with self._lock:
            rebalance = Rebalance(num_workers, dict(executors or {}))
            self.manager.command(name, "REBALANCE", wait_secs=wait_secs, rebalance=rebalance)
        self._settle()

    def debug(self, name: str, percent: float, component: str | None = None) -> None:
        """Send a percentage of the tuples that components emit to the event loggers.

        :param percent: 0..100; 0 switches it off.
        :param component: None: all components that have no percentage of their own.
        """
        with self._lock:
            self.manager.debug(name, percent, component)
        self._settle()

    def kill_topology(self, name: str, wait_secs: float | None = None) -> None:
        """Kill a topology: stop its spouts now, remove it after a wait (default: the message timeout)."""
        with self._lock:
            self.manager.command(name, "KILL", wait_secs=wait_secs)

    def get_cluster_info(self) -> list[dict[str, Any]]:
        """Return a summary of every topology."""
        with self._lock:
            return [self.manager.summary(name) for name in sorted(self.manager.topologies)]

    def get_topology_info(self, name: str, *, system: bool = False) -> dict[str, Any]:
        """Return a topology's components, counters and errors."""
        with self._lock:
            return self.manager.info(name, system=system)

    def shutdown(self, *, remove: bool = True) -> None:
        """End all topologies and everything that was started for this cluster.

        :param remove: False keeps topics and snapshots, so that another cluster can resume them from the same ``folder``.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self.manager.close(remove=remove)
            finally:
                if self.environment is not None:
                    self.environment.close()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()

    # -- simulated time ---------------------------------------------------------------------------

    def advance_cluster_time(self, secs: float, increment_secs: float = 0.1) -> None:
        """Advance simulated time in steps, and run all topologies until they are idle after each step.

        :param increment_secs: length of a step; each spout gets at most one pulse per step.
        :raises TopologyError: the cluster is not simulated.
        """
        if not self.simulated:
            msg = "only a simulated cluster's time can be advanced; hint: LocalCluster(simulated=True)"
            raise TopologyError(msg)
        left_ms, step_ms = round(secs * 1000), max(1, round(increment_secs * 1000))
        while left_ms > 0:
            self._time_ms += min(step_ms, left_ms)
            left_ms -= step_ms
            self.manager.step()
            self._settle()

    def _settle(self) -> None:
        """Run simulated topologies until they are idle; on Spark the queries run by themselves."""
        if self.simulated:
            for managed in list(self.manager.topologies.values()):
                backend: Any = managed.backend
                backend.tick_clock()
                backend.run_until_quiet()


def _bring_up(**options: Any) -> Environment:
    """Start Spark and a broker with the installed environment, and return it."""
    found = list(importlib.metadata.entry_points(group=ENVIRONMENTS, name="local"))
    if not found:
        msg = f"no installed package starts Spark and Kafka (entry point group {ENVIRONMENTS!r}, name 'local'); hint: install the package dskype as a whole"
        raise TopologyError(msg)
    if "folder" in options and options["folder"] is not None:
        options["folder"] = Path(options["folder"])
    return found[0].load()(**options)
