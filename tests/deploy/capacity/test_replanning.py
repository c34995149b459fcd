"""Plans for a running topology: what is read of its topics, what is compared, and that tasks keep their subscriptions."""

from __future__ import annotations

import json
import time
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest

from dskype.deploy.capacity import replanning
from dskype.deploy.capacity.replanning import TooFewError, compare_plans, moved_share, recent_sample, renumbered
from dskype.deploy.client.pubsub import PubSub
from dskype.distribution import HasPartitions, distributor_class, make_distributor
from dskype.topology.runtime.kafka.clients import KafkaSettings
from tests.distribution import worlds

NOW_MS = time.time_ns() // 1_000_000


def record(value, key=None, time_ms=NOW_MS, topic="t.messages"):
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return SimpleNamespace(topic=topic, key=None if key is None else key.encode(), value=data, timestamp=time_ms)


def message(lat=0.0, lon=0.0, text="coffee", **more):
    return {"text": text, "lat": lat, "lon": lon, **more}


def wanted(west, south, size, words="coffee", **more):
    return {"type": "boolean", "expression": words, "bbox": [west, south, west + size, south + size], **more}


@pytest.fixture
def client_of(monkeypatch):
    """Make clients of a topology that has received certain records."""

    def make(messages, subscriptions, **conf):
        client = PubSub(KafkaSettings(""), "t", conf={f"dskype.{key}": value for key, value in conf.items()}, message_topics=["t.messages"])
        topics = {"t.messages": messages, "t.subscriptions": [record(value, key, *rest) for key, value, *rest in subscriptions]}

        def scan(topic, start="beginning"):
            return iter(topics[topic] if start == "beginning" else topics[topic][-start:])

        monkeypatch.setattr(client, "scan", scan)
        return client

    return make


@pytest.mark.parametrize(("name", "options"), [pair for pair in worlds.EVERY if issubclass(distributor_class(pair[0]), HasPartitions)])
def test_a_plan_with_other_numbers_of_tasks_is_the_same_plan(name, options):
    rng = np.random.default_rng(7)
    sample = worlds.sample(rng, 300, 200, vocabulary=60, unknown=0.0)
    numbers = [2, 0, 3, 1]
    before = make_distributor(name, 4, options, distributor_class(name).learn(4, sample, options))
    after = make_distributor(name, 4, options, renumbered(before.plan(), numbers))
    for i in range(sample.n):
        one, other = (found.place(str(i), sample.subscription(i), float(sample.thresholds[i])) for found in (before, after))
        assert other.tasks == sorted(numbers[task] for task in one.tasks) and other.guard == one.guard
    assert [after.loads()[numbers[task]] for task in range(4)] == before.loads().tolist()
    routes = [found.message_tasks(sample.messages) for found in (before, after)]
    pairs = [None if one is None else set(zip(one.rows.tolist(), one.tasks.tolist())) for one in routes]
    assert pairs[1] == (None if pairs[0] is None else {(row, numbers[task]) for row, task in pairs[0]})


def test_the_sample_has_the_newest_messages_and_the_subscriptions_that_live(client_of):
    messages = [record(message(lat=i % 50, text=f"coffee {i}"), time_ms=NOW_MS + i) for i in range(300)]
    messages[290:293] = [record(b"{", time_ms=NOW_MS + 290), record(message(lat=400), time_ms=NOW_MS + 291), record(None, time_ms=NOW_MS + 292)]
    subscriptions = [(f"s{i}", wanted(0, 0, 5)) for i in range(200)]
    subscriptions += [
        ("s0", None),  # removed
        ("s1", wanted(7, 7, 2)),  # replaced
        ("s2", wanted(0, 0, 5, ttl_s=10), NOW_MS - 20_000),  # over
        ("s3", wanted(0, 0, 5, ttl_s=10_000), NOW_MS - 20_000),
        ("s4", wanted(0, 0, 5, words="(")),  # refused
        ("never", None),
    ]
    sample, registered = recent_sample(client_of(messages, subscriptions), most=250)
    assert sample.messages.n == 247 and sample.messages.lat.tolist() == [i % 50 for i in range(50, 300) if i not in (290, 291, 292)]
    assert (sample.n, registered) == (197, 197)
    assert sorted(map(tuple, sample.rectangles().tolist())) == [(0, 0, 5, 5)] * 196 + [(7, 7, 9, 9)]


