"""A Spark standalone cluster of processes on this machine: a master, and workers with homes and temp folders of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark

from dskype.deploy.machine import paths
from dskype.deploy.machine.broker import free_ports
from dskype.deploy.machine.processes import spawn_tied

from .helpers import Process, descendants, wait_for

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


class Worker:
    """A Spark worker, as if on a host of its own.

    :param folder: holds its home, its temp folder and its working folder.
    :param hidden: a folder that this host sees empty.
    """

    def __init__(self, master: str, folder: Path, cores: int, hidden: Path | None = None) -> None:
        self.folder = folder
        for part in ("home", "tmp", "work"):
            (folder / part).mkdir(parents=True)
        # Compiled kernels are shared, as if installed on every host; folders to which a run writes are not.
        environment = {
            **os.environ,
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
            "NUMBA_CACHE_DIR": str(paths.numba_cache_dir()),
        }
        environment.pop(paths.HOME_VARIABLE, None)
        self.process = _start(
            [
                "org.apache.spark.deploy.worker.Worker",
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                "--cores",
                str(cores),
                "--memory",
                "2g",
                "--work-dir",
                str(folder / "work"),
                master,
            ],
            folder / "worker.log",
            environment,
            hidden,
        )

    def tree(self) -> dict[int, Process]:
        """Return the processes below the worker: its Spark executors, and what they have started."""
        return descendants(self.process.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker and all processes below it, as if its host had failed, stopped or continued."""
        for pid in [self.process.pid, *self.tree()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def components(self) -> set[str]:
        """Return the names of the components that have an executor here (cut at 11 characters)."""
        return {p.name.removeprefix("dsk:") for p in self.tree().values() if p.name.startswith("dsk:")}

    def close(self) -> None:
        """End the worker and the processes below it."""
        self.signal(signal.SIGKILL)
        self.process.wait()


class Standalone:
    """A master and its workers.

    :param hidden: a folder that all workers see empty, each by itself.
    """

    def __init__(self, folder: Path, workers: int = 2, cores: int = 16, hidden: Path | None = None) -> None:
        self._folder, self._cores, self._hidden = folder, cores, hidden
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        self.url = f"spark://127.0.0.1:{port}"
        self._log = folder / "master.log"
        self._master = _start(
            ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"], self._log, dict(os.environ)
        )
        self.workers: list[Worker] = []
        wait_for(lambda: "I have been elected leader" in self._log.read_text(), 60, "Spark's master")
        for _ in range(workers):
            self.add_worker()

    def add_worker(self, hidden: Path | None = None) -> Worker:
        """Start another worker; return when it is registered."""
        worker = Worker(self.url, self._folder / f"host-{len(self.workers)}", self._cores, hidden or self._hidden)
        self.workers.append(worker)
        wait_for(lambda: self._log.read_text().count("Registering worker") >= len(self.workers), 60, "the registration of a worker")
        return worker

    def close(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.close()
        self._master.kill()
        self._master.wait()


def _start(arguments: list[str], log: Path, environment: dict[str, str], hidden: Path | None = None) -> subprocess.Popen:
    environment = {**environment, "SPARK_NO_DAEMONIZE": "1", "PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m"}
    environment["SPARK_DAEMON_JAVA_OPTS"] = "-XX:TieredStopAtLevel=1"
    command = [str(_SPARK_CLASS), *arguments]
    if hidden is not None:  # in a mount namespace of its own
        own = [] if os.getuid() == 0 else ["--map-root-user"]
        command = ["/usr/bin/unshare", "--mount", *own, "/bin/sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden), *command]
    with open(log, "wb") as output:
        return spawn_tied(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent)


@contextlib.contextmanager
def standalone(folder: Path, **arguments: Any) -> Iterator[Standalone]:
    """Yield a running cluster."""
    cluster = Standalone(folder, **arguments)
    try:
        yield cluster
    finally:
        cluster.close()
