"""What the tests of the server share: a cluster with one topology, and a client over HTTP."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from dskype.topology.nimbus.observing import Contact
from dskype.topology.planning.outline import ComponentOutline, ExecutorOutline, PlanOutline
from dskype.topology.ui.view import Reports, TopologyView
from tests.waiting import Limit

TOKEN = "open-sesame"


def view(name: str, tasks: int = 2, host: str = "here") -> TopologyView:
    """Return a DSkype topology as the UI sees it."""
    bolt = ComponentOutline("bolt", (ExecutorOutline(1, tasks, 6700),), (), ("results",))
    record = {
        "state": {"id": f"{name}-1-1", "name": name, "submitted_ms": 1},
        "summary": {"status": "ACTIVE", "name": name, "health": {"state": "running", "why": [], "restarts": 0}},
        "driver": {"host": host, "pid": 1},
        "plan": PlanOutline({"subscription-bolt": bolt}).to_json(),
    }
    return TopologyView(record, Reports(), True, 2)


class OneTopology:
    """A ClusterSource."""

    def __init__(self, *names: str) -> None:
        self.lock = threading.Lock()
        self.views = [view(name) for name in names or ("dskype",)]
        self.answer = Contact(True, 1, 0.0)

    def topologies(self) -> list[TopologyView]:
        return self.views

    def contact(self) -> Contact:
        return self.answer

    def brokers(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", 9092)]

    def send(self, command: Any) -> None:
        raise AssertionError(command)


def get(server: Any, path: str, **headers: str) -> Any:
    """Return the JSON of a path below /api/dskype/."""
    with urlopen(Request(f"{server.url}api/dskype/{path}", headers=headers), timeout=30) as answer:
        return json.load(answer)


def post(server: Any, path: str, body: Any, token: str | None = TOKEN) -> tuple[int, Any]:
    """Return status and JSON of a POST."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = Request(f"{server.url}api/dskype/{path}", data, {"Authorization": f"Bearer {token}"} if token else {}, method="POST")
    try:
        with urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


class Events:
    """Server-sent events over a plain socket."""

    def __init__(self, server: Any, path: str, last: str = "", headers: Mapping[str, str] | None = None) -> None:
        host, _, port = server.url.removeprefix("http://").strip("/").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
        more = {**(headers or {}), **({"Last-Event-ID": last} if last else {})}
        seen = "".join(f"{name}: {value}\r\n" for name, value in more.items())
        self.socket.sendall(f"GET /api/dskype/{path} HTTP/1.1\r\nHost: localhost\r\n{seen}Connection: close\r\n\r\n".encode())
        self._file = self.socket.makefile("rb")
        head = iter(lambda: self._file.readline().decode().strip(), "")
        self.status = int(next(head).split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}

    def next(self) -> tuple[str, str, Any]:
        """Return name, id and data of the next event with data, which has to come within a minute: a stream without events has signs of life."""
        fields: dict[str, str] = {}
        limit = Limit(60)
        while True:
            line = self._file.readline()
            assert not limit.over, "no event came"
            assert line, "the stream has ended"
            text = line.decode().rstrip("\r\n")
            if not text and "data" in fields:
                return fields.get("event", ""), fields.get("id", ""), json.loads(fields["data"])
            name, _, value = text.partition(": ")
            if name in ("id", "event", "data"):  # the sizes of chunks are between them
                fields[name] = value

    def close(self) -> None:
        self._file.close()
        self.socket.close()
