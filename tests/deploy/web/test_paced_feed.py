"""Server-sent results at a client's pace."""

from __future__ import annotations

import asyncio

import pytest

from dskype.deploy.web.feeds import Feeds
from dskype.deploy.web.pace import Every, Pace
from dskype.deploy.web.paced_feed import PacedFollower, pace_of_text
from dskype.topology.errors import IllegalArgumentException

from .memory_kafka import MemoryKafka
from .test_result_feed import NoTopologies, take, write_result

HOUR_MS = 3_600_000


@pytest.fixture
def kafka():
    return MemoryKafka()


@pytest.fixture
def feeds(kafka):
    made = Feeds(kafka, NoTopologies())
    yield made
    made.close()


def paced(feeds, clock, pace, last=""):
    return PacedFollower(feeds.of("dskype").results(frozenset({"a"}), "now", last, False), pace, lambda: clock[0])


def names(events):
    return [event.name for event in events if event.data is not None]


def test_a_throttle_sends_some_results_of_a_period_and_counts_the_others(kafka, feeds):
    topics = kafka.topology()
    clock = [kafka.broker.time_ms]

    async def scene():
        follower = paced(feeds, clock, Pace(Every(HOUR_MS), 2))
        await follower.next()
        for number in range(6):
            write_result(kafka, topics, "a", number)
        events = await take(follower, lambda events: names(events).count("result") == 2)
        while follower._database.execute("SELECT sum(left_out) FROM period").fetchone() != (4,):
            events += await follower.next()
        clock[0] += 2 * HOUR_MS
        events += await take(follower, lambda events: "left_out" in names(events))
        follower.close()
        return events

    events = asyncio.run(scene())
    assert [e.data["watermark"] for e in events if e.name == "result"] == [0, 1]
    (count,) = [e.data for e in events if e.name == "left_out"]
    assert (count["subscription"], count["results"], count["until_ms"] % HOUR_MS) == ("a", 4, 0)


def test_a_client_that_comes_back_before_its_digest_gets_the_whole_digest(kafka, feeds):
    topics = kafka.topology()
    clock = [kafka.broker.time_ms]

    async def scene():
        follower = paced(feeds, clock, Pace(Every(HOUR_MS), best=2))
        (opened,) = await follower.next()
        for number in range(3):
            write_result(kafka, topics, "a", number, op="match")
        while follower._database.execute("SELECT sum(results) FROM period").fetchone() != (3,):
            assert all(event.id == opened.id for event in await follower.next())
        follower.close()
        again = paced(feeds, clock, Pace(Every(HOUR_MS), best=2), opened.id)
        clock[0] += 2 * HOUR_MS
        events = await take(again, lambda events: "digest" in names(events))
        again.close()
        return opened, events

    opened, events = asyncio.run(scene())
    (digest,) = [e for e in events if e.name == "digest"]
    assert (digest.data["total"], [r["watermark"] for r in digest.data["results"]]) == (3, [2, 1])
    assert digest.id != opened.id, "what follows goes on behind it"


@pytest.mark.parametrize(("text", "said"), [("{", "no JSON"), ('{"digest": {"every_s": 5, "best": 101}}', "up to 100"), ("[1]", "cannot be used")])
def test_a_pace_that_cannot_be_used_is_refused(text, said):
    with pytest.raises(IllegalArgumentException, match=said):
        pace_of_text(text, "UTC")
