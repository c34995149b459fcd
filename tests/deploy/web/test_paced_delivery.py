"""Throttles, digests and quiet hours: against a plain computation, with processes that die at any moment, and a receiver that leaves out repetitions by id."""

from __future__ import annotations

import json
import random
import threading
from datetime import UTC, datetime

import pytest

from dskype.deploy.web.deliveries import group_of
from dskype.deploy.web.pace import Daily, Every, Pace, Quiet, parse_pace
from dskype.deploy.web.paced_delivery import PacedDelivery
from dskype.deploy.web.webhook_settings import Webhook, parse_webhooks
from dskype.topology.errors import IllegalArgumentException

from .memory_kafka import Consumer, MemoryKafka, client_of
from .test_webhooks import KEY, SECRET

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
START = 20_000 * DAY
"""A midnight in UTC."""


class Killed(BaseException):
    """The process dies."""


class World:
    """A topology's results, a clock, and a receiver that keeps each request once, by its id. What delivers may die before and after each request, and within each step."""

    def __init__(self, path, webhook, seed=0, deaths=0.0):
        self.kafka, self.webhook, self.path = MemoryKafka(), webhook, path / "state.sqlite"
        self.topics = self.kafka.topology(partitions=2)
        self.now_ms, self.requests, self.sent_at, self.said, self.written = START, {}, [], [], []
        self._random, self._deaths = random.Random(seed), deaths

    def write(self, subscription, number, time_ms, op="match", **more):
        value = {"v": 1, "subscription": subscription, "watermark": number, "op": op, "message": f"m{number}", **more}
        self.kafka.broker.time_ms = time_ms - 1
        self.kafka.broker.write(
            self.topics.results, subscription, json.dumps(value).encode(), sum(subscription.encode()) % 2, [("result-id", f"{subscription}/{number}")]
        )
        self.written.append((subscription, number, time_ms, op, more))

    def run(self):
        """Deliver all that is there and due; whenever it dies, a new process goes on."""
        while True:
            stop = threading.Event()
            delivery = PacedDelivery(self.kafka, client_of(self.kafka), self.webhook, stop, self.said.append, self.path, lambda: self.now_ms)
            steps = 0

            def step(consumer, delivery=delivery, stop=stop):
                nonlocal steps
                self._die()
                PacedDelivery._step(delivery, consumer)
                steps += 1
                if steps == 3:
                    delivery._commit(consumer)
                    stop.set()

            delivery._step = step
            delivery._sender.send = self._send
            taken = delivery._taken
            delivery._taken = lambda *of, taken=taken: (self._die(0.1), taken(*of))[1]
            try:
                delivery.run()
                return
            except Killed:
                continue

    def _send(self, id, body):
        self._die()
        self.requests.setdefault(id, json.loads(body))
        self.sent_at.append(self.now_ms)
        self._die()

    def _die(self, share=1.0):
        if self._random.random() < self._deaths * share:
            raise Killed

    def got(self, name):
        return [row for body in self.requests.values() if body["type"] == f"dskype.{name}" for row in body[name]]

    def numbers(self):
        return [row["watermark"] for row in self.got("results")]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("dskype.deploy.web.paced_delivery._POLL_S", 0.0)


def hook(pace=None, **more):
    return Webhook("w", "http://127.0.0.1:1/", (KEY,), start="beginning", pace=pace, **more)


def expected(world, subscription, pace):
    """Return (numbers of results, digests, left out) of a subscription, as the documents say it; each digest and count with the end of its period."""
    periods = {}
    for one, number, time_ms, op, more in world.written:
        if one == subscription and op != "remove":
            periods.setdefault(pace.periods.end_after(time_ms) if pace.periods else None, []).append((time_ms, number, more))
    results, digests, left_out = set(), {}, {}
    for end, rows in periods.items():
        if pace.kind == "now":
            results |= {number for _, number, _ in rows}
        elif pace.kind == "throttle":
            taken, groups = [], set()
            for _, number, more in rows:
                group = more.get("fields", {}).get(pace.group_by, f"its own: {number}")
                if len(taken) < pace.most and (pace.group_by is None or group not in groups):
                    taken.append(number)
                    groups.add(group)
            results |= set(taken)
            if len(taken) < len(rows):
                left_out[end] = len(rows) - len(taken)
        else:
            best = {}
            for time_ms, number, more in rows:
                group = more.get("fields", {}).get(pace.group_by, f"its own: {number}")
                best[group] = max(best.get(group, (-1, 0, 0)), (more.get("score", 0), time_ms, number))
            digests[end] = (len(rows), [number for _, _, number in sorted(best.values(), reverse=True)[: pace.best]])
    return results, digests, left_out


