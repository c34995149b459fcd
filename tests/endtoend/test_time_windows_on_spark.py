"""Time windows on Spark and Kafka: what came in time is not refused, however much has piled up in several partitions."""

from __future__ import annotations

import pytest

from dskype.deploy.demo import places
from dskype.topology.config import TRANSPORTS, Config
from tests.topology.runtime.helpers import executors
from tests.topology.runtime.helpers import kill as kill_processes

from .feed import FILTER
from .harness import topology

BACKLOG, MORE = 6_000, 2_000


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_backlog_of_two_partitions_of_one_task_loses_no_message(cluster, name, feed_of, transport):
    """The lateness is 0, and the partitions are read one after the other: each could make all messages of the other one late."""
    conf = {"topology.acker.executors": 0, "dskype.window.span.ms": 3_600_000, Config.TOPOLOGY_EMULATOR_TRANSPORT: transport}
    feed = feed_of(cluster.environment.kafka, name, partitions=2)
    topic = feed.topics.messages
    records = places.places(seed=5, count=BACKLOG + MORE).records()

    def publish(some):
        for i, value in enumerate(some):
            feed.producer.send(topic, value=value, partition=i % 2)
        feed.producer.flush()
        return max(record.timestamp_ms for record in feed.read(topic))

    feed.subscribe([("west", FILTER), ("lakes", {"type": "topk", "text": "lake park", "lat": 43, "lon": -88, "k": 10, "alpha": 0.5})])
    newest = publish(records[:BACKLOG])
    with cluster.submit_topology(name, conf, topology({"subscription-bolt": 2}, name)) as handle:
        feed.wait_for(newest, 480)  # after the backlog nothing comes: the watermark catches up
        feed.verify(conf, messages=BACKLOG)
        newest = publish(records[BACKLOG : BACKLOG + MORE // 2])
        kill_processes(lambda: [p for p in executors() if p.name == "dsk:message-spo"], "executors of the message spout")
        newest = publish(records[BACKLOG + MORE // 2 :])
        feed.wait_for(newest, 480)
        feed.verify(conf, messages=BACKLOG + MORE)
        assert feed.read(feed.topics.dead_letters) == [] and handle.backend.failure is None
