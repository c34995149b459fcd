"""Brokers that stand still, and a driver that writes nothing more: everybody who looks is told so soon, and that it is over as well. On a real broker that is stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dskype.deploy.cli.commands import status
from dskype.deploy.client.topics import ensure_topics
from dskype.deploy.machine.broker import EmbeddedBroker
from dskype.deploy.metrics.prometheus import Exporter
from dskype.deploy.metrics.ui_server import FollowedCluster, UiServer, UiSettings
from dskype.deploy.web.extension import make_extension
from dskype.deploy.web.trend import WatchedReports
from dskype.spouts.topics import Topics
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.nimbus.liveness import describe_driver
from dskype.topology.runtime.nimbus.nimbus_topic import NIMBUS_TOPIC, ClusterClient
from tests.topology.runtime.helpers import freeze
from tests.waiting import wait_for

from .server import TOKEN, Events, view
from .test_result_feed import delta

NAME = "dskype"


@pytest.fixture(scope="module")
def broker():
    """A broker of its own, because others must not stand still with it."""
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="module")
def kafka(broker):
    found = KafkaSettings(broker.bootstrap_servers)
    ensure_topics(found, NAME)
    with TopicAdmin(found) as admin:
        admin.create({NIMBUS_TOPIC: 1, f"{NAME}.metrics": 1}, {})
    return found


@contextlib.contextmanager
def standing_still(broker):
    freeze(broker.pid)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


class Driver:
    """The heartbeats of a topology that this process seems to run, until it is ``dumb``."""

    def __init__(self, kafka):
        self.dumb, self._end, self._speaks = threading.Event(), threading.Event(), threading.Lock()
        self._kafka, self._thread = kafka, threading.Thread(target=self._run, daemon=True)

    def _run(self):
        producer, beat = self._kafka.producer(), 0
        while not self._end.wait(0.5):
            with self._speaks:
                if self.dumb.is_set():
                    continue
                beat += 1
                state = {"v": 1, **view(NAME).record["state"], "conf": {}, "components": ["subscription-bolt"]}
                record = {"v": 1, **view(NAME).record, "state": state, "driver": describe_driver(), "heartbeat": beat}
                producer.send(NIMBUS_TOPIC, key=f"topology:{NAME}".encode(), value=json.dumps(record).encode()).get(60)
        producer.close(timeout=1)

    def fall_dumb(self):
        """Write no more; return when what was on its way has arrived."""
        with self._speaks:
            self.dumb.set()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join(10)


@pytest.fixture
def driver(kafka):
    with Driver(kafka) as running:
        yield running


@pytest.fixture
def served(kafka, driver):
    source = FollowedCluster(kafka, WatchedReports)
    with UiServer(source, UiSettings(port=0, token=TOKEN), [make_extension(kafka, source)]) as server:
        yield server


def asked(server, path):
    """Return status and JSON of a GET."""
    try:
        with urlopen(server.url + path, timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def health_of(server):
    return next((t["health"]["state"] for t in asked(server, "api/ui/health")[1]["topologies"]), None)


def listed(kafka):
    return [(line["driver_alive"], line["health"]["state"]) for line in ClusterClient(kafka).topologies()]


def problems(server):
    return [problem["what"] for problem in asked(server, "api/ui/health")[1]["problems"]]


def write_result(kafka, number):
    producer = kafka.producer()
    producer.send(Topics.for_topology(NAME).results, key=b"a", value=delta("a", number), headers=[("result-id", str(number).encode())])
    producer.flush()
    producer.close()


def scraped(exporter):
    with urlopen(exporter.url, timeout=30) as answer:
        text = answer.read().decode()
    return {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples if s.labels.get("topology") in (None, NAME)}


def test_a_broker_that_stands_still_is_seen_by_pages_answers_events_metrics_and_commands(broker, kafka, driver, served):
    with Exporter(kafka) as exporter:
        wait_for(lambda: health_of(served) == "running" and scraped(exporter).get("dskype_topology_healthy") == 1)
        assert asked(served, "api/dskype/topologies") == (200, {"topologies": [NAME]}) and scraped(exporter)["dskype_brokers_answer"] == 1
        events = Events(served, "results")
        assert events.next()[0] == "following"
        write_result(kafka, 1)
        last, data = events.next()[1:]
        assert data["watermark"] == 1
        with standing_still(broker), ThreadPoolExecutor(40) as pool:
            hanging = [pool.submit(asked, served, "api/dskype/subscription?id=a") for _ in range(40)]
            wait_for(lambda: any("The brokers have not answered for" in what for what in problems(served)))
            assert {one.result(60)[0] for one in hanging} == {503}
            for path in ("topologies", "subscriptions", "measures", "results", "partitions"):
                assert asked(served, f"api/dskype/{path}")[0] == 503, path
            assert health_of(served) == "unknown" and asked(served, "api/v1/nimbus/summary")[1]["nimbuses"][0]["status"] == "Offline"
            wait_for(lambda: scraped(exporter)["dskype_brokers_answer"] == 0 and scraped(exporter)["dskype_topology_healthy"] == 0)
            with pytest.raises(AssertionError, match="the stream has ended"):
                while True:
                    events.next()
            topologies, silence = status._topologies(broker.bootstrap_servers, 10)
            assert topologies == [] and "does not answer within 5 s" in silence
        wait_for(lambda: problems(served) == [] and health_of(served) == "running")
        wait_for(lambda: scraped(exporter)["dskype_brokers_answer"] == scraped(exporter)["dskype_topology_healthy"] == 1)
        write_result(kafka, 2)
        events.close()
        again = Events(served, "results", last)
        assert next(data["watermark"] for name, _, data in iter(again.next, None) if name == "result") == 2
        again.close()


def test_a_driver_that_is_dumb_is_seen_although_its_process_is_there(kafka, driver, served):
    with Exporter(kafka) as exporter:
        wait_for(lambda: health_of(served) == "running" and scraped(exporter).get("dskype_topology_healthy") == 1)
        wait_for(lambda: listed(kafka) == [(True, "running")])  # each reader finds it out by itself
        driver.fall_dumb()
        wait_for(lambda: health_of(served) == "silent" and scraped(exporter)["dskype_topology_healthy"] == 0)
        assert any(f"Topology {NAME} is silent: its process has written nothing for" in what for what in problems(served))
        wait_for(lambda: listed(kafka) == [(True, "silent")])
        driver.dumb.clear()
        wait_for(lambda: health_of(served) == "running" and problems(served) == [] and scraped(exporter)["dskype_topology_healthy"] == 1)
        wait_for(lambda: listed(kafka) == [(True, "running")])
