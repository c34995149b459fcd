"""What the attacks are made on: the web server and the metrics of a topology, each in a process of its own, on a real broker."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from dskype.deploy.client.topics import ensure_topics
from dskype.deploy.machine.processes import spawn_tied
from dskype.spouts.topics import Topics
from dskype.topology.runtime.kafka.clients import KafkaSettings
from tests.waiting import wait_for

__all__ = ["PATIENCE_S", "SCALE", "Attacked", "Topology", "running"]

SCALE = int(os.environ.get("DSKYPE_ATTACK_SCALE", "1"))
"""How much more than in the short run is asked, held and sent (``make attack`` sets it)."""
PATIENCE_S = 120
"""How long an answer may take."""


@dataclass(frozen=True)
class Topology:
    """The topics of a topology that nobody runs."""

    kafka: KafkaSettings
    name: str
    topics: Topics

    @classmethod
    def make(cls, bootstrap_servers: str) -> Topology:
        """Make the topics."""
        kafka, name = KafkaSettings(bootstrap_servers), f"attacked-{uuid.uuid4().hex[:8]}"
        ensure_topics(kafka, name, partitions=2)
        return cls(kafka, name, Topics.for_topology(name))

    def register(self, number: int) -> None:
        """Write so many subscriptions."""
        fields = json.dumps({"type": "topk", "text": "lake park", "lat": 43.04, "lon": -87.9, "k": 2, "alpha": 0.5}).encode()
        self._write((self.topics.subscriptions, f"s{i}".encode(), fields, None, None) for i in range(number))

    def answer(self, first: int, stop: int, size: int = 0) -> None:
        """Write results of the subscription ``s0``, some bytes longer than they have to be."""

        def result(i: int) -> bytes:
            return json.dumps(
                {"v": 1, "subscription": "s0", "watermark": i, "op": "add", "message": f"m{i}", "score": 0.5, "rank": 1, "meta": "x" * size}
            ).encode()

        self._write((self.topics.results, b"s0", result(i), i % 2, [("result-id", f"{i}".encode())]) for i in range(first, stop))

    def _write(self, records: Iterator[tuple[str, bytes, bytes, int | None, Any]]) -> None:
        producer = self.kafka.producer(linger_ms=20)
        for topic, key, value, partition, headers in records:
            producer.send(topic, value, key=key, **({} if partition is None else {"partition": partition}), **({} if headers is None else {"headers": headers}))
        producer.flush()
        producer.close()


@dataclass
class Attacked:
    """A process that serves.

    :ivar url: its address, without a path.
    :ivar log: the file with its output.
    """

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    held: list[socket.socket] = field(default_factory=list)

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of a GET."""
        try:
            with urlopen(Request(f"{self.url}/{path}", headers=headers), timeout=PATIENCE_S) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
        except HTTPError as error:
            return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()

    def usage(self) -> dict[str, Any]:
        """Return what readers use."""
        return json.loads(self.get("api/ui/usage")[2])

    def connect(self, request: str = "", reader: int = 1) -> socket.socket:
        """Open a connection and send something; it is held until the end.

        :param reader: whose: 127.0.0.<reader> is the address.
        """
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        found = socket.create_connection((host, int(port)), timeout=PATIENCE_S, source_address=(f"127.0.0.{reader}", 0))
        found.sendall(request.replace("\n", "\r\n").encode())
        self.held.append(found)
        return found

    def let_go(self) -> None:
        """Close what is held."""
        for one in self.held:
            one.close()
        self.held.clear()

    def state(self) -> dict[str, int]:
        """Return memory in MB, threads and handles of the process."""
        folder = Path(f"/proc/{self.process.pid}")
        status = folder.joinpath("status").read_text()
        numbers = {name: int(re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[1]) for name in ("VmRSS", "Threads")}
        return {"memory_mb": numbers["VmRSS"] >> 10, "threads": numbers["Threads"], "handles": len(list(folder.joinpath("fd").iterdir()))}


@contextmanager
def running(command: str, *arguments: str, **environment: str) -> Iterator[Attacked]:
    """Run a command of the product that serves on a free port, until the end."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = spawn_tied(
                [sys.executable, "-P", "-m", "dskype.deploy", command, *arguments, "--port", "0"],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
            )
        try:
            url = wait_for(
                lambda: re.search(r"http://[\d.]+:\d+", log.read_text(errors="replace")) or (process.poll() is not None and log.read_text()),
                PATIENCE_S,
                log.name,
            )
            assert not isinstance(url, str), url
            attacked = Attacked(url[0], process, log)
            yield attacked
            attacked.let_go()
            assert process.poll() is None, log.read_text(errors="replace")
        finally:
            process.terminate()
            process.wait(30)


def asked_meanwhile(attacked: Attacked, path: str, stop: threading.Event, times_s: list[float]) -> threading.Thread:
    """Ask for a page again and again in a thread, and note how long each answer took."""

    def ask() -> None:
        while not stop.is_set():
            begun = time.monotonic()
            assert attacked.get(path)[0] == 200
            times_s.append(time.monotonic() - begun)
            stop.wait(0.05)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread
