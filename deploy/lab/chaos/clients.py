"""The clients of a topology: they live through all strikes, and each has to work again soon after a fault is over, without being started again.

Whether they do is seen from outside. A message that matches one subscription, the *probe*, goes through the whole topology: clients that follow results have to receive
one that was published after the fault. The others have to answer, and to show what is true now.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import itertools
import json
import math
import os
import re
import subprocess
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.machine import paths
from dskype.deploy.machine.processes import module_command, spawn_tied
from dskype.topology.errors import DskypeError

if TYPE_CHECKING:
    from dskype.deploy.lab.chaos.system import System

__all__ = ["CLIENTS", "Client", "Clients", "Recovered"]

WITHIN_S = 60.0
"""How soon after a fault each client has to work again."""
_TRY_S = 1.0
_START_S = 90
_ANSWER_S = 10
_PROBE = "probe"
_SECRET = "0123456789abcdef"
_FAILURES = (DskypeError, OSError, RuntimeError, ValueError, http.client.HTTPException, subprocess.TimeoutExpired)
"""What a client that does not work may raise; kafka-python's errors are RuntimeErrors."""


class Scene:
    """What all clients share: the system, and probes.

    :param folder: for logs and settings of clients.
    """

    def __init__(self, system: System, folder: Path) -> None:
        self.system, self.folder = system, folder
        self.kafka, self.name = system.kafka, system.name
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self.published = 0
        """How many messages clients have published."""

    def probe(self) -> dict[str, Any]:
        """Return the next message that matches the subscription of the probes."""
        with self._lock:
            return {"id": f"{_PROBE}-{next(self._numbers)}", "text": _PROBE, "lat": 0.0, "lon": 0.0}

    def count(self) -> None:
        """Count a message that Kafka has."""
        with self._lock:
            self.published += 1

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a command of ``dskype``."""
        return module_command("dskype.deploy", *arguments, "--bootstrap-servers", self.system.bootstrap_servers)

    def environ(self) -> dict[str, str]:
        """Return the environment of commands."""
        return {**os.environ, paths.HOME_VARIABLE: str(self.system.home), "NUMBA_CACHE_DIR": str(paths.numba_cache_dir())}


class Client(ABC):
    """A client that lives through strikes."""

    name: str
    text: str
    """What it does, in a few words."""
    pid: int | None = None
    """Its process, if it has one of its own."""

    def begin(self, scene: Scene) -> None:
        """Start; return when it works."""
        self.scene = scene

    @abstractmethod
    def tries(self) -> Callable[[], bool]:
        """Return what tells whether the client works, as seen from now on. It is called until it returns True; errors count as False."""

    def close(self) -> None:
        """End."""


# -- clients in this process --------------------------------------------------------------------------------------------


class Publisher(Client):
    """A PubSub that publishes."""

    name, text = "publisher", "PubSub.publish"

    def begin(self, scene: Scene) -> None:
        """Connect."""
        super().begin(scene)
        self._client = PubSub(scene.kafka, scene.name, timeout_s=_ANSWER_S)

    def tries(self) -> Callable[[], bool]:
        """Publish a message, and wait until Kafka has it."""

        def once() -> bool:
            self._client.publish(**self.scene.probe(), wait=True)
            self.scene.count()
            return True

        return once

    def close(self) -> None:
        """Disconnect."""
        self._client.close(check=False)


class _Receiver(Client):
    """A client that receives the results of probes: it works if one arrives that was published from now on."""

    def begin(self, scene: Scene) -> None:
        """Begin to receive."""
        super().begin(scene)
        self.seen: set[Any] = set()

    def tries(self) -> Callable[[], bool]:
        """Publish a probe with a new client of Kafka, unless one is on its way, and look for those that have arrived."""
        sent: list[str] = []

        def once() -> bool:
            if self.seen.intersection(sent):
                return True
            message = self.scene.probe()
            with contextlib.closing(PubSub(self.scene.kafka, self.scene.name, timeout_s=_ANSWER_S)) as client:
                client.publish(**message, wait=True)
            self.scene.count()
            sent.append(message["id"])
            deadline = time.monotonic() + _ANSWER_S
            while message["id"] not in self.seen and time.monotonic() < deadline:
                time.sleep(0.05)
            return bool(self.seen.intersection(sent))

        return once


class Reader(_Receiver):
    """A PubSub that registers, and follows results."""

    name, text = "results", "PubSub.results(follow=True)"

    def begin(self, scene: Scene) -> None:
        """Register the subscription of the probes, and follow its results."""
        super().begin(scene)
        self._client = PubSub(scene.kafka, scene.name, timeout_s=_ANSWER_S)
        self._client.subscribe(_PROBE, wait=True, bbox=[-1, -1, 1, 1], expression=_PROBE)
        results = self._client.results(subscriptions=[_PROBE], start="now", follow=True)
        threading.Thread(target=self._follow, args=(results,), name="chaos-results", daemon=True).start()

    def _follow(self, results: Any) -> None:
        for result in results:
            self.seen.add(result.message)

    def close(self) -> None:
        """Disconnect; that ends the thread, too."""
        self._client.close(check=False)


class Registrar(Client):
    """A PubSub that registers a subscription and asks what has become of it."""

    name, text = "subscriptions", "PubSub.subscribe, until it is active"

    def begin(self, scene: Scene) -> None:
        """Connect."""
        super().begin(scene)
        self._client = PubSub(scene.kafka, scene.name, timeout_s=_ANSWER_S)
        self._numbers = itertools.count()

    def tries(self) -> Callable[[], bool]:
        """Register, and wait until the subscription is active."""
        id = f"chaos-{next(self._numbers)}"
        sent = False

        def once() -> bool:
            nonlocal sent
            if not sent:
                self._client.subscribe(id, wait=True, bbox=[1, 1, 2, 2], expression=_PROBE)
                sent = True
            registered = self._client.subscription(id)
            return registered is not None and registered.status == "active"

        return once

    def close(self) -> None:
        """Disconnect."""
        self._client.close(check=False)


# -- servers ------------------------------------------------------------------------------------------------------------


class _Server(Client):
    """A command of ``dskype`` that serves until it is ended."""

    ready: str
    """A regular expression for what it prints when it serves; its group is the address."""

    def command(self) -> list[str]:
        """Return its command line."""
        raise NotImplementedError

    def environ(self) -> dict[str, str]:
        """Return its environment."""
        return self.scene.environ()

    def begin(self, scene: Scene) -> None:
        """Start it, and wait until it serves."""
        super().begin(scene)
        log = scene.folder / f"{self.name}.log"
        with open(log, "wb") as output:
            self._process = spawn_tied(self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=self.environ(), cwd=scene.folder)
        self.pid = self._process.pid
        deadline = time.monotonic() + _START_S
        while (found := re.search(self.ready, log.read_text(errors="replace"))) is None:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError(f"{self.text} does not serve; its output: {log.read_text(errors='replace')[-1000:]}")
            time.sleep(0.1)
        self.address = found.group(1)

    def running(self) -> None:
        """Make sure that it has not ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.text} has ended with code {self._process.returncode}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
        return answer.read()


class Metrics(_Server):
    """``dskype metrics``."""

    name, text, ready = "metrics", "dskype metrics", r"(http://\S+/metrics)"

    def command(self) -> list[str]:
        """Serve on a free port."""
        return self.scene.command("metrics", "--port", "0")

    def tries(self) -> Callable[[], bool]:
        """Ask until the topology is healthy and a counter has grown."""
        first: list[float] = []

        def once() -> bool:
            self.running()
            text = _get(self.address).decode()
            healthy = re.search(r"^dskype_topology_healthy\{[^}]*\} 1", text, re.M) is not None
            total = sum(float(n) for n in re.findall(r"^dskype_comm_tuples_total\{[^}]*\} (\S+)$", text, re.M))
            first.append(total)
            return healthy and total > first[0]

        return once


class Pages(_Server):
    """``dskype ui``: the REST API, and a POST that goes through its own producer."""

    name, text, ready = "ui", "dskype ui: GET and POST", r"UI: (http://\S+/)"
    _TOKEN = "token-of-the-fault-suite"

    def command(self) -> list[str]:
        """Serve on a free port."""
        return self.scene.command("ui", "--port", "0")

    def environ(self) -> dict[str, str]:
        """Know the token."""
        return {**super().environ(), "DSKYPE_UI_TOKEN": self._TOKEN}

    def tries(self) -> Callable[[], bool]:
        """Ask for the topologies, and publish a message."""

        def once() -> bool:
            self.running()
            shown = {t["name"]: t["status"] for t in json.loads(_get(f"{self.address}api/v1/topology/summary"))["topologies"]}
            if shown.get(self.scene.name) != "ACTIVE":
                return False
            message = json.dumps(self.scene.probe()).encode()
            headers = {"Authorization": f"Bearer {self._TOKEN}", "Content-Type": "application/json"}
            with urllib.request.urlopen(urllib.request.Request(f"{self.address}api/dskype/messages", message, headers), timeout=2 * _ANSWER_S):
                self.scene.count()
            return True

        return once


