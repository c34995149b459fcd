"""``/api/dskype/`` over HTTP: who may change what, what is refused and how, and events on a real connection."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from dskype.deploy.client.pubsub import PubSub, SendError
from dskype.deploy.metrics.ui_server import UiServer, UiSettings
from dskype.deploy.web import directory, feeds, tail
from dskype.deploy.web.extension import make_extension
from dskype.spouts.records import RecordError
from dskype.topology.nimbus.observing import Contact
from dskype.topology.ui.budget import Budget
from dskype.topology.ui.events import Event
from tests.waiting import wait_for

from .memory_kafka import MemoryKafka, Producer
from .scene import run_plan
from .server import TOKEN, Events, get, post
from .test_result_feed import delta, write_result

PARK = {"id": "park", "type": "topk", "text": "lake park", "lat": 43.04, "lon": -87.9, "k": 2, "alpha": 0.5}


def test_a_subscription_is_registered_followed_and_removed(kafka, served):
    topics = kafka.topology()
    events = Events(served, "results?sub=park&sub=other")
    assert events.status == 200 and events.headers["content-type"].startswith("text/event-stream") and "no-store" in events.headers["cache-control"]
    assert events.next()[::2] == ("following", {"subscriptions": ["other", "park"]})
    assert events.next()[::2] == ("unknown", {"subscriptions": ["other", "park"]})
    assert post(served, "subscriptions", PARK) == (200, {"subscription": "park"})
    stored = kafka.broker.logs[topics.subscriptions, 0][-1]
    assert stored.key == b"park" and json.loads(stored.value) == {k: v for k, v in PARK.items() if k != "id"}
    assert get(served, "subscription?id=park")["registered"]["status"] == "pending"
    active = {"v": 1, "subscription": "park", "registration": "0-0", "event": "active", "watermark": 3}
    kafka.broker.write(topics.registrations, "park", json.dumps(active).encode())
    write_result(kafka, topics, "park", 4, score=0.5, rank=1)
    assert [events.next()[0] for _ in range(2)] in (["registration", "result"], ["result", "registration"])
    listed = {"v": 1, "subscription": "park", "registration": "0-0", "watermark": 4, "topk": [{"message": "m4", "score": 0.5}]}
    kafka.broker.write(topics.topk, "park", json.dumps(listed).encode(), headers=[("version", "1 0-0 4")])
    found = get(served, "subscription?id=park&topology=dskype")
    assert (found["registered"]["status"], found["registered"]["since"], found["topk"]["watermark"]) == ("active", 3, 4)
    assert found["topk"]["topk"] == [{"message": "m4", "message_id": "m4", "score": 0.5}]
    assert post(served, "subscriptions/remove", {"id": "park"}) == (200, {"subscription": "park"})
    assert kafka.broker.logs[topics.subscriptions, 0][-1].value is None and get(served, "subscription?id=park")["registered"] is None
    events.close()


def test_a_reader_is_told_that_a_limit_has_cut_in(kafka, served):
    """The record has a key of its own, and does not end what is known of the registration."""
    topics, limit = kafka.topology(), "dskype.results.topk.bytes.per.second"
    kafka.broker.write(topics.subscriptions, "park", json.dumps({k: v for k, v in PARK.items() if k != "id"}).encode())
    events = Events(served, "results?sub=park")
    assert events.next()[0] == "following"
    about = {"v": 1, "subscription": "park", "registration": "0-0", "watermark": 3}
    kafka.broker.write(topics.registrations, "park", json.dumps({**about, "event": "active"}).encode())
    kafka.broker.write(topics.registrations, b"\xffpark", json.dumps({**about, "event": "limited", "limit": limit}).encode())
    kafka.broker.write(topics.registrations, b"\xffother", json.dumps({**about, "subscription": "other", "event": "limited", "limit": limit}).encode())
    assert events.next()[0] == "registration"
    name, _, data = events.next()
    assert (name, data["subscription"], data["limit"]) == ("limited", "park", limit)
    for found in (get(served, "subscription?id=park")["registered"], get(served, "subscriptions")["subscriptions"][0]):
        assert (found["status"], found["since"], found["limit"]) == ("active", 3, limit) and found["limited_ms"] > 0
    events.close()


def test_what_is_known_of_a_subscription_does_not_come_from_its_own_record(kafka, served):
    topics = kafka.topology()
    told = {"status": "active", "since": 7, "registration": "9-9", "registered_ms": 1, "id": "park", "limit": "x", "limited_ms": 1}
    kafka.broker.write(topics.subscriptions, "park", json.dumps({**PARK, **told}).encode())
    found = get(served, "subscription?id=park")["registered"]
    assert (found["id"], found["status"], found["since"], found["registration"]) == ("park", "pending", None, "0-0") and found["registered_ms"] > 1
    assert not found.keys() & {"limit", "limited_ms"}
    assert found["text"] == PARK["text"]


def test_a_message_is_published(kafka, served):
    topics = kafka.topology()
    status, answer = post(served, "messages", {"text": "Coffee", "lat": 1, "lon": 2})
    assert (status, answer) == (200, {"message": "0-0", "message_id": "0-0"}) and json.loads(kafka.broker.logs[topics.messages, 0][0].value)["text"] == "Coffee"


def test_states_of_objects_texts_of_fields_and_updates_are_published(kafka, served):
    run_plan(kafka, {"dskype.objects": True, "dskype.text.fields": ["title", "body"]})
    topics = kafka.topology()
    state = {"object": "bus-7", "text": {"title": "line 100"}, "lat": 1, "lon": 2}
    assert post(served, "messages", state) == (200, {"message": "0-0", "message_id": "0-0"})
    assert post(served, "messages", {**state, "deleted": False})[0] == 200
    assert post(served, "messages", {"object": "bus-7", "deleted": True}) == (200, {"message": "0-2", "message_id": "0-2"})
    assert post(served, "messages", {"object": 7, "deleted": True, "id": 5, "ts": 1_700_000_000_000}) == (200, {"message": 5, "message_id": "5"})
    log = kafka.broker.logs[topics.messages, 0]
    assert [record.key for record in log] == [b"bus-7", b"bus-7", b"bus-7", b"7"] and log[2].value is None
    assert json.loads(log[0].value) == json.loads(log[1].value) == state
    assert json.loads(log[3].value) == {"object": 7, "deleted": True, "id": 5, "ts": 1_700_000_000_000}
    for body, why in (
        ({**state, "deleted": 1}, "Expected 'deleted' as a boolean"),
        ({**state, "deleted": True}, "not the end of an object"),
        ({"deleted": True}, "not the end of an object"),
        ({"object": [], "deleted": True}, "Expected 'object'"),
        ({"object": "bus-7", "deleted": True, "ts": 1_700_000_000}, "a time in seconds"),
        ({**state, "object": 1.5}, "Expected 'object'"),
        ({**state, "text": {"titel": "line 100"}}, "one or more of title, body"),
    ):
        status, answer = post(served, "messages", body)
        assert status == 400 and why in answer["errorMessage"], answer
    assert post(served, "subscriptions", {"id": "park", **PARK, "update": True})[0] == 200
    assert json.loads(kafka.broker.logs[topics.subscriptions, 0][0].value)["update"] is True
    status, answer = post(served, "subscriptions", {**PARK, "type": "threshold", "min_score": 0.5})
    assert status == 400, answer


@pytest.mark.parametrize("path", ["subscriptions", "subscriptions/remove", "messages"])
def test_changes_need_the_token(kafka, served, path):
    for token in (None, "", "wrong", TOKEN + "x"):
        assert post(served, path, PARK, token)[0] == 401
    assert sum(map(len, kafka.broker.logs.values())) == 0


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("subscriptions", b"{", "must be a JSON object"),
        ("subscriptions", b"[" * 60_000, "must be a JSON object"),
        ("subscriptions", [], "must be a JSON object"),
        ("subscriptions", {**PARK, "lat": 98}, "Expected 'lat' in degrees"),
        ("subscriptions", {**PARK, "id": 7}, "The id of a subscription is a text"),
        ("subscriptions", {**PARK, "self": 7}, "a field that is unknown. given: 'self'; legal: id, type, text"),
        ("subscriptions", {**PARK, "wait": False}, "a field that is unknown. given: 'wait'"),
        ("subscriptions", {**PARK, "status": "active"}, "a field that is unknown. given: 'status'"),
        ("subscriptions/remove", {"id": "park", "wait": False}, "a field that is unknown. given: 'wait'"),
        ("subscriptions/remove", {"id": None}, "Expected the id"),
        ("subscriptions/remove", {"id": ""}, "Expected the subscription id as the record's key"),
        ("subscriptions/remove", {"id": "\ud800"}, "Expected the record's key in UTF-8"),
        ("subscriptions/remove", {"id": "x" * 600}, "Expected a shorter subscription id"),
        ("messages", {"text": "x", "lat": 1}, "lon"),
        ("messages", {"text": "x", "bbox": 5}, "Expected 'bbox' as four numbers; given: 5"),
        ("messages", {"text": "x", "bbox": {"west": 1}}, "Expected 'bbox' as four numbers; given: an object"),
        ("messages", {"text": "x", "lat": 1, "lon": 1, "wait": True}, "not a message"),
        ("messages", {"lat": 1, "lon": 1}, "not a message"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(kafka, served, path, body, why):
    status, answer = post(served, path, body)
    assert status == 400 and why in answer["errorMessage"], answer
    assert sum(map(len, kafka.broker.logs.values())) == 0


class RefusingProducer(Producer):
    """Does not get the records of subscriptions whose id begins with ``bad`` to Kafka; somebody else asks then what has become of theirs."""

    others = None

    def _begin(self, delivery, topic, value, key, headers, partition):
        if (key or b"").startswith(b"bad"):
            raise MessageSizeTooLargeError("too large")
        super()._begin(delivery, topic, value, key, headers, partition)

    def send(self, topic, value=None, **more):
        sent = super().send(topic, value, **more)
        add_done_callback = sent.add_done_callback

        def note(call):
            add_done_callback(call)
            with pytest.raises(SendError, match="too large"):
                self.others()

        if sent.failed():
            sent.add_done_callback = note
        return sent


def test_who_asks_gets_to_know_what_has_become_of_their_own_record_and_of_no_other(kafka, source, monkeypatch):
    topics = kafka.topology()
    producer, clients = RefusingProducer(kafka.broker), []
    monkeypatch.setattr(MemoryKafka, "producer", lambda self, **_: producer)
    monkeypatch.setattr(feeds, "PubSub", lambda *args, **more: clients.append(PubSub(*args, **more)) or clients[-1])
    producer.others = lambda: clients[0].flush()
    with UiServer(source, UiSettings(port=0, token=TOKEN), [make_extension(kafka, source)]) as served:
        for path, body in (("subscriptions", {**PARK, "id": "bad"}), ("subscriptions/remove", {"id": "bad"})):
            status, answer = post(served, path, body)
            assert status == 503 and "did not reach Kafka" in answer["errorMessage"], answer
        clients[0]._failures.append(MessageSizeTooLargeError("of somebody else"))
        assert post(served, "subscriptions", PARK) == (200, {"subscription": "park"})
        assert post(served, "messages", {"text": "x", "lat": 1, "lon": 2})[0] == 200
    assert [record.key for record in kafka.broker.logs[topics.subscriptions, 0]] == [b"park"]


def test_a_subscription_that_is_nested_too_deeply_is_refused_as_any_other(kafka):
    kafka.topology()
    deep = None
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(RecordError, match="less nesting"):
        PubSub(kafka, conf={}).subscribe(**PARK, meta=deep)


def test_requests_that_make_no_sense_have_a_status_that_says_whose_fault_it_is(kafka, served):
    for path, status in (
        ("results?start=tomorrow", 400),
        ("results?last_event_id=x", 400),
        ("results?topology=other", 404),
        ("subscription", 400),
        ("nothing", 404),
        ("results?" + "&".join(f"sub={i}" for i in range(1001)), 400),
    ):
        with pytest.raises(HTTPError) as error:
            get(served, path)
        assert error.value.code == status and "errorMessage" in json.load(error.value), path
    kafka.broker.away = True
    with pytest.raises(HTTPError) as error:
        get(served, "results?start=beginning")
    assert error.value.code == 503 and "brokers do not answer" in json.load(error.value)["errorMessage"]


def test_a_connection_that_is_cut_continues_where_it_was(kafka, served):
    topics = kafka.topology()
    for i in range(5):
        write_result(kafka, topics, "a", i)
    events = Events(served, "results?start=beginning")
    seen = []
    while len(seen) < 3:
        name, last, data = events.next()
        seen += [data["watermark"]] if name == "result" else []
    events.close()
    for again in (Events(served, "results?start=beginning", last), Events(served, f"results?last_event_id={last}")):
        rest = []
        while len(rest) < 2:
            name, _, data = again.next()
            rest += [data["watermark"]] if name == "result" else []
        again.close()
        assert seen + rest == [0, 1, 2, 3, 4]


@pytest.mark.long
def test_a_receiver_that_does_not_read_holds_nobody_up(kafka, served):
    topics = kafka.topology()
    stuck, reading = Events(served, "results?sub=a"), Events(served, "results?sub=a")
    for name in ("following", "unknown"):
        assert stuck.next()[0] == reading.next()[0] == name
    for i in range(3000):
        kafka.broker.write(topics.results, "a", delta("a", i, meta="x" * 4000), headers=[("result-id", str(i))])
    got = [reading.next()[2]["watermark"] for _ in range(3000)]  # 12 MB; the other connection takes none of it
    assert got == list(range(3000)) and get(served, "topologies") == {"topologies": ["dskype"]}
    assert [stuck.next()[2]["watermark"] for _ in range(3000)] == got  # and nothing of it is lost
    for events in (stuck, reading):
        events.close()
    wait_for(lambda: kafka.broker.open_consumers <= 1)  # only the one that stays for a while


def test_more_clients_than_the_limit_are_turned_away_until_one_goes(kafka, source):
    topics = kafka.topology()
    with UiServer(source, UiSettings(port=0, budget=Budget(streams=2)), [make_extension(kafka, source)]) as server:
        stuck, other = Events(server, "results?messages=true"), Events(server, "messages")
        assert stuck.next()[0] == other.next()[0] == "following"
        for i in range(2000):  # whether it takes what is there or not
            kafka.broker.write(topics.results, "a", delta("a", i, meta="x" * 4000), headers=[("result-id", str(i))])
        for path in ("results", "messages"):
            refused = Events(server, path)
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            refused.close()
        status, answer = status_of(server, "api/dskype/results")
        assert status == 503 and "Too many clients follow" in answer["errorMessage"] and "--limit streams=N" in answer["errorMessage"]
        assert server.usage.refused == {"streams": 3} and server.usage.streams.taken == 2
        stuck.close()
        wait_for(lambda: server.usage.streams.taken == 1)
        again = Events(server, "results")
        assert again.next()[0] == "following"
        for events in (again, other):
            events.close()
        wait_for(lambda: server.usage.streams.taken == 0)


def test_pages_and_files_are_served_and_nothing_else(served):
    def status(path):
        try:
            with urlopen(served.url + path, timeout=30) as answer:
                return answer.status, answer.headers["Content-Type"], answer.headers["Content-Security-Policy"]
        except HTTPError as error:
            return error.code, "", ""

    assert all(status(path)[:2] == (200, "text/html; charset=utf-8") for path in ("", "index.html", "dskype/map.html", "dskype/subscribe.html"))
    assert status("static/dskype/form.js")[:2] == (200, "text/javascript; charset=utf-8")
    assert all("script-src 'self'" in status(path)[2] for path in ("dskype/subscribe.html", "static/dskype/dskype.css"))
    for path in ("static/dskype/../extension.py", "static/dskype/%2e%2e/extension.py", "static/dskype//etc/passwd", "static/dskype/", "static/dskype/x.js"):
        assert status(path)[0] == 404, path
    with urlopen(f"{served.url}api/ui/pages", timeout=30) as answer:
        assert json.load(answer)["pages"][0] == {"title": "Map", "path": "/"}


def test_a_picture_keeps_its_styles_and_runs_nothing(kafka, served):
    run_plan(kafka, {"dskype.distributor": "agrid"})
    with urlopen(f"{served.url}api/dskype/plan.svg", timeout=30) as answer:
        assert answer.headers["Content-Type"] == "image/svg+xml" and answer.read().startswith(b"<svg")
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'; sandbox"


def test_an_event_is_lines_without_breaks_in_them():
    text = "a\nb\r\n\ndata: x"
    assert Event("result", {"text": text}, "r0:1").encode().count(b"\n") == 4
    assert Event(id="r0:1").encode() == b"id: r0:1\n\n" and Event().encode() == b":\n\n"
    assert "\udcff" not in Event("e", "\udcff").encode().decode()


# --- brokers that do not answer ---------------------------------------------------------------------------------------


def status_of(server, path):
    """Return the status of a GET, and its JSON."""
    try:
        with urlopen(f"{server.url}{path}", timeout=30) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def test_while_the_brokers_do_not_answer_everything_that_needs_them_is_refused_with_503(served, source):
    source.answer = Contact(False, 1, 14.0, "no answer in time")
    for path in ("topologies", "subscriptions", "subscription?id=a", "measures", "trend", "partitions", "results", "messages"):
        status, refused = status_of(served, f"api/dskype/{path}")
        assert status == 503 and refused["error"] == "503 Service Unavailable", path
        assert "The brokers do not answer" in refused["errorMessage"] and "no answer in time" in refused["errorMessage"], path
    assert post(served, "messages", {"text": "x", "lat": 1, "lon": 1})[0] == 503
    status, health = status_of(served, "api/ui/health")
    assert status == 200 and health["brokers"]["answer"] is False and "have not answered for 14 s" in health["problems"][0]["what"]
    assert health["topologies"][0]["name"] == "dskype" and health["problems"][0]["sinceMs"] == 1


def test_a_request_that_waits_for_silent_brokers_is_answered_and_holds_up_no_other(kafka, served, source, monkeypatch):
    """Forty requests hang in Kafka's client; none of them keeps a page from its answer, and all end when the silence is noticed."""
    stuck, go = threading.Semaphore(0), threading.Event()

    def hang(*_, **more):
        stuck.release()
        go.wait(60)
        raise KafkaTimeoutError("no answer in time")

    monkeypatch.setattr(directory.Directory, "entries", hang)
    monkeypatch.setattr(source, "answer", Contact(True, 1, 0.1))
    with ThreadPoolExecutor(40) as pool:
        asked = [pool.submit(status_of, served, "api/dskype/subscription?id=a") for _ in range(40)]
        try:
            assert stuck.acquire(timeout=30)
            for path in ("api/ui/health", "api/v1/topology/summary", "static/style.css", "dskype/map.html"):
                with urlopen(served.url + path, timeout=30) as answer:
                    assert answer.status == 200, path
            assert sum(thread.name.startswith("AnyIO") for thread in threading.enumerate()) < 40  # not one for each request
            source.answer = Contact(False, 1, 7.0)
            assert {one.result(timeout=30)[0] for one in asked} == {503}
        finally:
            go.set()