def draw_pace(rng):
    zone = UTC
    begin, hours = rng.randrange(24), rng.randrange(1, 16)
    quiet = Quiet(datetime(1, 1, 1, begin).time(), datetime(1, 1, 1, (begin + hours) % 24, 30).time(), zone) if rng.random() < 0.4 else None
    group_by = rng.choice([None, "shop"])
    periods = rng.choice([Every(rng.choice([7, 60, 600]) * MINUTE), Daily((datetime(1, 1, 1, 8).time(), datetime(1, 1, 1, 17, 15).time()), zone)])
    return rng.choice(
        [
            Pace(periods, rng.randint(1, 4), quiet=quiet, group_by=group_by),
            Pace(periods, best=rng.randint(1, 4), quiet=quiet, group_by=group_by),
            Pace(quiet=quiet),
        ]
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(16))
def test_what_arrives_is_what_a_plain_computation_says_though_processes_die(tmp_path, seed):
    rng = random.Random(seed)
    names = "abcd"
    paces = {name: draw_pace(rng) for name in names[1:]} | {"a": None}
    world = World(tmp_path, hook(paces=paces, batch=rng.choice([1, 3, 100])), seed, deaths=rng.choice([0.0, 0.05, 0.3]))
    number = 0
    for _ in range(rng.randint(3, 12)):
        before, world.now_ms = world.now_ms, world.now_ms + rng.choice([1, 20, 300, 2000]) * MINUTE
        for time_ms in sorted(rng.randrange(before + 1, world.now_ms) for _ in range(rng.randrange(40))):
            number += 1
            more = {"score": rng.randrange(5)} if rng.random() < 0.5 else {}
            more |= {"fields": {"shop": rng.choice("xyz")}} if rng.random() < 0.7 else {}
            world.write(rng.choice(names), number, time_ms, rng.choice(["match", "add", "remove"]), **more)
        if rng.random() < 0.8:
            world.run()
    world.now_ms += 2 * DAY  # behind all periods
    for _ in range(4):  # and out of quiet hours, which leave at least eight hours
        world.now_ms += 7 * HOUR
        world.run()
    results = {number for one, number, _, _, _ in world.written if one == "a"}
    digests, left_out = {}, {}
    for name, pace in paces.items():
        if pace is not None:
            its = expected(world, name, pace)
            results |= its[0]
            digests |= {(name, end): row for end, row in its[1].items()}
            left_out |= {(name, end): n for end, n in its[2].items()}
    assert sorted(world.numbers()) == sorted(results)
    got = [((d["subscription"], d["until_ms"]), (d["total"], [r["watermark"] for r in d["results"]])) for d in world.got("digests")]
    assert dict(got) == digests and len(got) == len(digests), "a digest arrives once"
    counts = [((row["subscription"], row["until_ms"]), row["results"]) for row in world.got("left_out")]
    assert dict(counts) == left_out and len(counts) == len(left_out)
    place = world.kafka.broker.committed
    assert all(place[group_of("dskype", "w"), (world.topics.results, p)].offset == len(world.kafka.broker.logs[world.topics.results, p]) for p in (0, 1))


