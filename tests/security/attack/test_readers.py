"""Attacks of those who only read: nobody has to log in to do any of this."""

from __future__ import annotations

import json
import threading

import pytest

from tests.security.attack.service import PATIENCE_S, SCALE, Attacked, Topology, asked_meanwhile, running
from tests.waiting import wait_for

CLIENTS = 40 if SCALE == 1 else 500


@pytest.fixture
def report(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]):
    """Print a line of numbers, also where pytest shows no output."""

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {request.node.name}: {text}")

    return say


def events(connection) -> list[dict]:
    """Return the data of the events that a connection has got since it was asked last, of those that are whole."""
    found = connection.recv(1 << 20)
    return [json.loads(line[6:]) for line in found.split(b"\n") if line.startswith(b"data: ") and line.endswith(b"}")]


def test_a_client_that_names_thousands_of_places_stops_nobody(ui: Attacked, topology: Topology, report) -> None:
    places = ",".join(f"r{number}:0" for number in range(2, 9002))
    assert ui.get(f"api/dskype/results?topology={topology.name}&last_event_id={places}")[0] == 431
    assert ui.get(f"api/dskype/results?topology={topology.name}&last_event_id={places[:60_000].rpartition(',')[0]}")[0] == 400
    places = places[:16_000].rpartition(",")[0]
    clients = [ui.connect(f"GET /api/dskype/results?topology={topology.name}&last_event_id=r0:0,r1:0,{places} HTTP/1.1\nHost: localhost\n\n") for _ in range(5)]
    for client in clients:
        wait_for(lambda client=client: b"following" in client.recv(65536), PATIENCE_S, "the first event of a stream")
    stop, times_s, number = threading.Event(), list[float](), 400 * SCALE
    thread = asked_meanwhile(ui, "api/ui/pages", stop, times_s)
    topology.answer(0, number)
    got = b""
    while got.count(b"event: result") < number:
        got += clients[0].recv(1 << 20)
    stop.set()
    thread.join()
    ids = [line for line in got.split(b"\n") if line.startswith(b"id: ")]
    assert max(map(len, ids)) < 60 and b"r1999" not in got
    report(f"{number} results of {len(got) / 1e6:.2f} MB; the page answered {len(times_s)} times, within {max(times_s):.3f} s")
    ui.let_go()


def test_answers_that_read_whole_topics_and_whose_clients_leave_block_nobody(ui: Attacked, topology: Topology, report) -> None:
    topology.register(1000 * SCALE)
    stop, times_s = threading.Event(), list[float]()
    thread = asked_meanwhile(ui, "api/v1/cluster/configuration", stop, times_s)
    for i in range(60 * SCALE):
        ui.connect(
            f"GET /api/dskype/subscription?topology={topology.name}&id=z{i} HTTP/1.1\nHost: localhost\n\n", reader=2
        )  # who may have too many connections
        if i % 60 == 59:
            ui.let_go()
    wait_for(lambda: ui.usage()["taken"]["requests"] == 0, PATIENCE_S, "the end of all requests")
    status, _, body = ui.get(f"api/dskype/subscription?topology={topology.name}&id=s7")
    assert status == 200 and json.loads(body)["registered"]["status"] == "pending"
    found = [
        ui.connect(f"GET /api/dskype/subscriptions?topology={topology.name}&limit=500 HTTP/1.1\nHost: localhost\nConnection: close\n\n") for _ in range(40)
    ]
    statuses = [one.recv(12)[9:] for one in found]
    assert set(statuses) == {b"200", b"503"}
    stop.set()
    thread.join()
    report(f"statuses {statuses.count(b'200')} x 200, {statuses.count(b'503')} x 503; a page answered {len(times_s)} times, within {max(times_s):.3f} s")
    ui.let_go()