def test_events_that_were_refused_while_they_were_prepared_are_given_up(kafka, served, source, monkeypatch):
    opened, go, followers = threading.Event(), threading.Event(), []
    before = feeds.TopologyFeed.messages

    def slow(feed):
        opened.set()
        go.wait(60)
        followers.append(before(feed))
        return followers[-1]

    monkeypatch.setattr(feeds.TopologyFeed, "messages", slow)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(status_of, served, "api/dskype/messages")
        assert opened.wait(30)
        source.answer = Contact(False, 1, 7.0)
        assert asked.result(timeout=30)[0] == 503
    go.set()
    wait_for(lambda: followers and followers[0].closed)


def test_a_server_that_has_just_started_waits_until_it_knows_whether_the_brokers_answer(served, source):
    source.answer = Contact(None, None, 0.0)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(status_of, served, "api/dskype/topologies")
        assert status_of(served, "api/ui/health")[1]["brokers"]["answer"] is None and not asked.done()
        source.answer = Contact(True, 1, 0.0)
        assert asked.result(timeout=30) == (200, {"topologies": ["dskype"]})


def test_events_end_when_the_brokers_stand_still_and_go_on_without_a_gap(kafka, served, source, monkeypatch):
    monkeypatch.setattr(tail, "_CHECK_EVERY_S", 0.05)
    topics = kafka.topology()
    events = Events(served, "results?start=now")
    assert events.next()[0] == "following"
    write_result(kafka, topics, "a", 1)
    name, last, data = events.next()
    assert (name, data["watermark"]) == ("result", 1)
    kafka.broker.stands_still = True
    with pytest.raises(AssertionError, match="the stream has ended"):
        while True:
            events.next()
    write_result(kafka, topics, "a", 2)
    kafka.broker.stands_still = False
    again = Events(served, "results", last)
    assert next(data["watermark"] for name, _, data in iter(again.next, None) if name == "result") == 2
    for one in (events, again):
        one.close()


