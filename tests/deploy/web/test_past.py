"""Consumers that clients share while they read the past."""

from __future__ import annotations

import asyncio
import threading

import pytest
from kafka.errors import KafkaConnectionError

from dskype.deploy.web import past
from dskype.deploy.web.feeds import Feeds
from dskype.deploy.web.past import PastReaders
from dskype.topology.errors import TopologyError
from dskype.topology.ui.budget import Budget
from tests.waiting import wait_for

from .memory_kafka import MemoryKafka
from .test_result_feed import NoTopologies, at_least, numbers, take, write_result


@pytest.fixture
def kafka():
    return MemoryKafka()


@pytest.fixture
def readers(kafka):
    made = PastReaders(kafka, 2)
    yield made
    made.close()
    wait_for(lambda: kafka.broker.open_consumers == 0)


def turn(readers, owner, topics, start="beginning"):
    """Read a record; return whether the consumer had to be put there, and the record's offset."""
    with readers.reading(owner, lambda: [topics.results], lambda: start) as (follower, begun):
        return begun, [record.offset for record in follower.poll(1, 1)]


def test_a_client_keeps_its_consumer_until_another_one_needs_it(kafka, readers):
    topics = kafka.topology()
    for i in range(5):
        write_result(kafka, topics, "a", i)
    assert turn(readers, "a", topics) == (True, [0]) and turn(readers, "a", topics) == (False, [1])
    assert turn(readers, "b", topics) == (True, [0]) and turn(readers, "b", topics) == (False, [1])
    assert turn(readers, "c", topics) == (True, [0])  # the one that has been idle for longest, a's
    assert turn(readers, "b", topics) == (False, [2]) and kafka.broker.open_consumers == 2
    assert turn(readers, "a", topics, {(topics.results, 0): 2}) == (True, [2])  # where a was
    readers.release("a")
    assert turn(readers, "d", topics) == (True, [0]) and turn(readers, "b", topics) == (False, [3])  # a's was free


def test_who_finds_all_consumers_in_use_waits_for_one(kafka, readers):
    topics = kafka.topology()
    write_result(kafka, topics, "a", 0)
    held, go, got = threading.Semaphore(0), threading.Event(), []

    def hold(owner):
        with readers.reading(owner, lambda: [topics.results], lambda: "beginning"):
            held.release()
            go.wait(60)

    threads = [threading.Thread(target=hold, args=(owner,)) for owner in "ab"]
    for thread in threads:
        thread.start()
    assert held.acquire(timeout=30) and held.acquire(timeout=30)
    threads.append(threading.Thread(target=lambda: got.append(turn(readers, "c", topics))))
    threads[-1].start()
    assert not got and kafka.broker.open_consumers == 2
    go.set()
    for thread in threads:
        thread.join(30)
    assert got == [(True, [0])] and kafka.broker.open_consumers == 2


def test_a_consumer_that_fails_is_closed_and_idle_ones_are_after_a_while(kafka, readers, monkeypatch):
    topics = kafka.topology()
    kafka.broker.away = True
    with pytest.raises(KafkaConnectionError):
        turn(readers, "a", topics)
    kafka.broker.away = False
    with pytest.raises(KeyError), readers.reading("a", lambda: [topics.results], lambda: "beginning"):
        raise KeyError
    assert kafka.broker.open_consumers == 0
    monkeypatch.setattr(past, "_LOOK_S", 0.01)
    monkeypatch.setattr(past, "_SPARE_S", 0.05)
    turn(readers, "a", topics)  # a client that takes nothing more
    wait_for(lambda: kafka.broker.open_consumers == 0)
    readers.close()
    with pytest.raises(TopologyError, match="stopping"):
        turn(readers, "a", topics)


@pytest.mark.long
def test_many_clients_that_take_nothing_share_few_consumers_and_all_get_everything(kafka):
    topics = kafka.topology(partitions=2)
    for i in range(600):
        write_result(kafka, topics, "ab"[i % 2], i, partition=i % 2)
    feeds = Feeds(kafka, NoTopologies(), Budget(past_readers=3))
    highest = []

    async def scene():
        clients = [feeds.of("dskype").results(frozenset("ab"[n % 2]), "beginning", "", False) for n in range(20)]
        got = {client: [] for client in clients}
        while any(len(had) < 300 for had in got.values()):  # each takes its turn
            for client, had in got.items():
                had += numbers(await client.next()) if len(had) < 300 else []
                highest.append(kafka.broker.open_consumers)
        for n, client in enumerate(clients):
            assert got[client] == list(range(n % 2, 600, 2))
            client.close()

    asyncio.run(scene())
    assert max(highest) <= 3 + 2  # and those of the tail and of the list of subscriptions
    feeds.close()
    wait_for(lambda: kafka.broker.open_consumers == 0)


def test_a_slow_client_whose_consumer_others_took_gets_every_result_once(kafka):
    topics = kafka.topology()
    for i in range(1000):
        write_result(kafka, topics, "a", i)
    feeds = Feeds(kafka, NoTopologies(), Budget(past_readers=1))

    async def scene():
        one, other = (feeds.of("dskype").results(None, "beginning", "", False) for _ in range(2))
        got = {one: [], other: []}
        while min(map(len, got.values())) < 1000:
            for client, had in got.items():
                had += numbers(await client.next())
        assert all(had == list(range(1000)) for had in got.values())
        for i in range(1000, 1010):
            write_result(kafka, topics, "a", i)
        for client in got:
            assert numbers(await take(client, at_least(10))) == list(range(1000, 1010))
            client.close()

    asyncio.run(scene())
    feeds.close()
    wait_for(lambda: kafka.broker.open_consumers == 0)


@pytest.mark.long
def test_what_waits_for_all_clients_together_is_bounded_and_nothing_is_lost(kafka, monkeypatch):
    topics = kafka.topology()
    feeds = Feeds(kafka, NoTopologies(), Budget(queued_mb=1))

    async def scene():
        feed = feeds.of("dskype")
        slow = [feed.results(frozenset({"a"}), "now", "", False) for _ in range(10)]
        for client in slow:
            await client.next()
        for i in range(400):
            write_result(kafka, topics, "a", i, meta="x" * 4000)
        wait_for(lambda: feed._results.positions()[topics.results, 0] == 400)
        assert feed._results.queued_bytes <= (1 << 20) + 10 * (64 << 10) and any(client.left for client in slow)
        for client in slow:
            assert numbers(await take(client, at_least(400))) == list(range(400))
        assert feed._results.queued_bytes == 0
        for i in range(400, 410):
            write_result(kafka, topics, "a", i, meta="x" * 4000)
        wait_for(lambda: feed._results.positions()[topics.results, 0] == 410)
        for client in slow:
            client.close()
        assert feed._results.queued_bytes == 0 and not feed._results._by_subscription

    asyncio.run(scene())
    feeds.close()
