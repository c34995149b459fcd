"""A simulated cluster as the UI sees it, and a client of the UI without a network."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dskype.topology import BasicBolt, Fields, TopologyBuilder
from dskype.topology.local import LocalCluster
from dskype.topology.nimbus.observing import Contact
from dskype.topology.planning.outline import PlanOutline
from dskype.topology.planning.plan import metrics_topic
from dskype.topology.testing import FeederSpout
from dskype.topology.ui.server import UiOptions, make_app
from dskype.topology.ui.view import Reports, TopologyView

TOKEN = "open-sesame"


class Split(BasicBolt):
    """Emits each letter, and the length on a stream of its own."""

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("letter"))
        declarer.declare_stream("length 1", Fields("n"))

    def execute(self, tup, collector):
        for letter in tup["word"]:
            collector.emit((letter,))
        collector.emit((len(tup["word"]),), stream="length 1")


class Count(BasicBolt):
    """Breaks at an exclamation mark, with markup in the error."""

    def execute(self, tup, collector):
        if tup[0] == "!":
            raise ValueError("<img src=x onerror=alert(1)> password=hidden")


def word_count(feeder: FeederSpout) -> Any:
    """Return a topology: a fed spout, two tasks that split, three that count letters, one that gets lengths."""
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("split", Split(), 2).shuffle_grouping("words")
    builder.set_bolt("count", Count(), 3).fields_grouping("split", Fields("letter"))
    builder.set_bolt("sum", Count(), 1).global_grouping("split", "length 1")
    return builder.create_topology()


class SimulatedSource:
    """A ClusterSource of a simulated cluster; metrics are read from its log as they are from Kafka."""

    def __init__(self) -> None:
        self.cluster = LocalCluster(simulated=True)
        self.reports: dict[str, tuple[Reports, int]] = {}
        self.sent: list[dict[str, Any]] = []
        self.logs: Path | None = None
        self.answer = Contact(True, 1, 0.0)
        self.silent_s: float | None = None
        self._lock = threading.Lock()

    def topologies(self) -> list[TopologyView]:
        with self._lock:  # a server asks from several threads
            return self._views()

    def _views(self) -> list[TopologyView]:
        manager, log, views = self.cluster.manager, self.cluster.log, []
        for name, managed in sorted(manager.topologies.items()):
            reports, at = self.reports.get(name, (Reports(), 0))
            end = log.end(metrics_topic(name), 0)
            for record in log.read(metrics_topic(name), 0, at, end):
                reports.feed(record.value)
            self.reports[name] = reports, end
            record = {"state": managed.state.to_json(), "summary": manager.summary(name), "driver": {"host": "here", "pid": 1}}
            record["plan"] = PlanOutline.of(managed.plan).to_json()
            record = json.loads(json.dumps(record))
            reports.timeline.see(record, self.cluster.now_ms())
            views.append(TopologyView(record, reports, True, self.cluster.now_ms(), {}, self.logs, self.silent_s, self.answer))
        return views

    def contact(self) -> Contact:
        return self.answer

    def brokers(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", 9092)]

    def send(self, command: dict[str, Any]) -> None:
        self.sent.append(command)
        self.cluster.manager.execute(command)


class Client:
    """Sends requests to an ASGI application."""

    def __init__(self, source: Any, **options: Any) -> None:
        self.app = make_app(UiOptions(source, TOKEN, "1.2.3", **options))

    def request(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None, host: str = "localhost:8080") -> tuple[int, Any, bytes]:
        """Return status, headers and body."""
        path, _, query = path.partition("?")
        given = {"host": host, **(headers or {})}
        if body:
            given["content-length"] = str(len(body))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in given.items()],
            "server": ("localhost", 8080),
            "client": ("127.0.0.1", 1),
        }
        sent: list[Any] = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return waiting.pop() if waiting else await asyncio.Future()

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        found = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
        return sent[0]["status"], found, b"".join(m.get("body", b"") for m in sent[1:])

    def get(self, path: str, **options: Any) -> Any:
        """Return the JSON of a path of the API, which must succeed."""
        status, headers, body = self.request("GET", f"/api/v1/{path}", **options)
        assert status == 200, body
        assert headers["content-type"] == "application/json; charset=utf-8"
        return json.loads(body)

    def post(self, path: str, body: Any = None, token: str | None = TOKEN) -> tuple[int, Any]:
        """Return status and JSON of a POST."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        status, _, answer = self.request("POST", f"/api/v1/{path}", b"" if body is None else json.dumps(body).encode(), headers)
        return status, json.loads(answer)


def letters_of(words: list[str]) -> int:
    """Return how many letters words have."""
    return sum(map(len, words))
