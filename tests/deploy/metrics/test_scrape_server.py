"""The server of the metrics runs inside a topology's process: few connections, no threads for them, a time for headers, and its own names only."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from itertools import pairwise

import pytest

from dskype.deploy.metrics.prometheus import Collector, Exporter
from dskype.deploy.metrics.scrape_server import ScrapeServer
from dskype.topology.ui.budget import Budget, Usage
from tests.waiting import wait_for

from ..connections import opened, rest
from .test_ui_server import NoBroker


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{environ['PATH_INFO']} {environ['QUERY_STRING']} {environ['HTTP_ACCEPT']}".encode()]


@contextmanager
def serving(app=application, names=frozenset({"localhost", "127.0.0.1"}), **limits):
    usage = Usage(Budget(**limits))
    server = ScrapeServer(app, ("127.0.0.1", 0), names, usage)
    try:
        yield server, usage
    finally:
        server.close()


def connect(server, data=b""):
    return opened(server.address, data)


def ask(server, text):
    return rest(connect(server, text.replace("\n", "\r\n").encode()))


def test_it_answers_gets_to_its_own_names_only():
    with serving() as (server, _):
        found = ask(server, "GET /metrics?name[]=a HTTP/1.1\nHost: localhost:9464\nAccept: text/plain\n\n")
        assert found.startswith(b"HTTP/1.1 200 OK\r\n") and found.endswith(b"\r\n\r\n/metrics name[]=a text/plain") and b"Connection: close" in found
        for host in ("evil.example", "localhost.evil", ""):
            assert b"400 Bad Request" in ask(server, f"GET /metrics HTTP/1.1\nHost: {host}\n\n")
        assert b"400 Bad Request" in ask(server, "GET /metrics HTTP/1.1\n\n")
        for method in ("POST", "OPTIONS", "nonsense"):
            assert b"405 Method Not Allowed" in ask(server, f"{method} / HTTP/1.1\nHost: localhost\n\n")
        assert b"431 " in ask(server, f"GET / HTTP/1.1\nHost: localhost\nX: {'x' * 9000}\n\n")
    with serving(names=None) as (server, _):
        assert b"200 OK" in ask(server, "GET /metrics HTTP/1.1\nHost: any.example\n\n")


def test_half_requests_cost_no_threads_and_few_handles_and_are_cut_off_while_others_are_answered():
    with serving(head_s=600, scrape_connections=8) as (server, usage):
        assert b"200 OK" in ask(server, "GET / HTTP/1.1\nHost: localhost\n\n")
        threads = threading.active_count()
        held = [connect(server, b"GET / HTTP/1.1\r\nHost: loc") for _ in range(40)]
        assert rest(held[0]) == b""  # each new one has made the oldest go
        assert b"200 OK" in ask(server, "GET / HTTP/1.1\nHost: localhost\n\n")
        assert threading.active_count() <= threads + 1 and len(server._open) <= 8 and usage.refused["scrape_connections"] >= 32
        for one in held:
            one.close()
    with serving(head_s=1) as (server, usage):
        assert rest(connect(server, b"GET / HTTP/1.1\r\n")) == b"" and usage.refused == {"head_s": 1}


def test_it_lets_go_of_the_port_and_of_those_who_wait():
    begun, go = threading.Event(), threading.Event()

    def slow(environ, start_response):
        begun.set()
        go.wait(60)
        return application(environ, start_response)

    with serving(slow) as (server, _):
        waiting = [connect(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")]
        assert begun.wait(30)
        waiting += [connect(server) for _ in range(20)]  # the last ones are accepted while the server ends
    go.set()
    assert [rest(one) for one in waiting] == [b""] * 21
    with socket.create_server(server.address):
        pass
    with pytest.raises(OSError), socket.create_server(("127.0.0.1", 0)) as taken:
        ScrapeServer(application, taken.getsockname()[:2], None, Usage())


def test_scrapes_that_come_close_together_are_made_once_and_refusals_are_counted(monkeypatch):
    made = []
    collect = Collector.collect
    monkeypatch.setattr(Collector, "collect", lambda self: made.append(time.monotonic()) or collect(self))
    with Exporter(NoBroker(), budget=Budget(head_s=1)) as exporter:
        found = [ask(exporter._server, "GET /metrics HTTP/1.1\nHost: localhost\n\n") for _ in range(20)]
        assert all(b"200 OK" in one for one in found)
        assert all(later - earlier > 1 for earlier, later in pairwise(made))
        assert b'dskype_reader_refusals_total{limit="head-s"} 0.0' in found[-1]
        assert rest(connect(exporter._server, b"GET")) == b""
        wanted = b'dskype_reader_refusals_total{limit="head-s"} 1.0'
        wait_for(lambda: wanted in ask(exporter._server, "GET /metrics HTTP/1.1\nHost: localhost\n\n"), 30, "the count of refusals")