@pytest.mark.long
def test_nothing_is_sent_in_quiet_hours_and_everything_after_them(tmp_path):
    quiet = parse_pace("pace", {"quiet": {"from": "22:00", "to": "07:00"}}, "Europe/Berlin")
    world = World(tmp_path, hook(quiet))
    for number in range(48):
        world.now_ms = START + number * HOUR // 2
        world.write("a", number, world.now_ms)
        world.run()
    world.now_ms += 12 * HOUR
    world.run()
    assert sorted(world.numbers()) == list(range(48)) and world.numbers() == sorted(world.numbers())
    berlin = {datetime.fromtimestamp(ms / 1000, quiet.quiet.zone).hour for ms in world.sent_at}
    assert berlin == set(range(7, 22))


def test_quiet_hours_hold_a_thousand_results_of_a_subscription_and_count_the_others(tmp_path):
    world = World(tmp_path, hook(parse_pace("pace", {"quiet": {"from": "00:00", "to": "07:00"}})))
    world.now_ms += HOUR
    for number in range(1203):
        world.write("a", number, START + number)
    world.run()
    assert world.requests == {}
    world.now_ms += 7 * HOUR
    world.run()
    assert world.numbers() == list(range(1000))
    assert [(row["subscription"], row["results"]) for row in world.got("left_out")] == [("a", 203)]


def test_a_late_result_counts_for_the_next_digest(tmp_path):
    world = World(tmp_path, hook(Pace(Every(HOUR))))
    world.write("a", 1, START + 10)
    world.now_ms = START + HOUR + 10_000
    world.run()
    world.write("a", 2, START + 20)
    world.run()
    world.now_ms += HOUR
    world.run()
    got = [(d["until_ms"] - START, d["total"], [r["watermark"] for r in d["results"]]) for d in world.got("digests")]
    assert got == [(HOUR, 1, [1]), (2 * HOUR, 1, [2])]


def test_a_digest_comes_though_results_never_cease(tmp_path, monkeypatch):
    """Whenever it is asked where the topics end, they have gone on since the last poll."""
    world, asked = World(tmp_path, hook(Pace(Every(HOUR)))), Consumer.end_offsets
    for number in range(3):
        world.write("a", number, START + number)
    world.now_ms, after = START + HOUR + 10_000, iter(range(100, 200))

    def end_offsets(consumer, partitions, timeout_ms=None):
        number = next(after)
        world.write("a", number, START + HOUR + number)
        return asked(consumer, partitions)

    monkeypatch.setattr(Consumer, "end_offsets", end_offsets)
    world.run()
    [digest] = world.got("digests")
    assert digest["until_ms"] == START + HOUR and digest["total"] == 3
    world.now_ms += HOUR
    world.run()
    _, later = world.got("digests")
    assert later["until_ms"] == START + 2 * HOUR and later["total"] > 1, "what came meanwhile is in the next one"


def test_a_result_that_the_topology_writes_again_counts_once_though_the_process_is_another(tmp_path):
    world = World(tmp_path, hook(Pace(Every(HOUR)), paces={"b": None}))
    for number in (0, 1):
        for subscription in "ab":
            world.write(subscription, number, START + number)
    world.run()
    world.write("a", 1, START + 5)
    world.write("b", 1, START + 5)
    world.now_ms += 2 * HOUR
    world.run()
    [digest] = world.got("digests")
    assert digest["total"] == 2 and sorted(world.numbers()) == [0, 1]


def test_a_receiver_that_has_lost_its_pace_gets_what_was_held_and_nothing_twice(tmp_path):
    world = World(tmp_path, hook(Pace(Every(HOUR)), paces={"b": None}))
    for number in (0, 1):
        for subscription in "ab":
            world.write(subscription, number, START + number)
    world.run()
    world.webhook = hook()
    world.write("a", 2, START + 5)
    world.run()
    world.now_ms += 2 * HOUR
    world.run()
    assert sorted(world.numbers()) == [0, 1, 2]
    assert [sorted(row["watermark"] for row in digest["results"]) for digest in world.got("digests")] == [[0, 1]]


def test_a_process_without_its_database_begins_where_something_was_held(tmp_path):
    world = World(tmp_path, hook(Pace(Every(HOUR)), paces={"b": None}))
    for number in range(4):
        world.write("ab"[number % 2], number, START + number)
    world.run()
    assert world.numbers() == [1, 3]
    (tmp_path / "state.sqlite").unlink()
    world.now_ms += 2 * HOUR
    world.run()
    assert [r["watermark"] for d in world.got("digests") for r in d["results"]] == [2, 0]


