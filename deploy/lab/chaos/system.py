"""The system under test: a broker, and ``dskype submit`` in its own process, which is restarted whenever it ends."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Self

from dskype.deploy.lab.chaos import clock, processes
from dskype.deploy.lab.chaos.door import Door
from dskype.deploy.machine import paths
from dskype.deploy.machine.broker import EmbeddedBroker, free_ports
from dskype.deploy.machine.processes import module_command, spawn_tied
from dskype.topology.runtime.driver.query_keeper import RESTARTED
from dskype.topology.runtime.kafka.clients import KafkaSettings

__all__ = ["System"]

log = logging.getLogger(__name__)

_END_S = 60


class System:
    """A topology with its own broker: ``with System(...) as system``.

    :param folder: an empty folder for everything.
    :param name: the topology's name.
    :param flux: the topology as a Flux document.
    :param modules: modules whose classes the document names.
    :param disk_mib: size of a separate file system for the topology's folder; 0, or if mounting is not allowed: none.
    :param steps_clock: run with a clock that can be set.
    :param door: everybody reaches the broker through a door, which can hang.
    """

    def __init__(
        self, folder: Path, name: str, flux: dict[str, Any], modules: tuple[str, ...] = (), *, disk_mib: int = 0, steps_clock: bool = False, door: bool = False
    ) -> None:
        self.folder, self.name, self._flux, self._modules = folder, name, flux, modules
        self.home = folder / "home"
        self.data = self.home / "topologies"
        self.door: Door | None = None
        self.broker = EmbeddedBroker(folder / "broker")
        if door:
            port, target = free_ports(2)
            self.door = Door(port, target)
            self.broker = EmbeddedBroker(folder / "broker", port=target, properties={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
        self.log = folder / "submit.log"
        self.starts: list[float] = []
        """When the driver was started, by the monotonic clock."""
        self.ended_by_suite = 0
        """How often the suite had to end a driver that did not notice that it could not work."""
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._hold = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="chaos-keeper", daemon=True)
        self._disk_mib, self.mounted = disk_mib, False
        self.clients: list[int] = []
        """Process ids of clients."""
        self.clock = clock.SetClock(folder / "clock") if steps_clock else None

    def __enter__(self) -> Self:
        self.data.mkdir(parents=True)
        for folder in paths.derived_dirs():
            (self.home / folder.name).symlink_to(folder)
        if self._disk_mib:
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self._disk_mib}m,mode=700", "tmpfs", str(self.data)], capture_output=True, check=False)
            self.mounted = done.returncode == 0
        (self.folder / "topology.yaml").write_text(json.dumps(self._flux))
        try:
            if self.door is not None:
                self.door.start()
            self.broker.start()
        except BaseException:
            self._unmount()
            raise
        self.bootstrap_servers = self.broker.bootstrap_servers if self.door is None else f"127.0.0.1:{self.door.port}"
        self.kafka = KafkaSettings(self.bootstrap_servers)
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        with contextlib.suppress(RuntimeError):
            self._keeper.join(timeout=10)
        process = self._process
        if process is not None and process.poll() is None:
            processes.send([process.pid, *processes.tree(process.pid)], signal.SIGCONT)
            process.kill()
            process.wait()
        processes.sweep(f"{self.folder}{os.sep}")
        if self.door is not None:
            self.door.resume()
        self.broker.stop()
        if self.door is not None:
            self.door.close()
        self._unmount()

    def _unmount(self) -> None:
        if self.mounted:
            for _ in range(50):  # processes that the driver has left end a moment later
                if subprocess.run(["umount", str(self.data)], capture_output=True, check=False).returncode == 0:
                    break
                time.sleep(0.2)
            else:
                subprocess.run(["umount", "-l", str(self.data)], capture_output=True, check=False)
            self.mounted = False

    # -- the driver -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the topology, and restart it whenever its process ends, as an init system does."""
        self._start()
        self._keeper.start()

    def _start(self) -> None:
        env = {**os.environ, paths.HOME_VARIABLE: str(self.home), "NUMBA_CACHE_DIR": str(paths.numba_cache_dir())}
        if self.clock is not None:
            env |= self.clock.environ()
        command = module_command(
            "dskype.deploy",
            "submit",
            str(self.folder / "topology.yaml"),
            "--no-splash",
            "--no-detail",
            "--bootstrap-servers",
            self.bootstrap_servers,
            *(a for m in self._modules for a in ("--allow-module", m)),
        )
        with open(self.log, "ab") as output:
            self._process = spawn_tied(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=self.folder)
        self.starts.append(time.monotonic())

    def _keep(self) -> None:
        while not self._closing.wait(0.2):
            if self._process.poll() is not None and not self._hold.is_set():
                log.info("the driver ended with code %s; starting it again", self._process.returncode)
                self._closing.wait(min(5, max(0, 1 - (time.monotonic() - self.starts[-1]))))
                self._start()

    @property
    def pid(self) -> int:
        """The driver's process id."""
        return self._process.pid

    def find(self, kind: str) -> list[int]:
        """Return the process ids of a kind: ``broker``, ``client``, or one of :data:`~dskype.deploy.lab.chaos.processes.KINDS`."""
        if kind == "client":
            return self.clients
        if kind == "broker":
            return [self.broker.pid] if self.broker.pid else []
        return processes.find(kind, self.pid)

    def memory_mib(self) -> float:
        """Return the resident memory of the driver and all processes below it; shared pages count for each."""
        return sum(process.rss for process in processes.tree(self.pid).values()) / (1 << 20)

    def end_driver(self) -> None:
        """Kill a driver that has not noticed that it cannot work."""
        self.ended_by_suite += 1
        processes.send(self.find("driver"), signal.SIGKILL)

    def query_restarts(self) -> int:
        """Return how often queries were restarted, according to the driver's log."""
        try:
            return self.log.read_text(errors="replace").count(RESTARTED)
        except OSError:
            return 0

    def finish(self) -> bool:
        """End the topology with ``dskype kill``; return whether its process ended without an error."""
        self._hold.set()
        env = {**os.environ, paths.HOME_VARIABLE: str(self.home)}
        done = subprocess.run(
            module_command("dskype.deploy", "kill", self.name, "-w", "0", "--bootstrap-servers", self.bootstrap_servers),
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            log.warning("dskype kill: %s", done.stderr.strip())
        try:
            return self._process.wait(_END_S) == 0 and not done.returncode
        except subprocess.TimeoutExpired:
            log.warning("the driver did not end within %s s", _END_S)
            return False
