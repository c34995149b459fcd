"""DSkype on Spark and Kafka with real messages: processes are killed, and everything published is verified.

``DSKYPE_MESSAGES=100000 DSKYPE_SUBSCRIPTIONS=20000`` makes it a longer run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import TopicPartition

from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.demo import places
from dskype.deploy.verification import Inputs, verify
from dskype.distribution import make_distributor
from dskype.spouts.settings import Settings
from dskype.spouts.text import Tokenizer
from dskype.spouts.topics import TOPIC_CONFIG, Topics
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.runtime.kafka import KafkaSettings, TopicAdmin, read_to_end
from tests.topology.runtime.helpers import executors, wait_for

from .harness import topology

TASKS = {"subscription-bolt": 2}
MESSAGES = int(os.environ.get("DSKYPE_MESSAGES", "30000"))
SUBSCRIPTIONS = int(os.environ.get("DSKYPE_SUBSCRIPTIONS", "5000"))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Real messages, subscriptions drawn from them, and a vocabulary."""
    messages = places.places(seed=5, count=MESSAGES)
    file = tmp_path_factory.mktemp("vocabulary") / "places.vocabulary"
    Vocabulary.build(messages.slice(0, 20_000).texts.to_pylist(), Tokenizer()).save(file)
    return messages, list(places.subscriptions(messages, SUBSCRIPTIONS, seed=5)), str(file)