# --- ids, and the list of subscriptions -------------------------------------------------------------------------------


def test_ids_of_64_bits_are_texts_as_well(kafka, served):
    topics = kafka.topology()
    ids = [1588987262754234368, 1588987262754234369, -(1 << 63), (1 << 63) - 1, "7", 7]
    messages = Events(served, "messages")
    assert messages.next()[0] == "following"
    events = Events(served, "results?messages=true")
    assert events.next()[0] == "following"
    for number, id in enumerate(ids):
        kafka.broker.write(topics.messages, None, json.dumps({"id": id, "text": f"text {number}", "lat": 1, "lon": 1}).encode())
    shown = []
    while len(shown) < len(ids):
        shown += [(m["id"], m["message_id"]) for m in messages.next()[2]["messages"]]
    assert shown == [(id, str(id)) for id in ids]
    for number, id in enumerate(ids):
        value = {"v": 1, "subscription": "a", "watermark": number, "op": "add", "message": id, "score": 0.5, "rank": 1}
        kafka.broker.write(topics.results, "a", json.dumps(value).encode(), headers=[("result-id", str(number))])
    results = [events.next()[2] for _ in ids]
    assert [(r["message"], r["message_id"], r["text"]) for r in results] == [(id, str(id), f"text {number}") for number, id in enumerate(ids)]
    assert post(served, "messages", {"id": ids[0], "text": "x", "lat": 1, "lon": 1}) == (200, {"message": ids[0], "message_id": str(ids[0])})
    for one in (messages, events):
        one.close()


