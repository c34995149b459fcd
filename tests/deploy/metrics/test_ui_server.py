"""``dskype ui``: who may be served, and how the server is reached."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.metrics import ui_server
from dskype.deploy.metrics.ui_server import FollowedCluster, UiSettings, serve
from dskype.topology.errors import TopologyError
from dskype.topology.nimbus import observing
from dskype.topology.ui.budget import Budget


class NoBroker:
    """Kafka settings of brokers that are away."""

    bootstrap_servers = "127.0.0.1:1,[::1]:2"

    def consumer(self, **_):
        from kafka.errors import KafkaConnectionError

        raise KafkaConnectionError("away")


def get(url: str, **headers: str):
    with urlopen(Request(url, headers=headers), timeout=10) as answer:
        return json.load(answer)


def test_the_ui_says_that_the_brokers_are_away_instead_of_that_nothing_runs(monkeypatch):
    monkeypatch.setattr(observing, "BROKERS_SILENT_AFTER_S", 0.2)
    said: list[str] = []
    with serve(FollowedCluster(NoBroker()), UiSettings(port=0), said.append) as server:
        found = re.fullmatch(r"UI: (http://127\.0\.0\.1:\d+/)#token=(\S{32})", said[0])
        assert found and found[1] == server.url and found[2] == server.token and f"Bearer {found[2]}" in said[1]
        with pytest.raises(HTTPError) as error:
            get(f"{server.url}api/v1/topology/summary")
        refused = json.load(error.value)["errorMessage"]
        assert error.value.code == 500 and "The brokers do not answer" in refused and "away" in refused and "127.0.0.1:1,[::1]:2" in refused
        assert [(n["host"], n["port"], n["status"]) for n in get(f"{server.url}api/v1/nimbus/summary")["nimbuses"]] == [
            ("127.0.0.1", 1, "Offline"),
            ("::1", 2, "Offline"),
        ]
        health = get(f"{server.url}api/ui/health")
        assert health["brokers"]["answer"] is False and health["brokers"]["heardMs"] is None and health["topologies"] == []
        (problem,) = health["problems"]
        assert "since they were first asked" in problem["what"] and "away" in problem["what"] and problem["numbersOld"] is True
        with pytest.raises(HTTPError, match="400"):
            get(f"{server.url}api/v1/topology/summary", Host="evil.example")
        port = int(server.url.rpartition(":")[2].strip("/"))
        with pytest.raises(TopologyError, match="--port 0 takes a free port"):
            serve(FollowedCluster(NoBroker()), UiSettings(port=port), said.append)
    with socket.create_server(("127.0.0.1", port)):  # it has let go of the port
        pass


def test_other_machines_are_served_only_on_demand():
    for host in ("0.0.0.0", "::", "", "192.0.2.1"):
        with pytest.raises(TopologyError, match="only to this machine.*hint: --allow-remote"):
            serve(FollowedCluster(NoBroker()), UiSettings(host=host, port=0), lambda text: None)
    said: list[str] = []
    settings = UiSettings(host="0.0.0.0", port=0, allow_remote=True, names=("ui.example",))
    with serve(FollowedCluster(NoBroker()), settings, said.append) as server:
        assert "warning: everyone who can reach 0.0.0.0 can read the pages" in said[-1]
        url = f"http://127.0.0.1:{server.url.rpartition(':')[2]}api/ui/pages"
        assert get(url, Host="ui.example:80") == {"pages": []}
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", server.url) and get(f"{server.url}api/ui/pages") == {"pages": []}, "an address to open"
        for other in ("other.example", "0.0.0.0"):
            with pytest.raises(HTTPError, match="400"):
                get(url, Host=other)
    with serve(FollowedCluster(NoBroker()), UiSettings(host="0.0.0.0", port=0, allow_remote=True), said.append) as server:
        assert get(f"{server.url}api/ui/pages", Host="any.example") == {"pages": []}, "nothing says what its names are"


def test_the_token_is_not_shown_where_settings_are():
    assert "secret" not in repr(UiSettings(token="secret"))


def test_a_token_that_was_given_is_not_printed_and_a_short_one_is_refused():
    said: list[str] = []
    with serve(FollowedCluster(NoBroker()), UiSettings(port=0, token="canary-token-4711"), said.append) as server:
        assert said[0] == f"UI: {server.url}" and server.token == "canary-token-4711"
        assert not any("canary" in text for text in said) and "the token that the server was given" in said[1]
    with pytest.raises(TopologyError, match="too short. given: '15 characters'; legal: at least 16") as refused:
        serve(FollowedCluster(NoBroker()), UiSettings(port=0, token="canary-of-15-ch"), said.append)
    assert "canary" not in str(refused.value)


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(TopologyError, match=r"no module uvicorn.*pip install '/path/to/dskype\[ui\]'"):
        serve(FollowedCluster(NoBroker()), UiSettings(port=0), lambda text: None)
    assert cli.main(["ui", "--bootstrap-servers", "127.0.0.1:1"]) == 1


@pytest.mark.long
def test_webhooks_need_no_web_server():
    modules = "sys.modules['starlette'] = sys.modules['uvicorn'] = None"
    subprocess.run([sys.executable, "-c", f"import sys; {modules}; import dskype.deploy.web.webhooks"], check=True, timeout=120)


def test_the_command_passes_its_options_on(monkeypatch):
    seen = []

    class Served:
        def __enter__(self):
            raise KeyboardInterrupt

        def __exit__(self, *_):
            pass

    def served(source, settings, say, extensions):
        assert [extension.name for extension in extensions] == ["dskype"]
        seen.append(settings)
        return Served()

    monkeypatch.setattr(ui_server, "serve", served)
    monkeypatch.setenv("DSKYPE_UI_TOKEN", "from-outside-with-16")
    options = ["--bootstrap-servers", "127.0.0.1:1", "--port", "0", "--allow-host", "a", "--allow-host", "b", "--allow-origin", "*"]
    assert cli.main(["ui", *options]) == 130
    assert cli.main(["ui", *options, "--proxy", "192.0.2.1", "--limit", "streams=7"]) == 130
    settings = UiSettings("127.0.0.1", 0, "from-outside-with-16", ("a", "b"), "*", False)
    assert seen == [settings, replace(settings, proxies=("192.0.2.1",), budget=Budget(streams=7))]


def test_commands_go_to_the_process_that_runs_the_topology(monkeypatch):
    cluster, sent = FollowedCluster(NoBroker()), []
    monkeypatch.setattr(cluster, "_client", SimpleNamespace(send=sent.append))
    cluster.send({"name": "t", "event": "KILL"})
    assert sent == [{"name": "t", "event": "KILL"}]
