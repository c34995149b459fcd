"""The contract between a cluster that runs topologies on Spark, and the environment that starts Spark and Kafka for it.

:class:`~dskype.topology.local.LocalCluster` finds an environment by its entry point and knows nothing else about it, neither jars nor
brokers. An environment knows the parts of ``topology`` that it runs, but not the cluster.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

from dskype.topology.nimbus.manager import Backend, ManagedTopology, TopologyManager
from dskype.topology.nimbus.states import TopologyState
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["ENVIRONMENTS", "Environment"]

ENVIRONMENTS = "dskype.bringup"
"""Entry point group of environments. A cluster calls the entry point ``local`` with its options; when that returns, Spark and Kafka run."""


class Environment(Protocol):
    """Spark and Kafka for the topologies of one cluster.

    :ivar kafka: how to reach the brokers.
    :ivar resumed: topologies of an earlier process, to be resumed when they are submitted again.
    """

    kafka: Any
    resumed: list[TopologyState]

    def attach(self, manager: TopologyManager, lock: threading.RLock) -> None:
        """Set the manager of the topologies; called once, before the first is submitted.

        :param lock: to be held while the manager is used.
        """

    def make_backend(self, plan: TopologyPlan) -> Backend:
        """Return the backend that runs a topology."""

    def on_change(self, managed: ManagedTopology, removed: bool = False) -> None:
        """Handle a change of a topology's state, or its removal."""

    def close(self) -> None:
        """Stop everything. Called once, after the manager is closed, or when :meth:`attach` has failed."""
