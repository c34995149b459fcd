"""Webhooks: signed, again after failures, nothing lost, dead letters when it is enough, and no receiver waits for another."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kafka import OffsetAndMetadata

from dskype.deploy.cli import main as cli
from dskype.deploy.web.deliveries import Delivery, group_of, letters_topic
from dskype.deploy.web.webhook_delivery import Sender, pause_s
from dskype.deploy.web.webhook_settings import Webhook, parse_webhooks
from dskype.topology.errors import IllegalArgumentException
from tests.waiting import wait_for

from .memory_kafka import MemoryKafka, client_of
from .test_result_feed import delta, write_result

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef").decode()
KEY = b"0123456789abcdef"


class Receiver:
    """A server that answers with the next of its statuses, the last one for ever."""

    def __init__(self, *statuses, headers=()):
        self.requests, self.statuses, self.headers = [], list(statuses) or [200], dict(headers)
        self.answering = threading.Event()
        self.answering.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((dict(self.headers), json.loads(body), body))
                receiver.answering.wait(60)
                status = receiver.statuses.pop(0) if len(receiver.statuses) > 1 else receiver.statuses[0]
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    for name, value in receiver.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?a=1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def results(self):
        return [result["watermark"] for _, body, _ in list(self.requests) for result in body["results"]]

    def close(self):
        self.answering.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def kafka():
    return MemoryKafka()


def webhook(url, **more):
    return Webhook("w", url, (KEY,), **{"backoff_s": 0.0, "start": "beginning", **more})


@contextlib.contextmanager
def delivering(kafka, *webhooks):
    """Run deliveries; yields what they have said."""
    stop, said, client = threading.Event(), [], client_of(kafka)
    deliveries = [Delivery(kafka, client, w, stop, said.append) for w in webhooks]
    threads = [threading.Thread(target=d.run, daemon=True) for d in deliveries]
    for thread in threads:
        thread.start()
    try:
        yield deliveries, said
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()


def committed(kafka, topics, partition=0):
    place = kafka.broker.committed.get((group_of("dskype", "w"), (topics.results, partition)))
    return None if place is None else place.offset


def test_ids_of_64_bits_are_texts_as_well(kafka, receiver):
    topics = kafka.topology()
    value = {"v": 1, "subscription": "a", "watermark": 0, "op": "match", "message": 1588987262754234369}
    kafka.broker.write(topics.results, "a", json.dumps(value).encode(), headers=[("result-id", "x")])
    with delivering(kafka, webhook(receiver.url)):
        wait_for(lambda: receiver.results() == [0])
    assert [r["message_id"] for r in receiver.requests[0][1]["results"]] == ["1588987262754234369"]


def test_results_arrive_signed_and_in_order(kafka, receiver):
    topics = kafka.topology()
    for i in range(250):
        write_result(kafka, topics, "ab"[i % 2], i)
    with delivering(kafka, webhook(receiver.url, subscriptions=frozenset("a"), batch=50)) as (deliveries, said):
        wait_for(lambda: committed(kafka, topics) == 250)
        assert receiver.results() == list(range(0, 250, 2)) and [len(body["results"]) for _, body, _ in receiver.requests] == [50, 50, 25]
        assert deliveries[0].counts() == (3, 125, 0, 0) and said == []
    headers, body, raw = receiver.requests[0]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + raw
    assert headers["webhook-signature"] == "v1," + base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 300 and len({h["webhook-id"] for h, _, _ in receiver.requests}) == 3
    assert (body["type"], body["topology"], body["results"][0]["result_id"]) == ("dskype.results", "dskype", "a/0")


def test_a_failing_receiver_is_asked_again_and_gets_everything_once(kafka):
    receiver, topics = Receiver(500, 503, 429, 200, 408, 200), kafka.topology()
    for i in range(4):
        write_result(kafka, topics, "a", i)
    with delivering(kafka, webhook(receiver.url, batch=2)) as (deliveries, said):
        wait_for(lambda: committed(kafka, topics) == 4)
        assert receiver.results() == [0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3]
        assert deliveries[0].counts() == (2, 4, 4, 0)
        assert "answers 500; attempt 1 of 8" in said[0] and "answers again" in said[3]
    ids = [headers["webhook-id"] for headers, _, _ in receiver.requests]
    assert len(set(ids[:4])) == 1 and len(set(ids)) == 2
    receiver.close()


@pytest.mark.parametrize(("statuses", "attempts"), [([500], 3), ([400], 1), ([301], 1), ([410], 1)])
def test_what_cannot_be_delivered_becomes_a_dead_letter_and_the_rest_goes_on(kafka, statuses, attempts):
    receiver, topics = Receiver(*statuses * attempts, 200), kafka.topology()
    for i in range(2):
        write_result(kafka, topics, "a", i)
    with delivering(kafka, webhook(receiver.url, batch=1, attempts=3)) as (deliveries, said):
        wait_for(lambda: committed(kafka, topics) == 2)
        assert deliveries[0].counts() == (1, 1, attempts - 1, 1)
    assert receiver.results() == [0] * attempts + [1]
    (letter,) = kafka.broker.logs[letters_topic("dskype"), 0]
    headers = {name: text.decode() for name, text in letter.headers}
    assert letter.key == b"w" and letter.value == receiver.requests[0][2] and headers["webhook-id"] == receiver.requests[0][0]["webhook-id"]
    assert headers["status"] == str(statuses[0]) and headers["error"] == f"answers {statuses[0]}"
    receiver.close()


def test_a_receiver_that_is_not_there_is_a_failure_like_any_other(kafka, receiver):
    receiver.close()
    topics = kafka.topology()
    write_result(kafka, topics, "a", 0)
    with delivering(kafka, webhook(receiver.url, attempts=2)) as (deliveries, said):
        wait_for(lambda: deliveries[0].counts().dead == 1)
    assert "Connection refused" in said[0]


def test_a_slow_receiver_holds_up_no_other(kafka, receiver):
    slow, topics = Receiver(), kafka.topology()
    slow.answering.clear()
    with delivering(kafka, webhook(slow.url, timeout_s=60), Webhook("fast", receiver.url, (KEY,), start="beginning")):
        for i in range(20):
            write_result(kafka, topics, "a", i)
        wait_for(lambda: receiver.results() == list(range(20)))
        wait_for(lambda: len(slow.requests) == 1)
        assert committed(kafka, topics) == 0
        slow.answering.set()
        wait_for(lambda: slow.results() == list(range(20)))
    slow.close()


def test_a_stop_while_it_waits_loses_nothing_and_buries_nothing(kafka):
    receiver, topics = Receiver(500), kafka.topology()
    for i in range(3):
        write_result(kafka, topics, "a", i)
    with delivering(kafka, webhook(receiver.url, backoff_s=3600, backoff_max_s=3600)) as (_, said):
        wait_for(lambda: said)
    assert committed(kafka, topics) == 0 and not kafka.broker.logs[letters_topic("dskype"), 0]
    receiver.statuses = [200]
    with delivering(kafka, webhook(receiver.url)):
        wait_for(lambda: committed(kafka, topics) == 3)
    assert receiver.results() == [0, 1, 2] * 2
    receiver.close()


def test_a_record_of_many_matches_is_continued_within_it(kafka):
    receiver, topics = Receiver(200, 200, 500), kafka.topology(grouped=True)
    value = {"v": 1, "message": "m", "watermark": 7, "task": 0, "subscriptions": [f"s{i}" for i in range(10)]}
    kafka.broker.write(topics.matches, "m", json.dumps(value).encode(), headers=[("result-id", "g")])
    with delivering(kafka, webhook(receiver.url, batch=3, backoff_s=3600, backoff_max_s=3600)) as (_, said):
        wait_for(lambda: said)
    place = kafka.broker.committed[group_of("dskype", "w"), (topics.matches, 0)]
    assert (place.offset, place.metadata) == (0, "6")
    receiver.statuses = [200]
    with delivering(kafka, webhook(receiver.url, batch=3)):
        wait_for(lambda: kafka.broker.committed[group_of("dskype", "w"), (topics.matches, 0)].offset == 1)
    got = [[result["subscription"] for result in body["results"]] for _, body, _ in receiver.requests]
    names = [f"s{i}" for i in range(10)]
    assert got == [names[:3], names[3:6], names[6:9], names[6:9], names[9:]]
    receiver.close()


def test_now_stays_where_it_was_when_it_began(kafka, receiver):
    topics = kafka.topology()
    write_result(kafka, topics, "a", 0)
    with delivering(kafka, webhook(receiver.url, start="now")):
        wait_for(lambda: committed(kafka, topics) == 1)
    write_result(kafka, topics, "a", 1)  # while nobody runs
    with delivering(kafka, webhook(receiver.url, start="now")):
        wait_for(lambda: committed(kafka, topics) == 2)
    assert receiver.results() == [1]


def test_it_waits_for_brokers_that_are_away_and_says_what_they_have_dropped(kafka, receiver, monkeypatch):
    monkeypatch.setattr("dskype.deploy.web.deliveries._AWAY_S", 0.01)
    topics = kafka.topology()
    with delivering(kafka, webhook(receiver.url)) as (_, said):
        wait_for(lambda: committed(kafka, topics) == 0)
        kafka.broker.away = True
        wait_for(lambda: any("Kafka cannot be used" in text for text in said))
        for i in range(5):
            write_result(kafka, topics, "a", i)
        kafka.broker.first[topics.results, 0] = 2
        kafka.broker.away = False
        wait_for(lambda: receiver.results() == [2, 3, 4])
        assert any("2 records of dskype.results are lost" in text for text in said)


def test_it_says_that_it_is_shown_no_topic_and_goes_on_when_it_is(kafka, receiver, monkeypatch):
    monkeypatch.setattr("dskype.deploy.web.deliveries._AWAY_S", 0.01)
    topics = kafka.topology()
    monkeypatch.setattr("dskype.deploy.client.pubsub.PubSub.result_topics", lambda _: [topics.results])  # it knows that the topic was there
    partitions = kafka.broker.partitions.pop(topics.results)
    with delivering(kafka, webhook(receiver.url)) as (_, said):
        wait_for(lambda: any("Kafka shows no such topic" in text for text in said))
        kafka.broker.partitions[topics.results] = partitions
        write_result(kafka, topics, "a", 0)
        wait_for(lambda: receiver.results() == [0])


def test_an_unexpected_error_ends_no_delivery(kafka, receiver, monkeypatch):
    monkeypatch.setattr("dskype.deploy.web.deliveries._AWAY_S", 0.01)
    topics = kafka.topology()
    kafka.broker.committed[group_of("dskype", "w"), (topics.results, 0)] = OffsetAndMetadata(0, "written by another program", -1)
    write_result(kafka, topics, "a", 0)
    with delivering(kafka, webhook(receiver.url)) as (_, said):
        wait_for(lambda: any("cannot deliver (ValueError" in text for text in said))
        del kafka.broker.committed[group_of("dskype", "w"), (topics.results, 0)]
        wait_for(lambda: receiver.results() == [0])


def test_a_connection_that_the_receiver_has_closed_is_opened_again(receiver):
    said = []
    sender = Sender(webhook(receiver.url), lambda secs: False, said.append)
    assert sender.send("msg_1", b'{"results": []}') is None
    sender._connection.sock._socket.shutdown(socket.SHUT_RDWR)
    assert sender.send("msg_2", b'{"results": []}') is None
    assert len(receiver.requests) == 2 and sender.retries == 0 and said == []
    sender.close()


@contextlib.contextmanager
def hostile(answer):
    """Serve one request by a function that gets the connection; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with server.accept()[0] as connection, contextlib.suppress(OSError):
                while b"}" not in connection.recv(65536):
                    pass
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        thread.join()


