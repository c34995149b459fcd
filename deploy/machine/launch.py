"""Run a topology in this process: for a while, or on a cluster until it is killed."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dskype.deploy.machine import connection, paths
from dskype.deploy.machine.cluster import Target, kafka_settings, reach
from dskype.deploy.machine.detached import report_ready
from dskype.deploy.machine.folders import FolderInUseError
from dskype.deploy.machine.signals import end_on_sigterm
from dskype.topology.config import Config
from dskype.topology.core.redaction import redacted_output
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.errors import TopologyError
from dskype.topology.local import LocalCluster, LocalTopology
from dskype.topology.nimbus.states import TopologyState
from dskype.topology.planning.plan import TopologyPlan, metrics_topic
from dskype.topology.planning.validation import CycleWarning
from dskype.topology.runtime.driver.resume import check_resumable
from dskype.topology.runtime.nimbus.nimbus_topic import load_states
from dskype.topology.runtime.nimbus.standby import TopologyKilledError
from dskype.topology.runtime.stores.choice import FOLDER_URL, default_url

if TYPE_CHECKING:
    from dskype.topology.flux import FluxTopology
    from dskype.topology.model import StormTopology

__all__ = ["await_kill", "check_standby", "folder_of", "run_local", "ship_modules", "start", "submit", "tell_warnings"]

Progress = Callable[[str], None]

_STOPPING = "stopping: topology, Spark, and the broker if it was started here"


def ship_modules(modules: list[str], master: str | None) -> None:
    """Make the user's modules importable for the executors.

    On this machine they get our import path; on others the modules are pickled by value with the components.
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


@redacted_output()
def run_local(flux: FluxTopology, target: Target, *, ttl_s: float, active: bool, progress: Progress, watch: Callable[[Any, str, float], None]) -> None:
    """Run a topology in this process for a while.

    :param ttl_s: seconds from its start to its end; 0: until Ctrl-C or SIGTERM.
    :param progress: gets one line of text per step of the start.
    :param watch: called with (cluster, name, ttl_s) when the topology runs; returns when the time is over.
    """
    terminated = end_on_sigterm()
    os.umask(0o077)  # its files are only for its owner
    ship_modules(flux.modules, target.master)
    try:
        with LocalCluster(bootstrap_servers=target.bootstrap_servers, master=target.master, conf=target.conf, progress=progress) as cluster:
            try:
                handle = start(cluster, flux, active, progress)
                progress(f"topology {flux.name} runs as {handle.id}")
                if not handle.backend.store.remote:
                    progress(f"logs of its executors, until it ends: {handle.backend.folder / 'logs'}")
                watch(cluster, flux.name, ttl_s)
            finally:
                progress(_STOPPING)
    except Exception as ex:
        # A signal to the whole process group also ends Spark's JVM, so that stopping it fails.
        if not terminated.is_set():
            raise
        progress(f"note: Spark or Kafka ended before it was stopped ({type(ex).__name__})")


def folder_of(name: str, target: Target) -> Path:
    """Return the folder in which the driver of a topology on a cluster keeps what it needs: one per cluster and name."""
    cluster_key = hashlib.sha256(str(connection.resolve_bootstrap(target.bootstrap_servers).servers).encode()).hexdigest()[:12]
    return paths.home() / "topologies" / f"{metrics_topic(name).removesuffix('.metrics')}-{cluster_key}"


@redacted_output()
def submit(flux: FluxTopology, target: Target, *, active: bool, fresh: bool = False, standby: bool = False, progress: Progress) -> None:
    """Run a topology on a cluster, in this process, until it is killed from here or from another shell.

    An interrupted topology of that name is resumed from its folder, see :func:`folder_of`, or, if other hosts reach its state, from there.

    :param active: False: the topology starts inactive.
    :param fresh: do not resume: remove the state of an interrupted topology of that name, and start over.
    :param standby: if another process runs it, wait beside that one, and take over when it is lost. It returns if the topology is killed meanwhile.
    :raises TopologyError: no cluster is named, the topology is refused, or it ended by itself. In the last case it can be resumed.
    """
    kafka_settings(target)  # fails before anything is started if no cluster is named
    if standby:
        check_standby(flux, target, fresh=fresh)
    end_on_sigterm()
    os.umask(0o077)
    ship_modules(flux.modules, target.master)
    options = {"bootstrap_servers": target.bootstrap_servers, "master": target.master, "conf": target.conf, "resume": not fresh, "progress": progress}
    folder = folder_of(flux.name, target)
    try:
        cluster = _stand_by(flux.name, folder, options) if standby else LocalCluster(folder=folder, **options)
    except TopologyKilledError as ended:
        progress(str(ended))
        return
    finished = False
    try:
        handle = start(cluster, flux, active, progress)
        progress(f"topology {flux.name} runs as {handle.id}; 'dskype kill {flux.name}' ends it, Ctrl-C leaves it to be resumed")
        report_ready()
        await_kill(cluster, handle)
        finished = True
    finally:
        progress(_STOPPING)
        cluster.shutdown(remove=finished)


