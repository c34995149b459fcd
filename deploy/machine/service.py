"""A topology as a service on this machine: a folder with everything that it keeps, and the process that runs it.

The folder holds the embedded broker's data, the topology's state, and::

    service.json    what runs, where it is reached, and how it was started
    service.log     what the process says, if it was started in the background
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dskype.deploy.machine import launch, paths
from dskype.deploy.machine.broker import free_ports, port_is_free
from dskype.deploy.machine.cluster import Target
from dskype.deploy.machine.detached import report_ready
from dskype.deploy.machine.errors import DeployError
from dskype.deploy.machine.folders import OwnedFolder
from dskype.deploy.machine.signals import end_on_sigterm, hold_interrupts
from dskype.topology.core.redaction import redacted_output
from dskype.topology.local import LocalCluster
from dskype.topology.runtime.nimbus.liveness import alive_on_this_machine, describe_driver

if TYPE_CHECKING:
    from dskype.topology.flux import FluxTopology

__all__ = ["LOG", "Service", "prepare", "read", "run", "stop"]

LOG = "service.log"
_FILE = "service.json"
_FORMAT = 1
_OWN = (_FILE, LOG, "owner.lock", "child.pid", "broker", "topologies", "logs")
BROKER_PORT, METRICS_PORT = 9092, 9464
"""The usual ports of Kafka, and of ``dskype metrics``."""
_LOOK_S = 0.1


@dataclass(frozen=True)
class Service:
    """What ``service.json`` says.

    :ivar state: ``starting``, ``running``, ``stopping`` or ``stopped``; whether its process is there is another question, see :meth:`is_alive`.
    :ivar doing: the last line of progress while it starts or stops.
    :ivar process: describes the process as the nimbus topic does.
    :ivar port: of the broker; it stays the same.
    :ivar metrics_port: of the metrics; it stays the same.
    :ivar topology: name of the topology.
    :ivar arguments: the options and the file with which the topology ran last, as on the command line.
    :ivar cwd: the folder in which they have their meaning.
    """

    state: str = "stopped"
    doing: str = ""
    process: dict[str, Any] = field(default_factory=dict)
    port: int = BROKER_PORT
    metrics_port: int = METRICS_PORT
    topology: str = ""
    arguments: list[str] = field(default_factory=list)
    cwd: str = "/"

    @property
    def bootstrap_servers(self) -> str:
        """Address of its broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def metrics_url(self) -> str:
        """Address of its metrics."""
        return f"http://127.0.0.1:{self.metrics_port}/metrics"

    def is_alive(self) -> bool:
        """Tell whether its process runs on this machine."""
        return bool(self.process) and alive_on_this_machine(self.process) is True


def read(folder: Path) -> Service | None:
    """Return the service of a folder; None if there is none.

    :raises DeployError: its file is damaged, or another user may have written it.
    """
    file = folder / _FILE
    if file.exists():
        paths.check_ours(folder, (_FILE,))
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document.pop("v") != _FORMAT:
            raise ValueError(f"expected format {_FORMAT}")
        return Service(**document)
    except FileNotFoundError:
        return None
    except (NotADirectoryError, PermissionError):  # the folder is a file, or another user's
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DeployError(f"{file} must describe a service, given: {error}", fix="put it back from a copy, or remove it: the next 'up' writes it") from error


def _write(folder: Path, service: Service) -> None:
    paths.write_whole(folder / _FILE, json.dumps({"v": _FORMAT, **asdict(service)}, indent=1), 0o600)


def prepare(folder: Path, *, port: int | None, metrics_port: int | None) -> Service:
    """Return the service of a folder, which is created if it is missing, with the ports that it is to have.

    A port of None is the one that the service had, and at its first start the usual one, or a free one if that is taken. A port of 0 is a free one.

    :raises DeployError: the folder has files that are not a service's, or another user may have written them.
    """
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not paths.make_writable(folder):
        raise DeployError(f"the folder of a service must be writable, given: {str(folder)!r}", fix="choose another folder")
    paths.check_all_ours(folder)
    known = read(folder)
    if known is None and (others := sorted({p.name for p in folder.iterdir()} - set(_OWN))):
        raise DeployError(
            f"the folder of a service must be empty at its first start, given: {folder}, which has {', '.join(others[:3])}", fix="choose another folder"
        )
    service, free = known or Service(), iter(free_ports(2))

    def chosen(given: int | None, before: int) -> int:
        if given is None and (known is not None or port_is_free(before)):
            return before
        return given or next(free)

    service = replace(service, port=chosen(port, service.port), metrics_port=chosen(metrics_port, service.metrics_port))
    _write(folder, service)
    return service