def test_clients_that_read_nothing_cost_little(topology: Topology, report) -> None:
    topology.answer(1_000_000, 1_000_000 + 5000, size=4000)  # 20 MB
    with running("ui", "--bootstrap-servers", topology.kafka.bootstrap_servers) as ui:
        assert ui.get(f"api/dskype/subscription?topology={topology.name}&id=s0")[0] == 200
        before = ui.state()
        for number in range(CLIENTS):
            ui.connect(f"GET /api/dskype/results?topology={topology.name}&start=beginning HTTP/1.1\nHost: localhost\n\n", reader=1 + number // 50)
        wait_for(lambda: ui.usage()["taken"]["streams"] == CLIENTS, PATIENCE_S, "all streams")
        reading = (
            ui.connect(f"GET /api/dskype/results?topology={topology.name}&start=beginning HTTP/1.1\nHost: localhost\n\n", reader=200) if CLIENTS < 500 else None
        )
        if reading is not None:
            got = 0
            while got < 5000:
                got += reading.recv(1 << 20).count(b"event: result")
        for one in ui.held:  # each has got something, and takes no more
            wait_for(lambda one=one: one.recv(1), PATIENCE_S, "an answer")
        topology.answer(2_000_000, 2_000_000 + 3000, size=4000)
        wait_for(lambda: ui.get("api/ui/pages")[0] == 200, PATIENCE_S, "the page of the topologies")
        after = ui.state()
        report(f"{CLIENTS} clients: {before} -> {after}")
        assert after["memory_mb"] - before["memory_mb"] < 100 + 0.8 * CLIENTS
        assert after["threads"] - before["threads"] < 60 and after["handles"] - before["handles"] < CLIENTS + 120


def test_one_address_does_not_get_all_places(ui: Attacked, topology: Topology) -> None:
    request = f"GET /api/dskype/results?topology={topology.name} HTTP/1.1\nHost: localhost\n\n"
    statuses = [ui.connect(request, reader=9).recv(12)[9:] for _ in range(120)]
    assert statuses.count(b"200") == 100 and statuses.count(b"429") == 20
    assert ui.connect(request).recv(12)[9:] == b"200"
    status, _, body = ui.get("metrics")
    assert status == 200 and b'dskype_reader_refusals_total{limit="streams-per-address"} 20.0' in body
    ui.let_go()
    wait_for(lambda: ui.usage()["taken"]["streams"] == 0, PATIENCE_S, "the end of all streams")


def test_connections_that_never_ask_are_closed_and_do_not_keep_others_out(topology: Topology) -> None:
    limits = "head-s=5 connections=60 connections-per-address=20"
    with running("ui", "--bootstrap-servers", topology.kafka.bootstrap_servers, DSKYPE_LIMITS=limits) as ui:
        for reader in (2, 3):
            for _ in range(40):
                ui.connect("GET /api/ui/pages HTTP/1.1\nHost: loc", reader=reader)
        assert ui.get("api/ui/pages")[0] == 200
        wait_for(lambda: ui.usage()["taken"]["connections"] == 1, PATIENCE_S, "one connection")
        refused = ui.usage()["refused"]
        assert refused["head_s"] >= 40 and sum(refused.values()) == 80  # on a slow machine some are closed before others come


def test_requests_write_no_control_characters_and_little_into_the_log(ui: Attacked) -> None:
    for number in range(200 * SCALE):
        assert ui.get(f"static/dskype/%1b%5d0;PWNED%07%1b%5b2J{number}{'a' * 300}.js")[0] == 404
        ui.connect("\x1b[31mnonsense\n\n").recv(1000)
        ui.let_go()
    text = ui.log.read_bytes()
    assert not set(text) & {0x1B, 0x07, 0x9B} and len(text) < 5000


def test_half_requests_for_metrics_cost_the_process_neither_threads_nor_handles(topology: Topology, report) -> None:
    with running("metrics", "--bootstrap-servers", topology.kafka.bootstrap_servers) as metrics:
        wait_for(lambda: b"dskype_brokers_answer 1" in metrics.get("metrics")[2], PATIENCE_S, "an answer of the broker")
        before = metrics.state()
        for _ in range(120 * SCALE):
            metrics.connect("GET /metrics HTTP/1.1\nHost: loc")
            if len(metrics.held) > 500:
                metrics.held.pop(0).close()
        status, _, body = metrics.get("metrics")
        after = metrics.state()
        assert status == 200 and b'dskype_reader_refusals_total{limit="scrape-connections"}' in body
        assert after["threads"] <= before["threads"] + 2 and after["handles"] <= before["handles"] + 34
        assert metrics.get("metrics", Host="evil.example")[0] == 400
        report(f"{before} -> {after}")


def test_a_token_from_outside_is_not_in_the_log(topology: Topology) -> None:
    with running("ui", "--bootstrap-servers", topology.kafka.bootstrap_servers, DSKYPE_UI_TOKEN="canary-token-4711") as ui:
        assert ui.get("api/ui/pages")[0] == 200
        assert "canary" not in ui.log.read_text()
