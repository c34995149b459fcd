"""Results over HTTP and by webhooks, from a real broker: positions, times, places that are kept, and topics that are made."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid

import pytest

from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.topics import ensure_topics
from dskype.deploy.web import result_feed
from dskype.deploy.web.deliveries import letters_topic
from dskype.deploy.web.feeds import Feeds
from dskype.deploy.web.webhook_settings import Webhook
from dskype.deploy.web.webhooks import Webhooks
from dskype.spouts.topics import Topics
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import read_to_end
from tests.waiting import wait_for

from .test_result_feed import NoTopologies, at_least, delta, numbers, take
from .test_webhooks import KEY, Receiver


@pytest.fixture
def kafka(bootstrap_servers):
    return KafkaSettings(bootstrap_servers)


@pytest.fixture
def topology(kafka):
    name = f"web-{uuid.uuid4().hex[:8]}"
    ensure_topics(kafka, name, partitions=2)
    return name


def write(kafka, name, first, stop):
    """Write results for ``a`` and ``b`` to both partitions."""
    producer, topic = kafka.producer(), Topics.for_topology(name).results
    for i in range(first, stop):
        id = "ab"[i % 2]
        producer.send(topic, key=id.encode(), value=delta(id, i), partition=i % 2, headers=[("result-id", f"{id}/{i}".encode())])
    producer.flush()
    producer.close()


def test_results_are_followed_from_now_from_the_beginning_and_from_where_it_broke(kafka, topology, monkeypatch):
    monkeypatch.setattr(result_feed, "QUEUE", 20)
    feeds = Feeds(kafka, NoTopologies())

    async def scene():
        feed = feeds.of(topology)
        live = feed.results(frozenset({"a"}), "now", "", False)
        await live.next()
        write(kafka, topology, 0, 200)
        events = await take(live, at_least(50))
        live.close()
        last = [e for e in events if e.name == "result"][49].id
        again = feed.results(frozenset({"a"}), "now", last, False)
        rest = await take(again, at_least(50))
        again.close()
        assert numbers(events)[:50] + numbers(rest) == list(range(0, 200, 2))
        whole = feed.results(None, "beginning", "", False)
        assert sorted(numbers(await take(whole, at_least(200)))) == list(range(200))
        whole.close()

    asyncio.run(scene())
    feeds.close()


def test_webhooks_keep_their_place_and_make_their_topic(kafka, topology, tmp_path):
    receiver = Receiver()
    one = Webhook("w", receiver.url, (KEY,), start="beginning", backoff_s=0.0, attempts=2)
    write(kafka, topology, 0, 100)
    said: list[str] = []
    with Webhooks(kafka, topology, [one], said.append, tmp_path) as webhooks:
        wait_for(lambda: webhooks.counts()["w"].results == 100)
        receiver.statuses = [500]
        write(kafka, topology, 100, 102)
        wait_for(lambda: webhooks.counts()["w"].dead > 0 and len(receiver.results()) >= 104)
    assert said[-1].startswith("w: 100 results")
    letters = read_to_end(kafka, letters_topic(topology))
    buried = [result["watermark"] for letter in letters for result in json.loads(letter.value)["results"]]
    receiver.statuses = [200]
    before = len(receiver.results())
    write(kafka, topology, 102, 110)
    with Webhooks(kafka, topology, [one], said.append, tmp_path):
        wait_for(lambda: len(receiver.results()) - before >= 110 - 100 - len(buried))
    assert sorted(set(receiver.results()[:100])) == list(range(100))
    assert sorted({*buried, *receiver.results()[before:]}) == list(range(100, 110))
    receiver.close()
    with PubSub(kafka, topology, conf={}) as client:
        client.require(letters_topic(topology))


def test_digests_lose_and_repeat_nothing_though_the_process_is_killed(kafka, topology, tmp_path):
    receiver = Receiver()
    hook = {
        "name": "w",
        "url": receiver.url,
        "secret": KEY.decode(),
        "start": "beginning",
        "pace": {"digest": {"every_s": 2, "best": 1000}},
        "pace_of": {"b": {}},
    }
    (tmp_path / "webhooks.yaml").write_text(json.dumps({"topology": topology, "webhooks": [hook]}))
    command = [sys.executable, "-P", "-m", "dskype.deploy", "webhooks", str(tmp_path / "webhooks.yaml"), "--state", str(tmp_path / "state")]
    command += ["--bootstrap-servers", kafka.bootstrap_servers]

    def got(name):
        return [
            row
            for body in {headers["webhook-id"]: body for headers, body, _ in list(receiver.requests)}.values()
            if body["type"] == f"dskype.{name}"
            for row in body[name]
        ]

    for number in range(4):
        write(kafka, topology, 100 * number, 100 * number + 100)  # half of them of each subscription
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: len(got("results")) == 50 * number + 50)
            if number == 3:
                wait_for(lambda: sum(digest["total"] for digest in got("digests")) == 200)
        finally:
            process.kill()
            process.wait()
    digests = got("digests")
    seen = [result["watermark"] for digest in digests for result in digest["results"]]
    assert sorted(seen) == list(range(0, 400, 2)) and {digest["subscription"] for digest in digests} == {"a"}
    assert sorted(result["watermark"] for result in got("results")) == list(range(1, 400, 2))
    # Without a pace it goes on where it was.
    one = Webhook("w", receiver.url, (KEY,), start="beginning")
    write(kafka, topology, 400, 500)
    with Webhooks(kafka, topology, [one], print, tmp_path / "state"):
        wait_for(lambda: len(got("results")) == 300)
    assert sorted(result["watermark"] for result in got("results")) == [*range(1, 400, 2), *range(400, 500)] and len(got("digests")) == len(digests)
    receiver.close()
