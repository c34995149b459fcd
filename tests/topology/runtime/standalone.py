"""A Spark standalone cluster of processes on this machine, whose workers tests can look into."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dskype.deploy.lab.system import standalone as clusters
from dskype.deploy.machine.spark_archive import existing_archive
from dskype.deploy.machine.spark_classes import spark_class_path
from dskype.topology.runtime.spark.session import archive_options

from .helpers import Process, descendants


class Worker(clusters.Worker):
    """A Spark worker, as if on a host of its own."""

    def tree(self) -> dict[int, Process]:
        """Return the processes below the worker: its Spark executors, and what they have started."""
        return descendants(self.process.pid)

    def components(self) -> set[str]:
        """Return the names of the components that have an executor here (cut at 11 characters)."""
        return {p.name.removeprefix("dsk:") for p in self.tree().values() if p.name.startswith("dsk:")}


class Standalone(clusters.Standalone):
    """A master and its workers."""

    worker_class = Worker
    workers: list[Worker]


def executors_of_minutes() -> dict[str, str]:
    """Return settings for Spark executors that live for minutes: their start takes half of the processor time that it takes otherwise.

    The class path must be that of the class archive, so executors have the jars on it that the driver sends them as well. Containers have nothing but those.
    """
    jars = spark_class_path()
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *archive_options(existing_archive(jars))]
    return {"spark.executor.extraJavaOptions": " ".join(options), "spark.executor.extraClassPath": os.pathsep.join(map(str, jars))}


def hiding(folder: Path) -> list[str]:
    """Return the wrapper of a worker that sees a folder empty: it runs in a mount namespace of its own."""
    own = [] if os.getuid() == 0 else ["--map-root-user"]
    return ["/usr/bin/unshare", "--mount", *own, "/bin/sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]


@contextlib.contextmanager
def standalone(folder: Path, workers: int = 2, cores: int = 16, hidden: Path | None = None) -> Iterator[Standalone]:
    """Yield a running cluster.

    :param hidden: a folder that all workers see empty, each by itself.
    """
    cluster = Standalone(folder, workers, cores, hiding(hidden) if hidden else ())
    try:
        yield cluster
    finally:
        cluster.close()