def test_times_of_day_follow_the_clocks_of_their_zone():
    pace = parse_pace("pace", {"digest": {"at": ["08:00", "02:30"]}}, "Europe/Berlin")
    ends, at = [], int(datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp() * 1000)  # the clocks go forward in the night to the 29th, at 2:00
    for _ in range(4):
        at = pace.periods.end_after(at)
        ends.append(datetime.fromtimestamp(at / 1000, UTC).strftime("%d %H:%M"))
    assert ends == ["29 01:30", "29 06:00", "30 00:30", "30 06:00"]
    assert parse_pace("pace", {}) is None and parse_pace("pace", None) is None


@pytest.mark.parametrize(
    ("pace", "said"),
    [
        ("often", "cannot be used"),
        ({"throttel": {}}, "throttel"),
        ({"throttle": {"most": 0, "every_s": 5}}, "a whole number from 1"),
        ({"throttle": {"most": 3}}, "every_s"),
        ({"throttle": {"most": 3, "every_s": 5}, "digest": {"every_s": 5}}, "one of them"),
        ({"digest": {}}, "every_s or at"),
        ({"digest": {"every_s": 5, "at": "08:00"}}, "every_s or at"),
        ({"digest": {"at": 480}}, "in quotes"),
        ({"digest": {"at": "24:00"}}, "23:59"),
        ({"digest": {"at": "08:00", "best": True}}, "from 1 to 1,000"),
        ({"quiet": {"from": "08:00", "to": "08:00"}}, "never end"),
        ({"quiet": {"from": "08:00"}}, "from, to"),
        ({"group_by": "shop"}, "in each period"),
        ({"digest": {"every_s": 5}, "group_by": 7}, "the name of a field"),
    ],
)
def test_a_pace_that_cannot_be_used_is_refused_with_what_is_legal(pace, said):
    data = {"webhooks": [{"name": "w", "url": "http://127.0.0.1:1/", "secret": SECRET, "pace": pace}]}
    with pytest.raises(IllegalArgumentException, match=said) as caught:
        parse_webhooks(data)
    assert "pace of webhook w" in str(caught.value)


def test_paces_are_read_for_all_and_for_some_subscriptions():
    row = {"name": "w", "url": "http://127.0.0.1:1/", "secret": SECRET, "timezone": "Asia/Tokyo", "pace": {"digest": {"at": "09:00", "best": 3}}}
    _, (one,) = parse_webhooks({"webhooks": [{**row, "pace_of": {"now": {}, "some": {"throttle": {"most": 2, "every_s": 60}}}}]})
    assert one.is_paced and one.pace_of("now") is None and one.pace_of("other").best == 3
    assert one.pace_of("some") == Pace(Every(60_000), 2)
    assert one.pace_of("other").periods.end_after(START) == START + DAY, "9:00 in Tokyo is midnight in UTC"
    _, (plain,) = parse_webhooks({"webhooks": [{"name": "w", "url": "http://127.0.0.1:1/", "secret": SECRET, "pace_of": {"x": {}}}]})
    assert not plain.is_paced
    for bad, said in ({"timezone": "Nowhere/Land"}, "no such time zone"), ({"pace_of": ["x"]}, "pace_of"), ({"pace_of": {7: {}}}, "ids are texts"):
        with pytest.raises(IllegalArgumentException, match=said):
            parse_webhooks({"webhooks": [row | bad]})


def test_a_state_that_is_none_or_of_another_version_is_refused(tmp_path):
    world = World(tmp_path, hook(Pace(Every(HOUR))))
    world.path.write_bytes(b"no database" * 100)
    with pytest.raises(IllegalArgumentException, match="cannot be read"):
        world.run()
    world.path.unlink()
    import sqlite3

    with sqlite3.connect(world.path) as database:
        database.execute("PRAGMA user_version = 9")
    with pytest.raises(IllegalArgumentException, match="another version"):
        world.run()