@redacted_output()
def run(
    folder: Path,
    flux: FluxTopology,
    target: Target,
    *,
    arguments: list[str],
    fresh: bool = False,
    active: bool = True,
    before: Callable[[launch.Progress], None],
    beside: Callable[[Any, int], AbstractContextManager[Any]],
    progress: launch.Progress,
) -> None:
    """Run a service in this process, until SIGTERM, or until its topology is killed. What it keeps stays in the folder.

    :param folder: one for which :func:`prepare` was called.
    :param arguments: the command line to remember; it is written when the topology runs.
    :param fresh: do not resume: remove the state of the topology, and start over. The broker's topics stay.
    :param before: what is to be done before Spark and the broker are started.
    :param beside: gets the brokers and the port of the metrics, and returns what runs beside the topology.
    :raises FolderInUseError: a service runs there.
    :raises TopologyError: the topology is refused, or has failed. It can be resumed.
    """
    from dskype.topology.runtime.spark.session import end_jvm  # PySpark takes a second to import; 'status' and 'down' do without

    OwnedFolder.take(folder).release()  # before anything is written there: it may have a process
    service = read(folder) or Service()
    terminated = end_on_sigterm()
    os.umask(0o077)
    launch.ship_modules(flux.modules, target.master)
    service = replace(service, state="starting", process=describe_driver(), topology=flux.name)

    changing = threading.RLock()  # the broker's events come from a thread of its own

    def become(state: str, **more: Any) -> None:
        nonlocal service
        with changing:
            service = replace(service, state=state, doing="", **more)
            _write(folder, service)

    def told(text: str) -> None:
        nonlocal service
        progress(text)
        with changing:
            if service.state != "running":
                service = replace(service, doing=text)
                _write(folder, service)

    def stop_when_started(text: str) -> None:
        become("stopping")
        told(text)

    with contextlib.ExitStack() as parts:
        killed = False
        _write(folder, service)
        parts.callback(become, "stopped")
        before(told)
        parts.callback(end_jvm)
        with hold_interrupts(stop_when_started):  # the start of Spark, interrupted, would leave its JVM behind
            cluster = LocalCluster(bootstrap_servers="embedded", folder=folder, resume=not fresh, port=service.port, conf=target.conf, progress=told)
            parts.callback(lambda: cluster.shutdown(remove=killed))
        parts.enter_context(beside(cluster.environment.kafka, service.metrics_port))
        parts.callback(become, "stopping")
        try:
            handle = launch.start(cluster, flux, active, told)
            become("running", arguments=arguments, cwd=os.getcwd())
            progress(f"topology {flux.name} runs as {handle.id}; 'dskype down --folder {folder}' stops it and keeps its data")
            report_ready()
            launch.await_kill(cluster, handle)
            killed = True
        except KeyboardInterrupt:
            become("stopping")
            told("stopping: topology, Spark, broker")
            if not terminated.is_set():
                raise


def stop(folder: Path, timeout_s: float, progress: launch.Progress) -> bool:
    """Ask the process of a service to stop, and wait until it has; return False if none ran.

    A process that is stopping already is only waited for: a second signal would cut its end short.

    :param progress: gets a line of text about what is waited for.
    :raises DeployError: there is no service in the folder, another user runs it, or it still runs after ``timeout_s``.
    """
    service = read(folder)
    if service is None:
        raise DeployError(f"expected the folder of a service, given: {folder}", fix="'dskype up --folder DIR' makes one")
    if not service.is_alive():
        return False
    pid, deadline = service.process["pid"], time.monotonic() + timeout_s
    waited_for = f"process {pid} stops the topology, Spark and the broker; that takes up to a minute"
    progress(f"the service is stopping already: {waited_for}" if service.state == "stopping" else waited_for)
    try:
        if service.state != "stopping":
            os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:  # it has just ended
        return True
    except PermissionError as error:
        raise DeployError(f"the service must run as the present user, given: process {pid} of another one", fix="stop it as that user") from error
    while service.is_alive():
        if time.monotonic() > deadline:
            raise DeployError(
                f"the service was expected to stop within {timeout_s:g} s, given: process {pid} still runs",
                fix=f"wait, or end it with 'kill -9 {pid}': nothing is lost",
            )
        time.sleep(_LOOK_S)
    return True
