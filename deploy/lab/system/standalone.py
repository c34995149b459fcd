"""A Spark standalone cluster of processes on this machine: a master, and workers with folders of their own, as if each were a host."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from dskype.deploy.lab.system.usage import processes, tree
from dskype.deploy.machine import paths
from dskype.deploy.machine.broker import free_ports
from dskype.deploy.machine.errors import DeployError
from dskype.deploy.machine.processes import spawn_tied
from dskype.deploy.machine.spark_archive import existing_archive
from dskype.deploy.machine.spark_classes import spark_class_path
from dskype.topology.runtime.spark.session import archive_options

__all__ = ["Standalone", "Worker", "standalone"]

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_START_S = 180.0


class Worker:
    """A Spark worker, as if on a host of its own. It ends with this process.

    :param master: URL of the master.
    :param folder: holds its home, its temp folder and its working folder.
    :param cores: its task slots.
    :param wrapper: a command that runs Spark's command, for example in a namespace.
    :ivar process: the worker's JVM.
    """

    def __init__(self, master: str, folder: Path, cores: int, wrapper: Sequence[str] = ()) -> None:
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
        options = {"--host": "127.0.0.1", "--webui-port": "0", "--cores": str(cores), "--memory": "2g", "--work-dir": str(folder / "work")}
        arguments = [word for option in options.items() for word in option]
        self.process = _start(["org.apache.spark.deploy.worker.Worker", *arguments, master], folder / "worker.log", environment, wrapper)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker and all processes below it, as if its host had failed, stopped or continued."""
        for process in tree(processes(), self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def close(self) -> None:
        """End the worker and the processes below it."""
        self.signal(signal.SIGKILL)
        self.process.kill()
        self.process.wait()


class Standalone:
    """A master and its workers.

    :param folder: of logs, and of the workers' folders; it must not have any yet.
    :param workers: how many.
    :param cores: task slots of each worker.
    :param wrapper: see :class:`Worker`.
    :ivar url: of the master.
    :raises DeployError: the master or a worker did not start.
    """

    worker_class = Worker

    def __init__(self, folder: Path, workers: int = 2, cores: int = 16, wrapper: Sequence[str] = ()) -> None:
        self._folder, self._cores, self._wrapper = folder, cores, wrapper
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        self.url = f"spark://127.0.0.1:{port}"
        self._log = folder / "master.log"
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self._master = _start(["org.apache.spark.deploy.master.Master", *arguments], self._log, os.environ)
        self.workers: list[Worker] = []
        try:
            self._await("I have been elected leader", 1)
            for _ in range(workers):
                self.add_worker()
        except BaseException:
            self.close()
            raise

    def add_worker(self, wrapper: Sequence[str] | None = None) -> Worker:
        """Start another worker; return when it is registered.

        :param wrapper: default: that of all.
        """
        worker = self.worker_class(self.url, self._folder / f"host-{len(self.workers)}", self._cores, self._wrapper if wrapper is None else wrapper)
        self.workers.append(worker)
        self._await("Registering worker", len(self.workers))
        return worker

    def _await(self, text: str, times: int) -> None:
        """Wait until the master's log has a text so many times."""
        deadline = time.monotonic() + _START_S
        while self._log.read_text(errors="replace").count(text) < times:
            if time.monotonic() > deadline or self._master.poll() is not None:
                raise DeployError(f"Spark's master or a worker has not started within {_START_S:g} s", fix=f"see {self._log}")
            time.sleep(0.1)

    def close(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.close()
        self._master.kill()
        self._master.wait()


def _start(arguments: Sequence[str], log: Path, environment: Mapping[str, str], wrapper: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    jars = spark_class_path()  # that of the class archive
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *archive_options(existing_archive(jars))]
    options.append("-Dspark.master.rest.enabled=false")  # else a master takes programs at port 6066
    environment = {**environment, "SPARK_NO_DAEMONIZE": "1", "PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m"}
    environment |= {"SPARK_DAEMON_CLASSPATH": os.pathsep.join(map(str, jars)), "SPARK_DAEMON_JAVA_OPTS": " ".join(options)}
    command = [*wrapper, str(_SPARK_CLASS), *arguments]
    with open(log, "wb") as output:
        return spawn_tied(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent)


@contextmanager
def standalone(folder: Path, workers: int = 2, cores: int = 16) -> Iterator[Standalone]:
    """Yield a running cluster, and end it."""
    cluster = Standalone(folder, workers, cores)
    try:
        yield cluster
    finally:
        cluster.close()