def conf_of(world, window=MESSAGES // 5):
    return {"topology.acker.executors": 0, "dskype.window.messages": window, "dskype.vocabulary": world[2]}


@pytest.fixture
def feed_of():
    """Make feeds that are closed at the end."""
    feeds = []

    def make(kafka, name):
        feeds.append(Feed(kafka, name))
        return feeds[-1]

    yield make
    for feed in feeds:
        feed.close()


FILTER = {"type": "boolean", "bbox": [-10, 35, 30, 60], "expression": 'saint OR san OR (bad AND "am")', "meta": "west"}


class Feed:
    """Writes messages and subscriptions, and watches how far the topology has come."""

    def __init__(self, kafka: KafkaSettings, name: str) -> None:
        self.kafka, self.topics = kafka, Topics.for_topology(name)
        admin = TopicAdmin(kafka)
        for topic, config in TOPIC_CONFIG.items():
            admin.create({getattr(self.topics, topic): 1}, config)
        admin.close()
        self.producer = kafka.producer()
        self.metrics, self.reached = None, {}

    def subscribe(self, subscriptions):
        for id, value in subscriptions:
            self.producer.send(
                self.topics.subscriptions, key=id.encode(), value=value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            )
        self.producer.flush()

    def publish(self, records):
        for value in records:
            self.producer.send(self.topics.messages, value=value)
        self.producer.flush()

    def change_plan(self, version, plan):
        self.producer.send(self.topics.plans, key=b"plan", value=json.dumps({"v": 1, "version": version, "plan": plan}).encode())
        self.producer.flush()

    def watermark(self) -> int:
        """Return the lowest watermark that the tasks of the subscription bolt have reported; -1 before."""
        if self.metrics is None:
            where = TopicPartition(self.topics.metrics, 0)
            self.metrics = self.kafka.consumer()
            self.metrics.assign([where])
            self.metrics.seek_to_beginning(where)
        for records in self.metrics.poll(timeout_ms=100).values():
            for record in records:
                value = json.loads(record.value)
                if value["kind"] == "stats" and value["component"] == "subscription-bolt":
                    self.reached.update({t["task"]: t["watermark"] for t in value["tasks"]})
        found = self.reached.values()
        return min((-1 if w is None else w for w in found), default=-1) if len(found) == TASKS["subscription-bolt"] else -1

    def close(self):
        """Close the clients."""
        self.producer.close()
        if self.metrics is not None:
            self.metrics.close()

    def wait_for(self, watermark: int, timeout_s: float = 240):
        wait_for(lambda: self.watermark() >= watermark, timeout_s, f"watermark {watermark}")

    def verify(self, conf, final=True, **least):
        """Verify everything that was published; wait until the last answers are in."""

        def report():
            return verify(
                Inputs.read(self.topics.messages.rpartition(".")[0], lambda topic: read_to_end(self.kafka, topic)),
                Settings.from_conf(conf),
                final=final,
                writes=True,
            )

        found = report()
        for _ in range(5):
            if found.ok:
                break
            time.sleep(1)
            found = report()
        print(found.compared, found.notes, found.unchecked, flush=True)
        assert found.ok, "\n".join(d.as_text() for d in found.differences)
        for what, n in least.items():
            assert found.compared[what] >= n, found.compared
        return found


def kill(component):
    """Kill the executors of a component (process names are cut at 15 characters), when its first tuples have started them."""
    found = []

    def there():
        found[:] = [p for p in executors() if p.name == f"dsk:{component}"[:15]]
        return bool(found)

    wait_for(there, 120, f"executors of {component}")
    for process in found:
        os.kill(process.pid, signal.SIGKILL)


def test_many_real_messages_with_executors_killed_on_the_way(cluster, name, world, feed_of):
    messages, subscriptions, _ = world
    conf = conf_of(world)
    feed = feed_of(cluster.environment.kafka, name)
    feed.subscribe([*subscriptions[: SUBSCRIPTIONS // 2], ("west", FILTER)])
    with cluster.submit_topology(name, conf, topology(TASKS, name)) as handle:
        records = messages.records()
        feed.publish(records[: MESSAGES // 2])
        feed.wait_for(MESSAGES // 20)
        feed.subscribe(subscriptions[SUBSCRIPTIONS // 2 :])  # these ask the message bolts for the window
        for share, component in ((0.1, "subscription-bolt"), (0.2, "message-bolt"), (0.3, "distribution-bolt"), (0.4, "aggregation-bolt")):
            feed.wait_for(int(MESSAGES * share))
            kill(component)
        feed.subscribe([(id, None) for id, _ in subscriptions[:100]])
        feed.publish([b"{", *records[MESSAGES // 2 :], b'{"text": "no place"}'])
        feed.wait_for(MESSAGES - 1)
        report = feed.verify(conf)
        assert report.compared["lists"] >= SUBSCRIPTIONS and report.compared["matches"] > 100
        assert handle.backend.failure is None


def as_areas(records):
    """Make every second message an area around its place."""
    for i, record in enumerate(records):
        value = json.loads(record)
        if i % 2:
            lat, lon, half = value.pop("lat"), value.pop("lon"), (i % 50) / 10
            value["bbox"] = [max(-180, lon - half), max(-90, lat - half), min(180, lon + half), min(90, lat + half)]
        yield json.dumps(value).encode()


@pytest.mark.parametrize("distributor", ["hashing", "prefix", "agrid"])
def test_areas_and_grouped_matches_are_exact_with_executors_killed_on_the_way(cluster, name, world, feed_of, distributor):
    messages, subscriptions, _ = world
    n, kafka = 4_000, cluster.environment.kafka
    conf = {**conf_of(world, 1_000), "dskype.distributor": distributor, "dskype.results.matches": "grouped"}
    feed = feed_of(kafka, name)
    words = ["saint", "san", "lake", "creek", "park", "mount", "new", "church", "river", "bad"]
    filters = [(f"b{i}", {**FILTER, "bbox": [-170 + i, -60, -100 + i * 2, 70], "expression": f"{words[i % 10]} OR {words[i % 7]}"}) for i in range(100)]
    feed.subscribe([*subscriptions[:200], *filters, ("west", FILTER)])
    with cluster.submit_topology(name, conf, topology(TASKS, name)) as handle:
        records = list(as_areas(messages.slice(0, n).records()))
        feed.publish(records[: n // 2])
        feed.wait_for(n // 10)
        kill("subscription-bolt")
        feed.wait_for(n // 3)
        feed.subscribe([("b1", None), ("b2", filters[3][1])])
        kill("result-bolt" if distributor == "prefix" else "distribution-bolt")
        feed.publish([*records[n // 2 :], b'{"text": "two places", "lat": 1, "lon": 1, "bbox": [0, 0, 2, 2]}'])
        feed.wait_for(n - 1)
        report = feed.verify(conf)
        assert report.compared["matches"] > 1_000 and report.compared["lists"] > 100 and report.compared["dead letters"] == 1
        assert report.read[feed.topics.matches] < report.compared["matches"] / 5, "several matches are one record"
        with PubSub(kafka, name) as client:
            found = list(client.results(subscriptions=["west", "b2"]))
            assert len(found) > 20 and {r.op for r in found} == {"match"} and len({r.result_id for r in found}) == len(found)
        assert handle.backend.failure is None


@contextlib.contextmanager
def driver(**arguments) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.endtoend.driver_program", json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdout.readline().strip() == "running"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        with contextlib.suppress(OSError):
            process.stdin.close()


def test_a_driver_that_is_killed_or_stopped_goes_on_where_it_was(bootstrap_servers, tmp_path, name, world, feed_of):
    messages, subscriptions, _ = world
    n, kafka = 6_000, KafkaSettings(bootstrap_servers)
    conf = {**conf_of(world, 1_500), "dskype.distributor": "prefix"}
    plan = make_distributor("prefix", TASKS["subscription-bolt"]).plan()
    arguments = {"servers": bootstrap_servers, "folder": str(tmp_path / "folder"), "name": name, "conf": conf, "tasks": TASKS}
    feed = feed_of(kafka, name)
    feed.subscribe([*subscriptions[:1_000], ("west", FILTER)])
    records = messages.slice(0, n).records()
    with driver(**arguments) as killed:
        feed.publish(records[: n // 2])
        feed.wait_for(n // 4)
        killed.kill()
    feed.subscribe(subscriptions[1_000:1_500])
    feed.publish(records[n // 2 :])
    with driver(**arguments) as stopped:
        feed.change_plan(1, make_distributor("prefix", TASKS["subscription-bolt"], plan=plan).split(0, 1))
        feed.wait_for(n // 2)
        stopped.communicate("stop\n", timeout=60)
    with driver(**arguments) as last:
        feed.wait_for(n - 1)
        feed.verify(conf)
        last.communicate("end\n", timeout=60)
    assert last.returncode == 0
