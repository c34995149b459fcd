"""Brings up what a topology needs on this machine: jars, a broker, a Spark session; and takes it down again."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dskype.deploy import connection, jars, paths
from dskype.deploy.broker import EmbeddedBroker
from dskype.topology.plan import TopologyPlan, metrics_topic
from dskype.topology.runtime.driver import TopologyDriver
from dskype.topology.runtime.kafka import KafkaSettings
from dskype.topology.runtime.session import start_session

__all__ = ["Environment"]

Progress = Callable[[str], None]


def _quiet(_: str) -> None:
    """Say nothing."""


class Environment:
    """Spark and Kafka for the topologies of this process.

    :param bootstrap_servers: the brokers; default: ``DSKYPE_BOOTSTRAP_SERVERS``, else an embedded broker.
    :param master: Spark master URL; default ``local[*]``.
    :param conf: ``spark.*`` and ``kafka.*`` settings, passed through untouched.
    :param folder: where snapshots live; default a temporary folder that is removed at the end. With a folder
        of its own a topology can be resumed.
    :param broker_folder: data of the embedded broker; default: within ``folder`` if that is given, else temporary.
    :param resume: go on with topologies of the same name that are in ``folder``.
    :param progress: gets one line of text per step.
    """

    def __init__(self, *, bootstrap_servers: str | None = None, master: str | None = None, conf: Mapping[str, Any] | None = None,
                 folder: Path | None = None, resume: bool = False, progress: Progress = _quiet) -> None:
        self._conf = {k: str(v) for k, v in (conf or {}).items()}
        self._resume = resume
        self.resumed: list[Any] = []
        self.broker: EmbeddedBroker | None = None
        self.spark: Any = None
        self._temporary = None if folder else tempfile.mkdtemp(prefix="topologies-", dir=paths.scratch_dir())
        self.folder = Path(folder or self._temporary)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        paths.export_numba_cache(os.environ)
        try:
            spark_jars = jars.spark_jars(lambda p: progress(str(p)))
            bootstrap = connection.resolve_bootstrap(bootstrap_servers)
            if bootstrap.embedded:
                jars.broker_jars(lambda p: progress(str(p)))
                progress("starting an embedded Kafka broker")
                self.broker = EmbeddedBroker(self.folder / "broker" if folder else None)
                self.broker.start()
            servers = self.broker.bootstrap_servers if self.broker else bootstrap.servers
            options = connection.kafka_options(self._conf)
            self.kafka = KafkaSettings(servers, options, connection.client_arguments(options))
            where = "embedded" if self.broker else f"from {bootstrap.source}"
            progress(f"Kafka at {servers} ({where}); starting Spark on {master or 'local[*]'}")
            spark_conf = {k: v for k, v in self._conf.items() if k.startswith("spark.")}
            self.spark = start_session(master=master, jars=spark_jars, conf=spark_conf, log_file=self.folder / "logs" / "spark.log")
        except BaseException:
            self.close()
            raise

    def make_backend(self, plan: TopologyPlan) -> TopologyDriver:
        """Return what runs one topology here."""
        name = metrics_topic(plan.name).removesuffix(".metrics")  # escaped as its topics are
        return TopologyDriver(plan, self.spark, self.kafka, self.folder / "topologies" / name, resume=self._resume)

    def on_change(self, managed: Any, removed: bool = False) -> None:
        """Take note of a topology's state; a cluster in one process keeps it in memory only."""

    def close(self) -> None:
        """Stop Spark and the embedded broker, and remove temporary folders."""
        if self.spark is not None:
            self.spark.stop()
            self.spark = None
        if self.broker is not None:
            self.broker.stop()
            self.broker = None
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)