def test_of_many_subscriptions_some_stand_for_all_in_bounded_memory(client_of):
    ids = [f"s{i}" for i in range(5_000)]
    subscriptions = [(id, wanted(0, 0, 5)) for id in ids] + [(id, None) for id in ids[:1_000]] + [(id, wanted(1, 1, 5)) for id in ids[4_000:]]
    sample, registered = recent_sample(client_of([record(message())] * 100, subscriptions), most=200)
    assert sample.n == 200 and 3_200 < registered < 4_800
    assert 0.15 < np.mean(sample.rectangles()[:, 0] == 1) < 0.35


def test_too_little_says_nothing(client_of):
    with pytest.raises(TooFewError, match="99 messages, 100 subscriptions"):
        recent_sample(client_of([record(message())] * 99, [(f"s{i}", wanted(0, 0, 5)) for i in range(100)]))


@pytest.fixture
def crowded(client_of, monkeypatch):
    """Make clients of a topology of four tasks, all of whose messages and subscriptions are in one of a hundred parts of the world; it has the plan with which it starts."""

    def make(distributor, **options):
        rng = np.random.default_rng(3)
        places = rng.uniform((40, 0), (50, 20), (600, 2)).tolist()
        messages = [record(message(lat, lon, text=f"coffee w{i % 40}"), time_ms=NOW_MS + i) for i, (lat, lon) in enumerate(places)]
        subscriptions = [(f"s{i}", wanted(lon, lat, 0.5, words=f"w{i % 40} OR w{(i + 1) % 40}")) for i, (lat, lon) in enumerate(places)]
        conf = {"distributor": distributor, "distributor.options": options}
        plan = make_distributor(distributor, 4, options).plan()
        monkeypatch.setattr(replanning, "read_current", lambda client: (7, plan))
        return client_of(messages, subscriptions, **conf), plan

    return make


@pytest.mark.long
@pytest.mark.parametrize("name", ["agrid", "hybrid"])
def test_a_crowded_part_of_the_world_is_divided_by_the_new_plan(crowded, name):
    client, plan = crowded(name, granularity=500)
    found = compare_plans(client)
    assert found.version == 7 and found.present.distributor == found.new.distributor == name
    assert found.present.balance > 2 > 1.3 > found.new.balance and found.new.slowest_us < 0.6 * found.present.slowest_us
    assert found.plan["tasks"] == 4 and found.plan["distributor"] == name and (found.messages, found.subscriptions, found.registered) == (600, 600, 600)
    assert len(found.new.tasks_us) == 4 and max(found.new.tasks_us) == found.new.slowest_us
    sample, _ = recent_sample(client)
    present, new = (make_distributor(name, 4, {"granularity": 500}, one) for one in (plan, found.plan))
    assert found.moved == moved_share(present, new, sample)
    every = [
        moved_share(present, make_distributor(name, 4, {"granularity": 500}, renumbered(found.plan, numbers)), sample) for numbers in permutations(range(4))
    ]
    assert min(every) <= found.moved < min(every) + 0.05
    assert found.with_tasks(8) < found.new.slowest_us


@pytest.mark.long
def test_a_distributor_without_plans_is_compared_with_the_others(crowded):
    client, _ = crowded("hashing")
    found = compare_plans(client)
    assert found.new is None and found.plan is None and found.moved == 0.0
    assert found.best.distributor in ("agrid", "hybrid") and found.best.slowest_us < found.present.slowest_us
    assert found.others.plan["tasks"] == 4
    assert found.with_tasks(4) == pytest.approx(found.present.slowest_us)