@pytest.mark.parametrize("drop", [b"x", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_receiver_that_answers_without_an_end_is_a_failure(drop):
    def drip(connection):
        if drop == b"x":
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
        for _ in range(100):
            connection.sendall(drop)
            time.sleep(0.02)
        connection.sendall(b"\r\nContent-Length: 0\r\n\r\n" if drop == b"x" else b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with hostile(drip) as url:
        sender = Sender(webhook(url, timeout_s=0.5, attempts=1), lambda secs: False, lambda text: None)
        failure = sender.send("msg_1", b"{}")
        sender.close()
    assert failure is not None and failure.reason == "no answer (timed out)" and failure.again


def test_a_receivers_words_are_cut_and_cannot_steer_a_terminal():
    with hostile(lambda connection: connection.sendall(b"\x1b]0;PWNED\x07 password=Canary4711 " + b"A" * 60_000 + b"\r\n\r\n")) as url:
        sender = Sender(webhook(url, attempts=1), lambda secs: False, lambda text: None)
        failure = sender.send("msg_1", b"{}")
        sender.close()
    assert failure is not None and len(failure.reason) < 240 and failure.reason.isprintable() and "PWNED" in failure.reason
    assert "Canary" not in failure.reason


def test_large_results_are_sent_in_several_requests(kafka, receiver):
    topics = kafka.topology()
    for i in range(5):
        kafka.broker.write(topics.results, "a", delta("a", i, meta="x" * 100_000), headers=[("result-id", str(i))])
    with delivering(kafka, webhook(receiver.url)):
        wait_for(lambda: committed(kafka, topics) == 5)
    assert [[r["watermark"] for r in body["results"]] for _, body, _ in receiver.requests] == [[0, 1], [2, 3], [4]]


def test_pauses_grow_to_a_bound_and_a_receiver_may_ask_for_more():
    one = webhook("https://a.example", backoff_s=1, backoff_max_s=60)
    assert [pause_s(one, n, None, 0) for n in (1, 2, 3, 6, 7, 10_000)] == [1, 2, 4, 32, 60, 60]
    assert pause_s(one, 1, None, 1) == 0.5 and pause_s(one, 1, 30, 0) == 30 and pause_s(one, 1, 1e9, 0) == 60


def test_a_receiver_is_left_alone_for_as_long_as_it_asks():
    receiver, pauses = Receiver(503, 200, headers={"Retry-After": "7"}), []
    sender = Sender(webhook(receiver.url), lambda secs: pauses.append(secs), lambda text: None)
    assert sender.send("msg_1", b"{}") is None and pauses == [7.0]
    sender.close()
    receiver.close()


# --- the file -----------------------------------------------------------------------------------------------------------

GOOD = {"name": "orders", "url": "https://orders.example/hook", "secret": SECRET}


def test_a_file_describes_a_topology_and_its_receivers():
    topology, (found,) = parse_webhooks(
        {"topology": "t", "webhooks": [{**GOOD, "subscriptions": ["a"], "attempts": 3, "secret": [SECRET, "another secret of ours"]}]}
    )
    assert topology == "t" and (found.name, found.subscriptions, found.attempts, found.keys) == ("orders", {"a"}, 3, (KEY, b"another secret of ours"))
    assert "secret" not in repr(found) and "0123" not in repr(found)
    assert (
        parse_webhooks({"webhooks": [{**GOOD, "url": "http://127.0.0.1:8000/"}, {**GOOD, "name": "b", "url": "http://b.example", "allow_http": True}]})[0]
        == "dskype"
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"secret": "short"}, "16 bytes or more"),
        ({"secret": "whsec_not base64"}, "whsec_ and base64"),
        ({"secret": []}, "needs a secret"),
        ({"url": "http://orders.example/"}, "in the clear"),
        ({"url": "https://user:password@orders.example/"}, "without user and password"),
        ({"url": "ftp://orders.example/"}, "https://host"),
        ({"url": "https://orders.example/ x"}, "https://host"),
        ({"url": "https://orders.example:99999/"}, "https://host"),
        ({"url": "https://orders.example:0/"}, "https://host"),
        ({"url": "https://orders..example/"}, "https://host"),
        ({"url": f"https://{'a' * 64}.example/"}, "https://host"),
        ({"url": "https://orders.example/ü"}, "in ASCII"),
        ({"url": 7}, "https://host"),
        ({"name": "Orders"}, "a-z, 0-9"),
        ({"attempts": 0}, "int from 1 to 100"),
        ({"attempts": True}, "int from 1"),
        ({"batch": 1.5}, "int from 1 to 1000"),
        ({"subscriptions": []}, "a list of ids"),
        ({"start": "yesterday"}, "now | beginning"),
        ({"retries": 3}, "needs name, url and secret"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_and_never_quoted(change, why):
    with pytest.raises(IllegalArgumentException) as error:
        parse_webhooks({"webhooks": [{**GOOD, **change}]})
    assert why in str(error.value) and SECRET not in str(error.value) and "password@" not in str(error.value)


def test_a_file_without_webhooks_or_with_two_of_one_name_is_refused():
    for data in (None, [], {}, {"webhooks": []}, {"webhooks": [GOOD], "more": 1}, {"webhooks": [7]}, {"topology": 1, "webhooks": [GOOD]}):
        with pytest.raises(IllegalArgumentException):
            parse_webhooks(data)
    with pytest.raises(IllegalArgumentException, match="same name"):
        parse_webhooks({"webhooks": [GOOD, GOOD]})


def test_the_command_checks_a_file_and_takes_secrets_from_the_environment(tmp_path, monkeypatch, capsys):
    file = tmp_path / "webhooks.yaml"
    file.write_text("webhooks:\n  - {name: orders, url: 'https://orders.example/', secret: '${ENV-ORDERS_SECRET}'}\n")
    assert cli.main(["webhooks", str(file), "--dry-run"]) == 1 and "ORDERS_SECRET" in capsys.readouterr().err
    monkeypatch.setenv("ORDERS_SECRET", SECRET)
    assert cli.main(["webhooks", str(file), "--dry-run"]) == 0 and "1 webhook of dskype" in capsys.readouterr().err
