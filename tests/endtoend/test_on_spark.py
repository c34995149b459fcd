"""DSkype on Spark and Kafka with real messages: processes are killed, and everything published is verified.

``DSKYPE_MESSAGES=100000 DSKYPE_SUBSCRIPTIONS=20000`` makes it a longer run.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.demo import places
from dskype.distribution import make_distributor
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.config import Config
from dskype.topology.runtime.kafka.clients import KafkaSettings
from tests.topology.runtime.helpers import daemons, executors
from tests.topology.runtime.helpers import kill as kill_processes

from .feed import FILTER
from .harness import topology

ROOT = Path(__file__).parents[2]
TASKS = {"subscription-bolt": 2}
MESSAGES = int(os.environ.get("DSKYPE_MESSAGES", "8000"))
SUBSCRIPTIONS = int(os.environ.get("DSKYPE_SUBSCRIPTIONS", "1500"))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Real messages, subscriptions drawn from them, of which every third one has distances in metres, and a vocabulary."""
    messages = places.places(seed=5, count=MESSAGES)
    file = tmp_path_factory.mktemp("vocabulary") / "places.vocabulary"
    Vocabulary.build(messages.slice(0, 20_000).texts.to_pylist(), Tokenizer()).save(file)
    drawn = places.subscriptions(messages, SUBSCRIPTIONS, seed=5)
    return messages, [one if i % 3 else in_metres(i, *one) for i, one in enumerate(drawn)], str(file)


def in_metres(i, id, value):
    """Return a subscription with distances in metres in place of degrees."""
    scale = {"distance": "metres", "scale_m": (5_000, 300_000, 5_000_000)[i // 3 % 3]}
    return id, json.dumps(json.loads(value) | scale).encode()


def conf_of(world, window=MESSAGES // 5):
    return {"topology.acker.executors": 0, "dskype.window.messages": window, "dskype.vocabulary": world[2]}


def kill(component):
    """Kill the executors of a component (process names are cut at 15 characters), when its first tuples have started them."""
    kill_processes(lambda: [p for p in executors() if p.name == f"dsk:{component}"[:15]], f"executors of {component}")


def test_many_real_messages_in_micro_batches_with_executors_killed_on_the_way(cluster, name, world, feed_of):
    messages, subscriptions, _ = world
    conf = {**conf_of(world), Config.TOPOLOGY_EMULATOR_TRANSPORT: "micro-batch"}
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
        feed.wait_until_active("west")
        feed.publish([b"{", *records[MESSAGES // 2 :], b'{"text": "no place"}'])
        feed.wait_for(MESSAGES - 1)
        report = feed.verify(conf)
        assert report.compared["lists"] >= SUBSCRIPTIONS and report.compared["matches"] > 50  # 55 in the second half
        assert handle.backend.failure is None


def test_many_real_messages_with_processes_killed_on_the_way(cluster, name, world, feed_of):
    messages, subscriptions, _ = world
    n = 8_000
    conf = conf_of(world, 2_000)
    feed = feed_of(cluster.environment.kafka, name)
    feed.subscribe([*subscriptions[:1000], ("west", FILTER)])
    with cluster.submit_topology(name, conf, topology(TASKS, name)) as handle:
        assert handle.backend._queries.transports.real_time == set(handle.backend.plan.component_ids)
        records = messages.slice(0, n).records()
        feed.publish(records[: n // 2])
        feed.wait_for(n // 10)
        kill("subscription-bolt")
        feed.subscribe(subscriptions[1000:1500])
        feed.wait_for(n // 4)
        kill_processes(daemons, "Spark's Python daemons, with which all executors end")
        kill("message-spout")
        feed.wait_until_active("west")
        feed.publish([b"{", *records[n // 2 :]])
        feed.wait_for(n // 2)
        kill("distribution-bolt")
        feed.wait_for(n - 1)
        report = feed.verify(conf)
        assert report.compared["lists"] > 500 and report.compared["matches"] > 50 and report.compared["dead letters"] == 1
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
        feed.wait_until_active("west")
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
def driver(says: str = "running", source: Path | None = None, **arguments) -> Iterator[subprocess.Popen]:
    """Yield a driver that has said something: ``running`` or ``standing by``.

    :param source: the folder with the package; default: the one of the tests.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.endtoend.driver_program", json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=source or ROOT,
        env={**os.environ, **({} if source is None else {"PYTHONPATH": f"{source}{os.pathsep}{ROOT}"})},
    )
    try:
        assert process.stdout.readline().strip() == says
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