def test_messages_that_were_there_before_are_not_new(kafka, served):
    topics = kafka.topology()

    def publish(n):
        for _ in range(n):
            kafka.broker.write(topics.messages, None, b'{"text": "x", "lat": 1, "lon": 1}')

    def counted(events, seen):
        found = []
        while sum(data["seen"] for data in found) < seen:
            name, _, data = events.next()
            found += [data] if name == "messages" else []
        return sum(data["seen"] for data in found), sum(data["new"] for data in found)

    publish(20)
    first = Events(served, "messages")
    assert counted(first, 20) == (20, 0)
    publish(3)
    assert counted(first, 3) == (3, 3)
    first.close()


def test_subscriptions_are_listed_in_pages(kafka, served):
    topics = kafka.topology()

    def register(id, fields):
        return kafka.broker.write(topics.subscriptions, id, None if fields is None else json.dumps(fields).encode())

    boolean = {"type": "boolean", "bbox": [0, 0, 1, 1], "expression": "coffee"}
    for number in range(5):
        register(f"b{number}", boolean)
    at = register("park", {k: v for k, v in PARK.items() if k != "id"})
    register("b3", None)
    bad = register("b4", {**boolean, "expression": "tea"})
    active = {"v": 1, "subscription": "park", "registration": f"0-{at}", "event": "active", "watermark": 9}
    kafka.broker.write(topics.registrations, "park", json.dumps(active).encode())
    refused = [("topic", topics.subscriptions), ("partition", "0"), ("offset", str(bad)), ("error", "no room"), ("code", "no-room")]
    kafka.broker.write(topics.dead_letters, "b4", None, headers=refused)
    first = get(served, "subscriptions?limit=3")
    assert [s["id"] for s in first["subscriptions"]] == ["b0", "b1", "b2"] and (first["total"], first["after"]) == (5, "b2")
    second = get(served, f"subscriptions?limit=3&after={first['after']}")
    assert (second["total"], second["after"]) == (5, None)
    b4, park = second["subscriptions"]
    assert (b4["id"], b4["status"], b4["error"], b4["expression"]) == ("b4", "refused", "no room", "tea")
    assert (park["type"], park["status"], park["since"], park["text"], park["registration"]) == ("topk", "active", 9, "lake park", f"0-{at}")
    assert [s["id"] for s in get(served, "subscriptions?prefix=p")["subscriptions"]] == ["park"]
    assert get(served, "subscriptions?prefix=zz")["subscriptions"] == []
    for limit in ("0", "501", "x", "-1"):
        assert status_of(served, f"api/dskype/subscriptions?limit={limit}")[0] == 400


