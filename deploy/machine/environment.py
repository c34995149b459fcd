"""Start what topologies need on this machine (jars, a broker, a Spark session), and stop it again."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dskype.deploy.machine import connection, jars, paths, spark_archive
from dskype.deploy.machine.broker import BrokerEvent, EmbeddedBroker
from dskype.deploy.machine.folders import OwnedFolder
from dskype.deploy.machine.spark_classes import spark_class_path
from dskype.topology.errors import AlreadyAliveException, TopologyError
from dskype.topology.nimbus import environment
from dskype.topology.nimbus.manager import ManagedTopology, TopologyManager
from dskype.topology.nimbus.states import TopologyState
from dskype.topology.planning.plan import TopologyPlan, metrics_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.nimbus.nimbus_topic import NimbusService, load_removed, load_states, watch_drivers
from dskype.topology.runtime.nimbus.standby import await_loss
from dskype.topology.runtime.spark.session import jvm_process, network_warning, start_session, stop_session
from dskype.topology.runtime.stores.control_files import read_json, write_json

if TYPE_CHECKING:
    from dskype.topology.runtime.driver.driver import TopologyDriver

__all__ = ["Environment"]

log = logging.getLogger(__name__)

Progress = Callable[[str], None]


_STATE = "state.json"


def _quiet(_: str) -> None:
    """Say nothing."""


class Environment(environment.Environment):
    """Spark and Kafka for the topologies of this process.

    :param bootstrap_servers: the brokers; default: ``DSKYPE_BOOTSTRAP_SERVERS``, else an embedded broker.
    :param master: Spark master URL; default ``local[*]``.
    :param conf: ``spark.*`` and ``kafka.*`` settings, passed through untouched.
    :param folder: where snapshots are kept; default: a temporary folder that is removed at the end. With a permanent
        folder a topology can be resumed, and the embedded broker keeps its data there.
    :param resume: continue topologies of the same name that are in ``folder``.
    :param port: the port of an embedded broker; None: a free one.
    :param standby: name of a topology; once Spark runs, wait until no other process runs it.
    :param progress: gets one line of text per step.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str | None = None,
        master: str | None = None,
        conf: Mapping[str, Any] | None = None,
        folder: Path | None = None,
        resume: bool = False,
        port: int | None = None,
        standby: str | None = None,
        progress: Progress = _quiet,
    ) -> None:
        self._conf = {k: str(v) for k, v in (conf or {}).items()}
        self.broker: EmbeddedBroker | None = None
        self.spark: Any = None
        self._nimbus: NimbusService | None = None
        # A folder has one driver. Taking it also ends processes that an earlier driver has left.
        self._owned = OwnedFolder.take(Path(folder)) if folder else OwnedFolder.temporary("topologies-")
        self.folder = self._owned.path
        self._progress = progress
        self._manager: TopologyManager | None = None
        self._lost: Mapping[str, Any] | None = None  # the driver that this process replaces
        self.resumed: list[TopologyState] = []
        paths.export_numba_cache(os.environ)
        try:
            options = connection.kafka_options(self._conf)
            arguments = connection.client_arguments(options)
            spark_jars = spark_class_path(progress)
            bootstrap = connection.resolve_bootstrap(bootstrap_servers)
            if bootstrap.servers is None:
                jars.broker_jars(lambda p: progress(str(p)))
                self.broker = EmbeddedBroker(self.folder / "broker" if folder else None, port=port)
            else:
                connection.await_brokers(bootstrap.servers, progress, tls=arguments.get("ssl_context"))
                progress(f"Kafka at {bootstrap.servers} (from {bootstrap.source})")
            progress(f"starting {'an embedded Kafka broker, and ' if self.broker else ''}Spark on {master or 'local[*]'}")
            # If this process is killed, the folder in the JVM's command line tells whose JVM it is.
            spark_conf = {"spark.dskype.folder": f"{self.folder}{os.sep}"} | {k: v for k, v in self._conf.items() if k.startswith("spark.")}
            if warning := network_warning(master, self._conf, options):
                progress(f"warning: {warning}")
            with ThreadPoolExecutor(1, "dskype-broker") as beside:  # both take seconds, and neither keeps two cores busy
                servers = beside.submit(lambda: bootstrap.servers if self.broker is None else self.broker.start().bootstrap_servers)
                self.spark = start_session(
                    master=master,
                    jars=spark_jars,
                    conf=spark_conf,
                    log_file=self.folder / "logs" / "spark.log",
                    class_archive=spark_archive.existing_archive(spark_jars),
                    meanwhile=_import_driver,
                )
                self.kafka = KafkaSettings(servers.result(), options, arguments)
            if self.broker is not None:
                progress(f"Kafka at {self.kafka.bootstrap_servers} (embedded)")
                self.broker.watch(self._on_broker_event)
            if (jvm := jvm_process(self.spark)) is not None:
                self._owned.note_process(jvm.pid)
            if standby is not None:
                if not self.spark.sparkContext.master.startswith("local"):
                    from dskype.topology.runtime.driver.preflight import start_python_early

                    start_python_early(self.spark)
                self._lost = await_loss(self.kafka, standby, progress)
            if resume:
                self.resumed = self._resumable()
        except BaseException:
            self.close()
            raise

    def attach(self, manager: TopologyManager, lock: threading.RLock) -> None:
        """Publish the manager's topologies in Kafka and receive commands for them, so that another shell can list and kill them.

        :param lock: held while the manager is used.
        """
        self._manager, self._nimbus = manager, NimbusService(self.kafka, manager, lock)

    def make_backend(self, plan: TopologyPlan) -> TopologyDriver:
        """Return the driver of one topology.

        :raises AlreadyAliveException: another process runs a topology of this name on these brokers.
        """
        record = load_states(self.kafka).get(plan.name)
        if (
            record is not None
            and self._nimbus is not None
            and record["driver"] not in (self._nimbus.driver, self._lost)
            and watch_drivers(self.kafka, {plan.name: record})[plan.name]
        ):
            raise AlreadyAliveException.for_topology(plan.name)
        from dskype.topology.runtime.driver.driver import TopologyDriver  # by _import_driver, while Spark started

        resume = plan.topology_id in {state.id for state in self.resumed}
        return TopologyDriver(plan, self.spark, self.kafka, self._folder_of(plan.name), resume=resume, announce=self._progress)

    def _on_broker_event(self, event: BrokerEvent) -> None:
        """Report an event of the embedded broker to the user and to all topologies."""
        self._progress(event.text)
        if event.kind == "restarted":  # no error
            return
        for managed in list(self._manager.topologies.values()) if self._manager is not None else ():
            managed.backend.note_broker(event.text, gone=event.kind == "gave-up")

    def _resumable(self) -> list[TopologyState]:
        """Return the states of the topologies that an earlier process has left; remove those that were killed since.

        The state of a topology whose store other hosts reach is the one that was published last, whichever host did.
        """
        removed, found = load_removed(self.kafka), {}
        for state in _stored_states(self.folder):
            if removed.get(state.name) == state.id:
                self._progress(f"topology {state.name} was killed while its process was away; removing its state in {self._folder_of(state.name)}")
                shutil.rmtree(self._folder_of(state.name))
            else:
                found[state.name] = state
        for name, record in load_states(self.kafka).items():
            if record.get("store") is not None:
                try:
                    found[name] = TopologyState.from_json(record["state"])
                except TopologyError as error:  # anyone may write to that topic
                    log.warning("the published state of topology %s is ignored: %s", name, error)
        return list(found.values())

    def _folder_of(self, name: str) -> Path:
        return self.folder / "topologies" / metrics_topic(name).removesuffix(".metrics")  # escaped as its topics are

    def on_change(self, managed: ManagedTopology, removed: bool = False) -> None:
        """Store a topology's state in its folder, and publish it."""
        folder = self._folder_of(managed.state.name)
        if removed:
            with contextlib.suppress(FileNotFoundError):
                (folder / _STATE).unlink()
        else:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_json(folder / _STATE, managed.state.to_json())
        if self._nimbus is not None:
            self._nimbus.publish(managed, removed=removed)

    def close(self) -> None:
        """Stop Spark and the embedded broker, and remove temporary folders."""
        nimbus, spark, broker = self._nimbus, self.spark, self.broker
        self._nimbus = self.spark = self.broker = None
        with contextlib.ExitStack() as parts:  # closes all of them even if one fails, the last one first
            parts.callback(self._owned.release)
            if broker is not None:
                parts.callback(broker.stop)
            if spark is not None:
                parts.callback(stop_session, spark)
            if nimbus is not None:
                parts.callback(nimbus.close)


def _import_driver() -> None:
    """Import what is needed once Spark runs: it takes about a second, for which nobody waits while Spark's JVM starts."""
    import dskype.topology.runtime.driver.driver  # noqa: F401

    with contextlib.suppress(ImportError):
        import pyspark.testing.utils  # noqa: F401 - the first call to the JVM imports it, and with it pandas


def _stored_states(folder: Path) -> list[TopologyState]:
    """Return the states of the topologies that an earlier process has left in ``folder``.

    :raises ControlFileError: one of them is damaged.
    """
    return [read_json(path, "the state of a topology", TopologyState.from_json) for path in sorted(folder.glob(f"topologies/*/{_STATE}"))]
