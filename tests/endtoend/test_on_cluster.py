"""DSkype on a real standalone cluster of Spark: two workers that share no folder with anybody, and faults on the way.

A message is published every few milliseconds, so that there is always something under way. At the end everything that was published
is what a plain program finds.
"""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import closing

import pytest

from dskype.deploy.demo import places
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient, follow, read_record, read_standby
from dskype.topology.runtime.nimbus.standby import LOST_AFTER_BEATS
from tests.topology.runtime.helpers import executors
from tests.topology.runtime.standalone import executors_of_minutes, standalone
from tests.waiting import wait_for

from .feed import FILTER, Feed
from .test_on_spark import driver

SUBSCRIPTIONS, RATE = 500, 150
TASKS = {"subscription-bolt": 2, "message-bolt": 4}
TRANSPORTS = {"subscription-bolt": "micro-batch", "message-spout": "micro-batch"}
"""The other components have real-time queries."""
SPARK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    # A host that stands still is given up after ten seconds, not after two minutes.
    "spark.network.timeout": "10s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeoutInterval": "2s",
}


class Publisher:
    """Publishes messages at a steady rate in a thread of its own, the same ones again and again."""

    def __init__(self, feed: Feed, records: list[bytes]) -> None:
        self._feed, self._records, self._stop = feed, records, threading.Event()
        self.published = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer, step = self._feed.producer, max(1, RATE // 20)
        records = itertools.cycle(self._records)
        while not self._stop.wait(step / RATE):
            for value in itertools.islice(records, step):
                producer.send(self._feed.topics.messages, value=value)
            self.published += step

    def end(self) -> int:
        """Stop; return how many messages were published."""
        self._stop.set()
        self._thread.join()
        self._feed.producer.flush()
        return self.published


class Beats:
    """Counts what a standby, and the driver for which it waits, have written to the nimbus topic, in the order of its records.

    :ivar standby: beats of the standby.
    :ivar over: whether it waits no longer: it takes over.
    :ivar silence: most beats of the standby without any record of the driver between them. On a machine that gives the driver no processor time for so
        long, the standby is right to take over.
    """

    def __init__(self, kafka: KafkaSettings, name: str) -> None:
        self._name, self._silent = name, 0
        self.standby, self.over, self.silence = 0, False, 0
        self._consumer = follow(kafka)

    def read(self) -> None:
        """Take in the records that have come."""
        for records in self._consumer.poll(timeout_ms=500).values():
            for record in records:
                if (beat := read_standby(record))[0] == self._name:
                    self.over = not beat[2]
                    self.standby, self._silent = self.standby + beat[2], self._silent + beat[2]
                    self.silence = max(self.silence, self._silent)
                elif read_record(record)[0] == self._name:
                    self._silent = 0

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()


@pytest.fixture
def state(tmp_path):
    """The driver's folder; each worker sees an empty one in its place."""
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@pytest.fixture
def spark_cluster(tmp_path, state):
    with standalone(tmp_path / "spark", hidden=state) as cluster:
        yield cluster


@pytest.mark.product(seconds=180)
def test_two_workers_give_exact_results_though_hosts_die_stand_still_and_come_back(spark_cluster, bootstrap_servers, state, name):
    kafka = KafkaSettings(bootstrap_servers)
    messages = places.places(seed=7, count=10_000)
    vocabulary = state / "places.vocabulary"  # hosts get the file from the topology's store
    Vocabulary.build(messages.slice(0, 2_000).texts.to_pylist(), Tokenizer()).save(vocabulary)
    conf = {
        "topology.workers": 2,
        "dskype.vocabulary": str(vocabulary),
        "topology.acker.executors": 0,
        "dskype.window.messages": 2_000,
        "topology.emulator.snapshot.interval.ms": 5_000,
    }
    feed = Feed(kafka, name)
    feed.subscribe([*places.subscriptions(messages, SUBSCRIPTIONS, seed=7), ("west", FILTER)])
    arguments = {
        "servers": bootstrap_servers,
        "folder": str(state / "one"),
        "name": name,
        "conf": conf,
        "tasks": TASKS,
        "transports": TRANSPORTS,
        "master": spark_cluster.url,
        "spark": {**SPARK, **executors_of_minutes()},
    }
    workers = spark_cluster.workers

    def more(n: int, timeout_s: float = 400) -> None:
        """Wait until so many further messages have been handled."""
        feed.wait_for(feed.watermark() + n, timeout_s)

    def rebalance(workers: int | None = None, counts: Mapping[str, int] | None = None) -> None:
        """Rebalance the topology; its driver may be busy with a host that is lost."""
        ClusterClient(kafka).send({"name": name, "event": "REBALANCE", "wait_secs": 0, "workers": workers, "executors": counts or {}}, timeout_s=600)

    try:
        with driver(**arguments) as first:
            publisher = Publisher(feed, messages.records())
            feed.wait_for(200)
            wait_for(lambda: (more(100), all(w.components() for w in workers))[1], 240, "work on both hosts")
            rebalance(counts={"message-bolt": 2})
            wait_for(lambda: [len(executors("message-bol", w.process.pid)) for w in workers] == [1, 1], 240, "one executor of the message bolt on each host")
            workers[0].signal(signal.SIGKILL)  # a host is lost, and another one comes
            more(500)
            spark_cluster.add_worker()
            rebalances = iter(range(0, 1000, 40))  # a host gets work with the first rebalance after Spark's executor there has come
            due_s, began_s = next(rebalances), time.monotonic()

            def work_on_the_new_host() -> bool:
                nonlocal due_s
                if time.monotonic() - began_s >= due_s:
                    due_s = next(rebalances)
                    rebalance()
                more(100)
                return bool(workers[2].components())

            wait_for(work_on_the_new_host, 240, "work on the new host")
            workers[1].signal(signal.SIGSTOP)  # one stands still until Spark has given it up, and then continues as if nothing had happened
            time.sleep(15)
            more(300)
            workers[1].signal(signal.SIGCONT)
            more(300)
            rebalance(workers=1)
            more(300)
            with driver("standing by", **{**arguments, "folder": str(state / "two"), "host": "two", "standby": True}) as standby:
                more(300)
                with closing(Beats(kafka, name)) as beats:
                    wait_for(lambda: (beats.read(), beats.over or beats.standby > LOST_AFTER_BEATS + 2)[1], 120, "the beats of the standby")
                assert standby.poll() is None and (not beats.over or beats.silence >= LOST_AFTER_BEATS), "the standby took a living driver for lost"
                vocabulary.unlink()  # the host of the first driver is lost, and this file with it
                first.kill()
                assert standby.stdout.readline().strip() == "running"
                more(300)
                published = publisher.end()
                feed.wait_for(published - 1, 400)
                report = feed.verify({**conf, "dskype.vocabulary": str(next((state / "two").glob("topologies/*/files/*-places.vocabulary")))})
                assert report.compared["deltas"] > 1_000
                standby.communicate("end\n", timeout=60)
            assert standby.returncode == 0
    finally:
        feed.close()
