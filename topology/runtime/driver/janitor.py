"""The driver's janitor: it looks after the topics, and whether what the driver writes arrives."""

from __future__ import annotations

from typing import ClassVar

from dskype.topology.core.log_checks import lost_tails
from dskype.topology.planning.plan import metrics_topic
from dskype.topology.runtime.driver.reports import DRIVER_KEY
from dskype.topology.runtime.driver.state import DriverState, TopologyFailedError
from dskype.topology.runtime.driver.topics import TopologyTopics
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.kafka.write_watch import WriteWatch, write_once

__all__ = ["Janitor"]


class Janitor:
    """Its requests may wait long for a broker that is away, so it has a thread of its own.

    :param state: the driver's, with a producer.
    """

    EVERY_S: ClassVar = 30.0
    """Seconds between two steps."""

    def __init__(self, state: DriverState, topics: TopologyTopics) -> None:
        self._state, self._topics = state, topics
        assert state.producer is not None, "the driver is open"
        self._writes = WriteWatch(state.producer, lambda: write_once(state.kafka, metrics_topic(state.plan.name), state.reports.document(), DRIVER_KEY))

    def step(self) -> float:
        """End the topology if the brokers have lost records that its tasks have processed; create deleted side topics again; drop old records.

        :returns: the seconds until the next step.
        """
        state = self._state
        if state.failure is None and (problem := self._writes.problem()) is not None:
            state.producer = state.kafka.producer()  # it writes why
            state.fail(TopologyFailedError(problem))
        if state.failure is not None:
            return self.EVERY_S
        with TopicAdmin(state.kafka) as admin:
            self._topics.recreate_deleted(admin, state.reports)
            versions = state.versions()  # before the ends, because logs may grow in between
            ends = admin.begins_and_ends(self._topics.inboxes)
            if lost := lost_tails(state.plan, versions, lambda topic, partition: ends[topic].get(partition, (0, 0))[1]):
                state.fail(TopologyFailedError("\n".join(lost)))
            self._topics.drop_old_records(admin, state.store, state.stats)
        return self.EVERY_S
