"""What the command line needs from the runtime: a client of a cluster, a local run, a submission.

Everything heavy is imported inside the functions, so that ``dskype --help`` does not wait for Spark.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dskype.topology.flux import FluxTopology
    from dskype.topology.runtime.kafka import KafkaSettings
    from dskype.topology.runtime.nimbus_topic import ClusterClient

__all__ = ["Target", "client", "kafka_settings", "run_local", "ship_modules", "submit"]

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Target:
    """Where to run, or which cluster to talk to.

    :param bootstrap_servers: ``host:port,...``; None: ``DSKYPE_BOOTSTRAP_SERVERS``, else an embedded broker.
    :param master: Spark master URL; None: this machine.
    :param conf: ``spark.*`` and ``kafka.*`` settings, passed through untouched. Never printed.
    """

    bootstrap_servers: str | None = None
    master: str | None = None
    conf: Mapping[str, Any] = field(default_factory=dict, repr=False)


def kafka_settings(target: Target) -> KafkaSettings:
    """Return how to reach the brokers of the cluster at ``target``.

    :raises TopologyError: no cluster is named.
    """
    from dskype.deploy.machine import connection
    from dskype.topology.errors import TopologyError, explain

    bootstrap = connection.resolve_bootstrap(target.bootstrap_servers)
    if bootstrap.embedded:
        msg = explain(
            "No cluster is named.",
            hint=f"use --bootstrap-servers host:port or set {connection.BOOTSTRAP_VARIABLE}; a topology of 'dskype local' "
            "without them has a broker of its own, which ends with it",
        )
        raise TopologyError(msg)
    from dskype.topology.runtime.kafka import KafkaSettings

    options = connection.kafka_options(target.conf)
    return KafkaSettings(bootstrap.servers, options, connection.client_arguments(options))


def client(target: Target) -> ClusterClient:
    """Return a client of the cluster at ``target``.

    :raises TopologyError: no cluster is named.
    """
    from dskype.topology.runtime.nimbus_topic import ClusterClient

    return ClusterClient(kafka_settings(target))


def _end_on_sigterm() -> threading.Event:
    """Let SIGTERM end a run as Ctrl-C does: with brokers, sessions and folders taken down.

    :returns: set once the signal has come.
    """
    terminated = threading.Event()

    def interrupt(*_: Any) -> None:
        if not terminated.is_set():  # a second one must not break off the taking down
            terminated.set()
            raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)
    return terminated


def ship_modules(modules: list[str], master: str | None) -> None:
    """See to it that the executors can import the user's modules.

    On this machine they get our import path; elsewhere the modules travel by value with the components.
    """
    if master is None or master.startswith("local"):
        known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        roots = [_root(name) for name in modules]
        new = [root for root in dict.fromkeys(roots) if root and root not in known]
        if new:
            os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, known), *new])
        return
    from pyspark import cloudpickle

    for name in modules:
        cloudpickle.register_pickle_by_value(sys.modules[name])


def _root(module: str) -> str | None:
    """Return the folder of the import path that holds a module."""
    file = getattr(sys.modules[module], "__file__", None)
    if file is None:
        return None
    levels = module.count(".") + (1 if os.path.basename(file).startswith("__init__.") else 0)
    folder = os.path.dirname(os.path.abspath(file))
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder


def run_local(flux: FluxTopology, target: Target, *, ttl_s: float, active: bool, progress: Progress, watch: Callable[[Any, str, float], None]) -> None:
    """Run a topology in this process for a while.

    :param ttl_s: seconds from its start to its end; 0: until Ctrl-C or SIGTERM.
    :param progress: gets one line of text per step of the start.
    :param watch: called with (cluster, name, ttl_s) when the topology runs; returns when the time is over.
    """
    from dskype.topology.local import LocalCluster

    terminated = _end_on_sigterm()
    os.umask(0o077)  # what it writes is for its owner
    ship_modules(flux.modules, target.master)
    try:
        with LocalCluster(bootstrap_servers=target.bootstrap_servers, master=target.master, conf=target.conf, progress=progress) as cluster:
            handle = cluster.submit_topology(flux.name, flux.config, flux.topology, active=active)
            for warning in handle.warnings:
                progress(f"warning: {warning}")
            progress(f"topology {flux.name} runs as {handle.id}")
            watch(cluster, flux.name, ttl_s)
    except Exception as ex:
        # A signal to the whole process group also ends Spark's JVM: then there is nothing left to stop in order.
        if not terminated.is_set():
            raise
        progress(f"note: Spark or Kafka ended before it was stopped ({type(ex).__name__})")


def submit(flux: FluxTopology, target: Target, *, active: bool, fresh: bool = False, progress: Progress) -> None:
    """Run a topology as one of a cluster's, in this process, until it is killed.

    :param fresh: do not resume what an interrupted topology of that name has left, but remove it.

    :raises TopologyError: no cluster is named, or the topology is refused.
    """
    kafka_settings(target)  # says what is missing before anything is started
    from dskype.deploy.machine import environment

    _end_on_sigterm()
    os.umask(0o077)
    ship_modules(flux.modules, target.master)
    environment.submit(flux, active=active, fresh=fresh, bootstrap_servers=target.bootstrap_servers, master=target.master, conf=target.conf, progress=progress)
