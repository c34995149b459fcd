"""Settings of the embedded broker, its JVM and its log.

They suit a machine of two cores that also runs Spark: few threads, a small heap, and none of the periodic work that a single node does not need.
"""

HOST = "127.0.0.1"
MESSAGE_MAX_BYTES = 16 * 1024 * 1024

AFTER_CRASH = {"broker.session.timeout.ms": 2_000, "broker.heartbeat.interval.ms": 500}
"""After a crash, the metadata log still has the broker's old registration, and the new one must wait until that session times out."""

JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
)

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    # few threads, small buffers
    "num.network.threads": 2,
    "num.io.threads": 3,
    "background.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
    "log.cleaner.threads": 1,
    "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    "log.index.size.max.bytes": 1024 * 1024,
    # little idle work: no heartbeat of the metadata log, no leader balancing
    "metadata.max.idle.interval.ms": 0,
    "auto.leader.rebalance.enable": "false",
    # One node has nobody to hand over to. After a standstill it would fence itself for a moment, and clients that ask in that moment see a cluster without brokers.
    "broker.session.timeout.ms": 24 * 3_600_000,
    # one node
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    # topics are created explicitly, groups start at once
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "message.max.bytes": MESSAGE_MAX_BYTES,
    "replica.fetch.max.bytes": MESSAGE_MAX_BYTES,
    # deleted topics, expired segments and superseded keys are removed soon
    "log.segment.bytes": 64 * 1024 * 1024,
    "log.segment.delete.delay.ms": 1_000,
    "log.retention.check.interval.ms": 10_000,
    "log.cleaner.backoff.ms": 2_000,
    "log.cleaner.min.cleanable.ratio": 0.2,
}

LOG4J = """status = ERROR
appender.file.type = RollingFile
appender.file.name = FILE
appender.file.fileName = logs/server.log
appender.file.filePattern = logs/server.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c{1})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 8MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = FILE
"""