def check_standby(flux: FluxTopology, target: Target, *, fresh: bool = False) -> None:
    """Refuse a standby that could not take over: it would find that out when nobody runs the topology any more.

    :raises TopologyError: the topology's state is in a folder of its driver, or is to be removed; or the topology that runs differs too much from this one.
    """
    url = flux.config.get(Config.TOPOLOGY_EMULATOR_STATE_URL) or default_url(target.master or "local")
    if url == FOLDER_URL:
        raise TopologyError(
            "A standby needs a topology whose state other hosts reach.",
            given=f"{Config.TOPOLOGY_EMULATOR_STATE_URL}: {url}",
            legal="kafka:, file:///some/folder, s3://bucket/prefix",
            hint=f"start both with -c {Config.TOPOLOGY_EMULATOR_STATE_URL}=kafka:",
        )
    if fresh:
        raise TopologyError("A standby continues what another process has begun.", given="--standby --fresh", hint="leave one of them out")
    kafka = reach(target)
    record = load_states(kafka).get(flux.name)
    if record is not None and record.get("store") is not None:
        state = TopologyState.from_json(record["state"])
        workers = {key: state.conf[key] for key in (Config.TOPOLOGY_WORKERS,) if key in state.conf}  # those of the last rebalance
        conf = {**flux.config, **workers, Config.TOPOLOGY_EMULATOR_STATE_URL: url}
        check_resumable(TopologyPlan.build(flux.name, state.id, conf, flux.topology), kafka)


def _stand_by(name: str, folder: Path, options: dict[str, Any]) -> LocalCluster:
    """Start Spark, wait until no other process runs the topology, and return the cluster.

    Ready is who waits: an init system must not wait for a loss.
    """
    report_ready()
    try:
        return LocalCluster(folder=folder, standby=name, **options)
    except FolderInUseError:  # the driver is on this machine
        return LocalCluster(folder=folder.with_name(f"{folder.name}-standby"), standby=name, **options)


def start(cluster: LocalCluster, flux: FluxTopology, active: bool, progress: Progress) -> LocalTopology:
    """Submit a topology to a cluster, and wait until every component has run a batch.

    A topology that starts inactive, because it was left so or is submitted so, opens nothing, and there is nothing to wait for.

    :param active: False: the topology starts inactive.
    :param progress: gets warnings, and what is waited for.
    :raises TopologyError: the topology is refused, or has failed.
    """
    began_ms = now_ms()
    handle = cluster.submit_topology(flux.name, flux.config, flux.topology, active=active)
    tell_warnings(flux.topology, handle.warnings, progress)
    if handle.status == "ACTIVE":
        handle.backend.await_first_batches(progress, lambda: flux.name in cluster.manager.topologies, began_ms)
    elif active:
        hint = f"; 'dskype activate {flux.name}' lets it work" if handle.status == "INACTIVE" else ""
        progress(f"topology {flux.name} is {handle.status}, as it was when its last process ended{hint}")
    return handle


def tell_warnings(topology: StormTopology, warnings: Iterable[str], progress: Progress) -> None:
    """Tell the warnings of a submission, except that a topology of DSkype's own components has cycles: they are meant to be there."""
    own = all(type(component.obj).__module__.startswith("dskype.") for component in topology.components.values())
    for warning in warnings:
        if not (own and isinstance(warning, CycleWarning)):
            progress(f"warning: {warning}")


def await_kill(cluster: LocalCluster, handle: LocalTopology) -> None:
    """Return when a topology has been killed.

    :raises TopologyError: it has failed.
    """
    while handle.name in cluster.manager.topologies:
        handle.backend.check()
        time.sleep(0.2)
