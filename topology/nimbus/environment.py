"""The contract between a cluster that runs topologies on Spark and what brings up Spark and Kafka for it.

:class:`~dskype.topology.local.LocalCluster` finds an environment by its entry point and knows nothing else of it, neither jars nor brokers.
An environment knows the parts of ``topology`` that it runs, but not the cluster.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

from dskype.topology.nimbus.manager import Backend, ManagedTopology, TopologyManager
from dskype.topology.nimbus.states import TopologyState
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["ENVIRONMENTS", "Environment"]

ENVIRONMENTS = "dskype.bringup"
"""Entry points of environments; a cluster takes the one called ``local``. It is called with the cluster's options and returns with Spark and Kafka running."""


class Environment(Protocol):
    """Spark and Kafka for the topologies of one cluster.

    :ivar kafka: how to reach the brokers.
    :ivar resumed: topologies that an earlier process left, to be resumed when they are submitted again.
    """

    kafka: Any
    resumed: list[TopologyState]

    def attach(self, manager: TopologyManager, lock: threading.RLock) -> None:
        """Learn who keeps the topologies: called once, before the first is submitted.

        :param lock: to be held while the manager is used.
        """

    def make_backend(self, plan: TopologyPlan) -> Backend:
        """Return what runs one topology."""

    def on_change(self, managed: ManagedTopology, removed: bool = False) -> None:
        """Take note that a topology's state has changed, or that it is gone."""

    def close(self) -> None:
        """Take everything down. Called once, after the manager is closed, or when :meth:`attach` failed."""