class PageResults(_Receiver):
    """A browser that follows results of ``dskype ui``, and reconnects as browsers do when its connection ends."""

    name, text = "ui-results", "dskype ui: results as server-sent events"

    def __init__(self, pages: Pages) -> None:
        self._pages, self._closing = pages, False

    def begin(self, scene: Scene) -> None:
        """Connect."""
        super().begin(scene)
        threading.Thread(target=self._follow, name="chaos-events", daemon=True).start()

    def _follow(self) -> None:
        newest = ""
        while not self._closing:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                request = urllib.request.Request(f"{self._pages.address}api/dskype/results?sub={_PROBE}", headers={"Last-Event-ID": newest} if newest else {})
                with urllib.request.urlopen(request) as events:
                    for line in events:
                        field, _, value = line.decode().rstrip("\n").partition(": ")
                        if field == "id":
                            newest = value
                        elif field == "data":
                            self.seen.add(json.loads(value).get("message"))
            time.sleep(_TRY_S)

    def close(self) -> None:
        """Do not connect again."""
        self._closing = True


class Webhooks(_Server, _Receiver):
    """``dskype webhooks``, and a receiver that keeps what it gets."""

    name, text, ready = "webhooks", "dskype webhooks", r"(results of .* go to)"

    def command(self) -> list[str]:
        """Deliver to this process."""
        seen = self.seen

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                seen.update(result["message"] for result in body["results"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self._receiver.serve_forever, name="chaos-receiver", daemon=True).start()
        file = self.scene.folder / "webhooks.yaml"
        hook = {"name": "chaos", "url": f"http://127.0.0.1:{self._receiver.server_port}/", "secret": _SECRET * 2, "subscriptions": [_PROBE]}
        file.write_text(json.dumps({"topology": self.scene.name, "webhooks": [hook]}))
        return self.scene.command("webhooks", str(file))

    def tries(self) -> Callable[[], bool]:
        """As other receivers; the process must live."""
        once = super().tries()

        def lives() -> bool:
            self.running()
            return once()

        return lives

    def close(self) -> None:
        """End both."""
        super().close()
        self._receiver.shutdown()
        self._receiver.server_close()


# -- commands -----------------------------------------------------------------------------------------------------------


class Command(Client):
    """Commands that are started after the fault."""

    def __init__(self, *commands: str) -> None:
        self.name = commands[0]
        self.text = ", ".join(f"dskype {c}" for c in commands)
        self._commands = commands

    def tries(self) -> Callable[[], bool]:
        """Run them one after the other."""

        def once() -> bool:
            for command in self._commands:
                arguments = (command,) if command == "list" else (command, self.scene.name)
                done = subprocess.run(
                    self.scene.command(*arguments), env=self.scene.environ(), cwd=self.scene.folder, capture_output=True, text=True, timeout=120, check=False
                )
                if done.returncode:
                    raise RuntimeError(f"dskype {command}: {done.stderr.strip()[-500:]}")
                if command == "list" and not re.search(rf"{self.scene.name}\b.*\bACTIVE\b", done.stdout):
                    raise RuntimeError(f"dskype list: {done.stdout[-500:]}")
            return True

        return once


def _all() -> list[Client]:
    pages = Pages()
    return [Publisher(), Registrar(), Reader(), Metrics(), pages, PageResults(pages), Webhooks(), Command("list", "stats"), Command("deactivate", "activate")]


CLIENTS = [client.name for client in _all()]
"""The names of all clients."""


class Recovered:
    """Clients after a strike.

    :ivar seconds: name -> seconds from the end of the fault until it worked; None: not in time.
    :ivar problems: what was wrong.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float | None] = {}
        self.problems: list[str] = []

    @property
    def slowest(self) -> tuple[float | None, str]:
        """Which client took the longest, and its name; None if it did not come back, or if there are no clients."""
        return max(((seconds, name) for name, seconds in self.seconds.items()), key=lambda pair: math.inf if pair[0] is None else pair[0], default=(None, ""))

    def as_text(self) -> str:
        """Return the clients and their seconds as a line."""
        return ", ".join(f"{name} {'never' if seconds is None else f'{seconds:.1f} s'}" for name, seconds in self.seconds.items())


class Clients:
    """All clients of a topology of DSkype: ``with Clients(system, folder) as clients``.

    :param within_s: how soon after a fault each of them has to work, in seconds.
    """

    def __init__(self, system: System, folder: Path, within_s: float = WITHIN_S) -> None:
        folder.mkdir(exist_ok=True)
        self._scene, self._within_s = Scene(system, folder), within_s
        self._clients = _all()
        self._begun: list[Client] = []

    def __enter__(self) -> Self:
        try:
            for client in self._clients:
                self._begun.append(client)
                client.begin(self._scene)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for client in reversed(self._begun):
            with contextlib.suppress(Exception):
                client.close()

    def published(self) -> int:
        """Return how many messages the clients have published."""
        return self._scene.published

    def pids(self) -> list[int]:
        """Return the processes of those that have one."""
        return [client.pid for client in self._clients if client.pid is not None]

    def use(self) -> None:
        """Let each client do something now, while a fault lasts, as users do. What becomes of it does not count: only what works afterwards."""

        def attempt(client: Client) -> None:
            with contextlib.suppress(*_FAILURES):
                client.tries()()

        for client in self._clients:
            if not isinstance(client, Command):
                threading.Thread(target=attempt, args=(client,), name="chaos-attempt", daemon=True).start()

    def watch(self, healed_s: float, ready: threading.Event) -> Callable[[], Recovered]:
        """Begin to look whether the clients work; return what waits for the outcome.

        :param healed_s: when the fault ended, by the monotonic clock.
        :param ready: set when the output has caught up: only then commands are tried, because they switch the topology off and on.
        """
        found = Recovered()

        def follow(client: Client) -> None:
            commands = isinstance(client, Command)
            if commands:
                ready.wait()
            deadline = max(healed_s, time.monotonic() if commands else healed_s) + self._within_s
            began = time.monotonic() if commands else healed_s
            once, why = client.tries(), "no result"
            while True:
                try:
                    if once():
                        found.seconds[client.name] = time.monotonic() - began
                        break
                except _FAILURES as error:
                    why = f"{type(error).__name__}: {error}"
                if time.monotonic() > deadline:
                    found.seconds[client.name] = None
                    found.problems.append(f"{client.text} does not work {self._within_s:g} s after the end of the fault: {why}")
                    break
                time.sleep(_TRY_S)

        commands = [client for client in self._clients if isinstance(client, Command)]
        jobs: list[list[Client]] = [[client] for client in self._clients if client not in commands]
        jobs.append(commands)  # one after the other

        def work(job: list[Client]) -> None:
            for client in job:
                follow(client)

        threads = [threading.Thread(target=work, args=(job,), name="chaos-client", daemon=True) for job in jobs]
        for thread in threads:
            thread.start()

        def outcome() -> Recovered:
            for thread in threads:
                thread.join()
            return found

        return outcome
