"""The topics of one topology: inboxes, statistics, dead letters, and external topics that its components need."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from dskype.topology.components import KafkaBolt, KafkaSpout
from dskype.topology.config import RECORD_BYTES, Config
from dskype.topology.core.executor import start_positions
from dskype.topology.core.old_records import OldRecords
from dskype.topology.core.snapshots import SnapshotStore
from dskype.topology.core.stats import TopologyStats
from dskype.topology.errors import FatalError, TopologyError
from dskype.topology.planning.plan import TopologyPlan, dead_letters_topic, inbox_topic, metrics_topic
from dskype.topology.runtime.driver.reports import DriverReports
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import INPUT_TOPIC, KEPT_TOPIC, OUTPUT_TOPIC, OWN_TOPIC, TopicAdmin, topic_warnings

__all__ = ["METRICS_RETENTION_MS", "TopologyTopics", "check_kafka_options"]

log = logging.getLogger(__name__)

METRICS_RETENTION_MS = 10 * 60_000


class TopologyTopics:
    """Creates, checks and deletes the topics of a topology."""

    def __init__(self, plan: TopologyPlan, kafka: KafkaSettings) -> None:
        self.plan, self._kafka = plan, kafka
        self._old = OldRecords(plan)

    @property
    def inboxes(self) -> dict[str, int]:
        """Inbox topic -> partitions."""
        return {inbox_topic(self.plan.name, c): len(self.plan.component_tasks(c)) for c in self.plan.component_ids}

    def create(self, resume: bool, store: SnapshotStore) -> list[str]:
        """Create all topics; on a resume, check that the inboxes are as the topology left them.

        :returns: warnings about external topics.
        :raises TopologyError: an inbox is missing, or has another number of partitions.
        :raises FatalError: an inbox lacks records with which a task has to continue.
        """
        inboxes = self.inboxes
        with TopicAdmin(self._kafka) as admin:
            existing = admin.existing(inboxes)
            if resume:
                wrong = {t: (n, existing.get(t)) for t, n in inboxes.items() if existing.get(t) != n}
                if wrong:
                    raise TopologyError(
                        f"Topology {self.plan.name!r} cannot be resumed: its inbox topics are not as it left them.",
                        given="; ".join(f"{t}: {'missing' if now is None else f'{now} partitions'}, expected {n}" for t, (n, now) in wrong.items()),
                        hint="their records are needed together with the snapshots; start it afresh ('dskype submit --fresh')",
                    )
            else:
                admin.delete([*existing, metrics_topic(self.plan.name)])
            # Kafka must not drop records that a snapshot may need; `drop_old_records` drops the others.
            admin.create(inboxes, KEPT_TOPIC)
            for topic, config in self._side_topics().items():
                admin.create({topic: 1}, config)
            warnings = self.create_external(admin)
            if resume:
                self.check_retention(self.plan.component_ids, admin, store)
        return warnings

    def _side_topics(self) -> dict[str, dict[str, str]]:
        """Return the topics of statistics and dead letters, with their configurations."""
        size, conf = {"max.message.bytes": str(2 * RECORD_BYTES)}, self.plan.conf
        return {
            metrics_topic(self.plan.name): {**OWN_TOPIC, "retention.ms": str(METRICS_RETENTION_MS), "segment.ms": str(METRICS_RETENTION_MS // 5), **size},
            dead_letters_topic(self.plan.name): {
                "retention.ms": str(conf[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_RETENTION_MS]),
                "segment.bytes": str(64 << 20),
                "retention.bytes": str(conf[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_RETENTION_BYTES]),
                **size,
            },
        }

    def recreate_deleted(self, admin: TopicAdmin, reports: DriverReports) -> None:
        """Create the topics of statistics and dead letters again if they were deleted, because every query writes to them; and report it."""
        topics = self._side_topics()
        existing = admin.existing(topics)
        for topic in sorted(topics.keys() - existing.keys()):
            admin.create({topic: 1}, topics[topic])
            reports.add_error("__driver", f"topic {topic} was deleted while the topology runs; it is created again", part="topics")

    def create_external(self, admin: TopicAdmin) -> list[str]:
        """Create the external topics that components need and that do not exist.

        :returns: warnings about external topics.
        """
        wanted: dict[str, dict[str, str]] = {}
        for spec in self.plan.topology.components.values():
            for topic, config in spec.obj.external_topics(self.plan.name, self.plan.component_conf(spec.id)).items():
                wanted.setdefault(topic, {}).update(config)
        existing = admin.existing(wanted)
        spouts = [spec.obj for spec in self.plan.topology.components.values() if isinstance(spec.obj, KafkaSpout)]
        inputs = {topic for spout in spouts for topic in (spout.topics or filter(spout.reads, admin.names()))}
        for topic, config in wanted.items():
            if topic not in existing:
                admin.create({topic: 1}, {**(INPUT_TOPIC if topic in inputs else OUTPUT_TOPIC), **config})
        largest = self.plan.conf[Config.TOPOLOGY_EMULATOR_RECORD_MAX_BYTES]
        warnings = topic_warnings(admin, inputs, dict.fromkeys(wanted.keys() - inputs, largest))
        for warning in warnings:
            log.warning("topology %s: %s", self.plan.name, warning)
        return warnings

    def check_retention(self, components: Iterable[str], admin: TopicAdmin, store: SnapshotStore) -> None:
        """Check that the inboxes of components have the records with which their tasks have to continue.

        :raises FatalError: one of them does not.
        """
        inboxes = {component: inbox_topic(self.plan.name, component) for component in components}
        found = admin.begins_and_ends(inboxes.values())
        for component, topic in inboxes.items():
            for (name, partition), offset in start_positions(self.plan, component, store).items():
                held = found[topic].get(partition)
                if name == topic and (held is None or not held[0] <= offset <= held[1]):
                    raise FatalError(
                        f"Topology {self.plan.name!r} cannot continue: component {component!r} has to continue at offset {offset} of {topic}/{partition}.",
                        given=f"the log holds {held or 'nothing'}",
                        component=component,
                        hint="the inbox was deleted or truncated, or a broker has lost its end; start it afresh ('dskype submit --fresh')",
                    )

    def drop_old_records(self, admin: TopicAdmin, store: SnapshotStore, stats: TopologyStats) -> None:
        """Let Kafka drop the inbox records that no task can need again."""
        admin.delete_records(self._old.find(store, stats))

    def delete(self) -> None:
        """Delete the inboxes and the topic of statistics; dead letters and external topics stay."""
        with TopicAdmin(self._kafka) as admin:
            admin.delete([*self.inboxes, metrics_topic(self.plan.name)])


def check_kafka_options(plan: TopologyPlan, kafka: KafkaSettings) -> None:
    """Refuse options of Kafka components that this runtime cannot honour, instead of ignoring them."""
    for component in plan.component_ids:
        obj = plan.spec(component).obj
        if isinstance(obj, KafkaBolt) and obj.kafka_options:
            raise TopologyError(
                "A KafkaBolt writes with the topology's own producer.",
                given=sorted(obj.kafka_options),
                component=component,
                hint="give kafka.* settings to the cluster",
            )
        if own := sorted(k for k in getattr(obj, "kafka_options", {}) if k.startswith(("security.", "sasl.", "ssl."))):
            raise TopologyError(
                "A component connects to the brokers as its topology does.",
                given=own,
                component=component,
                hint="give them to the cluster, as kafka.* settings",
            )
        servers = obj.kafka_options.get("bootstrap.servers") if isinstance(obj, KafkaSpout) else None
        if servers not in (None, kafka.bootstrap_servers):
            raise TopologyError(
                "A KafkaSpout reads from the brokers that carry the topology.", given=servers, component=component, legal=kafka.bootstrap_servers
            )
