"""A reader cannot choose what an answer costs: limits of requests, connections and streams over HTTP, and work that ends when nobody waits for it."""

from __future__ import annotations

import json
import queue
import threading
import time
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dskype.deploy.metrics import connections
from dskype.deploy.metrics.ui_server import UiServer, UiSettings
from dskype.deploy.web import directory, feeds
from dskype.deploy.web.extension import make_extension
from dskype.topology.ui import budget
from dskype.topology.ui.budget import Budget, check_wanted
from tests.waiting import wait_for

from ..connections import opened, rest
from .server import TOKEN, Events, get, post
from .test_result_feed import delta, write_result


@contextmanager
def serving(kafka, source, **limits):
    """Serve with other limits."""
    given = Budget(**limits)
    with UiServer(source, UiSettings(port=0, token=TOKEN, budget=given), [make_extension(kafka, source, given)]) as server:
        yield server


def ask(server, path, **headers):
    """Return status, headers and text of a GET."""
    try:
        with urlopen(Request(server.url + path, headers=headers), timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except HTTPError as error:
        return error.code, error.headers, error.read().decode()


def connect(server, data=b"", source="127.0.0.1"):
    """Open a connection and send some bytes."""
    host, _, port = server.url.removeprefix("http://").strip("/").rpartition(":")
    return opened((host, int(port)), data, source)


@pytest.fixture
def hanging(monkeypatch):
    """Let answers that read whole topics hang; return what counts those that have begun, and what lets them go on."""
    begun, go = threading.Semaphore(0), threading.Event()

    def hang(*_, **more):
        begun.release()
        go.wait(60)
        return []

    monkeypatch.setattr(directory.Directory, "entries", hang)
    return begun, go


# --- Last-Event-ID ----------------------------------------------------------------------------------------------------


def test_places_in_partitions_that_do_not_exist_are_forgotten(kafka, served):
    """Each event has an id with all places of its client."""
    topics = kafka.topology(partitions=2)
    foreign = ",".join(f"r{number}:0" for number in range(2, 2000))
    last = f"r0:0,r1:0,a0:0,d0:0,{foreign}"
    events = Events(served, f"results?last_event_id={last}")
    assert events.next()[0] == "following"
    for i in range(400):
        write_result(kafka, topics, "a", i, partition=i % 2)
    ids = [events.next()[1] for _ in range(400)]
    assert ids[-1] == "d0:0,a0:0,r0:200,r1:200" and max(map(len, ids)) < 40
    events.close()


def test_a_last_id_that_is_too_long_is_refused(kafka, served):
    kafka.topology()
    last = ",".join(f"r{number}:0" for number in range(3000))
    for path, headers in ((f"results?last_event_id={last}", {}), ("results", {"Last-Event-ID": last})):
        status, _, text = ask(served, f"api/dskype/{path}", **headers)
        assert status == 400 and "Last-Event-ID is too long" in text and "16384 bytes" in text
    assert served.usage.refused == {"last_id_bytes": 2}


# --- requests ---------------------------------------------------------------------------------------------------------


def test_an_address_or_headers_that_are_too_long_are_refused_before_anything_reads_them(kafka, source):
    with serving(kafka, source, head_bytes=4000) as server:
        for path, headers in (("api/ui/pages?" + "x" * 4000, {}), ("api/ui/pages", {"X-Long": "x" * 4000})):
            status, _, text = ask(server, path, **headers)
            assert status == 431 and "too long" in text
        assert ask(server, "api/ui/pages?" + "x" * 3000)[0] == 200
        assert server.usage.refused == {"head_bytes": 2}


def test_few_answers_read_whole_topics_at_once_few_wait_for_them_and_the_rest_is_sent_away(kafka, source, hanging):
    kafka.topology()
    begun, go = hanging
    with serving(kafka, source, topic_reads=2, topic_reads_waiting=3) as server:
        asked = [connect(server, b"GET /api/dskype/subscription?id=a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") for _ in range(5)]
        assert begun.acquire(timeout=30) and begun.acquire(timeout=30)
        wait_for(lambda: server.usage.requests.taken == 5)
        status, headers, text = ask(server, "api/dskype/subscription?id=a")
        assert status == 503 and headers["Retry-After"] == "5" and "read whole topics" in text
        assert ask(server, "api/v1/topology/summary")[0] == ask(server, "api/dskype/topologies")[0] == 200
        assert not begun.acquire(blocking=False)
        go.set()
        assert all(b'"registered": null' in rest(one) for one in asked)
        assert server.usage.refused == {"topic_reads_waiting": 1}


def test_an_answer_that_has_waited_for_others_too_long_is_refused(kafka, source, hanging):
    kafka.topology()
    begun, go = hanging
    with serving(kafka, source, topic_reads=1, topic_read_wait_s=1) as server:
        first = connect(server, b"GET /api/dskype/subscription?id=a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert begun.acquire(timeout=30)
        status, headers, text = ask(server, "api/dskype/subscription?id=a")
        assert status == 503 and headers["Retry-After"] and "for too long" in text
        go.set()
        assert b"200 OK" in rest(first)


def test_work_for_clients_that_have_gone_ends_also_in_its_thread(kafka, source, monkeypatch):
    kafka.topology()
    begun, ended = queue.Queue(), threading.Semaphore(0)

    def work(_, ids, **more):
        begun.put(int(ids[0]))
        try:
            while True:
                check_wanted()
                threading.Event().wait(0.01)
        finally:
            ended.release()

    monkeypatch.setattr(directory.Directory, "entries", work)
    with serving(kafka, source, topic_reads=2) as server:
        asked = [connect(server, f"GET /api/dskype/subscription?id={i} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()) for i in range(15)]
        working = {begun.get(timeout=30), begun.get(timeout=30)}
        wait_for(lambda: server.usage.requests.taken == 15)
        for i in sorted(range(15), key=working.__contains__):  # those that work last: their places are free only when nobody waits
            if i in working:
                wait_for(lambda: server.usage.requests.taken <= 2)
            asked[i].close()
        assert ended.acquire(timeout=30) and ended.acquire(timeout=30)
        wait_for(lambda: server.usage.requests.taken == 0)
        assert begun.empty()  # those that waited never began
        monkeypatch.setattr(directory.Directory, "entries", lambda *_, **more: [])
        assert get(server, "subscription?id=a")["registered"] is None


def test_reading_a_topic_goes_on_where_a_client_that_has_gone_had_begun_it(kafka, monkeypatch):
    from .memory_kafka import client_of

    topics = kafka.topology()
    for number in range(10):
        kafka.broker.write(topics.subscriptions, f"s{number}", b"{}")
    calls = []

    class Gone(Exception):
        pass

    def gone_at_the_second():
        calls.append(1)
        if len(calls) == 2:
            raise Gone

    client = client_of(kafka)
    known = directory.Directory(client)
    monkeypatch.setattr(directory, "check_wanted", gone_at_the_second)
    polls = []
    poll = type(kafka.consumer()).poll
    monkeypatch.setattr(type(kafka.consumer()), "poll", lambda self, timeout_ms=0, max_records=None: polls.append(1) or poll(self, timeout_ms, 4))
    with pytest.raises(Gone):
        known.select("", "", 3)
    assert len(polls) == 1
    assert known.select("", "", 3) == (["s0", "s1", "s2"], 10, True)
    assert len(polls) == 3  # 4 records, and then 4 and 2
    assert known.select("s9", "", 3) == (["s9"], 1, False)
    assert len(polls) == 3  # nothing is new
    client.close()


@pytest.mark.long
def test_topologies_and_topics_that_do_not_exist_cost_no_connection_each(kafka, served, monkeypatch):
    kafka.topology()  # without a topic of grouped matches
    asked, admin = [], type(kafka).admin
    monkeypatch.setattr(type(kafka), "admin", lambda self: asked.append(time.monotonic()) or admin(self))
    for number in range(50):
        assert ask(served, f"api/dskype/subscription?id=a&topology=other-{number}")[0] == 404
        events = Events(served, "results")
        assert events.status == 200
        events.close()
    assert all(later - earlier >= 1 for earlier, later in pairwise(asked))


def test_requests_of_one_address_beyond_its_limit_are_refused_and_others_are_answered(kafka, source, monkeypatch):
    kafka.topology()
    go, begun = threading.Event(), threading.Semaphore(0)
    monkeypatch.setattr(feeds.Feeds, "names", lambda self: begun.release() or (go.wait(60) and ["dskype"]))
    with serving(kafka, source, requests_per_address=2) as server:
        request = b"GET /api/dskype/topologies HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        asked = [connect(server, request) for _ in range(2)]
        assert begun.acquire(timeout=30) and begun.acquire(timeout=30)
        status, headers, text = ask(server, "api/dskype/topologies")
        assert status == 429 and headers["Retry-After"] == "5" and "--limit requests-per-address=N" in text
        other = connect(server, request, source="127.0.0.2")
        assert begun.acquire(timeout=30)
        go.set()
        assert all(b"200 OK" in rest(one) for one in (*asked, other))


@pytest.mark.long
def test_a_body_that_does_not_come_is_not_waited_for(kafka, source):
    with serving(kafka, source, head_s=1) as server:
        head = f"POST /api/dskype/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 10\r\n\r\n{{"
        assert b"408 Request Timeout" in rest(connect(server, head.encode()))


# --- connections ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_connection_that_does_not_send_a_whole_request_is_closed(kafka, source, monkeypatch):
    monkeypatch.setattr(connections, "_LOOK_S", 0.05)
    with serving(kafka, source, head_s=1) as server:
        for begin in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "):
            assert rest(connect(server, begin)) == b""
        assert server.usage.refused == {"head_s": 3}
        wait_for(lambda: server.usage.connections.taken == 0)


def test_connections_beyond_the_limits_are_told_so_and_others_get_in(kafka, source):
    with serving(kafka, source, connections=5, connections_per_address=3) as server:
        request = b"GET /api/ui/pages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        held = [connect(server) for _ in range(3)]
        wait_for(lambda: server.usage.connections.taken == 3)
        refused = rest(connect(server, request))
        assert refused.startswith(b"HTTP/1.1 429 Busy") and b"Retry-After: 5" in refused and b"connections-per-address" in refused
        assert b"200 OK" in rest(connect(server, request, source="127.0.0.2"))
        wait_for(lambda: server.usage.connections.taken == 3)
        held += [connect(server, source="127.0.0.2") for _ in range(2)]
        wait_for(lambda: server.usage.connections.taken == 5)
        assert rest(connect(server, request, source="127.0.0.3")).startswith(b"HTTP/1.1 503 Busy")
        for one in held:
            one.close()
        wait_for(lambda: server.usage.connections.taken == 0)
        assert server.usage.refused == {"connections_per_address": 1, "connections": 1}


@pytest.mark.long
def test_a_client_that_takes_nothing_is_cut_off_and_goes_on_from_its_last_id(kafka, source, monkeypatch):
    monkeypatch.setattr(connections, "_LOOK_S", 0.05)
    topics = kafka.topology()
    with serving(kafka, source, stall_s=1) as server:
        stuck = Events(server, "results")
        name, last, _ = stuck.next()
        assert name == "following"
        for i in range(3000):
            kafka.broker.write(topics.results, "a", delta("a", i, meta="x" * 4000), headers=[("result-id", str(i))])
        wait_for(lambda: server.usage.refused == {"stall_s": 1})
        wait_for(lambda: server.usage.streams.taken == server.usage.connections.taken == 0)
        stuck.close()
        again = Events(server, "results", last)
        assert again.next()[0] == "following"
        assert [again.next()[2]["watermark"] for _ in range(3000)] == list(range(3000))
        again.close()


def test_where_a_request_comes_from_is_what_the_connection_says_unless_a_trusted_proxy_says_more(kafka, source):
    kafka.topology()
    for proxies, statuses in (((), [200, 429]), (("127.0.0.1",), [200, 200])):
        with UiServer(source, UiSettings(port=0, proxies=proxies, budget=Budget(streams_per_address=1)), [make_extension(kafka, source)]) as server:
            found = []
            for address in ("192.0.2.1", "192.0.2.2"):
                one = connect(server, f"GET /api/dskype/results HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: {address}\r\n\r\n".encode())
                found.append((one, int(one.recv(12)[9:])))
            assert [status for _, status in found] == statuses, proxies
            for one, _ in found:
                one.close()


# --- who asks ---------------------------------------------------------------------------------------------------------


def test_pages_of_other_sites_cannot_make_a_browser_ask(kafka, source):
    with serving(kafka, source) as server:
        for site in ("cross-site", "same-site"):
            for mode in ({}, {"Sec-Fetch-Mode": "no-cors"}, {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}):
                status, _, text = ask(server, "api/dskype/topologies", **{"Sec-Fetch-Site": site}, **mode)
                assert status == 403 and "A page of another site" in text
            assert ask(server, "dskype/map.html", **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"})[0] == 200  # a link
        for site in ("same-origin", "none"):
            assert ask(server, "api/dskype/topologies", **{"Sec-Fetch-Site": site})[0] == 200
    with UiServer(source, UiSettings(port=0, origin="https://other.example"), [make_extension(kafka, source)]) as server:
        assert ask(server, "api/dskype/topologies", **{"Sec-Fetch-Site": "cross-site"})[0] == 200


def test_wrong_tokens_make_an_address_pause(kafka, source, monkeypatch):
    kafka.topology()
    now_s = [1000.0]
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    with serving(kafka, source) as server:
        assert [post(server, "subscriptions/remove", {"id": "a"}, f"wrong-{number}")[0] for number in range(20)] == [401] * 20
        status, answer = post(server, "subscriptions/remove", {"id": "a"})
        assert status == 429 and "Too many wrong tokens" in answer["errorMessage"]
        now_s[0] += 1.0
        assert post(server, "subscriptions/remove", {"id": "a"})[0] == 200
        assert post(server, "subscriptions/remove", {"id": "a"}, "wrong")[0] == 401


# --- what is written of a request -------------------------------------------------------------------------------------


def test_a_name_that_no_file_can_have_is_not_found(served, caplog):
    for name in ("a" * 300 + ".js", "%1b%5d0;PWNED%07" + "a" * 300 + ".js", "a%00b.js", "a" * 5000 + "/b.css"):
        for folder in ("static", "static/dskype"):
            assert ask(served, f"{folder}/{name}")[0] == 404, name
    assert not caplog.records


def test_an_error_of_the_server_is_told_once_a_minute_and_on_one_line_without_control_characters(kafka, served, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(feeds.Feeds, "names", fail)
    for number in range(5):
        status, _, text = ask(served, f"api/dskype/topologies?%1b[2J{number}")
        assert status == 500 and "an internal error" in text
    assert len([record for record in caplog.records if record.exc_info]) == 1
    for number in range(5):
        assert b"400 Bad Request" in rest(connect(served, b"nonsense %d\r\n\r\n" % number))
    assert len([record for record in caplog.records if record.name == "uvicorn.error"]) <= 1


def test_what_readers_use_can_be_seen(kafka, served):
    kafka.topology()
    events = Events(served, "results")
    assert events.next()[0] == "following"
    usage = json.loads(ask(served, "api/ui/usage")[2])
    assert usage["taken"]["streams"] == usage["highest"]["streams"] == 1 and usage["limits"]["streams"] == 500 and usage["refused"] == {}
    events.close()


def test_what_readers_were_refused_is_a_metric_of_the_server_by_limit_and_rule(kafka, source):
    """Prometheus gets it without another service: SECURITY.md promises one count for each limit, from 0 on, and three for rules."""
    kafka.topology()
    with serving(kafka, source, streams_per_address=1, head_bytes=4000) as server:
        _, headers, text = ask(server, "metrics")
        names = [limit.name.replace("_", "-") for limit in fields(Budget)] + ["foreign-name", "foreign-page", "wrong-token"]
        assert refusals(text) == dict.fromkeys(names, 0) and headers["Content-Type"].startswith("text/plain; version=0.0.4")
        events = Events(server, "results")
        assert ask(server, "api/dskype/results")[0] == 429
        assert ask(server, "dskype/map.html?" + "x" * 4000)[0] == 431
        assert ask(server, f"api/dskype/messages?last_event_id={'x' * 17000}", Host="evil.example")[0] == 431
        assert ask(server, "api/ui/pages", Host="evil.example")[0] == 400
        assert ask(server, "api/ui/pages", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
        assert post(server, "messages", {}, token="wrong")[0] == 401
        found = refusals(ask(server, "metrics")[2])
        events.close()
    assert {name: n for name, n in found.items() if n} == {"streams-per-address": 1, "head-bytes": 2, "foreign-name": 1, "foreign-page": 1, "wrong-token": 1}


def refusals(text):
    """Return limit -> count of the metric."""
    (family,) = text_string_to_metric_families(text)
    assert family.name == "dskype_reader_refusals" and family.type == "counter"
    return {sample.labels["limit"]: sample.value for sample in family.samples if sample.name.endswith("_total")}


def test_health_is_refused_to_an_address_with_too_many_requests_and_to_nobody_else(kafka, source, hanging):
    """Whoever takes all places must not make the server look dead to what watches it."""
    kafka.topology()
    begun, go = hanging
    with serving(kafka, source, requests=2, requests_per_address=2) as server:
        asked = [connect(server, b"GET /api/dskype/subscription?id=a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") for _ in range(2)]
        assert begun.acquire(timeout=30) and begun.acquire(timeout=30)
        for path in ("api/ui/health", "api/ui/usage", "metrics"):
            assert ask(server, path)[0] == 429
            request = f"GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            assert b" 200 " in rest(connect(server, request, "127.0.0.2"))[:20]
        go.set()
        assert all(rest(one) for one in asked)