def test_the_directory_goes_on_where_it_was_and_notices_a_topic_that_was_made_anew(kafka):
    topics = kafka.topology()
    ids = directory.Directory(PubSub(kafka, "dskype", conf={}))
    kafka.broker.write(topics.subscriptions, "a", b"{}")
    kafka.broker.write(topics.subscriptions, "b", b"{}")
    assert ids.unknown(["a", "b", "c"]) == ["c"]
    kafka.broker.write(topics.subscriptions, "a", None)
    kafka.broker.write(topics.subscriptions, "c", b"{}")
    assert ids.unknown(["a", "b", "c"]) == ["a"]
    kafka.broker.logs[topics.subscriptions, 0].clear()
    kafka.broker.write(topics.subscriptions, "d", b"{}")
    assert ids.unknown(["a", "b", "c", "d"]) == ["a", "b", "c"] and ids.select("", "", 10) == (["d"], 1, False)


def test_who_follows_a_subscription_that_is_not_there_is_told_once(kafka, served):
    topics = kafka.topology()
    kafka.broker.write(topics.subscriptions, "there", json.dumps({"type": "boolean", "bbox": [0, 0, 1, 1], "expression": "x"}).encode())
    events = Events(served, "results?sub=there&sub=nothing")
    assert events.next()[0] == "following"
    name, last, data = events.next()
    assert (name, data) == ("unknown", {"subscriptions": ["nothing"]})
    write_result(kafka, topics, "nothing", 5)  # it may come later
    assert events.next()[2]["watermark"] == 5
    events.close()
    again = Events(served, "results?sub=nothing", last)
    assert [again.next()[0], again.next()[0]] == ["following", "result"]
    again.close()
