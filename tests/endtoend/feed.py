"""The input of a DSkype topology on Kafka, how far it has come, and the check of what it published."""

from __future__ import annotations

import json
import time

from kafka import TopicPartition

from dskype.deploy.verification import Inputs, verify
from dskype.deploy.verification.inputs import INPUT_TOPICS
from dskype.spouts.settings import Settings
from dskype.spouts.topics import TOPIC_CONFIG, Topics
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from tests.waiting import Limit, wait_for

_QUIET_S = 60
"""When nothing new has been published for so long, nothing will be: a message counts as handled before all its results are published."""

FILTER = {"type": "boolean", "bbox": [-10, 35, 30, 60], "expression": 'saint OR san OR (bad AND "am")', "meta": "west"}


class Feed:
    """Writes messages and subscriptions, and watches how far the topology has come.

    :param tasks: of the subscription bolt.
    :param partitions: of the topic of messages.
    """

    def __init__(self, kafka: KafkaSettings, name: str, tasks: int = 2, partitions: int = 1) -> None:
        self.kafka, self.topics, self.tasks = kafka, Topics.for_topology(name), tasks
        admin = TopicAdmin(kafka)
        for topic, config in TOPIC_CONFIG.items():
            admin.create({getattr(self.topics, topic): partitions if topic == "messages" else 1}, config)
        admin.close()
        self.producer = kafka.producer(linger_ms=20)  # a request for each message of a steady input would cost much
        self._tails, self.reached, self._active = {}, {}, set()

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

    def _news(self, topic: str):
        """Yield the values of the records of a topic's only partition that have come since the last call."""
        if topic not in self._tails:
            where, tail = TopicPartition(topic, 0), self.kafka.consumer()
            tail.assign([where])
            tail.seek_to_beginning(where)
            self._tails[topic] = tail
        for records in self._tails[topic].poll(timeout_ms=100).values():
            yield from (json.loads(record.value) for record in records)

    def watermark(self) -> int:
        """Return the lowest watermark that the tasks of the subscription bolt have reported; -1 before."""
        for value in self._news(self.topics.metrics):
            if value["kind"] == "stats" and value["component"] == "subscription-bolt":
                self.reached.update({t["task"]: t["watermark"] for t in value["tasks"]})
        found = self.reached.values()
        return min((-1 if w is None else w for w in found), default=-1) if len(found) == self.tasks else -1

    def read(self, topic):
        """Return the records of a topic."""
        return read_to_end(self.kafka, topic)

    def close(self):
        """Close the clients."""
        self.producer.close()
        for tail in self._tails.values():
            tail.close()

    def wait_for(self, watermark: int, timeout_s: float = 240):
        wait_for(lambda: self.watermark() >= watermark, timeout_s, f"watermark {watermark}")

    def wait_until_active(self, subscription: str, timeout_s: float = 240):
        """Wait until a subscription is active: messages that are published from then on are matched against it."""

        def active() -> bool:
            self._active.update(event["subscription"] for event in self._news(self.topics.registrations) if event["event"] == "active")
            return subscription in self._active

        wait_for(active, timeout_s, f"the registration of {subscription}")

    def _ends(self):
        """Return the ends of the topics that the topology writes, when a second has brought no more: a check takes seconds of processor time."""
        consumer, before, limit = self.kafka.consumer(), None, Limit(_QUIET_S)
        try:
            topics = [getattr(self.topics, name) for name in INPUT_TOPICS]
            partitions = [TopicPartition(topic, p) for topic in topics for p in consumer.partitions_for_topic(topic) or ()]
            while (ends := consumer.end_offsets(partitions)) != before and not limit.over:
                before = ends
                time.sleep(1)
            return ends
        finally:
            consumer.close()

    def verify(self, conf, final=True, **least):
        """Verify everything that was published; wait for the last answers as long as there are new ones."""

        def report():
            return verify(
                Inputs.read(self.topics.messages.rpartition(".")[0], lambda topic: read_to_end(self.kafka, topic)),
                Settings.from_conf(conf),
                final=final,
                writes=True,
            )

        ends = self._ends()
        found, quiet = report(), Limit(_QUIET_S)
        while not found.ok and not quiet.over:
            time.sleep(1)
            if (now := self._ends()) != ends:
                ends, quiet = now, Limit(_QUIET_S)
                found = report()
        print(found.compared, found.notes, found.unchecked, flush=True)
        assert found.ok, "\n".join(d.as_text() for d in found.differences)
        for what, n in least.items():
            assert found.compared[what] >= n, found.compared
        return found
