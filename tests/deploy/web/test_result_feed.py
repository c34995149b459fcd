"""Results as events: nothing is lost or repeated, wherever a client begins, breaks off or how slowly it takes them."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaTimeoutError

from dskype.deploy.client.follower import Follower
from dskype.deploy.web import result_feed, tail
from dskype.deploy.web.feeds import Feeds
from dskype.deploy.web.message_feed import MessageTail, message_of
from dskype.deploy.web.places import Place, Places
from dskype.spouts.topics import Topics
from dskype.topology.errors import IllegalArgumentException, NotAliveException
from tests.waiting import Limit, wait_for

from .memory_kafka import Consumer, MemoryKafka


class NoTopologies:
    """A source whose topologies are named by the clients."""

    def topologies(self):
        return []


@pytest.fixture
def kafka():
    return MemoryKafka()


@pytest.fixture
def feeds(kafka):
    made = Feeds(kafka, NoTopologies())
    yield made
    made.close()
    wait_for(lambda: kafka.broker.open_consumers == 0, 60, "the end of all consumers")


def delta(subscription, number, op="add", **more):
    return json.dumps({"v": 1, "subscription": subscription, "watermark": number, "op": op, "message": f"m{number}", **more}).encode()


def write_result(kafka, topics, subscription, number, partition=0, **more):
    return kafka.broker.write(topics.results, subscription, delta(subscription, number, **more), partition, [("result-id", f"{subscription}/{number}")])


async def take(follower, enough, limit_s=60):
    """Return events until ``enough(events)``."""
    events = []
    limit = Limit(limit_s)
    while not enough(events):
        assert not limit.over, len(events)
        found = await follower.next()
        assert found is not None
        events += found
    return events


def numbers(events):
    return [e.data["watermark"] for e in events if e.name == "result"]


def at_least(n):
    return lambda events: len(numbers(events)) >= n


def run(coroutine):
    return asyncio.run(coroutine)


# --- places -----------------------------------------------------------------------------------------------------------


def test_a_place_is_written_and_read_again():
    topics = Topics.for_topology("dskype")
    places = Places({(topics.results, 3): Place(17), (topics.matches, 0): Place(4, 2), (topics.registrations, 0): Place(0)})
    assert places.text(topics) == "m0:4.2,a0:0,r3:17" and Places.parse(places.text(topics), topics) == places
    many = Places({(topics.results, partition): Place(10**9 + partition) for partition in range(5000)})
    assert Places.parse(many.text(topics), topics) == many


@pytest.mark.parametrize("text", ["x", "r0", "r0:1,", "z0:1", "r0:-1", "r0:1.x", "r" + "9" * 400 + ":1", "r0:1\n"])
def test_a_foreign_place_is_refused(text):
    with pytest.raises(IllegalArgumentException, match="Last-Event-ID does not name a place"):
        Places.parse(text, Topics.for_topology("dskype"))


# --- following --------------------------------------------------------------------------------------------------------


def test_what_comes_after_the_first_event_is_followed_for_the_wanted_subscriptions(kafka, feeds):
    topics = kafka.topology(partitions=2)
    write_result(kafka, topics, "a", 0)

    async def scene():
        follower = feeds.of("dskype").results(frozenset({"a", "b"}), "now", "", False)
        (opened,) = await follower.next()
        assert (opened.name, opened.data) == ("following", {"subscriptions": ["a", "b"]})
        for i in range(1, 9):
            write_result(kafka, topics, "abc"[i % 3], i, partition=i % 2)
        kafka.broker.write(topics.registrations, "b", b'{"v": 1, "subscription": "b", "registration": "0-0", "event": "active", "watermark": 3}')
        kafka.broker.write(topics.registrations, "c", b'{"v": 1, "subscription": "c", "registration": "0-1", "event": "active", "watermark": 3}')
        refused = [("topic", topics.subscriptions), ("partition", "0"), ("offset", "7"), ("error", "no words"), ("code", "no-keyword")]
        kafka.broker.write(topics.dead_letters, "a", b"{}", headers=refused)
        kafka.broker.write(topics.dead_letters, "a", b"{}", headers=[("topic", topics.messages)])
        events = await take(follower, lambda events: {"registration", "refusal"} <= {e.name for e in events} and len(numbers(events)) >= 5)
        follower.close()
        return events

    events = run(scene())
    assert sorted(numbers(events)) == [1, 3, 4, 6, 7]
    (active,) = [e.data for e in events if e.name == "registration"]
    assert (active["subscription"], active["event"], active["watermark"]) == ("b", "active", 3)
    (refusal,) = [e.data for e in events if e.name == "refusal"]
    assert (refusal["subscription"], refusal["registration"], refusal["error"], refusal["code"]) == ("a", "0-7", "no words", "no-keyword")


def test_it_begins_at_the_beginning_or_at_a_time(kafka, feeds):
    topics = kafka.topology()
    for i in range(10):
        write_result(kafka, topics, "a", i)
    at_ms = kafka.broker.logs[topics.results, 0][6].timestamp

    async def begin(start, n):
        follower = feeds.of("dskype").results(None, start, "", False)
        events = await take(follower, at_least(n))
        follower.close()
        return numbers(events)

    assert run(begin("beginning", 10)) == list(range(10))
    assert run(begin(str(at_ms), 4)) == [6, 7, 8, 9]
    for start in ("yesterday", "-1", "1.5", ""):
        with pytest.raises(IllegalArgumentException, match="cannot begin there"):
            feeds.of("dskype").results(None, start, "", False)


class LateFollower(Follower):
    """Reads nothing until it may."""

    may = None

    def poll(self, timeout_s=0.5, max_records=None):
        if self.may is not None and not self.may.wait(timeout_s):
            return []
        return super().poll(timeout_s, max_records)


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("at_a_time", [True, False])
def test_a_client_may_begin_behind_what_the_tail_has_read(kafka, feeds, at_a_time, anew):
    """The tail is always a little late, and that of another server may be ahead of it. Only behind the end of the topic everything is new."""
    topics = kafka.topology(partitions=2)
    for i in range(5):
        write_result(kafka, topics, "a", i)
        write_result(kafka, topics, "a", 20 + i, partition=1)

    async def scene():
        feed = feeds.of("dskype")
        LateFollower.may = threading.Event()
        feed._results._open = lambda: LateFollower(kafka, feed._topics())
        other = feed.results(None, "now", "", False)
        await other.next()
        for i in range(5, 9):
            write_result(kafka, topics, "a", i)
        place = Places({(topics.results, 0): Place(20 if anew else 8), (topics.results, 1): Place(2)})
        begin = ("beginning", place.text(topics)) if anew or not at_a_time else (str(kafka.broker.logs[topics.results, 0][8].timestamp), "")
        follower = feed.results(None, *begin, False)
        await follower.next()
        LateFollower.may.set()
        write_result(kafka, topics, "a", 9)
        events = await take(follower, lambda events: 9 in numbers(events))
        events += await take(other, lambda events: 9 in numbers(events))
        for one in (follower, other):
            one.close()
        return numbers(events)

    found = run(scene())
    assert sorted(found) == sorted([*(range(10) if anew else (8, 9)), *([] if at_a_time and not anew else [22, 23, 24]), *range(5, 10)])
    assert [n for n in found if n < 20] == [*(range(10) if anew else (8, 9)), *range(5, 10)]


@pytest.mark.parametrize("seed", range(6))
def test_a_client_that_breaks_off_anywhere_gets_every_result_once_and_in_order(kafka, feeds, seed, monkeypatch):
    monkeypatch.setattr(result_feed, "QUEUE", 7)
    monkeypatch.setattr(result_feed, "_AT_ONCE", 3)
    monkeypatch.setattr(result_feed, "_QUIET_S", 0.1)
    draw = random.Random(seed)
    topics = kafka.topology(partitions=3, grouped=True)
    expected = {"a": [], "b": []}

    def write(number):
        subscription, partition = draw.choice("ab"), draw.randrange(3)
        if draw.random() < 0.4:  # a record of grouped matches has several
            ids = draw.choice([["a"], ["a", "b"], ["c", "b", "a"], ["c"]])
            value = {"v": 1, "message": f"m{number}", "watermark": number, "task": 0, "subscriptions": ids}
            kafka.broker.write(topics.matches, f"m{number}", json.dumps(value).encode(), partition, [("result-id", f"g{number}")])
            for id in {"a", "b"} & set(ids):
                expected[id].append((topics.matches, partition, number))
        else:
            write_result(kafka, topics, subscription, number, partition)
            expected[subscription].append((topics.results, partition, number))

    async def scene():
        last, got, number = "", [], 0
        limit = Limit(60)
        while number < 200 or len(got) < sum(map(len, expected.values())):
            assert not limit.over, (len(got), last)
            follower = feeds.of("dskype").results(frozenset("ab"), "beginning", last, False)
            for _ in range(draw.randrange(1, 8)):
                for _ in range(draw.randrange(12) if number < 200 else 0):
                    write(number)
                    number += 1
                events = list(await asyncio.wait_for(follower.next(), 60))
                breaks = draw.random() < 0.3
                if breaks:  # within what was sent
                    events = events[: draw.randrange(len(events) + 1)]
                got += [e.data for e in events if e.name == "result"]
                last = next((e.id for e in reversed(events) if e.id), last)
                if breaks or (number >= 200 and len(got) == sum(map(len, expected.values()))):
                    break
            follower.close()
        return got

    got = run(scene())
    for id, results in expected.items():
        mine = [r["watermark"] for r in got if r["subscription"] == id]
        assert sorted(mine) == [n for _, _, n in results]
        for where in {(t, p) for t, p, _ in results}:
            order = [n for t, p, n in results if (t, p) == where]
            assert [n for n in mine if n in set(order)] == order


@pytest.mark.long
def test_a_client_that_takes_nothing_holds_a_bounded_queue_and_nobody_up(kafka, feeds, monkeypatch):
    monkeypatch.setattr(result_feed, "QUEUE", 50)
    topics = kafka.topology()

    async def scene():
        feed = feeds.of("dskype")
        slow, fast = (feed.results(frozenset({"a"}), "now", "", False) for _ in range(2))
        await slow.next()
        await fast.next()
        got = []
        for i in range(2000):
            write_result(kafka, topics, "a", i)
            if i % 40 == 39:
                got += numbers(await take(fast, at_least(40)))
        assert got == list(range(2000))  # while the slow one has taken nothing
        assert slow._queued <= 50 and slow.left is not None
        assert numbers(await take(slow, at_least(2000))) == list(range(2000))
        slow.close()
        fast.close()

    run(scene())


def test_a_queue_that_is_full_before_its_client_has_joined_loses_nothing(kafka, feeds, monkeypatch):
    monkeypatch.setattr(result_feed, "QUEUE", 5)
    topics = kafka.topology()

    async def scene():
        feed = feeds.of("dskype")
        follower, join = feed.results(None, "now", "", False), feed._results.join

        def join_slowly(member):
            places = join(member)
            if not kafka.broker.logs[topics.results, 0]:
                for i in range(20):
                    write_result(kafka, topics, "a", i)
                wait_for(lambda: member.left is not None, 60, "the end of a member")
            return places

        monkeypatch.setattr(feed._results, "join", join_slowly)
        events = await take(follower, at_least(20))
        follower.close()
        return events

    assert numbers(run(scene())) == list(range(20))


def test_repetitions_are_left_out(kafka, feeds):
    topics = kafka.topology()

    async def scene():
        follower = feeds.of("dskype").results(frozenset({"a"}), "now", "", False)
        await follower.next()
        for i in (0, 1, 0, 1, 2, 1, 3):
            write_result(kafka, topics, "a", i)
        events = await take(follower, at_least(4))
        follower.close()
        return events

    assert numbers(run(scene())) == [0, 1, 2, 3]


def test_what_kafka_has_dropped_is_said(kafka, feeds):
    topics = kafka.topology()
    for i in range(10):
        write_result(kafka, topics, "a", i)
    kafka.broker.first[topics.results, 0] = 6

    async def scene():
        follower = feeds.of("dskype").results(None, "now", "r0:2,a0:0", False)
        events = await take(follower, at_least(4))
        follower.close()
        return events

    events = run(scene())
    (lost,) = [e.data for e in events if e.name == "lost"]
    assert lost["partitions"] == [{"topic": topics.results, "partition": 0, "records": 4}] and numbers(events) == [6, 7, 8, 9]


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(kafka, feeds):
    topics = kafka.topology()
    write_result(kafka, topics, "a", 0)

    async def scene():
        follower = feeds.of("dskype").results(None, "now", "r0:5000", False)
        events = await take(follower, at_least(1))
        follower.close()
        return events

    assert numbers(run(scene())) == [0]


def test_the_place_moves_on_without_results(kafka, feeds, monkeypatch):
    monkeypatch.setattr(result_feed, "_QUIET_S", 0.05)
    topics = kafka.topology()

    async def scene():
        follower = feeds.of("dskype").results(frozenset({"a"}), "now", "", False)
        (opened,) = await follower.next()
        while not (name := (await follower.next())[0].name):  # it is quiet for longer than _QUIET_S
            pass
        assert name == "unknown"
        for i in range(3):
            write_result(kafka, topics, "b", i)
        while (event := (await follower.next())[0]).id == opened.id:
            assert event.data is None
        follower.close()
        return event

    assert run(scene()).id == "d0:0,a0:0,r0:3"


def test_it_ends_when_the_brokers_go_and_goes_on_when_they_are_back(kafka, feeds):
    topics = kafka.topology()

    async def scene():
        follower = feeds.of("dskype").results(None, "now", "", False)
        last = (await follower.next())[-1].id
        kafka.broker.away = True
        while await follower.next() is not None:
            pass
        follower.close()
        write_result(kafka, topics, "a", 0)
        refused = feeds.of("dskype").results(None, "now", last, False)
        assert await refused.next() is None
        refused.close()
        kafka.broker.away = False
        follower = feeds.of("dskype").results(None, "now", last, False)
        events = await take(follower, at_least(1))
        follower.close()
        return events

    assert numbers(run(scene())) == [0]


def test_a_reader_that_cannot_begin_is_closed(kafka, feeds, monkeypatch):
    kafka.topology()

    def fail(*_):
        raise KafkaTimeoutError("no offsets")

    monkeypatch.setattr(Consumer, "end_offsets", fail)
    with pytest.raises(KafkaTimeoutError):
        feeds.of("dskype").results(None, "beginning", "", False)

    async def scene():
        for last in ("", "r0:0"):
            follower = feeds.of("dskype").results(None, "now", last, True)
            assert await follower.next() is None
            follower.close()

    run(scene())
    with pytest.raises(KafkaTimeoutError):
        list(feeds.of("dskype").client.scan("dskype.results"))
    assert kafka.broker.open_consumers == 0


def test_nobody_is_read_for_when_nobody_follows(kafka, feeds, monkeypatch):
    monkeypatch.setattr(tail, "_STAY_S", 0.05)
    topics = kafka.topology()

    async def scene(expected):
        follower = feeds.of("dskype").results(None, "now", "", False)
        await follower.next()
        write_result(kafka, topics, "a", expected)
        assert numbers(await take(follower, at_least(1))) == [expected]
        follower.close()

    run(scene(1))
    wait_for(lambda: kafka.broker.open_consumers == 0, 60, "the end of all consumers")
    run(scene(2))


def test_results_come_with_what_is_known_of_their_messages(kafka, feeds):
    topics = kafka.topology()
    kafka.broker.write(topics.messages, None, json.dumps({"id": "m0", "text": "Coffee <b>here</b>", "lat": 1, "lon": 2}).encode())
    kafka.broker.write(topics.messages, None, json.dumps({"id": "m1", "text": "x", "lat": 91, "lon": 2}).encode())

    async def scene():
        follower = feeds.of("dskype").results(None, "now", "", True)
        await follower.next()
        feed = feeds.of("dskype")
        while "text" not in feed.describe({"message": "m0"}):
            await asyncio.sleep(0.01)
        for i in range(2):
            write_result(kafka, topics, "a", i)
        events = await take(follower, at_least(2))
        follower.close()
        return [e.data for e in events if e.name == "result"]

    first, second = run(scene())
    assert (first["text"], first["lat"], first["lon"], first["message"]) == ("Coffee <b>here</b>", 1.0, 2.0, "m0") and "lat" not in second


def test_a_result_that_is_read_before_its_message_waits_for_it_but_not_for_what_is_unknown(kafka, feeds, monkeypatch):
    topics, take_messages = kafka.topology(), MessageTail._take

    def take_late(self, records):
        time.sleep(0.1)
        take_messages(self, records)

    monkeypatch.setattr(MessageTail, "_take", take_late)

    async def scene():
        follower = feeds.of("dskype").results(None, "now", "", True)
        await follower.next()
        kafka.broker.write(topics.messages, None, json.dumps({"id": "m1", "text": "coffee", "lat": 1, "lon": 2}).encode())
        write_result(kafka, topics, "a", 1)
        write_result(kafka, topics, "a", 2)
        events = await take(follower, at_least(2))
        follower.close()
        return [e.data.get("text") for e in events if e.name == "result"]

    assert run(scene()) == ["coffee", None]


def test_messages_that_the_topology_refuses_stop_nobody_and_take_no_room(kafka, feeds):
    topics = kafka.topology()
    huge, long = b"1" + b"0" * 400, b"a" * 100_000
    for value in (
        b'{"text": "x", "lat": %b, "lon": 1}' % huge,
        b'{"text": "x", "bbox": [1, 1, 2, %b]}' % huge,
        b'{"text": "x", "bbox": [%b]}' % (b"1, " * 9 + b"1"),
        b'{"id": "%b", "text": "x", "lat": 1, "lon": 1}' % long,
        b'{"id": ["%b"], "text": "x", "lat": 1, "lon": 1}' % long,
        b'{"id": %b, "text": "x", "lat": 1, "lon": 1}' % huge,
        b"[" * 100_000,
    ):
        kafka.broker.write(topics.messages, None, value)
    kafka.broker.write(topics.messages, None, b'{"id": "m1", "text": "Coffee", "lat": 1, "lon": 2}')

    async def scene():
        follower = feeds.of("dskype").results(None, "now", "", True)
        events = await take(follower, lambda events: events)
        write_result(kafka, topics, "a", 1)
        events += await take(follower, at_least(1))
        follower.close()
        return events

    (found,) = [event.data for event in run(scene()) if event.name == "result"]
    assert (found["message"], found["text"], found["lat"]) == ("m1", "Coffee", 1.0)
    assert list(feeds.of("dskype")._messages._known) == ['"m1"']


def test_a_client_that_wants_messages_connects_again_when_they_are_not_read_any_more(kafka, feeds):
    kafka.topology()

    async def scene():
        follower = feeds.of("dskype").results(None, "now", "", True)
        await follower.next()
        feeds.of("dskype")._messages.close()
        assert await follower.next() is None
        follower.close()

    run(scene())


def test_the_map_gets_a_bounded_sample_and_the_number_of_all(kafka, feeds):
    topics = kafka.topology()

    async def scene():
        follower = feeds.of("dskype").messages()
        assert [e.name for e in await follower.next()] == ["following"]
        for i in range(3000):
            kafka.broker.write(topics.messages, None, json.dumps({"text": f"t{i}", "lat": i / 100, "lon": 0}).encode())
        kafka.broker.write(topics.messages, None, json.dumps({"text": "area", "bbox": [0, 0, 2, 2]}).encode())
        kafka.broker.write(topics.messages, None, b"nonsense")
        seen, messages = 0, []
        while seen < 3001:
            for event in await follower.next():
                assert len(event.data["messages"]) <= 100
                seen += event.data["seen"]
                messages += event.data["messages"]
        follower.close()
        return seen, messages

    seen, messages = run(scene())
    assert seen == 3001 and len({m["id"] for m in messages}) == len(messages) >= 100


@pytest.mark.long
def test_maps_share_their_samples_and_each_gets_every_message_once_while_they_are_few(kafka, feeds):
    topics = kafka.topology()

    async def scene():
        maps = [feeds.of("dskype").messages() for _ in range(3)]
        for one in maps:
            await one.next()
        got = {one: [] for one in maps}
        for i in range(60):
            kafka.broker.write(topics.messages, None, json.dumps({"id": i, "text": "x", "lat": 1, "lon": 0}).encode())
            if i % 20 == 19:
                for one in maps[: 3 - i // 20]:  # some look less often
                    got[one] += [message["id"] for event in await one.next() for message in event.data["messages"]]
        for one in maps:
            while len(got[one]) < 60:
                got[one] += [message["id"] for event in await one.next() for message in event.data["messages"]]
            one.close()
        return list(got.values())

    assert run(scene()) == [list(range(60))] * 3


def test_a_topology_that_is_not_there_is_named(feeds):
    with pytest.raises(NotAliveException, match="dskype.messages does not exist"):
        feeds.of("dskype")
    with pytest.raises(NotAliveException, match="none runs"):
        feeds.of(None)
    running = [SimpleNamespace(name=name, plan=SimpleNamespace(components={"subscription-bolt": 1})) for name in ("a", "b")]
    feeds.source = SimpleNamespace(topologies=lambda: running)
    with pytest.raises(IllegalArgumentException, match="legal: a, b"):
        feeds.of(None)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"text": "tea", "lat": 1, "lon": 2}, {"text": "tea", "lat": 1.0, "lon": 2.0}),
        ({"text": "tea", "bbox": [0, 0, 2, 4]}, {"text": "tea", "lat": 2.0, "lon": 1.0, "bbox": [0.0, 0.0, 2.0, 4.0]}),
        ({"text": "tea", "region": [{"bbox": [0, 0, 2, 4]}]}, {"text": "tea", "lat": 2.0, "lon": 1.0, "bbox": [0.0, 0.0, 2.0, 4.0]}),
        (
            {"text": {"title": "Tea", "body": "and cake", "more": 5}, "region": {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 4], [0, 0]]]}},
            {"text": "Tea  and cake", "lat": 2.0, "lon": 1.0, "bbox": [0.0, 0.0, 2.0, 4.0]},
        ),
        ({"text": "tea", "region": {"type": "Polygon", "coordinates": [[[0, 0]]]}}, None),
        ({"text": "tea", "region": 5}, None),
        ({"text": "tea", "lat": 1}, None),
    ],
)
def test_a_message_is_shown_where_it_is_whatever_form_its_place_has(value, shown):
    record = SimpleNamespace(topic="m", partition=0, offset=3, key=None, value=json.dumps(value).encode())
    found = message_of(record)
    assert found == (None if shown is None else {"id": "0-3", "message_id": "0-3", **shown})
